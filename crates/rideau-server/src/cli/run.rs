//! One application without any config: started, served, and started again when
//! it ends.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args;
use rideau_config::{AppConfig, AppListen, AppReady, Config, ErrorPages, Log, LogLevel};
use rideau_daemon::Daemon;
use rideau_daemon::Source;
use rideau_daemon::{Ready, UPGRADE_VARIABLE, run_upgradable};
use rideau_process::{StartStep, Stream};
use serde_json::json;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::oneshot;

use super::serve::threads;
use super::{Done, Failure, Manner, pre_exec, show, span, upgrade};
use crate::exit::start_log;

#[derive(Args, Debug)]
pub(crate) struct Run {
    /// The address to serve it at
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:3000", value_parser = place)]
    listen: SocketAddr,
    /// The most processes
    #[arg(long, value_name = "COUNT", default_value_t = 1)]
    max: usize,
    /// Requests at a time in one process, instead of the number that it learns
    #[arg(long, value_name = "COUNT")]
    concurrency: Option<usize>,
    /// It is ready when it answers a request for this path, instead of when it listens
    #[arg(long, value_name = "PATH")]
    ready: Option<String>,
    /// Touching restart.txt in this folder restarts it
    #[arg(long, value_name = "FOLDER", default_value = "tmp")]
    restart_dir: std::path::PathBuf,
    /// The command and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND")]
    command: Vec<String>,
}

/// How often it is looked whether the application is ready.
const LOOK: Duration = Duration::from_millis(20);
/// A user who waits for longer wants to know what for.
const PATIENCE: Duration = Duration::from_secs(2);

pub(crate) fn run(words: &Run, manner: &Manner) -> Done {
    let config = words.config()?;
    start_log(config.log);
    let runtime = threads(None)?;
    let name = config.apps[0].name.clone();
    let is_json = manner.json;
    let served = runtime.block_on(async {
        let source = Source::of(&config);
        let (hopeless, is_hopeless) = oneshot::channel();
        let ready = move |ready: &Ready, daemon: &Arc<Daemon>| {
            tokio::spawn(print(Arc::clone(daemon), name.clone()));
            let (ready, daemon) = (ready.clone(), Arc::clone(daemon));
            tokio::spawn(async move {
                let announced = announce(Arc::clone(&daemon), name, ready, is_json);
                if let Err(code) = announced.await {
                    let _ = hopeless.send((code, daemon));
                }
            });
        };
        let upgradable = upgrade::upgradable(false, None);
        tokio::select! {
            served = run_upgradable(config, source, upgradable, ready) => {
                served.map(|()| ExitCode::SUCCESS)
            }
            Ok((code, daemon)) = is_hopeless => {
                daemon.apps().close_now().await;
                Ok(code.into())
            }
        }
    });
    runtime.shutdown_background();
    // There is no config: what it would say is an option here.
    served.map_err(|error| Failure::Broken(error.to_string().replace("front.listen", "--listen")))
}

/// Where to serve, read as `serve` reads it.
fn place(text: &str) -> Result<SocketAddr, String> {
    let local = text.replacen("localhost:", "127.0.0.1:", 1);
    let fault = || format!("{text:?} is not an address; write IP:PORT, as 127.0.0.1:3000");
    local.parse().map_err(|_| fault())
}

impl Run {
    fn config(&self) -> io::Result<Config> {
        let program = self.command[0].rsplit('/').next();
        let name = program.filter(|name| !name.is_empty()).unwrap_or("app");
        let mut app = AppConfig::new(name, self.command.clone());
        app.run.root = Some(std::env::current_dir()?);
        // The app is no server that takes over from another.
        let vars = std::env::vars().filter(|(name, _)| name != UPGRADE_VARIABLE);
        app.run.env = vars.collect();
        app.run.ready = match &self.ready {
            Some(path) => AppReady::Http(path.clone()),
            None => AppReady::Auto,
        };
        app.options.min = 1;
        app.options.max = Some(self.max);
        app.options.concurrency = self.concurrency;
        app.restart_dir = Some(self.restart_dir.clone());
        let mut config = Config::default();
        // It is controlled over its own socket, by this account alone.
        config.server.listen.clear();
        config.server.admin = None;
        config.brokers.clear();
        config.locks.clear();
        config.front.listen = vec![self.listen.into()];
        config.front.error_pages = ErrorPages::Detailed;
        config.front.limits.max = config.front.limits.max.max(self.max);
        config.log = Log {
            level: LogLevel::Warn,
            ..config.log
        };
        config.apps = vec![app];
        Ok(config)
    }
}

/// Say where it is served, once it is, and why it is not yet. What is no program
/// is tried no second time, and gives the code to end with.
async fn announce(
    daemon: Arc<Daemon>,
    name: String,
    ready: Ready,
    is_json: bool,
) -> Result<(), u8> {
    let mut told = None;
    let mut say_at = Some(Instant::now() + PATIENCE);
    while let Some(app) = daemon.apps().find(&name) {
        if daemon
            .apps()
            .shown(&app)
            .is_some_and(|app| app.state() == "ready")
        {
            break;
        }
        let report = app.report();
        let id = report.as_ref().map(|report| report.id.clone());
        if let Some(report) = report.filter(|_| id != told) {
            show::complain(&report.summary);
            for advice in &report.advice {
                show::complain(format!("perhaps {advice}"));
            }
            if report.step == StartStep::Exec {
                let error = report.errno.map(io::Error::from_raw_os_error);
                return Err(pre_exec::code(error.as_ref()));
            }
        }
        told = id;
        if say_at.is_some_and(|at| at <= Instant::now()) {
            say_at = None;
            let awaited = awaited(&app.config.load());
            match is_json {
                true => put(Stream::Error, &json!({ "waiting": awaited }).to_string()),
                false => put(Stream::Error, &format!("rideau waits for {awaited}")),
            }
        }
        tokio::time::sleep(LOOK).await;
    }
    let control = ready.control.map(|control| control.socket);
    if is_json {
        let text = json!({ "listening": ready.addresses, "control": control });
        put(Stream::Error, &text.to_string());
        return Ok(());
    }
    for address in ready.addresses {
        put(Stream::Error, &format!("rideau serves at {address}"));
    }
    if let Some(socket) = control {
        let socket = socket.display();
        put(
            Stream::Error,
            &format!("rideau is controlled at unix:{socket}"),
        );
    }
    Ok(())
}

/// Says how an application becomes ready.
fn awaited(config: &AppConfig) -> String {
    let (name, run) = (&config.name, &config.run);
    let place = match run.listen {
        AppListen::Socket => "the Unix socket that the variable RIDEAU_SOCKET names",
        _ => "the port that the variable PORT says",
    };
    let micros = i64::try_from(run.start_timeout.as_micros()).unwrap_or(i64::MAX);
    let within = span::shown(micros);
    match &run.ready {
        AppReady::Http(path) => {
            format!("{name} to answer GET {path} at {place}; it has {within} for that")
        }
        _ => format!("{name} to listen at {place}; it has {within} for that"),
    }
}

/// Print what the application writes, where it writes it.
async fn print(daemon: Arc<Daemon>, name: String) {
    let Some(app) = daemon.apps().find(&name) else {
        return;
    };
    let mut lines = app.output.follow();
    for line in app.output.last(usize::MAX) {
        put(line.stream, &line.text);
    }
    loop {
        match lines.recv().await {
            Ok(line) => put(line.stream, &line.text),
            Err(RecvError::Lagged(missed)) => {
                put(Stream::Error, &format!("({missed} lines are not shown)"));
            }
            Err(RecvError::Closed) => return,
        }
    }
}

fn put(stream: Stream, text: &str) {
    // A reader that does not read along does not stop the application.
    let _ = match stream {
        Stream::Output => writeln!(io::stdout(), "{text}"),
        Stream::Error => writeln!(io::stderr(), "{text}"),
    };
}
