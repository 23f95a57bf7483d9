//! `resources`: the least and the most of each thing that a node of the run shall have.

use super::fault::{Fault, Problem};
use super::field::Field;
use super::notice::Notices;
use super::property::{self, PropertySupport};
use model::amount::Bytes;
use model::gpu::{self, GpuSpec};
use model::grammar::GrammarError;
use model::range::Range;
use std::fmt;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resources {
    pub cpu: Cpu,
    pub memory: Range<Bytes>,
    /// `None` if it was not asked for: then none is granted.
    pub gpu: Option<GpuSpec>,
    pub disk: Range<Bytes>,
    /// Whether the file has `disk`: no node is refused for dstack's default.
    pub disk_given: bool,
    pub shm_size: Option<Bytes>,
}

impl Default for Resources {
    fn default() -> Self {
        Self {
            cpu: Cpu::default(),
            memory: Range::at_least(Bytes::from_gib(8)),
            gpu: None,
            disk: Range::at_least(Bytes::from_gib(100)),
            disk_given: false,
            shm_size: None,
        }
    }
}

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

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Architecture {
    X86,
    Arm,
}

const ARCHITECTURES: &[(&str, Architecture)] =
    &[("x86", Architecture::X86), ("arm", Architecture::Arm)];

pub fn read(field: &Field<'_>, notices: &mut Notices) -> Result<Resources, Fault> {
    let mut resources = Resources::default();
    let expected = "a mapping of cpu, memory, gpu, disk and shm_size";
    for (property, field) in field.properties(property::RESOURCES, expected)? {
        match property.name {
            "cpu" => resources.cpu = cpu(&field)?,
            "memory" => resources.memory = field.bytes_range()?,
            "gpu" => resources.gpu = Some(gpu_spec(&field)?),
            "disk" => {
                resources.disk = disk(&field)?;
                resources.disk_given = true;
            }
            _ => resources.shm_size = Some(field.bytes()?),
        }
        if let PropertySupport::Notice(why) = property.support {
            notices.add(&field, why);
        }
    }
    Ok(resources)
}

fn cpu(field: &Field<'_>) -> Result<Cpu, Fault> {
    let expected = "a count such as 4.., an architecture such as x86, or both as in x86:4..";
    if !field.is_map() {
        return parse_cpu(field.text(expected)?).map_err(|e| field.grammar(e));
    }
    let properties = field.properties(property::CPU, expected)?;
    let is_bound = |name: &str| matches!(name, "min" | "max");
    if properties.iter().any(|(p, _)| is_bound(p.name)) {
        return Ok(Cpu { architecture: None, count: field.count_range()? });
    }
    let mut cpu = Cpu::default();
    for (property, field) in properties {
        match property.name {
            "arch" => cpu.architecture = Some(field.word(ARCHITECTURES)?),
            _ => cpu.count = field.count_range()?,
        }
    }
    Ok(cpu)
}

/// `4..`, `x86` or `x86:4..`, in any order.
fn parse_cpu(text: &str) -> Result<Cpu, GrammarError> {
    let refused = |expected: &str| GrammarError::new("CPU", text, expected);
    let mut cpu = Cpu::default();
    let mut count_given = false;
    for token in text.split(':').map(str::trim) {
        if token.is_empty() {
            return Err(refused("an architecture, a count, or both as in x86:4.."));
        }
        let is_count = token.starts_with(|c: char| c.is_ascii_digit() || c == '.' || c == '-');
        if is_count {
            if std::mem::replace(&mut count_given, true) {
                return Err(refused("one count"));
            }
            cpu.count = Range::parse_count("CPU count", token)?;
            continue;
        }
        let known = ARCHITECTURES.iter().find(|(word, _)| *word == token);
        let Some((_, architecture)) = known else {
            return Err(refused("the architecture x86 or arm"));
        };
        if cpu.architecture.replace(*architecture).is_some() {
            return Err(refused("one architecture"));
        }
    }
    Ok(cpu)
}

fn gpu_spec(field: &Field<'_>) -> Result<GpuSpec, Fault> {
    let expected = "a count, a text such as H100:80GB:2, or a mapping";
    if !field.is_map() {
        if field.boolean().is_some() {
            return Err(field.invalid(expected));
        }
        let text = field.text(expected)?;
        return GpuSpec::parse(text).map_err(|e| field.grammar(e));
    }
    let mut gpu = GpuSpec::default();
    for (property, field) in field.properties(property::GPU, expected)? {
        match property.name {
            "vendor" => {
                let vendor = gpu::parse_vendor(field.text("a vendor such as nvidia")?);
                gpu.vendor = Some(vendor.map_err(|e| field.grammar(e))?);
            }
            "name" => gpu.names = gpu_names(&field)?,
            "count" => gpu.count = field.count_range()?,
            "memory" => gpu.memory = Some(field.bytes_range()?),
            "total_memory" => gpu.total_memory = Some(field.bytes_range()?),
            _ => gpu.compute_capability = Some(compute_capability(&field)?),
        }
    }
    Ok(gpu)
}

/// `A100`, `A100,H100`, or a list.
fn gpu_names(field: &Field<'_>) -> Result<Vec<String>, Fault> {
    let expected = "a GPU's name such as H100, or a list of names";
    let names = if field.is_list() {
        field.texts(expected)?
    } else {
        let names = field.text(expected)?.split(',');
        names.map(|name| name.trim().to_owned()).collect()
    };
    if names.iter().any(|name| name.is_empty()) {
        return Err(field.invalid("no empty name"));
    }
    Ok(names)
}

fn compute_capability(field: &Field<'_>) -> Result<String, Fault> {
    let expected = "a version such as 8.0";
    let text = field.text(expected)?;
    let number = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    match text.split_once('.') {
        Some((major, minor)) if number(major) && number(minor) => Ok(text.to_owned()),
        None if number(text) => Ok(format!("{text}.0")),
        _ => Err(field.invalid(expected)),
    }
}

fn disk(field: &Field<'_>) -> Result<Range<Bytes>, Fault> {
    let expected = "a size such as 100GB.., or a mapping with `size`";
    if !field.is_map() {
        return field.bytes_range();
    }
    let properties = field.properties(property::DISK, expected)?;
    match properties.first() {
        Some((_, size)) => size.bytes_range(),
        None => Err(field.fault(Problem::Missing {
            property: format!("{}.size", field.name),
            expected: "a size such as 100GB..",
        })),
    }
}

impl fmt::Display for Architecture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Architecture::X86 => "x86",
            Architecture::Arm => "arm",
        })
    }
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
