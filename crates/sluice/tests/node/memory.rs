//! Memory and process limits of jobs and steps, and control groups that a job cannot change.

use crate::harness::{Cluster, TWO_NODES, until};

const FILL: &str = "sh -c 'head -c 200m /dev/zero | tail | wc -c'";

fn states(cluster: &Cluster, id: u32) -> String {
    let id = id.to_string();
    cluster.sluice(&["sacct", "-n", "-P", "-j", &id, "-o", "JobID,State,ExitCode"]).ok()
}

#[test]
fn root_a_job_over_its_memory_ends_as_out_of_memory_and_other_jobs_run_on() {
    let cluster = Cluster::up(TWO_NODES);
    cluster.write("calm.sh", "#!/bin/bash\nuntil [ -e over ]; do sleep 0.05; done\necho calm\n");
    let calm = cluster.submit(&["-w", "node1", "--mem=64", "-o", "calm.out", "calm.sh"]);
    cluster.await_state(calm, "RUNNING");
    cluster.write("hog.sh", &format!("#!/bin/bash\n{FILL}\n"));
    let hog = cluster.submit(&["-w", "node1", "--mem=64", "-o", "hog.out", "hog.sh"]);
    assert_eq!(cluster.await_end(hog), "OUT_OF_MEMORY|0:125");
    let text = cluster.sluice(&["explain", &hog.to_string()]).ok();
    let cause = "The kernel killed a process of it at its memory limit of 64M on a node";
    assert!(text.contains(cause) && text.contains("To try: more memory"), "{text}");
    let text = cluster.read("hog.out");
    let line = format!("oom-kill event(s) in StepId={hog}.batch. Some of your processes may have");
    assert!(text.contains(&line), "{text}");
    cluster.write("over", "");
    assert_eq!(cluster.await_end(calm), "COMPLETED|0:0");
    assert_eq!(cluster.read("calm.out"), "calm\n");
}

#[test]
fn root_a_step_is_not_marked_out_of_memory_for_its_sibling() {
    let cluster = Cluster::up(TWO_NODES);
    // Both steps have all of the job's memory. The second kills itself after the first was killed.
    let script = format!(
        "srun --overlap --mem=80 -n1 {FILL}; touch over\n\
         srun --overlap --mem=80 -n1 sh -c 'kill -KILL $$'; echo second $?\n\
         srun --overlap --mem=80 -n1 true; echo third $?"
    );
    cluster.write("job.sh", &format!("#!/bin/bash\n{script}\n"));
    let id = cluster.submit(&["-n1", "--mem=80", "-o", "job.out", "job.sh"]);
    assert_eq!(cluster.await_end(id), "COMPLETED|0:0", "{}", cluster.read("job.out"));
    let text = cluster.read("job.out");
    assert!(text.contains("second 137") && text.contains("third 0"), "{text}");
    assert!(text.contains(&format!("event(s) in StepId={id}.0")), "{text}");
    assert!(!text.contains(&format!("event(s) in StepId={id}.1")), "not the second's: {text}");
    let states = states(&cluster, id);
    assert!(states.contains(&format!("{id}.0|OUT_OF_MEMORY|")), "{states}");
    assert!(!states.contains(&format!("{id}.1|OUT_OF_MEMORY")), "{states}");
    assert!(states.contains(&format!("{id}.2|COMPLETED|0:0")), "{states}");
    let text = cluster.sluice(&["explain", &id.to_string()]).ok();
    assert!(text.contains(&format!("  Step {id}.0 (sh) ran out of memory: ")), "{text}");
    assert!(text.contains("  To try: more memory for the step"), "{text}");
}

#[test]
fn root_of_two_steps_only_the_one_over_its_memory_is_killed() {
    let cluster = Cluster::up(TWO_NODES);
    let calm = "sh -c 'until [ -e over ]; do sleep 0.05; done; kill -KILL $$'";
    let script = format!(
        "srun --overlap --mem=100 -n1 {calm} & \
         srun --overlap --mem=100 -n1 {FILL}; touch over; wait"
    );
    cluster.write("job.sh", &format!("#!/bin/bash\n{script}\nexit 0\n"));
    let id = cluster.submit(&["-n2", "--mem=100", "-o", "job.out", "job.sh"]);
    assert_eq!(cluster.await_end(id), "COMPLETED|0:0", "{}", cluster.read("job.out"));
    let states = states(&cluster, id);
    let killed = states.lines().filter(|line| line.contains("|OUT_OF_MEMORY|")).count();
    assert_eq!(killed, 1, "{states}");
}

#[test]
fn root_a_memory_limit_is_at_least_min_ram_space() {
    let cluster = Cluster::up(TWO_NODES);
    cluster.write("job.sh", "#!/bin/bash\ncat /proc/self/cgroup > groups\necho ran\n");
    let id = cluster.submit(&["--mem=1", "-o", "job.out", "job.sh"]);
    assert_eq!(cluster.await_end(id), "COMPLETED|0:0");
    assert_eq!(cluster.read("job.out"), "ran\n");
}

#[test]
fn root_a_job_cannot_leave_or_change_its_cgroups() {
    let cluster = Cluster::up(TWO_NODES);
    let script = "#!/bin/bash\n\
        while IFS=: read -r _ controllers path; do \
        for top in /sys/fs/cgroup /sys/fs/cgroup/unified /sys/fs/cgroup/$controllers; do \
        for file in $top$path/{memory.limit_in_bytes,memory.max,cgroup.procs,pids.max} $top/cgroup.procs; do \
        [ -e $file ] || continue; echo tried; \
        (echo $$ > $file) 2> /dev/null && echo changed $file; \
        done; done; done < /proc/self/cgroup; echo done\n";
    cluster.write("job.sh", script);
    let said = cluster.shell_as("daemon", "sbatch --parsable --mem=64 -o job.out job.sh");
    let id = said.ok().trim().to_owned();
    assert_eq!(cluster.await_end(id), "COMPLETED|0:0");
    let text = cluster.read("job.out");
    assert!(text.contains("tried\n") && text.ends_with("done\n"), "{text}");
    assert!(!text.contains("changed"), "{text}");
}

#[test]
fn root_a_fork_bomb_does_not_stop_other_jobs() {
    let cluster = Cluster::folder(TWO_NODES);
    cluster.write_conf("cgroup.conf", "ConstrainRAMSpace=yes\nMaxPids=30\n");
    cluster.start();
    cluster.write("bomb.sh", "#!/bin/sh\nwhile :; do sleep 600 & done\n");
    let bomb = cluster.submit(&["-w", "node1", "-o", "bomb.out", "bomb.sh"]);
    cluster.write("calm.sh", "#!/bin/bash\nfor i in 1 2 3; do /bin/true || exit 1; done\n");
    let calm = cluster.submit(&["-w", "node1", "calm.sh"]);
    assert_eq!(cluster.await_end(calm), "COMPLETED|0:0");
    assert!(cluster.await_end(bomb).starts_with("FAILED"), "{}", cluster.read("bomb.out"));
    assert!(cluster.read("bomb.out").contains("Cannot fork"), "{}", cluster.read("bomb.out"));
    until("nothing of it is left", || cluster.groups().is_empty().then_some(()));
}

#[test]
fn root_a_job_that_stops_itself_can_be_cancelled() {
    let cluster = Cluster::up(TWO_NODES);
    cluster.write("job.sh", "#!/bin/bash\ntouch stopped\nkill -STOP $$\n");
    let id = cluster.submit(&["job.sh"]);
    cluster.await_file("stopped", |_| true);
    cluster.sluice(&["scancel", &id.to_string()]).ok();
    assert!(cluster.await_end(id).starts_with("CANCELLED"));
    until("nothing of it is left", || cluster.groups().is_empty().then_some(()));
}

#[test]
fn root_a_node_without_usable_cgroups_is_drained_and_the_job_is_requeued() {
    let cluster = Cluster::folder(TWO_NODES);
    // A hierarchy that this machine lacks, or that has no memory controller.
    let pure = std::path::Path::new("/sys/fs/cgroup/cgroup.controllers").exists();
    let plugin = if pure { "cgroup/v1" } else { "cgroup/v2" };
    let conf = format!("CgroupPlugin={plugin}\nConstrainRAMSpace=yes\n");
    cluster.write_conf("cgroup.conf", &conf);
    cluster.start();
    cluster.write("job.sh", "#!/bin/bash\ntouch ran\n");
    let id = cluster.submit(&["-w", "node1", "--mem=64", "job.sh"]);
    let node = until("the node is drained", || {
        let said = cluster.sluice(&["scontrol", "show", "node", "node1"]).ok();
        said.contains("DRAIN").then_some(said)
    });
    assert!(node.contains("Reason=") && node.contains("memory") || node.contains(plugin), "{node}");
    cluster.await_state(id, "PENDING");
    assert!(!cluster.path("work/ran").exists(), "it did not run");
    cluster.sluice(&["scancel", &id.to_string()]).ok();
}

/// Prints the limits of the job's group: memory, memory with swap, soft limit, swappiness, processes.
const HELD: &str = "#!/bin/bash
look() { for top in /sys/fs/cgroup /sys/fs/cgroup/unified /sys/fs/cgroup/memory /sys/fs/cgroup/pids; do
  path=$(grep -E \"$1\" /proc/self/cgroup | head -n 1 | cut -d: -f3); path=${path%/step_batch}
  for file in ${@:2}; do [ ! -e $top$path/$file ] || { cat $top$path/$file; return; }; done; done; }
look 'memory|^0::' memory.limit_in_bytes memory.max
look 'memory|^0::' memory.soft_limit_in_bytes memory.high
look 'memory' memory.swappiness
look 'pids|^0::' pids.max
";

#[test]
fn root_cgroup_conf_sets_the_share_of_the_allocated_memory() {
    let cluster = Cluster::folder(TWO_NODES);
    let conf = "ConstrainRAMSpace=yes\nConstrainSwapSpace=yes\nAllowedRAMSpace=150\nMaxRAMPercent=50\n\
                MemorySwappiness=10\nMaxPids=77\n";
    cluster.write_conf("cgroup.conf", conf);
    cluster.start();
    cluster.write("job.sh", HELD);
    let held = |mem: &str| -> Vec<u64> {
        let id = cluster.submit(&["-w", "node1", mem, "-o", "job.out", "job.sh"]);
        assert_eq!(cluster.await_end(id), "COMPLETED|0:0");
        let text = cluster.read("job.out");
        text.lines().filter_map(|line| line.parse().ok()).collect()
    };
    let mib = |n: u64| n << 20;
    // v2 has no swappiness for a group.
    let pure = std::path::Path::new("/sys/fs/cgroup/cgroup.controllers").exists();
    let with = |memory: u64, soft: u64| {
        if pure { vec![mib(memory), mib(soft), 77] } else { vec![mib(memory), mib(soft), 10, 77] }
    };
    assert_eq!(held("--mem=100"), with(150, 100), "half as much again");
    assert_eq!(held("--mem=1800"), with(2000, 1800), "but no more than half of the node");
}
