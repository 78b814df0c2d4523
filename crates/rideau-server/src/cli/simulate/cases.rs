//! What is to be simulated: one scenario for each queue, size and load.

use std::fs;
use std::time::Duration;

use rideau_core::queue;
use rideau_simulate::{Arrivals, Place, RunEnd, RunOutcome, Scenario, Service, simulate};

use super::record::{self, ArrivalRecord};
use super::recorded::{self, PoolRecord};
use super::words::{self, Source};
use super::work::Progress;
use super::{Failure, Manner, REQUESTS, Simulate, span};

/// All that is to be simulated.
#[derive(Clone, Debug)]
pub(super) struct Cases {
    /// Everything but queue, size and load.
    pub(super) scene: Scenario,
    /// The queues, with their words.
    pub(super) queues: Vec<(String, queue::Options)>,
    /// The user named them.
    pub(super) is_named: bool,
    pub(super) servers: Vec<u32>,
    pub(super) loads: Vec<f64>,
    /// What arrivals and times are, in the words of the user.
    pub(super) arrivals: String,
    pub(super) service: String,
}

/// One scenario, with its name.
#[derive(Clone, Debug)]
pub(super) struct Case {
    /// The words of its queue.
    pub(super) queue: String,
    pub(super) scenario: Scenario,
    /// There are several queues, and several sizes, to tell apart.
    pub(super) is_one_of: (bool, bool),
}

/// The queue if none is named.
const QUEUE: &str = "kind=paced";
const SERVERS: u32 = 8;
const SERVICE: &str = "exponential:10ms";
/// As many as are recorded.
const WHOLE_RECORD: u64 = u64::MAX;

/// What was found of the words.
#[derive(Default)]
struct Found {
    arrivals: Option<Arrivals>,
    service: Option<Service>,
    count: Option<u64>,
    pool: Option<PoolRecord>,
}

impl Cases {
    pub(super) fn read(words: &Simulate, manner: &Manner) -> Result<Self, Failure> {
        let found = Found::read(words, manner)?;
        let queues = found.queues(words)?;
        let (count, pool) = (found.count, found.pool);
        // The record of the arrivals says it, if nothing else does.
        let recorded = words.arrivals.clone().filter(|_| found.service.is_some());
        let service = match found.service {
            Some(service) => service,
            None => here(words::service(SERVICE))?,
        };
        let mut servers = words.servers.clone();
        if servers.is_empty() {
            servers.push(pool.as_ref().map_or(SERVERS, |pool| pool.members));
        }
        let capacity = service
            .mean()
            .map(|mean| f64::from(servers[0]) * 1e9 / mean);
        let arrivals = match (found.arrivals, capacity) {
            (Some(arrivals), _) => arrivals,
            (None, Some(per_s)) => Arrivals::Poisson { per_s },
            (None, None) => return Err(Failure::Broken("nothing was served".into())),
        };
        let is_whole = arrivals.span(1.0).is_some();
        let usual = if is_whole { WHOLE_RECORD } else { REQUESTS };
        let requests = words.requests.or(count).unwrap_or(usual);
        let place = words::place(words.at.as_deref(), words.valve.as_deref(), words.start);
        let wants_row = words.svg.is_some() || words.html.is_some();
        let loads = match &words.load {
            Some(loads) => loads.0.clone(),
            None if wants_row => words::loads("0.5..4").map_err(Failure::Misuse)?.0,
            None => vec![1.0],
        };
        let per_s = arrivals.per_s().unwrap_or(0.0);
        Ok(Self {
            arrivals: (words.arrivals.clone())
                .unwrap_or_else(|| format!("poisson, {per_s:.1} a second")),
            service: (words.service.clone().or(recorded)).unwrap_or_else(|| SERVICE.into()),
            scene: Scenario {
                place: place.map_err(Failure::Misuse)?,
                servers: servers[0],
                queue: queues[0].1.clone(),
                arrivals,
                load: loads[0],
                service,
                stalls: None,
                patience: words.patience,
                retries: words.retries,
                useful: words.useful,
                flows: words.flows,
                is_busy: words.busy,
                end: words.until.map_or(RunEnd::Requests(requests), RunEnd::At),
                from: words.from.unwrap_or_default(),
                keeps_serves: false,
                seed: words.seed,
            },
            is_named: !words.queue.is_empty(),
            queues,
            servers,
            loads,
        })
    }

    /// One case for each queue, size and load, in this order.
    pub(super) fn all(&self) -> Vec<Case> {
        let is_one_of = (self.queues.len() > 1, self.servers.len() > 1);
        let mut all = Vec::new();
        for (words, queue) in &self.queues {
            for servers in &self.servers {
                all.extend(self.loads.iter().map(|load| Case {
                    queue: words.clone(),
                    scenario: Scenario {
                        queue: queue.clone(),
                        servers: *servers,
                        load: *load,
                        ..self.scene.clone()
                    },
                    is_one_of,
                }));
            }
        }
        all
    }

    /// A sentence about all of it.
    pub(super) fn headline(&self) -> String {
        let place = match self.scene.place {
            Place::Pool { .. } => "a pool",
            Place::Broker => "a broker",
            Place::Regulator { .. } => "a regulator",
            Place::Queue { .. } => "a queue",
        };
        let end = match self.scene.end {
            RunEnd::Requests(WHOLE_RECORD) => "the whole record".into(),
            RunEnd::Requests(count) => format!("{count} requests"),
            RunEnd::At(until) => span::shown(i64::try_from(until.as_micros()).unwrap_or(i64::MAX)),
        };
        format!(
            "Simulated: {place}, arrivals {}, times {}, {end}, seed {}.",
            self.arrivals, self.service, self.scene.seed
        )
    }
}

impl Found {
    fn read(words: &Simulate, manner: &Manner) -> Result<Self, Failure> {
        let mut found = Self::default();
        let arrivals = words.arrivals.as_deref().map(words::arrivals).transpose();
        let service = words.service.as_deref().map(words::service).transpose();
        let (arrivals, service) = (
            arrivals.map_err(Failure::Misuse)?,
            service.map_err(Failure::Misuse)?,
        );
        match &arrivals {
            None => (),
            Some(Source::Here(arrivals)) => found.arrivals = Some(arrivals.clone()),
            Some(Source::File(file)) => {
                let record = read_file(file)?;
                found.arrivals = Some(record.arrivals);
                found.service = record.service;
                found.count = record.count;
            }
            Some(Source::Pool(name)) => {
                let pool = recorded::pool(name, manner)?;
                found.arrivals = Some(pool.arrivals()?);
                found.service = Some(pool.service()?);
                found.pool = Some(pool);
            }
        }
        match service {
            None => (),
            Some(Source::Here(service)) => found.service = Some(service),
            Some(Source::File(file)) => {
                let service = read_file(&file)?.service;
                let fault = || Failure::Broken(format!("{file} says nothing of service times"));
                found.service = Some(service.ok_or_else(fault)?);
            }
            Some(Source::Pool(name)) => {
                let known = found.pool.take().filter(|pool| pool.name == name);
                let pool = match known {
                    Some(pool) => pool,
                    None => recorded::pool(&name, manner)?,
                };
                found.service = Some(pool.service()?);
                found.pool = Some(pool);
            }
        }
        Ok(found)
    }
}

impl Found {
    /// Those that are named, or that of the pool, or the usual one.
    fn queues(&self, words: &Simulate) -> Result<Vec<(String, queue::Options)>, Failure> {
        let named = words.queue.iter();
        let named = named.map(|text| Ok((text.clone(), words::queue(text)?)));
        let queues: Vec<_> = named
            .collect::<Result<_, String>>()
            .map_err(Failure::Misuse)?;
        if !queues.is_empty() {
            return Ok(queues);
        }
        Ok(vec![match &self.pool {
            Some(pool) => {
                let queue = words::queue(&pool.queue).map_err(Failure::Broken)?;
                (pool.queue.clone(), queue)
            }
            None => (QUEUE.into(), queue::Options::default()),
        }])
    }
}

impl Case {
    /// How much work it is, about: the requests that come.
    pub(super) fn size(&self) -> u64 {
        let scenario = &self.scenario;
        let per_s = scenario.arrivals.per_s().unwrap_or(0.0) * scenario.load;
        match scenario.end {
            RunEnd::Requests(WHOLE_RECORD) => {
                let span = scenario.arrivals.span(scenario.load).unwrap_or(0);
                (per_s * span as f64 / 1e9) as u64
            }
            RunEnd::Requests(count) => count,
            RunEnd::At(until) => (per_s * until.as_secs_f64()) as u64,
        }
    }

    /// Run it.
    pub(super) fn run(&self, progress: &Progress) -> Result<RunOutcome, Failure> {
        let mut before = 0;
        let outcome = simulate(&self.scenario, &mut |come| {
            progress.add(come - before);
            before = come;
        });
        let outcome = outcome.map_err(|error| Failure::Misuse(error.to_string()))?;
        progress.add(outcome.requests - before);
        Ok(outcome)
    }

    /// What tells it from the others but the load.
    pub(super) fn label(&self) -> String {
        let servers = self.scenario.servers;
        match self.is_one_of {
            (_, false) => self.queue.clone(),
            (true, true) => format!("{}, {servers} servers", self.queue),
            (false, true) => format!("{servers} servers"),
        }
    }
}

fn here<T>(source: Result<Source<T>, String>) -> Result<T, Failure> {
    match source {
        Ok(Source::Here(it)) => Ok(it),
        _ => Err(Failure::Broken("a default has no source".into())),
    }
}

fn read_file(file: &str) -> Result<ArrivalRecord, Failure> {
    let fault = |error: &dyn std::fmt::Display| Failure::Broken(format!("{file}: {error}"));
    let text = fs::read_to_string(file).map_err(|error| fault(&error))?;
    record::read(&text).map_err(|error| fault(&error))
}

/// A span in microseconds, with its nanoseconds behind the point.
pub(super) fn micros(span: Duration) -> f64 {
    span.as_nanos() as f64 / 1e3
}
