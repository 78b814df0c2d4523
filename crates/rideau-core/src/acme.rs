//! Says when which certificate is ordered from an authority that speaks ACME, and by which
//! challenge.
//!
//! Here an instant is the time since 1970: certificates end by the calendar, and what was
//! ordered counts across restarts. The shell asks the authority, keeps files and answers
//! challenges.

mod phase;

use std::collections::BTreeMap;
use std::time::Duration;

pub use self::phase::{AcmeHostState, AcmePhase, AcmeWait};
use crate::machine::Machine;
use crate::rng::Rng;
use crate::time::Instant;

/// How a host proves to be ours.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum AcmeChallenge {
    /// By a certificate that is shown in a TLS handshake.
    TlsAlpn,
    /// By a file over HTTP.
    Http,
    /// By a record of DNS.
    Dns,
}

/// A host that needs a certificate.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AcmeHost {
    /// Its name; `*.example.org` stands for one more word before that.
    pub name: String,
    /// How it can prove to be ours, what is tried first at the front.
    pub challenges: Vec<AcmeChallenge>,
}

/// From when to when a certificate is valid.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CertificateLife {
    /// From here
    pub from: Instant,
    /// up to here.
    pub until: Instant,
}

/// What the shell does.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AcmeEffect {
    /// See whether we are found by this name ourselves: [`checked`](Acme::checked).
    Check {
        /// The host.
        host: String,
        /// What should be found.
        challenge: AcmeChallenge,
    },
    /// Order a certificate: [`issued`](Acme::issued) or [`failed`](Acme::failed).
    Order {
        /// The host.
        host: String,
        /// How it proves to be ours.
        challenge: AcmeChallenge,
        /// The authority is told which certificate this one replaces.
        replaces: bool,
    },
    /// Ask when a certificate should be renewed: [`renewal`](Acme::renewal).
    AskRenewal {
        /// The host.
        host: String,
    },
}

/// Something that counts for the limits, and across restarts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AcmeRecord {
    /// The host.
    pub host: String,
    /// When it was.
    pub at: Instant,
    /// What it was.
    pub event: AcmeEvent,
}

/// What happened to an order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AcmeEvent {
    /// The first one of its host was made.
    FirstOrdered,
    /// It failed.
    Failed,
    /// It brought a certificate.
    Issued,
}

/// Why an order brought nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OrderFailure {
    /// The authority was not reached, or failed by itself: nothing was ordered, and nothing
    /// counts.
    Unreached,
    /// It said no.
    Refused,
}

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(60 * 60);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// Failed orders of a host, in this time: Let's Encrypt has 5.
const FAILURES_MAX: (usize, Duration) = (3, HOUR);
/// First orders of all hosts: Let's Encrypt has 300 of an account.
const FIRST_ORDERS_MAX: (usize, Duration) = (10, HOUR.saturating_mul(3));
/// Certificates for a host: Let's Encrypt has 5,
const ISSUED_MAX: (usize, Duration) = (4, DAY.saturating_mul(7));
/// but does not count those that it said should be renewed.
const REPLACED_MAX: (usize, Duration) = (4, DAY);
/// What is older counts for nothing.
const RECORDS_FOR: Duration = DAY.saturating_mul(7);
/// Between two orders that failed, at first and at most.
const BACK_OFF: (Duration, Duration) = (HOUR, DAY);
/// The same where nothing was ordered.
const LOOK_AGAIN: (Duration, Duration) = (MINUTE, HOUR);
/// How often the authority is asked when to renew, and what it may say.
const ASK_EVERY: Duration = HOUR.saturating_mul(6);
const ASK_AGAIN: (Duration, Duration) = (HOUR, DAY);
/// A certificate with a shorter life is renewed at half of it, others at two thirds.
const SHORT_LIFE: Duration = DAY.saturating_mul(10);
/// The longest time that an authority can put an order off.
const LATER_MAX: Duration = DAY.saturating_mul(7);

/// Orders certificates for hosts, one at a time.
///
/// Invariants: what is under way is so for one host; records are in the order of time; each
/// host has a challenge.
#[derive(Debug)]
pub struct Acme {
    hosts: BTreeMap<String, Host>,
    /// The host that is checked or ordered for, and what is done.
    busy: Option<(String, Work)>,
    /// The host whose renewal is asked about.
    asking: Option<String>,
    records: Vec<AcmeRecord>,
    rng: Rng,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Work {
    /// This challenge is looked at; of those of the host, this many were before.
    Check(AcmeChallenge, usize),
    Order(AcmeChallenge),
}

#[derive(Debug)]
struct Host {
    challenges: Vec<AcmeChallenge>,
    life: Option<CertificateLife>,
    /// What the authority said of the renewal, and the instant that was chosen in it.
    window: Option<Window>,
    ask_at: Instant,
    failures: u32,
    failed_at: Instant,
    /// Looks and orders that came to nothing before something was ordered.
    in_vain: u32,
    /// Not before this, and why.
    hold_off: Option<(Instant, AcmeWait)>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Window {
    from: Instant,
    until: Instant,
    at: Instant,
}

impl Acme {
    /// No host needs a certificate yet; this happened before.
    pub fn new(mut records: Vec<AcmeRecord>, seed: u64) -> Self {
        records.sort_by_key(|record| record.at);
        Self {
            hosts: BTreeMap::new(),
            busy: None,
            asking: None,
            records,
            rng: Rng::new(seed),
        }
    }

    /// These need certificates from now on. Those that did before keep their state, and those
    /// that have no challenge are left out.
    pub fn reconfigure(&mut self, hosts: Vec<AcmeHost>, now: Instant) {
        let mut old = std::mem::take(&mut self.hosts);
        for AcmeHost { name, challenges } in hosts {
            if challenges.is_empty() {
                continue;
            }
            let host = match old.remove(&name) {
                Some(host) => Host { challenges, ..host },
                None => self.host(&name, challenges, now),
            };
            self.hosts.insert(name, host);
        }
        self.check();
    }

    /// A host has this certificate, or none.
    pub fn hold(&mut self, name: &str, life: Option<CertificateLife>, now: Instant) {
        if let Some(host) = self.hosts.get_mut(name)
            && host.life != life
        {
            (host.life, host.window, host.ask_at) = (life, None, now);
        }
        self.check();
    }

    /// An operator has changed something: what failed is tried again, as far as limits allow.
    pub fn retry(&mut self) {
        for host in self.hosts.values_mut() {
            (host.failures, host.in_vain) = (0, 0);
            host.hold_off
                .take_if(|(_, why)| *why != AcmeWait::ToldLater);
        }
    }

    /// What came of a look at a host.
    pub fn checked(
        &mut self,
        name: &str,
        found: bool,
        now: Instant,
        effects: &mut Vec<AcmeEffect>,
    ) {
        let Some(Work::Check(challenge, looked)) = self.take_work(name) else {
            return;
        };
        if let Some(host) = self.hosts.get_mut(name) {
            if found {
                self.order(name, challenge, now, effects);
            } else if looked + 1 < host.challenges.len() {
                let next = host.challenge(looked + 1);
                self.look(name, next, looked + 1, now, effects);
            } else {
                host.put_off(AcmeWait::NotFound, now);
            }
        }
        self.advance(now, effects);
    }

    /// A host has its certificate.
    pub fn issued(
        &mut self,
        name: &str,
        life: CertificateLife,
        now: Instant,
        effects: &mut Vec<AcmeEffect>,
    ) {
        self.take_work(name);
        self.record(name, AcmeEvent::Issued, now);
        self.hold(name, Some(life), now);
        if let Some(host) = self.hosts.get_mut(name) {
            (host.failures, host.in_vain, host.hold_off) = (0, 0, None);
        }
        self.advance(now, effects);
    }

    /// An order brought nothing; perhaps the authority said when to come again.
    pub fn failed(
        &mut self,
        name: &str,
        failure: OrderFailure,
        retry_after: Option<Duration>,
        now: Instant,
        effects: &mut Vec<AcmeEffect>,
    ) {
        self.take_work(name);
        match failure {
            OrderFailure::Refused => self.record(name, AcmeEvent::Failed, now),
            OrderFailure::Unreached => self.forget_order(name),
        }
        if let Some(host) = self.hosts.get_mut(name) {
            match failure {
                OrderFailure::Unreached => host.put_off(AcmeWait::Unreached, now),
                OrderFailure::Refused => {
                    (host.failures, host.failed_at) = (host.failures.saturating_add(1), now);
                }
            }
            if let Some(after) = retry_after {
                let until = now + after.min(LATER_MAX);
                host.hold_off = host.hold_off.filter(|(at, _)| *at > until);
                host.hold_off.get_or_insert((until, AcmeWait::ToldLater));
            }
        }
        self.advance(now, effects);
    }

    /// What the authority says of a renewal: from when to when, and when to ask again. If it
    /// says nothing, what it said before stays.
    pub fn renewal(
        &mut self,
        name: &str,
        window: Option<(Instant, Instant)>,
        again: Option<Duration>,
        now: Instant,
        effects: &mut Vec<AcmeEffect>,
    ) {
        self.asking.take_if(|asked| asked == name);
        if let Some(host) = self.hosts.get_mut(name) {
            let again = again.unwrap_or(ASK_EVERY);
            host.ask_at = now + again.clamp(ASK_AGAIN.0, ASK_AGAIN.1);
            let is_same = |old: &Window| window == Some((old.from, old.until));
            let end = host.life.map_or(Instant::START, |life| life.until);
            // One that begins after the end would be no renewal.
            if let Some((from, until)) = window
                && !host.window.as_ref().is_some_and(is_same)
                && from <= until
                && from < end
            {
                let span = until.min(end).nanos_since(from);
                let at = from.after(self.rng.below(span.saturating_add(1)));
                host.window = Some(Window { from, until, at });
            }
        }
        self.advance(now, effects);
    }

    /// What counts for the limits, the oldest first.
    pub fn records(&self) -> &[AcmeRecord] {
        &self.records
    }

    /// How a host is; none if it needs no certificate.
    pub fn state(&self, name: &str) -> Option<AcmeHostState> {
        let host = self.hosts.get(name)?;
        let work = self.busy.as_ref().filter(|(busy, _)| busy == name);
        let phase = match work {
            Some((_, Work::Check(challenge, _))) => AcmePhase::Checking(*challenge),
            Some((_, Work::Order(challenge))) => AcmePhase::Ordering(*challenge),
            None => {
                let (at, why) = self.due(name, host);
                AcmePhase::Waiting(at, why)
            }
        };
        Some(AcmeHostState {
            life: host.life,
            failures: host.failures,
            phase,
        })
    }

    /// When a host is to be ordered for, as far as it alone can say, and what it waits for
    /// until then.
    fn due(&self, name: &str, host: &Host) -> (Instant, AcmeWait) {
        let is_first = host.life.is_none();
        let needed = match (host.life, host.window) {
            (None, _) => (Instant::START, AcmeWait::Turn),
            (Some(_), Some(window)) => (window.at, AcmeWait::Suggested),
            (Some(life), None) => (life.renew_at(), AcmeWait::Good),
        };
        let backed_off = (host.failures > 0).then(|| {
            let at = host.failed_at + host.back_off();
            (at, AcmeWait::BackedOff)
        });
        let of_host = |event: AcmeEvent, max: (usize, Duration)| {
            let own = move |one: &&AcmeRecord| one.event == event && one.host == name;
            room_at(self.records.iter().filter(own), max)
        };
        let issued_max = match host.window {
            Some(_) => REPLACED_MAX,
            None => ISSUED_MAX,
        };
        let first = is_first.then(|| {
            let all = self.records.iter();
            room_at(
                all.filter(|one| one.event == AcmeEvent::FirstOrdered),
                FIRST_ORDERS_MAX,
            )
        });
        let limits = [
            (
                of_host(AcmeEvent::Failed, FAILURES_MAX),
                AcmeWait::FailuresMax,
            ),
            (first.flatten(), AcmeWait::FirstOrdersMax),
            (of_host(AcmeEvent::Issued, issued_max), AcmeWait::IssuedMax),
        ];
        let limits = limits.into_iter().filter_map(|(at, why)| Some((at?, why)));
        let all = backed_off.into_iter().chain(host.hold_off).chain(limits);
        all.fold(needed, |latest, one| match one.0 > latest.0 {
            true => one,
            false => latest,
        })
    }

    /// The host that is due first, and when.
    fn next(&self) -> Option<(&str, Instant)> {
        let all = self.hosts.iter();
        let all = all.map(|(name, host)| (name.as_str(), self.due(name, host).0));
        all.min_by_key(|(_, at)| *at)
    }

    /// The host that is asked about first, and when.
    fn next_ask(&self) -> Option<(&str, Instant)> {
        let all = self.hosts.iter().filter(|(_, host)| host.life.is_some());
        let all = all.map(|(name, host)| (name.as_str(), host.ask_at));
        all.min_by_key(|(_, at)| *at)
    }

    fn begin(&mut self, name: &str, now: Instant, effects: &mut Vec<AcmeEffect>) {
        let Some(host) = self.hosts.get(name) else {
            return;
        };
        let challenge = host.challenge(0);
        match host.life {
            None => self.look(name, challenge, 0, now, effects),
            Some(_) => self.order(name, challenge, now, effects),
        }
    }

    /// See whether a challenge can be met. A record of DNS is not ours to look at.
    fn look(
        &mut self,
        name: &str,
        challenge: AcmeChallenge,
        looked: usize,
        now: Instant,
        effects: &mut Vec<AcmeEffect>,
    ) {
        if challenge == AcmeChallenge::Dns {
            return self.order(name, challenge, now, effects);
        }
        let host = name.to_owned();
        self.busy = Some((host.clone(), Work::Check(challenge, looked)));
        effects.push(AcmeEffect::Check { host, challenge });
    }

    fn order(
        &mut self,
        name: &str,
        challenge: AcmeChallenge,
        now: Instant,
        effects: &mut Vec<AcmeEffect>,
    ) {
        let of = self.hosts.get(name);
        let replaces = of.is_some_and(|host| host.window.is_some());
        if of.is_some_and(|host| host.life.is_none()) {
            self.record(name, AcmeEvent::FirstOrdered, now);
        }
        let host = name.to_owned();
        self.busy = Some((host.clone(), Work::Order(challenge)));
        effects.push(AcmeEffect::Order {
            host,
            challenge,
            replaces,
        });
    }

    fn take_work(&mut self, name: &str) -> Option<Work> {
        let work = self.busy.take_if(|(busy, _)| busy == name);
        work.map(|(_, work)| work)
    }

    fn record(&mut self, name: &str, event: AcmeEvent, now: Instant) {
        self.records.retain(|record| record.at + RECORDS_FOR > now);
        self.records.push(AcmeRecord {
            host: name.into(),
            at: now,
            event,
        });
    }

    /// The order that was begun last was none.
    fn forget_order(&mut self, name: &str) {
        let own = |record: &AcmeRecord| record.host == name;
        if let Some(at) = self.records.iter().rposition(own)
            && self.records[at].event == AcmeEvent::FirstOrdered
        {
            self.records.remove(at);
        }
    }

    /// A host that is new; what happened to it before counts.
    fn host(&self, name: &str, challenges: Vec<AcmeChallenge>, now: Instant) -> Host {
        let own = self.records.iter().filter(|record| record.host == name);
        let own = own
            .rev()
            .take_while(|record| record.event != AcmeEvent::Issued);
        let failed: Vec<_> = own
            .filter(|record| record.event == AcmeEvent::Failed)
            .collect();
        Host {
            challenges,
            life: None,
            window: None,
            ask_at: now,
            failures: u32::try_from(failed.len()).unwrap_or(u32::MAX),
            failed_at: failed.first().map_or(Instant::START, |record| record.at),
            in_vain: 0,
            hold_off: None,
        }
    }

    fn check(&self) {
        debug_assert!(self.records.is_sorted_by_key(|record| record.at));
        debug_assert!(self.hosts.values().all(|host| !host.challenges.is_empty()));
    }
}

impl Machine for Acme {
    type Effect = AcmeEffect;

    fn deadline(&self) -> Option<Instant> {
        let order = self.next().filter(|_| self.busy.is_none());
        let ask = self.next_ask().filter(|_| self.asking.is_none());
        let all = order.into_iter().chain(ask).map(|(_, at)| at);
        all.min().and_then(Instant::finite)
    }

    fn advance(&mut self, now: Instant, effects: &mut Vec<AcmeEffect>) {
        let is_due = |next: Option<(&str, Instant)>| {
            let due = next.filter(|(_, at)| *at <= now);
            due.map(|(name, _)| name.to_owned())
        };
        if self.asking.is_none()
            && let Some(name) = is_due(self.next_ask())
        {
            self.asking = Some(name.clone());
            effects.push(AcmeEffect::AskRenewal { host: name });
        }
        if self.busy.is_none()
            && let Some(name) = is_due(self.next())
        {
            self.begin(&name, now, effects);
        }
        self.check();
    }
}

impl Host {
    /// The challenge that is next, after this many others. One that failed is followed by the
    /// next.
    fn challenge(&self, after: usize) -> AcmeChallenge {
        let at = self.failures as usize + after;
        self.challenges[at % self.challenges.len()]
    }

    /// How long to wait after the last failure. The other challenges are tried at once, the
    /// first time.
    fn back_off(&self) -> Duration {
        let tried = u32::try_from(self.challenges.len()).unwrap_or(u32::MAX);
        match self.failures.checked_sub(tried) {
            None => Duration::ZERO,
            Some(rounds) => doubled(BACK_OFF, rounds),
        }
    }

    /// Nothing could be ordered.
    fn put_off(&mut self, why: AcmeWait, now: Instant) {
        self.hold_off = Some((now + doubled(LOOK_AGAIN, self.in_vain), why));
        self.in_vain = self.in_vain.saturating_add(1);
    }
}

impl CertificateLife {
    /// When it is renewed if the authority says nothing.
    pub fn renew_at(&self) -> Instant {
        let life = self.until.as_nanos().saturating_sub(self.from.as_nanos());
        let part = match Duration::from_nanos(life) < SHORT_LIFE {
            true => life / 2,
            false => life / 3 * 2,
        };
        self.from.after(part)
    }
}

/// The first span, doubled so often, up to the last.
fn doubled((first, last): (Duration, Duration), times: u32) -> Duration {
    first.saturating_mul(1 << times.min(16)).min(last)
}

/// When there may be one more, if there were too many.
fn room_at<'a>(
    all: impl DoubleEndedIterator<Item = &'a AcmeRecord>,
    (max, within): (usize, Duration),
) -> Option<Instant> {
    let oldest = all.rev().nth(max - 1)?;
    Some(oldest.at + within)
}
