//! cgroup.conf: what of a job is held to its allocation, and within which bounds.

use model::amount::Bytes;

use super::error::Findings;
use crate::conf::keys::choices::CgroupPlugin;
use crate::conf::keys::fields::{Field, field};
use crate::conf::keys::record::{Entry, Record};
use crate::conf::keys::record_keys::CGROUP;
use crate::conf::keys::value::Percent;
use crate::conf::text::lines::ConfLine;

/// A script with fewer processes could start no program.
const PIDS_MIN: u64 = 8;
/// As many as a kernel can have.
const PIDS_MAX: u64 = 1 << 22;
/// A shell with fewer could not run a pipe.
const OPEN_FILES_MIN: u64 = 64;
/// As many as a kernel lets a process have.
const OPEN_FILES_MAX: u64 = 1 << 30;
const SWAPPINESS_MAX: u64 = 100;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CgroupConf {
    pub plugin: CgroupPlugin,
    pub constrain_cores: bool,
    pub constrain_devices: bool,
    pub constrain_ram: bool,
    pub constrain_swap: bool,
    /// Shares of the memory that a job was allocated.
    pub allowed_ram: Percent,
    pub allowed_swap: Percent,
    /// Shares of the node's memory.
    pub max_ram: Percent,
    pub max_swap: Percent,
    /// No memory limit is below this.
    pub min_ram: Bytes,
    pub memory_swappiness: Option<u8>,
    /// CPU time is held to the CPUs that a job was allocated.
    pub constrain_cpu_time: bool,
    /// The CPU time of one job on one node, summed over its CPUs.
    pub max_cpu_seconds: Option<u64>,
    pub max_pids: Option<u64>,
    /// The open files of each process of a job, whatever limit it brings along.
    pub max_open_files: Option<u64>,
    /// The setuid bit of a program gives a job's process no further rights.
    pub no_new_privs: bool,
    pub constrain_scratch: bool,
    /// The scratch disk of a job without `--tmp`.
    pub max_scratch: Option<Bytes>,
    /// Device files that every job may open. The last part of a path may have one `*`.
    pub allowed_devices: Vec<String>,
}

/// The keys that set one field and need no further check.
const FIELDS: &[Field<CgroupConf>] = &[
    field!("CgroupPlugin", choice, plugin),
    field!("ConstrainCores", flag, constrain_cores),
    field!("ConstrainDevices", flag, constrain_devices),
    field!("ConstrainRAMSpace", flag, constrain_ram),
    field!("ConstrainSwapSpace", flag, constrain_swap),
    field!("ConstrainCPUTime", flag, constrain_cpu_time),
    field!("AllowedRAMSpace", percent, allowed_ram),
    field!("AllowedSwapSpace", percent, allowed_swap),
    field!("MaxRAMPercent", percent, max_ram),
    field!("MaxSwapPercent", percent, max_swap),
    field!("MinRAMSpace", mebibytes, min_ram),
    field!("MaxCPUTime", some_number, max_cpu_seconds),
    field!("MaxPids", some_number, max_pids),
    field!("MaxOpenFiles", some_number, max_open_files),
    field!("NoNewPrivs", flag, no_new_privs),
    field!("MaxScratch", mebibytes_limit, max_scratch),
    field!("AllowedDevices", words, allowed_devices),
];

impl CgroupConf {
    /// What an empty cgroup.conf says: nothing is held.
    const UNHELD: CgroupConf = CgroupConf {
        plugin: CgroupPlugin::Autodetect,
        constrain_cores: false,
        constrain_devices: false,
        constrain_ram: false,
        constrain_swap: false,
        allowed_ram: Percent::WHOLE,
        allowed_swap: Percent::ZERO,
        max_ram: Percent::WHOLE,
        max_swap: Percent::WHOLE,
        min_ram: Bytes::from_mib(30),
        memory_swappiness: None,
        constrain_cpu_time: false,
        max_cpu_seconds: None,
        max_pids: None,
        max_open_files: None,
        no_new_privs: false,
        constrain_scratch: false,
        max_scratch: None,
        allowed_devices: Vec::new(),
    };

    /// What holds without a cgroup.conf. A job keeps to what it was allocated; CPU time beyond that is not
    /// taken from it.
    pub(super) fn without_file() -> CgroupConf {
        CgroupConf {
            constrain_cores: true,
            constrain_devices: true,
            constrain_ram: true,
            constrain_swap: true,
            constrain_scratch: true,
            ..CgroupConf::UNHELD
        }
    }

    pub(super) fn read(lines: &[ConfLine], findings: &mut Findings) -> CgroupConf {
        let mut record = Record::new(CGROUP);
        lines.iter().flatten().for_each(|pair| record.add(pair, findings));
        let mut conf = CgroupConf::UNHELD;
        FIELDS.iter().for_each(|field| field.store(&record, &mut conf));
        conf.constrain_scratch =
            record.flag("ConstrainScratch").unwrap_or_else(|| record.has("MaxScratch"));
        let swappiness: Option<u64> = record.number("MemorySwappiness");
        conf.memory_swappiness = swappiness.and_then(|number| u8::try_from(number).ok());
        conf.check(&record, findings);
        conf
    }

    fn check(&self, record: &Record, findings: &mut Findings) {
        let number = |key: &str| record.number::<u64>(key);
        let above = |key: &str, max: u64| number(key).is_some_and(|number| number > max);
        let below = |key: &str, min: u64| number(key).is_some_and(|number| number < min);
        let checks = [
            ("MaxRAMPercent", self.max_ram > Percent::WHOLE, "expected at most 100".to_owned()),
            ("MaxSwapPercent", self.max_swap > Percent::WHOLE, "expected at most 100".to_owned()),
            (
                "MemorySwappiness",
                above("MemorySwappiness", SWAPPINESS_MAX),
                format!("expected a whole number from 0 to {SWAPPINESS_MAX}"),
            ),
            (
                "MaxPids",
                below("MaxPids", PIDS_MIN),
                format!("expected at least {PIDS_MIN}: a script starts programs"),
            ),
            (
                "MaxPids",
                above("MaxPids", PIDS_MAX),
                format!("expected at most {PIDS_MAX}, as many as a kernel can have"),
            ),
            (
                "MaxOpenFiles",
                below("MaxOpenFiles", OPEN_FILES_MIN),
                format!("expected at least {OPEN_FILES_MIN}: every program opens files"),
            ),
            (
                "MaxOpenFiles",
                above("MaxOpenFiles", OPEN_FILES_MAX),
                format!("expected at most {OPEN_FILES_MAX}, as many as a process can have"),
            ),
            (
                "MaxCPUTime",
                below("MaxCPUTime", 1),
                "expected seconds of CPU time, at least 1".to_owned(),
            ),
            ("MaxScratch", below("MaxScratch", 1), "expected megabytes, at least 1".to_owned()),
            (
                "AllowedDevices",
                !self.allowed_devices.iter().all(|path| is_below_dev(path)),
                "expected paths below /dev, as in /dev/kvm,/dev/hfi1_*".to_owned(),
            ),
        ];
        for (key, is_wrong, expected) in checks {
            if let Some(Entry { place, text, .. }) = record.entry(key).filter(|_| is_wrong) {
                findings.wrong(place, key, text, expected);
            }
        }
    }
}

/// A path that can only be below `/dev`, with one `*` at most, in its last part.
fn is_below_dev(path: &str) -> bool {
    let Some((folder, name)) = path.rsplit_once('/') else { return false };
    (folder == "/dev" || folder.starts_with("/dev/"))
        && !folder.contains('*')
        && path.split('/').all(|part| part != "..")
        && !name.is_empty()
        && name.matches('*').count() <= 1
}
