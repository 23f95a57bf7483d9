//! `kill -9` of server, agent and supervisor, nodes that go down, and what must survive it.

use crate::harness::{Cluster, TWO_NODES, is_alive, signal, until};
use std::collections::BTreeSet;

#[test]
fn up_no_acknowledged_job_is_lost_and_no_id_given_twice_by_kill_9() {
    let cluster = Cluster::up(TWO_NODES);
    let mut known = BTreeSet::new();
    for round in 0..6 {
        for _ in 0..10 + round {
            let id = cluster.submit(&["-H", "--wrap", "true"]);
            assert!(known.insert(id), "id {id} was given twice");
        }
        cluster.kill("server");
        cluster.start();
        let text = cluster.sluice(&["squeue", "-h", "-o", "%A"]).ok();
        let there: BTreeSet<u32> = text.lines().map(|l| l.trim().parse().unwrap()).collect();
        assert_eq!(there, known, "after kill {round}");
    }
}

#[test]
fn up_kill_9_during_submits_loses_no_answered_submit() {
    let cluster = Cluster::up(TWO_NODES);
    let mut known = BTreeSet::new();
    for round in 0..5u64 {
        let line = "for i in 1 2 3 4 5 6 7 8; do sbatch --parsable -H --wrap true || exit 0; done";
        let submitters: Vec<_> = (0..3).map(|_| cluster.spawn_shell(line)).collect();
        // Kills at a different moment each time: after a growing number of answered submits.
        until("some jobs are in", || {
            let text = cluster.sluice(&["squeue", "-h", "-o", "%A"]).stdout;
            (text.lines().count() as u64 >= known.len() as u64 + 1 + 3 * round).then_some(())
        });
        cluster.kill("server");
        cluster.start();
        for child in submitters {
            let output = child.wait_with_output().unwrap();
            for line in String::from_utf8_lossy(&output.stdout).lines() {
                let id: u32 = line.trim().parse().unwrap();
                assert!(known.insert(id), "id {id} was given twice");
            }
        }
        let text = cluster.sluice(&["squeue", "-h", "-o", "%A"]).ok();
        let there: BTreeSet<u32> = text.lines().map(|l| l.trim().parse().unwrap()).collect();
        assert!(known.is_subset(&there), "lost: {:?}", known.difference(&there));
    }
}

/// A job that writes a line each time it is started.
const MARKS: &str = "echo run >> marks-$SLURM_JOB_ID; echo before; while [ ! -e go ]; do sleep 0.05; done; echo after";

fn marks(cluster: &Cluster, id: u32) -> usize {
    cluster.read(&format!("marks-{id}")).lines().count()
}

#[test]
fn up_a_job_outlives_its_server_and_its_end_is_recorded_once() {
    let cluster = Cluster::up(TWO_NODES);
    let id = cluster.submit(&["--wrap", MARKS]);
    cluster.await_file(&format!("slurm-{id}.out"), |t| t.contains("before"));
    cluster.kill("server");
    cluster.write("go", "");
    cluster.await_file(&format!("slurm-{id}.out"), |t| t.contains("after"));
    cluster.start();
    assert_eq!(cluster.await_end(id), "COMPLETED|0:0");
    assert_eq!(marks(&cluster, id), 1);
    let rows =
        cluster.sluice(&["sacct", "-n", "-X", "-D", "-P", "-j", &id.to_string(), "-o", "JobID"]);
    assert_eq!(rows.stdout.lines().count(), 1, "{}", rows.stdout);
}

#[test]
fn up_a_job_outlives_its_agent_and_is_found_again() {
    let cluster = Cluster::up(TWO_NODES);
    let running = cluster.submit(&["--wrap", MARKS]);
    let ended = cluster.submit(&[
        "--wrap",
        "echo run >> marks-$SLURM_JOB_ID; while [ ! -e early ]; do sleep 0.05; done; exit 3",
    ]);
    cluster.await_file(&format!("marks-{running}"), |t| !t.is_empty());
    cluster.await_file(&format!("marks-{ended}"), |t| !t.is_empty());
    cluster.kill("agent");
    cluster.write("early", "");
    cluster.kill("server");
    cluster.start();
    assert_eq!(cluster.await_end(ended), "FAILED|3:0", "it ended while nobody looked");
    cluster.await_state(running, "RUNNING");
    cluster.write("go", "");
    assert_eq!(cluster.await_end(running), "COMPLETED|0:0");
    assert_eq!((marks(&cluster, running), marks(&cluster, ended)), (1, 1));
}

#[test]
fn up_a_job_ends_with_its_killed_supervisor_and_is_requeued() {
    let cluster = Cluster::up(TWO_NODES);
    let id = cluster.submit(&["--wrap", "echo $$ >> pids; sleep 600"]);
    let first: i32 = cluster.await_file("pids", |t| t.ends_with('\n')).trim().parse().unwrap();
    let stat = std::fs::read_to_string(format!("/proc/{first}/stat")).unwrap();
    let supervisor: i32 =
        stat.rsplit(')').next().unwrap().split_whitespace().nth(1).unwrap().parse().unwrap();
    signal(supervisor, "KILL");
    until("nothing of the first attempt is left", || (!is_alive(first)).then_some(()));
    cluster.await_file("pids", |t| t.lines().count() == 2);
    cluster.await_state(id, "RUNNING");
    let all = cluster
        .sluice(&["sacct", "-n", "-X", "-D", "-P", "-j", &id.to_string(), "-o", "State"])
        .ok();
    assert_eq!(all.lines().collect::<Vec<_>>(), ["NODE_FAIL", "RUNNING"]);
}

#[test]
fn up_processes_that_a_job_leaves_behind_end_with_it() {
    let cluster = Cluster::up(TWO_NODES);
    let daemon = "setsid sh -c 'trap \"\" TERM HUP INT; echo $$ > daemon; while :; do sleep 1; done' </dev/null >/dev/null 2>&1 &";
    let wait = "while [ ! -s daemon ]; do sleep 0.02; done";
    let id = cluster.submit(&["--wrap", &format!("{daemon}\n{wait}")]);
    assert_eq!(cluster.await_end(id), "COMPLETED|0:0");
    let pid: i32 = cluster.read("daemon").trim().parse().unwrap();
    assert!(!is_alive(pid), "the daemon outlived its job");
    until("no group is left", || cluster.groups().is_empty().then_some(()));
    until("no spool is left", || {
        let left = cluster.shell("ls -d ../state/nodes/*/spool/* 2>/dev/null").stdout;
        left.trim().is_empty().then_some(())
    });
}

#[test]
fn up_repeated_kills_leave_one_record_for_each_attempt() {
    let cluster = Cluster::up(TWO_NODES);
    let mut jobs = Vec::new();
    for round in 0..4 {
        for i in 0..6 {
            let body =
                format!("echo run >> marks-$SLURM_JOB_ID; sleep 0.{}", (i * 7 + round * 3) % 10);
            jobs.push(cluster.submit(&["--no-requeue", "--wrap", &body]));
        }
        match round % 2 {
            0 => cluster.kill("server"),
            _ => {
                cluster.kill("agent");
                cluster.kill("server");
            }
        }
        cluster.start();
    }
    for id in jobs {
        assert_eq!(cluster.await_end(id), "COMPLETED|0:0", "job {id}");
        assert_eq!(marks(&cluster, id), 1, "job {id} was started once");
        let rows = cluster.sluice(&[
            "sacct",
            "-n",
            "-X",
            "-D",
            "-P",
            "-j",
            &id.to_string(),
            "-o",
            "State",
        ]);
        assert_eq!(rows.stdout.trim(), "COMPLETED", "one record of job {id}");
    }
}

#[test]
fn up_a_torn_journal_tail_is_cut_and_reported_and_damage_elsewhere_is_refused() {
    let cluster = Cluster::up(TWO_NODES);
    for _ in 0..5 {
        cluster.submit(&["-H", "--wrap", "true"]);
    }
    cluster.sluice(&["down"]).ok();
    let dir = cluster.state().join("server/journal");
    let log = std::fs::read_dir(&dir).unwrap().flatten().map(|e| e.path());
    let log = log.filter(|p| p.to_string_lossy().contains("journal-")).min().unwrap();
    let whole = std::fs::read(&log).unwrap();
    let end = whole.iter().rposition(|b| *b != 0).unwrap() + 1;
    let mut flipped = whole.clone();
    flipped[end / 2] ^= 0x40;
    std::fs::write(&log, &flipped).unwrap();
    let said = cluster.try_start();
    assert_ne!(said.code, 0, "a damaged journal is not gone on with");
    assert!(said.stderr.contains("damaged at byte"), "{}", said.stderr);
    let mut torn = whole.clone();
    torn[end - 10..].fill(0);
    std::fs::write(&log, &torn).unwrap();
    cluster.start();
    assert!(cluster.log("server").contains("unfinished commit"), "{}", cluster.log("server"));
}

#[test]
fn up_a_silent_node_goes_down_and_its_stale_jobs_are_killed_when_it_returns() {
    let conf = TWO_NODES.replace("KillWait=1", "KillWait=1\nSlurmdTimeout=2\nReturnToService=1");
    let cluster = Cluster::up(&conf);
    let requeued = cluster.submit(&["-w", "node1", "--wrap", "echo $$ >> pids; sleep 600"]);
    let failed = cluster.submit(&["--no-requeue", "-w", "node2", "--wrap", "sleep 600"]);
    let first: i32 = cluster.await_file("pids", |t| t.ends_with('\n')).trim().parse().unwrap();
    cluster.await_state(failed, "RUNNING");
    cluster.kill("agent");
    assert_eq!(cluster.await_end(failed), "NODE_FAIL|0:0");
    cluster.await_state(requeued, "PENDING");
    let states = cluster.sluice(&["sinfo", "-h", "-N", "-p", "gpu", "-o", "%t"]).ok();
    assert!(states.lines().all(|s| s.starts_with("down")), "{states}");
    assert!(is_alive(first), "the job goes on where nobody looks");
    for told in ["node lost its connection", "node down", "attempt given up", "job requeued"] {
        until(told, || cluster.log("server").contains(told).then_some(()));
    }
    let mut agent = cluster
        .command(&["agent", "--state", cluster.state().to_str().unwrap()])
        .arg("--join")
        .arg(cluster.state().join("server/local.join"))
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    cluster.await_file("pids", |t| t.lines().count() == 2);
    assert!(!is_alive(first), "the attempt that was given up is killed before the next starts");
    cluster.await_state(requeued, "RUNNING");
    cluster.sluice(&["down", "--jobs"]).ok();
    let _ = agent.wait();
}

#[test]
fn up_a_client_that_disconnects_during_a_request_harms_nothing() {
    use std::io::Write;
    let cluster = Cluster::up(TWO_NODES);
    for cut in [1, 20, 90] {
        let mut socket =
            std::os::unix::net::UnixStream::connect(cluster.state().join("sluice.sock")).unwrap();
        let request = "POST /api/v1/call HTTP/1.1\r\nhost: x\r\ncontent-length: 500\r\n\r\n{\"version\":1,\"call\":{\"submit\"";
        socket.write_all(&request.as_bytes()[..cut.min(request.len())]).unwrap();
    }
    let id = cluster.submit(&["--wrap", "true"]);
    assert_eq!(id, 1, "nothing was submitted by halves");
    assert_eq!(cluster.await_end(id), "COMPLETED|0:0");
}

#[test]
fn up_a_job_cancelled_right_after_its_start_does_not_stay_completing() {
    let cluster = Cluster::up(TWO_NODES);
    let line = "for i in $(seq 40); do id=$(sbatch --parsable -o /dev/null --wrap 'sleep 600'); scancel $id; done";
    cluster.shell(line).ok();
    until("every job has ended", || {
        cluster.sluice(&["squeue", "-h"]).stdout.trim().is_empty().then_some(())
    });
}

#[test]
fn up_a_node_set_down_ends_its_jobs_and_works_after_resume() {
    let cluster = Cluster::up(TWO_NODES);
    let id = cluster.submit(&["-N2", "--no-requeue", "--wrap", "echo $$ > pid; sleep 600"]);
    let pid: i32 = cluster.await_file("pid", |t| t.ends_with('\n')).trim().parse().unwrap();
    cluster.sluice(&["scontrol", "update", "NodeName=node1", "State=DOWN", "Reason=drill"]).ok();
    assert_eq!(cluster.await_end(id), "NODE_FAIL|0:0");
    until("nothing of it is left", || (!is_alive(pid)).then_some(()));
    cluster.sluice(&["scontrol", "update", "NodeName=node1", "State=RESUME"]).ok();
    let again = cluster.submit(&["-w", "node1", "--wrap", "true"]);
    assert_eq!(cluster.await_end(again), "COMPLETED|0:0");
}

#[test]
fn up_a_waiting_srun_outlives_its_server() {
    let cluster = Cluster::up(TWO_NODES);
    let first = cluster.submit(&["-N2", "--exclusive", "--wrap", "sleep 600"]);
    cluster.await_state(first, "RUNNING");
    let client = cluster
        .command(&["srun", "-J", "late", "sh", "-c", "echo it ran; exit 6"])
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    until("it waits", || {
        let text = cluster.sluice(&["squeue", "-h", "-n", "late", "-o", "%T"]).stdout;
        (text.trim() == "PENDING").then_some(())
    });
    cluster.kill("server");
    cluster.start();
    cluster.sluice(&["scancel", &first.to_string()]).ok();
    let output = client.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!((text.as_str(), output.status.code()), ("it ran\n", Some(6)), "{errors}");
}

#[test]
fn up_snapshot_and_journal_restore_the_same_state() {
    let cluster = Cluster::folder(TWO_NODES);
    // The variable reaches the server through the command that starts it.
    let start = |cluster: &Cluster| {
        let (state, conf) = (cluster.state(), cluster.path("conf"));
        let line = format!(
            "SLUICE_SNAPSHOT_EVENTS=25 {} up --detach --state {} --config {} --listen 127.0.0.1:0 --agents 127.0.0.1:0",
            crate::harness::program(),
            state.display(),
            conf.display()
        );
        cluster.shell(&line).ok();
    };
    start(&cluster);
    let snapshots = || {
        let dir = cluster.state().join("server/snapshots");
        std::fs::read_dir(dir).into_iter().flatten().flatten().count()
    };
    let (mut held, mut done) = (BTreeSet::new(), Vec::new());
    for round in 0..4 {
        for _ in 0..12 {
            held.insert(cluster.submit(&["-H", "-J", "kept", "--wrap", "true"]));
            done.push(cluster.submit(&["-o", "/dev/null", "--wrap", "exit 2"]));
        }
        let running = cluster.submit(&["-J", "runs", "-o", "/dev/null", "--wrap", "sleep 600"]);
        cluster.await_state(running, "RUNNING");
        for id in &done {
            assert_eq!(cluster.await_end(id), "FAILED|2:0");
        }
        until("a snapshot is written", || (snapshots() > 0).then_some(()));
        cluster.kill("server");
        start(&cluster);
        let text = cluster.sluice(&["squeue", "-h", "-n", "kept", "-o", "%A"]).ok();
        let there: BTreeSet<u32> = text.lines().map(|l| l.trim().parse().unwrap()).collect();
        assert_eq!(there, held, "round {round}");
        let alive = cluster.sluice(&["squeue", "-h", "-n", "runs", "-t", "R"]).ok();
        assert_eq!(alive.lines().count(), round + 1, "what ran goes on");
    }
    let line =
        ["sacct", "-n", "-X", "-P", "-S", "now-1hour", "-E", "now", "-s", "FAILED", "-o", "JobID"];
    let rows = cluster.sluice(&line).ok();
    assert_eq!(rows.lines().count(), done.len(), "each end is in the books once");
    assert!(snapshots() <= 3, "two are kept, and one may be in the making");
}
