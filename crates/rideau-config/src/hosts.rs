//! Hosts and paths whose requests are led somewhere.

use std::net::Ipv6Addr;

use super::key::{Form, Key};
use super::kinds::{Kind, List};
use super::section::{Made, Section};
use super::shown::Rows;

/// Hosts in small letters, each once.
pub(super) struct Hosts;
/// Beginnings of paths, each once.
pub(super) struct PathPrefixes;

impl Kind<Vec<String>> for Hosts {
    const FORM: Form = Form::List(&Form::Text);

    fn read(section: &Section<'_>, _: &Key) -> Option<Vec<String>> {
        each_once(section, "hosts", host)
    }

    fn show(value: &Vec<String>, key: &Key, rows: &mut Rows) {
        List::show(value, key, rows);
    }
}

impl Kind<Vec<String>> for PathPrefixes {
    const FORM: Form = Form::List(&Form::Text);

    fn read(section: &Section<'_>, _: &Key) -> Option<Vec<String>> {
        paths(section)
    }

    fn show(value: &Vec<String>, key: &Key, rows: &mut Rows) {
        List::show(value, key, rows);
    }
}

fn paths(section: &Section<'_>) -> Option<Vec<String>> {
    let paths = each_once(section, "paths", prefix)?;
    if section.list("paths").is_some_and(|list| list.is_empty()) {
        let hint = "write [\"/\"] for every path, or remove the key";
        let at = section.at("paths");
        section.notes.error(at, "`paths` is empty", hint);
    }
    Some(paths).filter(|paths| !paths.is_empty())
}

/// A path that can be asked for.
pub(super) fn path(text: &str) -> Made<String> {
    let is_bad = |c: char| c.is_whitespace() || c.is_control() || c == '#';
    if !text.starts_with('/') || text.contains(is_bad) {
        let message = format!("{text:?} is not a path of a request");
        return Err((message, "it begins with a /, such as \"/up\"".into()));
    }
    Ok(text.into())
}

fn each_once(
    section: &Section<'_>,
    key: &str,
    make: fn(&str) -> Made<String>,
) -> Option<Vec<String>> {
    let mut all: Vec<String> = Vec::new();
    for (text, at) in section.list(key)? {
        let Some(one) = section.note(&at, make(&text)) else {
            continue;
        };
        if all.contains(&one) {
            let message = format!("`{key}` has {one:?} twice");
            section.notes.error(at, message, "keep one");
            continue;
        }
        all.push(one);
    }
    Some(all)
}

/// `shop.example`, or `*.shop.example` for all below it.
fn host(text: &str) -> Made<String> {
    let host = text.to_ascii_lowercase();
    let named = |hint: String| Err((format!("{text:?} is not a host name"), hint));
    if text == "*" {
        return named("remove it: an app without hosts has those that no other has".into());
    }
    if let Some((_, rest)) = text.split_once("://") {
        let bare = rest.split(['/', ':']).next().unwrap_or(rest);
        return named(format!("write {bare:?}"));
    }
    if let Some((bare, _)) = text.split_once('/') {
        return named(format!("write {bare:?}, and the path in `paths`"));
    }
    // As browsers write it.
    if let Ok(address) = host.trim_matches(['[', ']']).parse::<Ipv6Addr>() {
        return Ok(format!("[{address}]"));
    }
    if let Some((bare, _)) = text.split_once(':') {
        return named(format!("write {bare:?}: the port does not matter"));
    }
    let labels = host.strip_prefix("*.").unwrap_or(&host);
    let is_label = |label: &str| {
        let is_known = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        !label.is_empty() && label.len() <= 63 && label.chars().all(is_known)
    };
    if labels.contains('*') {
        return named("a * stands only before the first dot: \"*.shop.example\"".into());
    }
    if !labels.split('.').all(is_label) || labels.len() > 253 {
        return named("write it as \"shop.example\" or \"*.shop.example\"".into());
    }
    Ok(host)
}

/// `/` or `/shop`: without a slash at the end, which is no matter.
fn prefix(text: &str) -> Made<String> {
    let text = path(text).map_err(|_| {
        let message = format!("{text:?} is not the beginning of a path");
        (message, "it begins with a /, such as \"/shop\"".to_owned())
    })?;
    if text.contains(['?', '*']) || text.contains("//") {
        let message = format!("{text:?} is not the beginning of a path");
        let hint = "write it as \"/shop\": all below it belongs to it";
        return Err((message, hint.into()));
    }
    Ok(match text.trim_end_matches('/') {
        "" => "/".into(),
        text => text.into(),
    })
}
