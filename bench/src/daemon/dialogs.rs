//! What each contestant's clients say in their turns.

use super::Crowd;
use crate::talk::{Dialog, Form, Server, Step, bulk, frame, opening};

/// Members of every pool.
const MEMBERS: usize = 10;
/// Units of every key, so that no client is refused.
const UNITS: usize = 1000;

/// What our server has to know.
pub(super) fn config() -> String {
    let members: Vec<_> = (0..MEMBERS).map(|at| format!("{:?}", member(at))).collect();
    format!(
        "[lock.\"*\"]\nper = {UNITS}\n[pool.pool]\nmember = {{ list = [{}] }}\n[broker.jobs]\n",
        members.join(", ")
    )
}

fn member(at: usize) -> String {
    format!("member-{at}")
}

/// Units of keys, each given back by its ticket.
pub(super) fn lock(_server: &Server, crowd: Crowd) -> Vec<Dialog> {
    crowd.dialogs(|at| Dialog {
        form: resp("go"),
        greeting: None,
        first: crowd.batch(at, |key, _| frame(&["LOCK", key])),
        second: release(),
    })
}

/// What a counter costs that knows neither limit nor holder.
pub(super) fn incr(_server: &Server, crowd: Crowd) -> Vec<Dialog> {
    crowd.dialogs(|at| Dialog {
        form: resp(""),
        greeting: None,
        first: crowd.batch(at, |key, _| frame(&["INCR", key])),
        second: crowd.batch(at, |key, _| frame(&["DECR", key])),
    })
}

/// A semaphore whose holders are tokens that expire.
pub(super) fn lua(server: &Server, crowd: Crowd) -> Vec<Dialog> {
    let (acquire, release) = (load(server, ACQUIRE), load(server, RELEASE));
    let units = UNITS.to_string();
    crowd.dialogs(|at| Dialog {
        form: resp(""),
        greeting: None,
        first: crowd.batch(at, |key, token| {
            frame(&["EVALSHA", &acquire, "1", key, NOW, TTL, &units, token])
        }),
        second: crowd.batch(at, |key, token| {
            frame(&["EVALSHA", &release, "1", key, token])
        }),
    })
}

/// Clients send their own clock; that it stands still here changes no cost.
const NOW: &str = "1750000000000";
const TTL: &str = "30000";

const ACQUIRE: &str = "\
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', ARGV[1] - ARGV[2])
if redis.call('ZCARD', KEYS[1]) < tonumber(ARGV[3]) then
  redis.call('ZADD', KEYS[1], ARGV[1], ARGV[4])
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
  return 1
end
return redis.error_reply('FULL')
";

const RELEASE: &str = "return redis.call('ZREM', KEYS[1], ARGV[1])";

/// Gives Redis a script; says its name.
fn load(server: &Server, script: &str) -> String {
    let answer = server.ask(&frame(&["SCRIPT", "LOAD", script]));
    let answer = String::from_utf8(answer).expect("a name of hexadecimal digits");
    let name = answer.lines().nth(1);
    name.expect("a name is a bulk string").to_owned()
}

/// Members of a pool, given back by their tickets.
pub(super) fn take(_server: &Server, crowd: Crowd) -> Vec<Dialog> {
    crowd.dialogs(|_| Dialog {
        form: resp("go"),
        greeting: None,
        first: Step::Same(frame(&["TAKE", "pool", "WAIT", "10000"]), 1),
        second: release(),
    })
}

fn release() -> Step {
    Step::Back {
        head: opening(2, &["RELEASE"]),
        tails: vec![Vec::new()],
    }
}

/// A list of what is free.
pub(super) fn blpop(server: &Server, crowd: Crowd) -> Vec<Dialog> {
    for at in 0..MEMBERS {
        server.ask(&frame(&["RPUSH", "pool", &member(at)]));
    }
    crowd.dialogs(|_| Dialog {
        form: resp("pool"),
        greeting: None,
        first: Step::Same(frame(&["BLPOP", "pool", "0"]), 1),
        second: Step::Back {
            head: opening(3, &["RPUSH", "pool"]),
            tails: vec![Vec::new()],
        },
    })
}

/// Half of the connections ask, half offer, and both say when they are done.
pub(super) fn meet(_server: &Server, crowd: Crowd) -> Vec<Dialog> {
    crowd.dialogs(|at| {
        let (side, value) = if crowd.asks(at) {
            ("ASK", format!("asker-{at:02}"))
        } else {
            ("OFFER", format!("offerer-{at:02}"))
        };
        Dialog {
            form: resp("go"),
            greeting: None,
            first: Step::Same(frame(&[side, "jobs", "VALUE", &value, "WAIT", "10000"]), 1),
            second: Step::Back {
                head: opening(2, &["DONE"]),
                tails: vec![Vec::new()],
            },
        }
    })
}

/// A list of asks, by the names of lists that wait for offers.
pub(super) fn lists(_server: &Server, crowd: Crowd) -> Vec<Dialog> {
    crowd.dialogs(|at| {
        let own = format!("asker-{at:02}");
        if crowd.asks(at) {
            Dialog {
                form: resp(&own),
                greeting: None,
                first: Step::Same(frame(&["RPUSH", "jobs", &own]), 1),
                second: Step::Same(frame(&["BLPOP", &own, "0"]), 1),
            }
        } else {
            Dialog {
                form: resp("jobs"),
                greeting: None,
                first: Step::Same(frame(&["BLPOP", "jobs", "0"]), 1),
                second: Step::Back {
                    head: opening(3, &["RPUSH"]),
                    tails: vec![bulk(&format!("offerer-{at:02}"))],
                },
            }
        }
    })
}

/// Arrays that begin with this word have something to send back, next to it.
fn resp(yes: &str) -> Form {
    Form::Resp {
        yes: bulk(yes),
        back: 1,
    }
}

impl Crowd {
    fn dialogs(self, dialog: impl Fn(usize) -> Dialog) -> Vec<Dialog> {
        (0..self.connections).map(dialog).collect()
    }

    /// Whether this connection asks, and does not offer.
    fn asks(self, at: usize) -> bool {
        at < self.connections / 2
    }

    /// The commands that are sent at once, each with its key and a token of
    /// its own.
    fn batch(self, at: usize, command: impl Fn(&str, &str) -> Vec<u8>) -> Step {
        let commands = (0..self.depth).flat_map(|slot| {
            let token = format!("{at:02}-{slot:02}");
            if self.is_hot {
                command("tenant:hot", &token)
            } else {
                command(&format!("tenant:{token}"), &token)
            }
        });
        Step::Same(commands.collect(), self.depth)
    }
}
