//! The changes of a new config, and their effect on waiting asks and holders.

mod apps;

use std::collections::BTreeMap;
use std::fmt::{self, Write};

use super::config::Config;
use super::human::{count, wrap};
use super::key::{Change, Effect};
use super::parts::{self, PARTS, Part};
use super::pool::Member;
use super::shown::quoted_key;

/// All that a new config would change.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Plan {
    /// One step for each key that changes, and for each thing that comes or
    /// goes.
    pub steps: Vec<PlanStep>,
}

impl Plan {
    /// Ranges come, change or go.
    pub fn is_about_ranges(&self) -> bool {
        let mut paths = self.steps.iter().map(|step| &step.path);
        paths.any(|path| path.starts_with("range."))
    }
}

/// One thing that changes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PlanStep {
    /// The key, as `pool.pg-1.max`, or the thing, as `pool.pg-1`.
    pub path: String,
    /// The value now; none if it is new.
    pub old: Option<String>,
    /// The new value; none if it is removed.
    pub new: Option<String>,
    /// Whether it counts at once.
    pub change: Change,
    /// The effect, as a sentence.
    pub meaning: String,
    /// How many of the asks that wait now would be shed.
    pub shed: usize,
}

/// Numbers of the running server, for what a change means just now.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Now {
    /// By thing, as `pool.pg-1`, and by queue where one has two, as
    /// `broker.checkout.asks`.
    pub things: BTreeMap<String, Live>,
}

/// How many hold and wait at one thing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Live {
    /// How many of it are held.
    pub held: usize,
    /// How many wait for it.
    pub waiting: usize,
}

/// Shown instead of what must not be.
const HIDDEN: &str = "(hidden)";
/// The effect of any change of a view.
const ONLY_COUNTS: &str = "It only counts: no value and no holder is affected.";
/// The effect of any change of an alarm.
const ONLY_WATCHES: &str = "It only watches: no ask and no holder is affected.";
/// Meanings are wrapped at this column.
const WIDTH: usize = 100;
/// Values longer than this are cut.
const VALUE_MAX: usize = 40;

/// What changes from `old` to `new`. Without `now` the plan says what would
/// happen to waiters and holders, but not how many they are.
pub fn plan(old: &Config, new: &Config, now: Option<&Now>) -> Plan {
    let (before, after) = (Rows::of(old), Rows::of(new));
    let mut steps = Vec::new();
    for part in PARTS.iter().filter(|part| !part.is_named) {
        changes(&before, &after, &[part.name], now, &mut steps);
    }
    for part in PARTS.iter().filter(|part| part.is_named) {
        let kind = part.name;
        let (gone, come) = (before.names(kind), after.names(kind));
        for name in gone.iter().filter(|name| !come.contains(name)) {
            steps.push(leave(kind, name, now));
        }
        for name in &come {
            if gone.contains(name) {
                changes(&before, &after, &[kind, name], now, &mut steps);
            } else {
                steps.push(arrive(kind, name, new));
            }
        }
        let stay = |names: &[String], others: &[String]| -> Vec<String> {
            names
                .iter()
                .filter(|name| others.contains(name))
                .cloned()
                .collect()
        };
        if kind == "lock" && stay(&gone, &come) != stay(&come, &gone) {
            steps.push(PlanStep {
                path: "lock".into(),
                old: Some(gone.join(", ")),
                new: Some(come.join(", ")),
                change: Change::Live,
                meaning: "The first that fits a key is used: keys may get another rule.".into(),
                shed: 0,
            });
        }
    }
    hidden(old, new, &mut steps);
    Plan { steps }
}

impl Plan {
    /// Nothing changes.
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// How many changes count only after a restart.
    pub fn restarts(&self) -> usize {
        let needs = |step: &&PlanStep| step.change == Change::Restart;
        self.steps.iter().filter(needs).count()
    }

    /// How many of the asks that wait now would be shed.
    pub fn shed(&self) -> usize {
        self.steps.iter().map(|step| step.shed).sum()
    }

    /// The plan as a person reads it; `file` is what to apply.
    pub fn render(&self, file: &str) -> String {
        if self.is_empty() {
            return "Nothing changes.\n".into();
        }
        let values: Vec<_> = self.steps.iter().map(PlanStep::values).collect();
        let longest = |len: &mut dyn Iterator<Item = usize>| len.max().unwrap_or(0);
        let paths = longest(&mut self.steps.iter().map(|step| step.path.chars().count()));
        let width = longest(&mut values.iter().map(|value| value.chars().count()));
        let indent = paths + width + 8;
        let mut out = String::new();
        for (step, values) in self.steps.iter().zip(&values) {
            let head = format!("  {:paths$}   {values:width$}   ", step.path);
            let mut lines = wrap(&step.meaning, WIDTH.saturating_sub(indent).max(30)).into_iter();
            let first = lines.next().unwrap_or_default();
            let written = writeln!(out, "{}", format!("{head}{first}").trim_end());
            written.expect("a string takes all that is written");
            for line in lines {
                writeln!(out, "{:indent$}{line}", "").expect("a string takes all");
            }
        }
        let (changes, restarts) = (self.steps.len(), self.restarts());
        out + &format!(
            "{}, {}, {} shed.   Apply:  rideau apply {file}\n",
            count(changes, "change"),
            count(restarts, "restart"),
            count(self.shed(), "request"),
        )
    }
}

impl PlanStep {
    /// `10 -> 6`, `+ added`, `- removed`.
    fn values(&self) -> String {
        match (&self.old, &self.new) {
            (Some(old), Some(new)) => format!("{} -> {}", shown(old), shown(new)),
            (None, Some(new)) => format!("+ {}", shown(new)),
            (Some(old), None) => format!("- {}", shown(old)),
            (None, None) => String::new(),
        }
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.render("FILE"))
    }
}

/// Rows by the parts of their path.
struct Rows {
    rows: Vec<(Vec<String>, String)>,
    names: Vec<(&'static str, Vec<String>)>,
}

impl Rows {
    fn of(config: &Config) -> Self {
        let path = |path: &str| -> Vec<String> {
            let keys = toml_edit::Key::parse(path).unwrap_or_default();
            keys.iter().map(|key| key.get().to_owned()).collect()
        };
        let rows = config.rows().into_iter();
        let names = |part: &Part| (part.names)(config).into_iter().map(Into::into).collect();
        Self {
            rows: rows.map(|(key, value)| (path(&key), value)).collect(),
            names: PARTS.iter().map(|part| (part.name, names(part))).collect(),
        }
    }

    fn names(&self, kind: &str) -> Vec<String> {
        let found = self.names.iter().find(|(known, _)| *known == kind);
        found.map_or(Vec::new(), |(_, names)| names.clone())
    }

    fn value(&self, path: &[String]) -> Option<&String> {
        let row = self.rows.iter().find(|(known, _)| known == path);
        row.map(|(_, value)| value)
    }

    fn below(&self, above: &[&str]) -> impl Iterator<Item = &(Vec<String>, String)> {
        let is_below = move |path: &[String]| {
            path.len() > above.len() && path.iter().zip(above).all(|(part, key)| part == key)
        };
        self.rows.iter().filter(move |(path, _)| is_below(path))
    }
}

/// The keys below `above` that differ.
fn changes(
    before: &Rows,
    after: &Rows,
    above: &[&str],
    now: Option<&Now>,
    steps: &mut Vec<PlanStep>,
) {
    for (path, new) in after.below(above) {
        let old = before.value(path);
        if old != Some(new) {
            steps.push(step(path, old.cloned(), Some(new.clone()), now));
        }
    }
    for (path, old) in before.below(above) {
        if after.value(path).is_none() {
            steps.push(step(path, Some(old.clone()), None, now));
        }
    }
}

fn step(path: &[String], old: Option<String>, new: Option<String>, now: Option<&Now>) -> PlanStep {
    let parts: Vec<&str> = path.iter().map(String::as_str).collect();
    let effect = parts::effect(&parts).unwrap_or(Effect::Live);
    let number = |value: &Option<String>| value.as_ref()?.parse::<usize>().ok();
    let (from, to) = (number(&old), number(&new));
    let (meaning, shed) = match effect {
        Effect::Live => meaning(&parts, from, to, &Around { parts: &parts, now }),
        effect => (effect.sentence().into(), 0),
    };
    let shown: Vec<_> = path.iter().map(|key| quoted_key(key)).collect();
    PlanStep {
        path: shown.join("."),
        old,
        new,
        change: effect.change(),
        meaning,
        shed,
    }
}

/// The holders and waiters where a key belongs.
struct Around<'a> {
    parts: &'a [&'a str],
    now: Option<&'a Now>,
}

impl Around<'_> {
    /// The thing itself.
    fn thing(&self) -> Option<Live> {
        self.now?.things.get(&self.parts[..2].join(".")).copied()
    }

    /// The queue that the key is of.
    fn queue(&self) -> Option<Live> {
        let queue = self.parts[..3].join(".");
        self.now?
            .things
            .get(&queue)
            .copied()
            .or_else(|| self.thing())
    }
}

/// The effect of a live change, and how many asks it sheds.
fn meaning(
    parts: &[&str],
    from: Option<usize>,
    to: Option<usize>,
    around: &Around<'_>,
) -> (String, usize) {
    let is_less = matches!((from, to), (Some(from), Some(to)) if to < from)
        || matches!((from, to), (None, Some(_)));
    let at_once = |words: &str| (words.to_owned(), 0);
    match parts {
        ["pool", _, "max"] if is_less => (less_members(to, around.thing()), 0),
        ["pool", _, "max"] => (more_members(around.thing()), 0),
        ["pool", _, "member", ..] => at_once(
            "Idle members are replaced at once, held ones when they are returned; no holder is \
             interrupted.",
        ),
        ["pool" | "broker", _, "group"] => {
            at_once("Waiting asks keep their positions; the next ask sees the group.")
        }
        [
            "pool" | "regulator" | "lock" | "app" | "upstream",
            _,
            "queue",
            "max",
        ]
        | ["broker", _, "asks" | "offers", "max"]
            if is_less =>
        {
            less_room(to, around.queue())
        }
        [
            "pool" | "regulator" | "lock" | "app" | "upstream",
            _,
            "queue",
            ..,
        ]
        | ["broker", _, "asks" | "offers", ..] => {
            let waiting = around.queue().map(|live| live.waiting);
            let meaning = waiting.map_or(
                "Waiting asks keep their positions and times.".into(),
                |waiting| match waiting {
                    1 => "The 1 that waits keeps its position and times.".into(),
                    waiting => format!("The {waiting} that wait keep their positions and times."),
                },
            );
            (meaning, 0)
        }
        ["regulator", _, "valve", ..] => at_once("No lease is taken away; the next ask sees it."),
        ["lock", _, "per" | "buckets"] if is_less => {
            at_once("A holder of more keeps it; nothing is granted until there is room.")
        }
        ["range", _, key] => (range_meaning(key, around.thing()), 0),
        ["view", ..] => at_once(ONLY_COUNTS),
        ["alarm", ..] => at_once(ONLY_WATCHES),
        ["upstream", _, key, ..] => at_once(apps::upstream_meaning(key, is_less)),
        ["app", _, key] | ["front", key] => at_once(apps::meaning(key, is_less)),
        ["limits", ..] if is_less => at_once("What is over it stays; nothing is added to it."),
        ["user", _, key] if is_less && key.ends_with("_max") => {
            at_once("What is over it stays; nothing is added to it.")
        }
        ["user", ..] => at_once("At once, also for streams and for commands that wait."),
        _ => at_once(Effect::Live.sentence()),
    }
}

/// The effect of a change of a range on the holders of its values.
fn range_meaning(key: &str, live: Option<Live>) -> String {
    let held = live.map_or("What is held".to_owned(), |live| match live.held {
        1 => "The 1 value that is held".into(),
        held => format!("The {held} values that are held"),
    });
    match key {
        "values" | "skip" => format!(
            "New values are free at once. {held} stay with their holders, and go when they are \
             given back."
        ),
        "class" => "Only while no value has a holder.".into(),
        "start" => "Takes effect when a range starts of which nothing is known.".into(),
        _ => Effect::Live.sentence().into(),
    }
}

fn less_members(to: Option<usize>, live: Option<Live>) -> String {
    let over = live.map(|live| live.held.saturating_sub(to.unwrap_or(0)));
    match over {
        Some(0) => "No member above the new limit is in use; idle ones are stopped.".into(),
        Some(1) => {
            "1 member above the new limit is in use: it is stopped when returned; no holder \
                    is interrupted."
                .into()
        }
        Some(over) => format!(
            "{over} members above the new limit are in use: each is stopped when \
             returned; no holder \
             is interrupted."
        ),
        None => "Members above the new limit are stopped when returned; no holder is \
             interrupted."
            .into(),
    }
}

fn more_members(live: Option<Live>) -> String {
    match live {
        Some(Live { waiting: 0, .. }) | None => "More members are started when needed.".into(),
        Some(Live { waiting, .. }) => {
            format!("More members are started at once for those that wait ({waiting}).")
        }
    }
}

fn less_room(to: Option<usize>, live: Option<Live>) -> (String, usize) {
    let over = live.map(|live| live.waiting.saturating_sub(to.unwrap_or(0)));
    match over {
        Some(0) => ("There is room for all that wait.".into(), 0),
        Some(over) => (format!("{over} of those that wait are shed."), over),
        None => ("Waiting asks beyond the new limit are shed.".into(), 0),
    }
}

fn arrive(kind: &str, name: &str, new: &Config) -> PlanStep {
    let pool = new
        .pools
        .iter()
        .find(|pool| kind == "pool" && pool.name == name);
    let meaning = match pool.map(|pool| (&pool.member, &pool.options)) {
        Some((Member::Exec(_), options)) if options.init > 0 => {
            format!("{} started.", count(options.init, "member"))
        }
        Some((Member::List(list), _)) => format!("{} at once.", count(list.len(), "member")),
        _ if kind == "range" => "Its values can be given out at once.".into(),
        _ if kind == "view" => ONLY_COUNTS.into(),
        _ if kind == "alarm" => ONLY_WATCHES.into(),
        _ if kind == "certificate" => Effect::Connections.sentence().into(),
        _ if kind == "route" => Effect::Requests.sentence().into(),
        _ if kind == "app" => apps::arrival(name, new),
        _ if kind == "upstream" => Effect::Requests.sentence().into(),
        _ => "There at once.".into(),
    };
    PlanStep {
        path: format!("{kind}.{}", quoted_key(name)),
        old: None,
        new: Some("added".into()),
        change: Change::Live,
        meaning,
        shed: 0,
    }
}

fn leave(kind: &str, name: &str, now: Option<&Now>) -> PlanStep {
    let live = now.and_then(|now| now.things.get(&format!("{kind}.{name}")));
    let shed = live.map_or(0, |live| live.waiting);
    let held = live.map_or(0, |live| live.held);
    let meaning = match (kind, live) {
        ("user", _) => "No client can be this user any more.".into(),
        ("group", _) => "The next ask of the group is refused.".into(),
        ("view", _) => ONLY_COUNTS.into(),
        ("alarm", _) => "It ends, if it is on.".into(),
        ("certificate", _) => "New connections to its names get the default, or none.".into(),
        ("route", _) => Effect::Requests.sentence().into(),
        ("app", live) => apps::departure(live.copied()),
        ("upstream", live) => apps::upstream_departure(live.copied()),
        ("range", Some(_)) => {
            format!("It gives out nothing more; {held} held until given back, and then it is gone.")
        }
        (_, Some(_)) => format!("{shed} that wait are refused; {held} held until given back."),
        (_, None) => "Waiting asks are refused; what is held stays until it is given back.".into(),
    };
    PlanStep {
        path: format!("{kind}.{}", quoted_key(name)),
        old: Some("removed".into()),
        new: None,
        change: Change::Live,
        meaning,
        shed,
    }
}

/// Changes of what rows do not show.
fn hidden(old: &Config, new: &Config, steps: &mut Vec<PlanStep>) {
    let mut push = |path: String, meaning: &str| {
        steps.push(PlanStep {
            path,
            old: Some(HIDDEN.into()),
            new: Some(HIDDEN.into()),
            change: Change::Live,
            meaning: meaning.into(),
            shed: 0,
        });
    };
    for user in &new.users {
        let before = old.users.iter().find(|other| other.name == user.name);
        if before.is_some_and(|before| before.password != user.password) {
            push(
                format!("user.{}.password", quoted_key(&user.name)),
                "From the next login on.",
            );
        }
    }
    for app in &new.apps {
        let before = old.apps.iter().find(|other| other.name == app.name);
        if before.is_some_and(|before| before.run.env != app.run.env) {
            push(
                format!("app.{}.env", quoted_key(&app.name)),
                Effect::Replaced.sentence(),
            );
        }
    }
    // What stands for variables of the file may change with what is written.
    let hidden = |member: &Member| match member {
        Member::Exec(exec) => Some((exec.env.clone(), exec.shown.clone(), exec.command.clone())),
        _ => None,
    };
    for pool in &new.pools {
        let before = old.pools.iter().find(|other| other.name == pool.name);
        let before = before.and_then(|before| hidden(&before.member));
        let after = hidden(&pool.member);
        let is_other = before.zip(after).is_some_and(|(before, after)| {
            before.0 != after.0 || (before.1 == after.1 && before.2 != after.2)
        });
        if is_other {
            let meaning = "For members that are started from then on.";
            push(
                format!("pool.{}.member.env", quoted_key(&pool.name)),
                meaning,
            );
        }
    }
}

/// A value without quotes, cut if it is long.
fn shown(value: &str) -> String {
    let bare = value
        .strip_prefix('"')
        .and_then(|rest| rest.strip_suffix('"'));
    let bare = bare.unwrap_or(value);
    if bare.chars().count() <= VALUE_MAX {
        return bare.into();
    }
    let cut: String = bare.chars().take(VALUE_MAX - 1).collect();
    format!("{cut}…")
}
