//! What all acquiring commands can say besides what they want.

use std::time::Duration;

use crate::client::{Client, Tail, Wrong};
use crate::resp::Arguments;

/// As long as a note may be, in bytes.
const NOTE_MAX: usize = 64;
/// As long as the client's own name of an ask may be.
const NONCE_MAX: usize = 128;

impl Tail {
    /// Take an option that begins with `word`, if it is one of the tail's.
    pub(super) fn option(
        &mut self,
        word: &[u8],
        arguments: &mut Arguments<'_>,
        client: &Client,
    ) -> Result<bool, Wrong> {
        match word {
            b"WAIT" => {
                let most = client.config.server.wait_max;
                let most = u64::try_from(most.as_millis()).unwrap_or(u64::MAX);
                let wait = arguments.number("WAIT", "milliseconds", 0..=most)?;
                self.wait = Some(Duration::from_millis(wait));
            }
            b"ASYNC" => self.is_async = true,
            b"ID" => {
                let nonce = arguments.word("ID", "your own name of the ask")?;
                if nonce.is_empty() || nonce.len() > NONCE_MAX {
                    return Err(Wrong(format!(
                        "ERR ID wants 1 to {NONCE_MAX} bytes, not {}.",
                        nonce.len()
                    )));
                }
                self.nonce = Some(nonce.into());
            }
            b"NOTE" => {
                let note = arguments.text("NOTE", "a few words")?;
                if note.len() > NOTE_MAX {
                    return Err(Wrong(format!(
                        "ERR NOTE wants {NOTE_MAX} bytes at most, not {}.",
                        note.len()
                    )));
                }
                self.note = Some(note.into());
            }
            b"TRACE" => drop(arguments.word("TRACE", "a traceparent")?),
            _ => return Ok(false),
        }
        Ok(true)
    }
}
