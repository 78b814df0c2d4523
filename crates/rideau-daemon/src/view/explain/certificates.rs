//! Explains a certificate of the front, and why none is ordered.

use std::fmt::Write;
use std::time::Duration;

use rideau_config::human::count;
use rideau_core::acme::AcmeWait;

use super::{Explained, sentence, span};
use crate::state::daemon::Daemon;
use crate::state::viewer::Viewer;
use crate::view::facts::CertificateNow;

const DAY: u64 = 24 * 60 * 60;

/// A certificate, by its name in the config or by a host that it is ordered for.
pub(super) fn certificate(daemon: &Daemon, name: &str, viewer: Viewer<'_>) -> Option<Explained> {
    // Their names are hosts of apps.
    viewer.sees_all_names().then_some(())?;
    let all = CertificateNow::all(&daemon.certificates);
    let fault = daemon.certificates.rows().fault;
    let Some(it) = all.iter().find(|one| one.name() == name) else {
        let is_wanted = daemon.config.load().acme_hosts(|_| false);
        let is_wanted = is_wanted.iter().any(|host| host.name == name);
        let fault = fault.filter(|_| is_wanted)?;
        return Some(Explained {
            kind: "certificate",
            name: name.into(),
            text: format!("No certificate is ordered for {name}: {fault}\n"),
            facts: vec![("state", "missing".into()), ("fault", fault.into())],
        });
    };
    let mut text = String::new();
    let whose = match it.is_ordered() {
        true => "was ordered",
        false => "is in files",
    };
    match it.expires() {
        None => {
            let _ = writeln!(text, "There is no certificate for {name}.");
        }
        Some(left) if left.is_zero() => {
            let _ = writeln!(text, "The certificate {name} {whose}, and its time is up.");
        }
        Some(left) => {
            let (hosts, left) = (it.hosts().join(", "), long(left));
            let _ = writeln!(
                text,
                "The certificate {name} {whose}; it is for {hosts}, and valid for {left}."
            );
        }
    }
    if let Some(fault) = it.fault() {
        let _ = writeln!(text, "What went wrong last: {}", sentence(fault));
    }
    if let Some(challenge) = it.challenge() {
        let what = match it.state() {
            "checking" => "It is looked just now whether this server finds itself",
            _ => "One is ordered just now",
        };
        let _ = writeln!(text, "{what}, by {challenge}.");
    }
    if let Some((left, why)) = it.waits() {
        let _ = writeln!(text, "{}", said(why, &long(left)));
    }
    if it.is_ordered()
        && it.order().is_none()
        && let Some(fault) = &fault
    {
        let _ = writeln!(text, "It is not renewed: {}", sentence(fault));
    }
    Some(Explained {
        kind: "certificate",
        name: name.into(),
        text,
        facts: vec![
            ("state", it.state().into()),
            (
                "source",
                if it.is_ordered() { "acme" } else { "file" }.into(),
            ),
            ("expires_us", it.expires().into()),
            ("next_us", it.waits().map(|(left, _)| left).into()),
            ("fault", it.fault().map(str::to_owned).into()),
        ],
    })
}

/// A time that may be long.
fn long(left: Duration) -> String {
    match left.as_secs() / DAY {
        0 | 1 => span(left),
        days => count(usize::try_from(days).unwrap_or(usize::MAX), "day"),
    }
}

fn said(why: AcmeWait, left: &str) -> String {
    const MENDED: &str = "After you have mended it, a reload of the config tries at once";
    match why {
        AcmeWait::Good => format!("It is renewed in {left}."),
        AcmeWait::Suggested => format!("It is renewed in {left}, as the authority wishes."),
        AcmeWait::Turn => "It is its turn: certificates are ordered one after the other.".into(),
        AcmeWait::NotFound => {
            format!("Nothing is ordered until it finds itself. It looks again in {left}. {MENDED}.")
        }
        AcmeWait::Unreached => format!("It tries again in {left}. {MENDED}."),
        AcmeWait::BackedOff => format!("The next order is made in {left}. {MENDED}."),
        AcmeWait::ToldLater => format!("The authority said to come again in {left}."),
        AcmeWait::FailuresMax => format!(
            "Three orders have failed within an hour, and authorities allow little more: the next \
             one is made in {left}."
        ),
        AcmeWait::FirstOrdersMax => format!(
            "Ten first orders were made within three hours, which is the most: the next one is \
             made in {left}."
        ),
        AcmeWait::IssuedMax => format!(
            "It got four certificates in a short time, and authorities allow little more: the \
             next one is ordered in {left}."
        ),
    }
}
