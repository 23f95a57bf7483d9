//! `scontrol update`: which fields of a job may be set, by whom, and to what.

use super::submit::{check_access, run_priority_refused};
use crate::authorise::{Act, authorise};
use crate::command::Context;
use crate::dependency;
use crate::event::Event;
use crate::job_selection::SelectedJob;
use crate::requested;
use crate::state::State;
use crate::state::job::Job;
use crate::view::priority::Ranking;
use model::bounds;
use model::change::JobField;
use model::constraint::Constraint;
use model::dependency::Dependency;
use model::id::JobId;
use model::priority::RUN_PRIORITY_MAX;
use model::range::Range;
use model::reason::Refusal;
use model::run::{Hold, JobSpec, LaunchKind};
use model::time::TimeLimit;
use std::collections::{BTreeSet, HashSet};
use std::time::Duration;

/// The most jobs that are searched for a circle of dependencies.
const CIRCLE_MAX: usize = 10_000;

impl State {
    pub(super) fn update(
        &self,
        chosen: &SelectedJob<'_>,
        fields: &[JobField],
        context: &Context,
        next_id: &mut u32,
    ) -> Result<Vec<Event>, Refusal> {
        let job = chosen.job;
        if job.has_ended() {
            return Err(Refusal::JobFinished(job.id));
        }
        for field in fields {
            self.check_field(job, field, context)?;
        }
        let assignment = self.reassign(chosen, fields, context)?;
        let stored = |field: &JobField| match (field, &assignment) {
            (JobField::Qos(_), Some(assignment)) => Ok(JobField::Qos(assignment.qos.to_string())),
            // As at a submit: the plan considers no partition that does not admit the job.
            (JobField::Partition(_), Some(assignment)) => {
                Ok(JobField::Partition(self.partition_names(&assignment.partitions)))
            }
            _ => self.resolved(job, field),
        };
        let fields: Vec<JobField> = fields.iter().map(stored).collect::<Result<_, _>>()?;
        let changed = |job| Event::Changed { job, fields: fields.clone(), at: context.now };
        let mut events = self.each_task(chosen, next_id, changed);
        // A priority of zero is a hold by whoever sets it.
        if fields.contains(&JobField::Priority(0)) && !self.operates(context) {
            let held: Vec<Event> = events
                .iter()
                .filter_map(|event| match event {
                    Event::Changed { job, .. } => Some(Event::Held { job: *job, by: Hold::User }),
                    _ => None,
                })
                .collect();
            events.extend(held);
        }
        Ok(events)
    }

    /// The field as it is stored: an end time becomes a time limit, an empty QOS the default.
    fn resolved(&self, job: &Job, field: &JobField) -> Result<JobField, Refusal> {
        Ok(match field {
            JobField::EndTime(end) => {
                let attempt = job.attempt().ok_or(Refusal::JobNotStarted(job.id))?;
                let stood = Duration::from_millis(attempt.suspended_ms);
                let seconds = end.since(attempt.start).saturating_sub(stood).as_secs();
                let minutes = u32::try_from(seconds.div_ceil(60)).unwrap_or(u32::MAX);
                JobField::TimeLimit(TimeLimit::Minutes(minutes.max(1)))
            }
            JobField::Qos(name) if name.is_empty() => {
                let spec = JobSpec { qos: None, ..(*job.spec).clone() };
                JobField::Qos(self.qos_for(&spec, job)?)
            }
            other => other.clone(),
        })
    }

    fn qos_for(&self, spec: &JobSpec, job: &Job) -> Result<String, Refusal> {
        let asked = self.partition_indices(&spec.request().partitions);
        let qos = self.effective_qos(spec, &job.account, &asked.unwrap_or_default())?;
        Ok(qos.to_string())
    }

    fn partition_names(&self, indices: &[u32]) -> Vec<String> {
        indices.iter().map(|at| self.partitions[*at as usize].name.clone()).collect()
    }

    fn only_operators(&self, context: &Context) -> Result<(), Refusal> {
        authorise(self, &context.by, Act::Operate).map_err(|_| Refusal::OperatorsOnly)
    }

    fn check_field(&self, job: &Job, field: &JobField, context: &Context) -> Result<(), Refusal> {
        if chooses_files(field) {
            authorise(self, &context.by, Act::ActAsOwner(job))?;
        }
        check_address_kept(job, field)?;
        let running = !job.is_waiting();
        match field {
            JobField::TimeLimit(limit) => self.check_limit(job, *limit, context),
            JobField::EndTime(_) => match self.resolved(job, field)? {
                JobField::TimeLimit(limit) => self.check_limit(job, limit, context),
                _ => Ok(()),
            },
            JobField::TimeMin(least) => {
                if *least > requested::effective_limit(self, job) {
                    Err(Refusal::TimeMin)
                } else {
                    Ok(())
                }
            }
            JobField::Name(_)
            | JobField::Comment(_)
            | JobField::Requeue(_)
            | JobField::MailUser(_)
            | JobField::MailTypes(_)
            | JobField::Switches(_)
            | JobField::SwitchWait(_)
            | JobField::ArrayThrottle(_)
            | JobField::WithoutEffect(_) => Ok(()),
            JobField::Reservation(_) | JobField::Licenses(_) if running => {
                Err(Refusal::JobNotPending(job.id))
            }
            JobField::Reservation(Some(names)) => {
                self.check_reservations(names, &job.spec.owner, &job.account)
            }
            JobField::Reservation(None) => Ok(()),
            JobField::Licenses(asked) => self.check_licenses(asked),
            JobField::AdminComment(_) | JobField::SiteFactor(_) => self.only_operators(context),
            JobField::Priority(priority) => self.check_priority(job, *priority, context),
            JobField::Nice(nice) if *nice < 0 => self.only_operators(context),
            JobField::Nice(_) => Ok(()),
            JobField::RunPriority(_) | JobField::RunInactivity(_)
                if job.spec.launch.kind != LaunchKind::Task =>
            {
                Err(Refusal::Other(format!("job {} is no run of dstack's", job.id)))
            }
            // Whoever submits a run chooses it, until an operator does.
            JobField::RunPriority(priority) if *priority <= RUN_PRIORITY_MAX => {
                if job.priority_set { self.only_operators(context) } else { Ok(()) }
            }
            JobField::RunPriority(priority) => Err(run_priority_refused(*priority)),
            JobField::RunInactivity(_) => Ok(()),
            // Slurm accepts a deadline for a running job, without effect.
            JobField::Deadline(_) if running => Ok(()),
            JobField::Deadline(time) if *time <= context.now => Err(Refusal::TimePassed),
            JobField::Deadline(_) => self.only_operators(context),
            JobField::Nodes(nodes) => self.check_nodes(job, *nodes),
            JobField::Qos(name) if !name.is_empty() && !self.qos.contains_key(name) => {
                Err(Refusal::InvalidQos(name.clone()))
            }
            JobField::Qos(_) if running => {
                let qos = self.resolved(job, field)?;
                if qos == JobField::Qos(job.qos.to_string()) {
                    Ok(())
                } else {
                    Err(Refusal::JobNotPending(job.id))
                }
            }
            _ if running => Err(Refusal::JobNotPending(job.id)),
            _ => self.check_waiting(job, field, context),
        }
    }

    /// Checks a field that can only be changed while the job waits.
    fn check_waiting(&self, job: &Job, field: &JobField, context: &Context) -> Result<(), Refusal> {
        match field {
            JobField::Sharing(_) | JobField::Contiguous(true) | JobField::TasksPerNode(_) => {
                self.only_operators(context)
            }
            JobField::Partition(names) if names.is_empty() => {
                Err(Refusal::UnknownPartition(String::new()))
            }
            JobField::Partition(names) => names.iter().try_for_each(|name| {
                let partition = self.partition(name);
                let partition = partition.ok_or_else(|| Refusal::UnknownPartition(name.clone()))?;
                check_access(partition, &job.spec.owner)?;
                self.check_fleet_use(name, &job.spec)
            }),
            JobField::NodeList(names) | JobField::Exclude(names) => {
                match names.iter().find(|n| !self.nodes.contains_key(*n)) {
                    Some(unknown) => Err(Refusal::UnknownNode(unknown.clone())),
                    None => Ok(()),
                }
            }
            JobField::Tasks(0) => Err(Refusal::TaskCount),
            JobField::Cpus(cpus) | JobField::CpusPerNode(cpus) => self.check_cpus(job, *cpus),
            JobField::Gres(gres) => {
                let known = &self.config.parameters.gres_types;
                match gres.iter().find(|g| !known.contains(&g.name)) {
                    Some(unknown) => Err(Refusal::UnknownGres(unknown.name.clone())),
                    None => Ok(()),
                }
            }
            JobField::Features(Some(constraint)) | JobField::Prefer(Some(constraint)) => {
                self.check_features(constraint)
            }
            JobField::Dependency(Some(dependency)) => self.check_circle(job, dependency),
            _ => Ok(()),
        }
    }

    /// Only operators lengthen the limit of a running job, or set one beyond the partition's maximum.
    fn check_limit(&self, job: &Job, limit: TimeLimit, context: &Context) -> Result<(), Refusal> {
        let raises = limit > requested::effective_limit(self, job);
        let partition = requested::first_partition(self, job);
        let beyond = partition.is_some_and(|p| limit > p.max_time);
        if raises && (!job.is_waiting() || beyond) { self.only_operators(context) } else { Ok(()) }
    }

    fn check_priority(&self, job: &Job, priority: u64, context: &Context) -> Result<(), Refusal> {
        // The owner's hold does not replace an administrator's.
        if job.hold == Some(Hold::Admin) {
            self.only_operators(context)?;
        }
        if priority == 0 {
            return Ok(());
        }
        if job.hold.is_some() {
            return Err(Refusal::JobHeld(job.id));
        }
        // What is set goes without what the run's `priority` adds: with it an owner could pass others of the same.
        let added = job.run_precedence(&self.config.parameters.priority);
        let now = Ranking::shown_of_one(self, job, context.now).saturating_sub(added);
        if self.operates(context) {
            Ok(())
        } else if priority > now {
            Err(Refusal::OperatorsOnly)
        } else if self.config.parameters.priority.is_computed() {
            Err(Refusal::PriorityNotKept)
        } else {
            Ok(())
        }
    }

    fn check_nodes(&self, job: &Job, nodes: Range<u32>) -> Result<(), Refusal> {
        if let Some(attempt) = job.attempt() {
            // An allocation keeps its nodes.
            return if nodes.min as usize == attempt.allocation.nodes.len() {
                Ok(())
            } else {
                Err(Refusal::NotSupported("another number of nodes for a job that runs".into()))
            };
        }
        let most = self.largest(job, |partition| partition.nodes.len() as u64);
        if u64::from(nodes.min) > most { Err(Refusal::NodeCount(None)) } else { Ok(()) }
    }

    fn check_cpus(&self, job: &Job, cpus: u32) -> Result<(), Refusal> {
        let most = self.largest(job, |partition| {
            let nodes = partition.nodes.iter().filter_map(|name| self.nodes.get(name));
            nodes.map(|node| u64::from(node.config.cpus)).sum()
        });
        if u64::from(cpus) > most { Err(Refusal::CpuCount) } else { Ok(()) }
    }

    /// The largest value among the job's partitions.
    fn largest(&self, job: &Job, of: impl Fn(&model::partition::Partition) -> u64) -> u64 {
        let partitions = requested::partitions(self, job).filter_map(|name| self.partition(name));
        partitions.map(|partition| of(partition)).max().unwrap_or(0)
    }

    fn check_features(&self, constraint: &Constraint) -> Result<(), Refusal> {
        bounds::CONSTRAINT_PARTS.hold(constraint.size())?;
        let features = self.nodes.values().flat_map(|node| &node.config.features);
        let known: HashSet<&str> = features.map(String::as_str).collect();
        match constraint.features().into_iter().find(|name| !known.contains(name)) {
            Some(unknown) => Err(Refusal::UnknownFeature(unknown.to_owned())),
            None => Ok(()),
        }
    }

    /// Refuses a dependency through which the job would wait for itself.
    fn check_circle(&self, job: &Job, wanted: &Dependency) -> Result<(), Refusal> {
        let own = job.task.map_or(job.id, |task| task.array);
        let targets = |d: &Dependency| -> Vec<JobId> {
            d.terms.iter().filter_map(|t| Some(JobId(t.job?.id))).collect()
        };
        let mut left = targets(wanted);
        if left.contains(&own) || left.contains(&job.id) {
            return Err(Refusal::InvalidDependency);
        }
        let mut seen = BTreeSet::new();
        while let Some(id) = left.pop() {
            if id == own || id == job.id {
                return Err(Refusal::CircularDependency);
            }
            if seen.len() >= CIRCLE_MAX || !seen.insert(id) {
                continue;
            }
            let shown = dependency::shows_target(self, job, id);
            let waiting = self.job(id).filter(|other| other.is_waiting() && shown);
            left.extend(
                waiting.and_then(|o| o.spec.dependency.as_deref()).into_iter().flat_map(targets),
            );
        }
        Ok(())
    }
}

/// Requests find a service by its project and its name, which a submit has checked: another's may have what they would become.
fn check_address_kept(job: &Job, field: &JobField) -> Result<(), Refusal> {
    let spec = &job.spec;
    let is_moved = match field {
        JobField::Name(name) => **name != *spec.name,
        JobField::Account(account) => account.as_str() != spec.project(),
        _ => false,
    };
    if is_moved && spec.launch.service.is_some() {
        let why = "a service's name and project are its address: submit another";
        return Err(Refusal::Other(why.into()));
    }
    Ok(())
}

/// Whether the field decides which files the owner's processes open. A name does so through `%x`, which is replaced in
/// file names, when it leads into another folder.
fn chooses_files(field: &JobField) -> bool {
    match field {
        JobField::WorkDir(_) | JobField::Stdin(_) | JobField::Stdout(_) | JobField::Stderr(_) => {
            true
        }
        JobField::Name(name) => name.contains('/'),
        JobField::TimeLimit(_)
        | JobField::Partition(_)
        | JobField::Qos(_)
        | JobField::Account(_)
        | JobField::Priority(_)
        | JobField::Nice(_)
        | JobField::SiteFactor(_)
        | JobField::RunPriority(_)
        | JobField::RunInactivity(_)
        | JobField::Comment(_)
        | JobField::Begin(_)
        | JobField::Deadline(_)
        | JobField::Dependency(_)
        | JobField::Nodes(_)
        | JobField::Tasks(_)
        | JobField::CpusPerTask(_)
        | JobField::MemoryPerNode(_)
        | JobField::MemoryPerCpu(_)
        | JobField::Gres(_)
        | JobField::Features(_)
        | JobField::NodeList(_)
        | JobField::Exclude(_)
        | JobField::ArrayThrottle(_)
        | JobField::Requeue(_)
        | JobField::Wckey(_)
        | JobField::Reservation(_)
        | JobField::AdminComment(_)
        | JobField::TimeMin(_)
        | JobField::EndTime(_)
        | JobField::Cpus(_)
        | JobField::CpusPerNode(_)
        | JobField::TasksPerNode(_)
        | JobField::SocketsPerNode(_)
        | JobField::CoresPerSocket(_)
        | JobField::ThreadsPerCore(_)
        | JobField::Disk(_)
        | JobField::Sharing(_)
        | JobField::Contiguous(_)
        | JobField::Prefer(_)
        | JobField::Licenses(_)
        | JobField::Switches(_)
        | JobField::SwitchWait(_)
        | JobField::MailUser(_)
        | JobField::MailTypes(_)
        | JobField::ResetAccrueTime
        | JobField::WithoutEffect(_) => false,
    }
}
