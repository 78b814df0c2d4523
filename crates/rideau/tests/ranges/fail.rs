//! A store that fails: no caller is told what is not safe, and none waits for
//! it.

use std::thread;

use rideau::allocator::{Ask, Field, Fields, Filter, Standing, Which};
use rideau::cluster::Partitions;
use rideau::store::{BatchSection, Fault, Left, Loaded, Store, StoreError, Take};
use rideau::{Failed, Ranges, RangesOptions};
use tokio::task::JoinSet;

use crate::rig::{HOUR, Rig, anywhere, held, is_next, reserve, reserved, values, words};

const FAULTS: [(Fault, &str); 4] = [
    (Fault::Append(Left::Nothing), "cannot write a batch"),
    (Fault::Append(Left::Torn), "cannot write a batch"),
    (Fault::Append(Left::Whole), "cannot write a batch"),
    (Fault::Full, "no room to write a batch"),
];

#[test]
fn every_task_that_waits_for_a_failed_append_hears_of_it() {
    for (fault, wanted) in FAULTS {
        let rig = Rig::new();
        let ranges = rig.open();
        let safe = reserved(&ranges, "sync");
        rig.platter.inject(fault);
        let hold = rig.platter.hold();
        let answers: Vec<_> = (0..100).map(|_| reserve(&ranges, "sync")).collect();
        let waiting: Vec<_> = answers
            .into_iter()
            .map(|answer| thread::spawn(|| words(answer.wait())))
            .collect();
        drop(hold);
        for thread in waiting {
            let words = thread.join().unwrap();
            assert!(words.starts_with("the store failed: "), "{words}");
            assert!(words.contains(wanted), "{words}");
        }
        assert!(ranges.failed().is_some());
        drop(ranges);
        let ranges = rig.open();
        let values = values(&ranges);
        match fault {
            // No caller was told, and yet it happened: it dies at its own end.
            Fault::Append(Left::Whole) => assert!(values.contains(&safe.value)),
            _ => assert_eq!(values, [safe.value], "{fault:?}"),
        }
    }
}

#[tokio::test]
async fn tasks_hear_of_it_too() {
    let rig = Rig::new();
    let ranges = rig.open();
    rig.platter.inject(Fault::Full);
    let hold = rig.platter.hold();
    let mut tasks = JoinSet::new();
    for _ in 0..50 {
        let ranges = ranges.clone();
        tasks.spawn(async move { words(reserve(&ranges, "sync").await) });
    }
    tokio::task::yield_now().await;
    drop(hold);
    for words in tasks.join_all().await {
        assert!(words.contains("make room"), "{words}");
    }
}

#[test]
fn after_a_failure_every_call_is_refused_in_words() {
    let rig = Rig::new();
    let ranges = rig.open();
    let safe = reserved(&ranges, "sync");
    let (which, fence) = (Which::Value(safe.value), Some(safe.fence));
    let memory = reserved(&ranges, "memory");
    rig.platter.inject(Fault::Append(Left::Nothing));
    assert!(reserve(&ranges, "sync").wait().is_err());
    let filter = Filter::KeyPrefix(b"mac:".to_vec());
    let refused = [
        words(reserve(&ranges, "sync").wait()),
        words(reserve(&ranges, "memory").wait()),
        words(ranges.refresh(which, fence, Some(HOUR)).wait()),
        words(ranges.release(memory.value, Some(memory.fence)).wait()),
        words(ranges.cancel(which, fence).wait()),
        words(ranges.lookup(which).wait()),
        words(ranges.release_all(&filter, None).wait()),
    ];
    for words in refused {
        assert!(
            words.starts_with("the store failed: cannot write a batch"),
            "{words}"
        );
    }
    // One may still look.
    assert_eq!(ranges.stands(safe.value), Standing::Reserved);
    ranges.close();
    let failed = reserve(&ranges, "sync").wait();
    assert!(matches!(failed, Err(Failed::Store(_))), "{failed:?}");
}

#[test]
fn what_was_safe_before_a_failure_is_told_after_it() {
    let rig = Rig::new();
    let ranges = rig.open();
    let hold = rig.platter.hold();
    let (_, until) = reserve(&ranges, "sync").into_parts();
    drop(hold);
    until.wait().unwrap();
    rig.platter.inject(Fault::Full);
    assert!(reserve(&ranges, "sync").wait().is_err());
    assert!(until.is_reached().unwrap());
    until.wait().unwrap();
}

#[test]
fn ranges_opened_before_others_are_fenced_off() {
    let rig = Rig::new();
    let old = rig.open();
    let kept = reserved(&old, "sync");
    let new = rig.open();
    let words = words(reserve(&old, "sync").wait());
    assert!(words.contains("only the newest may write"), "{words}");
    assert_eq!(values(&new), [kept.value]);
    assert!(is_next(reserved(&new, "sync").value, kept.value));
}

/// Panics when it is written.
struct Panics;

impl Store for Panics {
    fn append(&mut self, _: &[BatchSection<'_>]) -> Result<(), StoreError> {
        panic!("the test said so");
    }
    fn load(&mut self, _: Partitions, _: &[u32], _: &mut Take<'_>) -> Result<Loaded, StoreError> {
        Ok(Loaded::default())
    }
    fn begin_snapshot(&mut self, _: u32) -> Result<(), StoreError> {
        Ok(())
    }
    fn put_chunk(&mut self, _: &[u8]) -> Result<(), StoreError> {
        Ok(())
    }
    fn end_snapshot(&mut self) -> Result<(), StoreError> {
        Ok(())
    }
    fn log_bytes(&self) -> u64 {
        0
    }
    fn fence(&self) -> u64 {
        1
    }
    fn name(&self) -> &'static str {
        "panics"
    }
}

#[test]
fn no_task_waits_for_a_thread_that_panicked() {
    let options = Rig::new().options;
    let ranges = Ranges::open(Box::new(Panics), options).unwrap();
    let said = words(reserve(&ranges, "sync").wait());
    assert!(said.contains("has panicked"), "{said}");
    assert!(words(reserve(&ranges, "sync").wait()).contains("has panicked"));
    drop(ranges);
}

#[test]
fn a_log_longer_than_a_store_takes_in_one_piece_is_written_in_several() {
    let rig = Rig::new();
    let ranges = rig.open();
    let mut data = Fields::new();
    let filler = vec![7; 60_000];
    data.set(b"filler", Field::Bytes(&filler));
    let prefer = anywhere(&ranges, "sync");
    let ask = Ask {
        data: &data,
        count: 500,
        ..Ask::new(&prefer)
    };
    let hold = rig.platter.hold();
    // No task waits, as with a client that sends one after the other.
    let untils: Vec<_> = (0..3)
        .map(|_| ranges.reserve(&ask).into_parts().1)
        .collect();
    drop(hold);
    untils.iter().for_each(|until| until.wait().unwrap());
    assert!(rig.platter.batches() > 4, "{}", rig.platter.batches());
    drop(ranges);
    assert_eq!(held(&rig.open()).len(), 1_500);
}

#[test]
fn ranges_that_do_not_fit_are_refused_in_words() {
    let rig = Rig::new();
    let mut ranges = rig.options.ranges.clone();
    ranges.push(("again".to_owned(), ranges[0].1.clone()));
    let options = RangesOptions {
        ranges,
        ..rig.options.clone()
    };
    let refused = Ranges::open(Box::new(rig.platter.open()), options).unwrap_err();
    let words = refused.to_string();
    assert_eq!(
        words,
        "range `again`: the range `sync` has the values from 0 to 9999 already"
    );
}

#[test]
fn a_log_that_is_not_understood_is_refused_in_words() {
    let rig = Rig::new();
    let mut store = rig.platter.open();
    let all: Vec<u32> = (0..crate::partitions().count()).collect();
    let loaded = store.load(crate::partitions(), &all, &mut |_, _| Ok(()));
    loaded.unwrap();
    store.append(&[BatchSection::only(&[99, 1, 2, 3])]).unwrap();
    let store = Box::new(rig.platter.open());
    let refused = Ranges::open(store, rig.options.clone()).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "batch 1 makes no sense: an entry at byte 0 cannot be read"
    );
    rig.platter.lose_tail(1);
    let store = Box::new(rig.platter.open());
    let refused = Ranges::open(store, rig.options.clone()).unwrap_err();
    assert!(refused.to_string().contains("is damaged"), "{refused}");
}
