//! dstack's GPU specs: `H100:80GB:2`, `nvidia:A100:40GB..:1..4`, `24GB..`.

use crate::amount::Bytes;
use crate::grammar::GrammarError;
use crate::range::Range;
use serde::{Deserialize, Serialize};
use std::fmt;

const WHAT: &str = "GPU spec";

/// A request for GPUs on one node.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct GpuSpec {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vendor: Option<GpuVendor>,
    /// Any one of these will do; empty means any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<String>,
    /// The memory of each.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<Range<Bytes>>,
    pub count: Range<u32>,
    /// The memory of all together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total_memory: Option<Range<Bytes>>,
    /// The least that will do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compute_capability: Option<ComputeCapability>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GpuVendor {
    Nvidia,
    Amd,
    Google,
    Intel,
    Tenstorrent,
}

impl GpuVendor {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Nvidia => "nvidia",
            Self::Amd => "amd",
            Self::Google => "google",
            Self::Intel => "intel",
            Self::Tenstorrent => "tenstorrent",
        }
    }
}

/// Each accepted word with its vendor.
const VENDORS: [(&str, GpuVendor); 7] = [
    ("nvidia", GpuVendor::Nvidia),
    ("amd", GpuVendor::Amd),
    ("google", GpuVendor::Google),
    ("tpu", GpuVendor::Google),
    ("intel", GpuVendor::Intel),
    ("tenstorrent", GpuVendor::Tenstorrent),
    ("tt", GpuVendor::Tenstorrent),
];

/// NVIDIA's number for what programs a GPU can run: `9.0`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ComputeCapability(pub u16, pub u16);

impl fmt::Display for ComputeCapability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0, self.1)
    }
}

impl Default for GpuSpec {
    /// One or more of anything.
    fn default() -> Self {
        Self {
            vendor: None,
            names: Vec::new(),
            memory: None,
            count: Range::at_least(1),
            total_memory: None,
            compute_capability: None,
        }
    }
}

impl GpuSpec {
    /// Parts in any order between colons: a vendor, names, a memory range, a count range; each at most once.
    pub fn parse(text: &str) -> Result<Self, GrammarError> {
        let refused = |expected: &str| GrammarError::new(WHAT, text, expected);
        let (mut spec, mut count) = (Self::default(), None);
        for part in text.split(':').map(str::trim) {
            if part.is_empty() {
                return Err(refused("something between the colons, as in H100:80GB:2"));
            }
            let (what, repeated) = if let Ok(vendor) = parse_vendor(part) {
                ("vendor", spec.vendor.replace(vendor).is_some())
            } else if is_amount(part) {
                if part.contains(|c: char| c.is_ascii_alphabetic()) {
                    ("memory", spec.memory.replace(parse_memory(part)?).is_some())
                } else {
                    ("count", count.replace(Range::parse_count("GPU count", part)?).is_some())
                }
            } else {
                let named = !spec.names.is_empty();
                spec.names = parse_names(part)
                    .ok_or_else(|| refused("a name between the commas, as in A100,H100"))?;
                ("name", named)
            };
            if repeated {
                return Err(refused(&format!(
                    "one {what} only (names of which any will do are joined by commas)"
                )));
            }
        }
        spec.count = count.unwrap_or(spec.count);
        Ok(spec)
    }

    /// Whether a device of this name and memory will do. Names are compared without regard to case.
    pub fn accepts(&self, name: &str, memory: Bytes) -> bool {
        let named = self.names.is_empty()
            || self.names.iter().any(|wanted| wanted.eq_ignore_ascii_case(name));
        named && self.memory.as_ref().is_none_or(|range| range.contains(&memory))
    }
}

/// A vendor by any of its words, in dstack's one spelling.
pub fn parse_vendor(text: &str) -> Result<GpuVendor, GrammarError> {
    let row = VENDORS.iter().find(|(word, _)| word.eq_ignore_ascii_case(text.trim()));
    row.map(|(_, vendor)| *vendor).ok_or_else(|| {
        GrammarError::new(
            "GPU vendor",
            text,
            "nvidia, amd, google (tpu), intel or tenstorrent (tt)",
        )
    })
}

/// A memory range: `80GB`, `24GB..40GB`, `24GB..`.
pub fn parse_memory(text: &str) -> Result<Range<Bytes>, GrammarError> {
    Range::parse("memory range", text, Bytes::parse_dstack)
}

/// Amounts begin with a digit or with the dots of an open range; names begin with a letter.
fn is_amount(part: &str) -> bool {
    part.starts_with(|c: char| c.is_ascii_digit() || c == '.' || c == '-')
}

/// `A100,H100`. Spaces are nothing, as in dstack: `RTX 4090` is `RTX4090`. The old way of naming a TPU, `tpu-v3-8`, still names it.
fn parse_names(part: &str) -> Option<Vec<String>> {
    part.split(',')
        .map(str::trim)
        .map(|name| name.strip_prefix("tpu-").unwrap_or(name))
        .map(|name| (!name.is_empty()).then(|| name.replace(' ', "")))
        .collect()
}

impl fmt::Display for GpuSpec {
    /// The text that [`GpuSpec::parse`] reads; what it has no text for is left out.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts: Vec<String> =
            self.vendor.iter().map(|vendor| vendor.as_str().to_owned()).collect();
        if !self.names.is_empty() {
            parts.push(self.names.join(","));
        }
        if let Some(memory) = &self.memory {
            let end = |bytes: &Bytes| bytes.format_dstack();
            parts.push(memory.map(end).to_string());
        }
        parts.push(self.count.to_string());
        f.write_str(&parts.join(":"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn specs_are_read_as_dstack_does() {
        // What was read, shown again: vendor, names, memory, count.
        let table = [
            ("1", "1"),
            ("0", "0"),
            ("2..4", "2..4"),
            ("2..", "2.."),
            ("..4", "0..4"),
            ("A100", "A100:1.."),
            ("H100:2", "H100:2"),
            ("H100:1..4", "H100:1..4"),
            ("80GB", "80GB:1.."),
            ("80gb", "80GB:1.."),
            ("80GB:2", "80GB:2"),
            ("24GB..", "24GB..:1.."),
            ("24GB..80GB", "24GB..80GB:1.."),
            ("..48GB", "0GB..48GB:1.."),
            ("A100:80GB:4", "A100:80GB:4"),
            ("A100:4:80GB", "A100:80GB:4"),
            ("4:A100", "A100:4"),
            ("A100,H100:2", "A100,H100:2"),
            ("A100:40GB..80GB:2..", "A100:40GB..80GB:2.."),
            ("nvidia", "nvidia:1.."),
            ("NVIDIA:H100:2", "nvidia:H100:2"),
            ("tpu:v3-8", "google:v3-8:1.."),
            ("tt:n300", "tenstorrent:n300:1.."),
            ("tpu-v3-8", "v3-8:1.."),
            ("a100 : 2", "a100:2"),
            ("A100:80", "A100:80"),
        ];
        for (text, shown) in table {
            let spec = GpuSpec::parse(text).unwrap_or_else(|e| panic!("{e}"));
            assert_eq!(spec.to_string(), shown, "{text}");
        }
    }

    #[test]
    fn broken_specs_are_refused() {
        let table = [
            "",
            "A100:",
            "A100:H100",
            "2:4",
            "80GB:40GB",
            "nvidia:amd",
            "A100,,H100",
            "-1",
            "8..2",
            "..",
            "foo:bar",
            "1.5",
            "80G",
        ];
        for text in table {
            assert!(GpuSpec::parse(text).is_err(), "{text}");
        }
        assert!(parse_vendor("acme").is_err());
    }

    #[test]
    fn a_device_is_judged_by_name_and_memory() {
        let spec = GpuSpec::parse("a100,H100:40GB..").expect("a good spec");
        assert!(spec.accepts("A100", Bytes::from_gib(80)));
        assert!(!spec.accepts("A100", Bytes::from_gib(24)));
        assert!(!spec.accepts("L4", Bytes::from_gib(80)));
    }
}
