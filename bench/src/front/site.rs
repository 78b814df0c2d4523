//! What a front serves beside the application: TLS with a certificate, files,
//! compressed answers; and the lines of both configs that say so.
//!
//! nginx keeps as much of a body in memory as ours does, which is more than it is
//! delivered with, and compresses at the only level that ours has. It opens a file
//! for each request, as it is delivered and as ours does. Both have the same
//! certificate, and TLS in the versions that ours has.

use std::fs::{self, Permissions};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::rc::Rc;

use super::started::free_address;
use crate::talk::Folder;

/// Files of these names are served.
const FILES: [(&str, usize); 2] = [("4k", 4 << 10), ("1m", 1 << 20)];

/// What is in a file of this length.
pub(super) fn file(len: usize) -> Vec<u8> {
    (0..=u8::MAX).cycle().take(len).collect()
}

/// What fronts share, and where one of them speaks TLS.
pub(super) struct Site {
    folder: Rc<Folder>,
    /// As the bytes that it is made of.
    cert: Rc<[u8]>,
    pub(super) within_tls: SocketAddr,
}

impl Site {
    pub(super) fn new() -> Self {
        let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
        let made = rcgen::generate_simple_self_signed(names).expect("the names are names");
        let site = Self {
            folder: Rc::new(Folder::new()),
            cert: made.cert.der().to_vec().into(),
            within_tls: free_address(),
        };
        let write = |name: &str, bytes: &[u8]| {
            fs::write(site.path(name), bytes).expect("the temporary folder can be written");
        };
        write("cert.pem", made.cert.pem().as_bytes());
        write("key.pem", made.signing_key.serialize_pem().as_bytes());
        // Ours warns of a key that others can read.
        let kept = fs::set_permissions(site.path("key.pem"), Permissions::from_mode(0o600));
        kept.expect("the temporary folder can be written");
        for name in ["files", "bodies"] {
            fs::create_dir(site.path(name)).expect("the temporary folder can be written");
        }
        for (name, len) in FILES {
            write(&format!("files/{name}"), &file(len));
        }
        site
    }

    /// The same for another front.
    pub(super) fn for_another(&self) -> Self {
        Self {
            folder: Rc::clone(&self.folder),
            cert: Rc::clone(&self.cert),
            within_tls: free_address(),
        }
    }

    pub(super) fn cert(&self) -> &[u8] {
        &self.cert
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Lines of a `server` of nginx.
    pub(super) fn nginx(&self) -> String {
        let path = |name| self.path(name).display().to_string();
        let tls = self.within_tls;
        let (cert, key, files) = (path("cert.pem"), path("key.pem"), path("files"));
        format!(
            "listen {tls} ssl http2;\n\
             ssl_certificate {cert}; ssl_certificate_key {key};\n\
             ssl_protocols TLSv1.2 TLSv1.3;\n\
             client_max_body_size 1g; client_body_buffer_size 64k;\n\
             proxy_buffers 64 16k; sendfile on; tcp_nopush on;\n\
             gzip on; gzip_comp_level 5; gzip_min_length 1024; gzip_vary on;\n\
             gzip_types application/json;\n\
             location /files/ {{ alias {files}/; }}\n"
        )
    }

    /// Keys of our `[front]`, and what follows it.
    pub(super) fn ours(&self) -> String {
        let (tls, bodies) = (self.within_tls, self.path("bodies"));
        let (cert, key, files) = (
            self.path("cert.pem"),
            self.path("key.pem"),
            self.path("files"),
        );
        format!(
            "tls_listen = [\"{tls}\"]\nredirect_https = \"none\"\n\
             buffer_dir = {bodies:?}\n\
             compress = [\"gzip\"]\ncompress_min = \"1KiB\"\n\
             static = {{ path = \"/files\", root = {files:?} }}\n\
             [certificate.bench]\ncert = {cert:?}\nkey = {key:?}\n"
        )
    }
}
