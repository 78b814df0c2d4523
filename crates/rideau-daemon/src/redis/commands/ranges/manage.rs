//! Ranges themselves: seen, added, changed, emptied.

use std::sync::Arc;
use std::time::Duration;

use rideau::Failed;
use rideau::allocator::{Filter, KEY_LEN_MAX, RangeStats, Seen};
use rideau_process::panics;
use rideau_resp::{Mistake, Reply, Request, Upper};

use super::{count, no};
use crate::redis::client::{Awaits, Client, CommandError, Next, OnReady, PendingCommand};
use crate::redis::commands::{may_use, page, settings, watch as channels};
use crate::state::daemon::Daemon;
use crate::state::values::{NamedRange, RangeNumbers, sees_fence};

/// The range of this name, if the client may use it.
fn range(client: &Client, name: &str) -> Result<Arc<NamedRange>, CommandError> {
    // A user that may not does not learn whether it is there.
    may_use(client, "range", name)?;
    let catalog = client.daemon.catalog.load();
    let found = catalog.ranges.find(name).cloned();
    found.ok_or_else(|| no::no_range(&catalog, name))
}

pub(in crate::redis::commands) fn add(
    client: &mut Client,
    request: Request<'_>,
) -> Result<Next, CommandError> {
    let mut arguments = request.arguments();
    let name = arguments.text("RANGE.ADD", "a name")?;
    let keys = arguments.text("RANGE.ADD", "the keys of the range as TOML")?;
    arguments.end("RANGE.ADD")?;
    may_use(client, "range", name)?;
    let (name, keys) = (name.to_owned(), keys.to_owned());
    let add = move |daemon: &Arc<Daemon>, by: &str| daemon.add_range(&name, &keys, by);
    settings::change(client, add, settings::done)
}

pub(in crate::redis::commands) fn set(
    client: &mut Client,
    request: Request<'_>,
) -> Result<Next, CommandError> {
    let mut arguments = request.arguments();
    let name = arguments.text("RANGE.SET", "a range")?;
    range(client, name)?;
    let above = toml_edit::Key::new(name);
    let above = above.display_repr();
    let mut values = Vec::new();
    while values.is_empty() || arguments.len() > 0 {
        let key = arguments.text("RANGE.SET", "a key such as TTL")?;
        let value = arguments.text("RANGE.SET", "a value")?;
        let path = format!("range.{above}.{}", key.to_lowercase());
        values.push((path, value.to_owned()));
    }
    let set = move |daemon: &Arc<Daemon>, by: &str| daemon.set(&values, by);
    settings::change(client, set, settings::done)
}

/// Let a range run empty, and then go.
pub(in crate::redis::commands) fn drain(
    client: &mut Client,
    request: Request<'_>,
) -> Result<Next, CommandError> {
    let mut arguments = request.arguments();
    let name = arguments.text("RANGE.DRAIN", "a range")?;
    arguments.end("RANGE.DRAIN")?;
    take_away(client, name)
}

/// Take a range away of which no value is held.
pub(in crate::redis::commands) fn remove(
    client: &mut Client,
    request: Request<'_>,
) -> Result<Next, CommandError> {
    let mut arguments = request.arguments();
    let name = arguments.text("RANGE.REMOVE", "a range")?;
    arguments.end("RANGE.REMOVE")?;
    let place = range(client, name)?;
    let mut stats = client.daemon.values.ranges.stats(place.id);
    if let Some(stats) = &mut stats {
        let lost = add_other_nodes(client, stats);
        if !lost.is_empty() {
            return Err(CommandError(format!(
                "CLUSTERDOWN it is not known how many values of range {name} are held on {}: ask \
                 again.",
                lost.join(", ")
            )));
        }
    }
    let held = stats.map_or(0, |stats| stats.reserved + stats.detached + stats.cooling);
    if held > 0 {
        return Err(CommandError(format!(
            "ERR {held} values of range {name} are held: RANGE.DRAIN lets them come back first."
        )));
    }
    take_away(client, name)
}

fn take_away(client: &mut Client, name: &str) -> Result<Next, CommandError> {
    may_use(client, "range", name)?;
    if client.daemon.catalog.load().views.find(name).is_some() {
        return Err(no::only_counts(name));
    }
    let name = name.to_owned();
    let remove = move |daemon: &Arc<Daemon>, by: &str| daemon.remove_range(&name, by);
    settings::change(client, remove, settings::done)
}

pub(in crate::redis::commands) fn stat(
    client: &mut Client,
    request: Request<'_>,
) -> Result<Next, CommandError> {
    let mut arguments = request.arguments();
    let (mut name, mut page) = (None, page::all(client));
    while arguments.len() > 0 {
        let text = arguments.text("RANGE.STAT", "a range, COUNT or FROM")?;
        let upper = Upper::of(text.as_bytes());
        match page::option(&mut page, upper.as_bytes(), &mut arguments)? {
            true => (),
            false if name.is_none() => name = Some(text),
            false => return Err(Mistake::unknown("RANGE.STAT", text.as_bytes()).into()),
        }
    }
    if let Some(name) = name {
        return one_stat(client, name);
    }
    let mut all = client.daemon.values.ranges.all_stats();
    all.retain(|stats| may_use(client, "range", &stats.name).is_ok());
    all.sort_unstable_by(|one, other| one.name.cmp(&other.name));
    let all = (1_u128..).zip(all).collect();
    let bytes = |(_, stats): &(u128, RangeStats)| 512 + stats.name.len();
    let (all, more) = page.cut(all, |(at, _)| *at, bytes);
    client
        .reply()
        .array(all.len() + usize::from(more.is_some()));
    for (_, stats) in all {
        tell_stats(client, stats);
    }
    let mut reply = client.reply();
    page::write_more(&mut reply, more, "RANGE.STAT");
    Ok(Next::Done)
}

/// One range, as `RANGE.STAT` tells it, or one view.
pub(in crate::redis::commands) fn info(
    client: &mut Client,
    request: Request<'_>,
) -> Result<Next, CommandError> {
    let mut arguments = request.arguments();
    let name = arguments.text("RANGE.INFO", "a range or a view")?;
    arguments.end("RANGE.INFO")?;
    one_stat(client, name)
}

fn one_stat(client: &mut Client, name: &str) -> Result<Next, CommandError> {
    let ranges = &client.daemon.values.ranges;
    let is_view = client.daemon.catalog.load().views.find(name).is_some();
    if !is_view {
        may_use(client, "range", name)?;
    }
    // One that drains has no place any more, but is there.
    let stats = ranges.range(name).and_then(|id| ranges.stats(id));
    match stats {
        Some(stats) => tell_stats(client, stats),
        None => count::view(client, name)?,
    }
    Ok(Next::Done)
}

/// Tell of a range what all nodes have, or which of them have not told.
fn tell_stats(client: &mut Client, mut stats: RangeStats) {
    let lost = match client.sent.is_part {
        true => Vec::new(),
        false => add_other_nodes(client, &mut stats),
    };
    let is_cluster = client.daemon.cluster.is_some();
    let mut reply = client.reply();
    write_stats(&mut reply, &stats);
    reply.bulk("lost_nodes");
    match is_cluster {
        true => {
            reply.array(lost.len());
            for name in &lost {
                reply.bulk(name);
            }
        }
        // There is one node, and it answers.
        false => _ = reply.integer(0),
    }
}

/// Add what other nodes have of a range. Says which of them have not told, or do not live any
/// more and own some of it.
fn add_other_nodes(client: &Client, stats: &mut RangeStats) -> Vec<String> {
    let Some(cluster) = &client.daemon.cluster else {
        return Vec::new();
    };
    let mut lost = cluster.dead_owners();
    let digests = cluster.digests.read();
    for node in cluster.others() {
        let digest = digests.of(&node, &stats.name);
        match digest.and_then(|digest| RangeNumbers::read(&digest.numbers)) {
            Some(numbers) => numbers.add_to(stats),
            None => _ = lost.insert(node.name),
        }
    }
    lost.into_iter().collect()
}

/// All numbers of a range, and the name of what is behind them is to follow.
fn write_stats(reply: &mut Reply<'_>, stats: &RangeStats) {
    reply.map(11).bulk("name").bulk(&stats.name);
    reply.bulk("base").bulk(stats.kind.print(stats.first));
    reply.bulk("size");
    no::write_size(reply, stats.size);
    reply.bulk("free");
    no::write_size(reply, stats.free);
    reply.bulk("reserved").integer(stats.reserved as i64);
    reply.bulk("quarantined");
    no::write_size(reply, stats.quarantined);
    reply.bulk("detached").integer(stats.detached as i64);
    reply.bulk("cooling").integer(stats.cooling as i64);
    reply.bulk("draining").integer(stats.is_draining.into());
    reply.bulk("tiers").array(stats.tiers.len());
    for given in stats.tiers {
        reply.integer(given as i64);
    }
}

/// Some reservations, from where the cursor is.
pub(in crate::redis::commands) fn list(
    client: &mut Client,
    request: Request<'_>,
) -> Result<Next, CommandError> {
    let mut arguments = request.arguments();
    let (mut name, mut count, mut cursor) = (None, 100, 0);
    while let Some(word) = arguments.next() {
        match Upper::of(word).as_bytes() {
            b"COUNT" => count = arguments.number("COUNT", "rows", 1..=10_000)?,
            b"CURSOR" => {
                let wants = "the cursor of the page before";
                cursor = arguments.number("CURSOR", wants, 0..=i64::MAX as u64)?;
            }
            _ if name.is_none() => {
                let text = std::str::from_utf8(word).unwrap_or_default();
                range(client, text)?;
                name = Some(text);
            }
            _ => return Err(Mistake::unknown("RANGE.LS", word).into()),
        }
    }
    let ranges = client.daemon.values.ranges.clone();
    let first = cursor;
    let mut page = fitting(client, &mut cursor, count as usize);
    if client.sent.is_part {
        keep_partition(client, first, &mut cursor, &mut page)?;
    }
    let named: Vec<_> = page
        .iter()
        .map(|seen| {
            (
                seen,
                seen.range
                    .and_then(|id| ranges.name(id))
                    .unwrap_or_default(),
            )
        })
        .filter(|(_, range)| name.is_none_or(|name| name == range))
        .filter(|(_, range)| may_use(client, "range", range).is_ok())
        .collect();
    let now = ranges.now();
    let user = client.user.clone();
    let mut reply = client.reply();
    reply.array(2).integer(cursor as i64).array(named.len());
    for (seen, range) in named {
        let key = seen.keys.first().map_or(&b""[..], |(key, _)| key);
        reply
            .array(6)
            .bulk(seen.kind.print(seen.value))
            .bulk(range)
            .bulk(seen.standing.word())
            .integer(no::millis(seen.until, now));
        match sees_fence(user.as_deref(), seen.owner.as_deref()) {
            true => reply.integer(seen.fence as i64),
            false => reply.null(),
        };
        reply.bulk(key);
    }
    Ok(Next::Done)
}

/// Keep the rows of the partition where the cursor was: other nodes have the next.
fn keep_partition(
    client: &Client,
    first: u64,
    cursor: &mut u64,
    page: &mut Vec<Seen>,
) -> Result<(), CommandError> {
    let partition = first >> u32::BITS;
    let cluster = client.daemon.cluster.as_ref();
    let Some(cluster) = cluster.filter(|it| it.node.serves(partition as u32).is_some()) else {
        return Err(CommandError("NOTMINE another node has it.".into()));
    };
    page.retain(|seen| cluster.partitions.of_value(seen.value) == partition as u32);
    if *cursor >> u32::BITS != partition || *cursor == 0 {
        *cursor = (partition + 1) << u32::BITS;
    }
    Ok(())
}

/// The reservations that an answer has room for. The cursor is behind them, or zero
/// at the end.
fn fitting(client: &Client, cursor: &mut u64, count: usize) -> Vec<Seen> {
    let limits = &client.config.limits;
    // What one row takes at most: a name, a value, a key and some numbers.
    let row = 256 + KEY_LEN_MAX + limits.name_len_max;
    let most = (limits.output_max as usize / row).clamp(1, count);
    let page = client.daemon.values.ranges.page(cursor, most);
    if page.len() < most {
        *cursor = 0;
    }
    page
}

pub(in crate::redis::commands) fn memory(
    client: &mut Client,
    request: Request<'_>,
) -> Result<Next, CommandError> {
    request.arguments().end("RANGE.MEM")?;
    let bytes = client.daemon.values.ranges.bytes();
    let folder = client.daemon.values.folder();
    let folder = folder.map_or(String::new(), |path| path.display().to_string());
    let rows = [
        ("records", bytes.records_len),
        ("record_bytes", bytes.records),
        ("timers", bytes.timers_len),
        ("timer_bytes", bytes.timers),
        ("free_bytes", bytes.free),
    ];
    let mut reply = client.reply();
    reply.map(rows.len() + 1);
    for (name, value) in rows {
        reply.bulk(name).integer(value as i64);
    }
    reply.bulk("folder").bulk(folder);
    Ok(Next::Done)
}

/// Log everything that happens to values, for a while.
pub(in crate::redis::commands) fn debug(
    client: &mut Client,
    request: Request<'_>,
) -> Result<Next, CommandError> {
    const MOST: u64 = 3_600;
    let mut arguments = request.arguments();
    let seconds = arguments.number("RANGE.DEBUG", "seconds", 0..=MOST)?;
    arguments.end("RANGE.DEBUG")?;
    may_use(client, "range", "*")?;
    let within = Duration::from_secs(seconds);
    client.daemon.debug_values(within);
    let text = format!("what happens to values is logged for {within:?}");
    let by = client.user_name();
    client.daemon.events.add("range", "debug", text, Some(by));
    client.reply_ok();
    Ok(Next::Done)
}

/// As `SUBSCRIBE rideau:ranges[:range]`.
pub(in crate::redis::commands) fn watch(
    client: &mut Client,
    request: Request<'_>,
) -> Result<Next, CommandError> {
    let mut arguments = request.arguments();
    let name = match arguments.len() {
        0 => None,
        _ => Some(arguments.text("RANGE.WATCH", "a range")?),
    };
    arguments.end("RANGE.WATCH")?;
    if let Some(name) = name {
        range(client, name)?;
    }
    channels::values(client, name)?;
    Ok(Next::Done)
}

/// Give back many values at once, whichever clients hold them.
pub(in crate::redis::commands) fn bulk_release(
    client: &mut Client,
    request: Request<'_>,
) -> Result<Next, CommandError> {
    let mut arguments = request.arguments();
    let word = arguments.word("RANGE.RELEASE", "KEYPREFIX or FIELD")?;
    let filter = match Upper::of(word).as_bytes() {
        b"KEYPREFIX" => {
            let prefix = arguments.word("KEYPREFIX", "the beginning of keys")?;
            if prefix.is_empty() {
                return Err(CommandError(
                    "ERR KEYPREFIX needs at least one byte: an empty prefix fits every key.".into(),
                ));
            }
            Filter::KeyPrefix(prefix.to_vec())
        }
        b"FIELD" => {
            let name = arguments.word("FIELD", "the name of a field")?;
            let content = arguments.word("FIELD", "its content")?;
            Filter::Field(name.to_vec(), content.to_vec())
        }
        _ => return Err(Mistake::wrong("RANGE.RELEASE", "KEYPREFIX or FIELD", word).into()),
    };
    let within = match arguments.next() {
        None => None,
        Some(word) if word.eq_ignore_ascii_case(b"IN") => {
            let name = arguments.text("IN", "a range")?;
            Some(range(client, name)?)
        }
        Some(word) => return Err(Mistake::unknown("RANGE.RELEASE", word).into()),
    };
    arguments.end("RANGE.RELEASE")?;
    let name = within.as_ref().map_or("*", |place| &*place.name).to_owned();
    if within.is_none() {
        may_use(client, "range", "*")?;
    }
    let within = within.map(|place| place.id);
    let daemon = Arc::clone(&client.daemon);
    let released = async move {
        let ranges = daemon.values.ranges.clone();
        // All records are looked at, which takes a while if there are many.
        let released = panics::away(move || ranges.release_all(&filter, within)).await;
        let finish: OnReady = Box::new(move |client| match released {
            Ok(answer) => {
                let (decision, until) = answer.into_parts();
                if let Ok(count) = &decision {
                    let text = format!("{count} values were released, of any holder");
                    let by = Some(client.user_name());
                    client.daemon.events.add("range", &name, text, by);
                }
                tell_released(client, decision, until);
            }
            Err(panicked) => client.answer_panic(client.out.len(), panicked),
        });
        finish
    };
    Ok(Next::Wait(PendingCommand::new(
        "RANGE.RELEASE",
        Awaits::Anything,
        Box::pin(released),
    )))
}

fn tell_released(client: &mut Client, decision: Result<u64, Failed>, until: rideau::Committed) {
    match decision {
        Ok(count) => {
            client.held_back.until(until);
            client.reply().integer(count as i64);
        }
        Err(failed) => {
            let CommandError(text) = no::failed(client, &failed, "RANGE.RELEASE");
            client.reply().error(text);
        }
    }
}
