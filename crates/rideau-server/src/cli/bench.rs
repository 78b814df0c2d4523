//! Measures the server, and a Redis beside it with what people build there.
//!
//! It is modest: one machine, one program, and the clients share the cores with
//! the servers. What it shows are ratios of neighbours in time.

use std::io;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use rideau_config::human::count;
use rideau_resp::Value;
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use super::load::{self, Load, Measured, Work};
use super::table::Table;
use super::{Done, Failure, Manner, show, span};
use crate::wire::{Server, Wire, WireFault};

/// Measure the server, and compare it with a Redis
///
/// Against a Redis, LOCK and RELEASE stand beside INCR and DECR, TAKE and RELEASE beside BLPOP and
/// RPUSH, ASK and OFFER, after which both say DONE, beside RPUSH and BLPOP. None of those gives
/// anything back when a client dies; it is only the speed that is compared.
#[derive(Args, Debug)]
pub(crate) struct Bench {
    /// A Redis to compare with; its keys rideau:bench:* are used and deleted
    #[arg(long, value_name = "URL", value_parser = Server::parse_redis)]
    against: Option<Server>,
    /// Connections
    #[arg(long, value_name = "N", default_value_t = 32,
          value_parser = clap::value_parser!(u32).range(1..=10_000))]
    clients: u32,
    /// Commands that a connection sends before it reads
    #[arg(long, value_name = "P", default_value_t = 1,
          value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pipeline: u32,
    /// How long each measurement takes
    #[arg(long, value_name = "S", default_value_t = 3,
          value_parser = clap::value_parser!(u32).range(1..=3_600))]
    seconds: u32,
    /// Take from this pool, instead of one made for it
    #[arg(long, value_name = "NAME")]
    pool: Option<String>,
    /// Meet at this broker
    #[arg(long, value_name = "NAME", default_value = "default")]
    broker: String,
}

/// A measurement of one side or both.
struct Row {
    name: &'static str,
    beside: &'static str,
    ours: Result<Measured, String>,
    theirs: Option<Result<Measured, String>>,
}

/// The shell's own way to say that a program was interrupted.
const INTERRUPTED: u8 = 130;

pub(crate) fn run(words: &Bench, manner: &Manner) -> Done {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    let (rows, is_stopped) = runtime.block_on(measure(words, manner))?;
    if manner.json {
        let rows: Vec<_> = rows.iter().map(Row::json).collect();
        show::print_json(&json!({
            "clients": words.clients,
            "pipeline": words.pipeline,
            "seconds": words.seconds,
            "rows": rows,
        }))?;
    } else {
        print(&rows, words)?;
    }
    if is_stopped {
        return Ok(INTERRUPTED.into());
    }
    Ok(if rows.iter().all(Row::is_whole) {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Measures; says whether it was asked to stop.
async fn measure(words: &Bench, manner: &Manner) -> Result<(Vec<Row>, bool), Failure> {
    let load = Load {
        clients: words.clients,
        pipeline: words.pipeline,
        span: Duration::from_secs(words.seconds.into()),
    };
    // No server at all is an error; one work that cannot be done is a row that says so.
    let mut wire = Wire::connect(&manner.server, "rideau-bench").await?;
    if let Some(redis) = &words.against {
        let theirs = Wire::connect(redis, "rideau-bench").await;
        let theirs = theirs.map_err(|fault| Failure::Broken(of_redis(&fault)))?;
        theirs.quit().await;
    }
    let stop = stop_asked()?;
    let (pool, is_ours) = match &words.pool {
        Some(pool) => (Ok(pool.clone()), false),
        None => (add_pool(&mut wire, load.members()).await?, true),
    };
    let take = match &pool {
        Ok(pool) => Ok(Work::Take { pool: pool.clone() }),
        Err(why) => Err(format!("not measured, name a --pool: {why}")),
    };
    let meet = Work::Meet {
        broker: words.broker.clone(),
    };
    let prefix = format!("rideau:bench:{}", std::process::id());
    let works = [
        ("lock + release", Ok(Work::Lock), "incr + decr", Work::Count),
        ("take + release", take, "blpop + rpush", Work::Lend),
        ("ask + offer", Ok(meet), "rpush + blpop", Work::Queue),
    ];
    let mut rows = Vec::new();
    for (name, ours, beside, theirs) in works {
        let ours = match ours {
            Ok(work) => load::run(&manner.server, &work, &load, &prefix, &stop).await,
            Err(why) => Err(why),
        };
        let theirs = match &words.against {
            Some(server) => Some(load::run(server, &theirs, &load, &prefix, &stop).await),
            None => None,
        };
        rows.push(Row {
            name,
            beside,
            ours,
            theirs,
        });
        if *stop.borrow() {
            break;
        }
    }
    if let (Ok(pool), true) = (&pool, is_ours) {
        show::good(wire.ask(&["POOL.DEL", pool, "NOW"]).await?)?;
    }
    let is_stopped = *stop.borrow();
    Ok((rows, is_stopped))
}

/// Says whether we are asked to stop. We do so with everything tidied up.
fn stop_asked() -> io::Result<watch::Receiver<bool>> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut term = signal(SignalKind::terminate())?;
    let (told, stop) = watch::channel(false);
    tokio::spawn(async move {
        tokio::select! {
            _ = interrupt.recv() => (),
            _ = term.recv() => (),
        }
        told.send_replace(true);
    });
    Ok(stop)
}

/// Why a Redis cannot be compared with; what helps with our own server is no help
/// here.
fn of_redis(fault: &WireFault) -> String {
    match fault {
        WireFault::Unreachable { server, error } => {
            format!("no Redis answers at {server} (--against): {error}")
        }
        WireFault::Denied(text) => format!("the Redis (--against) refused the login: {text}"),
        fault => format!("the Redis (--against): {fault}"),
    }
}

/// A pool with a member for every take; or why there can be none.
async fn add_pool(wire: &mut Wire, members: u32) -> Result<Result<String, String>, Failure> {
    let name = format!("bench-{}", std::process::id());
    let list: Vec<_> = (0..members).map(|at| format!("\"m{at}\"")).collect();
    let toml = format!("member = {{ list = [{}] }}", list.join(", "));
    Ok(match wire.ask(&["POOL.ADD", &name, &toml]).await? {
        Value::Error(text) => Err(text),
        _ => Ok(name),
    })
}

fn print(rows: &[Row], words: &Bench) -> Result<(), Failure> {
    show::print_text(&format!(
        "{}, {} at a time, {} s each; a time is that of a pair\n",
        count(words.clients as usize, "connection"),
        count(words.pipeline as usize, "command"),
        words.seconds
    ))?;
    show::print_text("")?;
    let bulk = |text: &str| Value::Bulk(text.into());
    let mut head = vec![
        bulk("rideau"),
        bulk("pairs/s"),
        bulk("p50_us"),
        bulk("p99_us"),
    ];
    if words.against.is_some() {
        let names = ["redis", "pairs/s", "p50_us", "p99_us", "ratio"];
        head.extend(names.map(bulk));
    }
    let mut lines = vec![Value::Array(head)];
    for row in rows.iter().filter(|row| row.ours.is_ok()) {
        lines.push(Value::Array(row.cells()));
    }
    if let Some(table) = Table::of(&Value::Array(lines)) {
        table.print()?;
    }
    for row in rows {
        let theirs = row.theirs.as_ref().and_then(|theirs| theirs.as_ref().err());
        for why in row.ours.as_ref().err().into_iter().chain(theirs) {
            show::print_text(&format!("{}: {why}", row.name))?;
        }
    }
    Ok(())
}

impl Row {
    /// All of it could be measured.
    fn is_whole(&self) -> bool {
        self.ours.is_ok() && self.theirs.as_ref().is_none_or(Result::is_ok)
    }

    fn cells(&self) -> Vec<Value> {
        let bulk = |text: &str| Value::Bulk(text.into());
        let numbers = |measured: &Result<Measured, String>| match measured {
            Ok(measured) => [
                Value::Integer(measured.rate() as i64),
                Value::Integer(measured.quantile(0.5)),
                Value::Integer(measured.quantile(0.99)),
            ],
            Err(_) => [Value::Null, Value::Null, Value::Null],
        };
        let mut cells = vec![bulk(self.name)];
        cells.extend(numbers(&self.ours));
        if let Some(theirs) = &self.theirs {
            cells.push(bulk(self.beside));
            cells.extend(numbers(theirs));
            let ratio = self.ratio().map(|ratio| bulk(&format!("{ratio:.2}")));
            cells.push(ratio.unwrap_or(Value::Null));
        }
        cells
    }

    /// How many times faster we are.
    fn ratio(&self) -> Option<f64> {
        let theirs = self.theirs.as_ref()?.as_ref().ok()?.rate();
        let ours = self.ours.as_ref().ok()?.rate();
        (theirs > 0.0).then(|| ours / theirs)
    }

    fn json(&self) -> serde_json::Value {
        let side = |measured: &Result<Measured, String>| match measured {
            Ok(measured) => json!({
                "pairs_per_second": measured.rate(),
                "p50_us": measured.quantile(0.5),
                "p99_us": measured.quantile(0.99),
                "p99": span::shown(measured.quantile(0.99)),
            }),
            Err(why) => json!({ "error": why }),
        };
        json!({
            "name": self.name,
            "rideau": side(&self.ours),
            "beside": self.beside,
            "redis": self.theirs.as_ref().map(side),
            "ratio": self.ratio(),
        })
    }
}
