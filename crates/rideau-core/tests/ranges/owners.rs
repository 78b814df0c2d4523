//! Whose values are: a fence alone is not enough once an owner is known.

use rideau_core::allocator::{
    Ask, Change, Fields, Key, Proof, Refused, Released, Reservation, Standing, Which,
};

use crate::bench::{Bench, options};

const ANNA: &[u8] = b"anna";
const BOB: &[u8] = b"bob";

fn reserve(bench: &mut Bench, owner: Option<&[u8]>, key: &[u8]) -> Result<Reservation, Refused> {
    let prefer = [bench.prefer("few", 0)];
    let keys = [Key {
        bytes: key,
        unique: true,
    }];
    let ask = Ask {
        keys: &keys,
        owner,
        ..Ask::new(&prefer)
    };
    bench.reserve(&ask).map(|granted| granted[0])
}

fn proof(held: Reservation, owner: &[u8]) -> Proof<'_> {
    Proof {
        fence: Some(held.fence),
        owner: Some(owner),
    }
}

/// Only its owner can do anything with a reservation.
fn is_only_of(bench: &mut Bench, held: Reservation, other: &[u8]) {
    let (machine, effects, now) = (&mut bench.machine, &mut bench.effects, bench.now);
    let data = Fields::new();
    let change = Change {
        fence: Some(held.fence),
        owner: Some(other),
        claim: true,
        ..Change::new(&data)
    };
    let foreign = proof(held, other);
    let which = Which::Value(held.value);
    let no = Refused::Foreign;
    assert_eq!(
        machine.refresh(which, foreign, None, now, effects),
        Err(no.clone())
    );
    assert_eq!(
        machine.update(which, &change, now, effects),
        Err(no.clone())
    );
    assert_eq!(machine.write(which, &change, now, effects), Err(no.clone()));
    assert_eq!(
        machine.cancel(which, foreign, now, effects),
        Err(no.clone())
    );
    assert_eq!(
        machine.release(held.value, foreign, now, effects),
        Err(no.clone())
    );
    let unsaid = Proof {
        fence: None,
        owner: Some(other),
    };
    assert_eq!(machine.release(held.value, unsaid, now, effects), Err(no));
}

#[test]
fn a_fence_counts_only_together_with_the_owner() {
    let mut bench = Bench::new(&[("few", "0-3")]);
    let held = reserve(&mut bench, Some(ANNA), b"mac").unwrap();
    is_only_of(&mut bench, held, BOB);
    is_only_of(&mut bench, held, b"");
    let (machine, effects, now) = (&mut bench.machine, &mut bench.effects, bench.now);
    let own = machine.release(held.value, proof(held, ANNA), now, effects);
    assert_eq!(own, Ok(Released::Now));
}

#[test]
fn whose_a_value_is_is_written_down_and_stays_when_it_is_changed() {
    let mut bench = Bench::new(&[("few", "0-3")]);
    let held = reserve(&mut bench, Some(ANNA), b"mac").unwrap();
    let data = Fields::new();
    let change = Change {
        fence: Some(held.fence),
        owner: Some(BOB),
        any_owner: true,
        ..Change::new(&data)
    };
    let (machine, effects, now) = (&mut bench.machine, &mut bench.effects, bench.now);
    let changed = machine.write(Which::Value(held.value), &change, now, effects);
    assert!(changed.is_ok());
    let mut again = bench.again(&[("few", options("0-3"))]);
    assert_eq!(again.stands(held.value), Standing::Reserved);
    is_only_of(&mut again, held, BOB);
    let now = again.now;
    let which = Which::Value(held.value);
    let seen = again.machine.lookup(which, now, &mut again.effects);
    assert_eq!(seen[0].owner.as_deref(), Some(ANNA));
}

#[test]
fn what_another_owner_has_is_not_given_again_for_its_key() {
    let mut bench = Bench::new(&[("few", "0-3")]);
    let held = reserve(&mut bench, Some(ANNA), b"mac").unwrap();
    let no = reserve(&mut bench, Some(BOB), b"mac");
    assert_eq!(no, Err(Refused::KeyTaken));
    let same = reserve(&mut bench, Some(ANNA), b"mac").unwrap();
    assert_eq!((same.fence, same.is_known), (held.fence, true));
}

#[test]
fn an_id_of_another_owner_is_another_id() {
    let mut bench = Bench::new(&[("few", "0-3")]);
    let prefer = [bench.prefer("few", 0)];
    let ask = |owner| Ask {
        id: Some(b"same"),
        owner: Some(owner),
        ..Ask::new(&prefer)
    };
    let held = bench.reserve(&ask(ANNA)).unwrap()[0];
    assert_eq!(bench.reserve(&ask(ANNA)).unwrap()[0].value, held.value);
    let other = bench.reserve(&ask(BOB)).unwrap()[0];
    assert_ne!(other.value, held.value);
    assert_eq!(bench.reserve(&ask(BOB)).unwrap()[0].value, other.value);
}

#[test]
fn where_the_owner_is_not_known_the_fence_is_enough() {
    let mut bench = Bench::new(&[("few", "0-3")]);
    let held = reserve(&mut bench, None, b"mac").unwrap();
    let (machine, effects, now) = (&mut bench.machine, &mut bench.effects, bench.now);
    let wrong = Proof {
        fence: Some(held.fence + 1),
        owner: Some(BOB),
    };
    let no = machine.release(held.value, wrong, now, effects);
    assert!(matches!(no, Err(Refused::Conflict { .. })));
    let released = machine.release(held.value, proof(held, BOB), now, effects);
    assert_eq!(released, Ok(Released::Now));
}
