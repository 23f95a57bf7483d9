//! Privileged containers and Docker inside of one, where the site allows them; and what else a task says of its container.

use super::containers::{USER, assert_nothing_is_left, cluster, make_rootfs};
use crate::harness::{Cluster, CommandOutput, program, skip};
use std::os::unix::fs::symlink;
use std::process::Command;

const ALLOWED: &str = "[containers]\nprivileged = true\n";
const SMALL: &str = "resources: {cpu: 1, memory: 100MB}\n";

/// Runs a task as a user that is not root, and follows it.
fn apply(cluster: &Cluster, name: &str, rest: &str) -> CommandOutput {
    let resources = if rest.contains("resources:") { "" } else { SMALL };
    cluster.write("task.dstack.yml", &format!("type: task\nname: {name}\n{rest}{resources}"));
    cluster.shell_as(USER, &format!("{} apply -y -f task.dstack.yml", program()))
}

/// What a run has printed that ended well.
fn output(cluster: &Cluster, name: &str, rest: &str) -> Vec<String> {
    let said = apply(cluster, name, rest);
    assert!(said.stdout.ends_with("Exited (0)\n"), "{}{}", said.stdout, said.stderr);
    cluster.sluice(&["logs", name]).ok().lines().map(str::to_owned).collect()
}

#[test]
fn root_privileged_containers_take_the_sites_consent() {
    let cluster = cluster("");
    let image = cluster.path("work/rootfs").display().to_string();
    let privileged = format!("image: {image}\nprivileged: true\ncommands: [id]\n");
    for rest in [privileged.as_str(), "docker: true\ncommands: [docker ps]\n"] {
        let refused = apply(&cluster, "refused", rest);
        assert_ne!(refused.code, 0, "{refused:?}");
        assert_eq!(refused.stderr.lines().count(), 1, "{refused:?}");
        let words = "allows them with privileged = true below [containers] in sluice.toml";
        assert!(refused.stderr.contains(words), "{refused:?}");
    }
    assert_eq!(cluster.sluice(&["sacct", "-nX"]).ok(), "");
}

#[test]
fn root_a_privileged_container_has_every_right_over_itself_and_none_over_the_node() {
    let cluster = cluster(ALLOWED);
    let image = cluster.path("work/rootfs").display().to_string();
    let look = |name: &str, privileged: bool| {
        let rest = format!(
            "image: {image}\nprivileged: {privileged}\ncommands:\n  \
             - grep CapEff /proc/self/status\n  \
             - mount -t tmpfs none /opt/data 2>/dev/null && echo mounted; true\n  \
             - mount -t proc proc /tmp 2>/dev/null && echo proc; true\n  \
             - (echo core > /proc/sys/kernel/core_pattern) 2>/dev/null && echo node; true\n  \
             - busybox mknod /dev/disk b 259 0 2>/dev/null && echo device; true\n  \
             - busybox hostname other 2>/dev/null && echo named; true\n  \
             - head -1 /proc/self/uid_map\n"
        );
        output(&cluster, name, &rest)
    };
    let uid = nix::unistd::User::from_name(USER).expect("users").expect("the user").uid;
    let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let lines = look("free", true);
    let rights = |line: &str| {
        u64::from_str_radix(line.split_whitespace().nth(1).expect("a mask"), 16).expect("a mask")
    };
    assert_eq!(rights(&lines[0]), (1 << 41) - 1, "{lines:?}");
    assert_eq!(lines[1..lines.len() - 1], ["mounted", "proc"], "{lines:?}");
    // Its root is the job's user outside.
    assert_eq!(words(&lines[lines.len() - 1]), ["0", &uid.to_string(), "1"]);
    let lines = look("usual", false);
    let (administers, of_networks) = (1 << 21, 1 << 12);
    assert_eq!(rights(&lines[0]) & (administers | of_networks), 0, "{lines:?}");
    assert_eq!(lines.len(), 2, "neither mounted nor anything else: {lines:?}");
    // A step of the job cannot take what its job was not given, and a container of a step's own neither.
    let line = format!(
        "srun --container={image} sh -c 'grep CapEff /proc/self/status' | grep -c 0000000000000000"
    );
    assert_eq!(cluster.shell_as(USER, &line).ok(), "1\n");
    assert_nothing_is_left(&cluster);
}

#[test]
fn root_an_entrypoint_runs_in_place_of_a_shell() {
    let cluster = cluster("");
    let root = cluster.path("work/rootfs");
    std::fs::remove_file(root.join("bin/sh")).expect("an image without a shell");
    let image = root.display();
    let rest = format!("image: {image}\nentrypoint: cat '/etc/release'\ncommands: [/etc/passwd]\n");
    let said = output(&cluster, "entry", &rest);
    assert_eq!(said[..2], ["made on the spot", "root:x:0:0::/root:/bin/sh"]);
    // Without an image it runs on the node.
    let bare = "entrypoint: printf '%s|%s\\n'\ncommands: [a b, \"it's\"]\n";
    assert_eq!(output(&cluster, "bare", bare), ["a b|it's"]);
    let bad = apply(&cluster, "bad", &format!("image: {image}\nentrypoint: \"cat '/etc\"\n"));
    assert!(bad.stderr.contains("`entrypoint`: invalid") && bad.code != 0, "{bad:?}");
}

#[test]
fn root_variables_name_the_folder_that_a_container_has() {
    let cluster = cluster("");
    let image = cluster.path("work/rootfs").display().to_string();
    let commands = "commands: [pwd, echo $DSTACK_WORKING_DIR, echo $DSTACK_REPO_DIR]\n";
    let usual = format!("image: {image}\n{commands}");
    assert_eq!(output(&cluster, "usual", &usual), ["/", "/", "/"]);
    let named = format!("image: {image}\nworking_dir: /opt/data\n{commands}");
    assert_eq!(output(&cluster, "named", &named), ["/opt/data"; 3]);
}

/// A root file system with a Docker daemon: its programs and the node's are mounted into it. `None` where they cannot be had.
fn make_docker_image(cluster: &Cluster) -> Option<String> {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/docker");
    let found = Command::new(script).output().expect("the script");
    if !found.status.success() {
        skip("Docker inside a container", "its packages cannot be had");
        return None;
    }
    let root = cluster.path("work/docker");
    for folder in ["dev", "etc/docker", "proc", "sys", "tmp", "var/lib", "var/log", "run", "opt"] {
        std::fs::create_dir_all(root.join(folder)).expect("made");
    }
    for link in ["bin", "sbin", "lib", "lib64"] {
        symlink(format!("usr/{link}"), root.join(link)).expect("a link");
    }
    // Its packet filter is not what is tested, and a kernel need not have it.
    let daemon = r#"{"iptables": false, "ip6tables": false, "storage-driver": "overlay2"}"#;
    std::fs::write(root.join("etc/docker/daemon.json"), daemon).expect("written");
    std::fs::write(root.join("etc/passwd"), "root:x:0:0::/root:/bin/sh\n").expect("written");
    std::fs::write(root.join("etc/group"), "root:x:0:\ndocker:x:99:\n").expect("written");
    let owned = Command::new("chown").arg("-R").arg(USER).arg(&root).status().expect("chown");
    assert!(owned.success());
    Some(String::from_utf8(found.stdout).expect("utf-8").trim().to_owned())
}

#[test]
fn root_a_run_has_a_docker_daemon_of_its_own_inside_its_container() {
    let cluster = cluster("");
    let Some(docker) = make_docker_image(&cluster) else { return };
    let work = cluster.path("work").display().to_string();
    let inner = cluster.path("work/inner");
    make_rootfs(&inner);
    let tar = cluster.path("work/inner.tar");
    let packed = Command::new("tar").arg("-C").arg(&inner).arg("-cf").arg(tar).arg(".").status();
    assert!(packed.expect("tar").success());
    let toml = format!("{ALLOWED}docker_image = '{work}/docker'\nnetwork = 'bridge'\n");
    cluster.write_conf("sluice.toml", &toml);
    cluster.sluice(&["scontrol", "reconfigure"]).ok();
    let said = output(
        &cluster,
        "dind",
        &format!(
            "docker: true\nvolumes: ['/usr:/usr', '{docker}:/opt/docker', '{work}:/opt/work']\n\
             env: [PATH=/opt/docker/bin:/opt/docker/sbin:/usr/sbin:/usr/bin]\ncommands:\n  \
             - docker import /opt/work/inner.tar lab/tools >/dev/null\n  \
             - docker run --rm lab/tools cat /etc/release\n  \
             - docker run --rm lab/tools id -u\n\
             resources: {{cpu: 1, memory: 600MB}}\n"
        ),
    );
    // A line before these says that the node passes no packets on.
    let printed = said.iter().filter(|line| !line.starts_with("sluice: "));
    assert_eq!(printed.collect::<Vec<_>>(), ["made on the spot", "0"]);
    assert_nothing_is_left(&cluster);
}
