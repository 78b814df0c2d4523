//! A strict reader of what Prometheus reads: the OpenMetrics text format as its
//! specification has it, as far as the server uses it.

use std::collections::{BTreeMap, BTreeSet};

/// All families of a page.
pub(crate) struct Exposition {
    pub(crate) families: BTreeMap<String, Family>,
}

/// All series of a name.
#[derive(Default)]
pub(crate) struct Family {
    pub(crate) kind: String,
    has_help: bool,
    pub(crate) samples: Vec<Sample>,
}

/// One number.
#[derive(Clone, Debug)]
pub(crate) struct Sample {
    pub(crate) name: String,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) value: f64,
}

impl Exposition {
    /// Read a page.
    ///
    /// # Panics
    ///
    /// If anything of it is wrong.
    pub(crate) fn read(page: &str) -> Self {
        let page = page.strip_suffix("# EOF\n").expect("the page ends so");
        assert!(!page.contains("# EOF"), "and only there");
        let mut families: BTreeMap<String, Family> = BTreeMap::new();
        let mut current = String::new();
        for line in page.split_terminator('\n') {
            assert!(!line.is_empty() && !line.contains('\r'), "{line:?}");
            if let Some(rest) = line.strip_prefix("# ") {
                let mut words = rest.splitn(3, ' ');
                let (what, name) = (words.next().unwrap(), words.next().unwrap());
                let said = words.next().unwrap_or_default();
                check_name(name, false);
                if name != current {
                    assert!(!families.contains_key(name), "{name} is interrupted");
                    current = name.into();
                }
                let family = families.entry(name.into()).or_default();
                assert!(family.samples.is_empty(), "{line}: too late");
                match what {
                    "TYPE" => {
                        assert_eq!(family.kind, "", "{name} has two types");
                        family.kind = said.into();
                    }
                    "HELP" => {
                        assert!(!family.has_help && !said.is_empty(), "{line}");
                        check_escapes(said, "\\n\"");
                        family.has_help = true;
                    }
                    "UNIT" => assert!(name.ends_with(&format!("_{said}")), "{line}"),
                    _ => panic!("{line}"),
                }
            } else {
                let family = families.get_mut(&current).expect("a family begins first");
                family.add(&current, sample(line));
            }
        }
        for (name, family) in &families {
            family.check(name);
        }
        Self { families }
    }

    /// The value of a series.
    pub(crate) fn value(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        let labels: BTreeMap<String, String> = labels
            .iter()
            .map(|(name, value)| ((*name).into(), (*value).into()))
            .collect();
        let all = self.families.values().flat_map(|family| &family.samples);
        let mut found = all.filter(|sample| sample.name == name && sample.labels == labels);
        let sample = found.next();
        sample
            .unwrap_or_else(|| panic!("no {name}{labels:?}"))
            .value
    }
}

impl Family {
    fn add(&mut self, name: &str, sample: Sample) {
        let suffixes: &[&str] = match self.kind.as_str() {
            "counter" => &["_total"],
            "gauge" => &[""],
            "info" => &["_info"],
            "histogram" => &["_bucket", "_sum", "_count"],
            kind => panic!("{name} is {kind:?}"),
        };
        let suffix = sample.name.strip_prefix(name);
        let is_ours = suffix.is_some_and(|suffix| suffixes.contains(&suffix));
        assert!(is_ours, "{} is none of {name}", sample.name);
        if self.kind != "gauge" && !sample.name.ends_with("_sum") {
            assert!(sample.value >= 0.0, "{sample:?}");
        }
        let twice = self.samples.iter();
        let mut twice =
            twice.filter(|other| other.name == sample.name && other.labels == sample.labels);
        assert!(twice.next().is_none(), "{sample:?} comes twice");
        self.samples.push(sample);
    }

    fn check(&self, name: &str) {
        assert!(self.has_help && !self.kind.is_empty(), "{name}");
        let label_names = |sample: &Sample| -> BTreeSet<String> {
            let names = sample.labels.keys().filter(|label| *label != "le");
            names.cloned().collect()
        };
        let all: BTreeSet<_> = self.samples.iter().map(label_names).collect();
        assert!(all.len() <= 1, "{name} has differing labels: {all:?}");
        if self.kind == "histogram" {
            self.check_buckets(name);
        }
    }

    fn check_buckets(&self, name: &str) {
        let mut series: BTreeMap<BTreeMap<String, String>, Vec<&Sample>> = BTreeMap::new();
        for sample in &self.samples {
            let mut labels = sample.labels.clone();
            labels.remove("le");
            series.entry(labels).or_default().push(sample);
        }
        for (labels, samples) in series {
            let of = |suffix: &str| {
                let wanted = format!("{name}{suffix}");
                let all = samples.iter().filter(move |sample| sample.name == wanted);
                all.map(|sample| (sample.labels.get("le").cloned(), sample.value))
                    .collect::<Vec<_>>()
            };
            let buckets = of("_bucket");
            let bounds: Vec<f64> = buckets
                .iter()
                .map(|(bound, _)| {
                    bound
                        .as_ref()
                        .expect("a bucket has a bound")
                        .parse()
                        .unwrap()
                })
                .collect();
            assert!(
                bounds.is_sorted_by(|one, next| one < next),
                "{name}{labels:?}"
            );
            assert_eq!(bounds.last(), Some(&f64::INFINITY), "{name}{labels:?}");
            assert!(
                buckets.is_sorted_by(|(_, one), (_, next)| one <= next),
                "{name}{labels:?} counts up: {buckets:?}"
            );
            let (sums, counts) = (of("_sum"), of("_count"));
            if bounds[0] < 0.0 {
                assert!(sums.is_empty() && counts.is_empty(), "{name} has no sum");
            } else {
                assert_eq!((sums.len(), counts.len()), (1, 1), "{name}{labels:?}");
                assert_eq!(counts[0].1, buckets.last().unwrap().1, "{name}{labels:?}");
            }
        }
    }
}

fn sample(line: &str) -> Sample {
    let name_len = line.find(['{', ' ']).expect("a value follows");
    let (name, mut rest) = line.split_at(name_len);
    check_name(name, false);
    let mut labels = BTreeMap::new();
    if let Some(inside) = rest.strip_prefix('{') {
        rest = inside;
        while !rest.starts_with('}') {
            let (label, after) = rest.split_once("=\"").expect("a label has a value");
            check_name(label, true);
            let (value, after) = quoted(after);
            assert!(labels.insert(label.into(), value).is_none(), "{line}");
            rest = after.strip_prefix(',').unwrap_or(after);
            assert!(after.starts_with([',', '}']), "{line}");
        }
        rest = &rest[1..];
    }
    let value = rest.strip_prefix(' ').expect("one space");
    assert!(!value.contains(' '), "no times and no examples: {line}");
    let value: f64 = value.parse().expect("a number");
    assert!(value.is_finite(), "{line}");
    Sample {
        name: name.into(),
        labels,
        value,
    }
}

/// A text up to its closing quote, and what follows.
fn quoted(text: &str) -> (String, &str) {
    let mut value = String::new();
    let mut letters = text.char_indices();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '"' => return (value, &text[at + 1..]),
            '\\' => match letters.next().expect("something is escaped").1 {
                'n' => value.push('\n'),
                other @ ('\\' | '"') => value.push(other),
                other => panic!("\\{other} in {text}"),
            },
            other => value.push(other),
        }
    }
    panic!("no end of {text}");
}

fn check_escapes(text: &str, known: &str) {
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        if letter == '\\' {
            let escaped = letters.next().expect("something is escaped");
            assert!(known.contains(escaped) || escaped == '\\', "{text}");
        }
    }
}

fn check_name(name: &str, is_label: bool) {
    let mut letters = name.chars();
    let first = letters.next().expect("a name");
    let may_begin = |letter: char| letter.is_ascii_alphabetic() || letter == '_';
    assert!(may_begin(first), "{name:?}");
    assert!(
        letters.all(|letter| may_begin(letter) || letter.is_ascii_digit()),
        "{name:?}"
    );
    assert!(!is_label || !name.starts_with("__"), "{name:?}");
}
