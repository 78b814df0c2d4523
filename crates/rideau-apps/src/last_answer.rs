//! The answer to a connection that is not served.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// How long a client has to take it.
const WITHIN: Duration = Duration::from_secs(1);

/// Send this, and read on until the client has seen it: a connection that is closed while its
/// client sends is reset.
pub async fn answer_and_close(mut stream: impl AsyncRead + AsyncWrite + Unpin, answer: &[u8]) {
    let told = async {
        stream.write_all(answer).await?;
        stream.shutdown().await?;
        let mut rest = [0; 1024];
        while stream.read(&mut rest).await? > 0 {}
        io::Result::Ok(())
    };
    let _ = tokio::time::timeout(WITHIN, told).await;
}
