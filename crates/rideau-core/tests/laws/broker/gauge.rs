//! What the meters of a broker must have been told, and when.

use std::time::Duration;

use rideau_core::broker::Options;
use rideau_core::meter::{self, Better, Effect, Entry};
use rideau_core::{Instant, Lead, Side};

use super::scripts::UPPER;

/// The meters whose readings can be seen, and how many inputs they have not.
pub(super) struct Gauge {
    better: Option<(Better, Instant)>,
    entries: Vec<(Entry, Option<Instant>)>,
    read_after: u32,
    unread: u32,
    /// When the first unread input came, and the longest delay of any.
    since: Instant,
    delay: Duration,
    /// When options changed last: no meter is due before that.
    changed: Instant,
    /// Since when no older waiter came to the active side.
    pub(super) empty: Instant,
}

/// What the broker looks like from one input.
#[derive(Clone, Copy)]
pub(super) struct View {
    pub(super) active: Side,
    pub(super) oldest: Option<Instant>,
    pub(super) sent: Instant,
    pub(super) now: Instant,
}

impl Gauge {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            better: None,
            entries: Vec::new(),
            read_after: 1,
            unread: 0,
            since: now,
            delay: Duration::ZERO,
            changed: now,
            empty: now,
        }
    }

    /// Take over options; what the better meter says then.
    pub(super) fn change(&mut self, options: &Options, now: Instant) -> Vec<Effect> {
        let before = std::mem::take(&mut self.entries);
        let had = self.better.take();
        for options in &options.meters {
            match options {
                meter::Options::Better(better) => self.better = Some((better.clone(), now)),
                meter::Options::Update(update) => {
                    let told = |entry: &Entry| {
                        let known = before.iter().find(|(old, _)| old.side == entry.side);
                        known.and_then(|(_, told)| *told)
                    };
                    let entries = update.entries.iter();
                    self.entries = entries.map(|entry| (entry.clone(), told(entry))).collect();
                }
                other => unreachable!("no script has {other:?}"),
            }
        }
        self.read_after = options.read_after.max(1);
        if options.meters.is_empty() {
            (self.unread, self.delay) = (0, Duration::ZERO);
        }
        self.changed = now;
        match (had, &self.better) {
            (Some(_), None) => vec![Effect::Unrank],
            (None, Some(_)) => vec![Effect::Better {
                ask: UPPER,
                offer: UPPER,
            }],
            _ => vec![],
        }
    }

    pub(super) fn close(&mut self) -> Vec<Effect> {
        (self.unread, self.delay) = (0, Duration::ZERO);
        self.entries.clear();
        self.better
            .take()
            .map(|_| Effect::Unrank)
            .into_iter()
            .collect()
    }

    /// Count an input, which is read in its turn, or at once if time alone
    /// brought it. Nothing else may have been said.
    pub(super) fn check(&mut self, view: View, at_once: bool, mut said: Vec<Effect>) {
        let mut lead = None;
        let mut delay = view.now.since(view.sent);
        if self.better.is_some() || !self.entries.is_empty() {
            if at_once {
                delay = self.delay;
            } else {
                if self.unread == 0 {
                    self.since = view.now;
                }
                self.delay = self.delay.max(delay);
                self.unread += 1;
            }
            if at_once || self.unread >= self.read_after {
                lead = Some(self.read(view));
            }
        }
        if let Some((better, next)) = &mut self.better
            && let Some(lead) = lead
        {
            let nanos = lead.as_nanos();
            let waited = |nanos: i64| delay + Duration::from_nanos(nanos.max(0).unsigned_abs());
            let (ask, offer) = (waited(nanos), waited(-nanos));
            let at = said
                .iter()
                .position(|said| matches!(said, Effect::Better { .. }));
            let reading = said.remove(at.expect("a reading was due"));
            assert_eq!(reading, Effect::Better { ask, offer });
            *next = view.now + better.update;
        }
        for (entry, told) in &mut self.entries {
            let at = said.iter().position(|said| match said {
                Effect::Update { regulator, .. } => *regulator == entry.regulator,
                _ => false,
            });
            let (soonest, latest) = span_of(entry);
            if let Some(at) = at {
                let lead = lead.expect("a side that is told was due a reading");
                let lead = if entry.side == Side::Ask {
                    lead
                } else {
                    lead.reversed()
                };
                let regulator = entry.regulator.clone();
                assert_eq!(said.remove(at), Effect::Update { regulator, lead });
                assert!(told.is_none_or(|told| told.after(soonest) <= view.now));
                *told = Some(view.now);
            } else if lead.is_some() {
                assert!(
                    told.is_some_and(|told| view.now < told.after(latest).max(self.changed)),
                    "told late"
                );
            }
        }
        assert_eq!(said, [], "nobody had to say this");
    }

    /// Until when the broker has to be advanced at the latest, and whether it
    /// is known exactly.
    pub(super) fn deadline(&self) -> (Option<Instant>, bool) {
        let better = self.better.iter().map(|(_, next)| *next);
        let latest = |(entry, told): &(Entry, Option<Instant>)| {
            told.map_or(self.changed, |told| {
                told.after(span_of(entry).1).max(self.changed)
            })
        };
        let entries = self.entries.iter().map(latest);
        let unread = (self.unread > 0).then(|| self.since + Duration::from_millis(100));
        let due = better.chain(entries).chain(unread);
        (due.min(), self.entries.is_empty())
    }

    fn read(&mut self, view: View) -> Lead {
        (self.unread, self.delay) = (0, Duration::ZERO);
        self.empty = view.oldest.unwrap_or(self.empty);
        let ahead = view.sent.as_nanos().saturating_sub(self.empty.as_nanos());
        let ahead = i64::try_from(ahead).unwrap();
        Lead::from_nanos(match view.active {
            Side::Ask => ahead,
            Side::Offer => -ahead,
        })
    }
}

/// The shortest and the longest span between two updates.
fn span_of(entry: &Entry) -> (u64, u64) {
    let update = u64::try_from(entry.update.as_nanos()).unwrap();
    (update / 2 + 1, update / 2 + update)
}
