//! Outcomes of the requests for one application, counted without a lock.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hyper::StatusCode;

/// Up to how many microseconds each column counts; the last has no end. They
/// are the bounds that all waits share.
const BOUNDS: [u64; 15] = [
    500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000,
    2_500_000, 5_000_000, 10_000_000, 30_000_000,
];

/// Statuses by their first digit; the last is for what is no status.
const CLASSES: [&str; 6] = ["1xx", "2xx", "3xx", "4xx", "5xx", "other"];

/// The words for a refusal that is the front's and not the application's.
const WORDS: [&str; 23] = [
    "bad_request",
    "not_found",
    "file_unreadable",
    "denied",
    "rate_limited",
    "client_connections_max",
    "client_gone",
    "client_slow",
    "body_too_large",
    "body_timeout",
    "buffers_full",
    "app_unreachable",
    "app_closed",
    "bad_answer",
    "answer_broken",
    "queue_full",
    "queue_timeout",
    "app_failing",
    "app_down",
    "waiting_room",
    "shutting_down",
    "request_timeout",
    "other",
];

/// Outcomes of the requests for one application.
#[derive(Default)]
pub struct AppCounters {
    classes: [Class; CLASSES.len()],
    refused: [AtomicU64; WORDS.len()],
    files: AtomicU64,
}

/// Answers of one class of statuses. The next begins where no other processor
/// writes.
#[derive(Default)]
#[repr(align(64))]
struct Class {
    columns: [AtomicU64; BOUNDS.len() + 1],
    micros: AtomicU64,
}

/// The answers of one class.
#[derive(Clone, PartialEq, Debug)]
pub struct Answered {
    /// As `2xx`.
    pub code: &'static str,
    /// How many there were.
    pub count: u64,
    /// How many seconds all of them took.
    pub sum: f64,
    /// How many took this many seconds at most, and more than the one before.
    pub columns: Vec<(f64, u64)>,
}

impl AppCounters {
    /// The application answered, so long after it got the request.
    pub fn answered(&self, status: StatusCode, took: Duration) {
        let at = usize::from(status.as_u16() / 100).wrapping_sub(1);
        let class = &self.classes[at.min(CLASSES.len() - 1)];
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let column = BOUNDS.partition_point(|bound| *bound < micros);
        class.columns[column].fetch_add(1, Ordering::Relaxed);
        class.micros.fetch_add(micros, Ordering::Relaxed);
    }

    /// The front answered instead, with this word.
    pub fn refused(&self, word: &str) {
        let known = WORDS.iter().position(|known| *known == word);
        self.refused[known.unwrap_or(WORDS.len() - 1)].fetch_add(1, Ordering::Relaxed);
    }

    /// The front answered with a file.
    pub fn answered_by_file(&self) {
        self.files.fetch_add(1, Ordering::Relaxed);
    }

    /// How often it did.
    pub fn files(&self) -> u64 {
        self.files.load(Ordering::Relaxed)
    }

    /// Answers of the application, by class of status.
    pub fn classes(&self) -> Vec<Answered> {
        let classes = CLASSES.iter().zip(&self.classes);
        let classes = classes.map(|(code, class)| class.read(code));
        let known = |answered: &Answered| answered.code != "other" || answered.count > 0;
        classes.filter(known).collect()
    }

    /// Answers of the front instead, by word.
    pub fn refusals(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let words = WORDS.iter().zip(&self.refused);
        words.map(|(word, count)| (*word, count.load(Ordering::Relaxed)))
    }
}

impl Class {
    fn read(&self, code: &'static str) -> Answered {
        let bounds = BOUNDS.iter().map(|bound| *bound as f64 / 1e6);
        let counts = self
            .columns
            .iter()
            .map(|count| count.load(Ordering::Relaxed));
        let columns: Vec<_> = bounds.chain([f64::INFINITY]).zip(counts).collect();
        Answered {
            code,
            count: columns.iter().map(|(_, count)| count).sum(),
            sum: self.micros.load(Ordering::Relaxed) as f64 / 1e6,
            columns,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_counted_by_class_and_time() {
        let counts = AppCounters::default();
        counts.answered(StatusCode::OK, Duration::from_millis(3));
        counts.answered(StatusCode::NO_CONTENT, Duration::from_secs(60));
        counts.answered(StatusCode::NOT_FOUND, Duration::ZERO);
        let classes = counts.classes();
        let codes: Vec<_> = classes
            .iter()
            .map(|class| (class.code, class.count))
            .collect();
        let expected = [("1xx", 0), ("2xx", 2), ("3xx", 0), ("4xx", 1), ("5xx", 0)];
        assert_eq!(codes, expected);
        assert_eq!(classes[1].sum, 60.003);
        assert_eq!(classes[1].columns[3], (0.005, 1));
        assert_eq!(classes[1].columns[15], (f64::INFINITY, 1));
        assert_eq!(classes[3].columns[0], (0.0005, 1));
    }

    #[test]
    fn a_status_of_no_class_is_counted_too() {
        let counts = AppCounters::default();
        counts.answered(StatusCode::from_u16(799).unwrap(), Duration::ZERO);
        assert_eq!(counts.classes().last().unwrap().code, "other");
    }

    #[test]
    fn what_the_front_answers_is_counted_by_its_word() {
        let counts = AppCounters::default();
        counts.refused("queue_full");
        counts.refused("something new");
        let counted: Vec<_> = counts.refusals().filter(|(_, count)| *count > 0).collect();
        assert_eq!(counted, [("queue_full", 1), ("other", 1)]);
    }
}
