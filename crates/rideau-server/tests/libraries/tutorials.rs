//! The tutorials: the files of each are written, and what it has one type is typed into a
//! shell, which has to say what the page says.
//!
//! A file is a block of code below a line that ends in its name, as in `rideau.toml`:. In what
//! is printed, `…` stands for anything within a line.

use std::env;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use rideau_testing::{Running, Scratch, Start};

use crate::served::free_port;
use crate::tools::{clients, node_home, python_home};

/// How long anything may take to be said.
const PATIENCE: Duration = Duration::from_secs(60);
/// Behind every command, so that the end of what it prints is seen.
const END: &str = "that-was-all";
/// Ports of the pages. Each is another one here.
const PORTS: [u16; 10] = [2379, 2380, 3000, 7433, 7434, 7435, 7443, 7445, 7453, 7455];

#[test]
fn a_line_is_like_another_with_anything_in_the_gaps() {
    let said = "shop  2  26436  ready      1   53 MiB";
    for wanted in ["shop 2 … ready …", "shop  2  26436  ready 1 53 MiB", "…MiB"] {
        assert!(is_like(wanted, said), "{wanted}");
    }
    for wanted in ["shop 2 … dead …", "shop 2", "shop … ready", "hop …"] {
        assert!(!is_like(wanted, said), "{wanted}");
    }
}

#[test]
fn licences() {
    follow(include_str!("../../../../docs/tutorial-licences.md"));
}

#[test]
fn jobs() {
    follow(include_str!("../../../../docs/tutorial-jobs.md"));
}

#[test]
fn addresses() {
    follow(include_str!("../../../../docs/tutorial-addresses.md"));
}

#[test]
fn a_web_application() {
    follow(include_str!("../../../../docs/tutorial-web.md"));
}

#[test]
fn a_cluster() {
    follow(include_str!("../../../../docs/tutorial-cluster.md"));
}

/// Do what a page says.
#[track_caller]
fn follow(page: &str) {
    let ports = PORTS.map(|port| (port.to_string(), free_port().to_string()));
    let folder = Scratch::new();
    let home = folder.join("").display().to_string();
    let home = home.trim_end_matches('/');
    let here = |text: &str| {
        let text = replaced(text, &ports);
        text.replace("/srv/shop", home).replace("/srv/office", home)
    };
    let there = ports.clone().map(|(page, here)| (here, page));
    let mut shell = Shell::start(&folder, &here("127.0.0.1:7433"));
    let mut parts = page.split("```");
    let mut before = parts.next().unwrap();
    let mut count = 0;
    while let (Some(block), Some(after)) = (parts.next(), parts.next()) {
        let (language, text) = block.split_once('\n').unwrap();
        if let Some(name) = file(before) {
            let head = match language == "toml" && !text.contains("[server]") {
                true => "[server]\nlisten = [\"127.0.0.1:7433\"]\nadmin = \"none\"\n",
                false => "",
            };
            fs::write(folder.join(name), here(&format!("{head}{text}"))).unwrap();
        } else if language == "console" {
            for typed in text.split("$ ").skip(1) {
                let (line, printed) = typed.split_once('\n').unwrap();
                shell.check(&here(line), line, printed, &folder, &there);
                count += 1;
            }
        }
        before = after;
    }
    assert!(count > 3, "{count} commands were found");
    shell.end();
}

/// The file that the text before a block names.
fn file(before: &str) -> Option<&str> {
    let last = before.trim_end().strip_suffix("`:")?;
    Some(last.rsplit_once('`')?.1)
}

/// A text with these numbers replaced, wherever they stand alone.
fn replaced(text: &str, numbers: &[(String, String)]) -> String {
    let mut made = String::new();
    let is_digit = |c: char| c.is_ascii_digit();
    for part in text.split_inclusive(|c: char| !is_digit(c)) {
        let number = part.trim_end_matches(|c| !is_digit(c));
        let found = numbers.iter().find(|(from, _)| from == number);
        match found {
            Some((_, to)) => made += &part.replacen(number, to, 1),
            None => made += part,
        }
    }
    made
}

/// A shell that gets its commands on its input. What it started ends with it.
struct Shell {
    _child: Running,
    input: Option<ChildStdin>,
    lines: Receiver<String>,
}

impl Shell {
    fn start(folder: &Scratch, server: &str) -> Self {
        let modules = folder.join("node_modules");
        fs::create_dir_all(&modules).unwrap();
        symlink(node_home(), modules.join("rideau")).unwrap();
        let first = [
            Path::new(env!("CARGO_BIN_EXE_rideau")).parent().unwrap(),
            &python_home().join("bin"),
        ];
        let path = env::var_os("PATH").unwrap();
        let path = first
            .map(Path::to_owned)
            .into_iter()
            .chain(env::split_paths(&path));
        let mut bash = rideau_testing::command("bash");
        bash.env("PATH", env::join_paths(path).unwrap());
        bash.env("PYTHONPATH", clients().join("python"));
        for name in ["XDG_STATE_HOME", "XDG_RUNTIME_DIR"] {
            bash.env(name, folder.join("state"));
        }
        bash.env("PYTHONDONTWRITEBYTECODE", "1")
            .env("NO_COLOR", "1");
        bash.env("RIDEAU_SERVER", server);
        Self::of(bash.arg("--norc").current_dir(folder.join("")))
    }

    fn of(bash: &mut Command) -> Self {
        bash.stdin(Stdio::piped()).stdout(Stdio::piped());
        // It says when something that it started was killed.
        let mut child = bash.stderr(Stdio::null()).start();
        let mut input = child.stdin.take().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let (sender, lines) = channel();
        thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        // As in a terminal.
        writeln!(
            input,
            "redis-cli() {{ command redis-cli --no-raw \"$@\"; }}"
        )
        .unwrap();
        Self {
            _child: child,
            input: Some(input),
            lines,
        }
    }

    /// Type a line, and wait for what the page says is printed. What only looks is typed
    /// again until it has been seen.
    #[track_caller]
    fn check(
        &mut self,
        typed: &str,
        shown: &str,
        printed: &str,
        folder: &Scratch,
        there: &[(String, String)],
    ) {
        let wanted: Vec<_> = printed.lines().filter(|line| !line.is_empty()).collect();
        let looks = ["rideau status", "rideau holders", "redis-cli", "curl"];
        let looks_only = looks.iter().any(|start| typed.starts_with(start));
        let limit = Instant::now() + PATIENCE;
        loop {
            let said = self.say(typed, wanted.len());
            let said: Vec<_> = said.iter().map(|line| replaced(line, there)).collect();
            let fits = said.len() == wanted.len()
                && wanted
                    .iter()
                    .zip(&said)
                    .all(|(wanted, said)| is_like(wanted, said));
            if fits {
                break;
            }
            let is_late = Instant::now() > limit;
            assert!(
                looks_only && !is_late,
                "$ {shown}\n{}\n{}\ninstead of\n{printed}\n{}",
                said.join("\n"),
                self.rest(),
                logs(folder)
            );
            thread::sleep(Duration::from_millis(500));
        }
        if let Some(port) = served(typed, folder) {
            let answers = || TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok();
            while !answers() {
                assert!(
                    Instant::now() < limit,
                    "$ {shown}: nothing answers at {port}"
                );
                thread::sleep(Duration::from_millis(20));
            }
        }
    }

    /// What is printed up to the end of the command, and until there are at least these many lines.
    fn say(&mut self, typed: &str, least: usize) -> Vec<String> {
        let typed = match (typed.strip_suffix(" &"), typed.strip_prefix("kill -9 ")) {
            (Some(line), _) => format!("{line} 2>&1 &"),
            // A person types too slowly to meet a program that is still ending.
            (_, Some(job)) => format!("{{ {typed}; wait {job}; }} 2>/dev/null"),
            _ => format!("{{ {typed}; }} 2>&1"),
        };
        let input = self.input.as_mut().unwrap();
        writeln!(input, "{typed}\necho {END}").unwrap();
        let (mut said, mut is_over) = (Vec::new(), false);
        let limit = Instant::now() + PATIENCE;
        while !is_over || said.len() < least {
            let left = limit.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(left) {
                Ok(line) if line == END => is_over = true,
                Ok(line) if line.is_empty() => (),
                Ok(line) => said.push(line),
                Err(RecvTimeoutError::Disconnected) => panic!("the shell ended: {said:?}"),
                // A command that has ended says no more, if it was not put aside.
                Err(RecvTimeoutError::Timeout) => break,
            }
            if is_over && !typed.ends_with('&') {
                break;
            }
        }
        said
    }

    /// What is still said within a second.
    fn rest(&mut self) -> String {
        let second = Duration::from_secs(1);
        let lines = std::iter::from_fn(|| self.lines.recv_timeout(second).ok());
        lines.take(100).collect::<Vec<_>>().join("\n")
    }

    fn end(mut self) {
        self.stop();
    }

    /// End everything that was put aside, and then the shell.
    fn stop(&mut self) {
        let Some(mut input) = self.input.take() else {
            return;
        };
        let _ = writeln!(input, "kill $(jobs -p); wait; echo {END}");
        let limit = Instant::now() + PATIENCE;
        while Instant::now() < limit {
            match self.lines.recv_timeout(Duration::from_millis(100)) {
                Ok(line) if line == END => return,
                Err(RecvTimeoutError::Disconnected) => return,
                _ => (),
            }
        }
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        self.stop();
    }
}

/// What the servers wrote.
fn logs(folder: &Scratch) -> String {
    let files = fs::read_dir(folder.join("")).unwrap().flatten();
    let logs = files.filter(|file| file.path().extension().is_some_and(|end| end == "log"));
    logs.map(|file| fs::read_to_string(file.path()).unwrap_or_default())
        .collect()
}

/// The first address in the file of a server that is put aside, or in the line itself.
fn served(typed: &str, folder: &Scratch) -> Option<u16> {
    let line = typed.strip_suffix(" &")?;
    let words: Vec<_> = line.split(' ').collect();
    let file = words.iter().find(|word| word.ends_with(".toml"));
    let text = match file {
        Some(name) => fs::read_to_string(folder.join(name)).ok()?,
        None => line.to_owned(),
    };
    let (_, rest) = text.split_once("127.0.0.1:")?;
    let digits = rest.split(|c: char| !c.is_ascii_digit()).next()?;
    digits.parse().ok()
}

/// Whether a line is what a page says, with anything where that has `…`. Columns may be of
/// other widths.
fn is_like(wanted: &str, said: &str) -> bool {
    let narrow = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let (wanted, said) = (narrow(wanted), narrow(said));
    let mut parts = wanted.split('…').map(str::trim).peekable();
    let Some(mut rest) = said.strip_prefix(parts.next().unwrap_or("")) else {
        return false;
    };
    while let Some(part) = parts.next() {
        let at = match parts.peek() {
            Some(_) => rest.find(part),
            None => rest.trim_end().ends_with(part).then_some(rest.len()),
        };
        let Some(at) = at else { return false };
        rest = rest.get(at + part.len()..).unwrap_or("");
    }
    wanted.contains('…') || rest.is_empty()
}
