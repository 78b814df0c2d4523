//! The text that all nodes share. The machine knows nothing of it, so this stands in for the
//! shell: a change is one transaction on the version that it is based on, which is repeated
//! while its outcome is not known, and nodes look at what there is.

use std::collections::BTreeMap;

use rideau_core::cluster::{
    Compare, Holds, KeyChange, KeyRange, KeyValue, StoreOp, StoreOutcome, StoreReply, StoreRequest,
    StoreTxn,
};

use crate::bugs::Bug;
use crate::world::{Event, SECOND, World};

/// Ids of requests about the text.
pub(crate) const CONFIGS: u64 = 1 << 41;
/// Where it is.
pub(crate) const CONFIG_KEY: &str = "/rideau/sim/meta/config";
/// A change whose outcome is not known is tried so often.
const TRIES: u32 = 4;
/// A node looks at what there is after this long.
pub(crate) const CONFIG_LOOK: u64 = 3 * SECOND;

/// What a process knows of the text.
#[derive(Default)]
pub(crate) struct ConfigSide {
    known: Option<SharedText>,
    /// Requests on their way: changes, or looks.
    asked: BTreeMap<u64, Option<TextChange>>,
    next: u64,
}

/// One version of the text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct SharedText {
    version: u64,
    /// Drawn for this version.
    id: u64,
    /// The revision at which it was written.
    changed: u64,
}

/// A change on its way.
#[derive(Clone, Copy)]
struct TextChange {
    id: u64,
    seen: Option<SharedText>,
    tries: u32,
}

/// All versions of the text that there were.
#[derive(Default)]
pub(crate) struct TextHistory(Vec<u64>);

impl TextHistory {
    /// A version is written: it follows the last.
    pub(crate) fn written(&mut self, change: &KeyChange) -> Result<(), String> {
        let KeyChange::Put(kept) = change else {
            return Err("the shared config is deleted".to_owned());
        };
        let text = SharedText::read(kept);
        if self.0.contains(&text.id) {
            return Err(format!("config {text:?} is written twice"));
        }
        self.0.push(text.id);
        if self.0.len() as u64 != text.version {
            return Err(format!("a change of the config is lost under {text:?}"));
        }
        Ok(())
    }

    /// A node says that a change is made.
    fn confirmed(&self, id: u64) -> Result<(), String> {
        match self.0.contains(&id) {
            true => Ok(()),
            false => Err(format!(
                "change {id} of the config was confirmed, and is not written"
            )),
        }
    }

    /// The newest version.
    pub(crate) fn version(&self) -> u64 {
        self.0.len() as u64
    }
}

impl SharedText {
    fn read(kept: &KeyValue) -> Self {
        let text = str::from_utf8(&kept.value).unwrap();
        let (version, id) = text.split_once(' ').unwrap();
        Self {
            version: version.parse().unwrap(),
            id: id.parse().unwrap(),
            changed: kept.changed,
        }
    }
}

impl ConfigSide {
    /// The version that the node goes by.
    pub(crate) fn version(&self) -> u64 {
        self.known.map_or(0, |text| text.version)
    }

    fn learn(&mut self, text: SharedText) {
        if text.version > self.version() {
            self.known = Some(text);
        }
    }
}

impl World {
    /// An operator changes the text at a node.
    pub(crate) fn change_config(&mut self, host: usize) {
        let it = &self.hosts[host];
        if it.process.is_none() || it.paused_until > self.now {
            return;
        }
        self.faults.count("config change");
        self.next_ask += 1;
        let id = self.next_ask;
        let seen = self.running(host).config.known;
        let tries = 0;
        self.put_config(host, TextChange { id, seen, tries });
    }

    fn put_config(&mut self, host: usize, change: TextChange) {
        let seen = change.seen;
        let version = seen.map_or(1, |seen| seen.version + 1);
        let put = StoreOp::Put {
            key: CONFIG_KEY.to_owned(),
            value: format!("{version} {}", change.id).into_bytes(),
            lease: None,
        };
        let based_on = Compare {
            key: CONFIG_KEY.to_owned(),
            holds: Holds::ChangedAt(seen.map_or(0, |seen| seen.changed)),
        };
        let is_blind = self.bug == Some(Bug::ConfigOverwritten);
        let txn = StoreTxn {
            compares: Vec::from_iter((!is_blind).then_some(based_on)),
            then: vec![put],
            otherwise: vec![StoreOp::Read(KeyRange::one(CONFIG_KEY))],
        };
        self.ask_config(host, Some(change), txn);
    }

    /// A node looks at what there is.
    pub(crate) fn look_at_config(&mut self, host: usize) {
        let txn = StoreTxn::reading(vec![KeyRange::one(CONFIG_KEY)]);
        self.ask_config(host, None, txn);
        self.for_process(host, CONFIG_LOOK, Event::ConfigLook);
    }

    fn ask_config(&mut self, host: usize, change: Option<TextChange>, txn: StoreTxn) {
        let config = &mut self.running(host).config;
        config.next += 1;
        let id = CONFIGS + config.next;
        config.asked.insert(id, change);
        self.ask_etcd(host, id, StoreRequest::Txn(txn));
    }

    /// etcd answers, or does not.
    pub(crate) fn config_done(
        &mut self,
        host: usize,
        id: u64,
        outcome: StoreOutcome,
    ) -> Result<(), String> {
        let config = &mut self.running(host).config;
        let Some(change) = config.asked.remove(&id) else {
            return Ok(());
        };
        let StoreOutcome::Done(StoreReply::Txn(reply)) = outcome else {
            if let Some(mut change) = change {
                change.tries += 1;
                if change.tries < TRIES {
                    self.put_config(host, change);
                }
            }
            return Ok(());
        };
        let found = reply.reads.first().and_then(|keys| keys.first());
        let found = found.map(SharedText::read);
        found.into_iter().for_each(|found| config.learn(found));
        let Some(TextChange { id, seen, .. }) = change else {
            return Ok(());
        };
        if reply.held {
            let version = seen.map_or(1, |seen| seen.version + 1);
            let changed = reply.revision;
            config.learn(SharedText {
                version,
                id,
                changed,
            });
        }
        // An earlier try may have had its answer lost. Else another was faster.
        if reply.held || found.is_some_and(|found| found.id == id) {
            return self.oracle.config.confirmed(id);
        }
        Ok(())
    }
}
