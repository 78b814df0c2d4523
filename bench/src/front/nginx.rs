//! nginx as a proxy in front of one application, as people set it up who look
//! at speed: a process for each core, nothing logged, connections kept to both
//! sides and never given up for their age, the usual fields for the application.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;

use super::Contestant;
use super::app::start_app;
use super::site::Site;
use super::started::{Place, Started, free_address};
use crate::talk::Folder;

/// How connections to the application are treated.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Kept {
    Yes,
    /// One for each request, which is how nginx is delivered.
    No,
}

pub(super) fn start(name: &'static str, at: &str, kept: Kept, site: Option<Site>) -> Contestant {
    let folder = Folder::new();
    let (app, upstream) = match at {
        "socket" => {
            let path = folder.path().join("app.sock");
            let upstream = format!("unix:{}", path.display());
            (Place::Socket(path), upstream)
        }
        _ => {
            let address = free_address();
            (Place::Port(address), address.to_string())
        }
    };
    let app = start_app(app);
    let address = free_address();
    let file = folder.path().join("nginx.conf");
    let more = site.as_ref().map(Site::nginx).unwrap_or_default();
    let config = config(folder.path(), &address.to_string(), &upstream, kept, &more);
    fs::write(&file, config).expect("the temporary folder can be written");
    let mut command = Command::new("nginx");
    command.arg("-c").arg(&file).arg("-p").arg(folder.path());
    // Before it has read its file, it would write to a place of the system.
    command.args(["-e", "stderr"]);
    let nginx = Started::new(&mut command, &Place::Port(address), Some(folder));
    let nginx = nginx.unwrap_or_else(|why| panic!("nginx: {why}"));
    Contestant {
        site,
        ..Contestant::new(name, address, vec![nginx, app])
    }
}

fn config(folder: &Path, listen: &str, upstream: &str, kept: Kept, more: &str) -> String {
    let folder = folder.display();
    let user = if is_root() { "user root;\n" } else { "" };
    let (keep, speak) = match kept {
        Kept::Yes => (
            format!("keepalive {KEPT}; keepalive_requests {MANY};"),
            "proxy_http_version 1.1; proxy_set_header Connection \"\";",
        ),
        Kept::No => (String::new(), ""),
    };
    format!(
        "daemon off;\n{user}worker_processes auto;\n\
         pid {folder}/nginx.pid;\nerror_log stderr error;\n\
         events {{ worker_connections 4096; }}\n\
         http {{\n\
         access_log off;\n\
         client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;\n\
         fastcgi_temp_path {folder}/fastcgi; uwsgi_temp_path {folder}/uwsgi;\n\
         scgi_temp_path {folder}/scgi;\n\
         keepalive_requests {MANY};\n\
         upstream app {{ server {upstream}; {keep} }}\n\
         server {{\n\
         listen {listen};\n{more}\
         location / {{\n\
         proxy_pass http://app;\n{speak}\n\
         proxy_set_header Host $http_host;\n\
         proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;\n\
         proxy_set_header X-Forwarded-Proto $scheme;\n\
         }}\n}}\n}}\n"
    )
}

/// Connections to the application that each of its processes keeps; as many as
/// there ever are clients.
const KEPT: usize = 256;
/// Requests on one connection: more than any run has.
const MANY: usize = 1_000_000_000;

/// The user it would become instead may not talk to our application's socket.
fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0)
}
