//! Steps of one job beside each other: what each takes, which waits, and what never can be.

use crate::job_builder::{Ask, alice, ask, bob};
use crate::testbed::{World, exited, world, world_with};
use cluster::Command;
use cluster::command::{AttemptReport, StepPlacement, StepRequest};
use model::amount::Bytes;
use model::bounds;
use model::id::{AttemptId, StepId};
use model::partition::OverSubscribe;
use model::range::Range;
use model::reason::Refusal;
use model::request::{DeviceMake, GresRequest, Memory, Per, Request, Sharing};
use model::run::Usage;
use model::step::{StepRefusal, StepShape, TaskDistribution};
use proptest::prelude::*;

fn exact(tasks: u32) -> StepRequest {
    let shape = StepShape { exact: true, ..StepShape::default() };
    StepRequest { tasks: Some(tasks), nodes: Some(1), shape, ..StepRequest::default() }
}

fn with(mut ask: StepRequest, set: impl FnOnce(&mut StepRequest)) -> StepRequest {
    set(&mut ask);
    ask
}

fn gpus(per: Per, count: u64) -> Option<Vec<GresRequest>> {
    let name = "gpu".into();
    let count = Range::exactly(count);
    Some(vec![GresRequest {
        per,
        name,
        kinds: Vec::new(),
        by_model: false,
        make: DeviceMake::default(),
        count,
        device_memory: None,
        total_memory: None,
    }])
}

/// One node, four CPUs with 100 MiB each, two GPUs.
fn four_cpus(w: &mut World) -> AttemptId {
    let asked: Ask = ask().cpus(4).gpus(2);
    w.started(asked.asking(|r| r.memory = Memory::PerCpu(Bytes::from_mib(100))))
}

fn try_step(
    w: &mut World,
    attempt: AttemptId,
    ask: StepRequest,
) -> Result<StepPlacement, StepRefusal> {
    let command = Command::CreateStep { job: attempt.job, ask: Box::new(ask) };
    match w.try_as(alice(), command) {
        Ok(cluster::Reply::Step(placed)) => Ok(placed),
        Err(Refusal::Step(why)) => Err(why),
        other => panic!("a step is answered with {other:?}"),
    }
}

fn end(w: &mut World, attempt: AttemptId, placed: &StepPlacement) {
    for (share, _) in &placed.nodes {
        let (exit, usage) = (exited(0), Usage::default());
        let what = AttemptReport::StepEnded { step: placed.step, exit, usage, oom: false };
        w.report(&share.node, attempt, what);
    }
}

fn cpus(placed: &StepPlacement) -> String {
    placed.nodes.iter().map(|(s, _)| s.cpus.to_string()).collect::<Vec<_>>().join(" ")
}

#[test]
fn plain_step_takes_all_cpus_and_the_next_waits_for_its_end() {
    let mut w = world(1);
    let job = four_cpus(&mut w);
    let first = w.step(job.job, StepRequest { tasks: Some(1), ..StepRequest::default() });
    let share = &first.nodes[0].0;
    assert_eq!(
        (share.cpus.len(), share.memory, share.gres_count("gpu")),
        (4, Bytes::from_mib(400), 2)
    );
    let next = || StepRequest { tasks: Some(1), ..StepRequest::default() };
    assert_eq!(try_step(&mut w, job, next()), Err(StepRefusal::Busy));
    assert_eq!(try_step(&mut w, job, exact(1)), Err(StepRefusal::Busy));
    assert!(w.state.step_waits(job.job, &next()));
    end(&mut w, job, &first);
    assert!(!w.state.step_waits(job.job, &next()));
    assert!(try_step(&mut w, job, next()).is_ok());
}

#[test]
fn exact_steps_run_side_by_side_until_no_cpu_is_free() {
    let mut w = world(1);
    let job = four_cpus(&mut w);
    let no_gpu = |tasks| with(exact(tasks), |a| a.shape.gres = Some(Vec::new()));
    let first = try_step(&mut w, job, no_gpu(2)).expect("room");
    let second = try_step(&mut w, job, no_gpu(2)).expect("room");
    assert_eq!((cpus(&first), cpus(&second)), ("0-1".into(), "2-3".into()));
    assert_eq!(second.nodes[0].0.memory, Bytes::from_mib(200));
    assert_eq!(try_step(&mut w, job, no_gpu(1)), Err(StepRefusal::Busy));
    let over = with(no_gpu(1), |a| a.shape.overlap = true);
    assert!(try_step(&mut w, job, over).is_ok(), "one that overlaps never waits");
    assert_eq!(try_step(&mut w, job, no_gpu(1)), Err(StepRefusal::Busy));
    end(&mut w, job, &first);
    assert_eq!(cpus(&try_step(&mut w, job, no_gpu(1)).expect("room again")), "0");
    let all = StepRequest { tasks: Some(1), ..StepRequest::default() };
    assert_eq!(try_step(&mut w, job, all), Err(StepRefusal::Busy), "all CPUs, or none yet");
}

#[test]
fn steps_do_not_share_devices_and_memory() {
    let mut w = world(1);
    let job = four_cpus(&mut w);
    let one_gpu = || with(exact(1), |a| a.shape.gres = gpus(Per::Node, 1));
    let first = try_step(&mut w, job, one_gpu()).expect("a GPU");
    let second = try_step(&mut w, job, one_gpu()).expect("the other");
    let index = |placed: &StepPlacement| placed.nodes[0].0.gres[0].indices.clone();
    assert_eq!((index(&first), index(&second)), (vec![0], vec![1]));
    assert_eq!(try_step(&mut w, job, one_gpu()), Err(StepRefusal::Busy));
    assert_eq!(try_step(&mut w, job, exact(1)), Err(StepRefusal::Busy), "unsaid is all of them");
    end(&mut w, job, &first);
    end(&mut w, job, &second);
    let memory = |mib| {
        with(exact(1), |a| {
            a.shape.gres = Some(Vec::new());
            a.shape.memory = Some(Memory::PerNode(Range::exactly(Bytes::from_mib(mib))));
        })
    };
    let most = try_step(&mut w, job, memory(350)).expect("memory");
    assert_eq!(try_step(&mut w, job, memory(51)), Err(StepRefusal::Busy));
    assert!(try_step(&mut w, job, memory(50)).is_ok());
    end(&mut w, job, &most);
    let per_task = with(exact(2), |a| a.shape.gres = gpus(Per::Task, 1));
    assert_eq!(try_step(&mut w, job, per_task).expect("two").nodes[0].0.gres[0].indices, [0, 1]);
}

/// A job with whole nodes, and so with both GPUs of each, that asked for so many.
fn exclusive(per: Per, count: u64, set: impl FnOnce(&mut Request)) -> Ask {
    ask().asking(|r| {
        (r.sharing, r.gres) = (Sharing::Node, gpus(per, count).expect("some"));
        set(r);
    })
}

#[test]
fn step_of_a_job_with_whole_nodes_gets_the_devices_that_the_job_asked_for() {
    let mut w = world(2);
    let devices = |w: &mut World, job: AttemptId, ask: StepRequest| {
        let placed = try_step(w, job, ask).expect("it fits");
        placed.nodes.iter().map(|(share, _)| share.gres_count("gpu")).sum::<u64>()
    };
    let unsaid = || with(exact(1), |a| a.shape.overlap = true);
    for (what, asked, nodes, expected) in [
        ("one of a node", exclusive(Per::Node, 1, |_| {}), 1, 1),
        ("none", exclusive(Per::Node, 1, |r| r.gres.clear()), 1, 0),
        ("two in all", exclusive(Per::Job, 2, |_| {}), 1, 2),
        ("three in all, of two nodes", exclusive(Per::Job, 3, |_| {}).nodes(2), 2, 3),
        ("one for each of two tasks", exclusive(Per::Task, 1, |r| r.tasks = Some(2)), 1, 2),
        ("one of a socket", exclusive(Per::Socket, 1, |r| r.sockets_per_node = Some(1)), 1, 1),
    ] {
        let job = w.started(asked);
        let first = &w.job(job.job).attempt().expect("runs").allocation.nodes[0];
        assert_eq!(first.gres_count("gpu"), 2, "the job has all of the node's: {what}");
        let step = with(unsaid(), |a| (a.tasks, a.nodes) = (Some(nodes), Some(nodes)));
        assert_eq!(devices(&mut w, job, step), expected, "{what}");
        let own = with(unsaid(), |a| a.shape.own = true);
        assert_eq!(devices(&mut w, job, own), expected.min(2), "srun's own job: {what}");
        let all = with(unsaid(), |a| a.shape.gres = gpus(Per::Node, 2));
        assert_eq!(devices(&mut w, job, all), 2, "those not asked for are there too: {what}");
        let session = with(unsaid(), |a| a.joins_script = true);
        assert_eq!(devices(&mut w, job, session), 2, "what the script has: {what}");
        w.end(job.job, 0);
    }
}

#[test]
fn steps_of_a_job_with_whole_nodes_do_not_share_devices() {
    let mut w = world_with(1, |c| c.partitions[0].over_subscribe = OverSubscribe::Exclusive);
    let job = w.started(ask().gpus(1));
    let plain = || with(exact(1), |a| a.shape.memory = Some(Memory::PerCpu(Bytes(1))));
    let first = try_step(&mut w, job, plain()).expect("a GPU");
    let second = try_step(&mut w, job, plain()).expect("another");
    let index = |placed: &StepPlacement| placed.nodes[0].0.gres[0].indices.clone();
    assert_eq!((index(&first), index(&second)), (vec![0], vec![1]));
    assert_eq!(try_step(&mut w, job, plain()), Err(StepRefusal::Busy));
    end(&mut w, job, &first);
    assert_eq!(index(&try_step(&mut w, job, plain()).expect("free again")), [0]);
}

#[test]
fn step_that_asks_for_more_than_its_job_has_is_refused() {
    let mut w = world(1);
    let job = four_cpus(&mut w);
    let busy = try_step(&mut w, job, StepRequest::default()).expect("all of it");
    assert_eq!(busy.nodes[0].1, [0]);
    let gres = |per, count| with(exact(1), |a| a.shape.gres = gpus(per, count));
    let kind = with(gres(Per::Node, 1), |a| {
        let gres = a.shape.gres.as_mut().expect("asked");
        gres[0].kinds = vec!["a100".into()];
    });
    let memory = |m| with(exact(1), |a| a.shape.memory = Some(m));
    let mib = |mib| Bytes::from_mib(mib);
    let table = [
        (exact(5), StepRefusal::Processors { asked: 5, most: 4 }),
        (
            with(exact(1), |a| a.nodes = Some(2)),
            StepRefusal::Nodes { asked: 2, most: 1, excluded: false },
        ),
        (with(exact(1), |a| a.shape.exclude = vec!["n1".into()]), StepRefusal::NoNodes),
        (
            with(exact(1), |a| a.shape.relative = Some(1)),
            StepRefusal::Relative { first: 1, asked: 1, most: 1 },
        ),
        (gres(Per::Node, 3), StepRefusal::GresPerNode { name: "gpu".into(), asked: 3, most: 2 }),
        (gres(Per::Job, 5), StepRefusal::Gres { name: "gpu".into(), asked: 5, most: 2 }),
        (kind, StepRefusal::GresUnknown { name: "gpu:a100".into() }),
        (
            memory(Memory::PerNode(Range::exactly(mib(500)))),
            StepRefusal::Memory { asked_mib: 500, most_mib: 400 },
        ),
        (memory(Memory::PerCpu(mib(401))), StepRefusal::Memory { asked_mib: 401, most_mib: 400 }),
    ];
    for (ask, why) in table {
        let shown = format!("{ask:?}");
        assert_eq!(try_step(&mut w, job, ask), Err(why), "{shown}");
    }
}

#[test]
fn step_prefers_named_nodes_then_idle_nodes() {
    let mut w = world(3);
    let job = w.started(ask().nodes(3).cpus(2));
    let nodes = |placed: &StepPlacement| {
        placed.nodes.iter().map(|(s, _)| s.node.clone()).collect::<Vec<_>>().join(" ")
    };
    let no_memory = |tasks| with(exact(tasks), |a| a.shape.memory = Some(Memory::PerCpu(Bytes(1))));
    for expected in ["n1", "n2", "n3", "n1"] {
        assert_eq!(nodes(&try_step(&mut w, job, no_memory(1)).expect("room")), expected);
    }
    let named = with(no_memory(1), |a| a.node_list = vec!["n3".into()]);
    assert_eq!(nodes(&try_step(&mut w, job, named.clone()).expect("room")), "n3");
    assert_eq!(try_step(&mut w, job, named), Err(StepRefusal::Busy), "n2 is not meant");
    let both = with(no_memory(2), |a| {
        (a.nodes, a.node_list) = (Some(2), vec!["n3".into()]);
    });
    assert_eq!(try_step(&mut w, job, both), Err(StepRefusal::Busy), "not without n3");
    let listed = with(StepRequest::default(), |a| {
        a.shape.overlap = true;
        a.shape.distribution = Some(TaskDistribution::Arbitrary);
        a.node_list = ["n3", "n1", "n3"].map(String::from).to_vec();
    });
    let placed = try_step(&mut w, job, listed).expect("named rank by rank");
    let ranks: Vec<_> = placed.nodes.iter().map(|(s, r)| (s.node.as_str(), r.clone())).collect();
    assert_eq!(ranks, [("n1", vec![1]), ("n3", vec![0, 2])]);
    let from_second = with(exact(2), |a| {
        (a.nodes, a.shape.overlap, a.shape.relative) = (Some(2), true, Some(1));
    });
    assert_eq!(nodes(&try_step(&mut w, job, from_second).expect("nodes 1 and 2")), "n2 n3");
}

#[test]
fn step_request_with_a_known_ticket_gets_the_existing_step() {
    let mut w = world(1);
    let job = four_cpus(&mut w);
    let asks = || with(StepRequest::default(), |a| a.shape.ticket = 77);
    let first = try_step(&mut w, job, asks()).expect("alone");
    let again = try_step(&mut w, job, asks()).expect("the same");
    assert_eq!((again.step, again.known), (first.step, true));
    assert_eq!(again.nodes, first.nodes);
    end(&mut w, job, &first);
    assert_eq!(try_step(&mut w, job, asks()).expect("a new one").step, StepId::Number(1));
}

#[test]
fn only_the_owner_creates_steps_and_only_in_a_running_job() {
    let mut w = world(1);
    let job = four_cpus(&mut w).job;
    let create = |job| Command::CreateStep { job, ask: Box::default() };
    assert_eq!(w.try_as(bob(), create(job)), Err(Refusal::AccessDenied));
    let waiting = w.submit(ask().cpus(8));
    assert_eq!(w.try_as(alice(), create(waiting)), Err(Refusal::JobNotRunning(waiting)));
    w.end(job, 0);
    assert_eq!(w.try_as(alice(), create(job)), Err(Refusal::JobEnded(job)));
}

/// Steps come and go in one job; that they share nothing is looked at after every event (`invariants`).
fn shapes() -> impl Strategy<Value = StepRequest> {
    let counts = (0..6_u32, 0..4_u32, 1..4_u32);
    let flags = (any::<bool>(), prop::bool::weighted(0.2), 0..4_u64, 0..3_u64);
    (counts, flags).prop_map(|((tasks, nodes, cpus), (exact, overlap, gpu, memory))| StepRequest {
        tasks: Some(tasks).filter(|t| *t > 0),
        nodes: Some(nodes).filter(|n| *n > 0),
        cpus_per_task: Some(cpus).filter(|c| *c > 1),
        shape: StepShape {
            exact,
            overlap,
            gres: match gpu {
                0 => None,
                1 => Some(Vec::new()),
                more => gpus(if more == 2 { Per::Node } else { Per::Task }, 1),
            },
            memory: (memory > 0).then(|| Memory::PerCpu(Bytes::from_mib(memory * 40))),
            ..StepShape::default()
        },
        ..StepRequest::default()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn steps_never_hold_more_than_their_job(
        moves in prop::collection::vec((any::<bool>(), any::<prop::sample::Index>(), shapes()), 1..40)
    ) {
        let mut w = world(2);
        let asked = ask().nodes(2).cpus(4).gpus(2);
        let asked = asked.asking(|r| r.memory = Memory::PerCpu(Bytes::from_mib(100)));
        let job = w.started(asked);
        let mut running: Vec<StepPlacement> = Vec::new();
        for (ends, which, ask) in moves {
            if ends && !running.is_empty() {
                let placed = running.swap_remove(which.index(running.len()));
                end(&mut w, job, &placed);
            } else if let Ok(placed) = try_step(&mut w, job, ask.clone()) {
                let tasks: usize = placed.nodes.iter().map(|(_, ranks)| ranks.len()).sum();
                prop_assert!(ask.tasks.is_none_or(|asked| asked as usize == tasks));
                running.push(placed);
            }
        }
        // When all have ended, nothing is left behind.
        for placed in running {
            end(&mut w, job, &placed);
        }
        prop_assert!(try_step(&mut w, job, StepRequest::default()).is_ok());
    }
}

#[test]
fn gres_of_a_step_are_bounded_and_a_node_may_be_named_again_and_again() {
    let mut w = world(1);
    let attempt = four_cpus(&mut w);
    let many = gpus(Per::Node, 1).map(|one| vec![one[0].clone(); bounds::REQUEST_KINDS.most + 1]);
    let ask = with(exact(1), |a| a.shape.gres = many);
    let command = Command::CreateStep { job: attempt.job, ask: Box::new(ask) };
    let refused = w.try_as(alice(), command).map(drop);
    assert!(matches!(refused, Err(Refusal::InvalidValue { .. })), "{refused:?}");
    let node = w.state.jobs[&attempt.job].attempt().expect("runs").held_nodes[0].clone();
    let named = with(exact(1), |a| a.node_list = vec![node.clone(); 1000]);
    assert_eq!(try_step(&mut w, attempt, named).expect("it is there").nodes.len(), 1);
    let excluded = with(exact(1), |a| a.shape.exclude = vec![node; 1000]);
    assert_eq!(try_step(&mut w, attempt, excluded), Err(StepRefusal::NoNodes));
}
