//! Which versions of etcd are good enough.

/// What may be expected of a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fitness {
    /// What is relied on was tried with it, or it has all the repairs.
    Supported,
    /// It has known faults that cost availability.
    Doubtful,
    /// It is known to lose or damage what it keeps, or lacks what is needed.
    Unfit,
}

/// Judges a version as etcd tells it, such as `3.5.12` or `3.6.0-rc.1`.
pub(super) fn fitness(version: &str) -> Fitness {
    let release = version.split(['-', '+']).next().unwrap_or_default();
    let numbers: Result<Vec<u32>, _> = release.split('.').map(str::parse).collect();
    match numbers.as_deref() {
        Ok([3, 4, patch]) if *patch >= 22 => Fitness::Supported,
        Ok([3, 5, patch]) if *patch >= 6 => Fitness::Supported,
        // Members that crash under load can come back with other keys than the rest.
        Ok([3, 5, patch]) if *patch <= 2 => Fitness::Unfit,
        Ok([3, 4 | 5, _]) => Fitness::Doubtful,
        Ok([3, minor, _]) if *minor >= 6 => Fitness::Supported,
        // No watch of an earlier one answers when it is asked for its progress.
        Ok([0..=3, ..]) | Err(_) => Fitness::Unfit,
        Ok(_) => Fitness::Doubtful,
    }
}

#[cfg(test)]
mod tests {
    use super::Fitness::{Doubtful, Supported, Unfit};
    use super::fitness;

    #[test]
    fn versions_are_judged_by_their_known_faults() {
        for (version, judged) in [
            ("3.3.27", Unfit),
            ("3.4.21", Doubtful),
            ("3.4.22", Supported),
            ("3.4.23", Supported),
            ("3.5.0", Unfit),
            ("3.5.2", Unfit),
            ("3.5.3", Doubtful),
            ("3.5.5", Doubtful),
            ("3.5.6", Supported),
            ("3.5.21", Supported),
            ("3.6.0-rc.1", Supported),
            ("3.7.0", Supported),
            ("4.0.0", Doubtful),
            ("3.5", Unfit),
            ("", Unfit),
            ("not.a.version", Unfit),
        ] {
            assert_eq!(fitness(version), judged, "{version}");
        }
    }
}
