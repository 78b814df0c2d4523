//! A manager that does as it is told, and counts what is alive.

use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt;
use std::future::pending;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use std::time::Duration;

use rideau::{About, Clock, Manager, Pool, PoolOptions, Retired, queue};
use tokio::sync::oneshot;

pub(crate) const MS: Duration = Duration::from_millis(1);
pub(crate) const S: Duration = Duration::from_secs(1);

/// What a manager's code does when it is called.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Act {
    Go,
    After(Duration),
    Fail,
    FailAfter(Duration),
    Hang,
    Panic,
}

/// A member with a number of its own.
pub(crate) struct Member {
    pub(crate) number: u64,
    book: Arc<Book>,
}

impl fmt::Debug for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "member {}", self.number)
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.book.live.fetch_sub(1, SeqCst);
        let before = self.book.dropped.fetch_add(1, SeqCst);
        assert!(before < self.book.born.load(SeqCst));
    }
}

/// What a rig knows of its members.
pub(crate) struct Book {
    born: AtomicU64,
    dropped: AtomicU64,
    live: AtomicUsize,
    /// This many may be alive at once.
    max: AtomicUsize,
    over: AtomicUsize,
    under_way: AtomicUsize,
    under_way_max: AtomicUsize,
    starts: Mutex<VecDeque<Act>>,
    start: Mutex<Act>,
    check: Mutex<Act>,
    stop: Mutex<Act>,
    broken: Mutex<HashSet<u64>>,
    is_broken_panics: AtomicBool,
    lost_panics: AtomicBool,
    abort_panics: AtomicBool,
    pub(crate) checked: AtomicU64,
    stopped: Mutex<Vec<(u64, Retired)>>,
    aborted: Mutex<Vec<u64>>,
    used: Mutex<HashSet<u64>>,
    losses: Mutex<HashMap<u64, oneshot::Sender<()>>>,
    /// Held by each member's watch and abort.
    pub(crate) watches: Arc<()>,
    pub(crate) aborts: Arc<()>,
}

/// The test's side of a manager. When it goes, nothing must have been wrong.
pub(crate) struct Rig(pub Arc<Book>);

/// The pool's side.
pub(crate) struct Told(Arc<Book>);

fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap()
}

impl Rig {
    /// At most this many members may be alive at once.
    pub(crate) fn new(max: usize) -> Self {
        Self(Arc::new(Book {
            born: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
            live: AtomicUsize::new(0),
            max: AtomicUsize::new(max),
            over: AtomicUsize::new(0),
            under_way: AtomicUsize::new(0),
            under_way_max: AtomicUsize::new(0),
            starts: Mutex::default(),
            start: Mutex::new(Act::Go),
            check: Mutex::new(Act::Go),
            stop: Mutex::new(Act::Go),
            broken: Mutex::default(),
            is_broken_panics: AtomicBool::new(false),
            lost_panics: AtomicBool::new(false),
            abort_panics: AtomicBool::new(false),
            checked: AtomicU64::new(0),
            stopped: Mutex::default(),
            aborted: Mutex::default(),
            used: Mutex::default(),
            losses: Mutex::default(),
            watches: Arc::new(()),
            aborts: Arc::new(()),
        }))
    }

    pub(crate) fn told(&self) -> Told {
        Told(Arc::clone(&self.0))
    }

    /// On a paused clock.
    pub(crate) fn open(&self, options: PoolOptions) -> Pool<Told> {
        Pool::new_by(self.told(), options, &Clock::paused()).unwrap()
    }

    /// On a paused clock.
    pub(crate) async fn start(&self, options: PoolOptions) -> Pool<Told> {
        let pool = Pool::start_by(self.told(), options, &Clock::paused()).await;
        pool.unwrap()
    }

    /// On the clock that users have.
    pub(crate) async fn start_live(&self, options: PoolOptions) -> Pool<Told> {
        Pool::start(self.told(), options).await.unwrap()
    }

    /// From now on.
    pub(crate) fn may_live(&self, max: usize) {
        self.0.max.store(max, SeqCst);
    }

    pub(crate) fn on_start(&self, act: Act) {
        *held(&self.0.start) = act;
    }

    /// What the next starts do, before all go by `on_start` again.
    pub(crate) fn on_next_starts(&self, acts: impl IntoIterator<Item = Act>) {
        held(&self.0.starts).extend(acts);
    }

    pub(crate) fn on_check(&self, act: Act) {
        *held(&self.0.check) = act;
    }

    pub(crate) fn on_stop(&self, act: Act) {
        *held(&self.0.stop) = act;
    }

    pub(crate) fn on_is_broken_panic(&self) {
        self.0.is_broken_panics.store(true, SeqCst);
    }

    /// What watches for a loss panics when it comes.
    pub(crate) fn on_lost_panic(&self) {
        self.0.lost_panics.store(true, SeqCst);
    }

    pub(crate) fn on_abort_panic(&self) {
        self.0.abort_panics.store(true, SeqCst);
    }

    pub(crate) fn break_member(&self, number: u64) {
        held(&self.0.broken).insert(number);
    }

    /// The member ends by itself.
    pub(crate) fn lose(&self, number: u64) {
        let loss = held(&self.0.losses).remove(&number).unwrap();
        let _ = loss.send(());
    }

    pub(crate) fn born(&self) -> u64 {
        self.0.born.load(SeqCst)
    }

    pub(crate) fn live(&self) -> usize {
        self.0.live.load(SeqCst)
    }

    pub(crate) fn starts_max(&self) -> usize {
        self.0.under_way_max.load(SeqCst)
    }

    pub(crate) fn checked(&self) -> u64 {
        self.0.checked.load(SeqCst)
    }

    pub(crate) fn stopped(&self) -> Vec<(u64, Retired)> {
        held(&self.0.stopped).clone()
    }

    pub(crate) fn aborted(&self) -> Vec<u64> {
        held(&self.0.aborted).clone()
    }

    /// Watches of members that are still there.
    pub(crate) fn watches(&self) -> usize {
        Arc::strong_count(&self.0.watches) - 1
    }

    pub(crate) fn aborts(&self) -> usize {
        Arc::strong_count(&self.0.aborts) - 1
    }

    /// Be alone with a member, which no other task may be using.
    pub(crate) fn using(&self, member: &Member) -> Using {
        let number = member.number;
        let book = Arc::clone(&self.0);
        assert!(held(&book.used).insert(number), "{number} is used twice");
        Using { number, book }
    }

    /// All tasks of the pool are gone, and all members.
    pub(crate) async fn is_bare(&self, tasks: usize) {
        let metrics = tokio::runtime::Handle::current().metrics();
        for _ in 0..1000 {
            if metrics.num_alive_tasks() == tasks && self.live() == 0 {
                break;
            }
            tokio::task::yield_now().await;
        }
        assert_eq!(self.live(), 0, "members are alive");
        assert_eq!(metrics.num_alive_tasks(), tasks, "tasks are alive");
        assert_eq!((self.watches(), self.aborts()), (0, 0));
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        if !thread::panicking() {
            assert_eq!(self.0.over.load(SeqCst), 0, "more were alive than may be");
        }
    }
}

/// A member is used as long as this is there.
pub(crate) struct Using {
    number: u64,
    book: Arc<Book>,
}

impl Drop for Using {
    fn drop(&mut self) {
        held(&self.book.used).remove(&self.number);
    }
}

async fn act(act: Act) -> Result<(), String> {
    match act {
        Act::Go => Ok(()),
        Act::After(span) => {
            tokio::time::sleep(span).await;
            Ok(())
        }
        Act::Fail => Err("the server is away".into()),
        Act::FailAfter(span) => {
            tokio::time::sleep(span).await;
            Err("the server is away".into())
        }
        Act::Hang => pending().await,
        Act::Panic => panic!("as it was told"),
    }
}

struct UnderWay<'a>(&'a Book);

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.under_way.fetch_sub(1, SeqCst);
    }
}

impl Manager for Told {
    type Member = Member;
    type Error = String;

    async fn start(&self) -> Result<Member, String> {
        let under_way = self.0.under_way.fetch_add(1, SeqCst) + 1;
        self.0.under_way_max.fetch_max(under_way, SeqCst);
        let _under_way = UnderWay(&self.0);
        let next = held(&self.0.starts).pop_front();
        let usual = *held(&self.0.start);
        act(next.unwrap_or(usual)).await?;
        let number = self.0.born.fetch_add(1, SeqCst);
        let live = self.0.live.fetch_add(1, SeqCst) + 1;
        let over = usize::from(live > self.0.max.load(SeqCst));
        self.0.over.fetch_add(over, SeqCst);
        let book = Arc::clone(&self.0);
        Ok(Member { number, book })
    }

    async fn check(&self, member: &mut Member, _: &About) -> Result<(), String> {
        let using = Rig(Arc::clone(&self.0)).using(member);
        self.0.checked.fetch_add(1, SeqCst);
        let todo = *held(&self.0.check);
        let checked = act(todo).await;
        drop(using);
        checked
    }

    fn is_broken(&self, member: &mut Member) -> bool {
        assert!(!self.0.is_broken_panics.load(SeqCst), "as it was told");
        held(&self.0.broken).contains(&member.number)
    }

    async fn stop(&self, member: Member, why: Retired) {
        held(&self.0.stopped).push((member.number, why));
        let todo = *held(&self.0.stop);
        let _ = act(todo).await;
        drop(member);
    }

    fn lost(&self, member: &Member) -> impl Future<Output = ()> + Send + 'static {
        let (loss, lost) = oneshot::channel();
        held(&self.0.losses).insert(member.number, loss);
        let (watch, book) = (Arc::clone(&self.0.watches), Arc::clone(&self.0));
        async move {
            let lost = lost.await;
            assert!(!book.lost_panics.load(SeqCst), "as it was told");
            if lost.is_err() {
                pending::<()>().await;
            }
            drop(watch);
        }
    }

    fn abort(&self, member: &Member) -> Option<Box<dyn FnOnce() + Send>> {
        let (book, number) = (Arc::clone(&self.0), member.number);
        let token = Arc::clone(&self.0.aborts);
        Some(Box::new(move || {
            held(&book.aborted).push(number);
            drop(token);
            assert!(!book.abort_panics.load(SeqCst), "as it was told");
        }))
    }
}

/// This many members, and takers that wait until they are served.
pub(crate) fn options(init: usize, max: usize) -> PoolOptions {
    PoolOptions {
        init,
        max,
        queue: patient(),
        ..PoolOptions::default()
    }
}

pub(crate) fn patient() -> queue::Options {
    queue::Options {
        shedding: queue::Shedding::Never,
        ..queue::Options::default()
    }
}

/// Let everything happen that can happen without time.
pub(crate) async fn settle() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}
