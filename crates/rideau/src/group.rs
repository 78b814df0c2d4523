//! Takes a member from any of several pools.
//!
//! A taker that finds nothing idle waits in all of them at once and is served
//! by whichever is first; its other places are given up unharmed.

mod wait;

use std::cell::RefCell;
use std::fmt;
use std::panic::Location;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use parking_lot::RwLock;
use rideau_core::Rng;
use rideau_core::group::{Method, Order};
use tokio::sync::Notify;

use crate::ask_options::AskOptions;
use crate::clock::Clock;
use crate::pool::{Held, Manager, NotTaken, Pool};
use crate::seed::seed;
use crate::thread::block_on;
use wait::{Answers, Wait};

/// Pools of which any may serve a taker.
///
/// Clones are the same group. Pools join and leave at any time, also while
/// takers wait: they wait in a pool that joins as well, and no longer in one
/// that leaves. A pool whose circuit is open is asked after all others.
pub struct Group<M: Manager> {
    inner: Arc<Inner<M>>,
}

struct Inner<M: Manager> {
    method: Method,
    entries: RwLock<GroupEntries<M>>,
    /// A pool joined or left.
    news: Notify,
    clock: Clock,
}

/// The pools of a group, as a taker goes through them.
struct GroupEntries<M: Manager> {
    entries: Arc<[GroupEntry<M>]>,
    joined: u64,
}

struct GroupEntry<M: Manager> {
    /// Never given twice, so that one name does not stand for two pools.
    id: u64,
    name: Arc<str>,
    pool: Pool<M>,
}

impl<M: Manager> Group<M> {
    /// A group without pools.
    pub fn new(method: Method) -> Self {
        Self::new_by(method, &Clock::system())
    }

    /// As [`new`](Self::new), by a given clock: that of its pools.
    pub fn new_by(method: Method, clock: &Clock) -> Self {
        let entries = GroupEntries {
            entries: Arc::new([]),
            joined: 0,
        };
        let inner = Inner {
            method,
            entries: RwLock::new(entries),
            news: Notify::new(),
            clock: clock.clone(),
        };
        Self {
            inner: Arc::new(inner),
        }
    }

    /// Let a pool serve as well. It also serves takes that wait already.
    ///
    /// A pool that had that name leaves and is handed back. Pools that are
    /// closing leave by the way.
    pub fn join(&self, name: &str, pool: &Pool<M>) -> Option<Pool<M>> {
        let before = self.inner.change(|entries, joined| {
            let before = remove(entries, name);
            entries.retain(|entry| !entry.pool.is_closed());
            entries.push(GroupEntry {
                id: joined,
                name: name.into(),
                pool: pool.clone(),
            });
            before
        });
        before.map(|entry| entry.pool)
    }

    /// Let a pool serve no longer. A take that waits there for this group waits
    /// only in the others from now on. Hands the pool back, if it was there.
    pub fn leave(&self, name: &str) -> Option<Pool<M>> {
        let left = self.inner.change(|entries, _| remove(entries, name));
        left.map(|entry| entry.pool)
    }

    /// Take a member from any pool, and wait in all of them if none is idle.
    ///
    /// # Errors
    ///
    /// If every pool refused it, or there is none. The refusal speaks for all.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future gives up its position in every queue. A member that was
    /// granted just then goes to the next taker unharmed.
    #[track_caller]
    pub fn take(&self) -> impl Future<Output = Result<Held<'static, M>, NotTaken>> + Send + '_ {
        self.take_on(AskOptions::USUAL)
    }

    /// As [`take`](Self::take), on given terms.
    ///
    /// # Errors
    ///
    /// As [`take`](Self::take).
    ///
    /// # Cancel safety
    ///
    /// As [`take`](Self::take).
    #[track_caller]
    pub fn take_on(
        &self,
        terms: AskOptions,
    ) -> impl Future<Output = Result<Held<'static, M>, NotTaken>> + Send + '_ {
        self.take_at(terms, Location::caller())
    }

    async fn take_at(
        &self,
        terms: AskOptions,
        at: &'static Location<'static>,
    ) -> Result<Held<'static, M>, NotTaken> {
        let mut wait = Wait::new(&self.inner, terms, at);
        let prompt = std::future::poll_fn(|context| wait.poll_prompt(context));
        if let Some(held) = prompt.await {
            return Ok(held);
        }
        loop {
            // Before the pools are looked at, so that none joins unnoticed.
            let mut news = pin!(self.inner.news.notified());
            news.as_mut().enable();
            let mut asked = false;
            let answer = std::future::poll_fn(|context| {
                let answer = match std::mem::replace(&mut asked, true) {
                    false => wait.ask(context),
                    true => wait.poll(context),
                };
                match answer {
                    Poll::Ready(answer) => Poll::Ready(Some(answer)),
                    Poll::Pending => news.as_mut().poll(context).map(|()| None),
                }
            });
            if let Some(answer) = answer.await {
                return answer;
            }
        }
    }

    /// Take a member that is idle now in any pool; never wait. It is not
    /// checked, however long it was idle.
    ///
    /// # Errors
    ///
    /// If no pool has one, or there is no pool.
    #[track_caller]
    pub fn try_take(&self) -> Result<Held<'static, M>, NotTaken> {
        let entries = self.inner.entries();
        let mut answers = Answers::default();
        let mut failing = Vec::new();
        for place in self.inner.order(&entries) {
            let pool = &entries[place].pool;
            if pool.is_failing() {
                failing.push(pool);
                continue;
            }
            match pool.try_take_owned() {
                Ok(held) => return Ok(held),
                Err(no) => answers.add(no),
            }
        }
        for pool in failing {
            match pool.try_take_owned() {
                Ok(held) => return Ok(held),
                Err(no) => answers.add(no),
            }
        }
        Err(answers.speak())
    }

    /// Take a member on a plain thread, which sleeps until there is an answer.
    ///
    /// # Errors
    ///
    /// As [`take`](Self::take).
    #[track_caller]
    pub fn take_blocking(&self, terms: AskOptions) -> Result<Held<'static, M>, NotTaken> {
        block_on(self.take_on(terms))
    }

    /// The pools and their names, in the order in which they joined.
    pub fn pools(&self) -> Vec<(String, Pool<M>)> {
        let entries = self.inner.entries();
        let named = |entry: &GroupEntry<M>| (entry.name.as_ref().into(), entry.pool.clone());
        entries.iter().map(named).collect()
    }
}

impl<M: Manager> Inner<M> {
    fn entries(&self) -> Arc<[GroupEntry<M>]> {
        Arc::clone(&self.entries.read().entries)
    }

    fn change<T>(&self, change: impl FnOnce(&mut Vec<GroupEntry<M>>, u64) -> T) -> T {
        let mut inner = self.entries.write();
        inner.joined += 1;
        let mut entries = inner.entries.to_vec();
        let result = change(&mut entries, inner.joined);
        let before = std::mem::replace(&mut inner.entries, entries.into());
        drop(inner);
        // The last handle of a pool may be in there.
        drop(before);
        self.news.notify_waiters();
        result
    }

    fn order(&self, entries: &[GroupEntry<M>]) -> Order {
        let show = |place: usize| entries[place].pool.show();
        RNG.with_borrow_mut(|rng| self.method.order(entries.len(), show, rng))
    }
}

fn remove<M: Manager>(entries: &mut Vec<GroupEntry<M>>, name: &str) -> Option<GroupEntry<M>> {
    let at = entries.iter().position(|entry| &*entry.name == name)?;
    Some(entries.remove(at))
}

thread_local! {
    static RNG: RefCell<Rng> = RefCell::new(Rng::new(seed()));
}

impl<M: Manager> Clone for Group<M> {
    fn clone(&self) -> Self {
        let inner = Arc::clone(&self.inner);
        Self { inner }
    }
}

impl<M: Manager> Clone for GroupEntry<M> {
    fn clone(&self) -> Self {
        Self {
            id: self.id,
            name: Arc::clone(&self.name),
            pool: self.pool.clone(),
        }
    }
}

impl<M: Manager> fmt::Debug for Group<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let entries = self.inner.entries();
        let names: Vec<&str> = entries.iter().map(|entry| &*entry.name).collect();
        f.debug_struct("Group")
            .field("method", &self.inner.method)
            .field("pools", &names)
            .finish_non_exhaustive()
    }
}
