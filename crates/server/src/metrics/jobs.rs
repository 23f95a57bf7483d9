//! The queue, and the jobs that hold resources.

use super::exposition::{Exposition, Labels};
use super::snapshot::Snapshot;
use cluster::Job;
use model::attempt::Attempt;
use slurm::words;

/// States that have a sample also if no job is in them, so that a graph begins at zero.
const USUAL_STATES: [&str; 4] = ["COMPLETING", "PENDING", "RUNNING", "SUSPENDED"];

pub fn write(text: &mut Exposition, snapshot: &Snapshot) {
    write_queue(text, snapshot);
    write_totals(text, snapshot);
    write_active(text, snapshot);
}

fn write_queue(text: &mut Exposition, snapshot: &Snapshot) {
    let queue = &snapshot.queue;
    let mut states = queue.by_state.clone();
    for state in USUAL_STATES {
        states.entry(state).or_default();
    }
    let mut family = text.gauge("sluice_jobs", "Jobs that have not ended, by state.");
    for (state, jobs) in &states {
        family.sample(&[("state", &state.to_lowercase())], jobs);
    }
    let mut family =
        text.gauge("sluice_partition_jobs", "Jobs that have not ended, by partition and state.");
    for ((partition, state), jobs) in &queue.by_partition {
        family.sample(&[("partition", partition), ("state", &state.to_lowercase())], jobs);
    }
    let mut family = text.gauge("sluice_jobs_pending", "Jobs that wait, by reason.");
    for (reason, jobs) in &queue.by_reason {
        family.sample(&[("reason", reason)], jobs);
    }
    let waited = queue.oldest.map_or(0.0, |since| snapshot.cluster.now.since(since).as_secs_f64());
    let help = "How long the job that has waited longest could have started.";
    text.gauge("sluice_queue_oldest_wait_seconds", help).sample(&[], waited);
}

fn write_totals(text: &mut Exposition, snapshot: &Snapshot) {
    let totals = &snapshot.totals;
    text.counter("sluice_jobs_submitted_total", "Jobs submitted since the server's start.")
        .sample(&[], totals.submitted);
    text.counter("sluice_jobs_started_total", "Jobs started since the server's start.")
        .sample(&[], totals.started);
    text.counter("sluice_jobs_requeued_total", "Jobs requeued since the server's start.")
        .sample(&[], totals.requeued);
    let mut ended: Vec<(&str, u64)> =
        totals.ended.iter().map(|(state, jobs)| (words::job::long(*state), *jobs)).collect();
    ended.sort_unstable();
    let help = "Jobs ended since the server's start, by the state that they ended in.";
    let mut family = text.counter("sluice_jobs_ended_total", help);
    for (state, jobs) in ended {
        family.sample(&[("state", &state.to_lowercase())], jobs);
    }
}

/// A job that holds resources, with the labels that all its series have.
struct ActiveJob<'a> {
    job: &'a Job,
    attempt: &'a Attempt,
    id: String,
    gpus: u64,
    memory: u64,
}

impl<'a> ActiveJob<'a> {
    fn of(job: &'a Job) -> Option<ActiveJob<'a>> {
        let attempt = job.attempt()?;
        let shares = &attempt.allocation.nodes;
        let gres = shares.iter().flat_map(|share| &share.gres);
        Some(ActiveJob {
            job,
            attempt,
            id: job.shown_id(),
            gpus: gres.filter(|gres| gres.name == "gpu").map(|gres| gres.count).sum(),
            memory: shares.iter().map(|share| share.memory.0).sum(),
        })
    }

    fn labels(&self) -> [(&str, &str); 1] {
        [("job", &self.id)]
    }
}

fn write_active(text: &mut Exposition, snapshot: &Snapshot) {
    let jobs: Vec<ActiveJob> =
        snapshot.active.iter().filter_map(|job| ActiveJob::of(job)).collect();
    let help = "A job that holds resources: its user, account, QOS, partition and name.";
    let mut family = text.gauge("sluice_job_info", help);
    for active in &jobs {
        let (job, allocation) = (active.job, &active.attempt.allocation);
        let labels: Labels = &[
            ("job", &active.id),
            ("user", &job.spec.owner.name),
            ("account", &job.account),
            ("qos", &job.qos),
            ("partition", &allocation.partition),
            ("name", &job.spec.name),
        ];
        family.sample(labels, 1);
    }
    let mut family = text.gauge("sluice_job_nodes", "Nodes of a job.");
    for job in &jobs {
        family.sample(&job.labels(), job.attempt.allocation.nodes.len());
    }
    let mut family = text.gauge("sluice_job_cpus", "CPUs that a job was granted.");
    for job in &jobs {
        family.sample(&job.labels(), job.attempt.allocation.cpu_count());
    }
    let mut family = text.gauge("sluice_job_memory_bytes", "Memory that a job was granted.");
    for job in &jobs {
        family.sample(&job.labels(), job.memory);
    }
    let mut family = text.gauge("sluice_job_gpus", "GPUs that a job was granted.");
    for job in jobs.iter().filter(|job| job.gpus > 0) {
        family.sample(&job.labels(), job.gpus);
    }
    let mut family = text.gauge("sluice_job_start_time_seconds", "When a job started.");
    for job in &jobs {
        family.sample(&job.labels(), job.attempt.start.secs());
    }
}
