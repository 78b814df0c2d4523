//! The handshake of a WebSocket with an app for a client of HTTP/2, which has none.
//!
//! Over HTTP/1 a client sends a key, and what the app makes of it shows that the app
//! understood. Over HTTP/2 the protocol has a name of its own, so the front sends a key
//! and looks at the proof.

use ring::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};

/// A key that was sent to an app.
pub(super) struct WebSocketKey(String);

/// The bytes of a key.
const LEN: usize = 16;
/// What an app adds to the key.
const ADDED: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

impl WebSocketKey {
    /// One that was not sent before.
    pub(super) fn new() -> Self {
        let mut bytes = [0; LEN];
        getrandom::fill(&mut bytes).expect("the system has random bits");
        Self(base64(&bytes))
    }

    /// As it is sent.
    pub(super) fn text(&self) -> &str {
        &self.0
    }

    /// Whether this is what an app has to make of it.
    pub(super) fn is_proved_by(&self, accept: &[u8]) -> bool {
        let text = format!("{}{ADDED}", self.0);
        let proof = digest(&SHA1_FOR_LEGACY_USE_ONLY, text.as_bytes());
        accept == base64(proof.as_ref()).as_bytes()
    }
}

fn base64(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for part in bytes.chunks(3) {
        let mut word = [0; 4];
        word[1..=part.len()].copy_from_slice(part);
        let word = u32::from_be_bytes(word);
        for at in 0..4 {
            let letter = LETTERS[(word >> (18 - 6 * at)) as usize & 63];
            text.push(if at <= part.len() { letter.into() } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_proved_as_the_standard_says() {
        let key = WebSocketKey("dGhlIHNhbXBsZSBub25jZQ==".into());
        assert!(key.is_proved_by(b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo="));
        assert!(!key.is_proved_by(b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo"));
        assert!(!WebSocketKey::new().is_proved_by(b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo="));
    }

    #[test]
    fn bytes_are_written_with_their_padding() {
        let texts = [
            "", "Zg==", "Zm8=", "Zm9v", "Zm9vYg==", "Zm9vYmE=", "Zm9vYmFy",
        ];
        for (len, text) in texts.into_iter().enumerate() {
            assert_eq!(base64(&b"foobar"[..len]), text);
        }
        assert_eq!(WebSocketKey::new().text().len(), 24);
    }
}
