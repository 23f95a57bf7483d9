//! Input, output, signals and exits of steps as a user sees them, in the words of a real Slurm.

use crate::harness::interactive::{Running, read_until};
use crate::harness::{Cluster, CommandOutput, TWO_NODES, until};
use model::array::IndexSet;
use std::io::Write;
use std::process::{Command, Stdio};

/// The lines of a text in alphabetical order, joined by commas.
fn sorted(text: &str) -> String {
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort();
    lines.join(",")
}

/// A step whose tasks have all started and written to their `srun`.
fn begun(cluster: &Cluster, options: &[&str], tasks: usize, script: &str) -> Running {
    let count = tasks.to_string();
    // A script marks with `:ready` when it may be signalled.
    let script = if script.contains(":ready") {
        script.replace(":ready", "echo up")
    } else {
        format!("echo up; {script}")
    };
    let mut args = vec!["srun", "-n", &count];
    args.extend(options);
    args.extend(["sh", "-c", &script]);
    let mut running = Running::start(cluster, &args);
    running.await_output(|text| text == "up\n".repeat(tasks));
    running.out.clear();
    running
}

/// The error lines without the time of the cancel notice.
fn lines(said: &CommandOutput) -> Vec<String> {
    let without_time = |line: &str| match line.split_once(" CANCELLED AT ") {
        Some((head, tail)) => format!("{head} CANCELLED{}", &tail["2026-11-15T06:02:40".len()..]),
        None => line.to_owned(),
    };
    joined_ends(said.stderr.lines().map(without_time))
}

/// Lines of ends alike as one: `srun` joins those that it hears of within a short time, and a busy machine takes
/// longer. That they are joined is tested where no time passes (`task_ends.rs`).
fn joined_ends(lines: impl Iterator<Item = String>) -> Vec<String> {
    let mut joined: Vec<(String, Option<(IndexSet, String)>)> = Vec::new();
    for line in lines {
        let parts = line.strip_prefix("srun: error: ").and_then(|rest| {
            let (node, rest) = rest.split_once(": task")?;
            let (tasks, words) = rest.trim_start_matches('s').trim_start().split_once(": ")?;
            Some((node.to_owned(), IndexSet::parse(tasks, u32::MAX).ok()?, words.to_owned()))
        });
        let Some((node, tasks, words)) = parts else {
            joined.push((line, None));
            continue;
        };
        let alike = |(of, end): &&mut (String, Option<(IndexSet, String)>)| {
            *of == node && end.as_ref().is_some_and(|(_, known)| *known == words)
        };
        match joined.iter_mut().find(alike) {
            Some((_, Some((known, _)))) => *known = known.union(&tasks),
            _ => joined.push((node, Some((tasks, words)))),
        }
    }
    let text = |(node, end): (String, Option<(IndexSet, String)>)| match end {
        Some((tasks, words)) if tasks.len() == 1 => {
            format!("srun: error: {node}: task {}: {words}", tasks.range_text())
        }
        Some((tasks, words)) => {
            format!("srun: error: {node}: tasks {}: {words}", tasks.range_text())
        }
        None => node,
    };
    joined.into_iter().map(text).collect()
}

const ABORTED: &str = "srun: Job step aborted: Waiting up to 3 seconds for job step to finish.";

#[test]
fn up_ends_of_tasks_are_reported_together_and_the_worst_is_the_exit_code() {
    let cluster = Cluster::up(TWO_NODES);
    let table = [
        ("exit 3", 3, vec!["srun: error: node1: tasks 0-3: Exited with exit code 3"]),
        (
            "kill -9 $$",
            137,
            vec!["srun: error: node1: tasks 0-3: Killed", "srun: Force Terminated StepId=2.0"],
        ),
        (
            "[ $SLURM_PROCID = 0 ] && exit 200; [ $SLURM_PROCID = 1 ] && kill -9 $$; exit 0",
            137,
            vec![
                "srun: error: node1: task 0: Exited with exit code 200",
                "srun: error: node1: task 1: Killed",
                "srun: Force Terminated StepId=3.0",
            ],
        ),
        ("kill -SEGV $$", 139, vec!["srun: error: node1: tasks 0-3: Segmentation fault"]),
    ];
    for (script, code, expected) in table {
        // The tasks end together: each waits for the last.
        let script = format!(
            "ulimit -c 0; echo >> gate; while [ $(wc -l < gate) -lt 4 ]; do sleep 0.01; done; {script}"
        );
        let _ = std::fs::remove_file(cluster.path("work").join("gate"));
        let said = cluster.sluice(&["srun", "-n4", "sh", "-c", &script]);
        let mut found = lines(&said);
        found.sort_by_key(|line| line.contains("Force"));
        assert_eq!(said.code, code, "{}", said.stderr);
        if found.len() == expected.len() {
            found[..].sort();
            let mut expected = expected.clone();
            expected.sort();
            assert_eq!(found, expected);
        } else {
            panic!("{found:?} instead of {expected:?}");
        }
    }
    // -Q prints nothing but errors.
    let said = cluster.sluice(&["srun", "-Q", "-n1", "sh", "-c", "kill -9 $$"]);
    assert_eq!(said.stderr, "srun: error: node1: task 0: Killed\n");
}

#[test]
fn up_one_interrupt_reports_and_a_second_one_ends_the_step() {
    let cluster = Cluster::up(TWO_NODES);
    let mut srun = begun(&cluster, &[], 3, "[ $SLURM_PROCID = 1 ] && exit 9; exec sleep 600");
    srun.await_error(|text| text.ends_with("task 1: Exited with exit code 9\n"));
    let answers = |text: &str| text.matches("task 1: exited\n").count();
    // Repeats the interrupt until one follows another within a second: a slow machine may need several.
    while !srun.err.contains("forcing") {
        let before = answers(&srun.err);
        srun.signal("INT");
        srun.await_error(|text| answers(text) > before || text.contains("forcing"));
    }
    let said = srun.end();
    let found = lines(&said);
    let tail: Vec<&str> = found.iter().rev().take(7).rev().map(String::as_str).collect();
    assert_eq!(
        tail,
        [
            "srun: interrupt (one more within 1 sec to abort)",
            "srun: StepId=1.0 tasks 0,2: running",
            "srun: StepId=1.0 task 1: exited",
            "srun: sending Ctrl-C to StepId=1.0",
            "srun: forcing job termination",
            ABORTED,
            "slurmstepd: error: *** STEP 1.0 ON node1 CANCELLED ***",
        ],
        "{}",
        said.stderr
    );
    assert!(said.code == 130 || said.code == 137, "{}", said.code);

    // -X sends the interrupt to the tasks at once; --quit-on-interrupt also ends them.
    let srun = begun(&cluster, &["-X"], 2, "exec sleep 600");
    srun.signal("INT");
    let said = srun.end();
    assert_eq!(lines(&said)[0], "srun: sending Ctrl-C to StepId=2.0");
    assert_eq!((said.code, &lines(&said)[1][..26]), (130, "srun: error: node1: tasks "));
    let srun =
        begun(&cluster, &["--quit-on-interrupt"], 2, "trap '' INT; :ready; sleep 600; sleep 600");
    srun.signal("INT");
    let said = srun.end();
    let expected = [
        "srun: sending Ctrl-C to StepId=3.0",
        "srun: forcing job termination",
        ABORTED,
        "slurmstepd: error: *** STEP 3.0 ON node1 CANCELLED ***",
    ];
    assert_eq!((said.code, lines(&said)), (137, expected.map(str::to_owned).to_vec()));
}

#[test]
fn up_signals_to_srun_end_the_step_or_reach_its_tasks() {
    let cluster = Cluster::up(TWO_NODES);
    let srun = begun(&cluster, &[], 2, "trap 'echo got it; exit 4' USR1; :ready; sleep 600 & wait");
    srun.signal("USR1");
    let said = srun.end();
    assert_eq!((said.code, said.stdout.as_str()), (4, "got it\ngot it\n"), "{}", said.stderr);

    for (name, first) in [("TERM", None), ("HUP", None), ("QUIT", Some("srun: Quit"))] {
        let srun = begun(&cluster, &[], 2, "trap 'echo asked' TERM; :ready; sleep 600; sleep 600");
        srun.signal(name);
        let said = srun.end();
        assert_eq!((said.code, said.stdout.as_str()), (137, ""), "{name}: {}", said.stderr);
        let mut found = lines(&said).into_iter();
        if let Some(first) = first {
            assert_eq!(found.next().as_deref(), Some(first));
        }
        assert_eq!(found.next().as_deref(), Some("srun: forcing job termination"), "{name}");
        assert_eq!(found.next().as_deref(), Some(ABORTED));
        assert!(found.next().is_some_and(|line| line.starts_with("slurmstepd: error: *** STEP ")));
        assert_eq!(found.next().as_deref(), Some("srun: error: node1: tasks 0-1: Killed"));
    }
    until("nothing is left", || cluster.sluice(&["squeue", "-h"]).ok().is_empty().then_some(()));
}

#[test]
fn up_kill_on_bad_exit_and_wait_end_the_other_tasks() {
    let cluster = Cluster::up(&format!("{TWO_NODES}KillOnBadExit=1\n"));
    // A task that was not executed yet could not be told a signal: the first waits for the second.
    let fails = "f=up$SLURM_JOB_ID; [ $SLURM_PROCID = 0 ] || { : > $f; exec sleep 600; }; \
                 until [ -e $f ]; do sleep 0.02; done; exit 3";
    let terminated = |job: u32| {
        [
            "srun: error: node1: task 0: Exited with exit code 3".to_owned(),
            format!("srun: launch/slurm: _step_signal: Terminating StepId={job}.0"),
            format!("slurmstepd: error: *** STEP {job}.0 ON node1 CANCELLED ***"),
            "srun: error: node1: task 1: Terminated".to_owned(),
            format!("srun: Force Terminated StepId={job}.0"),
        ]
    };
    for (job, options) in [(1, vec!["-K"]), (2, vec![])] {
        let said = cluster.sluice(&[&["srun", "-n2"], &options[..], &["sh", "-c", fails]].concat());
        assert_eq!((said.code, lines(&said)), (143, terminated(job).to_vec()), "{options:?}");
    }
    let said = cluster.sluice(&["srun", "-n2", "-K0", "sh", "-c", "exit 3"]);
    assert_eq!((said.code, said.stderr.lines().count()), (3, 1), "{}", said.stderr);

    for options in [vec!["-W", "1"], vec![]] {
        let mut command = cluster.command(&["srun", "-n2"]);
        command.args(&options).args(["sh", "-c", "[ $SLURM_PROCID = 0 ] || exec sleep 600"]);
        if options.is_empty() {
            command.env("SLURM_WAIT", "1");
        }
        let said = CommandOutput::from(command.stdin(Stdio::null()).output().unwrap());
        let found = lines(&said);
        let id = if options.is_empty() { "5.0" } else { "4.0" };
        let expected = [
            "srun: First task exited 1s ago".to_owned(),
            format!("srun: StepId={id} task 1: running"),
            format!("srun: StepId={id} task 0: exited"),
            format!("srun: launch/slurm: _step_signal: Terminating StepId={id}"),
            ABORTED.to_owned(),
            format!("slurmstepd: error: *** STEP {id} ON node1 CANCELLED ***"),
            "srun: error: node1: task 1: Killed".to_owned(),
        ];
        assert_eq!((said.code, found), (137, expected.to_vec()));
    }
}

#[test]
fn up_wait_time_of_the_configuration_ends_the_other_tasks() {
    let cluster = Cluster::up(&format!("{TWO_NODES}WaitTime=1\n"));
    let outlives = ["srun", "-n2", "sh", "-c", "[ $SLURM_PROCID = 0 ] || exec sleep 600"];
    let said = cluster.sluice(&outlives);
    assert_eq!(said.code, 137, "{}", said.stderr);
    assert_eq!(lines(&said)[0], "srun: First task exited 1s ago");
    // `--wait=0` waits without limit.
    cluster.shell("mkfifo gate").ok();
    let script = "[ $SLURM_PROCID = 0 ] || { echo up; read line < gate; exit 5; }";
    let mut srun = Running::start(&cluster, &["srun", "-W0", "-n2", "sh", "-c", script]);
    srun.await_output(|text| text == "up\n");
    assert_eq!(cluster.sluice(&outlives).code, 137, "while this one's time passes");
    cluster.shell(": > gate").ok();
    assert_eq!(srun.end().code, 5);
    let shown = cluster.sluice(&["scontrol", "show", "config"]).ok();
    assert!(shown.lines().any(|line| line.starts_with("WaitTime ") && line.ends_with("= 1 sec")));
}

#[test]
fn up_a_cancelled_step_is_reported_and_its_job_goes_on() {
    let cluster = Cluster::up(TWO_NODES);
    let line = "salloc -N2 sh -c 'srun sh -c \"echo x >> begun; exec sleep 600\"; echo rc=$?; srun -n1 echo again'";
    let salloc = cluster.spawn_shell_with_errors(line);
    cluster.await_file("begun", |text| text.lines().count() == 2);
    cluster.sluice(&["scancel", "1.0"]).ok();
    let said = CommandOutput::from(salloc.wait_with_output().unwrap());
    assert_eq!((said.code, said.stdout.as_str()), (0, "rc=137\nagain\n"), "{}", said.stderr);
    let found = lines(&said);
    for expected in [
        ABORTED,
        "slurmstepd: error: *** STEP 1.0 ON node1 CANCELLED ***",
        "srun: error: node1: task 0: Killed",
        "srun: error: node2: task 1: Killed",
    ] {
        assert_eq!(found.iter().filter(|line| *line == expected).count(), 1, "{found:?}");
    }

    // The whole job is cancelled: its steps are terminated first.
    let srun = begun(&cluster, &[], 2, "exec sleep 600");
    cluster.sluice(&["scancel", "2"]).ok();
    let said = srun.end();
    let expected = [
        ABORTED,
        "slurmstepd: error: *** STEP 2.0 ON node1 CANCELLED ***",
        "srun: error: node1: tasks 0-1: Terminated",
    ];
    assert_eq!((said.code, lines(&said)), (143, expected.map(str::to_owned).to_vec()));
}

#[test]
fn up_step_input_and_output_are_redirected() {
    let cluster = Cluster::up(TWO_NODES);
    let both = "echo out $SLURM_PROCID; echo err $SLURM_PROCID >&2";
    let run = |options: &[&str], script: &str| {
        let args = [&["srun", "-n2"], options, &["sh", "-c", script]].concat();
        let said = cluster.sluice(&args);
        assert_eq!(said.code, 0, "{options:?}: {}", said.stderr);
        (sorted(&said.stdout), sorted(&said.stderr))
    };
    let of = |out: &str, err: &str| (out.to_owned(), err.to_owned());
    assert_eq!(run(&[], both), of("out 0,out 1", "err 0,err 1"));
    assert_eq!(run(&["-o", "all"], both).0, "out 0,out 1");
    assert_eq!(run(&["-o", "none"], both), of("", ""));
    assert_eq!(run(&["-o", "1"], both), of("err 1,out 1", ""));
    assert_eq!(run(&["-e", "1"], both), of("out 0,out 1", "err 1"));
    assert_eq!(run(&["-l", "-o", "lab"], both), of("", ""));
    assert_eq!(sorted(&cluster.read("lab")), "0: err 0,0: out 0,1: err 1,1: out 1");
    run(&["-N2", "-J", "nm", "-o", "f-%t-%n-%N-%s-%j-%J-%u-%x-%%"], both);
    let user = std::env::var("USER").unwrap_or_else(|_| cluster.shell("id -un").ok().trim().into());
    let name = format!("f-1-1-node2-0-7-7.0-{user}-nm-%");
    assert_eq!(cluster.read(&name), "out 1\nerr 1\n", "{name}");

    // Only whole lines are printed, except with `--unbuffered`.
    let parts = "printf a$SLURM_PROCID; echo $SLURM_PROCID >> got; while [ $(wc -l < got) -lt 2 ]; do sleep 0.01; done; printf 'b\\n'";
    let said = cluster.sluice(&["srun", "-n2", "sh", "-c", parts]);
    assert_eq!(sorted(&said.stdout), "a0b,a1b");
    let prompt = "printf prompt; read x; echo $x";
    let mut srun = Running::start(&cluster, &["srun", "-u", "sh", "-c", prompt]);
    srun.await_output(|text| text == "prompt");
    srun.type_in("typed\n");
    assert_eq!(srun.end().stdout, "prompttyped\n");

    for (options, expected) in [
        (&["-i", "none"][..], ""),
        (&["-i", "1"], "1: in"),
        (&["-i", "all"], "0: in,1: in"),
        (&["-i", "in"], "0: in,1: in"),
    ] {
        cluster.write("in", "in\n");
        let args = [&["srun", "-l", "-n2"], options, &["cat"]].concat();
        let mut srun = Running::start(&cluster, &args);
        let _ = srun.child.stdin.as_mut().unwrap().write_all(b"in\n");
        let said = srun.end();
        assert_eq!((said.code, sorted(&said.stdout).as_str()), (0, expected), "{options:?}");
    }
}

#[test]
fn up_an_unopenable_output_file_is_one_line_and_nothing_runs() {
    let cluster = Cluster::up(TWO_NODES);
    for (option, what) in [("-o", "stdout"), ("-e", "stderr"), ("-i", "stdin")] {
        let said = cluster.sluice(&["srun", option, "/nosuch/x", "touch", "ran"]);
        let line = format!(
            "srun: error: Could not open {what} file: No such file or directory: /nosuch/x\n"
        );
        assert_eq!((said.code, said.stderr), (1, line));
    }
    assert!(!cluster.path("work").join("ran").exists());
    until("nothing is left of them", || {
        cluster.sluice(&["squeue", "-h"]).stdout.is_empty().then_some(())
    });
}

#[test]
fn up_signals_reach_a_task_that_does_not_read_its_input() {
    let cluster = Cluster::up(TWO_NODES);
    let big = cluster.path("work").join("big");
    std::fs::write(&big, vec![b'x'; 4 << 20]).unwrap();
    let srun = begun(
        &cluster,
        &["-i", "big"],
        1,
        "trap 'exit 5' USR1; :ready; while :; do sleep 0.05; done",
    );
    srun.signal("USR1");
    assert_eq!(srun.end().code, 5);
}

#[test]
fn up_options_of_sattach_choose_tasks_and_streams() {
    let cluster = Cluster::up(TWO_NODES);
    let script = "echo out $SLURM_PROCID; read x; echo got $x; echo err $SLURM_PROCID >&2; exit 2";
    let mut srun = Running::start(&cluster, &["srun", "-N1", "-n2", "sh", "-c", script]);
    srun.await_output(|text| text.lines().count() == 2);
    let terminal = cluster.sluice(&["sattach", "--pty", "--output-filter=0", "1.0"]);
    assert!(terminal.code == 1 && terminal.stderr.contains("--pty cannot be"), "{terminal:?}");
    let mut one = Running::start(&cluster, &["sattach", "--error-filter=1", "1.0"]);
    let line = ["sattach", "--output-filter=0", "--input-filter=1", "1.0"];
    let mut other = Running::start(&cluster, &line);
    one.await_output(|text| text.lines().count() == 2);
    other.await_output(|text| text == "out 0\n");
    other.type_in("this\n");
    srun.await_output(|text| text.contains("got this"));
    srun.type_in("that\n");
    let (srun, one, other) = (srun.end(), one.end(), other.end());
    assert_eq!(sorted(&srun.stdout), "got that,got this,out 0,out 1", "task 1 alone was told");
    assert_eq!(sorted(&other.stdout), "got that,out 0", "task 0 alone is shown");
    assert!(one.stderr.contains("err 1") && !one.stderr.contains("err 0"), "{}", one.stderr);
}

#[test]
fn up_sattach_works_beside_srun() {
    let cluster = Cluster::up(TWO_NODES);
    let script = "echo before $SLURM_PROCID; read x; echo got $x; exit 2";
    let mut srun = Running::start(&cluster, &["srun", "-N2", "-n3", "sh", "-c", script]);
    srun.await_output(|text| text.lines().count() == 3);

    let said = cluster.sluice(&["sattach", "--layout", "1.0"]).ok();
    let layout = "Job step layout:\n\t3 tasks, 2 nodes (node[1-2])\n\n\
                  \tNode 0 (node1), 2 task(s): 0 1 \n\tNode 1 (node2), 1 task(s): 2 \n";
    assert_eq!(said, layout);

    // Earlier output is sent to a later `sattach`; a filter applies only to its own `sattach`.
    let mut one = Running::start(&cluster, &["sattach", "-l", "1.0"]);
    let mut other = Running::start(&cluster, &["sattach", "--output-filter", "2", "1.0"]);
    other.await_output(|text| text == "before 2\n");
    one.await_output(|text| text.lines().count() == 3);
    // A `sattach` that ends does not affect the step.
    let leaving = Running::start(&cluster, &["sattach", "1.0"]);
    leaving.signal("INT");
    assert_eq!(leaving.end().code, 130);

    one.type_in("this\n");
    let (one, other) = (one.end(), other.end());
    let srun = srun.end();
    assert_eq!((srun.code, one.code, other.code), (2, 2, 2), "{} {}", srun.stderr, one.stderr);
    assert_eq!(sorted(&srun.stdout), "before 0,before 1,before 2,got this,got this,got this");
    assert_eq!(
        sorted(&one.stdout),
        "0: before 0,0: got this,1: before 1,1: got this,2: before 2,2: got this"
    );
    assert_eq!(sorted(&other.stdout), "before 2,got this");
    assert_eq!(
        sorted(&one.stderr),
        "sattach: error: task 0 exited with exit code 2,\
         sattach: error: task 1 exited with exit code 2,\
         sattach: error: task 2 exited with exit code 2"
    );
    let gone = cluster.sluice(&["sattach", "1.0"]);
    let words = "sattach: error: Could not get job step info: Invalid job id specified\n";
    assert_eq!((gone.code, gone.stderr.as_str()), (1, words));
}

#[test]
fn up_pty_passes_on_the_terminal_and_its_size() {
    let cluster = Cluster::up(TWO_NODES);
    let pty = nix::pty::openpty(None, None).expect("a terminal");
    let name = nix::unistd::ttyname(&pty.slave).expect("its name");
    let resize = |rows: &str, columns: &str| {
        let set = Command::new("stty")
            .arg("-F")
            .arg(&name)
            .args(["rows", rows, "cols", columns])
            .status();
        assert!(set.expect("stty runs").success());
    };
    resize("33", "99");
    let script = "stty size; trap 'stty size; exit 6' WINCH; echo up; while :; do sleep 0.05; done";
    let mut command = Command::new("setsid");
    // The terminal controls the session, so that size changes are signalled.
    command.args([
        "--ctty",
        "--wait",
        crate::harness::program(),
        "srun",
        "--pty",
        "sh",
        "-c",
        script,
    ]);
    cluster.set_up(&mut command);
    let copy = || Stdio::from(pty.slave.try_clone().unwrap());
    let mut srun = command.stdin(copy()).stdout(copy()).stderr(copy()).spawn().expect("it runs");
    let mut screen = std::fs::File::from(pty.master);
    let mut seen = String::new();
    read_until(&mut screen, &mut seen, |text| text.contains("up\r\n"));
    assert!(seen.starts_with("33 99\r\n"), "{seen:?}");
    resize("44", "111");
    read_until(&mut screen, &mut seen, |text| text.contains("44 111\r\n"));
    assert_eq!(srun.wait().unwrap().code(), Some(6));
}

#[test]
fn up_pty_belongs_to_task_zero_whatever_nodes_the_others_are_on() {
    let cluster = Cluster::up(TWO_NODES);
    let script = "echo task $SLURM_PROCID; echo task $SLURM_PROCID >&2; \
                  [ $SLURM_PROCID = 0 ] || \
                  echo \"$(readlink /proc/$$/fd/0 /proc/$$/fd/1 /proc/$$/fd/2)\" > streams.$SLURM_PROCID";
    for width in ["-N1", "-N2"] {
        let said = cluster.shell(&format!("srun {width} -n4 --pty sh -c '{script}'"));
        assert_eq!((said.code, &*said.stderr), (0, ""), "{width}: {said:?}");
        let lines: Vec<&str> = said.stdout.lines().collect();
        assert_eq!(lines, ["task 0", "task 0"], "{width}");
        for rank in 1..4 {
            let file = format!("streams.{rank}");
            assert_eq!(cluster.read(&file), "/dev/null\n".repeat(3), "{width}: {rank}");
            std::fs::remove_file(cluster.path(&format!("work/{file}"))).expect("it was there");
        }
    }
}

#[test]
fn up_a_background_srun_leaves_the_terminal_alone() {
    let cluster = Cluster::up(TWO_NODES);
    let pty = nix::pty::openpty(None, None).expect("a terminal");
    let task = "echo up; until [ -e typed ]; do sleep 0.05; done; echo seen; \
                until [ -e go ]; do sleep 0.05; done; echo end";
    // Job control puts the `srun` into a background group; `wait` also returns for a stopped process.
    let script = format!(
        "set -m; srun sh -c '{task}' & until [ -e ask ]; do sleep 0.05; done; \
         read x; echo shell $x; touch go; wait; echo over"
    );
    let mut command = Command::new("setsid");
    command.args(["--ctty", "--wait", "bash", "-c", &script]);
    cluster.set_up(&mut command);
    let copy = || Stdio::from(pty.slave.try_clone().unwrap());
    let mut shell = command.stdin(copy()).stdout(copy()).stderr(copy()).spawn().expect("it runs");
    let mut screen = std::fs::File::from(pty.master);
    let mut seen = String::new();
    read_until(&mut screen, &mut seen, |text| text.contains("up\r\n"));
    screen.write_all(b"hello\n").unwrap();
    cluster.write("typed", "");
    // By now the `srun` has had the chance to read the typed line.
    read_until(&mut screen, &mut seen, |text| text.contains("seen\r\n"));
    cluster.write("ask", "");
    read_until(&mut screen, &mut seen, |text| text.contains("over\r\n"));
    let (end, over) = (seen.find("\nend\r\n"), seen.find("over\r\n"));
    assert!(seen.contains("shell hello\r\n") && end.is_some() && end < over, "{seen:?}");
    assert!(shell.wait().unwrap().success());
}

#[test]
fn up_steps_are_listed_by_name_and_unknown_steps_are_not_signalled() {
    let cluster = Cluster::up(TWO_NODES);
    let names = "squeue -s -h -o %j | grep -v -e extern -e batch";
    assert_eq!(cluster.shell(&format!("srun -J mine sh -c '{names}'")).ok(), "mine\n");
    let said = cluster.shell(&format!("salloc -Q srun -J inner sh -c '{names}'"));
    assert_eq!(said.ok(), "inner\n");
    assert_eq!(cluster.shell("salloc -Q squeue -h -t R -o %j").ok(), "interactive\n");
    // Without `-n` the lines are labelled too; a file gives the number of tasks.
    assert_eq!(cluster.shell("srun -l echo hi").ok(), "0: hi\n");
    cluster.write("prog", "0-1 echo a\n2 echo b\n");
    assert_eq!(sorted(&cluster.shell("srun -l --multi-prog prog").ok()), "0: a,1: a,2: b");
    let array = "SLURM_ARRAY_JOB_ID=40 SLURM_ARRAY_TASK_ID=3";
    cluster.shell(&format!("env -u USER {array} srun -o x-%A-%a-%u echo hi")).ok();
    let user = cluster.shell("id -un").ok();
    assert_eq!(cluster.read(&format!("x-40-3-{}", user.trim())), "hi\n");
    let table = [
        ("scancel 99999.0", 1, "scancel: error: Kill job error on job step id 99999.0: "),
        ("scancel -s USR1 99999", 1, "scancel: error: Kill job error on job id 99999: "),
    ];
    for (line, code, words) in table {
        let said = cluster.shell(line);
        let expected = format!("{words}Invalid job id specified\n");
        assert_eq!((said.code, said.stderr), (code, expected), "{line}");
    }
    for command in ["srun --test-only -N3 true", "sbatch --test-only -N3 --wrap true"] {
        let said = cluster.shell(command);
        let words = "allocation failure: Requested node configuration is not available\n";
        assert!(said.code == 1 && said.stderr.starts_with(words), "{command}: {said:?}");
    }
    assert_eq!(cluster.shell("SLURM_EXIT_ERROR=9 srun -p nosuch true").code, 9);
    let said = cluster.shell("salloc -Q /etc/passwd");
    let words = "salloc: error: Unable to find command \"/etc/passwd\"\n";
    assert_eq!((said.code, said.stderr.as_str()), (1, words));
    // A signal to `salloc` alone cancels the allocation, and `salloc` waits for the command.
    let script = "touch held; until [ -e let ]; do sleep 0.05; done; touch left";
    let salloc = Running::start(&cluster, &["salloc", "sh", "-c", script]);
    cluster.await_file("held", |_| true);
    salloc.signal("USR1");
    until("the allocation is gone", || {
        cluster.sluice(&["squeue", "-h"]).stdout.is_empty().then_some(())
    });
    cluster.write("let", "");
    let said = salloc.end();
    assert!(said.stderr.contains("has been revoked."), "{}", said.stderr);
    assert!(cluster.path("work").join("left").exists());
}
