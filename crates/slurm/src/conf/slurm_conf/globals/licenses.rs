//! `Licenses`: the licenses of the cluster, and how many there are of each.

use std::collections::BTreeMap;

use crate::conf::error::Findings;
use crate::conf::keys::record::Record;
use crate::option::value;

/// Reads `matlab:4,ansys`. A license that is named twice has both counts.
pub fn read(record: &Record, findings: &mut Findings) -> BTreeMap<String, u64> {
    const KEY: &str = "Licenses";
    let mut counts = BTreeMap::new();
    let Some(entry) = record.entry(KEY) else { return counts };
    let Ok(read) = value::licenses(&entry.text) else {
        let expected = "expected NAME or NAME:COUNT, with commas";
        findings.wrong(&entry.place, KEY, &entry.text, expected);
        return counts;
    };
    for one in read {
        let count: &mut u64 = counts.entry(one.name).or_default();
        *count = count.saturating_add(one.count);
    }
    counts
}
