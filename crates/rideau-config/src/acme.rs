//! Certificates that the front orders by itself, from an authority that speaks ACME.

use std::net::IpAddr;
use std::path::PathBuf;

use rideau_core::acme::AcmeChallenge;

use super::hosts::Hosts;
use super::key::{Form, Key};
use super::keyed::Keyed;
use super::kinds::{Answer, AutoWord, Instead, Kind, List, Maybe, Or, Text, Written};
use super::near::suggest_word;
use super::section::{Made, Section};
use super::server::{File, Folder};
use super::shown::Rows;
use super::table::section;

section! {
    /// Certificates that the front orders by itself.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub struct AcmeConfig {
        /// The authority: `"letsencrypt"`, `"letsencrypt-staging"` for trials, whose certificates
        /// browsers do not believe, or the address of its ACME directory.
        directory: AcmeDirectory = AcmeDirectory::LetsEncrypt, Text, Live;
        /// Your yes to the terms of the authority; without it nothing is ordered.
        agree: bool = false, Answer, Live, sample = "true";
        /// A mail address that the authority may write to.
        contact: Option<MailAddress> = None, Maybe<Text>, Live, sample = r#""ops@shop.example""#;
        /// `"apps"`: each host of the apps and routes that has no `*` and no `[certificate.NAME]`
        /// gets a certificate; or a list of hosts.
        hosts: Option<Vec<String>> = None, Or<Hosts, AppsWord>, Live;
        /// How a host proves to be ours: `"tls-alpn-01"` at port 443, `"http-01"` at port 80,
        /// `"dns-01"` by `dns_command`. The first is tried first, and the next after it failed.
        /// `"auto"`: `"tls-alpn-01"` first if `tls_listen` has port 443, else `"http-01"`; hosts
        /// with a `*` by `"dns-01"`.
        challenges: Option<Vec<AcmeChallenge>> = None, Or<List, AutoWord>, Live;
        /// A program that puts TXT records into DNS, and takes them away. It is run with `set NAME
        /// VALUE` or `clear NAME VALUE` behind these words, and has to end with 0 within 60 s, when
        /// the name servers have the record.
        dns_command: Vec<String> = Vec::new(), List, Live,
            sample = r#"["/usr/local/bin/dns-record"]"#;
        /// Before the first order for a host the front looks whether it reaches itself by that
        /// name. `false` is for servers that cannot, but clients can.
        self_check: bool = true, Answer, Live;
        /// The folder of the account, the certificates and their keys.
        path: Option<PathBuf> = None, Maybe<Folder>, Restart, usual = "`acme` in the folder of \
            `store.path`", sample = r#""/var/lib/rideau/acme""#;
        /// Trusted signers of the authority's own certificate, PEM, instead of those of the
        /// system: for an authority within your network.
        ca: Option<PathBuf> = None, Maybe<File>, Live;
    }
}

/// Where certificates are ordered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AcmeDirectory {
    /// At Let's Encrypt.
    LetsEncrypt,
    /// Where Let's Encrypt lets one try things.
    LetsEncryptStaging,
    /// The address of another.
    Url(String),
}

/// The address of a mailbox.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MailAddress(String);

/// The hosts of apps.
struct AppsWord;
/// The table of ACME.
pub(super) struct AcmeTable;

const LETS_ENCRYPT: &str = "letsencrypt";
const STAGING: &str = "letsencrypt-staging";
const CHALLENGES: [(&str, AcmeChallenge); 3] = [
    ("tls-alpn-01", AcmeChallenge::TlsAlpn),
    ("http-01", AcmeChallenge::Http),
    ("dns-01", AcmeChallenge::Dns),
];

impl Instead for AppsWord {
    const WORD: &'static str = "apps";
}

impl AcmeDirectory {
    /// The address of the directory.
    pub fn url(&self) -> &str {
        match self {
            Self::LetsEncrypt => "https://acme-v02.api.letsencrypt.org/directory",
            Self::LetsEncryptStaging => "https://acme-staging-v02.api.letsencrypt.org/directory",
            Self::Url(url) => url,
        }
    }
}

impl Written for AcmeDirectory {
    fn make(text: &str, _: &Key) -> Made<Self> {
        match text {
            LETS_ENCRYPT => Ok(Self::LetsEncrypt),
            STAGING => Ok(Self::LetsEncryptStaging),
            _ if is_https(text) => Ok(Self::Url(text.into())),
            _ => Err((
                format!("{text:?} is not an ACME directory"),
                format!("write {LETS_ENCRYPT:?}, {STAGING:?} or \"https://ca.example/directory\""),
            )),
        }
    }

    fn word(&self) -> String {
        match self {
            Self::LetsEncrypt => LETS_ENCRYPT.into(),
            Self::LetsEncryptStaging => STAGING.into(),
            Self::Url(url) => url.clone(),
        }
    }
}

fn is_https(text: &str) -> bool {
    let rest = text.strip_prefix("https://").unwrap_or_default();
    let is_odd = |c: char| c.is_whitespace() || c.is_control() || !c.is_ascii();
    !rest.is_empty() && !rest.starts_with(['/', ':']) && !rest.contains(is_odd)
}

impl MailAddress {
    /// As the authority is told it.
    pub fn url(&self) -> String {
        format!("mailto:{}", self.0)
    }
}

impl Written for MailAddress {
    fn make(text: &str, _: &Key) -> Made<Self> {
        let address = text.strip_prefix("mailto:").unwrap_or(text);
        let is_odd = |c: char| c.is_whitespace() || c.is_control() || ",;<>?".contains(c);
        let parts = address.split_once('@');
        let is_whole = parts.is_some_and(|(name, host)| !name.is_empty() && host.contains('.'));
        match is_whole && !address.contains(is_odd) {
            true => Ok(Self(address.into())),
            false => Err((
                format!("{text:?} is not a mail address"),
                "write one, such as \"ops@shop.example\"".into(),
            )),
        }
    }

    fn word(&self) -> String {
        self.0.clone()
    }
}

impl Written for AcmeChallenge {
    const FORM: Form = Form::Words(&["tls-alpn-01", "http-01", "dns-01"]);

    fn make(text: &str, key: &Key) -> Made<Self> {
        let known = CHALLENGES.iter().find(|(word, _)| *word == text);
        known.map(|(_, challenge)| *challenge).ok_or_else(|| {
            let message = format!("`{}` cannot be {text:?}", key.name);
            let words = CHALLENGES.map(|(word, _)| word);
            (message, suggest_word(text, &words))
        })
    }

    fn word(&self) -> String {
        challenge_word(*self).into()
    }
}

/// How a challenge is called.
pub fn challenge_word(challenge: AcmeChallenge) -> &'static str {
    let known = CHALLENGES.iter().find(|(_, known)| *known == challenge);
    known.map_or("", |(word, _)| word)
}

impl Kind<Option<AcmeConfig>> for AcmeTable {
    const FORM: Form = Form::Table(AcmeConfig::KEYS, || AcmeConfig::default().rows());

    fn read(section: &Section<'_>, key: &Key) -> Option<Option<AcmeConfig>> {
        let part = section.part(key)?;
        let mut acme = AcmeConfig::default();
        acme.read_keys(&part);
        acme.check(&part);
        Some(Some(acme))
    }

    fn show(value: &Option<AcmeConfig>, key: &Key, rows: &mut Rows) {
        if let Some(acme) = value {
            rows.below(key.name, |rows| acme.show_keys(rows));
        }
    }
}

impl AcmeConfig {
    fn check(&self, part: &Section<'_>) {
        if !self.agree && !part.is_blamed("agree") {
            let message =
                "certificates are ordered only if you agree to the terms of the authority";
            let hint = match &self.directory {
                AcmeDirectory::Url(url) => format!("{url} names them: read them"),
                _ => "read them at https://letsencrypt.org/repository/".into(),
            };
            let hint = format!("{hint}, and write agree = true");
            part.notes.error(part.at("agree"), message, hint);
        }
        let challenges = self.challenges.as_deref();
        if challenges.is_some_and(<[_]>::is_empty) && !part.is_blamed("challenges") {
            let hint = "name one, or remove the key";
            part.notes
                .error(part.at("challenges"), "`challenges` is empty", hint);
        }
        if let [line] = &self.dns_command[..]
            && line.contains(char::is_whitespace)
        {
            let message = "`dns_command` is a line, and no shell reads it";
            let hint = "write [\"program\", \"word\", …]";
            part.notes.error(part.at("dns_command"), message, hint);
        }
        let no_command = self.dns_command.is_empty() && !part.is_blamed("dns_command");
        let has_dns = |list: &[AcmeChallenge]| list.contains(&AcmeChallenge::Dns);
        if challenges.is_some_and(has_dns) && no_command {
            let message = "\"dns-01\" needs a program that changes DNS";
            let hint = "write dns_command = [\"/path/to/program\"]";
            part.notes.error(part.at("challenges"), message, hint);
        }
        for (host, at) in part.list("hosts").unwrap_or_default() {
            let is_wild = host.starts_with("*.");
            if is_wild && challenges.is_some_and(|list| !has_dns(list)) {
                let message = format!("{host:?} is proved by \"dns-01\" alone");
                let hint = "add it to `challenges`, or name the hosts one by one";
                part.notes.error(at, message, hint);
            } else if is_wild && no_command {
                let message = format!("{host:?} is proved by \"dns-01\" alone");
                let hint = "write dns_command = [\"/path/to/program\"], or name the hosts one by \
                            one";
                part.notes.error(at, message, hint);
            } else if is_address(&host) {
                let message = format!("{host} is an address, and certificates are for names");
                part.notes.error(at, message, "name a host");
            }
        }
    }
}

pub(super) fn is_address(host: &str) -> bool {
    host.trim_matches(['[', ']']).parse::<IpAddr>().is_ok()
}
