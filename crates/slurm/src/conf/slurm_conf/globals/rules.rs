//! Cluster-wide keys that depend on one another, have a grammar of their own, or are bounded more
//! narrowly than their kind.

use model::private_data::{PrivateData, PrivateKind};
use model::run::NicePolicy;

use super::backfill::Backfill;
use super::kept_texts::KeptTexts;
use super::licenses;
use super::power;
use super::preemption::Preemption;
use super::requeue_exits;
use super::{Globals, JobIds};
use crate::conf::error::{Findings, NoticeKind};
use crate::conf::keys::choices::{AccountingEnforce, Choice, PrologFlag};
use crate::conf::keys::global_keys::store_fields;
use crate::conf::keys::record::Record;
use crate::conf::keys::value::{self, Parameters};
use crate::conf::keys::words;
use crate::conf::slurm_conf::memory_keys::{self, DEFAULT_MEMORY, MAX_MEMORY};
use crate::conf::slurm_conf::tres_weights;
use crate::mpi;

/// The largest number of a job that Slurm's packed ids can hold.
const JOB_ID_MAX: u32 = 0x03ff_ffff;
const ARRAY_SIZE_MAX: u32 = 4_000_001;

/// Slurm's tools print an unlimited 16-bit value as this number, so files have it in that meaning.
const PROLOG_TIMEOUT_UNLIMITED_S: u32 = 65_534;

impl Globals {
    /// The settings of the single keys of slurm.conf. The order of the checks is that in which their errors
    /// are told.
    pub(in super::super) fn read(record: &Record, findings: &mut Findings) -> Globals {
        let mut globals = Globals::default();
        store_fields(record, &mut globals);
        check_job_ids(record, &globals.ids, findings);
        globals.times.prolog_epilog_timeout_s = prolog_timeout(record);
        globals.memory.default = memory_keys::read(record, &DEFAULT_MEMORY, findings);
        globals.memory.max = memory_keys::read(record, &MAX_MEMORY, findings);
        let scheduling = &mut globals.scheduling;
        scheduling.backfill = Backfill::read(record, &scheduling.parameters, findings);
        globals.priority.weight_tres = tres_weights::PRIORITY.read(record, findings);
        globals.preemption = Preemption::read(record, findings);
        let accounting = &mut globals.accounting;
        accounting.kept_texts = KeptTexts::read(record, &accounting.parameters, findings);
        globals.accounting.sample_s = sample_interval(record, findings);
        let launch = &mut globals.launch;
        launch.requeue_exit = requeue_exits::read(record, "RequeueExit", findings);
        launch.requeue_exit_hold = requeue_exits::read(record, "RequeueExitHold", findings);
        launch.requeue_wait_s = requeue_wait(record).unwrap_or(launch.requeue_wait_s);
        launch.propagate_nice = nice_policy(record);
        check_prolog_flags(record, &globals.programs.prolog_flags, findings);
        globals.licenses = licenses::read(record, findings);
        globals.private_data = private_data(record, findings);
        power::read(record, &mut globals.power, findings);
        check_enforced(record, &globals.accounting.enforce, findings);
        notice_mpi(record, findings);
        globals.ids.max_array_tasks = scheduler_number(record, "max_array_tasks", findings);
        globals.ids.max_script_bytes = scheduler_number(record, "max_script_size", findings);
        words::notice(record, findings);
        globals
    }
}

fn check_job_ids(record: &Record, ids: &JobIds, findings: &mut Findings) {
    let bounds = [
        ("FirstJobId", ids.first_job_id, 1, ids.max_job_id),
        ("MaxJobId", ids.max_job_id, 1, JOB_ID_MAX),
        ("MaxJobCount", ids.max_job_count, 2, u32::MAX),
        ("MaxArraySize", ids.max_array_size, 0, ARRAY_SIZE_MAX),
    ];
    for (key, number, min, max) in bounds {
        let entry = record.entry(key).filter(|_| !(min..=max).contains(&number));
        if let Some(entry) = entry {
            let expected = format!("expected from {min} to {max}");
            findings.wrong(&entry.place, key, &entry.text, expected);
        }
    }
}

fn prolog_timeout(record: &Record) -> Option<u32> {
    let timeout_s: Option<u32> = record.limit("PrologEpilogTimeout")?;
    timeout_s.filter(|timeout_s| *timeout_s < PROLOG_TIMEOUT_UNLIMITED_S)
}

/// The seconds between two samples of a task's usage, by `JobAcctGatherType` and `JobAcctGatherFrequency`.
fn sample_interval(record: &Record, findings: &mut Findings) -> Option<u32> {
    const KEY: &str = "JobAcctGatherFrequency";
    let gather = record.text("JobAcctGatherType");
    if gather.is_some_and(|word| word.eq_ignore_ascii_case("jobacct_gather/none")) {
        return Some(0);
    }
    let entry = record.entry(KEY)?;
    let mut task_s = None;
    for part in value::words(&entry.text) {
        let (kind, seconds) = part.split_once('=').unwrap_or(("task", part));
        match (kind.to_ascii_lowercase().as_str(), seconds.parse::<u32>()) {
            ("task", Ok(seconds)) => task_s = Some(seconds),
            ("energy" | "network" | "filesystem", Ok(_)) => {}
            _ => {
                let expected = format!("{part:?}: expected seconds such as 30, or task=30");
                findings.wrong(&entry.place, KEY, &entry.text, expected);
            }
        }
    }
    task_s
}

/// A requeued job of Slurm waits until the credential of its former start has expired.
fn requeue_wait(record: &Record) -> Option<u32> {
    Parameters::new(record.words("AuthInfo")).get("cred_expire")?.parse().ok()
}

fn nice_policy(record: &Record) -> NicePolicy {
    match record.number("PropagatePrioProcess").unwrap_or(0u32) {
        0 => NicePolicy::Daemon,
        1 => NicePolicy::Submitter,
        _ => NicePolicy::BelowDaemon,
    }
}

fn check_prolog_flags(record: &Record, flags: &[PrologFlag], findings: &mut Findings) {
    const KEY: &str = "PrologFlags";
    let Some(entry) = record.entry(KEY) else { return };
    for other in [PrologFlag::Contain, PrologFlag::RunInJob, PrologFlag::X11] {
        if flags.contains(&PrologFlag::NoHold) && flags.contains(&other) {
            let expected = format!("expected NoHold without {}", other.word());
            findings.wrong(&entry.place, KEY, &entry.text, expected);
        }
    }
}

/// `none` is how `scontrol show config` prints an empty list.
fn private_data(record: &Record, findings: &mut Findings) -> PrivateData {
    const KEY: &str = "PrivateData";
    let words = record.words(KEY);
    if let Some(entry) = record.entry(KEY)
        && words.len() > 1
        && words.iter().any(|word| word == "none")
    {
        findings.wrong(&entry.place, KEY, &entry.text, "expected none alone");
    }
    words.iter().filter_map(|word| PrivateKind::from_word(word)).collect()
}

/// Workload keys are kept with jobs and not checked: they are labels for reports, and none lets a job have anything. `all` has them
/// in it.
fn check_enforced(record: &Record, enforce: &[AccountingEnforce], findings: &mut Findings) {
    const KEY: &str = "AccountingStorageEnforce";
    let Some(entry) = record.entry(KEY) else { return };
    let with_keys = [AccountingEnforce::WcKeys, AccountingEnforce::All];
    if with_keys.iter().any(|word| enforce.contains(word)) {
        findings.notice(&entry.place, format!("{KEY}=wckeys"), NoticeKind::NoEffect);
    }
}

/// The ranks of an MPI program are not connected here: it would start as so many programs of one rank.
fn notice_mpi(record: &Record, findings: &mut Findings) {
    const KEY: &str = "MpiDefault";
    let Some(entry) = record.entry(KEY) else { return };
    if mpi::connects_ranks(&entry.text) {
        let how = mpi::NOT_CONNECTED.to_owned();
        let key = format!("{KEY}={}", entry.text);
        findings.notice(&entry.place, key, NoticeKind::Corrected { how });
    }
}

/// A number in `SchedulerParameters`.
fn scheduler_number(record: &Record, name: &str, findings: &mut Findings) -> Option<u32> {
    const KEY: &str = "SchedulerParameters";
    let (entry, parameters) = (record.entry(KEY)?, Parameters::new(record.words(KEY)));
    let text = parameters.get(name)?;
    let number = text.parse().ok();
    if number.is_none() {
        let expected = format!("{name}={text}: expected a whole number");
        findings.wrong(&entry.place, KEY, &entry.text, expected);
    }
    number
}
