//! The libraries at a node of a cluster: they know for how long they may rely on a lease, and tell
//! its holder when it is not sure to be held, and when it is again.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::process::{ChildStdout, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rideau_testing::{Running, Scratch, Signal, Start, command, signal};

use crate::served::{Served, free_port};
use crate::tools::{go_program, node, python};

const PYTHON: &str = r#"
import sys, time, rideau
client = rideau.Client(sys.argv[1])
while True:
    try:
        lease = client.lock("python", wait=1).acquire()
        break
    except rideau.Refused:
        time.sleep(0.1)
assert lease.sure_until < rideau.now() + 60
lease.watch(lambda lease: print("unsure" if lease.lost else "sure", flush=True))
print("held", flush=True)
sys.stdin.read()
"#;

const NODE: &str = r"
import { Client, Refused, now } from 'rideau';
const client = new Client(process.argv[1]);
let lease;
while (!lease) {
  lease = await client.lock('node', { wait: 1000 }).catch((no) => {
    if (!(no instanceof Refused)) throw no;
  });
}
if (lease.sureUntil > now() + 60_000) throw new Error('it has no end');
lease.watch(() => console.log(lease.lost ? 'unsure' : 'sure'));
console.log('held');
";

const GO: &str = r#"
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"rideau"
)

func main() {
	client := rideau.New(rideau.Options{Addresses: []string{os.Args[1]}})
	for {
		lease, err := client.Acquire(context.Background(), rideau.Locks, "go", rideau.Wait(time.Second))
		if _, ok := err.(*rideau.Refused); ok {
			continue
		} else if err != nil || lease.SureUntil().IsZero() {
			panic(err)
		}
		lease.OnChange(func(lease *rideau.Lease) {
			if lease.Err() != nil {
				fmt.Println("unsure")
			} else {
				fmt.Println("sure")
			}
		})
		fmt.Println("held")
		select {}
	}
}
"#;

/// For so long a node lives without a word of etcd.
const LEASE: Duration = Duration::from_secs(10);

#[test]
fn a_lease_that_is_not_sure_is_told_and_told_again() {
    let folder = Scratch::in_memory();
    let (etcd, config) = etcd(&folder);
    let served = Served::with(&config);
    let mut python = python();
    let mut node = node();
    let mut go = go_program("go-sure", GO);
    let mut holders = [
        Holder::start(python.args(["-c", PYTHON, &served.url()])),
        Holder::start(node.args(["--input-type=module", "-e", NODE, &served.url()])),
        Holder::start(go.args(["run", ".", &served.url()])),
    ];
    holders.iter_mut().for_each(|holder| holder.says("held"));
    signal(etcd.id(), Signal::STOP);
    holders.iter_mut().for_each(|holder| holder.says("unsure"));
    signal(etcd.id(), Signal::CONT);
    holders.iter_mut().for_each(|holder| holder.says("sure"));
}

/// An etcd, and the config of a node that uses it.
fn etcd(folder: &Scratch) -> (Running, String) {
    let (port, peer, links) = (free_port(), free_port(), free_port());
    let [url, peer] = [port, peer].map(|port| format!("http://127.0.0.1:{port}"));
    let mut etcd = command("etcd");
    etcd.args(["--name", "m0", "--data-dir"])
        .arg(folder.join("etcd"));
    etcd.args([
        "--listen-client-urls",
        &url,
        "--advertise-client-urls",
        &url,
    ]);
    etcd.args([
        "--listen-peer-urls",
        &peer,
        "--initial-advertise-peer-urls",
        &peer,
    ]);
    etcd.args(["--initial-cluster", &format!("m0={peer}")]);
    etcd.stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let etcd = etcd.start();
    let limit = Instant::now() + Duration::from_secs(60);
    while !is_healthy(port) {
        assert!(Instant::now() < limit, "no etcd");
        sleep(Duration::from_millis(20));
    }
    let secret = folder.join("secret");
    fs::write(&secret, "0123456789abcdef0123456789abcdef").unwrap();
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).unwrap();
    let config = format!(
        "[cluster]\nname = \"test\"\nnode = \"n1\"\netcd = [{url:?}]\n\
         listen = \"127.0.0.1:{links}\"\nsecret_file = {secret:?}\npartitions = 16\n\
         lease = \"{}s\"\n[lock.\"*\"]\n",
        LEASE.as_secs(),
    );
    (etcd, config)
}

fn is_healthy(port: u16) -> bool {
    let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)) else {
        return false;
    };
    let mut said = String::new();
    let asked = stream.write_all(b"GET /health HTTP/1.0\r\n\r\n");
    asked.is_ok() && stream.read_to_string(&mut said).is_ok() && said.contains("\"true\"")
}

/// A program that holds a lock, and prints what it is told.
struct Holder {
    _child: Running,
    lines: BufReader<ChildStdout>,
}

impl Holder {
    fn start(command: &mut Command) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.start();
        let lines = BufReader::new(child.stdout.take().unwrap());
        Self {
            _child: child,
            lines,
        }
    }

    #[track_caller]
    fn says(&mut self, wanted: &str) {
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        assert_eq!(line.trim_end(), wanted);
    }
}
