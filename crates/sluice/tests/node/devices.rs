//! Devices: jobs can open what they were granted and nothing else, and the variables agree. Device nodes of drivers that
//! every kernel has play the GPUs.

use crate::harness::{Cluster, sorted_lines, until};
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

const ONE_NODE: &str = "\
ClusterName=test
GresTypes=gpu,shard,fpga
SlurmdParameters=config_overrides
DefMemPerCPU=32
KillWait=1
NodeName=node1 CPUs=8 RealMemory=2000 Gres=gpu:3,shard:6,fpga:1
PartitionName=main Nodes=node1 Default=YES State=UP
";

/// The numbers of zero, full and fuse, which every permitted process can open.
const NUMBERS: [(&str, &str, &str); 4] =
    [("gpu0", "1", "5"), ("gpu1", "1", "7"), ("gpu2", "10", "229"), ("fpga", "10", "200")];

/// A cluster with three GPUs, shards of them and an FPGA; with this `cgroup.conf`, or none.
fn cluster(cgroup_conf: Option<&str>) -> Cluster {
    let cluster = Cluster::folder(ONE_NODE);
    for (name, major, minor) in NUMBERS {
        let path = cluster.path(name);
        let mut made = Command::new("mknod");
        made.args(["-m", "666"]).arg(&path).args(["c", major, minor]);
        assert!(made.status().expect("run mknod").success(), "run as root: this makes devices");
    }
    let at = |name: &str| cluster.path(name).to_str().expect("utf-8").to_owned();
    let gres = format!(
        "Name=gpu File={}\nName=gpu File={}\nName=gpu File={}\nName=shard Count=6\nName=fpga File={}\n",
        at("gpu0"),
        at("gpu1"),
        at("gpu2"),
        at("fpga")
    );
    cluster.write_conf("gres.conf", &gres);
    if let Some(text) = cgroup_conf {
        cluster.write_conf("cgroup.conf", text);
    }
    cluster.start();
    // Prints the names of the devices that can be opened.
    let folder = at("");
    let folder = folder.trim_end_matches('/');
    let script = format!(
        "#!/bin/bash\nfor device in gpu0 gpu1 gpu2 fpga; do \
         if (exec 3< {folder}/$device) 2> /dev/null; then echo -n \"$device \"; fi; done\n\
         echo \"| ${{CUDA_VISIBLE_DEVICES-unset}} | ${{SLURM_STEP_GPUS:-$SLURM_JOB_GPUS}}\"\n"
    );
    let look = cluster.write("look", &script);
    let anybody = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(look, anybody).expect("chmod");
    cluster
}

#[test]
fn root_a_job_opens_its_own_devices_and_no_other() {
    for plugin in ["autodetect", "cgroup/v1"] {
        let conf = format!("CgroupPlugin={plugin}\nConstrainDevices=yes\n");
        let cluster = cluster(Some(&conf));
        assert_eq!(cluster.run_script(&[], "./look"), "|  | \n", "{plugin}: none of them");
        assert_eq!(cluster.run_script(&["--gres=gpu:1"], "./look"), "gpu0 | 0 | 0\n", "{plugin}");
        let all = cluster.run_script(&["--gres=gpu:3,fpga:1"], "./look");
        assert_eq!(all, "gpu0 gpu1 gpu2 fpga | 0,1,2 | 0,1,2\n", "{plugin}");
        // A second job has the second GPU, which is index 0 for it.
        cluster.write("first.sh", "#!/bin/bash\nsleep 600\n");
        let first = cluster.submit(&["--gres=gpu:1", "first.sh"]);
        cluster.await_state(first, "RUNNING");
        assert_eq!(cluster.run_script(&["--gres=gpu:1"], "./look"), "gpu1 | 0 | 1\n", "{plugin}");
        cluster.sluice(&["scancel", &first.to_string()]).ok();
    }
}

#[test]
fn root_a_device_node_made_by_mknod_cannot_be_opened() {
    let cluster = cluster(None);
    let script = "mknod alias c 1 7 && echo made; (exec 3< alias) && echo opened; echo done";
    let text = cluster.run_script(&["--gres=gpu:1"], script);
    assert!(text.ends_with("done\n") && !text.contains("opened"), "{text}");
    let text = cluster.run_script(&["--gres=gpu:2"], script);
    assert!(text.contains("made\n") && text.contains("opened\n"), "its own it may: {text}");
}

#[test]
fn root_a_step_opens_only_its_own_part_of_the_jobs_devices() {
    let cluster = cluster(None);
    let meet = "until [ $(ls met.* | wc -l) -eq 2 ]; do sleep 0.05; done";
    let step = |gpus: u32| {
        format!(
            "srun --exact -n1 --mem=40 --gres=gpu:{gpus} sh -c './look; touch met.{gpus}; {meet}' &"
        )
    };
    let script =
        format!("./look; {} {} wait\nsrun --gres=none --mem=40 -n1 ./look", step(1), step(2));
    let text = cluster.run_script(&["-n3", "--gres=gpu:3"], &script);
    let found = sorted_lines(&text);
    assert_eq!(found.len(), 4, "{text}");
    assert!(found.contains(&"gpu0 gpu1 gpu2 | 0,1,2 | 0,1,2"), "the script has all: {text}");
    assert!(found.contains(&"|  | 0,1,2"), "a step without any has none: {text}");
    // The order of the two steps is open: they share nothing, and both count from zero.
    let of_one = found.iter().find(|line| line.contains("| 0 |")).expect("the step with one");
    let of_two = found.iter().find(|line| line.contains("| 0,1 |")).expect("the step with two");
    let opened = |line: &str| line.split(" |").next().unwrap_or_default().to_owned();
    let both = format!("{} {}", opened(of_one), opened(of_two));
    let mut all: Vec<&str> = both.split(' ').collect();
    all.sort_unstable();
    assert_eq!(all, ["gpu0", "gpu1", "gpu2"], "{text}");
}

#[test]
fn root_tasks_have_the_variables_of_their_gpus() {
    let cluster = cluster(None);
    let show = "sh -c 'echo $SLURM_PROCID: $CUDA_VISIBLE_DEVICES'";
    for (options, expected) in [
        ("--gpus-per-task=1", ["0: 0", "1: 1", "2: 2"]),
        ("--gpus-per-task=1 --gpu-bind=none", ["0: 0,1,2", "1: 0,1,2", "2: 0,1,2"]),
        ("--gres=gpu:3", ["0: 0,1,2", "1: 0,1,2", "2: 0,1,2"]),
        ("--gres=gpu:3 --gpu-bind=map_gpu:2,0", ["0: 2", "1: 0", "2: 2"]),
        ("--gres=gpu:3 --gpu-bind=mask_gpu:0x6,1", ["0: 1,2", "1: 0", "2: 1,2"]),
        ("--gres=gpu:3 --gpu-bind=single:2", ["0: 0", "1: 0", "2: 1"]),
        ("--gres=gpu:3 --gpu-bind=per_task:1", ["0: 0", "1: 1", "2: 2"]),
        ("--gres=gpu:3 --gpu-bind=closest", ["0: 0,1,2", "1: 0,1,2", "2: 0,1,2"]),
    ] {
        let said = cluster.shell(&format!("srun -n3 {options} {show}")).ok();
        assert_eq!(sorted_lines(&said), expected, "{options}");
    }
}

#[test]
fn root_a_job_with_a_shard_opens_the_gpu_of_the_shard() {
    let cluster = cluster(None);
    let text = cluster.run_script(&["--gres=shard:1"], "./look");
    assert!(text.starts_with("gpu0 |"), "{text}");
    // A job's shards are of one GPU, which has two here.
    let text = cluster.run_script(&["--gres=shard:2"], "./look");
    assert!(text.starts_with("gpu0 |"), "{text}");
    let refused = cluster.shell("sbatch --gres=shard:3 --wrap true");
    assert!(
        refused.stderr.contains("Requested node configuration is not available"),
        "{refused:?}"
    );
}

#[test]
fn root_without_constrain_devices_gpus_keep_their_own_indices() {
    let cluster = cluster(Some("ConstrainRAMSpace=yes\n"));
    cluster.write("first.sh", "#!/bin/bash\nsleep 600\n");
    let first = cluster.submit(&["--gres=gpu:1", "first.sh"]);
    cluster.await_state(first, "RUNNING");
    let text = cluster.run_script(&["--gres=gpu:1"], "./look");
    assert_eq!(text, "gpu0 gpu1 gpu2 fpga | 1 | 1\n");
    assert_eq!(cluster.run_script(&[], "./look"), "gpu0 gpu1 gpu2 fpga |  | \n");
    cluster.sluice(&["scancel", &first.to_string()]).ok();
}

#[test]
fn root_a_gres_file_that_is_no_device_drains_the_node() {
    let cluster = Cluster::folder(ONE_NODE);
    let plain = cluster.write("plain", "");
    let gres = format!("Name=gpu File={}\nName=gpu Count=2\n", plain.display());
    cluster.write_conf("gres.conf", &gres);
    cluster.start();
    let doctor = until("the node says so", || {
        let said = cluster.sluice(&["doctor"]).stdout;
        said.contains("is not a device").then_some(said)
    });
    assert!(doctor.contains(&format!("File={} is not a device", plain.display())), "{doctor}");
    cluster.write("job.sh", "#!/bin/bash\ntouch ran\n");
    let id = cluster.submit(&["--gres=gpu:1", "job.sh"]);
    let node = until("the node is drained", || {
        let said = cluster.sluice(&["scontrol", "show", "node", "node1"]).ok();
        said.contains("DRAIN").then_some(said)
    });
    assert!(node.contains("is not a device"), "{node}");
    assert!(!cluster.path("work/ran").exists(), "it did not run");
    cluster.sluice(&["scancel", &id.to_string()]).ok();
}

#[test]
fn root_allowed_devices_are_open_to_every_job() {
    let look = "(exec 3< /dev/kmsg) 2> /dev/null && echo opened; exit 0";
    let strict = cluster(Some("ConstrainDevices=yes\n"));
    assert_eq!(strict.run_script(&[], look), "", "nobody granted it");
    let loose = cluster(Some("ConstrainDevices=yes\nAllowedDevices=/dev/kvm,/dev/kms*\n"));
    assert_eq!(loose.run_script(&[], look), "opened\n");
    assert_eq!(loose.run_script(&[], "./look"), "|  | \n", "but no GPU");
}

#[test]
fn root_up_gpu_bind_verbose_reports_the_bound_gpus() {
    for (conf, local, inx) in
        [("ConstrainDevices=yes\n", [0, 1], 2), ("ConstrainDevices=no\n", [1, 2], 0)]
    {
        let cluster = cluster(Some(conf));
        // The first GPU belongs to another job.
        cluster.write("first.sh", "#!/bin/bash\nsleep 600\n");
        let first = cluster.submit(&["--gres=gpu:1", "first.sh"]);
        cluster.await_state(first, "RUNNING");
        let said = cluster.shell(
            "srun -n2 --gres=gpu:2 --gpu-bind=verbose,single:1 sh -c 'echo $CUDA_VISIBLE_DEVICES'",
        );
        let line = |at: usize| {
            let (global, local) = (at + 1, local[at]);
            format!(
                "gpu-bind: usable_gres=0x{:X}; bit_alloc=0x6; local_inx={inx}; global_list={global}; local_list={local}",
                1 << local
            )
        };
        assert_eq!(sorted_lines(&said.stderr), [line(0), line(1)], "{conf}");
        assert_eq!(sorted_lines(&said.ok()), local.map(|n| n.to_string()), "{conf}");
        let said = cluster
            .shell("srun -n2 --gres=gpu:2 --gpu-bind=map_gpu:7 sh -c 'echo $SLURM_STEP_GPUS'");
        let first = "slurmstepd: error: Bind request gpu:map_gpu:7 does not specify any devices within the allocation \
                     for task 0. Binding to the first device in the allocation instead.";
        assert_eq!(sorted_lines(&said.stderr)[0], first);
        assert_eq!(said.ok(), "1\n1\n", "{conf}");
        let quiet = cluster.shell("srun -n1 --gres=gpu:2 --gpu-bind=verbose,closest true");
        assert_eq!(quiet.stderr, "", "one task is not bound");
        let bad = cluster.shell("srun -n2 --gres=gpu:2 --gpu-bind=verbose true");
        assert_eq!(
            (bad.code, bad.stderr.as_str()),
            (255, "srun: error: Invalid --gpu-bind argument: gpu:verbose\n")
        );
    }
}
