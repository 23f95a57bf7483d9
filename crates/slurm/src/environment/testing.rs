//! The jobs of the captured environments. What the node fills in (ranks and process ids), what `sbatch` itself exports
//! (`SLURM_GPUS_PER_NODE`) and the address of Slurm's own controller are left out of what is compared.

use super::Environment;
use super::gpu::GpuView;
use super::job::JobFacts;
use crate::output::samples::{self, alice, share};
use model::allocation::Allocation;
use model::amount::Bytes;
use model::id::JobId;
use model::partition::DefaultMemory;
use model::range::Range;
use model::request::{Memory, Request};
use model::run::JobSpec;

pub fn spec(request: Request) -> JobSpec {
    JobSpec { submit_host: "vm".into(), ..samples::spec("envcap", alice(), request) }
}

pub fn facts<'a>(job: u32, spec: &'a JobSpec, allocation: &'a Allocation) -> JobFacts<'a> {
    JobFacts {
        cluster: "lab",
        job: JobId(job),
        array: None,
        spec,
        allocation,
        reservation: spec.request().reservation.as_deref(),
        account: "physics",
        qos: "normal",
        restarts: 0,
        start: None,
        end: None,
        default_memory: Some(DefaultMemory::PerCpu(Bytes::from_mib(1000))),
        conf_file: Some("/lab/etc/slurm.conf"),
        submit_dir: None,
        gpus: GpuView::default(),
        topology: None,
    }
}

#[track_caller]
pub fn assert_variables(env: &Environment, expected: &[&str]) {
    assert_eq!(env.to_entries(), expected);
}

/// `-N2 -n4 -c2 --mem=2G`
pub fn two_nodes() -> (JobSpec, Allocation) {
    let spec = spec(Request {
        nodes: Range::exactly(2),
        tasks: Some(4),
        cpus_per_task: Range::exactly(2),
        cpus_per_task_given: true,
        memory: Memory::PerNode(Range::exactly(Bytes::from_gib(2))),
        ..Request::default()
    });
    let shares = vec![share("node1", 6, 2048, &[], 3), share("node2", 2, 2048, &[], 1)];
    (spec, samples::allocation(shares))
}
