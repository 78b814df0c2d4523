//! Routes of the front: where requests for some hosts and paths are led, beside the hosts and
//! paths of applications.

use super::hosts::{Hosts, PathPrefixes};
use super::key::{Form, Key};
use super::keyed::Keyed;
use super::kinds::{Kind, Maybe, Number, Text, Written};
use super::section::{Made, Section, kind_of};
use super::shown::Rows;
use super::table::section;

section! {
    /// A route of the front.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub struct RouteConfig {
        plain {
            /// Its name in the config.
            name: String = String::new();
        }
        /// Requests for these hosts are led by it, as by the `hosts` of an app.
        hosts: Vec<String> = Vec::new(), Hosts, Requests, sample = r#"["www.shop.example"]"#;
        /// Only requests below one of these paths.
        paths: Vec<String> = vec!["/".into()], PathPrefixes, Requests;
        /// Clients are sent there. `{host}` is the host that was asked for, `{path}` the path
        /// with its query, and `{rest}` what follows the path of the route.
        redirect: Option<RedirectTarget> = None, Maybe<Text>, Requests, usual = "none",
            sample = r#""https://shop.example{path}""#;
        /// The status that sends them: 301, 302, 303, 307 or 308. With 307 and 308 clients
        /// send the same request again, with its body.
        status: u16 = 308, Number, Requests, bounds = (301, 308);
        /// Requests are led to this app, whatever its own `hosts` and `paths` are.
        to: Option<String> = None, Maybe<Text>, Requests, usual = "none";
        /// Fields that its answers get, instead of those with the same name. With an empty text
        /// the field is taken away.
        headers: Vec<(String, String)> = Vec::new(), AnswerFields, Requests, usual = "{}",
            sample = r#"{ Cache-Control = "no-store" }"#;
    }
}

/// Where a redirect leads.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RedirectTarget {
    parts: Vec<TargetPart>,
}

/// A part of where a redirect leads.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TargetPart {
    /// As it is written.
    Text(String),
    /// The host that was asked for.
    Host,
    /// The path that was asked for, with its query.
    Path,
    /// What follows the path of the route, with the query.
    Rest,
}

/// Parts that are filled in, by the names they have in the file.
const PARTS: [(&str, TargetPart); 3] = [
    ("{host}", TargetPart::Host),
    ("{path}", TargetPart::Path),
    ("{rest}", TargetPart::Rest),
];
/// Statuses that send a client elsewhere.
const STATUSES: [u16; 5] = [301, 302, 303, 307, 308];
/// Fields that say how a message is sent, or that an answer has several times.
const FIXED_FIELDS: [&str; 11] = [
    "connection",
    "content-encoding",
    "content-length",
    "content-range",
    "date",
    "keep-alive",
    "set-cookie",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Fields of answers by their names.
struct AnswerFields;

impl RouteConfig {
    /// None if it leads nowhere; that is noted.
    pub(super) fn read(name: &str, section: &Section<'_>) -> Option<Self> {
        let mut route = Self {
            name: name.into(),
            ..Self::default()
        };
        route.read_keys(section);
        let notes = section.notes;
        match (section.has("redirect"), section.has("to")) {
            (false, false) => {
                let message = format!("route `{name}` leads nowhere");
                let hint = "write redirect = \"https://shop.example{path}\", or to = \"APP\"";
                notes.error(section.at.clone(), message, hint);
            }
            (true, true) => {
                let message = format!("route `{name}` leads to an app and elsewhere");
                notes.error(section.at("to"), message, "keep `redirect` or `to`");
            }
            (false, true) if section.has("status") => {
                let message = "`status` is for a `redirect`";
                notes.error(section.at("status"), message, "remove it");
            }
            _ => (),
        }
        if !STATUSES.contains(&route.status) {
            let message = format!("{} sends no client elsewhere", route.status);
            let hint = "write 301, 302, 303, 307 or 308";
            notes.error(section.at("status"), message, hint);
        }
        (route.redirect.is_some() != route.to.is_some()).then_some(route)
    }
}

impl RedirectTarget {
    /// What it is put together of.
    pub fn parts(&self) -> &[TargetPart] {
        &self.parts
    }
}

impl Written for RedirectTarget {
    fn make(text: &str, _: &Key) -> Made<Self> {
        let bad = |hint: &str| {
            let message = format!("clients cannot be sent to {text:?}");
            Err((message, hint.to_owned()))
        };
        let is_odd = |c: char| c.is_whitespace() || c.is_control() || "\"<>\\^`|#".contains(c);
        if text.contains(is_odd) || !text.is_ascii() {
            return bad("write it as in a browser's line: other letters as %20");
        }
        let starts = ["/", "http://", "https://", "{path}", "{rest}"];
        if !starts.iter().any(|start| text.starts_with(start)) || text.starts_with("//") {
            return bad("it begins with https://, http:// or one /");
        }
        if text == "{path}" {
            return bad("that is where they come from");
        }
        let mut parts = Vec::new();
        let mut rest = text;
        while !rest.is_empty() {
            let known = PARTS.iter().find(|(name, _)| rest.starts_with(name));
            if let Some((name, part)) = known {
                parts.push(part.clone());
                rest = &rest[name.len()..];
                continue;
            }
            let end = rest[1..].find('{').map_or(rest.len(), |at| at + 1);
            let (plain, behind) = rest.split_at(end);
            if plain.contains(['{', '}']) {
                return bad("in braces stands `{host}`, `{path}` or `{rest}`");
            }
            parts.push(TargetPart::Text(plain.to_owned()));
            rest = behind;
        }
        Ok(Self { parts })
    }

    fn word(&self) -> String {
        let parts = self.parts.iter();
        let words = parts.map(|part| match part {
            TargetPart::Text(text) => text.as_str(),
            part => {
                let mut named = PARTS.iter().filter(|(_, known)| known == part);
                named.next().map_or("", |(name, _)| name)
            }
        });
        words.collect()
    }
}

impl Kind<Vec<(String, String)>> for AnswerFields {
    const FORM: Form = Form::Names(&Form::Text);

    fn read(section: &Section<'_>, key: &Key) -> Option<Vec<(String, String)>> {
        let entry = section.entry(key.name)?;
        let Some(table) = entry.item.as_table_like() else {
            let kind = kind_of(entry.item);
            let message = format!("`{}` is {kind}, and has to be a table", key.name);
            let hint = "write { Cache-Control = \"no-store\" }";
            section.notes.error(entry.at(), message, hint);
            return None;
        };
        let part = Section::all(section.notes, table, entry.key_at.clone());
        let field = |name: &str, at| {
            let value = part.text(name)?;
            part.note(&at, check_field(name, &value))?;
            Some((name.to_owned(), value))
        };
        let fields = part.entries.iter();
        let fields = fields.filter_map(|entry| field(entry.name, entry.key_at.clone()));
        Some(fields.collect())
    }

    fn show(value: &Vec<(String, String)>, key: &Key, rows: &mut Rows) {
        rows.below(key.name, |rows| {
            for (name, value) in value {
                rows.text(name, value);
            }
        });
    }
}

/// Whether an answer may get such a field.
fn check_field(name: &str, value: &str) -> Made<()> {
    let is_letter = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
    if name.is_empty() || !name.chars().all(is_letter) {
        let message = format!("{name:?} is not the name of a field");
        return Err((message, "it has letters, digits and dashes".into()));
    }
    if FIXED_FIELDS.contains(&name.to_ascii_lowercase().as_str()) {
        let message = format!("answers cannot be given the field `{name}`");
        return Err((message, "it is not for a route to say: remove it".into()));
    }
    if value.chars().any(|c| c.is_control() && c != '\t') {
        let message = format!("the field `{name}` has a line's end or such in it");
        return Err((message, "write it on one line".into()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(text: &str) -> Made<RedirectTarget> {
        RedirectTarget::make(text, &Key::BARE)
    }

    #[test]
    fn where_a_redirect_leads_is_shown_as_it_is_written() {
        for text in [
            "https://shop.example{path}",
            "https://{host}/new{rest}",
            "/new",
            "{rest}",
            "http://shop.example:8080/%20?from={host}",
        ] {
            assert_eq!(target(text).unwrap().word(), text);
        }
        let parts = target("https://a{rest}").unwrap();
        let text = TargetPart::Text("https://a".into());
        assert_eq!(parts.parts(), [text, TargetPart::Rest]);
    }

    #[test]
    fn clients_are_sent_nowhere_else() {
        for text in [
            "",
            "shop.example",
            "//shop.example",
            "ftp://shop.example",
            "javascript:alert(1)",
            "https://a/{user}",
            "https://a/{",
            "https://a/}",
            "https://a/\r\nSet-Cookie: a",
            "https://a/ü",
            "{path}",
        ] {
            assert!(target(text).is_err(), "{text:?}");
        }
    }
}
