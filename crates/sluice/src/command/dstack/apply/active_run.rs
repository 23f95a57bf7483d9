//! The caller's active run of a name, which `sluice apply` updates in place, replaces or stops.

use crate::client::Client;
use crate::command::dstack::{each_group, own_name};
use crate::command::verb::VerbError;
use ::dstack::node_groups::group_of;
use model::change::JobFilter;
use model::id::JobId;
use model::run::{JobSpec, LaunchKind};
use std::collections::BTreeMap;
use wire::view::JobView;

/// The specification of each job.
pub(super) fn specs_of(jobs: &[JobView]) -> Vec<&JobSpec> {
    jobs.iter().map(|job| &*job.spec).collect()
}

/// The specifications of a service: all replicas have one, which says how many there are, or those of each group.
pub(super) fn group_specs(replicas: &[JobView]) -> Vec<&JobSpec> {
    let mut of_group = BTreeMap::new();
    for job in replicas {
        let group = job.spec.launch.service.as_ref().and_then(|service| service.group.as_ref());
        of_group.entry(group.map_or(0, |group| group.index)).or_insert(&*job.spec);
    }
    of_group.into_values().collect()
}

/// The caller's own active run of this name: its job, all its groups, or all tasks of its array. Others may have runs of the
/// same name, and jobs of `sbatch` are no runs.
pub(super) fn active_run(client: &mut Client, name: &str) -> Result<Vec<JobView>, VerbError> {
    let (names, users) = (vec![name.to_owned()], vec![own_name(client)?]);
    let filter = JobFilter { names, users, all_states: true, ..JobFilter::default() };
    let mut found = each_group(client, filter)?;
    found.retain(|job| job.spec.launch.kind == LaunchKind::Task);
    // A task of an array has a number of its own from its start on, which may be after the submit of a newer run.
    let active = found.iter().filter(|job| !job.state.is_ended());
    let active = active.max_by_key(|job| (job.spec.deployment(), job.submit, job.id));
    let run = active.map(first_of);
    found.retain(|job| Some(first_of(job)) == run);
    found.sort_by_key(|job| job.id);
    Ok(found)
}

/// The number that a run goes by: that of its first group, or of its array, of which each group of replicas has one.
pub(super) fn first_of(job: &JobView) -> JobId {
    let of_group = group_of(job.spec.launch.kind, job.het).map(|het| het.first);
    let array = job.array.as_ref().map(|array| array.array);
    let service = job.spec.launch.service.as_ref();
    let replicas = service.and_then(|service| service.group.as_ref());
    let array = array.map(|own| replicas.map_or(own, |group| group.first_array(own)));
    of_group.or(array).unwrap_or(job.id)
}
