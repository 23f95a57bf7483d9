//! The backfill settings of `SchedulerParameters`.

use crate::conf::error::Findings;
use crate::conf::keys::record::Record;
use crate::conf::keys::value::Parameters;

/// Bounds on the jobs that backfill holds resources for; `None` is no bound.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Backfill {
    pub window_min: Option<u32>,
    /// The most jobs of one partition that resources are held for.
    pub places: Option<u32>,
    pub per_user: Option<u32>,
    pub per_array: Option<u32>,
    pub priority_min: Option<u64>,
    pub age_min_s: Option<u32>,
    pub starts_max: Option<u32>,
}

impl Backfill {
    pub fn read(record: &Record, parameters: &Parameters, findings: &mut Findings) -> Backfill {
        const KEY: &str = "SchedulerParameters";
        let Some(entry) = record.entry(KEY) else { return Backfill::default() };
        let mut number = |name: &str| -> Option<u64> {
            let text = parameters.get(name)?;
            let number: Option<u32> = text.parse().ok();
            if number.is_none() {
                let expected = format!("{name}={text}: expected a whole number");
                findings.wrong(&entry.place, KEY, &entry.text, expected);
            }
            number.map(u64::from)
        };
        // For counts of jobs zero means no bound.
        let mut count = |name: &str| number(name).filter(|n| *n > 0).map(|n| n as u32);
        let (test, part) = (count("bf_max_job_test"), count("bf_max_job_part"));
        Backfill {
            window_min: count("bf_window"),
            places: test.into_iter().chain(part).min(),
            per_user: count("bf_max_job_user"),
            per_array: count("bf_max_job_array_resv"),
            starts_max: count("bf_max_job_start"),
            age_min_s: count("bf_min_age_reserve"),
            priority_min: number("bf_min_prio_reserve"),
        }
    }
}
