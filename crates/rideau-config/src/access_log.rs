//! The log of requests: where it goes, its form, and what it leaves out.

use std::path::PathBuf;

use super::key::{Form, Key};
use super::kinds::{Kind, Written, spelled};
use super::section::{Made, Section};
use super::shown::Rows;

/// Where the log of requests goes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum AccessLog {
    /// There is none.
    #[default]
    None,
    /// To the output of the server.
    Stdout,
    /// To this file.
    File(PathBuf),
}

/// The form of its lines.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum AccessFormat {
    /// As Apache and nginx have it.
    #[default]
    Combined,
    /// One object a line, which says more.
    Json,
}

spelled! { AccessFormat { Combined "combined", Json "json" } }

/// What is left out of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum HiddenPart {
    /// The end of the client's address.
    Client,
    /// What follows the `?`.
    Query,
    /// The value of this argument.
    Argument(String),
    /// What this field says.
    Header(LoggedHeader),
}

/// A field of a request that is logged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LoggedHeader {
    /// Where the client found the link.
    Referer,
    /// What the client is.
    UserAgent,
}

/// Where a log goes; the folder of its file has to be there.
pub(super) struct LogPlace;

impl Kind<AccessLog> for LogPlace {
    const FORM: Form = Form::Any(&[Form::Words(&["none", "stdout"]), Form::Path]);

    fn read(section: &Section<'_>, key: &Key) -> Option<AccessLog> {
        let log = section.made(key.name, |text| match text {
            "none" => Ok(AccessLog::None),
            "stdout" => Ok(AccessLog::Stdout),
            path if path.starts_with('/') && !path.ends_with('/') => {
                Ok(AccessLog::File(path.into()))
            }
            _ => Err((
                format!("`{}` cannot be {text:?}", key.name),
                "write the full path of a file, \"stdout\" or \"none\"".into(),
            )),
        })?;
        if let AccessLog::File(path) = &log {
            section.notes.new_file(path.clone(), section.at(key.name));
        }
        Some(log)
    }

    fn show(value: &AccessLog, key: &Key, rows: &mut Rows) {
        match value {
            AccessLog::None => rows.text(key.name, "none"),
            AccessLog::Stdout => rows.text(key.name, "stdout"),
            AccessLog::File(path) => rows.text(key.name, &path.display().to_string()),
        }
    }
}

impl Written for HiddenPart {
    fn make(text: &str, _: &Key) -> Made<Self> {
        let header = text.strip_prefix("header:").map(str::to_ascii_lowercase);
        let argument = text.strip_prefix("query:").filter(|name| !name.is_empty());
        match (text, header.as_deref(), argument) {
            ("client", ..) => Ok(Self::Client),
            ("query", ..) => Ok(Self::Query),
            (_, Some("referer"), _) => Ok(Self::Header(LoggedHeader::Referer)),
            (_, Some("user-agent"), _) => Ok(Self::Header(LoggedHeader::UserAgent)),
            (_, Some(name), _) => Err((
                format!("the header {name:?} is not logged"),
                "only header:referer and header:user-agent are".into(),
            )),
            (_, _, Some(name)) => Ok(Self::Argument(name.into())),
            _ => Err((
                format!("{text:?} is no part of a request that is logged"),
                "write \"client\", \"query\", \"query:NAME\", \"header:referer\" or \
                 \"header:user-agent\""
                    .into(),
            )),
        }
    }

    fn word(&self) -> String {
        match self {
            Self::Client => "client".into(),
            Self::Query => "query".into(),
            Self::Argument(name) => format!("query:{name}"),
            Self::Header(LoggedHeader::Referer) => "header:referer".into(),
            Self::Header(LoggedHeader::UserAgent) => "header:user-agent".into(),
        }
    }
}
