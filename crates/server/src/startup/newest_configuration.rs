//! The configuration of a server that waited for its lead: its files may have changed since it read them.

use crate::configure::{self, Machine};
use cluster::ClusterConfig;
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
}
