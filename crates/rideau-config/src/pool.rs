//! Pools of the file, and the groups they are in.

use std::time::Duration;

use rideau_core::{group, pool};

use super::exec::Exec;
use super::human::count;
use super::keys;
use super::options::Pairs;
use super::section::Section;

/// A pool, what its members are, and what becomes of them.
#[derive(Clone, PartialEq, Debug)]
pub struct PoolConfig {
    /// The name.
    pub name: String,
    /// The group it is in.
    pub group: Option<String>,
    /// What its members are.
    pub member: Member,
    /// What becomes of a member whose holder vanished without a word.
    pub on_crash: pool::Fate,
    /// What becomes of a member whose holder went properly.
    pub on_quit: pool::Fate,
    /// A holder that keeps a member for longer is reported.
    pub leak_after: Option<Duration>,
    /// How it grows, keeps and retires its members.
    pub options: pool::Options,
}

/// What the members of a pool are.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Member {
    /// These texts: licences, addresses, whatever needs no process.
    List(Vec<String>),
    /// A process for each.
    Exec(Exec),
    /// Whatever connections bring along.
    Offered,
}

/// Pools or brokers by a common name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GroupConfig {
    /// The name, without `@`.
    pub name: String,
    /// Which of them is asked first.
    pub pick: group::Method,
    /// Its pools, in the order of the file.
    pub pools: Vec<String>,
    /// Its brokers, in the order of the file.
    pub brokers: Vec<String>,
}

/// Keys of a pool that are not the core's.
const OURS: &[&str] = &[
    "like",
    "group",
    "member",
    "on_crash",
    "on_quit",
    "leak_after",
];
const FATES: &[&str] = &["reuse", "check", "replace"];
const PICKS: &[&str] = &["random", "best-of-two"];
/// As many members may be offered to a pool that does not say.
const OFFERED_MAX: usize = 1000;

impl PoolConfig {
    /// Processes of their own are not started for a pool like this: its
    /// members are offered.
    pub fn offered(name: &str) -> Self {
        let mut options = pool::Options {
            max: OFFERED_MAX,
            ..pool::Options::default()
        };
        options.idle_age_max = None;
        options.life_max = None;
        options.check_after = None;
        Self {
            name: name.into(),
            group: None,
            member: Member::Offered,
            on_crash: pool::Fate::Replace,
            on_quit: pool::Fate::Reuse,
            leak_after: None,
            options,
        }
    }

    pub(super) fn read(name: &str, section: &Section<'_>) -> Option<Self> {
        let member = Member::read(section);
        let options = options(section, member.as_ref());
        let fates = [pool::Fate::Reuse, pool::Fate::Check, pool::Fate::Replace];
        let fate = |key, default| {
            let word = section.word(key, FATES);
            word.map_or(default, |at| fates[at])
        };
        Some(Self {
            name: name.into(),
            group: section.text("group"),
            on_crash: fate("on_crash", pool::Fate::Replace),
            on_quit: fate("on_quit", pool::Fate::Reuse),
            leak_after: section.span_or_none("leak_after").flatten(),
            member: member?,
            options: options?,
        })
    }
}

impl Member {
    fn read(section: &Section<'_>) -> Option<Self> {
        let Some(entry) = section.entry("member") else {
            return Some(Self::Offered);
        };
        if entry.item.is_str() {
            section.word("member", &["offered"])?;
            return Some(Self::Offered);
        }
        let part = section.part("member", "`member`", keys::MEMBER)?;
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
        for key in ["ready", "dir", "env", "stop_signal", "new_privileges"] {
            if let Some(entry) = part.entry(key) {
                let message = format!("`{key}` means nothing for a list");
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
    pub(super) fn new(name: &str) -> Self {
        Self {
            name: name.into(),
            pick: group::Method::default(),
            pools: Vec::new(),
            brokers: Vec::new(),
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
        let picks = [group::Method::Random, group::Method::BestOfTwo];
        let pick = section.word("pick", PICKS);
        Self {
            pick: pick.map_or_else(group::Method::default, |at| picks[at]),
            ..Self::new(name)
        }
    }
}

/// The name of a fate, as it is written.
pub(super) const fn fate_word(fate: pool::Fate) -> &'static str {
    FATES[fate as usize]
}

/// The name of a way to pick, as it is written.
pub(super) const fn pick_word(pick: group::Method) -> &'static str {
    match pick {
        group::Method::Random => PICKS[0],
        group::Method::BestOfTwo => PICKS[1],
    }
}

fn options(section: &Section<'_>, member: Option<&Member>) -> Option<pool::Options> {
    let mut pairs = Pairs::of(section, "pool", keys::POOL, OURS);
    let at = section.at("member");
    let max = match member {
        Some(Member::List(list)) => Some(list.len()),
        Some(Member::Offered) => Some(OFFERED_MAX),
        _ => None,
    };
    if let Some(max) = max {
        pairs.give("max", max.to_string(), &at);
        // What we do not start does not become better by being started anew.
        for key in ["idle_age_max", "life_max", "check_after"] {
            pairs.give(key, "none".into(), &at);
        }
    }
    let options = pairs.read(pool::Options::parse)?;
    match member {
        Some(Member::List(list)) if options.max > list.len() => {
            let members = count(list.len(), "member");
            let message = format!("`max` is over the {members} of the list");
            let hint = "lower it or remove it";
            section.notes.error(section.at("max"), message, hint);
        }
        Some(Member::Offered) if options.init > 0 => {
            let message = "`init` wants members started, and this pool is offered its members";
            let hint = "remove it, or give `member`";
            section.notes.error(section.at("init"), message, hint);
        }
        _ => (),
    }
    Some(options)
}
