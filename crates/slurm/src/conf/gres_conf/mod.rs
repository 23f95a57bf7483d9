//! gres.conf: the devices of the resources that nodes have, a line for devices that are alike.

pub(super) mod node_gres;

use std::collections::{BTreeMap, BTreeSet};

use model::cpuset::CpuSet;
use model::hostlist;
use model::node::{NodeConfig, NodeGres};

use super::error::{ConfLocation, Findings, NoticeKind};
use crate::conf::keys::choices::{AutoDetect, GresFlag};
use crate::conf::keys::record::{Entry, Record};
use crate::conf::keys::record_keys::GRES;
use crate::conf::keys::value;
use crate::conf::text::lines::ConfLine;

/// As many device files as the manual allows.
const FILES_MAX: usize = 1024;

/// No machine has more GPUs. They are listed one by one, so that a larger count, which is a slip, could
/// take all memory.
pub const GPUS_PER_NODE_MAX: u64 = 4096;

/// Resources that share GPUs: `File` names the GPUs, and `Count` says how many shares they have.
const SHARES_OF_GPUS: [&str; 2] = ["mps", "shard"];

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct GresConf {
    pub lines: Vec<GresLine>,
    /// What holds for nodes that are not in `auto_detect_of`.
    pub auto_detect: Option<AutoDetect>,
    pub auto_detect_of: BTreeMap<String, AutoDetect>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GresLine {
    /// `None`: every node that has the resource.
    pub nodes: Option<BTreeSet<String>>,
    pub name: String,
    /// `Type=`
    pub kind: Option<String>,
    /// `None`: the line has neither `Count` nor device files.
    pub count: Option<u64>,
    /// One entry a unit, empty where there are no device files. `MultipleFiles` are one entry, joined by
    /// commas.
    pub files: Vec<String>,
    /// The numbers of the node's cores that are near to the devices.
    pub cores: Option<CpuSet>,
    /// Connections to each device of the node by its number; -1 stands for the device itself.
    pub links: Vec<i32>,
    pub flags: Vec<GresFlag>,
    pub place: ConfLocation,
}

impl GresLine {
    pub fn is_for(&self, node: &str) -> bool {
        self.nodes.as_ref().is_none_or(|nodes| nodes.contains(node))
    }

    /// The units that the line makes; one where it does not say.
    pub fn units(&self) -> u64 {
        self.count.unwrap_or(1)
    }
}

impl GresConf {
    /// What a machine's own file says of one of its nodes.
    pub fn of_machine(&self, node: &NodeConfig) -> Vec<NodeGres> {
        node_gres::of_machine(self, node)
    }

    /// How devices are found on a node.
    pub fn auto_detect(&self, node: &str) -> AutoDetect {
        let own = self.auto_detect_of.get(node).copied();
        own.or(self.auto_detect).unwrap_or(AutoDetect::Off)
    }

    pub(super) fn read(lines: &[ConfLine], findings: &mut Findings) -> GresConf {
        let mut conf = GresConf::default();
        for line in lines {
            let Some(first) = line.first() else { continue };
            let errors_before = findings.errors.len();
            let record = Record::read(GRES, line, findings);
            conf.set_auto_detect(&record, findings);
            let gres_line = read_line(&record, &first.place, findings);
            // A line with an error is left out: it would be told again as a disagreement with slurm.conf.
            let is_good = findings.errors.len() == errors_before;
            conf.lines.extend(gres_line.filter(|_| is_good));
        }
        conf
    }

    fn set_auto_detect(&mut self, record: &Record, findings: &mut Findings) {
        const KEY: &str = "AutoDetect";
        let (Some(entry), Some(mut how)) = (record.entry(KEY), record.choice::<AutoDetect>(KEY))
        else {
            return;
        };
        if how == AutoDetect::Nrt {
            findings.notice(&entry.place, format!("{KEY}=nrt"), NoticeKind::NoEffect);
            how = AutoDetect::Off;
        }
        let Some(nodes) = record.hosts("NodeName") else {
            self.auto_detect = Some(how);
            return;
        };
        for node in nodes {
            let before = self.auto_detect_of.insert(node.clone(), how);
            if before.is_some_and(|before| before != how) {
                let expected = format!("another AutoDetect was given for {node:?} before");
                return findings.wrong(&entry.place, KEY, &entry.text, expected);
            }
        }
    }
}

fn read_line(record: &Record, place: &ConfLocation, findings: &mut Findings) -> Option<GresLine> {
    let Some(name) = record.text("Name") else {
        let needs_no_name = ["AutoDetect", "NodeName"];
        if record.entries().any(|(key, _)| !needs_no_name.contains(&key)) {
            findings.wrong(place, "Name", "", "expected Name= on the line, as in Name=gpu");
        }
        return None;
    };
    let files = device_files(record, findings);
    let count = unit_count(record, &name, &files, findings);
    Some(GresLine {
        nodes: record.hosts("NodeName").map(|nodes| nodes.into_iter().collect()),
        kind: record.text("Type"),
        count,
        files,
        cores: record.cpus("Cores").or_else(|| record.cpus("CPUs")),
        links: links(record, count, findings),
        flags: record.choices("Flags").unwrap_or_default(),
        place: place.clone(),
        name,
    })
}

/// The device files of a line, one entry a unit.
fn device_files(record: &Record, findings: &mut Findings) -> Vec<String> {
    let one_each = |key: &'static str| record.entry(key).map(|entry| (key, entry));
    let file = one_each("File").or_else(|| one_each("Files"));
    let multiple = record.entry("MultipleFiles");
    if let (Some(_), Some(entry)) = (file, multiple) {
        let expected = "expected either File or MultipleFiles";
        findings.wrong(&entry.place, "MultipleFiles", &entry.text, expected);
    }
    if let Some((key, entry)) = file {
        return expand_files(key, entry, findings);
    }
    let paths = multiple.map(|entry| expand_files("MultipleFiles", entry, findings));
    paths.filter(|paths| !paths.is_empty()).map(|paths| paths.join(",")).into_iter().collect()
}

fn expand_files(key: &'static str, entry: &Entry, findings: &mut Findings) -> Vec<String> {
    let expected = match hostlist::expand(&entry.text) {
        Err(e) => format!("expected {}", e.expected),
        Ok(paths) if paths.is_empty() || paths.iter().any(|path| !path.starts_with('/')) => {
            "expected absolute paths, as in /dev/nvidia[0-7]".to_owned()
        }
        Ok(paths) if paths.len() > FILES_MAX => format!("expected at most {FILES_MAX} files"),
        Ok(paths) => return paths,
    };
    findings.wrong(&entry.place, key, &entry.text, expected);
    Vec::new()
}

/// How many units a line makes: by its device files, or by `Count`.
fn unit_count(
    record: &Record,
    name: &str,
    files: &[String],
    findings: &mut Findings,
) -> Option<u64> {
    let count: Option<u64> = record.number("Count");
    let by_files = (!files.is_empty()).then_some(files.len() as u64);
    let names_gpus = record.has("File") || record.has("Files");
    let is_share = names_gpus && SHARES_OF_GPUS.contains(&name);
    let units = if is_share { count.or(by_files) } else { by_files.or(count) };
    let mut refuse = |expected: String| {
        if let Some(entry) = record.entry("Count") {
            findings.wrong(&entry.place, "Count", &entry.text, expected);
        }
    };
    match (units, count) {
        (Some(units), Some(count)) if units != count => {
            refuse(format!("expected {units}, for the device files of the line, or no Count"));
        }
        (Some(units), _) if name == "gpu" && units > GPUS_PER_NODE_MAX => {
            refuse(format!("expected at most {GPUS_PER_NODE_MAX} GPUs on a node"));
        }
        _ => {}
    }
    units
}

fn links(record: &Record, count: Option<u64>, findings: &mut Findings) -> Vec<i32> {
    let key = if record.has("Links") { "Links" } else { "Link" };
    let Some(entry) = record.entry(key) else { return Vec::new() };
    let link = |word: &String| match word.as_str() {
        "-1" => Some(-1),
        digits => value::digits(digits).and_then(|number| i32::try_from(number).ok()),
    };
    let links: Option<Vec<i32>> = record.words(key).iter().map(link).collect();
    let expected = match &links {
        None => "expected numbers of connections, and -1 for the device itself: -1,16,16",
        Some(_) if count != Some(1) => "expected on a line with one device only",
        Some(links) => return links.clone(),
    };
    findings.wrong(&entry.place, key, &entry.text, expected);
    Vec::new()
}
