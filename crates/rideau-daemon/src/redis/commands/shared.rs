//! Pools of lists, brokers and regulators that several nodes share: the owner of the
//! partition decides, and the holder is a connection of this node.

use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use rideau::{AskOptions, Lead, Reason};
use rideau_resp::Quoted;

use super::ask_args;
use super::tickets::{self, Answer};
use crate::redis::client::{AskArgs, Client, CommandError, Next, OnReady, closed, refused};
use crate::redis::commands::route::down_text;
use crate::state::answer::{AnswerField, Outcome, micros};
use crate::state::cluster::{
    ClaimWait, Cluster, NameLease, NameOf, NoPlace, PlaceClaim, PlaceKind, Renewed,
};
use crate::state::daemon::Daemon;
use crate::state::end::EndReason;
use crate::state::grant::Grant;
use crate::state::ticket::{Ticket, TicketKind};

/// An ask for something that nodes share.
pub(super) struct PlaceAsk<'a> {
    pub(super) kind: PlaceKind,
    /// The pool, broker or regulator, or `@` and a group.
    pub(super) name: &'a str,
    /// What a party of a match brings.
    pub(super) value: &'a [u8],
    pub(super) terms: AskOptions,
    /// It does not wait.
    pub(super) is_now: bool,
}

impl PlaceAsk<'_> {
    fn claim(&self, client: &Client, tail: &AskArgs) -> PlaceClaim {
        PlaceClaim {
            kind: self.kind,
            name: self.name.to_owned(),
            wait: match self.terms.wait_max {
                _ if self.is_now => ClaimWait::No,
                Some(wait) => ClaimWait::Named(wait),
                None => ClaimWait::Usual(self.terms.wait_default.unwrap_or_default()),
            },
            flow: self.terms.flow,
            note: ask_args::note(client, tail),
            value: self.value.to_vec(),
        }
    }
}

/// Have something that nodes share, at once or after a wait.
pub(super) fn come(
    client: &mut Client,
    ask: &PlaceAsk<'_>,
    home: Box<str>,
    tail: AskArgs,
) -> Result<Next, CommandError> {
    let Some(cluster) = client.daemon.cluster.clone() else {
        return Err(CommandError(
            "ERR this server is not a node of a cluster.".into(),
        ));
    };
    let claim = ask.claim(client, &tail);
    let is_waiting = !claim.wait.limit().is_zero();
    if is_waiting || tail.is_async {
        client.may_wait()?;
    }
    let asked = AskedPlace {
        daemon: Arc::clone(&client.daemon),
        cluster: Arc::clone(&cluster),
        kind: ask.kind,
        name: ask.name.to_owned(),
        is_now: ask.is_now,
    };
    let mut taking = Box::pin(cluster.take_place(claim, home, client.owner()));
    let kind = asked.ticket_kind();
    let mut context = Context::from_waker(Waker::noop());
    if let Poll::Ready(taken) = taking.as_mut().poll(&mut context) {
        return asked.settle(client, taken, &tail);
    }
    if client.is_in_exec && !tail.is_async {
        return Err(CommandError(format!(
            "ERR {} is shared with other nodes: send this outside of MULTI.",
            Quoted(ask.name.as_bytes())
        )));
    }
    if tail.is_async {
        return tickets::later(client, kind, ask.name, &tail, async move {
            asked.answer(taking.await)
        });
    }
    let mut wait = tickets::blocked_until(kind, ask.name.to_owned(), async move {
        let taken = taking.await;
        move |client: &mut Client| asked.settle(client, taken, &tail)
    });
    // A hop is no wait.
    wait.is_work = !is_waiting;
    Ok(Next::Wait(wait))
}

/// An ask, until it is answered.
struct AskedPlace {
    daemon: Arc<Daemon>,
    cluster: Arc<Cluster>,
    kind: PlaceKind,
    name: String,
    is_now: bool,
}

impl AskedPlace {
    const fn ticket_kind(&self) -> TicketKind {
        match self.kind {
            PlaceKind::Take => TicketKind::Member,
            PlaceKind::Lease => TicketKind::Lease,
            PlaceKind::Ask | PlaceKind::Offer => TicketKind::Match,
        }
    }

    /// Tell the client what became of its ask.
    fn settle(
        self,
        client: &mut Client,
        taken: Result<NameLease, NoPlace>,
        tail: &AskArgs,
    ) -> Result<Next, CommandError> {
        match self.answer(taken) {
            Err(no) if no.denial().is_some() => {
                Err(CommandError(no.denial().unwrap_or_default().to_owned()))
            }
            answer => tickets::settle(client, self.ticket_kind(), answer, tail),
        }
    }

    /// The same where no client is there to be told.
    fn answer(&self, taken: Result<NameLease, NoPlace>) -> Answer {
        let kind = self.ticket_kind().word();
        let no = |refusal, why| {
            let no = refused(&self.daemon, kind, &self.name, &refusal, why, String::new);
            match refusal.reason {
                Reason::Busy if self.is_now => no.with_word("retry"),
                _ => no,
            }
        };
        match taken {
            Ok(lease) if !lease.is_of_this_life() => Err(Outcome::denied(
                "CLUSTERDOWN this node has lost its place in the cluster; nothing is held.".into(),
            )),
            Ok(lease) => Ok((parts(&lease), Grant::Name(Box::new(lease)))),
            Err(NoPlace::Refused(refusal, why)) => Err(no(refusal, why)),
            Err(NoPlace::Down(_)) if self.daemon.is_draining() => {
                let refusal = closed(Duration::ZERO);
                let why = refusal.to_string();
                Err(no(refusal, why))
            }
            Err(NoPlace::Down(why)) => Err(Outcome::denied(down_text(&self.cluster, &why, true))),
            Err(NoPlace::Unknown) => Err(Outcome::denied(format!(
                "CLUSTERDOWN the node that decides about {kind} {} does not have it just now: \
                 nothing is held. Ask again, and give all nodes the same config.",
                Quoted(self.name.as_bytes())
            ))),
        }
    }
}

/// This node does not decide about a thing, or not yet.
#[cold]
pub(super) fn not_here(kind: &str, name: &str) -> CommandError {
    CommandError(format!(
        "CLUSTERDOWN no node decides about {kind} {} just now: ask again.",
        Quoted(name.as_bytes())
    ))
}

/// The fields of a grant besides its ticket.
fn parts(lease: &NameLease) -> Vec<AnswerField> {
    let waited = micros(lease.waited);
    match &lease.of {
        NameOf::Member { value } => vec![value.as_str().into(), waited],
        NameOf::Match { value, lead, .. } => {
            let value = AnswerField::Text(value.as_slice().into());
            vec![value, lead_micros(*lead), waited]
        }
        NameOf::Lease { lead } => vec![lead_micros(*lead), waited],
        NameOf::Lock { .. } => Vec::new(),
    }
}

fn lead_micros(lead: Lead) -> AnswerField {
    AnswerField::Number(lead.as_nanos() / 1_000)
}

/// Ask the owner to keep a lease of a regulator.
pub(super) fn renew(
    client: &Client,
    word: &[u8],
    ticket: Ticket,
    (partition, row): (u32, u64),
) -> Result<Next, CommandError> {
    let Some(cluster) = client.daemon.cluster.clone() else {
        return Err(CommandError(
            "ERR this server is not a node of a cluster.".into(),
        ));
    };
    let word = word.to_vec();
    let mut asking = Box::pin(async move {
        let renewed = cluster.renew(partition, row).await;
        let finish: OnReady = Box::new(move |client| {
            tell_renewed(client, &cluster, (&word, ticket), renewed);
        });
        finish
    });
    let mut context = Context::from_waker(Waker::noop());
    let name = TicketKind::Lease.word().to_owned();
    let wait = match asking.as_mut().poll(&mut context) {
        Poll::Ready(finish) => tickets::work(name, async move { finish }),
        Poll::Pending => tickets::work(name, asking),
    };
    Ok(Next::Wait(wait))
}

fn tell_renewed(
    client: &mut Client,
    cluster: &Cluster,
    (word, ticket): (&[u8], Ticket),
    renewed: Renewed,
) {
    match renewed {
        Renewed::Go(lead, waited) => {
            let parts = vec![lead_micros(lead), micros(waited)];
            Outcome::granted(ticket, parts).write(&mut client.reply());
        }
        Renewed::Stopped(waited) => {
            let lease_table = &client.daemon.lease_table;
            let taken = lease_table.take(ticket, None, EndReason::Stopped);
            if let Some(grant) = taken.ok().and_then(|taken| taken.thing.into_grant()) {
                grant.end(EndReason::Stopped);
            }
            Outcome::new("stop", vec![micros(waited)]).write(&mut client.reply());
        }
        Renewed::Gone => {
            client.reply().error(format!(
                "STALE {} is not held any more: ask again.",
                Quoted(word)
            ));
        }
        Renewed::Down(why) => {
            let text = down_text(cluster, &why, true);
            client.reply().error(text);
        }
    }
}
