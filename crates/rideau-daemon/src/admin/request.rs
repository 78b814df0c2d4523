//! One request that may be answered, and what it has.

use std::sync::Arc;

use axum::http::{HeaderMap, StatusCode};
use rideau_config::User;
use rideau_config::label::Label;
use serde::de::DeserializeOwned;

use super::Admin;
use super::answer::HttpError;
use super::query::Query;
use crate::redis::client::CommandError;
use crate::redis::input::Input;
use crate::redis::login;
use crate::state::catalog::Catalog;
use crate::state::daemon::Daemon;
use crate::state::logins::Fingerprint;
use crate::state::quota::{Counted, Quota};
use crate::state::viewer::Viewer;

/// A request that may be answered.
pub(super) struct AdminRequest {
    pub(super) admin: Arc<Admin>,
    /// The user it is; none where there are no users.
    pub(super) user: Option<Arc<User>>,
    /// The fingerprint of its password, if it came with one.
    pub(super) password: Option<Fingerprint>,
    /// Its rights are those of the config of this generation, or of a later one.
    pub(super) generation: u64,
    /// The named parts of the path.
    pub(super) names: Vec<(String, String)>,
    pub(super) query: Query,
    /// The session that it is part of.
    pub(super) session: Option<String>,
    /// The kinds of answers that it would like.
    pub(super) accept: String,
    /// All its headers.
    pub(super) headers: HeaderMap,
    /// It came within TLS.
    pub(super) is_tls: bool,
    pub(super) body: Input,
}

impl AdminRequest {
    pub(super) fn daemon(&self) -> &Arc<Daemon> {
        &self.admin.daemon
    }

    /// The part of the path with this name.
    pub(super) fn name(&self, name: &str) -> &str {
        let found = self.names.iter().find(|(known, _)| known == name);
        found.map_or("", |(_, value)| value.as_str())
    }

    /// Follow a change of its user. Says whether there was one; what it may do is to be
    /// looked up again then.
    pub(super) fn follow(&mut self) -> Result<bool, HttpError> {
        let generation = self.daemon().settings.generation();
        if self.generation == generation {
            return Ok(false);
        }
        let user = login::current(self.daemon(), self.user.as_ref(), self.password);
        self.user = user.map_err(|CommandError(text)| HttpError::of_command(&text))?;
        self.generation = generation;
        Ok(true)
    }

    /// The user that does this, for the record.
    pub(super) fn by(&self) -> &str {
        User::name_of(self.user.as_ref())
    }

    /// The same, to find what belongs to it; none if everything belongs to all.
    pub(super) fn scope(&self) -> Option<&str> {
        self.daemon().operator.scope_of(self.user.as_ref())
    }

    /// The viewer of its user.
    pub(super) fn viewer(&self) -> Viewer<'_> {
        Viewer::of(self.user.as_deref())
    }

    /// Everything that has a name and may be seen.
    pub(super) fn catalog(&self) -> Arc<Catalog> {
        let catalog = self.daemon().catalog.load_full();
        if self.viewer().sees_all_names() {
            return catalog;
        }
        Arc::new(catalog.seen(self.viewer()))
    }

    /// Reports with all names are only for users that may see all names.
    pub(super) fn sees_all(&self, what: &str) -> Result<(), HttpError> {
        match &self.user {
            Some(user) if !user.may_use_all() => Err(HttpError::new(
                StatusCode::FORBIDDEN,
                "NOPERM",
                format!(
                    "User {} may not use {what}: that takes \"*\" on its on list.",
                    user.name
                ),
            )),
            _ => Ok(()),
        }
    }

    /// Count one thing more of its user.
    pub(super) fn count(&self, quota: Quota) -> Result<Counted, HttpError> {
        let daemon = self.daemon();
        let config = daemon.config.load();
        let usage = daemon.quotas.of(self.by());
        let counted = usage.take(quota, self.user.as_deref(), &config.limits);
        counted.map_err(|over| HttpError::of_command(&format!("BUSY {over}.")))
    }

    /// Whether a client may name something so.
    pub(super) fn check_label(&self, label: Label, name: &str) -> Result<(), HttpError> {
        let config = self.daemon().config.load();
        label.check(name.as_bytes(), &config.limits).map_err(|bad| {
            self.daemon().count_label(&bad);
            HttpError::of_command(&format!("ERR {bad}."))
        })
    }

    /// The body as JSON; an empty one is an empty object.
    pub(super) fn json<T: DeserializeOwned>(&self) -> Result<T, HttpError> {
        let body = match self.body.bytes() {
            blank if blank.trim_ascii().is_empty() => b"{}",
            body => body,
        };
        serde_json::from_slice(body)
            .map_err(|error| HttpError::wrong(format!("The body is not the JSON wanted: {error}.")))
    }

    /// A number of the query.
    pub(super) fn number(
        &self,
        name: &str,
        default: usize,
        most: usize,
    ) -> Result<usize, HttpError> {
        let Some(text) = self.query.find(name) else {
            return Ok(default);
        };
        let number = text.parse().ok().filter(|n| (1..=most).contains(n));
        number.ok_or_else(|| {
            HttpError::wrong(format!(
                "{name} takes a number from 1 to {most}, not {text:?}."
            ))
        })
    }
}
