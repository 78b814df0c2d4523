//! A network between two nodes that can be cut, in one direction or in both.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// What happens to the bytes of one direction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Flow {
    /// They pass.
    Pass,
    /// They are kept until they may pass.
    Hold,
    /// They are lost.
    Lose,
    /// The direction is closed, and the other one goes on.
    HalfClose,
}

/// Which way bytes go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Way {
    /// From the node that connected.
    There,
    /// Back to it.
    Back,
}

/// What is noted of bytes on their way there, and done to them.
type Watched = (Arc<Mutex<Vec<u8>>>, Arc<AtomicU64>);

/// Passes connections on.
pub(crate) struct Proxy {
    pub(crate) address: SocketAddr,
    there: watch::Sender<Flow>,
    back: watch::Sender<Flow>,
    /// Connections with a smaller number are reset.
    cut: watch::Sender<u64>,
    /// Of connections up to this number bytes are held on their way there.
    held: watch::Sender<u64>,
    made: Arc<AtomicU64>,
    /// Which bit of the next bytes there is turned; zero for none.
    damage: Arc<AtomicU64>,
    sent: Arc<Mutex<Vec<u8>>>,
}

impl Proxy {
    pub(crate) async fn to(target: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await;
        let listener = listener.expect("loopback has a free port");
        let proxy = Self {
            address: listener.local_addr().expect("it is bound"),
            there: watch::Sender::new(Flow::Pass),
            back: watch::Sender::new(Flow::Pass),
            cut: watch::Sender::new(0),
            held: watch::Sender::new(0),
            made: Arc::default(),
            damage: Arc::default(),
            sent: Arc::default(),
        };
        let (there, back) = (proxy.there.subscribe(), proxy.back.subscribe());
        let (cut, held) = (proxy.cut.subscribe(), proxy.held.subscribe());
        let (sent, made) = (Arc::clone(&proxy.sent), Arc::clone(&proxy.made));
        let damage = Arc::clone(&proxy.damage);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let Ok(server) = TcpStream::connect(target).await else {
                    continue;
                };
                let (from_client, to_client) = client.into_split();
                let (from_server, to_server) = server.into_split();
                let number = 1 + made.fetch_add(1, Ordering::SeqCst);
                let watched = Some((sent.clone(), damage.clone()));
                let there = pass(from_client, to_server, there.clone(), watched);
                let there = unless_held(there, held.clone(), number);
                let back = pass(from_server, to_client, back.clone(), None);
                let mut cut = cut.clone();
                let cuts = *cut.borrow();
                tokio::spawn(async move {
                    tokio::select! {
                        _ = cut.wait_for(|now| *now > cuts) => (),
                        ((), ()) = async { tokio::join!(there, back) } => (),
                    }
                });
            }
        });
        proxy
    }

    /// From now on bytes of this direction do that, those of older connections too.
    pub(crate) fn set(&self, way: Way, flow: Flow) {
        let flows = match way {
            Way::There => &self.there,
            Way::Back => &self.back,
        };
        flows.send_replace(flow);
    }

    pub(crate) fn set_both(&self, flow: Flow) {
        self.set(Way::There, flow);
        self.set(Way::Back, flow);
    }

    /// Close all connections there are.
    pub(crate) fn cut(&self) {
        self.cut.send_modify(|number| *number += 1);
    }

    /// How many connections there were.
    pub(crate) fn made(&self) -> u64 {
        self.made.load(Ordering::SeqCst)
    }

    /// Hold what comes over the connections there are. Later ones pass.
    pub(crate) fn hold_old(&self) {
        self.held.send_replace(self.made.load(Ordering::SeqCst));
    }

    /// Pass on what was held.
    pub(crate) fn release_old(&self) {
        self.held.send_replace(0);
    }

    /// Turn this bit, or one that comes as soon, of what is sent next.
    pub(crate) fn damage(&self, bit: u64) {
        self.damage.store(bit, Ordering::SeqCst);
    }

    /// What connecting nodes have sent.
    pub(crate) fn sent(&self) -> Vec<u8> {
        self.sent.lock().expect("no test panics with it").clone()
    }
}

/// Go on only while connections of this number are not held.
async fn unless_held(pass: impl Future<Output = ()>, mut held: watch::Receiver<u64>, number: u64) {
    let mut pass = std::pin::pin!(pass);
    loop {
        if held.wait_for(|held| *held < number).await.is_err() {
            return;
        }
        tokio::select! {
            biased;
            _ = held.wait_for(|held| *held >= number) => (),
            () = &mut pass => return,
        }
    }
}

/// Pass one direction on, for as long as both ends are there.
async fn pass(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mut flow: watch::Receiver<Flow>,
    watched: Option<Watched>,
) {
    let mut bytes = vec![0; 16 << 10];
    loop {
        let now = *flow.borrow_and_update();
        if now == Flow::HalfClose {
            break;
        }
        let is_moving = now != Flow::Hold;
        let len = tokio::select! {
            changed = flow.changed() => match changed {
                Ok(()) => continue,
                Err(_) => return,
            },
            read = from.read(&mut bytes), if is_moving => match read {
                Ok(0) | Err(_) => break,
                Ok(len) => len,
            },
        };
        if *flow.borrow() == Flow::Lose {
            continue;
        }
        if let Some((sent, damage)) = &watched {
            let bit = damage.swap(0, Ordering::SeqCst) as usize;
            if bit > 0 {
                bytes[bit / 8 % len] ^= 1 << (bit % 8);
            }
            let mut sent = sent.lock().expect("no test panics with it");
            sent.extend_from_slice(&bytes[..len]);
        }
        if to.write_all(&bytes[..len]).await.is_err() {
            return;
        }
    }
    let _ = to.shutdown().await;
}
