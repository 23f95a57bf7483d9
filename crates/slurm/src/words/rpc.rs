//! The names and numbers under which `sdiag` counts the calls of clients.

use wire::diagnostics::CallKind;

/// Not formatted by rustfmt: a row is one line. Calls that Slurm does not have are counted under names of ours, from 9000 on.
#[rustfmt::skip]
const NAMES: [(CallKind, &str, u32); 30] = [
    (CallKind::Ping, "REQUEST_PING", 1008),
    (CallKind::SubmitBatch, "REQUEST_SUBMIT_BATCH_JOB", 4003),
    (CallKind::Allocate, "REQUEST_RESOURCE_ALLOCATION", 4001),
    (CallKind::TestSubmit, "REQUEST_JOB_WILL_RUN", 4012),
    (CallKind::AwaitStart, "REQUEST_JOB_READY", 4019),
    (CallKind::AwaitEnd, "SLUICE_AWAIT_END", 9001),
    (CallKind::Jobs, "REQUEST_JOB_INFO", 2003),
    (CallKind::OneJob, "REQUEST_JOB_INFO_SINGLE", 2021),
    (CallKind::Cluster, "REQUEST_NODE_INFO", 2007),
    (CallKind::Config, "REQUEST_BUILD_INFO", 2001),
    (CallKind::Cancel, "REQUEST_KILL_JOB", 5032),
    (CallKind::CancelStep, "REQUEST_CANCEL_JOB_STEP", 5005),
    (CallKind::UpdateJob, "REQUEST_UPDATE_JOB", 3001),
    (CallKind::UpdateNode, "REQUEST_UPDATE_NODE", 3002),
    (CallKind::UpdatePartition, "REQUEST_UPDATE_PARTITION", 3005),
    (CallKind::Reconfigure, "REQUEST_RECONFIGURE", 1003),
    (CallKind::History, "SLUICE_HISTORY", 9002),
    (CallKind::Script, "REQUEST_BATCH_SCRIPT", 2051),
    (CallKind::CreateStep, "REQUEST_JOB_STEP_CREATE", 5001),
    (CallKind::LaunchStep, "SLUICE_LAUNCH_STEP", 9003),
    (CallKind::Relinquish, "REQUEST_COMPLETE_JOB_ALLOCATION", 5017),
    (CallKind::Accounts, "SLUICE_ACCOUNTS", 9004),
    (CallKind::ChangeAccounts, "ACCOUNTING_UPDATE_MSG", 10001),
    (CallKind::Shares, "REQUEST_SHARE_INFO", 2022),
    (CallKind::Priorities, "REQUEST_PRIORITY_FACTORS", 2026),
    (CallKind::Diagnostics, "REQUEST_STATS_INFO", 2035),
    (CallKind::Explain, "SLUICE_EXPLAIN", 9005),
    (CallKind::Token, "SLUICE_TOKEN", 9006),
    (CallKind::Offers, "SLUICE_OFFERS", 9007),
    (CallKind::Other, "SLUICE_OTHER", 9000),
];

pub fn name(kind: CallKind) -> (&'static str, u32) {
    let row = NAMES.iter().find(|(of, _, _)| *of == kind);
    row.map_or(("SLUICE_OTHER", 9000), |(_, name, number)| (name, *number))
}
