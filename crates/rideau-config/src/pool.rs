//! Pools of the file, and the groups they are in.

use std::time::Duration;

use rideau_core::pool::{self, Fate, Reuse};
use rideau_core::{group, queue, valve};

use super::core_kinds::{Queue, Valve};
use super::core_read::check;
use super::exec::Exec;
use super::human::count;
use super::key::{Form, Key, joined};
use super::keyed::Keyed;
use super::kinds::{Answer, Kind, Maybe, Number, OrNone, Positive, Span, Text, Word, spelled};
use super::near::suggest_word;
use super::scope::SharedBy;
use super::section::Section;
use super::shown::Rows;
use super::table::section;

section! {
    /// A pool, what its members are, and what becomes of them.
    #[derive(Clone, PartialEq, Debug)]
    pub struct PoolConfig {
        plain {
            /// The name.
            name: String = String::new();
        }
        flatten {
            /// How it grows, keeps and retires its members.
            options: pool::Options = pool::Options::default();
        }
        /// `TAKE @pg` takes from any pool of the group.
        group: Option<String> = None, Maybe<Text>, Live, usual = "none", sample = r#""pg""#;
        /// `"cluster"`: all nodes of a cluster lend the values of this list together.
        scope: SharedBy = SharedBy::Node, Word, Live;
        /// What members are: `{ exec = […] }` runs a process for each, `{ list = […] }` lends
        /// these texts, `"offered"` lends what connections bring with `POOL.OFFER`.
        member: Member = Member::Offered, Members, Live, above = ABOUT_MEMBERS,
            sample = concat!(
                r#"{ exec = ["pgproxy", "--to", "db1:5432", "--listen", "{socket}"], "#,
                r#"ready = "socket", dir = "/", env = { PGUSER = "orders" }, "#,
                r#"stop_signal = "TERM", new_privileges = false }"#,
            );
        /// What becomes of a member whose holder vanished without `QUIT`.
        on_crash: Fate = Fate::Replace, Word, Live;
        /// What becomes of a member whose holder sent `QUIT`.
        on_quit: Fate = Fate::Reuse, Word, Live;
        /// A hold that is longer is reported as a leak.
        leak_after: Option<Duration> = None, OrNone<Positive>, Live, sample = r#""60s""#;
    }
}

section! { for pool::Options {
    /// Started with the pool, and kept.
    init => (init): usize, Number, Live, sample = "2";
    /// The most members. A list has all of its members, and 1000 may be offered.
    max => (max): usize, Number, Live, bounds = (1, 262_144);
    /// Kept idle ahead of need.
    idle_min => (idle_min): usize, Number, Live;
    /// A take that leaves this many idle or fewer starts more ahead of need.
    grow_at => (grow_at): Option<usize>, Maybe<Number>, Live, usual = "none",
        sample = "1";
    /// Idle ones above `init` are stopped; `"none"` to keep them, as lists and offered
    /// members are, also by the next and by `check_after`.
    idle_age_max => (idle_age_max): Option<Duration>, OrNone<Positive>, Live;
    /// A member is replaced after this; `"none"` for never.
    life_max => (life_max): Option<Duration>, OrNone<Positive>, Live;
    /// Each life is shorter or longer by up to this.
    life_jitter => (life_jitter): Duration, Span, Live;
    /// A member is replaced after this many takes.
    uses_max => (uses_max): Option<u64>, Maybe<Number>, Live, bounds = (1, u64::MAX),
        usual = "none", sample = "10_000";
    /// The last released first, or all in turn.
    reuse => (reuse): Reuse, Word, Live;
    /// How many start at a time.
    starts_max => (starts_max): usize, Number, Live, bounds = (1, u64::MAX);
    /// The longest time for a start or a check.
    start_timeout => (start_timeout): Duration, Positive, Live;
    /// Pause after a start that failed, doubled with each.
    backoff_first => (backoff.first): Duration, Positive, Live;
    /// Never longer than this.
    backoff_max => (backoff.max): Duration, Span, Live;
    /// After this many failures in a row, one start at a time is tried.
    failures => (backoff.failures): u32, Number, Live, bounds = (1, u32::MAX as u64);
    /// Refuse takes while no member can be started.
    fail_fast => (fail_fast): bool, Answer, Live;
    /// After this long a stopping member is killed.
    stop_timeout => (stop_timeout): Duration, Positive, Live;
    /// Idle for longer: checked before it is taken. `"0s"` always, `"none"` never.
    check_after => (check_after): Option<Duration>, OrNone<Span>, Live;
    /// What becomes of a member whose use was cancelled.
    on_cancel => (on_cancel): Fate, Word, Live;
    /// What becomes of a member whose use ended with an error.
    on_error => (on_error): Fate, Word, Live;
    /// The seed of the random numbers.
    seed => (seed): u64, Number, Live;
    /// Where takes wait: a table, or a kind alone.
    queue => (queue): queue::Options, Queue, Live, above = ABOUT_QUEUES,
        usual = r#"{ kind = "paced" }"#,
        sample = r#"{ kind = "timeout", timeout = "200ms", max = 500 }"#;
    /// Decides how many members there may be, up to `max`.
    valve => (valve): Option<valve::Options>, Maybe<Valve>, Live, usual = "none",
        sample = r#"{ kind = "codel", target = "100ms", interval = "1s", min = 1, max = 10 }"#;
} }

/// The comment about members in the sample file.
const ABOUT_MEMBERS: &str = "\
A holder of a process has its address, or its number if it has none. In the words of `exec` and \
the values of `env`, {socket} is a path and {port} a port of its own, {id} its number here and \
{name} the pool's name. `ready` says when it may be lent:
  \"socket\"     it listens at {socket}; the default if that is named
  \"port\"       it listens at {port}; the default if that is named and no {socket}
  \"notify\"     it has sent READY=1 to NOTIFY_SOCKET, as services of systemd do
  { line = … } it has written a line with this text in it; an {address} in the text is its own
  \"started\"    it runs; the default for all others
It has no variables but these, PATH, HOME, LANG and TZ. It is stopped, with all of its process \
group, by `stop_signal`, and killed after `stop_timeout`. When its program is changed here, idle \
processes are replaced at once and held ones when they are returned. It gets no more rights than \
its user has, by sudo or other programs with a setuid bit, unless `new_privileges` is true.";

/// The comment about queues in the sample file.
const ABOUT_QUEUES: &str = "\
Which takes wait. Kinds, each with its own numbers:
  paced          the default: an ask that names its wait (WAIT) gets it, or at most `wait_cap`
                 (none); the others are shed by age under overload. No other number
  never          no ask is shed
  timeout        takes that have waited `timeout` (5s) are shed
  codel          controlled delay: `target` (100ms), `interval` (1s)
  bounded-codel  the same and none over `wait_max` (2 * target) under overload
  min-delay, standing: `target`, `interval`";

spelled! { Fate { Reuse "reuse", Check "check", Replace "replace" } }
spelled! { Reuse { Lifo "lifo", Fifo "fifo" } }
spelled! { group::Method { Random "random", BestOfTwo "best-of-two" } }

/// The kind of a pool's members.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Member {
    /// These texts: licences, addresses, anything that needs no process.
    List(Vec<String>),
    /// A process for each.
    Exec(Exec),
    /// Whatever connections bring along.
    Offered,
}

section! {
    /// Pools or brokers by a common name.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub struct GroupConfig {
        plain {
            /// The name, without `@`.
            name: String = String::new();
            /// Its pools, in the order of the file.
            pools: Vec<String> = Vec::new();
            /// Its brokers, in the order of the file.
            brokers: Vec<String> = Vec::new();
        }
        /// Which pool or broker is asked first.
        pick: group::Method = group::Method::default(), Word, Live;
    }
}

/// How many members may be offered to a pool without `max`.
const OFFERED_MAX: usize = 1000;

/// The kind of the key `member`.
struct Members;

impl Member {
    /// The keys of its table.
    pub(super) const KEYS: &'static [Key] = joined!(
        &[Key {
            name: "list",
            form: Form::List(&Form::Text),
            help: &["These texts: licences, addresses, anything that needs no process."],
            ..Key::BARE
        }],
        Exec::KEYS,
    );
}

impl Kind<Member> for Members {
    const FORM: Form = Form::Any(&[
        Form::Words(&["offered"]),
        Form::Table(Member::KEYS, || Exec::default().rows()),
    ]);

    fn read(section: &Section<'_>, key: &Key) -> Option<Member> {
        Member::read(section, key)
    }

    fn show(value: &Member, key: &Key, rows: &mut Rows) {
        match value {
            Member::Offered => rows.text(key.name, "offered"),
            Member::List(list) => {
                rows.below(key.name, |rows| rows.list("list", list.iter().cloned()));
            }
            Member::Exec(exec) => rows.below(key.name, |rows| exec.show_keys(rows)),
        }
    }
}

impl PoolConfig {
    /// Processes of their own are not started for a pool like this: its
    /// members are offered.
    pub fn offered(name: &str) -> Self {
        let options = usual_options(Some(&Member::Offered));
        Self {
            name: name.into(),
            options,
            ..Self::default()
        }
    }

    /// None if it is not known what its members are; that is noted.
    pub(super) fn read(name: &str, section: &Section<'_>) -> Option<Self> {
        let member = match section.has("member") {
            true => Members::read(section, Self::key("member")),
            false => Some(Member::Offered),
        };
        let usual = usual_options(member.as_ref());
        let mut pool = Self {
            options: usual.clone(),
            ..Self::default()
        };
        pool.read_keys(section);
        pool.name = name.into();
        check(section, &mut pool.options, &usual, pool::Options::validate);
        pool.member = member?;
        pool.check_members(section);
        Some(pool)
    }

    /// A list has all of its members, and those that are offered start
    /// themselves.
    fn check_members(&self, section: &Section<'_>) {
        match &self.member {
            Member::List(list) if self.options.max > list.len() => {
                let members = count(list.len(), "member");
                let message = format!("`max` is over the {members} of the list");
                let hint = "lower it or remove it";
                section.notes.error(section.at("max"), message, hint);
            }
            Member::Offered if self.options.init > 0 => {
                let message = "`init` starts members, but clients offer the members of this pool";
                let hint = "remove it, or give `member`";
                section.notes.error(section.at("init"), message, hint);
            }
            _ => (),
        }
    }
}

/// The default options of a pool with such members.
fn usual_options(member: Option<&Member>) -> pool::Options {
    let mut options = pool::Options::default();
    options.max = match member {
        Some(Member::List(list)) => list.len(),
        Some(Member::Offered) => OFFERED_MAX,
        _ => return options,
    };
    // What we do not start does not become better by being started anew.
    options.idle_age_max = None;
    options.life_max = None;
    options.check_after = None;
    options
}

impl Member {
    fn read(section: &Section<'_>, key: &Key) -> Option<Self> {
        let entry = section.entry(key.name)?;
        if entry.item.is_str() {
            return section.made(key.name, |text| match text {
                "offered" => Ok(Self::Offered),
                _ => Err((
                    format!("`member` cannot be {text:?}"),
                    suggest_word(text, &["offered"]),
                )),
            });
        }
        let part = section.part(key)?;
        match (part.has("list"), part.has("exec")) {
            (true, false) => Self::read_list(&part),
            (false, true) => Exec::read(&part).map(Self::Exec),
            (true, true) => {
                let message = "`member` has a list and a program";
                section
                    .notes
                    .error(entry.at(), message, "keep `list` or `exec`");
                None
            }
            (false, false) => {
                let hint = "write { list = […] }, { exec = […] } or \"offered\"";
                let message = "`member` does not say what members are";
                section.notes.error(entry.at(), message, hint);
                None
            }
        }
    }

    fn read_list(part: &Section<'_>) -> Option<Self> {
        for key in Exec::KEYS.iter().map(|key| key.name) {
            if let Some(entry) = part.entry(key) {
                let message = format!("`{key}` does not apply to a list");
                let hint = "remove it; it belongs to `exec`";
                part.notes.error(entry.key_at.clone(), message, hint);
            }
        }
        let list = part.list("list")?;
        if list.is_empty() {
            let hint = "name at least one";
            part.notes.error(part.at("list"), "`list` is empty", hint);
            return None;
        }
        for (place, (member, at)) in list.iter().enumerate() {
            if list[..place].iter().any(|(other, _)| other == member) {
                let message = format!("the member {member:?} is there twice");
                let hint = "keep one: two holders would have the same thing";
                part.notes.error(at.clone(), message, hint);
            }
        }
        Some(Self::List(
            list.into_iter().map(|(member, _)| member).collect(),
        ))
    }
}

impl GroupConfig {
    fn new(name: &str) -> Self {
        Self {
            name: name.into(),
            ..Self::default()
        }
    }

    /// The group of this name, which is there by being named.
    pub(super) fn of<'a>(groups: &'a mut Vec<Self>, name: &str) -> &'a mut Self {
        let at = groups.iter().position(|group| group.name == name);
        let at = at.unwrap_or_else(|| {
            groups.push(Self::new(name));
            groups.len() - 1
        });
        &mut groups[at]
    }

    pub(super) fn read(name: &str, section: &Section<'_>) -> Self {
        let mut group = Self::new(name);
        group.read_keys(section);
        group
    }
}
