//! Resources that this process uses.

use std::fs;
use std::time::Duration;

/// The unit of `/proc/self/stat`: the same on all Linux systems.
const TICK: Duration = Duration::from_millis(10);

/// The content of `/proc/self/status`.
pub(crate) struct Status(String);

impl Status {
    /// Reads it; empty if there is no such file.
    pub(crate) fn now() -> Self {
        Self(fs::read_to_string("/proc/self/status").unwrap_or_default())
    }

    /// One of its values, in bytes if it has a unit.
    pub(crate) fn value(&self, key: &str) -> Option<u64> {
        value(&self.0, key)
    }
}

/// The memory of the machine, in bytes.
pub(crate) fn memory_of_system() -> Option<u64> {
    value(&fs::read_to_string("/proc/meminfo").ok()?, "MemTotal")
}

/// The processor time that the process used: its own, and that of the system for it.
pub(crate) fn processor_time() -> Option<(Duration, Duration)> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    // The name of the program stands in parentheses and may hold anything.
    let (_, rest) = stat.rsplit_once(") ")?;
    let mut fields = rest.split(' ').skip(11);
    let mut next = || fields.next()?.parse().ok().map(|ticks: u32| TICK * ticks);
    Some((next()?, next()?))
}

fn value(text: &str, key: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| {
        let rest = line.strip_prefix(key)?;
        rest.strip_prefix(':')
    })?;
    let mut words = line.split_whitespace();
    let number: u64 = words.next()?.parse().ok()?;
    match words.next() {
        Some("kB") => Some(number * 1024),
        _ => Some(number),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_by_their_whole_name_and_in_bytes() {
        let text = "VmRSSx:\t1 kB\nVmRSS:\t     2 kB\nThreads:\t7\n";
        assert_eq!(value(text, "VmRSS"), Some(2048));
        assert_eq!(value(text, "Threads"), Some(7));
        assert_eq!(value(text, "Vm"), None);
    }

    #[test]
    fn this_process_uses_something() {
        assert!(Status::now().value("VmRSS") > Some(0));
        assert!(memory_of_system() > Status::now().value("VmRSS"));
        assert!(processor_time().is_some());
    }
}
