//! Clients that ask all the time while something happens.

use std::process::Stdio;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use rideau_testing::{Running, Start, command};

use crate::harness::Harness;

/// Connections of `wrk`.
const CONNECTIONS: usize = 8;
/// Between two requests of a client.
const PAUSE: Duration = Duration::from_millis(5);
/// They ask at a time.
const CLIENTS: usize = 4;

/// What clients were answered.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) requests: u32,
    /// The first words of the answers that were not 200, or of what went wrong.
    pub(super) failed: Vec<String>,
}

/// Ask for a path all the time while something happens.
pub(super) fn asked(harness: &Harness, path: &str, happens: impl FnOnce()) -> Asked {
    let (is_over, requests) = (AtomicBool::new(false), AtomicU32::new(0));
    let failed = Mutex::new(Vec::new());
    thread::scope(|scope| {
        let _over = Sets(&is_over);
        for _ in 0..CLIENTS {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    requests.fetch_add(1, Ordering::Relaxed);
                    match harness.ask("GET", "test", path, b"") {
                        Ok(answer) if answer.status == 200 => (),
                        other => failed.lock().unwrap().push(format!("{other:?}")),
                    }
                    thread::sleep(PAUSE);
                }
            });
        }
        happens();
    });
    Asked {
        requests: requests.into_inner(),
        failed: failed.into_inner().unwrap(),
    }
}

/// Sets a flag that threads wait for, also by a panic: they would wait for ever.
pub(super) struct Sets<'a>(pub(super) &'a AtomicBool);

impl Drop for Sets<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// `wrk` asks for this many seconds, on connections that it keeps.
pub(super) struct Wrk(Running);

impl Wrk {
    pub(super) fn start(harness: &Harness, seconds: u64) -> Self {
        let running = command("wrk")
            .args(["-t1", &format!("-c{CONNECTIONS}"), &format!("-d{seconds}")])
            // Slow is no failure while other tests want the processor, too.
            .args(["--timeout", "20s"])
            .arg(format!("http://{}/", harness.front))
            .stdout(Stdio::piped())
            .start();
        Self(running)
    }

    /// What it was answered, where this many answers may have been cut in the middle.
    pub(super) fn asked(self, cuts_max: u32) -> Asked {
        let done = self.0.wait_with_output().unwrap();
        assert!(done.status.success(), "{done:?}");
        let text = String::from_utf8_lossy(&done.stdout).into_owned();
        let requests = text.lines().find_map(|line| {
            let (count, _) = line.trim().split_once(" requests in ")?;
            count.parse().ok()
        });
        let is_failure = |line: &&str| {
            let errors = line.trim().strip_prefix("Socket errors: ");
            let is_cut = errors.is_some_and(|errors| is_cut(errors, cuts_max));
            line.contains("Non-2xx") || errors.is_some() && !is_cut
        };
        Asked {
            requests: requests.unwrap_or_else(|| panic!("no count in {text}")),
            failed: text.lines().filter(is_failure).map(str::to_owned).collect(),
        }
    }
}

/// Only that, and not more often.
fn is_cut(errors: &str, cuts_max: u32) -> bool {
    let read = errors.strip_prefix("connect 0, read ");
    let read = read.and_then(|rest| rest.strip_suffix(", write 0, timeout 0"));
    read.is_some_and(|read| read.parse::<u32>().is_ok_and(|read| read <= cuts_max))
}
