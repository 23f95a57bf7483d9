//! The queue of reports to the server: each is sent again on every new connection until it is acknowledged.

use crate::attempt_key::AttemptKey;
use crate::wall_clock::Skew;
use model::time::Timestamp;
use std::collections::VecDeque;
use wire::report::{Report, ReportEvent};

/// Reports kept at most. Beyond it no more events are taken from the supervisors, which keep them.
pub(crate) const REPORTS_MAX: usize = 1 << 16;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PendingReport {
    pub key: AttemptKey,
    /// The supervisor's number of the event.
    pub number: u64,
    /// By the node's clock.
    at: Timestamp,
    event: ReportEvent,
    /// Its number on the current connection; `None` if it was not sent there yet.
    serial: Option<u64>,
}

impl PendingReport {
    pub fn is_step_end(&self) -> bool {
        matches!(self.event, ReportEvent::StepEnded { .. })
    }
}

#[derive(Debug, Default)]
pub(crate) struct ReportQueue {
    queue: VecDeque<PendingReport>,
    last_serial: u64,
}

impl ReportQueue {
    pub fn push(&mut self, key: AttemptKey, number: u64, at: Timestamp, event: ReportEvent) {
        self.queue.push_back(PendingReport { key, number, at, event, serial: None });
    }

    pub fn is_full(&self) -> bool {
        self.queue.len() >= REPORTS_MAX
    }

    /// Marks all reports as unsent: the connection is new.
    pub fn reconnect(&mut self) {
        self.last_serial = 0;
        self.queue.iter_mut().for_each(|pending| pending.serial = None);
    }

    /// Numbers and returns the reports not yet sent on this connection.
    pub fn take_unsent(&mut self, skew: Skew) -> Vec<Report> {
        let first_unsent = self.queue.iter().rev().take_while(|p| p.serial.is_none()).count();
        let start = self.queue.len() - first_unsent;
        let mut reports = Vec::with_capacity(first_unsent);
        for pending in self.queue.iter_mut().skip(start) {
            self.last_serial += 1;
            pending.serial = Some(self.last_serial);
            reports.push(Report {
                serial: self.last_serial,
                node: pending.key.node.clone(),
                attempt: pending.key.attempt,
                at: skew.to_server(pending.at),
                event: pending.event.clone(),
            });
        }
        reports
    }

    pub fn acknowledge(&mut self, serial: u64) -> Option<PendingReport> {
        let index = self.queue.iter().position(|pending| pending.serial == Some(serial))?;
        self.queue.remove(index)
    }

    /// Drops all reports of an attempt whose end the server has on disk.
    pub fn forget(&mut self, key: &AttemptKey) {
        self.queue.retain(|pending| pending.key != *key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spool::tests::attempt;

    #[test]
    fn report_is_sent_on_every_connection_until_acknowledged() {
        let key = |job| AttemptKey { node: "n1".into(), attempt: attempt(job, 1) };
        let mut reports = ReportQueue::default();
        reports.push(key(1), 1, Timestamp(10), ReportEvent::Started);
        reports.push(key(2), 1, Timestamp(11), ReportEvent::Started);
        let skew = Skew::between(Timestamp(100), Timestamp(0));
        let serials = |reports: &[Report]| reports.iter().map(|r| r.serial).collect::<Vec<_>>();
        let first = reports.take_unsent(skew);
        assert_eq!((serials(&first), first[0].at), (vec![1, 2], Timestamp(110)));
        assert_eq!(reports.take_unsent(skew), []);
        assert_eq!(reports.acknowledge(1).expect("known").key, key(1));
        assert_eq!(reports.acknowledge(1), None, "a second acknowledgement is no harm");
        reports.push(key(3), 1, Timestamp(12), ReportEvent::Started);
        assert_eq!(serials(&reports.take_unsent(skew)), [3]);

        reports.reconnect();
        let again = reports.take_unsent(skew);
        assert_eq!(serials(&again), [1, 2]);
        assert_eq!(again[0].attempt, attempt(2, 1));
        reports.forget(&key(2));
        reports.forget(&key(3));
        reports.reconnect();
        assert_eq!(reports.take_unsent(skew), []);
    }
}
