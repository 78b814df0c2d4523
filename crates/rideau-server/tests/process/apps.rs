//! Applications as their front wants them: ready when they answer, reported
//! when they do not.

use std::net::TcpListener;
use std::time::Duration;

use rideau_process::{Address, Listen, Probe, Program, Ready, StartStep};

use crate::harness::{Harness, LONG, program, runs, texts, until};

const SOON: Duration = Duration::from_millis(400);

/// Serves at what the first words say, and answers with the statuses that
/// follow, the last one for ever.
const SERVER: &str = "
import os, socket, sys
if 'RIDEAU_SOCKET' in os.environ:
    s = socket.socket(socket.AF_UNIX)
    s.bind(os.environ['RIDEAU_SOCKET'])
    s.listen()
else:
    s = socket.create_server(('127.0.0.1', int(os.environ['PORT'])))
print('listens', flush=True)
answers = sys.argv[1:]
while True:
    c = s.accept()[0]
    line = c.recv(9999).split(b'\\r\\n')[0].decode()
    status = answers.pop(0) if len(answers) > 1 else answers[0]
    print(line, status, flush=True)
    c.sendall(b'HTTP/1.1 %s X\\r\\nContent-Length: 0\\r\\n\\r\\n' % status.encode())
    c.close()
";

fn server(listen: Listen, ready: Ready, answers: &[&str]) -> Program {
    let words = ["python3", "-c", SERVER];
    let mut server = program(&[&words[..], answers].concat(), ready);
    server.listen = listen;
    server
}

fn auto() -> Ready {
    Ready::Auto(Probe::default())
}

fn http(path: &str, exact_200: bool) -> Ready {
    Ready::Http {
        probe: Probe {
            path: path.to_owned(),
            ..Probe::default()
        },
        exact_200,
    }
}

#[tokio::test]
async fn a_process_that_answers_is_ready() {
    let harness = Harness::new();
    for listen in [Listen::Socket, Listen::Port] {
        let program = server(listen.clone(), http("/up", false), &["500", "503", "404"]);
        let process = harness.start(&program).await.unwrap();
        let asked = |status| format!("GET /up HTTP/1.1 {status}");
        until("all lines", || texts(&process).len() == 4).await;
        let lines = [asked(500), asked(503), asked(404)];
        assert_eq!(texts(&process)[1..], lines);

        let program = server(listen, http("/", true), &["204", "200"]);
        let process = harness.start(&program).await.unwrap();
        until("all lines", || texts(&process).len() == 3).await;
        let steps: Vec<StartStep> = process.steps().iter().map(|step| step.step).collect();
        assert_eq!(
            steps,
            [
                StartStep::Prepare,
                StartStep::Spawn,
                StartStep::Exec,
                StartStep::Ready
            ]
        );
    }
}

#[tokio::test]
async fn a_process_that_listens_is_ready_and_is_not_disturbed() {
    let harness = Harness::new();
    for listen in [Listen::Socket, Listen::Port] {
        let program = server(listen.clone(), Ready::Connect, &["200"]);
        let process = harness.start(&program).await.unwrap();
        assert!(process.address().is_some());
        until("its line", || texts(&process).len() == 1).await;
        process.stop().await.unwrap();
        assert_eq!(texts(&process), ["listens"]);
        assert_eq!(harness.files(), [""; 0]);
    }
}

#[tokio::test]
async fn a_process_is_ready_with_its_first_answer_whatever_that_is() {
    let harness = Harness::new();
    for listen in [Listen::Socket, Listen::Port] {
        let program = server(listen, auto(), &["500"]);
        let process = harness.start(&program).await.unwrap();
        until("its lines", || texts(&process).len() == 2).await;
        assert_eq!(texts(&process), ["listens", "GET / HTTP/1.1 500"]);
    }
}

/// It listens, closes a connection without a byte, cuts the head of the next answer off, and
/// has its code then.
const LATE: &str = "
import os, socket
s = socket.create_server(('127.0.0.1', int(os.environ['PORT'])))
s.accept()[0].close()
c = s.accept()[0]
c.recv(9999)
c.sendall(b'HTTP/1.1 200 OK\\r\\nContent-')
c.close()
c = s.accept()[0]
print(c.recv(9999).decode(), flush=True)
c.sendall(b'HTTP/1.1 401 X\\r\\nContent-Length: 0\\r\\n\\r\\n')
s.accept()
";

#[tokio::test]
async fn a_process_that_listens_before_it_can_answer_is_not_ready() {
    let harness = Harness::new();
    let probe = Probe {
        path: "/up".into(),
        host: "shop.example".into(),
        ..Probe::default()
    };
    let mut program = program(&["python3", "-c", LATE], Ready::Auto(probe));
    program.listen = Listen::Port;
    let process = harness.start(&program).await.unwrap();
    until("its lines", || texts(&process).len() >= 4).await;
    let asked = texts(&process).join("\n");
    for line in [
        "GET /up HTTP/1.1",
        "Host: shop.example",
        "User-Agent: rideau",
        "X-Rideau-Probe: ready",
    ] {
        assert!(asked.contains(line), "{asked}");
    }
}

#[tokio::test]
async fn a_process_that_sends_notes_is_ready_when_it_says_so() {
    let harness = Harness::new();
    let script = "
import os, socket, time
n = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
n.connect(os.environ['NOTIFY_SOCKET'])
n.send(b'STATUS=loading\\nEXTEND_TIMEOUT_USEC=60000000')
s = socket.create_server(('127.0.0.1', int(os.environ['PORT'])))
time.sleep(1.5 * float(os.environ['SPAN']))
print('now', flush=True)
time.sleep(0.05)
n.send(b'READY=1\\nSTATUS=open')
time.sleep(0.2)
n.send(b'STOPPING=1')
time.sleep(1000)
";
    let mut program = program(&["python3", "-c", script], auto());
    program.listen = Listen::Port;
    // The time is too short for it, if it did not ask for more. A busy machine may not
    // even have loaded it by then.
    let mut seconds = 1;
    let process = loop {
        program.start_timeout = Duration::from_secs(seconds);
        program.env = vec![("SPAN".to_owned(), seconds.to_string())];
        match harness.start(&program).await {
            Ok(process) => break process,
            Err(error) if seconds >= 16 => panic!("{error}"),
            Err(_) => seconds *= 2,
        }
    };
    assert_eq!(texts(&process), ["now"]);
    until("its last note", || process.is_stopping()).await;
    assert_eq!(process.status().as_deref(), Some("open"));
}

#[tokio::test]
async fn a_fixed_address_is_where_the_child_is_and_no_other_process() {
    let harness = Harness::new();
    let somebody = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = somebody.local_addr().unwrap();
    let fixed = Listen::Fixed(Address::Port(address));
    let mut program = server(fixed, Ready::Connect, &["200"]);
    let port = ("PORT".to_owned(), address.port().to_string());
    program.env = vec![port];
    let report = harness.start_reported(&program).await.unwrap_err();
    assert!(report.summary.contains("not its own listens"), "{report:?}");
    assert_eq!(report.address, Some(address.to_string()));
    drop(somebody);
    let process = harness.start(&program).await.unwrap();
    assert_eq!(process.address(), Some(&Address::Port(address)));
    process.stop().await.unwrap();

    let path = harness.path().join("fixed.sock");
    let socket = ("RIDEAU_SOCKET".to_owned(), path.display().to_string());
    program.listen = Listen::Fixed(Address::Socket(path.clone()));
    program.env = vec![socket];
    let process = harness.start(&program).await.unwrap();
    assert_eq!(process.address(), Some(&Address::Socket(path)));
}

#[tokio::test]
async fn a_process_that_never_listens_is_reported_with_what_it_could_do() {
    let harness = Harness::new();
    let mut never = program(&["sleep", "1000"], auto());
    never.listen = Listen::Port;
    never.start_timeout = SOON;
    let report = harness.start_reported(&never).await.unwrap_err();
    let address = report.address.clone().unwrap();
    let summary = format!("`sleep` was not ready within {SOON:?}: nothing listens at {address}");
    assert_eq!(report.summary, summary);
    assert_eq!(report.step, StartStep::Ready);
    assert!(report.took >= SOON);
    let advice = "have it listen at the port that PORT says, on 127.0.0.1";
    assert_eq!(report.advice, [advice]);
    assert!(!runs(report.pid.unwrap()));
    assert_eq!(harness.files(), [""; 0]);
    let json = serde_json::to_value(&report).unwrap();
    assert_eq!(json["step"], "ready");
    assert_eq!(json["steps"][0]["step"], "prepare");
    assert_eq!(json["command"][1], "1000");

    // It was passed a socket, and never accepts there.
    never.listen = Listen::InheritSocket;
    let report = harness.start_reported(&never).await.unwrap_err();
    assert!(report.summary.contains("did not answer at /"), "{report:?}");
    let advice = "have it accept at file 3, and answer there";
    assert_eq!(report.advice, [advice]);
}

#[tokio::test]
async fn a_process_that_listens_elsewhere_is_told_where() {
    let harness = Harness::new();
    // A child of the child, so that all processes that belong to it are looked
    // at.
    let script = "
import os, socket, time
if os.fork(): time.sleep(1000)
os.setsid()
s = socket.create_server(('127.0.0.1', 0))
print(s.getsockname()[1], flush=True)
time.sleep(1000)
";
    for listen in [Listen::Port, Listen::Socket] {
        let mut program = program(&["python3", "-c", script], auto());
        program.listen = listen;
        program.start_timeout = SOON;
        let report = loop {
            let report = harness.start_reported(&program).await.unwrap_err();
            let is_told = report.advice.iter().any(|text| text.contains("it listens"));
            if is_told || program.start_timeout > LONG {
                break report;
            }
            program.start_timeout *= 2;
        };
        let there = &report.lines[0].text;
        assert!(
            report.summary.ends_with(&format!("but at {there}")),
            "{report:?}"
        );
        let start = format!("it listens at {there}; have it listen at ");
        assert!(report.advice[0].starts_with(&start), "{report:?}");
        assert_eq!(harness.files(), [""; 0]);
    }
}

#[tokio::test]
async fn a_process_that_answers_badly_is_reported_with_its_answer() {
    let harness = Harness::new();
    let mut bad = server(Listen::Port, http("/up", true), &["404"]);
    bad.start_timeout = SOON;
    let report = loop {
        let report = harness.start_reported(&bad).await.unwrap_err();
        if report.lines.len() > 1 || bad.start_timeout > LONG {
            break report;
        }
        bad.start_timeout *= 2;
    };
    let said = "it answered 404 to GET /up at 127.0.0.1:";
    assert!(report.summary.contains(said), "{report:?}");
}

#[tokio::test]
async fn a_process_that_crashes_at_its_start_is_quoted_with_advice() {
    let harness = Harness::new();
    let script = "import none_of_this";
    let mut crash = program(&["python3", "-c", script], auto());
    crash.listen = Listen::Port;
    let report = harness.start_reported(&crash).await.unwrap_err();
    assert_eq!(
        report.summary,
        "`python3` exited with code 1 before it was ready"
    );
    let last = &report.lines.last().unwrap().text;
    assert!(last.contains("No module named"), "{report:?}");
    assert!(report.advice[0].starts_with("a module is missing"));
    assert_eq!(report.exit.unwrap().to_string(), "exited with code 1");
}
