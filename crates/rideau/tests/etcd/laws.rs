//! The model of etcd answers as etcd does: scripts by chance are asked of both.
//!
//! A script that fails is printed with its seed. To run it alone:
//! `RIDEAU_SEED=the seed cargo test -p rideau --features etcd --test etcd laws`. To run
//! more: `RIDEAU_SEEDS=10000`. `RIDEAU_SOAK` means as many.
//!
//! No lease of a script expires: that takes seconds. Revoking one stands for it.

use std::collections::BTreeMap;
use std::env;
use std::fmt::Debug;
use std::{mem, slice};

use rideau::store::etcd::{EtcdClient, EtcdWatch, KeptAlive, LeaseId, Watched};
use rideau_core::Instant;
use rideau_core::cluster::{
    Holds, KeyChange, KeyRange, KeyValue, StoreOp, StoreOutcome, StoreRefusal, StoreReply,
    StoreRequest, StoreTxn, TxnReply,
};
use rideau_testing::etcd_model::EtcdModel;
use tokio::task::LocalSet;
use tokio::time::timeout;

use crate::script::{Author, Call, put, words};
use crate::server::{PATIENCE, Server};

/// How many scripts are run unless more are wanted.
const SCRIPTS: u64 = 400;
const SCRIPTS_LONG: u64 = 10_000;
/// How many run at the same time, each with an etcd of its own: a script waits for the
/// watches most of the time.
const SERVERS: usize = 3;
/// What has to be answered at least once.
const ANSWERS: [&str; 16] = [
    "granted",
    "revoked",
    "compacted",
    "held",
    "not held",
    "no lease",
    "too many",
    "too large",
    "key twice",
    "no such revision",
    "kept",
    "lost",
    "watch read",
    "watch compacted",
    "watch from the compacted revision",
    "watch from behind the compacted revision",
];

/// How often each answer came.
type Counts = BTreeMap<&'static str, usize>;

#[tokio::test]
async fn the_model_answers_as_etcd_does() {
    let number = |name| env::var(name).ok().map(|number| number.parse().unwrap());
    let usual = match env::var_os("RIDEAU_SOAK") {
        Some(_) => SCRIPTS_LONG,
        None => SCRIPTS,
    };
    let only = number("RIDEAU_SEED");
    let seeds = match only {
        Some(seed) => seed..seed + 1,
        None => 0..number("RIDEAU_SEEDS").unwrap_or(usual),
    };
    let workers = LocalSet::new();
    let running: Vec<_> = (0..SERVERS)
        .map(|first| workers.spawn_local(run_each(seeds.clone().skip(first).step_by(SERVERS))))
        .collect();
    workers.await;
    let mut counts = BTreeMap::new();
    for worker in running {
        let counted = worker.await.unwrap().unwrap_or_else(|why| panic!("{why}"));
        for (kind, count) in counted {
            *counts.entry(kind).or_insert(0) += count;
        }
    }
    println!("{} scripts: {counts:?}", seeds.end - seeds.start);
    let is_missing = |kind: &&&str| !counts.contains_key(**kind);
    let missing: Vec<_> = ANSWERS.iter().filter(is_missing).collect();
    assert!(only.is_some() || missing.is_empty(), "none of {missing:?}");
}

/// Run scripts one after another with one etcd. Returns how often each answer came, or
/// the script that fails.
async fn run_each(seeds: impl Iterator<Item = u64>) -> Result<Counts, String> {
    let server = Server::start().await;
    let client = server.client().await;
    let mut counts = Counts::new();
    for seed in seeds {
        for kind in Script::run(seed, &client).await? {
            *counts.entry(kind).or_default() += 1;
        }
    }
    Ok(counts)
}

/// A script on its way, with both that answer it.
struct Script<'a> {
    client: &'a EtcdClient,
    model: EtcdModel,
    numbers: Numbers,
    watches: Vec<OpenWatch>,
    /// The newest revision that was compacted.
    compacted: u64,
    /// What was asked and answered, in words.
    said: Vec<String>,
    /// The kinds of the answers.
    kinds: Vec<&'static str>,
}

/// What numbers of the model are in etcd.
struct Numbers {
    /// etcd's revision is larger by this.
    ahead: u64,
    /// etcd's leases by those of the model.
    leases: BTreeMap<u64, u64>,
}

struct OpenWatch {
    range: KeyRange,
    watch: EtcdWatch,
    /// What the model has from here on is not expected yet.
    next: u64,
    expected: Vec<Revision>,
    seen: Vec<Revision>,
}

type Revision = (u64, Vec<KeyChange>);
type Agreed = Result<(), String>;

impl<'a> Script<'a> {
    async fn run(seed: u64, client: &'a EtcdClient) -> Result<Vec<&'static str>, String> {
        // A revision that no script before has compacted.
        let begin = StoreTxn {
            then: vec![put("begin".to_owned(), b"")],
            ..StoreTxn::default()
        };
        let begun = client.carry_out(StoreRequest::Txn(begin)).await;
        let StoreOutcome::Done(StoreReply::Txn(TxnReply { revision, .. })) = begun else {
            panic!("{begun:?}");
        };
        let model = EtcdModel::default();
        let mut script = Self {
            client,
            numbers: Numbers {
                ahead: revision - model.revision(),
                leases: BTreeMap::new(),
            },
            model,
            watches: Vec::new(),
            compacted: 0,
            said: Vec::new(),
            kinds: Vec::new(),
        };
        match script.play(seed).await {
            Ok(()) => Ok(script.kinds),
            Err(why) => {
                let said = script.said.join("\n");
                Err(format!("{said}\n{why}\nRIDEAU_SEED={seed} runs it alone"))
            }
        }
    }

    async fn play(&mut self, seed: u64) -> Agreed {
        let prefix = format!("s{seed}/");
        let mut author = Author::new(seed, &prefix);
        for _ in 0..author.calls() {
            match author.call(&self.model) {
                Call::Request(request) => {
                    let outcome = self.request(request).await?;
                    author.compacted = self.compacted;
                    if let StoreOutcome::Done(StoreReply::Granted { lease, .. }) = outcome {
                        author.leases.push(lease);
                    }
                }
                Call::KeepAlive { lease } => self.keep_alive(lease).await?,
                Call::Watch { range, from } => self.watch(range, from).await?,
            }
        }
        for at in 0..self.watches.len() {
            self.catch_up(at).await?;
        }
        for lease in author.leases {
            self.request(StoreRequest::RevokeLease { lease }).await?;
        }
        let all = KeyRange::prefix(&prefix);
        let rest = StoreTxn {
            then: vec![StoreOp::Read(all.clone()), StoreOp::Delete(all)],
            ..StoreTxn::default()
        };
        self.request(StoreRequest::Txn(rest)).await?;
        Ok(())
    }

    /// Ask both the same. They shall answer the same.
    async fn request(&mut self, request: StoreRequest) -> Result<StoreOutcome, String> {
        self.said.push(words(&Call::Request(request.clone())));
        let expected = self.model.call(&request, Instant::START);
        let request = self.numbers.request(request);
        let mut seen = self.client.carry_out(request.clone()).await;
        if let (
            StoreOutcome::Done(StoreReply::Granted { lease, .. }),
            StoreOutcome::Done(StoreReply::Granted { lease: number, .. }),
        ) = (&expected, &seen)
        {
            self.numbers.leases.insert(*lease, *number);
        }
        self.numbers.outcome(&mut seen);
        self.compare(&expected, &seen)?;
        self.kinds.push(kind(&request, &expected));
        if let (StoreRequest::Compact { revision }, StoreOutcome::Done(_)) = (request, &expected) {
            self.compacted = revision - self.numbers.ahead;
        }
        for watch in &mut self.watches {
            watch.expect(&self.model);
        }
        Ok(expected)
    }

    async fn keep_alive(&mut self, lease: u64) -> Agreed {
        self.said.push(words(&Call::KeepAlive { lease }));
        let expected = self.model.keep_alive(lease, Instant::START);
        let id = LeaseId::from_core(self.numbers.lease(lease)).unwrap();
        let mut keeper = self.client.keep_lease(id, PATIENCE);
        let kept = keeper
            .keep_alive()
            .await
            .map_err(|error| error.to_string())?;
        self.kinds.push(match kept {
            KeptAlive::Kept(_) => "kept",
            KeptAlive::Lost => "lost",
        });
        self.compare(&expected, &kept.ttl())
    }

    /// Open a watch that stays open until the end of the script.
    async fn watch(&mut self, range: KeyRange, from: u64) -> Agreed {
        let (watched, call) = (range.clone(), Call::Watch { range, from });
        self.said.push(words(&call));
        let watch = self.client.watch_core(&watched, from + self.numbers.ahead);
        let mut watch = watch.ok_or("there is nothing to watch")?;
        if from <= self.compacted {
            // The model still knows the compacted revision itself. etcd may know half of it.
            let served = self.model.changes(from, slice::from_ref(&watched));
            let oldest = served.map_or_else(|oldest| oldest, |_| from);
            // A watch that is served all the same has something to tell.
            self.mark(&watched).await?;
            let told = next(&mut watch).await?;
            let revision = i64::try_from(oldest + self.numbers.ahead).unwrap();
            self.kinds.push(match from == self.compacted {
                true => "watch from the compacted revision",
                false => "watch compacted",
            });
            return self.compare(&Watched::Compacted { revision }, &told);
        }
        if from == self.compacted + 1 {
            self.kinds.push("watch from behind the compacted revision");
        }
        let mut open = OpenWatch {
            range: watched,
            watch,
            next: from,
            expected: Vec::new(),
            seen: Vec::new(),
        };
        open.expect(&self.model);
        self.watches.push(open);
        let at = self.watches.len() - 1;
        while self.model.revision() < from {
            self.mark(&self.watches[at].range.clone()).await?;
        }
        // etcd has it among those that get what comes from then on, whatever is compacted.
        self.catch_up(at).await
    }

    /// Change the first key of a range.
    async fn mark(&mut self, range: &KeyRange) -> Agreed {
        let txn = StoreTxn {
            then: vec![put(range.from.clone(), b"mark")],
            ..StoreTxn::default()
        };
        self.request(StoreRequest::Txn(txn)).await?;
        Ok(())
    }

    /// Mark the end of what a watch has to tell by now, and read up to the mark.
    async fn catch_up(&mut self, at: usize) -> Agreed {
        self.mark(&self.watches[at].range.clone()).await?;
        let (last, ahead) = (self.model.revision(), self.numbers.ahead);
        let open = &mut self.watches[at];
        while open
            .seen
            .last()
            .is_none_or(|(revision, _)| *revision < last)
        {
            let told = next(&mut open.watch).await?;
            if let Some((revision, mut changes)) = told.to_core() {
                self.numbers.changes(&mut changes);
                open.seen.push((revision - ahead, changes));
            } else if told != Watched::Alive {
                return Err(format!("the watch tells {told:?}"));
            }
        }
        let (range, expected, seen) = (
            open.range.clone(),
            mem::take(&mut open.expected),
            mem::take(&mut open.seen),
        );
        self.said.push(format!("read the watch of {range:?}"));
        self.kinds.push("watch read");
        self.compare(&expected, &seen)
    }

    fn compare<T: PartialEq + Debug>(&mut self, expected: &T, seen: &T) -> Agreed {
        if expected == seen {
            if let Some(said) = self.said.last_mut() {
                said.push_str(&format!("\n  -> {seen:?}"));
            }
            return Ok(());
        }
        Err(format!("the model: {expected:?}\netcd:      {seen:?}"))
    }
}

impl OpenWatch {
    /// Take over what is new in the model.
    fn expect(&mut self, model: &EtcdModel) {
        let range = slice::from_ref(&self.range);
        if let Ok(new) = model.changes(self.next, range) {
            self.expected.extend(new);
        }
        self.next = self.next.max(model.revision() + 1);
    }
}

impl Numbers {
    /// The request with numbers of etcd.
    fn request(&self, mut request: StoreRequest) -> StoreRequest {
        match &mut request {
            StoreRequest::GrantLease { .. } => (),
            StoreRequest::RevokeLease { lease } => *lease = self.lease(*lease),
            StoreRequest::Compact { revision } => *revision += self.ahead,
            StoreRequest::Txn(txn) => {
                for compare in &mut txn.compares {
                    match &mut compare.holds {
                        Holds::CreatedAt(at) | Holds::NotCreatedAt(at) | Holds::ChangedAt(at)
                            if *at > 0 =>
                        {
                            *at += self.ahead;
                        }
                        _ => (),
                    }
                }
                for op in txn.then.iter_mut().chain(&mut txn.otherwise) {
                    if let StoreOp::Put {
                        lease: Some(lease), ..
                    } = op
                    {
                        *lease = self.lease(*lease);
                    }
                }
            }
        }
        request
    }

    /// A lease that was never granted has the same number in both.
    fn lease(&self, lease: u64) -> u64 {
        self.leases.get(&lease).copied().unwrap_or(lease)
    }

    /// The outcome with numbers of the model.
    fn outcome(&self, outcome: &mut StoreOutcome) {
        match outcome {
            StoreOutcome::Done(StoreReply::Granted { lease, .. }) => *lease = self.back(*lease),
            StoreOutcome::Done(StoreReply::Txn(reply)) => {
                reply.revision -= self.ahead;
                for key in reply.reads.iter_mut().flatten() {
                    self.key(key);
                }
            }
            StoreOutcome::Done(StoreReply::Ok)
            | StoreOutcome::Refused(_)
            | StoreOutcome::Unknown => (),
        }
    }

    fn changes(&self, changes: &mut [KeyChange]) {
        for change in changes {
            if let KeyChange::Put(key) = change {
                self.key(key);
            }
        }
    }

    fn key(&self, key: &mut KeyValue) {
        key.created -= self.ahead;
        key.changed -= self.ahead;
        key.lease = key.lease.map(|lease| self.back(lease));
    }

    fn back(&self, number: u64) -> u64 {
        let mut leases = self.leases.iter();
        let lease = leases.find(|(_, theirs)| **theirs == number);
        lease.map_or(number, |(lease, _)| *lease)
    }
}

/// What a watch tells next.
async fn next(watch: &mut EtcdWatch) -> Result<Watched, String> {
    let told = timeout(PATIENCE, watch.next()).await;
    let told = told.map_err(|_| "etcd tells the watch nothing".to_owned())?;
    told.map_err(|error| format!("the watch fails: {error}"))
}

fn kind(request: &StoreRequest, outcome: &StoreOutcome) -> &'static str {
    match (request, outcome) {
        (_, StoreOutcome::Done(StoreReply::Granted { .. })) => "granted",
        (_, StoreOutcome::Done(StoreReply::Txn(TxnReply { held: true, .. }))) => "held",
        (_, StoreOutcome::Done(StoreReply::Txn(_))) => "not held",
        (StoreRequest::Compact { .. }, StoreOutcome::Done(StoreReply::Ok)) => "compacted",
        (_, StoreOutcome::Done(StoreReply::Ok)) => "revoked",
        (_, StoreOutcome::Refused(StoreRefusal::NoLease)) => "no lease",
        (_, StoreOutcome::Refused(StoreRefusal::TooMany)) => "too many",
        (_, StoreOutcome::Refused(StoreRefusal::TooLarge)) => "too large",
        (_, StoreOutcome::Refused(StoreRefusal::KeyTwice)) => "key twice",
        (_, StoreOutcome::Refused(StoreRefusal::NoSpace)) => "no space",
        (_, StoreOutcome::Refused(StoreRefusal::Compacted)) => "no such revision",
        (_, StoreOutcome::Unknown) => "unknown",
    }
}
