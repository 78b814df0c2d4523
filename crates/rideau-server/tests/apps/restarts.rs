//! New code: by a marker, by a command, and when it does not work.

use std::fs;
use std::os::unix::fs::symlink;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use crate::harness::{Answer, Harness, folder, processes_of, until};

/// Ask all the time while something happens; says how many were asked. All of
/// them are answered.
fn under_load(harness: &Harness, happens: impl FnOnce()) -> u32 {
    let (is_over, asked) = (AtomicBool::new(false), AtomicU32::new(0));
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    let answer: Answer = harness.get("/sleep/5");
                    assert_eq!(answer.status, 200, "{answer:?}");
                    asked.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        happens();
        is_over.store(true, Ordering::Relaxed);
    });
    asked.into_inner()
}

fn touch(folder: &std::path::Path) {
    fs::write(
        folder.join("tmp/restart.txt"),
        format!("{:?}", std::time::Instant::now()),
    )
    .unwrap();
}

/// Scenario 12.
#[test]
fn a_touched_marker_restarts_without_a_request() {
    let folder = folder();
    let harness = Harness::new(
        &folder,
        "[app.shop]\nexec = APP\nroot = \"FOLDER\"\nmin = 1\n",
    );
    until("it is there", || processes_of(&folder).len() == 1);
    let before = harness.get("/pid").body;
    // The first look only remembers.
    thread::sleep(Duration::from_millis(1500));
    touch(&folder);
    until("another is there", || {
        let now = processes_of(&folder);
        now.len() == 1 && now[0].to_string() != before
    });
    assert_ne!(harness.get("/pid").body, before);
    harness.end();
}

/// Scenarios 10 and 11.
#[test]
fn code_that_does_not_start_leaves_the_old_code_serving() {
    let folder = folder();
    let harness = Harness::new(
        &folder,
        "[app.shop]\nexec = APP\nroot = \"FOLDER\"\nmin = 2\nmax = 2\n\
         env = { CRASH_IF = \"FOLDER/broken\" }\n",
    );
    until("both are there", || processes_of(&folder).len() == 2);
    let before = processes_of(&folder);
    thread::sleep(Duration::from_millis(1500));
    let asked = under_load(&harness, || {
        fs::write(folder.join("broken"), "").unwrap();
        touch(&folder);
        until("it is told", || harness.log().contains("deploy_failed"));
        let after = processes_of(&folder);
        assert!(before.iter().all(|pid| after.contains(pid)), "{after:?}");
        fs::remove_file(folder.join("broken")).unwrap();
        touch(&folder);
        until("the new code runs", || {
            let now = processes_of(&folder);
            now.len() == 2 && before.iter().all(|pid| !now.contains(pid))
        });
    });
    assert!(asked > 10, "{asked} requests");
    harness.end();
}

/// Scenario 43.
#[test]
fn another_release_behind_a_link_is_started() {
    let folder = folder();
    for release in ["one", "two"] {
        let tmp = folder.join(release).join("tmp");
        fs::create_dir_all(&tmp).unwrap();
        let file = fs::File::create(tmp.join("restart.txt")).unwrap();
        file.set_modified(std::time::UNIX_EPOCH).unwrap();
    }
    symlink("one", folder.join("current")).unwrap();
    let harness = Harness::new(
        &folder,
        "[app.shop]\nexec = APP\nroot = \"FOLDER/current\"\nmin = 1\n",
    );
    let first = harness.get("/cwd").body;
    assert!(first.ends_with("/one"), "{first}");
    thread::sleep(Duration::from_millis(1500));
    symlink("two", folder.join("next")).unwrap();
    fs::rename(folder.join("next"), folder.join("current")).unwrap();
    until("the new release runs", || {
        harness.get("/cwd").body.ends_with("/two")
    });
    until("the old one is gone", || processes_of(&folder).len() == 1);
    harness.end();
}

/// Scenario 13.
#[test]
fn with_always_restart_each_process_serves_one_request() {
    let folder = folder();
    fs::write(folder.join("tmp/always_restart.txt"), "").unwrap();
    let harness = Harness::new(
        &folder,
        "[app.shop]\nexec = APP\nroot = \"FOLDER\"\nmax = 3\n",
    );
    thread::sleep(Duration::from_millis(1500));
    let (one, two) = thread::scope(|scope| {
        let one = scope.spawn(|| harness.get("/pid").body);
        let two = scope.spawn(|| harness.get("/pid").body);
        (one.join().unwrap(), two.join().unwrap())
    });
    assert_ne!(one, two);
    assert_ne!(harness.get("/pid").body, two);
    harness.end();
}

#[test]
fn always_restart_that_comes_later_ends_the_process_that_was_used() {
    let folder = folder();
    let harness = Harness::new(
        &folder,
        "[app.shop]\nexec = APP\nroot = \"FOLDER\"\nmin = 1\nmax = 1\n",
    );
    let first = harness.get("/pid").body;
    fs::write(folder.join("tmp/always_restart.txt"), "").unwrap();
    until("each process serves one request", || {
        let (one, two) = (harness.get("/pid").body, harness.get("/pid").body);
        one != first && one != two
    });
    harness.end();
}

#[test]
fn an_application_with_an_address_of_its_own_is_restarted_there() {
    let folder = folder();
    let port = {
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        free.local_addr().unwrap().port()
    };
    let harness = Harness::new(
        &folder,
        &format!(
            "[app.shop]\nexec = APP\nmin = 1\nlisten = \"127.0.0.1:{port}\"\n\
             env = {{ WRONG_PORT = \"{port}\" }}\n"
        ),
    );
    let before = harness.get("/pid").body;
    let asked = under_load(&harness, || {
        harness.cli(&["restart", "shop"]);
        until("another is there", || {
            let now = processes_of(&folder);
            now.len() == 1 && now[0].to_string() != before
        });
        until("it serves", || harness.ready().len() == 1);
    });
    assert!(asked > 4, "{asked} requests");
    assert_ne!(harness.get("/pid").body, before);
    assert!(
        !harness.log().contains("did not start"),
        "{}",
        harness.log()
    );
    harness.end();
}
