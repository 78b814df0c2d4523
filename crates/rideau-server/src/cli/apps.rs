//! Commands for applications and their logs.

use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use rideau_resp::Value;
use serde_json::json;

use super::{Done, Manner, answer, control, show, terminal};

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
    told(&["APP.RESTART", &words.name, how], manner).await
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
