//! Steps within their job's allocation: which nodes, which share of them, and which task where.

mod demand;
mod free_share;
mod layout;
mod placement;

use crate::authorise::{Act, authorise};
use crate::command::{Context, Decision, FreedBySteps, Reply, StepPlacement, StepRequest};
use crate::event::Event;
use crate::requested;
use crate::state::State;
use crate::state::job::Job;
use crate::view::is_exclusive;
use demand::StepDemand;
use model::allocation::NodeShare;
use model::attempt::Attempt;
use model::bounds;
use model::id::{AttemptId, JobId, StepId};
use model::partition::DefaultMemory;
use model::range::Range;
use model::reason::Refusal;
use model::request::{Grant, GresRequest, Memory, Per};
use model::run::Step;
use model::step::StepRefusal;
use placement::NodePlacement;

impl State {
    pub(super) fn decide_step(
        &self,
        id: JobId,
        ask: &StepRequest,
        context: &Context,
    ) -> Result<Decision, Refusal> {
        let job = self.jobs.get(&id).ok_or_else(|| Refusal::UnknownJob(id.to_string()))?;
        authorise(self, &context.by, Act::ActAsOwner(job))?;
        let attempt = active(job)?;
        let cpus_per_task = self.cpus_per_task(job, ask);
        let attempt_id = AttemptId { job: id, number: attempt.number };
        if let Some(known) = known(attempt, ask.shape.ticket) {
            let nodes = placed_nodes(known);
            let placed = StepPlacement {
                attempt: attempt_id,
                step: known.id,
                nodes,
                cpus_per_task,
                known: true,
            };
            return Ok(Decision { events: Vec::new(), reply: Reply::Step(placed) });
        }
        let most = self.config.parameters.max_step_count;
        if attempt.next_step >= most {
            return Err(Refusal::Step(StepRefusal::Count { most }));
        }
        let placed = self.place_step(job, attempt, ask)?;
        let most = self.config.parameters.max_tasks_per_node as usize;
        if placed.iter().any(|part| part.ranks.len() > most) {
            return Err(Refusal::TaskCount);
        }
        let step = Step {
            id: StepId::Number(attempt.next_step),
            name: ask.name.clone(),
            start: context.now,
            waiting: placed.iter().map(|p| p.share.node.clone()).collect(),
            nodes: placed.iter().map(|p| p.share.node.clone()).collect(),
            layout: placed.iter().map(|p| (p.share.node.clone(), p.ranks.clone())).collect(),
            tasks: placed.iter().map(|p| p.ranks.len() as u32).sum(),
            cpus: placed.iter().map(|p| p.share.cpus.len()).sum(),
            shares: placed.into_iter().map(|p| p.share).collect(),
            overlap: ask.shape.overlap,
            ticket: ask.shape.ticket,
            end: None,
            exit: Default::default(),
            usage: Default::default(),
            submit_line: ask.submit_line.clone(),
            cpu_frequency: ask.cpu_frequency,
            image: ask.image.clone(),
        };
        check_open_bytes(attempt, &step)?;
        self.check_room_for_step(job, &step, context)?;
        let nodes = placed_nodes(&step);
        let reply = StepPlacement {
            attempt: attempt_id,
            step: step.id,
            nodes,
            cpus_per_task,
            known: false,
        };
        let events = vec![Event::StepStarted { job: id, step: Box::new(step) }];
        Ok(Decision { events, reply: Reply::Step(reply) })
    }

    /// Whether the step has to wait for others of its job. Any other refusal is not a reason to wait.
    pub fn step_waits(&self, id: JobId, ask: &StepRequest) -> bool {
        let Some(job) = self.jobs.get(&id) else { return false };
        let Ok(attempt) = active(job) else { return false };
        self.place_step(job, attempt, ask) == Err(Refusal::Step(StepRefusal::Busy))
    }

    /// How much the steps of a job have freed; `None` of a job that has none.
    pub fn freed_by_steps(&self, id: JobId) -> Option<FreedBySteps> {
        let attempt = self.jobs.get(&id)?.attempt()?;
        let ended = attempt.steps.iter().filter(|step| step.end.is_some()).count();
        Some(FreedBySteps { attempt: attempt.number, ended, nodes: attempt.allocation.nodes.len() })
    }

    fn place_step(
        &self,
        job: &Job,
        attempt: &Attempt,
        ask: &StepRequest,
    ) -> Result<Vec<NodePlacement>, Refusal> {
        let request = job.spec.request();
        bounds::REQUEST_KINDS.hold(ask.shape.gres.as_ref().map_or(0, Vec::len))?;
        let unknown = ask.shape.exclude.iter().find(|name| !self.nodes.contains_key(*name));
        if let Some(name) = unknown {
            return Err(Refusal::UnknownNode(name.clone()));
        }
        let memory_per_cpu = match (&request.memory, requested::default_memory(self, job)) {
            (Memory::PerCpu(each), _) => Some(*each),
            (Memory::Default, Some(DefaultMemory::PerCpu(each))) => Some(each),
            _ => None,
        };
        let demand = StepDemand {
            allocation: &attempt.allocation,
            ask,
            cpus_per_task: self.cpus_per_task(job, ask).max(1),
            overcommit: ask.overcommit || request.overcommit,
            memory_per_cpu,
            gres_unsaid: self.gres_unsaid(job, attempt, ask),
        };
        demand.place(&attempt.steps)
    }

    /// What the job asked for, where it has whole nodes. As in Slurm its steps do not get by default what the job has only for
    /// being exclusive; a session in the script's place has it, as the script has.
    fn gres_unsaid(
        &self,
        job: &Job,
        attempt: &Attempt,
        ask: &StepRequest,
    ) -> Option<Vec<GresRequest>> {
        let request = job.spec.request();
        let partition = self.partition(&attempt.allocation.partition).map(|p| &**p);
        let has_whole_nodes = is_exclusive(job, partition, self.config.parameters.select);
        if !has_whole_nodes || request.grant == Grant::Offer || ask.joins_script {
            return None;
        }
        let sockets = u64::from(request.sockets_per_node.unwrap_or(1));
        let on_node = |gres: &GresRequest| match gres.per {
            Per::Socket => GresRequest {
                per: Per::Node,
                count: Range::exactly(gres.count.min.saturating_mul(sockets)),
                ..gres.clone()
            },
            Per::Node | Per::Task | Per::Job => gres.clone(),
        };
        Some(request.gres.iter().map(on_node).collect())
    }

    fn cpus_per_task(&self, job: &Job, ask: &StepRequest) -> u32 {
        let of_job = job.spec.request().cpus_per_task.min;
        ask.cpus_per_task.unwrap_or(if ask.shape.own { of_job } else { 1 })
    }
}

/// Refuses a step whose record would not fit into one commit with those of the other open steps: the event that closes
/// the attempt carries all of them.
fn check_open_bytes(attempt: &Attempt, step: &Step) -> Result<(), Refusal> {
    let open = attempt.steps.iter().filter(|step| step.end.is_none());
    let bytes: usize = open.chain([step]).map(record_bytes).sum();
    let most = bounds::OPEN_STEPS_BYTES.most;
    if bytes > most { Err(Refusal::Step(StepRefusal::OpenBytes { bytes, most })) } else { Ok(()) }
}

/// At least as many bytes as a step's record takes in an event.
fn record_bytes(step: &Step) -> usize {
    /// What does not depend on the step, its use by task included.
    const FIXED: usize = 2048;
    /// What a node's share takes beside its name, CPUs and ranks.
    const NODE: usize = 256;
    /// A number and its comma.
    const NUMBER: usize = 11;
    /// A control character takes six bytes in JSON.
    const CHARACTER: usize = 6;
    /// A node's name is among the nodes, those waited for, the layout and the shares.
    const NAMES: usize = 4;
    let image = step.image.as_ref().map_or(0, String::len);
    let texts = CHARACTER * (step.name.len() + step.submit_line.len() + image);
    let ranks: usize = step.layout.iter().map(|(_, ranks)| NUMBER * ranks.len()).sum();
    let names: usize = step.nodes.iter().map(|name| NODE + NAMES * name.len()).sum();
    FIXED + texts + ranks + names + NUMBER * step.cpus as usize
}

fn active(job: &Job) -> Result<&Attempt, Refusal> {
    match job.attempt() {
        Some(attempt) if attempt.ending.is_none() => Ok(attempt),
        Some(_) => Err(Refusal::JobEnded(job.id)),
        None if job.has_ended() => Err(Refusal::JobEnded(job.id)),
        None => Err(Refusal::JobNotRunning(job.id)),
    }
}

/// The open step that this ticket created before: its answer was lost.
fn known(attempt: &Attempt, ticket: u64) -> Option<&Step> {
    let same = |s: &&Step| ticket != 0 && s.ticket == ticket && s.end.is_none();
    attempt.steps.iter().rev().find(same)
}

fn placed_nodes(step: &Step) -> Vec<(NodeShare, Vec<u32>)> {
    let ranks = step.layout.iter().map(|(_, ranks)| ranks.clone());
    step.shares.iter().cloned().zip(ranks).collect()
}
