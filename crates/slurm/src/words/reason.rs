//! Why a job waits, in the words of `squeue`.

use model::hostlist;
use model::printable::printable;
use model::reason::{Limit, LimitKind, LimitScope, PartitionDenial, Reason, UserFault};
use model::tres::TresKind;
use std::borrow::Cow;

/// The word for a reason, as `squeue` and `sacct` print it.
pub fn text(reason: &Reason) -> Cow<'static, str> {
    let word = match reason {
        Reason::None | Reason::NotPlanned | Reason::Preempted => "None",
        Reason::Resources | Reason::NoCapacity => "Resources",
        Reason::Priority => "Priority",
        Reason::Dependency => "Dependency",
        Reason::DependencyNeverSatisfied => "DependencyNeverSatisfied",
        Reason::BeginTime => "BeginTime",
        Reason::HeldByUser => "JobHeldUser",
        Reason::HeldByAdmin => "JobHeldAdmin",
        Reason::ArrayTaskLimit => "JobArrayTaskLimit",
        Reason::PartitionNodeLimit => "PartitionNodeLimit",
        Reason::PartitionTimeLimit => "PartitionTimeLimit",
        Reason::PartitionDown => "PartitionDown",
        Reason::PartitionInactive => "PartitionInactive",
        Reason::RequiredNodesUnavailable { nodes } => return unavailable(nodes).into(),
        Reason::NodesDown => {
            "Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions"
        }
        Reason::Licenses => "Licenses",
        Reason::Reservation => "Reservation",
        Reason::ReservationGone(name) => return format!("Reservation {name} was deleted").into(),
        Reason::NodesReserved => "ReqNodeNotAvail, May be reserved for other job",
        Reason::BadConstraints => "BadConstraints",
        Reason::InvalidAccount => "InvalidAccount",
        Reason::InvalidQos => "InvalidQOS",
        Reason::AccountNotAllowed(not) => return not_allowed("account", not).into(),
        Reason::QosNotAllowed(not) => return not_allowed("QOS", not).into(),
        Reason::UsageThreshold => "QOSUsageThreshold",
        Reason::Limit(limit) => return limit_text(limit).into(),
        Reason::LaunchFailed | Reason::NotLaunched(_) => "JobLaunchFailure",
        Reason::LaunchFailedHeld => "launch failed requeued held",
        Reason::UserRefused(UserFault::Unknown) => "launch failed, no such user on the node",
        Reason::UserRefused(UserFault::Renamed) => "launch failed, another user on the node",
        Reason::UserRefused(UserFault::Expired) => "launch failed, user account expired",
        Reason::UserRefused(UserFault::Locked) => "launch failed, user account locked",
        Reason::GpusUnderused => "GpuUtilizationPolicy",
        Reason::Inactive => "InactivityDuration",
        // Slurm does not tell the one from any other cancel, nor of the other who did it.
        Reason::Aborted | Reason::RequeuedBy(_) => "None",
        Reason::NonZeroExit => "NonZeroExitCode",
        Reason::TimeLimit => "TimeLimit",
        Reason::OutOfMemory => "OutOfMemory",
        Reason::NodeFail => "NodeDown",
        Reason::Deadline => "DeadLine",
        Reason::RequeuedHeld => "job requeued in held state",
        Reason::Prolog => "Prolog",
        Reason::ImagePull => "ImagePull",
        Reason::RestoredNodesAwaited => "ReqNodeNotAvail, Nodes have not reported since a restore",
    };
    word.into()
}

/// [`text`] without spaces: scripts split the output of `scontrol` at white space.
pub fn one_word(reason: &Reason) -> Cow<'static, str> {
    let text = text(reason);
    if text.contains(' ') { text.replace(' ', "_").into() } else { text }
}

/// Why a node could not start the job, in the node's words: the reason has one word for all of them. `None` for every other
/// reason.
pub fn failure_cause(reason: &Reason) -> Option<Cow<'_, str>> {
    match reason {
        Reason::NotLaunched(failure) => Some(printable(&failure.what)),
        _ => None,
    }
}

/// `Job's account not permitted to use this partition (acc allows chem not physics)`
fn not_allowed(what: &str, not: &PartitionDenial) -> String {
    let PartitionDenial { partition, list, denies, name } = not;
    let list = list.join(",");
    let because = if *denies {
        format!("{partition} denies {list} including {name}")
    } else {
        format!("{partition} allows {list} not {name}")
    };
    format!("Job's {what} not permitted to use this partition ({because})")
}

fn unavailable(nodes: &[String]) -> String {
    if nodes.is_empty() {
        return "ReqNodeNotAvail".to_owned();
    }
    format!("ReqNodeNotAvail, UnavailableNodes:{}", hostlist::compress_sorted(nodes))
}

/// What a TRES limit counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Counted {
    Amount,
    Minutes,
    RunMinutes,
}

/// The words of TRES limits. CPUs, nodes and memory have words of their own, which are older than TRES; for all others the
/// name of the resource replaces the `*`.
struct TresWords {
    scope: LimitScope,
    counted: Counted,
    cpu: &'static str,
    node: &'static str,
    memory: &'static str,
    other: &'static str,
}

const fn row(
    scope: LimitScope,
    counted: Counted,
    cpu: &'static str,
    node: &'static str,
    memory: &'static str,
    other: &'static str,
) -> TresWords {
    TresWords { scope, counted, cpu, node, memory, other }
}

/// Not formatted by rustfmt: a row is one line.
#[rustfmt::skip]
const TRES_WORDS: [TresWords; 14] = [
    row(LimitScope::QosPerUser, Counted::Amount, "QOSMaxCpuPerUserLimit", "QOSMaxNodePerUserLimit", "QOSMaxMemoryPerUser", "QOSMax*PerUser"),
    row(LimitScope::QosPerJob, Counted::Amount, "QOSMaxCpuPerJobLimit", "QOSMaxNodePerJobLimit", "QOSMaxMemoryPerJob", "QOSMax*PerJob"),
    row(LimitScope::QosPerJob, Counted::Minutes, "QOSMaxCpuMinutesPerJobLimit", "QOSMaxNodeMinutesPerJob", "QOSMaxMemoryMinutesPerJob", "QOSMax*MinutesPerJob"),
    row(LimitScope::QosPerNode, Counted::Amount, "QOSMaxCpuPerNode", "QOSMaxNodePerJobLimit", "QOSMaxMemoryPerNode", "QOSMax*PerNode"),
    row(LimitScope::QosPerAccount, Counted::Amount, "MaxCpuPerAccount", "MaxNodePerAccount", "MaxMemoryPerAccount", "Max*PerAccount"),
    row(LimitScope::QosGroup, Counted::Amount, "QOSGrpCpuLimit", "QOSGrpNodeLimit", "QOSGrpMemLimit", "QOSGrp*"),
    row(LimitScope::QosGroup, Counted::Minutes, "QOSGrpCPUMinutesLimit", "QOSGrpNodeMinutes", "QOSGrpMemoryMinutes", "QOSGrp*Minutes"),
    row(LimitScope::QosGroup, Counted::RunMinutes, "QOSGrpCPURunMinutesLimit", "QOSGrpNodeRunMinutes", "QOSGrpMemoryRunMinutes", "QOSGrp*RunMinutes"),
    row(LimitScope::QosLeast, Counted::Amount, "QOSMinCpuNotSatisfied", "QOSMinNode", "QOSMinMemory", "QOSMin*"),
    row(LimitScope::AssociationPerJob, Counted::Amount, "AssocMaxCpuPerJobLimit", "AssocMaxNodePerJobLimit", "AssocMaxMemPerJob", "AssocMax*PerJob"),
    row(LimitScope::AssociationPerJob, Counted::Minutes, "AssocMaxCpuMinutesPerJobLimit", "AssocMaxNodeMinutesPerJob", "AssocMaxMemMinutesPerJob", "AssocMax*MinutesPerJob"),
    row(LimitScope::AssociationPerNode, Counted::Amount, "AssocMaxCpuPerNode", "AssocMaxNodePerJobLimit", "AssocMaxMemPerNode", "AssocMax*PerNode"),
    row(LimitScope::AssociationGroup, Counted::Minutes, "AssocGrpCPUMinutesLimit", "AssocGrpNodeMinutes", "AssocGrpMemMinutes", "AssocGrp*Minutes"),
    row(LimitScope::AssociationGroup, Counted::RunMinutes, "AssocGrpCPURunMinutesLimit", "AssocGrpNodeRunMinutes", "AssocGrpMemRunMinutes", "AssocGrp*RunMinutes"),
];

/// The words for limits without a row in [`TRES_WORDS`].
const GROUP_WORDS: TresWords = row(
    LimitScope::AssociationGroup,
    Counted::Amount,
    "AssocGrpCpuLimit",
    "AssocGrpNodeLimit",
    "AssocGrpMemLimit",
    "AssocGrp*",
);

fn limit_text(limit: &Limit) -> String {
    let (counted, kind) = match &limit.kind {
        LimitKind::Jobs => return jobs_word(limit.scope).to_owned(),
        LimitKind::SubmitJobs => return submit_word(limit.scope).to_owned(),
        LimitKind::Wall => return wall_word(limit.scope).to_owned(),
        LimitKind::Tres(kind) => (Counted::Amount, kind),
        LimitKind::TresMinutes(kind) => (Counted::Minutes, kind),
        LimitKind::TresRunMinutes(kind) => (Counted::RunMinutes, kind),
    };
    let same = |words: &&TresWords| words.scope == limit.scope && words.counted == counted;
    let words = TRES_WORDS.iter().find(same).unwrap_or(&GROUP_WORDS);
    let other = |word| words.other.replace('*', word);
    match kind {
        TresKind::Cpu => words.cpu.to_owned(),
        TresKind::Node => words.node.to_owned(),
        TresKind::Mem => words.memory.to_owned(),
        TresKind::Gres { .. } => other("GRES"),
        TresKind::License(_) => other("License"),
        TresKind::Bb(_) => other("BB"),
        TresKind::Energy => other("Energy"),
        TresKind::Billing => other("Billing"),
        TresKind::Cost => other("Cost"),
        TresKind::FsDisk | TresKind::Vmem | TresKind::Pages => other("Unknown"),
    }
}

fn jobs_word(scope: LimitScope) -> &'static str {
    match scope {
        LimitScope::QosPerUser => "QOSMaxJobsPerUserLimit",
        LimitScope::QosPerAccount => "MaxJobsPerAccount",
        LimitScope::QosGroup => "QOSGrpJobsLimit",
        LimitScope::QosPerJob | LimitScope::QosPerNode | LimitScope::QosLeast => "QOSJobLimit",
        LimitScope::AssociationPerJob | LimitScope::AssociationPerNode => "AssocMaxJobsLimit",
        LimitScope::AssociationGroup => "AssocGrpJobsLimit",
    }
}

fn submit_word(scope: LimitScope) -> &'static str {
    match scope {
        LimitScope::QosPerUser => "QOSMaxSubmitJobPerUserLimit",
        LimitScope::QosPerAccount => "MaxSubmitJobsPerAccount",
        LimitScope::QosGroup => "QOSGrpSubmitJobsLimit",
        LimitScope::QosPerJob | LimitScope::QosPerNode | LimitScope::QosLeast => "QOSJobLimit",
        LimitScope::AssociationPerJob | LimitScope::AssociationPerNode => "AssocMaxSubmitJobLimit",
        LimitScope::AssociationGroup => "AssocGrpSubmitJobsLimit",
    }
}

fn wall_word(scope: LimitScope) -> &'static str {
    match scope {
        LimitScope::QosGroup => "QOSGrpWallLimit",
        LimitScope::AssociationGroup => "AssocGrpWallLimit",
        LimitScope::AssociationPerJob | LimitScope::AssociationPerNode => {
            "AssocMaxWallDurationPerJobLimit"
        }
        _ => "QOSMaxWallDurationPerJobLimit",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit(scope: LimitScope, kind: LimitKind) -> Reason {
        let holder = "capped".to_owned();
        Reason::Limit(Box::new(Limit { scope, kind, holder, limit: 4, in_use: 4, asked: 1 }))
    }

    #[test]
    fn limits_have_the_words_of_slurms_table() {
        let gpu = || LimitKind::Tres(TresKind::gpu());
        let table = [
            (LimitScope::QosPerUser, gpu(), "QOSMaxGRESPerUser"),
            (LimitScope::QosPerUser, LimitKind::Tres(TresKind::Cpu), "QOSMaxCpuPerUserLimit"),
            (LimitScope::QosPerUser, LimitKind::Tres(TresKind::Mem), "QOSMaxMemoryPerUser"),
            (LimitScope::QosPerUser, LimitKind::Jobs, "QOSMaxJobsPerUserLimit"),
            (LimitScope::QosPerUser, LimitKind::SubmitJobs, "QOSMaxSubmitJobPerUserLimit"),
            (LimitScope::QosPerJob, LimitKind::Tres(TresKind::Node), "QOSMaxNodePerJobLimit"),
            (LimitScope::QosPerJob, LimitKind::Wall, "QOSMaxWallDurationPerJobLimit"),
            (LimitScope::QosPerAccount, gpu(), "MaxGRESPerAccount"),
            (LimitScope::QosPerAccount, LimitKind::Tres(TresKind::Cpu), "MaxCpuPerAccount"),
            (LimitScope::QosGroup, gpu(), "QOSGrpGRES"),
            (LimitScope::QosGroup, LimitKind::Tres(TresKind::Mem), "QOSGrpMemLimit"),
            (LimitScope::AssociationGroup, LimitKind::Tres(TresKind::Cpu), "AssocGrpCpuLimit"),
            (LimitScope::AssociationGroup, LimitKind::Wall, "AssocGrpWallLimit"),
            (LimitScope::AssociationPerJob, LimitKind::Jobs, "AssocMaxJobsLimit"),
            (LimitScope::AssociationPerJob, gpu(), "AssocMaxGRESPerJob"),
        ];
        for (scope, kind, word) in table {
            assert_eq!(text(&limit(scope, kind)), word);
        }
    }

    #[test]
    fn a_reason_with_spaces_is_one_word_for_scontrol() {
        let nodes = vec!["node2".to_owned(), "node1".to_owned()];
        let reason = Reason::RequiredNodesUnavailable { nodes };
        assert_eq!(text(&reason), "ReqNodeNotAvail, UnavailableNodes:node[1-2]");
        assert_eq!(one_word(&reason), "ReqNodeNotAvail,_UnavailableNodes:node[1-2]");
        assert_eq!(one_word(&Reason::HeldByUser), "JobHeldUser");
    }
}
