//! The config: what counts, what is wrong with another, what that would change.

use std::env;
use std::sync::Arc;

use axum::http::StatusCode;
use rideau::OptionError;
use serde_json::{Value, json};

use super::health::away;
use super::visit::{Answer, No, Visit, ok, with_status};
use crate::config::keys::Change;
use crate::config::{self, Config, Faults, Level, Live, Now, Plan};
use crate::daemon::Daemon;

/// How faults call the body of a request.
const FILE: &str = "config";

/// Every key that counts.
pub(super) async fn show(visit: Visit) -> Answer {
    let rows = visit.daemon().config.load().rows();
    let rows = rows
        .into_iter()
        .map(|(key, value)| json!({ "key": key, "value": value }));
    ok(&json!({ "rows": rows.collect::<Vec<_>>() }))
}

/// What is wrong with the config in the body.
pub(super) async fn check(visit: Visit) -> Answer {
    let (config, faults) = read(&visit).await?;
    Ok(verdict(config.is_some(), &faults))
}

/// What the config in the body would change.
pub(super) async fn plan(visit: Visit) -> Answer {
    let (config, faults) = read(&visit).await?;
    let Some(new) = config else {
        return Ok(verdict(false, &faults));
    };
    let daemon = visit.daemon();
    let plan = config::plan(&daemon.config.load(), &new, Some(&now(daemon)));
    ok(&shown(&plan))
}

/// Make the config in the body count.
pub(super) async fn apply(visit: Visit) -> Answer {
    let (config, faults) = read(&visit).await?;
    let Some(new) = config else {
        return Ok(verdict(false, &faults));
    };
    let daemon = visit.daemon();
    let plan = config::plan(&daemon.config.load(), &new, Some(&now(daemon)));
    set(daemon, new).map_err(|error| No::wrong(format!("{error}.")))?;
    let text = format!("a config with {} changes was applied", plan.steps.len());
    daemon.events.add("config", "", text, Some(visit.by()));
    ok(&shown(&plan))
}

/// Go back to a config before this one.
pub(super) async fn rollback(_visit: Visit) -> Answer {
    Err(No::new(
        StatusCode::NOT_IMPLEMENTED,
        "ERR",
        "This server remembers no earlier configs: apply the one you want.",
    ))
}

/// Change the server. The one place where this side does.
pub(super) fn set(daemon: &Arc<Daemon>, config: Config) -> Result<(), OptionError> {
    daemon.reconfigure(config, None)
}

async fn read(visit: &Visit) -> Result<(Option<Config>, Faults), No> {
    let Ok(text) = String::from_utf8(visit.body.to_vec()) else {
        return Err(No::wrong("A config is TOML in UTF-8."));
    };
    // It looks at the files that the config names.
    away(move || Config::check(&text, FILE, &|name| env::var(name).ok())).await
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

/// Who holds and waits just now.
fn now(daemon: &Daemon) -> Now {
    let places = daemon.places.load();
    let mut now = Now::default();
    let mut add = |name: String, held, waiting| now.things.insert(name, Live { held, waiting });
    for place in places.pools.values() {
        let stats = place.pool.stats();
        let name = format!("pool.{}", place.name);
        add(name, stats.members.held, stats.len());
    }
    for place in places.brokers.values() {
        let stats = place.broker.stats();
        let name = format!("broker.{}", place.name);
        add(format!("{name}.asks"), 0, stats.asks_len);
        add(format!("{name}.offers"), 0, stats.offers_len);
        add(name, 0, stats.asks_len + stats.offers_len);
    }
    for place in places.regulators.values() {
        let stats = place.regulator.stats();
        let name = format!("regulator.{}", place.name);
        add(name, stats.size, stats.len);
    }
    now
}
