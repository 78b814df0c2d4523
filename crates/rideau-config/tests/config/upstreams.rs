//! Upstreams and waiting rooms in the config file.

use std::path::PathBuf;
use std::time::Duration;

use rideau_config::{Change, Config, Health, ServerPlace, ServerTls, change_of, plan};

use super::{check_faults, read, through_rows};

/// Bad files, and what is said about each.
const FAULTS: &str = include_str!("faults-upstreams.txt");

const ALL: &str = r#"
[front]
listen       = "127.0.0.1:3000"
hosts_file   = "/etc/rideau/hosts"
waiting_room = { after = "3s" }

[upstream.api]
servers         = ["10.0.0.7:8080", "[::1]:8080", "api.internal:8080"]
lookup_every    = "5s"
tls             = { ca = "/ca.pem", name = "Api.Internal", cert = "/front.pem", key = "/front.key" }
connect_timeout = "500ms"
failures_max    = 5
failures_window = "20s"
hosts           = ["api.example"]
paths           = ["/v1"]
strip           = true
concurrency     = 7
queue           = { kind = "timeout", timeout = "10s" }
health          = { path = "/up", every = "1s" }
sticky          = { cookie = "route", wait = "3s" }
streams         = { max = 9, grace = "5s" }
request_timeout = "60s"
keep_alive      = "4s"
retry           = false
rate_limit      = { rate = "20/s" }
waiting_room    = { after = "1s", page = "/wait.html", hold = "1m" }

[upstream.plain]
servers         = "unix:/run/api.sock"
hosts           = ["plain.example"]
waiting_room    = "none"

[upstream.system]
like            = "plain"
servers         = "system.example:443"
tls             = "system"
hosts           = ["system.example"]

[app.shop]
exec            = "true"
"#;

#[test]
fn every_fault_of_an_upstream_is_said_with_its_place_and_a_suggestion() {
    check_faults(FAULTS, 10);
}

#[test]
fn an_upstream_is_read_with_all_that_it_says() {
    let config = read(ALL);
    let [api, plain, system] = &config.upstreams[..] else {
        panic!("upstreams");
    };
    let words: Vec<_> = api.servers.places.iter().map(ToString::to_string).collect();
    assert_eq!(words, ["10.0.0.7:8080", "[::1]:8080", "api.internal:8080"]);
    assert_eq!(api.servers.lookup_every, Duration::from_secs(5));
    let tls = ServerTls {
        ca: Some("/ca.pem".into()),
        name: Some("api.internal".into()),
        cert: Some("/front.pem".into()),
        key: Some("/front.key".into()),
    };
    assert_eq!(api.servers.tls, Some(tls));
    assert_eq!(api.servers.connect_timeout, Duration::from_millis(500));
    assert_eq!(system.servers.tls, Some(ServerTls::default()));
    assert_eq!(plain.servers.tls, None);
    let socket = ServerPlace::Socket(PathBuf::from("/run/api.sock"));
    assert_eq!(plain.servers.places, [socket]);

    // What an app has as well is where an app has it.
    let app = &api.app;
    assert_eq!(
        (&*app.name, &*app.hosts),
        ("api", &["api.example".to_owned()][..])
    );
    assert_eq!(
        (&*app.paths, app.strips_path),
        (&["/v1".to_owned()][..], true)
    );
    assert_eq!(app.servers.as_ref(), Some(&api.servers));
    let rules = app.options.servers.unwrap();
    assert_eq!(
        (rules.failures_max, rules.failures_window.as_secs()),
        (5, 20)
    );
    assert_eq!(
        (app.options.concurrency, app.options.streams_max),
        (Some(7), 9)
    );
    assert_eq!(app.options.sticky_wait, Duration::from_secs(3));
    assert_eq!(app.http.sticky.as_deref(), Some("route"));
    assert_eq!(app.http.stream_grace, Duration::from_secs(5));
    assert_eq!(app.http.request_timeout, Some(Duration::from_secs(60)));
    assert_eq!(
        (app.http.keep_alive.as_secs(), app.http.retries),
        (4, false)
    );
    assert!(app.access.rate_limit.is_some());
    let health = Health {
        path: "/up".into(),
        every: Duration::from_secs(1),
        ..Health::default()
    };
    assert_eq!(app.health, Some(health));
    let names: Vec<_> = config.served().map(|app| &*app.name).collect();
    assert_eq!(names, ["shop", "api", "plain", "system"]);
}

#[test]
fn a_waiting_room_is_that_of_the_front_unless_an_app_says_otherwise() {
    let config = read(ALL);
    let front = config.front.waiting_room.as_ref().unwrap();
    assert_eq!((front.after.as_secs(), front.hold.as_secs()), (3, 30));
    let of = |at: usize| config.upstreams[at].app.access.waiting_room.clone();
    let own = of(0).unwrap().unwrap();
    assert_eq!((own.after.as_secs(), own.hold.as_secs()), (1, 60));
    assert_eq!(own.page, Some("/wait.html".into()));
    assert_eq!(of(1), Some(None), "none at all");
    assert_eq!(of(2), Some(None), "it is inherited");
    assert_eq!(
        config.apps[0].access.waiting_room, None,
        "that of the front"
    );
}

#[test]
fn rows_of_upstreams_put_together_are_the_config_again() {
    let config = read(ALL);
    assert_eq!(through_rows(&config), config);
    for (path, value) in [
        (
            "upstream.api.servers",
            r#"["10.0.0.7:8080", "[::1]:8080", "api.internal:8080"]"#,
        ),
        ("upstream.system.tls", r#""system""#),
        ("upstream.plain.tls", r#""none""#),
        ("upstream.api.failures_max", "5"),
        ("upstream.api.waiting_room.hold", r#""1m""#),
        ("upstream.plain.waiting_room", r#""none""#),
        ("front.waiting_room.after", r#""3s""#),
        ("front.hosts_file", r#""/etc/rideau/hosts""#),
    ] {
        assert_eq!(config.value(path).as_deref(), Some(value), "{path}");
    }
    assert_eq!(change_of("upstream.api.servers"), Change::Live);
}

#[test]
fn a_plan_says_what_a_change_of_servers_means() {
    let with = |keys: &str| read(&format!("[upstream.a]\nservers = \"10.0.0.7:80\"\n{keys}"));
    let meaning = |new: &Config| {
        let plan = plan(&with(""), new, None);
        let steps = plan
            .steps
            .iter()
            .map(|step| format!("{}: {}", step.path, step.meaning));
        steps.collect::<Vec<_>>().join("\n")
    };
    let servers = read("[upstream.a]\nservers = [\"10.0.0.8:80\"]\n");
    assert_eq!(
        meaning(&servers),
        "upstream.a.servers: New servers get requests as soon as their addresses are known; those \
         that are gone finish theirs."
    );
    let fewer = meaning(&with("concurrency = 3"));
    assert!(
        fewer.ends_with("a server gets no others until it has room."),
        "{fewer}"
    );
    assert_eq!(
        meaning(&with("tls = \"system\"")),
        "upstream.a.tls: For new connections."
    );
    let gone = meaning(&read(""));
    let said = "upstream.a: Waiting requests are refused; what is served goes on to its end.";
    assert_eq!(gone, said);
}
