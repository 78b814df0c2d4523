//! The part of a server that goes on while the other part is closed: its applications, and
//! what they need.

use std::sync::Arc;

use rideau::OptionError;
use rideau_apps::{Apps, Events, Front, RunDirs, StickyKey};
use rideau_config::Config;
use rideau_process as process;

use crate::state::upgrades::Upgrades;

/// The part of a server that goes on while the other part is closed.
#[derive(Clone)]
pub(crate) struct AppsSide {
    pub(crate) events: Arc<Events>,
    pub(crate) run_dirs: Arc<RunDirs>,
    pub(crate) apps: Apps,
    pub(crate) front: Arc<Front>,
    /// The token of the operator, if it is known already.
    pub(crate) token: Option<String>,
    pub(crate) upgrades: Arc<Upgrades>,
}

/// Secrets that clients rely on, of the server before this one.
#[derive(Clone, Default)]
pub(crate) struct SideKeys {
    pub(crate) sticky: Option<StickyKey>,
    pub(crate) token: Option<String>,
}

impl AppsSide {
    /// No process has been started yet.
    ///
    /// # Errors
    ///
    /// If an option breaks a rule.
    pub(crate) fn new(
        config: &Config,
        keys: SideKeys,
        upgrades: Upgrades,
    ) -> Result<Self, OptionError> {
        // Before a program is started, which is to have the limit of before.
        process::raise_open_files();
        let events: Arc<Events> = Arc::default();
        let run_dirs = Arc::new(RunDirs::new(&config.server, Arc::clone(&events)));
        Apps::validate(config)?;
        let apps = Apps::new(
            config.front.limits,
            Arc::clone(&run_dirs),
            Arc::clone(&events),
        );
        let sticky = keys.sticky.unwrap_or_default();
        let front = Front::with_key(apps.clone(), config.front.clone(), sticky);
        Ok(Self {
            events,
            run_dirs,
            apps,
            front,
            token: keys.token,
            upgrades: Arc::new(upgrades),
        })
    }
}
