//! What GPUs report of themselves, under the names of NVIDIA's DCGM exporter where the meaning is the same, and what such
//! exporters on nodes say.

use super::exposition::Exposition;
use super::snapshot::Snapshot;
use model::bounds::ALL_SERIES_BYTES;
use model::gpu_health::{GpuReading, Severity};
use model::gpu_series::{GpuSeries, SeriesSource, label_bytes};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

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

/// A job as the series of its GPUs name it.
struct JobLabels<'a> {
    id: String,
    user: &'a str,
    account: &'a str,
}

impl JobLabels<'_> {
    fn labels(&self) -> [(&str, &str); 3] {
        [("hpc_job", &self.id), ("user", self.user), ("account", self.account)]
    }
}

/// A GPU of a node, with the job that has it.
struct Gpu<'a> {
    node: &'a str,
    reading: &'a GpuReading,
    index: String,
    job: Option<&'a JobLabels<'a>>,
}

impl Gpu<'_> {
    fn labels(&self) -> Vec<(&str, &str)> {
        let mut labels = vec![
            ("gpu", self.index.as_str()),
            ("UUID", self.reading.uuid.as_str()),
            ("model", self.reading.model.as_str()),
            ("Hostname", self.node),
        ];
        labels.extend(self.job.into_iter().flat_map(JobLabels::labels));
        labels
    }
}

/// A sample of a node's exporter.
struct RelayedSample<'a> {
    node: &'a str,
    source: &'a SeriesSource,
    index: Option<String>,
    /// The GPU that it is of, or of a part of which.
    gpu: Option<&'a Gpu<'a>>,
    value: f64,
}

impl RelayedSample<'_> {
    /// The job that has the GPU. A sample of a MIG slice has none: which job has the slice is not known here.
    fn job(&self) -> Option<&JobLabels<'_>> {
        self.gpu.filter(|_| !self.source.is_slice)?.job
    }

    fn labels(&self) -> Vec<(&str, &str)> {
        let index = self.index.as_deref().map(|index| ("gpu", index));
        let uuid = Some(self.source.uuid.as_str()).filter(|uuid| !uuid.is_empty());
        let own = index.into_iter().chain(uuid.map(|uuid| ("UUID", uuid)));
        let mut labels: Vec<(&str, &str)> = own.collect();
        let further =
            self.source.labels.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        labels.extend(further);
        labels.push(("Hostname", self.node));
        labels.extend(self.job().into_iter().flat_map(JobLabels::labels));
        labels
    }
}

/// What exporters say, by the name of the family, with its help.
type Relayed<'a> = BTreeMap<&'a str, (&'a str, Vec<RelayedSample<'a>>)>;

pub fn write(text: &mut Exposition, snapshot: &Snapshot) {
    let jobs = jobs_of_gpus(snapshot);
    let all = gpus_of(snapshot, &jobs);
    let mut relayed = relayed(snapshot, &all);
    let gpus = &all[..all.len().min(GPUS_MAX)];
    for (name, help, value) in VALUES {
        let value = |gpu: &Gpu| value(gpu.reading).map(|value| value as f64);
        write_family(text, (name, help), gpus, value, relayed.remove(name));
    }
    let power = ("DCGM_FI_DEV_POWER_USAGE", "The power of a GPU, in watts.");
    let watts = |gpu: &Gpu| gpu.reading.power_mw.map(|power| power as f64 / 1000.0);
    write_family(text, power, gpus, watts, relayed.remove(power.0));
    for (name, (help, samples)) in relayed {
        write_family(text, (name, help), &[], |_| None, Some((help, samples)));
    }
    let help = "The health of a GPU: 0 well, 1 warning, 2 failure.";
    let mut family = text.gauge("sluice_gpu_health", help);
    for gpu in gpus {
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

/// A family of both: of a GPU of which the exporter has it, the exporter's alone.
fn write_family(
    text: &mut Exposition,
    (name, help): (&str, &str),
    gpus: &[Gpu],
    value: impl Fn(&Gpu) -> Option<f64>,
    relayed: Option<(&str, Vec<RelayedSample>)>,
) {
    let relayed = relayed.map(|(_, samples)| samples).unwrap_or_default();
    let key = |gpu: &Gpu| std::ptr::from_ref(gpu.reading);
    let theirs: HashSet<_> = relayed.iter().filter_map(|sample| sample.gpu.map(key)).collect();
    let mut family = text.gauge(name, help);
    for gpu in gpus.iter().filter(|gpu| !theirs.contains(&key(gpu))) {
        if let Some(value) = value(gpu) {
            family.sample(&gpu.labels(), value);
        }
    }
    relayed.iter().for_each(|sample| family.sample(&sample.labels(), sample.value));
}

/// The GPUs of all nodes.
fn gpus_of<'a>(
    snapshot: &'a Snapshot,
    jobs: &'a HashMap<(&str, u32), JobLabels<'a>>,
) -> Vec<Gpu<'a>> {
    let mut gpus = Vec::new();
    for node in snapshot.named_nodes() {
        let name = node.config.name.as_str();
        let mut order: Vec<&GpuReading> = node.facts.gpus.iter().collect();
        order.sort_by_key(|gpu| gpu.node_order());
        for (at, reading) in (0..).zip(order) {
            let job = jobs.get(&(name, at)).filter(|_| !node.config.declared);
            gpus.push(Gpu { node: name, reading, index: reading.index.to_string(), job });
        }
    }
    gpus
}

/// The exporters' samples, each with its GPU by the UUID, else by the index.
fn relayed<'a>(snapshot: &'a Snapshot, gpus: &'a [Gpu<'a>]) -> Relayed<'a> {
    let mut all: Relayed = BTreeMap::new();
    let by_uuid: HashMap<(&str, &str), &Gpu> =
        gpus.iter().map(|gpu| ((gpu.node, gpu.reading.uuid.as_str()), gpu)).collect();
    let by_index: HashMap<(&str, u32), &Gpu> =
        gpus.iter().map(|gpu| ((gpu.node, gpu.reading.index), gpu)).collect();
    let mut left = ALL_SERIES_BYTES.most;
    let nodes: BTreeMap<&String, &Arc<GpuSeries>> = snapshot.relayed.iter().collect();
    for (node, series) in nodes {
        let gpu_of = |source: &SeriesSource| match source.uuid.as_str() {
            "" => by_index.get(&(node.as_str(), source.index?)).copied(),
            uuid => by_uuid.get(&(node.as_str(), uuid)).copied(),
        };
        let of_labels: Vec<usize> = series.sources.iter().map(SeriesSource::label_bytes).collect();
        for family in &series.families {
            for (at, value) in &family.samples {
                let Some(source) = series.sources.get(*at as usize) else { continue };
                let index = source.index.map(|index| index.to_string());
                let (gpu, value) = (gpu_of(source), *value);
                let sample = RelayedSample { node, source, index, gpu, value };
                let of_job = sample.job().map(JobLabels::labels).into_iter().flatten();
                let added = of_job.chain([("Hostname", node.as_str())]);
                let head = if all.contains_key(&*family.name) { 0 } else { family.head_bytes() };
                let labels = of_labels[*at as usize]
                    + added.map(|(name, value)| label_bytes(name, value)).sum::<usize>();
                let bytes = head + family.sample_bytes(value) + labels;
                if bytes > left {
                    return all;
                }
                left -= bytes;
                let (_, samples) =
                    all.entry(&family.name).or_insert_with(|| (&family.help, Vec::new()));
                samples.push(sample);
            }
        }
    }
    all
}

/// The job that has each GPU, by node and index.
fn jobs_of_gpus(snapshot: &Snapshot) -> HashMap<(&str, u32), JobLabels<'_>> {
    let mut jobs = HashMap::new();
    for job in &snapshot.active {
        let Some(attempt) = job.attempt() else { continue };
        for share in &attempt.allocation.nodes {
            let gpus = share.gres.iter().filter(|gres| gres.name == "gpu");
            for index in gpus.flat_map(|gres| &gres.indices) {
                let labels = JobLabels {
                    id: job.shown_id(),
                    user: &job.spec.owner.name,
                    account: &job.account,
                };
                jobs.insert((share.node.as_str(), *index), labels);
            }
        }
    }
    jobs
}
