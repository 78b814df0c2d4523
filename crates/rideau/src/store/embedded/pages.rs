//! The end of a file, written in whole pages.
//!
//! A batch must be on the disk before it counts, and is not read before the next
//! start. To copy it into the system's cache first, and to have that written, takes
//! half as long again: so the pages go past the cache where the system lets them.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// What every disk and file system takes as a whole.
const PAGE: usize = 4096;

#[derive(Debug)]
pub(super) struct Pages {
    file: File,
    is_direct: bool,
    /// The page that is not full yet, from `start` on, and room for more.
    buffer: Vec<u8>,
    /// Where in the buffer, as only memory at the beginning of a page is taken.
    start: usize,
    /// Where the next bytes go.
    end: u64,
}

impl Pages {
    /// Goes on at `end` in a file that has `head` from the beginning of that page.
    pub(super) fn new(file: File, head: &[u8], end: u64) -> Self {
        debug_assert_eq!(head.len() as u64, end % PAGE as u64, "all of the page");
        let (mut buffer, start) = aligned(PAGE);
        buffer[start..][..head.len()].copy_from_slice(head);
        Self {
            is_direct: go_past_cache(&file),
            file,
            buffer,
            start,
            end,
        }
    }

    /// How many bytes of what ends at `end` are on its last page.
    pub(super) const fn on_last_page(end: usize) -> usize {
        end % PAGE
    }

    pub(super) const fn end(&self) -> u64 {
        self.end
    }

    /// Writes at the end. The rest of the last page becomes zeros.
    pub(super) fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let begin = (self.end % PAGE as u64) as usize;
        let len = begin + bytes.len();
        let whole = len.next_multiple_of(PAGE);
        self.reserve(begin, whole);
        let pages = &mut self.buffer[self.start..][..whole];
        pages[begin..len].copy_from_slice(bytes);
        pages[len..].fill(0);
        write(
            &self.file,
            &mut self.is_direct,
            pages,
            self.end - begin as u64,
        )?;
        // What comes next is written together with what its page has already.
        pages.copy_within(len - len % PAGE..len, 0);
        self.end += bytes.len() as u64;
        Ok(())
    }

    /// Writes zeros, from the first whole page behind `from` up to `to`.
    pub(super) fn clear(&mut self, from: u64, to: u64, step: usize) -> io::Result<()> {
        let (zeros, start) = aligned(step);
        let mut at = from.next_multiple_of(PAGE as u64);
        while at < to {
            let len = (to - at).min(step as u64);
            let zeros = &zeros[start..][..len as usize];
            write(&self.file, &mut self.is_direct, zeros, at)?;
            at += len;
        }
        Ok(())
    }

    /// The file that is written.
    pub(super) const fn file(&self) -> &File {
        &self.file
    }

    pub(super) fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    /// Makes room for this many bytes, and keeps the first ones.
    fn reserve(&mut self, kept: usize, len: usize) {
        if self.buffer.len() - self.start >= len {
            return;
        }
        let (mut buffer, start) = aligned(len.next_multiple_of(16 * PAGE));
        buffer[start..][..kept].copy_from_slice(&self.buffer[self.start..][..kept]);
        (self.buffer, self.start) = (buffer, start);
    }
}

/// Zeros, and where among them a page begins that has this many after it.
fn aligned(len: usize) -> (Vec<u8>, usize) {
    let bytes = vec![0; len + PAGE];
    let start = bytes.as_ptr().align_offset(PAGE);
    (bytes, start)
}

fn write(file: &File, is_direct: &mut bool, pages: &[u8], at: u64) -> io::Result<()> {
    match file.write_all_at(pages, at) {
        // Not every file system that promises it takes pages like ours.
        Err(error) if *is_direct && error.kind() == io::ErrorKind::InvalidInput => {
            *is_direct = false;
            go_through_cache(file)?;
            file.write_all_at(pages, at)
        }
        written => written,
    }
}

#[cfg(target_os = "linux")]
fn go_past_cache(file: &File) -> bool {
    use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
    let flags = fcntl_getfl(file);
    flags
        .and_then(|flags| fcntl_setfl(file, flags | OFlags::DIRECT))
        .is_ok()
}

#[cfg(target_os = "linux")]
fn go_through_cache(file: &File) -> io::Result<()> {
    use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
    let flags = fcntl_getfl(file)?;
    Ok(fcntl_setfl(file, flags - OFlags::DIRECT)?)
}

#[cfg(not(target_os = "linux"))]
fn go_past_cache(_: &File) -> bool {
    false
}

#[cfg(not(target_os = "linux"))]
fn go_through_cache(_: &File) -> io::Result<()> {
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;

    use super::*;

    /// A file that goes with its name.
    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Self {
            let name = format!("rideau-pages-{}-{name}", std::process::id());
            Self(std::env::temp_dir().join(name))
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_file(&self.0);
        }
    }

    fn bytes(len: usize, seed: usize) -> Vec<u8> {
        (0..len).map(|at| (at * 31 + seed * 7 + 1) as u8).collect()
    }

    #[test]
    fn what_is_appended_stands_one_after_the_other() {
        let scratch = Scratch::new("append");
        let file = File::create(&scratch.0).unwrap();
        let mut pages = Pages::new(file, &[], 0);
        let mut written = Vec::new();
        let lens = [1, 48, 4000, 47, 1, 4096, 4095, 2, 20_000, 0, 12_288, 5];
        for (seed, len) in lens.into_iter().enumerate() {
            let more = bytes(len, seed);
            pages.append(&more).unwrap();
            written.extend(more);
            pages.sync().unwrap();
            let found = fs::read(&scratch.0).unwrap();
            assert_eq!(found[..written.len()], written);
            assert!(found[written.len()..].iter().all(|&byte| byte == 0));
            assert_eq!(pages.end(), written.len() as u64);
        }
    }

    #[test]
    fn a_file_is_gone_on_with_anywhere() {
        let scratch = Scratch::new("resume");
        for had in [0, 48, 4095, 4096, 10_000] {
            let old = bytes(had, 3);
            fs::write(&scratch.0, &old).unwrap();
            let file = File::options().write(true).open(&scratch.0).unwrap();
            let head = &old[had - Pages::on_last_page(had)..];
            let mut pages = Pages::new(file, head, had as u64);
            pages.clear(had as u64, 65_536, 8192).unwrap();
            pages.append(&bytes(100, 4)).unwrap();
            let found = fs::read(&scratch.0).unwrap();
            assert_eq!(found.len(), 65_536);
            assert_eq!(found[..had], old);
            assert_eq!(found[had..had + 100], bytes(100, 4));
            assert!(found[had + 100..].iter().all(|&byte| byte == 0));
        }
    }

    #[test]
    fn what_the_file_system_does_not_take_goes_through_the_cache() {
        let scratch = Scratch::new("refused");
        let file = File::create(&scratch.0).unwrap();
        let mut is_direct = go_past_cache(&file);
        // No page, so that it is refused past the cache.
        write(&file, &mut is_direct, b"unaligned", 3).unwrap();
        assert_eq!(fs::read(&scratch.0).unwrap(), b"\0\0\0unaligned");
    }
}
