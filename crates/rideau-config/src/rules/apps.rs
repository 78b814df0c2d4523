//! Rules that hold between applications, and between them and their front.

use crate::app::{AppConfig, AppListen};
use crate::config::Config;
use crate::section::{At, Notes, Section};
use crate::sections::Sections;

pub(super) fn check(notes: &Notes<'_>, sections: &Sections<'_>, config: &Config) {
    check_routes(notes, sections, config);
    check_places(notes, sections, config);
    check_min(notes, sections, config);
    check_front(notes, sections);
}

/// A host and a path lead to one app.
fn check_routes(notes: &Notes<'_>, sections: &Sections<'_>, config: &Config) {
    // Those whose hosts cannot be read do not have every other host.
    let is_read = |app: &&AppConfig| !app.hosts.is_empty() || !is_given(sections, app, "hosts");
    let apps: Vec<_> = config.apps.iter().filter(is_read).collect();
    for (place, app) in apps.iter().enumerate() {
        for (host, path) in routes(app) {
            let mut others = apps[..place].iter();
            let is_same = |other: &&&AppConfig| routes(other).any(|route| route == (host, path));
            let (Some(other), Some(section)) = (others.find(is_same), section(sections, app))
            else {
                continue;
            };
            let (at, where_to) = match host {
                Some(host) => (at_text(section, "hosts", host), format!("{host}{path}")),
                None => (section.at("paths"), format!("every other host's {path}")),
            };
            let message = format!("{where_to} leads to app `{}` already", other.name);
            let hint = "give one of them other `hosts` or `paths`";
            notes.error(at, message, hint);
        }
    }
}

fn routes(app: &AppConfig) -> impl Iterator<Item = (Option<&str>, &str)> {
    let any = app.hosts.is_empty().then_some(None);
    let hosts = app.hosts.iter().map(|host| Some(host.as_str())).chain(any);
    hosts.flat_map(|host| app.paths.iter().map(move |path| (host, path.as_str())))
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
    if let Some((name, section)) = sections.apps.first()
        && !is_there("listen")
        && !is_there("tls_listen")
    {
        let message = format!("no client can reach app `{name}`: the front listens nowhere");
        let hint = "write listen = [\"127.0.0.1:3000\"] under [front]";
        notes.warn(section.at.clone(), message, hint);
    }
}

fn section<'a>(sections: &'a Sections<'_>, app: &AppConfig) -> Option<&'a Section<'a>> {
    let mut named = sections.apps.iter();
    let found = named.find(|(name, _)| *name == app.name);
    found.map(|(_, section)| section)
}

fn is_given(sections: &Sections<'_>, app: &AppConfig, key: &str) -> bool {
    section(sections, app).is_some_and(|section| has_some(section, key))
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
