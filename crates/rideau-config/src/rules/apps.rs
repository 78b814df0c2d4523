//! Rules that hold between applications, and between them and their front.

use crate::app::{AppConfig, AppListen};
use crate::config::Config;
use crate::section::{At, Notes, Section, suggest_section};
use crate::sections::{Named, Sections};

pub(super) fn check(notes: &Notes<'_>, sections: &Sections<'_>, config: &Config) {
    check_routes(notes, sections, config);
    check_places(notes, sections, config);
    check_min(notes, sections, config);
    check_names(notes, sections);
    check_front(notes, sections);
}

/// Something that requests for some hosts and paths are led to.
struct Lead<'a> {
    kind: &'static str,
    name: &'a str,
    hosts: &'a [String],
    paths: &'a [String],
    section: &'a Section<'a>,
}

/// A host and a path lead to one app or route.
fn check_routes(notes: &Notes<'_>, sections: &Sections<'_>, config: &Config) {
    let leads = leads(sections, config);
    for (place, lead) in leads.iter().enumerate() {
        for (host, path) in lead.ways() {
            let mut others = leads[..place].iter();
            let Some(other) = others.find(|other| other.ways().any(|way| way == (host, path)))
            else {
                continue;
            };
            let (at, where_to) = match host {
                Some(host) => (
                    at_text(lead.section, "hosts", host),
                    format!("{host}{path}"),
                ),
                None => (
                    lead.section.at("paths"),
                    format!("every other host's {path}"),
                ),
            };
            let message = format!(
                "{where_to} leads to {} `{}` already",
                other.kind, other.name
            );
            let hint = "give one of them other `hosts` or `paths`";
            notes.error(at, message, hint);
        }
    }
    for route in &config.front.routes {
        let is_there = |app: &AppConfig| Some(&app.name) == route.to.as_ref();
        if let Some(to) = &route.to
            && !config.served().any(is_there)
            && served(sections).all(|(name, _)| name != to)
            && let Some(section) = named(&sections.routes, &route.name)
        {
            let message = format!("there is no app `{to}`");
            let names = served(sections).map(|(name, _)| *name);
            notes.error(section.at("to"), message, suggest_section("app", to, names));
        }
    }
}

/// All that requests are led to. Those whose hosts cannot be read do not have every other
/// host.
fn leads<'a>(sections: &'a Sections<'a>, config: &'a Config) -> Vec<Lead<'a>> {
    let apps = config.apps.iter().filter_map(|app| {
        Some(Lead {
            kind: "app",
            name: &app.name,
            hosts: &app.hosts,
            paths: &app.paths,
            section: named(&sections.apps, &app.name)?,
        })
    });
    let upstreams = config.upstreams.iter().filter_map(|upstream| {
        Some(Lead {
            kind: "upstream",
            name: &upstream.app.name,
            hosts: &upstream.app.hosts,
            paths: &upstream.app.paths,
            section: named(&sections.upstreams, &upstream.app.name)?,
        })
    });
    let routes = config.front.routes.iter().filter_map(|route| {
        Some(Lead {
            kind: "route",
            name: &route.name,
            hosts: &route.hosts,
            paths: &route.paths,
            section: named(&sections.routes, &route.name)?,
        })
    });
    let is_read = |lead: &Lead<'_>| !lead.hosts.is_empty() || !has_some(lead.section, "hosts");
    let apps = apps.chain(upstreams);
    apps.chain(routes).filter(is_read).collect()
}

impl<'a> Lead<'a> {
    /// Each host and path, with none for all hosts that nothing else has.
    fn ways(&self) -> impl Iterator<Item = (Option<&'a str>, &'a str)> {
        let (hosts, paths) = (self.hosts, self.paths);
        let any = hosts.is_empty().then_some(None);
        let hosts = hosts.iter().map(|host| Some(host.as_str())).chain(any);
        hosts.flat_map(move |host| paths.iter().map(move |path| (host, path.as_str())))
    }
}

/// All that requests can be led to.
fn served<'a>(sections: &'a Sections<'a>) -> impl Iterator<Item = &'a (&'a str, Section<'a>)> {
    sections.apps.iter().chain(&sections.upstreams)
}

/// Requests, rights and numbers know apps and upstreams by their names alone.
fn check_names(notes: &Notes<'_>, sections: &Sections<'_>) {
    for (name, section) in &sections.upstreams {
        if sections.apps.iter().any(|(app, _)| app == name) {
            let message = format!("the upstream `{name}` has the name of an app");
            let hint = "give one of them another name";
            notes.error(section.at.clone(), message, hint);
        }
    }
}

/// Nothing else listens where an app always does.
fn check_places(notes: &Notes<'_>, sections: &Sections<'_>, config: &Config) {
    for (place, app) in config.apps.iter().enumerate() {
        let AppListen::Fixed(address) = app.run.listen else {
            continue;
        };
        let mut others = config.apps[..place].iter();
        let other = others.find(|other| other.run.listen == app.run.listen);
        let ours = super::addresses(sections).into_iter().find(|(_, ours, _)| {
            let is_same = ours.ip() == address.ip() || ours.ip().is_unspecified();
            ours.port() == address.port() && is_same
        });
        let message = match (other, ours) {
            (Some(other), _) => format!("app `{}` listens at {address} already", other.name),
            (None, Some((key, _, _))) => format!("{address} is taken by `{key}` already"),
            (None, None) => continue,
        };
        if let Some(section) = section(sections, app) {
            notes.error(section.at("listen"), message, "give it another port");
        }
    }
}

/// All `min` together should fit into `front.max`.
fn check_min(notes: &Notes<'_>, sections: &Sections<'_>, config: &Config) {
    let max = config.front.limits.max;
    let mut sum = 0_usize;
    for app in &config.apps {
        let before = sum;
        sum = sum.saturating_add(app.options.min);
        if before <= max
            && sum > max
            && let Some(section) = section(sections, app)
        {
            let message = format!("with `min` of app `{}` {sum} processes are kept", app.name);
            let hint = format!("front.max is {max}: not all of them fit");
            notes.warn(section.at("min"), message, hint);
        }
    }
}

/// Apps are reached through the front.
fn check_front(notes: &Notes<'_>, sections: &Sections<'_>) {
    let front = sections.front.as_ref();
    let is_there = |key| front.is_some_and(|front| has_some(front, key));
    let kinds = [("app", &sections.apps), ("upstream", &sections.upstreams)];
    let mut first = kinds
        .iter()
        .filter_map(|(kind, all)| Some((*kind, all.first()?)));
    if let Some((kind, (name, section))) = first.next()
        && !is_there("listen")
        && !is_there("tls_listen")
    {
        let message = format!("no client can reach {kind} `{name}`: the front listens nowhere");
        let hint = "write listen = [\"127.0.0.1:3000\"] under [front]";
        notes.warn(section.at.clone(), message, hint);
    }
}

fn section<'a>(sections: &'a Sections<'a>, app: &AppConfig) -> Option<&'a Section<'a>> {
    named(&sections.apps, &app.name)
}

/// The section of this name.
fn named<'a>(all: &'a Named<'a>, name: &str) -> Option<&'a Section<'a>> {
    let found = all.iter().find(|(known, _)| *known == name);
    found.map(|(_, section)| section)
}

/// The key is there, and no empty list.
fn has_some(section: &Section<'_>, key: &str) -> bool {
    let entry = section.entry(key);
    entry.is_some_and(|entry| entry.item.as_array().is_none_or(|list| !list.is_empty()))
}

/// Where one of a list stands.
fn at_text(section: &Section<'_>, key: &str, text: &str) -> At {
    let list = section.list(key).unwrap_or_default();
    let found = list
        .into_iter()
        .find(|(one, _)| one.eq_ignore_ascii_case(text));
    found.map_or(section.at(key), |(_, at)| at)
}
