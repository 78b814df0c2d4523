//! The waiting room of an app: the machine, the cookies by which browsers keep their places, and
//! the page.

use std::fmt::Write;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use rideau_config::WaitingRoomConfig;
use rideau_core::apps::AppLoad;
use rideau_core::{Instant, RoomEntry, RoomLoad, RoomPlace, WaitingRoom, WaitingRoomStats};
use ring::hmac;

/// A cookie that was given longer ago does not count.
const COOKIE_FOR: Duration = Duration::from_secs(600);
/// How many bytes of the proof are told.
const PROOF: usize = 16;

/// The waiting room of an app.
pub(crate) struct AppRoom {
    state: Mutex<State>,
    /// Cookies count as long as the room is there.
    key: hmac::Key,
    page: ArcSwap<Option<String>>,
}

struct State {
    machine: WaitingRoom,
    /// It never runs backwards, whatever order threads come in.
    now: Instant,
    config: WaitingRoomConfig,
}

/// A browser whose turn it is. It has to say what becomes of that.
pub(crate) struct RoomTurn {
    room: Arc<AppRoom>,
    serial: u64,
    is_new: bool,
    is_settled: bool,
}

impl AppRoom {
    pub(super) fn new(config: &WaitingRoomConfig) -> Self {
        let mut bytes = [0; 32];
        getrandom::fill(&mut bytes).expect("the system has random bits");
        Self {
            state: Mutex::new(State {
                machine: WaitingRoom::new(config.options()),
                now: Instant::START,
                config: config.clone(),
            }),
            key: hmac::Key::new(hmac::HMAC_SHA256, &bytes),
            page: ArcSwap::default(),
        }
    }

    /// Read the operator's page: the file may be another, even if its name is not.
    pub(crate) fn read_page(&self) {
        let config = self.state.lock().config.clone();
        self.page.store(Arc::new(read(&config)));
    }

    pub(super) fn follow(&self, config: &WaitingRoomConfig) {
        let mut state = self.state.lock();
        state.machine.reconfigure(config.options());
        state.config = config.clone();
    }

    /// A browser comes, with the cookie that it was given before, if it was.
    ///
    /// # Errors
    ///
    /// If it has to wait: where.
    pub(crate) fn come(
        self: &Arc<Self>,
        cookie: Option<&[u8]>,
        load: &AppLoad,
        now: Instant,
    ) -> Result<RoomTurn, RoomPlace> {
        let serial = cookie.and_then(|value| self.read_cookie(value, unix_now()));
        let mut state = self.state.lock();
        state.now = state.now.max(now);
        let now = state.now;
        match state.machine.come(serial, &room_load(load), now) {
            RoomEntry::Wait(place) => Err(place),
            RoomEntry::Turn { serial, is_new } => Ok(RoomTurn {
                room: Arc::clone(self),
                serial,
                is_new,
                is_settled: false,
            }),
        }
    }

    pub(super) fn stats(&self) -> WaitingRoomStats {
        self.state.lock().machine.stats()
    }

    /// The operator's page, if there is one.
    pub(crate) fn page(&self) -> Arc<Option<String>> {
        self.page.load_full()
    }

    /// The value of the cookie for a place.
    pub(crate) fn cookie(&self, serial: u64) -> String {
        self.value(serial, unix_now())
    }

    fn value(&self, serial: u64, at: u64) -> String {
        let said = format!("{serial}.{at}");
        let proof = hmac::sign(&self.key, said.as_bytes());
        let mut value = said;
        value.push('.');
        for byte in &proof.as_ref()[..PROOF] {
            let _ = write!(value, "{byte:02x}");
        }
        value
    }

    /// The serial that a cookie names, if we gave it, for this room, and not too long ago.
    fn read_cookie(&self, value: &[u8], now: u64) -> Option<u64> {
        let value = str::from_utf8(value).ok()?;
        let mut words = value.splitn(3, '.');
        let serial = words.next()?.parse().ok()?;
        let at: u64 = words.next()?.parse().ok()?;
        let made = self.value(serial, at);
        let is_ours = is_same(made.as_bytes(), value.as_bytes());
        let is_fresh =
            at <= now.saturating_add(1) && now.saturating_sub(at) <= COOKIE_FOR.as_secs();
        (is_ours && is_fresh).then_some(serial)
    }
}

impl RoomTurn {
    /// It has its place inside.
    pub(crate) fn enter(mut self) {
        self.is_settled = true;
        self.room.state.lock().machine.enter(self.serial);
    }

    /// There was none for it after all: it waits outside again, with the next turn.
    pub(crate) fn keep(mut self, load: &AppLoad, now: Instant) -> RoomPlace {
        self.is_settled = true;
        let mut state = self.room.state.lock();
        state.now = state.now.max(now);
        let now = state.now;
        state.machine.keep(self.serial, &room_load(load), now)
    }

    /// It cannot be served at all.
    pub(crate) fn forget(mut self) {
        self.is_settled = true;
        self.room.state.lock().machine.forget(self.serial);
    }
}

impl Drop for RoomTurn {
    /// Its client left before it had a place. One that knows its serial may come again.
    fn drop(&mut self) {
        if self.is_settled {
            return;
        }
        let mut state = self.room.state.lock();
        let now = state.now;
        match self.is_new {
            true => state.machine.forget(self.serial),
            false => {
                state.machine.keep(self.serial, &NOTHING, now);
            }
        }
    }
}

/// Before the first report.
const NOTHING: RoomLoad = RoomLoad {
    waiting: 0,
    free: 0,
    places: 1,
    start: None,
    departed: 0,
    stay: Duration::ZERO,
};

const fn room_load(load: &AppLoad) -> RoomLoad {
    RoomLoad {
        waiting: load.waiting,
        free: load.free,
        places: load.places,
        start: load.start,
        departed: load.finished,
        stay: load.service_time,
    }
}

/// A file that cannot be read any more has no page; that it could be was checked.
fn read(config: &WaitingRoomConfig) -> Option<String> {
    match config.read_page() {
        Ok(page) => page,
        Err(error) => {
            tracing::warn!("the page of the waiting room cannot be read: {error}");
            None
        }
    }
}

fn unix_now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.unwrap_or_default().as_secs()
}

/// Takes as long whatever is different, so that no client finds out what is.
fn is_same(one: &[u8], other: &[u8]) -> bool {
    let differences = one.iter().zip(other).map(|(one, other)| one ^ other);
    one.len() == other.len() && differences.fold(0, |sum, difference| sum | difference) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn room() -> AppRoom {
        AppRoom::new(&WaitingRoomConfig::default())
    }

    #[test]
    fn a_cookie_is_ours_or_counts_for_nothing() {
        let (room, other) = (room(), room());
        let good = room.value(7, 1_000);
        let read = |value: &str, now| room.read_cookie(value.as_bytes(), now);
        assert_eq!(read(&good, 1_000), Some(7));
        assert_eq!(read(&good, 1_600), Some(7));
        assert_eq!(read(&good, 1_601), None, "it is too old");
        assert_eq!(read(&good, 900), None, "it is of the future");
        assert_eq!(other.read_cookie(good.as_bytes(), 1_000), None);
        let forged = good.replacen('7', "6", 1);
        let later = good.replacen("1000", "1500", 1);
        let longer = format!("{good}0");
        let shorter = &good[..good.len() - 1];
        let with_plus = format!("+{good}");
        for value in [
            "", "7", "7.1000", "7.1000.", "x.y.z", &forged, &later, &longer, shorter, &with_plus,
        ] {
            assert_eq!(read(value, 1_000), None, "{value}");
        }
    }
}
