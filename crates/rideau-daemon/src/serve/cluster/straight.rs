//! Where the node listens for clients of Redis Cluster.

use std::io;
use std::net::{IpAddr, SocketAddr};

use rideau_apps::{Role, bind};
use rideau_config::ClusterConfig;
use tokio::net::TcpListener;

use super::super::unheard::unheard;

/// The listeners for clients of Redis Cluster, as far as there are any.
#[derive(Default)]
pub(crate) struct StraightListeners {
    pub(crate) plain: Option<TcpListener>,
    pub(crate) tls: Option<TcpListener>,
}

impl StraightListeners {
    pub(super) fn bind(cluster: &ClusterConfig) -> io::Result<Self> {
        let bound = |address: Option<SocketAddr>, key: &str| {
            let bound = address.map(|address| {
                bind::tcp(address, Role::Redis).map_err(|error| unheard(address, key, &error))
            });
            bound.transpose()
        };
        Ok(Self {
            plain: bound(cluster.listen_straight, "cluster.listen_straight")?,
            tls: bound(cluster.listen_straight_tls, "cluster.listen_straight_tls")?,
        })
    }

    /// Where each of them listens, as clients are told: with this host, if the config has one.
    pub(super) fn announced(&self, host: Option<&str>) -> io::Result<[String; 2]> {
        let place = |listener: &Option<TcpListener>| {
            let address = listener.as_ref().map(TcpListener::local_addr);
            let address = address.transpose()?;
            let place = address.map(|address| announced(host, address.ip(), address.port()));
            io::Result::Ok(place.unwrap_or_default())
        };
        Ok([place(&self.plain)?, place(&self.tls)?])
    }
}

/// An address as other nodes and clients are told.
pub(super) fn announced(host: Option<&str>, ip: IpAddr, port: u16) -> String {
    let host = host.map_or_else(|| ip.to_string(), str::to_owned);
    match host.contains(':') {
        true => format!("[{host}]:{port}"),
        false => format!("{host}:{port}"),
    }
}
