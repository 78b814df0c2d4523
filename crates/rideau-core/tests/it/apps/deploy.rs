//! New code: restarts of every kind, and what becomes of old processes.

use super::stage::check;

// S2, F3: a session of old code finds its own process, not the new one.
#[test]
fn a_session_from_before_a_restart_ends_in_its_own_process() {
    check(
        "",
        &[""],
        "
           0 new
           0 ask A a      -> start A1 v1
           1 started 1    -> a gets 1
           2 restart A blocking -> drain 1 restarted | used 0 live 1
           3 ask A b      -> start A2 v2
           4 started 2    -> b gets 2, deployed A v2
           5 answer a     -> stop 1 restarted  | A.ready 1 A.sessions 1 active 1
           6 gone 1                            | used 1 live 1
           7 answer b                          | 2.state ready
        ",
    );
}

// S9, F25
#[test]
fn what_started_with_old_code_is_never_used() {
    check(
        "",
        &[""],
        "
           0 new
           0 ask A a      -> start A1 v1
           1 restart A rolling -> stop 1 unwanted, start A2 v2
           2 started 1    -> no
           3 gone 1
           4 started 2    -> a gets 2, deployed A v2 | A.gen 2
        ",
    );
}

// S10, F4
#[test]
fn a_rolling_restart_replaces_one_after_the_other() {
    check(
        "max=4 headroom=1",
        &["min=4 concurrency=2"],
        "
           0 new          -> start A1 v1
           1 started 1    -> start A2 v1
           2 started 2    -> start A3 v1
           3 started 3    -> start A4 v1
           4 started 4
           5 ask A a      -> a gets 4
           5 ask A b      -> b gets 3
          10 restart A rolling -> start A5 v2            | A.ready 4 live 5 A.deploy rolling
          20 started 5    -> drain 4 restarted           | A.ready 4 live 5
          21 ask A c      -> c gets 5
          30 answer a     -> stop 4 restarted
          31 gone 4       -> start A6 v2                 | A.ready 4 live 5
          40 started 6    -> drain 3 restarted           | A.ready 4 live 5
          41 answer b     -> stop 3 restarted
          42 gone 3       -> start A7 v2                 | A.ready 4 live 5
          50 started 7    -> stop 2 restarted
          51 gone 2       -> start A8 v2
          60 started 8    -> stop 1 restarted, deployed A v2 | A.ready 4 A.deploy settled
          61 gone 1                                      | live 4
        ",
    );
}

#[test]
fn a_restart_during_a_restart_only_means_newer_code() {
    check(
        "",
        &["min=1"],
        "
           0 new          -> start A1 v1
           1 started 1
           2 restart A rolling -> start A2 v2
           3 restart A rolling -> stop 2 unwanted, start A3 v3
           4 gone 2
           5 started 3    -> stop 1 restarted, deployed A v3
        ",
    );
}

// Without headroom the old one has to go first.
#[test]
fn a_rolling_restart_without_headroom_makes_room_itself() {
    check(
        "max=2 headroom=0",
        &["min=2"],
        "
           0 new          -> start A1 v1
           1 started 1    -> start A2 v1
           2 started 2
           3 restart A rolling -> stop 2 restarted
           4 gone 2       -> start A3 v2
           5 started 3    -> stop 1 restarted, deployed A v2
           6 gone 1       -> start A4 v2
        ",
    );
}

#[test]
fn an_immediate_restart_waits_for_no_session() {
    check(
        "",
        &[""],
        "
           0 new
           0 ask A a      -> start A1 v1
           1 started 1    -> a gets 1
           2 ask A b
           3 restart A immediate -> kill 1 restarted, start A2 v2
           4 gone 1
           5 broken a                          | A.sessions 0 A.finished 1
           6 started 2    -> b gets 2, deployed A v2
        ",
    );
}

// S11
#[test]
fn new_code_that_does_not_start_leaves_the_old_as_it_is() {
    check(
        "",
        &["tries=2 min=1"],
        "
           0 new          -> start A1 v1
           1 started 1
           2 restart A rolling -> start A2 v2
         100 failed 2     -> failing A 1
        1000 wait         -> start A3 v2
        1100 failed 3     -> failing A 2, deploy failed A v2 | A.deploy failed 1.state ready
        9000 wait
        9000 ask A a      -> a gets 1
        9001 ask A b
       90000 wait                                         | starting 0
       90001 restart A rolling -> start A4 v3             | A.deploy rolling
       90002 started 4    -> b gets 4, drain 1 restarted, deployed A v3
        ",
    );
}

// F4: the time to finish is bounded.
#[test]
fn a_process_that_does_not_finish_is_stopped_in_the_end() {
    check(
        "",
        &["drain=1000"],
        "
           0 new
           0 ask A a      -> start A1 v1
           1 started 1    -> a gets 1
           2 restart A blocking -> drain 1 restarted
        1001 wait
        1002 wait         -> stop 1 restarted
        1003 gone 1                            | live 0
        1004 broken a                          | A.sessions 0
        ",
    );
}

// S41
#[test]
fn a_disabled_process_keeps_what_it_has_and_gets_nothing_more() {
    check(
        "",
        &["concurrency=2 idle=1000 max=2"],
        "
           0 new
           0 ask A a      -> start A1 v1
           1 started 1    -> a gets 1
           2 disable 1                         | 1.state disabled used 1
           2 disable 1    -> no
           3 ask A b      -> start A2 v1
           4 answer a
        5000 wait                              | 1.state disabled
        5001 enable 1     -> b gets 1
        5001 enable 1     -> no
        5002 detach 1     -> drain 1 detached
        5002 detach 1     -> no
        5003 answer b     -> stop 1 detached
        ",
    );
}

#[test]
fn a_process_with_old_code_that_was_disabled_does_not_come_back() {
    check(
        "",
        &[""],
        "
           0 new
           0 ask A a      -> start A1 v1
           1 started 1    -> a gets 1
           2 answer a
           3 disable 1
           4 restart A rolling
           5 enable 1     -> stop 1 restarted
        ",
    );
}

// F30
#[test]
fn closing_serves_asks_that_can_be_served_and_refuses_asks_that_need_a_start() {
    check(
        "max=2",
        &["", "", "min=0"],
        "
           0 new
           0 ask A a      -> start A1 v1
           1 started 1    -> a gets 1
           2 ask A b
           3 ask B c      -> start B2 v1
           4 close        -> stop 2 closed, c shed closed 1
           5 ask A d      -> d refused closed
           6 gone 2
           7 answer a     -> b gets 1, drain 1 closed
           8 answer b     -> stop 1 closed
           9 close_now    -> kill 1 closed
          10 gone 1       -> closed            | live 0 next never
        ",
    );
}

#[test]
fn an_app_that_is_removed_goes_with_its_last_process() {
    check(
        "",
        &["min=1", ""],
        "
           0 new          -> start A1 v1
           1 started 1
           2 ask A a      -> a gets 1
           3 ask A b
           4 remove A     -> drain 1 closed, b shed closed 1
           5 ask A c      -> c refused closed
           6 answer a     -> stop 1 closed
           7 gone 1       -> removed A         | A.ready none
           8 ask A d      -> d refused closed
           9 remove B     -> removed B         | next never
        ",
    );
}

// Both would want the same address.
#[test]
fn processes_that_cannot_be_beside_each_other_are_replaced_when_they_are_gone() {
    check(
        "max=4 headroom=1",
        &["min=1 max=1 alone=1"],
        "
           0 new          -> start A1 v1
           1 started 1
           2 ask A a      -> a gets 1
           3 restart A rolling -> drain 1 restarted  | A.deploy settled live 1
           4 ask A b                                 | A.waiting 1 live 1
           5 spawn A                                 | live 1
           6 answer a     -> stop 1 restarted        | live 1
           7 gone 1       -> start A2 v2
           8 started 2    -> b gets 2, deployed A v2 | live 1
           9 answer b                                | next never
        ",
    );
}

#[test]
fn a_process_that_must_be_alone_and_is_used_up_goes_before_the_next_comes() {
    check(
        "max=4 headroom=1",
        &["min=1 max=1 requests=2 alone=1"],
        "
           0 new          -> start A1 v1
           1 started 1
           2 ask A a      -> a gets 1
           3 answer a
           4 ask A b      -> b gets 1
           5 ask A c                                 | A.waiting 1
           6 answer b     -> c gets 1, drain 1 used
           7 ask A d                                 | A.waiting 1 live 1
           8 answer c     -> stop 1 used             | A.waiting 1 live 1
           9 gone 1       -> start A2 v1
          10 started 2    -> d gets 2
        ",
    );
}
