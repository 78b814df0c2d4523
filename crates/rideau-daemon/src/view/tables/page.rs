//! Long answers, page by page: the rows that `limits.output_max` has room for, and
//! from where the next page goes on.

use std::fmt;

/// Room that is left for what is around the rows.
const AROUND: usize = 512;

/// Which rows of a long answer are wanted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Page {
    /// Behind the row with this key; zero for all.
    pub from: u128,
    /// This many at most.
    pub count: usize,
    /// The client has said how many, and not from where: it knows that there may be more.
    pub is_counted: bool,
    /// Bytes of all rows, about, at most. There is one row, however long it is.
    pub bytes_max: usize,
}

/// How many rows are left, and where the next page begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct More {
    /// This many rows.
    pub count: usize,
    /// They are behind the row with this key.
    pub from: u128,
}

impl Default for Page {
    fn default() -> Self {
        Self {
            from: 0,
            count: super::COUNT,
            is_counted: false,
            bytes_max: usize::MAX,
        }
    }
}

impl Page {
    /// The rows of this page, and what is left behind it. Rows come by their keys, the
    /// smallest first.
    pub(crate) fn cut<T>(
        &self,
        mut rows: Vec<T>,
        key: impl Fn(&T) -> u128,
        bytes: impl Fn(&T) -> usize,
    ) -> (Vec<T>, Option<More>) {
        rows.retain(|row| key(row) > self.from);
        let total = rows.len();
        let mut left = self.bytes_max.saturating_sub(AROUND);
        let fits = |row: &T| {
            let bytes = bytes(row);
            let fits = bytes <= left;
            left = left.saturating_sub(bytes);
            fits
        };
        let wanted = rows.iter().take(self.count);
        let fitting = wanted.map(fits).take_while(|fits| *fits).count();
        let fitting = fitting.max(total.min(self.count).min(1));
        let is_enough = self.is_counted && fitting == self.count;
        rows.truncate(fitting);
        let more = rows.last().map(|last| More {
            count: total - fitting,
            from: key(last),
        });
        let more = more.filter(|more| more.count > 0 && !is_enough);
        (rows, more)
    }
}

impl More {
    /// In words: how many there are, and what shows them.
    pub(crate) fn words(self, command: impl fmt::Display) -> String {
        let Self { count, from } = self;
        format!("{count} more: {command} FROM {from}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(page: Page) -> (Vec<u128>, Option<More>) {
        page.cut((1..=10).collect(), |row| *row, |_| 100)
    }

    #[test]
    fn pages_follow_each_other() {
        let bytes_max = AROUND + 350;
        let mut page = Page {
            bytes_max,
            ..Page::default()
        };
        let mut all = Vec::new();
        loop {
            let (rows, more) = cut(page);
            assert!(rows.len() <= 3, "{rows:?}");
            all.extend(rows);
            let Some(more) = more else {
                break;
            };
            assert_eq!(more.count, 10 - all.len());
            page.from = more.from;
        }
        assert_eq!(all, (1..=10).collect::<Vec<_>>());
    }

    #[test]
    fn a_request_with_a_count_is_told_of_more_only_if_there_was_no_room() {
        let page = Page {
            count: 4,
            is_counted: true,
            ..Page::default()
        };
        assert_eq!(cut(page), (vec![1, 2, 3, 4], None));
        let page = Page {
            bytes_max: 0,
            ..page
        };
        assert_eq!(cut(page), (vec![1], Some(More { count: 9, from: 1 })));
        let page = Page { from: 10, ..page };
        assert_eq!(cut(page), (vec![], None));
    }
}
