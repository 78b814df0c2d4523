//! How much one ask may name and have.

/// A reservation has at most this many keys beside its value.
pub const KEYS_MAX: usize = 16;
/// A key has at most this many bytes, its namespace included.
pub const KEY_LEN_MAX: usize = 288;
/// The name of an owner has at most this many bytes.
pub const OWNER_LEN_MAX: usize = 255;
/// Preferences have this many grades.
pub const TIERS_MAX: u8 = 8;
/// At most this many places may be named in one ask.
pub const PLACES_MAX: usize = 64;
/// At most this many values can be had at once.
pub const COUNT_MAX: u32 = 1024;
