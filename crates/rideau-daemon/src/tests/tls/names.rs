//! The name in a certificate, found without a parser of certificates.

use rcgen::{CertificateParams, DistinguishedName, DnType, DnValue, KeyPair, SanType};
use rideau_core::Rng;
use rideau_testing::certificates::{papers, signer};
use tokio_rustls::rustls::pki_types::CertificateDer;

use crate::tls::common_name;

/// A certificate with this subject, signed by an issuer of another name.
fn with(subject: DistinguishedName) -> CertificateDer<'static> {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.distinguished_name = subject;
    // More than 127 and more than 255 bytes: lengths of two and three bytes.
    let long = format!("https://{}.example", "a".repeat(300)).try_into();
    params.subject_alt_names = vec![SanType::URI(long.unwrap())];
    let signer = signer("the issuer");
    let key = KeyPair::generate().unwrap();
    params.signed_by(&key, &signer).unwrap().der().clone()
}

fn subject(parts: &[(DnType, &str)]) -> DistinguishedName {
    let mut subject = DistinguishedName::new();
    for (kind, text) in parts {
        subject.push(kind.clone(), *text);
    }
    subject
}

#[test]
fn the_name_is_the_subjects_and_not_the_issuers() {
    let certificate = papers("orders", &signer("the issuer"));
    assert_eq!(
        common_name(&certificate.certificate_der().into()).as_deref(),
        Some("orders")
    );
}

#[test]
fn the_name_may_stand_anywhere_in_the_subject() {
    let country = (DnType::CountryName, "SE");
    let unit = (DnType::OrganizationalUnitName, "rideau");
    let name = (DnType::CommonName, "o");
    for parts in [
        vec![name.clone()],
        vec![country.clone(), unit.clone(), name.clone()],
        vec![name, unit, country],
    ] {
        let found = common_name(&with(subject(&parts)));
        assert_eq!(found.as_deref(), Some("o"), "{parts:?}");
    }
}

#[test]
fn long_names_and_names_in_other_letters_are_found() {
    for text in [&"ä".repeat(32)[..], &"n".repeat(64), &"n".repeat(300), ""] {
        let found = common_name(&with(subject(&[(DnType::CommonName, text)])));
        assert_eq!(found.as_deref(), Some(text));
    }
    let mut printable = DistinguishedName::new();
    let text = DnValue::PrintableString("orders".try_into().unwrap());
    printable.push(DnType::CommonName, text);
    assert_eq!(common_name(&with(printable)).as_deref(), Some("orders"));
}

#[test]
fn a_subject_without_a_name_has_none() {
    assert_eq!(common_name(&with(DistinguishedName::new())), None);
    let unit = subject(&[(DnType::OrganizationalUnitName, "orders")]);
    assert_eq!(common_name(&with(unit)), None);
    // The type of a name, where the text of another stands.
    let sly = subject(&[(DnType::OrganizationName, "\u{6}\u{3}U\u{4}\u{3}\u{c}\u{1}x")]);
    assert_eq!(common_name(&with(sly)), None);
}

/// One part of DER.
fn part(kind: u8, bytes: &[u8]) -> Vec<u8> {
    let len = u16::try_from(bytes.len()).unwrap().to_be_bytes();
    [&[kind, 0x82, len[0], len[1]], bytes].concat()
}

/// As much of a certificate as is read, with these names in its subject.
fn by_hand(names: &[(u8, &[u8])], is_one_set: bool) -> CertificateDer<'static> {
    let attribute = |(kind, name): &(u8, &[u8])| {
        let id = part(6, &[0x55, 4, 3]);
        part(0x30, &[id, part(*kind, name)].concat())
    };
    let attributes: Vec<_> = names.iter().map(attribute).collect();
    let subject = if is_one_set {
        part(0x31, &attributes.concat())
    } else {
        let sets: Vec<_> = attributes.iter().map(|one| part(0x31, one)).collect();
        sets.concat()
    };
    let before = [part(0xa0, &[]), part(2, &[1]), part(0x30, &[])].concat();
    let more = [part(0x30, b"issuer"), part(0x30, &[]), part(0x30, &subject)].concat();
    let signed = part(0x30, &[before, more].concat());
    part(0x30, &signed).into()
}

#[test]
fn of_several_names_none_is_believed() {
    let one: (u8, &[u8]) = (0x0c, b"orders");
    let two: (u8, &[u8]) = (0x0c, b"ops");
    assert_eq!(
        common_name(&by_hand(&[one], true)).as_deref(),
        Some("orders")
    );
    for is_one_set in [true, false] {
        assert_eq!(common_name(&by_hand(&[one, two], is_one_set)), None);
        assert_eq!(common_name(&by_hand(&[one, one], is_one_set)), None);
        // Not even if one of them is in letters that we do not read.
        let other: (u8, &[u8]) = (0x1e, b"\0o\0p\0s");
        assert_eq!(common_name(&by_hand(&[other, one], is_one_set)), None);
    }
}

#[test]
fn a_name_that_is_no_text_is_none() {
    for name in [&b"\xff"[..], b"ord\0ers", b"ord\ners"] {
        assert_eq!(
            common_name(&by_hand(&[(0x0c, name)], true)),
            None,
            "{name:?}"
        );
    }
}

#[test]
fn nothing_that_is_not_a_certificate_has_a_name_or_breaks_us() {
    let whole = with(subject(&[(DnType::CommonName, "orders")]));
    for end in 0..whole.len() {
        let cut = CertificateDer::from(whole[..end].to_vec());
        assert_eq!(common_name(&cut), None, "{end}");
    }
    let seed = 7;
    let mut rng = Rng::new(seed);
    let mut draw = |below: usize| usize::try_from(rng.below(below as u64)).unwrap();
    for _ in 0..20_000 {
        let mut bytes = whole.to_vec();
        for _ in 0..=draw(4) {
            let at = draw(bytes.len());
            bytes[at] = u8::try_from(draw(256)).unwrap();
        }
        let _ = common_name(&bytes.into());
        let noise: Vec<u8> = (0..draw(40))
            .map(|_| u8::try_from(draw(256)).unwrap())
            .collect();
        let _ = common_name(&noise.into());
    }
    // Lengths beyond everything.
    for len in [
        &[0x84, 0xff, 0xff, 0xff, 0xff][..],
        &[0x88; 9],
        &[0xff; 200],
        &[0x80],
    ] {
        let bytes = [&[0x30], len].concat();
        assert_eq!(common_name(&bytes.into()), None);
    }
}
