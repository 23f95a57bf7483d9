//! Series of GPUs that an exporter on a node publishes and the server relays: names and labels in Prometheus' alphabet.

use crate::bounds;
use serde::{Deserialize, Serialize};
use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// Names that are relayed. The other series of the server's are its own to say.
const PREFIX: &str = "DCGM_";
/// Labels of a source, beside those that are its fields.
const LABELS_MAX: usize = 16;
/// A longer label is left out: two names that were cut might be one.
const LABEL_NAME_BYTES_MAX: usize = 64;
const FAMILY_NAME_BYTES_MAX: usize = 128;
/// What a label takes in a line beside its name and value: `="",`.
const LABEL_MARKS: usize = 4;

/// The last round of an exporter. What many samples have in common is said once.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct GpuSeries {
    pub sources: Vec<SeriesSource>,
    pub families: Vec<SeriesFamily>,
}

/// A GPU, or a part of one, as the exporter names it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SeriesSource {
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub uuid: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub index: Option<u32>,
    /// It is a part of the GPU (MIG).
    #[serde(default)]
    pub is_slice: bool,
    pub labels: Vec<(String, String)>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SeriesFamily {
    pub name: String,
    pub help: String,
    /// A value of the source with this number.
    pub samples: Vec<(u32, f64)>,
}

/// Labels that are fields of a source, or that the server sets.
const RESERVED: [&str; 6] = ["gpu", "UUID", "Hostname", "hpc_job", "user", "account"];

fn is_label(name: &str) -> bool {
    name.len() <= LABEL_NAME_BYTES_MAX
        && is_name(name)
        && !name.starts_with("__")
        && !RESERVED.contains(&name)
}

/// Whether a family of this name is relayed.
pub fn is_relayed(name: &str) -> bool {
    name.len() <= FAMILY_NAME_BYTES_MAX && name.starts_with(PREFIX) && is_name(name)
}

fn is_name(text: &str) -> bool {
    let is_good = |c: char| c.is_ascii_alphanumeric() || c == '_';
    text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') && text.chars().all(is_good)
}

/// Bytes of a label in the text of a scrape.
pub fn label_bytes(name: &str, value: &str) -> usize {
    let escapes = value.bytes().filter(|byte| matches!(byte, b'\\' | b'"' | b'\n')).count();
    name.len() + value.len() + escapes + LABEL_MARKS
}

impl SeriesSource {
    /// Bytes of its labels in each of its lines.
    pub fn label_bytes(&self) -> usize {
        let index = self.index.map_or(0, |index| label_bytes("gpu", &index.to_string()));
        let further = self.labels.iter().map(|(name, value)| label_bytes(name, value));
        index + label_bytes("UUID", &self.uuid) + further.sum::<usize>()
    }
}

impl SeriesFamily {
    /// Bytes of the lines before its samples: `# HELP NAME TEXT`, `# TYPE NAME gauge`.
    pub fn head_bytes(&self) -> usize {
        2 * self.name.len() + self.help.len() + "# HELP  \n# TYPE  gauge\n".len()
    }

    /// Bytes of a sample's line, without those of its labels: `NAME{} VALUE`.
    pub fn sample_bytes(&self, value: f64) -> usize {
        self.name.len() + "{} \n".len() + value.to_string().len()
    }
}

impl GpuSeries {
    /// Drops what is beyond the bounds, or no series. Returns whether there was any.
    pub fn hold_to_bounds(&mut self) -> bool {
        let before = self.size();
        self.sources.truncate(bounds::NODE_DEVICES.most);
        for source in &mut self.sources {
            bounds::cut(&mut source.uuid, bounds::NODE_LABEL_BYTES);
            source.labels.retain(|(name, _)| is_label(name));
            source.labels.sort();
            source.labels.dedup_by(|one, other| one.0 == other.0);
            source.labels.truncate(LABELS_MAX);
            for (_, value) in &mut source.labels {
                bounds::cut(value, bounds::NODE_LABEL_BYTES);
            }
        }
        let is_first: Vec<bool> = {
            let mut seen = HashSet::new();
            let key = |one: &SeriesSource| (one.uuid.clone(), one.index, one.labels.clone());
            self.sources.iter().map(|source| seen.insert(key(source))).collect()
        };
        let of_labels: Vec<usize> = self.sources.iter().map(SeriesSource::label_bytes).collect();
        let mut left = bounds::NODE_SERIES.most;
        let mut bytes_left = bounds::NODE_SERIES_BYTES.most;
        self.families.retain(|family| is_relayed(&family.name));
        self.families.sort_by(|one, other| one.name.cmp(&other.name));
        self.families.dedup_by(|one, other| one.name == other.name);
        for family in &mut self.families {
            bounds::cut(&mut family.help, bounds::NODE_TEXT_BYTES);
            family.help.retain(|c| !c.is_control() && c != '\\');
            // Two samples with the same labels would spoil the whole scrape.
            let is_source = |at: u32| is_first.get(at as usize) == Some(&true);
            family.samples.retain(|(at, value)| is_source(*at) && value.is_finite());
            family.samples.sort_by_key(|(at, _)| *at);
            family.samples.dedup_by_key(|(at, _)| *at);
            let mut bytes = family.head_bytes();
            let samples = family.samples.iter().take(left).take_while(|(at, value)| {
                bytes += of_labels[*at as usize] + family.sample_bytes(*value);
                bytes <= bytes_left
            });
            let fitting = samples.count();
            family.samples.truncate(fitting);
            left -= fitting;
            bytes_left = bytes_left.saturating_sub(bytes);
        }
        self.families.retain(|family| !family.samples.is_empty());
        self.size() != before
    }

    fn size(&self) -> (usize, usize) {
        let labels: usize = self.sources.iter().map(|source| 1 + source.labels.len()).sum();
        (labels, self.families.iter().map(|family| 1 + family.samples.len()).sum())
    }
}

/// Where an exporter of this machine is asked: `http://127.0.0.1:9400/metrics`. No other machine is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ExporterAddress {
    pub address: SocketAddr,
    pub path: String,
}

impl TryFrom<String> for ExporterAddress {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let found = || {
            let rest = text.strip_prefix("http://")?;
            let at = rest.find('/').unwrap_or(rest.len());
            let (host, path) = rest.split_at(at);
            let address = match host.strip_prefix("localhost:") {
                Some(port) => SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port.parse().ok()?),
                None => host.parse().ok()?,
            };
            let path = if path.is_empty() { "/metrics" } else { path }.to_owned();
            let is_good = path.bytes().all(|byte| byte.is_ascii_graphic());
            (address.ip().is_loopback() && address.port() > 0 && is_good)
                .then_some(Self { address, path })
        };
        found().ok_or_else(|| {
            format!("{text:?}: expected a loopback address such as http://127.0.0.1:9400/metrics")
        })
    }
}

impl From<ExporterAddress> for String {
    fn from(exporter: ExporterAddress) -> String {
        format!("http://{}{}", exporter.address, exporter.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exporter_is_on_the_machine_itself() {
        let read = |text: &str| ExporterAddress::try_from(text.to_owned()).map(String::from);
        for (text, expected) in [
            ("http://127.0.0.1:9400/metrics", "http://127.0.0.1:9400/metrics"),
            ("http://localhost:9400", "http://127.0.0.1:9400/metrics"),
            ("http://[::1]:9400/m?x=1", "http://[::1]:9400/m?x=1"),
        ] {
            assert_eq!(read(text).as_deref(), Ok(expected));
        }
        for text in [
            "http://10.0.0.1:9400/metrics",
            "http://169.254.169.254:80/latest",
            "https://127.0.0.1:9400/metrics",
            "http://127.0.0.1/metrics",
            "http://127.0.0.1:9400/a b",
            "http://127.0.0.1:0/",
            "http://127.0.0.1:9400@10.0.0.1:80/",
            "",
        ] {
            let refused = read(text).expect_err(text);
            assert!(refused.contains("expected a loopback address"), "{refused}");
        }
    }

    #[test]
    fn series_that_are_none_or_too_many_are_dropped() {
        let source = |uuid: &str, labels: &[(&str, &str)]| SeriesSource {
            uuid: uuid.into(),
            labels: labels.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect(),
            ..SeriesSource::default()
        };
        let family = |name: &str, samples: &[(u32, f64)]| SeriesFamily {
            name: name.into(),
            help: "a\nb".into(),
            samples: samples.to_vec(),
        };
        let mut good = GpuSeries {
            sources: vec![source("GPU-0", &[("pci_bus_id", "1")])],
            families: vec![SeriesFamily { help: "x".into(), ..family("DCGM_A", &[(0, 1.0)]) }],
        };
        let before = good.clone();
        assert!(!good.hold_to_bounds() && good == before);
        let mut bad = GpuSeries {
            sources: vec![
                source("GPU-0", &[("a b", "1"), ("__name__", "x"), ("good", "2"), ("good", "3")]),
                source("GPU-0", &[("good", "2"), ("user", "eve")]),
            ],
            families: vec![
                family("sluice_jobs", &[(0, 1.0)]),
                family("DCGM_\n", &[(0, 1.0)]),
                family("DCGM_B", &[(0, 1.0), (0, 2.0), (1, 3.0), (7, 1.0), (0, f64::NAN)]),
                family("DCGM_B", &[(0, 9.0)]),
                family("DCGM_C", &[(7, 9.0)]),
            ],
        };
        assert!(bad.hold_to_bounds());
        let kept = GpuSeries {
            sources: vec![source("GPU-0", &[("good", "2")]), source("GPU-0", &[("good", "2")])],
            families: vec![SeriesFamily { help: "ab".into(), ..family("DCGM_B", &[(0, 1.0)]) }],
        };
        assert_eq!(bad, kept);
        let names = (0..6000).map(|at| family(&format!("DCGM_{at}"), &[(0, 1.0)]));
        let mut many = GpuSeries { sources: vec![source("GPU-0", &[])], families: names.collect() };
        many.hold_to_bounds();
        assert_eq!(many.families.len(), bounds::NODE_SERIES.most);
    }

    #[test]
    fn long_names_of_labels_are_left_out_and_long_values_cut() {
        let long = "a".repeat(2000);
        let shared = |end: &str| format!("{}{end}", "b".repeat(LABEL_NAME_BYTES_MAX));
        let fits = "c".repeat(LABEL_NAME_BYTES_MAX);
        let names = [long.clone(), shared("1"), shared("2"), fits.clone(), "d".into()];
        let labels = names.iter().map(|name| (name.clone(), "\"".repeat(2000))).collect();
        let source = SeriesSource { uuid: long, labels, ..SeriesSource::default() };
        let mut series = GpuSeries { sources: vec![source], families: Vec::new() };
        assert!(series.hold_to_bounds());
        let source = &series.sources[0];
        let kept: Vec<&str> = source.labels.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(kept, [fits.as_str(), "d"]);
        let most = bounds::NODE_LABEL_BYTES.most;
        assert!(source.labels.iter().all(|(_, value)| value.len() == most));
        assert_eq!(source.uuid.len(), most);
    }

    #[test]
    fn lines_of_a_nodes_series_are_held_to_their_bytes() {
        let labels = (0..LABELS_MAX).map(|at| (format!("l{at}"), "\"".repeat(100))).collect();
        let source = SeriesSource { labels, ..SeriesSource::default() };
        let family = |at: u32| SeriesFamily {
            name: format!("DCGM_{at:04}"),
            help: "h".repeat(1000),
            samples: vec![(0, 1e-300)],
        };
        let mut series =
            GpuSeries { sources: vec![source], families: (0..4096).map(family).collect() };
        assert!(series.hold_to_bounds());
        let of_labels = series.sources[0].label_bytes();
        assert!(of_labels > LABELS_MAX * 200, "quotes are escaped");
        let line =
            |family: &SeriesFamily| family.head_bytes() + family.sample_bytes(1e-300) + of_labels;
        let bytes: usize = series.families.iter().map(line).sum();
        let most = bounds::NODE_SERIES_BYTES.most;
        assert!(bytes <= most && bytes + line(&series.families[0]) > most, "{bytes}");
        assert_eq!(series.families[0].name, "DCGM_0000", "the last names are dropped");
        assert!(!series.hold_to_bounds(), "held once, all of it fits");
    }
}
