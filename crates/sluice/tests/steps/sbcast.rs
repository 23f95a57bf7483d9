//! `sbcast`: a file on every node of a job. The nodes of most tests share one file system, so that each replaces the other's
//! copy; those of the last have a private folder each.

use crate::harness::{Cluster, TWO_NODES, until};

/// The names of what is in the folder, in alphabetical order.
fn left_in(folder: &std::path::Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).expect("a folder");
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn up_a_file_is_copied_whole_with_its_mode_and_its_times() {
    let cluster = Cluster::up(TWO_NODES);
    let script = "set -e; mkdir folder\n\
        head -c 700000 /dev/urandom > data; chmod 750 data; touch -d @1000000000 data\n\
        sbcast -f -p data folder/; cmp data folder/data; stat -c '%a %Y' folder/data\n\
        cd folder; sbcast --force ../data other; cmp data other; stat -c %a other\n\
        : > empty; sbcast -f empty none; stat -c %s none; ls -A";
    let text = cluster.run_script(&["-N2"], script);
    assert_eq!(text, "750 1000000000\n750\n0\ndata\nempty\nnone\nother\n");
}

#[test]
fn up_srun_copies_its_program_to_the_nodes_and_runs_the_copy() {
    let cluster = Cluster::up(TWO_NODES);
    cluster.write("prog", "#!/bin/sh\necho \"ran $0 $1\"\n");
    cluster.shell("chmod 755 prog").ok();
    let all_ran = |text: &str, tasks: usize, copy: &str, word: &str| {
        let is_copy = |line: &str| {
            let path = line.strip_prefix("ran /").and_then(|line| line.strip_suffix(word));
            path.and_then(|path| path.trim_end().rsplit('/').next().map(str::to_owned))
                .is_some_and(|name| name.starts_with(copy))
        };
        assert_eq!(text.lines().filter(|line| is_copy(line)).count(), tasks, "{text}");
    };
    let inside = cluster.run_script(&["-N2"], "srun --bcast=copy ./prog inside\n[ -x copy ]");
    all_ran(&inside, 2, "copy", "inside");
    let alone = cluster.shell("srun -N2 --bcast=other ./prog alone").ok();
    all_ran(&alone, 2, "other", "alone");
    let unnamed = cluster.shell("srun -N1 --bcast ./prog unnamed").ok();
    all_ran(&unnamed, 1, "slurm_bcast_", "unnamed");
    for (line, said) in [
        ("--bcast no-such-program", "--bcast: no-such-program: No such file or directory"),
        ("--bcast --multi-prog prog", "--bcast: not together with --multi-prog"),
        ("--bcast ./prog : ./prog", "--bcast: not in several components"),
    ] {
        let refused = cluster.shell(&format!("srun -N1 {line}"));
        assert_eq!(refused.code, 1, "{line}: {}", refused.stdout);
        assert!(refused.stderr.contains(said), "{line}: {}", refused.stderr);
    }
    until("no job is left", || cluster.sluice(&["squeue", "-h"]).ok().is_empty().then_some(()));
}

#[test]
fn up_a_copy_waits_for_no_other_step_of_its_job() {
    let cluster = Cluster::up(TWO_NODES);
    cluster.write("data", "some bytes\n");
    let script = "srun sh -c 'touch up.$SLURM_PROCID; until [ -e go ]; do sleep 0.05; done' &\n\
        until [ -e up.0 ] && [ -e up.1 ]; do sleep 0.05; done\n\
        sbcast -f data copy && cat copy; touch go; wait";
    let text = cluster.run_script(&["-N2", "--exclusive"], script);
    assert_eq!(text, "some bytes\n");
}

#[test]
fn up_a_copy_that_cannot_be_made_says_why_and_names_the_node() {
    let cluster = Cluster::up(TWO_NODES);
    let job = cluster.submit_sleeper("-N1 -w node2").to_string();
    cluster.await_state(&job, "RUNNING");
    let work = cluster.path("work").canonicalize().unwrap();
    cluster.write("data", "first\n");
    std::fs::create_dir(work.join("folder")).unwrap();
    cluster.sluice(&["sbcast", "-j", &job, "data", "there"]).ok();
    cluster.write("data", "second\n");
    let before = left_in(&work);
    let of_node = |rest: &str| format!("node2: {}/{rest}", work.display());
    let table: [(&[&str], String); 9] = [
        (&["-j", &job, "missing", "new"], "missing: No such file or directory".into()),
        (&["-j", &job, "folder", "new"], "folder: Is a directory".into()),
        (&["-j", &job, "/dev/null", "new"], "/dev/null: expected a plain file".into()),
        (&["data", "new"], "no job: call it inside of one, or name one with --jobid".into()),
        (&["-j", "999", "data", "new"], "Unable to copy the file: Invalid job id specified".into()),
        (&["-j", &job, "data", "there"], of_node("there: File exists")),
        (&["-j", &job, "-f", "data", "folder"], of_node("folder: Is a directory")),
        (&["-j", &job, "data", "no/new"], of_node("no/new: No such file or directory")),
        (
            &["-j", &job, "--send-libs", "data", "new"],
            "--send-libs is not supported: libraries are not sent along; copy each of them".into(),
        ),
    ];
    for (words, line) in table {
        let said = cluster.sluice(&[&["sbcast"][..], words].concat());
        assert_eq!(said.stderr, format!("sbcast: error: {line}\n"), "{words:?}");
        assert_eq!(said.code, 1, "{words:?}");
    }
    // A folder in which nobody makes files, not even root.
    let said = cluster.sluice(&["sbcast", "-j", &job, "data", "/proc/new"]);
    assert!(said.stderr.starts_with("sbcast: error: node2: /proc/new: "), "{}", said.stderr);
    assert_eq!(said.code, 1);
    assert_eq!(left_in(&work), before, "nothing was made");
    assert_eq!(cluster.read("there"), "first\n");
    cluster.sluice(&["sbcast", "-j", &job, "-f", "data", "there"]).ok();
    assert_eq!(cluster.read("there"), "second\n");
}

#[test]
fn root_up_each_node_of_a_job_has_a_copy_that_belongs_to_the_user() {
    let cluster = Cluster::folder(&format!("JobContainerType=job_container/tmpfs\n{TWO_NODES}"));
    let (private, base) = (cluster.path("private"), cluster.path("base"));
    std::fs::create_dir(&private).unwrap();
    let text =
        format!("AutoBasePath=true\nBasePath={}\nDirs={}\n", base.display(), private.display());
    cluster.write_conf("job_container.conf", &text);
    cluster.start();
    cluster.write("data", "of the user\n");
    let copy = format!("{}/copy", private.display());
    let shown = format!("echo $SLURMD_NODENAME $(stat -c %U {copy}) $(cat {copy})");
    let script = format!("#!/bin/bash\nsbcast data {copy} && srun sh -c '{shown}' | sort\n");
    cluster.write("job.sh", &script);
    let job = cluster.submit_as("daemon", "-N2 -o out job.sh");
    assert_eq!(cluster.await_end(job), "COMPLETED|0:0", "{}", cluster.read("out"));
    // Without --force: had the nodes shared the folder, one of them would have found the other's copy.
    let expected = "node1 daemon of the user\nnode2 daemon of the user\n";
    assert_eq!(cluster.read("out"), expected);
    assert!(left_in(&private).is_empty(), "the machine's own folder is as it was");
    // A place that only root may write to is refused to the user, on each node.
    cluster.write("job.sh", "#!/bin/bash\nsbcast data /usr/sluice-test-copy\n");
    let job = cluster.submit_as("daemon", "-N2 -o refused job.sh");
    assert_eq!(cluster.await_end(job), "FAILED|1:0");
    let text = cluster.read("refused");
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort();
    let line =
        |node: &str| format!("sbcast: error: {node}: /usr/sluice-test-copy: Permission denied");
    assert_eq!(lines, [line("node1"), line("node2")]);
}
