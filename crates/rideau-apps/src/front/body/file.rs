//! A file that is read while it is sent.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use crate::front::broken::{Broken, Part};
use crate::front::budget::Reserved;
use crate::front::disk::Disk;

/// Bytes of a file that are read at a time.
pub(in crate::front) const FILE_PART: u64 = 64 << 10;

/// The file changed while it was sent, or its disk failed.
const UNREADABLE: Broken = Broken("file_broken");

/// The next part on its way.
type Reading = Pin<Box<dyn Future<Output = io::Result<Vec<u8>>> + Send>>;

/// A part of a file that is being sent. It stays as it was when it was opened, if another takes its
/// name.
pub(in crate::front) struct FileBody {
    file: Arc<File>,
    at: u64,
    left: u64,
    disk: Disk,
    reading: Option<Reading>,
    is_broken: bool,
    /// What it may have in memory.
    _reserved: Reserved,
}

impl FileBody {
    /// From this byte on, this many.
    pub(in crate::front) fn new(
        file: File,
        (at, len): (u64, u64),
        disk: Disk,
        reserved: Reserved,
    ) -> Self {
        Self {
            file: Arc::new(file),
            at,
            left: len,
            disk,
            reading: None,
            is_broken: false,
            _reserved: reserved,
        }
    }

    pub(super) const fn is_over(&self) -> bool {
        self.left == 0
    }

    pub(super) fn broken(&self) -> Option<Broken> {
        self.is_broken.then_some(UNREADABLE)
    }

    pub(super) fn poll_part(&mut self, context: &mut Context<'_>) -> Poll<Part> {
        if self.is_broken {
            return Poll::Ready(Some(Err(UNREADABLE)));
        }
        if self.left == 0 {
            return Poll::Ready(None);
        }
        let read = ready!(self.reading().as_mut().poll(context));
        self.reading = None;
        match read {
            Ok(part) => {
                self.at += part.len() as u64;
                self.left -= part.len() as u64;
                Poll::Ready(Some(Ok(part.into())))
            }
            Err(error) => {
                tracing::debug!("a file that is sent cannot be read: {error}");
                self.is_broken = true;
                Poll::Ready(Some(Err(UNREADABLE)))
            }
        }
    }

    fn reading(&mut self) -> &mut Reading {
        let Self {
            file,
            disk,
            at,
            left,
            reading,
            ..
        } = self;
        reading.get_or_insert_with(|| {
            let (file, disk, at) = (Arc::clone(file), disk.clone(), *at);
            let len = usize::try_from((*left).min(FILE_PART)).unwrap_or_default();
            Box::pin(async move {
                let read = move || {
                    let mut part = vec![0; len];
                    file.read_exact_at(&mut part, at)?;
                    Ok(part)
                };
                disk.run(read).await
            })
        })
    }
}
