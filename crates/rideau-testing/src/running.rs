//! A program that ends with the test that started it.

use std::ffi::OsStr;
use std::io;
use std::mem;
use std::ops::{Deref, DerefMut};
use std::os::unix::process::CommandExt;
use std::process::{self, Child, Command, ExitStatus, Output};
use std::sync::OnceLock;
use std::sync::mpsc::{Sender, channel};
use std::thread;

use rustix::io::retry_on_intr;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};

/// The variable that tells a child which test started it.
pub const TEST_NAME: &str = "RIDEAU_TEST_NAME";

/// Becomes the program, unless the process that started it is gone already: then
/// the kernel would never kill it.
const BECOME: &str = r#"test "$PPID" = "$0" && exec "$@""#;

/// A command that the kernel kills when the thread that starts it is gone.
///
/// Every program that a test starts is built here. `setpriv` asks the kernel for
/// it, and what it runs becomes the program, so the process id stays the same.
pub fn command(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--", "sh", "-c", BECOME]);
    command.arg(process::id().to_string()).arg(program);
    if let Some(name) = thread::current().name() {
        command.env(TEST_NAME, name);
    }
    command
}

/// Starts a command as a child that ends with its guard.
pub trait Start {
    /// Start a command that [`command`] made, in a process group of its own.
    ///
    /// A program that does not exist is no error here: its child ends with the
    /// status 127.
    ///
    /// # Panics
    ///
    /// If the system cannot start it.
    fn start(&mut self) -> Running;
}

impl Start for Command {
    #[track_caller]
    fn start(&mut self) -> Running {
        self.process_group(0);
        let (answer, started) = channel();
        let order = (mem::replace(self, Self::new("")), answer);
        starter().send(order).expect("the starter never ends");
        let (command, child) = started.recv().expect("every order is answered");
        *self = command;
        Running::new(child.unwrap_or_else(|error| panic!("{self:?}: {error}")))
    }
}

/// A child that is killed with its process group when this value is dropped.
///
/// It is started by a thread that lasts as long as the test process: the kernel
/// would kill it at the end of the thread that started it, which may be a worker
/// of a runtime.
#[derive(Debug)]
#[must_use = "the child is killed when this is dropped"]
pub struct Running {
    child: Child,
    /// It was waited for, so its number may be another's.
    is_reaped: bool,
}

impl Running {
    const fn new(child: Child) -> Self {
        Self {
            child,
            is_reaped: false,
        }
    }

    /// Wait for its end, and return what it wrote to its pipes.
    ///
    /// # Errors
    ///
    /// If its output cannot be read.
    pub fn wait_with_output(mut self) -> io::Result<Output> {
        drop(self.child.stdin.take());
        let (stdout, stderr) = (self.child.stdout.take(), self.child.stderr.take());
        let errors = thread::spawn(move || read(stderr));
        let stdout = read(stdout)?;
        let stderr = errors.join().expect("a reader does not panic")?;
        let status = self.wait()?;
        Ok(Output {
            status,
            stdout,
            stderr,
        })
    }

    /// Kill the child and its group, and wait for the child's end.
    pub fn end(&mut self) {
        self.kill_group();
        let _ = self.wait();
    }

    /// Wait for its end. What is left of its group is killed then.
    ///
    /// # Errors
    ///
    /// If it cannot be waited for.
    pub fn wait(&mut self) -> io::Result<ExitStatus> {
        drop(self.child.stdin.take());
        self.await_end(WaitIdOptions::empty())?;
        self.kill_group();
        self.is_reaped = true;
        self.child.wait()
    }

    /// The same, if it has ended already.
    ///
    /// # Errors
    ///
    /// If it cannot be waited for.
    pub fn try_wait(&mut self) -> io::Result<Option<ExitStatus>> {
        match self.await_end(WaitIdOptions::NOHANG)? {
            true => self.wait().map(Some),
            false => Ok(None),
        }
    }

    /// Whether it has ended. Its number stays taken.
    fn await_end(&self, options: WaitIdOptions) -> io::Result<bool> {
        if self.is_reaped {
            return Ok(true);
        }
        let ended = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | options;
        let found = retry_on_intr(|| waitid(WaitId::Pid(self.pid()), ended))?;
        Ok(found.is_some())
    }

    /// A group has its child's number, which may be another's once that is reaped.
    fn kill_group(&self) {
        if !self.is_reaped {
            let _ = kill_process_group(self.pid(), Signal::KILL);
        }
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.end();
    }
}

impl Deref for Running {
    type Target = Child;

    fn deref(&self) -> &Child {
        &self.child
    }
}

impl DerefMut for Running {
    fn deref_mut(&mut self) -> &mut Child {
        &mut self.child
    }
}

/// A command to start, and where the command and its child go back to.
type Order = (Command, Sender<(Command, io::Result<Child>)>);

/// The thread that starts all children.
fn starter() -> &'static Sender<Order> {
    static STARTER: OnceLock<Sender<Order>> = OnceLock::new();
    STARTER.get_or_init(|| {
        let (sender, orders) = channel::<Order>();
        thread::spawn(move || {
            for (mut command, answer) in orders {
                let child = command.spawn();
                // A test that was ended meanwhile cannot take the child.
                if let Err(unsent) = answer.send((command, child))
                    && let (_, Ok(child)) = unsent.0
                {
                    drop(Running::new(child));
                }
            }
        });
        sender
    })
}

fn read(pipe: Option<impl io::Read>) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if let Some(mut pipe) = pipe {
        pipe.read_to_end(&mut bytes)?;
    }
    Ok(bytes)
}
