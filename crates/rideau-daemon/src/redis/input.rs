//! Bytes that a connection has sent and that are not executed yet.
//!
//! Most of it is short and lies in a vector. It is read into a buffer of the thread
//! and copied, so that a connection that waits for the next command has no buffer
//! of its own. What is longer lies in a map of its own, since the system has a map
//! back the moment it is dropped, while the allocator keeps what it was given. A map
//! grows with what has come, never with what is announced, and what it has beyond a
//! base is drawn from a budget that all connections share.

use std::cell::RefCell;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use memmap2::MmapMut;
use tokio::io::{AsyncRead, ReadBuf};

use crate::state::budget::{Budget, Drawn};

/// So much room each connection has, whatever others do. Up to here a vector has it.
pub(crate) const BASE: usize = 16 * 1024;
/// A vector begins with so much, which is enough for most commands.
const FIRST: usize = 128;
/// A vector of which all is done with is kept if it is no larger.
const KEPT: usize = 512;

thread_local! {
    /// Bytes that were just read, until they are copied.
    static READ: RefCell<[u8; BASE]> = const { RefCell::new([0; BASE]) };
}

/// Bytes that came, and where the next request begins among them.
#[derive(Debug)]
pub(crate) struct Input {
    /// The bytes, unless there is a map.
    small: Vec<u8>,
    /// The bytes, up to `end`. The map is always larger than the base.
    map: Option<MmapMut>,
    end: usize,
    /// The bytes before it are done with.
    at: usize,
    /// Bytes of the budget for the map beyond the base.
    drawn: Drawn,
}

/// Why there is no room for more.
#[derive(Debug)]
pub(crate) enum NoRoom {
    /// All that is wanted is there.
    Most,
    /// The budget has no more than this many bytes, and they are used up.
    Budget(u64),
    /// The system has none.
    System(io::Error),
}

impl Input {
    /// Nothing yet.
    pub(crate) fn new(budget: &Arc<Budget>) -> Self {
        Self {
            small: Vec::new(),
            map: None,
            end: 0,
            at: 0,
            drawn: Drawn::new(budget),
        }
    }

    /// All that came, and where the next request begins, to be moved behind it.
    #[inline]
    pub(crate) fn parts(&mut self) -> (&[u8], &mut usize) {
        let bytes = match &self.map {
            None => &self.small[..],
            Some(map) => &map[..self.end],
        };
        (bytes, &mut self.at)
    }

    /// The bytes that are not executed yet.
    pub(crate) fn bytes(&self) -> &[u8] {
        match &self.map {
            None => &self.small[self.at..],
            Some(map) => &map[self.at..self.end],
        }
    }

    /// How many bytes that is.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.end() - self.at
    }

    #[inline]
    fn end(&self) -> usize {
        match &self.map {
            None => self.small.len(),
            Some(_) => self.end,
        }
    }

    /// Have room for the next read. There are never many more than `most` bytes of
    /// it in all, but always the base.
    ///
    /// # Errors
    ///
    /// If there is none. What came is still there.
    #[inline]
    pub(crate) fn make_room(&mut self, most: usize) -> Result<(), NoRoom> {
        if self.map.is_none() && self.small.len() < BASE {
            if self.at == self.small.len() {
                self.empty();
            }
            return Ok(());
        }
        self.make_large_room(most)
    }

    #[inline(never)]
    fn make_large_room(&mut self, most: usize) -> Result<(), NoRoom> {
        let capacity = self.map.as_ref().map_or(BASE, |map| map.len());
        let len = self.len();
        if self.map.is_none() && len == 0 {
            self.empty();
            return Ok(());
        }
        if self.map.is_some() {
            if len <= BASE / 2 {
                self.move_back();
                return Ok(());
            }
            // Little is left of much, or the limit was lowered.
            let smaller = (2 * len).min(most).next_multiple_of(BASE).max(BASE);
            if len <= capacity / 4 && smaller < capacity || most.max(BASE) + BASE < capacity {
                return self.shrink(smaller);
            }
            if self.end < capacity {
                return Ok(());
            }
        }
        // No more than half of it is moved to the front, so that costs less than to
        // read it did.
        let grown = match self.at < capacity / 2 {
            true => self.grow(capacity, most),
            false => Err(NoRoom::Most),
        };
        match grown {
            Err(_) if self.at > 0 => self.move_to_front(),
            grown => grown?,
        }
        Ok(())
    }

    /// All of the vector is done with.
    #[inline]
    fn empty(&mut self) {
        match self.small.capacity() {
            ..=KEPT => self.small.clear(),
            _ => self.small = Vec::new(),
        }
        self.at = 0;
    }

    fn shrink(&mut self, capacity: usize) -> Result<(), NoRoom> {
        if self.len() >= capacity {
            return Err(NoRoom::Most);
        }
        if capacity == BASE {
            self.move_back();
            return Ok(());
        }
        self.move_to(capacity)?;
        // Fewer can always be had.
        let _ = self.drawn.set((capacity - BASE) as u64);
        Ok(())
    }

    fn grow(&mut self, capacity: usize, most: usize) -> Result<(), NoRoom> {
        let most = most.next_multiple_of(BASE);
        if most <= capacity {
            return Err(NoRoom::Most);
        }
        // Less than twice as much where the budget has no more.
        let sizes = [2 * capacity, capacity + capacity / 8, capacity + BASE];
        let sizes = sizes.map(|size| size.next_multiple_of(BASE).min(most));
        let mut had = sizes.into_iter();
        let had = had.find(|size| self.drawn.set((size - BASE) as u64));
        let Some(larger) = had else {
            return Err(NoRoom::Budget(self.drawn.max()));
        };
        let moved = self.move_to(larger);
        if moved.is_err() {
            // What it has it keeps, and fewer can always be had.
            let _ = self.drawn.set((capacity - BASE) as u64);
        }
        moved
    }

    /// Go on in a new map.
    fn move_to(&mut self, capacity: usize) -> Result<(), NoRoom> {
        let mut map = MmapMut::map_anon(capacity).map_err(NoRoom::System)?;
        let bytes = self.bytes();
        let len = bytes.len();
        map[..len].copy_from_slice(bytes);
        self.map = Some(map);
        (self.at, self.end) = (0, len);
        self.small = Vec::new();
        Ok(())
    }

    /// Go on in the vector.
    fn move_back(&mut self) {
        let small = self.bytes().to_vec();
        self.map = None;
        self.drawn.give_back();
        (self.at, self.end) = (0, 0);
        self.small = small;
    }

    fn move_to_front(&mut self) {
        match &mut self.map {
            Some(map) => map.copy_within(self.at..self.end, 0),
            None => drop(self.small.drain(..self.at)),
        }
        (self.at, self.end) = (0, self.end.saturating_sub(self.at));
    }

    /// Forget all of it, and give back what it took.
    pub(crate) fn clear(&mut self) {
        self.small = Vec::new();
        self.map = None;
        (self.at, self.end) = (0, 0);
        self.drawn.give_back();
    }

    /// Read as much as there is room for. Without room a byte is read and lost,
    /// which shows that there is more, or no more.
    pub(crate) fn poll_read_from<S>(
        &mut self,
        stream: &mut S,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<usize>>
    where
        S: AsyncRead + Unpin,
    {
        match &mut self.map {
            None if self.small.len() < BASE => READ.with_borrow_mut(|read| {
                let read = &mut read[..BASE - self.small.len()];
                let len = ready!(poll_read(stream, context, read))?;
                self.add_small(&read[..len]);
                Poll::Ready(Ok(len))
            }),
            Some(map) if self.end < map.len() => {
                let len = ready!(poll_read(stream, context, &mut map[self.end..]))?;
                self.end += len;
                Poll::Ready(Ok(len))
            }
            _ => poll_read(stream, context, &mut [0]),
        }
    }

    /// Add to the vector, which has never more room than it may have bytes.
    fn add_small(&mut self, bytes: &[u8]) {
        let len = self.small.len() + bytes.len();
        if len > self.small.capacity() {
            let room = len.next_power_of_two().max(FIRST);
            self.small.reserve_exact(room - self.small.len());
        }
        self.small.extend_from_slice(bytes);
    }

    /// Add bytes that came another way, `most` in all.
    ///
    /// # Errors
    ///
    /// If there is no room for all of them.
    pub(crate) fn add(&mut self, mut bytes: &[u8], most: usize) -> Result<(), NoRoom> {
        if self.len() + bytes.len() > most {
            return Err(NoRoom::Most);
        }
        while !bytes.is_empty() {
            self.make_room(most)?;
            let room = match &self.map {
                None => BASE - self.small.len(),
                Some(map) => map.len() - self.end,
            };
            let (now, later) = bytes.split_at(room.min(bytes.len()));
            match &mut self.map {
                None => self.add_small(now),
                Some(map) => {
                    map[self.end..self.end + now.len()].copy_from_slice(now);
                    self.end += now.len();
                }
            }
            bytes = later;
        }
        Ok(())
    }
}

fn poll_read<S: AsyncRead + Unpin>(
    stream: &mut S,
    context: &mut Context<'_>,
    into: &mut [u8],
) -> Poll<io::Result<usize>> {
    let mut into = ReadBuf::new(into);
    ready!(Pin::new(stream).poll_read(context, &mut into))?;
    Poll::Ready(Ok(into.filled().len()))
}

#[cfg(test)]
mod tests {
    use std::future;

    use super::*;

    const MOST: usize = 1 << 20;

    fn budget(max: u64) -> Arc<Budget> {
        Arc::new(Budget::new(max))
    }

    /// SplitMix64, so that a failure comes again.
    fn draws(mut state: u64) -> impl FnMut() -> usize {
        move || {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb) as usize >> 8
        }
    }

    impl Input {
        async fn read_from(&mut self, piece: &mut &[u8]) -> io::Result<usize> {
            future::poll_fn(|context| self.poll_read_from(piece, context)).await
        }
    }

    /// Read all of a piece.
    async fn read(input: &mut Input, mut piece: &[u8], most: usize) -> Result<(), NoRoom> {
        while !piece.is_empty() {
            input.make_room(most)?;
            let len = input.read_from(&mut piece).await.unwrap();
            assert!(len > 0, "there is room");
        }
        Ok(())
    }

    /// Be done with `len` bytes.
    fn take(input: &mut Input, len: usize) {
        *input.parts().1 += len;
    }

    /// The most bytes of the budget that a map of this size may use.
    fn fair(len: usize) -> u64 {
        // Twice what came, and half of a map may be done with.
        (4 * len.max(BASE)) as u64
    }

    #[tokio::test]
    async fn bytes_come_and_go_in_any_pieces_and_stay_what_they_are() {
        for seed in 0..30 {
            let mut draw = draws(seed);
            let all = budget(u64::MAX);
            let mut input = Input::new(&all);
            // Of each size of piece there are some, and pieces at the borders.
            let borders = [1, KEPT, KEPT + 1, BASE - 1, BASE, BASE + 1, 2 * BASE];
            let (mut came, mut gone) = (0_usize, 0_usize);
            for _ in 0..50 {
                let len = match draw() % 4 {
                    0 => borders[draw() % borders.len()],
                    1 => draw() % 100,
                    2 => draw() % (3 * KEPT),
                    _ => draw() % (5 * BASE),
                };
                let piece: Vec<u8> = (came..came + len).map(|at| (at % 251) as u8).collect();
                if draw().is_multiple_of(2) {
                    read(&mut input, &piece, MOST << 4).await.unwrap();
                } else {
                    input.add(&piece, MOST << 4).unwrap();
                }
                came += len;
                assert_eq!(input.len(), came - gone);
                let is_same = |bytes: &[u8]| {
                    let mut numbered = bytes.iter().zip(gone..);
                    numbered.all(|(byte, at)| *byte == (at % 251) as u8)
                };
                assert!(is_same(input.bytes()), "seed {seed}");
                let (bytes, at) = input.parts();
                assert!(is_same(&bytes[*at..]), "seed {seed}");
                let done = match draw() % 3 {
                    0 => input.len(),
                    1 => draw() % (input.len() + 1),
                    _ => 0,
                };
                take(&mut input, done);
                gone += done;
            }
            take(&mut input, came - gone);
            input.make_room(MOST).unwrap();
            assert_eq!(all.used(), 0, "nothing is left of {came} bytes");
        }
    }

    #[tokio::test]
    async fn what_fits_the_base_draws_nothing() {
        let none = budget(0);
        let mut input = Input::new(&none);
        let piece = [b'x'; 1000];
        for _ in 0..100 {
            for _ in 0..16 {
                read(&mut input, &piece, MOST).await.unwrap();
            }
            read(&mut input, &piece[..384], MOST).await.unwrap();
            assert_eq!(input.len(), BASE);
            let full = input.make_room(MOST);
            assert!(matches!(full, Err(NoRoom::Budget(0))), "{full:?}");
            // Room is made of what is done with before more is asked for.
            take(&mut input, 100);
            read(&mut input, &piece[..100], MOST).await.unwrap();
            assert_eq!(input.len(), BASE);
            take(&mut input, BASE);
        }
    }

    #[tokio::test]
    async fn room_grows_with_what_came_and_is_given_back() {
        let all = budget((MOST - BASE) as u64);
        let mut input = Input::new(&all);
        let piece = [b'x'; 5000];
        let mut came = 0;
        while came + piece.len() <= MOST {
            read(&mut input, &piece, MOST).await.unwrap();
            came += piece.len();
            assert!(all.used() <= fair(came), "{} for {came}", all.used());
        }
        assert_eq!(all.used(), (MOST - BASE) as u64);
        let mut other = Input::new(&all);
        let refused = read(&mut other, &[b'y'; 2 * BASE], MOST).await;
        assert!(
            matches!(refused, Err(NoRoom::Budget(max)) if max == all.max()),
            "{refused:?}"
        );
        assert_eq!(other.bytes(), [b'y'; BASE], "what came is still there");
        // A little that is left does not keep all of it.
        take(&mut input, came - 10);
        input.make_room(MOST).unwrap();
        assert_eq!((all.used(), input.bytes()), (0, &piece[..10]));
        read(&mut other, &[b'y'; BASE], MOST).await.unwrap();
        assert_eq!(all.used(), BASE as u64);
        drop(other);
        assert_eq!(all.used(), 0);
    }

    #[tokio::test]
    async fn what_is_done_with_keeps_little_room() {
        let all = budget(u64::MAX);
        let mut input = Input::new(&all);
        for len in [1, 100, KEPT, KEPT + 1, BASE - 1, BASE, BASE + 1, 10 * BASE] {
            read(&mut input, &vec![b'x'; len], MOST).await.unwrap();
            take(&mut input, len);
            input.make_room(MOST).unwrap();
            assert!(input.small.capacity() <= KEPT, "after {len}");
            assert!(input.map.is_none(), "after {len}");
            read(&mut input, b"next", MOST).await.unwrap();
            assert_eq!(input.bytes(), b"next");
            take(&mut input, 4);
        }
    }

    #[tokio::test]
    async fn there_is_a_most_and_it_is_no_power_of_two() {
        let all = budget(u64::MAX);
        let mut input = Input::new(&all);
        let most = 3 * BASE - 5;
        read(&mut input, &[b'x'; 3 * BASE], most).await.unwrap();
        assert!(matches!(input.make_room(most), Err(NoRoom::Most)));
        assert_eq!(all.used(), 2 * BASE as u64);
        assert!(matches!(input.add(b"x", most), Err(NoRoom::Most)));
        // What comes then is not kept, but it is seen that it comes.
        assert_eq!(input.read_from(&mut &b"abc"[..]).await.unwrap(), 1);
        assert_eq!(input.read_from(&mut &b""[..]).await.unwrap(), 0);
        assert_eq!(input.len(), 3 * BASE);
        input.clear();
        assert_eq!((input.len(), all.used()), (0, 0));
        read(&mut input, b"again", most).await.unwrap();
        assert_eq!(input.bytes(), b"again");
    }

    #[tokio::test]
    async fn one_alone_can_have_all_of_the_budget() {
        for max in [3 * BASE - 8192, 5 * BASE, MOST - 1] {
            let all = budget(max as u64);
            let mut input = Input::new(&all);
            let command = vec![b'x'; max];
            read(&mut input, &command, 4 * MOST).await.unwrap();
            assert_eq!(input.bytes(), command);
        }
    }

    #[tokio::test]
    async fn what_is_left_of_much_draws_little() {
        let all = budget(u64::MAX);
        let mut input = Input::new(&all);
        read(&mut input, &vec![b'x'; MOST], MOST).await.unwrap();
        take(&mut input, MOST - 5000);
        input.make_room(MOST).unwrap();
        assert_eq!((input.len(), all.used()), (5000, 0));
    }

    #[tokio::test]
    async fn a_lower_limit_counts_for_what_came_before() {
        let all = budget(u64::MAX);
        let mut input = Input::new(&all);
        read(&mut input, &vec![b'x'; 5 * BASE], MOST).await.unwrap();
        assert!(matches!(input.make_room(BASE), Err(NoRoom::Most)));
        take(&mut input, 4 * BASE + 1);
        input.make_room(BASE).unwrap();
        assert_eq!((input.len(), all.used()), (BASE - 1, 0));
    }
}
