//! The demo: a server with traffic, and commands to try.
//!
//! The server is the one that `rideau serve` starts, and the traffic comes over
//! its own sockets: a user who looks at it sees clients like any others.

mod cluster;
pub(crate) mod overload;
mod screen;
mod traffic;

use std::net::{Ipv4Addr, TcpListener};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use rideau_daemon::Ready;
use tokio::signal;
use tokio::sync::oneshot;
use tokio::time::{Instant, interval_at};

use crate::exit::{Done, Failure, start_log};
use crate::wire::Server;
use cluster::ClusterDemo;
use overload::Finish;
use rideau_config::{Config, Log, LogLevel, text};
use screen::{Paint, Screen};
use traffic::Traffic;

/// Start a server with traffic, and print addresses to look at and commands to type
#[derive(Args, Debug)]
pub(crate) struct Demo {
    /// How many seconds, or `forever` [default: forever; 10 with --overload]
    #[arg(long, value_name = "N", value_parser = seconds)]
    seconds: Option<Seconds>,
    /// Instead: two brokers under the same overload, side by side
    #[arg(long)]
    overload: bool,
    /// Instead: three nodes on etcd, of which one is killed now and then
    #[arg(long, conflicts_with = "overload")]
    cluster: bool,
    /// Use this etcd, instead of one that the demo starts and stops
    #[arg(long, value_name = "URL", requires = "cluster")]
    etcd: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Seconds {
    For(u32),
    Forever,
}

const CONFIG: &str = include_str!("demo/demo.toml");
const PORT: u16 = 7433;
const ADMIN_PORT: u16 = 7434;
const SECONDS: u32 = 10;
const SECONDS_MAX: u32 = 3600;
/// The shell's own way to say that a program was interrupted.
const INTERRUPTED: u8 = 130;

pub(crate) fn run(words: &Demo, is_json: bool) -> Done {
    if words.cluster {
        let demo = ClusterDemo {
            seconds: words.seconds.unwrap_or(Seconds::Forever),
            etcd: words.etcd.as_deref(),
            is_json,
        };
        return demo.run();
    }
    if !words.overload {
        return serve(words.seconds.unwrap_or(Seconds::Forever), is_json);
    }
    let seconds = match words.seconds {
        None => SECONDS,
        Some(Seconds::For(seconds)) => seconds,
        Some(Seconds::Forever) => SECONDS_MAX,
    };
    Ok(match overload::run(seconds)? {
        Finish::Complete => ExitCode::SUCCESS,
        Finish::Interrupted => INTERRUPTED.into(),
    })
}

fn seconds(text: &str) -> Result<Seconds, String> {
    if text == "forever" {
        return Ok(Seconds::Forever);
    }
    let seconds = text.parse().ok();
    let seconds = seconds.filter(|seconds| (1..=SECONDS_MAX).contains(seconds));
    seconds
        .map(Seconds::For)
        .ok_or_else(|| format!("write a whole number from 1 to {SECONDS_MAX}, or `forever`"))
}

/// Where the demo is.
struct Ports {
    redis: u16,
    admin: u16,
    /// Another process is where it should be.
    is_elsewhere: bool,
}

fn serve(seconds: Seconds, is_json: bool) -> Done {
    start_log(Log {
        level: LogLevel::Error,
        ..Log::default()
    });
    let ports = Ports::find()?;
    let config = config(&ports)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    let served = runtime.block_on(async {
        let (ready, is_ready) = oneshot::channel();
        let ready = move |_: &Ready| {
            let _ = ready.send(());
        };
        tokio::select! {
            served = rideau_daemon::run(config, ready) => served.map_err(Failure::from),
            shown = show(is_ready, &ports, seconds, is_json) => shown,
        }
    });
    runtime.shutdown_background();
    served.map(|()| ExitCode::SUCCESS)
}

impl Ports {
    /// The usual ones if both are free.
    fn find() -> Result<Self, Failure> {
        let local = |port| TcpListener::bind((Ipv4Addr::LOCALHOST, port));
        if local(PORT).is_ok() && local(ADMIN_PORT).is_ok() {
            return Ok(Self {
                redis: PORT,
                admin: ADMIN_PORT,
                is_elsewhere: false,
            });
        }
        // Both at once, or the system might give the same twice.
        let (one, other) = (local(0)?, local(0)?);
        Ok(Self {
            redis: one.local_addr()?.port(),
            admin: other.local_addr()?.port(),
            is_elsewhere: true,
        })
    }
}

fn config(ports: &Ports) -> Result<Config, Failure> {
    let broken = |fault: &dyn std::fmt::Display| Failure::Broken(fault.to_string());
    let listen = format!("[\"127.0.0.1:{}\"]", ports.redis);
    let admin = format!("\"127.0.0.1:{}\"", ports.admin);
    let text = text::set(CONFIG, "server.listen", &listen).map_err(|fault| broken(&fault))?;
    let text = text::set(&text, "server.admin", &admin).map_err(|fault| broken(&fault))?;
    Config::parse(&text, "demo.toml", &|_| None).map_err(|faults| broken(&faults))
}

/// Once the server is there: begin the traffic, and show it until the end.
async fn show(
    is_ready: oneshot::Receiver<()>,
    ports: &Ports,
    seconds: Seconds,
    is_json: bool,
) -> Result<(), Failure> {
    if is_ready.await.is_err() {
        // The server could not begin, and says why itself.
        return std::future::pending().await;
    }
    let mut screen = Screen::stdout();
    if is_json {
        let (redis, admin) = (ports.redis, ports.admin);
        screen.line(&serde_json::json!({ "redis": redis, "admin": admin }).to_string())?;
    } else {
        introduce(ports, seconds, &mut screen)?;
    }
    let traffic = Traffic::start(&Server::local(ports.redis));
    let began = Instant::now();
    let mut ticks = interval_at(began + Duration::from_secs(1), Duration::from_secs(1));
    let mut interrupt = std::pin::pin!(signal::ctrl_c());
    let mut second = 0;
    while seconds == Seconds::Forever || Seconds::For(second) != seconds {
        tokio::select! {
            _ = ticks.tick() => (),
            _ = &mut interrupt => {
                // The server hears of it too; it ends when it has let its clients go.
                traffic.stop();
                return std::future::pending().await;
            }
        }
        second += 1;
        if is_json {
            screen.line(&traffic.json(second).to_string())?;
        } else {
            screen.redraw(&[traffic.line(second)])?;
        }
    }
    traffic.stop();
    Ok(())
}

fn introduce(ports: &Ports, seconds: Seconds, screen: &mut Screen) -> Result<(), Failure> {
    let Ports { redis, admin, .. } = ports;
    let program = std::env::args().next().unwrap_or_else(|| "rideau".into());
    let until = match seconds {
        Seconds::Forever => "until Ctrl-C".into(),
        Seconds::For(seconds) => format!("for {seconds} s"),
    };
    screen.line(&format!("A server with some traffic, {until}."))?;
    if ports.is_elsewhere {
        screen.line(&format!(
            "Another program is at {PORT} or {ADMIN_PORT} already, so it is at {redis} and {admin}."
        ))?;
    }
    let to = if ports.is_elsewhere {
        format!(" --server 127.0.0.1:{redis}")
    } else {
        String::new()
    };
    for line in [
        String::new(),
        format!("  look at  http://127.0.0.1:{admin}/"),
        format!("  type     redis-cli -p {redis} TAKE licences WAIT 200"),
        format!("           redis-cli -p {redis} SHOW POOLS"),
        format!("           redis-cli -p {redis} SHOW HOLDERS"),
        format!("  or       {program}{to} status"),
        format!("           {program}{to} take licences -- sh -c 'echo I have $RIDEAU_MEMBER'"),
        format!("           {program}{to} lock nightly -- sleep 60"),
        String::new(),
        format!(
            "Every {} s there is a rush of {} s: more asks come than can be served.",
            traffic::ROUND.as_secs(),
            traffic::RUSH.as_secs()
        ),
        String::new(),
        screen.paint(Paint::Bold, &traffic::heads()),
    ] {
        screen.line(&line)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_config_of_the_demo_is_right() {
        let ports = Ports {
            redis: 1,
            admin: 2,
            is_elsewhere: true,
        };
        let config = config(&ports).unwrap();
        assert_eq!(config.server.listen[0].to_string(), "127.0.0.1:1");
        assert!(config.pools.iter().any(|pool| pool.name == "licences"));
    }
}
