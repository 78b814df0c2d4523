//! The dashboard in a real browser: Debian's Chromium, driven by playwright-core, and looked
//! at by axe-core.
//!
//! One browser tries all cases, each in `dashboard.mjs`; here they are tests, by their names.
//! `DASHBOARD_PICTURES=FOLDER` keeps a picture of each page, and `DASHBOARD_ASSETS=FOLDER` takes
//! the files of the page from there.

use std::collections::BTreeMap;
use std::env;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Stdio;
use std::sync::LazyLock;

use rideau_testing::{Start, command};
use serde_json::{Value, json};

use crate::clients::{node, run, script};
use crate::server::{Server, free_port, program};

const PLAYWRIGHT: &str = "playwright-core@1.65.1";
const AXE: &str = "axe-core@4.14.1";

const CONFIG: &str = r#"
name = "rideau-a"

[store]
kind = "memory"

[pool.pg]
group = "db"
member = { list = ["pg-1", "pg-2", "pg-3", "pg-4", "pg-5", "pg-6"] }
queue = { kind = "bounded-codel", target = "20ms", interval = "200ms" }

[pool.licences]
member = { list = ["CAD-001", "CAD-002"] }
leak_after = "1s"

[broker.checkout]
asks = { kind = "bounded-codel", target = "50ms", interval = "500ms" }

[regulator.size]
valve = { kind = "open", max = 4 }

[lock."tenant/*"]
per = 1

[lock."*"]

[range.office]
values = ["10.20.0.0/24", "10.20.9.1-10.20.9.40"]
start = "free"

[view.low]
values = ["10.20.0.0/26"]

[front]
listen = ["127.0.0.1:FRONT"]

[app.shop]
exec = ["python3", "APP"]
min = 2
max = 3
"#;

/// The outcome of each case: none if it passed, or else why it did not.
static OUTCOMES: LazyLock<BTreeMap<String, Option<String>>> =
    LazyLock::new(|| look("", &json!({})));

/// Look at a server with traffic.
fn look(only: &str, more: &Value) -> BTreeMap<String, Option<String>> {
    let front = free_port();
    let app = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/apps/app.py");
    let config = CONFIG.replace("FRONT", &front.to_string());
    let config = config.replace("APP", &app.display().to_string());
    let server = Server::with_http(&config);
    let mut job = json!({
        "playwright": node(PLAYWRIGHT),
        "axe": node(AXE),
        "url": server.url(),
        "token": server.token(),
        "redis": server.address().port(),
        "front": format!("http://127.0.0.1:{front}"),
        "pictures": env::var("DASHBOARD_PICTURES").ok(),
        "assets": env::var("DASHBOARD_ASSETS").ok(),
        "only": env::var("DASHBOARD_ONLY").unwrap_or_else(|_| only.into()),
    });
    for (name, value) in more.as_object().into_iter().flatten() {
        job[name] = value.clone();
    }
    let mut browser = command("node");
    let said = run(browser.arg(script("dashboard.mjs")).arg(job.to_string()));
    let outcomes = said.lines().filter_map(|line| {
        let (word, rest) = line.split_once(' ')?;
        Some(match (word, rest.split_once(": ")) {
            ("fault", Some((name, why))) => (name.to_owned(), Some(why.to_owned())),
            _ => (rest.to_owned(), None),
        })
    });
    outcomes.collect()
}

#[track_caller]
fn check(name: &str) {
    let name = name.replace('_', " ");
    let outcome = OUTCOMES.get(&name);
    let outcome = outcome.unwrap_or_else(|| panic!("{name:?} is none of {OUTCOMES:?}"));
    assert_eq!(outcome, &None);
}

macro_rules! cases {
    ($($name:ident)*) => {
        $(
            #[test]
            fn $name() {
                check(stringify!($name));
            }
        )*

        #[test]
        fn each_case_of_the_browser_is_a_test() {
            let names = [$(stringify!($name)),*].map(|name| name.replace('_', " "));
            let mut known: Vec<_> = names.to_vec();
            known.sort();
            assert!(OUTCOMES.keys().eq(known.iter()), "{OUTCOMES:?}");
        }
    };
}

cases! {
    every_page_loads_and_says_nothing_in_the_console
    a_deep_link_works_and_so_does_going_back
    the_first_chart_is_drawn_soon_and_has_its_history
    live_values_move
    the_overview_says_what_is_worst_first
    an_action_says_its_impact_changes_the_server_and_is_an_event
    a_lease_is_revoked
    the_config_is_planned_and_applied_and_goes_back
    a_list_is_searched_sorted_and_left_by_link
    a_hidden_tab_stops_the_updates_and_a_shown_one_goes_on
    the_main_tasks_are_done_by_keyboard_alone
    without_a_login_one_looks_and_changes_nothing
    axe_finds_nothing_serious_narrow_and_wide_light_and_dark
    all_files_are_light_and_none_comes_from_elsewhere
    the_page_comes_back_when_the_server_does
}

/// `UPDATE_DOCS=1` makes them anew.
#[test]
fn the_pictures_of_the_readme_are_there_and_light() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/pictures");
    if env::var_os("UPDATE_DOCS").is_some() {
        std::fs::create_dir_all(&folder).unwrap();
        let mut demo = command(program());
        let demo = demo.args(["--json", "demo"]).stdout(Stdio::piped());
        let mut demo = demo.start();
        let mut line = String::new();
        let mut out = BufReader::new(demo.stdout.take().unwrap());
        out.read_line(&mut line).unwrap();
        let ports: Value = serde_json::from_str(&line).unwrap();
        std::thread::spawn(move || out.lines().for_each(drop));
        let url = format!("http://127.0.0.1:{}", ports["admin"]);
        let made = look("pictures", &json!({ "demo": url, "docs": folder }));
        assert_eq!(made.get("pictures"), Some(&None), "{made:?}");
    }
    for name in ["overview", "app"] {
        let picture = std::fs::read(folder.join(format!("{name}.png"))).unwrap();
        assert!(picture.starts_with(b"\x89PNG"), "{name}");
        assert!(picture.len() <= 150_000, "{name}: {} bytes", picture.len());
    }
}
