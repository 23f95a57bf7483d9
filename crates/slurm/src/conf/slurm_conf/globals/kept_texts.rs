//! The settings of `AccountingStorageParameters` for how long, and how much of, the scripts and environments of ended jobs are
//! kept. These two words are Sluice's own; Slurm has a purge in slurmdbd.conf.

use crate::conf::error::Findings;
use crate::conf::keys::record::Record;
use crate::conf::keys::value::Parameters;

const DAYS: &str = "kept_text_days";
const MIB: &str = "kept_text_mib";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeptTexts {
    /// After its last job's end.
    pub days: u32,
    /// All together; the oldest go first.
    pub mib: u32,
}

impl Default for KeptTexts {
    fn default() -> Self {
        Self { days: 365, mib: 10 << 10 }
    }
}

impl KeptTexts {
    pub fn read(record: &Record, parameters: &Parameters, findings: &mut Findings) -> KeptTexts {
        const KEY: &str = "AccountingStorageParameters";
        let Some(entry) = record.entry(KEY) else { return KeptTexts::default() };
        let mut number = |name: &str, otherwise: u32| -> u32 {
            let Some(text) = parameters.get(name) else { return otherwise };
            text.parse().unwrap_or_else(|_| {
                let expected = format!("{name}={text}: expected a whole number");
                findings.wrong(&entry.place, KEY, &entry.text, expected);
                otherwise
            })
        };
        let Self { days, mib } = Self::default();
        Self { days: number(DAYS, days), mib: number(MIB, mib) }
    }
}
