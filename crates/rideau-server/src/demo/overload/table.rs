//! The summary of the demo: numbers, and the brokers' explanations.

use std::io;

use super::span::Span;
use super::trial::Verdict;
use crate::demo::screen::{Paint, Screen};

/// Print the table, what the asks were told that were shed, and what to try next.
pub(super) fn print(seconds: u32, verdicts: &[Verdict; 2], screen: &mut Screen) -> io::Result<()> {
    let half = f64::from(seconds) / 2.0;
    screen.line(&format!(
        "\nWaits of those served from {half} s to {seconds} s; the first half, in which the queues \
         fill, is left out.\n"
    ))?;
    let heads = format!(
        "{:<9}{:>8}{:>8}{:>9}{:>9}{:>9}  shed by",
        "queue", "served", "shed", "p50", "p99", "longest"
    );
    screen.line(&screen.paint(Paint::Bold, &heads))?;
    for verdict in verdicts {
        screen.line(&row(verdict))?;
    }
    screen.line("\nWhat a shed client was told:\n")?;
    for verdict in verdicts {
        let told = verdict
            .refusal
            .map_or("nothing: none was shed".into(), |refusal| {
                refusal.to_string()
            });
        screen.line(&format!("{:<9}{told}", verdict.name))?;
    }
    let [_, last] = verdicts;
    screen.line(&format!("\nWhat `explain()` says of {}:\n", last.name))?;
    screen.line(&last.explained)?;
    screen.line("Next: `cargo doc --open -p rideau` shows every name of the library,")?;
    screen.line("and README.md has a pool in ten lines and a broker of your own in twenty.")
}

fn row(verdict: &Verdict) -> String {
    let reasons: Vec<_> = verdict
        .shed
        .iter()
        .map(|(reason, count)| format!("{count} {}", reason.word()))
        .collect();
    let waits = &verdict.waits;
    format!(
        "{:<9}{:>8}{:>8}{:>9}{:>9}{:>9}  {}",
        verdict.name,
        verdict.served,
        verdict.shed.iter().map(|(_, count)| count).sum::<u64>(),
        Span(waits.quantile(0.5)).to_string(),
        Span(waits.quantile(0.99)).to_string(),
        Span(waits.longest()).to_string(),
        reasons.join(", ")
    )
}
