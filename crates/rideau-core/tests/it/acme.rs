//! When certificates are ordered. The unit of time in these scripts is a minute.

use std::time::Duration;

use rideau_core::acme::{
    Acme, AcmeChallenge, AcmeEffect, AcmeHost, AcmePhase, CertificateLife, OrderFailure,
};
use rideau_core::{Instant, Machine};

use crate::script::{self, Stage};

const MINUTE: u64 = 60_000_000_000;
/// How far the clock of a script is ahead of its milliseconds.
const AHEAD: u64 = MINUTE / 1_000_000;

struct Authority {
    acme: Acme,
    effects: Vec<AcmeEffect>,
}

fn check(script: &str) {
    let mut authority = Authority {
        acme: Acme::new(Vec::new(), 1),
        effects: Vec::new(),
    };
    script::check(&mut authority, script);
}

fn minute(word: &str) -> Instant {
    Instant::from_nanos(script::millis(word).as_nanos() * AHEAD)
}

/// `10..20`
fn span(words: &str) -> (Instant, Instant) {
    let (from, until) = words.split_once("..").unwrap();
    (minute(from), minute(until))
}

fn life(words: &str) -> CertificateLife {
    let (from, until) = span(words);
    CertificateLife { from, until }
}

fn challenge(word: &str) -> AcmeChallenge {
    match word {
        "tls" => AcmeChallenge::TlsAlpn,
        "http" => AcmeChallenge::Http,
        "dns" => AcmeChallenge::Dns,
        _ => panic!("no challenge: {word}"),
    }
}

fn word(challenge: AcmeChallenge) -> &'static str {
    match challenge {
        AcmeChallenge::TlsAlpn => "tls",
        AcmeChallenge::Http => "http",
        AcmeChallenge::Dns => "dns",
    }
}

/// `a=tls+http`
fn host(word: &str) -> AcmeHost {
    let (name, challenges) = word.split_once('=').unwrap();
    AcmeHost {
        name: name.into(),
        challenges: challenges.split('+').map(challenge).collect(),
    }
}

fn minutes(at: Instant) -> String {
    script::in_millis(i128::from(at.as_nanos() / AHEAD))
}

impl Stage for Authority {
    fn act(&mut self, words: &[&str], now: Instant) -> Vec<String> {
        let now = Instant::from_nanos(now.as_nanos() * AHEAD);
        let Self { acme, effects } = self;
        match *words {
            ["hosts", ref hosts @ ..] => {
                acme.reconfigure(hosts.iter().copied().map(host).collect(), now);
            }
            ["hold", name, words] => acme.hold(name, Some(life(words)), now),
            ["lose", name] => acme.hold(name, None, now),
            ["retry"] => acme.retry(),
            ["again", ref hosts @ ..] => {
                *acme = Acme::new(acme.records().to_vec(), 1);
                acme.reconfigure(hosts.iter().copied().map(host).collect(), now);
            }
            ["found", name] => acme.checked(name, true, now, effects),
            ["lost", name] => acme.checked(name, false, now, effects),
            ["issued", name, words] => acme.issued(name, life(words), now, effects),
            ["failed", name] => acme.failed(name, OrderFailure::Refused, None, now, effects),
            ["failed", name, "after", after] => {
                let after = Duration::from_nanos(minute(after).as_nanos());
                acme.failed(name, OrderFailure::Refused, Some(after), now, effects);
            }
            ["unreached", name] => acme.failed(name, OrderFailure::Unreached, None, now, effects),
            ["renewal", name] => acme.renewal(name, None, None, now, effects),
            ["renewal", name, words] => {
                acme.renewal(name, Some(span(words)), None, now, effects);
            }
            ["wait"] => acme.advance(now, effects),
            _ => panic!("no input: {words:?}"),
        }
        effects
            .drain(..)
            .map(|effect| match effect {
                AcmeEffect::Check { host, challenge } => {
                    format!("check {host} {}", word(challenge))
                }
                AcmeEffect::Order {
                    host,
                    challenge,
                    replaces,
                } => {
                    let how = if replaces { "replace" } else { "order" };
                    format!("{how} {host} {}", word(challenge))
                }
                AcmeEffect::AskRenewal { host } => format!("ask {host}"),
            })
            .collect()
    }

    fn look(&self, name: &str) -> String {
        match name {
            "next" => self.acme.deadline().map_or("never".into(), minutes),
            "records" => self.acme.records().len().to_string(),
            _ => match self.acme.state(name).unwrap().phase {
                AcmePhase::Waiting(at, why) => format!("{why:?}@{}", minutes(at)),
                AcmePhase::Checking(challenge) => format!("checks-{}", word(challenge)),
                AcmePhase::Ordering(challenge) => format!("orders-{}", word(challenge)),
            },
        }
    }
}

#[test]
fn a_host_that_finds_itself_is_ordered_for() {
    check(
        "
        10 hosts a=tls+http          | next 0 a Turn@0
        10 wait      -> check a tls  | next never a checks-tls
        11 found a   -> order a tls  | a orders-tls records 1
        12 issued a 0..129600 -> ask a | a Good@86400 next 86400
        12 renewal a                 | next 372
        372 wait     -> ask a
        373 renewal a
        ",
    );
}

#[test]
fn nothing_is_ordered_for_a_host_that_does_not_find_itself() {
    check(
        "
        0 hosts a=tls+http
        0 wait       -> check a tls
        0 lost a     -> check a http
        0 lost a                     | a NotFound@1 records 0
        1 wait       -> check a tls
        1 lost a     -> check a http
        1 found a    -> order a http | records 1
        2 unreached a                | a Unreached@4 records 0
        4 wait       -> check a tls
        4 lost a     -> check a http
        4 lost a                     | a NotFound@8
        8 wait       -> check a tls
        8 lost a     -> check a http
        8 lost a                     | a NotFound@16
        ",
    );
}

#[test]
fn a_record_of_dns_is_not_looked_for() {
    check(
        "
        0 hosts *.a=dns
        0 wait       -> order *.a dns
        1 issued *.a 0..100 -> ask *.a
        ",
    );
}

#[test]
fn the_other_challenge_is_tried_at_once_and_then_there_is_a_pause() {
    check(
        "
        0 hosts a=tls+http
        0 wait       -> check a tls
        0 found a    -> order a tls
        0 failed a   -> check a http
        0 found a    -> order a http
        1 failed a                     | a BackedOff@61 next 61
        60 wait
        61 wait      -> check a tls
        61 found a   -> order a tls
        62 failed a                    | a BackedOff@182
        182 wait     -> check a http
        182 found a  -> order a http
        183 failed a                   | a BackedOff@423
        ",
    );
}

#[test]
fn pauses_end_with_the_first_certificate_and_are_a_day_at_most() {
    check(
        "
        0 hosts a=http
        0 hold a 0..90
        0 wait         -> ask a
        45 wait        -> order a http
        45 failed a                    | a BackedOff@105
        105 wait       -> order a http
        105 failed a                   | a BackedOff@225
        225 wait       -> order a http
        225 failed a                   | a BackedOff@465
        465 wait       -> order a http
        465 failed a                   | a BackedOff@945
        945 wait       -> order a http
        945 failed a                   | a BackedOff@1905
        1905 wait      -> order a http
        1905 failed a                  | a BackedOff@3345
        3345 wait      -> order a http
        3345 issued a 3345..132945     | a Good@89745
        ",
    );
}

#[test]
fn three_failures_in_an_hour_are_the_most_whatever_an_operator_does() {
    check(
        "
        0 hosts a=tls+http
        0 wait       -> check a tls
        0 found a    -> order a tls
        1 failed a   -> check a http
        1 found a    -> order a http
        2 failed a                     | a BackedOff@62
        3 retry                        | a Turn@0
        3 wait       -> check a tls
        3 found a    -> order a tls
        4 failed a                     | a FailuresMax@61
        5 retry                        | a FailuresMax@61
        61 wait      -> check a tls
        ",
    );
}

#[test]
fn what_failed_is_known_after_a_restart() {
    check(
        "
        0 hosts a=http
        0 wait       -> check a http
        0 found a    -> order a http
        1 failed a                     | a BackedOff@61
        2 again a=http                 | a BackedOff@61
        61 wait      -> check a http
        61 found a   -> order a http
        62 failed a                    | a BackedOff@182 records 4
        63 again a=http                | a BackedOff@182
        63 again b=http a=http         | b Turn@0
        63 wait      -> check b http
        ",
    );
}

#[test]
fn ten_hosts_get_their_first_order_in_three_hours() {
    check(
        "
        0 hosts a=dns b=dns c=dns d=dns e=dns f=dns g=dns h=dns i=dns j=dns k=dns
        0 wait             -> order a dns
        1 issued a 0..9999 -> ask a, order b dns
        2 issued b 0..9999 -> order c dns
        3 issued c 0..9999 -> order d dns
        4 issued d 0..9999 -> order e dns
        5 issued e 0..9999 -> order f dns
        6 issued f 0..9999 -> order g dns
        7 issued g 0..9999 -> order h dns
        8 issued h 0..9999 -> order i dns
        9 issued i 0..9999 -> order j dns
        10 issued j 0..9999             | k FirstOrdersMax@180
        11 renewal a -> ask b
        180 wait     -> order k dns
        ",
    );
}

#[test]
fn four_certificates_in_a_week_are_the_most_for_a_host() {
    check(
        "
        0 hosts a=dns
        0 wait                -> order a dns
        0 issued a 0..20      -> ask a
        10 wait               -> order a dns
        10 issued a 10..30              | a Good@20
        20 wait               -> order a dns
        20 issued a 20..40
        30 wait               -> order a dns
        30 issued a 30..50              | a IssuedMax@10080
        10080 wait            -> order a dns
        ",
    );
}

#[test]
fn the_authority_says_when_to_renew() {
    check(
        "
        0 hosts a=http
        0 hold a 0..129600
        0 wait                  -> ask a
        0 renewal a 600..600             | a Suggested@600 next 360
        360 wait                -> ask a
        360 renewal a 600..600           | a Suggested@600
        600 wait                -> replace a http
        600 issued a 600..130200 -> ask a | a Good@87000
        600 renewal a 0..1      -> replace a http
        601 issued a 601..130201 -> ask a
        601 renewal a 0..1      -> replace a http
        602 issued a 602..130202 -> ask a
        602 renewal a 0..1      -> replace a http
        603 issued a 603..130203 -> ask a
        603 renewal a 0..1               | a IssuedMax@2040
        900 wait
        2040 wait               -> ask a, replace a http
        ",
    );
}

#[test]
fn a_window_after_the_end_or_in_disorder_is_not_believed() {
    check(
        "
        0 hosts a=http
        0 hold a 0..129600
        0 wait                  -> ask a
        0 renewal a 129600..129700       | a Good@86400
        360 wait                -> ask a
        360 renewal a 20..10             | a Good@86400
        ",
    );
}

#[test]
fn the_authority_may_say_to_come_later_whatever_an_operator_does() {
    check(
        "
        0 hosts a=dns
        0 wait                  -> order a dns
        0 failed a after 600             | a ToldLater@600
        1 retry                          | a ToldLater@600
        600 wait                -> order a dns
        600 failed a after 1             | a BackedOff@660
        ",
    );
}

#[test]
fn a_host_that_comes_or_goes_changes_nothing_for_the_others() {
    check(
        "
        0 hosts a=dns b=dns
        0 wait                  -> order a dns
        1 hosts b=dns
        2 failed a              -> order b dns
        3 hosts a=dns b=dns              | b orders-dns a BackedOff@62
        4 issued b 0..100       -> ask b
        5 lose b
        6 wait                  -> order b dns
        ",
    );
}
