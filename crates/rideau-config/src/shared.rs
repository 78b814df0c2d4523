//! What all nodes of a cluster have in common: taken out of a text, and put into one.
//!
//! Limits, users, rules of locks, ranges and views are shared, and so are pools, brokers and
//! regulators with `scope = "cluster"`, with their groups. Everything else is each node's own.

use std::fmt;

use toml_edit::{DocumentMut, Item, Table};

use super::broker::{BrokerConfig, RegulatorConfig};
use super::config::Config;
use super::lock::LockRule;
use super::pool::{GroupConfig, PoolConfig};
use super::range::RangeConfig;
use super::scope::SharedBy;
use super::server::Limits;
use super::user::User;
use super::view::ViewConfig;

/// Sections that are shared as a whole.
const WHOLE: [&str; 5] = ["limits", "user", "lock", "range", "view"];
/// Sections of which some things are shared.
const PARTLY: [&str; 4] = ["pool", "group", "broker", "regulator"];
/// What is shared stands behind what is a node's own.
const BEHIND: isize = 1 << 20;

/// What a config has in common with those of other nodes.
#[derive(Clone, PartialEq, Debug)]
pub struct SharedConfig {
    limits: Limits,
    users: Vec<User>,
    pools: Vec<PoolConfig>,
    groups: Vec<GroupConfig>,
    brokers: Vec<BrokerConfig>,
    regulators: Vec<RegulatorConfig>,
    locks: Vec<LockRule>,
    ranges: Vec<RangeConfig>,
    views: Vec<ViewConfig>,
}

/// A text in two.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SplitText {
    /// What is the node's own.
    pub own: String,
    /// What all nodes share.
    pub shared: String,
}

/// Why a text cannot be taken apart or put together.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SplitFault {
    /// It is no TOML.
    NotToml,
    /// Something that is shared is like something that is not.
    LikeOwn {
        /// The kind of both.
        kind: String,
        /// The one that is shared.
        name: String,
        /// The one that is not.
        like: String,
    },
    /// A node has something of its own with the name of something that is shared.
    Both {
        /// The kind.
        kind: String,
        /// The name.
        name: String,
    },
}

impl Config {
    /// What it has in common with other nodes of its cluster.
    pub fn shared(&self) -> SharedConfig {
        fn kept<T: Clone>(all: &[T], is_shared: impl Fn(&T) -> bool) -> Vec<T> {
            all.iter().filter(|one| is_shared(one)).cloned().collect()
        }
        let is = |scope: SharedBy| scope == SharedBy::Cluster;
        SharedConfig {
            limits: self.limits.clone(),
            users: self.users.clone(),
            pools: kept(&self.pools, |pool| is(pool.scope)),
            groups: kept(&self.groups, |group| self.is_group_shared(group)),
            brokers: kept(&self.brokers, |broker| is(broker.scope)),
            regulators: kept(&self.regulators, |regulator| is(regulator.scope)),
            locks: self.locks.clone(),
            ranges: self.ranges.clone(),
            views: self.views.clone(),
        }
    }

    /// Whether all nodes share a thing of a kind of which not all are shared.
    fn is_shared(&self, kind: &str, name: &str) -> bool {
        let scope = match kind {
            "pool" => self
                .pools
                .iter()
                .find(|it| it.name == name)
                .map(|it| it.scope),
            "broker" => self
                .brokers
                .iter()
                .find(|it| it.name == name)
                .map(|it| it.scope),
            "regulator" => {
                let mut all = self.regulators.iter();
                all.find(|it| it.name == name).map(|it| it.scope)
            }
            _ => {
                let group = self.groups.iter().find(|it| it.name == name);
                return group.is_some_and(|group| self.is_group_shared(group));
            }
        };
        scope == Some(SharedBy::Cluster)
    }

    fn is_group_shared(&self, group: &GroupConfig) -> bool {
        let pools = group.pools.iter().map(|name| ("pool", name));
        let brokers = group.brokers.iter().map(|name| ("broker", name));
        pools
            .chain(brokers)
            .any(|(kind, name)| self.is_shared(kind, name))
    }
}

/// Take a text apart. `config` is what it says.
///
/// # Errors
///
/// If it is no TOML, or what is shared is not complete in itself.
pub fn split_shared(text: &str, config: &Config) -> Result<SplitText, SplitFault> {
    let mut own: DocumentMut = text.parse().map_err(|_| SplitFault::NotToml)?;
    let mut shared = DocumentMut::new();
    for kind in WHOLE {
        if let Some(item) = own.remove(kind) {
            let mut table = plain(item);
            table.set_implicit(kind != "limits");
            shared.insert(kind, Item::Table(table));
        }
    }
    for kind in PARTLY {
        let Some(things) = own.get_mut(kind).and_then(Item::as_table_like_mut) else {
            continue;
        };
        let names: Vec<String> = things.iter().map(|(name, _)| name.to_owned()).collect();
        let of_nodes = names
            .into_iter()
            .filter(|name| config.is_shared(kind, name));
        let mut taken = Table::new();
        taken.set_implicit(true);
        for name in of_nodes {
            if let Some(item) = things.remove(&name) {
                let like = item.get("like").and_then(Item::as_str);
                if let Some(like) = like.filter(|like| !config.is_shared(kind, like)) {
                    let (kind, like) = (kind.to_owned(), like.to_owned());
                    return Err(SplitFault::LikeOwn { kind, name, like });
                }
                taken.insert(&name, Item::Table(plain(item)));
            }
        }
        if !taken.is_empty() {
            shared.insert(kind, Item::Table(taken));
        }
    }
    Ok(SplitText {
        own: own.to_string(),
        shared: shared.to_string(),
    })
}

/// Put together what [`split_shared`] took apart: what is shared may be that of another text.
///
/// # Errors
///
/// If one is no TOML, or both have something with one name.
pub fn join_shared(own: &str, shared: &str) -> Result<String, SplitFault> {
    let not_toml = |_| SplitFault::NotToml;
    let mut joined: DocumentMut = own.parse().map_err(not_toml)?;
    let shared: DocumentMut = shared.parse().map_err(not_toml)?;
    for (kind, item) in shared.as_table() {
        let mut table = plain(item.clone());
        put_behind(&mut table);
        let Some(known) = joined.remove(kind) else {
            joined.insert(kind, Item::Table(table));
            continue;
        };
        // A value in braces cannot be gone on with below.
        let mut known = plain(known);
        for (name, thing) in table {
            if known.contains_key(&name) {
                let (kind, name) = (kind.to_owned(), name.to_string());
                return Err(SplitFault::Both { kind, name });
            }
            known.insert(&name, thing);
        }
        joined.insert(kind, Item::Table(known));
    }
    let mut text = joined.to_string();
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    Ok(text)
}

/// The table of a section, with a header of its own.
fn plain(item: Item) -> Table {
    let mut table = item.into_table().unwrap_or_default();
    table.set_dotted(false);
    for (_, below) in table.iter_mut() {
        if let Item::Table(below) = below {
            below.set_dotted(false);
        }
    }
    table
}

fn put_behind(table: &mut Table) {
    let position = table.position().unwrap_or(0);
    table.set_position(Some(position + BEHIND));
    for (_, item) in table.iter_mut() {
        if let Item::Table(below) = item {
            put_behind(below);
        }
    }
}

impl fmt::Display for SplitFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotToml => f.write_str("the text is not TOML; check it first"),
            Self::LikeOwn { kind, name, like } => write!(
                f,
                "all nodes share {kind} {name}, which is like {kind} {like} of this node alone; \
                 write its keys out, or give {like} the same `scope`"
            ),
            Self::Both { kind, name } => write!(
                f,
                "{kind} {name} is this node's own in its file, and all nodes share one of this \
                 name; rename one of them"
            ),
        }
    }
}

impl std::error::Error for SplitFault {}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
[server]
listen = [\"127.0.0.1:7433\"]

# Tenants.
[lock.\"tenant/*\"]
per = 3

[pool.cad]
scope = \"cluster\"
member = { list = [\"a\", \"b\"] }
[pool.cad.queue]
max = 7

[pool.own]
member = { list = [\"x\"] }

[lock.\"*\"]

[range.all]
values = [\"1-99\"]

[broker.jobs]
scope = \"cluster\"
group = \"work\"

[broker.mine]
";

    fn parsed(text: &str) -> Config {
        let parsed = Config::parse(text, "test", &|_| None);
        parsed.unwrap_or_else(|faults| panic!("{}", faults.render(false)))
    }

    fn split(text: &str) -> SplitText {
        split_shared(text, &parsed(text)).expect("it can be split")
    }

    #[test]
    fn what_is_taken_apart_means_the_same_when_it_is_put_together() {
        let SplitText { own, shared } = split(TEXT);
        assert!(!own.contains("range") && !own.contains("cad"), "{own}");
        assert!(own.contains("[pool.own]") && own.contains("[broker.mine]"));
        assert!(
            !shared.contains("own") && !shared.contains("mine"),
            "{shared}"
        );
        assert!(
            shared.contains("# Tenants.\n[lock.\"tenant/*\"]"),
            "{shared}"
        );
        let joined = join_shared(&own, &shared).expect("it can be joined");
        let (one, other) = (parsed(TEXT), parsed(&joined));
        assert_eq!(one.shared(), other.shared(), "{joined}");
        assert_eq!(one.brokers.len(), other.brokers.len());
        assert_eq!(one.server, other.server);
        // The order of rules counts.
        let patterns: Vec<_> = other.locks.iter().map(|rule| &*rule.pattern).collect();
        assert_eq!(patterns, ["tenant/*", "*"]);
        assert_eq!(split(&joined).shared, shared, "and so it goes on");
    }

    #[test]
    fn another_shared_part_takes_the_place_of_the_first() {
        let own = split(TEXT).own;
        let shared = "[limits]\nranges_max = 9\n[pool.new]\nscope = \"cluster\"\n\
                      member = { list = [\"q\"] }\n";
        let config = parsed(&join_shared(&own, shared).expect("it can be joined"));
        let names: Vec<_> = config.pools.iter().map(|pool| &*pool.name).collect();
        assert_eq!(names, ["own", "new"]);
        assert_eq!(config.limits.ranges_max, 9);
        assert!(config.locks.is_empty() && config.ranges.is_empty());
    }

    #[test]
    fn every_way_to_write_a_table_can_be_split() {
        for text in [
            "pool = { a = { scope = \"cluster\", member = { list = [\"x\"] } }, \
             b = { member = { list = [\"y\"] } } }\n",
            "pool.a.scope = \"cluster\"\npool.a.member.list = [\"x\"]\n\
             pool.b.member.list = [\"y\"]\n",
            "[pool]\na = { scope = \"cluster\", member = { list = [\"x\"] } }\n\
             b.member.list = [\"y\"]\n",
        ] {
            let SplitText { own, shared } = split(text);
            assert!(!own.contains("cluster") && own.contains('y'), "{own}");
            assert!(!shared.contains('y'), "{shared}");
            let joined = join_shared(&own, &shared).expect("it can be joined");
            let (mut one, mut other) = (parsed(text), parsed(&joined));
            one.pools.sort_by(|a, b| a.name.cmp(&b.name));
            other.pools.sort_by(|a, b| a.name.cmp(&b.name));
            assert_eq!(one.pools, other.pools, "{text}\n{joined}");
        }
    }

    #[test]
    fn what_is_shared_does_not_hang_on_what_is_not() {
        let text = "[pool.a]\nmember = { list = [\"x\"] }\n\
                    [pool.b]\nlike = \"a\"\nscope = \"cluster\"\nmember = { list = [\"y\"] }\n";
        let fault = split_shared(text, &parsed(text)).expect_err("b is like a");
        assert!(fault.to_string().contains("pool b, which is like pool a"));
        let fault = join_shared("[pool.a]\nmax = 2\n", "[pool.a]\nmax = 3\n");
        assert!(matches!(fault, Err(SplitFault::Both { .. })), "{fault:?}");
    }
}
