//! What a job's processes may become, trace and read: setuid programs, the supervisor, jobs of others, core dumps.

use crate::harness::{Cluster, CommandOutput, TWO_NODES, program, signal, skip, until};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::ExitStatusExt;
use std::process::Command;

/// Users of every Debian system: the attacker with their user and group id, and a victim.
const ATTACKER: (&str, u32, u32) = ("games", 5, 60);
const VICTIM: &str = "man";

/// `trace PID`: tries to attach to a process, and prints whether it was refused.
fn write_trace(cluster: &Cluster) -> String {
    let ptrace = libc::SYS_ptrace;
    let attach = libc::PTRACE_ATTACH;
    cluster.write_program(
        "trace",
        &format!(
            "perl -e 'my $r = syscall({ptrace}, {attach}, $ARGV[0] + 0, 0, 0); \
             print $r == 0 ? \"attached\\n\" : \"refused \" . ($! + 0) . \"\\n\"' $1"
        ),
    )
}

/// A copy of `id` with root's setuid bit.
fn write_setuid_id(cluster: &Cluster) -> String {
    let path = cluster.path("bin").join("id-as-root");
    std::fs::copy("/usr/bin/id", &path).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o4755)).unwrap();
    path.display().to_string()
}

#[test]
fn root_setuid_programs_work_in_jobs_unless_the_site_forbids_it() {
    for (conf, seen) in [("ConstrainRAMSpace=yes\n", "0"), ("NoNewPrivs=yes\n", "5")] {
        let cluster = Cluster::folder(TWO_NODES);
        cluster.write_conf("cgroup.conf", conf);
        let id = write_setuid_id(&cluster);
        if cluster.shell_as(ATTACKER.0, &format!("{id} -u")).ok() != "0\n" {
            return skip("setuid", "the temporary folder does not honour the setuid bit");
        }
        cluster.start();
        let job = cluster.submit_as(ATTACKER.0, &format!("-o out --wrap '{id} -u'"));
        assert_eq!(cluster.await_end(job), "COMPLETED|0:0");
        assert_eq!(cluster.read("out").trim(), seen, "{conf}");
        let step = cluster.shell_as(ATTACKER.0, &format!("srun {id} -u")).ok();
        assert_eq!(step.trim(), seen, "{conf}");
    }
}

#[test]
fn root_a_job_traces_neither_its_supervisor_nor_the_daemons_nor_jobs_of_others() {
    let cluster = Cluster::up(TWO_NODES);
    let trace = write_trace(&cluster);
    cluster.submit_as(VICTIM, "-o /dev/null --wrap 'echo $$ > victim; sleep 600'");
    let victim = cluster.await_file("victim", |text| text.ends_with('\n'));
    let others = [cluster.pid("server"), cluster.pid("agent"), cluster.pid("keeper")];
    let others: Vec<String> = others.iter().map(ToString::to_string).collect();
    let script = format!(
        "#!/bin/bash\nsleep 600 & {trace} $!\nfor pid in $PPID {} {}; do {trace} $pid; \
         cat /proc/$pid/environ /proc/$pid/maps > /dev/null 2>&1 && echo read; done\n\
         echo over\n",
        victim.trim(),
        others.join(" ")
    );
    cluster.write("job.sh", &script);
    let job = cluster.submit_as(ATTACKER.0, "-o out job.sh");
    assert_eq!(cluster.await_end(job), "COMPLETED|0:0");
    let refused = "refused 1\n".repeat(2 + others.len());
    assert_eq!(cluster.read("out"), format!("attached\n{refused}over\n"), "its own child alone");
}

/// A cluster that an ordinary user runs: its daemons have the user id of its jobs.
struct OfOneUser(Cluster);

impl OfOneUser {
    fn run(&self, line: &str) -> CommandOutput {
        let work = self.0.path("work");
        let state = work.join("own");
        let line =
            format!("export HOME={} SLUICE_STATE={}; {line}", work.display(), state.display());
        self.0.shell_as(ATTACKER.0, &line)
    }
}

impl Drop for OfOneUser {
    fn drop(&mut self) {
        self.run(&format!("{} down --jobs", program()));
    }
}

#[test]
fn root_daemons_of_the_jobs_own_user_cannot_be_traced_or_dumped_either() {
    let own = OfOneUser(Cluster::folder(TWO_NODES));
    let trace = write_trace(&own.0);
    chown(own.0.path("work"), Some(ATTACKER.1), Some(ATTACKER.2)).unwrap();
    let up = "up --detach --listen 127.0.0.1:0 --agents 127.0.0.1:0";
    own.run(&format!("{} {up}", program())).ok();
    let script = format!("echo $PPID > parent; {trace} $PPID > traced; sleep 600");
    own.run(&format!("sbatch -o /dev/null --wrap '{script}'")).ok();
    assert_eq!(own.0.await_file("traced", |text| text.ends_with('\n')), "refused 1\n");
    let pid_of = |name: &str| own.0.read(&format!("own/{name}.pid")).trim().to_owned();
    let supervisor = own.0.read("parent").trim().to_owned();
    let pids = ["server", "agent", "keeper"].map(pid_of).into_iter().chain([supervisor]);
    for pid in pids {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        assert!(status.contains(&format!("\nUid:\t{}\t", ATTACKER.1)), "{status}");
        // The kernel gives root the files of a process that must not be dumped.
        let owner = std::fs::metadata(format!("/proc/{pid}/environ")).unwrap().uid();
        assert_eq!(owner, 0, "{status}");
    }
}

#[test]
fn root_agent_that_is_killed_leaves_no_core() {
    let dump = "ulimit -c unlimited 2> /dev/null";
    let mut aborted = Command::new("sh");
    aborted.args(["-c", &format!("{dump}; kill -ABRT $$")]);
    let folder = tempfile::tempdir().unwrap();
    if !aborted.current_dir(&folder).status().unwrap().core_dumped() {
        return skip("core", "this machine dumps no cores");
    }
    let cluster = Cluster::up(TWO_NODES);
    cluster.kill("agent");
    let (state, join) = (cluster.state(), cluster.state().join("server/local.join"));
    let line = format!(
        "{dump}; exec {} agent --state {} --join {}",
        program(),
        state.display(),
        join.display()
    );
    let mut agent = cluster.spawn_shell(&line);
    until("the agent runs", || (cluster.pid("agent") == agent.id() as i32).then_some(()));
    cluster.await_end(cluster.submit(&["-o", "/dev/null", "--wrap", "true"]));
    signal(agent.id() as i32, "ABRT");
    let status = agent.wait().unwrap();
    assert_eq!((status.signal(), status.core_dumped()), (Some(libc::SIGABRT), false));
}
