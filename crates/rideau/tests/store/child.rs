//! The part of a test that runs in a process of its own, to be killed or to
//! have its system calls fail.

use std::env;
use std::path::PathBuf;

use rideau::store::{Embedded, Store, StoreError};

use crate::process::Process;
use crate::stage::{Folder, append, batch_of, chunk_of, take};

const FOLDER: &str = "RIDEAU_STORE_FOLDER";
const ROLE: &str = "RIDEAU_STORE_ROLE";

/// What a child does until it ends.
#[derive(Clone, Copy)]
pub(crate) enum Role {
    /// Appends and takes snapshots until it is killed.
    Busy,
    /// Appends and takes snapshots, a few of each.
    Brief,
    /// Opens the store and waits.
    Wait,
}

/// A child that runs.
pub(crate) struct Running(Process);

/// What a child said, by the first word of the line.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Said {
    Ready,
    Acknowledged(u64),
    /// The name of the error, and what it said.
    Failed(String, String),
    Done,
}

impl Running {
    pub(crate) fn start(role: Role, folder: &Folder, settings: &[(&str, String)]) -> Self {
        let role = match role {
            Role::Busy => "busy",
            Role::Brief => "brief",
            Role::Wait => "wait",
        };
        let own = [
            (ROLE, role.to_owned()),
            (FOLDER, folder.0.display().to_string()),
        ];
        let settings = own.iter().chain(settings);
        Self(Process::start("child::the_other_process", settings))
    }

    /// The next thing it says, or nothing if it has gone.
    pub(crate) fn hear(&mut self) -> Option<Said> {
        let said = self.0.hear()?;
        let (word, rest) = said.split_once(' ').unwrap_or((&said, ""));
        Some(match word {
            "ready" => Said::Ready,
            // A line that the kill cut off was not said.
            "ack" => Said::Acknowledged(rest.strip_suffix('.')?.parse().unwrap()),
            "failed" => {
                let (name, words) = rest.split_once(' ').unwrap();
                Said::Failed(name.into(), words.into())
            }
            "done" => Said::Done,
            other => panic!("the child said {other}"),
        })
    }

    /// Everything that it says until it goes.
    pub(crate) fn hear_all(mut self) -> Vec<Said> {
        let said = std::iter::from_fn(|| self.hear()).collect();
        self.0.child.wait().unwrap();
        said
    }

    pub(crate) fn kill(mut self) -> Vec<Said> {
        self.0.child.kill().unwrap();
        self.hear_all()
    }
}

/// How many batches were acknowledged.
pub(crate) fn acknowledged(said: &[Said]) -> u64 {
    let count = |said: &Said| match said {
        Said::Acknowledged(count) => Some(*count),
        _ => None,
    };
    said.iter().rev().find_map(count).unwrap_or(0)
}

#[test]
fn the_other_process() {
    let (Ok(role), Some(folder)) = (env::var(ROLE), env::var_os(FOLDER)) else {
        return;
    };
    let folder = PathBuf::from(folder);
    let mut store = match opened(folder) {
        Ok(store) => store,
        Err(error) => return fail(&error),
    };
    println!("child: ready");
    let done = match role.as_str() {
        "busy" => (0..).try_for_each(|_| store.round()),
        "brief" => store.brief(),
        _ => {
            let _ = std::io::stdin().lines().next();
            Ok(())
        }
    };
    match done {
        Ok(()) => println!("child: done"),
        Err(error) => {
            fail(&error);
            // The call that failed works again by now: it must not be tried.
            fail(&store.append().unwrap_err());
            fail(&store.store.begin_snapshot(0).unwrap_err());
        }
    }
}

fn fail(error: &StoreError) {
    let shown = format!("{error:?}");
    let name: String = shown.chars().take_while(|c| c.is_alphanumeric()).collect();
    println!("child: failed {name} {error}");
}

/// A store, and how many batches it holds.
struct Counted {
    store: Embedded,
    count: u64,
}

fn opened(folder: PathBuf) -> Result<Counted, StoreError> {
    let mut store = Embedded::open(folder)?;
    let count = take(&mut store)?.count();
    println!("child: ack {count}.");
    Ok(Counted { store, count })
}

impl Counted {
    fn append(&mut self) -> Result<(), StoreError> {
        append(&mut self.store, &batch_of(self.count))?;
        self.count += 1;
        println!("child: ack {}.", self.count);
        Ok(())
    }

    /// Some batches, and a snapshot with batches between its steps.
    fn round(&mut self) -> Result<(), StoreError> {
        for _ in 0..5 {
            self.append()?;
        }
        let before = self.count;
        self.store.begin_snapshot(0)?;
        self.append()?;
        self.store.put_chunk(&chunk_of(before, 0))?;
        self.append()?;
        self.store.put_chunk(&chunk_of(before, 1))?;
        self.append()?;
        self.store.end_snapshot()
    }

    fn brief(&mut self) -> Result<(), StoreError> {
        self.round()?;
        self.round()?;
        self.append()?;
        self.store.begin_snapshot(0)?;
        self.store.put_chunk(&chunk_of(self.count, 0))?;
        self.append()
    }
}
