//! Who is served when on a porch, and that nobody is lost between it and the
//! machine.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread;

use rideau_core::pool::Options;
use rideau_core::{Reason, queue};
use tokio::runtime::Builder;

use super::*;
use crate::pool::{Held, Manager, Pool};
use crate::terms::Terms;

const MILLI: u64 = 1_000_000;

/// A porch with two lines, and the cells that it gives out.
struct Stage {
    porch: Porch,
    cells: Slots<Cell>,
    given: u32,
}

impl Stage {
    /// Nobody waits as yet.
    fn open(patience: u64) -> Self {
        let mut stage = Self {
            porch: Porch::new(2),
            cells: Slots::new(Cell::new, 0),
            given: 0,
        };
        stage.open_for(patience, &[]);
        stage
    }

    /// These wait, since then.
    fn open_for(&mut self, patience: u64, sents: &[u64]) {
        self.cells.grow_to(1000);
        let given = &mut self.given;
        let mut cell = || {
            *given += 1;
            *given - 1
        };
        let apart = |sent: &u64| Apart {
            sent: at(*sent),
            deadline: Instant::NEVER,
            promised: false,
            reply: Reply {
                waker: Waker::noop().clone(),
                cell: cell(),
            },
        };
        let mut waiting = sents.iter().map(apart).collect();
        let patience = Duration::from_nanos(patience);
        self.porch.open(patience, &mut waiting, cell);
    }

    fn wait(&self, line: usize, sent: u64) -> Option<u32> {
        self.wait_until(line, sent, Instant::NEVER)
    }

    fn wait_until(&self, line: usize, sent: u64, deadline: Instant) -> Option<u32> {
        let terms = queue::Terms {
            deadline: deadline.finite(),
            ..queue::Terms::new(at(sent))
        };
        let waker = Waker::noop();
        self.porch.wait_near(line, &terms, waker, &self.cells)
    }

    /// Who is served by one on this line, and after which wait.
    fn serve(&self, line: usize, now: u64) -> Option<(u32, u64)> {
        let turn = self.porch.turn_near(line, at(now))?;
        let first = turn.crowd.waiting.front().expect("it is somebody's turn");
        let (cell, waited) = (first.reply.cell, turn.waited(at(now)));
        turn.serve((7, NO_CELL), Duration::ZERO, at(now), &self.cells);
        let answer = self.cells.get(cell).answer().expect("it was answered");
        let grant = answer.expect("it was served");
        assert_eq!((grant.slot, grant.waited), (7, waited));
        Some((cell, waited.as_nanos() as u64))
    }

    /// When those came who were left, and how many cells there are.
    fn close(&self) -> (Vec<u64>, usize) {
        let (mut left, mut cells) = (Vec::new(), Vec::new());
        self.porch.close(&mut left, &mut cells);
        let sents = left.iter().map(|apart| apart.sent.as_nanos()).collect();
        (sents, cells.len())
    }
}

fn at(nanos: u64) -> Instant {
    Instant::from_nanos(nanos)
}

#[test]
fn a_closed_porch_has_nobody_and_lets_nobody_in() {
    let stage = Stage::open(MILLI);
    assert_eq!(stage.close(), (vec![], 2 * CELLS));
    assert_eq!(stage.wait(0, 0), None);
    assert_eq!(stage.serve(0, 1), None);
    assert_eq!(stage.close(), (vec![], 0));
}

#[test]
fn who_came_first_to_the_own_line_is_served_first() {
    let stage = Stage::open(MILLI);
    let [first, second] = [10, 20].map(|sent| stage.wait(0, sent).expect("there is room"));
    let other = stage.wait(1, 15).expect("there is room");
    assert_eq!(stage.serve(0, 30), Some((first, 20)));
    assert_eq!(stage.serve(0, 31), Some((second, 11)));
    // Nobody waits in the own line any more.
    assert_eq!(stage.serve(0, 32), Some((other, 17)));
    assert_eq!(stage.serve(0, 33), None);
    assert_eq!(stage.close().0, [] as [u64; 0]);
}

#[test]
fn who_waits_elsewhere_for_longer_is_served_before_long() {
    let stage = Stage::open(MILLI);
    let other = stage.wait(1, 0).expect("there is room");
    for sent in 1..=CELLS as u64 {
        stage.wait(0, 100 * sent).expect("there is room");
    }
    let turns = (0..u64::from(LOOK_EVERY) + 1).map(|turn| stage.serve(0, 10_000 + turn));
    let served: Vec<u32> = turns.map(|served| served.expect("some wait").0).collect();
    assert!(served.contains(&other), "{served:?}");
}

#[test]
fn those_who_waited_before_the_porch_was_opened_are_served_in_their_order() {
    let mut stage = Stage::open(MILLI);
    stage.close();
    stage.open_for(MILLI, &[10, 20, 30, 40]);
    let waits = [0, 1, 0, 1].map(|line| stage.serve(line, 100).expect("one waits").1);
    assert_eq!(waits, [90, 80, 70, 60]);
}

#[test]
fn all_who_are_left_are_taken_in_by_when_they_came() {
    let stage = Stage::open(MILLI);
    for (line, sent) in [(0, 10), (0, 30), (1, 20), (1, 40)] {
        stage.wait(line, sent).expect("there is room");
    }
    assert_eq!(stage.porch.len(), 4);
    assert_eq!(stage.porch.first(), Some(at(10)));
    assert_eq!(stage.close(), (vec![10, 20, 30, 40], 2 * CELLS - 4));
    assert_eq!(stage.porch.len(), 0);
}

#[test]
fn who_waited_for_too_long_is_left_to_the_machine() {
    let stage = Stage::open(MILLI);
    stage.wait(0, 10).expect("there is room");
    assert_eq!(stage.serve(0, 10 + MILLI), None);
    assert_eq!(stage.serve(1, 10 + MILLI), None);
    assert_eq!(stage.close().0, [10]);
}

#[test]
fn who_gives_up_soon_after_patience_ends_does_not_wait_here() {
    let stage = Stage::open(MILLI);
    assert_eq!(stage.wait_until(0, 10, at(9 + 2 * MILLI)), None);
    assert!(stage.wait_until(0, 10, at(10 + 2 * MILLI)).is_some());
}

#[test]
fn a_line_fetches_cells_where_some_are_left() {
    let stage = Stage::open(MILLI);
    let cells: Vec<u32> = (0..2 * CELLS as u64)
        .map(|sent| stage.wait(0, sent).expect("another line has cells"))
        .collect();
    assert!(cells.iter().all(|cell| *cell < stage.given));
    assert_eq!(stage.wait(0, 99), None);
    assert_eq!(stage.wait(1, 99), None);
    // A holder that gives its cell back makes room for one.
    let turn = stage.porch.turn_near(1, at(99)).expect("some wait");
    turn.serve((7, 0), Duration::ZERO, at(99), &stage.cells);
    assert!(stage.wait(1, 100).is_some());
}

/// Members that know whether somebody uses them.
struct Used;

impl Manager for Used {
    type Member = Arc<AtomicBool>;
    type Error = Infallible;

    async fn start(&self) -> Result<Arc<AtomicBool>, Infallible> {
        Ok(Arc::default())
    }
}

fn options(max: usize, shedding: queue::Shedding) -> Options {
    Options {
        init: max,
        max,
        queue: queue::Options {
            shedding,
            ..queue::Options::default()
        },
        ..Options::default()
    }
}

fn send_out(pool: &Pool<Used>) -> bool {
    let stock = pool.driver.shell();
    pool.driver
        .step(|step| stock.send_out(step.machine, step.now));
    stock.porch.is_open()
}

/// Threads take, hold, cancel and give back while the porch is opened and closed
/// all the time.
#[test]
fn everybody_is_served_once_wherever_they_wait() {
    const TASKS: u64 = 40;
    const TURNS: u64 = 500;
    let runtime = Builder::new_multi_thread()
        .worker_threads(4)
        .enable_all()
        .build();
    let runtime = runtime.expect("a runtime starts");
    let _inside = runtime.enter();
    let pool = Pool::new(Used, options(8, queue::Shedding::Never)).expect("these make sense");
    let (cancelled, opened) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let tasks: Vec<_> = (0..TASKS)
        .map(|task| {
            let (pool, cancelled) = (pool.clone(), Arc::clone(&cancelled));
            let opened = Arc::clone(&opened);
            runtime.spawn(async move {
                let mut turn = 0;
                // Until the other thread had its chance, too.
                while turn < TURNS || opened.load(SeqCst) == 0 {
                    turn += 1;
                    let mut take = Box::pin(pool.take());
                    if (turn + task) % 16 == 0 {
                        // Asked once, and then dropped wherever it waits.
                        let asked = std::future::poll_fn(|cx| {
                            std::task::Poll::Ready(take.as_mut().poll(cx))
                        });
                        if asked.await.is_pending() {
                            cancelled.fetch_add(1, SeqCst);
                        }
                        continue;
                    }
                    let held = take.await.expect("nobody is refused");
                    assert!(!held.swap(true, SeqCst), "it is held by one at a time");
                    tokio::task::yield_now().await;
                    held.store(false, SeqCst);
                    drop(held);
                }
                turn
            })
        })
        .collect();
    while tasks.iter().any(|task| !task.is_finished()) {
        opened.fetch_add(u64::from(send_out(&pool)), SeqCst);
        thread::yield_now();
    }
    let ends = tasks.into_iter().map(|task| runtime.block_on(task));
    let turns: u64 = ends.map(|turns| turns.expect("no task panics")).sum();
    let stats = pool.stats();
    assert_eq!((stats.members.idle, stats.len()), (8, 0));
    assert_eq!(stats.takes.came, turns);
    assert_eq!(stats.takes.served + stats.takes.cancelled, turns);
    assert_eq!(stats.takes.waits.len(), stats.takes.served);
    // One that was granted and did not want it any more was served.
    assert!(stats.takes.cancelled <= cancelled.load(SeqCst));
    assert_eq!(stats.takes.shed_total(), 0);
}

/// Nobody comes to serve: the timer has to see to who waits.
#[test]
fn who_waits_on_the_porch_is_shed_in_time() {
    let runtime = Builder::new_current_thread().enable_all().build();
    let runtime = runtime.expect("a runtime starts");
    runtime.block_on(async {
        let wait_max = Duration::from_millis(20);
        let options = options(1, queue::Shedding::Timeout { wait_max });
        let pool = Pool::start(Used, options).await.expect("these make sense");
        let held = pool.take().await.expect("one is idle");
        let waiting = tokio::spawn({
            let pool = pool.clone();
            async move { pool.take().await.map(drop) }
        });
        tokio::task::yield_now().await;
        assert!(send_out(&pool));
        let refused = waiting
            .await
            .expect("no task panics")
            .expect_err("none is idle");
        assert_eq!(refused.refusal.reason, Reason::Timeout);
        assert!(!pool.driver.shell().porch.is_open());
        Held::release(held);
    });
}

#[test]
fn takers_with_terms_of_their_own_are_not_sent_out() {
    let runtime = Builder::new_current_thread().enable_all().build();
    let runtime = runtime.expect("a runtime starts");
    runtime.block_on(async {
        let options = options(1, queue::Shedding::default());
        let pool = Pool::start(Used, options).await.expect("these make sense");
        let held = pool.take().await.expect("one is idle");
        let wait = |terms: Terms| {
            let pool = pool.clone();
            tokio::spawn(async move { pool.take_on(terms).await.map(drop) })
        };
        let usual = wait(Terms {
            wait_max: Some(Duration::from_secs(9)),
            ..Terms::default()
        });
        tokio::task::yield_now().await;
        assert!(send_out(&pool));
        let urgent = wait(Terms {
            priority: crate::Priority::Urgent,
            ..Terms::default()
        });
        tokio::task::yield_now().await;
        assert!(!send_out(&pool));
        drop(held);
        for waiting in [urgent, usual] {
            waiting
                .await
                .expect("no task panics")
                .expect("it is served");
        }
    });
}
