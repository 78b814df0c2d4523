//! One run: requests come, wait, are served and leave, until the end.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::time::Duration;

use rideau_core::pool::MemberId;
use rideau_core::queue::AskOptions;
use rideau_core::{Flow, Instant, OptionError, Reason, Refusal, Ticket};

use crate::arrivals::ArrivalTimes;
use crate::chance::Chance;
use crate::clients::{Patience, Retries};
use crate::outcome::RunOutcome;
use crate::scenario::{Place, RunEnd, Scenario};
use crate::service::ServiceTimes;
use crate::site::{BrokerSite, PoolSite, QueueSite, RegulatorSite, Site, Told};

/// Run a scenario to its end. `watch` is told now and then how many requests have come.
///
/// # Errors
///
/// If an option of the queue or of the valve breaks a rule.
///
/// # Panics
///
/// If over four thousand million clients are there at a time.
pub fn simulate(
    scenario: &Scenario,
    watch: &mut dyn FnMut(u64),
) -> Result<RunOutcome, OptionError> {
    let (queue, servers) = (scenario.queue.clone(), scenario.servers);
    Ok(match &scenario.place {
        Place::Queue { is_blind } => {
            let site = QueueSite::new(queue, servers, *is_blind)?;
            Run::new(scenario, site).go(watch)
        }
        Place::Pool { start } => {
            let site = PoolSite::new(queue, servers, *start)?;
            Run::new(scenario, site).go(watch)
        }
        Place::Broker => {
            let site = BrokerSite::new(queue, servers)?;
            Run::new(scenario, site).go(watch)
        }
        Place::Regulator { valve } => {
            let site = RegulatorSite::new(queue, valve.clone())?;
            Run::new(scenario, site).go(watch)
        }
    })
}

/// What happens next. At one instant, members are there first and holds end last.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Event {
    Started { slot: u32, id: MemberId },
    Again { client: u32, request: u64 },
    Ended { hold: u32, since: u64, work: u64 },
}

/// What comes next: one of the events, a request, a client that hangs up, or a deadline.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Next {
    Deadline,
    Request,
    Event,
    HangUp,
    Ended,
}

/// A client that waits, or means to come again.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    /// Which request it has; [`NONE`] if there is no client in this slot.
    request: u64,
    first: u64,
    refused: u32,
    ticket: Option<Ticket>,
}

const NONE: u64 = u64::MAX;
/// The requests that are served already when a busy place begins.
const BEFORE: u32 = u32::MAX;
/// `watch` is told each time that this many more have come.
const WATCH_EVERY: u64 = 1 << 14;
/// A place that is due so often in a row without any effect stands still.
const IDLE_ADVANCES_MAX: u32 = 100_000;

struct Run<'a, S> {
    scenario: &'a Scenario,
    site: S,
    arrivals: ArrivalTimes,
    /// When the next request comes.
    next: Option<u64>,
    service: ServiceTimes,
    chance: Chance,
    clients: Vec<Waiting>,
    free: Vec<u32>,
    events: BinaryHeap<Reverse<(u64, Event)>>,
    /// When clients hang up: slot and request. All are equally patient, so these are in order.
    leaves: VecDeque<(u64, u32, u64)>,
    told: Vec<Told>,
    now: u64,
    running: u32,
    /// What the servers have done and will do of what they began.
    work: u128,
    idle_advances: u32,
    outcome: RunOutcome,
}

impl<'a, S: Site> Run<'a, S> {
    fn new(scenario: &'a Scenario, site: S) -> Self {
        let seed = scenario.seed;
        let (first, second) = (
            seed.wrapping_mul(0x517c_c1b7).wrapping_add(1),
            seed.wrapping_mul(0x2545_f491).wrapping_add(7),
        );
        let mut arrivals = ArrivalTimes::new(scenario.arrivals.clone(), scenario.load, first);
        let wanted = !matches!(scenario.end, RunEnd::Requests(0));
        Self {
            scenario,
            site,
            next: arrivals.next().filter(|_| wanted),
            arrivals,
            service: ServiceTimes::new(scenario.service.clone(), second),
            chance: Chance::new(seed),
            clients: Vec::new(),
            free: Vec::new(),
            events: BinaryHeap::new(),
            leaves: VecDeque::new(),
            told: Vec::new(),
            now: 0,
            running: 0,
            work: 0,
            idle_advances: 0,
            outcome: RunOutcome::default(),
        }
    }

    fn go(mut self, watch: &mut dyn FnMut(u64)) -> RunOutcome {
        if self.scenario.is_busy {
            for _ in 0..self.scenario.servers {
                let terms = AskOptions::new(Instant::START);
                self.site
                    .ask(BEFORE, &terms, Instant::START, &mut self.told);
            }
            self.hear();
        }
        let until = match self.scenario.end {
            RunEnd::Requests(_) => u64::MAX,
            RunEnd::At(until) => nanos(until),
        };
        while let Some((at, next)) = self.what_next() {
            if at > until {
                self.now = until;
                break;
            }
            self.now = at;
            self.step(next);
            if next == Next::Request && self.outcome.requests.is_multiple_of(WATCH_EVERY) {
                watch(self.outcome.requests);
            }
            if at >= until {
                break;
            }
        }
        self.finish()
    }

    /// The earliest that is to come. At one instant deadlines come first, then requests, and
    /// ends of holds last: a request that comes then finds the server busy.
    fn what_next(&mut self) -> Option<(u64, Next)> {
        while let Some((_, client, request)) = self.leaves.front()
            && self.clients[*client as usize].request != *request
        {
            self.leaves.pop_front();
        }
        let event = self.events.peek().map(|Reverse((at, event))| {
            let is_end = matches!(event, Event::Ended { .. });
            (*at, if is_end { Next::Ended } else { Next::Event })
        });
        let request = self.next.map(|at| (at, Next::Request));
        let leave = self.leaves.front().map(|(at, ..)| (*at, Next::HangUp));
        let first = [event, request, leave].into_iter().flatten().min();
        if first.is_none() && (self.site.waiting() == 0 || self.stands_still()) {
            return None;
        }
        // A machine may have been due before it was told anything.
        let due = self.site.deadline().map(|due| due.as_nanos().max(self.now));
        let due = due.map(|at| (at, Next::Deadline));
        [first, due].into_iter().flatten().min()
    }

    const fn stands_still(&self) -> bool {
        self.idle_advances >= IDLE_ADVANCES_MAX
    }

    fn step(&mut self, next: Next) {
        let now = Instant::from_nanos(self.now);
        match next {
            Next::Deadline => {
                self.site.advance(now, &mut self.told);
                let is_idle = self.told.is_empty();
                self.idle_advances = if is_idle { self.idle_advances + 1 } else { 0 };
                self.hear();
            }
            Next::Request => self.come(),
            Next::HangUp => {
                if let Some((_, client, _)) = self.leaves.pop_front() {
                    self.hang_up(client);
                }
            }
            Next::Event | Next::Ended => {
                let Some(Reverse((_, event))) = self.events.pop() else {
                    return;
                };
                match event {
                    Event::Started { slot, id } => {
                        self.site.started(slot, id, now, &mut self.told);
                        self.hear();
                    }
                    Event::Again { client, request } => {
                        if self.clients[client as usize].request == request {
                            self.ask(client);
                        }
                    }
                    Event::Ended { hold, since, .. } => {
                        self.running -= 1;
                        let held = self.now - since;
                        self.site.end(hold, held, now, &mut self.told);
                        self.hear();
                    }
                }
            }
        }
        self.outcome.waiting_max = self.outcome.waiting_max.max(self.site.waiting());
    }

    /// A request comes.
    fn come(&mut self) {
        let request = self.outcome.requests;
        self.outcome.requests += 1;
        let wanted = match self.scenario.end {
            RunEnd::Requests(most) => self.outcome.requests < most,
            RunEnd::At(_) => true,
        };
        self.next = if wanted { self.arrivals.next() } else { None };
        let waiting = Waiting {
            request,
            first: self.now,
            refused: 0,
            ticket: None,
        };
        let client = match self.free.pop() {
            Some(client) => client,
            None => {
                self.clients.push(waiting);
                let client = u32::try_from(self.clients.len() - 1).ok();
                let client = client.filter(|client| *client != BEFORE);
                client.expect("clients are numbered by 32 bits")
            }
        };
        self.clients[client as usize] = waiting;
        if let Patience::HangsUp(patience) = self.scenario.patience {
            let at = self.now.saturating_add(nanos(patience));
            self.leaves.push_back((at, client, request));
        }
        self.ask(client);
    }

    fn ask(&mut self, client: u32) {
        self.outcome.asks += 1;
        let now = Instant::from_nanos(self.now);
        let mut terms = AskOptions::new(now);
        match self.scenario.patience {
            Patience::Named(wait) => {
                terms.promised = true;
                terms.deadline = Some(now + wait);
            }
            Patience::Limit(wait) => terms.deadline = Some(now + wait),
            Patience::Endless | Patience::HangsUp(_) | Patience::Silent(_) => (),
        }
        let flows = u64::from(self.scenario.flows.max(1));
        terms.flow = Flow(self.clients[client as usize].request % flows);
        let ticket = self.site.ask(client, &terms, now, &mut self.told);
        self.clients[client as usize].ticket = ticket;
        self.hear();
    }

    fn hang_up(&mut self, client: u32) {
        let now = Instant::from_nanos(self.now);
        if let Some(ticket) = self.clients[client as usize].ticket {
            self.site.leave(ticket, now, &mut self.told);
        }
        self.outcome.left += 1;
        self.forget(client);
        self.hear();
    }

    fn forget(&mut self, client: u32) {
        self.clients[client as usize].request = NONE;
        self.free.push(client);
    }

    /// Carry out what the place decided.
    fn hear(&mut self) {
        let mut told = std::mem::take(&mut self.told);
        for one in told.drain(..) {
            match one {
                Told::Granted { client, hold } => self.grant(client, hold),
                Told::Refused {
                    client,
                    refusal,
                    len,
                } => self.refuse(client, refusal, len),
                Told::Starts { slot, id } => {
                    let Place::Pool { start } = self.scenario.place else {
                        continue;
                    };
                    let at = self.now.saturating_add(nanos(start));
                    self.events.push(Reverse((at, Event::Started { slot, id })));
                }
            }
        }
        self.told = told;
    }

    fn grant(&mut self, client: u32, hold: u32) {
        self.running += 1;
        let request = match client {
            BEFORE => 0,
            _ => self.clients[client as usize].request,
        };
        let work = self.service.next_of(request);
        let mut span = work;
        let servers = self.scenario.servers.max(1);
        if matches!(self.scenario.place, Place::Regulator { .. }) && self.running > servers {
            // They share the servers.
            let times = f64::from(self.running) / f64::from(servers);
            span = (work as f64 * times) as u64;
        }
        let end = match self.scenario.stalls {
            Some(stalls) => stalls.end_of(self.now, span),
            None => self.now + span,
        };
        self.work += u128::from(work);
        let since = self.now;
        let ended = Event::Ended { hold, since, work };
        self.events.push(Reverse((end, ended)));
        if client != BEFORE {
            self.count_grant(client);
            self.forget(client);
        }
    }

    fn count_grant(&mut self, client: u32) {
        let waited = self.now - self.clients[client as usize].first;
        self.outcome.granted += 1;
        if self.now >= nanos(self.scenario.from) {
            self.outcome.waits.record(waited);
        }
        if self.scenario.keeps_serves {
            self.outcome.serves.push((self.now, waited));
        }
        let useful = self.scenario.useful.map_or(u64::MAX, nanos);
        let within = match self.scenario.patience {
            Patience::Named(wait) => nanos(wait),
            Patience::HangsUp(wait) | Patience::Silent(wait) => useful.min(nanos(wait)),
            Patience::Limit(_) | Patience::Endless => useful,
        };
        self.outcome.useful += u64::from(waited <= within);
    }

    fn refuse(&mut self, client: u32, refusal: Refusal, len: Option<usize>) {
        let reason = refusal.reason;
        if client == BEFORE {
            return;
        }
        self.outcome.refusals[reason.index()] += 1;
        let is_law = !matches!(reason, Reason::Full | Reason::Deadline | Reason::Hopeless);
        if let Some(len) = len.filter(|_| is_law) {
            let least = self.outcome.shed_at_least.unwrap_or(usize::MAX);
            self.outcome.shed_at_least = Some(least.min(len));
        }
        let is_named = matches!(self.scenario.patience, Patience::Named(_));
        let is_kept = !is_law && (reason != Reason::Hopeless || refusal.waited.is_zero());
        self.outcome.promises_broken += u64::from(is_named && !is_kept);
        if let Some(at) = self.comes_again(client, refusal.retry_after) {
            let waiting = &mut self.clients[client as usize];
            waiting.refused += 1;
            waiting.ticket = None;
            let request = waiting.request;
            let again = Event::Again { client, request };
            self.events.push(Reverse((at, again)));
            return;
        }
        self.outcome.shed[reason.index()] += 1;
        self.forget(client);
    }

    /// When a refused client comes again, if it does: not if that is of no use any more.
    fn comes_again(&mut self, client: u32, retry_after: Duration) -> Option<u64> {
        let Waiting { first, refused, .. } = self.clients[client as usize];
        let (times, after) = match self.scenario.retries {
            Retries::None => return None,
            Retries::AsTold { times } => {
                let after = nanos(retry_after);
                (times, after + self.chance.below(after / 10 + 1))
            }
            Retries::After { times, span } => {
                let span = nanos(span).max(2);
                (times, span / 2 + self.chance.below(span))
            }
        };
        let within = match self.scenario.patience {
            Patience::Silent(wait) | Patience::HangsUp(wait) => nanos(wait),
            Patience::Named(_) | Patience::Limit(_) | Patience::Endless => u64::MAX,
        };
        let within = within.min(self.scenario.useful.map_or(u64::MAX, nanos));
        let at = self.now.saturating_add(after.max(1));
        (refused < times && at < first.saturating_add(within)).then_some(at)
    }

    fn finish(mut self) -> RunOutcome {
        // What was begun and not done is no work of this run.
        for Reverse((end, event)) in self.events {
            if let Event::Ended { since, work, .. } = event {
                let left = end.saturating_sub(self.now) as f64 / (end - since) as f64;
                let undone = (work as f64 * left) as u128;
                self.work = self.work.saturating_sub(undone);
            }
        }
        let mut outcome = self.outcome;
        let ended = outcome.granted + outcome.shed_total() + outcome.left;
        outcome.waiting = outcome.requests - ended;
        outcome.span = Duration::from_nanos(self.now);
        let capacity = self.now as f64 * f64::from(self.scenario.servers.max(1));
        if capacity > 0.0 {
            outcome.utilisation = (self.work as f64 / capacity).min(1.0);
        }
        outcome
    }
}

fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}
