//! Rules for what nodes share.

use crate::broker::Source;
use crate::config::Config;
use crate::pool::Member;
use crate::scope::SharedBy;
use crate::section::Notes;
use crate::sections::{Named, Sections};

/// What nodes share has to be of one kind, and together.
pub(super) fn check(notes: &Notes<'_>, sections: &Sections<'_>, config: &Config) {
    for pool in &config.pools {
        let found = sections.pools.iter().find(|(name, _)| *name == pool.name);
        let is_list = matches!(pool.member, Member::List(_));
        if let Some((_, section)) = found.filter(|_| pool.scope == SharedBy::Cluster && !is_list) {
            let message = "nodes share pools of a list only: a process or a connection cannot move";
            let hint = "remove `scope`, or write member = { list = […] }";
            notes.error(section.at("scope"), message, hint);
        }
    }
    let pools = config.pools.iter();
    let pools = pools.map(|pool| (pool.group.as_deref(), &*pool.name, pool.scope));
    check_groups(notes, &sections.pools, &pools.collect::<Vec<_>>());
    let brokers = config.brokers.iter();
    let brokers = brokers.map(|broker| (broker.group.as_deref(), &*broker.name, broker.scope));
    check_groups(notes, &sections.brokers, &brokers.collect::<Vec<_>>());
    check_feeds(notes, sections, config);
}

/// All of a group are shared, or none.
fn check_groups(notes: &Notes<'_>, sections: &Named<'_>, all: &[(Option<&str>, &str, SharedBy)]) {
    for (at, (group, name, scope)) in all.iter().enumerate() {
        let mut others = all[..at].iter();
        let other =
            others.find(|(other, _, theirs)| group.is_some() && other == group && theirs != scope);
        let found = sections.iter().find(|(other, _)| other == name);
        if let (Some((_, other, _)), Some((_, section))) = (other, found) {
            let message = format!("`{other}` of the same group has another `scope`");
            let hint = "write the same `scope` for all of a group";
            notes.error(section.at("scope"), message, hint);
        }
    }
}

/// A regulator learns from what is shared as it is.
fn check_feeds(notes: &Notes<'_>, sections: &Sections<'_>, config: &Config) {
    for regulator in &config.regulators {
        let source = regulator.feed.as_ref().map(|feed| &feed.source);
        let theirs = match source {
            Some(Source::Broker(name)) => {
                let mut brokers = config.brokers.iter();
                brokers
                    .find(|broker| broker.name == *name)
                    .map(|it| it.scope)
            }
            Some(Source::Regulator(name)) => {
                let mut regulators = config.regulators.iter();
                regulators
                    .find(|other| other.name == *name)
                    .map(|it| it.scope)
            }
            None => None,
        };
        let mut named = sections.regulators.iter();
        let found = named.find(|(name, _)| *name == regulator.name);
        if let (Some(theirs), Some((_, section))) = (theirs, found)
            && theirs != regulator.scope
        {
            let message = "what it learns from has another `scope`";
            notes.error(
                section.at("scope"),
                message,
                "write the same `scope` for both",
            );
        }
    }
}
