//! The broker: which ask meets which offer, and what each is told.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use rideau_core::broker::{Broker, Effect, Gone, Options};
use rideau_core::meter;
use rideau_core::queue::{self, AskOptions};
use rideau_core::{Flow, Instant, Machine, Refusal, Reply, Settings, Side, Tag, Ticket};

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
fn a_try_that_finds_no_match_still_moves_the_queue_on() {
    check(
        "asks kind=timeout timeout=10ms; offers kind=never",
        "
         0 ask a
        12 try ask b -> a shed timeout 12, b shed busy 0
        ",
    );
}

#[test]
fn asks_are_shed_at_their_deadline_even_if_no_offer_comes() {
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
fn a_closing_broker_answers_all_that_wait_and_come() {
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
fn dead_asks_are_never_matched_even_if_not_cancelled() {
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
fn a_change_applies_to_both_queues_and_keeps_all_that_wait() {
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
        explained.contains("1 (full): too many asks are waiting"),
        "{explained}"
    );
    assert!(
        explained.contains("With the queue's `max` = 3, newcomers are refused"),
        "{explained}"
    );
}

#[test]
fn a_cancel_that_finds_no_ask_still_moves_the_queue_on() {
    check(
        "asks kind=timeout timeout=10ms; offers kind=never",
        "
         0 ask a tag=1
         1 cancel a -> a left
         2 ask b
        12 cancel a -> none, b shed timeout 10
        13 ask c
        23 cancel tag=1 -> none, c shed timeout 10
        ",
    );
}

#[test]
fn all_of_a_tag_withdraw_before_the_law_looks_at_any() {
    check(
        "asks kind=timeout timeout=10ms; offers kind=never",
        "
         0 ask a tag=1
         1 ask b
         2 ask c tag=1
        20 cancel tag=1 -> c left, a left, b shed timeout 19
        ",
    );
}

/// D6: it was a division by zero.
#[test]
fn reading_after_zero_inputs_is_reading_after_each() {
    check(
        "asks kind=never; offers kind=never; meter kind=better; read_after 0",
        "
        0 ask a@0 -> better 0 0
        5 ask b   -> better 5 0
        7 ask c@6 -> better 7 1
        ",
    );
}

/// D7: the broker without meters had forgotten since when the oldest waits.
#[test]
fn a_meter_that_comes_late_knows_how_long_the_oldest_has_waited() {
    let plain = "asks kind=never; offers kind=never";
    let metered = format!("{plain}; meter kind=better; read_after 1");
    check(
        plain,
        &format!(
            "
             0 ask a
            10 wait
            20 ask b
            30 change {metered} -> better 5000 5000, better 30 0
            40 offer x -> better 20 0, x meets a -40 0, a meets x 40 40
            50 offer y -> better 30 0, y meets b -30 0, b meets y 30 30
            60 offer z -> better 0 0
            70 wait    -> better 0 10
            "
        ),
    );
}

/// D8, D15: upstream said yes first, and then died of the part that was wrong.
#[test]
fn a_change_of_which_one_part_is_wrong_changes_no_part() {
    let wrong = [
        (
            "asks kind=codel interval=0; offers kind=never",
            "asks.interval",
        ),
        (
            "asks kind=never; offers kind=never min=2 max=1",
            "offers.min",
        ),
    ];
    for (words, option) in wrong {
        check(
            "asks kind=timeout timeout=10ms; offers kind=never",
            &format!(
                "
                 0 ask a                                      | next 10
                 1 change {words} -> {option} breaks a rule   | next 10
                10 wait -> a shed timeout 10
                "
            ),
        );
    }
    let mut room = Room::new("asks kind=timeout timeout=10ms; offers kind=never");
    let before = room.broker.options();
    let better = meter::Options::Better(meter::Better::default());
    let twice = Options {
        meters: vec![better.clone(), better],
        ..Options::default()
    };
    let mut effects = Vec::new();
    let changed = room.broker.reconfigure(twice, Instant::START, &mut effects);
    assert_eq!(changed.unwrap_err().option, "better");
    assert_eq!(room.broker.options(), before);
    assert!(effects.is_empty());
}

#[test]
fn a_smaller_queue_first_lets_those_go_whose_deadline_came() {
    check(
        "asks kind=never; offers kind=never",
        "
        0 ask a deadline=5
        1 ask b
        5 change asks kind=never max=1; offers kind=never -> a shed deadline 5 | asks 1
        ",
    );
}

/// D11, D14.
#[test]
fn unknown_options_are_refused() {
    check(
        "asks kind=timeout timeout=10ms; offers kind=never",
        "
        0 ask a | next 10
        1 change asks kind=timeout tarqet=5ms; offers kind=never -> asks.tarqet breaks a rule
        1 change asks kind=never target=5ms; offers kind=never -> asks.target breaks a rule
        2 wait  | next 10
        ",
    );
    let error = parse("asks kind=timeout timeuot=5ms; offers kind=never").unwrap_err();
    assert_eq!(
        error.to_string(),
        "option `asks.timeuot` is unknown; did you mean `timeout`?"
    );
}

/// Time alone does not end the countdown to an alarm, inputs that were not
/// delayed do.
#[test]
fn an_alarm_is_raised_while_inputs_wait_long_for_the_broker() {
    check(
        "asks kind=never; offers kind=never; meter kind=overload target=10ms interval=50ms",
        "
        100 ask a@80     | next 200
        200 wait         | next 250
        240 ask b@220    | next 250
        250 wait -> overload raised
        260 ask c
        360 wait         | next 410
        410 wait -> overload cleared
        ",
    );
}

/// Another meter has all of them read again and again.
#[test]
fn an_underload_is_of_offers_that_wait_and_not_of_an_unused_broker() {
    check(
        "asks kind=never; offers kind=never; meter kind=better update=100ms; \
         meter kind=underload target=10ms interval=50ms",
        "
          0 wait  -> better 0 0                      | next 100
        100 wait  -> better 0 100                    | next 200
        200 wait  -> better 0 200                    | next 300
        300 offer x                                  | next 300
        300 wait  -> better 0 0                      | next 400
        400 wait  -> better 0 100                    | next 450
        450 wait  -> better 0 150, underload raised  | next 550
        ",
    );
}

/// D14: upstream accepted it and died of the first request.
#[test]
fn a_hash_of_a_hash_is_refused_before_it_can_do_harm() {
    check(
        "asks kind=never; offers kind=never",
        "
        0 ask a
        1 change asks kind=never; offers fair_by=hash:hash:8 -> offers.fair_by breaks a rule
        2 offer x -> x meets a -2 0, a meets x 2 2
        ",
    );
}

/// D16: upstream honoured it for the first sleep only.
#[test]
fn the_deadline_of_the_meters_is_always_the_brokers_too() {
    check(
        "asks kind=timeout timeout=1s; offers kind=never; meter kind=better update=100ms",
        "
          0 ask a                        | next 0
          0 wait  -> better 0 0        | next 100
         30 ask b                      | next 100
        100 wait  -> better 100 0      | next 200
        200 wait  -> better 200 0      | next 300
        950 wait  -> better 950 0      | next 1000
        ",
    );
}

#[test]
fn a_late_stamp_does_not_move_the_lead_of_later_asks() {
    check(
        "asks kind=never; offers kind=never; meter kind=better; read_after 1",
        "
        100 ask a            -> better 0 0
        110 offer x@40       -> better 70 70, x meets a 60 70, a meets x -60 10
        130 cancel a         -> none, better 30 0
        ",
    );
}

#[test]
fn a_closed_broker_has_no_deadline_and_its_meters_stay_silent() {
    for fair in ["", "fair_by=flow"] {
        check(
            &format!("asks kind=codel {fair}; offers kind=never; meter kind=better; read_after 1"),
            "
            0 ask a -> better 0 0
            1 close -> Unrank, a shed closed 1                           | next never
            2 change asks kind=never; offers kind=never; meter kind=better \
              -> better 5000 5000, Unrank                                 | next never
            3 ask b -> b shed closed 0                                   | next never
            ",
        );
    }
}

#[test]
fn an_ask_that_may_wait_forever_is_still_told_when_to_come_back() {
    let mut room = Room::new("asks kind=never; offers kind=never");
    let mut options = room.broker.options();
    options.asks = queue::Options::timeout(std::time::Duration::MAX);
    let mut effects = Vec::new();
    room.broker
        .reconfigure(options, Instant::START, &mut effects)
        .unwrap();
    script::check(
        &mut room,
        "
        0 ask a
        5 offer x -> x meets a -5 0, a meets x 5 5
        6 ask b
        7 try ask c -> c shed busy 0
        ",
    );
    let refusal = room.refusals.last().expect("an offer was refused");
    assert_eq!(refusal.retry_after, std::time::Duration::from_millis(10));
}

/// D10: an ask that leaves is not searched for.
#[test]
fn a_hundred_thousand_leave_in_any_order_without_a_search() {
    const LEN: usize = 100_000;
    // Coprime to the length: from the middle on, each ask once.
    const STRIDE: usize = 37_003;
    for queue in [
        "kind=timeout timeout=1h max=none",
        "kind=codel max=none fair_by=flow flows_max=1000",
        "kind=never max=none order=lifo fair_by=hash:64",
    ] {
        let mut room = Room::new(&format!("asks {queue}; offers kind=never"));
        let tickets: Vec<_> = (0..LEN).map(|at| room.join(at)).collect();
        let mut effects = Vec::new();
        for n in 0..LEN {
            let at = (LEN / 2 + n * STRIDE) % LEN;
            let left = if n % 2 == 0 {
                let left = room
                    .broker
                    .cancel(tickets[at], Instant::START, &mut effects);
                left.into_iter().collect()
            } else {
                let tag = Tag(at as u64);
                room.broker.cancel_tag(tag, Instant::START, &mut effects)
            };
            assert_eq!(left.len(), 1);
            assert_eq!(room.broker.len(Side::Ask), LEN - n - 1);
        }
        assert!(effects.is_empty());
        assert_eq!(room.broker.deadline(), None);
    }
}

fn check(options: &str, script: &str) {
    script::check(&mut Room::new(options), script);
}

/// A broker, the names of the asks and offers, and which of them are dead.
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
        let terms = AskOptions {
            wait,
            deadline: named.get("deadline").map(|word| millis(word)),
            promised: named.contains_key("deadline"),
            tag: named.get("tag").map(|word| Tag(word.parse().unwrap())),
            ..AskOptions::new(if sent.is_empty() { now } else { millis(sent) })
        };
        let reply = Name(name.into(), Rc::clone(&self.dead));
        let mut effects = Vec::new();
        let came = match side {
            Side::Ask => self.broker.ask(&terms, reply, now, &mut effects),
            Side::Offer => self.broker.offer(&terms, reply, now, &mut effects),
        };
        let ticket = came.into_effect(&mut effects);
        self.tickets.insert(name.into(), ticket);
        self.say(effects)
    }

    /// One of very many, with a tag, a flow and a deadline of its own.
    fn join(&mut self, at: usize) -> Ticket {
        let at = at as u64;
        let terms = AskOptions {
            tag: Some(Tag(at)),
            flow: Flow(at % 1500),
            deadline: Some(Instant::from_nanos(1_000_000 + at)),
            promised: true,
            ..AskOptions::new(Instant::START)
        };
        let reply = Name(String::new(), Rc::clone(&self.dead));
        self.broker
            .ask(&terms, reply, Instant::START, &mut Vec::new())
            .into_effect(&mut Vec::new())
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
                ask: party,
                refusal,
                ..
            }
            | Effect::ShedOffer {
                offer: party,
                refusal,
                ..
            } => {
                self.refusals.push(refusal);
                let waited = span(refusal.waited.as_nanos());
                vec![format!(
                    "{} shed {} {waited}",
                    party.0,
                    refusal.reason.word()
                )]
            }
            Effect::Forget(Gone::Ask(party) | Gone::Offer(party)) => {
                vec![format!("{} gone", party.0)]
            }
            Effect::Meter(meter::Effect::Better { ask, offer }) => {
                let (ask, offer) = (span(ask.as_nanos()), span(offer.as_nanos()));
                vec![format!("better {ask} {offer}")]
            }
            Effect::Meter(meter::Effect::Alarm { alarm, set }) => {
                let what = if set { "raised" } else { "cleared" };
                vec![format!("{alarm} {what}")]
            }
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
            Gone::Ask(party) | Gone::Offer(party) => format!("{} left", party.0),
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

/// `asks ...; offers ...`, then maybe `meter ...` and `read_after ...`.
fn parse(words: &str) -> Result<Options, rideau_core::OptionError> {
    let mut options = Options::default();
    for part in words.split(';') {
        let (part, words) = part.trim().split_once(' ').expect("a part has options");
        let queue = || {
            let parsed = Settings::parse(words).and_then(queue::Options::parse);
            parsed.map_err(|error| error.within(part))
        };
        match part {
            "asks" => options.asks = queue()?,
            "offers" => options.offers = queue()?,
            "meter" => {
                let meter = meter::Options::parse(Settings::parse(words)?)?;
                options.meters.push(meter);
            }
            "read_after" => options.read_after = words.parse().unwrap(),
            other => panic!("a broker has no {other}"),
        }
    }
    Ok(options)
}
