//! GPUs by files that play those of their drivers: AMD's, found, told to jobs and watched; NVIDIA's, divided into slices
//! that change under running jobs.

use super::gpu_health;
use crate::harness::{Cluster, until};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

/// Devices are not limited: the files that play them are not where jobs would open them.
fn cluster(gres: &str, detection: &str) -> Cluster {
    let conf = format!(
        "ClusterName=test\nGresTypes=gpu\nDefMemPerCPU=64\nKillWait=1\n\
         NodeName=node1 CPUs=2 RealMemory=500 Gres={gres}\n\
         PartitionName=main Nodes=node1 Default=YES State=UP\n"
    );
    let cluster = Cluster::folder(&conf);
    cluster.write_conf("gres.conf", &format!("AutoDetect={detection}\n"));
    cluster.write_conf("cgroup.conf", "ConstrainDevices=no\n");
    cluster
}

fn put(root: &Path, path: &str, text: &str) {
    let path = root.join(path);
    std::fs::create_dir_all(path.parent().expect("a folder")).expect("made");
    std::fs::write(path, text).expect("written");
}

/// Two GPUs of the compute driver's topology, linked to each other.
fn put_amd(root: &Path) {
    put(root, "dev/kfd", "");
    for (node, minor, bus) in [(1, 128, 0x05), (2, 129, 0x26)] {
        let topology = format!("sys/class/kfd/kfd/topology/nodes/{node}");
        put(root, &format!("{topology}/gpu_id"), "51966\n");
        let (place, id) = (bus << 8, 0xabc0 + node);
        let text = format!(
            "vendor_id 4098\nlocation_id {place}\ndomain 0\ndrm_render_minor {minor}\nunique_id {id}\n"
        );
        put(root, &format!("{topology}/properties"), &text);
        let link = format!("type 11\nnode_to {}\nmin_bandwidth 1\nmax_bandwidth 2\n", 3 - node);
        put(root, &format!("{topology}/io_links/0/properties"), &link);
        put(root, &format!("dev/dri/renderD{minor}"), "");
        let device = format!("sys/bus/pci/devices/0000:{bus:02x}:00.0");
        for (file, text) in [
            ("vendor", "0x1002\n"),
            ("device", "0x74a1\n"),
            ("mem_info_vram_total", "206158430208\n"),
            ("mem_info_vram_used", "1073741824\n"),
            ("gpu_busy_percent", "73\n"),
            ("ras/umc_err_count", "ue: 0\nce: 0\n"),
        ] {
            put(root, &format!("{device}/{file}"), text);
        }
        let drm = format!("sys/class/drm/renderD{minor}");
        std::fs::create_dir_all(root.join(&drm)).expect("made");
        symlink(format!("../../../../{device}"), root.join(drm).join("device")).expect("a link");
    }
}

#[test]
fn up_amd_gpus_are_found_told_to_jobs_and_watched() {
    let cluster = cluster("gpu:amd_instinct_mi300x:2", "rsmi");
    let root = cluster.path("gpus");
    put_amd(&root);
    let variables = [("SLUICE_GPU_ROOT", root.to_str().expect("utf-8"))];
    let printed = cluster.command(&["agent", "--print-config"]).envs(variables).output();
    let printed = String::from_utf8(printed.expect("it runs").stdout).expect("utf-8");
    for part in [
        " Gres=gpu:amd_instinct_mi300x:2\n",
        "Name=gpu Type=amd_instinct_mi300x File=/dev/dri/renderD128 Links=-1,2\n",
        "# GPU 1: AMD Instinct MI300X, 0000:26:00.0, GPU-000000000000abc2, 196608M\n",
    ] {
        assert!(printed.contains(part), "{part} in\n{printed}");
    }
    cluster.start_with(&variables);
    let shown = until("they are read", || {
        let shown = cluster.sluice(&["scontrol", "show", "node", "node1"]).ok();
        shown.contains("GPU=1").then_some(shown)
    });
    let line = "GPU=0 Model=AMD_Instinct_MI300X UUID=GPU-000000000000abc1 Memory=196608M Used=1024M Util=73% Health=ok";
    assert!(shown.contains(line), "{shown}");
    // Each job is told of its own by the one variable that its library reads.
    let first = cluster.submit_sleeper("-n1 --gres=gpu:1");
    cluster.await_state(first, "RUNNING");
    let told = "srun -n1 --gres=gpu:1 sh -c 'env | grep -E \"VISIBLE|ZE_AFF|ORDINAL\"'";
    assert_eq!(cluster.shell(told).ok(), "ROCR_VISIBLE_DEVICES=1\n");
    let wanted = format!(
        "DCGM_FI_DEV_GPU_UTIL{{gpu=\"0\",UUID=\"GPU-000000000000abc1\",model=\"AMD Instinct MI300X\",Hostname=\"node1\",hpc_job=\"{first}\""
    );
    until("its use is told with its job", || {
        gpu_health::metrics(&cluster).contains(&wanted).then_some(())
    });
    let sick = "ras/umc_err_count";
    put(&root, &format!("sys/bus/pci/devices/0000:05:00.0/{sick}"), "ue: 1\nce: 0\n");
    let drained = |state: &str| format!("{state}|GPU 0: 1 uncorrectable ECC errors");
    until("it fails", || (cluster.node_states() == drained("draining")).then_some(()));
    put(&root, &format!("sys/bus/pci/devices/0000:05:00.0/{sick}"), "ue: 0\nce: 0\n");
    until("it is well", || (cluster.node_states() == "mixed|none").then_some(()));
    // Without the device, the machine has less than its node.
    std::fs::remove_dir_all(root.join("sys/bus/pci/devices/0000:26:00.0")).expect("removed");
    let lost = "draining|GPU 1: lost: its driver does not show it any more";
    until("it is lost", || (cluster.node_states() == lost).then_some(()));
}

/// One GPU in these instances, with the driver's list of them.
fn put_slices(root: &Path, instances: &[u32]) {
    put(root, "dev/nvidia0", "");
    let text = "Model: \t NVIDIA H200\nGPU UUID: \t GPU-0\nDevice Minor: \t 0\n";
    put(root, "proc/driver/nvidia/gpus/0000:01:00.0/information", text);
    put(root, "proc/driver/nvidia/version", "NVRM version: x 580.65.06 x\n");
    let slices = "proc/driver/nvidia/capabilities/gpu0/mig";
    let (new, old) = (root.join("new-slices"), root.join(slices));
    let mut list = "GPU 0: NVIDIA H200 (UUID: GPU-0)\n".to_owned();
    for (at, instance) in instances.iter().enumerate() {
        for (path, right) in [("", instance * 10), ("/ci0", instance * 10 + 1)] {
            let access = format!("DeviceFileMinor: {right}\nDeviceFileMode: 292\n");
            put(root, &format!("new-slices/gi{instance}{path}/access"), &access);
        }
        list += &format!("  MIG 1g.18gb     Device  {at}: (UUID: MIG-{instance})\n");
    }
    let lister = format!("#!/bin/sh\ncat <<END\n{list}END\n");
    put(root, "usr/bin/nvidia-smi.new", &lister);
    let tool = root.join("usr/bin/nvidia-smi");
    std::fs::rename(root.join("usr/bin/nvidia-smi.new"), &tool).expect("renamed");
    std::fs::set_permissions(&tool, std::fs::Permissions::from_mode(0o755)).expect("chmod");
    let _ = std::fs::remove_dir_all(&old);
    std::fs::create_dir_all(old.parent().expect("a folder")).expect("made");
    std::fs::rename(new, old).expect("renamed");
}

fn slice(instance: u32) -> String {
    let right = |number: u32| format!("/dev/nvidia-caps/nvidia-cap{number}");
    format!("/dev/nvidia0,{},{}", right(instance * 10), right(instance * 10 + 1))
}

#[test]
fn up_slices_that_change_under_jobs_stop_none_and_keep_new_ones_away() {
    let cluster = cluster("gpu:nvidia_h200_1g.18gb:3", "nvml");
    let root = cluster.path("gpus");
    put_slices(&root, &[1, 2, 3]);
    let variables = [("SLUICE_GPU_ROOT", root.to_str().expect("utf-8"))];
    gpu_health::start_with(&cluster, "count 1\n", &variables);
    let waits = "echo $CUDA_VISIBLE_DEVICES; until [ -e go ]; do sleep 0.1; done; echo done";
    let jobs = ["first.out", "second.out"].map(|out| {
        let job = cluster.submit(&["-n1", "--gres=gpu:1", "-o", out, "--wrap", waits]);
        cluster.await_state(job, "RUNNING");
        job
    });
    put_slices(&root, &[2, 3, 4]);
    let reason = format!(
        "GPUs divided anew under jobs {},{} (gone: {}; new: {})",
        jobs[0],
        jobs[1],
        slice(1),
        slice(4)
    );
    until("the change is told", || {
        (cluster.node_states() == format!("inval|{reason}")).then_some(())
    });
    let said = |out: &str| cluster.read(out);
    until("the job whose slice is gone is told", || {
        let line = "sluice: node1: GPUs of this job are gone: /dev/nvidia-caps/nvidia-cap10,";
        said("first.out").contains(line).then_some(())
    });
    let third = cluster.submit(&[
        "-n1",
        "--gres=gpu:1",
        "-o",
        "third.out",
        "--wrap",
        "echo $CUDA_VISIBLE_DEVICES",
    ]);
    cluster.await_state(third, "PENDING");
    jobs.iter().for_each(|job| cluster.await_state(*job, "RUNNING"));
    cluster.write("go", "");
    jobs.iter().for_each(|job| assert_eq!(cluster.await_end(*job), "COMPLETED|0:0"));
    assert_eq!(said("second.out"), "MIG-2\ndone\n", "its slice is still there");
    assert!(said("first.out").starts_with("MIG-1\n"), "{}", said("first.out"));
    // Nobody has slices of the former division any more.
    assert_eq!(cluster.await_end(third), "COMPLETED|0:0");
    assert_eq!(said("third.out"), "MIG-2\n");
    assert_eq!(cluster.node_states(), "idle|none");
    put_slices(&root, &[2, 3]);
    let short = "inval|gres/gpu count reported lower than configured (2 < 3)";
    until("a slice is missing", || (cluster.node_states() == short).then_some(()));
}
