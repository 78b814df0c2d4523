//! Clients that have not logged in: how long they have, how many there may be, and
//! what a wrong password costs. Health checks are answered whatever others do.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;

use rideau_config::password::Hash;

use crate::server::{PATIENCE, Server, until};
use crate::wire::{Value, Wire, request};

const USERS: &str = r#"
[user.ops]
password_file = "{secret}"
allow = ["@all", "@admin"]

[user.low]
password_file = "{secret}"
allow = ["@lock"]

[lock."*"]
queue = { kind = "never" }
"#;

fn with(limits: &str) -> Server {
    Server::with_http(&format!("[limits]\n{limits}\n{USERS}"))
}

fn auth(wire: &mut Wire, user: &str, password: &str) -> Value {
    wire.ask_words(&[b"AUTH", user.as_bytes(), password.as_bytes()])
}

fn login(server: &Server, user: &str) -> Wire {
    let mut wire = server.connect();
    assert_eq!(auth(&mut wire, user, "open sesame").text(), "OK");
    wire
}

/// The texts of the events of a kind, the newest first.
fn events(ops: &mut Wire, kind: &str) -> Vec<String> {
    let Value::List(rows) = ops.ask("SHOW EVENTS COUNT 1000") else {
        panic!("no table");
    };
    let rows = rows.iter().skip(1);
    let rows = rows.filter(|row| row.at(2).text() == kind);
    rows.map(|row| row.at(4).text()).collect()
}

/// What HTTP answers to one request on a connection of its own.
fn http(server: &Server, path: &str, login: &str) -> String {
    let mut stream = TcpStream::connect(server.url().trim_start_matches("http://")).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let head =
        format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{login}\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    let mut said = String::new();
    let _ = stream.read_to_string(&mut said);
    said
}

#[test]
fn a_connection_that_does_not_log_in_is_closed_and_told_so() {
    let server = with("login_within = \"300ms\"");
    let mut ops = login(&server, "ops");
    let late = "NOAUTH limits.login_within (300ms) passed without a login";
    let mut silent = server.connect();
    silent.read().is_error(late);
    assert!(silent.is_closed());
    // One that always says something is no better.
    let mut busy = server.connect();
    until("it is told", || match busy.ask("PING") {
        Value::Error(text) => text.starts_with(late),
        pong => pong.text() != "PONG",
    });
    assert!(busy.is_closed());
    // Nor is one over HTTP, whatever it may see without a login.
    let place = server.url();
    let mut stream = TcpStream::connect(place.trim_start_matches("http://")).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let head = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n";
    stream.write_all(head).unwrap();
    let mut said = String::new();
    stream.read_to_string(&mut said).unwrap();
    assert!(said.starts_with("HTTP/1.1 200"), "{said}");
    assert_eq!(
        ops.ask("PING").text(),
        "PONG",
        "a client that has logged in stays"
    );
}

#[test]
fn an_address_has_no_more_connections_before_login_than_the_config_allows() {
    let server = with("before_login_max = 5\nlogin_within = \"10m\"");
    let mut ops = login(&server, "ops");
    let count = |ops: &mut Wire| ops.ask("SHOW LIMITS before_login_max").at(1).at(2).int();
    until("all others are gone", || count(&mut ops) == 0);
    let mut wires: Vec<Wire> = (0..5).map(|_| server.connect()).collect();
    until("all are there", || count(&mut ops) == 5);
    let refused = "BUSY limits.before_login_max (5) reached by connections from 127.0.0.1 that \
        have not logged in";
    let mut more = server.connect();
    more.write(&request(&[b"AUTH", b"ops", b"open sesame"]));
    more.read().is_error(refused);
    assert!(more.is_closed());
    // Whether the server is there is told to all.
    assert_eq!(server.connect().ask("PING").text(), "PONG");
    assert!(http(&server, "/healthz", "").starts_with("HTTP/1.1 200"));
    assert!(http(&server, "/readyz", "").starts_with("HTTP/1.1 200"));
    let crowded = http(&server, "/api/v1/state", "");
    assert!(crowded.starts_with("HTTP/1.1 503"), "{crowded}");
    assert!(crowded.contains("have not logged in"), "{crowded}");
    assert_eq!(auth(&mut wires[0], "ops", "open sesame").text(), "OK");
    assert_eq!(
        auth(&mut server.connect(), "ops", "open sesame").text(),
        "OK"
    );
    assert_eq!(ops.ask("PING").text(), "PONG");
}

#[test]
fn wrong_passwords_are_answered_ever_later_and_told_in_one_line() {
    let server = with("login_within = \"10m\"");
    let mut ops = login(&server, "ops");
    let mut wire = server.connect();
    for _ in 0..7 {
        auth(&mut wire, "ops", "wrong").is_error("WRONGPASS");
    }
    // This one waits for seconds. Others do not.
    wire.write(&request(&[b"AUTH", b"ops", b"wrong"]));
    until("it is counted", || {
        let stats = ops.ask("INFO stats").text();
        stats.contains("failed_logins:8")
    });
    let _ = login(&server, "low");
    assert_eq!(ops.ask("PING").text(), "PONG");
    assert!(wire.is_silent());
    wire.read().is_error("WRONGPASS");
    let told = events(&mut ops, "login");
    let failed: Vec<_> = told.iter().filter(|text| text.contains("failed")).collect();
    assert_eq!(failed, ["1 failed login from 127.0.0.1"], "{told:?}");
    let said = server.said();
    assert_eq!(said.matches("failed login").count(), 1, "{said}");
}

#[test]
fn a_client_that_does_not_wait_for_its_answer_gains_nothing() {
    let server = with("login_within = \"10m\"\npassword_checks_max = 1");
    let mut ops = login(&server, "ops");
    // Each would otherwise be checked at once, in memory of its own.
    for _ in 0..40 {
        let mut wire = server.connect();
        wire.write(&request(&[b"AUTH", b"ops", b"wrong"]));
    }
    let mut most = 0;
    until("all were checked and counted", || {
        most = most.max(server.memory());
        let stats = ops.ask("INFO stats").text();
        stats.contains("failed_logins:40\r\n")
    });
    assert!(most < 150 << 20, "{} MiB", most >> 20);
}

#[test]
fn logins_and_denials_are_told_with_who_it_was() {
    let server = with("login_within = \"10m\"");
    let mut ops = login(&server, "ops");
    let mut low = login(&server, "low");
    // user:open sesame
    let basic = "Authorization: Basic bG93Om9wZW4gc2VzYW1l\r\n";
    for _ in 0..3 {
        low.ask("CONFIG GET *").is_error("NOPERM");
        low.ask("CLIENT KILL 1").is_error("NOPERM");
        low.ask("SHOW EVENTS").is_error("NOPERM");
        let denied = http(&server, "/api/v1/events", basic);
        assert!(denied.starts_with("HTTP/1.1 403"), "{denied}");
    }
    let logins = events(&mut ops, "login");
    let from = |user: &str| format!("{user} logged in from 127.0.0.1:");
    let of = |user: &str| {
        let from = from(user);
        let mut of = logins.iter().filter(|text| text.starts_with(&from));
        assert!(of.clone().all(|text| text.ends_with("with a password")));
        of.by_ref().count()
    };
    assert_eq!(of("ops"), 1, "{logins:?}");
    assert_eq!(of("low"), 2, "once on each way: {logins:?}");
    let denials = events(&mut ops, "denied");
    let count = |right: &str| {
        let begin = format!("low was denied {right:?}: ");
        let of = denials.iter().filter(|text| text.starts_with(&begin));
        of.count()
    };
    assert_eq!((count("config"), count("show")), (1, 1), "{denials:?}");
    // Changes say who made them.
    ops.ask("CONFIG SET server.drain 7s");
    let Value::List(rows) = ops.ask("SHOW EVENTS COUNT 1000") else {
        panic!("no table");
    };
    let change = rows.iter().find(|row| row.at(2).text() == "config");
    assert_eq!(change.unwrap().at(5).text(), "ops");
}

#[test]
fn health_checks_are_answered_when_all_connections_are_taken() {
    let server = Server::with("[limits]\nconnections_max = 5\n");
    server.until_alone();
    let mut wires: Vec<Wire> = Vec::new();
    let full = "BUSY limits.connections_max (5) reached";
    until("there are too many", || {
        let mut wire = server.connect();
        match wire.ask("CLIENT ID") {
            Value::Error(text) => text.starts_with(full),
            _ => {
                wires.push(wire);
                false
            }
        }
    });
    for _ in 0..100 {
        let mut wire = server.connect();
        assert_eq!(wire.ask("PING").text(), "PONG");
        assert_eq!(wire.ask("PING").text(), "PONG");
        wire.ask("LOCK a").is_error(full);
        assert!(wire.is_closed());
    }
    // Clients that come to stay do not take that room from others for long.
    let mut idle: Vec<Wire> = (0..40).map(|_| server.connect()).collect();
    until("there is room for a ping again", || {
        let mut wire = server.connect();
        wire.try_write(&request(&[b"PING"])).is_ok()
            && wire
                .try_read()
                .is_ok_and(|pong| pong == Value::Text(b"PONG".to_vec()))
    });
    idle.iter_mut().for_each(|wire| wire.read().is_error(full));
    drop(wires);
    until("there is room again", || {
        matches!(server.connect().ask("CLIENT ID"), Value::Int(_))
    });
}

#[test]
fn a_changed_password_counts_at_once() {
    let server = with("login_within = \"10m\"");
    let mut ops = login(&server, "ops");
    let mut low = login(&server, "low");
    assert_eq!(low.ask("LOCK mine").word(), "go");
    let basic = "Authorization: Basic b3BzOm9wZW4gc2VzYW1l\r\n";
    for _ in 0..2 {
        assert!(http(&server, "/api/v1/state", basic).starts_with("HTTP/1.1 200"));
    }
    // The file says something else now, and the config has not been read again.
    let secret = server.file().with_file_name("secret");
    fs::write(&secret, "close sesame").unwrap();
    assert!(http(&server, "/api/v1/state", basic).starts_with("HTTP/1.1 401"));
    auth(&mut server.connect(), "ops", "open sesame").is_error("WRONGPASS");
    ops.ask("CONFIG RELOAD");
    let again = "NOAUTH";
    low.ask("LOCK more").is_error(again);
    ops.ask("SHOW POOLS").is_error(again);
    // What it held it still has when it comes in again as the same user.
    assert_eq!(auth(&mut low, "low", "close sesame").text(), "OK");
    assert_eq!(auth(&mut ops, "ops", "close sesame").text(), "OK");
    let holders = ops.ask("SHOW HOLDERS").to_string();
    assert!(holders.contains("mine"), "{holders}");
    // The same with a hash that stands in the config.
    let hash = Hash::of(b"open sesame").unwrap();
    let text = fs::read_to_string(server.file()).unwrap();
    let path = format!("password_file = {:?}", secret.display().to_string());
    let text = text.replacen(&path, &format!("password = {:?}", hash.as_str()), 1);
    fs::write(server.file(), text).unwrap();
    ops.ask("CONFIG RELOAD");
    ops.ask("SHOW POOLS").is_error(again);
    assert_eq!(low.ask("LOCK more").word(), "go", "its own is the same");
    auth(&mut ops, "ops", "close sesame").is_error("WRONGPASS");
    assert_eq!(auth(&mut ops, "ops", "open sesame").text(), "OK");
}

#[test]
fn what_others_can_read_is_said() {
    let folder = std::env::temp_dir().join(format!("rideau-private-{}", std::process::id()));
    let _ = fs::remove_dir_all(&folder);
    let secret = folder.with_extension("secret");
    fs::write(&secret, "open sesame").unwrap();
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o644)).unwrap();
    let config = format!(
        "[store]\npath = {:?}\n[range.all]\nvalues = [\"0-9\"]\n{}",
        folder.display().to_string(),
        USERS.replace("{secret}", &secret.display().to_string())
    );
    let mode = |path: &str| {
        let about = fs::metadata(folder.join(path)).unwrap();
        about.permissions().mode() & 0o777
    };
    let server = Server::with(&config);
    let mut ops = login(&server, "ops");
    ops.ask("RESERVE all TTL 60000").at(0);
    drop(ops);
    assert_eq!((mode(""), mode("ranges")), (0o700, 0o700));
    assert_eq!(mode("tickets.key"), 0o600);
    for file in fs::read_dir(folder.join("ranges")).unwrap() {
        let file = file.unwrap().path();
        let open = fs::metadata(&file).unwrap().permissions().mode() & 0o077;
        assert_eq!(open, 0, "{}", file.display());
    }
    let said = server.stop();
    let path = secret.display();
    let open = format!("{path} can be read by every account here (mode 644)");
    assert!(said.contains(&open), "{said}");
    assert!(said.contains(&format!("run chmod o= {path}")), "{said}");
    assert!(!said.contains("is open to others"), "{said}");
    let open = |path: &str, mode| {
        let path = folder.join(path);
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    };
    open("", 0o755);
    open("tickets.key", 0o640);
    let said = Server::with(&config).stop();
    let path = folder.display();
    for wanted in [
        format!("{path} is open to others (mode 755): run chmod 700 {path}"),
        format!(
            "{path}/tickets.key is open to others (mode 640): run chmod 600 {path}/tickets.key"
        ),
    ] {
        assert!(said.contains(&wanted), "{wanted} in {said}");
    }
    let _ = fs::remove_dir_all(&folder);
    let _ = fs::remove_file(&secret);
}

#[test]
fn the_memory_of_password_checks_comes_back() {
    const MIB: u64 = 1 << 20;
    let server = with("login_within = \"10m\"\npassword_checks_max = 4");
    drop(login(&server, "ops"));
    let before = server.memory();
    // Checks run on any of many threads, and none of them may keep what it used.
    for _ in 0..4 {
        let mut wires: Vec<Wire> = (0..24).map(|_| server.connect()).collect();
        for wire in &mut wires {
            wire.write(&request(&[b"AUTH", b"ops", b"open sesame"]));
        }
        for wire in &mut wires {
            assert_eq!(wire.read().text(), "OK");
        }
    }
    until("the memory has come back", || {
        server.memory() < before + 16 * MIB
    });
}
