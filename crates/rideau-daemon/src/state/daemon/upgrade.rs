//! What an upgrade needs of a server.

use std::path::PathBuf;
use std::sync::Arc;

use crate::state::apps_side::AppsSide;
use crate::state::upgrades::NoUpgrade;

use super::Daemon;

impl Daemon {
    /// An operator wants a newer program to take over. Says which upgrade that is.
    ///
    /// # Errors
    ///
    /// If there can be none now.
    pub(crate) fn ask_upgrade(&self, program: Option<PathBuf>, by: &str) -> Result<u64, NoUpgrade> {
        // No change may come between the look and the upgrade.
        let _turn = self.settings.turn.lock();
        if self.settings.is_unsaved() {
            return Err(NoUpgrade::Unsaved);
        }
        if let Some((app, state)) = self.apps.unsettled() {
            return Err(NoUpgrade::Unsettled(app.to_string(), state));
        }
        self.upgrades.ask(&self.config.load(), program, by)
    }

    /// The part that goes on while the other one is closed.
    pub(crate) fn apps_side(&self) -> AppsSide {
        AppsSide {
            events: Arc::clone(&self.events),
            run_dirs: Arc::clone(&self.catalog.load().run_dirs),
            apps: self.apps.clone(),
            front: Arc::clone(&self.front),
            certificates: Arc::clone(&self.certificates),
            token: self.operator.token().map(str::to_owned),
            upgrades: Arc::clone(&self.upgrades),
        }
    }
}
