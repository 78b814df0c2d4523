//! The config file as a person writes it: what it says, what is wrong with it,
//! and what a change of it means.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rideau_config::password::Hash;
use rideau_config::text::{self, PathFault};
use rideau_config::{
    Buckets, Change, Config, Level, Listen, Live, Member, Now, Password, all_keys, plan,
};
use rideau_core::{Rng, Side, meter, pool, queue, valve};
use rideau_process::{Ready, Signal};
use toml_edit::{DocumentMut, Item, Key, Value};

#[path = "config/alarms.rs"]
mod alarms;
#[path = "config/apps.rs"]
mod apps;
#[path = "config/upstreams.rs"]
mod upstreams;

/// Bad files, and what is said about each.
const FAULTS: &str = include_str!("config/faults.txt");

#[test]
fn every_fault_is_said_with_its_place_and_a_suggestion() {
    check_faults(FAULTS, 40);
}

#[track_caller]
fn check_faults(faults: &str, least: usize) {
    let cases: Vec<_> = faults.split("\n== ").collect();
    assert!(cases.len() >= least, "{} cases", cases.len());
    for case in cases {
        let (name, body) = case.split_once('\n').unwrap();
        let (text, said) = body.split_once("\n--\n").unwrap();
        let (config, faults) = Config::check(text, "bad.toml", &env);
        assert_eq!(faults.render(false).trim_end(), said.trim_end(), "{name}");
        assert_eq!(config.is_some(), faults.errors() == 0, "{name}");
    }
}

#[test]
fn a_secret_that_everybody_can_read_is_said() {
    let folder = std::env::temp_dir().join(format!("rideau-secrets-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let [secret, key, cert] = ["secret", "key.pem", "cert.pem"].map(|name| {
        let path = folder.join(name);
        fs::write(&path, "hunter2").unwrap();
        path
    });
    let text = format!(
        "[user.ops]\npassword_file = {secret:?}\nallow = [\"@all\"]\n\
         [tls]\ncert = {cert:?}\nkey = {key:?}\n\
         [server]\ntls_listen = [\"127.0.0.1:7500\"]\n"
    );
    let said = |mode| {
        for path in [&secret, &key] {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        }
        let (config, faults) = Config::check(&text, "a.toml", &env);
        assert!(config.is_some(), "{faults}");
        faults.render(false)
    };
    fs::set_permissions(&cert, fs::Permissions::from_mode(0o644)).unwrap();
    let open = said(0o644);
    for path in [&secret, &key] {
        let path = path.display();
        let warning = format!("warning  {path} can be read by every account here (mode 644)");
        assert!(open.contains(&warning), "{warning} in {open}");
        assert!(open.contains(&format!("run chmod o= {path}")), "{open}");
    }
    assert!(!open.contains("cert.pem is open"), "{open}");
    for mode in [0o600, 0o640] {
        assert_eq!(said(mode), "a.toml: nothing is wrong\n", "{mode:o}");
    }
    fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn a_fault_has_its_place_as_numbers() {
    let text = "# ä\n[server]\n  drain = 20 # ä\n";
    let faults = Config::parse(text, "a.toml", &env).unwrap_err();
    let fault = faults.iter().next().unwrap();
    assert_eq!(
        (fault.line, fault.column, fault.level),
        (3, 11, Level::Error)
    );
    assert_eq!(&text[fault.at.clone()], "20");
}

#[test]
fn colour_is_there_only_when_asked_for() {
    let faults = Config::parse("[sever]", "a.toml", &env).unwrap_err();
    assert!(!faults.to_string().contains('\x1b'));
    assert!(faults.render(true).contains("\x1b[1;31merror\x1b[0m"));
}

#[test]
fn without_a_file_there_are_locks_and_a_broker_for_this_machine() {
    let config = Config::default();
    let here = ["127.0.0.1:7433", "[::1]:7433"].map(|at| Listen::Tcp(at.parse().unwrap()));
    assert_eq!(config.server.listen, here);
    assert_eq!(config.server.admin, Some("127.0.0.1:7434".parse().unwrap()));
    assert!(config.pools.is_empty() && config.users.is_empty());
    assert_eq!(config.brokers[0].name, "default");
    let rule = &config.locks[0];
    assert!(rule.fits("any/key at all"));
    assert_eq!((rule.per, rule.buckets), (1, Buckets::Client));
}

#[test]
fn an_empty_file_has_defaults_and_nothing_with_a_name() {
    let config = read("");
    let nothing = Config {
        brokers: Vec::new(),
        locks: Vec::new(),
        ..Config::default()
    };
    assert_eq!(config, nothing);
}

#[test]
fn every_example_can_be_used() {
    let mut names = Vec::new();
    for path in examples() {
        let file = path.file_name().unwrap().to_str().unwrap().to_owned();
        let text = fs::read_to_string(&path).unwrap();
        let parsed = Config::parse(&text, &file, &env);
        assert!(parsed.is_ok(), "{}", parsed.unwrap_err());
        let (_, faults) = Config::check(&text, &file, &env);
        // The files and folders of a real server are missing here, and what listens in a container
        // is reached by its own machine first.
        let is_right = |message: &str| {
            message.contains("cannot be read")
                || message.starts_with("there is no folder /srv/")
                || message.starts_with("/srv/pages/wait.html cannot be used")
                || file == "container.toml" && message.starts_with("passwords travel to 0.0.0.0")
        };
        let others = faults.iter().filter(|fault| !is_right(&fault.message));
        assert_eq!(others.count(), 0, "{faults}");
        names.push(file);
    }
    names.sort();
    assert_eq!(
        names,
        ["apps.toml", "container.toml", "minimal.toml", "rideau.toml"]
    );
}

#[test]
fn the_reference_has_every_key_and_no_other() {
    let document: DocumentMut = reference().parse().unwrap();
    let mut shown = BTreeSet::new();
    for (section, item) in document.iter() {
        collect(section, item, &mut shown);
    }
    let shown: BTreeSet<_> = shown.iter().map(|path| shared(path)).collect();
    let known: BTreeSet<_> = all_keys().iter().map(|(path, _)| shared(path)).collect();
    let missing: Vec<_> = known.difference(&shown).collect();
    assert!(missing.is_empty(), "not in the reference: {missing:?}");
    // Only below these does a file choose names of its own.
    let own = [".env.", ".weights.", ".of.", ".headers."];
    let others = shown.difference(&known);
    let others: Vec<_> = others
        .filter(|path| own.iter().all(|own| !path.contains(own)))
        .collect();
    assert!(others.is_empty(), "in the reference only: {others:?}");
}

#[test]
fn the_reference_says_of_each_key_of_the_server_what_a_change_takes() {
    let reference = reference();
    for (path, change) in all_keys() {
        let Some(key) = path
            .strip_prefix("server.")
            .filter(|key| !key.contains('.'))
        else {
            continue;
        };
        let lines: Vec<_> = reference.lines().collect();
        let at = lines
            .iter()
            .position(|line| line.starts_with(&format!("{key} ")))
            .unwrap();
        let word = match change {
            Change::Live => "(live)",
            Change::Restart => "(restart)",
        };
        let more = lines[at + 1..]
            .iter()
            .take_while(|line| line.starts_with(' '));
        let said = lines[at - 1..=at + more.count()].concat();
        assert!(said.contains(word), "{path} is {word}");
    }
}

#[test]
fn the_defaults_in_the_reference_are_the_defaults() {
    let shown = read(&reference());
    let default = Config::default();
    assert_eq!(shown.limits, default.limits);
    assert_eq!(shown.log, default.log);
    let server = rideau_config::Server {
        tls_listen: Vec::new(),
        tls_admin: None,
        run_dir: None,
        ..shown.server
    };
    assert_eq!(server, default.server);

    let core = pool::Options::default();
    let pool = shown.pools[0].options.clone();
    assert_ne!((pool.init, pool.grow_at, pool.uses_max), (0, None, None));
    let others = pool::Options {
        init: 0,
        grow_at: None,
        uses_max: None,
        queue: core.queue.clone(),
        valve: None,
        ..pool
    };
    assert_eq!(others, core);
    let plain = Config::default().locks[0].clone();
    let tenants = &shown.locks[0];
    assert_eq!(
        (tenants.keys_max, tenants.idle_forget, tenants.buckets),
        (plain.keys_max, plain.idle_forget, plain.buckets)
    );
}

#[test]
fn a_process_is_ready_as_the_file_says_or_as_its_words_tell() {
    for (member, ready) in [
        (r#"exec = ["x", "{socket}"]"#, Ready::Socket),
        (r#"exec = ["x", "{port}"]"#, Ready::Port),
        (r#"exec = ["x", "{port}", "{socket}"]"#, Ready::Socket),
        (
            r#"exec = ["x"], env = { AT = "unix:{socket}" }"#,
            Ready::Socket,
        ),
        (r#"exec = "x""#, Ready::Started),
        (
            r#"exec = ["x", "{port}"], ready = "started""#,
            Ready::Started,
        ),
        (r#"exec = ["x"], ready = "notify""#, Ready::Notify),
        (
            r#"exec = ["x"], ready = { line = "at {address}" }"#,
            Ready::Line("at {address}".into()),
        ),
    ] {
        let config = read(&format!("[pool.a]\nmember = {{ {member} }}"));
        let Member::Exec(exec) = &config.pools[0].member else {
            panic!("{member}");
        };
        assert_eq!(exec.ready, ready, "{member}");
    }
    let config = read("[pool.a]\nmember = { exec = [\"x\"], stop_signal = \"SIGQUIT\" }");
    let Member::Exec(exec) = &config.pools[0].member else {
        panic!("a process");
    };
    assert_eq!(exec.stop_signal, Signal::Quit);
}

#[test]
fn pools_are_read_with_what_their_members_are() {
    let config = read(
        r#"
        [pool.proxy]
        member = { exec = ["pgproxy", "{socket}"], env = { NODE = "${NODE}" } }
        on_crash = "check"
        leak_after = "60s"
        max = 20
        start_timeout = "5s"
        queue = { kind = "timeout", timeout = "200ms", max = 1_000 }
        valve = { kind = "codel", min = 1 }

        [pool.licences]
        member = { list = ["A", "B"] }

        [pool.brought]
        "#,
    );
    let [proxy, licences, brought] = &config.pools[..] else {
        panic!("three pools");
    };
    let Member::Exec(exec) = &proxy.member else {
        panic!("a process");
    };
    assert_eq!(exec.ready, Ready::Socket);
    assert_eq!(exec.stop_signal, Signal::Term);
    assert_eq!(exec.env, [("NODE".into(), "rideau-b".into())]);
    assert_eq!(proxy.on_crash, pool::Fate::Check);
    assert_eq!(proxy.leak_after, Some(Duration::from_secs(60)));
    assert_eq!(proxy.options.max, 20);
    assert_eq!(proxy.options.start_timeout, Duration::from_secs(5));
    let wait_max = Duration::from_millis(200);
    assert_eq!(
        proxy.options.queue.shedding,
        queue::Shedding::Timeout { wait_max }
    );
    assert!(matches!(
        proxy.options.valve,
        Some(valve::Options::CoDel(_))
    ));

    assert_eq!(licences.member, Member::List(vec!["A".into(), "B".into()]));
    assert_eq!(licences.options.max, 2);
    assert_eq!(licences.options.life_max, None);
    assert_eq!(brought.member, Member::Offered);
}

#[test]
fn a_pool_alone_is_read_without_a_header() {
    let config = Config::default();
    let text = "member = { list = [\"a\"] }\nqueue = \"never\"\n";
    let pool = config.parse_pool("licences", text, &env).unwrap();
    assert_eq!(pool, read(&format!("[pool.licences]\n{text}")).pools[0]);

    for (name, text, message) in [
        (
            "a b",
            "",
            "the name \"a b\" has letters that names cannot have",
        ),
        (
            "a",
            "like = \"b\"",
            "a pool that is added on its own is like no other",
        ),
        (
            "a",
            "[server]\nname = \"x\"",
            "unknown key `server` in a pool",
        ),
        ("a", "max =", "string values must be quoted"),
    ] {
        let faults = config.parse_pool(name, text, &env).unwrap_err();
        assert_eq!(faults.iter().next().unwrap().message, message);
    }
}

#[test]
fn like_inherits_what_does_not_stand_there() {
    let config = read(
        r#"
        [pool.c]
        like = "b"
        idle_min = 2

        [pool.a]
        member = { exec = ["x"] }
        group = "g"
        max = 20
        queue = { kind = "timeout", timeout = "1s" }

        [pool.b]
        like = "a"
        max = 30
        queue = "never"
        "#,
    );
    let [c, a, b] = &config.pools[..] else {
        panic!("three pools");
    };
    assert_eq!((a.options.max, b.options.max, c.options.max), (20, 30, 30));
    assert_eq!(c.options.idle_min, 2);
    assert_eq!(c.member, a.member);
    assert_eq!(c.options.queue.shedding, queue::Shedding::Never);
    assert_eq!(config.groups[0].pools, ["c", "a", "b"]);
}

#[test]
fn variables_of_the_environment_make_texts_numbers_and_spans() {
    let config = read(
        r#"
        [server]
        name = "${NODE}-${GONE:-x}-$$"
        threads = "${MAX}"
        drain = "${MAX}s"

        [pool.a]
        member = { exec = ["${NODE}"] }
        max = "${MAX}"
        "#,
    );
    assert_eq!(config.server.name, "rideau-b-x-$");
    assert_eq!(config.server.threads, Some(7));
    assert_eq!(config.server.drain, Duration::from_secs(7));
    assert_eq!(config.pools[0].options.max, 7);
}

#[test]
fn what_variables_stand_for_is_shown_nowhere() {
    let text = r#"
        [server]
        name = "${NODE}"

        [pool.a]
        member = { exec = ["sh", "--key=${NODE}"], dir = "/srv/${NODE}" }

        [pool.b]
        like = "a"

        [app.shop]
        exec = ["sh", "${NODE}"]
        "#;
    let config = read(text);
    let shown = format!("{:?}", config.rows());
    assert!(!shown.contains("rideau-b"), "{shown}");
    for (path, value) in [
        ("server.name", r#""${NODE}""#),
        ("pool.a.member.exec", r#"["sh", "--key=${NODE}"]"#),
        ("pool.b.member.exec", r#"["sh", "--key=${NODE}"]"#),
        ("pool.b.member.dir", r#""/srv/${NODE}""#),
        ("app.shop.exec", r#"["sh", "${NODE}"]"#),
    ] {
        assert_eq!(config.value(path).as_deref(), Some(value), "{path}");
    }
    let plan = format!("{:?}", plan(&read(""), &config, None));
    assert!(!plan.contains("rideau-b"), "{plan}");
    for wrong in [
        "[log]\nlevel = \"${NODE}\"",
        "[pool.a]\nmember = \"${NODE}\"",
        "[server]\ndrain = \"${NODE}\"",
    ] {
        let faults = Config::parse(wrong, "a.toml", &env)
            .unwrap_err()
            .to_string();
        assert!(!faults.contains("rideau-b"), "{faults}");
    }
}

#[test]
fn a_regulator_is_told_by_the_broker_it_names() {
    let config = read(
        r#"
        [broker.checkout]
        asks = { kind = "codel", target = "100ms", max = 2000, fair_by = "flow" }
        offers = { kind = "timeout", timeout = "30s", order = "lifo" }
        meters = ["overload"]
        protect = { min = 20 }

        [regulator.workers]
        broker = "checkout"
        side = "offer"
        update = "200ms"
        valve = { kind = "relative", target = "-10ms", min = 4, max = 16 }
        "#,
    );
    let options = config.broker_options(&config.brokers[0]);
    assert_eq!(options.asks.max, Some(2000));
    assert_eq!(options.offers.order, queue::Order::Lifo);
    let [
        meter::Options::Overload(_),
        meter::Options::Pie(pie),
        meter::Options::Update(update),
    ] = &options.meters[..]
    else {
        panic!("three meters: {:?}", options.meters);
    };
    assert_eq!(pie.min, 20);
    let entry = &update.entries[0];
    assert_eq!(
        (entry.regulator.as_str(), entry.side),
        ("workers", Side::Offer)
    );
    assert_eq!(entry.update, Duration::from_millis(200));
    assert_eq!(config.regulators[0].valve.kind(), "relative");
}

#[test]
fn users_may_use_what_their_patterns_fit() {
    let config = read(
        r#"
        [user.orders]
        password_file = "/run/secrets/orders"
        allow = ["take", "lock"]
        on = ["pool:pg-*", "pool:@pg", "lock:tenant/*"]

        [user.ops]
        uids = [0, 1000]
        allow = ["@admin"]
        "#,
    );
    let [orders, ops] = &config.users[..] else {
        panic!("two users");
    };
    assert_eq!(
        orders.password,
        Some(Password::File("/run/secrets/orders".into()))
    );
    assert!(orders.may_use("pool", "pg-1") && orders.may_use("pool", "@pg"));
    assert!(!orders.may_use("pool", "licences") && !orders.may_use("broker", "pg-1"));
    assert!(ops.may_use("broker", "anything"));
    assert_eq!(ops.uids, [0, 1000]);
}

#[test]
fn hashes_are_never_shown() {
    let hash = Hash::of(b"hunter2").unwrap();
    let user = |hash: &Hash| {
        let hash = hash.as_str();
        read(&format!(
            "[user.a]\npassword = \"{hash}\"\nallow = [\"@all\"]\n"
        ))
    };
    let config = user(&hash);
    let Some(Password::Hash(read)) = &config.users[0].password else {
        panic!("a hash");
    };
    assert!(read.verify(b"hunter2"));
    let changed = plan(&config, &user(&Hash::of(b"hunter3").unwrap()), None);
    assert_eq!(changed.steps[0].path, "user.a.password");
    let shown = format!("{config:?}{:?}{changed:?}{changed}", config.rows());
    assert!(!shown.contains("argon2"), "{shown}");
}

#[test]
fn a_plan_says_what_changes_and_what_it_means() {
    let old = read(OLD);
    let new = read(NEW);
    let live = |held, waiting| Live { held, waiting };
    let things = [
        ("pool.pg-1", live(9, 0)),
        ("pool.old", live(1, 2)),
        ("broker.checkout.asks", live(0, 88)),
    ];
    let things: BTreeMap<_, _> = things.map(|(name, live)| (name.into(), live)).into();
    let plan = plan(&old, &new, Some(&Now { things }));
    assert_eq!(plan.render("new.toml"), PLAN.trim_start_matches('\n'));
    assert_eq!((plan.restarts(), plan.shed()), (1, 40));
}

const OLD: &str = r#"
[server]
threads = 2

[pool.pg-1]
member = { exec = ["pgproxy"] }
max = 10

[pool.old]

[broker.checkout]
asks = { kind = "codel", target = "100ms" }

[lock."a*"]

[lock."b*"]
per = 3
"#;

const NEW: &str = r#"
[server]
threads = 4
drain = "20s"

[pool.pg-1]
member = { exec = ["pgproxy"] }
max = 6

[pool.new]
member = { list = ["one", "two"] }

[broker.checkout]
asks = { kind = "codel", target = "50ms", max = 50 }

[lock."b*"]
per = 2

[lock."a*"]
"#;

const PLAN: &str = r#"
  server.threads                2 -> 4             Takes effect after the next start.
  pool.old                      - removed          2 that wait are refused; 1 held until given back.
  pool.pg-1.max                 10 -> 6            3 members above the new limit are in use: each is
                                                   stopped when returned; no holder is interrupted.
  pool.new                      + added            2 members at once.
  broker.checkout.asks.target   100ms -> 50ms      The 88 that wait keep their positions and times.
  broker.checkout.asks.max      65536 -> 50        38 of those that wait are shed.
  lock."b*".per                 3 -> 2             A holder of more keeps it; nothing is granted
                                                   until there is room.
  lock                          a*, b* -> b*, a*   The first that fits a key is used: keys may get
                                                   another rule.
8 changes, 1 restart, 40 requests shed.   Apply:  rideau apply new.toml
"#;

#[test]
fn a_plan_without_numbers_says_what_would_happen() {
    let plan = plan(&read(OLD), &read(NEW), None);
    let step = plan
        .steps
        .iter()
        .find(|step| step.path == "pool.pg-1.max")
        .unwrap();
    assert_eq!(
        (step.old.as_deref(), step.new.as_deref()),
        (Some("10"), Some("6"))
    );
    assert_eq!(
        step.meaning,
        "Members above the new limit are stopped when returned; no holder is interrupted."
    );
    assert_eq!(plan.shed(), 0);
}

#[test]
fn the_same_config_in_other_words_is_no_change() {
    let words = "[server]\ndrain = \"20000ms\"\nthreads = 0\n";
    let plan = plan(&read(""), &read(words), None);
    assert!(plan.is_empty());
    assert_eq!(plan.render("a.toml"), "Nothing changes.\n");
}

#[test]
fn rows_put_together_are_the_config_again() {
    let config = read(ALL_KINDS);
    assert_eq!(through_rows(&config), config);
    assert_eq!(config.value("pool.a.max").as_deref(), Some("6"));
    assert_eq!(
        config.value("lock.\"t/*\".buckets").as_deref(),
        Some("\"client\"")
    );
    assert_eq!(config.value("pool.z.max"), None);
}

/// What is read from the rows of a config.
#[track_caller]
fn through_rows(config: &Config) -> Config {
    let rows = config.rows();
    let lines = rows.iter().map(|(key, value)| format!("{key} = {value}\n"));
    read(&lines.collect::<String>())
}

const ALL_KINDS: &str = r#"
[server]
listen = ["[::1]:1", "unix:/tmp/a b.sock"]
run_dir = "/tmp/a b"
admin = "none"
insecure = "yes, anyone may"

[user."o.k"]
uids = [1]
allow = ["take"]
on = ["pool:*"]

[pool.a]
group = "g"
member = { exec = ["x", "{socket}", "\"q\""], dir = "/tmp", ready = { line = "\"{address}\"" } }
max = 6
grow_at = 1
uses_max = 3
fail_fast = true
leak_after = "90s"
queue = { kind = "min-delay", order = "adaptive", slow = "1ms", max = "none", overflow = "oldest" }
valve = { kind = "least_of", of = [{ kind = "open", max = 2 }, { kind = "gradient" }] }

[pool.b]
member = { list = ["1", "2"] }
queue = { kind = "standing", fair_by = "hash:8" }

[pool.c]
valve = "breaker"
queue = "never"

[group.g]
pick = "best-of-two"

[broker.d]
asks = { kind = "timeout", timeout = "1500us", fair_by = "flow", sparse_first = true }
meters = ["overload", { kind = "underload", target = "-20ms" }, "better"]
protect = { max = 50, offer = { target = "1ms" } }

[regulator.e]
broker = "d"
side = "offer"
valve = { kind = "relative", target = "-10ms", max = 3 }

[regulator.f]
valve = { kind = "rate", limit = 5 }
queue = "codel"
meters = ["better"]

[lock."t/*"]
per = 5

[lock.u]
buckets = 3

[range.r]
values = ["1-9", "10.0.0.0/24"]

[view.v]
values = ["5-20", "1-6", "10.0.0.0/8"]
"#;

#[test]
fn a_value_is_changed_and_the_comments_stay() {
    let text = "# Mine.\n[pool.pg-1] # fast\nmax = 10 # for now\ninit = 2\n";
    let changed = text::set(text, "pool.pg-1.max", "20").unwrap();
    assert_eq!(changed, text.replace("10", "20"));
    assert_eq!(text::get(&changed, "pool.pg-1.max"), Ok(Some("20".into())));
    assert_eq!(text::get(&changed, "pool.pg-1.idle_min"), Ok(None));

    let added = text::set(text, "pool.pg-1.start_timeout", "5s").unwrap();
    assert_eq!(added, format!("{text}start_timeout = \"5s\"\n"));
    let inner = text::set(text, "pool.pg-1.queue.kind", "never").unwrap();
    assert_eq!(
        inner,
        format!("{text}\n[pool.pg-1.queue]\nkind = \"never\"\n")
    );
    let quoted = text::set("", "lock.\"tenant/*\".per", "5").unwrap();
    assert_eq!(quoted, "[lock.\"tenant/*\"]\nper = 5\n");
    let within = "[pool.a]\nqueue = { kind = \"timeout\" } # q\n";
    let within = text::set(within, "pool.a.queue.timeout", "1s").unwrap();
    assert_eq!(
        within,
        "[pool.a]\nqueue = { kind = \"timeout\", timeout = \"1s\" } # q\n"
    );
}

#[test]
fn the_table_of_a_line_is_found() {
    let text = "# top\n[pool.\"a b\"] # fast\nmember = { list = [\n  \"[x]\",\n] }\n[lock.\"*\"]\n";
    let tables = [None, Some("pool.\"a b\""), Some("lock.\"*\"")];
    for (line, table) in [(1, 0), (2, 1), (3, 1), (5, 1), (6, 2)] {
        assert_eq!(text::table_at(text, line), tables[table], "{line}");
    }
}

#[test]
fn a_path_that_leads_nowhere_is_said_to() {
    let unknown = |part: &str, near: Option<&str>| PathFault::Unknown {
        part: part.into(),
        near: near.map(Into::into),
    };
    let text = "[pool.a]\nmax = 3\nqueue = \"never\"\n";
    for (path, fault) in [
        ("pool.a.mxa", unknown("mxa", Some("max"))),
        ("pol.a.max", unknown("pol", Some("pool"))),
        ("pool.a.queue.tiemout", unknown("tiemout", Some("timeout"))),
        ("pool..max", PathFault::Malformed),
        ("pool.a", PathFault::IsTable),
        (
            "pool.a.queue.max",
            PathFault::NoTable { part: "max".into() },
        ),
    ] {
        assert_eq!(text::set(text, path, "1"), Err(fault), "{path}");
    }
    assert_eq!(
        unknown("mxa", Some("max")).to_string(),
        "there is no key `mxa`; did you mean `max`?"
    );
}

#[test]
fn no_key_takes_what_makes_no_sense() {
    let reference = reference();
    let mut tried = 0;
    for (path, value) in leaves(&reference) {
        let silly = if value.trim_start().starts_with('[') {
            "1979-05-27"
        } else {
            "[[1]]"
        };
        let text = text::set(&reference, &path, silly).unwrap();
        let faults = Config::parse(&text, "silly.toml", &env);
        let faults = faults.expect_err(&path);
        let errors = faults.iter().filter(|fault| fault.level == Level::Error);
        let lines: BTreeSet<_> = errors.map(|fault| fault.line).collect();
        assert_eq!(lines.len(), 1, "{path} is accused alone: {faults}");
        tried += 1;
    }
    assert!(tried > 80, "{tried}");
}

#[test]
fn no_slip_of_the_pen_breaks_the_reader() {
    let letters: Vec<char> = reference().chars().collect();
    let seed = 7;
    let mut rng = Rng::new(seed);
    for _ in 0..400 {
        let mut text = letters.clone();
        for _ in 0..=rng.below(3) {
            let at = rng.below(text.len() as u64) as usize;
            match rng.below(4) {
                0 => drop(text.remove(at)),
                1 => text.insert(at, ['"', '{', ']', '$', 'é', '\n'][rng.below(6) as usize]),
                2 => text.swap(at, 0),
                _ => drop(text.drain(at..(at + 9).min(text.len()))),
            }
        }
        let text: String = text.into_iter().collect();
        let (config, faults) = Config::check(&text, "slip.toml", &env);
        assert_eq!(config.is_some(), faults.errors() == 0, "seed {seed}");
        for fault in &faults {
            let is_there = fault.at.start <= text.len() && fault.line >= 1;
            assert!(is_there, "seed {seed}: {fault:?}");
        }
        faults.render(true);
    }
}

#[test]
fn a_hundred_faults_are_shown_and_an_error_always_is() {
    let locks: String = (0..150).map(|at| format!("[lock.\"{at}\"]\n")).collect();
    // Of two users with one id the file is told last.
    let users = "[user.a]\nuids = [1]\nallow = []\n[user.b]\nuids = [1]\nallow = []\n";
    let text = format!("[lock.\"*\"]\n{locks}{users}");
    let faults = Config::parse(&text, "many.toml", &env).unwrap_err();
    assert_eq!((faults.errors(), faults.warnings()), (1, 100));
    assert!(faults.to_string().contains("\nand 50 more\n"), "{faults}");
}

#[test]
fn the_first_lock_that_fits_is_used() {
    let config = read("[lock.\"tenant/*\"]\nper = 50\n\n[lock.\"*\"]\n");
    let rule = |key| config.locks.iter().find(|rule| rule.fits(key)).unwrap();
    assert_eq!(rule("tenant/42").per, 50);
    assert_eq!(rule("build").per, 1);
}

fn env(name: &str) -> Option<String> {
    match name {
        "NODE" => Some("rideau-b".into()),
        "MAX" => Some("7".into()),
        _ => None,
    }
}

#[track_caller]
fn read(text: &str) -> Config {
    match Config::parse(text, "test.toml", &env) {
        Ok(config) => config,
        Err(faults) => panic!("{faults}"),
    }
}

fn examples() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../config");
    let files = fs::read_dir(folder).unwrap();
    files.map(|file| file.unwrap().path()).collect()
}

fn reference() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../config/rideau.toml");
    fs::read_to_string(path).unwrap()
}

/// The paths of all values but those in lists, and the values.
fn leaves(text: &str) -> Vec<(String, String)> {
    fn walk(path: &str, item: &Item, found: &mut Vec<(String, String)>) {
        if let Some(tables) = item.as_array_of_tables() {
            for table in tables {
                let name = Key::new(table["name"].as_str().unwrap());
                let path = format!("{path}.{}", name.display_repr());
                walk(&path, &Item::Table(table.clone()), found);
            }
            return;
        }
        match item.as_table_like() {
            Some(table) => {
                for (key, item) in table.iter() {
                    let key = Key::new(key).display_repr().into_owned();
                    walk(&format!("{path}.{key}"), item, found);
                }
            }
            None => found.push((path.trim_start_matches('.').into(), item.to_string())),
        }
    }
    let document: DocumentMut = text.parse().unwrap();
    let mut found = Vec::new();
    walk("", document.as_item(), &mut found);
    found
}

/// The path of a key; what several things have alike has one path for all.
fn shared(path: &str) -> String {
    let parts = [
        (".queue.", "QUEUE."),
        (".asks.", "QUEUE."),
        (".offers.", "QUEUE."),
        (".valve.", "VALVE."),
        (".meters.", "METER."),
    ];
    let found = parts.iter().find_map(|(part, name)| {
        let (_, key) = path.split_once(part)?;
        Some(format!("{name}{key}"))
    });
    found.unwrap_or_else(|| path.into())
}

/// The keys of a section, with `*` for its names.
fn collect(section: &str, item: &Item, shown: &mut BTreeSet<String>) {
    let is_named = ![
        "server", "limits", "tls", "log", "store", "cluster", "front", "upgrade",
    ]
    .contains(&section);
    if !is_named {
        return walk(section, item, shown);
    }
    for table in item.as_array_of_tables().into_iter().flatten() {
        walk(&format!("{section}.*"), &Item::Table(table.clone()), shown);
    }
    for (_, item) in item.as_table_like().into_iter().flat_map(|all| all.iter()) {
        walk(&format!("{section}.*"), item, shown);
    }
}

fn walk(path: &str, item: &Item, shown: &mut BTreeSet<String>) {
    if let Some(table) = item.as_table_like() {
        for (key, item) in table.iter() {
            let path = format!("{path}.{key}");
            walk(&path, item, shown);
            shown.insert(path);
        }
    }
    for value in item.as_array().into_iter().flatten() {
        // The parts of `least_of` are valves.
        let path = path.strip_suffix(".of").unwrap_or(path);
        if let Value::InlineTable(_) = value {
            walk(path, &Item::Value(value.clone()), shown);
        }
    }
}
