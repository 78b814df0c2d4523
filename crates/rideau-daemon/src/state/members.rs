//! What the server's pools lend: values of a list, processes, and what clients
//! bring along.

mod exec;

use std::collections::{HashSet, VecDeque};
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use rideau::{Manager, NotTaken, Retired};
use rideau_apps::RunDirs;
use rideau_core::Brief;
use tokio::sync::Notify;

use exec::{Changed, Child, Programs};
use rideau_config as config;

/// Starts the members of one pool. Clones are the same.
#[derive(Clone)]
pub struct Members {
    name: Arc<str>,
    source: Arc<Source>,
    /// Where it is told that a member has ended by itself.
    run_dirs: Arc<RunDirs>,
}

enum Source {
    List {
        list: Mutex<List>,
        /// How often the list was changed.
        changes: AtomicU64,
    },
    Offered(Offers),
    Exec(Arc<Programs>),
}

/// How to follow a changed config.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Follow {
    /// Nothing more: the members that are there are as they should be, or say
    /// so themselves when they are not.
    Done,
    /// Every member that is there is replaced when no take holds it.
    Replace,
    /// Another pool.
    Anew,
}

/// Values, and which of them are lent.
///
/// Invariant: `free` are the values that are not used, the next one first.
#[derive(Default)]
struct List {
    values: HashSet<Arc<str>>,
    used: HashSet<Arc<str>>,
    free: VecDeque<Arc<str>>,
}

/// Offered members that no pool has taken yet.
#[derive(Default)]
struct Offers {
    waiting: Mutex<VecDeque<Arc<Offer>>>,
    changed: Notify,
}

/// A member of a pool.
#[derive(Debug)]
pub struct Member {
    pool: Arc<str>,
    value: Arc<str>,
    origin: Origin,
}

/// Where a member is from.
#[derive(Debug)]
enum Origin {
    /// The list had changed so often when the value was last found in it.
    List {
        changes: u64,
    },
    Offered(Arc<Offer>),
    Exec(Arc<Child>),
}

/// A member that a client brought; it goes when the client does.
#[derive(Debug)]
pub struct Offer {
    value: Arc<str>,
    withdrawn: AtomicBool,
    /// It has gone with its client, and was not withdrawn.
    abandoned: AtomicBool,
    changed: Notify,
}

/// A value of a list that its pool does not give out until this is dropped.
pub(crate) struct KeptValue {
    source: Arc<Source>,
    value: Arc<str>,
}

impl Drop for KeptValue {
    fn drop(&mut self) {
        if let Source::List { list, .. } = &*self.source {
            list.lock().stop(Arc::clone(&self.value));
        }
    }
}

/// Why there is no member.
#[derive(Debug)]
pub struct NoMember {
    /// For all.
    text: String,
    /// For users that may read what programs write.
    detail: Option<Arc<str>>,
}

impl NoMember {
    /// Why, for users that may read what programs write.
    pub fn detail(&self) -> Option<&Arc<str>> {
        self.detail.as_ref()
    }
}

impl Member {
    /// The name of its pool.
    pub fn pool(&self) -> &Arc<str> {
        &self.pool
    }

    /// The value that the holder gets.
    pub fn value(&self) -> &Arc<str> {
        &self.value
    }

    /// It has ended by itself, and is of no more use to its holder.
    pub fn is_dead(&self) -> bool {
        match &self.origin {
            Origin::Exec(child) => !child.is_alive(),
            Origin::Offered(offer) => offer.is_abandoned(),
            Origin::List { .. } => false,
        }
    }

    /// Members like it may end by themselves.
    pub fn is_mortal(&self) -> bool {
        !matches!(self.origin, Origin::List { .. })
    }
}

impl Offer {
    /// A member with this value.
    pub fn new(value: &str) -> Self {
        Self {
            value: value.into(),
            withdrawn: AtomicBool::new(false),
            abandoned: AtomicBool::new(false),
            changed: Notify::new(),
        }
    }

    /// The value that its holders get.
    pub fn value(&self) -> &Arc<str> {
        &self.value
    }

    /// It is to be had no more.
    pub fn withdraw(&self) {
        self.withdrawn.store(true, Ordering::Release);
        self.changed.notify_waiters();
    }

    /// The client that brought it has gone, and it is of no more use.
    pub fn abandon(&self) {
        self.abandoned.store(true, Ordering::Release);
        self.withdraw();
    }

    fn is_abandoned(&self) -> bool {
        self.abandoned.load(Ordering::Acquire)
    }

    fn is_withdrawn(&self) -> bool {
        self.withdrawn.load(Ordering::Acquire)
    }

    async fn withdrawn(&self) {
        loop {
            let notified = self.changed.notified();
            if self.is_withdrawn() {
                return;
            }
            notified.await;
        }
    }
}

impl Members {
    /// The members of a config. Processes run in the folders of `run_dirs`.
    pub fn new(name: &Arc<str>, config: &config::PoolConfig, run_dirs: &Arc<RunDirs>) -> Self {
        let source = match &config.member {
            config::Member::List(values) => {
                let mut list = List::default();
                list.set(values);
                Source::List {
                    list: Mutex::new(list),
                    changes: AtomicU64::new(0),
                }
            }
            config::Member::Offered => Source::Offered(Offers::default()),
            config::Member::Exec(exec) => Source::Exec(Programs::new(name, config, exec, run_dirs)),
        };
        Self {
            name: Arc::clone(name),
            source: Arc::new(source),
            run_dirs: Arc::clone(run_dirs),
        }
    }

    /// Follow a changed config, as far as that can be done here.
    pub fn reconfigure(&self, config: &config::PoolConfig) -> Follow {
        match (&*self.source, &config.member) {
            (Source::List { list, changes }, config::Member::List(values)) => {
                list.lock().set(values);
                changes.fetch_add(1, Ordering::Release);
                Follow::Done
            }
            (Source::Offered(_), config::Member::Offered) => Follow::Done,
            (Source::Exec(programs), config::Member::Exec(exec)) => {
                match programs.change(config, exec) {
                    Changed::Nothing => Follow::Done,
                    Changed::Program => Follow::Replace,
                }
            }
            _ => Follow::Anew,
        }
    }

    /// Why the last program did not start, if so, for users that may read what programs
    /// write.
    pub fn failure(&self) -> Option<Arc<str>> {
        match &*self.source {
            Source::Exec(programs) => programs.failure(),
            Source::List { .. } | Source::Offered(_) => None,
        }
    }

    /// Give out these values of a list before all others.
    pub(crate) fn put_first<'a>(&self, values: impl Iterator<Item = &'a String>) {
        if let Source::List { list, .. } = &*self.source {
            list.lock().put_first(values);
        }
    }

    /// Do not give out a value as long as this is kept.
    pub(crate) fn keep(&self, value: &str) -> KeptValue {
        if let Source::List { list, .. } = &*self.source {
            list.lock().keep(value);
        }
        KeptValue {
            source: Arc::clone(&self.source),
            value: value.into(),
        }
    }

    /// A client brings a member; false if this pool takes none.
    pub fn offer(&self, offer: &Arc<Offer>) -> bool {
        let Source::Offered(offers) = &*self.source else {
            return false;
        };
        offers.add(Arc::clone(offer));
        true
    }
}

#[cfg(test)]
impl Members {
    /// Panic if this is the pool of a test that wants it here.
    fn plant(&self, place: &str) {
        assert!(
            self.name.strip_prefix("panics-in-") != Some(place),
            "planted"
        );
    }
}

impl Manager for Members {
    type Member = Member;
    type Error = NoMember;

    async fn start(&self) -> Result<Member, NoMember> {
        #[cfg(test)]
        self.plant("start");
        match &*self.source {
            Source::List { list, changes } => {
                let changes = changes.load(Ordering::Acquire);
                list.lock().start(&self.name, changes)
            }
            Source::Offered(offers) => Ok(offers.next(&self.name).await),
            Source::Exec(programs) => {
                let child = programs.start().await?;
                Ok(Member {
                    pool: Arc::clone(&self.name),
                    value: Arc::clone(&child.value),
                    origin: Origin::Exec(child),
                })
            }
        }
    }

    fn is_broken(&self, member: &mut Member) -> bool {
        #[cfg(test)]
        self.plant("is_broken");
        match (&mut member.origin, &*self.source) {
            (Origin::Offered(offer), _) => offer.is_withdrawn(),
            (Origin::Exec(child), _) => !child.is_alive(),
            (Origin::List { changes: seen }, Source::List { list, changes }) => {
                let changes = changes.load(Ordering::Acquire);
                if changes == *seen {
                    return false;
                }
                *seen = changes;
                !list.lock().values.contains(&member.value)
            }
            (Origin::List { .. }, _) => false,
        }
    }

    async fn stop(&self, member: Member, why: Retired) {
        #[cfg(test)]
        self.plant("stop");
        match (&*self.source, member.origin) {
            (Source::List { list, .. }, _) => list.lock().stop(member.value),
            // Only its owner can make it anew, and still offers it.
            (Source::Offered(offers), Origin::Offered(offer)) if !offer.is_withdrawn() => {
                offers.add(offer);
            }
            (Source::Exec(programs), Origin::Exec(child)) => programs.stop(&child, why).await,
            _ => (),
        }
    }

    fn lost(&self, member: &Member) -> impl Future<Output = ()> + Send + 'static {
        #[cfg(test)]
        self.plant("lost");
        let lost: Pin<Box<dyn Future<Output = ()> + Send>> = match (&*self.source, &member.origin) {
            (Source::Exec(programs), Origin::Exec(child)) => Box::pin(programs.lost(child)),
            (_, Origin::Offered(offer)) => {
                let (offer, run_dirs) = (Arc::clone(offer), Arc::clone(&self.run_dirs));
                Box::pin(async move {
                    offer.withdrawn().await;
                    run_dirs.lose();
                })
            }
            _ => Box::pin(std::future::pending()),
        };
        lost
    }
}

impl List {
    /// Lend these from now on.
    fn set(&mut self, values: &[String]) {
        let values: Vec<Arc<str>> = values.iter().map(|value| value.as_str().into()).collect();
        let free = values.iter().filter(|value| !self.used.contains(*value));
        self.free = free.cloned().collect();
        self.values = values.into_iter().collect();
    }

    /// Give out these before all others.
    fn put_first<'a>(&mut self, values: impl Iterator<Item = &'a String>) {
        let first: HashSet<&str> = values.map(String::as_str).collect();
        let (mut free, others): (VecDeque<_>, VecDeque<_>) = self
            .free
            .drain(..)
            .partition(|value| first.contains(&**value));
        free.extend(others);
        self.free = free;
    }

    /// Do not give out a value until it is stopped.
    fn keep(&mut self, value: &str) {
        self.free.retain(|free| **free != *value);
        self.used.insert(value.into());
    }

    fn start(&mut self, pool: &Arc<str>, changes: u64) -> Result<Member, NoMember> {
        let value = self.free.pop_front().ok_or_else(|| {
            let len = self.values.len();
            NoMember {
                text: format!("all {len} values of the list are lent"),
                detail: None,
            }
        })?;
        self.used.insert(Arc::clone(&value));
        Ok(Member {
            pool: Arc::clone(pool),
            value,
            origin: Origin::List { changes },
        })
    }

    fn stop(&mut self, value: Arc<str>) {
        self.used.remove(&value);
        if self.values.contains(&value) {
            self.free.push_back(value);
        }
    }
}

impl Offers {
    fn add(&self, offer: Arc<Offer>) {
        self.waiting.lock().push_back(offer);
        self.changed.notify_one();
    }

    /// The next that is still to be had.
    async fn next(&self, pool: &Arc<str>) -> Member {
        loop {
            let notified = self.changed.notified();
            let (next, is_more) = {
                let mut waiting = self.waiting.lock();
                (waiting.pop_front(), !waiting.is_empty())
            };
            if is_more {
                // Two that came at once may have notified once.
                self.changed.notify_one();
            }
            match next {
                Some(offer) if offer.is_withdrawn() => (),
                Some(offer) => {
                    let value = Arc::clone(&offer.value);
                    return Member {
                        pool: Arc::clone(pool),
                        value,
                        origin: Origin::Offered(offer),
                    };
                }
                None => notified.await,
            }
        }
    }
}

/// Why nothing was taken. Members have values here; their numbers say nothing.
pub(crate) fn why_not_taken(no: &NotTaken, sees_output: bool) -> String {
    use std::fmt::Write;
    let mut why = no.refusal.to_string();
    if let Some(error) = &no.start_error {
        let known = error.downcast_ref::<NoMember>().and_then(NoMember::detail);
        let _ = match known.filter(|_| sees_output) {
            Some(detail) => write!(why, "; starting members fails: {detail}"),
            None => write!(why, "; starting members fails: {error}"),
        };
    }
    if let Some(longest) = &no.longest {
        let holder = longest.note.as_deref().unwrap_or("a holder");
        let _ = write!(why, "; {holder} has held one for {}", Brief(longest.held));
    }
    why
}

impl fmt::Display for NoMember {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for NoMember {}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Two that come at once, each on a thread of its own, and two tasks that want them.
    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn every_take_that_waits_for_an_offer_gets_one_if_there_are_enough() {
        let pool: Arc<str> = "pool".into();
        for round in 0..5_000 {
            let offers = Arc::new(Offers::default());
            let start = || {
                let (offers, pool) = (Arc::clone(&offers), Arc::clone(&pool));
                tokio::spawn(async move { offers.next(&pool).await })
            };
            let bring = || {
                let offers = Arc::clone(&offers);
                tokio::spawn(async move { offers.add(Arc::new(Offer::new("value"))) })
            };
            let (one, two, ..) = (start(), start(), bring(), bring());
            let both = async { (one.await, two.await) };
            let both = tokio::time::timeout(Duration::from_secs(20), both).await;
            assert!(both.is_ok(), "an offer was forgotten in round {round}");
        }
    }
}
