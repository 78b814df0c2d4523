//! A pool that scripts can drive: takers have letters, members numbers.
//!
//! `take a` joins the line or gets a member; `started 1`, `good 1`, `gone 1`
//! are what becomes of a start, a check and a stop; `release a`, `doubt a`,
//! `fail a` and `detach a` are how a holder ends.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::rc::Rc;
use std::time::Duration;

use rideau_core::pool::{Came, Circuit, Effect, MemberId, Options, Pool, Priority, Retired, Use};
use rideau_core::queue::AskOptions;
use rideau_core::{Instant, Machine, OptionError, Reply, Settings, Tag, Ticket};

use crate::script::{self, Stage, in_millis, instant, millis, options};

/// Run a story on a pool with these options.
pub(crate) fn check(words: &str, story: &str) {
    script::check(&mut Harness::new(words), story);
}

/// Options from words. What comes of time or chance alone is off unless asked
/// for.
pub(crate) fn parse(words: &str) -> Result<Options, OptionError> {
    let mut words = words.to_owned();
    for quiet in [
        "life_max=none",
        "life_jitter=0",
        "idle_age_max=none",
        "check_after=none",
        "queue.kind=never",
    ] {
        let (option, _) = quiet.split_once('=').unwrap();
        let given = words.split(' ').any(|word| word.starts_with(option));
        if !given {
            words = format!("{words} {quiet}");
        }
    }
    Options::parse(Settings::parse(&words)?)
}

/// A pool, and which take holds which member.
pub(crate) struct Harness {
    pub(crate) pool: Pool<Name>,
    /// What making the pool brought about, until the script asks for it.
    first: Option<Vec<Effect<Name>>>,
    tickets: HashMap<String, Ticket>,
    held: HashMap<String, u32>,
    uses: HashMap<u64, u64>,
    slots: HashMap<u64, u32>,
    ids: HashMap<u32, u64>,
    dead: Rc<RefCell<HashSet<String>>>,
}

#[derive(Debug)]
pub(crate) struct Name(String, Rc<RefCell<HashSet<String>>>);

impl Reply for Name {
    fn is_gone(&self) -> bool {
        self.1.borrow().contains(&self.0)
    }
}

impl Harness {
    pub(crate) fn new(words: &str) -> Self {
        let mut effects = Vec::new();
        let pool = Pool::new(parse(words).unwrap(), Instant::START, &mut effects).unwrap();
        Self {
            pool,
            first: Some(effects),
            tickets: HashMap::new(),
            held: HashMap::new(),
            uses: HashMap::new(),
            slots: HashMap::new(),
            ids: HashMap::new(),
            dead: Rc::default(),
        }
    }

    fn take(&mut self, words: &[&str], wait: bool, now: Instant) -> Vec<String> {
        let name = words[0];
        let named = options(words);
        let terms = AskOptions {
            wait,
            deadline: named.get("deadline").map(|word| millis(word)),
            promised: named.contains_key("deadline"),
            tag: named.get("tag").map(|word| Tag(word.parse().unwrap())),
            ..AskOptions::new(named.get("sent").map_or(now, |word| millis(word)))
        };
        let priority = match words.get(1) {
            Some(&"urgent") => Priority::Urgent,
            Some(&"background") => Priority::Background,
            _ => Priority::Normal,
        };
        let reply = Name(name.into(), Rc::clone(&self.dead));
        let mut effects = Vec::new();
        let came = self
            .pool
            .take(&terms, priority, || reply, now, &mut effects);
        let mut outcomes = match came {
            Came::Granted(grant) => vec![self.gets(name, grant.slot)],
            Came::Refused(refusal) => vec![format!("{name} refused {}", refusal.reason.word())],
            Came::Waits(ticket) => {
                self.tickets.insert(name.into(), ticket);
                Vec::new()
            }
        };
        outcomes.extend(self.say(effects));
        outcomes
    }

    fn gets(&mut self, name: &str, slot: u32) -> String {
        let id = self.ids[&slot];
        *self.uses.entry(id).or_default() += 1;
        let before = self.held.insert(name.into(), slot);
        assert!(before.is_none(), "each letter takes once at a time");
        format!("{name} gets {id}")
    }

    /// A holder ends its use.
    fn end(&mut self, words: &[&str], now: Instant, effects: &mut Vec<Effect<Name>>) {
        let slot = self
            .held
            .remove(words[1])
            .expect("a hold that ends is known");
        let uses = self.uses[&self.ids[&slot]];
        let used = match words[0] {
            "release" => Use::Fine,
            "doubt" => Use::Doubtful,
            "fail" => Use::Over(Retired::Failed),
            "decline" => return self.pool.decline(slot, now, effects),
            _ => return self.pool.detach(slot, now, effects),
        };
        let held = Duration::from_millis(1);
        self.pool.release(slot, used, uses, held, now, effects);
    }

    /// Something became of a member.
    fn tell(
        &mut self,
        what: &str,
        id: u64,
        now: Instant,
        effects: &mut Vec<Effect<Name>>,
    ) -> Option<String> {
        let (slot, member, pool) = (self.slots[&id], MemberId(id), &mut self.pool);
        let wanted = match what {
            "started" => pool.started(slot, member, now, effects).is_some(),
            "good" => pool.checked(slot, member, true, now, effects),
            "bad" => pool.checked(slot, member, false, now, effects),
            "lost" => {
                pool.lost(slot, member, now, effects);
                true
            }
            _ => {
                pool.gone(slot, member, now, effects);
                true
            }
        };
        (!wanted).then(|| "unwanted".into())
    }

    fn cancel(&mut self, words: &[&str], now: Instant) -> Vec<String> {
        let mut effects = Vec::new();
        let gone = match options(words).get("tag") {
            Some(tag) => {
                let tag = Tag(tag.parse().unwrap());
                self.pool.cancel_tag(tag, now, &mut effects)
            }
            None => {
                let ticket = self.tickets[words[0]];
                Vec::from_iter(self.pool.cancel(ticket, now, &mut effects))
            }
        };
        let left = |(name, _): &(Name, _)| format!("{} left", name.0);
        let mut outcomes: Vec<_> = gone.iter().map(left).collect();
        outcomes.extend(self.say(effects));
        outcomes
    }

    fn lend(&mut self) -> Vec<String> {
        let mut lent = Vec::new();
        self.pool.lend(&mut lent);
        let name = |slot: &u32| format!("lent {}", self.ids[slot]);
        lent.iter().map(name).collect()
    }

    fn say(&mut self, effects: Vec<Effect<Name>>) -> Vec<String> {
        effects.into_iter().map(|it| self.say_one(it)).collect()
    }

    fn say_one(&mut self, effect: Effect<Name>) -> String {
        let span = |span: Duration| in_millis(span.as_nanos().try_into().unwrap());
        match effect {
            Effect::Grant { reply, grant } => self.gets(&reply.0, grant.slot),
            Effect::Shed { reply, refusal } => {
                let (reason, waited) = (refusal.reason.word(), span(refusal.waited));
                format!("{} shed {reason} {waited}", reply.0)
            }
            Effect::Forget(reply) => format!("{} gone", reply.0),
            Effect::Start { slot, id } => {
                self.slots.insert(id.0, slot);
                self.ids.insert(slot, id.0);
                format!("start {}", id.0)
            }
            Effect::Check { id, .. } => format!("check {}", id.0),
            Effect::Stop { id, why, .. } => format!("stop {} {}", id.0, why.word()),
            Effect::Abandon { id, .. } => format!("abandon {}", id.0),
            Effect::Mark { slot, until } => {
                format!("mark {} {}", self.ids[&slot], instant(until.finite()))
            }
            Effect::Revoke { id, .. } => format!("revoke {}", id.0),
            Effect::Look => "look".into(),
            Effect::Closed => "closed".into(),
        }
    }
}

impl Stage for Harness {
    fn act(&mut self, words: &[&str], now: Instant) -> Vec<String> {
        let mut effects = Vec::new();
        let mut outcomes = Vec::new();
        let named = options(words);
        match words[0] {
            "new" => effects = self.first.take().expect("a pool is made once"),
            "take" => return self.take(&words[1..], true, now),
            "try" => return self.take(&words[1..], false, now),
            "release" | "doubt" | "fail" | "decline" | "detach" => {
                self.end(words, now, &mut effects);
            }
            "started" | "good" | "bad" | "lost" | "gone" => {
                let id = words[1].parse().unwrap();
                outcomes.extend(self.tell(words[0], id, now, &mut effects));
            }
            "dies" => {
                self.dead.borrow_mut().insert(words[1].into());
            }
            "cancel" => return self.cancel(&words[1..], now),
            "wait" => {
                self.pool.advance(now, &mut effects);
                let next = self.pool.deadline();
                assert!(next.is_none_or(|next| next > now), "it would spin");
            }
            "suspend" => self.pool.suspend(),
            "resume" => self.pool.resume(now, &mut effects),
            "replace" => {
                let over = millis(named["over"]).since(Instant::START);
                self.pool.replace(over, now, &mut effects);
            }
            "close" => self.pool.close(millis(named["by"]), now, &mut effects),
            "change" => {
                let changed = parse(&words[1..].join(" "))
                    .and_then(|options| self.pool.reconfigure(options, now, &mut effects));
                if let Err(error) = changed {
                    return vec![format!("{} breaks a rule", error.option)];
                }
            }
            "lend" => return self.lend(),
            "recall" => {
                let slot = self.slots[&words[1].parse().unwrap()];
                self.pool.recall(slot, millis(named["since"]));
            }
            other => panic!("no such input: {other}"),
        }
        outcomes.extend(self.say(effects));
        outcomes
    }

    fn look(&self, name: &str) -> String {
        let counts = self.pool.counts();
        let count = match name {
            "len" => self.pool.len(),
            "size" => counts.size(),
            "idle" => counts.idle,
            "held" => counts.held,
            "starting" => counts.starting,
            "checking" => counts.checking,
            "stopping" => counts.stopping,
            "next" => return instant(self.pool.deadline()),
            "circuit" => {
                return match self.pool.circuit(Instant::START) {
                    Circuit::Closed => "closed".into(),
                    Circuit::Failing { failures, .. } => format!("failing:{failures}"),
                    Circuit::Open { failures, .. } => format!("open:{failures}"),
                };
            }
            other => panic!("nothing to look at: {other}"),
        };
        count.to_string()
    }
}
