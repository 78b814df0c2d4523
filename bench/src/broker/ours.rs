//! Rideau's broker as people get it: with a law that sheds, and statistics.

use std::time::Duration;

use rideau::{AskOptions, Broker, BrokerOptions, queue};

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
        let met = self.0.ask(value).await.expect("waits are short here");
        met.peer.done();
        met.value
    }

    /// The law sheds asks that did not name their wait.
    async fn ask_for_long(&self, value: u64) -> u64 {
        let terms = AskOptions {
            wait_max: Some(Duration::from_secs(60)),
            ..AskOptions::default()
        };
        let met = self.0.ask_on(value, terms).await;
        met.expect("waits are under a minute here").value
    }

    async fn offer(&self, value: u64) -> u64 {
        let met = self.0.offer(value).await.expect("waits are short here");
        met.peer.done();
        met.value
    }
}
