//! `sluice apply` of an array without `-d` follows all its tasks, and its end is that of the whole.

use crate::harness::{Cluster, TWO_NODES};
use std::collections::BTreeSet;

const SMALL: &str = "resources: {cpu: 1.., memory: 64MB.., disk: 0GB..}\n";

#[test]
fn up_attached_apply_of_an_array_shows_all_tasks_and_the_verdict_of_the_whole() {
    let cluster = Cluster::up(TWO_NODES);
    let apply = |name: &str, more: &[&str]| {
        let command = "echo task $SLURM_ARRAY_TASK_ID; exit $((SLURM_ARRAY_TASK_ID == 2))";
        let text =
            format!("type: task\nname: {name}\narray: ARRAY\ncommands: ['{command}']\n{SMALL}");
        let text = text.replace("ARRAY", if name == "sweep" { "1-3" } else { "4-5" });
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
