//! The config: what counts, what is wrong with another, what that would change.

use std::sync::Arc;
use std::time::UNIX_EPOCH;

use axum::http::StatusCode;
use rideau_config::{Change, Faults, Level, Plan};
use serde::Deserialize;
use serde_json::{Value, json};

use super::answer::{Answer, HttpError, away, ok, with_status};
use super::request::AdminRequest;
use crate::state::daemon::Daemon;
use crate::state::daemon::Unchanged;
use crate::state::values::unsafe_text;

/// How faults call the body of a request.
const FILE: &str = "config";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Rollback {
    version: Option<u64>,
}

/// Every key that counts.
pub(super) async fn show(request: AdminRequest) -> Answer {
    let rows = request.daemon().config.load().rows();
    let viewer = request.viewer();
    let rows = rows
        .into_iter()
        .filter(|(key, _)| viewer.sees_path(key))
        .map(|(key, value)| json!({ "key": key, "value": value }));
    ok(&json!({ "rows": rows.collect::<Vec<_>>() }))
}

/// The configs that counted, the newest first.
pub(super) async fn history(request: AdminRequest) -> Answer {
    request.sees_all("the whole config")?;
    let all = request.daemon().settings.history();
    let versions = all.iter().map(|version| {
        let at = version.at.duration_since(UNIX_EPOCH).unwrap_or_default();
        json!({
            "version": version.serial,
            "at_ms": at.as_millis() as u64,
            "by": version.by,
            "summary": version.summary,
        })
    });
    ok(&json!({ "versions": versions.collect::<Vec<_>>() }))
}

/// Checks the config in the body.
pub(super) async fn check(request: AdminRequest) -> Answer {
    request.sees_all("the whole config")?;
    let checked = with_text(&request, |daemon, text, _| daemon.check(text)).await?;
    match checked {
        Ok((_, faults)) => Ok(verdict(true, &faults)),
        Err(why) => refused(why),
    }
}

/// Plans the config in the body.
pub(super) async fn plan(request: AdminRequest) -> Answer {
    request.sees_all("the whole config")?;
    let planned = with_text(&request, |daemon, text, _| daemon.plan(text)).await?;
    changed(planned)
}

/// Make the config in the body count.
pub(super) async fn apply(request: AdminRequest) -> Answer {
    request.sees_all("the whole config")?;
    let applied = with_text(&request, |daemon, text, by| daemon.apply(text, by)).await?;
    written(request.daemon(), &applied).await?;
    changed(applied)
}

/// Plans a change of the keys in the body, `path = value` in each line.
pub(super) async fn plan_keys(request: AdminRequest) -> Answer {
    request.sees_all("the whole config")?;
    let planned = with_text(&request, |daemon, text, _| {
        Ok::<_, HttpError>(daemon.plan_set(&keys(text)?))
    });
    changed(planned.await??)
}

/// Changes the keys in the body.
pub(super) async fn apply_keys(request: AdminRequest) -> Answer {
    request.sees_all("the whole config")?;
    let applied = with_text(&request, |daemon, text, by| {
        Ok::<_, HttpError>(daemon.set(&keys(text)?, by))
    });
    let applied = applied.await??;
    written(request.daemon(), &applied).await?;
    changed(applied)
}

/// The keys of a text, and their values.
fn keys(text: &str) -> Result<Vec<(String, String)>, HttpError> {
    let lines = text.lines().map(str::trim);
    let lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
    let pairs = lines.map(|line| match line.split_once('=') {
        Some((key, value)) => Ok((key.trim().to_owned(), value.trim().to_owned())),
        None => Err(HttpError::wrong(format!(
            "Write a key and its value in each line, as pool.pg.max = 20, not {line:?}."
        ))),
    });
    let pairs: Vec<_> = pairs.collect::<Result<_, _>>()?;
    match pairs.is_empty() {
        true => Err(HttpError::wrong(
            "There is no key in it: write pool.pg.max = 20.",
        )),
        false => Ok(pairs),
    }
}

/// Answers when the changes of ranges are stored.
async fn written(daemon: &Daemon, plan: &Result<Plan, Unchanged>) -> Result<(), HttpError> {
    if plan.as_ref().is_ok_and(Plan::is_about_ranges) {
        let safe = daemon.values.ranges.logged().await;
        safe.map_err(|failed| HttpError::of_command(&unsafe_text(&failed)))?;
    }
    Ok(())
}

/// Go back to a version of the history, or to the one before this.
pub(super) async fn rollback(request: AdminRequest) -> Answer {
    request.sees_all("the whole config")?;
    let said: Rollback = request.json()?;
    let daemon = Arc::clone(request.daemon());
    let by = request.by().to_owned();
    let back = away(move || daemon.rollback(said.version, &by)).await?;
    written(request.daemon(), &back).await?;
    changed(back)
}

/// The answer for a change.
pub(super) fn changed(plan: Result<Plan, Unchanged>) -> Answer {
    match plan {
        Ok(plan) => ok(&shown(&plan)),
        Err(why) => refused(why),
    }
}

fn refused(why: Unchanged) -> Answer {
    match why {
        Unchanged::Faults(faults) => Ok(verdict(false, &faults)),
        why => {
            let body = json!({ "error": why.to_string(), "code": "CONFIG" });
            Ok(with_status(StatusCode::UNPROCESSABLE_ENTITY, &body))
        }
    }
}

/// Do something with the config in the body, on a thread that may look at the
/// files that it names and wait for other changes.
async fn with_text<T: Send + 'static>(
    request: &AdminRequest,
    work: impl FnOnce(&Arc<Daemon>, &str, &str) -> T + Send + 'static,
) -> Result<T, HttpError> {
    let Ok(text) = String::from_utf8(request.body.bytes().to_vec()) else {
        return Err(HttpError::wrong("A config is TOML in UTF-8."));
    };
    let daemon = Arc::clone(request.daemon());
    let by = request.by().to_owned();
    away(move || work(&daemon, &text, &by)).await
}

/// 200 if it can be used, else 422.
fn verdict(is_usable: bool, faults: &Faults) -> axum::response::Response {
    let status = if is_usable {
        StatusCode::OK
    } else {
        StatusCode::UNPROCESSABLE_ENTITY
    };
    let rows = faults.iter().map(|fault| {
        json!({
            "level": match fault.level {
                Level::Error => "error",
                Level::Warning => "warning",
            },
            "line": fault.line,
            "column": fault.column,
            "message": fault.message,
            "hint": fault.hint,
        })
    });
    let mut body = json!({
        "is_usable": is_usable,
        "faults": rows.collect::<Vec<_>>(),
        "text": faults.render(false),
    });
    if !is_usable {
        let errors = faults.errors();
        body["error"] = format!("The config has {errors} errors, and nothing changed.").into();
        body["code"] = "CONFIG".into();
    }
    with_status(status, &body)
}

fn shown(plan: &Plan) -> Value {
    let steps = plan.steps.iter().map(|step| {
        json!({
            "path": step.path,
            "old": step.old,
            "new": step.new,
            "needs_restart": step.change == Change::Restart,
            "meaning": step.meaning,
            "shed": step.shed,
        })
    });
    json!({
        "steps": steps.collect::<Vec<_>>(),
        "restarts": plan.restarts(),
        "shed": plan.shed(),
        "text": plan.render(FILE),
    })
}
