//! Cluster clients that people have already, with their default settings, against three nodes
//! of which one is killed: redis-py, valkey-py, node-redis, ioredis and redis-cli.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use rideau_testing::{Start, command};

use crate::clients::{IOREDIS, NODE_REDIS, node, python, python_of_valkey, run, script};
use crate::cluster::Rig;
use crate::cluster_locks::keys_of;
use crate::cluster_straight::three;
use crate::server::Server;

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
    let page = std::fs::read_to_string(page).unwrap();
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
