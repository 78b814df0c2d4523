//! The document that tells programs what there is, made from the same table as
//! the router.

use serde_json::{Map, Value, json};

use super::answer::{Answer, ok};
use super::request::AdminRequest;
use super::route::{Method, Needs, Route};
use super::shapes;

pub(super) async fn show(request: AdminRequest) -> Answer {
    ok(&document(request.admin.routes))
}

fn document(routes: &[Route]) -> Value {
    let mut paths = Map::new();
    for route in routes {
        let path = route.path.replace("{*", "{");
        let at = paths.entry(path).or_insert_with(|| json!({}));
        at[route.method.to_string().to_lowercase()] = operation(route);
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Rideau",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Pools, brokers, regulators, locks, ranges and applications. A refusal \
             is an answer: an ask answers 200 for go, 409 for full, 408 for a wait that ended, 503 \
             with Retry-After for shed. Errors have the body {\"error\": sentence, \"code\": \
             word}.",
        },
        "tags": TAGS.map(|(name, about, _)| json!({ "name": name, "description": about })),
        "paths": paths,
        "components": {
            "schemas": shapes::schemas(),
            "securitySchemes": { "basic": { "type": "http", "scheme": "basic" } },
        },
    })
}

fn operation(route: &Route) -> Value {
    let mut shown = json!({
        "operationId": id(route),
        "tags": [tag(route)],
        "summary": route.summary,
        "parameters": parameters(route),
        "responses": responses(route),
    });
    if let Some(shape) = body(route) {
        let (kind, schema) = content(shape);
        shown["requestBody"] = json!({ "content": { kind: { "schema": schema } } });
    }
    if route.needs != Needs::Nothing {
        // Only where the config has users.
        shown["security"] = json!([{}, { "basic": [] }]);
    }
    if let Needs::Right(right) | Needs::Action(right) = route.needs {
        shown["x-rideau-right"] = right.into();
    }
    shown
}

/// What the routes are about: a name, what that is, and the first parts of their
/// addresses.
const TAGS: [(&str, &str, &[&str]); 10] = [
    ("pools", "Members that are lent", &["pools", "take"]),
    ("brokers", "Clients that meet", &["brokers", "ask", "offer"]),
    ("regulators", "How many may run", &["regulators", "lease"]),
    ("locks", "Units of keys", &["locks", "lock"]),
    (
        "ranges",
        "Values, each with one holder",
        &["ranges", "views", "reserve", "claim", "values", "keys"],
    ),
    (
        "apps",
        "Applications and their processes",
        &["apps", "processes", "place"],
    ),
    (
        "holders",
        "Holders, what they hold, and its tickets",
        &["clients", "sessions", "holders", "grants"],
    ),
    (
        "looking",
        "What happens, and why",
        &[
            "state", "drops", "limits", "explain", "stream", "events", "history", "page", "watch",
        ],
    ),
    ("config", "What the server was told", &["config"]),
    ("server", "Health, numbers and pages", &[]),
];

/// The tag of a route.
fn tag(route: &Route) -> &'static str {
    let first = parts(route).first().copied().unwrap_or_default();
    let found = TAGS.iter().find(|(_, _, parts)| parts.contains(&first));
    found.map_or("server", |(name, ..)| name)
}

/// The parts of the address that are always so, without the version.
fn parts(route: &Route) -> Vec<&'static str> {
    let path = route
        .path
        .trim_start_matches("/api")
        .trim_start_matches("/v1");
    let parts = path.split('/').filter(|part| !part.is_empty());
    parts.filter(|part| !part.starts_with('{')).collect()
}

/// The operation id of a route: `listPools`, `getPool`, `resizePool`, `take`.
fn id(route: &Route) -> String {
    let is_one = route.path.ends_with('}');
    let is_api = route.path.starts_with("/api/v1/");
    let parts = parts(route);
    match (route.method, parts.as_slice()) {
        (Method::Get, []) => "getDashboard".into(),
        (Method::Get, ["explain"]) => "explain".into(),
        (Method::Get, [all]) if is_api && !is_one && all.ends_with('s') => {
            format!("list{}", capital(all))
        }
        (Method::Get, [all]) if is_one => format!("get{}", capital(&singular(all))),
        (Method::Get, [all, rest @ ..]) if route.path.contains('{') => {
            let rest: String = rest.iter().map(|part| capital(part)).collect();
            format!("get{}{rest}", capital(&singular(all)))
        }
        (Method::Get, parts) => {
            let parts: String = parts.iter().map(|part| capital(part)).collect();
            format!("get{parts}")
        }
        (Method::Post, [what]) if is_one => (*what).into(),
        (Method::Post, [all]) => format!("create{}", capital(&singular(all))),
        (Method::Post, [all, .., what]) => format!("{what}{}", capital(&singular(all))),
        (Method::Delete, [all, ..]) => format!("delete{}", capital(&singular(all))),
        (method, _) => method.to_string().to_lowercase(),
    }
}

/// One of many.
fn singular(word: &str) -> String {
    match (word.strip_suffix("sses"), word.strip_suffix('s')) {
        (Some(stem), _) => format!("{stem}ss"),
        (None, Some(stem)) => stem.into(),
        (None, None) => word.into(),
    }
}

/// Each word of a part with a capital.
fn capital(part: &str) -> String {
    let words = part.split(|letter: char| !letter.is_ascii_alphanumeric());
    words
        .map(|word| {
            let (first, rest) = word.split_at(word.len().min(1));
            first.to_uppercase() + rest
        })
        .collect()
}

fn parameters(route: &Route) -> Vec<Value> {
    let text = json!({ "type": "string" });
    let parameter = |name: &str, place: &str, required: bool| {
        let schema = text.clone();
        json!({ "name": name, "in": place, "required": required, "schema": schema })
    };
    let mut all = Vec::new();
    for part in route.path.split('{').skip(1) {
        let name = part.split('}').next().unwrap_or_default();
        let mut shown = parameter(name.trim_start_matches('*'), "path", true);
        if name.starts_with('*') {
            shown["description"] = "May have slashes.".into();
        }
        all.push(shown);
    }
    let query = route.known().into_iter();
    all.extend(query.map(|name| parameter(name, "query", false)));
    match route.needs {
        Needs::Session => all.push(parameter("Rideau-Session", "header", true)),
        Needs::Action(_) => all.push(parameter("Rideau-Csrf", "header", true)),
        _ => (),
    }
    all
}

fn responses(route: &Route) -> Value {
    let mut all = Map::new();
    for answer in route.answers.split_whitespace() {
        let (status, shape) = answer.split_once(':').unwrap_or((answer, "Any"));
        all.insert(status.into(), response(shape));
    }
    let usual: &[&str] = match (route.needs, route.method) {
        (Needs::Nothing, _) => &["400"],
        (_, Method::Get) => &["400", "401", "403", "413", "421"],
        _ => &["400", "401", "403", "408", "413", "421"],
    };
    for status in usual {
        if !all.contains_key(*status) {
            all.insert((*status).into(), response("Error"));
        }
    }
    Value::Object(all)
}

fn response(shape: &str) -> Value {
    let (kind, schema) = content(shape);
    let mut content = json!({ kind: { "schema": schema } });
    if shape == "file" {
        for kind in ["text/javascript", "image/svg+xml", "text/plain"] {
            content[kind] = content["text/css"].clone();
        }
    }
    if shape == "metrics" {
        // By the header Accept.
        content["application/openmetrics-text"] = content[kind].clone();
    }
    json!({ "description": shape, "content": content })
}

/// The kind of content, and its schema.
fn content(shape: &str) -> (&'static str, Value) {
    let text = json!({ "type": "string" });
    match shape {
        "html" => ("text/html", text),
        "file" => ("text/css", text),
        "text" | "metrics" => ("text/plain", text),
        "sse" => ("text/event-stream", text),
        "toml" => ("application/toml", text),
        shape => {
            let schema = json!({ "$ref": format!("#/components/schemas/{shape}") });
            ("application/json", schema)
        }
    }
}

/// The shape of a route's body.
fn body(route: &Route) -> Option<&'static str> {
    let mut words = route.takes.split_whitespace();
    words.find(|word| !word.starts_with('?'))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn every_route_has_a_name_of_its_own_and_a_tag_that_is_said() {
        let mut ids = BTreeMap::new();
        for route in crate::admin::routes::ALL {
            let (id, path) = (id(route), route.path);
            assert!(id.bytes().all(|byte| byte.is_ascii_alphanumeric()), "{id}");
            assert!(
                id.starts_with(|first: char| first.is_ascii_lowercase()),
                "{id}"
            );
            let other = ids.insert(id.clone(), path);
            assert!(other.is_none(), "{id} is {path} and {other:?}");
            let is_about = path.starts_with("/api/v1/") || path.starts_with("/v1/");
            assert_eq!(is_about, tag(route) != "server", "{path}");
        }
        for (id, path) in [
            ("listPools", "/api/v1/pools"),
            ("getPool", "/api/v1/pools/{name}"),
            ("resizePool", "/api/v1/pools/{name}/resize"),
            ("killProcess", "/api/v1/processes/{pid}/kill"),
            ("getAppLogs", "/api/v1/apps/{name}/logs"),
            ("checkConfig", "/api/v1/config/check"),
            ("createSession", "/v1/sessions"),
            ("take", "/v1/take/{pool}"),
            ("getMetrics", "/metrics"),
        ] {
            assert_eq!(ids.get(id), Some(&path), "{ids:?}");
        }
    }
}
