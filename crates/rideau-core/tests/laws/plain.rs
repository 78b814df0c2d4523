//! A waiting line written the slow and obvious way, to compare with.
//!
//! All asks stand in a vector, the oldest first. The laws keep whole facts
//! where the queue keeps the least it needs, and decide without the gates and
//! heaps by which the queue saves work. CoDel is written after the pseudo code
//! of RFC 8289.

use std::time::Duration;

use rideau_core::Reason;
use rideau_core::queue::{Options, Order, Overflow, Shedding};

use crate::hall::Guest;

/// A waiting ask.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waiting {
    pub(crate) guest: Guest,
    /// Until when a standing queue lets it stay.
    limit: Option<u64>,
}

/// The line and what each law knows of it.
pub(crate) struct Plain {
    pub(crate) options: Options,
    pub(crate) waiting: Vec<Waiting>,
    pub(crate) shed: Vec<(usize, Reason)>,
    codel: CoDel,
    least: LeastWait,
    /// When an ask last came to an empty line.
    filled: u64,
    /// Whose limit came while the minimum kept them.
    pub(crate) spared: Vec<usize>,
}

/// The variables of RFC 8289, and when to look again.
struct CoDel {
    first_above: Option<u64>,
    dropping: bool,
    count: u64,
    drop_next: u64,
    look: u64,
    /// Overload ends here, unless an ask is slow before.
    overload: u64,
}

/// The waits since the present interval began.
struct LeastWait {
    waits: Vec<u64>,
    until: u64,
    overloaded: bool,
    looked: u64,
}

impl Plain {
    pub(crate) fn new(options: &Options, now: u64) -> Self {
        Self {
            options: options.clone(),
            waiting: Vec::new(),
            shed: Vec::new(),
            codel: CoDel::new(now),
            least: LeastWait::new(now),
            filled: now,
            spared: Vec::new(),
        }
    }

    pub(crate) fn push(&mut self, guest: Guest, now: u64) {
        self.expire(now);
        if guest.deadline <= now {
            self.shed.push((guest.id, Reason::Deadline));
            return self.settle(now);
        }
        let max = self.options.max.map_or(usize::MAX, |max| max as usize);
        if self.waiting.len() >= max {
            if max == 0 || self.options.overflow == Overflow::Newest {
                self.shed.push((guest.id, Reason::Full));
                return self.settle(now);
            }
            self.shed_at(0, Reason::Full);
        }
        if self.waiting.is_empty() {
            self.filled = now;
        }
        let mut limit = None;
        if let Shedding::Standing { target, interval } = self.options.shedding {
            let stands = now - self.filled >= nanos(interval);
            let wait = nanos(if stands { target } else { interval });
            limit = Some(guest.sent + wait);
        }
        self.waiting.push(Waiting { guest, limit });
        self.settle(now);
        self.expire(now);
    }

    pub(crate) fn pop(&mut self, now: u64) -> Option<usize> {
        self.expire(now);
        let newest_first = match self.options.order {
            Order::Fifo => false,
            Order::Lifo => true,
            Order::Adaptive { slow } => {
                let oldest = self.waiting.first();
                oldest.is_some_and(|oldest| now - oldest.guest.sent >= nanos(slow))
            }
        };
        match self.options.shedding {
            Shedding::CoDel { .. } | Shedding::BoundedCoDel { .. } if newest_first => {
                self.codel_newest(now)
            }
            Shedding::CoDel { .. } | Shedding::BoundedCoDel { .. } => self.codel_dequeue(now),
            Shedding::MinDelay { target, interval } => {
                self.least_wait_pop(nanos(target), nanos(interval), newest_first, now)
            }
            Shedding::Paced { .. } | Shedding::Custom(_) => panic!("it has no place here"),
            Shedding::Never | Shedding::Timeout { .. } | Shedding::Standing { .. } => {
                self.settle(now);
                self.take(newest_first)
            }
        }
    }

    pub(crate) fn wait(&mut self, now: u64) {
        self.expire(now);
        self.settle(now);
    }

    pub(crate) fn leave(&mut self, id: usize, now: u64) -> bool {
        let Some(at) = self.waiting.iter().position(|who| who.guest.id == id) else {
            return false;
        };
        self.waiting.remove(at);
        self.wait(now);
        true
    }

    pub(crate) fn change(&mut self, options: &Options, now: u64) {
        self.adopt_options(options, now);
        self.expire(now);
        self.fit(now);
    }

    /// Take the new options over, without acting on them.
    pub(crate) fn adopt_options(&mut self, options: &Options, now: u64) {
        use Shedding::{BoundedCoDel, CoDel as Plainly, MinDelay, Standing};
        match (&self.options.shedding, &options.shedding) {
            (Plainly { .. } | BoundedCoDel { .. }, Plainly { .. } | BoundedCoDel { .. }) => {
                let (_, interval, _) = spans(&options.shedding);
                self.codel.change(now + interval, now);
            }
            (MinDelay { .. }, MinDelay { interval, .. }) => {
                self.least.until = self.least.until.min(now + nanos(*interval));
            }
            (Standing { .. }, Standing { .. }) => (),
            (_, new) => {
                self.codel = CoDel::new(now);
                self.least = LeastWait::new(now);
                self.filled = now;
                self.spared.clear();
                for who in &mut self.waiting {
                    who.limit = match new {
                        Standing { interval, .. } => Some(who.guest.sent + nanos(*interval)),
                        _ => None,
                    };
                }
            }
        }
        self.options = options.clone();
    }

    /// Trim to the maximum and let the law have its say.
    pub(crate) fn fit(&mut self, now: u64) {
        let max = self.options.max.map_or(usize::MAX, |max| max as usize);
        let surplus = self.waiting.len().saturating_sub(max);
        let first = match self.options.overflow {
            Overflow::Oldest => 0,
            Overflow::Newest => self.waiting.len() - surplus,
        };
        for _ in 0..surplus {
            self.shed_at(first, Reason::Full);
        }
        self.settle(now);
        self.expire(now);
    }

    pub(crate) fn deadline(&self) -> Option<u64> {
        let own = self.waiting.iter().map(|who| who.guest.deadline);
        let limits = self.waiting.iter().filter_map(|who| who.limit);
        let law = (self.waiting.len() > self.min()).then(|| self.due());
        own.chain(limits)
            .chain(law)
            .min()
            .filter(|due| *due != u64::MAX)
    }

    /// The law of controlled delay is worth remembering until here.
    pub(crate) fn memory(&self, now: u64) -> u64 {
        match self.options.shedding {
            Shedding::CoDel { interval, .. } | Shedding::BoundedCoDel { interval, .. } => {
                now.max(self.codel.drop_next + 8 * nanos(interval))
            }
            _ => now,
        }
    }

    fn due(&self) -> u64 {
        let oldest = self.waiting[0].guest.sent;
        match self.options.shedding {
            Shedding::Never
            | Shedding::Standing { .. }
            | Shedding::Paced { .. }
            | Shedding::Custom(_) => u64::MAX,
            Shedding::Timeout { wait_max } => oldest.saturating_add(nanos(wait_max)),
            Shedding::CoDel { .. } => self.codel.look,
            Shedding::BoundedCoDel { wait_max, .. } => {
                let over = oldest + nanos(wait_max) + 1;
                let counts = self.codel.is_overloaded(over);
                self.codel.look.min(if counts { over } else { u64::MAX })
            }
            Shedding::MinDelay { interval, .. } => self.least.looked.max(oldest) + nanos(interval),
        }
    }

    fn min(&self) -> usize {
        self.options.min as usize
    }

    fn shed_at(&mut self, at: usize, reason: Reason) {
        let who = self.waiting.remove(at);
        self.shed.push((who.guest.id, reason));
    }

    fn take(&mut self, newest: bool) -> Option<usize> {
        if self.waiting.is_empty() {
            return None;
        }
        let at = if newest { self.waiting.len() - 1 } else { 0 };
        Some(self.waiting.remove(at).guest.id)
    }

    /// Let those go whose time has come, as if each had been looked at in time.
    pub(crate) fn expire(&mut self, now: u64) {
        // An ask that was kept for the minimum alone goes once it is not
        // needed.
        while let Some(id) = self.spared.first().copied() {
            let at = self.waiting.iter().position(|who| who.guest.id == id);
            if at.is_some() && self.waiting.len() <= self.min() {
                break;
            }
            self.spared.remove(0);
            if let Some(at) = at {
                self.shed_at(at, Reason::Standing);
            }
        }
        loop {
            let next = |who: &Waiting| who.limit.unwrap_or(u64::MAX).min(who.guest.deadline);
            let first = (0..self.waiting.len())
                .filter(|at| next(&self.waiting[*at]) <= now)
                .min_by_key(|at| (next(&self.waiting[*at]), self.waiting[*at].guest.id));
            let Some(at) = first else {
                return;
            };
            if self.waiting[at].guest.deadline == next(&self.waiting[at]) {
                self.shed_at(at, Reason::Deadline);
            } else if self.waiting.len() > self.min() {
                self.shed_at(at, Reason::Standing);
            } else {
                self.waiting[at].limit = None;
                self.spared.push(self.waiting[at].guest.id);
            }
        }
    }

    /// The law's step when no ask is served.
    fn settle(&mut self, now: u64) {
        let min = self.min();
        match self.options.shedding {
            Shedding::Never
            | Shedding::Standing { .. }
            | Shedding::Paced { .. }
            | Shedding::Custom(_) => (),
            Shedding::Timeout { wait_max } => {
                let expired =
                    |who: &Waiting| u128::from(now - who.guest.sent) >= wait_max.as_nanos();
                let prefix = self.waiting.iter().take_while(|who| expired(who)).count();
                for _ in 0..prefix.min(self.waiting.len().saturating_sub(min)) {
                    self.shed_at(0, Reason::Timeout);
                }
            }
            Shedding::CoDel { .. } | Shedding::BoundedCoDel { .. } => self.codel_scan(min, now),
            Shedding::MinDelay { target, .. } => {
                if self.waiting.len() <= min || self.due() > now {
                    return;
                }
                self.least.looked = now;
                self.least.overloaded = now - self.waiting[0].guest.sent > nanos(target);
                while self.waiting.len() > min
                    && self.least.overloaded
                    && now - self.waiting[0].guest.sent > 2 * nanos(target)
                {
                    self.shed_at(0, Reason::MinDelay);
                }
            }
        }
    }

    fn least_wait_pop(
        &mut self,
        target: u64,
        interval: u64,
        newest: bool,
        now: u64,
    ) -> Option<usize> {
        while !self.waiting.is_empty() {
            let waited = now - self.waiting[0].guest.sent;
            let law = &mut self.least;
            law.looked = now;
            let opens = now > law.until;
            if opens {
                law.overloaded = law.waits.iter().min().is_some_and(|least| *least > target);
                law.waits.clear();
                law.until = now + interval;
            }
            law.waits.push(waited);
            let goes = !opens && law.overloaded && waited > 2 * target;
            if !goes || self.waiting.len() <= self.min() {
                return self.take(newest);
            }
            self.shed_at(0, Reason::MinDelay);
        }
        None
    }

    /// `dodequeue` of the RFC: the oldest, and whether it may be dropped. An
    /// ask that waits over the bound during an episode is not even looked at.
    fn codel_oldest(&mut self, now: u64) -> Option<(Waiting, bool)> {
        let (target, interval, bound) = spans(&self.options.shedding);
        loop {
            if self.waiting.is_empty() {
                self.codel.find_empty(now);
                return None;
            }
            let is_spare = self.waiting.len() > self.min();
            let waited = now - self.waiting[0].guest.sent;
            if is_spare && waited >= target {
                self.codel.end_overload(now);
                self.codel.prolong(interval, now);
            }
            if is_spare && self.codel.is_overloaded(now) && waited > bound {
                self.shed_at(0, Reason::Bound);
                continue;
            }
            let oldest = self.waiting.remove(0);
            if !is_spare {
                self.codel.calm(now);
                return Some((oldest, false));
            }
            if waited < target {
                self.codel.calm(oldest.guest.sent + target);
                return Some((oldest, false));
            }
            let ok_to_drop = match self.codel.first_above {
                None => {
                    self.codel.slow_down(interval, now);
                    false
                }
                Some(first_above) => now >= first_above,
            };
            return Some((oldest, ok_to_drop));
        }
    }

    /// `dequeue` of the RFC.
    fn codel_dequeue(&mut self, now: u64) -> Option<usize> {
        let (_, interval, _) = spans(&self.options.shedding);
        let (mut next, mut ok_to_drop) = self.codel_oldest(now)?;
        if self.codel.dropping {
            while self.codel.dropping && now >= self.codel.drop_next {
                self.shed.push((next.guest.id, Reason::CoDel));
                (next, ok_to_drop) = self.codel_oldest(now)?;
                if ok_to_drop {
                    self.codel.count_on(interval);
                }
            }
        } else if ok_to_drop {
            self.shed.push((next.guest.id, Reason::CoDel));
            self.codel.enter(interval, now);
            (next, _) = self.codel_oldest(now)?;
        }
        Some(next.guest.id)
    }

    /// The same without a serve: it cannot end an episode.
    fn codel_scan(&mut self, floor: usize, now: u64) {
        let (target, interval, bound) = spans(&self.options.shedding);
        let mut has_entered = false;
        while self.waiting.len() > floor {
            let oldest = self.waiting[0].guest.sent;
            let waited = now - oldest;
            self.codel.end_overload(now);
            if self.codel.is_overloaded(now) && waited > bound {
                self.shed_at(0, Reason::Bound);
            } else if has_entered {
                return;
            } else if waited < target {
                if self.codel.look <= now {
                    self.codel.look = oldest + target;
                }
                return;
            } else if self.codel.dropping && now >= self.codel.drop_next {
                self.shed_at(0, Reason::CoDel);
                self.codel.count_on(interval);
            } else if self.codel.dropping {
                return;
            } else if self.codel.first_above.is_none() {
                return self.codel.slow_down(interval, now);
            } else if self.codel.first_above.is_some_and(|at| now >= at) {
                self.shed_at(0, Reason::CoDel);
                self.codel.enter(interval, now);
                has_entered = true;
            } else {
                return;
            }
        }
    }

    /// Serve the newest: the law looks at the others, and at the newest itself
    /// if no others are left.
    fn codel_newest(&mut self, now: u64) -> Option<usize> {
        let (target, interval, bound) = spans(&self.options.shedding);
        let min = self.min();
        let is_spare = self.waiting.len() > min;
        let Some(newest) = self.waiting.pop() else {
            self.codel.find_empty(now);
            return None;
        };
        let (id, waited) = (newest.guest.id, now - newest.guest.sent);
        if !is_spare {
            self.codel.calm(now);
            return Some(id);
        }
        self.codel_scan(min.saturating_sub(1), now);
        if self.waiting.len() < min {
            self.codel.calm(now);
        }
        if min > 0 || !self.waiting.is_empty() || waited < target {
            return Some(id);
        }
        if self.codel.is_overloaded(now) && waited > bound {
            self.shed.push((id, Reason::Bound));
            self.codel.calm(now);
            return None;
        }
        match self.codel.first_above {
            None => {
                self.codel.slow_down(interval, now);
                return Some(id);
            }
            _ if self.codel.dropping && now >= self.codel.drop_next => {
                self.codel.count_on(interval);
            }
            Some(first_above) if !self.codel.dropping && now >= first_above => {
                self.codel.enter(interval, now);
            }
            Some(_) => return Some(id),
        }
        self.codel.calm(now);
        self.shed.push((id, Reason::CoDel));
        None
    }
}

impl CoDel {
    fn new(now: u64) -> Self {
        Self {
            first_above: None,
            dropping: false,
            count: 0,
            drop_next: now,
            look: now,
            overload: 0,
        }
    }

    fn is_overloaded(&self, now: u64) -> bool {
        self.dropping || now < self.overload
    }

    fn end_overload(&mut self, now: u64) {
        if !self.is_overloaded(now) {
            self.overload = 0;
        }
    }

    fn prolong(&mut self, interval: u64, now: u64) {
        if self.is_overloaded(now) {
            self.overload = now + interval;
        }
    }

    fn calm(&mut self, look: u64) {
        (self.first_above, self.dropping, self.look) = (None, false, look);
    }

    /// A serve that finds the line empty has nothing to look at again.
    fn find_empty(&mut self, now: u64) {
        if self.first_above.is_some() {
            self.calm(now);
        }
    }

    fn slow_down(&mut self, interval: u64, now: u64) {
        self.prolong(interval, now);
        let until = now + interval;
        (self.first_above, self.look) = (Some(until), until);
    }

    fn enter(&mut self, interval: u64, now: u64) {
        let is_recent = i128::from(now) - i128::from(self.drop_next) < 8 * i128::from(interval);
        self.count = match self.count {
            count @ 3.. if is_recent => count - 2,
            _ => 1,
        };
        self.drop_next = now + control_law(interval, self.count);
        (self.dropping, self.look) = (true, self.drop_next);
        self.overload = now + interval;
    }

    fn count_on(&mut self, interval: u64) {
        self.count += 1;
        self.drop_next += control_law(interval, self.count);
        self.look = self.drop_next;
    }

    fn change(&mut self, latest: u64, now: u64) {
        self.drop_next = self.drop_next.min(latest);
        self.overload = self.overload.min(latest);
        self.look = now;
        if self.dropping {
            self.look = self.drop_next;
        } else if let Some(first_above) = &mut self.first_above {
            *first_above = latest.min(*first_above);
            self.look = *first_above;
        }
    }
}

impl LeastWait {
    fn new(now: u64) -> Self {
        Self {
            waits: vec![0],
            until: now,
            overloaded: false,
            looked: now,
        }
    }
}

fn control_law(interval: u64, count: u64) -> u64 {
    (interval as f64 / (count as f64).sqrt()).trunc() as u64
}

/// Target, interval and bound.
fn spans(shedding: &Shedding) -> (u64, u64, u64) {
    match *shedding {
        Shedding::CoDel { target, interval } => (nanos(target), nanos(interval), u64::MAX),
        Shedding::BoundedCoDel {
            target,
            interval,
            wait_max,
        } => (nanos(target), nanos(interval), nanos(wait_max)),
        _ => panic!("not a law of controlled delay: {shedding:?}"),
    }
}

fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}
