//! `scontrol show` against the captures. There is no port where agents dial out: `Port=0` stands for the captured one.

use super::*;
use crate::output::samples::{
    self, alice, at, bob, busy_node, cluster, moment, node, pending, running, train,
};
use model::array::IndexSet;
use model::id::JobId;
use model::node::{AdminState, NodeReason};
use model::range::Range;
use model::reason::{Limit, LimitKind, LimitScope, Reason};
use model::request::{Per, Request};
use model::run::{JobState, LaunchKind};
use model::time::Timestamp;
use model::tres::{Tres, TresKind};
use std::collections::BTreeMap;
use std::sync::Arc;
use wire::view::{ArrayView, ConfigView, JobView};

const PLAIN: Options = Options { details: false, oneliner: false };
const DETAILS: Options = Options { details: true, oneliner: false };
const ONELINER: Options = Options { details: false, oneliner: true };

fn job(view: &JobView, now: Timestamp, options: Options) -> String {
    let mut out = String::new();
    job::push(&mut out, view, moment(now), options);
    out
}

#[test]
fn a_running_job_has_slurms_record() {
    let now = at(0, 46, 21);
    assert_eq!(
        job(&train(), now, PLAIN),
        concat!(
            "JobId=3 JobName=train\n",
            "   UserId=alice(1001) GroupId=alice(1001) MCS_label=N/A\n",
            "   Priority=1412 Nice=0 Account=physics QOS=normal\n",
            "   JobState=RUNNING Reason=None Dependency=(null)\n",
            "   Requeue=1 Restarts=0 BatchFlag=1 Reboot=0 ExitCode=0:0\n",
            "   RunTime=00:00:02 TimeLimit=00:10:00 TimeMin=N/A\n",
            "   SubmitTime=2026-11-15T00:46:19 EligibleTime=2026-11-15T00:46:19\n",
            "   AccrueTime=2026-11-15T00:46:19\n",
            "   StartTime=2026-11-15T00:46:19 EndTime=2026-11-15T00:56:19 Deadline=N/A\n",
            "   PreemptEligibleTime=2026-11-15T00:46:19 PreemptTime=None\n",
            "   SuspendTime=None SecsPreSuspend=0 LastSchedEval=2026-11-15T00:46:19 Scheduler=Main\n",
            "   Partition=gpu AllocNode:Sid=localhost:3295\n",
            "   ReqNodeList=(null) ExcNodeList=(null)\n",
            "   NodeList=node1\n",
            "   BatchHost=node1\n",
            "   NumNodes=1 NumCPUs=4 NumTasks=1 CPUs/Task=4 ReqB:S:C:T=0:0:*:*\n",
            "   TRES=cpu=4,mem=8G,node=1,billing=4,gres/gpu=2\n",
            "   Socks/Node=* NtasksPerN:B:S:C=0:0:*:* CoreSpec=*\n",
            "   MinCPUsNode=4 MinMemoryNode=8G MinTmpDiskNode=0\n",
            "   Features=(null) DelayBoot=00:00:00\n",
            "   OverSubscribe=OK Contiguous=0 Licenses=(null) Network=(null)\n",
            "   Command=(null)\n",
            "   WorkDir=/lab/jobs\n",
            "   StdErr=/lab/jobs/slurm-3.out\n",
            "   StdIn=/dev/null\n",
            "   StdOut=/lab/jobs/slurm-3.out\n",
            "   Power=\n",
            "   TresPerNode=gres:gpu:2\n",
            "   \n",
            "\n",
        )
    );
    assert_eq!(
        job(&train(), now, DETAILS),
        concat!(
            "JobId=3 JobName=train\n",
            "   UserId=alice(1001) GroupId=alice(1001) MCS_label=N/A\n",
            "   Priority=1412 Nice=0 Account=physics QOS=normal\n",
            "   JobState=RUNNING Reason=None Dependency=(null)\n",
            "   Requeue=1 Restarts=0 BatchFlag=1 Reboot=0 ExitCode=0:0\n",
            "   DerivedExitCode=0:0\n",
            "   RunTime=00:00:02 TimeLimit=00:10:00 TimeMin=N/A\n",
            "   SubmitTime=2026-11-15T00:46:19 EligibleTime=2026-11-15T00:46:19\n",
            "   AccrueTime=2026-11-15T00:46:19\n",
            "   StartTime=2026-11-15T00:46:19 EndTime=2026-11-15T00:56:19 Deadline=N/A\n",
            "   PreemptEligibleTime=2026-11-15T00:46:19 PreemptTime=None\n",
            "   SuspendTime=None SecsPreSuspend=0 LastSchedEval=2026-11-15T00:46:19 Scheduler=Main\n",
            "   Partition=gpu AllocNode:Sid=localhost:3295\n",
            "   ReqNodeList=(null) ExcNodeList=(null)\n",
            "   NodeList=node1\n",
            "   BatchHost=node1\n",
            "   NumNodes=1 NumCPUs=4 NumTasks=1 CPUs/Task=4 ReqB:S:C:T=0:0:*:*\n",
            "   TRES=cpu=4,mem=8G,node=1,billing=4,gres/gpu=2\n",
            "   Socks/Node=* NtasksPerN:B:S:C=0:0:*:* CoreSpec=*\n",
            "   JOB_GRES=gpu:h100:2\n",
            "     Nodes=node1 CPU_IDs=0-3 Mem=8192 GRES=gpu:h100:2(IDX:0-1)\n",
            "   MinCPUsNode=4 MinMemoryNode=8G MinTmpDiskNode=0\n",
            "   Features=(null) DelayBoot=00:00:00\n",
            "   OverSubscribe=OK Contiguous=0 Licenses=(null) Network=(null)\n",
            "   Command=(null)\n",
            "   WorkDir=/lab/jobs\n",
            "   StdErr=/lab/jobs/slurm-3.out\n",
            "   StdIn=/dev/null\n",
            "   StdOut=/lab/jobs/slurm-3.out\n",
            "   Power=\n",
            "   TresPerNode=gres:gpu:2\n",
            "   \n",
            "\n",
        )
    );
    assert_eq!(
        job(&train(), now, ONELINER),
        concat!(
            "JobId=3 JobName=train UserId=alice(1001) GroupId=alice(1001) MCS_label=N/A Priority=1412 Nice=0 Account=physics QOS=normal JobState=RUNNING Reason=None Dependency=(null) Requeue=1 Restarts=0 BatchFlag=1 Reboot=0 ExitCode=0:0 RunTime=00:00:02 TimeLimit=00:10:00 TimeMin=N/A SubmitTime=2026-11-15T00:46:19 EligibleTime=2026-11-15T00:46:19 AccrueTime=2026-11-15T00:46:19 StartTime=2026-11-15T00:46:19 EndTime=2026-11-15T00:56:19 Deadline=N/A PreemptEligibleTime=2026-11-15T00:46:19 PreemptTime=None SuspendTime=None SecsPreSuspend=0 LastSchedEval=2026-11-15T00:46:19 Scheduler=Main Partition=gpu AllocNode:Sid=localhost:3295 ReqNodeList=(null) ExcNodeList=(null) NodeList=node1 BatchHost=node1 NumNodes=1 NumCPUs=4 NumTasks=1 CPUs/Task=4 ReqB:S:C:T=0:0:*:* TRES=cpu=4,mem=8G,node=1,billing=4,gres/gpu=2 Socks/Node=* NtasksPerN:B:S:C=0:0:*:* CoreSpec=* MinCPUsNode=4 MinMemoryNode=8G MinTmpDiskNode=0 Features=(null) DelayBoot=00:00:00 OverSubscribe=OK Contiguous=0 Licenses=(null) Network=(null) Command=(null) WorkDir=/lab/jobs StdErr=/lab/jobs/slurm-3.out StdIn=/dev/null StdOut=/lab/jobs/slurm-3.out Power= TresPerNode=gres:gpu:2 \n",
        )
    );
}

#[test]
fn a_pending_job_has_neither_nodes_nor_times() {
    let limit = Limit {
        scope: LimitScope::QosPerUser,
        kind: LimitKind::Tres(TresKind::gpu()),
        holder: "capped".into(),
        limit: 4,
        in_use: 3,
        asked: 2,
    };
    let mut view = pending(12, "cap2", bob(), Reason::Limit(limit));
    let request = Request { gres: vec![samples::gpu_request(Per::Node, 2)], ..Request::default() };
    view.spec = Arc::new(samples::spec("cap2", bob(), request));
    (view.priority, view.qos) = (1384, "capped".into());
    (view.submit, view.eligible) = (at(0, 46, 23), Some(at(0, 46, 23)));
    view.last_planned = Some(at(0, 46, 25));
    view.tres = Tres::parse("cpu=1,mem=1000M,node=1,billing=1,gres/gpu=2").expect("a good list");
    assert_eq!(
        job(&view, at(0, 46, 27), PLAIN),
        concat!(
            "JobId=12 JobName=cap2\n",
            "   UserId=bob(1002) GroupId=bob(1002) MCS_label=N/A\n",
            "   Priority=1384 Nice=0 Account=chem QOS=capped\n",
            "   JobState=PENDING Reason=QOSMaxGRESPerUser Dependency=(null)\n",
            "   Requeue=1 Restarts=0 BatchFlag=1 Reboot=0 ExitCode=0:0\n",
            "   RunTime=00:00:00 TimeLimit=01:00:00 TimeMin=N/A\n",
            "   SubmitTime=2026-11-15T00:46:23 EligibleTime=2026-11-15T00:46:23\n",
            "   AccrueTime=2026-11-15T00:46:23\n",
            "   StartTime=Unknown EndTime=Unknown Deadline=N/A\n",
            "   SuspendTime=None SecsPreSuspend=0 LastSchedEval=2026-11-15T00:46:25 Scheduler=Main\n",
            "   Partition=gpu AllocNode:Sid=localhost:3295\n",
            "   ReqNodeList=(null) ExcNodeList=(null)\n",
            "   NodeList=\n",
            "   NumNodes=1 NumCPUs=1 NumTasks=1 CPUs/Task=1 ReqB:S:C:T=0:0:*:*\n",
            "   TRES=cpu=1,mem=1000M,node=1,billing=1,gres/gpu=2\n",
            "   Socks/Node=* NtasksPerN:B:S:C=0:0:*:* CoreSpec=*\n",
            "   MinCPUsNode=1 MinMemoryCPU=1000M MinTmpDiskNode=0\n",
            "   Features=(null) DelayBoot=00:00:00\n",
            "   OverSubscribe=OK Contiguous=0 Licenses=(null) Network=(null)\n",
            "   Command=(null)\n",
            "   WorkDir=/lab/jobs\n",
            "   StdErr=/lab/jobs/slurm-12.out\n",
            "   StdIn=/dev/null\n",
            "   StdOut=/lab/jobs/slurm-12.out\n",
            "   Power=\n",
            "   TresPerNode=gres:gpu:2\n",
            "   \n",
            "\n",
        )
    );
}

#[test]
fn array_tasks_are_named_by_array_and_index() {
    let now = at(0, 46, 52);
    let text = concat!(
        "JobId=14 ArrayJobId=14 ArrayTaskId=16-23 JobName=sweep\n",
        "   UserId=alice(1001) GroupId=alice(1001) MCS_label=N/A\n",
        "   Priority=1321 Nice=0 Account=physics QOS=normal\n",
        "   JobState=PENDING Reason=Resources Dependency=(null)\n",
        "   Requeue=1 Restarts=0 BatchFlag=1 Reboot=0 ExitCode=0:0\n",
        "   RunTime=00:00:00 TimeLimit=00:20:00 TimeMin=N/A\n",
        "   SubmitTime=2026-11-15T00:46:48 EligibleTime=2026-11-15T00:46:49\n",
        "   AccrueTime=2026-11-15T00:46:49\n",
        "   StartTime=Unknown EndTime=Unknown Deadline=N/A\n",
        "   SuspendTime=None SecsPreSuspend=0 LastSchedEval=2026-11-15T00:46:49 Scheduler=Main\n",
        "   Partition=gpu AllocNode:Sid=localhost:3295\n",
        "   ReqNodeList=(null) ExcNodeList=(null)\n",
        "   NodeList=\n",
        "   NumNodes=1 NumCPUs=1 NumTasks=1 CPUs/Task=1 ReqB:S:C:T=0:0:*:*\n",
        "   TRES=cpu=1,mem=1000M,node=1,billing=1,gres/gpu=1\n",
        "   Socks/Node=* NtasksPerN:B:S:C=0:0:*:* CoreSpec=*\n",
        "   MinCPUsNode=1 MinMemoryCPU=1000M MinTmpDiskNode=0\n",
        "   Features=(null) DelayBoot=00:00:00\n",
        "   OverSubscribe=OK Contiguous=0 Licenses=(null) Network=(null)\n",
        "   Command=(null)\n",
        "   WorkDir=/lab/jobs\n",
        "   StdErr=/lab/jobs/sweep-14_4294967294.out\n",
        "   StdIn=/dev/null\n",
        "   StdOut=/lab/jobs/sweep-14_4294967294.out\n",
        "   Power=\n",
        "   TresPerNode=gres:gpu:1\n",
        "   \n",
        "\n",
        "JobId=30 ArrayJobId=14 ArrayTaskId=15 JobName=sweep\n",
        "   UserId=alice(1001) GroupId=alice(1001) MCS_label=N/A\n",
        "   Priority=1321 Nice=0 Account=physics QOS=normal\n",
        "   JobState=RUNNING Reason=None Dependency=(null)\n",
        "   Requeue=1 Restarts=0 BatchFlag=1 Reboot=0 ExitCode=0:0\n",
        "   RunTime=00:00:03 TimeLimit=00:20:00 TimeMin=N/A\n",
        "   SubmitTime=2026-11-15T00:46:48 EligibleTime=2026-11-15T00:46:49\n",
        "   AccrueTime=2026-11-15T00:46:49\n",
        "   StartTime=2026-11-15T00:46:49 EndTime=2026-11-15T01:06:49 Deadline=N/A\n",
        "   PreemptEligibleTime=2026-11-15T00:46:49 PreemptTime=None\n",
        "   SuspendTime=None SecsPreSuspend=0 LastSchedEval=2026-11-15T00:46:49 Scheduler=Main\n",
        "   Partition=gpu AllocNode:Sid=localhost:3295\n",
        "   ReqNodeList=(null) ExcNodeList=(null)\n",
        "   NodeList=node1\n",
        "   BatchHost=node1\n",
        "   NumNodes=1 NumCPUs=1 NumTasks=1 CPUs/Task=1 ReqB:S:C:T=0:0:*:*\n",
        "   TRES=cpu=1,mem=1000M,node=1,billing=1,gres/gpu=1\n",
        "   Socks/Node=* NtasksPerN:B:S:C=0:0:*:* CoreSpec=*\n",
        "   MinCPUsNode=1 MinMemoryCPU=1000M MinTmpDiskNode=0\n",
        "   Features=(null) DelayBoot=00:00:00\n",
        "   OverSubscribe=OK Contiguous=0 Licenses=(null) Network=(null)\n",
        "   Command=(null)\n",
        "   WorkDir=/lab/jobs\n",
        "   StdErr=/lab/jobs/sweep-14_15.out\n",
        "   StdIn=/dev/null\n",
        "   StdOut=/lab/jobs/sweep-14_15.out\n",
        "   Power=\n",
        "   TresPerNode=gres:gpu:1\n",
        "   \n",
        "\n",
    );
    let records: Vec<&str> = text.split_inclusive("\n   \n\n").collect();
    assert_eq!(job(&samples::sweep_pending(), now, PLAIN), records[0]);
    assert_eq!(job(&samples::sweep_task(15), now, PLAIN), records[1]);
}

#[test]
fn a_throttle_is_part_of_the_title() {
    let mut view = pending(16277, "lim", alice(), Reason::ArrayTaskLimit);
    let indices = IndexSet::from_range(3, 100);
    view.array = Some(ArrayView {
        array: JobId(16277),
        index: None,
        pending: Some(indices),
        throttle: Some(2),
    });
    let text = job(&view, at(1, 13, 1), PLAIN);
    let title =
        "JobId=16277 ArrayJobId=16277 ArrayTaskId=3-100%2 ArrayTaskThrottle=2 JobName=lim\n";
    assert!(text.starts_with(title), "{text}");
}

#[test]
fn an_interactive_job_has_a_command_and_no_files() {
    let mut view = running(1, "hostname", alice(), "node1", at(0, 45, 48));
    let mut spec = samples::spec(
        "hostname",
        alice(),
        Request { nodes: Range::exactly(2), ..Request::default() },
    );
    spec.launch.kind = LaunchKind::Interactive;
    spec.launch.command = Some("hostname".into());
    view.spec = Arc::new(spec);
    (view.state, view.priority) = (JobState::Completed, 1518);
    (view.submit, view.eligible) = (at(0, 45, 48), Some(at(0, 45, 48)));
    (view.end, view.last_planned) = (Some(at(0, 45, 49)), Some(at(0, 45, 48)));
    let shares = ["node1", "node2"].map(|name| samples::share(name, 1, 1000, &[], 1));
    view.allocation = Some(samples::allocation(shares.to_vec()));
    (view.nodes, view.cpus, view.tasks) = (Range::exactly(2), 2, 2);
    view.tres = Tres::parse("cpu=2,mem=2000M,node=2,billing=2").expect("a good list");
    let expected = concat!(
        "JobId=1 JobName=hostname\n",
        "   UserId=alice(1001) GroupId=alice(1001) MCS_label=N/A\n",
        "   Priority=1518 Nice=0 Account=physics QOS=normal\n",
        "   JobState=COMPLETED Reason=None Dependency=(null)\n",
        "   Requeue=1 Restarts=0 BatchFlag=0 Reboot=0 ExitCode=0:0\n",
        "   RunTime=00:00:01 TimeLimit=01:00:00 TimeMin=N/A\n",
        "   SubmitTime=2026-11-15T00:45:48 EligibleTime=2026-11-15T00:45:48\n",
        "   AccrueTime=Unknown\n",
        "   StartTime=2026-11-15T00:45:48 EndTime=2026-11-15T00:45:49 Deadline=N/A\n",
        "   PreemptEligibleTime=2026-11-15T00:45:48 PreemptTime=None\n",
        "   SuspendTime=None SecsPreSuspend=0 LastSchedEval=2026-11-15T00:45:48 Scheduler=Main\n",
        "   Partition=gpu AllocNode:Sid=localhost:3295\n",
        "   ReqNodeList=(null) ExcNodeList=(null)\n",
        "   NodeList=node[1-2]\n",
        "   BatchHost=node1\n",
        "   NumNodes=2 NumCPUs=2 NumTasks=2 CPUs/Task=1 ReqB:S:C:T=0:0:*:*\n",
        "   TRES=cpu=2,mem=2000M,node=2,billing=2\n",
        "   Socks/Node=* NtasksPerN:B:S:C=0:0:*:* CoreSpec=*\n",
        "   MinCPUsNode=1 MinMemoryCPU=1000M MinTmpDiskNode=0\n",
        "   Features=(null) DelayBoot=00:00:00\n",
        "   OverSubscribe=OK Contiguous=0 Licenses=(null) Network=(null)\n",
        "   Command=hostname\n",
        "   WorkDir=/lab/jobs\n",
        "   Power=\n",
        "   \n",
        "\n",
    );
    // A job that starts at once accrues no age in Slurm.
    let expected = expected.replace("AccrueTime=Unknown", "AccrueTime=2026-11-15T00:45:48");
    assert_eq!(job(&view, at(0, 45, 50), PLAIN), expected);
}

#[test]
fn comments_node_lists_and_begin_times_are_shown() {
    let mut view = pending(110, "newname", alice(), Reason::None);
    let request = Request {
        node_list: vec!["node2".into()],
        gres: vec![samples::gpu_request(Per::Node, 16)],
        ..Request::default()
    };
    let mut spec = samples::spec("newname", alice(), request);
    spec.comment = Some("hello".into());
    view.spec = Arc::new(spec);
    view.priority = 5592;
    view.time_limit = model::time::TimeLimit::Minutes(10);
    (view.submit, view.eligible) = (at(0, 50, 4), Some(at(2, 50, 4)));
    (view.start, view.end) = (Some(at(2, 50, 4)), Some(at(3, 0, 4)));
    view.last_planned = Some(at(0, 50, 4));
    view.tres = Tres::parse("cpu=1,mem=1000M,node=1,billing=1,gres/gpu=16").expect("a good list");
    assert_eq!(
        job(&view, at(0, 50, 9), PLAIN),
        concat!(
            "JobId=110 JobName=newname\n",
            "   UserId=alice(1001) GroupId=alice(1001) MCS_label=N/A\n",
            "   Priority=5592 Nice=0 Account=physics QOS=normal\n",
            "   JobState=PENDING Reason=None Dependency=(null)\n",
            "   Requeue=1 Restarts=0 BatchFlag=1 Reboot=0 ExitCode=0:0\n",
            "   RunTime=00:00:00 TimeLimit=00:10:00 TimeMin=N/A\n",
            "   SubmitTime=2026-11-15T00:50:04 EligibleTime=2026-11-15T02:50:04\n",
            "   AccrueTime=Unknown\n",
            "   StartTime=2026-11-15T02:50:04 EndTime=2026-11-15T03:00:04 Deadline=N/A\n",
            "   SuspendTime=None SecsPreSuspend=0 LastSchedEval=2026-11-15T00:50:04 Scheduler=Main\n",
            "   Partition=gpu AllocNode:Sid=localhost:3295\n",
            "   ReqNodeList=node2 ExcNodeList=(null)\n",
            "   NodeList=\n",
            "   NumNodes=1 NumCPUs=1 NumTasks=1 CPUs/Task=1 ReqB:S:C:T=0:0:*:*\n",
            "   TRES=cpu=1,mem=1000M,node=1,billing=1,gres/gpu=16\n",
            "   Socks/Node=* NtasksPerN:B:S:C=0:0:*:* CoreSpec=*\n",
            "   MinCPUsNode=1 MinMemoryCPU=1000M MinTmpDiskNode=0\n",
            "   Features=(null) DelayBoot=00:00:00\n",
            "   OverSubscribe=OK Contiguous=0 Licenses=(null) Network=(null)\n",
            "   Command=(null)\n",
            "   WorkDir=/lab/jobs\n",
            "   Comment=hello \n",
            "   StdErr=/lab/jobs/slurm-110.out\n",
            "   StdIn=/dev/null\n",
            "   StdOut=/lab/jobs/slurm-110.out\n",
            "   Power=\n",
            "   TresPerNode=gres:gpu:16\n",
            "   \n",
            "\n",
        )
    );
}

fn node_text(view: &wire::view::NodeView, options: Options) -> String {
    let mut out = String::new();
    node::push(&mut out, view, moment(at(0, 46, 21)), options);
    out
}

#[test]
fn nodes_have_slurms_record() {
    let both = |options| {
        let texts = ["node1", "node2"].map(|name| node_text(&node(name), options));
        texts.concat()
    };
    assert_eq!(
        both(PLAIN),
        concat!(
            "NodeName=node1 Arch=x86_64 CoresPerSocket=16 \n",
            "   CPUAlloc=0 CPUEfctv=32 CPUTot=32 CPULoad=1.01\n",
            "   AvailableFeatures=h100,ib\n",
            "   ActiveFeatures=h100,ib\n",
            "   Gres=gpu:h100:8\n",
            "   NodeAddr=127.0.0.1 NodeHostName=vm Port=0 Version=22.05.8\n",
            "   OS=Linux 6.18.44-fc-v310 #1 SMP @0 \n",
            "   RealMemory=128000 AllocMem=0 FreeMem=18358 Sockets=2 Boards=1\n",
            "   State=IDLE ThreadsPerCore=1 TmpDisk=0 Weight=1 Owner=N/A MCS_label=N/A\n",
            "   Partitions=gpu,debug \n",
            "   BootTime=2026-11-15T00:37:08 SlurmdStartTime=2026-11-15T00:44:55\n",
            "   LastBusyTime=2026-11-15T00:45:49\n",
            "   CfgTRES=cpu=32,mem=125G,billing=32,gres/gpu=8\n",
            "   AllocTRES=\n",
            "   CapWatts=n/a\n",
            "   CurrentWatts=0 AveWatts=0\n",
            "   ExtSensorsJoules=n/s ExtSensorsWatts=0 ExtSensorsTemp=n/s\n",
            "\n",
            "NodeName=node2 Arch=x86_64 CoresPerSocket=16 \n",
            "   CPUAlloc=0 CPUEfctv=32 CPUTot=32 CPULoad=1.01\n",
            "   AvailableFeatures=h100,ib\n",
            "   ActiveFeatures=h100,ib\n",
            "   Gres=gpu:h100:8\n",
            "   NodeAddr=127.0.0.1 NodeHostName=vm Port=0 Version=22.05.8\n",
            "   OS=Linux 6.18.44-fc-v310 #1 SMP @0 \n",
            "   RealMemory=128000 AllocMem=0 FreeMem=18351 Sockets=2 Boards=1\n",
            "   State=IDLE ThreadsPerCore=1 TmpDisk=0 Weight=1 Owner=N/A MCS_label=N/A\n",
            "   Partitions=gpu \n",
            "   BootTime=2026-11-15T00:37:08 SlurmdStartTime=2026-11-15T00:44:55\n",
            "   LastBusyTime=2026-11-15T00:45:49\n",
            "   CfgTRES=cpu=32,mem=125G,billing=32,gres/gpu=8\n",
            "   AllocTRES=\n",
            "   CapWatts=n/a\n",
            "   CurrentWatts=0 AveWatts=0\n",
            "   ExtSensorsJoules=n/s ExtSensorsWatts=0 ExtSensorsTemp=n/s\n",
            "\n",
        )
    );
    assert_eq!(
        both(ONELINER),
        concat!(
            "NodeName=node1 Arch=x86_64 CoresPerSocket=16  CPUAlloc=0 CPUEfctv=32 CPUTot=32 CPULoad=1.01 AvailableFeatures=h100,ib ActiveFeatures=h100,ib Gres=gpu:h100:8 NodeAddr=127.0.0.1 NodeHostName=vm Port=0 Version=22.05.8 OS=Linux 6.18.44-fc-v310 #1 SMP @0  RealMemory=128000 AllocMem=0 FreeMem=18358 Sockets=2 Boards=1 State=IDLE ThreadsPerCore=1 TmpDisk=0 Weight=1 Owner=N/A MCS_label=N/A Partitions=gpu,debug  BootTime=2026-11-15T00:37:08 SlurmdStartTime=2026-11-15T00:44:55 LastBusyTime=2026-11-15T00:45:49 CfgTRES=cpu=32,mem=125G,billing=32,gres/gpu=8 AllocTRES= CapWatts=n/a CurrentWatts=0 AveWatts=0 ExtSensorsJoules=n/s ExtSensorsWatts=0 ExtSensorsTemp=n/s\n",
            "NodeName=node2 Arch=x86_64 CoresPerSocket=16  CPUAlloc=0 CPUEfctv=32 CPUTot=32 CPULoad=1.01 AvailableFeatures=h100,ib ActiveFeatures=h100,ib Gres=gpu:h100:8 NodeAddr=127.0.0.1 NodeHostName=vm Port=0 Version=22.05.8 OS=Linux 6.18.44-fc-v310 #1 SMP @0  RealMemory=128000 AllocMem=0 FreeMem=18351 Sockets=2 Boards=1 State=IDLE ThreadsPerCore=1 TmpDisk=0 Weight=1 Owner=N/A MCS_label=N/A Partitions=gpu  BootTime=2026-11-15T00:37:08 SlurmdStartTime=2026-11-15T00:44:55 LastBusyTime=2026-11-15T00:45:49 CfgTRES=cpu=32,mem=125G,billing=32,gres/gpu=8 AllocTRES= CapWatts=n/a CurrentWatts=0 AveWatts=0 ExtSensorsJoules=n/s ExtSensorsWatts=0 ExtSensorsTemp=n/s\n",
        )
    );
    assert_eq!(
        node_text(&busy_node(), DETAILS),
        concat!(
            "NodeName=node1 Arch=x86_64 CoresPerSocket=16 \n",
            "   CPUAlloc=4 CPUEfctv=32 CPUTot=32 CPULoad=1.01\n",
            "   AvailableFeatures=h100,ib\n",
            "   ActiveFeatures=h100,ib\n",
            "   Gres=gpu:h100:8\n",
            "   GresDrain=N/A\n",
            "   GresUsed=gpu:h100:2(IDX:0-1)\n",
            "   NodeAddr=127.0.0.1 NodeHostName=vm Port=0 Version=22.05.8\n",
            "   OS=Linux 6.18.44-fc-v310 #1 SMP @0 \n",
            "   RealMemory=128000 AllocMem=8192 FreeMem=18358 Sockets=2 Boards=1\n",
            "   State=MIXED ThreadsPerCore=1 TmpDisk=0 Weight=1 Owner=N/A MCS_label=N/A\n",
            "   Partitions=gpu,debug \n",
            "   BootTime=2026-11-15T00:37:08 SlurmdStartTime=2026-11-15T00:44:55\n",
            "   LastBusyTime=2026-11-15T00:45:49\n",
            "   CfgTRES=cpu=32,mem=125G,billing=32,gres/gpu=8\n",
            "   AllocTRES=cpu=4,mem=8G,gres/gpu=2\n",
            "   CapWatts=n/a\n",
            "   CurrentWatts=0 AveWatts=0\n",
            "   ExtSensorsJoules=n/s ExtSensorsWatts=0 ExtSensorsTemp=n/s\n",
            "\n",
        )
    );
}

#[test]
fn a_drained_node_says_why_and_by_whom() {
    let mut view = node("node1");
    view.admin = Some(AdminState::Drain);
    view.last_busy = Some(at(0, 48, 31));
    view.reason =
        Some(NodeReason { text: "bad gpu 3".into(), by: "root".into(), uid: 0, at: at(0, 48, 20) });
    assert_eq!(
        node_text(&view, PLAIN),
        concat!(
            "NodeName=node1 Arch=x86_64 CoresPerSocket=16 \n",
            "   CPUAlloc=0 CPUEfctv=32 CPUTot=32 CPULoad=1.01\n",
            "   AvailableFeatures=h100,ib\n",
            "   ActiveFeatures=h100,ib\n",
            "   Gres=gpu:h100:8\n",
            "   NodeAddr=127.0.0.1 NodeHostName=vm Port=0 Version=22.05.8\n",
            "   OS=Linux 6.18.44-fc-v310 #1 SMP @0 \n",
            "   RealMemory=128000 AllocMem=0 FreeMem=18358 Sockets=2 Boards=1\n",
            "   State=IDLE+DRAIN ThreadsPerCore=1 TmpDisk=0 Weight=1 Owner=N/A MCS_label=N/A\n",
            "   Partitions=gpu,debug \n",
            "   BootTime=2026-11-15T00:37:08 SlurmdStartTime=2026-11-15T00:44:55\n",
            "   LastBusyTime=2026-11-15T00:48:31\n",
            "   CfgTRES=cpu=32,mem=125G,billing=32,gres/gpu=8\n",
            "   AllocTRES=\n",
            "   CapWatts=n/a\n",
            "   CurrentWatts=0 AveWatts=0\n",
            "   ExtSensorsJoules=n/s ExtSensorsWatts=0 ExtSensorsTemp=n/s\n",
            "   Reason=bad gpu 3 [root@2026-11-15T00:48:20]\n",
            "\n",
        )
    );
}

#[test]
fn partitions_have_slurms_record() {
    let view = cluster(vec![node("node1"), node("node2")]);
    let mut out = String::new();
    view.partitions.iter().for_each(|one| partition::push(&mut out, one, &view, PLAIN));
    assert_eq!(
        out,
        concat!(
            "PartitionName=gpu\n",
            "   AllowGroups=ALL AllowAccounts=ALL AllowQos=ALL\n",
            "   AllocNodes=ALL Default=YES QoS=N/A\n",
            "   DefaultTime=01:00:00 DisableRootJobs=NO ExclusiveUser=NO GraceTime=0 Hidden=NO\n",
            "   MaxNodes=UNLIMITED MaxTime=7-00:00:00 MinNodes=0 LLN=NO MaxCPUsPerNode=UNLIMITED\n",
            "   Nodes=node[1-2]\n",
            "   PriorityJobFactor=1 PriorityTier=1 RootOnly=NO ReqResv=NO OverSubscribe=NO\n",
            "   OverTimeLimit=NONE PreemptMode=REQUEUE\n",
            "   State=UP TotalCPUs=64 TotalNodes=2 SelectTypeParameters=NONE\n",
            "   JobDefaults=(null)\n",
            "   DefMemPerNode=UNLIMITED MaxMemPerNode=UNLIMITED\n",
            "   TRES=cpu=64,mem=250G,node=2,billing=64,gres/gpu=16\n",
            "\n",
            "PartitionName=debug\n",
            "   AllowGroups=ALL AllowAccounts=ALL AllowQos=ALL\n",
            "   AllocNodes=ALL Default=NO QoS=N/A\n",
            "   DefaultTime=NONE DisableRootJobs=NO ExclusiveUser=NO GraceTime=0 Hidden=NO\n",
            "   MaxNodes=UNLIMITED MaxTime=00:30:00 MinNodes=0 LLN=NO MaxCPUsPerNode=UNLIMITED\n",
            "   Nodes=node1\n",
            "   PriorityJobFactor=1 PriorityTier=10 RootOnly=NO ReqResv=NO OverSubscribe=NO\n",
            "   OverTimeLimit=NONE PreemptMode=REQUEUE\n",
            "   State=UP TotalCPUs=32 TotalNodes=1 SelectTypeParameters=NONE\n",
            "   JobDefaults=(null)\n",
            "   DefMemPerNode=UNLIMITED MaxMemPerNode=UNLIMITED\n",
            "   TRES=cpu=32,mem=125G,node=1,billing=32,gres/gpu=8\n",
            "\n",
        )
    );
}

#[test]
fn steps_have_slurms_record() {
    let mut out = String::new();
    step::push(&mut out, &train(), None, moment(at(0, 46, 21)), PLAIN);
    assert_eq!(
        out,
        concat!(
            "StepId=3.batch UserId=1001 StartTime=2026-11-15T00:46:19 TimeLimit=UNLIMITED\n",
            "   State=RUNNING Partition=gpu NodeList=node1\n",
            "   Nodes=1 CPUs=0 Tasks=1 Name=batch Network=(null)\n",
            "   TRES=(null)\n",
            "   ResvPorts=(null)\n",
            "   CPUFreqReq=Default\n",
            "   SrunHost:Pid=(null):0\n",
            "\n",
        )
    );
}

#[test]
fn settings_are_aligned_and_those_of_cgroups_apart() {
    let values = [
        ("SlurmctldPort", "16817"),
        ("AccountingStorageBackupHost", "(null)"),
        ("SLURM_VERSION", "22.05.8"),
        ("ClusterName", "lab"),
        ("cgroup.ConstrainCores", "no"),
    ];
    let values: BTreeMap<String, String> =
        values.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect();
    let mut out = String::new();
    let config = ConfigView { now: at(0, 45, 50), values };
    config::push(&mut out, &config, moment(at(0, 45, 50)), "vm");
    assert_eq!(
        out,
        concat!(
            "Configuration data as of 2026-11-15T00:45:50\n",
            "AccountingStorageBackupHost = (null)\n",
            "ClusterName             = lab\n",
            "SLURM_VERSION           = 22.05.8\n",
            "SlurmctldPort           = 16817\n",
            "\n",
            "Cgroup Support Configuration:\n",
            "ConstrainCores          = no\n",
            "\n",
            "Slurmctld(primary) at vm is UP\n",
        )
    );
}

#[test]
fn host_lists_are_expanded_and_compressed() {
    let names = "node1\nnode2\nnode3\nnode7\ngpu01\ngpu02\ngpu03\n";
    assert_eq!(hostnames("node[1-3,7],gpu[01-03]").as_deref(), Ok(names));
    assert_eq!(host_list_sorted("node3,node1,node2").as_deref(), Ok("node[1-3]\n"));
    assert_eq!(host_list("node1,node2").as_deref(), Ok("node[1-2]\n"));
    assert!(hostnames("node[1").is_err());
}

#[test]
fn what_does_not_exist_is_said_in_slurms_words() {
    assert_eq!(no_node("nosuch"), concat!("Node nosuch not found\n",));
    assert_eq!(no_partition("nosuch"), concat!("Partition nosuch not found\n",));
    assert_eq!(NO_STEPS, concat!("No job steps in the system\n",));
    assert_eq!(ping("vm", true), concat!("Slurmctld(primary) at vm is UP\n",));
}
