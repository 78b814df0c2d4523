//! Tells regulators the lead of one side, so that they learn what is scarce.

use std::mem;
use std::time::Duration;

use super::{Effect, Reading, check_more_than_zero};
use crate::ids::Side;
use crate::rng::Rng;
use crate::settings::{self, OptionError, Rule, Settings};
use crate::time::{Instant, nanos};

/// Leads from which regulators learn what is scarce.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Update {
    /// The regulators to tell; one may be told either side, each once.
    ///
    /// In words: `size:offer:50ms,rate:ask`.
    pub entries: Vec<Entry>,
    /// Where the spread of the updates comes from. Machines that share a seed
    /// tell their regulators in step.
    pub seed: u64,
}

/// A regulator that is told the lead of one side.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// The name of the regulator.
    pub regulator: String,
    /// The side whose lead it is told.
    pub side: Side,
    /// How often, between half as long and half as long again.
    pub update: Duration,
}

#[derive(Debug)]
pub(super) struct UpdateMeter {
    recipients: Vec<Recipient>,
    seed: u64,
    rng: Rng,
    /// When the first recipient is due.
    next: Instant,
}

#[derive(Debug)]
struct Recipient {
    entry: Entry,
    told: Option<Instant>,
    due: Instant,
}

impl Update {
    pub(super) fn take(settings: &mut Settings) -> Result<Self, OptionError> {
        let words = settings
            .take("entries")
            .ok_or_else(|| OptionError::new("entries", Rule::Missing))?;
        let entries = words.split(',').filter(|words| !words.is_empty());
        Ok(Self {
            entries: entries.map(Entry::parse).collect::<Result<_, _>>()?,
            seed: settings.number("seed")?.unwrap_or(0),
        })
    }

    pub(super) fn check(&self) -> Result<(), OptionError> {
        if self.entries.is_empty() {
            return Err(OptionError::new("entries", Rule::Empty));
        }
        for (at, entry) in self.entries.iter().enumerate() {
            if entry.regulator.is_empty() {
                return Err(OptionError::new("entries.regulator", Rule::Empty));
            }
            check_more_than_zero("entries.update", entry.update)?;
            if self.entries[..at].iter().any(|other| other.is_for(entry)) {
                return Err(OptionError::new("entries", Rule::Repeated));
            }
        }
        Ok(())
    }
}

impl Entry {
    /// How often a regulator is told by default.
    pub const UPDATE: Duration = Duration::from_millis(100);

    /// Read `size:offer:50ms`, or `size:offer` for the default update.
    fn parse(words: &str) -> Result<Self, OptionError> {
        let mut words = words.splitn(3, ':');
        let regulator = words.next().unwrap_or_default().to_owned();
        let side = match words.next() {
            Some("ask") => Side::Ask,
            Some("offer") => Side::Offer,
            Some(_) => {
                let rule = Rule::NotOneOf(&["ask", "offer"]);
                return Err(OptionError::new("entries.side", rule));
            }
            None => return Err(OptionError::new("entries.side", Rule::Missing)),
        };
        let update = match words.next() {
            Some(span) => settings::span(span)
                .ok_or_else(|| OptionError::new("entries.update", Rule::NotASpan))?,
            None => Self::UPDATE,
        };
        Ok(Self {
            regulator,
            side,
            update,
        })
    }

    /// Whether both tell one regulator the same.
    fn is_for(&self, other: &Self) -> bool {
        (&self.regulator, self.side) == (&other.regulator, other.side)
    }

    fn tell(&self, reading: &Reading) -> Effect {
        Effect::Update {
            regulator: self.regulator.clone(),
            lead: match self.side {
                Side::Ask => reading.lead,
                Side::Offer => reading.lead.reversed(),
            },
        }
    }

    /// A span spread around the update, so that recipients do not fall in step.
    fn spread(&self, rng: &mut Rng) -> u64 {
        let update = nanos(self.update);
        (update / 2).saturating_add(1 + rng.below(update))
    }
}

impl UpdateMeter {
    pub(super) fn new(options: Update, now: Instant) -> Self {
        let mut meter = Self {
            recipients: Vec::new(),
            seed: options.seed,
            rng: Rng::new(options.seed),
            next: now,
        };
        meter.reconfigure(options, now);
        meter
    }

    pub(super) fn feed(&mut self, reading: &Reading, now: Instant, effects: &mut Vec<Effect>) {
        if now < self.next {
            return;
        }
        for recipient in &mut self.recipients {
            if recipient.due <= now {
                effects.push(recipient.entry.tell(reading));
                recipient.told = Some(now);
                recipient.due = now.after(recipient.entry.spread(&mut self.rng));
            }
        }
        self.next = first_due(&self.recipients);
    }

    /// A regulator that was told before is due a newly drawn span after that;
    /// others now.
    pub(super) fn reconfigure(&mut self, options: Update, now: Instant) {
        if options.seed != self.seed {
            self.seed = options.seed;
            self.rng = Rng::new(options.seed);
        }
        let before = mem::take(&mut self.recipients);
        for entry in options.entries {
            let known = before.iter().find(|known| known.entry.is_for(&entry));
            let told = known.and_then(|known| known.told);
            let due = match told {
                Some(told) => told.after(entry.spread(&mut self.rng)).max(now),
                None => now,
            };
            self.recipients.push(Recipient { entry, told, due });
        }
        self.next = first_due(&self.recipients);
    }

    pub(super) const fn deadline(&self) -> Instant {
        self.next
    }
}

fn first_due(recipients: &[Recipient]) -> Instant {
    let due = recipients.iter().map(|recipient| recipient.due);
    due.min().expect("the list of entries is not empty")
}
