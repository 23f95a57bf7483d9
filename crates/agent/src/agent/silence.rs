//! Finding out that a server says nothing any more. Its kernel goes on to acknowledge what is sent to a process that is frozen, so
//! only the process's own words show that it lives (`wire::link::CHANNEL_ALIVE`).

use std::time::Duration;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at};

/// In how many intervals in a row a server may say nothing: five seconds, by the interval of the servers of this program.
const INTERVALS_MIN: u32 = 5;
/// As many where a server was only slow, time and again.
const INTERVALS_MAX: u32 = 40;
/// The shortest interval that a server may tell.
const INTERVAL_MIN: Duration = Duration::from_millis(100);

/// Counts the intervals in which nothing came. They are those that this agent has lived through: one that was frozen itself, or had no
/// processor, counts one when it goes on, and reads what has come meanwhile before the next.
pub(super) struct SilenceWatch {
    ticks: Option<Interval>,
    silent: u32,
    silent_max: u32,
}

impl SilenceWatch {
    /// Never over.
    pub fn none() -> Self {
        Self { ticks: None, silent: 0, silent_max: 0 }
    }

    /// Over after `silent_max` intervals of this length.
    pub fn of(every: Duration, silent_max: u32) -> Self {
        let every = every.max(INTERVAL_MIN);
        let mut ticks = interval_at(Instant::now() + every, every);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self { ticks: Some(ticks), silent: 0, silent_max }
    }

    pub fn heard(&mut self) {
        self.silent = 0;
    }

    /// Returns when the server has said nothing for too long. Cancel-safe: what was counted stays.
    pub async fn over(&mut self) {
        let Some(ticks) = &mut self.ticks else { return std::future::pending().await };
        while self.silent < self.silent_max {
            ticks.tick().await;
            self.silent += 1;
        }
    }
}

/// How much silence is borne from a server. One that is met again in the same term was slow and not replaced: it is given twice the
/// time, so that the agents of a server under load do not come and go, which would be more load.
pub(crate) struct Patience {
    term: u64,
    intervals: u32,
}

impl Patience {
    pub fn new() -> Self {
        Self { term: 0, intervals: INTERVALS_MIN }
    }

    /// The intervals of silence that are borne from the server of this term.
    pub fn intervals(&mut self, term: u64) -> u32 {
        if self.term != term {
            *self = Self { term, intervals: INTERVALS_MIN };
        }
        self.intervals
    }

    /// The server of the last term was silent for too long.
    pub fn lengthen(&mut self) {
        self.intervals = (self.intervals * 2).min(INTERVALS_MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::timeout;

    const EVERY: Duration = Duration::from_millis(100);
    const LONG: Duration = Duration::from_secs(60);

    #[tokio::test]
    async fn silence_is_over_after_the_intervals_and_begins_anew_with_each_word() {
        let mut watch = SilenceWatch::of(EVERY, 3);
        for _ in 0..2 {
            // Dropped in the middle, as by a session that has something else to do.
            let _ = timeout(EVERY * 3 / 2, watch.over()).await;
        }
        assert!(watch.silent > 0, "what was counted stays");
        watch.heard();
        let begun = Instant::now();
        timeout(LONG, watch.over()).await.expect("it is over");
        assert!(begun.elapsed() > EVERY, "three intervals begin anew");
        assert!(timeout(EVERY, SilenceWatch::none().over()).await.is_err());
    }

    #[tokio::test]
    async fn agent_that_was_frozen_itself_counts_one_interval() {
        let mut watch = SilenceWatch::of(EVERY, 5);
        // As a thread that has no processor for longer than the server may be silent.
        std::thread::sleep(EVERY * 8);
        let frozen = timeout(Duration::ZERO, watch.over()).await;
        assert!(frozen.is_err() && watch.silent <= 1, "{}", watch.silent);
    }

    #[test]
    fn server_that_was_only_slow_is_given_more_time_and_another_is_not() {
        let mut patience = Patience::new();
        assert_eq!(patience.intervals(7), INTERVALS_MIN);
        patience.lengthen();
        assert_eq!(patience.intervals(7), 2 * INTERVALS_MIN);
        (0..100).for_each(|_| patience.lengthen());
        assert_eq!(patience.intervals(7), INTERVALS_MAX);
        assert_eq!(patience.intervals(8), INTERVALS_MIN, "the next leader");
    }
}
