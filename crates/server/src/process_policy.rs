//! What `slurm.conf` says of how processes are started: bound to which CPUs, with which limits.

use model::binding::{BindPolicy, CpuBind, Level};
use model::run::{Launch, NicePolicy, RlimitPolicy, Rlimits};
use slurm::conf::Conf;
use slurm::conf::choices::TaskPlugin;
use slurm::environment::{Environment, PRIO_PROCESS};
use wire::order::Niceness;

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
    match text.eq_ignore_ascii_case("none") {
        true => Some(CpuBind::None),
        false => level(text).map(CpuBind::To),
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

/// The limits that a job's processes take over. What was asked for by name goes before the configuration.
pub fn of_job(policy: &RlimitPolicy, launch: &Launch) -> Rlimits {
    let all = Rlimits { soft: launch.rlimits.to_vec(), asked: launch.rlimits_asked };
    policy.narrow(all)
}

/// The nice value of the command that asked, which came along in its environment.
pub fn niceness(policy: NicePolicy, exported: &Environment) -> Option<Niceness> {
    let value = exported.get(PRIO_PROCESS).and_then(|text| text.parse().ok()).unwrap_or(0);
    match policy {
        NicePolicy::Daemon => None,
        NicePolicy::Submitter => Some(Niceness { value, below_daemon: false }),
        NicePolicy::BelowDaemon => Some(Niceness { value, below_daemon: true }),
    }
}

/// Processes that do not have it are told of it, as in Slurm; the others have it.
pub fn tell_niceness(policy: NicePolicy, exported: Environment, told: &mut Environment) {
    match (policy, exported.get(PRIO_PROCESS)) {
        (NicePolicy::Daemon, Some(value)) => told.set(PRIO_PROCESS, value),
        (NicePolicy::Daemon, None) => {}
        _ => {
            told.remove(PRIO_PROCESS);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
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
    fn tasks_are_bound_unless_the_plugins_leave_it_out() {
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
    fn what_is_asked_for_by_name_goes_before_the_configuration() {
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
