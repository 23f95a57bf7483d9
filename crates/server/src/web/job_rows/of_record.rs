//! A row of a job that has left the server's memory, by its record in the books.

use super::JobRow;
use crate::explanation::ended;
use model::hostlist::compress;
use model::record::{JobRecord, RecordState};
use model::run::LaunchKind;
use model::tres::TresKind;

impl JobRow {
    pub fn of_record(record: &JobRecord) -> Self {
        Self {
            id: record.job,
            shown: shown(record),
            name: record.name.as_str().into(),
            user: record.user.clone(),
            account: record.account.as_str().into(),
            partition: record.partition.as_str().into(),
            qos: record.qos.as_str().into(),
            state: ended::state_word(record),
            reason: String::new(),
            nodes: compress(record.nodes.iter().map(String::as_str)),
            node_count: record.node_count,
            cpus: record.cpus,
            gpus: record.alloc_tres.amount(&TresKind::gpu()),
            priority: record.priority,
            submit: record.submit,
            start: record.start,
            end: record.end,
            limit_s: record.time_limit.secs(),
            waiting: record.state == RecordState::Pending,
            ended: matches!(record.state, RecordState::Ended(_)),
            run: record.kind == LaunchKind::Task,
            service: None,
        }
    }
}

/// `12`, `12_3`, `12_[4-7]` for tasks that ended without a start, or `12+1`.
pub fn shown(record: &JobRecord) -> String {
    match (record.array_job, record.array_task, &record.array_pending) {
        (Some(array), Some(task), _) => format!("{array}_{task}"),
        (Some(array), None, Some(pending)) => format!("{array}_[{pending}]"),
        _ => match record.het {
            Some(of) => format!("{}+{}", of.first, of.offset),
            None => record.job.to_string(),
        },
    }
}
