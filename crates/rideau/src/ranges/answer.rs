//! An answer that is given when what it says is safe.

use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use super::Failed;
use super::durable::Durable;
use super::ownership::RestsOn;

/// What was decided, and may be told when it is safe: `.await` it, or
/// [`wait`](Self::wait) on a plain thread.
///
/// The decision is taken whether or not a caller waits.
#[must_use = "the answer may be told when it is safe: await it or wait for it"]
#[derive(Debug)]
pub struct Answer<T> {
    decision: Result<T, Failed>,
    until: Committed,
}

/// Which turn of the thread that writes has to be safe.
#[derive(Clone, Debug)]
pub struct Committed {
    turn: u64,
    on: RestsOn,
    safe: Arc<Durable>,
}

impl<T> Answer<T> {
    pub(super) const fn new(decision: Result<T, Failed>, until: Committed) -> Self {
        Self { decision, until }
    }

    /// Block until it is safe.
    ///
    /// # Errors
    ///
    /// If it was refused, or cannot be made safe.
    pub fn wait(self) -> Result<T, Failed> {
        self.until.wait()?;
        self.decision
    }

    /// The same, and what was decided before has to be safe too.
    pub(super) fn after(self, before: Committed) -> Self {
        Self {
            until: self.until.or_later(before),
            ..self
        }
    }

    /// The same when it is safe, and something else of it.
    pub(super) fn map<U>(self, change: impl FnOnce(T) -> U) -> Answer<U> {
        Answer {
            decision: self.decision.map(change),
            until: self.until,
        }
    }

    /// The decision, and what has to be safe before it may be told.
    /// For callers that hold back many answers at once.
    pub fn into_parts(self) -> (Result<T, Failed>, Committed) {
        (self.decision, self.until)
    }
}

impl Committed {
    pub(super) fn new(turn: u64, on: RestsOn, safe: &Arc<Durable>) -> Self {
        let safe = Arc::clone(safe);
        Self { turn, on, safe }
    }

    /// Nothing has to be safe.
    pub(super) fn at_once(safe: &Arc<Durable>) -> Self {
        Self::new(0, RestsOn::NOTHING, safe)
    }

    /// Whether the answer may leave this process at this moment: a node of a cluster that
    /// does not own a partition any more, or is not sure, must not speak for it. What was
    /// written by the owner after it was decided may always be told. Ask this when
    /// [the rest](Self::is_reached) is reached.
    pub fn is_owned(&self) -> bool {
        self.on.is_owned()
    }

    /// The first partition for which the answer [must not leave](Self::is_owned), if it must
    /// not.
    pub fn lost(&self) -> Option<u32> {
        let partition = || self.ownerships().next().map(|(partition, _)| partition);
        (!self.is_owned()).then(|| partition().unwrap_or_default())
    }

    /// The partitions that the answer rests on, each with the epoch of its owner. None if
    /// partitions do not come and go.
    pub fn ownerships(&self) -> impl Iterator<Item = (u32, u64)> + '_ {
        let stakes = self.on.stakes().iter();
        stakes.map(|stake| (stake.ownership.partition, stake.ownership.epoch))
    }

    /// No caller has to wait any more.
    ///
    /// # Errors
    ///
    /// If it cannot be made safe.
    pub fn is_reached(&self) -> Result<bool, Failed> {
        match self.turn {
            0 => Ok(true),
            turn => match self.safe.reached(turn, &self.on) {
                None => Ok(false),
                Some(reached) => reached.map(|()| true),
            },
        }
    }

    /// The later of two, of the same ranges.
    #[must_use]
    pub fn or_later(self, other: Self) -> Self {
        let (earlier, later) = match self.turn >= other.turn {
            true => (other, self),
            false => (self, other),
        };
        let on = later.on.and(earlier.on);
        Self { on, ..later }
    }

    /// Block until it is reached.
    ///
    /// # Errors
    ///
    /// If it cannot be made safe.
    pub fn wait(&self) -> Result<(), Failed> {
        match self.turn {
            0 => Ok(()),
            turn => self.safe.wait(turn, &self.on),
        }
    }
}

impl IntoFuture for Committed {
    type Output = Result<(), Failed>;
    type IntoFuture = Reached;

    fn into_future(self) -> Reached {
        Reached {
            until: self,
            waker: None,
        }
    }
}

/// Ends when a certain turn is safe.
#[derive(Debug)]
pub struct Reached {
    until: Committed,
    /// What is woken then, so that it is left there once and not at every poll.
    waker: Option<Waker>,
}

impl Reached {
    pub(super) fn into_until(self) -> Committed {
        self.until
    }
}

impl Future for Reached {
    type Output = Result<(), Failed>;

    fn poll(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<Self::Output> {
        let Committed { turn, on, safe } = &self.until;
        if *turn == 0 {
            return Poll::Ready(Ok(()));
        }
        let is_left = |waker: &Waker| waker.will_wake(task.waker());
        let reached = match self.waker.as_ref().is_some_and(is_left) {
            true => safe.reached(*turn, on),
            false => safe.poll(*turn, on, task.waker()),
        };
        match reached {
            Some(reached) => Poll::Ready(reached),
            None => {
                self.waker = Some(task.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl<T: Unpin> IntoFuture for Answer<T> {
    type Output = Result<T, Failed>;
    type IntoFuture = Answering<T>;

    fn into_future(self) -> Answering<T> {
        Answering {
            decision: Some(self.decision),
            reached: self.until.into_future(),
        }
    }
}

/// Ends when an answer may be told.
#[derive(Debug)]
pub struct Answering<T> {
    decision: Option<Result<T, Failed>>,
    reached: Reached,
}

impl<T: Unpin> Future for Answering<T> {
    type Output = Result<T, Failed>;

    fn poll(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<Self::Output> {
        match Pin::new(&mut self.reached).poll(task) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Err(failed)) => Poll::Ready(Err(failed)),
            Poll::Ready(Ok(())) => {
                let decision = self.decision.take();
                Poll::Ready(decision.expect("a future is not polled after its end"))
            }
        }
    }
}
