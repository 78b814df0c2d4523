//! Invariants of all apps, checked after every input.

use crate::ledger::Reply;
use crate::time::Instant;

use super::app::Room;
use super::process::{Counts, Doing};
use super::sessions::Streamed;
use super::stats::Deploy;
use super::{Apps, Mode};

impl<R: Reply> Apps<R> {
    pub(super) fn check(&self, now: Instant) {
        if !cfg!(debug_assertions) {
            return;
        }
        self.check_counts();
        self.check_sessions();
        for (at, app) in self.all() {
            let options = &app.options;
            assert!(
                app.waiting.len() == 0 || app.places.is_empty() || app.waiting.is_behind(),
                "no request waits for a free place"
            );
            assert!(
                app.counts.starting <= 2,
                "an app starts one process at a time, or two if it is far behind"
            );
            assert!(app.counts.replacing <= 1);
            assert_eq!(app.trial.is_some(), app.deploy == Deploy::Trial);
            assert!(app.good <= app.generation);
            assert_eq!(
                app.room != Room::Enough,
                self.room.contains(&at),
                "an app that wants room is queued"
            );
            let mut outgoing = 0;
            for slot in &app.slots {
                let process = self.processes.at(*slot);
                assert!(
                    !self.is_spent(*slot),
                    "it would get no request, and hold its place"
                );
                assert_eq!(process.app, at);
                outgoing += usize::from(process.outgoing.is_some());
                let most = app.limit_in(process);
                assert_eq!(process.server.is_some(), options.servers.is_some());
                assert!(process.sessions < most || process.place.is_none());
                let place = process.has_room(most, options);
                let place = place.then(|| process.standing(*slot));
                assert_eq!(process.place, place, "places are as they are listed");
                assert_eq!(
                    place.is_some(),
                    place.is_some_and(|it| app.places.contains(&it))
                );
            }
            assert_eq!(app.outgoing, outgoing);
            assert!(!app.waiting.has_ended(), "shed asks were told");
            for (key, aside) in &app.aside {
                assert!(
                    self.processes.at(key.0).is_ready(),
                    "it waits for one that serves"
                );
                assert!(aside.until > now || app.due.sticky <= now);
            }
        }
    }

    /// The counts match the apps.
    fn check_counts(&self) {
        let (mut all, mut servers) = (Counts::default(), 0);
        for (_, app) in self.all() {
            let mut counts = Counts::default();
            for slot in &app.slots {
                let process = self.processes.at(*slot);
                counts.add(process.doing);
                match process.server {
                    Some(_) => servers += 1,
                    None => all.add(process.doing),
                }
            }
            assert_eq!(counts, app.counts);
        }
        assert_eq!(all, self.counts);
        assert_eq!(servers, self.servers);
        assert_eq!(all.live() + servers, self.processes.len());
        assert!(self.mode != Mode::Closed || all.live() + servers == 0);
        assert!(all.taken() <= self.limits.max, "no more are used than may");
    }

    fn check_sessions(&self) {
        for (slot, process) in self.processes.all() {
            let own = |open: &&super::sessions::Open| open.process == process.id;
            let open = || self.sessions.all().filter(own);
            let aside = open().filter(|open| open.streamed == Streamed::Aside);
            assert_eq!(aside.count(), process.streams);
            assert_eq!(open().count(), process.sessions + process.streams);
            assert!(open().all(|open| open.slot == slot && open.app == process.app));
            let inside = open().filter(|open| open.streamed == Streamed::No);
            assert_eq!(inside.count(), process.inside);
            let is_draining = matches!(process.doing, Doing::Draining { .. });
            assert!(
                !is_draining || !process.is_unused(),
                "a finished process is stopped"
            );
        }
        for (at, app) in self.all() {
            let open = self.sessions.all().filter(|open| open.app == at);
            assert_eq!(open.count(), app.sessions);
        }
        assert!(self.sessions.len() >= self.sessions.all().count());
    }
}
