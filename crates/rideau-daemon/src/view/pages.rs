//! The pages of the dashboard, as blocks that a browser only has to show: tables with their
//! columns, units and sentences, charts, heat maps, texts, and actions with their impact.
//!
//! All numbers come from `facts`. Every list is cut to a page and counted, and no more of it
//! is built than is shown.

mod actions;
mod apps;
mod blocks;
mod cluster;
mod holders;
mod lists;
mod locks;
mod overview;
mod past;
mod ranges;
mod settings;
mod things;

use std::sync::Arc;
use std::time::Duration;

use rideau_config::User;
use serde_json::{Value, json};

use crate::state::daemon::Daemon;
use crate::state::viewer::Viewer;
use crate::view::history::{History, Sample};
use crate::view::worst::Ranking;
use blocks::Blocks;
pub(crate) use locks::KeyCounts;

/// Rows of a table, unless one asks for fewer or more.
pub(crate) const ROWS: usize = 50;
/// The most rows of a table.
pub(crate) const ROWS_MAX: usize = 200;

/// What a request wants to see, and what it may.
pub(crate) struct Look<'a> {
    pub daemon: &'a Arc<Daemon>,
    pub history: &'a History,
    pub sample: Arc<Sample>,
    pub ranking: Arc<Ranking>,
    pub keys: &'a KeyCounts,
    pub viewer: Viewer<'a>,
    pub user: Option<&'a Arc<User>>,
    /// Only rows that have this text.
    pub find: &'a str,
    /// The column that rows are sorted by, with a minus if the highest come first.
    pub sort: &'a str,
    /// Only this kind or group.
    pub only: &'a str,
    /// Rows before these are left out.
    pub from: usize,
    pub count: usize,
    /// How far charts go back; none if they have their values already.
    pub span: Option<Duration>,
}

/// A page that there is a link to.
struct Tab {
    path: &'static str,
    label: &'static str,
    count: Option<usize>,
    /// The server has none of these things: the link is further back.
    is_empty: bool,
}

impl Look<'_> {
    /// Whether the user may do what needs this right.
    fn may(&self, right: &str) -> bool {
        User::or_anybody_may(self.user.map(|user| &**user), right)
    }

    /// Whether the user may do it to this thing.
    fn may_to(&self, right: &str, kind: &str, name: &str) -> bool {
        self.may(right) && self.user.is_none_or(|user| user.may_use(kind, name))
    }

    /// The server has applications, and nothing else that waits.
    fn is_apps_only(&self) -> bool {
        let catalog = self.daemon.catalog.load();
        let others = catalog.pools.len() + catalog.brokers.len() + catalog.regulators.len();
        others == 0 && !self.daemon.apps.all().is_empty()
    }

    fn tabs(&self) -> Vec<Tab> {
        let catalog = self.daemon.catalog.load();
        let many = |path, label, count: usize| Tab {
            path,
            label,
            count: Some(count),
            is_empty: count == 0,
        };
        let always = |path, label| Tab {
            path,
            label,
            count: None,
            is_empty: false,
        };
        let ranges = self.daemon.config.load().ranges.len();
        let mut things = vec![
            many("pools", "Pools", catalog.pools.len()),
            many(
                "brokers",
                "Brokers",
                catalog.brokers.len() + catalog.regulators.len(),
            ),
            many("apps", "Apps", self.daemon.apps.all().len()),
            many("ranges", "Ranges", ranges),
        ];
        // A kind that there is none of comes behind the others, and apps first if they are
        // all there is.
        things.sort_by_key(|tab| (tab.is_empty, self.is_apps_only() && tab.path != "apps"));
        let mut all = vec![always("overview", "Overview")];
        all.extend(things);
        all.push(always("locks", "Locks"));
        all.push(always("holders", "Holders"));
        all.push(always("events", "Events"));
        all.push(always("config", "Config"));
        all.push(always("cluster", "Cluster"));
        all
    }
}

/// A page, or none if there is no such page or no such thing.
pub(crate) fn page(look: &Look<'_>, path: &str) -> Option<Value> {
    let (place, name) = path.split_once('/').unwrap_or((path, ""));
    let mut blocks = Blocks::new(look);
    match (place, name) {
        ("overview", "") => overview::show(&mut blocks),
        ("pools", "") => things::pools(&mut blocks),
        ("pools", name) => things::pool(&mut blocks, name)?,
        ("brokers", "") => things::brokers(&mut blocks),
        ("brokers", name) => things::broker(&mut blocks, name)?,
        ("regulators", name) => things::regulator(&mut blocks, name)?,
        ("locks", "") => locks::show(&mut blocks),
        ("locks", key) => locks::one(&mut blocks, key)?,
        ("apps", "") => apps::show(&mut blocks),
        ("apps", name) => apps::one(&mut blocks, name)?,
        ("ranges", "") => ranges::show(&mut blocks),
        ("ranges", name) => ranges::one(&mut blocks, name)?,
        ("holders", "") => holders::show(&mut blocks),
        ("clients", "") => holders::clients(&mut blocks),
        ("sessions", "") => holders::sessions(&mut blocks),
        ("events", "") => past::events(&mut blocks),
        ("refusals", "") => past::refusals(&mut blocks),
        ("explain", id) => past::explain(&mut blocks, id)?,
        ("config", "") => settings::show(&mut blocks),
        ("cluster", "") => cluster::show(&mut blocks),
        _ => return None,
    }
    let (title, blocks) = blocks.finish();
    Some(json!({
        "path": path,
        "title": title,
        "blocks": blocks,
        "frame": frame(look),
    }))
}

/// What is around every page.
fn frame(look: &Look<'_>) -> Value {
    let daemon = look.daemon;
    let config = daemon.config.load();
    let worst = look.ranking.all.iter();
    let worst = worst.filter(|one| look.viewer.sees(one.kind, &one.name));
    let worst = worst.map(|one| one.level).max().unwrap_or_default();
    let tabs = look.tabs().into_iter();
    let tabs = tabs.map(|tab| json!({ "path": tab.path, "label": tab.label, "count": tab.count }));
    let up = rideau_config::human::Span(daemon.started.elapsed()).to_string();
    let state = match daemon.is_draining() {
        true => "stopping: serves no new client".to_owned(),
        false => format!("up {up}"),
    };
    let (is_operator, has_users) = (
        look.user.is_some_and(|user| daemon.operator.is(user)),
        !config.users.is_empty(),
    );
    let can_act = ["pool", "app", "client", "config"];
    let can_act = can_act.iter().any(|right| look.may(right));
    json!({
        "name": config.server.name,
        "version": env!("CARGO_PKG_VERSION"),
        "state": state,
        "level": worst.word(),
        "user": look.user.map(|user| &user.name),
        "is_operator": is_operator,
        "has_users": has_users,
        "read_only": (!can_act).then(|| match has_users {
            true => "This user may look, and change nothing.".to_owned(),
            false => "You may look. To change something, log in as the operator.".to_owned(),
        }),
        "tabs": tabs.collect::<Vec<_>>(),
        "at_ms": look.sample.at_ms,
    })
}
