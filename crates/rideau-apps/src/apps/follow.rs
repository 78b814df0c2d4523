//! Applications that come, change and go with the config.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use rideau_config::{AppConfig, Config};
use rideau_core::OptionError;
use rideau_core::apps::Restart;
use rideau_process::panics;

use super::app::App;
use super::{Apps, Inner, restart_file};

impl Apps {
    /// Find what cannot be before anything is changed.
    ///
    /// # Errors
    ///
    /// If an option breaks a rule.
    pub fn validate(config: &Config) -> Result<(), OptionError> {
        config.front.limits.validate()?;
        config
            .apps
            .iter()
            .try_for_each(|app| app.options.validate())
    }

    /// Be as a config says from now on. No request is lost by it: what is run
    /// with another command is replaced one after the other.
    pub fn follow(&self, config: &Config) {
        let inner = &self.0;
        let mut limits = config.front.limits;
        limits.max = limits.max.min(inner.cap.load(Ordering::Relaxed));
        inner.step(|step| {
            // They were looked at before anything was changed.
            let _ = step.machine.set_limits(limits, step.now, step.effects);
        });
        let old = inner.apps.load_full();
        let known = |name: &str| old.iter().find(|app| &*app.name == name);
        let new = config
            .apps
            .iter()
            .filter_map(|wanted| match known(&wanted.name) {
                Some(app) => {
                    inner.change(app, wanted);
                    Some(Arc::clone(app))
                }
                None => inner.add(wanted),
            });
        let new: Vec<_> = new.collect();
        let is_gone = |app: &&Arc<App>| new.iter().all(|other| other.id != app.id);
        let gone: Vec<_> = old.iter().filter(is_gone).cloned().collect();
        inner.apps.store(Arc::new(new));
        for app in gone {
            inner.step(|step| step.machine.remove(app.id, step.now, step.effects));
        }
    }
}

impl Inner {
    fn add(self: &Arc<Self>, config: &AppConfig) -> Option<Arc<App>> {
        let app = self.step(|step| {
            let options = self.options_now(config);
            let id = step.machine.add(options, step.now, step.effects).ok()?;
            let app = Arc::new(App::new(id, config));
            // Its first processes are started when this step ends.
            self.tables().by_id.insert(id, Arc::clone(&app));
            Some(app)
        })?;
        let (apps, watched) = (Arc::downgrade(self), Arc::downgrade(&app));
        self.spawn(async move {
            let watch = || restart_file::watch(Weak::clone(&apps), Weak::clone(&watched));
            panics::keep("the watch for restart.txt", watch).await;
        });
        Some(app)
    }

    fn change(self: &Arc<Self>, app: &Arc<App>, wanted: &AppConfig) {
        let old = app.config.load_full();
        if *old == *wanted {
            return;
        }
        app.config.store(Arc::new(wanted.clone()));
        if old.run.log != wanted.run.log {
            app.output.reopen(wanted.run.log.as_deref());
        }
        let options = self.options_of(app, wanted);
        self.step(|step| {
            let _ = (step.machine).reconfigure(app.id, options, step.now, step.effects);
        });
        if !old.run.is_same_program(&wanted.run) {
            Apps(Arc::clone(self)).restart(app, Restart::Rolling, "the config");
        }
    }
}
