//! What is shipped beside the program: that it can be read, and that it speaks of
//! what there is.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use rideau_testing::{Signal, Start, command, signal};
use serde_json::Value;
use toml_edit::DocumentMut;

/// Labels that Prometheus itself gives.
const GIVEN: [&str; 3] = ["instance", "job", "le"];

#[test]
fn the_dashboard_shows_metrics_that_there_are() {
    let dashboard: Value = serde_json::from_str(&packaged("grafana.json")).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let ids: BTreeSet<_> = panels.iter().map(|panel| panel["id"].as_u64()).collect();
    assert_eq!(
        ids.len(),
        panels.len(),
        "each panel has a number of its own"
    );
    let mut texts = Vec::new();
    collect(&dashboard, &mut texts);
    assert!(texts.len() > panels.len(), "each panel shows something");
    let used = check(&texts);
    for part in ["pool", "broker", "regulator", "lock", "app"] {
        let prefix = format!("rideau_{part}_");
        assert!(used.iter().any(|name| name.starts_with(&prefix)), "{part}");
    }
}

#[test]
fn the_alerts_are_about_metrics_that_there_are() {
    let alerts = alerts(&packaged("alerts.yml"));
    assert!(alerts.len() >= 6);
    let mut names = BTreeSet::new();
    for alert in &alerts {
        assert!(
            names.insert(&alert["alert"]),
            "{} is there twice",
            alert["alert"]
        );
        for key in ["expr", "for", "severity", "summary", "description"] {
            assert!(
                alert.get(key).is_some_and(|text| !text.is_empty()),
                "{alert:?}"
            );
        }
        let severity = &alert["severity"][..];
        assert!(
            ["critical", "warning", "info"].contains(&severity),
            "{severity}"
        );
    }
    let texts: Vec<_> = alerts.iter().map(|alert| alert["expr"].clone()).collect();
    assert!(!check(&texts).is_empty());
}

#[test]
fn every_metric_in_the_list_is_named_as_its_type_asks() {
    for (name, (kind, _)) in metrics() {
        assert_eq!(name.ends_with("_total"), kind == "counter", "{name}");
        assert_eq!(name.ends_with("_info"), kind == "info", "{name}");
        assert!(
            ["counter", "gauge", "histogram", "info"].contains(&&kind[..]),
            "{name}"
        );
    }
}

#[test]
fn an_expression_with_an_unknown_metric_or_label_is_found() {
    let metrics = metrics();
    for expression in [
        "rideau_pool_member > 1",
        "rate(rideau_pool_members_bucket[1m])",
        "rideau_pool_waiting{pol=\"a\"}",
        "sum by(broker)(rideau_pool_waiting)",
        "(rideau_clients",
    ] {
        assert!(!faults(expression, &metrics).is_empty(), "{expression}");
    }
    let good = "sum by(pool, le)(rate(rideau_pool_wait_seconds_bucket{pool=~\"a{b\"}[1m])) > 1";
    assert_eq!(faults(good, &metrics), [""; 0]);
}

#[test]
fn the_unit_is_one_that_systemd_takes() {
    let unit = packaged("rideau.service");
    for line in [
        "Type=notify",
        "NoNewPrivileges=yes",
        "ProtectSystem=strict",
        "KillMode=mixed",
        "Delegate=yes",
    ] {
        assert!(unit.lines().any(|found| found == line), "{line}");
    }
    // The program is where it was built, and not yet where it will be installed.
    let unit = unit.replace("/usr/bin/rideau", env!("CARGO_BIN_EXE_rideau"));
    let unit = unit.replace("Documentation=man:rideau(1)\n", "");
    let folder = Folder::new("unit");
    let path = folder.0.join("rideau.service");
    fs::write(&path, unit).unwrap();
    let socket = packaged("rideau.socket").replace("Documentation=man:rideau(1)\n", "");
    let socket_path = folder.0.join("rideau.socket");
    fs::write(&socket_path, socket).unwrap();
    let output = command("systemd-analyze")
        .arg("verify")
        .args([&path, &socket_path])
        .output()
        .unwrap();
    assert_ne!(
        output.status.code(),
        Some(127),
        "systemd-analyze is missing"
    );
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let about_us: Vec<_> = said
        .lines()
        .filter(|line| line.contains("rideau"))
        .collect();
    assert_eq!(about_us, [""; 0]);
}

#[test]
fn the_image_runs_one_program_as_nobody() {
    let file = packaged("Dockerfile");
    let lines: Vec<_> = file.lines().filter(|line| !line.starts_with('#')).collect();
    let last = lines
        .iter()
        .rposition(|line| line.starts_with("FROM "))
        .unwrap();
    assert_eq!(lines[last], "FROM scratch");
    let user = lines[last..]
        .iter()
        .find_map(|line| line.strip_prefix("USER "));
    assert!(user.is_some_and(|user| !user.starts_with('0') && !user.starts_with("root")));
    assert!(
        lines[last..]
            .iter()
            .any(|line| line.starts_with("HEALTHCHECK "))
    );
    for copied in lines
        .iter()
        .filter_map(|line| line.strip_prefix("COPY config/"))
    {
        let name = copied.split(' ').next().unwrap();
        assert!(root().join("config").join(name).exists(), "{name}");
    }
}

/// As far as it can be said without building one: `packaging/release` makes what is below target.
#[test]
fn the_debian_package_has_files_that_there_are() {
    let server = root().join("crates/rideau-server");
    let manifest = fs::read_to_string(server.join("Cargo.toml")).unwrap();
    let manifest: DocumentMut = manifest.parse().unwrap();
    let package = &manifest["package"]["metadata"]["deb"];
    let assets = package["assets"].as_array().unwrap();
    let mut targets = BTreeSet::new();
    for asset in assets {
        let word = |at: usize| asset.as_array().unwrap().get(at).unwrap().as_str().unwrap();
        let (from, to) = (word(0), word(1));
        let made = from.starts_with("target/") || from.starts_with("../../target/");
        assert!(made || server.join(from).exists(), "{from}");
        let name = if to.ends_with('/') {
            from.rsplit('/').next().unwrap()
        } else {
            ""
        };
        assert!(
            targets.insert(format!("{to}{name}")),
            "{to}{name} is there twice"
        );
    }
    let configs = package["conf-files"].as_array().unwrap();
    for config in configs {
        let path = config.as_str().unwrap().trim_start_matches('/');
        assert!(targets.contains(path), "{path}");
    }
    let units = package["systemd-units"]["unit-scripts"].as_str().unwrap();
    assert!(server.join(units).join("rideau.service").exists());
    let scripts = package["maintainer-scripts"].as_str().unwrap();
    for script in fs::read_dir(server.join(scripts)).unwrap() {
        let path = script.unwrap().path();
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.contains("\n#DEBHELPER#\n"), "{}", path.display());
    }
}

#[test]
fn the_parent_of_the_server_is_told_when_it_is_ready_and_when_it_stops() {
    let folder = Folder::new("notify");
    let config = folder.0.join("rideau.toml");
    fs::write(
        &config,
        "[server]\nlisten = [\"127.0.0.1:0\"]\nadmin = \"none\"\n",
    )
    .unwrap();
    let socket = folder.0.join("notify");
    let supervisor = UnixDatagram::bind(&socket).unwrap();
    supervisor
        .set_read_timeout(Some(Duration::from_secs(60)))
        .unwrap();
    let heard = || {
        let mut bytes = [0; 64];
        let len = supervisor.recv(&mut bytes).unwrap();
        String::from_utf8_lossy(&bytes[..len]).into_owned()
    };
    let mut server = command(env!("CARGO_BIN_EXE_rideau"))
        .args(["serve", "--config"])
        .arg(&config)
        .env("NOTIFY_SOCKET", &socket)
        .stdout(Stdio::null())
        .start();
    assert_eq!(heard(), "READY=1");
    signal(server.id(), Signal::TERM);
    assert_eq!(heard(), "STOPPING=1");
    assert!(server.wait().unwrap().success());
}

/// A temporary folder, gone with the test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let name = format!("rideau-packaging-{}-{name}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let _ = fs::remove_dir_all(&path);
        fs::create_dir(&path).unwrap();
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn packaged(name: &str) -> String {
    fs::read_to_string(root().join("packaging").join(name)).unwrap()
}

/// Every metric, with its type and its labels.
type Metrics = BTreeMap<String, (String, BTreeSet<String>)>;

fn metrics() -> Metrics {
    let text = packaged("metrics.txt");
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let metric = |line: &str| {
        let mut words = line.split(' ').map(str::to_owned);
        let (name, kind) = (words.next().unwrap(), words.next().unwrap());
        let labels = words.next().unwrap_or_default();
        let labels = labels.split(',').map(str::to_owned).collect();
        (name, (kind, labels))
    };
    lines.map(metric).collect()
}

/// The metrics in expressions that have no fault.
fn check(expressions: &[String]) -> BTreeSet<String> {
    let metrics = metrics();
    let mut used = BTreeSet::new();
    for expression in expressions {
        assert_eq!(faults(expression, &metrics), [""; 0], "{expression}");
        used.extend(words(&unquoted(expression)).filter_map(|word| known(word, &metrics)));
    }
    used
}

/// What is wrong with an expression, as far as names and brackets go.
fn faults(expression: &str, metrics: &Metrics) -> Vec<String> {
    let bare = unquoted(expression);
    let mut faults = Vec::new();
    for pair in ["()", "{}", "[]"] {
        let count = |at: usize| bare.matches(&pair[at..=at]).count();
        if count(0) != count(1) {
            faults.push(format!("{pair} are not in pairs"));
        }
    }
    let is_ours = |word: &&str| word.starts_with("rideau_") || word.starts_with("process_");
    let ours: Vec<_> = words(&bare).filter(is_ours).collect();
    let mut labels: BTreeSet<_> = GIVEN.map(str::to_owned).into();
    for word in ours {
        match known(word, metrics) {
            Some(name) => labels.extend(metrics[&name].1.iter().cloned()),
            None => faults.push(format!("there is no metric {word}")),
        }
    }
    for label in labels_of(&bare).filter(|label| !labels.contains(*label)) {
        faults.push(format!("there is no label {label}"));
    }
    faults
}

/// The metric that a name belongs to: a histogram has several.
fn known(word: &str, metrics: &Metrics) -> Option<String> {
    let is_histogram = |name: &str| {
        metrics
            .get(name)
            .is_some_and(|(kind, _)| kind == "histogram")
    };
    let of_histogram = ["_bucket", "_sum", "_count"]
        .iter()
        .find_map(|end| word.strip_suffix(end).filter(|name| is_histogram(name)));
    let alone = metrics.contains_key(word) && !is_histogram(word);
    of_histogram.or(alone.then_some(word)).map(str::to_owned)
}

/// The labels in braces, and after `by` and `on`.
fn labels_of(bare: &str) -> impl Iterator<Item = &str> {
    let within = |open: &'static str, close: char| {
        let parts = bare.split(open).skip(1);
        parts.flat_map(move |part| part.split(close).next().unwrap_or_default().split(','))
    };
    let braces = within("{", '}').map(|part| part.split(['=', '!']).next().unwrap_or_default());
    let lists = within("by(", ')').chain(within(" on(", ')'));
    braces
        .chain(lists)
        .map(str::trim)
        .filter(|label| !label.is_empty())
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
}

/// The expression without what stands in quotes.
fn unquoted(expression: &str) -> String {
    let parts = expression.split('"').enumerate();
    let bare = parts.filter(|(at, _)| at % 2 == 0).map(|(_, part)| part);
    bare.collect::<Vec<_>>().join("\"\"")
}

/// The expressions of a dashboard.
fn collect(value: &Value, texts: &mut Vec<String>) {
    match value {
        Value::Object(object) => {
            for (key, value) in object {
                match value.as_str() {
                    Some(text) if key == "expr" => texts.push(text.to_owned()),
                    // label_values(metric, label)
                    Some(text) if key == "query" && text.contains('(') => {
                        let (_, rest) = text.split_once('(').unwrap();
                        texts.push(rest.split(',').next().unwrap().to_owned());
                    }
                    _ => collect(value, texts),
                }
            }
        }
        Value::Array(list) => list.iter().for_each(|value| collect(value, texts)),
        _ => (),
    }
}

/// The alerts of a file that has one key on a line, and texts as in JSON.
fn alerts(text: &str) -> Vec<BTreeMap<String, String>> {
    let mut alerts: Vec<BTreeMap<String, String>> = Vec::new();
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let mut lines = lines.peekable();
    for opening in ["groups:", "  - name: rideau", "    rules:"] {
        assert_eq!(lines.next(), Some(opening));
    }
    for line in lines {
        let indent = line.len() - line.trim_start().len();
        let (key, value) = line.trim_start().split_once(':').unwrap();
        let value = value.trim();
        let value = match value.starts_with('"') {
            true => serde_json::from_str(value).unwrap(),
            false => value.to_owned(),
        };
        match (indent, key) {
            (6, "- alert") => alerts.push(BTreeMap::from([("alert".to_owned(), value)])),
            (8, "labels" | "annotations") => assert_eq!(value, ""),
            (8, "expr" | "for") | (10, "severity" | "summary" | "description") => {
                alerts.last_mut().unwrap().insert(key.to_owned(), value);
            }
            _ => panic!("{line}"),
        }
    }
    alerts
}
