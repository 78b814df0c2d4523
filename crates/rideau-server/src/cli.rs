//! The command line: words to commands.
//!
//! Scripts branch on how it ends: 0 for done or granted, 1 for an error, 2 for
//! words that make no sense, 3 for a refusal. A user who runs a command gets the
//! command's own code.

mod answer;
mod apps;
mod bench;
mod broker;
mod change;
mod child;
mod cluster;
mod control;
mod generate;
mod hold;
mod lease;
mod load;
mod numbers;
mod pages;
mod pre_exec;
mod run;
mod serve;
mod show;
mod status;
mod table;
mod terminal;
mod upgrade;

use std::ffi::OsString;
use std::io::{self, ErrorKind};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Arg, Args, CommandFactory, FromArgMatches, Parser, Subcommand};
use rideau_daemon::tls::TlsIdentity;

use crate::demo;
use crate::exit::{Done, Failure, MISUSED, REFUSED, has_colours};
use crate::span;
use crate::wire::Server;

/// Hands out scarce things fairly, and takes them back when the holder dies.
#[derive(Parser, Debug)]
#[command(
    name = "rideau",
    version,
    max_term_width = 100,
    arg_required_else_help = true,
    after_help = "Begin with `rideau demo`. Exit codes: 0 done or granted, 1 error, 2 usage, \
                  3 refused."
)]
pub(crate) struct Program {
    #[command(flatten)]
    manner: Manner,
    #[command(subcommand)]
    command: Command,
}

/// The help heading of options about the server.
const SERVER: &str = "The server";
/// The variable that names a server.
const VARIABLE: &str = "RIDEAU_SERVER";
/// The commands that have no server to do with.
const ALONE: [&str; 9] = [
    "serve",
    "run",
    "demo",
    "check",
    "hash",
    "numbers",
    "move",
    "completions",
    "man",
];

/// How to reach the server and how to answer, whatever the command.
#[derive(Args, Clone, Debug)]
pub(crate) struct Manner {
    /// Where the server is: HOST:PORT, unix:/PATH or redis://USER:PASSWORD@HOST:PORT
    /// [env: RIDEAU_SERVER] [default: 127.0.0.1:7433]
    ///
    /// rediss:// uses TLS, as --tls does. Passwords are safer in the variable RIDEAU_PASSWORD.
    // What clap itself takes from a variable, it calls required.
    #[arg(
        id = "server",
        long = "server",
        global = true,
        value_name = "ADDRESS",
        help_heading = SERVER
    )]
    named: Option<Server>,
    /// The server that was named, or the one that is meant if none was.
    #[arg(skip)]
    pub(crate) server: Server,
    /// Answer in JSON
    // After the options of a command.
    #[arg(long, global = true, display_order = 900)]
    pub(crate) json: bool,
    /// Use TLS
    #[arg(long, global = true, help_heading = SERVER)]
    tls: bool,
    /// Trusted certificate authorities, instead of those of the system
    #[arg(long, global = true, value_name = "FILE", help_heading = SERVER)]
    cacert: Option<PathBuf>,
    /// The certificate of the client, for a server that asks for one
    #[arg(
        id = "own_cert",
        long = "cert",
        global = true,
        value_name = "FILE",
        help_heading = SERVER
    )]
    cert: Option<PathBuf>,
    /// The key of the client's certificate
    // A command has an argument of this name.
    #[arg(
        id = "own_key",
        long = "key",
        global = true,
        value_name = "FILE",
        help_heading = SERVER
    )]
    key: Option<PathBuf>,
}

impl Manner {
    /// Find out which server is meant.
    fn find(&mut self) -> Result<(), Failure> {
        if let Some(named) = self.named.take() {
            self.server = named;
        } else if let Ok(text) = std::env::var(VARIABLE) {
            let fault = |fault| Failure::Misuse(format!("the variable {VARIABLE}: {fault}"));
            self.server = text.parse().map_err(fault)?;
        }
        Ok(())
    }

    /// Have the server reached as the words about TLS say.
    fn secure(&mut self) -> Result<(), Failure> {
        let own = match (self.cert.clone(), self.key.clone()) {
            (Some(cert), Some(key)) => Some((cert, key)),
            (None, None) => None,
            _ => {
                let text = "--cert and --key go together".into();
                return Err(Failure::Misuse(text));
            }
        };
        let ca = self.cacert.clone();
        if !(self.tls || self.server.has_tls() || ca.is_some() || own.is_some()) {
            return Ok(());
        }
        let spoken = self.server.speak_tls(TlsIdentity { ca, own });
        spoken.map_err(Failure::Misuse)
    }
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Run the server, with a config file or without
    ///
    /// Without a file there are locks for every key and a broker named `default`, for clients
    /// on this machine. SIGHUP reads the file again, without the options. SIGTERM and SIGINT
    /// let holders finish; a second one stops at once.
    Serve(serve::Serve),
    /// Serve one application over HTTP, without any config
    ///
    /// The command gets its port in the variable PORT, and as $PORT and {port} in its
    /// arguments; with {socket} or $SOCKET it gets a Unix socket. It gets requests when it is
    /// ready, and is started again when it ends.
    Run(run::Run),
    /// Start a server with traffic, and print addresses to look at and commands to type
    Demo(demo::Demo),
    /// Check a config file, without starting anything
    Check(change::Check),
    /// Say what a config file would change
    Plan(change::OneFile),
    /// Apply a config file to the server, all or nothing
    Apply(change::OneFile),
    /// Have the server reload its own config file
    Reload,
    /// Have a newer program take over from the running server, without a refused request
    ///
    /// It waits until the newer server serves. If that fails for any reason, the running one
    /// goes on. To clients of the Redis protocol it is a restart.
    Upgrade(upgrade::Upgrade),
    /// Go back to an earlier config
    Rollback(change::Rollback),
    /// Change one value of the config: set pool.pg-1.max 20
    Set(change::Set),
    /// Show the state of apps, pools, brokers, regulators, locks and ranges
    Status(status::Status),
    /// Show holders and what they hold
    Holders(status::Holders),
    /// Say why a ticket waits, or why an ask was refused
    Explain(status::Explain),
    /// Follow events, refusals or commands
    Tail(status::Tail),
    /// End a connection, and release what it holds
    Kill(status::Kill),
    /// Take one lease back from its holder
    Revoke(status::Revoke),
    /// Drain a node of a cluster, or let it own partitions again
    Cluster(cluster::ClusterWords),
    /// Move the values of a server that does not run into a new cluster
    ///
    /// The node that starts first with this config has them, with their holders, keys and data.
    /// Tickets go on to count, and fences grow. A server outside of a cluster does not give out
    /// values of that folder any more.
    Move(cluster::Move),
    /// Replace the processes of an application by new ones
    Restart(apps::Restart),
    /// Give the verdict on new code of an application that is on trial
    Trial(apps::TrialWords),
    /// Have a process of an application finish what it serves, and end
    Detach(apps::OneProcess),
    /// Send a process of an application no more requests, and keep it
    Disable(apps::OneProcess),
    /// Send a process requests again
    Enable(apps::OneProcess),
    /// Start one more process of an application
    Spawn(apps::OneApp),
    /// Show what an application wrote
    Logs(apps::Logs),
    /// Hold a member of a pool while a command runs
    Take(hold::Take),
    /// Hold units of a key while a command runs, as flock does
    Lock(hold::Lock),
    /// Hold a value of a range while a command runs
    Lease(lease::Lease),
    /// Ask a broker for a worker that offers itself
    Ask(broker::Meet),
    /// Offer yourself to clients that ask
    Offer(broker::Meet),
    /// Measure the server, and compare it with a Redis
    Bench(bench::Bench),
    /// Hash a password for the config file, from standard input
    Hash,
    /// Print the numbers of a range of the config
    Numbers(numbers::Numbers),
    /// Print completions for a shell
    Completions(generate::Completions),
    /// Print the manual, or write all its pages to a folder
    Man(generate::Man),
}

/// The words that are known. Help for a command that needs no server does not show
/// how to reach one.
fn known() -> clap::Command {
    let program = Program::command();
    let is_of_server = |arg: &&Arg| arg.get_help_heading() == Some(SERVER);
    let arguments = program.get_arguments().filter(is_of_server).cloned();
    let hidden: Vec<_> = arguments.map(|arg| arg.hide(true)).collect();
    ALONE.into_iter().fold(program, |program, name| {
        program.mut_subcommand(name, |command| command.args(hidden.clone()))
    })
}

fn parsed(mut words: Vec<OsString>) -> Result<Program, clap::Error> {
    // Help about the help is what there is help for.
    let of_help = |word: &OsString| word == "--help" || word == "-h";
    if words.get(1).is_some_and(|word| word == "help") && words.get(2).is_some_and(of_help) {
        words.truncate(2);
    }
    let mut known = known();
    let matches = known.try_get_matches_from_mut(words)?;
    Program::from_arg_matches(&matches).map_err(|error| error.format(&mut known))
}

/// Do what the words say.
pub(crate) fn run(words: impl Iterator<Item = OsString>) -> ExitCode {
    let words: Vec<_> = words.collect();
    if let Some(code) = pre_exec::stage(&words) {
        return code;
    }
    let Program {
        mut manner,
        command,
    } = match parsed(words) {
        Ok(program) => program,
        Err(error) => {
            let _ = error.print();
            let is_asked = !error.use_stderr();
            return if is_asked {
                ExitCode::SUCCESS
            } else {
                MISUSED.into()
            };
        }
    };
    let found = manner.find().and_then(|()| manner.secure());
    let done = found.and_then(|()| dispatch(command, &manner));
    match done {
        Ok(code) => code,
        // The reader has seen enough, as `head` does.
        Err(Failure::Io(error)) if error.kind() == ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(failure) => {
            if manner.json {
                let answer = serde_json::json!({ "error": failure.to_string() });
                let _ = show::print_json(&answer);
            } else {
                show::complain(failure.to_string());
            }
            match failure {
                Failure::Misuse(_) => MISUSED.into(),
                Failure::Broken(_) | Failure::Io(_) => ExitCode::FAILURE,
            }
        }
    }
}

fn dispatch(command: Command, manner: &Manner) -> Done {
    match command {
        Command::Serve(words) => serve::run(&words, manner),
        Command::Run(words) => run::run(&words, manner),
        Command::Demo(words) => demo::run(&words, manner.json),
        Command::Check(words) => change::check(&words, manner),
        Command::Completions(words) => generate::completions(&words),
        Command::Man(words) => generate::man(&words),
        Command::Hash => generate::hash(manner),
        Command::Numbers(words) => numbers::run(&words, manner),
        Command::Bench(words) => bench::run(&words, manner),
        other => alone()?.block_on(with_server(other, manner)),
    }
}

/// The commands that talk to a server.
async fn with_server(command: Command, manner: &Manner) -> Done {
    match command {
        Command::Plan(words) => change::plan(&words, manner).await,
        Command::Apply(words) => change::apply(&words, manner).await,
        Command::Reload => change::reload(manner).await,
        Command::Upgrade(words) => upgrade::upgrade(&words, manner).await,
        Command::Rollback(words) => change::rollback(&words, manner).await,
        Command::Set(words) => change::set(&words, manner).await,
        Command::Status(words) => status::status(&words, manner).await,
        Command::Holders(words) => status::holders(&words, manner).await,
        Command::Explain(words) => status::explain(&words, manner).await,
        Command::Tail(words) => status::tail(&words, manner).await,
        Command::Kill(words) => status::kill(&words, manner).await,
        Command::Revoke(words) => status::revoke(&words, manner).await,
        Command::Cluster(words) => cluster::run(&words, manner).await,
        Command::Move(words) => cluster::move_values(&words, manner).await,
        Command::Restart(words) => apps::restart(&words, manner).await,
        Command::Trial(words) => apps::trial(&words, manner).await,
        Command::Detach(words) => apps::to_process("APP.DETACH", &words, manner).await,
        Command::Disable(words) => apps::to_process("APP.DISABLE", &words, manner).await,
        Command::Enable(words) => apps::to_process("APP.ENABLE", &words, manner).await,
        Command::Spawn(words) => apps::spawn(&words, manner).await,
        Command::Logs(words) => apps::logs(&words, manner).await,
        Command::Take(words) => hold::take(&words, manner).await,
        Command::Lock(words) => hold::lock(&words, manner).await,
        Command::Lease(words) => lease::lease(&words, manner).await,
        Command::Ask(words) => broker::ask(&words, manner).await,
        Command::Offer(words) => broker::offer(&words, manner).await,
        other => Err(Failure::Broken(format!("{other:?} needs no server"))),
    }
}

/// A runtime for a command that does one thing at a time.
fn alone() -> io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_do_not_contradict_each_other() {
        known().debug_assert();
    }

    #[test]
    fn options_that_all_commands_know_stand_anywhere() {
        for words in ["--json status", "status --json", "status pool --json"] {
            let words = ["rideau"].into_iter().chain(words.split(' '));
            let program = parsed(words.map(Into::into).collect()).unwrap();
            assert!(program.manner.json);
        }
    }
}
