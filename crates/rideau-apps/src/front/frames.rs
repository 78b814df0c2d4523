//! Where the frames of a WebSocket end.
//!
//! The front says goodbye to a client in the name of the application, which is possible only
//! between two of its frames.

/// A frame that closes: the server goes away (1001).
pub(super) const GOING_AWAY: [u8; 4] = [0x88, 0x02, 0x03, 0xe9];
/// The kind of a frame that closes.
const CLOSE: u8 = 0x8;
const IS_MASKED: u8 = 0x80;
const MASK: usize = 4;

/// The bytes that an application has sent, as frames.
#[derive(Debug, Default)]
pub(super) struct FrameWatch {
    /// The beginning of a frame, as far as it was sent.
    head: Vec<u8>,
    /// What is missing of its content.
    left: u64,
    /// The application has said goodbye itself.
    is_closed: bool,
}

impl FrameWatch {
    /// These bytes were sent.
    pub(super) fn pass(&mut self, mut bytes: &[u8]) {
        while let Some((first, rest)) = bytes.split_first() {
            if self.left > 0 {
                let len = usize::try_from(self.left).unwrap_or(usize::MAX);
                let len = len.min(bytes.len());
                self.left -= len as u64;
                bytes = &bytes[len..];
                continue;
            }
            self.head.push(*first);
            bytes = rest;
            if let Some(content) = self.content() {
                self.is_closed |= self.head[0] & 0xf == CLOSE;
                self.left = content;
                self.head.clear();
            }
        }
    }

    /// Whether another frame may follow here.
    pub(super) fn is_between(&self) -> bool {
        self.head.is_empty() && self.left == 0 && !self.is_closed
    }

    /// How long the content is, if the head is there as a whole.
    fn content(&self) -> Option<u64> {
        let second = *self.head.get(1)?;
        let mask = if second & IS_MASKED != 0 { MASK } else { 0 };
        let short = second & !IS_MASKED;
        let more = match short {
            126 => 2,
            127 => 8,
            _ => 0,
        };
        if self.head.len() < 2 + more + mask {
            return None;
        }
        let number = self.head[2..2 + more].iter();
        let long = number.fold(0, |sum, byte| sum << 8 | u64::from(*byte));
        Some(if more == 0 { short.into() } else { long })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_told_apart_however_they_are_cut() {
        let mut all = vec![0x81, 0x02, b'h', b'i'];
        all.extend([0x82, 126, 0x01, 0x00]);
        all.extend([0; 256]);
        all.extend([0x82, 127, 0, 0, 0, 0, 0, 1, 0, 0]);
        all.extend([0; 65_536]);
        all.extend([0x89, 0x81, 1, 2, 3, 4, 5]);
        let ends = [0, 4, 264, 264 + 65_546, all.len()];
        for step in [1, 3, 1000, all.len()] {
            let mut watch = FrameWatch::default();
            let mut at = 0;
            assert!(watch.is_between());
            for part in all.chunks(step) {
                watch.pass(part);
                at += part.len();
                assert_eq!(watch.is_between(), ends.contains(&at), "{at}");
            }
        }
    }

    #[test]
    fn nothing_follows_a_goodbye() {
        let mut watch = FrameWatch::default();
        watch.pass(&GOING_AWAY);
        assert!(!watch.is_between());
    }
}
