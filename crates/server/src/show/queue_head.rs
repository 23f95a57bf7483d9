//! The head of the queue, for a screen that shows no more of it: running jobs first, then waiting ones by their priority.

use crate::shared::Shared;
use crate::show::job_list::{self, ListedJob};
use cluster::Job;
use cluster::view::priority::Ranking;
use model::change::JobFilter;
use model::principal::Principal;
use model::reason::Refusal;
use model::time::Timestamp;
use std::cmp::Reverse;
use wire::client::{Answer, Detail, JobsQuery};
use wire::job_list::JobList;

/// The first jobs of these users, or of all, and how many there are.
pub fn queue_head(
    shared: &Shared,
    by: &Principal,
    users: Vec<String>,
    rows: u32,
    now: Timestamp,
) -> Result<Answer, Refusal> {
    let filter = JobFilter { users, ..JobFilter::default() };
    let wanted = JobsQuery { filter, detail: Detail::Listing, ..JobsQuery::default() };
    let (mut running, mut waiting) = (0, 0);
    let jobs =
        job_list::job_views(shared, by, &wanted, None, now, |chosen: &mut Vec<ListedJob>| {
            waiting = chosen.iter().filter(|(job, _)| job.is_waiting()).count() as u64;
            running = chosen.len() as u64 - waiting;
            let state = shared.read();
            let ranking = Ranking::new(&state, now);
            let priority = |job: &Job| if job.hold.is_some() { 0 } else { ranking.shown(job, now) };
            chosen
                .sort_by_cached_key(|(job, _)| (job.is_waiting(), Reverse(priority(job)), job.id));
            chosen.truncate(rows as usize);
        })?;
    Ok(Answer::QueueHead { now, running, waiting, jobs: JobList(jobs) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::principal::server_principal;
    use crate::testing::TestServer;

    #[tokio::test(flavor = "multi_thread")]
    async fn head_has_so_many_rows_and_the_count_of_all() {
        let server = TestServer::start().await;
        for name in ["one", "two", "three"] {
            server.submit(&format!("name: {name}")).await.expect("a job");
        }
        let head = |users: &[&str], rows| {
            let users = users.iter().map(ToString::to_string).collect();
            let now = crate::clock::now();
            match queue_head(&server.shared, &server_principal(), users, rows, now) {
                Ok(Answer::QueueHead { running, waiting, jobs, .. }) => {
                    (running + waiting, jobs.0.len())
                }
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(head(&[], 2), (3, 2));
        assert_eq!(head(&[], 100), (3, 3));
        assert_eq!(head(&["nobody"], 2), (0, 0));
    }
}
