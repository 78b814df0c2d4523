//! Carries out what the machine of the applications decides.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use rideau::driver::{After, Shell};
use rideau_core::Brief;
use rideau_core::apps::{self as core, AppId, Effect, Note, ProcessId};

use super::Inner;
use super::app::App;
use super::process_task::{self, ProcessSlot, Stopping};
use super::running::Running;
use super::server_task;
use super::session::{Session, Waiter};
use super::trial;

/// What the machine knows by numbers alone, and the applications that it is of.
pub(super) struct AppsShell {
    /// Locked within a step or without one, and never around one.
    pub(super) tables: Mutex<Tables>,
    /// Gone when no handle is left, which the machine outlives by a moment.
    me: Weak<Inner>,
}

#[derive(Default)]
pub(super) struct Tables {
    /// Every process from its start to its end.
    pub(super) slots: BTreeMap<ProcessId, ProcessSlot>,
    pub(super) by_id: HashMap<AppId, Arc<App>>,
}

impl AppsShell {
    pub(super) fn new(me: Weak<Inner>) -> Self {
        Self {
            tables: Mutex::default(),
            me,
        }
    }

    /// Do this when the lock is released, unless no handle is left.
    fn call(&self, after: &mut After, call: impl FnOnce(Arc<Inner>) + Send + 'static) {
        let me = Weak::clone(&self.me);
        after.call(move || {
            if let Some(inner) = me.upgrade() {
                call(inner);
            }
        });
    }

    /// Tell operators of a note, and requests which code is on trial.
    fn note(&self, tables: &Tables, note: &Note, after: &mut After) {
        let known = said(note).or_else(|| tables.said_of_server(note));
        let Some((app, text)) = known else {
            return;
        };
        let Some(app) = tables.by_id.get(&app).cloned() else {
            return;
        };
        match *note {
            Note::TrialBegan { generation, .. } => app.set_trial(Some(generation)),
            // Its name may have another address by now.
            Note::ServerDown { .. } => {
                let app = Arc::clone(&app);
                self.call(after, move |_| {
                    if let Some(servers) = &app.servers {
                        servers.one_is_down();
                    }
                });
            }
            // Of code that was rejected, requests are still inside.
            Note::TrialEnded { ended, .. } if ended.verdict.is_good() => app.set_trial(None),
            _ => (),
        }
        self.call(after, move |inner| inner.tell(&app.name, text, None));
    }
}

impl Shell<core::Apps<Waiter>> for AppsShell {
    fn perform(&self, effect: Effect<Waiter>, after: &mut After) {
        let mut tables = self.tables.lock();
        // Words to a process are given here, in the order of decisions. They wake no
        // task but its own, and nothing is dropped by them.
        match effect {
            Effect::Grant { reply, session } => {
                let running = tables.granted(session.id.process);
                self.call(after, move |inner| {
                    reply.give(Ok(Session::new(inner, running, session)));
                });
            }
            Effect::Shed { reply, refusal } => after.call(move || reply.give(Err(refusal))),
            Effect::Forget(reply) => after.call(move || drop(reply)),
            Effect::Start {
                app,
                process,
                generation,
            } => {
                let app = Arc::clone(&tables.by_id[&app]);
                let (slot, stop) = ProcessSlot::new();
                tables.slots.insert(process, slot);
                let start = process_task::Start {
                    app,
                    process,
                    generation,
                };
                self.call(after, move |inner| {
                    inner.spawn(process_task::run(Arc::clone(&inner), start, stop));
                });
            }
            Effect::Drain { process, why } => {
                if let Some(slot) = tables.slots.get(&process) {
                    slot.drain(why);
                }
            }
            Effect::Stop {
                process,
                why,
                at_once,
            } => {
                if let Some(slot) = tables.slots.get(&process) {
                    slot.drain(why);
                    slot.stop.send_replace(Some(Stopping { why, at_once }));
                }
            }
            Effect::Note(Note::Removed { app }) => {
                let removed = tables.by_id.remove(&app);
                after.call(move || drop(removed));
            }
            Effect::Probe { app, old, new } => {
                let running = |id| tables.slots.get(&id).and_then(|slot| slot.running.clone());
                let pair = running(old).zip(running(new));
                if let (Some(app), Some(pair)) = (tables.by_id.get(&app).cloned(), pair) {
                    self.call(after, move |inner| {
                        inner.spawn(trial::probe(Arc::clone(&inner), app, pair));
                    });
                }
            }
            Effect::Look { server, .. } => {
                let slot = tables.slots.get(&server);
                if let Some(running) = slot.and_then(|slot| slot.running.clone()) {
                    self.call(after, move |inner| {
                        inner.spawn(server_task::look(Arc::clone(&inner), running));
                    });
                }
            }
            Effect::Note(note) => self.note(&tables, &note, after),
            Effect::Closed => self.call(after, |inner| {
                inner.closed.send_replace(true);
            }),
        }
    }
}

impl Tables {
    /// The process that the machine granted a place in.
    pub(super) fn granted(&self, process: ProcessId) -> Arc<Running> {
        let slot = self.slots.get(&process);
        let running = slot.and_then(|slot| slot.running.clone());
        running.expect("the machine grants places in processes that are ready")
    }
}

impl Tables {
    /// The event text of a note about a server, and its upstream.
    fn said_of_server(&self, note: &Note) -> Option<(AppId, String)> {
        let called = |server: ProcessId| {
            let slot = self.slots.get(&server);
            let running = slot.and_then(|slot| slot.running.as_ref());
            running.map_or_else(|| server.to_string(), |running| running.called())
        };
        Some(match *note {
            Note::ServerDown { app, server, why } => {
                let (server, why) = (called(server), why.word());
                (app, format!("server {server} is down: {why}"))
            }
            Note::ServerUp {
                app,
                server,
                down_for,
            } => {
                let (server, down_for) = (called(server), Brief(down_for));
                (
                    app,
                    format!("server {server} answers again after {down_for}"),
                )
            }
            Note::ServerLearnt {
                app,
                server,
                concurrency: (before, after),
            } => {
                let server = called(server);
                let text =
                    format!("server {server} gets {after} requests at a time, and got {before}");
                (app, text)
            }
            _ => return None,
        })
    }
}

/// The event text of a note, and its application.
fn said(note: &Note) -> Option<(AppId, String)> {
    Some(match *note {
        Note::Started { app, process, took } => {
            let took = Brief(took);
            (app, format!("process {process} is ready after {took}"))
        }
        Note::Failing {
            app,
            failures,
            retry_after,
        } => (
            app,
            format!(
                "{}: the next is tried in {}",
                match failures {
                    1 => "a start failed".into(),
                    failures => format!("{failures} starts in a row failed"),
                },
                Brief(retry_after)
            ),
        ),
        Note::Deployed { app, generation } => {
            (app, format!("all processes run generation {generation}"))
        }
        Note::DeployFailed { app, generation } => (
            app,
            format!("deploy_failed: generation {generation} is not used, the old one goes on"),
        ),
        Note::TrialBegan { app, generation } => (
            app,
            format!("generation {generation} is on trial beside the old one"),
        ),
        Note::TrialEnded { app, ended } => (app, ended.to_string()),
        Note::Learnt {
            app,
            generation,
            concurrency: (before, after),
        } => (
            app,
            format!(
                "a process of generation {generation} gets {after} requests at a time, and got \
                 {before}"
            ),
        ),
        Note::Starved { app, from } => (
            app,
            format!("it waited too long for room, so process {from} makes room"),
        ),
        _ => return None,
    })
}
