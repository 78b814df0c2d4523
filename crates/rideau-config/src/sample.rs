//! The sample file: every key, with what it is for and its default.

use super::human::wrap;
use super::key::{Change, Effect, Form, Key};
use super::kinds::counted;
use super::parts::{Part, part};
use super::shown::{quoted, quoted_key, value_of};

/// A section of the sample file.
struct Page {
    /// The section.
    part: &'static str,
    title: &'static str,
    /// The comment above its keys.
    about: &'static str,
    /// The name of what is shown, where names are.
    name: &'static str,
    /// The section that it inherits from.
    like: &'static str,
    /// More examples, as text.
    more: &'static str,
}

/// Lines of the sample are no longer, unless a value is.
const WIDTH: usize = 100;
/// A longer value has its comment above it.
const VALUE_MAX: usize = 24;
/// More words than this are not listed.
const WORDS_MAX: usize = 10;

const HEAD: &str = r#"
# Every key of rideau, with what it is for and its default. Made by `rideau check --sample`.
#
# Check a file without starting anything:     rideau check rideau.toml
#   (of this one it says that the files of [tls], [cluster] and [user.orders] are not there: they
#   are yours)
# See what a change would mean, and apply it: rideau plan rideau.toml; rideau apply rideau.toml
# What editors need to complete and check it: rideau check --schema
#
# Spans are "200ms", "5s", "5m", "1h" (ns, us, ms, s, m, h). Sizes are "64KiB" (B, KiB, MiB,
# GiB). Counts may have underscores. "${NAME}" and "${NAME:-default}" in any text are variables
# of the environment, whose values are shown nowhere; "$$" is a plain $. What is not known is an
# error, with line and column.
#
# (live) takes effect at once when it is applied, and no position or lease is lost; (restart)
# takes effect after the next start. Where a value is not the default, the comment names it.
#
# The file is complete: only the pools, brokers and locks that it names exist. Without any file
# there are locks for every key and a broker named `default`.
"#;

const PAGES: &[Page] = &[
    Page::new("server", "the server"),
    Page::new("limits", "limits of what clients can use up").about(
        "What is over a limit is refused, and the error names the limit. A lower limit ends \
         nothing.",
    ),
    Page::new("tls", "TLS of the Redis protocol and of the admin page").about(
        "For new connections. The files are looked at every ten seconds, and read again when \
                they have changed.",
    ),
    Page::new("log", "the log"),
    Page::new("user", "who may do what")
        .about(
            "Without users every client has full access except control, so the server listens on \
             this machine only.",
        )
        .named("orders", "")
        .more(concat!(
            "\n[user.ops]\n# The hash of a password, made by `rideau hash`. ",
            "The password of this one is not known.\n",
            "password = \"$argon2id$v=19$m=19456,t=2,p=1$O5OzBjNS4ww0bHA6YiiG5A$",
            "gPW+bJvipQ41iDj9pzNIPibOmU0MRZJyBTkq1ojExUM\"\n",
            "uids     = [0]\nallow    = [\"@all\", \"@admin\"]\n",
        )),
    Page::new("pool", "pools: members that one holder has at a time")
        .named("pg-1", "")
        .more(
            r#"
[pool.pg-2]
like   = "pg-1"            # inherits every key that does not stand here
member = { exec = ["pgproxy", "--to", "db2:5432"], ready = { line = "listening at {address}" } }

[pool.licences]
member = { list = ["CAD-001", "CAD-002", "CAD-003"] }
queue  = { kind = "timeout", timeout = "10s" }
"#,
        ),
    Page::new("group", "groups: pools or brokers by a common name").named("pg", ""),
    Page::new("broker", "brokers: asks meet offers")
        .named("checkout", "default")
        .more("\n[broker.default]\n"),
    Page::new("regulator", "regulators: how many may run at a time")
        .named("checkout-workers", "")
        .more(
            r#"
[regulator.mail]
like       = "checkout-workers"
valve      = { kind = "least_of", of = [
    { kind = "rate", limit = 100, interval = "1s" },
    { kind = "breaker", failures = 5, window = 10, pause = "1s", pause_max = "1m", probes = 1 },
    { kind = "gradient", min = 20, max = 200, initial = 20, tolerance = 50 },
] }

[regulator.archive]
regulator  = "mail"
valve      = { kind = "codel", target = "100ms", interval = "1s", min = 1, max = 4 }
"#,
        ),
    Page::new("lock", "locks: a number of units for each key")
        .about("The first pattern that fits a key is used; * stands for any letters.")
        .named("tenant/*", "")
        .more(
            r#"
[lock.build-slot]
like        = "tenant/*"
per         = 4
buckets     = 3

[lock."*"]
"#,
        ),
    Page::new("range", "ranges: values for a time")
        .about("Numbers, IPv4 and IPv6 addresses, each to one holder. See docs/ranges.md.")
        .named("office", "")
        .more(
            r#"
[range.guests]
like       = "office"
values     = ["10.21.0.0/20", "2001:db8:21::/112"]
skip       = []
ttl        = "15m"

[range.ticket]
values     = ["0-9999"]
ttl        = "10m"
hold       = "connection"
"#,
        ),
    Page::new("view", "views: names for values that are only counted")
        .about(
            "They may overlap ranges and each other, and nothing can be had of them: \
                RANGE.COUNT, SHOW VIEWS.",
        )
        .named("floor-1", ""),
    Page::new("store", "where reservations are kept"),
    Page::new("cluster", "several nodes, with etcd between them")
        .about("Without this section there is one node, and no etcd. See docs/cluster.md."),
    Page::new("front", "the front of applications")
        .about("HTTP for the apps below. See docs/apps.md.")
        .more(
            r#"
# Certificates from Let's Encrypt, which are renewed. See docs/apps.md.
[front.acme]
directory   = "letsencrypt"             # or "letsencrypt-staging", for trials
agree       = true                      # to the terms of the authority. Default: false
contact     = "ops@shop.example"
hosts       = "apps"                    # or a list
challenges  = "auto"                    # or of "tls-alpn-01", "http-01", "dns-01"
dns_command = ["/usr/local/bin/dns-record"]     # Default: []
self_check  = true
path        = "/var/lib/rideau/acme"    # Default: `acme` in the folder of `store.path`
ca          = "/etc/rideau/tls/authority.pem"   # Default: what the system trusts
"#,
        ),
    Page::new("certificate", "certificates of the front")
        .about(
            "A client gets the certificate of the name that it asks for. The files are looked \
                at every ten seconds, and read again when they have changed.",
        )
        .named("shop", ""),
    Page::new("route", "routes of the front")
        .about(
            "Hosts and paths whose clients are sent elsewhere, or led to an app as if they were \
                its own.",
        )
        .named("www", "")
        .more(
            r#"
[route.reports]
hosts     = ["reports.shop.example"]
to        = "shop"
"#,
        ),
    Page::new(
        "app",
        "apps: programs that speak HTTP, started when requests come",
    )
    .about(
        "When what is run changes, new processes are started one after the other, and \
                requests go on.",
    )
    .named("shop", "")
    .more(
        r#"
[app.admin]
like             = "shop"
hosts            = ["admin.shop.example"]
exec             = ["node", "server.js"]
listen           = "port"
ready            = { line = "listening" }
min              = 0
max              = 2
"#,
    ),
    Page::new(
        "upstream",
        "upstreams: servers that speak HTTP, which others start",
    )
    .about(
        "Requests wait in the same queue as those for apps, and each server gets no more at a \
                time than it serves well.",
    )
    .named("api", "")
    .more(
        r#"
[upstream.reports]
like             = "api"
servers          = ["unix:/run/reports.sock"]
tls              = "none"
hosts            = ["reports.internal"]
"#,
    ),
    Page::new(
        "upgrade",
        "upgrades: a newer program takes over from this one",
    )
    .about("See docs/apps-operate.md."),
    Page::new(
        "alarm",
        "alarms: on the dashboard, in /metrics and to a webhook",
    )
    .about(
        "Each number of a thing that a chart or SHOW has, and a limit for it. \
                See docs/alarms.md.",
    )
    .more(
        r#"
[[alarm]]
name = "pg almost empty"
when = "pool.@pg.free < 2"
for  = "10s"
post = "https://hooks.example/ops"
"#,
    ),
];

/// The sample file.
pub fn sample() -> String {
    let mut out = HEAD.trim_start().to_owned();
    for page in PAGES {
        let part = part(page.part).expect("each page is about a section");
        page.write(part, &mut out);
    }
    out
}

impl Page {
    const fn new(part: &'static str, title: &'static str) -> Self {
        Self {
            part,
            title,
            about: "",
            name: "",
            like: "",
            more: "",
        }
    }

    const fn about(self, about: &'static str) -> Self {
        Self { about, ..self }
    }

    const fn named(self, name: &'static str, like: &'static str) -> Self {
        Self { name, like, ..self }
    }

    const fn more(self, more: &'static str) -> Self {
        Self { more, ..self }
    }

    fn write(&self, part: &Part, out: &mut String) {
        let is_live = |key: &Key| key.effect.change() == Change::Live;
        let is_mixed = !part.keys.iter().all(is_live);
        let live = if is_mixed { "" } else { " (live)" };
        let head = format!("\n# ---- {}{live} ", self.title);
        *out += &format!("{head:-<WIDTH$}\n");
        comment(self.about, out);
        let name = match self.name {
            "" => String::new(),
            name => format!(".{}", quoted_key(name)),
        };
        *out += &match part.is_list {
            true => format!("\n[[{}]]\n", self.part),
            false => format!("\n[{}{name}]\n", self.part),
        };
        let usual = (part.usual)();
        let lines = part.keys.iter().filter_map(|key| {
            let default = value_of(&usual, key.name).map(counted);
            let value = match (key.name, key.sample) {
                ("like", _) if !self.like.is_empty() => quoted(self.like),
                (_, "") => default.clone()?,
                (_, sample) => sample.into(),
            };
            let said = said(key, &value, default.as_deref(), is_mixed);
            Some((key, value, said))
        });
        let lines: Vec<_> = lines.collect();
        let keys = lines.iter().map(|(key, ..)| key.name.len());
        let values = lines.iter().map(|(_, value, _)| value.chars().count());
        let values = values.filter(|len| *len <= VALUE_MAX).max().unwrap_or(0);
        let keys = keys.max().unwrap_or(0);
        for (key, value, said) in lines {
            line(key, &value, &said, (keys, values), out);
        }
        *out += self.more;
    }
}

/// The comment after the value of a key.
fn said(key: &Key, value: &str, default: Option<&str>, is_mixed: bool) -> String {
    let mut said = plain(&key.sentence());
    // Which words there are, unless the sentence names them.
    if let Form::Words(words) = key.form
        && words.len() <= WORDS_MAX
        && !words
            .iter()
            .all(|word| format!("{value} {said}").contains(&quoted(word)))
    {
        let words: Vec<_> = words.iter().map(|word| quoted(word)).collect();
        said += &format!(" One of: {}.", words.join(", "));
    }
    let default = match (key.usual, default) {
        ("", default) => default.unwrap_or("none"),
        (usual, _) => usual,
    };
    if same(value) != same(default) {
        said += &match default {
            "required" => " Required.".into(),
            default => format!(" Default: {}.", plain(default)),
        };
    }
    match (is_mixed, key.effect) {
        (false, _) => (),
        (true, Effect::Restart) => said += " (restart)",
        (true, _) => said += " (live)",
    }
    said
}

fn line(key: &Key, value: &str, said: &str, (keys, values): (usize, usize), out: &mut String) {
    let name = key.name;
    if !key.above.is_empty() {
        let last = out.lines().last().unwrap_or_default();
        let is_first = last.starts_with('[');
        *out += if is_first { "" } else { "\n" };
        comment(key.above, out);
    }
    let head = format!("{name:keys$} = {value:values$}  # ");
    if value.chars().count() > VALUE_MAX || value.contains('\n') {
        comment(said, out);
        *out += &format!("{name:keys$} = {value}\n");
        return;
    }
    let indent = head.chars().count() - 2;
    let mut lines = wrap(said, WIDTH - indent - 2).into_iter();
    *out += &format!("{head}{}\n", lines.next().unwrap_or_default());
    for more in lines {
        *out += &format!("{:indent$}# {more}\n", "");
    }
}

/// Lines of a comment. What begins with spaces is left as it is.
fn comment(text: &str, out: &mut String) {
    for line in text.lines() {
        let lines = match line.starts_with(' ') {
            true => vec![line.to_owned()],
            false => wrap(line, WIDTH - 2),
        };
        for line in lines {
            *out += &format!("# {line}\n");
        }
    }
}

/// Only names of keys and commands are in back quotes here.
fn plain(text: &str) -> String {
    let mut out = String::new();
    for (at, piece) in text.split('`').enumerate() {
        let is_name = at % 2 == 1 && !piece.contains(['"', '{', '[']);
        out += &if is_name {
            format!("`{piece}`")
        } else {
            piece.into()
        };
    }
    out
}

/// The same value may be written with underscores.
fn same(value: &str) -> String {
    value.replace('_', "")
}
