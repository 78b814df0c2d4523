//! Each way of being ready, and the address that comes of it.

use std::io::Read;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::sync::{Arc, Mutex};

use rideau_process::{Address, Process, Ready, Stream};

use crate::harness::{Harness, LONG, program, python, shell, texts, until};

/// Listens late, so that readiness is not what it was started with.
const SOCKET_SERVER: &str = "
import socket, sys, time
time.sleep(0.1)
s = socket.socket(socket.AF_UNIX)
s.bind(sys.argv[1])
time.sleep(0.1)
s.listen()
while True: s.accept()[0].sendall(b'hello')
";

const PORT_SERVER: &str = "
import socket, sys, time
time.sleep(0.1)
s = socket.create_server(('127.0.0.1', int(sys.argv[2])))
while True: s.accept()[0].sendall(b'hello')
";

const NOTIFIER: &str = "
import os, socket, time
s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
s.connect(os.environ['NOTIFY_SOCKET'])
s.send(b'WATCHDOG=1')
s.send(b'STATUS=loading\\nMAINPID=1')
s.send(b'READY=0')
s.send(b'\\xff\\nSTATUS=open\\nREADY=1')
s.send(b'STATUS=busy')
time.sleep(1000)
";

#[tokio::test]
async fn a_process_that_listens_at_its_socket_is_ready_and_that_is_its_address() {
    let harness = Harness::new();
    let process = harness
        .start(&python(SOCKET_SERVER, Ready::Socket))
        .await
        .unwrap();

    let Some(Address::Socket(path)) = process.address() else {
        panic!("{process:?}");
    };
    assert_eq!(
        process.address().unwrap().to_string(),
        path.to_str().unwrap()
    );
    assert_eq!(path.parent(), Some(harness.folder.path()));
    let mut text = String::new();
    UnixStream::connect(path)
        .unwrap()
        .read_to_string(&mut text)
        .unwrap();
    assert_eq!(text, "hello");

    assert!(process.is_alive());
    process.stop().await.unwrap();
    assert!(!process.is_alive());
    assert_eq!(harness.files(), [""; 0]);
}

#[tokio::test]
async fn a_process_that_listens_at_its_port_is_ready_and_that_is_its_address() {
    let harness = Harness::new();
    let program = python(PORT_SERVER, Ready::Port);
    let first = harness.start(&program).await.unwrap();
    let second = harness.start(&program).await.unwrap();
    for process in [&first, &second] {
        let Some(Address::Port(address)) = process.address() else {
            panic!("{process:?}");
        };
        let mut text = String::new();
        let mut stream = TcpStream::connect(address).unwrap();
        stream.read_to_string(&mut text).unwrap();
        assert_eq!(text, "hello");
    }
    assert_ne!(first.address(), second.address());
}

#[tokio::test]
async fn a_port_of_the_newer_loopback_will_do() {
    if TcpListener::bind("[::1]:0").is_err() {
        // Not every machine has one.
        return;
    }
    let harness = Harness::new();
    let script = PORT_SERVER.replace(
        "('127.0.0.1', int(sys.argv[2]))",
        "('::1', PORT), family=10",
    );
    let script = script.replace("PORT", "int(sys.argv[2])");
    let process = harness.start(&python(&script, Ready::Port)).await.unwrap();
    let address = process.address().unwrap().to_string();
    assert!(address.starts_with("[::1]:"), "{address}");
}

#[tokio::test]
async fn a_port_that_was_taken_is_replaced_by_another() {
    let harness = Harness::new();
    let taken = Arc::new(Mutex::new(Vec::new()));
    // The first child waits while a stranger takes its port.
    let script = format!(
        "echo {{port}}; while ! test -e go; do sleep 0.01; done
         exec python3 -c \"{PORT_SERVER}\" - {{port}}"
    );
    let mut program = shell(&script, Ready::Port);
    program.directory = Some(harness.path().to_owned());
    let go = harness.path().join("go");
    let strangers = Arc::clone(&taken);
    let take = move |line: &rideau_process::OutputLine| {
        let mut strangers = strangers.lock().unwrap();
        if let (true, Ok(port)) = (strangers.is_empty(), line.text.parse::<u16>()) {
            strangers.push(TcpListener::bind((Ipv4Addr::LOCALHOST, port)).unwrap());
            std::fs::write(&go, "").unwrap();
        }
    };
    let process = Process::start(&program, &harness.folder, take)
        .await
        .unwrap();

    let stranger = taken.lock().unwrap()[0].local_addr().unwrap();
    let Some(Address::Port(address)) = process.address() else {
        panic!("{process:?}");
    };
    assert_ne!(*address, stranger);
    let mut text = String::new();
    TcpStream::connect(address)
        .unwrap()
        .read_to_string(&mut text)
        .unwrap();
    assert_eq!(text, "hello");
    process.stop().await.unwrap();
    assert_eq!(harness.files(), [""; 0]);
}

#[tokio::test]
async fn a_child_that_complains_of_its_port_gets_another_though_it_is_free_again() {
    let harness = Harness::new();
    let script = format!(
        "echo {{port}} >> ports
         test -e seen || {{ touch seen; echo 'bind: Address already in use' >&2; exit 1; }}
         exec python3 -c \"{PORT_SERVER}\" - {{port}}"
    );
    let mut program = shell(&script, Ready::Port);
    program.directory = Some(harness.path().to_owned());
    let process = harness.start(&program).await.unwrap();
    let ports = std::fs::read_to_string(harness.path().join("ports")).unwrap();
    let ports: Vec<_> = ports.lines().collect();
    assert_eq!(ports.len(), 2, "{ports:?}");
    assert_ne!(ports[0], ports[1]);
    let address = process.address().unwrap().to_string();
    assert!(address.ends_with(ports[1]), "{address} {ports:?}");
}

#[tokio::test]
async fn a_process_that_says_so_is_ready_and_may_say_what_it_does() {
    let harness = Harness::new();
    let process = harness
        .start(&python(NOTIFIER, Ready::Notify))
        .await
        .unwrap();
    until("the last status", || {
        process.status().as_deref() == Some("busy")
    })
    .await;
    // It was told of both, and the socket comes first.
    assert!(matches!(process.address(), Some(Address::Socket(_))));
    process.stop().await.unwrap();
    assert_eq!(harness.files(), [""; 0]);
}

#[tokio::test]
async fn a_line_makes_ready_and_may_carry_the_address() {
    let harness = Harness::new();
    for (script, text, address) in [
        ("echo a; echo now ready; exec sleep 1000", "ready", None),
        ("echo now ready >&2; exec sleep 1000", "ready", None),
        (
            "echo listening on 127.0.0.1:99 now; exec sleep 1000",
            "listening on {address}",
            Some(Address::Port(([127, 0, 0, 1], 99).into())),
        ),
        (
            "echo at unix:/x/y.sock, ok; exec sleep 1000",
            "unix:{address}, ",
            Some(Address::Socket("/x/y.sock".into())),
        ),
        (
            "echo; echo CAD-7; exec sleep 1000",
            "{address}",
            Some(Address::Said("CAD-7".to_owned())),
        ),
    ] {
        let ready = Ready::Line(text.to_owned());
        let process = harness.start(&shell(script, ready)).await.unwrap();
        assert_eq!(process.address(), address.as_ref(), "{script}");
    }
}

#[tokio::test]
async fn a_process_that_only_has_to_run_is_ready_at_once() {
    let harness = Harness::new();
    let process = harness
        .start(&program(&["sleep", "1000"], Ready::Started))
        .await
        .unwrap();
    assert_eq!(process.address(), None);
    assert!(process.is_alive());
    assert!(process.uptime() < LONG);
    // The system shows a new program's words a moment after it has begun.
    let words = format!("/proc/{}/cmdline", process.pid());
    let sleeps = || std::fs::read(&words).unwrap() == b"sleep\x001000\0";
    until("the program's words", sleeps).await;
}

#[tokio::test]
async fn every_line_is_passed_on_and_the_last_are_kept() {
    let harness = Harness::new();
    let script = "echo out; echo error >&2; printf '%020000d\\n' 1; printf end; exit 0";
    let heard = Arc::new(Mutex::new(Vec::new()));
    let lines = Arc::clone(&heard);
    let mut program = shell(script, Ready::Started);
    program.output.lines_max = 2;
    let process = Process::start(&program, &harness.folder, move |line| {
        lines.lock().unwrap().push(line.clone());
    });
    let process = process.await.unwrap();
    assert!(process.exited().await.is_clean());
    process.stop().await.unwrap();

    let heard = heard.lock().unwrap();
    let find = |text: &str| heard.iter().find(|line| line.text == text).unwrap();
    assert_eq!(heard.len(), 4);
    assert_eq!(find("out").stream, Stream::Output);
    assert_eq!(find("error").stream, Stream::Error);
    assert_eq!(find("end").stream, Stream::Output);
    let long = heard.iter().find(|line| line.cut).unwrap();
    assert_eq!(long.text.len(), program.output.line_bytes_max);
    assert_eq!(process.last_lines(), heard[2..]);
}

#[tokio::test]
async fn much_output_without_an_end_of_line_stops_no_process() {
    let harness = Harness::new();
    let script = "head -c 20000000 /dev/zero; echo; echo done; exec sleep 1000";
    let process = harness
        .start(&shell(script, Ready::Line("done".to_owned())))
        .await
        .unwrap();
    let kept: usize = texts(&process).iter().map(String::len).sum();
    assert!(kept < 70_000, "{kept}");
}

/// Says so, then whatever it is told to.
const SPEAKER: &str = "
import os, socket, sys, time
s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
s.connect(os.environ['NOTIFY_SOCKET'])
s.send(b'READY=1')
";

#[tokio::test]
async fn what_strangers_say_of_a_child_is_not_heard() {
    let harness = Harness::new();
    let script = format!(
        "{SPEAKER}print(os.environ['NOTIFY_SOCKET'], flush=True)
if os.fork() == 0:
    s.send(b'STATUS=its own')
    while not os.path.exists('go'): time.sleep(0.01)
    s.send(b'STOPPING=1')
time.sleep(1000)"
    );
    let mut program = python(&script, Ready::Notify);
    program.directory = Some(harness.path().to_owned());
    let process = harness.start(&program).await.unwrap();
    until("a child of the child is heard", || {
        process.status().as_deref() == Some("its own")
    })
    .await;
    until("it says where", || !texts(&process).is_empty()).await;
    let stranger = UnixDatagram::unbound().unwrap();
    let place = texts(&process)[0].clone();
    stranger.send_to(b"STATUS=a stranger", &place).unwrap();
    // Notes are heard in order, so the next comes after that.
    std::fs::write(harness.path().join("go"), "").unwrap();
    until("the last note", || process.is_stopping()).await;
    assert_eq!(process.status().as_deref(), Some("its own"));
}

#[tokio::test]
async fn a_process_that_promises_signs_of_life_and_is_silent_is_noticed() {
    let harness = Harness::new();
    // Alive for a while, and then not.
    let script = format!(
        "{SPEAKER}assert os.environ['WATCHDOG_USEC'] == '300000'
for _ in range(8):
    s.send(b'WATCHDOG=1')
    time.sleep(0.1)
print('silent', flush=True)
time.sleep(1000)"
    );
    let mut program = python(&script, Ready::Notify);
    program.watchdog = Some(std::time::Duration::from_millis(300));
    let process = harness.start(&program).await.unwrap();
    tokio::time::timeout(LONG, process.silent()).await.unwrap();
    assert!(process.is_alive());
}

#[tokio::test]
async fn a_child_may_promise_signs_of_life_by_itself_or_say_that_it_hangs() {
    let harness = Harness::new();
    for note in ["WATCHDOG_USEC=100000", "WATCHDOG=trigger"] {
        let script = format!("{SPEAKER}s.send(b'{note}')\ntime.sleep(1000)");
        let process = harness
            .start(&python(&script, Ready::Notify))
            .await
            .unwrap();
        tokio::time::timeout(LONG, process.silent()).await.unwrap();
    }
    let script = format!("{SPEAKER}s.send(b'WATCHDOG=1\\nSTATUS=on')\ntime.sleep(1000)");
    let process = harness
        .start(&python(&script, Ready::Notify))
        .await
        .unwrap();
    until("it has spoken", || process.status().is_some()).await;
    let silent = process.silent();
    let soon = std::time::Duration::from_millis(300);
    let promised = tokio::time::timeout(soon, silent).await;
    assert!(promised.is_err(), "it has promised nothing");
}
