//! The ports that children are told to listen on.
//!
//! One ledger for the whole program, whatever run folders it has open: looking
//! whether a port is free takes it for a moment, and that must not happen
//! while another child is about to listen there.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, TcpListener};
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Below those that the system gives to outgoing connections.
const ALL: Range<u16> = 20_000..30_000;
/// A process that was told of a port may come late.
const REST: Duration = Duration::from_secs(60);

static LEDGER: Mutex<Ledger> = Mutex::new(Ledger {
    next: None,
    held: BTreeSet::new(),
    rests: BTreeMap::new(),
});

struct Ledger {
    next: Option<u16>,
    held: BTreeSet<u16>,
    /// Since when those rest that were given back.
    rests: BTreeMap<u16, Instant>,
}

/// A port that no other child is told of. Dropping it gives it back.
pub(super) struct Port(u16);

impl Port {
    /// A port on which no process listens now. They are taken in turn, and one that
    /// was given back is not given away again soon.
    pub(super) fn claim() -> io::Result<Self> {
        let mut ledger = ledger();
        ledger.rests.retain(|_, since| since.elapsed() < REST);
        for _ in ALL {
            let port = ledger.turn();
            if !ledger.is_taken(port) && is_free(port) {
                ledger.held.insert(port);
                return Ok(Self(port));
            }
        }
        let message = format!("none from {} to {} is free", ALL.start, ALL.end - 1);
        Err(io::Error::new(ErrorKind::AddrInUse, message))
    }

    pub(super) fn number(&self) -> u16 {
        self.0
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        let mut ledger = ledger();
        ledger.held.remove(&self.0);
        ledger.rests.insert(self.0, Instant::now());
    }
}

impl Ledger {
    fn is_taken(&self, port: u16) -> bool {
        self.held.contains(&port) || self.rests.contains_key(&port)
    }

    fn turn(&mut self) -> u16 {
        let port = self.next.unwrap_or_else(first);
        let after = port + 1;
        self.next = Some(if after == ALL.end { ALL.start } else { after });
        port
    }
}

fn ledger() -> MutexGuard<'static, Ledger> {
    LEDGER.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Programs that start together do not try the same ports in turn.
fn first() -> u16 {
    let offset = std::process::id() % u32::from(ALL.end - ALL.start);
    ALL.start + u16::try_from(offset).expect("there are fewer ports than that")
}

/// Does no process listen on this port of the loopback?
pub(super) fn is_free(port: u16) -> bool {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_children_are_never_told_of_one_port() {
        let ports: Vec<Port> = (0..100).map(|_| Port::claim().unwrap()).collect();
        let numbers: BTreeSet<u16> = ports.iter().map(Port::number).collect();
        assert_eq!(numbers.len(), ports.len());
        assert!(numbers.iter().all(|number| ALL.contains(number)));
    }

    #[test]
    fn a_port_that_was_given_back_rests() {
        let port = Port::claim().unwrap();
        let number = port.number();
        drop(port);
        assert!(ledger().is_taken(number));
    }

    #[test]
    fn a_port_that_is_taken_is_passed_over() {
        let before = Port::claim().unwrap();
        let next = before.number() + 1;
        let Ok(_somebody) = TcpListener::bind((Ipv4Addr::LOCALHOST, next)) else {
            return;
        };
        let ports: Vec<Port> = (0..50).map(|_| Port::claim().unwrap()).collect();
        assert!(ports.iter().all(|port| port.number() != next));
    }
}
