//! Answers that say the cause and what to do, where a newcomer met a bare word or silence.

use crate::harness::{Cluster, TWO_NODES, is_alive, program, until};
use std::net::TcpListener;
use std::os::unix::net::UnixStream;
use std::process::Stdio;
use std::time::{Duration, Instant};

const ENFORCED: &str = "\
ClusterName=test
SlurmdParameters=config_overrides
AccountingStorageEnforce=associations
MaxArraySize=11
NodeName=n1 CPUs=2 RealMemory=1000
PartitionName=main Nodes=n1 Default=YES
";

#[test]
fn up_refused_values_are_followed_by_what_can_be_written() {
    let cluster = Cluster::up(&ENFORCED.replace("AccountingStorageEnforce=associations\n", ""));
    let table = [
        ("--array=0-11", "note: the highest index of an array is 10 here (MaxArraySize); 11 asked"),
        ("--array=x", "note: expected indices and ranges"),
        ("--dependency=after", "note: expected TYPE:JOB"),
        ("--dependency=afterok:1", "note: a job cannot wait for itself"),
    ];
    for (option, note) in table {
        let said = cluster.sluice(&["sbatch", option, "--wrap", "true"]);
        assert_eq!(said.code, 1, "{option}: {}", said.stdout);
        let lines: Vec<&str> = said.stderr.lines().collect();
        assert!(lines[0].starts_with("sbatch: error: Batch job submission failed: "), "{lines:?}");
        assert!(lines[1].contains(note), "{option}: {lines:?}");
    }
    let said = cluster.sluice(&["sbatch", "-H", "-d", "afterok:99999", "--wrap", "true"]);
    let note = "sbatch: note: job 99999 is not known here: a dependency on it counts as met\n";
    assert_eq!((said.code, said.stderr.as_str()), (0, note), "{}", said.stdout);
}

#[test]
fn root_jobs_of_root_need_no_association_and_others_are_told_how_to_get_one() {
    let cluster = Cluster::up(ENFORCED);
    let job = cluster.submit(&["-H", "--wrap", "true"]);
    let account = ["squeue", "-h", "-o", "%a", "-j", &job.to_string()];
    assert_eq!(cluster.sluice(&account).ok(), "root\n");
    let said = cluster.shell_as("daemon", "sbatch --wrap true");
    assert_eq!(said.code, 1, "{}", said.stdout);
    assert!(said.stderr.contains("Invalid account or account/partition"), "{}", said.stderr);
    assert!(said.stderr.contains("note: your user has no account here"), "{}", said.stderr);
    let said = cluster.shell_as("daemon", &format!("{} offer --cpu 1", program()));
    assert_ne!(said.code, 0, "{}", said.stdout);
    assert!(said.stderr.contains("error: your user has no account here: "), "{}", said.stderr);
    let said = cluster.shell_as("daemon", "sbatch -A root --wrap true");
    assert_eq!(said.code, 1, "the root account is root's alone: {}", said.stdout);
}

#[test]
fn root_srun_says_why_its_job_was_not_started() {
    let cluster = Cluster::folder("");
    let prolog = cluster.write_program("prolog", "echo no disk >&2; exit 7");
    let conf = ENFORCED.replace("AccountingStorageEnforce=associations\n", "");
    cluster.write_conf("slurm.conf", &format!("{conf}Prolog={prolog}\n"));
    cluster.start();
    let said = cluster.sluice(&["srun", "true"]);
    assert_ne!(said.code, 0);
    assert!(said.stderr.contains("has been revoked"), "{}", said.stderr);
    let why =
        said.stderr.lines().find(|line| line.contains("note: the job could not be started: "));
    assert!(why.is_some_and(|line| line.to_lowercase().contains("prolog")), "{}", said.stderr);
}

#[test]
fn up_queue_of_a_user_who_does_not_exist_says_so() {
    let cluster = Cluster::up(TWO_NODES);
    let said = cluster.sluice(&["squeue", "-h", "-u", "no-such-user"]);
    assert_eq!(said.stderr, "squeue: error: Invalid user: no-such-user\n");
    assert_eq!(said.stdout, "");
    let said = cluster.shell("squeue -u no-such-user 2>&1").ok();
    let (first, header) = said.split_once('\n').expect("two lines");
    assert_eq!(first, "squeue: error: Invalid user: no-such-user");
    assert!(header.trim_start().starts_with("JOBID "), "{said}");
    let known = cluster.sluice(&["squeue", "-h", "-u", "daemon"]);
    assert_eq!((known.code, known.stderr.as_str()), (0, ""));
    let said = cluster.sluice(&["squeue", "-p", "gpu,gpus", "-w", "node[1,9]"]);
    let notes = "squeue: note: there is no partition gpus\nsqueue: note: there is no node node9\n";
    assert_eq!((said.code, said.stderr.as_str()), (0, notes), "{}", said.stdout);
}

#[test]
fn up_stopped_cluster_is_known_at_once_and_one_that_died_is_waited_for() {
    let cluster = Cluster::up(TWO_NODES);
    cluster.sluice(&["down"]).ok();
    let asked = Instant::now();
    let said = cluster.sluice(&["squeue"]);
    let stopped = asked.elapsed();
    assert_eq!(said.code, 1);
    assert!(
        said.stderr.contains("the cluster was stopped; `sluice up` starts it"),
        "{}",
        said.stderr
    );
    cluster.start();
    cluster.kill("server");
    until("its socket is closed", || {
        let asked = UnixStream::connect(cluster.state().join("sluice.sock"));
        asked.is_err_and(|e| e.kind() == std::io::ErrorKind::ConnectionRefused).then_some(())
    });
    // The command waits for a server that may come back, and finds the one that is started meanwhile.
    let waiting = cluster.spawn(&["squeue", "-h"]);
    let asked = Instant::now();
    cluster.start();
    let output = waiting.wait_with_output().expect("it ends");
    assert!(output.status.success(), "after {:?}", asked.elapsed());
    // Far below the ten seconds that a restart is waited for, on the slowest machine.
    assert!(stopped < Duration::from_secs(9), "{stopped:?}");
}

#[test]
fn up_copy_of_a_state_folder_does_not_stop_the_cluster_it_was_copied_from() {
    let cluster = Cluster::up(TWO_NODES);
    let copy = cluster.path("copy");
    let (from, to) = (cluster.state().display().to_string(), copy.display().to_string());
    cluster.shell(&format!("mkdir {to} && cp -a {from}/*.pid {from}/*.lock {to}/")).ok();
    let processes = ["server", "server-keeper", "agent", "keeper"].map(|of| cluster.pid(of));
    let said = cluster.sluice(&["down", "--state", &to]).ok();
    assert!(said.starts_with("sluice was not up in "), "{said}");
    assert!(processes.into_iter().all(is_alive));
    cluster.sluice(&["squeue"]).ok();
}

#[test]
fn up_copy_of_a_state_folder_is_not_started_until_its_cluster_is_said_to_have_moved() {
    let cluster = Cluster::up(TWO_NODES);
    let job = cluster.submit(&["-H", "--wrap", "true"]).to_string();
    let copy = cluster.path("copy");
    let (from, to) = (cluster.state().display().to_string(), copy.display().to_string());
    cluster.sluice(&["down"]).ok();
    cluster.shell(&format!("cp -a {from} {to}")).ok();
    cluster.start();
    let up = |more: &[&str]| cluster.sluice(&[&["up", "--detach", "--state", &to], more].concat());
    let ports = ["--listen", "127.0.0.1:0", "--agents", "127.0.0.1:0"];
    let said = up(&ports);
    assert_eq!(said.code, 1, "{}", said.stdout);
    assert!(said.stderr.contains(" is a copy of ") && said.stderr.contains("--moved"), "{said:?}");
    let said = up(&[&ports[..], &["--moved"]].concat());
    assert_eq!(said.code, 1, "{}", said.stdout);
    assert!(said.stderr.contains("and a server runs there"), "{said:?}");
    let agent = cluster.sluice(&["agent", "--state", &to]);
    assert!(agent.code == 1 && agent.stderr.contains(" is a copy of "), "{agent:?}");
    cluster.sluice(&["down"]).ok();
    let said = up(&["--moved"]);
    assert_eq!(said.code, 0, "{said:?}");
    let asked = cluster.command(&["squeue", "-h", "-o", "%i"]).env("SLUICE_STATE", &to).output();
    let shown = String::from_utf8(asked.expect("it runs").stdout).expect("text");
    // Its next start need not say it again.
    cluster.sluice(&["down", "--state", &to]).ok();
    let again = up(&[]);
    cluster.sluice(&["down", "--state", &to]).ok();
    assert_eq!((shown.trim(), again.code), (job.as_str(), 0), "{again:?}");
}

/// The folder is given the traces of a copy to the same path: the inode and the machine that it was saved with are others.
#[test]
fn up_folder_that_came_from_another_machine_is_refused_with_the_command_that_proceeds() {
    let cluster = Cluster::up(TWO_NODES);
    let job = cluster.submit(&["-H", "--wrap", "true"]).to_string();
    cluster.sluice(&["down"]).ok();
    let file = cluster.state().join("folder.json");
    let text = std::fs::read_to_string(&file).expect("it is saved");
    let mut saved: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let knows_its_machine = saved["machine"].is_string();
    saved["inode"] = 1.into();
    std::fs::write(&file, saved.to_string()).expect("written");
    cluster.start();
    cluster.sluice(&["down"]).ok();

    saved["machine"] = "of another".into();
    std::fs::write(&file, saved.to_string()).expect("written");
    let state = cluster.state().canonicalize().expect("a path").display().to_string();
    let command = format!("sluice up --state {state} --moved");
    if knows_its_machine {
        let said = cluster.try_start();
        assert_eq!(said.code, 1, "{}", said.stdout);
        let words = [" of another machine, and the same cluster", &command];
        assert!(words.iter().all(|words| said.stderr.contains(words)), "{said:?}");
        let agent = cluster.sluice(&["agent", "--state", &state]);
        assert!(agent.code == 1 && agent.stderr.contains("sluice agent --state"), "{agent:?}");
        cluster.sluice(&["up", "--detach", "--state", &state, "--moved"]).ok();
    } else {
        // A machine without an id is told from no other.
        cluster.start();
    }
    assert_eq!(cluster.sluice(&["squeue", "-h", "-o", "%i"]).ok().trim(), job);
    cluster.sluice(&["down"]).ok();
    cluster.start();
}

#[test]
fn up_agent_and_its_keeper_are_known_by_their_locks_and_not_by_a_number_in_a_file() {
    let cluster = Cluster::up(TWO_NODES);
    let processes = ["agent", "keeper"].map(|of| cluster.pid(of));
    // The numbers that the files have now are those of another process of ours.
    let other = cluster.pid("server").to_string();
    for of in ["agent", "keeper"] {
        std::fs::write(cluster.state().join(format!("{of}.pid")), &other).expect("written");
    }
    let second = cluster.sluice(&["agent", "--state", cluster.state().to_str().expect("a path")]);
    assert_eq!(second.code, 1, "{}", second.stdout);
    let named = format!("already, as process {}", processes[0]);
    assert!(second.stderr.contains(&named), "{}", second.stderr);
    cluster.sluice(&["down"]).ok();
    assert!(!processes.into_iter().any(is_alive));
}

/// After a rollback and a second upgrade the lock's file of the later version is there, and the agent of the earlier one, which
/// knows nothing of it, runs.
#[test]
fn up_agent_that_takes_no_lock_is_found_beside_the_lock_file_of_a_later_version() {
    let cluster = Cluster::up(TWO_NODES);
    let processes = ["agent", "keeper"].map(|of| cluster.pid(of));
    for of in ["agent", "keeper"] {
        let lock = cluster.state().join(format!("{of}.lock"));
        std::fs::remove_file(&lock).expect("it is there");
        std::fs::write(&lock, "").expect("a lock's file that nobody holds");
    }
    let state = cluster.state().display().to_string();
    let second = cluster.sluice(&["agent", "--state", &state]);
    assert_eq!(second.code, 1, "{}", second.stdout);
    let named = format!("already, as process {}", processes[0]);
    assert!(second.stderr.contains(&named), "{}", second.stderr);
    cluster.sluice(&["down"]).ok();
    assert!(!processes.into_iter().any(is_alive), "both are stopped");
}

#[test]
fn up_port_that_is_in_use_is_named_with_what_helps() {
    let cluster = Cluster::folder(TWO_NODES);
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("an address").to_string();
    let (state, conf) = (cluster.state(), cluster.path("conf"));
    let (state, conf) = (state.to_str().expect("a path"), conf.to_str().expect("a path"));
    let line = ["up", "--detach", "--state", state, "--config", conf, "--listen", &address];
    let said = cluster.sluice(&[&line[..], &["--agents", "127.0.0.1:0"]].concat());
    assert_eq!(said.code, 1, "{}", said.stdout);
    assert!(said.stderr.contains(&format!("cannot listen at {address}")), "{}", said.stderr);
    assert!(said.stderr.contains("--listen, --agents and --ssh ADDR:PORT"), "{}", said.stderr);
}

#[test]
fn up_agent_without_its_join_file_says_what_it_waits_for() {
    let cluster = Cluster::folder(TWO_NODES);
    let mut command = cluster.command(&["agent", "--join", "missing.join", "--state"]);
    command.arg(cluster.path("agent-state")).stdin(Stdio::null());
    let log = std::fs::File::create(cluster.path("said")).expect("a file");
    let mut agent = command.stderr(log).stdout(Stdio::null()).spawn().expect("it starts");
    until("it says what it waits for", || {
        let said = std::fs::read_to_string(cluster.path("said")).unwrap_or_default();
        (said.contains("waiting 60 s for the join file missing.join")
            && said.contains("sluice token node"))
        .then_some(())
    });
    agent.kill().expect("it is there");
    agent.wait().expect("it ends");
}

#[test]
fn up_token_on_loopback_comes_with_the_fingerprint_and_where_it_works() {
    let cluster = Cluster::up(TWO_NODES);
    let said = cluster.sluice(&["token", "user", "root"]);
    assert_eq!(said.code, 0, "{}", said.stderr);
    assert_eq!(said.stdout.lines().count(), 1, "the token alone: {}", said.stdout);
    assert!(said.stderr.contains("SLUICE_SERVER=http://127.0.0.1:"), "{}", said.stderr);
    assert!(
        said.stderr.contains("sluice login https://HOST:PORT --fingerprint "),
        "{}",
        said.stderr
    );
}

#[test]
fn up_token_of_an_unknown_user_is_made_with_a_note() {
    let cluster = Cluster::up(TWO_NODES);
    let said = cluster.sluice(&["token", "user", "no-such-user"]);
    assert_eq!((said.code, said.stdout.lines().count()), (0, 1), "{}", said.stderr);
    let note = "note: the server's machine has no user \"no-such-user\": the token is refused";
    assert!(said.stderr.contains(note), "{}", said.stderr);
    let known = cluster.sluice(&["token", "user", "root"]);
    assert!(!known.stderr.contains("note: "), "{}", known.stderr);
}

#[test]
fn up_output_of_a_job_whose_working_directory_is_missing_is_found() {
    let cluster = Cluster::up(TWO_NODES);
    let said = cluster.sluice(&[
        "sbatch",
        "--parsable",
        "-D",
        "/no/such/folder",
        "--wrap",
        "echo here-it-is",
    ]);
    assert!(
        said.stderr.contains("note: there is no folder /no/such/folder here"),
        "{}",
        said.stderr
    );
    let job = said.ok().trim().to_owned();
    assert_eq!(cluster.await_end(&job), "COMPLETED|0:0");
    let file = format!("/tmp/slurm-{job}.out");
    let explained = cluster.sluice(&["explain", &job]).ok();
    let logged = cluster.sluice(&["logs", &job]);
    let _ = std::fs::remove_file(&file);
    assert!(
        explained.contains(&format!("without its working directory has it in {file}")),
        "{explained}"
    );
    assert!(explained.contains("| here-it-is"), "{explained}");
    assert!(logged.stdout.ends_with("here-it-is\n"), "{logged:?}");
}

#[test]
fn up_list_of_machines_shows_why_one_is_out_of_service() {
    let cluster = Cluster::up(TWO_NODES);
    let drain = ["scontrol", "update", "nodename=node1", "state=drain", "reason=new disks"];
    cluster.sluice(&drain).ok();
    let shown = cluster.sluice(&["node"]).ok();
    let line = shown.lines().find(|line| line.starts_with("node1")).expect("a line");
    assert!(line.ends_with("new disks"), "{shown}");
    assert!(cluster.sluice(&["node", "show", "node1"]).ok().contains("Reason: new disks\n"));
}

#[test]
fn root_nobody_is_asked_about_a_volume_that_they_may_not_delete() {
    let cluster = Cluster::up(TWO_NODES);
    cluster.sluice(&["volume", "create", "data", "--node", "node1"]).ok();
    for (name, why) in [("data", "access denied"), ("none", "volume none does not exist")] {
        let said = cluster.shell_as("daemon", &format!("{} volume delete {name}", program()));
        assert_ne!(said.code, 0);
        assert!(said.stderr.contains(why) && said.stdout.is_empty(), "{said:?}");
    }
}

#[test]
fn root_fleet_of_an_ordinary_user_is_refused_with_who_makes_fleets() {
    let cluster = Cluster::up(TWO_NODES);
    let fleet = "type: fleet\nname: lab\nssh_config:\n  user: nobody\n  hosts: [10.77.0.1]\n";
    cluster.write("lab.dstack.yml", fleet);
    for line in ["apply -y -f lab.dstack.yml", "fleet delete lab -y"] {
        let said = cluster.shell_as("daemon", &format!("{} {line}", program()));
        assert_ne!(said.code, 0, "{line}: {}", said.stdout);
        let why = "access denied: administrators of the cluster make, change and delete fleets";
        assert!(said.stderr.contains(why), "{line}: {}", said.stderr);
    }
}

/// Every user may read `server.lock`, and so hold a lock of it.
#[test]
fn up_lock_that_a_user_holds_keeps_no_server_from_starting() {
    let cluster = Cluster::up(TWO_NODES);
    cluster.sluice(&["down"]).ok();
    let file = std::fs::File::open(cluster.state().join("server.lock")).expect("for everybody");
    let whole = nix::libc::flock {
        l_type: nix::libc::F_RDLCK as nix::libc::c_short,
        l_whence: nix::libc::SEEK_SET as nix::libc::c_short,
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    };
    nix::fcntl::fcntl(&file, nix::fcntl::FcntlArg::F_OFD_SETLK(&whole)).expect("a lock");
    cluster.start();
    let second = cluster.sluice(&["server", "--state", cluster.state().to_str().expect("a path")]);
    assert!(second.code != 0 && second.stderr.contains("a server runs in"), "{second:?}");
}
