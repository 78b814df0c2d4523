//! What clients hold, and how it comes back: by a word, by a goodbye, by a
//! death.

use crate::server::{CONFIG, Server, until};
use crate::transcript::Cli;
use crate::wire::Wire;

/// Two values, one lent at a time: the second is lent only when the first was
/// replaced.
const SPARE: &str = r#"
[pool.spare]
member = { list = ["first", "second"] }
max = 1
queue = { kind = "never" }
"#;

/// What the pool lends after a client took its first member and ended so.
fn lent_after(server: &Server, end: impl FnOnce(Wire)) -> String {
    let mut holder = server.connect();
    assert_eq!(holder.ask("TAKE spare").at(2).text(), "first");
    let mut next = server.connect();
    next.send("TAKE spare WAIT 20000");
    server.until_waiting(1);
    end(holder);
    next.read().at(2).text()
}

fn quit(mut wire: Wire) {
    assert_eq!(wire.ask("QUIT").text(), "OK");
    assert!(wire.is_closed());
}

#[test]
fn a_client_that_quits_leaves_its_member_to_the_next() {
    assert_eq!(lent_after(&Server::with(SPARE), quit), "first");
    let reset = |mut wire: Wire| assert_eq!(wire.ask("RESET").text(), "RESET");
    assert_eq!(lent_after(&Server::with(SPARE), reset), "first");
}

#[test]
fn a_client_that_vanishes_has_its_member_replaced() {
    assert_eq!(lent_after(&Server::with(SPARE), drop), "second");
    assert_eq!(lent_after(&Server::with(SPARE), Wire::reset), "second");
    let half = |wire: Wire| {
        wire.finish();
        let mut wire = wire;
        assert!(wire.is_closed());
    };
    assert_eq!(lent_after(&Server::with(SPARE), half), "second");
}

#[test]
fn an_operator_who_kills_a_connection_counts_as_a_crash() {
    let server = Server::with(SPARE);
    let mut operator = server.operator();
    let lent = lent_after(&server, |mut holder| {
        let id = holder.ask("CLIENT ID").int();
        assert_eq!(operator.ask(&format!("CLIENT KILL {id}")).int(), 1);
        assert!(holder.is_closed());
        assert_eq!(operator.ask(&format!("CLIENT KILL {id}")).int(), 0);
    });
    assert_eq!(lent, "second");
}

#[test]
fn the_config_says_what_a_crash_and_a_goodbye_mean() {
    let config = format!("{SPARE}on_quit = \"replace\"\non_crash = \"reuse\"\n");
    assert_eq!(lent_after(&Server::with(&config), quit), "second");
    assert_eq!(lent_after(&Server::with(&config), drop), "first");
}

#[test]
fn a_stale_ticket_never_ends_a_later_lease() {
    let server = Server::start();
    let (mut one, mut other) = (server.connect(), server.connect());
    for take in ["TAKE one", "LOCK key", "REG.ASK few"] {
        let stale = one.ask(take).ticket();
        assert_eq!(one.ask(&format!("RELEASE {stale}")).text(), "OK");
        let later = other.ask(take).ticket();
        assert_ne!(stale, later);
        for end in [
            "RELEASE",
            "DONE",
            "REG.DONE",
            "POOL.WITHDRAW",
            "CANCEL",
            "AWAIT",
            "AWAIT.END",
        ] {
            let answer = one.ask(&format!("{end} {stale}"));
            let word = answer.word();
            let is_no = word == "STALE" || word == "WRONGTYPE" || answer.text() == "0";
            assert!(is_no, "{end}: {answer}");
        }
        let held = other.ask("HELD");
        assert_eq!(held.parts().len(), 1, "{held}");
        assert_eq!(held.at(0).at(2).text(), later);
        assert_eq!(other.ask(&format!("RELEASE {later}")).text(), "OK");
    }
}

#[test]
fn a_ticket_that_was_made_up_stands_for_nothing() {
    let server = Server::start();
    let mut wire = server.connect();
    let real = wire.ask("TAKE one").ticket();
    let other_kind = real.replacen('g', "l", 1);
    let last = if real.ends_with('0') { "1" } else { "0" };
    let other_bits = format!("{}{last}", &real[..33]);
    let far = format!("g-ffffffff{}", &real[10..]);
    for made_up in [other_kind, other_bits, far] {
        wire.ask(&format!("RELEASE {made_up}"))
            .is_error("STALE ticket");
    }
    for no_ticket in [
        "",
        "g-",
        "g-12",
        "G",
        &real.to_uppercase(),
        &format!("{real}0"),
    ] {
        let answer = wire.ask_words(&[b"RELEASE", no_ticket.as_bytes()]);
        answer.is_error("NOSUCH ticket");
    }
    assert_eq!(wire.ask("HELD").parts().len(), 1);
}

#[test]
fn a_ticket_works_from_another_connection_and_is_counted_as_foreign() {
    let server = Server::start();
    let (mut taker, mut other) = (server.connect(), server.connect());
    taker.ask("CLIENT SETNAME taker");
    other.ask("CLIENT SETNAME other");
    let ticket = taker.ask("TAKE one").ticket();
    assert_eq!(other.ask(&format!("RELEASE {ticket}")).text(), "OK");
    assert_eq!(taker.ask("HELD").parts().len(), 0);
    assert_eq!(other.ask("TAKE one").word(), "go");
    let list = taker.ask("CLIENT LIST").text();
    let advice = |name: &str| {
        let line = list
            .lines()
            .find(|line| line.contains(&format!("name={name} ")));
        line.unwrap().contains("advice=uses-a-pooled-client")
    };
    assert!(advice("other"), "{list}");
    assert!(!advice("taker"), "{list}");
}

#[test]
fn what_a_dead_process_held_goes_to_a_waiting_client() {
    let server = Server::start();
    for (take, more) in [
        ("TAKE one", "WAIT"),
        ("LOCK key", "WAIT"),
        ("REG.ASK few", "WAIT"),
    ] {
        let mut holder = Cli::start(&server);
        holder.send(take);
        assert_eq!(holder.printed()[0], "1) \"go\"");
        let mut next = server.connect();
        next.send(&format!("{take} {more} 20000"));
        server.until_waiting(1);
        holder.kill();
        assert_eq!(next.read().word(), "go", "{take}");
    }
    server.until_alone();
}

#[test]
fn all_that_one_held_comes_back_at_once() {
    let server = Server::start();
    let mut holder = server.connect();
    for number in 0..500 {
        assert_eq!(holder.ask(&format!("LOCK key-{number}")).word(), "go");
    }
    assert_eq!(holder.ask("TAKE two").word(), "go");
    assert_eq!(holder.ask("TAKE two").word(), "go");
    assert_eq!(holder.ask("HELD").parts().len(), 502);
    let mut observer = server.connect();
    assert_eq!(observer.ask("LOCK.LS key- COUNT 1000").parts().len(), 500);
    holder.reset();
    until("everything is back", || {
        observer.ask("LOCK.LS").parts().is_empty()
            && observer.ask("POOL.STAT two").field("held").int() == 0
    });
}

#[test]
fn unlock_gives_back_the_newest_of_this_holder_only() {
    let server = Server::start();
    let (mut one, mut other) = (server.connect(), server.connect());
    let first = one.ask("LOCK key PER 3").ticket();
    let newest = one.ask("LOCK key PER 3").ticket();
    other.ask("UNLOCK key").is_error("NOTHELD");
    assert_eq!(one.ask("UNLOCK key").text(), "OK");
    one.ask(&format!("RELEASE {newest}")).is_error("STALE");
    assert_eq!(one.ask(&format!("RELEASE {first}")).text(), "OK");
    one.ask("UNLOCK key").is_error("NOTHELD");
}

#[test]
fn fences_of_a_key_grow_also_over_a_restart() {
    let fence = |server: &Server| server.connect().ask("LOCK key").at(4).int();
    let server = Server::with(CONFIG);
    let first = fence(&server);
    server.until_alone();
    let second = fence(&server);
    drop(server);
    let third = fence(&Server::with(CONFIG));
    assert!(first < second && second < third, "{first} {second} {third}");
}
