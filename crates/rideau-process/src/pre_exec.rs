//! What the program is between its fork and a child's own program: a stage on
//! which everything is made as that program wants it.
//!
//! The daemon starts itself with a word that no person types. What it does then
//! is ordinary code in a process with one thread, where between fork and exec
//! next to nothing would be allowed.

use std::convert::Infallible;
use std::env::args_os;
use std::ffi::OsString;
use std::fs;
use std::io::{self, ErrorKind, Read, Write, stdin};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio, id};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::Mode;
use rustix::io::{Errno, fcntl_dupfd_cloexec};
use rustix::process::{
    Gid, Pid, Resource, Rlimit, Signal, Uid, getppid, getrlimit, setrlimit, setsid, umask,
};
use rustix::thread::{
    clear_ambient_capability_set, set_no_new_privs, set_thread_groups, set_thread_res_gid,
    set_thread_res_uid,
};
use tokio::signal::unix::{SignalKind, signal};

use super::credentials::Credentials;
use super::exec_request::{ExecFailure, ExecRequest, greeted};
use super::program::ResourceLimits;
use super::reaper;
use super::start_step::StartStep;

/// The word that makes the program a stage.
pub(super) const WORD: &str = "__exec";
/// The same, when all files but the first three were closed before.
const SWEPT: &str = "--swept";
/// Where the system shows a program to itself, even one whose file was replaced.
pub(super) const OURSELVES: &str = "/proc/self/exe";
/// Our own files are above those that are passed on.
const OWN_FILES: i32 = 10;
/// The first file that is passed on, by a convention of systemd.
const FIRST_PASSED: i32 = 3;

static IS_STAGE: AtomicBool = AtomicBool::new(false);

/// Be the stage if the words say so; for `main`, before anything else.
///
/// A program that has called this is its own stage: every [`RunFolder`] that it
/// opens starts children with it.
///
/// [`RunFolder`]: super::RunFolder
pub fn stage() -> Option<ExitCode> {
    let mut words = args_os().skip(1);
    let word = words.next();
    if word.as_ref().is_some_and(|word| word == WORD) {
        perform(words.next().is_some_and(|word| word == SWEPT));
        return Some(ExitCode::FAILURE);
    }
    if word.is_some_and(|word| word == reaper::WORD) {
        reaper::watch(words.next(), words.next());
        return Some(ExitCode::SUCCESS);
    }
    IS_STAGE.store(true, Ordering::Relaxed);
    None
}

/// Is this program its own stage?
pub(super) fn is_ours() -> bool {
    IS_STAGE.load(Ordering::Relaxed)
}

/// Become what the order says. A call that returns has failed and has said why.
fn perform(is_swept: bool) {
    if !is_swept {
        sweep();
    }
    let Ok(socket) = fcntl_dupfd_cloexec(stdin(), OWN_FILES) else {
        return;
    };
    let mut socket = UnixStream::from(socket);
    let Err(complaint) = obey(&mut socket);
    let text = serde_json::to_vec(&complaint).unwrap_or_default();
    // Nothing else would hear it.
    let _ = socket.write_all(&text);
}

fn obey(socket: &mut UnixStream) -> Result<Infallible, ExecFailure> {
    let ordered = |error: io::Error| ExecFailure::new(StartStep::ExecRequest, "", &error);
    let listener = greeted(&mut *socket).map_err(ordered)?;
    let mut text = Vec::new();
    socket.read_to_end(&mut text).map_err(ordered)?;
    let order: ExecRequest =
        serde_json::from_slice(&text).map_err(|error| ordered(error.into()))?;

    setsid().map_err(|error| failed(StartStep::Setsid, "", error))?;
    if let Some(cgroup) = &order.cgroup {
        // It is a help and no condition.
        let _ = fs::write(Path::new(cgroup).join("cgroup.procs"), "0");
    }
    limit(order.limits, order.files_usual)?;
    if let Some(account) = &order.account {
        become_user(account)?;
    }
    give_up_privileges(&order)?;
    die_with(order.parent)?;
    if let Some(directory) = &order.directory {
        let what = directory.to_string_lossy();
        let went = std::env::set_current_dir(directory);
        went.map_err(|error| ExecFailure::new(StartStep::Chdir, what, &error))?;
    }
    if let Some(mask) = order.umask {
        umask(Mode::from_raw_mode(mask & 0o777));
    }
    check_listener(listener.as_ref())?;
    heed_signals();
    Err(run(&order, listener.is_some()))
}

/// Run the first file that can be run. What is told is why the first could not.
fn run(order: &ExecRequest, has_listener: bool) -> ExecFailure {
    let mut told = None;
    for file in &order.files {
        let error = match is_program(Path::new(file)) {
            true => program(order, file, has_listener).exec(),
            false => Errno::NOEXEC.into(),
        };
        told.get_or_insert(error);
    }
    let error = told.unwrap_or_else(|| Errno::NOENT.into());
    ExecFailure::new(StartStep::Exec, &order.word, &error)
}

/// Whether it is a program: other files would be run by a shell.
fn is_program(file: &Path) -> bool {
    const KINDS: &str = "/proc/sys/fs/binfmt_misc";
    let mut start = [0; 4];
    let read = fs::File::open(file).and_then(|mut file| file.read_exact(&mut start));
    match read {
        Ok(()) if start.starts_with(b"#!") || start == *b"\x7fELF" => true,
        Err(error) if error.kind() != ErrorKind::UnexpectedEof => true,
        // The system may have been told of other kinds than these.
        _ => fs::read_dir(KINDS).is_ok_and(|kinds| kinds.count() > 2),
    }
}

/// Pass on none of the files that the daemon was started with and does not know
/// of. They are closed when the next program runs. One that is file 3 would be in
/// the way of the listener, so then we run ourselves again first.
fn sweep() {
    close_fds::set_fds_cloexec(FIRST_PASSED, &[]);
    if fs::symlink_metadata(format!("/proc/self/fd/{FIRST_PASSED}")).is_err() {
        return;
    }
    // If that fails, a listener that is not file 3 is an error later.
    let _ = Command::new(OURSELVES)
        .arg0("rideau")
        .args([WORD, SWEPT])
        .exec();
}

/// A program that is run from now on has no more rights than this one, whatever bits its
/// file has. What the server was given beyond its account, as to listen at port 443, is the
/// server's alone.
fn give_up_privileges(order: &ExecRequest) -> Result<(), ExecFailure> {
    match clear_ambient_capability_set() {
        // A system that is too old to know of them has none.
        Ok(()) | Err(Errno::INVAL) => (),
        Err(error) => return Err(failed(StartStep::Privileges, "", error)),
    }
    if order.new_privileges {
        return Ok(());
    }
    set_no_new_privs(true).map_err(|error| failed(StartStep::Privileges, "", error))
}

fn limit(limits: ResourceLimits, files_usual: Option<u64>) -> Result<(), ExecFailure> {
    if files_usual.is_some() {
        let limit = Rlimit {
            current: files_usual,
            ..getrlimit(Resource::Nofile)
        };
        // It is less than there is now. One that has too many can do with that as well.
        let _ = setrlimit(Resource::Nofile, limit);
    }
    for (what, resource, most) in [
        ("files", Resource::Nofile, limits.files_max),
        ("processes", Resource::Nproc, limits.processes_max),
        ("core", Resource::Core, limits.core_max),
        ("address space", Resource::As, limits.address_space_max),
        ("file size", Resource::Fsize, limits.file_size_max),
    ] {
        if let Some(most) = most {
            let limit = Rlimit {
                current: Some(most),
                maximum: Some(most),
            };
            let limited = setrlimit(resource, limit);
            limited.map_err(|error| failed(StartStep::Limit, &format!("{what} {most}"), error))?;
        }
    }
    Ok(())
}

/// There is one thread, so what is done to a thread is done to the process.
fn become_user(account: &Credentials) -> Result<(), ExecFailure> {
    let groups: Vec<Gid> = account
        .groups
        .iter()
        .map(|gid| Gid::from_raw(*gid))
        .collect();
    let (uid, gid) = (Uid::from_raw(account.uid), Gid::from_raw(account.gid));
    let number = account.uid.to_string();
    let user = account.name.as_deref().unwrap_or(&number);
    set_thread_groups(&groups)
        .and_then(|()| set_thread_res_gid(gid, gid, gid))
        .map_err(|error| failed(StartStep::Group, &account.gid.to_string(), error))?;
    set_thread_res_uid(uid, uid, uid).map_err(|error| failed(StartStep::User, user, error))
}

/// A change of the user makes the system forget this, so it comes after that.
fn die_with(parent: i32) -> Result<(), ExecFailure> {
    let asked = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
    asked.map_err(|error| failed(StartStep::Parent, "", error))?;
    // Had it died before, the system would not tell us.
    if Pid::as_raw(getppid()) == parent {
        return Ok(());
    }
    Err(failed(StartStep::Parent, &parent.to_string(), Errno::SRCH))
}

fn check_listener(listener: Option<&OwnedFd>) -> Result<(), ExecFailure> {
    let number = listener.map(|listener| listener.as_fd().as_raw_fd());
    if number.is_none_or(|number| number == FIRST_PASSED) {
        return Ok(());
    }
    Err(failed(StartStep::Listener, "file 3", Errno::BUSY))
}

fn program(order: &ExecRequest, file: &OsString, has_listener: bool) -> Command {
    let mut command = Command::new(file);
    command.arg0(&order.word).args(&order.words);
    let variables = order.env.iter().map(|(name, value)| (name, value));
    command.env_clear().envs(variables);
    if has_listener {
        command.env("LISTEN_PID", id().to_string());
    }
    command.stdin(Stdio::null());
    command
}

/// A program would ignore what the process that started the daemon ignores, as
/// `nohup` does. What is listened for is not ignored any more, and a new program
/// does not know of it.
fn heed_signals() {
    const IGNORED: &str = "SigIgn:";
    const PIPE: i32 = 13;
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let row = status.lines().find_map(|row| row.strip_prefix(IGNORED));
    let set = row.and_then(|row| u64::from_str_radix(row.trim(), 16).ok());
    let set = set.unwrap_or_default();
    // The library resets the one that it ignores itself.
    let ignored = (1..=31).filter(|number| *number != PIPE && set & (1 << (number - 1)) != 0);
    let ignored: Vec<i32> = ignored.collect();
    if ignored.is_empty() {
        return;
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build();
    let Ok(runtime) = runtime else {
        return;
    };
    let _inside = runtime.enter();
    for number in ignored {
        // Some cannot be listened for, and cannot be ignored either.
        let _ = signal(SignalKind::from_raw(number));
    }
}

fn failed(step: StartStep, what: &str, error: Errno) -> ExecFailure {
    ExecFailure::new(step, what, &error.into())
}
