//! New code on trial beside the old, with real processes.

use std::fs;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use crate::harness::{Harness, folder, until};

/// An app that fails every request if there is a file `broken` as it starts.
const APP: &str = "[app.shop]\nexec = APP\nroot = \"FOLDER\"\nmin = 1\n\
                   env = { FAIL_IF = \"FOLDER/broken\", COUNT_POSTS = \"FOLDER/posts\" }\n\
                   trial = { answers = 20, time = \"1s\" }\n";

/// Ask all the time while something happens. Says how many answers were not 200.
pub(crate) fn asked(
    harness: &Harness,
    method: &str,
    pause: Duration,
    happens: impl FnOnce(),
) -> (u32, u32) {
    let (is_over, all, bad) = (AtomicBool::new(false), AtomicU32::new(0), AtomicU32::new(0));
    /// Also if it panics: the clients would go on for ever.
    struct Over<'a>(&'a AtomicBool);
    impl Drop for Over<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    thread::scope(|scope| {
        let _over = Over(&is_over);
        for _ in 0..4 {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    let answer = harness.ask(method, "test", "/x", b"").unwrap();
                    all.fetch_add(1, Ordering::Relaxed);
                    bad.fetch_add(u32::from(answer.status != 200), Ordering::Relaxed);
                    thread::sleep(pause);
                }
            });
        }
        happens();
    });
    (all.into_inner(), bad.into_inner())
}

#[test]
fn readers_see_nothing_of_code_that_fails_every_request() {
    let folder = folder();
    let harness = Harness::new(&folder, APP);
    let old = harness.get("/pid").body;
    let (all, bad) = asked(&harness, "GET", Duration::from_millis(5), || {
        until("there is a past", || {
            harness.log().len() > 1 && !harness.ready().is_empty()
        });
        thread::sleep(Duration::from_millis(500));
        fs::write(folder.join("broken"), "").unwrap();
        let (code, why) = harness.try_cli(&["restart", "shop", "--wait"]).unwrap_err();
        assert_eq!(code, Some(1), "{why}");
        assert!(
            why.contains("generation 2 of app shop is not used"),
            "{why}"
        );
        assert!(why.contains("fails more often than the old one"), "{why}");
        assert!(harness.log().contains("deploy_failed"));
    });
    let explained = harness.cli(&["explain", "shop"]);
    let kept = "The old code is kept: generation 2 fails more often";
    assert!(explained.contains(kept), "{explained}");
    assert!(all > 20, "{all} requests");
    assert_eq!(bad, 0, "of {all}: {}", harness.log());
    assert!(harness.log().contains("is on trial"), "{}", harness.log());
    until("the old code serves alone", || harness.ready().len() == 1);
    assert_eq!(harness.get("/pid").body, old);
    // The next deploy is good.
    fs::remove_file(folder.join("broken")).unwrap();
    let (_, bad) = asked(&harness, "GET", Duration::from_millis(5), || {
        let said = harness.cli(&["restart", "shop", "--wait"]);
        assert_eq!(said, "OK generation 3 serves\n");
        assert!(harness.log().contains("all processes run"));
    });
    assert_eq!(bad, 0, "{}", harness.log());
    assert_ne!(harness.get("/pid").body, old);
    harness.end();
}

#[test]
fn what_changes_something_is_never_sent_twice() {
    let folder = folder();
    let harness = Harness::new(&folder, APP);
    harness.get("/pid");
    let (_, bad) = asked(&harness, "POST", Duration::from_millis(20), || {
        thread::sleep(Duration::from_millis(500));
        fs::write(folder.join("broken"), "").unwrap();
        harness.cli(&["restart", "shop"]);
        until("it is rejected", || harness.log().contains("deploy_failed"));
    });
    let seen = fs::read(folder.join("posts")).unwrap_or_default();
    assert_eq!(seen.len() as u32, bad, "each failure was one request");
    assert!((3..=20).contains(&bad), "{bad} were shown");
    harness.end();
}

#[test]
fn an_operator_gives_the_verdict_on_code_that_nobody_uses_yet() {
    let folder = folder();
    let harness = Harness::new(&folder, APP);
    let old = harness.get("/pid").body;
    let (code, why) = (harness.try_cli(&["trial", "shop", "accept"])).unwrap_err();
    assert_eq!(code, Some(1), "{why}");
    assert!(why.contains("no new code on trial"), "{why}");

    let is_on_trial = || {
        let shown = harness.cli(&["--json", "status", "apps"]);
        shown.contains("on_trial") && shown.contains("on trial for ")
    };
    harness.cli(&["restart", "shop"]);
    until("it is on trial", is_on_trial);
    harness.cli(&["trial", "shop", "reject"]);
    until("the old code serves alone", || harness.ready().len() == 1);
    assert_eq!(harness.get("/pid").body, old);
    let explained = harness.cli(&["explain", "shop"]);
    assert!(
        explained.contains("generation 2 was rejected"),
        "{explained}"
    );

    harness.cli(&["restart", "shop"]);
    until("it is on trial", is_on_trial);
    harness.cli(&["trial", "shop", "accept"]);
    until("the new code serves alone", || {
        harness.log().contains("all processes run generation 3")
    });
    assert_ne!(harness.get("/pid").body, old);
    let by = harness.log();
    assert!(by.contains("the code on trial was accepted"), "{by}");
    harness.end();
}
