//! cgroup.conf: what the kernel is asked to enforce.

use model::amount::Bytes;

use super::choices::CgroupPlugin;
use super::error::Findings;
use super::lines::Line;
use super::record::Record;
use super::record_keys::CGROUP;
use super::value::Percent;

const MIN_RAM_MIB_DEFAULT: u64 = 30;
const SWAPPINESS_MAX: u64 = 100;
/// With fewer processes not even a shell pipeline runs.
const PIDS_MIN: u64 = 8;
/// The kernel's own bound on process numbers: it takes no higher limit.
const PIDS_MAX: u64 = 1 << 22;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CgroupConf {
    pub plugin: CgroupPlugin,
    pub constrain_cores: bool,
    pub constrain_devices: bool,
    pub constrain_ram: bool,
    pub constrain_swap: bool,
    /// The hard limit, as a share of the memory allocated.
    pub allowed_ram: Percent,
    /// Swap beyond that, as a share of the memory allocated.
    pub allowed_swap: Percent,
    /// Bounds on both, as a share of the node's memory.
    pub max_ram: Percent,
    pub max_swap: Percent,
    /// No limit is set lower than this.
    pub min_ram: Bytes,
    pub memory_swappiness: Option<u8>,
    /// Beside certain CPUs, or where they are only counted.
    pub constrain_cpu_time: bool,
    /// Seconds of CPU time, of all processes of a job on a node together.
    pub max_cpu_seconds: Option<u64>,
    pub max_pids: Option<u64>,
    /// The job's folder is held to the disk asked for.
    pub constrain_scratch: bool,
    /// Disk of a job that asks for none.
    pub max_scratch: Option<Bytes>,
    /// Paths of devices; the last part may hold one `*`.
    pub allowed_devices: Vec<String>,
}

impl CgroupConf {
    /// Without a cgroup.conf everything that can be enforced is.
    pub fn everything() -> CgroupConf {
        CgroupConf {
            constrain_cores: true,
            constrain_devices: true,
            constrain_ram: true,
            constrain_swap: true,
            constrain_scratch: true,
            ..CgroupConf::from_record(&Record::new(CGROUP))
        }
    }

    /// With one, a constraint that it does not name is off, as in Slurm.
    pub fn read(lines: &[Line], findings: &mut Findings) -> CgroupConf {
        let pairs: Vec<_> = lines.iter().flatten().cloned().collect();
        let record = Record::read(CGROUP, &pairs, findings);
        for key in ["MaxRAMPercent", "MaxSwapPercent"] {
            if let Some(entry) = record.entry(key)
                && record.percent(key).is_some_and(|percent| percent > Percent::WHOLE)
            {
                findings.wrong(&entry.place, key, &entry.text, "expected at most 100");
            }
        }
        if let Some(entry) = record.entry("MemorySwappiness")
            && record.number("MemorySwappiness").is_some_and(|n: u64| n > SWAPPINESS_MAX)
        {
            let expected = format!("expected a whole number from 0 to {SWAPPINESS_MAX}");
            findings.wrong(&entry.place, "MemorySwappiness", &entry.text, expected);
        }
        if let Some(entry) = record.entry("MaxPids")
            && record.number("MaxPids").is_some_and(|n: u64| n < PIDS_MIN)
        {
            let expected = format!("expected at least {PIDS_MIN}: a script starts programs");
            findings.wrong(&entry.place, "MaxPids", &entry.text, expected);
        } else if let Some(entry) = record.entry("MaxPids")
            && record.number("MaxPids").is_some_and(|n: u64| n > PIDS_MAX)
        {
            let expected = format!("expected at most {PIDS_MAX}, as many as a kernel can have");
            findings.wrong(&entry.place, "MaxPids", &entry.text, expected);
        }
        if let Some(entry) = record.entry("MaxCPUTime")
            && record.number("MaxCPUTime") == Some(0_u64)
        {
            let expected = "expected seconds of CPU time, at least 1";
            findings.wrong(&entry.place, "MaxCPUTime", &entry.text, expected);
        }
        if let Some(entry) = record.entry("MaxScratch")
            && record.number("MaxScratch") == Some(0_u64)
        {
            let expected = "expected megabytes, at least 1";
            findings.wrong(&entry.place, "MaxScratch", &entry.text, expected);
        }
        if let Some(entry) = record.entry("AllowedDevices")
            && !record.words("AllowedDevices").iter().all(|path| is_device_path(path))
        {
            let expected = "expected paths below /dev, as in /dev/kvm,/dev/hfi1_*";
            findings.wrong(&entry.place, "AllowedDevices", &entry.text, expected);
        }
        CgroupConf::from_record(&record)
    }

    fn from_record(record: &Record) -> CgroupConf {
        let on = |key| record.flag(key).unwrap_or(false);
        let percent = |key, default| record.percent(key).unwrap_or(default);
        CgroupConf {
            plugin: record.choice("CgroupPlugin").unwrap_or(CgroupPlugin::Autodetect),
            constrain_cores: on("ConstrainCores"),
            constrain_devices: on("ConstrainDevices"),
            constrain_ram: on("ConstrainRAMSpace"),
            constrain_swap: on("ConstrainSwapSpace"),
            allowed_ram: percent("AllowedRAMSpace", Percent::WHOLE),
            allowed_swap: percent("AllowedSwapSpace", Percent::ZERO),
            max_ram: percent("MaxRAMPercent", Percent::WHOLE),
            max_swap: percent("MaxSwapPercent", Percent::WHOLE),
            min_ram: Bytes::from_mib(record.number("MinRAMSpace").unwrap_or(MIN_RAM_MIB_DEFAULT)),
            memory_swappiness: record
                .number("MemorySwappiness")
                .and_then(|n: u64| u8::try_from(n).ok()),
            constrain_cpu_time: on("ConstrainCPUTime"),
            max_cpu_seconds: record.number("MaxCPUTime"),
            max_pids: record.number("MaxPids"),
            // Who names a limit wants it.
            constrain_scratch: record.flag("ConstrainScratch").unwrap_or(record.has("MaxScratch")),
            max_scratch: record.limit("MaxScratch").flatten().map(Bytes::from_mib),
            allowed_devices: record.words("AllowedDevices"),
        }
    }
}

/// A path of a device, with at most one `*`, in its last part.
fn is_device_path(path: &str) -> bool {
    let Some((folder, name)) = path.rsplit_once('/') else { return false };
    let below = folder == "/dev" || folder.starts_with("/dev/");
    let climbs = path.split('/').any(|part| part == "..");
    below && !climbs && !folder.contains('*') && !name.is_empty() && name.matches('*').count() <= 1
}
