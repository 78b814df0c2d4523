//! Servers that others start: the real program in front of real processes that come and go.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};

use rideau_testing::certificates::{papers_for, signer};
use rideau_testing::{Running, Start, command};
use serde_json::Value;

use crate::harness::{Harness, LONG, app_words, ask, folder, until};

/// Serves HTTP within TLS, and wants a certificate of its clients.
const TLS_SERVER: &str = "\
import http.server, ssl, sys
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'
    def do_GET(self):
        name = dict(self.connection.getpeercert()['subject'][0])['commonName']
        said = f'{names[-1]} {name} {self.headers[\"Host\"]} {self.client_address[1]}'.encode()
        self.send_response(200)
        self.send_header('Content-Length', str(len(said)))
        self.end_headers()
        self.wfile.write(said)
    def log_message(self, *words):
        pass
names = []
folder = sys.argv[1]
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(folder + '/api.pem', folder + '/api.key')
context.load_verify_locations(folder + '/ca.pem')
context.verify_mode = ssl.CERT_REQUIRED
context.sni_callback = lambda socket, name, context: names.append(name)
server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), Handler)
server.socket = context.wrap_socket(server.socket, server_side=True)
print(server.server_port, flush=True)
server.serve_forever()
";

fn free_port() -> u16 {
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    free.local_addr().unwrap().port()
}

/// The application for tests as a server that nothing of ours starts; it listens there.
fn server(variable: &str, place: &str) -> Running {
    let words: Vec<String> = serde_json::from_str(&app_words()).unwrap();
    let started = command(&words[0])
        .args(&words[1..])
        .env(variable, place)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .start();
    match variable {
        "PORT" => {
            let address = SocketAddr::from((Ipv4Addr::LOCALHOST, place.parse().unwrap()));
            until("it listens", || TcpStream::connect(address).is_ok());
        }
        _ => until("it listens", || Path::new(place).exists()),
    }
    started
}

fn server_at(port: u16) -> Running {
    server("PORT", &port.to_string())
}

/// A server within the test, which says the same to every request until it is stopped.
struct Tiny {
    address: SocketAddr,
    is_over: Arc<AtomicBool>,
    listening: Option<JoinHandle<()>>,
}

impl Tiny {
    fn new(at: SocketAddr, says: &str) -> Self {
        let listener = TcpListener::bind(at).unwrap();
        let address = listener.local_addr().unwrap();
        let is_over = Arc::new(AtomicBool::new(false));
        let (over, says) = (Arc::clone(&is_over), says.to_owned());
        let listening = thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if over.load(Ordering::Relaxed) {
                    break;
                }
                let (says, over) = (says.clone(), Arc::clone(&over));
                thread::spawn(move || serve(stream, &says, &over));
            }
        });
        Self {
            address,
            is_over,
            listening: Some(listening),
        }
    }
}

impl Drop for Tiny {
    /// It listens no more, and connections that are open end with the next request.
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        let _ = TcpStream::connect(self.address);
        let _ = self.listening.take().map(JoinHandle::join);
    }
}

fn serve(stream: TcpStream, says: &str, is_over: &AtomicBool) {
    let mut writer = stream.try_clone().unwrap();
    let mut lines = BufReader::new(stream).lines();
    while let Some(Ok(_)) = lines.next() {
        while lines
            .next()
            .is_some_and(|line| line.is_ok_and(|line| !line.is_empty()))
        {}
        let closes = match is_over.load(Ordering::Relaxed) {
            true => "Connection: close\r\n",
            false => "",
        };
        let len = says.len();
        let said = format!("HTTP/1.1 200 OK\r\nContent-Length: {len}\r\n{closes}\r\n{says}");
        if writer.write_all(said.as_bytes()).is_err() || !closes.is_empty() {
            break;
        }
    }
}

/// The rows of a table.
fn rows(harness: &Harness, table: &str) -> Vec<Value> {
    let said = harness.cli(&["--json", "status", table]);
    serde_json::from_str(&said).unwrap()
}

/// How many servers are in a state.
fn count(harness: &Harness, state: &str) -> usize {
    let rows = rows(harness, "processes");
    rows.iter().filter(|row| row["state"] == state).count()
}

/// Clients that ask again and again, until they are told to stop. Each failure is counted.
struct Load {
    is_over: Arc<AtomicBool>,
    asked: Arc<AtomicUsize>,
    clients: Vec<JoinHandle<Vec<String>>>,
}

impl Load {
    fn new(front: SocketAddr, clients: usize, method: &'static str, path: &'static str) -> Self {
        let (is_over, asked) = (Arc::<AtomicBool>::default(), Arc::<AtomicUsize>::default());
        let client = |_| {
            let (is_over, asked) = (Arc::clone(&is_over), Arc::clone(&asked));
            thread::spawn(move || {
                let mut failed = Vec::new();
                while !is_over.load(Ordering::Relaxed) {
                    match ask(front, method, "test", path, b"") {
                        Ok(answer) if answer.status == 200 => (),
                        Ok(answer) => failed.push(answer.head),
                        Err(error) => failed.push(error.to_string()),
                    }
                    asked.fetch_add(1, Ordering::Relaxed);
                }
                failed
            })
        };
        let clients = (0..clients).map(client).collect();
        Self {
            is_over,
            asked,
            clients,
        }
    }

    /// Wait until this many more were answered.
    fn more(&self, count: usize) {
        let goal = self.asked.load(Ordering::Relaxed) + count;
        until("they are answered", || {
            self.asked.load(Ordering::Relaxed) >= goal
        });
    }

    fn end(self) -> Vec<String> {
        self.is_over.store(true, Ordering::Relaxed);
        let clients = self.clients.into_iter();
        clients.flat_map(|client| client.join().unwrap()).collect()
    }
}

#[test]
fn one_of_three_servers_dies_and_comes_back_and_no_reader_notices() {
    let folder = folder();
    let ports = [free_port(), free_port(), free_port()];
    let mut servers: Vec<_> = ports.iter().map(|port| Some(server_at(*port))).collect();
    let list = ports.map(|port| format!("\"127.0.0.1:{port}\"")).join(", ");
    let upstream = format!("[upstream.api]\nservers = [{list}]\nconcurrency = 4\n");
    let harness = Harness::new(&folder, &upstream);
    until("all three serve", || count(&harness, "ready") == 3);
    let load = Load::new(harness.front, 6, "GET", "/sleep/2");
    load.more(50);
    let mut dead = servers[1].take().unwrap();
    let pid = dead.id();
    dead.kill().unwrap();
    dead.wait().unwrap();
    until("it is down", || count(&harness, "down") == 1);
    load.more(100);
    assert_eq!(load.end(), [""; 0], "reads are asked of another server");
    // What cannot be asked twice fails at a server that dies, and nowhere after that.
    let posts = Load::new(harness.front, 2, "POST", "/");
    posts.more(50);
    assert_eq!(posts.end(), [""; 0]);
    let explained = harness.cli(&["explain", "api"]);
    let down = format!("Server 127.0.0.1:{} has been down for", ports[1]);
    assert!(explained.contains("Upstream api is ready"), "{explained}");
    assert!(explained.contains(&down), "{explained}");
    assert!(explained.contains("1 of 3 servers are down"), "{explained}");
    servers[1] = Some(server_at(ports[1]));
    until("it is back", || count(&harness, "ready") == 3);
    until("it gets requests again", || {
        let answer = harness.get("/pid");
        assert_eq!(answer.status, 200);
        answer.body == servers[1].as_ref().unwrap().id().to_string()
    });
    assert_ne!(pid, servers[1].as_ref().unwrap().id());
    let events = harness.log();
    for said in ["is down: unreachable", "answers again after"] {
        let said = format!("server 127.0.0.1:{} {said}", ports[1]);
        assert!(events.contains(&said), "{said}: {events}");
    }
    harness.end();
}

#[test]
fn a_server_that_is_not_there_is_found_out_by_a_few_requests_of_which_none_fails() {
    let folder = folder();
    let (there, dead) = (free_port(), free_port());
    let server = server_at(there);
    let upstream =
        format!("[upstream.api]\nservers = [\"127.0.0.1:{dead}\", \"127.0.0.1:{there}\"]\n");
    let harness = Harness::new(&folder, &upstream);
    until("both are known", || rows(&harness, "processes").len() == 2);
    for _ in 0..60 {
        let answer = harness.ask("POST", "test", "/", b"a").unwrap();
        assert_eq!(answer.status, 200, "{answer:?}");
    }
    assert_eq!((count(&harness, "down"), count(&harness, "ready")), (1, 1));
    // With none left, a request is told so at once.
    drop(server);
    let answers: Vec<_> = (0..8).map(|_| harness.get("/")).collect();
    let last = answers.last().unwrap();
    assert_eq!(last.status, 503);
    assert_eq!(last.field("x-rideau-error"), Some("app_down"));
    assert!(last.field("retry-after").is_some());
    let said = rows(&harness, "apps");
    assert_eq!(said[0]["state"], "down");
    assert_eq!(said[0]["kind"], "upstream");
    assert_eq!(said[0]["down"], 2);
    harness.end();
}

#[test]
fn a_burst_waits_and_a_server_gets_no_more_than_it_serves_well() {
    let folder = folder();
    let port = free_port();
    let _server = server_at(port);
    let upstream = format!("[upstream.api]\nservers = [\"127.0.0.1:{port}\"]\n");
    let harness = Harness::with_front(&folder, "client_connections_max = \"none\"", &upstream);
    let mut clients: Vec<_> = (0..500)
        .map(|_| {
            let mut client = TcpStream::connect(harness.front).unwrap();
            client.set_read_timeout(Some(LONG)).unwrap();
            let ask = b"GET /sleep/5 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
            client.write_all(ask).unwrap();
            client
        })
        .collect();
    for client in &mut clients {
        let mut said = String::new();
        client.read_to_string(&mut said).unwrap();
        assert!(said.starts_with("HTTP/1.1 200 "), "{said}");
    }
    let busiest: usize = harness.get("/busiest").body.parse().unwrap();
    // What it may get is what it was told at first, or what was learnt since.
    let events = harness.log();
    let learnt = events.lines().filter_map(|line| {
        let (_, rest) = line.split_once(&format!("server 127.0.0.1:{port} gets "))?;
        rest.split(' ').next()?.parse().ok()
    });
    let most: usize = learnt.chain([16]).max().unwrap();
    assert!(busiest <= most, "{busiest} of {most}: {events}");
    harness.end();
}

#[test]
fn a_name_is_followed_to_its_new_address() {
    let folder = folder();
    let one = Tiny::new("127.0.0.1:0".parse().unwrap(), "one");
    let port = one.address.port();
    let hosts = folder.join("hosts");
    fs::write(&hosts, "127.0.0.1 api.internal\n").unwrap();
    let upstream =
        format!("[upstream.api]\nservers = [\"api.internal:{port}\"]\nlookup_every = \"50ms\"\n");
    let front = format!("hosts_file = {hosts:?}");
    let harness = Harness::with_front(&folder, &front, &upstream);
    // The first request waits until the name was looked up.
    assert_eq!(harness.get("/").body, "one");
    let other = Tiny::new(SocketAddr::from(([127, 0, 0, 2], port)), "two");
    let load = Load::new(harness.front, 3, "POST", "/");
    fs::write(folder.join("new"), "127.0.0.2 api.internal\n").unwrap();
    fs::rename(folder.join("new"), &hosts).unwrap();
    until("it is followed", || harness.get("/").body == "two");
    until("the old one is gone", || {
        rows(&harness, "processes").len() == 1
    });
    drop(one);
    load.more(20);
    assert_eq!(load.end(), [""; 0]);
    // As long as the name is not found, the address is kept.
    fs::write(&hosts, "").unwrap();
    until("that is said", || {
        let events = harness.log();
        events.contains("is not found") && events.contains("the addresses that it had are used")
    });
    assert_eq!(harness.get("/").body, "two");
    let row = &rows(&harness, "processes")[0];
    assert_eq!(row["address"], format!("127.0.0.2:{port}"));
    assert_eq!(row["server"], format!("api.internal:{port}"));
    drop(other);
    harness.end();
}

#[test]
fn servers_come_and_go_with_the_config_and_no_request_is_lost() {
    let folder = folder();
    let tiny: Vec<_> = ["one", "two", "three"]
        .iter()
        .map(|says| Tiny::new("127.0.0.1:0".parse().unwrap(), says))
        .collect();
    let upstream = |servers: &[&Tiny], more: &str| {
        let list: Vec<_> = servers
            .iter()
            .map(|it| format!("\"{}\"", it.address))
            .collect();
        format!("[upstream.api]\nservers = [{}]\n{more}", list.join(", "))
    };
    let harness = Harness::new(&folder, &upstream(&[&tiny[0]], ""));
    let load = Load::new(harness.front, 4, "POST", "/");
    let steps: [(&[&Tiny], &str); 5] = [
        (&[&tiny[0], &tiny[1]], ""),
        (&[&tiny[1]], ""),
        (&[&tiny[1], &tiny[2]], "keep_alive = \"500ms\"\n"),
        (&[&tiny[2]], "concurrency = 2\n"),
        (&[&tiny[0]], ""),
    ];
    for (servers, more) in steps {
        Harness::write(&folder, "", &upstream(servers, more));
        let plan = harness.cli(&["plan", folder.join("rideau.toml").to_str().unwrap()]);
        assert!(plan.contains("upstream.api.servers"), "{plan}");
        harness.cli(&["reload"]);
        until("just these serve", || {
            let rows = rows(&harness, "processes");
            let address = |row: &Value| row["address"].as_str().unwrap().to_owned();
            let mut found: Vec<_> = rows.iter().map(address).collect();
            let mut wanted: Vec<_> = servers.iter().map(|it| it.address.to_string()).collect();
            found.sort();
            wanted.sort();
            found == wanted
        });
        load.more(30);
    }
    assert_eq!(load.end(), [""; 0]);
    // One that an operator takes out gets nothing, and none is started or stopped here.
    let id = rows(&harness, "processes")[0]["id"].to_string();
    let mut operator = harness.peer();
    for words in [format!("APP.DISABLE {id}"), format!("APP.ENABLE {id}")] {
        assert_eq!(operator.say(&words), "+OK");
    }
    for words in [
        "APP.RESTART api",
        "APP.SPAWN api",
        "APP.SET api MIN 2",
        &format!("APP.KILL {id}"),
    ] {
        let said = operator.say(words);
        assert!(said.starts_with("-ERR "), "{words}: {said}");
    }
    assert_eq!(harness.get("/").body, "one");
    // The upstream becomes another, and goes.
    Harness::write(&folder, "", "[app.api]\nexec = APP\n");
    harness.cli(&["reload"]);
    assert!(harness.get("/").body.starts_with("ok GET /"));
    Harness::write(&folder, "", "");
    harness.cli(&["reload"]);
    assert_eq!(harness.get("/").status, 404);
    harness.end();
}

#[test]
fn bodies_streams_and_sockets_reach_a_server_as_they_reach_an_app() {
    let folder = folder();
    let socket = folder.join("api.sock").display().to_string();
    let server = server("RIDEAU_SOCKET", &socket);
    let port = free_port();
    let _other = server_at(port);
    let upstream = format!(
        "[upstream.api]\nservers = [\"unix:{socket}\"]\nhosts = [\"test\"]\n\
         [upstream.two]\nservers = [\"unix:{socket}\", \"127.0.0.1:{port}\"]\nhosts = [\"two\"]\n\
         sticky = \"seat\"\n"
    );
    let harness = Harness::new(&folder, &upstream);
    let body = vec![7; 12 << 20];
    let sent = harness.ask("POST", "test", "/echo", &body).unwrap();
    assert_eq!(sent.body, body.len().to_string());
    let got = harness.get("/source/12");
    assert_eq!(got.body.len(), 12 << 20);
    assert_eq!(harness.get("/events/3/1").body.matches("data: ").count(), 3);
    let mut talk = TcpStream::connect(harness.front).unwrap();
    talk.set_read_timeout(Some(LONG)).unwrap();
    let ask = b"GET /talk HTTP/1.1\r\nHost: test\r\nConnection: upgrade\r\nUpgrade: talk\r\n\r\n";
    talk.write_all(ask).unwrap();
    let mut lines = BufReader::new(talk.try_clone().unwrap());
    let mut line = String::new();
    lines.read_line(&mut line).unwrap();
    assert!(line.starts_with("HTTP/1.1 101 "), "{line}");
    while line != "\r\n" {
        line.clear();
        lines.read_line(&mut line).unwrap();
    }
    talk.write_all(b"hello").unwrap();
    let mut said = [0; 5];
    lines.read_exact(&mut said).unwrap();
    assert_eq!(&said, b"hello");
    until("it takes no place", || {
        rows(&harness, "apps")[0]["streams"] == 1
    });
    drop((talk, lines));
    // A cookie leads back to the same server.
    let first = harness.ask("GET", "two", "/pid", b"").unwrap();
    let cookie = first.field("set-cookie").unwrap();
    let cookie = cookie.split(';').next().unwrap();
    for _ in 0..8 {
        let again = harness.ask_saying("/pid", &format!("Host: two\r\nCookie: {cookie}\r\n"));
        assert_eq!(again.body, first.body);
    }
    drop(server);
    harness.end();
}

#[test]
fn servers_within_tls_are_known_by_their_certificates_and_know_us() {
    let folder = folder();
    let ours = signer("ours");
    for (name, hosts) in [
        ("api", &["api.internal"][..]),
        ("front", &["front.internal"]),
    ] {
        let papers = papers_for(name, hosts, &ours);
        fs::write(folder.join(format!("{name}.pem")), papers.certificate()).unwrap();
        fs::write(folder.join(format!("{name}.key")), papers.key()).unwrap();
    }
    fs::write(folder.join("ca.pem"), ours.pem()).unwrap();
    fs::write(folder.join("other.pem"), signer("others").pem()).unwrap();
    let mut server = command("python3")
        .args(["-c", TLS_SERVER])
        .arg(&folder)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .start();
    let mut said = BufReader::new(server.stdout.take().unwrap()).lines();
    let port: u16 = said.next().unwrap().unwrap().parse().unwrap();
    let upstream = |host: &str, tls: &str| {
        format!(
            "[upstream.{host}]\nservers = [\"127.0.0.1:{port}\"]\nhosts = [\"{host}\"]\n\
             tls = {{ {tls} }}\n"
        )
    };
    let own = "cert = \"FOLDER/front.pem\", key = \"FOLDER/front.key\"";
    let named = format!("name = \"api.internal\", {own}");
    let upstreams = [
        upstream("good", &format!("ca = \"FOLDER/ca.pem\", {named}")),
        upstream("stranger", &format!("ca = \"FOLDER/other.pem\", {named}")),
        upstream(
            "misnamed",
            &format!("ca = \"FOLDER/ca.pem\", name = \"b.internal\", {own}"),
        ),
        upstream("unknown", "ca = \"FOLDER/ca.pem\", name = \"api.internal\""),
    ];
    let harness = Harness::new(&folder, &upstreams.concat());
    let get = |host: &str| harness.ask("GET", host, "/", b"").unwrap();
    let first = get("good").body;
    assert!(first.starts_with("api.internal front good "), "{first}");
    assert_eq!(get("good").body, first, "the connection is used again");
    for host in ["stranger", "misnamed", "unknown"] {
        let answer = get(host);
        assert!(matches!(answer.status, 502 | 503), "{host}: {answer:?}");
    }
    harness.end();
}
