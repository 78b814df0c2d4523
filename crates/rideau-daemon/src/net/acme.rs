//! Orders certificates for the front, and renews them.
//!
//! The core decides when and by which challenge. Here is the time, the folder, and one task
//! for each order.

mod authority;
mod dns;
mod look;
mod order;

use std::collections::BTreeMap;
use std::future::pending;
use std::io;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use instant_acme::CertificateIdentifier;
use rideau_config::human::count;
use rideau_config::{AcmeConfig, Config, challenge_word};
use rideau_core::acme::{Acme, AcmeChallenge, AcmeEffect, AcmeRecord, CertificateLife};
use rideau_core::{Instant, Machine};
use rideau_process::panics;
use tokio::task::{JoinSet, spawn_blocking};
use tokio_rustls::rustls::pki_types::{CertificateDer, Der};

use self::authority::{Authority, Trouble, on_disk};
use self::look::{Ports, look};
use self::order::OrderRequest;
use super::acme_store::{self, Store, stored_pair};
use super::tls_files::TlsFiles;
use super::{der, tls};
use crate::state::certificates::OrderedHost;
use crate::state::daemon::Daemon;

/// How often it is looked whether something is to be done.
const LOOK: Duration = Duration::from_secs(1);
/// A folder that cannot be used is tried again after this.
const OPEN_AGAIN: Duration = Duration::from_secs(60);
/// A clock that is set back by less is only waited for.
const CLOCK_BACK: Duration = Duration::from_secs(60);

/// Order certificates for as long as the server runs.
pub(crate) async fn keep(tls: TlsFiles, daemon: Arc<Daemon>) {
    let mut keeper: Option<CertificateOrders> = None;
    let mut refused = Refused::default();
    let mut ticks = tokio::time::interval(LOOK);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = ticks.tick() => (),
            done = next_done(&mut keeper) => {
                if let Some(keeper) = &mut keeper {
                    keeper.end(done, &tls, &daemon).await;
                }
            }
        }
        let config = daemon.config.load_full();
        let speaks_tls = tls.front.is_some() && !config.front.tls_listen.is_empty();
        let acme = config.front.acme.as_ref().filter(|_| speaks_tls);
        let Some(acme) = acme else {
            if keeper.take().is_some() {
                daemon.certificates.set_ordered(Vec::new(), None);
            }
            continue;
        };
        let generation = daemon.settings.generation();
        let is_other = |keeper: &mut CertificateOrders| keeper.is_other(acme, generation);
        if keeper.take_if(is_other).is_some() {
            refused = Refused::default();
        }
        if keeper.is_none() && refused.is_over(generation) {
            match CertificateOrders::open(&config, acme, generation).await {
                Ok(opened) => keeper = Some(opened),
                Err(error) => refused.tell(&error, &daemon, generation),
            }
        }
        if let Some(keeper) = &mut keeper {
            keeper.go_on(&config, &tls, &daemon).await;
        }
    }
}

/// The end of what is under way; never, if nothing is.
async fn next_done(keeper: &mut Option<CertificateOrders>) -> Done {
    let work = keeper.as_mut().map(|keeper| &mut keeper.work);
    match work {
        Some(work) if !work.is_empty() => match work.join_next().await {
            Some(Ok(done)) => done,
            // What a task does is contained, and none is aborted.
            _ => pending().await,
        },
        _ => pending().await,
    }
}

/// That the folder could not be used.
#[derive(Default)]
struct Refused {
    at: Option<tokio::time::Instant>,
    said: String,
    generation: u64,
}

impl Refused {
    fn is_over(&self, generation: u64) -> bool {
        let is_new = self.generation != generation;
        is_new || self.at.is_none_or(|at| at.elapsed() >= OPEN_AGAIN)
    }

    fn tell(&mut self, error: &io::Error, daemon: &Daemon, generation: u64) {
        let text = format!("no certificate is ordered: {error}");
        let fault = Some(error.to_string());
        daemon.certificates.set_ordered(Vec::new(), fault);
        if self.said != text {
            daemon
                .events
                .add("config", "certificate", text.clone(), None);
        }
        *self = Self {
            at: Some(tokio::time::Instant::now()),
            said: text,
            generation,
        };
    }
}

/// Orders certificates from one authority.
struct CertificateOrders {
    acme: AcmeConfig,
    authority: Arc<Authority>,
    store: Arc<Store>,
    machine: Acme,
    effects: Vec<AcmeEffect>,
    /// The time that the machine was told last.
    last: Instant,
    /// The config that the hosts are of.
    generation: Option<u64>,
    /// What went wrong last with each host.
    faults: BTreeMap<String, String>,
    work: JoinSet<Done>,
    /// The last record that is on disk.
    kept: Option<AcmeRecord>,
}

/// What came of something.
enum Done {
    Looked(String, Result<(), String>),
    Ordered(String, Result<(), Trouble>),
    Asked(String, Option<RenewalWindow>),
}

/// When an authority wants a certificate to be renewed, and when to ask again.
struct RenewalWindow {
    from: Instant,
    until: Instant,
    again: Duration,
}

/// The time since 1970, as the machine counts it.
fn since_1970(at: SystemTime) -> Instant {
    Instant::START + at.duration_since(UNIX_EPOCH).unwrap_or_default()
}

impl CertificateOrders {
    async fn open(config: &Config, acme: &AcmeConfig, generation: u64) -> io::Result<Self> {
        let folder = acme_store::folder(config).expect("there is a section for it");
        let config = acme.clone();
        let opened = spawn_blocking(move || {
            let path = folder.display().to_string();
            let named = |error: io::Error| io::Error::other(format!("{path}: {error}"));
            let store = Store::open(folder).map_err(named)?;
            store.finish_pairs().map_err(named)?;
            let records = store.records();
            Ok::<_, io::Error>((Authority::new(&config)?, store, records))
        });
        let (authority, store, records) = opened.await.map_err(io::Error::other)??;
        let mut seed = [0; 8];
        getrandom::fill(&mut seed).map_err(io::Error::other)?;
        tracing::debug!(
            generation,
            records = records.len(),
            "orders of certificates"
        );
        Ok(Self {
            acme: acme.clone(),
            authority: Arc::new(authority),
            store: Arc::new(store),
            kept: records.last().cloned(),
            machine: Acme::new(records, u64::from_ne_bytes(seed)),
            effects: Vec::new(),
            last: Instant::START,
            generation: None,
            faults: BTreeMap::new(),
            work: JoinSet::new(),
        })
    }

    /// The config names another authority, or another folder, or the clock was set back.
    /// What the authority's signers are may have changed with the config.
    fn is_other(&self, acme: &AcmeConfig, generation: u64) -> bool {
        let parts = |acme: &AcmeConfig| {
            let AcmeConfig {
                directory,
                contact,
                path,
                ca,
                ..
            } = acme.clone();
            (directory, contact, path, ca)
        };
        let is_idle = self.work.is_empty();
        let is_new = self.generation.is_some_and(|known| known != generation);
        let is_other = is_new && is_idle && parts(&self.acme) != parts(acme);
        is_other || since_1970(SystemTime::now()) + CLOCK_BACK < self.last
    }

    fn now(&mut self) -> Instant {
        self.last = self.last.max(since_1970(SystemTime::now()));
        self.last
    }

    /// Follow the config, and do what is due.
    async fn go_on(&mut self, config: &Arc<Config>, tls: &TlsFiles, daemon: &Arc<Daemon>) {
        let generation = daemon.settings.generation();
        let now = self.now();
        if self.generation != Some(generation) && self.work.is_empty() {
            let hosts = tls.ordered_hosts(config);
            self.acme = config.front.acme.clone().unwrap_or_default();
            self.machine.reconfigure(hosts.clone(), now);
            if self.generation.is_some() {
                self.machine.retry();
            }
            self.faults
                .retain(|name, _| hosts.iter().any(|host| host.name == *name));
            for host in &hosts {
                self.hold(&host.name, now).await;
            }
            self.generation = Some(generation);
        }
        self.machine.advance(now, &mut self.effects);
        self.perform(daemon).await;
        self.show(config, tls, daemon);
    }

    /// Tell the machine which certificate a host has.
    async fn hold(&mut self, host: &str, now: Instant) {
        let life = self.certificate(host).await;
        let life = life.and_then(|certificate| life_of(&certificate));
        self.machine.hold(host, life, now);
    }

    /// The certificate that a host has.
    async fn certificate(&self, host: &str) -> Option<CertificateDer<'static>> {
        let host = host.to_owned();
        let read = on_disk(&self.store, move |store| {
            let pair = stored_pair(store.folder(), &host);
            let all = pair.map(|pair| tls::certificates(&pair.cert)).transpose()?;
            Ok(all.and_then(|all| all.into_iter().next()))
        });
        read.await.ok().flatten()
    }

    /// What came of something.
    async fn end(&mut self, done: Done, tls: &TlsFiles, daemon: &Arc<Daemon>) {
        let now = self.now();
        let effects = &mut self.effects;
        match done {
            Done::Looked(host, found) => {
                let is_found = found.is_ok();
                if let Err(text) = found {
                    self.blame(&host, text, daemon);
                }
                self.machine
                    .checked(&host, is_found, now, &mut self.effects);
            }
            Done::Ordered(host, Ok(())) => {
                let certificate = self.certificate(&host).await;
                let life = certificate.as_ref().and_then(life_of);
                // It was checked before it was kept.
                let life = life.unwrap_or(CertificateLife {
                    from: now,
                    until: now,
                });
                self.machine.issued(&host, life, now, &mut self.effects);
                self.faults.remove(&host);
                let (tls, config) = (tls.clone(), daemon.config.load_full());
                let book = Arc::clone(&daemon.certificates);
                let _ = spawn_blocking(move || tls.show_ordered(&config, &book)).await;
                let days = life.until.as_nanos().saturating_sub(now.as_nanos());
                let days = Duration::from_nanos(days).as_secs() / (24 * 60 * 60);
                let days = count(usize::try_from(days).unwrap_or(usize::MAX), "day");
                let text = format!("{host} has a new certificate, for {days}");
                daemon.events.add("config", "certificate", text, None);
            }
            Done::Ordered(host, Err(trouble)) => {
                let Trouble {
                    failure,
                    retry_after,
                    text,
                } = trouble;
                self.machine
                    .failed(&host, failure, retry_after, now, effects);
                self.blame(&host, text, daemon);
            }
            Done::Asked(host, said) => {
                let window = said.as_ref().map(|said| (said.from, said.until));
                let again = said.map(|said| said.again);
                self.machine.renewal(&host, window, again, now, effects);
            }
        }
        self.perform(daemon).await;
    }

    /// Something went wrong with a host; that is told once.
    fn blame(&mut self, host: &str, text: String, daemon: &Daemon) {
        if self.faults.get(host) != Some(&text) {
            let said = format!("no certificate for {host}: {text}");
            daemon.events.add("config", "certificate", said, None);
        }
        self.faults.insert(host.into(), text);
    }

    async fn perform(&mut self, daemon: &Arc<Daemon>) {
        if self.effects.is_empty() && self.kept.as_ref() == self.machine.records().last() {
            return;
        }
        // Before it is ordered: a server that is killed again and again counts its orders.
        let records = self.machine.records().to_vec();
        self.kept = records.last().cloned();
        let kept = on_disk(&self.store, move |store| store.keep_records(&records)).await;
        for effect in std::mem::take(&mut self.effects) {
            match effect {
                AcmeEffect::Check { host, challenge } => {
                    self.look(host, challenge, daemon);
                }
                AcmeEffect::Order {
                    host,
                    challenge,
                    replaces,
                } => match &kept {
                    Ok(()) => self.order(host, challenge, replaces, daemon).await,
                    Err(trouble) => {
                        let trouble = trouble.clone();
                        self.work
                            .spawn(async move { Done::Ordered(host, Err(trouble)) });
                    }
                },
                AcmeEffect::AskRenewal { host } => self.ask(host).await,
            }
        }
    }

    fn look(&mut self, host: String, challenge: AcmeChallenge, daemon: &Arc<Daemon>) {
        let wants = self.acme.self_check;
        let answers = daemon.front.acme_answers().clone();
        self.work.spawn(async move {
            let found = match wants {
                true => {
                    let looked = look(&answers, &host, challenge, Ports::USUAL);
                    let looked = panics::contain_async(looked).await;
                    looked.unwrap_or_else(|panicked| Err(panicked.to_string()))
                }
                false => Ok(()),
            };
            Done::Looked(host, found)
        });
    }

    async fn order(
        &mut self,
        host: String,
        challenge: AcmeChallenge,
        replaces: bool,
        daemon: &Arc<Daemon>,
    ) {
        let by = challenge_word(challenge);
        tracing::info!("a certificate for {host} is ordered, by {by}");
        let replaced = match replaces {
            true => self.certificate(&host).await,
            false => None,
        };
        let request = OrderRequest {
            host: host.clone(),
            challenge,
            replaces: replaced.as_ref().and_then(id_of),
            dns_command: self.acme.dns_command.clone(),
        };
        let (authority, store) = (Arc::clone(&self.authority), Arc::clone(&self.store));
        let answers = daemon.front.acme_answers().clone();
        self.work.spawn(async move {
            let ordered = panics::contain_async(request.run(&authority, &store, &answers)).await;
            let ordered = ordered.unwrap_or_else(|panicked| Err(Trouble::unreached(panicked)));
            Done::Ordered(host, ordered)
        });
    }

    /// Ask when the certificate of a host should be renewed.
    async fn ask(&mut self, host: String) {
        let certificate = self.certificate(&host).await;
        let id = certificate.as_ref().and_then(id_of);
        let (authority, store) = (Arc::clone(&self.authority), Arc::clone(&self.store));
        self.work.spawn(async move {
            let said = match id {
                Some(id) => {
                    let asked = panics::contain_async(authority.renewal(&store, &id)).await;
                    asked.unwrap_or_default()
                }
                None => None,
            };
            let window = said.map(|(from, until, again)| RenewalWindow {
                from: since_1970(from),
                until: since_1970(until),
                again,
            });
            Done::Asked(host, window)
        });
    }

    /// Let operators see how it is.
    fn show(&self, config: &Config, tls: &TlsFiles, daemon: &Daemon) {
        let hosts = tls.ordered_hosts(config).into_iter();
        let shown = hosts.filter_map(|host| {
            Some(OrderedHost {
                state: self.machine.state(&host.name)?,
                fault: self.faults.get(&host.name).cloned(),
                name: host.name,
            })
        });
        daemon.certificates.set_ordered(shown.collect(), None);
    }
}

fn life_of(certificate: &CertificateDer<'_>) -> Option<CertificateLife> {
    let (from, until) = der::life(certificate)?;
    Some(CertificateLife {
        from: since_1970(from),
        until: since_1970(until),
    })
}

/// How the authority knows a certificate.
fn id_of(certificate: &CertificateDer<'_>) -> Option<CertificateIdentifier<'static>> {
    let id = der::id(certificate)?;
    let (authority, serial) = (Der::from_slice(id.authority), Der::from_slice(id.serial));
    Some(CertificateIdentifier::new(authority, serial))
}
