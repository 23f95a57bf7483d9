//! A start whose configuration lacks nodes or partitions that jobs are on: refused before anything is changed, unless it is
//! forced.

use crate::error::ServerError;
use crate::writer::recover::StateDisks;
use cluster::{ClusterConfig, State};
use model::hostlist;
use std::path::Path;

/// Reads the state in the server's folder, and refuses a configuration that would take nodes or partitions from its jobs.
pub fn check_configuration(dir: &Path, config: &ClusterConfig) -> Result<(), ServerError> {
    if !dir.join("journal").exists() {
        return Ok(());
    }
    let disks = StateDisks::open(dir)?;
    disks.refuse_newer()?;
    refuse_dropped(&disks.recover()?.state, config)
}

pub(crate) fn refuse_dropped(state: &State, config: &ClusterConfig) -> Result<(), ServerError> {
    let Some(dropped) = dropped_text(state, config) else { return Ok(()) };
    Err(ServerError::Configuration(format!(
        "{dropped}: name them in it, end the jobs, or start with --force"
    )))
}

/// A line about the nodes and partitions that the configuration takes from jobs; `None` if there are none.
pub(crate) fn dropped_text(state: &State, config: &ClusterConfig) -> Option<String> {
    let dropped = state.dropped_by(config);
    if dropped.is_empty() {
        return None;
    }
    let nodes = hostlist::compress_sorted(&dropped.nodes);
    let partitions = dropped.partitions.into_iter().collect::<Vec<_>>().join(", ");
    let places = [("on nodes ", nodes), ("in partitions ", partitions)];
    let places = places.into_iter().filter(|(_, names)| !names.is_empty());
    let places: Vec<String> = places.map(|(before, names)| format!("{before}{names}")).collect();
    let places = places.join(" and ");
    Some(format!("jobs are {places}, which this configuration does not have"))
}
