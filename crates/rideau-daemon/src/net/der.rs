//! What is read of a certificate without a parser of certificates: only of one that was
//! verified, or that we serve ourselves.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio_rustls::rustls::pki_types::CertificateDer;

const INTEGER: u8 = 0x02;
const OCTETS: u8 = 0x04;
const SEQUENCE: u8 = 0x30;
const UTC_TIME: u8 = 0x17;
const LONG_TIME: u8 = 0x18;
const VERSION: u8 = 0xa0;
const EXTENSIONS: u8 = 0xa3;
/// The identifier of the authority's key, and the part of it that is one.
const AUTHORITY_KEY: &[u8] = &[0x55, 0x1d, 0x23];
const KEY_ID: u8 = 0x80;

/// The parts of a certificate.
struct Parts<'a> {
    serial: &'a [u8],
    validity: &'a [u8],
    /// From its subject on.
    rest: &'a [u8],
}

/// What names a certificate to its authority.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct CertificateId<'a> {
    /// The identifier of the authority's key,
    pub(super) authority: &'a [u8],
    /// and the serial number of the certificate.
    pub(super) serial: &'a [u8],
}

/// From when to when it is valid.
pub(super) fn life(certificate: &CertificateDer<'_>) -> Option<(SystemTime, SystemTime)> {
    let mut validity = parts(certificate.as_ref())?.validity;
    let from = time(next(&mut validity)?)?;
    Some((from, time(next(&mut validity)?)?))
}

/// How its authority knows it, if it says how.
pub(super) fn id<'a>(certificate: &'a CertificateDer<'_>) -> Option<CertificateId<'a>> {
    let Parts {
        serial, mut rest, ..
    } = parts(certificate.as_ref())?;
    let mut extensions = loop {
        if let (EXTENSIONS, mut wrapped) = next(&mut rest)? {
            break next(&mut wrapped)?.1;
        }
    };
    loop {
        let mut extension = next(&mut extensions)?.1;
        if next(&mut extension)?.1 != AUTHORITY_KEY {
            continue;
        }
        // A word that it is critical may come before.
        let mut value = loop {
            if let (OCTETS, value) = next(&mut extension)? {
                break value;
            }
        };
        let mut key = next(&mut value)?.1;
        let (kind, authority) = next(&mut key)?;
        return (kind == KEY_ID).then_some(CertificateId { authority, serial });
    }
}

/// Its subject: the kind of value, and its bytes.
pub(super) fn subject<'a>(certificate: &'a CertificateDer<'_>) -> Option<&'a [u8]> {
    let mut rest = parts(certificate.as_ref())?.rest;
    let (kind, subject) = next(&mut rest)?;
    (kind == SEQUENCE).then_some(subject)
}

fn parts(mut whole: &[u8]) -> Option<Parts<'_>> {
    let mut certificate = next(&mut whole)?.1;
    let mut signed = next(&mut certificate)?.1;
    // A version comes first, perhaps.
    if signed.first() == Some(&VERSION) {
        next(&mut signed)?;
    }
    let (kind, serial) = next(&mut signed)?;
    // The algorithm and the issuer.
    next(&mut signed)?;
    next(&mut signed)?;
    let validity = next(&mut signed)?.1;
    (kind == INTEGER).then_some(Parts {
        serial,
        validity,
        rest: signed,
    })
}

/// The next value of DER: its type and its bytes.
pub(super) fn next<'a>(from: &mut &'a [u8]) -> Option<(u8, &'a [u8])> {
    let (&kind, rest) = from.split_first()?;
    let (&first, mut rest) = rest.split_first()?;
    let len = if first < 0x80 {
        usize::from(first)
    } else {
        let (digits, after) = rest.split_at_checked(usize::from(first & 0x7f))?;
        if digits.len() > size_of::<u32>() {
            return None;
        }
        rest = after;
        let number = digits
            .iter()
            .fold(0_u64, |sum, byte| sum << 8 | u64::from(*byte));
        usize::try_from(number).ok()?
    };
    let (value, rest) = rest.split_at_checked(len)?;
    *from = rest;
    Some((kind, value))
}

/// `YYMMDDhhmmssZ`, or with four digits of the year.
fn time((kind, text): (u8, &[u8])) -> Option<SystemTime> {
    let digits = text.strip_suffix(b"Z")?;
    if !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let number = |from: usize, len: usize| {
        let digits = digits.get(from..from + len)?.iter();
        Some(digits.fold(0_u64, |sum, digit| sum * 10 + u64::from(digit - b'0')))
    };
    let (year, rest) = match kind {
        UTC_TIME if digits.len() == 12 => {
            let year = number(0, 2)?;
            (year + if year < 50 { 2000 } else { 1900 }, 2)
        }
        LONG_TIME if digits.len() == 14 => (number(0, 4)?, 4),
        _ => return None,
    };
    let at = |place: usize| number(rest + 2 * place, 2);
    let (month, day) = (at(0)?, at(1)?);
    let (hour, minute, second) = (at(2)?, at(3)?, at(4)?);
    if year < 1970 || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    let seconds = ((days(year, month, day) * 24 + hour) * 60 + minute) * 60 + second;
    UNIX_EPOCH.checked_add(Duration::from_secs(seconds))
}

/// Days from 1970 on.
fn days(year: u64, month: u64, day: u64) -> u64 {
    // Years that begin in March have their odd day at the end.
    let (year, month) = match month {
        1 | 2 => (year - 1, month + 9),
        _ => (year, month - 3),
    };
    let leap = year / 4 - year / 100 + year / 400;
    year * 365 + leap + (month * 153 + 2) / 5 + day - 1 - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read() {
        let seconds = |kind, text: &[u8]| {
            let at = time((kind, text))?;
            Some(at.duration_since(UNIX_EPOCH).unwrap().as_secs())
        };
        for (kind, text, expected) in [
            (UTC_TIME, &b"700101000000Z"[..], Some(0)),
            (UTC_TIME, b"000229120000Z", Some(951_825_600)),
            (UTC_TIME, b"261119200000Z", Some(1_795_118_400)),
            (LONG_TIME, b"20500101000000Z", Some(2_524_608_000)),
            (LONG_TIME, b"99991231235959Z", Some(253_402_300_799)),
            (UTC_TIME, b"600101000000Z", None),
            (UTC_TIME, b"261119200000", None),
            (UTC_TIME, b"2611192000Z", None),
            (UTC_TIME, b"26111920000xZ", None),
            (LONG_TIME, b"20261319200000Z", None),
            (SEQUENCE, b"261119200000Z", None),
        ] {
            assert_eq!(seconds(kind, text), expected, "{text:?}");
        }
    }

    #[test]
    fn the_authority_and_the_serial_name_a_certificate() {
        let signer = rideau_testing::certificates::signer("an authority");
        let own = rideau_testing::certificates::papers("shop", &signer);
        let own = CertificateDer::from(own.certificate_der());
        let (from, until) = life(&own).unwrap();
        assert!(from < until);
        // One without the identifier of its authority has no name.
        let named = id(&own).map(|id| id.serial.len());
        assert!(named.is_none_or(|len| len > 0));
        for end in 0..own.len() {
            let cut = CertificateDer::from(own[..end].to_vec());
            assert_eq!((life(&cut), id(&cut)), (None, None));
        }
    }
}
