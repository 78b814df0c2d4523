//! The smallest application: this very program, which starts faster than any
//! interpreter. A test that is run with its variable serves instead of testing.

use std::env;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::thread;

/// The variable that has a test serve.
const SERVES: &str = "TEST_SERVES";

/// The keys of an application that is the test of this name.
pub(crate) fn keys(test: &str) -> String {
    let program = env::current_exe().unwrap();
    format!(
        "exec = [{program:?}, \"--exact\", \"{test}\", \"--nocapture\"]\n\
         listen = \"port\"\nenv = {{ {SERVES} = \"1\" }}\n"
    )
}

/// Serve for ever, if this is to be an application.
pub(crate) fn serve_if_asked() {
    if env::var_os(SERVES).is_none() {
        return;
    }
    let port = env::var("PORT").unwrap().parse().unwrap();
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port));
    // Another process may have come first: then there is another port to try.
    let listener = listener.unwrap_or_else(|error| {
        eprintln!("{error}");
        std::process::exit(1)
    });
    for stream in listener.incoming().flatten() {
        thread::spawn(move || answer(stream));
    }
}

/// Requests without bodies are all it understands.
fn answer(mut stream: TcpStream) {
    let mut bytes = [0; 8192];
    while let Ok(1..) = stream.read(&mut bytes) {
        if stream
            .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
            .is_err()
        {
            return;
        }
    }
}
