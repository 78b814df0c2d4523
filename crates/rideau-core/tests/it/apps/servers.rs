//! Servers, which others start: which of them gets an ask, and when one is down.

use std::collections::BTreeMap;

use rideau_core::apps::{Apps, Ask, Came, Ended, Limits, Options, ProcessId, ServerRules};
use rideau_core::queue::AskOptions;
use rideau_core::{Instant, Machine, Reply};

use super::stage::{Harness, check};
use crate::script;

#[test]
fn asks_get_places_in_servers_and_none_is_started() {
    check(
        "max=1",
        &["servers=1"],
        "
           0 new
           0 server A     -> server 1        | used 0 live 0 A.ready 1
           0 server A     -> server 2        | A.ready 2
           1 ask A x avoid=1 -> x gets 2     | active 0 A.sessions 1 A.cold 0
           1 ask A y      -> y gets 1
           2 ask A z                         | A.waiting 1
           3 answer y     -> z gets 1        | 1.finished 1
           4 answer x
           4 answer z                        | A.finished 3
           5 spawn A
           5 restart A rolling               | A.gen 1
        ",
    );
}

#[test]
fn a_server_that_fails_three_times_gets_nothing_until_it_answers() {
    check(
        "",
        &["servers=1 concurrency=5"],
        "
           0 new
           0 server A       -> server 1
           0 ask A a        -> a gets 1
           0 ask A b        -> b gets 1
           0 ask A c        -> c gets 1
        1000 broken a                             | 1.state ready
        1001 timeout b
        1002 broken c       -> 1 down unreachable | 1.state down A.ready 0
        1003 ask A d        -> d refused down
        1501 wait                                 | 1.state down
        1502 wait           -> look at 1
        1502 wait
        1600 silent 1
        2599 wait
        2600 wait           -> look at 1
        2700 answers 1      -> 1 up               | 1.state ready
        2701 ask A e        -> e gets 1
        2702 answer e
        2703 ask A f        -> f gets 1
        2704 broken f                             | 1.state ready
        ",
    );
}

#[test]
fn failures_that_are_far_apart_are_none() {
    check(
        "",
        &["servers=1"],
        "
           0 new
           0 server A       -> server 1
           0 unreachable 1
        6000 unreachable 1
       10001 unreachable 1                        | 1.state ready
       16000 unreachable 1  -> 1 down unreachable
        ",
    );
}

#[test]
fn asks_that_wait_are_refused_when_the_last_server_is_down() {
    check(
        "",
        &["servers=1 sticky=60000"],
        "
           0 new
           0 server A         -> server 1
           0 server A         -> server 2
           0 ask A a avoid=2  -> a gets 1
           0 ask A b avoid=1  -> b gets 2
           1 ask A c
           1 ask A d sticky=1
           2 unwell 1         -> 1 down unwell       | A.waiting 2
           3 unwell 2         -> 2 down unwell, c shed down 2, d shed down 2
           4 answer a                                | A.sessions 1 1.state down
         502 wait             -> look at 1
         503 wait             -> look at 2
         504 answers 2        -> 2 up
         505 ask A e                                 | A.waiting 1
         506 answer b         -> e gets 2
        ",
    );
}

#[test]
fn a_server_that_is_up_for_a_moment_only_is_looked_at_ever_more_seldom() {
    let mut story = "0 new\n0 server A -> server 1\n0 unwell 1 -> 1 down unwell\n".to_owned();
    let mut at = 0;
    for wait in [500, 1000, 2000, 4000, 5000, 5000] {
        story += &format!("{} wait\n", at + wait - 1);
        at += wait;
        story += &format!("{at} wait -> look at 1\n{at} answers 1 -> 1 up\n");
        story += &format!("{at} unwell 1 -> 1 down unwell\n");
    }
    story += &format!("{} wait -> look at 1\n", at + 5_000);
    story += &format!("{} answers 1 -> 1 up\n", at + 5_000);
    story += &format!("{} unwell 1 -> 1 down unwell\n", at + 16_000);
    story += &format!("{} wait -> look at 1\n", at + 16_500);
    check("", &["servers=1"], &story);
}

#[test]
fn a_busy_server_that_answers_nothing_is_looked_at() {
    check(
        "",
        &["servers=1 concurrency=9"],
        "
           0 new
           0 server A       -> server 1
           0 ask A a        -> a gets 1
        4000 ask A b        -> b gets 1
        8000 answer b
       17999 wait
       18000 wait           -> look at 1
       18100 answers 1                      | 1.state ready
       28099 wait
       28100 wait           -> look at 1
       30100 silent 1       -> 1 down hung  | 1.sessions 1 1.state down
       30200 left a
       30600 wait           -> look at 1
       31000 answers 1      -> 1 up
       31000 wait                           | next never
       60000 ask A c        -> c gets 1
       61000 answer c
       70000 wait                           | next never
        ",
    );
}

#[test]
fn a_server_that_leaves_finishes_what_it_serves() {
    check(
        "",
        &["servers=1"],
        "
           0 new
           0 server A         -> server 1
           0 server A         -> server 2
           0 ask A a avoid=2  -> a gets 1
           1 detach 1         -> drain 1 detached  | 1.state draining A.ready 1
           1 detach 2         -> stop 2 detached   | 2.state stopping
           1 ask A b          -> b refused down
           1 server A         -> server 3
           2 ask A b          -> b gets 3
           3 answer a         -> stop 1 detached
           4 gone 1
           4 gone 2                                | live 0
           5 remove A         -> drain 3 closed
           6 answer b         -> stop 3 closed
           7 gone 3           -> removed A
           8 server A         -> server none
        ",
    );
}

#[test]
fn asks_wait_for_servers_that_are_looked_for_or_disabled() {
    check(
        "",
        &["servers=1"],
        "
           0 new
           0 ask A a        -> a refused down
           1 await A servers
           1 ask A b                           | A.waiting 1
           2 server A       -> server 1, b gets 1
           3 answer b
           4 await A none
           4 disable 1                         | 1.state disabled
           5 ask A c                           | A.waiting 1
           6 enable 1       -> c gets 1
           7 answer c
           8 unwell 1       -> 1 down unwell
           9 disable 1                         | 1.state disabled
           9 await A servers
           9 ask A d                           | A.waiting 1
        5000 wait                              | 1.state disabled
        5001 await A none
        5002 enable 1       -> d gets 1
        ",
    );
}

#[test]
fn asks_are_told_when_it_is_of_use_to_come_back() {
    let mut harness = Harness::new("", &["servers=1"]);
    script::check(
        &mut harness,
        "0 new\n0 server A -> server 1\n1000 unwell 1 -> 1 down unwell",
    );
    let now = Instant::from_nanos(1_100_000_000);
    let id = harness.apps.ids().next().expect("there is one");
    let refusal = harness.apps.would_refuse(id, now).expect("it is down");
    assert_eq!(refusal.retry_after.as_millis(), 400);
    let explained = harness.apps.explain(id, now).join("\n");
    assert!(
        explained.contains("The server is down; it is asked again in 400.0ms."),
        "{explained}"
    );
}

#[test]
fn closing_waits_for_servers_to_finish() {
    check(
        "",
        &["servers=1"],
        "
           0 new
           0 server A     -> server 1
           0 server A     -> server 2
           0 ask A a avoid=2 -> a gets 1
           0 unwell 2     -> 2 down unwell
           1 close        -> drain 1 closed, stop 2 closed
           2 gone 2
           3 answer a     -> stop 1 closed
           4 gone 1       -> closed  | next never
        ",
    );
}

/// The askers that wait: there are none.
struct NoWaiter;

impl Reply for NoWaiter {
    fn is_gone(&self) -> bool {
        false
    }
}

/// How many requests each of three servers got in 20 s, of clients that ask again and again.
/// A server needs about these milliseconds for each.
fn shares(clients: usize, millis: [u64; 3]) -> [u64; 3] {
    let mut effects = Vec::new();
    let mut now = Instant::START;
    let mut apps = Apps::new(Limits::default(), 7, now).unwrap();
    let options = Options {
        concurrency: Some(50),
        servers: Some(ServerRules::default()),
        ..Options::default()
    };
    let app = apps.add(options, now, &mut effects).unwrap();
    let servers = millis.map(|_| {
        apps.add_server(app, now, &mut effects)
            .expect("it is there")
    });
    let mut counts = [0; 3];
    let mut open = BTreeMap::new();
    while now < Instant::from_nanos(20_000_000_000) {
        while open.len() < clients {
            let ask = Ask {
                terms: AskOptions::new(now),
                sticky: None,
                avoid: None,
            };
            let came = apps.ask(app, &ask, || NoWaiter, now, &mut effects);
            let Came::Granted(session) = came else {
                panic!("there is room: {came:?}");
            };
            let is_its = |server: &ProcessId| *server == session.id.process;
            let at = servers.iter().position(is_its).expect("it is one of them");
            counts[at] += 1;
            let asked: u64 = counts.iter().sum();
            let took = millis[at] * 10_000 * (50 + asked * 7919 % 101);
            open.insert((now.after(took), asked), session.id);
        }
        let ((due, _), session) = open.pop_first().expect("some are served");
        now = due;
        apps.advance(now, &mut effects);
        apps.release(session, Ended::Answered, now, &mut effects);
    }
    counts
}

#[test]
fn equal_servers_get_equal_shares_and_a_slow_one_gets_fewer() {
    let [one, two, three] = shares(30, [20, 20, 20]);
    let all = one + two + three;
    for count in [one, two, three] {
        assert!((3 * count).abs_diff(all) < all / 20, "{one} {two} {three}");
    }
    let [fast, other, slow] = shares(30, [20, 20, 200]);
    assert!(fast.abs_diff(other) < fast / 10, "{fast} {other}");
    assert!(slow * 5 < fast, "{slow} of {fast}");
}
