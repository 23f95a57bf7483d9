//! Steps whose nodes cannot dial their `srun`: the bytes go through server and agent.

use crate::harness::{Cluster, TWO_NODES, is_alive, signal, until};
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command, Stdio};

/// In a network namespace of its own an `srun` reaches the server's Unix socket, and no node reaches the `srun`.
fn cut_off(cluster: &Cluster, line: &str) -> Command {
    let mut command = Command::new("unshare");
    command.args(["-n", "sh", "-c", line]);
    cluster.set_up(&mut command);
    command
}

fn run(cluster: &Cluster, line: &str) -> crate::harness::CommandOutput {
    cut_off(cluster, line).stdin(Stdio::null()).output().expect("it runs").into()
}

fn spawn(cluster: &Cluster, line: &str) -> Child {
    let mut command = cut_off(cluster, line);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().expect("it runs")
}

#[test]
fn root_an_unreachable_srun_gets_all_output_and_the_exit_code() {
    let cluster = Cluster::up(TWO_NODES);
    let said = run(&cluster, "srun -N2 -l sh -c 'echo $SLURM_NODEID; echo oh >&2; exit 3'");
    assert_eq!(said.code, 3, "{}", said.stderr);
    let mut lines: Vec<&str> = said.stdout.lines().collect();
    lines.sort();
    assert_eq!(lines, ["0: 0", "1: 1"]);
    assert!(said.stderr.contains("0: oh\n") && said.stderr.contains("1: oh\n"), "{}", said.stderr);

    // The srun prolog runs before the tasks here too, also if it takes longer than the wait for nodes to dial.
    let line = "srun -N2 --prolog=./before sh -c 'cat before.done'";
    let path = cluster.write("before", "#!/bin/sh\nsleep 1.5; echo done > before.done\n");
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
    let said = run(&cluster, line);
    assert_eq!((said.code, said.stdout.as_str()), (0, "done\ndone\n"), "{}", said.stderr);

    // Ten megabytes in both directions, compared byte by byte.
    let there: Vec<u8> =
        (0..10 << 20).map(|n: u32| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    std::fs::write(cluster.path("work").join("there"), &there).unwrap();
    let said = run(&cluster, "srun -i there cat > back");
    assert_eq!(said.code, 0, "{}", said.stderr);
    let back = std::fs::read(cluster.path("work").join("back")).unwrap();
    assert!(back == there, "{} bytes came of {}", back.len(), there.len());
}

#[test]
fn root_an_unreachable_srun_survives_restarts_of_server_and_agent() {
    let cluster = Cluster::up(TWO_NODES);
    let mut srun = spawn(
        &cluster,
        "srun -n1 sh -c 'i=0; while read line; do i=$((i+1)); echo $i $line; done; exit 7'",
    );
    let mut input = srun.stdin.take().unwrap();
    let mut output = srun.stdout.take().unwrap();
    let mut seen = String::new();
    let mut hear = |until: &str| {
        let mut buffer = [0; 256];
        while !seen.ends_with(until) {
            let length = output.read(&mut buffer).expect("readable");
            assert!(length > 0, "it ended after {seen:?}");
            seen.push_str(&String::from_utf8_lossy(&buffer[..length]));
        }
    };
    input.write_all(b"one\n").unwrap();
    hear("1 one\n");
    cluster.kill("server");
    input.write_all(b"two\n").unwrap();
    cluster.start();
    hear("2 two\n");
    cluster.kill("agent");
    input.write_all(b"three\n").unwrap();
    let mut agent = cluster.spawn_agent();
    hear("3 three\n");
    drop(input);
    let said = crate::harness::CommandOutput::from(srun.wait_with_output().unwrap());
    assert_eq!(said.code, 7, "{}", said.stderr);
    assert_eq!(seen, "1 one\n2 two\n3 three\n");
    cluster.sluice(&["down", "--jobs"]).ok();
    let _ = agent.wait();
}

#[test]
fn root_the_step_of_a_killed_unreachable_srun_ends() {
    let cluster = Cluster::up(TWO_NODES);
    let job = cluster.submit(&["--wrap", "sleep 600"]);
    cluster.await_state(job, "RUNNING");
    let line = format!("exec srun --jobid={job} --overlap sh -c 'echo $$ > pid; sleep 600'");
    let mut srun = spawn(&cluster, &line);
    let pid: i32 = cluster.await_file("pid", |t| t.ends_with('\n')).trim().parse().unwrap();
    srun.kill().unwrap();
    srun.wait().unwrap();
    until("the step's task is gone", || (!is_alive(pid)).then_some(()));
    cluster.await_state(job, "RUNNING");
}

#[test]
fn root_an_srun_that_stops_reading_blocks_nobody_else() {
    let cluster = Cluster::up(TWO_NODES);
    // Its output is never read: buffers fill up, and the task waits.
    let mut stuck = spawn(&cluster, "exec srun -n1 sh -c 'echo on > stuck; exec yes'");
    cluster.await_file("stuck", |t| t == "on\n");
    let said = run(&cluster, "srun -n1 sh -c 'seq 100000'");
    assert_eq!((said.code, said.stdout.lines().count()), (0, 100_000), "{}", said.stderr);
    let job = cluster.submit(&["-o", "out", "--wrap", "echo done"]);
    assert_eq!(cluster.await_end(job), "COMPLETED|0:0");
    // It still runs and waits.
    assert!(stuck.try_wait().unwrap().is_none());
    stuck.kill().unwrap();
    stuck.wait().unwrap();
}

/// An `srun` whose order was sent to a stopped agent, which is then killed.
fn unheard(cluster: &Cluster, args: &[&str], listed: &str) -> Child {
    signal(cluster.pid("agent"), "STOP");
    let mut command = cluster.command(args);
    let srun = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    until("the step is known to the server", || {
        let steps = cluster.sluice(&["squeue", "-h", "-s", "-o", "%i"]).stdout;
        steps.lines().any(|line| line.trim() == listed).then_some(())
    });
    srun.expect("it runs")
}

#[test]
fn up_a_step_order_lost_with_its_link_is_sent_again() {
    let cluster = Cluster::up(TWO_NODES);
    cluster.sluice(&["salloc", "--no-shell", "-N2"]).ok();
    cluster.await_state(1, "RUNNING");
    // A step in an existing allocation, and one that starts with its job.
    let first = unheard(&cluster, &["srun", "--jobid=1", "sh", "-c", "echo ran; exit 3"], "1.0");
    let own =
        unheard(&cluster, &["srun", "-n1", "--overcommit", "sh", "-c", "echo own; exit 4"], "2.0");
    cluster.kill("agent");
    let mut agent = cluster.spawn_agent();
    let first = crate::harness::CommandOutput::from(first.wait_with_output().unwrap());
    assert_eq!((first.code, first.stdout.as_str()), (3, "ran\nran\n"), "{}", first.stderr);
    let own = crate::harness::CommandOutput::from(own.wait_with_output().unwrap());
    assert_eq!((own.code, own.stdout.as_str()), (4, "own\n"), "{}", own.stderr);
    cluster.sluice(&["down", "--jobs"]).ok();
    let _ = agent.wait();
}

#[test]
fn up_a_step_order_lost_with_its_server_is_sent_again_by_srun() {
    let cluster = Cluster::up(TWO_NODES);
    cluster.sluice(&["salloc", "--no-shell", "-n1"]).ok();
    cluster.await_state(1, "RUNNING");
    let srun = unheard(&cluster, &["srun", "--jobid=1", "sh", "-c", "echo ran; exit 3"], "1.0");
    cluster.kill("server");
    cluster.kill("agent");
    cluster.start();
    let said = crate::harness::CommandOutput::from(srun.wait_with_output().unwrap());
    assert_eq!((said.code, said.stdout.as_str()), (3, "ran\n"), "{}", said.stderr);
}

#[test]
fn root_only_its_owner_may_attach_to_a_step() {
    let cluster = Cluster::up(TWO_NODES);
    let mut command =
        cluster.command(&["srun", "sh", "-c", "echo secret > begun; echo secret; sleep 600"]);
    let mut srun = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().expect("it runs");
    cluster.await_file("begun", |text| text == "secret\n");
    let said = cluster.shell_as("games", "sattach 1.0");
    assert_eq!((said.code, said.stdout.as_str()), (1, ""), "{}", said.stderr);
    assert!(
        said.stderr.starts_with("sattach: error: node1: Access/permission denied\n"),
        "{}",
        said.stderr
    );
    srun.kill().unwrap();
    srun.wait().unwrap();
}
