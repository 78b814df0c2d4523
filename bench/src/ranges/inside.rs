//! Ranges without a wire: how long a value takes, what it weighs, and how soon
//! a million reservations are there again after a start.

use std::env;
use std::fs;
use std::hint::black_box;
use std::path::Path;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use rideau::allocator::{
    Allocator, Ask, Effects, Field, Fields, Key, Options, Place, Prefer, RangeId, RangeOptions,
    Reservation, Span, Start,
};
use rideau::store::Embedded;
use rideau::{Instant as At, Ranges, RangesOptions};

use crate::measure::{Plan, resident_bytes, weigh_apart};
use crate::report::{Format, Verdict, short};

const BENCH: &str = "ranges";
const CASE: &str = "in process";
const VALUES: usize = 1_000_000;
/// What a reservation may weigh, with 64 bytes of data and two keys.
const HELD_MAX: f64 = 150.0;
const FREE_MAX: f64 = 1.0;
const NETWORK_MAX: f64 = 1024.0 * 1024.0;
/// What taking a value may take, in nanoseconds.
const TAKE_MAX: f64 = 300.0;

/// A number that was found, and what it may be.
struct Figure {
    subject: &'static str,
    metric: &'static str,
    value: f64,
    most: Option<f64>,
}

pub(crate) fn run(plan: &Plan, format: Format) {
    let mut figures = Vec::new();
    take(plan, &mut figures);
    through_the_handle(plan, &mut figures);
    weigh_all(&mut figures);
    start(&mut figures);
    recover(&mut figures);
    print(&figures, format);
}

fn print(figures: &[Figure], format: Format) {
    if let Format::Table = format {
        println!("{BENCH} {CASE}");
    }
    for Figure {
        subject,
        metric,
        value,
        most,
    } in figures
    {
        match (format, most) {
            (Format::Json, _) => println!(
                "{{\"bench\":\"{BENCH}\",\"case\":\"{CASE}\",\"subject\":\"{subject}\",\
                 \"metric\":\"{metric}\",\"value\":{value:.3}}}"
            ),
            (Format::Table, Some(most)) => {
                let what = format!("{subject}, {metric}");
                println!("  {}", Verdict::at_most(what, *value, *most));
            }
            (Format::Table, None) => {
                println!(
                    "  {:<36}{:>6}",
                    format!("{subject}, {metric}"),
                    short(*value)
                );
            }
        }
    }
}

/// A machine with one range that no ask has to wait for.
struct Machine {
    machine: Allocator,
    effects: Effects,
    range: RangeId,
    now: At,
}

impl Machine {
    fn new(span: &str) -> Self {
        let mut machine = Allocator::new(&Options::default());
        let mut effects = Effects::new();
        let options = in_memory(span);
        let range = machine.set_range("bench", options, At::START, &mut effects);
        Self {
            machine,
            effects,
            range: range.expect("it is the only range"),
            now: At::START,
        }
    }

    fn prefer(&self) -> [Prefer; 1] {
        [Prefer {
            tier: 0,
            place: Place::Range(self.range),
        }]
    }

    fn reserve(&mut self, ask: &Ask<'_>, granted: &mut Vec<Reservation>) {
        let answer = self
            .machine
            .reserve(ask, self.now, &mut self.effects, granted);
        answer.expect("there are values enough");
        self.effects.log.clear();
    }

    fn release(&mut self, one: &Reservation) {
        let fence = Some(one.fence);
        let answer = self
            .machine
            .release(one.value, fence, self.now, &mut self.effects);
        answer.expect("it is held");
    }

    /// Take all values, and give every other one back, in no order.
    fn half_free(&mut self) -> Vec<Reservation> {
        let prefer = self.prefer();
        let mut granted = Vec::with_capacity(VALUES);
        let ask = Ask {
            count: 1_000,
            ttl: Some(HOUR),
            ..Ask::new(&prefer)
        };
        for _ in 0..VALUES / 1_000 {
            self.reserve(&ask, &mut granted);
        }
        shuffle(&mut granted);
        for one in granted.split_off(VALUES / 2) {
            self.release(&one);
        }
        granted
    }
}

const HOUR: Duration = Duration::from_secs(3_600);

fn in_memory(span: &str) -> RangeOptions {
    let span = Span::parse(span).expect("a span of values");
    RangeOptions {
        start: Start::Free,
        ..RangeOptions::in_memory(vec![span])
    }
}

/// Mixed the same way each time.
fn shuffle<T>(items: &mut [T]) {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    for at in (1..items.len()).rev() {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        items.swap(at, (state % (at as u64 + 1)) as usize);
    }
}

/// A value is taken and another given back, a million being half free.
fn take(plan: &Plan, figures: &mut Vec<Figure>) {
    let mut machine = Machine::new("1-1000000");
    let mut held = machine.half_free();
    let prefer = machine.prefer();
    let ask = Ask {
        ttl: Some(HOUR),
        ..Ask::new(&prefer)
    };
    let mut granted = Vec::with_capacity(1);
    let (mut takes, mut gives) = (spans(), spans());
    let begun = Instant::now();
    let len = held.len();
    for at in (0..).map(|turn| turn * 7_919 % len) {
        let before = Instant::now();
        machine.reserve(&ask, &mut granted);
        takes.saturating_record(nanos(before));
        let old = std::mem::replace(&mut held[at], granted.remove(0));
        let before = Instant::now();
        machine.release(&old);
        gives.saturating_record(nanos(before));
        if begun.elapsed() > 4 * plan.window {
            break;
        }
    }
    let mut clock = spans();
    for _ in 0..10_000 {
        clock.saturating_record(nanos(Instant::now()));
    }
    figures.push(figure("reserve, 1M half free", "p50_ns", at(&takes, 0.5)).most(TAKE_MAX));
    figures.push(figure("reserve, 1M half free", "p99_ns", at(&takes, 0.99)));
    figures.push(figure("release, 1M half free", "p50_ns", at(&gives, 0.5)));
    figures.push(figure("release, 1M half free", "p99_ns", at(&gives, 0.99)));
    figures.push(figure("the clock alone", "p50_ns", at(&clock, 0.5)));
}

/// The same with the lock and the thread that writes, of one thread.
fn through_the_handle(plan: &Plan, figures: &mut Vec<Figure>) {
    let folder = Folder::new("handle");
    let ranges = open(&folder.0, ("bench", in_memory("1-1000000")));
    let prefer = anywhere(&ranges);
    let ask = Ask {
        ttl: Some(HOUR),
        ..Ask::new(&prefer)
    };
    let mut times = spans();
    let begun = Instant::now();
    while begun.elapsed() < 2 * plan.window {
        let before = Instant::now();
        let one = ranges.reserve(&ask).wait().expect("a value")[0];
        times.saturating_record(nanos(before));
        let released = ranges.release(one.value, Some(one.fence)).wait();
        black_box(released.expect("it is held"));
    }
    figures.push(figure("handle, class memory", "p50_ns", at(&times, 0.5)));
    figures.push(figure("handle, class memory", "p99_ns", at(&times, 0.99)));
}

fn weigh_all(figures: &mut Vec<Figure>) {
    let held = weigh_apart(BENCH, "rideau", "held");
    figures.push(figure("a reservation, 64 B and 2 keys", "bytes", held).most(HELD_MAX));
    let free = weigh_apart(BENCH, "rideau", "free");
    figures.push(figure("a free value of 1M half free", "bytes", free).most(FREE_MAX));
    let network = weigh_apart(BENCH, "rideau", "network");
    figures.push(figure("a fresh /8", "bytes", network).most(NETWORK_MAX));
}

/// Bytes of a value that is `held` or `free`, or of a whole `network`; right
/// only in a process that has not used and freed memory before.
pub(crate) fn weigh(_: &str, what: &str) -> f64 {
    match what {
        "held" => held_bytes(),
        "free" => {
            let mut machine = Machine::new("1-1000000");
            machine.half_free();
            machine.machine.bytes().free as f64 / (VALUES / 2) as f64
        }
        _ => {
            let before = resident_bytes();
            let machine = Machine::new("10.0.0.0/8");
            black_box(&machine);
            (resident_bytes() - before) as f64
        }
    }
}

fn held_bytes() -> f64 {
    let mut machine = Machine::new("1-1000000");
    let prefer = machine.prefer();
    let data = data();
    let mut granted = Vec::with_capacity(1);
    let before = resident_bytes();
    for at in 0..VALUES {
        with_keys(at, |keys| {
            let ask = Ask {
                data: &data,
                keys,
                ttl: Some(HOUR),
                ..Ask::new(&prefer)
            };
            machine.reserve(&ask, &mut granted);
            granted.clear();
        });
    }
    (resident_bytes() - before) as f64 / VALUES as f64
}

/// 64 bytes with the name.
fn data() -> Fields {
    let mut data = Fields::new();
    data.set(b"data", Field::Bytes(&[7; 60]));
    data
}

/// Two keys of eight bytes.
fn with_keys<T>(at: usize, then: impl FnOnce(&[Key<'_>]) -> T) -> T {
    let (one, two) = (format!("a{at:07}"), format!("b{at:07}"));
    let keys = [(&one, true), (&two, false)].map(|(key, unique)| Key {
        bytes: key.as_bytes(),
        unique,
    });
    then(&keys)
}

/// How long the first value of a range takes, from nothing on.
fn start(figures: &mut Vec<Figure>) {
    for (subject, span) in [
        ("start of ten values", "0-9"),
        ("start of 2000::/3", "2000::/3"),
    ] {
        let mut times = spans();
        for _ in 0..1_000 {
            let before = Instant::now();
            let mut machine = Machine::new(span);
            let prefer = machine.prefer();
            machine.reserve(&Ask::new(&prefer), &mut Vec::new());
            black_box(machine.machine.stats(machine.range));
            times.saturating_record(nanos(before));
        }
        figures.push(figure(subject, "p50_ns", at(&times, 0.5)));
    }
}

/// A million reservations are written, and read again.
fn recover(figures: &mut Vec<Figure>) {
    let folder = Folder::new("recover");
    let sync = || {
        let span = Span::parse("1-1000000").expect("a span of values");
        RangeOptions::new(vec![span])
    };
    let ranges = open(&folder.0, ("bench", sync()));
    let prefer = anywhere(&ranges);
    let data = data();
    let begun = Instant::now();
    for chunk in 0..VALUES / 1_000 {
        let mut last = None;
        for at in 0..1_000 {
            let answer = with_keys(chunk * 1_000 + at, |keys| {
                ranges.reserve(&Ask {
                    data: &data,
                    keys,
                    ttl: Some(HOUR),
                    ..Ask::new(&prefer)
                })
            });
            last = Some(answer.into_parts().1);
        }
        let safe = last.map(|until| until.wait());
        safe.expect("there was one").expect("the disk is well");
    }
    let written = begun.elapsed();
    drop(ranges);
    let begun = Instant::now();
    let ranges = open(&folder.0, ("bench", sync()));
    let read = begun.elapsed();
    assert_eq!(ranges.bytes().records_len, VALUES, "all are there again");
    figures.push(figure("1M reservations written", "ms", millis(written)));
    figures.push(figure("1M reservations read again", "ms", millis(read)));
    let bytes = ranges.loaded().bytes as f64 / VALUES as f64;
    figures.push(figure("a reservation on disk", "bytes", bytes));
}

fn open(folder: &Path, (name, range): (&str, RangeOptions)) -> Ranges {
    let store = Embedded::open(folder).expect("a folder of our own");
    let options = RangesOptions {
        ranges: vec![(name.to_owned(), range)],
        ..RangesOptions::default()
    };
    Ranges::open(Box::new(store), options).expect("it is well")
}

fn anywhere(ranges: &Ranges) -> [Prefer; 1] {
    let range = ranges.range("bench").expect("it was opened with it");
    [Prefer {
        tier: 0,
        place: Place::Range(range),
    }]
}

/// A folder that goes away.
struct Folder(std::path::PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let name = format!("rideau-bench-{name}-{}", std::process::id());
        Self(env::temp_dir().join(name))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn figure(subject: &'static str, metric: &'static str, value: f64) -> Figure {
    Figure {
        subject,
        metric,
        value,
        most: None,
    }
}

impl Figure {
    fn most(self, most: f64) -> Self {
        Self {
            most: Some(most),
            ..self
        }
    }
}

fn spans() -> Histogram<u64> {
    // With bounds, for one without takes what is too long for very short.
    let longest = 60_000_000_000;
    Histogram::new_with_max(longest, 3).expect("three digits are enough")
}

fn at(times: &Histogram<u64>, part: f64) -> f64 {
    times.value_at_quantile(part) as f64
}

fn nanos(since: Instant) -> u64 {
    since.elapsed().as_nanos().try_into().unwrap_or(u64::MAX)
}

fn millis(span: Duration) -> f64 {
    span.as_secs_f64() * 1_000.0
}
