//! One request, and what it is answered.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::body::Body;
use axum::extract::RawPathParams;
use axum::http::request::Parts;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures_util::StreamExt;
use rideau_config::User;
use rideau_config::label::Label;
use rideau_process::panics::{self, Panicked};
use rideau_resp::BEFORE_LOGIN_MAX;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::auth::Identity;
use super::query::Query;
use super::routes::{Needs, Route};
use super::{Admin, BODY_WITHIN, auth};
use crate::redis::client::CommandError;
use crate::redis::input::{Input, NoRoom};
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
    /// What its password was known by, if it came with one.
    pub(super) password: Option<Fingerprint>,
    /// Its rights are those of the config of this generation, or of a later one.
    pub(super) generation: u64,
    /// What the address names.
    pub(super) names: Vec<(String, String)>,
    pub(super) query: Query,
    /// The session that it is part of.
    pub(super) session: Option<String>,
    /// The kinds of answers that it would like.
    pub(super) accept: String,
    pub(super) body: Input,
}

/// What a request is answered.
pub(super) type Answer = Result<Response, HttpError>;

/// A mistake, or something that cannot be.
#[derive(Debug)]
pub(super) struct HttpError {
    pub(super) status: StatusCode,
    /// As the Redis protocol calls it.
    pub(super) code: String,
    /// A sentence that a person can act on.
    pub(super) text: String,
    /// There is an event of it, if it is a denial.
    is_recorded: bool,
}

/// Answer a request of a route.
pub(super) async fn answer(
    admin: Arc<Admin>,
    route: &'static Route,
    names: Option<RawPathParams>,
    parts: Parts,
    body: Body,
) -> Response {
    let answer = panics::contain_async(async {
        let visit = enter(admin, route, names, parts, body).await?;
        let (admin, user) = (Arc::clone(&visit.admin), visit.user.clone());
        let answer = (route.run)(visit).await;
        if let (Err(no), Some(user)) = (&answer, user)
            && no.code == "NOPERM"
            && !no.is_recorded
        {
            let logins = &admin.daemon.logins;
            logins.denied(&user.name, route.right().unwrap_or(route.path), &no.text);
        }
        answer
    });
    let answer = answer.await.unwrap_or_else(|panicked| {
        let status = StatusCode::INTERNAL_SERVER_ERROR;
        Err(HttpError::new(status, "ERR", format!("{panicked}.")))
    });
    answer.unwrap_or_else(IntoResponse::into_response)
}

async fn enter(
    admin: Arc<Admin>,
    route: &Route,
    names: Option<RawPathParams>,
    parts: Parts,
    body: Body,
) -> Result<AdminRequest, HttpError> {
    let generation = admin.daemon.settings.generation();
    let Identity { user, password } = auth::admit(&admin, route, &parts).await?;
    let query = Query::parse(parts.uri.query().unwrap_or_default());
    if let Some(unknown) = query.unknown(&route.known()) {
        return Err(HttpError::wrong(format!(
            "There is no {unknown:?} to ask {} for: it knows {:?}.",
            route.path,
            route.known()
        )));
    }
    let Some(names) = names else {
        return Err(HttpError::wrong(
            "The address is no UTF-8 once it is decoded.",
        ));
    };
    let names = names.iter();
    let names = names.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let session = parts.headers.get("rideau-session");
    let session = session.map(|id| String::from_utf8_lossy(id.as_bytes()).into_owned());
    let accept = parts.headers.get_all(header::ACCEPT).iter();
    let accept: Vec<_> = accept.filter_map(|one| one.to_str().ok()).collect();
    let mut visit = AdminRequest {
        accept: accept.join(","),
        names: names.collect(),
        query,
        session,
        body: read(&admin, user.as_deref(), &parts, body).await?,
        user,
        password,
        generation,
        admin,
    };
    // The password check and the body have taken their time.
    if route.needs != Needs::Nothing && follow(&mut visit, route)? {
        auth::check_right(&visit.admin, route, visit.user.as_ref())?;
    }
    Ok(visit)
}

/// Follow a change of the user that made the request. Says whether there was one.
fn follow(visit: &mut AdminRequest, route: &Route) -> Result<bool, HttpError> {
    visit.follow().inspect_err(|no| {
        let logins = &visit.daemon().logins;
        logins.denied(visit.by(), route.right().unwrap_or(route.path), &no.text);
    })
}

/// Read a body that is not too long and does not take too long.
async fn read(
    admin: &Admin,
    user: Option<&User>,
    parts: &Parts,
    body: Body,
) -> Result<Input, HttpError> {
    // Some pages need no login, and no body either.
    let is_before_login = user.is_none() && !admin.daemon.config.load().users.is_empty();
    let most = match is_before_login {
        true => admin.body_max().min(BEFORE_LOGIN_MAX),
        false => admin.body_max(),
    };
    let said = parts.headers.get(header::CONTENT_LENGTH);
    let said = said.and_then(|len| len.to_str().ok()?.parse::<u64>().ok());
    if said.is_some_and(|len| len > most as u64) {
        return Err(too_long(admin, most));
    }
    let mut input = Input::new(&admin.daemon.input);
    let mut pieces = body.into_data_stream();
    let read = async {
        while let Some(piece) = pieces.next().await {
            let Ok(piece) = piece else {
                return Err(HttpError::wrong("The body ended before its time."));
            };
            let added = input.add(&piece, most);
            added.map_err(|no_room| not_kept(admin, most, &no_room))?;
        }
        Ok(())
    };
    match tokio::time::timeout(BODY_WITHIN, read).await {
        Ok(read) => read.map(|()| input),
        Err(_) => Err(HttpError::new(
            StatusCode::REQUEST_TIMEOUT,
            "ERR",
            format!("The body was not complete after {BODY_WITHIN:?}."),
        )),
    }
}

fn too_long(admin: &Admin, most: usize) -> HttpError {
    admin.counts.body.fetch_add(1, Ordering::Relaxed);
    let why = match most < admin.body_max() {
        true => "before login",
        false => "limits.frame_max",
    };
    let text = format!("A body has {most} bytes at most ({why}).");
    HttpError::new(StatusCode::PAYLOAD_TOO_LARGE, "ERR", text)
}

/// Why a body was not read to its end.
fn not_kept(admin: &Admin, most: usize, no_room: &NoRoom) -> HttpError {
    match no_room {
        NoRoom::Most => too_long(admin, most),
        NoRoom::Budget(max) => {
            let counts = &admin.daemon.counts;
            counts.inputs_refused.fetch_add(1, Ordering::Relaxed);
            HttpError::new(
                StatusCode::TOO_MANY_REQUESTS,
                "BUSY",
                format!(
                    "{max} bytes of requests are half sent, as many as limits.input_max allows: \
                     send this one again later, or raise the limit."
                ),
            )
        }
        NoRoom::System(error) => HttpError::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "ERR",
            format!("There is no memory for this body: {error}."),
        ),
    }
}

impl AdminRequest {
    pub(super) fn daemon(&self) -> &Arc<Daemon> {
        &self.admin.daemon
    }

    /// What the address names so.
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

    /// What it sees.
    pub(super) fn sight(&self) -> Viewer<'_> {
        Viewer::of(self.user.as_deref())
    }

    /// Everything that has a name and may be seen.
    pub(super) fn places(&self) -> Arc<Catalog> {
        let places = self.daemon().places.load_full();
        if self.sight().sees_all_names() {
            return places;
        }
        Arc::new(places.seen(self.sight()))
    }

    /// What tells of everything is for users from whom no name is kept.
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
                "{name} wants a number from 1 to {most}, not {text:?}."
            ))
        })
    }
}

impl HttpError {
    pub(super) fn new(status: StatusCode, code: &str, text: impl Into<String>) -> Self {
        Self {
            status,
            code: code.into(),
            text: text.into(),
            is_recorded: false,
        }
    }

    /// The answer of a command, which has recorded it if it is a denial.
    pub(super) fn of_executed(error: &str) -> Self {
        Self {
            is_recorded: true,
            ..Self::of_command(error)
        }
    }

    /// The request makes no sense.
    pub(super) fn wrong(text: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "ERR", text)
    }

    /// There is no such thing.
    pub(super) fn no_such(kind: &str, name: &str, hint: &str) -> Self {
        let text = format!("There is no {kind} {name:?}: {hint}");
        Self::new(StatusCode::NOT_FOUND, "NOSUCH", text)
    }

    /// An error of the Redis protocol: its kind, and a sentence.
    pub(super) fn of_command(error: &str) -> Self {
        let (code, text) = error.split_once(' ').unwrap_or(("ERR", error));
        let status = match code {
            "NOSUCH" => StatusCode::NOT_FOUND,
            "NOAUTH" | "WRONGPASS" => StatusCode::UNAUTHORIZED,
            "NOPERM" => StatusCode::FORBIDDEN,
            "STALE" | "LOST" => StatusCode::GONE,
            "WRONGTYPE" | "NOTHELD" => StatusCode::CONFLICT,
            "BUSY" => StatusCode::TOO_MANY_REQUESTS,
            "READONLY" | "MISCONF" => StatusCode::SERVICE_UNAVAILABLE,
            _ if Panicked::is_told_in(text) => StatusCode::INTERNAL_SERVER_ERROR,
            _ => StatusCode::BAD_REQUEST,
        };
        Self::new(status, code, text)
    }

    /// No new request is served.
    pub(super) fn draining() -> Self {
        Self::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "READONLY",
            "The server is stopping: ask another, or come back later.",
        )
    }
}

impl IntoResponse for HttpError {
    fn into_response(self) -> Response {
        let body = json!({ "error": self.text, "code": self.code });
        let mut response = with_status(self.status, &body);
        let headers = response.headers_mut();
        match self.status {
            StatusCode::UNAUTHORIZED => {
                let basic = HeaderValue::from_static("Basic realm=\"rideau\", charset=\"UTF-8\"");
                headers.insert(header::WWW_AUTHENTICATE, basic);
            }
            StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => {
                headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
            }
            _ => (),
        }
        response
    }
}

/// An answer in JSON.
pub(super) fn ok(body: &Value) -> Answer {
    Ok(with_status(StatusCode::OK, body))
}

/// An answer in JSON with another status. One line, so that a shell shows it
/// well.
pub(super) fn with_status(status: StatusCode, body: &Value) -> Response {
    let kind = [(header::CONTENT_TYPE, "application/json")];
    (status, kind, format!("{body}\n")).into_response()
}
