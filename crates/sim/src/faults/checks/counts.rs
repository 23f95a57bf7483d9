//! What is granted and counted: nothing beyond what nodes and jobs have, limits at each start, and the state counted anew.

use super::{Broken, Checked, hold};
use crate::faults::site;
use cluster::event::Started;
use cluster::{Job, State};
use model::allocation::NodeShare;
use model::cpuset::CpuSet;
use model::id::{AttemptId, JobId};
use model::partition::OverSubscribe;
use model::request::Sharing;
use sched::view::NodeUse;
use std::collections::{BTreeMap, BTreeSet};

/// Looked at when something is granted: files that take resources away leave running jobs alone.
pub fn nothing_oversubscribed(state: &State, started: &Started) -> Checked {
    let Some(job) = state.job(started.attempt.job) else { return Ok(()) };
    let uid = job.spec.owner.uid;
    let (_, is_alone) = kept_from_others(state, job, &started.allocation.partition);
    for share in &started.allocation.nodes {
        let name = &share.node;
        let Some(node) = state.nodes.get(name) else {
            return Err(Broken(format!("{name} is granted, and is no node")));
        };
        let (used, config) = (&node.used, &node.config);
        let mut units = BTreeSet::new();
        let named = used.gres.iter();
        let mut named =
            named.flat_map(|gres| gres.indices.iter().map(move |index| (&gres.name, index)));
        let are_single = named.all(|unit| units.insert(unit));
        let fits = |name: &str| {
            let of_name = used.gres.iter().filter(|gres| gres.name == name);
            of_name.map(|gres| gres.count).sum::<u64>() <= config.gres_total(name)
        };
        let holds = used.cpus.is_subset(&config.usable_cpus())
            && used.memory <= config.usable_memory()
            && (!used.exclusive || used.jobs == 1)
            && used.user_exclusive.iter().all(|(_, owner)| *owner == uid)
            && (!is_alone || used.users[..] == [uid])
            && are_single
            && share.gres.iter().all(|gres| fits(&gres.name));
        hold(holds, || format!("{name} is granted beyond what it has: {used:?}"))?;
    }
    Ok(())
}

pub fn limits_hold(state: &State, started: JobId) -> Checked {
    let Some(job) = state.job(started).filter(|job| *job.qos == *site::LIMITED_QOS) else {
        return Ok(());
    };
    let counts = |id: &&JobId| {
        let other = state.job(**id).filter(|other| other.qos == job.qos);
        let own = other.filter(|other| other.spec.owner.uid == job.spec.owner.uid);
        own.and_then(Job::attempt).is_some_and(|a| a.ending.is_none() && !a.suspended)
    };
    let running = state.active.iter().filter(counts).count();
    hold(running <= site::RUNNING_MAX as usize, || {
        format!("{running} jobs of {} run at once in QOS few", job.spec.owner.name)
    })
}

/// The CPUs that running jobs of the account hold together. Those of jobs that are suspended or end are left out, though the limit
/// counts them: what is left must be within it all the more.
pub fn group_limit_holds(state: &State, started: JobId) -> Checked {
    let is_of_account = |job: &&Job| *job.account == *site::LIMITED_ACCOUNT;
    if state.job(started).filter(is_of_account).is_none() {
        return Ok(());
    }
    let jobs = state.active.iter().filter_map(|id| state.job(*id)).filter(is_of_account);
    let attempts = jobs.filter_map(Job::attempt).filter(|a| a.ending.is_none() && !a.suspended);
    let shares = attempts.flat_map(|attempt| {
        let is_held = move |share: &&NodeShare| attempt.held_nodes.contains(&share.node);
        attempt.allocation.nodes.iter().filter(is_held).map(|share| share.cpus.len())
    });
    let held: u32 = shares.sum();
    hold(held <= site::GROUP_CPUS_MAX, || {
        format!("jobs of account {} hold {held} CPUs at once", site::LIMITED_ACCOUNT)
    })
}

/// Whether a job of this partition has its nodes whole, and whether it keeps other users off them: by what it asks for, as requests of a
/// history do, and by the partition as it is configured now.
fn kept_from_others(state: &State, job: &Job, partition: &str) -> (bool, bool) {
    let sharing = job.spec.request().sharing;
    let partition = state.partitions.iter().find(|known| known.name == partition);
    let over_subscribe = partition.map_or(OverSubscribe::No, |known| known.over_subscribe);
    let is_whole = match over_subscribe {
        OverSubscribe::Exclusive => true,
        OverSubscribe::Force(_) => false,
        OverSubscribe::No | OverSubscribe::Yes(_) => sharing == Sharing::Node,
    };
    (is_whole, sharing == Sharing::User || partition.is_some_and(|known| known.exclusive_user))
}

/// What the state derives and counts, counted anew.
pub fn recounts(state: &State) -> Checked {
    let mut uses: BTreeMap<&str, (NodeUse, Vec<AttemptId>)> = BTreeMap::new();
    let (mut active, mut queue) = (BTreeSet::new(), BTreeSet::new());
    for job in state.jobs.values() {
        if job.is_waiting() && job.hold.is_none() {
            queue.insert(job.id);
        }
        let (Some(attempt), Some(id)) = (job.attempt(), job.attempt_id()) else { continue };
        active.insert(job.id);
        hold(!attempt.held_nodes.is_empty(), || format!("job {} runs nowhere", job.id))?;
        let (is_whole, is_alone) = kept_from_others(state, job, &attempt.allocation.partition);
        for node in &attempt.held_nodes {
            let Some(share) = attempt.allocation.share(node) else {
                return Err(Broken(format!("attempt {id} holds {node}, which it was not granted")));
            };
            let (used, holders) = uses.entry(node).or_default();
            used.memory.0 += share.memory.0;
            used.gres.extend(share.gres.iter().cloned());
            holders.push(id);
            if attempt.has_released_cores() {
                continue;
            }
            let are_free = !used.cpus.intersects(&share.cpus);
            hold(are_free, || format!("CPUs of {node} are granted twice"))?;
            used.cpus.union(&share.cpus);
            used.jobs += 1;
            used.exclusive |= is_whole;
            let uid = job.spec.owner.uid;
            used.users.push(uid);
            if is_alone {
                used.user_exclusive.push((job.id, uid));
            }
        }
    }
    hold(state.active == active, || "the running jobs are counted wrong".to_owned())?;
    hold(state.queue == queue, || "the queue is counted wrong".to_owned())?;
    for (name, node) in &state.nodes {
        let (mut used, mut holders) = uses.remove(name.as_str()).unwrap_or_default();
        let (mut kept, mut held) = (node.used.clone(), node.holders.clone());
        used.users.sort_unstable();
        used.users.dedup();
        held.sort_unstable();
        holders.sort_unstable();
        used.sort_lists();
        kept.sort_lists();
        hold(used == kept && held == holders, || {
            format!(
                "what jobs hold of {name} did not come back, or is missing: {kept:?} is {used:?}"
            )
        })?;
    }
    hold(uses.is_empty(), || "jobs hold nodes that do not exist".to_owned())
}

/// Steps of a job that run have no CPU, no device and no byte in common, and none that the job does not have.
pub fn steps_share_nothing(state: &State, job: JobId) -> Checked {
    let Some(attempt) = state.job(job).and_then(Job::attempt) else { return Ok(()) };
    for share in &attempt.allocation.nodes {
        let mut cpus = CpuSet::new();
        let mut memory = 0;
        let mut units = BTreeSet::new();
        let running = attempt.steps.iter().filter(|step| step.end.is_none());
        let taken = running.flat_map(|step| step.shares.iter().map(move |part| (step, part)));
        for (step, part) in taken.filter(|(_, part)| part.node == share.node) {
            let has = |name: &str, index: &u32| {
                share.gres.iter().any(|gres| gres.name == name && gres.indices.contains(index))
            };
            let mut own = part.gres.iter().flat_map(|gres| {
                gres.indices.iter().map(move |index| (gres.name.as_str(), *index))
            });
            let is_of_job = part.cpus.is_subset(&share.cpus)
                && part.memory <= share.memory
                && own.clone().all(|(name, index)| has(name, &index));
            let is_free = step.overlap
                || (!cpus.intersects(&part.cpus) && own.all(|unit| units.insert(unit)));
            if !step.overlap {
                cpus.union(&part.cpus);
                memory += part.memory.0;
            }
            hold(is_of_job && is_free && memory <= share.memory.0, || {
                format!("step {job}.{} has of {} what is not its own", step.id, share.node)
            })?;
        }
    }
    Ok(())
}
