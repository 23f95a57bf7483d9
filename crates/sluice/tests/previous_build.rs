//! This build and the one before: a state folder that it left, killed in the midst, is read (journal, books, blobs and spool),
//! and server and agents of both work together while one after the other is upgraded.
//!
//! `scripts/state-fixture` made the folder and says what is in it. `scripts/previous-build` builds the commit that
//! `fixtures/previous-commit` names; `scripts/soak` runs the tests that need it.

mod harness;

use harness::{Cluster, TWO_NODES, until};
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

const ENDED: &str = "\
1|done|COMPLETED|0:0|normal|physics
1.batch|batch|COMPLETED|0:0||physics
2|failed|FAILED|3:0|normal|physics
2.batch|batch|FAILED|3:0||physics
3_0|array|COMPLETED|0:0|normal|physics
3_0.batch|batch|COMPLETED|0:0||physics
3_1|array|FAILED|1:0|normal|physics
3_1.batch|batch|FAILED|1:0||physics
3_2|array|FAILED|2:0|normal|physics
3_2.batch|batch|FAILED|2:0||physics
3_3|array|FAILED|3:0|normal|physics
3_3.batch|batch|FAILED|3:0||physics
7+0|het|COMPLETED|0:0|normal|physics
7+0.batch|batch|COMPLETED|0:0||physics
7+1|het|COMPLETED|0:0|normal|physics
9|interactive|COMPLETED|0:0|normal|physics
9.0|interactive|COMPLETED|0:0||physics
10|yamltask|COMPLETED|0:0|normal|physics
10.batch|batch|COMPLETED|0:0||physics
";

const WAITING: &str = "\
11 held PENDING JobHeldUser
12 waits PENDING BeginTime
13 after PENDING Dependency
14_[1-1000:3] bigarray PENDING JobHeldUser
";

#[test]
fn root_state_folder_of_the_build_before_is_read() {
    if !nix::unistd::geteuid().is_root() {
        return harness::skip("root", "the folder's jobs are root's");
    }
    let cluster = Cluster::folder("");
    let fixture = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/state.tar.gz");
    let unpack = Command::new("tar").args(["-xzf", fixture, "-C"]).arg(cluster.path("")).status();
    assert!(unpack.unwrap().success(), "the fixture is unpacked");
    cluster.start();

    // The spool: one job's end was not yet reported, the other's supervisor is gone.
    assert_eq!(cluster.await_end(15), "FAILED|7:0");
    assert_eq!(cluster.await_end(16), "NODE_FAIL|0:0");
    // The journal.
    let shown = cluster.sluice(&["squeue", "-h", "-S", "i", "-o", "%i %j %T %r"]).ok();
    assert_eq!(shown, WAITING);
    let reservation = cluster.sluice(&["scontrol", "show", "reservation", "-o"]).ok();
    assert!(reservation.starts_with("ReservationName=maint StartTime=2096-02-01T00:00:00"));
    assert_eq!(cluster.sluice(&["sinfo", "-h", "-R", "-o", "%E %N"]).ok(), "check_disk node2\n");
    let limits = ["sacctmgr", "-n", "-P", "show", "assoc", "format=account,user,qos,grpjobs"];
    let expected = "root||normal|\nphysics||normal|50\nphysics|root|high,normal|\n";
    assert_eq!(cluster.sluice(&limits).ok(), expected);
    // The books.
    let columns = "jobid,jobname,state,exitcode,qos,account";
    let ended = ["sacct", "-n", "-P", "-S", "2026-01-01", "-j", "1,2,3,7,9,10", "-o", columns];
    assert_eq!(cluster.sluice(&ended).ok(), ENDED);
    // The blobs: a job whose script the build before stored runs. Ids go on where they were.
    cluster.shell("scontrol release 11").ok();
    assert_eq!(cluster.await_end(11), "COMPLETED|0:0");
    assert_eq!(cluster.submit(&["-o", "/dev/null", "--wrap", "true"]), 17);
    until("the new job ends", || cluster.state_of(17).starts_with("COMPLETED").then_some(()));
}

#[test]
fn commit_to_mix_with_is_one_that_is_there() {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/previous-build");
    let said = Command::new(script).env("SLUICE_PREVIOUS_COMMIT", "no-such").output().unwrap();
    let line = "previous-build: commit no-such is not in this repository\n";
    assert_eq!(
        (said.status.code(), String::from_utf8_lossy(&said.stderr).as_ref()),
        (Some(1), line)
    );
    assert!(said.stdout.is_empty());
}

/// A cluster of the build before, with a job that runs and an `srun` that is attached.
struct Before {
    cluster: Cluster,
    job: u32,
    srun: Attached,
}

impl Before {
    fn up() -> Self {
        let program = std::env::var_os("SLUICE_PREVIOUS").expect("scripts/soak names the build");
        let program = PathBuf::from(program);
        let cluster = Cluster::folder(TWO_NODES);
        let run = |args: &[&str]| {
            let mut command = Command::new(&program);
            cluster.set_up(&mut command);
            let said = command.args(args).stdin(Stdio::null()).output().expect("it runs");
            assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
        };
        let [state, conf, bin] = ["state", "conf", "bin-before"].map(|part| cluster.path(part));
        let [state, conf, bin] = [&state, &conf, &bin].map(|path| path.to_str().unwrap());
        run(&["links", bin]);
        let ports = ["--listen", "127.0.0.1:0", "--agents", "127.0.0.1:0"];
        run(&[&["up", "--detach", "--state", state, "--config", conf][..], &ports[..]].concat());
        let script = "echo run >> runs; until [ -e go ]; do sleep 0.05; done; exit 5";
        let job = cluster.submit(&["-o", "/dev/null", "--wrap", script]);
        cluster.await_file("runs", |text| text.lines().count() == 1);
        let srun = Attached::start(&cluster, &format!("{bin}/srun"));
        let mut before = Self { cluster, job, srun };
        before.srun.talk("at first");
        before
    }

    /// `(server, agents)`: whether each is of this build.
    fn upgraded(&self) -> (bool, bool) {
        let text = self.cluster.sluice(&["version", "--json"]).ok();
        let said: serde_json::Value = serde_json::from_str(&text).unwrap();
        let own = &said["program"]["version"];
        // A server of the build before knows no agents' versions.
        (said["server"]["version"] == *own, said["agents"][0]["version"] == *own)
    }

    fn upgrade_server(&mut self) {
        self.cluster.kill("server");
        self.cluster.start();
        self.srun.talk("after the server's upgrade");
    }

    fn upgrade_agent(&mut self) -> Child {
        self.cluster.kill("agent");
        let agent = self.cluster.spawn_agent();
        until("the nodes are back", || {
            let states = self.cluster.sluice(&["sinfo", "-h", "-N", "-o", "%N %T"]).stdout;
            let is_up = |node: &str| {
                let mut states = states.lines().filter_map(|line| line.strip_prefix(node));
                states.any(|state| [" idle", " mixed"].contains(&state))
            };
            (is_up("node1") && is_up("node2")).then_some(())
        });
        self.srun.talk("after the agent's upgrade");
        agent
    }

    /// New work of every kind, by this build's commands.
    fn works(&mut self, when: &str) {
        let cluster = &self.cluster;
        let ended = cluster.submit(&[
            "-N2",
            "-o",
            "works.out",
            "--wrap",
            "srun -n2 -N2 echo $SLURM_JOB_ID",
        ]);
        assert_eq!(cluster.await_end(ended), "COMPLETED|0:0", "{when}");
        assert_eq!(cluster.read("works.out"), format!("{ended}\n{ended}\n"), "{when}");
        let said = cluster.shell("srun -n1 sh -c 'echo out; exit 4'");
        assert_eq!((said.stdout.as_str(), said.code), ("out\n", 4), "{when}: {}", said.stderr);
        let cancelled = cluster.submit_sleeper("-N2");
        cluster.await_state(cancelled, "RUNNING");
        cluster.sluice(&["scancel", &cancelled.to_string()]).ok();
        assert!(cluster.await_end(cancelled).starts_with("CANCELLED"), "{when}");
        self.srun.talk(when);
    }

    /// What ran through all of it ends as if nothing had been.
    fn end(self, mut agent: Child) {
        let Self { cluster, job, srun } = self;
        assert_eq!(srun.end(), Some(7));
        cluster.write("go", "");
        assert_eq!(cluster.await_end(job), "FAILED|5:0");
        assert_eq!(cluster.read("runs"), "run\n", "it ran once");
        cluster.sluice(&["down"]).ok();
        agent.wait().unwrap();
    }
}

/// An `srun` whose task answers each line.
struct Attached {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Attached {
    fn start(cluster: &Cluster, srun: &str) -> Self {
        let mut command = Command::new(srun);
        cluster.set_up(&mut command);
        let task = "while read line; do echo got $line; done; exit 7";
        command.args(["-n1", "sh", "-c", task]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("srun runs");
        let input = child.stdin.take().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        Self { child, input, output }
    }

    fn talk(&mut self, line: &str) {
        writeln!(self.input, "{line}").unwrap();
        let mut answer = String::new();
        self.output.read_line(&mut answer).unwrap();
        assert_eq!(answer, format!("got {line}\n"));
    }

    fn end(mut self) -> Option<i32> {
        drop(self.input);
        self.child.wait().unwrap().code()
    }
}

#[test]
#[ignore = "needs the build before: make soak"]
fn root_soak_rolling_upgrade_of_the_server_first_keeps_jobs_and_sruns() {
    let mut before = Before::up();
    assert_eq!(before.upgraded(), (false, false));
    before.upgrade_server();
    until("the agent is back", || before.upgraded().0.then_some(()));
    assert!(!before.upgraded().1, "the agent is still of the build before");
    before.works("a new server with agents of the build before");
    let agent = before.upgrade_agent();
    assert_eq!(before.upgraded(), (true, true));
    before.works("a new server with new agents");
    before.end(agent);
}

#[test]
#[ignore = "needs the build before: make soak"]
fn root_soak_rolling_upgrade_of_the_agents_first_keeps_jobs_and_sruns() {
    let mut before = Before::up();
    let agent = before.upgrade_agent();
    assert!(!before.upgraded().0, "the server is still of the build before");
    before.works("a server of the build before with new agents");
    before.upgrade_server();
    until("the agents are back", || (before.upgraded() == (true, true)).then_some(()));
    before.works("a new server with new agents");
    before.end(agent);
}
