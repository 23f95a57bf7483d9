//! The moves of a random history. Each picks among what there is at that moment, so that shrinking
//! one move leaves the others meaningful; a refusal is an answer like any other.

use crate::ask::{Ask, alice, ask, bob, root};
use crate::world::{World, cancel, config, ended, exited};
use cluster::Command;
use cluster::command::{PartReport, StepAsk};
use model::amount::Bytes;
use model::array::IndexSet;
use model::change::{JobChange, JobField, JobRef, NodeChange};
use model::dependency::Dependency;
use model::id::{AttemptId, JobId, StepId};
use model::request::{Patience, Sharing};
use model::run::{ExitStatus, Hold, Usage};
use model::time::TimeLimit;
use proptest::prelude::*;
use std::time::Duration;

#[derive(Debug, Clone)]
pub enum Move {
    Submit(Shape),
    Plan,
    /// A plan that was made before the last few moves comes in late.
    LatePlan,
    Report {
        job: u8,
        node: u8,
        attempt: i8,
        what: u8,
    },
    /// Every part of a running job reports its end.
    End {
        job: u8,
        code: i32,
    },
    Cancel {
        job: u8,
        tasks: Option<(u8, u8)>,
        again: Option<u8>,
    },
    Change {
        job: u8,
        tasks: Option<(u8, u8)>,
        what: u8,
    },
    Hello {
        node: u8,
        held: u8,
    },
    Lost {
        node: u8,
    },
    Node {
        first: u8,
        second: u8,
        what: u8,
    },
    Pass {
        secs: u64,
        booked: bool,
    },
    Configure {
        nodes: u8,
        memory_gib: u64,
    },
    Step {
        job: u8,
        tasks: u32,
        nodes: Option<u32>,
    },
    Relinquish {
        job: u8,
        code: i32,
    },
    HolderLost {
        job: u8,
    },
    /// The server stops; the next reads a snapshot and begins a term of its own.
    Restart,
}

/// What a random submit asks for.
#[derive(Debug, Clone)]
pub struct Shape {
    kind: u8,
    cpus: u32,
    nodes: u32,
    gpus: u64,
    array: Option<(u8, Option<u8>)>,
    dependency: Option<(u8, u8)>,
    patience: u8,
    options: u8,
}

fn shape() -> impl Strategy<Value = Shape> {
    let array = prop::option::weighted(0.35, (1u8..6, prop::option::of(1u8..3)));
    let dependency = prop::option::weighted(0.3, (0u8..8, any::<u8>()));
    (0u8..4, 1u32..5, 1u32..3, 0u64..3, array, dependency, 0u8..12, any::<u8>()).prop_map(
        |(kind, cpus, nodes, gpus, array, dependency, patience, options)| Shape {
            kind,
            cpus,
            nodes,
            gpus,
            array,
            dependency,
            patience,
            options,
        },
    )
}

pub fn moves() -> impl Strategy<Value = Move> {
    let tasks = || prop::option::weighted(0.4, (0u8..6, 0u8..3));
    let any8 = any::<u8>;
    prop_oneof![
        8 => shape().prop_map(Move::Submit),
        8 => Just(Move::Plan),
        1 => Just(Move::LatePlan),
        6 => (any8(), any8(), -1i8..2, 0u8..12)
            .prop_map(|(job, node, attempt, what)| Move::Report { job, node, attempt, what }),
        6 => (any8(), 0i32..2).prop_map(|(job, code)| Move::End { job, code }),
        3 => (any8(), tasks(), prop::option::of(any8()))
            .prop_map(|(job, tasks, again)| Move::Cancel { job, tasks, again }),
        6 => (any8(), tasks(), 0u8..20)
            .prop_map(|(job, tasks, what)| Move::Change { job, tasks, what }),
        4 => (any8(), any8()).prop_map(|(node, held)| Move::Hello { node, held }),
        2 => any8().prop_map(|node| Move::Lost { node }),
        2 => (any8(), any8(), 0u8..8)
            .prop_map(|(first, second, what)| Move::Node { first, second, what }),
        4 => (0u64..400, any::<bool>()).prop_map(|(secs, booked)| Move::Pass { secs, booked }),
        1 => (1u8..16, 2u64..17)
            .prop_map(|(nodes, memory_gib)| Move::Configure { nodes, memory_gib }),
        2 => (any8(), 0u32..6, prop::option::of(0u32..4))
            .prop_map(|(job, tasks, nodes)| Move::Step { job, tasks, nodes }),
        1 => (any8(), 0i32..2).prop_map(|(job, code)| Move::Relinquish { job, code }),
        1 => any8().prop_map(|job| Move::HolderLost { job }),
        1 => Just(Move::Restart),
    ]
}

/// A history under way, and the plan that may still come in late.
pub struct History {
    pub world: World,
    late: Vec<sched::Start>,
}

impl History {
    pub fn of(world: World) -> Self {
        Self { world, late: Vec::new() }
    }

    pub fn make(&mut self, what: &Move) {
        match what {
            Move::Submit(shape) => {
                let ask = self.ask(shape);
                let owner = ask.0.spec.owner.clone();
                let _ = self.world.try_as(owner, Command::Submit(Box::new(ask.0)));
            }
            Move::Plan => {
                self.late = self.world.planned();
                self.world.plan();
            }
            Move::LatePlan => {
                for start in std::mem::take(&mut self.late) {
                    self.by_root(Command::Start(Box::new(start)));
                }
            }
            Move::Pass { secs, booked } => {
                self.world.now = self.world.now + Duration::from_secs(*secs);
                self.by_root(Command::Tick { booked: *booked });
            }
            Move::Configure { nodes, memory_gib } => self.configure(*nodes, *memory_gib),
            Move::Restart => {
                self.world.restart();
                let term = self.world.state.term + 1;
                self.by_root(Command::StartTerm { term });
            }
            Move::Hello { .. } | Move::Lost { .. } | Move::Node { .. } => self.node_move(what),
            _ => self.job_move(what),
        }
    }

    fn by_root(&mut self, command: Command) {
        let _ = self.world.try_as(root(), command);
    }

    fn job_move(&mut self, what: &Move) {
        match what {
            Move::Report { job, node, attempt, what } => {
                self.report(*job, *node, *attempt, *what);
            }
            Move::End { job, code } => {
                let active: Vec<JobId> = self.world.state.active.iter().copied().collect();
                if let Some(id) = pick(&active, *job) {
                    self.world.end(id, *code);
                }
            }
            Move::Cancel { job, tasks, again } => {
                let mut refs = vec![self.job_ref(*job, *tasks)];
                refs.extend(again.map(|other| self.job_ref(other, None)));
                self.by_root(cancel(&refs));
            }
            Move::Change { job, tasks, what } => {
                let job = self.job_ref(*job, *tasks);
                let change = self.change(*what);
                let by = if what % 2 == 0 { root() } else { alice() };
                let _ = self.world.try_as(by, Command::ChangeJob { job, change });
            }
            Move::Step { job, tasks, nodes } => {
                let ask = StepAsk { tasks: Some(*tasks), nodes: *nodes, ..StepAsk::default() };
                self.by_root(Command::CreateStep { job: self.job(*job), ask: Box::new(ask) });
            }
            Move::Relinquish { job, code } => {
                self.by_root(Command::Relinquish { job: self.job(*job), exit: exited(*code) });
            }
            Move::HolderLost { job } => self.by_root(Command::HolderLost { job: self.job(*job) }),
            other => unreachable!("{other:?} is made elsewhere"),
        }
    }

    fn node_move(&mut self, what: &Move) {
        let names: Vec<String> = self.world.state.nodes.keys().cloned().collect();
        match what {
            Move::Hello { node, held } => {
                let Some(name) = pick(&names, *node) else { return };
                let of_node = &self.world.state.nodes[&name];
                let known = of_node.holders.iter().chain(&of_node.stale);
                let strange = AttemptId { job: JobId(u32::from(*held) + 1), number: 1 };
                let held = known
                    .enumerate()
                    .map(|(at, attempt)| (*attempt, (held >> (at % 8)) & 1 == 0))
                    .chain((held % 5 == 0).then_some((strange, true)))
                    .collect();
                self.by_root(Command::NodeHello { node: name, facts: Box::default(), held });
            }
            Move::Lost { node } => {
                if let Some(node) = pick(&names, *node) {
                    self.by_root(Command::NodeLost { node });
                }
            }
            Move::Node { first, second, what } => {
                let nodes = pick(&names, *first).into_iter().chain(pick(&names, *second)).collect();
                let reason = "maintenance".to_string();
                let change = match what {
                    0 | 1 => NodeChange::Down { reason },
                    2 => NodeChange::Drain { reason },
                    3 => NodeChange::Fail { reason },
                    4 => NodeChange::Weight(7),
                    _ => NodeChange::Resume,
                };
                self.by_root(Command::ChangeNode { nodes, change });
            }
            other => unreachable!("{other:?} is made elsewhere"),
        }
    }

    /// Some of four nodes stay in the file; what they have is declared anew.
    fn configure(&mut self, chosen: u8, memory_gib: u64) {
        let names = ["n1", "n2", "n3", "n4"];
        let kept = names.iter().enumerate().filter(|(at, _)| (chosen >> at) & 1 == 1);
        let mut config = config(&kept.map(|(_, name)| *name).collect::<Vec<_>>());
        for node in &mut config.nodes {
            node.memory = Bytes::from_gib(memory_gib);
            node.gres[0].count = 1 + memory_gib % 2;
        }
        config.parameters.return_to_service = (memory_gib % 2) as u8;
        self.by_root(Command::Configure(Box::new(config)));
    }

    fn report(&mut self, job: u8, node: u8, attempt: i8, what: u8) {
        let id = self.job(job);
        let number = self.world.state.jobs.get(&id).map_or(1, |j| j.attempts);
        let attempt = AttemptId { job: id, number: number.saturating_add_signed(attempt.into()) };
        let names: Vec<String> = self.world.state.nodes.keys().cloned().collect();
        let node = pick(&names, node).unwrap_or_else(|| "gone".into());
        let usage = Usage { cpu_user_us: 5, ..Usage::default() };
        let exit = exited(i32::from(what % 2));
        let over = |oom, timed_out, lost| PartReport::Ended { exit, usage, oom, timed_out, lost };
        let what = match what {
            0 => PartReport::LaunchFailed { what: "no such user".into() },
            1 => PartReport::Missing,
            2 | 3 => PartReport::ScriptEnded { exit, oom: false, timed_out: false },
            4 => PartReport::ScriptEnded { exit, oom: false, timed_out: true },
            5 => PartReport::StepEnded { step: StepId::Batch, exit, usage, oom: false },
            6 | 7 => PartReport::StepEnded { step: StepId::Number(0), exit, usage, oom: false },
            8 => over(true, false, false),
            9 => over(false, true, false),
            10 => over(false, false, true),
            _ => ended(exit.code),
        };
        self.by_root(Command::Report { node, attempt, at: self.world.now, what });
    }

    fn ask(&self, shape: &Shape) -> Ask {
        let flag = |bit: u8| (shape.options >> bit) & 1 == 1;
        let mut ask = ask().cpus(shape.cpus).nodes(shape.nodes);
        ask = match shape.kind {
            0 => ask.task(),
            1 => ask.interactive(),
            _ => ask,
        };
        if shape.gpus > 0 {
            ask = ask.gpus(shape.gpus);
        }
        if let (Some((len, throttle)), true) = (shape.array, shape.kind > 1) {
            let throttle = throttle.map(|t| format!("%{t}")).unwrap_or_default();
            ask = ask.array(&format!("0-{}{throttle}", len - 1));
        }
        if let Some((kind, target)) = shape.dependency {
            ask = ask.with(|spec| spec.dependency = Some(self.dependency(kind, target)));
        }
        if flag(0) {
            ask = ask.requeue();
        }
        if flag(1) {
            ask = ask.retry(|r| (r.on_error, r.on_interruption) = (true, true));
        }
        if shape.options % 7 == 0 {
            ask = ask.held(Hold::User);
        }
        let soon = self.world.now + Duration::from_secs(u64::from(shape.options));
        ask.asking(|r| match shape.patience {
            0 => r.patience = Patience::Now,
            1 => r.patience = Patience::Until(soon),
            2 => r.deadline = Some(soon),
            3 => r.begin = Some(soon),
            4 => r.sharing = Sharing::Node,
            5 => r.sharing = Sharing::User,
            _ => {}
        })
        .with(|spec| spec.kill_on_invalid_dependency = flag(2))
        .of(if flag(3) { bob() } else { alice() })
    }

    fn dependency(&self, kind: u8, target: u8) -> Dependency {
        let target = self.job(target);
        let text = match kind {
            0 => format!("after:{target}+1"),
            1 => format!("afterany:{target}"),
            2 => format!("afterok:{target}"),
            3 => format!("afternotok:{target}"),
            4 | 5 => format!("aftercorr:{target}"),
            6 => format!("afterok:{target}_0?singleton"),
            _ => "singleton".to_string(),
        };
        Dependency::parse(&text).expect("a dependency of a test")
    }

    fn change(&self, what: u8) -> JobChange {
        let field = |field| JobChange::Fields(vec![field]);
        match what {
            0 | 1 => JobChange::Hold { by: Hold::Admin },
            2..=4 => JobChange::Release,
            5..=8 => JobChange::Requeue { hold: what % 2 == 0 },
            9 | 10 => JobChange::Suspend,
            11 => JobChange::Resume,
            12 => field(JobField::TimeLimit(TimeLimit::Minutes(5))),
            13 => field(JobField::Name("renamed".into())),
            14 => field(JobField::Priority(0)),
            15 => field(JobField::Priority(17)),
            16 => field(JobField::Nice(100)),
            17 => field(JobField::ArrayThrottle(Some(1))),
            18 => field(JobField::MemoryPerNode(Bytes(u64::MAX))),
            _ => field(JobField::Dependency(None)),
        }
    }

    /// A job of any phase, and now and then one that does not exist.
    fn job(&self, choice: u8) -> JobId {
        let mut known: Vec<JobId> = self.world.state.jobs.keys().copied().collect();
        known.push(JobId(4711));
        pick(&known, choice).unwrap_or(JobId(4711))
    }

    /// A whole job or a few tasks of an array.
    fn job_ref(&self, choice: u8, tasks: Option<(u8, u8)>) -> JobRef {
        let id = self.job(choice);
        let array = self.world.state.jobs.get(&id).and_then(|j| j.task).map_or(id, |t| t.array);
        match tasks {
            None => JobRef::whole(id),
            Some((first, more)) => {
                let (first, last) = (u32::from(first), u32::from(first + more));
                JobRef { id: array, tasks: Some(IndexSet::from_range(first, last)) }
            }
        }
    }
}

fn pick<T: Clone>(among: &[T], choice: u8) -> Option<T> {
    (!among.is_empty()).then(|| among[usize::from(choice) % among.len()].clone())
}

/// The exit of a part that was ended by a signal of ours.
pub fn killed() -> ExitStatus {
    ExitStatus { code: 0, signal: 9 }
}
