//! Facts of a refused ask.

use super::facts;
use crate::state::refusal_log::Dropped;

facts! { Dropped: "drop" by "drop", joined {};
    id: Text, [SHOW, JSON], |it| format!("d-{:x}", it.serial), "Its id, for EXPLAIN.";
    at_ms: Instant, [SHOW, JSON], |it| it.at, "When it was refused.";
    kind: Text, [SHOW, JSON], |it| it.kind, "What kind of thing refused it.";
    name: Text, [SHOW, JSON], |it| &*it.name, "The name of that thing.";
    reason: Text, [SHOW, JSON], |it| it.reason.word(), "The shedding policy or the limit.";
    waited_us: Span, [SHOW, JSON], |it| it.waited, "How long it had waited.";
    waiting: Count, [SHOW, JSON.named("len")], |it| it.len, "How many waited then.";
    why: Text, [SHOW, JSON], |it| &*it.why, "The reason in words.";
}
