//! Machines on demand: in the journal before they are asked for, and until their source says that they are gone.

use crate::job_builder::{Ask, alice, ask, root};
use crate::testbed::{World, world_with};
use cluster::command::{JoinAttempt, MachineReport, SetFleet};
use cluster::machine_reconcile::MachineWork;
use cluster::{ClusterConfig, Command, Event};
use model::activity::{ActivityKind, ActivityTarget};
use model::amount::Bytes;
use model::budget::Budget;
use model::change::{JobChange, JobRef};
use model::cloud_fleet::{CloudFleet, OfferBounds};
use model::cloud_source::SourceKind;
use model::constraint::Constraint;
use model::fleet::Blocks;
use model::health::HealthSource;
use model::id::JobId;
use model::machine::{FailureKind, Machine, MachineAnswer, MachinePhase, Offer, SourceConfig};
use model::machine_choice::MachineChoice;
use model::node::{AdminState, NodeConfig};
use model::partition::{DynamicMembers, Partition};
use model::price::{Cost, Price};
use model::reason::Refusal;
use model::request::{Grant, WaitPolicy};
use model::run::{Hold, Outcome};
use model::service::Service;
use sched::machines::MachinePlan;
use std::sync::Arc;
use std::time::Duration;

/// `n1` in `main`; `cloud` takes the machines of a source in, of which there may be two.
fn site(config: &mut ClusterConfig) {
    config.parameters.max_node_count = 10;
    let mut cloud = Partition::over("cloud", Vec::new());
    cloud.dynamic_members = DynamicMembers { all: false, features: vec!["cloud".into()] };
    config.partitions.push(cloud);
    let source = SourceConfig::new("cloud", "/opt/make");
    config.sources = vec![SourceConfig { machines_max: 2, idle_s: 100, ..source }];
}

pub fn small() -> Offer {
    Offer {
        id: "small".into(),
        cpus: 2,
        memory: Bytes::from_gib(4),
        disk: Bytes(0),
        gpus: None,
        region: String::new(),
        price: Price::from_dollars(3.6).expect("a price"),
        spot: false,
    }
}

pub fn open() -> World {
    let mut w = world_with(1, site);
    w.run(Command::SetOffers { source: "cloud".into(), offers: vec![small()] });
    w
}

pub fn in_cloud() -> Ask {
    ask().asking(|request| request.partitions = vec!["cloud".into()])
}

/// Plans as the server does, and asks for the machines of the plan.
pub fn asked(w: &mut World) -> MachinePlan {
    let view = cluster::view::view(&w.state, w.now);
    let plan = sched::plan(&view, w.now, &mut sched::Memo::default());
    let made = sched::machines::machines(&view, &plan, w.now, &w.state.machine_view(w.now));
    for order in made.orders.clone() {
        w.run(Command::AskMachine(Box::new(order)));
    }
    made
}

pub fn machine(w: &World, number: u32) -> &Machine {
    w.state.machines.values().find(|machine| machine.number == number).expect("a machine")
}

pub fn report(w: &mut World, number: u32, report: MachineReport) {
    let token = machine(w, number).token.clone();
    w.run(Command::MachineReport { token, report });
}

pub fn made(w: &mut World, number: u32) {
    report(w, number, MachineReport::Made { id: format!("i-{number}"), since: None });
}

/// The machine's agent joins, and the server has seen it.
pub fn joins(w: &mut World, number: u32) {
    agent_joins(w, number);
    report(w, number, MachineReport::Joined);
}

/// The machine's agent joins with a token of its own, and says what it has.
pub fn agent_joins(w: &mut World, number: u32) {
    let node = machine(w, number).node.clone();
    let (hash, expires) = (format!("hash{number:04}"), w.now + Duration::from_secs(600));
    let (pattern, count) = (node.clone(), Some(1));
    let dynamic = true;
    w.run(Command::IssueGroupToken { hash: hash.clone(), pattern, count, dynamic, expires });
    w.run(Command::UseToken(JoinAttempt {
        hash,
        fingerprint: format!("certificate of {node}"),
        request: format!("request of {node}"),
        certificate_end: expires,
        node: Some(node.clone()),
        dynamic,
        future: None,
    }));
    let said = NodeConfig {
        features: vec!["cloud".into()],
        dynamic: true,
        ..NodeConfig::plain(&node, 2, Bytes::from_gib(4))
    };
    w.run(Command::RegisterNode(Box::new(said)));
    w.hello(&node, &[]);
}

pub fn phase(w: &World, number: u32) -> MachinePhase {
    machine(w, number).phase
}

#[test]
fn partition_that_machines_are_made_for_may_grow_and_others_may_not() {
    let w = open();
    let grows = |name: &str| {
        let partition = w.state.partitions.iter().find(|known| known.name == name);
        w.state.may_grow(partition.expect("a partition"))
    };
    assert_eq!((grows("cloud"), grows("main")), (true, false));
}

#[test]
fn job_that_is_refused_beside_a_source_without_offers_is_told_of_it() {
    let refused = |w: &mut World, ask: Ask| match w.try_submit(ask) {
        Err(Refusal::NodeConfiguration(unmet)) => unmet.silent_sources,
        other => panic!("it is taken, or refused otherwise: {other:?}"),
    };
    let mut w = world_with(1, site);
    assert_eq!(refused(&mut w, in_cloud().cpus(2)), ["cloud"]);
    let feature = Constraint::parse("m5.large").expect("a feature");
    let typed = in_cloud().asking(|request| request.constraint = Some(feature));
    assert_eq!(refused(&mut w, typed), ["cloud"]);
    assert!(refused(&mut w, ask().cpus(64)).is_empty(), "its machines are in another partition");
    w.run(Command::SetOffers { source: "cloud".into(), offers: vec![small()] });
    assert!(refused(&mut w, in_cloud().cpus(64)).is_empty());
}

#[test]
fn job_that_no_node_could_hold_waits_for_a_machine_and_runs_there() {
    let mut w = open();
    let refused = w.try_submit(in_cloud().cpus(64));
    assert!(matches!(refused, Err(Refusal::NodeConfiguration(_))), "{refused:?}");
    let job = w.submit(in_cloud().cpus(2));
    assert!(w.plan().is_empty());
    assert_eq!(asked(&mut w).orders.len(), 1);
    let order = machine(&w, 1);
    assert_eq!(
        (order.node.as_str(), order.job, order.phase),
        ("cloud-1", Some(job), MachinePhase::Asked)
    );
    for _ in 0..3 {
        assert!(asked(&mut w).orders.is_empty(), "no second one for the same job");
    }
    w.restart();
    made(&mut w, 1);
    assert!(asked(&mut w).orders.is_empty());
    joins(&mut w, 1);
    assert_eq!(w.state.nodes["cloud-1"].config.price, Some(small().price));
    assert_eq!(w.plan().len(), 1);
    assert_eq!(w.nodes_of(job), ["cloud-1"]);
    w.pass(500);
    assert_eq!(phase(&w, 1), MachinePhase::Joined, "not while a job is on it");
    w.end(job, 0);
    w.pass(99);
    assert_eq!(phase(&w, 1), MachinePhase::Joined);
    w.pass(1);
    assert_eq!(phase(&w, 1), MachinePhase::Deleting);
    assert!(!w.state.nodes.contains_key("cloud-1"));
    report(&mut w, 1, MachineReport::Deleted);
    assert_eq!(phase(&w, 1), MachinePhase::Gone);
    w.pass(3600);
    let cost = w.state.machine_costs("cloud", w.now);
    assert_eq!(cost, small().price.for_time(Duration::from_secs(600)));
}

#[test]
fn run_may_have_its_machine_idle_for_a_shorter_time_than_the_source_and_not_for_a_longer_one() {
    for (idle_s, kept, gone) in [(365 * 86_400, 99, 100), (20, 19, 20)] {
        let mut w = open();
        let choice = MachineChoice { idle_s: Some(idle_s), ..MachineChoice::default() };
        let run = in_cloud().asking(|request| request.machines = Some(Box::new(choice)));
        let job = w.submit(run);
        asked(&mut w);
        made(&mut w, 1);
        joins(&mut w, 1);
        assert_eq!(w.plan().len(), 1);
        w.end(job, 0);
        w.pass(kept);
        assert_eq!(phase(&w, 1), MachinePhase::Joined, "{idle_s}");
        w.pass(gone - kept);
        assert_eq!(phase(&w, 1), MachinePhase::Deleting, "{idle_s}");
    }
}

#[test]
fn machine_is_paid_for_since_its_source_had_it() {
    let mut w = open();
    w.submit(in_cloud());
    asked(&mut w);
    let (asked, id) = (w.now, "i-1".to_owned());
    w.pass(60);
    let since = Some(asked + Duration::from_secs(20));
    report(&mut w, 1, MachineReport::Made { id: id.clone(), since });
    assert_eq!(machine(&w, 1).made, since, "a server that was away hears of it later");
    let before_it_was_asked_for = Some(asked - Duration::from_secs(1));
    report(&mut w, 1, MachineReport::Made { id, since: before_it_was_asked_for });
    assert_eq!(machine(&w, 1).made, Some(asked));
}

#[test]
fn limit_of_machines_holds_and_what_they_cost_counts_against_the_budget() {
    let mut w = open();
    for _ in 0..3 {
        w.submit(in_cloud().cpus(2));
    }
    let plan = asked(&mut w);
    assert_eq!(plan.orders.len(), 2);
    assert!(matches!(plan.answers[2].1, MachineAnswer::HeldBack(_)), "{plan:?}");
    let order = plan.orders[0].clone();
    let third = w.try_as(root(), Command::AskMachine(Box::new(order)));
    assert!(third.is_err(), "an order that was overtaken is checked again");
    let mut config = (*w.state.config).clone();
    config.sources[0].machines_max = 9;
    config.sources[0].budget_month = Cost::from_dollars(7.2 + 3.5);
    w.run(Command::Configure(Box::new(config.clone())));
    assert!(asked(&mut w).orders.is_empty(), "the next hour of all three is beyond it");
    config.sources[0].budget_month = Cost::from_dollars(7.2 + 3.7);
    w.run(Command::Configure(Box::new(config.clone())));
    assert_eq!(asked(&mut w).orders.len(), 1);
    let mut other = config.clone();
    other.sources[0].kind = SourceKind::Program("/opt/other".into());
    let refused = w.try_as(root(), Command::Configure(Box::new(other)));
    let is_said = matches!(&refused, Err(Refusal::Other(why)) if why.contains("another program"));
    assert!(is_said, "another program would not know them: {refused:?}");
    config.sources.clear();
    let refused = w.try_as(root(), Command::Configure(Box::new(config)));
    assert!(refused.is_err(), "a source with machines stays");
}

#[test]
fn job_costs_its_account_its_share_and_a_budget_that_is_spent_makes_no_machine() {
    let mut w = open();
    let job = w.submit(in_cloud().cpus(2));
    let account = w.job(job).account.to_string();
    asked(&mut w);
    made(&mut w, 1);
    joins(&mut w, 1);
    assert_eq!(w.plan().len(), 1);
    w.pass(500);
    let spent = |w: &World| w.state.account_costs_at(w.now)[&account].month;
    assert_eq!(Some(spent(&w)), Cost::from_dollars(0.5), "while it runs");
    w.pass(500);
    w.end(job, 0);
    w.restart();
    w.hello("cloud-1", &[]);
    assert_eq!(Some(spent(&w)), Cost::from_dollars(1.0), "all of the machine is its share");
    w.submit(in_cloud().cpus(2));
    w.submit(in_cloud().cpus(2));
    assert_eq!(w.plan().len(), 1, "one runs on the machine that is there");
    // The next hour of both is 7.2 beside what is spent.
    let mut config = (*w.state.config).clone();
    for (dollars, made) in [(8.1, 0), (8.3, 1)] {
        let month = Cost::from_dollars(dollars).expect("money");
        config.budgets = vec![Budget { account: account.clone(), month, warn_percent: 80 }];
        w.run(Command::Configure(Box::new(config.clone())));
        let plan = asked(&mut w);
        assert_eq!(plan.orders.len(), made, "{dollars}: {plan:?}");
        let said = format!("{:?}", plan.answers);
        assert_eq!(said.contains("AccountBudget"), made == 0, "{said}");
    }
}

/// Each second of a machine is somebody's: of the jobs that had it, or idle and of the account that the site names for it.
#[test]
fn what_jobs_are_charged_and_what_is_idle_are_what_the_machines_cost() {
    let mut w = open();
    let mut config = (*w.state.config).clone();
    config.sources[0].account = Some("pool".into());
    w.run(Command::Configure(Box::new(config)));
    let job = w.submit(in_cloud().cpus(1));
    let account = w.job(job).account.to_string();
    asked(&mut w);
    made(&mut w, 1);
    w.pass(100);
    joins(&mut w, 1);
    assert_eq!(w.plan().len(), 1);
    let dollars = |cost: Cost| (cost.dollars() * 1e4).round() / 1e4;
    let costs = |w: &World| {
        let of = |name: &str| {
            let all = w.state.account_costs_at(w.now);
            dollars(all.get(name).copied().unwrap_or_default().month)
        };
        let idle = dollars(w.state.idle_cost("cloud", w.now));
        let all = dollars(w.state.machine_costs("cloud", w.now));
        (of(&account), idle, of("pool"), all)
    };
    // A thousandth of a dollar a second; the job has half of the machine.
    w.pass(400);
    assert_eq!(costs(&w), (0.2, 0.3, 0.3, 0.5), "while it runs");
    w.end(job, 0);
    w.pass(50);
    assert_eq!(costs(&w), (0.2, 0.35, 0.35, 0.55), "while the machine is idle");
    w.pass(50);
    report(&mut w, 1, MachineReport::Deleted);
    w.pass(1000);
    w.restart();
    assert_eq!(costs(&w), (0.2, 0.4, 0.4, 0.6), "all of it, and nothing after its end");
}

#[test]
fn run_that_starts_at_once_or_not_at_all_waits_for_the_machine_that_is_made_for_it() {
    let mut w = open();
    let run = in_cloud().asking(|request| {
        (request.wait_policy, request.grant) = (WaitPolicy::Now, Grant::Offer);
    });
    let job = w.submit(run);
    assert_eq!(asked(&mut w).orders.len(), 1);
    let batch = in_cloud().asking(|request| request.wait_policy = WaitPolicy::Now);
    let refused = w.try_submit(batch);
    assert!(matches!(refused, Err(Refusal::NoCapacityNow)), "{refused:?}");
    w.pass(600);
    assert!(w.job(job).is_waiting(), "a machine may take so long");
    w.pass(61);
    assert_eq!(w.job(job).ended().map(|ended| ended.outcome), Some(Outcome::NoCapacity));
}

#[test]
fn replica_of_an_update_waits_for_a_place_as_long_as_there_is_one_before_it() {
    let mut w = open();
    let replica = |deployment: u32| {
        let service = Service { deployment, ..Service::at(80) };
        in_cloud().named("web").cpus(2).with(|spec| {
            Arc::make_mut(&mut spec.launch).service = Some(Box::new(service));
        })
    };
    let before = w.submit(replica(0));
    assert_eq!(asked(&mut w).orders.len(), 1);
    let next = w.submit(replica(1).asking(|request| {
        (request.wait_policy, request.grant) = (WaitPolicy::Now, Grant::Offer);
    }));
    w.pass(600);
    w.pass(61);
    assert!(w.job(next).is_waiting(), "the one before it may give its place");
    w.cancel(&[JobRef::whole(before)]);
    w.pass(1);
    assert_eq!(w.job(next).ended().map(|ended| ended.outcome), Some(Outcome::NoCapacity));
}

#[test]
fn hold_is_no_wait_for_a_machine() {
    let mut w = open();
    let job = w.submit(in_cloud().asking(|request| {
        (request.wait_policy, request.grant) = (WaitPolicy::Now, Grant::Offer);
    }));
    w.change(job, JobChange::Hold { by: Hold::Update }).expect("it waits");
    w.pass(600);
    w.pass(61);
    w.change(job, JobChange::Release).expect("it is held");
    w.pass(1);
    assert!(w.job(job).is_waiting(), "the hold was longer than a machine takes");
}

/// A fleet of machines of at least `min`, at most two.
fn set_fleet(min: u32) -> Command {
    set_fleet_to(min, min)
}

fn set_fleet_to(min: u32, target: u32) -> Command {
    let cloud = CloudFleet {
        min,
        target,
        target_reached: false,
        max: Some(2),
        choice: MachineChoice { idle_s: Some(50), ..MachineChoice::default() },
        price_max: None,
        bounds: OfferBounds::default(),
        blocks: Blocks::Auto,
        options: Default::default(),
    };
    Command::SetFleet(Box::new(SetFleet {
        project: "main".into(),
        name: "lab".into(),
        configuration: "{}".into(),
        is_cluster: false,
        hosts: Vec::new(),
        cloud: Some(Box::new(cloud)),
    }))
}

#[test]
fn fleet_of_machines_keeps_its_least_and_makes_more_for_jobs() {
    let mut w = open();
    w.run(set_fleet(1));
    w.pass(1);
    let first = machine(&w, 1);
    let said = (first.node.as_str(), first.job, first.terms.fleet.as_deref());
    assert_eq!(said, ("lab-1", None, Some("lab")));
    w.pass(60);
    assert_eq!(w.state.machines.len(), 1, "no more than its least");
    let in_lab = || ask().asking(|request| request.partitions = vec!["lab".into()]);
    for _ in 0..3 {
        w.submit(in_lab().cpus(2));
    }
    let plan = asked(&mut w);
    let names: Vec<&str> = w.state.machines.values().map(|of| of.node.as_str()).collect();
    assert_eq!(names, ["lab-1", "lab-2"], "{plan:?}");
    assert!(matches!(plan.answers[2].1, MachineAnswer::HeldBack(_)), "it has its most: {plan:?}");
}

#[test]
fn fleet_keeps_its_least_where_several_of_its_machines_are_idle_at_once() {
    let mut w = open();
    w.run(set_fleet_to(1, 2));
    w.pass(1);
    for number in [1, 2] {
        made(&mut w, number);
        joins(&mut w, number);
    }
    w.pass(200);
    let phases = [1, 2].map(|number| phase(&w, number));
    assert_eq!(phases, [MachinePhase::Deleting, MachinePhase::Joined]);
    w.pass(200);
    assert_eq!(phase(&w, 2), MachinePhase::Joined, "also while the other one is deleted");
    w.run(Command::DeleteMachine { node: "lab-2".into() });
    w.pass(1);
    assert_eq!(w.state.machines.len(), 2, "no third one while both may be there");
    report(&mut w, 1, MachineReport::Deleted);
    w.pass(1);
    assert_eq!(phase(&w, 3), MachinePhase::Asked);
}

#[test]
fn fleet_is_brought_to_its_target_once_for_each_apply() {
    let mut w = open();
    w.run(set_fleet_to(0, 2));
    w.pass(1);
    assert_eq!(w.state.machines.len(), 2);
    let (kind, text) = (FailureKind::NoCapacity, "sold out".to_owned());
    for number in [1, 2] {
        report(&mut w, number, MachineReport::NotMade { kind, text: text.clone() });
    }
    w.pass(61);
    assert_eq!(w.state.machines.len(), 4, "what was not made is made later");
    for number in [3, 4] {
        made(&mut w, number);
    }
    w.pass(1);
    let reached = |w: &World| w.state.fleets["lab"].cloud.as_ref().map(|of| of.target_reached);
    assert_eq!(reached(&w), Some(true));
    for number in [3, 4] {
        report(&mut w, number, MachineReport::Vanished);
        report(&mut w, number, MachineReport::Deleted);
    }
    w.pass(3700);
    w.run(set_fleet_to(0, 2));
    w.pass(1);
    assert_eq!(w.state.machines.len(), 4, "not again, and not for the same fleet once more");
    w.run(set_fleet_to(0, 1));
    w.pass(1);
    assert_eq!((w.state.machines.len(), reached(&w)), (5, Some(false)), "it is another fleet");
}

#[test]
fn fleet_of_machines_goes_with_its_machines_and_needs_a_source() {
    let mut w = open();
    w.run(set_fleet(2));
    w.pass(1);
    assert_eq!(w.state.machines.len(), 2);
    let (project, name) = ("main".to_owned(), "lab".to_owned());
    w.run(Command::RemoveFleetHosts { project, name, numbers: None });
    assert!(w.state.partition("lab").is_none());
    assert!(w.state.machines.values().all(|of| of.phase == MachinePhase::Deleting));
    let mut without = crate::testbed::world(1);
    let refused = without.try_as(root(), set_fleet(0));
    assert!(matches!(refused, Err(Refusal::Other(why)) if why.contains("no source of machines")));
}

#[test]
fn failure_is_final_or_leads_to_a_deletion_and_pauses_the_source() {
    let mut w = open();
    let job = w.submit(in_cloud());
    asked(&mut w);
    let (kind, text) = (FailureKind::NoCapacity, "sold out".to_owned());
    report(&mut w, 1, MachineReport::NotMade { kind, text });
    assert_eq!(phase(&w, 1), MachinePhase::Gone);
    assert_eq!(w.state.machine_costs("cloud", w.now), Cost::default());
    assert!(asked(&mut w).orders.is_empty(), "not again at once");
    w.pass(31);
    assert_eq!(asked(&mut w).orders.len(), 1);
    made(&mut w, 2);
    report(&mut w, 2, MachineReport::Late { text: "no agent".into() });
    assert_eq!(phase(&w, 2), MachinePhase::Deleting);
    report(&mut w, 2, MachineReport::Deleted);
    // The source said that it was deleted, and tells of it again.
    made(&mut w, 2);
    assert_eq!(phase(&w, 2), MachinePhase::Deleting);
    w.pass(31);
    assert!(asked(&mut w).orders.len() <= 1);
    assert!(w.state.job(job).is_some_and(|job| job.is_waiting()));
}

#[test]
fn machine_that_is_deleted_or_vanishes_drains_its_node_first() {
    let mut w = open();
    let job = w.submit(in_cloud());
    asked(&mut w);
    made(&mut w, 1);
    joins(&mut w, 1);
    w.plan();
    let delete = || Command::DeleteMachine { node: "cloud-1".into() };
    assert_eq!(w.try_as(alice(), delete()).map(drop), Err(Refusal::AccessDenied));
    w.run(delete());
    assert_eq!(phase(&w, 1), MachinePhase::Leaving);
    assert_eq!(w.state.nodes["cloud-1"].admin, Some(AdminState::Drain));
    w.pass(1);
    assert_eq!(phase(&w, 1), MachinePhase::Leaving);
    w.end(job, 0);
    w.pass(1);
    assert_eq!(phase(&w, 1), MachinePhase::Deleting);
    assert!(w.try_as(root(), delete()).is_err(), "it is on its way out");
    report(&mut w, 1, MachineReport::Deleted);

    w.submit(in_cloud());
    asked(&mut w);
    made(&mut w, 2);
    joins(&mut w, 2);
    report(&mut w, 2, MachineReport::Vanished);
    assert_eq!(phase(&w, 2), MachinePhase::Deleting, "the source is asked all the same");
    assert!(!w.state.nodes.contains_key("cloud-2"));
}

#[test]
fn jobs_of_a_machine_that_vanished_end_as_soon_as_its_agent_is_silent() {
    let mut w = open();
    let job = w.submit(in_cloud().requeue());
    asked(&mut w);
    made(&mut w, 1);
    joins(&mut w, 1);
    w.plan();
    assert_eq!(w.nodes_of(job), ["cloud-1"]);
    report(&mut w, 1, MachineReport::Vanished);
    assert_eq!(phase(&w, 1), MachinePhase::Leaving);
    let work = |w: &World| w.state.machine_work(machine(w, 1), true, w.now);
    assert_eq!(work(&w), None, "its agent speaks: the source may be wrong");
    report(&mut w, 1, MachineReport::Vanished);
    assert!(!w.job(job).is_waiting());
    w.run(Command::NodeLost { node: "cloud-1".into() });
    assert_eq!(work(&w), Some(MachineWork::Report(MachineReport::Vanished)));
    report(&mut w, 1, MachineReport::Vanished);
    assert!(w.job(job).is_waiting(), "it does not wait for SlurmdTimeout");
    w.pass(1);
    assert_eq!(phase(&w, 1), MachinePhase::Deleting);
}

#[test]
fn machine_is_in_the_list_of_events_when_it_is_asked_for_comes_and_goes() {
    let mut w = open();
    w.submit(in_cloud());
    asked(&mut w);
    made(&mut w, 1);
    report(&mut w, 1, MachineReport::Late { text: "no agent".into() });
    report(&mut w, 1, MachineReport::Deleted);
    let node = ActivityTarget::Node("cloud-1".into());
    let noted = w.state.activities.iter().filter(|activity| activity.target == node);
    let noted: Vec<_> = noted.map(|of| (of.what.clone(), of.info.as_str())).collect();
    let expected = [
        (ActivityKind::Changed, "machine asked of source cloud: small, $3.6 an hour"),
        (ActivityKind::Created, ""),
        (ActivityKind::Changed, "machine is deleted"),
        (ActivityKind::Deleted, ""),
    ];
    assert_eq!(noted, expected);
}

#[test]
fn events_have_the_kind_of_a_machines_failure_and_not_what_its_source_said() {
    let mut w = open();
    w.submit(in_cloud());
    asked(&mut w);
    let (kind, text) = (FailureKind::Quota, "arn:aws:iam::1234: no more".to_owned());
    report(&mut w, 1, MachineReport::NotMade { kind, text });
    w.pass(31);
    asked(&mut w);
    w.run(Command::DeleteMachine { node: "cloud-2".into() });
    report(&mut w, 2, MachineReport::Deleted);
    let said = |node: &str| {
        let target = ActivityTarget::Node(node.into());
        let of_node = w.state.activities.iter().filter(|activity| activity.target == target);
        of_node.map(|activity| activity.info.clone()).collect::<Vec<_>>()
    };
    assert!(said("cloud-1").contains(&"no machine was made: quota".to_owned()));
    assert!(said("cloud-2").contains(&"no machine was made".to_owned()), "{:?}", said("cloud-2"));
    let texts = w.state.activities.iter().map(|activity| activity.info.as_str());
    assert_eq!(texts.filter(|text| text.contains("arn:")).count(), 0);
}

#[test]
fn node_that_is_drained_for_a_refusal_of_its_source_does_not_say_its_words() {
    let mut w = open();
    w.submit(in_cloud());
    asked(&mut w);
    agent_joins(&mut w, 1);
    assert_eq!(w.plan().len(), 1);
    let (kind, text) = (FailureKind::Quota, "arn:aws:iam::1234: no more".to_owned());
    report(&mut w, 1, MachineReport::NotMade { kind, text });
    assert_eq!(phase(&w, 1), MachinePhase::Leaving, "a job is on it");
    let reason = format!("{:?}", w.state.nodes["cloud-1"].reason);
    assert!(reason.contains("did not make it") && !reason.contains("arn:"), "{reason}");
}

#[test]
fn every_order_is_an_event_with_its_token_offer_price_and_job() {
    let mut w = open();
    let job = w.submit(in_cloud());
    asked(&mut w);
    let order = w.events.iter().rev().find_map(|event| match event {
        Event::MachineSet(machine) => Some(machine),
        _ => None,
    });
    let order = order.expect("it is journalled");
    assert_eq!((order.job, &order.offer), (Some(job), &small()));
    assert!(order.token.starts_with("1-") && order.token.len() == 34, "{}", order.token);
    assert_ne!(job, JobId(0));
}

#[test]
fn job_that_did_not_start_on_its_machine_gets_no_other_one_at_once() {
    let mut w = open();
    let job = w.submit(in_cloud());
    asked(&mut w);
    made(&mut w, 1);
    joins(&mut w, 1);
    // Nothing is started here, as where the node is not what its offer said.
    w.pass(100);
    assert_eq!(phase(&w, 1), MachinePhase::Deleting);
    let failure = machine(&w, 1).failure.clone().expect("its job waits");
    assert_eq!(failure.text, "its job did not start on it");
    report(&mut w, 1, MachineReport::Deleted);
    let plan = asked(&mut w);
    assert_eq!((plan.orders.len(), plan.answers), (0, vec![(job, MachineAnswer::Unserved)]));
    let other = w.submit(in_cloud());
    let plan = asked(&mut w);
    assert_eq!(plan.orders.len(), 1, "the source is good for other jobs: {plan:?}");
    assert_eq!(machine(&w, 2).job, Some(other));
    w.pass(901);
    assert_eq!(asked(&mut w).answers[0], (job, MachineAnswer::Coming), "it is tried again later");
}

#[test]
fn machine_that_vanishes_before_it_joins_pauses_the_source() {
    let mut w = open();
    w.submit(in_cloud());
    asked(&mut w);
    made(&mut w, 1);
    report(&mut w, 1, MachineReport::Vanished);
    assert_eq!(phase(&w, 1), MachinePhase::Deleting);
    assert!(asked(&mut w).orders.is_empty(), "not again at once");
    w.pass(31);
    assert_eq!(asked(&mut w).orders.len(), 1);
}

#[test]
fn failures_of_one_moment_are_one_and_another_configuration_ends_the_pause() {
    let mut w = open();
    for _ in 0..2 {
        w.submit(in_cloud().cpus(2));
    }
    for (numbers, pause_s) in [([1, 2], 30), ([3, 4], 60)] {
        assert_eq!(asked(&mut w).orders.len(), 2, "the source is asked again");
        for number in numbers {
            made(&mut w, number);
            report(&mut w, number, MachineReport::Late { text: "no agent".into() });
            report(&mut w, number, MachineReport::Deleted);
        }
        let pauses = w.state.source_pauses("cloud", w.now);
        let [pause] = &pauses[..] else { panic!("one pause of the source: {pauses:?}") };
        assert_eq!((&pause.offer, pause.text.as_str()), (&None, "no agent"));
        assert_eq!(pause.until, w.now + Duration::from_secs(pause_s));
        assert!(asked(&mut w).orders.is_empty(), "not at once");
        if pause_s == 30 {
            w.pass(31);
        }
    }
    let mut config = (*w.state.config).clone();
    config.sources[0].boot_s += 1;
    w.run(Command::Configure(Box::new(config)));
    assert!(w.state.source_pauses("cloud", w.now).is_empty());
    assert_eq!(asked(&mut w).orders.len(), 2);
    let failure = machine(&w, 3).failure.as_ref().expect("it is kept");
    assert_eq!(failure.text, "no agent");
}

/// Each fails while another is on its way that was asked for before.
#[test]
fn failures_of_staggered_orders_double_the_pause() {
    let mut w = open();
    let fails = |w: &mut World, number: u32| {
        report(w, number, MachineReport::Late { text: "no agent".into() });
        report(w, number, MachineReport::Deleted);
    };
    let paused_for = |w: &World, secs: u64| {
        let pauses = w.state.source_pauses("cloud", w.now);
        let until: Vec<_> = pauses.iter().map(|pause| pause.until).collect();
        assert_eq!(until, [w.now + Duration::from_secs(secs)]);
    };
    for number in [1, 2] {
        w.submit(in_cloud().cpus(2));
        assert_eq!(asked(&mut w).orders.len(), 1);
        made(&mut w, number);
        w.pass(10);
    }
    fails(&mut w, 1);
    paused_for(&w, 30);
    w.pass(31);
    assert_eq!(asked(&mut w).orders.len(), 1, "the source is asked again");
    made(&mut w, 3);
    w.pass(10);
    fails(&mut w, 2);
    paused_for(&w, 30);
    w.pass(10);
    fails(&mut w, 3);
    paused_for(&w, 60);
}

#[test]
fn machine_gets_a_number_whose_name_no_node_has() {
    let mut w = world_with(1, |config| {
        site(config);
        config.login_nodes = vec!["cloud-1".into(), "cloud-2".into()];
    });
    w.run(Command::SetOffers { source: "cloud".into(), offers: vec![small()] });
    for _ in 0..2 {
        w.submit(in_cloud().cpus(2));
    }
    assert_eq!(asked(&mut w).orders.len(), 2);
    let nodes = [3, 4].map(|number| machine(&w, number).node.clone());
    assert_eq!(nodes, ["cloud-3", "cloud-4"]);
}

/// The agent of a spot machine has heard that its cloud takes it back.
pub fn notice(node: &str) -> Command {
    let (source, failure) = (HealthSource::Interruption, Some("terminate".to_owned()));
    Command::NodeHealth { node: node.into(), source, failure }
}

#[test]
fn jobs_of_a_spot_machine_that_is_taken_back_end_in_time_and_wait_for_another() {
    let mut w = open();
    let job = w.submit(in_cloud().requeue());
    asked(&mut w);
    made(&mut w, 1);
    joins(&mut w, 1);
    assert_eq!(w.plan().len(), 1);
    w.run(notice("cloud-1"));
    assert_eq!(phase(&w, 1), MachinePhase::Leaving);
    assert_eq!(w.state.nodes["cloud-1"].admin, Some(AdminState::Drain));
    let ending = |w: &World| w.job(job).attempt().and_then(|attempt| attempt.ending);
    w.pass(89);
    w.run(notice("cloud-1"));
    assert!(ending(&w).is_none(), "it has been warned, and runs on");
    w.pass(1);
    assert_eq!(ending(&w).map(|ending| ending.outcome), Some(Outcome::NodeFail));
    w.end(job, 0);
    w.pass(1);
    assert_eq!(phase(&w, 1), MachinePhase::Deleting);
    assert!(!w.state.nodes.contains_key("cloud-1"));
    assert!(w.job(job).is_waiting(), "it begins again");
}

#[test]
fn spot_machine_that_is_taken_back_goes_at_once_where_it_has_no_job_and_soon_where_it_is_silent() {
    let mut w = open();
    let first = w.submit(in_cloud().cpus(2).requeue());
    w.submit(in_cloud().cpus(2));
    assert_eq!(asked(&mut w).orders.len(), 2);
    for number in [1, 2] {
        made(&mut w, number);
        joins(&mut w, number);
    }
    w.run(notice("cloud-2"));
    assert_eq!(phase(&w, 2), MachinePhase::Deleting, "nothing is on it");
    w.plan();
    assert_eq!(w.nodes_of(first), ["cloud-1"]);
    w.run(notice("cloud-1"));
    w.run(Command::NodeLost { node: "cloud-1".into() });
    w.pass(9);
    assert!(!w.job(first).is_waiting());
    w.pass(1);
    assert!(w.job(first).is_waiting(), "long before SlurmdTimeout");
    w.pass(1);
    assert_eq!(phase(&w, 1), MachinePhase::Deleting);
}

#[test]
fn machine_waits_for_the_others_of_its_job() {
    let mut w = open();
    let job = w.submit(in_cloud().nodes(2));
    assert_eq!(asked(&mut w).orders.len(), 2);
    made(&mut w, 1);
    joins(&mut w, 1);
    made(&mut w, 2);
    w.pass(300);
    assert_eq!(phase(&w, 1), MachinePhase::Joined, "the second one comes");
    joins(&mut w, 2);
    w.pass(50);
    assert_eq!(phase(&w, 1), MachinePhase::Joined, "the job could start a moment ago");
    assert_eq!(w.plan().len(), 1);
    assert_eq!(w.nodes_of(job), ["cloud-1", "cloud-2"]);
}

#[test]
fn source_without_capacity_is_not_asked_for_all_of_its_offers_in_turn() {
    let mut w = open();
    let offers = (0..30).map(|at| Offer { id: format!("kind{at}"), ..small() }).collect();
    w.run(Command::SetOffers { source: "cloud".into(), offers });
    w.submit(in_cloud());
    let mut tried = 0;
    while asked(&mut w).orders.len() == 1 {
        tried += 1;
        let (kind, text) = (FailureKind::NoCapacity, "sold out".to_owned());
        report(&mut w, tried, MachineReport::NotMade { kind, text });
    }
    assert_eq!(tried, 21);
    w.pass(31);
    assert_eq!(asked(&mut w).orders.len(), 1, "it is asked again later");
}
