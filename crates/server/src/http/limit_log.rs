//! Submissions that a limit refused, in the log: who asks why a user's jobs do not come finds the user and the limit there.

use crate::rate_limit::RateLimit;
use crate::shared::Shared;
use model::reason::Refusal;
use slurm::words::note;
use std::time::{Duration, Instant};

/// Lines about one user: a script that submits again and again says the same each time.
const LIMIT_LINES: RateLimit = RateLimit { burst: 5, interval: Duration::from_secs(60) };

/// Logs a submission that a limit of a QOS, an association, a partition or the cluster refused; nothing for any other refusal.
pub fn note_submit(shared: &Shared, user: &str, refusal: &Refusal) {
    let Some(limit) = limit_of(refusal) else { return };
    match shared.volatile.limit_lines.take(LIMIT_LINES, user.to_owned(), Instant::now()) {
        Some(0) => tracing::info!(user, limit, "limit reached"),
        Some(unlogged) => tracing::info!(user, limit, unlogged, "limit reached"),
        None => {}
    }
}

/// `QOS t allows 2 jobs for each user; 2 jobs in use, 1 job asked`
fn limit_of(refusal: &Refusal) -> Option<String> {
    match refusal {
        Refusal::SubmitLimit(limit) => Some(note::limit_text(limit)),
        Refusal::TooManyJobs { .. }
        | Refusal::TimeLimit(_)
        | Refusal::NodeCount(_)
        | Refusal::ArrayIndex { .. }
        | Refusal::ArrayTasks { .. } => {
            Some(note::text(refusal).unwrap_or_else(|| refusal.to_string()))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TestServer;
    use model::reason::{Limit, LimitKind, LimitScope};

    fn submit_limit() -> Refusal {
        Refusal::SubmitLimit(Limit {
            scope: LimitScope::QosPerUser,
            kind: LimitKind::SubmitJobs,
            holder: "short".into(),
            limit: 2,
            in_use: 2,
            asked: 1,
        })
    }

    #[test]
    fn refusal_by_a_limit_names_it() {
        let limit = limit_of(&submit_limit()).expect("a limit");
        assert!(limit.starts_with("QOS short allows 2 jobs"), "{limit}");
        let limit = limit_of(&Refusal::TooManyJobs { limit: 10_000 });
        assert_eq!(limit.as_deref(), Some("the limit of 10000 jobs is reached"));
        assert_eq!(limit_of(&Refusal::UnknownPartition("p".into())), None);
    }

    #[test]
    fn limits_that_one_user_reaches_are_logged_at_a_rate_and_counted_beyond_it() {
        let server = TestServer::without_writer();
        for _ in 0..100 {
            note_submit(&server.shared, "ada", &submit_limit());
            note_submit(&server.shared, "ada", &Refusal::AccessDenied);
        }
        let lines = &server.shared.volatile.limit_lines;
        let later = Instant::now() + Duration::from_secs(10_000);
        let left_out = lines.take(LIMIT_LINES, "ada".into(), later);
        assert!(left_out.is_some_and(|count| (90..100).contains(&count)), "{left_out:?}");
        assert_eq!(lines.take(LIMIT_LINES, "bob".into(), later), Some(0));
    }
}
