//! Changes of values, for the clients that watch.

use std::sync::Arc;

use rideau::allocator::{Event, Kind, What};
use rideau_config::User;
use serde_json::{Value, json};

use super::{NamedRanges, sees_fence};

/// One thing that happened to a value, in words.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Happened {
    /// The name of its range; empty if that is gone.
    pub range: Arc<str>,
    /// The kind of change, as a word.
    pub what: &'static str,
    /// The value.
    pub value: String,
    /// Its holder's number.
    pub fence: u64,
    /// The owner, if known.
    pub owner: Option<Box<[u8]>>,
    /// The number of the event: a client that misses some sees a gap.
    pub number: u64,
}

impl Happened {
    pub(crate) fn of(ranges: &NamedRanges, event: &Event) -> Self {
        let place = ranges.of(event.value);
        let kind = place.map_or(Kind::Number, |(_, kind)| kind);
        Self {
            range: place.map_or_else(|| "".into(), |(place, _)| Arc::clone(&place.name)),
            what: word(event.what),
            value: kind.print(event.value),
            fence: event.fence,
            owner: event.owner.clone(),
            number: event.number,
        }
    }

    /// One line of JSON, for this user: the fence of others is nothing to know. In a cluster
    /// it says at which node it happened.
    pub(crate) fn json(&self, user: Option<&User>, node: Option<&str>) -> Value {
        let sees_fence = sees_fence(user, self.owner.as_deref());
        let mut line = json!({
            "number": self.number,
            "what": self.what,
            "range": &*self.range,
            "value": self.value,
            "fence": sees_fence.then_some(self.fence),
        });
        if let Some(node) = node {
            line["node"] = node.into();
        }
        line
    }
}

/// The kinds of changes.
pub(crate) const CHANGES: [&str; 6] = [
    "reserved",
    "updated",
    "expired",
    "released",
    "cancelled",
    "changed",
];

fn word(what: What) -> &'static str {
    let [reserved, updated, expired, released, cancelled, changed] = CHANGES;
    match what {
        What::Reserved => reserved,
        What::Updated => updated,
        What::Expired => expired,
        What::Released => released,
        What::Cancelled => cancelled,
        _ => changed,
    }
}
