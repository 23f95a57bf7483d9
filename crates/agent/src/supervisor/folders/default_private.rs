//! The private folders of a dstack run that uses the node's own file system, where the site configures none: dstack's runs
//! are apart from one another in their containers, and so they are without one.

use super::namespaces::SHARED_MEMORY;
use model::run::LaunchKind;
use model::site::{PrivateFolders, Site};
use std::path::Path;
use wire::order::JobLaunch;

const TEMPORARY: &str = "/tmp";

/// The private folders of a launch on this node by default, for an agent that may mount them. `node` is the folder of the
/// node's own files.
pub(crate) fn of_launch(launch: &JobLaunch, site: &Site, node: &Path) -> Option<PrivateFolders> {
    let is_process = launch.kind == LaunchKind::Task && launch.container.is_none();
    if !is_process || site.private.is_some() {
        return None;
    }
    let base = node.to_str()?.to_owned();
    // A private `/tmp` would hide the folders that the run itself is given there.
    let is_used =
        site.scratch.iter().map(Path::new).chain([node]).any(|p| p.starts_with(TEMPORARY));
    let temporary = (!is_used).then_some(TEMPORARY);
    let dirs = temporary.into_iter().chain([SHARED_MEMORY]).map(str::to_owned).collect();
    Some(PrivateFolders { base, make_base: false, dirs, init_script: None })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spool::tests::launch;
    use model::container::Container;

    fn dirs(launch: &JobLaunch, site: &Site, node: &str) -> Option<Vec<String>> {
        of_launch(launch, site, Path::new(node)).map(|folders| folders.dirs)
    }

    #[test]
    fn run_without_a_container_has_private_folders_where_the_site_says_nothing() {
        let (site, node) = (Site::default(), "/var/lib/sluice/nodes/n1");
        let task = JobLaunch { kind: LaunchKind::Task, ..launch() };
        let both = Some(vec!["/tmp".to_owned(), "/dev/shm".to_owned()]);
        assert_eq!(dirs(&task, &site, node), both);
        assert_eq!(dirs(&launch(), &site, node), None, "a script is Slurm's");
        let container = Some(Box::new(Container::default()));
        let contained = JobLaunch { container, ..task.clone() };
        assert_eq!(dirs(&contained, &site, node), None, "a container has its own");
        let private = PrivateFolders {
            base: "/local".into(),
            make_base: false,
            dirs: vec!["/scratch".into()],
            init_script: None,
        };
        let says = Site { private: Some(private), ..Site::default() };
        assert_eq!(dirs(&task, &says, node), None, "the site's stand");
    }

    #[test]
    fn private_tmp_does_not_hide_the_runs_own_folders() {
        let task = JobLaunch { kind: LaunchKind::Task, ..launch() };
        let memory = Some(vec!["/dev/shm".to_owned()]);
        assert_eq!(dirs(&task, &Site::default(), "/tmp/demo/nodes/n1"), memory);
        let scratch = Site { scratch: Some("/tmp".into()), ..Site::default() };
        assert_eq!(dirs(&task, &scratch, "/var/lib/sluice/nodes/n1"), memory);
    }
}
