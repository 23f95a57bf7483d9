//! Invariants that hold after every event, computed anew from the jobs and compared with the state.

use cluster::{Event, Job, Phase, State, view};
use model::allocation::Allocation;
use model::id::{AttemptId, JobId};
use model::record::{JobRecord, RecordState};
use model::run::{LaunchKind, Outcome};
use sched::view::NodeUse;
use std::collections::{BTreeMap, BTreeSet};

/// Remembers what may happen only once in a history.
#[derive(Default)]
pub struct Watch {
    ids: BTreeSet<JobId>,
    closed: BTreeSet<(JobId, u32, Option<String>)>,
}

impl Watch {
    pub fn event(&mut self, state: &State, event: &Event, record: Option<&JobRecord>) {
        self.job_ids_are_given_once(event);
        self.attempts_are_closed_once(state, event, record);
        let text = serde_json::to_string(event).expect("an event is written");
        let back: Event = serde_json::from_str(&text).expect("an event is read");
        assert_eq!(back, *event, "an event reads back as it was written");
        if let Event::Started(started) = event {
            no_grant_exceeds_the_node(state, started.attempt.job, &started.allocation);
        }
        node_use_is_the_sum_of_active_attempts(state);
        steps_share_no_resources(state);
        derived_sets_match_the_jobs(state);
        array_records_are_consistent(state);
        queue_holds_the_jobs_that_wait(state);
        held_bytes_are_those_of_the_jobs(state);
    }

    /// Invariants that may be broken in the middle of a decision, and not after it.
    pub fn between_commands(&self, state: &State) {
        for job in state.jobs.values() {
            match &job.phase {
                Phase::Active(attempt) => {
                    assert!(!attempt.held_nodes.is_empty(), "job {} is active nowhere", job.id);
                }
                Phase::Waiting => {
                    let left = job.pending.as_ref().is_none_or(|p| !p.indices.is_empty());
                    assert!(left, "array {} waits with no task left", job.id);
                }
                Phase::Ended(_) => {}
            }
            components_share_their_state(state, job);
        }
    }

    fn job_ids_are_given_once(&mut self, event: &Event) {
        let given = match event {
            Event::Submitted(s) => Some(s.job),
            Event::TaskSplit { array, job, .. } if array != job => Some(*job),
            Event::Started(s) => {
                s.task.filter(|(array, _)| *array != s.attempt.job).map(|_| s.attempt.job)
            }
            _ => None,
        };
        if let Some(id) = given {
            assert!(self.ids.insert(id), "id {id} is given twice");
        }
    }

    fn attempts_are_closed_once(
        &mut self,
        state: &State,
        event: &Event,
        record: Option<&JobRecord>,
    ) {
        let booked = state.config.parameters.book_jobs;
        let closes = matches!(
            event,
            Event::Ended { .. } | Event::Requeued { .. } | Event::TasksCancelled { .. }
        );
        assert_eq!(
            closes && booked,
            record.is_some(),
            "what closes an attempt is booked: {event:?}"
        );
        let Some(record) = record else { return };
        assert!(matches!(record.state, RecordState::Ended(_)), "{record:?}");
        let key = (record.job, record.attempt, record.array_pending.clone());
        assert!(self.closed.insert(key.clone()), "{key:?} is closed twice, by {event:?}");
    }
}

/// Looked at when something is granted: a file that takes resources away leaves running jobs alone.
fn no_grant_exceeds_the_node(state: &State, job: JobId, granted: &Allocation) {
    let job = &state.jobs[&job];
    let uid = job.spec.owner.uid;
    let partition = state.partition(&granted.partition).map(|partition| &**partition);
    let is_alone = view::is_user_exclusive(job, partition);
    for share in &granted.nodes {
        let name = &share.node;
        let node = &state.nodes[name];
        let used = &node.used;
        assert!(used.cpus.is_subset(&node.config.usable_cpus()), "CPUs of {name}: {}", used.cpus);
        assert!(used.memory <= node.config.usable_memory(), "memory of {name}");
        assert!(!used.exclusive || used.jobs == 1, "{name} is given whole, and to others");
        let owns = |(_, owner): &(JobId, u32)| *owner == uid;
        assert!(used.user_exclusive.iter().all(owns), "{name} is given to another user");
        assert!(!is_alone || used.users[..] == [uid], "{name} has two users");
        let mut units = BTreeSet::new();
        for gres in &used.gres {
            for index in &gres.indices {
                assert!(units.insert((&gres.name, index)), "{} {index} twice", gres.name);
            }
        }
        for gres in &share.gres {
            let of_name = used.gres.iter().filter(|g| g.name == gres.name);
            let count: u64 = of_name.map(|g| g.count).sum();
            assert!(count <= node.config.gres_total(&gres.name), "{count} {} of {name}", gres.name);
        }
    }
}

/// The use of each node, from the shares of active attempts that it still holds.
fn node_use_is_the_sum_of_active_attempts(state: &State) {
    let mut uses: BTreeMap<&str, (NodeUse, Vec<AttemptId>)> = BTreeMap::new();
    for job in state.jobs.values() {
        let Some(attempt) = job.attempt() else { continue };
        for held in &attempt.held_nodes {
            assert!(state.nodes.contains_key(held), "job {} holds unknown {held}", job.id);
            let share = attempt.allocation.share(held).expect("a held node is allocated");
            let (used, holders) = uses.entry(held).or_default();
            used.memory.0 += share.memory.0;
            used.gres.extend(share.gres.iter().cloned());
            holders.push(AttemptId { job: job.id, number: attempt.number });
            // A suspended job leaves its cores to others.
            if attempt.has_released_cores() {
                continue;
            }
            assert!(used.admits_cpus(share), "CPUs of {held} too often: {}", share.cpus);
            used.take_cpus(share);
            used.jobs += 1;
            used.users.push(job.spec.owner.uid);
            // As the partition is now, not as it was when the job started.
            let partition = state.partition(&attempt.allocation.partition).map(|found| &**found);
            used.exclusive |= view::is_exclusive(job, partition, state.config.parameters.select);
            if view::is_user_exclusive(job, partition) {
                used.user_exclusive.push((job.id, job.spec.owner.uid));
            }
        }
    }
    for (name, node) in &state.nodes {
        let (mut used, mut holders) = uses.remove(name.as_str()).unwrap_or_default();
        used.users.sort_unstable();
        used.users.dedup();
        let mut of_node = node.used.clone();
        let mut held = node.holders.clone();
        used.sort_lists();
        of_node.sort_lists();
        held.sort_unstable();
        holders.sort_unstable();
        assert_eq!((&of_node, &held), (&used, &holders), "the use of {name}");
    }
}

fn derived_sets_match_the_jobs(state: &State) {
    let ended: BTreeSet<_> =
        state.jobs.values().filter_map(|j| Some((j.ended()?.end, j.id))).collect();
    assert_eq!(state.ended, ended, "the ended records");
    let active: BTreeSet<JobId> =
        state.jobs.values().filter(|j| j.attempt().is_some()).map(|j| j.id).collect();
    assert_eq!(state.active, active, "the active jobs");
    let mut of_users: BTreeMap<&str, Vec<JobId>> = BTreeMap::new();
    for job in state.jobs.values() {
        of_users.entry(job.spec.owner.name.as_str()).or_default().push(job.id);
    }
    for (user, jobs) in of_users {
        assert_eq!(state.user_jobs.of([user]), jobs, "the jobs of {user}");
    }
    let of_services = state.jobs.values().filter(|job| job.spec.launch.service.is_some());
    let replicas: BTreeSet<JobId> = of_services.map(|job| job.id).collect();
    assert_eq!(state.replicas, replicas, "the replicas of services");
}

fn queue_holds_the_jobs_that_wait(state: &State) {
    let waits = |job: &&std::sync::Arc<cluster::Job>| job.is_waiting() && job.hold.is_none();
    let waiting: BTreeSet<JobId> = state.jobs.values().filter(waits).map(|job| job.id).collect();
    assert_eq!(state.queue, waiting, "the queue");
}

fn array_records_are_consistent(state: &State) {
    let mut tasks: BTreeMap<JobId, BTreeMap<u32, JobId>> = BTreeMap::new();
    for (id, job) in &state.jobs {
        assert_eq!(*id, job.id);
        assert!(id.0 < state.next_job, "job {id} has an id that is still to be given");
        assert!(job.task.is_none() || job.pending.is_none(), "job {id} is task and array at once");
        if let Some(task) = job.task {
            tasks.entry(task.array).or_default().insert(task.index, *id);
        }
        if let (true, Some(pending)) = (job.is_waiting(), &job.pending) {
            let apart = state.arrays.get(id).into_iter().flat_map(|tasks| tasks.keys());
            let both: Vec<_> = apart.filter(|index| pending.indices.contains(**index)).collect();
            assert!(both.is_empty(), "tasks {both:?} of {id} are pending and apart");
        }
    }
    assert_eq!(state.arrays, tasks, "the tasks that have a record of their own");
    let runs: BTreeSet<_> = state
        .jobs
        .values()
        .filter(|j| j.task.is_some() || j.pending.is_some())
        .map(|j| j.run)
        .collect();
    assert_eq!(state.runs.keys().copied().collect::<BTreeSet<_>>(), runs, "the runs");
}

/// Written, read and completed as at a server's start; it must be the same state.
pub fn through_a_snapshot(state: &State) -> State {
    let text = serde_json::to_string(state).expect("a state is written");
    let mut back: State = serde_json::from_str(&text).expect("a state is read");
    back.rebuild_derived();
    assert!(
        back.with_sorted_lists() == state.with_sorted_lists(),
        "the state differs after a snapshot"
    );
    back
}

/// The events alone make the same state.
pub fn replayed(events: &[Event], living: &State) {
    let mut state = State::default();
    for event in events {
        state.apply(event);
    }
    assert!(
        state.with_sorted_lists() == living.with_sorted_lists(),
        "the state differs after a replay"
    );
}

/// Running steps of a job have no CPU, no device and no byte in common, and none that the job does not have.
fn steps_share_no_resources(state: &State) {
    for job in state.jobs.values() {
        let Phase::Active(attempt) = &job.phase else { continue };
        for share in &attempt.allocation.nodes {
            let mut left = share.clone();
            let running = attempt.steps.iter().filter(|s| s.end.is_none());
            for step in running {
                let Some(taken) = step.shares.iter().find(|s| s.node == share.node) else {
                    continue;
                };
                let (id, node) = (format!("{}.{}", job.id, step.id), &share.node);
                let from = if step.overlap { share } else { &left };
                assert!(taken.cpus.is_subset(&from.cpus), "CPUs of step {id} on {node}");
                assert!(taken.memory <= from.memory, "memory of step {id} on {node}");
                let has = |name: &str, index: &u32| {
                    from.gres.iter().any(|g| g.name == name && g.indices.contains(index))
                };
                for gres in &taken.gres {
                    assert!(gres.indices.iter().all(|i| has(&gres.name, i)), "{id} on {node}");
                }
                if step.overlap {
                    continue;
                }
                left.cpus.subtract(&taken.cpus);
                left.memory.0 -= taken.memory.0;
                for gres in left.gres.iter_mut() {
                    let taken = taken.gres.iter().filter(|t| t.name == gres.name);
                    let indices: Vec<u32> = taken.flat_map(|t| t.indices.clone()).collect();
                    gres.indices.retain(|i| !indices.contains(i));
                }
            }
        }
    }
}

/// The components of a het job wait together, or are being requeued, and none runs once the leader has ended, but for groups
/// of a task whose first was done.
fn components_share_their_state(state: &State, job: &Job) {
    let Some(het) = job.het else { return };
    for other in het.jobs().filter_map(|id| state.jobs.get(&id)) {
        let (one, two) = (job.shown_id(), other.shown_id());
        let ending = other.attempt().and_then(|attempt| attempt.ending.as_ref());
        let comes = other.is_waiting() || ending.is_some_and(|ending| ending.requeue.is_some());
        let apart = job.is_waiting() && !comes;
        assert!(!apart, "{one} waits and {two} does not");
        let goes_on = other.attempt().is_some_and(|attempt| attempt.ending.is_none());
        let is_done = job.ended().is_some_and(|end| end.outcome == Outcome::Completed);
        let is_group = other.spec.launch.kind == LaunchKind::Task;
        let is_over = het.is_leader() && job.has_ended() && !(is_done && is_group);
        assert!(!(is_over && goes_on), "{one} has ended and {two} goes on");
    }
}

/// The state's count by user equals one made anew from its jobs, and a snapshot's recovery comes to the same.
fn held_bytes_are_those_of_the_jobs(state: &State) {
    let mut anew = state.clone();
    anew.rebuild_derived();
    let users: BTreeSet<u32> = [0, 1000, 1001].into();
    for user in &users {
        let (kept, anew) = (state.held_bytes.of_user(*user), anew.held_bytes.of_user(*user));
        assert_eq!(kept.text, anew.text, "texts of {user}");
    }
    let owners: BTreeSet<u32> = state.jobs.values().map(|job| job.spec.owner.uid).collect();
    assert_eq!(state.held_bytes.of_all(), anew.held_bytes.of_all());
    if owners.is_subset(&users) {
        let of_users = users.iter().map(|user| state.held_bytes.of_user(*user).blobs);
        assert_eq!(of_users.sum::<u64>(), state.held_bytes.of_all().blobs);
    }
    for blob in state.jobs.values().flat_map(|job| job.spec.launch.blobs()).flatten() {
        assert!(state.held_bytes.holds(&blob.0), "blob {} of a job is held", blob.0);
    }
    if state.jobs.is_empty() {
        assert_eq!(state.held_bytes.of_all(), Default::default(), "nobody holds anything");
    }
}
