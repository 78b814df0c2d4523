//! Requests between nodes about values, besides commands of clients.
//!
//! It is written like a command. No command of a client has such a name, so none is taken
//! for one of these.

use rideau_resp::{Protocol, Reply, RequestLimits, RequestParser};

/// Have a node that has free values execute this command: the command.
pub(crate) const SEEK: &str = "~seek";
/// The same, and wait in the line of its first range: the command.
pub(crate) const LINE: &str = "~line";
/// Execute a command that takes a key for its record: the key and the command.
pub(crate) const KEYED: &str = "~keyed";
/// Execute a command about the record that has a key: the key and the command.
pub(crate) const BY: &str = "~by";
/// Execute a command whose key is vouched for: partition and epoch of the key, and the
/// command.
pub(crate) const VOUCHED: &str = "~vouched";
/// How much is free: the ranges.
pub(crate) const FREE: &str = "~free";
/// Report keys: the cursor, and pairs of partition and epoch.
pub(crate) const REPORT: &str = "~report";
/// Which values have these keys here: the keys.
pub(crate) const FIND: &str = "~find";
/// Have every node do its part of a command: the command.
pub(crate) const ALL: &str = "~all";
/// Execute a command of which every node does its part: the command.
pub(crate) const PART: &str = "~part";
/// What happened to a value: its words. It goes in a message, and is not asked.
pub(crate) const HAPPENED: &str = "~happened";

/// Let a lease of a regulator go on: the ticket of its row.
pub(crate) const RENEW: &str = "~renew";

/// Write what a node asks another.
pub(crate) fn write<W: AsRef<[u8]>>(verb: &str, words: &[W]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut reply = Reply::new(&mut bytes, Protocol::Resp2);
    reply.array(1 + words.len()).bulk(verb);
    for word in words {
        reply.bulk(word.as_ref());
    }
    bytes
}

/// The words of a command, or of what a node asks.
pub(crate) fn read(bytes: &[u8]) -> Option<Vec<Vec<u8>>> {
    let limits = RequestLimits {
        bulk_max: bytes.len().max(1),
        frame_max: bytes.len().max(1),
        ..RequestLimits::default()
    };
    let mut parser = RequestParser::default();
    let request = parser.next(bytes, &mut 0, &limits).ok().flatten()?;
    Some(request.words().map(<[u8]>::to_vec).collect())
}

/// Is it what nodes ask, and no command of a client?
pub(crate) fn is_verb(command: &[u8]) -> bool {
    let head = command.splitn(4, |byte| *byte == b'\n').nth(2);
    head.is_some_and(|name| name.starts_with(b"~"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nodes_ask_is_told_from_commands() {
        let seek = write(SEEK, &[write("RESERVE", &["~all"])]);
        assert!(is_verb(&seek));
        assert!(!is_verb(&write("RESERVE", &["~all"])));
        assert!(!is_verb(b"") && !is_verb(b"PING\r\n"));
        let words = read(&seek).unwrap();
        assert_eq!(words[0], b"~seek");
        assert_eq!(read(&words[1]).unwrap(), [&b"RESERVE"[..], b"~all"]);
    }
}
