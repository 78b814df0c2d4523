//! Sockets that a supervisor opens and keeps: a restart makes clients wait.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::Stdio;
use std::time::Duration;

use rideau_testing::{Running, Signal, Start, command, signal};

use crate::served::{Folder, wait_for};

/// Nothing takes longer, unless it hangs.
const PATIENCE: Duration = Duration::from_secs(60);

/// Becomes the server, whose file 3 is the socket.
const BECOME: &str = r#"LISTEN_PID=$$ LISTEN_FDS=1 LISTEN_FDNAMES=web exec "$@" 3<&0 </dev/null"#;

/// Start a server that is passed this socket, as systemd does. Says where it serves.
fn start(socket: impl Into<OwnedFd>, listen: &str, more: &str) -> (Running, String) {
    start_by(BECOME, socket, listen, more)
}

/// The same, by another script.
fn start_by(
    script: &str,
    socket: impl Into<OwnedFd>,
    listen: &str,
    more: &str,
) -> (Running, String) {
    let folder = Folder::new("activation");
    let file = folder.0.join("rideau.toml");
    let config = format!("[server]\nlisten = [{listen:?}]\ndrain = \"10s\"\n[lock.\"*\"]\n{more}");
    fs::write(&file, config).unwrap();
    let mut server = command("sh");
    server.args(["-c", script, "sh", env!("CARGO_BIN_EXE_rideau")]);
    server.args(["serve", "--admin", "none", "-c"]).arg(&file);
    server.stdin(Stdio::from(socket.into()));
    let mut server = server.stdout(Stdio::piped()).stderr(Stdio::piped()).start();
    let mut line = String::new();
    let mut out = BufReader::new(server.stdout.take().unwrap());
    out.read_line(&mut line).unwrap();
    (server, line.trim_end().to_owned())
}

/// Say this, and hear one line.
fn ask(stream: &mut (impl Read + Write), line: &str) -> String {
    stream.write_all(format!("{line}\r\n").as_bytes()).unwrap();
    let mut said = Vec::new();
    while !said.ends_with(b"\r\n") {
        let mut byte = [0];
        assert_eq!(stream.read(&mut byte).unwrap(), 1, "{said:?}");
        said.push(byte[0]);
    }
    String::from_utf8(said).unwrap().trim_end().to_owned()
}

fn end(mut server: Running) {
    signal(server.id(), Signal::TERM);
    assert!(server.wait().unwrap().success());
}

#[test]
fn clients_wait_while_the_server_starts_again() {
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap().to_string();
    let connect = || {
        let stream = TcpStream::connect(&address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    };
    // No server runs yet.
    let mut early = connect();
    let (server, line) = start(socket.try_clone().unwrap(), &address, "");
    assert_eq!(line, format!("rideau serves at {address}"));
    assert_eq!(ask(&mut early, "PING"), "+PONG");
    assert_eq!(ask(&mut early, "LOCK k"), "*5");
    signal(server.id(), Signal::TERM);
    // While a holder has its time, the server that ends does not turn new
    // clients away.
    let mut quiet = BufReader::new(early);
    let mut told = String::new();
    while !told.contains("READONLY") {
        told.clear();
        quiet.get_mut().write_all(b"LOCK other\r\n").unwrap();
        quiet.read_line(&mut told).unwrap();
    }
    let mut waits = connect();
    waits.write_all(b"PING\r\n").unwrap();
    drop(quiet);
    end_of(server);
    let (server, _) = start(socket.try_clone().unwrap(), &address, "");
    let mut line = String::new();
    let mut waits = BufReader::new(waits);
    waits.read_line(&mut line).unwrap();
    assert_eq!(line, "+PONG\r\n");
    end(server);
}

fn end_of(mut server: Running) {
    assert!(server.wait().unwrap().success());
}

#[test]
fn a_socket_in_the_file_system_is_taken_over_and_stays() {
    let folder = Folder::new("unix-socket");
    let path = folder.0.join("sock");
    let socket = UnixListener::bind(&path).unwrap();
    let place = format!("unix:{}", path.display());
    for _ in 0..2 {
        let (server, line) = start(socket.try_clone().unwrap(), &place, "");
        assert_eq!(line, format!("rideau serves at {place}"));
        let mut stream = UnixStream::connect(&path).unwrap();
        assert_eq!(ask(&mut stream, "PING"), "+PONG");
        drop(stream);
        end(server);
        assert!(path.exists(), "it is the supervisor's");
    }
}

#[test]
fn a_member_does_not_get_the_socket() {
    let folder = Folder::new("member");
    let seen = folder.0.join("seen");
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap().to_string();
    let script = format!(
        "env > {0}.new; ls /proc/$$/fd >> {0}.new; mv {0}.new {0}; exec sleep 600",
        seen.display()
    );
    let pool = format!("[pool.p]\nmember = {{ exec = [\"sh\", \"-c\", {script:?}] }}\n");
    let (server, _) = start(socket, &address, &pool);
    let mut stream = TcpStream::connect(&address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let said = ask(&mut stream, "TAKE p WAIT 20000");
    assert!(said.starts_with('*'), "{said}");
    wait_for(&seen);
    let seen = fs::read_to_string(&seen).unwrap();
    assert!(!seen.contains("LISTEN_"), "{seen}");
    assert!(!seen.lines().any(|line| line == "3"), "{seen}");
    drop(stream);
    end(server);
}

#[test]
fn a_socket_that_no_option_names_is_told() {
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap().to_string();
    let (mut server, _) = start(socket, "127.0.0.1:0", "");
    let errors = BufReader::new(server.stderr.take().unwrap());
    let warned = errors.lines().map(Result::unwrap).any(|line| {
        line.contains(&format!("a socket at {address} was passed"))
            && line.contains("server.listen")
    });
    assert!(warned);
    end(server);

    let socket = TcpListener::bind("0.0.0.0:0").unwrap();
    let port = socket.local_addr().unwrap().port();
    let (mut server, line) = start(socket, &format!("127.0.0.1:{port}"), "");
    assert_eq!(line, "", "it does not start");
    let mut said = String::new();
    let mut errors = server.stderr.take().unwrap();
    errors.read_to_string(&mut said).unwrap();
    assert!(
        said.contains(&format!("server.listen or --listen (0.0.0.0:{port})")),
        "{said}"
    );
    assert!(!server.wait().unwrap().success());
}

/// What a server says that does not start.
fn complaint(mut server: Running) -> String {
    let mut said = String::new();
    let mut errors = server.stderr.take().unwrap();
    errors.read_to_string(&mut said).unwrap();
    assert!(!server.wait().unwrap().success());
    said
}

#[test]
fn the_front_finds_a_socket_by_its_name() {
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap().to_string();
    let front = "[front]\nlisten = [\"fd:web\"]\n";
    let (server, _) = start(socket.try_clone().unwrap(), "127.0.0.1:0", front);
    let mut stream = TcpStream::connect(&address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let said = ask(&mut stream, "GET / HTTP/1.1\r\nHost: a\r\n");
    assert_eq!(said, "HTTP/1.1 404 Not Found", "there is no app");
    end(server);
    // In the file system as well.
    let folder = Folder::new("web-socket");
    let path = folder.0.join("sock");
    let socket = UnixListener::bind(&path).unwrap();
    let (server, _) = start(socket, "127.0.0.1:0", front);
    let mut stream = UnixStream::connect(&path).unwrap();
    let said = ask(&mut stream, "GET / HTTP/1.1\r\nHost: a\r\n");
    assert_eq!(said, "HTTP/1.1 404 Not Found");
    end(server);
}

#[test]
fn a_name_that_no_socket_has_is_an_error() {
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let front = "[front]\nlisten = [\"fd:wbe\"]\n";
    let (server, _) = start(socket.try_clone().unwrap(), "127.0.0.1:0", front);
    let said = complaint(server);
    assert!(said.contains("cannot listen at fd:wbe: "), "{said}");
    assert!(said.contains("are called web"), "{said}");
    // Those of another process are not ours.
    let script = BECOME.replace("LISTEN_PID=$$", "LISTEN_PID=1");
    let front = "[front]\nlisten = [\"fd:web\"]\n";
    let (server, _) = start_by(&script, socket, "127.0.0.1:0", front);
    let said = complaint(server);
    assert!(said.contains("no socket was passed"), "{said}");
}
