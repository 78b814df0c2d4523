//! Explains an application.

use std::fmt::Write;

use rideau_config::human::{count, stop};
use rideau_core::Brief;
use rideau_core::apps::State;

use super::Explained;
use crate::state::daemon::Daemon;
use crate::state::viewer::Viewer;

/// An application: how it is, why asks wait, and why it last failed.
pub(super) fn app(daemon: &Daemon, name: &str, viewer: Viewer<'_>) -> Option<Explained> {
    viewer.sees("app", name).then_some(())?;
    let app = daemon.apps.find(name)?;
    let shown = daemon.apps.shown(&app)?;
    let stats = &shown.stats;
    let mut text = format!(
        "{} {name} is {}: {} in {}, {} waiting.\n",
        if shown.has_servers { "Upstream" } else { "App" },
        shown.state(),
        count(stats.sessions, "request"),
        count(
            stats.processes.len(),
            if shown.has_servers {
                "server"
            } else {
                "process"
            }
        ),
        stats.waiting,
    );
    for server in &shown.processes {
        if let (State::Down(why), Some(address)) = (server.stats.state, &server.address) {
            let age = Brief(server.stats.age);
            let _ = writeln!(
                text,
                "Server {address} has been down for {age}: {}.",
                why.word()
            );
        }
    }
    if let Some(room) = shown.room.filter(|room| room.len > 0 || room.turns > 0) {
        let _ = writeln!(
            text,
            "Its waiting room has {}, and the turn of {} more has come.",
            count(usize::try_from(room.len).unwrap_or(usize::MAX), "browser"),
            room.turns
        );
    }
    for line in daemon.apps.explain(&app) {
        let _ = writeln!(text, "{line}");
    }
    let sees_output = viewer.sees_output("app", name);
    if shown.report.is_some() && !sees_output {
        text.push_str("The last start failed: a user with the right \"app\" is told why.\n");
    }
    let report = shown.report.as_ref().filter(|_| sees_output);
    if let Some(report) = &report {
        let _ = writeln!(text, "The last start failed: {}", report.summary);
        for advice in &report.advice {
            let _ = writeln!(text, "Perhaps {advice}{}", stop(advice));
        }
        for line in report.lines.iter().rev().take(LINES).rev() {
            let _ = writeln!(text, "  | {}", line.text);
        }
    }
    Some(Explained {
        kind: "app",
        name: name.into(),
        text,
        facts: vec![
            ("state", shown.state().into()),
            ("processes", stats.processes.len().into()),
            ("sessions", stats.sessions.into()),
            ("waiting", stats.waiting.into()),
            ("generation", stats.generation.into()),
            ("report", report.map(|report| report.id.clone()).into()),
        ],
    })
}

/// This many of the last lines are shown.
const LINES: usize = 10;
