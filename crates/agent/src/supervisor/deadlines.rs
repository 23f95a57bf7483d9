//! Deadlines of an attempt: the warning signal (`--signal`), the time limit, and the kill after the grace period.

use model::run::SignalBefore;
use model::time::Timestamp;
use std::time::Duration;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Deadline {
    Warn(SignalBefore),
    TimeLimit,
    Kill,
}

#[derive(Debug, Default)]
pub(super) struct Deadlines {
    end_limit: Option<Timestamp>,
    /// `OverTimeLimit`: how long the time limit may be overrun. `None` is without end.
    over_time: Option<Duration>,
    warning: Option<SignalBefore>,
    kill_at: Option<Timestamp>,
    /// Set while the attempt is suspended: that time does not count towards its limit.
    suspended_since: Option<Timestamp>,
}

impl Deadlines {
    pub fn new(
        end_limit: Option<Timestamp>,
        over_time_s: u32,
        warning: Option<SignalBefore>,
    ) -> Deadlines {
        let over_time =
            (over_time_s < u32::MAX).then(|| Duration::from_secs(u64::from(over_time_s)));
        Deadlines { end_limit, over_time, warning, ..Deadlines::default() }
    }

    /// Takes the warning before its time: something else than the time limit ends the attempt.
    pub fn take_warning(&mut self) -> Option<SignalBefore> {
        self.warning.take()
    }

    /// Takes the next deadline that has passed. Each is returned once.
    pub fn take_expired(&mut self, now: Timestamp) -> Option<Deadline> {
        if self.kill_at.is_some_and(|at| at <= now) {
            self.kill_at = None;
            return Some(Deadline::Kill);
        }
        if self.suspended_since.is_some() {
            return None;
        }
        if self.warn_at().is_some_and(|at| at <= now) {
            return self.warning.take().map(Deadline::Warn);
        }
        if self.enforced_at().is_some_and(|at| at <= now) {
            self.end_limit = None;
            return Some(Deadline::TimeLimit);
        }
        None
    }

    /// The earliest deadline that is still to come.
    pub fn earliest(&self) -> Option<Timestamp> {
        let running = self.suspended_since.is_none();
        let limits = [self.warn_at(), self.enforced_at()].into_iter().flatten().filter(|_| running);
        limits.chain(self.kill_at).min()
    }

    fn enforced_at(&self) -> Option<Timestamp> {
        Some(self.end_limit? + self.over_time?)
    }

    fn warn_at(&self) -> Option<Timestamp> {
        let before = Duration::from_secs(u64::from(self.warning?.before_s));
        Some(self.end_limit? - before)
    }

    /// Sets a new time limit. An attempt that is already ending keeps its kill time.
    pub fn extend_to(&mut self, end: Option<Timestamp>) {
        if self.kill_at.is_none() {
            self.end_limit = end;
        }
    }

    /// Begins the end: the time limit and the warning no longer matter, only the kill time does.
    pub fn kill_at(&mut self, at: Timestamp) {
        self.end_limit = None;
        self.warning = None;
        self.kill_at = Some(self.kill_at.map_or(at, |earlier| earlier.min(at)));
    }

    /// Whether the attempt is already ending and will be killed by `at`.
    pub fn ends_by(&self, at: Timestamp) -> bool {
        self.kill_at.is_some_and(|earlier| earlier <= at)
    }

    pub fn suspend(&mut self, now: Timestamp) {
        self.suspended_since.get_or_insert(now);
    }

    /// Returns how long the attempt was suspended.
    pub fn resume(&mut self, now: Timestamp) -> Duration {
        let stood = self.suspended_since.take().map_or(Duration::ZERO, |since| now.since(since));
        self.end_limit = self.end_limit.map(|end| end + stood);
        stood
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn s(secs: i64) -> Timestamp {
        Timestamp::from_secs(secs)
    }

    const WARNING: SignalBefore =
        SignalBefore { signal: 10, before_s: 10, batch_only: true, overlaps: false };

    #[test]
    fn warning_comes_before_the_time_limit_and_each_comes_once() {
        let mut deadlines = Deadlines::new(Some(s(100)), 0, Some(WARNING));
        assert_eq!((deadlines.take_expired(s(89)), deadlines.earliest()), (None, Some(s(90))));
        assert_eq!(deadlines.take_expired(s(90)), Some(Deadline::Warn(WARNING)));
        assert_eq!((deadlines.take_expired(s(99)), deadlines.earliest()), (None, Some(s(100))));
        assert_eq!(deadlines.take_expired(s(100)), Some(Deadline::TimeLimit));
        assert_eq!((deadlines.take_expired(s(100)), deadlines.earliest()), (None, None));
    }

    #[test]
    fn warning_that_was_taken_does_not_come_again() {
        let mut deadlines = Deadlines::new(Some(s(100)), 0, Some(WARNING));
        assert_eq!((deadlines.take_warning(), deadlines.take_warning()), (Some(WARNING), None));
        assert_eq!((deadlines.take_expired(s(95)), deadlines.earliest()), (None, Some(s(100))));
    }

    #[test]
    fn suspended_time_does_not_count_towards_the_limit() {
        let mut deadlines = Deadlines::new(Some(s(100)), 0, None);
        deadlines.suspend(s(50));
        assert_eq!((deadlines.take_expired(s(200)), deadlines.earliest()), (None, None));
        assert_eq!(deadlines.resume(s(200)), Duration::from_secs(150));
        assert_eq!(deadlines.earliest(), Some(s(250)));
        deadlines.extend_to(Some(s(300)));
        assert_eq!(deadlines.earliest(), Some(s(300)));
    }

    #[test]
    fn overtime_limit_moves_the_end_but_not_the_warning() {
        let mut deadlines = Deadlines::new(Some(s(100)), 60, Some(WARNING));
        assert_eq!(deadlines.take_expired(s(90)), Some(Deadline::Warn(WARNING)));
        assert_eq!((deadlines.take_expired(s(159)), deadlines.earliest()), (None, Some(s(160))));
        assert_eq!(deadlines.take_expired(s(160)), Some(Deadline::TimeLimit));
        let mut deadlines = Deadlines::new(Some(s(100)), u32::MAX, None);
        assert_eq!((deadlines.take_expired(s(1_000_000)), deadlines.earliest()), (None, None));
    }

    #[test]
    fn ending_attempt_is_killed_at_the_earliest_kill_time() {
        let mut deadlines = Deadlines::new(Some(s(100)), 0, Some(WARNING));
        deadlines.kill_at(s(95));
        deadlines.kill_at(s(97));
        assert_eq!((deadlines.earliest(), deadlines.take_expired(s(94))), (Some(s(95)), None));
        assert_eq!(deadlines.take_expired(s(95)), Some(Deadline::Kill));
        assert_eq!((deadlines.take_expired(s(200)), deadlines.earliest()), (None, None));
    }
}
