//! Applications of a server that was given a cgroup to divide.

use std::fs;
use std::path::Path;

use crate::given::{Given, inside};
use crate::harness::{Harness, app_words, folder, until};

/// An application that starts a process which is known by the cgroup alone: it
/// has another session, other parents and none of our variables.
fn escaping() -> String {
    let words = app_words();
    let words = words.trim_matches(['[', ']']);
    let script = "(env -i setsid sleep 1000 &) ; exec \\\"$0\\\" \\\"$@\\\"";
    format!("[app.shop]\nexec = [\"sh\", \"-c\", \"{script}\", {words}]\nuptime_min = \"0s\"\n")
}

/// A server within it.
fn within(given: &Given, folder: &Path) -> Harness {
    Harness::write(folder, "", &escaping());
    let path = given.path().display();
    Harness::start_limited(folder, &format!("echo $$ >{path}/cgroup.procs"))
}

/// The cgroup of the only process, with the one that escaped.
fn part(given: &Given, harness: &Harness) -> (std::path::PathBuf, i32) {
    let pid: i32 = harness.get("/pid").body.parse().unwrap();
    let parts = given.parts();
    let [part] = &parts[..] else {
        panic!("one cgroup for one process: {parts:?}");
    };
    assert!(inside(part).contains(&pid), "it is in its own");
    until("the other is there", || inside(part).len() > 1);
    let others: Vec<_> = inside(part).into_iter().filter(|it| *it != pid).collect();
    (part.clone(), others[0])
}

fn runs(pid: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit_once(") ").map_or("", |(_, rest)| rest);
    !state.is_empty() && !state.starts_with(['Z', 'X'])
}

#[test]
fn what_a_process_started_ends_with_it_however_well_it_hid() {
    let Some(given) = Given::new() else {
        return;
    };
    let folder = folder();
    let harness = within(&given, &folder);
    let (part, hidden) = part(&given, &harness);
    harness.cli(&["restart", "shop", "--now"]);
    until("it is gone", || !runs(hidden));
    until("its cgroup is gone", || !part.exists());
    harness.get("/pid");
    harness.end();
    assert_eq!(given.parts(), [""; 0].map(std::path::PathBuf::from));
}

#[test]
fn no_process_outlives_a_server_that_was_killed_however_well_it_hid() {
    let Some(given) = Given::new() else {
        return;
    };
    let folder = folder();
    let mut harness = within(&given, &folder);
    let (part, hidden) = part(&given, &harness);
    harness.kill();
    until("it is gone", || !runs(hidden));
    until("its cgroup is gone", || !part.exists());
    let again = within(&given, &folder);
    assert_eq!(again.get("/").status, 200);
    again.end();
}
