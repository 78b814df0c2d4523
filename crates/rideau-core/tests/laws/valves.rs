//! What every valve obeys, and slow models that each must agree with.

pub(crate) mod inputs;
pub(crate) mod model;

use std::time::Duration;

use proptest::prelude::*;
use rideau_core::valve::{Options, Rate, Relative, Valve};
use rideau_core::{Instant, Lead};

use self::inputs::{Input, Pause, Step};
use self::model::Model;

proptest! {
    #![proptest_config(crate::cases(2_500))]

    #[test]
    fn every_valve_obeys_the_laws(
        options in inputs::options(),
        size in 0..6_usize,
        steps in inputs::steps(inputs::options()),
    ) {
        let mut run = Run::new(options, size);
        run.obey();
        for step in steps {
            run.play_lawfully(step);
            run.obey();
        }
    }

    #[test]
    fn the_open_valve_is_its_model(case in inputs::case(inputs::open())) {
        agree(case);
    }

    #[test]
    fn the_relative_valve_is_its_model(case in inputs::case(inputs::relative())) {
        agree(case);
    }

    #[test]
    fn the_codel_valve_is_its_model(case in inputs::case(inputs::codel())) {
        agree(case);
    }

    #[test]
    fn the_codel_valve_is_its_model_in_long_episodes(case in inputs::codel_episodes()) {
        agree(case);
    }

    #[test]
    fn the_rate_valve_is_its_model(case in inputs::case(inputs::rate())) {
        agree(case);
    }

    #[test]
    fn the_breaker_is_its_model(case in inputs::case(inputs::breaker())) {
        agree(case);
    }

    #[test]
    fn the_gradient_valve_is_its_model(case in inputs::case(inputs::gradient())) {
        agree(case);
    }

    #[test]
    fn the_gradient_valve_is_its_model_for_many_samples(case in inputs::gradient_samples()) {
        agree(case);
    }

    #[test]
    fn the_least_of_several_is_its_model(case in inputs::case(inputs::options())) {
        agree(case);
    }

    #[test]
    fn a_rate_is_never_exceeded_and_never_withheld(
        options in inputs::rate(),
        steps in inputs::steps(Just(Options::Rate(Rate::default()))),
    ) {
        let Options::Rate(rate) = options else { unreachable!() };
        RateRun::new(rate).play(steps);
    }
}

/// A valve, the time, and since when each lease is held.
struct Run {
    options: Options,
    valve: Valve,
    now: Instant,
    leases: Vec<Instant>,
}

impl Run {
    fn new(options: Options, size: usize) -> Self {
        let now = Instant::START;
        Self {
            valve: Valve::new(&options, size, now).unwrap(),
            options,
            now,
            leases: vec![now; size],
        }
    }

    fn pass(&mut self, pause: Pause) {
        let opening = self.valve.open_time().map_or(0, Instant::as_nanos);
        self.now = match pause {
            Pause::Span(nanos) => self.now.after(nanos),
            Pause::ToOpening(early) => Instant::from_nanos(opening.saturating_sub(early)),
        }
        .max(self.now);
    }

    /// Play one input and check what it may answer and change.
    fn play_lawfully(&mut self, step: Step) {
        self.pass(step.pause);
        let (now, size) = (self.now, self.leases.len());
        match step.input {
            Input::Ask if self.valve.is_open(now) => {
                let open_time = self.valve.open_time();
                assert_eq!(Some(self.valve.ask(now)), open_time);
                self.leases.push(now);
            }
            Input::Renew(which) if size > 0 => match self.valve.renew(now) {
                Some(open_time) => assert!(open_time <= now),
                None => drop(self.leases.remove(which.index(size))),
            },
            Input::Release(which, ok) if size > 0 => {
                let held = now.since(self.leases.remove(which.index(size)));
                self.valve.release(held, ok, now);
            }
            Input::Update(lead) => self.valve.update(lead, now),
            Input::Reconfigure(options) => self.reconfigure(options),
            Input::Ask | Input::Renew(_) | Input::Release(..) | Input::Wait => (),
        }
    }

    /// Bad options change nothing; good ones keep every lease, and another kind
    /// starts to count its time.
    fn reconfigure(&mut self, options: Options) {
        let before = format!("{:?}", self.valve);
        for bad in bad_options(&options) {
            self.valve.reconfigure(&bad, self.now).unwrap_err();
            assert!(Valve::new(&bad, 0, self.now).is_err());
        }
        assert_eq!(before, format!("{:?}", self.valve));

        self.valve.reconfigure(&options, self.now).unwrap();
        let fresh = Valve::new(&options, self.leases.len(), self.now).unwrap();
        if parts(&options)
            .iter()
            .zip(parts(&self.options))
            .all(|(new, old)| new.kind() != old.kind())
        {
            assert_eq!(format!("{fresh:?}"), format!("{:?}", self.valve));
        }
        self.options = options;
    }

    fn obey(&self) {
        let (valve, now, size) = (&self.valve, self.now, self.leases.len());
        assert_eq!(valve.size(), size);
        assert_eq!(valve.stats().len(), parts(&self.options).len());
        self.obey_bounds();

        let open_time = valve.open_time();
        assert_eq!(open_time, valve.open_time());
        assert_eq!(
            valve.is_open(now),
            open_time.is_some_and(|open_time| open_time <= now)
        );

        let timed = parts(&self.options)
            .iter()
            .any(|part| matches!(part.kind(), "rate" | "breaker"));
        if let Some(deadline) = valve.deadline() {
            assert!(timed);
            assert!(valve.is_open(deadline));
            assert_eq!(valve.is_open(now), deadline <= now);
            let before = Instant::from_nanos(deadline.as_nanos().saturating_sub(1));
            assert!(!valve.is_open(before) || deadline == Instant::START);
        }
    }

    fn obey_bounds(&self) {
        let bounds = parts(&self.options).iter().map(bounds);
        let size = self.leases.len();
        if bounds.clone().all(|(min, _)| size < min) {
            assert!(self.valve.is_open(self.now));
        }
        if bounds.clone().any(|(_, max)| size >= max) {
            assert_eq!(self.valve.open_time(), None);
        }
        for (stats, (min, max)) in self.valve.stats().iter().zip(bounds) {
            assert!(min <= stats.min && stats.max <= max, "{stats:?}");
        }
    }
}

/// Play the same on a valve and on its model.
fn agree((options, size, steps): (Options, usize, Vec<Step>)) {
    let mut run = Run::new(options.clone(), size);
    let mut model = Model::new(&options, size, run.now);
    for step in steps {
        run.pass(step.pause);
        let (now, size) = (run.now, run.leases.len());
        let valve = &mut run.valve;
        match step.input {
            Input::Ask if model.is_open(now) => {
                assert_eq!(valve.ask(now), model.ask(now));
                run.leases.push(now);
            }
            Input::Renew(which) if size > 0 => {
                let which = which.index(size);
                let open_time = valve.renew(now);
                assert_eq!(open_time, model.renew(which, now));
                if open_time.is_none() {
                    run.leases.remove(which);
                }
            }
            Input::Release(which, ok) if size > 0 => {
                let which = which.index(size);
                let held = now.since(run.leases.remove(which));
                valve.release(held, ok, now);
                model.release(which, held, ok, now);
            }
            Input::Update(lead) => {
                valve.update(lead, now);
                model.update(lead, now);
            }
            Input::Reconfigure(options) => {
                valve.reconfigure(&options, now).unwrap();
                model.reconfigure(&options, now);
            }
            Input::Ask | Input::Renew(_) | Input::Release(..) | Input::Wait => (),
        }
        assert_eq!(valve.is_open(now), model.is_open(now));
        assert_eq!(valve.open_time(), model.open_time());
        let closed_until = valve.deadline().filter(|deadline| *deadline > now);
        assert_eq!(closed_until, model.closed_until(now));
        let circuits: Vec<_> = valve.stats().iter().map(|stats| stats.circuit).collect();
        assert_eq!(circuits, model.circuits());
    }
}

/// A rate valve from the start, and what its guarantee is about.
struct RateRun {
    rate: Rate,
    run: Run,
    /// When leases over `min` were granted or renewed.
    granted: Vec<Instant>,
    /// When slots were given back.
    freed: Vec<Instant>,
}

impl RateRun {
    fn new(rate: Rate) -> Self {
        Self {
            rate,
            run: Run::new(Options::Rate(rate), 0),
            granted: Vec::new(),
            freed: Vec::new(),
        }
    }

    fn play(mut self, steps: Vec<Step>) {
        for step in steps {
            if matches!(step.input, Input::Reconfigure(_)) {
                continue;
            }
            let before = self.run.leases.len();
            let is_renewal = matches!(step.input, Input::Renew(_));
            self.run.play_lawfully(step);
            let (after, now) = (self.run.leases.len(), self.run.now);
            if before.max(after) > self.rate.min {
                let is_renewed = is_renewal && after == before;
                self.granted
                    .extend((after > before || is_renewed).then_some(now));
                self.freed
                    .extend((after < before || is_renewed).then_some(now));
            }
            self.check_limit();
            self.check_service();
        }
    }

    fn check_limit(&self) {
        let Rate {
            limit,
            interval,
            min,
            max,
        } = self.rate;
        for window in self.granted.windows(limit + 1) {
            assert!(window[limit].since(window[0]) >= interval);
        }
        let size = self.run.leases.len();
        assert!(size <= (min + limit).min(max));
        assert!(size <= min || self.run.now >= Instant::START + interval);
    }

    /// No ask is kept waiting while the rate allows one more.
    fn check_service(&self) {
        let Rate {
            limit,
            interval,
            min,
            max,
        } = self.rate;
        let (now, size) = (self.run.now, self.run.leases.len());
        let resting = self
            .freed
            .iter()
            .filter(|freed| **freed + interval > now)
            .count();
        let has_slot = now >= Instant::START + interval && size + resting < min + limit;
        let may_grant = size < min || has_slot && size < max;
        assert_eq!(self.run.valve.is_open(now), may_grant);
    }
}

fn parts(options: &Options) -> &[Options] {
    match options {
        Options::LeastOf(parts) => parts,
        one => std::slice::from_ref(one),
    }
}

fn bounds(options: &Options) -> (usize, usize) {
    match options {
        Options::Open(open) => (open.max, open.max),
        Options::Relative(relative) => (relative.min, relative.max),
        Options::CoDel(codel) => (codel.min, codel.max),
        Options::Rate(rate) => (rate.min, rate.max),
        Options::Breaker(breaker) => (0, breaker.max),
        Options::Gradient(gradient) => (gradient.min, gradient.max),
        Options::LeastOf(_) | Options::Custom(_) => unreachable!("it has no model"),
    }
}

/// Options that differ from good ones in one part.
fn bad_options(good: &Options) -> [Options; 4] {
    let bad_bounds = Options::Relative(Relative {
        target: Lead::ZERO,
        min: 2,
        max: 1,
    });
    let bad_interval = Options::Rate(Rate {
        interval: Duration::ZERO,
        ..Rate::default()
    });
    let first = parts(good)[0].clone();
    [
        Options::LeastOf(vec![]),
        Options::LeastOf(vec![first.clone(), Options::LeastOf(vec![first.clone()])]),
        Options::LeastOf(vec![first, bad_bounds]),
        bad_interval,
    ]
}
