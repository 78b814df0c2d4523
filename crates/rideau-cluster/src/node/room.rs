//! How much room etcd has left, and what is refused when it has little.

use std::fmt;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

/// How full etcd is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum RoomLevel {
    /// There is enough.
    Enough,
    /// Operators should look: 60 % of the quota are used.
    Alarm,
    /// Nothing that makes etcd grow is taken: 80 % of the quota are used.
    Refuse,
    /// etcd takes no writes at all.
    Full,
}

/// How much of etcd's room is used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RoomView {
    /// Bytes in use.
    pub used: u64,
    /// Bytes of the file, which the quota of etcd counts.
    pub file: u64,
    /// The quota.
    pub quota: u64,
    /// The level of alarm.
    pub level: RoomLevel,
}

/// The newest reading, for threads that ask for it often.
#[derive(Debug)]
pub(super) struct Room {
    used: AtomicU64,
    file: AtomicU64,
    level: AtomicU8,
    quota: u64,
}

const LEVELS: [RoomLevel; 4] = [
    RoomLevel::Enough,
    RoomLevel::Alarm,
    RoomLevel::Refuse,
    RoomLevel::Full,
];

impl Room {
    pub(super) const fn new(quota: u64) -> Self {
        Self {
            used: AtomicU64::new(0),
            file: AtomicU64::new(0),
            level: AtomicU8::new(0),
            quota,
        }
    }

    pub(super) fn level(&self) -> RoomLevel {
        LEVELS[usize::from(self.level.load(Ordering::Relaxed))]
    }

    pub(super) fn view(&self) -> RoomView {
        RoomView {
            used: self.used.load(Ordering::Relaxed),
            file: self.file.load(Ordering::Relaxed),
            quota: self.quota,
            level: self.level(),
        }
    }

    /// Note what etcd says of itself. Returns the level before.
    pub(super) fn note(&self, used: u64, file: u64, errors: &[String]) -> RoomLevel {
        let before = self.level();
        let level = level(used, self.quota, errors);
        self.used.store(used, Ordering::Relaxed);
        self.file.store(file, Ordering::Relaxed);
        self.level.store(level as u8, Ordering::Relaxed);
        before
    }
}

fn level(used: u64, quota: u64, errors: &[String]) -> RoomLevel {
    if errors.iter().any(|error| error.contains("NOSPACE")) {
        return RoomLevel::Full;
    }
    match u128::from(used) * 100 / u128::from(quota.max(1)) {
        0..60 => RoomLevel::Enough,
        60..80 => RoomLevel::Alarm,
        _ => RoomLevel::Refuse,
    }
}

impl RoomLevel {
    /// Whether asks that make etcd grow are refused.
    pub const fn refuses_growth(self) -> bool {
        matches!(self, Self::Refuse | Self::Full)
    }
}

impl fmt::Display for RoomView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            used, file, quota, ..
        } = self;
        match self.level {
            RoomLevel::Full => write!(
                f,
                "etcd is full and takes no writes ({file} of {quota} bytes): compact it, then \
                 defragment each member, then disarm the alarm, in this order: etcdctl compact, \
                 etcdctl defrag, etcdctl alarm disarm"
            ),
            RoomLevel::Refuse => write!(
                f,
                "etcd uses {used} of {quota} bytes: what needs more is refused from 80 % on; \
                 release what is not needed, or raise --quota-backend-bytes of etcd and the \
                 quota of the config"
            ),
            RoomLevel::Alarm => write!(
                f,
                "etcd uses {used} of {quota} bytes: from 80 % on, what needs more is refused"
            ),
            RoomLevel::Enough => write!(f, "etcd uses {used} of {quota} bytes"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_judged_by_what_is_used_and_by_etcd_s_alarm() {
        for (used, expected) in [
            (0, RoomLevel::Enough),
            (599, RoomLevel::Enough),
            (600, RoomLevel::Alarm),
            (799, RoomLevel::Alarm),
            (800, RoomLevel::Refuse),
            (2_000, RoomLevel::Refuse),
        ] {
            assert_eq!(level(used, 1_000, &[]), expected, "{used}");
        }
        let room = Room::new(1_000);
        let alarm = ["memberID:1 alarm:NOSPACE ".to_owned()];
        assert_eq!(room.note(10, 1_000, &alarm), RoomLevel::Enough);
        assert!(room.level().refuses_growth());
        let text = room.view().to_string();
        let at = |word: &str| text.find(word).expect("it is named");
        assert!(at("compact") < at("defragment") && at("defragment") < at("disarm"));
        assert_eq!(room.note(10, 1_000, &[]), RoomLevel::Full);
        assert!(!room.level().refuses_growth());
    }
}
