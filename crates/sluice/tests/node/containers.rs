//! Containers by a real runtime: a root file system that is made on the spot, as folder, bundle, file and image of a
//! real registry.

use super::registry::Registry;
use crate::harness::{Cluster, skip, until};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

pub(super) const USER: &str = "daemon";

/// What the root file systems are made from: one program that is many.
const TOOLS: [&str; 17] = [
    "cat", "echo", "env", "grep", "head", "id", "ln", "ls", "mount", "ps", "pwd", "rm", "sh",
    "sleep", "stat", "tail", "true",
];

/// A cluster with a root file system in `work/rootfs`, readable by everybody.
pub(super) fn cluster(toml: &str) -> Cluster {
    cluster_of("SlurmdParameters=config_overrides\nNodeName=node1 CPUs=4 RealMemory=2000", toml)
}

/// As `cluster`, with a node that is as these lines say.
fn cluster_of(node: &str, toml: &str) -> Cluster {
    let cluster = Cluster::folder(&format!(
        "ClusterName=test\nDefMemPerCPU=200\nKillWait=8 AuthInfo=cred_expire=0\n\
         {node}\nPartitionName=main Nodes=node1 Default=YES State=UP\n",
    ));
    cluster.write_conf("sluice.toml", toml);
    make_rootfs(&cluster.path("work/rootfs"));
    cluster.start();
    cluster
}

pub(super) fn make_rootfs(root: &Path) {
    for folder in ["bin", "dev", "etc", "proc", "sys", "tmp", "opt/data"] {
        std::fs::create_dir_all(root.join(folder)).expect("made");
    }
    std::fs::copy("/bin/busybox", root.join("bin/busybox"))
        .expect("busybox, which scripts/install brings");
    for tool in TOOLS {
        symlink("busybox", root.join("bin").join(tool)).expect("a link");
    }
    std::fs::write(
        root.join("etc/passwd"),
        "root:x:0:0::/root:/bin/sh\napp:x:77:78::/app:/bin/sh\n",
    )
    .expect("written");
    std::fs::write(root.join("etc/release"), "made on the spot\n").expect("written");
    let owned = Command::new("chown").arg("-R").arg(USER).arg(root).status().expect("chown");
    assert!(owned.success());
}

/// Nothing of any container is left on the node: no folder, no group, no process.
pub(super) fn assert_nothing_is_left(cluster: &Cluster) {
    let folder = cluster.state().join("nodes/node1/containers");
    until("the containers' folders are gone", || {
        let left = std::fs::read_dir(&folder).into_iter().flatten().flatten();
        let of_jobs = left.filter(|entry| !entry.file_name().to_string_lossy().starts_with("ids-"));
        (of_jobs.count() == 0).then_some(())
    });
    until("the groups are gone", || cluster.groups().is_empty().then_some(()));
}

#[test]
fn root_a_step_runs_in_a_root_file_system_as_its_user() {
    let cluster = cluster("");
    let rootfs = cluster.path("work/rootfs");
    let run = |options: &str, script: &str| {
        let line = format!("srun --container={} {options} sh -c '{script}'", rootfs.display());
        cluster.shell_as(USER, &line)
    };
    let uid = nix::unistd::User::from_name(USER).expect("users").expect("the user").uid;
    let said = run("-n1", "id -u; cat /etc/release; echo $SLURM_JOB_ID; exit 4");
    assert_eq!(
        (said.code, said.stdout),
        (4, format!("{uid}\nmade on the spot\n1\n")),
        "{}",
        said.stderr
    );
    assert_eq!(said.stderr, "srun: error: node1: task 0: Exited with exit code 4\n");
    // Its files seem to be the user's, and what is written is gone with the step.
    let said = run("-n1", "echo mine > /opt/data/x; stat -c %u /opt/data/x /etc/release");
    assert_eq!(said.ok(), format!("{uid}\n{uid}\n"));
    assert!(!rootfs.join("opt/data/x").exists(), "the image is as it was");
    // Tasks of a step share a container: files, processes, memory.
    let script = "echo $SLURM_PROCID > /tmp/$SLURM_PROCID; until [ -e /tmp/0 ] && [ -e /tmp/1 ]; do sleep 0.05; done; \
                  echo $SLURM_PROCID > /dev/shm/$SLURM_PROCID; until [ -e /dev/shm/0 ] && [ -e /dev/shm/1 ]; do sleep 0.05; done; echo both";
    assert_eq!(run("-n2", script).ok(), "both\nboth\n");
    // Nothing in it gives more rights, and nothing of the node shows but what belongs there.
    let script = "grep -c . /proc/1/maps 2>/dev/null; grep NoNewPrivs /proc/self/status; ls /home /root 2>/dev/null; ls -d /var";
    let said = run("-n1", script);
    assert_eq!(
        said.stdout.split_whitespace().collect::<Vec<_>>(),
        ["NoNewPrivs:", "1"],
        "{}",
        said.stderr
    );
    assert_nothing_is_left(&cluster);
}

#[test]
fn root_be_root_inside_and_the_user_outside() {
    let cluster = cluster("");
    let work = cluster.path("work");
    let line = format!(
        "srun --container-image={0}/rootfs --container-remap-root --container-mounts={0}:/data \
         sh -c 'id -u; stat -c %u /etc/release; echo x > /root-file; echo y > /data/made; cat /proc/self/uid_map | head -1'",
        work.display()
    );
    let uid = nix::unistd::User::from_name(USER).expect("users").expect("the user").uid;
    let text = cluster.shell_as(USER, &line).ok();
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    assert_eq!(lines[..2], ["0", "0"], "{text}");
    assert_eq!(lines[2].split_whitespace().collect::<Vec<_>>(), ["0", &uid.to_string(), "1"]);
    let owner =
        std::os::unix::fs::MetadataExt::uid(&std::fs::metadata(work.join("made")).expect("made"));
    assert_eq!(owner, uid.as_raw(), "outside it is the user's");
    assert_nothing_is_left(&cluster);
}

#[test]
fn root_a_batch_script_and_its_steps_run_in_its_container_and_find_the_commands() {
    script_and_steps_in_a_container(&cluster(""));
}

/// Its cores are real: a step has other groups than on a node whose cores are only counted.
#[test]
fn root_a_batch_script_and_its_steps_run_in_its_container_on_a_node_as_it_is() {
    let cluster = cluster_of("NodeName=node1 CPUs=1 RealMemory=500", "");
    let node = cluster.sluice(&["scontrol", "show", "node", "node1"]).ok();
    assert!(!node.contains("Declared"), "{node}");
    script_and_steps_in_a_container(&cluster);
}

fn script_and_steps_in_a_container(cluster: &Cluster) {
    cluster.write("program", "echo from $1: $(cat /etc/release)");
    let script = "#!/bin/sh\ncat /etc/release\npwd\nsh program script\nsrun sh program step\n\
                  srun --container=none cat /etc/hostname > host\n\
                  srun --container-mounts=/etc/hostname:/shown cat /shown /etc/release > shown\nsqueue -h -o %A\necho $SLURM_CONTAINER\n";
    cluster.write("job.sh", script);
    let rootfs = cluster.path("work/rootfs");
    let job =
        cluster.submit(&["-o", "out", "--container", rootfs.to_str().expect("utf-8"), "job.sh"]);
    assert_eq!(cluster.await_end(job), "COMPLETED|0:0", "{}", cluster.read("out"));
    let expected = format!(
        "made on the spot\n{}\nfrom script: made on the spot\nfrom step: made on the spot\n{job}\n{}\n",
        cluster.path("work").display(),
        rootfs.display()
    );
    assert_eq!(cluster.read("out"), expected);
    let node = std::fs::read_to_string("/etc/hostname").unwrap_or_default();
    assert_eq!(cluster.read("host"), node, "a step may stay outside");
    let with_flags = format!("{node}made on the spot\n");
    assert_eq!(cluster.read("shown"), with_flags, "one with options has the job's image");
    // A path is that of the job, wherever its script has gone.
    let elsewhere = "cd /opt; srun cat /etc/release";
    let moved = cluster.submit(&["-o", "moved", "--container=./rootfs", "--wrap", elsewhere]);
    assert_eq!(cluster.await_end(moved), "COMPLETED|0:0", "{}", cluster.read("moved"));
    assert_eq!(cluster.read("moved"), "made on the spot\n");
    for listing in ["sacct -nXP -o container -j", "squeue -h -t all -O container:300 -j"] {
        let shown = cluster.shell(&format!("{listing} {job}")).ok();
        assert_eq!(shown.trim(), rootfs.display().to_string(), "{listing}");
    }
    assert_nothing_is_left(cluster);
}

#[test]
fn root_words_and_folders_that_are_not_utf_8_reach_a_container_as_they_are() {
    let cluster = cluster("");
    let shell = |line: &str| {
        cluster.shell(&format!(r"G=$(printf 'gr\374n'); export G LC_ALL=C; {line}")).ok()
    };
    let rootfs = cluster.path("work/rootfs");
    let container = format!("--container={}", rootfs.display());
    cluster.write("words.sh", "#!/bin/sh\nprintf %s \"$1\"\n");
    shell(r#"cp words.sh "rootfs/bin/$G"; chmod 755 "rootfs/bin/$G"; ln -s rootfs "$G.root""#);
    for line in [
        format!(r#"srun -Q {container} sh -c 'printf %s "$1"' sh "$G""#),
        format!(r#"srun -Q {container} sh -c 'printf %s "$G"'"#),
        format!(r#"srun -Q {container} "$G" "$G""#),
        r#"srun -Q --container="./$G.root" "$G" "$G""#.to_owned(),
        format!(r#"sbatch -W -Q {container} -o said words.sh "$G" >&2; cat said"#),
        format!(
            r#"srun -Q {container} --container-save="$G.tar" true; printf %s "$(basename gr*n.tar .tar)""#
        ),
        format!(
            r#"mkdir "$G"; cd "$G"; srun -Q {container} sh -c 'pwd > p; printf %s "$(tail -c 5 p)"'"#
        ),
    ] {
        // `grün` in Latin-1.
        assert_eq!(shell(&format!("({line}) | od -An -tx1")).trim(), "67 72 fc 6e", "{line}");
    }
    assert_nothing_is_left(&cluster);
}

#[test]
fn root_limits_signals_and_the_time_limit_hold_in_a_container() {
    let cluster = cluster("");
    let rootfs = cluster.path("work/rootfs");
    let container = format!("--container={}", rootfs.display());
    let said = cluster.sluice(&[
        "srun",
        "--mem=40",
        &container,
        "sh",
        "-c",
        "head -c 200m /dev/zero | tail",
    ]);
    assert_ne!(said.code, 0);
    assert!(
        said.stderr.contains("Out Of Memory") || said.stderr.contains("oom"),
        "{}",
        said.stderr
    );
    cluster.write(
        "job.sh",
        "#!/bin/sh\ntrap 'echo asked; exit 9' TERM\necho up\nwhile :; do sleep 0.1; done\n",
    );
    let job =
        cluster.submit(&["-o", "out", "--container", rootfs.to_str().expect("utf-8"), "job.sh"]);
    cluster.await_file("out", |text| text.starts_with("up\n"));
    cluster.sluice(&["scancel", &job.to_string()]).ok();
    assert!(cluster.await_end(job).starts_with("CANCELLED"));
    assert!(cluster.read("out").contains("asked\n"), "{}", cluster.read("out"));
    assert_nothing_is_left(&cluster);
}

#[test]
fn root_bad_containers_are_one_line_and_leave_nothing() {
    let cluster = cluster("");
    let rootfs = cluster.path("work/rootfs");
    let root = rootfs.display();
    std::fs::create_dir_all(cluster.path("work/secret")).expect("made");
    std::os::unix::fs::chown(cluster.path("work/secret"), Some(0), Some(0)).expect("root's");
    let closed = std::os::unix::fs::PermissionsExt::from_mode(0o700);
    std::fs::set_permissions(cluster.path("work/secret"), closed).expect("closed");
    let secret = cluster.path("work/secret").display().to_string();
    let table = [
        (
            "--container=/nowhere true".to_owned(),
            "launch failed: container /nowhere: No such file or directory",
        ),
        (format!("--container={root} nosuch"), "execve(): nosuch: No such file or directory"),
        (format!("--container={root} /etc/release"), "execve(): /etc/release: Permission denied"),
        (
            format!("--container={root} --container-mounts=/nowhere:/x true"),
            "mount /nowhere: No such file",
        ),
        (format!("--container={root} --container-mounts={secret}/x:/x true"), "Permission denied"),
        ("--container-image=127.0.0.1:1/no/such:1 true".to_owned(), "127.0.0.1:1"),
        (format!("--container={root} --container-mounts=x:/x true"), "invalid container mount"),
        (
            format!("--container={root} --container-mounts=/tmp:/dev/shm true"),
            "mount /tmp:/dev/shm: expected a place outside of /proc, /sys, /dev, /run/sluice",
        ),
        (format!("--container={root} --container-name=a/b true"), "invalid container name"),
        (
            format!("--container={root} --container-workdir=src true"),
            "invalid container working directory \"src\": expected an absolute path",
        ),
        ("--container-mounts=/tmp:/x true".to_owned(), "the container has no image"),
    ];
    for (options, expected) in table {
        let said = cluster.shell_as(USER, &format!("srun {options}"));
        assert_ne!(said.code, 0, "{options}");
        assert!(said.stderr.contains(expected), "{options}: {}", said.stderr);
        assert!(said.stderr.lines().count() <= 2, "{options}: {}", said.stderr);
    }
    // What cannot be executed has the exit code that it has outside, whichever task of the step made the container.
    let said = cluster.shell_as(USER, &format!("srun -n2 --container={root} nosuch"));
    assert_eq!(said.code, 2, "{}", said.stderr);
    // A script's file has the line.
    cluster.write("job.sh", "#!/bin/sh\ntrue\n");
    let job = cluster.submit(&["-o", "out", "--container=/nowhere", "job.sh"]);
    assert!(!cluster.await_end(job).starts_with("COMPLETED"));
    assert_eq!(cluster.read("out"), "sluice: container /nowhere: No such file or directory\n");
    assert_nothing_is_left(&cluster);
}

#[test]
fn root_a_bundle_says_nothing_about_rights() {
    let cluster = cluster("");
    let work = cluster.path("work");
    std::fs::create_dir_all(work.join("bundle")).expect("made");
    std::fs::rename(work.join("rootfs"), work.join("bundle/rootfs")).expect("moved");
    let config = r#"{"ociVersion":"1.0.2","root":{"path":"rootfs"},
        "process":{"args":["sh"],"cwd":"/opt","env":["FROM=bundle"],"user":{"uid":0,"gid":0},
          "capabilities":{"bounding":["CAP_SYS_ADMIN"],"effective":["CAP_SYS_ADMIN"],"permitted":["CAP_SYS_ADMIN"]}},
        "mounts":[{"destination":"/host","type":"bind","source":"/","options":["rbind"]}],
        "hooks":{"prestart":[{"path":"/bin/touch","args":["touch","/tmp/sluice-hook"]}]},
        "linux":{"devices":[{"path":"/dev/mem","type":"c","major":1,"minor":1}]}}"#;
    std::fs::write(work.join("bundle/config.json"), config).expect("written");
    let line = format!(
        "srun --container={}/bundle sh -c 'id -u; echo $FROM; ls -d /host /dev/mem 2>/dev/null; grep CapEff /proc/self/status'",
        work.display()
    );
    let uid = nix::unistd::User::from_name(USER).expect("users").expect("the user").uid;
    let text = cluster.shell_as(USER, &line).ok();
    assert_eq!(text, format!("{uid}\nbundle\nCapEff:\t0000000000000000\n"));
    assert!(!Path::new("/tmp/sluice-hook").exists(), "no hook ran");
    // A root file system may have a file of that name: it is no bundle.
    std::fs::write(work.join("bundle/rootfs/config.json"), "{\"root\":{\"path\":\"/\"}}")
        .expect("written");
    let line = format!("srun --container={}/bundle/rootfs cat /config.json", work.display());
    assert_eq!(cluster.shell_as(USER, &line).ok(), "{\"root\":{\"path\":\"/\"}}");
    assert_nothing_is_left(&cluster);
}

#[test]
fn root_an_image_of_a_registry_is_pulled_once_and_run_by_both_languages() {
    let registry = Registry::start();
    let made = tempfile::tempdir().expect("a folder");
    make_rootfs(&made.path().join("rootfs"));
    let settings = r#"{"Env":["PATH=/bin","GREETING=hello"],"WorkingDir":"/opt","User":"app","Cmd":["sh","-c","id -u; echo own"]}"#;
    registry.push("lab/tools", "1", &made.path().join("rootfs"), settings);
    let address = &registry.address;
    let cluster = cluster(&format!("[containers]\ninsecure_registries = ['{address}']\n"));
    let image = format!("{address}/lab/tools:1");
    let said = cluster.shell_as(
        USER,
        &format!("srun --container=docker://{image} sh -c 'echo $GREETING; cat /etc/release'"),
    );
    assert_eq!(said.ok(), "hello\nmade on the spot\n");
    // dstack's task: its image's user, folder and variables.
    let task = format!(
        "type: task\nname: in-image\nimage: {image}\nenv: [GREETING=ours]\n\
         commands:\n  - id -u\n  - pwd\n  - echo $GREETING $DSTACK_NODE_RANK\nresources: {{cpu: 1, memory: 100MB}}\n"
    );
    cluster.write("task.dstack.yml", &task);
    let said = cluster.sluice(&["apply", "-y", "-f", "task.dstack.yml"]);
    assert_eq!(said.code, 0, "{}{}", said.stdout, said.stderr);
    let lines: Vec<&str> = said.stdout.lines().collect();
    assert!(lines.ends_with(&["77", "/opt", "ours 0", "Exited (0)"]), "{}", said.stdout);
    // Without commands the image's own run.
    cluster.write(
        "own.dstack.yml",
        &format!("type: task\nname: own\nimage: {image}\nresources: {{cpu: 1, memory: 100MB}}\n"),
    );
    let said = cluster.sluice(&["apply", "-y", "-f", "own.dstack.yml"]);
    assert!(
        said.stdout.lines().collect::<Vec<_>>().ends_with(&["77", "own", "Exited (0)"]),
        "{}{}",
        said.stdout,
        said.stderr
    );
    let missing =
        cluster.shell_as(USER, &format!("srun --container=docker://{address}/lab/tools:2 true"));
    assert!(missing.stderr.contains("lab/tools:2"), "{}", missing.stderr);
    assert_eq!(missing.stderr.lines().count(), 1, "{}", missing.stderr);
    assert_nothing_is_left(&cluster);
}

/// With the registry gone: what the node has runs, and what it has not is one line.
#[test]
fn root_an_image_that_is_there_runs_without_its_registry_where_the_site_says_so() {
    let registry = Registry::start();
    let made = tempfile::tempdir().expect("a folder");
    make_rootfs(&made.path().join("rootfs"));
    registry.push("lab/tools", "1", &made.path().join("rootfs"), r#"{"Env":["PATH=/bin"]}"#);
    let address = registry.address.clone();
    let with = |more: &str| format!("[containers]\ninsecure_registries = ['{address}']\n{more}");
    let cluster = cluster(&with("pull = 'missing'\n"));
    let run = |tag: &str| {
        let image = format!("docker://{address}/lab/tools:{tag}");
        cluster.shell_as(USER, &format!("srun --container={image} cat /etc/release"))
    };
    // Who is attached is told of a pull, and of none where the image is there.
    let pulled = run("1");
    assert!(pulled.stderr.contains("lab/tools:1: pulling"), "{}", pulled.stderr);
    assert_eq!(pulled.ok(), "made on the spot\n");
    drop(registry);
    let there = run("1");
    assert_eq!((there.stderr.as_str(), there.stdout.as_str()), ("", "made on the spot\n"));
    let other = run("2");
    assert!(other.code != 0 && other.stderr.contains(&address), "{}", other.stderr);
    // Without the setting a tag is asked for each time.
    cluster.write_conf("sluice.toml", &with(""));
    cluster.sluice(&["scontrol", "reconfigure"]).ok();
    let asked = until("the node asks again", || Some(run("1")).filter(|said| said.code != 0));
    assert!(asked.stderr.contains(&address), "{}", asked.stderr);
    assert!(asked.stderr.contains("which pull = \"missing\" would run"), "{}", asked.stderr);
    assert_nothing_is_left(&cluster);
}

/// Two devices that every kernel has play the GPUs: a container shows and opens those of its job or step alone.
#[test]
fn root_a_container_has_the_devices_of_its_job_and_step() {
    for plugin in ["autodetect", "cgroup/v1"] {
        let cluster = Cluster::folder(
            "ClusterName=test\nSlurmdParameters=config_overrides\nDefMemPerCPU=100\nGresTypes=gpu\n\
             NodeName=node1 CPUs=4 RealMemory=2000 Gres=gpu:2\nPartitionName=main Nodes=node1 Default=YES State=UP\n",
        );
        cluster
            .write_conf("gres.conf", "Name=gpu File=/dev/fuse\nName=gpu File=/dev/loop-control\n");
        cluster
            .write_conf("cgroup.conf", &format!("CgroupPlugin={plugin}\nConstrainDevices=yes\n"));
        make_rootfs(&cluster.path("work/rootfs"));
        cluster.start();
        let look = "for device in fuse loop-control; do [ -e /dev/$device ] && echo there $device; \
                    (: < /dev/$device) 2>/dev/null && echo opens $device; done; true";
        let rootfs = cluster.path("work/rootfs");
        let container = format!("--container={}", rootfs.display());
        let job = |gres: &str| cluster.sluice(&["srun", gres, &container, "sh", "-c", look]).ok();
        assert_eq!(job("--gres=gpu:1"), "there fuse\nopens fuse\n", "{plugin}");
        let both = "there fuse\nopens fuse\nthere loop-control\nopens loop-control\n";
        assert_eq!(job("--gres=gpu:2"), both, "{plugin}");
        assert_eq!(job("--gres=none"), "", "{plugin}");
        let step = format!("srun --exact -n1 --gres=gpu:1 --mem=50 {container} sh -c '{look}'");
        let text = cluster.run_script(&["-n2", "--gres=gpu:2"], &step);
        assert_eq!(text, "there fuse\nopens fuse\n", "{plugin}");
        assert_nothing_is_left(&cluster);
    }
}

/// The files of a container without a name are removed when its step has ended, those of one with a name stay: while the
/// job goes on.
#[test]
fn root_files_of_a_container_without_a_name_go_with_its_step() {
    let cluster = cluster("");
    let rootfs = cluster.path("work/rootfs").display().to_string();
    let script = format!(
        "srun -n1 --container={rootfs} sh -c 'head -c 1000000 /dev/zero > /big; ls -l /big' > /dev/null\n\
         srun -n1 --container={rootfs} --container-name=kept sh -c 'echo > /own'\n\
         srun -n1 --container={rootfs} --container-save=$PWD/saved.tar true\n\
         echo > stepped; until [ -e go ]; do sleep 0.1; done"
    );
    let job = cluster.submit(&["-n1", "-o", "out", "--wrap", &script]);
    cluster.await_file("stepped", |_| true);
    let folder = cluster.state().join("nodes/node1/containers").join(format!("{job}.1"));
    let left = || -> Vec<String> {
        let entries = std::fs::read_dir(&folder).expect("the attempt's").flatten();
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
    };
    until("the first step's files are gone", || (!left().contains(&"0".to_owned())).then_some(()));
    assert!(left().contains(&"named-kept".to_owned()), "{:?}", left());
    assert!(cluster.path("work/saved.tar").exists());
    assert!(cluster.state_of(job).starts_with("RUNNING"));
    cluster.write("go", "");
    assert_eq!(cluster.await_end(job), "COMPLETED|0:0", "{}", cluster.read("out"));
    assert_nothing_is_left(&cluster);
}

/// Files that play a fabric, in a mount namespace of the cluster's: a container of a job of several nodes shows and opens
/// them and locks memory without limit, as its bare processes do; a job of one node has neither.
#[test]
fn root_containers_of_jobs_of_several_nodes_have_the_fabric_and_lock_memory() {
    let cluster = Cluster::folder(
        "ClusterName=test\nSlurmdParameters=config_overrides\nDefMemPerCPU=100\nGresTypes=gpu\n\
         NodeName=node[1-2] CPUs=4 RealMemory=2000 Gres=gpu:1\nPartitionName=main Nodes=ALL Default=YES State=UP\n",
    );
    cluster.write_conf("gres.conf", "Name=gpu File=/dev/fuse\n");
    cluster.write_conf("cgroup.conf", "ConstrainDevices=yes\n");
    make_rootfs(&cluster.path("work/rootfs"));
    // Devices that no job may open by itself: the kernel's log, and the automounter's, which takes no further right.
    let change = "mkdir /dev/infiniband && mknod -m 666 /dev/infiniband/uverbs0 c 1 11 && \
                  mknod -m 666 /dev/infiniband/rdma_cm c 10 235";
    let covered = cluster.path("dev");
    for part in ["upper", "work"] {
        std::fs::create_dir_all(covered.join(part)).expect("made");
    }
    let line = format!(
        "ulimit -S -l 64; unshare --mount --propagation private bash -c 'exec 3</dev/pts 4</dev/shm; \
         mount -t overlay overlay -o lowerdir=/dev,upperdir={at}/upper,workdir={at}/work /dev && \
         mount --bind /proc/self/fd/3 /dev/pts && mount --bind /proc/self/fd/4 /dev/shm && {change} && \
         exec {program} up --detach --state {state} --config {conf} --listen 127.0.0.1:0 --agents 127.0.0.1:0 3<&- 4<&-'",
        at = covered.display(),
        program = crate::harness::program(),
        state = cluster.state().display(),
        conf = cluster.path("conf").display()
    );
    let said = cluster.shell(&line).ok();
    assert!(said.starts_with("sluice is up"), "{said}");
    let look = "'for file in uverbs0 rdma_cm; do [ -e /dev/infiniband/$file ] && echo there; \
                (: < /dev/infiniband/rdma_cm) 2>/dev/null && echo opens; done; ulimit -l'";
    let container = format!("--container={}", cluster.path("work/rootfs").display());
    let run = |options: &str| {
        let said = cluster.shell(&format!("ulimit -S -l 64; srun {options} sh -c {look}")).ok();
        said.lines().map(str::to_owned).collect::<Vec<String>>()
    };
    // Without a limit, or as much as the machine lets root have.
    let most = run("-N2 -n2").last().cloned().expect("a limit");
    assert_ne!(most, "64");
    for options in ["-N2 -n2 --label", &format!("-N2 -n2 --label {container}")] {
        let lines = run(options);
        for task in ["0: ", "1: "] {
            let own: Vec<&str> = lines.iter().filter_map(|line| line.strip_prefix(task)).collect();
            assert_eq!(own, ["there", "opens", "there", "opens", &most], "{options}");
        }
    }
    assert_eq!(run(&format!("-N1 -n1 {container}")), ["64"], "a job of one node has no fabric");
    assert_nothing_is_left(&cluster);
}

/// The file was built by Apptainer 1.4.5 from a folder with one program, which prints `/etc/made` and ends with its argument.
#[test]
fn root_a_sif_that_apptainer_built_runs_and_a_folder_has_its_variables() {
    let cluster = cluster("");
    let sif = cluster.path("work/tool.sif");
    std::fs::write(&sif, include_bytes!("data/apptainer.sif")).expect("written");
    let said = cluster.shell_as(USER, &format!("srun --container={} hello 3", sif.display()));
    assert_eq!((said.code, said.stdout.as_str()), (3, "made by Apptainer\n"), "{}", said.stderr);
    let said = cluster.shell_as(USER, &format!("srun --container={} none", sif.display()));
    assert!(said.code != 0 && said.stderr.contains("none: No such file"), "{}", said.stderr);
    // Cut in the midst of its file system.
    let cut = cluster.path("work/cut.sif");
    std::fs::write(&cut, &include_bytes!("data/apptainer.sif")[..38_000]).expect("written");
    let said = cluster.shell_as(USER, &format!("srun --container={} hello", cut.display()));
    assert!(said.code != 0 && said.stderr.lines().count() == 1, "{}", said.stderr);
    // A folder that Apptainer made has scripts of the same kind.
    let scripts = cluster.path("work/rootfs/.singularity.d/env");
    std::fs::create_dir_all(&scripts).expect("made");
    std::fs::write(scripts.join("90-environment.sh"), "export TOOL=\"of $SLURM_JOB_NAME\"\n")
        .expect("written");
    let rootfs = cluster.path("work/rootfs");
    let line = format!("srun -J lab --container={} sh -c 'echo $TOOL; exit 5'", rootfs.display());
    let said = cluster.shell_as(USER, &line);
    assert_eq!((said.code, said.stdout.as_str()), (5, "of lab\n"), "{}", said.stderr);
    // What Apptainer runs by itself is the entrypoint.
    let script = cluster.path("work/rootfs/.singularity.d/runscript");
    std::fs::write(&script, "#!/bin/sh\necho runscript\nexec \"$@\"\n").expect("written");
    let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&script, executable).expect("a mode");
    let said = cluster
        .shell_as(USER, &line.replace("--container=", "--container-entrypoint --container="));
    assert_eq!((said.code, said.stdout.as_str()), (5, "runscript\nof lab\n"), "{}", said.stderr);
    assert_nothing_is_left(&cluster);
}

/// A registry that takes the connection and says nothing: the run is seen to pull, and can be stopped.
#[test]
fn root_a_run_whose_image_is_pulled_says_so_in_both_languages() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = silent.local_addr().expect("an address");
    let cluster = cluster(&format!("[containers]\ninsecure_registries = ['{address}']\n"));
    cluster.write(
        "slow.dstack.yml",
        &format!("type: task\nname: slow\nimage: {address}/lab/slow:1\ncommands: [true]\nresources: {{cpu: 1, memory: 100MB}}\n"),
    );
    cluster.sluice(&["apply", "-y", "-d", "-f", "slow.dstack.yml"]).ok();
    until("the run pulls", || cluster.sluice(&["ps"]).ok().contains("pulling").then_some(()));
    assert_eq!(cluster.sluice(&["squeue", "-h", "-o", "%T %r"]).ok(), "RUNNING ImagePull\n");
    cluster.sluice(&["stop", "-y", "slow"]).ok();
    until("the run is stopped", || cluster.sluice(&["squeue", "-h"]).ok().is_empty().then_some(()));
    assert_nothing_is_left(&cluster);
}

#[test]
fn root_files_of_a_run_are_placed_in_its_container_by_its_user() {
    let cluster = cluster("");
    cluster.write("note.txt", "a note\n");
    let image = cluster.path("work/rootfs").display().to_string();
    let task = |target: &str| {
        format!(
            "type: task\nname: brought\nimage: {image}\nfiles: ['note.txt:{target}']\n\
             commands: [cat {target}]\nresources: {{cpu: 1, memory: 100MB}}\n"
        )
    };
    let apply = format!("{} apply -y -f task.dstack.yml", crate::harness::program());
    cluster.write("task.dstack.yml", &task("/opt/data/deep/note"));
    let said = cluster.shell_as(USER, &apply);
    assert_eq!(said.code, 0, "{}{}", said.stdout, said.stderr);
    assert!(said.stdout.ends_with("a note\nExited (0)\n"), "{}", said.stdout);
    assert!(!Path::new(&image).join("opt/data/deep").exists(), "the image is as it was");
    cluster.write("task.dstack.yml", &task("/proc/note"));
    let said = cluster.shell_as(USER, &apply);
    let line = "sluice: `files`: /proc/note: cannot write note: ";
    assert!(said.code != 0 && said.stdout.contains(line), "{}{}", said.stdout, said.stderr);
    assert_nothing_is_left(&cluster);
}

#[test]
fn root_a_repository_is_in_a_container_whose_image_has_no_git() {
    if Command::new("git").arg("--version").output().is_err() {
        return skip("git", "git is not installed");
    }
    let cluster = cluster("");
    let work = cluster.path("work").display().to_string();
    let made = cluster.shell(&format!(
        "set -e; export HOME=$PWD; git init -q --bare -b main origin.git; git init -q -b main code; cd code; \
         git config user.email ann@x; git config user.name Ann; echo one > kept; ln -s kept link; git add .; \
         git commit -qm one; git remote add origin file://{work}/origin.git; git push -q -u origin main; \
         echo two >> kept; echo new > new; cd ..; chown -R {USER} code origin.git"
    ));
    made.ok();
    let apply = |rest: &str| {
        let text = format!(
            "type: task\nname: cloned\nimage: {work}/rootfs\n{rest}resources: {{cpu: 1, memory: 100MB}}\n"
        );
        cluster.write("code/task.dstack.yml", &text);
        let program = crate::harness::program();
        let line = format!("export HOME={work}; {program} apply -y -f code/task.dstack.yml");
        cluster.shell_as(USER, &line)
    };
    let said = apply(
        "repos: [.]\nworking_dir: /opt/data/code\ncommands: [cat kept link new, cat .git/HEAD, test $(stat -c %u kept) = $(id -u), \
         cat /run/sluice/workspace | grep -c git_credentials.:null]\n",
    );
    assert_eq!(said.code, 0, "{}{}", said.stdout, said.stderr);
    let expected = "one\ntwo\none\ntwo\nnew\nref: refs/heads/main\n1\nExited (0)\n";
    assert!(said.stdout.ends_with(expected), "{}{}", said.stdout, said.stderr);
    assert!(!cluster.path("work/rootfs/opt/data/code").exists(), "the image is as it was");
    // A folder that is not empty is an error, or is used as it is.
    let there = |more: &str| {
        apply(&format!(
            "repos: [{{local_path: ., path: /etc{more}}}]\ncommands: [cat /etc/release]\n"
        ))
    };
    let said = there("");
    let line = "sluice: `repos`: /etc: is there and is not empty: expected a new folder";
    assert!(said.code != 0 && said.stdout.contains(line), "{}{}", said.stdout, said.stderr);
    let said = there(", if_exists: skip");
    assert!(said.stdout.ends_with("made on the spot\nExited (0)\n"), "{}", said.stdout);
    // It is not cloned then, and is cloned where the folder is not there.
    let said = apply(
        "repos: [{url: 'file:///nowhere/x.git', path: /etc, if_exists: skip}]\ncommands: [cat /etc/release]\n",
    );
    assert!(said.stdout.ends_with("made on the spot\nExited (0)\n"), "{}", said.stdout);
    let said = apply(
        "repos: [{local_path: ., path: late, if_exists: skip}]\nworking_dir: /opt/data/code\ncommands: [cat late/kept]\n",
    );
    assert!(said.stdout.ends_with("one\ntwo\nExited (0)\n"), "{}{}", said.stdout, said.stderr);
    let said = apply("repos: [{url: 'file:///nowhere/x.git', path: x}]\ncommands: [echo no]\n");
    let line =
        "sluice: `repos`: cannot clone file:///nowhere/x.git: git ended with exit status: 128";
    assert!(said.code != 0 && said.stdout.contains(line), "{}{}", said.stdout, said.stderr);
    // A node without git says so.
    let said = apply(
        "repos: [.]\nworking_dir: /opt/data/code\nenv: {PATH: /nowhere}\ncommands: [echo no]\n",
    );
    let line =
        format!("sluice: `repos`: cannot clone file://{work}/origin.git: this node has no git");
    assert!(said.code != 0 && said.stdout.contains(&line), "{}{}", said.stdout, said.stderr);
    assert_nothing_is_left(&cluster);
}
