//! Applications and their front in the config file.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use rideau_config::{
    AccessLog, AppAccess, AppConfig, AppListen, AppReady, Compression, Config, ErrorPages, Health,
    HttpsRedirect, LimitBy, Live, Now, StaticFiles, plan,
};
use rideau_core::apps::EvictFor;
use rideau_core::queue;
use rideau_process::Signal;

use super::{check_faults, examples, read, reference, through_rows};

/// Bad files, and what is said about each.
const FAULTS: &str = include_str!("faults-apps.txt");

#[test]
fn every_fault_of_an_app_is_said_with_its_place_and_a_suggestion() {
    check_faults(FAULTS, 40);
}

#[test]
fn an_app_is_read_with_all_that_it_says() {
    let config = read(ALL);
    let [shop, ..] = &config.apps[..] else {
        panic!("apps");
    };
    assert_eq!(shop.hosts, ["shop.example", "*.shop.example", "[::1]"]);
    assert_eq!(shop.paths, ["/", "/shop"]);
    assert!(shop.strips_path);
    let run = &shop.run;
    assert_eq!(run.root, Some(PathBuf::from("/srv/shop")));
    assert_eq!(run.user.as_deref(), Some("www-data"));
    assert_eq!(run.group.as_deref(), Some("33"));
    assert_eq!(run.umask, Some(0o027));
    assert_eq!((run.files_max, run.processes_max), (Some(4096), Some(64)));
    assert_eq!(run.listen, AppListen::Inherit);
    assert_eq!(run.ready, AppReady::Http("/up".into()), "that of `health`");
    assert_eq!(run.watchdog, Some(Duration::from_secs(20)));
    assert_eq!(run.warm_up, ["/", "/a?b=c"]);
    assert_eq!(run.stop_signal, Signal::Quit);
    assert_eq!(run.stop_timeout, Duration::ZERO);
    let options = &shop.options;
    assert_eq!((options.min, options.max), (2, Some(8)));
    assert_eq!(options.concurrency, Some(1));
    assert_eq!(options.idle_after, None);
    assert_eq!(options.memory_soft, Some(300 << 20));
    assert_eq!(options.memory_hard, Some(1 << 30));
    assert_eq!(options.sticky_wait, Duration::from_secs(2));
    assert_eq!((options.streams_count, options.streams_max), (false, 9));
    let health = Health {
        path: "/up".into(),
        every: Duration::from_secs(1),
        timeout: Duration::from_millis(500),
        fails: 2,
    };
    assert_eq!(shop.health, Some(health));
    let http = &shop.http;
    assert_eq!(http.request_timeout, Some(Duration::from_secs(60)));
    assert_eq!(http.body_max, 10 << 20);
    assert!(!http.buffers_requests);
    assert!(!http.buffers_responses);
    assert_eq!(http.buffer_response_max, 3 << 20);
    assert_eq!(http.sticky.as_deref(), Some("route"));
    assert_eq!(http.stream_grace, Duration::ZERO);
    assert!(!http.retries && http.tells_timing);
    let alone = config.apps.iter().map(|app| app.options.alone);
    assert_eq!(alone.collect::<Vec<_>>(), [false, false, true]);
    assert_eq!(shop.restart_dir, None);
}

#[test]
fn the_front_is_read_with_all_that_it_says() {
    let front = read(ALL).front;
    let port: SocketAddr = "127.0.0.1:3000".parse().unwrap();
    assert_eq!(front.listen, [port.into()]);
    assert_eq!((front.limits.max, front.limits.headroom), (24, 0));
    assert_eq!(front.limits.evict_for, EvictFor::Count);
    assert_eq!(front.error_pages, ErrorPages::Detailed);
    let trusted = |address: &str| {
        let address = address.parse().unwrap();
        front.trust.iter().any(|network| network.has(address))
    };
    assert!(trusted("10.1.2.3") && trusted("::1") && trusted("192.168.7.7"));
    assert!(!trusted("11.0.0.1") && !trusted("::2") && !trusted("192.169.0.1"));
    let shown: Vec<_> = front.trust.iter().map(ToString::to_string).collect();
    assert_eq!(shown, ["10.0.0.0/8", "::1", "192.168.0.0/16"]);
    assert_eq!(front.buffer_dir, Some(PathBuf::from("/srv/bodies")));
    assert_eq!((front.buffer_memory, front.buffer_disk), (1 << 20, 0));
    assert_eq!(front.body_rate_min, Some(2048));
    assert_eq!(front.send_rate_min, None);
    let unbound = read("[front]\nbody_rate_min = \"none\"\n").front;
    assert_eq!(unbound.body_rate_min, None);
}

#[test]
fn what_is_said_of_clients_and_of_the_log_is_read_and_shown() {
    let pages = std::env::temp_dir().join("page.html");
    let config = read(&format!(
        "[front]\nredirect_https = \"none\"\nhsts = \"365d\"\nallow = \"::1\"\n\
         deny = [\"10.0.0.0/8\"]\nclient_connections_max = \"none\"\n\
         rate_limit = {{ rate = \"100/m\", by = \"cookie:id\" }}\n\
         access_log = \"/var/log/a.log\"\naccess_format = \"json\"\n\
         access_hide = [\"client\", \"query\", \"query:a\", \"header:Referer\"]\n\
         error_page = {{ 503 = {pages:?}, \"5xx\" = {pages:?} }}\n\
         [app.a]\nexec = \"x\"\nclient_connections_max = 7\naccess_log = \"none\"\n\
         rate_limit = {{ rate = \"5/10s\", burst = 9, by = \"header:X-Key\" }}\n\
         error_page = {{ \"4xx\" = {pages:?} }}\n\
         [app.b]\nexec = \"x\"\nhosts = \"b\"\n"
    ));
    let front = &config.front;
    assert_eq!(front.redirect_https, HttpsRedirect::None);
    let year = Duration::from_secs(365 * 24 * 3600);
    assert_eq!(front.hsts.as_ref().map(|hsts| hsts.max_age), Some(year));
    assert_eq!((front.allow.len(), front.deny.len()), (1, 1));
    assert_eq!(front.client_connections_max, None);
    let limit = front.rate_limit.as_ref().unwrap();
    assert_eq!((limit.rate.count, limit.burst()), (100, 100));
    assert_eq!(limit.rate.per, Duration::from_secs(60));
    assert_eq!(limit.by, LimitBy::Cookie("id".into()));
    assert_eq!(front.access_log, AccessLog::File("/var/log/a.log".into()));
    assert_eq!(front.access_hide.len(), 4);
    let has = |status| {
        front
            .error_page
            .iter()
            .filter(move |page| page.status.has(status))
    };
    assert_eq!(
        (has(503).count(), has(500).count(), has(404).count()),
        (2, 1, 0)
    );
    let own = &config.apps[0].access;
    assert_eq!(own.client_connections_max, Some(7));
    assert_eq!(own.access_log, Some(AccessLog::None));
    let limit = own.rate_limit.as_ref().unwrap();
    assert_eq!((limit.rate.count, limit.burst()), (5, 9));
    assert_eq!(limit.by, LimitBy::Header("x-key".into()));
    assert_eq!(config.apps[1].access, AppAccess::default());
    assert_eq!(through_rows(&config), config);
}

#[test]
fn what_is_said_of_files_and_of_compression_is_read_and_shown() {
    let config = read(
        "[front]\nstatic = { root = \"/\" }\ncompress = [\"gzip\", \"zstd\"]\n\
         compress_min = \"0B\"\n\
         [app.a]\nexec = \"x\"\nstatic = \"none\"\ncompress = []\n\
         [app.b]\nexec = \"x\"\nhosts = \"b\"\ncompress = \"zstd\"\ncompress_min = \"2KiB\"\n\
         [[app.b.static]]\npath = \"/media/\"\nroot = \"/usr\"\nindex = \"none\"\n\
         max_age = \"365d\"\nprecompressed = false\n\
         [[app.b.static]]\npath = \"/a\"\nroot = \"/\"\n\
         [app.c]\nexec = \"x\"\nhosts = \"c\"\n",
    );
    let front = &config.front;
    let whole = StaticFiles {
        root: "/".into(),
        ..StaticFiles::default()
    };
    assert_eq!((&*whole.path, whole.max_age), ("/", None));
    assert_eq!(whole.index.as_deref(), Some("index.html"));
    assert_eq!(front.static_files, [whole]);
    assert_eq!(front.compress, [Compression::Gzip, Compression::Zstd]);
    assert_eq!(front.compress_min, 0);
    let own = &config.apps[0].access;
    assert_eq!(own.static_files.as_deref(), Some(&[][..]));
    assert_eq!(own.compress.as_deref(), Some(&[][..]));
    let several = &config.apps[1].access;
    let files = several.static_files.as_deref().unwrap();
    let paths: Vec<_> = files.iter().map(|files| &*files.path).collect();
    assert_eq!(paths, ["/media", "/a"]);
    let year = Duration::from_secs(365 * 24 * 3600);
    assert_eq!((files[0].max_age, &files[0].index), (Some(year), &None));
    assert!(!files[0].precompressed && files[1].precompressed);
    assert_eq!(several.compress_min, Some(2048));
    assert_eq!(config.apps[2].access, AppAccess::default());
    assert_eq!(through_rows(&config), config);
}

#[test]
fn what_an_app_does_not_say_is_as_usual() {
    let config = read("[app.a]\nexec = \"x\"\n[app.b]\nhosts = [\"b\"]\nexec = \"x\"\n");
    assert_eq!(config.apps[0], AppConfig::new("a", vec!["x".into()]));
    assert_eq!(config.front, Config::default().front);
}

#[test]
fn a_process_listens_as_the_file_says_or_as_its_words_tell() {
    let fixed = AppListen::Fixed("127.0.0.1:9000".parse().unwrap());
    for (words, listen, max) in [
        (r#"exec = ["x", "unix:{socket}"]"#, AppListen::Socket, None),
        (
            r#"exec = ["sh", "-c", "x $SOCKET"]"#,
            AppListen::Socket,
            None,
        ),
        (
            "exec = \"x\"\nenv = { AT = \"{socket}\" }",
            AppListen::Socket,
            None,
        ),
        (r#"exec = ["x", "{port}"]"#, AppListen::Port, None),
        ("exec = \"x\"", AppListen::Port, None),
        (
            "exec = [\"x\", \"{socket}\"]\nlisten = \"port\"\nmax = 3",
            AppListen::Port,
            Some(3),
        ),
        ("exec = \"x\"\nlisten = \"localhost:9000\"", fixed, Some(1)),
    ] {
        let config = read(&format!("[app.a]\n{words}\n"));
        let app = &config.apps[0];
        assert_eq!(
            (&app.run.listen, app.options.max),
            (&listen, max),
            "{words}"
        );
    }
}

#[test]
fn a_process_is_ready_in_one_of_these_ways() {
    for (words, ready) in [
        ("\"auto\"", AppReady::Auto),
        ("\"connect\"", AppReady::Connect),
        ("\"http\"", AppReady::Http("/".into())),
        ("\"notify\"", AppReady::Notify),
        ("{ http = \"/up\" }", AppReady::Http("/up".into())),
        ("{ line = \"up at\" }", AppReady::Line("up at".into())),
    ] {
        let config = read(&format!("[app.a]\nexec = \"x\"\nready = {words}\n"));
        assert_eq!(config.apps[0].run.ready, ready, "{words}");
    }
}

#[test]
fn a_queue_of_an_app_has_a_limit_and_a_time_unless_it_says_otherwise() {
    let shedding = |config: &Config| {
        let queue = &config.apps[0].options.queue;
        (queue.shedding.clone(), (queue.max, queue.max_fits))
    };
    let timeout = |seconds| queue::Shedding::Timeout {
        wait_max: Duration::from_secs(seconds),
    };
    let codel = queue::Shedding::CoDel {
        target: Duration::from_millis(250),
        interval: Duration::from_secs(1),
    };
    let most = queue::Options::default().max;
    for (words, expected) in [
        (
            "{ max = 7 }",
            (queue::Shedding::default(), (Some(7), false)),
        ),
        (
            "{ max = \"auto\" }",
            (queue::Shedding::default(), (most, true)),
        ),
        ("{ timeout = \"1s\" }", (timeout(1), (most, true))),
        ("\"timeout\"", (timeout(30), (most, true))),
        ("\"never\"", (queue::Shedding::Never, (most, true))),
        (
            "{ kind = \"codel\", target = \"250ms\", max = \"none\" }",
            (codel, (None, false)),
        ),
    ] {
        let config = read(&format!("[app.a]\nexec = \"x\"\nqueue = {words}\n"));
        assert_eq!(shedding(&config), expected, "{words}");
    }
}

#[test]
fn an_app_like_another_has_what_it_does_not_say_itself() {
    let config = read(
        r#"
        [app.b]
        like = "a"
        hosts = ["b.example"]
        health = "none"
        sticky = "none"
        memory_hard = "none"

        [app.a]
        hosts = ["a.example"]
        exec = ["x", "{socket}"]
        env = { A = "1" }
        max = 3
        memory_hard = "1GiB"
        health = { path = "/up" }
        sticky = "route"
        queue = { max = 5 }
        "#,
    );
    let [b, a] = &config.apps[..] else {
        panic!("two apps");
    };
    assert_eq!(b.hosts, ["b.example"]);
    assert_eq!(b.run, a.run);
    assert_eq!((b.options.max, b.options.queue.max), (Some(3), Some(5)));
    assert_eq!((&b.health, &b.http.sticky), (&None, &None));
    assert_eq!(b.options.memory_hard, None);
    assert!(a.health.is_some() && a.http.sticky.is_some());
}

#[test]
fn rows_of_apps_put_together_are_the_config_again() {
    let mut config = read(ALL);
    // What is in the environment of a program is not shown.
    let shown = format!("{:?}", config.rows());
    assert!(!shown.contains("hunter2"), "{shown}");
    config.apps.iter_mut().for_each(|app| app.run.env.clear());
    assert_eq!(through_rows(&config), config);
    assert_eq!(config.value("app.shop.umask").as_deref(), Some("\"027\""));
    assert_eq!(config.value("app.bare.max").as_deref(), Some("\"none\""));
    assert_eq!(config.value("front.max").as_deref(), Some("24"));
}

#[test]
fn the_defaults_of_apps_in_the_reference_are_the_defaults() {
    let shown = read(&reference());
    let usual = AppConfig::new("shop", Vec::new());
    let shop = &shown.apps[0];
    // These are not the defaults, so that each shows how it is written.
    let others = rideau_core::apps::Options {
        min: usual.options.min,
        max: usual.options.max,
        target_wait: usual.options.target_wait,
        requests_max: usual.options.requests_max,
        life_max: usual.options.life_max,
        memory_soft: usual.options.memory_soft,
        memory_hard: usual.options.memory_hard,
        ..shop.options.clone()
    };
    assert_eq!(others, usual.options);
    let http = rideau_config::Http {
        request_timeout: None,
        sticky: None,
        ..shop.http.clone()
    };
    assert_eq!(http, usual.http);
    let (run, usual_run) = (&shop.run, &usual.run);
    assert_eq!(
        (run.start_timeout, run.stop_timeout, run.stop_signal),
        (
            usual_run.start_timeout,
            usual_run.stop_timeout,
            usual_run.stop_signal
        )
    );
    assert_eq!(
        (&shop.paths, &shop.restart_dir),
        (&usual.paths, &usual.restart_dir)
    );
    let front = rideau_config::FrontConfig {
        routes: Vec::new(),
        listen: Vec::new(),
        tls_listen: Vec::new(),
        limits: rideau_core::apps::Limits {
            max: Config::default().front.limits.max,
            starts_max: Config::default().front.limits.starts_max,
            ..shown.front.limits
        },
        trust: Vec::new(),
        hsts: None,
        acme: None,
        allow: Vec::new(),
        deny: Vec::new(),
        rate_limit: None,
        waiting_room: None,
        hosts_file: None,
        access_hide: Vec::new(),
        static_files: Vec::new(),
        compress: Vec::new(),
        buffer_dir: None,
        ..shown.front
    };
    assert_eq!(front, Config::default().front);
}

#[test]
fn the_example_has_apps_of_every_kind() {
    let path = examples()
        .into_iter()
        .find(|path| path.ends_with("apps.toml"));
    let config = read(&std::fs::read_to_string(path.unwrap()).unwrap());
    let kinds: Vec<_> = config.apps.iter().map(|app| &app.run.listen).collect();
    let fixed = AppListen::Fixed("127.0.0.1:9000".parse().unwrap());
    for kind in [
        AppListen::Socket,
        AppListen::Port,
        AppListen::Inherit,
        fixed,
    ] {
        assert!(kinds.contains(&&kind), "{kind:?}");
    }
}

#[test]
fn a_plan_says_what_a_change_means_to_requests() {
    let live = |held, waiting| Live { held, waiting };
    let things = [("app.shop", live(5, 60)), ("app.old", live(1, 2))];
    let things: BTreeMap<_, _> = things.map(|(name, live)| (name.into(), live)).into();
    let plan = plan(&read(OLD), &read(NEW), Some(&Now { things }));
    assert_eq!(plan.render("new.toml"), PLAN.trim_start_matches('\n'));
    assert_eq!((plan.restarts(), plan.shed()), (1, 12));
}

#[test]
fn a_plan_without_numbers_says_what_becomes_of_an_app() {
    let plan = plan(&read(OLD), &read(NEW), None);
    let step = plan.steps.iter().find(|step| step.path == "app.old");
    assert_eq!(
        step.unwrap().meaning,
        "Waiting requests are refused; its processes finish their requests and are stopped."
    );
}

#[test]
fn how_a_process_is_watched_and_ended_changes_without_a_restart() {
    let app = |words: &str| read(&format!("[app.a]\nexec = \"x\"\n{words}\n"));
    for words in [
        "start_timeout = \"1s\"",
        "stop_timeout = \"1s\"",
        "stop_signal = \"INT\"",
        "warm_up = \"/\"",
        "ready = \"notify\"",
        "log = \"/var/log/a\"",
        "umask = \"022\"",
        "listen = \"inherit\"",
    ] {
        let (old, new) = (app(""), app(words));
        let is_same = old.apps[0].run.is_same_program(&new.apps[0].run);
        let said = match is_same {
            true => "For processes that are started from then on.",
            false => "New processes are started one after the other; requests go on.",
        };
        assert_eq!(plan(&old, &new, None).steps[0].meaning, said, "{words}");
    }
}

const ALL: &str = r#"
[front]
listen = "127.0.0.1:3000"
max = 24
headroom = 0
starts_max = 3
evict_for = "count"
starve_min = "9s"
buffer_dir = "/srv/bodies"
buffer_memory = "1MiB"
buffer_disk = "0B"
body_rate_min = "2KiB/s"
send_rate_min = "none"
trust = ["10.0.0.0/8", "::1", "::ffff:192.168.0.0/112"]
error_pages = "detailed"
header_max = "8KiB"
headers_max = 50
header_timeout = "5s"
idle_timeout = "1m"
shutdown_timeout = "0s"
connections_max = 99

[app.shop]
hosts = ["Shop.Example", "*.shop.example", "::1"]
paths = ["/", "/shop/"]
strip = true
exec = ["x", "\"q\"", "{id}"]
root = "/srv/shop"
env = { SECRET = "hunter2" }
user = "www-data"
group = "33"
umask = "027"
files_max = 4096
processes_max = 64
listen = "inherit"
ready = "http"
watchdog = "20s"
warm_up = ["/", "/a?b=c"]
log = "/var/log/a b.log"
min = 2
max = 8
concurrency = 1
queue = { kind = "codel", target = "250ms", max = 400, fair_by = "flow" }
target_wait = "250ms"
idle_after = "none"
requests_max = 5000
life_max = "24h"
memory_soft = "300MiB"
memory_hard = "1GiB"
start_timeout = "1m"
drain_timeout = "0s"
stop_timeout = "0s"
stop_signal = "QUIT"
uptime_min = "1s"
backoff_first = "1s"
backoff_max = "2s"
deploy_tries = 5
restart_dir = "none"
health = { path = "/up", every = "1s", timeout = "500ms", fails = 2 }
request_timeout = "60s"
timeouts_max = 9
timeouts_window = "7s"
body_max = "10MiB"
buffer_requests = false
buffer_responses = false
buffer_response_max = "3MiB"
keep_alive = "0s"
retry = false
sticky = { cookie = "route", wait = "2s" }
streams = { grace = "0s", idle = "1m", max = 9, count = false }
timing = true

[app.bare]
exec = "x"

[app.fixed]
hosts = ["fixed"]
exec = "x"
listen = "[::1]:9000"
ready = { line = "\"up\"" }
"#;

const OLD: &str = r#"
[front]
listen = "[::1]:1"
max = 10

[app.old]
hosts = ["old.example"]
exec = "old"

[app.shop]
hosts = ["shop.example"]
exec = ["shop"]
env = { KEY = "old" }
max = 8
min = 2
"#;

const NEW: &str = r#"
[front]
listen = []
max = 6
idle_timeout = "10s"
trust = "::1"

[app.shop]
hosts = ["a.example"]
exec = ["shop2"]
env = { KEY = "new" }
concurrency = 8
max = 4
min = 3
queue = { max = 50 }
health = { path = "/up" }
memory_hard = "1GiB"

[app.new]
exec = "new"
min = 1
"#;

const PLAN: &str = r#"
  front.listen              ["[::1]:1"] -> []                   Takes effect after the next start.
  front.max                 10 -> 6                             Processes above the new limit finish
                                                                their requests and are stopped; no
                                                                request is interrupted.
  front.trust               [] -> ["::1"]                       From the next request on.
  front.idle_timeout        75s -> 10s                          For new connections.
  app.old                   - removed                           2 that wait are refused; 1 served to
                                                                their end, and its processes
                                                                stopped.
  app.shop.hosts            ["shop.example"] -> ["a.example"]   From the next request on.
  app.shop.health.path      + /up                               At once.
  app.shop.health.every     + 10s                               At once.
  app.shop.health.timeout   + 2s                                At once.
  app.shop.health.fails     + 3                                 At once.
  app.shop.exec             ["shop"] -> ["shop2"]               New processes are started one after
                                                                the other; requests go on.
  app.shop.min              2 -> 3                              What is missing is started at once.
  app.shop.max              8 -> 4                              Processes above the new limit finish
                                                                their requests and are stopped; no
                                                                request is interrupted.
  app.shop.concurrency      auto -> 8                           Requests that are served go on; a
                                                                process gets no others until it has
                                                                room.
  app.shop.queue.max        auto -> 50                          10 of those that wait are shed.
  app.shop.memory_hard      none -> 1GiB                        Processes above it are killed, with
                                                                the requests they serve.
  app.new                   + added                             1 process started.
  app.shop.env              (hidden) -> (hidden)                New processes are started one after
                                                                the other; requests go on.
18 changes, 1 restart, 12 requests shed.   Apply:  rideau apply new.toml
"#;
