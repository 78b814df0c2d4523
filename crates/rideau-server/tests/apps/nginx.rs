//! nginx, beside which the front is looked at.

use std::fs;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;

use rideau_testing::{Running, Start, command, is_root};

use crate::harness::until;

/// The version that is there, if one is.
pub(crate) fn version() -> Option<String> {
    let said = nginx().arg("-v").output().unwrap().stderr;
    let said = String::from_utf8_lossy(&said).into_owned();
    Some(said.split_once("nginx/")?.1.trim().to_owned())
}

/// nginx with this in its section `http`, and files in this folder. It listens by then at
/// `ready.sock` there, too.
pub(crate) fn start(folder: &Path, http: &str) -> Running {
    let user = if is_root() { "user root;\n" } else { "" };
    let (file, at) = (folder.join("nginx.conf"), folder.display());
    let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
    let temporary = temporary.map(|kind| format!("{kind}_temp_path {at}/{kind};\n"));
    let config = format!(
        "daemon off;\n{user}worker_processes 1;\npid {at}/nginx.pid;\n\
         error_log {at}/nginx.log;\nevents {{ }}\n\
         http {{\ninclude /etc/nginx/mime.types;\naccess_log off;\n{}{http}\n\
         server {{ listen unix:{at}/ready.sock; }}\n}}\n",
        temporary.concat()
    );
    fs::write(&file, config).unwrap();
    let mut command = nginx();
    command.arg("-p").arg(folder).arg("-c").arg(&file);
    // Before it has read its file, it would write to a place of the system.
    let running = command.args(["-e", "stderr"]).start();
    until("nginx listens", || {
        UnixStream::connect(folder.join("ready.sock")).is_ok()
    });
    running
}

/// Debian has it where only root looks.
fn nginx() -> Command {
    let path = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin";
    let mut command = command("nginx");
    command.env("PATH", path);
    command
}
