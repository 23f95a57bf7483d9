//! Partitions that no configuration file names.

use crate::job_builder::{alice, ask, root};
use crate::testbed::{config, world};
use cluster::Command;
use model::partition::Partition;
use model::reason::Refusal;
use model::run::JobState;

fn create(name: &str, node: &str, default: bool) -> Command {
    let partition = Partition { default, ..Partition::over(name, vec![node.to_owned()]) };
    Command::CreatePartition(Box::new(partition))
}

fn remove(name: &str) -> Command {
    Command::RemovePartition { name: name.into() }
}

#[test]
fn created_partition_takes_jobs_and_is_removed_once_none_is_left() {
    let mut w = world(2);
    w.run(create("new", "n2", false));
    let asking = || ask().asking(|request| request.partitions = vec!["new".into()]);
    let runs = w.started(asking()).job;
    assert_eq!(w.nodes_of(runs), ["n2"]);
    w.restart();
    let removed = w.try_as(root(), remove("new"));
    assert!(matches!(removed, Err(Refusal::JobsActive(_))), "{removed:?}");
    w.end(runs, 0);
    assert_eq!(w.is(runs), JobState::Completed);
    w.run(remove("new"));
    assert!(w.state.partition("new").is_none());
    assert!(w.try_submit(asking()).is_err(), "it takes no job any more");
}

#[test]
fn wrong_partitions_are_refused_and_nothing_changes() {
    let mut w = world(1);
    let before = w.state.partitions.clone();
    for (by, command) in [
        (root(), create("main", "n1", false)),
        (root(), create("new", "n9", false)),
        (root(), create("a,b", "n1", false)),
        (root(), remove("none")),
        (alice(), create("new", "n1", false)),
        (alice(), remove("main")),
    ] {
        let shown = format!("{command:?}");
        assert!(w.try_as(by, command).is_err(), "{shown}");
    }
    assert_eq!(w.state.partitions, before);
}

#[test]
fn new_default_partition_takes_over_and_a_changed_file_ends_what_it_does_not_name() {
    let mut w = world(2);
    w.run(create("new", "n2", true));
    let default = |w: &crate::testbed::World| w.state.default_partition().map(|p| p.name.clone());
    assert_eq!(default(&w).as_deref(), Some("new"));
    w.run(Command::Configure(Box::new(config(&["n1", "n2", "n3"]))));
    assert_eq!(default(&w).as_deref(), Some("main"));
}
