//! What an ordinary user tries by containers: root's work for them gives nobody a right that the node does not give.

use super::containers::{USER, assert_nothing_is_left, cluster, make_rootfs};
use super::registry::Registry;
use crate::harness::Cluster;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::PathBuf;

/// A folder of the node as an image gives nobody a right to its files that the node does not give.
#[test]
fn root_the_nodes_own_files_as_an_image_stay_closed() {
    let cluster = cluster("");
    for options in [
        "--container=/",
        "--container=/ --container-remap-root",
        "--container=/etc --container-remap-root",
    ] {
        for file in ["/etc/shadow", "/shadow"] {
            let said = cluster.shell_as(USER, &format!("srun {options} /bin/cat {file}"));
            assert_ne!(said.code, 0, "{options} {file}: {}", said.stdout);
            assert_eq!(said.stdout, "", "{options} {file}");
        }
    }
    let line = "srun --container=$PWD/rootfs --container-remap-root --container-mounts=/etc:/host cat /host/shadow";
    let said = cluster.shell_as(USER, line);
    assert_ne!(said.code, 0);
    assert_eq!(said.stdout, "");
    assert!(said.stderr.contains("Permission denied"), "{}", said.stderr);
    assert_nothing_is_left(&cluster);
}

/// What root does for a container it does to the container alone, whatever the user has mounted.
#[test]
fn root_nothing_of_the_node_or_of_other_containers_can_be_changed_from_a_container() {
    let registry = Registry::start();
    let made = tempfile::tempdir().expect("a folder");
    make_rootfs(&made.path().join("rootfs"));
    registry.push("lab/tools", "1", &made.path().join("rootfs"), r#"{"Env":["PATH=/bin"]}"#);
    let address = &registry.address;
    let cluster = cluster(&format!("[containers]\ninsecure_registries = ['{address}']\n"));
    let run = |options: &str, script: &str| {
        let line =
            format!("srun --container=docker://{address}/lab/tools:1 {options} sh -c '{script}'");
        cluster.shell_as(USER, &line)
    };
    assert_eq!(run("", "cat /etc/release").ok(), "made on the spot\n");
    // The layers of the store, by way of what root has mounted or opened.
    let spoil = "for file in /host/mnt/*/etc/release /x/*/etc/release /x/etc/release; do echo spoilt > $file; done 2>/dev/null";
    for mounts in ["/:/host", "/mnt:/x"] {
        run(&format!("--container-mounts={mounts}"), spoil);
    }
    for fd in 3..9 {
        let said = run(&format!("--container-mounts=/proc/self/fd/{fd}:/x"), spoil);
        assert!(said.stderr.contains("mount /proc/self/fd/"), "{fd}: {}", said.stderr);
    }
    assert_eq!(run("", "cat /etc/release").ok(), "made on the spot\n", "the image is as it was");
    // Mount points are made in the container and nowhere else.
    let target = format!("/host{}/secret/made", cluster.path("work").display());
    std::fs::create_dir_all(cluster.path("work/secret")).expect("made");
    for source in ["/etc/hostname", "/tmp"] {
        let said = run(&format!("--container-mounts=/:/host,{source}:{target}"), "true");
        assert_ne!(said.code, 0, "{}", said.stderr);
    }
    assert_eq!(std::fs::read_dir(cluster.path("work/secret")).expect("a folder").count(), 0);
    // A variable of the user names nothing that the user could not open.
    let hidden = cluster.path("work/hidden");
    std::fs::create_dir_all(&hidden).expect("made");
    std::fs::write(hidden.join("open"), "secret\n").expect("written");
    let closed = std::os::unix::fs::PermissionsExt::from_mode(0o700);
    std::fs::set_permissions(&hidden, closed).expect("closed");
    let folder = cluster.path("work/mine");
    std::fs::create_dir_all(&folder).expect("made");
    symlink(hidden.join("open"), folder.join("sluice.sock")).expect("a link");
    let job = format!(
        "srun --export=ALL,SLUICE_STATE={0} --container=docker://{address}/lab/tools:1 cat {0}/sluice.sock",
        folder.display()
    );
    let said = cluster.shell_as(USER, &job);
    assert!(!said.stdout.contains("secret"), "{}", said.stdout);
    assert_nothing_is_left(&cluster);
}

/// A folder that only root may enter, with a file in it that everybody could read.
fn closed_folder(cluster: &Cluster) -> PathBuf {
    let closed = cluster.path("work/closed");
    fs::create_dir_all(closed.join("open")).expect("made");
    fs::write(closed.join("open/note"), "secret\n").expect("written");
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o700)).expect("closed");
    closed
}

/// A runtime enters the working directory as root, and makes what is missing of it and of what it mounts on.
#[test]
fn root_a_container_enters_and_makes_only_what_its_user_could() {
    let cluster = cluster("");
    let closed = closed_folder(&cluster);
    let work = cluster.path("work");
    let run = |rootfs: &str, options: &str, command: &str| {
        let line = format!(
            "srun --container={0}/{rootfs} --container-mounts={0}:/x {options} {command}",
            work.display()
        );
        cluster.shell_as(USER, &line)
    };
    let said = run("rootfs", "--container-workdir=/x/closed/open", "cat note");
    assert_ne!(said.code, 0);
    assert_eq!(said.stdout, "");
    assert!(said.stderr.contains("/x/closed/open: Permission denied"), "{}", said.stderr);
    let said = run("rootfs", "--container-workdir=/x/closed/made", "true");
    assert_ne!(said.code, 0, "{}", said.stdout);
    assert!(!closed.join("made").exists());
    // In the container's own files it is made.
    assert_eq!(run("rootfs", "--container-workdir=/opt/new", "pwd").ok(), "/opt/new\n");
    for point in ["sys", "proc", "dev"] {
        let image = work.join(format!("with-{point}"));
        make_rootfs(&image);
        fs::remove_dir(image.join(point)).expect("removed");
        symlink("/x/closed/made", image.join(point)).expect("a link");
        let said = run(&format!("with-{point}"), "", "true");
        assert_ne!(said.code, 0, "{point}: {}", said.stdout);
        assert!(!closed.join("made").exists(), "{point}");
    }
    assert_nothing_is_left(&cluster);
}

/// What a user is told of a line that is refused, in which `NAME` stands for a file, without the file's name and the job's number.
pub(super) fn refusal(cluster: &Cluster, line: &str, name: &str) -> String {
    let said = cluster.shell_as(USER, &line.replace("NAME", name));
    assert_ne!(said.code, 0, "{line}: {}", said.stdout);
    let is_word = |c: &char| !c.is_ascii_digit();
    said.stderr.replace(name, "NAME").chars().filter(is_word).collect()
}

/// Root finds the place of a mount and the program for the user: it says no more of what is mounted than the user could see.
#[test]
fn root_nobody_learns_from_a_container_which_files_are_in_a_closed_folder() {
    let cluster = cluster("");
    closed_folder(&cluster);
    let work = cluster.path("work");
    let links = work.join("links");
    make_rootfs(&links);
    for name in ["note", "absent"] {
        symlink(format!("/x/closed/open/{name}"), links.join(name)).expect("a link");
    }
    let said = |name: &str, options: &str, command: &str| {
        let line = format!(
            "srun --container={0}/links --container-mounts={0}:/x {options} {command}",
            work.display()
        );
        refusal(&cluster, &line, name)
    };
    for (options, command) in [
        ("--container-mounts=/etc/hostname:/x/closed/open/NAME", "true"),
        ("--container-mounts=/etc/hostname:/NAME", "true"),
        ("--container-mounts=/tmp:/x/closed/open/NAME/deeper", "true"),
        ("", "/x/closed/open/NAME"),
        ("", "/NAME"),
        ("--container-remap-root", "/x/closed/open/NAME"),
        ("--container-remap-root", "/NAME"),
        ("--container-remap-root --container-mounts=/etc/hostname:/x/closed/open/NAME", "true"),
    ] {
        let (there, absent) = (said("note", options, command), said("absent", options, command));
        assert!(there.contains("Permission denied"), "{options} {command}: {there}");
        assert_eq!(there, absent, "{options} {command}");
    }
    assert_nothing_is_left(&cluster);
}

/// A folder as an image may have folders in it that others have closed: they stay closed to what root looks for.
#[test]
fn root_nobody_learns_from_a_folder_as_an_image_which_files_are_closed_in_it() {
    let cluster = cluster("");
    let image = cluster.path("work/rootfs");
    fs::create_dir_all(image.join("closed/open")).expect("made");
    fs::write(image.join("closed/open/note"), "secret\n").expect("written");
    let mode = fs::Permissions::from_mode(0o700);
    fs::set_permissions(image.join("closed"), mode).expect("closed");
    for name in ["note", "absent"] {
        symlink(format!("/closed/open/{name}"), image.join(name)).expect("a link");
    }
    let said = |name: &str, options: &str, command: &str| {
        let line = format!("srun --container={} {options} {command}", image.display());
        refusal(&cluster, &line, name)
    };
    for (options, command) in [
        ("", "/closed/open/NAME"),
        ("--container-remap-root", "/closed/open/NAME"),
        ("--container-remap-root", "/NAME"),
        ("--container-mounts=/etc/hostname:/closed/open/NAME", "true"),
        ("--container-mounts=/etc/hostname:/NAME", "true"),
        ("--container-remap-root --container-mounts=/etc/hostname:/NAME", "true"),
        ("--container-remap-root --container-mounts=/tmp:/closed/open/NAME/deeper", "true"),
    ] {
        let (there, absent) = (said("note", options, command), said("absent", options, command));
        assert!(there.contains("Permission denied"), "{options} {command}: {there}");
        assert_eq!(there, absent, "{options} {command}");
    }
    // A file of the node that every container shows has its place in the image.
    let with_hosts = |name: &str| {
        let hosts = image.join("etc/hosts");
        let _ = fs::remove_file(&hosts);
        symlink(format!("/closed/open/{name}"), &hosts).expect("a link");
        said(name, "", "true")
    };
    let (there, absent) = (with_hosts("note"), with_hosts("absent"));
    assert!(there.contains("Permission denied"), "{there}");
    assert_eq!(there, absent);
    assert_nothing_is_left(&cluster);
}

/// What root makes after the mounts, it would make on the node if one of them covered the container's root.
#[test]
fn root_no_mount_covers_the_root_of_a_container() {
    let cluster = cluster("");
    let closed = closed_folder(&cluster);
    let work = cluster.path("work");
    let image = work.join("linked");
    make_rootfs(&image);
    symlink("/", image.join("all")).expect("a link");
    symlink(".", image.join("here")).expect("a link");
    for target in ["/.", "//", "/all", "/here", "/all/here"] {
        let line = format!(
            "srun --container={0}/linked --container-mounts={0}:{target} --container-workdir=/closed/made true",
            work.display()
        );
        let said = cluster.shell_as(USER, &line);
        assert_ne!(said.code, 0, "{target}: {}", said.stdout);
        assert!(!closed.join("made").exists(), "{target}");
    }
    // The home and the working directory are the node's, and are left out where they are its root.
    let line = format!(
        "cd /; HOME=/. srun --chdir=/. --container={}/linked --container-mount-home cat /etc/release",
        work.display()
    );
    assert_eq!(cluster.shell_as(USER, &line).ok(), "made on the spot\n");
    assert_nothing_is_left(&cluster);
}

/// The parts of an image in a folder are named by its files, which are the user's.
#[test]
fn root_parts_of_an_image_are_read_with_the_rights_of_its_user() {
    let cluster = cluster("");
    closed_folder(&cluster);
    let layout = cluster.path("work");
    let layer = fs::File::create(layout.join("closed/open/layer.tar")).expect("made");
    drop(layer);
    fs::write(layout.join("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#).expect("written");
    let nothing = "5f70bf18a086007016e948b04aed3b82103a36bea41755b6cddfaf10ace3c6ef";
    let config = format!(
        r#"{{"architecture":"{}","os":"linux","rootfs":{{"type":"layers","diff_ids":["sha256:{nothing}"]}}}}"#,
        if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" }
    );
    fs::write(layout.join("config"), config).expect("written");
    let manifest = r#"[{"Config":"config","RepoTags":["x:1"],"Layers":["closed/open/layer.tar"]}]"#;
    fs::write(layout.join("manifest.json"), manifest).expect("written");
    let line = format!("srun --container=oci:{} true", layout.display());
    let said = cluster.shell_as(USER, &line);
    assert!(said.stderr.contains("closed/open/layer.tar is missing"), "{}", said.stderr);
    assert_nothing_is_left(&cluster);
}

/// A bundle's configuration is the user's: the root that it names is opened with the user's rights, by whatever way.
#[test]
fn root_a_bundle_leads_to_no_root_that_its_user_could_not_open() {
    let cluster = cluster("");
    let closed = closed_folder(&cluster);
    let secret = closed.join("open/root");
    make_rootfs(&secret);
    fs::write(secret.join("etc/secret"), "secret\n").expect("written");
    let bundle = cluster.path("work/bundle");
    fs::create_dir(&bundle).expect("made");
    let secret = secret.to_str().expect("utf-8");
    let links =
        [("absolute", secret), ("relative", "../closed/open/root"), ("own", "/proc/self/root")];
    for (name, target) in links {
        symlink(target, bundle.join(name)).expect("a link");
    }
    let run = |path: &str, file: &str| {
        let config = serde_json::json!({"ociVersion": "1.0.2", "root": {"path": path}});
        fs::write(bundle.join("config.json"), config.to_string()).expect("written");
        let line = format!("srun --container={} /bin/cat {file}", bundle.display());
        cluster.shell_as(USER, &line)
    };
    for (path, why) in [
        (secret, "Permission denied"),
        ("../closed/open/root", "Permission denied"),
        ("absolute", "Permission denied"),
        ("relative", "Permission denied"),
        ("own", "Too many symbolic links"),
        ("/proc/self/cwd", "Too many symbolic links"),
        ("/etc/hostname", "Not a directory"),
        ("missing", "No such file"),
    ] {
        let said = run(path, "/etc/secret");
        assert!(said.code != 0 && said.stdout.is_empty(), "{path}: {}", said.stdout);
        let line = format!("bundle: its root {path}: {why}");
        assert!(said.stderr.contains(&line), "{path}: {}", said.stderr);
        assert_eq!(said.stderr.lines().count(), 1, "{path}: {}", said.stderr);
    }
    // One that the user can open is no more open than before.
    let said = run("/", "/etc/shadow");
    assert!(said.code != 0 && said.stdout.is_empty(), "{}", said.stdout);
    assert_nothing_is_left(&cluster);
}

/// A limit that the user lowers holds for the program, and not for what root does before it.
#[test]
fn root_limits_of_the_user_do_not_break_what_root_does_for_the_container() {
    let cluster = cluster("");
    let line = "ulimit -f 0; srun --container=$PWD/rootfs sh -c 'ulimit -f; echo x > /tmp/x'";
    let said = cluster.shell_as(USER, line);
    assert_eq!(said.stdout, "0\n", "{}", said.stderr);
    assert_ne!(said.code, 0, "the file was written");
    assert_eq!(cluster.shell_as(USER, "srun --container=$PWD/rootfs echo good").ok(), "good\n");
    assert_nothing_is_left(&cluster);
}

/// The runtime enters a running container as root: its user cannot lead it elsewhere between one step and the next.
#[test]
fn root_mount_points_of_a_running_container_cannot_be_replaced_by_its_user() {
    let cluster = cluster("");
    let script = "#!/bin/sh\n\
        srun --overlap --container=$PWD/rootfs --container-name=x sh -c 'echo $$ > up; touch /mine; sleep 600' &\n\
        until [ -s up ]; do sleep 0.05; done\n\
        for pid in $(pgrep -u $(id -u) -x sleep); do\n\
        root=/proc/$pid/root\n\
        for folder in dev proc sys; do\n\
        rmdir $root/$folder; mv $root/$folder $root/away; ln -s $PWD/target $root/$folder\n\
        done\n\
        rm $root/mine && echo removed its own\n\
        done 2>/dev/null\n\
        srun --overlap --container-name=x sh -c 'ls -d /dev/null /proc/self /sys/kernel'\n\
        scancel $SLURM_JOB_ID\n";
    cluster.write("job.sh", script);
    std::fs::create_dir(cluster.path("work/target")).expect("made");
    let line = "sbatch --parsable -n2 -o out.txt job.sh";
    let job = cluster.shell_as(USER, line).ok();
    cluster.await_end(job.trim());
    let text = cluster.read("out.txt");
    assert!(text.contains("/dev/null\n/proc/self\n/sys/kernel\n"), "{text}");
    assert!(text.contains("removed its own"), "{text}");
    let left: Vec<_> = std::fs::read_dir(cluster.path("work/target")).unwrap().flatten().collect();
    assert!(left.is_empty(), "{left:?}");
    assert_nothing_is_left(&cluster);
}
