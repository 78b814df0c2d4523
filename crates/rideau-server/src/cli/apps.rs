//! Commands for applications and their logs.

use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, ValueEnum};
use rideau_resp::Value;
use serde_json::json;

use super::table::Table;
use super::{Done, Failure, Manner, answer, control, show, terminal};
use crate::wire::Wire;

#[derive(Args, Debug)]
pub(crate) struct Restart {
    /// The application
    name: String,
    /// Have the old processes finish before new ones start
    #[arg(long, conflicts_with = "now")]
    blocking: bool,
    /// Stop the old processes at once, whatever they serve
    #[arg(long)]
    now: bool,
    /// Wait until the new code serves alone; if it is not used, say why and end with 1
    #[arg(long)]
    wait: bool,
}

#[derive(Args, Debug)]
pub(crate) struct TrialWords {
    /// The application
    name: String,
    /// The verdict on its new code
    #[arg(value_enum)]
    verdict: Verdict,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Verdict {
    /// It replaces the old code
    Accept,
    /// The old code goes on
    Reject,
}

#[derive(Args, Debug)]
pub(crate) struct OneProcess {
    /// The pid of a process, from `rideau status processes`
    #[arg(value_parser = pid)]
    pid: u64,
}

#[derive(Args, Debug)]
pub(crate) struct OneApp {
    /// The application
    name: String,
}

#[derive(Args, Debug)]
pub(crate) struct Logs {
    /// The application
    name: String,
    /// How many of the last lines to show
    #[arg(short = 'n', long, value_name = "COUNT", default_value_t = 100)]
    lines: u32,
    /// Follow new output
    #[arg(short, long)]
    follow: bool,
}

/// How often new lines are looked for.
const LOOK_AGAIN: Duration = Duration::from_millis(300);
/// How many lines are looked at then.
const LINES_MAX: &str = "1000";
/// How the server calls us.
const NAME: &str = "rideau-cli";

fn pid(text: &str) -> Result<u64, String> {
    show::number(text, "a process", "processes")
}

pub(crate) async fn restart(words: &Restart, manner: &Manner) -> Done {
    let how = match (words.blocking, words.now) {
        (true, _) => "BLOCKING",
        (_, true) => "NOW",
        _ => "ROLLING",
    };
    let request = ["APP.RESTART", &words.name, how];
    if !words.wait {
        return told(&request, manner).await;
    }
    let mut wire = control::connect(manner, NAME).await?;
    show::good(wire.ask(&request).await?)?;
    deployed(&mut wire, &words.name, manner).await
}

/// Wait until the code that was just begun is all that serves, or is not used.
async fn deployed(wire: &mut Wire, name: &str, manner: &Manner) -> Done {
    let mut begun = None;
    loop {
        let answer = show::good(wire.ask(&["SHOW", "APPS", name]).await?)?;
        let cell = |column| Table::of(&answer).and_then(|table| table.cell(0, column));
        let (Some(state), Some(generation)) = (cell("state"), cell("generation")) else {
            return Err(Failure::Broken(format!("app {name} is there no more")));
        };
        if *begun.get_or_insert_with(|| generation.clone()) != generation {
            return Err(Failure::Broken(format!(
                "app {name} was restarted once more meanwhile, to generation {generation}"
            )));
        }
        let why = || cell("why").map_or_else(String::new, |why| format!(": {why}"));
        match state.as_str() {
            "ready" | "stopped" => {
                let text = match state.as_str() {
                    "ready" => "serves",
                    _ => "is used from the next request on",
                };
                let text = format!("OK generation {generation} {text}");
                return answer::print(Value::Simple(text), manner);
            }
            "deploy_failed" => {
                return Err(Failure::Broken(format!(
                    "generation {generation} of app {name} is not used{}",
                    why()
                )));
            }
            "failing" => {
                return Err(Failure::Broken(format!(
                    "app {name} does not start{}",
                    why()
                )));
            }
            _ => tokio::time::sleep(LOOK_AGAIN).await,
        }
    }
}

pub(crate) async fn trial(words: &TrialWords, manner: &Manner) -> Done {
    let verdict = match words.verdict {
        Verdict::Accept => "ACCEPT",
        Verdict::Reject => "REJECT",
    };
    told(&["APP.TRIAL", &words.name, verdict], manner).await
}

pub(crate) async fn spawn(words: &OneApp, manner: &Manner) -> Done {
    told(&["APP.SPAWN", &words.name], manner).await
}

pub(crate) async fn to_process(command: &str, words: &OneProcess, manner: &Manner) -> Done {
    told(&[command, &words.pid.to_string()], manner).await
}

async fn told(request: &[&str], manner: &Manner) -> Done {
    let mut wire = control::connect(manner, NAME).await?;
    answer::print(show::good(wire.ask(request).await?)?, manner)
}

pub(crate) async fn logs(words: &Logs, manner: &Manner) -> Done {
    let mut wire = control::connect(manner, NAME).await?;
    let count = words.lines.max(1).to_string();
    let mut last = 0;
    let mut asked = count.as_str();
    loop {
        let answer = wire.ask(&["APP.LOG", &words.name, "LINES", asked]).await?;
        let answer = show::good(answer)?;
        for line in show::elements(&answer) {
            let parts = show::elements(line);
            let [Value::Integer(serial), process, stream, text] = parts else {
                continue;
            };
            if *serial > last {
                last = *serial;
                print(process, stream, text, manner)?;
            }
        }
        if !words.follow {
            return Ok(ExitCode::SUCCESS);
        }
        asked = LINES_MAX;
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}

fn print(process: &Value, stream: &Value, text: &Value, manner: &Manner) -> io::Result<()> {
    let (process, stream, text) = (show::text(process), show::text(stream), show::text(text));
    let mut out = io::stdout();
    if manner.json {
        let line = json!({ "process": process, "stream": stream, "text": text });
        writeln!(out, "{}", terminal::json(&line.to_string()))?;
    } else {
        // Its colours are for a file or a pager that wants them; what it logs of strangers is
        // no word for a terminal.
        let text = terminal::payload(&text, &out);
        writeln!(out, "{process} {stream} {text}")?;
    }
    out.flush()
}
