//! Units of keys that several nodes share: the owner of the key's partition decides, and
//! the holder is a connection of this node.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use rideau::Capacity;

use super::{Words, tell_full};
use crate::redis::client::{AskArgs, Client, CommandError, Next, closed, refused};
use crate::redis::commands::route::down_text;
use crate::redis::commands::tickets;
use crate::state::answer::{AnswerField, Outcome, micros};
use crate::state::catalog::RulePlace;
use crate::state::cluster::{
    ClaimOutcome, ClaimWait, Cluster, LockClaim, NameLease, NameOf, NoLease,
};
use crate::state::daemon::Daemon;
use crate::state::grant::Grant;
use crate::state::ticket::TicketKind;

/// A lock ask, until it is answered.
struct LockAsk {
    cluster: Arc<Cluster>,
    daemon: Arc<Daemon>,
    rule: Arc<RulePlace>,
    key: Vec<u8>,
    capacity: Capacity,
    is_waiting: bool,
}

/// Have units of a key, at once or after a wait.
pub(super) fn lock(
    client: &mut Client,
    words: &Words<'_>,
    (at, capacity): (usize, Capacity),
    tail: AskArgs,
) -> Result<Next, CommandError> {
    let Some(cluster) = client.daemon.cluster.clone() else {
        return Err(CommandError(
            "ERR this server is not a node of a cluster.".into(),
        ));
    };
    let is_waiting = tail.is_async || (tail.wait.is_some() && !client.is_in_exec);
    if is_waiting {
        client.may_wait()?;
    }
    let limit = client.wait_max(&tail);
    let claim = LockClaim {
        key: words.key.to_vec(),
        units: words.units,
        capacity,
        wait: match (is_waiting, tail.wait) {
            (false, _) => ClaimWait::No,
            (true, Some(_)) => ClaimWait::Named(limit),
            (true, None) => ClaimWait::Usual(limit),
        },
    };
    let ask = LockAsk {
        daemon: Arc::clone(&client.daemon),
        rule: Arc::clone(&client.rules[at]),
        key: claim.key.clone(),
        capacity,
        is_waiting,
        cluster: Arc::clone(&cluster),
    };
    let mut asked = Box::pin(cluster.acquire(claim, client.owner()));
    // What this node owns is answered at once.
    let mut context = Context::from_waker(Waker::noop());
    if let Poll::Ready(answer) = asked.as_mut().poll(&mut context) {
        return ask.finish(client, answer, &tail);
    }
    if client.is_in_exec && !tail.is_async {
        return Err(CommandError(
            "ERR LOCK is about a key of another node: send it outside of MULTI.".into(),
        ));
    }
    let name = String::from_utf8_lossy(&ask.key).into_owned();
    if tail.is_async {
        return tickets::later(client, TicketKind::Lock, &name, &tail, async move {
            let answer = asked.await;
            ask.settled(answer)
        });
    }
    let mut wait = tickets::blocked_until(TicketKind::Lock, name, async move {
        let answer = asked.await;
        move |client: &mut Client| ask.finish(client, answer, &tail)
    });
    // A hop is no wait.
    (wait.is_work, wait.is_hop) = (!is_waiting, !is_waiting);
    Ok(Next::Wait(wait))
}

impl LockAsk {
    /// Tell the client what became of its ask.
    fn finish(
        self,
        client: &mut Client,
        answer: Result<NameLease, NoLease>,
        tail: &AskArgs,
    ) -> Result<Next, CommandError> {
        if let Err(NoLease::Answered(ClaimOutcome::Full(full))) = answer {
            self.rule.counts.full.fetch_add(1, Ordering::Relaxed);
            tell_full(client, &self.key, full);
            return Ok(Next::Done);
        }
        match self.settled(answer) {
            Err(no) if no.denial().is_some() => {
                Err(CommandError(no.denial().unwrap_or_default().to_owned()))
            }
            answer => tickets::settle(client, TicketKind::Lock, answer, tail),
        }
    }

    /// The same where no client is there to be told.
    fn settled(&self, answer: Result<NameLease, NoLease>) -> tickets::Answer {
        let counts = &self.rule.counts;
        match answer {
            Ok(lease) if !lease.is_of_this_life() => Err(Outcome::denied(
                "CLUSTERDOWN this node has lost its place in the cluster; nothing is held.".into(),
            )),
            Ok(lease) => {
                counts.acquired.fetch_add(1, Ordering::Relaxed);
                Ok((self.parts(&lease), Grant::Name(Box::new(lease))))
            }
            Err(NoLease::Answered(ClaimOutcome::Refused(refusal))) => {
                counts.refuse(refusal.reason);
                let name = String::from_utf8_lossy(&self.key);
                let why = refusal.to_string();
                Err(refused(
                    &self.daemon,
                    "lock",
                    &name,
                    &refusal,
                    why,
                    String::new,
                ))
            }
            Err(NoLease::Down(_)) if self.daemon.is_draining() => {
                let name = String::from_utf8_lossy(&self.key);
                let refusal = closed(Duration::ZERO);
                let why = refusal.to_string();
                Err(refused(
                    &self.daemon,
                    "lock",
                    &name,
                    &refusal,
                    why,
                    String::new,
                ))
            }
            Err(NoLease::Down(why)) => Err(Outcome::denied(down_text(&self.cluster, &why, true))),
            // It waits, so it is never told that all are held.
            Err(NoLease::Answered(_)) => {
                let keys = &self.daemon.counts.keys_refused;
                keys.fetch_add(1, Ordering::Relaxed);
                Err(Outcome::denied(
                    "BUSY lock.keys_max or limits.keys_max reached on the node that owns this key: \
                     release some keys or raise the limit."
                        .into(),
                ))
            }
        }
    }

    fn parts(&self, lease: &NameLease) -> Vec<AnswerField> {
        let ordinal = match lease.of {
            NameOf::Lock { ordinal, .. } => ordinal,
            _ => 0,
        };
        let mut parts = vec![
            ordinal.into(),
            self.capacity.units().into(),
            lease.fence.into(),
        ];
        if self.is_waiting {
            parts.push(micros(lease.waited));
        }
        parts
    }
}
