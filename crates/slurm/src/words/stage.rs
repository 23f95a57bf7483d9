//! The lines of `srun -v` and `salloc -v` about each stage: the allocation, the launch, the tasks' starts and ends. They are
//! as Slurm's commands print them, since people and tools look for them.

use model::allocation::Allocation;
use model::array::IndexSet;
use model::hostlist;
use model::id::JobId;
use model::run::ExitStatus;

/// ``jobid 12: nodes(2):`node[1-2]', cpu counts: 4(x2)``
pub fn allocated(job: JobId, granted: &Allocation) -> String {
    let mut counts: Vec<(u32, u32)> = Vec::new();
    for share in &granted.nodes {
        match counts.last_mut() {
            Some((cpus, nodes)) if *cpus == share.cpus.len() => *nodes += 1,
            _ => counts.push((share.cpus.len(), 1)),
        }
    }
    let counts: Vec<String> =
        counts.iter().map(|(cpus, nodes)| format!("{cpus}(x{nodes})")).collect();
    let names = hostlist::compress(granted.node_names());
    let count = granted.nodes.len();
    format!("jobid {job}: nodes({count}):`{names}', cpu counts: {}", counts.join(","))
}

pub fn ready(granted: &Allocation) -> String {
    format!("Nodes {} are ready for job", hostlist::compress(granted.node_names()))
}

/// `launching StepId=12.0 on host node1, 4 tasks: [0-3]`
pub fn launching(step: &str, node: &str, tasks: &[u32]) -> String {
    let list: IndexSet = tasks.iter().copied().collect();
    let text = list.range_text();
    let text = if list.len() == 1 { text } else { format!("[{text}]") };
    format!("launching StepId={step} on host {node}, {} tasks: {text}", tasks.len())
}

pub fn started(node: &str, tasks: u64) -> String {
    format!("Node {node}, {tasks} tasks started")
}

/// The number in parentheses is what the kernel says to a parent that waits.
pub fn exited(step: &str, tasks: u64, exit: ExitStatus) -> String {
    let status = ((exit.code & 0xff) << 8) | (exit.signal & 0x7f);
    let noun = if tasks == 1 { "task" } else { "tasks" };
    let of = format!("{tasks} {noun} of StepId={step}");
    format!("Received task exit notification for {of} (status=0x{status:04x}).")
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::allocation::NodeShare;
    use model::amount::Bytes;
    use model::cpuset::CpuSet;

    fn granted(nodes: &[(&str, u32)]) -> Allocation {
        let share = |(node, cpus): &(&str, u32)| NodeShare {
            node: (*node).to_owned(),
            cpus: (0..*cpus).collect::<CpuSet>(),
            memory: Bytes::from_mib(100),
            gres: Vec::new(),
            tasks: 1,
            sharers: 1,
            disk: Bytes(0),
            price: None,
        };
        Allocation { partition: "main".into(), nodes: nodes.iter().map(share).collect() }
    }

    #[test]
    fn stages_have_slurms_lines() {
        // Captured from `srun -v` of Slurm 22.05 and 24.05.
        let one = granted(&[("node1", 4)]);
        let line = "jobid 4296558: nodes(1):`node1', cpu counts: 4(x1)";
        assert_eq!(allocated(JobId(4_296_558), &one), line);
        assert_eq!(ready(&one), "Nodes node1 are ready for job");
        let several = granted(&[("node1", 4), ("node2", 4), ("node3", 2)]);
        let line = "jobid 7: nodes(3):`node[1-3]', cpu counts: 4(x2),2(x1)";
        assert_eq!(allocated(JobId(7), &several), line);
        let line = "launching StepId=6.0 on host node1, 1 tasks: 0";
        assert_eq!(launching("6.0", "node1", &[0]), line);
        let line = "launching StepId=6.18 on host node4, 4 tasks: [12-15]";
        assert_eq!(launching("6.18", "node4", &[12, 13, 14, 15]), line);
        assert_eq!(started("node1", 1), "Node node1, 1 tasks started");
        let statuses = [(0, 0, "0x0000"), (1, 0, "0x0100"), (139, 0, "0x8b00"), (0, 9, "0x0009")];
        for (code, signal, status) in statuses {
            let line = format!(
                "Received task exit notification for 1 task of StepId=6.0 (status={status})."
            );
            assert_eq!(exited("6.0", 1, ExitStatus { code, signal }), line);
        }
    }
}
