//! Images that cannot be run: each is one line, and leaves nothing on the node.

use super::containers::{USER, assert_nothing_is_left, cluster, make_rootfs};
use super::registry::Registry;
use crate::harness::{Cluster, until};

/// What the store has beside its own lists: layers, downloads and what is being unpacked.
fn parts_in_store(cluster: &Cluster) -> usize {
    let line = "find \"$SLUICE_STATE\"/images -ignore_readdir_race -type f -size +16k | wc -l";
    let found = cluster.shell(line).ok();
    found.trim().parse().expect("a number")
}

/// Ten jobs at once want one image, whose layer is not what its digest says.
#[test]
fn root_ten_jobs_that_pull_a_broken_image_at_once_all_say_so_and_leave_nothing() {
    let registry = Registry::start();
    let made = tempfile::tempdir().expect("a folder");
    make_rootfs(&made.path().join("rootfs"));
    registry.push("lab/broken", "1", &made.path().join("rootfs"), "{}");
    registry.spoil_largest_blob();
    let address = &registry.address;
    let toml = format!("[containers]\ninsecure_registries = ['{address}']\n");
    let cluster = Cluster::folder(
        "ClusterName=test\nSlurmdParameters=config_overrides\nDefMemPerCPU=50\nAuthInfo=cred_expire=0\n\
         NodeName=node1 CPUs=16 RealMemory=2000\nPartitionName=main Nodes=node1 Default=YES State=UP\n",
    );
    cluster.write_conf("sluice.toml", &toml);
    cluster.start();
    let image = format!("docker://{address}/lab/broken:1");
    let line = format!("--array=1-10 -o out-%a --container={image} --wrap true");
    let job = cluster.submit_as(USER, &line);
    for task in 1..=10 {
        let state = cluster.await_end(format!("{job}_{task}"));
        assert!(state.starts_with("FAILED"), "{task}: {state}");
        let said = cluster.read(&format!("out-{task}"));
        let of_pull = |line: &&str| line.contains(": pulling, ") || line.contains(": waiting ");
        let lines: Vec<&str> = said.lines().filter(|line| !of_pull(line)).collect();
        let is_said = |line: &str| line.contains("has the digest") && line.contains("was not used");
        assert!(lines.len() == 1 && is_said(lines[0]), "{task}: {said}");
    }
    assert_eq!(parts_in_store(&cluster), 0, "nothing of it is kept");
    assert_nothing_is_left(&cluster);
}

#[test]
fn root_images_that_cannot_be_run_are_one_line_each() {
    let registry = Registry::start();
    let made = tempfile::tempdir().expect("a folder");
    let root = made.path().join("rootfs");
    make_rootfs(&root);
    registry.push("lab/user", "1", &root, r#"{"Env":["PATH=/bin"],"User":"ghost"}"#);
    registry.push("lab/number", "1", &root, r#"{"Env":["PATH=/bin"],"User":"70000"}"#);
    registry.push("lab/forged", "1", &root, r#"{"User":"gho\u001bst\nx"}"#);
    registry.push("lab/entry", "1", &root, r#"{"Env":["PATH=/bin"],"Entrypoint":["/not/there"]}"#);
    let address = &registry.address;
    let cluster = cluster(&format!("[containers]\ninsecure_registries = ['{address}']\n"));
    cluster.write("no.sif", "#!/usr/bin/env run-singularity\nand nothing else");
    cluster.write("no.sqsh", "hsqs");
    cluster.write("no.tar", "not an archive at all");
    for (image, expected) in [
        ("./no.sif", "no.sif"),
        ("./no.sqsh", "no.sqsh"),
        ("./no.tar", "no.tar"),
        (&format!("docker://{address}/lab/none:1"), "lab/none:1"),
        ("docker://BAD NAME", "BAD NAME"),
    ] {
        let said = cluster.shell_as(USER, &format!("srun --container='{image}' true"));
        assert_ne!(said.code, 0, "{image}");
        assert!(said.stderr.contains(expected), "{image}: {}", said.stderr);
        assert!(said.stderr.lines().count() <= 2, "{image}: {}", said.stderr);
    }
    for (name, expected) in [
        ("user", "user ghost does not exist in the image"),
        ("number", "user 70000 of the image: expected numbers below 65536"),
        ("forged", "user gho\\u{1b}st\\nx does not exist in the image"),
        ("entry", "/not/there: No such file or directory"),
    ] {
        cluster.write(
            "task.dstack.yml",
            &format!(
                "type: task\nname: bad-{name}\nimage: {address}/lab/{name}:1\nresources: {{cpu: 1, memory: 100MB}}\n"
            ),
        );
        let said = cluster.sluice(&["apply", "-y", "-f", "task.dstack.yml"]);
        assert_ne!(said.code, 0, "{name}");
        let all = format!("{}{}", said.stdout, said.stderr);
        assert!(all.contains(expected), "{name}: {all}");
    }
    assert_nothing_is_left(&cluster);
}

/// The runtime that the site names is not on the node: a step, a script and a run of dstack's each say so.
#[test]
fn root_a_runtime_that_is_not_there_is_one_line_and_leaves_nothing() {
    let cluster = cluster("[containers]\nruntime = '/nowhere/runc'\n");
    let why = "container runtime /nowhere/runc: no such file";
    let rootfs = cluster.path("work/rootfs");
    let root = rootfs.display();
    let said = cluster.shell_as(USER, &format!("srun --container={root} true"));
    assert_ne!(said.code, 0);
    assert!(said.stderr.contains(why), "{}", said.stderr);
    assert!(said.stderr.lines().count() <= 2, "{}", said.stderr);
    let job = cluster.submit_as(USER, &format!("-o out --container={root} --wrap true"));
    assert!(!cluster.await_end(job).starts_with("COMPLETED"));
    let out = cluster.read("out");
    assert!(out.contains(why) && out.lines().count() == 1, "{out}");
    let task = format!(
        "type: task\nname: none\nimage: {root}\ncommands: [true]\n\
         resources: {{cpu: 1, memory: 100MB}}\n"
    );
    cluster.write("task.dstack.yml", &task);
    let said = cluster.sluice(&["apply", "-y", "-f", "task.dstack.yml"]);
    let all = format!("{}{}", said.stdout, said.stderr);
    assert!(said.code != 0 && all.contains(why), "{all}");
    assert_nothing_is_left(&cluster);
}

/// Archives that name what is outside of them, and some that are cut off: the layer is refused in one line, or what it names is
/// inside of it.
#[test]
fn root_hostile_and_truncated_archives_touch_nothing_outside_of_them() {
    let cluster = cluster("");
    // `--transform` writes names, or with RSh the targets of hard links, as no archive should have them.
    let made = "set -e; umask 022; tar -C rootfs -cf good.tar .; echo x > x; ln x y; ln -s / out; mknod memory c 1 1; \
                head -c 100000 good.tar > cut.tar; gzip -c good.tar | head -c 50000 > cut.tar.gz; \
                tar -cPf up.tar --transform='s,^x$,../../escaped,' x; \
                tar -cPf hard.tar --transform='s,.*,/etc/shadow,RSh' x y; \
                (printf hsqs; head -c 8000 /dev/zero) > hollow.sqsh; \
                cp good.tar inner.tar; tar -rf inner.tar out memory; \
                tar -rPf inner.tar --transform='s,^x$,out/opt/through-a-link,' x; \
                tar -rPf inner.tar --transform='s,^x$,out/etc/.wh.hostname,' x";
    cluster.shell(made).ok();
    for (image, expected) in [
        ("./cut.tar", "its archive ends early"),
        ("./cut.tar.gz", "its compressed data ends early"),
        ("./up.tar", "its name has .. in it"),
        ("./hard.tar", "a hard link to /etc/shadow, which is not in the layer before it"),
        ("./hollow.sqsh", "hollow.sqsh: cannot be mounted"),
    ] {
        let said = cluster.shell_as(USER, &format!("srun --container={image} true"));
        assert_ne!(said.code, 0, "{image}");
        assert!(said.stderr.contains(expected), "{image}: {}", said.stderr);
        assert!(said.stderr.lines().count() <= 2, "{image}: {}", said.stderr);
    }
    assert_eq!(parts_in_store(&cluster), 0, "nothing of them is kept");
    let look = "cat /opt/through-a-link; ls /memory /etc/hostname 2>/dev/null; true";
    let said = cluster.shell_as(USER, &format!("srun --container=./inner.tar sh -c '{look}'"));
    assert_eq!(said.ok(), "x\n", "the link leads to its own root, and there is no device");
    for outside in ["/opt/through-a-link", "/etc/.wh.hostname"] {
        assert!(!std::path::Path::new(outside).exists(), "{outside}");
    }
    assert!(std::path::Path::new("/etc/hostname").exists(), "the node's own is there");
    until("no loop device has the file", || {
        let found = cluster.shell("grep -l hollow /sys/block/loop*/loop/backing_file");
        found.stdout.is_empty().then_some(())
    });
    assert_nothing_is_left(&cluster);
    // After that: a container's folders go while its job has already ended.
    let line = "find \"$SLUICE_STATE\" -ignore_readdir_race -name escaped";
    assert_eq!(cluster.shell(line).ok(), "");
}

/// An image for another architecture is one line that names both, in both languages, and nothing of it is downloaded.
#[test]
fn root_an_image_of_another_platform_is_one_line_and_leaves_nothing() {
    let registry = Registry::start();
    let made = tempfile::tempdir().expect("a folder");
    let root = made.path().join("rootfs");
    make_rootfs(&root);
    registry.push_for("s390x", "lab/other", "1", &root, r#"{"Env":["PATH=/bin"]}"#);
    let address = &registry.address;
    let cluster = cluster(&format!("[containers]\ninsecure_registries = ['{address}']\n"));
    let said =
        cluster.shell_as(USER, &format!("srun --container=docker://{address}/lab/other:1 true"));
    assert_ne!(said.code, 0);
    assert!(said.stderr.contains("linux/s390x"), "{}", said.stderr);
    let own = if cfg!(target_arch = "aarch64") { "linux/arm64" } else { "linux/amd64" };
    assert!(said.stderr.contains(own), "{}", said.stderr);
    assert!(said.stderr.lines().count() <= 2, "{}", said.stderr);
    let task = format!(
        "type: task\nname: other\nimage: {address}/lab/other:1\ncommands: [true]\n\
         resources: {{cpu: 1, memory: 100MB}}\n"
    );
    cluster.write("task.dstack.yml", &task);
    let said = cluster.sluice(&["apply", "-y", "-f", "task.dstack.yml"]);
    assert_ne!(said.code, 0);
    let all = format!("{}{}", said.stdout, said.stderr);
    assert!(all.contains("linux/s390x"), "{all}");
    let states = cluster.sluice(&["sacct", "-n", "-X", "-P", "-o", "state"]).ok();
    assert!(states.lines().all(|state| state == "FAILED"), "{states}");
    assert_eq!(parts_in_store(&cluster), 0, "nothing of it is kept");
    assert_nothing_is_left(&cluster);
}

/// A registry that takes connections and never answers: the job says so and ends, others run meanwhile, and one that is
/// cancelled ends at once.
#[test]
fn root_a_registry_that_hangs_keeps_nobody_but_who_waits_for_it() {
    let hangs = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = hangs.local_addr().expect("an address");
    let cluster = cluster(&format!("[containers]\ninsecure_registries = ['{address}']\n"));
    let line = format!("-o out --container=docker://{address}/lab/none:1 --wrap true");
    let job = cluster.submit_as(USER, &line);
    // It is asked, and does not answer.
    let (_asked, _) = hangs.accept().expect("a connection");
    let rootfs = cluster.path("work/rootfs");
    let other = format!("srun --container={} cat /etc/release", rootfs.display());
    assert_eq!(cluster.shell_as(USER, &other).ok(), "made on the spot\n");
    cluster.sluice(&["scancel", &job.to_string()]).ok();
    assert!(cluster.await_end(job).starts_with("CANCELLED"));
    until("the node is free", || (cluster.node_states() == "idle|none").then_some(()));
    assert_eq!(parts_in_store(&cluster), 0);
    assert_nothing_is_left(&cluster);
}

/// The store is smaller than the image: nothing of it stays, and what fits is run.
#[test]
fn root_an_image_that_the_store_has_no_place_for_is_one_line() {
    let registry = Registry::start();
    let made = tempfile::tempdir().expect("a folder");
    let root = made.path().join("rootfs");
    make_rootfs(&root);
    registry.push("lab/small", "1", &root, r#"{"Env":["PATH=/bin"]}"#);
    let noise = std::process::Command::new("dd")
        .args(["if=/dev/urandom", "bs=1M", "count=30", "status=none"])
        .arg(format!("of={}", root.join("noise").display()))
        .status();
    assert!(noise.expect("dd").success());
    registry.push("lab/large", "1", &root, r#"{"Env":["PATH=/bin"]}"#);
    let address = &registry.address;
    let toml = format!("[containers]\nstore_size = '20MB'\ninsecure_registries = ['{address}']\n");
    let cluster = cluster(&toml);
    let run = |name: &str| {
        let line = format!("srun --container=docker://{address}/lab/{name}:1 cat /etc/release");
        cluster.shell_as(USER, &line)
    };
    let said = run("large");
    assert_ne!(said.code, 0);
    assert!(said.stderr.contains("is full: 0 of 20971520 bytes"), "{}", said.stderr);
    assert!(said.stderr.lines().count() <= 2, "{}", said.stderr);
    until("nothing of it is kept", || (parts_in_store(&cluster) == 0).then_some(()));
    assert_eq!(run("small").ok(), "made on the spot\n");
    assert_nothing_is_left(&cluster);
}
