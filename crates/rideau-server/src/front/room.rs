//! Room for what is read and written at once.
//!
//! A connection that waits holds none: each thread keeps what the last one left,
//! and the next finds it there, still near the processor.

use std::cell::RefCell;

/// Bytes that there is room for in one that is soon given back, and in one that is
/// held while an app thinks.
pub(super) const LEN: usize = 4 * 1024;
const SMALL: usize = 512;
/// More is not worth keeping.
const LEN_MAX: usize = 64 * 1024;
/// Rooms that a thread keeps, and small ones.
const SPARE_MAX: usize = 32;
const SMALL_MAX: usize = 512;

thread_local! {
    static SPARE: RefCell<Spare> = const { RefCell::new(Spare { rooms: Vec::new(), small: Vec::new() }) };
}

/// What is not in use.
struct Spare {
    rooms: Vec<Vec<u8>>,
    small: Vec<Vec<u8>>,
}

/// Some room, with nothing in it.
pub(super) fn take() -> Vec<u8> {
    // There is none left when a thread ends.
    let spare = SPARE.try_with(|spare| spare.borrow_mut().rooms.pop());
    let spare = spare.ok().flatten();
    spare.unwrap_or_else(|| Vec::with_capacity(LEN))
}

/// The same for what is short and held for longer.
pub(super) fn take_small() -> Vec<u8> {
    let spare = SPARE.try_with(|spare| spare.borrow_mut().small.pop());
    let spare = spare.ok().flatten();
    spare.unwrap_or_else(|| Vec::with_capacity(SMALL))
}

/// Nobody needs what is in it any more.
pub(super) fn give(mut room: Vec<u8>) {
    if !(SMALL..=LEN_MAX).contains(&room.capacity()) {
        return;
    }
    room.clear();
    let _ = SPARE.try_with(|spare| spare.borrow_mut().keep(room));
}

impl Spare {
    fn keep(&mut self, room: Vec<u8>) {
        let (kept, most) = match room.capacity() {
            LEN.. => (&mut self.rooms, SPARE_MAX),
            _ => (&mut self.small, SMALL_MAX),
        };
        if kept.len() < most {
            kept.push(room);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spare() -> (usize, usize) {
        SPARE.with_borrow(|spare| (spare.rooms.len(), spare.small.len()))
    }

    #[test]
    fn what_was_given_is_taken_next_and_empty() {
        for (take, len) in [(take as fn() -> _, LEN), (take_small, SMALL)] {
            let mut room = take();
            room.extend_from_slice(b"secret");
            let at = room.as_ptr();
            give(room);
            let room = take();
            assert_eq!((room.as_ptr(), room.len()), (at, 0));
            assert!(room.capacity() >= len);
        }
    }

    #[test]
    fn what_is_too_small_or_too_large_or_too_much_is_not_kept() {
        for capacity in [0, SMALL - 1, LEN_MAX + 1] {
            give(Vec::with_capacity(capacity));
        }
        assert_eq!(spare(), (0, 0));
        for _ in 0..SMALL_MAX + 9 {
            give(Vec::with_capacity(SMALL));
            give(Vec::with_capacity(LEN));
        }
        assert_eq!(spare(), (SPARE_MAX, SMALL_MAX));
    }
}
