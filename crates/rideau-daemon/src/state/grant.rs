//! Grants: the things that tickets stand for after their asks were granted.

use std::sync::Arc;

use rideau::allocator::Kind;
use rideau::{Fate, Held, Lease, Lock, Ranges};
use rideau_apps::Session;
use rideau_config::human::count;
use rideau_core::apps::Ended;

use crate::state::catalog::{NamedPool, NamedRegulator};
use crate::state::cluster::{NameLease, NameOf};
use crate::state::end::EndReason;
use crate::state::matches::{HeldMatch, Mailbox};
use crate::state::members::{Members, Offer};

/// Something held.
pub enum Grant {
    /// A member of a pool.
    Member {
        /// The member.
        held: Held<'static, Members>,
        /// Its pool.
        pool: Arc<NamedPool>,
    },
    /// Units of a key.
    Lock(Lock<'static, Vec<u8>>),
    /// Something that several nodes share: units of a key, a member of a list, a match, a
    /// lease of a regulator.
    Name(Box<NameLease>),
    /// A match of a broker.
    Match(HeldMatch),
    /// A lease of a regulator.
    Lease {
        /// The lease.
        lease: Lease,
        /// Its regulator.
        regulator: Arc<NamedRegulator>,
    },
    /// A member that the holder brought to a pool.
    Offer {
        /// The member.
        offer: Arc<Offer>,
        /// The pool.
        pool: Arc<NamedPool>,
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
            Self::Name(lease) => lease.name(),
            Self::Match(held_match) => held_match.broker.to_string(),
            Self::Lease { regulator, .. } => regulator.name.to_string(),
            Self::Value(held) => held.range.to_string(),
            Self::App(session) => session.process().app.name.to_string(),
        }
    }

    /// A short description for tables.
    pub fn value(&self) -> String {
        match self {
            Self::Member { held, .. } => held.value().to_string(),
            Self::Offer { offer, .. } => offer.value().to_string(),
            Self::Lock(lock) => {
                let units = count(lock.units() as usize, "unit");
                format!("{units}, fence {}", lock.fence())
            }
            Self::Name(lease) => match &lease.of {
                NameOf::Lock { units, .. } => {
                    let units = count(*units as usize, "unit");
                    format!("{units}, fence {}", lease.fence)
                }
                NameOf::Member { value } => value.clone(),
                NameOf::Match { value, .. } => payload(value),
                NameOf::Lease { .. } => String::new(),
            },
            Self::Match(held_match) => payload(held_match.value()),
            Self::Lease { .. } => String::new(),
            Self::Value(held) => held.kind.print(held.value),
            Self::App(session) => session.process().address.to_string(),
        }
    }

    /// It is units of this key.
    pub fn is_lock_of(&self, key: &[u8]) -> bool {
        match self {
            Self::Lock(lock) => lock.key() == key,
            Self::Name(lease) => lease.is_lock_of(key),
            _ => false,
        }
    }

    /// It is a member of this pool.
    pub fn is_member_of(&self, place: &Arc<NamedPool>) -> bool {
        matches!(self, Self::Member { pool, .. } if Arc::ptr_eq(pool, place))
    }

    /// It is a member that has ended by itself.
    pub fn is_dead_member(&self) -> bool {
        matches!(self, Self::Member { held, .. } if held.is_dead())
    }

    /// It was brought to this pool.
    pub fn is_offer_of(&self, place: &Arc<NamedPool>) -> bool {
        matches!(self, Self::Offer { pool, .. } if Arc::ptr_eq(pool, place))
    }

    /// End a match with a last word for the other party.
    pub(crate) fn done(self, payload: Option<Vec<u8>>) {
        match self {
            Self::Match(held_match) => held_match.done(payload),
            Self::Name(lease) => lease.done(payload),
            other => other.end(EndReason::Released),
        }
    }

    /// Where a party of a match hears of the other.
    pub(crate) fn mail(&self) -> Option<&Arc<Mailbox>> {
        match self {
            Self::Match(held_match) => Some(held_match.mail()),
            Self::Name(lease) => lease.mail(),
            _ => None,
        }
    }

    /// Give it back.
    pub fn end(self, why: EndReason) {
        match self {
            Self::Member { held, pool } => Held::end(held, pool.fate(why)),
            Self::Lock(lock) => drop(lock),
            Self::Name(lease) => lease.end(why),
            Self::Match(held_match) => match why {
                EndReason::Released => held_match.done(None),
                why => held_match.down(why.word()),
            },
            Self::Lease { lease, .. } => match why {
                EndReason::Released | EndReason::Quit | EndReason::Over => lease.release(),
                _ => lease.fail(),
            },
            Self::Offer { offer, .. } => match why {
                EndReason::Released | EndReason::Failed | EndReason::Cancelled => offer.withdraw(),
                _ => offer.abandon(),
            },
            Self::Value(held) if held.is_lease && !why.is_wanted() => (),
            // A holder that has lost it by now has nothing to give back.
            Self::Value(held) => drop(held.ranges.release(held.value, Some(held.fence))),
            Self::App(session) => session.end(match why {
                EndReason::Released | EndReason::Over => Ended::Answered,
                EndReason::Failed => Ended::Broken,
                EndReason::Expired => Ended::TimedOut,
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

impl NamedPool {
    /// How a member is treated when its holder ends for this reason.
    pub(crate) fn fate(&self, why: EndReason) -> Fate {
        match why {
            EndReason::Released | EndReason::Cancelled | EndReason::Over => Fate::Reuse,
            // None of these ends what is of a pool.
            EndReason::Refused | EndReason::Stopped | EndReason::Lapsed => Fate::Reuse,
            // The pool sees by itself that it is of no more use.
            EndReason::Died => Fate::Reuse,
            EndReason::Quit => self.config.load().on_quit,
            EndReason::Failed => Fate::Replace,
            EndReason::Lost | EndReason::Silent | EndReason::Expired => self.config.load().on_crash,
            EndReason::Revoked | EndReason::Broken => self.config.load().on_crash,
        }
    }
}
