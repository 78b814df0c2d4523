//! Clients that are killed at any moment, in any way: nothing is held by two,
//! and nothing is lost.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use crate::referee::Referee;
use crate::server::{PATIENCE, Server, until};
use crate::transcript::Cli;
use crate::wire::Wire;

const CONFIG: &str = r#"
[pool.many]
member = { list = ["v1", "v2", "v3", "v4", "v5"] }
queue = { kind = "never" }

[pool.calm]
member = { list = ["w1", "w2"] }
on_crash = "reuse"
queue = { kind = "never" }

[regulator.few]
queue = { kind = "never" }
valve = { kind = "open", max = 3 }

[broker.desk]
asks = { kind = "never" }
offers = { kind = "never" }

[lock."*"]
queue = { kind = "never" }
"#;

const THREADS: u64 = 8;
const KILLS: usize = 1_100;
/// Of these are processes, killed with SIGKILL.
const PROCESSES: usize = 120;

/// What a client asks for.
#[derive(Clone, Copy, Debug)]
enum Want {
    Member(&'static str),
    Lock(&'static str),
    Lease,
}

/// A client of the crowd, and how it will end.
struct Life<'a> {
    server: &'a Server,
    referee: &'a Referee,
    chance: Chance,
}

/// SplitMix64: a run follows from its seed.
pub(crate) struct Chance(pub(crate) u64);

impl Chance {
    pub(crate) fn below(&mut self, most: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % most
    }
}

impl Want {
    fn draw(chance: &mut Chance) -> Self {
        match chance.below(5) {
            0 | 1 => Self::Member("many"),
            2 => Self::Member("calm"),
            3 => Self::Lock(if chance.below(2) == 0 {
                "left"
            } else {
                "right"
            }),
            _ => Self::Lease,
        }
    }

    fn command(self) -> String {
        match self {
            Self::Member(pool) => format!("TAKE {pool} WAIT 30000"),
            Self::Lock(key) => format!("LOCK {key} PER 2 WAIT 30000"),
            Self::Lease => "REG.ASK few WAIT 30000".into(),
        }
    }

    /// What the referee calls it, and how many may hold it.
    fn thing(self, value: &str) -> (String, usize) {
        match self {
            Self::Member(pool) => (format!("{pool}/{value}"), 1),
            Self::Lock(key) => (key.into(), 2),
            Self::Lease => ("few".into(), 3),
        }
    }
}

impl Life<'_> {
    /// One life of a connection; says whether it ended badly.
    fn socket(&mut self) -> bool {
        let mut wire = self.server.connect();
        if self.chance.below(8) == 0 {
            wire.ask("SESSION OPEN");
        }
        let want = Want::draw(&mut self.chance);
        let before = self.fence(want);
        wire.send(&want.command());
        // Some die while they wait, or with the answer on its way.
        if self.chance.below(3) == 0 {
            self.die(wire);
            return true;
        }
        let answer = wire.read();
        assert_eq!(answer.word(), "go", "{answer}");
        let (thing, most) = want.thing(&answer.at(2).text());
        self.referee.hold(&thing, most);
        if let Want::Lock(key) = want {
            self.referee.fenced(key, before, answer.at(4).int());
        }
        for _ in 0..self.chance.below(4) {
            assert_eq!(wire.ask("PING").text(), "PONG");
        }
        self.referee.strike(&thing);
        if self.chance.below(3) == 0 {
            let ticket = answer.ticket();
            assert_eq!(wire.ask(&format!("RELEASE {ticket}")).text(), "OK");
            return false;
        }
        self.die(wire);
        true
    }

    /// One life of a process, which is always killed.
    fn process(&mut self) {
        let mut cli = Cli::start(self.server);
        let want = Want::draw(&mut self.chance);
        let before = self.fence(want);
        cli.send(&want.command());
        if self.chance.below(4) == 0 {
            return cli.kill();
        }
        let printed = cli.printed();
        assert_eq!(printed[0], "1) \"go\"", "{printed:?}");
        let value = printed[2].trim_start_matches("3) ").trim_matches('"');
        let (thing, most) = want.thing(value);
        self.referee.hold(&thing, most);
        if let Want::Lock(key) = want {
            let fence = printed[4].trim_start_matches("5) (integer) ");
            self.referee.fenced(key, before, fence.parse().unwrap());
        }
        self.referee.strike(&thing);
        cli.kill();
    }

    fn fence(&self, want: Want) -> i64 {
        match want {
            Want::Lock(key) => self.referee.fence(key),
            _ => 0,
        }
    }

    fn die(&mut self, mut wire: Wire) {
        match self.chance.below(4) {
            0 => wire.reset(),
            1 => drop(wire),
            2 => {
                let _ = wire.try_write(b"*3\r\n$4\r\nTAKE\r\n$4\r\nma");
                wire.reset();
            }
            _ => wire.finish(),
        }
    }
}

#[test]
fn after_a_thousand_kills_nothing_is_held_twice_and_nothing_is_lost() {
    let server = Server::with(CONFIG);
    let referee = Referee::default();
    let (kills, processes) = (AtomicUsize::new(0), AtomicUsize::new(0));
    thread::scope(|scope| {
        for seed in 0..THREADS {
            let mut life = Life {
                server: &server,
                referee: &referee,
                chance: Chance(seed),
            };
            let (kills, processes) = (&kills, &processes);
            scope.spawn(move || {
                while kills.load(Ordering::Relaxed) < KILLS {
                    let is_process = life.chance.below(8) == 0;
                    if is_process && processes.fetch_add(1, Ordering::Relaxed) < PROCESSES {
                        life.process();
                        kills.fetch_add(1, Ordering::Relaxed);
                    } else if life.socket() {
                        kills.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    let (kills, processes) = (kills.into_inner(), processes.into_inner());
    assert!(kills >= 1_000 && processes >= 100, "{kills} {processes}");
    assert!(referee.is_idle() && referee.grants() > KILLS / 2);
    all_is_idle(&server);
    all_can_be_taken(&server);
}

/// Nothing is held, and no client waits.
fn all_is_idle(server: &Server) {
    server.until_alone();
    let mut observer = server.connect();
    until("all is idle", || {
        let mut is_idle = observer.ask("LOCK.LS").parts().is_empty();
        is_idle &= observer.ask("SESSION LS").parts().is_empty();
        for pool in ["many", "calm"] {
            let stat = observer.ask(&format!("POOL.STAT {pool}"));
            is_idle &= stat.field("held").int() == 0 && stat.field("waiting").int() == 0;
            is_idle &= stat.field("stopping").int() == 0;
        }
        is_idle
    });
}

/// Every member, unit and lease is there, once.
fn all_can_be_taken(server: &Server) {
    let mut wire = server.connect();
    let wait = PATIENCE.as_millis() / 3;
    for (pool, members) in [
        ("many", &["v1", "v2", "v3", "v4", "v5"][..]),
        ("calm", &["w1", "w2"]),
    ] {
        let take = |_: &&str| wire.ask(&format!("TAKE {pool} WAIT {wait}")).at(2).text();
        let mut taken: Vec<String> = members.iter().map(take).collect();
        taken.sort();
        assert_eq!(taken, members);
        assert_eq!(wire.ask(&format!("TAKE {pool} WAIT 0")).word(), "timeout");
    }
    for key in ["left", "right"] {
        assert_eq!(wire.ask(&format!("LOCK {key} PER 2 UNITS 2")).word(), "go");
        assert_eq!(wire.ask(&format!("LOCK {key} PER 2")).word(), "full");
    }
    for _ in 0..3 {
        assert_eq!(wire.ask("REG.ASK few WAIT 0").word(), "go");
    }
    assert_eq!(wire.ask("REG.ASK few WAIT 0").word(), "timeout");
    assert_eq!(wire.ask("LEN desk").to_string(), "[0 0]");
}

#[test]
fn parties_that_are_killed_leave_no_other_waiting_for_them() {
    let server = Server::with(CONFIG);
    let mut chance = Chance(1);
    for _ in 0..100 {
        let (mut ask, mut offer) = (server.connect(), server.connect3());
        ask.send("ASK desk WAIT 30000");
        server.until_waiting(1);
        let ticket = offer.ask("OFFER desk").ticket();
        if chance.below(2) == 0 {
            assert_eq!(ask.read().word(), "go");
        }
        if chance.below(2) == 0 {
            ask.reset();
        } else {
            drop(ask);
        }
        let down = offer.push();
        assert_eq!(
            down.to_string(),
            format!(">[rideau:down {ticket} disconnect]")
        );
    }
    server.until_alone();
    assert_eq!(server.connect().ask("LEN desk").to_string(), "[0 0]");
}
