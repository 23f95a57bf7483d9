//! Hostile jobs of an ordinary user and of root: they can be ended, leave nothing behind, and do not affect others. Needs
//! root.

use crate::harness::{Cluster, is_alive, until};
use std::path::PathBuf;

fn up() -> Cluster {
    let cluster = Cluster::folder("");
    let scratch = cluster.path("scratch");
    std::fs::create_dir(&scratch).unwrap();
    cluster.write_conf(
        "slurm.conf",
        &format!(
            "ClusterName=test\nSlurmdParameters=config_overrides\nDefMemPerCPU=100\n\
             KillWait=1 AuthInfo=cred_expire=0\nTmpFS={}\nNodeName=node1 CPUs=8 RealMemory=4000\n\
             PartitionName=main Nodes=node1 Default=YES State=UP\n",
            scratch.display()
        ),
    );
    cluster.start();
    cluster
}

/// Submits the script as this user; its job id. The output is `out.ID`.
fn submit(cluster: &Cluster, user: &str, script: &str) -> String {
    cluster.write("job.sh", &format!("#!/bin/bash\n{script}\n"));
    let said = cluster.shell_as(user, "sbatch --parsable --no-requeue -o out.%j job.sh");
    said.ok().trim().to_owned()
}

fn output(cluster: &Cluster, job: &str) -> String {
    cluster.read(&format!("out.{job}"))
}

/// Checks that no group and no scratch folder is left, the node is idle, and the next job runs on it.
fn nothing_is_left(cluster: &Cluster) {
    until("no group is left", || cluster.groups().is_empty().then_some(()));
    let scratch = cluster.path("scratch");
    let left: Vec<PathBuf> = std::fs::read_dir(&scratch)
        .unwrap()
        .flatten()
        .flat_map(|node| std::fs::read_dir(node.path()).unwrap().flatten().map(|job| job.path()))
        .collect();
    assert_eq!(left, Vec::<PathBuf>::new());
    let mounts = std::fs::read_to_string("/proc/mounts").unwrap();
    assert!(!mounts.contains(scratch.to_str().unwrap()), "{mounts}");
    assert_eq!(cluster.sluice(&["sinfo", "-h", "-N", "-o", "%T|%E"]).ok(), "idle|none\n");
    let next = cluster.submit(&["-o", "/dev/null", "--wrap", "exit 4"]);
    assert_eq!(cluster.await_end(next), "FAILED|4:0");
}

#[test]
fn root_a_users_job_cannot_change_its_limits() {
    let cluster = up();
    let job = submit(
        &cluster,
        "daemon",
        "try() { \"$@\" > /dev/null 2>&1 && echo \"could: $*\"; echo tried; }\n\
         try prlimit --pid $PPID --nofile=3\n\
         try renice -n -20 $$\n\
         try renice -n 19 $PPID\n\
         try chrt -f -p 10 $$\n\
         try taskset -cp 0 $PPID\n\
         try kill -STOP $PPID\n\
         try kill -KILL $PPID\n\
         try cat /proc/$PPID/environ\n\
         try ls /proc/$PPID/fd\n\
         try mv $SLURM_TMPDIR $SLURM_TMPDIR.away\n\
         try ln -s /etc ${SLURM_TMPDIR%/*}/other\n\
         try mount -t tmpfs tmpfs $SLURM_TMPDIR\n\
         for p in $(pgrep sluice); do try kill -STOP $p; done\n\
         rmdir $SLURM_TMPDIR 2> /dev/null; ulimit -n 5; exit 3",
    );
    assert_eq!(cluster.await_end(&job), "FAILED|3:0", "{}", output(&cluster, &job));
    let text = output(&cluster, &job);
    assert!(text.matches("tried\n").count() >= 13 && !text.contains("could"), "{text}");
    nothing_is_left(&cluster);
}

#[test]
fn root_a_manipulated_scratch_folder_is_removed_and_link_targets_stay() {
    let cluster = up();
    let precious = cluster.path("work").join("precious");
    std::fs::create_dir(&precious).unwrap();
    std::fs::write(precious.join("kept"), "x").unwrap();
    let at = precious.display();
    let table = [
        (
            "closed folders",
            "daemon",
            "cd $SLURM_TMPDIR; mkdir -p a/b; touch a/b/x; chmod 000 a/b a .".into(),
        ),
        ("links", "daemon", format!("ln -s {at} $SLURM_TMPDIR/link; ln -s / $SLURM_TMPDIR/root")),
        (
            "a pipe and its reader",
            "daemon",
            "mkfifo $SLURM_TMPDIR/p; setsid cat $SLURM_TMPDIR/p &".into(),
        ),
        (
            "a mount that the machine does not see",
            "daemon",
            "unshare -Urm sh -c 'mount -t tmpfs tmpfs $SLURM_TMPDIR; setsid sleep 600 &'".into(),
        ),
        ("a link in its place", "root", format!("rm -r $SLURM_TMPDIR; ln -s {at} $SLURM_TMPDIR")),
        ("a file in its place", "root", "rm -r $SLURM_TMPDIR; echo x > $SLURM_TMPDIR".into()),
        (
            "mounts over it",
            "root",
            format!("mount -t tmpfs tmpfs $SLURM_TMPDIR; mount --bind {at} $SLURM_TMPDIR"),
        ),
        (
            "a mount in it",
            "root",
            format!(
                "mkdir $SLURM_TMPDIR/m; mount --bind {at} $SLURM_TMPDIR/m; test -e $SLURM_TMPDIR/m/kept"
            ),
        ),
        (
            "files that may not be changed",
            "root",
            "cd $SLURM_TMPDIR; mkdir d; touch d/x y; chattr +a d/x; chattr +i y d .; true".into(),
        ),
    ];
    for (what, user, script) in table {
        let job = submit(&cluster, user, &script);
        let end = cluster.await_end(&job);
        assert_eq!(end, "COMPLETED|0:0", "{what}: {}", output(&cluster, &job));
        nothing_is_left(&cluster);
        assert!(precious.join("kept").exists(), "{what}");
    }
}

#[test]
fn root_a_root_job_that_leaves_its_cgroups_is_still_ended() {
    let cluster = up();
    // A process that leaves every group, its session and its parent, and ignores signals.
    let script = "for procs in /sys/fs/cgroup/cgroup.procs /sys/fs/cgroup/*/cgroup.procs; do echo $$ > $procs; done 2> /dev/null\n\
         (trap '' TERM HUP INT; setsid sh -c 'echo $$ > escaped; sleep 600 & echo $! > child; while :; do sleep 600; done' &) > /dev/null 2>&1\n\
         until [ -s child ]; do sleep 0.05; done; cat /proc/self/cgroup; exit 3";
    let job = submit(&cluster, "root", script);
    assert_eq!(cluster.await_end(&job), "FAILED|3:0");
    let text = output(&cluster, &job);
    assert!(!text.contains("job_"), "it has left its groups: {text}");
    for name in ["escaped", "child"] {
        let pid = cluster.read(name).trim().parse().expect("a pid");
        until(&format!("{name} is dead"), || (!is_alive(pid)).then_some(()));
    }
    nothing_is_left(&cluster);
}

#[test]
fn root_a_root_job_that_stops_its_supervisor_can_be_cancelled() {
    let cluster = up();
    let job = submit(&cluster, "root", "kill -STOP $PPID; echo $$ > pid; sleep 600");
    let pid = cluster.await_file("pid", |text| text.ends_with('\n')).trim().parse().unwrap();
    cluster.sluice(&["scancel", &job]).ok();
    assert!(cluster.await_end(&job).starts_with("CANCELLED"));
    until("it is dead", || (!is_alive(pid)).then_some(()));
    nothing_is_left(&cluster);
}

#[test]
fn root_a_root_job_that_freezes_its_cgroup_can_be_cancelled() {
    let cluster = up();
    let script = "touch frozen; while IFS=: read -r _ names path; do\n\
         for top in /sys/fs/cgroup /sys/fs/cgroup/unified /sys/fs/cgroup/freezer; do\n\
         case $top,$names in */freezer,freezer) echo FROZEN > $top$path/freezer.state;; */freezer,*) ;; *,) echo 1 > $top$path/cgroup.freeze;; esac\n\
         done; done < /proc/self/cgroup 2> /dev/null; touch went.on; sleep 600";
    let job = submit(&cluster, "root", script);
    cluster.await_file("frozen", |_| true);
    cluster.sluice(&["scancel", &job]).ok();
    assert!(cluster.await_end(&job).starts_with("CANCELLED"));
    assert!(!cluster.path("work/went.on").exists(), "it stood still");
    nothing_is_left(&cluster);
}

#[test]
fn root_a_job_without_its_work_folder_runs_in_tmp_and_reports_it() {
    let cluster = up();
    std::fs::create_dir(cluster.path("work/gone")).unwrap();
    let out = cluster.path("work/out");
    let line = format!("cd gone; sbatch --parsable -H -o {} --wrap 'pwd; srun pwd'", out.display());
    let job = cluster.shell(&line).ok().trim().to_owned();
    std::fs::remove_dir(cluster.path("work/gone")).unwrap();
    cluster.sluice(&["scontrol", "release", &job]).ok();
    assert_eq!(cluster.await_end(&job), "COMPLETED|0:0", "{}", cluster.read("out"));
    let text = cluster.read("out");
    assert!(text.contains("couldn't chdir to") && text.contains("\n/tmp\n"), "{text}");
    // The folder is removed while the job is in it.
    let job = submit(&cluster, "root", "mkdir left; cd left; rmdir ../left; srun true; exit 3");
    assert_eq!(cluster.await_end(&job), "FAILED|3:0", "{}", output(&cluster, &job));
    nothing_is_left(&cluster);
}

#[test]
fn root_extreme_amounts_are_enforced_or_refused() {
    let cluster = up();
    let held = |mem: &str| {
        let script = "path=$(grep -E 'memory|^0::' /proc/self/cgroup | head -n 1 | cut -d: -f3); path=${path%/step_batch}\n\
             cat /sys/fs/cgroup/memory$path/memory.limit_in_bytes /sys/fs/cgroup$path/memory.max 2> /dev/null; true";
        cluster.write("job.sh", &format!("#!/bin/bash\n{script}\n"));
        let id = cluster.submit(&[mem, "-o", "held", "job.sh"]);
        assert_eq!(cluster.await_end(id), "COMPLETED|0:0", "{mem}");
        cluster.read("held").lines().next().and_then(|line| line.parse::<u64>().ok())
    };
    // Too little memory is raised to the minimum; zero means all of the node.
    for (mem, mib) in [("--mem=1K", 30), ("--mem=1M", 30), ("--mem=64", 64), ("--mem=0", 4000)] {
        assert_eq!(held(mem), Some(mib << 20), "{mem}");
    }
    for line in [
        "sbatch -c9 --wrap true",
        "sbatch -N1 -n9 --wrap true",
        "srun -c9 true",
        "sbatch --mem=4001 --wrap true",
    ] {
        let said = cluster.shell(line);
        assert_eq!(said.code, 1, "{line}: {said:?}");
        assert!(
            said.stderr.contains("Requested node configuration is not available")
                || said.stderr.contains("Memory specification can not be satisfied"),
            "{line}: {said:?}"
        );
    }
    assert_eq!(cluster.sluice(&["squeue", "-h"]).ok(), "", "nothing was taken");
}

#[test]
fn root_shared_memory_files_count_for_the_job_that_fills_them() {
    let cluster = up();
    let file = format!("/dev/shm/sluice-test-{}", std::process::id());
    let script = format!("dd if=/dev/zero of={file} bs=1M count=300");
    cluster.write("job.sh", &format!("#!/bin/bash\n{script}\n"));
    let id = cluster.submit(&["--mem=100", "-o", "out", "job.sh"]);
    let end = cluster.await_end(id);
    let there = std::fs::metadata(&file).map(|m| m.len()).unwrap_or(0);
    let _ = std::fs::remove_file(&file);
    assert_eq!(end, "OUT_OF_MEMORY|0:125", "{}", cluster.read("out"));
    assert!(there <= 110 << 20, "{there} bytes are there");
    nothing_is_left(&cluster);
}
