//! What is open to whom, by what a config says.

use std::net::SocketAddr;

use super::config::Config;
use super::pool::Member;
use super::server::Listen;

/// Something that is open to others.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Opening {
    /// In a sentence.
    pub text: String,
    /// It is worth a second look.
    pub is_risky: bool,
}

/// What clients may do without a login.
const USED: &str = "use locks, pools, brokers, regulators, ranges and places in applications";

/// All that is open to others than the operator, and who else is the operator. The
/// server runs as root or not.
pub fn openings(config: &Config, is_root: bool) -> Vec<Opening> {
    let mut all = Vec::new();
    if config.users.is_empty() {
        open_to_strangers(config, &mut all);
    } else {
        all.push(Opening {
            text: "Clients log in as users of the config. This account and root control the \
                   server without a login."
                .into(),
            is_risky: false,
        });
    }
    open_to_programs(config, is_root, &mut all);
    all
}

fn open_to_strangers(config: &Config, all: &mut Vec<Opening>) {
    let server = &config.server;
    let tls = server.tls_listen.iter().filter(|_| config.tls.is_some());
    let mut uses: Vec<_> = tls.map(|address| place("tls:", *address)).collect();
    for listen in &server.listen {
        uses.push(match listen {
            Listen::Tcp(address) => place("", *address),
            Listen::Unix(path) => {
                // The users who may connect are those who may write to it.
                let is_closed = server.socket_mode & 0o002 == 0;
                let reach = if is_closed {
                    Reach::Group
                } else {
                    Reach::Machine
                };
                (reach, format!("unix:{}", path.display()))
            }
        });
    }
    let cluster = config.cluster.as_ref();
    let straight = cluster.and_then(|cluster| cluster.listen_straight);
    uses.extend(straight.map(|address| place("", address)));
    let straight_tls = cluster.and_then(|cluster| cluster.listen_straight_tls);
    uses.extend(straight_tls.map(|address| place("tls:", address)));
    let secure = server.tls_admin.filter(|_| config.tls.is_some());
    let mut reads: Vec<_> = secure
        .map(|address| place("https://", address))
        .into_iter()
        .collect();
    reads.extend(server.admin.map(|address| place("http://", address)));
    for reach in [Reach::Group, Reach::Machine, Reach::Network] {
        let at = |places: &[(Reach, String)]| {
            let places = places.iter().filter(|(other, _)| *other == reach);
            let places: Vec<_> = places.map(|(_, place)| place.as_str()).collect();
            (!places.is_empty()).then(|| places.join(" and "))
        };
        let may = match (at(&uses), at(&reads)) {
            (Some(uses), Some(reads)) => {
                format!("{USED} at {uses}, and read numbers at {reads}")
            }
            (Some(uses), None) => format!("{USED} at {uses}"),
            (None, Some(reads)) => format!("use the API and read numbers at {reads}"),
            (None, None) => continue,
        };
        let text = match reach {
            Reach::Group => format!("This account and its group may {may}."),
            Reach::Machine => format!(
                "Any account of this machine may {may}. Only this account and root control the \
                 server."
            ),
            Reach::Network => format!("Every client that can reach this machine may {may}."),
        };
        all.push(Opening {
            text,
            is_risky: reach == Reach::Network,
        });
    }
}

/// What runs on the server's account can do what the server can.
fn open_to_programs(config: &Config, is_root: bool, all: &mut Vec<Opening>) {
    let apps = config.apps.iter().filter(|app| app.run.user.is_none());
    let apps = apps.map(|app| (format!("App `{}`", app.name), "set `user`"));
    let is_program = |member: &Member| matches!(member, Member::Exec(_));
    let pools = config.pools.iter().filter(|pool| is_program(&pool.member));
    let pools = pools.map(|pool| {
        let name = format!("Pool `{}`", pool.name);
        (name, "have the program give up its rights")
    });
    for (name, advice) in apps.chain(pools) {
        let text = match is_root {
            true => format!("{name} runs as root and so controls this server: {advice}."),
            false => format!("{name} runs on the server's account and so controls it."),
        };
        all.push(Opening {
            text,
            is_risky: is_root,
        });
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Reach {
    Group,
    Machine,
    Network,
}

fn place(scheme: &str, address: SocketAddr) -> (Reach, String) {
    let reach = match address.ip().is_loopback() {
        true => Reach::Machine,
        false => Reach::Network,
    };
    (reach, format!("{scheme}{address}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(config: &str, is_root: bool) -> Vec<(bool, String)> {
        let config = Config::parse(config, "test.toml", &|_| None).expect("it is a config");
        let all = openings(&config, is_root).into_iter();
        all.map(|open| (open.is_risky, open.text)).collect()
    }

    #[test]
    fn without_users_the_machine_is_told_apart_from_the_world() {
        let all = texts("", false);
        assert_eq!(all.len(), 1);
        let (is_risky, text) = &all[0];
        assert!(!is_risky && text.starts_with("Any account of this machine may use locks, "));
        assert!(text.contains(
            "at 127.0.0.1:7433 and [::1]:7433, and read numbers at http://127.0.0.1:7434."
        ));
        let open = "[server]\nlisten = [\"0.0.0.0:1\"]\nadmin = \"none\"\n\
                    insecure = \"yes, anyone may\"\n";
        let all = texts(open, false);
        assert_eq!(all.len(), 1);
        assert!(
            all[0].0
                && all[0]
                    .1
                    .starts_with("Every client that can reach this machine may use ")
        );
    }

    #[test]
    fn programs_on_the_account_of_the_server_are_named() {
        let config = "[front]\nlisten = [\"127.0.0.1:3000\"]\n\
                      [app.shop]\nexec = [\"sleep\"]\n\
                      [app.blog]\nexec = [\"sleep\"]\nhosts = [\"a.example\"]\nuser = \"nobody\"\n\
                      [pool.work]\nmember = { exec = [\"sleep\"] }\n";
        let all = texts(config, true);
        let named: Vec<_> = all.iter().filter(|(is_risky, _)| *is_risky).collect();
        assert_eq!(named.len(), 2);
        assert!(named[0].1.starts_with("App `shop` runs as root"));
        assert!(named[1].1.starts_with("Pool `work` runs as root"));
        assert!(texts(config, false).iter().all(|(is_risky, _)| !is_risky));
    }
}
