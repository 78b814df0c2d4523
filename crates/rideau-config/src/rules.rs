//! Rules that hold between the parts of a file.

mod alarms;
mod apps;
mod scopes;

use std::net::SocketAddr;

use rideau_core::acme::AcmeHost;

use super::cluster::ClusterConfig;
use super::config::Config;
use super::front::FrontConfig;
use super::pattern::fits;
use super::section::{At, Notes, Section, suggest_section};
use super::sections::{Named, Sections};
use super::server::{OPEN_TO_ANYONE, Server};
use super::user::OPERATOR;

/// Where the front speaks TLS.
const LISTEN_TLS: &str = "write tls_listen = [\"0.0.0.0:443\"] under [front]";

/// Note every rule that the parts break together.
pub(super) fn check(notes: &Notes<'_>, sections: &Sections<'_>, config: &Config) {
    if let Some(section) = &sections.server {
        let addresses = Server::addresses(section);
        check_exposure(notes, &addresses, config);
        check_sockets(notes, section);
        check_waits(notes, section, config);
    }
    if let Some(section) = &sections.cluster {
        check_exposure(notes, &ClusterConfig::addresses(section), config);
    }
    if let Some(section) = &sections.limits {
        check_input(notes, section, config);
    }
    check_doubles(notes, &addresses(sections));
    check_tls(notes, sections);
    check_certificates(notes, sections, config);
    check_groups(notes, sections);
    check_feeds(notes, sections);
    scopes::check(notes, sections, config);
    check_shadows(notes, &sections.locks);
    check_uids(notes, &sections.users, config);
    check_ways_in(notes, sections);
    check_user_names(notes, &sections.users);
    check_ranges(notes, sections, config);
    check_views(notes, sections, config);
    apps::check(notes, sections, config);
    alarms::check(notes, sections, config);
}

/// Every address of the file, and those that count without it.
fn addresses(sections: &Sections<'_>) -> Vec<(&'static str, SocketAddr, At)> {
    let server = sections.server.as_ref();
    let mut all = server.map_or_else(Server::usual_addresses, Server::addresses);
    let front = sections.front.as_ref();
    all.extend(front.map(FrontConfig::addresses).unwrap_or_default());
    let cluster = sections.cluster.as_ref();
    all.extend(cluster.map(ClusterConfig::addresses).unwrap_or_default());
    all
}

/// A server that others can reach needs users, or the explicit word.
fn check_exposure(notes: &Notes<'_>, addresses: &[(&str, SocketAddr, At)], config: &Config) {
    for (key, address, at) in addresses {
        // Nodes prove to each other that they are of one cluster.
        if address.ip().is_loopback() || *key == ClusterConfig::PEERS {
            continue;
        }
        if config.users.is_empty() && !config.server.is_open_to_anyone {
            let message = format!("{address} can be reached from outside, and there are no users");
            let hint = format!(
                "add [user.NAME], listen at 127.0.0.1, or write insecure = {OPEN_TO_ANYONE:?}"
            );
            notes.error(at.clone(), message, hint);
        } else if !is_tls(key) && !config.users.is_empty() {
            let message = format!("passwords travel to {address} in the clear");
            let hint = match *key {
                "admin" => "use `tls_admin`, or a network you trust",
                ClusterConfig::STRAIGHT => "use `listen_straight_tls`, or a network you trust",
                _ => "use `tls_listen`, or a network you trust",
            };
            notes.warn(at.clone(), message, hint);
        }
    }
}

/// Whether what comes to the address of this key is encrypted.
fn is_tls(key: &str) -> bool {
    key.starts_with("tls_") || key == ClusterConfig::STRAIGHT_TLS
}

fn check_doubles(notes: &Notes<'_>, addresses: &[(&str, SocketAddr, At)]) {
    for (place, (key, address, at)) in addresses.iter().enumerate() {
        let clash = addresses[..place].iter().find(|(_, other, _)| {
            let is_same = other.ip() == address.ip();
            let is_any = other.ip().is_unspecified() || address.ip().is_unspecified();
            other.port() == address.port() && address.port() != 0 && (is_same || is_any)
        });
        if let Some((other, taken, _)) = clash {
            let message = format!(
                "`{key}` has {address}, which `{other}` has already with \
                {taken}"
            );
            notes.error(at.clone(), message, "give it another port");
        }
    }
}

fn check_sockets(notes: &Notes<'_>, section: &Section<'_>) {
    let list = section.list("listen").unwrap_or_default();
    for (place, (text, at)) in list.iter().enumerate() {
        let is_twice = list[..place].iter().any(|(other, _)| other == text);
        if is_twice && text.starts_with("unix:") {
            let message = format!("`listen` has {text} twice");
            notes.error(at.clone(), message, "keep one");
        }
    }
    if list.is_empty() && section.has("listen") && section.list("tls_listen").is_none() {
        let hint = "name an address, or remove the key";
        notes.error(section.at("listen"), "`listen` is empty", hint);
    }
}

fn check_waits(notes: &Notes<'_>, section: &Section<'_>, config: &Config) {
    let server = &config.server;
    if server.wait_default > server.wait_max {
        let is_given = section.has("wait_default");
        let key = if is_given { "wait_default" } else { "wait_max" };
        let message = if is_given {
            "`wait_default` is over `wait_max`"
        } else {
            "`wait_max` is under the default of `wait_default`"
        };
        let hint = "no ask may wait longer than `wait_max`";
        notes.error(section.at(key), message, hint);
    }
    if server.name.chars().any(char::is_whitespace) || server.name.is_empty() {
        let message = format!("{:?} cannot be the name of a server", server.name);
        notes.error(section.at("name"), message, "no spaces, and not empty");
    }
}

/// The longest command has to fit, at least if there is no other.
fn check_input(notes: &Notes<'_>, section: &Section<'_>, config: &Config) {
    let limits = &config.limits;
    if limits.input_max >= limits.frame_max {
        return;
    }
    let is_given = section.has("input_max");
    let key = if is_given { "input_max" } else { "frame_max" };
    let message = if is_given {
        "`input_max` is under `frame_max`"
    } else {
        "`frame_max` is over the default of `input_max`"
    };
    let hint = "all connections share `input_max`, and one command of `frame_max` has to fit";
    notes.error(section.at(key), message, hint);
}

fn check_tls(notes: &Notes<'_>, sections: &Sections<'_>) {
    let wanted = [
        (&sections.server, "tls_listen"),
        (&sections.server, "tls_admin"),
        (&sections.cluster, "listen_straight_tls"),
    ];
    let wanted = wanted.into_iter().filter_map(|(section, key)| {
        let section = section.as_ref()?;
        is_wanted(section, key).then_some((section, key))
    });
    let wanted: Vec<_> = wanted.collect();
    match &sections.tls {
        None => {
            for (section, key) in wanted {
                let message = format!("`{key}` needs a certificate");
                let hint = "add [tls] with `cert` and `key`";
                notes.error(section.at(key), message, hint);
            }
        }
        Some(tls) if wanted.is_empty() => {
            let hint = "write `tls_listen` or `tls_admin` under [server]; the front has \
                        [certificate.NAME]";
            notes.warn(tls.at.clone(), "[tls] is not used", hint);
        }
        Some(_) => (),
    }
}

/// Whether a key has an address. What cannot be read is wanted, too.
fn is_wanted(section: &Section<'_>, key: &str) -> bool {
    let Some(entry) = section.entry(key) else {
        return false;
    };
    let is_some = entry.item.as_array().is_none_or(|all| !all.is_empty());
    is_some && !section.is_word(key, "none")
}

/// The front has certificates of its own: those that know the clients of the Redis protocol
/// would ask the same of every reader.
fn check_certificates(notes: &Notes<'_>, sections: &Sections<'_>, config: &Config) {
    let front = sections.front.as_ref();
    let tls = front.filter(|front| is_wanted(front, "tls_listen"));
    let acme = front.filter(|front| front.has("acme"));
    match (tls, sections.certificates.first()) {
        (Some(front), None) if acme.is_none() => {
            let message = "`tls_listen` needs a certificate";
            let hint = "add [certificate.NAME] with `cert` and `key`, or [front.acme]; [tls] is \
                        not for the front";
            notes.error(front.at("tls_listen"), message, hint);
        }
        (None, Some((name, section))) => {
            let message = format!("[certificate.{name}] is not used");
            notes.warn(section.at.clone(), message, LISTEN_TLS);
        }
        _ => (),
    }
    if let (None, Some(front)) = (tls, acme) {
        notes.warn(front.key_at("acme"), "[front.acme] is not used", LISTEN_TLS);
    } else if let Some(front) = acme {
        check_acme_hosts(notes, front, config);
    }
    let defaults = config.certificates.iter().filter(|one| one.is_default);
    for second in defaults.skip(1) {
        let mut named = sections.certificates.iter();
        if let Some((_, section)) = named.find(|(name, _)| *name == second.name) {
            let message = "another certificate is the default already";
            notes.error(section.at("default"), message, "write it once");
        }
    }
}

/// There are hosts that certificates can be ordered for, and a way to prove that they are ours.
fn check_acme_hosts(notes: &Notes<'_>, front: &Section<'_>, config: &Config) {
    let hosts = config.acme_hosts(|_| false);
    let at = front.key_at("acme");
    // A list without a challenge is accused where it stands.
    let acme = config.front.acme.as_ref();
    let challenges = acme.and_then(|acme| acme.challenges.as_deref());
    let is_blamed = challenges.is_some_and(<[_]>::is_empty);
    // What those with a star lack is said where they stand.
    let is_without_proof =
        |host: &AcmeHost| host.challenges.is_empty() && !host.name.starts_with("*.");
    if hosts.is_empty() {
        let hint = "give an app `hosts`, or write hosts = [\"shop.example\"] under [front.acme]";
        notes.warn(
            at,
            "[front.acme] has no host to order a certificate for",
            hint,
        );
    } else if hosts.iter().all(is_without_proof) && !is_blamed {
        let hint =
            "write listen = [\"0.0.0.0:80\"] or tls_listen = [\"0.0.0.0:443\"] under [front]";
        notes.error(
            at,
            "no host can prove to the authority that it is yours",
            hint,
        );
    }
}

fn check_groups(notes: &Notes<'_>, sections: &Sections<'_>) {
    let mut used = Vec::new();
    for (kind, named) in [("pool", &sections.pools), ("broker", &sections.brokers)] {
        for (_, section) in named {
            let Some(group) = section.text("group") else {
                continue;
            };
            if named.iter().any(|(name, _)| *name == group) {
                let message = format!("the group `{group}` has the name of a {kind}");
                let hint = "give one of them another name";
                notes.error(section.at("group"), message, hint);
            }
            if group.is_empty() || group.contains(|c: char| c.is_whitespace() || "@*\"".contains(c))
            {
                let message = format!("{group:?} cannot be the name of a group");
                let hint = "no spaces, quotes, * or @: TAKE and ASK add the @";
                notes.error(section.at("group"), message, hint);
            }
            used.push(group);
        }
    }
    for (name, section) in &sections.groups {
        if used.iter().all(|group| group != name) {
            let message = format!("no pool and no broker is in the group `{name}`");
            let hint = format!("write group = {name:?} in a pool or a broker");
            notes.warn(section.at.clone(), message, hint);
        }
    }
}

/// The source of a regulator's leads has to exist, and is not the regulator itself.
fn check_feeds(notes: &Notes<'_>, sections: &Sections<'_>) {
    // A regulator that is wrong itself is there all the same.
    let brokers: Vec<_> = sections.brokers.iter().map(|(name, _)| *name).collect();
    let regulators: Vec<_> = sections.regulators.iter().map(|(name, _)| *name).collect();
    for (own, section) in &sections.regulators {
        for (kind, names) in [("broker", &brokers), ("regulator", &regulators)] {
            let Some(name) = section.text(kind) else {
                continue;
            };
            let at = section.at(kind);
            if kind == "regulator" && *own == name {
                notes.error(at, "a regulator cannot learn from itself", "name another");
            } else if !names.contains(&name.as_str()) {
                let hint = suggest_section(kind, &name, names.iter().copied());
                notes.error(at, format!("there is no {kind} `{name}`"), hint);
            }
        }
    }
}

/// The first pattern that fits is used, so one that an earlier one covers never
/// is.
fn check_shadows(notes: &Notes<'_>, locks: &Named<'_>) {
    for (place, (pattern, section)) in locks.iter().enumerate() {
        let earlier = locks[..place]
            .iter()
            .find(|(other, _)| fits(other, pattern));
        if let Some((other, _)) = earlier {
            let message = format!("`{pattern}` is never used: `{other}` above fits all its keys");
            notes.warn(section.at.clone(), message, "put the narrower one first");
        }
    }
}

/// No value belongs to two ranges, and there are not too many.
fn check_ranges(notes: &Notes<'_>, sections: &Sections<'_>, config: &Config) {
    let most = config.limits.ranges_max;
    if config.ranges.len() > most
        && let Some((_, section)) = sections.ranges.get(most)
    {
        let message = format!("there are {} ranges", config.ranges.len());
        let hint = format!("limits.ranges_max is {most}");
        notes.error(section.at.clone(), message, hint);
    }
    let place = |name: &str| sections.ranges.iter().find(|(other, _)| *other == name);
    for (at, range) in config.ranges.iter().enumerate() {
        for (text, span) in range.values.iter().zip(&range.options.spans) {
            let others = config.ranges[..at].iter();
            let mut others = others.flat_map(|other| {
                let values = other.values.iter().zip(&other.options.spans);
                values.map(move |(value, span)| (&other.name, value, span))
            });
            let taken = others.find(|(_, _, other)| !other.interval.is_disjoint(span.interval));
            if let (Some((name, value, _)), Some((_, section))) = (taken, place(&range.name)) {
                let listed = section.list("values").unwrap_or_default();
                let listed = listed.into_iter().find(|(listed, _)| listed == text);
                let at = listed.map_or(section.at("values"), |(_, at)| at);
                let message = format!("{text:?} has values of range `{name}`, in {value:?}");
                notes.error(at, message, "a value belongs to one range only");
            }
        }
    }
}

/// A name is that of a range or of a view, and there are not too many.
fn check_views(notes: &Notes<'_>, sections: &Sections<'_>, config: &Config) {
    let most = config.limits.views_max;
    if let Some((_, section)) = sections.views.get(most) {
        let message = format!("there are {} views", sections.views.len());
        let hint = format!("limits.views_max is {most}");
        notes.error(section.at.clone(), message, hint);
    }
    for (name, section) in &sections.views {
        if sections.ranges.iter().any(|(range, _)| range == name) {
            let message = format!("the view `{name}` has the name of a range");
            let hint = "give one of them another name";
            notes.error(section.at.clone(), message, hint);
        }
    }
}

fn check_uids(notes: &Notes<'_>, sections: &Named<'_>, config: &Config) {
    for (place, user) in config.users.iter().enumerate() {
        let taken = config.users[..place].iter().find_map(|other| {
            let uid = user.uids.iter().find(|uid| other.uids.contains(uid))?;
            Some((&other.name, uid))
        });
        if let Some((other, uid)) = taken {
            let message = format!("the user id {uid} is that of user `{other}` already");
            notes.error(sections[place].1.at("uids"), message, "keep one");
        }
    }
}

/// The operator who is in control without a login has a name as well.
fn check_user_names(notes: &Notes<'_>, sections: &Named<'_>) {
    for (name, section) in sections {
        if *name == OPERATOR {
            let message = format!("`{name}` is the name of the operator, and cannot be a user");
            notes.error(section.at.clone(), message, "give the user another name");
        }
    }
}

/// A user who has no password has to be known by a certificate or a user id.
fn check_ways_in(notes: &Notes<'_>, sections: &Sections<'_>) {
    let by_certificate = sections
        .tls
        .as_ref()
        .is_some_and(|tls| tls.has("client_ca"));
    for (name, section) in &sections.users {
        let ways = ["password", "password_file", "uids"];
        if !by_certificate && ways.iter().all(|way| !section.has(way)) {
            let message = format!("no client can log in as user `{name}`");
            let hint = "give `password_file`, `password` or `uids`, or [tls] a `client_ca`";
            notes.warn(section.at.clone(), message, hint);
        }
    }
}
