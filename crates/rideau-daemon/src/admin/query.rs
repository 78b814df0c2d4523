//! The query string of an address.

/// The names and values of a query, decoded.
#[derive(Clone, Debug, Default)]
pub(super) struct Query(Vec<(String, String)>);

impl Query {
    pub(super) fn parse(text: &str) -> Self {
        let pairs = text.split('&').filter(|pair| !pair.is_empty());
        let pair = |pair: &str| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decode(name), decode(value))
        };
        Self(pairs.map(pair).collect())
    }

    /// The value of this name, if it was given.
    pub(super) fn find(&self, name: &str) -> Option<&str> {
        let found = self.0.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str())
    }

    /// The first name that is none of these.
    pub(super) fn unknown(&self, known: &[&str]) -> Option<&str> {
        let names = self.0.iter().map(|(name, _)| name.as_str());
        names.into_iter().find(|name| !known.contains(name))
    }
}

/// `%2F` and `+` as they are meant; what is no UTF-8 is replaced.
fn decode(text: &str) -> String {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [byte, tail @ ..] = rest {
        let (decoded, tail) = match (byte, tail) {
            (b'+', tail) => (b' ', tail),
            (b'%', [high, low, after @ ..]) => match (digit(*high), digit(*low)) {
                (Some(high), Some(low)) => (high << 4 | low, after),
                _ => (b'%', tail),
            },
            (byte, tail) => (*byte, tail),
        };
        out.push(decoded);
        rest = tail;
    }
    String::from_utf8_lossy(&out).into_owned()
}

fn digit(byte: u8) -> Option<u8> {
    let digit = char::from(byte).to_digit(16)?;
    Some(digit as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_is_decoded() {
        let query = Query::parse("prefix=tenant%2F42+a&&cursor=&odd=100%&flag");
        assert_eq!(query.find("prefix"), Some("tenant/42 a"));
        assert_eq!(query.find("cursor"), Some(""));
        assert_eq!(query.find("odd"), Some("100%"));
        assert_eq!(query.find("flag"), Some(""));
        assert_eq!(query.find("none"), None);
        assert_eq!(query.unknown(&["prefix", "cursor", "odd"]), Some("flag"));
    }
}
