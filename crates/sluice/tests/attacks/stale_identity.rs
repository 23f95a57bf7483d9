//! A user whose groups or account have changed since a job was submitted. The machines' user database is a copy of
//! `/etc` that the daemons alone see.

use crate::harness::{Cluster, TWO_NODES, program, until};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

/// A user of every Debian system, with a group of the same name.
const USER: &str = "games";
const GROUP: u32 = 60;

/// A cluster whose daemons see a copy of `/etc`.
struct OwnEtc {
    etc: PathBuf,
    /// An agent that alone sees it, where the server does not.
    agent: Option<Child>,
    cluster: Cluster,
}

impl OwnEtc {
    fn of(conf: &str) -> Self {
        let cluster = Cluster::folder(conf);
        let etc = cluster.path("etc");
        let copied = Command::new("cp").arg("-a").arg("/etc").arg(&etc).status();
        assert!(copied.unwrap().success(), "/etc can be copied");
        Self { etc, agent: None, cluster }
    }

    /// Runs a program of the cluster in a mount namespace with the copy.
    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new("unshare");
        command.args(["-m", "--propagation", "private", "sh", "-c"]);
        command.arg(format!("mount --bind {} /etc && exec \"$@\"", self.etc.display()));
        command.args(["sh", program()]).args(args).stdin(Stdio::null());
        self.cluster.set_up(&mut command);
        command
    }

    /// The server and its agent see the copy.
    fn up() -> Self {
        let own = Self::of(TWO_NODES);
        let (state, conf) = (own.cluster.state(), own.cluster.path("conf"));
        let args = ["up", "--detach", "--state", state.to_str().unwrap()];
        let ports = ["--listen", "127.0.0.1:0", "--agents", "127.0.0.1:0"];
        let mut command = own.command(&[&args[..], &ports].concat());
        let said = command.arg("--config").arg(conf).output().unwrap();
        assert!(said.status.success(), "{said:?}");
        own
    }

    /// The agent alone sees the copy.
    fn up_agent(conf: &str) -> Self {
        let mut own = Self::of(conf);
        own.cluster.start();
        own.cluster.kill("agent");
        let (state, join) = (own.cluster.state(), own.cluster.state().join("server/local.join"));
        let (state, join) = (state.to_str().unwrap(), join.to_str().unwrap());
        let mut command = own.command(&["agent", "--state", state, "--join", join]);
        own.agent = Some(command.stderr(Stdio::null()).spawn().expect("the program runs"));
        own
    }

    /// Replaces the lines of a name in a file of the copy by others.
    fn set(&self, file: &str, name: &str, lines: &str) {
        let text = std::fs::read_to_string(PathBuf::from("/etc").join(file)).unwrap();
        let others = text.lines().filter(|line| !line.starts_with(&format!("{name}:")));
        let whole: String = others.chain(lines.lines()).map(|line| format!("{line}\n")).collect();
        let new = self.etc.join("new");
        std::fs::write(&new, whole).unwrap();
        std::fs::rename(new, self.etc.join(file)).unwrap();
    }

    /// The file as it is on the machine.
    fn restore(&self, file: &str) {
        self.set(file, "\0", "");
    }

    fn line_of(&self, file: &str) -> String {
        let text = std::fs::read_to_string(PathBuf::from("/etc").join(file)).unwrap();
        let own = text.lines().find(|line| line.starts_with(&format!("{USER}:")));
        own.expect("the user").to_owned()
    }

    fn release(&self, job: u32) {
        self.cluster.shell(&format!("scontrol release {job}")).ok();
    }

    fn await_reason(&self, job: u32, wanted: &str) {
        until(&format!("job {job} is {wanted}"), || {
            (self.cluster.state_of(job) == wanted).then_some(())
        });
    }
}

impl Drop for OwnEtc {
    fn drop(&mut self) {
        if let Some(agent) = &mut self.agent {
            let _ = self.cluster.sluice(&["down", "--jobs"]);
            let _ = agent.wait();
        }
    }
}

#[test]
fn root_job_has_the_groups_of_its_start_and_of_each_further_start() {
    let own = OwnEtc::up();
    let cluster = &own.cluster;
    own.set("group", "lab", &format!("lab:x:7001:{USER}"));
    let script = "id -G > script.$SLURM_RESTART_COUNT; srun id -G > step.$SLURM_RESTART_COUNT; \
                  touch done.$SLURM_RESTART_COUNT; sleep 600";
    let job = cluster.submit_as(USER, &format!("-H -o /dev/null --wrap '{script}'"));
    own.set("group", "field", &format!("field:x:7002:{USER}"));
    own.release(job);
    // Slurm sets no count before the first requeue.
    cluster.await_file("done.", |_| true);
    let first = format!("{GROUP} 7002\n");
    assert_eq!((cluster.read("script."), cluster.read("step.")), (first.clone(), first));
    own.restore("group");
    cluster.shell(&format!("scontrol requeue {job}")).ok();
    cluster.await_file("done.1", |_| true);
    let second = format!("{GROUP}\n");
    assert_eq!((cluster.read("script.1"), cluster.read("step.1")), (second.clone(), second));
}

#[test]
fn root_job_of_an_unusable_account_is_held_with_the_reason_and_the_node_stays() {
    let own = OwnEtc::up();
    let cluster = &own.cluster;
    let renamed = own.line_of("passwd").replacen(USER, "gamer", 1);
    let table = [
        ("passwd", "", "no such user on the node"),
        ("passwd", renamed.as_str(), "another user on the node"),
        ("shadow", "games:*:19000:0:99999:7::1:", "user account expired"),
        ("shadow", "games:!$y$j9T$x$y:19000:0:99999:7:::", "user account locked"),
    ];
    for (file, line, words) in table {
        let job = cluster.submit_as(USER, "-H -o out --wrap 'touch ran'");
        own.set(file, USER, line);
        own.release(job);
        own.await_reason(job, &format!("PENDING|launch failed, {words}"));
        let shown = cluster.shell(&format!("scontrol show job {job}")).ok();
        let word = words.replace(' ', "_");
        assert!(shown.contains(&format!("Reason=launch_failed,_{word}")), "{shown}");
        assert!(!cluster.path("work/ran").exists(), "{words}");
        own.restore(file);
        own.release(job);
        assert_eq!(cluster.await_end(job), "COMPLETED|0:0", "{words}");
        std::fs::remove_file(cluster.path("work/ran")).unwrap();
    }
    assert!(cluster.log("server").contains("user games (5) has a locked account"));
    own.set("shadow", USER, "games:!:19000:0:99999:7:::");
    let keys_alone = cluster.submit_as(USER, "-o out --wrap true");
    assert_eq!(cluster.await_end(keys_alone), "COMPLETED|0:0", "it never had a password");
    assert!(!cluster.node_states().contains("drain"), "{}", cluster.node_states());
}

#[test]
fn root_locked_account_gets_no_requeue_no_srun_and_no_task() {
    let own = OwnEtc::up();
    let cluster = &own.cluster;
    let running = cluster.submit_as(USER, "-o /dev/null --wrap 'echo > began; sleep 600'");
    cluster.await_file("began", |_| true);
    own.set("shadow", USER, "games:!$y$j9T$x$y:19000:0:99999:7:::");
    let step = format!("srun --jobid={running} --overlap echo in the job");
    assert_eq!(cluster.shell_as(USER, &step).ok(), "in the job\n", "as at the job's start");
    cluster.shell(&format!("scontrol requeue {running}")).ok();
    let locked = "launch failed, user account locked";
    own.await_reason(running, &format!("PENDING|{locked}"));
    let said = cluster.shell_as(USER, "srun -J direct touch ran");
    assert_ne!(said.code, 0, "{said:?}");
    let shown = cluster.shell("squeue -h -t all -n direct -o '%T|%r'").ok();
    assert_eq!(shown.trim(), format!("FAILED|{locked}"));
    cluster.write(
        "task.dstack.yml",
        "type: task\nname: task\ncommands: [touch ran]\nresources: {cpu: 1, memory: 64MB}\n",
    );
    let said = cluster.shell_as(USER, &format!("{} apply -y -f task.dstack.yml", program()));
    assert_ne!(said.code, 0, "{said:?}");
    let shown = cluster.shell("squeue -h -t all -n task -o %r").ok();
    assert_eq!(shown.trim(), locked, "{said:?}");
    assert!(!cluster.path("work/ran").exists());
    assert!(!cluster.node_states().contains("drain"), "{}", cluster.node_states());
}

#[test]
fn root_user_database_that_hangs_drains_its_node_and_delays_nothing_else() {
    let conf = format!("PrologEpilogTimeout=5\n{TWO_NODES}");
    let own = OwnEtc::up_agent(&conf);
    let cluster = &own.cluster;
    let passwd = own.etc.join("passwd");
    let wrap = "echo > began; sleep 600";
    let before = cluster.submit(&["-w", "node2", "-o", "/dev/null", "--wrap", wrap]);
    cluster.await_file("began", |_| true);
    std::fs::remove_file(&passwd).unwrap();
    nix::unistd::mkfifo(&passwd, nix::sys::stat::Mode::from_bits_truncate(0o644)).unwrap();
    let job = cluster.submit(&["-w", "node1", "-o", "/dev/null", "--wrap", "true"]);
    until("the node is drained", || {
        cluster.node_states().contains("drained|User lookup failed").then_some(())
    });
    own.await_reason(job, "PENDING|launch failed requeued held");
    cluster.sluice(&["scancel", &before.to_string()]).ok();
    assert!(cluster.await_end(before).starts_with("CANCELLED"), "other jobs go on");
    own.restore("passwd");
    cluster.shell("scontrol update nodename=node1 state=resume").ok();
    own.release(job);
    assert_eq!(cluster.await_end(job), "COMPLETED|0:0");
}
