//! Apps: which ask gets a place in which process, and what is started and
//! stopped.
//!
//! Scenarios are named S, flaws of the seed F, as in the specification.

mod deploy;
mod faults;
mod learning;
mod room;
mod servers;
mod stage;
mod traffic;
mod trial;

use rideau_core::apps::AppId;

use self::stage::{Harness, check};
use crate::script::{self, millis};

// ----- Places -----

// F11, F31
#[test]
fn the_first_ask_starts_a_process_and_gets_its_place() {
    check(
        "",
        &[""],
        "
           0 new
           0 ask A x      -> start A1 v1   | A.waiting 1 used 1 active 0
         500 started 1    -> x gets 1      | A.waiting 0 A.cold 1 A.start_time 500 active 1
         600 answer x                      | A.finished 1 A.sessions 0 1.finished 1 active 0
         700 ask A y      -> y gets 1      | A.cold 1
         800 answer y                      | next never
        ",
    );
}

#[test]
fn an_app_says_how_busy_it_is() {
    check(
        "",
        &["concurrency=2 max=2", "servers=1 concurrency=3"],
        "
           0 new                               | A.load 0/2/0+1000 B.load none
           0 ask A a      -> start A1 v1       | A.load 0/2/1+1000
          10 started 1    -> a gets 1          | A.load 1/2/0
          10 ask A b      -> b gets 1          | A.load 0/2/0
          10 ask A c                           | A.load 0/2/1
          20 answer a     -> c gets 1          | A.load 0/2/0
          20 answer b                          | A.load 1/2/0
          30 await B servers                   | B.load 0/3/0+0
          30 server B     -> server 2          | B.load 3/3/0
          30 server B     -> server 3          | B.load 6/6/0
          30 ask B d avoid=3 -> d gets 2       | B.load 5/6/0
          30 disable 3                         | B.load 2/3/0
          40 unwell 2     -> 2 down unwell     | B.load 0/3/0+0
          40 await B none                      | B.load none
          50 remove A     -> drain 1 closed    | A.load none
        ",
    );
}

// S2, F1: the counter went up twice for each session.
#[test]
fn each_request_is_counted_once() {
    check(
        "",
        &["requests=4"],
        "
           0 new
           0 ask A x      -> start A1 v1
           1 started 1    -> x gets 1
           2 answer x                      | 1.finished 1
           3 ask A x      -> x gets 1
           4 again x
           4 again x                       | 1.finished 2 A.finished 2
        ",
    );
}

// S3, F1, F2
#[test]
fn a_process_goes_after_as_many_requests_and_finishes_those_that_overlap() {
    check(
        "",
        &["requests=4 concurrency=2"],
        "
           0 new
           0 ask A a      -> start A1 v1
           1 started 1    -> a gets 1
           2 answer a
           3 ask A a      -> a gets 1
           4 answer a
           5 ask A a      -> a gets 1
           6 answer a                      | 1.finished 3 1.state ready
           7 ask A a      -> a gets 1
           7 ask A b      -> b gets 1
           8 answer a     -> drain 1 used  | 1.state draining A.ready 0 used 0 live 1
           9 answer b     -> stop 1 used   | 1.finished 5 A.finished 5 A.used 1
          10 gone 1                        | live 0 next never
        ",
    );
}

// S3: with too few left, or an ask waiting, another is started first.
#[test]
fn a_used_up_process_serves_until_there_is_another_if_it_is_needed() {
    check(
        "",
        &["requests=1 min=1"],
        "
           0 new          -> start A1 v1
           1 started 1
           2 ask A x      -> x gets 1
           3 answer x     -> start A2 v1   | 1.state ready
           4 ask A y      -> y gets 1
           5 started 2    -> drain 1 used  | A.ready 1
           6 answer y     -> stop 1 used
        ",
    );
}

// S4, F20
#[test]
fn a_burst_on_a_cold_app_has_one_start_and_all_are_served_in_order() {
    let mut story = "0 new\n0 ask A n0 -> start A1 v1\n".to_owned();
    for n in 1..50 {
        story += &format!("0 ask A n{n} | starting 1\n");
    }
    story += "2000 started 1 -> n0 gets 1\n";
    for n in 1..50 {
        let at = 2000 + 20 * n;
        story += &format!(
            "{at} wait\n{at} answer n{} -> n{n} gets 1 | used 1\n",
            n - 1
        );
    }
    story += "3000 answer n49 | A.starts 1 A.waiting 0 A.finished 50\n";
    check("max=10", &[""], &story);
}

// S5
#[test]
fn an_app_grows_when_a_start_helps_waiting_asks() {
    let mut story = "0 new\n0 ask A n0 -> start A1 v1\n".to_owned();
    for n in 1..50 {
        story += &format!("0 ask A n{n}\n");
    }
    story += "
        2000 started 1   -> n0 gets 1
        2020 wait                         | starting 0
        2050 wait        -> start A2 v1
        2200 wait                         | starting 1
        2500 ask A x     -> start A3 v1   | starting 2
        4000 answer n0   -> n1 gets 1     | starting 2
        4050 started 2   -> n2 gets 2, start A4 v1
        ";
    check("max=10", &[""], &story);
}

// F18, F19
#[test]
fn a_new_ask_does_not_overtake_and_one_that_leaves_makes_way() {
    check(
        "max=1",
        &["queue=3"],
        "
           0 new
           0 ask A a      -> start A1 v1
           1 started 1    -> a gets 1
           2 ask A b
           2 ask A c
           2 ask A d
           2 ask A e      -> e refused full   | A.waiting 3
           3 cancel c     -> c left           | A.waiting 2
           3 cancel c
           4 answer a     -> b gets 1
           5 answer b     -> d gets 1         | A.waiting 0 A.sessions 1
        ",
    );
}

// S14, F19
#[test]
fn an_ask_that_is_gone_never_reaches_a_process() {
    check(
        "",
        &[""],
        "
           0 new
           0 ask A a      -> start A1 v1
           0 ask A b
           1 dies a
           2 cancel b     -> b left           | A.waiting 1
           3 started 1    -> a gone           | A.waiting 0 A.sessions 0 1.state ready
        ",
    );
}

// S15, F8
#[test]
fn a_wait_ends_in_time_and_the_start_goes_on() {
    check(
        "",
        &["timeout=1000"],
        "
           0 new
           0 ask A a        -> start A1 v1
         500 ask A b deadline=800
         800 wait           -> b shed deadline 300
        1000 wait           -> a shed timeout 1000 | starting 1
        5000 started 1                              | A.ready 1
        5001 ask A c        -> c gets 1
        ",
    );
}

// F28, F31: fewest sessions first, and of equals the last used.
#[test]
fn the_least_busy_process_is_used_and_of_equals_the_last_used() {
    check(
        "",
        &["concurrency=2 min=2"],
        "
           0 new          -> start A1 v1
           1 started 1    -> start A2 v1
           2 started 2
           3 ask A a      -> a gets 2
           4 ask A b      -> b gets 1
           5 answer b
           6 answer a
           7 ask A c      -> c gets 2
           8 ask A d      -> d gets 1
           9 ask A e      -> e gets 1
          10 ask A f      -> f gets 2
          11 ask A g                      | A.waiting 1
          12 answer c     -> g gets 2
        ",
    );
}

// F29
#[test]
fn a_sticky_ask_waits_for_its_process_but_not_for_long() {
    check(
        "",
        &["min=2 sticky=1000"],
        "
           0 new                -> start A1 v1
        9000 started 1          -> start A2 v1
       18000 started 2
       18003 ask A a sticky=1   -> a gets 1
       18004 ask A b sticky=1                  | A.waiting 1
       18005 answer a           -> b gets 1
       18006 ask A c sticky=1
       18007 ask A d sticky=1
       18008 ask A e            -> e gets 2
       18009 answer b           -> c gets 1
       18010 cancel d           -> d left
       18011 ask A f sticky=1
       18500 answer e                          | A.waiting 1
       19011 wait               -> f gets 2
       19012 ask A g sticky=9                  | A.waiting 1
       19013 answer f           -> g gets 2
       19014 ask A h sticky=1
       19015 lost 1             -> start A3 v1 | A.waiting 1
       19016 answer g           -> h gets 2
        ",
    );
}

// F10: an ask that a process failed gets another.
#[test]
fn the_process_that_failed_one_is_the_last_it_gets() {
    check(
        "",
        &["min=2"],
        "
           0 new          -> start A1 v1
           1 started 1    -> start A2 v1
           2 started 2
           3 ask A a avoid=2    -> a gets 1
           4 ask A b avoid=2    -> b gets 2
        ",
    );
}

// S13, F5
#[test]
fn each_process_of_an_app_in_development_serves_one_request() {
    check(
        "",
        &["one_each=1 concurrency=16"],
        "
           0 new
           0 ask A a      -> start A1 v1
           0 ask A b      -> start A2 v1
           0 ask A c                          | starting 2
         100 started 1    -> a gets 1, start A3 v1
         110 started 2    -> b gets 2
         120 answer a     -> stop 1 used
         130 answer b     -> stop 2 used
         140 started 3    -> c gets 3
         150 answer c     -> stop 3 used
         160 ask A d      -> start A4 v1
        ",
    );
}

#[test]
fn a_stream_takes_no_place_and_is_a_session_to_its_end() {
    check(
        "",
        &["concurrency=2 streams=1 idle=1000"],
        "
           0 new
           0 ask A a      -> start A1 v1
           1 started 1    -> a gets 1
           2 ask A b      -> b gets 1
           2 ask A c
           3 stream a     -> c gets 1         | 1.sessions 2 1.streams 1 A.sessions 3
           4 stream a                         | 1.sessions 2 1.streams 1
           5 stream b                         | 1.sessions 2 1.streams 1
           6 answer b
           7 answer c
        2000 wait                             | 1.state ready
        3000 answer a                         | 1.streams 0 A.finished 3
        4000 wait         -> stop 1 idle
        ",
    );
}

#[test]
fn a_stream_takes_a_place_where_that_is_wanted_or_there_is_but_one() {
    for options in ["concurrency=1", "concurrency=2 streams=count"] {
        let others = match options {
            "concurrency=1" => "",
            _ => "1 ask A z      -> z gets 1",
        };
        check(
            "",
            &[options],
            &format!(
                "
           0 new
           0 ask A a      -> start A1 v1
           1 started 1    -> a gets 1
           {others}
           2 ask A b
           3 stream a                         | 1.streams 0
           4 answer a     -> b gets 1
                "
            ),
        );
    }
}

#[test]
fn waits_over_the_target_for_as_long_have_one_more_started() {
    check(
        "",
        &["target=100"],
        "
           0 new
           0 ask A a      -> start A1 v1
       60000 started 1    -> a gets 1
       60000 ask A b
       60101 wait
       60202 wait         -> start A2 v1
        ",
    );
}

// F5
#[test]
fn an_ask_that_does_not_want_to_wait_is_told_so() {
    check(
        "",
        &[""],
        "
           0 new
           0 ask A a now=1 -> a refused busy
           1 ask A b       -> start A1 v1
        ",
    );
}

#[test]
fn why_an_ask_waits_is_said_in_plain_words() {
    let mut harness = Harness::new("max=1", &["", ""]);
    let mut says = |story: &str, now: &str, app: u32, words: &str| {
        script::check(&mut harness, story);
        let said = harness.apps.explain(AppId(app), millis(now)).join(" ");
        assert!(said.contains(words), "{said}");
    };
    says("0 ask A a -> start A1 v1", "10", 0, "1 wait for a start");
    says(
        "20 started 1 -> a gets 1\n30 ask B b",
        "40",
        1,
        "waited for room",
    );
    says("40 ask A c", "50", 0, "the app may have 1 process.");
    let story = "60 answer a -> c gets 1\n61 lost 1 -> start B2 v1\n62 gone 1\n\
                 70 failed 2 -> failing B 1, b shed starting 40";
    says(story, "71", 1, "Its starts failed 1 time");
}
