//! What a step asked for the frequency of its CPUs (`--cpu-freq`), in the columns of `sacct` and `sstat` and in `scontrol
//! show step`.

use crate::conf::keys::choices::Choice;
use crate::option::value::cpu_freq;
use model::cpu_frequency::{CpuFrequency, Governor};
use model::id::StepId;

/// Slurm's word where nothing was asked for. Of a script, which is never changed, it prints a zero.
const NOT_ASKED: &str = "Unknown";
const NOT_ASKED_OF_SCRIPT: &str = "0";

/// What a column shows of a request.
#[derive(Clone, Copy)]
pub enum FrequencyPart {
    /// The lowest of a range.
    Min,
    /// The highest of a range, or the one frequency.
    Max,
    Governor,
}

/// `step` is `None` for a job as a whole.
pub fn push(
    asked: Option<CpuFrequency>,
    step: Option<StepId>,
    part: FrequencyPart,
    cell: &mut String,
) {
    let text = asked.and_then(|asked| part.of(asked));
    cell.push_str(match (&text, step) {
        (Some(text), _) => text,
        (None, Some(StepId::Batch)) => NOT_ASKED_OF_SCRIPT,
        (None, _) => NOT_ASKED,
    });
}

impl FrequencyPart {
    fn of(self, asked: CpuFrequency) -> Option<String> {
        let CpuFrequency { min, max, governor } = asked;
        // One frequency needs the governor that sets it.
        let implied = (min.is_some() && max.is_none()).then_some(Governor::UserSpace);
        match self {
            FrequencyPart::Min => min.filter(|_| max.is_some()).map(cpu_freq::word),
            FrequencyPart::Max => max.or(min).map(cpu_freq::word),
            FrequencyPart::Governor => {
                governor.or(implied).map(|governor| governor.word().to_owned())
            }
        }
    }
}

/// As `scontrol show step` has it.
pub fn request(asked: Option<CpuFrequency>) -> String {
    asked.map_or_else(|| "Default".to_owned(), |asked| cpu_freq::text(&asked))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_show_what_was_asked_for() {
        let shown = |text: &str| {
            let asked = cpu_freq::cpu_freq(text).ok();
            let parts = [FrequencyPart::Min, FrequencyPart::Max, FrequencyPart::Governor];
            parts.map(|part| {
                let mut cell = String::new();
                push(asked, Some(StepId::Number(0)), part, &mut cell);
                cell
            })
        };
        assert_eq!(shown("2400000"), ["Unknown", "2400000", "UserSpace"]);
        assert_eq!(shown("low-highm1:ondemand"), ["Low", "HighM1", "OnDemand"]);
        assert_eq!(shown("performance"), ["Unknown", "Unknown", "Performance"]);
        assert_eq!(shown("?"), ["Unknown"; 3]);
        let mut cell = String::new();
        push(None, Some(StepId::Batch), FrequencyPart::Max, &mut cell);
        assert_eq!(cell, "0");
        assert_eq!(request(None), "Default");
        assert_eq!(
            request(cpu_freq::cpu_freq("low-2000000:OnDemand").ok()),
            "Low-2000000:OnDemand"
        );
    }
}
