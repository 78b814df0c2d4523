//! A pool driven at random beside its model.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use rideau_core::pool::{Came, Effect, MemberId, Options, Pool, Priority, Retired, Use};
use rideau_core::queue::AskOptions;
use rideau_core::{Flow, Instant, Machine, Reason, Tag, Ticket};

use super::inputs::Dice;
use super::model::{Doing, Input, Mode, Model, Name, Waiter};

/// No sleep is longer, in nanoseconds.
const HOUR: u64 = 3_600_000_000_000;

pub(crate) struct Run {
    pool: Pool<Name>,
    model: Model,
    dice: Dice,
    now: Instant,
    /// When the driver would wake up.
    next: Option<Instant>,
    tickets: Vec<Ticket>,
    last_name: u64,
    /// This many starts and checks in a hundred go well.
    health: u64,
    /// This many digits have the nanoseconds between two inputs.
    pace: usize,
    /// Some members are taken without asking.
    has_shelf: bool,
    /// Every take waits.
    is_patient: bool,
    is_told: bool,
}

impl Run {
    pub(crate) fn new(seed: u64, is_told: bool) -> Self {
        let mut dice = Dice::new(seed);
        let options = dice.options();
        let mut effects = Vec::new();
        let now = Instant::from_nanos(dice.nanos());
        let pool = Pool::new(options.clone(), now, &mut effects).unwrap();
        let mut run = Self {
            pool,
            model: Model::new(options),
            now,
            next: None,
            tickets: Vec::new(),
            last_name: 0,
            health: dice.one_of(&[10, 50, 90, 100, 100]),
            pace: dice.one_of(&[4, 8, 8, 10, 12]),
            has_shelf: dice.chance(40),
            is_patient: dice.chance(50),
            dice,
            is_told,
        };
        run.model.now = now;
        run.tell(|| format!("options {:?}", run.model.options));
        run.learn(Input::Usual, effects);
        run
    }

    pub(crate) fn step(&mut self) {
        self.pass();
        match self.dice.below(100) {
            0..25 => self.take(),
            25..45 => self.end_some(),
            45..74 => self.tell_some(),
            74..76 => self.lose(),
            76..80 => self.cancel(),
            80 => self.cancel_tag(),
            81 => self.die(),
            82..85 => self.advance(),
            85 if self.dice.chance(50) => self.suspend(),
            85..88 => self.resume(),
            88 => self.replace(),
            89..92 => self.reconfigure(),
            92 => self.garbage(),
            93 => self.health = self.dice.one_of(&[0, 50, 95, 100, 100]),
            94 if self.dice.chance(5) => {
                let within = self.dice.one_of(&[0, 1, 1_000_000]) * self.dice.nanos();
                self.close(within);
            }
            _ => self.use_shelf(),
        }
    }

    /// With all healthy again, every take is served or shed, and the floor is
    /// there.
    pub(crate) fn come_to_rest(&mut self) {
        self.health = 100;
        if !self.model.is_closing() {
            self.resume();
            // A valve may keep a pool small for ever.
            let options = Options {
                valve: None,
                ..self.model.options.clone()
            };
            self.reconfigure_to(options);
        }
        for _ in 0..2_000 {
            if self.is_at_rest() {
                break;
            }
            if !self.work_once() {
                self.now = self.next.expect("something will happen").max(self.now);
                self.advance();
            }
        }
        assert!(self.is_at_rest(), "it never comes to rest");
    }

    /// After a close everything goes, and the pool says so once.
    pub(crate) fn end(&mut self) {
        if self.model.mode != Mode::Closed {
            let within = self.dice.nanos();
            self.close(within);
        }
        for _ in 0..1_000 {
            if !self.work_once() {
                break;
            }
        }
        assert_eq!(self.model.mode, Mode::Closed);
        assert!(self.pool.is_closed());
        assert_eq!(self.pool.deadline(), None);
        let (terms, mut effects) = (AskOptions::new(self.now), Vec::new());
        let reply = || unreachable!("nobody waits any more");
        let came = self
            .pool
            .take(&terms, Priority::Normal, reply, self.now, &mut effects);
        assert!(matches!(came, Came::Refused(no) if no.reason == Reason::Closed));
        self.pool.advance(self.now.after(1 << 40), &mut effects);
        assert!(effects.is_empty());
    }

    fn is_at_rest(&self) -> bool {
        let busy = |doing| !matches!(doing, Doing::Idle(_) | Doing::Cached(_));
        let options = &self.model.options;
        let least = match self.model.is_closing() {
            true => 0,
            false => options.init.max(options.idle_min),
        };
        self.model.waits() + self.model.count(busy) == 0 && self.model.live() >= least
    }

    /// Do whatever can be done; false if nothing could.
    fn work_once(&mut self) -> bool {
        self.drain();
        let slots: Vec<u32> = self.model.members.iter().map(|it| it.slot).collect();
        let mut has_worked = false;
        for slot in slots {
            if self.model.members.iter().all(|it| it.slot != slot) {
                continue;
            }
            match self.model.at(slot).doing {
                Doing::Held => self.release(slot, Use::Fine),
                Doing::Idle(_) | Doing::Cached(_) => continue,
                _ => self.tell_of(slot),
            }
            has_worked = true;
        }
        has_worked
    }

    fn tell(&self, what: impl FnOnce() -> String) {
        if self.is_told {
            println!("{:?}: {}", self.now, what());
        }
    }

    fn pass(&mut self) {
        let soon = self.next.filter(|next| *next < self.now.after(HOUR));
        let next = soon.unwrap_or(self.now).as_nanos();
        self.now = match self.dice.below(10) {
            0..4 => self.now,
            4..7 => self.now.after(self.dice.nanos_of(self.pace)),
            7 => self.now.after(1),
            8 => Instant::from_nanos(next.saturating_sub(1)),
            _ => Instant::from_nanos(next),
        }
        .max(self.now);
        self.model.now = self.now;
        let is_due = self.next.is_some_and(|next| next <= self.now);
        if is_due && self.dice.chance(85) {
            self.advance();
        }
    }

    /// The lent members that were not taken come back before every input.
    fn drain(&mut self) {
        self.model.now = self.now;
        for member in &mut self.model.members {
            if let Doing::Cached(since) = member.doing {
                self.pool.recall(member.slot, since);
                member.doing = Doing::Idle(since);
            }
        }
    }

    /// See what came of an input.
    fn learn(&mut self, input: Input, effects: Vec<Effect<Name>>) {
        self.tell(|| format!("  -> {effects:?}"));
        self.model.input = input;
        self.model.judge(&effects);
        self.finish();
    }

    fn finish(&mut self) {
        let model = &mut self.model;
        model.settle();
        let counts = self.pool.counts();
        let gone = |doing| matches!(doing, Doing::Stopping(_) | Doing::Abandoned);
        assert_eq!(counts.starting, model.starting());
        assert_eq!(counts.idle, model.idle());
        assert_eq!(counts.held, model.held());
        assert_eq!(counts.checking, model.checking());
        assert_eq!(counts.stopping, model.count(gone));
        assert_eq!(self.pool.len(), model.waits());
        assert_eq!(self.pool.is_closed(), model.mode == Mode::Closed);
        self.next = self.pool.deadline();
        model.check_rest(self.pool.circuit(self.now), self.next);
        if self.has_shelf && self.dice.chance(70) {
            self.lend();
        }
    }

    fn lend(&mut self) {
        let mut lent = Vec::new();
        self.pool.lend(&mut lent);
        assert!(lent.is_empty() || self.model.waits() == 0);
        let mut last = Instant::START;
        for slot in lent {
            let member = self.model.at(slot);
            let Doing::Idle(since) = member.doing else {
                panic!("lent while {:?}", member.doing);
            };
            assert!(last <= since, "the newest comes last");
            last = since;
            member.doing = Doing::Cached(since);
        }
        assert_eq!(self.pool.counts().held, self.model.held());
        let (kept, lent) = (self.model.idle(), self.model.held());
        assert!(lent == 0 || kept >= self.model.options.idle_min || lent == self.held());
    }

    fn held(&self) -> usize {
        self.model.count(|doing| doing == Doing::Held)
    }

    fn take(&mut self) {
        if self.model.waits() > 40 {
            return;
        }
        self.drain();
        let now = self.now;
        let late = if self.dice.chance(20) {
            self.dice.nanos()
        } else {
            0
        };
        let terms = AskOptions {
            sent: Instant::from_nanos(now.as_nanos().saturating_sub(late)),
            deadline: self
                .dice
                .chance(20)
                .then(|| now.after(self.dice.nanos() - 1)),
            flow: Flow(self.dice.below(3) as u64),
            tag: self.dice.chance(30).then(|| Tag(self.dice.below(3) as u64)),
            wait: self.is_patient || self.dice.chance(80),
            promised: true,
        };
        let place = self.dice.one_of(&[0, 1, 1, 1, 2]);
        self.last_name += 1;
        let (name, gone) = (self.last_name, Rc::new(Cell::new(false)));
        self.tell(|| format!("take {name} {place} {terms:?}"));
        let reply = Name(name, Rc::clone(&gone));
        let mut effects = Vec::new();
        let priority = Priority::ALL[place];
        let came = self
            .pool
            .take(&terms, priority, || reply, now, &mut effects);
        self.tell(|| format!("  {came:?}"));
        if let Came::Waits(ticket) = came {
            self.tickets.push(ticket);
            assert!(terms.wait);
            self.model.lines[place].push(Waiter {
                name,
                sent: terms.sent,
                deadline: terms.deadline.unwrap_or(Instant::NEVER),
                tag: terms.tag,
                gone,
                ticket: Some(ticket),
            });
        }
        let is_eager = matches!(came, Came::Refused(no) if is_tried(no.reason))
            || self.model.options.grow_at.is_some();
        self.model.is_eager |= is_eager;
        self.tell(|| format!("  -> {effects:?}"));
        self.model.input = Input::Usual;
        self.model.judge(&effects);
        match came {
            Came::Granted(grant) => self.model.grant(grant, terms.sent, terms.wait),
            Came::Refused(no) => self.check_refusal(no.reason, &terms),
            Came::Waits(_) => (),
        }
        self.finish();
    }

    fn check_refusal(&self, reason: Reason, terms: &AskOptions) {
        let model = &self.model;
        let is_right = match reason {
            Reason::Closed => model.is_closing(),
            Reason::Suspended => !terms.wait && model.mode == Mode::Suspended,
            Reason::Busy => !terms.wait && (model.idle() == 0 || model.waits() > 0),
            Reason::Starting => model.options.fail_fast && model.live() == model.starting(),
            Reason::Full => terms.wait && model.options.queue.max.is_some(),
            Reason::Deadline => terms.deadline.is_some_and(|deadline| deadline <= self.now),
            _ => terms.wait,
        };
        assert!(is_right, "refused without a reason: {reason:?}");
    }

    fn pick(&mut self, is: impl Fn(Doing) -> bool) -> Option<u32> {
        let members = self.model.members.iter();
        let slots: Vec<u32> = members
            .filter(|it| is(it.doing))
            .map(|it| it.slot)
            .collect();
        (!slots.is_empty()).then(|| self.dice.one_of(&slots))
    }

    fn end_some(&mut self) {
        let Some(slot) = self.pick(|doing| doing == Doing::Held) else {
            return;
        };
        match self.dice.below(20) {
            0..10 => self.release(slot, Use::Fine),
            10..12 => self.release(slot, Use::Doubtful),
            12..15 => self.release(slot, Use::Over(Retired::Failed)),
            15 => {
                self.drain();
                self.tell(|| format!("detach {slot}"));
                self.model.members.retain(|it| it.slot != slot);
                let mut effects = Vec::new();
                self.pool.detach(slot, self.now, &mut effects);
                self.learn(Input::Usual, effects);
            }
            16..18 => {
                self.drain();
                self.tell(|| format!("decline {slot}"));
                let member = self.model.at(slot);
                (member.doing, member.uses) = (Doing::Here, member.uses - 1);
                let mut effects = Vec::new();
                self.pool.decline(slot, self.now, &mut effects);
                self.learn(Input::Usual, effects);
            }
            _ => self.release_to_shelf(slot),
        }
    }

    fn release(&mut self, slot: u32, used: Use) {
        self.drain();
        self.tell(|| format!("release {slot} {used:?}"));
        let uses_max = self.model.options.uses_max;
        // A waiting take gets nothing unchecked, if so asked.
        let checks_always = self.model.options.check_after == Some(Duration::ZERO);
        let is_to_check = checks_always && self.model.waits() > 0;
        let member = self.model.at(slot);
        assert_eq!(member.doing, Doing::Held);
        let is_used_up = uses_max.is_some_and(|most| member.uses >= most);
        member.doing = match used {
            Use::Fine if !is_used_up && !is_to_check => Doing::Here,
            Use::Fine | Use::Doubtful if !is_used_up => Doing::Doubtful,
            _ => Doing::Over,
        };
        let uses = member.uses;
        let held = Duration::from_nanos(self.dice.nanos());
        let mut effects = Vec::new();
        self.pool
            .release(slot, used, uses, held, self.now, &mut effects);
        self.learn(Input::Usual, effects);
    }

    fn tell_some(&mut self) {
        let is_busy = |doing| {
            matches!(
                doing,
                Doing::Starting(_) | Doing::Checking(_) | Doing::Stopping(_) | Doing::Abandoned
            )
        };
        if let Some(slot) = self.pick(is_busy) {
            self.tell_of(slot);
        }
    }

    /// Something that is done for a member comes to its end.
    fn tell_of(&mut self, slot: u32) {
        self.drain();
        let (doing, id) = (self.model.at(slot).doing, self.model.at(slot).id);
        let is_well = self.dice.chance(self.health);
        self.tell(|| format!("end of {doing:?} at {slot}, well: {is_well}"));
        match doing {
            Doing::Starting(_) if is_well => self.start_well(slot, id),
            Doing::Checking(_) if is_well || self.dice.chance(80) => {
                let member = self.model.at(slot);
                member.doing = if is_well { Doing::Here } else { Doing::Over };
                let mut effects = Vec::new();
                let wanted = self.pool.checked(slot, id, is_well, self.now, &mut effects);
                assert!(wanted, "it was not abandoned");
                self.learn(Input::Usual, effects);
            }
            Doing::Abandoned if self.dice.chance(30) => {
                let mut effects = Vec::new();
                let late = self.pool.started(slot, id, self.now, &mut effects);
                assert_eq!(late, None, "a late start is not wanted");
                assert!(!self.pool.checked(slot, id, true, self.now, &mut effects));
                assert!(effects.is_empty());
            }
            _ => {
                self.model.members.retain(|it| it.slot != slot);
                let mut effects = Vec::new();
                self.pool.gone(slot, id, self.now, &mut effects);
                self.learn(Input::Usual, effects);
            }
        }
    }

    fn start_well(&mut self, slot: u32, id: MemberId) {
        let (now, generation) = (self.now, self.model.generation);
        let options = &self.model.options;
        // No clock counts further.
        let life = options
            .life_max
            .map(|life| life.min(Duration::from_nanos(u64::MAX)));
        let soonest = life.map(|life| now + life.saturating_sub(options.life_jitter));
        let latest = life.map(|life| now + life.saturating_add(options.life_jitter));
        let mut effects = Vec::new();
        let birth = self.pool.started(slot, id, now, &mut effects);
        let birth = birth.expect("it was not abandoned");
        assert_eq!((birth.id, birth.born), (id, now));
        assert_eq!(birth.generation, generation);
        assert!(birth.until >= soonest.unwrap_or(Instant::NEVER));
        assert!(birth.until <= latest.unwrap_or(Instant::NEVER));
        let member = self.model.at(slot);
        (member.born, member.until, member.doing) = (now, birth.until, Doing::Here);
        self.learn(Input::Usual, effects);
    }

    fn lose(&mut self) {
        self.drain();
        let is_there = |doing| matches!(doing, Doing::Idle(_) | Doing::Held | Doing::Checking(_));
        let Some(slot) = self.pick(is_there) else {
            return;
        };
        self.tell(|| format!("lose {slot}"));
        let member = self.model.at(slot);
        member.is_bad = true;
        let id = member.id;
        if let Doing::Idle(_) = member.doing {
            member.doing = Doing::Over;
        }
        let mut effects = Vec::new();
        self.pool.lost(slot, id, self.now, &mut effects);
        self.learn(Input::Usual, effects);
    }

    fn cancel(&mut self) {
        if self.tickets.is_empty() {
            return;
        }
        self.drain();
        let newest = self.tickets.len().saturating_sub(6);
        let at = newest + self.dice.below(self.tickets.len() - newest);
        let ticket = self.tickets.remove(at);
        let waiters = self.model.lines.iter().flatten();
        let name = waiters.clone().find(|it| it.ticket == Some(ticket));
        let name = name.map(|it| it.name);
        self.tell(|| format!("cancel {name:?}"));
        let mut effects = Vec::new();
        let left = self.pool.cancel(ticket, self.now, &mut effects);
        assert_eq!(left.map(|(reply, _)| reply.0), name);
        name.map(|name| self.model.leave(name));
        self.learn(Input::Usual, effects);
    }

    fn cancel_tag(&mut self) {
        self.drain();
        let tag = Tag(self.dice.below(3) as u64);
        self.tell(|| format!("cancel {tag:?}"));
        let waiters = self.model.lines.iter().flatten();
        let tagged = waiters.filter(|it| it.tag == Some(tag));
        let mut names: Vec<u64> = tagged.map(|it| it.name).collect();
        let mut effects = Vec::new();
        let left = self.pool.cancel_tag(tag, self.now, &mut effects);
        let mut left: Vec<u64> = left.iter().map(|(reply, _)| reply.0).collect();
        left.sort_unstable();
        names.sort_unstable();
        assert_eq!(left, names);
        for name in names {
            self.model.leave(name);
        }
        self.learn(Input::Usual, effects);
    }

    /// A waiting take is gone, and is not cancelled.
    fn die(&mut self) {
        let waiters: Vec<_> = self.model.lines.iter().flatten().collect();
        if !waiters.is_empty() {
            waiters[self.dice.below(waiters.len())].gone.set(true);
        }
    }

    fn advance(&mut self) {
        self.drain();
        self.tell(|| "advance".into());
        let mut effects = Vec::new();
        self.pool.advance(self.now, &mut effects);
        self.learn(Input::Advance, effects);
        assert!(
            self.next.is_none_or(|next| next > self.now),
            "it would be advanced again and again"
        );
    }

    fn suspend(&mut self) {
        self.drain();
        self.tell(|| "suspend".into());
        self.pool.suspend();
        if self.model.mode == Mode::Running {
            self.model.mode = Mode::Suspended;
        }
    }

    fn resume(&mut self) {
        self.drain();
        self.tell(|| "resume".into());
        let mut effects = Vec::new();
        self.pool.resume(self.now, &mut effects);
        if self.model.mode == Mode::Suspended {
            self.model.mode = Mode::Running;
            self.learn(Input::Usual, effects);
        } else {
            assert!(effects.is_empty());
        }
    }

    fn replace(&mut self) {
        self.drain();
        let over = Duration::from_nanos(self.dice.nanos());
        self.tell(|| format!("replace over {over:?}"));
        if !self.model.is_closing() {
            self.model.generation += 1;
        }
        let before = self.model.members.clone();
        let mut effects = Vec::new();
        self.pool.replace(over, self.now, &mut effects);
        for effect in &effects {
            if let Effect::Mark { slot, until } = effect {
                let was = before.iter().find(|it| it.slot == *slot).unwrap().until;
                assert!(*until <= was, "nobody lives longer for it");
                assert!(*until <= self.now.max(was).min(self.now + over));
            }
        }
        self.learn(Input::Replace, effects);
    }

    fn reconfigure(&mut self) {
        let mut options = self.dice.options();
        if self.dice.chance(20) {
            self.drain();
            options.init = options.max + 1;
            let (before, counts) = (self.pool.options().clone(), self.pool.counts());
            let mut effects = Vec::new();
            let changed = self.pool.reconfigure(options, self.now, &mut effects);
            assert!(changed.is_err() && effects.is_empty());
            assert_eq!(*self.pool.options(), before);
            assert_eq!(self.pool.counts(), counts);
            return;
        }
        self.reconfigure_to(options);
    }

    fn reconfigure_to(&mut self, options: Options) {
        self.drain();
        self.tell(|| format!("reconfigure {options:?}"));
        self.model.change(options.clone());
        let mut effects = Vec::new();
        let changed = self.pool.reconfigure(options, self.now, &mut effects);
        changed.expect("the options are valid");
        self.learn(Input::Reconfigure, effects);
    }

    fn close(&mut self, within: u64) {
        self.drain();
        let mut deadline = self.now.after(within);
        self.tell(|| format!("close by {deadline:?}"));
        let mut effects = Vec::new();
        self.pool.close(deadline, self.now, &mut effects);
        if let Mode::Closing(before) = self.model.mode {
            deadline = deadline.min(before);
        }
        if self.model.mode != Mode::Closed {
            self.model.mode = Mode::Closing(deadline);
        }
        self.learn(Input::Close, effects);
    }

    /// Words about members that are not there change nothing.
    fn garbage(&mut self) {
        self.drain();
        let (slot, now) = (self.dice.below(8) as u32, self.now);
        let id = MemberId(1 << 40);
        let mut effects = Vec::new();
        assert_eq!(self.pool.started(slot, id, now, &mut effects), None);
        assert!(!self.pool.checked(slot, id, true, now, &mut effects));
        self.pool.lost(slot, id, now, &mut effects);
        self.pool.gone(slot, id, now, &mut effects);
        assert!(effects.is_empty());
    }

    /// A holder takes a lent member without an ask.
    fn use_shelf(&mut self) {
        self.model.now = self.now;
        let lies = |doing| matches!(doing, Doing::Cached(_));
        let Some(slot) = self.pick(lies) else {
            return;
        };
        let Doing::Cached(since) = self.model.at(slot).doing else {
            unreachable!("it lies there");
        };
        if self.model.is_stale(since) || self.model.at(slot).until <= self.now {
            return;
        }
        self.tell(|| format!("take {slot} from the idle cache"));
        let member = self.model.at(slot);
        assert!(!member.is_bad);
        (member.doing, member.uses) = (Doing::Held, member.uses + 1);
    }

    /// A holder gives a member back to where it is taken without an ask.
    fn release_to_shelf(&mut self, slot: u32) {
        let uses_max = self.model.options.uses_max;
        let may_lend = self.has_shelf && self.pool.may_lend();
        let now = self.now;
        let member = self.model.at(slot);
        let is_used_up = uses_max.is_some_and(|most| member.uses >= most);
        if may_lend && !is_used_up && !member.is_bad && member.until > now {
            member.doing = Doing::Cached(now);
            self.tell(|| format!("release {slot} to the idle cache"));
        }
    }
}

/// A take was refused for which a start may be tried.
fn is_tried(reason: Reason) -> bool {
    !matches!(reason, Reason::Closed | Reason::Suspended)
}
