//! A process and all that it has started, for servers that are several.

use std::fs;
use std::time::Duration;

/// A process and its children, and theirs, as they were at one moment.
pub(crate) struct Family {
    root: u32,
    others: Vec<u32>,
}

impl Family {
    pub(crate) fn of(root: u32) -> Self {
        let mut rest: Vec<(u32, u32)> = processes()
            .filter_map(|process| Some((process, Stat::read(process)?.parent)))
            .collect();
        let mut found = vec![root];
        let mut at = 0;
        while let Some(parent) = found.get(at).copied() {
            let children = rest.extract_if(.., |(_, of)| *of == parent);
            found.extend(children.map(|(process, _)| process));
            at += 1;
        }
        Self {
            root: found.remove(0),
            others: found,
        }
    }

    pub(super) fn others(&self) -> impl Iterator<Item = u32> {
        self.others.iter().copied()
    }

    /// Processor time of all their threads so far, to the nanosecond. A process
    /// that has ended takes its own along.
    pub(crate) fn cpu_time(&self) -> Duration {
        let processes = [self.root].into_iter().chain(self.others());
        processes.map(threads_time).sum()
    }
}

fn threads_time(process: u32) -> Duration {
    let Ok(tasks) = fs::read_dir(format!("/proc/{process}/task")) else {
        return Duration::ZERO;
    };
    let nanos = tasks
        .flatten()
        .filter_map(|task| fs::read_to_string(task.path().join("schedstat")).ok())
        .filter_map(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    Duration::from_nanos(nanos.sum())
}

fn processes() -> impl Iterator<Item = u32> {
    let names = fs::read_dir("/proc").expect("Linux has /proc").flatten();
    names.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// What the kernel says of a process in one line.
pub(super) struct Stat {
    parent: u32,
    /// Ticks as a user and in the kernel, and the same of its children that
    /// have ended.
    ticks: [u32; 4],
}

impl Stat {
    /// Nothing if it has ended.
    pub(super) fn read(process: u32) -> Option<Self> {
        let line = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
        // The name stands in brackets, and may have any letters in it.
        let (_, fields) = line.rsplit_once(") ")?;
        let fields: Vec<_> = fields.split_whitespace().collect();
        let mut ticks = [0; 4];
        for (ticks, field) in ticks.iter_mut().zip(fields.get(11..)?) {
            *ticks = field.parse().ok()?;
        }
        Some(Self {
            parent: fields[1].parse().ok()?,
            ticks,
        })
    }

    /// All ticks from the count at `first` on.
    pub(super) fn ticks(&self, first: usize) -> u32 {
        self.ticks[first..].iter().sum()
    }
}

#[cfg(test)]
mod tests {
    use std::process::id;

    use rideau_testing::{Start, command};

    use super::*;

    #[test]
    fn a_child_is_of_the_family_until_it_has_ended() {
        let mut child = command("sleep").arg("60").start();
        assert!(Family::of(id()).others().any(|other| other == child.id()));
        child.end();
        assert!(!Family::of(id()).others().any(|other| other == child.id()));
    }
}
