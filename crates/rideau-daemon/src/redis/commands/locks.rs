//! Units of keys.

mod shared;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rideau::{Capacity, Denied, Full, Lock, Now, Reason, Refusal};
use rideau_config::human::count;
use rideau_config::label::Label;
use rideau_config::{Buckets, LockRule};
use rideau_resp::{Arguments, Mistake, Quoted, Request, Upper};

use super::look::{OwnedViewer, see_and_tell};
use super::{page, tickets};
use crate::redis::client::{AskArgs, Client, CommandError, Next, refused};
use crate::state::answer::{AnswerField, micros};
use crate::state::catalog::RulePlace;
use crate::state::end::EndReason;
use crate::state::grant::Grant;
use crate::state::ticket::TicketKind;
use crate::view::tables::{More, Page};

/// The arguments of `LOCK`.
struct Words<'a> {
    key: &'a [u8],
    per: Option<u64>,
    buckets: Option<u64>,
    units: u32,
}

/// More units or buckets than any client needs.
const MOST: u64 = 1 << 40;

/// The options of a request with only a key.
static NOTHING: AskArgs = AskArgs {
    wait: None,
    cap: None,
    is_async: false,
    nonce: None,
    note: None,
};

pub(super) fn lock(client: &mut Client, request: Request<'_>) -> Result<Next, CommandError> {
    let mut arguments = request.arguments();
    let mut words = Words {
        key: arguments.word("LOCK", "a key")?,
        per: None,
        buckets: None,
        units: 1,
    };
    if arguments.len() == 0 {
        let rule = rule(client, &words)?;
        if client.daemon.cluster.is_some() {
            return shared::lock(client, &words, rule, NOTHING.clone());
        }
        return try_lock(client, &words, rule, &NOTHING);
    }
    let mut tail = words.parse(client, arguments)?;
    let rule = rule(client, &words)?;
    tail.cap_by(|| client.rules[rule.0].rule.queue.clone());
    if let Some(step) = tickets::repeated(client, &tail) {
        return Ok(step);
    }
    if client.daemon.cluster.is_some() {
        return shared::lock(client, &words, rule, tail);
    }
    if (tail.wait.is_none() || client.is_in_exec) && !tail.is_async {
        return try_lock(client, &words, rule, &tail);
    }
    let (at, capacity) = rule;
    let rule = Arc::clone(&client.rules[at]);
    wait(client, &words, tail, capacity, &rule)
}

/// Have units at once, or none.
#[inline]
fn try_lock(
    client: &mut Client,
    words: &Words<'_>,
    (at, capacity): (usize, Capacity),
    tail: &AskArgs,
) -> Result<Next, CommandError> {
    let rule = &client.rules[at];
    let locks = &client.daemon.locks;
    match locks.try_acquire_owned(words.key, words.units, capacity) {
        Ok(lock) => {
            rule.counts.acquired.fetch_add(1, Ordering::Relaxed);
            granted(client, lock, capacity, tail)
        }
        Err(Denied::Keys) => Err(too_many_keys(client, rule)),
        Err(Denied::Full(full)) => {
            rule.counts.full.fetch_add(1, Ordering::Relaxed);
            tell_full(client, words.key, full);
            Ok(Next::Done)
        }
    }
}

/// All units are held, and it does not wait for one.
fn tell_full(client: &mut Client, key: &[u8], full: Full) {
    let refusal = Refusal {
        reason: Reason::Busy,
        waited: Duration::ZERO,
        len: 0,
        retry_after: Duration::ZERO,
    };
    let units = count(usize::try_from(full.capacity).unwrap_or(usize::MAX), "unit");
    let are = if full.held == 1 { "is" } else { "are" };
    let why = format!("{} of {units} {are} held; WAIT waits for one", full.held);
    client.full = Some(Box::new(full));
    let name = String::from_utf8_lossy(key);
    client.refuse("lock", &name, &refusal, why, String::new);
}

/// Wait for units, here or in the background.
fn wait(
    client: &mut Client,
    words: &Words<'_>,
    tail: AskArgs,
    capacity: Capacity,
    rule: &RulePlace,
) -> Result<Next, CommandError> {
    client.may_wait()?;
    let terms = client.terms(&tail);
    let name = String::from_utf8_lossy(words.key).into_owned();
    let now = client
        .daemon
        .locks
        .acquire_now(words.key, words.units, capacity, terms);
    if let Now::Answered(Err(Refusal {
        reason: Reason::Keys,
        ..
    })) = now
    {
        return Err(too_many_keys(client, rule));
    }
    let daemon = Arc::clone(&client.daemon);
    let outcome = {
        let (name, counts) = (name.clone(), Arc::clone(&rule.counts));
        move |answer: Result<Lock<'static, Vec<u8>>, Refusal>| match answer {
            Ok(lock) => {
                counts.acquired.fetch_add(1, Ordering::Relaxed);
                Ok((parts(&lock, capacity), Grant::Lock(lock)))
            }
            Err(refusal) => {
                counts.refuse(refusal.reason);
                let why = refusal.to_string();
                Err(refused(&daemon, "lock", &name, &refusal, why, String::new))
            }
        }
    };
    match now {
        Now::Answered(answer) => tickets::settle(client, TicketKind::Lock, outcome(answer), &tail),
        Now::Waiting(acquiring) if tail.is_async => {
            tickets::later(client, TicketKind::Lock, &name, &tail, async move {
                outcome(acquiring.await)
            })
        }
        Now::Waiting(acquiring) => Ok(Next::Wait(tickets::blocked(
            TicketKind::Lock,
            name,
            tail,
            async move { outcome(acquiring.await) },
        ))),
    }
}

fn parts(lock: &Lock<'static, Vec<u8>>, capacity: Capacity) -> Vec<AnswerField> {
    vec![
        lock.ordinal().into(),
        capacity.units().into(),
        lock.fence().into(),
        micros(lock.waited()),
    ]
}

fn granted(
    client: &mut Client,
    lock: Lock<'static, Vec<u8>>,
    capacity: Capacity,
    tail: &AskArgs,
) -> Result<Next, CommandError> {
    let (ordinal, fence) = (lock.ordinal(), lock.fence());
    let ticket = client.keep(TicketKind::Lock, Grant::Lock(lock), tail)?;
    let told = || vec![ordinal.into(), capacity.units().into(), fence.into()];
    client.remember(tail, ticket, told);
    let capacity = i64::try_from(capacity.units()).unwrap_or(i64::MAX);
    client
        .reply_go(5, ticket)
        .integer(ordinal as i64)
        .integer(capacity)
        .integer(fence as i64);
    Ok(Next::Done)
}

/// Which of the client's rules is that of a key, and how many units there may be.
#[inline]
fn rule(client: &Client, words: &Words<'_>) -> Result<(usize, Capacity), CommandError> {
    let key = words.key;
    client.check_label(Label::Key, key)?;
    if client.user.is_some() {
        super::may_use(client, "lock", &String::from_utf8_lossy(key))?;
    }
    let mut rules = client.rules.iter().enumerate();
    let Some((at, place)) = rules.find(|(_, place)| place.rule.fits(key)) else {
        return Err(no_rule(key));
    };
    let per = words.per.unwrap_or(place.rule.per);
    let buckets = match place.rule.buckets {
        Buckets::Client => words.buckets.unwrap_or(1),
        Buckets::Fixed(buckets) => buckets,
    };
    Ok((at, Capacity::new(per, buckets)))
}

#[cold]
fn no_rule(key: &[u8]) -> CommandError {
    CommandError::no_such(
        "lock",
        String::from_utf8_lossy(key),
        "no [lock] rule of the config fits this key; add one, or \"*\" for any key.",
    )
}

/// All keys that there may be are wanted: says which limit it is.
#[cold]
fn too_many_keys(client: &Client, place: &RulePlace) -> CommandError {
    let daemon = &client.daemon;
    place.counts.refuse(Reason::Keys);
    daemon.counts.keys_refused.fetch_add(1, Ordering::Relaxed);
    let rules = &daemon.config.load().locks;
    let at = rules.iter().position(|rule| *rule == place.rule);
    let LockRule {
        pattern, keys_max, ..
    } = &place.rule;
    if at.is_some_and(|at| daemon.lock_keys_of(at) >= *keys_max) {
        return CommandError(format!(
            "BUSY lock.{pattern:?}.keys_max ({keys_max}) reached: release some keys or raise it."
        ));
    }
    let most = daemon.config.load().limits.keys_max;
    CommandError(format!(
        "BUSY limits.keys_max ({most}) reached: release some keys or raise it."
    ))
}

impl Words<'_> {
    /// Parses the arguments after the key.
    fn parse(
        &mut self,
        client: &Client,
        mut arguments: Arguments<'_>,
    ) -> Result<AskArgs, CommandError> {
        let mut tail = AskArgs::default();
        while let Some(option) = arguments.next() {
            match Upper::of(option).as_bytes() {
                b"PER" => self.per = Some(arguments.number("PER", "units", 0..=MOST)?),
                b"BUCKETS" => {
                    self.buckets = Some(arguments.number("BUCKETS", "buckets", 0..=MOST)?);
                }
                b"UNITS" => {
                    let units = arguments.number("UNITS", "units", 1..=u32::MAX.into())?;
                    self.units = units as u32;
                }
                upper => {
                    if !tail.option(upper, &mut arguments, client)? {
                        return Err(Mistake::unknown("LOCK", option).into());
                    }
                }
            }
        }
        Ok(tail)
    }
}

pub(super) fn unlock(client: &mut Client, request: Request<'_>) -> Result<Next, CommandError> {
    let mut arguments = request.arguments();
    let key = arguments.word("UNLOCK", "a key")?;
    let is_wanted = |grant: &Grant| grant.is_lock_of(key);
    let newest = client.daemon.lease_table.newest(client.owner(), is_wanted);
    let Some(ticket) = newest else {
        return Err(not_held(client, key));
    };
    let gone = client.daemon.release(ticket, None, EndReason::Released);
    debug_assert!(gone.is_ok(), "only this call ends what this holder holds");
    client.reply().simple("OK");
    Ok(Next::Done)
}

/// The client has no unit of a key: says where it is. Clients with a pool of
/// connections send a command on one and the next on another.
#[cold]
fn not_held(client: &Client, key: &[u8]) -> CommandError {
    let own = match client.card.session.lock().is_some() {
        true => "this session".to_owned(),
        false => format!("this connection ({})", client.card.id),
    };
    let quoted = Quoted(key);
    let is_wanted = |grant: &Grant| grant.is_lock_of(key);
    let may_know = super::may_use(client, "lock", &String::from_utf8_lossy(key)).is_ok();
    let is_held = may_know && client.daemon.lock_count(key).0 > 0;
    let other = match is_held {
        true => client.daemon.lease_table.holder_of(is_wanted),
        false => None,
    };
    let Some(other) = other else {
        return CommandError(format!(
            "NOTHELD {own} has no unit of {quoted}: it was released or never granted. HELD shows \
             what is held."
        ));
    };
    let viewer = super::look::viewer(client);
    let holder = match (&other.session, other.connection) {
        (Some(_), _) => "a session".to_owned(),
        (None, Some(id)) if viewer.sees_holder(&other) => {
            format!("connection {id} ({})", other.name.lock())
        }
        (None, _) => "another connection".to_owned(),
    };
    CommandError(format!(
        "NOTHELD {own} has no unit of {quoted}: {holder} has. A client with a pool of connections \
         sends each command on any of them: send RELEASE with the ticket that LOCK answered, or \
         open a session with SESSION OPEN and SESSION ATTACH it on each connection."
    ))
}

pub(super) fn stat(client: &mut Client, request: Request<'_>) -> Result<Next, CommandError> {
    let mut arguments = request.arguments();
    let key = arguments.word("LOCK.STAT", "a key")?;
    arguments.end("LOCK.STAT")?;
    client.check_label(Label::Key, key)?;
    super::may_use(client, "lock", &String::from_utf8_lossy(key))?;
    if !client.daemon.knows_lock(key) {
        return Err(CommandError(
            "CLUSTERDOWN the owner of this key does not know yet what is held. Ask again.".into(),
        ));
    }
    let (held, waiting) = client.daemon.lock_count(key);
    client
        .reply()
        .map(2)
        .bulk("held")
        .integer(held as i64)
        .bulk("waiting")
        .integer(waiting as i64);
    Ok(Next::Done)
}

pub(super) fn list(client: &mut Client, request: Request<'_>) -> Result<Next, CommandError> {
    let mut arguments = request.arguments();
    let (mut prefix, mut count, mut cursor): (&[u8], u64, &[u8]) = (b"", 100, b"");
    while let Some(word) = arguments.next() {
        match Upper::of(word).as_bytes() {
            b"COUNT" => count = arguments.number("COUNT", "rows", 1..=10_000)?,
            b"CURSOR" => cursor = arguments.word("CURSOR", "the last key of the page before")?,
            _ => prefix = word,
        }
    }
    let (prefix, cursor, count) = (prefix.to_vec(), cursor.to_vec(), count as usize);
    let page = Page {
        count,
        ..page::usual(client)
    };
    let see = move |owned: &OwnedViewer| {
        let mut all = owned.daemon.all_locks_held();
        let viewer = owned.viewer();
        all.retain(|(key, _)| key.starts_with(&prefix) && *key > cursor);
        all.retain(|(key, _)| viewer.sees("lock", &String::from_utf8_lossy(key)));
        all.sort_unstable();
        // The place of a key is good for one answer; its name is for the next.
        let all: Vec<_> = (1..).zip(all).take(count).collect();
        page.cut(all, |(at, _)| *at, |(_, (key, _))| key.len() + 48)
    };
    see_and_tell(client, "LOCK.LS", see, |client, (all, more)| {
        let last = all.last().map(|(_, (key, _))| key.clone());
        let mut reply = client.reply();
        reply.array(all.len() + usize::from(more.is_some()));
        for (_, (key, held)) in all {
            reply.array(2).bulk(key).integer(held as i64);
        }
        if let (Some(More { count, .. }), Some(last)) = (more, last) {
            let last = String::from_utf8_lossy(&last);
            let left = format!("{count} more: LOCK.LS CURSOR {last}");
            reply.array(1).bulk(left);
        }
        Ok(())
    })
}
