//! `RequeueExit` and `RequeueExitHold`: the exit codes after which jobs are requeued.

use crate::conf::error::Findings;
use crate::conf::keys::record::Record;

/// Reads ranges of exit codes from 0 to 255, as in `1-9,18`.
pub fn read(record: &Record, key: &str, findings: &mut Findings) -> Vec<(i32, i32)> {
    let Some(entry) = record.entry(key) else { return Vec::new() };
    let code = |text: &str| text.trim().parse::<u8>().ok().map(i32::from);
    let range = |word: &str| match word.split_once('-') {
        Some((from, to)) => Some((code(from)?, code(to)?)).filter(|(from, to)| from <= to),
        None => code(word).map(|one| (one, one)),
    };
    let exits: Option<Vec<(i32, i32)>> = entry.text.split(',').map(range).collect();
    if exits.is_none() {
        let expected = "expected exit codes such as 1-9,18";
        findings.wrong(&entry.place, key, &entry.text, expected);
    }
    exits.unwrap_or_default()
}
