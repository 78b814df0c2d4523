//! What nodes check before they have a link. The proof itself is a matter of the shell; here
//! a node knows the secret or does not.

use crate::world::{Happening, SECOND, World};

/// The versions of the protocol that a node speaks: its own, and the one before.
pub(crate) const VERSIONS: (u32, u32) = (3, 4);

impl World {
    /// A process is started with the wrong secret, or in a version that is too old. The
    /// operator notices in a while.
    pub(crate) fn start_wrong(&mut self, host: usize, is_old: bool) {
        let it = &mut self.hosts[host];
        if it.process.is_none() || it.paused_until > self.now {
            return;
        }
        match is_old {
            // A release speaks with the one before it, and with none before that.
            true => it.versions = (1, 2),
            false => it.has_wrong_secret = true,
        }
        self.kill(host);
        let delay = self.rng.below(SECOND);
        self.after(delay, Happening::Start { host });
        let delay = SECOND + self.rng.below(10 * SECOND);
        self.after(delay, Happening::Mend { host });
    }

    /// A process that was started wrongly is started anew.
    pub(crate) fn mend(&mut self, host: usize) {
        let it = &mut self.hosts[host];
        if !it.has_wrong_secret && it.versions == VERSIONS {
            return;
        }
        it.has_wrong_secret = false;
        it.versions = VERSIONS;
        if it.process.is_some() {
            self.kill(host);
        }
        let delay = self.rng.below(SECOND);
        self.after(delay, Happening::Start { host });
    }

    /// Why two nodes refuse each other, if they do: a kind of fault.
    pub(crate) fn refusal(&self, host: usize, other: usize) -> Option<&'static str> {
        let (ours, theirs) = (&self.hosts[host], &self.hosts[other]);
        if ours.versions.1.min(theirs.versions.1) < ours.versions.0.max(theirs.versions.0) {
            return Some("old version");
        }
        (ours.has_wrong_secret != theirs.has_wrong_secret).then_some("wrong secret")
    }
}
