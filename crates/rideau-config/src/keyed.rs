//! Something whose keys are rows of a table.

use super::key::Key;
use super::section::Section;
use super::shown::Rows;

/// Something whose keys are rows.
pub(crate) trait Keyed: Sized {
    /// The rows.
    const KEYS: &'static [Key];

    /// Read each key that is there, and note what is wrong.
    fn read_keys(&mut self, section: &Section<'_>);

    /// Show each key.
    fn show_keys(&self, rows: &mut Rows);

    /// Its rows: paths below it, and values.
    fn rows(&self) -> Vec<(String, String)> {
        let mut rows = Rows::default();
        self.show_keys(&mut rows);
        rows.into_rows()
    }

    /// Take the value of a key from another.
    fn reset_key(&mut self, name: &str, from: &Self) {
        let _ = (name, from);
    }

    /// The row of a key.
    fn key(name: &str) -> &'static Key {
        let found = Self::KEYS.iter().find(|key| key.name == name);
        found.expect("it is one of the rows")
    }
}
