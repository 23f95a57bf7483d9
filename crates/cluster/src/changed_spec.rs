//! A job's specification with one field set, as `scontrol update` sets it. `decide` looks at the result, `apply` keeps it.

use model::change::JobField;
use model::mail::Mail;
use model::request::Memory;
use model::run::JobSpec;
use std::sync::Arc;

pub(crate) fn set_in_spec(spec: &mut JobSpec, field: &JobField) {
    match field {
        JobField::Name(name) => spec.name = name.as_str().into(),
        JobField::Nice(nice) => spec.nice = *nice,
        JobField::RunPriority(priority) => spec.dstack_priority = Some(*priority),
        JobField::RunInactivity(seconds) => spec.inactivity_s = *seconds,
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
        JobField::Stdin(path) => Arc::make_mut(&mut spec.launch).stdin = Some(path.as_str().into()),
        JobField::Wckey(wckey) => spec.wckey = Some(wckey.clone()),
        JobField::MailUser(user) => {
            mail(spec).user = Some(user.clone()).filter(|user| !user.is_empty());
        }
        JobField::MailTypes(types) => mail(spec).types.clone_from(types),
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
        JobField::TimeMin(least) => request.time_min = Some(*least),
        JobField::Cpus(cpus) => {
            let tasks = request.task_count().max(1);
            request.cpus_per_task = model::range::Range::exactly(cpus.div_ceil(tasks).max(1));
        }
        JobField::CpusPerNode(cpus) => request.cpus_per_node = Some(*cpus),
        JobField::TasksPerNode(tasks) => request.tasks_per_node = Some(*tasks),
        JobField::SocketsPerNode(sockets) => request.sockets_per_node = Some(*sockets),
        JobField::CoresPerSocket(cores) => request.cores_per_socket = Some(*cores),
        JobField::ThreadsPerCore(threads) => request.threads_per_core = Some(*threads),
        JobField::Disk(disk) => request.disk = Some(*disk).filter(|disk| disk.0 > 0),
        JobField::Sharing(sharing) => request.sharing = *sharing,
        JobField::Prefer(features) => request.prefer.clone_from(features),
        JobField::Contiguous(contiguous) => request.contiguous = *contiguous,
        JobField::Licenses(licenses) => request.licenses.clone_from(licenses),
        JobField::Switches(switches) => request.switches = *switches,
        JobField::SwitchWait(wait_s) => {
            if let Some(switches) = &mut request.switches {
                switches.wait_s = Some(*wait_s);
            }
        }
        JobField::NodeList(nodes) => request.node_list.clone_from(nodes),
        JobField::Exclude(nodes) => request.exclude.clone_from(nodes),
        JobField::Reservation(names) => request.reservation.clone_from(names),
        _ => {}
    }
}

fn mail(spec: &mut JobSpec) -> &mut Mail {
    spec.mail.get_or_insert_with(|| Box::new(Mail { types: Vec::new(), user: None }))
}
