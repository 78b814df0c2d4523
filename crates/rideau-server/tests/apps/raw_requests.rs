//! Requests as bytes, and what becomes of them: in front of an application that writes down
//! what it sees, and beside nginx in front of the same application.
//!
//! `requests.txt` says what its lines mean.

#[path = "raw_requests/client.rs"]
mod client;
#[path = "raw_requests/recorder.rs"]
mod recorder;
#[path = "raw_requests/table.rs"]
mod table;

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use rideau_testing::skipped;

use self::client::{Client, Ending, Outcome, Place};
use self::recorder::Recorder;
use self::table::{Case, cases};
use crate::harness::{Harness, folder};
use crate::nginx;

/// There are at least as many requests.
const CASES_MIN: usize = 110;

/// The nginx whose answers are noted. Others differ in some.
const VERSION: &str = "1.22.";

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
    let version = nginx::version().unwrap_or_default();
    if !version.starts_with(VERSION) {
        let why = format!("there is no nginx {VERSION}, whose answers are noted: {version:?}");
        return skipped(&why);
    }
    let nginx = nginx::start(&folder, &proxy(&folder, &app));
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

/// A proxy as its documents show it, with the limits that the front has.
fn proxy(folder: &Path, app: &Path) -> String {
    let (folder, app) = (folder.display(), app.display());
    format!(
        "client_max_body_size 64k; lingering_timeout 100ms;\n\
         proxy_http_version 1.1;\n\
         proxy_set_header Connection \"\";\n\
         proxy_set_header Host $http_host;\n\
         proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;\n\
         upstream app {{ server unix:{app}; keepalive 8; }}\n\
         server {{ listen unix:{folder}/front.sock default_server; server_name _;\n\
         location / {{ proxy_pass http://app; }} }}\n\
         server {{ listen unix:{folder}/front.sock; server_name part;\n\
         location / {{ return 404; }}\n\
         location = /in {{ proxy_pass http://app; }}\n\
         location /in/ {{ proxy_pass http://app; }} }}\n"
    )
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
