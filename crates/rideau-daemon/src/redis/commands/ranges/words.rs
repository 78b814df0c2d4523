//! Arguments of commands about values: places, keys and data.

use std::time::Duration;

use rideau::allocator::{
    Ask, COUNT_MAX, Field, Fields, Interval, Key, Kind, Place, Prefer, Span, TIERS_MAX, TIME_MAX,
    parse_value,
};
use rideau_config::label::Label;
use rideau_resp::{Arguments, Mistake, Quoted, Request, Upper};

use super::target::{may_use_value, may_use_values};
use super::{How, no};
use crate::redis::client::{AskArgs, Client, CommandError};
use crate::redis::commands::may_use;
use crate::state::catalog::Catalog;
use crate::state::values::NamedRanges;

/// This many fields can be set by one command.
const FIELDS_MAX: usize = 256;
/// The field that `DATA` means.
const DATA: &[u8] = b"data";

/// The arguments of `RESERVE`.
pub(super) struct Words<'a> {
    prefer: Vec<Prefer>,
    count: u32,
    is_many: bool,
    partial: bool,
    id: Option<Vec<u8>>,
    pub(super) wait: Option<Duration>,
    beside: ValueContents<'a>,
}

/// The data and keys of a value, and its time.
#[derive(Default)]
pub(super) struct ValueContents<'a> {
    pub(super) ttl: Option<Duration>,
    pub(super) fence: Option<u64>,
    pub(super) keys: Vec<Key<'a>>,
    pub(super) data: Fields,
    pub(super) claim: bool,
    pub(super) tail: AskArgs,
    fields: usize,
}

impl<'a> Words<'a> {
    pub(super) fn parse(client: &Client, request: Request<'a>) -> Result<Self, CommandError> {
        let mut arguments = request.arguments();
        let catalog = client.daemon.catalog.load();
        let mut words = Self {
            prefer: Vec::with_capacity(2),
            count: 1,
            is_many: false,
            partial: false,
            id: None,
            wait: None,
            beside: ValueContents::default(),
        };
        let mut tier = 0;
        let mut hint = None;
        let word = arguments.text("RESERVE", "a range, or values as 10.0.0.0/24")?;
        add_places(client, &catalog, word, tier, &mut words.prefer)?;
        while let Some(option) = arguments.next() {
            match Upper::of(option).as_bytes() {
                b"PREFER" | b"SECONDARY" => {
                    tier += 1;
                    if tier >= TIERS_MAX {
                        return Err(CommandError(format!(
                            "ERR RESERVE takes at most {TIERS_MAX} tiers: name fewer after PREFER."
                        )));
                    }
                    let word = arguments.text("PREFER", "a range, or values as 10.0.0.0/24")?;
                    add_places(client, &catalog, word, tier, &mut words.prefer)?;
                }
                b"COUNT" => {
                    let most = u64::from(COUNT_MAX);
                    words.count = arguments.number("COUNT", "a number", 1..=most)? as u32;
                    words.is_many = true;
                }
                b"PARTIAL" => words.partial = true,
                b"ASYNC" => words.beside.tail.is_async = true,
                b"ID" => words.id = Some(id(client, &mut arguments)?),
                b"WAIT" | b"DEADLINE" => words.wait = Some(wait(client, &mut arguments)?),
                b"HINT" => {
                    let word = arguments.text("HINT", "a value")?;
                    hint = Some(value(client, word)?.0);
                }
                upper => {
                    let is_known = words.beside.option(client, upper, &mut arguments)?;
                    if !is_known || words.beside.fence.is_some() || words.beside.claim {
                        return Err(Mistake::unknown("RESERVE", option).into());
                    }
                }
            }
        }
        words.beside.check(client)?;
        if words.is_many && words.is_async() {
            return Err(CommandError(
                "ERR COUNT and ASYNC cannot be combined: ask several times, or wait for the \
                 answer."
                    .into(),
            ));
        }
        if let Some(hint) = hint {
            words.hint(hint, &catalog.ranges);
        }
        Ok(words)
    }

    /// Look there first, if it is where one is wanted at all.
    fn hint(&mut self, value: u128, ranges: &NamedRanges) {
        let id = ranges.of(value).map(|(place, _)| place.id);
        let mut first = self.prefer.iter().filter(|prefer| prefer.tier == 0);
        let is_wanted = first.any(|prefer| match prefer.place {
            Place::Range(range) => Some(range) == id,
            Place::Within(interval) => interval.contains(value),
        });
        if is_wanted {
            let place = Place::Within(Interval::of(value));
            self.prefer.insert(0, Prefer { tier: 0, place });
        }
    }

    /// The ask of this owner.
    pub(super) fn ask<'s>(&'s self, owner: &'s [u8]) -> Ask<'s> {
        Ask {
            owner: Some(owner),
            ttl: self.beside.ttl,
            data: &self.beside.data,
            keys: &self.beside.keys,
            id: self.id.as_deref(),
            count: self.count,
            partial: self.partial,
            ..Ask::new(&self.prefer)
        }
    }

    /// At most one record may have what is asked for.
    pub(super) fn has_own_key(&self) -> bool {
        self.id.is_some() || self.beside.has_own_key()
    }

    pub(super) fn is_async(&self) -> bool {
        self.beside.tail.is_async
    }

    pub(super) fn prefer(&self) -> &[Prefer] {
        &self.prefer
    }

    pub(super) fn how(&self) -> How {
        How {
            since: None,
            is_many: self.is_many,
            tail: self.beside.tail.clone(),
            waited: None,
        }
    }
}

impl<'a> ValueContents<'a> {
    /// All that is left of a command.
    pub(super) fn parse(
        client: &Client,
        command: &'static str,
        arguments: &mut Arguments<'a>,
    ) -> Result<Self, CommandError> {
        let mut beside = Self::default();
        while let Some(option) = arguments.next() {
            if !beside.option(client, Upper::of(option).as_bytes(), arguments)? {
                return Err(Mistake::unknown(command, option).into());
            }
        }
        beside.check(client)?;
        Ok(beside)
    }

    /// Take an option that begins with `word`, if it is known.
    fn option(
        &mut self,
        client: &Client,
        word: &[u8],
        arguments: &mut Arguments<'a>,
    ) -> Result<bool, CommandError> {
        match word {
            b"TTL" => self.ttl = Some(ttl(arguments)?),
            b"FENCE" => {
                let fence = arguments.number("FENCE", "the fence of the value", 0..=u64::MAX)?;
                self.fence = Some(fence);
            }
            b"KEY" | b"UNIQUE" => {
                let unique = word == b"UNIQUE";
                let bytes = arguments.word(if unique { "UNIQUE" } else { "KEY" }, "a key")?;
                client.check_label(Label::ValueKey, bytes)?;
                self.keys.push(Key { bytes, unique });
            }
            b"DATA" => {
                let content = arguments.word("DATA", "any bytes")?;
                self.set(client, DATA, Field::Bytes(content))?;
            }
            b"SET" => {
                let name = arguments.word("SET", "the name of a field")?;
                let content = arguments.word("SET", "the content of the field")?;
                self.set(client, name, Field::Bytes(content))?;
            }
            b"UNSET" => {
                let name = arguments.word("UNSET", "the name of a field")?;
                self.set(client, name, Field::Nothing)?;
            }
            b"CLAIM" => self.claim = true,
            b"NOTE" => return self.tail.option(word, arguments, client),
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn set(&mut self, client: &Client, name: &[u8], field: Field<'_>) -> Result<(), CommandError> {
        client.check_label(Label::Field, name)?;
        self.fields += 1;
        if self.fields > FIELDS_MAX {
            return Err(CommandError(format!(
                "ERR one command sets {FIELDS_MAX} fields at most: UPDATE adds further ones."
            )));
        }
        self.data.set(name, field);
        Ok(())
    }

    /// The record shall have one of the keys for itself.
    pub(super) fn has_own_key(&self) -> bool {
        self.keys.iter().any(|key| key.unique)
    }

    fn check(&self, client: &Client) -> Result<(), CommandError> {
        let config = client.daemon.config.load();
        let (limits, counts) = (&config.limits, &client.daemon.counts);
        if self.keys.len() > limits.range_keys_max {
            no::count_refused(&counts.range_keys_refused);
            return Err(CommandError(format!(
                "ERR a reservation has at most {} keys, as limits.range_keys_max says, not {}.",
                limits.range_keys_max,
                self.keys.len()
            )));
        }
        let most = usize::try_from(limits.range_data_max).unwrap_or(usize::MAX);
        if self.data.weighs_over(most) {
            let weight = self.data.weight();
            no::count_refused(&counts.range_data_refused);
            return Err(CommandError(format!(
                "ERR the data of a reservation has at most {} bytes, as limits.range_data_max \
                 says, not {weight}.",
                limits.range_data_max
            )));
        }
        Ok(())
    }
}

fn id(client: &Client, arguments: &mut Arguments<'_>) -> Result<Vec<u8>, CommandError> {
    let word = arguments.word("ID", "a name that you choose for the ask")?;
    client.check_label(Label::AskId, word)?;
    Ok(ask_id(client, word))
}

/// The client's own name of an ask, as it is known among those of all.
pub(in crate::redis::commands) fn ask_id(client: &Client, word: &[u8]) -> Vec<u8> {
    const ID_MAX: usize = 128;
    // Two users may have the same name for something.
    let mut id = client.scope().unwrap_or_default().as_bytes().to_vec();
    id.truncate(ID_MAX);
    id.push(b':');
    id.extend_from_slice(word);
    id
}

fn wait(client: &Client, arguments: &mut Arguments<'_>) -> Result<Duration, CommandError> {
    let most = client.daemon.config.load().server.wait_max;
    let most = u64::try_from(most.as_millis()).unwrap_or(u64::MAX);
    let wait = arguments.number("WAIT", "milliseconds", 0..=most)?;
    Ok(Duration::from_millis(wait))
}

pub(super) fn ttl(arguments: &mut Arguments<'_>) -> Result<Duration, CommandError> {
    let most = TIME_MAX.as_millis() as u64;
    let ttl = arguments.number("TTL", "milliseconds", 1..=most)?;
    Ok(Duration::from_millis(ttl))
}

/// The places in a word, as `office,10.9.0.0/24`.
fn add_places(
    client: &Client,
    catalog: &Catalog,
    word: &str,
    tier: u8,
    prefer: &mut Vec<Prefer>,
) -> Result<(), CommandError> {
    let ranges = &catalog.ranges;
    // No name has a comma, and mostly it is one.
    if let Some(range) = ranges.find(word) {
        may_use(client, "range", word)?;
        let place = Place::Range(range.id);
        prefer.push(Prefer { tier, place });
        return Ok(());
    }
    for part in parts(word)? {
        client.check_label(Label::Thing, part.as_bytes())?;
        if let Some(range) = ranges.find(part) {
            may_use(client, "range", part)?;
            let place = Place::Range(range.id);
            prefer.push(Prefer { tier, place });
            continue;
        }
        let is_name = || no::is_name(part) || catalog.views.find(part).is_some();
        let span = Span::parse(part).map_err(|error| match is_name() {
            // A user that may not use a range does not learn whether it is there.
            true => match may_use(client, "range", part) {
                Ok(()) => no::no_range(catalog, part),
                Err(wrong) => wrong,
            },
            false => CommandError(format!("ERR {part:?} is not a set of values: {error}.")),
        })?;
        let mut within = ranges.within(span.interval).peekable();
        if within.peek().is_none() {
            may_use_values(client, ["*"], Quoted(part.as_bytes()))?;
            return Err(no::failed(
                client,
                &rideau::Failed::Refused(rideau::allocator::Refused::OutOfRange),
                Quoted(part.as_bytes()),
            ));
        }
        may_use_values(
            client,
            within.map(|range| &*range.name),
            Quoted(part.as_bytes()),
        )?;
        let place = Place::Within(span.interval);
        prefer.push(Prefer { tier, place });
    }
    Ok(())
}

/// The places of a word, one by one. Two values with a comma are the values from the first
/// up to the second, as in the config.
fn parts(word: &str) -> Result<impl Iterator<Item = &str>, CommandError> {
    let parts: Vec<_> = word.split(',').collect();
    let is_value = |part: &&str| parse_value(part.trim()).is_ok();
    let are_values = |pair: &[&str]| pair.iter().all(is_value);
    if parts.len() == 2 && are_values(&parts) {
        return Ok(vec![word].into_iter());
    }
    if parts.windows(2).any(are_values) {
        let word = Quoted(word.as_bytes());
        return Err(CommandError(format!(
            "ERR {word} can be read in two ways: two values with a comma are the values between \
             them, the second not included. Write a-b, or PREFER before each place."
        )));
    }
    Ok(parts.into_iter())
}

/// The value that a word means, and how it is written in its range.
pub(super) fn value(client: &Client, word: &str) -> Result<(u128, Kind), CommandError> {
    let parsed = parse_value(word);
    let (kind, value) = parsed.map_err(|error| {
        let word = Quoted(word.as_bytes());
        CommandError(format!("ERR {word} is not a value: {error}."))
    })?;
    may_use_value(client, value, Quoted(word.as_bytes()))?;
    let catalog = client.daemon.catalog.load();
    let of = catalog.ranges.of(value);
    Ok((value, of.map_or(kind, |(_, kind)| kind)))
}

/// Whether the client may use all ranges that values are wanted of.
pub(in crate::redis::commands) fn may_use_places(
    client: &Client,
    prefer: &[Prefer],
) -> Result<(), CommandError> {
    let catalog = client.daemon.catalog.load();
    for Prefer { place, .. } in prefer {
        match *place {
            Place::Range(id) => {
                let name = catalog.ranges.by_id(id).map(|place| &*place.name);
                may_use(client, "range", name.unwrap_or("*"))?;
            }
            Place::Within(interval) => {
                let names = catalog.ranges.within(interval).map(|range| &*range.name);
                may_use_values(client, names, "the values that it waits for")?;
            }
        }
    }
    Ok(())
}
