//! GPUs by files that play those of their drivers: AMD's, found, told to jobs and watched; accelerators; NVIDIA's, divided
//! into slices that change under running jobs. Energy by files that play the processors' counters.

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

/// A Gaudi and a Tenstorrent card, with their sensors.
fn put_accelerators(root: &Path) {
    let gaudi = "sys/class/accel/accel0/device";
    let tenstorrent = "sys/class/tenstorrent/tenstorrent!0";
    for (path, text) in [
        (format!("{gaudi}/vendor"), "0x1da3\n"),
        (format!("{gaudi}/device_type"), "GAUDI2\n"),
        (format!("{gaudi}/status"), "operational\n"),
        (format!("{gaudi}/hwmon/hwmon1/temp1_input"), "47000\n"),
        (format!("{gaudi}/hwmon/hwmon1/power1_input"), "101000000\n"),
        ("dev/accel/accel0".to_owned(), ""),
        ("dev/accel/accel_controlD0".to_owned(), ""),
        (format!("{tenstorrent}/device/vendor"), "0x1e52\n"),
        (format!("{tenstorrent}/device/hwmon/hwmon2/temp1_input"), "52000\n"),
        (format!("{tenstorrent}/tt_card_type"), "n300\n"),
        ("dev/tenstorrent/0".to_owned(), ""),
    ] {
        put(root, &path, text);
    }
}

#[test]
fn up_accelerators_are_found_watched_and_drain_their_node_when_their_driver_gives_up() {
    let cluster = cluster("gpu:gaudi2:1,gpu:tenstorrent_n300:1", "nvidia");
    let root = cluster.path("gpus");
    put_accelerators(&root);
    let variables = [("SLUICE_GPU_ROOT", root.to_str().expect("utf-8"))];
    let printed = cluster.command(&["agent", "--print-config"]).envs(variables).output();
    let printed = String::from_utf8(printed.expect("it runs").stdout).expect("utf-8");
    for part in [
        "Name=gpu Type=gaudi2 MultipleFiles=/dev/accel/accel0,/dev/accel/accel_controlD0\n",
        "Name=gpu Type=tenstorrent_n300 File=/dev/tenstorrent/0\n",
    ] {
        assert!(printed.contains(part), "{part} in\n{printed}");
    }
    cluster.start_with(&variables);
    let line = |wanted: &str| {
        let shown = cluster.sluice(&["scontrol", "show", "node", "node1"]).ok();
        shown.lines().any(|line| line.trim() == wanted).then_some(())
    };
    let gaudi = "GPU=0 Model=GAUDI2 UUID=/accel0 Temp=47C Watts=101 Health=ok";
    until("the one is read", || line(gaudi));
    until("the other is read", || line("GPU=1 Model=tenstorrent_n300 UUID=/0 Temp=52C Health=ok"));
    put(&root, "sys/class/accel/accel0/device/status", "malfunction\n");
    let drained = "drained|GPU 0: lost: its driver says: malfunction";
    until("it fails", || (cluster.node_states() == drained).then_some(()));
    put(&root, "sys/class/accel/accel0/device/status", "operational\n");
    until("it is well", || (cluster.node_states() == "idle|none").then_some(()));
}

/// Counters of two sockets that a running job finds higher: its energy is in `sstat` while it runs, and in the books
/// afterwards, of the job and of its step; the node has its power.
#[test]
fn up_energy_of_the_processors_is_in_sstat_sacct_and_the_nodes_power() {
    let cluster = Cluster::folder(
        "ClusterName=test\nDefMemPerCPU=64\nKillWait=1\nSlurmdParameters=config_overrides\n\
         NodeName=node1 CPUs=2 RealMemory=500\nPartitionName=main Nodes=node1 Default=YES State=UP\n",
    );
    let root = cluster.path("counters");
    let count = |joules: u64| {
        let folder = root.join("sys/class/powercap/intel-rapl:0");
        std::fs::create_dir_all(&folder).expect("made");
        std::fs::write(folder.join("new"), format!("{}\n", joules * 1_000_000)).expect("written");
        std::fs::rename(folder.join("new"), folder.join("energy_uj")).expect("renamed");
    };
    count(1_000);
    put(&root, "sys/class/powercap/intel-rapl:0/max_energy_range_uj", "262143328850\n");
    put(&root, "sys/class/powercap/intel-rapl:0/name", "psys\n");
    cluster.start_with(&[("SLUICE_GPU_ROOT", root.to_str().expect("utf-8"))]);
    let script = "srun sh -c 'echo > ready; until [ -e go ]; do sleep 0.05; done'";
    let job = cluster.submit(&["-n2", "-o", "out", "--wrap", script]);
    cluster.await_file("ready", |_| true);
    count(41_000);
    let step = format!("{job}.0");
    let cpus: u64 = std::thread::available_parallelism().expect("CPUs").get() as u64;
    let own = 40_000 * 2_u64.min(cpus) / cpus;
    let live = cluster.sluice(&["sstat", "-n", "-P", "-j", &step, "-o", "ConsumedEnergyRaw"]).ok();
    assert_eq!(live.trim(), own.to_string());
    until("the node's power is shown", || {
        let shown = cluster.sluice(&["scontrol", "show", "node", "node1"]).ok();
        let line = shown.lines().find(|line| line.trim_start().starts_with("CurrentWatts="))?;
        (!line.contains("AveWatts=0")).then_some(())
    });
    cluster.write("go", "");
    assert_eq!(cluster.await_end(job), "COMPLETED|0:0", "{}", cluster.read("out"));
    let asked = "jobid,ConsumedEnergyRaw,ConsumedEnergy,AllocTRES,TRESUsageOutTot";
    let booked = until("the books have it", || {
        let text = cluster.sluice(&["sacct", "-n", "-P", "-j", &job.to_string(), "-o", asked]).ok();
        let row = |id: &str| {
            let line = text.lines().find(|line| line.split('|').next() == Some(id))?;
            Some(line.split('|').map(str::to_owned).collect::<Vec<_>>())
        };
        Some((row(&job.to_string())?, row(&step)?))
    });
    let (whole, step) = booked;
    assert_eq!(whole[1], own.to_string(), "{whole:?}");
    assert_eq!(step[1], own.to_string(), "{step:?}");
    assert!(whole[3].contains(&format!("energy={own},")), "{whole:?}");
    assert!(step[4].starts_with(&format!("energy={own},")), "{step:?}");
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

/// A job that has no GPU is not named, goes on, and keeps nobody away.
#[test]
fn up_slices_that_change_are_nothing_to_a_job_without_one() {
    let cluster = cluster("gpu:nvidia_h200_1g.18gb:2", "nvml");
    let root = cluster.path("gpus");
    put_slices(&root, &[1, 2]);
    let variables = [("SLUICE_GPU_ROOT", root.to_str().expect("utf-8"))];
    gpu_health::start_with(&cluster, "count 1\n", &variables);
    let plain = cluster.submit_sleeper("-n1");
    cluster.await_state(plain, "RUNNING");
    // Nobody has a GPU of the former division: the new one is taken as it is.
    put_slices(&root, &[2, 3]);
    let slices = |wanted: &[&str]| {
        let line = "srun -n1 --gres=gpu:2 sh -c 'echo $CUDA_VISIBLE_DEVICES'";
        (cluster.shell(line).stdout.trim() == wanted.join(",")).then_some(())
    };
    until("the new slices are given out", || slices(&["MIG-2", "MIG-3"]));
    until("the node is as before", || (cluster.node_states() == "mixed|none").then_some(()));
    let sliced = cluster.submit_sleeper("-n1 --gres=gpu:1");
    cluster.await_state(sliced, "RUNNING");
    put_slices(&root, &[3, 4]);
    let reason =
        format!("GPUs divided anew under jobs {sliced} (gone: {}; new: {})", slice(2), slice(4));
    until("the change is told", || {
        (cluster.node_states() == format!("inval|{reason}")).then_some(())
    });
    assert!(cluster.state_of(plain).starts_with("RUNNING"));
    cluster.sluice(&["scancel", &sliced.to_string()]).ok();
    until("the node is back", || (cluster.node_states() == "mixed|none").then_some(()));
    until("the new slices are given out", || slices(&["MIG-3", "MIG-4"]));
    assert!(cluster.state_of(plain).starts_with("RUNNING"));
}
