//! Browsers that have logged in.
//!
//! A login has two halves: a cookie that no script can read and no page of another site can
//! have sent, and a key that only the page has and sends in a header. A browser sends a cookie
//! to all ports of a host, and so perhaps to an application on the same machine: with the
//! cookie alone one can do nothing.

use std::collections::HashMap;
use std::fmt::Write;
use std::time::{Duration, Instant};

use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use parking_lot::Mutex;
use rideau_config::User;
use serde_json::json;

use super::answer::{Answer, HttpError, ok};
use super::auth::Identity;
use super::request::AdminRequest;
use crate::redis::login;
use crate::state::daemon::Daemon;
use crate::state::logins::Fingerprint;

/// A login that is not used for so long is over.
const IDLE: Duration = Duration::from_secs(12 * 3_600);
/// This many are known; then the one that was not used for longest goes.
const MOST: usize = 1_024;
/// And this many of one user, so that none pushes others out.
const MOST_OF_ONE: usize = 64;
/// Bytes of each half.
const LEN: usize = 32;

/// The logins of browsers, by their cookies.
#[derive(Default)]
pub(super) struct WebLogins(Mutex<HashMap<String, WebLogin>>);

struct WebLogin {
    /// The half that the page has.
    key: String,
    user: User,
    is_operator: bool,
    /// The fingerprint of the password that it had.
    password: Option<Fingerprint>,
    used: Instant,
}

impl WebLogins {
    /// The user that a request is of, by its cookie and the key of its page.
    pub(super) fn find(&self, daemon: &Daemon, headers: &HeaderMap) -> Option<Identity> {
        let cookie = cookie(headers)?;
        let key = headers.get("rideau-csrf")?.as_bytes();
        let mut all = self.0.lock();
        let known = all.get_mut(&cookie)?;
        if !is_same(known.key.as_bytes(), key) || known.used.elapsed() > IDLE {
            return None;
        }
        if known.is_operator {
            known.used = Instant::now();
            return Some(daemon.operator.user().clone().into());
        }
        let (name, password) = (known.user.name.clone(), known.password);
        drop(all);
        // What the user may do, and its password, may have changed since.
        let config = daemon.config.load();
        let user = config.users.iter().find(|user| user.name == name)?;
        if password.is_some() && login::password_now(daemon, user) != password {
            return None;
        }
        if let Some(known) = self.0.lock().get_mut(&cookie) {
            known.used = Instant::now();
        }
        Some(Identity {
            user: Some(user.clone().into()),
            password,
        })
    }

    fn add(&self, cookie: String, login: WebLogin) {
        let mut all = self.0.lock();
        all.retain(|_, known| known.used.elapsed() <= IDLE);
        let of_user = |known: &WebLogin| known.user.name == login.user.name;
        if all.values().filter(|known| of_user(known)).count() >= MOST_OF_ONE {
            remove_oldest(&mut all, of_user);
        } else if all.len() >= MOST {
            remove_oldest(&mut all, |_| true);
        }
        all.insert(cookie, login);
    }
}

/// Of those that are meant, the one that was not used for longest.
fn remove_oldest(all: &mut HashMap<String, WebLogin>, is_meant: impl Fn(&WebLogin) -> bool) {
    let meant = all.iter().filter(|(_, known)| is_meant(known));
    let oldest = meant.min_by_key(|(_, known)| known.used);
    if let Some(oldest) = oldest.map(|(cookie, _)| cookie.clone()) {
        all.remove(&oldest);
    }
}

/// Make a login of a browser out of the one of this request.
pub(super) async fn begin(request: AdminRequest) -> Answer {
    let Some(user) = &request.user else {
        let text = format!(
            "There is no password here: {}",
            request.daemon().operator.advice()
        );
        return Err(HttpError::new(StatusCode::UNAUTHORIZED, "NOAUTH", text));
    };
    let Some((cookie, key)) = random().zip(random()) else {
        return Err(HttpError::of_command(
            "BUSY The system has no random numbers.",
        ));
    };
    let login = WebLogin {
        key: key.clone(),
        user: (**user).clone(),
        is_operator: request.daemon().operator.is(user),
        password: request.password,
        used: Instant::now(),
    };
    let mut answer = ok(&json!({ "user": user.name, "key": key }))?;
    set_cookie(&request, &mut answer, &cookie, IDLE);
    request.admin.web_logins.add(cookie, login);
    Ok(answer)
}

/// End the login of a browser.
pub(super) async fn end(request: AdminRequest) -> Answer {
    let key = request.headers.get("rideau-csrf");
    if let Some((cookie, key)) = cookie(&request.headers).zip(key) {
        let mut all = request.admin.web_logins.0.lock();
        let is_its = |known: &WebLogin| is_same(known.key.as_bytes(), key.as_bytes());
        if all.get(&cookie).is_some_and(is_its) {
            all.remove(&cookie);
        }
    }
    let mut answer = ok(&json!({ "outcome": "ok" }))?;
    set_cookie(&request, &mut answer, "", Duration::ZERO);
    Ok(answer)
}

fn set_cookie(
    request: &AdminRequest,
    answer: &mut axum::response::Response,
    value: &str,
    age: Duration,
) {
    let (name, age) = (cookie_name(&request.headers), age.as_secs());
    let secure = if request.is_tls { "; Secure" } else { "" };
    let text = format!("{name}={value}; Path=/; Max-Age={age}; HttpOnly; SameSite=Strict{secure}");
    if let Ok(text) = HeaderValue::from_str(&text) {
        answer.headers_mut().insert(header::SET_COOKIE, text);
    }
}

/// The cookie of this server, if a request has it.
fn cookie(headers: &HeaderMap) -> Option<String> {
    let name = cookie_name(headers);
    let all = headers.get_all(header::COOKIE).iter();
    let mut all = all
        .filter_map(|all| all.to_str().ok())
        .flat_map(|all| all.split(';'));
    let found = all.find_map(|pair| pair.trim().strip_prefix(&name)?.strip_prefix('='));
    found.map(str::to_owned)
}

/// Servers on several ports of a host have cookies of different names.
fn cookie_name(headers: &HeaderMap) -> String {
    let host = headers
        .get(header::HOST)
        .and_then(|host| host.to_str().ok());
    let port = host
        .and_then(|host| host.rsplit_once(':'))
        .map(|(_, port)| port);
    let port = port.filter(|port| port.bytes().all(|byte| byte.is_ascii_digit()));
    format!("rideau-{}", port.unwrap_or("web"))
}

/// Whether two secrets are the same; it takes as long whatever is given.
fn is_same(one: &[u8], other: &[u8]) -> bool {
    let differ = |all: u8, (one, other): (&u8, &u8)| all | (one ^ other);
    one.len() == other.len() && one.iter().zip(other).fold(0, differ) == 0
}

fn random() -> Option<String> {
    let mut bytes = [0; LEN];
    getrandom::fill(&mut bytes).ok()?;
    let mut text = String::with_capacity(2 * LEN);
    for byte in bytes {
        let _ = write!(text, "{byte:02x}");
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let pairs = pairs.iter();
        let pairs = pairs.map(|(name, value)| {
            let name = header::HeaderName::from_static(name);
            (name, HeaderValue::from_static(value))
        });
        pairs.collect()
    }

    #[test]
    fn a_cookie_is_that_of_this_port() {
        let both = "a=1; rideau-7434=one; rideau-7435=other";
        let found = |host| cookie(&headers(&[("host", host), ("cookie", both)]));
        assert_eq!(found("localhost:7434").as_deref(), Some("one"));
        assert_eq!(found("[::1]:7435").as_deref(), Some("other"));
        assert_eq!(found("rideau.example"), None);
        assert_eq!(cookie_name(&headers(&[("host", "a:b;c")])), "rideau-web");
    }

    fn login(user: &str, used: Instant) -> WebLogin {
        WebLogin {
            key: String::new(),
            user: User::everything(user),
            is_operator: false,
            password: None,
            used,
        }
    }

    #[test]
    fn the_login_that_was_not_used_for_longest_goes_first() {
        let logins = WebLogins::default();
        let start = Instant::now();
        for at in 0..=MOST as u64 {
            let used = start + Duration::from_secs(at);
            logins.add(at.to_string(), login(&format!("user {at}"), used));
        }
        let all = logins.0.lock();
        assert_eq!(all.len(), MOST);
        assert!(!all.contains_key("0") && all.contains_key("1"));
    }

    #[test]
    fn a_user_with_many_logins_pushes_out_its_own() {
        let logins = WebLogins::default();
        let start = Instant::now();
        logins.add("anna's".into(), login("anna", start));
        for at in 0..2 * MOST as u64 {
            let used = start + Duration::from_secs(at);
            logins.add(at.to_string(), login("bert", used));
        }
        let all = logins.0.lock();
        assert_eq!(all.len(), 1 + MOST_OF_ONE);
        assert!(all.contains_key("anna's"));
    }
}
