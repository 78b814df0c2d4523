//! The rules of a config for the keys of locks.

use rideau::{KeyRule, Locks, OptionError};
use rideau_config::Config;

/// Have the keys of locks keep the rules of a config.
pub(crate) fn rule_locks(locks: &Locks<Vec<u8>>, config: &Config) -> Result<(), OptionError> {
    let rules = config.locks.iter().map(|rule| KeyRule {
        queue: rule.queue.clone(),
        keys_max: rule.keys_max,
        idle_forget: rule.idle_forget,
    });
    // The last is for keys that are held and have no rule any more.
    let rules: Vec<_> = rules.chain([KeyRule::default()]).collect();
    let patterns = config.locks.clone();
    locks.set_keys_max(config.limits.keys_max);
    locks.set_rules(&rules, move |key: &Vec<u8>| {
        let rule = patterns.iter().position(|rule| rule.fits(key));
        rule.unwrap_or(patterns.len())
    })
}
