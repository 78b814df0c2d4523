//! Which numbers a range stands for.

use std::process::ExitCode;

use clap::Args;
use rideau_core::allocator::{Kind, Span};
use serde_json::json;

use super::{Done, Failure, Manner, show};

/// Print what a range is in numbers
#[derive(Args, Debug)]
pub(crate) struct Numbers {
    /// Ranges as in the config: 10.0.0.0/8, 10.0.0.1-10.0.0.9, 0,10000 or ::1
    #[arg(required = true, value_name = "RANGE")]
    ranges: Vec<String>,
}

pub(crate) fn run(words: &Numbers, manner: &Manner) -> Done {
    let spans = words.ranges.iter().map(|range| {
        let fault = |fault| Failure::Misuse(format!("{range:?} stands for no values: {fault}"));
        Ok((range, Span::parse(range).map_err(fault)?))
    });
    let spans = spans.collect::<Result<Vec<_>, Failure>>()?;
    if manner.json {
        let rows = spans.iter().map(|(range, Span { kind, interval })| {
            let (first, last) = (interval.first(), interval.last());
            // JSON numbers are not exact beyond 2^53.
            json!({
                "range": range,
                "first": first.to_string(),
                "last": last.to_string(),
                "count": interval.size().to_string(),
                "first_value": kind.show(first).to_string(),
                "last_value": kind.show(last).to_string(),
            })
        });
        show::print_json(&rows.collect::<Vec<_>>().into())?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut text = String::new();
    for (range, Span { kind, interval }) in spans {
        let (first, last) = (interval.first(), interval.last());
        text += &format!("{range}: {first}-{last}, {} values", interval.size());
        if kind != Kind::Number {
            text += &format!(", {} to {}", kind.show(first), kind.show(last));
        }
        text.push('\n');
    }
    show::print_text(text.trim_end())?;
    Ok(ExitCode::SUCCESS)
}
