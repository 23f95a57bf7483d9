//! What the server has counted, as `GET …/diag` of the controller and of the database have it.

use super::Version;
use super::field::Form::{Absent, Plain, Set};
use super::field::{Cell, Context, Field, Number, field, number, time};
use crate::words::rpc;
use serde_json::{Value, json};
use wire::diagnostics::DiagnosticsView;

/// Not formatted by rustfmt: a row is one line. The planner makes whole plans: what Slurm counts of its main loop and of backfill
/// apart is of the same plans here.
#[rustfmt::skip]
pub static DIAG: &[Field<DiagnosticsView>] = &[
    field("parts_packed",              Plain,  Plain,  |_, _| Cell::Int(1)),
    field("req_time",                  Plain,  Set,    |_, d| time(Some(d.now))),
    field("req_time_start",            Plain,  Set,    |_, d| time(Some(d.since))),
    field("server_thread_count",       Plain,  Plain,  |_, d| number(d.calls_open)),
    field("agent_queue_size",          Plain,  Plain,  |_, d| number(d.orders_queued)),
    field("agent_count",               Plain,  Plain,  |_, d| number(d.agents)),
    field("agent_thread_count",        Plain,  Plain,  |_, d| number(d.agents)),
    field("dbd_agent_queue_size",      Plain,  Plain,  |_, d| number(d.books_queued)),
    field("gettimeofday_latency",      Plain,  Plain,  |_, d| number(d.clock_us)),
    field("schedule_cycle_max",        Plain,  Plain,  |_, d| number(d.plans.max_us)),
    field("schedule_cycle_last",       Plain,  Plain,  |_, d| number(d.plans.last_us)),
    field("schedule_cycle_sum",        Absent, Plain,  |_, d: &DiagnosticsView| number(d.plans.total_us)).since(Version::V41),
    field("schedule_cycle_total",      Plain,  Plain,  |_, d| number(d.plans.made)),
    field("schedule_cycle_mean",       Plain,  Plain,  |_, d| number(mean(d.plans.total_us, d.plans.made))),
    field("schedule_cycle_mean_depth", Plain,  Plain,  |_, d| number(mean(d.plans.total_queue, d.plans.made))),
    field("schedule_cycle_per_minute", Plain,  Plain,  |_, d| number(mean(d.plans.made, minutes(d)))),
    field("schedule_cycle_depth",      Absent, Plain,  |_, d: &DiagnosticsView| number(d.plans.total_queue)).since(Version::V41),
    field("schedule_queue_length",     Plain,  Plain,  |_, d| number(d.plans.last_queue)),
    field("jobs_submitted",            Plain,  Plain,  |_, d| number(d.jobs.submitted)),
    field("jobs_started",              Plain,  Plain,  |_, d| number(d.jobs.started)),
    field("jobs_completed",            Plain,  Plain,  |_, d| number(d.jobs.completed)),
    field("jobs_canceled",             Plain,  Plain,  |_, d| number(d.jobs.cancelled)),
    field("jobs_failed",               Plain,  Plain,  |_, d| number(d.jobs.failed)),
    field("jobs_pending",              Plain,  Plain,  |_, d| number(d.pending)),
    field("jobs_running",              Plain,  Plain,  |_, d| number(d.running)),
    field("job_states_ts",             Plain,  Set,    |_, d| time(Some(d.now))),
    field("bf_backfilled_jobs",        Plain,  Plain,  |_, d| number(d.plans.backfilled_since_start)),
    field("bf_last_backfilled_jobs",   Plain,  Plain,  |_, d| number(d.plans.backfilled)),
    field("bf_backfilled_het_jobs",    Plain,  Plain,  |_, _| Cell::Int(0)),
    field("bf_cycle_counter",          Plain,  Plain,  |_, d| number(d.plans.made)),
    field("bf_cycle_mean",             Plain,  Plain,  |_, d| number(mean(d.plans.total_us, d.plans.made))),
    field("bf_cycle_sum",              Absent, Plain,  |_, d| number(d.plans.total_us)),
    field("bf_cycle_last",             Plain,  Plain,  |_, d| number(d.plans.last_us)),
    // v0.0.40 alone does not have it.
    field("bf_cycle_max",              Plain,  Absent, |_, d| number(d.plans.max_us)),
    field("bf_cycle_max",              Absent, Plain,  |_, d: &DiagnosticsView| number(d.plans.max_us)).since(Version::V41),
    field("bf_depth_mean",             Plain,  Plain,  |_, d| number(mean(d.plans.total_queue, d.plans.made))),
    field("bf_depth_mean_try",         Plain,  Plain,  |_, d| number(mean(d.plans.total_tried, d.plans.made))),
    field("bf_depth_sum",              Absent, Plain,  |_, d| number(d.plans.total_queue)),
    field("bf_depth_try_sum",          Absent, Plain,  |_, d| number(d.plans.total_tried)),
    field("bf_last_depth",             Plain,  Plain,  |_, d| number(d.plans.last_queue)),
    field("bf_last_depth_try",         Plain,  Plain,  |_, d| number(d.plans.last_tried)),
    field("bf_queue_len",              Plain,  Plain,  |_, d| number(d.plans.last_queue)),
    field("bf_queue_len_mean",         Plain,  Plain,  |_, d| number(mean(d.plans.total_queue, d.plans.made))),
    field("bf_queue_len_sum",          Absent, Plain,  |_, d| number(d.plans.total_queue)),
    field("bf_table_size",             Plain,  Plain,  |_, d| number(d.plans.last_slots)),
    field("bf_table_size_mean",        Plain,  Plain,  |_, d| number(mean(d.plans.total_slots, d.plans.made))),
    field("bf_table_size_sum",         Absent, Plain,  |_, d: &DiagnosticsView| number(d.plans.total_slots)).since(Version::V41),
    field("bf_when_last_cycle",        Plain,  Set,    |_, d| time(d.plans.last_at)),
    field("bf_active",                 Plain,  Plain,  |_, _| Cell::Bool(false)),
    // Why plans ended early: none does here.
    field("schedule_exit",             Absent, Plain,  |_, _| Cell::Value(zeros(&["end_job_queue", "default_queue_depth", "max_job_start", "max_rpc_cnt", "max_sched_time", "licenses"]))),
    field("bf_exit",                   Absent, Plain,  |_, _| Cell::Value(zeros(&["end_job_queue", "bf_max_job_start", "bf_max_job_test", "bf_max_time", "bf_node_space_size", "state_changed"]))),
    field("rpcs_by_message_type",      Plain,  Plain,  |c, d| Cell::Value(by_kind(c, d))),
    field("rpcs_by_user",              Plain,  Plain,  |c, d| Cell::Value(by_user(c, d))),
    field("pending_rpcs",              Absent, Plain,  |_, _| Cell::Words(Vec::new())).since(Version::V41),
    field("pending_rpcs_by_hostlist",  Absent, Plain,  |_, _| Cell::Words(Vec::new())).since(Version::V41),
];

/// Zero of nothing.
fn mean(sum: u64, count: u64) -> u64 {
    sum.checked_div(count).unwrap_or(0)
}

fn minutes(view: &DiagnosticsView) -> u64 {
    u64::try_from((view.now.secs() - view.since.secs()) / 60).unwrap_or(0)
}

fn zeros(names: &[&str]) -> Value {
    names.iter().map(|name| ((*name).to_owned(), json!(0))).collect()
}

/// Versions since v0.0.41 write the mean as a number that may be missing.
fn average(context: &Context, total_us: u64, count: u64) -> Value {
    let mean = Number::Of(mean(total_us, count));
    if context.version >= Version::V41 { mean.with_flags() } else { mean.plain() }
}

fn by_kind(context: &Context, view: &DiagnosticsView) -> Value {
    let row = |call: &wire::diagnostics::CallCount| {
        let (name, id) = rpc::name(call.kind);
        let mut row = json!({
            "message_type": name, "type_id": id, "count": call.count,
            "average_time": average(context, call.total_us, call.count),
            "total_time": call.total_us,
        });
        // Calls are answered as they come.
        if context.version >= Version::V41 {
            for waiting in ["queued", "dropped", "cycle_last", "cycle_max"] {
                row[waiting] = json!(0);
            }
        }
        row
    };
    view.calls.iter().map(row).collect()
}

fn by_user(context: &Context, view: &DiagnosticsView) -> Value {
    let row = |user: &wire::diagnostics::UserCount| {
        json!({
            "user": user.name, "user_id": user.uid, "count": user.count,
            "average_time": average(context, user.total_us, user.count),
            "total_time": user.total_us,
        })
    };
    view.users.iter().map(row).collect()
}

/// What `GET /slurmdb/…/diag` has. The books are part of the server and count in no call of their own: the calls are all that it
/// answered. Usage is summed when it is asked for, so that nothing was rolled up.
pub fn of_database(context: &Context, view: &DiagnosticsView) -> Value {
    let time =
        |total_us: u64, count: u64| json!({"average": mean(total_us, count), "total": total_us});
    let call = |call: &wire::diagnostics::CallCount| {
        let (name, _) = rpc::name(call.kind);
        json!({"rpc": name, "count": call.count, "time": time(call.total_us, call.count)})
    };
    let user = |user: &wire::diagnostics::UserCount| json!({"user": user.name, "count": user.count, "time": time(user.total_us, user.count)});
    json!({
        "time_start": view.since.secs(),
        "rollups": rollups(context.version),
        "RPCs": view.calls.iter().map(call).collect::<Vec<_>>(),
        "users": view.users.iter().map(user).collect::<Vec<_>>(),
    })
}

/// A list at first, an object with each period since v0.0.41.
fn rollups(version: Version) -> Value {
    if version < Version::V41 {
        return json!([]);
    }
    let none = json!({
        "count": 0, "last_run": 0, "duration": {"last": 0, "max": 0, "time": 0},
    });
    json!({"hourly": none, "daily": none, "monthly": none})
}
