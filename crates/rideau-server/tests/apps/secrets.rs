//! What programs say and are told is shown to users who may read logs, and
//! secrets of the environment are not shown at all.

use std::path::Path;

use rideau_config::password::Hash;

use crate::harness::{Harness, folder, until};
use crate::peer::Peer;

/// What the server's environment has, and the config writes as a variable.
const SECRET: &str = "hunter2-of-the-environment";
/// What the programs write before they fail.
const SAID: &str = "the words of the program";

/// An app and a pool whose programs say something and fail. `eyes` may look at all and
/// take, `keeper` may read what they say, too.
fn harness(folder: &Path) -> Harness {
    let hash = Hash::of(b"secret").unwrap();
    let hash = hash.as_str();
    let exec = format!("[\"sh\", \"-c\", \"echo {SAID} >&2; exit 3\", \"${{SECRET_WORD}}\"]");
    let mut text = format!(
        "[app.shop]\nexec = {exec}\nmin = 1\nstart_timeout = \"5s\"\n\
         [pool.work]\nmember = {{ exec = {exec}, ready = \"notify\" }}\n\
         backoff_first = \"5ms\"\nbackoff_max = \"10ms\"\nqueue = \"never\"\n\
         [pool.other]\nlike = \"work\"\n"
    );
    for (name, allow) in [
        ("eyes", "[\"@read\", \"take\", \"get\", \"subscribe\"]"),
        ("keeper", "[\"@all\", \"app\", \"pool\"]"),
        ("ops", "[\"@admin\"]"),
    ] {
        text += &format!("[user.{name}]\npassword = '{hash}'\nallow = {allow}\n");
    }
    Harness::write(folder, "", &text);
    Harness::start_limited(folder, &format!("export SECRET_WORD={SECRET}"))
}

fn login(harness: &Harness, name: &str) -> Peer {
    let mut peer = harness.peer();
    assert_eq!(peer.say(&format!("AUTH {name} secret")), "+OK");
    peer
}

// name:secret
const EYES: &str = "ZXllczpzZWNyZXQ=";
const KEEPER: &str = "a2VlcGVyOnNlY3JldA==";
const OPS: &str = "b3BzOnNlY3JldA==";

/// All that one is shown, each with where that was.
fn all(harness: &Harness, name: &str, basic: &str) -> Vec<(String, String)> {
    let mut peer = login(harness, name);
    let mut shown = Vec::new();
    for line in [
        "TAKE work WAIT 100",
        "APP.GET shop WAIT 100",
        "EXPLAIN shop",
        "EXPLAIN shop JSON",
        "EXPLAIN work",
        "EXPLAIN other",
        "EXPLAIN d-1",
        "SHOW APPS",
        "SHOW POOLS",
        "SHOW PROCESSES",
        "SHOW REFUSALS",
        "SHOW EVENTS",
        "SHOW HOLDERS",
        "SHOW CONFIG",
        "CONFIG GET *",
        "CONFIG TEXT",
        "CONFIG HISTORY",
        "INFO",
        "APP.LS",
        "APP.STAT shop",
    ] {
        shown.push((line.to_owned(), peer.say(line)));
    }
    for path in [
        "/",
        "/metrics",
        "/api/v1/state",
        "/api/v1/apps",
        "/api/v1/apps/shop",
        "/api/v1/pools",
        "/api/v1/pools/work",
        "/api/v1/pools/other",
        "/api/v1/drops",
        "/api/v1/holders",
        "/api/v1/config",
        "/api/v1/config/history",
        "/api/v1/explain/shop",
        "/api/v1/explain/work",
    ] {
        let answer = harness.admin_as(basic, path);
        shown.push((path.to_owned(), answer.body));
    }
    shown
}

#[test]
fn output_is_for_users_who_may_read_logs_and_secrets_are_never_shown() {
    let folder = folder();
    let harness = harness(&folder);
    let mut keeper = login(&harness, "keeper");
    for name in ["shop", "work"] {
        until("its failure is known", || {
            let _ = keeper.say("TAKE work WAIT 100");
            let _ = keeper.say("APP.GET shop WAIT 100");
            keeper.say(&format!("EXPLAIN {name}")).contains(SAID)
        });
    }
    for (place, text) in all(&harness, "eyes", EYES) {
        assert!(!text.contains(SAID), "{place}: {text}");
        assert!(!text.contains("code 3"), "{place}: {text}");
        assert!(!text.contains(SECRET), "{place}: {text}");
    }
    let kept = all(&harness, "keeper", KEEPER);
    for wanted in [
        "TAKE work WAIT 100",
        "EXPLAIN shop",
        "EXPLAIN work",
        "SHOW EVENTS",
        "/api/v1/apps/shop",
        "/api/v1/pools/work",
    ] {
        let (_, text) = kept.iter().find(|(place, _)| place == wanted).unwrap();
        assert!(text.contains(SAID), "{wanted}: {text}");
    }
    let whole = all(&harness, "ops", OPS);
    for (place, text) in kept.iter().chain(&whole) {
        assert!(!text.contains(SECRET), "{place}: {text}");
    }
    for wanted in [
        "CONFIG GET *",
        "SHOW CONFIG",
        "/api/v1/config",
        "/api/v1/apps/shop",
    ] {
        let (_, text) = whole.iter().find(|(place, _)| place == wanted).unwrap();
        assert!(text.contains("${SECRET_WORD}"), "{wanted}: {text}");
    }
    // A user who checks a config does not read the environment by what is wrong
    // with it.
    let mut ops = login(&harness, "ops");
    for text in [
        "[log]\nlevel = \"${SECRET_WORD}\"\n",
        "[pool.x]\nmember = { exec = [\"sh\"], ready = \"${SECRET_WORD}\" }\n",
    ] {
        let said = crate::peer::text(&ops.ask(&["CONFIG", "CHECK", text]));
        assert!(said.starts_with('-'), "{said}");
        assert!(!said.contains(SECRET), "{said}");
    }
    harness.end();
}
