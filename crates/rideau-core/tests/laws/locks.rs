//! What asks that wait for units of a key can rely on.

mod inputs;
mod model;
mod word;

use std::cell::RefCell;
use std::collections::{BTreeMap, HashSet};
use std::rc::Rc;

use proptest::prelude::*;
use proptest::sample::Index;
use rideau_core::locks::{Claim, Count, Effect, Lines};
use rideau_core::queue::{AskOptions, Options};
use rideau_core::{Flow, Instant, Machine, Reply, Tag, Ticket};

use self::inputs::{Input, Steps};
use self::model::{Model, Name, Said};
use self::word::Tap;
use crate::cases;
use crate::hall::{self, Guest, Pause};

proptest! {
    #![proptest_config(cases(3_000))]

    /// Grants, ordinals, fences, sheds and deadlines, in their order and with
    /// their numbers, for stamps in any order.
    #[test]
    fn lines_are_their_model((options, steps) in few_claims(false)) {
        Run::new(&options, 0, 0, false).compare(&options, steps);
    }

    /// The same where the law is controlled delay.
    #[test]
    fn lines_are_their_model_under_controlled_delay((options, steps) in few_claims(true)) {
        Run::new(&options, 0, 0, true).compare(&options, steps);
    }

    /// Holders give back between any two looks of the lines at their count, and
    /// tell it late. Still every ask has one answer, no ask is left waiting
    /// that could go, and the mark is true.
    #[test]
    fn no_wake_up_is_lost_whenever_units_are_given_back(
        (options, steps) in many_claims(),
        closes: bool,
        restless in 0..8_u64,
        seed: u64,
    ) {
        let mut run = Run::new(&options, restless, seed, true);
        let goes_on = |(input, _): &(Input, Pause)| closes || !matches!(input, Input::Close);
        for (input, pause) in steps.into_iter().take_while(goes_on) {
            run.pass(pause);
            run.play_alone(&input);
            run.check();
        }
        run.come_to_rest();
    }
}

/// So few that each keeps its line.
fn few_claims(codel: bool) -> impl Strategy<Value = (Options, Steps)> {
    let options = move || match codel {
        true => hall::single(hall::codel_shedding()).boxed(),
        false => hall::single(hall::simple_shedding()).boxed(),
    };
    let steps = inputs::claims(4)
        .prop_flat_map(move |claims| inputs::history(inputs::one_of(claims), options()));
    (options(), steps)
}

/// Every queue, and more claims than lines are kept for.
fn many_claims() -> impl Strategy<Value = (Options, Steps)> {
    let options = || {
        let shedding = prop_oneof![hall::simple_shedding(), hall::codel_shedding()];
        let fair = prop::option::of(hall::fair());
        (hall::single(shedding), fair).prop_map(|(options, fair)| Options { fair, ..options })
    };
    let steps = inputs::claims(16)
        .prop_flat_map(move |claims| inputs::history(inputs::one_of(claims), options()));
    (options(), steps)
}

/// The lines, their count, the time, and all asks, by number.
struct Run {
    lines: Lines<Tap, Asker>,
    tap: Tap,
    now: u64,
    /// The latest stamp, if stamps never go back.
    sent: Option<u64>,
    tickets: Vec<Ticket>,
    waiting: BTreeMap<Name, (Claim, u64)>,
    answered: HashSet<Name>,
    gone: Rc<RefCell<HashSet<Name>>>,
    fence: u64,
    closed: bool,
}

struct Asker(Name, Rc<RefCell<HashSet<Name>>>);

impl Reply for Asker {
    fn is_gone(&self) -> bool {
        self.1.borrow().contains(&self.0)
    }
}

impl Run {
    fn new(options: &Options, restless: u64, seed: u64, is_ordered: bool) -> Self {
        let tap = Tap::new(restless, seed);
        Self {
            lines: Lines::new(options, tap.clone(), Instant::START).unwrap(),
            tap,
            now: 0,
            sent: is_ordered.then_some(0),
            tickets: Vec::new(),
            waiting: BTreeMap::new(),
            answered: HashSet::new(),
            gone: Rc::default(),
            fence: 0,
            closed: false,
        }
    }

    fn pass(&mut self, pause: Pause) {
        let deadline = self.lines.deadline().map_or(self.now, Instant::as_nanos);
        self.now = match pause {
            Pause::Span(span) => self.now + span,
            Pause::Before(span) => self.now.max(deadline.saturating_sub(span)),
            Pause::After(span) => self.now.max(deadline) + span,
        };
    }

    /// Play the same to the model, and compare.
    fn compare(mut self, options: &Options, steps: Steps) {
        let mut model = Model::new(options, Rc::clone(&self.gone));
        for (input, pause) in steps {
            self.pass(pause);
            let guest = self.guest(&input);
            self.give_back_first(&input);
            model.held = self.tap.word().held;
            self.play_on_model(&mut model, &input, guest);
            let said = self.play(&input, guest);
            assert_eq!(said, model.said(), "{input:?} at {}", self.now);
            assert_eq!(self.lines.len(), model.len());
            assert_eq!(self.tap.word().held, model.held);
            assert_eq!(self.tap.word().marked, model.len() > 0);
            assert_eq!(
                self.lines.deadline().map(Instant::as_nanos),
                model.deadline()
            );
        }
    }

    fn play_alone(&mut self, input: &Input) {
        let guest = self.guest(input);
        let held = self.tap.word().held;
        let alone = self.lines.is_empty() && !self.closed;
        self.give_back_first(input);
        let said = self.play(input, guest);
        if let (Input::Ask { claim, .. }, Some(guest)) = (input, guest)
            && alone
            && claim.fits(held)
            && !self.gone.borrow().contains(&guest.id)
        {
            let [Said::Granted { name, .. }] = said[..] else {
                panic!("{claim:?} fitted and no ask waited, but {said:?}");
            };
            assert_eq!(name, guest.id);
        }
    }

    fn play_on_model(&self, model: &mut Model, input: &Input, guest: Option<Guest>) {
        let now = self.now;
        match input {
            Input::Ask { claim, wait, .. } => model.ask(*claim, *wait, guest.unwrap(), now),
            Input::Take(claim) => model.take(*claim, now),
            Input::Release(_) | Input::Tell => {
                let notes = self.tap.word().notes;
                (0..notes).for_each(|_| model.settle(now));
            }
            Input::Slip(_) | Input::Die(_) => (),
            Input::Cancel(which) => model.cancel(self.name(*which), now),
            Input::CancelTag(tag) => model.cancel_tag(*tag, now),
            Input::Wait => model.settle(now),
            Input::Change(options) => model.change(options, now),
            Input::Close => model.close(now),
        }
    }

    /// What holders do happens to the count and not to the lines.
    fn give_back_first(&mut self, input: &Input) {
        let (Input::Release(which) | Input::Slip(which)) = input else {
            return;
        };
        let mut word = self.tap.word();
        if !word.holders.is_empty() {
            let which = which.index(word.holders.len());
            word.give_back(which);
        }
    }

    fn play(&mut self, input: &Input, guest: Option<Guest>) -> Vec<Said> {
        let now = Instant::from_nanos(self.now);
        let (mut effects, mut said) = (Vec::new(), Vec::new());
        let left = |(reply, _): (Asker, _)| Said::Left(reply.0);
        match input {
            Input::Ask { claim, wait, .. } => {
                self.ask(*claim, *wait, guest.unwrap(), now, &mut effects);
            }
            Input::Take(claim) => {
                let taken = self.lines.take(*claim, now, &mut effects);
                let taken = taken.ok().map(|(grant, ())| grant);
                said = self.say(effects);
                self.tap
                    .word()
                    .holders
                    .extend(taken.map(|grant| grant.units));
                self.see_fence(taken.map(|grant| grant.fence));
                said.push(Said::Took(taken.map(|grant| grant.ordinal)));
                return said;
            }
            Input::Release(_) | Input::Tell => self.tell_notes(now, &mut effects),
            Input::Slip(_) => (),
            Input::Cancel(which) if !self.tickets.is_empty() => {
                let ticket = self.tickets[self.name(*which)];
                let gone = self.lines.cancel(ticket, now, &mut effects);
                said.extend(gone.map(left));
            }
            Input::Cancel(_) => self.lines.advance(now, &mut effects),
            Input::CancelTag(tag) => {
                let gone = self.lines.cancel_tag(Tag(*tag), now, &mut effects);
                said.extend(gone.into_iter().map(left));
            }
            Input::Die(which) => {
                self.gone.borrow_mut().insert(self.name(*which));
            }
            Input::Wait => self.lines.advance(now, &mut effects),
            Input::Change(options) => {
                self.lines.reconfigure(options, now, &mut effects).unwrap();
            }
            Input::Close => {
                self.closed = true;
                self.lines.close(now, &mut effects);
            }
        }
        for left in &said {
            let Said::Left(name) = left else {
                unreachable!()
            };
            self.answer(*name);
        }
        said.extend(self.say(effects));
        said
    }

    fn ask(
        &mut self,
        claim: Claim,
        wait: bool,
        guest: Guest,
        now: Instant,
        effects: &mut Vec<Effect<(), Asker>>,
    ) {
        let terms = AskOptions {
            sent: Instant::from_nanos(guest.sent),
            deadline: Instant::from_nanos(guest.deadline).finite(),
            flow: Flow(guest.flow),
            tag: guest.tag.map(Tag),
            wait,
            promised: guest.promised,
        };
        let reply = Asker(guest.id, Rc::clone(&self.gone));
        self.waiting.insert(guest.id, (claim, guest.sent));
        let ticket = self.lines.ask(claim, &terms, reply, now, effects);
        assert!(!self.tickets.contains(&ticket), "no ticket is given twice");
        self.tickets.push(ticket);
    }

    fn tell_notes(&mut self, now: Instant, effects: &mut Vec<Effect<(), Asker>>) {
        let notes = std::mem::take(&mut self.tap.word().notes);
        (0..notes).for_each(|_| self.lines.released(now, effects));
    }

    fn say(&mut self, effects: Vec<Effect<(), Asker>>) -> Vec<Said> {
        let nanos = |span: std::time::Duration| u64::try_from(span.as_nanos()).unwrap();
        let mut said = Vec::new();
        for effect in effects {
            said.push(match effect {
                Effect::Grant {
                    reply: Asker(name, _),
                    grant,
                    waited,
                    ..
                } => {
                    assert_eq!(grant.units, self.waiting[&name].0.units);
                    self.tap.word().holders.push(grant.units);
                    self.see_fence(Some(grant.fence));
                    self.answer(name);
                    Said::Granted {
                        name,
                        ordinal: grant.ordinal,
                        fence: grant.fence,
                        waited: nanos(waited),
                    }
                }
                Effect::Shed {
                    reply: Asker(name, _),
                    refusal,
                    ..
                } => {
                    self.answer(name);
                    Said::Shed(name, refusal.reason, nanos(refusal.waited))
                }
                Effect::Forget(Asker(name, _)) => {
                    self.answer(name);
                    Said::Gone(name)
                }
            });
        }
        said
    }

    fn answer(&mut self, name: Name) {
        assert!(self.answered.insert(name), "{name} is answered once");
        assert!(self.waiting.remove(&name).is_some(), "{name} had asked");
    }

    /// A key's fences are all different and, as they are answered, grow.
    fn see_fence(&mut self, fence: Option<u64>) {
        let Some(fence) = fence else { return };
        assert!(fence > self.fence, "fences grow");
        self.fence = fence;
    }

    /// What is true after every input.
    fn check(&self) {
        let word = self.tap.word();
        assert_eq!(self.lines.len(), self.waiting.len());
        assert_eq!(word.marked, !self.waiting.is_empty(), "the mark is true");
        let holders: u64 = word.holders.iter().copied().map(u64::from).sum();
        assert_eq!(word.held, holders, "all that is held has a holder");
        if word.notes == 0 {
            self.check_no_ask_could_go(word.held);
        }
    }

    /// An ask that fits waits only behind a line at least as old that does not
    /// fit and sees at least the same capacity.
    fn check_no_ask_could_go(&self, held: u64) {
        let oldest = |claim: Claim| {
            let same = self.waiting.values().filter(|(other, _)| *other == claim);
            same.map(|(_, sent)| *sent).min()
        };
        for (claim, _) in self.waiting.values().filter(|(claim, _)| claim.fits(held)) {
            let blocked = self.waiting.values().any(|(other, sent)| {
                let as_old = Some(*sent) <= oldest(*claim);
                !other.fits(held) && other.capacity >= claim.capacity && as_old
            });
            assert!(blocked, "{claim:?} waits and could go with {held} held");
        }
    }

    /// All holders give back and tell it until no ask waits any more.
    fn come_to_rest(mut self) {
        loop {
            self.play(&Input::Tell, None);
            self.check();
            let mut word = self.tap.word();
            let Some(last) = word.holders.len().checked_sub(1) else {
                break;
            };
            word.give_back(last);
        }
        self.play(&Input::Tell, None);
        assert!(self.waiting.is_empty(), "{:?} wait for ever", self.waiting);
        assert_eq!(self.answered.len(), self.tickets.len());
        let stats = self.lines.stats(Instant::from_nanos(self.now));
        let asks = stats.asks;
        assert_eq!(asks.came, self.tickets.len() as u64);
        assert_eq!(asks.came, asks.served + asks.cancelled + asks.shed_total());
        assert_eq!(self.tap.held(), 0);
    }

    /// The ask that would come with this input.
    fn guest(&mut self, input: &Input) -> Option<Guest> {
        let Input::Ask {
            ago,
            patience,
            flow,
            tag,
            ..
        } = *input
        else {
            return None;
        };
        let mut sent = self.now.saturating_sub(ago);
        if let Some(latest) = &mut self.sent {
            sent = sent.max(*latest);
            *latest = sent;
        }
        Some(Guest {
            id: self.tickets.len(),
            sent,
            deadline: patience.map_or(u64::MAX, |span| self.now + span),
            flow,
            tag,
            promised: patience.is_some(),
        })
    }

    /// One of the asks that came, or the one that comes next.
    fn name(&self, which: Index) -> Name {
        which
            .index(self.tickets.len() + 1)
            .min(self.tickets.len().saturating_sub(1))
    }
}
