//! Which jobs of a trace the cluster could start at all. The others are left out of the replay, and counted: a job beyond the limits of
//! its partition would wait for ever, and one that no nodes could hold is refused.

use crate::error::{SimError, reason_words};
use crate::job_specs::{JobSpecs, Width};
use crate::machine;
use crate::trace::{Trace, TraceJob};
use crate::virtual_cluster::VirtualCluster;
use cluster::ClusterConfig;
use model::reason::{Reason, Refusal};
use model::time::Timestamp;
use std::borrow::Cow;
use std::collections::HashMap;

/// The jobs that were left out since the cluster could never start them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BeyondLimits {
    pub jobs: u64,
    /// Where the first of them is, and why it could not start.
    pub first: String,
}

/// The trace without the jobs that a cluster with this configuration could never start. Without any other it is an error.
pub fn admitted<'t>(
    trace: &'t Trace,
    config: &ClusterConfig,
) -> Result<(Cow<'t, Trace>, BeyondLimits), SimError> {
    let known = || config.partitions.iter().map(|partition| partition.name.as_str());
    if let Some(name) = trace.partitions.iter().find(|name| !known().any(|one| one == *name)) {
        let (name, known) = (name.clone(), known().collect::<Vec<_>>().join(", "));
        return Err(SimError::UnknownPartition { name, known });
    }
    let has_default = machine::default_partition(config).is_some();
    if !has_default && trace.jobs.iter().any(|job| job.partition.is_none()) {
        return Err(SimError::NoDefaultPartition);
    }
    let mut gates = Gates::new(trace, config)?;
    let mut beyond = BeyondLimits::default();
    // The jobs that stay, from the first on that does not.
    let mut kept: Option<Vec<TraceJob>> = None;
    for (at, job) in trace.jobs.iter().enumerate() {
        let Some(why) = gates.never_starts(job)? else {
            kept.iter_mut().for_each(|kept| kept.push(*job));
            continue;
        };
        kept.get_or_insert_with(|| trace.jobs[..at].to_vec());
        if beyond.jobs == 0 {
            beyond.first = format!("{}: {why}", trace.place(job));
        }
        beyond.jobs += 1;
    }
    let Some(jobs) = kept else { return Ok((Cow::Borrowed(trace), beyond)) };
    if jobs.is_empty() {
        return Err(SimError::NoneStarts { first: beyond.first });
    }
    let (processors, epoch_s, left_out) = (trace.processors, trace.epoch_s, trace.left_out);
    let (partitions, numbering) = (trace.partitions.clone(), trace.numbering);
    let unused_numbers = trace.unused_numbers.clone();
    let kept = Trace { jobs, processors, epoch_s, left_out, partitions, unused_numbers, numbering };
    Ok((Cow::Owned(kept), beyond))
}

/// A cluster on which nothing runs: what does not start there alone never does.
struct Gates<'t> {
    trace: &'t Trace,
    config: &'t ClusterConfig,
    cluster: VirtualCluster,
    specs: JobSpecs,
    /// Why a job on so many processors of a partition would not start, however short it is.
    of_size: HashMap<(u32, Option<u16>), Option<String>>,
}

impl<'t> Gates<'t> {
    fn new(trace: &'t Trace, config: &'t ClusterConfig) -> Result<Self, SimError> {
        let cluster = VirtualCluster::new(config.clone(), Timestamp(0));
        let cluster = cluster.map_err(SimError::configuration)?;
        let specs = JobSpecs::new(Width::on(config), &trace.partitions);
        Ok(Self { trace, config, cluster, specs, of_size: HashMap::new() })
    }

    /// Why the job could never start.
    fn never_starts(&mut self, job: &TraceJob) -> Result<Option<String>, SimError> {
        let key = (job.processors, job.partition);
        let obstacle = match self.of_size.get(&key) {
            Some(known) => known.clone(),
            None => {
                let found = self.obstacle_of_size(job)?;
                self.of_size.insert(key, found.clone());
                found
            }
        };
        Ok(obstacle
            .or_else(|| self.is_too_long(job).then(|| reason_words(&Reason::PartitionTimeLimit))))
    }

    fn obstacle_of_size(&mut self, job: &TraceJob) -> Result<Option<String>, SimError> {
        let short = TraceJob { estimate_s: 1, ..*job };
        let too_large = machine::partition_of(self.trace, self.config, job).and_then(|partition| {
            let (asked, most) = (job.processors, machine::largest_job(self.config, partition));
            let name = &partition.name;
            let fault = || {
                format!("{asked} processors: expected at most the {most} that partition {name} gives one job")
            };
            (u64::from(asked) > most).then(fault)
        });
        if too_large.is_some() {
            return Ok(too_large);
        }
        match self.cluster.obstacle(self.specs.submit(&short)) {
            Ok(reason) => Ok(reason.as_ref().map(reason_words)),
            Err(refusal) if is_of_size(&refusal) => Ok(Some(refusal.to_string())),
            Err(refusal) => Err(SimError::refused(self.trace, job, refusal)),
        }
    }

    /// Whether the job's limit is beyond that of its partition.
    fn is_too_long(&mut self, job: &TraceJob) -> bool {
        let submit = self.specs.submit(job);
        let request = submit.spec.request();
        let partition = machine::partition_of(self.trace, self.config, job);
        partition
            .is_some_and(|partition| sched::time_limit(request, partition) > partition.max_time)
    }
}

/// Whether the refusal is of how much the job asks for, or of its partition's state, so that a trace may go on without the job.
fn is_of_size(refusal: &Refusal) -> bool {
    match refusal {
        Refusal::NodeConfiguration(_)
        | Refusal::PartitionNotAvailable(_)
        | Refusal::NodeCount(_)
        | Refusal::CpuCount => true,
        Refusal::InvalidValue { what, .. } => what == model::bounds::NODES.what,
        _ => false,
    }
}
