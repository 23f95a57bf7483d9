//! The head of the queue, for a screen that shows no more of it: running jobs first, then waiting ones by their priority.

use crate::shared::Shared;
use crate::show::job_list::{self, ListedJob};
use cluster::Job;
use cluster::view::priority::Ranking;
use model::change::JobFilter;
use model::principal::Principal;
use model::reason::Refusal;
use model::time::Timestamp;
use slurm::output::text::job_search;
use std::cmp::Reverse;
use wire::client::{Answer, Detail, JobsQuery};
use wire::job_list::JobList;
use wire::view::JobView;

/// The first jobs of these users, or of all, in which `text` is found, and how many there are.
pub fn queue_head(
    shared: &Shared,
    by: &Principal,
    users: Vec<String>,
    rows: u32,
    text: &str,
    now: Timestamp,
) -> Result<Answer, Refusal> {
    let filter = JobFilter { users, ..JobFilter::default() };
    let wanted = JobsQuery { filter, detail: Detail::Listing, ..JobsQuery::default() };
    let text = text.to_lowercase();
    let (mut running, mut waiting, mut matching) = (0, 0, 0);
    let jobs =
        job_list::job_views(shared, by, &wanted, None, now, |chosen: &mut Vec<ListedJob>| {
            waiting = chosen.iter().filter(|(job, _)| job.is_waiting()).count() as u64;
            running = chosen.len() as u64 - waiting;
            if !text.is_empty() {
                let is_wanted = |job: &JobView| job_search::contains(job, &text);
                job_list::retain_views(shared, chosen, wanted.detail, now, is_wanted);
            }
            matching = chosen.len() as u64;
            let state = shared.read();
            let ranking = Ranking::new(&state, now);
            let priority = |job: &Job| if job.hold.is_some() { 0 } else { ranking.shown(job, now) };
            chosen
                .sort_by_cached_key(|(job, _)| (job.is_waiting(), Reverse(priority(job)), job.id));
            chosen.truncate(rows as usize);
        })?;
    let matching = Some(matching);
    Ok(Answer::QueueHead { now, running, waiting, matching, jobs: JobList(jobs) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::principal::server_principal;
    use crate::testing::TestServer;

    #[tokio::test(flavor = "multi_thread")]
    async fn head_has_so_many_rows_and_the_count_of_all() {
        let server = TestServer::start().await;
        for name in ["one", "two-x9", "three-x9"] {
            server.submit(&format!("name: {name}")).await.expect("a job");
        }
        let head = |users: &[&str], rows, text: &str| {
            let users = users.iter().map(ToString::to_string).collect();
            let now = crate::clock::now();
            match queue_head(&server.shared, &server_principal(), users, rows, text, now) {
                Ok(Answer::QueueHead { running, waiting, matching, jobs, .. }) => {
                    let names: Vec<String> = jobs.0.iter().map(|job| job.name.to_string()).collect();
                    (running + waiting, matching, names)
                }
                other => panic!("{other:?}"),
            }
        };
        let (all, matching, names) = head(&[], 2, "");
        assert_eq!((all, matching, names.len()), (3, Some(3), 2));
        assert_eq!(head(&[], 100, "").2.len(), 3);
        assert_eq!(head(&["nobody"], 2, ""), (0, Some(0), Vec::new()));
        assert_eq!(head(&[], 2, "THRE"), (3, Some(1), vec!["three-x9".to_owned()]));
        let (all, matching, names) = head(&[], 1, "x9");
        assert_eq!((all, matching, names.len()), (3, Some(2), 1), "two of them, and room for one");
    }
}
