//! The outputs of meters, for readers without the lock.

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::time::Duration;

use rideau_core::broker::Tally;
use rideau_core::{Lead, Reason, Refusal, Side, meter};

use crate::admission::{Admission, Admitted};
use crate::after::After;
use crate::sync::{Mutex, lock};

/// The outputs of the meters of one machine.
pub(crate) struct MeterOutputs {
    /// The kind of the machine, and its name, for the log.
    kind: &'static str,
    name: Option<Arc<str>>,
    alarms: Mutex<BTreeSet<String>>,
    rank: Arc<Rank>,
    admission: Admission,
    fed: Mutex<HashMap<String, Weak<dyn LeadSink>>>,
}

/// Something that learns from leads: a regulator.
pub(crate) trait LeadSink: Send + Sync {
    /// Take a lead in.
    fn feed(&self, lead: Lead);
}

/// How long either side has to expect to wait somewhere, as a meter says.
#[derive(Debug)]
pub struct Rank {
    ask: AtomicU64,
    offer: AtomicU64,
}

/// Nothing has been published.
const UNKNOWN: u64 = u64::MAX;

impl Rank {
    /// The wait to expect on a side, if a meter publishes it.
    pub fn expects(&self, side: Side) -> Option<Duration> {
        let nanos = match side {
            Side::Ask => self.ask.load(Relaxed),
            Side::Offer => self.offer.load(Relaxed),
        };
        (nanos != UNKNOWN).then(|| Duration::from_nanos(nanos))
    }

    fn publish(&self, ask: u64, offer: u64) {
        self.ask.store(ask, Relaxed);
        self.offer.store(offer, Relaxed);
    }
}

/// The protector corrects itself about this often.
const RETRY_AFTER: Duration = Duration::from_millis(100);

impl MeterOutputs {
    pub(crate) fn new(kind: &'static str, name: Option<&str>, seed: u64) -> Self {
        Self {
            kind,
            name: name.map(Arc::from),
            alarms: Mutex::new(BTreeSet::new()),
            rank: Arc::new(Rank {
                ask: AtomicU64::new(UNKNOWN),
                offer: AtomicU64::new(UNKNOWN),
            }),
            admission: Admission::new(seed),
            fed: Mutex::new(HashMap::new()),
        }
    }

    pub(crate) fn alarms(&self) -> Vec<String> {
        lock(&self.alarms).iter().cloned().collect()
    }

    pub(crate) fn rank(&self) -> &Arc<Rank> {
        &self.rank
    }

    pub(crate) fn admission(&self) -> &Admission {
        &self.admission
    }

    /// Let one more in at the admission, or say the no that it is told. It counts as
    /// on its way until what is returned is dropped.
    pub(crate) fn admit(&self, side: Side) -> Result<Admitted<'_>, Refusal> {
        self.admission.admit(side).ok_or_else(|| Refusal {
            reason: Reason::Protected,
            waited: Duration::ZERO,
            len: self.admission.len(),
            retry_after: RETRY_AFTER,
        })
    }

    /// The explanation of a machine, and that of the protector.
    pub(crate) fn explain(&self, mut explained: String) -> String {
        let mut tally = Tally::default();
        self.admission.count_refused(Side::Ask, &mut tally);
        if tally.came > 0 {
            explained.push_str(&format!(
                "\nThe protector turned {} asks away before they could wait; it opens by itself \
                 when those that got in do not wait too long.",
                tally.came
            ));
        }
        explained
    }

    /// From now on leads for `name` go there.
    pub(crate) fn connect(&self, name: &str, to: Weak<dyn LeadSink>) {
        lock(&self.fed).insert(name.into(), to);
    }

    /// Put up what a meter says. Leads are handed on after the lock is gone,
    /// because what takes them has a lock of its own.
    pub(crate) fn say(&self, said: meter::Effect, after: &mut After) {
        match said {
            meter::Effect::Alarm { alarm, set } => self.alarm(alarm, set, after),
            meter::Effect::Better { ask, offer } => {
                let nanos = |span: Duration| u64::try_from(span.as_nanos()).unwrap_or(UNKNOWN - 1);
                self.rank.publish(nanos(ask), nanos(offer));
            }
            meter::Effect::Unrank => self.rank.publish(UNKNOWN, UNKNOWN),
            meter::Effect::Protect { row } => self.admission.publish(&row),
            meter::Effect::Unprotect => self.admission.withdraw(),
            meter::Effect::Update { regulator, lead } => {
                let fed = lock(&self.fed).get(&regulator).and_then(Weak::upgrade);
                if let Some(fed) = fed {
                    after.call(move || fed.feed(lead));
                }
            }
        }
    }

    /// The log line follows when the lock is gone: a subscriber may look at the
    /// machine.
    fn alarm(&self, alarm: String, set: bool, after: &mut After) {
        let (kind, name) = (self.kind, self.name.clone());
        if set {
            lock(&self.alarms).insert(alarm.clone());
            after.call(move || tracing::warn!(kind, name = name.as_deref(), alarm, "alarm raised"));
        } else if lock(&self.alarms).remove(&alarm) {
            after
                .call(move || tracing::info!(kind, name = name.as_deref(), alarm, "alarm cleared"));
        }
    }
}
