//! The pool: which take gets which member when, and what is started and
//! stopped.

mod stage;

use self::stage::check;

// ----- Taking and giving back -----

// S1, S2
#[test]
fn a_fixed_pool_lends_each_member_once_and_has_no_more() {
    check(
        "init=2 max=2",
        "
        0 new       -> start 1, start 2
        1 started 1
        1 started 2               | idle 2 size 2
        2 try a     -> a gets 2
        2 try b     -> b gets 1
        2 try c     -> c refused busy | size 2 held 2
        3 release a
        3 release b               | idle 2 len 0 next never
        ",
    );
}

// S3
#[test]
fn a_take_that_waits_on_a_pool_that_can_grow_gets_the_new_member() {
    check(
        "max=2",
        "
        0 new
        0 take a    -> start 1    | len 1 starting 1
        0 take b    -> start 2
        0 take c                  | len 3 size 2
        5 started 2 -> a gets 2
        6 started 1 -> b gets 1   | len 1
        ",
    );
}

// S4
#[test]
fn the_last_returned_is_the_first_taken_unless_all_are_to_be_kept_warm() {
    for (reuse, first, second) in [("lifo", 1, 2), ("fifo", 2, 1)] {
        check(
            &format!("init=2 max=2 reuse={reuse}"),
            &format!(
                "
                0 new       -> start 1, start 2
                0 started 2
                1 started 1
                2 try a     -> a gets {first}
                3 try b     -> b gets {second}
                4 release b
                5 release a
                6 try a     -> a gets {}
                ",
                if reuse == "lifo" { first } else { second }
            ),
        );
    }
}

// The returned member beats the start that is under way.
#[test]
fn a_returned_member_beats_a_start() {
    check(
        "max=2",
        "
        0 new
        0 take a    -> start 1
        1 started 1 -> a gets 1
        2 take b    -> start 2
        3 release a -> b gets 1   | len 0
        9 started 2               | idle 1
        ",
    );
}

#[test]
fn a_cancelled_take_does_not_lose_the_start_it_caused() {
    check(
        "max=2",
        "
        0 new
        0 take a    -> start 1
        1 cancel a  -> a left     | len 0 starting 1
        2 started 1               | idle 1
        3 take b    -> b gets 1
        ",
    );
}

// S11, F1, P12
#[test]
fn a_member_granted_to_a_take_that_has_left_goes_to_the_next_unharmed() {
    check(
        "init=1 max=1",
        "
        0 new       -> start 1
        0 started 1
        1 take a    -> a gets 1
        1 take b
        1 take c
        1 take d
        2 dies b
        3 release a -> c gets 1, b gone
        4 decline c -> d gets 1
        5 decline d               | idle 1 size 1
        ",
    );
}

// S5
#[test]
fn a_failed_member_is_replaced_once_it_is_really_gone() {
    check(
        "init=2 max=2",
        "
        0 new       -> start 1, start 2
        0 started 1
        0 started 2
        1 take a    -> a gets 2
        2 fail a    -> stop 2 failed   | size 2 stopping 1
        3 gone 2    -> start 3         | size 2
        4 started 3                    | idle 2
        5 lost 1    -> stop 1 lost
        5 lost 3    -> stop 3 lost
        6 gone 1    -> start 4
        6 gone 3    -> start 5
        6 started 4
        6 started 5                    | idle 2 size 2
        ",
    );
}

// S5, P9: a member that was lost while it was held is not handed out again.
#[test]
fn a_member_lost_while_it_is_held_goes_when_it_comes_back() {
    check(
        "init=1 max=1",
        "
        0 new       -> start 1
        0 started 1
        1 take a    -> a gets 1
        1 take b
        2 lost 1    -> mark 1 0        | held 1
        3 release a -> stop 1 lost     | len 1
        4 gone 1    -> start 2
        5 started 2 -> b gets 2
        ",
    );
}

#[test]
fn a_detached_member_is_none_of_ours_and_its_place_is_free() {
    check(
        "init=1 max=1",
        "
        0 new       -> start 1
        0 started 1
        1 take a    -> a gets 1
        1 take b
        2 detach a  -> start 2         | size 1
        3 started 2 -> b gets 2
        ",
    );
}

#[test]
fn a_member_is_retired_after_its_last_use() {
    check(
        "init=1 max=1 uses_max=2",
        "
        0 new       -> start 1
        0 started 1
        1 take a    -> a gets 1
        2 take b
        3 release a -> b gets 1
        4 release b -> stop 1 used
        5 gone 1    -> start 2
        ",
    );
}

// ----- Waiting -----

// S10, P5, P6
#[test]
fn a_full_line_refuses_the_newcomer_and_serves_in_order() {
    check(
        "init=1 max=1 queue.max=2",
        "
         0 new       -> start 1
         0 started 1
         1 take a    -> a gets 1
         2 take b
         3 take c
         4 take d    -> d refused full  | len 2
         5 release a -> b gets 1
         6 release b -> c gets 1
         7 release c                    | idle 1
        ",
    );
}

/// No take may wait: a refused one still makes the next one luckier.
#[test]
fn a_pool_without_a_line_grows_and_checks_for_those_it_refuses() {
    check(
        "max=1 queue.max=0 check_after=100ms",
        "
          0 new
          0 take a    -> a refused full, start 1
          1 take b    -> b refused full
          2 started 1
        103 take c    -> c refused full, check 1
        104 take d    -> d refused full
        105 good 1
        106 take e    -> e gets 1
        ",
    );
}

// S10, P11
#[test]
fn a_take_at_its_deadline_is_shed_and_never_served() {
    check(
        "init=1 max=1 queue.kind=timeout queue.timeout=100ms",
        "
          0 new       -> start 1
          0 started 1
          0 take a    -> a gets 1
          0 take b deadline=10
          0 take c                       | next 10
         10 wait      -> b shed deadline 10 | len 1 next 100
         50 take d
        100 wait      -> c shed timeout 100 | next 150
        120 release a -> d gets 1
        ",
    );
}

#[test]
fn the_urgent_are_served_first_and_the_background_last() {
    check(
        "init=1 max=1",
        "
        0 new       -> start 1
        0 started 1
        1 take a    -> a gets 1
        2 take b background
        3 take c
        4 take d urgent
        5 take e urgent
        6 release a -> d gets 1
        6 release d -> e gets 1
        6 release e -> c gets 1
        6 release c -> b gets 1
        ",
    );
}

#[test]
fn a_tag_cancels_all_takes_that_wait_with_it_in_every_line() {
    check(
        "init=1 max=1",
        "
        0 new       -> start 1
        0 started 1
        1 take a tag=1            -> a gets 1
        2 take b background tag=1
        3 take c urgent tag=1
        4 take d
        5 cancel tag=1 -> c left, b left  | len 1 held 1
        6 release a    -> d gets 1
        ",
    );
}

// ----- Starting -----

// S12, F3
#[test]
fn a_start_over_its_limit_is_ended_and_its_late_result_is_not_wanted() {
    check(
        "max=1 start_timeout=10ms backoff_first=100ms",
        "
          0 new
          0 take a    -> start 1        | next 10
         10 wait      -> abandon 1      | size 1 stopping 1 circuit failing:1
         15 started 1 -> unwanted       | size 1
         16 gone 1                      | size 0
        110 wait      -> start 2
        119 started 2 -> a gets 2       | circuit closed
        ",
    );
    check(
        "max=1 start_timeout=900ms",
        "
         0 new
         0 take a    -> start 1
        50 started 1 -> a gets 1
        ",
    );
}

// S13, F9: the service is back after 200 ms.
#[test]
fn a_waiting_take_is_served_when_starting_works_again() {
    check(
        "max=1 backoff_first=100ms backoff_max=100ms",
        "
          0 new
          0 take a    -> start 1
          1 gone 1                      | size 0 len 1
         50 wait                        | size 0
        101 wait      -> start 2
        102 gone 2                      | circuit failing:2
        203 wait      -> start 3
        205 started 3 -> a gets 3       | circuit closed
        ",
    );
}

// S14, F9
#[test]
fn a_pool_refills_after_an_outage_without_any_take() {
    check(
        "init=2 max=2 backoff_first=100ms backoff_max=100ms",
        "
          0 new       -> start 1, start 2
          0 started 1
          0 started 2
          1 lost 1    -> stop 1 lost
          1 lost 2    -> stop 2 lost
          2 gone 1    -> start 3
          2 gone 2    -> start 4
          3 gone 3
          3 gone 4                      | size 0 circuit failing:1
        104 wait      -> start 5, start 6
        105 started 5
        105 started 6                   | idle 2 circuit closed
        ",
    );
}

// S15, F8
#[test]
fn members_start_in_parallel_up_to_a_limit() {
    check(
        "init=6 max=6 starts_max=4",
        "
          0 new       -> start 1, start 2, start 3, start 4
        200 started 1 -> start 5
        200 started 2 -> start 6
        200 started 3                   | starting 3
        ",
    );
}

#[test]
fn an_open_circuit_tries_one_start_at_a_time() {
    check(
        "init=3 max=3 backoff_first=10ms backoff_max=10ms failures=1",
        "
         0 new       -> start 1, start 2, start 3
         1 gone 1
         1 gone 2
         1 gone 3                       | circuit open:1
        11 wait      -> start 4         | starting 1
        12 gone 4                       | circuit open:2
        22 wait      -> start 5
        23 started 5 -> start 6, start 7 | circuit closed
        ",
    );
}

#[test]
fn a_take_that_does_not_want_to_wait_for_an_outage_is_told_at_once() {
    check(
        "max=1 backoff_first=10ms backoff_max=10ms failures=1 fail_fast=yes",
        "
         0 new
         0 take a    -> start 1
         1 gone 1    -> a shed starting 1
         2 take b    -> b refused starting
        ",
    );
}

// F9 again: no take waits, so only new takes can have it tried.
#[test]
fn a_pool_that_refuses_at_once_finds_out_when_starting_works_again() {
    check(
        "max=1 backoff_first=10ms backoff_max=10ms failures=1 fail_fast=yes",
        "
         0 new
         0 take a    -> start 1
         1 gone 1    -> a shed starting 1
         2 take b    -> b refused starting
        20 take c    -> c refused starting, start 2
        21 take d    -> d refused starting
        22 started 2                    | idle 1
        23 take e    -> e gets 2
        ",
    );
}

// S18
#[test]
fn a_take_that_leaves_few_idle_starts_more_ahead_of_need() {
    check(
        "init=2 max=5 grow_at=1",
        "
        0 new       -> start 1, start 2
        0 started 1
        0 started 2
        1 take a    -> a gets 2, start 3, start 4
        2 started 3
        2 started 4                     | idle 3 size 4
        3 take b    -> b gets 4         | idle 2
        4 take c    -> c gets 3, start 5
        ",
    );
}

#[test]
fn some_are_kept_idle_ahead_of_need_as_far_as_max_allows() {
    check(
        "max=3 idle_min=2",
        "
        0 new       -> start 1, start 2
        0 started 1
        0 started 2
        1 take a    -> a gets 2, start 3
        2 started 3                     | idle 2
        3 take b    -> b gets 3         | idle 1 size 3
        ",
    );
}

// ----- Stopping -----

// S16, F10, P1
#[test]
fn a_stop_that_hangs_keeps_its_place_until_it_is_dropped() {
    check(
        "init=1 max=1 stop_timeout=50ms",
        "
         0 new       -> start 1
         0 started 1
         1 take a    -> a gets 1
         1 take b
         2 fail a    -> stop 1 failed   | size 1 next 52
        52 wait      -> abandon 1       | size 1 next never
        53 gone 1    -> start 2
        54 started 2 -> b gets 2
        ",
    );
}

// S17, P10
#[test]
fn the_longest_idle_go_first_down_to_the_floor() {
    check(
        "init=2 max=4 idle_age_max=100ms",
        "
          0 new       -> start 1, start 2
          0 started 1
          0 started 2
          1 take a    -> a gets 2
          2 take b    -> b gets 1
          3 take c    -> start 3
          3 take d    -> start 4
          4 started 3 -> c gets 3
          4 started 4 -> d gets 4
          5 release a                   | next 105
          6 release b
          7 release c
          8 release d                   | idle 4
        105 wait      -> stop 2 idle    | next 106
        106 wait      -> stop 1 idle    | idle 2
        106 gone 2
        106 gone 1                      | size 2 next never
        ",
    );
}

// P10
#[test]
fn what_is_still_starting_is_no_floor() {
    check(
        "init=1 max=3 grow_at=2 idle_age_max=100ms",
        "
          0 new       -> start 1
          0 started 1
          1 take a    -> a gets 1, start 2
          2 fail a    -> stop 1 failed
          3 gone 1
          4 started 2
          5 take a    -> a gets 2, start 3
          6 release a                   | idle 1 starting 1
        106 wait                        | idle 1
        107 started 3
        107 wait      -> stop 2 idle
        ",
    );
}

// S17, F7
#[test]
fn culling_can_be_switched_on_later() {
    check(
        "max=2",
        "
          0 new
          0 take a    -> start 1
          0 started 1 -> a gets 1
          1 release a                   | next never
         50 change max=2 idle_age_max=100ms | next 101
        101 wait      -> stop 1 idle
        ",
    );
}

// S17, P10
#[test]
fn members_that_are_held_are_never_culled() {
    check(
        "max=2 idle_age_max=100ms",
        "
           0 new
           0 take a    -> start 1
           0 started 1 -> a gets 1
        1000 wait                       | held 1 next never
        ",
    );
}

// ----- Checks -----

#[test]
fn a_member_idle_for_long_is_checked_before_it_is_taken() {
    check(
        "init=2 max=2 check_after=100ms",
        "
          0 new       -> start 1, start 2
          0 started 1
          0 started 2
        100 take a    -> a gets 2
        101 take b    -> check 1
        105 good 1    -> b gets 1
        ",
    );
}

#[test]
fn the_next_idle_one_is_checked_when_a_check_goes_badly() {
    for end in [
        "bad 3  -> stop 3 broken, check 2",
        "gone 3 -> check 2, start 4",
    ] {
        check(
            "init=3 max=3 check_after=100ms",
            &format!(
                "
                  0 new       -> start 1, start 2, start 3
                  0 started 1
                  0 started 2
                  0 started 3
                101 take b    -> check 3
                102 {end}
                103 good 2    -> b gets 2
                "
            ),
        );
    }
}

#[test]
fn a_check_that_hangs_is_ended_and_its_late_result_is_not_wanted() {
    check(
        "init=1 max=1 check_after=0 start_timeout=10ms",
        "
          0 new       -> start 1
          0 started 1
        100 take a    -> check 1        | next 110
        110 wait      -> abandon 1
        111 good 1    -> unwanted
        111 gone 1    -> start 2
        112 started 2 -> a gets 2
        ",
    );
}

#[test]
fn a_doubtful_member_is_checked_before_another_take_has_it() {
    check(
        "init=1 max=1",
        "
        0 new       -> start 1
        0 started 1
        0 take a    -> a gets 1
        0 take b
        1 doubt a   -> check 1
        2 good 1    -> b gets 1
        3 doubt b   -> check 1
        4 bad 1     -> stop 1 broken
        ",
    );
}

/// The oldest comes first and has to be checked; a take need not wait for that
/// while another is fresh.
#[test]
fn no_take_waits_for_a_check_while_a_fresh_member_is_idle() {
    check(
        "init=2 max=2 check_after=100ms reuse=fifo",
        "
          0 new       -> start 1, start 2
          0 started 1
         90 started 2
        120 take a    -> a gets 2, check 1
        121 good 1                      | idle 1
        122 take b    -> b gets 1
        ",
    );
}

// ----- Lives -----

// S19
#[test]
fn a_life_ends_idle_by_the_timer_held_at_the_release_and_at_the_take() {
    check(
        "init=2 max=2 life_max=100ms",
        "
          0 new       -> start 1, start 2
          0 started 1
          0 started 2                   | next 100
          1 take a    -> a gets 2
        100 wait      -> stop 1 aged    | held 1
        101 gone 1    -> start 3
        102 started 3
        150 release a -> stop 2 aged
        151 gone 2    -> start 4
        152 started 4
        253 take b    -> stop 4 aged, stop 3 aged
        ",
    );
}

// S19
#[test]
fn lives_change_in_all_three_directions() {
    check(
        "init=1 max=1",
        "
           0 new       -> start 1
           0 started 1                  | next never
          10 change init=1 max=1 life_max=1s   -> mark 1 1000  | next 1000
          20 change init=1 max=1 life_max=2s   -> mark 1 2000  | next 2000
          30 change init=1 max=1 life_max=500ms -> mark 1 500  | next 500
          40 change init=1 max=1               -> mark 1 never | next never
        ",
    );
}

#[test]
fn all_members_are_replaced_one_after_the_other_over_a_time() {
    check(
        "init=2 max=2",
        "
          0 new       -> start 1, start 2
          0 started 1
          0 started 2
          1 take a    -> a gets 2
         10 replace over=100 -> mark 1 10, mark 2 60, stop 1 replaced
         11 gone 1    -> start 3
         12 started 3
         70 release a -> stop 2 replaced
         71 gone 2    -> start 4
         72 started 4                   | idle 2 next never
        ",
    );
}

#[test]
fn replacing_over_a_time_lets_no_member_live_longer() {
    check(
        "init=2 max=2 life_max=100ms",
        "
          0 new       -> start 1, start 2
          0 started 1
          0 started 2
         10 replace over=1000 -> mark 1 10, mark 2 100, stop 1 replaced
        100 gone 1    -> start 3
        100 wait      -> stop 2 replaced
        ",
    );
    check(
        "init=1 max=2",
        "
          0 new       -> start 1
          0 started 1
          0 take a    -> a gets 1
          0 take b    -> start 2
          0 started 2 -> b gets 2
          1 lost 2    -> mark 2 0
         10 replace over=1000 -> mark 1 10, mark 2 0
        ",
    );
}

#[test]
fn a_start_of_the_old_ways_is_not_wanted_when_all_are_replaced() {
    check(
        "init=1 max=1",
        "
        0 new       -> start 1
        1 replace over=100 -> abandon 1
        2 started 1 -> unwanted
        2 gone 1    -> start 2          | circuit closed
        ",
    );
}

// ----- Changes -----

// S20, F5, P13
#[test]
fn a_lower_max_counts_what_is_still_stopping() {
    check(
        "init=4 max=4",
        "
        0 new       -> start 1, start 2, start 3, start 4
        0 started 1
        0 started 2
        0 started 3
        0 started 4
        1 take a    -> a gets 4
        1 take b    -> b gets 3
        1 take c    -> c gets 2
        2 fail a    -> stop 4 failed
        3 change init=1 max=3           | size 4
        4 gone 4                        | size 3
        5 take d    -> d gets 1
        5 take e                        | len 1
        6 change init=1 max=1
        7 release b -> stop 3 surplus   | held 2
        8 release c -> stop 2 surplus   | held 1
        9 release d -> e gets 1         | size 3
        ",
    );
}

// S21, F6
#[test]
fn a_higher_floor_counts_what_is_already_starting() {
    check(
        "init=2 max=3",
        "
        0 new       -> start 1, start 2
        1 change init=3 max=3 -> start 3 | size 3
        1 change init=1 max=3
        1 change init=3 max=3           | size 3
        ",
    );
}

#[test]
fn a_surplus_in_nobodys_hands_goes_at_once() {
    check(
        "init=4 max=4 check_after=0",
        "
        0 new       -> start 1, start 2, start 3, start 4
        0 started 1
        0 started 2
        0 started 3
        1 take a    -> check 3
        2 good 3    -> a gets 3
        3 take b    -> check 2
        4 change max=1 -> abandon 4, stop 1 surplus, abandon 2 | held 1 stopping 3
        ",
    );
}

// S22, F15
#[test]
fn a_shorter_line_lets_the_newest_go() {
    check(
        "init=1 max=1",
        "
        0 new       -> start 1
        0 started 1
        0 take a    -> a gets 1
        1 take b
        2 take c
        3 take d
        4 change init=1 max=1 queue.max=1 -> c shed full 2, d shed full 1
        5 release a -> b gets 1
        ",
    );
}

// F13, F17, P13
#[test]
fn options_that_break_a_rule_change_nothing() {
    check(
        "init=1 max=2",
        "
        0 new       -> start 1
        0 started 1
        1 change init=3 max=2 -> init breaks a rule
        1 change max=0        -> max breaks a rule
        1 change max=2 idle_age_max=0 -> idle_age_max breaks a rule
        1 change max=2 valve.kind=rate valve.interval=0 -> valve.interval breaks a rule
        2 take a    -> a gets 1
        2 take b    -> start 2
        ",
    );
}

#[test]
fn a_suspended_pool_lets_takers_wait_and_hands_nothing_out() {
    check(
        "init=1 max=1",
        "
        0 new       -> start 1
        0 started 1
        0 take a    -> a gets 1
        1 suspend
        2 take b
        2 try c     -> c refused suspended
        3 release a                     | idle 1 len 1
        4 resume    -> b gets 1
        ",
    );
}

// ----- The end -----

// S24, P14
#[test]
fn a_pool_closes_gracefully_when_the_last_member_is_gone() {
    check(
        "init=3 max=3",
        "
        0 new       -> start 1, start 2, start 3
        0 started 1
        0 started 2
        0 started 3
        1 take a    -> a gets 3
        1 take b    -> b gets 2
        1 take c    -> c gets 1
        1 take d
        2 release c -> d gets 1
        2 release d
        3 close by=100 -> stop 1 closed, mark 2 0, mark 3 0 | next 100
        4 take e    -> e refused closed
        4 gone 1
        5 release a -> stop 3 closed
        6 gone 3
        7 release b -> stop 2 closed
        8 gone 2    -> closed           | size 0 next never
        9 try f     -> f refused closed
        ",
    );
}

// S24, P14
#[test]
fn waiting_takes_are_refused_before_the_pool_says_that_it_is_closed() {
    check(
        "max=1 backoff_first=100ms",
        "
        0 new
        0 take a    -> start 1
        1 gone 1                        | size 0 len 1
        2 close by=100 -> a shed closed 2, closed | next never
        ",
    );
}

// S25
#[test]
fn at_the_deadline_holders_are_told_and_nothing_else_is_waited_for() {
    check(
        "init=3 max=3 check_after=0 stop_timeout=50ms",
        "
          0 new       -> start 1, start 2, start 3
          0 started 1
          0 started 2
          1 take a    -> check 2
          2 good 2    -> a gets 2
          3 take b    -> check 1
          4 close by=100 -> mark 1 0, mark 2 0, abandon 3, b shed closed 1
          5 started 3 -> unwanted
          6 gone 3
        100 wait      -> abandon 1, revoke 2
        101 gone 1
        102 fail a    -> stop 2 failed  | next 152
        152 wait      -> abandon 2
        153 gone 2    -> closed
        ",
    );
}

// S25: close now.
#[test]
fn a_pool_that_closes_now_tells_its_holders_at_once() {
    check(
        "init=1 max=1",
        "
        0 new       -> start 1
        0 started 1
        1 take a    -> a gets 1
        2 close by=2 -> mark 1 0, revoke 1
        3 release a -> stop 1 closed
        4 gone 1    -> closed
        ",
    );
}

// S26: a late start is destroyed.
#[test]
fn a_start_that_ends_after_the_close_is_not_wanted() {
    check(
        "init=1 max=1",
        "
        0 new       -> start 1
        1 close by=100 -> abandon 1
        2 started 1 -> unwanted
        3 gone 1    -> closed
        4 started 1 -> unwanted
        ",
    );
}

#[test]
fn nothing_brings_a_member_back_to_life_while_the_pool_closes() {
    check(
        "init=1 max=1",
        "
        0 new       -> start 1
        0 started 1
        1 take a    -> a gets 1
        2 close by=100 -> mark 1 0
        3 change init=1 max=1 life_max=1s
        4 replace over=1000
        5 release a -> stop 1 closed
        6 gone 1    -> closed
        ",
    );
}

// S27
#[test]
fn garbage_is_ignored() {
    check(
        "init=1 max=1",
        "
        0 new       -> start 1
        0 good 1    -> unwanted
        0 lost 1
        1 started 1
        1 started 1 -> unwanted
        1 gone 1                        | idle 1
        2 take a    -> a gets 1
        2 gone 1                        | held 1
        3 fail a    -> stop 1 failed
        3 lost 1
        4 gone 1    -> start 2
        5 gone 1                        | starting 1
        ",
    );
}

// ----- Members taken without asking -----

#[test]
fn idle_members_are_lent_newest_last_but_for_those_kept() {
    check(
        "init=4 max=4 idle_min=1",
        "
        0 new       -> start 1, start 2, start 3, start 4
        0 started 1
        1 started 2
        2 started 3
        3 started 4
        4 lend      -> lent 2, lent 3, lent 4 | idle 1 held 3
        5 recall 4 since=3
        5 recall 2 since=5
        6 try a     -> a gets 2
        6 try b     -> b gets 4
        6 try c     -> c gets 1
        ",
    );
}

#[test]
fn no_member_is_lent_if_that_could_break_the_order_or_the_valve() {
    for options in ["init=1 max=1 reuse=fifo", "init=1 max=1 valve.kind=open"] {
        check(
            options,
            "
            0 new       -> start 1
            0 started 1
            1 lend                      | idle 1
            ",
        );
    }
}

/// It was lost while it lay where it is taken without an ask.
#[test]
fn a_lost_member_that_is_recalled_is_retired_soon() {
    check(
        "init=1 max=1",
        "
        0 new       -> start 1
        0 started 1
        1 lend      -> lent 1
        2 lost 1    -> mark 1 0
        3 recall 1 since=1
        3 wait      -> stop 1 lost
        ",
    );
}

// ----- Size by regulation -----

#[test]
fn a_valve_lets_the_pool_grow_between_its_bounds() {
    check(
        "max=4 valve.kind=open valve.max=2",
        "
        0 new
        0 take a    -> start 1
        0 take b    -> start 2
        0 take c                        | size 2 len 3
        1 started 1 -> a gets 1
        1 started 2 -> b gets 2
        2 change max=4 valve.kind=open valve.max=1
        3 release a -> stop 1 surplus
        4 gone 1                        | size 1 len 1
        5 change max=4 -> start 3
        ",
    );
}

// ----- What the waiting line's law is told -----

// A line in which no take waits sees no serve; the pool tells its law that
// there were some.
#[test]
fn an_overload_is_over_when_members_find_no_take_waiting() {
    check(
        "max=1 queue.kind=bounded-codel queue.target=100ms queue.interval=1s",
        "
        0 new
        0 take a       -> start 1
        0 started 1    -> a gets 1
        1 take b
        101 wait                  | len 1
        1101 wait      -> b shed codel 1100
        2000 release a
        2001 try c     -> c gets 1
        2002 release c
        9000 try d     -> d gets 1
        9001 take e
        9101 wait                 | len 1
        9500 wait                 | len 1
        10101 wait     -> e shed codel 1100
        ",
    );
}

#[test]
fn an_overload_is_not_over_while_no_take_is_served() {
    check(
        "max=1 queue.kind=bounded-codel queue.target=100ms queue.interval=1s",
        "
        0 new
        0 take a       -> start 1
        0 started 1    -> a gets 1
        1 take b
        101 wait                  | len 1
        1101 wait      -> b shed codel 1100
        1102 take c
        1303 wait      -> c shed bound 201
        ",
    );
}
