//! `sluice explain`, and the note after a refusal.

use crate::harness::{Cluster, TWO_NODES, until, user_name};

fn explained(cluster: &Cluster, what: &str) -> String {
    cluster.sluice(&["explain", what]).ok()
}

/// The text with times and the caller's name replaced.
fn plain(text: &str) -> String {
    let words = text.replace(&user_name(), "me");
    let mut out = String::new();
    for word in words.split_inclusive([' ', '\n']) {
        let time = word.len() > 18 && word.as_bytes()[4] == b'-' && word.as_bytes()[10] == b'T';
        if time { out.push_str(&format!("TIME{}", &word[19..])) } else { out.push_str(word) }
    }
    out
}

#[test]
fn up_a_job_that_waits_for_resources_is_explained_node_by_node() {
    let cluster = Cluster::up(TWO_NODES);
    let first = cluster.submit_sleeper("-t 60 -w node1 --gres=gpu:6");
    let second = cluster.submit_sleeper("-t 30 -w node2 --gres=gpu:8");
    cluster.await_state(first, "RUNNING");
    cluster.await_state(second, "RUNNING");
    let third = cluster.submit_sleeper("-t 10 --gres=gpu:4");
    let fourth = cluster.submit_sleeper("-t 10 --gres=gpu:3");
    cluster.await_state(fourth, "PENDING|Priority");
    assert_eq!(
        plain(&explained(&cluster, &third.to_string())),
        "\
Job 3 (sleeper, me, partition gpu) waits: Resources
  Its turn has come; not enough is free for it.
  2 nodes node[1-2]: at most 2 of 8 GPUs free, 4 asked.
  On them: job 2 (me) with 8 GPUs until TIME at the latest; job 1 (me) with 6 GPUs until TIME at the latest.
  A place is kept for it: jobs behind it may not delay it.
  Expected start: TIME on node2 (partition gpu).
"
    );
    assert_eq!(
        plain(&explained(&cluster, &fourth.to_string())),
        "\
Job 4 (sleeper, me, partition gpu) waits: Priority
  Others are before it, and it may not delay them.
  2 nodes node[1-2]: at most 2 of 8 GPUs free, 3 asked.
  On them: job 2 (me) with 8 GPUs until TIME at the latest; job 1 (me) with 6 GPUs until TIME at the latest.
  Ahead of it: 1 job; first 3 (me).
  A place is kept for it: jobs behind it may not delay it.
  Expected start: TIME on node2 (partition gpu).
"
    );
    cluster.shell("scontrol update node=node2 state=drain reason=test").ok();
    let drained = until("the plan has seen the node drained", || {
        let text = explained(&cluster, &third.to_string());
        text.contains("node2: drained").then_some(text)
    });
    assert!(drained.contains("node1: at most 2 of 8 GPUs free, 4 asked"), "{drained}");
    let running = explained(&cluster, &first.to_string());
    assert!(running.contains(" runs since ") && running.contains(" on node1;"), "{running}");
}

#[test]
fn up_limits_dependencies_holds_and_times_are_explained() {
    let cluster = Cluster::up(TWO_NODES);
    for line in [
        "add account physics",
        &format!("add user {} account=physics", user_name()),
        "add qos capped MaxTRESPerUser=gres/gpu=4",
        &format!("modify user {} set qos+=capped", user_name()),
    ] {
        cluster.shell(&format!("sacctmgr -i {line}")).ok();
    }
    let first = cluster.submit_sleeper("--qos=capped -t 60 --gres=gpu:3");
    cluster.await_state(first, "RUNNING");
    let limited = cluster.submit_sleeper("--qos=capped -t 60 --gres=gpu:2");
    cluster.await_state(limited, "PENDING|QOSMaxGRESPerUser");
    assert_eq!(
        plain(&explained(&cluster, &limited.to_string())),
        "\
Job 2 (sleeper, me, partition gpu) waits: QOSMaxGRESPerUser
  QOS capped allows 4 GPUs for each user; 3 GPUs in use, 2 GPUs asked.
    held by job 1 (me): 3 GPUs
  Expected start: TIME on node1 (partition gpu).
"
    );
    let after = cluster.submit_sleeper(&format!("-d afterok:{first}"));
    let text = explained(&cluster, &after.to_string());
    assert!(text.contains("waits: Dependency\n"), "{text}");
    assert!(text.contains("  afterok:1: job 1 is RUNNING, until 20"), "{text}");
    assert!(text.contains("Expected start: 20"), "{text}");
    let held = cluster.submit_sleeper("-H");
    let text = explained(&cluster, &held.to_string());
    assert!(text.contains("waits: JobHeldUser\n  Its owner holds it;"), "{text}");
    assert!(text.contains("Expected start: not known while it is held."), "{text}");
    let later = cluster.submit_sleeper("--begin=now+1hour");
    let text = explained(&cluster, &later.to_string());
    assert!(text.contains("waits: BeginTime\n  It is not to start before 20"), "{text}");
    assert!(text.contains("Expected start: 20"), "{text}");
}

#[test]
fn up_arrays_run_names_json_and_unknown_jobs_are_explained() {
    let conf = TWO_NODES.replace("RealMemory=4000", "RealMemory=4000 TmpDisk=200000");
    let cluster = Cluster::up(&conf);
    let array = cluster.submit_sleeper("--array=0-5%2 -t 60");
    cluster.await_state(format!("{array}_1"), "RUNNING");
    let text = explained(&cluster, &format!("{array}_3"));
    assert!(text.starts_with("Job 1_[2-5%2] (sleeper"), "{text}");
    assert!(text.contains("No more than 2 tasks of the array may run at a time."), "{text}");
    assert!(text.contains("Expected start: 20"), "{text}");
    let all = explained(&cluster, &array.to_string());
    assert!(all.contains("waits: JobArrayTaskLimit") && all.contains("Job 1_0 "), "{all}");
    let by_name = explained(&cluster, "sleeper");
    assert!(by_name.contains("Job 1_[2-5%2]"), "{by_name}");
    cluster.write(
        "later.dstack.yml",
        "type: task\nname: later\nretry: true\ncommands: [sleep 600]\nresources: {cpu: 32, memory: 64MB..}\n",
    );
    cluster.submit_sleeper("-N 2 -n 62 -t 60");
    cluster.sluice(&["apply", "-y", "-d", "-f", "later.dstack.yml"]).ok();
    let run = until("the run waits for room", || {
        let text = explained(&cluster, "later");
        text.contains("waits: Resources").then_some(text)
    });
    assert!(run.contains("(later, ") && run.contains("CPUs free, 32 asked"), "{run}");
    let json = cluster.sluice(&["explain", "--json", &format!("{array}_3")]).ok();
    let json: serde_json::Value = serde_json::from_str(&json).expect("it reads");
    assert_eq!(json[0]["wait"]["reason"], "array_task_limit");
    for (what, says) in [
        ("77", "sluice: error: job 77 does not exist\n"),
        ("nobody", "sluice: error: job nobody does not exist\n"),
        (
            "1.x",
            "sluice: error: \"1.x\" names no job: right is 12, 12_3, 12_[4-7] or a run's name\n",
        ),
    ] {
        let said = cluster.sluice(&["explain", what]);
        assert_eq!((said.code, said.stderr.as_str()), (1, says));
    }
}

#[test]
fn up_a_refusal_names_the_constraint_that_no_node_meets() {
    let conf = format!("{TWO_NODES}EnforcePartLimits=ALL\n");
    let cluster = Cluster::up(&conf);
    let not_available = "Requested node configuration is not available";
    let sbatch = |refusal: &str| format!("sbatch: error: Batch job submission failed: {refusal}\n");
    let gpus = "note: no node of partition gpu has more than 8 GPUs; 9 asked on one node\n";
    let table = [
        ("sbatch --gres=gpu:9 --wrap true", format!("{}sbatch: {gpus}", sbatch(not_available))),
        (
            "srun --gres=gpu:9 true",
            format!("srun: error: Unable to allocate resources: {not_available}\nsrun: {gpus}"),
        ),
        (
            "salloc --gres=gpu:9 true",
            format!("salloc: error: Job submit/allocate failed: {not_available}\nsalloc: {gpus}"),
        ),
        (
            "sbatch -c 64 --wrap true",
            format!(
                "sbatch: error: CPU count per node can not be satisfied\n{}sbatch: note: no node of \
                 partition gpu has more than 32 CPUs; 64 asked on one node\n",
                sbatch(not_available)
            ),
        ),
        (
            "sbatch -C a100 --wrap true",
            format!(
                "{}sbatch: note: no node has the feature a100\n",
                sbatch("Invalid feature specification")
            ),
        ),
        (
            "sbatch -x node[1-2] --wrap true",
            format!(
                "{}sbatch: note: no node of partition gpu can hold a part of the job; it takes 1 node\n",
                sbatch(not_available)
            ),
        ),
        (
            "sbatch -p debug -w node2 --wrap true",
            format!(
                "{}sbatch: note: partition debug does not have node2, which the job names\n",
                sbatch(not_available)
            ),
        ),
        (
            "sbatch --gpus=a100:2 --wrap true",
            format!(
                "{}sbatch: note: no node of partition gpu has any a100 GPUs; 2 a100 GPUs asked\n",
                sbatch(not_available)
            ),
        ),
        (
            "sbatch -B 3:17 --wrap true",
            format!(
                "sbatch: error: Socket, core and/or thread specification can not be satisfied\n\
                 {}sbatch: note: no node of partition gpu has 3 sockets, 17 cores a socket\n",
                sbatch(not_available)
            ),
        ),
        (
            "sbatch --tmp=1G --wrap true",
            format!(
                "sbatch: error: Temporary disk specification can not be satisfied\n\
                 {}sbatch: note: no node of partition gpu has more than 0 of local disk (TmpDisk); 1G asked\n",
                sbatch(not_available)
            ),
        ),
        (
            "sbatch -t 10 --time-min=20 --wrap true",
            sbatch("Invalid time-min specification (exceeds job's time or other limits)"),
        ),
        (
            "sbatch -p nosuch --wrap true",
            format!(
                "sbatch: error: invalid partition specified: nosuch\n\
                 {}sbatch: note: partitions that you may use: gpu, debug\n",
                sbatch("Invalid partition name specified")
            ),
        ),
        (
            "sbatch -p debug -t 90 --wrap true",
            format!(
                "{}sbatch: note: partition debug gives a job at most 00:30:00; 01:30:00 asked\n",
                sbatch("Requested time limit is invalid (missing or exceeds some limit)")
            ),
        ),
    ];
    for (line, stderr) in table {
        let said = cluster.shell(line);
        assert_eq!((said.code, said.stderr), (1, stderr), "{line}");
    }
    assert_eq!(cluster.shell("squeue -h").ok(), "", "nothing was submitted");
}

#[test]
fn up_every_pending_job_has_a_reason() {
    let cluster = Cluster::up(TWO_NODES);
    let first = cluster.submit_sleeper("-t 60 -N 2 --exclusive");
    cluster.await_state(first, "RUNNING");
    let kinds = [
        "-N 2",
        "-n 1",
        "-N 3",
        "-H",
        "--begin=now+1hour",
        &format!("-d afterok:{first}"),
        "-p gpu,debug -n 2",
        "--array=1-4%1",
        "-w node1",
        "-p debug -t 90",
        "--gres=gpu:8",
        "-d singleton",
    ];
    let jobs: Vec<u32> = kinds.iter().map(|args| cluster.submit_sleeper(args)).collect();
    until("each of them has its reason", || {
        let reasons = cluster.shell("squeue -h -t pending -o %r").ok();
        assert_eq!(reasons.lines().count(), kinds.len(), "{reasons}");
        reasons.lines().all(|reason| !reason.is_empty() && reason != "None").then_some(())
    });
    let several = explained(&cluster, &jobs[6].to_string());
    assert!(several.contains("1 node node1 (partition debug): "), "{several}");
    assert!(several.contains("2 nodes node[1-2] (partition gpu): "), "{several}");
    for job in jobs {
        let text = explained(&cluster, &job.to_string());
        assert!(text.contains(" waits: ") && text.contains("\n  Expected start: "), "{text}");
    }
}

#[test]
fn up_output_of_a_forgotten_job_is_still_read() {
    let cluster = Cluster::up(&format!("{TWO_NODES}MinJobAge=2\n"));
    let job = cluster.submit(&["-o", "kept-%x.txt", "-J", "old", "--wrap", "echo still here"]);
    cluster.await_end(job);
    until("the job has left the server's memory", || {
        (cluster.sluice(&["scontrol", "show", "job", &job.to_string()]).code != 0).then_some(())
    });
    assert_eq!(cluster.sluice(&["logs", &job.to_string()]).ok(), "still here\n");
    let text = explained(&cluster, &job.to_string());
    assert!(text.contains("/kept-old.txt\n    | still here\n"), "{text}");
    let columns = format!("sacct -nXP -j {job} -o StdOut,StdErr,StdIn");
    let columns = cluster.shell(&columns).ok();
    let columns: Vec<&str> = columns.trim_end().split('|').collect();
    let [out, err, input] = columns[..] else { panic!("{columns:?}") };
    assert!(out.ends_with("/kept-old.txt") && err == out && input == "/dev/null", "{columns:?}");
    std::fs::remove_file(out).expect("the file was there");
    let gone = cluster.sluice(&["logs", &job.to_string()]);
    let said = "/kept-old.txt: No such file or directory";
    assert!(gone.code == 1 && gone.stderr.contains(said), "{gone:?}");
}

#[test]
fn up_dependency_of_a_forgotten_job_is_still_told() {
    let cluster = Cluster::up(&format!("{TWO_NODES}MinJobAge=2\n"));
    let first = cluster.submit_sleeper("-t 10");
    let after = format!("-d afterok:{first} --kill-on-invalid-dep=yes");
    let never = cluster.submit_sleeper(&after);
    cluster.sluice(&["scancel", &first.to_string()]).ok();
    cluster.await_end(never);
    until("the job has left the server's memory", || {
        (cluster.sluice(&["scontrol", "show", "job", &never.to_string()]).code != 0).then_some(())
    });
    let text = explained(&cluster, &never.to_string());
    let depended = format!("It depended on afterok:{first}; `sluice explain {first}` says");
    assert!(text.contains(&depended), "{text}");
}

#[test]
fn up_explanation_of_a_run_has_the_last_lines_of_its_log() {
    let cluster = Cluster::up(TWO_NODES);
    let task = "type: task\nname: talks\nresources: {cpu: 1, memory: 100MB}\n\
                commands: [echo begun, echo no such epoch, exit 3]\n";
    cluster.write("task.dstack.yml", task);
    let applied = cluster.sluice(&["apply", "-f", "task.dstack.yml", "-y"]);
    assert_ne!(applied.code, 0, "{}", applied.stdout);
    let text = explained(&cluster, "talks");
    let lines = "  Its log: sluice logs talks\n    | begun\n    | no such epoch\n";
    assert!(text.contains(lines), "{text}");
}

#[test]
fn up_ended_jobs_are_explained_by_their_cause() {
    let cluster = Cluster::up(&format!("{TWO_NODES}RequeueExit=5\n"));
    let exits =
        cluster.submit(&["-o", "out.txt", "--wrap", "echo begun; echo no such epoch; exit 3"]);
    cluster.await_end(exits);
    let text = explained(&cluster, &exits.to_string());
    assert!(text.contains("has ended: FAILED at 20"), "{text}");
    assert!(text.contains("  It ended with exit code 3.\n"), "{text}");
    assert!(text.contains("out.txt\n    | begun\n    | no such epoch\n"), "{text}");

    let said = cluster.sluice(&["sbatch", "--parsable", "-o", "/nonexist/x.out", "--wrap", "true"]);
    let note = "sbatch: note: there is no folder /nonexist here: on a node without it";
    assert!(said.stderr.starts_with(note), "{}", said.stderr);
    let unwritable: u32 = said.ok().trim().parse().expect("a job id");
    assert_eq!(cluster.await_end(unwritable), "FAILED|0:53");
    let rows = cluster.shell(&format!("sacct -nP -j {unwritable} -o JobID,State,ExitCode")).ok();
    let script = format!("{unwritable}|FAILED|0:53\n{unwritable}.batch|CANCELLED|0:53\n");
    assert_eq!(rows, script, "as Slurm has it");
    let text = explained(&cluster, &unwritable.to_string());
    assert!(text.contains("could not be started on node1: "), "{text}");
    assert!(text.contains("/nonexist/x.out"), "{text}");
    assert_eq!(
        cluster.shell(&format!("squeue -h -t all -j {unwritable} -o %r")).ok(),
        "JobLaunchFailure\n"
    );
    let recorded = format!("sacct -nXP -j {unwritable} -o Reason,FailureCause");
    let recorded = cluster.shell(&recorded).ok();
    assert!(recorded.starts_with("JobLaunchFailure|"), "{recorded}");
    assert!(recorded.contains("/nonexist/x.out"), "{recorded}");
    let shown = cluster.shell(&format!("scontrol show job {unwritable}")).ok();
    let cause = shown.lines().find(|line| line.trim_start().starts_with("FailureCause="));
    assert!(cause.is_some_and(|line| line.contains("/nonexist/x.out")), "{shown}");

    let again =
        cluster.submit(&["-o", "/dev/null", "--wrap", "[ $SLURM_RESTART_COUNT ] || exit 5"]);
    assert_eq!(cluster.await_end(again), "COMPLETED|0:0");
    let text = explained(&cluster, &again.to_string());
    assert!(text.contains("  Attempt 1: REQUEUED at 20"), "{text}");
    assert!(text.contains("It ended with exit code 5, and was put back into the queue."), "{text}");
    let json = cluster.sluice(&["explain", "--json", &again.to_string()]).ok();
    let json: serde_json::Value = serde_json::from_str(&json).expect("it reads");
    assert_eq!(json[0]["attempts"].as_array().map(Vec::len), Some(2));

    let cancelled = cluster.submit_sleeper("-t 10");
    cluster.await_state(cancelled, "RUNNING");
    cluster.sluice(&["scancel", &cancelled.to_string()]).ok();
    cluster.await_end(cancelled);
    let text = explained(&cluster, &cancelled.to_string());
    assert!(text.contains(&format!("It was cancelled by {}.", user_name())), "{text}");

    let killed = cluster.submit(&["-o", "/dev/null", "--wrap", "kill -SEGV $$"]);
    cluster.await_end(killed);
    let text = explained(&cluster, &killed.to_string());
    assert!(text.contains("signal 11 (SIGSEGV)"), "{text}");

    let after = format!("--dependency=afterok:{exits}");
    let never = cluster.submit(&[&after, "--kill-on-invalid-dep=yes", "--wrap", "true"]);
    cluster.await_end(never);
    let text = explained(&cluster, &never.to_string());
    assert!(text.contains("because its dependency could not be met any more"), "{text}");
    let depended = format!("It depended on afterok:{exits}; `sluice explain {exits}` says");
    assert!(text.contains(&depended), "{text}");

    let wide = cluster.submit_sleeper("-N 2 --no-requeue");
    cluster.await_state(wide, "RUNNING");
    cluster.shell("scontrol update NodeName=node2 State=DOWN Reason=fire").ok();
    assert!(cluster.await_end(wide).starts_with("NODE_FAIL|"));
    let text = explained(&cluster, &wide.to_string());
    let lost = "  Node node2 was lost under it; it ran on node[1-2].\n";
    assert!(text.contains(lost) && text.contains("To try: submit it again"), "{text}");
}
