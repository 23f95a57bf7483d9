//! Power saving and reboots: programs of the test note what they are called for, and the test stops and starts agents as they
//! would machines.

use crate::harness::{Cluster, program, signal, until};
use std::collections::BTreeMap;
use std::process::{Child, Stdio};

/// A server, and the agents that run.
pub(super) struct PowerCluster {
    cluster: Option<Cluster>,
    server: Option<Child>,
    agents: BTreeMap<String, Child>,
    /// Where the server listens, with a port that is free.
    address: &'static str,
}

/// One node that is always there, and one of a cloud. `more` comes first.
fn conf(cluster: &Cluster, more: &str) -> String {
    let work = cluster.path("work").display().to_string();
    let note = |name: &str, more: &str| {
        cluster.write_program(name, &format!("echo \"$1\" >> {work}/{name}\n{more}"))
    };
    let suspend = note("suspended", "echo powered down");
    let resume = note(
        "resumed",
        &format!(
            "cat \"$SLURM_RESUME_FILE\" > {work}/resume.json\n\
         while [ -e {work}/hold ]; do sleep 0.05; done\n\
         [ ! -e {work}/fail ] || exit 3"
        ),
    );
    let failed = note("failed", "");
    let reboot =
        cluster.write_program("reboot", &format!("echo $SLURMD_NODENAME >> {work}/rebooted"));
    format!(
        "{more}ClusterName=power\n\
         SlurmdParameters=config_overrides\n\
         DefMemPerCPU=16\nKillWait=1 AuthInfo=cred_expire=0\n\
         SuspendProgram={suspend}\nResumeProgram={resume}\nResumeFailProgram={failed}\n\
         RebootProgram={reboot}\n\
         SuspendTime=1\nSuspendTimeout=5\nSuspendExcNodes=here\n\
         SlurmctldParameters=power_save_interval=1\n\
         NodeName=here CPUs=2 RealMemory=1000\n\
         NodeName=cloud1 CPUs=2 RealMemory=1000 State=CLOUD\n\
         PartitionName=main Nodes=here,cloud1 Default=YES State=UP\n\
         PartitionName=cloud Nodes=cloud1 State=UP\n"
    )
}

impl PowerCluster {
    pub(super) fn up(more: &str) -> Self {
        Self::up_at("127.0.0.1:0", more)
    }

    pub(super) fn up_at(address: &'static str, more: &str) -> Self {
        let cluster = Cluster::folder("");
        cluster.write_conf("slurm.conf", &conf(&cluster, more));
        Self::up_in(cluster, address)
    }

    /// With this slurm.conf, and no power saving.
    pub(super) fn up_with(conf: &str) -> Self {
        Self::up_in(Cluster::folder(conf), "127.0.0.1:0")
    }

    /// In this folder, whose configuration is written.
    pub(super) fn up_in(cluster: Cluster, address: &'static str) -> Self {
        let mut up =
            Self { cluster: Some(cluster), server: None, agents: BTreeMap::new(), address };
        up.start_server();
        up
    }

    pub(super) fn cluster(&self) -> &Cluster {
        self.cluster.as_ref().expect("it is there until the end")
    }

    pub(super) fn start_server(&mut self) {
        let cluster = self.cluster();
        let (state, conf) = (cluster.state(), cluster.path("conf"));
        let mut args = vec!["server", "--state", state.to_str().unwrap()];
        args.extend(["--config", conf.to_str().unwrap()]);
        if !state.join("ports.json").exists() {
            args.extend(["--listen", self.address, "--agents", self.address]);
        }
        let log =
            std::fs::File::options().create(true).append(true).open(cluster.path("server.out"));
        let log = log.unwrap();
        let mut command = cluster.command(&args);
        command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        let server = command.spawn().expect("the program runs");
        until("the server answers", || {
            cluster.shell("scontrol ping").stdout.contains("is UP").then_some(())
        });
        self.server = Some(server);
    }

    pub(super) fn kill_server(&mut self) {
        let mut server = self.server.take().expect("it runs");
        server.kill().unwrap();
        server.wait().unwrap();
    }

    /// Starts the agent of a node, which has joined before or joins now.
    pub(super) fn start_agent(&mut self, node: &str, more: &[&str]) {
        self.start_agent_with(node, more, &[]);
    }

    /// The same with these variables in its environment.
    pub(super) fn start_agent_with(
        &mut self,
        node: &str,
        more: &[&str],
        environment: &[(&str, &str)],
    ) {
        let cluster = self.cluster();
        let (state, join) =
            (cluster.path(&format!("agent-{node}")), cluster.path(&format!("{node}.join")));
        if !join.exists() {
            let line = format!("{} token node {node} > {}", program(), join.display());
            cluster.shell(&line).ok();
        }
        let log = std::fs::File::options()
            .create(true)
            .append(true)
            .open(cluster.path(&format!("{node}.out")));
        let log = log.unwrap();
        let mut command = cluster.command(&["agent", "--state", state.to_str().unwrap()]);
        command.args(["--join", join.to_str().unwrap()]).args(more);
        command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        command.envs(environment.iter().copied());
        let child = command.spawn().expect("the program runs");
        self.agents.insert(node.to_owned(), child);
    }

    /// The process of an agent.
    pub(super) fn agent_pid(&self, node: &str) -> i32 {
        self.agents[node].id() as i32
    }

    /// What the agent of a node has written.
    pub(super) fn agent_log(&self, node: &str) -> String {
        std::fs::read_to_string(self.cluster().path(&format!("{node}.out"))).unwrap_or_default()
    }

    pub(super) fn stop_agent(&mut self, node: &str) {
        let mut agent = self.agents.remove(node).expect("it runs");
        signal(agent.id() as i32, "TERM");
        agent.wait().unwrap();
    }

    fn state_of_node(&self, node: &str) -> String {
        let line = format!("sinfo -h -N -p main -n {node} -o %t");
        self.cluster().shell(&line).stdout.trim().to_owned()
    }

    pub(super) fn await_node(&self, node: &str, wanted: &str) {
        until(&format!("{node} is {wanted}"), || {
            (self.state_of_node(node) == wanted).then_some(())
        });
    }

    pub(super) fn show(&self, node: &str) -> String {
        self.cluster().shell(&format!("scontrol show node {node}")).ok()
    }

    /// How often a program was called.
    fn calls(&self, program: &str) -> usize {
        self.cluster().read(program).lines().count()
    }

    pub(super) fn log(&self) -> String {
        let written =
            std::fs::read_to_string(self.cluster().path("server.out")).unwrap_or_default();
        format!("{written}{}", self.cluster().log("server"))
    }
}

impl Drop for PowerCluster {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("server: {}", self.log());
        }
        for agent in self.agents.values_mut() {
            signal(agent.id() as i32, "TERM");
            let _ = agent.wait();
        }
        // It tells the server to end.
        drop(self.cluster.take());
        if let Some(server) = &mut self.server {
            let _ = server.kill();
            let _ = server.wait();
        }
    }
}

#[test]
fn up_a_cloud_node_is_powered_up_for_a_job_and_down_when_it_is_idle() {
    let mut up = PowerCluster::up("ResumeTimeout=80\n");
    assert_eq!(up.state_of_node("cloud1"), "idle~");
    assert!(up.show("cloud1").contains("State=IDLE+CLOUD+POWERED_DOWN "), "{}", up.show("cloud1"));
    let listed = up.cluster().shell("sinfo -h -N -t powered_down -p main -o %N").ok();
    assert_eq!(listed.trim(), "cloud1");
    let job = up.cluster().submit(&["-p", "cloud", "-n2", "-o", "job.out", "--wrap", "echo ran"]);
    let resume = up.cluster().await_file("resume.json", |text| text.ends_with('}'));
    let told: serde_json::Value = serde_json::from_str(&resume).unwrap();
    assert_eq!(told["all_nodes_resume"], "cloud1");
    assert_eq!(
        (&told["jobs"][0]["job_id"], &told["jobs"][0]["nodes_alloc"]),
        (&job.into(), &"cloud1".into())
    );
    assert_eq!(up.cluster().read("resumed"), "cloud1\n");
    up.await_node("cloud1", "alloc#");
    assert_eq!(up.cluster().state_of(job), "CONFIGURING|None");
    assert!(up.show("cloud1").contains("+POWERING_UP "), "{}", up.show("cloud1"));
    up.start_agent("cloud1", &[]);
    assert_eq!(up.cluster().await_end(job), "COMPLETED|0:0");
    assert_eq!(up.cluster().read("job.out"), "ran\n");
    assert_eq!(up.cluster().await_file("suspended", |text| text.ends_with('\n')), "cloud1\n");
    up.stop_agent("cloud1");
    up.await_node("cloud1", "idle~");
    assert!(up.log().contains("powered down"), "what a program prints is in the log");
    up.cluster().shell("scontrol power up cloud1").ok();
    until("it is asked for again", || (up.calls("resumed") == 2).then_some(()));
    up.start_agent("cloud1", &[]);
    until("it is up", || (up.state_of_node("cloud1") == "idle").then_some(()));
}

#[test]
fn up_resume_program_is_called_once_the_file_of_its_jobs_can_be_written() {
    let mut up = PowerCluster::up("ResumeTimeout=80\n");
    let server = up.cluster().state().join("server");
    let (folder, away) = (server.join("resume"), server.join("resume.away"));
    // The sender makes it once the server answers.
    until("the folder is there", || std::fs::rename(&folder, &away).ok());
    // No file can be made in what is no folder, as on a disk that is full.
    std::fs::write(&folder, "").unwrap();
    let job = up.cluster().submit(&["-p", "cloud", "-o", "job.out", "--wrap", "echo ran"]);
    until("the server says that it cannot", || {
        up.log().contains("ResumeProgram is not called yet").then_some(())
    });
    assert!(!up.cluster().path("work").join("resumed").exists(), "nor was it called without");
    std::fs::remove_file(&folder).unwrap();
    std::fs::rename(&away, &folder).unwrap();
    let resume = up.cluster().await_file("resume.json", |text| text.ends_with('}'));
    assert!(resume.contains(&format!("\"job_id\":{job}")), "{resume}");
    until("the file is gone", || {
        std::fs::read_dir(&folder).unwrap().next().is_none().then_some(())
    });
    up.start_agent("cloud1", &[]);
    assert_eq!(up.cluster().await_end(job), "COMPLETED|0:0");
}

#[test]
fn up_a_node_that_does_not_resume_is_down_and_its_job_runs_later() {
    let mut up = PowerCluster::up("ResumeTimeout=2\n");
    up.cluster().write("fail", "");
    let job = up.cluster().submit(&["-p", "cloud", "-o", "job.out", "--wrap", "echo ran"]);
    up.await_node("cloud1", "down~");
    assert_eq!(up.cluster().await_file("failed", |text| text.ends_with('\n')), "cloud1\n");
    up.cluster().await_state(job, "PENDING");
    let shown = up.show("cloud1");
    assert!(
        shown.contains("State=DOWN+CLOUD") && shown.contains("Reason=ResumeTimeout reached"),
        "{shown}"
    );
    assert!(up.log().contains("exit status: 3"), "a failed program is said: {}", up.log());
    std::fs::remove_file(up.cluster().path("work").join("fail")).unwrap();
    up.start_agent("cloud1", &[]);
    up.cluster().shell("scontrol update nodename=cloud1 state=resume").ok();
    assert_eq!(up.cluster().await_end(job), "COMPLETED|0:0");
    assert_eq!(up.cluster().read("job.out"), "ran\n");
}

#[test]
fn up_a_server_killed_while_a_node_is_powered_up_calls_the_program_again() {
    let mut up = PowerCluster::up("ResumeTimeout=80\n");
    up.cluster().write("hold", "");
    let job = up.cluster().submit(&["-p", "cloud", "-o", "job.out", "--wrap", "echo ran"]);
    up.cluster().await_file("resumed", |text| text == "cloud1\n");
    up.kill_server();
    up.start_server();
    up.cluster().await_file("resumed", |text| text == "cloud1\ncloud1\n");
    assert_eq!(up.cluster().state_of(job), "CONFIGURING|None");
    std::fs::remove_file(up.cluster().path("work").join("hold")).unwrap();
    up.start_agent("cloud1", &[]);
    assert_eq!(up.cluster().await_end(job), "COMPLETED|0:0");
    assert_eq!(up.calls("resumed"), 2, "a call that has ended is not made again");
}

#[test]
fn up_a_node_is_rebooted_when_its_job_has_ended() {
    let mut up = PowerCluster::up("ResumeTimeout=80\n");
    up.start_agent("here", &[]);
    up.await_node("here", "idle");
    let wait = "while [ ! -e go ]; do sleep 0.05; done";
    let job = up.cluster().submit(&["-w", "here", "-n2", "-o", "/dev/null", "--wrap", wait]);
    up.cluster().await_state(job, "RUNNING");
    up.cluster().shell("scontrol reboot ASAP reason=firmware here").ok();
    up.await_node("here", "drng@");
    up.cluster().shell("scontrol cancel_reboot here").ok();
    up.await_node("here", "alloc");
    let said = up.cluster().shell("scontrol cancel_reboot here");
    assert_eq!((said.code, said.stderr.lines().count()), (1, 1), "{}", said.stderr);
    up.cluster().shell("scontrol reboot ASAP nextstate=RESUME reason=kernel here").ok();
    assert_eq!(up.cluster().read("rebooted"), "", "not before its job has ended");
    up.cluster().write("go", "");
    up.cluster().await_file("rebooted", |text| text == "here\n");
    assert!(up.show("here").contains("Reason=kernel : reboot issued"), "{}", up.show("here"));
    assert!(up.state_of_node("here").ends_with('^'), "{}", up.state_of_node("here"));
    up.stop_agent("here");
    up.start_agent("here", &["-b"]);
    up.await_node("here", "idle");
    assert!(!up.show("here").contains("Reason="), "{}", up.show("here"));
    assert_eq!(up.cluster().read("rebooted"), "here\n", "it is rebooted once");
}

#[test]
fn up_wrong_power_requests_and_programs_are_refused_in_one_line() {
    let up = PowerCluster::up("");
    for line in ["scontrol power down nosuch", "scontrol reboot nosuch", "scontrol reboot cloud1"] {
        let said = up.cluster().shell(line);
        assert_eq!((said.code, said.stderr.lines().count()), (1, 1), "{line}: {}", said.stderr);
    }
    let said = up.cluster().shell("sbatch --reboot --wrap true");
    assert!(said.code != 0 && said.stderr.contains("--reboot is not supported"), "{}", said.stderr);
    for (line, why) in [
        ("SuspendProgram=/no/such/program", "SuspendProgram=/no/such/program"),
        ("SuspendProgram=down.sh", "expected an absolute path"),
        ("ResumeTimeout=-5", "expected a whole number"),
        ("SuspendExcNodes=n9", "SuspendExcNodes=n9: no NodeName line declares this"),
    ] {
        let text = format!("{line}\nNodeName=n1 CPUs=1\nPartitionName=main Nodes=n1 Default=YES\n");
        let said = Cluster::folder(&text).try_start();
        assert!(said.code != 0 && said.stderr.contains(why), "{line}: {}", said.stderr);
        assert_eq!(said.stderr.lines().count(), 1, "{}", said.stderr);
    }
}

/// The agent keeps the server's words of the renewals, by which a restored server knows whose the newest certificate is.
#[test]
fn up_node_whose_certificate_was_renewed_often_since_the_backup_is_let_in_by_the_restored_server() {
    let mut up = PowerCluster::up("");
    let life = |up: &PowerCluster, life: &str| {
        let text = format!("[nodes]\ncertificate_life = \"{life}\"\n");
        up.cluster().write_conf("sluice.toml", &text);
    };
    life(&up, "1d");
    up.cluster().shell("scontrol reconfigure").ok();
    up.start_agent("here", &[]);
    up.await_node("here", "idle");
    let first = up.certificate_end("here");
    let file = up.cluster().path("backup.tar").display().to_string();
    up.cluster().sluice(&["backup", &file]).ok();
    // Half of each life is over long before the end of the certificate of the one before: it is renewed at the next connection. They
    // are more than the agent keeps former certificates.
    let mut last = first;
    for longer in ["10d", "100d", "1000d", "3650d"] {
        life(&up, longer);
        up.kill_server();
        up.start_server();
        last =
            until("it is renewed", || Some(up.certificate_end("here")).filter(|end| *end > last));
        up.await_node("here", "idle");
    }

    up.kill_server();
    let (restored, state) = (up.cluster().path("restored"), up.cluster().state());
    life(&up, "1d");
    up.cluster().sluice(&["restore", &file, "--state", restored.to_str().unwrap()]).ok();
    std::fs::rename(state.join("server"), state.join("server.lost")).unwrap();
    std::fs::rename(restored.join("server"), state.join("server")).unwrap();
    up.start_server();
    up.await_node("here", "idle");
    assert_eq!(up.certificate_end("here"), last, "the newest is taken over");
    let said = up.agent_log("here");
    assert!(!said.contains("does not speak for node"), "it was never refused: {said}");
    let said = up.cluster().shell("srun -w here hostname");
    assert_eq!(said.code, 0, "{said:?}");
    // It goes on with that one after a restart of its own.
    up.await_node("here", "idle");
    up.stop_agent("here");
    up.await_node("here", "idle*");
    up.start_agent("here", &[]);
    up.await_node("here", "idle");
}
