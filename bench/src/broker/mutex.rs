//! Two queues behind one mutex; the party that comes second makes the match.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::Matcher;

#[derive(Clone)]
pub(super) struct Queues {
    inner: Arc<Mutex<Inner>>,
}

#[derive(Default)]
struct Inner {
    asks: VecDeque<Party>,
    offers: VecDeque<Party>,
}

struct Party {
    value: u64,
    reply: oneshot::Sender<u64>,
}

/// What came of a look at the other side's queue.
enum Look {
    Found(Party),
    Queued(oneshot::Receiver<u64>),
}

impl Queues {
    async fn meet(&self, value: u64, look: fn(&mut Inner, u64) -> Look) -> u64 {
        loop {
            let looked = look(&mut self.inner.lock(), value);
            match looked {
                Look::Queued(answer) => return answer.await.expect("every wait gets an answer"),
                Look::Found(other) => {
                    if other.reply.send(value).is_ok() {
                        return other.value;
                    }
                }
            }
        }
    }
}

impl Matcher for Queues {
    const NAME: &'static str = "mutex of oneshots";

    fn start() -> Self {
        Self {
            inner: Arc::default(),
        }
    }

    async fn ask(&self, value: u64) -> u64 {
        self.meet(value, |inner, value| {
            look(&mut inner.asks, &mut inner.offers, value)
        })
        .await
    }

    async fn offer(&self, value: u64) -> u64 {
        self.meet(value, |inner, value| {
            look(&mut inner.offers, &mut inner.asks, value)
        })
        .await
    }
}

/// Takes the first on the other side that still waits, or waits in turn.
fn look(own: &mut VecDeque<Party>, others: &mut VecDeque<Party>, value: u64) -> Look {
    while let Some(other) = others.pop_front() {
        if !other.reply.is_closed() {
            return Look::Found(other);
        }
    }
    let (reply, answer) = oneshot::channel();
    own.push_back(Party { value, reply });
    Look::Queued(answer)
}
