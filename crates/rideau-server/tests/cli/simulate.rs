//! Settings that are tried on a virtual clock.

use std::fs;

use serde_json::Value;

use crate::served::{Folder, Served, rideau, text};

/// Run `rideau simulate` with these words; what it printed.
fn simulate(words: &[&str]) -> String {
    let output = rideau().arg("simulate").args(words).output().unwrap();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{words:?}: {out}{err}");
    assert!(err.is_empty(), "no bar where no terminal is: {err}");
    out.to_owned()
}

fn json(words: &[&str]) -> Value {
    let words = [words, &["--json"]].concat();
    serde_json::from_str(&simulate(&words)).unwrap()
}

/// Few requests: the program is not optimised here.
const FEW: &str = "5000";

#[test]
fn one_setting_has_its_numbers_as_json() {
    let words = [
        "--servers",
        "8",
        "--arrivals",
        "poisson:700/s",
        "--service",
        "exponential:10ms",
        "--queue",
        "kind=never",
        "--requests",
        FEW,
        "--seed",
        "3",
    ];
    let said = json(&words);
    assert_eq!(said["requests"], 5_000);
    assert_eq!(said["granted"], 5_000);
    assert_eq!(said["shed"], serde_json::json!({}));
    assert_eq!(said["seed"], 3);
    let number = |key: &str| said[key].as_f64().unwrap();
    assert!((number("goodput_per_s") - 700.0).abs() < 70.0);
    assert!((number("utilisation") - 0.875).abs() < 0.1);
    assert!(number("cpu_ms") > 0.0);
    let wait = |key: &str| said["wait"][key].as_f64().unwrap();
    assert!(wait("p50_us") <= wait("p90_us") && wait("p90_us") <= wait("p99_us"));
    assert!(wait("mean_us") > 0.0 && wait("p99_us") <= wait("max_us"));
    // But for the processor time, the same seed has the same end.
    let mut again = json(&words);
    again["cpu_ms"] = said["cpu_ms"].clone();
    assert_eq!(again, said);
}

#[test]
fn the_broker_has_the_waits_of_the_specification() {
    for (queue, wanted) in [
        ("kind=timeout timeout=1s max=none", [995, 995, 1802, 199]),
        ("kind=codel max=none", [7215, 9445, 103, 1899]),
        ("min-delay", [200, 205, 1960, 42]),
    ] {
        let said = json(&[
            "--at",
            "broker",
            "--servers",
            "1",
            "--busy",
            "--arrivals",
            "constant:200/s",
            "--service",
            "fixed:10ms",
            "--for",
            "20s",
            "--from",
            "10s",
            "--queue",
            queue,
        ]);
        let ms = |key: &str| (said["wait"][key].as_f64().unwrap() / 1e3) as u64;
        let shed = said["shed"].as_object().unwrap().values();
        let shed: u64 = shed.map(|count| count.as_u64().unwrap()).sum();
        let left = said["waiting"].as_u64().unwrap();
        assert_eq!([ms("p50_us"), ms("p99_us"), shed, left], wanted, "{queue}");
    }
}

#[test]
fn settings_are_compared_in_a_table_a_picture_and_a_page() {
    let folder = Folder::new("simulate");
    let (svg, html) = (folder.0.join("a.svg"), folder.0.join("a.html"));
    let said = simulate(&[
        "--queue",
        "paced",
        "--queue",
        "kind=timeout timeout=1s",
        "--load",
        "1,2",
        "--requests",
        FEW,
        "--svg",
        svg.to_str().unwrap(),
        "--html",
        html.to_str().unwrap(),
    ]);
    assert!(said.contains("QUEUE") && said.contains("P99"), "{said}");
    let rows = said.lines().filter(|line| line.contains("kind=timeout"));
    assert_eq!(rows.count(), 2, "{said}");
    assert!(said.contains("bound") && said.contains("timeout"), "{said}");
    let (svg, html) = (
        fs::read_to_string(svg).unwrap(),
        fs::read_to_string(html).unwrap(),
    );
    assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
    assert!(html.contains(&svg), "the page has the picture in it");
    assert!(html.contains("prefers-color-scheme: dark"));
    // Nothing is fetched: the only address is the name of a language.
    let addresses = html.replace("http://www.w3.org/2000/svg", "");
    let addresses = addresses.replace("http-equiv", "");
    for word in ["http", "src=", "href", "url(", "<script", "@import"] {
        assert!(!addresses.contains(word), "{word}");
    }
    let opened = html.matches('<').count() - html.matches("<!doctype").count();
    assert_eq!(
        opened,
        html.matches('>').count() - 1,
        "no text is taken for a tag"
    );
}

#[test]
fn sizes_and_policies_are_suggested_with_their_cost() {
    let words = [
        "--servers",
        "2",
        "--arrivals",
        "poisson:100/s",
        "--queue",
        "paced",
        "--queue",
        "never",
        "--requests",
        "3000",
        "--suggest",
        "p99 wait < 20ms at 2x",
    ];
    let said = simulate(&words);
    assert!(said.contains("Cheapest: "), "{said}");
    assert!(said.contains("more than there are"), "{said}");
    let said = json(&words);
    assert_eq!(said["goal"], "p99 wait < 20ms and shed < 1% at 2x");
    let fewest = said["cheapest"]["fewest"]["servers"].as_u64().unwrap();
    assert!((3..=8).contains(&fewest), "{said}");
    // Eight times the servers there are cannot take a hundred at once.
    let folder = Folder::new("suggest");
    let file = folder.0.join("crowd.csv");
    fs::write(&file, "1\n".repeat(100)).unwrap();
    let mut hopeless = rideau();
    hopeless.args(["simulate", "--servers", "1", "--suggest", "p99 wait < 1ms"]);
    hopeless.args(["--arrivals", &format!("csv:{}", file.display())]);
    let output = hopeless.output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stdout).contains("Nothing reaches the goal"));
}

#[test]
fn a_record_is_played_again() {
    let folder = Folder::new("record");
    let file = folder.0.join("day.csv");
    let rows = (0..200).map(|at| format!("{},5\n", 10 * at));
    fs::write(
        &file,
        format!("at_ms,service_ms\n{}", rows.collect::<String>()),
    )
    .unwrap();
    let arrivals = format!("csv:{}", file.display());
    let said = json(&["--servers", "1", "--arrivals", &arrivals]);
    assert_eq!(said["requests"], 200);
    assert_eq!(said["wait"]["max_us"], 0.0);
    assert!((said["utilisation"].as_f64().unwrap() - 0.5).abs() < 0.01);
    fs::write(&file, "1\nsoon\n").unwrap();
    let mut broken = rideau();
    let output = broken
        .args(["simulate", "--arrivals", &arrivals])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("line 2: \"soon\""));
}

#[test]
fn a_valve_is_tried_as_a_queue_is() {
    let said = json(&[
        "--servers",
        "8",
        "--arrivals",
        "poisson:1600/s",
        "--valve",
        "kind=open max=4",
        "--queue",
        "paced",
        "--requests",
        FEW,
    ]);
    let goodput = said["goodput_per_s"].as_f64().unwrap();
    assert!((350.0..450.0).contains(&goodput), "{goodput}");
}

#[test]
fn words_that_make_no_sense_are_misuse() {
    for (words, wanted) in [
        (&["--arrivals", "700/s"][..], "poisson:700/s"),
        (&["--service", "fixed:10"], "has no unit"),
        (&["--queue", "kind=codell"], "has to be one of"),
        (&["--servers", "0"], "--servers"),
        (&["--load", "4..1"], "0.5..4"),
        (&["--patience", "long"], "200ms"),
        (&["--retries", "often"], "3,after=100ms"),
        (&["--suggest", "fast"], "p99 wait < 50ms"),
        (&["--at", "regulator"], "--valve"),
        (&["--suite", "--load", "2"], "--suite"),
        (&["--for", "1s", "--requests", "5"], "--requests"),
    ] {
        let output = rideau().arg("simulate").args(words).output().unwrap();
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{words:?} {said}");
        assert!(said.contains(wanted), "{words:?} {said}");
        assert!(output.stdout.is_empty(), "{words:?}");
    }
}

#[test]
fn what_a_server_has_not_recorded_is_said() {
    let served = Served::start();
    let history = ["simulate", "--arrivals", "history:licences"];
    let output = served.run(&history);
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stderr);
    assert!(
        said.contains("no history") && said.contains("`server.admin`"),
        "{said}"
    );
    let output = served.run(&["simulate", "--service", "history:nope"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("nope"));
    // A hold that was measured is enough for the times.
    let held = served.run(&["take", "licences", "--", "true"]);
    assert!(held.status.success(), "{}", text(&held.stderr));
    let words = [
        "simulate",
        "--service",
        "history:licences",
        "--requests",
        "100",
        "--json",
    ];
    let output = served.run(&words);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let said: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (&said["servers"], &said["requests"]),
        (&1.into(), &100.into())
    );
}
