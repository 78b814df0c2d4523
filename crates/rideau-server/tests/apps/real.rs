//! Applications written elsewhere: each starts, scales, restarts and drains
//! while wrk asks, and no request fails.

use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::thread;
use std::time::Duration;

use rideau_testing::{Running, Signal, Start, command, signal};

use crate::harness::{Harness, folder, processes_of, until};

/// How long wrk asks, in seconds.
const ASKS_FOR: u64 = 8;

/// What wrk says of its requests.
struct Asked {
    requests: u64,
    failed: Vec<String>,
}

fn wrk(harness: &Harness) -> Running {
    command("wrk")
        .args(["-t1", "-c8", &format!("-d{ASKS_FOR}")])
        // Slow is no failure while other tests want the processor, too.
        .args(["--timeout", "6s"])
        .arg(format!("http://{}/", harness.front))
        .stdout(Stdio::piped())
        .start()
}

fn said(wrk: Running) -> Asked {
    let done = wrk.wait_with_output().unwrap();
    assert!(done.status.success(), "{done:?}");
    let text = String::from_utf8_lossy(&done.stdout).into_owned();
    let requests = text.lines().find_map(|line| {
        let (count, _) = line.trim().split_once(" requests in ")?;
        count.parse().ok()
    });
    let is_failure = |line: &&str| line.contains("Non-2xx") || line.contains("Socket errors");
    Asked {
        requests: requests.unwrap_or_else(|| panic!("no count in {text}")),
        failed: text.lines().filter(is_failure).map(str::to_owned).collect(),
    }
}

/// An application is asked all the time, gets a second process, one of them is killed, all
/// are replaced, and in the end it drains. On a busy machine requests wait as long as that
/// takes.
fn serves_all_the_time(folder: &Path, app: &str) {
    let text = format!(
        "[app.shop]\n{app}\nmin = 1\nmax = 2\nqueue = \"never\"\n\
         trial = {{ answers = 20, time = \"2s\" }}\n"
    );
    let harness = Harness::new(folder, &text);
    let first = harness.get("/");
    assert_eq!(first.status, 200, "{first:?}");
    let old = processes_of(folder);
    let asking = wrk(&harness);
    thread::sleep(Duration::from_millis(500));
    // No, if it has grown by itself, as it does where starts are slow.
    harness.peer().say("APP.SPAWN shop");
    until("a second process is ready", || harness.ready().len() == 2);
    let killed = harness.ready()[0];
    signal(killed, Signal::KILL);
    until("another one serves in its stead", || {
        let ready = harness.ready();
        !ready.is_empty() && !ready.contains(&killed)
    });
    harness.cli(&["restart", "shop"]);
    until("all are new", || {
        let now = processes_of(folder);
        !harness.ready().is_empty() && old.iter().all(|pid| !now.contains(pid))
    });
    let asked = said(asking);
    // The one that was killed may have begun an answer.
    let cut = "connect 0, read 1, write 0, timeout 0";
    let failed: Vec<_> = (asked.failed.iter())
        .filter(|failed| !failed.contains(cut))
        .collect();
    assert!(failed.is_empty(), "{failed:?}");
    assert!(asked.requests > 100, "only {} requests", asked.requests);
    assert_eq!(harness.get("/").status, 200);
    harness.end();
}

#[test]
fn gunicorn_serves_a_wsgi_application() {
    let folder = folder();
    let app = "def app(environ, start):\n    start('200 OK', [('Content-Length', '2')])\n    \
               return [b'ok']\n";
    fs::write(folder.join("wsgi.py"), app).unwrap();
    serves_all_the_time(
        &folder,
        "root = \"FOLDER\"\nconcurrency = 1\nlisten = \"socket\"\n\
         exec = [\"gunicorn\", \"--bind\", \"unix:{socket}\", \"--workers\", \"1\", \"wsgi:app\"]",
    );
}

#[test]
fn uvicorn_serves_an_asgi_application() {
    let folder = folder();
    let app = "async def app(scope, receive, send):\n    \
               if scope['type'] != 'http':\n        return\n    \
               await send({'type': 'http.response.start', 'status': 200,\n                \
               'headers': [(b'content-length', b'2')]})\n    \
               await send({'type': 'http.response.body', 'body': b'ok'})\n";
    fs::write(folder.join("asgi.py"), app).unwrap();
    serves_all_the_time(
        &folder,
        "root = \"FOLDER\"\nlisten = \"socket\"\n\
         exec = [\"uvicorn\", \"--uds\", \"{socket}\", \"--no-access-log\", \"asgi:app\"]",
    );
}

#[test]
fn node_serves_at_its_port() {
    let folder = folder();
    let app = "require('http').createServer((request, response) => response.end('ok'))\n\
               .listen(process.env.PORT, '127.0.0.1');\n";
    fs::write(folder.join("app.js"), app).unwrap();
    serves_all_the_time(
        &folder,
        "root = \"FOLDER\"\nlisten = \"port\"\nexec = [\"node\", \"app.js\"]",
    );
}

#[test]
fn puma_serves_a_rack_application() {
    let folder = folder();
    let app = "run proc { |env| [200, { 'Content-Type' => 'text/plain' }, ['ok']] }\n";
    fs::write(folder.join("config.ru"), app).unwrap();
    serves_all_the_time(
        &folder,
        "root = \"FOLDER\"\nconcurrency = 4\nlisten = \"socket\"\n\
         exec = [\"puma\", \"-b\", \"unix://{socket}\", \"-t\", \"4:4\", \"-e\", \"production\", \
         \"config.ru\"]",
    );
}
