//! What a GPU reports of itself, and what of it means that the GPU is ill.

use crate::amount::Bytes;
use crate::gpu::ComputeCapability;
use serde::{Deserialize, Serialize};

/// One reading of a GPU. A value that the GPU or its driver does not have is `None`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct GpuReading {
    /// Its number for the vendor's tools.
    pub index: u32,
    /// The number of its device file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub minor: Option<u32>,
    pub uuid: String,
    pub model: String,
    /// `00000000:21:00.0`
    pub pci: String,
    /// Why nothing more is known of it: it does not answer any more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lost: Option<String>,
    pub memory: Bytes,
    pub memory_used: Bytes,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compute_capability: Option<ComputeCapability>,
    /// Slices are configured on it.
    pub mig: bool,
    /// Links to each GPU of the machine by index; -1 for itself.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub links: Vec<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub busy_percent: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub power_mw: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub energy_mj: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temperature_c: Option<u64>,
    /// Errors of memory since the driver was loaded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ecc_corrected: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ecc_uncorrected: Option<u64>,
    /// Rows of memory that were remapped for corrected and for uncorrected errors, 1 if a remapping waits for a reset,
    /// and 1 if one failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rows_corrected: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rows_uncorrected: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remap_pending: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remap_failed: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pcie_replays: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nvlink_errors: Option<u64>,
    /// How often it switched itself off for its temperature since it has power.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thermal_trips: Option<u64>,
    /// The driver's last critical error since the agent began to listen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub xid: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Shown; the GPU goes on.
    Warning,
    /// The node takes no new jobs.
    Failure,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    pub severity: Severity,
    pub text: String,
}

/// From when on a counter means something. A finding says the counter's value where `counted` is set: one more error is
/// news. A value that goes up and down by itself is not said, so that a finding does not change with it.
struct Threshold {
    what: &'static str,
    of: fn(&GpuReading) -> Option<u64>,
    warning: Option<u64>,
    failure: Option<u64>,
    counted: bool,
}

const THRESHOLDS: &[Threshold] = &[
    Threshold {
        what: "uncorrectable ECC errors",
        of: |gpu| gpu.ecc_uncorrected,
        warning: None,
        failure: Some(1),
        counted: true,
    },
    Threshold {
        what: "the remapping of a row failed",
        of: |gpu| gpu.remap_failed,
        warning: None,
        failure: Some(1),
        counted: false,
    },
    Threshold {
        what: "rows wait for a reset to be remapped",
        of: |gpu| gpu.remap_pending,
        warning: Some(1),
        failure: None,
        counted: false,
    },
    Threshold {
        what: "rows remapped for uncorrectable errors",
        of: |gpu| gpu.rows_uncorrected,
        warning: Some(1),
        failure: None,
        counted: true,
    },
    Threshold {
        what: "more than 1000 corrected ECC errors",
        of: |gpu| gpu.ecc_corrected,
        warning: Some(1000),
        failure: None,
        counted: false,
    },
    Threshold {
        what: "too hot",
        of: |gpu| gpu.temperature_c,
        warning: Some(90),
        failure: Some(100),
        counted: false,
    },
    Threshold {
        what: "shutdowns because of its temperature",
        of: |gpu| gpu.thermal_trips,
        warning: Some(1),
        failure: None,
        counted: true,
    },
    Threshold {
        what: "more than 1000 PCIe replays",
        of: |gpu| gpu.pcie_replays,
        warning: Some(1000),
        failure: None,
        counted: false,
    },
    Threshold {
        what: "more than 1000 NVLink errors",
        of: |gpu| gpu.nvlink_errors,
        warning: Some(1000),
        failure: None,
        counted: false,
    },
];

/// Errors of the driver (Xid) that tell of the GPU and not of the program on it.
const XIDS: &[(u64, Severity, &str)] = &[
    (48, Severity::Failure, "double-bit ECC error"),
    (63, Severity::Warning, "row remapped"),
    (64, Severity::Failure, "row remapping failed"),
    (74, Severity::Warning, "NVLink error"),
    (79, Severity::Failure, "fell off the bus"),
    (94, Severity::Warning, "contained ECC error"),
    (95, Severity::Failure, "uncontained ECC error"),
    (119, Severity::Failure, "GSP does not answer"),
    (120, Severity::Failure, "GSP error"),
    (140, Severity::Failure, "unrecovered ECC error"),
];

/// The first number of render nodes, which are the device files of GPUs that are not NVIDIA's.
const FIRST_RENDER_NODE: u32 = 128;

impl GpuReading {
    /// Sorts the GPUs of a node as the node counts them: NVIDIA's by the numbers of their device files, which their library
    /// does not count by, then the others by their index.
    pub fn node_order(&self) -> (Option<u32>, u32) {
        (self.minor.map(|minor| minor.min(FIRST_RENDER_NODE)), self.index)
    }

    /// What is wrong with the GPU; nothing of a healthy one.
    pub fn findings(&self) -> Vec<Finding> {
        let mut findings = Vec::new();
        let mut add = |severity, text: String| {
            findings.push(Finding { severity, text: format!("GPU {}: {text}", self.index) });
        };
        if let Some(why) = &self.lost {
            add(Severity::Failure, format!("lost: {why}"));
        }
        for threshold in THRESHOLDS {
            let Some(value) = (threshold.of)(self) else { continue };
            let reaches = |limit: Option<u64>| limit.is_some_and(|limit| value >= limit);
            let severity = match (reaches(threshold.failure), reaches(threshold.warning)) {
                (true, _) => Severity::Failure,
                (false, true) => Severity::Warning,
                (false, false) => continue,
            };
            let what = threshold.what;
            add(severity, if threshold.counted { format!("{value} {what}") } else { what.into() });
        }
        let known = self.xid.and_then(|xid| XIDS.iter().find(|(known, ..)| *known == xid));
        if let Some((xid, severity, what)) = known {
            add(*severity, format!("Xid {xid}, {what}"));
        }
        findings
    }
}

/// The findings of one severity over all GPUs, as one line; `None` without any.
pub fn summary(gpus: &[GpuReading], severity: Severity) -> Option<String> {
    let all = gpus.iter().flat_map(GpuReading::findings);
    let texts: Vec<String> =
        all.filter(|finding| finding.severity == severity).map(|finding| finding.text).collect();
    (!texts.is_empty()).then(|| texts.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gpu(index: u32) -> GpuReading {
        GpuReading {
            index,
            ecc_uncorrected: Some(0),
            temperature_c: Some(40),
            ..Default::default()
        }
    }

    #[test]
    fn healthy_gpu_has_no_findings() {
        assert_eq!(gpu(0).findings(), []);
        assert_eq!(GpuReading::default().findings(), [], "unknown values say nothing");
        let crashed = GpuReading { xid: Some(31), ..gpu(0) };
        assert_eq!(crashed.findings(), [], "a program's own fault is not the GPU's");
    }

    #[test]
    fn counters_are_failures_or_warnings_by_the_table() {
        let table = [
            (
                GpuReading { ecc_uncorrected: Some(2), ..gpu(3) },
                true,
                "GPU 3: 2 uncorrectable ECC errors",
            ),
            (
                GpuReading { remap_failed: Some(1), ..gpu(0) },
                true,
                "GPU 0: the remapping of a row failed",
            ),
            (
                GpuReading { remap_pending: Some(1), ..gpu(0) },
                false,
                "GPU 0: rows wait for a reset to be remapped",
            ),
            (GpuReading { temperature_c: Some(93), ..gpu(0) }, false, "GPU 0: too hot"),
            (GpuReading { temperature_c: Some(101), ..gpu(0) }, true, "GPU 0: too hot"),
            (GpuReading { xid: Some(79), ..gpu(1) }, true, "GPU 1: Xid 79, fell off the bus"),
            (GpuReading { xid: Some(94), ..gpu(1) }, false, "GPU 1: Xid 94, contained ECC error"),
            (
                GpuReading { lost: Some("GPU is lost".into()), ..gpu(1) },
                true,
                "GPU 1: lost: GPU is lost",
            ),
        ];
        for (reading, fails, text) in table {
            let severity = if fails { Severity::Failure } else { Severity::Warning };
            assert_eq!(reading.findings(), [Finding { severity, text: text.into() }]);
        }
    }

    #[test]
    fn gpus_are_ordered_as_their_node_counts_them() {
        let gpu = |index, minor| GpuReading { index, minor: Some(minor), ..gpu(0) };
        let mut gpus = [gpu(3, 128), gpu(0, 1), gpu(2, 130), gpu(1, 0)];
        gpus.sort_by_key(GpuReading::node_order);
        assert_eq!(gpus.map(|gpu| gpu.index), [1, 0, 2, 3]);
    }

    #[test]
    fn summary_has_the_findings_of_one_severity() {
        let ill = GpuReading { ecc_uncorrected: Some(1), remap_pending: Some(1), ..gpu(1) };
        let hot = GpuReading { temperature_c: Some(100), ..gpu(2) };
        let gpus = [gpu(0), ill, hot];
        let failures = "GPU 1: 1 uncorrectable ECC errors; GPU 2: too hot";
        assert_eq!(summary(&gpus, Severity::Failure).as_deref(), Some(failures));
        let warnings = "GPU 1: rows wait for a reset to be remapped";
        assert_eq!(summary(&gpus, Severity::Warning).as_deref(), Some(warnings));
        assert_eq!(summary(&gpus[..1], Severity::Warning), None);
    }
}
