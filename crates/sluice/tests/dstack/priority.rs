//! dstack's `priority` through the program: a run with a higher one goes first, whatever orders the queue.

use crate::harness::{Cluster, TWO_NODES, until};

/// As examples/lab has it: the QOS has no weight.
const LAB: &str = "\
PriorityType=priority/multifactor
PriorityWeightAge=1000
PriorityWeightFairshare=10000
";

/// Two runs wait for both nodes, the one with the lower priority first. Returns what `squeue` gives as their priorities, of the
/// later run and of the earlier one.
fn later_run_goes_first(conf: &str) -> (u64, u64) {
    let cluster = Cluster::up(conf);
    let all = cluster.submit_sleeper("-N2 --exclusive");
    cluster.await_state(all, "RUNNING");
    for (name, priority) in [("low", 0), ("high", 90)] {
        let text = format!(
            "type: task\nname: {name}\nnodes: 2\npriority: {priority}\n\
             commands: [echo {name} >> order]\nretry: {{on_events: [no-capacity]}}\n\
             resources: {{cpu: 1.., memory: 64MB.., disk: 0GB..}}\n"
        );
        cluster.write("task.dstack.yml", &text);
        cluster.sluice(&["apply", "-f", "task.dstack.yml", "-y", "-d"]).ok();
    }
    let shown = |name: &str, column: &str| {
        let line = ["squeue", "-h", "-n", name, "-o", column];
        cluster.sluice(&line).ok().trim().to_owned()
    };
    until("only the run with the higher priority waits for the nodes alone", || {
        (shown("high", "%r") == "Resources" && shown("low", "%r") == "Priority").then_some(())
    });
    let priority = |name: &str| shown(name, "%Q").parse::<u64>().expect("a number");
    let priorities = (priority("high"), priority("low"));
    cluster.sluice(&["scancel", &all.to_string()]).ok();
    // Each has both nodes, and writes a line on each.
    let order = cluster.await_file("order", |text| text.lines().count() == 4);
    assert_eq!(order, "high\nhigh\nlow\nlow\n");
    priorities
}

#[test]
fn up_run_with_a_higher_priority_goes_first_in_the_order_of_submission() {
    let (high, low) = later_run_goes_first(TWO_NODES);
    assert!(high > low, "{high} and {low}");
}

#[test]
fn up_run_with_a_higher_priority_goes_first_where_the_qos_has_no_weight() {
    let (high, low) = later_run_goes_first(&format!("{TWO_NODES}{LAB}"));
    // A sum of 0 is shown as 1.
    assert!(high >= low + 89, "{high} and {low}");
}
