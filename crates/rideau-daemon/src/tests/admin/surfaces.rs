//! The names that programs rely on: columns of `SHOW`, keys of JSON, properties of the OpenAPI
//! document, metrics with their labels, series of the history, columns of the dashboard and
//! of the command line's overview.
//!
//! They are compared with a stored copy, so that none changes unnoticed. `UPDATE_DOCS=1`
//! writes the copy anew.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::state::certificates::CertificateRow;
use crate::view::tables::{self, TableKind, TableQuery};
use rideau_core::apps::State;
use serde_json::Value;

use crate::tests::admin::exposition::Exposition;
use crate::tests::admin::web::{CONFIG, Server};

/// Labels whose values change with the build or with what was asked.
const ANY: [&str; 5] = ["command", "commit", "version", "max", "policy"];
/// Which JSON is looked at: the address, and where in the answer the object is.
const JSON: [(&str, &str, &str); 19] = [
    ("State", "/api/v1/state", ""),
    ("Pool", "/api/v1/pools", "/pools/0"),
    ("Group", "/api/v1/pools", "/groups/0"),
    ("PoolMore", "/api/v1/pools/pg", ""),
    ("Broker", "/api/v1/brokers", "/brokers/0"),
    ("BrokerMore", "/api/v1/brokers/work", ""),
    ("Regulator", "/api/v1/regulators", "/regulators/0"),
    ("Rule", "/api/v1/locks", "/rules/0"),
    ("Range", "/api/v1/ranges", "/ranges/0"),
    ("RangeMore", "/api/v1/ranges/office", ""),
    ("View", "/api/v1/views", "/views/0"),
    ("App", "/api/v1/apps", "/apps/0"),
    ("AppMore", "/api/v1/apps/shop", ""),
    ("Process", "/api/v1/apps/shop", "/processes/0"),
    ("Client", "/api/v1/clients", "/clients/0"),
    ("SessionRow", "/api/v1/sessions", "/sessions/0"),
    ("Holding", "/api/v1/holders", "/holders/0"),
    ("Drop", "/api/v1/drops", "/drops/0"),
    ("Limit", "/api/v1/limits", "/limits/0"),
];

#[tokio::test]
async fn no_name_changes_unnoticed() {
    let name = format!("rideau-surfaces-{}", std::process::id());
    let folder = std::env::temp_dir().join(name);
    let server = format!("run_dir = {folder:?}\nhistory = {{ fine = \"10s@10ms\" }}");
    let fixed = "[lock.\"job/*\"]\nper = 1\nbuckets = 2\n\
                 [[alarm]]\nname = \"many\"\nwhen = \"server.waiting > 9\"";
    let server = Server::start(&format!("[server]\n{server}\n{CONFIG}{fixed}")).await;
    let redis = busy(&server).await;
    let mut text = String::new();
    show(&server, &mut text);
    json(&server, &mut text).await;
    schemas(&server, &mut text).await;
    metrics(&server, &mut text).await;
    list(&server.metrics().await.body);
    history(&server, &mut text).await;
    heads(&server, &mut text).await;
    drop(redis);
    server.daemon.apps.close_now().await;
    let _ = std::fs::remove_dir_all(folder);
    let stored = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/surfaces.txt");
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&stored, &text).unwrap();
    }
    let stored = std::fs::read_to_string(&stored).unwrap_or_default();
    let (old, new): (BTreeSet<_>, BTreeSet<_>) = (stored.lines().collect(), text.lines().collect());
    let gone: Vec<_> = old.difference(&new).collect();
    let come: Vec<_> = new.difference(&old).collect();
    assert!(stored == text, "gone: {gone:#?}\ncome: {come:#?}");
}

/// One of everything that can be seen: a client, a session, a holder, a refusal, a process, a
/// certificate.
async fn busy(server: &Server) -> crate::tests::admin::web::Redis {
    let mut redis = server.redis().await;
    redis.say("PING").await;
    redis.hear().await.unwrap();
    let session = server.session("").await;
    for _ in 0..2 {
        server.ask(&session, "/v1/lock/a", "").await;
    }
    server.daemon.certificates.set_shown(vec![CertificateRow {
        name: "shop".into(),
        is_ordered: false,
        hosts: vec!["shop.example".into()],
        life: (UNIX_EPOCH, SystemTime::now()),
    }]);
    let app = server.daemon.apps.find("shop").unwrap();
    assert!(server.daemon.apps.start_one(&app));
    let is_ready = |daemon: &crate::Daemon| {
        let shown = daemon.apps.shown(&app);
        shown.is_some_and(|shown| {
            let mut all = shown.processes.iter();
            all.any(|process| process.stats.state == State::Ready)
        })
    };
    server.until(is_ready).await;
    redis
}

fn show(server: &Server, text: &mut String) {
    for what in TableKind::ALL {
        let table = tables::table(&server.daemon, what, &TableQuery::default());
        let columns: Vec<&str> = table.columns.to_vec();
        let _ = writeln!(text, "SHOW {}: {}", what.word(), columns.join(" "));
        let columns = what.in_overview();
        if !columns.is_empty() {
            let _ = writeln!(text, "OVERVIEW {}: {}", what.word(), columns.join(" "));
        }
    }
}

async fn json(server: &Server, text: &mut String) {
    for (name, path, pointer) in JSON {
        let answer = server.get(path).await.json();
        let object = answer.pointer(pointer).and_then(Value::as_object);
        let object = object.unwrap_or_else(|| panic!("{path} {pointer} of {answer}"));
        let pairs = object.iter().map(|(key, value)| match value {
            Value::Null => format!("{key}:null"),
            Value::Bool(_) => format!("{key}:boolean"),
            Value::Number(_) => format!("{key}:number"),
            Value::String(_) => format!("{key}:string"),
            Value::Array(_) => format!("{key}:array"),
            Value::Object(_) => format!("{key}:object"),
        });
        let pairs: BTreeSet<_> = pairs.collect();
        let pairs: Vec<_> = pairs.into_iter().collect();
        let _ = writeln!(text, "JSON {name}: {}", pairs.join(" "));
    }
}

async fn schemas(server: &Server, text: &mut String) {
    let document = server.get("/api/openapi.json").await.json();
    let schemas = document["components"]["schemas"].as_object().unwrap();
    for (name, schema) in schemas {
        let required = schema["required"].as_array().unwrap();
        for (key, property) in schema["properties"].as_object().unwrap() {
            let is_required = required.iter().any(|known| known == key);
            let mark = if is_required { "" } else { "?" };
            let mut property = property.clone();
            if let Some(property) = property.as_object_mut() {
                property.remove("description");
            }
            let _ = writeln!(text, "OPENAPI {name}.{key}{mark}: {property}");
        }
    }
}

async fn metrics(server: &Server, text: &mut String) {
    let page = server.metrics().await.body;
    let helps = page.lines().filter_map(|line| {
        let line = line.strip_prefix("# HELP ")?;
        line.split_once(' ')
    });
    let helps: BTreeMap<_, _> = helps.collect();
    for (name, family) in Exposition::read(&page).families {
        let mut labels: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        let mut names = BTreeSet::new();
        for sample in &family.samples {
            names.insert(sample.name.clone());
            for (label, value) in &sample.labels {
                let is_any = ANY.contains(&label.as_str());
                let value = if is_any { "…" } else { value.as_str() };
                let values = labels.entry(label.clone()).or_default();
                values.insert(value.to_owned());
            }
        }
        let _ = writeln!(text, "METRIC {name} {}: {}", family.kind, helps[&*name]);
        let names: Vec<_> = names.into_iter().collect();
        let _ = writeln!(text, "METRIC {name} samples: {}", names.join(" "));
        for (label, values) in labels {
            let values: Vec<_> = values.into_iter().collect();
            let _ = writeln!(text, "METRIC {name}{{{label}}}: {}", values.join(" "));
        }
    }
}

/// The list of metrics that is shipped: name, type, labels. A family without a series does not
/// tell its labels, and keeps its line.
fn list(page: &str) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/metrics.txt");
    let old = std::fs::read_to_string(&file).unwrap();
    let mut new: String = old
        .lines()
        .take(2)
        .map(|line| format!("{line}\n"))
        .collect();
    let mut lines = page.lines().peekable();
    while let Some(line) = lines.next() {
        let Some((name, kind)) = line
            .strip_prefix("# TYPE ")
            .and_then(|line| line.split_once(' '))
        else {
            continue;
        };
        lines.next_if(|line| line.starts_with("# UNIT "));
        let end = match kind {
            "counter" => "_total",
            "info" => "_info",
            _ => "",
        };
        let start = format!("{name}{end} {kind}");
        let sample = lines.peek().filter(|line| !line.starts_with('#'));
        let labels = sample.map(|line| match line.split_once('{') {
            Some((_, labels)) => {
                let pairs = labels.split('}').next().unwrap_or_default().split("\",");
                let names = pairs.filter_map(|pair| pair.split('=').next());
                let names: Vec<_> = names.filter(|name| *name != "le").collect();
                names.join(",")
            }
            None => String::new(),
        });
        let kept = || {
            old.lines()
                .find(|line| line.starts_with(&start))
                .map(str::to_owned)
        };
        let line = match labels {
            Some(labels) => format!("{start} {labels}"),
            None => kept().unwrap_or_else(|| panic!("{start} has no series here")),
        };
        let _ = writeln!(new, "{}", line.trim_end());
    }
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&file, &new).unwrap();
    } else {
        assert!(
            old == new,
            "packaging/metrics.txt is old: UPDATE_DOCS=1 writes it"
        );
    }
}

async fn history(server: &Server, text: &mut String) {
    let mut names = Vec::new();
    let is_there = |name: &Value| name.as_str() == Some("app.shop.ready");
    while !names.iter().any(is_there) {
        let all = server.get("/api/v1/history").await.json();
        names.clone_from(all["names"].as_array().unwrap());
    }
    for name in names {
        let _ = writeln!(text, "HISTORY {}", name.as_str().unwrap());
    }
}

async fn heads(server: &Server, text: &mut String) {
    for path in [
        "pools", "brokers", "locks", "apps", "ranges", "holders", "events", "refusals",
    ] {
        let page = server.get(&format!("/api/v1/page/{path}")).await.json();
        for block in page["blocks"].as_array().unwrap() {
            let Some(heads) = block["heads"].as_array() else {
                continue;
            };
            let heads: Vec<_> = heads
                .iter()
                .map(|head| head["label"].as_str().unwrap())
                .collect();
            let title = block["title"].as_str().unwrap();
            let _ = writeln!(text, "PAGE {title}: {}", heads.join(" | "));
        }
    }
}
