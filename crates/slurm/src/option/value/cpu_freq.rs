//! `--cpu-freq=MIN[-MAX][:GOVERNOR]`, or a governor alone.

use crate::conf::keys::choices::Choice;
use crate::option::error::OptionError;
use model::cpu_frequency::{CpuFrequency, Frequency, Governor};

const FREQUENCIES: [(&str, Frequency); 4] = [
    ("Low", Frequency::Low),
    ("Medium", Frequency::Medium),
    ("High", Frequency::High),
    ("HighM1", Frequency::HighM1),
];

fn frequency(word: &str) -> Option<Frequency> {
    let named = FREQUENCIES.iter().find(|(name, _)| name.eq_ignore_ascii_case(word));
    let number = || word.parse().ok().filter(|_| word.bytes().all(|b| b.is_ascii_digit()));
    named.map(|(_, value)| *value).or_else(|| number().map(Frequency::Khz))
}

fn read(text: &str) -> Option<CpuFrequency> {
    if let Some(governor) = Governor::from_word(text) {
        return Some(CpuFrequency { min: None, max: None, governor: Some(governor) });
    }
    let (range, word) = match text.split_once(':') {
        Some((range, word)) => (range, Some(word)),
        None => (text, None),
    };
    let governor = match word {
        Some(word) => Some(Governor::from_word(word)?),
        None => None,
    };
    let (min, max) = match range.split_once('-') {
        Some((min, max)) => (frequency(min)?, Some(frequency(max)?)),
        None => (frequency(range)?, None),
    };
    let is_range = match (min, max) {
        (Frequency::Khz(min), Some(Frequency::Khz(max))) => min < max,
        (_, Some(Frequency::Low)) => false,
        (min, Some(max)) => min != max,
        (_, None) => true,
    };
    // That governor has one frequency.
    let fits = max.is_none() || governor != Some(Governor::UserSpace);
    (is_range && fits).then_some(CpuFrequency { min: Some(min), max, governor })
}

pub fn cpu_freq(text: &str) -> Result<CpuFrequency, OptionError> {
    read(text).ok_or_else(|| {
        OptionError::Value(vec![
            format!("unrecognized --cpu-freq argument \"{text}\""),
            "Invalid --cpu-freq argument".to_owned(),
        ])
    })
}

pub fn word(frequency: Frequency) -> String {
    match frequency {
        Frequency::Khz(number) => number.to_string(),
        named => FREQUENCIES
            .iter()
            .find(|(_, one)| *one == named)
            .map_or_else(String::new, |(name, _)| (*name).to_owned()),
    }
}

/// The request as `SLURM_CPU_FREQ_REQ` has it.
pub fn text(asked: &CpuFrequency) -> String {
    let frequencies: Vec<String> = asked.min.into_iter().chain(asked.max).map(word).collect();
    let parts = [frequencies.join("-"), asked.governor.map_or("", Governor::word).to_owned()];
    parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(":")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_read_and_written_in_slurms_words() {
        for (given, written) in [
            ("high", "High"),
            ("2400000", "2400000"),
            ("low-high:ondemand", "Low-High:OnDemand"),
            ("performance", "Performance"),
            ("1000000-highm1", "1000000-HighM1"),
            ("1800000:userspace", "1800000:UserSpace"),
        ] {
            let asked = cpu_freq(given).expect(given);
            assert_eq!(text(&asked), written);
            assert_eq!(cpu_freq(written), Ok(asked), "{written}");
        }
        for wrong in [
            "",
            "fast",
            "-",
            "1-",
            "-2",
            "2-1",
            "1-1",
            "high-low",
            "medium-medium",
            "1-2:userspace",
            "1:fast",
            "high:",
            "1-2-3",
            "+5",
            "99999999999",
        ] {
            let error = cpu_freq(wrong).expect_err(wrong);
            let line = format!("unrecognized --cpu-freq argument \"{wrong}\"");
            assert_eq!(
                error,
                OptionError::Value(vec![line, "Invalid --cpu-freq argument".to_owned()])
            );
        }
    }
}
