//! An offer: the share of a node that a run is granted, or would be, in dstack's words.

use model::amount::{Bytes, GIB};
use std::fmt;

#[derive(Debug, Clone, PartialEq)]
pub struct Offer {
    /// `ssh (remote)` for a cluster's own nodes.
    pub backend: String,
    pub resources: OfferResources,
    pub instance_type: String,
    /// The blocks of the instance that the offer takes, and those it has; None for a whole instance.
    pub blocks: Option<(u32, u32)>,
    pub price_dollars_per_hour: f64,
    pub availability: Availability,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OfferResources {
    pub cpus: u32,
    pub memory: Bytes,
    pub disk: Option<Bytes>,
    pub gpu: Option<OfferGpu>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OfferGpu {
    /// `H100`; None where a node only counts its devices.
    pub name: Option<String>,
    /// The memory of each device.
    pub memory: Option<Bytes>,
    pub count: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Availability {
    Available,
    NotAvailable,
    NoQuota,
    Idle,
    Busy,
    /// The rest are words of ours: why a node takes no jobs, for which dstack has `not available` alone.
    Down,
    Drained,
    Silent,
}

impl Availability {
    pub fn word(self) -> &'static str {
        match self {
            Self::Available => "available",
            Self::NotAvailable => "not available",
            Self::NoQuota => "no quota",
            Self::Idle => "idle",
            Self::Busy => "busy",
            Self::Down => "down",
            Self::Drained => "drained",
            Self::Silent => "not responding",
        }
    }
}

impl Offer {
    /// `instance (2/8)`: the type, and the blocks where it is shared.
    pub fn instance_text(&self) -> String {
        match self.blocks {
            Some((taken, of)) if of > 1 => format!("{} ({taken}/{of})", self.instance_type),
            _ => self.instance_type.clone(),
        }
    }

    pub fn price_text(&self) -> String {
        price(self.price_dollars_per_hour)
    }
}

/// `$0`, `$1.5`: to a hundredth of a cent.
pub fn price(dollars_per_hour: f64) -> String {
    format!("${}", number(dollars_per_hour))
}

/// `0`, `1.5`: to four digits, without zeros at the end.
pub(crate) fn number(amount: f64) -> String {
    let text = format!("{amount:.4}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Gigabytes, to a tenth: what a node has is seldom a whole number of them.
pub(crate) fn size(bytes: Bytes) -> String {
    let tenths = (bytes.0 as f64 / GIB as f64 * 10.0).round() / 10.0;
    format!("{tenths}GB")
}

/// `cpu=16 mem=128GB disk=500GB gpu=H100:80GB:2`
impl fmt::Display for OfferResources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cpu={} mem={}", self.cpus, size(self.memory))?;
        if let Some(disk) = self.disk {
            write!(f, " disk={}", size(disk))?;
        }
        match &self.gpu {
            Some(gpu) => write!(f, " {gpu}"),
            None => Ok(()),
        }
    }
}

/// `gpu=H100:80GB:2`
impl fmt::Display for OfferGpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("gpu=")?;
        if let Some(name) = &self.name {
            write!(f, "{name}:")?;
        }
        if let Some(memory) = self.memory {
            write!(f, "{}:", size(memory))?;
        }
        write!(f, "{}", self.count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resources_are_written_as_the_client_prints_them() {
        let gpu = |name: Option<&str>, gib: Option<u64>, count| {
            Some(OfferGpu {
                name: name.map(str::to_owned),
                memory: gib.map(Bytes::from_gib),
                count,
            })
        };
        let cases = [
            (gpu(Some("H100"), Some(80), 2), "cpu=16 mem=128GB disk=500GB gpu=H100:80GB:2"),
            (gpu(None, None, 4), "cpu=16 mem=128GB disk=500GB gpu=4"),
            (None, "cpu=16 mem=128GB disk=500GB"),
        ];
        for (gpu, expected) in cases {
            let resources = OfferResources {
                cpus: 16,
                memory: Bytes::from_gib(128),
                disk: Some(Bytes::from_gib(500)),
                gpu,
            };
            assert_eq!(resources.to_string(), expected);
        }
        assert_eq!(size(Bytes::from_mib(7_936)), "7.8GB");
    }

    #[test]
    fn prices_have_no_zeros_at_the_end() {
        let cases = [(0.0, "$0"), (1.5, "$1.5"), (10.0, "$10"), (0.1234, "$0.1234")];
        for (dollars, expected) in cases {
            assert_eq!(price(dollars), expected);
        }
    }
}
