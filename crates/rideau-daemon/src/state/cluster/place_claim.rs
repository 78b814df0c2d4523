//! What nodes tell each other of pools of lists, brokers and regulators that they share: what
//! a client wants, what it got, and how that ended. All of it is words, written like a
//! command.

use std::time::Duration;

use rideau::{Flow, Lead, Reason, Refusal};
use rideau_core::cluster::Incarnation;

use super::claim::ClaimWait;
use super::verbs;
use crate::state::end::EndReason;
use crate::state::matches::End;

/// What a client wants of a place.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct PlaceClaim {
    pub(crate) kind: PlaceKind,
    /// The pool, broker or regulator, or `@` and a group.
    pub(crate) name: String,
    pub(crate) wait: ClaimWait,
    pub(crate) flow: Flow,
    /// What operators are shown of the holder.
    pub(crate) note: Option<String>,
    /// The value that a party brings.
    pub(crate) value: Vec<u8>,
}

/// What is wanted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PlaceKind {
    /// A member of a pool.
    Take,
    /// A lease of a regulator.
    Lease,
    /// A match, as the side that asks.
    Ask,
    /// A match, as the side that offers.
    Offer,
}

/// What a client got.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct PlaceGrant {
    /// The member, or what the other party brought.
    pub(crate) value: Vec<u8>,
    pub(crate) waited: Duration,
    pub(crate) lead: Lead,
    /// The pool or broker of a group.
    pub(crate) from: String,
    /// The row of the other party of a match.
    pub(crate) other: Option<(Incarnation, u64)>,
}

/// What became of an ask.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum PlaceOutcome {
    Granted(PlaceGrant),
    /// There is nothing for it, and why.
    Refused(Refusal, String),
    /// The owner has nothing of this name.
    Unknown,
}

/// A lease as its entry node reports it: what was wanted, and what it got.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct PlaceHeld {
    pub(crate) claim: PlaceClaim,
    pub(crate) grant: PlaceGrant,
}

/// How a lease ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct PlaceEnd {
    pub(crate) why: EndReason,
    /// The last word of a party of a match.
    pub(crate) payload: Option<Vec<u8>>,
}

const CLAIM: &str = "~claim";
const HELD: &str = "~held";
const GO: &str = "~go";
const NO: &str = "~no";
const UNKNOWN: &str = "~unknown";
const DONE: &str = "~done";
const DOWN: &str = "~down";
const END: &str = "~end";

/// Words that are read one after the other.
struct Words(std::vec::IntoIter<Vec<u8>>);

impl Words {
    /// The words behind this verb.
    fn of(verb: &str, bytes: &[u8]) -> Option<Self> {
        let mut words = Self(verbs::read(bytes)?.into_iter());
        (words.bytes()? == verb.as_bytes()).then_some(words)
    }

    fn bytes(&mut self) -> Option<Vec<u8>> {
        self.0.next()
    }

    fn text(&mut self) -> Option<String> {
        String::from_utf8(self.0.next()?).ok()
    }

    fn number<N: std::str::FromStr>(&mut self) -> Option<N> {
        self.text()?.parse().ok()
    }

    fn span(&mut self) -> Option<Duration> {
        self.number().map(Duration::from_nanos)
    }
}

fn nanos(span: Duration) -> String {
    u64::try_from(span.as_nanos())
        .unwrap_or(u64::MAX)
        .to_string()
}

impl PlaceKind {
    const ALL: [(Self, &'static str); 4] = [
        (Self::Take, "take"),
        (Self::Lease, "lease"),
        (Self::Ask, "ask"),
        (Self::Offer, "offer"),
    ];

    fn word(self) -> &'static str {
        let mut all = Self::ALL.iter();
        all.find(|(kind, _)| *kind == self)
            .map_or("", |(_, word)| word)
    }

    fn read(word: &str) -> Option<Self> {
        let mut all = Self::ALL.iter();
        all.find(|(_, other)| *other == word).map(|(kind, _)| *kind)
    }
}

impl PlaceClaim {
    /// As bytes.
    pub(crate) fn write(&self) -> Vec<u8> {
        let (wait, limit) = match self.wait {
            ClaimWait::No => ("no", Duration::ZERO),
            ClaimWait::Named(limit) => ("named", limit),
            ClaimWait::Usual(limit) => ("usual", limit),
        };
        let note = self.note.as_ref().map(|note| format!("+{note}"));
        let words: [Vec<u8>; 7] = [
            self.kind.word().into(),
            self.name.clone().into(),
            wait.into(),
            nanos(limit).into(),
            self.flow.0.to_string().into(),
            note.unwrap_or_default().into(),
            self.value.clone(),
        ];
        verbs::write(CLAIM, &words)
    }

    /// Parses the bytes; none if they are about something else.
    pub(crate) fn read(bytes: &[u8]) -> Option<Self> {
        let mut words = Words::of(CLAIM, bytes)?;
        let kind = PlaceKind::read(&words.text()?)?;
        let name = words.text()?;
        let wait = words.text()?;
        let limit = words.span()?;
        Some(Self {
            kind,
            name,
            wait: match &*wait {
                "no" => ClaimWait::No,
                "named" => ClaimWait::Named(limit),
                "usual" => ClaimWait::Usual(limit),
                _ => return None,
            },
            flow: Flow(words.number()?),
            note: words.text()?.strip_prefix('+').map(str::to_owned),
            value: words.bytes()?,
        })
    }
}

impl PlaceGrant {
    fn write(&self) -> Vec<u8> {
        let (node, fence, ticket) = match &self.other {
            Some((node, ticket)) => (&*node.name, node.fence, *ticket),
            None => ("", 0, 0),
        };
        let words: [Vec<u8>; 7] = [
            self.value.clone(),
            nanos(self.waited).into(),
            self.lead.as_nanos().to_string().into(),
            self.from.clone().into(),
            node.into(),
            fence.to_string().into(),
            ticket.to_string().into(),
        ];
        verbs::write(GO, &words)
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        let mut words = Words::of(GO, bytes)?;
        let (value, waited) = (words.bytes()?, words.span()?);
        let lead = Lead::from_nanos(words.number()?);
        let from = words.text()?;
        let (node, fence, ticket) = (words.text()?, words.number()?, words.number()?);
        let other = (!node.is_empty()).then(|| (Incarnation::new(&node, fence), ticket));
        Some(Self {
            value,
            waited,
            lead,
            from,
            other,
        })
    }
}

impl PlaceOutcome {
    /// As bytes.
    pub(crate) fn write(&self) -> Vec<u8> {
        match self {
            Self::Granted(grant) => grant.write(),
            Self::Refused(no, why) => {
                let words: [Vec<u8>; 5] = [
                    no.reason.index().to_string().into(),
                    nanos(no.waited).into(),
                    no.len.to_string().into(),
                    nanos(no.retry_after).into(),
                    why.clone().into(),
                ];
                verbs::write(NO, &words)
            }
            Self::Unknown => verbs::write::<&[u8]>(UNKNOWN, &[]),
        }
    }

    /// Parses the bytes.
    pub(crate) fn read(bytes: &[u8]) -> Option<Self> {
        if let Some(grant) = PlaceGrant::read(bytes) {
            return Some(Self::Granted(grant));
        }
        if Words::of(UNKNOWN, bytes).is_some() {
            return Some(Self::Unknown);
        }
        let mut words = Words::of(NO, bytes)?;
        let reason = *Reason::ALL.get(words.number::<usize>()?)?;
        let refusal = Refusal {
            reason,
            waited: words.span()?,
            len: words.number()?,
            retry_after: words.span()?,
        };
        Some(Self::Refused(refusal, words.text()?))
    }
}

impl PlaceHeld {
    /// As bytes.
    pub(crate) fn write(&self) -> Vec<u8> {
        verbs::write(HELD, &[self.claim.write(), self.grant.write()])
    }

    /// Parses the bytes; none if they are about something else.
    pub(crate) fn read(bytes: &[u8]) -> Option<Self> {
        let mut words = Words::of(HELD, bytes)?;
        Some(Self {
            claim: PlaceClaim::read(&words.bytes()?)?,
            grant: PlaceGrant::read(&words.bytes()?)?,
        })
    }
}

impl PlaceEnd {
    /// An end without last words.
    pub(crate) const fn new(why: EndReason) -> Self {
        Self { why, payload: None }
    }

    /// As bytes.
    pub(crate) fn write(&self) -> Vec<u8> {
        let why = self.why.word().as_bytes();
        match &self.payload {
            Some(payload) => verbs::write(END, &[why, payload]),
            None => verbs::write(END, &[why]),
        }
    }

    /// Parses the bytes. Those of an older release say nothing, and neither does a holder
    /// that was struck off.
    pub(crate) fn read(bytes: &[u8]) -> Self {
        let read = || {
            let mut words = Words::of(END, bytes)?;
            let word = words.text()?;
            let mut all = EndReason::ALL.into_iter();
            let why = all.find(|why| why.word() == word)?;
            let payload = words.bytes();
            Some(Self { why, payload })
        };
        read().unwrap_or(Self::new(EndReason::Cancelled))
    }
}

/// How the other party of a match ended it, as bytes.
pub(super) fn write_end(end: &End) -> Vec<u8> {
    match end {
        End::Done(Some(payload)) => verbs::write(DONE, &[payload]),
        End::Done(None) => verbs::write::<&[u8]>(DONE, &[]),
        End::Down(why) => verbs::write(DOWN, &[why]),
    }
}

/// Parses how the other party of a match ended it.
pub(super) fn read_end(bytes: &[u8]) -> End {
    if let Some(mut words) = Words::of(DONE, bytes) {
        return End::Done(words.bytes());
    }
    let why = Words::of(DOWN, bytes).and_then(|mut words| words.text());
    let known = |why: &str| {
        let mut all = EndReason::ALL.into_iter().map(EndReason::word);
        all.find(|word| *word == why)
    };
    End::Down(why.as_deref().and_then(known).unwrap_or("gone"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim() -> PlaceClaim {
        PlaceClaim {
            kind: PlaceKind::Offer,
            name: "@shops".into(),
            wait: ClaimWait::Usual(Duration::from_millis(30)),
            flow: Flow(7),
            note: Some(String::new()),
            value: b"\r\n\0".to_vec(),
        }
    }

    fn grant() -> PlaceGrant {
        PlaceGrant {
            value: b"seat 1".to_vec(),
            waited: Duration::from_millis(3),
            lead: Lead::from_nanos(-5),
            from: "cad".into(),
            other: Some((Incarnation::new("n1", 17), 4)),
        }
    }

    #[test]
    fn what_is_wanted_and_held_is_read_as_it_was_written() {
        let claim = claim();
        assert_eq!(PlaceClaim::read(&claim.write()), Some(claim.clone()));
        let grant = grant();
        let held = PlaceHeld { claim, grant };
        assert_eq!(PlaceHeld::read(&held.write()), Some(held.clone()));
        assert_eq!(PlaceHeld::read(&held.claim.write()), None);
        assert_eq!(PlaceClaim::read(b"l\0"), None);
    }

    #[test]
    fn what_became_of_it_is_read_as_it_was_written() {
        let refusal = |reason| {
            let refusal = Refusal {
                reason,
                waited: Duration::from_millis(7),
                len: 4,
                retry_after: Duration::from_secs(1),
            };
            PlaceOutcome::Refused(refusal, "why".into())
        };
        let others = [PlaceOutcome::Granted(grant()), PlaceOutcome::Unknown];
        for outcome in Reason::ALL.map(refusal).into_iter().chain(others) {
            assert_eq!(PlaceOutcome::read(&outcome.write()), Some(outcome));
        }
        assert_eq!(PlaceOutcome::read(b""), None);
    }

    #[test]
    fn how_it_ended_is_read_as_it_was_written() {
        for why in EndReason::ALL {
            for payload in [None, Some(b"bye".to_vec())] {
                let end = PlaceEnd { why, payload };
                assert_eq!(PlaceEnd::read(&end.write()), end);
            }
            let down = End::Down(why.word());
            assert_eq!(read_end(&write_end(&down)), down);
        }
        assert_eq!(PlaceEnd::read(b""), PlaceEnd::new(EndReason::Cancelled));
        for done in [End::Done(None), End::Done(Some(Vec::new()))] {
            assert_eq!(read_end(&write_end(&done)), done);
        }
    }
}
