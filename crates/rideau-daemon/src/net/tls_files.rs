//! The files of TLS, read again when they change: a renewed certificate counts for new
//! connections without a word to the server.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use rideau_apps::Tls as FrontTls;
use rideau_config::Config;
use tokio::task::spawn_blocking;
use tokio_rustls::TlsAcceptor;

use super::tickets::TicketKeys;
use super::tls::{self, BadTls};
use crate::state::daemon::Daemon;

/// How often the config is looked at, and the files.
const LOOK: Duration = Duration::from_secs(1);
const LOOKS_A_STAT: u32 = 10;
/// How often it is said that files are no good.
const SAY_EVERY: Duration = Duration::from_secs(3600);

/// TLS acceptors made of files.
#[derive(Clone, Default)]
pub(crate) struct TlsFiles {
    /// For the Redis protocol and the admin page.
    pub(crate) server: Option<SharedAcceptor>,
    /// For the front.
    pub(crate) front: Option<FrontTls>,
    /// The keys of its tickets.
    pub(crate) tickets: TicketKeys,
}

/// An acceptor that can be replaced while it is used.
#[derive(Clone)]
pub(crate) struct SharedAcceptor(Arc<ArcSwap<TlsAcceptor>>);

impl SharedAcceptor {
    pub(crate) fn new(acceptor: TlsAcceptor) -> Self {
        Self(Arc::new(ArcSwap::from_pointee(acceptor)))
    }

    /// The acceptor for a new connection.
    pub(crate) fn now(&self) -> TlsAcceptor {
        TlsAcceptor::clone(&self.0.load())
    }
}

/// Which files those are now: where each really lies is for the system to say.
#[derive(PartialEq, Eq)]
struct Stamps(Vec<(PathBuf, Option<[i64; 5]>)>);

impl Stamps {
    fn of(paths: Vec<PathBuf>) -> Self {
        let stamp = |path: PathBuf| {
            let about = fs::metadata(&path).ok();
            let about = about.map(|about| {
                let number = |number: u64| i64::from_ne_bytes(number.to_ne_bytes());
                [
                    number(about.dev()),
                    number(about.ino()),
                    about.mtime(),
                    about.mtime_nsec(),
                    number(about.len()),
                ]
            });
            (path, about)
        };
        Self(paths.into_iter().map(stamp).collect())
    }
}

fn server_files(config: &Config) -> Vec<PathBuf> {
    let files = |tls: &rideau_config::Tls| {
        let ca = tls.client_ca.clone();
        [tls.cert.clone(), tls.key.clone()].into_iter().chain(ca)
    };
    config.tls.iter().flat_map(files).collect()
}

fn front_files(config: &Config) -> Vec<PathBuf> {
    let all = config.certificates.iter();
    let files = all.flat_map(|one| [Some(&one.cert), Some(&one.key), one.client_ca.as_ref()]);
    files.flatten().cloned().collect()
}

impl TlsFiles {
    /// Reads the files.
    ///
    /// # Errors
    ///
    /// If one cannot be read or does not hold what it should.
    pub(crate) fn read(config: &Config, tickets: TicketKeys) -> Result<Self, BadTls> {
        let server = config.tls.as_ref().map(tls::acceptor).transpose()?;
        let certificates = tls::front(&config.certificates, &tickets)?;
        let front = (!certificates.is_empty()).then(|| FrontTls::new(certificates));
        Ok(Self {
            server: server.map(SharedAcceptor::new),
            front,
            tickets,
        })
    }

    /// Read the files again whenever they or the config have changed, for ever. Files that are
    /// no good change nothing, and are tried again.
    pub(crate) async fn keep(self, daemon: Arc<Daemon>) {
        let mut watches = [
            Watch::new("tls", server_files, Self::renew_server),
            Watch::new("certificate", front_files, Self::renew_front),
        ];
        let config = daemon.config.load_full();
        for watch in &mut watches {
            watch.seen = Some(watch.look(&config).await);
        }
        let mut generation = daemon.settings.generation();
        let mut ticks = tokio::time::interval(LOOK);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        for tick in 0_u32.. {
            ticks.tick().await;
            let is_new = generation != daemon.settings.generation();
            if !is_new && !tick.is_multiple_of(LOOKS_A_STAT) {
                continue;
            }
            generation = daemon.settings.generation();
            let config = daemon.config.load_full();
            for watch in &mut watches {
                watch.follow(&self, &daemon, &config, is_new).await;
            }
        }
    }

    fn renew_server(&self, config: &Config) -> Result<(), BadTls> {
        if let (Some(shared), Some(tls)) = (&self.server, &config.tls) {
            shared.0.store(Arc::new(tls::acceptor(tls)?));
        }
        Ok(())
    }

    fn renew_front(&self, config: &Config) -> Result<(), BadTls> {
        if let Some(shared) = &self.front {
            shared.renew(tls::front(&config.certificates, &self.tickets)?);
        }
        Ok(())
    }
}

/// The files of one section, and what is made of them.
struct Watch {
    section: &'static str,
    files: fn(&Config) -> Vec<PathBuf>,
    renew: fn(&TlsFiles, &Config) -> Result<(), BadTls>,
    /// The files that count.
    seen: Option<Stamps>,
    /// When and how it was said last that they are no good.
    said: Option<(Instant, String)>,
}

impl Watch {
    fn new(
        section: &'static str,
        files: fn(&Config) -> Vec<PathBuf>,
        renew: fn(&TlsFiles, &Config) -> Result<(), BadTls>,
    ) -> Self {
        Self {
            section,
            files,
            renew,
            seen: None,
            said: None,
        }
    }

    async fn look(&self, config: &Config) -> Stamps {
        let paths = (self.files)(config);
        let stamps = spawn_blocking(|| Stamps::of(paths)).await;
        stamps.unwrap_or(Stamps(Vec::new()))
    }

    /// Read them if they are others than those that count, or the config is another.
    async fn follow(
        &mut self,
        all: &TlsFiles,
        daemon: &Daemon,
        config: &Arc<Config>,
        is_new_config: bool,
    ) {
        let now = self.look(config).await;
        let is_same = self.seen.as_ref() == Some(&now);
        if is_same && !is_new_config {
            return;
        }
        let (renew, all, config) = (self.renew, all.clone(), Arc::clone(config));
        let done = spawn_blocking(move || renew(&all, &config)).await;
        let text = match done {
            Ok(Ok(())) if is_same => return,
            Ok(Ok(())) => {
                (self.seen, self.said) = (Some(now), None);
                let files: Vec<_> = self.seen.iter().flat_map(Stamps::names).collect();
                format!("the files {} were read again", files.join(", "))
            }
            Ok(Err(error)) => {
                let text = format!(
                    "the new files cannot be used, the old ones stay in use: \
                    {error}"
                );
                if !self.is_news(&text) {
                    return;
                }
                text
            }
            // It panicked, and that was logged.
            Err(_) => return,
        };
        daemon.events.add("config", self.section, text, None);
    }

    /// Whether something was not said yet, or long ago.
    fn is_news(&mut self, text: &str) -> bool {
        let known = self.said.as_ref();
        let is_known = known.is_some_and(|(at, said)| said == text && at.elapsed() < SAY_EVERY);
        if !is_known {
            self.said = Some((Instant::now(), text.to_owned()));
        }
        !is_known
    }
}

impl Stamps {
    fn names(&self) -> impl Iterator<Item = String> {
        let shown = |path: &Path| path.display().to_string();
        self.0.iter().map(move |(path, _)| shown(path))
    }
}
