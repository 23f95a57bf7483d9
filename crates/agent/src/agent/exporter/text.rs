//! Prometheus' text format, as far as an exporter of GPUs uses it.

use model::gpu_series::{GpuSeries, SeriesFamily, SeriesSource, is_relayed};
use std::collections::HashMap;

/// Labels that are fields of a source, and one that is written as other series have it.
const INDEX: &str = "gpu";
const UUID: &str = "UUID";
const MODEL: (&str, &str) = ("modelName", "model");
/// The label of a part of a GPU.
const SLICE: &str = "GPU_I_ID";
/// Labels by which another system names containers.
const NOT_TAKEN: [&str; 3] = ["pod", "namespace", "container"];

/// A sample with more labels is passed over.
const LABELS_MAX: usize = 24;

/// Names and values.
type Labels = Vec<(String, String)>;

/// The series of GPUs in a text; what is none is passed over.
pub(super) fn read(text: &str) -> GpuSeries {
    let mut series = GpuSeries::default();
    let mut numbers: HashMap<Labels, u32> = HashMap::new();
    let mut families: HashMap<String, usize> = HashMap::new();
    let mut help: HashMap<&str, &str> = HashMap::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            help.extend(rest.split_once(' '));
            continue;
        }
        let Some((name, labels, value)) = sample(line) else { continue };
        if !labels.iter().any(|(name, _)| [INDEX, UUID].contains(&&**name)) {
            continue;
        }
        let source = source(&labels);
        let number = *numbers.entry(labels).or_insert_with(|| {
            series.sources.push(source);
            series.sources.len() as u32 - 1
        });
        let at = *families.entry(name.to_owned()).or_insert_with(|| {
            let help = help.get(name).copied().unwrap_or("Of the node's exporter.");
            let (name, help) = (name.to_owned(), help.to_owned());
            series.families.push(SeriesFamily { name, help, samples: Vec::new() });
            series.families.len() - 1
        });
        series.families[at].samples.push((number, value));
    }
    series
}

fn source(labels: &[(String, String)]) -> SeriesSource {
    let mut source = SeriesSource::default();
    for (name, value) in labels {
        match name.as_str() {
            INDEX => source.index = value.parse().ok(),
            UUID => source.uuid.clone_from(value),
            name if NOT_TAKEN.contains(&name) => {}
            name => {
                source.is_slice |= name == SLICE && !value.is_empty();
                let name = if name == MODEL.0 { MODEL.1 } else { name };
                source.labels.push((name.to_owned(), value.clone()));
            }
        }
    }
    source.labels.sort();
    source
}

/// `NAME{LABEL="VALUE",...} NUMBER` of a name that is relayed, with a time after it that is not read.
fn sample(line: &str) -> Option<(&str, Labels, f64)> {
    let at = line.find(['{', ' '])?;
    let (name, mut rest) = line.split_at(at);
    if !is_relayed(name) {
        return None;
    }
    let mut labels = Vec::new();
    if let Some(inner) = rest.strip_prefix('{') {
        rest = inner;
        loop {
            rest = rest.trim_start_matches([',', ' ']);
            if let Some(after) = rest.strip_prefix('}') {
                rest = after;
                break;
            }
            if labels.len() == LABELS_MAX {
                return None;
            }
            let (label, quoted) = rest.split_once("=\"")?;
            let (value, after) = unquoted(quoted)?;
            labels.push((label.trim().to_owned(), value));
            rest = after;
        }
    }
    let value: f64 = rest.split_whitespace().next()?.parse().ok()?;
    Some((name, labels, value))
}

/// The value up to its closing quote, and what follows.
fn unquoted(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Some((value, &text[at + 1..])),
            '\\' => match chars.next()?.1 {
                'n' => value.push('\n'),
                other => value.push(other),
            },
            c => value.push(c),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A family's name and help, and the value of each GPU.
    type Shown<'a> = (&'a str, &'a str, &'a [(u32, f64)]);

    #[test]
    fn series_of_gpus_are_read_and_others_passed_over() {
        let text = "# HELP DCGM_FI_DEV_SM_CLOCK SM clock frequency (in MHz).\n\
            # TYPE DCGM_FI_DEV_SM_CLOCK gauge\n\
            DCGM_FI_DEV_SM_CLOCK{gpu=\"0\",UUID=\"GPU-a\",modelName=\"NVIDIA \\\"X\\\"\",Hostname=\"h\",user=\"eve\"} 1980\n\
            DCGM_FI_DEV_SM_CLOCK{gpu=\"1\", UUID=\"GPU-b\",GPU_I_ID=\"3\",} 1.5e3 1700000000\n\
            DCGM_FI_DEV_GPU_UTIL{gpu=\"0\",UUID=\"GPU-a\",modelName=\"NVIDIA \\\"X\\\"\",Hostname=\"h\",user=\"eve\"} 7\n\
            DCGM_EXP_NO_GPU 1\ngo_goroutines{gpu=\"0\"} 8\nsluice_jobs{gpu=\"0\"} 8\n\
            DCGM_BAD{gpu=\"0} 1\nDCGM_BAD{gpu=\"0\"} many\nDCGM_BAD{gpu\nDCGM_BAD\n\n}{\n";
        let found = read(text);
        let families: Vec<Shown<'_>> = found
            .families
            .iter()
            .map(|family| (family.name.as_str(), family.help.as_str(), family.samples.as_slice()))
            .collect();
        let expected: [Shown<'_>; 2] = [
            ("DCGM_FI_DEV_SM_CLOCK", "SM clock frequency (in MHz).", &[(0, 1980.0), (1, 1500.0)]),
            ("DCGM_FI_DEV_GPU_UTIL", "Of the node's exporter.", &[(0, 7.0)]),
        ];
        assert_eq!(families, expected);
        let first = SeriesSource {
            uuid: "GPU-a".into(),
            index: Some(0),
            is_slice: false,
            labels: [("Hostname", "h"), ("model", "NVIDIA \"X\""), ("user", "eve")]
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .to_vec(),
        };
        assert_eq!(found.sources[0], first);
        assert!(found.sources[1].is_slice && found.sources.len() == 2);
    }

    #[test]
    fn sample_with_too_many_labels_is_passed_over() {
        let line = |labels: usize| {
            let labels: String = (1..labels).map(|at| format!(",l{at}=\"x\"")).collect();
            format!("DCGM_A{{gpu=\"0\"{labels}}} 1\n")
        };
        let found = read(&format!("{}{}", line(LABELS_MAX), line(LABELS_MAX + 1)));
        assert_eq!((found.sources.len(), found.sources[0].labels.len()), (1, LABELS_MAX - 1));
    }
}
