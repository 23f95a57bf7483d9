//! What is explained of a waiting job, and the plan that is made from nothing.

use super::starts::{Awaited, awaited};
use super::{Broken, Checked, hold};
use cluster::{Job, Node, State};
use model::id::JobId;
use model::partition::{OverSubscribe, Partition};
use model::reason::{Limit, LimitScope, Reason};
use model::request::{Memory, Request, Sharing};
use model::time::Timestamp;
use sched::view::{PartitionInfo, View};
use sched::{Memo, PendingJob, Plan};

/// A view that was made from nothing, its plan, and what that remembers.
pub struct FromNothing {
    view: View,
    memo: Memo,
    plan: Plan,
}

/// A plan that was made step by step equals one that is made from nothing.
pub fn plan_from_nothing(
    state: &State,
    now: Timestamp,
    view: &View,
    plan: &Plan,
) -> Result<FromNothing, Broken> {
    let anew = cluster::view::view(state, now);
    let is_followed = view.queue == anew.queue && view.running == anew.running;
    hold(is_followed, || "the view was not followed".to_owned())?;
    let mut memo = Memo::default();
    let from_nothing = sched::plan(&anew, now, &mut memo);
    hold(*plan == from_nothing, || {
        format!("the plan {plan:?} differs from the one made from nothing: {from_nothing:?}")
    })?;
    Ok(FromNothing { view: anew, memo, plan: from_nothing })
}

/// What is explained of a waiting job is true. The explanation goes on from the plan that was made from nothing.
pub fn explanation(
    state: &State,
    now: Timestamp,
    from_nothing: FromNothing,
    job: JobId,
) -> Checked {
    let Some(known) = state.job(job) else { return Ok(()) };
    let FromNothing { view, mut memo, plan } = from_nothing;
    let explained = sched::explain_planned(&view, now, &mut memo, &plan, job);
    let Some(explained) = explained else {
        return Err(Broken(format!("job {job} waits, and nothing explains it")));
    };
    let is_alone = known.het.is_none();
    let is_true = match &explained.reason {
        Some(Reason::BeginTime) => !is_alone || known.begin.is_some_and(|begin| begin > now),
        Some(Reason::Limit(_)) => {
            let usage = explained.limit.as_ref();
            usage.is_some_and(|usage| is_reached(state, known, &usage.limit, &usage.holders))
        }
        Some(reason) => !is_alone || is_true_alone(state, &view, known, reason),
        None => true,
    };
    hold(is_true, || format!("job {job} does not wait for {:?}", explained.reason))
}

/// Whether what holds back a job that starts by itself is there, for the reasons of which the state says so without a plan.
fn is_true_alone(state: &State, view: &View, job: &Job, reason: &Reason) -> bool {
    let waiting = view.queue.iter().find(|waiting| waiting.job == job.id);
    match reason {
        Reason::HeldByUser | Reason::HeldByAdmin => job.hold.is_some(),
        Reason::Dependency => matches!(awaited(state, job), Awaited::End(_)),
        Reason::DependencyNeverSatisfied => awaited(state, job) == Awaited::Never,
        Reason::ArrayTaskLimit => state.throttle(job).is_some(),
        Reason::NodesDown => waiting.is_some_and(|waiting| !has_nodes(state, view, waiting)),
        Reason::Reservation => job.spec.request().reservation.is_some(),
        Reason::NodesReserved => !view.reservations.is_empty(),
        Reason::Priority => waiting.is_some_and(|waiting| is_behind(view, waiting)),
        Reason::Resources => waiting.is_some_and(|waiting| !has_room(state, view, waiting)),
        _ => true,
    }
}

/// Whether the limit is reached, and no more is counted against it than running jobs hold: those of the same user or account.
fn is_reached(state: &State, job: &Job, limit: &Limit, holders: &[(JobId, u64)]) -> bool {
    let is_counted = |(holder, _): &(JobId, u64)| {
        let holder = state.active.get(holder).and_then(|id| state.job(*id));
        holder.is_some_and(|holder| match limit.scope {
            LimitScope::QosPerUser => {
                holder.qos == job.qos && holder.spec.owner.uid == job.spec.owner.uid
            }
            _ => holder.account == job.account,
        })
    };
    let held: u64 = holders.iter().map(|(_, amount)| amount).sum();
    limit.in_use + limit.asked > limit.limit
        && held <= limit.in_use
        && holders.iter().all(is_counted)
}

/// Whether another waiting job comes before it: in a partition of a higher tier, or in one of the same with no lower priority.
fn is_behind(view: &View, waiting: &PendingJob) -> bool {
    let tier = |of: &PendingJob| {
        let partitions = of.partitions.iter().filter_map(|at| view.partitions.get(*at as usize));
        partitions.map(|info| info.partition.priority_tier).max()
    };
    let rank = |of: &PendingJob| (tier(of), of.priority);
    view.queue.iter().any(|other| other.job != waiting.job && rank(other) >= rank(waiting))
}

/// Whether as many nodes as the job needs are in service in one of its partitions. What is reserved is not judged.
fn has_nodes(state: &State, view: &View, waiting: &PendingJob) -> bool {
    let needed = waiting.spec.request().nodes.min as usize;
    let has_nodes_in = |at: &u32| {
        let info = view.partitions.get(*at as usize);
        let nodes = info.iter().flat_map(|info| &info.partition.nodes);
        let nodes = nodes.filter_map(|name| state.nodes.get(name));
        nodes.filter(|node| node.availability().is_in_service()).count() >= needed
    };
    view.reservations.is_empty() && waiting.partitions.iter().any(has_nodes_in)
}

/// Whether enough nodes have what the job needs free, and nothing but its own needs could keep it from them: it waits alone, nothing
/// is reserved, and no job is suspended. Of an array the plan may start a part, and the rest waits for what that takes.
fn has_room(state: &State, view: &View, waiting: &PendingJob) -> bool {
    let is_alone = view.queue.len() == 1
        && waiting.tasks == 1
        && view.reservations.is_empty()
        && view.running.iter().all(|running| !running.suspended);
    let request = waiting.spec.request();
    let has_room_in = |at: &u32| {
        let info = view.partitions.get(*at as usize);
        let nodes = info.iter().flat_map(|info| &info.partition.nodes);
        let free = nodes.filter_map(|name| state.nodes.get(name)).filter(|node| {
            let uid = waiting.spec.owner.uid;
            let fits_in = |info: &PartitionInfo| fits(request, uid, &info.partition, node);
            node.availability().takes_jobs() && info.is_some_and(fits_in)
        });
        free.count() >= request.nodes.min as usize
    };
    is_alone && waiting.partitions.iter().any(has_room_in)
}

/// Whether one task of the job fits beside what is on the node, for jobs as `requests` makes them.
fn fits(request: &Request, uid: u32, partition: &Partition, node: &Node) -> bool {
    let (used, config) = (&node.used, &node.config);
    let is_whole = match partition.over_subscribe {
        OverSubscribe::Exclusive => true,
        OverSubscribe::Force(_) => false,
        OverSubscribe::No | OverSubscribe::Yes(_) => request.sharing == Sharing::Node,
    };
    let is_alone = request.sharing == Sharing::User || partition.exclusive_user;
    let is_open = (!is_whole || used.jobs == 0)
        && (!is_alone || used.users.iter().all(|other| *other == uid));
    let is_closed_by_others = used.exclusive || !used.user_exclusive.is_empty();
    let cpus = config.usable_cpus().len().saturating_sub(used.cpus.len());
    let memory = match &request.memory {
        Memory::PerNode(memory) => memory.min.0,
        // The node's memory, as far as is judged here.
        _ => config.usable_memory().0,
    };
    let has_gres = request.gres.iter().all(|wanted| {
        let of_name = used.gres.iter().filter(|held| held.name == wanted.name);
        let held: u64 = of_name.map(|held| held.count).sum();
        held + wanted.count.min <= config.gres_total(&wanted.name)
    });
    is_open
        && !is_closed_by_others
        && request.cpus_per_task.min <= cpus
        && used.memory.0.saturating_add(memory) <= config.usable_memory().0
        && has_gres
}
