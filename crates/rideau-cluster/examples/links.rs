//! How fast one link between two nodes is, on loopback: round trips one after the other,
//! and asks that are sent while others wait for their answers.
//!
//! `cargo run --release -p rideau-cluster --example links`

use std::error::Error;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rideau_cluster::{
    LinkEvent, LinkOptions, LinkSecret, PeerAnswer, PeerAsk, PeerLinks, ServeAsks, ServedAnswer,
};
use rideau_core::cluster::Incarnation;
use rideau_resp::Protocol;
use tokio::sync::mpsc;

const ROUND: Duration = Duration::from_secs(3);

/// Answers at once, as a lock that is free.
struct Instantly;

impl ServeAsks for Instantly {
    fn serve(&self, _: &Incarnation, id: u64, _: PeerAsk) -> ServedAnswer {
        let row = Some(id.to_be_bytes().to_vec());
        let reply = b"$34\r\nl-0123456789abcdef0123456789abcdef\r\n".to_vec();
        Box::pin(async { PeerAnswer { row, reply } })
    }

    fn undo(&self, _: &Incarnation, _: Vec<u8>) {}

    fn unclaimed(&self, _: &Incarnation, _: PeerAnswer) {}
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Result<(), Box<dyn Error>> {
    let (first, second) = (Incarnation::new("n1", 1), Incarnation::new("n2", 1));
    let listeners = [
        TcpListener::bind("127.0.0.1:0")?,
        TcpListener::bind("127.0.0.1:0")?,
    ];
    let addresses = [listeners[0].local_addr()?, listeners[1].local_addr()?];
    let nodes = vec![
        (first.clone(), addresses[0].to_string()),
        (second.clone(), addresses[1].to_string()),
    ];
    let [near, far] = listeners;
    let (links, mut told) = start(first, near)?;
    let (others, others_told) = start(second.clone(), far)?;
    others.set_peers(1, nodes.clone());
    links.set_peers(1, nodes);
    while told.recv().await != Some(LinkEvent::Linked(second.clone())) {}

    for tasks in [1, 8, 64, 512] {
        let done = measure(&links, &second, tasks).await?;
        let each = ROUND.as_secs_f64() * 1e6 * tasks as f64 / done as f64;
        let rate = done as f64 / ROUND.as_secs_f64();
        println!("{tasks:4} at a time: {rate:9.0} asks/s, {each:7.1} µs each");
    }
    drop((others, others_told));
    Ok(())
}

fn start(
    me: Incarnation,
    listener: TcpListener,
) -> Result<(PeerLinks, mpsc::Receiver<LinkEvent>), Box<dyn Error>> {
    let secret = LinkSecret::new(b"a secret for measurements, on one machine")?;
    let options = LinkOptions::new(me, "bench", secret);
    Ok(PeerLinks::start(options, listener, Arc::new(Instantly))?)
}

/// How many asks are answered while as many tasks ask.
async fn measure(links: &PeerLinks, to: &Incarnation, tasks: u64) -> Result<u64, Box<dyn Error>> {
    let until = Instant::now() + ROUND;
    let asking: Vec<_> = (0..tasks)
        .map(|_| {
            let (links, to) = (links.clone(), to.clone());
            tokio::spawn(async move {
                let ask = ask();
                let mut done = 0;
                while Instant::now() < until {
                    links.ask(&to, &ask)?.await?;
                    done += 1;
                }
                Ok::<u64, rideau_cluster::LinkError>(done)
            })
        })
        .collect();
    let mut done = 0;
    for asking in asking {
        done += asking.await??;
    }
    Ok(done)
}

fn ask() -> PeerAsk {
    PeerAsk {
        hop: 1,
        partition: 7,
        epoch: 415_000,
        holder: b"1234".to_vec(),
        user: "default".to_owned(),
        wait: Some(Duration::ZERO),
        protocol: Protocol::Resp3,
        command: b"*2\r\n$4\r\nLOCK\r\n$9\r\ntenant/42\r\n".to_vec(),
    }
}
