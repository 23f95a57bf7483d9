//! The limits that a QOS or an association may have, as rows of a table.

use model::account::{AssociationLimits, Qos, QosFlag};
use model::reason::LimitScope;
use model::tres::Tres;

/// What a limit is compared with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Measure {
    /// What the job asks for.
    Job,
    /// What the job asks for, times its minutes.
    JobMinutes,
    /// What the job must ask for at least.
    Least,
    /// What jobs hold now, with the job added.
    Held,
    /// The minutes that running jobs may still use, with the job's added.
    RunMinutes,
    /// The minutes that have been used.
    SpentMinutes,
}

/// Over whose jobs a QOS counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CountedOver {
    User,
    Account,
    All,
}

impl CountedOver {
    pub const EACH: [Self; 3] = [Self::All, Self::User, Self::Account];
}

/// The limits of TRES that a QOS may have.
pub struct QosRow {
    pub limits: fn(&Qos) -> &Tres,
    pub scope: LimitScope,
    pub measure: Measure,
    pub over: CountedOver,
}

/// The limits of TRES that an association may have.
pub struct AssociationRow {
    pub limits: fn(&AssociationLimits) -> &Tres,
    /// The same limit of a QOS. Where it is set, the association's does not count.
    pub in_qos: fn(&Qos) -> &Tres,
    pub scope: LimitScope,
    pub measure: Measure,
}

impl AssociationRow {
    /// Most associations set few limits: the others are passed over before anything is worked out for them.
    pub fn is_set(&self, limits: &AssociationLimits) -> bool {
        !(self.limits)(limits).is_empty()
    }
}

/// Not formatted by rustfmt: a row is one line.
#[rustfmt::skip]
pub const QOS_ROWS: [QosRow; 8] = [
    QosRow { limits: |q| &q.max_tres_per_job, scope: LimitScope::QosPerJob, measure: Measure::Job, over: CountedOver::All },
    QosRow { limits: |q| &q.min_tres_per_job, scope: LimitScope::QosLeast, measure: Measure::Least, over: CountedOver::All },
    QosRow { limits: |q| &q.max_tres_minutes_per_job, scope: LimitScope::QosPerJob, measure: Measure::JobMinutes, over: CountedOver::All },
    QosRow { limits: |q| &q.group_tres_minutes, scope: LimitScope::QosGroup, measure: Measure::SpentMinutes, over: CountedOver::All },
    QosRow { limits: |q| &q.group_tres, scope: LimitScope::QosGroup, measure: Measure::Held, over: CountedOver::All },
    QosRow { limits: |q| &q.group_tres_run_minutes, scope: LimitScope::QosGroup, measure: Measure::RunMinutes, over: CountedOver::All },
    QosRow { limits: |q| &q.max_tres_per_account, scope: LimitScope::QosPerAccount, measure: Measure::Held, over: CountedOver::Account },
    QosRow { limits: |q| &q.max_tres_per_user, scope: LimitScope::QosPerUser, measure: Measure::Held, over: CountedOver::User },
];

/// Limits on one job: the nearest account that sets one counts.
#[rustfmt::skip]
pub const INHERITED_ROWS: [AssociationRow; 2] = [
    AssociationRow { limits: |l| &l.max_tres_per_job, in_qos: |q| &q.max_tres_per_job, scope: LimitScope::AssociationPerJob, measure: Measure::Job },
    AssociationRow { limits: |l| &l.max_tres_minutes_per_job, in_qos: |q| &q.max_tres_minutes_per_job, scope: LimitScope::AssociationPerJob, measure: Measure::JobMinutes },
];

/// Limits on all jobs together: every account above the job enforces its own.
#[rustfmt::skip]
pub const GROUP_ROWS: [AssociationRow; 3] = [
    AssociationRow { limits: |l| &l.group_tres_minutes, in_qos: |q| &q.group_tres_minutes, scope: LimitScope::AssociationGroup, measure: Measure::SpentMinutes },
    AssociationRow { limits: |l| &l.group_tres, in_qos: |q| &q.group_tres, scope: LimitScope::AssociationGroup, measure: Measure::Held },
    AssociationRow { limits: |l| &l.group_tres_run_minutes, in_qos: |q| &q.group_tres_run_minutes, scope: LimitScope::AssociationGroup, measure: Measure::RunMinutes },
];

/// Flags that change the plan of a QOS without limits.
pub const LIFTING: [QosFlag; 5] = [
    QosFlag::EnforceUsageThreshold,
    QosFlag::NoReserve,
    QosFlag::PartitionMaxNodes,
    QosFlag::PartitionMinNodes,
    QosFlag::PartitionTimeLimit,
];

/// Whether the QOS can hold jobs back or lift limits for them.
pub fn is_limited(qos: &Qos) -> bool {
    let counts = [qos.group_jobs, qos.max_jobs_per_user, qos.max_jobs_per_account];
    let walls = [qos.group_wall, qos.max_wall];
    QOS_ROWS.iter().any(|row| !(row.limits)(qos).is_empty())
        || !qos.max_tres_per_node.is_empty()
        || counts.iter().any(Option::is_some)
        || walls.iter().any(Option::is_some)
        || qos.min_priority_threshold.is_some()
        || LIFTING.iter().any(|flag| qos.has(*flag))
}

/// Whether the association limits what all jobs of it, and of all below it, hold together.
pub fn limits_group(limits: &AssociationLimits) -> bool {
    GROUP_ROWS.iter().any(|row| row.is_set(limits)) || limits.group_jobs.is_some()
}

pub fn has_limits(limits: &AssociationLimits) -> bool {
    limits_group(limits)
        || INHERITED_ROWS.iter().any(|row| row.is_set(limits))
        || !limits.max_tres_per_node.is_empty()
        || limits.max_jobs.is_some()
        || [limits.group_wall, limits.max_wall].iter().any(Option::is_some)
}
