//! Which configuration counts, where the files may have changed since they were read: for a server that waited for its lead, and
//! for one that is started again.

use crate::configure::{self, Machine};
use cluster::{ClusterConfig, State};
use std::path::Path;

/// The configuration as its files say it now, or the one of before where they cannot be used: a takeover does not wait for an
/// administrator.
pub(super) fn newest_configuration(
    dir: Option<&Path>,
    machine: Option<&Machine>,
    before: ClusterConfig,
) -> ClusterConfig {
    match configure::load(dir, machine) {
        Ok(config) => config,
        Err(error) => {
            tracing::error!("the configuration stays as it was when this server started: {error}");
            before
        }
    }
}

/// The configuration that was accepted last, for a server that is started again while its files cannot be used: nobody is there to
/// mend them, and a crash must not become an outage. A state that was never configured has the one that was read `before`.
pub(super) fn accepted_configuration(
    state: &State,
    fault: &str,
    before: ClusterConfig,
) -> ClusterConfig {
    tracing::error!(
        "the configuration files cannot be used, and the last configuration that was accepted is in force: \
         mend them, then `scontrol reconfigure`: {fault}"
    );
    if state.config.nodes.is_empty() { before } else { ClusterConfig::clone(&state.config) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_changed_count_and_files_that_cannot_be_used_do_not() {
        let folder = tempfile::tempdir().expect("a folder");
        let now = |text: &str, before: ClusterConfig| {
            std::fs::write(folder.path().join("slurm.conf"), text).expect("written");
            newest_configuration(Some(folder.path()), None, before)
        };
        let first = now("NodeName=a\nPartitionName=p Nodes=a\n", ClusterConfig::default());
        assert_eq!(first.nodes.len(), 1);
        let second = now("NodeName=a,b\nPartitionName=p Nodes=a,b\n", first);
        assert_eq!(second.nodes.len(), 2);
        let kept = now("NodeName=a,b\nPartitionName=p Nodes=nowhere\nNonsense\n", second);
        assert_eq!(kept.nodes.len(), 2);
    }

    #[test]
    fn configuration_that_was_accepted_last_counts_before_the_one_that_was_read_at_first() {
        let named = |name: &str| ClusterConfig {
            name: name.to_owned(),
            nodes: vec![model::node::NodeConfig::plain("a", 1, model::amount::Bytes(1 << 30))],
            ..ClusterConfig::default()
        };
        let mut state = State::default();
        let name = |state: &State| accepted_configuration(state, "torn", named("first")).name;
        assert_eq!(name(&state), "first");
        state.config = std::sync::Arc::new(named("accepted"));
        assert_eq!(name(&state), "accepted");
    }
}
