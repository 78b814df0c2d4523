//! Each meter against a model of its own, and all of them together against
//! each alone.
//!
//! Steps of time range from a nanosecond to a second, and often lead exactly
//! to a deadline or a nanosecond beside it.

use std::collections::BTreeMap;
use std::mem;
use std::time::Duration;

use proptest::prelude::*;
use rideau_core::meter::{
    Better, Effect, Entry, Meters, Options, Overload, Pie, PieSide, Reading, Underload, Update,
};
use rideau_core::protector::{Chance, Row};
use rideau_core::{Instant, Lead, Rng, Side};

proptest! {
    #![proptest_config(crate::cases(5_000))]

    #[test]
    fn alarms_follow_the_model_of_hysteresis(script in script(alarm())) {
        run(script, AlarmModel::new, AlarmModel::feed, AlarmModel::change)?;
    }

    #[test]
    fn better_values_are_exact(script in script(better())) {
        run(script, BetterModel::new, BetterModel::feed, BetterModel::change)?;
    }

    #[test]
    fn chances_follow_the_model_of_the_controller(script in script(pie())) {
        run(script, PieModel::new, PieModel::feed, PieModel::change)?;
    }

    #[test]
    fn chances_follow_the_model_through_load_and_calm(script in waves(pie())) {
        run(script, PieModel::new, PieModel::feed, PieModel::change)?;
    }

    #[test]
    fn updates_reach_exactly_the_meters_that_are_due(script in script(update())) {
        run(script, UpdateModel::new, UpdateModel::feed, UpdateModel::change)?;
    }

    #[test]
    fn meters_together_do_what_each_does_alone(script in script(several())) {
        run(script, Apart::new, Apart::feed, Apart::change)?;
    }

    #[test]
    fn a_rejected_change_changes_nothing(script in script(several()), wrong in wrong()) {
        let mut effects = Vec::new();
        prop_assert!(Meters::new(wrong.clone(), Instant::START, &mut effects).is_err());
        let mut tried = Meters::new(script.options.clone(), Instant::START, &mut effects).unwrap();
        let mut plain = Meters::new(script.options, Instant::START, &mut Vec::new()).unwrap();
        let mut now = Instant::START;
        for (step, event) in script.events {
            now = step.from(now, plain.deadline());
            let (mut expected, mut effects) = (Vec::new(), Vec::new());
            prop_assert!(tried.reconfigure(wrong.clone(), now, &mut effects).is_err());
            for (meters, effects) in [(&mut plain, &mut expected), (&mut tried, &mut effects)] {
                match &event {
                    Event::Feed(reading) => meters.feed(reading, now, effects),
                    Event::Change(options) => {
                        meters.reconfigure(options.clone(), now, effects).unwrap();
                    }
                }
            }
            prop_assert_eq!(&effects, &expected);
            prop_assert_eq!(tried.deadline(), plain.deadline());
        }
    }
}

/// Options to start with, and what happens then.
#[derive(Clone, Debug)]
struct Script {
    options: Vec<Options>,
    events: Vec<(Step, Event)>,
}

#[derive(Clone, Debug)]
enum Event {
    Feed(Reading),
    Change(Vec<Options>),
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    By(u64),
    /// To the deadline, or just before, or just after.
    Due(i64),
}

impl Step {
    pub(crate) fn from(self, now: Instant, deadline: Option<Instant>) -> Instant {
        match (self, deadline) {
            (Self::By(nanos), _) => now.after(nanos),
            (Self::Due(beside), Some(due)) => {
                Instant::from_nanos(due.as_nanos().saturating_add_signed(beside)).max(now)
            }
            (Self::Due(_), None) => now,
        }
    }
}

/// Play a script to the meters and to a model, which has to foresee every
/// effect and deadline.
fn run<M>(
    script: Script,
    new: impl Fn(&[Options], u64) -> (M, Foreseen),
    feed: impl Fn(&mut M, &Reading, u64) -> Foreseen,
    change: impl Fn(&mut M, &[Options], u64) -> Foreseen,
) -> Result<(), TestCaseError> {
    let mut now = Instant::from_nanos(5_000_000_000);
    let mut effects = Vec::new();
    let (mut model, mut foreseen) = new(&script.options, now.as_nanos());
    let mut meters = Meters::new(script.options, now, &mut effects).unwrap();
    for (step, event) in script.events {
        prop_assert_eq!(&effects, &foreseen.effects);
        let deadline = meters.deadline().map(Instant::as_nanos);
        prop_assert_eq!(deadline, foreseen.next);
        prop_assert_eq!(deadline, meters.deadline().map(Instant::as_nanos));

        now = step.from(now, meters.deadline());
        effects.clear();
        foreseen = match event {
            Event::Feed(reading) => {
                meters.feed(&reading, now, &mut effects);
                feed(&mut model, &reading, now.as_nanos())
            }
            Event::Change(options) => {
                let foreseen = change(&mut model, &options, now.as_nanos());
                meters.reconfigure(options, now, &mut effects).unwrap();
                foreseen
            }
        };
    }
    prop_assert_eq!(effects, foreseen.effects);
    Ok(())
}

struct Foreseen {
    effects: Vec<Effect>,
    next: Option<u64>,
}

/// All readings in a row that contradict the alarm.
struct AlarmModel {
    options: Options,
    set: bool,
    contrary: Vec<u64>,
    changed: u64,
}

impl AlarmModel {
    fn new(options: &[Options], now: u64) -> (Self, Foreseen) {
        let model = Self {
            options: options[0].clone(),
            set: false,
            contrary: Vec::new(),
            changed: now,
        };
        let cleared = vec![model.told()];
        let foreseen = model.foresee(cleared);
        (model, foreseen)
    }

    fn feed(&mut self, reading: &Reading, now: u64) -> Foreseen {
        let slow = match &self.options {
            Options::Overload(options) => {
                let nothing = options.target.is_zero() && reading.queue_delay.is_zero();
                reading.queue_delay >= options.target && !(nothing && reading.backlog == 0)
            }
            Options::Underload(options) => {
                !reading.is_deserted && -reading.lead.as_nanos() >= options.target.as_nanos()
            }
            other => unreachable!("{other:?} has no alarm"),
        };
        let mut effects = Vec::new();
        if slow == self.set {
            self.contrary.clear();
        } else {
            self.contrary.push(now);
        }
        if self
            .contrary
            .first()
            .is_some_and(|first| now - first >= self.interval())
        {
            self.set = !self.set;
            self.contrary.clear();
            effects.push(self.told());
        }
        self.foresee(effects)
    }

    fn change(&mut self, options: &[Options], now: u64) -> Foreseen {
        let was = self.told();
        let same_kind = mem::discriminant(&self.options) == mem::discriminant(&options[0]);
        if same_kind && alarm_of(&self.options) == alarm_of(&options[0]) {
            self.options = options[0].clone();
            self.changed = now;
            return self.foresee(Vec::new());
        }
        let mut effects = Vec::new();
        if let Effect::Alarm { alarm, set: true } = was {
            effects.push(Effect::Alarm { alarm, set: false });
        }
        let (model, foreseen) = Self::new(options, now);
        *self = model;
        effects.extend(foreseen.effects);
        self.foresee(effects)
    }

    fn interval(&self) -> u64 {
        match &self.options {
            Options::Overload(options) => nanos(options.interval),
            Options::Underload(options) => nanos(options.interval),
            other => unreachable!("{other:?} has no alarm"),
        }
    }

    fn told(&self) -> Effect {
        Effect::Alarm {
            alarm: alarm_of(&self.options),
            set: self.set,
        }
    }

    fn foresee(&self, effects: Vec<Effect>) -> Foreseen {
        let flip = self.contrary.first().map(|first| first + self.interval());
        let next = flip.map(|flip| flip.max(self.changed));
        Foreseen { effects, next }
    }
}

fn alarm_of(options: &Options) -> String {
    match options {
        Options::Overload(options) => options.alarm.clone(),
        Options::Underload(options) => options.alarm.clone(),
        other => unreachable!("{other:?} has no alarm"),
    }
}

struct BetterModel(Better);

impl BetterModel {
    fn new(options: &[Options], now: u64) -> (Self, Foreseen) {
        let model = Self(better_of(options));
        let first = Effect::Better {
            ask: model.0.ask_upper,
            offer: model.0.offer_upper,
        };
        let (effects, next) = (vec![first], Some(now));
        (model, Foreseen { effects, next })
    }

    fn feed(&mut self, reading: &Reading, now: u64) -> Foreseen {
        let delay = nanos(reading.queue_delay) + nanos(reading.process_delay);
        let lead = reading.lead.as_nanos();
        let value = |lead: i64, upper: Duration| {
            let expected = if lead > 0 {
                delay + lead.unsigned_abs()
            } else {
                delay
            };
            Duration::from_nanos(expected.min(nanos(upper)))
        };
        let published = Effect::Better {
            ask: value(lead, self.0.ask_upper),
            offer: value(-lead, self.0.offer_upper),
        };
        Foreseen {
            effects: vec![published],
            next: Some(now + nanos(self.0.update)),
        }
    }

    fn change(&mut self, options: &[Options], now: u64) -> Foreseen {
        self.0 = better_of(options);
        Foreseen {
            effects: Vec::new(),
            next: Some(now),
        }
    }
}

struct PieModel {
    options: Pie,
    ask: SideModel,
    offer: SideModel,
    backlog: u32,
    next: u64,
}

#[derive(Default)]
struct SideModel {
    p: f64,
    last: Option<(i128, u64)>,
    allowance: i128,
}

impl PieModel {
    fn new(options: &[Options], now: u64) -> (Self, Foreseen) {
        let options = pie_of(options);
        let fresh = |side: PieSide| SideModel {
            allowance: signed(side.interval),
            ..SideModel::default()
        };
        let model = Self {
            ask: fresh(options.ask),
            offer: fresh(options.offer),
            options,
            backlog: 0,
            next: now,
        };
        let foreseen = model.foresee(0.0, 0.0, model.options.probes);
        (model, foreseen)
    }

    fn feed(&mut self, reading: &Reading, now: u64) -> Foreseen {
        let delay = signed(reading.queue_delay);
        let lead = i128::from(reading.lead.as_nanos());
        let (ask, offer) = (delay + lead.max(0), delay + (-lead).max(0));
        self.backlog = u32::try_from(reading.backlog).unwrap().max(1) - 1;
        let mut probes = 0;
        if now >= self.next {
            self.ask.update(ask, now, &self.options.ask);
            self.offer.update(offer, now, &self.options.offer);
            self.next = now + nanos(self.options.update);
            probes = self.options.probes;
        }
        let ask = self.ask.control(ask, &self.options.ask);
        let offer = self.offer.control(offer, &self.options.offer);
        self.foresee(ask, offer, probes)
    }

    fn change(&mut self, options: &[Options], now: u64) -> Foreseen {
        let before = self.options.clone();
        self.options = pie_of(options);
        self.ask.shift(&before.ask, &self.options.ask);
        self.offer.shift(&before.offer, &self.options.offer);
        self.next = (now + nanos(self.options.update)).min(now.max(self.next));
        let (mut ask, mut offer) = (0.0, 0.0);
        if let (Some((last_ask, _)), Some((last_offer, _))) = (self.ask.last, self.offer.last) {
            ask = self.ask.control(last_ask, &self.options.ask);
            offer = self.offer.control(last_offer, &self.options.offer);
        }
        self.foresee(ask, offer, self.options.probes)
    }

    fn foresee(&self, ask: f64, offer: f64, probes: u32) -> Foreseen {
        let row = Row {
            min: self.options.min,
            max: self.options.max,
            probes,
            backlog: self.backlog,
            p_ask: Chance::of(ask),
            p_offer: Chance::of(offer),
        };
        Foreseen {
            effects: vec![Effect::Protect { row }],
            next: Some(self.next),
        }
    }
}

impl SideModel {
    fn update(&mut self, waited: i128, now: u64, options: &PieSide) {
        let (last, updated) = self.last.unwrap_or((waited, now));
        let seconds = |nanos: i128| nanos as f64 / 1e9;
        let step = 0.125 * seconds(waited - signed(options.target)) + 1.25 * seconds(waited - last);
        let step = match self.p {
            p if p < 0.000_001 => step / 2048.0,
            p if p < 0.000_01 => step / 512.0,
            p if p < 0.000_1 => step / 128.0,
            p if p < 0.001 => step / 32.0,
            p if p < 0.01 => step / 8.0,
            p if p < 0.1 => step / 2.0,
            _ => step.min((0.02 * (now - updated) as f64 / 15e6).clamp(0.02, 1.0)),
        };
        self.p = (self.p + step).clamp(0.0, 1.0);
        if (waited, last) == (0, 0) {
            self.p *= 0.98;
        }
        self.allowance = (self.allowance - i128::from(now - updated)).max(0);
        self.last = Some((waited, now));
    }

    fn control(&mut self, waited: i128, options: &PieSide) -> f64 {
        let half = signed(options.target) / 2;
        let (last, _) = self.last.unwrap();
        if self.p == 0.0 && waited < half && last < half {
            self.allowance = signed(options.interval);
            return 0.0;
        }
        if self.allowance > 0 || (last < half && self.p < 0.2) {
            return 0.0;
        }
        self.p
    }

    fn shift(&mut self, before: &PieSide, after: &PieSide) {
        if self.allowance != 0 {
            self.allowance += signed(after.interval) - signed(before.interval);
            self.allowance = self.allowance.max(0);
        }
    }
}

/// When each regulator was told and is to be told, by its name and side.
struct UpdateModel {
    options: Update,
    rng: Rng,
    told: BTreeMap<(String, Side), u64>,
    due: BTreeMap<(String, Side), u64>,
}

impl UpdateModel {
    fn new(options: &[Options], now: u64) -> (Self, Foreseen) {
        let options = update_of(options);
        let mut model = Self {
            rng: Rng::new(options.seed),
            told: BTreeMap::new(),
            due: options
                .entries
                .iter()
                .map(|entry| (name(entry), now))
                .collect(),
            options,
        };
        let foreseen = model.foresee(Vec::new());
        (model, foreseen)
    }

    fn feed(&mut self, reading: &Reading, now: u64) -> Foreseen {
        let mut effects = Vec::new();
        for entry in self.options.entries.clone() {
            if self.due[&name(&entry)] > now {
                continue;
            }
            let lead = match entry.side {
                Side::Ask => reading.lead.as_nanos(),
                Side::Offer => -reading.lead.as_nanos(),
            };
            effects.push(Effect::Update {
                regulator: entry.regulator.clone(),
                lead: Lead::from_nanos(lead),
            });
            self.told.insert(name(&entry), now);
            let due = now + self.spread(&entry);
            self.due.insert(name(&entry), due);
        }
        self.foresee(effects)
    }

    fn change(&mut self, options: &[Options], now: u64) -> Foreseen {
        let options = update_of(options);
        if options.seed != self.options.seed {
            self.rng = Rng::new(options.seed);
        }
        self.options = options;
        self.due.clear();
        for entry in self.options.entries.clone() {
            let due = match self.told.get(&name(&entry)).copied() {
                Some(told) => now.max(told + self.spread(&entry)),
                None => now,
            };
            self.due.insert(name(&entry), due);
        }
        self.told.retain(|name, _| self.due.contains_key(name));
        self.foresee(Vec::new())
    }

    fn spread(&mut self, entry: &Entry) -> u64 {
        let update = nanos(entry.update);
        let spread = update / 2 + 1 + self.rng.below(update);
        assert!(2 * spread >= update && 2 * spread <= 3 * update);
        spread
    }

    fn foresee(&mut self, effects: Vec<Effect>) -> Foreseen {
        let next = self.due.values().min().copied();
        Foreseen { effects, next }
    }
}

fn name(entry: &Entry) -> (String, Side) {
    (entry.regulator.clone(), entry.side)
}

/// Each meter apart from the others, in the order of the options.
struct Apart(Vec<(Options, Meters)>);

impl Apart {
    fn new(options: &[Options], now: u64) -> (Self, Foreseen) {
        let mut apart = Self(Vec::new());
        let foreseen = apart.change(options, now);
        (apart, foreseen)
    }

    fn feed(&mut self, reading: &Reading, now: u64) -> Foreseen {
        let mut effects = Vec::new();
        for (_, meter) in &mut self.0 {
            meter.feed(reading, Instant::from_nanos(now), &mut effects);
        }
        self.foresee(effects)
    }

    fn change(&mut self, options: &[Options], now: u64) -> Foreseen {
        let now = Instant::from_nanos(now);
        let mut effects = Vec::new();
        let is_kind =
            |one: &Options, other: &Options| mem::discriminant(one) == mem::discriminant(other);
        let mut before = mem::take(&mut self.0);
        for (was, meter) in &mut before {
            if !options.iter().any(|options| is_kind(options, was)) {
                meter.end(&mut effects);
                assert!(meter.is_empty());
            }
        }
        let mut after: Vec<Option<(Options, Meters)>> = Vec::new();
        for options in options {
            let is_new = !before.iter().any(|(was, _)| is_kind(options, was));
            after.push(is_new.then(|| {
                let meter = Meters::new(vec![options.clone()], now, &mut effects).unwrap();
                (options.clone(), meter)
            }));
        }
        for (options, place) in options.iter().zip(&mut after) {
            if place.is_none() {
                let at = before
                    .iter()
                    .position(|(was, _)| is_kind(options, was))
                    .unwrap();
                let (_, mut meter) = before.remove(at);
                meter
                    .reconfigure(vec![options.clone()], now, &mut effects)
                    .unwrap();
                *place = Some((options.clone(), meter));
            }
        }
        self.0 = after.into_iter().flatten().collect();
        self.foresee(effects)
    }

    fn foresee(&self, effects: Vec<Effect>) -> Foreseen {
        let deadlines = self.0.iter().filter_map(|(_, meter)| meter.deadline());
        let next = deadlines.min().map(Instant::as_nanos);
        Foreseen { effects, next }
    }
}

/// Stretches of the same reading, long enough for a chance to settle.
fn waves(options: impl Strategy<Value = Vec<Options>> + Clone) -> impl Strategy<Value = Script> {
    let seconds = 0.0..1.5_f64;
    let wait = prop_oneof![
        Just(0.0),
        seconds.clone(),
        seconds.prop_map(|wait| wait / 20.0)
    ];
    let wave = (
        wait,
        1_usize..60,
        prop::option::weighted(0.1, options.clone()),
    );
    let waves = prop::collection::vec(wave, 1..8);
    (options, waves).prop_map(|(options, waves)| {
        let mut events = Vec::new();
        for (wait, len, change) in waves {
            let reading = Reading {
                queue_delay: Duration::from_secs_f64(wait),
                ..Reading::default()
            };
            events.extend(vec![(Step::Due(0), Event::Feed(reading)); len]);
            events.extend(change.map(|options| (Step::By(1), Event::Change(options))));
        }
        Script { options, events }
    })
}

fn script(options: impl Strategy<Value = Vec<Options>> + Clone) -> impl Strategy<Value = Script> {
    let step = prop_oneof![
        3 => span().prop_map(Step::By),
        2 => (-1_i64..=1).prop_map(Step::Due),
    ];
    let event = prop_oneof![
        8 => reading().prop_map(Event::Feed),
        1 => options.clone().prop_map(Event::Change),
    ];
    let events = prop::collection::vec((step, event), 1..40);
    (options, events).prop_map(|(options, events)| Script { options, events })
}

fn reading() -> impl Strategy<Value = Reading> {
    let counts = (0_usize..4, any::<bool>());
    (span(), span(), lead(), counts).prop_map(|(queue, process, lead, counts)| Reading {
        queue_delay: Duration::from_nanos(queue),
        process_delay: Duration::from_nanos(process),
        lead,
        backlog: counts.0,
        is_deserted: counts.1,
    })
}

/// Nanoseconds of every magnitude up to a second, often at or beside a number
/// that options like to have.
pub(crate) fn span() -> impl Strategy<Value = u64> + Clone {
    let marks = prop::sample::select(vec![0_u64, 1_000, 50_000_000, 100_000_000, 1_000_000_000]);
    prop_oneof![
        1 => (marks, -1_i64..=1).prop_map(|(mark, beside)| mark.saturating_add_signed(beside)),
        3 => (0_u32..30, any::<u64>()).prop_map(|(bits, noise)| {
            let magnitude = 1 << bits;
            magnitude | (noise & (magnitude - 1))
        }),
    ]
}

fn lead() -> impl Strategy<Value = Lead> + Clone {
    (span(), prop::bool::ANY).prop_map(|(span, negative)| {
        let nanos = i64::try_from(span).unwrap();
        Lead::from_nanos(if negative { -nanos } else { nanos })
    })
}

fn time() -> impl Strategy<Value = Duration> + Clone {
    span().prop_map(Duration::from_nanos)
}

fn positive() -> impl Strategy<Value = Duration> + Clone {
    span().prop_map(|span| Duration::from_nanos(span.max(1)))
}

fn overload() -> impl Strategy<Value = Options> + Clone {
    let name = prop::sample::select(vec!["late", "slow"]);
    (name, time(), positive()).prop_map(|(alarm, target, interval)| {
        Options::Overload(Overload {
            alarm: alarm.into(),
            target,
            interval,
        })
    })
}

fn underload() -> impl Strategy<Value = Options> + Clone {
    let name = prop::sample::select(vec!["idle", "bored"]);
    (name, lead(), positive()).prop_map(|(alarm, target, interval)| {
        Options::Underload(Underload {
            alarm: alarm.into(),
            target,
            interval,
        })
    })
}

fn alarm() -> impl Strategy<Value = Vec<Options>> + Clone {
    prop_oneof![overload(), underload()].prop_map(|options| vec![options])
}

fn better() -> impl Strategy<Value = Vec<Options>> + Clone {
    (time(), time(), positive()).prop_map(|(ask_upper, offer_upper, update)| {
        vec![Options::Better(Better {
            ask_upper,
            offer_upper,
            update,
        })]
    })
}

fn pie() -> impl Strategy<Value = Vec<Options>> + Clone {
    let side = (time(), positive()).prop_map(|(target, interval)| PieSide { target, interval });
    let max = prop::option::of(3_u32..6);
    (side.clone(), side, positive(), 0_u32..4, max, 0_u32..3).prop_map(
        |(ask, offer, update, min, max, probes)| {
            vec![Options::Pie(Pie {
                ask,
                offer,
                update,
                min,
                max,
                probes,
            })]
        },
    )
}

fn update() -> impl Strategy<Value = Vec<Options>> + Clone {
    let names: Vec<_> = ["size", "rate", "gate"]
        .into_iter()
        .flat_map(|regulator| [(regulator, Side::Ask), (regulator, Side::Offer)])
        .collect();
    let names = prop::sample::subsequence(names, 1..=4).prop_shuffle();
    let updates = prop::collection::vec(positive(), 4);
    (names, updates, 0_u64..3).prop_map(|(names, updates, seed)| {
        let entries = names.into_iter().zip(updates);
        let entries = entries.map(|((regulator, side), update)| Entry {
            regulator: regulator.into(),
            side,
            update,
        });
        vec![Options::Update(Update {
            entries: entries.collect(),
            seed,
        })]
    })
}

/// Some meters of different kinds, in any order.
fn several() -> impl Strategy<Value = Vec<Options>> + Clone {
    let kinds = prop::sample::subsequence(vec![0, 1, 2, 3, 4], 0..=5).prop_shuffle();
    let all = (overload(), underload(), better(), pie(), update());
    (kinds, all).prop_map(|(kinds, (overload, underload, better, pie, update))| {
        let all = [vec![overload], vec![underload], better, pie, update].concat();
        kinds.into_iter().map(|kind| all[kind].clone()).collect()
    })
}

/// Meters of which the last cannot be.
fn wrong() -> impl Strategy<Value = Vec<Options>> {
    let zero = Duration::ZERO;
    let entry = Entry {
        regulator: "size".into(),
        side: Side::Ask,
        update: Entry::UPDATE,
    };
    let entries = |entries| Options::Update(Update { entries, seed: 0 });
    let wrong = vec![
        vec![Options::Overload(Overload {
            interval: zero,
            ..Overload::default()
        })],
        vec![Options::Underload(Underload {
            interval: zero,
            ..Underload::default()
        })],
        vec![Options::Better(Better {
            update: zero,
            ..Better::default()
        })],
        vec![Options::Pie(Pie {
            min: 2,
            max: Some(1),
            ..Pie::default()
        })],
        vec![Options::Pie(Pie::default()), Options::Pie(Pie::default())],
        vec![entries(Vec::new())],
        vec![entries(vec![entry.clone(), entry])],
    ];
    prop::sample::select(wrong)
}

fn better_of(options: &[Options]) -> Better {
    match options {
        [Options::Better(options)] => options.clone(),
        other => unreachable!("{other:?} are of another kind"),
    }
}

fn pie_of(options: &[Options]) -> Pie {
    match options {
        [Options::Pie(options)] => options.clone(),
        other => unreachable!("{other:?} are of another kind"),
    }
}

fn update_of(options: &[Options]) -> Update {
    match options {
        [Options::Update(options)] => options.clone(),
        other => unreachable!("{other:?} are of another kind"),
    }
}

fn nanos(span: Duration) -> u64 {
    span.as_nanos().try_into().unwrap()
}

fn signed(span: Duration) -> i128 {
    span.as_nanos().try_into().unwrap()
}
