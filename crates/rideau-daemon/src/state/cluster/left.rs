//! Reports of this node that owners have not heard, as there is no link to them: they are left
//! in etcd.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use super::Cluster;

/// A link has so long to come.
const LEFT_AFTER: Duration = Duration::from_secs(1);
/// What was left is left once more after this long: etcd may not have answered.
const LEFT_AGAIN: Duration = Duration::from_secs(10);
/// How often it is looked for such reports.
const LOOK: Duration = Duration::from_millis(500);

/// The reports that were left, of a partition and an epoch, and since when they wait.
type LeftReports = BTreeMap<(u32, u64), Instant>;

impl Cluster {
    /// Leave reports, as long as the node lives.
    pub(crate) async fn keep_reports(&self) {
        let mut ticks = tokio::time::interval(LOOK);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut left = LeftReports::new();
        loop {
            ticks.tick().await;
            self.leave_reports(&mut left);
        }
    }

    /// Leave what no owner has heard, and take back what is not needed any more.
    fn leave_reports(&self, left: &mut LeftReports) {
        let now = Instant::now();
        let entry = self.names.entry.lock();
        let mut unheard = BTreeSet::new();
        for (partition, epoch, rows) in entry.rows.unlinked_reports() {
            let of = (partition, epoch);
            unheard.insert(of);
            let since = *left.entry(of).or_insert(now);
            if now.saturating_duration_since(since) >= LEFT_AFTER {
                self.node.leave_report(partition, epoch, rows);
                left.insert(of, now + LEFT_AGAIN);
            }
        }
        drop(entry);
        left.retain(|(partition, epoch), _| {
            let is_needed = unheard.contains(&(*partition, *epoch));
            if !is_needed {
                self.node.take_report_back(*partition, *epoch);
            }
            is_needed
        });
    }
}
