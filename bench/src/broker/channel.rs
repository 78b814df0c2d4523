//! Workers put themselves into a channel and clients take them out.

use async_channel::{Receiver, Sender, bounded};
use tokio::sync::oneshot;

use super::Matcher;

/// Workers in the channel at most; further ones wait to get in.
const OFFERS_MAX: usize = 1024;

#[derive(Clone)]
pub(super) struct Channel {
    workers: Sender<Worker>,
    clients: Receiver<Worker>,
}

struct Worker {
    value: u64,
    reply: oneshot::Sender<u64>,
}

impl Matcher for Channel {
    const NAME: &'static str = "channel of oneshots";

    fn start() -> Self {
        let (workers, clients) = bounded(OFFERS_MAX);
        Self { workers, clients }
    }

    async fn ask(&self, value: u64) -> u64 {
        loop {
            let worker = self.clients.recv().await.expect("we hold a sender");
            if worker.reply.send(value).is_ok() {
                return worker.value;
            }
        }
    }

    async fn offer(&self, value: u64) -> u64 {
        let (reply, answer) = oneshot::channel();
        let sent = self.workers.send(Worker { value, reply }).await;
        assert!(sent.is_ok(), "we hold a receiver");
        answer.await.expect("who takes a worker answers it")
    }
}
