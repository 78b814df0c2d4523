//! The end of a pool.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use rideau_core::{Instant, Machine};

use super::{Manager, Pool};
use crate::timer::Alarm;

impl<M: Manager> Pool<M> {
    /// Refuse every take that waits or comes, stop what is idle now and the
    /// rest as it comes back, and wait until the last member is gone. After
    /// `within` the members still held are revoked, as by
    /// [`close_now`](Self::close_now), and the wait ends, whatever their holders do. Says how
    /// many members are left then; [`closed`](Self::closed) waits for them.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing: the pool goes on closing.
    pub async fn close(&self, within: Duration) -> usize {
        let due = self.begin_close(within);
        let mut alarm = Alarm::at(self.driver.clock(), due);
        self.closed_before(&mut alarm).await
    }

    /// An alarm on the pool's clock.
    pub(crate) fn alarm(&self, within: Duration) -> Alarm {
        let clock = self.driver.clock();
        Alarm::at(clock, clock.now() + within)
    }

    /// Wait until the last member is gone, but no longer than until an alarm. Says how many
    /// members are left.
    pub(crate) async fn closed_before(&self, alarm: &mut Alarm) -> usize {
        let mut closed = pin!(self.closed());
        let is_over = poll_fn(|context| {
            if closed.as_mut().poll(context).is_ready() {
                return Poll::Ready(true);
            }
            alarm.poll_rung(context).map(|()| false)
        });
        if is_over.await {
            return 0;
        }
        // What is due just now is done by then.
        self.driver
            .step(|step| step.machine.advance(step.now, step.effects));
        let counts = self.driver.look(|tables, _| tables.pool.counts());
        counts.size()
    }

    /// As [`close`](Self::close), without the wait. Says when members are revoked.
    pub(crate) fn begin_close(&self, within: Duration) -> Instant {
        self.driver.step(|step| {
            let deadline = step.now + within;
            let pool = &mut step.machine.pool;
            pool.close(deadline, step.now, step.effects);
            deadline
        })
    }

    /// As [`close`](Self::close), but revoke members that are held at once: their
    /// work is aborted if their manager knows how, and their holders are told. Waits until
    /// the last member is gone.
    pub async fn close_now(&self) {
        self.begin_close(Duration::ZERO);
        self.closed().await;
    }

    /// Wait until the pool was closed and its last member is gone.
    pub async fn closed(&self) {
        loop {
            let news = self.driver.shell().news.notified();
            if self.is_gone() {
                return;
            }
            news.await;
        }
    }

    /// The pool was closed, and the last member is gone.
    pub(crate) fn is_gone(&self) -> bool {
        self.driver.look(|tables, _| tables.pool.is_closed())
    }

    /// Whether the pool was closed: no member is handed out any more. Some may still be
    /// held; [`closed`](Self::closed) waits until the last one is gone.
    pub fn is_closed(&self) -> bool {
        self.driver.look(|tables, _| tables.pool.is_closing())
    }
}
