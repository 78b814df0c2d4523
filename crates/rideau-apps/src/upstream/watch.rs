//! Looks after the idle connections of one I/O thread to one process.
//!
//! It runs a few times in the span that one may be idle, and when the process
//! closes one that it has seen idle before; when none is there it sleeps until
//! it is called, so that neither a busy process nor one that is not used costs
//! anything.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Weak;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use tokio::time::Sleep;

use super::{Shared, Watch};

/// Looks come no closer than this.
const LOOK_MIN: Duration = Duration::from_millis(5);

/// Close those that were idle for too long, and forget those that the process
/// closed, until all connections are gone.
pub(super) async fn look_after(shared: Weak<Shared>, index: usize) {
    let mut next = Box::pin(tokio::time::sleep(Duration::ZERO));
    poll_fn(|context| match shared.upgrade() {
        Some(shared) => shared.look(index, next.as_mut(), context),
        None => Poll::Ready(()),
    })
    .await;
}

impl Shared {
    fn look(&self, index: usize, mut next: Pin<&mut Sleep>, context: &mut Context<'_>) -> Poll<()> {
        let is_due = next.as_mut().poll(context).is_ready();
        let idle_for = self.idle_for();
        let now = Instant::now();
        let mut closed = Vec::new();
        let mut stack = self.stacks[index].lock();
        if stack.is_closed {
            stack.watch = Watch::Begun;
            return Poll::Ready(());
        }
        stack.idle.retain_mut(|idle| {
            let age = now.saturating_duration_since(idle.since);
            let is_open = idle.wire.poll_more(context).is_pending();
            if !is_open {
                closed.push(age);
            }
            is_open && age < idle_for
        });
        let is_asleep = is_due && stack.idle.is_empty();
        let waker = context.waker().clone();
        stack.watch = Watch::Task { waker, is_asleep };
        drop(stack);
        if let Some(age) = closed.into_iter().min() {
            self.learn(age);
        }
        if is_due && !is_asleep {
            let wait = (idle_for / 4).max(LOOK_MIN);
            next.as_mut().reset(tokio::time::Instant::now() + wait);
            // So that it is waited for.
            let _ = next.as_mut().poll(context);
        } else if is_asleep {
            // A call has it look at once.
            next.as_mut().reset(tokio::time::Instant::now());
        }
        Poll::Pending
    }
}
