//! Applications over HTTP: what they do, and what operators do to them.
//!
//! Every action leaves an event that says who did it.

use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use axum::http::StatusCode;
use rideau_apps::{App, AppLine, Apps};
use rideau_config::label::Label;
use rideau_core::apps::{ProcessId, Restart};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::answer::{Answer, HttpError, ok};
use super::fact_json::object;
use super::request::AdminRequest;
use crate::view::facts::AppNow;

/// Lines of a log, unless one asks for fewer or more.
const LINES: usize = 100;
const LINES_MAX: usize = 1_000;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct How {
    how: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Verdict {
    verdict: String,
}

/// Every application, and what they share.
pub(super) async fn apps(request: AdminRequest) -> Answer {
    let stats = request.daemon().apps.stats();
    let limits = request.daemon().config.load().front.limits;
    let losses = stats.losses.iter();
    let losses: Map<_, _> = losses
        .map(|(policy, loss)| ((*policy).to_owned(), (*loss).into()))
        .collect();
    let sizes = stats.what_if.iter();
    let sizes: Vec<_> = sizes
        .map(|(max, loss)| json!({ "max": max, "loss": loss }))
        .collect();
    ok(&json!({
        "apps": all(&request),
        "processes": stats.live,
        "max": limits.max,
        "headroom": limits.headroom,
        "starved": stats.starved,
        "policy": stats.losses.first().map(|(policy, _)| policy),
        "losses": losses,
        "what_if": sizes,
    }))
}

/// The applications that one may see.
pub(super) fn all(request: &AdminRequest) -> Vec<Value> {
    let all = AppNow::all(&request.daemon().apps, request.viewer());
    all.iter().map(object).collect()
}

/// One application with its processes, what they serve, and why one waits.
pub(super) async fn one_app(request: AdminRequest) -> Answer {
    let app = find(&request)?;
    let apps = &request.daemon().apps;
    apps.look_at_usage(&app).await;
    let found = AppNow::of(apps, &app, request.viewer()).ok_or_else(|| gone(&app.name))?;
    let mut more = object(&found);
    more["processes"] = found.processes().map(|one| object(&one)).collect();
    more["explain"] = apps.explain(&app).join("\n").into();
    more["report"] = json!(found.report());
    ok(&more)
}

/// The last output of the processes of an application.
pub(super) async fn logs(request: AdminRequest) -> Answer {
    let app = own(&request)?;
    let count = request.number("lines", LINES, LINES_MAX)?;
    let lines = app.output.last(count);
    let lines: Vec<_> = lines.iter().map(|written| line(written)).collect();
    ok(&json!({ "lines": lines }))
}

pub(super) async fn restart(request: AdminRequest) -> Answer {
    let said: How = request.json()?;
    let app = own(&request)?;
    let how = match said.how.as_deref() {
        None | Some("rolling") => Restart::Rolling,
        Some("blocking") => Restart::Blocking,
        Some("now") => Restart::Immediate,
        Some(other) => {
            return Err(HttpError::wrong(format!(
                "how takes \"rolling\", \"blocking\" or \"now\", not {other:?}."
            )));
        }
    };
    has_own_processes(&app)?;
    request.daemon().apps.restart(&app, how, request.by());
    ok(&json!({ "outcome": "ok" }))
}

/// Give the verdict on new code that is on trial.
pub(super) async fn trial(request: AdminRequest) -> Answer {
    let said: Verdict = request.json()?;
    let app = own(&request)?;
    let is_good = match said.verdict.as_str() {
        "accept" => true,
        "reject" => false,
        other => {
            return Err(HttpError::wrong(format!(
                "verdict takes \"accept\" or \"reject\", not {other:?}."
            )));
        }
    };
    if !request.daemon().apps.end_trial(&app, is_good, request.by()) {
        return Err(HttpError::new(
            StatusCode::CONFLICT,
            "BUSY",
            format!("App {} has no new code on trial.", app.name),
        ));
    }
    ok(&json!({ "outcome": "ok" }))
}

/// Start one process more.
pub(super) async fn spawn(request: AdminRequest) -> Answer {
    let app = own(&request)?;
    has_own_processes(&app)?;
    if !request.daemon().apps.start_one(&app) {
        return Err(HttpError::new(
            StatusCode::CONFLICT,
            "BUSY",
            format!(
                "App {} has no room for one more process: raise its max, or front.max.",
                app.name
            ),
        ));
    }
    note(&request, &app, "one more process is started".into());
    ok(&json!({ "outcome": "ok" }))
}

pub(super) async fn disable(request: AdminRequest) -> Answer {
    to_process(&request, "disabled", Apps::disable)
}

pub(super) async fn enable(request: AdminRequest) -> Answer {
    to_process(&request, "enabled", Apps::enable)
}

pub(super) async fn detach(request: AdminRequest) -> Answer {
    to_process(&request, "detached", Apps::detach)
}

pub(super) async fn kill(request: AdminRequest) -> Answer {
    to_process(&request, "killed", Apps::kill)
}

/// Do something to one process, by its number in the system or ours.
fn to_process(request: &AdminRequest, done: &str, act: fn(&Apps, ProcessId) -> bool) -> Answer {
    let number = request.name("pid");
    let apps = &request.daemon().apps;
    let found = number.parse().ok().and_then(|pid| apps.process(pid));
    // A user that may not use an app does not learn which processes it has.
    let found = found.filter(|(_, app)| request.viewer().sees("app", &app.name));
    let Some((process, app)) = found else {
        let hint = "GET /api/v1/apps/NAME lists them.";
        return Err(HttpError::no_such("process", number, hint));
    };
    if !act(apps, process) {
        return Err(HttpError::new(
            StatusCode::CONFLICT,
            "ERR",
            format!(
                "Process {number} cannot be {done} in its state: GET /api/v1/apps/{} shows it.",
                app.name
            ),
        ));
    }
    note(
        request,
        &app,
        format!("process {process} (pid {number}) was {done}"),
    );
    ok(&json!({ "outcome": "ok" }))
}

/// The application of the address, if one may see it.
fn find(request: &AdminRequest) -> Result<Arc<App>, HttpError> {
    let name = request.name("name");
    let found = request.daemon().apps.find(name);
    let seen = found.filter(|app| request.viewer().sees("app", &app.name));
    seen.ok_or_else(|| gone(name))
}

/// The application of the address, if the user may use it.
fn own(request: &AdminRequest) -> Result<Arc<App>, HttpError> {
    let name = request.name("name");
    request.check_label(Label::Thing, name)?;
    match &request.user {
        // Whether there is such an app or not.
        Some(user) if !user.may_use("app", name) => Err(HttpError::new(
            StatusCode::FORBIDDEN,
            "NOPERM",
            format!(
                "User {} may not use app {name}: add \"app:{name}\" to its on list.",
                user.name
            ),
        )),
        _ => find(request),
    }
}

/// Nothing is started or stopped for an upstream.
fn has_own_processes(app: &App) -> Result<(), HttpError> {
    match app.has_servers() {
        false => Ok(()),
        true => Err(HttpError::new(
            StatusCode::CONFLICT,
            "ERR",
            format!(
                "{} is an upstream, whose servers others start and stop: disable one of them to \
                 take it out.",
                app.name
            ),
        )),
    }
}

fn gone(name: &str) -> HttpError {
    HttpError::no_such("app", name, "GET /api/v1/apps lists them.")
}

fn note(request: &AdminRequest, app: &App, text: String) {
    let by = Some(request.by());
    let events = &request.daemon().events;
    events.add_app(&app.name, &text, String::new(), by);
}

fn line(line: &AppLine) -> Value {
    let at: Duration = line.at.duration_since(UNIX_EPOCH).unwrap_or_default();
    json!({
        "serial": line.serial,
        "at_ms": u64::try_from(at.as_millis()).unwrap_or(u64::MAX),
        "process": line.process.0,
        "stream": line.stream_word(),
        "text": line.text,
    })
}
