//! Tables that are too long for one answer, put together from their pages.

use rideau_resp::Value;

use super::show;
use crate::wire::{Wire, WireFault};

/// Ask for a table, and for what is left of it until there are this many rows.
pub(crate) async fn ask(
    wire: &mut Wire,
    words: &[&str],
    rows_max: usize,
) -> Result<Value, WireFault> {
    let mut whole = wire.ask(words).await?;
    while let Some(cursor) = cut_cursor(&mut whole) {
        if show::elements(&whole).len() > rows_max {
            break;
        }
        let mut next: Vec<_> = words.to_vec();
        next.extend(["FROM", &cursor]);
        let Value::Array(rows) = wire.ask(&next).await? else {
            break;
        };
        if let Value::Array(whole) = &mut whole {
            // Each page has the header.
            whole.extend(rows.into_iter().skip(1));
        }
    }
    Ok(whole)
}

/// The last row of a page that is not the last one says where the next begins.
fn cut_cursor(page: &mut Value) -> Option<String> {
    let Value::Array(rows) = page else {
        return None;
    };
    let head = rows.first().map_or(0, |head| show::elements(head).len());
    let last = show::elements(rows.last()?);
    let [more] = last else {
        return None;
    };
    if head == 1 {
        return None;
    }
    let more = show::text(more);
    let (_, cursor) = more.rsplit_once(" FROM ")?;
    let cursor = cursor.to_owned();
    rows.pop();
    Some(cursor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_row_of_a_page_is_not_one_of_the_table() {
        let bulk = |text: &str| Value::Bulk(text.into());
        let row = |cells: &[&str]| Value::Array(cells.iter().map(|text| bulk(text)).collect());
        let rows = [row(&["id", "name"]), row(&["1", "a"])];
        let more = row(&["7 more: SHOW CLIENTS FROM 12"]);
        let mut page = Value::Array(rows.iter().cloned().chain([more]).collect());
        assert_eq!(cut_cursor(&mut page).as_deref(), Some("12"));
        assert_eq!(page, Value::Array(rows.to_vec()));
        assert_eq!(cut_cursor(&mut page), None);
    }
}
