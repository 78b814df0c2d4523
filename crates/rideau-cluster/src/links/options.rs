//! Options of a node's links.

use std::time::Duration;

use rideau_core::cluster::Incarnation;

use super::proof::LinkSecret;
use super::tls::PeerTls;

/// The versions of the protocol between nodes that this release speaks.
pub const LINK_VERSIONS: (u32, u32) = (1, 2);

/// Options of a node's links.
#[derive(Clone, Debug)]
pub struct LinkOptions {
    /// This node. A new incarnation needs new links.
    pub me: Incarnation,
    /// The id of the cluster, drawn when it was made.
    pub cluster: String,
    /// The secret of the cluster.
    pub secret: LinkSecret,
    /// Certificates. With them all links use TLS.
    pub tls: Option<PeerTls>,
    /// Whether the network is private. Without TLS, and if it is not, only loopback
    /// addresses are linked.
    pub is_private: bool,
    /// The lowest and the highest version to speak, usually [`LINK_VERSIONS`].
    pub versions: (u32, u32),
    /// How much may be outstanding.
    pub limits: LinkLimits,
    /// How long things may take.
    pub times: LinkTimes,
}

/// How much may be outstanding. Beyond it an ask is refused at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LinkLimits {
    /// Asks that a link carries at a time, those that are cancelled and not yet confirmed
    /// among them. All nodes must have the same.
    pub asks_max: usize,
    /// Bytes of asks without an answer and of frames that are not yet written, for each
    /// link. All nodes must have the same.
    pub bytes_max: usize,
    /// The same for all links together.
    pub node_bytes_max: usize,
}

/// How long things may take.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LinkTimes {
    /// To connect.
    pub connect: Duration,
    /// To prove itself, TLS included.
    pub handshake: Duration,
    /// Between two pings.
    pub ping: Duration,
    /// A link is dead if a ping is not answered for this long.
    pub dead: Duration,
    /// The longest pause before the next attempt to connect.
    pub redial_max: Duration,
    /// An ask has its own wait, and this.
    pub answer: Duration,
}

impl Default for LinkLimits {
    fn default() -> Self {
        Self {
            asks_max: 1_024,
            bytes_max: 8 << 20,
            node_bytes_max: 64 << 20,
        }
    }
}

impl Default for LinkTimes {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(1),
            handshake: Duration::from_secs(5),
            ping: Duration::from_secs(1),
            dead: Duration::from_secs(3),
            redial_max: Duration::from_secs(1),
            answer: Duration::from_secs(2),
        }
    }
}

impl LinkOptions {
    /// The usual, without TLS: only loopback addresses are linked.
    pub fn new(me: Incarnation, cluster: &str, secret: LinkSecret) -> Self {
        Self {
            me,
            cluster: cluster.to_owned(),
            secret,
            tls: None,
            is_private: false,
            versions: LINK_VERSIONS,
            limits: LinkLimits::default(),
            times: LinkTimes::default(),
        }
    }
}
