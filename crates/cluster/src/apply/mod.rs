//! `apply`: the one place where the state changes. It never judges: what an event says has happened.
//!
//! The assertions state what must hold in any history. They stay on in release builds: a replay
//! that breaks one stops and names the event, rather than go on with a state that cannot be.

mod array;
mod changes;
mod dynamic_node;
mod end;
mod field;
mod fleet;
mod machine;
mod membership;
mod node_use;
mod power;
mod requeue;
mod restore_wait;
mod site;
mod suspend;
mod usage;

use crate::event::{Event, Started, Submitted};
use crate::state::State;
use crate::state::job::{Job, PendingTasks, Phase};
use crate::state::node::Node;
use model::allocation::{Allocation, NodeShare};
use model::attempt::Attempt;
use model::backend::Backend;
use model::change::JobField;
use model::id::{AttemptId, JobId, RunId};
use model::node::{NodeConfig, SlotState};
use model::node_reason::{NodeCause, NodeReason, ReasonAuthor};
use model::power::{PowerPolicy, PowerState};
use model::record::JobRecord;
use model::run::Run;
use model::time::Timestamp;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

impl State {
    /// Applies one event. Returns the books' record of the attempt that the event closed, if jobs are recorded.
    pub fn apply(&mut self, event: &Event) -> Option<JobRecord> {
        let mut changed = changed_jobs(event);
        // The last task of an array takes the array's own record: it is named twice.
        changed.dedup();
        for job in changed.iter().filter_map(|id| self.jobs.get(id)) {
            self.held_bytes.remove(job);
        }
        let record = self.change(event);
        self.note_changes(event);
        self.settle_restore_wait(event);
        for id in changed {
            self.enqueue(id);
            if let Some(job) = self.jobs.get(&id) {
                self.held_bytes.add(job);
            }
        }
        let mut record = record?;
        let parameters = &self.config.parameters;
        if !parameters.book_steps {
            record.steps.clear();
        }
        record.script = record.script.filter(|_| parameters.keep_scripts);
        record.environment = record.environment.filter(|_| parameters.keep_environments);
        parameters.book_jobs.then_some(record)
    }

    fn change(&mut self, event: &Event) -> Option<JobRecord> {
        match event {
            Event::TermStarted { term, at } => self.apply_term(*term, *at),
            Event::Restored { term, next_job, at, start_at_once } => {
                self.apply_term(*term, *at);
                self.next_job = self.next_job.max(*next_job);
                self.restored = Some(*at);
                if !start_at_once {
                    self.begin_restore_wait(*at);
                }
                // Join files that were used since the backup are not good again, nor is who has signed out.
                self.tokens.clear();
                self.web_sessions.clear();
                self.recent_joins.clear();
                self.rejoins.clear();
            }
            Event::HistoryLost { term, next_job, activities, at } => {
                self.apply_term(*term, *at);
                self.next_job = self.next_job.max(*next_job);
                self.activities.go_on_after(*activities);
                self.restored = Some(*at);
                self.begin_restore_wait(*at);
                // As after a restore: what was spent or taken back in the lost part is not good again.
                self.tokens.clear();
                self.web_sessions.clear();
                self.recent_joins.clear();
                self.rejoins.clear();
            }
            // As every event, by `settle_restore_wait`.
            Event::RestoreWaitEnded { .. } => {}
            Event::Configured { config, at } => self.apply_config(config, *at),
            Event::Submitted(submitted) => self.apply_submitted(submitted),
            Event::Held { job, by } => {
                let job = self.job_mut(*job);
                job.hold = Some(*by);
            }
            Event::Released { job } => {
                let job = self.job_mut(*job);
                job.release();
                job.fixed_reason = None;
                job.special_exit = false;
            }
            Event::Changed { job, fields, at } => self.apply_fields(*job, fields, *at),
            Event::TaskSplit { array, index, job } => self.apply_split(*array, *index, *job),
            Event::TasksCancelled { array, indices, ended } => {
                return Some(self.apply_tasks_cancelled(*array, indices, ended));
            }
            Event::Started(started) => self.apply_started(started),
            Event::Suspended { job, at, for_preemption } => {
                self.apply_suspended(*job, *at, *for_preemption)
            }
            Event::GangSuspended { job, at } => self.apply_gang_suspended(*job, *at),
            Event::ResumeRequested { job } => self.attempt_mut(*job).auto_resume = true,
            Event::Resumed { job, at } => self.apply_resumed(*job, *at),
            Event::PreemptionGraceStarted { job, leaving } => {
                self.attempt_mut(*job).preemption_grace = Some(*leaving);
            }
            Event::StepStarted { job, step } => {
                let attempt = self.attempt_mut(*job);
                if let model::id::StepId::Number(n) = step.id {
                    attempt.next_step = attempt.next_step.max(n + 1);
                }
                attempt.steps.push((**step).clone());
                self.held_bytes.add_step(&self.jobs[job], step);
            }
            Event::StepEndedOnNode { job, step, node, exit, usage, end } => {
                let attempt = self.attempt_mut(*job);
                if let Some(step) = attempt.steps.iter_mut().find(|s| s.id == *step) {
                    step.waiting.retain(|n| n != node);
                    step.exit = step.exit.max(*exit);
                    step.usage.absorb(usage);
                    if end.is_some() {
                        step.end.clone_from(end);
                    }
                }
            }
            Event::Ending { job, ending, exit, failed_node } => {
                let attempt = self.attempt_mut(*job);
                attempt.ending = Some(**ending);
                attempt.failed_node = attempt.failed_node.take().or_else(|| failed_node.clone());
                attempt.exit = *exit;
            }
            Event::PrologEndedOnNode { attempt, node, pull_credit_ms } => {
                let active = self.attempt_mut(attempt.job);
                active.preparing_nodes.retain(|other| other != node);
                if let Some(taken_ms) = *pull_credit_ms {
                    let left =
                        Duration::from_millis(active.pull_credit_ms.saturating_sub(taken_ms));
                    active.end_limit = active.end_limit.map(|end| end - left);
                    active.pull_credit_ms = taken_ms;
                }
            }
            Event::NetworkMade { attempt, network } => {
                self.attempt_mut(attempt.job).network = Some(network.clone());
            }
            Event::AttemptEndedOnNode { attempt, node, exit, usage, at, failure } => {
                let active = self.attempt_mut(attempt.job);
                active.launch_failure = active.launch_failure.take().or_else(|| failure.clone());
                active.usage.absorb(usage);
                active.exit = active.exit.max(*exit);
                self.release_share(*attempt, node, Some(*at));
            }
            Event::AttemptAbandonedOnNode { attempt, node } => {
                self.release_share(*attempt, node, None);
                if let Some(node) = self.nodes.get_mut(node) {
                    node.stale.push(*attempt);
                }
            }
            Event::Ended { job, ended } => return self.apply_ended(*job, ended),
            Event::Requeued { job, ended, .. } => {
                return Some(self.apply_requeued(*job, ended, event));
            }
            Event::EndedJobRequeued { job, .. } => self.apply_revived(*job, event),
            Event::RunsDeleted { runs } => {
                let runs: BTreeSet<RunId> = runs.iter().copied().collect();
                for job in self.jobs.values_mut().filter(|job| runs.contains(&job.run)) {
                    Arc::make_mut(job).deleted = true;
                }
            }
            Event::Purged { jobs } => jobs.iter().for_each(|job| self.purge(*job)),
            Event::DynamicNodesSet { .. } | Event::DynamicNodesRemoved { .. } => {
                self.apply_dynamic_nodes(event);
            }
            Event::MachineSet(machine) => self.apply_machine(machine),
            Event::OffersSet { source, offers } => {
                self.offers.insert(source.clone(), Arc::new(offers.clone()));
                self.price_backed_nodes();
                self.hardware.invalidate();
            }
            Event::BackendSet(backend) => {
                self.settle_backend_failures(backend);
                self.backends.insert(backend.source.name.clone(), Backend::clone(backend));
                self.hardware.invalidate();
            }
            Event::BackendRemoved { source } => {
                self.backends.remove(source);
                self.offers.remove(source);
                self.hardware.invalidate();
            }
            Event::FleetSet { .. }
            | Event::FleetHostSet { .. }
            | Event::FleetHostRemoved { .. }
            | Event::FleetRemoved { .. } => self.apply_fleet(event),
            _ => self.apply_node_or_account(event),
        }
        None
    }

    fn apply_term(&mut self, term: u64, at: Timestamp) {
        assert!(term > self.term, "term {term} does not follow {}", self.term);
        if self.term == 0 {
            self.begun = Some(at);
        }
        self.term = term;
        let wait = self.restore_wait.as_ref();
        for (name, node) in &mut self.nodes {
            // A node that is awaited after a restore has its time from the start of the server on, not from the restore.
            let is_awaited = || wait.is_some_and(|wait| wait.nodes.contains(name));
            if node.slot == SlotState::Up || (node.slot == SlotState::Silent && is_awaited()) {
                node.slot = SlotState::Silent;
                node.silent_since = Some(at);
            }
        }
        for node in self.nodes.values_mut() {
            node.restart_power_timeout(at);
        }
        if let Some(wait) = &mut self.restore_wait {
            wait.since = Some(at);
        }
    }

    fn apply_config(&mut self, config: &crate::config::ClusterConfig, at: Timestamp) {
        self.settle_failures(config);
        let of_fleets = (self.fleet_nodes(), self.fleet_partitions());
        let dynamic = self.dynamic_nodes.values().map(|node| node.config.clone());
        let beside: Vec<NodeConfig> = of_fleets.0.into_iter().chain(dynamic).collect();
        let mut known: BTreeMap<String, Node> = std::mem::take(&mut self.nodes);
        for configured in config.nodes.iter().chain(&beside) {
            let known = known.remove(&configured.name);
            let price = config.prices.get(&configured.name).copied();
            let configured = self.priced(configured, price);
            let node = configured_node(known, &configured, &config.parameters.power, at);
            self.nodes.insert(configured.name.clone(), node);
        }
        // A node that left the configuration stays until its last job has ended.
        for (name, node) in known.into_iter().filter(|(_, n)| !n.holders.is_empty()) {
            self.nodes.insert(name, Node { removed: true, ..node });
        }
        self.partitions = config.partitions.iter().cloned().map(Arc::new).collect();
        self.partitions.extend(of_fleets.1);
        self.settle_dynamic_members();
        self.next_job = self.next_job.max(config.parameters.first_job_id);
        self.config = Arc::new(config.clone());
        let mut shut_out = std::mem::take(&mut self.shut_out);
        shut_out.retain(|node| self.has_machine(node) || self.fits_group_token(node));
        self.shut_out = shut_out;
        self.price_backed_nodes();
        self.invalidate_configuration();
        self.count_node_use();
    }

    fn apply_submitted(&mut self, s: &Submitted) {
        assert!(s.job.0 >= self.next_job, "job id {} is given a second time", s.job);
        self.next_job = s.job.0 + 1;
        self.next_priority = self.next_priority.saturating_sub(1);
        if let Some(tasks) = s.tasks.clone() {
            let run = Run {
                id: s.run,
                name: s.spec.name.to_string(),
                kind: s.kind,
                owner: s.spec.owner.name.clone(),
                job: s.job,
                tasks,
                cancelled: Default::default(),
                ends: Default::default(),
            };
            self.runs.insert(s.run, run);
        }
        let pending = s.tasks.clone().map(|indices| {
            Box::new(PendingTasks { indices, throttle: s.throttle, throttle_eased: None })
        });
        let mut job = Job {
            pending,
            hold: s.hold,
            priority_set: s.priority_set,
            expected_s: s.expected_s,
            het: s.het,
            ..Job::waiting(s.job, s.run, &s.spec, (&s.account, &s.qos), s.priority, s.at)
        };
        job.intern(&mut self.interner);
        self.user_jobs.add(&job);
        if job.spec.launch.service.is_some() {
            self.replicas.insert(s.job);
        }
        self.jobs.insert(s.job, Arc::new(job));
    }

    fn apply_started(&mut self, started: &Started) {
        let id = started.attempt.job;
        if let Some((array, index)) = started.task {
            self.apply_split(array, index, id);
        }
        let mut booting = self.nodes_to_boot(&started.allocation);
        let spec = self.jobs[&id].spec.clone();
        for node in self.nodes_without_disks(&spec, &started.allocation) {
            if !booting.contains(&node) {
                booting.push(node);
            }
        }
        let job = self.job_mut(id);
        assert!(job.is_waiting(), "job {id} starts while it is not waiting");
        assert_eq!(started.attempt.number, job.attempts + 1, "attempts of job {id} have a gap");
        job.attempts = started.attempt.number;
        job.priority = started.priority.unwrap_or(job.priority);
        let held: Vec<String> = started.allocation.node_names().map(str::to_string).collect();
        let next_step = match started.step.as_ref().map(|s| s.id) {
            Some(model::id::StepId::Number(n)) => n + 1,
            _ => 0,
        };
        let preparing = if started.preparing {
            held.clone()
        } else {
            job.spec.launch.startup_order.parts(&held, job.het).0.to_vec()
        };
        job.phase = Phase::Active(Box::new(Attempt {
            number: started.attempt.number,
            allocation: started.allocation.clone(),
            start: started.at,
            end_limit: started.end_limit,
            reservation: started.reservation.clone(),
            held_nodes: held,
            preparing_nodes: preparing,
            booting_nodes: booting,
            network: None,
            ending: None,
            charged_until: None,
            suspended: false,
            suspended_since: None,
            auto_resume: false,
            gang_suspended: false,
            suspended_ms: 0,
            pull_credit_ms: started.pull_credit_ms.unwrap_or(0),
            suspend_changed: None,
            preemption_grace: None,
            launch_failure: None,
            failed_node: None,
            exit: Default::default(),
            usage: Default::default(),
            steps: started.step.iter().cloned().collect(),
            next_step,
        }));
        self.active.insert(id);
        self.id_ranges.give(self.jobs[&id].spec.owner.uid);
        let beyond = self.occupy(id, &started.allocation, None);
        assert!(beyond.is_none(), "memory of {beyond:?} beyond what there is, to job {id}");
    }

    /// Counts an attempt's shares as used: those on these nodes, or all. Returns a node with more memory in use than it has: a new
    /// configuration may have shrunk it under a running job.
    pub(crate) fn occupy(
        &mut self,
        id: JobId,
        allocation: &Allocation,
        nodes: Option<&[String]>,
    ) -> Option<String> {
        let job = &self.jobs[&id];
        let uid = job.spec.owner.uid;
        let partition = self.partition(&allocation.partition).cloned();
        let exclusive =
            crate::view::is_exclusive(job, partition.as_deref(), self.config.parameters.select);
        let alone = crate::view::is_user_exclusive(job, partition.as_deref());
        let attempt = AttemptId { job: id, number: job.attempts };
        // A suspended job keeps its memory and devices, and gives up its CPUs.
        let is_suspended = job.attempt().is_some_and(|a| a.has_released_cores());
        let nodes = nodes.filter(|nodes| nodes.len() != allocation.nodes.len());
        let is_meant = |share: &&NodeShare| nodes.is_none_or(|nodes| nodes.contains(&share.node));
        let mut beyond = None;
        for share in allocation.nodes.iter().filter(is_meant) {
            let node = self.nodes.get_mut(&share.node).expect("an allocation names known nodes");
            let used = &mut node.used;
            node.holders.push(attempt);
            used.memory.0 += share.memory.0;
            if used.memory > node.config.memory {
                beyond = Some(share.node.clone());
            }
            used.gres.extend(share.gres.iter().cloned());
            if is_suspended {
                continue;
            }
            assert!(
                used.admits_cpus(share),
                "CPUs {} of {} are granted twice, to job {id}",
                share.cpus,
                share.node
            );
            add_job(used, share, (id, uid), exclusive, alone);
        }
        beyond
    }

    /// Frees an attempt's share of one node.
    fn release_share(&mut self, attempt: AttemptId, name: &str, busy_until: Option<Timestamp>) {
        self.attempt_mut(attempt.job).held_nodes.retain(|n| n != name);
        let down_on_idle = self.config.parameters.power.is_enabled() && {
            let partition = &self.attempt_of(attempt.job).allocation.partition;
            self.partition(partition).is_some_and(|p| p.power.down_on_idle)
        };
        let Some(node) = self.nodes.get_mut(name) else { return };
        node.holders.retain(|a| *a != attempt);
        node.last_busy = busy_until.or(node.last_busy);
        if !node.holders.is_empty() {
            self.recount(name);
            return;
        }
        node.used = Default::default();
        if node.power.is_on() && down_on_idle {
            node.power = PowerState::PowerDownPending { drains: false };
        }
        if node.removed {
            self.nodes.remove(name);
        }
    }

    /// Counts the use of a node anew from its holders: sets of users and the exclusive mark cannot be subtracted.
    fn recount(&mut self, name: &str) {
        let Some(node) = self.nodes.get_mut(name) else { return };
        let holders = std::mem::take(&mut node.holders);
        node.used = Default::default();
        for holder in holders {
            // A job on many nodes has a share for each: only the one of this node is copied.
            let held = &self.attempt_of(holder.job).allocation;
            let here = held.nodes.iter().filter(|share| share.node == name).cloned().collect();
            let allocation = Allocation { partition: held.partition.clone(), nodes: here };
            self.occupy(holder.job, &allocation, None);
        }
    }

    fn purge(&mut self, id: JobId) {
        let Some(job) = self.jobs.remove(&id) else { return };
        self.user_jobs.remove(&job);
        self.replicas.remove(&id);
        if let Some(ended) = job.ended() {
            self.ended.remove(&(ended.end, id));
        }
        if let Some(task) = job.task {
            let tasks = self.arrays.entry(task.array).or_default();
            tasks.remove(&task.index);
            if tasks.is_empty() {
                self.arrays.remove(&task.array);
            }
        }
        let array = job.task.map_or(id, |t| t.array);
        if !self.jobs.contains_key(&array) && !self.arrays.contains_key(&array) {
            self.runs.remove(&job.run);
        }
    }

    fn apply_fields(&mut self, id: JobId, fields: &[JobField], at: Timestamp) {
        let job = self.job_mut(id);
        for field in fields {
            field::set(job, field);
            if *field == JobField::ResetAccrueTime {
                job.accrues_from = Some(at);
            }
            if let (JobField::ArrayThrottle(_), Some(pending)) = (field, &mut job.pending) {
                pending.throttle_eased = Some(at);
            }
            if let (JobField::TimeLimit(limit), Phase::Active(attempt)) = (field, &mut job.phase) {
                let besides = Duration::from_millis(attempt.suspended_ms + attempt.pull_credit_ms);
                attempt.end_limit = limit.duration().map(|d| attempt.start + d + besides);
            }
        }
    }

    pub(crate) fn job_mut(&mut self, id: JobId) -> &mut Job {
        let job = self.jobs.get_mut(&id);
        Arc::make_mut(job.unwrap_or_else(|| panic!("an event names job {id}, unknown here")))
    }

    fn attempt_mut(&mut self, id: JobId) -> &mut Attempt {
        match &mut self.job_mut(id).phase {
            Phase::Active(attempt) => attempt,
            other => panic!("an event needs job {id} active, it is {other:?}"),
        }
    }

    fn attempt_of(&self, id: JobId) -> &Attempt {
        self.jobs[&id].attempt().expect("a holder of a node is active")
    }
}

/// A node as the configuration, or whoever created it, says it is, with what is known of it.
fn configured_node(
    known: Option<Node>,
    configured: &NodeConfig,
    power: &PowerPolicy,
    at: Timestamp,
) -> Node {
    let config = Arc::new(configured.clone());
    let mut node = match known {
        Some(node) => {
            let mut node = Node { config, removed: false, ..node };
            node.take_architecture();
            if power.reported_addresses {
                node.take_address();
            }
            node
        }
        None => {
            let mut node = Node::new(config);
            node.admin = configured.initial;
            let reason = |text: &String| NodeReason {
                cause: NodeCause::Text(text.clone()),
                author: ReasonAuthor::User { name: "root".into(), uid: 0 },
                at,
            };
            node.reason = configured.initial_reason.as_ref().map(reason);
            node
        }
    };
    // The machine of a cloud is not there before it is powered up.
    let is_absent = node.slot == SlotState::Joining && node.power.is_on();
    if configured.cloud && is_absent && power.resume_program.is_some() {
        node.power = PowerState::PoweredDown;
    }
    node
}

/// The jobs that an event may put into the queue or take out of it, or whose texts it may change.
fn changed_jobs(event: &Event) -> Vec<JobId> {
    match event {
        Event::Submitted(s) => vec![s.job],
        Event::Held { job, .. }
        | Event::Released { job }
        | Event::Changed { job, .. }
        | Event::Ended { job, .. }
        | Event::Requeued { job, .. }
        | Event::ReservationLost { job, .. }
        | Event::EndedJobRequeued { job, .. } => vec![*job],
        Event::TaskSplit { array, job, .. } => vec![*array, *job],
        Event::TasksCancelled { array, .. } => vec![*array],
        Event::Started(s) => {
            s.task.map(|(array, _)| array).into_iter().chain([s.attempt.job]).collect()
        }
        Event::Purged { jobs } => jobs.clone(),
        _ => Vec::new(),
    }
}

/// Adds a job to a node's CPUs.
pub(crate) fn add_job(
    used: &mut sched::view::NodeUse,
    share: &NodeShare,
    (id, uid): (JobId, u32),
    exclusive: bool,
    alone: bool,
) {
    used.take_cpus(share);
    used.exclusive |= exclusive;
    used.jobs += 1;
    if alone {
        used.user_exclusive.push((id, uid));
    }
    if let Err(at) = used.users.binary_search(&uid) {
        used.users.insert(at, uid);
    }
}
