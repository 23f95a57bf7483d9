//! Why a job waits, in the words of `squeue`.

use model::hostlist;
use model::reason::{Limit, LimitKind, LimitScope, Reason};
use model::tres::TresKind;
use std::borrow::Cow;

/// The word for a reason, as `squeue` and `sacct` print it.
pub fn text(reason: &Reason) -> Cow<'static, str> {
    let word = match reason {
        Reason::None | Reason::NotPlanned => "None",
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
        Reason::BadConstraints => "BadConstraints",
        Reason::InvalidAccount => "InvalidAccount",
        Reason::InvalidQos => "InvalidQOS",
        Reason::Limit(limit) => return limit_text(limit).into(),
        Reason::LaunchFailed => "JobLaunchFailure",
        Reason::NonZeroExit => "NonZeroExitCode",
        Reason::TimeLimit => "TimeLimit",
        Reason::OutOfMemory => "OutOfMemory",
        Reason::NodeFail => "NodeDown",
        Reason::Deadline => "DeadLine",
    };
    word.into()
}

/// As [`text`], in one word: `scontrol` is read by scripts that split at white space.
pub fn one_word(reason: &Reason) -> Cow<'static, str> {
    let text = text(reason);
    if text.contains(' ') { text.replace(' ', "_").into() } else { text }
}

fn unavailable(nodes: &[String]) -> String {
    if nodes.is_empty() {
        return "ReqNodeNotAvail".to_owned();
    }
    format!("ReqNodeNotAvail, UnavailableNodes:{}", hostlist::compress_sorted(nodes))
}

/// The words of one scope. In `counted` and `other` the resource's word replaces the `*`.
struct ScopeWords {
    scope: LimitScope,
    /// For CPUs and nodes, whose reasons are older than TRES.
    counted: &'static str,
    memory: &'static str,
    other: &'static str,
    jobs: &'static str,
    submit: &'static str,
    wall: &'static str,
}

const SCOPES: [ScopeWords; 6] = [
    ScopeWords {
        scope: LimitScope::QosPerUser,
        counted: "QOSMax*PerUserLimit",
        memory: "QOSMaxMemoryPerUser",
        other: "QOSMax*PerUser",
        jobs: "QOSMaxJobsPerUserLimit",
        submit: "QOSMaxSubmitJobPerUserLimit",
        wall: "QOSMaxWallDurationPerJobLimit",
    },
    ScopeWords {
        scope: LimitScope::QosPerJob,
        counted: "QOSMax*PerJobLimit",
        memory: "QOSMaxMemoryPerJob",
        other: "QOSMax*PerJob",
        jobs: "QOSJobLimit",
        submit: "QOSJobLimit",
        wall: "QOSMaxWallDurationPerJobLimit",
    },
    ScopeWords {
        scope: LimitScope::QosPerAccount,
        counted: "Max*PerAccount",
        memory: "MaxMemoryPerAccount",
        other: "Max*PerAccount",
        jobs: "MaxJobsPerAccount",
        submit: "MaxSubmitJobsPerAccount",
        wall: "QOSTimeLimit",
    },
    ScopeWords {
        scope: LimitScope::QosGroup,
        counted: "QOSGrp*Limit",
        memory: "QOSGrpMemLimit",
        other: "QOSGrp*",
        jobs: "QOSGrpJobsLimit",
        submit: "QOSGrpSubmitJobsLimit",
        wall: "QOSGrpWallLimit",
    },
    ScopeWords {
        scope: LimitScope::AssociationPerJob,
        counted: "AssocMax*PerJobLimit",
        memory: "AssocMaxMemPerJob",
        other: "AssocMax*PerJob",
        jobs: "AssocMaxJobsLimit",
        submit: "AssocMaxSubmitJobLimit",
        wall: "AssocMaxWallDurationPerJobLimit",
    },
    ScopeWords {
        scope: LimitScope::AssociationGroup,
        counted: "AssocGrp*Limit",
        memory: "AssocGrpMemLimit",
        other: "AssocGrp*",
        jobs: "AssocGrpJobsLimit",
        submit: "AssocGrpSubmitJobsLimit",
        wall: "AssocGrpWallLimit",
    },
];

fn limit_text(limit: &Limit) -> String {
    let words = SCOPES.iter().find(|words| words.scope == limit.scope);
    let words = words.expect("every scope has a row");
    let kind = match &limit.kind {
        LimitKind::Jobs => return words.jobs.to_owned(),
        LimitKind::SubmitJobs => return words.submit.to_owned(),
        LimitKind::Wall => return words.wall.to_owned(),
        LimitKind::Tres(kind) => kind,
    };
    match kind {
        TresKind::Cpu => words.counted.replace('*', "Cpu"),
        TresKind::Node => words.counted.replace('*', "Node"),
        TresKind::Mem => words.memory.to_owned(),
        TresKind::Gres { .. } => words.other.replace('*', "GRES"),
        TresKind::License(_) => words.other.replace('*', "License"),
        TresKind::Bb(_) => words.other.replace('*', "BB"),
        TresKind::Energy => words.other.replace('*', "Energy"),
        TresKind::Billing => words.other.replace('*', "Billing"),
        TresKind::FsDisk | TresKind::Vmem | TresKind::Pages => words.other.replace('*', "Unknown"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit(scope: LimitScope, kind: LimitKind) -> Reason {
        let holder = "capped".to_owned();
        Reason::Limit(Limit { scope, kind, holder, limit: 4, in_use: 4, asked: 1 })
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
