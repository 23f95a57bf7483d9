//! `GET /api/web/usage`: what was used in a period, as `sreport` is answered, in hours of CPUs and GPUs.

use crate::shared::Shared;
use crate::web::answer::{WebRefusal, WebResult, json_answer};
use crate::web::ask::ask;
use axum::Extension;
use axum::extract::{Query, State};
use model::principal::Principal;
use model::raw_usage::RawUsage;
use model::time::Timestamp;
use model::tres::TresKind;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use wire::client::{Answer, Call, HistoryFilter, UsageQuery, UsageReport};

const SECS_PER_HOUR: f64 = 3600.0;

/// The period, in milliseconds since 1970.
#[derive(Deserialize, JsonSchema)]
pub struct Period {
    from: i64,
    until: i64,
}

#[derive(Serialize, JsonSchema)]
pub(super) struct Usage {
    from: Timestamp,
    until: Timestamp,
    rows: Vec<UsedBy>,
    /// The whole cluster, where the caller is shown it.
    cluster: Option<ClusterHours>,
}

#[derive(Serialize, JsonSchema)]
struct UsedBy {
    account: String,
    user: String,
    jobs: u64,
    used: Hours,
}

#[derive(Serialize, JsonSchema)]
struct ClusterHours {
    /// All nodes for the part of the period since the cluster's first start.
    reported: Hours,
    allocated: Hours,
    down: Hours,
}

#[derive(Serialize, JsonSchema)]
struct Hours {
    cpu: f64,
    gpu: f64,
}

impl Hours {
    fn of(used: &RawUsage) -> Self {
        let hours = |kind: &TresKind| used.seconds(kind) / SECS_PER_HOUR;
        Self { cpu: hours(&TresKind::Cpu), gpu: hours(&TresKind::gpu()) }
    }
}

pub async fn usage(
    State(shared): State<Arc<Shared>>,
    Extension(by): Extension<Principal>,
    Query(period): Query<Period>,
) -> WebResult {
    let from = Timestamp::from_millis(period.from);
    let until = Timestamp::from_millis(period.until);
    let filter = HistoryFilter { from: Some(from), until: Some(until), ..HistoryFilter::default() };
    let query = UsageQuery { filter, by_size: false, cluster: true };
    match ask(&shared, &by, Call::UsageReport(Box::new(query))).await? {
        Answer::UsageReport(report) => Ok(json_answer(&hours(from, report))),
        _ => Err(WebRefusal::unexpected()),
    }
}

fn hours(from: Timestamp, report: UsageReport) -> Usage {
    let rows = report.rows.into_iter().map(|row| UsedBy {
        used: Hours::of(&row.used),
        account: row.account,
        user: row.user,
        jobs: row.jobs,
    });
    let cluster = report.whole.as_ref().map(|whole| ClusterHours {
        reported: Hours::of(&whole.reported),
        allocated: Hours::of(&whole.allocated),
        down: Hours::of(&whole.down),
    });
    Usage { from, until: report.until, rows: rows.collect(), cluster }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::tres::Tres;
    use model::usage_report::{UsageRow, held};

    #[test]
    fn seconds_become_hours_of_cpus_and_gpus() {
        let mut tres = Tres::default();
        tres.add(TresKind::Cpu, 4);
        tres.add(TresKind::gpu(), 2);
        let row = UsageRow {
            user: "ann".into(),
            jobs: 1,
            used: held(&tres, 1800.0),
            ..UsageRow::default()
        };
        let report = UsageReport { rows: vec![row], ..UsageReport::default() };
        let usage = hours(Timestamp(0), report);
        let used = &usage.rows[0].used;
        assert_eq!((used.cpu, used.gpu), (2.0, 1.0));
        assert!(usage.cluster.is_none());
    }
}
