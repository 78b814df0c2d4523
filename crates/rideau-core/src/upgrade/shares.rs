//! How many processes of each app the newer server starts while the older one has its own.

/// What an app needs, and what the older server has for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct AppLoad {
    /// Processes that serve something.
    pub busy: usize,
    /// Others.
    pub idle: usize,
    /// It has at least this many.
    pub min: usize,
}

/// What becomes of the processes of an app.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ProcessShare {
    /// Processes that the newer server starts.
    pub start: usize,
    /// Idle processes that the older server gives up.
    pub give_up: usize,
}

/// Divide the room for processes: both servers together may have `overlap` percent of `max`.
///
/// The newer server wants as many as are busy, and `min` at least. If that is too much, the
/// older one gives up idle processes beyond its own `min`; if that is not enough, each app
/// that wants any gets one.
pub fn process_shares(apps: &[AppLoad], max: usize, overlap: usize) -> Vec<ProcessShare> {
    let wanted = |app: &AppLoad| app.busy.max(app.min);
    let total = |app: &AppLoad| app.busy + app.idle;
    let starts: usize = apps.iter().map(wanted).sum();
    let there: usize = apps.iter().map(total).sum();
    let mut short = (starts + there).saturating_sub(both_max(max, overlap));
    let mut shares: Vec<_> = apps
        .iter()
        .map(|app| ProcessShare {
            start: wanted(app),
            give_up: 0,
        })
        .collect();
    for (share, app) in shares.iter_mut().zip(apps) {
        share.give_up = short.min(total(app).saturating_sub(wanted(app)));
        short -= share.give_up;
    }
    if short > 0 {
        shares
            .iter_mut()
            .for_each(|share| share.start = share.start.min(1));
    }
    shares
}

/// How many processes a server may have beside another that has `other`, of which `own` are
/// there already.
pub fn process_room(max: usize, overlap: usize, other: usize, own: usize) -> usize {
    let left = both_max(max, overlap).saturating_sub(other);
    left.max(own).clamp(1, max.max(1))
}

fn both_max(max: usize, overlap: usize) -> usize {
    max.saturating_mul(overlap) / 100
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(busy: usize, idle: usize, min: usize) -> AppLoad {
        AppLoad { busy, idle, min }
    }

    fn shares(apps: &[AppLoad], max: usize) -> Vec<(usize, usize)> {
        let shares = process_shares(apps, max, 150).into_iter();
        shares.map(|share| (share.start, share.give_up)).collect()
    }

    #[test]
    fn as_many_are_started_as_are_busy_and_min_at_least() {
        let apps = [load(2, 1, 1), load(0, 2, 2), load(0, 1, 0)];
        assert_eq!(shares(&apps, 8), [(2, 0), (2, 0), (0, 0)]);
    }

    #[test]
    fn idle_ones_go_first_and_then_each_app_has_one() {
        assert_eq!(shares(&[load(2, 3, 0), load(1, 1, 1)], 6), [(2, 1), (1, 0)]);
        assert_eq!(shares(&[load(4, 0, 1), load(2, 0, 0)], 6), [(1, 0), (1, 0)]);
        assert_eq!(shares(&[load(6, 0, 1), load(0, 0, 0)], 6), [(1, 0), (0, 0)]);
    }

    #[test]
    fn both_together_stay_within_the_overlap() {
        assert_eq!(process_room(6, 150, 6, 1), 3);
        assert_eq!(process_room(6, 150, 2, 3), 6);
        assert_eq!(process_room(6, 100, 6, 0), 1);
        assert_eq!(process_room(6, 150, 9, 2), 2);
    }
}
