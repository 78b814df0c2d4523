//! Room for what is read and written at once.
//!
//! A connection that waits holds none: each thread keeps what the last one left,
//! and the next finds it there, still near the processor.

use std::cell::{Cell, RefCell};

/// Bytes that there is room for in one that is soon given back, and in one that is
/// held while an app thinks.
pub(crate) const LEN: usize = 4 * 1024;
const SMALL: usize = 512;
/// Buffers that grew beyond this are not kept.
const LEN_MAX: usize = 16 * 1024;
/// Rooms that a thread keeps besides the last, and small ones.
const SPARE_MAX: usize = 32;
const SMALL_MAX: usize = 512;

thread_local! {
    /// The buffer that was returned last, so that most takes look no further.
    static LAST: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
    static SPARE: RefCell<Spare> = const { RefCell::new(Spare::new()) };
}

/// The unused buffers.
struct Spare {
    rooms: Vec<Vec<u8>>,
    small: Vec<Vec<u8>>,
}

/// Some room, with nothing in it.
#[inline]
pub(crate) fn take() -> Vec<u8> {
    // There is none left when a thread ends.
    match LAST.try_with(Cell::take) {
        Ok(room) if room.capacity() > 0 => room,
        _ => pop(|spare| &mut spare.rooms, LEN),
    }
}

/// The same for what is short and held for longer.
pub(crate) fn take_small() -> Vec<u8> {
    pop(|spare| &mut spare.small, SMALL)
}

/// Returns a buffer; its content is lost.
#[inline]
pub(crate) fn give(mut room: Vec<u8>) {
    room.clear();
    if !(LEN..=LEN_MAX).contains(&room.capacity()) {
        return give_small(room);
    }
    if let Ok(before) = LAST.try_with(|last| last.replace(room))
        && before.capacity() > 0
    {
        push(|spare| &mut spare.rooms, before, SPARE_MAX);
    }
}

fn give_small(room: Vec<u8>) {
    if (SMALL..LEN).contains(&room.capacity()) {
        push(|spare| &mut spare.small, room, SMALL_MAX);
    }
}

fn pop(of: fn(&mut Spare) -> &mut Vec<Vec<u8>>, len: usize) -> Vec<u8> {
    let spare = SPARE.try_with(|spare| of(&mut spare.borrow_mut()).pop());
    let spare = spare.ok().flatten();
    spare.unwrap_or_else(|| Vec::with_capacity(len))
}

fn push(of: fn(&mut Spare) -> &mut Vec<Vec<u8>>, room: Vec<u8>, most: usize) {
    let _ = SPARE.try_with(|spare| {
        let mut spare = spare.borrow_mut();
        let kept = of(&mut spare);
        if kept.len() < most {
            kept.push(room);
        }
    });
}

impl Spare {
    const fn new() -> Self {
        Self {
            rooms: Vec::new(),
            small: Vec::new(),
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
