//! Values of ranges over the deaths of the server itself, and with the clients
//! that people have already.

use std::collections::HashMap;
use std::fs;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;

use rideau_testing::command;

use crate::server::{Server, until};
use crate::wire::{Value, Wire};

/// Where values are kept while servers come and go.
struct Store(PathBuf);

impl Store {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("rideau-values-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir(&path).unwrap();
        Self(path)
    }

    fn config(&self) -> String {
        format!(
            "[store]\npath = \"{}\"\n[range.all]\nvalues = [\"0-99999\"]\n\
             [range.net]\nvalues = [\"10.0.0.0/30\", \"2001:db8::/127\"]\n",
            self.0.join("store").display()
        )
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn parts(value: Value) -> Vec<String> {
    match value {
        Value::List(parts) => parts.iter().map(Value::text).collect(),
        other => panic!("no list: {other}"),
    }
}

/// What was acknowledged: the fence of each value that is held.
type Held = HashMap<String, String>;

/// Reserve and release until the server is gone, and note what it has said yes
/// to. What was asked and not answered counts for no client.
fn work(server: &Server, held: &Mutex<Held>, stop: &AtomicBool) {
    let mut wire = server.connect();
    let mut own: Vec<(String, String)> = Vec::new();
    let mut turn = 0;
    while !stop.load(Ordering::Relaxed) {
        turn += 1;
        let release = if turn % 3 == 0 { own.pop() } else { None };
        let line = match &release {
            Some((value, fence)) => {
                held.lock().unwrap().remove(value);
                format!("RELEASE {value} FENCE {fence}")
            }
            None => "RESERVE all TTL 3600000 KEY some DATA more".to_owned(),
        };
        let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        let sent = wire.try_write(&crate::wire::request(&words));
        let Ok(answer) = sent.and_then(|()| wire.try_read()) else {
            return;
        };
        match release {
            Some(_) => assert_eq!(answer.text(), "OK"),
            None => {
                let got = parts(answer);
                assert_eq!(got[0], "go");
                let before = held.lock().unwrap().insert(got[1].clone(), got[6].clone());
                assert_eq!(before, None, "{} was given twice", got[1]);
                own.push((got[1].clone(), got[6].clone()));
            }
        }
    }
}

fn check(server: &Server, held: &Held, unsure: usize) {
    let mut wire = server.connect();
    for (value, fence) in held {
        let seen = parts(wire.ask(&format!("LOOKUP {value}")));
        assert_eq!((seen[4].as_str(), &seen[6]), ("reserved", fence), "{value}");
    }
    let reserved = wire.ask("RANGE.STAT all").field("reserved").int();
    // At most what was asked for and never answered is held besides.
    let least = i64::try_from(held.len()).unwrap();
    let most = least + i64::try_from(unsure).unwrap();
    assert!((least..=most).contains(&reserved), "{reserved} of {least}");
}

#[test]
fn every_acknowledged_value_survives_kills_of_the_server_under_load() {
    let store = Store::new();
    let held = Mutex::new(Held::new());
    /// Each is in the middle of one thing at most.
    const THREADS: usize = 4;
    let mut unsure = 0;
    for round in 0..6 {
        let server = Server::with(&store.config());
        check(&server, &held.lock().unwrap(), unsure);
        let stop = AtomicBool::new(false);
        let goal = held.lock().unwrap().len() + 60;
        thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| work(&server, &held, &stop));
            }
            until("there is something to lose", || {
                held.lock().unwrap().len() >= goal
            });
            // All of them are in the middle of something.
            server.kill();
            stop.store(true, Ordering::Relaxed);
        });
        unsure += THREADS;
        drop(server);
        assert!(held.lock().unwrap().len() >= goal - 8, "round {round}");
    }
    let server = Server::with(&store.config());
    check(&server, &held.lock().unwrap(), unsure);
}

#[test]
fn redis_cli_reads_ranges_well() {
    let store = Store::new();
    let server = Server::with(&store.config());
    let run = |words: &[&str]| {
        let mut command = command("redis-cli");
        command.args(["-p", &server.port()]).args(words);
        let output = command.output().expect("redis-cli is installed");
        String::from_utf8(output.stdout).unwrap()
    };
    let said = run(&["RESERVE", "net", "TTL", "60000", "KEY", "mac", "DATA", "x"]);
    let lines: Vec<_> = said.lines().collect();
    assert_eq!(lines[..2], ["go", "10.0.0.0"]);
    let ticket = lines[2].to_owned();
    let said = run(&["LOOKUP", "KEY", "mac"]);
    assert!(said.starts_with("10.0.0.0\nmac\ndata\nx\n"), "{said}");
    let said = run(&["RESERVE", "2001:db8::/127"]);
    assert!(said.starts_with("go\n2001:db8::\n"), "{said}");
    assert_eq!(run(&["RELEASE", &ticket]), "OK\n");
}

/// A disk that takes no more: what was not written is not acknowledged, and
/// the server says what to do.
#[test]
fn a_store_that_fails_acknowledges_nothing_more() {
    let store = Store::new();
    let server = Server::with_file_limit(&store.config(), 2_200);
    let mut wire = server.connect();
    let data = "d".repeat(60_000);
    let mut acknowledged = Vec::new();
    let failed = loop {
        // A batch, so that good answers would be in front of the failure.
        for _ in 0..4 {
            wire.send(&format!("RESERVE all TTL 3600000 DATA {data}"));
        }
        let mut answers = Vec::new();
        while answers.len() < 4 {
            match wire.try_read() {
                Ok(Value::Error(text)) => {
                    answers.push(Err(text));
                    break;
                }
                Ok(answer) => answers.push(Ok(parts(answer))),
                Err(error) => panic!("no word of it: {error}"),
            }
        }
        acknowledged.extend(answers.iter().flatten().map(|got| got[1].clone()));
        if let Some(Err(text)) = answers.pop() {
            break text;
        }
        assert!(acknowledged.len() < 200, "it has room without end");
    };
    assert!(failed.starts_with("MISCONF the store failed: "), "{failed}");
    assert!(wire.is_closed(), "nothing follows");
    let mut other = server.connect();
    for line in ["RESERVE all", "LOOKUP 1", "RELEASE 1 FENCE 1", "REFRESH 1"] {
        let said = other.ask(line).text();
        assert!(
            said.starts_with("MISCONF the store failed: "),
            "{line}: {said}"
        );
        assert!(said.contains("started again"), "{said}");
    }
    assert_eq!(other.ask("PING").text(), "PONG", "the rest goes on");
    drop(other);
    drop(server);
    let server = Server::with(&store.config());
    let mut wire = server.connect();
    for value in acknowledged {
        let seen = parts(wire.ask(&format!("LOOKUP {value}")));
        assert_eq!(seen[4], "reserved", "{value} was acknowledged");
    }
}

#[test]
fn redis_py_leases_values() {
    const SCRIPT: &str = r#"
import sys, redis
for protocol in (2, 3):
    client = redis.Redis(port=int(sys.argv[1]), protocol=protocol, decode_responses=True)
    word, value, ticket, left, tier, hops, fence = client.execute_command(
        "RESERVE", "net", "TTL", 60000, "UNIQUE", f"host-{protocol}", "SET", "port", 7)
    assert (word, tier, hops) == ("go", "primary", 0) and isinstance(fence, int)
    seen = client.execute_command("LOOKUP", value)
    data = seen[2] if isinstance(seen[2], dict) else dict(zip(seen[2][::2], seen[2][1::2]))
    assert data == {"port": "7"}, seen
    pipe = client.pipeline(transaction=False)
    for _ in range(3):
        pipe.execute_command("REFRESH", ticket, "TTL", 90000)
    assert [answer[0] for answer in pipe.execute()] == ["ok"] * 3
    assert client.execute_command("RELEASE", value, "FENCE", fence) in ("OK", True)
    try:
        client.execute_command("REFRESH", value, "FENCE", fence)
        raise SystemExit("a stale holder went on")
    except redis.ResponseError as error:
        assert str(error).startswith("NOTHELD"), error
print("all is well")
"#;
    let store = Store::new();
    let server = Server::with(&store.config());
    let mut command = command(crate::clients::python());
    command.args(["-c", SCRIPT, &server.port()]);
    let output = command.stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let wrong = String::from_utf8_lossy(&output.stderr);
    assert_eq!(said, "all is well\n", "{wrong}");
}

#[test]
fn a_stopped_server_leaves_a_store_in_order() {
    let store = Store::new();
    let server = Server::with(&store.config());
    let mut wire: Wire = server.connect();
    let got = parts(wire.ask("RESERVE net TTL 3600000"));
    drop(wire);
    server.stop();
    let server = Server::with(&store.config());
    assert!(!server.said().contains("WARN"), "{}", server.said());
    let seen = parts(server.connect().ask(&format!("LOOKUP {}", got[1])));
    assert_eq!((seen[4].as_str(), &seen[6]), ("reserved", &got[6]));
}

#[test]
fn a_missing_key_of_tickets_is_said_and_a_damaged_one_stops_the_start() {
    let store = Store::new();
    let key = store.0.join("store/tickets.key");
    let reserve = |server: &Server| parts(server.connect().ask("RESERVE all TTL 3600000"));
    let server = Server::with(&store.config());
    let before = reserve(&server);
    let said = server.stop();
    assert!(!said.contains("tickets.key"), "{said}");

    // Gone: clients that have tickets are to be told.
    let kept = fs::read(&key).unwrap();
    fs::remove_file(&key).unwrap();
    let server = Server::with(&store.config());
    let mut wire = server.connect();
    let by_ticket = wire.ask(&format!("RELEASE {}", before[2]));
    by_ticket.is_error("NOSUCH ticket");
    let by_fence = wire.ask(&format!("RELEASE {} FENCE {}", before[1], before[6]));
    assert_eq!(by_fence.text(), "OK");
    let after = reserve(&server);
    let said = server.stop();
    let told = "tickets.key was missing, and a new key was made: tickets of the 1 values";
    assert!(said.contains(told), "{said}");

    // Damaged in any way: no client is to learn of it by wrong answers.
    let good = fs::read(&key).unwrap();
    let mut flipped = good.clone();
    flipped[7] ^= 1;
    for (bytes, what) in [
        (flipped, "its bytes do not fit their sum"),
        (good[..31].to_vec(), "it has 31 bytes instead of 40"),
        (Vec::new(), "it has 0 bytes instead of 40"),
    ] {
        fs::write(&key, bytes).unwrap();
        let said = Server::refuses(&store.config());
        assert!(
            said.contains("tickets.key") && said.contains(what),
            "{said}"
        );
        assert!(said.contains("Put a copy of it back"), "{said}");
    }
    // One that an earlier version wrote is good, and so is what was given with it.
    fs::write(&key, &good[..32]).unwrap();
    let server = Server::with(&store.config());
    let released = server.connect().ask(&format!("RELEASE {}", after[2]));
    assert_eq!(released.text(), "OK");
    server.stop();
    assert_eq!(fs::read(&key).unwrap(), good);
    assert_ne!(kept, good);
}
