//! The load: `wrk`, and what it says at its end.

use std::fs;
use std::io::ErrorKind;
use std::process::Command;

use super::question::Question;
use crate::talk::{Folder, fail};

/// What a run of `wrk` says.
#[derive(Debug, PartialEq)]
pub(super) struct Told {
    pub(super) requests: u64,
    /// Requests a second.
    pub(super) rate: f64,
    /// In nanoseconds.
    pub(super) p50: f64,
    pub(super) p99: f64,
    /// Connections that failed or were late, and answers other than yes.
    pub(super) failed: u64,
}

/// Asks for this many seconds.
///
/// # Panics
///
/// If it does not run, or says what cannot be read.
pub(super) fn run(url: &str, question: &Question, seconds: u64) -> Told {
    let mut command = Command::new("wrk");
    command
        .args(["-t1", "--latency", "--timeout", "10s"])
        .arg(format!("-c{}", question.connections))
        .arg(format!("-d{seconds}s"));
    if let Some(coding) = question.coding {
        command.args(["-H", &format!("Accept-Encoding: {coding}")]);
    }
    let folder = (question.body > 0).then(Folder::new);
    if let Some(folder) = &folder {
        let script = folder.path().join("post.lua");
        let body = format!("string.rep(\"a\", {})", question.body);
        let lines = format!("wrk.method = \"POST\"\nwrk.body = {body}\n");
        fs::write(&script, lines).expect("the temporary folder can be written");
        command.arg("-s").arg(script);
    }
    let run = command.arg(url).output().expect("it ran before");
    let text = String::from_utf8_lossy(&run.stdout);
    let told = Told::read(&text).filter(|_| run.status.success());
    told.unwrap_or_else(|| {
        let errors = String::from_utf8_lossy(&run.stderr);
        panic!("wrk at {url} does not say how it went: {text}{errors}")
    })
}

/// Ends this program if a tool is missing.
pub(super) fn want(tool: &str, package: &str) {
    match Command::new(tool).arg("-v").output() {
        Ok(version) => {
            // Each says its version in a place of its own.
            let said = [version.stdout, version.stderr].concat();
            let said = String::from_utf8_lossy(&said);
            eprintln!("{}", said.lines().next().unwrap_or(tool));
        }
        Err(error) if error.kind() == ErrorKind::NotFound => fail(&format!(
            "there is no {tool} in PATH; on Debian: apt install {package}"
        )),
        Err(error) => fail(&format!("{tool} does not run: {error}")),
    }
}

impl Told {
    fn read(text: &str) -> Option<Self> {
        let lines = || text.lines().map(str::trim);
        let after = |head: &str| lines().find_map(|line| line.strip_prefix(head));
        let requests = lines().find_map(|line| line.split_once(" requests in "))?;
        let errors = after("Socket errors:").map_or(Some(0), |counts| {
            let counts = counts.split(',').map(|count| {
                let (_, count) = count.rsplit_once(' ')?;
                count.parse::<u64>().ok()
            });
            counts.sum()
        })?;
        let others = after("Non-2xx or 3xx responses:")
            .map_or(Some(0), |count| count.trim().parse().ok())?;
        Some(Self {
            requests: requests.0.parse().ok()?,
            rate: after("Requests/sec:")?.trim().parse().ok()?,
            p50: nanos(after("50%")?.trim())?,
            p99: nanos(after("99%")?.trim())?,
            failed: errors + others,
        })
    }
}

/// A span as `wrk` writes it.
fn nanos(text: &str) -> Option<f64> {
    let unit = text.find(|letter: char| letter.is_ascii_alphabetic())?;
    let (number, unit) = text.split_at(unit);
    let scale = match unit {
        "us" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        "m" => 60e9,
        _ => return None,
    };
    Some(number.parse::<f64>().ok()? * scale)
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUIET: &str = "\
Running 2s test @ http://127.0.0.1:8080/
  1 threads and 16 connections
  Thread Stats   Avg      Stdev     Max   +/- Stdev
    Latency   635.91us    0.89ms  12.92ms   93.69%
    Req/Sec    56.20k     8.07k   62.00k    86.54%
  Latency Distribution
     50%  250.00us
     75%  491.00us
     90%    0.70ms
     99%    5.80ms
  112400 requests in 2.10s, 9.12MB read
Requests/sec:  53523.81
Transfer/sec:      4.34MB
";

    #[test]
    fn what_it_says_is_read_with_its_units() {
        let told = Told::read(QUIET).unwrap();
        let wanted = Told {
            requests: 112_400,
            rate: 53_523.81,
            p50: 250e3,
            p99: 5.8e6,
            failed: 0,
        };
        assert_eq!(told, wanted);
        assert_eq!(nanos("1.50s"), Some(1.5e9));
        assert_eq!(nanos("2.00m"), Some(120e9));
        assert_eq!(nanos("93.69%"), None);
    }

    #[test]
    fn every_error_and_every_answer_but_yes_has_failed() {
        let errors = "  Socket errors: connect 1, read 20, write 3, timeout 4\n";
        let others = "  Non-2xx or 3xx responses: 100\n";
        let loud = QUIET.replace("Requests/sec", &format!("{errors}{others}Requests/sec"));
        assert_eq!(Told::read(&loud).unwrap().failed, 128);
        let garbled = loud.replace("read 20", "read many");
        assert_eq!(Told::read(&garbled), None);
    }

    #[test]
    fn nothing_is_read_from_a_run_that_broke_off() {
        assert_eq!(Told::read("unable to connect to 127.0.0.1:1\n"), None);
        assert_eq!(Told::read(""), None);
    }
}
