//! An authority that speaks ACME, with a DNS of its own: Pebble and its companion.

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use rideau_testing::certificates::{papers, signer};
use rideau_testing::{Running, Start, command};

use crate::harness::until;

/// An authority in a folder. Every name leads to 127.0.0.1.
pub(crate) struct Authority {
    folder: PathBuf,
    pebble: Option<Running>,
    _dns: Running,
    dns_at: u16,
    records: u16,
    port: u16,
    management: u16,
    /// Where it looks for hosts by HTTP, and within TLS.
    pub(crate) looks_at: (u16, u16),
}

pub(crate) fn free_port() -> u16 {
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    free.local_addr().unwrap().port()
}

impl Authority {
    /// Start it. It knows nothing of before.
    pub(crate) fn start(folder: &Path) -> Self {
        let signer = signer("the authority's own");
        let own = papers("authority", &signer);
        fs::write(folder.join("ca.pem"), signer.pem()).unwrap();
        fs::write(folder.join("authority.pem"), own.certificate()).unwrap();
        fs::write(folder.join("authority.key"), own.key()).unwrap();
        let (dns_at, records) = (free_port(), free_port());
        let dns = command("pebble-challtestsrv")
            .args(["-http01", "", "-https01", "", "-tlsalpn01", ""])
            .args(["-dns01", &format!("127.0.0.1:{dns_at}")])
            .args(["-management", &format!("127.0.0.1:{records}")])
            .args(["-defaultIPv4", "127.0.0.1", "-defaultIPv6", ""])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .start();
        let mut authority = Self {
            folder: folder.to_owned(),
            pebble: None,
            _dns: dns,
            dns_at,
            records,
            port: free_port(),
            management: free_port(),
            looks_at: (free_port(), free_port()),
        };
        authority.begin(authority.looks_at);
        authority
    }

    /// Start anew: it knows no account and no order, and looks there for hosts.
    pub(crate) fn restart(&mut self, looks_at: (u16, u16)) {
        drop(self.pebble.take());
        fs::remove_file(self.folder.join("authority.log")).unwrap();
        self.begin(looks_at);
    }

    fn begin(&mut self, (http, tls): (u16, u16)) {
        let folder = self.folder.display();
        let config = serde_json::json!({ "pebble": {
            "listenAddress": format!("127.0.0.1:{}", self.port),
            "managementListenAddress": format!("127.0.0.1:{}", self.management),
            "certificate": format!("{folder}/authority.pem"),
            "privateKey": format!("{folder}/authority.key"),
            "httpPort": http,
            "tlsPort": tls,
        }});
        let file = self.folder.join("authority.json");
        fs::write(&file, config.to_string()).unwrap();
        let log = fs::File::create(self.folder.join("authority.log")).unwrap();
        let pebble = command("pebble")
            .arg("-config")
            .arg(file)
            .args(["-dnsserver", &format!("127.0.0.1:{}", self.dns_at)])
            .env("PEBBLE_VA_NOSLEEP", "1")
            .env("PEBBLE_AUTHZREUSE", "0")
            .env("PEBBLE_WFE_NONCEREJECT", "0")
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .start();
        self.pebble = Some(pebble);
        let root = self.folder.join("root.pem");
        until("the authority answers", || {
            let done = command("curl")
                .args(["--silent", "--fail", "--cacert"])
                .arg(self.folder.join("ca.pem"))
                .arg("--output")
                .arg(&root)
                .arg(format!("https://localhost:{}/roots/0", self.management))
                .status();
            done.unwrap().success()
        });
    }

    /// The root of what it issues.
    pub(crate) fn root(&self) -> String {
        fs::read_to_string(self.folder.join("root.pem")).unwrap()
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.folder.join("authority.log")).unwrap()
    }

    /// How many orders were made.
    pub(crate) fn orders(&self) -> usize {
        self.log().matches("Added order").count()
    }

    /// How many accounts were made.
    pub(crate) fn accounts(&self) -> usize {
        self.log().matches("accounts in memory").count()
    }

    /// The keys that order certificates from it.
    pub(crate) fn keys(&self, more: &str) -> String {
        format!(
            "[front.acme]\ndirectory = \"https://localhost:{}/dir\"\nca = \"FOLDER/ca.pem\"\n\
             path = \"FOLDER/acme\"\nagree = true\nself_check = false\n{more}\n",
            self.port
        )
    }

    /// The folder of what it issued.
    pub(crate) fn store(&self) -> PathBuf {
        let name = format!("localhost_{}_dir", self.port);
        self.folder.join("acme").join(name)
    }

    /// A program that changes its DNS.
    pub(crate) fn dns_command(&self) -> PathBuf {
        use std::os::unix::fs::PermissionsExt;
        let path = self.folder.join("dns");
        let (folder, port) = (self.folder.display(), self.records);
        let record = r#"{"host":"'"$2"'.","value":"'"$3"'"}"#;
        let text = format!(
            "#!/bin/sh\necho \"$1 $2\" >> {folder}/dns.log\n\
             exec curl --silent --fail --data '{record}' http://127.0.0.1:{port}/$1-txt\n"
        );
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    }
}
