//! A vendor's CDI file on a node: containers get what it says of their devices. Devices that every kernel has play the
//! GPUs.

use super::containers::{assert_nothing_is_left, make_rootfs};
use crate::harness::{Cluster, until};

/// Two GPUs; the first brings a further device, a library and a variable along.
fn file(library: &str) -> String {
    format!(
        "cdiVersion: 0.5.0\nkind: vendor.com/gpu\ncontainerEdits:\n  env: [VENDOR=all]\n  hooks:\n  \
         - {{hookName: createContainer, path: /bin/touch, args: [touch, {library}.hook]}}\ndevices:\n\
         - name: \"0\"\n  containerEdits:\n    deviceNodes:\n    - path: /dev/fuse\n    \
         - {{path: /dev/gpu/extra, hostPath: /dev/cpu_dma_latency}}\n    \
         mounts: [{{hostPath: {library}, containerPath: /usr/lib/libvendor.so, options: [ro, bind]}}]\n    \
         env: [VENDOR_GPU=first]\n\
         - name: \"1\"\n  containerEdits:\n    deviceNodes: [{{path: /dev/loop-control}}]\n    \
         env: [VENDOR_GPU=second]\n"
    )
}

#[test]
fn root_a_vendors_file_adds_to_the_devices_of_a_job_and_a_bad_one_to_none() {
    let cluster = Cluster::folder(
        "ClusterName=test\nSlurmdParameters=config_overrides\nDefMemPerCPU=100\nGresTypes=gpu\n\
         NodeName=node1 CPUs=4 RealMemory=2000 Gres=gpu:2\nPartitionName=main Nodes=node1 Default=YES State=UP\n",
    );
    let folder = cluster.path("cdi");
    std::fs::create_dir(&folder).expect("made");
    let library = cluster.path("library");
    std::fs::write(&library, "of the vendor\n").expect("written");
    let text = file(library.to_str().expect("utf-8"));
    std::fs::write(folder.join("vendor.yaml"), &text).expect("written");
    std::fs::write(folder.join("bad.yaml"), "kind: [\n").expect("written");
    cluster.write_conf("sluice.toml", &format!("[containers]\ncdi = ['{}']\n", folder.display()));
    cluster.write_conf("gres.conf", "Name=gpu File=/dev/fuse\nName=gpu File=/dev/loop-control\n");
    cluster.write_conf("cgroup.conf", "ConstrainDevices=yes\n");
    make_rootfs(&cluster.path("work/rootfs"));
    cluster.start();
    let container = format!("--container={}", cluster.path("work/rootfs").display());
    let look = "echo $VENDOR $VENDOR_GPU; cat /usr/lib/libvendor.so 2>/dev/null; \
                (: < /dev/gpu/extra) 2>/dev/null && echo opens extra; \
                (: > /usr/lib/libvendor.so) 2>/dev/null && echo writes; true";
    let job = |gres: &str| cluster.sluice(&["srun", gres, &container, "sh", "-c", look]).ok();
    assert_eq!(job("--gres=gpu:1"), "all first\nof the vendor\nopens extra\n");
    assert_eq!(job("--gres=none"), "\n");
    let step =
        format!("srun --exact -n1 --gres=gpu:1 --mem=50 {container} sh -c 'echo $VENDOR_GPU'");
    let text = cluster.run_script(&["-n2", "--gres=gpu:2"], &format!("{step} & {step}; wait"));
    let mut found: Vec<&str> = text.lines().collect();
    found.sort_unstable();
    assert_eq!(found, ["first", "second"], "a step has what its own device brings");
    assert!(!cluster.path("library.hook").exists(), "no hook is run");
    let log = cluster.log("agent");
    assert_eq!(log.matches("bad.yaml: ").count(), 1, "{log}");
    // A file that others may change is none.
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o666);
    std::fs::set_permissions(folder.join("vendor.yaml"), open).expect("a mode");
    assert_eq!(job("--gres=gpu:1"), "\n");
    cluster.shell("scontrol reconfigure").ok();
    until("the agent says so", || {
        cluster.log("agent").contains("vendor.yaml: expected a file of root's").then_some(())
    });
    assert_nothing_is_left(&cluster);
}
