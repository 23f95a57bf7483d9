//! Runs since the server's start by project and user, and how long they waited for their first node: dstack's series on
//! `/metrics`. An array's tasks are runs each; the groups of a task are one.

use cluster::rights::is_project;
use cluster::{Event, Job, State};
use dstack::node_groups::group_of;
use dstack::run_summary::status_of;
use dstack::status::RunStatus;
use model::fleet::MAIN_PROJECT;
use model::id::JobId;
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

/// Owners that are told apart; runs of further ones are counted together.
const OWNERS_MAX: usize = 4096;

const OTHER: &str = "other";

/// The upper bounds of dstack's buckets, in seconds.
pub const BUCKETS_S: [u64; 17] =
    [15, 30, 45, 60, 90, 120, 180, 240, 300, 360, 420, 480, 540, 600, 900, 1200, 1800];

/// What a journalled event means for the counts of runs.
pub struct RunChange {
    owner: Owner,
    kind: RunChangeKind,
}

enum RunChangeKind {
    Submitted(u64),
    /// For the first time, after so long.
    Started(Duration),
    /// Waits again.
    Requeued,
    Ended(RunStatus, u64),
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Owner {
    pub project: String,
    pub user: String,
}

#[derive(Debug, Clone, Copy, Default)]
pub struct OwnerCounts {
    pub submitted: u64,
    pub terminated: u64,
    pub failed: u64,
    pub done: u64,
}

/// The runs of a project.
#[derive(Debug, Clone, Copy, Default)]
pub struct ProjectCounts {
    /// First starts whose wait is within each of `BUCKETS_S` and no smaller one.
    pub buckets: [u64; BUCKETS_S.len()],
    pub started: u64,
    pub waited: Duration,
    pub requeued: u64,
}

#[derive(Debug, Clone, Default)]
pub struct RunCounts {
    pub owners: BTreeMap<Owner, OwnerCounts>,
    pub projects: BTreeMap<String, ProjectCounts>,
}

impl RunCounts {
    /// Forgets users, and which project a run was in.
    pub fn hide_names(&mut self) {
        self.owners.clear();
        let mut all = ProjectCounts::default();
        for counts in std::mem::take(&mut self.projects).into_values() {
            all.add(&counts);
        }
        self.projects.insert(MAIN_PROJECT.to_owned(), all);
    }
}

#[derive(Default)]
pub struct RunTotals {
    counts: Mutex<RunCounts>,
}

/// The project that a job's account is; accounts that are no projects are in the main one.
pub fn project_of_account<'a>(state: &State, account: &'a str) -> &'a str {
    if is_project(state, account) { account } else { MAIN_PROJECT }
}

impl RunChange {
    /// The change that the cancelling of waiting tasks is, just before the state takes it: the array's record may go with them.
    pub fn of_cancelled_tasks(state: &State, event: &Event) -> Option<RunChange> {
        let Event::TasksCancelled { ended, indices, array } = event else { return None };
        let owner = Owner::of(state, state.jobs.get(array)?);
        let kind = RunChangeKind::Ended(status_of(ended.outcome), indices.len());
        Some(RunChange { owner, kind })
    }

    /// The change that any other event was, just after the state took it.
    pub fn of(state: &State, event: &Event) -> Option<RunChange> {
        let of = |job: &Job, kind| Some(RunChange { owner: Owner::of(state, job), kind });
        match event {
            Event::Submitted(submitted) => {
                let job = leader(state, submitted.job)?;
                let tasks = submitted.tasks.as_ref().map_or(1, |tasks| tasks.len());
                of(job, RunChangeKind::Submitted(tasks))
            }
            Event::Started(started) if started.attempt.number == 1 => {
                let job = leader(state, started.attempt.job)?;
                of(job, RunChangeKind::Started(started.at.since(job.submit)))
            }
            Event::Requeued { job, .. } | Event::EndedJobRequeued { job, .. } => {
                of(leader(state, *job)?, RunChangeKind::Requeued)
            }
            Event::Ended { job, .. } => {
                let job = state.jobs.get(job)?;
                of(job, RunChangeKind::Ended(ended_status(state, job)?, 1))
            }
            _ => None,
        }
    }
}

/// The job, unless it is a later group of a task.
fn leader(state: &State, job: JobId) -> Option<&Job> {
    let job = state.jobs.get(&job)?;
    let group = group_of(job.spec.launch.kind, job.het);
    group.is_none_or(|het| het.is_leader()).then_some(&**job)
}

/// How a run has ended whose job has; `None` while a group of it has not.
fn ended_status(state: &State, job: &Job) -> Option<RunStatus> {
    let status = |job: &Job| job.ended().map(|ended| status_of(ended.outcome));
    let Some(het) = group_of(job.spec.launch.kind, job.het) else { return status(job) };
    let groups: Option<Vec<RunStatus>> =
        het.jobs().filter_map(|id| state.jobs.get(&id)).map(|job| status(job)).collect();
    let groups = groups?;
    let worst = [RunStatus::Failed, RunStatus::Terminated];
    Some(worst.into_iter().find(|bad| groups.contains(bad)).unwrap_or(RunStatus::Done))
}

impl Owner {
    fn of(state: &State, job: &Job) -> Owner {
        let project = project_of_account(state, &job.account).to_owned();
        Owner { project, user: job.spec.owner.name.clone() }
    }
}

impl RunTotals {
    pub fn add(&self, change: RunChange) {
        let mut counts = self.counts.lock().expect("no panic with the counts held");
        let RunCounts { owners, projects } = &mut *counts;
        let mut owner = change.owner;
        if !owners.contains_key(&owner) && owners.len() >= OWNERS_MAX {
            owner = Owner { project: OTHER.to_owned(), user: OTHER.to_owned() };
        }
        let project = projects.entry(owner.project.clone()).or_default();
        let of_owner = owners.entry(owner).or_default();
        match change.kind {
            RunChangeKind::Submitted(runs) => of_owner.submitted += runs,
            RunChangeKind::Started(waited) => project.add_start(waited),
            RunChangeKind::Requeued => project.requeued += 1,
            RunChangeKind::Ended(RunStatus::Done, runs) => of_owner.done += runs,
            RunChangeKind::Ended(RunStatus::Terminated, runs) => of_owner.terminated += runs,
            RunChangeKind::Ended(_, runs) => of_owner.failed += runs,
        }
    }

    pub fn counts(&self) -> RunCounts {
        self.counts.lock().expect("no panic with the counts held").clone()
    }
}

impl ProjectCounts {
    fn add(&mut self, other: &ProjectCounts) {
        self.buckets.iter_mut().zip(other.buckets).for_each(|(all, more)| *all += more);
        self.started += other.started;
        self.waited += other.waited;
        self.requeued += other.requeued;
    }

    fn add_start(&mut self, waited: Duration) {
        let within = BUCKETS_S.iter().position(|bound| waited <= Duration::from_secs(*bound));
        if let Some(bucket) = within {
            self.buckets[bucket] += 1;
        }
        self.started += 1;
        self.waited += waited;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(user: &str) -> Owner {
        Owner { project: MAIN_PROJECT.into(), user: user.into() }
    }

    #[test]
    fn waits_are_counted_in_the_smallest_bucket_that_holds_them() {
        let totals = RunTotals::default();
        for waited_s in [0, 15, 16, 1800, 1801] {
            let kind = RunChangeKind::Started(Duration::from_secs(waited_s));
            totals.add(RunChange { owner: owner("ada"), kind });
        }
        let counts = totals.counts().projects[MAIN_PROJECT];
        assert_eq!((counts.buckets[0], counts.buckets[1], counts.buckets[16]), (2, 1, 1));
        assert_eq!((counts.started, counts.buckets.iter().sum::<u64>()), (5, 4));
        assert_eq!(counts.waited, Duration::from_secs(3632));
    }

    #[test]
    fn without_names_all_projects_are_one() {
        let totals = RunTotals::default();
        for project in ["atlas", "lhc"] {
            let owner = Owner { project: project.into(), user: "ada".into() };
            for kind in [RunChangeKind::Started(Duration::from_secs(20)), RunChangeKind::Requeued] {
                totals.add(RunChange { owner: owner.clone(), kind });
            }
        }
        let mut counts = totals.counts();
        counts.hide_names();
        assert!(counts.owners.is_empty() && counts.projects.len() == 1);
        let all = counts.projects[MAIN_PROJECT];
        assert_eq!((all.started, all.requeued, all.buckets[1]), (2, 2, 2));
        assert_eq!(all.waited, Duration::from_secs(40));
    }

    #[test]
    fn owners_beyond_the_bound_are_counted_together() {
        let totals = RunTotals::default();
        for user in 0..OWNERS_MAX + 3 {
            let kind = RunChangeKind::Submitted(1);
            totals.add(RunChange { owner: owner(&user.to_string()), kind });
        }
        let counts = totals.counts();
        assert_eq!(counts.owners.len(), OWNERS_MAX + 1);
        let others = Owner { project: OTHER.into(), user: OTHER.into() };
        assert_eq!(counts.owners[&others].submitted, 3);
    }
}
