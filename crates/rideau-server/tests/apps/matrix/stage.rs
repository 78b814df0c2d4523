//! A server with an application of a framework, and the code that it should serve.

use std::cell::{Cell, RefCell};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

use super::frameworks::{Code, Framework};
use crate::harness::{Harness, folder, is_soak};
use crate::upgrades;

pub(super) struct Stage<'a> {
    pub(super) framework: &'a Framework,
    pub(super) harness: Harness,
    pub(super) folder: PathBuf,
    /// The version that is served.
    version: RefCell<String>,
    /// Releases that were written.
    releases: Cell<u32>,
}

impl<'a> Stage<'a> {
    pub(super) fn new(framework: &'a Framework) -> Self {
        let folder = folder();
        let first = folder.join("releases/1");
        framework.write(&first, Code::good("v1"));
        framework.prepare(&first);
        symlink(&first, folder.join("current")).unwrap();
        // On a busy machine requests wait as long as that takes.
        let text = format!(
            "[app.shop]\nroot = \"FOLDER/current\"\n{}\nmin = 1\nmax = 2\nqueue = \"never\"\n\
             start_timeout = \"20s\"\nstreams = {{ grace = \"3s\" }}\n\
             trial = {{ answers = {}, time = \"1s\" }}\n",
            framework.keys(),
            // Only then is it known whether it is slow.
            if is_soak() { 50 } else { 20 }
        );
        let harness = Harness::new(&folder, &text);
        let stage = Self {
            framework,
            harness,
            folder,
            version: RefCell::new("v1".into()),
            releases: Cell::new(1),
        };
        stage.serves();
        stage
    }

    /// The version that should be served.
    pub(super) fn version(&self) -> String {
        self.version.borrow().clone()
    }

    /// It is.
    #[track_caller]
    pub(super) fn serves(&self) {
        let answer = self.harness.get("/");
        assert_eq!((answer.status, answer.body), (200, self.version()));
    }

    /// Lead to a new release with this code.
    pub(super) fn release(&self, code: Code<'_>) {
        self.releases.set(self.releases.get() + 1);
        let release = self
            .folder
            .join(format!("releases/{}", self.releases.get()));
        self.framework.write(&release, code);
        let next = self.folder.join("next");
        symlink(&release, &next).unwrap();
        fs::rename(next, self.folder.join("current")).unwrap();
    }

    /// Deploy code that is good.
    pub(super) fn deploy(&self) {
        let version = format!("v{}", self.releases.get() + 1);
        self.release(Code::good(&version));
        self.harness.cli(&["restart", "shop", "--wait"]);
        *self.version.borrow_mut() = version;
    }

    pub(super) fn end(self) {
        upgrades::end(self.harness);
    }
}
