//! nginx as a proxy in front of the application.

use std::fs;
use std::os::unix::net::UnixStream;
use std::path::Path;

use rideau_testing::{Running, Start, command, is_root, skipped};

use crate::harness::until;

/// The version whose answers are noted. Others differ in some.
const VERSION: &str = "nginx/1.22.";

/// nginx at `front.sock` in the folder, before the application at this socket; none, and a
/// word about it, if there is none of the right version.
pub(super) fn start(folder: &Path, app: &Path) -> Option<Running> {
    // Debian has it where only root looks.
    let path = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin";
    let version = command("nginx").arg("-v").env("PATH", &path).output();
    let version = String::from_utf8_lossy(&version.unwrap().stderr).into_owned();
    if !version.contains(VERSION) {
        let version = version.trim();
        skipped(&format!(
            "there is no {VERSION}, whose answers are noted: {version}"
        ));
        return None;
    }
    let file = folder.join("nginx.conf");
    fs::write(&file, config(folder, app)).unwrap();
    let mut command = command("nginx");
    command
        .env("PATH", path)
        .arg("-p")
        .arg(folder)
        .arg("-c")
        .arg(&file);
    // Before it has read its file, it would write to a place of the system.
    let running = command.args(["-e", "stderr"]).start();
    until("nginx listens", || {
        UnixStream::connect(folder.join("front.sock")).is_ok()
    });
    Some(running)
}

/// A proxy as its documents show it, with the limits that the front has.
fn config(folder: &Path, app: &Path) -> String {
    let user = if is_root() { "user root;\n" } else { "" };
    let (folder, app) = (folder.display(), app.display());
    format!(
        "daemon off;\n{user}worker_processes 1;\nerror_log {folder}/nginx.log;\n\
         pid {folder}/nginx.pid;\nevents {{ }}\n\
         http {{\n\
         access_log off;\n\
         client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;\n\
         fastcgi_temp_path {folder}/fastcgi; uwsgi_temp_path {folder}/uwsgi;\n\
         scgi_temp_path {folder}/scgi;\n\
         client_max_body_size 64k; lingering_timeout 100ms;\n\
         proxy_http_version 1.1;\n\
         proxy_set_header Connection \"\";\n\
         proxy_set_header Host $http_host;\n\
         proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;\n\
         upstream app {{ server unix:{app}; keepalive 8; }}\n\
         server {{ listen unix:{folder}/front.sock default_server; server_name _;\n\
         location / {{ proxy_pass http://app; }} }}\n\
         server {{ listen unix:{folder}/front.sock; server_name part;\n\
         location / {{ return 404; }}\n\
         location = /in {{ proxy_pass http://app; }}\n\
         location /in/ {{ proxy_pass http://app; }} }}\n\
         }}\n"
    )
}
