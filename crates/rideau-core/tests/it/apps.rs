//! Apps: who gets a place in which process, and what is started and stopped.

mod stage;

use self::stage::check;

// ----- Places -----

#[test]
fn the_first_ask_starts_a_process_and_gets_its_place() {
    check(
        "",
        &[""],
        "
           0 new
           0 ask A x      -> start A1 v1   | A.waiting 1 used 1
         500 started 1    -> x gets 1      | A.waiting 0 A.cold 1 A.start_time 500
         600 answer x                      | A.finished 1 A.sessions 0 1.finished 1
         700 ask A y      -> y gets 1      | A.cold 1
        ",
    );
}
