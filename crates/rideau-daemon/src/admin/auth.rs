//! Who may come in: the right name of the host, the right page, the right user.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::response::Response;
use parking_lot::Mutex;
use rideau_config::User;

use super::answer::HttpError;
use super::route::{Needs, Route};
use super::{Admin, Entrance};
use crate::redis::login::{self};
use crate::redis::peer::Proof;
use crate::state::attempts::Origin;
use crate::state::daemon::Daemon;
use crate::state::logins::{Fingerprint, How};

/// A password that was right is not checked again for so long: each check costs
/// time on purpose, and every request of a script carries it.
const KNOWN_FOR: Duration = Duration::from_secs(60);
/// This many are known at a time.
const KNOWN_MAX: usize = 1024;

/// The user of a request; none if there are no users.
#[derive(Clone, Default)]
pub(super) struct Identity {
    pub(super) user: Option<Arc<User>>,
    /// The fingerprint of its password, if it came with one.
    pub(super) password: Option<Fingerprint>,
}

impl From<Arc<User>> for Identity {
    fn from(user: Arc<User>) -> Self {
        Self {
            user: Some(user),
            password: None,
        }
    }
}

/// Whether a request may be answered, and which user makes it.
pub(super) async fn admit(
    admin: &Admin,
    route: &Route,
    parts: &Parts,
) -> Result<Identity, HttpError> {
    if route.needs == Needs::Nothing {
        return Ok(Identity::default());
    }
    let entrance = parts.extensions.get::<Entrance>();
    if entrance.is_some_and(|entrance| entrance.is_local) {
        check_host(&parts.headers)?;
    }
    if !matches!(parts.method, Method::GET | Method::HEAD) {
        check_origin(&parts.headers)?;
    }
    let by_cookie = || admin.web_logins.find(&admin.daemon, &parts.headers);
    let identity = match operator(admin, parts) {
        None if said(parts).is_empty()
            && let Some(identity) = by_cookie() =>
        {
            identity
        }
        Some(operator) => {
            if let Some(entrance) = entrance.filter(|entrance| !entrance.login.is_over()) {
                let logins = &admin.daemon.logins;
                logins.succeeded(&operator.name, &entrance.address, How::Token);
            }
            Identity::from(operator)
        }
        None => {
            check_token(admin, parts, entrance).await?;
            let user = login(admin, &parts.headers, entrance).await;
            user.inspect_err(|no| deny_to(admin, route, entrance, no))?
        }
    };
    if let Some(entrance) = entrance {
        let counted = entrance.count(&admin.daemon, identity.user.as_ref());
        counted.map_err(|over| HttpError::of_command(&format!("BUSY {over}.")))?;
        entrance.login.end();
    }
    let may = check_right(admin, route, identity.user.as_ref());
    may.inspect_err(|no| deny_to(admin, route, entrance, no))?;
    if matches!(route.needs, Needs::Action(_)) && !parts.headers.contains_key("rideau-csrf") {
        return Err(HttpError::new(
            StatusCode::FORBIDDEN,
            "NOPERM",
            "An action needs the header Rideau-Csrf, with any value: no page of another site can \
             send it.",
        ));
    }
    Ok(identity)
}

/// Whether this user may have what a route gives.
pub(super) fn check_right(
    admin: &Admin,
    route: &Route,
    user: Option<&Arc<User>>,
) -> Result<(), HttpError> {
    if let (None, Some(right)) = (user, route.right())
        && !User::or_anybody_may(None, right)
    {
        let advice = admin.daemon.operator.advice();
        let text = format!(
            "{} {} is not open to all: {advice}",
            route.method, route.path
        );
        return Err(HttpError::new(StatusCode::UNAUTHORIZED, "NOAUTH", text));
    }
    if let (Some(user), Some(right)) = (user, route.right())
        && !user.may(right)
    {
        let text = format!(
            "User {} may not use {} {}: add \"{right}\" to its allow list.",
            user.name, route.method, route.path
        );
        admin.daemon.logins.denied(&user.name, right, &text);
        return Err(HttpError::new(StatusCode::FORBIDDEN, "NOPERM", text));
    }
    Ok(())
}

/// Write down that a client that has not logged in may not do this, if that is control.
fn deny_to(admin: &Admin, route: &Route, entrance: Option<&Entrance>, no: &HttpError) {
    let right = route
        .right()
        .filter(|right| !User::or_anybody_may(None, right));
    if let Some(right) = right.filter(|_| no.code == "NOAUTH") {
        let logins = &admin.daemon.logins;
        logins.denied_to(origin_of(entrance), right, &no.text);
    }
}

fn origin_of(entrance: Option<&Entrance>) -> Origin {
    entrance.map_or(Origin::Unknown, |entrance| entrance.origin)
}

/// A page of another site can have its own name lead to this machine, and then
/// speaks to us as if we were that site. It cannot hide the name.
fn check_host(headers: &HeaderMap) -> Result<(), HttpError> {
    let Some(host) = headers.get(header::HOST) else {
        // No browser leaves it out.
        return Ok(());
    };
    let host = host.to_str().unwrap_or_default();
    if is_local_name(host) {
        return Ok(());
    }
    Err(HttpError::new(
        StatusCode::MISDIRECTED_REQUEST,
        "NOPERM",
        format!(
            "This server listens on loopback only, and {host:?} is not one of its names: use \
             localhost or an address."
        ),
    ))
}

fn is_local_name(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    };
    let name = name.trim_end_matches('.').to_ascii_lowercase();
    name == "localhost" || name.ends_with(".localhost") || name.parse::<IpAddr>().is_ok()
}

/// A form on a page of another site can post here without asking first, but
/// the browser says where it comes from.
fn check_origin(headers: &HeaderMap) -> Result<(), HttpError> {
    let text = |name| {
        headers
            .get(name)
            .map(|value: &HeaderValue| value.to_str().unwrap_or_default())
    };
    let is_cross = text("sec-fetch-site").is_some_and(|site| site == "cross-site");
    let is_other = text("origin").is_some_and(|origin| {
        let host = text("host").unwrap_or_default();
        let from = origin.split_once("://").map_or("", |(_, from)| from);
        from.is_empty() || !from.eq_ignore_ascii_case(host)
    });
    if is_cross || is_other {
        return Err(HttpError::new(
            StatusCode::FORBIDDEN,
            "NOPERM",
            "Pages of other sites may not change anything here.",
        ));
    }
    Ok(())
}

/// Passwords that were right a moment ago, by a hash that only this process
/// can make.
#[derive(Default)]
pub(super) struct Known {
    one: RandomState,
    other: RandomState,
    users: Mutex<HashMap<(u64, u64), Checked>>,
}

/// A password that was right.
struct Checked {
    user: User,
    at: Instant,
    /// The fingerprint of the right password then: the file may have changed since.
    password: Fingerprint,
}

impl Known {
    fn key(&self, name: &str, password: &[u8]) -> (u64, u64) {
        let words = (name, password);
        (self.one.hash_one(words), self.other.hash_one(words))
    }

    /// This password of this very user was right a moment ago, and is it still.
    fn find(&self, daemon: &Daemon, user: &User, password: &[u8]) -> Option<Fingerprint> {
        let users = self.users.lock();
        let known = users.get(&self.key(&user.name, password));
        let was = known.filter(|known| known.user == *user && known.at.elapsed() < KNOWN_FOR);
        let was = was.map(|known| known.password);
        drop(users);
        was.filter(|was| login::password_now(daemon, user) == Some(*was))
    }

    fn add(&self, user: &User, password: &[u8], checked: Fingerprint) {
        let key = self.key(&user.name, password);
        let mut users = self.users.lock();
        if users.len() >= KNOWN_MAX {
            users.retain(|_, known| known.at.elapsed() < KNOWN_FOR);
        }
        if users.len() < KNOWN_MAX {
            let known = Checked {
                user: user.clone(),
                at: Instant::now(),
                password: checked,
            };
            users.insert(key, known);
        }
    }
}

/// The operator, if the request has its token: as `Authorization: Bearer`, or as a
/// password.
fn operator(admin: &Admin, parts: &Parts) -> Option<Arc<User>> {
    let operator = &admin.daemon.operator;
    let password = || basic(said(parts)).map(|(_, password)| password);
    let bearer = bearer(parts).map(<[u8]>::to_vec);
    let given = bearer.or_else(password)?;
    let user = operator.is_token(&given).then(|| operator.user());
    user.cloned()
}

/// The header by which a request says which user it is of.
fn said(parts: &Parts) -> &[u8] {
    let said = parts.headers.get(header::AUTHORIZATION);
    said.map(HeaderValue::as_bytes).unwrap_or_default()
}

/// The token of `Authorization: Bearer`.
fn bearer(parts: &Parts) -> Option<&[u8]> {
    said(parts).strip_prefix(b"Bearer ")
}

/// A token that is not the operator's is counted as a wrong password is, and answered
/// as late. Where there are no users, so is a password: it can be nothing but a token.
/// Then the request goes on without a user, unless it can be nothing else.
async fn check_token(
    admin: &Admin,
    parts: &Parts,
    entrance: Option<&Entrance>,
) -> Result<(), HttpError> {
    let daemon = &admin.daemon;
    let is_bearer = bearer(parts).is_some();
    let is_password = || daemon.config.load().users.is_empty() && basic(said(parts)).is_some();
    if !is_bearer && !is_password() {
        return Ok(());
    }
    let place = entrance.and_then(|entrance| entrance.login.place());
    login::refused(Arc::clone(daemon), origin_of(entrance), place).await;
    match is_bearer {
        true => Err(HttpError::new(
            StatusCode::UNAUTHORIZED,
            "NOAUTH",
            format!("The token is wrong: {}", daemon.operator.advice()),
        )),
        false => Ok(()),
    }
}

async fn login(
    admin: &Admin,
    headers: &HeaderMap,
    entrance: Option<&Entrance>,
) -> Result<Identity, HttpError> {
    let daemon = &admin.daemon;
    let config = daemon.config.load_full();
    if config.users.is_empty() {
        return Ok(Identity::default());
    }
    let no = |text: &str| HttpError::new(StatusCode::UNAUTHORIZED, "NOAUTH", text);
    let Some(said) = headers.get(header::AUTHORIZATION) else {
        let certificate = entrance.and_then(|entrance| entrance.certificate.clone());
        let proof = certificate.map_or(Proof::None, Proof::Certificate);
        if let Some(user) = proof.user(daemon) {
            // One connection is one login, however many requests it has.
            if let Some(entrance) = entrance.filter(|entrance| !entrance.login.is_over()) {
                let logins = &daemon.logins;
                logins.succeeded(&user.name, &entrance.address, How::Certificate);
            }
            return Ok(user.into());
        }
        return Err(no(
            "Authentication required: the config has users. Send HTTP Basic authentication.",
        ));
    };
    let Some((name, password)) = basic(said.as_bytes()) else {
        return Err(no(
            "The header Authorization is not of the form Basic base64(user:password).",
        ));
    };
    let user = config.users.iter().find(|user| user.name == name);
    if let Some(user) = user
        && let Some(known) = admin.known.find(daemon, user, &password)
    {
        return Ok(Identity {
            user: Some(Arc::new(user.clone())),
            password: Some(known),
        });
    }
    let found = user.cloned().map(Arc::new);
    let origin = origin_of(entrance);
    let place = entrance.and_then(|entrance| entrance.login.place());
    let (user, given) = (found.clone(), password.clone());
    let checked = login::attempt(Arc::clone(daemon), user, given, origin, place).await?;
    if let (Some(user), Some(checked)) = (found, checked) {
        admin.known.add(&user, &password, checked);
        let from = entrance.map_or("HTTP", |entrance| &entrance.address);
        daemon.logins.succeeded(&user.name, from, How::Password);
        return Ok(Identity {
            user: Some(user),
            password: Some(checked),
        });
    }
    Err(no("The user or the password is wrong."))
}

/// The user and the password of `Basic base64(user:password)`.
fn basic(said: &[u8]) -> Option<(String, Vec<u8>)> {
    let (kind, coded) = said.split_at_checked(6)?;
    if !kind.eq_ignore_ascii_case(b"basic ") {
        return None;
    }
    let words = base64(coded.trim_ascii())?;
    let colon = words.iter().position(|byte| *byte == b':')?;
    let name = String::from_utf8(words[..colon].to_vec()).ok()?;
    Some((name, words[colon + 1..].to_vec()))
}

fn base64(text: &[u8]) -> Option<Vec<u8>> {
    let end = text.iter().rposition(|byte| *byte != b'=');
    let text = &text[..end.map_or(0, |end| end + 1)];
    let mut out = Vec::with_capacity(text.len() * 3 / 4);
    let (mut bits, mut count) = (0_u32, 0);
    for byte in text {
        let six = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        bits = bits << 6 | u32::from(six);
        count += 6;
        if count >= 8 {
            count -= 8;
            out.push((bits >> count) as u8);
        }
    }
    (count < 6).then_some(out)
}

/// Adds the security headers of every answer.
pub(super) async fn secure(mut response: Response) -> Response {
    let all = [
        (
            header::CONTENT_SECURITY_POLICY,
            "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'",
        ),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::X_FRAME_OPTIONS, "DENY"),
        (header::REFERRER_POLICY, "no-referrer"),
    ];
    let headers = response.headers_mut();
    // The files of the page say themselves how they may be kept.
    let no_store = HeaderValue::from_static("no-store");
    headers.entry(header::CACHE_CONTROL).or_insert(no_store);
    for (name, value) in all {
        headers.insert(name, HeaderValue::from_static(value));
    }
    let policy = HeaderValue::from_static("same-origin");
    headers.insert("cross-origin-resource-policy", policy);
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_this_machine_and_addresses_are_local() {
        for host in [
            "localhost",
            "localhost:7434",
            "LOCALHOST:1",
            "127.0.0.1:7434",
            "[::1]:7434",
            "10.0.0.7",
            "shop.localhost:80",
            "localhost.",
        ] {
            assert!(is_local_name(host), "{host}");
        }
        for host in [
            "",
            "evil.example",
            "localhost.evil.example:7434",
            "127.0.0.1.evil",
            "[evil]",
        ] {
            assert!(!is_local_name(host), "{host}");
        }
    }

    #[test]
    fn a_page_of_another_site_is_known_by_its_origin() {
        let check = |pairs: &[(&'static str, &'static str)]| {
            let mut headers = HeaderMap::new();
            for (name, value) in pairs {
                headers.insert(*name, HeaderValue::from_static(value));
            }
            check_origin(&headers).is_ok()
        };
        let host = ("host", "127.0.0.1:7434");
        assert!(check(&[host]));
        assert!(check(&[host, ("origin", "http://127.0.0.1:7434")]));
        assert!(!check(&[host, ("origin", "http://evil.example")]));
        assert!(!check(&[host, ("origin", "null")]));
        assert!(!check(&[host, ("sec-fetch-site", "cross-site")]));
    }

    #[test]
    fn basic_words_are_decoded() {
        let decoded = basic(b"Basic YW5uYTpzZWNyZXQ6eA==");
        assert_eq!(decoded, Some(("anna".into(), b"secret:x".to_vec())));
        assert_eq!(basic(b"basic YTo="), Some(("a".into(), Vec::new())));
        for bad in ["", "Basic", "Basic ?", "Bearer YTo=", "Basic YW5uYQ=="] {
            assert_eq!(basic(bad.as_bytes()), None, "{bad}");
        }
    }
}
