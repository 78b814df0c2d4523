//! Reads what a client sends before a process is bothered with it.

use std::future::poll_fn;
use std::pin::Pin;

use hyper::body::{Body, Bytes, Incoming};

use super::spool::Spool;
use super::{Fate, Passing, Upload};
use crate::front::refusals::No;

/// Bytes of a request that are kept in memory, and can be sent again.
const MEMORY_MAX: usize = 64 * 1024;

/// Read all of it.
pub(in crate::front) async fn read(mut incoming: Incoming, body_max: u64) -> Result<Upload, No> {
    let mut spool = Spool::new(MEMORY_MAX);
    let mut left = body_max;
    while let Some(part) = part(&mut incoming).await? {
        left = left
            .checked_sub(part.len() as u64)
            .ok_or(No::BodyTooLarge)?;
        spool.push(part).map_err(|error| {
            tracing::warn!("a request cannot be kept in a file: {error}");
            No::BodyTooLarge
        })?;
    }
    Ok(match spool.into_bytes() {
        Ok(bytes) if bytes.is_empty() => Upload::Empty,
        Ok(bytes) => Upload::Whole(bytes),
        Err(spool) => Upload::Spooled(spool),
    })
}

/// Read none of it, or only its first part, to see that it begins well.
pub(in crate::front) async fn peek(
    mut incoming: Incoming,
    body_max: u64,
    is_chunked: bool,
) -> Result<(Upload, Fate), No> {
    let mut left = body_max;
    let fate = Fate::new();
    let mut first = None;
    if is_chunked {
        let Some(part) = part(&mut incoming).await? else {
            return Ok((Upload::Empty, fate));
        };
        left = left
            .checked_sub(part.len() as u64)
            .ok_or(No::BodyTooLarge)?;
        first = Some(part);
    }
    let passing = Passing {
        incoming,
        first,
        left,
        fate: fate.clone(),
    };
    Ok((Upload::Passing(passing), fate))
}

/// The next part of it; what it says at its end is left out.
async fn part(incoming: &mut Incoming) -> Result<Option<Bytes>, No> {
    loop {
        let frame = poll_fn(|context| Pin::new(&mut *incoming).poll_frame(context)).await;
        match frame {
            None => return Ok(None),
            Some(Err(_)) => return Err(No::Bad("its body makes no sense, or was broken off")),
            Some(Ok(frame)) => {
                if let Ok(part) = frame.into_data()
                    && !part.is_empty()
                {
                    return Ok(Some(part));
                }
            }
        }
    }
}
