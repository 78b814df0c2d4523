//! How the front compresses answers.

use super::key::{Form, Key};
use super::kinds::Written;
use super::near::suggest_word;
use super::section::Made;

/// A way to compress.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Compression {
    /// Zstandard, which browsers have known since 2024.
    Zstd,
    /// What every client knows.
    Gzip,
}

const WORDS: &[&str] = &["zstd", "gzip"];

impl Written for Compression {
    const FORM: Form = Form::Words(WORDS);

    fn make(text: &str, key: &Key) -> Made<Self> {
        match text {
            "zstd" => Ok(Self::Zstd),
            "gzip" => Ok(Self::Gzip),
            "none" | "" => Err((
                format!("`{}` cannot be {text:?}", key.name),
                "write [] for none".into(),
            )),
            _ => {
                let message = format!("`{}` cannot have {text:?}", key.name);
                Err((message, suggest_word(text, WORDS)))
            }
        }
    }

    fn word(&self) -> String {
        match self {
            Self::Zstd => "zstd".into(),
            Self::Gzip => "gzip".into(),
        }
    }
}
