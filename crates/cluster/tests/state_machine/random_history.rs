//! How each move of a random history is made. A refusal is an answer like any other.

use crate::job_builder::{Ask, alice, ask, bob, root};
use crate::random_moves::{Move, Shape};
use crate::testbed::{World, cancel, config, ended, exited};
use cluster::Command;
use cluster::command::start_commands;
use cluster::command::{AttemptReport, Preempt, StepRequest};
use model::amount::Bytes;
use model::array::IndexSet;
use model::change::{JobChange, JobField, JobRef, NodeChange, Requeue};
use model::dependency::Dependency;
use model::id::{AttemptId, BlobRef, JobId, StepId};
use model::node::SlotState;
use model::partition::OverSubscribe;
use model::preempt::PreemptMode;
use model::reason::{LaunchFault, UserFault};
use model::request::{Sharing, WaitPolicy};
use model::run::{BlobBytes, Hold, Usage};
use model::time::TimeLimit;
use sched::view::Preemption;
use std::time::Duration;

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
                let owner = (*ask.0.spec.owner).clone();
                let _ = self.world.try_as(owner, Command::Submit(Box::new(ask.0)));
            }
            Move::Plan => {
                self.late = self.world.planned();
                self.world.plan();
            }
            Move::LatePlan => {
                for command in start_commands(std::mem::take(&mut self.late)) {
                    self.by_root(command);
                }
            }
            Move::Pass { secs, booked } => {
                self.world.now = self.world.now + Duration::from_secs(*secs);
                self.by_root(Command::Tick { booked: *booked });
            }
            Move::Configure { nodes, memory_gib, sharing } => {
                self.configure(*nodes, *memory_gib, *sharing);
            }
            Move::Restart => {
                self.world.restart();
                let term = self.world.state.term + 1;
                self.by_root(Command::StartTerm { term });
                let names: Vec<String> = self.world.state.nodes.keys().cloned().collect();
                // One agent is slow to find the new server.
                for node in names.iter().skip(1) {
                    let held = self.world.state.nodes[node].holders.clone();
                    self.world.hello(node, &held);
                }
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
                let by = if job.id.0.is_multiple_of(3) { alice() } else { root() };
                let _ = self.world.try_as(by, Command::ChangeJob { job, change });
            }
            Move::Step { job, tasks, nodes } => {
                let ask =
                    StepRequest { tasks: Some(*tasks), nodes: *nodes, ..StepRequest::default() };
                self.by_root(Command::CreateStep { job: self.running(*job), ask: Box::new(ask) });
            }
            Move::Relinquish { job, code } => {
                self.by_root(Command::Relinquish { job: self.running(*job), exit: exited(*code) });
            }
            Move::ClientLost { job } => self.by_root(Command::ClientLost { job: self.job(*job) }),
            Move::Preempt { job, by, what } => {
                let modes = [PreemptMode::Cancel, PreemptMode::Requeue, PreemptMode::Suspend];
                let preemption = Preemption {
                    victim: self.running(*job),
                    mode: modes[usize::from(*what) % 3],
                    grace_s: if *what < 4 { 0 } else { 100 },
                    by: self.job(*by),
                };
                let planned = self.world.now;
                self.by_root(Command::Preempt(Preempt { preemption, planned }));
            }
            other => unreachable!("{other:?} is made elsewhere"),
        }
    }

    fn node_move(&mut self, what: &Move) {
        let names: Vec<String> = self.world.state.nodes.keys().cloned().collect();
        match what {
            Move::Hello { node, held } => {
                let away = |name: &&String| self.world.state.nodes[*name].slot != SlotState::Up;
                let away: Vec<String> = names.iter().filter(away).cloned().collect();
                let Some(name) = pick(&away, *node).or(pick(&names, *node)) else { return };
                let of_node = &self.world.state.nodes[&name];
                let known = of_node.holders.iter().chain(&of_node.stale);
                let strange = AttemptId { job: JobId(u32::from(*held) + 1), number: 1 };
                let held = known
                    .enumerate()
                    .map(|(at, attempt)| (*attempt, (held >> (at % 8)) & 1 == 0))
                    .chain((held.is_multiple_of(5)).then_some((strange, true)))
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
                    0 => NodeChange::Down { reason },
                    1 | 2 => NodeChange::Drain { reason },
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
    fn configure(&mut self, chosen: u8, memory_gib: u64, sharing: u8) {
        let names = ["n1", "n2", "n3", "n4"];
        let kept = names.iter().enumerate().filter(|(at, _)| (chosen >> at) & 1 == 1);
        let mut config = config(&kept.map(|(_, name)| *name).collect::<Vec<_>>());
        for node in &mut config.nodes {
            node.memory = Bytes::from_gib(memory_gib);
            node.gres[0].count = 1 + memory_gib % 2;
        }
        config.parameters.return_to_service = (memory_gib % 2) as u8;
        let main = &mut config.partitions[0];
        main.exclusive_user = sharing == 3;
        main.over_subscribe = match sharing {
            0 => OverSubscribe::Exclusive,
            1 => OverSubscribe::Force(2),
            _ => OverSubscribe::No,
        };
        self.by_root(Command::Configure(Box::new(config)));
    }

    /// Mostly of a job that runs, mostly from a node that has a part of it.
    fn report(&mut self, job: u8, node: u8, attempt: i8, what: u8) {
        let id = self.running(job);
        let number = self.world.state.jobs.get(&id).map_or(1, |j| j.attempts);
        let attempt = AttemptId { job: id, number: number.saturating_add_signed(attempt.into()) };
        let names: Vec<String> = self.world.state.nodes.keys().cloned().collect();
        let active = self.world.state.jobs.get(&id).and_then(|j| j.attempt());
        let parts = active.filter(|_| !node.is_multiple_of(4)).map(|a| a.held_nodes.clone());
        let among = parts.as_deref().unwrap_or(&names);
        let node = pick(among, node / 4).unwrap_or_else(|| "gone".into());
        let usage = Usage { cpu_user_us: 5, ..Usage::default() };
        let exit = exited(i32::from(what % 2));
        let over = |oom, timed_out, lost| AttemptReport::Ended {
            exit,
            usage: usage.clone(),
            oom,
            timed_out,
            lost,
        };
        let what = match what {
            0 => AttemptReport::LaunchFailed {
                what: "no such user".into(),
                fault: LaunchFault::Other,
                unfit: None,
                hold: false,
                user: Some(UserFault::Locked).filter(|_| exit.code == 0),
            },
            1 => AttemptReport::Missing,
            2 | 3 => AttemptReport::ScriptEnded { exit, oom: false, timed_out: false },
            4 => AttemptReport::ScriptEnded { exit, oom: false, timed_out: true },
            5 => AttemptReport::StepEnded { step: StepId::Batch, exit, usage, oom: false },
            6 | 7 => AttemptReport::StepEnded { step: StepId::Number(0), exit, usage, oom: false },
            8 => over(true, false, false),
            9 => over(false, true, false),
            10 => over(false, false, true),
            11 => AttemptReport::LaunchFailed {
                what: "no room".into(),
                fault: LaunchFault::Other,
                unfit: Some("spool".into()),
                hold: false,
                user: None,
            },
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
        // Few contents, so that jobs and users share some.
        ask = ask.with(|spec| {
            let launch = std::sync::Arc::make_mut(&mut spec.launch);
            launch.script = Some(BlobRef([shape.options % 4; 32]));
            launch.environment = (shape.cpus > 1).then_some(BlobRef([9; 32]));
            launch.blob_bytes = BlobBytes {
                script: 100 + u32::from(shape.options % 4),
                environment: 50,
                first_step: 0,
                configuration: 0,
                workspace: 0,
            };
        });
        if shape.gpus > 0 {
            ask = ask.gpus(shape.gpus);
        }
        if let (Some((len, throttle)), true) = (shape.array, shape.kind > 1) {
            let throttle = throttle.map(|t| format!("%{t}")).unwrap_or_default();
            ask = ask.array(&format!("0-{}{throttle}", len - 1));
        }
        if let Some((kind, target)) = shape.dependency {
            ask = ask.with(|spec| spec.dependency = Some(Box::new(self.dependency(kind, target))));
        }
        if flag(0) {
            ask = ask.requeue();
        }
        if flag(1) {
            ask = ask.retry(|r| (r.on_error, r.on_interruption) = (true, true));
        }
        if shape.options.is_multiple_of(7) {
            ask = ask.held(Hold::User);
        }
        let soon = self.world.now + Duration::from_secs(u64::from(shape.options));
        ask.asking(|r| match shape.wait_policy {
            0 => r.wait_policy = WaitPolicy::Now,
            1 => r.wait_policy = WaitPolicy::Until(soon),
            2 => r.deadline = Some(soon),
            3 => r.begin = Some(soon),
            4 => r.sharing = Sharing::Node,
            5 => r.sharing = Sharing::User,
            _ => {}
        })
        .with(|spec| spec.kill_on_invalid_dependency = flag(2))
        .of(if flag(3) { bob() } else { alice() })
        .het(if flag(4) && flag(5) && shape.array.is_none() {
            shape.options % 3
        } else {
            0
        })
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
            5..=8 => {
                JobChange::Requeue(Requeue { hold: what.is_multiple_of(2), ..Default::default() })
            }
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

    /// Mostly a job that holds resources.
    fn running(&self, choice: u8) -> JobId {
        let active: Vec<JobId> = self.world.state.active.iter().copied().collect();
        let among = pick(&active, choice / 4).filter(|_| !choice.is_multiple_of(4));
        among.unwrap_or_else(|| self.job(choice / 4))
    }

    /// A whole job or a few tasks of an array.
    fn job_ref(&self, choice: u8, tasks: Option<(u8, u8)>) -> JobRef {
        let id = self.job(choice);
        let array = self.world.state.jobs.get(&id).and_then(|j| j.task).map_or(id, |t| t.array);
        match tasks {
            None => JobRef::whole(id),
            Some((first, more)) => {
                let (first, last) = (u32::from(first), u32::from(first + more));
                JobRef::tasks(array, IndexSet::from_range(first, last))
            }
        }
    }
}

fn pick<T: Clone>(among: &[T], choice: u8) -> Option<T> {
    (!among.is_empty()).then(|| among[usize::from(choice) % among.len()].clone())
}
