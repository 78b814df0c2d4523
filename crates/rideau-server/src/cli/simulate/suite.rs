//! The suite: what the default policy is worth, cell by cell, beside the best fixed time-out.

use std::process::ExitCode;

use rideau_resp::Value;
use rideau_simulate::suite::{Family, Judged, Policy, SuiteCell, families, judge};
use serde_json::{Value as Json, json};

use super::work;
use super::{Done, Failure, Manner, show};
use crate::cli::table::Table;

/// A cell with its verdict.
struct Verdict {
    cell: SuiteCell,
    judged: Judged,
}

pub(super) fn run(is_thorough: bool, manner: &Manner) -> Done {
    let families = families();
    let cells: Vec<_> = families
        .iter()
        .flat_map(|family| family.cells.iter().map(|cell| (*cell, family.policy)))
        .collect();
    let done = work::for_each(&cells, cells.len() as u64, |(cell, policy), progress| {
        let judged = judge(cell, *policy, is_thorough);
        progress.add(1);
        judged.map_err(|error| Failure::Broken(error.to_string()))
    });
    let pairs = cells.into_iter().zip(done?);
    let mut verdicts = pairs.map(|((cell, _), worked)| Verdict {
        cell,
        judged: worked.result,
    });
    let mut judged = Vec::new();
    for family in &families {
        let own: Vec<_> = verdicts.by_ref().take(family.cells.len()).collect();
        judged.push((family, own));
    }
    if manner.json {
        let all = judged.iter().map(|(family, own)| family_json(family, own));
        show::print_json(&json!({ "families": all.collect::<Vec<_>>() }))?;
    } else {
        print(&judged)?;
    }
    let holds = |(family, own): &(&Family, Vec<Verdict>)| {
        let (least, mean) = ratios(own);
        least >= family.least && mean >= family.mean
    };
    Ok(if judged.iter().all(holds) {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// The least and the mean.
fn ratios(verdicts: &[Verdict]) -> (f64, f64) {
    let ratios = || verdicts.iter().map(|one| one.judged.ratio());
    let least = ratios().fold(f64::INFINITY, f64::min);
    (least, ratios().sum::<f64>() / verdicts.len().max(1) as f64)
}

fn family_json(family: &Family, verdicts: &[Verdict]) -> Json {
    let cells = verdicts.iter().map(|Verdict { cell, judged }| {
        json!({
            "cell": cell.to_string(),
            "requests": judged.outcome.requests,
            "useful": judged.outcome.useful,
            "best": policy_words(judged.best),
            "best_useful": judged.best_useful,
            "regret": judged.regret(),
        })
    });
    let (least, mean) = ratios(verdicts);
    json!({
        "family": family.name,
        "regret_max": 1.0 - least,
        "regret_mean": 1.0 - mean,
        "regret_max_allowed": 1.0 - family.least,
        "regret_mean_allowed": 1.0 - family.mean,
        "cells": cells.collect::<Vec<_>>(),
    })
}

fn print(judged: &[(&Family, Vec<Verdict>)]) -> Result<(), Failure> {
    show::print_text(
        "Useful serves under the default policy, beside the time-out that was best in \
         hindsight.\nA regret of 0.01 means that one in a hundred useful serves is missing; less \
         than 0 means that the default was better.\n",
    )?;
    let bulk = |text: String| Value::Bulk(text.into());
    for (family, verdicts) in judged {
        show::print_text("")?;
        let (least, mean) = ratios(verdicts);
        show::print_text(&format!(
            "{}: {} cells, regret at most {:.3} (allowed {:.3}), {:.4} on average (allowed {:.3})",
            family.name,
            verdicts.len(),
            1.0 - least,
            1.0 - family.least,
            1.0 - mean,
            1.0 - family.mean
        ))?;
        let head = ["cell", "useful", "best", "its useful", "regret"];
        let mut lines = vec![Value::Array(head.map(|name| bulk(name.into())).to_vec())];
        lines.extend(verdicts.iter().map(|Verdict { cell, judged }| {
            Value::Array(vec![
                bulk(cell.to_string()),
                Value::Integer(judged.outcome.useful as i64),
                bulk(policy_words(judged.best)),
                Value::Integer(judged.best_useful as i64),
                bulk(format!("{:.4}", judged.regret())),
            ])
        }));
        if let Some(table) = Table::of(&Value::Array(lines)) {
            table.print()?;
        }
    }
    Ok(())
}

fn policy_words(policy: Policy) -> String {
    match policy {
        Policy::Timeout(wait) => format!("timeout={}", rideau_config::show_span(wait)),
        Policy::Never => "kind=never".into(),
        Policy::Default | Policy::Blind => "kind=paced".into(),
    }
}
