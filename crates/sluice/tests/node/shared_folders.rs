//! Folders that the nodes have mounted, as volumes of tasks: by their path, with the rights of the run's user.

use super::containers::{USER, assert_nothing_is_left, make_rootfs};
use crate::harness::hosts::Hosts;
use crate::harness::{Cluster, program, until};
use std::os::unix::fs::{PermissionsExt, chown};
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
    set_mode(&shared.join("disk"), 0o1777);
    std::fs::create_dir(shared.join("private")).expect("made");
    set_mode(&shared.join("private"), 0o700);
    cluster.start();
    cluster
}

fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("a mode");
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

/// Three hosts, two of which have the same folder mounted at the same place, as from a file server.
#[test]
fn root_a_volume_in_a_shared_folder_is_the_same_on_every_host_that_has_it_mounted() {
    let cluster = Cluster::folder(
        "ClusterName=hosts\nDefMemPerCPU=64\nKillWait=1\nNodeName=node[01-03] CPUs=2 CoresPerSocket=2 RealMemory=1000\n\
         PartitionName=main Nodes=ALL Default=YES State=UP\n",
    );
    let (kept, shared, own) =
        (cluster.path("kept"), cluster.path("shared"), cluster.path("work").join(USER));
    for folder in [&kept, &shared, &own] {
        std::fs::create_dir(folder).expect("made");
        set_mode(folder, 0o755);
    }
    let user = nix::unistd::User::from_name(USER).expect("users").expect("the user");
    chown(&own, Some(user.uid.as_raw()), None).expect("given");
    let (kept, shared, own) = (kept.display(), shared.display(), own.display());
    cluster.write_conf("sluice.toml", &format!("[volumes.shared]\n'{shared}' = 'node[01-02]'\n"));
    let mut hosts = Hosts::up(3);
    for host in ["1", "2"] {
        let line = format!("mount --bind {kept} {shared}");
        hosts.tool(&["exec", host, "sh", "-c", &line]).ok();
    }
    hosts.start(&cluster);
    for host in 1..=3 {
        hosts.join(&cluster, host);
    }
    let await_idle = || {
        until("all nodes are idle", || {
            let states = hosts.in_hub(&cluster, "sinfo -h -o '%D %t'").stdout;
            (states.trim() == "3 idle").then_some(())
        });
    };
    await_idle();
    let as_user = |line: &str| hosts.in_hub_as(USER, &cluster, line);
    as_user(&format!("{} volume create data --shared {shared}", program())).ok();
    let run = |node: &str, script: &str| {
        as_user(&format!("srun -n1 -w {node} --volume data:{own} sh -c '{script}'"))
    };
    run("node01", &format!("echo one > {own}/file")).ok();
    assert_eq!(run("node02", &format!("cat {own}/file; echo two > {own}/file")).ok(), "one\n");
    assert_eq!(run("node01", &format!("cat {own}/file")).ok(), "two\n");
    let elsewhere = run("node03", "true");
    assert_ne!(elsewhere.code, 0, "the site does not say that it has the folder: {elsewhere:?}");
    // A host that has lost it fails the job by name, makes nothing in its place, and stays in service.
    hosts.tool(&["exec", "2", "umount", "-l", &shared.to_string()]).ok();
    let line = format!(
        "sbatch --parsable --no-requeue -w node02 --volume data:{own} -o /dev/null --wrap true"
    );
    let job = as_user(&line).ok().trim().to_owned();
    until("it has left the queue", || {
        let listed = hosts.in_hub(&cluster, &format!("squeue -h -j {job} -t PD,CF,R,CG")).stdout;
        listed.is_empty().then_some(())
    });
    let said = hosts.in_hub(&cluster, &format!("{} explain {job}", program())).stdout;
    assert!(said.contains("has no volumes here: is it mounted?"), "{said}");
    await_idle();
    let below = std::fs::read_dir(cluster.path("shared")).expect("the folder below the mount");
    assert_eq!(below.count(), 0);
}
