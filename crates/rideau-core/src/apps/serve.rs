//! Which ask gets a place in which process.

use crate::ids::Ticket;
use crate::ledger::Reply;
use crate::refusal::Refusal;
use crate::time::Instant;

use super::app::{App, Aside, Room};
use super::effect::{Ask, Came, Effect, ProcessId, Session};
use super::sessions::{Open, Streamed};
use super::{Apps, Mode};

/// A free place that was chosen for an ask.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chosen {
    pub(super) slot: u32,
    /// Chance chose between new code and old; and with what chance the new.
    pub(super) drawn: Option<f64>,
}

impl<R: Reply> App<R> {
    /// An ask that waits for one certain process leaves.
    pub(super) fn cancel_aside(&mut self, ticket: Ticket, now: Instant) -> Option<(R, Refusal)> {
        let mut asides = self.aside.iter();
        let (key, _) = asides.find(|(_, aside)| aside.ticket == ticket)?;
        let key = *key;
        let aside = self.aside.remove(&key)?;
        let refusal = self.waiting.cancel_aside(ticket, now);
        Some((aside.reply, refusal))
    }

    /// An ask that waited for one process waits for any.
    fn call_back(&mut self, aside: Aside<R>, now: Instant) {
        if self.waiting.len() == 0 {
            self.pace.moved = now;
        }
        let Aside { ticket, reply, .. } = aside;
        self.waiting.call_back(ticket, &aside.terms, reply, now);
    }

    /// The same for all asks that wait for the process in this slot.
    pub(super) fn call_back_all(&mut self, slot: u32, now: Instant) {
        while let Some(entry) = self.aside.range((slot, 0)..=(slot, u64::MAX)).next() {
            let key = *entry.0;
            let aside = self.aside.remove(&key).expect("it was just seen");
            self.call_back(aside, now);
        }
    }

    /// The same for the asks that waited for one process for long enough.
    pub(super) fn call_back_due(&mut self, now: Instant) {
        let due = |aside: &Aside<R>| aside.until <= now;
        while let Some(key) =
            (self.aside.iter()).find_map(|(key, aside)| due(aside).then_some(*key))
        {
            let aside = self.aside.remove(&key).expect("it was just seen");
            self.call_back(aside, now);
        }
    }

    /// When the first has waited for one process for long enough.
    pub(super) fn sticky_due(&self) -> Instant {
        let untils = self.aside.values().map(|aside| aside.until);
        untils.min().unwrap_or(Instant::NEVER)
    }
}

impl<R: Reply> Apps<R> {
    /// The place for an ask that came just now, if it need not wait.
    #[inline]
    pub(super) fn place_for(&mut self, at: u32, ask: &Ask, now: Instant) -> Option<Chosen> {
        let app = self.app(at);
        if app.waiting.len() > 0 {
            return None;
        }
        if let Some(slot) = self.sticky(at, ask) {
            let has_room = self.processes.at(slot).place.is_some();
            if has_room {
                return Some(Chosen { slot, drawn: None });
            }
            if ask.terms.wait && !app.options.sticky_wait.is_zero() {
                return None;
            }
        }
        self.choose(at, ask.avoid, now)
    }

    /// The best free place, if there is one. While new code is on trial, chance says whether
    /// that is in a process with the new code or the old.
    #[inline]
    fn choose(&mut self, at: u32, avoid: Option<ProcessId>, now: Instant) -> Option<Chosen> {
        if self.app(at).options.servers.is_some() {
            return self.choose_server(at, avoid);
        }
        if self.app(at).trial.is_some()
            && let Some(chosen) = self.draw(at, avoid, now)
        {
            return Some(chosen);
        }
        let mut places = self.app(at).places.iter();
        let first = places.next()?.slot;
        let slot = match avoid {
            Some(avoid) if self.processes.at(first).id == avoid => {
                places.next().map_or(first, |place| place.slot)
            }
            _ => first,
        };
        Some(Chosen { slot, drawn: None })
    }

    /// The process it was with before, if that is there and serves. What new code on trial
    /// has failed is for the old code.
    fn sticky(&self, at: u32, ask: &Ask) -> Option<u32> {
        if let Some(slot) = ask.avoid.and_then(|failed| self.old_code(at, failed)) {
            return Some(slot);
        }
        let wanted = ask.sticky.filter(|wanted| Some(*wanted) != ask.avoid)?;
        let slot = self.processes.find(wanted)?;
        let process = self.processes.at(slot);
        (process.app == at && process.is_ready()).then_some(slot)
    }

    /// The process that one waits for rather than for any.
    pub(super) fn sticks_to(&self, at: u32, ask: &Ask) -> Option<u32> {
        let app = self.app(at);
        let most = app.waiting.queue().max();
        let most = most.map_or(usize::MAX, |max| max as usize);
        let has_room = app.waiting.len() + app.aside.len() < most;
        let slot = self.sticky(at, ask)?;
        (has_room && !app.options.sticky_wait.is_zero()).then_some(slot)
    }

    /// Let one wait for one certain process.
    pub(super) fn set_aside(
        &mut self,
        at: u32,
        slot: u32,
        ask: &Ask,
        reply: R,
        now: Instant,
    ) -> Came {
        let app = self.app_mut(at);
        let (terms, until) = (ask.terms, now + app.options.sticky_wait);
        let until = until.min(terms.deadline.unwrap_or(Instant::NEVER));
        let (ticket, reply) = app.waiting.set_aside(reply, terms.sent);
        if let Some(reply) = reply {
            let aside = Aside {
                ticket,
                terms,
                reply,
                until,
            };
            app.aside.insert((slot, ticket.serial), aside);
        }
        Came::Waits(ticket)
    }

    pub(super) fn grant_at_once(
        &mut self,
        at: u32,
        place: Chosen,
        ask: &Ask,
        now: Instant,
    ) -> Session {
        let sent = ask.terms.sent;
        let waited = self.app_mut(at).waiting.count_passed(sent, now);
        Session {
            waited,
            ..self.open(at, place, now, now)
        }
    }

    /// A session of an ask that came at `sent` begins.
    fn open(&mut self, at: u32, place: Chosen, sent: Instant, now: Instant) -> Session {
        let Chosen { slot, drawn } = place;
        self.change_inside(slot, 1, now);
        let process = self.processes.at_mut(slot);
        process.sessions += 1;
        process.used = now;
        let is_server = process.server.is_some();
        let is_cold = !is_server && sent < process.since;
        let generation = process.generation;
        let id = self.sessions.open(Open {
            process: process.id,
            slot,
            app: at,
            generation,
            since: now,
            streamed: Streamed::No,
            drawn,
        });
        let app = self.app_mut(at);
        app.sessions += 1;
        app.rate.add(now);
        app.tallies.cold += u64::from(is_cold);
        self.relist(slot);
        if is_server {
            self.busy_server(slot, now);
        }
        Session {
            id,
            generation,
            waited: now.since(sent),
            is_cold,
        }
    }

    /// Give free places to the asks that wait.
    pub(super) fn serve(&mut self, at: u32, now: Instant, effects: &mut Vec<Effect<R>>) {
        while !self.app(at).places.is_empty() {
            if self.serve_aside(at, now, effects) {
                continue;
            }
            let app = self.app_mut(at);
            if app.waiting.len() == 0 {
                return;
            }
            let Some((_, sent, reply)) = app.waiting.serve(now) else {
                if app.waiting.is_behind() {
                    return;
                }
                // All were let go; perhaps it is the turn of one set aside.
                continue;
            };
            app.waiting.count_served(sent, now);
            let Some(place) = self.choose(at, None, now) else {
                unreachable!("there was a free place");
            };
            let session = self.open(at, place, sent, now);
            effects.push(Effect::Grant { reply, session });
        }
    }

    /// Give a free place to an ask that waits for that very process, if it came
    /// before all asks that wait for any.
    fn serve_aside(&mut self, at: u32, now: Instant, effects: &mut Vec<Effect<R>>) -> bool {
        let app = self.app(at);
        if app.aside.is_empty() {
            return false;
        }
        let oldest = app.waiting.oldest().unwrap_or(Instant::NEVER);
        let is_next = |slot: u32, aside: &Aside<R>| {
            aside.terms.sent <= oldest && self.processes.at(slot).place.is_some()
        };
        let mut asides = app.aside.iter();
        let found = asides.find(|((slot, _), aside)| is_next(*slot, aside));
        let Some(key) = found.map(|(key, _)| *key) else {
            return false;
        };
        let app = self.app_mut(at);
        let aside = app.aside.remove(&key).expect("it was just seen");
        if aside.reply.is_gone() {
            // The queue knows what to do with asks that are gone.
            app.call_back(aside, now);
            return true;
        }
        let sent = aside.terms.sent;
        app.waiting.serve_aside(aside.ticket, sent, now);
        let place = Chosen {
            slot: key.0,
            drawn: None,
        };
        let session = self.open(at, place, sent, now);
        let reply = aside.reply;
        effects.push(Effect::Grant { reply, session });
        true
    }

    /// Put a process where it belongs among the free places of its app.
    #[inline]
    pub(super) fn relist(&mut self, slot: u32) {
        let process = self.processes.at_mut(slot);
        let app = self.apps[process.app as usize].as_mut();
        let app = app.expect("an app is there while it has processes");
        let most = app.limit_in(process);
        if process.server.is_some() {
            let places = if process.is_ready() { most } else { 0 };
            if let Some(server) = &mut process.server {
                let before = std::mem::replace(&mut server.places, places);
                app.server_places = app.server_places - before + places;
            }
        }
        let place = process
            .has_room(most, &app.options)
            .then(|| process.standing(slot));
        if place == process.place {
            return;
        }
        let before = std::mem::replace(&mut process.place, place);
        app.places.move_to(before, place);
    }

    /// An app that closes has nothing to serve with, or no ask to serve.
    pub(super) fn is_ending(&self, at: u32) -> bool {
        self.mode != Mode::Running || self.app(at).is_removed
    }

    /// Which process that is, if it is of an app that is there.
    pub(super) fn find(&self, id: ProcessId) -> Option<(u32, u32)> {
        let slot = self.processes.find(id)?;
        Some((slot, self.processes.at(slot).app))
    }

    /// The app waits for no room any more.
    pub(super) fn leave_room(&mut self, at: u32) {
        let app = self.app_mut(at);
        app.room = Room::Enough;
        app.due.starve = Instant::NEVER;
        self.room.retain(|waits| *waits != at);
    }
}
