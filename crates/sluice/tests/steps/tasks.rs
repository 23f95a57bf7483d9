//! Tasks of a step: signals, program names, and how their ends are recorded.

use crate::harness::{Cluster, TWO_NODES};
use std::os::unix::fs::PermissionsExt;

/// A process that logs each signal, and a child that does the same. Each logs `up` first.
const FAMILY: &str = r#"#!/bin/bash
note() { echo "$1" >> "$DIARY"; }
watch() { for s in USR1 TERM; do trap "note '$1 $s'" $s; done; note "$1 up"; }
stay() { until [ -e stop ]; do sleep 0.05; done; }
(watch child; stay) &
watch parent
until ! kill -0 $! 2>/dev/null; do wait $!; done
"#;

fn script(cluster: &Cluster, name: &str, text: &str) {
    let path = cluster.write(name, text);
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).expect("executable");
}

/// The log of parent and child, once it has this line.
fn diary(cluster: &Cluster, file: &str, last: &str) -> String {
    cluster.await_file(file, |text| text.lines().any(|line| line == last))
}

fn await_family(cluster: &Cluster, file: &str) {
    cluster.await_file(file, |text| text.contains("child up") && text.contains("parent up"));
}

#[test]
fn up_signals_reach_tasks_and_not_their_children() {
    let cluster = Cluster::up(&TWO_NODES.replace("KillWait=1", "KillWait=60"));
    script(&cluster, "family", FAMILY);
    cluster.write("job.sh", "#!/bin/bash\nexport DIARY=script\nexec bash ./family\n");
    // Steps end with their script, so this script waits for them.
    let family = "trap : TERM\nDIARY=task srun ./family &\nuntil wait; do :; done";
    cluster.write("steps.sh", &format!("#!/bin/bash\n{family}\n"));
    let alone = cluster.submit(&["-o", "/dev/null", "job.sh"]);
    let steps = cluster.submit(&["-o", "/dev/null", "steps.sh"]);
    for file in ["script", "task"] {
        await_family(&cluster, file);
    }

    // Without options a signal goes to the tasks of the steps and not to the script.
    for job in [alone, steps] {
        cluster.sluice(&["scancel", "-s", "USR1", &job.to_string()]).ok();
    }
    diary(&cluster, "task", "parent USR1");
    cluster.sluice(&["scancel", "-b", "-s", "TERM", &alone.to_string()]).ok();
    let text = diary(&cluster, "script", "parent TERM");
    assert!(!text.contains("USR1") && !text.contains("child TERM"), "{text}");
    // With `--full` the script and its children get it too.
    cluster.sluice(&["scancel", "-f", "-s", "USR1", &alone.to_string()]).ok();
    diary(&cluster, "script", "child USR1");
    diary(&cluster, "script", "parent USR1");

    // A cancel terminates the same processes. The order of signals shows that the child got none of the earlier ones.
    for job in [alone, steps] {
        cluster.sluice(&["scancel", &job.to_string()]).ok();
    }
    cluster.await_file("script", |text| text.matches("parent TERM").count() == 2);
    diary(&cluster, "task", "parent TERM");
    cluster.write("stop", "");
    for job in [alone, steps] {
        assert!(cluster.await_end(job).starts_with("CANCELLED"), "{job}");
    }
    // By now the children have logged every signal they got.
    let (task, script) = (cluster.read("task"), cluster.read("script"));
    assert!(!task.contains("child USR1") && !task.contains("child TERM"), "{task}");
    assert!(!script.contains("child TERM"), "{script}");
}

#[test]
fn up_a_task_is_started_by_the_path_at_which_its_program_was_found() {
    let cluster = Cluster::up(TWO_NODES);
    let said = cluster.shell("srun sh -c 'echo $0'; command -v sh").ok();
    let (own, found) = said.split_once('\n').expect("two lines");
    assert_eq!(own, found.trim_end());
    // A relative path is made absolute.
    let said = cluster.shell("cp /bin/sh shell; srun ./shell -c 'echo $0'; pwd -P").ok();
    let (own, here) = said.split_once('\n').expect("two lines");
    assert_eq!(own, format!("{}/./shell", here.trim_end()));
}

#[test]
fn up_missing_and_non_executable_programs_are_reported() {
    let cluster = Cluster::up(TWO_NODES);
    cluster.write("plain", "true\n");
    let here = cluster.shell("pwd -P").ok().trim_end().to_owned();
    let table = [
        ("srun ''".to_owned(), 2, "execve(): : No such file or directory".to_owned()),
        ("srun nosuch".to_owned(), 2, "execve(): nosuch: No such file or directory".to_owned()),
        (
            format!("PATH={here}:$PATH srun plain"),
            13,
            format!("execve(): {here}/plain: Permission denied"),
        ),
    ];
    for (line, code, words) in table {
        let said = cluster.shell(&line);
        assert_eq!(said.code, code, "{line}: {}", said.stderr);
        assert!(said.stderr.contains(&words), "{line}: {}", said.stderr);
    }
}

#[test]
fn root_an_unsearchable_folder_in_the_path_is_skipped() {
    let cluster = Cluster::up(TWO_NODES);
    let locked = cluster.path("locked");
    std::fs::create_dir(&locked).expect("a folder");
    std::fs::set_permissions(&locked, std::fs::Permissions::from_mode(0o700)).expect("locked");
    let line = format!("PATH={}:$PATH srun -D / nosuch", locked.display());
    let said = cluster.shell_as("games", &line);
    assert_eq!(said.code, 2, "{}", said.stderr);
    assert!(said.stderr.contains("nosuch: No such file or directory"), "{}", said.stderr);
}

#[test]
fn root_an_oom_kill_of_a_tasks_child_ends_the_task_as_out_of_memory() {
    let cluster = Cluster::up(TWO_NODES);
    let fill = "srun --mem=60 sh -c 'head -c 150m /dev/zero | tail | wc -c > /dev/null; exit 0'";
    // Repeated, because the notice and the end of the step race.
    for number in 1..=4 {
        let said = cluster.shell(fill);
        assert_eq!(said.code, 1, "{}", said.stderr);
        assert!(said.stderr.contains(": task 0: Out Of Memory\n"), "{}", said.stderr);
        let notice = format!(
            "slurmstepd: error: Detected 1 oom-kill event(s) in StepId={number}.0. Some of your \
             processes may have been killed by the cgroup out-of-memory handler.\n"
        );
        assert_eq!(said.stderr.matches(&notice).count(), 1, "{}", said.stderr);
        assert_eq!(cluster.await_end(number), "OUT_OF_MEMORY|0:125");
    }
}

#[test]
fn up_tasks_that_share_cpus_need_no_extra_memory() {
    let cluster = Cluster::up(TWO_NODES);
    let line = "srun -n40 -O --mem-per-cpu=16 true; echo $? > code";
    let id = cluster.submit(&["-n2", "-o", "job.out", "--wrap", line]);
    cluster.await_end(id);
    assert_eq!(cluster.read("code"), "0\n", "{}", cluster.read("job.out"));
}

#[test]
fn up_a_step_ended_by_a_signal_is_cancelled_and_can_be_listed_alone() {
    let cluster = Cluster::up(TWO_NODES);
    let line = "for s in 9 15; do srun -n1 sh -c \"kill -$s \\$\\$\"; done; srun -n1 false; exit 0";
    let id = cluster.submit(&["-n1", "-o", "/dev/null", "--wrap", line]);
    assert_eq!(cluster.await_end(id), "COMPLETED|0:0");
    let sacct = |jobs: String| {
        let fields = "JobID,State,ExitCode";
        cluster.sluice(&["sacct", "-n", "-P", "-o", fields, "-j", &jobs]).ok()
    };
    let alone = format!("{id}.0|CANCELLED|0:9\n{id}.1|CANCELLED|0:15\n{id}.2|FAILED|1:0\n");
    assert_eq!(sacct(format!("{id}.0,{id}.1,{id}.2")), alone);
    let whole = format!("{id}|COMPLETED|0:0\n{id}.batch|COMPLETED|0:0\n{alone}");
    assert_eq!(sacct(format!("{id},{id}.0")), whole);
}

#[test]
fn root_a_step_with_another_uid_than_the_jobs_is_refused() {
    let cluster = Cluster::up(TWO_NODES);
    let line =
        "srun --uid=games true 2> words; echo $? > code; srun --uid=root true; echo $? >> code";
    let id = cluster.submit(&["-o", "job.out", "--wrap", line]);
    cluster.await_end(id);
    let words =
        format!("srun: error: Unable to create step for job {id}: Access/permission denied\n");
    assert_eq!((cluster.read("code").as_str(), cluster.read("words")), ("1\n0\n", words));
}
