//! What lets a job start that breaks a limit by itself.

use crate::words::note;
use model::id::JobId;
use model::reason::{Limit, LimitKind, LimitScope};
use model::tres::TresKind;

/// That the job does not start as it is, and what lets it start. `job` is what `scontrol update` takes.
pub fn text(limit: &Limit, job: JobId) -> String {
    let (change, other) = (change(limit, job), elsewhere(limit, job));
    format!("It does not start as it is, whatever else ends: {change}, or {other}")
}

/// The change of the job that keeps the limit.
fn change(limit: &Limit, job: JobId) -> String {
    let most = note::amount(limit, limit.limit);
    let on_node = matches!(limit.scope, LimitScope::QosPerNode | LimitScope::AssociationPerNode);
    match &limit.kind {
        _ if limit.scope == LimitScope::QosLeast => format!("ask for at least {most}"),
        // A time limit of 0 would be none at all.
        LimitKind::Wall if limit.limit > 0 => {
            format!("shorten it (scontrol update JobId={job} TimeLimit={most})")
        }
        LimitKind::Tres(TresKind::Node) if limit.limit > 0 && !on_node => {
            format!("ask for fewer nodes (scontrol update JobId={job} NumNodes={})", limit.limit)
        }
        LimitKind::TresMinutes(_) | LimitKind::TresRunMinutes(_) => {
            format!("shorten it (scontrol update JobId={job} TimeLimit=…) or ask for less")
        }
        _ => format!("ask for at most {most}"),
    }
}

/// The other QOS, or the administrator, that would allow what the job asks for.
fn elsewhere(limit: &Limit, job: JobId) -> String {
    let holder = note::holder(limit);
    match limit.scope {
        LimitScope::AssociationPerJob
        | LimitScope::AssociationPerNode
        | LimitScope::AssociationGroup => {
            format!("have an administrator change the limit of {holder}")
        }
        _ => format!(
            "take another QOS (scontrol update JobId={job} QOS=…), or have an administrator change the limit of {holder}"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_limit_has_what_keeps_it() {
        let said = |scope, kind, limit| {
            let holder = "short".to_owned();
            text(&Limit { scope, kind, holder, limit, in_use: 0, asked: 99 }, JobId(12))
        };
        let (qos, account) = (LimitScope::QosPerJob, LimitScope::AssociationPerJob);
        let table = [
            (
                said(qos, LimitKind::Wall, 60),
                ["shorten it (scontrol update JobId=12 TimeLimit=01:00:00)", "JobId=12 QOS=…"],
            ),
            (said(qos, LimitKind::Wall, 0), ["ask for at most", "the limit of QOS short"]),
            (
                said(account, LimitKind::Tres(TresKind::Node), 2),
                ["JobId=12 NumNodes=2", "the limit of association short"],
            ),
            (
                said(account, LimitKind::TresMinutes(TresKind::Cpu), 5),
                ["TimeLimit=…) or ask for less", "an administrator"],
            ),
            (
                said(LimitScope::QosLeast, LimitKind::Tres(TresKind::gpu()), 4),
                ["ask for at least 4 GPUs", "QOS=…"],
            ),
            (
                said(LimitScope::QosPerNode, LimitKind::Tres(TresKind::Cpu), 8),
                ["ask for at most 8 CPUs", "QOS=…"],
            ),
        ];
        for (text, parts) in table {
            assert!(text.starts_with("It does not start as it is"), "{text}");
            assert!(parts.iter().all(|part| text.contains(part)), "{parts:?}: {text}");
        }
    }
}
