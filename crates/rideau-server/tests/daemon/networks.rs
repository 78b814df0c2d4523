//! Networks of a test's own: one for each machine, and a router between them that can cut.
//!
//! A test runs again in a process in a network namespace of its own, which is the router. The
//! namespaces have no names: the kernel removes each with its last process, so nothing is left
//! however a test ends.

use std::env;
use std::fs;
use std::net::Ipv4Addr;
use std::process::Command;

use rideau_testing::{Running, Start, command, is_root, skipped};

use crate::server::{run_again, until};

/// The variable that tells a test that it is in a namespace of its own.
const INSIDE: &str = "RIDEAU_OWN_NETWORK";
const FORWARDS: &str = "/proc/sys/net/ipv4/ip_forward";
/// What a namespace has to allow.
const TRIAL: &str = "ip link add one type veth peer name two && \
    ip rule add from 10.77.1.2 to 10.77.2.2 blackhole && \
    test -w /proc/sys/net/ipv4/ip_forward";

/// The network of one machine.
pub(crate) struct Network {
    /// The namespace lasts as long as this.
    keeper: Running,
    at: usize,
}

/// As long as this is there, what one machine sends to another is lost on its way.
#[must_use = "the cut ends when this is dropped"]
pub(crate) struct Cut {
    from: Ipv4Addr,
    to: Ipv4Addr,
}

/// Run a test of this name in a namespace of its own, if one can be made here.
pub(crate) fn in_own_network(test: &str, run: impl FnOnce()) {
    if env::var_os(INSIDE).is_some() {
        ip("link set lo up");
        fs::write(FORWARDS, "1").unwrap();
        return run();
    }
    if !is_root() {
        return skipped("only root makes networks");
    }
    let mut trial = command("unshare");
    let tried = trial.args(["-n", "sh", "-c", TRIAL]).output().unwrap();
    if !tried.status.success() {
        let why = String::from_utf8_lossy(&tried.stderr).replace('\n', " ");
        return skipped(&format!("no network can be made here: {why}"));
    }
    let mut again = command("unshare");
    again.arg("-n");
    run_again(again, test, INSIDE);
}

impl Network {
    /// The network of the machine with this number, below 250.
    pub(crate) fn new(at: usize) -> Self {
        let mut keeper = command("unshare");
        let keeper = keeper.args(["-n", "sleep", "1d"]).start();
        let network = Self { keeper, at };
        let namespace = |process: &str| fs::read_link(format!("/proc/{process}/ns/net"));
        let own = namespace("self").unwrap();
        let pid = network.keeper.id();
        until("a machine has a network of its own", || {
            namespace(&pid.to_string()).is_ok_and(|its| its != own)
        });
        ip(&format!(
            "link add r{at} type veth peer name n{at} netns {pid}"
        ));
        ip(&format!("addr add {}/24 dev r{at}", network.address(1)));
        ip(&format!("link set r{at} up"));
        network.ip("link set lo up");
        network.ip(&format!("addr add {}/24 dev n{at}", network.host()));
        network.ip(&format!("link set n{at} up"));
        network.ip(&format!("route add default via {}", network.address(1)));
        network
    }

    /// The address of the machine.
    pub(crate) fn host(&self) -> Ipv4Addr {
        self.address(2)
    }

    /// A command on the machine.
    pub(crate) fn command(&self, program: &str) -> Command {
        let mut within = command("nsenter");
        within.args(["-t", &self.keeper.id().to_string(), "-n", "--", program]);
        within
    }

    /// Lose what this machine sends to another.
    pub(crate) fn cut_to(&self, other: &Self) -> Cut {
        let cut = Cut {
            from: self.host(),
            to: other.host(),
        };
        ip(&cut.rule("add"));
        cut
    }

    /// Lose what these two machines send to each other.
    pub(crate) fn cut_both(&self, other: &Self) -> [Cut; 2] {
        [self.cut_to(other), other.cut_to(self)]
    }

    fn address(&self, of: u8) -> Ipv4Addr {
        Ipv4Addr::new(10, 77, u8::try_from(self.at).unwrap(), of)
    }

    fn ip(&self, words: &str) {
        succeed(self.command("ip"), words);
    }
}

impl Cut {
    fn rule(&self, act: &str) -> String {
        format!("rule {act} from {} to {} blackhole", self.from, self.to)
    }
}

impl Drop for Cut {
    fn drop(&mut self) {
        ip(&self.rule("del"));
    }
}

fn ip(words: &str) {
    succeed(command("ip"), words);
}

fn succeed(mut command: Command, words: &str) {
    let done = command.args(words.split(' ')).output().unwrap();
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "ip {words}: {said}");
}
