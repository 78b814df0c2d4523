//! Redis Cluster of three masters with a script that takes a free value: what a program does
//! that keeps a pool of values there.
//!
//! Each master has a third of the values, below a tag whose slot it has. It writes each
//! change to its disk before it answers, and has no replica. What it does not have: a value
//! whose holder dies is found by another script, which nothing calls here.

use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use super::DATA;
use super::locks::load;
use crate::measure::{Plan, Sample, Stall};
use crate::talk::{Dialog, Folder, Form, Server, Step, bulk, frame, opening, talk_to};

/// All slots.
const SLOTS: usize = 16_384;
const MASTERS: usize = 3;
/// Values of each master.
const VALUES: usize = 50_000;
const UNTIL: &str = "1750003600000";
/// Tags whose slots are in the first, second and third part of all.
const TAGS: [&str; MASTERS] = ["{b}", "{c}", "{a}"];

const RESERVE: &str = "\
local value = redis.call('SPOP', KEYS[1])
if not value then
  return { 'none' }
end
local fence = redis.call('INCR', KEYS[2])
redis.call('ZADD', KEYS[3], ARGV[1], value)
redis.call('HSET', KEYS[4], value, ARGV[2])
return { 'go', value, fence }
";
const RELEASE: &str = "\
if redis.call('ZREM', KEYS[3], ARGV[1]) == 0 then
  return redis.error_reply('NOTHELD')
end
redis.call('HDEL', KEYS[4], ARGV[1])
redis.call('SADD', KEYS[1], ARGV[1])
return 1
";

/// Three masters.
pub(super) struct RedisCluster {
    masters: Vec<Server>,
    scripts: [String; 2],
}

impl RedisCluster {
    pub(super) fn start(disk: &std::path::Path) -> Self {
        let masters = (0..MASTERS).map(|_| Server::redis_in_cluster(Folder::within(disk)));
        let masters: Vec<Server> = masters.collect();
        for (at, master) in masters.iter().enumerate() {
            let first = SLOTS * at / MASTERS;
            let last = SLOTS * (at + 1) / MASTERS - 1;
            let (first, last) = (first.to_string(), last.to_string());
            master.ask(&frame(&["CLUSTER", "ADDSLOTSRANGE", &first, &last]));
            let port = masters[0].address.port().to_string();
            master.ask(&frame(&["CLUSTER", "MEET", "127.0.0.1", &port]));
        }
        let since = Instant::now();
        let is_ready = |master: &Server| {
            let said = master.ask(&frame(&["CLUSTER", "INFO"]));
            let said = String::from_utf8_lossy(&said).into_owned();
            said.contains("cluster_state:ok") && said.contains("cluster_known_nodes:3")
        };
        while !masters.iter().all(is_ready) {
            assert!(since.elapsed().as_secs() < 60, "Redis makes no cluster");
            thread::sleep(Duration::from_millis(50));
        }
        let mut scripts = [String::new(), String::new()];
        for (master, tag) in masters.iter().zip(TAGS) {
            scripts = [RESERVE, RELEASE].map(|script| load(master, script));
            let free = format!("{tag}free");
            for first in (0..VALUES).step_by(1_000) {
                let values: Vec<_> = (first..first + 1_000).map(|at| at.to_string()).collect();
                let mut words = vec!["SADD", &free];
                words.extend(values.iter().map(String::as_str));
                master.ask(&frame(&words));
            }
        }
        Self { masters, scripts }
    }

    pub(super) fn run(
        &self,
        connections: usize,
        depth: usize,
        plan: &Plan,
    ) -> Result<Sample, Stall> {
        let addresses: Vec<SocketAddr> = self.masters.iter().map(|it| it.address).collect();
        let work: Vec<&Server> = self.masters.iter().collect();
        let dialogs = (0..connections).map(|at| self.dialog(TAGS[at % MASTERS], depth));
        talk_to(&addresses, &work, dialogs.collect(), plan)
    }

    fn dialog(&self, tag: &str, depth: usize) -> Dialog {
        let keys = ["free", "fence", "until", "data"].map(|name| format!("{tag}{name}"));
        let [reserve, release] = &self.scripts;
        let mut words = vec!["EVALSHA", reserve, "4"];
        words.extend(keys.iter().map(String::as_str));
        let mut head = vec!["EVALSHA", release, "4"];
        head.extend(keys.iter().map(String::as_str));
        let head = opening(8, &head);
        words.extend([UNTIL, DATA]);
        Dialog {
            form: Form::Resp {
                yes: bulk("go"),
                back: 1,
            },
            greeting: None,
            first: Step::Same(frame(&words).repeat(depth), depth),
            second: Step::Back {
                head,
                tails: vec![Vec::new()],
            },
        }
    }
}
