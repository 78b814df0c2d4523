//! What a program gets of the server's own, and what it may become.

use std::fs;

use rustix::io::{FdFlags, fcntl_dupfd_cloexec, fcntl_setfd};

use crate::harness::{Harness, folder};

/// Serves what it sees of itself: its open files, and whether it can get more rights.
const APP: &str = r#"
import os, sys
from http.server import BaseHTTPRequestHandler, HTTPServer
files = sorted(map(int, os.listdir('/proc/self/fd')))
files = [file for file in files if os.path.exists('/proc/self/fd/%d' % file)]
status = open('/proc/self/status').read()
rights = [line for line in status.splitlines() if line.startswith('NoNewPrivs')]
seen = '%s %s' % (files, rights[0].split()[1])
class Answer(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header('Content-Length', str(len(seen)))
        self.end_headers()
        self.wfile.write(seen.encode())
    def log_message(self, *words):
        pass
HTTPServer(('127.0.0.1', int(os.environ['PORT'])), Answer).serve_forever()
"#;

#[test]
fn programs_get_no_file_of_the_server_and_no_rights_but_those_that_they_were_given() {
    let folder = folder();
    fs::write(folder.join("seen.py"), APP).unwrap();
    let member = "print(*sorted(map(int, os.listdir('/proc/self/fd')))[:-1], \
                  open('/proc/self/status').read().split('NoNewPrivs:')[1].split()[0], \
                  sep='-', flush=True); time.sleep(1000)";
    let member = format!("import os, time; {member}");
    let apps = format!(
        "[app.plain]\npaths = [\"/\"]\nexec = [\"python3\", \"FOLDER/seen.py\"]\n\
         [app.trusted]\npaths = [\"/trusted\"]\nnew_privileges = true\n\
         exec = [\"python3\", \"FOLDER/seen.py\"]\n\
         [pool.plain]\nmax = 1\nqueue = \"never\"\n\
         member = {{ exec = [\"python3\", \"-c\", {member:?}], \
         ready = {{ line = \"{{address}}\" }} }}\n\
         [pool.trusted]\nmax = 1\nqueue = \"never\"\n\
         member = {{ exec = [\"python3\", \"-c\", {member:?}], new_privileges = true, \
         ready = {{ line = \"{{address}}\" }} }}\n"
    );
    Harness::write(&folder, "", &apps);
    // Files that the server is started with and does not know of.
    let open = fs::File::open("/dev/zero").unwrap();
    let far = fcntl_dupfd_cloexec(&open, 900).unwrap();
    fcntl_setfd(&far, FdFlags::empty()).unwrap();
    let mut harness = Harness::start_limited(&folder, "exec 3</dev/null 7</dev/zero");
    drop(far);
    let server = harness.pid();
    for file in [3, 7, 900] {
        let path = format!("/proc/{server}/fd/{file}");
        assert!(fs::read_link(&path).is_ok(), "the server has {path}");
    }
    assert_eq!(harness.get("/").body, "[0, 1, 2] 1");
    assert_eq!(harness.get("/trusted").body, "[0, 1, 2] 0");
    let mut peer = harness.peer();
    let taken = peer.say("TAKE plain WAIT 30000");
    assert!(taken.contains("0-1-2-1"), "{taken}");
    let taken = peer.say("TAKE trusted WAIT 30000");
    assert!(taken.contains("0-1-2-0"), "{taken}");
    drop(peer);
    harness.stop();
}
