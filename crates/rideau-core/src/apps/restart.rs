//! How an app gets new code.

use crate::ledger::Reply;
use crate::time::Instant;

use super::effect::{AppId, Effect, Leaving, Restart};
use super::process::Doing;
use super::stats::Deploy;
use super::{Apps, Mode};

impl<R: Reply> Apps<R> {
    /// An app has new code. What still starts with the old is stopped; a restart
    /// during a restart only means yet newer code. Processes that cannot be
    /// beside each other are not replaced one after the other: the old finish
    /// first.
    pub fn restart(
        &mut self,
        app: AppId,
        how: Restart,
        now: Instant,
        effects: &mut Vec<Effect<R>>,
    ) {
        let at = app.0;
        let is_open = self.mode == Mode::Running && self.is_open(at);
        // Servers run what others say.
        if !is_open || self.app(at).options.servers.is_some() {
            return;
        }
        self.call_off_trial(at, now, effects);
        let app = self.app_mut(at);
        let how = match how {
            Restart::Rolling if app.options.alone => Restart::Blocking,
            how => how,
        };
        app.generation += 1;
        app.learnt.begin(app.generation, app.good, now);
        app.tries = 0;
        app.failures.end();
        app.deploy = match how {
            Restart::Rolling => Deploy::Rolling,
            Restart::Blocking | Restart::Immediate => Deploy::Settled,
        };
        for slot in self.app(at).slots.clone() {
            match (self.processes.at(slot).doing, how) {
                (Doing::Starting { .. }, _) => {
                    self.stop(slot, Leaving::Unwanted, false, now, effects);
                }
                (Doing::Ready | Doing::Disabled, Restart::Blocking) => {
                    self.leave(slot, Leaving::Restarted, now, effects);
                }
                (Doing::Ready | Doing::Disabled | Doing::Draining { .. }, Restart::Immediate) => {
                    self.stop(slot, Leaving::Restarted, true, now, effects);
                }
                _ => (),
            }
        }
        self.finish(at, now, effects);
    }
}
