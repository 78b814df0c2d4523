//! Searches sizes and shedding policies for a goal, and says what each costs.

use std::process::ExitCode;
use std::time::Duration;

use rideau_config::show_span;
use rideau_core::queue;
use rideau_resp::Value;
use rideau_simulate::{
    Found, Goal, Measure, RunEnd, RunOutcome, Scenario, fewest_servers, simulate,
};
use serde_json::{Value as Json, json};

use super::cases::{Cases, micros};
use super::report::{percent, rate};
use super::work::{self, Progress};
use super::{Done, Failure, Manner, show, words};
use crate::cli::table::Table;

/// What a queue comes to.
#[derive(Clone, Debug)]
struct Candidate {
    queue: String,
    /// With the servers there are.
    now: Tried,
    /// With the fewest that reach the goal.
    best: Option<Tried>,
    /// The search went up to this many.
    most: u32,
}

/// A number of servers that was tried.
#[derive(Clone, Copy, Debug)]
struct Tried {
    servers: u32,
    reaches: bool,
    /// The waits are those of the goal, whatever is refused.
    keeps_waits: bool,
    /// The mean wait and that of 99 of 100, in microseconds.
    wait_us: [f64; 2],
    lost: f64,
    goodput_per_s: f64,
    utilisation: f64,
}

/// Queues that are tried if none is named.
const QUEUES: [&str; 6] = [
    "kind=paced",
    "kind=never",
    "kind=bounded-codel",
    "kind=min-delay",
    "kind=standing",
    "kind=codel",
];
/// This part of the requests may get nothing if the goal does not say.
const SHED_MOST: f64 = 0.01;
/// A probe simulates this many requests at most: it only has to tell more from less.
const REQUESTS_MAX: u64 = 200_000;
/// How many times what is needed to serve all is tried at most.
const TIMES_MAX: u32 = 8;
/// About how many probes a search needs, for the bar.
const PROBES: u64 = 12;

pub(super) fn run(goal: &Goal, cases: &Cases, manner: &Manner) -> Done {
    let goal = with_bound(goal);
    let mut scene = cases.scene.clone();
    scene.load = goal.load;
    if let RunEnd::Requests(count) = scene.end {
        scene.end = RunEnd::Requests(count.min(REQUESTS_MAX));
    }
    let per_s = scene.arrivals.per_s().unwrap_or(1.0) * goal.load;
    let needed = per_s * scene.service.mean().unwrap_or(0.0) / 1e9;
    let needed = (needed.ceil() as u32).max(1);
    let most = needed
        .max(scene.servers)
        .saturating_mul(TIMES_MAX)
        .min(100_000);
    let queues = candidates(&goal, cases)?;
    let size = match scene.end {
        RunEnd::Requests(count) => count,
        RunEnd::At(until) => (per_s * until.as_secs_f64()) as u64,
    };
    let whole = size * PROBES * queues.len() as u64;
    let found = work::for_each(&queues, whole, |(words, options), progress| {
        search(words, options, &goal, &scene, (needed, most), progress)
    });
    let found: Vec<_> = found?.into_iter().map(|one| one.result).collect();
    if manner.json {
        let rows: Vec<_> = found.iter().map(Candidate::json).collect();
        show::print_json(&json!({
            "goal": goal.to_string(),
            "servers": scene.servers,
            "seed": scene.seed,
            "cheapest": cheapest(&found).map(Candidate::json),
            "candidates": rows,
        }))?;
    } else {
        print(&goal, &scene, cases, &found)?;
    }
    let is_reached = found.iter().any(|one| one.best.is_some());
    Ok(if is_reached {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// A goal that says nothing of refusals would be reached by refusing all.
fn with_bound(goal: &Goal) -> Goal {
    let mut goal = goal.clone();
    if goal.shed_most().is_none() {
        goal.bounds.push(rideau_simulate::Bound {
            measure: Measure::Shed,
            most: SHED_MOST,
        });
    }
    goal
}

fn candidates(goal: &Goal, cases: &Cases) -> Result<Vec<(String, queue::Options)>, Failure> {
    // What the user named, and not what stands for nothing.
    if cases.is_named {
        return Ok(cases.queues.clone());
    }
    let mut all: Vec<String> = QUEUES.iter().map(|&words| words.to_owned()).collect();
    let waits = goal
        .bounds
        .iter()
        .filter(|bound| bound.measure != Measure::Shed);
    let least = waits.map(|bound| bound.most).fold(f64::INFINITY, f64::min);
    if least.is_finite() && least > 0.0 {
        let wait = Duration::from_secs_f64(least.min(1e6));
        all.push(format!("kind=timeout timeout={}", show_span(wait)));
    }
    let read = |words: String| Ok((words.clone(), words::queue(&words)?));
    let all = all.into_iter().map(read).collect::<Result<_, String>>();
    all.map_err(Failure::Broken)
}

fn search(
    words: &str,
    options: &queue::Options,
    goal: &Goal,
    scene: &Scenario,
    (needed, most): (u32, u32),
    progress: &Progress,
) -> Result<Candidate, Failure> {
    let mut all = Vec::new();
    let mut probe = |servers: u32| {
        let scenario = Scenario {
            servers,
            queue: options.clone(),
            ..scene.clone()
        };
        let outcome = simulate(&scenario, &mut |_| ());
        let outcome = outcome.map_err(|error| Failure::Misuse(error.to_string()))?;
        progress.add(outcome.requests);
        let tried = Tried::of(servers, goal, outcome);
        all.push(tried);
        Ok::<_, Failure>(tried)
    };
    let now = probe(scene.servers)?;
    let guess = match now.reaches {
        true => scene.servers,
        false => needed.max(scene.servers + 1),
    };
    let found = fewest_servers(guess, most, |servers| {
        Ok::<_, Failure>(probe(servers)?.reaches)
    })?;
    let best = match found {
        Found::Fewest(servers) => all.iter().find(|tried| tried.servers == servers).copied(),
        Found::NotWith(_) => None,
    };
    Ok(Candidate {
        queue: words.to_owned(),
        now,
        best,
        most,
    })
}

/// The one that needs the fewest servers; of those the one that refuses fewest.
fn cheapest(found: &[Candidate]) -> Option<&Candidate> {
    let reached = found.iter().filter_map(|one| Some((one, one.best?)));
    let order = |one: &Tried, other: &Tried| {
        let servers = one.servers.cmp(&other.servers);
        servers.then(one.lost.total_cmp(&other.lost))
    };
    let best = reached.min_by(|one, other| order(&one.1, &other.1));
    best.map(|(one, _)| one)
}

fn print(goal: &Goal, scene: &Scenario, cases: &Cases, found: &[Candidate]) -> Result<(), Failure> {
    let servers = scene.servers;
    show::print_text(&format!(
        "Goal: {goal}. Arrivals {}, times {}, seed {}.\n",
        cases.arrivals, cases.service, scene.seed
    ))?;
    show::print_text("")?;
    let head = [
        "queue",
        "servers",
        "goal",
        "mean_us",
        "p99_us",
        "lost",
        "goodput/s",
        "busy",
    ];
    let head = head.map(|name| Value::Bulk(name.into())).to_vec();
    let mut lines = vec![Value::Array(head)];
    for one in found {
        lines.push(one.now.cells(&one.queue));
        match one.best {
            Some(best) if best.servers != one.now.servers => lines.push(best.cells(&one.queue)),
            _ => (),
        }
    }
    if let Some(table) = Table::of(&Value::Array(lines)) {
        table.print()?;
    }
    show::print_text("")?;
    let Some((one, best)) = cheapest(found).and_then(|one| Some((one, one.best?))) else {
        let most = found.iter().map(|one| one.most).max().unwrap_or(servers);
        show::print_text(&format!(
            "Nothing reaches the goal, not even {most} servers: a wait that is shorter than the \
             goal needs shorter service times, or a goal that allows more."
        ))?;
        return Ok(());
    };
    let cost = match i64::from(best.servers) - i64::from(servers) {
        0 => "as many as there are".to_owned(),
        more if more > 0 => format!("{more} more than there are"),
        fewer => format!("{} fewer than there are", -fewer),
    };
    show::print_text(&format!(
        "Cheapest: {} servers ({cost}) with {}. They are busy for {} of the time, and {} of the \
         requests get nothing.",
        best.servers,
        one.queue,
        percent(best.utilisation),
        percent(best.lost)
    ))?;
    if best.servers > servers {
        let waits = found.iter().filter(|one| one.now.keeps_waits);
        let kind = waits.min_by(|one, other| one.now.lost.total_cmp(&other.now.lost));
        show::print_text(&match kind {
            Some(one) => format!(
                "With the {servers} there are, {} keeps the waits, and {} of the requests get \
                 nothing.",
                one.queue,
                percent(one.now.lost)
            ),
            None => format!("With the {servers} there are, none of these keeps the waits."),
        })?;
    }
    Ok(())
}

impl Tried {
    fn of(servers: u32, goal: &Goal, mut outcome: RunOutcome) -> Self {
        let mut waits = goal.clone();
        waits.bounds.retain(|bound| bound.measure != Measure::Shed);
        Self {
            servers,
            reaches: goal.holds(&mut outcome),
            keeps_waits: waits.holds(&mut outcome),
            wait_us: [outcome.waits.mean(), outcome.waits.quantile(0.99)].map(micros),
            lost: outcome.lost(),
            goodput_per_s: outcome.goodput_per_s(),
            utilisation: outcome.utilisation,
        }
    }

    fn cells(&self, queue: &str) -> Value {
        let bulk = |text: String| Value::Bulk(text.into());
        let [mean, p99] = self.wait_us.map(|us| Value::Integer(us.round() as i64));
        Value::Array(vec![
            bulk(queue.into()),
            Value::Integer(self.servers.into()),
            bulk(if self.reaches { "reached" } else { "missed" }.into()),
            mean,
            p99,
            bulk(percent(self.lost)),
            bulk(rate(self.goodput_per_s)),
            bulk(percent(self.utilisation)),
        ])
    }

    fn json(&self) -> Json {
        json!({
            "servers": self.servers,
            "reaches": self.reaches,
            "wait": { "mean_us": self.wait_us[0], "p99_us": self.wait_us[1] },
            "lost": self.lost,
            "goodput_per_s": self.goodput_per_s,
            "utilisation": self.utilisation,
        })
    }
}

impl Candidate {
    fn json(&self) -> Json {
        json!({
            "queue": self.queue,
            "now": self.now.json(),
            "fewest": self.best.map(|best| best.json()),
            "servers_tried_max": self.most,
        })
    }
}
