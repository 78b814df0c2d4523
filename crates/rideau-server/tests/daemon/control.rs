//! Control of a server: only its own account and root have it.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use rideau_daemon::control;
use rideau_testing::{Start, command as program, is_root, skipped};

use crate::server::{PATIENCE, Server, free_port};
use crate::wire::Value;

/// An account that owns nothing.
const NOBODY: &str = "65534";

/// The program itself, as an account that is not the server's.
fn as_nobody(folder: &Path, words: &[&str]) -> Command {
    // What is built may be where only its builder can go.
    let copy = folder.join("rideau");
    if !copy.exists() {
        fs::copy(env!("CARGO_BIN_EXE_rideau"), &copy).unwrap();
    }
    fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).unwrap();
    let mut command = program("setpriv");
    command
        .args(["--reuid", NOBODY, "--regid", NOBODY, "--clear-groups"])
        .arg(copy)
        .args(words)
        .env_remove("XDG_RUNTIME_DIR");
    command
}

fn said(output: &Output) -> String {
    let (out, error) = (&output.stdout, &output.stderr);
    String::from_utf8_lossy(out).into_owned() + &String::from_utf8_lossy(error)
}

#[test]
fn a_stranger_uses_everything_and_controls_nothing() {
    let server = Server::start();
    let mut stranger = server.connect();
    assert_eq!(stranger.ask("LOCK key").word(), "go");
    assert_eq!(stranger.ask("TAKE one").word(), "go");
    assert!(stranger.ask("INFO").text().contains("uptime"));
    for line in [
        "CONFIG SET log.level warn",
        "CONFIG APPLY x",
        "POOL.ADD p x",
        "POOL.PAUSE one",
        "RANGE.ADD r x",
        "APP.RESTART a",
        "APP.LOG a",
        "MONITOR",
    ] {
        stranger.ask(line).is_error("NOAUTH ");
    }
    for line in ["CLIENT KILL 1", "SHOW CONFIG"] {
        stranger
            .ask(line)
            .is_error("NOAUTH this is not open to all");
    }
    // It is told what would help.
    let file = control::find(server.port().parse().unwrap()).unwrap();
    let file = file.with_extension("token");
    let advice = format!(
        "NOAUTH CONFIG is not open to all: use the command line of Rideau on the server's \
         account, log in with the token in {}, or add a user to the config.",
        file.display()
    );
    stranger.ask("CONFIG GET *").is_error(&advice);
    assert_eq!(stranger.ask("PING").text(), "PONG");
}

#[test]
fn the_token_makes_an_operator() {
    let server = Server::start();
    let token = server.token();
    assert_eq!(token.len(), 64);
    for login in [
        format!("AUTH {token}"),
        format!("AUTH operator {token}"),
        format!("HELLO 3 AUTH default {token}"),
    ] {
        let mut wire = server.connect();
        assert!(!matches!(wire.ask(&login), Value::Error(_)), "{login}");
        assert_eq!(wire.ask("CONFIG SET log.level warn").text(), "OK");
        // It stays after the change.
        assert_eq!(wire.ask("CONFIG SET log.level info").text(), "OK");
        let list = wire.ask("CLIENT INFO").text();
        assert!(list.contains("user=operator"), "{list}");
    }
    let mut wire = server.connect();
    let wrong = format!("AUTH {}", token.replace(&token[..1], "x"));
    wire.ask(&wrong).is_error("ERR there is no password here");
    wire.ask("CONFIG SET log.level warn").is_error("NOAUTH");
}

#[test]
fn the_files_are_closed_and_go_with_the_server() {
    let server = Server::start();
    let socket = control::find(server.port().parse().unwrap()).unwrap();
    let token = socket.with_extension("token");
    let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
    assert_eq!(mode(socket.parent().unwrap()), 0o700);
    assert_eq!((mode(&socket), mode(&token)), (0o600, 0o600));
    let mut stream = UnixStream::connect(&socket).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(b"CONFIG SET log.level warn\r\n").unwrap();
    let mut answer = [0; 5];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"+OK\r\n");
    drop(stream);
    server.stop();
    assert!(!socket.exists() && !token.exists());
}

#[test]
fn an_http_client_needs_the_token_to_act() {
    let server = Server::with_http(crate::server::CONFIG);
    let address = server.url().replace("http://", "");
    let ask = |head: &str, headers: &str| {
        let mut stream = TcpStream::connect(&address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let text = format!(
            "{head} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nRideau-Csrf: 1\r\n\
             {headers}\r\n"
        );
        stream.write_all(text.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer.split(' ').nth(1).unwrap().to_owned()
    };
    let token = server.token();
    let bearer = format!("Authorization: Bearer {token}\r\n");
    let wrong = format!("Authorization: Bearer {}\r\n", "0".repeat(64));
    let pause = "POST /api/v1/pools/one/pause";
    assert_eq!(ask(pause, ""), "401");
    assert_eq!(ask(pause, &wrong), "401");
    assert_eq!(ask("GET /api/v1/config", ""), "401");
    assert_eq!(ask("GET /api/v1/state", ""), "200");
    assert_eq!(ask("GET /", ""), "200");
    assert_eq!(ask(&format!("GET /?token={token}"), ""), "200");
    // An address is kept and shown, so only the page takes it from there.
    assert_eq!(ask(&format!("{pause}?token={token}"), ""), "401");
    assert_eq!(ask(pause, &bearer), "200");
    assert_eq!(ask("GET /api/v1/config", &bearer), "200");
}

#[test]
fn another_account_of_the_machine_gets_nothing() {
    if !is_root() {
        return skipped("another account of the machine gets nothing (needs root)");
    }
    let server = Server::with_http(crate::server::CONFIG);
    let folder = server.file().parent().unwrap().to_owned();
    let proof = folder.join("proof");
    let evil = folder.join("evil.toml");
    let config = fs::read_to_string(server.file()).unwrap();
    let exec = format!(
        "[pool.evil]\nmember = {{ exec = [\"sh\", \"-c\", \"id > {}; sleep 60\"] }}\ninit = 1\n",
        proof.display()
    );
    fs::write(&evil, config + &exec).unwrap();
    let address = server.address().to_string();
    let evil = evil.display().to_string();
    let apply = ["--server", &address, "apply", &evil];
    let done = as_nobody(&folder, &apply).output().unwrap();
    assert!(said(&done).contains("NOAUTH"), "{}", said(&done));
    assert_eq!(done.status.code(), Some(1), "{done:?}");
    // Not by the files either.
    let socket = control::find(server.port().parse().unwrap()).unwrap();
    let at_socket = format!("unix:{}", socket.display());
    let done = as_nobody(&folder, &["--server", &at_socket, "apply", &evil]);
    let done = { done }.output().unwrap();
    assert!(said(&done).contains("Permission denied"), "{}", said(&done));
    let read = program("setpriv")
        .args([
            "--reuid",
            NOBODY,
            "--regid",
            NOBODY,
            "--clear-groups",
            "cat",
        ])
        .arg(socket.with_extension("token"))
        .output();
    assert!(!read.unwrap().status.success());
    // An operator who has opened the socket to others has not given them the
    // server.
    // It has a second name, for the folder is that of all servers.
    let opened = PathBuf::from(format!("/run/rideau-control-{}", std::process::id()));
    fs::create_dir_all(&opened).unwrap();
    let second = opened.join("sock");
    fs::hard_link(&socket, &second).unwrap();
    fs::set_permissions(&second, fs::Permissions::from_mode(0o777)).unwrap();
    let at_second = format!("unix:{}", second.display());
    let done = as_nobody(&folder, &["--server", &at_second, "apply", &evil]);
    let done = { done }.output().unwrap();
    let text = "NOPERM this socket is for root and the account of the server";
    assert!(said(&done).contains(text), "{}", said(&done));
    fs::remove_dir_all(&opened).unwrap();
    assert!(!proof.exists());
    // The account of the server itself needs no word.
    let done = program(env!("CARGO_BIN_EXE_rideau"))
        .args(apply)
        .output()
        .unwrap();
    assert!(done.status.success(), "{}", said(&done));
    crate::server::until("the program of the pool has run", || proof.exists());
}

#[test]
fn one_application_has_no_port_but_its_own() {
    let folder = scratch();
    let port = free_port();
    let runtime = folder.join("xdg");
    fs::create_dir(&runtime).unwrap();
    let listen = format!("127.0.0.1:{port}");
    let app = folder.join("app.py");
    fs::copy(
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/apps/app.py"),
        &app,
    )
    .unwrap();
    let words = [
        "run",
        "--listen",
        &listen,
        "--",
        "python3",
        app.to_str().unwrap(),
    ];
    // Root's servers share a folder, so there another account has one of its own.
    let command = |words: &[&str]| {
        let mut command = match is_root() {
            true => as_nobody(&folder, words),
            false => {
                let mut command = program(env!("CARGO_BIN_EXE_rideau"));
                command.args(words);
                command
            }
        };
        // Servers of other tests are found in the temporary folder of this account.
        command
            .env("XDG_RUNTIME_DIR", &runtime)
            .env("TMPDIR", &runtime)
            .current_dir(&folder);
        command
    };
    if is_root() {
        std::os::unix::fs::chown(&runtime, Some(65534), Some(65534)).unwrap();
    }
    let mut running = command(&words).stderr(Stdio::piped()).start();
    let lines = BufReader::new(running.stderr.take().unwrap()).lines();
    let lines: Vec<_> = lines.take(2).map(Result::unwrap).collect();
    let socket = runtime.join(format!("rideau/control.d/{port}.sock"));
    assert_eq!(
        lines,
        [
            format!("rideau serves at http://{listen}"),
            format!("rideau is controlled at unix:{}", socket.display()),
        ]
    );
    assert_eq!(listening_ports(running.id()), [port]);
    // The command line finds it without a word.
    let status = command(&["status", "apps"]).output().unwrap();
    assert!(said(&status).contains("python3"), "{}", said(&status));
    let restart = command(&["restart", "python3"]).output().unwrap();
    assert!(restart.status.success(), "{}", said(&restart));
    drop(running);
    let _ = fs::remove_dir_all(&folder);
}

/// A folder that goes with the test.
fn scratch() -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let path = std::env::temp_dir().join(format!("rideau-control-{}-{number}", std::process::id()));
    let _ = fs::remove_dir_all(&path);
    fs::create_dir(&path).unwrap();
    path
}

/// The TCP ports at which a process itself listens.
fn listening_ports(pid: u32) -> Vec<u16> {
    let entries = fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten();
    let links = entries.filter_map(|entry| fs::read_link(entry.path()).ok());
    let links: Vec<_> = links.map(|link| link.display().to_string()).collect();
    let mut ports = Vec::new();
    for table in ["tcp", "tcp6"] {
        let table = fs::read_to_string(format!("/proc/{pid}/net/{table}")).unwrap_or_default();
        for line in table.lines().skip(1) {
            let cells: Vec<_> = line.split_whitespace().collect();
            let is_ours = links.contains(&format!("socket:[{}]", cells[9]));
            if cells[3] == "0A" && is_ours {
                let (_, port) = cells[1].rsplit_once(':').unwrap();
                ports.push(u16::from_str_radix(port, 16).unwrap());
            }
        }
    }
    ports
}

#[test]
fn an_application_of_another_account_cannot_reach_the_control_socket() {
    if !is_root() {
        return skipped("an application of another account (needs root)");
    }
    let folder = scratch();
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o777)).unwrap();
    let (port, front) = (free_port(), free_port());
    let script = folder.join("app.py");
    let (found, base) = (folder.join("found"), folder.join("base"));
    let text = format!(
        "import os, socket, time\n\
         while not os.path.exists({base:?}): time.sleep(0.01)\n\
         base = open({base:?}).read()\n\
         found = []\n\
         try:\n    socket.socket(socket.AF_UNIX).connect(base + '.sock'); found.append('socket')\n\
         except OSError as error: found.append(error.strerror)\n\
         try:\n    open(base + '.token'); found.append('token')\n\
         except OSError as error: found.append(error.strerror)\n\
         open({found:?}, 'w').write(f'{{os.getuid()}} {{found}}\\n')\n"
    );
    fs::write(&script, text).unwrap();
    let config = folder.join("rideau.toml");
    let text = format!(
        "[server]\nlisten = [\"127.0.0.1:{port}\"]\nadmin = \"none\"\n\
         [front]\nlisten = [\"127.0.0.1:{front}\"]\n\
         [app.shop]\nexec = [\"/usr/bin/python3\", {script:?}]\nuser = \"nobody\"\nmin = 1\n"
    );
    fs::write(&config, text).unwrap();
    let running = program(env!("CARGO_BIN_EXE_rideau"))
        .args(["serve", "-c"])
        .arg(&config)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .start();
    // It could find out by itself where they are.
    let socket = || control::find(port);
    crate::server::until("the server listens", || socket().is_some());
    let path = socket().unwrap().with_extension("");
    let (begun, whole) = (folder.join("begun"), path.to_str().unwrap());
    fs::write(&begun, whole).unwrap();
    fs::rename(&begun, &base).unwrap();
    let read = || fs::read_to_string(&found).unwrap_or_default();
    crate::server::until("the application has tried", || read().ends_with('\n'));
    assert_eq!(read(), "65534 ['Permission denied', 'Permission denied']\n");
    drop(running);
    let _ = fs::remove_dir_all(&folder);
}
