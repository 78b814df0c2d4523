//! This node as the owner of partitions: the pools of lists, brokers and regulators in them
//! that nodes share.
//!
//! They are those of the catalog. When a partition comes, they are made anew, and take over
//! what all nodes have reported. Asks that come meanwhile wait for that.

use std::collections::HashMap;
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use rideau::{AskOptions, Held, Lead, Lease, Match, Reason, Refusal, Refused, Side};
use rideau_core::cluster::{Incarnation, RowAnswer};
use tokio::task::AbortHandle;

use super::claim::ClaimWait;
use super::names::{OwnedNames, OwnedRow, RowOf, WaitTask};
use super::place_claim::{
    PlaceClaim, PlaceEnd, PlaceGrant, PlaceHeld, PlaceKind, PlaceOutcome, write_end,
};
use super::{Cluster, LOOK};
use crate::state::catalog::{Catalog, NamedBroker, NamedPool};
use crate::state::end::EndReason;
use crate::state::matches::{End, HeldMatch, Mailbox, Party};
use crate::state::members::{KeptValue, Members, why_not_taken};

/// A value of a list that is made is there by then, unless the machine is very busy.
const MADE_WITHIN: Duration = Duration::from_secs(1);

/// How far the places of a partition are from being asked.
pub(super) enum PlacesPhase {
    /// A task takes over. These asks wait for that.
    Opening(Vec<EarlyAsk>),
    Open,
}

/// An ask that came too early.
pub(super) struct EarlyAsk {
    pub(super) of: RowOf,
    pub(super) claim: PlaceClaim,
    pub(super) age: Duration,
}

/// A row of a node.
pub(super) type RowKey = (Incarnation, u64);

/// What some node's client holds of a place.
pub(super) enum PlaceLease {
    Member(Held<'static, Members>, Arc<NamedPool>),
    /// A value that its pool has no room for any more.
    Kept(KeptValue),
    Lease(Lease),
    Match(HeldMatch),
}

/// A lease that was taken over.
struct AdoptedLease {
    key: RowKey,
    lease: PlaceLease,
    /// Where a party of a match is told of the other's end.
    mail: Option<Arc<Mailbox>>,
    /// The answer to its ask, which the owner before could not tell any more.
    answer: Option<PlaceGrant>,
}

/// What an ask came to. A party of a match is told there of the other's end.
type Placed = Result<(PlaceLease, PlaceGrant, Option<Arc<Mailbox>>), PlaceOutcome>;
type Placing = Pin<Box<dyn Future<Output = Placed> + Send>>;

impl PlaceLease {
    /// Give it back.
    pub(super) fn end(self, end: PlaceEnd) {
        match self {
            Self::Member(held, pool) => Held::end(held, pool.fate(end.why)),
            Self::Kept(kept) => drop(kept),
            Self::Lease(lease) => match end.why.is_work_done() {
                true => lease.release(),
                false => lease.fail(),
            },
            Self::Match(held_match) => match end.why {
                EndReason::Released => held_match.done(end.payload),
                why => held_match.down(why.word()),
            },
        }
    }
}

impl Cluster {
    /// Grant an ask, refuse it, or let it wait. The lock of its partition is held.
    pub(super) fn take_place_ask(
        self: &Arc<Self>,
        known: &mut OwnedNames,
        of: RowOf,
        claim: PlaceClaim,
        age: Duration,
    ) {
        let key = of.key.clone();
        let row = match &mut known.places {
            PlacesPhase::Opening(early) => {
                early.push(EarlyAsk { of, claim, age });
                OwnedRow::Coming(None)
            }
            PlacesPhase::Open => OwnedRow::Waits(self.begin_place(of, &claim, age)),
        };
        known.rows.insert(key, row);
    }

    /// Have an ask take its place in the queue now. Its answer comes by a task.
    fn begin_place(self: &Arc<Self>, of: RowOf, claim: &PlaceClaim, age: Duration) -> WaitTask {
        let catalog = self.names.catalog().load_full();
        let mut placing = begin(&catalog, claim, age, &of.key);
        let mut context = Context::from_waker(Waker::noop());
        let first = match placing.as_mut().poll(&mut context) {
            Poll::Ready(placed) => Some(placed),
            Poll::Pending => None,
        };
        let cluster = Arc::clone(self);
        let task = self.names.runtime.spawn(async move {
            let mut placed = match first {
                Some(placed) => placed,
                None => placing.await,
            };
            match &mut placed {
                Ok((_, grant, _)) => grant.waited += age,
                Err(PlaceOutcome::Refused(refusal, _)) => refusal.waited += age,
                Err(_) => (),
            }
            while cluster.node.serves_names(of.partition) != Some(of.epoch) {
                tokio::time::sleep(LOOK).await;
            }
            cluster.placed(&of, placed);
        });
        WaitTask::new(task.abort_handle())
    }

    /// An ask has come to something.
    fn placed(self: &Arc<Self>, of: &RowOf, placed: Placed) {
        let mut owned = self.names.owned[of.partition as usize].lock();
        let known = owned.as_mut().filter(|owned| owned.epoch == of.epoch);
        let Some(known) = known.filter(|known| known.rows.contains_key(&of.key)) else {
            drop(owned);
            // It was cancelled just now, or is another's.
            if let Ok((lease, ..)) = placed {
                lease.end(PlaceEnd::new(EndReason::Cancelled));
            }
            return;
        };
        match placed {
            Ok((lease, grant, mail)) => {
                let before = known.rows.insert(of.key.clone(), OwnedRow::Place(lease));
                let fence = known.next_fence();
                drop(owned);
                drop(before);
                self.spend(of, fence);
                let told = PlaceOutcome::Granted(grant).write();
                self.answer(of, RowAnswer::Granted { fence }, told);
                if let Some(mail) = mail {
                    self.watch_party(of.clone(), mail);
                }
            }
            Err(no) => {
                let row = known.rows.remove(&of.key);
                drop(owned);
                drop(row);
                self.answer(of, RowAnswer::Refused, no.write());
            }
        }
    }

    /// Have a party of a match told when the other has ended it.
    fn watch_party(self: &Arc<Self>, of: RowOf, mail: Arc<Mailbox>) {
        let cluster = Arc::clone(self);
        self.names.runtime.spawn(async move {
            let end = mail.ended().await;
            cluster.drop_party(&of, &end);
        });
    }

    fn drop_party(self: &Arc<Self>, of: &RowOf, end: &End) {
        let mut owned = self.names.owned[of.partition as usize].lock();
        let known = owned.as_mut().filter(|owned| owned.epoch == of.epoch);
        let row = known.and_then(|known| known.rows.remove(&of.key));
        drop(owned);
        // It may have ended it itself.
        if row.is_some() {
            let mut effects = Vec::new();
            let (node, ticket) = &of.key;
            let at = (of.partition, of.epoch);
            let mut drops = self.names.drops.lock();
            drops.end(node, *ticket, at, write_end(end), &mut effects);
            drop(drops);
            let _ = self.carry(effects, &[]);
        }
    }

    /// A client wants to keep a lease of a regulator. Says for how long the valve has been
    /// open for that and how long the answer took, or how long that took if it is over. None
    /// if there is no such lease.
    pub(crate) fn renew_here(
        &self,
        partition: u32,
        key: &(Incarnation, u64),
    ) -> Option<Result<(Lead, Duration), Duration>> {
        let mut owned = self.names.owned.get(partition as usize)?.lock();
        let rows = &mut owned.as_mut()?.rows;
        let lease = match rows.remove(key)? {
            OwnedRow::Place(PlaceLease::Lease(lease)) => lease,
            other => {
                rows.insert(key.clone(), other);
                return None;
            }
        };
        Some(match lease.renew() {
            Ok(lease) => {
                let numbers = (lease.lead(), lease.waited());
                let row = OwnedRow::Place(PlaceLease::Lease(lease));
                rows.insert(key.clone(), row);
                Ok(numbers)
            }
            Err(stopped) => Err(stopped.waited),
        })
    }

    /// Take over what all nodes hold of places, in the background.
    pub(super) fn adopt_places(
        self: &Arc<Self>,
        partition: u32,
        epoch: u64,
        held: Vec<(RowKey, PlaceHeld)>,
        asks: HashMap<RowKey, PlaceClaim>,
    ) -> AbortHandle {
        let cluster = Arc::clone(self);
        let task = self.names.runtime.spawn(async move {
            let catalog = cluster.renew_places(partition);
            let leases = adopt(&catalog, held, &asks).await;
            cluster.open_places(partition, epoch, leases);
        });
        task.abort_handle()
    }

    /// Make all places of a partition anew.
    fn renew_places(&self, partition: u32) -> Arc<Catalog> {
        let cell = self.names.catalog();
        let is_meant = |home: &str| self.partition_of_name(home.as_bytes()) == partition;
        let mut is_any = false;
        cell.load()
            .each_shared(|place| is_any |= is_meant(&place.home));
        if is_any {
            let made = cell.change(|old| old.renewed(&is_meant).map(|next| (next, ())));
            if let Err(error) = made {
                tracing::error!("places of partition {partition} cannot be made: {error}");
            }
        }
        cell.load_full()
    }

    fn open_places(self: &Arc<Self>, partition: u32, epoch: u64, leases: Vec<AdoptedLease>) {
        let mut ended = Vec::new();
        let mut parties = Vec::new();
        let mut answers = Vec::new();
        let mut owned = self.names.owned[partition as usize].lock();
        let Some(known) = owned.as_mut().filter(|owned| owned.epoch == epoch) else {
            // It has gone again: the next owner knows of all this by itself.
            return;
        };
        for adopted in leases {
            let AdoptedLease { key, lease, .. } = adopted;
            match known.rows.remove(&key) {
                Some(OwnedRow::Coming(None)) => {
                    known.rows.insert(key.clone(), OwnedRow::Place(lease));
                    let of = RowOf {
                        partition,
                        epoch,
                        key,
                    };
                    if let Some(grant) = adopted.answer {
                        answers.push((of.clone(), known.next_fence(), grant));
                    }
                    parties.extend(adopted.mail.map(|mail| (of, mail)));
                }
                Some(OwnedRow::Coming(Some(end))) => ended.push((lease, end)),
                // Its node is gone.
                _ => ended.push((lease, PlaceEnd::new(EndReason::Lost))),
            }
        }
        self.set_here(partition, true);
        if let PlacesPhase::Opening(early) = mem::replace(&mut known.places, PlacesPhase::Open) {
            for EarlyAsk { of, claim, age } in early {
                // Others were cancelled meanwhile.
                if let Some(OwnedRow::Coming(None)) = known.rows.get(&of.key) {
                    self.take_place_ask(known, of, claim, age);
                }
            }
        }
        known
            .rows
            .retain(|_, row| !matches!(row, OwnedRow::Coming(_)));
        drop(owned);
        for (lease, end) in ended {
            lease.end(end);
        }
        for (of, fence, grant) in answers {
            let told = PlaceOutcome::Granted(grant).write();
            self.answer(&of, RowAnswer::Granted { fence }, told);
        }
        for (of, mail) in parties {
            self.watch_party(of, mail);
        }
    }

    /// The config has changed: what is new in a partition of this node is here at once.
    pub(crate) fn follow_places(&self) {
        for partition in 0..self.partitions.count() {
            let owned = self.names.owned[partition as usize].lock();
            let is_open = |known: &OwnedNames| matches!(known.places, PlacesPhase::Open);
            if owned.as_ref().is_some_and(is_open) {
                self.set_here(partition, true);
            }
        }
    }

    /// This node decides about the places of a partition, or does not any more.
    pub(super) fn set_here(&self, partition: u32, is_here: bool) {
        let catalog = self.names.catalog().load();
        catalog.each_shared(|place| {
            if self.partition_of_name(place.home.as_bytes()) == partition {
                place.set_here(is_here);
            }
        });
    }
}

/// Take over what is held.
async fn adopt(
    catalog: &Catalog,
    held: Vec<(RowKey, PlaceHeld)>,
    asks: &HashMap<RowKey, PlaceClaim>,
) -> Vec<AdoptedLease> {
    let mut leases = Vec::new();
    let mut members: HashMap<String, Vec<(RowKey, String)>> = HashMap::new();
    let mut parties = HashMap::new();
    for (key, PlaceHeld { claim, grant }) in held {
        match claim.kind {
            PlaceKind::Take => {
                let value = String::from_utf8_lossy(&grant.value).into_owned();
                members.entry(grant.from).or_default().push((key, value));
            }
            PlaceKind::Lease => {
                if let Some(place) = catalog.regulators.get(&claim.name) {
                    let lease = PlaceLease::Lease(place.regulator.adopt());
                    leases.push(AdoptedLease::new(key, lease));
                }
            }
            PlaceKind::Ask | PlaceKind::Offer => {
                parties.insert(key, (claim, grant));
            }
        }
    }
    for (name, values) in members {
        if let Some(pool) = catalog.pools.get(&name) {
            let adopted = adopt_members(pool, values).await;
            let adopted = adopted.into_iter();
            leases.extend(adopted.map(|(key, lease)| AdoptedLease::new(key, lease)));
        }
    }
    leases.extend(adopt_matches(parties, asks));
    leases
}

/// Take these values from a pool that nothing was taken from yet.
async fn adopt_members(
    pool: &Arc<NamedPool>,
    values: Vec<(RowKey, String)>,
) -> Vec<(RowKey, PlaceLease)> {
    let mut wanted: HashMap<_, _> = values
        .into_iter()
        .map(|(key, value)| (value, key))
        .collect();
    pool.members.put_first(wanted.keys());
    let mut leases = Vec::new();
    // Members that were started with the pool, and have no holder.
    let mut others = Vec::new();
    while !wanted.is_empty() {
        let terms = AskOptions {
            wait_max: Some(MADE_WITHIN),
            ..AskOptions::default()
        };
        let most = pool.pool.options().max;
        if leases.len() + others.len() >= most {
            break;
        }
        let Ok(held) = pool.pool.take_owned(terms).await else {
            break;
        };
        match wanted.remove(&**held.value()) {
            Some(key) => leases.push((key, PlaceLease::Member(held, Arc::clone(pool)))),
            None => others.push(held),
        }
    }
    drop(others);
    // The pool has become smaller. It does not give out what is held.
    for (value, key) in wanted {
        leases.push((key, PlaceLease::Kept(pool.members.keep(&value))));
    }
    leases
}

/// Bring the parties of each match together again. If the other party has not heard of the
/// match, it does now; if it has not reported at all, it is gone.
fn adopt_matches(
    mut parties: HashMap<RowKey, (PlaceClaim, PlaceGrant)>,
    asks: &HashMap<RowKey, PlaceClaim>,
) -> Vec<AdoptedLease> {
    let mut untold = HashMap::new();
    for (key, (claim, grant)) in &parties {
        let other = grant.other.as_ref().filter(|it| !parties.contains_key(it));
        if let Some((other, ask)) = other.and_then(|it| asks.get_key_value(it)) {
            let grant = PlaceGrant {
                value: claim.value.clone(),
                waited: Duration::ZERO,
                lead: Lead::from_nanos(0),
                from: grant.from.clone(),
                other: Some(key.clone()),
            };
            untold.insert(other.clone(), (ask.clone(), grant));
        }
    }
    let answers: HashMap<_, _> = untold
        .iter()
        .map(|(key, (_, grant))| (key.clone(), grant.clone()))
        .collect();
    parties.extend(untold);
    let mails: HashMap<_, _> = parties
        .keys()
        .map(|key| (key.clone(), Arc::new(Mailbox::of_row(key.clone()))))
        .collect();
    let adopted = |(key, (_, grant)): (RowKey, (PlaceClaim, PlaceGrant))| {
        let own = Arc::clone(&mails[&key]);
        let other = match grant.other.and_then(|other| mails.get(&other)) {
            Some(mail) => Party::with_mail(&grant.value, Arc::clone(mail)),
            None => {
                own.tell(End::Down(EndReason::Lost.word()));
                Party::new(&grant.value)
            }
        };
        let held = HeldMatch::adopted(grant.from.as_str().into(), Arc::clone(&own), other);
        AdoptedLease {
            answer: answers.get(&key).cloned(),
            mail: Some(own),
            ..AdoptedLease::new(key, PlaceLease::Match(held))
        }
    };
    parties.into_iter().map(adopted).collect()
}

impl AdoptedLease {
    /// A lease with nothing more to tell.
    const fn new(key: RowKey, lease: PlaceLease) -> Self {
        Self {
            key,
            lease,
            mail: None,
            answer: None,
        }
    }
}

/// Begin an ask. It takes its place in the queue when it is polled first.
fn begin(catalog: &Catalog, claim: &PlaceClaim, age: Duration, key: &RowKey) -> Placing {
    let terms = AskOptions {
        flow: claim.flow,
        ..claim.wait.terms(age).unwrap_or_default()
    };
    let unknown = || Box::pin(std::future::ready(Err(PlaceOutcome::Unknown)));
    match claim.kind {
        PlaceKind::Take => take(catalog, claim, terms).unwrap_or_else(|| unknown()),
        PlaceKind::Lease => match catalog.regulators.get(&claim.name) {
            None => unknown(),
            Some(place) => {
                let asking = place.regulator.begin_ask(terms);
                let from = claim.name.clone();
                Box::pin(async move {
                    let lease = asking.await.map_err(refused)?;
                    let grant = PlaceGrant {
                        value: Vec::new(),
                        waited: lease.waited(),
                        lead: lease.lead(),
                        from,
                        other: None,
                    };
                    Ok((PlaceLease::Lease(lease), grant, None))
                })
            }
        },
        PlaceKind::Ask => come(catalog, claim, terms, key, Side::Ask).unwrap_or_else(|| unknown()),
        PlaceKind::Offer => {
            come(catalog, claim, terms, key, Side::Offer).unwrap_or_else(|| unknown())
        }
    }
}

fn take(catalog: &Catalog, claim: &PlaceClaim, mut terms: AskOptions) -> Option<Placing> {
    let note = claim.note.clone();
    let (pools, taking): (Vec<_>, Pin<Box<dyn Future<Output = _> + Send>>) =
        match claim.name.strip_prefix('@') {
            Some(name) => {
                let group = Arc::clone(catalog.groups.get(name)?);
                let names = group.config.pools.iter();
                let pools: Vec<_> = names
                    .filter_map(|name| catalog.pools.get(name).cloned())
                    .collect();
                make_first(&mut terms, &pools);
                let taking = async move { group.group.take_on(terms).await };
                (pools, Box::pin(taking))
            }
            None => {
                let pool = Arc::clone(catalog.pools.get(&claim.name)?);
                let pools = vec![Arc::clone(&pool)];
                make_first(&mut terms, &pools);
                (pools, Box::pin(pool.pool.take_owned(terms)))
            }
        };
    Some(Box::pin(async move {
        let held = taking.await.map_err(|no| {
            let why = why_not_taken(&no, false);
            PlaceOutcome::Refused(no.refusal, why)
        })?;
        if let Some(note) = note {
            Held::note(&held, note);
        }
        let grant = PlaceGrant {
            value: held.value().as_bytes().to_vec(),
            waited: Held::waited(&held),
            lead: Held::lead(&held),
            from: held.pool().to_string(),
            other: None,
        };
        let pool = pools.into_iter().find(|pool| pool.name == *held.pool());
        let pool = pool.ok_or(PlaceOutcome::Unknown)?;
        Ok((PlaceLease::Member(held, pool), grant, None))
    }))
}

/// A value that no take has had yet is made when it is asked for, at once. That is no wait.
fn make_first(terms: &mut AskOptions, pools: &[Arc<NamedPool>]) {
    if terms.wait_max == Some(Duration::ZERO) && pools.iter().any(|pool| pool.has_new_value()) {
        terms.wait_max = Some(MADE_WITHIN);
    }
}

fn come(
    catalog: &Catalog,
    claim: &PlaceClaim,
    terms: AskOptions,
    key: &RowKey,
    side: Side,
) -> Option<Placing> {
    let place = match claim.name.strip_prefix('@') {
        Some(name) => catalog.groups.get(name)?.brokers.choose(side)?,
        None => Arc::clone(catalog.brokers.get(&claim.name)?),
    };
    let own = Arc::new(Mailbox::of_row(key.clone()));
    let party = Party::with_mail(&claim.value, Arc::clone(&own));
    let broker = place.broker.clone();
    let (is_now, is_ask) = (claim.wait == ClaimWait::No, side == Side::Ask);
    Some(match (is_now, is_ask) {
        (true, true) => Box::pin(async move { met(&place, own, broker.try_ask(party)) }),
        (true, false) => Box::pin(async move { met(&place, own, broker.try_offer(party)) }),
        (false, true) => {
            let asking = broker.begin_ask(party, terms);
            Box::pin(async move { met(&place, own, asking.await) })
        }
        (false, false) => {
            let offering = broker.begin_offer(party, terms);
            Box::pin(async move { met(&place, own, offering.await) })
        }
    })
}

fn met(
    place: &Arc<NamedBroker>,
    own: Arc<Mailbox>,
    met: Result<Match<Party>, Refused<Party>>,
) -> Placed {
    let met = met.map_err(|no| refused(no.refusal))?;
    let grant = PlaceGrant {
        value: met.value.value.to_vec(),
        waited: met.waited,
        lead: met.lead,
        from: place.name.to_string(),
        other: met.value.mail.row().cloned(),
    };
    let name = Arc::clone(&place.name);
    let held = HeldMatch::new(name, Arc::clone(&own), met.value, met.peer);
    Ok((PlaceLease::Match(held), grant, Some(own)))
}

fn refused(refusal: Refusal) -> PlaceOutcome {
    let why = refusal.to_string();
    match refusal.reason {
        // The place was made anew just now.
        Reason::Closed => PlaceOutcome::Unknown,
        _ => PlaceOutcome::Refused(refusal, why),
    }
}
