//! The jobs of the books, which `sacct --json` prints: the objects of Slurm's OpenAPI for slurmdbd.

use super::field::{Context, in_32_bits};
use super::{DATABASE, accounting_later, document, merged, time};
use crate::option::signal;
use crate::output::Moment;
use crate::output::sacct::Units;
use crate::output::sacct::fields::{self, Row};
use crate::output::sacctmgr::tres_rows;
use crate::words;
use model::cpu_frequency::{CpuFrequency, Frequency, Governor};
use model::hostlist;
use model::record::{JobRecord, RecordState, StepRecord};
use model::run::{ExitStatus, Outcome, Usage};
use model::tres::{Tres, TresKind};
use serde::{Serialize, Serializer};
use serde_json::{Value, json};
use std::io;

/// What the records themselves do not say.
#[derive(Clone, Copy)]
pub struct Setting<'a> {
    pub cluster: &'a str,
    /// The names of the cluster's generic resources, in order: they have numbers as resources that are counted.
    pub gres: &'a [String],
    /// `-X` leaves steps out.
    pub with_steps: bool,
    pub moment: Moment<'a>,
}

/// `sacct --json`
pub fn jobs(
    out: &mut impl io::Write,
    setting: Setting<'_>,
    records: &[JobRecord],
) -> io::Result<()> {
    document(out, DATABASE, "jobs", &records.iter().map(|of| job(setting, of)).collect::<Vec<_>>())
}

/// The same jobs in the form of a version. The object of each is made when it is written: those of a million would not fit into memory.
pub struct VersionJobs<'a> {
    pub context: &'a Context,
    pub moment: Moment<'a>,
    pub records: &'a [JobRecord],
}

impl Serialize for VersionJobs<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let context = self.context;
        let (cluster, gres) = (&*context.cluster, &*context.gres);
        let setting = Setting { cluster, gres, with_steps: true, moment: self.moment };
        let of_version = |record: &JobRecord| {
            let mut object = job(setting, record);
            if context.version.is_typed() {
                accounting_later::rewrite(context.version, record, &mut object);
            }
            object
        };
        serializer.collect_seq(self.records.iter().map(of_version))
    }
}

fn row<'a>(setting: Setting<'a>, job: &'a JobRecord, step: Option<&'a StepRecord>) -> Row<'a> {
    Row { job, step, moment: setting.moment, units: Units::default(), cluster: setting.cluster }
}

fn job(setting: Setting<'_>, record: &JobRecord) -> Value {
    merged([identity(setting, record), demand(setting, record), course(setting, record)])
}

fn identity(setting: Setting<'_>, job: &JobRecord) -> Value {
    json!({
        "job_id": job.job.0,
        "name": job.name,
        "account": job.account,
        "cluster": setting.cluster,
        "partition": job.partition,
        "qos": job.qos,
        "user": job.user,
        "group": job.group,
        "association": {
            "account": job.account,
            "cluster": setting.cluster,
            "partition": null,
            "user": job.user,
        },
        "array": {
            "job_id": job.array_job.map_or(0, |array| array.0),
            "task_id": job.array_task,
            "task": job.array_pending,
            "limits": { "max": { "running": { "tasks": 0 } } },
        },
        "het": {
            "job_id": job.het.map_or(0, |of| of.first.0),
            "job_offset": job.het.map(|of| of.offset),
        },
        "comment": {
            "administrator": null,
            "job": job.comment,
            "system": null,
        },
        "wckey": { "wckey": job.wckey.as_deref().unwrap_or(""), "flags": [] },
        "reservation": {
            "id": job.reservation_id.unwrap_or(0),
            "name": job.reservation.as_deref().unwrap_or(""),
        },
        "mcs": { "label": "" },
        "container": job.container,
        "flags": [],
        "working_directory": job.work_dir,
        "submit_line": job.submit_line,
    })
}

fn demand(setting: Setting<'_>, job: &JobRecord) -> Value {
    let allocated = fields::alloc_tres(&row(setting, job, None));
    json!({
        "priority": in_32_bits(job.priority),
        "constraints": job.constraint.as_deref().unwrap_or(""),
        "required": { "CPUs": job.req_cpus, "memory": job.req_mem.mib() },
        "allocation_nodes": job.node_count,
        "nodes": if job.nodes.is_empty() {
            "None assigned".to_owned()
        } else {
            hostlist::compress(&job.nodes)
        },
        "tres": {
            "requested": tres(setting, &job.req_tres),
            "allocated": tres(setting, &allocated),
        },
    })
}

fn course(setting: Setting<'_>, job: &JobRecord) -> Value {
    let listed = |step: &&StepRecord| setting.with_steps && fields::is_listed(job, step);
    let steps: Vec<Value> =
        job.steps.iter().filter(listed).map(|of| step(setting, job, of)).collect();
    json!({
        "state": {
            "current": words::job::long(words::job::of_record(job.state)),
            "reason": words::reason::one_word(&job.reason),
        },
        "exit_code": exit_code(job.state, job.exit),
        "derived_exit_code": exit_code(job.state, job.derived_exit),
        "kill_request_user": killer(job.state),
        "time": merged([
            cpu_time(&job.usage),
            json!({
                "submission": job.submit.secs(),
                "eligible": time(job.eligible),
                "start": time(job.start),
                "end": time(job.end),
                "elapsed": fields::elapsed_s(&row(setting, job, None)),
                "suspended": job.suspended_s,
                "limit": job.time_limit.minutes(),
            }),
        ]),
        "steps": steps,
    })
}

fn step(setting: Setting<'_>, job: &JobRecord, step: &StepRecord) -> Value {
    let row = row(setting, job, Some(step));
    let mut peak = Tres::new();
    peak.set(TresKind::Mem, step.usage.memory_peak_bytes);
    let mut total = Tres::new();
    total.set(TresKind::Cpu, cpu_us(&step.usage) / 1000);
    json!({
        "step": {
            "job_id": job.job.0,
            "id": step.id.to_string(),
            "name": step.name,
            "het": { "component": null },
        },
        "state": words::job::long(words::job::of_record(step.state)),
        "exit_code": exit_code(step.state, step.exit),
        "kill_request_user": killer(step.state),
        "nodes": {
            "count": step.nodes.len(),
            "range": hostlist::compress(&step.nodes),
            "list": step.nodes,
        },
        "tasks": { "count": step.tasks },
        // The books have neither the process nor how tasks were spread.
        "pid": null,
        "task": "",
        "CPU": requested_cpu(step.cpu_frequency),
        "statistics": {
            "CPU": { "actual_frequency": 0 },
            "energy": { "consumed": step.usage.energy_mj / 1000 },
        },
        "time": merged([
            cpu_time(&step.usage),
            json!({
                "start": step.start.secs(),
                "end": time(step.end),
                "elapsed": fields::elapsed_s(&row),
                "suspended": 0,
            }),
        ]),
        // As in Slurm: what tasks used, memory in bytes and CPU time in milliseconds.
        "tres": {
            "requested": {
                "max": tres(setting, &peak),
                "min": [],
                "average": [],
                "total": tres(setting, &total),
            },
            "consumed": { "max": [], "min": [], "average": [], "total": [] },
            "allocated": tres(setting, &fields::alloc_tres(&row)),
        },
    })
}

/// What a step asked of its CPUs. Frequencies are in kHz; zero stands for none, and for a word such as `high`.
fn requested_cpu(asked: Option<CpuFrequency>) -> Value {
    let khz = |wanted: Option<Frequency>| match wanted {
        Some(Frequency::Khz(khz)) => khz,
        _ => 0,
    };
    let governor: Vec<&str> =
        asked.and_then(|of| of.governor).map(Governor::kernel_name).into_iter().collect();
    let (min, max) = asked.map_or((0, 0), |of| (khz(of.min), khz(of.max)));
    json!({ "requested_frequency": { "min": min, "max": max }, "governor": governor })
}

fn tres(setting: Setting<'_>, amounts: &Tres) -> Vec<Value> {
    tres_list(setting.gres, amounts)
}

/// One object for each resource. Its number is that of `sacctmgr show tres`; a resource that is not listed there has none.
pub fn tres_list(gres: &[String], amounts: &Tres) -> Vec<Value> {
    let known = tres_rows(gres);
    amounts
        .iter()
        .map(|(kind, count)| {
            let full = kind.to_string();
            let (class, name) = full.split_once('/').unwrap_or((full.as_str(), ""));
            let number = known.iter().find(|row| row.kind == class && row.name == name);
            json!({
                "type": class,
                "name": name,
                "id": number.map(|row| row.id),
                "count": count,
            })
        })
        .collect()
}

fn exit_code(state: RecordState, exit: ExitStatus) -> Value {
    let status = match (state, exit) {
        (RecordState::Pending, _) => "PENDING",
        (_, ExitStatus { signal, .. }) if signal != 0 => "SIGNALED",
        (_, ExitStatus { code: 0, .. }) => "SUCCESS",
        _ => "ERROR",
    };
    let mut value = json!({ "status": status, "return_code": exit.code });
    if exit.signal != 0 {
        value["signal"] = json!({ "signal_id": exit.signal, "name": signal::name(exit.signal) });
    }
    value
}

/// The number of the user who cancelled it.
fn killer(state: RecordState) -> Option<String> {
    match state {
        RecordState::Ended(Outcome::Cancelled { by }) => Some(by.to_string()),
        _ => None,
    }
}

fn cpu_us(usage: &Usage) -> u64 {
    usage.cpu_user_us.saturating_add(usage.cpu_system_us)
}

fn cpu_time(usage: &Usage) -> Value {
    let split = |us: u64| json!({ "seconds": us / 1_000_000, "microseconds": us % 1_000_000 });
    json!({
        "system": split(usage.cpu_system_us),
        "user": split(usage.cpu_user_us),
        "total": split(cpu_us(usage)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::openapi::Version;
    use crate::output::sacct::tests::{record, train, two_nodes};
    use crate::output::samples::{at, moment};

    fn written(records: &[JobRecord], with_steps: bool) -> Value {
        let setting = Setting {
            cluster: "lab",
            gres: &["gpu".to_owned()],
            with_steps,
            moment: moment(at(0, 50, 0)),
        };
        let mut out = Vec::new();
        jobs(&mut out, setting, records).expect("memory takes it");
        serde_json::from_slice(&out).expect("JSON")
    }

    #[test]
    fn jobs_of_the_books_have_their_resources_times_and_steps() {
        let value = written(&[two_nodes()], true);
        assert_eq!(value["meta"]["plugin"]["type"], "openapi/dbv0.0.38");
        assert_eq!(value["errors"], json!([]));
        let job = &value["jobs"][0];
        assert_eq!((&job["job_id"], &job["name"]), (&json!(79), &json!("envcap")));
        assert_eq!(job["association"]["user"], "alice");
        assert_eq!(job["state"], json!({ "current": "COMPLETED", "reason": "None" }));
        assert_eq!(job["exit_code"], json!({ "status": "SUCCESS", "return_code": 0 }));
        assert_eq!((&job["nodes"], &job["allocation_nodes"]), (&json!("node[1-2]"), &json!(2)));
        assert_eq!(job["time"]["limit"], 60);
        assert_eq!(job["time"]["start"], at(0, 49, 17).secs());
        assert_eq!(job["time"]["total"], json!({ "seconds": 0, "microseconds": 84_500 }));
        // The numbers are those of `sacctmgr show tres`.
        let allocated = job["tres"]["allocated"].as_array().expect("a list");
        let gpus = json!({ "type": "gres", "name": "gpu", "id": 1001, "count": 4 });
        let memory = json!({ "type": "mem", "name": "", "id": 2, "count": 4000 });
        assert!(allocated.contains(&gpus) && allocated.contains(&memory), "{allocated:?}");
        let steps = job["steps"].as_array().expect("a list");
        let ids: Vec<&Value> = steps.iter().map(|step| &step["step"]["id"]).collect();
        assert_eq!(ids, ["batch", "0", "1", "2"]);
        assert_eq!(steps[1]["state"], "FAILED");
        assert_eq!(steps[1]["exit_code"], json!({ "status": "ERROR", "return_code": 1 }));
        assert_eq!(
            (&steps[1]["nodes"]["count"], &steps[1]["tasks"]["count"]),
            (&json!(2), &json!(4))
        );
        assert_eq!(steps[1]["tres"]["requested"]["max"][0]["count"], 4712 * 1024);
        assert_eq!(written(&[two_nodes()], false)["jobs"][0]["steps"], json!([]));
    }

    #[test]
    fn steps_say_what_they_asked_of_their_cpus() {
        let asked = CpuFrequency {
            min: Some(Frequency::Khz(1_200_000)),
            max: Some(Frequency::High),
            governor: Some(Governor::Performance),
        };
        let expected = json!({
            "requested_frequency": { "min": 1_200_000, "max": 0 }, "governor": ["performance"],
        });
        assert_eq!(requested_cpu(Some(asked)), expected);
        let none = json!({ "requested_frequency": { "min": 0, "max": 0 }, "governor": [] });
        assert_eq!(requested_cpu(None), none);
    }

    #[test]
    fn later_versions_write_flags_and_arrays_of_the_same_jobs() {
        let context = Context {
            version: Version::V42,
            cluster: "lab".into(),
            gres: vec!["gpu".into()],
            now: at(0, 50, 0),
        };
        let records = [two_nodes()];
        let written = |context: &Context| {
            let moment = moment(at(0, 50, 0));
            serde_json::to_value(VersionJobs { context, moment, records: &records }).expect("JSON")
        };
        let jobs = written(&context);
        let job = &jobs[0];
        assert_eq!(job["state"]["current"], json!(["COMPLETED"]));
        assert_eq!(job["time"]["limit"], json!({"set": true, "infinite": false, "number": 60}));
        assert_eq!(job["exit_code"]["status"], json!(["SUCCESS"]));
        assert_eq!(job["exit_code"]["return_code"]["number"], 0);
        assert_eq!(job["steps"][1]["state"], json!(["FAILED"]));
        assert_eq!(job["steps"][1]["task"], json!({ "distribution": "" }));
        let own: Vec<&String> =
            job["steps"][1]["step"].as_object().expect("an object").keys().collect();
        assert_eq!(own, ["id", "name"]);
        assert_eq!(job["steps"][1]["pid"], "");
        assert_eq!(job["steps"][1]["CPU"]["governor"], "");
        assert_eq!(job["kill_request_user"], "");
        assert_eq!((&job["restart_cnt"], &job["stdout"]), (&json!(0), &json!("")));
        assert_eq!(job["required"]["memory_per_node"]["set"], true);
        assert!(job["time"]["planned"]["number"].is_u64(), "{}", job["time"]);
        let early = Context { version: Version::V40, ..context };
        let jobs = written(&early);
        let job = &jobs[0];
        assert!(job.get("stdout").is_none() && job["time"].get("planned").is_none(), "{job}");
        assert!(job.get("hold").is_some() && job.get("restart_cnt").is_none(), "{job}");
    }

    #[test]
    fn cancelled_and_waiting_jobs_say_so() {
        let mut waiting = record(5, "later", RecordState::Pending);
        (waiting.start, waiting.nodes) = (None, Vec::new());
        let value = written(&[train(true), waiting], true);
        let cancelled = &value["jobs"][0];
        assert_eq!(cancelled["state"]["current"], "CANCELLED");
        assert_eq!(cancelled["kill_request_user"], "0");
        let ended = json!({
            "status": "SIGNALED", "return_code": 0, "signal": { "signal_id": 15, "name": "TERM" },
        });
        assert_eq!(cancelled["steps"][0]["exit_code"], ended);
        let waiting = &value["jobs"][1];
        assert_eq!(waiting["exit_code"]["status"], "PENDING");
        assert_eq!(
            (&waiting["time"]["start"], &waiting["time"]["elapsed"]),
            (&json!(0), &json!(0))
        );
        assert_eq!(waiting["nodes"], "None assigned");
    }
}
