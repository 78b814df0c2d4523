//! The sessions that the manuals of the four seeds show, typed into redis-cli.

use crate::server::{CONFIG, Server};
use crate::transcript::check;

use rideau_testing::command;

/// The manual's steps 1 and 2 say how many units a bucket has and start the
/// manager; here the calls say it, and the daemon runs. The others are in the
/// same order.
const THIRTEEN_STEPS: &str = r#"
        a> PING
        PONG
        a> LOCK.STAT db
        1) "held"
        2) (integer) 0
        3) "waiting"
        4) (integer) 0
        a> LOCK db PER 3 BUCKETS 1
        1) "go"
        2) "<one>"
        3) (integer) 1
        4) (integer) 3
        5) (integer) <_>
        a> LOCK db PER 3 BUCKETS 1
        1) "go"
        2) "<two>"
        3) (integer) 2
        4) (integer) 3
        5) (integer) <_>
        a> LOCK db PER 3 BUCKETS 1
        1) "go"
        2) "<three>"
        3) (integer) 3
        4) (integer) 3
        5) (integer) <_>
        a> LOCK db PER 3 BUCKETS 1
        1) "full"
        2) (integer) 0
        3) "3 of 3 units are held; WAIT waits for one"
        4) "busy"
        5) (nil)
        6) "d-<_>"
        a> LOCK db PER 3 BUCKETS 2
        1) "go"
        2) "<four>"
        3) (integer) 4
        4) (integer) 6
        5) (integer) <_>
        a> LOCK db PER 3 BUCKETS 1
        1) "full"
        2) (integer) 0
        3) "4 of 3 units are held; WAIT waits for one"
        4) "busy"
        5) (nil)
        6) "d-<_>"
        a> UNLOCK db
        OK
        a> LOCK db PER 3 BUCKETS 1
        1) "full"
        2) (integer) 0
        3) "3 of 3 units are held; WAIT waits for one"
        4) "busy"
        5) (nil)
        6) "d-<_>"
        a> UNLOCK db
        OK
        a> LOCK db PER 3 BUCKETS 1
        1) "go"
        2) "<five>"
        3) (integer) 3
        4) (integer) 3
        5) (integer) <_>
        a> LOCK db PER 3 BUCKETS 1
        1) "full"
        2) (integer) 0
        3) "3 of 3 units are held; WAIT waits for one"
        4) "busy"
        5) (nil)
        6) "d-<_>"
        a> RELEASE <four>
        (error) STALE ticket "<four>" was released <_> ago: <etc>
        "#;

#[test]
fn canal_lock_in_thirteen_steps() {
    check(&Server::start(), THIRTEEN_STEPS);
}

#[test]
fn canal_lock_takes_the_units_of_the_dead_back() {
    check(
        &Server::start(),
        r#"
        a> LOCK db PER 2 BUCKETS 1
        1) "go"
        2) "<_>"
        3) (integer) 1
        4) (integer) 2
        5) (integer) <_>
        a> LOCK db PER 2 BUCKETS 1
        1) "go"
        2) "<_>"
        3) (integer) 2
        4) (integer) 2
        5) (integer) <_>
        b> LOCK db PER 2 BUCKETS 1
        1) "full"
        2) (integer) 0
        3) "2 of 2 units are held; WAIT waits for one"
        4) "busy"
        5) (nil)
        6) "d-<_>"
        b& LOCK db PER 2 BUCKETS 1 WAIT 20000
        a!
        b<
        1) "go"
        2) "<_>"
        3) (integer) <_>
        4) (integer) 2
        5) (integer) <_>
        6) (integer) <_>
        b> LOCK db PER 2 BUCKETS 1 WAIT 20000
        1) "go"
        2) "<_>"
        3) (integer) 2
        4) (integer) 2
        5) (integer) <_>
        6) (integer) <_>
        b> LOCK.STAT db
        1) "held"
        2) (integer) 2
        3) "waiting"
        4) (integer) 0
        "#,
    );
}

/// A pool of two values lends one at a time. The first is lent again as long as
/// none of its holders crashes or calls it broken.
#[test]
fn pooler_replaces_the_member_of_a_holder_that_crashed() {
    let pool = r#"
        [pool.db]
        member = { list = ["first", "second"] }
        max = 1
        queue = { kind = "never" }
    "#;
    check(
        &Server::with(pool),
        r#"
        a> TAKE db
        1) "go"
        2) "<one>"
        3) "first"
        4) (integer) <_>
        b> TAKE db WAIT 0
        1) "timeout"
        2) (integer) 0
        3) "its own deadline came (deadline after 0s, 0 waiting; ask again in <etc>
        4) "deadline"
        5) (integer) <_>
        6) "d-<_>"
        a> RELEASE <one>
        OK
        a> TAKE db
        1) "go"
        2) "<two>"
        3) "first"
        4) (integer) 0
        b& TAKE db WAIT 20000
        a!
        b<
        1) "go"
        2) "<three>"
        3) "second"
        4) (integer) <_>
        b> RELEASE <two>
        (error) STALE ticket "<two>" was taken back when its holder's connection was lost <etc>
        b> RELEASE <three> FAIL it did not answer
        OK
        b> TAKE db
        1) "go"
        2) "<four>"
        3) "first"
        4) (integer) <_>
        b> TAKE dv
        (error) NOSUCH pool "dv": SHOW POOLS lists them, POOL.ADD adds one.
        "#,
    );
}

#[test]
fn sbroker_matches_asks_with_offers() {
    check(
        &Server::start(),
        r#"
        a> ASK desk NB
        1) "retry"
        2) (integer) 0
        3) "nothing was free at once (busy after <_>, 0 waiting; ask again in <_>)"
        4) "busy"
        5) (integer) <_>
        6) "d-<_>"
        a& ASK desk VALUE client WAIT 20000
        b> LEN desk
        1) (integer) 1
        2) (integer) 0
        b> OFFER desk VALUE worker
        1) "go"
        2) "<offer>"
        3) "client"
        4) (integer) -<_>
        5) (integer) 0
        a<
        1) "go"
        2) "<ask>"
        3) "worker"
        4) (integer) <_>
        5) (integer) <_>
        b& AWAIT.END <offer> 20000
        a> DONE <ask> thanks
        OK
        b<
        1) "done"
        2) "thanks"
        b> AWAIT.END <offer>
        (error) STALE ticket "<offer>" was ended by the other party <_> ago: <etc>
        b& OFFER desk VALUE worker WAIT 20000
        a> ASK desk VALUE client
        1) "go"
        2) "<again>"
        3) "worker"
        4) (integer) -<_>
        5) (integer) 0
        b<
        1) "go"
        2) "<match>"
        3) "client"
        4) (integer) <_>
        5) (integer) <_>
        b& AWAIT.END <match> 20000
        a!
        b<
        1) "down"
        2) "disconnect"
        "#,
    );
}

#[test]
fn sbroker_cancels_and_answers_later() {
    check(
        &Server::start(),
        r#"
        a> ASK desk ASYNC
        1) "await"
        2) "<one>"
        a> LEN desk
        1) (integer) 1
        2) (integer) 0
        a> CANCEL <one>
        (integer) 1
        a> CANCEL <one>
        (integer) 0
        a> LEN desk
        1) (integer) 0
        2) (integer) 0
        a> AWAIT <one>
        (error) STALE ticket "<one>" was cancelled <_> ago: <etc>
        a> ASK desk ASYNC VALUE client WAIT 20000
        1) "await"
        2) "<two>"
        a> AWAIT <two> 10
        1) "timeout"
        2) (integer) 10000
        3) "it still waits; AWAIT again, or CANCEL it"
        4) "waits"
        5) (nil)
        6) (nil)
        b> OFFER desk VALUE worker
        1) "go"
        2) "<offer>"
        3) "client"
        4) (integer) -<_>
        5) (integer) 0
        a> AWAIT <two>
        1) "go"
        2) "<two>"
        3) "worker"
        4) (integer) <_>
        5) (integer) <_>
        a> CANCEL <two>
        (integer) 0
        a> AWAIT <two>
        1) "go"
        2) "<two>"
        3) "worker"
        4) (integer) <_>
        5) (integer) <_>
        a> DONE <two>
        OK
        a> AWAIT <two>
        (error) STALE ticket "<two>" was released <_> ago: <etc>
        b> AWAIT.END <offer>
        1) "done"
        "#,
    );
}

#[test]
fn sbroker_drops_asks_that_wait_too_long() {
    let broker = r#"
        [broker.short]
        asks = { kind = "timeout", timeout = "30ms" }
    "#;
    check(
        &Server::with(broker),
        r#"
        a> ASK short
        1) "timeout"
        2) (integer) <_>
        3) "it reached the timeout of the queue (timeout after <_>, 0 waiting; ask again in <_>)"
        4) "timeout"
        5) (integer) <_>
        6) "d-<_>"
        "#,
    );
}

#[test]
fn sregulator_continues_and_stops() {
    let regulator = r#"
        [regulator.workers]
        queue = { kind = "never" }
        valve = { kind = "relative", target = "100ms", min = 1, max = 2 }
    "#;
    check(
        &Server::with(regulator),
        r#"
        a> REG.ASK workers
        1) "go"
        2) "<one>"
        3) (integer) <_>
        4) (integer) 0
        a> REG.CONTINUE <one>
        1) "go"
        2) "<one>"
        3) (integer) <_>
        4) (integer) <_>
        b& REG.ASK workers WAIT 20000
        a> REG.UPDATE workers 1000
        OK
        b<
        1) "go"
        2) "<two>"
        3) (integer) <_>
        4) (integer) <_>
        a> REG.UPDATE workers 1000
        OK
        b> REG.CONTINUE <two>
        1) "go"
        2) "<two>"
        3) (integer) <_>
        4) (integer) <_>
        a> REG.UPDATE workers 200000
        OK
        b> REG.CONTINUE <two>
        1) "stop"
        2) (integer) <_>
        b> REG.CONTINUE <two>
        (error) STALE ticket "<two>" was stopped by its regulator <_> ago: <etc>
        b& REG.ASK workers WAIT 20000
        a> REG.DONE <one>
        OK
        b<
        1) "go"
        2) "<three>"
        3) (integer) <_>
        4) (integer) <_>
        c& REG.ASK workers WAIT 20000
        b!
        c<
        1) "go"
        2) "<_>"
        3) (integer) <_>
        4) (integer) <_>
        "#,
    );
}

/// What redis-cli itself does with `quit` is to go without a word, and a client
/// that goes without a word has crashed. Typed as a word of the command line it
/// is sent.
#[test]
fn quit_of_redis_cli_is_sent_only_from_the_command_line() {
    let server = Server::with(CONFIG);
    let mut command = command("redis-cli");
    command.args(["-p", &server.port(), "QUIT"]);
    let output = command.output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "OK\n");
}
