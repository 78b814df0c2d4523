//! Every alarm is about something that there is, and there are not too many.

use crate::alarm::{ALARMS_MAX, AlarmConfig};
use crate::config::Config;
use crate::keyed::Keyed;
use crate::section::{At, Notes, Section, suggest_section};
use crate::sections::{Named, Sections};
use crate::server::Limits;

pub(super) fn check(notes: &Notes<'_>, sections: &Sections<'_>, config: &Config) {
    if let Some((_, section)) = sections.alarms.get(ALARMS_MAX) {
        let message = format!("there are {} alarms", sections.alarms.len());
        let hint = format!("{ALARMS_MAX} are the most");
        notes.error(section.at.clone(), message, hint);
    }
    for alarm in &config.alarms {
        let named = |(name, _): &&(&str, Section<'_>)| *name == alarm.name;
        if let Some((_, section)) = sections.alarms.iter().find(named) {
            check_name(notes, sections, config, alarm, &section.at("when"));
        }
    }
}

fn check_name(
    notes: &Notes<'_>,
    sections: &Sections<'_>,
    config: &Config,
    alarm: &AlarmConfig,
    at: &At,
) {
    let rule = &alarm.when;
    let (kind, name) = (rule.kind, &*rule.name);
    if kind == "cluster" && sections.cluster.is_none() {
        let message = "this server is no node of a cluster";
        notes.error(at.clone(), message, "add [cluster], or name something else");
    }
    let Some(known) = names(sections, config, kind) else {
        return;
    };
    // A group is written with an at sign where a pool could be meant.
    let name = if kind == "group" {
        name.trim_start_matches('@')
    } else {
        name
    };
    if known.contains(&name) {
        return;
    }
    let hint = suggest_section(kind, name, known.into_iter());
    notes.error(at.clone(), format!("there is no {kind} `{name}`"), hint);
}

/// The names that there are of a kind; none if any will do.
fn names<'a>(sections: &Sections<'a>, config: &Config, kind: &str) -> Option<Vec<&'a str>> {
    // What is wrong itself is there all the same.
    let of = |named: &Named<'a>| -> Vec<&'a str> { named.iter().map(|(name, _)| *name).collect() };
    Some(match kind {
        "pool" => of(&sections.pools),
        "group" => {
            let pools = sections.pools.iter();
            let groups = pools.filter_map(|(_, pool)| pool.entry("group")?.item.as_str());
            let written = sections.groups.iter().map(|(name, _)| *name);
            written.chain(groups).collect()
        }
        "broker" => of(&sections.brokers),
        "regulator" => of(&sections.regulators),
        "lock" => of(&sections.locks),
        "range" => of(&sections.ranges),
        "view" => of(&sections.views),
        "app" => [of(&sections.apps), of(&sections.upstreams)].concat(),
        // Others are ordered, by names that are not known yet.
        "certificate" if config.front.acme.is_none() => of(&sections.certificates),
        "limits" => {
            let keys = Limits::KEYS.iter().map(|key| key.name);
            keys.filter(|name| name.ends_with("_max")).collect()
        }
        _ => return None,
    })
}
