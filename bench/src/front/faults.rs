//! Processes are killed, and the application is restarted, while clients GET
//! without a pause: no request may fail, and how long did the longest take?

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::clients::{Answers, ask_for};
use super::ours::{self, Listen, Ours, Setting};
use super::started::this_program;
use super::{app, goals, is_quick};
use crate::measure::Plan;
use crate::report::{Format, OURS, short};

const CLIENTS: usize = 16;

/// What happens while clients ask.
struct Case {
    name: &'static str,
    processes: usize,
    /// How often.
    every: Duration,
    /// For how long; a quick run does less.
    len: Duration,
    quick_len: Duration,
    happens: fn(&Ours, &PidFolder),
}

const CASES: [Case; 3] = [
    Case {
        name: "kill-1",
        processes: 1,
        every: Duration::from_secs(1),
        len: Duration::from_secs(10),
        quick_len: Duration::from_secs(4),
        happens: kill,
    },
    Case {
        name: "kill-2",
        processes: 2,
        every: Duration::from_secs(1),
        len: Duration::from_secs(10),
        quick_len: Duration::from_secs(4),
        happens: kill,
    },
    Case {
        name: "restart",
        processes: 1,
        every: Duration::from_secs(2),
        len: Duration::from_secs(20),
        quick_len: Duration::from_secs(5),
        happens: restart,
    },
];

/// Where processes of the application have left their ids.
struct PidFolder(PathBuf);

pub(super) fn run(program: &Path, plan: &Plan, format: Format) {
    if matches!(format, Format::Table) {
        println!("front: faults, while {CLIENTS} clients GET without a pause");
        println!("           req/s    failed   p99        longest    faults   started");
    }
    for case in &CASES {
        let len = if is_quick(plan) {
            case.quick_len
        } else {
            case.len
        };
        let (answers, faults, started) = suffer(case, program, len);
        case.print(&answers, faults, started, format);
    }
    if matches!(format, Format::Table) {
        println!();
    }
}

/// What became of requests, how often it happened, and how many processes
/// there were one after the other.
fn suffer(case: &Case, program: &Path, len: Duration) -> (Answers, usize, usize) {
    let folder = crate::talk::Folder::new();
    let pids = PidFolder(folder.path().to_owned());
    let setting = Setting {
        listen: Listen::Port,
        min: case.processes,
        max: case.processes,
        app: app::Options {
            pids: Some(pids.0.clone()),
            ..app::Options::default()
        },
    };
    let ours = ours::start(program, &setting).expect("it started before");
    pids.wait_for(case.processes);
    let mut faults = 0;
    let answers = thread::scope(|scope| {
        let clients = scope.spawn(|| ask_for(ours.address, CLIENTS, len));
        let until = Instant::now() + len;
        // The last one leaves time to see what comes of it.
        while Instant::now() + case.every + case.every / 2 < until {
            thread::sleep(case.every);
            (case.happens)(&ours, &pids);
            faults += 1;
        }
        clients.join().expect("clients do not panic")
    });
    (answers, faults, pids.processes().len())
}

/// The oldest process of the application gets no chance to say anything.
fn kill(_ours: &Ours, pids: &PidFolder) {
    if let Some(process) = pids.processes().into_iter().find(|pid| is_app(*pid)) {
        let _ = kill_process(process, Signal::KILL);
    }
}

/// As a deploy does: touches the marker.
fn restart(ours: &Ours, _census: &PidFolder) {
    let marker = ours.root.join("tmp/restart.txt");
    fs::write(marker, "").expect("the temporary folder can be written");
}

/// Another program may have got the id meanwhile.
fn is_app(process: Pid) -> bool {
    let runs = fs::read_link(format!("/proc/{}/exe", process.as_raw_nonzero()));
    runs.is_ok_and(|program| program == this_program())
}

impl PidFolder {
    /// Those that run and that ran, the first one first.
    fn processes(&self) -> Vec<Pid> {
        let files = fs::read_dir(&self.0).expect("the folder is ours").flatten();
        let mut found: Vec<_> = files
            .filter_map(|file| {
                let process = file.file_name().to_str()?.parse().ok()?;
                Some((file.metadata().ok()?.modified().ok()?, process))
            })
            .collect();
        found.sort();
        let ids = found.into_iter().map(|(_, process)| process);
        ids.filter_map(Pid::from_raw).collect()
    }

    fn wait_for(&self, count: usize) {
        let until = Instant::now() + Duration::from_secs(10);
        while self.processes().len() < count {
            assert!(Instant::now() < until, "ours starts too few processes");
            thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Case {
    fn print(&self, answers: &Answers, faults: usize, started: usize, format: Format) {
        let name = self.name;
        let answered = answers.waits.len() as f64;
        let rate = answered / answers.elapsed.as_secs_f64();
        let p99 = answers.waits.value_at_quantile(0.99);
        let longest = answers.waits.max();
        let verdict = goals::no_failure(name, answers.failed);
        match format {
            Format::Table => {
                let [p99, longest] = [p99, longest].map(|nanos| {
                    let span = Duration::from_nanos(nanos);
                    format!("{span:.1?}")
                });
                let (rate, failed) = (short(rate), answers.failed);
                println!(
                    "  {name:<8} {rate:<8} {failed:<8} {p99:<10} {longest:<10} {faults:<8} \
                     {started}"
                );
                println!("  goal: {verdict}");
            }
            Format::Json => {
                let numbers = [
                    ("ops_s", rate),
                    ("failed", answers.failed as f64),
                    ("p99_ns", p99 as f64),
                    ("longest_ns", longest as f64),
                    ("faults", faults as f64),
                    ("started", started as f64),
                ];
                for (metric, value) in numbers {
                    println!(
                        "{{\"bench\":\"front\",\"case\":\"{name}\",\"subject\":\"{OURS}\",\
                         \"metric\":\"{metric}\",\"value\":{value:.3}}}"
                    );
                }
                eprintln!("front {name} goal: {verdict}");
            }
        }
        for why in &answers.why {
            eprintln!("  ! {name}: {why}");
        }
    }
}
