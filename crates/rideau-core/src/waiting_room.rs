//! Says which visitors of a crowd may come in, in the order in which they came.
//!
//! Of visitors that wait it keeps two counters only: the last serial that was given, and the
//! last whose turn has come. Each visitor keeps its own serial. Turns that were not used yet
//! are remembered until they are lost, so that each is used once.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use crate::time::Instant;

/// When visitors have to wait outside, and how long they may be away.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WaitingRoomOptions {
    /// Visitors that would wait for longer wait outside.
    pub after: Duration,
    /// A visitor that is not back within this after its turn has lost it.
    pub hold: Duration,
}

/// How busy it is inside.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RoomLoad {
    /// How many wait inside.
    pub waiting: usize,
    /// Places that are free,
    pub free: usize,
    /// and all of them; or those that there will be, if there are none yet.
    pub places: usize,
    /// There are none yet, and how long they take to come.
    pub start: Option<Duration>,
    /// How many have left their places, since ever.
    pub departed: u64,
    /// How long one has a place, if that is known; zero if not.
    pub stay: Duration,
}

/// What a visitor is told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RoomEntry {
    /// It may come in. What becomes of that has to be told: [`enter`](WaitingRoom::enter),
    /// [`keep`](WaitingRoom::keep) or [`forget`](WaitingRoom::forget).
    Turn {
        /// Its serial.
        serial: u64,
        /// It came just now, and knows of no serial.
        is_new: bool,
    },
    /// It has to wait outside.
    Wait(RoomPlace),
}

/// A place in the line of a waiting room.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RoomPlace {
    /// The serial, by which the visitor is known when it is back.
    pub serial: u64,
    /// How many turns there are up to its own, that among them.
    pub place: u64,
    /// How long it will wait, if all goes on as it does.
    pub expected: Duration,
    /// When it should be back, to see whether it is its turn.
    pub back_in: Duration,
}

/// Numbers of a waiting room.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct WaitingRoomStats {
    /// Serials whose turn has not come.
    pub len: u64,
    /// Turns that have come, and were not used yet.
    pub turns: usize,
    /// How many turns were used.
    pub entered: u64,
    /// How many turns were lost.
    pub lost: u64,
}

/// The line before a crowded place.
///
/// Invariants: no turn is ahead of the counter of turns, nor that ahead of the serials that
/// were given; and no more visitors are expected, or inside, than there are turns.
#[derive(Debug)]
pub struct WaitingRoom {
    options: WaitingRoomOptions,
    /// The last serial that was given.
    issued: u64,
    /// The last serial whose turn has come.
    called: u64,
    /// Turns that were neither used nor lost.
    turns: BTreeMap<u64, Turn>,
    /// Turns as they came, to see which visitors are late,
    fresh: VecDeque<(u64, Instant)>,
    /// and which have lost their turn.
    held: VecDeque<(u64, Instant)>,
    coming: usize,
    /// Visitors that ask for a place.
    inside: usize,
    /// When the last turn came, or the first visitor of the line.
    moved: Instant,
    /// The share of visitors that are back soon after their turn.
    showing: f64,
    pace: DeparturePace,
    entered: u64,
    lost: u64,
}

/// What became of a turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Turn {
    /// Its visitor is not back yet.
    Called { since: Instant, is_late: bool },
    /// Its visitor asks for a place.
    Used,
}

/// How many leave their places in which time, while all places are taken.
#[derive(Debug)]
struct DeparturePace {
    departed: f64,
    seconds: f64,
    last: Option<(u64, Instant)>,
}

/// The shortest and the longest time after which a visitor should be back.
const BACK_MIN: Duration = Duration::from_secs(2);
const BACK_MAX: Duration = Duration::from_secs(20);
/// A visitor that is not back so long after its turn may not come at all.
const LATE: Duration = Duration::from_millis(2_500);
/// So much one visitor counts in the share that is back soon.
const SHARE: f64 = 1.0 / 16.0;
/// The least share that is believed.
const SHOWING_MIN: f64 = 1.0 / 16.0;
/// Turns that are neither used nor lost.
const TURNS_MAX: usize = 10_000;
/// A departure this long ago counts half.
const HALF_LIFE: f64 = 10.0;
/// What follows for the pace from how long one has a place counts as much as what is seen in
/// this many of these times, and in this many seconds at least.
const STAYS: f64 = 3.0;
const SECONDS_MIN: f64 = 3.0;
/// What is seen this many seconds apart says nothing of the time between.
const GAP_MAX: f64 = 10.0;
/// No visitor is told of a longer wait.
const EXPECTED_MAX: f64 = 3600.0;

impl WaitingRoom {
    /// No visitor was there yet.
    pub fn new(options: WaitingRoomOptions) -> Self {
        Self {
            options,
            issued: 0,
            called: 0,
            turns: BTreeMap::new(),
            fresh: VecDeque::new(),
            held: VecDeque::new(),
            coming: 0,
            inside: 0,
            moved: Instant::START,
            showing: 1.0,
            pace: DeparturePace {
                departed: 0.0,
                seconds: 0.0,
                last: None,
            },
            entered: 0,
            lost: 0,
        }
    }

    /// Be as these say from now on. No visitor loses its place by that.
    pub fn reconfigure(&mut self, options: WaitingRoomOptions) {
        self.options = options;
    }

    /// A visitor comes, with the serial that it was given before, if it was.
    pub fn come(&mut self, serial: Option<u64>, load: &RoomLoad, now: Instant) -> RoomEntry {
        self.pace.learn(load, now);
        self.advance(load, now);
        let entry = match serial.and_then(|serial| self.come_back(serial, load)) {
            Some(entry) => entry,
            None => self.come_new(load, now),
        };
        self.check();
        entry
    }

    /// A visitor whose turn it was has its place. Its serial is of no use from now on.
    pub fn enter(&mut self, serial: u64) {
        if self.end_use(serial) {
            self.entered += 1;
        }
        self.check();
    }

    /// There was no place for a visitor after all: it keeps its turn.
    pub fn keep(&mut self, serial: u64, load: &RoomLoad, now: Instant) -> RoomPlace {
        if self.end_use(serial) {
            self.call(serial, now);
        }
        self.check();
        self.place(serial, load)
    }

    /// A visitor leaves that never knew its serial, or cannot be served at all.
    pub fn forget(&mut self, serial: u64) {
        self.end_use(serial);
        self.check();
    }

    /// Its numbers.
    pub fn stats(&self) -> WaitingRoomStats {
        WaitingRoomStats {
            len: self.issued - self.called,
            turns: self.turns.len(),
            entered: self.entered,
            lost: self.lost,
        }
    }

    /// None if its turn was used or lost, or was never to come.
    fn come_back(&mut self, serial: u64, load: &RoomLoad) -> Option<RoomEntry> {
        if serial > self.issued {
            return None;
        }
        if serial > self.called {
            return Some(RoomEntry::Wait(self.place(serial, load)));
        }
        let turn = self.turns.get_mut(&serial)?;
        let was = std::mem::replace(turn, Turn::Used);
        Some(match was {
            Turn::Called { is_late, .. } => {
                self.coming -= usize::from(!is_late);
                self.inside += 1;
                self.showing += (1.0 - self.showing) * SHARE;
                RoomEntry::Turn {
                    serial,
                    is_new: false,
                }
            }
            // The same visitor once more.
            Turn::Used => RoomEntry::Wait(self.place(serial, load)),
        })
    }

    fn come_new(&mut self, load: &RoomLoad, now: Instant) -> RoomEntry {
        let is_first = self.issued == self.called;
        if is_first {
            self.moved = now;
        }
        self.issued += 1;
        let serial = self.issued;
        if is_first && self.expected(1, load) <= self.options.after {
            self.called = serial;
        } else {
            self.call_all(load, now);
        }
        if serial > self.called {
            return RoomEntry::Wait(self.place(serial, load));
        }
        if let Some(Turn::Called { .. }) = self.turns.insert(serial, Turn::Used) {
            self.coming -= 1;
        }
        self.inside += 1;
        RoomEntry::Turn {
            serial,
            is_new: true,
        }
    }

    /// The visitor with a turn does not ask for a place any more. False if it did not.
    fn end_use(&mut self, serial: u64) -> bool {
        let is_used = self.turns.get(&serial) == Some(&Turn::Used);
        if is_used {
            self.turns.remove(&serial);
            self.inside -= 1;
        }
        is_used
    }

    /// See which visitors are late, which turns are lost, and whose turn it is.
    fn advance(&mut self, load: &RoomLoad, now: Instant) {
        while let Some((serial, called)) = pop_older(&mut self.fresh, LATE, now) {
            if let Some(Turn::Called { since, is_late }) = self.turns.get_mut(&serial)
                && (*since, *is_late) == (called, false)
            {
                *is_late = true;
                self.coming -= 1;
                self.showing = (self.showing * (1.0 - SHARE)).max(SHOWING_MIN);
            }
        }
        while let Some((serial, called)) = pop_older(&mut self.held, self.options.hold, now) {
            if let Some(Turn::Called { since, is_late }) = self.turns.get(&serial)
                && *since == called
            {
                if !is_late {
                    self.coming -= 1;
                    self.showing = (self.showing * (1.0 - SHARE)).max(SHOWING_MIN);
                }
                self.turns.remove(&serial);
                self.lost += 1;
            }
        }
        self.call_all(load, now);
    }

    /// As many turns come as there are departures until all of their visitors are back.
    ///
    /// Others may wait inside that never were in the line, without an end. If no turn came for
    /// as long as one waits inside, turns come as if they were not there.
    fn call_all(&mut self, load: &RoomLoad, now: Instant) {
        let is_stalled = self.moved + self.expected(1, load) <= now;
        let waiting = match is_stalled {
            true => load.waiting.min(self.inside),
            false => load.waiting,
        };
        let load = RoomLoad { waiting, ..*load };
        while self.called < self.issued
            && self.turns.len() < TURNS_MAX
            && self.expected(1, &load) <= BACK_MIN
        {
            self.called += 1;
            self.moved = now;
            self.call(self.called, now);
        }
    }

    fn call(&mut self, serial: u64, now: Instant) {
        let turn = Turn::Called {
            since: now,
            is_late: false,
        };
        self.turns.insert(serial, turn);
        self.coming += 1;
        self.fresh.push_back((serial, now));
        self.held.push_back((serial, now));
    }

    fn place(&self, serial: u64, load: &RoomLoad) -> RoomPlace {
        let place = serial.saturating_sub(self.called).max(1);
        let expected = self.expected(place, load);
        RoomPlace {
            serial,
            place,
            expected,
            // Its turn comes before its place is free, and perhaps sooner than expected.
            back_in: (expected.saturating_sub(BACK_MIN) / 2).clamp(BACK_MIN, BACK_MAX),
        }
    }

    /// How long one would wait that is so far from its turn.
    fn expected(&self, place: u64, load: &RoomLoad) -> Duration {
        // Of those that come before it, not all will be back.
        let before = (self.coming as u64 + place - 1) as f64 * self.showing;
        let ahead = load.waiting as f64 + before + 1.0;
        // A start is no overload: those that are served at once then wait for it.
        let free = match load.start {
            None => load.free,
            Some(_) => load.places,
        };
        let ahead = ahead - free as f64;
        if ahead <= 0.0 {
            return Duration::ZERO;
        }
        let start = load.start.unwrap_or_default().as_secs_f64();
        let seconds = start + ahead / self.pace.per_second(load);
        Duration::from_secs_f64(seconds.min(EXPECTED_MAX))
    }

    fn check(&self) {
        debug_assert!(self.called <= self.issued);
        let last = self.turns.last_key_value();
        debug_assert!(last.is_none_or(|(serial, _)| *serial <= self.called));
        debug_assert!(self.coming + self.inside <= self.turns.len());
    }
}

impl DeparturePace {
    fn learn(&mut self, load: &RoomLoad, now: Instant) {
        let is_full = load.start.is_none() && load.free == 0;
        if let (Some((departed, at)), true) = (self.last, is_full) {
            let seconds = now.since(at).as_secs_f64();
            if seconds <= GAP_MAX {
                let kept = (-seconds / HALF_LIFE).exp2();
                let more = load.departed.saturating_sub(departed);
                self.departed = self.departed * kept + more as f64;
                self.seconds = self.seconds * kept + seconds;
            }
        }
        self.last = is_full.then_some((load.departed, now));
    }

    /// Before anything is seen it follows from how long others stayed.
    fn per_second(&self, load: &RoomLoad) -> f64 {
        let stay = match load.stay.is_zero() {
            true => 1.0,
            false => load.stay.as_secs_f64(),
        };
        let rate = load.places.max(1) as f64 / stay;
        let seconds = (stay * STAYS).max(SECONDS_MIN);
        let rate = (self.departed + rate * seconds) / (self.seconds + seconds);
        rate.max(1.0 / EXPECTED_MAX)
    }
}

/// The first, if it is older than that.
fn pop_older(
    turns: &mut VecDeque<(u64, Instant)>,
    age: Duration,
    now: Instant,
) -> Option<(u64, Instant)> {
    let (_, since) = turns.front()?;
    (*since + age <= now).then(|| turns.pop_front()).flatten()
}
