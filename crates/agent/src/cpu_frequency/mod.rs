//! The frequencies of CPUs, set for steps and set back when these end.
//!
//! A file of the state folder holds what CPUs had before, and which steps have set something for them; it is written before
//! they are changed. So whoever comes next sets back what a killed supervisor left: the agent, when it takes the
//! attempt for lost or starts. Steps that share a CPU have the latest setting, and what is left of the earlier when that step ends.

#[cfg(test)]
mod tests;

use crate::spool::{AttemptDir, ClaimState, LaunchRecord};
use crate::trusted_dir::TrustedDir;
use model::cpu_frequency::{CpuFrequency, CpuSetting, CpuSteps};
use model::cpuset::CpuSet;
use model::id::{AttemptId, StepId};
use nix::fcntl::{Flock, FlockArg};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

const SYSFS: &str = "/sys/devices/system/cpu";
/// Names another folder, for tests.
const SYSFS_VARIABLE: &str = "SLUICE_CPU_SYSFS";
const RECORD: &str = "cpu_frequency.json";
const LOCK: &str = "cpu_frequency.lock";
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
const GOVERNOR: &str = "scaling_governor";
const MIN: &str = "scaling_min_freq";
const MAX: &str = "scaling_max_freq";
const SPEED: &str = "scaling_setspeed";
const CURRENT: &str = "scaling_cur_freq";
/// Steps that may have set one CPU at the same time.
const USES_MAX: usize = 1024;

fn sysfs() -> PathBuf {
    std::env::var_os(SYSFS_VARIABLE).map_or_else(|| SYSFS.into(), PathBuf::from)
}

/// The present frequency of a CPU; `None` where the machine does not tell.
pub(crate) fn khz_of(cpu: u32) -> Option<u64> {
    let path = sysfs().join(format!("cpu{cpu}/cpufreq/{CURRENT}"));
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// A step that sets frequencies, by its node and attempt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FrequencyOwner {
    pub node: String,
    pub attempt: AttemptId,
    pub step: String,
}

#[derive(Debug, Serialize, Deserialize)]
struct Record {
    /// What is set is lost when the machine starts anew.
    boot: String,
    /// By folder.
    domains: BTreeMap<String, DomainRecord>,
}

#[derive(Debug, Serialize, Deserialize)]
struct DomainRecord {
    before: CpuSetting,
    /// The latest counts. None: it is still to be set back.
    uses: Vec<(FrequencyOwner, CpuSetting)>,
}

/// The frequencies of this machine's CPUs.
#[derive(Debug, Clone)]
pub(crate) struct CpuFrequencies {
    state: PathBuf,
    sysfs: PathBuf,
}

impl CpuFrequencies {
    pub fn of_machine(state: &Path) -> CpuFrequencies {
        CpuFrequencies { state: state.to_owned(), sysfs: sysfs() }
    }

    /// Sets the CPUs for a step of a job that has `of_job`. An error is why nothing, or not all, was set.
    pub fn set(
        &self,
        owner: &FrequencyOwner,
        cpus: &CpuSet,
        of_job: &CpuSet,
        wanted: &CpuFrequency,
    ) -> Result<(), String> {
        let domains = self.domains(cpus);
        if domains.is_empty() {
            return Err("this machine's CPUs have no frequencies that can be set".into());
        }
        let failed = |e: io::Error| format!("{}: {e}", self.state.join(RECORD).display());
        let kept = KeptRecord::open(&self.state).map_err(failed)?;
        let mut record = kept.read().map_err(failed)?;
        let (own, shared): (Vec<_>, Vec<_>) =
            domains.into_iter().partition(|domain| domain.is_within(of_job));
        let mut settings = Vec::new();
        for domain in own {
            let known = record.domains.remove(&domain.0);
            let known =
                known.or_else(|| Some(DomainRecord { before: domain.read()?, uses: Vec::new() }));
            let Some(mut known) = known else { continue };
            if known.uses.len() < USES_MAX {
                let setting = wanted.on(&domain.steps());
                settings.push((domain.clone(), setting.over(&known.before)));
                known.uses.push((owner.clone(), setting));
            }
            record.domains.insert(domain.0, known);
        }
        kept.write(&record).map_err(failed)?;
        let failures: Vec<String> =
            settings.iter().filter_map(|(domain, setting)| domain.write(setting).err()).collect();
        let of_others =
            shared.iter().map(|domain| format!("{}: CPUs of other jobs share it", domain.0));
        failures.into_iter().chain(of_others).next().map_or(Ok(()), Err)
    }

    /// Sets back what these owners have set, to what the steps that are left want, or to what it was.
    pub fn release(&self, is_ended: impl Fn(&FrequencyOwner) -> bool) {
        if !self.state.join(RECORD).exists() {
            return;
        }
        if let Err(error) = self.try_release(is_ended) {
            tracing::warn!(%error, "frequencies of CPUs could not be set back");
        }
    }

    fn try_release(&self, is_ended: impl Fn(&FrequencyOwner) -> bool) -> io::Result<()> {
        let kept = KeptRecord::open(&self.state)?;
        let mut record = kept.read()?;
        record.domains.retain(|domain, known| {
            // One that nobody uses could not be set back before.
            let is_due = known.uses.last().is_none_or(|(owner, _)| is_ended(owner));
            known.uses.retain(|(owner, _)| !is_ended(owner));
            if !is_due {
                return true;
            }
            let left = known.uses.last().map(|(_, setting)| setting.over(&known.before));
            let setting = left.as_ref().unwrap_or(&known.before);
            let set = FrequencyDomain(domain.clone()).write(setting);
            if let Err(why) = &set {
                tracing::warn!(why, "the frequency of CPUs could not be set back");
            }
            set.is_err() || !known.uses.is_empty()
        });
        kept.write(&record)
    }

    /// The domains of these CPUs, each once.
    fn domains(&self, cpus: &CpuSet) -> BTreeSet<FrequencyDomain> {
        let folders = cpus.iter().map(|cpu| self.sysfs.join(format!("cpu{cpu}/cpufreq")));
        let real = folders.filter_map(|folder| folder.canonicalize().ok());
        real.filter_map(|folder| folder.to_str().map(str::to_owned)).map(FrequencyDomain).collect()
    }
}

/// CPUs that have one frequency together, by their folder in sysfs.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct FrequencyDomain(String);

impl FrequencyDomain {
    fn text(&self, name: &str) -> Option<String> {
        let text = fs::read_to_string(Path::new(&self.0).join(name)).ok()?;
        Some(text.trim().to_owned())
    }

    fn number(&self, name: &str) -> Option<u32> {
        self.text(name)?.parse().ok()
    }

    fn read(&self) -> Option<CpuSetting> {
        let governor = self.text(GOVERNOR)?;
        Some(CpuSetting {
            speed: self.number(SPEED).filter(|_| governor == "userspace"),
            governor: Some(governor),
            min: self.number(MIN),
            max: self.number(MAX),
        })
    }

    /// The CPUs that have this frequency.
    fn cpus(&self) -> Option<CpuSet> {
        let text = self.text("affected_cpus")?;
        text.split_whitespace().map(|cpu| cpu.parse::<u32>().ok()).collect()
    }

    /// Whether no other CPUs have this frequency.
    fn is_within(&self, cpus: &CpuSet) -> bool {
        self.cpus().is_some_and(|own| own.is_subset(cpus))
    }

    fn steps(&self) -> CpuSteps {
        let listed = self.text("scaling_available_frequencies").unwrap_or_default();
        CpuSteps {
            lowest: self.number("cpuinfo_min_freq").unwrap_or(0),
            highest: self.number("cpuinfo_max_freq").unwrap_or(0),
            listed: listed.split_whitespace().filter_map(|word| word.parse().ok()).collect(),
        }
    }

    /// Writes what is set of it, all that can be written. Returns the first error.
    fn write(&self, setting: &CpuSetting) -> Result<(), String> {
        let mut values: Vec<(&str, String)> = Vec::new();
        values.extend(setting.governor.iter().map(|governor| (GOVERNOR, governor.clone())));
        let mut ends = [(MIN, setting.min), (MAX, setting.max)];
        if setting.min > self.number(MAX) {
            // The kernel takes no lowest frequency above the highest.
            ends.reverse();
        }
        values.extend(ends.iter().filter_map(|(name, khz)| Some((*name, (*khz)?.to_string()))));
        values.extend(setting.speed.map(|khz| (SPEED, khz.to_string())));
        let folder = Path::new(&self.0);
        let write = |(name, value): &(&str, String)| {
            let mut file = fs::OpenOptions::new();
            let done = file
                .write(true)
                .truncate(true)
                .open(folder.join(name))
                .and_then(|mut file| file.write_all(format!("{value}\n").as_bytes()));
            done.err().map(|error| format!("{}/{name} {value}: {error}", self.0))
        };
        let errors: Vec<String> = values.iter().filter_map(write).collect();
        errors.into_iter().next().map_or(Ok(()), Err)
    }
}

/// What one step has set.
#[derive(Debug)]
pub(crate) struct SetFrequency {
    machine: CpuFrequencies,
    owner: FrequencyOwner,
}

impl SetFrequency {
    pub fn of_step(dir: &AttemptDir, record: &LaunchRecord, step: StepId) -> SetFrequency {
        let (node, attempt) = (record.node.clone(), record.attempt);
        let owner = FrequencyOwner { node, attempt, step: step.to_string() };
        SetFrequency { machine: CpuFrequencies::of_machine(state_of(node_folder(dir))), owner }
    }

    pub fn set(&self, cpus: &CpuSet, of_job: &CpuSet, wanted: &CpuFrequency) -> Result<(), String> {
        self.machine.set(&self.owner, cpus, of_job, wanted)
    }

    pub fn release(self) {
        self.machine.release(|owner| *owner == self.owner);
    }

    /// Sets back what the steps of an attempt have left.
    pub fn release_attempt(dir: &AttemptDir, record: &LaunchRecord) {
        Self::release_lost(node_folder(dir), |attempt| attempt == record.attempt);
    }

    /// Sets back what attempts of other nodes have left: of nodes that this agent is not, or is not any more. Attempts
    /// whose supervisor lives set theirs back themselves.
    pub fn release_of_other_nodes(state: &Path, is_own: &dyn Fn(&str) -> bool) {
        let machine = CpuFrequencies::of_machine(state);
        machine.release(|owner| Self::is_of_no_node(state, owner, is_own));
    }

    fn is_of_no_node(state: &Path, owner: &FrequencyOwner, is_own: &dyn Fn(&str) -> bool) -> bool {
        let is_alive = || {
            let spool = state.join("nodes").join(&owner.node).join("spool");
            let dir = AttemptDir::open(&spool.join(owner.attempt.to_string()));
            dir.is_ok_and(|dir| matches!(dir.claim_state(), Ok(ClaimState::Claimed)))
        };
        !is_own(&owner.node) && !is_alive()
    }

    /// Sets back what ended attempts of a node have left; `node` is its folder.
    pub fn release_lost(node: &Path, is_ended: impl Fn(AttemptId) -> bool) {
        let name = node.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let machine = CpuFrequencies::of_machine(state_of(node));
        machine.release(|owner| owner.node == name && is_ended(owner.attempt));
    }
}

fn node_folder(dir: &AttemptDir) -> &Path {
    dir.path().ancestors().nth(2).unwrap_or(Path::new("/"))
}

/// The machine's: nodes of one agent may share CPUs.
fn state_of(node: &Path) -> &Path {
    node.ancestors().nth(2).unwrap_or(Path::new("/"))
}

/// The record, locked against other processes of this machine.
struct KeptRecord {
    state: TrustedDir,
    boot: String,
    _lock: Flock<File>,
}

impl KeptRecord {
    fn open(state: &Path) -> io::Result<KeptRecord> {
        let state = TrustedDir::open(state)?;
        let lock = state.append(LOCK, 0o600)?;
        let lock =
            Flock::lock(lock, FlockArg::LockExclusive).map_err(|(_, e)| io::Error::from(e))?;
        let boot = fs::read_to_string(BOOT_ID).unwrap_or_default().trim().to_owned();
        Ok(KeptRecord { state, boot, _lock: lock })
    }

    /// What was set before the machine started anew is set no more. A record that cannot be read is an error: it has what
    /// CPUs had before.
    fn read(&self) -> io::Result<Record> {
        let fresh = || Record { boot: self.boot.clone(), domains: BTreeMap::new() };
        let text = match fs::read(self.state.path().join(RECORD)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(fresh()),
            text => text?,
        };
        let record: Record = serde_json::from_slice(&text)?;
        Ok(if record.boot == self.boot { record } else { fresh() })
    }

    fn write(&self, record: &Record) -> io::Result<()> {
        if record.domains.is_empty() {
            return match fs::remove_file(self.state.path().join(RECORD)) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
                removed => removed,
            };
        }
        self.state.replace(RECORD, 0o600, &serde_json::to_vec(record)?)
    }
}
