//! SSH logins through Debian's `sshd` with the PAM module: into a job of the user, or refused.

use crate::harness::{Cluster, CommandOutput, TWO_NODES, is_alive, program, signal, until};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

/// Accounts of every Debian system that are not root. The first one has jobs.
const USER: &str = "games";
const STRANGER: &str = "news";

const SSHD: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/sshd");

/// How a user authenticates.
#[derive(Clone, Copy, PartialEq)]
enum Proof {
    Key,
    /// Keyboard-interactive: PAM runs in a helper process of `sshd`. Here it asks no questions.
    Questions,
}

/// An `sshd` on a port of its own, in a mount namespace with its own `/etc`, PAM file and user shells.
struct Sshd {
    dir: PathBuf,
    port: u16,
    child: Child,
}

/// The programs that these tests need.
struct Parts {
    sshd: String,
    module: PathBuf,
}

/// `None` if this machine cannot run the test.
fn parts() -> Option<Parts> {
    let module = PathBuf::from(program()).with_file_name("libpam_sluice.so");
    let said: CommandOutput = Command::new(SSHD).output().expect("the script runs").into();
    if said.code != 0 {
        crate::harness::skip("ssh", &format!("no sshd: {}", said.stderr.trim()));
        return None;
    }
    assert!(module.exists(), "build it first: cargo build -p pam");
    Some(Parts { sshd: said.stdout.trim().to_string(), module })
}

impl Sshd {
    /// An `sshd` with key authentication. `words` are the module's arguments in the PAM file.
    fn start(cluster: &Cluster, parts: &Parts, words: &str) -> Sshd {
        Sshd::start_with(cluster, parts, words, Proof::Key)
    }

    fn start_with(cluster: &Cluster, parts: &Parts, words: &str, proof: Proof) -> Sshd {
        let dir = cluster.path("ssh");
        std::fs::create_dir(&dir).unwrap();
        let at = |name: &str| dir.join(name).display().to_string();
        for key in ["host", "user"] {
            let made = Command::new("ssh-keygen")
                .args(["-q", "-t", "ed25519", "-N", "", "-f", &at(key)])
                .status();
            assert!(made.unwrap().success(), "ssh-keygen runs");
        }
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let config = format!(
            "Port {port}\nListenAddress 127.0.0.1\nHostKey {}\nAuthorizedKeysFile {}\nStrictModes no\nUsePAM yes\n\
             PasswordAuthentication no\nPubkeyAuthentication {}\nKbdInteractiveAuthentication {}\n\
             PermitRootLogin yes\nPidFile none\nUseDNS no\n",
            at("host"),
            at("user.pub"),
            if proof == Proof::Key { "yes" } else { "no" },
            if proof == Proof::Key { "no" } else { "yes" },
        );
        std::fs::write(at("config"), config).unwrap();
        let module = parts.module.display();
        let state = cluster.state();
        let line = format!("required {module} state={} {words}", state.display());
        let pam = format!(
            "auth required pam_permit.so\naccount {line}\naccount required pam_permit.so\n\
             session {line}\nsession required pam_permit.so\n"
        );
        // A folder of its own: a file mounted over another would vanish when somebody replaces the latter.
        let copied = Command::new("cp").args(["-a", "/etc", &at("etc")]).status();
        assert!(copied.unwrap().success(), "/etc can be copied");
        std::fs::write(at("etc/pam.d/sshd"), pam).unwrap();
        let users = std::fs::read_to_string(at("etc/passwd")).unwrap();
        let users = users.replace("/usr/sbin/nologin", "/bin/sh");
        let own = match users.contains("\nsshd:") {
            true => "",
            false => "sshd:x:65533:65534::/run/sshd:/bin/false\n",
        };
        std::fs::write(at("etc/passwd"), users + own).unwrap();
        let script = format!(
            "mount --bind {} /etc && mount -t tmpfs run /run && mkdir -m 755 /run/sshd && exec {} -D -e -f {}",
            at("etc"),
            parts.sshd,
            at("config")
        );
        let log = std::fs::File::create(at("log")).unwrap();
        let child = Command::new("unshare")
            .args(["-m", "--propagation", "private", "sh", "-c", &script])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("unshare runs");
        let sshd = Sshd { dir, port, child };
        until("sshd listens", || std::net::TcpStream::connect(("127.0.0.1", port)).ok());
        sshd
    }

    fn command(&self, user: &str, line: &str) -> Command {
        let mut command = Command::new("ssh");
        command.args([
            "-F",
            "none",
            "-o",
            "NumberOfPasswordPrompts=1",
            "-o",
            "StrictHostKeyChecking=no",
        ]);
        command.args(["-o", "UserKnownHostsFile=/dev/null", "-o", "LogLevel=INFO", "-i"]);
        command.arg(self.dir.join("user")).args(["-p", &self.port.to_string()]);
        command.arg(format!("{user}@127.0.0.1")).arg(line).stdin(Stdio::null());
        command
    }

    fn ssh(&self, user: &str, line: &str) -> CommandOutput {
        self.command(user, line).output().expect("ssh runs").into()
    }
}

impl Drop for Sshd {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = std::fs::read_to_string(self.dir.join("log")).unwrap_or_default();
            eprintln!("sshd's log:\n{log}");
        }
        signal(self.child.id() as i32, "TERM");
        let _ = self.child.wait();
    }
}

/// The control groups of a process that belong to jobs, over all hierarchies.
fn job_groups(text: &str) -> Vec<&str> {
    text.lines().filter_map(|line| Some(line.split_once("/job_")?.1)).collect()
}

#[test]
fn root_an_ssh_login_joins_the_newest_job_and_ends_with_it() {
    let Some(parts) = parts() else { return };
    let cluster = Cluster::up(TWO_NODES);
    let sshd = Sshd::start(&cluster, &parts, "");
    let older = cluster.submit_as(USER, "--mem=100 -o none --wrap 'sleep 600'");
    let job = cluster.submit_as(USER, "--mem=100 -o own --wrap 'cat /proc/self/cgroup; sleep 600'");
    cluster.await_state(older, "RUNNING");
    let own = cluster.await_file("own", |text| text.contains("/job_") && text.ends_with('\n'));
    let inside = format!("{job}_1");
    let seen = sshd.ssh(USER, "cat /proc/self/cgroup").ok();
    let groups = job_groups(&seen);
    assert!(!groups.is_empty() && groups.iter().all(|g| g.starts_with(&inside)), "{seen}");
    assert_eq!(
        groups.len(),
        job_groups(&own).len(),
        "in as many trees as the job's own: {seen}\n{own}"
    );
    let pid_file = cluster.path("work").join("pids");
    let line =
        format!("echo $$ $PPID > {}; trap '' TERM HUP; sleep 600 & wait", pid_file.display());
    let mut visit = sshd.command(USER, &line).spawn().expect("ssh runs");
    let pids = cluster.await_file("pids", |text| text.ends_with('\n'));
    let pids: Vec<i32> = pids.split_whitespace().map(|pid| pid.parse().unwrap()).collect();
    cluster.sluice(&["scancel", &job.to_string()]).ok();
    cluster.await_end(job);
    until("the login is cut", || visit.try_wait().expect("a child"));
    for pid in pids {
        assert!(!is_alive(pid), "process {pid} of the login ended with the job");
    }
    let seen = sshd.ssh(USER, "cat /proc/self/cgroup").ok();
    let inside = format!("{older}_1");
    assert!(job_groups(&seen).iter().all(|g| g.starts_with(&inside)), "{seen}");
    assert_eq!(cluster.state_of(older), "RUNNING|None", "a login that ends takes no job along");
}

#[test]
fn root_an_ssh_login_has_the_memory_limit_of_its_job() {
    let Some(parts) = parts() else { return };
    let cluster = Cluster::up(TWO_NODES);
    let sshd = Sshd::start(&cluster, &parts, "");
    let job = cluster.submit_as(USER, "--mem=60 -o none --wrap 'sleep 600'");
    cluster.await_state(job, "RUNNING");
    assert_eq!(sshd.ssh(USER, "head -c 3000000 /dev/zero | wc -c").ok(), "3000000\n");
    let said = sshd.ssh(USER, "head -c 300000000 /dev/zero | tail -n 1 | wc -c");
    assert_ne!(said.stdout.trim(), "300000000", "more than the job has cannot be held");
}

#[test]
fn root_without_a_job_only_root_may_log_in() {
    let Some(parts) = parts() else { return };
    let cluster = Cluster::up(TWO_NODES);
    let sshd = Sshd::start(&cluster, &parts, "ignore_users=lp");
    let refused = |user: &str| {
        let said = sshd.ssh(user, "echo in");
        assert_eq!((said.code, said.stdout.as_str()), (255, ""), "{}", said.stderr);
        said.stderr
    };
    let uid = cluster.shell(&format!("id -u {STRANGER}")).ok();
    let words = format!(
        "Access denied: user {STRANGER} (uid={}) has no active jobs on this node.",
        uid.trim()
    );
    let said = refused(STRANGER);
    assert!(said.contains(&words), "{said}");
    // Another user's job admits no login.
    let job = cluster.submit_as(USER, "-o none --wrap 'sleep 600'");
    cluster.await_state(job, "RUNNING");
    refused(STRANGER);
    assert_eq!(sshd.ssh(USER, "echo in").ok(), "in\n");
    for user in ["root", "lp"] {
        let seen = sshd.ssh(user, "cat /proc/self/cgroup").ok();
        assert!(job_groups(&seen).is_empty(), "{user} is left alone: {seen}");
    }
    // Without an agent logins are refused, except for root.
    cluster.kill("agent");
    let said = refused(USER);
    assert!(said.contains("the agent does not answer"), "{said}");
    assert_eq!(sshd.ssh("root", "echo in").ok(), "in\n");
    let mut agent = cluster.spawn_agent();
    until("the agent lets in again", || (sshd.ssh(USER, "echo in").stdout == "in\n").then_some(()));
    cluster.sluice(&["down", "--jobs"]).ok();
    let _ = agent.wait();
}

#[test]
fn root_an_interactive_pam_login_joins_its_job() {
    let Some(parts) = parts() else { return };
    let cluster = Cluster::up(TWO_NODES);
    let sshd = Sshd::start_with(&cluster, &parts, "", Proof::Questions);
    let said = sshd.ssh(USER, "echo in");
    assert_eq!((said.code, said.stdout.as_str()), (255, ""), "{}", said.stderr);
    let job = cluster.submit_as(USER, "-o none --wrap 'sleep 600'");
    cluster.await_state(job, "RUNNING");
    let seen = sshd.ssh(USER, "cat /proc/self/cgroup").ok();
    let (groups, inside) = (job_groups(&seen), format!("{job}_1"));
    assert!(!groups.is_empty() && groups.iter().all(|g| g.starts_with(&inside)), "{seen}");
}

#[test]
fn root_a_suspended_job_admits_no_login() {
    let Some(parts) = parts() else { return };
    let cluster = Cluster::up(TWO_NODES);
    let sshd = Sshd::start(&cluster, &parts, "");
    let job = cluster.submit_as(USER, "-o none --wrap 'sleep 600'");
    cluster.await_state(job, "RUNNING");
    cluster.sluice(&["scontrol", "suspend", &job.to_string()]).ok();
    cluster.await_state(job, "SUSPENDED");
    let said = sshd.ssh(USER, "echo in");
    assert_eq!((said.code, said.stdout.as_str()), (255, ""), "{}", said.stderr);
    assert!(said.stderr.contains("cannot enter a job"), "{}", said.stderr);
    cluster.sluice(&["scontrol", "resume", &job.to_string()]).ok();
    cluster.await_state(job, "RUNNING");
    assert_eq!(sshd.ssh(USER, "echo in").ok(), "in\n");
}

/// A cluster whose jobs have a private view of the folder `shown`, and of `more`.
fn with_private_folders(more: &str) -> Cluster {
    let cluster = Cluster::folder("");
    let shown = cluster.path("shown");
    std::fs::create_dir(&shown).unwrap();
    std::fs::write(shown.join("machines"), "").unwrap();
    cluster
        .write_conf("slurm.conf", &format!("{TWO_NODES}\nJobContainerType=job_container/tmpfs\n"));
    let base = cluster.path("base");
    let dirs = format!("BasePath={} Dirs={}{more}\n", base.display(), shown.display());
    cluster.write_conf("job_container.conf", &format!("AutoBasePath=true\n{dirs}"));
    cluster.start();
    cluster
}

#[test]
fn root_an_ssh_login_sees_the_private_folders_of_its_job() {
    let Some(parts) = parts() else { return };
    let cluster = with_private_folders(",/dev/shm");
    let (shown, base) = (cluster.path("shown"), cluster.path("base"));
    let sshd = Sshd::start(&cluster, &parts, "");
    let (dir, memory) = (shown.display(), "/dev/shm/sluice-login-test");
    let body = format!("echo own > {dir}/file; echo memory > {memory}; touch ready; sleep 600");
    let job = cluster.submit_as(USER, &format!("-o none --wrap '{body}'"));
    cluster.await_file("ready", |_| true);
    let line = format!("cat {dir}/file {memory}; ls {dir}; echo back > {dir}/visitor");
    assert_eq!(sshd.ssh(USER, &line).ok(), "own\nmemory\nfile\n");
    assert!(!shown.join("visitor").exists() && !std::path::Path::new(memory).exists());
    assert_eq!(sshd.ssh("root", &format!("ls {dir}")).ok(), "machines\n", "root is left alone");
    // The next agent admits logins too.
    cluster.kill_alone("agent");
    until("the agent lets in again", || {
        (sshd.ssh(USER, &format!("cat {dir}/visitor")).stdout == "back\n").then_some(())
    });
    cluster.sluice(&["scancel", &job.to_string()]).ok();
    cluster.await_end(job);
    until("its folders are gone", || {
        let nodes = std::fs::read_dir(&base).into_iter().flatten().flatten();
        nodes.flat_map(|n| std::fs::read_dir(n.path())).flatten().next().is_none().then_some(())
    });
}

/// No process of the job runs: only the supervisor holds its mount namespace.
#[test]
fn root_an_ssh_login_sees_the_private_folders_of_a_job_without_processes() {
    let Some(parts) = parts() else { return };
    let cluster = with_private_folders("");
    let shown = cluster.path("shown");
    let sshd = Sshd::start(&cluster, &parts, "");
    let said = cluster.shell_as(USER, "salloc --no-shell -n1 2>&1").ok();
    assert!(said.contains("Granted job allocation"), "{said}");
    until("it sees an empty folder", || {
        let said = sshd.ssh(USER, &format!("ls {}; echo end", shown.display()));
        (said.stdout == "end\n").then_some(())
    });
}
