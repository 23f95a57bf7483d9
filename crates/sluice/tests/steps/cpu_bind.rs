//! CPU binding of tasks and its reports, as in a real Slurm 22.05 on a node of two cores.

use crate::harness::{Cluster, CommandOutput};

/// One node on this machine with two of its cores.
fn machine(more: &str) -> Option<Cluster> {
    let cluster = folder(more)?;
    cluster.start();
    Some(cluster)
}

/// The same, not started yet.
fn folder(more: &str) -> Option<Cluster> {
    if std::thread::available_parallelism().map_or(1, usize::from) != 2 {
        eprintln!("skipped: the masks are those of a machine with two CPUs");
        return None;
    }
    Some(Cluster::folder(&format!(
        "ClusterName=test\nDefMemPerCPU=16\nKillWait=1\n{more}\
         NodeName=n1 CPUs=2 Sockets=1 CoresPerSocket=2 ThreadsPerCore=1 RealMemory=1000\n\
         PartitionName=main Nodes=n1 Default=YES State=UP\n"
    )))
}

/// Each task's CPUs in the kernel, and its variables.
const TELL: &str = "'echo $SLURM_PROCID $(taskset -cp $$ | sed \"s/.*: //\") $SLURM_CPU_BIND'";

fn lines(said: &CommandOutput) -> Vec<String> {
    let mut lines: Vec<String> = said.stdout.lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

/// The lines that report bindings, without pids.
fn reports(said: &CommandOutput) -> Vec<String> {
    let bare = |line: &str| {
        let (before, rest) = line.split_once(" [")?;
        let (_, after) = rest.split_once(']')?;
        Some(format!("{before}{after}"))
    };
    let mut lines: Vec<String> = said.stderr.lines().filter_map(bare).collect();
    lines.sort();
    lines
}

#[test]
fn up_tasks_are_bound_as_slurm_binds_them() {
    let Some(cluster) = machine("") else { return };
    let whole =
        |options: &str| cluster.shell(&format!("srun -N1 --exclusive {options} sh -c {TELL}"));
    for (options, tasks, label, masks, told) in [
        ("-n2 --cpu-bind=v", ["0 0", "1 1"], "MASK", ["0x1", "0x2"], "mask_cpu:0x1,0x2"),
        ("-n2 --cpu-bind=v,cores", ["0 0", "1 1"], "MASK", ["0x1", "0x2"], "mask_cpu:0x1,0x2"),
        ("-n2 --cpu-bind=v,threads", ["0 0", "1 1"], "MASK", ["0x1", "0x2"], "mask_cpu:0x1,0x2"),
        (
            "-n2 --cpu-bind=v,sockets",
            ["0 0,1", "1 0,1"],
            "MASK",
            ["0x3", "0x3"],
            "mask_cpu:0x3,0x3",
        ),
        ("-n2 --cpu-bind=v,ldoms", ["0 0,1", "1 0,1"], "MASK", ["0x3", "0x3"], "mask_cpu:0x3,0x3"),
        ("-n2 --cpu-bind=v,rank", ["0 0", "1 1"], "RANK", ["0x1", "0x2"], "rank"),
        ("-n2 --cpu-bind=v,map_cpu:1,0", ["0 1", "1 0"], "MAP ", ["0x2", "0x1"], "map_cpu:1,0"),
        (
            "-n2 --cpu-bind=v,mask_cpu:0x3,0x2",
            ["0 0,1", "1 1"],
            "MASK",
            ["0x3", "0x2"],
            "mask_cpu:3,2",
        ),
        ("-n2 --cpu-bind=v,rank_ldom", ["0 0,1", "1 0,1"], "LDRANK", ["0x3", "0x3"], "rank_ldom"),
        ("-n2 --cpu-bind=v,map_ldom:0", ["0 0,1", "1 0,1"], "LDMAP ", ["0x3", "0x3"], "map_ldom:0"),
        (
            "-n2 --cpu-bind=v,mask_ldom:1",
            ["0 0,1", "1 0,1"],
            "LDMASK",
            ["0x3", "0x3"],
            "mask_ldom:1",
        ),
    ] {
        let said = whole(options);
        assert_eq!(said.code, 0, "{options}: {said:?}");
        let told = tasks.map(|task| format!("{task} verbose,{told}"));
        assert_eq!(lines(&said), told, "{options}: {said:?}");
        let line = |(task, mask)| {
            format!("cpu-bind={label} - n1, task {task:2} {task:2}: mask {mask} set")
        };
        assert_eq!(reports(&said), [(0, masks[0]), (1, masks[1])].map(line), "{options}");
    }
    // Not bound: the CPUs of the group, and no mask is reported.
    let said = whole("-n2 --cpu-bind=v,none");
    assert_eq!(lines(&said), ["0 0,1 verbose,none", "1 0,1 verbose,none"], "{said:?}");
    assert_eq!(reports(&said)[0], "cpu-bind=NONE - n1, task  0  0: mask 0x0");
    // One task has all CPUs of its step; more tasks than CPUs share them.
    assert_eq!(lines(&whole("-n1")), ["0 0,1 quiet,mask_cpu:0x3"]);
    assert_eq!(lines(&whole("-n3 -O"))[2], "2 0,1 quiet,mask_cpu:0x3");
    // The variable is the option's default, and the tasks have it as given.
    let said = cluster.shell(&format!("SLURM_CPU_BIND=quiet,map_cpu:1 srun -n2 sh -c {TELL}"));
    assert_eq!(lines(&said), ["0 1 quiet,map_cpu:1", "1 1 quiet,map_cpu:1"], "{said:?}");
}

#[test]
fn up_a_cpu_binding_stays_within_the_steps_cpus() {
    let Some(cluster) = machine("") else { return };
    let said = cluster.shell("srun -n1 --cpu-bind=map_cpu:1 true");
    let why = "CPU binding outside of job step allocation, allocated CPUs are: 0x1.";
    assert!(said.code != 0 && said.stderr.contains(why), "{said:?}");
    assert!(said.stderr.contains("Unable to satisfy cpu bind request"), "{said:?}");
    let said = cluster.shell("srun -n1 --cpu-bind=rank true");
    assert!(said.code != 0, "{said:?}");
    assert!(said.stderr.contains("Entire node must be allocated for rank"), "{said:?}");
    // A mask is limited to the step: a step of one CPU in a job of two.
    let said =
        cluster.shell(&format!("salloc -Q -n2 srun -n1 --exact --cpu-bind=none sh -c {TELL}"));
    assert_eq!(lines(&said), ["0 0 quiet,mask_cpu:0x1"], "{said:?}");
    for (options, line) in [
        ("--cpu-bind=boards", "unrecognized --cpu-bind argument \"boards\""),
        ("--cpu-bind=map_cpu:", "missing list for \"--cpu-bind=map_cpu:<list>\""),
        ("--mem-bind=foo", "unrecognized --mem-bind argument \"foo\""),
    ] {
        let said = cluster.shell(&format!("srun {options} true"));
        assert!(said.code != 0 && said.stderr.contains(line), "{options}: {said:?}");
    }
}

#[test]
fn up_the_default_cpu_binding_is_configured() {
    let Some(cluster) = machine("TaskPlugin=task/affinity\nTaskPluginParam=Sockets,Verbose\n")
    else {
        return;
    };
    let said = cluster.shell(&format!("srun -n2 sh -c {TELL}"));
    assert_eq!(lines(&said)[0], "0 0,1 verbose,mask_cpu:0x3,0x3", "{said:?}");
    assert_eq!(reports(&said).len(), 2, "{said:?}");
    drop(cluster);
    let Some(cluster) = machine("TaskPlugin=task/cgroup\n") else { return };
    let said = cluster.shell(&format!("srun -n2 --cpu-bind=v,cores sh -c {TELL}"));
    assert_eq!(lines(&said), ["0 0,1", "1 0,1"], "nothing is bound, nothing is told: {said:?}");
    assert!(reports(&said).is_empty(), "{said:?}");
}

#[test]
fn up_memory_is_bound_to_its_numa_node() {
    let Some(cluster) = machine("") else { return };
    let policy = "'echo $SLURM_MEM_BIND; sed -n \"s/^[0-9a-f]* \\([a-z:0-9]*\\) heap.*/\\1/p\" /proc/self/numa_maps'";
    for (option, told, kernel, report) in [
        ("v,local", "verbose,local", "local", "mem-bind=LOC - n1, task  0  0: mask 0x1 set"),
        (
            "v,map_mem:0",
            "verbose,map_mem:0",
            "bind:0",
            "mem-bind=MAP - n1, task  0  0: mask 0x1 set",
        ),
        (
            "v,prefer,map_mem:0",
            "verbose,prefer,map_mem:0",
            "prefer:0",
            "mem-bind PREFER MAP - n1, task  0  0: mask 0x1 set",
        ),
        ("v,none", "verbose,none", "default", "mem-bind=NONE - n1, task  0  0: mask 0x1"),
    ] {
        let said = cluster.shell(&format!("srun -n1 --mem-bind={option} sh -c {policy}"));
        assert_eq!(said.code, 0, "{option}: {said:?}");
        let mut words = said.stdout.lines();
        assert_eq!(words.next(), Some(told), "{option}: {said:?}");
        assert_eq!(words.next(), Some(kernel), "{option}: {said:?}");
        assert_eq!(reports(&said), [report], "{option}: {said:?}");
    }
    let said = cluster.shell("srun -n1 --mem-bind=map_mem:63 true");
    assert!(said.code != 0, "{said:?}");
    assert!(
        said.stderr.contains("NUMA node 63 does not exist; cannot bind local task 0 to it"),
        "{said:?}"
    );
    // Steps of a batch job inherit its option.
    cluster.write("job.sh", "#!/bin/sh\nsrun sh -c 'echo $SLURM_MEM_BIND_TYPE'\n");
    cluster.submit(&["-o", "out", "--mem-bind=local", "job.sh"]);
    cluster.await_file("out", |text| text == "local\n");
}

#[test]
fn up_a_batch_script_is_bound_without_a_cpuset_group() {
    let Some(cluster) = folder("") else { return };
    cluster.write_conf("cgroup.conf", "ConstrainCores=no\n");
    cluster.start();
    cluster.write("job.sh", "#!/bin/sh\ntaskset -cp $$ | sed 's/.*: //'\n");
    cluster.submit(&["-o", "one", "-n1", "job.sh"]);
    let one = cluster.await_file("one", |text| text.ends_with('\n'));
    assert!(one == "0\n" || one == "1\n", "{one}");
    cluster.submit(&["-o", "two", "-n2", "job.sh"]);
    cluster.await_file("two", |text| text == "0,1\n");
}
