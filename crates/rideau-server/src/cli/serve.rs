//! The server as a program: its config, its log, its threads, its end.

use std::convert::Infallible;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use rideau_config::{Config, text};
use rideau_daemon::Ready;
use rideau_daemon::Source;
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;

use super::{Done, Failure, Manner, has_colours};
use crate::exit::start_log;

#[derive(Args, Debug)]
pub(crate) struct Serve {
    /// The config file; - is standard input
    #[arg(short, long, value_name = "FILE", conflicts_with = "file")]
    config: Option<PathBuf>,
    /// The config file, as with -c
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
    /// Listen at this address, instead of those of the config; may be given several times
    #[arg(long, value_name = "ADDRESS")]
    listen: Vec<String>,
    /// The address of the dashboard, the metrics and the API; `none` turns them off
    #[arg(long, value_name = "ADDRESS")]
    admin: Option<String>,
    /// Set a key of the config to another value, as pool.pg-1.max=20
    #[arg(long, value_name = "PATH=VALUE", value_parser = assignment)]
    set: Vec<(String, String)>,
}

/// The config without a file.
const DEFAULT: &str = "[broker.default]\n\n[lock.\"*\"]\n";

pub(crate) fn run(words: &Serve, manner: &Manner) -> Done {
    rideau_apps::inherited::adopt();
    let (config, source) = match words.config()? {
        Ok(read) => read,
        Err(faults) => {
            io::stderr().write_all(faults.as_bytes())?;
            return Ok(ExitCode::FAILURE);
        }
    };
    start_log(config.log);
    let runtime = threads(config.server.threads)?;
    if let Some(span) = config.log.debug_for {
        runtime.spawn(rideau_daemon::log::debug_for(span));
    }
    let served = runtime.block_on(async {
        let (ready, is_ready) = oneshot::channel();
        let ready = move |now: &Ready| {
            let _ = ready.send(now.clone());
        };
        tokio::select! {
            // A signal that comes during the start is the first one, whichever task hears of it.
            biased;
            served = rideau_daemon::run_from(config, source, ready) => served.map(|()| true),
            // The server listens for signals by the time that this one has its turn: a process
            // that reads the line may send one at once.
            never = announce(is_ready, manner.json) => match never {},
            urgent = second_signal() => urgent.map(|()| false),
        }
    });
    // A task that is still at work was told to stop twice.
    runtime.shutdown_background();
    match served? {
        true => Ok(ExitCode::SUCCESS),
        false => Err(Failure::Broken(
            "stopped at once; holders did not finish".into(),
        )),
    }
}

impl Serve {
    /// The config, or what is wrong with it.
    fn config(&self) -> Result<Result<(Config, Source), String>, Failure> {
        let named = self.config.as_ref().or(self.file.as_ref());
        let (text, name) = match named {
            None => (DEFAULT.to_owned(), "the default config".to_owned()),
            Some(path) => (super::change::read(path)?, path.display().to_string()),
        };
        let file = named.filter(|path| *path != Path::new("-")).cloned();
        let env = |name: &str| std::env::var(name).ok();
        let colours = has_colours(&io::stderr());
        let (config, faults) = Config::check(&text, &name, &env);
        if !faults.is_empty() {
            // Warnings are told once, and do not stop the server.
            let rendered = faults.render(colours);
            if config.is_none() {
                return Ok(Err(rendered));
            }
            io::stderr().write_all(rendered.as_bytes())?;
        }
        let Some(changed) = self.changed(&text)? else {
            let source = Source { text, file };
            return Ok(config
                .map(|config| (config, source))
                .ok_or_else(String::new));
        };
        let name = format!("{name} with the options");
        let config = Config::parse(&changed, &name, &env);
        let text = changed;
        Ok(config
            .map(|config| (config, Source { text, file }))
            .map_err(|faults| faults.render(colours)))
    }

    /// The text with the values of the options, if there are any.
    fn changed(&self, text: &str) -> Result<Option<String>, Failure> {
        let quoted = |text: &String| toml_edit::Value::from(text).to_string();
        let mut values = Vec::new();
        if !self.listen.is_empty() {
            let places: Vec<_> = self.listen.iter().map(quoted).collect();
            values.push(("server.listen", format!("[{}]", places.join(", "))));
        }
        if let Some(admin) = &self.admin {
            values.push(("server.admin", quoted(admin)));
        }
        let set = self.set.iter();
        values.extend(set.map(|(path, value)| (path.as_str(), value.clone())));
        if values.is_empty() {
            return Ok(None);
        }
        let mut text = text.to_owned();
        for (path, value) in values {
            let fault = |fault| Failure::Broken(format!("{path}: {fault}"));
            text = text::set(&text, path, &value).map_err(fault)?;
        }
        Ok(Some(text))
    }
}

fn assignment(text: &str) -> Result<(String, String), String> {
    let (path, value) = text
        .split_once('=')
        .ok_or_else(|| format!("{text:?} has no `=`; write pool.pg-1.max=20"))?;
    Ok((path.trim().into(), value.trim().into()))
}

/// Say where the server listens, once it does.
async fn announce(is_ready: oneshot::Receiver<Ready>, is_json: bool) -> Infallible {
    if let Ok(Ready {
        addresses,
        applications,
        control,
        page,
    }) = is_ready.await
    {
        let first = addresses.len().saturating_sub(applications);
        let mut out = io::stdout().lock();
        // A reader that closed our standard output does not want to know.
        if is_json {
            let fronts = &addresses[first..];
            let said = serde_json::json!({
                "listening": addresses,
                "applications": fronts,
                "control": control.as_ref().map(|control| &control.socket),
                "token": control.as_ref().map(|control| &control.token),
            });
            let _ = writeln!(out, "{said}");
        } else {
            for (at, address) in addresses.iter().enumerate() {
                let what = match address.starts_with("http") {
                    _ if at >= first => " (applications)",
                    true => " (status, metrics, API)",
                    false => "",
                };
                let _ = writeln!(out, "rideau serves at {address}{what}");
            }
            if let Some(control) = control {
                let socket = control.socket.display();
                let _ = writeln!(
                    out,
                    "rideau is controlled at unix:{socket}, by this account"
                );
                // What a service prints is kept, and read by others.
                let is_kept = std::env::var_os("JOURNAL_STREAM").is_some();
                let _ = match page {
                    Some(page) if !is_kept => writeln!(out, "and in a browser at {page}"),
                    _ => writeln!(out, "and with the token in {}", control.token.display()),
                };
            }
        }
        let _ = out.flush();
    }
    std::future::pending().await
}

/// The threads of the config for everything outside of I/O threads; this thread is one of them.
pub(super) fn threads(count: Option<usize>) -> io::Result<Runtime> {
    let mut builder = match count {
        Some(1) => Builder::new_current_thread(),
        _ => Builder::new_multi_thread(),
    };
    if let Some(count) = count.filter(|count| *count > 1) {
        builder.worker_threads(count);
    }
    builder.enable_all().build()
}

/// We were asked twice to stop.
async fn second_signal() -> io::Result<()> {
    let mut term = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    for _ in 0..2 {
        tokio::select! {
            _ = term.recv() => (),
            _ = interrupt.recv() => (),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_text_is_the_default_config() {
        let parsed = Config::parse(DEFAULT, "default", &|_| None);
        assert_eq!(parsed, Ok(Config::default()));
    }

    #[test]
    fn options_win_over_the_file() {
        let words = Serve {
            config: None,
            file: None,
            listen: vec!["127.0.0.1:0".into(), "unix:/tmp/r.sock".into()],
            admin: Some("none".into()),
            set: vec![assignment("broker.default.asks.max = 50").unwrap()],
        };
        let (config, _) = words.config().unwrap().unwrap();
        assert_eq!(config.server.listen.len(), 2);
        assert_eq!(config.server.admin, None);
        assert_ne!(config.brokers, Config::default().brokers);
    }
}
