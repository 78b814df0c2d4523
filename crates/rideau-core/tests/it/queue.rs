//! Queues: order, limits, and the numbers of every law.

use std::collections::HashMap;
use std::time::Duration;

use rideau_core::queue::{AskOptions, Options, Queue, Shed};
use rideau_core::{Flow, Instant, Ledger, Reason, Reply, Settings, Ticket};

use crate::script::{self, Stage, in_millis, instant, millis, options};

#[test]
fn a_full_queue_refuses_the_newest() {
    check(
        "kind=never max=2",
        "
        0 in a
        1 in b
        2 in c -> c shed full 0 | len 2 next never
        3 out -> a
        3 in d
        9 out -> b
        9 out -> d
        9 out -> empty
        ",
    );
}

#[test]
fn a_full_queue_sheds_the_oldest_and_serves_the_newest() {
    check(
        "kind=never max=2 overflow=oldest order=lifo",
        "
        0 in a
        1 in b
        2 in c -> a shed full 2
        3 out -> c
        4 out -> b
        5 out -> empty
        ",
    );
}

#[test]
fn asks_that_waited_for_the_timeout_are_shed_but_for_the_minimum() {
    check(
        "kind=timeout timeout=10ms min=1",
        "
         0 in a                            | next never
         2 in b                            | next 10
         4 in c                            | next 10
        10 wait -> a shed timeout 10       | next 12
        11 wait
        12 wait -> b shed timeout 10       | len 1 next never
        30 wait
        31 in d -> c shed timeout 27       | len 1
        35 out -> d
        60 out -> empty
        ",
    );
}

#[test]
fn a_timeout_sheds_the_oldest_before_the_newest_is_served() {
    check(
        "kind=timeout timeout=10ms order=lifo",
        "
         0 in a
         5 in b
         9 in c
        16 out -> a shed timeout 16, b shed timeout 11, c | len 0
        19 out -> empty
        ",
    );
}

#[test]
fn a_zero_timeout_lets_the_newcomer_replace_the_minimum() {
    check(
        "kind=timeout timeout=0 min=1",
        "
        0 in a                      | len 1
        0 in b -> a shed timeout 0  | len 1
        3 out -> b
        ",
    );
}

#[test]
fn codel_sheds_at_the_dequeue_after_a_slow_interval() {
    check(
        "kind=codel target=5ms interval=100ms",
        "
          0 in a b c d e f
          4 out -> a
         10 out -> b                        | next 110
         60 out -> c                        | next 110
        110 out -> d shed codel 110, e      | len 1 next 210
        111 out -> f                        | len 0 next never
        111 out -> empty
        ",
    );
}

#[test]
fn codel_protects_the_minimum() {
    check(
        "kind=codel target=5ms interval=100ms min=3",
        "
          0 in a b c d e f
         10 out -> a                        | next 110
        110 out -> b shed codel 110, c      | len 3 next never
        500 out -> d
        500 out -> e
        ",
    );
}

#[test]
fn codel_sheds_by_its_timer_alone_ever_faster() {
    check(
        "kind=codel target=5ms interval=100ms",
        "
          0          in a b c d e f g h
          5          wait                               | next 105
        104.9        wait
        105          wait -> a shed codel 105           | next 205
        205          wait -> b shed codel 205           | next 275.710678
        275.710678   wait -> c shed codel 275.710678    | next 333.445704
        333.445704   wait -> d shed codel 333.445704    | next 383.445704
        383.445704   wait -> e shed codel 383.445704    | next 428.167063
        428.167063   wait -> f shed codel 428.167063    | next 468.991892
        468.991891   wait
        506.788338   wait -> g shed codel 506.788338    | next 506.788339
        ",
    );
}

#[test]
fn codel_forgets_an_old_episode() {
    check(
        "kind=codel target=5ms interval=100ms",
        "
           0          in a b c d e f g h
           5          wait
         105          wait -> a shed codel 105
         205          wait -> b shed codel 205
         275.710678   wait -> c shed codel 275.710678
         333.445704   wait -> d shed codel 333.445704
         335          out -> e
         335          out -> f
         335          out -> g
         335          out -> h
         335          out -> empty
        2000          in p q
        2005          wait                              | next 2105
        2105          wait -> p shed codel 105          | next 2205
        ",
    );
}

#[test]
fn codel_takes_a_recent_episode_up_again() {
    check(
        "kind=codel target=5ms interval=100ms",
        "
           0          in a b c d e f g h
           5          wait
         105          wait -> a shed codel 105
         205          wait -> b shed codel 205
         275.710678   wait -> c shed codel 275.710678
         333.445704   wait -> d shed codel 333.445704   | next 383.445704
         335          out -> e
         335          out -> f
         335          out -> g
         335          out -> h
         335          out -> empty
         400          in p q r
         405          wait                              | next 505
         505          wait -> p shed codel 105          | next 575.710678
        ",
    );
}

#[test]
fn codel_remembers_an_episode_for_eight_intervals_and_not_longer() {
    for (start, next) in [
        ("1078.445703", "1254.156381"),
        ("1078.445704", "1283.445704"),
    ] {
        let slow = in_millis(i128::from(millis(start).as_nanos()) + 5_000_000);
        let shed = in_millis(i128::from(millis(start).as_nanos()) + 105_000_000);
        check(
            "kind=codel target=5ms interval=100ms",
            &format!(
                "
                   0          in a b c d e f g h
                   5          wait
                 105          wait -> a shed codel 105
                 205          wait -> b shed codel 205
                 275.710678   wait -> c shed codel 275.710678
                 333.445704   wait -> d shed codel 333.445704   | next 383.445704
                 335          out -> e
                 335          out -> f
                 335          out -> g
                 335          out -> h
                 335          out -> empty
                 {start}      in p q
                 {slow}       wait                              | next {shed}
                 {shed}       wait -> p shed codel 105          | next {next}
                "
            ),
        );
    }
}

#[test]
fn codel_follows_a_change_of_its_options_at_once() {
    check(
        "kind=codel target=100ms interval=1s",
        "
          0 in a b c
        100 wait                                                  | next 1100
        150 change kind=codel target=20ms interval=200ms          | next 350
        350 wait -> a shed codel 350                              | next 550
        360 change kind=codel target=20ms interval=50ms           | next 410
        410 wait -> b shed codel 410                              | next 445.355339
        420 change kind=codel target=20ms interval=50ms max=0 -> c shed full 420
        ",
    );
}

/// D1: catching up sheds only those whose wait is over the target.
#[test]
fn codel_catches_up_without_shedding_the_fresh() {
    check(
        "kind=codel target=5ms interval=100ms",
        "
          0 in a b
          5 wait
        105 wait -> a shed codel 105
        900 in p@899 -> b shed codel 900   | len 1 next 904
        ",
    );
}

/// D2: a lowered target counts from the change on, not from an old gate.
#[test]
fn codel_does_not_keep_the_gate_of_its_old_target() {
    check(
        "kind=codel target=100ms interval=1s",
        "
         0 in a b
         1 wait                                            | next 100
        10 change kind=codel target=5ms interval=50ms      | next 60
        60 wait -> a shed codel 60
        ",
    );
}

/// D3: a fresh last one is delivered and does not end a LIFO episode.
#[test]
fn codel_serving_the_newest_keeps_its_episode_over_a_fresh_last_one() {
    check(
        "kind=codel target=5ms interval=100ms order=lifo",
        "
          0 in a b
          5 wait
        105 wait -> a shed codel 105       | next 205
        204 out -> b
        206 in p
        207 out -> p
        300 in q r s                       | next 305
        305 wait -> q shed codel 5, r shed codel 5 | next 333.445704
        ",
    );
}

#[test]
fn a_bounded_codel_sheds_long_waits_only_while_it_sheds_at_all() {
    check(
        "kind=bounded-codel target=100ms interval=1s",
        "
           0 in a
         100 wait                                          | next 1100
         850 in b
         900 in c
        1050 in d e
        1100 wait -> a shed codel 1100, b shed bound 250   | len 3 next 1100.000001
        1100.000001 wait -> c shed bound 200.000001        | len 2 next 1250.000001
        1150 out -> d
        1151 out -> e
        1151 out -> empty
        ",
    );
}

#[test]
fn a_bounded_codel_does_not_serve_a_newest_one_over_the_bound() {
    check(
        "kind=bounded-codel target=100ms interval=1s order=lifo",
        "
           0 in a
         100 wait                             | next 1100
        1050 in b
        1100 wait -> a shed codel 1100        | next 1250.000001
        1300 out -> b shed bound 250, empty   | len 0
        ",
    );
}

#[test]
fn a_min_delay_queue_sheds_over_twice_the_target_after_a_bad_interval() {
    check(
        "kind=min-delay target=10ms interval=100ms",
        "
          0 in a b c d e f g
          1 out -> a
        102 out -> b
        150 out -> c
        203 out -> d
        204 in h
        204 out -> e shed min-delay 204, f shed min-delay 204, g shed min-delay 204, h
        ",
    );
}

#[test]
fn a_min_delay_queue_that_serves_no_ask_looks_once_an_interval() {
    check(
        "kind=min-delay target=10ms interval=100ms",
        "
          0 in a                             | next 100
         50 in b
         95 in c
        100 wait -> a shed min-delay 100, b shed min-delay 50 | len 1 next 200
        ",
    );
}

#[test]
fn a_min_delay_queue_counts_asks_it_serves_out_of_its_minimum() {
    check(
        "kind=min-delay target=10ms interval=100ms min=2",
        "
          0 in a b
         99 out -> a
        100 in c
        101 in d           | len 3 next 199
        ",
    );
}

#[test]
fn a_min_delay_flow_that_left_is_not_overloaded() {
    check(
        "kind=min-delay target=10ms interval=100ms fair_by=flow",
        "
          0 in a1 a2
        100 wait -> a1 shed min-delay 100, a2 shed min-delay 100 | shedding true
        101 out -> empty                                         | shedding false
        ",
    );
}

#[test]
fn behind_a_standing_queue_no_ask_waits_over_the_target() {
    check(
        "kind=standing target=5ms interval=100ms",
        "
          0 in a                               | next 100
         60 in b
         99 out -> a
        101 in c                               | next 106
        106 wait -> c shed standing 5          | next 160
        160 wait -> b shed standing 100        | len 0 next never
        161 in d                               | next 261
        ",
    );
}

#[test]
fn a_queue_stands_as_soon_as_it_was_not_empty_for_the_interval() {
    check(
        "kind=standing target=5ms interval=100ms",
        "
          0          in a
         50          in b
         99.999999   in c
        100          out -> a shed standing 100, b
        100          in d                    | next 105
        105          wait -> d shed standing 5 | next 199.999999
        ",
    );
}

#[test]
fn a_limit_that_has_come_at_arrival_counts_at_once() {
    check(
        "kind=standing target=5ms interval=100ms",
        "150 in a@10 -> a shed standing 140   | len 0 next never",
    );
}

#[test]
fn an_ask_the_minimum_spared_goes_once_more_than_the_minimum_wait() {
    check(
        "kind=standing target=5ms interval=100ms min=1",
        "
          0 in a
        100 wait                           | len 1 next never
        150 in b -> a shed standing 150    | len 1 next 155
        ",
    );
}

#[test]
fn those_with_the_same_deadline_go_in_the_order_they_came() {
    check(
        "kind=never",
        "
        0 in a b
        1 out -> a
        1 out -> b
        2 in c d deadline=9
        9 wait -> c shed deadline 7, d shed deadline 7
        ",
    );
}

#[test]
fn an_askers_own_deadline_counts_under_every_law() {
    for law in [
        "never",
        "timeout",
        "codel",
        "bounded-codel",
        "min-delay",
        "standing",
    ] {
        check(
            &format!("kind={law}"),
            "
             0 in a deadline=7             | next 7
             1 in b deadline=3             | next 3
             2 in c deadline=2 -> c shed deadline 0
             3 wait -> b shed deadline 2   | len 1 next 7
             7 out -> a shed deadline 7, empty
            ",
        );
    }
}

#[test]
fn an_adaptive_queue_serves_the_newest_once_the_oldest_is_slow() {
    check(
        "kind=never order=adaptive slow=50ms",
        "
         0 in a b
        10 in c
        20 out -> a
        50 out -> c
        51 in d
        52 out -> d
        53 out -> b
        60 in e f
        61 out -> e
        ",
    );
}

#[test]
fn flows_take_turns() {
    check(
        "kind=timeout timeout=100ms fair_by=flow",
        "
         0 in a1 a2 a3
         1 in b1
         2 in c1
        10 out -> a1
        10 out -> b1
        10 out -> c1
        10 out -> a2
        11 in b2
        12 out -> b2
        12 out -> a3
        12 out -> empty
        ",
    );
}

#[test]
fn each_flow_has_its_own_limit() {
    check(
        "kind=never max=1 fair_by=flow",
        "
        0 in a1
        0 in a2 -> a2 shed full 0
        0 in b1
        0 in b2 -> b2 shed full 0
        1 out -> a1
        1 out -> b1
        1 out -> empty
        ",
    );
}

#[test]
fn a_flow_with_more_weight_is_served_more_in_its_turn() {
    check(
        "kind=never fair_by=flow weights=a:2",
        "
        0 in a1 a2 a3 a4 b1 b2
        1 out -> a1
        1 out -> a2
        1 out -> b1
        1 out -> a3
        1 out -> a4
        1 out -> b2
        ",
    );
}

#[test]
fn a_sparse_flow_has_its_first_turn_before_the_others() {
    check(
        "kind=never fair_by=flow sparse_first=yes",
        "
        0 in a1 a2 a3 b1 b2
        1 out -> a1
        1 out -> b1
        1 out -> a2
        2 in c1
        2 out -> c1
        2 in c2
        2 out -> b2
        2 out -> a3
        2 out -> c2
        ",
    );
}

#[test]
fn flows_beyond_the_limit_share_one_line() {
    check(
        "kind=never fair_by=flow flows_max=2",
        "
        0 in a1 a2 b1 b2 c1 d1
        1 out -> a1
        1 out -> b1
        1 out -> c1
        1 out -> a2
        1 out -> b2
        1 out -> d1
        1 out -> empty
        2 in e1 c2
        2 out -> e1
        ",
    );
}

#[test]
fn each_flow_has_its_own_law_and_remembers_its_episode() {
    check(
        "kind=codel target=5ms interval=100ms fair_by=flow",
        "
          0          in a1 a2 a3 a4 a5
          5          wait                                | next 105
         50          in b1
         55          wait                                | next 105
        105          wait -> a1 shed codel 105           | next 155
        155          wait -> b1 shed codel 105           | next 205
        205          wait -> a2 shed codel 205           | next 275.710678
        275.710678   wait -> a3 shed codel 275.710678    | next 333.445704
        300          out -> a4
        300          out -> a5
        300          out -> empty                        | next never
        400          in a6 b2 b3
        405          wait                                | next 505
        505          wait -> a6 shed codel 105, b2 shed codel 105 | next 605
        ",
    );
}

#[test]
fn a_change_of_the_index_keeps_all_asks_in_order() {
    check(
        "kind=never fair_by=flow",
        "
        0 in a1 a2
        1 in b1
        2 in c1
        3 change kind=never
        4 out -> a1
        4 out -> a2
        4 out -> b1
        5 in a3
        6 change kind=never fair_by=flow
        7 in c2
        8 out -> c1
        8 out -> a3
        8 out -> c2
        ",
    );
}

#[test]
fn a_change_of_the_law_keeps_all_asks() {
    check(
        "kind=never",
        "
         0 in a b
         1 in c
         2 change kind=timeout timeout=10ms         | len 3 next 10
         3 change kind=standing target=1ms interval=20ms | len 3 next 20
         4 change kind=codel target=5ms interval=100ms max=2 -> c shed full 3 | len 2
         5 change kind=never overflow=oldest max=1 -> a shed full 5
         6 out -> b
        ",
    );
}

#[test]
fn a_change_trims_no_ask_for_those_that_had_to_go_anyway() {
    check(
        "kind=never",
        "
        0 in a deadline=5
        1 in b
        5 change kind=never max=1 -> a shed deadline 5  | len 1
        ",
    );
}

#[test]
fn a_closed_queue_is_not_due() {
    for fair in ["", "fair_by=flow"] {
        check(
            &format!("kind=timeout timeout=10ms {fair}"),
            "
            0 in a b                                        | next 10
            1 close -> a shed closed 1, b shed closed 1     | len 0 next never
            ",
        );
    }
}

#[test]
fn a_queue_without_a_real_timeout_says_when_to_ask_again() {
    let options = Options::timeout(Duration::MAX);
    let mut queue = Queue::new(options, Instant::START).unwrap();
    let (mut ledger, mut shed) = (Ledger::default(), Vec::new());
    for now in [0, 5].map(Instant::from_nanos) {
        let ticket = ledger.open(());
        queue.push(ticket, &AskOptions::new(now), &mut ledger, now, &mut shed);
    }
    let now = Instant::from_nanos(10);
    queue.pop(&mut ledger, now, &mut shed).ticket().unwrap();
    let refusal = queue.refusal(Reason::Busy, now, now);
    assert_eq!(refusal.retry_after, Duration::from_nanos(20));
}

#[test]
fn a_bad_change_changes_nothing() {
    check(
        "kind=timeout timeout=10ms",
        "
         0 in a
         1 change kind=timeout timeout=1ms min=3 max=2 -> option `min` breaks a rule
         9 wait                     | len 1 next 10
        10 wait -> a shed timeout 10
        ",
    );
}

#[test]
fn any_ask_can_leave_from_anywhere() {
    for order in ["fifo", "lifo"] {
        check(
            &format!("kind=timeout timeout=10ms order={order} fair_by=flow"),
            "
             0 in a b c d e
             1 leave c
             1 leave a
             2 leave e
             2 leave c -> none            | len 2
            10 wait -> b shed timeout 10, d shed timeout 10
            ",
        );
    }
}

fn check(options: &str, script: &str) {
    script::check(&mut Hall::new(options), script);
}

/// A queue and the names of the asks that wait in it.
struct Hall {
    queue: Queue,
    ledger: Ledger<Name>,
    tickets: HashMap<String, Ticket>,
    now: Instant,
}

struct Name(String);

impl Reply for Name {}

impl Hall {
    fn new(options: &str) -> Self {
        Self {
            queue: Queue::new(parse(options).unwrap(), Instant::START).unwrap(),
            ledger: Ledger::default(),
            tickets: HashMap::new(),
            now: Instant::START,
        }
    }

    /// `a`, or `a@899` for an ask made at 899 ms.
    fn enter(&mut self, word: &str, deadline: Option<Instant>, now: Instant) -> Vec<Shed> {
        let (name, sent) = word.split_once('@').unwrap_or((word, ""));
        let ticket = self.ledger.open(Name(name.into()));
        self.tickets.insert(name.into(), ticket);
        let terms = AskOptions {
            deadline,
            promised: deadline.is_some(),
            flow: Flow::of(&name[..1]),
            ..AskOptions::new(if sent.is_empty() { now } else { millis(sent) })
        };
        let mut shed = Vec::new();
        self.queue
            .push(ticket, &terms, &mut self.ledger, now, &mut shed);
        shed
    }

    fn say(&mut self, shed: Vec<Shed>, now: Instant) -> Vec<String> {
        let say = |Shed { ticket, reason }| {
            let waited = now.nanos_since(self.ledger.sent(ticket));
            let Name(name) = self.ledger.close(ticket).expect("shed once");
            format!("{name} shed {} {}", reason.word(), in_millis(waited.into()))
        };
        shed.into_iter().map(say).collect()
    }
}

impl Stage for Hall {
    fn act(&mut self, words: &[&str], now: Instant) -> Vec<String> {
        self.now = now;
        let mut shed = Vec::new();
        let mut last = None;
        match words[0] {
            "in" => {
                let deadline = options(words).get("deadline").map(|word| millis(word));
                for word in words[1..].iter().filter(|word| !word.contains('=')) {
                    shed.extend(self.enter(word, deadline, now));
                }
            }
            "out" => {
                let taken = self.queue.pop(&mut self.ledger, now, &mut shed);
                let name = |ticket| self.ledger.close(ticket).expect("it was open").0;
                last = Some(taken.ticket().map_or("empty".into(), name));
            }
            "wait" => self.queue.advance(&mut self.ledger, now, &mut shed),
            "close" => self.queue.close(&mut self.ledger, &mut shed),
            "leave" => {
                let ticket = self.tickets[words[1]];
                let left = self.queue.remove(ticket, &mut self.ledger, now, &mut shed);
                self.ledger.close(ticket);
                last = (!left).then(|| "none".into());
            }
            "change" => {
                last = match parse(&words[1..].join(" ")) {
                    Ok(options) => {
                        let Self { queue, ledger, .. } = self;
                        queue.reconfigure(options, ledger, now, &mut shed).unwrap();
                        None
                    }
                    Err(error) => Some(format!("option `{}` breaks a rule", error.option)),
                }
            }
            other => panic!("no such input: {other}"),
        }
        let mut outcomes = self.say(shed, now);
        outcomes.extend(last);
        outcomes
    }

    fn look(&self, name: &str) -> String {
        match name {
            "len" => self.queue.len().to_string(),
            "shedding" => self.queue.is_shedding(self.now).to_string(),
            "next" => instant(self.queue.deadline()),
            other => panic!("nothing to look at: {other}"),
        }
    }
}

fn parse(words: &str) -> Result<Options, rideau_core::OptionError> {
    Options::parse(Settings::parse(words)?)
}
