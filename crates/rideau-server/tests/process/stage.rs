//! What is done to a child before its program runs, and what is said if that
//! cannot be done.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::Path;

use rideau_process::{
    Address, Listen, Probe, Program, Ready, ResourceLimits, StartReport, StartStep, StopTarget,
};
use rideau_testing::{command, skipped};

use crate::given::{Given, inside};
use crate::harness::{
    ALONE, Harness, exists, number_in, program, python, runs, shell, texts, until,
};

/// Says over HTTP which process serves, at what it was given as file 3.
const INHERITOR: &str = "
import os, socket
assert os.environ['LISTEN_FDS'] == '1' and os.environ['LISTEN_FDNAMES'] == 'rideau'
assert os.environ['LISTEN_PID'] == str(os.getpid())
s = socket.socket(fileno=3)
while True:
    c = s.accept()[0]
    c.recv(9999)
    c.sendall(b'HTTP/1.1 404 No\\r\\nConnection: close\\r\\n\\r\\n%d' % os.getpid())
    c.close()
";

/// Says which files are open but the list itself.
const OPEN_FILES: &str = "
import os
files = sorted(map(int, os.listdir('/proc/self/fd')))
print([file for file in files if os.path.exists('/proc/self/fd/%d' % file)], flush=True)
";

/// What is reported, and that nothing is left.
async fn report(harness: &Harness, program: &Program) -> StartReport {
    let report = harness.start_reported(program).await.unwrap_err();
    assert_eq!(harness.files(), [""; 0], "{report:?}");
    if let Some(pid) = report.pid {
        until("the child's burial", || !exists(pid)).await;
    }
    *report
}

fn is_root() -> bool {
    let is_root = rideau_testing::is_root();
    if !is_root {
        skipped("only root may run programs as another user");
    }
    is_root
}

/// What a child that only writes has written.
async fn written(harness: &Harness, program: &Program) -> Vec<String> {
    let process = harness.start(program).await.unwrap();
    assert!(process.exited().await.is_clean());
    process.stop().await.unwrap();
    texts(&process)
}

#[tokio::test]
async fn whatever_cannot_be_is_told_with_its_step_and_the_systems_word() {
    let harness = Harness::new();
    let closed = harness.write("closed", "#!/bin/sh\n");
    let mut wanted = BTreeMap::new();
    let mut add = |program, step, errno, summary: &str| {
        wanted.insert(summary.to_owned(), (program, step, errno));
    };
    let lost = Program {
        directory: Some("/srv/none".into()),
        ..program(&["sleep", "1"], Ready::Started)
    };
    let text = "chdir /srv/none: No such file or directory";
    add(lost, StartStep::Chdir, Some(2), text);
    let closed = program(&[&closed], Ready::Started);
    let text = format!("exec {}: Permission denied", closed.argv[0]);
    add(closed, StartStep::Exec, Some(13), &text);
    let missing = program(&["/none/run"], Ready::Started);
    let text = "exec /none/run: No such file or directory";
    add(missing, StartStep::Exec, Some(2), text);
    let missing = program(&["none-run"], Ready::Started);
    let text = "exec none-run: No such file or directory";
    add(missing, StartStep::Exec, Some(2), text);
    let nobody = Program {
        user: Some("nobody2".to_owned()),
        ..program(&["sleep", "1"], Ready::Started)
    };
    add(nobody, StartStep::User, None, "user nobody2: unknown");
    let nobody = Program {
        group: Some("nobody2".to_owned()),
        ..program(&["sleep", "1"], Ready::Started)
    };
    add(nobody, StartStep::Group, None, "group nobody2: unknown");
    let greedy = Program {
        limits: ResourceLimits {
            files_max: Some(u64::MAX / 2),
            ..ResourceLimits::default()
        },
        ..program(&["sleep", "1"], Ready::Started)
    };
    let text = format!("limit files {}: Operation not permitted", u64::MAX / 2);
    add(greedy, StartStep::Limit, Some(1), &text);

    for (summary, (program, step, errno)) in &wanted {
        let report = report(&harness, program).await;
        assert_eq!(&report.summary, summary);
        assert_eq!((report.step, report.errno), (*step, *errno), "{summary}");
        assert_eq!(report.app, "test");
        assert_eq!(report.command, program.argv);
    }
}

#[tokio::test]
async fn what_another_user_may_not_do_is_told_too() {
    if !is_root() {
        return;
    }
    let harness = Harness::new();
    let private = harness.path().join("private");
    fs::create_dir(&private).unwrap();
    fs::set_permissions(&private, fs::Permissions::from_mode(0o700)).unwrap();
    let mut other = program(&["sleep", "1"], Ready::Started);
    other.user = Some("nobody".to_owned());
    other.directory = Some(private.clone());
    let told = report(&harness, &other).await;
    let summary = format!("chdir {}: Permission denied", private.display());
    assert_eq!((told.step, told.errno), (StartStep::Chdir, Some(13)));
    assert_eq!(told.summary, summary);
    assert_eq!(told.user.as_deref(), Some("nobody"));

    let script = harness.script("private/run", "#!/bin/sh\n");
    let mut other = program(&[&script], Ready::Started);
    other.user = Some("nobody".to_owned());
    let told = report(&harness, &other).await;
    assert_eq!(told.summary, format!("exec {script}: Permission denied"));
    assert!(told.pid.is_some(), "it came as far as a process");

    // The system counts the processes of a user when another becomes one.
    let mut crowded = program(&["sleep", "1000"], Ready::Started);
    crowded.user = Some("54322".to_owned());
    let _other = harness.start(&crowded).await.unwrap();
    crowded.limits.processes_max = Some(0);
    let told = harness.start_reported(&crowded).await.unwrap_err();
    let summary = "exec sleep: Resource temporarily unavailable";
    assert_eq!((&*told.summary, told.errno), (summary, Some(11)));
}

#[tokio::test]
async fn a_child_is_the_user_it_should_be_with_all_groups_and_no_more() {
    if !is_root() {
        return;
    }
    let harness = Harness::new();
    let mut other = shell(
        "id -u; id -g; id -G; echo $HOME $USER; umask",
        Ready::Started,
    );
    other.user = Some("nobody".to_owned());
    other.umask = Some(0o027);
    let users = fs::read_to_string("/etc/passwd").unwrap();
    let row = users.lines().find(|row| row.starts_with("nobody:"));
    let row: Vec<&str> = row.unwrap().split(':').collect();
    let home = format!("{} nobody", row[5]);
    let lines = written(&harness, &other).await;
    assert_eq!(lines, [row[2], row[3], row[3], &home, "0027"]);

    // By number, without a name, in a group of its own choice.
    other.user = Some("54321".to_owned());
    other.group = Some("12345".to_owned());
    let lines = written(&harness, &other).await;
    assert_eq!(lines[..3], ["54321", "12345", "12345"]);
}

#[tokio::test]
async fn another_user_has_a_socket_and_can_say_that_it_is_ready() {
    if !is_root() {
        return;
    }
    let harness = Harness::new();
    fs::set_permissions(harness.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let script = "
import os, socket
s = socket.socket(socket.AF_UNIX)
s.bind(os.environ['RIDEAU_SOCKET'])
s.listen()
n = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
n.connect(os.environ['NOTIFY_SOCKET'])
n.send(b'READY=1')
while True: s.accept()[0].sendall(b'%d' % os.getuid())
";
    let mut other = program(&["python3", "-c", script], Ready::Notify);
    other.listen = Listen::Socket;
    other.user = Some("nobody".to_owned());
    let process = harness.start(&other).await.unwrap();
    let Some(Address::Socket(path)) = process.address() else {
        panic!("{process:?}");
    };
    let folder = fs::metadata(path.parent().unwrap()).unwrap();
    assert_eq!(folder.mode() & 0o777, 0o700);
    assert_ne!(folder.uid(), 0);
    let mut text = String::new();
    let mut stream = UnixStream::connect(path).unwrap();
    stream.read_to_string(&mut text).unwrap();
    assert_eq!(text, folder.uid().to_string());
    drop(stream);
    process.stop().await.unwrap();
    assert_eq!(harness.files(), [""; 0]);
}

#[tokio::test]
async fn what_a_child_may_use_is_limited() {
    let harness = Harness::new();
    let mut limited = shell("ulimit -n; ulimit -c; ulimit -f; ulimit -v", Ready::Started);
    limited.limits = ResourceLimits {
        files_max: Some(64),
        processes_max: None,
        core_max: Some(0),
        address_space_max: Some(512 << 20),
        file_size_max: Some(1 << 20),
    };
    let lines = written(&harness, &limited).await;
    // The shell counts files in halves of a kilobyte, and memory in kilobytes.
    assert_eq!(lines, ["64", "0", "2048", "524288"]);
}

#[tokio::test]
async fn a_child_leads_a_session_and_hears_every_signal() {
    let harness = Harness::new();
    let script = "cat /proc/self/stat; grep SigIgn /proc/self/status; ls /proc/self/fd";
    let process = harness.start(&shell(script, Ready::Started)).await.unwrap();
    assert!(process.exited().await.is_clean());
    process.stop().await.unwrap();
    let lines = texts(&process);
    let (_, rest) = lines[0].rsplit_once(')').unwrap();
    let words: Vec<&str> = rest.split_whitespace().collect();
    let pid = process.pid().to_string();
    assert_eq!(words[2..4], [&pid, &pid], "its group and its session");
    assert_eq!(ignored(&lines[1]), 0);
    // The last is the list itself.
    assert_eq!(lines[2..], ["0", "1", "2", "3"]);
}

#[tokio::test]
async fn a_child_gets_no_more_rights_than_it_is_given_unless_it_may() {
    let harness = Harness::new();
    let mut asking = shell("grep NoNewPrivs /proc/self/status", Ready::Started);
    assert_eq!(written(&harness, &asking).await, ["NoNewPrivs:\t1"]);
    if is_root() {
        // The change of the user is ours, and needs no rights of the program.
        asking.argv[2] = "id -u; grep NoNewPrivs /proc/self/status".to_owned();
        asking.user = Some("nobody".to_owned());
        let lines = written(&harness, &asking).await;
        assert_eq!(lines, ["65534", "NoNewPrivs:\t1"]);
        asking.argv[2] = "grep NoNewPrivs /proc/self/status".to_owned();
    }
    asking.new_privileges = true;
    assert_eq!(written(&harness, &asking).await, ["NoNewPrivs:\t0"]);
}

/// The ordinary signals that are ignored.
fn ignored(row: &str) -> u64 {
    let set = row.strip_prefix("SigIgn:\t").unwrap();
    u64::from_str_radix(set, 16).unwrap() & 0x7fff_ffff
}

#[tokio::test]
async fn what_the_daemon_was_started_with_is_not_passed_on() {
    if std::env::var_os(ALONE).is_none() {
        let name = "stage::what_the_daemon_was_started_with_is_not_passed_on";
        let exe = std::env::current_exe().unwrap();
        let script = format!(
            "trap '' HUP USR1; exec 3</dev/null 5</dev/zero; exec {} --exact {name}",
            exe.display()
        );
        let mut again = command("sh");
        again.args(["-c", &script]).env(ALONE, "files");
        let output = again.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        return;
    }
    assert_eq!(
        fs::read_link("/proc/self/fd/5").unwrap(),
        Path::new("/dev/zero")
    );
    let far = fs::File::open("/dev/zero").unwrap();
    // It has a number of more than one digit, and no program closes it unasked.
    let far = rustix::io::fcntl_dupfd_cloexec(&far, 900).unwrap();
    rustix::io::fcntl_setfd(&far, rustix::io::FdFlags::empty()).unwrap();
    let harness = Harness::new();
    let script = "grep SigIgn /proc/self/status; ls /proc/self/fd";
    let lines = written(&harness, &shell(script, Ready::Started)).await;
    assert_eq!(ignored(&lines[0]), 0);
    assert_eq!(lines[1..], ["0", "1", "2", "3"]);
    let checked = format!("{OPEN_FILES}{INHERITOR}");
    let mut inheritor = program(&["python3", "-c", &checked], Ready::Auto(Probe::default()));
    inheritor.listen = Listen::InheritSocket;
    let process = harness.start(&inheritor).await.unwrap();
    // Its socket is there before it runs.
    until("it wrote a line", || !texts(&process).is_empty()).await;
    assert_eq!(texts(&process), ["[0, 1, 2, 3]"]);
    process.stop().await.unwrap();
}

#[tokio::test]
async fn a_child_is_given_the_socket_that_we_listen_at() {
    let harness = Harness::new();
    for listen in [Listen::InheritSocket, Listen::InheritPort] {
        let mut inheritor = program(&["python3", "-c", INHERITOR], Ready::Auto(Probe::default()));
        inheritor.listen = listen.clone();
        let process = harness.start(&inheritor).await.unwrap();
        let mut answer = String::new();
        let ask = b"GET / HTTP/1.1\r\n\r\n";
        match process.address().unwrap() {
            Address::Socket(path) => {
                let mut stream = UnixStream::connect(path).unwrap();
                stream.write_all(ask).unwrap();
                stream.read_to_string(&mut answer).unwrap();
            }
            Address::Port(address) => {
                let mut stream = std::net::TcpStream::connect(address).unwrap();
                stream.write_all(ask).unwrap();
                stream.read_to_string(&mut answer).unwrap();
            }
            Address::Said(_) => panic!("{process:?}"),
        }
        assert!(answer.ends_with(&process.pid().to_string()), "{answer}");
        process.stop().await.unwrap();
        assert_eq!(harness.files(), [""; 0]);
    }
}

#[tokio::test]
async fn a_program_that_needs_a_stage_is_refused_where_there_is_none() {
    let harness = Harness::bare();
    let mut other = program(&["sleep", "1"], Ready::Started);
    other.umask = Some(0o077);
    let error = harness.start(&other).await.unwrap_err().to_string();
    let why = "its options need the stage program, which is missing";
    assert_eq!(error, format!("cannot make room for a child: {why}"));
    assert_eq!(harness.files(), [""; 0]);
}

#[tokio::test]
async fn the_child_alone_is_asked_to_stop_if_its_program_says_so() {
    let harness = Harness::new();
    // Were the other one asked too, it would have written.
    let script = "
        trap 'sleep 0.2; exit 3' TERM
        sh -c 'trap \"echo asked >asked; exit\" TERM; echo up; while :; do sleep 0.01; done' &
        while :; do sleep 0.01; done";
    let mut program = shell(script, Ready::Line("up".to_owned()));
    program.directory = Some(harness.path().to_owned());
    program.stop_target = StopTarget::Child;
    let process = harness.start(&program).await.unwrap();
    let census = rideau_process::ProcessList::take();
    let usage = process.usage(&census);
    assert!((2..=4).contains(&usage.processes), "{usage:?}");
    assert!(usage.memory > 500_000, "{usage:?}");
    let exit = process.stop().await.unwrap();
    assert_eq!(exit, rideau_process::Exit::Code(3));
    assert!(!harness.path().join("asked").exists());
    assert!(!runs(process.pid()));
    assert_eq!(process.usage(&census).processes, 0, "it is gone");
}

#[tokio::test]
async fn a_program_is_told_of_its_address_in_every_way() {
    let harness = Harness::new();
    let words = ["echo", "$SOCKET", "{socket}", "$PORT", "$HOME"];
    let mut told = program(&words, Ready::Started);
    told.listen = Listen::Socket;
    let lines = written(&harness, &told).await;
    let socket = harness.folder.path().join("1.sock");
    let socket = socket.display();
    assert_eq!(lines, [format!("{socket} {socket} $PORT $HOME")]);

    let mut told = python(
        "import os,sys; print(os.environ['PORT'] == sys.argv[2], sys.argv[2].isdigit())",
        Ready::Started,
    );
    told.argv[4] = "$PORT".to_owned();
    told.listen = Listen::Port;
    assert_eq!(written(&harness, &told).await, ["True True"]);
}

#[tokio::test]
async fn a_child_has_a_cgroup_of_its_own_where_there_is_one_to_divide() {
    let Some(given) = Given::new() else {
        return;
    };
    let mut harness = Harness::new();
    let cgroup = Some(given.path().to_owned());
    harness.folder = harness.folder.clone().with_cgroup(cgroup);
    // Nothing but the cgroup says whose it is.
    let script = "(env -i setsid sh -c 'echo $$ >outside; exec sleep 1000' &)
        while ! test -s outside; do sleep 0.01; done; cat /proc/self/cgroup; echo up
        exec sleep 1000";
    let mut program = shell(script, Ready::Line("up".to_owned()));
    program.directory = Some(harness.path().to_owned());
    let process = harness.start(&program).await.unwrap();
    let outside = number_in(&harness.path().join("outside")).await;
    assert_eq!(given.parts().len(), 1);
    assert!(inside(&given.parts()[0]).contains(&outside));
    process.stop().await.unwrap();
    until("its end", || !runs(outside)).await;
    assert_eq!(given.parts().len(), 0);
}
