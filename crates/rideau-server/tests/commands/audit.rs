//! Every change leaves an event that says who made it.

use rideau_server::config::password::Hash;

use crate::peer::{cell, rows};
use crate::server::Server;

#[test]
fn every_change_says_who_made_it() {
    let hash = Hash::of(b"secret").unwrap();
    let config = format!(
        "[user.ops]\npassword = '{}'\nallow = [\"@all\", \"@admin\"]\n\
         [store]\nkind = \"memory\"\n[range.all]\nvalues = [\"0-9\"]\nstart = \"free\"\n\
         [pool.cad]\nmember = {{ list = [\"A\"] }}\n\
         [app.shop]\nexec = [\"sleep\", \"1000\"]\n",
        hash.as_str()
    );
    let server = Server::start(&config);
    let mut ops = server.connect();
    ops.say("AUTH ops secret");
    let mut idle = server.connect();
    let id = idle.say("CLIENT ID");
    let kill_idle = format!("CLIENT KILL {id}");
    for (kind, words) in [
        ("config", &["CONFIG SET server.drain 7s"][..]),
        (
            "config",
            &["CONFIG APPLY", &format!("{config}[pool.more]\n")],
        ),
        ("config", &["CONFIG ROLLBACK"]),
        ("pool", &["POOL.PAUSE cad"]),
        ("pool", &["POOL.RESUME cad"]),
        ("pool", &["POOL.RECYCLE cad"]),
        ("config", &["POOL.SET cad max 1"]),
        ("pool", &["POOL.ADD new", "member = { list = [\"x\"] }"]),
        ("pool", &["POOL.DEL new"]),
        ("config", &["RANGE.ADD new", "values = [\"20-29\"]"]),
        ("config", &["RANGE.SET new cool 7s"]),
        ("config", &["RANGE.REMOVE new"]),
        ("range", &["RANGE.RELEASE KEYPREFIX a"]),
        ("range", &["RANGE.DEBUG 0"]),
        ("app", &["APP.RESTART shop"]),
        ("config", &["APP.SET shop MAX 2"]),
        ("client", &[kill_idle.as_str()]),
    ] {
        let serial = |ops: &mut crate::peer::Peer| {
            let events = ops.ask(&["SHOW", "EVENTS", "COUNT", "1"]);
            match rows(&events).is_empty() {
                true => 0,
                false => cell(&events, 0, "id").parse::<u64>().unwrap(),
            }
        };
        let before = serial(&mut ops);
        // The first holds words, and what follows is one word each.
        let mut all: Vec<&str> = words[0].split(' ').collect();
        all.extend(&words[1..]);
        let answer = crate::peer::text(&ops.ask(&all));
        assert!(!answer.starts_with('-'), "{words:?}: {answer}");
        let events = ops.ask(&["SHOW", "EVENTS", "COUNT", "20"]);
        let new = (0..rows(&events).len()).filter(|row| {
            let is_new = cell(&events, *row, "id").parse::<u64>().unwrap() > before;
            is_new && cell(&events, *row, "by") == "ops" && cell(&events, *row, "kind") == kind
        });
        assert!(new.count() > 0, "{words:?} is told: {:?}", rows(&events));
    }
}
