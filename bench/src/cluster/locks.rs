//! Locks with fences: ours, etcd's own, and the recipe of several Redis servers.
//!
//! A turn is to take a lock that no other client wants, and to give it back. etcd's takes a
//! transaction and a deletion, each written by etcd, and its fence is the revision. The recipe
//! with Redis (Redlock) sets a key on three servers and counts a majority; it has no fence,
//! loses a lock when a server restarts without its memory, and holds only while the clocks
//! of all go alike.

use std::net::SocketAddr;
use std::time::Duration;

use rideau::store::etcd::{EtcdClient, EtcdRead, KeyRange, KeyStamp, LeaseId, Txn, TxnOp};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::nodes::Nodes;
use super::parties::{self, PARTIES, Party};
use super::txn::EtcdTxn;
use crate::measure::{Plan, Subject, compare};
use crate::report::{Format, OURS, print, print_lines};
use crate::talk::{Dialog, Folder, Form, Goal, Server, Step, bulk, frame, opening, talk_to};

const ETCD: &str = "etcd-lock";
const REDLOCK: &str = "redlock-3";
const TITLE: &str = "cluster: 64 clients, each with a lock of its own";
const GOALS: [Goal; 1] = [Goal::new(OURS, ETCD, 10.0)];
/// Longer than a run.
const LEASE: Duration = Duration::from_secs(600);
const GIVE_BACK: &str = "\
if redis.call('GET', KEYS[1]) == ARGV[1] then
  return redis.call('DEL', KEYS[1])
end
return 0
";

pub(super) fn run(nodes: &Nodes, etcd: &EtcdTxn, plan: &Plan, format: Format) {
    let servers: Vec<Server> = (0..3).map(|_| Server::redis(Folder::new())).collect();
    let scripts: Vec<String> = servers.iter().map(|it| load(it, GIVE_BACK)).collect();
    let addresses: Vec<SocketAddr> = servers.iter().map(|it| it.address).collect();
    let (redis, script) = (servers.iter().collect::<Vec<_>>(), &scripts[0]);
    let dialogs = || -> Vec<Dialog> { (0..PARTIES).map(dialog).collect() };
    let subjects = [
        Subject {
            name: OURS,
            run: Box::new(|| talk_to(&nodes.addresses(), &nodes.work(), dialogs(), plan)),
        },
        Subject {
            name: ETCD,
            run: Box::new(|| {
                parties::run(&etcd.runtime, &[&nodes.etcd], plan, async |at| {
                    EtcdParty::new(etcd.client.clone(), at).await
                })
            }),
        },
        Subject {
            name: REDLOCK,
            run: Box::new(|| {
                parties::run(&etcd.runtime, &redis, plan, async |at| {
                    RedlockParty::new(&addresses, script, at).await
                })
            }),
        },
    ];
    let rows = compare(&subjects, plan);
    let verdicts = GOALS.iter().filter_map(|goal| goal.judge(&rows));
    match format {
        Format::Table => print_lines(TITLE, &rows, verdicts),
        Format::Json => {
            print("cluster", "locks", &rows, format);
            for verdict in verdicts {
                eprintln!("cluster locks goal: {verdict}");
            }
        }
    }
}

fn dialog(at: usize) -> Dialog {
    Dialog {
        form: Form::Resp {
            yes: bulk("go"),
            back: 1,
        },
        greeting: None,
        first: Step::Same(frame(&["LOCK", &format!("job/{at}")]), 1),
        second: Step::Back {
            head: opening(2, &["RELEASE"]),
            tails: vec![Vec::new()],
        },
    }
}

/// Takes a lock of etcd's recipe, in which each client keeps one lease for all of its locks.
struct EtcdParty {
    client: EtcdClient,
    lease: LeaseId,
    key: String,
}

impl EtcdParty {
    async fn new(client: EtcdClient, at: usize) -> Self {
        let lease = client
            .grant_lease(LEASE)
            .await
            .expect("etcd grants a lease");
        Self {
            client,
            key: format!("/bench/locks/{at:02}/{:?}", lease.id),
            lease: lease.id,
        }
    }
}

impl Party for EtcdParty {
    async fn turn(&mut self) {
        let key = &self.key;
        let put = TxnOp::Put {
            key: key.clone().into(),
            value: Vec::new().into(),
            lease: Some(self.lease),
        };
        // The oldest key below the name has the lock.
        let read = EtcdRead::newest(KeyRange::key(key.clone()));
        let take = Txn::new()
            .when(key.clone(), KeyStamp::Created, 0)
            .then(put)
            .otherwise(TxnOp::Read(read));
        let reply = self.client.txn(take).await.expect("etcd answers");
        assert!(reply.holds, "no other client wants it");
        let give = TxnOp::Delete(KeyRange::key(key.clone()));
        let given = self.client.txn(Txn::new().then(give)).await;
        given.expect("etcd answers");
    }
}

/// Takes a lock of the recipe with three servers.
struct RedlockParty {
    lines: Vec<TcpStream>,
    script: String,
    at: usize,
    serial: u64,
}

impl RedlockParty {
    async fn new(addresses: &[SocketAddr], script: &str, at: usize) -> Self {
        let mut lines = Vec::new();
        for address in addresses {
            let stream = TcpStream::connect(address).await.expect("Redis listens");
            stream.set_nodelay(true).expect("it is a socket");
            lines.push(stream);
        }
        Self {
            lines,
            script: script.to_owned(),
            at,
            serial: 0,
        }
    }
}

impl Party for RedlockParty {
    async fn turn(&mut self) {
        self.serial += 1;
        let (key, token) = (format!("job/{}", self.at), format!("{}", self.serial));
        let take = frame(&["SET", &key, &token, "NX", "PX", "30000"]);
        let took = everywhere(&mut self.lines, &take, b"+OK").await;
        assert!(took >= 2, "no other client wants it");
        let give = frame(&["EVALSHA", &self.script, "1", &key, &token]);
        let gave = everywhere(&mut self.lines, &give, b":1").await;
        assert!(gave >= 2, "it was held");
    }
}

/// Gives Redis a script; says its name.
pub(super) fn load(server: &Server, script: &str) -> String {
    let answer = server.ask(&frame(&["SCRIPT", "LOAD", script]));
    let answer = String::from_utf8(answer).expect("a name of hexadecimal digits");
    let name = answer.lines().nth(1);
    name.expect("a name is a bulk string").to_owned()
}

/// Ask all servers at once. Says how many answered so.
async fn everywhere(lines: &mut [TcpStream], command: &[u8], yes: &[u8]) -> usize {
    for line in lines.iter_mut() {
        line.write_all(command).await.expect("Redis reads");
    }
    let mut said = 0;
    for line in lines {
        let mut answer = [0; 64];
        let mut len = 0;
        while !answer[..len].ends_with(b"\r\n") {
            let read = line.read(&mut answer[len..]).await.expect("Redis answers");
            assert!(read > 0, "Redis closed a connection");
            len += read;
        }
        said += usize::from(answer[..len].starts_with(yes));
    }
    said
}
