//! Where commands about values go: to the owner of the value or of a key, or to a node that
//! has what is wanted.

use std::time::Duration;

use rideau::allocator::{Span, id_key, parse_value};
use rideau_core::cluster::Tier;
use rideau_resp::{Request, Upper};

use super::Place;
use crate::redis::client::{Client, CommandError};
use crate::redis::commands::{About, ranges};
use crate::state::cluster::{Cluster, verbs};
use crate::state::daemon::Daemon;

/// The values that a command wants, as far as routing needs it.
#[derive(Debug, Default)]
pub(crate) struct ValueAsk {
    /// Where values are wanted, those that are preferred first.
    pub places: Vec<Vec<u8>>,
    /// Keys that the record shall have for itself.
    pub unique: Vec<Vec<u8>>,
    /// The client's own name of the ask.
    pub id: Option<Vec<u8>>,
    /// How many values,
    pub count: u64,
    /// or fewer.
    pub is_partial: bool,
    /// It waits so long.
    pub wait: Option<Duration>,
    /// For how long they are wanted.
    pub ttl: Option<u64>,
    is_async: bool,
}

impl ValueAsk {
    /// Parses the words of a command, with its name.
    pub(crate) fn of<'a>(words: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let mut wishes = Self {
            count: 1,
            ..Self::default()
        };
        let mut words = words.into_iter().skip(1);
        wishes.places.extend(words.next().map(<[u8]>::to_vec));
        let number = |word: Option<&[u8]>| std::str::from_utf8(word?).ok()?.parse::<u64>().ok();
        while let Some(word) = words.next() {
            match Upper::of(word).as_bytes() {
                b"PREFER" | b"SECONDARY" => wishes.places.extend(words.next().map(<[u8]>::to_vec)),
                b"UNIQUE" => wishes.unique.extend(words.next().map(<[u8]>::to_vec)),
                b"ID" => wishes.id = words.next().map(<[u8]>::to_vec),
                b"COUNT" => wishes.count = number(words.next()).unwrap_or(1),
                b"PARTIAL" => wishes.is_partial = true,
                b"ASYNC" => wishes.is_async = true,
                b"TTL" => wishes.ttl = number(words.next()),
                b"WAIT" | b"DEADLINE" => {
                    let millis = number(words.next()).unwrap_or(0);
                    wishes.wait = Some(Duration::from_millis(millis));
                }
                b"SET" => _ = words.nth(1),
                b"HINT" | b"FENCE" | b"KEY" | b"DATA" | b"UNSET" | b"NOTE" => _ = words.next(),
                _ => (),
            }
        }
        wishes
    }

    /// The ranges that are wanted, tier by tier: also those that a place is a part of.
    pub(crate) fn tiers(&self, daemon: &Daemon) -> Vec<Tier> {
        let catalog = daemon.catalog.load();
        let named = |word: &str| -> Option<Tier> {
            if let Some(range) = catalog.ranges.find(word) {
                return Some(vec![Box::from(&*range.name)]);
            }
            let span = Span::parse(word).ok()?;
            let within = catalog.ranges.within(span.interval);
            Some(within.map(|range| Box::from(&*range.name)).collect())
        };
        let tier = |word: &Vec<u8>| -> Tier {
            let word = std::str::from_utf8(word).unwrap_or_default();
            let all = named(word);
            all.unwrap_or_else(|| word.split(',').filter_map(named).flatten().collect())
        };
        self.places.iter().map(tier).collect()
    }

    /// The least number of values that is of use.
    pub(crate) const fn whole_count(&self) -> u64 {
        match self.is_partial {
            true => 1,
            false => self.count,
        }
    }
}

/// Where a command about a value goes.
pub(super) fn of_value(
    client: &Client,
    cluster: &Cluster,
    about: &About,
    request: Request<'_>,
) -> Result<Place, CommandError> {
    let word = request.word(1).unwrap_or_default();
    let is_by_key = word.eq_ignore_ascii_case(b"KEY");
    if client.is_of_node() && is_by_key || cluster.is_alone() {
        return Ok(Place::Here);
    }
    let has_keys = ["CLAIM", "UPDATE", "WRITE"].contains(&about.name);
    let wishes = match has_keys {
        true => ValueAsk::of(request.words().skip(usize::from(is_by_key))),
        false => ValueAsk::default(),
    };
    let key = own_key(client, about.name, &wishes)?;
    if key.is_some() && is_by_key {
        return Err(CommandError(format!(
            "ERR {} with UNIQUE goes without KEY while several nodes own partitions: name the \
             value or its ticket.",
            about.name
        )));
    }
    if let Some(key) = key.filter(|_| !client.is_of_node()) {
        return Ok(keyed(cluster, verbs::KEYED, &key, request));
    }
    if is_by_key {
        let key = request.word(2).unwrap_or_default();
        return Ok(keyed(cluster, verbs::BY, key, request));
    }
    let value = value(client, word);
    let partition = value.map(|value| cluster.partitions.of_value(value));
    Ok(partition.map_or(Place::Here, Place::Partition))
}

/// Where a value is had from: here, if there is one of the first tier here, and that was not
/// tried in vain.
pub(super) fn of_reserve(
    client: &Client,
    cluster: &Cluster,
    request: Request<'_>,
    is_none_here: bool,
) -> Result<Place, CommandError> {
    if client.is_of_node() || cluster.is_alone() {
        return Ok(Place::Here);
    }
    let wishes = ValueAsk::of(request.words());
    let tiers = wishes.tiers(&client.daemon);
    let key = own_key(client, "RESERVE", &wishes)?;
    // What goes with a connection is had from the node that has the connection.
    let catalog = client.daemon.catalog.load();
    let held = tiers.iter().flatten().find(|name| {
        let range = catalog.ranges.find(name);
        range.is_some_and(|range| range.is_of_connection())
    });
    if let Some(key) = key {
        let why = match held {
            Some(name) => format!("values of range {name} go with their holder"),
            None if wishes.is_async => "it is ASYNC".to_owned(),
            None => {
                ranges::check(client, request)?;
                return Ok(keyed(cluster, verbs::KEYED, &key, request));
            }
        };
        return Err(CommandError(format!(
            "ERR RESERVE goes without UNIQUE and ID while several nodes own partitions, if {why}."
        )));
    }
    if wishes.is_async || held.is_some() {
        return Ok(Place::Here);
    }
    if let [word] = &wishes.places[..]
        && let Some(value) = value(client, word)
    {
        return Ok(Place::Partition(cluster.partitions.of_value(value)));
    }
    let ranges = &client.daemon.values.ranges;
    let free = |name: &str| {
        let stats = ranges.range(name).and_then(|id| ranges.stats(id));
        stats.map_or(0, |stats| stats.free.to_u64_saturating())
    };
    let all = match wishes.count {
        1 => tiers.first().cloned().unwrap_or_default(),
        _ => tiers.concat(),
    };
    let has = all.iter().map(|name| free(name));
    let is_here = has.fold(0, u64::saturating_add) >= wishes.whole_count();
    let is_here = is_here && !is_none_here;
    if is_here && !all.iter().any(|name| cluster.is_waited(name)) {
        return Ok(Place::Here);
    }
    // What is wrong with it is told before any node is asked.
    ranges::check(client, request)?;
    Ok(Place::Seek)
}

/// The one key that a record shall have for itself, as records have it.
fn own_key(
    client: &Client,
    name: &str,
    wishes: &ValueAsk,
) -> Result<Option<Vec<u8>>, CommandError> {
    match (&wishes.unique[..], &wishes.id) {
        ([], None) => Ok(None),
        ([key], None) => Ok(Some(key.clone())),
        ([], Some(id)) => Ok(Some(id_key(&ranges::ask_id(client, id)))),
        _ => Err(CommandError(format!(
            "ERR {name} goes with one UNIQUE key or one ID while several nodes own partitions: \
             write the others as KEY."
        ))),
    }
}

/// A command that the owner of a key decides on.
fn keyed(cluster: &Cluster, verb: &'static str, key: &[u8], request: Request<'_>) -> Place {
    // An id has a mark that other keys do not have.
    let name = key.strip_prefix(b"\0").unwrap_or(key);
    let mut command = Vec::new();
    request.write_to(&mut command);
    Place::Key {
        partition: cluster.partitions.of_name(name),
        ask: verbs::write(verb, &[key, &command]),
    }
}

/// The value that a word is, or has a ticket of.
pub(super) fn value(client: &Client, word: &[u8]) -> Option<u128> {
    if word.starts_with(b"v-") {
        return Some(client.daemon.values.read_ticket(word)?.0);
    }
    let text = std::str::from_utf8(word).ok()?;
    parse_value(text).ok().map(|(_, value)| value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contents_are_not_taken_for_options() {
        let text = "RESERVE a PREFER b DATA UNIQUE SET ID COUNT UNIQUE k KEY WAIT NOTE ID COUNT 3";
        let wishes = ValueAsk::of(text.split(' ').map(str::as_bytes));
        assert_eq!(wishes.places, [b"a", b"b"]);
        assert_eq!(wishes.unique, [b"k"]);
        assert_eq!((wishes.count, wishes.id, wishes.wait), (3, None, None));
        let wishes = ValueAsk::of(
            "RESERVE a count 2 partial wait 50"
                .split(' ')
                .map(str::as_bytes),
        );
        assert_eq!((wishes.count, wishes.whole_count()), (2, 1));
        assert_eq!(wishes.wait, Some(Duration::from_millis(50)));
    }
}
