//! How a newer program takes over from the running one.

use super::key::Key;
use super::kinds::{Text, Written};
use super::section::Made;
use super::table::section;

/// Less is no room for what is there, and more than twice as many is no use.
const OVERLAP: std::ops::RangeInclusive<u16> = 100..=200;

section! {
    /// How a newer program takes over.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub struct UpgradeConfig {
        /// How many processes of apps the older and the newer server have together, of
        /// `front.max`: from `"100%"` to `"200%"`. Where that is short, the older one gives up
        /// idle processes, and then the newer one starts with one for each app.
        overlap: Percent = Percent(150), Text, Live;
    }
}

/// A part of a hundred.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Percent(pub u16);

impl Written for Percent {
    fn make(text: &str, key: &Key) -> Made<Self> {
        let number = text.strip_suffix('%').map(str::trim_end);
        let number = number.and_then(|number| number.parse().ok());
        number
            .filter(|number| OVERLAP.contains(number))
            .map(Self)
            .ok_or_else(|| {
                let message = format!("`{}` cannot be {text:?}", key.name);
                let hint = "write a part of front.max from \"100%\" to \"200%\"";
                (message, hint.into())
            })
    }

    fn word(&self) -> String {
        format!("{}%", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Config;

    #[test]
    fn a_part_is_written_with_its_sign() {
        let read = |value: &str| {
            let text = format!("[upgrade]\noverlap = {value}\n");
            Config::parse(&text, "test", &|_| None).map(|config| config.upgrade.overlap)
        };
        assert_eq!(read("\"100%\""), Ok(Percent(100)));
        assert_eq!(read("\"175 %\""), Ok(Percent(175)));
        for wrong in ["\"99%\"", "\"201%\"", "\"150\"", "\"-1%\"", "150", "\"%\""] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
        let default = Config::default();
        assert_eq!(
            default.value("upgrade.overlap").as_deref(),
            Some("\"150%\"")
        );
    }
}
