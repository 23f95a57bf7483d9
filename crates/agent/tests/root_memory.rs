//! Tests of real limits of memory, processes and CPU time, and of machines that lack them. They need root.

mod groups;

use std::process::Command;

use agent::cgroup::{GroupLimits, Hierarchy, JobGroup, Layout, Plugin};
use groups::{MIB, Scratch, said, shell};

const HOG: &str = "head -c 200000000 /dev/zero | tail -n 1 > /dev/null";

fn counted() -> GroupLimits {
    GroupLimits { count_memory: true, ..GroupLimits::default() }
}

fn kills(group: &JobGroup) -> u64 {
    group.usage().expect("usage").oom_kills.unwrap_or(0)
}

/// Trees in which memory is limited.
fn trees() -> Vec<(Plugin, Scratch)> {
    let able = |(_, one): &(Plugin, Scratch)| one.hierarchy.capabilities().memory_hard;
    let found: Vec<_> = Scratch::all().into_iter().filter(able).collect();
    assert!(!found.is_empty(), "nothing here limits memory");
    found
}

#[test]
fn root_a_kill_is_the_affair_of_the_step_it_was_in() {
    for (plugin, scratch) in trees() {
        let swap_bytes = scratch.hierarchy.capabilities().swap.then_some(0);
        let memory_bytes = Some(48 * MIB);
        let job = scratch.job(&GroupLimits { memory_bytes, swap_bytes, ..counted() });
        let leaf = job.leaf("step_batch").expect("a place for the script");
        let script = leaf.as_ref().unwrap_or(&job);
        let own = || match &leaf {
            Some(leaf) => kills(leaf),
            None => job.own_oom_kills("step_").unwrap_or(0),
        };
        // Both steps have all of their job's memory: neither has a limit of its own.
        let (one, two) = (job.child("step_0", &counted()), job.child("step_1", &counted()));
        let (one, two) = (one.expect("first step"), two.expect("second step"));
        assert!(one.counts_memory() && two.counts_memory(), "{plugin}");
        shell(&one, HOG);
        assert!(kills(&one) > 0, "{plugin}");
        assert_eq!((kills(&two), own()), (0, 0), "{plugin}: nobody else's affair");
        one.remove().expect("a step that has ended");
        assert_eq!(own(), 0, "{plugin}: nor is it once the step is gone");
        shell(script, HOG);
        assert!(own() > 0, "{plugin}: the script's own");
        assert_eq!(kills(&two), 0, "{plugin}");
    }
}

#[test]
fn root_a_job_of_v2_passes_its_limits_on_to_its_steps() {
    for (plugin, scratch) in trees() {
        let can = scratch.hierarchy.capabilities();
        if can.layout != Layout::V2 {
            println!(
                "skipped: {plugin} has its controllers on v1, which asks for nothing of the kind"
            );
            continue;
        }
        let limits = GroupLimits {
            memory_bytes: Some(256 * MIB),
            cpuset: can.cpuset.then(|| "0".to_owned()),
            ..counted()
        };
        let job = scratch.job(&limits);
        let script = job.leaf("step_batch").expect("make").expect("v2 needs one");
        assert!(said(&script, "cat /proc/self/cgroup").contains("/job_1_1/step_batch"));
        let part = GroupLimits { memory_bytes: Some(32 * MIB), ..counted() };
        let step = job.child("step_0", &part).expect("beside the script");
        shell(&step, HOG);
        assert!(kills(&step) > 0 && kills(&script) == 0, "{plugin}");
        if can.cpuset {
            assert!(said(&step, "grep Cpus_allowed_list /proc/self/status").contains("\t0\n"));
        }
    }
}

#[test]
fn root_cpu_time_is_measured_out() {
    for (plugin, scratch) in Scratch::all() {
        if !scratch.hierarchy.capabilities().cpu_time {
            println!("skipped: {plugin} has no cpu controller");
            continue;
        }
        let job = scratch.job(&GroupLimits { cpu_time: Some(2), ..GroupLimits::default() });
        // The quota is read from the group's own file, wherever the tree is mounted.
        let show = "while IFS=: read -r _ _ path; do \
                    for file in /sys/fs/cgroup{,/unified,/cpu,/cpu,cpuacct}$path/cpu.{max,cfs_quota_us}; do \
                    [ ! -e \"$file\" ] || cat \"$file\"; done; done < /proc/self/cgroup";
        let text = said(&job, show);
        let limited = text.lines().any(|line| matches!(line, "200000 100000" | "200000"));
        assert!(limited, "{plugin}: {text}");
    }
}

#[test]
fn root_a_job_that_forks_without_end_stays_within_its_processes() {
    for (plugin, scratch) in Scratch::all() {
        if !scratch.hierarchy.capabilities().pids {
            println!("skipped: {plugin} has no pids controller");
            continue;
        }
        let job = scratch.job(&GroupLimits { pids_max: Some(40), ..GroupLimits::default() });
        // This shell gives up at once; others retry for a while.
        let bomb = "while :; do sleep 60 > /dev/null 2>&1 & done";
        let text = said(&job, &format!("exec sh -c '{bomb}'"));
        assert!(text.contains("Cannot fork"), "{plugin}: {text}");
        job.kill_all(groups::TIMEOUT).expect("kill");
        let elsewhere = Command::new("true").status().expect("others fork as before");
        assert!(elsewhere.success());
    }
}

/// What a machine with other mounts finds: the test itself, started again in a mount namespace of its own in which
/// `change` was done to each mount of control groups, `$at`. One line: the layout, and why memory is not limited.
fn elsewhere(test: &str, change: &str, plugin: Plugin) -> String {
    assert!(nix::unistd::Uid::effective().is_root(), "run as root: this test mounts");
    let script = format!(
        "while read -r _ _ _ _ at _ rest; do case $rest in *'- cgroup'*) {change};; esac; \
         done < <(cat /proc/self/mountinfo); exec \"$@\""
    );
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "bash", "-c", &script, "bash"]);
    command.arg(std::env::current_exe().expect("this test"));
    command.args(["--exact", test, "--nocapture"]).env(PLUGIN, plugin.as_str());
    let output = command.output().expect("run unshare");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let found = text.lines().find_map(|line| line.split_once(FOUND));
    let complaint = String::from_utf8_lossy(&output.stderr);
    found.unwrap_or_else(|| panic!("{text}{complaint}")).1.to_owned()
}

const PLUGIN: &str = "SLUICE_TEST_PLUGIN";
const FOUND: &str = "found: ";

/// Inside [`elsewhere`]: prints the result, and the test is over.
fn is_elsewhere() -> bool {
    let Ok(plugin) = std::env::var(PLUGIN) else { return false };
    match Hierarchy::discover(plugin.parse().expect("a plugin"), "sluicegroups_elsewhere") {
        Ok(hierarchy) => {
            let can = hierarchy.capabilities();
            let reason = can.reason_against("memory").unwrap_or_default();
            println!("{FOUND}{:?}: {reason}", can.layout);
            let _ = hierarchy.remove_root();
        }
        Err(error) => println!("{FOUND}{error}"),
    }
    true
}

#[test]
fn root_a_read_only_hierarchy_is_told_and_not_fatal() {
    if is_elsewhere() {
        return;
    }
    let change = "mount -o remount,bind,ro \"$at\"";
    let test = "root_a_read_only_hierarchy_is_told_and_not_fatal";
    let found = elsewhere(test, change, Plugin::Auto);
    assert!(found.starts_with("Tracked: ") && found.contains("Read-only file system"), "{found}");
    let line = elsewhere(test, change, Plugin::V2);
    assert!(line.contains("CgroupPlugin=cgroup/v2") && line.contains("Read-only"), "{line}");
}

#[test]
fn root_a_missing_hierarchy_is_told_and_not_fatal() {
    if is_elsewhere() {
        return;
    }
    let test = "root_a_missing_hierarchy_is_told_and_not_fatal";
    let found = elsewhere(test, "umount -l \"$at\"", Plugin::Auto);
    assert!(found.starts_with("Tracked: ") && found.contains("memory controller"), "{found}");
    let line = elsewhere(test, "umount -l \"$at\"", Plugin::V2);
    assert_eq!(line, "CgroupPlugin=cgroup/v2: no such tree is mounted");
}
