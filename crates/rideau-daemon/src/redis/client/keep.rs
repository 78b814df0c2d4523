//! Keeps what a client is granted, and begins the answer that says so.

use std::sync::atomic::Ordering;

use rideau_resp::Reply;

use super::{AskArgs, Client, CommandError};
use crate::state::answer::{AnswerField, Outcome};
use crate::state::end::EndReason;
use crate::state::grant::Grant;
use crate::state::lease_table::LeaseEntry;
use crate::state::nonces::Named;
use crate::state::ticket::{Text, Ticket, TicketKind};

impl Client {
    /// Begin the answer of a grant, an array of `len` elements: the word and the
    /// ticket. The others follow.
    pub(crate) fn reply_go(&mut self, len: u8, ticket: Ticket) -> Reply<'_> {
        debug_assert!(len < 10, "it is one digit");
        // Every grant begins so, and it is written in one piece instead of seven.
        const HEAD: &[u8; 17] = b"*0\r\n$2\r\ngo\r\n$34\r\n";
        const END: usize = HEAD.len() + Text::LEN;
        if !ticket.tag.is_none() {
            let mut reply = self.reply();
            reply.array(len.into()).bulk("go").bulk(ticket.text());
            return reply;
        }
        let mut line = [0; END + 2];
        line[..HEAD.len()].copy_from_slice(HEAD);
        line[1] += len;
        line[HEAD.len()..END].copy_from_slice(ticket.text().as_ref());
        line[END..].copy_from_slice(b"\r\n");
        self.out.reserve(128);
        self.out.extend_from_slice(&line);
        self.reply()
    }

    /// Keep a grant, and answer with its ticket.
    ///
    /// # Errors
    ///
    /// If the holder has too many, or has ended meanwhile.
    pub(crate) fn keep(
        &self,
        kind: TicketKind,
        grant: Grant,
        tail: &AskArgs,
    ) -> Result<Ticket, CommandError> {
        let most = self.config.limits.held_max;
        let named = (kind, self.daemon.tag_of(&grant));
        let (lease_table, grant) = (&self.daemon.lease_table, LeaseEntry::Held(grant));
        match lease_table.keep(
            self.owner(),
            named,
            grant,
            tail.note.clone(),
            most,
            self.now,
        ) {
            Ok(ticket) => Ok(ticket),
            Err(thing) => Err(self.give_back(*thing, most)),
        }
    }

    #[cold]
    fn give_back(&self, thing: LeaseEntry, most: usize) -> CommandError {
        if let LeaseEntry::Held(grant) = thing {
            grant.end(EndReason::Released);
        }
        self.not_kept(most)
    }

    /// Why something could not be kept: the session is over, or the holder has
    /// reached its limit.
    pub(crate) fn not_kept(&self, most: usize) -> CommandError {
        let sessions = &self.daemon.sessions;
        if let Some((session, _)) = self.session
            && sessions.find(session).is_none()
        {
            return CommandError(format!(
                "NOSUCH session \"{session}\": it has ended, and what it held was released. \
                 SESSION OPEN opens another, SESSION DETACH continues without one."
            ));
        }
        let counts = &self.daemon.counts;
        counts.held_refused.fetch_add(1, Ordering::Relaxed);
        CommandError(format!(
            "BUSY limits.held_max ({most}) reached by the leases and asks of this holder: release \
             some or raise it."
        ))
    }

    /// Remember what a grant was answered with, if its ask may be repeated or awaited.
    #[inline]
    pub(crate) fn remember(
        &self,
        tail: &AskArgs,
        ticket: Ticket,
        told: impl Fn() -> Vec<AnswerField>,
    ) {
        if tail.is_async {
            let outcome = Outcome::granted(ticket, told());
            self.daemon.lease_table.set_answer(ticket, outcome);
        }
        self.name_ask(tail, ticket, told);
    }

    /// Remember an ask by the client's own name for it. A session remembers it for all
    /// its connections.
    pub(crate) fn name_ask(
        &self,
        tail: &AskArgs,
        ticket: Ticket,
        told: impl FnOnce() -> Vec<AnswerField>,
    ) {
        if let Some(nonce) = &tail.nonce {
            let told = told();
            let lease_table = &self.daemon.lease_table;
            lease_table.remember(self.owner(), nonce, Named { ticket, told });
        }
    }
}
