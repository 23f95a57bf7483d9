//! A failure that may repeat each second, as of a full disk: logged with its causes when it begins and once a minute, with how
//! often it came, and when it is over.

use std::error::Error;
use std::time::{Duration, Instant};

const PERIOD: Duration = Duration::from_secs(60);

pub struct RepeatedFailure {
    of: &'static str,
    since: Option<Instant>,
    logged: Option<Instant>,
    count: u64,
}

impl RepeatedFailure {
    pub fn new(of: &'static str) -> Self {
        Self { of, since: None, logged: None, count: 0 }
    }

    pub fn failed(&mut self, what: &str, error: &dyn Error) {
        self.count += 1;
        let now = Instant::now();
        self.since.get_or_insert(now);
        if self.logged.is_none_or(|last| now.duration_since(last) >= PERIOD) {
            self.logged = Some(now);
            let cause = with_causes(error);
            tracing::error!(of = self.of, failures = self.count, cause, "{what}");
        }
    }

    pub fn succeeded(&mut self) {
        if let Some(since) = self.since.take() {
            let (failures, after_s) = (self.count, since.elapsed().as_secs());
            tracing::info!(of = self.of, failures, after_s, "works again");
            (self.logged, self.count) = (None, 0);
        }
    }
}

/// The error with all that caused it, each said once.
fn with_causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let said = cause.to_string();
        if !text.contains(&said) {
            text = format!("{text}: {said}");
        }
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ServerError;

    #[test]
    fn causes_are_said_once_and_repeats_are_counted() {
        let full = std::io::Error::from_raw_os_error(28);
        let error = ServerError::File { path: "journal/1".into(), source: full };
        let text = with_causes(&error);
        assert_eq!(text.matches("No space left").count(), 1, "{text}");
        let mut failures = RepeatedFailure::new("commits");
        failures.failed("nothing was kept", &error);
        let first = failures.logged;
        failures.failed("nothing was kept", &error);
        assert_eq!((failures.count, failures.logged), (2, first), "the second is only counted");
        failures.succeeded();
        assert_eq!((failures.count, failures.logged), (0, None));
    }
}
