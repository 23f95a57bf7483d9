//! `scontrol show job` against the captures.

use super::*;
use crate::output::samples::{self, alice, at, bob, moment, pending, running, train};
use model::array::IndexSet;
use model::container::Container;
use model::id::JobId;
use model::range::Range;
use model::reason::{LaunchFailure, LaunchFault, Limit, LimitKind, LimitScope, Reason};
use model::request::Request;
use model::run::JobState;
use model::time::TimeLimit;
use model::tres::{Tres, TresKind};
use std::sync::Arc;
use wire::view::ArrayView;

const PLAIN: Options = Options { details: false, oneliner: false };
const DETAILS: Options = Options { details: true, oneliner: false };
const ONELINER: Options = Options { details: false, oneliner: true };

fn shown(view: &JobView, now: Timestamp, options: Options) -> String {
    let mut out = String::new();
    push(&mut out, view, moment(now), options);
    out
}

#[test]
fn a_running_job_has_the_record_of_slurm() {
    let now = at(0, 46, 21);
    assert_eq!(
        shown(&train(), now, PLAIN),
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
        shown(&train(), now, DETAILS),
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
        shown(&train(), now, ONELINER),
        "JobId=3 JobName=train UserId=alice(1001) GroupId=alice(1001) MCS_label=N/A Priority=1412 Nice=0 Account=physics QOS=normal JobState=RUNNING Reason=None Dependency=(null) Requeue=1 Restarts=0 BatchFlag=1 Reboot=0 ExitCode=0:0 RunTime=00:00:02 TimeLimit=00:10:00 TimeMin=N/A SubmitTime=2026-11-15T00:46:19 EligibleTime=2026-11-15T00:46:19 AccrueTime=2026-11-15T00:46:19 StartTime=2026-11-15T00:46:19 EndTime=2026-11-15T00:56:19 Deadline=N/A PreemptEligibleTime=2026-11-15T00:46:19 PreemptTime=None SuspendTime=None SecsPreSuspend=0 LastSchedEval=2026-11-15T00:46:19 Scheduler=Main Partition=gpu AllocNode:Sid=localhost:3295 ReqNodeList=(null) ExcNodeList=(null) NodeList=node1 BatchHost=node1 NumNodes=1 NumCPUs=4 NumTasks=1 CPUs/Task=4 ReqB:S:C:T=0:0:*:* TRES=cpu=4,mem=8G,node=1,billing=4,gres/gpu=2 Socks/Node=* NtasksPerN:B:S:C=0:0:*:* CoreSpec=* MinCPUsNode=4 MinMemoryNode=8G MinTmpDiskNode=0 Features=(null) DelayBoot=00:00:00 OverSubscribe=OK Contiguous=0 Licenses=(null) Network=(null) Command=(null) WorkDir=/lab/jobs StdErr=/lab/jobs/slurm-3.out StdIn=/dev/null StdOut=/lab/jobs/slurm-3.out Power= TresPerNode=gres:gpu:2 \n"
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
    let mut view = pending(12, "cap2", bob(), Reason::Limit(Box::new(limit)));
    let request = Request { gres: vec![samples::gpu_request(Per::Node, 2)], ..Request::default() };
    view.spec = Arc::new(samples::spec("cap2", bob(), request));
    (view.priority, view.qos) = (1384, "capped".into());
    (view.submit, view.eligible) = (at(0, 46, 23), Some(at(0, 46, 23)));
    view.last_planned = Some(at(0, 46, 25));
    view.tres =
        Tres::parse("cpu=1,mem=1000M,node=1,billing=1,gres/gpu=2").expect("a good list").into();
    assert_eq!(
        shown(&view, at(0, 46, 27), PLAIN),
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
fn the_nodes_that_a_waiting_job_asked_for_are_a_range() {
    let nodes = |asked: Range<u32>, nodes_given: bool| {
        let mut view = pending(12, "wide", bob(), Reason::Resources);
        let request = Request { nodes: asked, nodes_given, ..Request::default() };
        view.spec = Arc::new(samples::spec("wide", bob(), request));
        view.nodes = asked;
        let text = shown(&view, at(0, 46, 27), PLAIN);
        let (_, after) = text.split_once("NumNodes=").expect("the field");
        after.split(' ').next().expect("a value").to_owned()
    };
    assert_eq!(nodes(Range::exactly(2), true), "2-2");
    assert_eq!(nodes(Range::between(2, 4), true), "2-4");
    assert_eq!(nodes(Range::exactly(1), false), "1");
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
    assert_eq!(shown(&samples::sweep_pending(), now, PLAIN), records[0]);
    assert_eq!(shown(&samples::sweep_task(15), now, PLAIN), records[1]);
}

#[test]
fn an_array_throttle_is_in_the_first_line() {
    let mut view = pending(16277, "lim", alice(), Reason::ArrayTaskLimit);
    let indices = IndexSet::from_range(3, 100);
    view.array = Some(Box::new(ArrayView {
        array: JobId(16277),
        index: None,
        pending: Some(indices),
        throttle: Some(2),
    }));
    let text = shown(&view, at(1, 13, 1), PLAIN);
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
    std::sync::Arc::make_mut(&mut spec.launch).kind = LaunchKind::Interactive;
    std::sync::Arc::make_mut(&mut spec.launch).command = Some("hostname".into());
    view.spec = Arc::new(spec);
    (view.state, view.priority) = (JobState::Completed, 1518);
    (view.submit, view.eligible) = (at(0, 45, 48), Some(at(0, 45, 48)));
    (view.end, view.last_planned) = (Some(at(0, 45, 49)), Some(at(0, 45, 48)));
    let shares = ["node1", "node2"].map(|name| samples::share(name, 1, 1000, &[], 1));
    view.allocation = Some(Box::new(samples::allocation(shares.to_vec())));
    (view.nodes, view.cpus, view.tasks) = (Range::exactly(2), 2, 2);
    view.tres = Tres::parse("cpu=2,mem=2000M,node=2,billing=2").expect("a good list").into();
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
    assert_eq!(shown(&view, at(0, 45, 50), PLAIN), expected);
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
    view.time_limit = TimeLimit::Minutes(10);
    (view.submit, view.eligible) = (at(0, 50, 4), Some(at(2, 50, 4)));
    (view.start, view.end) = (Some(at(2, 50, 4)), Some(at(3, 0, 4)));
    view.last_planned = Some(at(0, 50, 4));
    view.tres =
        Tres::parse("cpu=1,mem=1000M,node=1,billing=1,gres/gpu=16").expect("a good list").into();
    assert_eq!(
        shown(&view, at(0, 50, 9), PLAIN),
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

#[test]
fn container_of_a_job_is_named_after_what_it_asked_for() {
    let mut view = train();
    assert!(!shown(&view, at(0, 46, 21), PLAIN).contains("Container="));
    let container = Container { image: Some("/lab/bundle".into()), ..Container::default() };
    let launch = &mut Arc::make_mut(&mut view.spec).launch;
    Arc::make_mut(launch).container = Some(Box::new(container));
    let text = shown(&view, at(0, 46, 21), PLAIN);
    let last = "   TresPerNode=gres:gpu:2\n   Container=/lab/bundle\n   \n\n";
    assert!(text.ends_with(last), "{text}");
}

#[test]
fn cause_of_a_failed_launch_is_the_last_field_and_one_word() {
    let mut view = train();
    assert!(!shown(&view, at(0, 50, 9), PLAIN).contains("FailureCause"));
    let what = "/nonexist/x.out: No such file or directory";
    view.reason = Reason::NotLaunched(Box::new(LaunchFailure::new(LaunchFault::Other, what)));
    let text = shown(&view, at(0, 50, 9), PLAIN);
    assert!(text.contains(" Reason=JobLaunchFailure "), "{text}");
    let last = "   FailureCause=/nonexist/x.out:_No_such_file_or_directory\n   \n\n";
    assert!(text.ends_with(last), "{text}");
}
