//! One taker's places in the pools of a group.

use std::panic::Location;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use rideau_core::group::speak_for_both;
use rideau_core::{Instant, Reason, Refusal};
use tokio::task::coop;

use super::Inner;
use crate::ask_options::AskOptions;
use crate::pool::{Held, Manager, NotTaken, Take};

/// A take from a group under way.
pub(super) struct Wait<'a, M: Manager> {
    group: &'a Inner<M>,
    terms: AskOptions,
    /// Where in the program it was begun.
    at: &'static Location<'static>,
    sent: Instant,
    /// Where it waits, by the ids of the entries.
    places: Vec<(u64, Take<'static, M>)>,
    /// Where it need not ask again.
    refused: Vec<u64>,
    answers: Answers,
}

/// The refusals of the pools so far, as one.
#[derive(Default)]
pub(super) struct Answers(Option<NotTaken>);

type Answer<M> = Result<Held<'static, M>, NotTaken>;

impl<'a, M: Manager> Wait<'a, M> {
    pub(super) fn new(
        group: &'a Inner<M>,
        terms: AskOptions,
        at: &'static Location<'static>,
    ) -> Self {
        Self {
            group,
            terms,
            at,
            sent: group.clock.now(),
            places: Vec::new(),
            refused: Vec::new(),
            answers: Answers::default(),
        }
    }

    /// Take a member that can be had without any lock; none if there is none.
    pub(super) fn poll_prompt(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Held<'static, M>>> {
        // Nothing is ours yet: others may well run first.
        let proceed = ready!(coop::poll_proceed(context));
        proceed.made_progress();
        let entries = self.group.entries();
        for place in self.group.order(&entries) {
            let entry = &entries[place];
            if entry.pool.is_failing() {
                continue;
            }
            let mut take = entry.pool.take_owned_at(self.terms, self.at);
            match take.poll_prompt(context) {
                Poll::Ready(Ok(held)) => return Poll::Ready(Some(held)),
                Poll::Ready(Err(no)) => self.refuse(entry.id, no),
                Poll::Pending if take.is_fresh() => (),
                // It waits for the check of an idle member.
                Poll::Pending => self.places.push((entry.id, take)),
            }
        }
        Poll::Ready(None)
    }

    /// Leave pools that left, and ask those that were not asked yet. Of these, the ones that show
    /// an idle member come first and broken ones last.
    pub(super) fn ask(&mut self, context: &mut Context<'_>) -> Poll<Answer<M>> {
        let entries = self.group.entries();
        let is_entry = |id: u64| entries.iter().any(|entry| entry.id == id);
        self.places.retain(|(id, _)| is_entry(*id));
        if let Some(held) = self.poll_places(context) {
            return Poll::Ready(Ok(held));
        }
        let order = self.group.order(&entries).map(|place| &entries[place]);
        let mut fresh: Vec<_> = order.filter(|entry| !self.has_asked(entry.id)).collect();
        fresh.sort_by_cached_key(|entry| {
            let shown = entry.pool.show();
            (!shown.is_sound, !shown.is_idle)
        });
        for entry in fresh {
            let mut take = entry.pool.take_owned_at(self.terms_left(), self.at);
            match Pin::new(&mut take).poll(context) {
                Poll::Ready(Ok(held)) => return Poll::Ready(Ok(held)),
                Poll::Ready(Err(no)) => self.refuse(entry.id, no),
                Poll::Pending => self.places.push((entry.id, take)),
            }
        }
        self.give_up()
    }

    /// Is there an answer from any pool?
    pub(super) fn poll(&mut self, context: &mut Context<'_>) -> Poll<Answer<M>> {
        match self.poll_places(context) {
            Some(held) => Poll::Ready(Ok(held)),
            None => self.give_up(),
        }
    }

    fn poll_places(&mut self, context: &mut Context<'_>) -> Option<Held<'static, M>> {
        let mut at = 0;
        while let Some((_, take)) = self.places.get_mut(at) {
            match Pin::new(take).poll(context) {
                Poll::Ready(Ok(held)) => return Some(held),
                Poll::Ready(Err(no)) => {
                    let (id, over) = self.places.remove(at);
                    drop(over);
                    self.refuse(id, no);
                }
                Poll::Pending => at += 1,
            }
        }
        None
    }

    /// No, if there is nowhere left to wait.
    fn give_up(&mut self) -> Poll<Answer<M>> {
        if !self.places.is_empty() {
            return Poll::Pending;
        }
        let no = std::mem::take(&mut self.answers).speak();
        Poll::Ready(Err(no.after(self.waited())))
    }

    fn refuse(&mut self, entry: u64, no: NotTaken) {
        self.refused.push(entry);
        self.answers.add(no);
    }

    fn has_asked(&self, entry: u64) -> bool {
        self.refused.contains(&entry) || self.places.iter().any(|(id, _)| *id == entry)
    }

    /// The same terms for a pool that is asked later.
    fn terms_left(&self) -> AskOptions {
        let left = |limit: Duration| limit.saturating_sub(self.waited());
        AskOptions {
            wait_max: self.terms.wait_max.map(left),
            wait_default: self.terms.wait_default.map(left),
            ..self.terms
        }
    }

    fn waited(&self) -> Duration {
        let now = self.group.clock.now();
        now.max(self.sent).since(self.sent)
    }
}

impl Answers {
    pub(super) fn add(&mut self, no: NotTaken) {
        self.0 = Some(match self.0.take() {
            None => no,
            Some(before) => {
                let longest = match (&before.longest, &no.longest) {
                    (Some(one), Some(other)) if one.held > other.held => &before.longest,
                    (_, None) => &before.longest,
                    _ => &no.longest,
                };
                // Of one pool only if all are that one.
                let pool = no.pool.clone().filter(|_| no.pool == before.pool);
                NotTaken::new(
                    pool,
                    speak_for_both(before.refusal, no.refusal),
                    no.start_error
                        .clone()
                        .or_else(|| before.start_error.clone()),
                    longest.clone(),
                )
            }
        });
    }

    /// One refusal for all.
    pub(super) fn speak(self) -> NotTaken {
        let nowhere = Refusal {
            reason: Reason::Nowhere,
            waited: Duration::ZERO,
            len: 0,
            retry_after: Duration::ZERO,
        };
        self.0
            .unwrap_or_else(|| NotTaken::new(None, nowhere, None, None))
    }
}
