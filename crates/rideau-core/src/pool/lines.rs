//! Where takers wait, by priority.

use std::time::Duration;

use crate::ids::{Priority, Tag, Ticket};
use crate::ledger::{Ledger, Reply};
use crate::queue::{self, AskOptions, Load, Queue};
use crate::refusal::{Reason, Refusal};
use crate::settings::OptionError;
use crate::time::Instant;
use crate::waiting::{End, Tally, Waiting};

const LINES: usize = Priority::ALL.len();

/// One line for each priority.
#[derive(Debug)]
pub(super) struct Lines<R> {
    lines: [Waiting<R>; LINES],
    len: usize,
    /// A member found no take waiting, and the line's law does not know yet.
    untold: [bool; LINES],
    load: Load,
}

impl<R: Reply> Lines<R> {
    pub(super) fn new(options: &queue::Options, now: Instant) -> Result<Self, OptionError> {
        let line = |place: usize| {
            let queue = Queue::new(options.clone(), now)?;
            // A ticket's serial says in which line it is.
            Ok(Waiting::new(
                queue,
                Ledger::new(1 + place as u64, LINES as u64),
            ))
        };
        let lines = [line(0)?, line(1)?, line(2)?];
        Ok(Self {
            lines,
            len: 0,
            untold: [false; LINES],
            load: Load::default(),
        })
    }

    /// How many wait.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.len
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// More waits have to be ended than one call may: takes that wait are
    /// served then.
    pub(super) fn is_behind(&self) -> bool {
        self.lines.iter().any(Waiting::is_behind)
    }

    pub(super) fn lens(&self) -> [usize; LINES] {
        self.lines.each_ref().map(Waiting::len)
    }

    pub(super) fn line(&self, priority: Priority) -> &Waiting<R> {
        &self.lines[priority as usize]
    }

    pub(super) fn oldest(&self) -> Option<Instant> {
        self.lines.iter().filter_map(Waiting::oldest).min()
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        if self.len == 0 {
            return None;
        }
        let lines = self.lines.iter().filter(|line| line.len() > 0);
        lines.filter_map(Waiting::deadline).min()
    }

    /// Let a take wait; the refusal if there is no room.
    #[inline]
    pub(super) fn join(
        &mut self,
        terms: &AskOptions,
        priority: Priority,
        reply: R,
        now: Instant,
    ) -> Result<Ticket, Refusal> {
        let line = &mut self.lines[priority as usize];
        let before = line.len();
        if before == 0 && self.untold[priority as usize] {
            // As if the member had come just now: a law that waits for quick
            // serves learns that there were some.
            self.untold[priority as usize] = false;
            let served = line.serve(now);
            debug_assert!(served.is_none(), "no ask waits in an empty queue");
        }
        line.bear(self.load);
        let ticket = line.join(terms, reply, now);
        self.len = self.len + line.len() - before;
        match line.take_ended(ticket) {
            Some(End::Shed { refusal, .. }) => Err(refusal),
            Some(End::Gone(_)) | None => Ok(ticket),
        }
    }

    /// A member found no take waiting.
    #[inline]
    pub(super) fn find_nobody(&mut self) {
        self.untold = [true; LINES];
    }

    /// Say no to a take that came just now.
    pub(super) fn turn_away(
        &mut self,
        terms: &AskOptions,
        priority: Priority,
        reason: Reason,
        now: Instant,
    ) -> Refusal {
        let line = &mut self.lines[priority as usize];
        line.bear(self.load);
        line.refuse(terms, reason, now).1
    }

    /// The capacity of the members, for the shedding policies of all queues.
    #[inline]
    pub(super) fn bear(&mut self, load: Load) {
        self.load = load;
        if self.len > 0 {
            // A line that is only read stays in the memory of every core.
            let lines = self.lines.iter_mut().filter(|line| line.len() > 0);
            lines.for_each(|line| line.bear(load));
        }
    }

    /// Take the one whose turn it is.
    #[inline]
    pub(super) fn serve(&mut self, now: Instant) -> Option<(Instant, R, Duration)> {
        for line in &mut self.lines {
            let before = line.len();
            if before == 0 {
                continue;
            }
            let served = line.serve(now);
            self.len = self.len + line.len() - before;
            if let Some((_, sent, reply)) = served {
                let waited = line.count_served(sent, now);
                return Some((sent, reply, waited));
            }
            if line.is_behind() {
                return None;
            }
        }
        None
    }

    /// Count a take that came at `sent` and is served at once.
    pub(super) fn count_passed(
        &mut self,
        priority: Priority,
        sent: Instant,
        now: Instant,
    ) -> Duration {
        self.lines[priority as usize].count_passed(sent, now)
    }

    pub(super) fn reply_mut(&mut self, ticket: Ticket) -> Option<&mut R> {
        self.lines[line_of(ticket)].reply_mut(ticket)
    }

    pub(super) fn cancel(&mut self, ticket: Ticket, now: Instant) -> Option<(R, Refusal)> {
        let line = &mut self.lines[line_of(ticket)];
        let gone = line.cancel(ticket, now);
        self.len -= usize::from(gone.is_some());
        gone
    }

    pub(super) fn cancel_tag(&mut self, tag: Tag, now: Instant) -> Vec<(R, Refusal)> {
        let mut gone = Vec::new();
        for at in 0..LINES {
            while let Some(ticket) = self.lines[at].newest(tag) {
                gone.extend(self.cancel(ticket, now));
            }
        }
        gone
    }

    pub(super) fn advance(&mut self, now: Instant) {
        self.each(|line| line.advance(now));
    }

    pub(super) fn close(&mut self, now: Instant) {
        self.each(|line| line.close(now));
    }

    /// Say no to every take that waits.
    pub(super) fn refuse_all(&mut self, reason: Reason, now: Instant) {
        self.each(|line| line.refuse_all(reason, now));
    }

    /// Change the queues to options that have been validated.
    pub(super) fn reconfigure(&mut self, options: &queue::Options, now: Instant) {
        self.each(|line| line.reconfigure(options.clone(), now));
    }

    #[inline]
    pub(super) fn has_ended(&self) -> bool {
        self.lines.iter().any(Waiting::has_ended)
    }

    /// The takes whose wait ended without a member since this was last called.
    pub(super) fn ended(&mut self) -> impl Iterator<Item = End<R>> {
        self.lines.iter_mut().flat_map(Waiting::ended)
    }

    /// Outcomes of all takes.
    pub(super) fn tally(&self) -> Tally {
        let [first, rest @ ..] = &self.lines;
        let mut tally = first.tally().clone();
        rest.iter().for_each(|line| tally.add(line.tally()));
        tally
    }

    fn each(&mut self, mut change: impl FnMut(&mut Waiting<R>)) {
        self.lines.iter_mut().for_each(&mut change);
        self.len = self.lines.iter().map(Waiting::len).sum();
    }
}

fn line_of(ticket: Ticket) -> usize {
    ((ticket.serial() - 1) % LINES as u64) as usize
}
