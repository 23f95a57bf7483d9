//! Every command from each kind of host: a login node, a laptop, and a node, inside a job.

use crate::harness::hosts::Hosts;
use crate::harness::laptop::{Laptop, URL};
use crate::harness::{Cluster, program, until};

const CONF: &str = "\
PriorityType=priority/multifactor
ClusterName=hosts
DefMemPerCPU=64
KillWait=1
NodeName=node[01-03] CPUs=2 CoresPerSocket=2 RealMemory=500
PartitionName=main Nodes=ALL Default=YES State=UP
";
const USER: &str = "games";
const LOGIN: u32 = 4;
/// The node of the job that runs every command.
const OWN: &str = "node03";

/// A line, and what its output must have in it; `@JOB` is a job of the user that runs on node01, in a step, `@NODE` a node with
/// room, `@SLUICE` the program, `@WORK` a folder that all machines of the cluster have.
const COMMANDS: &[(&str, &str)] = &[
    ("squeue -h -j @JOB -o '%i %u %T'", "@JOB games RUNNING"),
    ("sinfo -h -n node01 -o %N", "node01"),
    ("scontrol show job @JOB", "JobId=@JOB"),
    ("scontrol show node node01", "NodeName=node01"),
    ("scontrol show partition main", "PartitionName=main"),
    ("scontrol ping", "is UP"),
    ("sacct -n -X -P -j @JOB -o JobID,State", "@JOB|RUNNING"),
    ("sstat -n -P -a -j @JOB -o JobID", "@JOB"),
    ("sprio -h", ""),
    ("sshare -n -P -o Account", ""),
    ("sdiag", "Jobs submitted"),
    ("sacctmgr -n -P show qos format=name", "normal"),
    ("seff @JOB", "@JOB"),
    ("strigger --get", ""),
    ("sreport -n -P cluster utilization start=now-1hours end=now", "hosts|"),
    ("sattach --layout @JOB.0", "1 tasks, 1 nodes (node01)"),
    // It would stay as long as its step does.
    ("timeout 10 sattach @JOB.0 < /dev/null | sed -n /attached/p", "attached"),
    ("srun -w @NODE sh -c 'echo on $SLURMD_NODENAME'", "on @NODE"),
    ("echo typed | srun -w @NODE cat", "typed"),
    ("salloc -w @NODE -n1 sh -c 'srun hostname'", "@NODE"),
    (
        "salloc -w @NODE -n1 sh -c 'sbcast -f /etc/passwd @WORK/copy.@NODE && cmp /etc/passwd @WORK/copy.@NODE && echo copied'",
        "copied",
    ),
    ("sbatch -W -w @NODE -D @WORK -o /dev/null --wrap true", "Submitted batch job"),
    (
        "id=$(sbatch --parsable -H -D @WORK --wrap true); scancel $id; squeue -h -j $id -t CA -o %T",
        "CANCELLED",
    ),
    (
        "id=$(sbatch --parsable -H -D @WORK --wrap true); scontrol update jobid=$id name=other; squeue -h -j $id -o %j; scancel $id",
        "other",
    ),
    ("@SLUICE ps", ""),
    ("@SLUICE top --once", "@JOB"),
    ("@SLUICE fleet", "main"),
    ("@SLUICE explain @JOB", "@JOB"),
    ("@SLUICE offer", ""),
    ("@SLUICE event", ""),
    ("@SLUICE version", "server: "),
];

fn filled_in(text: &str, cluster: &Cluster, job: &str, node: &str) -> String {
    let work = cluster.path("work").display().to_string();
    let text = text.replace("@JOB", job).replace("@NODE", node);
    text.replace("@SLUICE", program()).replace("@WORK", &work)
}

#[test]
fn every_slurm_command_is_among_those_that_are_tried() {
    for name in slurm::option::Command::ALL.map(slurm::option::Command::name) {
        let has_it = |line: &str| line.split([' ', '\'', '(']).any(|word| word == name);
        let is_tried = COMMANDS.iter().any(|(line, _)| has_it(line));
        assert!(is_tried, "{name}");
    }
}

#[test]
fn root_every_command_works_on_a_login_node_on_a_laptop_and_in_a_job() {
    let cluster = Cluster::folder(CONF);
    cluster.write_conf("sluice.toml", "[nodes]\nlogin = 'node04'\n");
    let mut hosts = Hosts::up(5);
    hosts.start_at(&cluster, "0.0.0.0:6830");
    for host in [1, 2, 3, LOGIN] {
        hosts.join(&cluster, host);
    }
    until("the nodes are idle", || {
        let states = hosts.in_hub(&cluster, "sinfo -h -o '%D %t'").stdout;
        (states.trim() == "3 idle").then_some(())
    });
    until("the login node answers", || {
        (hosts.on_host_as(USER, &cluster, LOGIN, "squeue").code == 0).then_some(())
    });
    let script = format!(
        "#!/bin/sh\nPATH={}:$PATH\nsrun -n1 sh -c 'echo attached; touch runs; exec sleep 600'\n",
        cluster.path("bin").display()
    );
    cluster.write("attached.sh", &script);
    let line = "sbatch --parsable -w node01 -o /dev/null attached.sh";
    let job = hosts.on_host_as(USER, &cluster, LOGIN, line).ok().trim().to_owned();
    cluster.await_file("runs", |_| true);

    let laptop = Laptop::up(&cluster, &hosts, 5);
    let line = format!("{} token user {USER} --unix-user {USER}", program());
    let token = hosts.in_hub(&cluster, &line).ok();
    std::fs::write(laptop.home().join("token"), token).unwrap();
    let authority = cluster.state().join("server/keys/authority.pem");
    let copy = laptop.home().join("authority.pem");
    std::fs::copy(authority, &copy).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o644);
    std::fs::set_permissions(&copy, mode).unwrap();
    laptop.run(&cluster, &format!("{} login {URL} --ca authority.pem < token", program())).ok();

    // A job runs each line, and writes what it said and how it ended.
    let mut script = format!("#!/bin/bash\nPATH={}:$PATH\n", cluster.path("bin").display());
    for (number, (line, _)) in COMMANDS.iter().enumerate() {
        let line = filled_in(line, &cluster, &job, OWN);
        script += &format!("( {line} ) > said.{number} 2>&1; echo $? > code.{number}\n");
    }
    cluster.write("every.sh", &(script + "touch every.done\n"));
    let line = format!("sbatch -w {OWN} -o every.out every.sh");
    hosts.on_host_as(USER, &cluster, LOGIN, &line).ok();

    for (line, expected) in COMMANDS {
        let fill = |text: &str| filled_in(text, &cluster, &job, "node02");
        let (line, expected) = (fill(line), fill(expected));
        for (host, said) in [
            ("login node", hosts.on_host_as(USER, &cluster, LOGIN, &line)),
            ("laptop", laptop.run(&cluster, &line)),
        ] {
            assert!(said.code == 0 && said.stdout.contains(&expected), "{host}: {line}: {said:?}");
        }
    }
    cluster.await_file("every.done", |_| true);
    for (number, (line, expected)) in COMMANDS.iter().enumerate() {
        let said = cluster.read(&format!("said.{number}"));
        let code = cluster.read(&format!("code.{number}"));
        let expected = filled_in(expected, &cluster, &job, OWN);
        assert!(code == "0\n" && said.contains(&expected), "in a job: {line}: {code}{said}");
    }
}
