//! Clients put themselves into a channel and workers take them out.
//!
//! The other way round, workers in the channel, cost about twice the processor
//! time when clients outnumber workers, so this is the fairer peer.

use async_channel::{Receiver, Sender, unbounded};
use tokio::sync::oneshot;

use super::Matcher;

#[derive(Clone)]
pub(super) struct Channel {
    asks: Sender<Client>,
    offers: Receiver<Client>,
}

struct Client {
    value: u64,
    reply: oneshot::Sender<u64>,
}

impl Matcher for Channel {
    const NAME: &'static str = "channel of oneshots";

    fn start() -> Self {
        let (asks, offers) = unbounded();
        Self { asks, offers }
    }

    async fn ask(&self, value: u64) -> u64 {
        let (reply, answer) = oneshot::channel();
        let sent = self.asks.try_send(Client { value, reply });
        assert!(sent.is_ok(), "we hold a receiver, and there is always room");
        answer.await.expect("a worker answers its client")
    }

    async fn offer(&self, value: u64) -> u64 {
        loop {
            let client = self.offers.recv().await.expect("we hold a sender");
            if client.reply.send(value).is_ok() {
                return client.value;
            }
        }
    }
}
