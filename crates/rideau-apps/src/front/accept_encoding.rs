//! Which ways to compress a client takes, by its `Accept-Encoding`.

use crate::http1::fields::{is, tokens};

/// A way in which the body of an answer is compressed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Coding {
    Zstd,
    Brotli,
    Gzip,
}

/// How gladly a client takes each, in thousandths; none for what it does not name.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(super) struct Accepted {
    zstd: Option<u16>,
    brotli: Option<u16>,
    gzip: Option<u16>,
    /// An answer as it is.
    identity: Option<u16>,
    /// What it does not name.
    others: Option<u16>,
}

impl Coding {
    /// As it is called in `Content-Encoding`.
    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Zstd => "zstd",
            Self::Brotli => "br",
            Self::Gzip => "gzip",
        }
    }
}

impl Accepted {
    /// Read the values of `Accept-Encoding`. What is malformed in them does not count.
    pub(super) fn read<'a>(values: impl Iterator<Item = &'a [u8]>) -> Self {
        let mut accepted = Self::default();
        for item in values.flat_map(tokens) {
            let mut parts = item.split(|byte| *byte == b';').map(<[u8]>::trim_ascii);
            let name = parts.next().unwrap_or_default();
            let place = match name {
                _ if is(name, "zstd") => &mut accepted.zstd,
                _ if is(name, "br") => &mut accepted.brotli,
                _ if is(name, "gzip") || is(name, "x-gzip") => &mut accepted.gzip,
                _ if is(name, "identity") => &mut accepted.identity,
                b"*" => &mut accepted.others,
                _ => continue,
            };
            *place = Some(quality(parts));
        }
        accepted
    }

    /// The one of these that the client prefers, the first of equals; none if it takes none of
    /// them, or would rather have the answer as it is.
    pub(super) fn best(&self, of: impl IntoIterator<Item = Coding>) -> Option<Coding> {
        let mut best = None;
        let mut least = self.identity.unwrap_or(0).max(1);
        for coding in of {
            let quality = self.quality(coding);
            if quality >= least {
                least = quality + 1;
                best = Some(coding);
            }
        }
        best
    }

    fn quality(&self, coding: Coding) -> u16 {
        let named = match coding {
            Coding::Zstd => self.zstd,
            Coding::Brotli => self.brotli,
            Coding::Gzip => self.gzip,
        };
        named.or(self.others).unwrap_or(0)
    }
}

/// The `q` among the parameters, in thousandths. One that is malformed is none at all.
fn quality<'a>(parameters: impl Iterator<Item = &'a [u8]>) -> u16 {
    for parameter in parameters {
        if let [b'q' | b'Q', b'=', value @ ..] = parameter {
            return thousandths(value).unwrap_or(0);
        }
    }
    1000
}

fn thousandths(value: &[u8]) -> Option<u16> {
    let (first, digits) = match value {
        [first @ (b'0' | b'1')] => (first, &[][..]),
        [first @ (b'0' | b'1'), b'.', digits @ ..] if digits.len() <= 3 => (first, digits),
        _ => return None,
    };
    let mut all = u16::from(first - b'0');
    for at in 0..3 {
        let digit = digits.get(at).copied().unwrap_or(b'0');
        if !digit.is_ascii_digit() {
            return None;
        }
        all = all * 10 + u16::from(digit - b'0');
    }
    (all <= 1000).then_some(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use Coding::{Brotli, Gzip, Zstd};

    fn best(said: &str) -> Option<Coding> {
        Accepted::read([said.as_bytes()].into_iter()).best([Zstd, Brotli, Gzip])
    }

    #[test]
    fn a_client_gets_what_it_prefers_and_the_first_of_equals() {
        for (said, expected) in [
            ("gzip, deflate, br, zstd", Some(Zstd)),
            ("gzip", Some(Gzip)),
            ("X-GZip", Some(Gzip)),
            ("gzip;q=0, zstd", Some(Zstd)),
            ("gzip, zstd;q=0.5", Some(Gzip)),
            ("gzip;q=0.501, zstd;q=0.5, br;q=0.5", Some(Gzip)),
            ("br ; q=1.000 , gzip;Q=0.999", Some(Brotli)),
            ("*", Some(Zstd)),
            ("*;q=0.1, zstd;q=0", Some(Brotli)),
            ("identity, *;q=0", None),
            ("gzip;q=0.5, identity", None),
            ("gzip;q=0.5, identity;q=0.5", Some(Gzip)),
            ("identity;q=0, gzip;q=0.001", Some(Gzip)),
            ("deflate, compress", None),
            ("", None),
            (",,;q=1,", None),
        ] {
            assert_eq!(best(said), expected, "{said}");
        }
        let several = [&b"gzip;q=0.1"[..], b"br"];
        let best = Accepted::read(several.into_iter()).best([Zstd, Gzip, Brotli]);
        assert_eq!(best, Some(Brotli));
    }

    #[test]
    fn a_malformed_quality_is_a_no() {
        for bad in ["2", "1.001", "0.5555", "x", "", "-1", ".5", "0x"] {
            assert_eq!(best(&format!("gzip;q={bad}")), None, "{bad}");
        }
        assert_eq!(best("gzip;level=9;q=0.1"), Some(Gzip));
        assert_eq!(best("gzip;q=1."), Some(Gzip));
        assert_eq!(best("gzip;q=0."), None);
    }
}
