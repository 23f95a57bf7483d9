//! The keys of preemption: `PreemptType`, `PreemptMode`, `PreemptExemptTime` and `SchedulerTimeSlice`.

use crate::conf::error::Findings;
use crate::conf::keys::choices::{PreemptMode, PreemptType};
use crate::conf::keys::record::Record;
use model::time::TimeLimit;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Preemption {
    pub kind: PreemptType,
    pub modes: Vec<PreemptMode>,
    /// How long a job runs before it may be preempted.
    pub exempt_time: TimeLimit,
    /// How long a job that shares its cores (gang scheduling) runs before the next one.
    pub time_slice_s: u32,
}

impl Default for Preemption {
    fn default() -> Self {
        Self {
            kind: PreemptType::None,
            modes: vec![PreemptMode::Off],
            exempt_time: TimeLimit::Minutes(0),
            time_slice_s: 30,
        }
    }
}

impl Preemption {
    pub fn read(record: &Record, findings: &mut Findings) -> Preemption {
        let default = Preemption::default();
        let preemption = Preemption {
            kind: record.choice("PreemptType").unwrap_or(default.kind),
            modes: record.choices("PreemptMode").unwrap_or(default.modes),
            // -1 means no exemption.
            exempt_time: record
                .time("PreemptExemptTime")
                .filter(|_| record.text("PreemptExemptTime").as_deref() != Some("-1"))
                .unwrap_or(default.exempt_time),
            time_slice_s: record.number("SchedulerTimeSlice").unwrap_or(default.time_slice_s),
        };
        let has = |mode| preemption.modes.contains(&mode);
        let acts =
            has(PreemptMode::Cancel) || has(PreemptMode::Requeue) || has(PreemptMode::Suspend);
        if let Some(entry) = record.entry("PreemptType")
            && preemption.kind != PreemptType::None
            && !acts
        {
            let expected = "expected PreemptMode=CANCEL, REQUEUE or SUSPEND,GANG beside it";
            findings.wrong(&entry.place, "PreemptType", &entry.text, expected);
        }
        if let Some(entry) = record.entry("PreemptMode")
            && has(PreemptMode::Suspend)
            && !has(PreemptMode::Gang)
        {
            let expected = "expected SUSPEND,GANG: who makes room so goes on later";
            findings.wrong(&entry.place, "PreemptMode", &entry.text, expected);
        }
        let entry = record.entry("SchedulerTimeSlice");
        if let Some(entry) = entry.filter(|_| preemption.time_slice_s < 5) {
            let expected = "expected from 5 to 65533 seconds";
            findings.wrong(&entry.place, "SchedulerTimeSlice", &entry.text, expected);
        }
        preemption
    }
}
