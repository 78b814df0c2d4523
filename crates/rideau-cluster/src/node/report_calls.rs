//! What the driver does about reports that go by way of etcd.

use super::driver::Driver;
use super::input::Input;
use super::left_reports::{LeftReport, LeftReports};
use crate::links::read_report;

impl Driver {
    fn left_reports(&self) -> LeftReports {
        LeftReports {
            client: self.reader.clone(),
            keys: self.machine.keys().clone(),
        }
    }

    /// Leave the report of this life of the node in etcd.
    pub(super) fn leave_report(&self, partition: u32, epoch: u64, bytes: Vec<u8>) {
        let me = self.machine.incarnation().cloned();
        let (Some(from), Some(lease)) = (me, self.machine.lease()) else {
            return;
        };
        let (reports, fence) = (self.left_reports(), self.machine.fence());
        let report = LeftReport {
            partition,
            epoch,
            from,
            bytes,
        };
        tokio::spawn(async move { reports.leave(&report, fence, lease).await });
    }

    pub(super) fn take_report_back(&self, partition: u32, epoch: u64) {
        let (reports, me) = (self.left_reports(), self.machine.incarnation().cloned());
        if let Some(from) = me {
            tokio::spawn(async move { reports.take_back(partition, epoch, &from).await });
        }
    }

    /// Read what nodes without a link have left, if their reports are waited for.
    pub(super) fn look_for_reports(&self) {
        for (partition, epoch) in self.machine.awaits_unlinked() {
            let (reports, sender) = (self.left_reports(), self.sender.clone());
            tokio::spawn(async move {
                if let Ok(found) = reports.find(partition, epoch).await
                    && !found.is_empty()
                {
                    let _ = sender.send(Input::ReportsFound(found));
                }
            });
        }
    }

    pub(super) fn reports_found(&mut self, found: Vec<LeftReport>) {
        for report in found {
            let LeftReport {
                partition,
                epoch,
                from,
                bytes,
            } = report;
            let Some(rows) = read_report(&bytes) else {
                tracing::warn!(%from, partition, "a report in etcd cannot be read");
                continue;
            };
            let of = (partition, epoch);
            self.step(|machine, now, effects| {
                machine.report_found(from, of, rows, now, effects);
            });
        }
    }
}
