//! The state machine with a large cluster and a long queue: what a submit costs, and a plan with the
//! view it is made from, after one job has ended.
//!
//! `cargo run --release -p cluster --example cluster_scale [nodes] [jobs]`

#![allow(
    clippy::disallowed_methods,
    reason = "a benchmark reads the clock, its arguments and its own memory"
)]

#[path = "../tests/state_machine/job_builder.rs"]
#[allow(dead_code)]
mod job_builder;

use cluster::command::AttemptReport;
use cluster::view::builder::ViewBuilder;
use cluster::{ClusterConfig, Command, Context, State};
use job_builder::{ask, root, user};
use model::amount::Bytes;
use model::node::{NodeConfig, NodeGres};
use model::partition::Partition;
use model::principal::Principal;
use model::range::Range;
use model::request::{DeviceMake, GresRequest, Per, Request};
use model::run::{Component, ExitStatus, Usage};
use model::time::{TimeLimit, Timestamp};
use std::sync::Arc;
use std::time::{Duration, Instant};

const START: Timestamp = Timestamp::from_secs(1_800_000_000);
const SHAPES: u32 = 200;
const USERS: u32 = 1_000;
const ROUNDS: u64 = 100;

struct World {
    state: State,
    now: Timestamp,
    random: u128,
}

impl World {
    fn run(&mut self, by: Principal, command: Command) {
        self.random += 1;
        let context = Context { now: self.now, random: self.random, by };
        let decision = self.state.decide(&command, &context).expect("taken");
        for event in decision.events {
            self.state.apply(&event);
        }
    }
}

fn node(at: u32) -> NodeConfig {
    let mut node = NodeConfig::plain(&format!("node{at:05}"), 64, Bytes::from_gib(1_024));
    (node.sockets, node.cores_per_socket) = (2, 32);
    let kind = ["h100", "h200", "a100", "b200"][(at % 4) as usize];
    node.gres = vec![NodeGres::plain("gpu", Some(kind), 8)];
    node
}

/// One of the shapes: a fifth on several nodes.
fn shape(at: u32, like: &Request) -> Request {
    let several = at.is_multiple_of(5);
    Request {
        nodes: Range::exactly(if several { 2 << (at % 4) } else { 1 }),
        nodes_given: several,
        gres: vec![GresRequest {
            per: Per::Node,
            name: "gpu".into(),
            kinds: Vec::new(),
            count: Range::exactly(if several { 8 } else { 1 << (at % 4) }),
            by_model: false,
            make: DeviceMake::default(),
            device_memory: None,
            total_memory: None,
        }],
        time_limit: Some(TimeLimit::Minutes(30 + 10 * at)),
        ..like.clone()
    }
}

fn said(what: &str, began: Instant, count: u64) {
    let each = began.elapsed().as_secs_f64() * 1e3 / count as f64;
    println!("{what}: {each:.3} ms each of {count}");
}

fn main() {
    let argument = |at| std::env::args().nth(at).and_then(|text| text.parse::<u32>().ok());
    let (nodes, jobs) = (argument(1).unwrap_or(10_000), argument(2).unwrap_or(100_000));
    let names: Vec<String> = (0..nodes).map(|at| format!("node{at:05}")).collect();
    let mut main = Partition::over("main", names.clone());
    main.default = true;
    let mut config = ClusterConfig {
        nodes: (0..nodes).map(node).collect(),
        partitions: vec![main],
        ..ClusterConfig::default()
    };
    config.parameters.max_job_count = 1_000_000;
    let mut world = World { state: State::default(), now: START, random: 0 };
    world.run(root(), Command::StartTerm { term: 1 });
    world.run(root(), Command::Configure(Box::new(config)));
    let began = Instant::now();
    for node in names {
        world.run(root(), Command::NodeHello { node, facts: Box::default(), held: Vec::new() });
    }
    said("a node says hello", began, u64::from(nodes));
    let began = Instant::now();
    for at in 0..jobs {
        let mut submit = ask().0;
        let owner = user(&format!("user{}", at % USERS), 1_000 + at % USERS);
        submit.spec.owner = Arc::new(owner.clone());
        let request = shape(at % SHAPES, submit.spec.request());
        submit.spec.components = [Component { request: Arc::new(request) }].into();
        world.run(owner, Command::Submit(Box::new(submit)));
    }
    said("a submit", began, u64::from(jobs));
    let (mut view_builder, mut memo) = (ViewBuilder::default(), sched::Memo::default());
    for what in ["the first plan", "the plan after it"] {
        let began = Instant::now();
        let view = view_builder.view(&world.state, world.now);
        said("  its view", began, 1);
        let plan = sched::plan(&view, world.now, &mut memo);
        said(what, began, 1);
        let began = Instant::now();
        let count = plan.starts.len() as u64;
        for start in plan.starts {
            world.run(root(), Command::Start(Box::new(start)));
        }
        said("  a start", began, count.max(1));
    }
    let mut spent = (Duration::ZERO, Duration::ZERO);
    for round in 1..=ROUNDS {
        world.now = START + Duration::from_secs(round);
        end_one(&mut world, 7 * round as usize);
        let began = Instant::now();
        let view = view_builder.view(&world.state, world.now);
        spent.0 += began.elapsed();
        let plan = sched::plan(&view, world.now, &mut memo);
        spent.1 += began.elapsed();
        for start in plan.starts {
            world.run(root(), Command::Start(Box::new(start)));
        }
    }
    let ms = |spent: Duration| spent.as_secs_f64() * 1e3 / ROUNDS as f64;
    println!(
        "after one job ended: view {:.2} ms, view and plan {:.2} ms",
        ms(spent.0),
        ms(spent.1)
    );
}

fn end_one(world: &mut World, at: usize) {
    let Some(id) = world.state.active.iter().nth(at).copied() else { return };
    let job = world.state.job(id).expect("an active job");
    let attempt = job.attempt_id().expect("an active job");
    let nodes = job.attempt().map(|a| a.held_nodes.clone()).unwrap_or_default();
    for node in nodes {
        let what = AttemptReport::Ended {
            exit: ExitStatus::default(),
            usage: Usage::default(),
            oom: false,
            timed_out: false,
            lost: false,
        };
        let at = world.now;
        world.run(root(), Command::Report { node, attempt, at, what });
    }
}
