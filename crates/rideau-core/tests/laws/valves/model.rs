//! Valves as slow as they are plain: what is remembered is what happened, and
//! every answer is worked out from it.

use std::time::Duration;

use rideau_core::valve::{Breaker, Circuit, CoDel, Gradient, Options, Rate};
use rideau_core::{Instant, Lead};

use super::parts;

pub(crate) struct Model {
    parts: Vec<Part>,
    leases: Vec<Instant>,
}

impl Model {
    pub(crate) fn new(options: &Options, size: usize, now: Instant) -> Self {
        let leases = vec![now; size];
        let part = |options| Part::new(options, &leases, now);
        let parts = parts(options).iter().map(part).collect();
        Self { parts, leases }
    }

    pub(crate) fn is_open(&self, now: Instant) -> bool {
        let size = self.leases.len();
        self.parts.iter().all(|part| part.is_open(size, now))
    }

    pub(crate) fn open_time(&self) -> Option<Instant> {
        let size = self.leases.len();
        let open_times: Vec<_> = self.parts.iter().map(|part| part.open_time(size)).collect();
        let all: Option<Vec<_>> = open_times.into_iter().collect();
        all?.into_iter().max()
    }

    /// The opening to wait for, if time alone brings it and is watched.
    pub(crate) fn closed_until(&self, now: Instant) -> Option<Instant> {
        let size = self.leases.len();
        let open_time = self.open_time().filter(|open_time| *open_time > now)?;
        let mut last = self.parts.iter();
        let is_timed = |part: &Part| matches!(part.options.kind(), "rate" | "breaker");
        last.any(|part| is_timed(part) && part.open_time(size) == Some(open_time))
            .then_some(open_time)
    }

    pub(crate) fn circuits(&self) -> Vec<Option<Circuit>> {
        self.parts
            .iter()
            .map(|part| part.state.circuit(&part.options))
            .collect()
    }

    pub(crate) fn ask(&mut self, now: Instant) -> Instant {
        let size = self.leases.len();
        self.leases.push(now);
        let asks = self.parts.iter_mut().map(|part| part.ask(size, now));
        asks.collect::<Vec<_>>().into_iter().max().unwrap()
    }

    pub(crate) fn renew(&mut self, which: usize, now: Instant) -> Option<Instant> {
        let size = self.leases.len();
        if self.parts.iter().any(|part| !part.renews(size, now)) {
            self.leases.remove(which);
            for part in &mut self.parts {
                part.leave(which, size, None, now);
            }
            return None;
        }
        let renewals = self.parts.iter_mut().map(|part| part.renew(size, now));
        renewals.collect::<Vec<_>>().into_iter().max()
    }

    pub(crate) fn release(&mut self, which: usize, held: Duration, ok: bool, now: Instant) {
        let size = self.leases.len();
        self.leases.remove(which);
        for part in &mut self.parts {
            part.leave(which, size, Some((held, ok)), now);
        }
    }

    pub(crate) fn update(&mut self, lead: Lead, now: Instant) {
        for part in &mut self.parts {
            part.update(lead, now);
        }
    }

    pub(crate) fn reconfigure(&mut self, options: &Options, now: Instant) {
        let old: Vec<_> = self.parts.drain(..).collect();
        let mut old = old.into_iter();
        for options in parts(options) {
            let part = match old.next() {
                Some(part) if part.options.kind() == options.kind() => {
                    part.reconfigured(options, &self.leases, now)
                }
                _ => Part::new(options, &self.leases, now),
            };
            self.parts.push(part);
        }
    }
}

struct Part {
    options: Options,
    small: Instant,
    state: State,
}

enum State {
    Open,
    /// Leads and `None` for each time one was used.
    Relative(Vec<Option<(Lead, Instant)>>),
    CoDel {
        count: i128,
        open_next: i128,
        first: First,
    },
    Rate {
        opens: Vec<u64>,
        overflow: usize,
    },
    Breaker(Rounds),
    /// Leases measured, and limits imposed by options.
    Gradient(Vec<Event>),
}

#[derive(Clone, Copy)]
enum First {
    None,
    At(i128),
    Await,
    Opening,
}

enum Event {
    Limit(Gradient),
    Sample { held: f64, size: f64 },
}

/// The round in which each lease was granted, and what the current one knows.
struct Rounds {
    round: usize,
    leases: Vec<(usize, Instant)>,
    /// None while the circuit is closed.
    trip: Option<Trip>,
    endings: Vec<bool>,
}

struct Trip {
    until: u64,
    pause: u64,
    probes: Vec<u64>,
    passed: u32,
}

impl Part {
    fn new(options: &Options, leases: &[Instant], now: Instant) -> Self {
        let t = now.as_nanos();
        let state = match options {
            Options::Open(_) => State::Open,
            Options::Relative(_) => State::Relative(vec![]),
            Options::CoDel(_) => State::CoDel {
                count: 0,
                open_next: t.into(),
                first: First::None,
            },
            Options::Rate(rate) => {
                let mut opens = vec![];
                let overflow = fit(rate, &mut opens, leases.len(), t);
                State::Rate { opens, overflow }
            }
            Options::Breaker(_) => State::Breaker(Rounds {
                round: 0,
                leases: leases.iter().map(|since| (0, *since)).collect(),
                trip: None,
                endings: vec![],
            }),
            Options::Gradient(gradient) => State::Gradient(vec![Event::Limit(*gradient)]),
            Options::LeastOf(_) | Options::Custom(_) => unreachable!("it has no model"),
        };
        Self {
            options: options.clone(),
            small: now,
            state,
        }
    }

    fn reconfigured(mut self, options: &Options, leases: &[Instant], now: Instant) -> Self {
        let t = now.as_nanos();
        let (min_before, size) = (self.bounds().0, leases.len());
        match (&mut self.state, &self.options, options) {
            (
                State::CoDel {
                    open_next, first, ..
                },
                _,
                Options::CoDel(new),
            ) => {
                let latest = i128::from(t) + new.interval.as_nanos() as i128;
                *open_next = latest.min(*open_next);
                if let First::At(x) = first {
                    *x = latest.min(*x);
                }
            }
            (State::Rate { opens, overflow }, Options::Rate(old), Options::Rate(new)) => {
                for open in opens.iter_mut() {
                    *open = *open - nanos(old.interval) + nanos(new.interval);
                }
                *overflow = fit(new, opens, leases.len(), t);
            }
            (State::Breaker(rounds), _, Options::Breaker(new)) => {
                let longest = nanos(new.pause_max);
                if let Some(trip) = &mut rounds.trip {
                    trip.pause = trip.pause.min(longest);
                    trip.until = trip.until.min(t + longest);
                    if !trip.probes.is_empty() {
                        (trip.until, trip.passed, trip.probes) = (t, 0, vec![]);
                        rounds.begin(now);
                    }
                }
            }
            (State::Gradient(events), _, Options::Gradient(new)) => {
                events.push(Event::Limit(*new));
            }
            _ => (),
        }
        self.options = options.clone();
        if (min_before..self.bounds().0).contains(&size) {
            self.small = now;
        }
        self
    }

    /// Where the valve is open, and where it is closed.
    fn bounds(&self) -> (usize, usize) {
        match (&self.options, &self.state) {
            (Options::Open(open), _) => (open.max, open.max),
            (Options::Relative(relative), _) => (relative.min, relative.max),
            (Options::CoDel(codel), _) => (codel.min, codel.max),
            (Options::Rate(rate), _) => (rate.min, rate.max),
            (Options::Breaker(breaker), State::Breaker(rounds)) if rounds.trip.is_some() => {
                (0, breaker.max)
            }
            (Options::Breaker(breaker), _) => (breaker.max, breaker.max),
            (_, State::Gradient(events)) => (limit(events), limit(events)),
            _ => unreachable!("the state is of the options' kind"),
        }
    }

    fn is_open(&self, size: usize, now: Instant) -> bool {
        let (min, max) = self.bounds();
        size < min || size < max && self.extra(now)
    }

    fn open_time(&self, size: usize) -> Option<Instant> {
        let (min, max) = self.bounds();
        match self.extra_time() {
            _ if size >= max => None,
            Some(open_next) if size < min && matches!(self.state, State::Rate { .. }) => {
                Some(self.small.min(open_next))
            }
            _ if size < min => Some(self.small),
            extra => extra,
        }
    }

    fn extra(&self, now: Instant) -> bool {
        self.extra_time().is_some_and(|open_time| open_time <= now)
    }

    fn extra_time(&self) -> Option<Instant> {
        let nanos = match (&self.state, &self.options) {
            (State::Relative(leads), Options::Relative(relative)) => {
                let (lead, updated) = (*leads.last()?)?;
                (lead < relative.target).then_some(updated.as_nanos())
            }
            (
                State::CoDel {
                    open_next, first, ..
                },
                _,
            ) => match first {
                First::None | First::Await => None,
                First::At(x) => Some(u64::try_from(*x).unwrap()),
                First::Opening => Some(u64::try_from(*open_next).unwrap()),
            },
            (State::Rate { opens, .. }, _) => opens.first().copied(),
            (State::Breaker(rounds), Options::Breaker(breaker)) => {
                let trip = rounds.trip.as_ref()?;
                if trip.probes.len() < breaker.probes as usize {
                    Some(trip.until)
                } else {
                    Some(trip.probes.last()? + trip.pause)
                }
            }
            _ => None,
        };
        nanos.map(Instant::from_nanos)
    }

    fn ask(&mut self, size: usize, now: Instant) -> Instant {
        let open_time = self.open_time(size).unwrap();
        if size >= self.bounds().0 {
            self.consume(now);
        }
        if let State::Breaker(rounds) = &mut self.state {
            rounds.leases.push((rounds.round, now));
        }
        open_time
    }

    fn renews(&self, size: usize, now: Instant) -> bool {
        let (min, max) = self.bounds();
        let keeps = match &self.state {
            State::Breaker(rounds) => rounds
                .trip
                .as_ref()
                .is_none_or(|trip| !trip.probes.is_empty() || trip.until <= now.as_nanos()),
            _ => self.extra(now),
        };
        size <= min || size <= max && keeps
    }

    fn renew(&mut self, size: usize, now: Instant) -> Instant {
        let min = self.bounds().0;
        if size < min {
            return self.open_time(size).unwrap();
        }
        if size == min || matches!(self.state, State::Breaker(_)) {
            return now;
        }
        let open_time = self.extra_time().unwrap();
        self.consume(now);
        if let (State::Rate { opens, .. }, Options::Rate(rate)) = (&mut self.state, &self.options) {
            opens.push(now.as_nanos() + nanos(rate.interval));
        }
        open_time
    }

    fn consume(&mut self, now: Instant) {
        let t = now.as_nanos();
        match (&mut self.state, &self.options) {
            (State::Relative(leads), _) => leads.push(None),
            (
                State::CoDel {
                    count,
                    open_next,
                    first,
                },
                Options::CoDel(codel),
            ) => {
                consume_codel(codel, count, open_next, first, t.into());
            }
            (State::Rate { opens, .. }, _) => drop(opens.remove(0)),
            (State::Breaker(rounds), Options::Breaker(breaker)) => {
                let trip = rounds.trip.as_mut().unwrap();
                if trip.probes.len() == breaker.probes as usize {
                    trip.until = trip.probes.last().unwrap() + trip.pause;
                    (trip.passed, trip.probes) = (0, vec![]);
                    rounds.round += 1;
                }
                trip.probes.push(t);
            }
            _ => unreachable!("nothing to consume"),
        }
    }

    fn update(&mut self, lead: Lead, now: Instant) {
        match (&mut self.state, &self.options) {
            (State::Relative(leads), _) => leads.push(Some((lead, now))),
            (State::CoDel { first, .. }, Options::CoDel(codel)) => {
                let at = i128::from(now.as_nanos()) + codel.interval.as_nanos() as i128;
                *first = match *first {
                    _ if lead >= codel.target => First::None,
                    First::None => First::At(at),
                    First::Await => First::Opening,
                    other => other,
                };
            }
            _ => (),
        }
    }

    fn leave(&mut self, which: usize, size: usize, ending: Option<(Duration, bool)>, now: Instant) {
        let min_before = self.bounds().0;
        match (&mut self.state, &self.options) {
            (State::Rate { overflow, .. }, Options::Rate(rate))
                if size > rate.min && *overflow > 0 =>
            {
                *overflow -= 1;
            }
            (State::Rate { opens, .. }, Options::Rate(rate)) if size > rate.min => {
                opens.push(now.as_nanos() + nanos(rate.interval));
            }
            (State::Breaker(rounds), Options::Breaker(breaker)) => {
                let (round, _) = rounds.leases.remove(which);
                if let Some((_, ok)) = ending.filter(|_| round == rounds.round) {
                    rounds.learn(breaker, ok, now);
                }
            }
            (State::Gradient(events), _) => {
                if let Some((held, true)) = ending {
                    let (held, size) = (nanos(held).max(1) as f64, size as f64);
                    events.push(Event::Sample { held, size });
                }
            }
            _ => (),
        }
        if size >= min_before && size <= self.bounds().0 {
            self.small = now;
        }
    }
}

impl State {
    fn circuit(&self, options: &Options) -> Option<Circuit> {
        let (Self::Breaker(rounds), Options::Breaker(breaker)) = (self, options) else {
            return None;
        };
        Some(match &rounds.trip {
            None => Circuit::Closed {
                failures: rounds.failures(breaker),
            },
            Some(trip) if trip.probes.is_empty() => Circuit::Tripped {
                until: Instant::from_nanos(trip.until),
            },
            Some(trip) => Circuit::Probing {
                granted: trip.probes.len() as u32,
                passed: trip.passed,
            },
        })
    }
}

impl Rounds {
    /// An ask that got a lease in this very instant is in the new round.
    fn begin(&mut self, now: Instant) {
        self.round += 1;
        for (round, _) in self.leases.iter_mut().filter(|(_, since)| *since == now) {
            *round = self.round;
        }
    }

    /// A lease of this round ended.
    fn learn(&mut self, breaker: &Breaker, ok: bool, now: Instant) {
        let pause = match &mut self.trip {
            None => {
                self.endings.push(ok);
                if ok || self.failures(breaker) < breaker.failures {
                    return;
                }
                nanos(breaker.pause)
            }
            Some(trip) if trip.probes.is_empty() => return,
            Some(trip) if ok => {
                trip.passed += 1;
                if trip.passed == breaker.probes {
                    (self.trip, self.endings) = (None, vec![]);
                    self.begin(now);
                }
                return;
            }
            Some(trip) => nanos(breaker.pause_max).min(2 * trip.pause),
        };
        self.round += 1;
        self.trip = Some(Trip {
            until: now.as_nanos() + pause,
            pause,
            probes: vec![],
            passed: 0,
        });
    }

    fn failures(&self, breaker: &Breaker) -> u32 {
        let last = self.endings.iter().rev().take(breaker.window as usize);
        last.filter(|ok| !**ok).count() as u32
    }
}

fn consume_codel(
    codel: &CoDel,
    count: &mut i128,
    open_next: &mut i128,
    first: &mut First,
    t: i128,
) {
    let interval = codel.interval.as_nanos() as i128;
    let law = |count: i128| (interval as f64 / (count as f64).sqrt()).trunc() as i128;
    if matches!(first, First::Opening) {
        *count += 1;
        *open_next += law(*count);
    } else if *count > 2 && t - *open_next < 8 * interval {
        *count -= 2;
        *open_next = t + law(*count);
    } else {
        *count = 1;
        *open_next = t + interval;
    }
    *first = First::Await;
}

/// Keep the earliest slots, add missing ones; how many are lent too much.
fn fit(rate: &Rate, opens: &mut Vec<u64>, size: usize, t: u64) -> usize {
    let slots = rate.limit as i128 - size.saturating_sub(rate.min) as i128;
    opens.resize(slots.max(0) as usize, t + nanos(rate.interval));
    (-slots).max(0) as usize
}

/// The limit after all that happened.
fn limit(events: &[Event]) -> usize {
    let (mut samples, mut options, mut limit) = (0.0, Gradient::default(), None);
    let (mut short, mut long) = (0.0_f64, 0.0_f64);
    for event in events {
        match event {
            Event::Limit(new) => {
                options = *new;
                let held = limit.unwrap_or(new.initial as f64);
                limit = Some(held.clamp(new.min as f64, new.max as f64));
            }
            Event::Sample { held, size } => {
                samples += 1.0;
                short += (held - short) * f64::max(1.0 / samples, 2.0 / 11.0);
                long += (held - long) * f64::max(1.0 / samples, 2.0 / 601.0);
                if long / short > 2.0 {
                    long *= 0.9;
                }
                let old: f64 = limit.unwrap();
                let tolerance = 1.0 + f64::from(options.tolerance) / 100.0;
                let gradient = (tolerance * long / short).clamp(0.5, 1.0);
                let new = 0.8 * old + 0.2 * (gradient * old + old.sqrt());
                let is_unused = *size < old / 2.0;
                let new = if is_unused { new.min(old) } else { new };
                limit = Some(new.clamp(options.min as f64, options.max as f64));
            }
        }
    }
    limit.unwrap() as usize
}

fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap()
}
