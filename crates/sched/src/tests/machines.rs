//! Which machines are asked for, and why not.

use crate::machines::{
    AccountBudget, Coming, FleetPool, MachineOrder, MachinePlan, MachineView, Source, fleet_orders,
    machines,
};
use crate::query::offers::{machine_offers, offers};
use crate::testing::*;
use crate::view::{DependencyState, PendingJob, View};
use model::amount::Bytes;
use model::cloud_fleet::{CloudFleet, OfferBounds};
use model::constraint::Constraint;
use model::fleet::Blocks;
use model::id::JobId;
use model::machine::{
    FailureKind, HoldCause, MachineAnswer, Offer, OfferedGpus, SourceHold, SourcePause,
};
use model::node::NodeConfig;
use model::pod::{PodTemplate, PodUser};
use model::price::{Cost, Price};
use model::range::Range;
use model::reason::NeverFits;
use model::request::Per;
use proptest::prelude::*;
use std::sync::Arc;
use std::time::Duration;

fn price(dollars: f64) -> Price {
    Price::from_dollars(dollars).expect("a price")
}

fn offer(id: &str, cpus: u32, dollars: f64) -> Offer {
    Offer {
        id: id.into(),
        cpus,
        memory: Bytes::from_gib(64),
        disk: Bytes(0),
        gpus: None,
        region: String::new(),
        price: price(dollars),
        spot: false,
    }
}

/// Two kinds of machines, at most four of them.
fn source() -> Source {
    Source {
        name: "cloud".into(),
        backend: "remote".into(),
        makes_pods: false,
        makes_root_pods: false,
        features: vec!["cloud".into()],
        offers: Arc::new(vec![offer("large", 8, 4.0), offer("small", 2, 1.0)]),
        failed: Vec::new(),
        machines: 0,
        price_hour: Price::default(),
        machines_max: 4,
        price_hour_max: None,
        budget_left: None,
        boot: Duration::from_secs(600),
        own_first: true,
        project: None,
        fleet: None,
    }
}

fn there() -> MachineView {
    MachineView { sources: vec![source()], room: 100, ..MachineView::default() }
}

/// A partition with these nodes that takes dynamic ones in.
fn site(nodes: Vec<NodeConfig>, jobs: impl IntoIterator<Item = PendingJob>) -> View {
    cluster(nodes).with_main(|main| main.dynamic_members.all = true).with_jobs(jobs)
}

fn made(view: &View, there: &MachineView) -> MachinePlan {
    machines(view, &view.plan(), NOW, there)
}

/// The machines of a plan, on their way.
fn coming(plan: &MachinePlan) -> Vec<Coming> {
    let one = |(at, order): (usize, &MachineOrder)| Coming {
        node: order.offer.node(&format!("c{at}"), &["cloud".to_owned()]),
        job: order.job,
        fleet: order.fleet.clone(),
    };
    plan.orders.iter().enumerate().map(one).collect()
}

/// `small for 1, large for 2`
fn orders(plan: &MachinePlan) -> String {
    let one = |order: &MachineOrder| {
        let job = order.job.expect("a job");
        format!("{} for {job}", order.offer.id)
    };
    let each = plan.orders.iter().map(one);
    each.collect::<Vec<_>>().join(", ")
}

fn answer(plan: &MachinePlan, job: u32) -> Option<&MachineAnswer> {
    plan.answers.iter().find(|(of, _)| of.0 == job).map(|(_, answer)| answer)
}

fn held(plan: &MachinePlan, job: u32) -> Option<HoldCause> {
    match answer(plan, job) {
        Some(MachineAnswer::HeldBack(holds)) => match holds.as_slice() {
            [SourceHold { cause, .. }] => Some(cause.clone()),
            _ => None,
        },
        _ => None,
    }
}

#[test]
fn cheapest_offer_that_holds_the_jobs_is_asked_for_and_jobs_are_packed() {
    let tasks = |count| job(1).asking(|request| request.tasks = Some(count));
    let table: [(&str, Vec<PendingJob>, &str); 9] = [
        ("the cheapest", vec![job(1)], "small for 1"),
        ("the cheapest that fits", vec![job(1).cpus(4)], "large for 1"),
        ("two on one", vec![job(1), job(2)], "small for 1"),
        ("the third on another", vec![job(1), job(2), job(3)], "small for 1, small for 3"),
        ("beside a large one", vec![job(1).cpus(6), job(2).cpus(2)], "large for 1"),
        ("one each", vec![job(1).cpus(8).nodes(2)], "large for 1, large for 1"),
        ("tasks on one", vec![tasks(8)], "large for 1"),
        ("tasks on several", vec![tasks(12)], "large for 1, large for 1"),
        ("an array", vec![job(1).with(|w| w.tasks = 5)], "small for 1, small for 1, small for 1"),
    ];
    for (what, jobs, expected) in table {
        assert_eq!(orders(&made(&site(Vec::new(), jobs), &there())), expected, "{what}");
    }
}

#[test]
fn machine_on_its_way_serves_its_job_and_no_second_one_is_asked_for() {
    let view = site(Vec::new(), [job(1), job(2), job(3)]);
    let first = made(&view, &there());
    assert_eq!(orders(&first), "small for 1, small for 3");
    let mut later = there();
    later.coming = coming(&first);
    later.sources[0].machines = 2;
    let second = made(&view, &later);
    assert_eq!(orders(&second), "");
    assert_eq!(answer(&second, 3), Some(&MachineAnswer::Coming));
}

#[test]
fn job_of_several_nodes_takes_machines_on_their_way_and_the_fewest_new_ones() {
    for (coming, nodes, expected) in [
        (0, 3, "large for 1, large for 1, large for 1"),
        (1, 3, "large for 1, large for 1"),
        (2, 3, "large for 1"),
        (3, 3, ""),
        (3, 4, "large for 1"),
    ] {
        let view = site(Vec::new(), [job(1).cpus(8).nodes(nodes)]);
        let mut there = there();
        let node = |at: u32| offer("large", 8, 4.0).node(&format!("c{at}"), &["cloud".to_owned()]);
        let one = |at: u32| Coming { node: node(at), job: None, fleet: None };
        there.coming = (0..coming).map(one).collect();
        assert_eq!(orders(&made(&view, &there)), expected, "{coming} come, {nodes} are needed");
    }
}

#[test]
fn machines_on_their_way_that_hold_no_node_of_a_job_count_for_none() {
    let gpus = |kind: &str| OfferedGpus { kind: kind.into(), count: 8, memory: None };
    let of =
        |id: &str, cpus: u32, gpus: Option<OfferedGpus>| Offer { gpus, ..offer(id, cpus, 4.0) };
    let wanted = || job(1).cpus(8).nodes(3).gpus(Per::Node, 4);
    let kind = || wanted().asking(|request| request.gres[0].kinds = vec!["a100".into()]);
    let large = of("large", 8, Some(gpus("a100")));
    let table = [
        ("of its size", large.clone(), wanted(), 1),
        ("too small", of("narrow", 4, Some(gpus("a100"))), wanted(), 3),
        ("without GPUs", of("plain", 8, None), wanted(), 3),
        ("of its kind", large.clone(), kind(), 1),
        ("of another kind", of("other", 8, Some(gpus("t4"))), kind(), 3),
    ];
    for (what, coming, waiting, expected) in table {
        let mut there = there();
        there.sources[0].offers = Arc::new(vec![large.clone()]);
        let node = |at: u32| coming.node(&format!("c{at}"), &["cloud".to_owned()]);
        let one = |at: u32| Coming { node: node(at), job: None, fleet: None };
        there.coming = (0..2).map(one).collect();
        let plan = made(&site(Vec::new(), [waiting]), &there);
        assert_eq!(plan.orders.len(), expected, "two come that are {what}: {plan:?}");
    }
}

#[test]
fn machine_that_does_not_serve_its_job_is_not_followed_by_another() {
    let view = site(Vec::new(), [job(1).cpus(4), job(2).cpus(4)]);
    let mut there = there();
    there.served.insert(JobId(1));
    let plan = made(&view, &there);
    assert_eq!(answer(&plan, 1), Some(&MachineAnswer::Unserved));
    assert_eq!(orders(&plan), "large for 2");
}

#[test]
fn own_nodes_come_first_where_they_are_free_before_a_machine_would_be() {
    for (minutes, expected) in [(5, ""), (60, "large for 2")] {
        let node = NodeConfig::plain("own", 8, Bytes::from_gib(64));
        let mut view = site(vec![node], [job(1).cpus(8).for_min(minutes)]);
        let plan = view.plan();
        view.carry_out(&plan);
        view.queue.clear();
        let plan = made(&view.with_jobs([job(2).cpus(8)]), &there());
        assert_eq!(orders(&plan), expected, "the node is free in {minutes} minutes");
        let sooner = answer(&plan, 2) == Some(&MachineAnswer::NodesSooner);
        assert_eq!(sooner, expected.is_empty());
    }
}

#[test]
fn own_nodes_are_not_waited_for_where_the_source_says_so() {
    let node = NodeConfig::plain("own", 8, Bytes::from_gib(64));
    let mut view = site(vec![node], [job(1).cpus(8).for_min(5)]);
    let plan = view.plan();
    view.carry_out(&plan);
    view.queue.clear();
    let mut there = there();
    there.sources[0].own_first = false;
    assert_eq!(orders(&made(&view.with_jobs([job(2).cpus(8)]), &there)), "large for 2");
}

#[test]
fn machine_on_its_way_is_its_jobs_before_any_other_is_packed_there() {
    // The first job fits both machines, and the one that is large is the second job's.
    let view = site(Vec::new(), [job(1), job(2).cpus(8)]);
    let first = made(&view, &there());
    assert_eq!(orders(&first), "small for 1, large for 2");
    let mut later = there();
    later.coming = coming(&first).into_iter().rev().collect();
    later.sources[0].machines = 2;
    let second = made(&view, &later);
    assert_eq!(orders(&second), "");
    assert_eq!(answer(&second, 1), Some(&MachineAnswer::Coming));
    assert_eq!(answer(&second, 2), Some(&MachineAnswer::Coming));
}

#[test]
fn machine_is_made_as_the_job_chooses() {
    use model::machine_choice::{MachineChoice, SpotChoice};
    let mut there = there();
    let cheap = Offer { spot: true, region: "eu".into(), ..offer("spot", 8, 0.5) };
    let near = Offer { region: "us".into(), ..offer("near", 8, 2.0) };
    there.sources[0].offers = Arc::new(vec![cheap, near, offer("plain", 8, 1.0)]);
    let words = |text: &str| vec![text.to_owned()];
    let plain = MachineChoice::default;
    let table = [
        (None, "spot for 1"),
        (Some(plain()), "plain for 1"),
        (Some(MachineChoice { spot: SpotChoice::Any, ..plain() }), "spot for 1"),
        (Some(MachineChoice { regions: words("us"), ..plain() }), "near for 1"),
        (Some(MachineChoice { types: words("near"), ..plain() }), "near for 1"),
        (Some(MachineChoice { backends: words("aws"), ..plain() }), ""),
        (Some(MachineChoice { reuse_only: true, ..plain() }), ""),
    ];
    for (choice, expected) in table {
        let said = format!("{choice:?}");
        let waiting = job(1).asking(|request| request.machines = choice.map(Box::new));
        assert_eq!(orders(&made(&site(Vec::new(), [waiting]), &there)), expected, "{said}");
    }
}

#[test]
fn pod_is_made_of_the_size_that_its_job_asks_for_and_for_no_job_that_cannot_be_in_one() {
    let mut there = there();
    there.sources[0].makes_pods = true;
    let template = PodTemplate {
        image: None,
        uid: 7,
        gid: 7,
        groups: Vec::new(),
        user: PodUser::JobUser,
        has_registry_auth: false,
        claims: Vec::new(),
    };
    let root = PodTemplate { user: PodUser::Root, ..template.clone() };
    let waiting =
        |pod: Option<PodTemplate>| job(1).asking(|request| request.pod = pod.map(Box::new));
    let plan = made(&site(Vec::new(), [waiting(Some(template))]), &there);
    let offers: Vec<&Offer> = plan.orders.iter().map(|order| &order.offer).collect();
    assert_eq!((offers.len(), offers[0].cpus), (1, 1), "{plan:?}");
    let plan = made(&site(Vec::new(), [waiting(None)]), &there);
    assert_eq!((orders(&plan), answer(&plan, 1)), (String::new(), Some(&MachineAnswer::NoOffer)));
    let view = site(Vec::new(), []);
    let offered = machine_offers(&view, &waiting(None).spec, "", &[0], &there, 10);
    let sizes: Vec<u32> = offered.iter().map(|offer| offer.node.cpus).collect();
    assert_eq!(sizes, [1, 1], "what is offered has the same size");
    let plan = made(&site(Vec::new(), [waiting(Some(root.clone()))]), &there);
    assert_eq!(answer(&plan, 1), Some(&MachineAnswer::NoOffer), "no root in pods of this source");
    there.sources[0].makes_root_pods = true;
    let plan = made(&site(Vec::new(), [waiting(Some(root))]), &there);
    assert_eq!(plan.orders.len(), 1, "{plan:?}");
}

#[test]
fn machines_that_could_be_made_are_offered_by_their_price() {
    let view = site(Vec::new(), []);
    let offered = |waiting: PendingJob| {
        let found = machine_offers(&view, &waiting.spec, "", &[0], &there(), 10);
        found.iter().map(|offer| offer.node.name.clone()).collect::<Vec<_>>()
    };
    assert_eq!(offered(job(1)), ["cloud:small", "cloud:large"]);
    assert_eq!(offered(job(1).cpus(4)), ["cloud:large"]);
    assert!(offered(job(1).cpus(9)).is_empty());
}

#[test]
fn constraint_chooses_the_type_of_a_machine() {
    let table = [("large", "large for 1"), ("on-demand", "small for 1"), ("spot", "")];
    for (words, expected) in table {
        let constraint = Constraint::parse(words).expect("a constraint");
        let waiting = job(1).asking(|request| request.constraint = Some(constraint));
        assert_eq!(orders(&made(&site(Vec::new(), [waiting]), &there())), expected, "{words}");
    }
}

#[test]
fn fleet_makes_instances_of_its_own_kind_up_to_its_most() {
    let cloud = CloudFleet {
        min: 0,
        target: 0,
        target_reached: false,
        max: Some(1),
        choice: Default::default(),
        price_max: None,
        bounds: OfferBounds { cpus: Some(Range::at_least(4)), ..OfferBounds::default() },
        blocks: Blocks::Auto,
        options: Default::default(),
    };
    let pool = FleetPool { name: "main".into(), machines: 0, cloud };
    let mut there = there();
    there.sources[0].fleet = Some(Arc::new(pool));
    there.sources[0].features = vec!["fleet-main".into()];
    let view = site(Vec::new(), [job(1), job(2).cpus(8)]);
    let plan = made(&view, &there);
    assert_eq!(orders(&plan), "large for 1", "no small one");
    assert_eq!(plan.orders[0].fleet.as_deref(), Some("main"));
    let most = HoldCause::Fleet { fleet: "main".into(), most: 1 };
    assert_eq!(held(&plan, 2), Some(most));
    let other = site(Vec::new(), [job(1)]).with_main(|main| main.name = "other".into());
    assert_eq!(made(&other, &there), MachinePlan::default(), "it is of another fleet");
}

#[test]
fn fleet_has_as_many_instances_at_once_as_the_limits_of_its_source_let_it() {
    let cloud = CloudFleet {
        min: 0,
        target: 0,
        target_reached: false,
        max: None,
        choice: Default::default(),
        price_max: None,
        bounds: OfferBounds::default(),
        blocks: Blocks::Auto,
        options: Default::default(),
    };
    let mut there = there();
    there.room = u32::MAX;
    let cheapest = there.sources[0].offers.iter().map(|offer| offer.price).min();
    let cheapest = cheapest.expect("an offer");
    let source = &mut there.sources[0];
    source.fleet = Some(Arc::new(FleetPool { name: "main".into(), machines: 0, cloud }));
    (source.machines, source.price_hour) = (0, Price::default());
    (source.machines_max, source.price_hour_max, source.budget_left) = (1_000, None, None);
    let count = |there: &MachineView, wanted| fleet_orders(there, "main", wanted).len();
    assert_eq!([0, 7, u32::MAX].map(|wanted| count(&there, wanted)), [0, 7, 1_000]);
    there.sources[0].price_hour_max = Some(Price::from_units(cheapest.units() * 5));
    assert_eq!([3, 5, 9].map(|wanted| count(&there, wanted)), [3, 5, 5]);
    there.sources[0].budget_left = Some(cheapest.for_time(Duration::from_secs(2 * 3600)));
    assert_eq!(count(&there, 9), 2);
    there.sources[0].machines = 1_000;
    assert_eq!(count(&there, 9), 0);
}

#[test]
fn budget_of_an_account_holds_back_its_own_jobs_alone() {
    let of = |id: u32, account: &str| job(id).cpus(8).with(|w| w.account = account.into());
    let view =
        site(Vec::new(), [of(1, "physics"), of(2, "physics"), of(3, "biology"), of(4, "physics")]);
    let mut there = there();
    let (month, left) = (Cost::from_dollars(100.0), Cost::from_dollars(5.0));
    let budget = AccountBudget { month: month.expect("money"), left: left.expect("money") };
    there.budgets.insert("physics".into(), budget);
    let plan = made(&view, &there);
    assert_eq!(orders(&plan), "large for 1, large for 3");
    let spent = HoldCause::AccountBudget { account: "physics".into(), month: budget.month };
    assert_eq!(held(&plan, 2), Some(spent.clone()));
    assert_eq!(held(&plan, 4), Some(spent));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    /// For any queue, offers and limits: no limit is passed, the cheapest offer that holds a job alone is the first that is
    /// ordered, and when the machines are on their way no further one is asked for.
    #[test]
    fn machines_stay_within_all_limits_and_are_asked_for_once(
        cpus in proptest::collection::vec(1u32..=16, 1..24),
        sizes in proptest::collection::vec((1u32..=16, 1u32..=40), 1..8),
        machines_max in 1u32..=12,
        hour in 1u32..=100,
        budget in 1u32..=100,
    ) {
        let jobs = (1..).zip(&cpus).map(|(id, cpus)| job(id).cpus(*cpus));
        let view = site(Vec::new(), jobs);
        let offers = sizes.iter().enumerate().map(|(at, (cpus, dimes))| {
            offer(&format!("o{at}"), *cpus, f64::from(*dimes) / 10.0)
        });
        let mut there = there();
        let of = &mut there.sources[0];
        of.offers = Arc::new(offers.collect());
        of.machines_max = machines_max;
        of.price_hour_max = Price::from_dollars(f64::from(hour) / 4.0);
        of.budget_left = Cost::from_dollars(f64::from(budget) / 4.0);
        let first = made(&view, &there);
        let total: Price = first.orders.iter().map(|order| order.offer.price).sum();
        let source = &there.sources[0];
        prop_assert!(first.orders.len() as u32 <= machines_max);
        prop_assert!(Some(total) <= source.price_hour_max);
        prop_assert!(Some(total.for_time(Duration::from_secs(3600))) <= source.budget_left);
        let mut owners: Vec<JobId> = first.orders.iter().filter_map(|order| order.job).collect();
        owners.dedup();
        prop_assert_eq!(owners.len(), first.orders.len(), "one machine for one job");
        if let Some(order) = first.orders.first() {
            let needed = cpus[order.job.expect("a job").0 as usize - 1];
            let holding = source.offers.iter().filter(|offer| offer.cpus >= needed);
            prop_assert_eq!(Some(order.offer.price), holding.map(|offer| offer.price).min());
        }
        let mut later = there.clone();
        later.coming = coming(&first);
        later.sources[0].machines = first.orders.len() as u32;
        later.sources[0].price_hour = total;
        let hour = total.for_time(Duration::from_secs(3600));
        later.sources[0].budget_left = source.budget_left.map(|left| left.less(hour));
        prop_assert_eq!(orders(&made(&view, &later)), "");
    }
}

#[test]
fn limits_of_a_source_hold_it_back_and_say_so() {
    let view = site(Vec::new(), [job(1).cpus(8), job(2).cpus(8), job(3).cpus(8)]);
    type Set = fn(&mut MachineView);
    let table: [(Set, HoldCause); 5] = [
        (|there| there.sources[0].machines = 3, HoldCause::Machines { most: 4 }),
        (
            |there| there.sources[0].price_hour_max = Some(price(4.0)),
            HoldCause::PriceHour { most: price(4.0) },
        ),
        (|there| there.sources[0].budget_left = Cost::from_dollars(7.9), HoldCause::Budget),
        (|there| there.room = 1, HoldCause::NodeCount),
        (|there| there.sources[0].machines_max = 1, HoldCause::Machines { most: 1 }),
    ];
    for (set, expected) in table {
        let mut there = there();
        set(&mut there);
        let plan = made(&view, &there);
        assert_eq!(orders(&plan), "large for 1", "{expected:?}");
        assert_eq!(held(&plan, 2).as_ref(), Some(&expected));
        assert_eq!(held(&plan, 3), Some(expected), "an equal job has the same answer");
    }
}

#[test]
fn failed_offer_is_passed_over_and_a_failed_source_is_left_alone() {
    let view = site(Vec::new(), [job(1)]);
    let pause = |offer: Option<&str>, kind| SourcePause {
        offer: offer.map(str::to_owned),
        kind,
        text: "said so".into(),
        until: NOW,
    };
    let mut offer_failed = there();
    offer_failed.sources[0].failed = vec![pause(Some("small"), FailureKind::NoCapacity)];
    assert_eq!(orders(&made(&view, &offer_failed)), "large for 1");
    let mut all_failed = there();
    let refused = pause(None, FailureKind::Refused);
    all_failed.sources[0].failed = vec![refused.clone()];
    let plan = made(&view, &all_failed);
    assert_eq!(orders(&plan), "");
    assert_eq!(held(&plan, 1), Some(refused.cause()));
}

#[test]
fn nothing_is_made_for_jobs_that_machines_could_not_start() {
    let table: [(&str, PendingJob, Option<MachineAnswer>); 4] = [
        ("held", job(1).with(|w| w.hold = Some(model::run::Hold::User)), None),
        ("dependent", job(1).with(|w| w.dependency = DependencyState::Waiting), None),
        ("too large", job(1).cpus(64), Some(MachineAnswer::NoOffer)),
        ("without GPUs", job(1).gpus(Per::Node, 1), Some(MachineAnswer::NoOffer)),
    ];
    for (what, waiting, expected) in table {
        let plan = made(&site(Vec::new(), [waiting]), &there());
        assert_eq!((orders(&plan).as_str(), answer(&plan, 1)), ("", expected.as_ref()), "{what}");
    }
    let closed = cluster(Vec::new()).with_jobs([job(1)]);
    assert_eq!(made(&closed, &there()), MachinePlan::default(), "its partition takes none in");
}

#[test]
fn job_that_names_its_nodes_is_told_that_no_machine_is_made_for_it() {
    let node = NodeConfig::plain("own", 8, Bytes::from_gib(64));
    let mut view = site(vec![node], [job(1).cpus(8).for_min(60)]);
    let plan = view.plan();
    view.carry_out(&plan);
    view.queue.clear();
    let named = job(2).cpus(8).asking(|request| request.node_list = vec!["own".to_owned()]);
    let plan = made(&view.with_jobs([named, job(3).cpus(8)]), &there());
    assert_eq!(answer(&plan, 2), Some(&MachineAnswer::Bound));
    assert_eq!(orders(&plan), "large for 3");
}

#[test]
fn machine_of_a_project_takes_its_jobs_alone_and_explain_says_so() {
    let source = Source { project: Some("vision".into()), ..source() };
    let machine = offer("small", 2, 1.0).node_of(source.reference(), "c0", &[]);
    let of = |id: u32, account: &str| job(id).with(|waiting| waiting.account = account.into());
    // The same request in two projects, and of nobody's: the machine is idle, and the own node is small.
    let jobs = [of(1, "speech"), of(2, ""), of(3, "vision")].map(|job| job.cpus(2));
    let view = cluster(vec![NodeConfig::plain("n1", 1, Bytes::from_gib(4)), machine]);
    let view = view.with_jobs(jobs);
    let plan = view.plan();
    let started: Vec<u32> = plan.starts.iter().map(|start| start.job.0).collect();
    assert_eq!(started, [3]);
    let offered = |project: &str| offers(&view, &view.queue[0].spec, project, &[0]).len();
    assert_eq!((offered("speech"), offered("vision")), (0, 1));
    let memo = &mut crate::Memo::default();
    let explained = crate::query::explain::explain(&view, NOW, memo, JobId(1)).expect("it waits");
    let other = explained.classes.iter().find(|class| class.nodes == ["c0"]).expect("its class");
    assert_eq!(other.never, Some(NeverFits::OtherProject));
}

#[test]
fn source_of_a_project_makes_machines_for_its_jobs_alone() {
    let mut there = there();
    there.sources[0].project = Some("vision".into());
    let of = |id: u32, account: &str| job(id).with(|waiting| waiting.account = account.into());
    let view = site(Vec::new(), [of(1, "speech"), of(2, "vision"), of(3, "")]);
    let plan = made(&view, &there);
    assert_eq!(orders(&plan), "small for 2");
    assert_eq!((answer(&plan, 1), answer(&plan, 3)), (None, None), "it is not there for them");
    // Beside one for everybody, of higher prices, each job has what is there for it.
    let offers = Arc::new(vec![offer("dear", 2, 9.0)]);
    there.sources.push(Source { name: "all".into(), offers, ..source() });
    let view = site(Vec::new(), [of(1, "speech"), of(2, "vision")].map(|job| job.cpus(2)));
    assert_eq!(orders(&made(&view, &there)), "dear for 1, small for 2");
}
