//! The asks that wait for units of one key.
//!
//! A key gets a line when an ask first waits for it. The word of the key stays
//! the truth: the machine of the line takes from it whatever it grants, and a
//! mark in the word sends a holder that gives back, or a caller that comes to
//! take, to the line.

use std::borrow::Borrow;
use std::hash::{BuildHasher, Hash};
use std::mem;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use rideau_core::locks::{Claim, Count, Effect, Full, Grant, Lines};
use rideau_core::{OptionError, Reason, Refusal, Ticket, queue};

use super::Lock;
use super::entry::Entry;
use super::keys::{
    HeldUnits, KeyCount, Keys, LineOf, Machine, Origin, Reply, Source, Taken, Tell, Told,
};
use super::taken::Kept;
use super::word::{Left, No, Taker};
use crate::after::After;
use crate::ask_options::AskOptions;
use crate::clock::Clock;
use crate::driver::{Driver, Shell};
use crate::key::Key;
use crate::reply_slot::ReplySlot;
use crate::sync::{Ordering, lock};

/// The line of a key, as long as it is needed.
pub(super) struct Line<K: Key>(Arc<LineOf<K>>);

/// A wait for units: a future whose drop gives the place up, or what was
/// granted meanwhile.
pub(super) struct Wait<K: Key> {
    state: State<K>,
}

enum State<K: Key> {
    Waiting {
        line: Line<K>,
        ticket: Ticket,
        cell: Arc<ReplySlot<Told<K>>>,
        /// The last to go: a line without its keys could serve no ask.
        _kept: Kept<K>,
    },
    /// The answer has not been taken yet.
    Answered(Told<K>),
    Over,
}

impl<K: Key> Line<K> {
    pub(super) fn new(line: Arc<LineOf<K>>) -> Self {
        Self(line)
    }

    /// An empty line for a key.
    pub(super) fn start(
        options: &queue::Options,
        is_closed: bool,
        entry: Arc<Entry<K>>,
        keys: Weak<Keys<K>>,
        clock: &Clock,
    ) -> Arc<LineOf<K>> {
        let count = KeyCount { entry, keys };
        let now = clock.now();
        let lines = Lines::new(options, count, now);
        let mut lines = lines.expect("the options were validated");
        let mut effects = Vec::new();
        if is_closed {
            lines.close(now, &mut effects);
        }
        Driver::start(lines, effects, Tell, clock.clone())
    }

    /// Take units now, after all asks that wait and can have theirs.
    pub(super) fn try_ask(&self, claim: Claim) -> Result<Taken<'static, K>, Full> {
        let taken = self
            .0
            .step(|step| step.machine.take(claim, step.now, step.effects));
        taken.map(|(_, units)| units)
    }

    /// Come to wait: be answered at once, or take a place.
    pub(super) fn ask(self, claim: Claim, terms: &AskOptions, kept: Kept<K>) -> Wait<K> {
        let (ticket, came) = self.0.step(|step| {
            let terms = terms.since(step.sent, true);
            let reply = Reply(None);
            let ticket = step
                .machine
                .ask(claim, &terms, reply, step.now, step.effects);
            if let Some(told) = take_own(step.effects) {
                return (ticket, Ok(told));
            }
            let cell = Arc::new(ReplySlot::new());
            let reply = step.machine.reply_mut(ticket);
            reply.expect("an ask without an answer waits").0 = Some(Arc::clone(&cell));
            (ticket, Err(cell))
        });
        let line = self;
        let state = match came {
            Ok(told) => State::Answered(told),
            Err(cell) => State::Waiting {
                line,
                ticket,
                cell,
                _kept: kept,
            },
        };
        Wait { state }
    }

    /// Serve the asks that can be served, and then do something while none is.
    pub(super) fn serve_and<T>(&self, then: impl FnOnce() -> T) -> T {
        self.0.step(|step| {
            step.machine.released(step.now, step.effects);
            then()
        })
    }

    /// Units came back, or may have.
    pub(super) fn serve(&self) {
        self.0
            .step(|step| step.machine.released(step.now, step.effects));
    }

    pub(super) fn reconfigure(&self, options: &queue::Options) -> Result<(), OptionError> {
        self.0
            .step(|step| step.machine.reconfigure(options, step.now, step.effects))
    }

    pub(super) fn close(&self) {
        self.0
            .step(|step| step.machine.close(step.now, step.effects));
    }

    /// How many wait.
    pub(super) fn len(&self) -> usize {
        self.0.look(|machine, _| machine.len())
    }
}

impl<K: Key> Keys<K> {
    /// As [`acquire`](Self::acquire), but wait in the queue where others do.
    pub(super) fn acquire_or_wait<Q>(
        self: &Arc<Self>,
        key: &Q,
        claim: Claim,
        terms: &AskOptions,
    ) -> Wait<K>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ToOwned<Owned = K> + ?Sized,
    {
        let Ok(entry) = self.pin(self.hasher.hash_one(key), key) else {
            return Wait::refused(Reason::Keys);
        };
        let kept = Kept::new(Arc::clone(self), entry);
        match kept.entry().word().take(claim, Taker::Any) {
            Ok(grant) => {
                let source = Source::Found(Arc::clone(kept.entry()));
                let origin = Origin::Owned(Arc::clone(self));
                Wait::answered(Lock(Taken::new(source, origin, grant)))
            }
            Err(_) => self.line_of(kept.entry()).ask(claim, terms, kept),
        }
    }

    /// How many wait for a key.
    pub(super) fn waiting<Q>(&self, key: &Q) -> usize
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        let hash = self.hasher.hash_one(key);
        let _guard = self.map.guard();
        let shard = self.lock(hash);
        let line = |entry: &Arc<Entry<K>>| shard.lines.get(&entry.address()).cloned();
        let line = self.map.find(hash, key, line).flatten();
        drop(shard);
        line.map_or(0, |line| Line::new(line).len())
    }

    /// The line of a key that is pinned, made if there is none.
    pub(super) fn line_of(&self, entry: &Arc<Entry<K>>) -> Line<K> {
        let mut shard = self.lock(entry.hash());
        let line = shard.lines.entry(entry.address()).or_insert_with(|| {
            let options = self.rules.slot(entry.rule()).queue();
            let is_closed = self.closed.load(Ordering::Acquire);
            let (entry, keys) = (Arc::clone(entry), self.me.clone());
            Line::start(&options, is_closed, entry, keys, &self.clock)
        });
        Line::new(Arc::clone(line))
    }

    /// Change how one waits, everywhere at once.
    pub(super) fn set_queue(&self, options: &queue::Options) -> Result<(), OptionError> {
        options.validate().map_err(|no| no.within("queue"))?;
        let _alone = lock(&self.changing);
        let rules = self.rules.all();
        rules.for_each(|rule| self.rules.slot(rule).set_queue(options));
        for line in self.lines() {
            line.reconfigure(options)?;
        }
        Ok(())
    }

    /// Refuse every ask that waits or comes to wait.
    pub(super) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.lines().iter().for_each(Line::close);
    }

    /// Units came back, and an ask waits for them or they were the last.
    #[cold]
    #[inline(never)]
    pub(super) fn came_back(&self, entry: &Arc<Entry<K>>, left: Left, is_pinned: bool) {
        if left.is_idle() && !is_pinned {
            self.list(entry);
        }
        if left.is_waited() {
            let line = self.lock(entry.hash()).lines.get(&entry.address()).cloned();
            if let Some(line) = line {
                Line::new(line).serve();
            }
        }
    }

    fn lines(&self) -> Vec<Line<K>> {
        let mut all = Vec::new();
        for shard in self.shards.iter() {
            let shard = lock(shard);
            all.extend(shard.lines.values().cloned().map(Line::new));
        }
        all
    }
}

impl<K: Key> Wait<K> {
    /// A wait that was over when it began.
    pub(super) fn answered(lock: Lock<'static, K>) -> Self {
        Self {
            state: State::Answered(Ok(lock)),
        }
    }

    /// A refusal before there was a line to wait in.
    pub(super) fn refused(reason: Reason) -> Self {
        let refusal = Refusal {
            reason,
            waited: Duration::ZERO,
            len: 0,
            retry_after: Duration::ZERO,
        };
        Self {
            state: State::Answered(Err(refusal)),
        }
    }

    /// The answer, if it is there already.
    pub(super) fn take_answer(&mut self) -> Option<Told<K>> {
        match mem::replace(&mut self.state, State::Over) {
            State::Answered(told) => Some(told),
            other => {
                self.state = other;
                None
            }
        }
    }
}

impl<K: Key> Future for Wait<K> {
    type Output = Told<K>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Told<K>> {
        if let State::Waiting { cell, .. } = &self.state {
            let told = ready!(cell.poll(context));
            self.state = State::Over;
            return Poll::Ready(told);
        }
        Poll::Ready(
            self.take_answer()
                .expect("a wait is not polled after its answer"),
        )
    }
}

impl<K: Key> Unpin for Wait<K> {}

impl<K: Key> Drop for Wait<K> {
    fn drop(&mut self) {
        let State::Waiting {
            line, ticket, cell, ..
        } = &self.state
        else {
            return;
        };
        cell.leave();
        // A grant may have come first: then it is given back with the cell.
        let gone = line
            .0
            .step(|step| step.machine.cancel(*ticket, step.now, step.effects));
        drop(gone);
    }
}

impl<K: Key> Count for KeyCount<K> {
    type Units = HeldUnits<K>;

    fn held(&self) -> u64 {
        self.entry.word().held()
    }

    fn take(&mut self, claim: Claim) -> Result<(Grant, HeldUnits<K>), Full> {
        let word = self.entry.word();
        let Some(keys) = self.keys.upgrade() else {
            return Err(claim.full(word.held()));
        };
        let taken = match word.take(claim, Taker::Line) {
            Err(No::Locked) => {
                keys.under_lock(&self.entry, || word.take(claim, Taker::LineAndLock))
            }
            other => other,
        };
        match taken {
            Ok(grant) => {
                let source = Source::Found(Arc::clone(&self.entry));
                Ok((grant, Taken::new(source, Origin::Owned(keys), grant)))
            }
            Err(No::Full(held)) => Err(claim.full(held)),
            Err(No::Retired | No::Waited | No::Locked) => {
                unreachable!("a word stops its own line for nothing else")
            }
        }
    }

    fn mark_waiting(&mut self, waiting: bool) {
        let mark = || self.entry.word().mark_waited(waiting);
        match self.keys.upgrade() {
            // A take of several keys looks for marks first, and must not find
            // one later: it would take beside the line.
            Some(keys) if waiting => keys.under_lock(&self.entry, mark),
            _ => mark(),
        }
    }
}

impl<K: Key> Shell<Machine<K>> for Tell {
    fn perform(&self, effect: Effect<HeldUnits<K>, Reply<K>>, after: &mut After) {
        match effect {
            Effect::Grant {
                reply,
                mut units,
                waited,
                ..
            } => {
                units.set_waited(waited);
                reply.tell(Ok(Lock(units)), after);
            }
            Effect::Shed { reply, refusal, .. } => reply.tell(Err(refusal), after),
            Effect::Forget(_) => (),
        }
    }
}

impl<K: Key> Reply<K> {
    fn tell(self, told: Told<K>, after: &mut After) {
        let cell = self.0.expect("an ask that comes takes its own answer");
        cell.answer(told, after);
    }
}

impl<K: Key> rideau_core::Reply for Reply<K> {
    fn is_gone(&self) -> bool {
        self.0.as_ref().is_some_and(|cell| cell.is_gone())
    }
}

/// The answer of an ask that just came, if there is one: no other has no cell.
fn take_own<K: Key>(effects: &mut Vec<Effect<HeldUnits<K>, Reply<K>>>) -> Option<Told<K>> {
    let is_own = |effect: &Effect<HeldUnits<K>, Reply<K>>| match effect {
        Effect::Grant { reply, .. } | Effect::Shed { reply, .. } => reply.0.is_none(),
        Effect::Forget(_) => false,
    };
    let at = effects.iter().position(is_own)?;
    Some(match effects.remove(at) {
        Effect::Grant { units, .. } => Ok(Lock(units)),
        Effect::Shed { refusal, .. } => Err(refusal),
        Effect::Forget(_) => unreachable!("an answer is a grant or a refusal"),
    })
}

#[cfg(all(test, not(rideau_loom)))]
mod tests {
    use crate::ask_options::AskOptions;
    use crate::locks::Locks;

    use std::mem;

    #[tokio::test]
    async fn a_waiting_ask_is_served_though_the_locks_are_gone() {
        let locks: Locks<String> = Locks::new();
        mem::forget(locks.acquire("db", 1));
        let two = locks.begin_acquire("db", 2, 2, AskOptions::default());
        let one = locks.begin_acquire("db", 1, 2, AskOptions::default());
        drop(locks);
        drop(two);
        let lock = one.await.expect("one of two is free");
        assert_eq!(lock.ordinal(), 2);
    }
}
