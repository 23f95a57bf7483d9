//! The documents of slurmrestd: it has a path for each, where the commands have none. Each is of one version, which its context has.

use super::accounts::{self, List};
use super::field::{Context, Field, Number, Object, TextRoom};
use super::license::LICENSE;
use super::partition::{PARTITION, PartitionTotals};
use super::reservation::RESERVATION;
use super::{
    CONTROLLER, DATABASE, Document, Objects, Plugin, Version, accounting, diag, job, meta, node,
    shares,
};
use crate::output::{Moment, sshare};
use model::id::JobId;
use model::record::JobRecord;
use serde::Serialize;
use serde_json::{Map, Value, json};
use std::io;
use wire::diagnostics::DiagnosticsView;
use wire::reservation::{LicenseView, ReservationView};
use wire::view::{AccountsView, ClusterView, JobView, SharesView};

/// The bytes of all long texts in a list: what is longer and has no room is cut, and the rest of each object is there.
const LONG_TEXTS_BYTES_MAX: usize = 64 << 20;

/// A document as it is sent, or why it could not be written.
pub type Written = Result<Vec<u8>, serde_json::Error>;

/// What every document of a path begins with.
fn head(context: &Context, plugin: Plugin) -> Map<String, Value> {
    let mut head = Map::new();
    head.insert("meta".to_owned(), meta(plugin, context.version, &context.cluster));
    head.insert("errors".to_owned(), json!([]));
    if context.version.is_typed() {
        head.insert("warnings".to_owned(), json!([]));
    }
    head
}

fn with(mut head: Map<String, Value>, fields: Value) -> Value {
    if let Value::Object(fields) = fields {
        head.extend(fields);
    }
    Value::Object(head)
}

/// `GET …/ping`
pub fn ping(context: &Context, hostname: &str) -> Value {
    let controller = match context.version {
        Version::V38 => json!({"hostname": hostname, "ping": "UP", "status": 0, "mode": "primary"}),
        Version::V40 | Version::V41 => {
            json!({"hostname": hostname, "pinged": "UP", "latency": 0, "mode": "primary"})
        }
        Version::V42 => json!({
            "hostname": hostname, "pinged": "UP", "responding": true, "latency": 0,
            "mode": "primary", "primary": true,
        }),
    };
    with(head(context, CONTROLLER), json!({ "pings": [controller] }))
}

/// `POST …/job/submit`
pub fn submitted(context: &Context, job: JobId) -> Value {
    let step = if context.version.is_typed() { "batch" } else { "BATCH" };
    let mut fields = json!({"job_id": job.0, "step_id": step, "job_submit_user_msg": ""});
    if context.version.is_typed() && context.version < Version::V42 {
        fields["result"] = json!({
            "job_id": job.0, "step_id": step, "error_code": 0, "error": "No error",
            "job_submit_user_msg": "",
        });
    }
    with(head(context, CONTROLLER), fields)
}

/// `POST …/job/allocate`
pub fn allocated(context: &Context, job: JobId) -> Value {
    with(head(context, CONTROLLER), json!({"job_id": job.0, "job_submit_user_msg": ""}))
}

/// `POST …/job/{job_id}`: the job was changed.
pub fn updated(context: &Context, job: JobId) -> Value {
    let result = json!({
        "job_id": job.0, "step_id": "", "error": "No error", "error_code": 0, "why": "",
    });
    let fields = match context.version {
        Version::V38 => json!({}),
        Version::V40 | Version::V41 => json!({
            "results": [result], "job_id": job.0.to_string(), "step_id": "",
            "job_submit_user_msg": "",
        }),
        Version::V42 => json!({ "results": [result] }),
    };
    with(head(context, CONTROLLER), fields)
}

/// `DELETE …/job/{job_id}`
pub fn cancelled(context: &Context, job: JobId) -> Value {
    let status = json!({
        "job_id": context.number(job.0), "step_id": "", "federation": { "sibling": "" },
        "error": { "string": "", "code": 0, "message": "" },
    });
    let is_told = context.version >= Version::V42;
    let fields = if is_told { json!({ "status": [status] }) } else { json!({}) };
    with(head(context, CONTROLLER), fields)
}

/// `DELETE …/jobs`: each job that was chosen, with why it was not cancelled.
pub fn cancelled_jobs(context: &Context, jobs: &[(String, Option<String>)]) -> Value {
    let status = |(job, why): &(String, Option<String>)| {
        let number = job.split(['_', '+']).next().and_then(|digits| digits.parse::<u32>().ok());
        let (code, text) = why.as_deref().map_or((0, ""), |why| (1, why));
        json!({
            "job_id": context.number(number), "step_id": job, "federation": { "sibling": "" },
            "error": { "string": text, "code": code, "message": text },
        })
    };
    let status: Vec<Value> = jobs.iter().map(status).collect();
    with(head(context, CONTROLLER), json!({ "status": status }))
}

/// `DELETE /slurmdb/…`: what is there no more, under the key of its list where the version tells it.
pub fn removed(context: &Context, list: List, names: &[String]) -> Value {
    let is_told = match list {
        List::Associations => true,
        List::Users => false,
        _ => context.version.is_typed(),
    };
    let key = format!("removed_{}", list.key());
    let fields = if is_told { json!({ key: names }) } else { json!({}) };
    with(head(context, DATABASE), fields)
}

/// `POST /slurmdb/…`: the accounting is as it was asked for.
pub fn accounting_set(context: &Context) -> Value {
    Value::Object(head(context, DATABASE))
}

/// `POST /slurmdb/…/users_association`, `…/accounts_association`: the names that are new.
pub fn added(context: &Context, list: List, names: &[String]) -> Value {
    let key = format!("added_{}", list.key());
    with(head(context, DATABASE), json!({ key: names.join(",") }))
}

/// `GET /slurmdb/…/ping`: the books are part of the server.
pub fn database_ping(context: &Context, hostname: &str) -> Value {
    let server = json!({"hostname": hostname, "responding": true, "latency": 0, "primary": true});
    with(head(context, DATABASE), json!({ "pings": [server] }))
}

/// `GET /slurmdb/…/diag`
pub fn database_diagnostics(context: &Context, view: &DiagnosticsView) -> Value {
    let statistics = diag::of_database(context, view);
    with(head(context, DATABASE), json!({ "statistics": statistics }))
}

/// `GET /slurmdb/…/instances`, `…/instance`: machines of clouds that were nodes. The books have none.
pub fn instances(context: &Context) -> Value {
    with(head(context, DATABASE), json!({ "instances": [] }))
}

/// What was asked for is done, and there is nothing to show.
pub fn done(context: &Context) -> Value {
    Value::Object(head(context, CONTROLLER))
}

/// It is not done, and why; `number` is Slurm's own, or zero.
pub fn refused(context: &Context, text: &str, number: u32) -> Value {
    let mut document = head(context, CONTROLLER);
    let error = json!({"description": text, "error_number": number, "error": text, "source": ""});
    document.insert("errors".to_owned(), json!([error]));
    Value::Object(document)
}

fn written(
    context: &Context,
    plugin: Plugin,
    key: &str,
    items: &impl Serialize,
    more: &[(&'static str, Value)],
) -> Written {
    let meta = meta(plugin, context.version, &context.cluster);
    let version = context.version;
    serde_json::to_vec(&Document { meta, version, warnings: &[], key, items, more })
}

/// Documents of the controller say in later versions when what they show last changed: it is as of now.
fn of_controller<T>(context: &Context, key: &str, fields: &[Field<T>], items: &[T]) -> Written {
    let now = context.number(Number::from(context.now));
    let all = [("last_update", now), ("last_backfill", context.number(Number::Of(0)))];
    let more: &[(&'static str, Value)] = match (context.version.is_typed(), key) {
        (false, _) => &[],
        (true, "jobs") => &all,
        (true, _) => &all[..1],
    };
    let room = Some(TextRoom::new(LONG_TEXTS_BYTES_MAX));
    written(context, CONTROLLER, key, &Objects { context, fields, items, room }, more)
}

/// `GET …/jobs`, `GET …/jobs/state`, `GET …/job/{job_id}`
pub fn jobs(context: &Context, jobs: &[JobView]) -> Written {
    of_controller(context, "jobs", job::JOB, jobs)
}

/// `GET …/nodes`, `GET …/node/{node_name}`
pub fn nodes(context: &Context, cluster: &ClusterView) -> Written {
    of_controller(context, "nodes", node::NODE, &cluster.nodes)
}

/// `GET …/partitions`, `GET …/partition/{partition_name}`
pub fn partitions(context: &Context, cluster: &ClusterView) -> Written {
    let partitions = cluster.partitions.iter();
    let rows: Vec<PartitionTotals> =
        partitions.map(|partition| PartitionTotals::of(cluster, partition)).collect();
    of_controller(context, "partitions", PARTITION, &rows)
}

/// `GET …/reservations`, `GET …/reservation/{reservation_name}`
pub fn reservations(context: &Context, reservations: &[ReservationView]) -> Written {
    of_controller(context, "reservations", RESERVATION, reservations)
}

/// `GET …/licenses`
pub fn licenses(context: &Context, licenses: &[LicenseView]) -> Written {
    of_controller(context, "licenses", LICENSE, licenses)
}

/// `GET …/shares`
pub fn shares(
    context: &Context,
    view: &SharesView,
    accounts: &AccountsView,
    wanted: &sshare::Options,
) -> Written {
    let shares = shares::document(context, view, accounts, wanted);
    written(context, CONTROLLER, "shares", &shares, &[])
}

/// `GET …/diag`
pub fn diagnostics(context: &Context, view: &DiagnosticsView) -> Written {
    let object = Object { context, fields: diag::DIAG, item: view };
    written(context, CONTROLLER, "statistics", &object, &[])
}

/// `GET /slurmdb/…`: one of the lists.
pub fn list(context: &Context, list: List, objects: &[Value]) -> Written {
    // The one key whose letters changed.
    let key = match list {
        List::Tres if context.version.is_typed() => "TRES",
        other => other.key(),
    };
    written(context, DATABASE, key, &objects, &[])
}

/// `GET /slurmdb/…/config`
pub fn configuration(context: &Context, view: &AccountsView) -> Value {
    let lists = accounts::all_lists(context, view);
    with(head(context, DATABASE), Value::Object(lists))
}

/// `GET /slurmdb/…/jobs`, `GET /slurmdb/…/job/{job_id}`; with a warning, where jobs may be missing. A document of more bytes than
/// `bytes_max` is an error of writing (`is_io`).
pub fn recorded_jobs(
    context: &Context,
    moment: Moment<'_>,
    records: &[JobRecord],
    warning: Option<&str>,
    bytes_max: usize,
) -> Written {
    let version = context.version;
    let warning = warning.map(|text| json!({"description": text, "source": ""}));
    let document = Document {
        meta: meta(DATABASE, version, &context.cluster),
        version,
        warnings: warning.as_slice(),
        key: "jobs",
        items: &accounting::VersionJobs { context, moment, records },
        more: &[],
    };
    let mut out = BoundedBytes { bytes: Vec::new(), bytes_max };
    serde_json::to_writer(&mut out, &document)?;
    Ok(out.bytes)
}

/// What is written, up to a bound.
struct BoundedBytes {
    bytes: Vec<u8>,
    bytes_max: usize,
}

impl io::Write for BoundedBytes {
    fn write(&mut self, piece: &[u8]) -> io::Result<usize> {
        if piece.len() > self.bytes_max.saturating_sub(self.bytes.len()) {
            return Err(io::Error::other(format!("more than {} bytes", self.bytes_max)));
        }
        self.bytes.extend_from_slice(piece);
        Ok(piece.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
