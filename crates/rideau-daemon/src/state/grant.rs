//! What a ticket stands for once its ask was granted.

use std::sync::Arc;

use rideau::allocator::Kind;
use rideau::{Fate, Held, Lease, Lock, Ranges};
use rideau_apps::Session;
use rideau_config::count;
use rideau_core::apps::Ended;

use crate::state::catalog::{PoolPlace, RegulatorPlace};
use crate::state::end::Why;
use crate::state::matches::Meeting;
use crate::state::members::{Members, Offer};

/// Something held.
pub enum Grant {
    /// A member of a pool.
    Member {
        /// The member.
        held: Held<'static, Members>,
        /// Its pool.
        pool: Arc<PoolPlace>,
    },
    /// Units of a key.
    Lock(Lock<'static, Vec<u8>>),
    /// A match of a broker.
    Match(Meeting),
    /// A lease of a regulator.
    Lease {
        /// The lease.
        lease: Lease,
        /// Its regulator.
        regulator: Arc<RegulatorPlace>,
    },
    /// A member that the holder brought to a pool.
    Offer {
        /// The member.
        offer: Arc<Offer>,
        /// The pool.
        pool: Arc<PoolPlace>,
    },
    /// A value that goes with its holder.
    Value(HeldValue),
    /// A place in a process of an app.
    App(Session),
}

/// A value of a range that goes with its holder.
pub struct HeldValue {
    /// Where it is given back.
    pub ranges: Ranges,
    /// The name of its range.
    pub range: Arc<str>,
    /// The value.
    pub value: u128,
    /// How it is written.
    pub kind: Kind,
    /// The holder's number.
    pub fence: u64,
    /// It outlives its holder until its time runs out.
    pub is_lease: bool,
}

impl Grant {
    /// The name of what it is of.
    pub fn name(&self) -> String {
        match self {
            Self::Member { pool, .. } | Self::Offer { pool, .. } => pool.name.to_string(),
            Self::Lock(lock) => String::from_utf8_lossy(lock.key()).into_owned(),
            Self::Match(meeting) => meeting.broker.to_string(),
            Self::Lease { regulator, .. } => regulator.name.to_string(),
            Self::Value(held) => held.range.to_string(),
            Self::App(session) => session.process().app.name.to_string(),
        }
    }

    /// What it is, in a few words.
    pub fn value(&self) -> String {
        match self {
            Self::Member { held, .. } => held.value().to_string(),
            Self::Offer { offer, .. } => offer.value().to_string(),
            Self::Lock(lock) => {
                let units = count(lock.units() as usize, "unit");
                format!("{units}, fence {}", lock.fence())
            }
            Self::Match(meeting) => payload(meeting.value()),
            Self::Lease { .. } => String::new(),
            Self::Value(held) => held.kind.print(held.value),
            Self::App(session) => session.process().address.to_string(),
        }
    }

    /// It is a member of this pool.
    pub fn is_member_of(&self, place: &Arc<PoolPlace>) -> bool {
        matches!(self, Self::Member { pool, .. } if Arc::ptr_eq(pool, place))
    }

    /// It is a member that has ended by itself.
    pub fn is_dead_member(&self) -> bool {
        matches!(self, Self::Member { held, .. } if held.is_dead())
    }

    /// It was brought to this pool.
    pub fn is_offer_of(&self, place: &Arc<PoolPlace>) -> bool {
        matches!(self, Self::Offer { pool, .. } if Arc::ptr_eq(pool, place))
    }

    /// Give it back.
    pub fn end(self, why: Why) {
        match self {
            Self::Member { held, pool } => Held::end(held, pool.fate(why)),
            Self::Lock(lock) => drop(lock),
            Self::Match(meeting) => match why {
                Why::Released => meeting.done(None),
                why => meeting.down(why.word()),
            },
            Self::Lease { lease, .. } => match why {
                Why::Released | Why::Quit | Why::Over => lease.release(),
                _ => lease.fail(),
            },
            Self::Offer { offer, .. } => match why {
                Why::Released | Why::Failed | Why::Cancelled => offer.withdraw(),
                _ => offer.abandon(),
            },
            Self::Value(held) if held.is_lease && !why.is_wanted() => (),
            // Who has lost it by now has nothing to give back.
            Self::Value(held) => drop(held.ranges.release(held.value, Some(held.fence))),
            Self::App(session) => session.end(match why {
                Why::Released | Why::Over => Ended::Answered,
                Why::Failed => Ended::Broken,
                Why::Expired => Ended::TimedOut,
                _ => Ended::Left,
            }),
        }
    }
}

/// A payload in a table: its beginning, for it may be long.
fn payload(bytes: &[u8]) -> String {
    const MOST: usize = 256;
    let near = &bytes[..bytes.len().min(MOST)];
    let text = String::from_utf8_lossy(near).into_owned();
    match near.len() < bytes.len() {
        true => text + "…",
        false => text,
    }
}

impl PoolPlace {
    /// What becomes of a member when its holder ends so.
    fn fate(&self, why: Why) -> Fate {
        match why {
            Why::Released | Why::Cancelled | Why::Over => Fate::Reuse,
            // None of these ends what is of a pool.
            Why::Refused | Why::Stopped | Why::Lapsed => Fate::Reuse,
            // The pool sees by itself that it is of no more use.
            Why::Died => Fate::Reuse,
            Why::Quit => self.config.load().on_quit,
            Why::Failed => Fate::Replace,
            Why::Lost | Why::Silent | Why::Expired => self.config.load().on_crash,
            Why::Revoked | Why::Broken => self.config.load().on_crash,
        }
    }
}
