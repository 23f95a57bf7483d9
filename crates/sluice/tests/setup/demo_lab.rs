//! `sluice demo` as a lab: it stays, its scenes are steps of their own, and it goes again.

use crate::harness::{Cluster, CommandOutput, TWO_NODES};
use std::process::Stdio;

/// `sluice demo WORDS`, with the lab in the cluster's folder.
fn demo(cluster: &Cluster, words: &[&str]) -> CommandOutput {
    let mut command = cluster.command(&[&["demo"], words].concat());
    command.env("SLUICE_LAB", cluster.path("lab")).env_remove("SLUICE_STATE");
    command.stdin(Stdio::null()).output().expect("the program runs").into()
}

/// A command in the lab.
fn in_lab(cluster: &Cluster, words: &[&str]) -> CommandOutput {
    let mut command = cluster.command(words);
    command.env("SLUICE_STATE", cluster.path("lab/state"));
    command.stdin(Stdio::null()).output().expect("the program runs").into()
}

#[test]
fn up_scenes_of_the_demo_are_steps_in_a_lab_that_stays_until_it_is_ended() {
    // Nothing is started in it: it has the folder and the environment.
    let cluster = Cluster::folder(TWO_NODES);
    let said = demo(&cluster, &["drill"]).ok();
    assert!(said.contains("== The drain drill"), "{said}");
    assert!(said.contains("every scene went as it must"), "{said}");
    assert!(said.contains("export SLUICE_STATE="), "{said}");
    let idle = in_lab(&cluster, &["sinfo", "-h", "-o", "%D %t %N"]).ok();
    assert_eq!(idle, "2 idle gpu[1-2]\n");
    // A second step finds it running, with the books of the first.
    let said = demo(&cluster, &["limit"]).ok();
    assert!(!said.contains("sluice is up"), "{said}");
    let said = demo(&cluster, &["limit"]).ok();
    assert!(said.contains("every scene went as it must"), "a QOS that is there already: {said}");
    let evidence = cluster.path("evidence");
    demo(&cluster, &["evidence", evidence.to_str().expect("a path")]).ok();
    for (file, part) in [("sacct.txt", "back"), ("sinfo.txt", "gpu1"), ("qos.txt", "capped")] {
        let text = std::fs::read_to_string(evidence.join(file)).expect("a file");
        assert!(text.contains(part), "{file}: {text}");
    }
    let said = demo(&cluster, &["down"]).ok();
    assert!(said.starts_with("the lab is down"), "{said}");
    assert!(!cluster.path("lab").exists());
    assert!(demo(&cluster, &["down"]).ok().starts_with("there is no lab"));
}

#[test]
fn up_demo_that_is_kept_has_played_every_scene_and_each_is_a_step_of_its_own() {
    let cluster = Cluster::folder(TWO_NODES);
    let said = demo(&cluster, &["--keep"]).ok();
    let scenes = ["One GPU", "Sixteen GPUs on one node", "A QOS that caps", "An array of 24"];
    for title in scenes.into_iter().chain(["The drain drill"]) {
        assert!(said.contains(&format!("== {title}")), "{title}: {said}");
    }
    assert!(said.contains("The lab runs on"), "{said}");
    assert_eq!(in_lab(&cluster, &["squeue", "-h"]).ok(), "", "nothing is left of the scenes");
    let steps = [("gpu", scenes[0]), ("refusal", scenes[1]), ("array", scenes[3])];
    for (step, title) in steps {
        let said = demo(&cluster, &[step]).ok();
        assert!(said.contains(&format!("== {title}")), "{step}: {said}");
        assert!(said.contains("every scene went as it must"), "{step}: {said}");
        assert!(!said.contains("== The drain drill"), "{step} alone: {said}");
    }
    demo(&cluster, &["down"]).ok();
    assert!(!cluster.path("lab").exists());
}
