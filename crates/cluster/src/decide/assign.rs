//! Where a job belongs: its account, QOS and partitions, by the rules of its association. A submit and `scontrol update`
//! go through the same function.

use super::limits::Submitter;
use crate::changed_spec::set_in_spec;
use crate::command::Context;
use crate::job_selection::SelectedJob;
use crate::state::State;
use crate::state::job::Job;
use model::change::JobField;
use model::id::JobId;
use model::reason::Refusal;
use model::run::JobSpec;
use std::collections::BTreeSet;
use std::sync::Arc;

/// The account and the QOS of a job, and the partitions that admit it.
pub(super) struct Assignment {
    pub account: Arc<str>,
    pub qos: Arc<str>,
    pub partitions: Vec<u32>,
}

impl State {
    /// Assigns `asked` tasks of this specification. Refuses what the association's account, list of QOS or limits on
    /// submitted jobs do not permit. `moved` is the waiting job that they are part of already, if there is one.
    pub(super) fn assign(
        &self,
        spec: &JobSpec,
        asked: u64,
        moved: Option<JobId>,
        context: &Context,
    ) -> Result<Assignment, Refusal> {
        let account = self.effective_account(spec)?;
        let mut partitions = self.admitted_partitions(spec, &account)?;
        let qos = self.effective_qos(spec, &account, &partitions)?;
        self.keep_admitted(&mut partitions, &account, &qos);
        let moved = moved.map(|id| (id, asked));
        let who = Submitter { spec, account: &account, qos: &qos, partitions: &partitions, moved };
        self.check_submit_limits(&who, asked)?;
        if let Some(reservation) = &spec.request().reservation {
            self.check_reservations(reservation, &spec.owner, &account)?;
        }
        if moved.is_some() {
            self.check_alone(spec, &account, &qos, &partitions, context)?;
        }
        Ok(Assignment { account, qos, partitions })
    }

    /// The partitions of the configuration that admit a job which names none, the default first. Hidden ones are not among them,
    /// nor are fleets, which belong to projects, nor those that have no node which one before them does not have: their rules
    /// are for who asks for them. Where some could hold it one day, the others are left out.
    pub fn partitions_for(&self, spec: &JobSpec) -> Vec<String> {
        let Ok(account) = self.effective_account(spec) else { return Vec::new() };
        let admits = |at: u32| {
            let partition = &self.partitions[at as usize];
            let qos = self.effective_qos(spec, &account, &[at]);
            self.admits(partition, spec, &account).is_ok()
                && (account.is_empty() || partition.allow_accounts.admits(&account))
                && qos.is_ok_and(|qos| partition.allow_qos.admits(&qos))
        };
        let own = self.partitions.iter().zip(0..).filter(|(partition, at)| {
            let is_open = partition.default
                || !partition.hidden && !self.fleets.contains_key(&partition.name);
            is_open && admits(*at)
        });
        let mut found: Vec<_> = own.collect();
        let hardware = self.hardware();
        let holds = |at: u32| hardware.check(spec, &account, &[at]).is_ok();
        let can_hold: Vec<_> = found.iter().copied().filter(|(_, at)| holds(*at)).collect();
        if !can_hold.is_empty() {
            found = can_hold;
        }
        let mut found: Vec<_> = found.into_iter().map(|(partition, _)| partition).collect();
        found.sort_by_key(|partition| !partition.default);
        let mut nodes: BTreeSet<&str> = BTreeSet::new();
        found.retain(|partition| {
            let more = partition.nodes.iter().filter(|node| nodes.insert(node)).count();
            more > 0 || partition.default
        });
        found.into_iter().map(|partition| partition.name.clone()).collect()
    }

    /// Checks a waiting job as a submit of the same would be checked once these fields are set. `None` when none of them
    /// changes where the job belongs. Operators may ask for more than the limits, and belong where the rules say.
    pub(super) fn reassign(
        &self,
        chosen: &SelectedJob<'_>,
        fields: &[JobField],
        context: &Context,
    ) -> Result<Option<Assignment>, Refusal> {
        let job = chosen.job;
        if !job.is_waiting() {
            return Ok(None);
        }
        let mut spec = (*job.spec).clone();
        spec.account = Some(job.account.to_string()).filter(|name| !name.is_empty());
        spec.qos = Some(job.qos.to_string());
        for field in fields {
            set_in_spec(&mut spec, field);
        }
        spec.qos = spec.qos.filter(|name| !name.is_empty());
        let mut assignment = None;
        if fields.iter().any(moves) {
            let pending = || job.pending.as_ref().map_or(1, |pending| pending.indices.len());
            let tasks = chosen.tasks.as_ref().map_or_else(pending, |tasks| tasks.len());
            assignment = Some(self.assign(&spec, tasks, Some(job.id), context)?);
        }
        if (assignment.is_some() || fields.iter().any(asks)) && !self.operates(context) {
            self.check_changed(&spec, job, assignment.as_ref(), context)?;
        }
        Ok(assignment)
    }

    /// A change that leaves the job where it is does not ask for its place again: the account, and the limits on submitted
    /// jobs, may have changed since.
    fn check_changed(
        &self,
        spec: &JobSpec,
        job: &Job,
        assignment: Option<&Assignment>,
        context: &Context,
    ) -> Result<(), Refusal> {
        if let Some(Assignment { account, qos, partitions }) = assignment {
            return self.check_request(spec, account, qos, partitions, context);
        }
        let mut partitions = self.admitted_partitions(spec, &job.account)?;
        self.keep_admitted(&mut partitions, &job.account, &job.qos);
        if let Some(names) = &spec.request().reservation {
            self.check_reservations(names, &spec.owner, &job.account)?;
        }
        self.check_request(spec, &job.account, &job.qos, &partitions, context)
    }
}

/// Whether the field decides where a job belongs.
fn moves(field: &JobField) -> bool {
    matches!(field, JobField::Account(_) | JobField::Qos(_) | JobField::Partition(_))
}

/// Whether the field is something that a job asks of the cluster.
fn asks(field: &JobField) -> bool {
    match field {
        JobField::Name(_)
        | JobField::Priority(_)
        | JobField::Nice(_)
        | JobField::SiteFactor(_)
        | JobField::RunPriority(_)
        | JobField::RunInactivity(_)
        | JobField::Comment(_)
        | JobField::AdminComment(_)
        | JobField::Dependency(_)
        | JobField::ArrayThrottle(_)
        | JobField::Requeue(_)
        | JobField::WorkDir(_)
        | JobField::Stdin(_)
        | JobField::Stdout(_)
        | JobField::Stderr(_)
        | JobField::Wckey(_)
        | JobField::MailUser(_)
        | JobField::MailTypes(_)
        | JobField::ResetAccrueTime
        | JobField::WithoutEffect(_) => false,
        JobField::TimeLimit(_)
        | JobField::Partition(_)
        | JobField::Qos(_)
        | JobField::Account(_)
        | JobField::Begin(_)
        | JobField::Deadline(_)
        | JobField::Nodes(_)
        | JobField::Tasks(_)
        | JobField::CpusPerTask(_)
        | JobField::MemoryPerNode(_)
        | JobField::MemoryPerCpu(_)
        | JobField::Gres(_)
        | JobField::Features(_)
        | JobField::NodeList(_)
        | JobField::Exclude(_)
        | JobField::Reservation(_)
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
        | JobField::SwitchWait(_) => true,
    }
}
