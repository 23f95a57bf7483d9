//! Explanations say what the nodes lack, which jobs hold a limit, and when a start is expected.

use crate::query::explain::Explanation;
use crate::testing::*;
use crate::view::{Availability, DependencyState, View};
use crate::{Memo, explain};
use insta::assert_snapshot;
use model::account::Qos;
use model::id::JobId;
use model::request::Per;
use model::shortage::{MissingResource, NodeClassReport, Shortage};
use model::tres::Tres;
use std::sync::Arc;

fn explained(view: &View, job: u32) -> Explanation {
    explain(view, NOW, &mut Memo::default(), JobId(job)).expect("it waits")
}

fn class_text(report: &NodeClassReport) -> String {
    let missing: Vec<String> = report
        .missing
        .iter()
        .map(|m| match m.asked {
            0 => format!("{:?} on {:?}", m.what, m.nodes),
            asked => {
                let Shortage { what, most_free, total, nodes, .. } = m;
                format!("{what:?} {most_free} of {total} free, {asked} asked on {nodes:?}")
            }
        })
        .collect();
    let NodeClassReport { nodes, free, never, .. } = report;
    format!("{nodes:?}: free {free:?}, never {never:?}; {}", missing.join("; "))
}

fn text_of(explanation: &Explanation) -> String {
    let minutes = |e: &crate::view::Estimate| (e.start.secs() - NOW.secs()) / 60;
    let classes: Vec<String> = explanation.classes.iter().map(class_text).collect();
    format!(
        "{:?} after {}; kept {:?}, expected {:?}\n{}",
        explanation.reason,
        explanation.before,
        explanation.kept.as_ref().map(minutes),
        explanation.expected.as_ref().map(minutes),
        classes.join("\n")
    )
}

#[test]
fn each_class_of_nodes_says_what_it_lacks() {
    let mut nodes = gpu_nodes(5);
    nodes[4].gres.clear();
    let mut view = cluster(nodes).with_jobs([
        job(1).cpus(30).for_min(30),
        job(2).gpus(Per::Node, 7).asking(|r| r.node_list = vec!["node2".to_string()]),
    ]);
    let plan = view.plan();
    view.carry_out(&plan);
    Arc::make_mut(&mut view.nodes[2]).availability = Availability::Drained;
    let view = view.with_jobs([
        job(8).cpus(32).asking(|r| r.node_list = vec!["node4".to_string()]).for_min(20),
        job(9).nodes(2).cpus(4).gpus(Per::Node, 2),
        job(10),
    ]);
    assert_snapshot!(text_of(&explained(&view, 9)), @r#"
    Some(Resources) after 1; kept Some(30), expected Some(30)
    ["node1", "node2", "node3", "node4"]: free [], never None; Drained on ["node3"]; Cpus 2 of 32 free, 4 asked on ["node1", "node4"]; Gres("gpu") 1 of 8 free, 2 asked on ["node2"]
    ["node5"]: free [], never Some(Gres { name: "gpu", asked: 2, most: 0, larger_memory: false, kinds_there: [] }); Hardware on ["node5"]
    "#);
    assert_eq!(explained(&view, 10).reason, None, "it starts");
    assert_eq!(explain(&view, NOW, &mut Memo::default(), JobId(77)), None);
}

#[test]
fn job_that_never_starts_is_ahead_of_no_other() {
    let never = job(1).with(|w| w.dependency = DependencyState::Never);
    let view = cluster(gpu_nodes(1)).with_jobs([never, job(2).cpus(32), job(3)]);
    let explanation = explained(&view, 3);
    assert_eq!((explanation.before, explanation.first), (1, vec![JobId(2)]));
}

/// 40 tasks do not go on one node of 32 CPUs; that is no reason why they would never run.
#[test]
fn job_of_several_nodes_is_explained_by_what_each_node_must_hold() {
    let mut view = cluster(gpu_nodes(2)).with_jobs([job(1).nodes(2).cpus(32).for_min(30)]);
    let plan = view.plan();
    view.carry_out(&plan);
    let wide = job(2).asking(|r| r.tasks = Some(40));
    let explanation = explained(&view.with_jobs([wide]), 2);
    assert!(explanation.classes.iter().all(|class| class.never.is_none()), "{explanation:?}");
    assert!(explanation.classes.iter().all(|class| class.wanted == 2), "{explanation:?}");
}

#[test]
fn explanation_of_a_limit_names_the_jobs_that_hold_it() {
    let mut capped = Qos::named("capped");
    capped.max_tres_per_user = Tres::parse("gres/gpu=4").expect("it reads");
    let mut view = cluster(gpu_nodes(2));
    view.qos = vec![Arc::new(Qos::named("normal")), Arc::new(capped)];
    let of = |id, gpus| job(id).gpus(Per::Node, gpus).with(|w| w.qos = "capped".to_string());
    let mut view = view.with_jobs([of(1, 1), of(2, 2), job(3).gpus(Per::Node, 3)]);
    let plan = view.plan();
    view.carry_out(&plan);
    let view = view.with_jobs([of(9, 2), of(10, 2).of_user(7)]);
    let held = explained(&view, 9).limit.expect("it waits for a limit");
    assert_eq!(held.holders, [(JobId(2), 2), (JobId(1), 1)]);
    assert_eq!((held.limit.limit, held.limit.in_use, held.limit.asked), (4, 3, 2));
    let missing = &explained(&view, 9).classes[0].missing;
    assert!(missing.iter().all(|m| m.what != MissingResource::Cpus), "{missing:?}");
}
