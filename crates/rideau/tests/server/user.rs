//! The user that a server runs as.

use std::fs;
use std::os::unix::fs::{MetadataExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use rideau_testing::command;

/// The user that a server runs as which refuses to be run by root: our own if
/// that is not root, and the user that its package made if it is.
#[derive(Clone, Copy)]
pub(crate) struct Unprivileged(Option<(u32, u32)>);

impl Unprivileged {
    pub(crate) fn find(name: &str) -> Self {
        let us = fs::metadata("/proc/self").expect("we are a process");
        if us.uid() != 0 {
            return Self(None);
        }
        let users = fs::read_to_string("/etc/passwd").expect("there is a list of users");
        let ids = users.lines().find_map(|line| {
            let fields = Vec::from_iter(line.split(':'));
            let (user, group) = (fields.get(2)?.parse().ok()?, fields.get(3)?.parse().ok()?);
            (fields[0] == name).then_some((user, group))
        });
        Self(Some(ids.unwrap_or_else(|| panic!("no user {name}"))))
    }

    pub(crate) fn command(self, program: &Path) -> Command {
        let mut command = command(program);
        if let Some((user, group)) = self.0 {
            command.uid(user).gid(group);
        }
        command
    }

    pub(crate) fn give(self, path: &Path) {
        if let Some((user, group)) = self.0 {
            chown(path, Some(user), Some(group)).expect("root may give a folder away");
        }
    }
}
