//! Owners: any number of keys, and all of them back when the owner ends.

use std::thread;

use rideau::{Locks, NotHeld};

use crate::stage::{die, panics, patient_locks};

#[test]
fn an_owner_holds_any_number_of_keys_and_frees_all_when_it_ends() {
    let locks: Locks<u64> = Locks::new();
    let mut job = locks.owner();
    for key in 0..500 {
        for ordinal in 1..=key % 3 + 1 {
            assert_eq!(job.acquire(&key, 3).unwrap().ordinal(), ordinal);
        }
    }
    let held: u64 = (0..500).map(|key| locks.held(&key)).sum();
    assert_eq!((held, job.len() as u64), (999, 999));
    assert_eq!(job.held().count(), 999);
    drop(job);
    assert!(locks.all_held().is_empty());
}

#[test]
fn what_was_taken_last_is_released_first() {
    let locks: Locks<String> = Locks::new();
    let mut job = locks.owner();
    job.acquire_many("db", 4, 10).unwrap();
    job.acquire_many("db", 2, 10).unwrap();
    let newest = job.acquire("db", 10).unwrap().fence();
    job.acquire("disk", 1).unwrap();
    assert_eq!(job.release("db"), Ok(()));
    assert_eq!(locks.held("db"), 6);
    assert!(
        job.held()
            .all(|lock| lock.key() == "disk" || lock.fence() < newest)
    );
    assert_eq!(job.release("db"), Ok(()));
    assert_eq!(locks.held("db"), 4);
    assert_eq!(job.release("db"), Ok(()));
    assert_eq!(job.release("db"), Err(NotHeld));
    assert_eq!((locks.held("db"), locks.held("disk")), (0, 1));
    assert_eq!(job.len(), 1);
}

/// L6: the other's unit stays where it is.
#[test]
fn no_owner_releases_what_another_holds() {
    let locks: Locks<String> = Locks::new();
    let mut first = locks.owner();
    let mut second = locks.owner();
    first.acquire("db", 1).unwrap();
    assert_eq!(second.release("db"), Err(NotHeld));
    assert_eq!(second.release("nothing"), Err(NotHeld));
    assert!(second.acquire("db", 1).is_err());
    assert_eq!(locks.held("db"), 1);
    assert_eq!(NotHeld.to_string(), "nothing of that key is held here");
    assert!(locks.held("nothing") == 0 && second.is_empty());
}

#[test]
fn a_refusal_leaves_an_owner_as_it_was() {
    let locks: Locks<String> = Locks::new();
    let mut job = locks.owner();
    job.acquire("db", 1).unwrap();
    assert_eq!(job.acquire("db", 1).unwrap_err().held, 1);
    assert!(job.acquire_many("db", 0, 9).is_err());
    assert_eq!(job.len(), 1);
    job.release_all();
    assert!(job.is_empty());
    assert_eq!(locks.held("db"), 0);
    assert_eq!(job.acquire("db", 1).unwrap().ordinal(), 1);
}

/// K6: the thread that joins finds everything free.
#[test]
fn the_end_of_a_thread_is_not_seen_before_its_units_are_back() {
    let locks: Locks<u64> = Locks::new();
    for round in 0..200 {
        let holder = thread::spawn({
            let locks = locks.clone();
            move || {
                let mut job = locks.owner();
                for key in 0..20 {
                    job.acquire_many(&key, 2, 2).unwrap();
                }
                if round % 2 == 0 {
                    die();
                }
            }
        });
        assert_eq!(holder.join().is_err(), round % 2 == 0);
        assert!((0..20).all(|key| locks.held(&key) == 0), "round {round}");
    }
}

/// K6, of a task that is aborted while it waits for something else.
#[tokio::test]
async fn the_end_of_a_task_is_not_seen_before_its_units_are_back() {
    let locks: Locks<u64> = Locks::new();
    for _ in 0..50 {
        let (tell, told) = tokio::sync::oneshot::channel();
        let holder = tokio::spawn({
            let locks = locks.clone();
            async move {
                let mut job = locks.owner();
                for key in 0..20 {
                    job.acquire(&key, 1).unwrap();
                }
                tell.send(()).unwrap();
                std::future::pending::<()>().await;
                drop(job);
            }
        });
        told.await.unwrap();
        assert_eq!(locks.held(&7), 1);
        holder.abort();
        assert!(holder.await.unwrap_err().is_cancelled());
        assert!((0..20).all(|key| locks.held(&key) == 0));
    }
}

#[test]
fn a_panic_between_two_takes_frees_both() {
    let locks: Locks<String> = Locks::new();
    let died = panics(|| {
        let mut job = locks.owner();
        job.acquire("db", 1).unwrap();
        job.acquire("disk", 1).unwrap();
        die()
    });
    assert!(died);
    assert_eq!((locks.held("db"), locks.held("disk")), (0, 0));
}

#[tokio::test]
async fn an_owner_keeps_what_was_waited_for() {
    let locks = patient_locks();
    let mut job = locks.owner();
    let first = locks.acquire("db", 1).unwrap();
    let waiter = tokio::spawn({
        let locks = locks.clone();
        async move { locks.acquire_wait("db", 1).await }
    });
    while locks.waiting("db") == 0 {
        tokio::task::yield_now().await;
    }
    let fence = first.fence();
    first.release();
    let lock = waiter.await.unwrap().unwrap();
    assert_eq!(job.keep(lock).fence(), fence + 1);
    assert_eq!(locks.held("db"), 1);
    assert_eq!(job.release("db"), Ok(()));
    assert_eq!(locks.held("db"), 0);
}
