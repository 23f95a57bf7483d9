//! `resources` as a type: ranges of what each node of a run shall have.

use super::value::Value;
use model::amount::{Bytes, GIB};
use model::gpu::{self, ComputeCapability, GpuSpec};
use model::node::Architecture;
use model::range::Range;
use std::fmt;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resources {
    pub cpu: Cpu,
    pub memory: Range<Bytes>,
    /// `None` if it was not asked for: then none is granted.
    pub gpu: Option<GpuSpec>,
    pub disk: Range<Bytes>,
    /// Whether another disk than dstack's default is asked for: no node is refused for the default.
    pub disk_given: bool,
    pub shm_size: Option<Bytes>,
}

impl Default for Resources {
    fn default() -> Self {
        Self {
            cpu: Cpu::default(),
            memory: Range::at_least(Bytes::from_gib(8)),
            gpu: None,
            disk: DEFAULT_DISK,
            disk_given: false,
            shm_size: None,
        }
    }
}

const DEFAULT_DISK: Range<Bytes> = Range { min: Bytes::from_gib(100), max: None };

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cpu {
    pub architecture: Option<Architecture>,
    pub count: Range<u32>,
}

impl Default for Cpu {
    fn default() -> Self {
        Self { architecture: None, count: Range::at_least(2) }
    }
}

impl Resources {
    pub(super) fn of(value: &Value) -> Self {
        let cpu = value.get("cpu");
        let disk = match value.get("disk") {
            Value::Null => DEFAULT_DISK,
            disk => sizes(disk.get("size")),
        };
        Self {
            cpu: Cpu {
                architecture: match cpu.get("arch").as_text() {
                    Some("x86") => Some(Architecture::X86),
                    Some("arm") => Some(Architecture::Arm),
                    _ => None,
                },
                count: counts(cpu.get("count")),
            },
            memory: sizes(value.get("memory")),
            gpu: gpu_spec(value.get("gpu")),
            disk,
            disk_given: disk != DEFAULT_DISK,
            shm_size: value.get("shm_size").as_number().map(bytes),
        }
    }
}

/// dstack's default, none or more, asks for nothing.
fn gpu_spec(value: &Value) -> Option<GpuSpec> {
    let optional = |name: &str| Some(value.get(name)).filter(|value| !value.is_null());
    let number = |part: &Value| part.as_integer().and_then(|n| u16::try_from(n).ok());
    let capability = match value.get("compute_capability").items() {
        [major, minor] => number(major).zip(number(minor)),
        _ => None,
    };
    let spec = GpuSpec {
        vendor: value.get("vendor").as_text().and_then(|vendor| gpu::parse_vendor(vendor).ok()),
        names: value.get("name").texts(),
        memory: optional("memory").map(sizes),
        count: counts(value.get("count")),
        total_memory: optional("total_memory").map(sizes),
        compute_capability: capability.map(|(major, minor)| ComputeCapability(major, minor)),
    };
    let nothing = GpuSpec { count: Range::at_least(0), ..GpuSpec::default() };
    (!value.is_null() && spec != nothing).then_some(spec)
}

fn counts(value: &Value) -> Range<u32> {
    Range { min: value.get("min").as_count().unwrap_or(0), max: value.get("max").as_count() }
}

fn sizes(value: &Value) -> Range<Bytes> {
    let end = |name: &str| value.get(name).as_number().map(bytes);
    Range { min: end("min").unwrap_or_default(), max: end("max") }
}

pub(super) fn bytes(gigabytes: f64) -> Bytes {
    Bytes((gigabytes * GIB as f64).round() as u64)
}

/// dstack's summary of resources: `cpu=x86:2.. mem=8GB.. disk=100GB.. gpu=H100:2`.
impl fmt::Display for Resources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sizes = |range: &Range<Bytes>| range.map(|bytes| bytes.format_dstack());
        match self.cpu.architecture {
            Some(architecture) => write!(f, "cpu={architecture}:{}", self.cpu.count)?,
            None => write!(f, "cpu={}", self.cpu.count)?,
        }
        write!(f, " mem={}", sizes(&self.memory))?;
        if let Some(shm_size) = self.shm_size {
            write!(f, " shm_size={}", shm_size.format_dstack())?;
        }
        write!(f, " disk={}", sizes(&self.disk))?;
        match &self.gpu {
            Some(gpu) => write!(f, " gpu={gpu}"),
            None => Ok(()),
        }
    }
}
