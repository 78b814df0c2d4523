//! Lists of things: the worst first, or by a column, one page at a time.
//!
//! The order comes from the ranking, which is made once for all that look. Only the things of
//! the page are looked at themselves, unless they are to be sorted by another number.

use super::Look;
use super::blocks::{
    Blocks, ColumnHead, Listing, PageRow, ShownCell, heads, link, on_page, order, shown,
};
use crate::view::facts::{Fact, Facts};
use crate::view::worst::Ranked;

/// More things than this are not sorted by a column: each had to be looked at.
const SORTED_MAX: usize = 1_000;
/// Rows of a kind on the overview.
pub(super) const FEW: usize = 8;

/// Things of a kind.
pub(super) struct Things<'a, T> {
    pub kind: &'static str,
    /// The page of one, and of all.
    pub page: &'static str,
    pub title: &'static str,
    /// It looks at one, unless it has gone.
    pub of: &'a dyn Fn(&str) -> Option<T>,
}

impl<T: Facts> Things<'_, T> {
    /// All of them, page by page.
    pub(super) fn whole(&self, blocks: &mut Blocks<'_>) {
        let look = blocks.look;
        let ranked = ranked(look, self.kind, look.find);
        let total = ranked.len();
        let wanted = look.sort.trim_start_matches('-');
        let by = heads::<T>(on_page)
            .into_iter()
            .find(|(head, _)| head.name == wanted)
            .map(|(_, fact)| fact);
        let mut note = String::new();
        let rows = match by {
            Some(_) if total > SORTED_MAX && wanted != "name" => {
                note = format!(
                    "Only up to {SORTED_MAX} rows are sorted by a column: search for some first."
                );
                self.rows(ranked, look.from, look.count)
            }
            Some(fact) => self.sorted(ranked, fact, look),
            None => self.rows(ranked, look.from, look.count),
        };
        blocks.table(Listing {
            id: self.page,
            title: self.title.into(),
            heads: self.heads(),
            rows,
            total,
            from: look.from,
            is_whole: true,
            note,
            none: match look.find {
                "" if look.sample.at_ms == 0 => "The first sample is being taken.".into(),
                "" => "There are none.".into(),
                find => format!("None has {find:?} in its name."),
            },
            ..Listing::default()
        });
    }

    /// The worst of them.
    pub(super) fn few(&self, blocks: &mut Blocks<'_>) {
        let ranked = ranked(blocks.look, self.kind, "");
        let total = ranked.len();
        if total == 0 {
            return;
        }
        blocks.table(Listing {
            id: self.page,
            title: self.title.into(),
            heads: self.heads(),
            rows: self.rows(ranked, 0, FEW),
            total,
            more: Some(self.page),
            ..Listing::default()
        });
    }

    fn heads(&self) -> Vec<ColumnHead> {
        let all = heads::<T>(on_page).into_iter();
        all.map(|(head, _)| head).collect()
    }

    fn rows(&self, ranked: Vec<&Ranked>, from: usize, count: usize) -> Vec<PageRow> {
        let page = ranked.into_iter().skip(from).take(count);
        let rows = page.filter_map(|ranked| Some(self.row(ranked, &(self.of)(&ranked.name)?)));
        rows.collect()
    }

    fn sorted(&self, ranked: Vec<&Ranked>, fact: &Fact<T>, look: &Look<'_>) -> Vec<PageRow> {
        let is_down = look.sort.starts_with('-');
        if fact.about.name == "name" {
            let mut ranked = ranked;
            ranked.sort_by(|one, other| one.name.cmp(&other.name));
            if is_down {
                ranked.reverse();
            }
            return self.rows(ranked, look.from, look.count);
        }
        let all = ranked.into_iter();
        let all = all.filter_map(|ranked| Some((ranked, (self.of)(&ranked.name)?)));
        let mut all: Vec<_> = all.collect();
        all.sort_by(|(_, one), (_, other)| {
            let ascending = order(fact, one, other);
            if is_down {
                ascending.reverse()
            } else {
                ascending
            }
        });
        let page = all.into_iter().skip(look.from).take(look.count);
        page.map(|(ranked, one)| self.row(ranked, &one)).collect()
    }

    fn row(&self, ranked: &Ranked, one: &T) -> PageRow {
        let link = link(self.page, &ranked.name);
        let cells = heads::<T>(on_page).into_iter().map(|(head, fact)| {
            let text = shown(fact, one);
            match head.name {
                "name" => ShownCell::Link(text, link.clone()),
                _ => ShownCell::Text(text),
            }
        });
        PageRow {
            cells: cells.collect(),
            link: Some(link),
            level: ranked.level,
            why: ranked.why.clone(),
            fill: ranked.fill.map(|fill| (fill, ranked.full.clone())),
            actions: Vec::new(),
        }
    }
}

/// The things of a kind that one may see and whose name has this text, the worst first.
pub(super) fn ranked<'a>(look: &'a Look<'_>, kind: &str, find: &str) -> Vec<&'a Ranked> {
    let all = look.ranking.all.iter();
    let wanted = all.filter(|one| {
        one.kind == kind
            && (find.is_empty() || one.name.contains(find))
            && look.viewer.sees(one.kind, &one.name)
    });
    wanted.collect()
}

/// Things without a page of their own, all at once.
pub(super) fn rows_of<T: Facts>(
    all: &[T],
    name_to: Option<&'static str>,
) -> (Vec<ColumnHead>, Vec<PageRow>) {
    let columns = heads::<T>(on_page);
    let rows = all.iter().map(|one| {
        let cells = columns.iter().map(|(head, fact)| {
            let text = shown(fact, one);
            match name_to.filter(|_| head.name == "name") {
                Some(page) => ShownCell::Link(text.clone(), link(page, &text)),
                None => ShownCell::Text(text),
            }
        });
        PageRow {
            cells: cells.collect(),
            ..PageRow::default()
        }
    });
    let rows = rows.collect();
    (columns.into_iter().map(|(head, _)| head).collect(), rows)
}
