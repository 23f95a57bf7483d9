//! Scratch and private folders of a job: there while it runs, removed when it has ended.

use crate::harness::{Cluster, until};
use std::path::{Path, PathBuf};

/// One node with scratch folders inside of the test's folder.
fn cluster_with(more: impl Fn(&Cluster) -> String) -> Cluster {
    let cluster = Cluster::folder("");
    let scratch = cluster.path("scratch");
    std::fs::create_dir(&scratch).unwrap();
    cluster.write_conf(
        "slurm.conf",
        &format!(
            "ClusterName=test\nSlurmdParameters=config_overrides\nDefMemPerCPU=200\nKillWait=1 AuthInfo=cred_expire=0\nTmpFS={}\n{}\
             NodeName=node1 CPUs=8 RealMemory=4000\nPartitionName=main Nodes=node1 Default=YES State=UP\n",
            scratch.display(),
            more(&cluster)
        ),
    );
    cluster
}

fn left_in(folder: &Path) -> Vec<PathBuf> {
    let nodes = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let jobs =
        nodes.flat_map(|node| std::fs::read_dir(node.path()).into_iter().flatten().flatten());
    jobs.map(|job| job.path()).collect()
}

fn script(cluster: &Cluster, text: &str) -> u32 {
    cluster.write("job.sh", &format!("#!/bin/bash\n{text}\n"));
    cluster.submit(&["-o", "out", "job.sh"])
}

#[test]
fn up_a_jobs_scratch_folder_is_shared_by_its_steps_and_removed_with_it() {
    let cluster = cluster_with(|_| String::new());
    cluster.start();
    let job = script(
        &cluster,
        "stat -c '%a %u' $SLURM_TMPDIR; ls -A $SLURM_TMPDIR | wc -l; echo $SLURM_TMPDIR\n\
         cd $SLURM_TMPDIR; echo from the script > file\n\
         srun sh -c 'cat $SLURM_TMPDIR/file'\n\
         mkdir -p 'a b/c' && touch -- -rf $'new\\nline' 'a b/c/x' && chmod 000 'a b' && ln -s / root",
    );
    assert_eq!(cluster.await_end(job), "COMPLETED|0:0");
    let text = cluster.read("out");
    let lines: Vec<&str> = text.lines().collect();
    let uid = nix::unistd::getuid();
    assert_eq!(lines[0], format!("700 {uid}"), "{text}");
    assert_eq!((lines[1], lines[3]), ("0", "from the script"), "{text}");
    assert!(lines[2].starts_with(cluster.path("scratch").to_str().unwrap()), "{text}");
    assert!(!Path::new(lines[2]).exists(), "it is gone by the time that the end is told");
    assert_eq!(left_in(&cluster.path("scratch")), Vec::<PathBuf>::new());
    // Without `TmpFS` scratch is in the node's state folder.
    let conf = std::fs::read_to_string(cluster.path("conf").join("slurm.conf")).unwrap();
    let without: Vec<&str> = conf.lines().filter(|line| !line.starts_with("TmpFS")).collect();
    cluster.sluice(&["down"]).ok();
    let left = std::fs::read_dir(cluster.path("scratch")).unwrap().count();
    assert_eq!(left, 0, "the agent has gone, and its folder with it");
    cluster.write_conf("slurm.conf", &(without.join("\n") + "\n"));
    cluster.start();
    let job = script(&cluster, "echo $SLURM_TMPDIR; touch $SLURM_TMPDIR/x");
    assert_eq!(cluster.await_end(job), "COMPLETED|0:0");
    let own = cluster.state().join(format!("nodes/node1/scratch/{job}.1"));
    assert_eq!(cluster.read("out").trim(), own.to_str().unwrap());
    assert!(!own.exists());
}

#[test]
fn root_up_a_scratch_folder_belongs_to_the_user_and_is_removed_with_mounts_and_odd_files() {
    let cluster = cluster_with(|_| String::new());
    cluster.start();
    let submit = "sbatch --parsable -o out --wrap 'stat -c %U $SLURM_TMPDIR; echo $SLURM_TMPDIR; \
                  mkdir $SLURM_TMPDIR/mnt; touch ready; until [ -e go ]; do sleep 0.05; done'";
    let job = cluster.shell_as("daemon", submit).ok().trim().to_owned();
    cluster.await_file("ready", |_| true);
    let text = cluster.read("out");
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], "daemon");
    let other = cluster.shell_as("games", &format!("ls {}", lines[1]));
    assert_ne!(other.code, 0, "nobody else may look");
    cluster
        .shell(&format!("mount -t tmpfs tmpfs {}/mnt && touch {0}/mnt/x {0}/roots", lines[1]))
        .ok();
    cluster.write("go", "");
    assert_eq!(cluster.await_end(&job), "COMPLETED|0:0");
    assert!(!Path::new(lines[1]).exists());
    let mounts = std::fs::read_to_string("/proc/mounts").unwrap();
    assert!(!mounts.contains(lines[1]), "nothing stays mounted");
}

#[test]
fn root_up_a_private_folder_is_seen_only_by_the_jobs_steps() {
    let cluster = cluster_with(|_| "JobContainerType=job_container/tmpfs\n".into());
    let (private, base) = (cluster.path("private"), cluster.path("base"));
    std::fs::create_dir(&private).unwrap();
    std::fs::write(private.join("hosts"), "").unwrap();
    cluster.write_conf(
        "job_container.conf",
        &format!(
            "AutoBasePath=true\nBasePath={}\nDirs={},/dev/shm\n",
            base.display(),
            private.display()
        ),
    );
    cluster.start();
    let shown = private.display();
    let job = script(
        &cluster,
        &format!(
            "ls -A {shown} | wc -l; echo own > {shown}/file; echo memory > /dev/shm/sluice-test\n\
             srun cat {shown}/file /dev/shm/sluice-test; ipcmk -M 64 > /dev/null; ipcs -m | grep -c '^0x'\n\
             touch ready; until [ -e go ]; do sleep 0.05; done"
        ),
    );
    cluster.await_file("ready", |_| true);
    let text = cluster.read("out");
    assert_eq!(text.lines().collect::<Vec<_>>(), ["0", "own", "memory", "1"], "{text}");
    assert!(!private.join("file").exists(), "the machine does not see the job's");
    assert!(!Path::new("/dev/shm/sluice-test").exists());
    assert_eq!(left_in(&base).len(), 1);
    cluster.write("go", "");
    assert_eq!(cluster.await_end(job), "COMPLETED|0:0");
    assert_eq!(left_in(&base), Vec::<PathBuf>::new());
    assert!(private.join("hosts").exists(), "nor has the job taken the machine's");
}

/// dstack's runs have a private `/tmp` and `/dev/shm` where the site configures nothing; a script sees the node's.
#[test]
fn root_up_a_run_without_an_image_has_its_own_tmp_and_a_script_the_nodes() {
    let conf = "ClusterName=test\nSlurmdParameters=config_overrides\nDefMemPerCPU=200\nKillWait=1 AuthInfo=cred_expire=0\n\
                NodeName=node1 CPUs=8 RealMemory=4000\nPartitionName=main Nodes=node1 Default=YES State=UP\n";
    // A cluster in `/tmp` has the folders there that its runs are given.
    let cluster = Cluster::folder_in(Path::new("/var/tmp"), conf);
    cluster.start();
    let name = format!("sluice-private-{}", std::process::id());
    let seen = Path::new("/tmp").join(&name);
    let write = format!(
        "ls -A /tmp /dev/shm | grep -c {name} || true; for d in /tmp /dev/shm; do echo x > $d/{name}; done"
    );
    cluster.write(
        "task.dstack.yml",
        &format!(
            "type: task\nname: apart\nresources: {{cpu: 1, memory: 200MB, disk: 0GB..}}\ncommands:\n  - '{write}'\n  \
             - 'stat -c %u:%a /tmp; cat /tmp/{name} /dev/shm/{name}'\n"
        ),
    );
    for _ in 0..2 {
        let said = cluster.sluice(&["apply", "-y", "-f", "task.dstack.yml"]).stdout;
        assert!(said.contains("0\n0:") && said.contains("x\nx\n"), "{said}");
        assert!(!seen.exists() && !Path::new("/dev/shm").join(&name).exists());
    }
    let node = cluster.state().join("nodes/node1");
    let entries = std::fs::read_dir(&node).expect("the node's folder").flatten();
    let own = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with("sluice-"));
    let left = own.flat_map(|own| std::fs::read_dir(own.path()).into_iter().flatten()).count();
    assert_eq!(left, 0, "the folders are removed with their runs");
    let job = script(&cluster, &format!("echo x > /tmp/{name}"));
    assert_eq!(cluster.await_end(job), "COMPLETED|0:0");
    std::fs::remove_file(&seen).expect("the script wrote to the node's own");
}

#[test]
fn root_up_a_private_folder_that_cannot_be_made_drains_the_node() {
    let cluster = cluster_with(|_| "JobContainerType=job_container/tmpfs\n".into());
    let text = format!("BasePath={}/nowhere\nDirs=/var/tmp\n", cluster.path("scratch").display());
    cluster.write_conf("job_container.conf", &text);
    cluster.start();
    let job = script(&cluster, "true");
    cluster.await_state(job, "PENDING|launch failed requeued held");
    let said = cluster.sluice(&["sinfo", "-h", "-N", "-o", "%T|%E"]).ok();
    assert!(said.starts_with("drained|cannot make a folder in"), "{said}");
}

#[test]
fn root_up_each_node_has_its_own_private_folders_and_init_script() {
    let cluster = cluster_with(|_| "JobContainerType=job_container/tmpfs\n".into());
    let at = |name: &str| cluster.path(name).display().to_string();
    let conf = cluster.path("conf").join("slurm.conf");
    let text = std::fs::read_to_string(&conf).unwrap();
    std::fs::write(
        &conf,
        text.replace("NodeName=node1", "NodeName=node[1-3]").replace("Nodes=node1", "Nodes=ALL"),
    )
    .unwrap();
    let (shown, init) = (at("shown"), at("conf/init.sh"));
    std::fs::create_dir(&shown).unwrap();
    std::fs::write(cluster.path("shown").join("machines"), "").unwrap();
    let program = format!(
        "#!/bin/sh\n[ ! -e {0}/fail ] || exit 3\nid -u > {0}/init.out\nls {shown} >> {0}/init.out\n\
         echo left > $SLURM_JOB_MOUNTPOINT_SRC/by-init\necho $SLURM_JOB_ID $SLURMD_NODENAME >> {0}/init.out\n",
        at("work")
    );
    std::fs::write(&init, program).unwrap();
    cluster.shell(&format!("chmod 755 {init}")).ok();
    cluster.write_conf(
        "job_container.conf",
        &format!(
            "AutoBasePath=true\nDirs={shown}\nBasePath={}\nNodeName=node2 BasePath={} InitScript={init}\nNodeName=node3 BasePath=none\n",
            at("one"),
            at("two")
        ),
    );
    cluster.start();
    let ls = |node: &str| {
        let job =
            cluster.submit(&["-w", node, "-o", "out", "--wrap", &format!("ls {shown}; echo end")]);
        assert_eq!(cluster.await_end(job), "COMPLETED|0:0", "on {node}");
        (job, cluster.read("out"))
    };
    assert_eq!(ls("node1").1, "end\n", "its own, and empty");
    assert_eq!(ls("node3").1, "machines\nend\n", "the machine's");
    let (job, said) = ls("node2");
    assert_eq!(said, "by-init\nend\n", "what the program before has put there");
    let uid = nix::unistd::getuid();
    assert_eq!(cluster.read("init.out"), format!("{uid}\nmachines\n{job} node2\n"));
    assert!(cluster.path("one").is_dir() && cluster.path("two").is_dir());
    // A job without its folders does not start, and the node is drained.
    cluster.write("fail", "");
    let job = cluster.submit(&["-w", "node2", "-o", "out", "--wrap", "true"]);
    cluster.await_state(job, "PENDING|launch failed requeued held");
    let said = cluster.sluice(&["sinfo", "-h", "-N", "-n", "node2", "-o", "%T|%E"]).ok();
    assert_eq!(said, "drained|InitScript error\n");
    assert_eq!(left_in(&cluster.path("two")), Vec::<PathBuf>::new());
}

#[test]
fn root_up_the_scratch_folder_of_a_killed_supervisor_is_removed() {
    let cluster = cluster_with(|_| String::new());
    cluster.start();
    let job = script(&cluster, "touch $SLURM_TMPDIR/x; echo $PPID > ready; sleep 1000");
    let supervisor = cluster.await_file("ready", |text| text.ends_with('\n'));
    crate::harness::signal(supervisor.trim().parse().expect("a pid"), "KILL");
    let first = format!("{job}.1");
    until("its folder is gone, and the next attempt has another", || {
        let left = left_in(&cluster.path("scratch"));
        (left.len() == 1 && !left[0].ends_with(&first)).then_some(())
    });
}

/// A user that no other test uses, so that no other process keeps the shared memory; system accounts are ignored.
struct Leaver;

const LEAVER: (&str, u32) = ("sluice-leaver", 61_234);

impl Leaver {
    fn new() -> Option<Self> {
        let args = ["-M", "-u", &LEAVER.1.to_string(), LEAVER.0];
        let made = std::process::Command::new("useradd").args(args).status();
        made.is_ok_and(|status| status.success()).then_some(Self)
    }
}

impl Drop for Leaver {
    fn drop(&mut self) {
        let _ = std::process::Command::new("userdel").arg(LEAVER.0).status();
    }
}

#[test]
fn root_up_shared_memory_is_removed_with_the_users_last_process() {
    match Leaver::new() {
        Some(_made) => leave_shared_memory(LEAVER.0, LEAVER.1),
        None => eprintln!("skipped: no user can be made here"),
    }
}

fn leave_shared_memory(name: &str, uid: u32) {
    let cluster = cluster_with(|_| String::new());
    cluster.start();
    let submit = |rest: &str| {
        let line = format!("sbatch --parsable -o out --wrap '{rest}'");
        cluster.shell_as(name, &line).ok().trim().to_owned()
    };
    let left = || {
        let table = std::fs::read_to_string("/proc/sysvipc/shm").unwrap();
        let rows = table.lines().filter(|l| l.split_whitespace().nth(7) == Some(&uid.to_string()));
        (rows.count(), Path::new("/dev/shm/sluice-left").exists())
    };
    let stays = submit("until [ -e go ]; do sleep 0.05; done");
    cluster.await_state(&stays, "RUNNING");
    let leaves = submit("ipcmk -M 64 > /dev/null && echo x > /dev/shm/sluice-left");
    assert_eq!(cluster.await_end(&leaves), "COMPLETED|0:0");
    assert_eq!(left(), (1, true), "another job of the user's may use it");
    cluster.write("go", "");
    assert_eq!(cluster.await_end(&stays), "COMPLETED|0:0");
    assert_eq!(left(), (0, false));
}
