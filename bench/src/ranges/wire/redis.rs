//! Redis with the scripts of an address pool, as RADIUS servers run them.
//!
//! The addresses are members of a sorted set by the end of their lease, each
//! with a hash of what is known of it; a string for each device names its
//! address. A device gets the address that it has, or else the one whose lease
//! ended first. Scripts make these steps one.
//!
//! It does less than the others in that data of old leases is not removed, and
//! that clients tell the time. What it costs beyond is what it is for: every
//! free address is in memory. The first name says that nothing is written, the
//! others after how long it is: on a crash, `redis-everysec` loses a second of
//! answers.

use std::net::Ipv4Addr;
use std::thread;
use std::time::Duration;

use super::{ADDRESSES, ALWAYS, Contestant, DATA, EVERYSEC, FIRST, HELD, TTL_MS, other_device};
use crate::talk::{Dialog, Disk, Folder, Form, Server, Step, bulk, frame, opening};

/// That the clock of the clients stands still changes no cost.
const NOW: &str = "1750000000000";
const UNTIL: &str = "1750003600000";
const POOL: &str = "{pool}";

/// For a device: the time now, the end of the lease, its span, and data.
const ALLOCATE: &str = "\
local device_key = KEYS[1] .. ':device:' .. ARGV[1]
local address = redis.call('GET', device_key)
if address then
  local device = redis.call('HGET', KEYS[1] .. ':ip:' .. address, 'device')
  if device ~= ARGV[1] then
    address = false
  end
end
if not address then
  local first = redis.call('ZRANGE', KEYS[1], 0, 0, 'WITHSCORES')
  if not first[1] or tonumber(first[2]) >= tonumber(ARGV[2]) then
    return false
  end
  address = first[1]
end
local address_key = KEYS[1] .. ':ip:' .. address
redis.call('ZADD', KEYS[1], 'XX', ARGV[3], address)
redis.call('HSET', address_key, 'device', ARGV[1], 'data', ARGV[5])
redis.call('SET', device_key, address, 'PX', ARGV[4])
local counter = redis.call('HINCRBY', address_key, 'counter', 1)
return { 'go', address, ARGV[4], counter }
";

/// For an address: its device, and the time now.
const RELEASE: &str = "\
local address_key = KEYS[1] .. ':ip:' .. ARGV[1]
if redis.call('HGET', address_key, 'device') ~= ARGV[2] then
  return redis.error_reply('STALE')
end
redis.call('ZADD', KEYS[1], 'XX', ARGV[3] - 1, ARGV[1])
redis.call('HINCRBY', address_key, 'counter', 1)
redis.call('DEL', KEYS[1] .. ':device:' .. ARGV[2])
return 1
";

/// Addresses in turn with their devices, which hold them; without, they are
/// free and were never held.
const FILL: &str = "\
for at = 4, #ARGV, 2 do
  local address, device = ARGV[at], ARGV[at + 1]
  if device == '' then
    redis.call('ZADD', KEYS[1], 0, address)
  else
    local address_key = KEYS[1] .. ':ip:' .. address
    redis.call('ZADD', KEYS[1], ARGV[1], address)
    redis.call('HSET', address_key, 'device', device, 'data', ARGV[3], 'counter', 1)
    redis.call('SET', KEYS[1] .. ':device:' .. device, address, 'PX', ARGV[2])
  end
end
return 1
";

const CHUNK: u32 = 2048;

pub(super) fn start(name: &'static str, disk: &Disk) -> Contestant {
    let server = Server::redis(Folder::within(&disk.folder));
    fill(&server);
    match name {
        EVERYSEC => keep(&server, "everysec"),
        ALWAYS => keep(&server, "always"),
        _ => (),
    }
    let (allocate, release) = (load(&server, ALLOCATE), load(&server, RELEASE));
    Contestant {
        name,
        server,
        dialogs: Box::new(move |crowd| {
            crowd.dialogs(|at| Dialog {
                form: Form::Resp {
                    yes: bulk("go"),
                    back: 1,
                },
                greeting: None,
                first: Step::Same(
                    crowd.batch(at, |device| {
                        frame(&[
                            "EVALSHA", &allocate, "1", POOL, device, NOW, UNTIL, TTL_MS, DATA,
                        ])
                    }),
                    crowd.depth,
                ),
                second: Step::Back {
                    head: opening(7, &["EVALSHA", &release, "1", POOL]),
                    tails: crowd.tails(at, |device| [bulk(device), bulk(NOW)].concat()),
                },
            })
        }),
    }
}

/// Gives Redis a script; says its name.
fn load(server: &Server, script: &str) -> String {
    let answer = server.ask(&frame(&["SCRIPT", "LOAD", script]));
    let answer = String::from_utf8(answer).expect("a name of hexadecimal digits");
    let name = answer.lines().nth(1);
    name.expect("a name is a bulk string").to_owned()
}

fn fill(server: &Server) {
    let script = load(server, FILL);
    for chunk in 0..ADDRESSES / CHUNK {
        let mut words = ["EVALSHA", &script, "1", POOL, UNTIL, TTL_MS, DATA]
            .map(String::from)
            .to_vec();
        for number in chunk * CHUNK..(chunk + 1) * CHUNK {
            words.push(Ipv4Addr::from(FIRST + number).to_string());
            words.push(if number < HELD {
                other_device(number)
            } else {
                String::new()
            });
        }
        let words: Vec<_> = words.iter().map(String::as_str).collect();
        server.ask(&frame(&words));
    }
}

/// From now on Redis writes everything to a file.
fn keep(server: &Server, fsync: &str) {
    server.ask(&frame(&["CONFIG", "SET", "appendfsync", fsync]));
    server.ask(&frame(&["CONFIG", "SET", "appendonly", "yes"]));
    loop {
        let answer = server.ask(&frame(&["INFO", "persistence"]));
        let answer = String::from_utf8_lossy(&answer);
        let says = |word| answer.lines().any(|line| line == word);
        if says("aof_rewrite_in_progress:0") && says("aof_rewrite_scheduled:0") {
            assert!(
                says("aof_enabled:1") && says("aof_last_bgrewrite_status:ok"),
                "{answer}"
            );
            return;
        }
        thread::sleep(Duration::from_millis(20));
    }
}
