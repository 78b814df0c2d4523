//! Keys that one record has for itself: the owner of a key decides which ask gets it, and the
//! owners of values have the records.

use std::collections::{BTreeMap, BTreeSet};

use rideau_core::cluster::{Incarnation, KeyAt, KeyEpochs, KeyIndexes, KeyTurn, Planted};

use crate::bugs::Bug;
use crate::host::{Answer, Ask, Did};
use crate::network::Carried;
use crate::register::VALUES;
use crate::world::{Event, MILLI, PARTITIONS, SECOND, World};

/// How many keys there are.
pub(crate) const KEYS: u64 = 4;

/// The partition of a key. Keys count from one.
pub(crate) const fn key_partition(key: u64) -> u32 {
    (key % PARTITIONS as u64) as u32
}

/// How long an ask for a key, or a question about one, may take.
const KEY_WAIT: u64 = SECOND;

/// What a process knows of keys, and has under way for them.
pub(crate) struct KeySide {
    index: KeyIndexes,
    epochs: KeyEpochs,
    /// All nodes are being asked for the keys of these partitions.
    collecting: Option<(u64, Vec<(u32, u64)>)>,
    /// All nodes are being asked for one key.
    finding: BTreeMap<u64, Finding>,
    /// Asks on their way to the owner of a value.
    taking: BTreeMap<u64, Taking>,
    /// Answers that wait until all is written that they rest on.
    unsent: Vec<UnsentTold>,
    /// Values that were given for a key, and wait until that is written.
    unwritten: BTreeMap<(u32, u64), Vec<KeyLetter>>,
    /// The same, written.
    done: Vec<KeyLetter>,
}

/// A message and the node that it goes to; this one, if it is none.
type KeyLetter = (Option<Incarnation>, KeyMessage);

struct Finding {
    taking: Taking,
    covered: BTreeSet<u32>,
    values: BTreeSet<u128>,
}

/// The turn of an ask for a key.
struct Taking {
    ask: Ask,
    /// The partition of the key, and the ownership.
    at: (u32, u64),
    key: u64,
    known: KeyAt,
}

struct UnsentTold {
    to: Option<Incarnation>,
    told: KeyMessage,
    /// Partitions, as they were loaded, and the entries that have to be written.
    needs: Vec<(u32, u64, u64)>,
}

/// What owners of keys and owners of values tell each other.
#[derive(Clone, Debug)]
pub(crate) enum KeyMessage {
    /// Report the keys of these partitions, or one key.
    Report {
        id: u64,
        wanted: Vec<(u32, u64)>,
        key: u64,
    },
    /// These partitions were looked at, and have these keys with their values.
    Told {
        id: u64,
        covered: Vec<u32>,
        keys: Vec<(u64, u128)>,
    },
    /// Give a value for a key.
    Take {
        ask: Ask,
        at: (u32, u64),
        key: u64,
        beside: Option<u32>,
        target: u32,
    },
    /// What became of it.
    Took { id: u64, came: KeyCame },
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum KeyCame {
    /// A value of a partition, and its fence.
    Granted(u32, u64, u64),
    /// A record has the key.
    Taken(u128),
    Nothing,
}

impl KeySide {
    pub(crate) fn new(planted: Option<Planted>) -> Self {
        let mut epochs = KeyEpochs::default();
        epochs.planted = planted;
        Self {
            index: KeyIndexes::new(PARTITIONS),
            epochs,
            collecting: None,
            finding: BTreeMap::new(),
            taking: BTreeMap::new(),
            unsent: Vec::new(),
            unwritten: BTreeMap::new(),
            done: Vec::new(),
        }
    }

    /// An entry is written.
    pub(crate) fn written(&mut self, key: (u32, u64)) {
        let done = self.unwritten.remove(&key);
        self.done.extend(done.into_iter().flatten());
    }

    /// This life of the node is over.
    pub(crate) fn lost(&mut self) {
        self.unsent.clear();
        self.unwritten.clear();
    }

    fn settle(&mut self, taking: &Taking, at: KeyAt) {
        let (partition, epoch) = taking.at;
        let key = taking.key.to_be_bytes();
        self.index.settle(partition, epoch, &key, at);
    }
}

const fn place(partition: u32, value: u64) -> u128 {
    (partition as u64 * VALUES + value) as u128
}

impl World {
    /// The owner of a key serves an ask for it.
    pub(crate) fn serve_unique(
        &mut self,
        host: usize,
        ask: Ask,
        at: (u32, u64),
        key: u64,
    ) -> Result<(), String> {
        let keys = &mut self.running(host).keys;
        let known = match keys.index.take(at.0, at.1, &key.to_be_bytes()) {
            KeyTurn::Now(known) => known,
            turn => {
                if let KeyTurn::Unready(_) = turn {
                    self.collect_keys(host)?;
                }
                self.answer(host, ask, Answer::Down, None);
                return Ok(());
            }
        };
        let taking = Taking {
            ask,
            at,
            key,
            known,
        };
        match &taking.known {
            KeyAt::Nowhere => self.take_key(host, taking, None),
            KeyAt::At(values) if values.len() == 1 => {
                let value = values.first().copied();
                self.take_key(host, taking, value)
            }
            _ => self.find_key(host, taking),
        }
    }

    /// Have all nodes report the keys of the partitions that this one owns.
    fn collect_keys(&mut self, host: usize) -> Result<(), String> {
        let served: Vec<_> = self.served(host);
        let id = self.key_id();
        let keys = &mut self.running(host).keys;
        if keys.collecting.is_some() {
            return Ok(());
        }
        let wanted = keys.index.unready(&served);
        if wanted.is_empty() {
            return Ok(());
        }
        keys.collecting = Some((id, wanted.clone()));
        self.for_process(host, KEY_WAIT, Event::KeyTimeOut { id });
        let key = 0;
        self.ask_all(host, KeyMessage::Report { id, wanted, key })
    }

    /// Ask all nodes which values have a key.
    fn find_key(&mut self, host: usize, taking: Taking) -> Result<(), String> {
        let id = self.key_id();
        let key = taking.key;
        let finding = Finding {
            taking,
            covered: BTreeSet::new(),
            values: BTreeSet::new(),
        };
        self.running(host).keys.finding.insert(id, finding);
        self.for_process(host, KEY_WAIT, Event::KeyTimeOut { id });
        let wanted = Vec::new();
        self.ask_all(host, KeyMessage::Report { id, wanted, key })
    }

    fn ask_all(&mut self, host: usize, message: KeyMessage) -> Result<(), String> {
        let links = self.running(host).links.values();
        let nodes: Vec<Incarnation> = links.map(|link| link.node.clone()).collect();
        for node in nodes {
            self.send(host, &node, Carried::Key(message.clone()));
        }
        self.report_keys(host, None, message)
    }

    /// A node reports keys that its records have, written or not, and takes the word of no
    /// older ownership of theirs any more.
    fn report_keys(
        &mut self,
        host: usize,
        to: Option<Incarnation>,
        message: KeyMessage,
    ) -> Result<(), String> {
        let KeyMessage::Report { id, wanted, key } = message else {
            return Ok(());
        };
        let is_bug = self.bug == Some(Bug::UnwrittenKeysUnreported);
        let served = self.served(host);
        let process = self.running(host);
        for (partition, epoch) in &wanted {
            process.keys.epochs.promise(*partition, *epoch);
        }
        let (mut covered, mut keys, mut needs) = (Vec::new(), Vec::new(), Vec::new());
        for (partition, _) in served {
            let part = &process.parts[&partition];
            covered.push(partition);
            needs.push((partition, part.load, part.register.number));
            for (value, hold) in &part.register.holds {
                let of = |(partition, _): &(u32, u64)| *partition == key_partition(hold.key);
                let is_wanted = hold.key == key || wanted.iter().any(of);
                let is_left_out = is_bug && part.uncommitted.contains_key(&hold.fence);
                if hold.key != 0 && is_wanted && !is_left_out {
                    keys.push((hold.key, place(partition, *value)));
                }
            }
        }
        let told = KeyMessage::Told { id, covered, keys };
        let unsent = UnsentTold { to, told, needs };
        process.keys.unsent.push(unsent);
        self.settle_keys(host);
        Ok(())
    }

    /// Send what waited for entries that are written now.
    pub(crate) fn settle_keys(&mut self, host: usize) {
        let process = self.running(host);
        let mut done = std::mem::take(&mut process.keys.done);
        for unsent in std::mem::take(&mut process.keys.unsent) {
            let part = |of: &(u32, u64, u64)| {
                let part = process.parts.get(&of.0);
                part.filter(|part| part.load == of.1)
            };
            // What was decided of a partition that is gone may never be written.
            if unsent.needs.iter().any(|of| part(of).is_none()) {
                continue;
            }
            let is_written = |of: &(u32, u64, u64)| part(of).is_some_and(|it| it.written >= of.2);
            match unsent.needs.iter().all(is_written) {
                true => done.push((unsent.to, unsent.told)),
                false => process.keys.unsent.push(unsent),
            }
        }
        for (to, message) in done {
            if let Some(to) = to.or_else(|| self.machine(host)?.incarnation().cloned()) {
                self.send(host, &to, Carried::Key(message));
            }
        }
    }

    /// Give a value for a key: where its record is, or was, or anywhere.
    fn take_key(&mut self, host: usize, taking: Taking, value: Option<u128>) -> Result<(), String> {
        let beside = value.map(|value| value as u32 / VALUES as u32);
        let anywhere = self.rng.below(u64::from(PARTITIONS)) as u32;
        let target = beside.unwrap_or(anywhere);
        let process = self.running(host);
        let me = process.machine.incarnation().cloned();
        let owner = process
            .machine
            .owner(target)
            .map(|(owner, _)| owner.clone());
        let (Some(owner), Some(me)) = (owner, me) else {
            process.keys.settle(&taking, taking.known.clone());
            self.answer(host, taking.ask, Answer::Down, None);
            return Ok(());
        };
        let message = KeyMessage::Take {
            ask: taking.ask,
            at: taking.at,
            key: taking.key,
            beside,
            target,
        };
        let id = taking.ask.id;
        process.keys.taking.insert(id, taking);
        self.for_process(host, KEY_WAIT, Event::KeyTimeOut { id });
        // A task that goes on late may find that the key has another owner by now.
        let most = if self.chance(300) { 900 } else { 4 };
        let delay = self.rng.below(most * MILLI);
        let to = (owner != me).then_some(owner);
        self.for_process(host, delay, Event::KeySend { to, message });
        Ok(())
    }

    /// An ask for a key goes to the owner of a value.
    pub(crate) fn send_key(
        &mut self,
        host: usize,
        to: Option<Incarnation>,
        message: KeyMessage,
    ) -> Result<(), String> {
        match to {
            Some(to) => self.send(host, &to, Carried::Key(message)),
            None => return self.give_for_key(host, None, message),
        }
        Ok(())
    }

    /// The owner of values gives one for a key, if the word of the key's owner counts.
    fn give_for_key(
        &mut self,
        host: usize,
        to: Option<Incarnation>,
        message: KeyMessage,
    ) -> Result<(), String> {
        let KeyMessage::Take {
            ask,
            at,
            key,
            beside,
            target,
        } = message
        else {
            return Ok(());
        };
        let id = ask.id;
        let served = self.served(host);
        let is_here = |wanted: u32| served.iter().any(|(partition, _)| *partition == wanted);
        let process = self.running(host);
        let record = process.machine.table().owner(at.0).record.as_ref();
        let known = record.map_or(0, |record| record.epoch);
        let counts = process.keys.epochs.takes(at.0, at.1, known);
        if !counts || !beside.is_none_or(is_here) || !is_here(target) {
            let came = KeyCame::Nothing;
            self.key_took(host, to, KeyMessage::Took { id, came });
            return Ok(());
        }
        let now = self.hosts[host].local(self.now);
        for (partition, epoch) in &served {
            self.expire_values(host, *partition, *epoch, now)?;
        }
        for (partition, _) in &served {
            let register = &self.part(host, *partition).register;
            let mut holds = register.holds.iter();
            if let Some((value, hold)) = holds.find(|(_, hold)| hold.key == key)
                && hold.ask != ask.key
            {
                let came = KeyCame::Taken(place(*partition, *value));
                self.key_took(host, to, KeyMessage::Took { id, came });
                return Ok(());
            }
        }
        // The ask itself may have it, if it is asked again.
        let mut target = target;
        for (partition, _) in &served {
            let mut holds = self.part(host, *partition).register.holds.values();
            if holds.any(|hold| hold.ask == ask.key) {
                target = *partition;
            }
        }
        let epoch = served.iter().find(|(partition, _)| *partition == target);
        let epoch = epoch.expect("it is here").1;
        let (written, came) = self.give_value(host, (target, epoch), &ask)?;
        let message = KeyMessage::Took { id, came };
        let keys = &mut self.running(host).keys;
        match written {
            Some(number) => {
                let waiting = keys.unwritten.entry((target, number)).or_default();
                waiting.push((to, message));
            }
            None => self.key_took(host, to, message),
        }
        Ok(())
    }

    /// Give a value of a partition: the entry that has to be written for it, and what came.
    fn give_value(
        &mut self,
        host: usize,
        (target, epoch): (u32, u64),
        ask: &Ask,
    ) -> Result<(Option<u64>, KeyCame), String> {
        let now = self.hosts[host].local(self.now);
        let (written, granted) = match self.part(host, target).serve(ask, now) {
            Did::Write(entry, granted) => {
                self.write(host, target, epoch, entry)?;
                (Some(entry.number), granted)
            }
            Did::Wait(number, granted) => (Some(number), granted),
            Did::Answer(granted) => (None, granted),
            Did::Spent => {
                self.faults.count("spent epoch");
                self.step(host, |machine, now, effects| {
                    machine.spent(target, epoch, now, effects);
                })?;
                (None, Answer::Down)
            }
        };
        let came = match granted {
            Answer::Granted { value, fence } => KeyCame::Granted(target, value, fence),
            _ => KeyCame::Nothing,
        };
        Ok((written, came))
    }

    fn key_took(&mut self, host: usize, to: Option<Incarnation>, message: KeyMessage) {
        self.running(host).keys.done.push((to, message));
        self.settle_keys(host);
    }

    /// Another node says something about keys, or this one to itself.
    pub(crate) fn key_heard(
        &mut self,
        host: usize,
        from: &Incarnation,
        message: KeyMessage,
    ) -> Result<(), String> {
        match message {
            KeyMessage::Report { .. } => self.report_keys(host, Some(from.clone()), message),
            KeyMessage::Take { .. } => self.give_for_key(host, Some(from.clone()), message),
            KeyMessage::Told { id, covered, keys } => self.keys_told(host, id, &covered, &keys),
            KeyMessage::Took { id, came } => {
                let side = &mut self.running(host).keys;
                let Some(taking) = side.taking.remove(&id) else {
                    return Ok(());
                };
                let (at, answer) = match came {
                    KeyCame::Granted(partition, value, fence) => {
                        let at = KeyAt::At([place(partition, value)].into());
                        let granted = Answer::GrantedKey {
                            partition,
                            value,
                            fence,
                        };
                        (at, granted)
                    }
                    KeyCame::Taken(value) => (KeyAt::At([value].into()), Answer::KeyTaken),
                    KeyCame::Nothing => (taking.known.clone(), Answer::Down),
                };
                side.settle(&taking, at);
                self.answer(host, taking.ask, answer, None);
                Ok(())
            }
        }
    }

    /// A node has reported its keys.
    fn keys_told(
        &mut self,
        host: usize,
        id: u64,
        covered: &[u32],
        told: &[(u64, u128)],
    ) -> Result<(), String> {
        let keys = &mut self.running(host).keys;
        if let Some((_, wanted)) = keys.collecting.as_ref().filter(|it| it.0 == id) {
            for (partition, epoch) in wanted {
                let of = told
                    .iter()
                    .filter(|(key, _)| key_partition(*key) == *partition);
                let of: Vec<_> = of.map(|(key, value)| (key.to_be_bytes(), *value)).collect();
                let of = of.iter().map(|(key, value)| (&key[..], *value));
                keys.index.reported((*partition, *epoch), covered, of);
            }
            let is_over = keys.index.unready(wanted).is_empty();
            if is_over {
                keys.collecting = None;
            }
            return Ok(());
        }
        let Some(finding) = keys.finding.get_mut(&id) else {
            return Ok(());
        };
        finding.covered.extend(covered);
        finding.values.extend(told.iter().map(|(_, value)| *value));
        if finding.covered.len() < PARTITIONS as usize {
            return Ok(());
        }
        let Finding {
            mut taking, values, ..
        } = keys.finding.remove(&id).expect("it was just found");
        let value = values.first().copied();
        taking.known = match value {
            Some(_) => KeyAt::At(values),
            None => KeyAt::Nowhere,
        };
        self.take_key(host, taking, value)
    }

    /// What was asked has no answer in time: what became of the key is not known.
    pub(crate) fn key_time_out(&mut self, host: usize, id: u64) {
        let keys = &mut self.running(host).keys;
        if keys.collecting.as_ref().is_some_and(|it| it.0 == id) {
            keys.collecting = None;
        }
        let found = keys.finding.remove(&id);
        if let Some(taking) = &found {
            keys.settle(&taking.taking, KeyAt::Unsure);
        }
        let taken = keys.taking.remove(&id);
        if let Some(taking) = &taken {
            keys.settle(taking, KeyAt::Unsure);
        }
        if let Some(finding) = found {
            self.answer(host, finding.taking.ask, Answer::Down, None);
        }
        if let Some(taking) = taken {
            self.answer(host, taking.ask, Answer::Unknown, None);
        }
    }

    /// The partitions that a host serves, with their epochs.
    fn served(&self, host: usize) -> Vec<(u32, u64)> {
        let all = 0..PARTITIONS;
        let served = all.filter_map(|at| Some((at, self.serves(host, at)?)));
        served.collect()
    }

    fn key_id(&mut self) -> u64 {
        self.next_ask += 1;
        self.next_ask - 1
    }
}
