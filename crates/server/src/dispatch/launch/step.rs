//! The orders of a step: for each node its tasks there, their environment, their part of the job's share.

use super::process_policy;
use super::variables::{job_facts, set_state_folder};
use super::{Facts, earlier_agent, facts};
use crate::agents::devices;
use crate::secret::{references, registry_auth};
use crate::shared::Shared;
use cluster::State;
use model::id::{AttemptId, JobId, StepId};
use model::reason::Refusal;
use model::run::{JobSpec, Step};
use slurm::environment::gpu::{self, DeviceNames, GpuView};
use slurm::environment::job::JobFacts;
use slurm::environment::{self, Environment, PRIO_PROCESS};
use std::num::NonZeroU32;
use wire::order::{Action, StepOrder};
use wire::step::{SrunPrologEpilog, StepLaunch, StepLayout, StepNode};

/// The GPUs of one of a step's nodes.
struct NodeGpus {
    node: String,
    view: GpuView,
    names: DeviceNames,
    /// The GPUs near to the CPUs that the step has there.
    near: Vec<u32>,
}

fn gpus_of(shared: &Shared, state: &State, node: &str, step: &Step) -> NodeGpus {
    let known = state.nodes.get(node);
    let gres = known.map(|known| devices::of_node(&shared.volatile, known)).unwrap_or_default();
    let cpus = step.shares.iter().find(|s| s.node == node).map(|s| s.cpus.clone());
    NodeGpus {
        node: node.to_owned(),
        view: known.map(|n| devices::view(&state.config, n, &gres)).unwrap_or_default(),
        names: gpu::device_names(&gres),
        near: gpu::gpus_near(&gres, &cpus.unwrap_or_default()),
    }
}

/// The orders of a step for each of its nodes. A step whose secrets cannot be had, or that the agent of a node
/// could not read, is over before it starts.
pub fn step_orders(
    shared: &Shared,
    id: JobId,
    step: StepId,
    launch: &StepLaunch,
) -> Vec<(String, AttemptId, u32, Action)> {
    let state = shared.read();
    let Some(job) = state.jobs.get(&id) else { return Vec::new() };
    let Some(attempt) = job.attempt() else { return Vec::new() };
    let Some(record) = attempt.steps.iter().find(|s| s.id == step) else { return Vec::new() };
    let record = record.clone();
    let first = attempt.allocation.nodes.first().map(|s| s.node.clone()).unwrap_or_default();
    let attempt_id = AttemptId { job: id, number: attempt.number };
    let Some(facts) = facts(shared, &state, attempt_id, &first) else { return Vec::new() };
    let of_node = |(name, _): &(String, _)| gpus_of(shared, &state, name, &record);
    let gpus: Vec<NodeGpus> = record.layout.iter().map(of_node).collect();
    let starts = launch.starts.settled(state.config.site.srun_prolog.is_some());
    drop(state);
    let uid = facts.job.spec.owner.uid;
    let nodes = record.layout.iter().map(|(node, _)| node.as_str());
    let filled = filled_in(shared, &facts.job.spec, step, launch);
    let launch = filled.and_then(|launch| earlier_agent::for_agents_of(shared, nodes, launch));
    let launch = &match launch {
        Ok(launch) => launch,
        Err(why) => {
            tracing::error!("step {id}.{step} cannot be launched: {why}");
            let nodes = record.layout.into_iter().map(|(node, _)| node);
            return nodes.map(|n| (n, attempt_id, uid, Action::Disown { step })).collect();
        }
    };
    let layout = StepLayout {
        job: id,
        step,
        attempt: facts.attempt().number,
        nodes: layout(&facts, &record),
        cpus_per_task: launch.cpus_per_task.unwrap_or(1),
        srun_prolog_epilog: SrunPrologEpilog::default(),
    };
    let job = job_facts(&facts);
    let names = layout.nodes.iter().map(|node| node.node.as_str());
    let bind = facts.bind.resolve(&launch.cpu_bind, names, &facts.attempt().allocation.partition);
    let tasks = layout.nodes.iter().map(|node| node.tasks.len() as u32).sum();
    let orders = layout.nodes.iter().enumerate().map(|(index, node)| {
        let share = record.shares.iter().find(|s| s.node == node.node);
        let known = gpus.iter().find(|gpus| gpus.node == node.node);
        let (view, near) = known.map(|gpus| (gpus.view, &gpus.near[..])).unwrap_or_default();
        let names = known.map_or(&facts.gpu_names, |gpus| &gpus.names);
        let job = JobFacts { gpus: view, ..job };
        let mut variables = environment::step::variables(&job, &layout, launch, index, share);
        if let Some(together) = facts.job.het {
            environment::het_job::set_job_id(&mut variables, together.first);
        }
        set_state_folder(shared, &mut variables);
        gpu::use_device_names(&mut variables, names);
        let of_job = facts.attempt().allocation.share(&node.node);
        let mut own = environment::step::launch_on(launch, of_job, share);
        let mut exported = Environment::from_block(&own.environment);
        let nice = process_policy::niceness(facts.nice, &exported);
        process_policy::export_niceness(facts.nice, exported.clone(), &mut variables);
        if nice.is_some() {
            exported.remove(PRIO_PROCESS);
            own.environment = exported.to_block();
        }
        if !earlier_agent::takes_bytes(shared, &node.node) {
            own.environment = earlier_agent::without_bytes(&own.environment);
        }
        let order = StepOrder {
            step,
            launch: StepLaunch {
                rlimits: launch.rlimits.clone().map(|limits| facts.rlimits.narrow(limits)),
                starts,
                ..own
            },
            nice,
            tasks: node.tasks.clone(),
            node_index: index as u32,
            step_tasks: NonZeroU32::new(tasks),
            environment: variables.to_entries(),
            process_variables: environment::step::process_variables(),
            share: share.cloned(),
            cpu_bind: bind.clone(),
            task_orders: environment::step::task_orders(
                launch,
                share,
                &node.tasks,
                near,
                view,
                names,
            ),
        };
        (node.node.clone(), attempt_id, uid, Action::Step(Box::new(order)))
    });
    orders.collect()
}

/// The launch with the values of secrets, and with the job's credentials for the step that started with it.
fn filled_in(
    shared: &Shared,
    spec: &JobSpec,
    step: StepId,
    launch: &StepLaunch,
) -> Result<StepLaunch, Refusal> {
    let variables = &launch.secret_variables;
    let environment = references::fill_in(shared, spec, &launch.environment, variables)?;
    let started_with_job = spec.launch.first_step.is_some() && step == StepId::Number(0);
    let registry_auth = match &launch.registry_auth {
        _ if launch.container.is_none() => None,
        Some(own) => Some(registry_auth::fill_in(shared, spec, own)?),
        None if started_with_job => registry_auth::open(shared, spec)?,
        None => None,
    };
    Ok(StepLaunch { environment, registry_auth, ..launch.clone() })
}

fn layout(facts: &Facts, step: &Step) -> Vec<StepNode> {
    let node = |(node, tasks): &(String, Vec<u32>)| {
        let own = step.shares.iter().find(|s| s.node == *node);
        let share = own.or_else(|| facts.attempt().allocation.share(node))?;
        Some(StepNode { node: node.clone(), tasks: tasks.clone(), cpus: share.cpus.len() })
    };
    step.layout.iter().filter_map(node).collect()
}
