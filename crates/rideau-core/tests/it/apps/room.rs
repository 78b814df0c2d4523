//! Room: how many processes there are, which app gets one started, and which
//! one goes.

use super::stage::check;

// F13, F21: per app, down to what it should have, and only when unused.
#[test]
fn idle_processes_go_down_to_the_least_each_app_has() {
    check(
        "",
        &["min=1 idle=1000", "idle=100"],
        "
           0 new          -> start A1 v1
           0 started 1
           0 ask B x      -> start B2 v1
           0 started 2    -> x gets 2
           0 ask A a      -> a gets 1
           0 spawn A      -> start A3 v1
           0 started 3
         500 answer a
        1000 wait         -> stop 3 idle
        1000 answer x
        1099 wait
        1100 wait         -> stop 2 idle
        9999 wait                          | A.ready 1
        9999 gone 2
        9999 gone 3                        | next never live 1
        ",
    );
}

// S39: time is what the driver says; nothing is due before it is.
#[test]
fn a_late_driver_only_does_late_what_was_due() {
    check(
        "",
        &["idle=1000"],
        "
           0 new
           0 ask A x      -> start A1 v1
           1 started 1    -> x gets 1
     3600000 wait                          | 1.state ready
     3600001 answer x
     3600900 wait                          | 1.state ready
     7200000 wait         -> stop 1 idle
        ",
    );
}

// S7, F16
#[test]
fn an_app_that_grows_takes_what_another_has_too_many_of() {
    let mut story = "0 new\n".to_owned();
    for n in 1..=9 {
        story += &format!("0 spawn B -> start B{n} v1\n0 started {n}\n");
    }
    story += "
           0 ask A a      -> start A10 v1
         100 started 10   -> a gets 10
         200 ask A b
         200 ask A c
         200 ask A d
         200 ask A e
         200 ask A f
         300 wait         -> stop 1 evicted, start A11 v1  | live 11 used 10
         310 gone 1       -> stop 2 evicted, start A12 v1
         320 gone 2
         400 started 11   -> b gets 11
         410 started 12   -> c gets 12                     | B.ready 7 A.ready 3
        ";
    check("max=10", &["", ""], &story);
}

// F16: what is the only one, and warm, is not for one that has another.
#[test]
fn an_app_that_grows_leaves_others_their_only_process() {
    check(
        "max=2",
        &["", ""],
        "
           0 new
           0 ask B x      -> start B1 v1
           1 started 1    -> x gets 1
           2 answer x
           3 ask A a      -> start A2 v1
         100 started 2    -> a gets 2
         101 ask A b
         101 ask A c
         101 ask A d
        5000 wait                          | A.wants_room true B.ready 1 used 2
        ",
    );
}

// F16: but a cold one that is worth far less is.
#[test]
fn an_app_that_grows_takes_a_process_not_asked_for_in_long() {
    check(
        "max=2 starve=1000",
        &["", ""],
        "
           0 new
           0 ask B x      -> start B1 v1
         100 started 1    -> x gets 1
         200 answer x
       50000 ask A a      -> start A2 v1
       50100 started 2    -> a gets 2
       50101 ask A b
       50102 ask A c
       50300 wait                          | A.wants_room true B.ready 1
       59000 wait                          | B.ready 1
       70000 ask A d
       70001 wait         -> stop 1 evicted, start A3 v1
        ",
    );
}

#[test]
fn an_app_without_a_process_takes_the_one_that_is_worth_least() {
    check(
        "max=2",
        &["", "", ""],
        "
           0 new
           0 ask A a      -> start A1 v1
         100 started 1    -> a gets 1
         200 answer a
         300 ask B b      -> start B2 v1
         400 started 2    -> b gets 2
         500 answer b
        9000 ask A a      -> a gets 1
        9001 answer a
        9002 ask C c      -> stop 2 evicted, start C3 v1 | used 2 live 3
        9003 ask B b                                     | B.wants_room true
        9010 gone 2       -> stop 1 evicted, start B4 v1
        ",
    );
}

// I3, F24: those on their way out are counted until nothing of them is left.
#[test]
fn a_start_waits_while_others_end() {
    check(
        "max=1 headroom=0",
        &["", ""],
        "
           0 new
           0 ask A a      -> start A1 v1
         100 started 1    -> a gets 1
         200 answer a
         300 ask B b      -> stop 1 evicted | live 1 used 0
         400 gone 1       -> start B2 v1    | live 1
        ",
    );
}

// S6, F17
#[test]
fn an_app_that_starves_gets_room_from_the_app_with_most() {
    check(
        "max=3 starve=5000",
        &["", "concurrency=1", ""],
        "
           0 new
           0 ask A a      -> start A1 v1
         100 started 1    -> a gets 1
         100 ask B b      -> start B2 v1
         200 started 2    -> b gets 2
         200 spawn B      -> start B3 v1
         300 started 3
         300 ask B d      -> d gets 3
        1000 ask C c                         | C.wants_room true starved 1
        5999 wait
        6000 wait         -> C starved for 2, drain 2 starved, start C4 v1 | live 4 used 3
        6500 started 4    -> c gets 4
        9000 answer b     -> stop 2 starved
        9001 answer a                        | A.finished 1 B.finished 1
        ",
    );
}

// F17: no app loses a process for the least that another should have.
#[test]
fn the_least_an_app_has_is_its_own() {
    check(
        "max=1 starve=1000",
        &["min=1", ""],
        "
           0 new          -> start A1 v1
           1 started 1
           2 ask B b deadline=9000
        8999 wait                            | A.ready 1 B.waiting 1
        9000 wait         -> b shed deadline 8998
        ",
    );
}

// F18: in the order in which they came to need room.
#[test]
fn apps_get_room_in_the_order_they_came() {
    check(
        "max=1 starve=99000",
        &["", "", ""],
        "
           0 new
           0 ask A a      -> start A1 v1
         100 started 1    -> a gets 1
         200 ask C c
         300 ask B b                         | starved 2
         400 answer a     -> stop 1 evicted, start C2 v1
         500 started 2    -> c gets 2
         600 gone 1
         700 answer c     -> stop 2 evicted, start B3 v1
        ",
    );
}

// S8, F13
#[test]
fn lowering_the_limit_lets_go_of_idle_ones_at_once_and_of_others_as_they_end() {
    let mut story = "0 new\n".to_owned();
    for n in 1..=10 {
        story += &format!("0 spawn A -> start A{n} v1\n0 started {n}\n");
    }
    for n in 1..=7 {
        story += &format!("{n} ask A n{n} -> n{n} gets {n}\n");
    }
    story += "
        100 limits max=4 -> stop 8 surplus, stop 9 surplus, stop 10 surplus, \
                            drain 1 surplus, drain 2 surplus, drain 3 surplus | used 4 live 10
        110 gone 8
        110 gone 9
        110 gone 10
        120 answer n1    -> stop 1 surplus
        130 ask A x                                                           | used 4
        140 gone 1
        150 answer n4    -> x gets 4
        160 ask A y
        160 ask A z
        160 ask B w                                                           | B.waiting 1
        170 limits max=9 -> start B11 v1, start A12 v1                        | live 8
        ";
    check("max=10 starts=2", &["", ""], &story);
}

// Too few of its own are no reason to take another's only process; an ask that
// waits is.
#[test]
fn an_ask_for_an_app_that_has_too_few_does_not_wait_longer_for_that() {
    check(
        "max=1",
        &["", "min=1"],
        "
           0 new          -> start B1 v1
           0 ask A a                          | starved 1
         100 failed 1     -> failing B 1, start A2 v1
         200 started 2    -> a gets 2
         300 answer a
         400 change B min=1                   | B.wants_room true A.ready 1
         500 ask B b      -> stop 2 evicted, start B3 v1
        ",
    );
}

// F14
#[test]
fn an_app_whose_starts_fail_takes_no_room_of_others() {
    check(
        "max=2",
        &["", ""],
        "
           0 new
           0 spawn B      -> start B1 v1
           0 started 1
           0 ask A a      -> start A2 v1
         100 failed 2     -> failing A 1, a shed starting 100
         101 spawn B      -> start B3 v1
         101 started 3
        5000 ask A b                          | A.wants_room true B.ready 2
        ",
    );
}

// I7
#[test]
fn no_more_start_at_a_time_than_may() {
    check(
        "max=5 starts=1",
        &["", "", ""],
        "
           0 new
           0 ask A a      -> start A1 v1
           0 ask B b
           0 ask C c                          | starting 1
         100 started 1    -> a gets 1, start B2 v1
         200 failed 2     -> failing B 1, b shed starting 200, start C3 v1
        ",
    );
}

// I2: the app's own limit, lowered while it works.
#[test]
fn an_app_has_no_more_than_it_may() {
    check(
        "max=9",
        &["max=2"],
        "
           0 new
           0 spawn A      -> start A1 v1
           0 started 1
           0 spawn A      -> start A2 v1
           0 started 2
           0 spawn A                          | used 2
           1 ask A a      -> a gets 1
           2 change A max=1 -> stop 2 surplus
           3 change A max=3 min=3 -> start A3 v1
        ",
    );
}
