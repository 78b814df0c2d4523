//! Several nodes: which cluster a node is of, and how it reaches etcd and the others.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use super::key::Key;
use super::keyed::Keyed;
use super::kinds::{Answer, List, Maybe, Number, Positive, Size, Span, Text, Written};
use super::section::{At, Made, Section};
use super::server::{File, SecretFile, address};
use super::table::section;

section! {
    /// Several nodes that share what has a name, with etcd between them.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub struct ClusterConfig {
        /// The name of the cluster; its keys in etcd are below this name.
        name: String = String::new(), Text, Restart, usual = "required",
            sample = r#""shop""#;
        /// The name of this node; no other node of the cluster may have it.
        node: Option<String> = None, Maybe<Text>, Restart, sample = r#""${RIDEAU_NODE:-n1}""#,
            usual = "the name of the host";
        /// The addresses of etcd.
        etcd: Vec<EtcdUrl> = Vec::new(), List, Restart, usual = "required",
            sample = r#"["https://10.0.0.1:2379", "https://10.0.0.2:2379"]"#;
        /// The user that the node logs in to etcd as; needs `etcd_password_file`.
        etcd_user: Option<String> = None, Maybe<Text>, Restart, sample = r#""rideau""#;
        /// A file with that user's password.
        etcd_password_file: Option<PathBuf> = None, Maybe<SecretFile>, Restart,
            sample = r#""/run/secrets/etcd-password""#;
        /// The certificates that signed those of etcd, PEM.
        etcd_ca: Option<PathBuf> = None, Maybe<File>, Restart,
            sample = r#""/etc/rideau/etcd/ca.pem""#, usual = "those of the system";
        /// The node's certificate for etcd, PEM; needs `etcd_key`.
        etcd_cert: Option<PathBuf> = None, Maybe<File>, Restart,
            sample = r#""/etc/rideau/etcd/node.pem""#;
        /// Its key, PEM.
        etcd_key: Option<PathBuf> = None, Maybe<SecretFile>, Restart,
            sample = r#""/etc/rideau/etcd/node.key""#;
        /// How much etcd may keep: its `--quota-backend-bytes`.
        etcd_quota: u64 = 2 << 30, Size, Restart, bounds = (1 << 20, 64 << 30);
        /// The address where the node listens for other nodes.
        listen: SocketAddr = loopback(PEER_PORT), Text, Restart;
        /// The address where the node listens for clients of Redis Cluster.
        listen_straight: Option<SocketAddr> = None, Maybe<Text>, Restart,
            sample = r#""127.0.0.1:7436""#, usual = "none";
        /// The same within TLS, with the certificate of `[tls]`.
        listen_straight_tls: Option<SocketAddr> = None, Maybe<Text>, Restart,
            sample = r#""127.0.0.1:7437""#, usual = "none";
        /// The address that other nodes and clients are told.
        announce: Option<String> = None, Maybe<Text>, Restart, sample = r#""10.0.0.11""#,
            usual = "that of `listen`";
        /// A file with at least 32 secret bytes, the same on all nodes of the cluster.
        secret_file: PathBuf = PathBuf::new(), SecretFile, Restart, usual = "required",
            sample = r#""/run/secrets/rideau-cluster""#;
        /// The certificates that signed those of the nodes, PEM; needs `cert` and `key`.
        ca: Option<PathBuf> = None, Maybe<File>, Restart, sample = r#""/etc/rideau/nodes/ca.pem""#;
        /// This node's certificate, PEM, which has the name of the node as a DNS name.
        cert: Option<PathBuf> = None, Maybe<File>, Restart,
            sample = r#""/etc/rideau/nodes/n1.pem""#;
        /// Its key, PEM.
        key: Option<PathBuf> = None, Maybe<SecretFile>, Restart,
            sample = r#""/etc/rideau/nodes/n1.key""#;
        /// `true`: nodes speak without TLS beyond this machine, too, because the network is
        /// private.
        is_plain: bool = false, Answer, Restart, name = "plain";
        /// Into how many partitions values and keys are divided. It cannot be changed later.
        partitions: u32 = 64, Number, Restart, bounds = (16, 1_024);
        /// A node is dead when etcd has not heard from it for this long.
        lease: Duration = Duration::from_secs(5), Positive, Restart;
        /// How long an ask waits for a partition without an owner.
        patience: Duration = Duration::from_secs(1), Span, Restart;
        /// For how long nothing that the death of a node frees is granted: for holders that do
        /// not ask `SURE` and things that do not check fences.
        rest: Duration = Duration::ZERO, Span, Restart;
        /// The weight of this node: how large its share of the partitions is.
        weight: u32 = 1, Number, Restart, bounds = (1, 1_000);
    }
}

/// The address of an etcd.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EtcdUrl(String);

const PEER_PORT: u16 = 7435;
/// No lease is shorter or longer.
const LEASE: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(60));

impl ClusterConfig {
    /// The key of the address for other nodes.
    pub(super) const PEERS: &str = "cluster.listen";
    /// The key of the address for clients of Redis Cluster.
    pub(super) const STRAIGHT: &str = "cluster.listen_straight";
    /// The same within TLS.
    pub(super) const STRAIGHT_TLS: &str = "cluster.listen_straight_tls";

    pub(super) fn read(section: &Section<'_>) -> Option<Self> {
        let mut cluster = Self::default();
        cluster.read_keys(section);
        let needed = [
            ("name", "\"shop\""),
            ("etcd", "[\"http://127.0.0.1:2379\"]"),
            ("secret_file", "\"/run/secrets/rideau-cluster\""),
        ];
        let mut is_whole = true;
        for (key, sample) in needed.iter().filter(|(key, _)| !section.has(key)) {
            let message = format!("[cluster] has no `{key}`");
            let hint = format!("write {key} = {sample}");
            section.notes.error(section.at.clone(), message, hint);
            is_whole = false;
        }
        for (one, other) in [
            ("etcd_user", "etcd_password_file"),
            ("etcd_cert", "etcd_key"),
            ("ca", "cert"),
            ("cert", "key"),
            ("key", "ca"),
        ] {
            cluster.check_pair(section, one, other);
            cluster.check_pair(section, other, one);
        }
        cluster.check_values(section);
        is_whole.then_some(cluster)
    }

    fn check_pair(&self, section: &Section<'_>, one: &str, other: &str) {
        if section.has(one) && !section.has(other) {
            let message = format!("[cluster] has `{one}` and no `{other}`");
            let hint = format!("write {other} = \"/path/to/file\"");
            section.notes.error(section.at(one), message, hint);
        }
    }

    fn check_values(&self, section: &Section<'_>) {
        let notes = section.notes;
        let names = [("name", Some(&self.name)), ("node", self.node.as_ref())];
        for (key, name) in names {
            let is_part = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
            let is_name =
                |name: &String| (1..=64).contains(&name.len()) && name.chars().all(is_part);
            if section.has(key) && !name.is_some_and(is_name) {
                let message = format!("`{key}` has to be 1 to 64 letters, digits, '.', '_' or '-'");
                notes.error(section.at(key), message, format!("write {key} = \"one\""));
            }
        }
        if section.list("etcd").is_some_and(|all| all.is_empty()) {
            let hint = "write etcd = [\"http://127.0.0.1:2379\"]";
            notes.error(section.at("etcd"), "`etcd` names no etcd", hint);
        }
        if !self.partitions.is_power_of_two() {
            let near = self.partitions.next_power_of_two().min(1_024);
            let message = format!("{} partitions are not a power of two", self.partitions);
            notes.error(section.at("partitions"), message, format!("write {near}"));
        }
        let is_open = !self.listen.ip().is_loopback() && !self.is_plain;
        if is_open && !["ca", "cert", "key"].iter().any(|key| section.has(key)) {
            let message = "beyond this machine, nodes speak TLS with each other";
            let hint = "name ca, cert and key, or on a network that is private to nodes write \
                        plain = true";
            notes.error(section.at("listen"), message, hint);
        }
        if !(LEASE.0..=LEASE.1).contains(&self.lease) {
            let message = "a lease has to be between 2 and 60 seconds";
            notes.error(section.at("lease"), message, "write \"5s\"");
        }
    }

    /// Every address of the section, with its key and place.
    pub(super) fn addresses(section: &Section<'_>) -> Vec<(&'static str, SocketAddr, At)> {
        let written = |(name, key): (&'static str, &str)| {
            let text = section.text(key)?;
            Some((name, address(&text)?, section.at(key)))
        };
        let keys = [
            (Self::PEERS, "listen"),
            (Self::STRAIGHT, "listen_straight"),
            (Self::STRAIGHT_TLS, "listen_straight_tls"),
        ];
        let mut all: Vec<_> = keys.into_iter().filter_map(written).collect();
        if !section.has("listen") {
            all.push((Self::PEERS, loopback(PEER_PORT), section.at.clone()));
        }
        all
    }
}

impl EtcdUrl {
    /// The URL.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Written for EtcdUrl {
    fn make(text: &str, _: &Key) -> Made<Self> {
        let rest = text
            .strip_prefix("http://")
            .or_else(|| text.strip_prefix("https://"));
        match rest {
            Some(rest) if !rest.is_empty() && !rest.contains(['/', ' ', '@']) => {
                Ok(Self(text.into()))
            }
            _ => Err((
                format!("{text:?} is not an address of etcd"),
                "write it as \"https://10.0.0.1:2379\"".into(),
            )),
        }
    }

    fn word(&self) -> String {
        self.0.clone()
    }
}

const fn loopback(port: u16) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port)
}
