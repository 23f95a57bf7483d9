//! `--cpu-freq` with a folder that plays the kernel's: CPUs are set for a step, and set back whatever ends it.

use crate::harness::processes::supervisors;
use crate::harness::{Cluster, signal, until};
use std::path::Path;

const ONE_NODE: &str = "\
ClusterName=test
DefMemPerCPU=64
KillWait=1
TaskPlugin=task/cgroup,task/affinity
NodeName=node1 CPUs=2 RealMemory=500
PartitionName=main Nodes=node1 Default=YES State=UP
";

const BEFORE: &str = "schedutil 800000-3000000";

fn make_cpus(sysfs: &Path) {
    for cpu in ["0", "1"] {
        let folder = sysfs.join(format!("cpu{cpu}/cpufreq"));
        std::fs::create_dir_all(&folder).expect("made");
        for (name, text) in [
            ("scaling_governor", "schedutil\n"),
            ("scaling_min_freq", "800000\n"),
            ("scaling_max_freq", "3000000\n"),
            ("scaling_setspeed", "<unsupported>\n"),
            ("affected_cpus", cpu),
            ("cpuinfo_min_freq", "800000\n"),
            ("cpuinfo_max_freq", "3000000\n"),
            ("scaling_available_frequencies", "3000000 2000000 800000\n"),
        ] {
            std::fs::write(folder.join(name), text).expect("written");
        }
    }
}

#[test]
fn root_frequency_of_a_steps_cpus_is_set_and_set_back_whatever_ends_it() {
    let cluster = Cluster::folder(ONE_NODE);
    let sysfs = cluster.path("sys");
    make_cpus(&sysfs);
    let sys = sysfs.to_str().expect("utf-8").to_owned();
    cluster.start_with(&[("SLUICE_CPU_SYSFS", &sys)]);
    let shown = |cpu: u32| {
        let read = |name: &str| {
            let path = sysfs.join(format!("cpu{cpu}/cpufreq/{name}"));
            std::fs::read_to_string(path).unwrap_or_default().trim().to_owned()
        };
        let range = format!("{}-{}", read("scaling_min_freq"), read("scaling_max_freq"));
        format!("{} {range}", read("scaling_governor"))
    };
    let all_as_before =
        || until("as before", || (0..2).all(|cpu| shown(cpu) == BEFORE).then_some(()));
    let look = "'cd $SYS/cpu1/cpufreq; cat scaling_governor scaling_min_freq scaling_max_freq; \
                echo $SLURM_CPU_FREQ_REQ'";
    let run = |options: &str| {
        let said = cluster.shell(&format!("SYS={sys} srun -n1 -c2 {options} sh -c {look}"));
        (said.code, said.stdout.split_whitespace().collect::<Vec<_>>().join(" "), said.stderr)
    };
    let set = |text: &str| (0, text.to_owned(), String::new());
    assert_eq!(run("--cpu-freq=highm1"), set("userspace 2000000 2000000 HighM1"));
    all_as_before();
    assert_eq!(
        run("--cpu-freq=low-2000000:performance"),
        set("performance 800000 2000000 Low-2000000:Performance")
    );
    all_as_before();
    assert_eq!(run(""), set("schedutil 800000 3000000"), "nothing was asked for");
    // A governor that the site does not allow is not set, and the step goes on.
    let (code, text, error) = run("--cpu-freq=powersave");
    assert_eq!((code, text.as_str()), (0, "schedutil 800000 3000000 PowerSave"));
    assert_eq!(
        error,
        "slurmstepd: error: --cpu-freq: the governor powersave is not one of CpuFreqGovernors\n"
    );
    // The steps of a script have its wish.
    let script =
        format!("export SYS={sys}; cat {sys}/cpu1/cpufreq/scaling_governor; srun sh -c {look}");
    let text = cluster.run_script(&["-n1", "-c2", "--cpu-freq=performance"], &script);
    let words: Vec<&str> = text.split_whitespace().collect();
    assert_eq!(words, ["schedutil", "performance", "800000", "3000000", "Performance"]);
    all_as_before();
    // Neither a supervisor that is killed nor an agent that is leaves anything.
    let mut step = cluster.spawn(&["srun", "-n1", "-c2", "--cpu-freq=low", "sleep", "600"]);
    until("it is set", || (shown(1) == "userspace 800000-800000").then_some(()));
    let running = cluster.shell("scontrol show step $(squeue -h -o %i)").ok();
    assert!(running.contains("CPUFreqReq=Low\n"), "{running}");
    let columns = "ReqCPUFreq,ReqCPUFreqMin,ReqCPUFreqMax,ReqCPUFreqGov";
    let live = cluster.shell(&format!("sstat -n -P -o {columns} -j $(squeue -h -o %i).0")).ok();
    assert_eq!(live, "Low|Unknown|Low|UserSpace\n");
    cluster.kill_alone("agent");
    assert_eq!(shown(1), "userspace 800000-800000", "the step runs");
    for pid in supervisors(&cluster.state()) {
        signal(pid, "KILL");
    }
    all_as_before();
    step.wait().expect("it ends");
    // The books have what each step asked for.
    let booked = cluster.shell(&format!("sacct -n -P -o JobID,{columns}")).ok();
    for line in [
        "1.0|HighM1|Unknown|HighM1|UserSpace",
        "2.0|2000000|Low|2000000|Performance",
        "3.0|Unknown|Unknown|Unknown|Unknown",
    ] {
        assert!(booked.lines().any(|have| have == line), "{line} in\n{booked}");
    }
    // A site's own governor, for who asks for none.
    cluster.write_conf(
        "slurm.conf",
        &format!("{ONE_NODE}CpuFreqDef=OnDemand\nCpuFreqGovernors=PowerSave\n"),
    );
    cluster.shell("scontrol reconfigure").ok();
    until("the site's", || (run("") == set("ondemand 800000 3000000")).then_some(()));
    assert_eq!(run("--cpu-freq=powersave"), set("powersave 800000 3000000 PowerSave"));
    all_as_before();
    // One frequency needs a governor that the site does not allow.
    let (_, text, error) = run("--cpu-freq=low");
    assert!(text.ends_with("800000 3000000 Low"), "{text}");
    assert_eq!(
        error,
        "slurmstepd: error: --cpu-freq: the governor userspace is not one of CpuFreqGovernors\n"
    );
    // A machine whose CPUs have no frequencies: one line for who asked, none for others.
    std::fs::remove_dir_all(&sysfs).expect("removed");
    let said = cluster.shell("srun -n1 --cpu-freq=powersave true");
    let line =
        "slurmstepd: error: --cpu-freq: this machine's CPUs have no frequencies that can be set\n";
    assert_eq!((said.code, said.stderr.as_str()), (0, line));
    assert_eq!(cluster.shell("srun -n1 true").stderr, "");
    let wrong = cluster.shell("srun --cpu-freq=fast true");
    assert_ne!(wrong.code, 0);
    assert!(wrong.stderr.contains("Invalid --cpu-freq argument"), "{}", wrong.stderr);
    cluster.write_conf("slurm.conf", &format!("{ONE_NODE}CpuFreqDef=Fast\n"));
    let refused = cluster.shell("scontrol reconfigure");
    assert!(refused.code != 0 && refused.stderr.contains("CpuFreqDef"), "{}", refused.stderr);
}

/// The frequency at which a step's processes are seen to run, while it runs and in the books.
#[test]
fn up_frequency_at_which_tasks_ran_is_in_sstat_and_sacct() {
    let cluster = Cluster::folder(ONE_NODE);
    let sysfs = cluster.path("sys");
    for cpu in 0..std::thread::available_parallelism().expect("CPUs").get() {
        let folder = sysfs.join(format!("cpu{cpu}/cpufreq"));
        std::fs::create_dir_all(&folder).expect("made");
        std::fs::write(folder.join("scaling_cur_freq"), "2400000\n").expect("written");
    }
    cluster.start_with(&[("SLUICE_CPU_SYSFS", sysfs.to_str().expect("utf-8"))]);
    let script = "srun -n1 sh -c 'echo > ready; until [ -e go ]; do sleep 0.05; done'";
    let job = cluster.submit(&["-n1", "-o", "out", "--wrap", script]);
    cluster.await_file("ready", |_| true);
    let step = format!("{job}.0");
    let asked = |program: &str| {
        cluster.sluice(&[program, "-n", "-P", "-j", &step, "-o", "AveCPUFreq"]).ok()
    };
    assert_eq!(asked("sstat"), "2.40G\n");
    cluster.write("go", "");
    assert_eq!(cluster.await_end(job), "COMPLETED|0:0", "{}", cluster.read("out"));
    until("the books have it", || (asked("sacct") == "2.40G\n").then_some(()));
}
