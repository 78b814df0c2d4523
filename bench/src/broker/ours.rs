//! Rideau's broker as people get it: with controlled delay and statistics.

use rideau::{Broker, BrokerOptions, queue};

use super::Matcher;
use crate::report::OURS;

#[derive(Clone)]
pub(super) struct Ours(Broker<u64, u64>);

impl Matcher for Ours {
    const NAME: &'static str = OURS;

    fn start() -> Self {
        let queue = queue::Options {
            max: None,
            ..queue::Options::default()
        };
        let options = BrokerOptions {
            asks: queue.clone(),
            offers: queue,
            ..BrokerOptions::default()
        };
        Self(Broker::new(options).expect("these options keep every rule"))
    }

    async fn ask(&self, value: u64) -> u64 {
        let met = self.0.ask(value).await.expect("nobody waits for long here");
        met.peer.done();
        met.value
    }

    async fn offer(&self, value: u64) -> u64 {
        let met = self
            .0
            .offer(value)
            .await
            .expect("nobody waits for long here");
        met.peer.done();
        met.value
    }
}
