//! The options that the documents show are those that the parsers take, and
//! the defaults that they name are the code's.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use rideau_config::Config;
use rideau_core::{OptionError, Settings, meter, queue, valve};
use rideau_testing::Scratch;

#[path = "docs/mapped.rs"]
mod mapped;
#[path = "docs/schema.rs"]
mod schema;

const README: &str = include_str!("../../../README.md");
const QUEUES: &str = include_str!("../../../docs/queues.md");
const BROKER: &str = include_str!("../../../docs/broker.md");
const REGULATOR: &str = include_str!("../../../docs/regulator.md");
const APPS: &str = include_str!("../../../docs/apps.md");
const CONFIG: &str = include_str!("../../../docs/config.md");
const RANGES: &str = include_str!("../../../docs/ranges.md");

#[test]
fn every_option_that_is_shown_can_be_parsed() {
    for document in [README, QUEUES, BROKER, REGULATOR] {
        let shown: Vec<_> = document.lines().flat_map(code).collect();
        for words in shown.iter().filter(|words| words.starts_with("kind=")) {
            let parsed = [
                parse(queue::Options::parse, words).map(drop),
                parse(meter::Options::parse, words).map(drop),
                parse(valve::Options::parse, words).map(drop),
            ];
            assert!(parsed.iter().any(Result::is_ok), "{words}: {parsed:?}");
        }
    }
}

#[test]
fn the_defaults_in_the_tables_are_the_defaults() {
    let meters = defaults(BROKER, meter::Options::parse);
    assert_eq!(meters, ["overload", "underload", "better", "pie"]);

    let valves = defaults(REGULATOR, valve::Options::parse);
    assert_eq!(
        valves,
        ["relative", "codel", "rate", "breaker", "gradient"],
        "`open` and `least_of` have no defaults"
    );

    let spelled_out = "kind=paced order=fifo min=0 max=65_536 overflow=newest";
    let default = parse(queue::Options::parse, spelled_out);
    assert_eq!(default, Ok(queue::Options::default()));

    let bounded = "kind=bounded-codel target=100ms interval=1s wait_max=200ms";
    let bounded = parse(queue::Options::parse, bounded);
    assert_eq!(parse(queue::Options::parse, "kind=bounded-codel"), bounded);
}

/// What the tables of keys call the default changes nothing when it is written out.
#[test]
fn the_defaults_in_the_tables_of_keys_are_the_defaults() {
    let heads = [
        (CONFIG, "server", "[server]\n"),
        (CONFIG, "limits", "[limits]\n"),
        (CONFIG, "log", "[log]\n"),
        (CONFIG, "store", "[store]\n"),
        (CONFIG, "user", "[user.a]\nuids = [1]\nallow = [\"take\"]\n"),
        (CONFIG, "pool", "[pool.a]\nmember = { exec = [\"x\"] }\n"),
        (CONFIG, "group", "[group.a]\n"),
        (CONFIG, "broker", "[broker.a]\n"),
        (
            CONFIG,
            "regulator",
            "[broker.b]\n[regulator.a]\nbroker = \"b\"\nvalve = \"open\"\n",
        ),
        (CONFIG, "lock", "[lock.a]\n"),
        (APPS, "front", "[front]\n"),
        (APPS, "app", "[app.a]\nexec = [\"x\"]\n"),
        (RANGES, "range", "[range.a]\nvalues = [\"1-9\"]\n"),
    ];
    for (document, section, head) in heads {
        let rows = options(document, section);
        assert!(!rows.is_empty(), "{section}");
        let told = rows.iter().filter_map(|(key, default)| {
            let is_other = !key.contains('.') && !head.contains(&format!("{key} ="));
            let default = default.filter(|_| is_other)?;
            Some(format!("{key} = {default}\n"))
        });
        let told = format!("{head}{}", told.collect::<String>());
        let parse = |text| Config::parse(text, "docs", &|_| None);
        assert_eq!(parse(&told), parse(head), "{told}");
    }
}

#[test]
fn the_files_in_the_page_of_apps_can_be_used() {
    let files: Vec<_> = APPS.split("```toml\n").skip(1).collect();
    assert!(!files.is_empty());
    // Files that a config names have to be there.
    let folder = Scratch::new();
    for name in ["shop.pem", "shop.key", "failed.html", "shop-busy.html"] {
        let path = folder.join(name);
        fs::write(&path, "").unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
    }
    let there = folder.join("").display().to_string();
    for file in files {
        let (text, _) = file.split_once("```").unwrap();
        let text = text.replace("/etc/rideau/tls/", &there);
        let text = text.replace("/srv/pages/", &there);
        let text = text.replace("/srv/shop/public", &there);
        let (config, faults) = Config::check(&text, "docs/apps.md", &|_| None);
        assert!(config.is_some() && faults.is_empty(), "{faults}");
    }
}

/// The keys of the table of a section, each with its default if that is a value.
fn options<'a>(document: &'a str, section: &str) -> Vec<(&'a str, Option<&'a str>)> {
    let (_, after) = document
        .split_once(&format!("<!-- keys: {section} -->"))
        .unwrap();
    let (table, _) = after.split_once("<!-- end of keys -->").unwrap();
    let rows = table.lines().filter(|line| line.starts_with("| `"));
    rows.map(|row| {
        let cells: Vec<_> = row.split(" | ").collect();
        let whole = cells[1]
            .strip_prefix('`')
            .and_then(|cell| cell.strip_suffix('`'));
        (code(cells[0])[0], whole.filter(|cell| !cell.contains('`')))
    })
    .collect()
}

/// The kinds whose row names defaults; each must be the same as the bare kind.
fn defaults<T: PartialEq + std::fmt::Debug>(
    document: &str,
    read: fn(Settings) -> Result<T, OptionError>,
) -> Vec<&str> {
    let mut kinds = Vec::new();
    for row in document.lines().filter(|line| line.starts_with("| `")) {
        let cells: Vec<_> = row.split('|').collect();
        let (kind, options) = (code(cells[1])[0], code(cells[2]));
        let options = options.first().filter(|words| words.contains('='));
        let (Some(options), Ok(bare)) = (options, parse(read, &format!("kind={kind}"))) else {
            continue;
        };
        let spelled_out = parse(read, &format!("kind={kind} {options}"));
        assert_eq!(spelled_out, Ok(bare), "{row}");
        kinds.push(kind);
    }
    kinds
}

fn parse<T>(read: fn(Settings) -> Result<T, OptionError>, words: &str) -> Result<T, OptionError> {
    Settings::parse(words).and_then(read)
}

/// What stands between backticks.
fn code(line: &str) -> Vec<&str> {
    line.split('`').skip(1).step_by(2).collect()
}

/// What a page links to is there: a file, and in it a heading.
#[test]
fn links_lead_somewhere() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut pages = vec![root.join("README.md"), root.join("ARCHITECTURE.md")];
    let docs = fs::read_dir(root.join("docs")).unwrap();
    let docs = docs.map(|page| page.unwrap().path());
    // Beside the pages are pictures.
    pages.extend(docs.filter(|page| page.is_file()));
    let mut count = 0;
    for page in pages {
        let text = fs::read_to_string(&page).unwrap();
        for link in text.split("](").skip(1) {
            let (link, _) = link.split_once(')').unwrap();
            if link.contains("://") {
                continue;
            }
            count += 1;
            let (file, heading) = link.split_once('#').unwrap_or((link, ""));
            let target = match file {
                "" => page.clone(),
                file => page.parent().unwrap().join(file),
            };
            assert!(target.exists(), "{}: {link}", page.display());
            if !heading.is_empty() {
                let found = fs::read_to_string(&target).unwrap();
                let mut anchors = found.lines().filter_map(anchor);
                assert!(anchors.any(|name| name == heading), "{link}");
            }
        }
    }
    assert!(count > 20, "{count} links were found");
}

/// How a heading is linked to.
fn anchor(line: &str) -> Option<String> {
    let heading = line.strip_prefix('#')?.trim_start_matches('#').trim();
    let plain = heading.to_lowercase().replace(' ', "-");
    let is_kept = |c: &char| c.is_alphanumeric() || "-_".contains(*c);
    Some(plain.chars().filter(is_kept).collect())
}
