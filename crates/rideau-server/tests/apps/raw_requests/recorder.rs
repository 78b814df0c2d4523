//! An application that writes down each request as it came, and takes for its end what most
//! would.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::{env, thread};

use super::table::shown;

/// The variable that has a test serve, with the file that it writes to.
const WRITES: &str = "TEST_WRITES_REQUESTS";

/// The file of an application, as far as it was read.
pub(super) struct Recorder {
    file: PathBuf,
    read: Mutex<usize>,
}

impl Recorder {
    pub(super) fn new(file: PathBuf) -> Self {
        fs::write(&file, "").unwrap();
        Self {
            file,
            read: Mutex::new(0),
        }
    }

    /// The keys of an application that is the test of this name.
    pub(super) fn keys(&self, test: &str) -> String {
        let program = env::current_exe().unwrap();
        format!(
            "exec = [{program:?}, \"--exact\", \"{test}\", \"--nocapture\"]\n\
             listen = \"port\"\nenv = {{ {WRITES} = {:?} }}\n",
            self.file
        )
    }

    /// Be the application, at this socket, in threads of this process.
    pub(super) fn serve_here(&self, socket: &Path) {
        let listener = UnixListener::bind(socket).unwrap();
        let file = self.file.clone();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let file = file.clone();
                thread::spawn(move || serve(stream, &file));
            }
        });
    }

    /// The requests that came since this was asked last, but those of the test itself and of
    /// the server.
    pub(super) fn seen(&self) -> Vec<String> {
        let mut read = self.read.lock().unwrap();
        let text = fs::read_to_string(&self.file).unwrap();
        let (_, new) = text.split_at(*read);
        *read = text.len();
        let is_own = |line: &str| {
            line.starts_with("GET /after HTTP/1.1")
                || line.to_ascii_lowercase().contains("x-rideau-probe:")
        };
        let lines = new.lines().filter(|line| !is_own(line));
        lines.map(str::to_owned).collect()
    }
}

/// Serve for ever, if this is to be an application.
pub(super) fn serve_if_asked() {
    let Some(file) = env::var_os(WRITES) else {
        return;
    };
    let port = env::var("PORT").unwrap().parse().unwrap();
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port));
    // Another process may have come first: then there is another port to try.
    let listener = listener.unwrap_or_else(|error| {
        eprintln!("{error}");
        std::process::exit(1)
    });
    for stream in listener.incoming().flatten() {
        let file = PathBuf::from(&file);
        thread::spawn(move || serve(stream, &file));
    }
}

/// Answer one request after the other.
fn serve(mut stream: impl Read + Write, file: &Path) {
    let mut held = Vec::new();
    loop {
        let Some((request, len)) = request(&mut stream, &mut held) else {
            if !held.is_empty() {
                note(file, &[&held[..], b" (cut)"].concat());
            }
            return;
        };
        note(file, &request);
        held.drain(..len);
        let is_head = request.starts_with(b"HEAD ");
        let line = request.split(|byte| *byte == b'\r').next();
        let target = line.and_then(|line| line.split(|byte| *byte == b' ').nth(1));
        let body = [b"seen ", target.unwrap_or_default()].concat();
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
        let body = if is_head { &[] } else { &body[..] };
        if stream.write_all(&[head.as_bytes(), body].concat()).is_err() {
            return;
        }
    }
}

/// One line for a request, in one write.
fn note(file: &Path, request: &[u8]) {
    let mut options = OpenOptions::new();
    let mut file: File = options.append(true).open(file).unwrap();
    file.write_all(format!("{}\n", shown(request)).as_bytes())
        .unwrap();
}

/// The next request with the chunks of its body taken apart, and how many of the bytes that
/// came were of it; none at the end.
fn request(stream: &mut impl Read, held: &mut Vec<u8>) -> Option<(Vec<u8>, usize)> {
    let end = find(stream, held, 0, b"\r\n\r\n")? + 4;
    let head = String::from_utf8_lossy(&held[..end]).to_ascii_lowercase();
    let said = |name: &str| {
        let lines = head.lines().filter_map(|line| line.split_once(':'));
        let mut named = lines.filter(|(known, _)| known.trim() == name);
        named.next().map(|(_, value)| value.trim().to_owned())
    };
    let mut whole = held[..end].to_vec();
    if said("transfer-encoding").is_some_and(|coding| coding.contains("chunked")) {
        let mut at = end;
        loop {
            let line = find(stream, held, at, b"\r\n")?;
            let digits = String::from_utf8_lossy(&held[at..line]).into_owned();
            let size = usize::from_str_radix(digits.split(';').next()?.trim(), 16).ok()?;
            fill(stream, held, line + 2 + size + 2)?;
            whole.extend_from_slice(&held[line + 2..line + 2 + size]);
            at = line + 2 + size + 2;
            if size == 0 {
                return Some((whole, at));
            }
        }
    }
    let len = said("content-length").map_or(Some(0), |text| text.parse().ok())?;
    fill(stream, held, end + len)?;
    whole.extend_from_slice(&held[end..end + len]);
    Some((whole, end + len))
}

/// Where this is; none if it never comes.
fn find(stream: &mut impl Read, held: &mut Vec<u8>, from: usize, what: &[u8]) -> Option<usize> {
    loop {
        let rest = held.get(from..).unwrap_or_default();
        let found = rest.windows(what.len()).position(|bytes| bytes == what);
        if let Some(at) = found {
            return Some(from + at);
        }
        let len = held.len() + 1;
        fill(stream, held, len)?;
    }
}

/// Read until there are this many bytes; none if there never are.
fn fill(stream: &mut impl Read, held: &mut Vec<u8>, len: usize) -> Option<()> {
    let mut part = [0; 8192];
    while held.len() < len {
        match stream.read(&mut part) {
            Ok(0) | Err(_) => return None,
            Ok(more) => held.extend_from_slice(&part[..more]),
        }
    }
    Some(())
}
