//! Checks, plans and makes changes of the config.

use std::fs;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Subcommand};
use rideau_config::{
    Change, Config, Faults, Level, Opening, Plan, PlanStep, openings, sample, schema,
};
use rideau_daemon::files;
use rideau_process as process;
use rideau_resp::Value;
use serde_json::json;

use super::table::Table;
use super::{Done, Failure, Manner, answer, control, has_colours, show};
use crate::wire::WireFault;

#[derive(Args, Debug)]
pub(crate) struct OneFile {
    /// The config file; - is standard input
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

#[derive(Args, Debug)]
pub(crate) struct Check {
    /// The config file; - is standard input
    #[arg(value_name = "FILE", required_unless_present_any = ["sample", "schema"])]
    file: Option<PathBuf>,
    /// Print a file with every key instead, with what it is for and its default
    #[arg(long, conflicts_with_all = ["file", "schema"])]
    sample: bool,
    /// Print the JSON schema of config files instead, for editors
    #[arg(long, conflicts_with = "file")]
    schema: bool,
}

#[derive(Args, Debug)]
pub(crate) struct Rollback {
    /// The number of a version, from `rideau status history` [default: the one before this]
    #[arg(value_name = "N", value_parser = version)]
    version: Option<u64>,
}

#[derive(Args, Debug)]
pub(crate) struct Set {
    /// The key, as pool.pg-1.max
    path: String,
    /// Its new value, as TOML; text needs no quotes
    #[arg(allow_hyphen_values = true)]
    value: String,
}

/// How the server calls us.
const NAME: &str = "rideau-cli";

fn version(text: &str) -> Result<u64, String> {
    show::number(text, "a version", "history")
}

pub(crate) fn check(words: &Check, manner: &Manner) -> Done {
    let made = [
        (words.sample, sample as fn() -> String),
        (words.schema, schema),
    ];
    if let Some((_, make)) = made.iter().find(|(is_wanted, _)| *is_wanted) {
        io::stdout().write_all(make().as_bytes())?;
        return Ok(ExitCode::SUCCESS);
    }
    let file = words.file.as_deref().unwrap_or(Path::new("-"));
    let text = read(file)?;
    let (config, faults) = local(&text, file);
    if manner.json {
        let mut answer = faults_json(&faults);
        let open = config.iter().flat_map(opened).map(|open| open.text);
        answer["open"] = open.collect();
        show::print_json(&answer)?;
    } else {
        let mut out = io::stdout();
        let rendered = faults.render(has_colours(&out));
        out.write_all(rendered.as_bytes())?;
        for Opening { text, is_risky } in config.iter().flat_map(opened) {
            let level = if is_risky { "warning" } else { "open" };
            writeln!(out, "{level}: {text}")?;
        }
        for text in config.iter().filter_map(too_few_files) {
            writeln!(out, "warning: {text}")?;
        }
    }
    Ok(match config {
        Some(_) => ExitCode::SUCCESS,
        None => ExitCode::FAILURE,
    })
}

/// The keys that need more open files than the system allows this account.
fn too_few_files(config: &Config) -> Option<String> {
    files::shortage(process::open_files_max(), config)
}

/// The openings of the config if this account serves it.
fn opened(config: &Config) -> Vec<Opening> {
    openings(config, rustix::process::geteuid().is_root())
}

pub(crate) async fn plan(words: &OneFile, manner: &Manner) -> Done {
    let text = read(&words.file)?;
    match control::connect(manner, NAME).await {
        Ok(mut wire) => {
            let answer = wire.ask(&["CONFIG", "PLAN", &text]).await?;
            let answer = match better(answer, &text, &words.file, manner)? {
                Ok(answer) => answer,
                Err(code) => return Ok(code),
            };
            match read_plan(&answer).filter(|_| !manner.json) {
                Some(plan) => {
                    show::print_text(&plan.render(&words.file.display().to_string()))?;
                    Ok(ExitCode::SUCCESS)
                }
                None => answer::print(answer, manner),
            }
        }
        Err(WireFault::Unreachable { server, .. }) => {
            plan_alone(&text, &words.file, &server, manner)
        }
        Err(fault) => Err(fault.into()),
    }
}

/// Without a server there is only the default to compare with.
fn plan_alone(text: &str, file: &Path, server: &str, manner: &Manner) -> Done {
    let (config, faults) = local(text, file);
    let Some(config) = config else {
        return wrong(&faults, manner);
    };
    let plan = rideau_config::plan(&Config::default(), &config, None);
    if manner.json {
        let step = |step: &PlanStep| {
            json!({
                "path": step.path,
                "old": step.old,
                "new": step.new,
                "live": step.change == Change::Live,
                "meaning": step.meaning,
            })
        };
        let steps: Vec<_> = plan.steps.iter().map(step).collect();
        show::print_json(&json!({ "compared_with": "default", "steps": steps }))?;
        return Ok(ExitCode::SUCCESS);
    }
    show::complain(format!(
        "no server answers at {server}; this compares with the default config"
    ));
    show::print_text(&plan.render(&file.display().to_string()))?;
    Ok(ExitCode::SUCCESS)
}

pub(crate) async fn apply(words: &OneFile, manner: &Manner) -> Done {
    let text = read(&words.file)?;
    let answer = ask(&["CONFIG", "APPLY", &text], manner).await?;
    match better(answer, &text, &words.file, manner)? {
        Ok(answer) => applied(answer, manner),
        Err(code) => Ok(code),
    }
}

/// The server's answer, unless it has said in one line what is wrong with the
/// text and we find the same: we can show it better.
fn better(
    answer: Value,
    text: &str,
    file: &Path,
    manner: &Manner,
) -> Result<Result<Value, ExitCode>, Failure> {
    if matches!(&answer, Value::Error(error) if error.starts_with("CONFIG")) {
        let (config, faults) = local(text, file);
        if config.is_none() {
            return wrong(&faults, manner).map(Err);
        }
    }
    Ok(Ok(answer))
}

/// Say what was changed.
fn applied(answer: Value, manner: &Manner) -> Done {
    let Some(plan) = read_plan(&answer).filter(|_| !manner.json) else {
        return answer::print(answer, manner);
    };
    let text = plan.render("");
    // It is done already.
    let text = text.split("   Apply:").next().unwrap_or(&text);
    show::print_text(text)?;
    Ok(ExitCode::SUCCESS)
}

/// The plan in an answer.
fn read_plan(answer: &Value) -> Option<Plan> {
    let table = Table::of(answer)?;
    let step = |row: usize| {
        let cell = |name: &str| table.cell(row, name);
        Some(PlanStep {
            path: cell("path")?,
            old: cell("old"),
            new: cell("new"),
            change: match cell("change")?.as_str() {
                "restart" => Change::Restart,
                _ => Change::Live,
            },
            meaning: cell("meaning")?,
            shed: cell("shed")?.parse().ok()?,
        })
    };
    let steps: Option<Vec<_>> = (0..table.len()).map(step).collect();
    Some(Plan { steps: steps? })
}

/// What there is to do with the config that nodes of a cluster share.
#[derive(Args, Debug)]
pub(crate) struct ConfigWords {
    #[command(subcommand)]
    what: Share,
}

#[derive(Subcommand, Debug)]
enum Share {
    /// Have all nodes of the cluster do what this file says of what they share
    ///
    /// That is limits, users, locks, ranges, views, and pools, brokers and regulators with
    /// scope = "cluster". The rest of the file is not looked at.
    Push(OneFile),
}

pub(crate) async fn share(words: &ConfigWords, manner: &Manner) -> Done {
    let Share::Push(OneFile { file }) = &words.what;
    let text = read(file)?;
    let answer = ask(&["CONFIG", "PUSH", &text], manner).await?;
    match better(answer, &text, file, manner)? {
        Ok(answer) => applied(answer, manner),
        Err(code) => Ok(code),
    }
}

pub(crate) async fn reload(manner: &Manner) -> Done {
    applied(ask(&["CONFIG", "RELOAD"], manner).await?, manner)
}

pub(crate) async fn rollback(words: &Rollback, manner: &Manner) -> Done {
    let version = words.version.map(|version| version.to_string());
    let mut request = vec!["CONFIG", "ROLLBACK"];
    request.extend(version.as_deref());
    applied(ask(&request, manner).await?, manner)
}

pub(crate) async fn set(words: &Set, manner: &Manner) -> Done {
    let answer = ask(&["CONFIG", "SET", &words.path, &words.value], manner).await?;
    applied(answer, manner)
}

async fn ask(words: &[&str], manner: &Manner) -> Result<Value, Failure> {
    let mut wire = control::connect(manner, NAME).await?;
    Ok(wire.ask(words).await?)
}

/// The text of a file; `-` is standard input.
pub(crate) fn read(path: &Path) -> Result<String, Failure> {
    let read = if path == Path::new("-") {
        let mut text = String::new();
        io::stdin().read_to_string(&mut text).map(|_| text)
    } else {
        fs::read_to_string(path)
    };
    read.map_err(|error| Failure::Broken(format!("{}: {error}", path.display())))
}

/// The config in a file, if nothing is wrong with it.
pub(super) fn config_in(file: &Path, manner: &Manner) -> Result<Result<Config, ExitCode>, Failure> {
    let text = read(file)?;
    let (config, faults) = local(&text, file);
    match config {
        Some(config) => Ok(Ok(config)),
        None => wrong(&faults, manner).map(Err),
    }
}

fn local(text: &str, file: &Path) -> (Option<Config>, Faults) {
    let env = |name: &str| std::env::var(name).ok();
    Config::check(text, &file.display().to_string(), &env)
}

fn wrong(faults: &Faults, manner: &Manner) -> Done {
    if manner.json {
        show::print_json(&faults_json(faults))?;
    } else {
        eprint!("{}", faults.render(has_colours(&io::stderr())));
    }
    Ok(ExitCode::FAILURE)
}

fn faults_json(faults: &Faults) -> serde_json::Value {
    let fault = |fault: &rideau_config::Fault| {
        json!({
            "level": match fault.level {
                Level::Error => "error",
                Level::Warning => "warning",
            },
            "line": fault.line,
            "column": fault.column,
            "message": fault.message,
            "hint": fault.hint,
        })
    };
    json!({
        "errors": faults.errors(),
        "warnings": faults.warnings(),
        "faults": faults.iter().map(fault).collect::<Vec<_>>(),
    })
}
