//! Commands of Redis that there are not here, and what there is instead.
//!
//! A client made for Redis tries what it knows: the error says what does the same.

use rideau_resp::Upper;

const LOCKS: &str = "no values are stored here. As a lock: LOCK key WAIT ms, then UNLOCK key or \
                     RELEASE ticket; it is free again when the connection closes.";
const KEYS: &str = "no values are stored here. LOCK.STAT key says how often a key is held, \
                    UNLOCK key or RELEASE ticket gives it back, and LOOKUP value says which \
                    connection or key has a value of a range.";
const SCRIPTS: &str = "there are no scripts. LOCK, TAKE, RESERVE and ASK each decide in one step, \
                       and UNLOCK and RELEASE give back only what is yours.";
const LISTS: &str = "there are no lists or streams. ASK broker WAIT ms waits for an offer, \
                     OFFER broker VALUE v offers, and TAKE pool WAIT ms waits for a member.";
const COUNTERS: &str = "there are no counters. LOCK key PER n lets n hold a key at a time, RESERVE \
                        range gives each holder its own number, and the fence of a LOCK grows.";
const FIELDS: &str = "no values are stored here. RESERVE range SET field content and UPDATE \
                      value SET field content write beside a value of a range, and LOOKUP value \
                      reads it.";
const NEWS: &str = "only the server tells events: SUBSCRIBE rideau:events. Two clients meet with \
                    ASK broker VALUE v and OFFER broker VALUE v.";
const NOTHING: &str = "no values are stored here, so there is nothing to save, copy or delete. \
                       RELEASE ticket ends a lease, CONFIG REWRITE saves the config.";
pub(super) const ALONE: &str = "this is one server, without a cluster or replicas: connect as to \
                                a single Redis server.";
const STOP: &str = "send the server SIGTERM to stop it: holders may finish first.";
const INSIGHT: &str = "SHOW lists everything, EXPLAIN says why something waits, and INFO and \
                       /metrics have the numbers.";

/// Our commands to use instead of those of Redis, by their names.
const TABLE: &[(&[&str], &str)] = &[
    (
        &[
            "SET", "SETNX", "SETEX", "PSETEX", "GETSET", "MSET", "MSETNX",
        ],
        LOCKS,
    ),
    (
        &[
            "GET",
            "MGET",
            "GETDEL",
            "GETEX",
            "DEL",
            "UNLINK",
            "EXISTS",
            "TTL",
            "PTTL",
            "EXPIRE",
            "PEXPIRE",
            "EXPIREAT",
            "PEXPIREAT",
            "PERSIST",
            "KEYS",
            "TYPE",
            "APPEND",
            "STRLEN",
            "TOUCH",
            "RENAME",
            "RANDOMKEY",
            "DELEX",
        ],
        KEYS,
    ),
    (
        &[
            "EVAL",
            "EVALSHA",
            "EVAL_RO",
            "EVALSHA_RO",
            "SCRIPT",
            "FCALL",
            "FCALL_RO",
            "FUNCTION",
        ],
        SCRIPTS,
    ),
    (
        &[
            "BLPOP",
            "BRPOP",
            "BLMOVE",
            "BLMPOP",
            "BRPOPLPUSH",
            "RPOPLPUSH",
            "LMOVE",
            "LMPOP",
            "LPOP",
            "RPOP",
            "LPUSH",
            "RPUSH",
            "LPUSHX",
            "RPUSHX",
            "LLEN",
            "LRANGE",
            "LREM",
            "LTRIM",
            "BZPOPMIN",
            "BZPOPMAX",
            "BZMPOP",
            "ZPOPMIN",
            "ZPOPMAX",
            "XADD",
            "XREAD",
            "XREADGROUP",
            "XACK",
            "XGROUP",
            "XLEN",
            "XCLAIM",
            "XAUTOCLAIM",
            "XPENDING",
            "XRANGE",
        ],
        LISTS,
    ),
    (
        &[
            "INCR",
            "INCRBY",
            "INCRBYFLOAT",
            "DECR",
            "DECRBY",
            "HINCRBY",
            "ZADD",
            "ZREM",
            "ZINCRBY",
            "ZRANGE",
            "ZRANGEBYSCORE",
            "ZREMRANGEBYSCORE",
            "ZCARD",
            "ZCOUNT",
            "ZSCORE",
            "SADD",
            "SREM",
            "SCARD",
            "SMEMBERS",
            "SISMEMBER",
            "SPOP",
        ],
        COUNTERS,
    ),
    (
        &[
            "HSET", "HGET", "HMSET", "HMGET", "HGETALL", "HDEL", "HEXISTS", "HSETNX", "HKEYS",
            "JSON.GET", "JSON.SET",
        ],
        FIELDS,
    ),
    (
        &[
            "PUBLISH",
            "SPUBLISH",
            "SSUBSCRIBE",
            "SUNSUBSCRIBE",
            "PUBSUB",
        ],
        NEWS,
    ),
    (
        &[
            "FLUSHALL",
            "FLUSHDB",
            "SAVE",
            "BGSAVE",
            "BGREWRITEAOF",
            "LASTSAVE",
            "DUMP",
            "RESTORE",
            "MIGRATE",
            "MOVE",
            "COPY",
            "SWAPDB",
        ],
        NOTHING,
    ),
    (
        &[
            "SENTINEL",
            "REPLICAOF",
            "SLAVEOF",
            "ROLE",
            "WAIT",
            "WAITAOF",
            "PSYNC",
            "FAILOVER",
        ],
        ALONE,
    ),
    (&["SHUTDOWN"], STOP),
    (
        &["MEMORY", "OBJECT", "DEBUG", "LOLWUT", "SORT", "HOTKEYS"],
        INSIGHT,
    ),
];

/// The sentence that says what to use instead of a command of Redis.
pub(super) fn of(name: &[u8]) -> Option<&'static str> {
    let upper = Upper::of(name);
    let is_it = |known: &str| known.as_bytes() == upper.as_bytes();
    let found = TABLE
        .iter()
        .find(|(names, _)| names.iter().any(|known| is_it(known)));
    found.map(|(_, instead)| *instead)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_redis_has_and_we_have_not_leads_to_what_we_have() {
        for (name, wanted) in [
            ("SET", "LOCK key WAIT ms"),
            ("get", "LOCK.STAT"),
            ("EVAL", "decide in one step"),
            ("blpop", "ASK broker"),
            ("INCR", "PER n"),
        ] {
            let said = of(name.as_bytes()).unwrap();
            assert!(said.contains(wanted), "{name}: {said}");
        }
        assert!(of(b"NOPE").is_none());
    }

    #[test]
    fn what_is_named_there_is_and_what_there_is_is_not_named() {
        for (names, instead) in TABLE {
            for name in *names {
                assert!(super::super::find(name.as_bytes()).is_none(), "{name}");
            }
            assert!(instead.ends_with('.'), "{instead}");
        }
        for name in [
            "LOCK", "UNLOCK", "RELEASE", "TAKE", "RESERVE", "UPDATE", "LOOKUP",
        ] {
            assert!(super::super::find(name.as_bytes()).is_some(), "{name}");
        }
    }
}
