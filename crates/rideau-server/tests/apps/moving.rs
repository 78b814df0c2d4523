//! The pages for those that come from another server: their files, tried as they stand there
//! but for the places that a test may use.

use std::collections::BTreeSet;
use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use rideau_testing::certificates::{papers_for, signer};
use rideau_testing::{Running, Start, command, skipped};

use crate::harness::{Harness, folder, processes_of, until};
use crate::nginx;

const GUNICORN: &str = include_str!("../../../../docs/from-gunicorn-behind-nginx.md");
const PASSENGER: &str = include_str!("../../../../docs/from-passenger.md");
const UNIT: &str = include_str!("../../../../docs/from-nginx-unit.md");

/// It says what it was told.
const WSGI: &str = "import os\n\
def application(environ, start):\n    \
    path, sent = environ['PATH_INFO'], environ['wsgi.input'].read()\n    \
    told = ['HTTP_HOST', 'HTTP_X_FORWARDED_FOR', 'HTTP_X_FORWARDED_PROTO', \
'HTTP_X_FORWARDED_HOST', 'QUERY_STRING']\n    \
    told = [environ.get(name, '-') for name in told]\n    \
    told += [os.environ['DJANGO_SETTINGS_MODULE'], path, str(len(sent))]\n    \
    text = ' '.join(told) + '\\n'\n    \
    text = text * (200 if path == '/long' else 1)\n    \
    status = '500 Broken' if path == '/broken' else '200 OK'\n    \
    kind = 'text/html; charset=utf-8'\n    \
    start(status, [('Content-Type', kind), ('Content-Length', str(len(text)))])\n    \
    return [text.encode()]\n";

const RACK: &str = "run proc { |env|\n  env['rack.input'].read\n  \
    text = [ENV['RACK_ENV'], ENV['LOCALE'], env['PATH_INFO'], Process.pid].join(' ')\n  \
    puts 'asked'\n  $stdout.flush\n  [200, { 'content-type' => 'text/plain' }, [text]]\n}\n";

/// Where a server is asked.
struct Place {
    plain: u16,
    tls: u16,
    ca: PathBuf,
}

/// What a client is answered, without the ports that no two servers share.
#[derive(PartialEq, Eq, Debug)]
struct Told {
    status: u16,
    /// The fields that are of interest.
    fields: Vec<(&'static str, Option<String>)>,
    body: String,
}

/// The fields that both servers should say alike.
const FIELDS: [&str; 4] = [
    "Location",
    "Cache-Control",
    "Content-Encoding",
    "Strict-Transport-Security",
];

impl Place {
    /// Ask for an address of `shop.example` or `www.shop.example`.
    fn ask(&self, words: &[&str], url: &str) -> Told {
        let (plain, tls) = (format!(":{}", self.plain), format!(":{}", self.tls));
        let port = if url.starts_with("https:") {
            &tls
        } else {
            &plain
        };
        let url = url.replacen(".example", &format!(".example{port}"), 1);
        let mut curl = command("curl");
        curl.args(["--silent", "--show-error", "--include", "--max-time", "50"]);
        for host in ["shop.example", "www.shop.example"] {
            for port in [&plain, &tls] {
                curl.args(["--resolve", &format!("{host}{port}:127.0.0.1")]);
            }
        }
        let done = curl.arg("--cacert").arg(&self.ca).args(words).arg(url);
        let done = done.output().unwrap();
        assert!(done.status.success(), "{done:?}");
        let said = String::from_utf8_lossy(&done.stdout);
        let said = said.replace(&plain, "").replace(&tls, "");
        let (mut head, mut body) = said.split_once("\r\n\r\n").unwrap();
        while head.split(' ').nth(1) == Some("100") {
            (head, body) = body.split_once("\r\n\r\n").unwrap();
        }
        let fields = FIELDS.map(|name| {
            let mut lines = head.lines().filter_map(|line| line.split_once(": "));
            let line = lines.find(|(known, _)| known.eq_ignore_ascii_case(name));
            (name, line.map(|(_, value)| value.to_owned()))
        });
        Told {
            status: head.split(' ').nth(1).unwrap().parse().unwrap(),
            fields: fields.to_vec(),
            body: body.to_owned(),
        }
    }
}

impl Place {
    /// Send a file. Many versions of curl do not see an answer of HTTP/2 that comes before
    /// they have sent all.
    fn send(&self, file: &str, url: &str) -> u16 {
        self.ask(&["--http1.1", "--data-binary", file], url).status
    }
}

impl Told {
    fn field(&self, name: &str) -> Option<&str> {
        let found = self.fields.iter().find(|(known, _)| *known == name);
        found.unwrap().1.as_deref()
    }
}

/// The first block of code of this language on a page.
fn block<'a>(page: &'a str, language: &str) -> &'a str {
    let (_, rest) = page.split_once(&format!("```{language}\n")).unwrap();
    rest.split_once("```").unwrap().0
}

fn free_port() -> u16 {
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    free.local_addr().unwrap().port()
}

/// The files of a shop in a folder: code, files for clients, a certificate.
fn shop(folder: &Path) -> PathBuf {
    let write = |path: &str, text: &str| {
        let path = folder.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    let style = "p { margin: 0 }\n".repeat(200);
    for at in ["srv/static/a.css", "srv/public/assets/a.css"] {
        write(at, &style);
    }
    write("srv/one/shop/wsgi.py", WSGI);
    write("srv/one/config.ru", RACK);
    write("srv/one/public/robots.txt", "no robots\n");
    write("srv/one/tmp/.keep", "");
    write("srv/failed.html", "failed with {status}\n");
    write("logs/.keep", "");
    let signer = signer("signer");
    let papers = papers_for("shop", &["shop.example", "www.shop.example"], &signer);
    write("ssl/cert.pem", &papers.certificate());
    write("ssl/key.pem", &papers.key());
    write("ssl/ca.pem", &signer.pem());
    symlink(folder.join("srv/one"), folder.join("srv/current")).unwrap();
    folder.join("ssl/ca.pem")
}

/// A text of a page with the places of the test.
fn moved(text: &str, folder: &Path) -> String {
    let at = folder.display();
    let text = text.replace("/srv/shop", &format!("{at}/srv"));
    let text = text.replace("/etc/ssl/shop", &format!("{at}/ssl"));
    let text = text.replace("/var/log/shop", &format!("{at}/logs"));
    text.replace("/run/shop.sock", &format!("{at}/shop.sock"))
}

/// The server with the file of a page, and where it is asked.
fn served(page: &str, folder: &Path, ca: PathBuf) -> (Harness, Place) {
    let tls = free_port();
    let text = moved(block(page, "toml"), folder);
    let text = text.replace("0.0.0.0:80", "127.0.0.1:0");
    let text = text.replace("0.0.0.0:443", &format!("127.0.0.1:{tls}"));
    // There is no such account here.
    let is_account = |line: &str| line.starts_with("user ") || line.starts_with("group ");
    let lines: Vec<_> = text.lines().filter(|line| !is_account(line)).collect();
    let text = format!(
        "[server]\nlisten = [\"127.0.0.1:0\"]\nadmin = \"127.0.0.1:0\"\nrun_dir = {:?}\n{}\n",
        folder.join("run"),
        lines.join("\n")
    );
    fs::write(folder.join("rideau.toml"), text).unwrap();
    let harness = Harness::start(folder);
    let place = Place {
        plain: harness.front.port(),
        tls,
        ca,
    };
    (harness, place)
}

/// What the unit of the page runs.
fn service(folder: &Path) -> Running {
    let unit = moved(block(GUNICORN, "ini"), folder);
    let said = |key: &str| {
        let line = unit.lines().find_map(|line| line.strip_prefix(key));
        line.unwrap_or_else(|| panic!("no {key}")).to_owned()
    };
    let (exec, variable) = (said("ExecStart="), said("Environment="));
    let (name, value) = variable.split_once('=').unwrap();
    let mut words = exec.split(' ');
    let running = command(words.next().unwrap())
        .args(words)
        .env(name, value)
        .current_dir(said("WorkingDirectory="))
        .start();
    until("gunicorn listens", || {
        UnixStream::connect(folder.join("shop.sock")).is_ok()
    });
    running
}

#[test]
fn gunicorn_behind_nginx_answers_as_the_file_that_replaces_both() {
    if nginx::version().is_none() {
        return skipped("there is no nginx");
    }
    let folder = folder();
    let ca = shop(&folder);
    let (plain, tls) = (free_port(), free_port());
    let site = moved(block(GUNICORN, "nginx"), &folder);
    let site = site.replace("listen 80;", &format!("listen 127.0.0.1:{plain};"));
    let site = site.replace("listen 443 ", &format!("listen 127.0.0.1:{tls} "));
    let _gunicorn = service(&folder);
    let _nginx = nginx::start(&folder, &site);
    let before = Place {
        plain,
        tls,
        ca: ca.clone(),
    };
    let (harness, after) = served(GUNICORN, &folder, ca);

    let long = folder.join("long");
    fs::File::create(&long).unwrap().set_len(21 << 20).unwrap();
    let short = folder.join("short");
    fs::File::create(&short).unwrap().set_len(1 << 20).unwrap();
    let [long, short] = [long, short].map(|path| format!("@{}", path.display()));
    let gzip: &[&str] = &["--compressed", "--header", "Accept-Encoding: gzip"];
    let asked: &[(&[&str], &str, u16)] = &[
        (&[], "http://shop.example/a?b=c", 308),
        (&[], "http://www.shop.example/", 308),
        (&[], "https://shop.example/a?b=c", 200),
        (&[], "https://www.shop.example/%41//b", 200),
        (&["--head"], "https://shop.example/", 200),
        (&["--http1.1"], "https://shop.example/", 200),
        (&[], "https://shop.example/broken", 500),
        (gzip, "https://shop.example/long", 200),
        (&[], "https://shop.example/static/a.css", 200),
        (gzip, "https://shop.example/static/a.css", 200),
        (&["--data-binary", &short], "https://shop.example/up", 200),
    ];
    for (words, url, status) in asked {
        let (old, new) = (before.ask(words, url), after.ask(words, url));
        assert_eq!(new.status, *status, "{words:?} {url}");
        if new.status == 308 {
            // Each has a page of its own.
            let told = |told: &Told| (told.status, told.field("Location").map(str::to_owned));
            assert_eq!(told(&old), told(&new), "{words:?} {url}");
        } else {
            assert_eq!(old, new, "{words:?} {url}");
        }
    }
    for place in [&before, &after] {
        assert_eq!(place.send(&long, "https://shop.example/up"), 413);
        let told = place.ask(gzip, "https://shop.example/long");
        assert_eq!(told.field("Content-Encoding"), Some("gzip"));
        // More than may pass at once, on one connection.
        let told = place.ask(&["--parallel-max", "1"], "https://shop.example/?n=[1-200]");
        assert!(told.body.contains(" 429"), "{told:?}");
    }
    assert_eq!(harness.ready().len(), 2);
    let log = fs::read_to_string(folder.join("logs/access.log")).unwrap();
    assert!(log.contains("\"GET /a?b=c HTTP/"), "{log}");
    harness.end();
}

/// A site of nginx leads to the front at a socket, which believes what it says.
#[test]
fn nginx_stays_in_front_while_one_site_after_the_other_moves() {
    if nginx::version().is_none() {
        return skipped("there is no nginx");
    }
    let folder = folder();
    shop(&folder);
    let (_, rest) = GUNICORN.split_once("## One site after the other").unwrap();
    let config = moved(block(rest, "toml"), &folder);
    let web = folder.join("web.sock").display().to_string();
    let config = config.replace("/run/rideau/web.sock", &web);
    let config = config.replace(
        "exec   =",
        "env = { DJANGO_SETTINGS_MODULE = \"x\" }\nexec =",
    );
    let config = config.replace("listen = [\"unix:", "listen = [\"127.0.0.1:0\", \"unix:");
    let text = format!(
        "[server]\nlisten = [\"127.0.0.1:0\"]\nadmin = \"127.0.0.1:0\"\nrun_dir = {:?}\n{config}",
        folder.join("run")
    );
    fs::write(folder.join("rideau.toml"), text).unwrap();
    let harness = Harness::start(&folder);
    let plain = free_port();
    let site = block(rest, "nginx").replace("/run/rideau/web.sock", &web);
    let site = format!("server {{ listen 127.0.0.1:{plain};\n{site}}}");
    let _nginx = nginx::start(&folder, &site);
    let ca = folder.join("ssl/ca.pem");
    let place = Place { plain, tls: 1, ca };
    let told = place.ask(&[], "http://shop.example/a?b=c");
    let wanted = "shop.example 127.0.0.1, 127.0.0.1 http shop.example b=c x /a 0\n";
    assert_eq!((told.status, &*told.body), (200, wanted));
    harness.end();
}

#[test]
fn the_file_for_those_that_come_from_passenger_does_what_theirs_did() {
    let folder = folder();
    let ca = shop(&folder);
    let (harness, place) = served(PASSENGER, &folder, ca);
    until("both that are kept are ready", || {
        harness.ready().len() == 2
    });
    let told = place.ask(&[], "http://shop.example/x");
    assert_eq!(told.status, 200);
    assert!(told.body.starts_with("production en /x "), "{told:?}");
    let told = place.ask(&[], "http://shop.example/robots.txt");
    assert_eq!((told.status, &*told.body), (200, "no robots\n"));
    let sticky = harness.ask("GET", "shop.example", "/", b"").unwrap();
    let cookie = sticky.field("Set-Cookie").unwrap();
    assert!(cookie.starts_with("shop_route="), "{cookie}");
    let unknown = harness.ask("GET", "else.example", "/", b"").unwrap();
    assert_eq!(unknown.status, 404);
    let long = folder.join("long");
    fs::File::create(&long).unwrap().set_len(21 << 20).unwrap();
    let long = format!("@{}", long.display());
    assert_eq!(place.send(&long, "http://shop.example/up"), 413);
    let log = fs::read_to_string(folder.join("logs/app.log")).unwrap();
    assert!(log.contains("asked"), "{log}");
    let old: BTreeSet<_> = harness.ready().into_iter().collect();
    fs::write(folder.join("srv/one/tmp/restart.txt"), "").unwrap();
    // Without requests, the new code is on trial for a minute.
    until("new code is started", || {
        harness.ready().iter().any(|pid| !old.contains(pid))
    });
    harness.cli(&["trial", "shop", "accept"]);
    until("all is new", || {
        let now = processes_of(&folder);
        !harness.ready().is_empty() && old.iter().all(|pid| !now.contains(pid))
    });
    harness.end();
}

#[test]
fn the_file_for_those_that_come_from_unit_does_what_theirs_did() {
    let json: serde_json::Value = serde_json::from_str(block(UNIT, "json")).unwrap();
    assert_eq!(json["applications"]["shop"]["module"], "shop.wsgi");
    let folder = folder();
    let ca = shop(&folder);
    fs::create_dir_all(folder.join("srv/venv/bin")).unwrap();
    let found = command("sh").args(["-c", "command -v gunicorn"]).output();
    let found = String::from_utf8(found.unwrap().stdout).unwrap();
    symlink(found.trim(), folder.join("srv/venv/bin/gunicorn")).unwrap();
    let (harness, place) = served(UNIT, &folder, ca);
    let location = |url: &str| {
        let told = place.ask(&[], url);
        (told.status, told.field("Location").unwrap().to_owned())
    };
    let there = |path: &str| format!("https://shop.example{path}");
    assert_eq!(location("http://shop.example/a?b"), (308, there("/a?b")));
    assert_eq!(
        location("https://www.shop.example/a?b"),
        (301, there("/a?b"))
    );
    let told = place.ask(&[], "https://shop.example/a?b=c");
    let wanted = "shop.example 127.0.0.1 https shop.example b=c shop.settings /a 0\n";
    assert_eq!((told.status, &*told.body), (200, wanted));
    assert_eq!(place.ask(&[], "https://shop.example/admin/x").status, 403);
    let told = place.ask(&[], "https://shop.example/assets/a.css");
    assert_eq!(told.field("Cache-Control"), Some("max-age=3600"));
    assert!(told.body.starts_with("p { margin: 0 }"), "{told:?}");
    let told = place.ask(&[], "https://shop.example/assets/none.css");
    assert!(told.body.contains(" /assets/none.css "), "{told:?}");
    let long = folder.join("long");
    fs::File::create(&long).unwrap().set_len(21 << 20).unwrap();
    let long = format!("@{}", long.display());
    assert_eq!(place.send(&long, "https://shop.example/up"), 413);
    let log = |name: &str| fs::read_to_string(folder.join("logs").join(name)).unwrap();
    assert!(log("access.log").contains("\"GET /admin/x HTTP/"));
    assert!(log("app.log").contains("gunicorn"));
    harness.end();
}
