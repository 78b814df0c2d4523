//! A PostgreSQL server of our own, and its protocol as far as clients need it
//! that send the same few statements all the time.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::{MetadataExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use super::folder::Folder;
use super::frames::Form;
use super::server::{Server, fail, free_address};
use super::traffic::Step;

const USER: &str = "bench";

impl Server {
    /// With everything at its default but what `options` say; nothing if there
    /// is no PostgreSQL on this machine.
    pub(crate) fn postgres(folder: Folder, options: &[&str]) -> Option<Self> {
        let (initdb, postgres) = (installed("initdb")?, installed("postgres")?);
        let user = Unprivileged::find()?;
        user.give(folder.path());
        let place = folder.path().join("place");
        let made = user
            .command(&initdb)
            .args(["--auth=trust", "--no-sync", "--username", USER, "--pgdata"])
            .arg(&place)
            .output();
        match made {
            Ok(made) if made.status.success() => (),
            made => fail(&format!("initdb does not run: {made:?}")),
        }
        let address = free_address();
        let mut command = user.command(&postgres);
        command.arg("-D").arg(&place).arg("-k").arg(folder.path());
        command.args(["-h", "127.0.0.1", "-p", &address.port().to_string()]);
        for option in options.iter().chain(&["log_min_messages=panic"]) {
            command.args(["-c", option]);
        }
        // One that is killed would leave shared memory behind.
        let mut stop = user.command(&installed("pg_ctl")?);
        stop.args(["stop", "-w", "-m", "immediate", "-D"])
            .arg(&place);
        let server = Self::start(&mut command, Some(stop), folder, address);
        // It listens before it is ready, and then says no.
        while !server.is_ready() {
            thread::sleep(Duration::from_millis(20));
        }
        Some(server)
    }

    fn is_ready(&self) -> bool {
        let mut stream = TcpStream::connect(self.address).expect("it listens");
        let mut kind = [0];
        let heard = stream.write_all(&startup());
        heard.and_then(|()| stream.read_exact(&mut kind)).is_ok() && kind == *b"R"
    }

    /// Executes a statement, outside of what is measured.
    pub(crate) fn execute(&self, statement: &str) {
        let query = message(b'Q', &[statement.as_bytes(), b"\0"]);
        let frames = [startup(), query].concat();
        self.exchange(&frames, 2, &Form::Postgres { back: 0 });
    }
}

/// Says which user one is, and names the statements that one will use.
pub(crate) fn greeting(statements: &[(&str, &str)]) -> Step {
    let mut frames = startup();
    for (name, statement) in statements {
        let texts = [name.as_bytes(), b"\0", statement.as_bytes(), b"\0"];
        frames.extend(message(b'P', &[&texts.concat(), &[0, 0]]));
    }
    frames.extend(message(b'S', &[]));
    Step::Same(frames, 2)
}

/// The first message has no kind, but a version.
fn startup() -> Vec<u8> {
    const VERSION: i32 = 3 << 16;
    let texts = ["user", USER, "database", "postgres", ""].join("\0") + "\0";
    let len = 8 + texts.len() as i32;
    [
        &len.to_be_bytes()[..],
        &VERSION.to_be_bytes(),
        texts.as_bytes(),
    ]
    .concat()
}

/// A statement with these arguments, in the form in which columns are sent, in a
/// transaction of its own.
pub(crate) fn statement(name: &str, arguments: &[Vec<u8>]) -> Vec<u8> {
    let count = arguments.len() as i16;
    let head = [
        b"\0",
        name.as_bytes(),
        b"\0\0\x01\0\x01",
        &count.to_be_bytes(),
    ]
    .concat();
    [
        message(b'B', &[&head, &arguments.concat(), &[0, 1, 0, 1]]),
        message(b'E', &[&[0; 5]]),
        message(b'S', &[]),
    ]
    .concat()
}

/// The same around a first argument of this many bytes that is not known yet.
pub(crate) fn statement_around(name: &str, len: usize, rest: &[Vec<u8>]) -> (Vec<u8>, Vec<u8>) {
    let first = argument(&vec![0; len]);
    let mut head = statement(name, &[std::slice::from_ref(&first), rest].concat());
    let before = b"B....\0".len() + name.len() + b"\0......".len();
    let tail = head.split_off(before + first.len());
    head.truncate(before);
    (head, tail)
}

/// An argument, or a column.
pub(crate) fn argument(bytes: &[u8]) -> Vec<u8> {
    [&(bytes.len() as i32).to_be_bytes(), bytes].concat()
}

fn message(kind: u8, parts: &[&[u8]]) -> Vec<u8> {
    let body = parts.concat();
    let len = 4 + body.len() as i32;
    [&[kind], &len.to_be_bytes()[..], &body].concat()
}

/// Debian keeps the programs of the server out of the way.
fn installed(name: &str) -> Option<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql").ok()?.flatten();
    let found = versions.map(|version| version.path().join("bin").join(name));
    found.filter(|program| program.exists()).max()
}

/// The user that the server runs as, which refuses to be run by root: our own
/// if that is not root, and if it is the user that its package made.
#[derive(Clone, Copy)]
struct Unprivileged(Option<(u32, u32)>);

impl Unprivileged {
    fn find() -> Option<Self> {
        if fs::metadata("/proc/self").ok()?.uid() != 0 {
            return Some(Self(None));
        }
        let users = fs::read_to_string("/etc/passwd").ok()?;
        let ids = users.lines().find_map(|line| {
            let mut fields = line.strip_prefix("postgres:")?.split(':').skip(1);
            Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
        });
        Some(Self(Some(ids?)))
    }

    fn command(self, program: &Path) -> Command {
        let mut command = Command::new(program);
        if let Some((user, group)) = self.0 {
            command.uid(user).gid(group);
        }
        command
    }

    fn give(self, path: &Path) {
        if let Some((user, group)) = self.0 {
            chown(path, Some(user), Some(group)).expect("root may give a folder away");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_statement_around_an_argument_is_whole_with_it() {
        let rest = [argument(b"rest")];
        let (head, tail) = statement_around("name", 2, &rest);
        let whole = [head, argument(b"xy"), tail].concat();
        assert_eq!(
            whole,
            statement("name", &[argument(b"xy"), rest[0].clone()])
        );
    }

    #[test]
    fn a_statement_has_its_arguments_as_columns_are_sent() {
        let frames = statement("a", &[argument(b"xy")]);
        let bind = b"B\0\0\0\x17\0a\0\0\x01\0\x01\0\x01\0\0\0\x02xy\0\x01\0\x01";
        assert!(frames.starts_with(bind), "{frames:?}");
        assert!(frames.ends_with(b"E\0\0\0\x09\0\0\0\0\0S\0\0\0\x04"));
    }
}
