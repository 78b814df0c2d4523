//! Asks that wait for units of a key: when each is served, and which may pass
//! another.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::rc::Rc;
use std::time::Duration;

use rideau_core::locks::{Claim, Count, Effect, Full, Grant, LINES_MAX, Lines};
use rideau_core::queue::{self, AskOptions};
use rideau_core::{Flow, Instant, Machine, OptionError, Reply, Settings, Tag, Ticket};

use crate::script::{self, Stage, in_millis, instant, millis, options};

#[test]
fn units_are_granted_at_once_while_they_fit_and_then_in_order() {
    check(
        "kind=never",
        "
        0 ask a 1/2  -> a granted 1 after 0
        0 ask b 1/2  -> b granted 2 after 0   | held 2 marked no
        1 ask c 1/2                           | len 1 marked yes
        2 ask d 1/2                           | len 2 lines 1
        3 release a  -> c granted 2 after 2   | len 1 marked yes
        5 release c  -> d granted 2 after 3   | len 0 marked no
        6 release b                           | held 1
        7 release d                           | held 0
        ",
    );
}

#[test]
fn an_ask_that_does_not_want_to_wait_is_refused_and_leaves_no_mark() {
    check(
        "kind=never",
        "
        0 ask a 1/1  -> a granted 1 after 0
        1 try b 1/1  -> b shed busy 0         | len 0 marked no
        2 release a
        3 try c 1/1  -> c granted 1 after 0
        ",
    );
}

#[test]
fn many_units_are_not_starved_by_single_ones_of_the_same_capacity() {
    check(
        "kind=never",
        "
        0 ask a 2/3  -> a granted 2 after 0
        1 ask b 3/3                           | len 1
        2 ask c 1/3                           | len 2 lines 2
        3 try d 1/3  -> d shed busy 0
        4 release a  -> b granted 3 after 3   | len 1
        5 ask e 3/3                           | len 2
        6 release b  -> c granted 1 after 4
        7 release c  -> e granted 3 after 2   | marked no
        ",
    );
}

#[test]
fn a_take_that_never_waits_is_told_exactly_what_is_held_while_others_wait() {
    check(
        "kind=never",
        "
        0 ask a 2/3  -> a granted 2 after 0
        1 ask b 3/3                           | len 1
        2 take 1/3   -> took 3
        3 take 1/3   -> full 3
        ",
    );
}

#[test]
fn a_line_that_does_not_fit_is_passed_by_a_larger_capacity_only() {
    check(
        "kind=never",
        "
         0 ask a 2/2 -> a granted 2 after 0
         1 ask b 2/2                           | len 1
         2 ask c 1/2                           | len 2
         3 ask d 1/4 -> d granted 3 after 0
         4 take 1/4  -> took 4
         5 ask e 1/4                           | len 3 lines 3
         6 ask f 2/9 -> f granted 6 after 0
         7 release f
         8 release d -> e granted 4 after 3
         9 release a                           | held 2 len 2
        10 release e                           | held 1 len 2
        11 give 1    -> b granted 2 after 10   | len 1
        12 release b -> c granted 1 after 10   | marked no
        ",
    );
}

#[test]
fn among_lines_the_one_whose_oldest_came_first_is_next() {
    check(
        "kind=never",
        "
         0 ask a 4/4 -> a granted 4 after 0
         1 ask b 1/4
         2 ask c 2/4
         3 ask d 1/4
         4 ask e 1/3
         9 release a -> b granted 1 after 8, c granted 3 after 7, d granted 4 after 6
        10 release d                           | held 3 len 1
        11 release c -> e granted 2 after 7
        ",
    );
}

#[test]
fn an_older_stamp_goes_first_though_it_came_later() {
    check(
        "kind=never",
        "
        0 ask a 2/2   -> a granted 2 after 0
        5 ask b 1/2
        6 ask c@3 2/2
        7 release a   -> c granted 2 after 4
        8 release c   -> b granted 1 after 3
        8 ask d 2/2
        9 ask e@7 1/2 -> e granted 2 after 2   | len 1
        ",
    );
}

#[test]
fn of_lines_that_began_in_the_same_instant_the_first_is_served_first() {
    check(
        "kind=never",
        "
        0 ask a 2/2 -> a granted 2 after 0
        0 ask b 2/2
        0 ask c 1/2
        0 release a -> b granted 2 after 0
        0 release b -> c granted 1 after 0
        0 release c
        0 ask d 2/2 -> d granted 2 after 0
        0 ask e 1/2
        0 ask f 2/2
        0 release d -> e granted 1 after 0     | len 1
        ",
    );
}

#[test]
fn a_release_between_the_look_and_the_mark_is_seen_by_the_second_look() {
    check(
        "kind=never",
        "
        0 ask a 1/1 -> a granted 1 after 0
        1 slip a before_mark
        1 ask b 1/1 -> b granted 1 after 0     | len 0 marked no notes 0
        2 slip b after_mark
        2 ask c 1/1 -> c granted 1 after 0     | len 0 marked no notes 1
        3 note                                 | held 1
        4 ask d 1/1                            | len 1 marked yes
        5 slip c at_once                       | held 0 notes 1 len 1
        6 note      -> d granted 1 after 2     | marked no
        ",
    );
}

/// No ask may wait here, so the second look is the only one.
#[test]
fn the_second_look_comes_before_any_place_in_line() {
    check(
        "kind=never max=0",
        "
        0 ask a 1/1 -> a granted 1 after 0
        1 slip a before_mark
        1 ask b 1/1 -> b granted 1 after 0     | marked no
        2 ask c 1/1 -> c shed full 0           | marked no
        ",
    );
}

#[test]
fn what_comes_back_after_a_look_is_not_for_an_ask_that_did_not_fit_at_it() {
    check(
        "kind=never",
        "
        0 ask a 3/3 -> a granted 3 after 0
        0 take 1/4  -> took 4
        1 ask b 1/2                            | len 1
        2 slip a after_look
        2 ask c 1/4 -> b granted 2 after 1, c granted 3 after 0 | notes 1
        3 note                                 | held 3 marked no
        ",
    );
}

/// It came back for a waiting ask, and its release is still on its way.
#[test]
fn units_back_but_not_told_yet_go_to_the_next_waiter_and_not_to_a_new_ask() {
    check(
        "kind=never",
        "
        0 ask a 1/1   -> a granted 1 after 0
        1 ask b 1/1
        2 slip a at_once
        3 try c 1/1   -> b granted 1 after 2, c shed busy 0
        4 note                                 | marked no
        5 ask d 1/1
        6 slip b at_once
        7 take 1/1    -> full 1, d granted 1 after 2
        8 ask e 1/1
        9 slip d at_once
       10 ask f 1/1   -> e granted 1 after 2   | len 1
        ",
    );
}

#[test]
fn an_ask_that_can_never_fit_is_refused_and_blocks_no_other() {
    check(
        "kind=never",
        "
        0 ask a 1/0  -> a shed excess 0
        0 ask b 0/3  -> b shed excess 0
        0 ask c 4/3  -> c shed excess 0        | len 0 marked no
        0 take 1/0   -> full 0
        0 take 0/3   -> full 0
        1 ask d 1/3  -> d granted 1 after 0
        2 ask e 3/3
        3 ask f 9/3  -> f shed excess 0        | len 1
        ",
    );
}

#[test]
fn the_largest_numbers_do_not_overflow() {
    check(
        "kind=never",
        "
        0 take 4294967295/18446744073709551615  -> took 4294967295
        1 ask a 1/18446744073709551615          -> a granted 4294967296 after 0
        2 ask b 4294967295/4294967295                        | len 1
        3 give 4294967295                                    | held 1
        4 release a -> b granted 4294967295 after 2
        ",
    );
}

#[test]
fn a_cancelled_ask_blocks_no_other_any_more() {
    check(
        "kind=never",
        "
        0 ask a 1/3     -> a granted 1 after 0
        1 ask b 3/3
        2 ask c 1/3                                          | len 2
        3 cancel b      -> b left, c granted 2 after 1       | len 0 marked no
        4 cancel b      -> none
        5 ask d 3/3 tag=7
        6 ask e 2/2 tag=7
        7 ask f 1/3                                          | len 3
        8 cancel tag=7  -> d left, e left, f granted 3 after 1
        9 cancel a      -> none                              | held 3
        ",
    );
}

#[test]
fn an_ask_shed_at_its_time_limit_blocks_no_other_any_more() {
    check(
        "kind=timeout timeout=10ms",
        "
         0 ask a 1/3            -> a granted 1 after 0
         1 ask b 3/3                                         | next 11
         5 ask c 1/3                                         | next 11
        11 wait                 -> b shed timeout 10, c granted 2 after 6 | next never
        12 ask d 3/3 deadline=15                             | next 15
        13 ask e 1/3
        15 wait                 -> d shed deadline 3, e granted 3 after 2 | marked no
        16 ask f 1/3 deadline=16 -> f shed deadline 0        | marked no
        ",
    );
}

#[test]
fn an_ask_that_makes_room_for_a_new_one_gives_its_turn_away() {
    check(
        "kind=never max=2 overflow=oldest",
        "
        0 ask a 1/3 -> a granted 1 after 0
        1 ask b 3/3
        2 ask c 1/3
        3 ask d 3/3
        4 ask e 3/3 -> b shed full 3, c granted 2 after 2    | len 2
        ",
    );
}

#[test]
fn a_line_that_stays_slow_is_thinned_out_alone_and_lets_others_through() {
    check(
        "kind=codel target=10ms interval=100ms",
        "
          0 ask a 1/3 -> a granted 1 after 0
          0 ask b 3/3                                        | next 10
         10 wait                                             | next 110
        101 ask c 1/3                                        | len 2 next 110
        102 ask d 3/3                                        | len 3 next 110
        110 wait      -> b shed codel 110, c granted 2 after 9 | len 1
        111 release c                                        | len 1
        112 release a -> d granted 3 after 10                | marked no
        ",
    );
}

#[test]
fn the_gone_get_no_units() {
    check(
        "kind=never",
        "
        0 dies x
        0 ask x 1/2 -> x gone                                | held 0 marked no
        1 ask a 2/2 -> a granted 2 after 0
        2 ask b 1/2
        2 ask c 1/2
        3 ask d 2/2
        4 dies b
        4 dies d
        5 release a -> b gone, c granted 1 after 3           | held 1 len 1
        6 release c -> d gone                                | held 0 len 0 marked no
        ",
    );
}

#[test]
fn flows_take_turns_within_a_line() {
    check(
        "kind=never fair_by=flow",
        "
        0 ask a 1/1        -> a granted 1 after 0
        1 ask b 1/1 flow=1
        2 ask c 1/1 flow=1
        3 ask d 1/1 flow=2
        4 release a        -> b granted 1 after 3
        5 release b        -> d granted 1 after 2
        6 release d        -> c granted 1 after 4
        ",
    );
}

#[test]
fn the_last_ask_is_served_first_where_the_queue_says_so() {
    check(
        "kind=never order=lifo",
        "
        0 ask a 1/1 -> a granted 1 after 0
        1 ask b 1/1
        2 ask c 1/1
        3 release a -> c granted 1 after 1
        4 release c -> b granted 1 after 3
        ",
    );
}

#[test]
fn closing_answers_every_ask_and_allows_no_more() {
    check(
        "kind=never",
        "
        0 ask a 1/1 -> a granted 1 after 0
        1 ask b 1/1
        2 ask c 2/2
        3 ask d 1/1
        4 close     -> b shed closed 3, d shed closed 1, c shed closed 2 | len 0 marked no
        5 ask e 9/9 -> e shed closed 0
        6 release a                                          | held 0 next never
        ",
    );
}

#[test]
fn changed_options_keep_all_places() {
    check(
        "kind=never",
        "
         0 ask a 2/2 -> a granted 2 after 0
         1 ask b 2/2
         2 ask c 1/2
         3 ask d 1/2
         4 change kind=timeout timeout=50ms                  | next 51
         5 change kind=timeout min=2 max=1 -> min breaks a rule
         6 change kind=timeout timeout=50ms order=lifo max=1 -> d shed full 3
         7 release a -> b granted 2 after 6
        52 wait      -> c shed timeout 50                    | marked no
        53 ask e 1/2                                         | next 103
        ",
    );
}

#[test]
fn there_are_no_more_lines_than_may_be() {
    let mut stage = Harness::new("kind=never");
    let now = millis("0");
    stage.act(&["take", "1/1"], now);
    for n in 1..=LINES_MAX {
        let claim = format!("{n}/{n}");
        assert!(stage.act(&["ask", &claim, &claim], now).is_empty());
    }
    let over = format!("1/{LINES_MAX}");
    let refused = ["x shed full 0".to_owned()];
    assert_eq!(stage.act(&["ask", "x", &over], now), refused);
    assert_eq!(stage.look("lines"), LINES_MAX.to_string());
    assert!(stage.act(&["ask", "y", "1/1"], now).is_empty());

    // An ask that leaves a line gives its place to another claim.
    stage.act(&["cancel", "9/9"], now);
    assert!(stage.act(&["ask", "z", &over], now).is_empty());
    assert_eq!(stage.look("len"), (LINES_MAX + 1).to_string());
    let left = stage.act(&["cancel", "9/9"], now);
    assert_eq!(left, ["none"], "an old ticket does not reach the new line");
    assert_eq!(stage.act(&["cancel", "z"], now), ["z left"]);
    let stats = stage.lines.stats(now);
    assert_eq!((stats.asks.came, stats.asks.cancelled), (67, 2));
    assert_eq!(stats.asks.shed_total(), 1);
}

#[test]
fn it_says_in_words_why_asks_wait_and_were_shed() {
    let mut stage = Harness::new("kind=never max=1");
    assert_eq!(
        stage.lines.explain(millis("0")),
        "No ask waits. 0 units are held. No ask has been refused or shed."
    );
    for (at, words) in [
        ("0", "ask a 2/2"),
        ("1", "ask b 2/2"),
        ("2", "ask c 2/2"),
        ("3", "ask d 3/2"),
        ("3", "ask e 1/2"),
    ] {
        stage.act(&words.split(' ').collect::<Vec<_>>(), millis(at));
    }
    let text = stage.lines.explain(millis("11"));
    for words in [
        "2 asks wait in 2 queues, and 2 units are held. The oldest has waited 10.0ms for 2 of 2;",
        "Asks for 2 of 2:\nOf the last 1 asks that got nothing:\n- 1 (full): too many asks are",
        "Asks that joined no queue:\nOf the last 1 asks that got nothing:\n- 1 (excess): it asked",
        "- The units are held: raise the capacity",
    ] {
        assert!(text.contains(words), "{words:?} in {text}");
    }
    let stats = stage.lines.stats(millis("11"));
    assert_eq!((stats.len, stats.lines, stats.held), (2, 2, 2));
    assert_eq!(stats.oldest_waited, Duration::from_millis(10));
    stage.act(&["close"], millis("12"));
    assert!(stage.lines.explain(millis("12")).contains("closing"));
}

#[test]
fn fences_grow_and_replies_can_be_changed_while_they_wait() {
    let mut stage = Harness::new("kind=never");
    let now = millis("0");
    for words in ["ask a 1/1", "ask b 1/1", "ask c 1/1"] {
        stage.act(&words.split(' ').collect::<Vec<_>>(), now);
    }
    let (a, b) = (stage.tickets["a"], stage.tickets["b"]);
    assert!(stage.lines.reply_mut(a).is_none());
    stage.lines.reply_mut(b).unwrap().0 = "bert".into();
    assert_eq!(
        stage.act(&["release", "a"], now),
        ["bert granted 1 after 0"]
    );
    assert!(stage.lines.reply_mut(b).is_none());
    assert_eq!(
        stage.act(&["release", "bert"], now),
        ["c granted 1 after 0"]
    );
    assert_eq!(stage.fences, [1, 2, 3]);
}

fn check(options: &str, script: &str) {
    script::check(&mut Harness::new(options), script);
}

/// The lines of a key, its count, and which asks wait, hold or are dead.
struct Harness {
    lines: Lines<Tap, Name>,
    word: Rc<RefCell<Word>>,
    tickets: HashMap<String, Ticket>,
    holds: HashMap<String, u32>,
    fences: Vec<u64>,
    dead: Rc<RefCell<HashSet<String>>>,
}

/// What is one atomic word in earnest, and the changes that are about to come.
#[derive(Default)]
struct Word {
    held: u64,
    fence: u64,
    marked: bool,
    /// Units that come back just before_mark is set, and just after.
    before_mark: u64,
    after_mark: u64,
    /// Units that come back right after a look.
    after_look: u64,
    /// Releases that saw the mark and have not been told yet.
    notes: u32,
}

struct Tap(Rc<RefCell<Word>>);

struct Name(String, Rc<RefCell<HashSet<String>>>);

impl Reply for Name {
    fn is_gone(&self) -> bool {
        self.1.borrow().contains(&self.0)
    }
}

impl Word {
    fn give_back(&mut self, units: u64) {
        self.held -= units;
        self.notes += u32::from(self.marked && units > 0);
    }
}

impl Count for Tap {
    type Units = ();

    fn held(&self) -> u64 {
        let mut word = self.0.borrow_mut();
        let (held, after) = (word.held, std::mem::take(&mut word.after_look));
        word.give_back(after);
        held
    }

    fn take(&mut self, claim: Claim) -> Result<(Grant, ()), Full> {
        let mut word = self.0.borrow_mut();
        word.held = claim.ordinal(word.held)?;
        word.fence += 1;
        let grant = Grant {
            units: claim.units,
            ordinal: word.held,
            fence: word.fence,
        };
        Ok((grant, ()))
    }

    fn mark_waiting(&mut self, waiting: bool) {
        let mut word = self.0.borrow_mut();
        assert_ne!(word.marked, waiting, "it is told only what is new");
        let before = std::mem::take(&mut word.before_mark);
        word.give_back(before);
        word.marked = waiting;
        let after = std::mem::take(&mut word.after_mark);
        word.give_back(after);
    }
}

impl Harness {
    fn new(options: &str) -> Self {
        let word = Rc::new(RefCell::new(Word::default()));
        let tap = Tap(Rc::clone(&word));
        Self {
            lines: Lines::new(&parse(options).unwrap(), tap, Instant::START).unwrap(),
            word,
            tickets: HashMap::new(),
            holds: HashMap::new(),
            fences: Vec::new(),
            dead: Rc::default(),
        }
    }

    fn ask(&mut self, words: &[&str], wait: bool, now: Instant) -> Vec<String> {
        let (name, sent) = match words[0].split_once('@') {
            Some((name, sent)) => (name, millis(sent)),
            None => (words[0], now),
        };
        let named = options(words);
        let number = |word: &&str| word.parse().unwrap();
        let terms = AskOptions {
            wait,
            deadline: named.get("deadline").map(|word| millis(word)),
            promised: named.contains_key("deadline"),
            tag: named.get("tag").map(|word| Tag(number(word))),
            flow: Flow(named.get("flow").map_or(0, number)),
            ..AskOptions::new(sent)
        };
        let (claim, reply) = (claim(words[1]), Name(name.into(), Rc::clone(&self.dead)));
        let mut effects = Vec::new();
        let ticket = self.lines.ask(claim, &terms, reply, now, &mut effects);
        self.tickets.insert(name.into(), ticket);
        self.say(effects)
    }

    fn take(&mut self, claim: Claim, now: Instant) -> Vec<String> {
        let mut effects = Vec::new();
        let taken = match self.lines.take(claim, now, &mut effects) {
            Ok((grant, ())) => format!("took {}", grant.ordinal),
            Err(full) => format!("full {}", full.held),
        };
        let mut outcomes = vec![taken];
        outcomes.extend(self.say(effects));
        outcomes
    }

    /// As a guard that is dropped: it comes to the lines if it saw the mark.
    fn give(&mut self, units: u64, now: Instant) -> Vec<String> {
        self.word.borrow_mut().give_back(units);
        self.tell_notes(now)
    }

    fn tell_notes(&mut self, now: Instant) -> Vec<String> {
        let mut effects = Vec::new();
        let notes = std::mem::take(&mut self.word.borrow_mut().notes);
        (0..notes).for_each(|_| self.lines.released(now, &mut effects));
        self.say(effects)
    }

    fn cancel(&mut self, words: &[&str], now: Instant) -> Vec<String> {
        let mut effects = Vec::new();
        let gone = match options(words).get("tag") {
            Some(tag) => {
                let tag = Tag(tag.parse().unwrap());
                self.lines.cancel_tag(tag, now, &mut effects)
            }
            None => {
                let ticket = self.tickets[words[0]];
                Vec::from_iter(self.lines.cancel(ticket, now, &mut effects))
            }
        };
        let mut outcomes: Vec<_> = gone
            .iter()
            .map(|(name, _)| format!("{} left", name.0))
            .collect();
        if outcomes.is_empty() {
            outcomes.push("none".into());
        }
        outcomes.extend(self.say(effects));
        outcomes
    }

    fn say(&mut self, effects: Vec<Effect<(), Name>>) -> Vec<String> {
        let span = |span: Duration| in_millis(span.as_nanos().try_into().unwrap());
        let say = |effect: Effect<(), Name>| match effect {
            Effect::Grant {
                reply,
                grant,
                waited,
                ..
            } => {
                self.fences.push(grant.fence);
                self.holds.insert(reply.0.clone(), grant.units);
                format!(
                    "{} granted {} after {}",
                    reply.0,
                    grant.ordinal,
                    span(waited)
                )
            }
            Effect::Shed { reply, refusal, .. } => {
                let (reason, waited) = (refusal.reason.word(), span(refusal.waited));
                format!("{} shed {reason} {waited}", reply.0)
            }
            Effect::Forget(reply) => format!("{} gone", reply.0),
        };
        effects.into_iter().map(say).collect()
    }
}

impl Stage for Harness {
    fn act(&mut self, words: &[&str], now: Instant) -> Vec<String> {
        let mut effects = Vec::new();
        match words[0] {
            "ask" => return self.ask(&words[1..], true, now),
            "try" => return self.ask(&words[1..], false, now),
            "take" => return self.take(claim(words[1]), now),
            "give" => return self.give(words[1].parse().unwrap(), now),
            "note" => return self.tell_notes(now),
            "cancel" => return self.cancel(&words[1..], now),
            "release" => {
                let units = self.holds.remove(words[1]).unwrap();
                return self.give(units.into(), now);
            }
            "slip" => {
                let units = u64::from(self.holds.remove(words[1]).unwrap());
                let mut word = self.word.borrow_mut();
                match words[2] {
                    "before_mark" => word.before_mark = units,
                    "after_mark" => word.after_mark = units,
                    "after_look" => word.after_look = units,
                    "at_once" => word.give_back(units),
                    other => panic!("no such moment: {other}"),
                }
            }
            "dies" => {
                self.dead.borrow_mut().insert(words[1].into());
            }
            "wait" => self.lines.advance(now, &mut effects),
            "close" => self.lines.close(now, &mut effects),
            "change" => {
                let changed = parse(&words[1..].join(" "))
                    .and_then(|options| self.lines.reconfigure(&options, now, &mut effects));
                if let Err(error) = changed {
                    return vec![format!("{} breaks a rule", error.option)];
                }
            }
            other => panic!("no such input: {other}"),
        }
        self.say(effects)
    }

    fn look(&self, name: &str) -> String {
        let stats = self.lines.stats(Instant::NEVER);
        let word = self.word.borrow();
        match name {
            "len" => stats.len.to_string(),
            "lines" => stats.lines.to_string(),
            "held" => word.held.to_string(),
            "notes" => word.notes.to_string(),
            "next" => instant(self.lines.deadline()),
            "marked" if word.marked => "yes".into(),
            "marked" => "no".into(),
            other => panic!("nothing to look at: {other}"),
        }
    }
}

/// `units/capacity`.
fn claim(word: &str) -> Claim {
    let (units, capacity) = word.split_once('/').unwrap();
    Claim {
        units: units.parse().unwrap(),
        capacity: capacity.parse::<u64>().unwrap().into(),
    }
}

fn parse(words: &str) -> Result<queue::Options, OptionError> {
    queue::Options::parse(Settings::parse(words)?)
}
