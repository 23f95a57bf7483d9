//! The components of a running het job, as the server knows them.

use crate::client::{Client, ClientError};
use ::slurm::environment::Environment;
use ::slurm::environment::gpu::GpuView;
use ::slurm::environment::job::{JobFacts, allocation};
use model::change::{JobFilter, JobRef};
use model::id::JobId;
use wire::client::{Answer, Call, Detail, JobsQuery};
use wire::view::JobView;

/// One component of a het job.
#[derive(Debug, Clone)]
pub struct Component {
    pub job: JobId,
    pub nodes: Vec<String>,
    /// The `SLURM_*` variables of its allocation.
    pub variables: Environment,
}

/// The components of a job, in their order. A job that is not het is its own only component.
pub fn ask(client: &mut Client, first: JobId, dir: &str) -> Result<Vec<Component>, ClientError> {
    let cluster = match client.call(Call::Cluster)? {
        Answer::Cluster(cluster) => cluster.name,
        _ => String::new(),
    };
    let filter = JobFilter { jobs: vec![JobRef::whole(first)], ..JobFilter::default() };
    let wanted = JobsQuery { filter, detail: Detail::Full, ..JobsQuery::default() };
    let Answer::Jobs { jobs, .. } = client.call(Call::Jobs(wanted))? else { return Ok(Vec::new()) };
    let component = |view: &JobView| Component {
        job: view.id,
        nodes: view.allocation.iter().flat_map(|a| a.node_names()).map(str::to_owned).collect(),
        variables: variables(&cluster, view, dir),
    };
    Ok(jobs.0.iter().map(component).collect())
}

/// The variables of one job's allocation; empty if it has none.
pub fn variables(cluster: &str, view: &JobView, submit_dir: &str) -> Environment {
    let Some(granted) = &view.allocation else { return Environment::new() };
    allocation(&JobFacts {
        cluster,
        job: view.id,
        array: None,
        spec: &view.spec,
        allocation: granted,
        reservation: view.reservation(),
        account: &view.account,
        qos: &view.qos,
        restarts: view.restarts,
        start: view.start,
        end: view.end,
        default_memory: view.default_memory,
        conf_file: None,
        submit_dir: Some(submit_dir),
        gpus: GpuView::default(),
        topology: None,
    })
}
