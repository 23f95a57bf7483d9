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
    // A private `/tmp` would hide the folders that the run itself is given there, and the one that it starts in.
    let scratch = site.scratch.as_deref().map(Path::new);
    let mut of_run = [node, Path::new(&launch.work_dir)].into_iter().chain(scratch);
    let is_used = of_run.any(|folder| folder.starts_with(TEMPORARY));
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

    fn task(work_dir: &str) -> JobLaunch {
        JobLaunch { kind: LaunchKind::Task, work_dir: work_dir.to_owned(), ..launch() }
    }

    #[test]
    fn run_without_a_container_has_private_folders_where_the_site_says_nothing() {
        let (site, node) = (Site::default(), "/var/lib/sluice/nodes/n1");
        let task = task("/home/me");
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
        let (home, memory) = (task("/home/me"), Some(vec!["/dev/shm".to_owned()]));
        assert_eq!(dirs(&home, &Site::default(), "/tmp/demo/nodes/n1"), memory);
        let scratch = Site { scratch: Some("/tmp".into()), ..Site::default() };
        let node = "/var/lib/sluice/nodes/n1";
        assert_eq!(dirs(&home, &scratch, node), memory);
        assert_eq!(dirs(&task("/tmp/project"), &Site::default(), node), memory);
    }
}
