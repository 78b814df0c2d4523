//! What clients were told they hold. No value may be in it twice, and what is in it has to be
//! held for as long as no client gives it back.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rideau_resp::Value;
use tokio::time::{Instant, sleep};

use crate::exit::Failure;
use crate::wire::{Server, Wire};

/// How long a value is held at most: longer than any demo.
pub(super) const TTL: &str = "86400000";
/// How long a value that no node answers for is asked about.
const CHECK_MAX: Duration = Duration::from_secs(60);
const AGAIN: Duration = Duration::from_millis(200);

/// The values that clients hold, by the answers they got.
#[derive(Clone, Default)]
pub(super) struct Ledger {
    inner: Arc<Mutex<Inner>>,
}

#[derive(Default)]
struct Inner {
    /// Values with their tickets.
    held: HashMap<String, String>,
    faults: Faults,
}

/// Faults that must not occur.
#[derive(Clone, Copy, Default)]
pub(super) struct Faults {
    /// Values that were given out while another client held them.
    pub(super) twice: u64,
    /// Values that a client held and a node knew nothing of.
    pub(super) lost: u64,
}

/// The result of the final check.
#[derive(Clone, Copy, Default)]
pub(super) struct Checked {
    /// Values that are held as clients were told.
    pub(super) held: u64,
    /// Values that no node answered for.
    pub(super) unanswered: u64,
}

impl Ledger {
    /// A client was told that it holds a value.
    pub(super) fn granted(&self, value: &str, ticket: &str) {
        let mut inner = self.inner.lock();
        let former = inner.held.insert(value.to_owned(), ticket.to_owned());
        inner.faults.twice += u64::from(former.is_some());
    }

    /// A client is about to give a value back: from now on another may get it.
    pub(super) fn releases(&self, value: &str) {
        self.inner.lock().held.remove(value);
    }

    /// A client was told that nothing was done, so it holds the value still.
    pub(super) fn kept(&self, value: &str, ticket: &str) {
        self.granted(value, ticket);
    }

    /// A client was told that it does not hold what it held.
    pub(super) fn lost(&self) {
        self.inner.lock().faults.lost += 1;
    }

    /// How many values are held.
    pub(super) fn len(&self) -> usize {
        self.inner.lock().held.len()
    }

    /// Faults that must not occur.
    pub(super) fn faults(&self) -> Faults {
        self.inner.lock().faults
    }

    /// Ask the nodes about everything that is held.
    pub(super) async fn check(&self, servers: &[Server]) -> Checked {
        let all: Vec<_> = self.inner.lock().held.clone().into_iter().collect();
        let until = Instant::now() + CHECK_MAX;
        let mut checked = Checked::default();
        let mut wire = None;
        for (at, (_, ticket)) in all.iter().enumerate() {
            loop {
                let server = &servers[at % servers.len()];
                match refresh(&mut wire, server, ticket).await {
                    Some(true) => checked.held += 1,
                    Some(false) => self.lost(),
                    None if Instant::now() > until => checked.unanswered += 1,
                    None => {
                        sleep(AGAIN).await;
                        continue;
                    }
                }
                break;
            }
        }
        checked
    }

    /// An error if something was that must not be.
    pub(super) fn verdict(&self) -> Result<(), Failure> {
        let Faults { twice, lost } = self.faults();
        match (twice, lost) {
            (0, 0) => Ok(()),
            _ => Err(Failure::Broken(format!(
                "{twice} values were given out twice, and {lost} were lost: this is a defect of \
                 Rideau"
            ))),
        }
    }
}

/// Whether a value is held; none if no node answers for it just now.
async fn refresh(wire: &mut Option<Wire>, server: &Server, ticket: &str) -> Option<bool> {
    if wire.is_none() {
        *wire = Wire::connect(server, "demo-check").await.ok();
    }
    let answer = wire.as_mut()?.ask(&["REFRESH", ticket, "TTL", TTL]).await;
    match answer {
        Ok(Value::Array(_)) => Some(true),
        Ok(Value::Error(text)) => match is_later(&text) || text.starts_with("UNKNOWN") {
            true => None,
            false => Some(false),
        },
        Ok(_) => Some(false),
        Err(_) => {
            *wire = None;
            None
        }
    }
}

/// Whether an error says that nothing was done, and that it may be asked again.
pub(super) fn is_later(text: &str) -> bool {
    let words = ["CLUSTERDOWN", "BUSY", "LOADING", "READONLY", "MISCONF"];
    words.iter().any(|word| text.starts_with(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_that_is_given_out_twice_is_found() {
        let ledger = Ledger::default();
        ledger.granted("7", "v-1");
        ledger.releases("7");
        ledger.granted("7", "v-2");
        assert!(ledger.verdict().is_ok());
        ledger.granted("7", "v-3");
        assert_eq!((ledger.faults().twice, ledger.len()), (1, 1));
        assert!(ledger.verdict().is_err());
    }

    #[test]
    fn what_may_be_asked_again_is_no_loss() {
        assert!(is_later("CLUSTERDOWN no node serves this partition"));
        assert!(!is_later("STALE 7: another holder has it."));
    }
}
