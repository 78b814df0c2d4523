//! A library that is loaded before the system's, and lets a call of it fail.

use std::env;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use rideau_testing::command;

use crate::stage::Folder;

pub(crate) const EIO: &str = "5";
pub(crate) const EACCES: &str = "13";
pub(crate) const ENOSPC: &str = "28";
pub(crate) const EROFS: &str = "30";

/// What happens at which call.
pub(crate) struct Fault<'a> {
    pub(crate) call: &'a str,
    /// The end of the file's name, or nothing for all files.
    pub(crate) path: &'a str,
    pub(crate) at: u32,
    pub(crate) how: &'a str,
}

impl Fault<'_> {
    /// What a process is told in its environment, for it to happen to the files
    /// of a folder.
    pub(crate) fn settings(
        &self,
        folder: &Folder,
        synced: Option<&Folder>,
    ) -> [(&'static str, String); 6] {
        let path = if self.path.is_empty() {
            folder.0.to_str().unwrap()
        } else {
            self.path
        };
        let synced = synced.map_or_else(String::new, |synced| synced.0.display().to_string());
        [
            ("LD_PRELOAD", library().to_str().unwrap().to_owned()),
            ("FAULT_CALL", self.call.to_owned()),
            ("FAULT_PATH", path.to_owned()),
            ("FAULT_AT", self.at.to_string()),
            ("FAULT_HOW", self.how.to_owned()),
            ("SYNCED", synced),
        ]
    }
}

fn library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/store/shim.c");
        let place = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let new = place.join(format!("rideau-shim-{}.so", std::process::id()));
        let compiler = env::var_os("CC").unwrap_or_else(|| "cc".into());
        let built = command(compiler)
            .args(["-shared", "-fPIC", "-O1", "-o"])
            .arg(&new)
            .arg(source)
            .arg("-ldl")
            .status();
        assert!(built.unwrap().success(), "the compiler for C");
        let library = place.join("rideau-shim.so");
        std::fs::rename(new, &library).unwrap();
        library
    })
}
