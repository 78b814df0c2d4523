//! The document that tells programs what there is, made from the same table as
//! the router.

use serde_json::{Map, Value, json};

use super::routes::{ALL, Method, Needs, Route};
use super::shapes;
use super::visit::{Answer, Visit, ok};

pub(super) async fn show(_visit: Visit) -> Answer {
    ok(&document())
}

fn document() -> Value {
    let mut paths = Map::new();
    for route in ALL {
        let path = route.path.replace("{*", "{");
        let at = paths.entry(path).or_insert_with(|| json!({}));
        at[route.method.to_string().to_lowercase()] = operation(route);
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Rideau",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Pools, brokers, regulators, locks, ranges and applications. A no is an \
                answer: asks say 200 for go, 409 for full, 408 for a wait that ended, 503 with \
                Retry-After for shed. Mistakes have the body {\"error\": sentence, \
                \"code\": word}.",
        },
        "paths": paths,
        "components": {
            "schemas": shapes::schemas(),
            "securitySchemes": { "basic": { "type": "http", "scheme": "basic" } },
        },
    })
}

fn operation(route: &Route) -> Value {
    let mut shown = json!({
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
        "css" => ("text/css", text),
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
