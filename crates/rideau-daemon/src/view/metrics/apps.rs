//! The numbers that applications have in common.

use std::fmt;

use rideau_apps::Apps;
use rideau_config::Config;

use super::page::Page;

/// Whether all of them together have room, and what more of it would save.
pub(super) fn room(page: &mut Page<'_, '_>, apps: &Apps, config: &Config) -> fmt::Result {
    let stats = apps.stats();
    let limits = config.front.limits;
    let bounds = [("max", limits.max), ("headroom", limits.headroom)];
    page.gauges(
        "rideau_app_processes_limit",
        "How many processes all applications may have, and how many more while others are stopping",
        bounds.map(|(bound, count)| (vec![("bound", bound.to_owned())], count as f64)),
    )?;
    page.gauge(
        "rideau_app_starved",
        "Applications that wait for room",
        stats.starved as f64,
    )?;
    let losses = stats.losses.iter();
    let losses = losses.map(|(policy, loss)| (vec![("policy", (*policy).to_owned())], *loss));
    page.gauges(
        "rideau_app_eviction_loss",
        "What each eviction policy would have cost per recent ask: seconds of starts, or starts",
        losses,
    )?;
    let chosen = stats.losses.iter().enumerate();
    let chosen = chosen.map(|(at, (policy, _))| {
        let labels = vec![("policy", (*policy).to_owned())];
        (labels, flag(at == 0))
    });
    page.gauges(
        "rideau_app_eviction_policy",
        "Which eviction policy is in use",
        chosen,
    )?;
    let sizes = stats.what_if.iter();
    let sizes = sizes.map(|(max, loss)| (vec![("max", max.to_string())], *loss));
    page.gauges(
        "rideau_app_what_if_loss",
        "What it would have cost with other values of front.max, and with the current one",
        sizes,
    )
}

fn flag(is: bool) -> f64 {
    f64::from(u8::from(is))
}
