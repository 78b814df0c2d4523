//! Cluster clients that people have already, with their default settings, against three nodes
//! of which one is killed: redis-py, valkey-py, node-redis, ioredis and redis-cli.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rideau_testing::certificates::{papers_for, signer};
use rideau_testing::{Scratch, Start, command};

use crate::clients::{IOREDIS, NODE_REDIS, node, python, python_of_valkey, run, script};
use crate::cluster::{Rig, until_spread};
use crate::cluster_locks::keys_of;
use crate::cluster_straight::three;
use crate::server::{Server, free_port, until};
use crate::wire::Value;

/// Run a script for three nodes. It knows any port of one node, and kills another.
#[track_caller]
fn run_for_three(command: &mut Command) {
    let rig = Rig::start();
    let (nodes, ports) = three(&rig);
    let killed = ports[1].port().to_string();
    let pid = nodes[1].pid().to_string();
    let said = run(command.args([nodes[0].port(), killed, pid]));
    assert_eq!(said, "all is well\n");
    // The script has killed it.
    nodes[1].kill();
}

#[test]
fn redis_py_finds_the_node_of_each_name_and_ticket() {
    run_for_three(
        command(python())
            .arg(script("cluster_client.py"))
            .arg("redis"),
    );
}

/// Clients that speak TLS are told the ports within TLS, and others the others.
#[test]
fn redis_py_finds_them_within_tls() {
    let rig = Rig::start();
    let secured = Secured::three(&rig);
    let [first, killed, _] = &secured.nodes;
    let mut plain = first.server.connect();
    until("plain clients are told of plain ports", || {
        let told = plain.ask("CLUSTER SLOTS");
        let port = |range: &Value| range.at(2).at(1).int();
        let told: BTreeSet<_> = told.parts().iter().map(port).collect();
        told == BTreeSet::from(secured.nodes.each_ref().map(|node| node.straight.into()))
    });
    let said = run(command(python())
        .arg(script("cluster_client.py"))
        .args(["redis", &first.tls.to_string()])
        .args([
            killed.straight_tls.to_string(),
            killed.server.pid().to_string(),
        ])
        .arg(&secured.authority));
    assert_eq!(said, "all is well\n");
    // The script has killed it.
    killed.server.kill();
}

/// Nodes with all ports that there are.
struct Secured {
    nodes: [SecuredNode; 3],
    authority: PathBuf,
    _files: Scratch,
}

struct SecuredNode {
    server: Server,
    tls: u16,
    straight: u16,
    straight_tls: u16,
}

impl Secured {
    fn three(rig: &Rig) -> Self {
        let files = Scratch::new();
        let signer = signer("nodes");
        let identity = papers_for("a node", &["127.0.0.1"], &signer);
        let authority = files.join("ca.pem");
        let (cert, key) = (files.join("node.pem"), files.join("node.key"));
        fs::write(&authority, signer.pem()).unwrap();
        fs::write(&cert, identity.certificate()).unwrap();
        fs::write(&key, identity.key()).unwrap();
        let nodes = ["n1", "n2", "n3"].map(|name| {
            let (tls, straight_tls) = (free_port(), free_port());
            let config = rig.config(name, 2);
            let more = format!("listen_straight_tls = \"127.0.0.1:{straight_tls}\"\npartitions");
            let config = format!(
                "tls_listen = [\"127.0.0.1:{tls}\"]\n{}[tls]\ncert = {cert:?}\nkey = {key:?}\n",
                config.replace("partitions", &more)
            );
            let (server, straight) = Rig::straight(&config);
            SecuredNode {
                server,
                tls,
                straight: straight.port(),
                straight_tls,
            }
        });
        nodes.iter().for_each(|node| until_spread(&node.server, 3));
        Self {
            nodes,
            authority,
            _files: files,
        }
    }
}

#[test]
fn valkey_py_finds_the_node_of_each_name_and_ticket() {
    let mut python = command(python_of_valkey());
    run_for_three(python.arg(script("cluster_client.py")).arg("valkey"));
}

#[test]
fn node_redis_finds_the_node_of_each_name_and_ticket() {
    let mut program = command("node");
    run_for_three(
        program
            .arg(script("cluster_client.mjs"))
            .arg(node(NODE_REDIS)),
    );
}

#[test]
fn ioredis_is_sent_to_the_node_of_each_name() {
    let mut program = command("node");
    run_for_three(
        program
            .arg(script("cluster_ioredis.mjs"))
            .arg(node(IOREDIS)),
    );
}

/// The examples of the page about several nodes, as a reader would type them.
#[test]
fn the_examples_for_cluster_clients_can_be_typed() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/cluster.md");
    let page = fs::read_to_string(page).unwrap();
    let rig = Rig::start();
    let (nodes, _) = three(&rig);
    let example = |language: &str| {
        let fence = format!("```{language}\n");
        let (_, text) = page.split_once(&fence).unwrap();
        let (text, _) = text.split_once("```").unwrap();
        text.replace("7433", &nodes[0].port())
    };
    let mut in_python = command(python());
    assert_eq!(run(in_python.args(["-c", &example("python")])), "go OK\n");
    let mut in_node = command("node");
    in_node.args(["--input-type=module", "-e", &example("js")]);
    assert_eq!(run(in_node.current_dir(node(NODE_REDIS))), "go OK\n");
}

/// What redis-cli prints for these lines, with the option that makes it follow redirects.
fn typed(port: u16, lines: &str) -> String {
    let mut cli = command("redis-cli");
    cli.args(["-c", "-p", &port.to_string()]);
    cli.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut cli = cli.start();
    cli.stdin
        .take()
        .unwrap()
        .write_all(lines.as_bytes())
        .unwrap();
    let output = cli.wait_with_output().unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn redis_cli_follows_to_the_node_of_each_name() {
    let rig = Rig::start();
    let (nodes, ports): ([Server; 3], _) = three(&rig);
    let keys = ["n1", "n2", "n3"].map(|owner| keys_of(&nodes[0], owner, 1).remove(0));
    let lines: String = keys
        .iter()
        .map(|key| format!("LOCK {key}\nUNLOCK {key}\n"))
        .collect();
    for port in ports {
        let said = typed(port.port(), &lines);
        let is_word = |line: &&str| ["go", "OK"].contains(line);
        let words: Vec<_> = said.lines().filter(is_word).collect();
        assert_eq!(words, ["go", "OK", "go", "OK", "go", "OK"], "{said}");
        assert!(!said.contains("MOVED"), "{said}");
    }
}
