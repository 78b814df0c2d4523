//! How much one side of a connection may make the other one keep.

/// Limits of a request before it is complete.
///
/// Of a request that breaks a limit no more is read than shows that it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestLimits {
    /// All bytes of an array, with its lengths and line ends.
    pub frame_max: usize,
    /// The words of a request, its name among them.
    pub arguments_max: usize,
    /// The bytes of one word.
    pub bulk_max: usize,
    /// The bytes of a line of words, without its line feed.
    pub inline_max: usize,
}

impl Default for RequestLimits {
    /// Commands are short; the longest word is a whole config file.
    fn default() -> Self {
        Self {
            frame_max: 2 << 20,
            arguments_max: 1024,
            bulk_max: 1 << 20,
            inline_max: 64 << 10,
        }
    }
}

/// Bytes of a request of a client that has yet to log in. A login is shorter, and
/// every connection can have this many kept without a password.
pub const BEFORE_LOGIN_MAX: usize = 16 << 10;

/// Words of such a request.
const WORDS_BEFORE_LOGIN_MAX: usize = 64;

impl RequestLimits {
    /// The same for a client that has yet to log in.
    #[must_use]
    pub fn before_login(self) -> Self {
        Self {
            frame_max: self.frame_max.min(BEFORE_LOGIN_MAX),
            arguments_max: self.arguments_max.min(WORDS_BEFORE_LOGIN_MAX),
            bulk_max: self.bulk_max.min(BEFORE_LOGIN_MAX),
            // The line feed counts here.
            inline_max: self.inline_max.min(BEFORE_LOGIN_MAX - 1),
        }
    }
}

/// Limits of a reply before it is complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplyLimits {
    /// All bytes of a reply.
    pub frame_max: usize,
    /// The bytes of one text or line.
    pub bulk_max: usize,
    /// The values in all its arrays, sets and maps, those in others counted too.
    pub elements_max: usize,
    /// How many arrays, sets and maps may lie in each other.
    pub depth_max: usize,
}

impl Default for ReplyLimits {
    /// Lists of holders are long, and no reply is deep.
    fn default() -> Self {
        Self {
            frame_max: 256 << 20,
            bulk_max: 64 << 20,
            elements_max: 4 << 20,
            depth_max: 32,
        }
    }
}
