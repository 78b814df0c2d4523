//! Nodes that run simple commands for each other.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use rideau_cluster::{
    LinkError, LinkEvent, LinkMessage, LinkOptions, LinkSecret, PeerAnswer, PeerAsk, PeerLinks,
    PeerStats, PendingAnswer, RefusalReason, ServeAsks, ServedAnswer,
};
use rideau_core::cluster::Incarnation;
use rideau_resp::Protocol;
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::task::yield_now;
use tokio::time::{sleep, timeout};

/// No test waits longer for what must come.
const PATIENCE: Duration = Duration::from_secs(60);

/// A node with its links.
pub(crate) struct TestNode {
    pub(crate) me: Incarnation,
    pub(crate) address: SocketAddr,
    pub(crate) links: PeerLinks,
    pub(crate) server: Arc<TestServer>,
    pub(crate) events: mpsc::Receiver<LinkEvent>,
}

/// Runs commands: `echo WORD`, `take WORD`, `later WORD`, `wait WORD` and `long LEN`. Any
/// other one panics.
pub(crate) struct TestServer {
    /// A permit lets one `wait` end.
    pub(crate) gate: Arc<Semaphore>,
    log: watch::Sender<ServerLog>,
}

/// What a server has seen.
#[derive(Clone, Default, Debug)]
pub(crate) struct ServerLog {
    pub(crate) served: Vec<(Incarnation, String)>,
    pub(crate) undone: Vec<String>,
    pub(crate) unclaimed: Vec<String>,
    /// Waits that were dropped before they ended.
    pub(crate) dropped: usize,
}

/// The first life of a node.
pub(crate) fn node(name: &str) -> Incarnation {
    Incarnation::new(name, 1)
}

pub(crate) fn secret() -> LinkSecret {
    LinkSecret::new(b"a secret that all nodes of these tests know").expect("it is long enough")
}

pub(crate) fn options(me: Incarnation) -> LinkOptions {
    LinkOptions::new(me, "shop", secret())
}

/// The same, but a link is dead after a fraction of a second.
pub(crate) fn hasty(me: Incarnation) -> LinkOptions {
    let mut options = options(me);
    options.times.ping = Duration::from_millis(30);
    options.times.dead = Duration::from_millis(300);
    options.times.redial_max = Duration::from_millis(30);
    options
}

impl TestNode {
    pub(crate) fn start(options: LinkOptions) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
        let address = listener.local_addr().expect("it is bound");
        let me = options.me.clone();
        let server = Arc::new(TestServer {
            gate: Arc::new(Semaphore::new(0)),
            log: watch::Sender::default(),
        });
        let serving: Arc<dyn ServeAsks> = server.clone();
        let (links, events) = PeerLinks::start(options, listener, serving).expect("it starts");
        Self {
            me,
            address,
            links,
            server,
            events,
        }
    }

    /// The watch shows these nodes at revision 1.
    pub(crate) fn sees(&self, nodes: &[(&Incarnation, SocketAddr)]) {
        self.sees_at(1, nodes);
    }

    pub(crate) fn sees_at(&self, revision: u64, nodes: &[(&Incarnation, SocketAddr)]) {
        let nodes = nodes.iter();
        let nodes = nodes.map(|(node, address)| ((*node).clone(), address.to_string()));
        self.links.set_peers(revision, nodes.collect());
    }

    pub(crate) async fn event(&mut self) -> LinkEvent {
        let event = timeout(PATIENCE, self.events.recv()).await;
        event.expect("an event comes").expect("the links are there")
    }

    pub(crate) async fn is_linked(&mut self, to: &Incarnation) {
        assert_eq!(self.event().await, LinkEvent::Linked(to.clone()));
    }

    pub(crate) async fn is_unlinked(&mut self, from: &Incarnation) {
        assert_eq!(self.event().await, LinkEvent::Unlinked(from.clone()));
    }

    pub(crate) async fn message(&mut self, from: &Incarnation) -> LinkMessage {
        match self.event().await {
            LinkEvent::Message(sender, message) if sender == *from => message,
            other => panic!("{other:?} is no message of {from}"),
        }
    }

    pub(crate) fn ask(&self, to: &Incarnation, command: &str) -> Result<PendingAnswer, LinkError> {
        self.links.ask(to, &ask(command))
    }

    /// The reply to a command that is answered.
    pub(crate) async fn reply(&self, to: &Incarnation, command: &str) -> String {
        let answer = self.ask(to, command).expect("it is sent");
        text(answered(answer).await.expect("it is answered").reply)
    }

    pub(crate) fn peer(&self, node: &Incarnation) -> PeerStats {
        let mut peers = self.links.peers().into_iter();
        peers.find(|peer| peer.node == *node).expect("it is a peer")
    }

    pub(crate) fn refusals(&self, wanted: RefusalReason) -> u64 {
        let mut refusals = self.links.stats().refusals.into_iter();
        let found = refusals.find(|(reason, _)| *reason == wanted);
        found.expect("every reason is counted").1
    }

    pub(crate) async fn refused(&self, reason: RefusalReason) {
        until(|| self.refusals(reason) > 0).await;
    }
}

impl TestServer {
    /// Wait until the log is like that.
    pub(crate) async fn logged(&self, is_it: impl FnMut(&ServerLog) -> bool) -> ServerLog {
        let mut log = self.log.subscribe();
        let found = timeout(PATIENCE, log.wait_for(is_it)).await;
        let found = found.unwrap_or_else(|_| panic!("it is not logged: {:?}", self.log()));
        found.expect("the server is there").clone()
    }

    pub(crate) fn log(&self) -> ServerLog {
        self.log.borrow().clone()
    }
}

impl ServeAsks for TestServer {
    fn serve(&self, from: &Incarnation, _: u64, ask: PeerAsk) -> ServedAnswer {
        let command = text(ask.command);
        let note = (from.clone(), command.clone());
        self.log.send_modify(|log| log.served.push(note));
        let (verb, word) = command.split_once(' ').unwrap_or((&command, ""));
        let (reply, word_len) = (word.as_bytes().to_vec(), word.len());
        let taken = PeerAnswer {
            row: Some(reply.clone()),
            reply: reply.clone(),
        };
        match verb {
            "echo" => Box::pin(async { PeerAnswer::new(reply) }),
            "take" => Box::pin(async { taken }),
            "long" => {
                let len = word.parse().expect("a length");
                Box::pin(async move {
                    PeerAnswer {
                        reply: vec![b'x'; len],
                        ..taken
                    }
                })
            }
            "later" => {
                let dropped = Dropped(Some(self.log.clone()));
                Box::pin(async move {
                    for _ in 0..1 + word_len % 5 {
                        yield_now().await;
                    }
                    dropped.defuse();
                    taken
                })
            }
            "wait" => {
                let dropped = Dropped(Some(self.log.clone()));
                let gate = Arc::clone(&self.gate);
                Box::pin(async move {
                    gate.acquire().await.expect("it stays open").forget();
                    dropped.defuse();
                    taken
                })
            }
            other => panic!("planted: {other}"),
        }
    }

    fn undo(&self, _: &Incarnation, row: Vec<u8>) {
        self.log.send_modify(|log| log.undone.push(text(row)));
    }

    fn unclaimed(&self, _: &Incarnation, answer: PeerAnswer) {
        let row = answer.row.map(text).unwrap_or_default();
        self.log.send_modify(|log| log.unclaimed.push(row));
    }
}

/// Logs that a wait was dropped.
struct Dropped(Option<watch::Sender<ServerLog>>);

impl Dropped {
    fn defuse(mut self) {
        self.0 = None;
    }
}

impl Drop for Dropped {
    fn drop(&mut self) {
        if let Some(log) = self.0.take() {
            log.send_modify(|log| log.dropped += 1);
        }
    }
}

/// Two nodes that are linked. The first one dials.
pub(crate) async fn pair(first: LinkOptions, second: LinkOptions) -> (TestNode, TestNode) {
    let (mut first, mut second) = (TestNode::start(first), TestNode::start(second));
    let both = [
        (&first.me.clone(), first.address),
        (&second.me.clone(), second.address),
    ];
    first.sees(&both);
    second.sees(&both);
    first.is_linked(&second.me).await;
    second.is_linked(&first.me).await;
    (first, second)
}

pub(crate) fn ask(command: &str) -> PeerAsk {
    PeerAsk {
        hop: 1,
        partition: 7,
        epoch: 3,
        holder: b"conn-1".to_vec(),
        user: "anna".to_owned(),
        wait: None,
        protocol: Protocol::Resp3,
        command: command.as_bytes().to_vec(),
    }
}

pub(crate) async fn answered(answer: PendingAnswer) -> Result<PeerAnswer, LinkError> {
    timeout(PATIENCE, answer).await.expect("an answer comes")
}

/// Wait until something is so. Nothing tells of it, so it is looked at now and then.
pub(crate) async fn until(mut is_so: impl FnMut() -> bool) {
    let looked = timeout(PATIENCE, async {
        while !is_so() {
            sleep(Duration::from_millis(2)).await;
        }
    });
    looked.await.expect("it becomes so");
}

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).expect("tests speak text")
}
