//! The end of all apps.

use crate::ledger::Reply;
use crate::time::Instant;

use super::effect::{Effect, Leaving};
use super::process::Doing;
use super::{Apps, Mode};

impl<R: Reply> Apps<R> {
    /// No ask is let in any more. An ask that waits for a process that is there
    /// is served; an ask that needs a start is refused. Processes go when no ask
    /// is left for them; [`Effect::Closed`] follows the last.
    pub fn close(&mut self, now: Instant, effects: &mut Vec<Effect<R>>) {
        if self.mode != Mode::Running {
            return;
        }
        self.mode = Mode::Closing;
        for at in 0..u32::try_from(self.apps.len()).expect("apps are numbered by 32 bits") {
            if self.apps[at as usize].is_some() {
                self.stop_starts(at, now, effects);
                self.touched.push(at);
            }
        }
        self.finish_all(now, effects);
    }

    /// As [`close`](Self::close), but no ask and no session is waited for.
    pub fn close_now(&mut self, now: Instant, effects: &mut Vec<Effect<R>>) {
        if self.mode == Mode::Closed {
            return;
        }
        self.mode = Mode::Closing;
        for at in 0..u32::try_from(self.apps.len()).expect("apps are numbered by 32 bits") {
            if self.apps[at as usize].is_some() {
                self.stop_all(at, now, effects);
                self.touched.push(at);
            }
        }
        self.finish_all(now, effects);
    }

    /// Stops the starts.
    fn stop_starts(&mut self, at: u32, now: Instant, effects: &mut Vec<Effect<R>>) {
        for slot in self.app(at).slots.clone() {
            if let Doing::Starting { .. } = self.processes.at(slot).doing {
                self.stop(slot, Leaving::Closed, false, now, effects);
            }
        }
    }

    /// All processes of an app finish what they do and go; no ask waits.
    pub(super) fn end_all(&mut self, at: u32, now: Instant, effects: &mut Vec<Effect<R>>) {
        for slot in self.app(at).slots.clone() {
            match self.processes.at(slot).doing {
                Doing::Starting { .. } | Doing::Ready | Doing::Disabled | Doing::Down { .. } => {
                    self.leave(slot, Leaving::Closed, now, effects);
                }
                Doing::Draining { .. } | Doing::Stopping { .. } => (),
            }
        }
    }

    fn stop_all(&mut self, at: u32, now: Instant, effects: &mut Vec<Effect<R>>) {
        for slot in self.app(at).slots.clone() {
            let process = self.processes.at(slot);
            let process_id = process.id;
            match process.doing {
                Doing::Stopping { why } => effects.push(Effect::Stop {
                    process: process_id,
                    why,
                    at_once: true,
                }),
                _ => self.stop(slot, Leaving::Closed, true, now, effects),
            }
        }
    }
}
