//! Pools that lend processes: each way of being ready, and what becomes of a
//! process when it or its holder ends.

use tokio::io::AsyncReadExt;
use tokio::net::{TcpStream, UnixStream};

use crate::tests::members::harness::{Harness, Server, number_in, runs, until};
use crate::tests::members::peer::{Answer, Taken};

use rideau_testing::{Signal, signal};

/// Says its number to each client that connects.
const SERVER: &str = "
import os, socket, sys
mode, at = sys.argv[1], sys.argv[2]
if mode == 'socket':
    s = socket.socket(socket.AF_UNIX)
    s.bind(at)
    s.listen()
else:
    s = socket.create_server(('127.0.0.1', int(at)))
if mode == 'line':
    print('listening at %s:%d now' % s.getsockname(), flush=True)
if mode == 'notify':
    n = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    n.sendto(b'READY=1', os.environ['NOTIFY_SOCKET'])
while True:
    c = s.accept()[0]
    c.sendall(str(os.getpid()).encode())
    c.close()
";

/// The number of the process at an address.
async fn number_at(address: &str) -> i32 {
    let mut text = String::new();
    if address.starts_with('/') {
        let mut stream = UnixStream::connect(address).await.unwrap();
        stream.read_to_string(&mut text).await.unwrap();
    } else {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.read_to_string(&mut text).await.unwrap();
    }
    text.parse().unwrap()
}

async fn server(words: &str, more: &str) -> Server {
    let harness = Harness::new();
    let script = harness.script("server.py", SERVER);
    let pool = format!("[pool.p]\nmember = {{ exec = [\"python3\", {script:?}, {words} }}\n{more}");
    Server::start_in(harness, &pool).await
}

/// Take one, see that it serves and that it is lent again, and that it goes with
/// the server.
async fn serves(words: &str) -> String {
    let server = server(words, "").await;
    let mut peer = server.peer().await;
    let taken = peer.take("p").await;
    let pid = number_at(&taken.value).await;
    peer.release(&taken).await;
    let again = peer.take("p").await;
    assert_eq!(again.value, taken.value);
    assert_eq!(number_at(&again.value).await, pid);
    server.stop().await;
    assert!(!runs(pid));
    taken.value
}

#[tokio::test]
async fn a_process_that_listens_at_its_socket_is_lent() {
    let value = serves(r#""socket", "{socket}"], ready = "socket""#).await;
    assert!(value.ends_with(".sock"), "{value}");
}

#[tokio::test]
async fn a_process_that_listens_at_its_port_is_lent() {
    let value = serves(r#""port", "{port}"], ready = "port""#).await;
    assert!(value.starts_with("127.0.0.1:2"), "{value}");
}

#[tokio::test]
async fn a_process_that_says_that_it_is_ready_is_lent() {
    let value = serves(r#""notify", "{port}"], ready = "notify""#).await;
    assert!(value.starts_with("127.0.0.1:2"), "{value}");
}

#[tokio::test]
async fn a_process_that_writes_its_address_is_lent() {
    let value = serves(r#""line", "0"], ready = { line = "listening at {address}" }"#).await;
    assert!(value.starts_with("127.0.0.1:"), "{value}");
}

#[tokio::test]
async fn a_process_without_an_address_is_lent_by_its_number() {
    let pool = r#"member = { exec = ["sh", "-c", "exec sleep 1000"], ready = "started" }"#;
    let server = Server::start(&format!("[pool.p]\n{pool}")).await;
    let mut peer = server.peer().await;
    let pid = peer.take("p").await.value.parse().unwrap();
    assert!(runs(pid));
    server.stop().await;
    assert!(!runs(pid));
}

#[tokio::test]
async fn a_process_knows_its_variables_its_pool_and_its_folder() {
    let harness = Harness::new();
    let folder = harness.path("");
    let say = "echo up $COLOUR $WHERE $(pwd) $1; exec sleep 1000";
    let pool = format!(
        "[pool.p]\nmember = {{ exec = [\"sh\", \"-c\", \"{say}\", \"sh\", \"{{name}}-{{id}}\"], \
         dir = {folder:?}, env = {{ COLOUR = \"red\", WHERE = \"{{socket}}\" }}, \
         ready = {{ line = \"up {{address}} /\" }} }}"
    );
    let server = Server::start_in(harness, &pool).await;
    let taken = server.peer().await.take("p").await;
    assert_eq!(taken.value, "red");
    server.stop().await;
}

#[tokio::test]
async fn a_process_that_ends_while_it_is_idle_is_replaced_and_told_of() {
    let server = server(r#""socket", "{socket}"]"#, "init = 1\nmax = 1").await;
    let mut peer = server.peer().await;
    let taken = peer.take("p").await;
    let pid = number_at(&taken.value).await;
    peer.release(&taken).await;
    signal(pid, Signal::KILL);
    until("its end is told", || !server.events("p").is_empty()).await;
    let again = peer.take("p").await;
    assert_ne!(number_at(&again.value).await, pid);
    let said = &server.events("p")[0];
    let wanted = format!("the process {pid} ({}) was ended by SIGKILL", taken.value);
    assert!(said.starts_with(&wanted), "{said}");
    server.stop().await;
}

#[tokio::test]
async fn a_process_that_ends_while_it_is_held_is_replaced_and_its_holder_is_told() {
    let server = server(r#""socket", "{socket}"]"#, "max = 1").await;
    let mut peer = server.peer().await;
    let taken = peer.take("p").await;
    let pid = number_at(&taken.value).await;
    signal(pid, Signal::KILL);
    until("its end is told", || !server.events("p").is_empty()).await;
    // There is one member all the time, and another holder may have it.
    let mut other = server.peer().await;
    let again = other.take("p").await;
    assert_ne!(number_at(&again.value).await, pid);
    let members = server.daemon.catalog.load().pools["p"].pool.stats().members;
    assert_eq!((members.held, members.size()), (1, 1), "{members:?}");
    assert_eq!(peer.ask("HELD").await, Answer::List(Vec::new()));
    // The holder is told at its next ask, once, and whenever it names the ticket.
    let Answer::Error(lost) = peer.ask("TAKE p WAIT 1").await else {
        panic!("it was not told");
    };
    let ticket = &taken.ticket;
    assert!(lost.starts_with(&format!("LOST {ticket}=died: ")), "{lost}");
    assert_eq!(peer.ask("TAKE p WAIT 1").await.words()[0], "timeout");
    let Answer::Error(stale) = peer.ask(&format!("RELEASE {ticket}")).await else {
        panic!("it was released");
    };
    assert!(
        stale.contains("was lost when the member ended by itself"),
        "{stale}"
    );
    server.stop().await;
}

/// A shell and what it started: the number of each.
async fn family(more: &str) -> (Server, Taken, [i32; 2]) {
    let harness = Harness::new();
    let file = harness.path("below");
    let script = format!("sleep 1000 & echo $! > {}; wait", file.display());
    let member = format!("member = {{ exec = [\"sh\", \"-c\", \"{script}\"] }}");
    let server = Server::start_in(harness, &format!("[pool.p]\n{member}\nmax = 1\n{more}")).await;
    let mut peer = server.peer().await;
    let taken = peer.take("p").await;
    let pids = [taken.value.parse().unwrap(), number_in(&file).await];
    assert!(pids.into_iter().all(runs));
    // The connection is lost here, without a word.
    drop(peer);
    (server, taken, pids)
}

#[tokio::test]
async fn with_a_holder_that_crashed_goes_the_whole_group() {
    let (server, _, pids) = family("on_crash = \"replace\"").await;
    until("they are gone", || !pids.into_iter().any(runs)).await;
    let again = server.peer().await.take("p").await;
    assert_ne!(again.value, pids[0].to_string());
    server.stop().await;
}

#[tokio::test]
async fn a_process_outlives_a_crash_of_its_holder_where_the_file_says_so() {
    let (server, taken, pids) = family("on_crash = \"reuse\"").await;
    let again = server.peer().await.take("p").await;
    assert_eq!(again.value, taken.value);
    assert!(pids.into_iter().all(runs));
    server.stop().await;
    assert!(!pids.into_iter().any(runs));
}

#[tokio::test]
async fn a_process_that_does_not_stop_when_asked_to_is_killed() {
    let deaf = r#"["sh", "-c", "trap '' INT; echo up; while :; do sleep 1; done"]"#;
    let member =
        format!("member = {{ exec = {deaf}, ready = {{ line = \"up\" }}, stop_signal = \"INT\" }}");
    let server = Server::start(&format!("[pool.p]\n{member}\nstop_timeout = \"50ms\"")).await;
    let mut peer = server.peer().await;
    let taken = peer.take("p").await;
    let pid = taken.value.parse().unwrap();
    let failed = peer.ask(&format!("RELEASE {} FAIL", taken.ticket)).await;
    assert!(!matches!(failed, Answer::Error(_)), "{failed:?}");
    until("it is gone", || !runs(pid)).await;
    server.stop().await;
}

#[tokio::test]
async fn a_group_lends_processes_of_any_of_its_pools() {
    let pool = |name: &str| {
        let exec = r#"["sh", "-c", "exec sleep 1000"]"#;
        format!("[pool.{name}]\ngroup = \"g\"\nmax = 1\nmember = {{ exec = {exec} }}\n")
    };
    let server = Server::start(&(pool("a") + &pool("b"))).await;
    let mut peer = server.peer().await;
    let (one, two) = (peer.take("@g").await, peer.take("@g").await);
    assert_ne!(one.value, two.value);
    peer.release(&one).await;
    assert_eq!(peer.take("@g").await.value, one.value);
    server.stop().await;
}
