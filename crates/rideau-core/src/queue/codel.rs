//! Controlled delay: sheds ever faster while a queue stays slow.
//!
//! Arithmetic on waits only; the entries belong to the line. This is the strict
//! form: no entry whose wait is below the target is ever shed.

use crate::refusal::Reason;
use crate::time::Instant;

/// Whether an entry stays in the line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    Keep,
    Shed(Reason),
}

/// How much one operation on the queue has shed so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Progress {
    #[default]
    Nothing,
    /// The first of an episode: one operation sheds no more than that.
    Entered,
    /// A later one of an episode.
    Continued,
}

/// The control law and where it stands.
///
/// Invariant: before `gate` nothing can change but by a dequeue, so when
/// `gate` has come, so has `until` or `next`.
#[derive(Clone, Debug)]
pub(crate) struct CoDel {
    target: u64,
    interval: u64,
    /// Waits over this are shed at once during overload.
    bound: u64,
    phase: Phase,
    count: u64,
    next: Instant,
    gate: Instant,
    /// Overload outlasts an episode until no entry was slow for an interval:
    /// one quick serve does not prove that it is over.
    overload: Instant,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    /// Waits are acceptable.
    Fast,
    /// Waits are too long, and will be acted on at `until`.
    Slow { until: Instant },
    /// Waits have been too long for an interval.
    Shedding,
}

impl CoDel {
    pub(crate) const fn new(target: u64, interval: u64, bound: u64, now: Instant) -> Self {
        Self {
            target,
            interval,
            bound,
            phase: Phase::Fast,
            count: 0,
            next: now,
            gate: now,
            overload: Instant::START,
        }
    }

    /// Judge the entry that a dequeue would deliver; `spare` if more than
    /// the protected minimum wait.
    pub(crate) fn judge(
        &mut self,
        sent: Instant,
        spare: bool,
        progress: &mut Progress,
        now: Instant,
    ) -> Verdict {
        if !spare {
            self.calm(now);
            return Verdict::Keep;
        }
        if self.is_fast(sent, now) {
            self.phase = Phase::Fast;
            self.gate = sent.after(self.target);
            return Verdict::Keep;
        }
        self.end_overload(now);
        self.prolong(now);
        if self.is_over_bound(sent, now) {
            return Verdict::Shed(Reason::Bound);
        }
        match progress {
            Progress::Nothing => (),
            Progress::Entered => return Verdict::Keep,
            Progress::Continued => self.count_on(),
        }
        if self.gate > now {
            return Verdict::Keep;
        }
        match self.phase {
            Phase::Fast => {
                self.slow_down(now);
                Verdict::Keep
            }
            Phase::Slow { .. } => {
                self.enter(now);
                *progress = Progress::Entered;
                Verdict::Shed(Reason::CoDel)
            }
            Phase::Shedding => {
                *progress = Progress::Continued;
                Verdict::Shed(Reason::CoDel)
            }
        }
    }

    /// Judge the oldest entry while no entry is being served. This never ends
    /// an episode: only a dequeue can.
    pub(crate) fn scan(&mut self, sent: Instant, progress: &mut Progress, now: Instant) -> Verdict {
        self.end_overload(now);
        if self.is_over_bound(sent, now) {
            return Verdict::Shed(Reason::Bound);
        }
        if *progress == Progress::Entered || self.gate > now {
            return Verdict::Keep;
        }
        if self.is_fast(sent, now) {
            self.gate = sent.after(self.target);
            return Verdict::Keep;
        }
        match self.phase {
            Phase::Fast => {
                self.slow_down(now);
                Verdict::Keep
            }
            Phase::Slow { .. } => {
                self.enter(now);
                *progress = Progress::Entered;
                Verdict::Shed(Reason::CoDel)
            }
            Phase::Shedding => {
                self.count_on();
                *progress = Progress::Continued;
                Verdict::Shed(Reason::CoDel)
            }
        }
    }

    /// Judge an entry that was taken from the newest end and leaves the line
    /// empty: then the law has no other entry to look at.
    pub(crate) fn judge_last(&mut self, sent: Instant, now: Instant) -> Verdict {
        if self.is_fast(sent, now) {
            return Verdict::Keep;
        }
        match self.phase {
            Phase::Fast => {
                self.slow_down(now);
                Verdict::Keep
            }
            Phase::Slow { until } if until <= now => {
                self.enter(now);
                self.calm(now);
                Verdict::Shed(Reason::CoDel)
            }
            Phase::Shedding if self.next <= now => {
                self.count_on();
                self.calm(now);
                Verdict::Shed(Reason::CoDel)
            }
            Phase::Slow { .. } | Phase::Shedding => Verdict::Keep,
        }
    }

    /// End the episode, if there is one.
    pub(crate) fn calm(&mut self, now: Instant) {
        self.phase = Phase::Fast;
        self.gate = now;
    }

    /// A dequeue found the line empty.
    pub(crate) fn found_empty(&mut self, now: Instant) {
        if self.phase != Phase::Fast {
            self.calm(now);
        }
    }

    /// Something may have to change now.
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        self.gate <= now
    }

    /// No entry may wait this long during an episode.
    pub(crate) fn is_over_bound(&self, sent: Instant, now: Instant) -> bool {
        self.is_overloaded(now) && sent.after(self.bound) < now
    }

    /// When the line has to be looked at again, if more than the protected
    /// minimum wait and the oldest was sent at `sent`.
    pub(crate) fn due(&self, sent: impl FnOnce() -> Instant) -> Instant {
        if !self.has_overload() {
            return self.gate;
        }
        let over = sent().after(self.bound).after(1);
        if self.is_overloaded(over) {
            self.gate.min(over)
        } else {
            self.gate
        }
    }

    /// The queue is overloaded as this law sees it.
    pub(crate) fn is_shedding(&self) -> bool {
        self.phase == Phase::Shedding
    }

    /// An emptied line is worth remembering until here: a new episode that
    /// starts before goes on where the last one ended.
    pub(crate) fn memory(&self, now: Instant) -> Instant {
        self.next.after(self.interval.saturating_mul(8)).max(now)
    }

    pub(crate) fn reconfigure(&mut self, target: u64, interval: u64, bound: u64, now: Instant) {
        (self.target, self.interval, self.bound) = (target, interval, bound);
        let latest = now.after(interval);
        self.next = self.next.min(latest);
        self.overload = self.overload.min(latest);
        self.gate = match &mut self.phase {
            Phase::Fast => now,
            Phase::Slow { until } => {
                *until = latest.min(*until);
                *until
            }
            Phase::Shedding => self.next,
        };
    }

    /// No entry is to be shed now, whatever waits.
    pub(crate) fn is_quiet(&self, now: Instant) -> bool {
        self.gate > now && !self.has_overload()
    }

    /// There is an overload, or was one whose end was not seen.
    fn has_overload(&self) -> bool {
        self.phase == Phase::Shedding || self.overload != Instant::START
    }

    fn is_fast(&self, sent: Instant, now: Instant) -> bool {
        sent.after(self.target) > now
    }

    fn is_overloaded(&self, now: Instant) -> bool {
        self.phase == Phase::Shedding || now < self.overload
    }

    /// An entry is slow: overload goes on, if it is one.
    fn prolong(&mut self, now: Instant) {
        if self.is_overloaded(now) {
            self.overload = now.after(self.interval);
        }
    }

    /// Forget an overload that is over, so that its end is not looked for
    /// again.
    fn end_overload(&mut self, now: Instant) {
        if !self.is_overloaded(now) {
            self.overload = Instant::START;
        }
    }

    fn slow_down(&mut self, now: Instant) {
        self.prolong(now);
        let until = now.after(self.interval);
        self.phase = Phase::Slow { until };
        self.gate = until;
    }

    /// The first shed of an episode; one that follows the last closely starts
    /// near the pace where that one ended.
    fn enter(&mut self, now: Instant) {
        let since_last = now.as_nanos().saturating_sub(self.next.as_nanos());
        if self.count > 2 && since_last < self.interval.saturating_mul(8) {
            self.count -= 2;
            self.next = now.after(self.pace());
        } else {
            self.count = 1;
            self.next = now.after(self.interval);
        }
        self.phase = Phase::Shedding;
        self.gate = self.next;
        self.overload = now.after(self.interval);
    }

    /// Each later shed, counted from when the last was due, not from now.
    fn count_on(&mut self) {
        self.count += 1;
        self.next = self.next.after(self.pace());
        self.gate = self.next;
    }

    /// The span to the next shed: shorter with the square root of their
    /// number.
    fn pace(&self) -> u64 {
        (self.interval as f64 / (self.count as f64).sqrt()) as u64
    }
}
