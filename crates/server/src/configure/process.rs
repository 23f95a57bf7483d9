//! How processes are started, from `slurm.conf`: bound to which CPUs, with which limits.

use model::binding::{BindPolicy, CpuBind, Level};
use model::run::RlimitPolicy;
use slurm::conf::Conf;
use slurm::conf::keys::choices::TaskPlugin;

/// Tasks are bound unless `TaskPlugin` is set and does not have `task/affinity`.
pub fn binding(conf: &Conf) -> BindPolicy {
    let slurm = &conf.slurm;
    let launch = &slurm.globals.launch;
    let said = slurm.raw.contains_key("TaskPlugin");
    let parameters = &launch.task_plugin_parameters;
    let word = |text: &Option<String>| text.as_deref().and_then(bind_word);
    BindPolicy {
        on: !said || launch.task_plugins.contains(&TaskPlugin::Affinity),
        kind: parameters.iter().filter_map(bind_word).last(),
        fallback: parameters.get("autobind").and_then(level),
        verbose: parameters.has("verbose"),
        nodes: slurm
            .nodes
            .iter()
            .filter_map(|node| Some((node.config.name.clone(), word(&node.cpu_bind)?)))
            .collect(),
        partitions: slurm
            .partitions
            .iter()
            .filter_map(|p| Some((p.partition.name.clone(), word(&p.cpu_bind)?)))
            .collect(),
    }
}

fn bind_word(text: &str) -> Option<CpuBind> {
    if text.eq_ignore_ascii_case("none") {
        Some(CpuBind::None)
    } else {
        level(text).map(CpuBind::To)
    }
}

fn level(text: &str) -> Option<Level> {
    match text.to_ascii_lowercase().trim_end_matches('s') {
        "thread" => Some(Level::Threads),
        "core" => Some(Level::Cores),
        "socket" => Some(Level::Sockets),
        "ldom" => Some(Level::Ldoms),
        _ => None,
    }
}

pub fn rlimits(conf: &Conf) -> RlimitPolicy {
    let launch = &conf.slurm.globals.launch;
    RlimitPolicy {
        only: launch.propagate_limits.clone(),
        except: launch.propagate_limits_except.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::run::Rlimits;
    use slurm::conf::{MemoryFiles, load_dir};
    use std::path::Path;

    fn conf(lines: &str) -> Conf {
        let text = format!(
            "ClusterName=t\n{lines}NodeName=n1 CPUs=2 CpuBind=core\nNodeName=n2 CPUs=2\n\
             PartitionName=p Nodes=n1,n2 CpuBind=socket\n"
        );
        let files = MemoryFiles::default().with("/c/slurm.conf", text);
        load_dir(&files, Path::new("/c")).expect("a configuration")
    }

    #[test]
    fn tasks_are_bound_unless_task_plugin_lacks_affinity() {
        for (lines, on) in [
            ("", true),
            ("TaskPlugin=task/none\n", false),
            ("TaskPlugin=task/cgroup\n", false),
            ("TaskPlugin=task/affinity,task/cgroup\n", true),
        ] {
            assert_eq!(binding(&conf(lines)).on, on, "{lines}");
        }
        let found = binding(&conf("TaskPluginParam=Threads,Verbose,autobind=cores\n"));
        assert_eq!(found.kind, Some(CpuBind::To(Level::Threads)));
        assert_eq!((found.fallback, found.verbose), (Some(Level::Cores), true));
        assert_eq!(found.nodes["n1"], CpuBind::To(Level::Cores));
        assert_eq!(found.partitions["p"], CpuBind::To(Level::Sockets));
        assert!(!found.nodes.contains_key("n2"));
    }

    #[test]
    fn limits_asked_for_by_name_go_before_the_configuration() {
        let limits = |asked| Rlimits {
            soft: [("NOFILE", 1), ("CORE", 2)].map(|(name, value)| (name.to_owned(), value)).into(),
            asked,
        };
        let kept = |lines: &str, asked| {
            let narrowed = rlimits(&conf(lines)).narrow(limits(asked));
            narrowed.soft.into_iter().map(|(name, _)| name).collect::<Vec<_>>()
        };
        assert_eq!(kept("", false), ["NOFILE", "CORE"]);
        assert_eq!(kept("PropagateResourceLimits=NONE\n", false), [""; 0]);
        assert_eq!(kept("PropagateResourceLimits=CORE\n", false), ["CORE"]);
        assert_eq!(kept("PropagateResourceLimitsExcept=CORE\n", false), ["NOFILE"]);
        assert_eq!(kept("PropagateResourceLimits=NONE\n", true), ["NOFILE", "CORE"]);
    }
}
