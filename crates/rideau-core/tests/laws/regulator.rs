//! What a regulator obeys whatever its queue and its valve.

mod inputs;
mod model;

use std::cell::RefCell;
use std::collections::HashSet;
use std::rc::Rc;
use std::time::Duration;

use proptest::prelude::*;
use proptest::sample::Index;
use rideau_core::meter::{self, Better};
use rideau_core::queue::{self, AskOptions};
use rideau_core::regulator::{Effect, Ended, Options, Regulator, Release, Renewal};
use rideau_core::valve::{self, Rate};
use rideau_core::{Flow, Instant, Machine, Reply, Tag, Ticket};

use self::inputs::{Input, Pause, Step, Which};
use self::model::{Model, Name, Said};
use crate::valves::inputs as valves;

proptest! {
    #![proptest_config(crate::cases(2_500))]

    /// Grants, sheds, answers, deadlines and counts, in their order and with
    /// their numbers.
    #[test]
    fn a_regulator_is_its_model((options, steps) in inputs::case(inputs::plain_queue())) {
        let mut run = Run::new(options.clone());
        let mut model = Model::new(&options, Rc::clone(&run.gone), Instant::START);
        for step in steps {
            run.pass(&step.pause);
            let step = Step { input: without_patience(step.input), ..step };
            let name = run.name(&step.input);
            let said = run.play(name, &step);
            play_on_model(&mut model, &run, name, &step);
            assert_eq!(said, model.said(), "{step:?} at {:?}", run.now);
            assert_eq!(run.regulator.len(), model.len());
            assert_eq!(run.regulator.size(), model.size());
            assert_eq!(run.held, model.held());
            assert_eq!(run.waiting, model.waiting());
            let stats = run.regulator.stats(run.now);
            assert_eq!(stats.is_open, model.is_open());
            assert_eq!(run.regulator.deadline(), model.deadline());
        }
    }

    #[test]
    fn every_ticket_has_one_end_and_every_reply_comes_back_once(
        (mut options, steps) in inputs::case(inputs::any_queue()),
        metered in any::<bool>(),
        any_index in any::<Index>(),
    ) {
        if metered {
            options.meters = vec![meter::Options::Better(Better::default())];
        }
        let mut run = Run::new(options);
        for step in steps {
            run.pass(&step.pause);
            run.play(run.name(&step.input), &step);
            run.check_ends();
        }
        let last = Step {
            pause: Pause::Span(0),
            late: 0,
            input: Input::End(Which::Any(any_index), true),
        };
        for name in 0..run.tickets.len() {
            run.play(Some(name), &last);
        }
        run.check_ends();
        assert_eq!(run.regulator.len() + run.regulator.size(), 0);
        assert_eq!(run.replies, vec![1; run.tickets.len()]);
    }

    /// A driver that keeps every deadline keeps the rate, and lets no ask wait
    /// that could go.
    #[test]
    fn a_rate_is_kept_and_no_ask_waits_that_could_go(
        rate in valves::rate(),
        steps in prop::collection::vec((valves::nanos(), prop::bool::weighted(0.6)), 1..60),
    ) {
        let valve::Options::Rate(rate) = rate else { unreachable!() };
        let mut run = RateRun::new(rate);
        for (pause, asks) in steps {
            run.pass(run.now.after(pause));
            run.play(asks);
            run.check();
        }
    }
}

/// A regulator, the time, and what is known of the asks.
struct Run {
    regulator: Regulator<Asker>,
    now: Instant,
    tickets: Vec<Ticket>,
    gone: Rc<RefCell<HashSet<Name>>>,
    /// Oldest first.
    waiting: Vec<Name>,
    /// In the order of their grants.
    held: Vec<Name>,
    ended: HashSet<Name>,
    /// How often each reply came back.
    replies: Vec<u32>,
}

struct Asker(Name, Rc<RefCell<HashSet<Name>>>);

impl Reply for Asker {
    fn is_gone(&self) -> bool {
        self.1.borrow().contains(&self.0)
    }
}

impl Run {
    fn new(options: Options) -> Self {
        Self {
            regulator: Regulator::new(options, Instant::START, &mut Vec::new()).unwrap(),
            now: Instant::START,
            tickets: Vec::new(),
            gone: Rc::default(),
            waiting: Vec::new(),
            held: Vec::new(),
            ended: HashSet::new(),
            replies: Vec::new(),
        }
    }

    fn pass(&mut self, pause: &Pause) {
        let deadline = self.regulator.deadline().map_or(0, Instant::as_nanos);
        self.now = match pause {
            Pause::Span(nanos) => self.now.after(*nanos),
            Pause::ToDeadline(early) => Instant::from_nanos(deadline.saturating_sub(*early)),
        }
        .max(self.now);
    }

    fn sent(&self, step: &Step) -> Instant {
        Instant::from_nanos(self.now.as_nanos().saturating_sub(step.late))
    }

    /// The ask that a step is about, if there is one.
    fn name(&self, input: &Input) -> Option<Name> {
        let (Input::Renew(which)
        | Input::Release(which, _)
        | Input::End(which, _)
        | Input::Cancel(which)
        | Input::Die(which)) = input
        else {
            return None;
        };
        let of = |names: &[Name], index: &Index| {
            (!names.is_empty()).then(|| names[index.index(names.len())])
        };
        match which {
            Which::Held(index) => of(&self.held, index),
            Which::Waiting(index) => of(&self.waiting, index),
            Which::Any(index) => {
                (!self.tickets.is_empty()).then(|| index.index(self.tickets.len()))
            }
        }
    }

    fn play(&mut self, name: Option<Name>, step: &Step) -> Vec<Said> {
        let (sent, now) = (self.sent(step), self.now);
        let mut effects = Vec::new();
        let regulator = &mut self.regulator;
        let mut said = Vec::new();
        match &step.input {
            Input::Ask {
                wait,
                tag,
                patience,
            } => {
                return self.ask(*wait, *tag, *patience, sent);
            }
            Input::CancelTag(tag) => {
                let left = regulator.cancel_tag(Tag(*tag), now, &mut effects);
                said.extend(left.iter().map(|(asker, _)| Said::Left(asker.0)));
            }
            Input::Update(lead) => regulator.update(*lead, sent, now, &mut effects),
            Input::Reconfigure(options) => {
                let options = Options::clone(options);
                regulator.reconfigure(options, now, &mut effects).unwrap();
            }
            Input::Wait => {
                regulator.advance(now, &mut effects);
                let deadline = regulator.deadline();
                assert!(deadline.is_none_or(|deadline| deadline > now));
            }
            Input::Close => regulator.close(now, &mut effects),
            _ => return name.map_or(Vec::new(), |name| self.play_on(name, step)),
        }
        said.extend(effects.into_iter().filter_map(read));
        self.learn(&said);
        said
    }

    fn ask(&mut self, wait: bool, tag: u64, patience: Option<u64>, sent: Instant) -> Vec<Said> {
        let name = self.tickets.len();
        let terms = AskOptions {
            deadline: patience.map(|nanos| sent.after(nanos)),
            flow: Flow(tag),
            tag: Some(Tag(tag)),
            wait,
            promised: patience.is_some(),
            ..AskOptions::new(sent)
        };
        let reply = Asker(name, Rc::clone(&self.gone));
        let mut effects = Vec::new();
        let ticket = self.regulator.ask(&terms, reply, self.now, &mut effects);
        self.tickets.push(ticket);
        self.replies.push(0);
        self.waiting.push(name);
        for effect in &effects {
            if let Effect::Grant { ticket, reply, .. } | Effect::Shed { ticket, reply, .. } = effect
            {
                assert_eq!(*ticket, self.tickets[reply.0]);
            }
        }
        let said: Vec<_> = effects.into_iter().filter_map(read).collect();
        self.learn(&said);
        said
    }

    /// Play a step that is about an ask.
    fn play_on(&mut self, name: Name, step: &Step) -> Vec<Said> {
        let (sent, now, ticket) = (self.sent(step), self.now, self.tickets[name]);
        let (regulator, mut effects) = (&mut self.regulator, Vec::new());
        let answer = match step.input {
            Input::Renew(_) => match regulator.renew(ticket, sent, now, &mut effects) {
                Renewal::Go { lead, waited } => Said::Go(lead, waited),
                Renewal::Stop { waited } => Said::Stop(waited),
                Renewal::NotFound { waited } => Said::NotFound(waited),
            },
            Input::Release(_, ok) => match regulator.release(ticket, ok, sent, now, &mut effects) {
                Release::Stop { waited } => Said::Stop(waited),
                Release::NotFound { waited } => Said::NotFound(waited),
            },
            Input::End(_, ok) => match regulator.end(ticket, ok, sent, now, &mut effects) {
                Ended::Cancelled(asker) => Said::Left(asker.0),
                Ended::Released => Said::Released,
                Ended::NotFound => Said::Nothing,
            },
            Input::Cancel(_) => {
                let left = regulator.cancel(ticket, now, &mut effects);
                left.map_or(Said::Nothing, |(asker, _)| Said::Left(asker.0))
            }
            _ => {
                self.gone.borrow_mut().insert(name);
                return Vec::new();
            }
        };
        if let Said::Stop(_) | Said::Released = answer {
            let at = self.held.iter().position(|holder| *holder == name);
            self.held.remove(at.expect("only a lease can end"));
            assert!(self.ended.insert(name));
        }
        let mut said = vec![answer];
        said.extend(effects.into_iter().filter_map(read));
        self.learn(&said);
        said
    }

    /// Every ask that leaves the queue waited there, and ends once.
    fn learn(&mut self, said: &[Said]) {
        for said in said {
            let (Said::Granted(name, ..)
            | Said::Shed(name, ..)
            | Said::Gone(name)
            | Said::Left(name)) = said
            else {
                continue;
            };
            self.replies[*name] += 1;
            let at = self.waiting.iter().position(|asker| asker == name);
            self.waiting
                .remove(at.expect("only a waiting ask is answered"));
            if let Said::Granted(..) = said {
                assert!(!self.gone.borrow().contains(name));
                self.held.push(*name);
            } else {
                assert!(self.ended.insert(*name));
            }
        }
    }

    fn check_ends(&self) {
        assert_eq!(self.regulator.len(), self.waiting.len());
        assert_eq!(self.regulator.size(), self.held.len());
        for name in &self.held {
            assert!(self.regulator.is_held(self.tickets[*name]));
        }
        for name in self.ended.iter().chain(&self.waiting) {
            assert!(!self.regulator.is_held(self.tickets[*name]));
        }
        let known = self.waiting.len() + self.held.len() + self.ended.len();
        assert_eq!(known, self.tickets.len());
    }
}

fn read(effect: Effect<Asker>) -> Option<Said> {
    match effect {
        Effect::Grant {
            reply,
            lead,
            waited,
            ..
        } => Some(Said::Granted(reply.0, lead, waited)),
        Effect::Shed { reply, refusal, .. } => {
            Some(Said::Shed(reply.0, refusal.reason, refusal.waited))
        }
        Effect::Forget(reply) => Some(Said::Gone(reply.0)),
        Effect::Meter(_) => None,
    }
}

/// The model knows no deadlines of askers.
fn without_patience(input: Input) -> Input {
    match input {
        Input::Ask { wait, tag, .. } => Input::Ask {
            wait,
            tag,
            patience: None,
        },
        other => other,
    }
}

/// Play what was just played on the regulator.
fn play_on_model(model: &mut Model, run: &Run, name: Option<Name>, step: &Step) {
    let (sent, now) = (run.sent(step), run.now);
    match (&step.input, name) {
        (Input::Ask { wait, tag, .. }, _) => {
            model.ask(run.tickets.len() - 1, *tag, *wait, sent, now);
        }
        (Input::CancelTag(tag), _) => model.cancel_tag(*tag, now),
        (Input::Update(lead), _) => model.update(*lead, sent, now),
        (Input::Reconfigure(options), _) => model.reconfigure(options, now),
        (Input::Wait, _) => model.advance(now),
        (Input::Close, _) => model.close(now),
        (Input::Renew(_), Some(name)) => model.renew(name, sent, now),
        (Input::Release(_, ok), Some(name)) => model.release(name, *ok, sent, now),
        (Input::End(_, ok), Some(name)) => model.end(name, *ok, sent, now),
        (Input::Cancel(_), Some(name)) => model.cancel(name, now),
        _ => (),
    }
}

/// A regulator by rate whose every deadline is kept.
struct RateRun {
    rate: Rate,
    regulator: Regulator<Quiet>,
    now: Instant,
    held: Vec<Ticket>,
    /// When leases over `min` were granted.
    granted: Vec<Instant>,
    /// When they were given back.
    freed: Vec<Instant>,
}

struct Quiet;

impl Reply for Quiet {}

impl RateRun {
    fn new(rate: Rate) -> Self {
        let options = Options {
            queue: queue::Options {
                shedding: queue::Shedding::Never,
                ..queue::Options::default()
            },
            ..Options::new(valve::Options::Rate(rate))
        };
        Self {
            rate,
            regulator: Regulator::new(options, Instant::START, &mut Vec::new()).unwrap(),
            now: Instant::START,
            held: Vec::new(),
            granted: Vec::new(),
            freed: Vec::new(),
        }
    }

    fn pass(&mut self, until: Instant) {
        while let Some(deadline) = self.regulator.deadline()
            && deadline <= until
        {
            self.now = deadline;
            let mut effects = Vec::new();
            self.regulator.advance(deadline, &mut effects);
            self.learn(effects);
            self.check();
        }
        self.now = until;
    }

    fn play(&mut self, asks: bool) {
        let (now, mut effects) = (self.now, Vec::new());
        if asks {
            self.regulator
                .ask(&AskOptions::new(now), Quiet, now, &mut effects);
        } else if !self.held.is_empty() {
            let over = self.held.len() > self.rate.min;
            self.freed.extend(over.then_some(now));
            let ticket = self.held.remove(0);
            let release = self.regulator.release(ticket, true, now, now, &mut effects);
            let waited = Duration::ZERO;
            assert_eq!(release, Release::Stop { waited });
        }
        self.learn(effects);
    }

    fn learn(&mut self, effects: Vec<Effect<Quiet>>) {
        for effect in effects {
            let Effect::Grant { ticket, .. } = effect else {
                panic!("no take is shed");
            };
            self.held.push(ticket);
            let over = self.held.len() > self.rate.min;
            self.granted.extend(over.then_some(self.now));
        }
    }

    fn check(&self) {
        let Rate {
            limit,
            interval,
            min,
            max,
        } = self.rate;
        let (size, now) = (self.held.len(), self.now);
        let has_begun = now >= Instant::START + interval;
        assert_eq!(self.regulator.size(), size);
        assert!(size <= (min + limit).min(max));
        assert!(size <= min || has_begun);

        let resting = self.freed.iter().filter(|freed| **freed + interval > now);
        let has_slot = has_begun && size < max && size + resting.count() < min + limit;
        if size < min || has_slot {
            assert_eq!(self.regulator.len(), 0, "no ask waits that could go");
        }
        let mut spaced = vec![&self.granted];
        spaced.extend((min == 0).then_some(&self.freed));
        for window in spaced.iter().flat_map(|times| times.windows(limit + 1)) {
            assert!(window[limit].since(window[0]) >= interval);
        }
    }
}
