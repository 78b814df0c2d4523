//! Requests as bytes, and what becomes of them: in front of an application that writes down
//! what it sees, and beside nginx in front of the same application.
//!
//! `requests.txt` says what its lines mean.

#[path = "raw_requests/client.rs"]
mod client;
#[path = "raw_requests/nginx.rs"]
mod nginx;
#[path = "raw_requests/recorder.rs"]
mod recorder;
#[path = "raw_requests/table.rs"]
mod table;

use std::fmt::Write as _;
use std::fs;

use self::client::{Client, Ending, Outcome, Place};
use self::recorder::Recorder;
use self::table::{Case, cases};
use crate::harness::{Harness, folder};

/// There are at least as many requests.
const CASES_MIN: usize = 110;

/// A front with an application that writes down what it sees.
struct Side {
    name: &'static str,
    place: Place,
    recorder: Recorder,
}

#[test]
fn requests_are_understood_in_one_way_alone() {
    recorder::serve_if_asked();
    let cases = cases();
    assert!(cases.len() >= CASES_MIN, "{} requests", cases.len());
    let folder = folder();
    let recorder = Recorder::new(folder.join("seen"));
    let keys = recorder.keys("raw_requests::requests_are_understood_in_one_way_alone");
    let harness = Harness::with_front(
        &folder,
        "",
        &format!(
            "[app.raw]\n{keys}min = 1\nbody_max = \"64KiB\"\ntrial = \"none\"\n\
             [app.part]\n{keys}hosts = [\"part\"]\npaths = [\"/in\"]\ntrial = \"none\"\n"
        ),
    );
    let ours = Side {
        name: "rideau",
        place: Place::Tcp(harness.front),
        recorder,
    };
    let faults: Vec<_> = cases.iter().filter_map(|case| ours.check(case)).collect();
    assert!(
        faults.is_empty(),
        "{} requests\n{}",
        faults.len(),
        faults.concat()
    );
    harness.end();
}

#[test]
fn nginx_understands_them_as_it_is_noted() {
    let folder = folder();
    let recorder = Recorder::new(folder.join("seen"));
    let app = folder.join("app.sock");
    recorder.serve_here(&app);
    let Some(nginx) = nginx::start(&folder, &app) else {
        return;
    };
    let theirs = Side {
        name: "nginx",
        place: Place::Unix(folder.join("front.sock")),
        recorder,
    };
    let cases = cases();
    let faults = cases.iter().filter_map(|case| theirs.check(case));
    let faults: Vec<_> = faults.collect();
    assert!(
        faults.is_empty(),
        "{} requests\n{}",
        faults.len(),
        faults.concat()
    );
    drop(nginx);
    fs::remove_dir_all(&folder).unwrap();
}

impl Side {
    fn is_nginx(&self) -> bool {
        self.name == "nginx"
    }

    /// What is wrong with how a request is understood, if something is.
    fn check(&self, case: &Case) -> Option<String> {
        let is_nginx = self.is_nginx();
        let wanted = if is_nginx { &case.nginx } else { &case.ours };
        let outcome = self.outcome(case, Some(wanted));
        let seen = self.recorder.seen();
        let is_seen = is_nginx || case.sees(&seen);
        if outcome == *wanted && is_seen {
            return None;
        }
        // It may have been something else than was waited for.
        let (again, seen_again) = (self.outcome(case, None), self.recorder.seen());
        let mut text = format!("\n{}: {}\n  wanted {wanted}", self.name, case.name);
        let _ = write!(text, "\n  was    {outcome}, and then {again}");
        for line in [seen, seen_again].concat() {
            let _ = write!(text, "\n  seen   {}", line);
        }
        text.push('\n');
        Some(text)
    }

    /// Ask, and see what comes; without an outcome that is expected until no more does.
    fn outcome(&self, case: &Case, wanted: Option<&Outcome>) -> Outcome {
        let mut client = Client::new(&self.place, case.is_for_head());
        for (at, part) in case.parts.iter().enumerate() {
            if at > 0 {
                client.await_answer();
            }
            client.send(part);
        }
        let outcome = client.outcome(wanted);
        // All that came before it was written down when this is answered.
        let nothing = Outcome {
            statuses: Vec::new(),
            ending: Ending::Kept,
        };
        let after = Client::new(&self.place, false).outcome(Some(&nothing));
        assert_eq!(after, nothing, "{}", case.name);
        outcome
    }
}
