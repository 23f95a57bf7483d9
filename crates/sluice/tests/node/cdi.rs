//! A vendor's CDI file on a node: containers get what it says of their devices. Devices that every kernel has play the
//! GPUs.

use super::container_attacks::refusal;
use super::containers::{assert_nothing_is_left, make_rootfs};
use crate::harness::{Cluster, until};
use std::os::unix::fs::{PermissionsExt, symlink};

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
    // Where the library goes leads through what the user has mounted: root says no more of that than the user could see.
    let work = cluster.path("work");
    std::fs::create_dir_all(work.join("closed/open")).expect("made");
    std::fs::write(work.join("closed/open/note"), "secret\n").expect("written");
    let mode = std::fs::Permissions::from_mode(0o700);
    std::fs::set_permissions(work.join("closed"), mode).expect("closed");
    let said = |name: &str| {
        let image = work.join(format!("with-{name}"));
        make_rootfs(&image);
        std::fs::create_dir_all(image.join("usr/lib")).expect("made");
        let link = image.join("usr/lib/libvendor.so");
        symlink(format!("/x/closed/open/{name}"), link).expect("a link");
        let line = format!(
            "srun --gres=gpu:1 --container={0}/with-NAME --container-mounts={0}:/x true",
            work.display()
        );
        // The library is the first device's, which a job that is ending still has.
        until("no job has a device", || {
            cluster.shell("squeue -h").ok().trim().is_empty().then_some(())
        });
        refusal(&cluster, &line, name)
    };
    let (there, absent) = (said("note"), said("absent"));
    assert!(there.contains("Permission denied"), "{there}");
    assert_eq!(there, absent);
    // A file that others may change is none.
    let open = std::fs::Permissions::from_mode(0o666);
    std::fs::set_permissions(folder.join("vendor.yaml"), open).expect("a mode");
    assert_eq!(job("--gres=gpu:1"), "\n");
    cluster.shell("scontrol reconfigure").ok();
    until("the agent says so", || {
        cluster.log("agent").contains("vendor.yaml: expected a file of root's").then_some(())
    });
    assert_nothing_is_left(&cluster);
}

/// Without the vendor's toolkit, the specification is made from the files of a machine whose GPUs are links to devices that
/// every kernel has.
#[test]
fn root_containers_get_nvidias_driver_where_there_is_no_toolkit() {
    let cluster = Cluster::folder(
        "ClusterName=test\nSlurmdParameters=config_overrides\nDefMemPerCPU=100\nGresTypes=gpu\n\
         NodeName=node1 CPUs=4 RealMemory=2000 Gres=gpu:2\nPartitionName=main Nodes=node1 Default=YES State=UP\n",
    );
    let machine = cluster.path("machine");
    for (path, text) in [
        ("sys/module/nvidia/version", "580.1.2\n"),
        ("usr/lib64/libcuda.so.580.1.2", "of the driver\n"),
        ("usr/bin/nvidia-smi", ""),
    ] {
        let path = machine.join(path);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        std::fs::write(path, text).expect("written");
    }
    symlink("libcuda.so.580.1.2", machine.join("usr/lib64/libcuda.so.1")).expect("a link");
    std::fs::create_dir_all(machine.join("dev")).expect("made");
    for (file, here) in [("0", "fuse"), ("1", "loop-control"), ("ctl", "null")] {
        let file = machine.join(format!("dev/nvidia{file}"));
        symlink(format!("/dev/{here}"), file).expect("a link");
    }
    cluster.write_conf("sluice.toml", "[containers]\ncdi = []\n");
    cluster.write_conf("gres.conf", "Name=gpu File=/dev/fuse\nName=gpu File=/dev/loop-control\n");
    cluster.write_conf("cgroup.conf", "ConstrainDevices=yes\n");
    make_rootfs(&cluster.path("work/rootfs"));
    let variables = [("SLUICE_GPU_ROOT", machine.to_str().expect("utf-8"))];
    let print = || {
        let printed = cluster.command(&["agent", "--print-cdi"]).envs(variables).output();
        let printed = printed.expect("it runs");
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("utf-8");
        (printed.status.success(), text(printed.stdout), text(printed.stderr))
    };
    let (is_printed, text, _) = print();
    let own: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    assert!(is_printed && own["kind"] == "nvidia.com/gpu", "{text}");
    assert_eq!(own["devices"][1]["name"], "1");
    cluster.start_with(&variables);
    let look = "cat /usr/local/nvidia/lib64/libcuda.so.1 2>/dev/null; echo ${LD_LIBRARY_PATH##*:}; \
                for device in 0 1 ctl; do (: < /dev/nvidia$device) 2>/dev/null && echo opens $device; done; true";
    let container = format!("--container={}", cluster.path("work/rootfs").display());
    let job = |gres: &str| {
        let line = format!("LD_LIBRARY_PATH=/own srun {gres} {container} sh -c '{look}'");
        cluster.shell(&line).ok()
    };
    let driver = "of the driver\n/usr/local/nvidia/lib64\n";
    assert_eq!(job("--gres=gpu:1"), format!("{driver}opens 0\nopens ctl\n"));
    assert_eq!(job("--gres=gpu:2"), format!("{driver}opens 0\nopens 1\nopens ctl\n"));
    assert_eq!(job("--gres=none"), "/own\n", "a job without a GPU has nothing of it");
    std::fs::remove_file(machine.join("sys/module/nvidia/version")).expect("removed");
    let (is_printed, _, why) = print();
    assert!(!is_printed && why.contains("no NVIDIA GPU with a loaded module"), "{why}");
    assert_nothing_is_left(&cluster);
}
