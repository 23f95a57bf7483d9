//! `sluice apply` of an array without `-d` follows all its tasks, and its end is that of the whole.

use crate::harness::{Cluster, CommandOutput, TWO_NODES, sorted_lines, until};
use std::collections::BTreeSet;

const SMALL: &str = "resources: {cpu: 1.., memory: 64MB.., disk: 0GB..}\n";

#[test]
fn up_attached_apply_of_an_array_shows_all_tasks_and_the_verdict_of_the_whole() {
    let cluster = Cluster::up(TWO_NODES);
    let apply = |name: &str, more: &[&str]| {
        let command = "echo task $SLURM_ARRAY_TASK_ID; exit $((SLURM_ARRAY_TASK_ID == 2))";
        let tasks = if name == "sweep" { "1-3" } else { "4-5" };
        let text =
            format!("type: task\nname: {name}\narray: {tasks}\ncommands: ['{command}']\n{SMALL}");
        cluster.write("array.dstack.yml", &text);
        cluster.sluice(&[&["apply", "-f", "array.dstack.yml", "-y"], more].concat())
    };
    let said = apply("sweep", &[]);
    let lines: BTreeSet<&str> = said.stdout.lines().filter(|line| line.starts_with("1_")).collect();
    let expected: BTreeSet<&str> = ["1_1 | task 1", "1_2 | task 2", "1_3 | task 3"].into();
    assert_eq!(lines, expected, "{said:?}");
    let verdict = "sweep task=2: exited (1)\n1 of 3 tasks of sweep did not succeed\n";
    assert!(said.stdout.ends_with(verdict) && said.code == 1, "{said:?}");
    let said = apply("good", &[]);
    let verdict = "All 2 tasks of good are done\n";
    assert!(said.stdout.ends_with(verdict) && said.code == 0, "{said:?}");

    let said = apply("sweep", &["--json"]);
    let whole: serde_json::Value = serde_json::from_str(&said.stdout).expect("JSON");
    assert_eq!((&whole["status"], &whole["exit_status"]), (&"failed".into(), &1.into()));
    assert_eq!(said.code, 1, "{said:?}");
}

/// Most tasks of a long array have left the server's memory when the last one ends, and some may never have started.
#[test]
fn up_verdict_of_an_array_knows_the_tasks_that_memory_has_no_more() {
    let cluster = Cluster::up(&format!("{TWO_NODES}MinJobAge=10\n"));
    let go = cluster.path("work").join("go");
    let waits = format!("until test -e {}; do sleep 0.1; done", go.display());
    let command = format!("if test $SLURM_ARRAY_TASK_ID = 1; then exit 1; fi; {waits}");
    let text = format!("type: task\nname: long\narray: 1-4%2\ncommands: ['{command}']\n{SMALL}");
    cluster.write("array.dstack.yml", &text);
    let applied = cluster.spawn(&["apply", "-f", "array.dstack.yml", "-y"]);
    let are_listed = |states: &str| {
        let listed = cluster.sluice(&["squeue", "-h", "-t", states, "-o", "%i"]).stdout;
        (sorted_lines(&listed) == ["1_2", "1_3"]).then_some(())
    };
    until("the third runs in the place of the first", || are_listed("R"));
    cluster.sluice(&["scancel", "1_4"]).ok();
    until("the first and the last have left memory", || are_listed("all"));
    cluster.write("go", "");
    let said = CommandOutput::from(applied.wait_with_output().expect("the program runs"));
    let first = "\nlong task=1: exited (1)\nlong task=4: ";
    let whole = "\n2 of 4 tasks of long did not succeed\n";
    assert!(said.stdout.contains(first) && said.stdout.ends_with(whole), "{said:?}");
    assert_eq!(said.code, 1, "{said:?}");
}
