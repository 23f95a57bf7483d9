//! One field of a job, as `scontrol update` sets it: in the record and in what was submitted.

use crate::job::Job;
use model::change::JobField;
use model::request::Memory;
use model::run::{Hold, JobSpec};
use std::sync::Arc;

pub(super) fn set(job: &mut Job, field: &JobField) {
    match field {
        JobField::Priority(priority) => {
            job.priority = *priority;
            job.priority_set = true;
            match priority {
                0 => job.hold = Some(Hold::Admin),
                _ => job.hold = None,
            }
            return;
        }
        JobField::SiteFactor(factor) => {
            job.site_factor = *factor;
            return;
        }
        JobField::Qos(qos) => job.qos = qos.as_str().into(),
        JobField::Account(account) => job.account = account.as_str().into(),
        JobField::Begin(begin) => job.begin = Some(*begin),
        JobField::ArrayThrottle(throttle) => {
            if let Some(pending) = &mut job.pending {
                pending.throttle = *throttle;
            }
            return;
        }
        JobField::Nice(nice) => {
            let old = i64::from(job.spec.nice);
            let raised = job.priority as i64 + old - i64::from(*nice);
            job.priority = raised.max(1) as u64;
        }
        _ => {}
    }
    set_in_spec(Arc::make_mut(&mut job.spec), field);
}

fn set_in_spec(spec: &mut JobSpec, field: &JobField) {
    match field {
        JobField::Name(name) => spec.name.clone_from(name),
        JobField::Nice(nice) => spec.nice = *nice,
        JobField::Comment(comment) => spec.comment = Some(comment.clone()),
        JobField::Dependency(dependency) => spec.dependency = dependency.clone().map(Box::new),
        JobField::Requeue(requeue) => spec.requeue = *requeue,
        JobField::WorkDir(dir) => Arc::make_mut(&mut spec.launch).work_dir = dir.as_str().into(),
        JobField::Stdout(path) => {
            Arc::make_mut(&mut spec.launch).stdout = Some(path.as_str().into())
        }
        JobField::Stderr(path) => {
            Arc::make_mut(&mut spec.launch).stderr = Some(path.as_str().into())
        }
        JobField::Wckey(wckey) => spec.wckey = Some(wckey.clone()),
        JobField::Qos(qos) => spec.qos = Some(qos.clone()),
        JobField::Account(account) => spec.account = Some(account.clone()),
        _ => {}
    }
    let request = Arc::make_mut(&mut Arc::make_mut(&mut spec.components)[0].request);
    match field {
        JobField::TimeLimit(limit) => request.time_limit = Some(*limit),
        JobField::Partition(names) => request.partitions.clone_from(names),
        JobField::Begin(begin) => request.begin = Some(*begin),
        JobField::Deadline(deadline) => request.deadline = Some(*deadline),
        JobField::Nodes(nodes) => {
            request.nodes = *nodes;
            request.nodes_given = true;
        }
        JobField::Tasks(tasks) => request.tasks = Some(*tasks),
        JobField::CpusPerTask(cpus) => request.cpus_per_task = model::range::Range::exactly(*cpus),
        JobField::MemoryPerNode(memory) => {
            request.memory = Memory::PerNode(model::range::Range::exactly(*memory));
        }
        JobField::MemoryPerCpu(memory) => request.memory = Memory::PerCpu(*memory),
        JobField::Gres(gres) => request.gres.clone_from(gres),
        JobField::Features(features) => request.constraint.clone_from(features),
        JobField::NodeList(nodes) => request.node_list.clone_from(nodes),
        JobField::Exclude(nodes) => request.exclude.clone_from(nodes),
        _ => {}
    }
}
