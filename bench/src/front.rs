//! HTTP in front of an application: our front beside nginx, the same tiny
//! application behind all of them and alone.
//!
//! `wrk` asks over 1, 16 and 128 connections that it keeps. Processor time is
//! that of a front and its application together; that of `wrk` is not in it.
//! All servers are started once and are there for all cases; they, `wrk` and
//! the applications share all cores. Then our front alone: how long a first
//! answer takes that has to start the application, and whether a request fails
//! while its processes are killed or restarted. Then both with requests of other
//! kinds: bodies, answers in pieces, TLS, HTTP/2, files, compression. HTTP/2 is
//! measured where `h2load` is installed, which Debian has in `nghttp2-client`.
//! Passenger is a last part, where it is installed or `BENCH_PASSENGER=1` says
//! that it should be.
//!
//! `BENCH_CASE=16` (or `cold`, `faults`, `post-64k`, `post-1m`, `chunked`, `tls`,
//! `h2`, `file-4k`, `file-1m`, `gzip`, `passenger`) measures that case alone,
//! `BENCH_CASE=tls,h2` these two, and `BENCH_SUBJECT=rideau,nginx` these fronts,
//! for a look with `perf`.

mod app;
mod clients;
mod cold;
mod faults;
mod goals;
mod h2load;
mod kinds;
mod look;
mod nginx;
mod ours;
mod passenger;
mod question;
mod site;
mod started;
mod wrk;

use std::cell::Cell;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

pub(crate) use self::app::{WORD as APP, serve as serve_app};

use self::app::start_app;
use self::nginx::Kept;
use self::ours::Listen;
use self::question::{Question, Wire};
use self::site::Site;
use self::started::{Place, Started, free_address};
use crate::measure::{self, Family, Metric, Plan, Row, Sample, Stall, Subject, compare};
use crate::report::{Format, OURS, Verdict, print, print_lines};
use crate::talk::program;

/// The application without anything in front.
const ALONE: &str = "app";
/// The application, started without a front.
const BY_HAND: &str = "by-hand";
const OURS_SOCKET: &str = "rideau-socket";
const NGINX: &str = "nginx";
const NGINX_SOCKET: &str = "nginx-socket";
/// With a new connection for each request.
const NGINX_CLOSE: &str = "nginx-close";
const PASSENGER: &str = "passenger";

/// A front with its application, ready to be asked.
struct Contestant {
    name: &'static str,
    address: SocketAddr,
    servers: Vec<Started>,
    /// Processes of theirs that left their parents.
    elsewhere: Vec<u32>,
    failed: Cell<u64>,
    /// What it serves beside the application.
    site: Option<Site>,
}

/// What is asked, and what we should reach then.
struct Case {
    name: &'static str,
    /// What is special about it.
    title: &'static str,
    question: Question,
    judge: fn(&[Row]) -> Vec<Verdict>,
}

const CASES: [Case; 3] = [
    case("1", 1, |_| Vec::new()),
    case("16", 16, goals::beside_nginx),
    case("128", 128, goals::beside_nginx),
];

const PASSENGER_CASES: [Case; 2] = [
    case("passenger-16", 16, goals::beside_passenger),
    case("passenger-128", 128, goals::beside_passenger),
];

const fn case(name: &'static str, connections: usize, judge: fn(&[Row]) -> Vec<Verdict>) -> Case {
    Case {
        name,
        title: "small requests",
        question: Question::small(connections),
        judge,
    }
}

pub(crate) fn run(plan: &Plan, format: Format) {
    wrk::want("wrk", "wrk");
    wrk::want("nginx", "nginx-light");
    let program = program();
    eprintln!("ours: {}", program.display());
    let has_front = has_front(&program);

    if CASES.iter().any(|case| is_wanted(case.name)) {
        let contestants = contestants(&program, has_front);
        for case in CASES.iter().filter(|case| is_wanted(case.name)) {
            contest(case, &contestants, plan, format);
        }
    }
    if has_front && is_wanted("cold") {
        cold::run(&program, plan, format);
    }
    if has_front && is_wanted("faults") {
        faults::run(&program, plan, format);
    }
    kinds::run(&program, has_front, plan, format);
    if is_wanted("passenger") {
        passenger::run(&program, has_front, plan, format);
    }
}

fn is_wanted(case: &str) -> bool {
    measure::is_wanted("BENCH_CASE", case)
}

fn subject_is_wanted(name: &str) -> bool {
    measure::is_wanted("BENCH_SUBJECT", name)
}

/// Whether our program is one that serves applications.
fn has_front(program: &Path) -> bool {
    match ours::start(program, &ours::steady(Listen::Port)) {
        Ok(_) => true,
        Err(why) => {
            eprintln!("ours is left out, it does not serve [front] and [app]: {why}");
            false
        }
    }
}

fn contestants(program: &Path, has_front: bool) -> Vec<Contestant> {
    let names = [ALONE, OURS, OURS_SOCKET, NGINX, NGINX_SOCKET, NGINX_CLOSE];
    let is_wanted = |name: &&str| {
        let is_ours = [OURS, OURS_SOCKET].contains(name);
        (has_front || !is_ours) && subject_is_wanted(name)
    };
    let wanted = names.into_iter().filter(is_wanted);
    let started: Vec<_> = wanted
        .map(|name| match name {
            OURS => ours_contestant(OURS, program, Listen::Port),
            OURS_SOCKET => ours_contestant(OURS_SOCKET, program, Listen::Socket),
            NGINX => nginx::start(name, "port", Kept::Yes, None),
            NGINX_SOCKET => nginx::start(name, "socket", Kept::Yes, None),
            NGINX_CLOSE => nginx::start(name, "port", Kept::No, None),
            _ => {
                let address = free_address();
                Contestant::new(ALONE, address, vec![start_app(Place::Port(address))])
            }
        })
        .collect();
    assert!(
        !started.is_empty(),
        "no such front; there are {}",
        names.join(", ")
    );
    started
}

fn ours_contestant(name: &'static str, program: &Path, listen: Listen) -> Contestant {
    let ours = ours::start(program, &ours::steady(listen));
    let ours = ours.unwrap_or_else(|why| panic!("{name}: {why}"));
    // The others have an application that runs already: one request waits for
    // it.
    clients::ask_once(ours.address).expect("the application can be started");
    Contestant::new(name, ours.address, vec![ours.server])
}

fn contest(case: &Case, contestants: &[Contestant], plan: &Plan, format: Format) {
    let subjects: Vec<_> = contestants
        .iter()
        .map(|contestant| Subject {
            name: contestant.name,
            run: Box::new(|| contestant.load(&case.question)),
        })
        .collect();
    let rows = compare(&subjects, plan);
    let failed = contestants.iter().filter_map(|contestant| {
        let failed = contestant.failed.take();
        (failed > 0).then(|| goals::no_failure(contestant.name, failed))
    });
    let verdicts = (case.judge)(&rows).into_iter().chain(failed).collect();
    let connections = case.question.connections;
    let title = format!("front: {}, {connections} connections", case.title);
    show(&title, case.name, &rows, verdicts, format);
}

/// Prints what was measured, and which goals were met.
fn show(title: &str, case: &str, rows: &[Row], verdicts: Vec<Verdict>, format: Format) {
    match format {
        Format::Table => print_lines(title, rows, verdicts.into_iter()),
        Format::Json => {
            print("front", case, rows, format);
            for verdict in verdicts {
                eprintln!("front {case} goal: {verdict}");
            }
        }
    }
}

/// `wrk` counts in whole seconds; many short runs see more of a machine's moods
/// than few long ones.
const SECONDS: u64 = 1;

fn is_quick(plan: &Plan) -> bool {
    plan.window <= Plan::QUICK.window
}

impl Contestant {
    fn new(name: &'static str, address: SocketAddr, servers: Vec<Started>) -> Self {
        Self {
            name,
            address,
            servers,
            elsewhere: Vec::new(),
            failed: Cell::new(0),
            site: None,
        }
    }

    /// Lets clients ask for a while.
    fn load(&self, question: &Question) -> Result<Sample, Stall> {
        let elsewhere = self.elsewhere.iter().copied().map(Family::of);
        let families = self.servers.iter().map(Started::family);
        let families: Vec<_> = families.chain(elsewhere).collect();
        let cpu_time = || families.iter().map(Family::cpu_time).sum::<Duration>();
        let before = cpu_time();
        let url = self.url(question);
        let told = match question.wire {
            Wire::Plain | Wire::Tls => wrk::run(&url, question, SECONDS),
            Wire::Http2 => h2load::run(&url, question, SECONDS),
        };
        let cpu = cpu_time().saturating_sub(before);
        self.failed.set(self.failed.get() + told.failed);
        if told.requests == 0 {
            return Err(Stall { turns_late: 0 });
        }
        Ok(vec![
            (Metric::Ops, told.rate),
            (Metric::Cpu, cpu.as_nanos() as f64 / told.requests as f64),
            (Metric::P50, told.p50),
            (Metric::P99, told.p99),
        ])
    }

    fn url(&self, question: &Question) -> String {
        let path = question.path;
        match (question.wire, &self.site) {
            (Wire::Plain, _) => format!("http://{}{path}", self.address),
            (_, Some(site)) => format!("https://{}{path}", site.within_tls),
            (_, None) => panic!("{} does not speak TLS", self.name),
        }
    }
}
