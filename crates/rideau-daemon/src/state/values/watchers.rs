//! Clients of one node hear what happens to the values of all nodes.
//!
//! A node with such clients asks all others to tell it. Each answers when it begins, and says
//! so when it had to leave something out, so a client knows from when on it hears everything.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use parking_lot::Mutex;
use rideau_cluster::LinkMessage;
use rideau_core::cluster::Incarnation;
use tokio::sync::{Notify, broadcast};

use super::watch::{CHANGES, Happened};
use crate::state::cluster::verbs;

/// A client that is this far behind misses some.
const BEHIND_MAX: usize = 4096;

/// Which nodes tell each other of values, as far as this node is concerned.
pub(crate) struct ValueWatchers {
    nodes: Mutex<Nodes>,
    told: broadcast::Sender<Arc<FarValue>>,
    /// There may be something to [settle](Self::settle).
    pub changed: Notify,
}

/// What other nodes tell of values.
pub(crate) enum FarValue {
    /// From now on everything is heard from this node.
    Heard(Arc<str>),
    /// It left something out.
    Missed(Arc<str>),
    /// Nothing is heard from it any more.
    Unheard(Arc<str>),
    /// Something happened there.
    Happened(Arc<str>, Happened),
}

#[derive(Default)]
struct Nodes {
    linked: BTreeSet<Incarnation>,
    /// Those that were asked to tell.
    asked: BTreeSet<Incarnation>,
    /// Those that have begun to.
    heard: BTreeSet<Incarnation>,
    /// Those that want to be told.
    listening: BTreeMap<Incarnation, Listening>,
}

/// How far another node is that wants to be told.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Listening {
    /// It was not told that it hears everything from now on.
    New,
    /// It hears everything.
    On,
    /// Something was left out, and it was not told so.
    Missing,
}

impl Default for ValueWatchers {
    fn default() -> Self {
        Self {
            nodes: Mutex::default(),
            told: broadcast::Sender::new(BEHIND_MAX),
            changed: Notify::new(),
        }
    }
}

impl ValueWatchers {
    /// Hear what happens at other nodes. Returns those that everything is heard from already.
    pub(crate) fn subscribe(&self) -> (Vec<Arc<str>>, broadcast::Receiver<Arc<FarValue>>) {
        let nodes = self.nodes.lock();
        let receiver = self.told.subscribe();
        self.changed.notify_one();
        let heard = nodes.heard.iter().map(|node| node.name.as_str().into());
        (heard.collect(), receiver)
    }

    /// There is a link to this node.
    pub(crate) fn linked(&self, node: Incarnation) {
        self.nodes.lock().linked.insert(node);
        self.changed.notify_one();
    }

    /// The link is gone. It is asked anew when there is one again, and asks anew.
    pub(crate) fn unlinked(&self, node: &Incarnation) {
        let mut nodes = self.nodes.lock();
        nodes.linked.remove(node);
        nodes.asked.remove(node);
        nodes.listening.remove(node);
        if nodes.heard.remove(node) {
            self.tell(FarValue::Unheard(node.name.as_str().into()));
        }
    }

    /// All links are gone.
    pub(crate) fn unlinked_all(&self) {
        let linked = self.nodes.lock().linked.clone();
        linked.iter().for_each(|node| self.unlinked(node));
    }

    /// Another node wants to be told, or does not any more.
    pub(crate) fn asked(&self, node: Incarnation, wants: bool) {
        let mut nodes = self.nodes.lock();
        match wants {
            true => nodes.listening.insert(node, Listening::New),
            false => nodes.listening.remove(&node),
        };
        self.changed.notify_one();
    }

    /// Another node tells everything from now on. It may have left something out before.
    pub(crate) fn begun(&self, node: &Incarnation, is_first: bool) {
        let mut nodes = self.nodes.lock();
        if !nodes.asked.contains(node) {
            return;
        }
        nodes.heard.insert(node.clone());
        let name = node.name.as_str().into();
        self.tell(match is_first {
            true => FarValue::Heard(name),
            false => FarValue::Missed(name),
        });
    }

    /// Something happened at another node.
    pub(crate) fn happened(&self, node: &Incarnation, bytes: &[u8]) {
        if let Some(happened) = read(bytes) {
            self.tell(FarValue::Happened(node.name.as_str().into(), happened));
        }
    }

    fn tell(&self, value: FarValue) {
        // Without clients there is none to tell.
        let _ = self.told.send(Arc::new(value));
    }

    /// Whether any other node wants to be told.
    pub(crate) fn is_listened(&self) -> bool {
        !self.nodes.lock().listening.is_empty()
    }

    /// Something was left out, whichever node wants to be told.
    pub(crate) fn missed(&self) {
        let mut nodes = self.nodes.lock();
        nodes.listening.values_mut().for_each(Listening::miss);
    }

    /// Tell other nodes what happened here. One that cannot be told is told so later.
    pub(crate) fn forward(
        &self,
        happened: &Happened,
        send: impl Fn(&Incarnation, LinkMessage) -> bool,
    ) {
        let mut nodes = self.nodes.lock();
        let listening = nodes.listening.iter_mut();
        let mut on = listening
            .filter(|(_, listening)| **listening == Listening::On)
            .peekable();
        if on.peek().is_none() {
            return;
        }
        let bytes = write(happened);
        for (node, listening) in on {
            if !send(node, LinkMessage::Happened(bytes.clone())) {
                listening.miss();
            }
        }
    }

    /// Ask other nodes to tell as long as clients want to hear it, and say to those that asked
    /// from when on they hear everything. What cannot be sent is sent the next time.
    pub(crate) fn settle(&self, send: impl Fn(&Incarnation, LinkMessage) -> bool) {
        let nodes = &mut *self.nodes.lock();
        let is_wanted = self.told.receiver_count() > 0;
        for node in &nodes.linked {
            let is_asked = nodes.asked.contains(node);
            if is_asked == is_wanted || !send(node, LinkMessage::Watches(is_wanted)) {
                continue;
            }
            match is_wanted {
                true => nodes.asked.insert(node.clone()),
                false => nodes.heard.remove(node) | nodes.asked.remove(node),
            };
        }
        for (node, listening) in &mut nodes.listening {
            let is_first = match listening {
                Listening::New => true,
                Listening::Missing => false,
                Listening::On => continue,
            };
            if send(node, LinkMessage::Watched { is_first }) {
                *listening = Listening::On;
            }
        }
    }
}

impl Listening {
    fn miss(&mut self) {
        if *self == Self::On {
            *self = Self::Missing;
        }
    }
}

/// What happened, for other nodes.
fn write(happened: &Happened) -> Vec<u8> {
    let (fence, number) = (happened.fence.to_string(), happened.number.to_string());
    let words = [
        &*happened.range,
        happened.what,
        &happened.value,
        &fence,
        &number,
    ];
    let words = words.map(str::as_bytes).into_iter();
    let words: Vec<_> = words.chain(happened.owner.as_deref()).collect();
    verbs::write(verbs::HAPPENED, &words)
}

/// As another node wrote it.
fn read(bytes: &[u8]) -> Option<Happened> {
    let words = verbs::read(bytes)?;
    let [_, range, what, value, fence, number, owner @ ..] = &words[..] else {
        return None;
    };
    let text = |word: &[u8]| str::from_utf8(word).ok().map(str::to_owned);
    let what = text(what)?;
    Some(Happened {
        range: text(range)?.into(),
        what: CHANGES.into_iter().find(|word| *word == what)?,
        value: text(value)?,
        fence: text(fence)?.parse().ok()?,
        owner: owner.first().map(|owner| owner.as_slice().into()),
        number: text(number)?.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    fn node(name: &str) -> Incarnation {
        Incarnation::new(name, 1)
    }

    fn happened() -> Happened {
        Happened {
            range: "office".into(),
            what: "reserved",
            value: "10.0.0.1".into(),
            fence: 7,
            owner: Some(b"anna".as_slice().into()),
            number: 3,
        }
    }

    fn settled(watchers: &ValueWatchers) -> Vec<LinkMessage> {
        let sent = RefCell::new(Vec::new());
        watchers.settle(|_, message| {
            sent.borrow_mut().push(message);
            true
        });
        sent.into_inner()
    }

    #[test]
    fn nodes_are_asked_as_long_as_a_client_listens() {
        let watchers = ValueWatchers::default();
        watchers.linked(node("n2"));
        assert_eq!(settled(&watchers), []);
        let (heard, mut client) = watchers.subscribe();
        assert!(heard.is_empty());
        assert_eq!(settled(&watchers), [LinkMessage::Watches(true)]);
        assert_eq!(settled(&watchers), []);
        watchers.begun(&node("n2"), true);
        watchers.happened(&node("n2"), &write(&happened()));
        assert!(matches!(&*client.try_recv().unwrap(), FarValue::Heard(name) if &**name == "n2"));
        let told = client.try_recv().unwrap();
        let FarValue::Happened(name, told) = &*told else {
            panic!("it is no event");
        };
        assert_eq!((&**name, told), ("n2", &happened()));
        assert_eq!(watchers.subscribe().0, [Arc::<str>::from("n2")]);
        watchers.unlinked(&node("n2"));
        assert!(matches!(&*client.try_recv().unwrap(), FarValue::Unheard(_)));
        watchers.linked(node("n2"));
        assert_eq!(settled(&watchers), [LinkMessage::Watches(true)]);
        drop(client);
        assert_eq!(settled(&watchers), [LinkMessage::Watches(false)]);
    }

    #[test]
    fn a_node_that_could_not_be_told_everything_is_told_so() {
        let watchers = ValueWatchers::default();
        watchers.asked(node("n3"), true);
        watchers.forward(&happened(), |_, _| panic!("it does not count yet"));
        assert_eq!(
            settled(&watchers),
            [LinkMessage::Watched { is_first: true }]
        );
        watchers.forward(&happened(), |_, _| false);
        watchers.forward(&happened(), |_, _| panic!("it would seem to be all"));
        assert_eq!(
            settled(&watchers),
            [LinkMessage::Watched { is_first: false }]
        );
        watchers.missed();
        assert_eq!(
            settled(&watchers),
            [LinkMessage::Watched { is_first: false }]
        );
        watchers.asked(node("n3"), false);
        assert!(!watchers.is_listened() && settled(&watchers).is_empty());
    }

    #[test]
    fn what_is_no_event_is_not_told() {
        assert_eq!(read(b""), None);
        assert_eq!(read(b"*1\r\n$1\r\nx\r\n"), None);
        let other = write(&happened());
        let other = String::from_utf8(other)
            .unwrap()
            .replace("reserved", "rewarded");
        assert_eq!(read(other.as_bytes()), None);
    }
}
