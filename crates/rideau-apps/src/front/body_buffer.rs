//! Bytes of a body that wait to be taken, in memory at first and then in a file.
//!
//! One task adds to it and takes from it. Files are written and read on threads that
//! may be kept waiting by a disk; what is on its way to one is in memory.

mod temp_file;

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use hyper::body::Bytes;
use rideau_process::panics::{self, Panicked};

use self::temp_file::TempFile;
use super::budget::Reserved;

/// Bytes that are in memory in one piece, and that are read from a file at a time.
const PIECE: usize = 64 * 1024;
/// Bytes that may be on their way to a file.
const PENDING_MAX: usize = 128 * 1024;

/// Work that is done on another thread.
type Away<T> = Pin<Box<dyn Future<Output = Result<T, Panicked>> + Send>>;

/// Bytes that wait to be taken, in order.
///
/// Invariant: what came first is in memory, what came then is in the file, then what is
/// being written, then what is pending.
pub(super) struct BodyBuffer {
    reserved: Reserved,
    most: BufferMax,
    memory: VecDeque<Vec<u8>>,
    memory_len: usize,
    file: Option<TempFile>,
    /// What of the file is not taken yet.
    from: u64,
    to: u64,
    reading: Option<Away<io::Result<Vec<u8>>>>,
    /// What is being written behind it, and how long that is.
    writing: Option<(u64, Away<Written>)>,
    /// What is to be written next.
    pending: Vec<u8>,
    /// That is not to be written, as there is no room.
    is_full: bool,
    /// Some of it is lost.
    is_broken: bool,
}

/// How much may wait of one body.
#[derive(Clone, Copy, Debug)]
pub(super) struct BufferMax {
    /// In memory.
    pub(super) memory: usize,
    /// In a file.
    pub(super) file: u64,
}

/// There is no room for more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Full;

/// A body that is in memory as a whole.
#[derive(Clone)]
pub(super) struct WholeBody {
    pub(super) bytes: Bytes,
    /// What it takes of the budget.
    _reserved: Arc<Reserved>,
}

/// The file that was written to; or what was not written.
type Written = Result<TempFile, Vec<u8>>;

impl BodyBuffer {
    pub(super) fn new(reserved: Reserved, most: BufferMax) -> Self {
        Self {
            reserved,
            most,
            memory: VecDeque::new(),
            memory_len: 0,
            file: None,
            from: 0,
            to: 0,
            reading: None,
            writing: None,
            pending: Vec::new(),
            is_full: false,
            is_broken: false,
        }
    }

    /// How many bytes wait.
    pub(super) fn len(&self) -> u64 {
        self.memory_len as u64 + self.beyond_memory()
    }

    fn beyond_memory(&self) -> u64 {
        let writing = self.writing.as_ref().map_or(0, |(len, _)| *len);
        self.to - self.from + writing + self.pending.len() as u64
    }

    /// Add to it. There may be no room for this, but then there is none for more.
    pub(super) fn push(&mut self, part: &[u8]) {
        if self.beyond_memory() == 0 {
            let fits = self.memory_len + part.len() <= self.most.memory;
            if fits && self.reserved.take_memory(part.len() as u64) {
                return self.keep(part);
            }
            (self.from, self.to) = (0, 0);
        }
        self.pending.extend_from_slice(part);
        let end = self.from + self.beyond_memory();
        if end > self.most.file || !self.reserved.take_file(end) {
            self.is_full = true;
        }
    }

    fn keep(&mut self, part: &[u8]) {
        self.memory_len += part.len();
        match self.memory.back_mut() {
            Some(last) if last.len() + part.len() <= PIECE => last.extend_from_slice(part),
            _ => self.memory.push_back(part.to_vec()),
        }
    }

    /// Ready when more may be added.
    ///
    /// # Errors
    ///
    /// If there is no room for what was added last, until some of it is taken.
    pub(super) fn poll_room(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Full>> {
        self.write(context);
        if self.is_full {
            return Poll::Ready(Err(Full));
        }
        match self.pending.len() < PENDING_MAX {
            true => Poll::Ready(Ok(())),
            false => Poll::Pending,
        }
    }

    /// Ready when all that was added is where it stays.
    ///
    /// # Errors
    ///
    /// If there is no room for it.
    pub(super) fn poll_kept(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Full>> {
        self.write(context);
        if self.is_full {
            return Poll::Ready(Err(Full));
        }
        match self.writing.is_none() {
            true => Poll::Ready(Ok(())),
            false => Poll::Pending,
        }
    }

    /// What came first of what waits; none if nothing does.
    ///
    /// # Errors
    ///
    /// If the file cannot be read.
    pub(super) fn poll_pop(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<Option<Bytes>>> {
        if let Some(first) = self.memory.pop_front() {
            self.memory_len -= first.len();
            self.reserved.leave_memory(first.len() as u64);
            return Poll::Ready(Ok(Some(first.into())));
        }
        self.write(context);
        if self.is_broken {
            return Poll::Ready(Err(io::Error::other("it was not written")));
        }
        if self.from < self.to {
            let part = ready!(self.poll_read(context))?;
            self.from += part.len() as u64;
            return Poll::Ready(Ok(Some(part.into())));
        }
        if self.writing.is_some() {
            return Poll::Pending;
        }
        // The disk is spared what can be taken at once.
        self.is_full = false;
        let last = std::mem::take(&mut self.pending);
        self.leave_file();
        Poll::Ready(Ok((!last.is_empty()).then(|| last.into())))
    }

    fn poll_read(&mut self, context: &mut Context<'_>) -> Poll<io::Result<Vec<u8>>> {
        let (from, left) = (self.from, self.to - self.from);
        let file = &self.file;
        let reading = self.reading.get_or_insert_with(|| {
            let len = usize::try_from(left).map_or(PIECE, |left| left.min(PIECE));
            let file = file.clone().expect("something was written to it");
            Box::pin(panics::away(move || file.read(from, len)))
        });
        let done = ready!(reading.as_mut().poll(context));
        self.reading = None;
        Poll::Ready(done.unwrap_or_else(|panicked| Err(io::Error::other(panicked.to_string()))))
    }

    /// Write what is pending.
    fn write(&mut self, context: &mut Context<'_>) {
        loop {
            if let Some((len, writing)) = &mut self.writing {
                let Poll::Ready(done) = writing.as_mut().poll(context) else {
                    return;
                };
                let len = *len;
                self.writing = None;
                match done {
                    Ok(Ok(file)) => {
                        self.file = Some(file);
                        self.to += len;
                    }
                    Ok(Err(mut unwritten)) => {
                        unwritten.append(&mut self.pending);
                        self.pending = unwritten;
                        self.is_full = true;
                    }
                    Err(_) => self.is_broken = true,
                }
            }
            if self.pending.is_empty() || self.is_full || self.is_broken {
                return;
            }
            let bytes = std::mem::take(&mut self.pending);
            let (file, folder, at) = (self.file.clone(), self.reserved.folder(), self.to);
            let len = bytes.len() as u64;
            let work = panics::away(move || temp_file::write(file, &folder, bytes, at));
            self.writing = Some((len, Box::pin(work)));
        }
    }

    /// Nothing waits in it any more.
    fn leave_file(&mut self) {
        self.file = None;
        self.reserved.leave_file();
        (self.from, self.to) = (0, 0);
    }

    /// All that waits in one piece, if that is in memory.
    ///
    /// # Errors
    ///
    /// If it is not, itself.
    pub(super) fn into_whole(mut self: Box<Self>) -> Result<WholeBody, Box<Self>> {
        if self.beyond_memory() > 0 {
            return Err(self);
        }
        let bytes = match self.memory.len() {
            0 | 1 => self.memory.pop_front().unwrap_or_default(),
            _ => self.memory.make_contiguous().concat(),
        };
        Ok(WholeBody {
            bytes: bytes.into(),
            _reserved: Arc::new(self.reserved),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use rideau_config::FrontConfig;
    use rideau_testing::Scratch;

    use super::*;
    use crate::front::budget::BufferBudget;

    /// A client of the budget is one of four.
    fn budget(folder: &Scratch, memory: u64, disk: u64) -> Arc<BufferBudget> {
        BufferBudget::new(&FrontConfig {
            buffer_memory: 4 * memory,
            buffer_disk: 4 * disk,
            buffer_dir: Some(folder.path().into()),
            ..FrontConfig::default()
        })
    }

    fn buffer(budget: &Arc<BufferBudget>, memory: usize, file: u64) -> Box<BodyBuffer> {
        let client = std::net::IpAddr::from([127, 0, 0, 1]);
        let most = BufferMax { memory, file };
        Box::new(BodyBuffer::new(budget.reserve(client), most))
    }

    async fn pop(buffer: &mut BodyBuffer) -> Option<Bytes> {
        let popped = poll_fn(|context| buffer.poll_pop(context)).await;
        popped.expect("it can be read")
    }

    async fn room(buffer: &mut BodyBuffer) -> Result<(), Full> {
        poll_fn(|context| buffer.poll_room(context)).await
    }

    #[tokio::test]
    async fn bytes_come_out_as_they_went_in_wherever_they_were() {
        let folder = Scratch::new();
        let budget = budget(&folder, 1 << 20, 1 << 20);
        let mut buffer = buffer(&budget, 1000, 1 << 20);
        let (mut sent, mut taken) = (Vec::new(), Vec::new());
        let mut was_in_file = false;
        for round in 0..300_u32 {
            let part: Vec<u8> = (0..round % 170).map(|byte| (byte * round) as u8).collect();
            sent.extend_from_slice(&part);
            assert_eq!(room(&mut buffer).await, Ok(()));
            buffer.push(&part);
            if round % 50 == 0 {
                let kept = poll_fn(|context| buffer.poll_kept(context)).await;
                assert_eq!(kept, Ok(()));
            }
            was_in_file |= budget.used().1 > 0;
            if round % 40 == 0
                && let Some(part) = pop(&mut buffer).await
            {
                taken.extend_from_slice(&part);
            }
            assert_eq!(buffer.len(), (sent.len() - taken.len()) as u64);
        }
        assert!(was_in_file);
        while let Some(part) = pop(&mut buffer).await {
            taken.extend_from_slice(&part);
        }
        assert!(taken == sent);
        assert_eq!(budget.used(), (0, 0), "it has no file when it is empty");
    }

    #[tokio::test]
    async fn with_no_memory_left_all_is_in_the_file() {
        let folder = Scratch::new();
        let budget = budget(&folder, 0, 1000);
        let mut buffer = buffer(&budget, 1000, 1000);
        buffer.push(b"a");
        let kept = poll_fn(|context| buffer.poll_kept(context)).await;
        assert_eq!((kept, budget.used()), (Ok(()), (0, 1)));
        assert!(buffer.file.is_some());
        assert_eq!(pop(&mut buffer).await.as_deref(), Some(&b"a"[..]));
        drop(buffer);
        assert_eq!(budget.used(), (0, 0));
    }

    #[tokio::test]
    async fn what_has_no_room_is_told_and_still_comes_out() {
        let folder = Scratch::new();
        // By the budget, by its own limit, and as there is no folder.
        let nowhere = BufferBudget::new(&FrontConfig {
            buffer_dir: Some("/nowhere/at/all".into()),
            ..FrontConfig::default()
        });
        let (small, large) = (budget(&folder, 10, 10), budget(&folder, 10, 1 << 20));
        for (budget, file) in [(small, 1 << 20), (large, 10), (nowhere, 1 << 20)] {
            let mut buffer = buffer(&budget, 4, file);
            buffer.push(b"abc");
            assert_eq!(room(&mut buffer).await, Ok(()));
            buffer.push(b"defghijklmnopqrst");
            let kept = poll_fn(|context| buffer.poll_kept(context)).await;
            assert_eq!(kept, Err(Full));
            assert_eq!(pop(&mut buffer).await.as_deref(), Some(&b"abc"[..]));
            let rest = pop(&mut buffer).await;
            assert_eq!(rest.as_deref(), Some(&b"defghijklmnopqrst"[..]));
            assert_eq!(room(&mut buffer).await, Ok(()), "it was taken");
            assert_eq!(pop(&mut buffer).await, None);
        }
    }

    #[tokio::test]
    async fn what_is_in_memory_is_had_in_one_piece() {
        let folder = Scratch::new();
        let budget = budget(&folder, 1 << 20, 1 << 20);
        let mut short = buffer(&budget, 10, 100);
        short.push(b"abc");
        short.push(b"def");
        let whole = short.into_whole().ok().expect("all is in memory");
        assert_eq!((&*whole.bytes, budget.used()), (&b"abcdef"[..], (6, 0)));
        drop(whole);
        assert_eq!(budget.used(), (0, 0));
        let mut long = buffer(&budget, 3, 100);
        long.push(b"abcdef");
        assert!(long.into_whole().is_err());
        let mut pieces = buffer(&budget, 1 << 20, 100);
        let part = vec![7; PIECE - 1];
        (0..3).for_each(|_| pieces.push(&part));
        let whole = pieces.into_whole().ok().expect("all is in memory");
        assert_eq!(whole.bytes, part.repeat(3));
    }
}
