//! Volumes: on a node and in a shared folder, in jobs of both languages, with and without a container; who may use and delete
//! them, and what a hostile path does not reach.

use super::containers::{USER, make_rootfs};
use crate::harness::{Cluster, CommandOutput, program, until};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};

/// Another user of every Debian system.
const OTHER: &str = "games";

fn cluster(toml: &str) -> Cluster {
    let cluster = Cluster::folder(
        "ClusterName=test\nSlurmdParameters=config_overrides\nDefMemPerCPU=100\nAuthInfo=cred_expire=0\nKillWait=1\n\
         NodeName=node[1-2] CPUs=4 RealMemory=2000\nPartitionName=main Nodes=node[1-2] Default=YES State=UP\n",
    );
    cluster.write_conf("sluice.toml", toml);
    make_rootfs(&cluster.path("work/rootfs"));
    for user in [USER, OTHER] {
        let folder = cluster.path("work").join(user);
        std::fs::create_dir(&folder).expect("made");
        chown(&folder, Some(uid(user)), None).expect("given");
    }
    cluster
}

fn uid(user: &str) -> u32 {
    nix::unistd::User::from_name(user).expect("users").expect("the user").uid.as_raw()
}

/// A folder of the user's own, over which a volume can be shown.
fn own_folder(cluster: &Cluster, user: &str) -> PathBuf {
    cluster.path("work").join(user)
}

fn volume(cluster: &Cluster, user: &str, args: &str) -> CommandOutput {
    cluster.shell_as(user, &format!("{} volume {args}", program()))
}

/// What a command of the user's prints when it runs with this volume.
fn srun(cluster: &Cluster, user: &str, volume: &str, script: &str) -> CommandOutput {
    cluster.shell_as(user, &format!("srun -n1 --volume '{volume}' sh -c '{script}'"))
}

/// The folders of volumes that a place holds.
fn folders(home: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(home).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).collect()
}

fn node_home(cluster: &Cluster, node: &str) -> PathBuf {
    cluster.state().join("nodes").join(node).join("volumes")
}

/// Applies a task of this user; whether it succeeded, and what it or `apply` said.
fn apply(cluster: &Cluster, user: &str, rest: &str) -> (bool, String) {
    let image = cluster.path("work/rootfs").display().to_string();
    let text = format!(
        "type: task\nname: with-volume\nresources: {{cpu: 1, memory: 100MB}}\n{}",
        rest.replace("IMAGE", &image)
    );
    cluster.write("task.dstack.yml", &text);
    let said =
        cluster.shell_as(user, &format!("{} apply -y --force -f task.dstack.yml", program()));
    (said.code == 0, format!("{}{}", said.stdout, said.stderr))
}

#[test]
fn root_a_volume_of_a_node_is_found_at_its_path_in_both_languages() {
    let cluster = cluster("");
    cluster.start();
    assert_eq!(volume(&cluster, USER, "create data --node node2").ok(), "OK\n");
    let own = own_folder(&cluster, USER);
    let own = own.display();
    // A batch script, which names it itself, goes to the volume's node.
    let script = format!(
        "#!/bin/sh\n#SBATCH --volume=data:{own} -o {own}.out\necho one > {own}/file\necho $SLURMD_NODENAME\nls {own}\n"
    );
    cluster.write("job.sh", &script);
    let job = cluster.submit_as(USER, "job.sh");
    assert_eq!(cluster.await_end(job), "COMPLETED|0:0", "{}", cluster.log("agent"));
    assert_eq!(cluster.read(&format!("{USER}.out")), "node2\nfile\n");
    // Its folder is its owner's alone, and nothing shows outside of the job.
    let kept = folders(&node_home(&cluster, "node2"));
    assert_eq!((kept.len(), folders(&node_home(&cluster, "node1")).len()), (1, 0));
    let status = std::fs::metadata(&kept[0]).expect("its folder");
    assert_eq!((status.permissions().mode() & 0o7777, status.uid()), (0o700, uid(USER)));
    assert_eq!(folders(&own_folder(&cluster, USER)).len(), 0, "only the job saw it");
    // A step, read only too; and a task in a container.
    let told = srun(
        &cluster,
        USER,
        &format!("data:{own}:ro"),
        &format!("cat {own}/file; echo x > {own}/y"),
    );
    assert_eq!(told.stdout, "one\n");
    assert!(told.stderr.contains("Read-only file system"), "{told:?}");
    let task = "image: IMAGE\nvolumes: [\"data:/kept\"]\ncommands: [\"cat /kept/file\", \"echo two > /kept/file\"]\n";
    let (good, said) = apply(&cluster, USER, task);
    assert!(good && said.lines().any(|line| line == "one"), "{said}");
    let task = format!("volumes: [{{name: data, path: {own}}}]\ncommands: [\"cat {own}/file\"]\n");
    let (good, said) = apply(&cluster, USER, &task);
    assert!(good && said.lines().any(|line| line == "two"), "{said}");
}

#[test]
fn root_a_volume_is_its_owners_and_stays_while_a_job_uses_it() {
    let cluster = cluster("");
    cluster.start();
    volume(&cluster, USER, "create data --node node1").ok();
    let own = own_folder(&cluster, OTHER);
    let refused = srun(&cluster, OTHER, &format!("data:{}", own.display()), "true");
    assert!(refused.stderr.contains("belongs to daemon"), "{refused:?}");
    let refused = volume(&cluster, OTHER, "delete data -y");
    assert!(refused.code != 0 && refused.stderr.contains("access denied"), "{refused:?}");
    let shown = cluster.sluice(&["volume", "list", "--json"]).ok();
    let shown: serde_json::Value = serde_json::from_str(&shown).expect("JSON");
    let one = &shown["volumes"][0];
    assert_eq!(
        (&one["name"], &one["owner"], &one["node"]),
        (&"data".into(), &USER.into(), &"node1".into())
    );
    // A job that waits, and one that runs.
    let own = own_folder(&cluster, USER);
    let options = format!("--volume data:{} -o /dev/null --wrap 'sleep 600'", own.display());
    let job = cluster.submit_as(USER, &format!("-H {options}"));
    for state in ["PENDING", "RUNNING"] {
        cluster.await_state(job, state);
        let refused = volume(&cluster, USER, "delete data -y");
        let said = format!("volume data is used by job {job}");
        assert!(refused.code != 0 && refused.stderr.contains(&said), "{state}: {refused:?}");
        cluster.sluice(&["scontrol", "release", &job.to_string()]).ok();
    }
    cluster.sluice(&["scancel", &job.to_string()]).ok();
    cluster.await_end(job);
    until("the volume is free", || {
        (volume(&cluster, USER, "delete data -y").code == 0).then_some(())
    });
    assert_eq!(folders(&node_home(&cluster, "node1")).len(), 0, "its files went with it");
    let gone = srun(&cluster, USER, &format!("data:{}", own.display()), "true");
    assert!(gone.stderr.contains("volume data does not exist"), "{gone:?}");
    // One of the same name begins empty.
    volume(&cluster, USER, "create data --node node1").ok();
    let fresh = srun(
        &cluster,
        USER,
        &format!("data:{}", own.display()),
        &format!("ls -A {}", own.display()),
    );
    assert_eq!(fresh.ok(), "");
}

#[test]
fn root_a_volume_covers_nothing_but_its_users_own_and_follows_no_link() {
    let cluster = cluster("");
    cluster.start();
    volume(&cluster, USER, "create data --node node1").ok();
    let work = cluster.path("work");
    let (own, link) = (own_folder(&cluster, USER), work.join("link"));
    symlink(&own, &link).expect("a link");
    let foreign = own_folder(&cluster, OTHER);
    let table = [
        ("/etc".to_owned(), "a folder of your own"),
        ("/usr/lib".to_owned(), "a folder of your own"),
        (foreign.display().to_string(), "a folder of your own"),
        (link.display().to_string(), "leads through a link"),
        (link.join("below").display().to_string(), "leads through a link"),
        (work.join("none/below").display().to_string(), "no such folder"),
    ];
    for (path, words) in table {
        let job = cluster.submit_as(
            USER,
            &format!("-w node1 --no-requeue --volume data:{path} -o /dev/null --wrap true"),
        );
        let explained = until("it is told", || {
            let said = cluster.sluice(&["explain", &job.to_string()]).stdout;
            said.contains(words).then_some(said)
        });
        assert!(explained.contains("volume data"), "{path}: {explained}");
        cluster.sluice(&["scancel", &job.to_string()]).ok();
    }
    assert!(!work.join("none").exists() && !own.join("below").exists());
    // What a user asks for is not the node's fault.
    assert!(
        cluster.node_states().lines().all(|line| line.starts_with("idle")),
        "{}",
        cluster.node_states()
    );
    // A link in place of the volume's folder is not followed either.
    let kept = folders(&node_home(&cluster, "node1")).remove(0);
    std::fs::remove_dir(&kept).expect("empty");
    symlink("/etc", &kept).expect("a link");
    let told = apply(
        &cluster,
        USER,
        "image: IMAGE\ninstances: [node1]\nvolumes: [\"data:/kept\"]\ncommands: [\"ls /kept\"]\n",
    );
    assert!(!told.0 && !told.1.contains("passwd"), "{told:?}");
    volume(&cluster, USER, "delete data -y").ok();
    assert!(Path::new("/etc/passwd").exists() && !kept.is_symlink());
}

#[test]
fn root_a_shared_volume_is_found_on_the_nodes_that_have_its_folder() {
    let mut cluster = cluster("");
    let shared = cluster.path("shared");
    cluster.mount(&shared, 8);
    std::fs::set_permissions(&shared, std::fs::Permissions::from_mode(0o755)).expect("a mode");
    let (all, one) = (shared.join("all"), shared.join("one"));
    for folder in [&all, &one] {
        std::fs::create_dir(folder).expect("made");
    }
    cluster.write_conf(
        "sluice.toml",
        &format!("[volumes.shared]\n'{}' = 'ALL'\n'{}' = 'node2'\n", all.display(), one.display()),
    );
    cluster.start();
    volume(&cluster, USER, &format!("create data --shared {}", all.display())).ok();
    volume(&cluster, USER, &format!("create part --shared {}", one.display())).ok();
    let own = own_folder(&cluster, USER);
    let own = own.display();
    let run = |node: &str, script: &str| {
        let line = format!("srun -n1 -w {node} --volume data:{own} sh -c '{script}'");
        cluster.shell_as(USER, &line).ok()
    };
    run("node1", &format!("echo shared > {own}/file"));
    assert_eq!(run("node2", &format!("cat {own}/file")), "shared\n");
    let placed = srun(&cluster, USER, &format!("part:{own}"), "echo $SLURMD_NODENAME");
    assert_eq!(placed.ok(), "node2\n");
    let line = format!("srun -n1 -w node1 --volume part:{own} true");
    assert_ne!(cluster.shell_as(USER, &line).code, 0, "node1 does not have the folder");
    let refused = volume(&cluster, USER, "create other --shared /etc");
    assert!(refused.stderr.contains("/etc is no folder that nodes share"), "{refused:?}");
    for name in ["data", "part"] {
        volume(&cluster, USER, &format!("delete {name} -y")).ok();
    }
    assert!(folders(&all.join(".sluice-volumes")).is_empty());
}

#[test]
fn root_nodes_have_volumes_by_their_rank_and_folders_under_a_name() {
    let cluster = cluster("");
    cluster.start();
    for (name, node) in
        [("part-0", "node1"), ("part-1", "node2"), ("swap-0", "node2"), ("swap-1", "node1")]
    {
        volume(&cluster, USER, &format!("create {name} --node {node}")).ok();
    }
    let by_rank = |name: &str| {
        format!(
            "nodes: 2\nimage: IMAGE\nvolumes: [\"{name}-${{{{ dstack.node_rank }}}}:/kept\"]\n\
                 commands: [\"echo $DSTACK_NODE_RANK > /kept/rank\"]\n"
        )
    };
    let (good, said) = apply(&cluster, USER, &by_rank("part"));
    assert!(good, "{said}");
    for (rank, node) in [("0", "node1"), ("1", "node2")] {
        let kept = folders(&node_home(&cluster, node));
        let kept =
            kept.iter().find(|path| path.to_string_lossy().contains("part-")).expect("a folder");
        assert_eq!(std::fs::read_to_string(kept.join("rank")).expect("a file").trim(), rank);
    }
    let (good, said) = apply(&cluster, USER, &by_rank("swap"));
    assert!(!good && said.contains("ranks follow the names of the nodes"), "{said}");
    // A volume of one node is not for two.
    let (good, said) = apply(
        &cluster,
        USER,
        "nodes: 2\nimage: IMAGE\nvolumes: [\"part-0:/kept\"]\ncommands: [\"true\"]\n",
    );
    assert!(!good && said.contains("volume part-0 is on node node1"), "{said}");
    // `instance: true`: a folder of each node under this name, which later runs find again.
    let instance = |node: &str, command: &str| {
        let text = format!(
            "instances: [{node}]\nimage: IMAGE\nvolumes: [{{name: cache, path: /cache, instance: true}}]\ncommands: [\"{command}\"]\n"
        );
        apply(&cluster, USER, &text)
    };
    let (good, said) = instance("node1", "echo cached > /cache/file");
    assert!(good, "{said}");
    let (good, said) = instance("node1", "cat /cache/file");
    assert!(good && said.lines().any(|line| line == "cached"), "{said}");
    let (good, _) = instance("node2", "cat /cache/file");
    assert!(!good, "another node has another folder");
}

#[test]
fn root_a_size_that_cannot_be_held_is_refused_at_creation() {
    let mut cluster = cluster("");
    let shared = cluster.path("shared");
    cluster.mount(&shared, 8);
    std::fs::set_permissions(&shared, std::fs::Permissions::from_mode(0o755)).expect("a mode");
    cluster
        .write_conf("sluice.toml", &format!("[volumes.shared]\n'{}' = 'ALL'\n", shared.display()));
    cluster.start();
    let refused =
        volume(&cluster, USER, &format!("create data --shared {} --size 1GB", shared.display()));
    assert!(refused.code != 0 && refused.stderr.contains("a size cannot be held"), "{refused:?}");
    assert_eq!(refused.stderr.lines().count(), 1, "{refused:?}");
    let listed = cluster.sluice(&["volume", "list", "--json"]).ok();
    assert!(listed.contains("\"volumes\":[]"), "{listed}");
}
