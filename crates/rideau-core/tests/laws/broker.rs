//! The broker against a slow model that knows every waiting ask and offer.
//!
//! After every input: never do both sides wait, each ask or offer has at most
//! one end, every answer comes out once, and all numbers are those of the
//! model.

mod foresight;
mod gauge;
mod model;
mod scripts;

use std::cell::Cell;
use std::rc::Rc;

use proptest::prelude::*;
use rideau_core::broker::{Broker, Effect, Gone, Options};
use rideau_core::queue::AskOptions;
use rideau_core::{Instant, Machine, Reason, Refusal, Side, Tag, Ticket, meter};

use foresight::Foresight;
use gauge::{Gauge, View};
use model::{Model, Told, Visitor, Waiter, at, other};
use scripts::{Input, Script, Visit, any_queue, options, plain_queue, script, wrong};

proptest! {
    #![proptest_config(crate::cases(5_000))]

    #[test]
    fn every_waiter_has_one_end_under_every_law(script in script(any_queue())) {
        Play::run(script);
    }

    #[test]
    fn queues_without_a_law_or_with_a_timeout_are_foreseen(script in script(plain_queue())) {
        Play::run(script);
    }

    #[test]
    fn a_broker_starts_empty_or_not_at_all(
        good in options(any_queue()), part in 0_usize..6,
    ) {
        let mut effects = Vec::new();
        let bad = wrong(good.clone(), part);
        let refused = Broker::<Visitor, Visitor>::new(bad, START, &mut effects);
        prop_assert!(refused.is_err());
        prop_assert!(effects.is_empty());

        let broker = Broker::<Visitor, Visitor>::new(good.clone(), START, &mut effects).unwrap();
        prop_assert!(broker.is_empty());
        prop_assert_eq!(broker.stats(START).active, Side::Offer);
        prop_assert_eq!(broker.deadline(), (!good.meters.is_empty()).then_some(START));
        let read_after = good.read_after.max(1);
        prop_assert_eq!(broker.options(), Options { read_after, ..good });
    }
}

const START: Instant = Instant::from_nanos(5_000_000_000);

/// A script on its way through a broker and the model.
struct Play {
    broker: Broker<Visitor, Visitor>,
    model: Model,
    gauge: Gauge,
    /// The tickets of all asks and offers so far, and their sides.
    tickets: Vec<(Side, Ticket)>,
    replies: Rc<()>,
    now: Instant,
}

impl Play {
    fn run(script: Script) {
        let mut effects = Vec::new();
        let broker = Broker::new(script.options.clone(), START, &mut effects).unwrap();
        let mut gauge = Gauge::new(START);
        let said = gauge.change(&script.options, START);
        assert_eq!(
            effects,
            said.into_iter().map(Effect::Meter).collect::<Vec<_>>()
        );
        let mut play = Self {
            broker,
            model: Model::new(&script.options, START),
            gauge,
            tickets: Vec::new(),
            replies: Rc::new(()),
            now: START,
        };
        for (step, input) in script.inputs {
            play.now = step.from(play.now, play.broker.deadline());
            play.model.now = play.now;
            play.act(input);
        }
        play.close();
        assert_eq!(Rc::strong_count(&play.replies), 1);
        assert_eq!(play.broker.deadline(), None);
    }

    fn act(&mut self, input: Input) {
        match input {
            Input::Come(visit) => self.come(visit),
            Input::Cancel { waits, pick } => self.cancel(waits, pick),
            Input::CancelTag(tag) => self.cancel_tag(tag),
            Input::Die(pick) => {
                let waiting = &self.model.halves[at(self.model.active)].waiting;
                if !waiting.is_empty() {
                    waiting[pick % waiting.len()].gone.set(true);
                }
            }
            Input::Advance => {
                let foreseen = self.foresight().map(Foresight::advance);
                let mut effects = Vec::new();
                self.broker.advance(self.now, &mut effects);
                let is_due = self.broker.deadline().is_some_and(|due| due <= self.now);
                assert!(!is_due || !effects.is_empty(), "a driver would never rest");
                self.finish(effects, None, foreseen, true);
            }
            Input::Change(options) => self.change(options),
            Input::WrongChange(options) => self.try_change(options),
            Input::Close => self.close(),
        }
    }

    fn come(&mut self, visit: Visit) {
        let id = self.tickets.len();
        let gone = Rc::new(Cell::new(false));
        let mut newcomer = Waiter {
            id,
            ticket: None,
            sent: Instant::from_nanos(self.now.as_nanos().saturating_sub(visit.age)),
            deadline: visit.patience.map(|patience| self.now.after(patience)),
            flow: visit.flow,
            tag: visit.tag,
            wait: visit.wait,
            gone: Rc::clone(&gone),
        };
        let closed = self.model.closed;
        let foreseen = self.foresight();
        let foreseen = foreseen.map(|fore| fore.come(visit.side, newcomer.clone(), closed));

        let terms = AskOptions {
            sent: newcomer.sent,
            deadline: newcomer.deadline,
            flow: visit.flow,
            tag: visit.tag,
            wait: visit.wait,
            promised: newcomer.deadline.is_some(),
        };
        let visitor = Visitor {
            id,
            gone,
            _replies: Rc::clone(&self.replies),
        };
        let mut effects = Vec::new();
        let came = match visit.side {
            Side::Ask => self.broker.ask(&terms, visitor, self.now, &mut effects),
            Side::Offer => self.broker.offer(&terms, visitor, self.now, &mut effects),
        };
        let ticket = came.into_effect(&mut effects);
        newcomer.ticket = Some(ticket);
        self.tickets.push((visit.side, ticket));
        self.model.come(visit.side, newcomer);
        let is_match = |effect: &Effect<_, _>| matches!(effect, Effect::Match { .. });
        if self.model.active != visit.side && !effects.iter().any(is_match) {
            (self.model.active, self.gauge.empty) = (visit.side, terms.sent);
        }
        self.finish(effects, Some((id, terms.sent)), foreseen, false);
    }

    fn cancel(&mut self, waits: bool, pick: usize) {
        let waiting = &self.model.halves[at(self.model.active)].waiting;
        let (ticket, id) = if waits && !waiting.is_empty() {
            let waiter = &waiting[pick % waiting.len()];
            (waiter.ticket.unwrap(), Some(waiter.id))
        } else if self.tickets.is_empty() {
            return;
        } else {
            let (_, ticket) = self.tickets[pick % self.tickets.len()];
            let mut waiting = waiting.iter();
            let waiter = waiting.find(|waiter| waiter.ticket == Some(ticket));
            (ticket, waiter.map(|waiter| waiter.id))
        };
        self.cancel_ticket(ticket, id);
        if id.is_some() {
            self.cancel_ticket(ticket, None);
        }
    }

    fn cancel_ticket(&mut self, ticket: Ticket, id: Option<usize>) {
        let ids: Vec<_> = id.into_iter().collect();
        let foreseen = self.foresight().map(|fore| fore.cancel(&ids));
        let mut effects = Vec::new();
        let gone = self.broker.cancel(ticket, self.now, &mut effects);
        self.withdraw(&ids, gone.into_iter().collect());
        self.finish(effects, None, foreseen, false);
    }

    fn cancel_tag(&mut self, tag: Tag) {
        let waiting = &self.model.halves[at(self.model.active)].waiting;
        let tagged = waiting.iter().filter(|waiter| waiter.tag == Some(tag));
        let mut ids: Vec<_> = tagged.map(|waiter| waiter.id).collect();
        ids.sort_unstable();
        ids.reverse();
        let foreseen = self.foresight().map(|fore| fore.cancel(&ids));
        let mut effects = Vec::new();
        let gone = self.broker.cancel_tag(tag, self.now, &mut effects);
        self.withdraw(&ids, gone);
        self.finish(effects, None, foreseen, false);
    }

    /// Exactly these have withdrawn, and their answers came back.
    fn withdraw(&mut self, ids: &[usize], gone: Vec<(Gone<Visitor, Visitor>, Refusal)>) {
        assert_eq!(gone.len(), ids.len());
        for (id, (gone, refusal)) in ids.iter().zip(gone) {
            assert_eq!(refusal.reason, Reason::Cancelled);
            let (side, visitor) = match gone {
                Gone::Ask(ask) => (Side::Ask, ask),
                Gone::Offer(offer) => (Side::Offer, offer),
            };
            assert_eq!(visitor.id, *id);
            assert_eq!(self.model.cancel(*id).0, side);
        }
    }

    fn change(&mut self, options: Options) {
        let reshaped = [&self.model.halves[0], &self.model.halves[1]]
            .iter()
            .any(|half| half.options.fair.is_some());
        self.model.change(&options);
        let foreseen = self.foresight().filter(|_| !reshaped);
        let foreseen = foreseen.map(|fore| fore.change(&options));
        let mut effects = Vec::new();
        let given = options.clone();
        self.broker
            .reconfigure(given, self.now, &mut effects)
            .unwrap();
        let mut said = self.gauge.change(&options, self.now);
        if self.model.closed {
            said.extend(self.gauge.close());
        }
        take_said(said, &mut effects);
        let read_after = options.read_after.max(1);
        assert_eq!(
            self.broker.options(),
            Options {
                read_after,
                ..options
            }
        );
        self.finish(effects, None, foreseen, false);
    }

    /// A change that breaks a rule leaves everything as it was.
    fn try_change(&mut self, options: Options) {
        let look = |broker: &Broker<Visitor, Visitor>, now| {
            let stats = format!("{:?}", broker.stats(now));
            (broker.options(), broker.deadline(), stats)
        };
        let before = look(&self.broker, self.now);
        let mut effects = Vec::new();
        let changed = self.broker.reconfigure(options, self.now, &mut effects);
        assert!(changed.is_err());
        assert_eq!(effects.len(), 0);
        assert_eq!(look(&self.broker, self.now), before);
    }

    fn close(&mut self) {
        let foreseen = self.foresight().map(Foresight::close);
        self.model.closed = true;
        let mut effects = Vec::new();
        self.broker.close(self.now, &mut effects);
        take_said(self.gauge.close(), &mut effects);
        self.finish(effects, None, foreseen, false);
    }

    fn foresight(&self) -> Option<Foresight> {
        let [asks, offers] = &self.model.halves;
        Foresight::new(
            [asks.waiting.clone(), offers.waiting.clone()],
            [asks.options.clone(), offers.options.clone()],
            self.model.active,
            self.now,
        )
    }

    /// What is checked after every input.
    fn finish(
        &mut self,
        effects: Vec<Effect<Visitor, Visitor>>,
        newcomer: Option<(usize, Instant)>,
        foreseen: Option<Foresight>,
        at_once: bool,
    ) {
        let (mut told, mut said) = (Vec::new(), Vec::new());
        self.model.expect(&effects);
        for effect in effects {
            match effect {
                Effect::Meter(effect) => said.push(effect),
                effect => told.push(self.model.hear(effect, newcomer.map(|(id, _)| id))),
            }
        }
        let stats = self.broker.stats(self.now);
        self.model.check(&stats);
        let waiting = &self.model.halves[at(self.model.active)].waiting;
        let waited = u64::try_from(stats.oldest_waited.as_nanos()).unwrap();
        let oldest = Instant::from_nanos(self.now.as_nanos() - waited);
        let view = View {
            active: self.model.active,
            oldest: (!waiting.is_empty()).then_some(oldest),
            sent: newcomer.map_or(self.now, |(_, sent)| sent),
            now: self.now,
        };
        self.gauge.check(view, at_once, said);
        self.check_deadline(foreseen, told);
        self.check_tickets();
        assert_eq!(Rc::strong_count(&self.replies), 1 + self.waiting_len());
    }

    /// The broker wakes up for each ask or offer that has to be shed or told,
    /// and says what was foreseen.
    fn check_deadline(&self, foreseen: Option<Foresight>, told: Vec<Told>) {
        let deadline = self.broker.deadline();
        let (meters, exact) = self.gauge.deadline();
        assert!(meters.is_none_or(|due| deadline.is_some_and(|deadline| deadline <= due)));
        let waiting = &self.model.halves[at(self.model.active)].waiting;
        for due in waiting.iter().filter_map(|waiter| waiter.deadline) {
            assert!(deadline.is_some_and(|deadline| deadline <= due));
        }
        if let Some(foreseen) = foreseen {
            let (foreseen, queue) = foreseen.end();
            assert_eq!(in_order(told), in_order(foreseen));
            if exact {
                assert_eq!(deadline, queue.into_iter().chain(meters).min());
            }
        }
    }

    /// Exactly the waiting asks and offers can be reached by their tickets.
    fn check_tickets(&mut self) {
        let Self {
            broker,
            model,
            tickets,
            ..
        } = self;
        let mut found = Vec::new();
        for (id, (side, ticket)) in tickets.iter().enumerate() {
            let reply = match side {
                Side::Ask => broker.ask_mut(*ticket),
                Side::Offer => broker.offer_mut(*ticket),
            };
            if let Some(visitor) = reply {
                assert_eq!(visitor.id, id);
                found.push(id);
            }
            let wrong_side = match other(*side) {
                Side::Ask => broker.ask_mut(*ticket),
                Side::Offer => broker.offer_mut(*ticket),
            };
            assert!(wrong_side.is_none());
        }
        let [asks, offers] = &model.halves;
        let waiting = asks.waiting.iter().chain(&offers.waiting);
        let mut waiting: Vec<_> = waiting.map(|waiter| waiter.id).collect();
        waiting.sort_unstable();
        assert_eq!(found, waiting);
    }

    fn waiting_len(&self) -> usize {
        self.model
            .halves
            .iter()
            .map(|half| half.waiting.len())
            .sum()
    }
}

/// Meters that start or end say so before they are read again.
fn take_said(said: Vec<meter::Effect>, effects: &mut Vec<Effect<Visitor, Visitor>>) {
    for said in said {
        let said = Effect::Meter(said);
        let at = effects.iter().position(|effect| *effect == said);
        effects.remove(at.unwrap_or_else(|| panic!("{said:?} was not said")));
    }
}

/// Those whose own deadline came together have no order.
fn in_order(told: Vec<Told>) -> (Vec<Told>, Vec<Told>) {
    let own = |told: &Told| {
        matches!(
            told,
            Told::Shed {
                reason: Reason::Deadline,
                ..
            }
        )
    };
    let (mut own, others): (Vec<_>, Vec<_>) = told.into_iter().partition(own);
    own.sort_by_key(|told| match told {
        Told::Shed { id, .. } | Told::Forget(id) | Told::Match { ask: id, .. } => *id,
    });
    (own, others)
}
