//! The regulator: which ask is granted a lease when, and what each is told.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::rc::Rc;
use std::time::Duration;

use rideau_core::meter::{self, Better, Update};
use rideau_core::queue::{self, AskOptions};
use rideau_core::regulator::{Effect, Ended, Options, Regulator, Release, Renewal};
use rideau_core::{Instant, Lead, Machine, Reply, Settings, Tag, Ticket, valve};

use crate::script::{self, Stage, in_millis, instant, millis, options};

/// The session of the specification.
#[test]
fn leads_and_waits_follow_from_the_askers_own_stamps() {
    check(
        "queue kind=never; valve kind=relative target=100ms min=1 max=3",
        "
         0 ask A          -> A granted 0 0      | size 1 state closed
        10 ask B                                | len 1
        20 update 150
        31 update 99@30   -> B granted 20 21    | size 2 state closed
        40 ask C
        50 renew A        -> stop 0             | size 1 len 1
        60 update -5      -> C granted 20 20
        70 renew B        -> stop 0
        76 renew C@75     -> go 0 1
        80 release C      -> stop 0             | size 0 state open
        86 release C@85   -> not found 1
        90 try D          -> D granted -10 0
        97 try E@95       -> E shed busy 2
        ",
    );
}

/// Upstream told the one whose grant closed the valve the numbers of the input
/// that opened it.
#[test]
fn the_grant_that_closes_the_valve_reports_the_asks_own_lead_and_wait() {
    check(
        "queue kind=never; valve kind=relative target=100ms",
        "
         0 ask A
        41 update 5@40 -> A granted 40 41  | state closed
        ",
    );
    check(
        "queue kind=never; valve kind=open max=2",
        "
         0 ask a           -> a granted 0 0
         0 ask b           -> b granted 0 0
         5 ask c
         7 ask d
         9 release a       -> stop 0, c granted 4 4
        12 release b@11    -> stop 1, d granted 4 5
        ",
    );
}

#[test]
fn asks_leave_in_the_order_of_the_queue_until_the_valve_closes() {
    check(
        "queue kind=never order=lifo; valve kind=open max=1",
        "
        0 ask a -> a granted 0 0
        1 ask b
        2 ask c
        3 ask d
        4 change queue kind=never order=lifo; valve kind=open max=3 -> d granted 1 1, c granted 2 2
        5 release c -> stop 0, b granted 4 4    | len 0 state closed
        6 release b -> stop 0                   | state open
        ",
    );
}

#[test]
fn a_renewal_is_decided_before_any_ask_that_waits() {
    check(
        "queue kind=never; valve kind=relative target=100ms min=1",
        "
        0 ask a    -> a granted 0 0
        1 update 5
        2 ask b    -> b granted -1 0
        3 ask c
        4 renew b  -> stop 0                   | size 1 len 1
        5 renew a  -> go 0 0
        6 renew b  -> not found 0
        7 renew c  -> not found 0              | len 1
        8 release a -> stop 0, c granted 5 5
        ",
    );
}

#[test]
fn an_ask_that_does_not_want_to_wait_is_refused_even_as_the_valve_opens() {
    check(
        "queue kind=never; valve kind=rate limit=2 interval=100ms",
        "
          0 ask a                                        | next 100
        100 try b -> b shed busy 0, a granted 100 100    | state open next never
        100 try c -> c granted 0 0                       | state closed
        ",
    );
}

#[test]
fn time_alone_opens_the_valve_and_sheds_asks_that_waited_too_long() {
    check(
        "queue kind=timeout timeout=100ms; valve kind=rate limit=1 interval=100ms",
        "
          0 ask a                                | next 100
          1 ask b
        100 wait      -> a shed timeout 100, b granted 99 99
        101 ask c                                | next 201
        150 release b -> stop 0                  | next 201
        201 wait      -> c shed timeout 100      | next 250
        250 wait                                 | state open next never
        ",
    );
}

#[test]
fn a_refusal_at_once_still_moves_valve_and_queue_on() {
    check(
        "queue kind=timeout timeout=10ms; valve kind=open max=0",
        "
         0 ask a
        12 try b    -> b shed busy 0, a shed timeout 12
        13 ask c                                          | next 23
        30 update 0 -> c shed timeout 17
        31 ask d
        50 cancel a -> none, d shed timeout 19
        51 ask e
        70 renew a  -> not found 0, e shed timeout 19
        71 ask f
        90 release a -> not found 0, f shed timeout 19
        ",
    );
}

#[test]
fn a_ticket_ends_the_same_way_whether_it_waits_or_holds() {
    check(
        "queue kind=never; valve kind=open max=1",
        "
        0 ask a    -> a granted 0 0
        0 ask b
        0 ask c
        1 cancel a -> none                     | size 1
        2 end b    -> b left                   | len 1
        2 end b    -> not found
        3 end a    -> released, c granted 3 3
        4 end a    -> not found
        5 cancel c -> none
        6 end c    -> released                 | size 0 state open
        ",
    );
}

#[test]
fn asks_that_are_gone_are_never_granted_even_if_not_cancelled() {
    check(
        "queue kind=never; valve kind=open max=1",
        "
        0 ask a     -> a granted 0 0
        1 ask b
        1 ask c
        2 dies b
        3 release a -> stop 0, b gone, c granted 2 2
        4 release c -> stop 0
        5 dies d
        5 ask d     -> d gone                   | size 0 state open
        5 renew d   -> not found 0
        ",
    );
}

#[test]
fn a_tag_cancels_all_that_wait_with_it_but_no_lease() {
    check(
        "queue kind=never; valve kind=open max=1",
        "
        0 ask a tag=1   -> a granted 0 0
        0 ask b tag=1
        0 ask c tag=2
        0 ask d tag=1
        1 cancel tag=1 -> d left, b left        | len 1 size 1
        1 cancel tag=1 -> none
        2 release a    -> stop 0, c granted 2 2
        3 cancel tag=2 -> none
        ",
    );
}

/// At 100 the valve has an opening which the cancel is the first to see.
#[test]
fn a_tag_is_cancelled_whole_before_any_ask_is_granted() {
    check(
        "queue kind=never; valve kind=rate limit=2 interval=100ms",
        "
          0 ask a tag=1
          0 ask b tag=2
          0 ask c tag=1
        100 cancel tag=1 -> c left, a left, b granted 100 100
        ",
    );
}

#[test]
fn a_closing_regulator_sheds_waiting_asks_and_renews_nothing() {
    check(
        "queue kind=never; valve kind=open max=2",
        "
        0 ask a     -> a granted 0 0
        0 ask b     -> b granted 0 0
        1 ask c
        2 close     -> c shed closed 1           | size 2 len 0
        3 ask d     -> d shed closed 0
        4 renew a   -> stop 0                    | size 1
        5 try e     -> e shed closed 0
        6 release b -> stop 0                    | size 0
        7 ask f     -> f shed closed 0           | next never
        ",
    );
}

#[test]
fn no_lease_is_lost_to_a_lower_max_but_renewals_stop_until_it_is_kept() {
    check(
        "queue kind=never; valve kind=open max=3",
        "
        0 ask a   -> a granted 0 0
        0 ask b   -> b granted 0 0
        0 ask c   -> c granted 0 0
        1 change queue kind=never; valve kind=open max=1 | size 3
        2 ask d
        3 renew a -> stop 0                      | size 2 len 1
        4 release b -> stop 0                    | size 1 len 1
        5 renew c -> go 0 0
        6 release c -> stop 0, d granted 4 4
        ",
    );
}

#[test]
fn another_kind_of_valve_keeps_every_lease() {
    check(
        "queue kind=never; valve kind=open",
        "
          0 ask a   -> a granted 0 0
          0 ask b   -> b granted 0 0
          0 ask c   -> c granted 0 0
          1 change queue kind=never; valve kind=relative target=1s max=4      | size 3
          2 ask d
          3 change queue kind=never; valve kind=codel target=1s               | size 3 len 1
          4 change queue kind=never; valve kind=rate limit=4 interval=100ms   | next 104
         50 renew a -> stop 0                                                 | size 2
        104 wait    -> d granted 102 102
        105 change queue kind=never; valve kind=breaker max=3                 | size 3 state closed
        106 change queue kind=never; valve kind=gradient initial=20           | size 3 state open
        107 change queue kind=never; valve kind=least_of 1.kind=open 1.max=3 2.kind=rate | size 3
        108 release a -> not found 0
        109 release b bad -> stop 0
        110 release c -> stop 0
        111 release d -> stop 0                                               | size 0
        ",
    );
}

/// Upstream forgot to let go of a holder at some of its ends.
#[test]
fn a_lease_is_over_at_every_kind_of_end() {
    for valve in [
        "kind=relative target=1s min=1",
        "kind=codel target=1s min=1",
        "kind=rate min=1",
    ] {
        check(
            &format!("queue kind=never; valve {valve}"),
            "
            0 ask a     -> a granted 0 0     | size 1 open 1
            1 release a -> stop 0            | size 0 open 0
            2 renew a   -> not found 0
            3 release a -> not found 0       | size 0 open 0
            ",
        );
    }
    check(
        "queue kind=never; valve kind=open",
        "
        0 ask a   -> a granted 0 0
        0 ask b   -> b granted 0 0
        1 change queue kind=never; valve kind=open max=1
        2 renew a -> stop 0                  | size 1 open 1
        3 renew a -> not found 0             | size 1
        ",
    );
}

/// Upstream reported the time since the size was small.
#[test]
fn a_renewal_by_rate_reports_since_when_its_slot_was_free() {
    check(
        "queue kind=never; valve kind=rate limit=2 interval=100ms",
        "
        100 ask a   -> a granted 0 0
        105 renew a -> go -5 0
        207 renew a@206 -> go -1 1
        ",
    );
}

#[test]
fn stamps_out_of_order_do_not_turn_back_the_time_of_the_valve() {
    check(
        "queue kind=never; valve kind=rate limit=1 interval=10ms",
        "
        10 ask a@10     -> a granted 0 0
        20 release a@19 -> stop 1                  | next 29
        21 ask b@15
        30 update 0@16                             | len 1 next 29
        30 wait         -> b granted 14 15
        32 release b@25 -> stop 7                  | next 40
        40 ask c@38
        41 ask d@39                                | next 40
        41 wait         -> c granted 2 3
        ",
    );
    check(
        "queue kind=never; valve kind=open max=1",
        "
        5 ask a@5      -> a granted -5 0
        8 release a@8  -> stop 0
        9 ask b@6      -> b granted 2 3
        9 renew b@7    -> go 0 2
        ",
    );
}

#[test]
fn a_release_with_an_old_stamp_is_not_taken_for_that_of_a_probe() {
    check(
        "queue kind=never; valve kind=breaker failures=1 window=1 pause=10ms",
        "
         0 ask a         -> a granted 0 0
         0 ask b         -> b granted 0 0
         1 release a bad -> stop 0         | next 11
        11 ask c         -> c granted 0 0  | state closed
        12 release b@0   -> stop 12        | state closed
        13 release c     -> stop 0         | state open
        ",
    );
}

#[test]
fn a_change_that_breaks_a_rule_changes_nothing() {
    let mut harness = Harness::new("queue kind=never; valve kind=open max=1");
    harness.act(&["ask", "a"], millis("0"));
    harness.act(&["ask", "b"], millis("0"));
    let before = (harness.regulator.options(), harness.regulator.deadline());
    let good = parse("queue kind=never max=0; valve kind=open max=9").unwrap();
    let mut wrong = [good.clone(), good.clone(), good];
    wrong[0].queue.min = 1;
    wrong[1].valve = valve::Options::Relative(valve::Relative {
        target: Lead::ZERO,
        min: 2,
        max: 1,
    });
    wrong[2].meters = vec![meter::Options::Better(Better {
        update: Duration::ZERO,
        ..Better::default()
    })];
    for (wrong, option) in wrong
        .into_iter()
        .zip(["queue.min", "valve.min", "better.update"])
    {
        let mut effects = Vec::new();
        let error = harness
            .regulator
            .reconfigure(wrong, millis("1"), &mut effects);
        assert_eq!(error.unwrap_err().option, option);
        assert!(effects.is_empty());
        assert_eq!(
            before,
            (harness.regulator.options(), harness.regulator.deadline())
        );
        assert_eq!((harness.regulator.len(), harness.regulator.size()), (1, 1));
    }
    script::check(&mut harness, "4 release a -> stop 0, b granted 4 4 | len 0");
}

#[test]
fn the_first_deadline_of_a_meter_stands_until_it_is_fed() {
    let mut harness = Harness::metered("queue kind=never; valve kind=open max=1", 16);
    assert_eq!(harness.look("next"), "0");
    harness.act(&["ask", "a"], millis("1"));
    assert_eq!(harness.look("next"), "0");
    harness.act(&["wait"], millis("2"));
    assert_eq!(harness.look("next"), "102");
}

#[test]
fn meters_see_asks_wait_for_the_valve_or_the_valve_for_asks() {
    let mut harness = Harness::metered("queue kind=never; valve kind=open max=1", 1);
    script::check(
        &mut harness,
        "
        10 wait        -> ask 0 offer 10
        15 ask a       -> a granted -15 0, ask 0 offer 0
        20 wait        -> ask 5 offer 0
        25 ask b       -> ask 0 offer 0
        30 update 0@29 -> ask 5 offer 1
        40 release a   -> stop 0, b granted 15 15, ask 15 offer 0
        50 release b   -> stop 0, ask 0 offer 0
        57 wait        -> ask 0 offer 7
        ",
    );
}

/// Upstream moved the start of the wait past asks that waited longer.
#[test]
fn a_meter_that_comes_late_sees_the_oldest_wait() {
    let mut harness = Harness::new("queue kind=never; valve kind=open max=0");
    harness.act(&["ask", "a"], millis("1"));
    harness.act(&["ask", "b"], millis("50"));
    let metered = metered("queue kind=never; valve kind=open max=0", 1);
    let mut effects = Vec::new();
    harness
        .regulator
        .reconfigure(metered, millis("60"), &mut effects)
        .unwrap();
    harness.say(effects);
    assert_eq!(harness.act(&["wait"], millis("61")), ["ask 60 offer 0"]);
}

#[test]
fn a_regulator_tells_regulators_its_lead() {
    let update = "kind=update entries=other:ask:10ms seed=1";
    let update = Update::clone(match &parse_meter(update) {
        meter::Options::Update(update) => update,
        _ => unreachable!(),
    });
    let mut options = parse("queue kind=never; valve kind=open max=0").unwrap();
    options.meters = vec![meter::Options::Update(update)];
    let mut effects = Vec::new();
    let mut regulator = Regulator::<Name>::new(options, Instant::START, &mut effects).unwrap();
    regulator.advance(millis("3"), &mut effects);
    let told = effects.iter().find_map(|effect| match effect {
        Effect::Meter(meter::Effect::Update { lead, .. }) => Some(*lead),
        _ => None,
    });
    assert_eq!(told, Some(Lead::from_nanos(3_000_000)));
}

#[test]
fn words_say_why_asks_wait_and_what_would_help() {
    let table = [
        ("kind=open max=1", "open allows 1 leases", "raise `max`"),
        (
            "kind=rate limit=1 interval=50ms",
            "rate has no slot left for another 40ms",
            "raise its `limit`",
        ),
        (
            "kind=relative min=1",
            "relative has seen no new lead below its target",
            "see that updates arrive",
        ),
    ];
    for (valve, why, help) in table {
        let mut harness = Harness::new(&format!("queue kind=never max=1; valve {valve}"));
        for name in ["a", "b", "c"] {
            harness.act(&["ask", name], millis("0"));
        }
        let text = harness.regulator.explain(millis("10"));
        for words in [why, help, "(full): too many asks are waiting"] {
            assert!(text.contains(words), "{words:?} in {text}");
        }
    }
    let harness = Harness::new("queue kind=never; valve kind=open max=1");
    assert_eq!(
        harness.regulator.explain(millis("10")),
        "The valve is open: the next ask is granted at once. 0 leases are held. No ask has been \
         refused or shed."
    );
}

#[test]
fn a_breaker_that_tripped_is_explained_by_what_went_wrong() {
    let breaker = "kind=breaker failures=1 window=1 pause=50ms";
    let mut harness = Harness::new(&format!("queue kind=never; valve {breaker}"));
    harness.act(&["ask", "a"], millis("0"));
    harness.act(&["release", "a", "bad"], millis("1"));
    harness.act(&["try", "b"], millis("2"));
    let text = harness.regulator.explain(millis("11"));
    for words in ["breaker pauses for another 40ms", "Leases went wrong"] {
        assert!(text.contains(words), "{words:?} in {text}");
    }
}

#[test]
fn stats_count_every_ask_and_every_lease_once() {
    let mut harness = Harness::new("queue kind=never max=1; valve kind=open max=1");
    for (words, at) in [
        ("ask a", "0"),
        ("ask b", "0"),
        ("ask c", "1"),
        ("renew a", "2"),
        ("release a", "3"),
        ("release b bad", "7"),
    ] {
        harness.act(&words.split(' ').collect::<Vec<_>>(), millis(at));
    }
    let stats = harness.regulator.stats(millis("9"));
    assert_eq!((stats.asks.came, stats.asks.served), (3, 2));
    assert_eq!(stats.asks.shed_total(), 1);
    assert_eq!((stats.leases.released, stats.leases.failed), (1, 1));
    assert_eq!((stats.leases.renewed, stats.leases.ended()), (1, 2));
    assert_eq!(stats.leases.held.longest(), Duration::from_millis(4));
    assert_eq!((stats.len, stats.size, stats.is_open), (0, 0, true));
    assert_eq!(stats.oldest_waited, Duration::ZERO);
}

fn check(options: &str, script: &str) {
    script::check(&mut Harness::new(options), script);
}

/// A regulator, the names of the asks, and which of them are dead.
struct Harness {
    regulator: Regulator<Name>,
    tickets: HashMap<String, Ticket>,
    dead: Rc<RefCell<HashSet<String>>>,
}

struct Name(String, Rc<RefCell<HashSet<String>>>);

impl Reply for Name {
    fn is_gone(&self) -> bool {
        self.1.borrow().contains(&self.0)
    }
}

impl Harness {
    fn new(options: &str) -> Self {
        Self::with(parse(options).unwrap())
    }

    fn metered(options: &str, read_after: u32) -> Self {
        Self::with(metered(options, read_after))
    }

    fn with(options: Options) -> Self {
        Self {
            regulator: Regulator::new(options, Instant::START, &mut Vec::new()).unwrap(),
            tickets: HashMap::new(),
            dead: Rc::default(),
        }
    }

    fn ask(&mut self, words: &[&str], wait: bool, now: Instant) -> Vec<String> {
        let (name, sent) = stamped(words[0], now);
        let named = options(words);
        let terms = AskOptions {
            wait,
            deadline: named.get("deadline").map(|word| millis(word)),
            promised: named.contains_key("deadline"),
            tag: named.get("tag").map(|word| Tag(word.parse().unwrap())),
            ..AskOptions::new(sent)
        };
        let reply = Name(name.into(), Rc::clone(&self.dead));
        let mut effects = Vec::new();
        let ticket = self.regulator.ask(&terms, reply, now, &mut effects);
        self.tickets.insert(name.into(), ticket);
        self.say(effects)
    }

    fn answer(&mut self, words: &[&str], now: Instant) -> Vec<String> {
        let (name, sent) = stamped(words[1], now);
        let ticket = self.tickets[name];
        let ok = words.get(2) != Some(&"bad");
        let (regulator, mut effects) = (&mut self.regulator, Vec::new());
        let span = |waited: Duration| in_millis(waited.as_nanos().try_into().unwrap());
        let answer = match words[0] {
            "renew" => match regulator.renew(ticket, sent, now, &mut effects) {
                Renewal::Go { lead, waited } => {
                    format!("go {} {}", in_millis(lead.as_nanos().into()), span(waited))
                }
                Renewal::Stop { waited } => format!("stop {}", span(waited)),
                Renewal::NotFound { waited } => format!("not found {}", span(waited)),
            },
            "release" => match regulator.release(ticket, ok, sent, now, &mut effects) {
                Release::Stop { waited } => format!("stop {}", span(waited)),
                Release::NotFound { waited } => format!("not found {}", span(waited)),
            },
            _ => match regulator.end(ticket, ok, sent, now, &mut effects) {
                Ended::Cancelled(name) => format!("{} left", name.0),
                Ended::Released => "released".into(),
                Ended::NotFound => "not found".into(),
            },
        };
        let mut outcomes = vec![answer];
        outcomes.extend(self.say(effects));
        outcomes
    }

    fn cancel(&mut self, words: &[&str], now: Instant) -> Vec<String> {
        let mut effects = Vec::new();
        let gone = match options(words).get("tag") {
            Some(tag) => {
                let tag = Tag(tag.parse().unwrap());
                self.regulator.cancel_tag(tag, now, &mut effects)
            }
            None => {
                let ticket = self.tickets[words[0]];
                Vec::from_iter(self.regulator.cancel(ticket, now, &mut effects))
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

    fn say(&self, effects: Vec<Effect<Name>>) -> Vec<String> {
        let span = |span: Duration| in_millis(span.as_nanos().try_into().unwrap());
        let say = |effect: Effect<Name>| match effect {
            Effect::Grant {
                ticket,
                reply,
                lead,
                waited,
            } => {
                // An ask that is granted at once learns its ticket only
                // afterwards.
                let known = self.tickets.get(&reply.0);
                assert!(known.is_none_or(|known| *known == ticket));
                let lead = in_millis(lead.as_nanos().into());
                format!("{} granted {lead} {}", reply.0, span(waited))
            }
            Effect::Shed { reply, refusal, .. } => {
                let (reason, waited) = (refusal.reason.word(), span(refusal.waited));
                format!("{} shed {reason} {waited}", reply.0)
            }
            Effect::Forget(reply) => format!("{} gone", reply.0),
            Effect::Meter(meter::Effect::Better { ask, offer }) => {
                format!("ask {} offer {}", span(ask), span(offer))
            }
            Effect::Meter(said) => format!("{said:?}"),
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
            "renew" | "release" | "end" => return self.answer(words, now),
            "cancel" => return self.cancel(&words[1..], now),
            "dies" => {
                self.dead.borrow_mut().insert(words[1].into());
            }
            "update" => {
                let (lead, sent) = stamped(words[1], now);
                let lead = Lead::from_nanos(lead.parse::<i64>().unwrap() * 1_000_000);
                self.regulator.update(lead, sent, now, &mut effects);
            }
            "wait" => self.regulator.advance(now, &mut effects),
            "close" => self.regulator.close(now, &mut effects),
            "change" => {
                let changed = parse(&words[1..].join(" "))
                    .and_then(|options| self.regulator.reconfigure(options, now, &mut effects));
                if let Err(error) = changed {
                    return vec![format!("{} breaks a rule", error.option)];
                }
            }
            other => panic!("no such input: {other}"),
        }
        self.say(effects)
    }

    fn look(&self, name: &str) -> String {
        let stats = self.regulator.stats(Instant::NEVER);
        match name {
            "len" => self.regulator.len().to_string(),
            "size" => self.regulator.size().to_string(),
            "open" => (stats.asks.served - stats.leases.ended()).to_string(),
            "next" => instant(self.regulator.deadline()),
            "state" if stats.is_open => "open".into(),
            "state" => "closed".into(),
            other => panic!("nothing to look at: {other}"),
        }
    }
}

/// `name@sent`, where `sent` is now if it is left out.
fn stamped(word: &str, now: Instant) -> (&str, Instant) {
    match word.split_once('@') {
        Some((name, sent)) => (name, millis(sent)),
        None => (word, now),
    }
}

fn metered(words: &str, read_after: u32) -> Options {
    Options {
        meters: vec![meter::Options::Better(Better::default())],
        read_after,
        ..parse(words).unwrap()
    }
}

fn parse_meter(words: &str) -> meter::Options {
    meter::Options::parse(Settings::parse(words).unwrap()).unwrap()
}

fn parse(words: &str) -> Result<Options, rideau_core::OptionError> {
    let (queue, valve) = words.split_once(';').expect("queue ...; valve ...");
    let settings = |words: &str, part: &str| {
        let words = words.trim().strip_prefix(part);
        Settings::parse(words.expect("the part comes first"))
    };
    let queue = settings(queue, "queue").and_then(queue::Options::parse);
    let valve = settings(valve, "valve").and_then(valve::Options::parse);
    Ok(Options {
        queue: queue.map_err(|error| error.within("queue"))?,
        ..Options::new(valve.map_err(|error| error.within("valve"))?)
    })
}

/// The leases of an earlier regulator count, also if they are more than may be.
#[test]
fn leases_are_taken_over_from_another_regulator() {
    let options = Options::new(valve::Options::Open(valve::Open { max: 2 }));
    let mut effects = Vec::new();
    let mut regulator = Regulator::new(options, Instant::START, &mut effects).unwrap();
    let adopted: Vec<_> = (0..3)
        .map(|_| regulator.adopt(NoReply, Instant::START, &mut effects))
        .collect();
    assert_eq!(regulator.size(), 3);
    effects.clear();
    let terms = AskOptions::new(Instant::START);
    regulator.ask(&terms, NoReply, Instant::START, &mut effects);
    assert_eq!(regulator.len(), 1);
    for (at, ticket) in adopted.into_iter().enumerate() {
        assert!(regulator.is_held(ticket));
        let now = Instant::START;
        regulator.release(ticket, true, now, now, &mut effects);
        let is_granted = effects.iter().any(|it| matches!(it, Effect::Grant { .. }));
        assert_eq!(is_granted, at >= 1, "{at}");
    }
    assert_eq!(regulator.size(), 1);
}

/// Is not told anything.
struct NoReply;

impl Reply for NoReply {
    fn is_gone(&self) -> bool {
        false
    }
}
