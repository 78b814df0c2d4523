//! Finds a program and runs it, apart from everything that is the daemon's.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::group::Custody;
use super::program::{Own, Program, Ready};
use super::run_folder::{MARK, Place};
use super::start_error::StartError;

/// What a child may know of the daemon's environment. Passwords stand in there.
const PASSED_ON: [&str; 4] = ["PATH", "HOME", "LANG", "TZ"];
/// Where programs are if nobody says.
const PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// A child that runs, and what it writes to.
pub(super) struct Launched {
    pub(super) custody: Custody,
    pub(super) output: OwnedFd,
    pub(super) error: OwnedFd,
}

/// Run the program as the leader of its own process group. Blocks until the
/// system has loaded it.
pub(super) fn launch(program: &Program, place: &Place) -> Result<Launched, StartError> {
    let own = Own {
        socket: &place.socket,
        port: place.port(),
        id: place.id,
        name: &program.name,
    };
    let argv: Vec<String> = program.argv.iter().map(|word| own.fill(word)).collect();
    let (word, words) = argv.split_first().ok_or(StartError::Empty)?;
    let variables = variables(program, &own, place);
    if let Some(directory) = &program.directory {
        check_directory(directory)?;
    }
    let path = variables.iter().rev().find(|(name, _)| name == "PATH");
    let path = path.map_or_else(|| PATH.into(), |(_, path)| path.clone());
    let file = find(word, &path, program.directory.as_deref())?;

    let mut command = Command::new(&file);
    command.arg0(word).args(words).env_clear().envs(variables);
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command.process_group(0);
    if let Some(directory) = &program.directory {
        command.current_dir(directory);
    }
    spawn(command, place).map_err(|error| not_run(word, &file, error))
}

fn spawn(mut command: Command, place: &Place) -> io::Result<Launched> {
    let mut child = command.spawn()?;
    let custody = Custody::new(child.id());
    place.record(custody.group().pid())?;
    let (output, error) = (child.stdout.take(), child.stderr.take());
    Ok(Launched {
        custody,
        output: output.expect("the output is piped").into(),
        error: error.expect("the error is piped").into(),
    })
}

/// The last of a name counts.
fn variables(program: &Program, own: &Own<'_>, place: &Place) -> Vec<(OsString, OsString)> {
    let daemon = PASSED_ON.iter().filter_map(|name| {
        let value = env::var_os(name)?;
        Some((OsString::from(name), value))
    });
    let given = program.env.iter();
    let given = given.map(|(name, value)| (name.into(), own.fill(value).into()));
    let mut variables: Vec<_> = daemon.chain(given).collect();
    variables.push((MARK.into(), place.mark().into()));
    if program.ready == Ready::Notify {
        variables.push(("NOTIFY_SOCKET".into(), place.notify().into()));
    }
    variables
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

/// The program's file, looked for in the child's path and not in ours.
fn find(word: &str, path: &OsString, directory: Option<&Path>) -> Result<PathBuf, StartError> {
    let there = |file: PathBuf| directory.map_or_else(|| file.clone(), |there| there.join(&file));
    if word.contains('/') {
        return Ok(there(word.into()));
    }
    let folders = env::split_paths(path).filter(|folder| !folder.as_os_str().is_empty());
    let mut closed = None;
    for file in folders.map(|folder| there(folder.join(word))) {
        match fs::metadata(&file) {
            Ok(about) if !about.is_file() => (),
            Ok(about) if about.permissions().mode() & 0o111 != 0 => return Ok(file),
            Ok(_) => closed = closed.or(Some(file)),
            Err(_) => (),
        }
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

fn not_run(word: &str, file: &Path, error: io::Error) -> StartError {
    let program = word.to_owned();
    match error.kind() {
        ErrorKind::NotFound if file.exists() => StartError::NotRun {
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
