//! Locks: the rules, and the keys of which most is held. Clients decide how many keys there
//! are, so they are looked at now and then, once for all that look, and only the first are
//! kept.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rideau_config::Buckets;
use rideau_config::human::Span;

use super::Look;
use super::blocks::{Blocks, ColumnHead, Line, Listing, PageRow, ShownCell, link};
use super::holders;
use super::lists::Things;
use super::things;
use crate::state::daemon::Daemon;
use crate::view::explain;
use crate::view::facts::RuleNow;
use crate::view::worst::{Level, grouped};

/// Keys that are kept of a look.
const KEYS_MAX: usize = 200;
/// A look is good for this long, or for this many times as long as it took.
const FRESH: Duration = Duration::from_secs(2);
const TIMES: u32 = 50;

/// The last looks at all keys: the ones without a search, and those with one.
#[derive(Default)]
pub(crate) struct KeyCounts(Mutex<Vec<Arc<Counted>>>);

/// What a look at all keys found.
struct Counted {
    find: String,
    at: Instant,
    took: Duration,
    /// The keys that have most units held, and how many.
    most: Vec<(String, u64)>,
    keys: usize,
    held: u64,
}

impl KeyCounts {
    /// The keys with this text in their names, as they were a moment ago.
    fn of(&self, daemon: &Daemon, find: &str) -> Arc<Counted> {
        /// This many searches are kept.
        const SEARCHES: usize = 8;
        let mut all = self.0.lock();
        let is_fresh = |one: &Arc<Counted>| one.at.elapsed() < FRESH.max(one.took * TIMES);
        all.retain(is_fresh);
        if let Some(known) = all.iter().find(|one| one.find == find) {
            return Arc::clone(known);
        }
        let counted = Arc::new(Counted::look(daemon, find));
        if all.len() >= SEARCHES {
            all.remove(0);
        }
        all.push(Arc::clone(&counted));
        counted
    }
}

impl Counted {
    fn look(daemon: &Daemon, find: &str) -> Self {
        let at = Instant::now();
        let mut most: BinaryHeap<Reverse<(u64, Vec<u8>)>> = BinaryHeap::new();
        let (mut keys, mut units) = (0, 0);
        daemon.each_lock_held(|key, held| {
            if !find.is_empty() && !String::from_utf8_lossy(key).contains(find) {
                return;
            }
            keys += 1;
            units += held;
            let is_most =
                most.len() < KEYS_MAX || most.peek().is_some_and(|least| least.0.0 < held);
            if is_most {
                if most.len() == KEYS_MAX {
                    most.pop();
                }
                most.push(Reverse((held, key.to_vec())));
            }
        });
        let most = most.into_sorted_vec().into_iter();
        let most =
            most.map(|Reverse((held, key))| (String::from_utf8_lossy(&key).into_owned(), held));
        Self {
            find: find.into(),
            at,
            took: at.elapsed(),
            most: most.collect(),
            keys,
            held: units,
        }
    }
}

pub(super) fn show(blocks: &mut Blocks<'_>) {
    blocks.title("Locks");
    let look = blocks.look;
    rules(blocks).whole_or_few(blocks, false);
    let counted = look.keys.of(look.daemon, look.find);
    keys(blocks, &counted);
    let catalog = look.daemon.catalog.load();
    let lines = catalog.rules.iter().take(6).map(|place| {
        let pattern = &place.rule.pattern;
        Line::of("lock", pattern, "grants_per_s", pattern)
    });
    let lines: Vec<_> = lines.collect();
    blocks.chart("grants", "Granted, per second, by rule", "/s", &lines);
}

pub(super) fn few(blocks: &mut Blocks<'_>) {
    rules(blocks).whole_or_few(blocks, true);
}

/// The rules, without what takes a look at their keys.
struct Rules(Vec<(String, RuleNow)>);

fn rules(blocks: &Blocks<'_>) -> Rules {
    let catalog = blocks.look.daemon.catalog.load();
    let patterns = catalog.rules.iter().map(|place| place.rule.pattern.clone());
    Rules(patterns.zip(RuleNow::all(&catalog)).collect())
}

impl Rules {
    fn whole_or_few(self, blocks: &mut Blocks<'_>, is_few: bool) {
        let all = std::cell::RefCell::new(self.0);
        let of = |name: &str| {
            let mut all = all.borrow_mut();
            let at = all.iter().position(|(pattern, _)| pattern == name)?;
            Some(all.swap_remove(at).1)
        };
        let things = Things {
            kind: "lock",
            page: "locks",
            title: "Rules for locks",
            of: &of,
        };
        match is_few {
            true => things.few(blocks),
            false => things.whole(blocks),
        }
    }
}

fn keys(blocks: &mut Blocks<'_>, counted: &Counted) {
    let look = blocks.look;
    let head = |name, label: &str, help, is_number| ColumnHead {
        name,
        label: label.into(),
        help,
        is_number,
    };
    let catalog = look.daemon.catalog.load();
    let seen = counted.most.iter();
    let seen = seen.filter(|(key, _)| look.viewer.sees("lock", key));
    let rows = seen.take(look.count).map(|(key, held)| {
        let waiting = look.daemon.lock_count(key.as_bytes()).1;
        let rule = catalog.rule(key).map(|place| place.rule.clone());
        let room = rule.as_ref().and_then(|rule| match rule.buckets {
            Buckets::Fixed(buckets) => Some(rule.per.saturating_mul(buckets)),
            Buckets::Client => None,
        });
        let fill = room.filter(|room| *room > 0).map(|room| {
            let part = (*held as f64 / room as f64).clamp(0.0, 1.0);
            (part, format!("{held} of {room}"))
        });
        let number = |number: u64| grouped(i64::try_from(number).unwrap_or(i64::MAX));
        PageRow {
            link: Some(link("locks", key)),
            level: match waiting {
                0 => Level::Fine,
                _ => Level::Doubtful,
            },
            why: match waiting {
                0 => String::new(),
                waiting => format!("{waiting} wait for it"),
            },
            fill,
            cells: vec![
                ShownCell::Link(key.clone(), link("locks", key)),
                ShownCell::Text(number(*held)),
                ShownCell::Text(number(waiting as u64)),
                ShownCell::Text(rule.map_or_else(String::new, |rule| rule.pattern)),
            ],
            actions: Vec::new(),
        }
    });
    let rows: Vec<_> = rows.collect();
    // Counts of a search would tell of keys that its user does not see.
    let note = match look.viewer.sees_all_names() {
        true => format!(
            "{} keys are held, {} units in all; counted {} ago. Those with most units come first.",
            grouped(i64::try_from(counted.keys).unwrap_or(i64::MAX)),
            grouped(i64::try_from(counted.held).unwrap_or(i64::MAX)),
            Span(counted.at.elapsed()),
        ),
        false => format!("Counted {} ago.", Span(counted.at.elapsed())),
    };
    blocks.table(Listing {
        id: "keys",
        title: "Keys".into(),
        heads: vec![
            head("key", "key", "The key.", false),
            head("held", "held", "Units that are held.", true),
            head("waiting", "waiting", "Asks that wait for it.", true),
            head("rule", "rule", "The rule that it has.", false),
        ],
        total: rows.len(),
        rows,
        note,
        none: "No unit of any key is held.".into(),
        ..Listing::default()
    });
}

/// A rule, or a key.
pub(super) fn one(blocks: &mut Blocks<'_>, name: &str) -> Option<()> {
    let look: &Look<'_> = blocks.look;
    let catalog = look.daemon.catalog.load();
    let is_rule = catalog.rules.iter().any(|place| place.rule.pattern == name);
    if is_rule {
        blocks.title(format!("Rule {name}"));
        things::rates(blocks, "lock", name);
        let rules = RuleNow::counted(look.daemon, false).into_iter();
        let patterns = catalog.rules.iter().map(|place| &place.rule.pattern);
        let found = patterns.zip(rules).find(|(pattern, _)| *pattern == name);
        if let Some((_, rule)) = found {
            blocks.facts("All numbers", &rule);
        }
        return Some(());
    }
    look.viewer.sees("lock", name).then_some(())?;
    blocks.title(format!("Key {name}"));
    let found = explain::explain(look.daemon, &format!("lock:{name}"), look.viewer)?;
    blocks.text("Now", &found.text);
    holders::of(blocks, "lock", name);
    Some(())
}
