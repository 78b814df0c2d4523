//! Ranges on a disk in memory, and what is in them.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use rideau::allocator::{
    Ask, Class, Field, Fields, Place, Prefer, RangeOptions, Reservation, Seen, Span, Which,
};
use rideau::store::Platter;
use rideau::{Answer, Failed, ManualClocks, Ranges, RangesOptions};

pub(crate) const HOUR: Duration = Duration::from_secs(3_600);

/// A disk, clocks, and the ranges that are opened on them.
pub(crate) struct Rig {
    pub(crate) platter: Platter,
    pub(crate) clocks: ManualClocks,
    pub(crate) options: RangesOptions,
}

impl Rig {
    /// One range `sync` of 10,000 numbers, one `memory` and one `claimed`.
    pub(crate) fn new() -> Self {
        let classes = [
            ("sync", Class::Sync, "0-9999"),
            ("memory", Class::Memory, "100000-109999"),
            ("claimed", Class::Claimed, "200000-299999"),
        ];
        let ranges = classes.map(|(name, class, span)| {
            let options = RangeOptions {
                class,
                offer_ttl: HOUR,
                ..RangeOptions::new(vec![Span::parse(span).unwrap()])
            };
            (name.to_owned(), options)
        });
        Self {
            platter: Platter::new(),
            clocks: ManualClocks::new(),
            options: RangesOptions {
                ranges: ranges.into(),
                partitions: crate::partitions(),
                ..RangesOptions::default()
            },
        }
    }

    pub(crate) fn open(&self) -> Ranges {
        let store = Box::new(self.platter.open());
        Ranges::open_by(store, self.options.clone(), &self.clocks).unwrap()
    }
}

/// One value of this range.
pub(crate) fn reserve(ranges: &Ranges, range: &str) -> Answer<Vec<Reservation>> {
    ranges.reserve(&Ask::new(&anywhere(ranges, range)))
}

/// The same, and wait for it.
pub(crate) fn reserved(ranges: &Ranges, range: &str) -> Reservation {
    reserve(ranges, range).wait().unwrap()[0]
}

pub(crate) fn anywhere(ranges: &Ranges, range: &str) -> [Prefer; 1] {
    let id = ranges.range(range).unwrap();
    [Prefer {
        tier: 0,
        place: Place::Range(id),
    }]
}

/// A field that tells whose it is.
pub(crate) fn fields(text: &str) -> Fields {
    let mut fields = Fields::new();
    fields.set(b"who", Field::Bytes(text.as_bytes()));
    fields
}

/// Everything that is held, in the order of values.
pub(crate) fn held(ranges: &Ranges) -> Vec<Seen> {
    let mut cursor = 0;
    let mut held: Vec<Seen> = Vec::new();
    loop {
        let page = ranges.page(&mut cursor, 1_000);
        if page.is_empty() {
            held.sort_by_key(|seen| seen.value);
            return held;
        }
        held.extend(page);
    }
}

pub(crate) fn values(ranges: &Ranges) -> Vec<u128> {
    held(ranges).iter().map(|seen| seen.value).collect()
}

/// Free, reserved and all others of each range are all its values.
pub(crate) fn check_counts(ranges: &Ranges) {
    for stats in ranges.all_stats() {
        let held = u128::from(stats.reserved + stats.detached + stats.cooling);
        let apart = stats.free.to_u128().unwrap() + stats.quarantined.to_u128().unwrap();
        assert_eq!(stats.size.to_u128(), Some(held + apart), "{stats:?}");
    }
}

/// The only reservation of a value.
pub(crate) fn seen(ranges: &Ranges, value: u128) -> Option<Seen> {
    let mut seen = ranges.lookup(Which::Value(value)).wait().unwrap();
    assert!(seen.len() <= 1);
    seen.pop()
}

/// A value that was given out after another, as the order of a range has it: the next one
/// if there is one partition, and any other if there are several.
pub(crate) fn is_next(value: u128, before: u128) -> bool {
    match crate::partitions().count() {
        1 => value == before + 1,
        _ => value != before,
    }
}

/// The words of a failure.
pub(crate) fn words<T>(answer: Result<T, Failed>) -> String {
    match answer {
        Ok(_) => panic!("it was answered"),
        Err(failed) => failed.to_string(),
    }
}

/// Counts how often it was woken.
#[derive(Default)]
pub(crate) struct Woken(pub(crate) AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// Polls a future once, and then drops it.
pub(crate) fn poll_once<F: Future>(future: F) -> Poll<F::Output> {
    let future = pin!(future);
    future.poll(&mut Context::from_waker(Waker::noop()))
}
