//! Folders that the nodes have mounted, as volumes of tasks: by their path, with the rights of the run's user.

use super::containers::{USER, assert_nothing_is_left, make_rootfs};
use crate::harness::{Cluster, program};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Two nodes, and a file system that both have mounted at the same place.
fn cluster() -> Cluster {
    let mut cluster = Cluster::folder(
        "ClusterName=test\nSlurmdParameters=config_overrides\nDefMemPerCPU=200\nAuthInfo=cred_expire=0\n\
         NodeName=node[1-2] CPUs=4 RealMemory=2000\nPartitionName=main Nodes=node[1-2] Default=YES State=UP\n",
    );
    make_rootfs(&cluster.path("work/rootfs"));
    let shared = cluster.path("work/shared");
    cluster.mount(&shared.join("disk"), 8);
    let open = |path: &Path, mode| {
        let mode = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(path, mode).expect("a mode");
    };
    open(&shared.join("disk"), 0o1777);
    std::fs::create_dir(shared.join("private")).expect("made");
    open(&shared.join("private"), 0o700);
    cluster.start();
    cluster
}

/// Applies a task on one of the nodes; whether it succeeded, and what it or `apply` said.
fn run(cluster: &Cluster, node: &str, volume: &str, command: &str) -> (bool, String) {
    let image = cluster.path("work/rootfs").display().to_string();
    let volume = volume.replace("SHARED", &cluster.path("work/shared").display().to_string());
    cluster.write(
        "task.dstack.yml",
        &format!(
            "type: task\nname: on-{node}\nimage: {image}\ninstances: [{node}]\nvolumes: [{volume}]\n\
             commands: ['{command}']\nresources: {{cpu: 1, memory: 100MB}}\n"
        ),
    );
    let said =
        cluster.shell_as(USER, &format!("{} apply -y --force -f task.dstack.yml", program()));
    (said.code == 0, format!("{}{}", said.stdout, said.stderr))
}

#[test]
fn root_a_mounted_folder_is_a_volume_of_tasks_on_every_node() {
    let cluster = cluster();
    // The folder, and one above it: what is mounted below is there too.
    let (good, said) = run(&cluster, "node1", "\"SHARED/disk:/data\"", "echo one > /data/file");
    assert!(good, "{said}");
    let (good, said) = run(&cluster, "node2", "\"SHARED:/all\"", "cat /all/disk/file");
    assert!(good && said.lines().any(|line| line == "one"), "{said}");
    let file = cluster.path("work/shared/disk/file");
    assert_eq!(std::fs::read_to_string(file).expect("the file"), "one\n");
    assert_nothing_is_left(&cluster);
}

#[test]
fn root_a_volume_gives_no_rights_and_one_that_is_missing_is_named() {
    let cluster = cluster();
    let table = [
        // Root's folder stays closed to the user.
        ("\"SHARED/private:/data\"", "ls /data", false, "Permission denied"),
        ("\"SHARED/none:/data\"", "true", false, "none"),
        (
            "{instance_path: SHARED/none, path: /data, optional: true}",
            "echo without",
            true,
            "without",
        ),
        ("{name: data, path: /data}", "true", false, "volume data does not exist"),
    ];
    for (volume, command, is_good, words) in table {
        let (good, said) = run(&cluster, "node1", volume, command);
        assert!(good == is_good && said.contains(words), "{volume}: {said}");
    }
    assert_nothing_is_left(&cluster);
}
