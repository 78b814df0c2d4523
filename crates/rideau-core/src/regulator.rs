//! Grants leases while its valve allows it; other asks wait.
//!
//! The regulator does not know what a lease is good for: an asker may run a
//! task, open a connection or start a worker for as long as it holds one.

mod adopt;
mod effect;
mod explain;
mod invariants;
mod lease;

use std::time::Duration;

use crate::ids::{Tag, Ticket};
use crate::ledger::{Ledger, Reply};
use crate::machine::Machine;
use crate::meter::{self, Panel};
use crate::queue::{self, AskOptions, Queue};
use crate::refusal::{Reason, Refusal};
use crate::settings::OptionError;
use crate::time::{Instant, Lead};
use crate::valve::{self, Valve};
use crate::waiting::{End, Waiting};

pub use self::effect::Effect;
pub use self::lease::{Ended, Leases, Release, Renewal};
pub use crate::waiting::Tally;

/// The queue and the valve of a regulator, and the meters that watch them.
#[derive(Clone, PartialEq, Debug)]
pub struct Options {
    /// Where asks wait.
    pub queue: queue::Options,
    /// The valve, which decides whether one more lease may be granted.
    pub valve: valve::Options,
    /// The meters that are told the waits.
    pub meters: Vec<meter::Options>,
    /// The meters are fed after this many inputs, and whenever time alone
    /// moves the regulator on. Zero counts as one.
    pub read_after: u32,
}

/// A snapshot of a regulator's numbers.
#[derive(Clone, Debug)]
pub struct Stats {
    /// How many wait.
    pub len: usize,
    /// How many leases there are.
    pub size: usize,
    /// How long the oldest waiting ask has waited.
    pub oldest_waited: Duration,
    /// The next ask is granted at once.
    pub is_open: bool,
    /// The parts of the valve.
    pub valve: Vec<valve::Stats>,
    /// Outcomes of asks.
    pub asks: Tally,
    /// Outcomes of leases.
    pub leases: Leases,
}

/// The asks that wait for a lease, the leases that are held, and whether there
/// is one more.
///
/// Invariants: it is open exactly if its valve was at the latest instant it was
/// told, and then no ask waits; every open ticket waits or holds a lease that
/// the valve counts.
#[derive(Debug)]
pub struct Regulator<R> {
    waiting: Waiting<R>,
    valve: Valve,
    valve_options: valve::Options,
    /// The latest instant the valve was told. Stamps of askers may be out of
    /// order, but a valve must not see time run backwards. Leases are stamped
    /// by it too, so that the valve knows which it granted when.
    told: Instant,
    state: State,
    leases: Leases,
    panel: Panel,
    closed: bool,
    /// The queue had to end more waits than one call may, and may have kept the
    /// regulator shut for that.
    was_behind: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// The next ask is granted at once.
    Open,
    /// Asks wait; none does that came before `empty`.
    Closed { empty: Instant },
}

impl Options {
    /// A queue in front of a valve that sheds no ask, for an asker of a lease
    /// mostly means to wait until there is one, and no meters.
    pub fn new(valve: valve::Options) -> Self {
        Self {
            queue: queue::Options {
                shedding: queue::Shedding::Never,
                ..queue::Options::default()
            },
            valve,
            meters: Vec::new(),
            read_after: meter::READ_AFTER,
        }
    }
}

impl<R: Reply> Regulator<R> {
    /// A regulator that has granted nothing yet.
    ///
    /// # Errors
    ///
    /// If an option breaks a rule.
    pub fn new(
        options: Options,
        now: Instant,
        effects: &mut Vec<Effect<R>>,
    ) -> Result<Self, OptionError> {
        let queue = Queue::new(options.queue, now).map_err(|error| error.within("queue"))?;
        let valve = Valve::new(&options.valve, 0, now).map_err(|error| error.within("valve"))?;
        let panel = Panel::new(options.meters, options.read_after, now, effects)?;
        let state = if valve.is_open(now) {
            State::Open
        } else {
            State::Closed { empty: now }
        };
        Ok(Self {
            waiting: Waiting::new(queue, Ledger::default()),
            valve,
            valve_options: options.valve,
            told: now,
            state,
            leases: Leases::default(),
            panel,
            closed: false,
            was_behind: false,
        })
    }

    /// An asker wants a lease. The ticket is first that of the wait and then
    /// that of the lease.
    pub fn ask(
        &mut self,
        terms: &AskOptions,
        reply: R,
        now: Instant,
        effects: &mut Vec<Effect<R>>,
    ) -> Ticket {
        self.tell_time(terms.sent);
        let ticket = match self.state {
            _ if self.closed => {
                let ticket = self.waiting.turn_away(terms, reply, Reason::Closed, now);
                self.settle(terms.sent, now, effects);
                ticket
            }
            State::Open => {
                let ticket = self.grant_at_once(terms, reply, now, effects);
                self.settle(terms.sent, now, effects);
                ticket
            }
            State::Closed { .. } if terms.wait => {
                let ticket = self.waiting.join(terms, reply, now);
                self.follow_valve(terms.sent, now, effects);
                ticket
            }
            State::Closed { .. } => {
                let ticket = self.waiting.turn_away(terms, reply, Reason::Busy, now);
                self.settle(terms.sent, now, effects);
                ticket
            }
        };
        self.finish(terms.sent, now, effects);
        ticket
    }

    /// A holder wants to keep its lease. It is answered at once, before any
    /// that waits. A closing regulator renews nothing.
    pub fn renew(
        &mut self,
        ticket: Ticket,
        sent: Instant,
        now: Instant,
        effects: &mut Vec<Effect<R>>,
    ) -> Renewal {
        self.tell_time(sent);
        let waited = now.since(sent);
        let renewal = match self.waiting.held_since(ticket) {
            None => Renewal::NotFound { waited },
            Some(since) if self.closed => {
                self.end_lease(ticket, since, true);
                Renewal::Stop { waited }
            }
            Some(since) => match self.valve.renew(self.told) {
                Some(open_time) => {
                    self.leases.renewed += 1;
                    let lead = sent.lead_over(open_time.min(sent));
                    Renewal::Go { lead, waited }
                }
                None => {
                    self.leases.count_stop(self.told.since(since));
                    self.waiting.release(ticket);
                    Renewal::Stop { waited }
                }
            },
        };
        self.settle(sent, now, effects);
        self.finish(sent, now, effects);
        renewal
    }

    /// A holder gives its lease back; `ok` if its work went well. A ticket that
    /// waits is left alone.
    pub fn release(
        &mut self,
        ticket: Ticket,
        ok: bool,
        sent: Instant,
        now: Instant,
        effects: &mut Vec<Effect<R>>,
    ) -> Release {
        self.tell_time(sent);
        let waited = now.since(sent);
        let release = match self.waiting.held_since(ticket) {
            None => Release::NotFound { waited },
            Some(since) => {
                self.end_lease(ticket, since, ok);
                Release::Stop { waited }
            }
        };
        self.settle(sent, now, effects);
        self.finish(sent, now, effects);
        release
    }

    /// The ask with this ticket is not to wait any longer. The refusal is for
    /// one that did not ask for this itself. None if it does not wait: it has
    /// been answered, and what it may hold it keeps.
    pub fn cancel(
        &mut self,
        ticket: Ticket,
        now: Instant,
        effects: &mut Vec<Effect<R>>,
    ) -> Option<(R, Refusal)> {
        self.tell_time(now);
        let gone = self.waiting.cancel(ticket, now);
        self.settle(now, now, effects);
        self.finish(now, now, effects);
        gone
    }

    /// Cancel all that wait with this tag, before any ask is granted anything.
    pub fn cancel_tag(
        &mut self,
        tag: Tag,
        now: Instant,
        effects: &mut Vec<Effect<R>>,
    ) -> Vec<(R, Refusal)> {
        self.tell_time(now);
        let mut gone = Vec::new();
        while let Some(ticket) = self.waiting.newest(tag) {
            gone.extend(self.waiting.cancel(ticket, now));
        }
        self.settle(now, now, effects);
        self.finish(now, now, effects);
        gone
    }

    /// Close a ticket in whatever state it is: cancel it if it waits, release
    /// it if it holds a lease; `ok` as in [`release`](Self::release).
    pub fn end(
        &mut self,
        ticket: Ticket,
        ok: bool,
        sent: Instant,
        now: Instant,
        effects: &mut Vec<Effect<R>>,
    ) -> Ended<R> {
        self.tell_time(sent);
        let ended = match self.waiting.held_since(ticket) {
            Some(since) => {
                self.end_lease(ticket, since, ok);
                Ended::Released
            }
            None => self
                .waiting
                .cancel(ticket, now)
                .map_or(Ended::NotFound, |(reply, _)| Ended::Cancelled(reply)),
        };
        self.settle(sent, now, effects);
        self.finish(sent, now, effects);
        ended
    }

    /// Tell the valve the lead of the side that wants what the leases are for.
    pub fn update(
        &mut self,
        lead: Lead,
        sent: Instant,
        now: Instant,
        effects: &mut Vec<Effect<R>>,
    ) {
        self.tell_time(sent);
        self.valve.update(lead, self.told);
        self.settle(sent, now, effects);
        self.finish(sent, now, effects);
    }

    /// Answer all asks that wait, and from now on refuse new ones. Leases stay
    /// until they end.
    pub fn close(&mut self, now: Instant, effects: &mut Vec<Effect<R>>) {
        self.closed = true;
        self.tell_time(now);
        self.waiting.close(now);
        self.panel.end(effects);
        self.settle(now, now, effects);
        self.finish(now, now, effects);
    }

    /// Change everything at once. All asks that wait keep their places and all
    /// holders keep their leases, even if there are more than may be now.
    ///
    /// # Errors
    ///
    /// If an option breaks a rule; then nothing has changed.
    pub fn reconfigure(
        &mut self,
        options: Options,
        now: Instant,
        effects: &mut Vec<Effect<R>>,
    ) -> Result<(), OptionError> {
        let within = |part| move |error: OptionError| error.within(part);
        options.queue.validate().map_err(within("queue"))?;
        options.valve.check().map_err(within("valve"))?;
        self.panel
            .reconfigure(options.meters, options.read_after, now, effects)?;
        if self.closed {
            self.panel.end(effects);
        }
        self.tell_time(now);
        self.waiting.reconfigure(options.queue, now);
        self.valve
            .reconfigure(&options.valve, self.told)
            .expect("the options were checked");
        self.valve_options = options.valve;
        self.follow_valve(now, now, effects);
        self.finish(now, now, effects);
        Ok(())
    }

    /// How the regulator is set up.
    pub fn options(&self) -> Options {
        Options {
            queue: self.waiting.queue().options().clone(),
            valve: self.valve_options.clone(),
            meters: self.panel.options().to_vec(),
            read_after: self.panel.read_after(),
        }
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// No ask waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many leases there are.
    pub fn size(&self) -> usize {
        self.valve.size()
    }

    /// The ticket holds a lease.
    pub fn is_held(&self, ticket: Ticket) -> bool {
        self.waiting.held_since(ticket).is_some()
    }

    /// How to answer an ask that waits, to change.
    pub fn ask_mut(&mut self, ticket: Ticket) -> Option<&mut R> {
        self.waiting.reply_mut(ticket)
    }

    /// A refusal with the queue's numbers, for an ask turned away before it
    /// came.
    pub fn refusal(&self, reason: Reason, sent: Instant, now: Instant) -> Refusal {
        self.waiting.queue().refusal(reason, sent, now)
    }

    /// The regulator's numbers.
    pub fn stats(&self, now: Instant) -> Stats {
        let oldest = self.waiting.oldest();
        Stats {
            len: self.len(),
            size: self.size(),
            oldest_waited: oldest.map_or(Duration::ZERO, |sent| now.since(sent)),
            is_open: self.state == State::Open,
            valve: self.valve.stats(),
            asks: self.waiting.tally().clone(),
            leases: self.leases.clone(),
        }
    }

    /// Why asks wait, why the last were shed and what would help, in plain
    /// words.
    pub fn explain(&self, now: Instant) -> String {
        let is_open = self.state == State::Open;
        explain::explain(&self.waiting, &self.valve, is_open, self.closed, now)
    }

    /// Let the valve know how late it is.
    fn tell_time(&mut self, sent: Instant) {
        self.told = self.told.max(sent);
    }

    fn grant_at_once(
        &mut self,
        terms: &AskOptions,
        reply: R,
        now: Instant,
        effects: &mut Vec<Effect<R>>,
    ) -> Ticket {
        let (ticket, reply) = self.waiting.pass_holding(reply, self.told);
        if let Some(reply) = reply {
            self.grant(ticket, terms.sent, reply, now, effects);
        }
        ticket
    }

    fn grant(
        &mut self,
        ticket: Ticket,
        sent: Instant,
        reply: R,
        now: Instant,
        effects: &mut Vec<Effect<R>>,
    ) {
        let open_time = self.valve.ask(self.told);
        effects.push(Effect::Grant {
            ticket,
            reply,
            lead: sent.lead_over(open_time),
            waited: self.waiting.count_served(sent, now),
        });
    }

    fn end_lease(&mut self, ticket: Ticket, since: Instant, ok: bool) {
        let held = self.told.since(since);
        self.leases.count_release(held, ok);
        self.waiting.ended_hold(held);
        self.valve.release(held, ok, self.told);
        self.waiting.release(ticket);
    }

    /// Open or close as the valve did, and move the queue on if it stays shut.
    fn settle(&mut self, sent: Instant, now: Instant, effects: &mut Vec<Effect<R>>) {
        let was = self.state;
        if !self.follow_valve(sent, now, effects) && was != State::Open {
            self.waiting.advance(now);
        }
    }

    /// Open or close as the valve did. Says whether it was open for any ask.
    fn follow_valve(&mut self, sent: Instant, now: Instant, effects: &mut Vec<Effect<R>>) -> bool {
        let is_open = self.valve.is_open(self.told);
        match self.state {
            State::Open if is_open => (),
            State::Open => self.state = State::Closed { empty: sent },
            State::Closed { .. } if is_open => self.drain(now, effects),
            State::Closed { .. } => (),
        }
        is_open
    }

    /// Grant leases in the order of the queue while the valve is open.
    fn drain(&mut self, now: Instant, effects: &mut Vec<Effect<R>>) {
        while self.valve.is_open(self.told) {
            let granted = self.waiting.grant(self.told, now);
            self.tell_ended(now, effects);
            let Some((ticket, sent, reply)) = granted else {
                // Else it opens when all asks are gone that have to.
                if !self.waiting.is_behind() {
                    self.state = State::Open;
                }
                return;
            };
            self.grant(ticket, sent, reply, now, effects);
        }
    }

    /// Open after all if the queue was behind when the valve opened.
    fn catch_up(&mut self, now: Instant, effects: &mut Vec<Effect<R>>) {
        if std::mem::take(&mut self.was_behind) {
            self.follow_valve(now, now, effects);
        }
        self.was_behind = self.state != State::Open && self.waiting.is_behind();
    }

    /// Say which asks were let go. A valve that opens by time alone knows
    /// better than the queue when to ask again.
    fn tell_ended(&mut self, now: Instant, effects: &mut Vec<Effect<R>>) {
        let opens = self.valve.deadline().filter(|opens| *opens > now);
        let told = self.waiting.ended().map(|end| match end {
            End::Shed {
                ticket,
                reply,
                mut refusal,
            } => {
                if let Some(opens) = opens {
                    refusal.retry_after = opens.since(now);
                }
                Effect::Shed {
                    ticket,
                    reply,
                    refusal,
                }
            }
            End::Gone(reply) => Effect::Forget(reply),
        });
        effects.extend(told);
    }

    /// The work after every input, which was sent at `sent`.
    fn finish(&mut self, sent: Instant, now: Instant, effects: &mut Vec<Effect<R>>) {
        self.catch_up(now, effects);
        self.tell_ended(now, effects);
        if self.panel.count(sent, now) {
            self.read(sent, now.since(sent), now, effects);
        }
        self.check();
    }

    /// Feed the meters.
    fn read(
        &mut self,
        sent: Instant,
        queue_delay: Duration,
        now: Instant,
        effects: &mut Vec<Effect<R>>,
    ) {
        let lead = match &mut self.state {
            State::Open => {
                let open_time = self.valve.open_time().expect("an open valve opened once");
                self.told.lead_over(open_time)
            }
            State::Closed { empty } => {
                // A late input leads nothing, and moves nothing back.
                *empty = self.waiting.oldest().unwrap_or(*empty);
                (*empty).min(sent).lead_over(sent)
            }
        };
        // Its valve is there, and waits for asks.
        self.panel.feed(lead, false, queue_delay, now, effects);
    }
}

impl<R: Reply> Machine for Regulator<R> {
    type Effect = Effect<R>;

    fn deadline(&self) -> Option<Instant> {
        let closed = match self.state {
            State::Open => [None, None],
            State::Closed { .. } => [self.waiting.deadline(), self.valve.deadline()],
        };
        let meters = self.panel.deadline();
        closed.into_iter().flatten().chain(meters).min()
    }

    fn advance(&mut self, now: Instant, effects: &mut Vec<Effect<R>>) {
        self.tell_time(now);
        self.settle(now, now, effects);
        // An ask that was granted a lease may have hidden one with an older
        // stamp.
        if self.state != State::Open {
            self.waiting.advance(now);
        }
        self.catch_up(now, effects);
        self.tell_ended(now, effects);
        if !self.panel.is_empty() {
            self.read(now, self.panel.unread_delay(), now, effects);
        }
        self.check();
    }

    #[inline]
    fn waiting(&self) -> usize {
        self.waiting.len()
    }
}
