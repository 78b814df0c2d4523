//! The end of a connection that was refused while its client was sending.

use std::future;
use std::io;
use std::task::Context;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};

use super::Connection;

/// A client that is refused while it sends has so long to read why.
pub(super) const WITHIN: Duration = Duration::from_secs(1);
/// Meanwhile it may send so much more.
const BYTES_MAX: usize = 4 << 20;

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Connection<S> {
    /// Read on for a moment, and forget what comes. A connection that is closed while
    /// its client sends is reset, and the client does not see what it was told.
    #[cold]
    pub(super) async fn linger(&mut self) {
        let rest = async {
            self.stream.shutdown().await?;
            let mut left = BYTES_MAX;
            while left > 0 && self.input.make_room(0).is_ok() {
                let (input, stream) = (&mut self.input, &mut self.stream);
                let read = |task: &mut Context<'_>| input.poll_read_from(stream, task);
                let len = future::poll_fn(read).await?;
                if len == 0 {
                    break;
                }
                left = left.saturating_sub(len);
                // So it never needs a map.
                self.input.clear();
            }
            io::Result::Ok(())
        };
        let _ = tokio::time::timeout(WITHIN, rest).await;
    }
}
