//! A pool as plain lists: what each member is doing, which takes wait in which
//! order, and what may happen to each of them.
//!
//! The model decides nothing that follows from chance. It is told the inputs,
//! judges every effect in its order, and says afterwards what should have
//! happened and did not.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use rideau_core::pool::{Circuit, Effect, Grant, MemberId, Options, Retired, Reuse};
use rideau_core::queue::{Order, Shedding};
use rideau_core::{Instant, Reason, Refusal, Reply, Tag, Ticket};

#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Doing {
    Starting(Instant),
    /// It has just come: from a start, a check or a holder.
    Here,
    /// As before, but it is not granted before a check.
    Doubtful,
    /// As before, and it has to go.
    Over,
    Idle(Instant),
    Cached(Instant),
    Held,
    Checking(Instant),
    Stopping(Instant),
    Abandoned,
}

#[derive(Clone, Debug)]
pub(crate) struct Member {
    pub(crate) slot: u32,
    pub(crate) id: MemberId,
    pub(crate) doing: Doing,
    pub(crate) born: Instant,
    pub(crate) until: Instant,
    pub(crate) generation: u64,
    pub(crate) uses: u64,
    /// It ended by itself, or its use failed.
    pub(crate) is_bad: bool,
    revoked: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct Waiter {
    pub(crate) name: u64,
    pub(crate) sent: Instant,
    pub(crate) deadline: Instant,
    pub(crate) tag: Option<Tag>,
    pub(crate) gone: Rc<Cell<bool>>,
    pub(crate) ticket: Option<Ticket>,
}

/// How a taker is answered.
#[derive(Clone, Debug)]
pub(crate) struct Name(pub(crate) u64, pub(crate) Rc<Cell<bool>>);

impl Reply for Name {
    fn is_gone(&self) -> bool {
        self.1.get()
    }
}

#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Mode {
    Running,
    Suspended,
    Closing(Instant),
    Closed,
}

/// What the input allows beside the usual.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Input {
    Usual,
    Advance,
    Replace,
    Reconfigure,
    Close,
}

pub(crate) struct Model {
    pub(crate) options: Options,
    pub(crate) mode: Mode,
    pub(crate) members: Vec<Member>,
    pub(crate) lines: [Vec<Waiter>; 3],
    pub(crate) generation: u64,
    pub(crate) now: Instant,
    pub(crate) input: Input,
    /// Something may have been started ahead of need.
    pub(crate) is_eager: bool,
    last_id: u64,
    /// In this call: members started, takers let go.
    started: usize,
    let_go: usize,
}

impl Model {
    pub(crate) fn new(options: Options) -> Self {
        Self {
            options,
            mode: Mode::Running,
            members: Vec::new(),
            lines: [const { Vec::new() }; 3],
            generation: 0,
            now: Instant::START,
            input: Input::Usual,
            is_eager: false,
            last_id: 0,
            started: 0,
            let_go: 0,
        }
    }

    pub(crate) fn change(&mut self, options: Options) {
        if self.options.queue.fair.is_some() && options.queue.fair.is_none() {
            // Takes that waited in many lines stand in one by age.
            for line in &mut self.lines {
                line.sort_by_key(|it| (it.sent, it.name));
            }
        }
        self.options = options;
    }

    pub(crate) fn count(&self, is: impl Fn(Doing) -> bool) -> usize {
        self.members.iter().filter(|it| is(it.doing)).count()
    }

    pub(crate) fn live(&self) -> usize {
        let gone = |doing| matches!(doing, Doing::Stopping(_) | Doing::Abandoned);
        self.count(|doing| !gone(doing))
    }

    pub(crate) fn starting(&self) -> usize {
        self.count(|doing| matches!(doing, Doing::Starting(_)))
    }

    pub(crate) fn checking(&self) -> usize {
        self.count(|doing| matches!(doing, Doing::Checking(_)))
    }

    pub(crate) fn idle(&self) -> usize {
        self.count(|doing| matches!(doing, Doing::Idle(_)))
    }

    pub(crate) fn held(&self) -> usize {
        self.count(|doing| matches!(doing, Doing::Held | Doing::Cached(_)))
    }

    pub(crate) fn waits(&self) -> usize {
        self.lines.iter().map(Vec::len).sum()
    }

    pub(crate) fn is_closing(&self) -> bool {
        matches!(self.mode, Mode::Closing(_) | Mode::Closed)
    }

    pub(crate) fn at(&mut self, slot: u32) -> &mut Member {
        let at = self.members.iter_mut().find(|it| it.slot == slot);
        at.expect("there is a member in the slot")
    }

    fn of(&mut self, slot: u32, id: MemberId) -> &mut Member {
        let member = self.at(slot);
        assert_eq!(member.id, id, "the slot has that member");
        member
    }

    pub(crate) fn is_stale(&self, since: Instant) -> bool {
        let after = self.options.check_after;
        after.is_some_and(|after| after.is_zero() || self.now.since(since) > after)
    }

    /// Judge what one input brought about.
    pub(crate) fn judge(&mut self, effects: &[Effect<Name>]) {
        (self.started, self.let_go) = (0, 0);
        let ended: Vec<u64> = effects
            .iter()
            .filter_map(|effect| match effect {
                Effect::Shed { reply, .. } | Effect::Forget(reply) => Some(reply.0),
                _ => None,
            })
            .collect();
        for effect in effects {
            assert_ne!(self.mode, Mode::Closed, "nothing follows the end");
            self.judge_one(effect, &ended);
        }
    }

    fn judge_one(&mut self, effect: &Effect<Name>, ended: &[u64]) {
        match effect {
            Effect::Grant { reply, grant } => {
                assert!(!reply.1.get(), "no ask is granted that is gone");
                let waiter = self.next_waiter(reply.0, ended);
                self.grant(*grant, waiter.sent, true);
            }
            Effect::Shed { reply, refusal } => self.shed(reply.0, *refusal),
            Effect::Forget(reply) => {
                assert!(reply.1.get(), "no ask is forgotten that is there");
                self.leave(reply.0);
            }
            Effect::Start { slot, id } => self.start(*slot, *id),
            Effect::Check { slot, id } => self.check(*slot, *id),
            Effect::Stop { slot, id, why } => self.stop(*slot, *id, *why),
            Effect::Abandon { slot, id } => self.abandon(*slot, *id),
            Effect::Mark { slot, until } => {
                let is_closing = self.is_closing();
                let member = self.at(*slot);
                let is_over = member.is_bad || is_closing;
                assert!(
                    !is_over || *until == Instant::START,
                    "no life after the end"
                );
                member.until = *until;
            }
            Effect::Revoke { slot, id } => {
                let Mode::Closing(deadline) = self.mode else {
                    panic!("only a pool that closes revokes");
                };
                assert!(deadline <= self.now, "revoked before the deadline");
                let member = self.of(*slot, *id);
                assert_eq!(member.doing, Doing::Held);
                member.revoked = true;
            }
            Effect::Look => panic!("nobody shares room out here"),
            Effect::Closed => {
                assert!(self.is_closing() && self.members.is_empty());
                assert_eq!(self.waits(), 0, "what waits was refused before");
                self.mode = Mode::Closed;
            }
        }
    }

    /// Take out the one whose turn it is, if the order is plain.
    fn next_waiter(&mut self, name: u64, ended: &[u64]) -> Waiter {
        let queue = &self.options.queue;
        let is_there = |it: &&Waiter| !ended.contains(&it.name) && !it.gone.get();
        let mut lines = self.lines.iter();
        let line = lines.find(|line| line.iter().any(|it| is_there(&it)));
        let line = line.expect("an ask waits");
        let expected = match queue.order {
            Order::Lifo => line.iter().rfind(is_there),
            _ => line.iter().find(is_there),
        };
        match queue.fair {
            None => assert_eq!(expected.unwrap().name, name, "it is another one's turn"),
            Some(_) => assert!(line.iter().any(|it| it.name == name)),
        }
        self.leave(name)
    }

    pub(crate) fn leave(&mut self, name: u64) -> Waiter {
        for line in &mut self.lines {
            if let Some(at) = line.iter().position(|it| it.name == name) {
                self.let_go += 1;
                return line.remove(at);
            }
        }
        panic!("only a waiting take is answered")
    }

    /// A member is handed out.
    pub(crate) fn grant(&mut self, grant: Grant, sent: Instant, waited: bool) {
        let (now, max, live) = (self.now, self.options.max, self.live());
        assert_eq!(self.mode, Mode::Running);
        assert!(live <= max, "a surplus is not handed out");
        let idle = |it: &Member| match it.doing {
            Doing::Idle(since) => Some(since),
            _ => None,
        };
        let sinces = self.members.iter().filter_map(idle);
        let (oldest, newest) = (sinces.clone().min(), sinces.max());
        let doing = self.at(grant.slot).doing;
        let since = match doing {
            Doing::Here => now,
            Doing::Idle(since) => {
                let is_stale = self.is_stale(since);
                assert!(!waited || !is_stale, "it had to be checked first");
                let is_first = match self.options.reuse {
                    Reuse::Lifo => Some(since) == newest,
                    // While the oldest is checked the newest is known to be fresh.
                    Reuse::Fifo if self.checking() > 0 && Some(since) == newest => true,
                    Reuse::Fifo => Some(since) == oldest,
                };
                assert!(is_first, "another one was first");
                since
            }
            other => panic!("granted while {other:?}"),
        };
        let member = self.at(grant.slot);
        assert!(!member.is_bad && member.until > now, "its life is over");
        member.doing = Doing::Held;
        member.uses += 1;
        assert_eq!(grant.waited, now.since(sent));
        assert_eq!(grant.lead, sent.lead_over(since));
    }

    fn shed(&mut self, name: u64, refusal: Refusal) {
        let (now, queue) = (self.now, self.options.queue.clone());
        let waiter = self.leave(name);
        assert_eq!(refusal.waited, now.since(waiter.sent));
        let is_right = match refusal.reason {
            Reason::Deadline => waiter.deadline <= now,
            Reason::Timeout => match queue.shedding {
                Shedding::Timeout { wait_max } => waiter.sent + wait_max <= now,
                _ => false,
            },
            Reason::Full => queue.max.is_some(),
            Reason::Closed => self.is_closing(),
            Reason::Starting => self.options.fail_fast && self.live() == self.starting(),
            Reason::CoDel | Reason::Bound => matches!(
                queue.shedding,
                Shedding::CoDel { .. } | Shedding::BoundedCoDel { .. }
            ),
            Reason::Standing => matches!(queue.shedding, Shedding::Standing { .. }),
            _ => false,
        };
        assert!(is_right, "no reason: {refusal:?}");
    }

    fn start(&mut self, slot: u32, id: MemberId) {
        assert!(!self.is_closing(), "nothing starts while the pool closes");
        assert!(id.0 > self.last_id, "an id is given once");
        assert!(
            self.members.iter().all(|it| it.slot != slot),
            "a slot has one member"
        );
        assert!(self.members.len() < self.options.max, "no more than max");
        assert!(self.starting() < self.options.starts_max);
        self.last_id = id.0;
        self.started += 1;
        self.members.push(Member {
            slot,
            id,
            doing: Doing::Starting(self.now + self.options.start_timeout),
            born: self.now,
            until: Instant::NEVER,
            generation: self.generation,
            uses: 0,
            is_bad: false,
            revoked: false,
        });
    }

    fn check(&mut self, slot: u32, id: MemberId) {
        let (until, waits) = (self.now + self.options.start_timeout, self.waits());
        let is_stale = match self.of(slot, id).doing {
            Doing::Doubtful => true,
            Doing::Idle(since) => {
                // The take that came just now counts too.
                assert!(
                    waits + 1 > self.checking(),
                    "one check for each waiting ask"
                );
                self.is_stale(since)
            }
            other => panic!("checked while {other:?}"),
        };
        assert!(is_stale && !self.is_closing());
        self.of(slot, id).doing = Doing::Checking(until);
    }

    fn stop(&mut self, slot: u32, id: MemberId, why: Retired) {
        let (now, live, options) = (self.now, self.live(), self.options.clone());
        let there = live - self.starting();
        let (idle, generation, is_closing) = (self.idle(), self.generation, self.is_closing());
        let sinces = self.members.iter().filter_map(|it| match it.doing {
            Doing::Idle(since) => Some(since),
            _ => None,
        });
        let oldest = sinces.min();
        let member = self.of(slot, id);
        let is_idle = matches!(member.doing, Doing::Idle(_));
        let is_here = matches!(member.doing, Doing::Here | Doing::Doubtful | Doing::Over);
        assert!(is_idle || is_here, "stopped while {:?}", member.doing);
        let is_right = match (why, member.doing) {
            (Retired::Idle, Doing::Idle(since)) => {
                let age = options.idle_age_max.expect("ages do not matter");
                let is_floor = there > options.init && idle > options.idle_min;
                Some(since) == oldest && since + age <= now && is_floor
            }
            (Retired::Aged, _) => member.until <= now && member.generation == generation,
            (Retired::Replaced, _) => member.until <= now && member.generation < generation,
            (Retired::Used, _) => {
                is_here && options.uses_max.is_some_and(|most| member.uses >= most)
            }
            (Retired::Failed | Retired::Broken, _) => member.doing == Doing::Over,
            (Retired::Lost, _) => member.is_bad,
            (Retired::Surplus, _) => live > options.max || options.valve.is_some(),
            (Retired::Closed, _) => is_closing,
            _ => false,
        };
        assert!(is_right, "not {why:?}: {member:?}");
        member.doing = Doing::Stopping(now + options.stop_timeout);
    }

    fn abandon(&mut self, slot: u32, id: MemberId) {
        let (now, input, live) = (self.now, self.input, self.live());
        let is_surplus = input == Input::Reconfigure
            && (live > self.options.max || self.options.valve.is_some());
        let is_late = matches!(self.mode, Mode::Closing(deadline) if deadline <= now);
        let member = self.of(slot, id);
        let is_right = match member.doing {
            Doing::Starting(until) => {
                until <= now || is_surplus || input == Input::Replace || input == Input::Close
            }
            Doing::Checking(until) => until <= now || is_surplus || is_late,
            Doing::Stopping(until) => until <= now,
            _ => false,
        };
        assert!(is_right, "abandoned without a reason: {member:?}");
        member.doing = Doing::Abandoned;
    }

    /// What the input brought is idle now unless something was done with it.
    pub(crate) fn settle(&mut self) {
        let (now, is_closing) = (self.now, self.is_closing());
        let is_surplus = self.live() > self.options.max;
        for member in &mut self.members {
            match member.doing {
                Doing::Here => {
                    assert!(member.until > now, "its life is over");
                    assert!(!member.is_bad && !is_closing && !is_surplus, "{member:?}");
                    member.doing = Doing::Idle(now);
                }
                Doing::Doubtful | Doing::Over => panic!("forgotten: {member:?}"),
                _ => (),
            }
        }
    }

    /// What must be true after every input.
    pub(crate) fn check_rest(&self, circuit: Circuit, next: Option<Instant>) {
        self.check_limits();
        if self.is_closing() {
            let left = self.waits() + self.starting() + self.idle();
            assert_eq!(left, 0, "a pool that closes starts and keeps nothing");
            assert_eq!(self.members.is_empty(), self.mode == Mode::Closed);
            return;
        }
        if self.mode == Mode::Running && self.waits() > 0 {
            assert!(self.waits() <= self.checking() || self.idle() == 0);
            let is_fresh = |doing| matches!(doing, Doing::Idle(since) if !self.is_stale(since));
            assert_eq!(self.count(is_fresh), 0, "no ask waits for what is free");
        }
        if self.options.valve.is_none() {
            self.check_growth(circuit, next);
        }
        let due = self.next_due();
        let next = next.unwrap_or(Instant::NEVER);
        assert!(next <= due, "due at {due:?}, but asleep until {next:?}");
    }

    fn check_limits(&self) {
        let (max, held) = (self.options.max, self.held());
        let live = self.live();
        assert!(
            live <= max.max(held),
            "{live} members, {held} held, of {max}"
        );
        if self.options.queue.fair.is_none() {
            let most = self.options.queue.max.unwrap_or(u32::MAX);
            assert!(self.lines.iter().all(|line| line.len() <= most as usize));
        }
    }

    /// What is wanted is there, coming or will be tried, and no more than that.
    fn check_growth(&self, circuit: Circuit, next: Option<Instant>) {
        let options = &self.options;
        let (starting, live) = (self.starting(), self.live());
        let coming = self.idle() + self.checking() + starting;
        let wanted = |waits: usize, started: usize| {
            let kept = options.init.saturating_sub(live - started);
            let needed = (waits + options.idle_min).saturating_sub(coming - started.min(coming));
            kept.max(needed)
        };
        if !self.is_eager {
            let most = wanted(self.waits() + self.let_go, self.started);
            assert!(self.started <= most, "{} started, not {most}", self.started);
        }
        if wanted(self.waits(), 0) == 0 || self.members.len() >= options.max {
            return;
        }
        let (most, retry_after) = match circuit {
            Circuit::Closed => (options.starts_max, None),
            Circuit::Failing { retry_after, .. } => (options.starts_max, Some(retry_after)),
            Circuit::Open { retry_after, .. } => (1, Some(retry_after)),
        };
        if starting < most {
            let retry_after = retry_after.expect("starting works, and nothing is started");
            assert!(retry_after > Duration::ZERO, "it is time to start");
            let next = next.expect("there will be a retry");
            assert!(next <= self.now + retry_after, "it would be late");
        }
    }

    /// When something has to be done at the latest.
    pub(crate) fn next_due(&self) -> Instant {
        let mut due = Instant::NEVER;
        for member in &self.members {
            due = due.min(match member.doing {
                Doing::Starting(until) | Doing::Checking(until) | Doing::Stopping(until) => until,
                Doing::Idle(since) => member.until.min(self.idle_until(since)),
                _ => Instant::NEVER,
            });
        }
        for waiter in self.lines.iter().flatten() {
            due = due.min(waiter.deadline);
        }
        // A queue looks at its oldest only.
        for waiter in self.lines.iter().filter_map(|line| line.first()) {
            if let Shedding::Timeout { wait_max } = self.options.queue.shedding {
                due = due.min(waiter.sent + wait_max);
            }
        }
        if let Mode::Closing(deadline) = self.mode {
            let is_held = |it: &Member| it.doing == Doing::Held && !it.revoked;
            if self.members.iter().any(is_held) || self.checking() > 0 {
                due = due.min(deadline);
            }
        }
        due
    }

    fn idle_until(&self, since: Instant) -> Instant {
        let options = &self.options;
        let is_spare =
            self.live() - self.starting() > options.init && self.idle() > options.idle_min;
        match options.idle_age_max {
            Some(age) if is_spare && options.valve.is_none() => since + age,
            _ => Instant::NEVER,
        }
    }
}
