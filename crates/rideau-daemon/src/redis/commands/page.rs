//! Options of answers that may be long: how many rows, and from where.

use rideau_resp::{Arguments, Mistake, Reply};

use crate::redis::client::{Client, CommandError};
use crate::view::tables::{More, Page};

/// This many rows are shown at most.
const COUNT_MAX: u64 = 100_000;

/// All that there is room for.
pub(super) fn all(client: &Client) -> Page {
    Page {
        count: usize::MAX,
        ..usual(client)
    }
}

/// The default page.
pub(super) fn usual(client: &Client) -> Page {
    Page {
        bytes_max: client.config.limits.output_max as usize,
        ..Page::default()
    }
}

/// Take an option that begins with `word`, if it is one of these.
pub(super) fn option(
    page: &mut Page,
    word: &[u8],
    arguments: &mut Arguments<'_>,
) -> Result<bool, CommandError> {
    match word {
        b"COUNT" => {
            page.count = arguments.number("COUNT", "rows", 1..=COUNT_MAX)? as usize;
            page.is_counted = page.from == 0;
        }
        b"FROM" => {
            let wants = "the cursor of the page before";
            let word = arguments.word("FROM", wants)?;
            let from = std::str::from_utf8(word).ok();
            let from = from.and_then(|from| from.parse().ok());
            page.from = from.ok_or_else(|| Mistake::wrong("FROM", wants, word))?;
            page.is_counted = false;
        }
        _ => return Ok(false),
    }
    Ok(true)
}

/// The options of a command that has no others.
pub(super) fn options(
    client: &Client,
    command: &'static str,
    arguments: &mut Arguments<'_>,
) -> Result<Page, CommandError> {
    let mut page = all(client);
    while let Some(word) = arguments.next() {
        let upper = rideau_resp::Upper::of(word);
        if !option(&mut page, upper.as_bytes(), arguments)? {
            return Err(Mistake::unknown(command, word).into());
        }
    }
    Ok(page)
}

/// A row behind all others that says how many are left, and what shows them.
pub(super) fn write_more(reply: &mut Reply<'_>, more: Option<More>, command: &str) {
    if let Some(more) = more {
        reply.array(1).bulk(more.words(command));
    }
}
