//! The broker: who meets whom, and what each is told.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use rideau_core::broker::{Broker, Came, Effect, Gone, Options};
use rideau_core::queue::{self, Terms};
use rideau_core::{Instant, Machine, Refusal, Reply, Settings, Side, Tag, Ticket};

use crate::script::{self, Stage, in_millis, instant, millis, options};

/// The session of the specification: stamps are the askers' own, so leads and
/// waits are exact.
#[test]
fn both_parties_learn_lead_and_wait_from_their_own_stamps() {
    check(
        "asks kind=codel target=100ms interval=1s; offers kind=timeout timeout=50ms",
        "
          1 ask A@0                                            | side ask
          1 try ask N@0     -> N shed busy 1
         42 offer B@40      -> B meets A -40 2, A meets B 40 42
         51 offer C@50                                         | side offer
         52 offer D
         61 ask E@60        -> C meets E 10 11, E meets C -10 1
         62 cancel C        -> none
         63 cancel D        -> D left
         70 offer F
         71 offer G
         72 dies F
         75 try ask H       -> F gone, G meets H 4 4, H meets G -4 0
         80 offer I
        140 try ask J       -> I shed timeout 60, J shed busy 0 | side ask
        ",
    );
}

#[test]
fn two_of_one_side_never_meet() {
    check(
        "asks kind=never; offers kind=never",
        "
        0 ask a
        0 ask b
        1 offer x -> x meets a -1 0, a meets x 1 1
        2 offer y -> y meets b -2 0, b meets y 2 2
        3 offer z
        3 offer w                                 | asks 0 offers 2
        4 ask c -> z meets c 1 1, c meets z -1 0
        ",
    );
}

#[test]
fn a_try_that_finds_nobody_still_moves_the_queue_on() {
    check(
        "asks kind=timeout timeout=10ms; offers kind=never",
        "
         0 ask a
        12 try ask b -> a shed timeout 12, b shed busy 0
        ",
    );
}

#[test]
fn asks_are_shed_at_their_deadline_even_if_nobody_comes() {
    check(
        "asks kind=timeout timeout=100ms; offers kind=never",
        "
          0 ask anna                                 | next 100
         10 ask bert
         20 ask carl deadline=30                     | next 30
         30 wait -> carl shed deadline 10            | next 100
        100 wait -> anna shed timeout 100            | next 110
        110 wait -> bert shed timeout 100            | next never
        ",
    );
}

#[test]
fn cancelling_answers_once_and_then_never() {
    check(
        "asks kind=never; offers kind=never",
        "
        0 ask a
        1 cancel a -> a left          | asks 0
        1 cancel a -> none
        2 offer x
        2 ask b -> x meets b 0 0, b meets x 0 0
        3 cancel b -> none
        3 cancel x -> none
        ",
    );
}

#[test]
fn a_tag_cancels_all_that_share_it_and_no_others() {
    check(
        "asks kind=never; offers kind=never",
        "
        0 ask a tag=1
        0 ask b tag=2
        0 ask c tag=1
        1 cancel tag=1 -> c left, a left       | asks 1
        1 cancel tag=1 -> none
        2 offer x -> x meets b -2 0, b meets x 2 2
        ",
    );
}

#[test]
fn a_closing_broker_answers_everybody_who_waits_and_comes() {
    check(
        "asks kind=never; offers kind=never",
        "
        0 ask a
        1 ask b
        5 close -> a shed closed 5, b shed closed 4    | asks 0
        6 ask c -> c shed closed 0
        6 offer x -> x shed closed 0
        6 try ask d -> d shed closed 0
        ",
    );
}

#[test]
fn the_dead_are_never_matched_even_if_nobody_has_said_so() {
    check(
        "asks kind=never; offers kind=never",
        "
        0 ask a
        1 ask b
        2 dies a
        2 dies b
        3 offer x -> a gone, b gone                    | asks 0 offers 1
        4 ask c -> x meets c 1 1, c meets x -1 0
        ",
    );
}

#[test]
fn a_change_applies_to_both_queues_and_keeps_everybody() {
    check(
        "asks kind=never; offers kind=never",
        "
         0 ask a
         1 ask b
         2 change asks kind=timeout timeout=10ms; offers kind=timeout timeout=20ms | next 10
         3 change asks kind=never min=2 max=1; offers kind=never -> asks.min breaks a rule
        10 wait -> a shed timeout 10
        10 offer x -> x meets b -9 0, b meets x 9 9
        11 offer y
        31 wait -> y shed timeout 20
        ",
    );
}

#[test]
fn a_refusal_says_how_many_wait_and_when_to_come_back() {
    let mut room = Room::new("asks kind=never max=3; offers kind=never");
    for at in 0..3 {
        room.act(&["ask", ["a", "b", "c"][at]], Instant::from_nanos(0));
    }
    room.act(&["offer", "x"], millis("10"));
    room.act(&["offer", "y"], millis("20"));
    room.act(&["ask", "d"], millis("20"));
    room.act(&["ask", "e"], millis("20"));
    room.act(&["ask", "f"], millis("20"));
    let refusal = room.refusals.last().expect("the queue was full");
    assert_eq!(refusal.len, 3);
    assert_eq!(
        in_millis(refusal.retry_after.as_nanos().try_into().unwrap()),
        "40"
    );
    let explained = room.broker.explain();
    assert!(
        explained.contains("1 (full): too many are waiting already"),
        "{explained}"
    );
    assert!(
        explained.contains("With `max` = 3, newcomers are refused"),
        "{explained}"
    );
}

fn check(options: &str, script: &str) {
    script::check(&mut Room::new(options), script);
}

/// A broker, the names of those who came, and who of them has died.
struct Room {
    broker: Broker<Name, Name>,
    tickets: HashMap<String, Ticket>,
    dead: Rc<RefCell<HashSet<String>>>,
    refusals: Vec<Refusal>,
}

struct Name(String, Rc<RefCell<HashSet<String>>>);

impl Reply for Name {
    fn is_gone(&self) -> bool {
        self.1.borrow().contains(&self.0)
    }
}

impl Room {
    fn new(options: &str) -> Self {
        let options = parse(options).unwrap();
        Self {
            broker: Broker::new(options, Instant::START, &mut Vec::new()).unwrap(),
            tickets: HashMap::new(),
            dead: Rc::default(),
            refusals: Vec::new(),
        }
    }

    fn come(&mut self, side: Side, words: &[&str], wait: bool, now: Instant) -> Vec<String> {
        let (name, sent) = words[0].split_once('@').unwrap_or((words[0], ""));
        let named = options(words);
        let terms = Terms {
            wait,
            deadline: named.get("deadline").map(|word| millis(word)),
            tag: named.get("tag").map(|word| Tag(word.parse().unwrap())),
            ..Terms::new(if sent.is_empty() { now } else { millis(sent) })
        };
        let reply = Name(name.into(), Rc::clone(&self.dead));
        let mut effects = Vec::new();
        let came = match side {
            Side::Ask => self.broker.ask(&terms, reply, now, &mut effects),
            Side::Offer => self.broker.offer(&terms, reply, now, &mut effects),
        };
        let ticket = match came {
            Came::Waits(ticket) => ticket,
            Came::Answered(ticket, own) => {
                effects.push(own);
                ticket
            }
        };
        self.tickets.insert(name.into(), ticket);
        self.say(effects)
    }

    fn say(&mut self, effects: Vec<Effect<Name, Name>>) -> Vec<String> {
        effects
            .into_iter()
            .flat_map(|effect| self.say_one(effect))
            .collect()
    }

    fn say_one(&mut self, effect: Effect<Name, Name>) -> Vec<String> {
        let span = |nanos: u128| in_millis(nanos.try_into().unwrap());
        match effect {
            Effect::Match {
                ask,
                offer,
                lead,
                ask_waited,
                offer_waited,
                ..
            } => {
                // The identities of a match, which hold exactly.
                let (asked, offered) = (ask_waited.as_nanos(), offer_waited.as_nanos());
                let lead = i128::from(lead.as_nanos());
                assert_eq!(
                    i128::try_from(asked).unwrap() - lead,
                    offered.try_into().unwrap()
                );
                let (ask, offer) = (ask.0, offer.0);
                vec![
                    format!("{offer} meets {ask} {} {}", in_millis(-lead), span(offered)),
                    format!("{ask} meets {offer} {} {}", in_millis(lead), span(asked)),
                ]
            }
            Effect::ShedAsk {
                ask: who, refusal, ..
            }
            | Effect::ShedOffer {
                offer: who,
                refusal,
                ..
            } => {
                self.refusals.push(refusal);
                let waited = span(refusal.waited.as_nanos());
                vec![format!("{} shed {} {waited}", who.0, refusal.reason.word())]
            }
            Effect::Forget(Gone::Ask(who) | Gone::Offer(who)) => vec![format!("{} gone", who.0)],
            Effect::Meter(said) => vec![format!("{said:?}")],
        }
    }

    fn cancel(&mut self, words: &[&str], now: Instant) -> Vec<String> {
        let mut effects = Vec::new();
        let gone = match options(words).get("tag") {
            Some(tag) => {
                let tag = Tag(tag.parse().unwrap());
                self.broker.cancel_tag(tag, now, &mut effects)
            }
            None => {
                let ticket = self.tickets[words[0]];
                self.broker
                    .cancel(ticket, now, &mut effects)
                    .into_iter()
                    .collect()
            }
        };
        let left = |(gone, _): (Gone<Name, Name>, Refusal)| match gone {
            Gone::Ask(who) | Gone::Offer(who) => format!("{} left", who.0),
        };
        let mut outcomes: Vec<_> = gone.into_iter().map(left).collect();
        if outcomes.is_empty() {
            outcomes.push("none".into());
        }
        outcomes.extend(self.say(effects));
        outcomes
    }
}

impl Stage for Room {
    fn act(&mut self, words: &[&str], now: Instant) -> Vec<String> {
        let mut effects = Vec::new();
        match words[0] {
            "ask" => return self.come(Side::Ask, &words[1..], true, now),
            "offer" => return self.come(Side::Offer, &words[1..], true, now),
            "try" if words[1] == "ask" => return self.come(Side::Ask, &words[2..], false, now),
            "try" => return self.come(Side::Offer, &words[2..], false, now),
            "cancel" => return self.cancel(&words[1..], now),
            "dies" => {
                self.dead.borrow_mut().insert(words[1].into());
            }
            "wait" => self.broker.advance(now, &mut effects),
            "close" => self.broker.close(now, &mut effects),
            "change" => {
                let changed = parse(&words[1..].join(" "))
                    .and_then(|options| self.broker.reconfigure(options, now, &mut effects));
                if let Err(error) = changed {
                    return vec![format!("{} breaks a rule", error.option)];
                }
            }
            other => panic!("no such input: {other}"),
        }
        self.say(effects)
    }

    fn look(&self, name: &str) -> String {
        match name {
            "asks" => self.broker.len(Side::Ask).to_string(),
            "offers" => self.broker.len(Side::Offer).to_string(),
            "next" => instant(self.broker.deadline()),
            "side" => match self.broker.stats(Instant::NEVER).active {
                Side::Ask => "ask".into(),
                Side::Offer => "offer".into(),
            },
            other => panic!("nothing to look at: {other}"),
        }
    }
}

fn parse(words: &str) -> Result<Options, rideau_core::OptionError> {
    let (asks, offers) = words.split_once(';').expect("asks ...; offers ...");
    let queue = |words: &str, side: &str| {
        let words = words
            .trim()
            .strip_prefix(side)
            .expect("the side comes first");
        let parsed = Settings::parse(words).and_then(queue::Options::parse);
        parsed.map_err(|error| error.within(side))
    };
    Ok(Options {
        asks: queue(asks, "asks")?,
        offers: queue(offers, "offers")?,
        ..Options::default()
    })
}
