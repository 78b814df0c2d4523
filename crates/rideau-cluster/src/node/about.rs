//! What a node publishes about itself for other nodes and clients.

use std::fmt;

/// What a node says of itself. It stands in the node's key, and does not change while the
/// key lives.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct NodeAbout {
    /// Where other nodes connect to.
    pub peers: String,
    /// Where any client connects to.
    pub clients: String,
    /// Where clients of Redis Cluster connect to.
    pub straight: String,
    /// Where they connect to within TLS.
    pub straight_tls: String,
    /// Where the node stands.
    pub zone: String,
    /// The release that it runs.
    pub release: String,
    /// The lowest and the highest version of the protocol between nodes that it speaks.
    pub versions: (u32, u32),
    /// The first digits of tickets of this start of the program.
    pub tickets: u32,
    /// The newest format of what is stored that it knows.
    pub format: u32,
}

impl NodeAbout {
    /// Parses a node's key. Missing fields are empty.
    pub fn parse(text: &str) -> Self {
        let field = |name: &str| {
            let fields = text.split(' ').filter_map(|field| field.split_once('='));
            let mut found = fields.filter(|(key, _)| *key == name);
            found.next().map_or("", |(_, value)| value)
        };
        let number = |name| field(name).parse().unwrap_or(0);
        Self {
            peers: field("peers").to_owned(),
            clients: field("clients").to_owned(),
            straight: field("straight").to_owned(),
            straight_tls: field("straight_tls").to_owned(),
            zone: field("zone").to_owned(),
            release: field("release").to_owned(),
            versions: (number("lowest"), number("highest")),
            tickets: number("tickets"),
            format: number("format"),
        }
    }

    /// The field that cannot be written, if any.
    pub(super) fn bad_field(&self) -> Option<&str> {
        let places = [
            &self.peers,
            &self.clients,
            &self.straight,
            &self.straight_tls,
        ];
        let mut fields = places.into_iter().chain([&self.zone, &self.release]);
        let is_bad = |field: &&String| {
            field.len() > 255 || field.contains(|char: char| char.is_whitespace())
        };
        fields.find(is_bad).map(String::as_str)
    }
}

impl fmt::Display for NodeAbout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            peers,
            clients,
            straight,
            straight_tls,
            zone,
            release,
            versions: (lowest, highest),
            tickets,
            format,
        } = self;
        write!(
            f,
            "peers={peers} clients={clients} straight={straight} straight_tls={straight_tls} \
             zone={zone} release={release} lowest={lowest} highest={highest} tickets={tickets} \
             format={format}"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_node_says_is_read_as_it_was_written() {
        let about = NodeAbout {
            peers: "10.0.0.1:7435".to_owned(),
            clients: String::new(),
            straight: "[::1]:7436".to_owned(),
            straight_tls: "[::1]:7437".to_owned(),
            zone: "a=b".to_owned(),
            release: "0.1.0".to_owned(),
            versions: (1, 2),
            tickets: 0xab_cdef,
            format: 2,
        };
        assert_eq!(NodeAbout::parse(&about.to_string()), about);
        assert_eq!(NodeAbout::parse(""), NodeAbout::default());
        assert_eq!(about.bad_field(), None);
        let zone = "a b".to_owned();
        assert_eq!(NodeAbout { zone, ..about }.bad_field(), Some("a b"));
    }
}
