//! From a request to its response: the login, the rights, the body, and the route.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::body::Body;
use axum::extract::RawPathParams;
use axum::http::request::Parts;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures_util::StreamExt;
use rideau_config::User;
use rideau_process::panics;
use rideau_resp::BEFORE_LOGIN_MAX;

use super::answer::HttpError;
use super::auth::{self, Identity};
use super::query::Query;
use super::request::AdminRequest;
use super::route::{Needs, Route};
use super::{Admin, BODY_WITHIN, Entrance};
use crate::redis::input::{Input, NoRoom};

/// Answer a request of a route.
pub(super) async fn answer(
    admin: Arc<Admin>,
    route: &'static Route,
    names: Option<RawPathParams>,
    parts: Parts,
    body: Body,
) -> Response {
    // A browser would ask for a password itself; a page that asks does not want that.
    let fetched = parts.headers.get("sec-fetch-dest");
    let is_script = fetched.is_some_and(|what| what == "empty");
    let answer = panics::contain_async(async {
        let request = enter(admin, route, names, parts, body).await?;
        let (admin, user) = (Arc::clone(&request.admin), request.user.clone());
        let answer = (route.run)(request).await;
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
    let mut answer = answer.unwrap_or_else(IntoResponse::into_response);
    if is_script {
        answer.headers_mut().remove(header::WWW_AUTHENTICATE);
    }
    answer
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
            "Unknown parameter {unknown:?} of {}: it takes {:?}.",
            route.path,
            route.known()
        )));
    }
    let Some(names) = names else {
        return Err(HttpError::wrong("The decoded address is not UTF-8."));
    };
    let names = names.iter();
    let names = names.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let session = parts.headers.get("rideau-session");
    let session = session.map(|id| String::from_utf8_lossy(id.as_bytes()).into_owned());
    let accept = parts.headers.get_all(header::ACCEPT).iter();
    let accept: Vec<_> = accept.filter_map(|one| one.to_str().ok()).collect();
    let mut request = AdminRequest {
        accept: accept.join(","),
        names: names.collect(),
        query,
        session,
        body: read(&admin, user.as_deref(), &parts, body).await?,
        user,
        password,
        generation,
        admin,
        is_tls: parts
            .extensions
            .get::<Entrance>()
            .is_some_and(|entrance| entrance.is_tls),
        headers: parts.headers,
    };
    // The password check and the body have taken their time.
    if route.needs != Needs::Nothing && follow(&mut request, route)? {
        auth::check_right(&request.admin, route, request.user.as_ref())?;
    }
    Ok(request)
}

/// Follow a change of the user that made the request. Says whether there was one.
fn follow(request: &mut AdminRequest, route: &Route) -> Result<bool, HttpError> {
    request.follow().inspect_err(|no| {
        let logins = &request.daemon().logins;
        logins.denied(request.by(), route.right().unwrap_or(route.path), &no.text);
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
                return Err(HttpError::wrong("The body ended early."));
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
                    "limits.input_max ({max} bytes) reached by requests that are not complete: \
                     send this one again later or raise it."
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
