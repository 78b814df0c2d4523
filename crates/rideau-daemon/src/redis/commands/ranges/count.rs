//! How many of certain values are in which state, whichever ranges they are of.

use rideau::allocator::Span;
use rideau_config::label::Label;
use rideau_resp::{Quoted, Request};

use super::no;
use super::target::may_use_values;
use crate::redis::client::{Client, CommandError, Next};
use crate::redis::commands::may_use;
use crate::state::catalog::Catalog;
use crate::state::values::Counted;

/// Count the values of a view, of a range, or those that a word means.
pub(in crate::redis::commands) fn count(
    client: &mut Client,
    request: Request<'_>,
) -> Result<Next, CommandError> {
    let mut arguments = request.arguments();
    let word = arguments.text("RANGE.COUNT", "a view, a range, or values as 10.0.0.0/24")?;
    arguments.end("RANGE.COUNT")?;
    let catalog = client.daemon.catalog.load_full();
    let counted = counted(client, &catalog, word)?;
    tell(client, &catalog, &counted, word, None)?;
    Ok(Next::Done)
}

/// Tell the numbers of a view, with its name.
pub(super) fn view(client: &mut Client, name: &str) -> Result<(), CommandError> {
    let catalog = client.daemon.catalog.load_full();
    let Some(view) = catalog.views.find(name) else {
        return Err(no::no_range(&catalog, name));
    };
    tell(client, &catalog, &view.counted, name, Some(name))
}

/// The values that a word names. No name reads like values.
fn counted(client: &Client, catalog: &Catalog, word: &str) -> Result<Counted, CommandError> {
    if let Some(view) = catalog.views.find(word) {
        return Ok(view.counted.clone());
    }
    client.check_label(Label::Thing, word.as_bytes())?;
    let nothing = || CommandError(format!("ERR {word:?} has no values."));
    if let Some(range) = catalog.ranges.find(word) {
        may_use(client, "range", word)?;
        return Counted::new(&range.config.options.spans).ok_or_else(nothing);
    }
    let span = Span::parse(word).map_err(|error| match no::is_name(word) {
        true => may_use(client, "range", word).err().unwrap_or_else(|| {
            let help = "nor is it a view; SHOW RANGES and SHOW VIEWS list both.";
            CommandError::no_such("range", word, help)
        }),
        false => CommandError(format!("ERR {word:?} is not a set of values: {error}.")),
    })?;
    Counted::new(&[span]).ok_or_else(nothing)
}

/// Count, for a user that may use all the ranges that this is about.
fn tell(
    client: &mut Client,
    catalog: &Catalog,
    counted: &Counted,
    word: &str,
    name: Option<&str>,
) -> Result<(), CommandError> {
    let touched = counted.touched(&catalog.ranges).map(|place| &*place.name);
    let mut touched: Vec<&str> = touched.collect();
    if touched.is_empty() {
        touched.push("*");
    }
    if name.is_some() || no::is_name(word) {
        // Of a view that counts what one may not use one does not learn that it is there.
        if !touched
            .iter()
            .all(|name| may_use(client, "range", name).is_ok())
        {
            may_use(client, "range", word)?;
            return Err(no::no_range(&Catalog::default(), word));
        }
    } else {
        may_use_values(client, touched, Quoted(word.as_bytes()))?;
    }
    let count = client.daemon.values.count(counted);
    let rows = [
        ("size", count.size),
        ("free", count.free),
        ("quarantined", count.quarantined),
        ("held", count.held),
    ];
    let mut reply = client.reply();
    reply.map(rows.len() + 1 + usize::from(name.is_some()));
    if let Some(name) = name {
        reply.bulk("name").bulk(name);
    }
    reply.bulk("base").bulk(counted.base());
    for (state, size) in rows {
        reply.bulk(state);
        no::write_size(&mut reply, size);
    }
    Ok(())
}
