//! One `srun` over several components of a het job, in the words of a real Slurm 22.05.

use crate::harness::interactive::Running;
use crate::harness::{Cluster, CommandOutput, TWO_NODES, sorted_lines, until};
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

/// Runs the lines in a het allocation of two tasks on the first node and one on the second.
fn within(cluster: &Cluster, lines: &str) -> CommandOutput {
    cluster.write("lines.sh", lines);
    cluster.shell("salloc -Q -n2 -w node1 : -n1 -w node2 sh lines.sh")
}

#[test]
fn up_a_het_srun_runs_as_one_step_with_global_ranks_and_nodes() {
    let cluster = Cluster::up(TWO_NODES);
    let table = [
        // One part for each component, labelled by global rank.
        (
            "-l sh -c 'echo a $SLURM_PROCID/$SLURM_NTASKS' : \
             sh -c 'echo b $SLURM_PROCID/$SLURM_NTASKS $SLURM_LOCALID $SLURM_GTIDS'",
            vec!["0: a 0/3", "1: a 1/3", "2: b 2/3 0 2"],
        ),
        // One program for all components: each task has the variables of all, and the leader's job id.
        (
            "-n1 --het-group=0,1 sh -c 'echo $SLURM_PROCID $SLURM_JOB_ID $SLURM_JOB_NODELIST \
             $SLURM_NODELIST $SLURM_NNODES $SLURM_TASKS_PER_NODE $SLURM_NODEID \
             $SLURM_JOB_CPUS_PER_NODE $SLURM_HET_SIZE $SLURM_JOB_ID_HET_GROUP_1 $SLURMD_NODENAME'",
            vec![
                "0 1 node[1-2] node[1-2] 2 1(x2) 0 2,1 2 2 node1",
                "1 1 node[1-2] node[1-2] 2 1(x2) 1 2,1 2 2 node2",
            ],
        ),
        ("--het-group=0-1 sh -c 'echo $SLURM_PROCID'", vec!["0", "1", "2"]),
        // `--het-group` assigns parts to components; ranks follow the components.
        ("-l --het-group=1 -n1 echo a : --het-group=0 -n1 echo b", vec!["0: b", "1: a"]),
        // A part without a command runs that of the next part.
        ("-n1 : -n1 echo a", vec!["a", "a"]),
        // An output option applies to its own part and later ones.
        ("-n1 echo a : -l echo b", vec!["1: b", "a"]),
        ("--het-group=1 sh -c 'echo $SLURM_PROCID'", vec!["0"]),
    ];
    let lines: String =
        (0..table.len()).map(|at| format!("srun {} > out.{at}\n", table[at].0)).collect();
    let said = within(&cluster, &lines);
    assert_eq!((said.code, &*said.stderr), (0, ""));
    for (at, (args, wanted)) in table.iter().enumerate() {
        assert_eq!(sorted_lines(&cluster.read(&format!("out.{at}"))), *wanted, "{args}");
    }
    until("each component has its steps in the books", || {
        let line = "sacct -n -P -j 1 -o JobID,NTasks,State | grep -F .0";
        let rows = cluster.shell(line).stdout;
        (rows == "1+0.0|2|COMPLETED\n1+1.0|1|COMPLETED\n").then_some(())
    });
}

#[test]
fn up_invalid_het_sruns_are_refused_in_slurms_words_and_run_nothing() {
    let cluster = Cluster::up(TWO_NODES);
    let beyond = "error: Attempt to run a job step with het group value of 2, \
                  but the job allocation has maximum value of 1";
    let twice = "fatal: Duplicate het groups in single srun not supported";
    let nothing = "fatal: No command given to execute.";
    let table = [
        ("touch ran : touch ran : touch ran", beyond),
        ("--het-group=0,2 touch ran", beyond),
        ("--het-group=1 touch ran : touch ran", twice),
        ("--het-group=0 touch ran : --het-group=0 touch ran", twice),
        ("--het-group=0,1 touch ran : touch ran", twice),
        ("-n1 touch ran :", nothing),
        ("-n1 touch ran : -n1", nothing),
        ("--het-group=x touch ran", "error: Invalid --het-group value: x"),
        (
            "-n50 touch ran : touch ran",
            "error: Unable to create step for job 1: More processors requested than permitted",
        ),
        (
            "touch ran : -n50 touch ran",
            "error: Unable to create step for job 2: More processors requested than permitted",
        ),
    ];
    let line = |(at, (args, _)): (usize, &(&str, &str))| {
        format!("srun {args} 2> err.{at}; echo $? >> codes\n")
    };
    let lines: String = table.iter().enumerate().map(line).collect();
    // The step of the other component is gone: the whole allocation is free for the next `srun`.
    within(
        &cluster,
        &format!("{lines}srun --exact -I30 -n2 true : --exact -I30 -n1 true; echo $? >> codes\n"),
    )
    .ok();
    for (at, (args, words)) in table.iter().enumerate() {
        let said = cluster.read(&format!("err.{at}"));
        assert_eq!(said.lines().last(), Some(&*format!("srun: {words}")), "{args}");
    }
    assert_eq!(cluster.read("codes"), format!("{}0\n", "1\n".repeat(table.len())));
    assert!(!cluster.path("work").join("ran").exists());
    // In a plain job the nodes are divided among the parts.
    let plain = cluster.shell("salloc -Q -n2 srun -n1 echo a : -n1 echo b");
    let words = "srun: error: Allocation failure of 1 nodes: job size of 1, \
                 already allocated 1 nodes to previous components.\n";
    assert_eq!((plain.code, &*plain.stderr), (1, words));
}

#[test]
fn up_exits_signals_and_wait_apply_to_all_het_components() {
    let cluster = Cluster::up(TWO_NODES);
    let table: [(&str, i32, &[&str]); 5] = [
        (
            "-n1 sh -c 'exit 3' : sh -c 'exit 5'",
            5,
            &[
                "srun: error: node1: task 0: Exited with exit code 3",
                "srun: error: node2: task 0: Exited with exit code 5",
            ],
        ),
        (
            "-n1 sh -c 'kill -9 $$' : sh -c 'exit 7'",
            137,
            &[
                "srun: Force Terminated StepId=1.1",
                "srun: error: node1: task 0: Killed",
                "srun: error: node2: task 0: Exited with exit code 7",
            ],
        ),
        (
            "-K -n1 sleep 600 : sh -c 'exit 7'",
            143,
            &[
                "srun: Force Terminated StepId=1.2",
                "srun: error: node1: task 0: Terminated",
                "srun: error: node2: task 0: Exited with exit code 7",
                "srun: launch/slurm: _step_signal: Terminating StepId=1.2",
                "srun: launch/slurm: _step_signal: Terminating StepId=2.2",
            ],
        ),
        // The option of a later part has no effect.
        (
            "-n1 sh -c 'until [ -e go ]; do sleep 0.05; done; sleep 0.3' : -K sh -c 'touch go; exit 4'",
            4,
            &["srun: error: node2: task 0: Exited with exit code 4"],
        ),
        (
            "-W4 true : sleep 600",
            137,
            &[
                "srun: First task exited 4s ago",
                "srun: Job step aborted: Waiting up to 3 seconds for job step to finish.",
                "srun: StepId=1.4 tasks 0-1: exited",
                "srun: StepId=2.4 task 0: running",
                "srun: error: node2: task 0: Killed",
                "srun: launch/slurm: _step_signal: Terminating StepId=1.4",
                "srun: launch/slurm: _step_signal: Terminating StepId=2.4",
            ],
        ),
    ];
    let line = |(at, (args, _, _)): (usize, &(&str, i32, &[&str]))| {
        format!("srun {args} 2> err.{at}; echo $? > code.{at}\n")
    };
    let lines: String = table.iter().enumerate().map(line).collect();
    within(&cluster, &lines).ok();
    for (at, (args, code, wanted)) in table.iter().enumerate() {
        let said = cluster.read(&format!("err.{at}"));
        let said: Vec<&str> = sorted_lines(&said)
            .into_iter()
            .filter(|line| !line.starts_with("slurmstepd"))
            .collect();
        assert_eq!(said, *wanted, "{args}");
        assert_eq!(cluster.read(&format!("code.{at}")), format!("{code}\n"), "{args}");
    }
}

#[test]
fn up_an_interrupt_reports_all_het_components_and_a_second_one_ends_them() {
    let cluster = Cluster::up(TWO_NODES);
    let mut held = Running::start(
        &cluster,
        &[
            "srun",
            "-n2",
            "-w",
            "node1",
            "sh",
            "-c",
            "echo up; sleep 600",
            ":",
            "-n1",
            "-w",
            "node2",
            "sh",
            "-c",
            "echo up; sleep 600",
        ],
    );
    held.await_output(|text| text == "up\n".repeat(3));
    let answers = |text: &str| text.matches("StepId=2.0 task 0: running\n").count();
    // Repeats the interrupt until one follows another within a second: a slow machine may need several.
    while !held.err.contains("forcing") {
        let before = answers(&held.err);
        held.signal("INT");
        held.await_error(|text| answers(text) > before || text.contains("forcing"));
    }
    let said = "srun: interrupt (one more within 1 sec to abort)\n\
                srun: StepId=1.0 tasks 0-1: running\nsrun: StepId=2.0 task 0: running\n\
                srun: sending Ctrl-C to StepId=1.0\nsrun: forcing job termination\n";
    let ended = held.end();
    assert!(ended.stderr.contains(said), "{}", ended.stderr);
    assert!([130, 137].contains(&ended.code), "{} {}", ended.code, ended.stderr);
    until("nothing of it is left", || cluster.groups().is_empty().then_some(()));
}

#[test]
fn up_het_input_goes_to_every_task_and_output_files_have_global_ranks() {
    let cluster = Cluster::up(TWO_NODES);
    let lines = "printf 'one\\ntwo\\n' | srun -l cat : cat > read\n\
                 printf 'one\\n' > in\n\
                 srun -n1 -i none cat : -l -i in cat > files\n\
                 srun -o o.%t echo a : echo b\n\
                 srun -o both sh -c 'echo a; echo a' : echo b\n";
    let said = within(&cluster, lines);
    assert_eq!((said.code, &*said.stderr), (0, ""));
    let all = ["0: one", "0: two", "1: one", "1: two", "2: one", "2: two"];
    assert_eq!(sorted_lines(&cluster.read("read")), all);
    assert_eq!(cluster.read("files"), "1: one\n");
    assert_eq!([0, 1, 2].map(|rank| cluster.read(&format!("o.{rank}"))), ["a\n", "a\n", "b\n"]);
    assert_eq!(sorted_lines(&cluster.read("both")), ["a", "a", "a", "a", "b"]);
}

#[test]
fn up_a_het_srun_outside_of_a_job_submits_and_ends_a_het_job() {
    let cluster = Cluster::up(TWO_NODES);
    let say = "echo $SLURM_PROCID/$SLURM_NTASKS $SLURM_JOB_ID $SLURM_JOB_ID_HET_GROUP_1 $SLURM_CPUS_ON_NODE";
    let line = format!("srun -l -n1 sh -c '{say}' : -n2 -c3 sh -c '{say}'; echo $?");
    let said = cluster.shell(&line);
    let wanted = ["0", "0: 0/3 1 2 1", "1: 1/3 1 2 6", "2: 2/3 1 2 6"];
    assert_eq!(sorted_lines(&said.stdout), wanted, "{}", said.stderr);
    let failing = cluster.shell("srun --het-group=0,1 -n1 sh -c 'exit $((3 + SLURM_PROCID))'");
    assert_eq!(failing.code, 4, "{}", failing.stderr);
    until("all is in the books", || {
        let rows = cluster.shell("sacct -n -P -o JobID,JobName,State,ExitCode").stdout;
        let wanted = "1+0|sh|COMPLETED|0:0\n1+0.0|sh|COMPLETED|0:0\n\
                      1+1|sh|COMPLETED|0:0\n1+1.0|sh|COMPLETED|0:0\n";
        let ended = !rows.contains("RUNNING") && rows.contains("3+1.0|sh|FAILED|4:0\n");
        (rows.starts_with(wanted) && ended).then_some(())
    });
    assert_eq!(cluster.shell("squeue -h").ok(), "");
    let refused = cluster.shell("srun -n1 echo a : -p nosuch echo b");
    let words = "srun: error: Unable to allocate resources: Invalid partition name specified\n";
    assert!(refused.code == 1 && refused.stderr.contains(words), "{}", refused.stderr);
    assert_eq!(refused.stdout, "");
}

#[test]
fn up_a_het_srun_in_a_plain_job_divides_its_nodes() {
    let cluster = Cluster::up(TWO_NODES);
    let say = "echo $SLURM_PROCID/$SLURM_NTASKS $SLURM_JOB_ID $SLURMD_NODENAME $SLURM_NODELIST \
               $SLURM_NNODES $SLURM_TASKS_PER_NODE $SLURM_NODEID [$SLURM_HET_SIZE] $SLURM_JOB_NODELIST";
    let lines = format!(
        "srun -l -n2 sh -c '{say}' : -n1 sh -c '{say}' > first\n\
         srun -l -w node2 -n1 sh -c '{say}' : -w node1 -n1 sh -c '{say}' > named\n\
         srun -N1 -n1 --het-group=0,1 sh -c 'exit $((3 + 2 * SLURM_PROCID))'; echo $? > code\n\
         srun -N1 -n1 true : -N2 -n2 true; echo $? >> code\n"
    );
    cluster.write("lines.sh", &lines);
    let said = cluster.shell("salloc -Q -N2 -n4 sh lines.sh");
    let first = [
        "0: 0/3 1 node1 node[1-2] 2 2,1 0 [] node[1-2]",
        "1: 1/3 1 node1 node[1-2] 2 2,1 0 [] node[1-2]",
        "2: 2/3 1 node2 node[1-2] 2 2,1 1 [] node[1-2]",
    ];
    assert_eq!(sorted_lines(&cluster.read("first")), first, "{}", said.stderr);
    let named = cluster.read("named");
    let nodes: Vec<&str> =
        sorted_lines(&named).iter().filter_map(|line| line.split(' ').nth(3)).collect();
    assert_eq!(nodes, ["node2", "node1"]);
    assert_eq!(cluster.read("code"), "5\n1\n", "{}", said.stderr);
    let words = "srun: error: Allocation failure of 2 nodes: job size of 2, \
                 already allocated 1 nodes to previous components.\n";
    assert!(said.stderr.ends_with(words), "{}", said.stderr);
}

#[test]
fn root_a_het_srun_through_the_server_starts_after_the_srun_prolog() {
    let cluster = Cluster::up(TWO_NODES);
    let path = cluster.write("before", "#!/bin/sh\necho ran >> before.done\n");
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
    let say = "cat before.done; echo $SLURM_PROCID/$SLURM_NTASKS; cat; exit $((4 + SLURM_PROCID))";
    let line = format!(
        "echo in | srun -l --prolog=./before -n1 -w node1 sh -c '{say}' : -n1 -w node2 sh -c '{say}'"
    );
    // In a network namespace of its own an `srun` reaches the server's Unix socket, and no node reaches the `srun`.
    let mut command = Command::new("unshare");
    command.args(["-n", "sh", "-c", &line]);
    cluster.set_up(&mut command);
    let said = CommandOutput::from(command.output().expect("it runs"));
    let wanted = ["0: 0/2", "0: in", "0: ran", "1: 1/2", "1: in", "1: ran"];
    assert_eq!((said.code, sorted_lines(&said.stdout)), (5, wanted.to_vec()), "{}", said.stderr);
}

#[test]
fn up_a_waiting_het_srun_can_be_interrupted() {
    let cluster = Cluster::up(TWO_NODES);
    let busy = cluster.submit(&["-o", "/dev/null", "-w", "node2", "-n32", "--wrap", "sleep 600"]);
    cluster.await_state(busy, "RUNNING");
    let args = ["srun", "-n1", "touch", "ran", ":", "-n1", "-w", "node2", "touch", "ran"];
    let mut waits = Running::start(&cluster, &args);
    waits.await_error(|text| text == "srun: job 2 queued and waiting for resources\n");
    waits.signal("INT");
    let said = waits.end();
    let words = "srun: Job allocation 2 has been revoked\nsrun: Force Terminated JobId=2\n";
    assert!(said.code == 1 && said.stderr.ends_with(words), "{} {}", said.code, said.stderr);
    until("none of it waits", || {
        (cluster.shell("squeue -h -o %A").stdout == format!("{busy}\n")).then_some(())
    });
    assert!(!cluster.path("work").join("ran").exists());
}
