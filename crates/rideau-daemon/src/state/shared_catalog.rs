//! The pools of lists, brokers and regulators of this node's catalog, as those of a cluster.
//!
//! This node decides about those in its partitions. When a partition comes, they are made
//! anew, and take over what all nodes hold of them.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use rideau::{AskOptions, Held, Lead, Lease, Match, Reason, Refusal, Refused, Side};
use rideau_core::cluster::Partitions;

use crate::state::catalog::{Catalog, NamedBroker, NamedPool};
use crate::state::catalog_cell::CatalogCell;
use crate::state::cluster::{
    AdoptedLease, ClaimWait, HeldPlace, HostPlaces, NotRenewed, PlaceClaim, PlaceEnd, PlaceGrant,
    PlaceHeld, PlaceKind, PlaceOutcome, Placed, Placing, RowKey,
};
use crate::state::end::EndReason;
use crate::state::matches::{End, HeldMatch, Mailbox, Party};
use crate::state::members::{KeptValue, Members, why_not_taken};

/// A value of a list that is made is there by then, unless the machine is very busy.
const MADE_WITHIN: Duration = Duration::from_secs(1);

/// The places of a catalog.
pub(crate) struct SharedCatalog {
    catalog: Arc<CatalogCell>,
    partitions: Partitions,
}

/// What some node's client holds of a place.
enum PlaceLease {
    Member(Held<'static, Members>, Arc<NamedPool>),
    /// A value that its pool has no room for any more.
    Kept(KeptValue),
    Lease(Lease),
    Match(HeldMatch),
}

impl HeldPlace for PlaceLease {
    fn end(self: Box<Self>, end: PlaceEnd) {
        match *self {
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

    fn renew(self: Box<Self>) -> Result<(Box<dyn HeldPlace>, Lead, Duration), NotRenewed> {
        let lease = match *self {
            Self::Lease(lease) => lease,
            other => return Err(NotRenewed::Other(Box::new(other))),
        };
        match lease.renew() {
            Ok(lease) => {
                let (lead, waited) = (lease.lead(), lease.waited());
                Ok((Box::new(Self::Lease(lease)), lead, waited))
            }
            Err(stopped) => Err(NotRenewed::Stopped(stopped.waited)),
        }
    }
}

impl SharedCatalog {
    /// Those of a catalog, in a cluster with such partitions.
    pub(crate) fn new(catalog: &Arc<CatalogCell>, partitions: Partitions) -> Self {
        Self {
            catalog: Arc::clone(catalog),
            partitions,
        }
    }

    fn is_in(&self, partition: u32, home: &str) -> bool {
        self.partitions.of_name(home.as_bytes()) == partition
    }

    /// Make all places of a partition anew.
    fn renew(&self, partition: u32) -> Arc<Catalog> {
        let is_meant = |home: &str| self.is_in(partition, home);
        let mut is_any = false;
        let catalog = self.catalog.load();
        catalog.each_shared(|place| is_any |= is_meant(&place.home));
        if is_any {
            let made = self
                .catalog
                .change(|old| old.renewed(&is_meant).map(|next| (next, ())));
            if let Err(error) = made {
                tracing::error!("places of partition {partition} cannot be made: {error}");
            }
        }
        self.catalog.load_full()
    }
}

impl HostPlaces for SharedCatalog {
    fn begin(&self, claim: &PlaceClaim, age: Duration, row: &RowKey) -> Placing {
        begin(&self.catalog.load(), claim, age, row)
    }

    fn adopt(
        self: Arc<Self>,
        partition: u32,
        held: Vec<(RowKey, PlaceHeld)>,
        asks: HashMap<RowKey, PlaceClaim>,
    ) -> Pin<Box<dyn Future<Output = Vec<AdoptedLease>> + Send>> {
        Box::pin(async move {
            let catalog = self.renew(partition);
            adopt(&catalog, held, &asks).await
        })
    }

    fn set_here(&self, partition: u32, is_here: bool) {
        self.catalog.load().each_shared(|place| {
            if self.is_in(partition, &place.home) {
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
                    let lease = boxed(PlaceLease::Lease(place.regulator.adopt()));
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
) -> Vec<(RowKey, Box<dyn HeldPlace>)> {
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
            Some(key) => {
                let lease = PlaceLease::Member(held, Arc::clone(pool));
                leases.push((key, boxed(lease)));
            }
            None => others.push(held),
        }
    }
    drop(others);
    // The pool has become smaller. It does not give out what is held.
    for (value, key) in wanted {
        let kept = PlaceLease::Kept(pool.members.keep(&value));
        leases.push((key, boxed(kept)));
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
            ..AdoptedLease::new(key, boxed(PlaceLease::Match(held)))
        }
    };
    parties.into_iter().map(adopted).collect()
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
                    Ok((boxed(PlaceLease::Lease(lease)), grant, None))
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
        Ok((boxed(PlaceLease::Member(held, pool)), grant, None))
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
    Ok((boxed(PlaceLease::Match(held)), grant, Some(own)))
}

fn refused(refusal: Refusal) -> PlaceOutcome {
    let why = refusal.to_string();
    match refusal.reason {
        // The place was made anew just now.
        Reason::Closed => PlaceOutcome::Unknown,
        _ => PlaceOutcome::Refused(refusal, why),
    }
}

fn boxed(lease: PlaceLease) -> Box<dyn HeldPlace> {
    Box::new(lease)
}
