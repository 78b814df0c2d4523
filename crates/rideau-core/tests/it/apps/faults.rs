//! Starts that fail, and processes that do not do what they should.

use super::stage::check;

// S20, F9
#[test]
fn starts_that_fail_are_tried_ever_more_seldom() {
    check(
        "",
        &[""],
        "
           0 new
           0 ask A a      -> start A1 v1
          10 failed 1     -> failing A 1, a shed starting 10
          11 ask A b      -> b refused starting
         400 ask A b      -> b refused starting
         620 ask A c      -> start A2 v1
         621 ask A d                           | A.waiting 2 starting 1
         630 failed 2     -> failing A 2, c shed starting 10, d shed starting 9
        1400 ask A e      -> e refused starting
        1840 ask A f      -> start A3 v1
        1900 started 3    -> f gets 3          | A.start_failures 2
        1901 wait                              | A.failing 0
        ",
    );
}

// 1.7: only the asks that no process can serve.
#[test]
fn a_failed_start_refuses_no_ask_that_can_be_served() {
    check(
        "",
        &[""],
        "
           0 new
           0 ask A a      -> start A1 v1
         100 started 1    -> a gets 1
         101 ask A b
         300 wait         -> start A2 v1
         310 failed 2     -> failing A 1       | A.waiting 1
         311 answer a     -> b gets 1
         312 restart A rolling -> start A3 v2  | A.failing 0
        ",
    );
}

// Crash loop after ready.
#[test]
fn one_that_ends_soon_after_its_start_has_failed_to_start() {
    check(
        "",
        &["uptime=5000"],
        "
           0 new
           0 ask A a      -> start A1 v1
         100 started 1    -> a gets 1
         200 lost 1       -> failing A 1
         201 broken a
         202 gone 1
         203 ask A b      -> b refused starting
         900 ask A b      -> start A2 v1
        1000 started 2    -> b gets 2          | A.failing 1
        1100 lost 2       -> failing A 2
        1101 broken b
        9000 ask A c      -> start A3 v1
        9100 started 3    -> c gets 3          | A.failing 2
       14099 wait                              | A.failing 2
       14100 wait                              | A.failing 0
        ",
    );
}

#[test]
fn one_that_an_operator_kills_has_not_failed_to_start() {
    check(
        "",
        &["uptime=5000 min=1"],
        "
           0 new          -> start A1 v1
         100 started 1
         200 killed 1     -> start A2 v1       | A.failing 0 A.start_failures 0
         201 gone 1
         202 killed 2     -> failing A 1       | A.start_failures 1
        ",
    );
}

// F23
#[test]
fn one_that_is_lost_is_replaced_at_once_where_it_is_needed() {
    check(
        "",
        &["min=1"],
        "
           0 new          -> start A1 v1
           1 started 1
        9000 lost 1       -> start A2 v1       | used 1 live 2
        9001 gone 1                            | live 1
        ",
    );
}

// S2, F10: a process that cannot be reached is taken out once.
#[test]
fn one_that_cannot_be_reached_goes_once_and_its_sessions_end_by_themselves() {
    check(
        "",
        &["concurrency=2"],
        "
           0 new
           0 ask A a      -> start A1 v1
         100 started 1    -> a gets 1
         200 ask A b      -> b gets 1
         201 unreachable 1 -> drain 1 unreachable
         202 unreachable 1
         203 unused b                          | 1.finished 0 1.sessions 1
         204 ask A b      -> start A2 v1
         205 answer a     -> stop 1 unreachable | 1.finished 1
         206 gone 1                            | used 1 live 1 A.sessions 0
         207 started 2    -> b gets 2
        ",
    );
}

// F9: a start that cannot be connected to has failed.
#[test]
fn one_that_could_never_be_reached_has_failed_to_start() {
    check(
        "",
        &["uptime=5000"],
        "
           0 new
           0 ask A a      -> start A1 v1
         100 started 1    -> a gets 1
         101 unreachable 1 -> drain 1 unreachable, failing A 1
         102 unused a     -> stop 1 unreachable
         103 ask A a      -> a refused starting
        ",
    );
}

// A kill says nothing of how the start went.
#[test]
fn a_process_that_is_killed_has_not_failed_to_start() {
    check(
        "",
        &["uptime=5000 min=1 max=2"],
        "
           0 new          -> start A1 v1
           1 started 1
           2 kill 1       -> kill 1 killed, start A2 v1  | A.failing 0
           3 gone 1                                      | A.start_failures 0
           4 kill 2       -> kill 2 killed, start A3 v1  | A.failing 0
           5 kill 2       -> kill 2 killed
           6 gone 2                                      | A.start_failures 0
           7 kill 2       -> no
           8 started 3
           9 ask A a      -> a gets 3
          10 detach 3     -> drain 3 detached, start A4 v1
          11 kill 3       -> kill 3 killed               | A.sessions 1
          12 gone 3
          13 broken a                                    | A.failing 0
        ",
    );
}

// The same for one that is killed while it starts.
#[test]
fn one_that_needs_too_much_memory_to_start_has_failed_to_start() {
    check(
        "",
        &["hard=200 min=1"],
        "
           0 new          -> start A1 v1
           1 memory 1 300 -> kill 1 memory_hard, failing A 1
           2 started 1    -> no
           3 gone 1                             | A.failing 1 starting 0
        ",
    );
}

// S19
#[test]
fn one_whose_requests_run_out_of_time_is_replaced() {
    check(
        "",
        &["concurrency=4 timeouts=3"],
        "
           0 new
           0 ask A a      -> start A1 v1
           1 started 1    -> a gets 1
           2 ask A b      -> b gets 1
           3 ask A c      -> c gets 1
           4 ask A d      -> d gets 1
        2000 timeout a
        2001 timeout b                         | 1.state ready
        2002 timeout c    -> drain 1 hung
        2003 timeout d    -> stop 1 hung       | A.sessions 0
        ",
    );
}

#[test]
fn time_outs_far_apart_are_no_sign() {
    check(
        "",
        &["concurrency=2 timeouts=2"],
        "
           0 new
           0 ask A a      -> start A1 v1
           1 started 1    -> a gets 1
        2000 timeout a
        3000 ask A b      -> b gets 1
       90000 timeout b                         | 1.state ready
       90001 ask A c      -> c gets 1
       90002 timeout c    -> stop 1 hung
        ",
    );
}

// A single place that a request has run out of time in is still taken.
#[test]
fn the_only_place_is_lost_with_the_first_time_out() {
    check(
        "",
        &["timeouts=3"],
        "
           0 new
           0 ask A a      -> start A1 v1
           1 started 1    -> a gets 1
        2000 timeout a    -> stop 1 hung
        ",
    );
}

#[test]
fn one_that_breaks_answer_after_answer_is_replaced() {
    check(
        "",
        &["timeouts=2"],
        "
           0 new
           0 ask A a      -> start A1 v1
           1 started 1    -> a gets 1
           2 broken a
           3 ask A a      -> a gets 1
           4 answer a
           5 ask A a      -> a gets 1
           6 broken a                          | 1.state ready
           7 ask A a      -> a gets 1
           8 broken a     -> stop 1 unreachable
        ",
    );
}

// S37
#[test]
fn too_much_memory_is_given_back_between_requests_and_far_too_much_at_once() {
    check(
        "",
        &["soft=100 hard=200"],
        "
           0 new
           0 ask A a      -> start A1 v1
           1 started 1    -> a gets 1
           2 memory 1 100
           3 memory 1 150 -> drain 1 memory_soft
           4 answer a     -> stop 1 memory_soft
           5 ask A a      -> start A2 v1
           6 started 2    -> a gets 2
           7 memory 2 300 -> kill 2 memory_hard  | A.sessions 1
           8 gone 2
           9 broken a                            | A.sessions 0
        ",
    );
}

#[test]
fn one_that_is_unwell_or_too_old_is_replaced() {
    check(
        "",
        &["min=1 life=1000"],
        "
           0 new          -> start A1 v1
           1 started 1
           2 unwell 1     -> stop 1 unwell, start A2 v1
           3 started 2
        1200 wait         -> start A3 v1        | 2.state ready
        1201 started 3    -> stop 2 aged        | A.aged 1
        ",
    );
}

// F27: options are read when they matter.
#[test]
fn changed_options_hold_for_processes_that_are_there() {
    check(
        "",
        &["concurrency=1"],
        "
           0 new
           0 ask A a      -> start A1 v1
           1 started 1    -> a gets 1
           2 ask A b
           3 change A concurrency=2 -> b gets 1
           4 change A requests=2
           5 answer a
           6 answer b     -> stop 1 used
           7 ask A c      -> start A2 v1
           8 failed 2     -> failing A 1, c shed starting 1
           9 change A requests=3                | A.failing 0
        ",
    );
}

#[test]
fn a_process_that_was_used_goes_when_each_is_to_serve_one_request() {
    check(
        "",
        &["min=1 concurrency=16"],
        "
           0 new          -> start A1 v1
           1 started 1
           2 ask A a      -> a gets 1
           3 answer a
           4 change A one_each=1 -> stop 1 used, start A2 v1
           5 ask A b
           6 started 2    -> b gets 2
           7 disable 2    -> start A3 v1
           8 answer b
           9 gone 1
          10 enable 2     -> stop 2 used
        ",
    );
}
