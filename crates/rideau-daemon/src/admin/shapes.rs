//! The shapes of all JSON that is sent or read, in few words.
//!
//! `name:type` is there always, `name?:type` perhaps. A type is `string`,
//! `integer`, `number`, `boolean`, `any`, another shape by its name, `[type]` for
//! a list, `{type}` for a map, and `type|null`. `@kind` has all facts of a kind of thing.

use serde_json::{Map, Value, json};

use crate::view::facts::{About, KINDS, Type};

/// Every shape.
#[rustfmt::skip]
const ALL: &[(&str, &str)] = &[
    ("Any", ""),
    ("Error", "error:string code:string"),
    ("Ok", "outcome:string"),
    ("WebLogin", "user:string key:string"),
    ("Page", "path:string title:string blocks:[any] frame:any"),
    ("State", "name:string version:string up_ms:integer is_draining:boolean clients:integer \
        sessions:integer waiting:integer keys:integer commands:integer refusals:integer \
        config_changes:integer pools:[Pool] brokers:[Broker] regulators:[Regulator] \
        lock_rules:[Rule] apps:[App]"),
    ("Spans", "count:integer p50_us:integer p90_us:integer p99_us:integer longest_us:integer"),
    ("Tally", "came:integer served:integer cancelled:integer refused:{integer} wait:Spans"),
    ("Pools", "pools:[Pool] groups:[Group]"),
    ("Group", "@group"),
    ("Pool", "@pool"),
    ("PoolMore", "@pool holders:[PoolHolder] explain:string"),
    ("PoolHolder", "held_us:integer uses:integer note:string|null"),
    ("Brokers", "brokers:[Broker]"),
    ("Broker", "@broker"),
    ("BrokerMore", "@broker explain:string"),
    ("Regulators", "regulators:[Regulator]"),
    ("Regulator", "@regulator explain?:string"),
    ("Valve", "kind:string min:integer max:integer"),
    ("Locks", "keys:[Key] cursor:string|null rules:[Rule]"),
    ("Key", "key:string held:integer waiting:integer rule:string|null"),
    ("Rule", "@lock"),
    ("Apps", "apps:[App] processes:integer max:integer headroom:integer starved:integer \
        policy:string|null losses:{number} what_if:[WhatIf]"),
    ("WhatIf", "max:integer loss:number"),
    ("App", "@app"),
    ("Failing", "failures:integer retry_after_us:integer"),
    ("AppMore", "@app processes:[Process] explain:string report:any"),
    ("Process", "@process"),
    ("AppRequest", "method:string path:string client:string|null age_ms:integer"),
    ("AppLog", "lines:[AppLine]"),
    ("AppLine", "serial:integer at_ms:integer process:integer stream:string text:string"),
    ("RestartApp", "how?:string"),
    ("Trial", "verdict:string"),
    ("Clients", "clients:[Client] total:integer cursor:string|null"),
    ("Client", "@client"),
    ("Sessions", "sessions:[SessionRow] total:integer cursor:string|null"),
    ("SessionRow", "@session"),
    ("Holders", "holders:[Holding] total:integer cursor:string|null"),
    ("Holding", "@holder"),
    ("Drops", "drops:[Drop] total:integer cursor:string|null"),
    ("Drop", "@drop"),
    ("Limits", "limits:[Limit]"),
    ("Limit", "@limits"),
    ("Explained", "id:string kind:string text:string about:{any}"),
    ("History", "names:[string] series:{any} step_ms:integer"),
    ("Resize", "init?:integer max?:integer"),
    ("Recycle", "over_ms?:integer"),
    ("Rollback", "version?:integer"),
    ("Versions", "versions:[Version]"),
    ("Version", "version:integer at_ms:integer by:string summary:string"),
    ("Revoked", "outcome:string name:string holder:string"),
    ("Config", "rows:[ConfigRow]"),
    ("ConfigRow", "key:string value:string"),
    ("Verdict", "is_usable:boolean faults:[Fault] text:string error?:string code?:string"),
    ("Fault", "level:string line:integer column:integer message:string hint:string"),
    ("Plan", "steps:[Step] restarts:integer shed:integer text:string"),
    ("Step", "path:string old:string|null new:string|null needs_restart:boolean meaning:string \
        shed:integer"),
    ("OpenSession", "ttl_ms?:integer grace_ms?:integer name?:string"),
    ("Session", "id:string ttl_ms:integer|null"),
    ("Released", "released:integer"),
    ("Take", "wait_ms?:integer flow?:string note?:string id?:string async?:boolean"),
    ("Taken", "outcome:string ticket:string member:string waited_us:integer"),
    ("Lock", "per?:integer buckets?:integer units?:integer wait_ms?:integer note?:string \
        id?:string async?:boolean"),
    ("Locked", "outcome:string ticket:string ordinal:integer capacity:integer fence:integer \
        waited_us?:integer"),
    ("Come", "value?:string wait_ms?:integer flow?:string note?:string id?:string now?:boolean \
        async?:boolean"),
    ("Met", "outcome:string ticket:string value:string lead_us:integer waited_us:integer"),
    ("Wait", "wait_ms?:integer note?:string id?:string async?:boolean"),
    ("Leased", "outcome:string ticket:string lead_us:integer waited_us:integer"),
    ("Placed", "outcome:string ticket:string address:string pid:integer waited_us:integer"),
    ("Ranges", "ranges:[Range]"),
    ("Range", "@range"),
    ("RangeMore", "@range explain:string"),
    ("Views", "views:[View]"),
    ("View", "@view"),
    ("Reserve", "prefer?:[string] ttl_ms?:integer keys?:[string] unique?:[string] data?:{any} \
        count?:integer partial?:boolean id?:string hint?:string wait_ms?:integer note?:string \
        async?:boolean"),
    ("Given", "outcome:string value?:string ticket?:string expires_ms?:integer tier?:string \
        hops?:integer fence?:integer was?:string values?:[Value]"),
    ("Value", "value:string ticket:string expires_ms:integer tier:string hops:integer \
        fence:integer"),
    ("NotGiven", "outcome?:string free?:any total?:any why?:string reason?:string \
        retry_after_us?:integer id?:string state?:string error?:string code?:string"),
    ("Change", "fence?:integer ttl_ms?:integer keys?:[string] unique?:[string] data?:{any} \
        claim?:boolean"),
    ("Refresh", "fence?:integer ttl_ms?:integer"),
    ("Changed", "outcome:string expires_ms:integer fence:integer was?:string old?:{any}"),
    ("Seen", "value:string keys:[string] data:{any} expires_ms:integer state:string node:string \
        fence:integer|null range:string age_ms:integer updates:integer"),
    ("SeenAll", "values:[Seen] cursor:string|null"),
    ("Refused", "outcome?:string waited_us?:integer why?:string reason?:string \
        retry_after_us?:integer id?:string held?:integer capacity?:integer error?:string \
        code?:string"),
    ("Waits", "outcome:string ticket:string wait_ms?:integer"),
    ("Cancelled", "is_cancelled:boolean"),
    ("Done", "payload?:string"),
    ("Await", "wait_ms?:integer"),
    ("Ended", "outcome:string payload?:string why?:string"),
    ("Awaited", "outcome:string ticket?:string member?:string value?:string address?:string \
        value_ticket?:string expires_ms?:integer tier?:string hops?:integer \
        pid?:integer ordinal?:integer capacity?:integer fence?:integer lead_us?:integer \
        waited_us?:integer payload?:string why?:string"),
];

/// All shapes as JSON schemas, by name.
pub(super) fn schemas() -> Value {
    let all = ALL.iter();
    let all = all.map(|(name, fields)| ((*name).to_owned(), object(fields)));
    Value::Object(all.collect())
}

fn object(fields: &str) -> Value {
    let mut properties = Map::new();
    let mut required = Vec::new();
    for field in fields.split_whitespace() {
        if let Some(kind) = field.strip_prefix('@') {
            for (key, fact) in facts(kind) {
                properties.insert(key.into(), property(fact));
                required.push(key);
            }
            continue;
        }
        let (name, kind) = field.split_once(':').unwrap_or((field, "any"));
        let (name, is_optional) = match name.strip_suffix('?') {
            Some(name) => (name, true),
            None => (name, false),
        };
        properties.insert(name.into(), schema(kind));
        if !is_optional {
            required.push(name);
        }
    }
    json!({ "type": "object", "properties": properties, "required": required })
}

/// The facts of a kind of thing that the API has, by their keys.
fn facts(word: &str) -> Vec<(&'static str, &'static About)> {
    let mut kinds = KINDS.iter();
    let known = kinds.find(|known| known.kind.word == word);
    let facts = known.map_or_else(Vec::new, |known| (known.facts)());
    let facts = facts.into_iter();
    facts.filter_map(|fact| Some((fact.key()?, fact))).collect()
}

fn property(fact: &About) -> Value {
    let is = match fact.is {
        Type::Count | Type::Bytes | Type::Span | Type::Instant => "integer",
        Type::Ratio => "number",
        Type::Text => "string",
        Type::Flag => "boolean",
        Type::Names => "[string]",
        Type::Counts => "{integer}",
        Type::Spans => "Spans",
        Type::Tally => "Tally",
        Type::Size | Type::Columns => "any",
        Type::Shape(shape) => shape,
    };
    let mut property = if fact.is_optional {
        schema(&format!("{is}|null"))
    } else {
        schema(is)
    };
    property["description"] = fact.help.into();
    property
}

fn schema(kind: &str) -> Value {
    if let Some(kind) = kind.strip_suffix("|null") {
        return json!({ "anyOf": [schema(kind), { "type": "null" }] });
    }
    if let Some(kind) = kind.strip_prefix('[').and_then(|k| k.strip_suffix(']')) {
        return json!({ "type": "array", "items": schema(kind) });
    }
    if let Some(kind) = kind.strip_prefix('{').and_then(|k| k.strip_suffix('}')) {
        return json!({ "type": "object", "additionalProperties": schema(kind) });
    }
    match kind {
        "any" => json!({}),
        "string" | "integer" | "number" | "boolean" => json!({ "type": kind }),
        shape => json!({ "$ref": format!("#/components/schemas/{shape}") }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shape_that_is_named_is_there() {
        let schemas = schemas();
        let text = schemas.to_string();
        for part in text.split("#/components/schemas/").skip(1) {
            let name = part.split('"').next().unwrap();
            assert!(schemas.get(name).is_some(), "{name}");
        }
        for (name, fields) in ALL {
            let kinds = fields
                .split_whitespace()
                .filter(|field| field.starts_with('@'));
            for kind in kinds {
                assert!(!facts(&kind[1..]).is_empty(), "{name} has {kind}");
            }
        }
        assert_eq!(schemas["Session"]["required"], json!(["id", "ttl_ms"]));
        assert_eq!(schemas["Take"]["required"], json!([]));
    }
}
