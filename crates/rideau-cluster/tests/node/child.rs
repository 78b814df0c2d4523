//! A node in a process of its own, to be killed.

use std::collections::BTreeMap;
use std::env;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use parking_lot::Mutex;
use rideau_cluster::{ClusterNode, NoPeers};
use rideau_testing::{Running, Signal, Start, command, signal};

use crate::host::{RegisterHost, Write};
use crate::links::LocalLinks;
use crate::rig::{PARTITIONS, options};
use crate::server::until;

const NAME: &str = "RIDEAU_NODE_NAME";
const FOLDER: &str = "RIDEAU_NODE_FOLDER";
const ENDPOINT: &str = "RIDEAU_NODE_ENDPOINT";
/// What a line of a child begins with that says what was acknowledged.
const WRITTEN: &str = "written:";

/// A process with a node that writes until it is killed.
pub(crate) struct Child {
    process: Running,
    /// Reads all the time: a process that cannot write to its output would stop.
    reader: Option<JoinHandle<()>>,
    heard: Arc<Mutex<Vec<Write>>>,
}

impl Child {
    pub(crate) fn start(name: &str, folder: &Path, endpoint: &str) -> Self {
        let mut command = command(env::current_exe().unwrap());
        command
            .args(["--exact", "child::the_other_process", "--nocapture"])
            .env(NAME, name)
            .env(FOLDER, folder)
            .env(ENDPOINT, endpoint)
            .stdout(Stdio::piped());
        let mut process = command.start();
        let output = process.stdout.take().unwrap();
        let heard = Arc::new(Mutex::new(Vec::new()));
        let hears = Arc::clone(&heard);
        let reader = thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                hears.lock().extend(parse(&line));
            }
        });
        Self {
            process,
            reader: Some(reader),
            heard,
        }
    }

    /// Wait until it has told of that many writes more.
    pub(crate) async fn until_written(&self, more: usize) {
        let before = self.heard.lock().len();
        until("the other process has written", async || {
            self.heard.lock().len() >= before + more
        })
        .await;
    }

    /// It stops where it is, until it is told to go on.
    pub(crate) fn pause(&self) {
        signal(self.process.id(), Signal::STOP);
    }

    /// It goes on.
    pub(crate) fn resume(&self) {
        signal(self.process.id(), Signal::CONT);
    }

    /// Kill it, and return all that it told.
    pub(crate) fn kill(mut self) -> Vec<Write> {
        self.process.end();
        self.reader.take().unwrap().join().unwrap();
        self.heard.lock().clone()
    }
}

/// A write of a line that is whole.
fn parse(line: &str) -> Option<Write> {
    let (_, said) = line.split_once(WRITTEN)?;
    let said = said.strip_suffix(" .")?;
    let numbers: Vec<u64> = said
        .split_whitespace()
        .map(|number| number.parse().unwrap())
        .collect();
    Some(Write {
        partition: u32::try_from(numbers[0]).unwrap(),
        key: numbers[1],
        fence: numbers[2],
    })
}

#[tokio::test]
async fn the_other_process() {
    let (Ok(name), Ok(folder), Ok(endpoint)) =
        (env::var(NAME), env::var(FOLDER), env::var(ENDPOINT))
    else {
        return;
    };
    let options = options(&name, Path::new(&folder), vec![endpoint]);
    let node = Arc::new(ClusterNode::open(options).await.unwrap());
    let host = Arc::new(RegisterHost::default());
    host.set_log(node.log());
    let events = LocalLinks::default().end(&name, false);
    node.start(Arc::clone(&host) as _, events, Arc::new(NoPeers));
    let writing = tokio::task::spawn_blocking(move || write_for_ever(&host));
    writing.await.unwrap();
}

/// Keys are those of no other process, so that none is set twice.
fn write_for_ever(host: &RegisterHost) {
    let mut next: BTreeMap<u32, u64> = BTreeMap::new();
    loop {
        for partition in 0..PARTITIONS {
            let number = next.entry(partition).or_insert(0);
            let key = u64::from(std::process::id()) << 32 | *number;
            if let Ok(written) = host.write(&[(partition, key)]) {
                *number += 1;
                for write in written {
                    println!("{WRITTEN} {partition} {key} {} .", write.fence);
                }
            } else {
                thread::sleep(Duration::from_millis(1));
            }
        }
    }
}
