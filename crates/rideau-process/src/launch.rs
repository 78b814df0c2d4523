//! Finds a program and runs it, apart from everything that is the daemon's.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{self, Path, PathBuf};
use std::process::{Command, Stdio, id};

use super::cgroup;
use super::credentials::Credentials;
use super::exec_request::{ExecFailure, ExecRequest, greet};
use super::group::ReapGuard;
use super::open_files;
use super::pre_exec;
use super::process_list::MARK;
use super::program::{Listen, Own, Program};
use super::run_folder::Place;
use super::start_error::StartError;
use super::start_step::StartStep;

/// Variables of the daemon that a child gets. Others may contain passwords.
const PASSED_ON: [&str; 4] = ["PATH", "HOME", "LANG", "TZ"];
/// Where programs are if nothing says it.
const PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// A child that runs, and what it writes to.
pub(super) struct Launched {
    pub(super) custody: ReapGuard,
    pub(super) output: OwnedFd,
    pub(super) error: OwnedFd,
    /// Where it hears what to become, if it is on the stage.
    pub(super) socket: Option<UnixStream>,
}

/// All that has to be known before anything is started. This blocks.
pub(super) fn prepare(
    program: &Program,
    account: Option<Credentials>,
    place: &Place,
) -> Result<ExecRequest, StartError> {
    let own = Own {
        socket: &place.socket,
        port: place.port(),
        id: place.id,
        name: &program.name,
        has_dollars: program.listen != Listen::Named,
    };
    let argv: Vec<String> = program.argv.iter().map(|word| own.fill(word)).collect();
    let (word, words) = argv.split_first().ok_or(StartError::Empty)?;
    let env = variables(program, account.as_ref(), &own, place);
    let directory = program.directory.as_deref().map(path::absolute);
    let directory = directory
        .transpose()
        .map_err(|error| StartError::Directory {
            directory: program.directory.clone().unwrap_or_default(),
            error,
        })?;
    if let Some(directory) = &directory {
        check_directory(directory)?;
    }
    let path = env.iter().rev().find(|(name, _)| name == "PATH");
    let path = path.map_or_else(|| PATH.into(), |(_, path)| path.clone());
    let files = find(word, &path, directory.as_deref())?;
    Ok(ExecRequest {
        files,
        word: word.clone(),
        words: words.to_vec(),
        env,
        directory: directory.map(Into::into),
        account,
        umask: program.umask,
        new_privileges: program.new_privileges,
        limits: program.limits,
        files_usual: open_files::usual(),
        cgroup: cgroup::make(place.cgroup(), place.id).map(Into::into),
        parent: i32::try_from(id()).unwrap_or_default(),
    })
}

/// Make a process that becomes what the order says when it is told so; or, without
/// a stage, one that is it.
pub(super) fn launch(order: &ExecRequest, place: &mut Place) -> io::Result<Launched> {
    let listener = place.take_listener();
    let (mut command, socket) = match place.stage() {
        Some(stage) => {
            let (ours, theirs) = UnixStream::pair()?;
            greet(&ours, listener.as_ref().map(AsFd::as_fd))?;
            (on_stage(stage, theirs), Some(ours))
        }
        None => (at_once(order), None),
    };
    command.env(MARK, place.mark());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let cgroup = order.cgroup.as_ref().map(PathBuf::from);
    let mut child = command.spawn().inspect_err(|_| {
        // No process came into it, and nothing else takes it away.
        cgroup
            .iter()
            .for_each(|cgroup| drop(fs::remove_dir(cgroup)));
    })?;
    let custody = ReapGuard::new(child.id(), place.mark(), cgroup);
    place.record(custody.group().pid())?;
    let (output, error) = (child.stdout.take(), child.stderr.take());
    Ok(Launched {
        custody,
        output: output.expect("the output is piped").into(),
        error: error.expect("the error is piped").into(),
        socket,
    })
}

fn on_stage(stage: &Path, socket: UnixStream) -> Command {
    let mut command = Command::new(stage);
    command.arg0("rideau").arg(pre_exec::WORD).env_clear();
    command.stdin(OwnedFd::from(socket));
    command
}

fn at_once(order: &ExecRequest) -> Command {
    let mut command = Command::new(order.file());
    command.arg0(&order.word).args(&order.words);
    let variables = order.env.iter().map(|(name, value)| (name, value));
    command.env_clear().envs(variables);
    command.stdin(Stdio::null());
    command.process_group(0);
    if let Some(directory) = &order.directory {
        command.current_dir(directory);
    }
    command
}

/// The last of a name counts.
fn variables(
    program: &Program,
    account: Option<&Credentials>,
    own: &Own<'_>,
    place: &Place,
) -> Vec<(OsString, OsString)> {
    let daemon = PASSED_ON.iter().filter_map(|name| {
        let value = env::var_os(name)?;
        Some((OsString::from(name), value))
    });
    let mut variables: Vec<_> = daemon.collect();
    let mut add = |name: &str, value: &OsStr| variables.push((name.into(), value.to_owned()));
    if let Some(account) = account {
        add("HOME", account.home.as_deref().unwrap_or("/".as_ref()));
        for name in ["USER", "LOGNAME"] {
            add(name, account.name.as_deref().unwrap_or_default().as_ref());
        }
    }
    for (name, value) in &program.env {
        add(name, own.fill(value).as_ref());
    }
    add(MARK, place.mark().as_ref());
    match (&program.listen, place.port()) {
        (Listen::Socket, _) => add("RIDEAU_SOCKET", place.socket.as_ref()),
        (Listen::Port, Some(port)) => add("PORT", port.to_string().as_ref()),
        (Listen::InheritSocket | Listen::InheritPort, _) => {
            add("LISTEN_FDS", "1".as_ref());
            add("LISTEN_FDNAMES", "rideau".as_ref());
        }
        _ => (),
    }
    if program.hears_notes() {
        add("NOTIFY_SOCKET", place.notify().as_ref());
    }
    if let Some(watchdog) = program.watchdog {
        add("WATCHDOG_USEC", watchdog.as_micros().to_string().as_ref());
    }
    variables
}

/// The error of a start that the stage refused.
pub(super) fn refused(order: &ExecRequest, complaint: &ExecFailure) -> StartError {
    let error = complaint.error();
    match complaint.step {
        StartStep::Exec => not_run(order, error),
        StartStep::Chdir => StartError::Directory {
            directory: complaint.what.clone().into(),
            error,
        },
        step => StartError::Failed {
            step,
            what: complaint.what.clone(),
            error,
        },
    }
}

/// The system says the same of a directory that is missing as of a program.
fn check_directory(directory: &Path) -> Result<(), StartError> {
    let error = match fs::metadata(directory) {
        Ok(about) if about.is_dir() => return Ok(()),
        Ok(_) => ErrorKind::NotADirectory.into(),
        Err(error) => error,
    };
    Err(StartError::Directory {
        directory: directory.to_owned(),
        error,
    })
}

/// The files that the program could be, the first one first: looked for in the
/// child's path and not in ours. Its user may not get at all of them.
fn find(
    word: &str,
    path: &OsString,
    directory: Option<&Path>,
) -> Result<Vec<OsString>, StartError> {
    let there = |file: PathBuf| directory.map_or_else(|| file.clone(), |there| there.join(&file));
    if word.contains('/') {
        return Ok(vec![there(word.into()).into()]);
    }
    let folders = env::split_paths(path).filter(|folder| !folder.as_os_str().is_empty());
    let (mut found, mut closed) = (Vec::new(), None);
    for file in folders.map(|folder| there(folder.join(word))) {
        match fs::metadata(&file) {
            Ok(about) if !about.is_file() => (),
            Ok(about) if about.permissions().mode() & 0o111 != 0 => found.push(file.into()),
            Ok(_) => closed = closed.or(Some(file)),
            Err(_) => (),
        }
    }
    if !found.is_empty() {
        return Ok(found);
    }
    Err(match closed {
        Some(file) => StartError::NotRun {
            program: file.display().to_string(),
            error: ErrorKind::PermissionDenied.into(),
        },
        None => StartError::NotFound {
            program: word.to_owned(),
            path: Some(path.to_string_lossy().into_owned()),
        },
    })
}

pub(super) fn not_run(order: &ExecRequest, error: io::Error) -> StartError {
    let program = order.word.clone();
    match error.kind() {
        ErrorKind::NotFound if order.file().exists() => StartError::NotRun {
            program,
            error: io::Error::new(error.kind(), "its interpreter was not found"),
        },
        ErrorKind::NotFound => StartError::NotFound {
            program,
            path: None,
        },
        _ => StartError::NotRun { program, error },
    }
}
