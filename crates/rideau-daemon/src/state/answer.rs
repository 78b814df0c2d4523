//! A normal answer: a lower-case word, and what belongs to it.

use std::time::Duration;

use rideau::{Reason, Refusal};
use rideau_process::panics::Panicked;
use rideau_resp::Reply;

use crate::state::ticket::Ticket;

/// The answer to an ask, as an array that begins with a word. New elements come
/// only at the end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Outcome {
    word: &'static str,
    parts: Vec<AnswerField>,
    /// When asking again has a chance, if that is known.
    retry_after: Option<Duration>,
}

/// An element of an answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AnswerField {
    /// A text.
    Text(Vec<u8>),
    /// A number.
    Number(i64),
    /// Nothing is known.
    None,
}

impl Outcome {
    /// Yes.
    pub const fn go(parts: Vec<AnswerField>) -> Self {
        Self::new("go", parts)
    }

    /// Yes, with the ticket before what belongs to it.
    pub fn granted(ticket: Ticket, parts: Vec<AnswerField>) -> Self {
        let mut all = vec![AnswerField::Text(ticket.text().as_ref().into())];
        all.extend(parts);
        Self::go(all)
    }

    /// An answer with this word.
    pub const fn new(word: &'static str, parts: Vec<AnswerField>) -> Self {
        Self {
            word,
            parts,
            retry_after: None,
        }
    }

    /// No, with the reason in words, and the name under which it is remembered.
    pub fn no(refusal: &Refusal, why: String, id: String) -> Self {
        let retry_after = (!refusal.retry_after.is_zero()).then_some(refusal.retry_after);
        let word = word(refusal.reason);
        let reason = refusal.reason.word();
        let mut no = Self::new(
            word,
            no_parts(refusal.waited, why, reason, retry_after, Some(id)),
        );
        no.retry_after = retry_after;
        no
    }

    /// It ended in another way than by a refusal, and is not remembered.
    pub fn ended(word: &'static str, waited: Duration, why: String, reason: &str) -> Self {
        Self::new(word, no_parts(waited, why, reason, None, None))
    }

    /// The same no with another word.
    #[must_use]
    pub fn with_word(mut self, word: &'static str) -> Self {
        self.word = word;
        self
    }

    /// No value is free: how many are, and of how many, and then as every no without the
    /// time that it waited.
    #[must_use]
    pub fn none(self, free: AnswerField, size: AnswerField) -> Self {
        let rest = self.parts.into_iter().skip(1);
        Self {
            word: "none",
            parts: [free, size].into_iter().chain(rest).collect(),
            retry_after: self.retry_after,
        }
    }

    /// No, for the server has failed over it.
    pub(crate) fn failed(panicked: Panicked) -> Self {
        let why = panicked.to_string();
        Self::ended("cancelled", Duration::ZERO, why, "internal")
    }

    /// The same no with another reason in words.
    #[must_use]
    pub fn with_why(mut self, why: String) -> Self {
        if let Some(part) = self.parts.get_mut(1) {
            *part = why.into();
        }
        self
    }

    /// The user may not have it any more, as an error says.
    pub fn denied(error: String) -> Self {
        Self::new("denied", vec![error.into()])
    }

    /// The error text, if it is a denial.
    pub fn denial(&self) -> Option<&str> {
        match (self.word, self.parts.first()) {
            ("denied", Some(AnswerField::Text(error))) => std::str::from_utf8(error).ok(),
            _ => None,
        }
    }

    /// The word.
    pub const fn word(&self) -> &'static str {
        self.word
    }

    /// When asking again has a chance, if that is known.
    pub const fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }

    /// It is a yes.
    pub fn is_go(&self) -> bool {
        self.word == "go"
    }

    /// The word, and what belongs to it.
    pub fn parts(&self) -> (&'static str, &[AnswerField]) {
        (self.word, &self.parts)
    }

    /// About how many bytes it takes.
    pub fn bytes(&self) -> usize {
        let parts = self.parts.iter().map(|part| match part {
            AnswerField::Text(text) => text.len() + 8,
            AnswerField::Number(_) => 16,
            AnswerField::None => 8,
        });
        self.word.len() + parts.sum::<usize>()
    }

    /// Write it.
    pub fn write(&self, reply: &mut Reply<'_>) {
        reply.array(1 + self.parts.len()).bulk(self.word);
        self.parts.iter().for_each(|part| part.write(reply));
    }
}

impl AnswerField {
    /// Write it.
    pub fn write(&self, reply: &mut Reply<'_>) {
        match self {
            Self::Text(text) => reply.bulk(text),
            Self::Number(number) => reply.integer(*number),
            Self::None => reply.null(),
        };
    }
}

impl From<String> for AnswerField {
    fn from(text: String) -> Self {
        Self::Text(text.into_bytes())
    }
}

impl From<&str> for AnswerField {
    fn from(text: &str) -> Self {
        Self::Text(text.into())
    }
}

impl From<u64> for AnswerField {
    fn from(number: u64) -> Self {
        Self::Number(i64::try_from(number).unwrap_or(i64::MAX))
    }
}

/// What follows the word of every no, whatever was asked for: how long it waited, why,
/// the reason in a word, when asking again has a chance, and the name under which the no
/// is remembered. What is not known is null.
fn no_parts(
    waited: Duration,
    why: String,
    reason: &str,
    retry_after: Option<Duration>,
    id: Option<String>,
) -> Vec<AnswerField> {
    vec![
        micros(waited),
        why.into(),
        reason.into(),
        retry_after.map_or(AnswerField::None, micros),
        id.map_or(AnswerField::None, AnswerField::from),
    ]
}

/// A time on the wire: whole microseconds.
pub(crate) fn micros(time: Duration) -> AnswerField {
    AnswerField::Number(i64::try_from(time.as_micros()).unwrap_or(i64::MAX))
}

/// The word of a refusal. Laws shed, places are full, waits end.
pub(crate) const fn word(reason: Reason) -> &'static str {
    match reason {
        Reason::Timeout | Reason::Deadline => "timeout",
        Reason::CoDel
        | Reason::Bound
        | Reason::MinDelay
        | Reason::Standing
        | Reason::Custom
        | Reason::Hopeless
        | Reason::Protected => "shed",
        Reason::Cancelled => "cancelled",
        Reason::Closed => "closed",
        _ => "full",
    }
}
