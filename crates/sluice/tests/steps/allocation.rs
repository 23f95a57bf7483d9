//! Resources of steps: what each takes of its job, where tasks are placed, and which steps wait.

use crate::harness::{Cluster, TWO_NODES, signal, sorted_lines, until};

/// Submits a script; its job id, once it runs.
fn running(cluster: &Cluster, options: &[&str], script: &str) -> u32 {
    cluster.write("job.sh", &format!("#!/bin/bash\n{script}\n"));
    let mut args = options.to_vec();
    args.extend(["-o", "job.out", "job.sh"]);
    let id = cluster.submit(&args);
    cluster.await_state(id, "RUNNING");
    id
}

/// The command of a step that runs until the file `go` exists.
const STAY: &str = "sh -c 'echo $SLURM_STEP_ID.$SLURM_PROCID $SLURM_CPUS_ON_NODE >> began; \
                    until [ -e go ]; do sleep 0.05; done'";

/// A script that runs until it is told to end.
const IDLE: &str = "until [ -e stop ]; do sleep 0.05; done";

#[test]
fn up_two_exact_steps_run_at_once_and_the_third_waits() {
    let cluster = Cluster::up(TWO_NODES);
    let script = format!(
        "srun --exact -n2 {STAY} & srun --exact -n2 {STAY} &\n\
         until [ $(cat began 2>/dev/null | wc -l) = 4 ]; do sleep 0.05; done\n\
         srun --exact -n1 sh -c 'ls go; echo third >> began' 2> third.err & wait"
    );
    let id = running(&cluster, &["-n4"], &script);
    let waits = format!(
        "srun: Job {id} step creation temporarily disabled, retrying (Requested nodes are busy)\n"
    );
    cluster.await_file("third.err", |text| text.ends_with('\n'));
    assert_eq!(cluster.read("third.err"), waits);
    assert_eq!(sorted_lines(&cluster.read("began")), ["0.0 2", "0.1 2", "1.0 2", "1.1 2"]);
    cluster.write("go", "");
    assert_eq!(cluster.await_end(id), "COMPLETED|0:0");
    assert!(cluster.read("began").ends_with("third\n"));
    let err = cluster.read("third.err");
    assert_eq!(err, format!("{waits}srun: Step created for job {id}\n"));
}

#[test]
fn up_a_step_takes_the_whole_job_unless_exact_or_overlap() {
    let cluster = Cluster::up(TWO_NODES);
    let script = format!("srun -n1 {STAY} &\n{IDLE}");
    let id = running(&cluster, &["-n4"], &script);
    cluster.await_file("began", |text| text == "0.0 4\n");
    let srun = |args: &str| cluster.shell(&format!("srun --jobid={id} {args}"));
    assert_eq!(srun("--overlap -n1 echo beside").ok(), "beside\n");
    let busy =
        format!("srun: error: Unable to create step for job {id}: Requested nodes are busy\n");
    for given_up in ["-I -n1 true", "--immediate=2 --exact -n1 true"] {
        let said = srun(given_up);
        assert_eq!((said.code, said.stderr), (1, busy.clone()), "{given_up}");
    }
    let waiting = cluster.spawn_shell(&format!("srun -Q --jobid={id} -n1 echo after 2> quiet.err"));
    cluster.write("go", "");
    let said = waiting.wait_with_output().expect("it ends");
    assert_eq!(
        (String::from_utf8_lossy(&said.stdout).as_ref(), cluster.read("quiet.err").as_str()),
        ("after\n", "")
    );
    cluster.write("stop", "");
    assert_eq!(cluster.await_end(id), "COMPLETED|0:0");
}

#[test]
fn up_waiting_steps_start_in_order() {
    let cluster = Cluster::up(TWO_NODES);
    let id = running(&cluster, &["-n2"], &format!("srun -n1 {STAY} &\n{IDLE}"));
    cluster.await_file("began", |text| !text.is_empty());
    let waiting: Vec<_> = (1..=3)
        .map(|number| {
            let err = format!("{number}.err");
            let task = format!("sh -c 'echo {number} >> order'");
            let child = cluster.spawn_shell(&format!("srun --jobid={id} -n1 {task} 2> {err}"));
            cluster.await_file(&err, |text| text.contains("temporarily disabled"));
            child
        })
        .collect();
    cluster.write("go", "");
    for child in waiting {
        assert!(child.wait_with_output().expect("it ends").status.success());
    }
    assert_eq!(cluster.read("order"), "1\n2\n3\n");
    cluster.write("stop", "");
    assert_eq!(cluster.await_end(id), "COMPLETED|0:0");
}

#[test]
fn up_a_waiting_step_ends_by_signal_or_with_the_job_and_survives_a_server_restart() {
    let cluster = Cluster::up(TWO_NODES);
    let id = running(&cluster, &["-n2"], &format!("srun -n1 {STAY} &\n{IDLE}"));
    cluster.await_file("began", |text| !text.is_empty());
    let waiting = |name: &str, task: &str| {
        let line = format!("exec srun --jobid={id} -n1 {task} 2> {name}");
        let child = cluster.spawn_shell(&line);
        cluster.await_file(name, |text| text.contains("temporarily disabled"));
        child
    };
    let ended = format!(
        "srun: error: Unable to create step for job {id}: Job/step already completing or completed\n"
    );
    let interrupted = waiting("int.err", "touch never");
    signal(interrupted.id() as i32, "INT");
    let said = interrupted.wait_with_output().expect("it ends");
    assert_eq!(said.status.code(), Some(1));
    let told = format!("srun: Cancelled pending job step with signal 2\n{ended}");
    assert!(cluster.read("int.err").ends_with(&told), "{}", cluster.read("int.err"));

    let patient = waiting("patient.err", "echo patient");
    cluster.kill("server");
    cluster.start();
    cluster.write("go", "");
    let said = patient.wait_with_output().expect("it ends");
    assert_eq!(
        String::from_utf8_lossy(&said.stdout),
        "patient\n",
        "{}",
        cluster.read("patient.err")
    );
    assert!(!cluster.path("work").join("never").exists());

    std::fs::remove_file(cluster.path("work").join("go")).expect("it was there");
    let holder = cluster.spawn_shell(&format!("srun --jobid={id} -n2 {STAY} 2> /dev/null"));
    cluster.await_file("began", |text| text.lines().count() == 3);
    let last = waiting("last.err", "touch never");
    cluster.sluice(&["scancel", &id.to_string()]).ok();
    let said = last.wait_with_output().expect("it ends");
    assert_eq!(said.status.code(), Some(1));
    assert!(cluster.read("last.err").ends_with(&ended), "{}", cluster.read("last.err"));
    holder.wait_with_output().expect("it ends with the job");
}

/// `0:node1 1:node2`: the node of each rank.
const MAP: &str = "sh -c 'echo $SLURM_PROCID:$SLURM_NODEID'";

fn map(text: &str) -> String {
    let mut places: Vec<(u32, &str)> = text
        .lines()
        .filter_map(|line| line.split_once(':'))
        .map(|(rank, node)| (rank.parse().expect("a rank"), node))
        .collect();
    places.sort_unstable();
    places.iter().map(|(_, node)| *node).collect::<Vec<_>>().join("")
}

#[test]
fn up_tasks_are_placed_by_the_distribution() {
    let cluster = Cluster::up(TWO_NODES);
    let id = running(&cluster, &["-N2", "--ntasks-per-node=4"], IDLE);
    let table = [
        ("-n6", "000111"),
        ("-N2 -n5 -m cyclic", "01010"),
        ("-n7 -m plane=2", "0011001"),
        ("-n6 -N2 -m block,Pack", "000011"),
        ("-n3 -N1", "000"),
        ("-r1 -N1 -n2", "00"),
        ("-N1 -x node1 -n2", "00"),
        ("-N2 -n4 -w node2", "0011"),
        ("-m arbitrary -w node2,node1,node2", "101"),
        ("-n8 --ntasks-per-node=4", "00001111"),
        ("-N2 --exact -n3 -c2", "001"),
        ("-N2 -O -n10", "0000011111"),
    ];
    for (options, places) in table {
        let line = format!("srun -Q --jobid={id} {options} {MAP}");
        assert_eq!(map(&cluster.shell(&line).ok()), places, "{options}");
    }
    let where_is = |options: &str| {
        let line = format!("srun -Q --jobid={id} {options} sh -c 'echo $SLURMD_NODENAME'");
        cluster.shell(&line).ok()
    };
    assert_eq!(where_is("-r1 -N1 -n1"), "node2\n");
    assert_eq!(where_is("-w node2 -n1"), "node2\n");
    let hosts = cluster.write("hosts", "node2\nnode1\n");
    let line = format!("SLURM_HOSTFILE={} srun --jobid={id} -n2 {MAP}", hosts.display());
    assert_eq!(map(&cluster.shell(&line).ok()), "10");
    let failed = "srun: error: Failure getting NodeNames from hostfile\n";
    let said = cluster.shell(&format!("SLURM_HOSTFILE=/nosuch/f srun --jobid={id} -n2 {MAP}"));
    let words = "srun: error: slurm_allocate_resources error opening file /nosuch/f, \
                 No such file or directory\n";
    assert_eq!((said.code, said.stderr), (1, format!("{words}{failed}")));
    let line = format!("SLURM_HOSTFILE={} srun --jobid={id} -n3 {MAP}", hosts.display());
    let said = cluster.shell(&line);
    let words = "srun: error: Too few NodeNames in Slurm Hostfile\n";
    assert_eq!((said.code, said.stderr), (1, format!("{words}{failed}")));
    // Outside of a job, the same options apply to the first step.
    for (options, places) in
        [("-n4 -N2 --ntasks-per-node=2 -m cyclic", "0101"), ("-n4 -N2 --ntasks-per-node=2", "0011")]
    {
        assert_eq!(map(&cluster.shell(&format!("srun {options} {MAP}")).ok()), places, "{options}");
    }
    let line = "srun -m arbitrary -w node2,node1,node2 sh -c 'echo $SLURM_PROCID $SLURMD_NODENAME'";
    assert_eq!(sorted_lines(&cluster.shell(line).ok()), ["0 node2", "1 node1", "2 node2"]);
    cluster.write("stop", "");
    cluster.await_end(id);
}

#[test]
fn up_steps_beyond_the_job_are_refused_in_slurms_words() {
    let cluster = Cluster::up(TWO_NODES);
    let id = running(&cluster, &["-N2", "-n4", "--ntasks-per-node=2", "--gres=gpu:2"], IDLE);
    let create = |text: &str| format!("srun: error: Unable to create step for job {id}: {text}\n");
    let gres = create("Invalid generic resource (gres) specification");
    let table = [
        ("-n5", create("More processors requested than permitted")),
        ("-n3 -N1", create("More processors requested than permitted")),
        ("-N3", "srun: error: Only allocated 2 nodes asked for 3\n".to_owned()),
        (
            "-x node1 -N2",
            "srun: error: Only allocated 1 nodes asked for 2\n\
             srun: error: Are required nodes explicitly excluded?\n"
                .to_owned(),
        ),
        ("-x node[1-2]", "srun: error: Hostlist is empty!  Can't run job.\n".to_owned()),
        ("-x nosuch", create("Invalid node name specified")),
        ("-w nosuch", create("Requested node configuration is not available")),
        (
            "-r1 -N2",
            "srun: error: --relative and --nodes option incompatible with count of allocated nodes \
             (1+2>2)\n"
                .to_owned(),
        ),
        (
            "-r1 -w node1",
            "srun: error: -r,--relative not allowed with -w,--nodelist or -x,--exclude.\n".to_owned(),
        ),
        (
            "-m arbitrary -w node1,node2 -n3",
            "srun: error: You asked for 3 tasks but hostlist specified 2 nodes\n".to_owned(),
        ),
        ("--mem=9000 -n1", create("Memory required by task is not available")),
        (
            "--gres=gpu:3 -n1 -N1",
            format!(
                "srun: error: Step requested gres_per_node=gpu:3 is more than the job's \
                 gres_per_node=gpu:2\n{gres}"
            ),
        ),
        (
            "--gres=gpu:nosuch:1 -n1",
            format!("srun: error: Step requested GRES (gpu:nosuch) not found in the job\n{gres}"),
        ),
    ];
    for (options, words) in table {
        let said = cluster.shell(&format!("srun --jobid={id} {options} true"));
        assert_eq!((said.code, said.stderr), (1, words), "{options}");
    }
    let expired = |job: u32| {
        format!("srun: Check SLURM_JOB_ID environment variable. Expired or invalid job {job}\n")
    };
    let held = cluster.submit(&["-H", "--wrap", "true"]);
    let said = cluster.shell(&format!("srun --jobid={held} true"));
    let pending = format!(
        "srun: error: Unable to confirm allocation for job {held}: Job is pending execution\n"
    );
    assert_eq!((said.code, said.stderr), (1, pending + &expired(held)));
    cluster.write("stop", "");
    cluster.await_end(id);
    let said = cluster.shell(&format!("SLURM_JOB_ID={id} srun -n1 true"));
    assert_eq!(
        (said.code, said.stderr),
        (1, format!("srun: error: Slurm job {id} has expired\n") + &expired(id))
    );
    let said = cluster.shell("srun -r1 true");
    let outside = "srun: fatal: --relative option invalid for job allocation request\n";
    assert_eq!((said.code, said.stderr.as_str()), (1, outside));
}

#[test]
fn up_multi_prog_runs_the_program_of_each_rank() {
    let cluster = Cluster::up(TWO_NODES);
    cluster.write(
        "prog",
        "# ranks\n0 echo zero\n1-2 echo t%t o%o 'q %t'\n* sh -c 'echo rest $0 $1' X\n",
    );
    let said = cluster.shell("srun -n4 -l --multi-prog prog more").ok();
    assert_eq!(
        sorted_lines(&said),
        ["0: zero more", "1: t1 o0 q %t more", "2: t2 o1 q %t more", "3: rest X more"]
    );
    let text = cluster.run_script(&["-N2", "-n4"], "srun -l --multi-prog prog");
    assert_eq!(sorted_lines(&text), ["0: zero", "1: t1 o0 q %t", "2: t2 o1 q %t", "3: rest X"]);
    cluster.write("bad", "0-1 echo a\n1 echo b\n");
    let said = cluster.shell("srun -n2 --multi-prog bad");
    let words = "srun: error: Duplicate record for task 1\n\
                 srun: error: Line 2 of configuration file bad invalid\n";
    assert_eq!((said.code, said.stderr.as_str()), (1, words));
    let said = cluster.shell("srun -n2 --multi-prog nosuch");
    let words = "srun: error: Could not open multi_prog config file nosuch\n";
    assert_eq!((said.code, said.stderr.as_str()), (1, words));
}

#[test]
fn root_a_step_in_another_users_job_is_refused() {
    let cluster = Cluster::up(TWO_NODES);
    let id = running(&cluster, &["-n2"], IDLE);
    let said = cluster.shell_as("games", &format!("srun --jobid={id} -n1 true"));
    let words =
        format!("srun: error: Unable to create step for job {id}: Access/permission denied\n");
    assert_eq!((said.code, said.stderr), (1, words));
    cluster.write("stop", "");
    until("the job ends", || cluster.await_end(id).starts_with("COMPLETED").then_some(()));
}
