//! The facts of a job, for the variables of the site's programs about it on the server's own machine: its prolog and epilog, and
//! the mail program.

use cluster::{Job, State};
use model::allocation::Allocation;
use slurm::environment::job::JobFacts;

/// What the programs of nodes are told besides (devices, the network, the place in an array) is not known of a job that may have
/// ended.
pub fn for_site_program<'a>(
    state: &'a State,
    job: &'a Job,
    allocation: &'a Allocation,
) -> JobFacts<'a> {
    JobFacts {
        cluster: &state.config.name,
        job: job.id,
        array: None,
        spec: &job.spec,
        allocation,
        account: &job.account,
        qos: &job.qos,
        restarts: job.restarts(),
        start: job.attempt().map(|attempt| attempt.start),
        end: job.attempt().and_then(|attempt| attempt.end_limit),
        default_memory: None,
        conf_file: None,
        submit_dir: None,
        reservation: job.attempt().and_then(|attempt| attempt.reservation.as_deref()),
        gpus: Default::default(),
        topology: None,
    }
}
