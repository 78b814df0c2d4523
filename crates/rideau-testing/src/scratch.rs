//! A folder for one test, gone with it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicU32, Ordering};

/// A folder for one test.
pub struct Scratch(PathBuf);

impl Default for Scratch {
    fn default() -> Self {
        Self::new()
    }
}

impl Scratch {
    /// A new one.
    ///
    /// # Panics
    ///
    /// If the temporary folder is not there.
    pub fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("rideau-scratch-{}-{number}", process::id());
        let path = std::env::temp_dir().join(name);
        // A test that was killed may have had our number.
        let _ = fs::remove_dir_all(&path);
        fs::create_dir(&path).expect("the temporary folder is there");
        Self(path)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Where something in it is.
    pub fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
