//! The load over HTTP/2: `h2load`, what it says at its end, and its log of all
//! requests, for it does not say by itself how late the latest were.

use std::fs;
use std::process::Command;

use super::question::Question;
use super::wrk::Told;
use crate::talk::Folder;

/// Requests that each connection has under way at a time, as a browser has that
/// loads a page.
const STREAMS: usize = 8;

/// Whether it is installed; says how it is if not.
pub(super) fn is_there() -> bool {
    match Command::new("h2load").arg("--version").output() {
        Ok(version) => {
            eprint!("{}", String::from_utf8_lossy(&version.stdout));
            true
        }
        Err(error) => {
            eprintln!("HTTP/2 is left out, h2load does not run: {error}");
            eprintln!("on Debian: apt install nghttp2-client");
            false
        }
    }
}

/// Asks over HTTP/2 within TLS for this many seconds.
///
/// # Panics
///
/// If it does not run, speaks something else, or says what cannot be read.
pub(super) fn run(url: &str, question: &Question, seconds: u64) -> Told {
    let folder = Folder::new();
    let log = folder.path().join("requests");
    let run = Command::new("h2load")
        .arg("-t1")
        .arg(format!("-c{}", question.connections))
        .arg(format!("-m{STREAMS}"))
        .arg(format!("-D{seconds}"))
        .arg("--log-file")
        .arg(&log)
        .arg(url)
        .output()
        .expect("it ran before");
    let text = String::from_utf8_lossy(&run.stdout);
    let log = fs::read_to_string(log).unwrap_or_default();
    let told = read(&text, &log).filter(|_| run.status.success());
    told.unwrap_or_else(|| {
        let errors = String::from_utf8_lossy(&run.stderr);
        panic!("h2load at {url} does not say how it went over HTTP/2: {text}{errors}")
    })
}

/// Asks once over HTTP/2 within TLS, and returns what was agreed on for TLS.
///
/// # Panics
///
/// If that is not answered with this many bytes.
pub(super) fn look(url: &str, len: usize) -> String {
    let mut command = Command::new("h2load");
    command.args(["-t1", "-c1", "-m1", "-n1", url]);
    let run = command.output().expect("it ran before");
    let text = String::from_utf8_lossy(&run.stdout);
    agreed(&text, len).unwrap_or_else(|| {
        let errors = String::from_utf8_lossy(&run.stderr);
        panic!("{url} does not answer {len} bytes over HTTP/2: {text}{errors}")
    })
}

/// The version and cipher of TLS, if one request was answered with this many bytes.
fn agreed(text: &str, len: usize) -> Option<String> {
    let told = read(text, "").filter(|told| (told.requests, told.failed) == (1, 0));
    told.filter(|_| after(text, "status codes: ").is_some_and(|codes| codes.starts_with("1 2xx")))?;
    let data = after(text, "traffic: ")?.split(", ").last()?;
    let is_meant = data.ends_with(&format!("({len}) data"));
    let (version, cipher) = (after(text, "TLS Protocol: ")?, after(text, "Cipher: ")?);
    is_meant.then(|| format!("{version}, {cipher}"))
}

fn read(text: &str, log: &str) -> Option<Told> {
    // It takes what the server chooses, and that may be HTTP/1.1.
    after(text, "Application protocol: ").filter(|protocol| *protocol == "h2")?;
    let rate = after(text, "finished in ")?.split(", ").nth(1)?;
    let counts = after(text, "requests: ")?;
    let count = |what: &str| {
        let counts = counts.split(", ");
        let mut named = counts.filter_map(|count| count.split_once(' '));
        let (count, _) = named.find(|(_, name)| *name == what)?;
        count.parse::<u64>().ok()
    };
    let mut waits: Vec<u64> = log.lines().filter_map(micros).collect();
    waits.sort_unstable();
    let at = |share: usize| Some(*waits.get(waits.len() * share / 100)? as f64 * 1e3);
    Some(Told {
        requests: count("succeeded")?,
        rate: rate.strip_suffix(" req/s")?.parse().ok()?,
        p50: at(50).unwrap_or_default(),
        p99: at(99).unwrap_or_default(),
        failed: count("failed")?,
    })
}

/// The rest of the line that begins so.
fn after<'a>(text: &'a str, head: &str) -> Option<&'a str> {
    let mut lines = text.lines().map(str::trim);
    lines.find_map(|line| line.strip_prefix(head))
}

/// How long the request of a line took.
fn micros(line: &str) -> Option<u64> {
    line.split('\t').nth(2)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
TLS Protocol: TLSv1.3
Application protocol: h2
Main benchmark duration is over for thread #0. Stopping all clients.

finished in 1.03s, 11459.00 req/s, 772.33KB/s
requests: 103 total, 143 started, 103 done, 100 succeeded, 3 failed, 1 errored, 0 timeout
status codes: 100 2xx, 0 3xx, 0 4xx, 2 5xx
";

    #[test]
    fn what_it_says_is_read_with_the_waits_of_its_log() {
        let log: String = (1..=100)
            .map(|wait| format!("1795125549167188\t200\t{wait}\n"))
            .collect();
        let wanted = Told {
            requests: 100,
            rate: 11_459.0,
            p50: 51e3,
            p99: 100e3,
            failed: 3,
        };
        assert_eq!(read(TEXT, &log), Some(wanted));
    }

    #[test]
    fn one_answer_is_looked_at_for_its_length() {
        let text = "\
TLS Protocol: TLSv1.3
Cipher: TLS_AES_128_GCM_SHA256
Application protocol: h2
finished in 48.81ms, 20.49 req/s, 2.38KB/s
requests: 1 total, 1 started, 1 done, 1 succeeded, 0 failed, 0 errored, 0 timeout
status codes: 1 2xx, 0 3xx, 0 4xx, 0 5xx
traffic: 119B (119) total, 49B (49) headers (space savings 50.00%), 3B (3) data
";
        let wanted = "TLSv1.3, TLS_AES_128_GCM_SHA256".to_owned();
        assert_eq!(agreed(text, 3), Some(wanted));
        assert_eq!(agreed(text, 4), None);
        let other = text.replace("1 2xx, 0 3xx", "0 2xx, 1 3xx");
        assert_eq!(agreed(&other, 3), None);
    }

    #[test]
    fn another_protocol_and_a_run_that_broke_off_say_nothing() {
        assert_eq!(read(&TEXT.replace(": h2", ": http/1.1"), ""), None);
        assert_eq!(read(TEXT.split_once("requests").unwrap().0, ""), None);
    }
}
