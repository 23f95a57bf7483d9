//! What GPUs report of themselves, under the names of NVIDIA's DCGM exporter where the meaning is the same.

use super::exposition::Exposition;
use super::snapshot::Snapshot;
use model::gpu_health::{GpuReading, Severity};
use std::collections::HashMap;

/// GPUs with series of their own.
const GPUS_MAX: usize = 16_384;

const MIB: u64 = 1 << 20;

/// A family of samples, one for each GPU that has the value.
type Value = (&'static str, &'static str, fn(&GpuReading) -> Option<u64>);

const VALUES: &[Value] = &[
    ("DCGM_FI_DEV_GPU_UTIL", "How busy a GPU is, in percent.", |gpu| gpu.busy_percent),
    ("DCGM_FI_DEV_FB_USED", "Memory of a GPU that is used, in MiB.", |gpu| {
        (gpu.memory.0 > 0).then_some(gpu.memory_used.0 / MIB)
    }),
    ("DCGM_FI_DEV_FB_FREE", "Memory of a GPU that is free, in MiB.", |gpu| {
        (gpu.memory.0 > 0).then(|| gpu.memory.0.saturating_sub(gpu.memory_used.0) / MIB)
    }),
    ("DCGM_FI_DEV_GPU_TEMP", "The temperature of a GPU, in degrees Celsius.", |gpu| {
        gpu.temperature_c
    }),
    ("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "Energy since the driver was loaded, in mJ.", |gpu| {
        gpu.energy_mj
    }),
    ("DCGM_FI_DEV_ECC_SBE_VOL_TOTAL", "Corrected errors since the driver was loaded.", |gpu| {
        gpu.ecc_corrected
    }),
    ("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", "Uncorrected errors since the driver was loaded.", |gpu| {
        gpu.ecc_uncorrected
    }),
    ("DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS", "Rows remapped for corrected errors.", |gpu| {
        gpu.rows_corrected
    }),
    ("DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS", "Rows remapped for uncorrected errors.", |gpu| {
        gpu.rows_uncorrected
    }),
    ("DCGM_FI_DEV_ROW_REMAP_FAILURE", "1 if the remapping of a row failed.", |gpu| {
        gpu.remap_failed
    }),
    ("DCGM_FI_DEV_PCIE_REPLAY_COUNTER", "Replays on the PCIe bus.", |gpu| gpu.pcie_replays),
    ("DCGM_FI_DEV_XID_ERRORS", "The driver's last error (Xid).", |gpu| Some(gpu.xid.unwrap_or(0))),
];

/// A GPU of a node, with the job that has it.
struct Gpu<'a> {
    node: &'a str,
    reading: &'a GpuReading,
    index: String,
    job: Option<&'a str>,
}

impl<'a> Gpu<'a> {
    fn labels(&self) -> Vec<(&'static str, &'a str)>
    where
        Self: 'a,
    {
        let mut labels = vec![
            ("UUID", self.reading.uuid.as_str()),
            ("model", self.reading.model.as_str()),
            ("Hostname", self.node),
        ];
        labels.extend(self.job.map(|job| ("hpc_job", job)));
        labels
    }
}

pub fn write(text: &mut Exposition, snapshot: &Snapshot) {
    let jobs = jobs_of_gpus(snapshot);
    let mut gpus = Vec::new();
    for node in &snapshot.cluster.nodes {
        let name = node.config.name.as_str();
        // A node counts its GPUs by the numbers of their device files.
        let mut order: Vec<&GpuReading> = node.facts.gpus.iter().collect();
        order.sort_by_key(|gpu| (gpu.minor, gpu.index));
        for (at, reading) in (0..).zip(order) {
            let job = jobs.get(&(name, at)).filter(|_| !node.config.declared).map(String::as_str);
            gpus.push(Gpu { node: name, reading, index: reading.index.to_string(), job });
        }
    }
    gpus.truncate(GPUS_MAX);
    for (name, help, value) in VALUES {
        let mut family = text.gauge(name, help);
        for gpu in &gpus {
            if let Some(value) = value(gpu.reading) {
                let mut labels = vec![("gpu", gpu.index.as_str())];
                labels.extend(gpu.labels());
                family.sample(&labels, value);
            }
        }
    }
    let mut family = text.gauge("DCGM_FI_DEV_POWER_USAGE", "The power of a GPU, in watts.");
    for gpu in &gpus {
        if let Some(power) = gpu.reading.power_mw {
            let mut labels = vec![("gpu", gpu.index.as_str())];
            labels.extend(gpu.labels());
            family.sample(&labels, power as f64 / 1000.0);
        }
    }
    let help = "The health of a GPU: 0 well, 1 warning, 2 failure.";
    let mut family = text.gauge("sluice_gpu_health", help);
    for gpu in &gpus {
        let worst = gpu.reading.findings().into_iter().map(|finding| finding.severity).max();
        let value = match worst {
            None => 0,
            Some(Severity::Warning) => 1,
            Some(Severity::Failure) => 2,
        };
        family
            .sample(&[("node", gpu.node), ("gpu", &gpu.index), ("UUID", &gpu.reading.uuid)], value);
    }
}

/// The job that has each GPU, by node and index.
fn jobs_of_gpus(snapshot: &Snapshot) -> HashMap<(&str, u32), String> {
    let mut jobs = HashMap::new();
    for job in &snapshot.active {
        let Some(attempt) = job.attempt() else { continue };
        for share in &attempt.allocation.nodes {
            let gpus = share.gres.iter().filter(|gres| gres.name == "gpu");
            for index in gpus.flat_map(|gres| &gres.indices) {
                jobs.insert((share.node.as_str(), *index), job.shown_id());
            }
        }
    }
    jobs
}
