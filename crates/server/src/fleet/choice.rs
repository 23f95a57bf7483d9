//! Where a run of dstack goes that names no fleet: to the default partition, to the others that admit it, and to any of its project's
//! fleets.

use crate::secret::asked_project;
use cluster::State;
use model::run::{JobSpec, LaunchKind};
use model::time::TimeLimit;
use serde::Deserialize;
use serde::de::IgnoredAny;
use std::sync::Arc;
use wire::client::Submission;

/// Adds the partitions that admit it, and the fleets of its project, to a run that leaves the choice open.
pub fn open_fleets(state: &State, submission: &mut Submission) {
    let is_task = submission.spec.launch.kind == LaunchKind::Task;
    if !is_task || state.partitions.len() < 2 || has_chosen(submission) {
        return;
    }
    let Submission { spec, het_components, .. } = submission;
    for spec in std::iter::once(spec).chain(het_components) {
        add_fleets(state, spec);
    }
}

/// What is read of a kept run.
#[derive(Deserialize)]
struct KeptRun {
    configuration: KeptChoice,
}

#[derive(Deserialize)]
struct KeptChoice {
    fleets: Option<IgnoredAny>,
}

/// `fleets: [static]` is a choice too, which is not seen in the partitions.
fn has_chosen(submission: &Submission) -> bool {
    let kept = submission.configuration.as_deref();
    let kept: Option<KeptRun> = kept.and_then(|text| serde_json::from_str(text).ok());
    kept.is_some_and(|kept| kept.configuration.fleets.is_some())
}

fn add_fleets(state: &State, spec: &mut JobSpec) {
    if spec.launch.kind != LaunchKind::Task || !spec.request().partitions.is_empty() {
        return;
    }
    let (project, is_distributed) = (asked_project(spec), spec.is_distributed_run());
    let fits = |fleet: &&model::ssh_fleet::SshFleet| {
        fleet.project == project && (fleet.is_cluster || !is_distributed)
    };
    let fleets = state.fleets.values().filter(fits).map(|fleet| fleet.name.clone());
    let default = state.default_partition().map(|partition| partition.name.clone());
    let mut open = state.partitions_for(spec);
    if open.is_empty() {
        // What keeps it out of the default partition is said where it is submitted.
        open.extend(default.clone());
    }
    open.extend(fleets);
    if open.len() == 1 && open.first() == default.as_ref() {
        return;
    }
    let component = &mut Arc::make_mut(&mut spec.components)[0];
    let request = Arc::make_mut(&mut component.request);
    // A run without an end is as long as these let anybody run: longer would never start.
    let longest = open.iter().filter_map(|name| state.partition(name)).map(|p| p.max_time).max();
    if request.time_limit == Some(TimeLimit::Unlimited) {
        request.time_limit = longest.or(request.time_limit);
    }
    request.partitions = open;
}
