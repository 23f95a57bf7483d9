//! Several hosts as network namespaces: agents join by token, and jobs run on two of them.

use crate::harness::hosts::Hosts;
use crate::harness::{Cluster, CommandOutput, until};

const CONF: &str = "\
ClusterName=hosts
SlurmdTimeout=3
ReturnToService=1
KillWait=1 AuthInfo=cred_expire=0
DefMemPerCPU=64
NodeName=node[01-02] CPUs=2 CoresPerSocket=2 RealMemory=1000
PartitionName=main Nodes=node[01-02] Default=YES State=UP
";

/// The owner of jobs that call `srun`: a node vouches for no root.
const USER: &str = "games";

fn in_hub(hosts: &Hosts, cluster: &Cluster, line: &str) -> CommandOutput {
    hosts.in_hub(cluster, line)
}

fn start(hosts: &mut Hosts, cluster: &Cluster) {
    hosts.start(cluster);
}

fn join(hosts: &mut Hosts, cluster: &Cluster, host: u32) {
    hosts.join(cluster, host);
}

/// A server and two hosts that have joined and are idle.
fn two_hosts() -> (Cluster, Hosts) {
    let cluster = Cluster::folder(CONF);
    let mut hosts = Hosts::up(2);
    start(&mut hosts, &cluster);
    join(&mut hosts, &cluster, 1);
    join(&mut hosts, &cluster, 2);
    until("both nodes are idle", || {
        let states = in_hub(&hosts, &cluster, "sinfo -h -o '%D %t'").stdout;
        (states.trim() == "2 idle").then_some(())
    });
    (cluster, hosts)
}

#[test]
fn root_two_hosts_join_by_token_and_run_a_job_of_two_nodes() {
    let (cluster, hosts) = two_hosts();
    let said = in_hub(&hosts, &cluster, "srun -N2 -n2 hostname");
    let mut names: Vec<&str> = said.stdout.lines().collect();
    names.sort();
    assert_eq!(names, ["node01", "node02"], "{}", said.stderr);
    let line = "sbatch --parsable -N2 -o two.out --wrap 'srun hostname; echo $SLURM_JOB_NODELIST'";
    let said = hosts.in_hub_as(USER, &cluster, line);
    let id = said.stdout.trim().to_string();
    let end = until("the job of two nodes ends", || {
        let text =
            in_hub(&hosts, &cluster, &format!("sacct -n -X -P -j {id} -o State,NNodes")).stdout;
        (!text.contains("RUNNING") && !text.contains("PENDING")).then_some(text)
    });
    let output = cluster.read("two.out");
    assert_eq!(end.trim(), "COMPLETED|2", "{output}");
    let mut lines: Vec<&str> = output.lines().collect();
    lines.sort();
    assert_eq!(lines, ["node01", "node02", "node[01-02]"]);
}

#[test]
fn root_a_disconnected_host_goes_down_and_recovers() {
    let cluster = Cluster::folder(CONF);
    let mut hosts = Hosts::up(2);
    start(&mut hosts, &cluster);
    join(&mut hosts, &cluster, 1);
    join(&mut hosts, &cluster, 2);
    let states = |hosts: &Hosts| in_hub(hosts, &cluster, "sinfo -h -N -o '%N %t'").stdout;
    until("both nodes are idle", || (states(&hosts).matches("idle").count() == 2).then_some(()));
    let said =
        in_hub(&hosts, &cluster, "sbatch --parsable -w node02 --wrap 'echo $$ >> pids; sleep 600'");
    let id = said.stdout.trim().to_string();
    cluster.await_file("pids", |t| t.lines().count() == 1);
    let said = hosts.tool(&["exec", "2", "ip", "link", "set", "eth0", "down"]);
    assert_eq!(said.code, 0, "{}", said.stderr);
    until("node02 is down and its job waits", || {
        let job = in_hub(&hosts, &cluster, &format!("squeue -h -j {id} -o %T")).stdout;
        (states(&hosts).contains("node02 down") && job.trim() == "PENDING").then_some(())
    });
    let first: i32 = cluster.read("pids").trim().parse().unwrap();
    assert!(crate::harness::is_alive(first), "beyond the cut the job goes on");
    hosts.tool(&["exec", "2", "ip", "link", "set", "eth0", "up"]);
    cluster.await_file("pids", |t| t.lines().count() == 2);
    assert!(!crate::harness::is_alive(first), "the attempt that was given up is killed first");
    in_hub(&hosts, &cluster, &format!("scancel {id}"));
    until("the queue is empty", || {
        in_hub(&hosts, &cluster, "squeue -h").stdout.trim().is_empty().then_some(())
    });
}

/// A network cut that breaks the connection and ends before `SlurmdTimeout`: one job ends during it, another runs through.
#[test]
fn root_a_short_network_cut_loses_no_job_and_no_output() {
    let cluster = Cluster::folder(&CONF.replace("SlurmdTimeout=3", "SlurmdTimeout=300"));
    let mut hosts = Hosts::up(2);
    start(&mut hosts, &cluster);
    join(&mut hosts, &cluster, 1);
    join(&mut hosts, &cluster, 2);
    let states = |hosts: &Hosts| in_hub(hosts, &cluster, "sinfo -h -N -o '%N %t'").stdout;
    until("both nodes are idle", || (states(&hosts).matches("idle").count() == 2).then_some(()));
    let submit = |hosts: &Hosts, name: &str, exit: u32| {
        let body = format!(
            "echo run >> {name}.runs; for i in $(seq 100); do echo $i; done; while [ ! -e {name}.go ]; do sleep 0.1; done; echo last; exit {exit}"
        );
        let line = format!("sbatch --parsable -w node02 -o {name}.out --wrap '{body}'");
        in_hub(hosts, &cluster, &line).stdout.trim().to_string()
    };
    let ends_beyond = submit(&hosts, "beyond", 3);
    let goes_on = submit(&hosts, "through", 0);
    for name in ["beyond", "through"] {
        cluster.await_file(&format!("{name}.out"), |t| t.contains("\n100\n"));
    }
    let log = || std::fs::read_to_string(cluster.path("node02.out")).unwrap_or_default();
    hosts.tool(&["exec", "2", "ip", "link", "set", "eth0", "down"]);
    cluster.write("beyond.go", "");
    cluster.await_file("beyond.out", |t| t.ends_with("last\n"));
    until("the link is given up", || log().contains("not connected").then_some(()));
    let state = |id: &str| in_hub(&hosts, &cluster, &format!("squeue -h -j {id} -o %T")).stdout;
    assert_eq!((state(&ends_beyond).trim(), state(&goes_on).trim()), ("RUNNING", "RUNNING"));
    hosts.tool(&["exec", "2", "ip", "link", "set", "eth0", "up"]);
    let end = |id: &str| {
        let line = format!("sacct -n -X -D -P -j {id} -o State,ExitCode");
        until("it ends", || {
            let text = in_hub(&hosts, &cluster, &line).stdout.trim().to_string();
            (!text.is_empty() && !text.contains("RUNNING")).then_some(text)
        })
    };
    assert_eq!(end(&ends_beyond), "FAILED|3:0", "its end was kept for the server");
    assert_eq!(state(&goes_on).trim(), "RUNNING");
    cluster.write("through.go", "");
    assert_eq!(end(&goes_on), "COMPLETED|0:0");
    let numbers: String = (1..=100).map(|i| format!("{i}\n")).collect();
    for name in ["beyond", "through"] {
        assert_eq!(cluster.read(&format!("{name}.out")), format!("{numbers}last\n"));
        assert_eq!(cluster.read(&format!("{name}.runs")), "run\n", "{name} was started once");
    }
}

#[test]
fn root_a_join_token_works_once_and_a_wrong_one_never() {
    let cluster = Cluster::folder(CONF);
    let mut hosts = Hosts::up(2);
    start(&mut hosts, &cluster);
    join(&mut hosts, &cluster, 1);
    until("node01 is idle", || {
        let text = in_hub(&hosts, &cluster, "sinfo -h -N -n node01 -o %t").stdout;
        (text.trim() == "idle").then_some(())
    });
    let used = cluster.path("node01.join");
    let try_join = |file: &std::path::Path, state: &str| {
        let state = cluster.path(state);
        let line = format!(
            "timeout 20 {} agent --state {} --join {}",
            crate::harness::program(),
            state.display(),
            file.display()
        );
        hosts.tool(&["exec", "2", "sh", "-c", &line])
    };
    let said = try_join(&used, "thief");
    assert_ne!(said.code, 0);
    assert!(said.stderr.contains("wrong, was used, or has expired"), "{}", said.stderr);
    let text = std::fs::read_to_string(&used).unwrap();
    let mut file: serde_json::Value = serde_json::from_str(&text).unwrap();
    file["token"] = "0".repeat(64).into();
    let wrong = cluster.path("wrong.join");
    std::fs::write(&wrong, file.to_string()).unwrap();
    let said = try_join(&wrong, "guesser");
    assert_ne!(said.code, 0);
    assert!(said.stderr.contains("wrong, was used, or has expired"), "{}", said.stderr);
}

#[test]
fn root_an_srun_that_no_host_can_dial_works_through_the_server() {
    let (cluster, hosts) = two_hosts();
    // In an empty network namespace it reaches the server's Unix socket, and nobody reaches it.
    let line = "seq 400000 > in; unshare -n srun -N2 -n2 -i in sh -c 'cat | md5sum; hostname; exit 5' > out; \
                echo $?; md5sum < in";
    let said = in_hub(&hosts, &cluster, line);
    let (code, sum) = said.stdout.split_once('\n').expect("two lines");
    assert_eq!(code, "5", "{}", said.stderr);
    let out = cluster.read("out");
    let mut lines: Vec<&str> = out.lines().collect();
    lines.sort();
    let mut expected = [sum.trim(), sum.trim(), "node01", "node02"];
    expected.sort();
    assert_eq!(lines, expected, "{}", said.stderr);
}

/// The job's control groups in a process's `/proc/self/cgroup`, each cut at the job's own group.
fn job_folders(cgroup: &str) -> Vec<std::path::PathBuf> {
    let top = std::path::Path::new("/sys/fs/cgroup");
    let folder = |line: &str| {
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, path) = (fields.next()?, fields.next()?);
        let at = path.find("/job_")?;
        let end = path[at + 1..].find('/').map_or(path.len(), |length| at + 1 + length);
        let trees = [controllers, "unified", ""].map(|tree| top.join(tree));
        let job = path[1..end].to_string();
        trees.into_iter().map(|tree| tree.join(&job)).find(|folder| folder.exists())
    };
    cgroup.lines().filter_map(folder).collect()
}

#[test]
fn root_each_host_enforces_limits_on_its_own_share_of_a_job() {
    let (cluster, hosts) = two_hosts();
    // On each node a task with a daemon that has left its session and ignores SIGTERM.
    cluster.write(
        "task",
        "h=$(hostname)\n\
         (trap '' TERM HUP INT; setsid sh -c 'trap \"\" TERM HUP INT; echo $$ > daemon.'$h'; sleep 600; sleep 600' &)\n\
         cat /proc/self/cgroup > cgroup.$h.new && mv cgroup.$h.new cgroup.$h\n\
         sleep 600\n",
    );
    let line = "sbatch --parsable -N2 --mem=150 -o none --wrap 'srun -N2 -n2 sh task'";
    let id = hosts.in_hub_as(USER, &cluster, line).ok().trim().to_string();
    let mut folders = Vec::new();
    let mut daemons = Vec::new();
    for node in ["node01", "node02"] {
        let cgroup = cluster.await_file(&format!("cgroup.{node}"), |text| !text.is_empty());
        let mine = job_folders(&cgroup);
        let own = format!("-{node}/job_{id}_1");
        let stray = mine.iter().find(|folder| !folder.display().to_string().ends_with(&own));
        assert!(
            !mine.is_empty() && stray.is_none(),
            "groups of {node} by its name: {mine:?}\n{cgroup}"
        );
        let limit = ["memory.max", "memory.limit_in_bytes"].into_iter().find_map(|file| {
            mine.iter().find_map(|folder| std::fs::read_to_string(folder.join(file)).ok())
        });
        assert_eq!(limit.as_deref().map(str::trim), Some("157286400"), "150 MB on {node}");
        let pid = cluster.await_file(&format!("daemon.{node}"), |text| text.ends_with('\n'));
        daemons.push(pid.trim().parse::<i32>().unwrap());
        folders.extend(mine);
    }
    assert!(daemons.iter().all(|pid| crate::harness::is_alive(*pid)));
    in_hub(&hosts, &cluster, &format!("scancel {id}")).ok();
    until("the job is over on both hosts", || {
        let left = in_hub(&hosts, &cluster, "squeue -h").stdout;
        let idle = in_hub(&hosts, &cluster, "sinfo -h -o '%D %t'").stdout;
        (left.trim().is_empty() && idle.trim() == "2 idle").then_some(())
    });
    for pid in daemons {
        assert!(!crate::harness::is_alive(pid), "daemon {pid} ended with its job");
    }
    until("no group is left", || folders.iter().all(|folder| !folder.exists()).then_some(()));
}
