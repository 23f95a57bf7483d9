//! gres.conf: which devices a node's generic resources are.

use std::collections::{BTreeMap, BTreeSet};

use model::cpuset::CpuSet;
use model::hostlist;

use super::choices::{AutoDetect, GresFlag};
use super::error::{Findings, Place};
use super::lines::Line;
use super::record::{Entry, Record};
use super::record_keys::GRES;
use super::value::digits;

/// Slurm's own bound on the devices of one line.
const FILES_MAX: usize = 1024;

/// Resources of which several units share one device file.
const SHARING: [&str; 2] = ["mps", "shard"];

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct GresConf {
    pub lines: Vec<GresLine>,
    /// How devices are detected on a node that no line of its own says otherwise for.
    pub auto_detect: Option<AutoDetect>,
    pub auto_detect_of: BTreeMap<String, AutoDetect>,
}

/// One line: some units of one resource, on some nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GresLine {
    /// None: on every node that has the resource.
    pub nodes: Option<BTreeSet<String>>,
    pub name: String,
    pub kind: Option<String>,
    /// None: neither counted nor listed here, so as slurm.conf says.
    pub count: Option<u64>,
    /// The device file of each unit; where a unit has several (`MultipleFiles`), with commas
    /// between them. Empty: the resource is only counted.
    pub files: Vec<String>,
    /// The cores, by number on the node, that these units are close to.
    pub cores: Option<CpuSet>,
    /// The connections of this one device to each device of the node; -1 stands for itself.
    pub links: Vec<i32>,
    pub flags: Vec<GresFlag>,
    pub place: Place,
}

impl GresLine {
    pub fn applies_to(&self, node: &str) -> bool {
        self.nodes.as_ref().is_none_or(|nodes| nodes.contains(node))
    }
}

impl GresConf {
    pub fn read(lines: &[Line], findings: &mut Findings) -> GresConf {
        let mut conf = GresConf::default();
        for line in lines {
            let (errors, kept) = (findings.errors.len(), conf.lines.len());
            let record = Record::read(GRES, line, findings);
            conf.add(&record, &line[0].place, findings);
            // What a misread line would make on a node is no second error.
            if findings.errors.len() > errors {
                conf.lines.truncate(kept);
            }
        }
        conf
    }

    pub fn auto_detect(&self, node: &str) -> AutoDetect {
        let own = self.auto_detect_of.get(node).copied();
        own.or(self.auto_detect).unwrap_or(AutoDetect::Off)
    }

    fn add(&mut self, record: &Record, place: &Place, findings: &mut Findings) {
        let nodes = record.hosts("NodeName");
        if let Some(detect) = record.choice("AutoDetect") {
            self.set_auto_detect(record, nodes.as_deref(), detect, findings);
        }
        let Some(name) = record.text("Name") else {
            // A key that was refused has been told; a Name only asked for where one is missing.
            let others = record.entries().any(|(key, _)| key != "AutoDetect" && key != "NodeName");
            if others {
                findings.wrong(place, "Name", "", "expected Name= on the line, as in Name=gpu");
            }
            return;
        };
        let Some((count, files)) = read_units(record, &name, findings) else { return };
        let cores = record.cpus("Cores");
        self.lines.push(GresLine {
            nodes: nodes.map(|nodes| nodes.into_iter().collect()),
            kind: record.text("Type"),
            links: read_links(record, count, findings),
            flags: record.choices("Flags").unwrap_or_default(),
            place: place.clone(),
            name,
            count,
            files,
            cores,
        });
    }

    fn set_auto_detect(
        &mut self,
        record: &Record,
        nodes: Option<&[String]>,
        detect: AutoDetect,
        findings: &mut Findings,
    ) {
        let Some(nodes) = nodes else {
            self.auto_detect = Some(detect);
            return;
        };
        for node in nodes {
            let former = self.auto_detect_of.insert(node.clone(), detect);
            if let (Some(entry), true) =
                (record.entry("AutoDetect"), former.is_some_and(|former| former != detect))
            {
                let expected = format!("another AutoDetect was given for {node:?} before");
                return findings.wrong(&entry.place, "AutoDetect", &entry.text, expected);
            }
        }
    }
}

/// The number of units, and their device files. None where a value was refused.
fn read_units(
    record: &Record,
    name: &str,
    findings: &mut Findings,
) -> Option<(Option<u64>, Vec<String>)> {
    let count: Option<u64> = record.number("Count");
    match (record.entry("File"), record.entry("MultipleFiles")) {
        (Some(_), Some(entry)) => {
            let expected = "expected either File or MultipleFiles";
            findings.wrong(&entry.place, "MultipleFiles", &entry.text, expected);
            None
        }
        (None, None) => Some((count, Vec::new())),
        (None, Some(entry)) => {
            let files = expand_files("MultipleFiles", entry, findings)?;
            check_count(record, count, 1, findings)?;
            Some((Some(1), vec![files.join(",")]))
        }
        (Some(entry), None) => {
            let files = expand_files("File", entry, findings)?;
            let units = files.len() as u64;
            if SHARING.contains(&name) {
                return Some((Some(count.unwrap_or(units)), files));
            }
            check_count(record, count, units, findings)?;
            Some((Some(units), files))
        }
    }
}

fn check_count(
    record: &Record,
    count: Option<u64>,
    units: u64,
    findings: &mut Findings,
) -> Option<()> {
    let (Some(entry), Some(count)) = (record.entry("Count"), count) else { return Some(()) };
    if count == units {
        return Some(());
    }
    let expected = format!("expected {units}, for the device files of the line, or no Count");
    findings.wrong(&entry.place, "Count", &entry.text, expected);
    None
}

fn expand_files(key: &str, entry: &Entry, findings: &mut Findings) -> Option<Vec<String>> {
    let expected = match hostlist::expand(&entry.text) {
        Ok(files) if files.is_empty() || files.iter().any(|file| !file.starts_with('/')) => {
            "expected absolute paths, as in /dev/nvidia[0-7]".to_owned()
        }
        Ok(files) if files.len() > FILES_MAX => format!("expected at most {FILES_MAX} files"),
        Ok(files) => return Some(files),
        Err(e) => format!("expected {}", e.expected),
    };
    findings.wrong(&entry.place, key, &entry.text, expected);
    None
}

fn read_links(record: &Record, count: Option<u64>, findings: &mut Findings) -> Vec<i32> {
    let Some(entry) = record.entry("Links") else { return Vec::new() };
    let number = |word: &String| match word.as_str() {
        "-1" => Some(-1),
        word => digits(word).and_then(|n| i32::try_from(n).ok()),
    };
    let links: Option<Vec<i32>> = record.words("Links").iter().map(number).collect();
    let expected = match links {
        Some(links) if count == Some(1) => return links,
        Some(_) => "expected on a line with one device only",
        None => "expected numbers of connections, and -1 for the device itself: -1,16,16",
    };
    findings.wrong(&entry.place, "Links", &entry.text, expected);
    Vec::new()
}
