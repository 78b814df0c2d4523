//! Nodes of a cluster on etcd, beside what each reservation would cost as a transaction of its
//! own on the same etcd, beside our store on a disk, and beside a script in Redis Cluster; and
//! their locks beside those of etcd and of several Redis servers.
//!
//! One operation is one command, or one transaction, that was answered after it was safe. A turn
//! is a reservation and its release. Three nodes and etcd run on this machine, so they share
//! its cores with the clients: read ratios. The processor time is that of all nodes and of etcd.

mod line;
mod locks;
mod many;
mod nodes;
mod parties;
mod redis;
mod takeover;
mod txn;

use crate::measure::{Plan, Subject, compare};
use crate::report::{Format, OURS, print, print_lines};
use crate::talk::{Dialog, Disk, Folder, Form, Goal, Server, Step, bulk, fail, frame, opening};
use crate::talk::{program, talk, talk_to, want_redis};
use nodes::Nodes;
use redis::RedisCluster;
use txn::EtcdTxn;

pub(crate) use many::run as run_many;

/// One transaction for each reservation.
const TXN: &str = "etcd-txn";
/// A script on three masters, which write to a disk.
const REDIS: &str = "redis-cluster";
/// Our server alone, with its own store on a disk.
const ALONE: &str = "rideau-disk";

const TTL_MS: &str = "3600000";
const DATA: &str = "gateway=10.255.0.1;circuit=ge-0/0/17:1042;vendor=0123456789abcde";
const RANGE: &str = "[range.pool]\nvalues = [\"10.0.0.0/12\"]\n[lock.\"*\"]\n";

/// How clients come.
struct Case {
    name: &'static str,
    title: &'static str,
    connections: usize,
    /// Commands that each sends at once.
    depth: usize,
    goals: &'static [Goal],
}

const CASES: [Case; 2] = [
    Case {
        name: "64",
        title: "cluster: 64 clients, one command at a time; etcd with 64 transactions in flight",
        connections: 64,
        depth: 1,
        goals: &[Goal::new(OURS, TXN, 1.0)],
    },
    Case {
        name: "48x16",
        title: "cluster: 16 clients at each of 3 nodes, 16 commands at a time; etcd as before",
        connections: 48,
        depth: 16,
        goals: &[Goal::new(OURS, TXN, 10.0)],
    },
];

pub(crate) fn run(plan: &Plan, format: Format) {
    let program = program();
    let Some(disk) = Disk::find() else {
        fail("no disk to keep anything on: set TMPDIR to a folder that is not in memory");
    };
    eprintln!("ours: {}, on {}", program.display(), disk.system);
    let nodes = Nodes::start(&program, &disk.folder, 3, RANGE);
    let txn = EtcdTxn::connect(&nodes.etcd);
    let folder = Folder::within(&disk.folder);
    let store = folder.path().join("store");
    let config = format!("[store]\npath = {store:?}\n{RANGE}");
    let alone = Server::ours(&program, 1, &config, folder);
    want_redis();
    let redis = RedisCluster::start(&disk.folder);
    for case in &CASES {
        contest(case, &nodes, (&txn, &redis), &alone, plan, format);
    }
    drop((redis, alone));
    locks::run(&nodes, &txn, plan, format);
    say_hops(&nodes);
    drop(txn);
    takeover::run(nodes, plan);
}

fn contest(
    case: &Case,
    nodes: &Nodes,
    (txn, redis): (&EtcdTxn, &RedisCluster),
    alone: &Server,
    plan: &Plan,
    format: Format,
) {
    let dialogs = || -> Vec<Dialog> { (0..case.connections).map(|_| dialog(case.depth)).collect() };
    let subjects = [
        Subject {
            name: OURS,
            run: Box::new(|| talk_to(&nodes.addresses(), &nodes.work(), dialogs(), plan)),
        },
        Subject {
            name: TXN,
            run: Box::new(|| txn.run(&nodes.etcd, plan)),
        },
        Subject {
            name: REDIS,
            run: Box::new(|| redis.run(case.connections, case.depth, plan)),
        },
        Subject {
            name: ALONE,
            run: Box::new(|| talk(alone, dialogs(), plan)),
        },
    ];
    let rows = compare(&subjects, plan);
    let verdicts = case.goals.iter().filter_map(|goal| goal.judge(&rows));
    match format {
        Format::Table => print_lines(case.title, &rows, verdicts),
        Format::Json => {
            print("cluster", case.name, &rows, format);
            for verdict in verdicts {
                eprintln!("cluster {} goal: {verdict}", case.name);
            }
        }
    }
}

/// Reserve, and give back what was reserved.
fn dialog(depth: usize) -> Dialog {
    let reserve = frame(&["RESERVE", "pool", "TTL", TTL_MS, "DATA", DATA]);
    let (yes, back) = (bulk("go"), 2);
    Dialog {
        form: Form::Resp { yes, back },
        greeting: None,
        first: Step::Same(reserve.repeat(depth), depth),
        second: Step::Back {
            head: opening(2, &["RELEASE"]),
            tails: vec![Vec::new()],
        },
    }
}

fn say_hops(nodes: &Nodes) {
    let numbers = nodes.numbers(&["hops_out", "down", "append_p50_us", "append_p99_us"]);
    for (name, said) in numbers {
        eprintln!("{name}: {said}");
    }
}
