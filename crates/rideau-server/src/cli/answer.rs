//! Prints what a server answered, whatever it is.

use rideau_resp::Value;
use serde_json::Value as Json;

use super::table::Table;
use super::{Done, Manner, show};

/// Print an answer, whatever it is.
pub(crate) fn print(answer: Value, manner: &Manner) -> Done {
    let answer = show::good(answer)?;
    if manner.json {
        show::print_json(&inner_json(&answer))?;
    } else if let Some(table) = Table::of(&answer) {
        table.print()?;
    } else if let Value::Map(pairs) = &answer {
        for (key, value) in pairs {
            show::print_text(&format!("{}: {}", show::text(key), show::text(value)))?;
        }
    } else if show::elements(&answer).is_empty() {
        show::print_text(&show::text(&answer))?;
    } else {
        for element in show::elements(&answer) {
            show::print_text(&show::text(element))?;
        }
    }
    Ok(std::process::ExitCode::SUCCESS)
}

/// Rows under a header become objects, and text that is JSON itself stays so.
fn inner_json(answer: &Value) -> Json {
    if let Some(table) = Table::of(answer) {
        return table.json();
    }
    let whole = show::json(answer);
    let parsed = whole
        .as_str()
        .and_then(|text| serde_json::from_str::<Json>(text).ok());
    parsed
        .filter(|parsed| parsed.is_object() || parsed.is_array())
        .unwrap_or(whole)
}
