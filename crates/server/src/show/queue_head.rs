//! The head of the queue, for a screen that shows no more of it: running jobs first, then waiting ones by their priority, or in another
//! order; or its end, in the same order.

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
use wire::client::{Answer, Detail, JobsQuery, QueueHead, QueueOrder};
use wire::job_list::JobList;
use wire::view::JobView;

/// The first or the last jobs that are wanted, and how many there are.
pub fn queue_head(
    shared: &Shared,
    by: &Principal,
    head: QueueHead,
    now: Timestamp,
) -> Result<Answer, Refusal> {
    let QueueHead { users, rows, filter: text, order, from_end } = head;
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
            sort(shared, chosen, order, now);
            if from_end {
                let before = chosen.len().saturating_sub(rows as usize);
                chosen.drain(..before);
            } else {
                chosen.truncate(rows as usize);
            }
        })?;
    let matching = Some(matching);
    Ok(Answer::QueueHead { now, running, waiting, matching, from_end, jobs: JobList(jobs) })
}

/// Sorts as the screen does, which sorts what it gets once more.
fn sort(shared: &Shared, chosen: &mut [ListedJob], order: QueueOrder, now: Timestamp) {
    match order {
        QueueOrder::Queue => {
            let state = shared.read();
            let ranking = Ranking::new(&state, now);
            let priority = |job: &Job| if job.hold.is_some() { 0 } else { ranking.shown(job, now) };
            chosen
                .sort_by_cached_key(|(job, _)| (job.is_waiting(), Reverse(priority(job)), job.id));
        }
        QueueOrder::Id => chosen.sort_by_key(|(job, _)| job.id),
        QueueOrder::User => chosen
            .sort_by(|(a, _), (b, _)| (&a.spec.owner.name, a.id).cmp(&(&b.spec.owner.name, b.id))),
        QueueOrder::Name => {
            chosen.sort_by(|(a, _), (b, _)| (&a.spec.name, a.id).cmp(&(&b.spec.name, b.id)));
        }
        QueueOrder::Start => {
            let plan = shared.volatile.last_plan();
            let start = |job: &Job| {
                let begun = job.attempt().map(|attempt| attempt.start);
                let begun = begun.or(job.ended().and_then(|ended| ended.start));
                let planned = || plan.estimates.get(&job.id).filter(|_| job.hold.is_none());
                begun.or_else(|| planned().copied())
            };
            chosen.sort_by_cached_key(|(job, _)| {
                let start = start(job);
                (start.is_none(), start, job.id)
            });
        }
    }
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
        let ask = |head: QueueHead| {
            let now = crate::clock::now();
            match queue_head(&server.shared, &server_principal(), head, now) {
                Ok(Answer::QueueHead { running, waiting, matching, jobs, .. }) => {
                    let names = jobs.0.iter().map(|job| job.name.to_string());
                    (running + waiting, matching, names.collect::<Vec<String>>())
                }
                other => panic!("{other:?}"),
            }
        };
        let head = |users: &[&str], rows, text: &str| {
            let users = users.iter().map(ToString::to_string).collect();
            ask(QueueHead { users, rows, filter: text.to_owned(), ..QueueHead::default() })
        };
        let (all, matching, names) = head(&[], 2, "");
        assert_eq!((all, matching, names.len()), (3, Some(3), 2));
        assert_eq!(head(&[], 100, "").2.len(), 3);
        assert_eq!(head(&["nobody"], 2, ""), (0, Some(0), Vec::new()));
        assert_eq!(head(&[], 2, "THRE"), (3, Some(1), vec!["three-x9".to_owned()]));
        let (all, matching, names) = head(&[], 1, "x9");
        assert_eq!((all, matching, names.len()), (3, Some(2), 1), "two of them, and room for one");
        for (order, first) in [(QueueOrder::Id, "one"), (QueueOrder::Name, "one")] {
            let (_, _, names) = ask(QueueHead { rows: 1, order, ..QueueHead::default() });
            assert_eq!(names, [first], "{order:?}");
        }
        let by_name = ask(QueueHead { rows: 9, order: QueueOrder::Name, ..QueueHead::default() });
        assert_eq!(by_name.2, ["one", "three-x9", "two-x9"]);
        let end = |rows| {
            let order = QueueOrder::Name;
            ask(QueueHead { rows, order, from_end: true, ..QueueHead::default() })
        };
        let last = ["three-x9".to_owned(), "two-x9".to_owned()];
        assert_eq!(end(2), (3, Some(3), last.to_vec()), "the last ones, in the same order");
        assert_eq!(end(9).2.len(), 3);
    }
}
