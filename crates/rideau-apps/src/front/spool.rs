//! Bytes that wait to be taken, in memory at first and then in a file.
//!
//! The file has no name, so nothing is left of it whatever happens. It is read
//! and written in place: what was just written is in the system's memory.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};

use hyper::body::Bytes;

/// Bytes that are read from the file at a time.
const PART: usize = 64 * 1024;

/// Bytes that wait to be taken, in order.
pub(super) struct Spool {
    /// Bytes that may be in memory.
    memory_max: usize,
    /// Parts in memory, which go first.
    memory: VecDeque<Bytes>,
    memory_len: usize,
    file: Option<File>,
    /// Where the unread part of the file begins.
    from: u64,
    to: u64,
}

impl Spool {
    pub(super) fn new(memory_max: usize) -> Self {
        Self {
            memory_max,
            memory: VecDeque::new(),
            memory_len: 0,
            file: None,
            from: 0,
            to: 0,
        }
    }

    /// How many bytes wait.
    pub(super) fn len(&self) -> u64 {
        self.memory_len as u64 + self.in_file()
    }

    /// How many of them wait in the file.
    pub(super) fn in_file(&self) -> u64 {
        self.to - self.from
    }

    pub(super) fn push(&mut self, bytes: Bytes) -> io::Result<()> {
        if self.in_file() == 0 && self.memory_len + bytes.len() <= self.memory_max {
            self.memory_len += bytes.len();
            self.memory.push_back(bytes);
            return Ok(());
        }
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(nameless()?),
        };
        if self.from == self.to {
            (self.from, self.to) = (0, 0);
        }
        file.write_all_at(&bytes, self.to)?;
        self.to += bytes.len() as u64;
        Ok(())
    }

    /// The oldest part.
    pub(super) fn pop(&mut self) -> io::Result<Option<Bytes>> {
        if let Some(bytes) = self.memory.pop_front() {
            self.memory_len -= bytes.len();
            return Ok(Some(bytes));
        }
        let (Some(file), 1..) = (&self.file, self.in_file()) else {
            return Ok(None);
        };
        let len = usize::try_from(self.in_file()).map_or(PART, |len| len.min(PART));
        let mut part = vec![0; len];
        file.read_exact_at(&mut part, self.from)?;
        self.from += len as u64;
        Ok(Some(part.into()))
    }

    /// All that waits in one piece, if that is in memory.
    pub(super) fn into_bytes(mut self) -> Result<Bytes, Self> {
        if self.in_file() > 0 {
            return Err(self);
        }
        if self.memory.len() <= 1 {
            return Ok(self.memory.pop_front().unwrap_or_default());
        }
        let mut all = Vec::with_capacity(self.memory_len);
        for part in self.memory {
            all.extend_from_slice(&part);
        }
        Ok(all.into())
    }
}

/// A file for no other process, which is gone when we are.
fn nameless() -> io::Result<File> {
    let number = getrandom::u64().map_err(io::Error::other)?;
    let path = std::env::temp_dir().join(format!("rideau-{number:016x}"));
    let mut options = fs::OpenOptions::new();
    options.read(true).write(true).create_new(true).mode(0o600);
    let file = options.open(&path)?;
    fs::remove_file(&path)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_out_as_they_went_in_wherever_they_were() {
        let mut spool = Spool::new(100);
        let mut sent = Vec::new();
        let mut taken = Vec::new();
        let mut was_in_file = 0;
        for round in 0..200_u32 {
            let part: Vec<u8> = (0..round % 70).map(|byte| (byte * round) as u8).collect();
            sent.extend_from_slice(&part);
            spool.push(part.into()).expect("a file");
            was_in_file += spool.in_file();
            if round % 3 == 0
                && let Some(part) = spool.pop().expect("a file")
            {
                taken.extend_from_slice(&part);
            }
            assert_eq!(spool.len(), (sent.len() - taken.len()) as u64);
        }
        assert!(was_in_file > 0);
        while let Some(part) = spool.pop().expect("a file") {
            taken.extend_from_slice(&part);
        }
        assert!(taken == sent);
        assert_eq!(spool.len(), 0);
    }

    #[test]
    fn what_is_in_memory_is_had_in_one_piece() {
        let mut spool = Spool::new(10);
        spool.push("abc".into()).expect("memory");
        spool.push("def".into()).expect("memory");
        let all = spool.into_bytes().ok().expect("all is in memory");
        assert_eq!(all, "abcdef");
        let mut spool = Spool::new(3);
        spool.push("abcdef".into()).expect("a file");
        assert!(spool.into_bytes().is_err());
    }
}
