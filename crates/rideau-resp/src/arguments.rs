//! The arguments of a command, and errors about them.

use std::fmt;
use std::ops::RangeInclusive;

use super::number::{self, BadNumber};
use super::request::Request;
use super::words::Quoted;

/// The words behind a command's name, taken one by one.
///
/// ```
/// # use rideau_resp::{RequestLimits, Mistake, Request, RequestParser, Upper};
/// fn wait(request: Request<'_>) -> Result<u64, Mistake> {
///     let mut arguments = request.arguments();
///     let _pool = arguments.text("TAKE", "the name of a pool")?;
///     let mut wait = 2_000;
///     while let Some(option) = arguments.next() {
///         match Upper::of(option).as_bytes() {
///             b"WAIT" => wait = arguments.number("WAIT", "milliseconds", 0..=30_000)?,
///             _ => return Err(Mistake::unknown("TAKE", option)),
///         }
///     }
///     Ok(wait)
/// }
/// # fn of(line: &str) -> Result<u64, String> {
/// #     let mut parser = RequestParser::default();
/// #     let request = parser.next(line.as_bytes(), &mut 0, &RequestLimits::default());
/// #     wait(request.unwrap().unwrap()).map_err(|mistake| mistake.to_string())
/// # }
/// assert_eq!(of("TAKE pg wait 200\n"), Ok(200));
/// let mistake = of("TAKE pg WAIT abc\n").unwrap_err();
/// assert_eq!(mistake, r#"WAIT takes milliseconds, not "abc""#);
/// ```
#[derive(Clone, Debug)]
pub struct Arguments<'a> {
    request: Request<'a>,
    next: usize,
}

impl<'a> Request<'a> {
    /// The arguments after the name, to be taken one by one.
    #[inline]
    pub fn arguments(&self) -> Arguments<'a> {
        Arguments {
            request: *self,
            next: 1,
        }
    }
}

impl<'a> Arguments<'a> {
    /// The next word, which `name` needs and calls `wants`.
    ///
    /// # Errors
    ///
    /// If there is none.
    #[inline]
    pub fn word(&mut self, name: &'static str, wants: &'static str) -> Result<&'a [u8], Mistake> {
        match self.next() {
            Some(word) => Ok(word),
            None => Err(Mistake::missing(name, wants)),
        }
    }

    /// The same, as text.
    ///
    /// # Errors
    ///
    /// If there is none, or it is not in UTF-8.
    pub fn text(&mut self, name: &'static str, wants: &'static str) -> Result<&'a str, Mistake> {
        let word = self.word(name, wants)?;
        std::str::from_utf8(word).map_err(|_| {
            let found = Quoted(word).to_string();
            Mistake::new(name, Problem::NotText { wants, found })
        })
    }

    /// The same, as a number of `range`: digits, and neither sign nor needless
    /// zeros.
    ///
    /// # Errors
    ///
    /// If there is none, or it is not such a number.
    pub fn number(
        &mut self,
        name: &'static str,
        wants: &'static str,
        range: RangeInclusive<u64>,
    ) -> Result<u64, Mistake> {
        let word = self.word(name, wants)?;
        let number = number::natural(word);
        if let Ok(number) = number
            && range.contains(&number)
        {
            return Ok(number);
        }
        let found = Quoted(word).to_string();
        Err(Mistake::new(
            name,
            match number {
                Ok(_) | Err(BadNumber::Huge) => Problem::OutOfRange {
                    wants,
                    range,
                    found,
                },
                Err(_) => Problem::Wrong { wants, found },
            },
        ))
    }

    /// Nothing must be left.
    ///
    /// # Errors
    ///
    /// If there is a word that `name` has no use for.
    pub fn end(mut self, name: &'static str) -> Result<(), Mistake> {
        match self.next() {
            None => Ok(()),
            Some(word) => Err(Mistake::unknown(name, word)),
        }
    }
}

impl<'a> Iterator for Arguments<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        let word = self.request.word(self.next)?;
        self.next += 1;
        Some(word)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.request.len() - self.next;
        (left, Some(left))
    }
}

impl ExactSizeIterator for Arguments<'_> {}

/// A fault of an argument; its text follows `ERR`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    name: &'static str,
    problem: Problem,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Problem {
    Missing {
        wants: &'static str,
    },
    Wrong {
        wants: &'static str,
        found: String,
    },
    NotText {
        wants: &'static str,
        found: String,
    },
    OutOfRange {
        wants: &'static str,
        range: RangeInclusive<u64>,
        found: String,
    },
    Unknown {
        found: String,
    },
}

impl Mistake {
    #[cold]
    fn missing(name: &'static str, wants: &'static str) -> Self {
        Self::new(name, Problem::Missing { wants })
    }

    /// `name` takes no such word here.
    pub fn unknown(name: &'static str, word: &[u8]) -> Self {
        let found = Quoted(word).to_string();
        Self::new(name, Problem::Unknown { found })
    }

    /// `name` wants something else than this word.
    pub fn wrong(name: &'static str, wants: &'static str, word: &[u8]) -> Self {
        let found = Quoted(word).to_string();
        Self::new(name, Problem::Wrong { wants, found })
    }

    /// The command that takes no such word, if that is the mistake.
    pub const fn unknown_to(&self) -> Option<&'static str> {
        match self.problem {
            Problem::Unknown { .. } => Some(self.name),
            _ => None,
        }
    }

    const fn new(name: &'static str, problem: Problem) -> Self {
        Self { name, problem }
    }
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.name;
        match &self.problem {
            Problem::Missing { wants } => write!(f, "{name} needs {wants}, and nothing follows"),
            Problem::Wrong { wants, found } => write!(f, "{name} takes {wants}, not {found}"),
            Problem::NotText { wants, found } => {
                write!(f, "{name} takes {wants} in UTF-8, not {found}")
            }
            Problem::OutOfRange {
                wants,
                range,
                found,
            } => {
                let (least, most) = (range.start(), range.end());
                write!(
                    f,
                    "{name} takes {wants} from {least} to {most}, not {found}"
                )
            }
            Problem::Unknown { found } => write!(f, "{name} does not know {found}"),
        }
    }
}

impl std::error::Error for Mistake {}

#[cfg(test)]
mod tests {
    use crate::{RequestLimits, RequestParser};

    use super::*;

    fn ask<T>(
        line: &[u8],
        f: impl FnOnce(Arguments<'_>) -> Result<T, Mistake>,
    ) -> Result<T, String> {
        let mut parser = RequestParser::default();
        let request = parser
            .next(line, &mut 0, &RequestLimits::default())
            .unwrap();
        f(request.unwrap().arguments()).map_err(|mistake| mistake.to_string())
    }

    #[test]
    fn a_number_is_told_from_everything_else() {
        let wait = |word: &str| {
            let line = format!("TAKE {word}\n");
            ask(line.as_bytes(), |mut arguments| {
                arguments.number("WAIT", "milliseconds", 1..=u64::MAX)
            })
        };
        assert_eq!(wait("18446744073709551615"), Ok(u64::MAX));
        for (word, mistake) in [
            ("abc", r#"WAIT takes milliseconds, not "abc""#),
            ("-1", r#"WAIT takes milliseconds, not "-1""#),
            ("+1", r#"WAIT takes milliseconds, not "+1""#),
            ("1.5", r#"WAIT takes milliseconds, not "1.5""#),
            ("007", r#"WAIT takes milliseconds, not "007""#),
            ("''", r#"WAIT takes milliseconds, not """#),
            ("", "WAIT needs milliseconds, and nothing follows"),
            (
                "18446744073709551616",
                "WAIT takes milliseconds from 1 to 18446744073709551615, \
                 not \"18446744073709551616\"",
            ),
            (
                "0",
                "WAIT takes milliseconds from 1 to 18446744073709551615, not \"0\"",
            ),
        ] {
            assert_eq!(wait(word).unwrap_err(), mistake);
        }
    }

    #[test]
    fn text_is_in_utf8_and_nothing_is_left_over() {
        let name = |line: &[u8]| {
            ask(line, |mut arguments| {
                let name = arguments.text("TAKE", "the name of a pool")?.to_owned();
                arguments.end("TAKE")?;
                Ok(name)
            })
        };
        assert_eq!(name(b"TAKE \xc3\xa9\n"), Ok("é".to_owned()));
        for (line, mistake) in [
            (
                &b"TAKE\n"[..],
                "TAKE needs the name of a pool, and nothing follows",
            ),
            (
                b"TAKE \xff\n",
                r#"TAKE takes the name of a pool in UTF-8, not "\xff""#,
            ),
            (b"TAKE pg now\n", r#"TAKE does not know "now""#),
        ] {
            assert_eq!(name(line).unwrap_err(), mistake);
        }
    }
}
