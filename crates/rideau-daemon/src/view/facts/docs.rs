//! The tables of metrics in docs are made from the facts. They are between two comments, of
//! which the first names the kinds; `UPDATE_DOCS=1` writes them anew.

use std::fmt::Write;
use std::path::Path;

use super::{Described, KINDS, Surface};

const BEGIN: &str = "<!-- metrics of ";
const END: &str = "<!-- end of metrics -->";
/// Pages that have such tables.
const PAGES: [&str; 3] = ["docs/apps-operate.md", "docs/cluster.md", "docs/daemon.md"];

#[test]
fn docs_have_every_metric_of_every_thing() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut said = Vec::new();
    for page in PAGES {
        let text = std::fs::read_to_string(root.join(page)).unwrap();
        let mut wanted = String::new();
        let mut parts = text.split_inclusive('\n');
        while let Some(line) = parts.next() {
            wanted += line;
            let Some(kinds) = line.strip_prefix(BEGIN) else {
                continue;
            };
            let kinds = kinds.trim_end().trim_end_matches(" -->").split(' ');
            let kinds: Vec<_> = kinds.collect();
            let _ = writeln!(wanted, "{}{END}", table(&kinds));
            said.extend(kinds.into_iter().map(str::to_owned));
            let old = parts.by_ref().find(|line| line.trim_end() == END);
            assert!(old.is_some(), "{page}: a table does not end");
        }
        if std::env::var_os("UPDATE_DOCS").is_some() {
            std::fs::write(root.join(page), &wanted).unwrap();
        } else {
            assert!(
                text == wanted,
                "{page} is not as the facts: UPDATE_DOCS=1 writes it"
            );
        }
    }
    for known in KINDS.iter().filter(|known| !rows(known).is_empty()) {
        let word = known.kind.word;
        assert!(
            said.iter().any(|said| said == word),
            "no page has the metrics of {word}"
        );
    }
}

fn table(kinds: &[&str]) -> String {
    let mut table = String::from("| metric | labels | |\n|---|---|---|\n");
    for word in kinds {
        let known = KINDS.iter().find(|known| known.kind.word == *word);
        let known = known.unwrap_or_else(|| panic!("there is no kind {word}"));
        for (name, labels, help) in rows(known) {
            let _ = writeln!(table, "| `{name}` | {} | {help} |", labels.join(", "));
        }
    }
    table
}

/// The metrics of a kind: name, labels, sentence.
fn rows(known: &Described) -> Vec<(String, Vec<&'static str>, &'static str)> {
    let mut rows: Vec<(String, Vec<&'static str>, &'static str)> = Vec::new();
    let kind = &known.kind;
    for fact in (known.facts)() {
        for (family, on) in fact.metrics() {
            let is_counter = on.surface == Surface::Counter;
            let total = if is_counter { "_total" } else { "" };
            let name = format!("rideau_{}_{family}{total}", kind.word);
            if rows.iter().any(|(known, ..)| *known == name) {
                continue;
            }
            let own = std::iter::once(kind.label);
            let labels = own.chain(on.labels.iter().map(|(label, _)| *label));
            rows.push((name, labels.collect(), kind.help(&family, fact)));
        }
    }
    rows
}
