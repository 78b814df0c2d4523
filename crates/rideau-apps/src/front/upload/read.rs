//! Reads what a client sends before a process is bothered with it.

use std::future::poll_fn;

use hyper::body::Bytes;

use super::{Fate, Passing, Source, Upload};
use crate::front::spool::Spool;

/// Why a body was not read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::front) enum Unread {
    /// It is longer than it may be, or than there is room for.
    TooLarge,
    /// It makes no sense, or was broken off.
    Broken,
}

/// Bytes of a request that are kept in memory, and can be sent again.
const MEMORY_MAX: usize = 64 * 1024;

/// Read all of it.
pub(in crate::front) async fn read(mut source: Source, body_max: u64) -> Result<Upload, Unread> {
    let mut spool = Spool::new(MEMORY_MAX);
    let mut left = body_max;
    while let Some(part) = part(&mut source).await? {
        left = left
            .checked_sub(part.len() as u64)
            .ok_or(Unread::TooLarge)?;
        spool.push(part).map_err(|error| {
            tracing::warn!("a request cannot be kept in a file: {error}");
            Unread::TooLarge
        })?;
    }
    Ok(match spool.into_bytes() {
        Ok(bytes) => Upload::Whole(bytes),
        Err(spool) => Upload::Spooled(spool),
    })
}

/// Read none of it, or only its first part, to see that it begins well.
pub(in crate::front) async fn peek(
    mut source: Source,
    len: Option<u64>,
    body_max: u64,
    is_checked: bool,
) -> Result<(Upload, Fate), Unread> {
    let mut left = body_max;
    let fate = Fate::new();
    let mut first = None;
    if is_checked {
        let Some(part) = part(&mut source).await? else {
            return Ok((Upload::Whole(Bytes::new()), fate));
        };
        left = left
            .checked_sub(part.len() as u64)
            .ok_or(Unread::TooLarge)?;
        first = Some(part);
    }
    let passing = Passing {
        source,
        first,
        len,
        left,
        fate: fate.clone(),
    };
    Ok((Upload::Passing(passing), fate))
}

/// The next part of it that is none of nothing.
async fn part(source: &mut Source) -> Result<Option<Bytes>, Unread> {
    loop {
        match poll_fn(|context| source.poll_part(context)).await {
            None => return Ok(None),
            Some(Err(_)) => return Err(Unread::Broken),
            Some(Ok(part)) if part.is_empty() => (),
            Some(Ok(part)) => return Ok(Some(part)),
        }
    }
}
