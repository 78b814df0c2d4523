//! A refusal has one form, for every kind of ask.

use rideau::Reason;
use rideau_resp::Value;

use crate::tests::commands::peer::{Peer, text};
use crate::tests::commands::server::Server;

const PLACES: &str = r#"
[pool.one]
member = { list = ["m1"] }
queue = { kind = "never", max = 1 }

[broker.desk]
asks = { kind = "never", max = 1 }

[regulator.few]
queue = { kind = "never", max = 1 }
valve = { kind = "open", max = 1 }

[lock."*"]
queue = { kind = "never", max = 1 }
"#;

/// What takes all there is, and the waits that follow, from the first to the last.
const ASKS: [(&str, &str); 4] = [
    ("TAKE one", "TAKE one"),
    ("LOCK k", "LOCK k"),
    ("REG.ASK few", "REG.ASK few"),
    ("PING", "ASK desk"),
];

/// The word, and all that follows it, which is checked.
fn no(answer: &Value) -> (String, [String; 5]) {
    let Value::Array(parts) = answer else {
        panic!("{}", text(answer));
    };
    let parts: Vec<_> = parts.iter().map(text).collect();
    let Ok([word, waited, why, reason, retry_after, id]) = <[String; 6]>::try_from(parts.clone())
    else {
        panic!("{parts:?}");
    };
    assert!(waited.parse::<u64>().is_ok(), "{parts:?}");
    assert!(why.contains(' '), "{parts:?}");
    assert!(
        Reason::ALL.iter().any(|known| known.word() == reason),
        "{parts:?}"
    );
    assert!(
        retry_after == "nil" || retry_after.parse::<u64>().is_ok(),
        "{parts:?}"
    );
    assert!(id.starts_with("d-"), "{parts:?}");
    (word, [waited, why, reason, retry_after, id])
}

fn ticket(answer: &Value) -> String {
    match answer {
        Value::Array(parts) => text(&parts[1]),
        other => panic!("{}", text(other)),
    }
}

fn ask(peer: &mut Peer, line: &str) -> Value {
    peer.ask(&line.split(' ').collect::<Vec<_>>())
}

#[test]
fn every_no_has_a_reason_a_time_and_an_id_as_fields() {
    for hello in ["HELLO 2", "HELLO 3"] {
        for (all, line) in ASKS {
            let server = Server::start(PLACES);
            let (mut holder, mut peer) = (server.connect(), server.connect());
            peer.say(hello);
            ask(&mut holder, all);
            let (word, [.., id]) = no(&ask(&mut peer, &format!("{line} WAIT 5")));
            assert_eq!(word, "timeout", "{line}");
            let explained = peer.say(&format!("EXPLAIN {id}"));
            assert!(explained.contains("refused this ask"), "{explained}");
            // One waits, and no more may.
            let waits = ask(&mut holder, &format!("{line} WAIT 20000 ASYNC"));
            let (word, [_, _, reason, ..]) = no(&ask(&mut peer, &format!("{line} WAIT 20000")));
            assert_eq!((word.as_str(), reason.as_str()), ("full", "full"), "{line}");
            assert_eq!(holder.say(&format!("CANCEL {}", ticket(&waits))), "1");
        }
    }
}

#[test]
fn a_no_that_comes_later_has_the_same_shape() {
    let server = Server::start(PLACES);
    let (mut holder, mut two, mut three) = (server.connect(), server.connect(), server.connect());
    three.say("HELLO 3");
    ask(&mut holder, "TAKE one");
    let asked = ticket(&ask(&mut two, "TAKE one WAIT 5 ASYNC"));
    let (word, _) = no(&ask(&mut two, &format!("AWAIT {asked} 20000")));
    assert_eq!(word, "timeout");
    let asked = ticket(&ask(&mut three, "TAKE one WAIT 5 ASYNC"));
    let Some(Value::Push(pushed)) = three.next() else {
        panic!("no push");
    };
    assert_eq!(text(&pushed[0]), "rideau:timeout");
    assert_eq!(text(&pushed[1]), asked);
    let mut same = vec![Value::Bulk("timeout".into())];
    same.extend_from_slice(&pushed[2..]);
    no(&Value::Array(same.clone()));
    assert_eq!(
        ask(&mut three, &format!("AWAIT {asked}")),
        Value::Array(same)
    );
}

#[test]
fn an_ask_that_does_not_want_to_wait_is_told_in_the_same_way() {
    let server = Server::start(PLACES);
    let (mut holder, mut peer) = (server.connect(), server.connect());
    ask(&mut holder, "LOCK k PER 2");
    ask(&mut holder, "LOCK k PER 2");
    let (word, [waited, why, reason, retry_after, id]) = no(&ask(&mut peer, "LOCK k PER 2"));
    assert_eq!((word.as_str(), waited.as_str()), ("full", "0"));
    assert_eq!(why, "2 of 2 units are held; WAIT waits for one");
    assert_eq!((reason.as_str(), retry_after.as_str()), ("busy", "nil"));
    assert!(peer.say(&format!("EXPLAIN {id}")).contains("2 of 2 units"));
    for line in ["ASK desk NB", "OFFER desk NB"] {
        let (word, [_, _, reason, ..]) = no(&ask(&mut peer, line));
        assert_eq!(
            (word.as_str(), reason.as_str()),
            ("retry", "busy"),
            "{line}"
        );
    }
}
