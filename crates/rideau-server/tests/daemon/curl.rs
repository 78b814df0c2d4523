//! curl, the most common client: asks in a session, looks, changes.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::process::Stdio;

use rideau_testing::{Running, Start, command};
use serde_json::{Value, json};

use crate::server::{Server, until};

const CONFIG: &str = r#"
[pool.licences]
member = { list = ["CAD-001", "CAD-002"] }
queue = { kind = "timeout", timeout = "5s", max = 1 }

[broker.desk]

[lock."*"]
"#;

/// What curl got.
#[derive(Debug)]
struct Got {
    status: u16,
    headers: BTreeMap<String, String>,
    body: String,
}

impl Got {
    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    fn text(&self, name: &str) -> String {
        let json = self.json();
        let text = json[name].as_str();
        text.unwrap_or_else(|| panic!("no {name} in {self:?}"))
            .into()
    }
}

/// Run curl with these words; the last is a path of the server. Where there are no
/// users, the operator's API is used by the operator.
#[track_caller]
fn curl(server: &Server, words: &[&str]) -> Got {
    let (path, options) = words.split_last().unwrap();
    let mut command = command("curl");
    command
        .args(["-sS", "-i", "--max-time", "60"])
        .args(options);
    let config = std::fs::read_to_string(server.file()).unwrap();
    if path.starts_with("/api/") && !config.contains("[user.") {
        command.args(["-H", &format!("Authorization: Bearer {}", server.token())]);
    }
    let output = command.arg(server.url() + path).output().unwrap();
    let wrong = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{words:?}: {wrong}");
    let said = String::from_utf8(output.stdout).unwrap();
    let (head, body) = said.split_once("\r\n\r\n").unwrap();
    let mut lines = head.lines();
    let status = lines.next().unwrap().split(' ').nth(1).unwrap();
    let headers = lines.filter_map(|line| line.split_once(": "));
    Got {
        status: status.parse().unwrap(),
        headers: headers
            .map(|(name, value)| (name.to_lowercase(), value.into()))
            .collect(),
        body: body.into(),
    }
}

/// Open a session; says the header that joins it.
fn session(server: &Server, body: &str) -> String {
    let got = curl(server, &["-d", body, "/v1/sessions"]);
    assert_eq!(got.status, 200, "{got:?}");
    format!("Rideau-Session: {}", got.text("id"))
}

const CSRF: &str = "Rideau-Csrf: 1";

#[test]
fn a_session_takes_locks_and_releases() {
    let server = Server::with_http(CONFIG);
    let alone = curl(&server, &["-X", "POST", "/v1/take/licences"]);
    assert_eq!(alone.status, 400, "an ask belongs to a session: {alone:?}");
    let session = session(&server, r#"{"ttl_ms":60000,"name":"nightly"}"#);
    let ask = |body: &str, path: &str| curl(&server, &["-H", &session, "-d", body, path]);

    let taken = ask(r#"{"note":"build 7"}"#, "/v1/take/licences");
    assert_eq!((taken.status, taken.text("outcome")), (200, "go".into()));
    assert_eq!(taken.text("member"), "CAD-001");
    let again = ask(r#"{"id":"one"}"#, "/v1/take/licences");
    let same = ask(r#"{"id":"one"}"#, "/v1/take/licences");
    assert_eq!(
        again.text("ticket"),
        same.text("ticket"),
        "named asks are one"
    );

    let lock = ask(r#"{"per":2}"#, "/v1/lock/tenant/42");
    let expected = json!([1, 2]);
    let lock = lock.json();
    assert_eq!(
        json!([lock["ordinal"], lock["capacity"]]),
        expected,
        "{lock}"
    );
    ask(r#"{"per":2}"#, "/v1/lock/tenant/42");
    let full = ask(r#"{"per":2}"#, "/v1/lock/tenant/42");
    assert_eq!((full.status, full.json()["held"].as_u64()), (409, Some(2)));

    let late = ask(r#"{"wait_ms":20}"#, "/v1/take/licences");
    assert_eq!((late.status, late.text("outcome")), (408, "timeout".into()));
    let ticket = taken.text("ticket");
    let release = format!("/v1/grants/{ticket}");
    let released = curl(&server, &["-X", "DELETE", &release]);
    assert_eq!(released.status, 200, "{released:?}");
    let stale = curl(&server, &["-X", "DELETE", &release]);
    assert_eq!((stale.status, stale.text("code")), (410, "STALE".into()));
    assert_eq!(ask("", "/v1/take/licences").text("member"), "CAD-001");

    let id = session.split(' ').nth(1).unwrap();
    let renewed = curl(
        &server,
        &["-X", "POST", &format!("/v1/sessions/{id}/renew")],
    );
    assert_eq!(renewed.status, 200, "{renewed:?}");
    let closed = curl(&server, &["-X", "DELETE", &format!("/v1/sessions/{id}")]);
    assert_eq!(closed.json()["released"], 4, "{closed:?}");
    assert_eq!(ask("", "/v1/take/licences").status, 404, "it is over");
}

#[test]
fn a_client_that_hangs_up_gives_its_place_up_and_its_session_all_else() {
    let server = Server::with_http(CONFIG);
    let session = session(&server, r#"{"ttl_ms":4000}"#);
    let ask = |path: &str| curl(&server, &["-H", &session, "-X", "POST", path]);
    ask("/v1/take/licences");
    ask("/v1/take/licences");
    let mut waiting = command("curl");
    waiting.args(["-sS", "-H", &session, "-d", r#"{"wait_ms":20000}"#]);
    waiting.arg(server.url() + "/v1/take/licences");
    let waiting = waiting.stdout(Stdio::null()).start();
    let waits = || curl(&server, &["/api/v1/pools/licences"]).json()["waiting"].clone();
    until("it waits", || waits() == 1);
    let no = curl(
        &server,
        &[
            "-H",
            &session,
            "-d",
            r#"{"wait_ms":900}"#,
            "/v1/take/licences",
        ],
    );
    assert_eq!((no.status, no.text("outcome")), (409, "full".into()));
    let wait = no.json()["retry_after_us"].as_u64().unwrap();
    let seconds = wait.div_ceil(1_000_000).to_string();
    assert_eq!(no.headers["retry-after"], seconds, "{no:?}");
    drop(waiting);
    until("it has given its place up", || waits() == 0);
    let held = || curl(&server, &["/api/v1/pools/licences"]).json()["held"].clone();
    until("the session is over", || held() == 0);
}

#[test]
fn two_meet_and_one_tells_the_other_when_it_is_done() {
    let server = Server::with_http(CONFIG);
    let (asks, offers) = (session(&server, ""), session(&server, ""));
    let mut ask = command("curl");
    ask.args([
        "-sS",
        "-H",
        &asks,
        "-d",
        r#"{"value":"order 7","wait_ms":20000}"#,
    ]);
    ask.arg(server.url() + "/v1/ask/desk")
        .stdout(Stdio::piped());
    let ask = ask.start();
    let met = curl(
        &server,
        &[
            "-H",
            &offers,
            "-d",
            r#"{"value":"anna","wait_ms":20000}"#,
            "/v1/offer/desk",
        ],
    );
    assert_eq!(met.text("value"), "order 7");
    let asked: Value = serde_json::from_slice(&ask.wait_with_output().unwrap().stdout).unwrap();
    assert_eq!(asked["value"], "anna");
    let done = format!("/v1/grants/{}/done", met.text("ticket"));
    let said = curl(&server, &["-d", r#"{"payload":"paid"}"#, &done]);
    assert_eq!(said.status, 200, "{said:?}");
    let wait = format!("/v1/grants/{}/end", asked["ticket"].as_str().unwrap());
    let end = curl(&server, &["-H", &asks, "-X", "POST", &wait]);
    assert_eq!(
        (end.text("outcome"), end.text("payload")),
        ("done".into(), "paid".into())
    );
}

#[test]
fn what_there_is_can_be_looked_at_and_explained() {
    let server = Server::with_http(CONFIG);
    let session = session(&server, "");
    let ask = |body: &str| {
        let words = ["-H", &session, "-d", body, "/v1/take/licences"];
        curl(&server, &words)
    };
    ask(r#"{"note":"build 7"}"#);
    ask("");
    ask(r#"{"wait_ms":1}"#);
    for path in ["/healthz", "/readyz", "/", "/metrics", "/api/openapi.json"] {
        assert_eq!(curl(&server, &[path]).status, 200, "{path}");
    }
    let state = curl(&server, &["/api/v1/state"]).json();
    assert_eq!(state["pools"][0]["held"], 2, "{state}");
    let holders = curl(&server, &["/api/v1/holders?of=pool:licences"]).json();
    assert_eq!(holders["holders"][0]["note"], "build 7", "{holders}");
    let drops = curl(&server, &["/api/v1/drops"]).json();
    let drop = drops["drops"][0]["id"].as_str().unwrap();
    for (id, wanted) in [("licences", "build 7"), (drop, "licences")] {
        let explained = curl(&server, &[&format!("/api/v1/explain/{id}")]);
        assert!(explained.text("text").contains(wanted), "{explained:?}");
    }
    let nothing = curl(&server, &["/api/v1/explain/d-fffff"]);
    assert_eq!(
        (nothing.status, nothing.text("code")),
        (404, "NOSUCH".into())
    );
}

#[test]
fn a_config_is_checked_planned_and_applied() {
    let server = Server::with_http(CONFIG);
    let file = server.file();
    let text = std::fs::read_to_string(&file).unwrap();
    let post = |what: &str, text: &str| {
        std::fs::write(&file, text).unwrap();
        let body = format!("@{}", file.display());
        let path = format!("/api/v1/config/{what}");
        curl(&server, &["-H", CSRF, "--data-binary", &body, &path])
    };
    let wrong = text.replace("timeout = \"5s\"", "timeout = \"5 parsecs\"");
    for what in ["check", "plan", "apply"] {
        let no = post(what, &wrong);
        assert_eq!(no.status, 422, "{what}: {no:?}");
        assert!(no.text("text").contains("rror"), "{no:?}");
    }
    let more = text.clone() + "\n[broker.second]\n";
    let good = post("check", &more);
    assert_eq!(
        (good.status, good.json()["is_usable"].as_bool()),
        (200, Some(true))
    );
    let plan = post("plan", &more).json();
    assert!(
        plan["text"].as_str().unwrap().contains("broker.second"),
        "{plan}"
    );
    let second = || curl(&server, &["/api/v1/brokers/second"]).status;
    assert_eq!(second(), 404, "a plan changes nothing");
    assert_eq!(post("apply", &more).status, 200);
    assert_eq!(second(), 200);
    let history = curl(&server, &["/api/v1/config/history"]).json();
    assert_eq!(
        history["versions"].as_array().unwrap().len(),
        2,
        "{history}"
    );
    let back = curl(
        &server,
        &["-H", CSRF, "-X", "POST", "/api/v1/config/rollback"],
    );
    assert_eq!((back.status, second()), (200, 404), "{back:?}");
}

#[test]
fn an_action_needs_the_header_that_no_other_site_can_send() {
    let server = Server::with_http(CONFIG);
    let pause = "/api/v1/pools/licences/pause";
    let paused = || curl(&server, &["/api/v1/pools/licences"]).json()["is_paused"].clone();
    let without = curl(&server, &["-X", "POST", pause]);
    assert_eq!(
        (without.status, without.text("code")),
        (403, "NOPERM".into())
    );
    let evil = [
        "-H",
        CSRF,
        "-H",
        "Origin: http://evil.example",
        "-X",
        "POST",
        pause,
    ];
    assert_eq!(curl(&server, &evil).status, 403);
    let misled = ["-H", CSRF, "-H", "Host: evil.example", "-X", "POST", pause];
    assert_eq!(curl(&server, &misled).status, 421);
    assert_eq!(paused(), false);
    let mut events = Events::watch(&server, "/api/v1/events");
    let done = curl(&server, &["-H", CSRF, "-X", "POST", pause]);
    assert_eq!((done.status, paused()), (200, true.into()), "{done:?}");
    let event = events.next_of("event");
    assert_eq!(
        (&event["kind"], &event["name"]),
        (&json!("pool"), &json!("licences"))
    );
    assert_eq!(event["by"], "operator", "an operator did it: {event}");
    let resumed = curl(
        &server,
        &["-H", CSRF, "-X", "POST", "/api/v1/pools/licences/resume"],
    );
    assert_eq!((resumed.status, paused()), (200, false.into()));
}

#[test]
fn samples_come_each_second_for_as_long_as_one_reads() {
    let server = Server::with_http(CONFIG);
    let mut samples = Events::watch(&server, "/api/v1/stream");
    for _ in 0..2 {
        let sample = samples.next_of("sample");
        assert_eq!(sample["pool"]["licences"]["max"], 2.0, "{sample}");
    }
}

/// A curl that reads what is told until it is dropped.
struct Events {
    lines: BufReader<std::process::ChildStdout>,
    _curl: Running,
}

impl Events {
    fn watch(server: &Server, path: &str) -> Self {
        let mut command = command("curl");
        command
            .args(["-sSN", "--max-time", "60"])
            .arg(server.url() + path);
        let mut curl = command.stdout(Stdio::piped()).start();
        let lines = BufReader::new(curl.stdout.take().unwrap());
        // A client that is let in counts as a watcher.
        until("curl watches", || {
            let limits = crate::curl::curl(server, &["/api/v1/limits"]).json();
            let limits = limits["limits"].as_array().unwrap().clone();
            let watchers = limits.iter().find(|limit| limit["name"] == "http_watchers");
            watchers.unwrap()["now"] == 1
        });
        Self { lines, _curl: curl }
    }

    /// The data of the next event of this kind.
    fn next_of(&mut self, kind: &str) -> Value {
        let (mut line, mut is_it) = (String::new(), false);
        loop {
            line.clear();
            assert!(self.lines.read_line(&mut line).unwrap() > 0, "it ended");
            match line.trim_end().split_once(": ") {
                Some(("event", named)) => is_it = named == kind,
                Some(("data", text)) if is_it => return serde_json::from_str(text).unwrap(),
                _ => (),
            }
        }
    }
}
