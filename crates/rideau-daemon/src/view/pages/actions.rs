//! Actions: what is sent, and what that will do, said before it is done.

use rideau_config::human::count;
use serde_json::{Value, json};

use super::Look;

/// An action: what is sent where, and what it does.
pub(super) struct Act {
    pub label: &'static str,
    pub method: &'static str,
    pub path: String,
    pub body: Value,
    pub impact: String,
    /// It ends something that others use.
    pub is_hard: bool,
    /// What the user fills in: a name of the body, a label, and the value that it has.
    pub fields: Vec<(&'static str, &'static str, Value)>,
}

impl Act {
    pub(super) fn post(label: &'static str, path: String, impact: String) -> Self {
        Self {
            label,
            method: "POST",
            path,
            body: json!({}),
            impact,
            is_hard: false,
            fields: Vec::new(),
        }
    }

    pub(super) fn hard(self) -> Self {
        Self {
            is_hard: true,
            ..self
        }
    }

    pub(super) fn with(self, body: Value) -> Self {
        Self { body, ..self }
    }

    pub(super) fn json(self) -> Value {
        let fields = self.fields.into_iter();
        let fields = fields.map(|(name, label, value)| {
            json!({ "name": name, "label": label, "value": value, "is_number": value.is_number() })
        });
        json!({
            "label": self.label,
            "method": self.method,
            "path": self.path,
            "body": self.body,
            "impact": self.impact,
            "is_hard": self.is_hard,
            "fields": fields.collect::<Vec<_>>(),
        })
    }
}

/// A name as a part of an address of the API.
fn part(name: &str) -> String {
    super::blocks::link("", name)[1..].to_owned()
}

/// What can be done to a pool.
pub(super) fn of_pool(look: &Look<'_>, name: &str) -> Vec<Value> {
    let catalog = look.daemon.catalog.load();
    let Some(place) = catalog.pools.get(name) else {
        return Vec::new();
    };
    if !look.may_to("pool", "pool", name) {
        return Vec::new();
    }
    let stats = place.stats();
    let (held, waiting, size) = (stats.members.held, stats.len(), stats.members.size());
    let path = |what: &str| format!("/api/v1/pools/{}/{what}", part(name));
    let (keep, members) = (count(held, "member"), count(size, "member"));
    let pause = match stats.is_suspended {
        true => Act::post(
            "Resume",
            path("resume"),
            format!("The pool lends members again. {waiting} wait for one now."),
        ),
        false => Act::post(
            "Pause",
            path("pause"),
            format!(
                "The pool lends nothing until it is resumed: takes wait. {keep} stay with their \
                 holders. {waiting} wait now."
            ),
        )
        .hard(),
    };
    let recycle = Act::post(
        "Replace members",
        path("recycle"),
        format!(
            "All {members} are replaced by new ones. Those that are held are replaced when they \
             are given back: no holder is interrupted."
        ),
    );
    let recycle = Act {
        fields: vec![("over_ms", "Over how many milliseconds", json!(0))],
        ..recycle
    };
    let resize = Act::post(
        "Resize",
        path("resize"),
        format!(
            "It has {size} members of at most {max}, and {held} are held. With fewer, those beyond \
             are stopped when they are given back. The change is in the history of the config.",
            max = stats.max
        ),
    );
    let resize = Act {
        fields: vec![("max", "The most members", json!(stats.max))],
        ..resize
    };
    [pause, resize, recycle].map(Act::json).into()
}

/// What can be done to an application.
pub(super) fn of_app(look: &Look<'_>, name: &str) -> Vec<Value> {
    if !look.may_to("app", "app", name) {
        return Vec::new();
    }
    let found = look.daemon.apps.find(name);
    let Some(shown) = found.and_then(|app| look.daemon.apps.shown(&app)) else {
        return Vec::new();
    };
    let stats = &shown.stats;
    let path = |what: &str| format!("/api/v1/apps/{}/{what}", part(name));
    let (processes, requests) = (
        count(stats.processes.len(), "process"),
        count(stats.sessions, "request"),
    );
    let mut all = vec![
        Act::post(
            "Restart",
            path("restart"),
            format!(
                "{processes} are replaced one after the other. {requests} are being served, and \
                 are finished first."
            ),
        )
        .with(json!({ "how": "rolling" })),
        Act::post(
            "Restart at once",
            path("restart"),
            format!("{processes} end now. {requests} that they serve are cut off."),
        )
        .with(json!({ "how": "now" }))
        .hard(),
        Act::post(
            "Start one more",
            path("spawn"),
            format!("It has {processes}, and gets one more if there is room."),
        ),
    ];
    if stats.trial.is_some() {
        let trial = |label, verdict: &str, impact: &str| {
            Act::post(label, path("trial"), impact.into()).with(json!({ "verdict": verdict }))
        };
        all.push(trial(
            "Accept new code",
            "accept",
            "The trial ends: all processes get the new code.",
        ));
        all.push(trial(
            "Reject new code",
            "reject",
            "The trial ends: the new code goes, and the old code serves all requests.",
        ));
    }
    all.into_iter().map(Act::json).collect()
}

/// What can be done to a process.
pub(super) fn of_process(look: &Look<'_>, app: &str, pid: u64, sessions: u64) -> Vec<Value> {
    if !look.may_to("app", "app", app) {
        return Vec::new();
    }
    let path = |what: &str| format!("/api/v1/processes/{pid}/{what}");
    let requests = count(usize::try_from(sessions).unwrap_or(usize::MAX), "request");
    let detach = Act::post(
        "Finish",
        path("detach"),
        format!("Process {pid} gets no more requests, finishes its {requests}, and ends."),
    );
    let kill = Act::post(
        "Kill",
        path("kill"),
        format!("Process {pid} ends now. {requests} that it serves are cut off."),
    );
    [detach, kill.hard()].map(Act::json).into()
}

/// Taking something back from its holder.
pub(super) fn revoke(look: &Look<'_>, ticket: &str, what: &str, holder: &str) -> Option<Value> {
    // A ticket that is not in full cannot be sent.
    let is_full = !ticket.ends_with('…');
    (look.may("client") && is_full).then(|| {
        let impact = format!(
            "{holder} loses {what} now, and is told. What it is doing with it is not undone: the \
             next holder may come while it still works."
        );
        let path = format!("/api/v1/grants/{}/revoke", part(ticket));
        Act::post("Revoke", path, impact).hard().json()
    })
}

/// Ending a connection.
pub(super) fn kill(look: &Look<'_>, id: u64, name: &str, held: usize) -> Option<Value> {
    look.may("client").then(|| {
        let impact = format!(
            "Connection {id} ({name}) is closed. All that it holds ({held}) is given back as if it \
             had crashed."
        );
        let path = format!("/api/v1/clients/{id}/kill");
        Act::post("Kill", path, impact).hard().json()
    })
}

/// Going back to an earlier config.
pub(super) fn rollback(look: &Look<'_>, version: u64, summary: &str) -> Option<Value> {
    let sees_all = look.user.is_none_or(|user| user.may_use_all());
    (look.may("config") && sees_all).then(|| {
        let impact = format!(
            "The config of version {version} ({summary}) counts again from now on. What waits and \
             what is held stays."
        );
        Act::post("Go back to it", "/api/v1/config/rollback".into(), impact)
            .with(json!({ "version": version }))
            .hard()
            .json()
    })
}
