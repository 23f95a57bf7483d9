//! Docker and Podman as runtimes, for real: a daemon of the test's own in a network namespace, a podman with a store of the
//! test's own. Both run an image that is imported from a root file system made on the spot.

use super::containers::{USER, assert_nothing_is_left, make_rootfs};
use crate::harness::{Cluster, skip, until};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

const IMAGE: &str = "docker.io/lab/tools:1";

struct Engine {
    /// The client's name, or its path.
    program: String,
    /// Where the engine is, for it and for the agent.
    variables: Vec<(&'static str, String)>,
    daemon: Option<Child>,
    dir: tempfile::TempDir,
}

impl Engine {
    /// A daemon in a network namespace of its own.
    fn docker() -> Option<Engine> {
        let dir = tempfile::tempdir().expect("a folder");
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/docker");
        let found = Command::new(script).output().expect("the script");
        if !found.status.success() {
            skip("Docker as runtime", "its packages cannot be had");
            return None;
        }
        let usr = String::from_utf8(found.stdout).expect("utf-8");
        let usr = usr.trim();
        let at = |name: &str| dir.path().join(name).display().to_string();
        let socket = format!("unix://{}", at("socket"));
        let log = std::fs::File::create(at("log")).expect("made");
        let daemon = Command::new("unshare")
            .args(["--net", "dockerd", "--iptables=false", "--bridge=none"])
            .args(["--exec-opt", "native.cgroupdriver=cgroupfs"])
            .args(["--data-root", &at("data"), "--exec-root", &at("exec"), "--pidfile", &at("pid")])
            .args(["--host", &socket])
            .env("PATH", format!("{usr}/bin:{usr}/sbin:/usr/sbin:/usr/bin:/sbin:/bin"))
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("the daemon");
        let variables = vec![("DOCKER_HOST", socket)];
        let engine =
            Engine { program: format!("{usr}/bin/docker"), variables, daemon: Some(daemon), dir };
        until("the daemon answers", || engine.call(&["version"]).status.success().then_some(()));
        Some(engine)
    }

    fn podman() -> Option<Engine> {
        if Command::new("podman").arg("--version").output().is_err() {
            skip("Podman as runtime", "no podman");
            return None;
        }
        let dir = tempfile::tempdir().expect("a folder");
        let write = |name: &str, text: String| {
            let path = dir.path().join(name);
            std::fs::write(&path, text).expect("written");
            path.display().to_string()
        };
        let at = dir.path().display();
        // crun refuses a hybrid of both versions of control groups, as this machine may have it.
        let own = write(
            "containers.conf",
            "[engine]\nruntime = \"runc\"\nevents_logger = \"none\"\n".into(),
        );
        let store = format!(
            "[storage]\ndriver = \"overlay\"\ngraphroot = \"{at}/data\"\nrunroot = \"{at}/run\"\n"
        );
        let store = write("storage.conf", store);
        let variables = vec![("CONTAINERS_CONF", own), ("CONTAINERS_STORAGE_CONF", store)];
        Some(Engine { program: "podman".into(), variables, daemon: None, dir })
    }

    fn call(&self, words: &[&str]) -> Output {
        let variables = self.variables.iter().map(|(name, value)| (name, value.as_str()));
        Command::new(&self.program).args(words).envs(variables).output().expect("the engine")
    }

    fn import(&self, rootfs: &Path, image: &str, changes: &[&str]) {
        let archive = self.dir.path().join("rootfs.tar");
        let (from, to) = (rootfs.to_str().expect("utf-8"), archive.to_str().expect("utf-8"));
        let words = ["-C", from, "--owner=0", "--group=0", "-cf", to, "."];
        assert!(Command::new("tar").args(words).status().expect("tar").success());
        let changes: Vec<String> = changes.iter().map(|one| format!("--change={one}")).collect();
        let mut words = vec!["import"];
        words.extend(changes.iter().map(String::as_str));
        words.extend([to, image]);
        let said = self.call(&words);
        assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
    }

    /// A cluster whose runtime this is.
    fn cluster(&self) -> Cluster {
        let cluster = Cluster::folder(
            "ClusterName=test\nSlurmdParameters=config_overrides\nDefMemPerCPU=200\nKillWait=1 AuthInfo=cred_expire=0\n\
             NodeName=node1 CPUs=4 RealMemory=2000\nPartitionName=main Nodes=node1 Default=YES State=UP\n",
        );
        cluster.write_conf(
            "sluice.toml",
            &format!("[containers]\nruntime = '{}'\ntask_user = 'job'\n", self.program),
        );
        make_rootfs(&cluster.path("work/rootfs"));
        self.import(&cluster.path("work/rootfs"), IMAGE, &["ENV GREETING=hello"]);
        let variables: Vec<(&str, &str)> =
            self.variables.iter().map(|(name, value)| (*name, value.as_str())).collect();
        cluster.start_with(&variables);
        cluster
    }

    fn stop_daemon(&mut self) {
        if let Some(mut daemon) = self.daemon.take() {
            let pid = nix::unistd::Pid::from_raw(daemon.id() as i32);
            let _ = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM);
            let _ = daemon.wait();
        }
    }

    fn assert_has_no_container(&self) {
        until("the engine has no container", || {
            let said = self.call(&["ps", "--all", "--quiet"]);
            said.stdout.is_empty().then_some(())
        });
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.stop_daemon();
        // What an engine leaves mounted.
        let mounts = std::fs::read_to_string("/proc/mounts").unwrap_or_default();
        let own = self.dir.path().display().to_string();
        let points = mounts.lines().rev().filter_map(|line| line.split(' ').nth(1));
        for point in points.filter(|point| point.starts_with(&own)) {
            let _ = nix::mount::umount2(point, nix::mount::MntFlags::MNT_DETACH);
        }
    }
}

#[test]
fn root_docker_runs_a_process_inside_its_jobs_group_and_rights() {
    if let Some(engine) = Engine::docker() {
        runs_as_an_oci_runtime_would(&engine);
    }
}

#[test]
fn root_podman_runs_a_process_inside_its_jobs_group_and_rights() {
    if let Some(engine) = Engine::podman() {
        runs_as_an_oci_runtime_would(&engine);
    }
}

#[test]
fn root_docker_obeys_no_image_and_reaches_no_mount_of_the_node() {
    if let Some(engine) = Engine::docker() {
        let cluster = engine.cluster();
        refuses_groups_that_an_image_names(&engine, &cluster);
        keeps_mounts_inside(&cluster);
        let image = "docker.io/lab/volume:1";
        engine.import(&cluster.path("work/rootfs"), image, &["VOLUME /data"]);
        let said = cluster.shell_as(USER, &format!("srun --container={image} true"));
        assert!(said.code != 0 && said.stderr.contains("declares a volume"), "{}", said.stderr);
        engine.assert_has_no_container();
    }
}

#[test]
fn root_podman_obeys_no_image_and_reaches_no_mount_of_the_node() {
    if let Some(engine) = Engine::podman() {
        let cluster = engine.cluster();
        refuses_groups_that_an_image_names(&engine, &cluster);
        keeps_mounts_inside(&cluster);
        let image = "docker.io/lab/volume:1";
        engine.import(&cluster.path("work/rootfs"), image, &["VOLUME /run/sluice/lib"]);
        cluster.shell_as(USER, &format!("srun --container={image} sh -c 'exit 0'")).ok();
        // crun would run what this names, as root.
        let (image, file) = ("docker.io/lab/orders:1", engine.dir.path().join("Containerfile"));
        std::fs::write(&file, format!("FROM {IMAGE}\n")).expect("written");
        let file = file.to_str().expect("utf-8");
        let said = engine.call(&[
            "build",
            "--annotation=run.oci.hooks.stdout=/tmp/x",
            "--pull=never",
            "--file",
            file,
            "--tag",
            image,
        ]);
        assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
        let said = cluster.shell_as(USER, &format!("srun --container={image} true"));
        assert!(said.code != 0 && said.stderr.contains("run.oci.hooks.stdout"), "{}", said.stderr);
        engine.assert_has_no_container();
    }
}

#[test]
fn root_docker_without_its_daemon_is_one_line() {
    let Some(mut engine) = Engine::docker() else { return };
    let cluster = engine.cluster();
    engine.stop_daemon();
    let said = cluster.shell_as(USER, &format!("srun --container={IMAGE} true"));
    assert!(said.code != 0, "{}", said.stderr);
    let why = format!("docker: image {IMAGE}: Cannot connect to the Docker daemon at ");
    assert_eq!(
        said.stderr.lines().filter(|line| line.contains(&why)).count(),
        1,
        "{}",
        said.stderr
    );
    assert!(said.stderr.lines().count() <= 2, "{}", said.stderr);
    assert_nothing_is_left(&cluster);
}

/// An image that has a group whose name is the number of the user's group, and code for Sluice's own program inside.
fn refuses_groups_that_an_image_names(engine: &Engine, cluster: &Cluster) {
    let gid = nix::unistd::User::from_name(USER).expect("users").expect("the user").gid;
    let rootfs = cluster.path("work/rootfs");
    let image = "docker.io/lab/groups:1";
    std::fs::create_dir_all(rootfs.join("etc")).expect("made");
    let files = [("etc/group", format!("{gid}:x:6:\n")), ("etc/ld.so.preload", "/its.so\n".into())];
    for (name, text) in &files {
        std::fs::write(rootfs.join(name), text).expect("written");
    }
    engine.import(&rootfs, image, &["ENV LD_PRELOAD=/its.so"]);
    for (name, _) in &files {
        std::fs::remove_file(rootfs.join(name)).expect("removed");
    }
    let said = cluster.shell_as(USER, &format!("srun --container={image} sh -c 'echo it runs'"));
    assert!(said.code != 0 && said.stderr.contains("container has Groups"), "{}", said.stderr);
    assert!(!said.stdout.contains("it runs"), "{}", said.stdout);
    assert!(!said.stderr.contains("its.so"), "{}", said.stderr);
}

/// A mount inside of a mount of the user's, where the node shares its mounts.
fn keeps_mounts_inside(cluster: &Cluster) {
    let none: Option<&str> = None;
    let shared = cluster.path("work/shared");
    std::fs::create_dir(&shared).expect("made");
    let flags = nix::mount::MsFlags::empty();
    nix::mount::mount(Some("tmpfs"), &shared, Some("tmpfs"), flags, none).expect("mounted");
    nix::mount::mount(none, &shared, none, nix::mount::MsFlags::MS_SHARED, none).expect("shared");
    std::fs::write(shared.join("passwd"), "the nodes").expect("written");
    std::fs::write(cluster.path("work/other"), "the users").expect("written");
    let (from, other) = (shared.display(), cluster.path("work/other").display().to_string());
    let mounts = format!("--container-mounts={from}:/host,{other}:/host/passwd");
    let line = format!("srun {mounts} --container={IMAGE} cat /host/passwd");
    let said = cluster.shell_as(USER, &line);
    let outside = std::fs::read_to_string(shared.join("passwd"));
    // One is there more than the test's own if it came out.
    while nix::mount::umount2(&shared.join("passwd"), nix::mount::MntFlags::MNT_DETACH).is_ok() {}
    nix::mount::umount2(&shared, nix::mount::MntFlags::MNT_DETACH).expect("unmounted");
    assert_eq!(said.ok(), "the users");
    assert_eq!(outside.expect("read"), "the nodes");
}

/// The supervisor of a job of this cluster.
fn supervisor_of(cluster: &Cluster, job: u32) -> i32 {
    let is_it = |pid: &i32| {
        let name = std::fs::read_to_string(format!("/proc/{pid}/comm"));
        name.is_ok_and(|name| name.trim() == format!("sluice:{job}.1"))
    };
    let pids = crate::harness::processes::supervisors(&cluster.state());
    pids.into_iter().find(is_it).expect("a supervisor")
}

fn runs_as_an_oci_runtime_would(engine: &Engine) {
    let cluster = engine.cluster();
    let work = cluster.path("work");
    let run = |options: &str, script: &str| {
        cluster.shell_as(USER, &format!("srun {options} --container={IMAGE} sh -c '{script}'"))
    };
    let uid = nix::unistd::User::from_name(USER).expect("users").expect("the user").uid;
    // User, variables, working directory, shared memory, exit code.
    let script = "id -u; cat /etc/release; echo $GREETING $SLURM_JOB_ID; pwd; grep NoNewPrivs /proc/self/status; \
                  grep -o \"/dev/shm .*size=[0-9]*k\" /proc/mounts | grep -o [0-9]*k$; ulimit -f; exit 4";
    let said = cluster
        .shell_as(USER, &format!("ulimit -f 1000; srun --container={IMAGE} sh -c '{script}'"));
    let expected = format!(
        "{uid}\nmade on the spot\nhello 1\n{}\nNoNewPrivs:\t1\n102400k\n1000\n",
        work.display()
    );
    assert_eq!((said.code, said.stdout), (4, expected), "{}", said.stderr);
    let inner = format!("srun --pty --container={IMAGE} sh -c \"[ -t 0 ] && echo terminal\"");
    let said = cluster.shell_as(USER, &format!("script -qec '{inner}' /dev/null"));
    assert!(said.code == 0 && said.stdout.contains("terminal"), "{} {}", said.stdout, said.stderr);
    // Input ends, and what the user named is opened with the user's rights.
    std::fs::create_dir_all(work.join("closed/open")).expect("made");
    let closed = std::os::unix::fs::PermissionsExt::from_mode(0o700);
    std::fs::set_permissions(work.join("closed"), closed).expect("closed");
    let mount = format!("--container-mounts={}:/data", work.display());
    let line = format!(
        "echo in | srun {mount} --container={IMAGE} sh -c 'cat > /data/made; cat /data/made'"
    );
    assert_eq!(cluster.shell_as(USER, &line).ok(), "in\n");
    let owner =
        std::fs::metadata(work.join("made")).map(|m| std::os::unix::fs::MetadataExt::uid(&m));
    assert_eq!(owner.expect("made"), uid.as_raw());
    let said = run(&format!("--container-mounts={}/closed/open:/x", work.display()), "true");
    assert!(said.code != 0 && said.stderr.contains("Permission denied"), "{}", said.stderr);
    let made = format!("/host{}/closed/made", work.display());
    let said = run(&format!("--container-mounts=/:/host,/etc/hostname:{made}"), "true");
    assert!(said.code != 0 && !work.join("closed/made").exists(), "{}", said.stderr);
    // The job's memory is the container's, and a process that outlives its task is killed with it.
    let said = run("--mem=40", "head -c 200m /dev/zero | tail");
    assert!(
        said.stderr.to_lowercase().contains("out of memory") || said.stderr.contains("oom"),
        "{}",
        said.stderr
    );
    run("", "sleep 1000 > /dev/null 2>&1 &").ok();
    // A signal that the program does not handle ends it, as outside; a kill leaves nothing in the engine.
    for signal in ["--signal=TERM", "--signal=KILL"] {
        let line = format!("-o out{signal} --container={IMAGE} --wrap 'echo up; sleep 1000'");
        let job = cluster.submit_as(USER, &line);
        cluster.await_file(&format!("out{signal}"), |text| text.starts_with("up\n"));
        cluster.sluice(&["scancel", signal, "--full", &job.to_string()]).ok();
        assert!(!cluster.await_end(job).starts_with("COMPLETED"));
    }
    // A task of dstack's, in an image that nobody but the engine has: as the job's user, with its limits and what it brings.
    cluster.write("brought", "brought along\n");
    cluster.write(
        "task.dstack.yml",
        &format!(
            "type: task\nname: in-engine\nimage: {IMAGE}\nenv: [GREETING=ours]\nfiles: ['brought:/dev/shm/brought']\n\
             commands:\n  - id -u\n  - echo $GREETING $DSTACK_NODE_RANK\n  - cat /dev/shm/brought\n  \
             - head -c 200m /dev/zero | tail\nresources: {{cpu: 1, memory: 40MB}}\n"
        ),
    );
    let apply = format!("{} apply -y -f task.dstack.yml", crate::harness::program());
    let said = cluster.shell_as(USER, &apply);
    let expected = format!("\n{uid}\nours 0\nbrought along\n");
    assert!(said.stdout.contains(&expected), "{}{}", said.stdout, said.stderr);
    assert_ne!(said.code, 0, "its memory is 40 MB: {}", said.stdout);
    // A step that has ended leaves nothing to ask the engine for when its job ends.
    let wrap = format!("srun --container={IMAGE} sh -c 'exit 3'; echo ended; sleep 1000");
    let job = cluster.submit_as(USER, &format!("-o steps --wrap \"{wrap}\""));
    cluster.await_file("steps", |text| text.ends_with("ended\n"));
    let containers = cluster.state().join(format!("nodes/node1/containers/{job}.1"));
    let found = Command::new("find").arg(&containers).output().expect("find");
    let found = String::from_utf8_lossy(&found.stdout);
    assert!(found.contains("process-0-0") && !found.contains("engine.json"), "{found}");
    cluster.sluice(&["scancel", &job.to_string()]).ok();
    cluster.await_end(job);
    let line = format!("--no-requeue -o lost --container={IMAGE} --wrap 'echo up; sleep 1000'");
    let job = cluster.submit_as(USER, &line);
    cluster.await_file("lost", |text| text.starts_with("up\n"));
    crate::harness::signal(supervisor_of(&cluster, job), "KILL");
    cluster.await_end(job);
    let said = cluster.shell_as(USER, "srun --container=127.0.0.1:1/no/such:1 true");
    assert!(said.code != 0 && said.stderr.contains("127.0.0.1:1"), "{}", said.stderr);
    assert!(said.stderr.lines().count() <= 2, "{}", said.stderr);
    // What an engine cannot do is done by an OCI runtime.
    let root = format!("--container={}/rootfs --container-remap-root", work.display());
    assert_eq!(cluster.shell_as(USER, &format!("srun {root} id -u")).ok(), "0\n");
    engine.assert_has_no_container();
    assert_nothing_is_left(&cluster);
}
