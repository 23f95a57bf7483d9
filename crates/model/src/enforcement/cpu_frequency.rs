//! The frequency of a step's CPUs: what was asked for, and what that is on a CPU with the steps that it has.

use serde::{Deserialize, Serialize};

/// Who chooses the frequency of a CPU in the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Governor {
    Conservative,
    OnDemand,
    Performance,
    PowerSave,
    SchedUtil,
    UserSpace,
}

impl Governor {
    /// The kernel's name.
    pub fn kernel_name(self) -> &'static str {
        match self {
            Self::Conservative => "conservative",
            Self::OnDemand => "ondemand",
            Self::Performance => "performance",
            Self::PowerSave => "powersave",
            Self::SchedUtil => "schedutil",
            Self::UserSpace => "userspace",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Frequency {
    Khz(u32),
    Low,
    Medium,
    /// The highest but one.
    HighM1,
    High,
}

/// A request: one frequency, a range of them, or none, and a governor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct CpuFrequency {
    /// The frequency, or the lowest of a range.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min: Option<Frequency>,
    /// The highest of a range.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max: Option<Frequency>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub governor: Option<Governor>,
}

/// `CpuFreqDef` and `CpuFreqGovernors`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CpuFrequencyPolicy {
    /// The governor of steps that name none; `None`: it is left as it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usual: Option<Governor>,
    /// The governors that a step's wish may lead to, beside the usual one.
    pub allowed: Vec<Governor>,
}

impl Default for CpuFrequencyPolicy {
    fn default() -> Self {
        let allowed = vec![Governor::OnDemand, Governor::Performance, Governor::UserSpace];
        Self { usual: None, allowed }
    }
}

impl CpuFrequencyPolicy {
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// What is to be set for a step that asked for this, or for nothing. `None`: nothing is.
    pub fn settle(&self, asked: Option<CpuFrequency>) -> Option<CpuFrequency> {
        let Some(asked) = asked else {
            return self.usual.map(|usual| CpuFrequency {
                min: None,
                max: None,
                governor: Some(usual),
            });
        };
        let is_fixed = asked.min.is_some() && asked.max.is_none();
        let usual = if is_fixed { Some(Governor::UserSpace) } else { self.usual };
        Some(CpuFrequency { governor: asked.governor.or(usual), ..asked })
    }

    /// The governor that this wish would set and that is not allowed. One frequency needs `userspace`.
    pub fn refused(&self, asked: CpuFrequency) -> Option<Governor> {
        let governor = self.settle(Some(asked))?.governor?;
        let is_allowed = self.allowed.contains(&governor) || self.usual == Some(governor);
        (!is_allowed).then_some(governor)
    }
}

/// What a CPU can do, in kHz.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CpuSteps {
    pub lowest: u32,
    pub highest: u32,
    /// The frequencies that it has between these, where the kernel lists them.
    pub listed: Vec<u32>,
}

/// What is set for one CPU, in kHz.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct CpuSetting {
    pub governor: Option<String>,
    pub min: Option<u32>,
    pub max: Option<u32>,
    /// With `userspace` alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub speed: Option<u32>,
}

impl CpuSetting {
    /// With what the CPU had before, where it sets nothing. Frequencies stay in the range that it had: the site may
    /// have narrowed it.
    pub fn over(&self, before: &CpuSetting) -> CpuSetting {
        let within = |khz: Option<u32>| {
            khz.map(|khz| khz.max(before.min.unwrap_or(0)).min(before.max.unwrap_or(u32::MAX)))
        };
        let governor = self.governor.clone().or_else(|| before.governor.clone());
        let speed = before.speed.filter(|_| governor == before.governor);
        CpuSetting {
            governor,
            min: within(self.min).or(before.min),
            max: within(self.max).or(before.max),
            speed: within(self.speed).or(speed),
        }
    }
}

impl CpuFrequency {
    /// The setting of one CPU. A single frequency is the lowest and the highest at once.
    pub fn on(&self, cpu: &CpuSteps) -> CpuSetting {
        let min = self.min.map(|frequency| frequency.on(cpu));
        let max = self.max.or(self.min).map(|frequency| frequency.on(cpu));
        CpuSetting {
            governor: self.governor.map(|governor| governor.kernel_name().to_owned()),
            min,
            // A range whose ends fall on one step.
            max: max.max(min),
            speed: min.filter(|_| self.governor == Some(Governor::UserSpace)),
        }
    }
}

impl Frequency {
    fn on(self, cpu: &CpuSteps) -> u32 {
        let mut steps = cpu.listed.clone();
        steps.sort_unstable();
        steps.dedup();
        let highest = steps.last().copied().unwrap_or(cpu.highest);
        let lowest = steps.first().copied().unwrap_or(cpu.lowest);
        match self {
            Self::Low => lowest,
            Self::High => highest,
            Self::HighM1 => steps.iter().rev().nth(1).copied().unwrap_or(highest),
            Self::Medium if steps.is_empty() => lowest + (highest.saturating_sub(lowest)) / 2,
            Self::Medium => steps[(steps.len() - 1) / 2],
            // The next step that is not lower.
            Self::Khz(asked) if !steps.is_empty() => {
                steps.iter().copied().find(|step| *step >= asked).unwrap_or(highest)
            }
            Self::Khz(asked) => asked.clamp(lowest, highest.max(lowest)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cpu(listed: &[u32]) -> CpuSteps {
        CpuSteps { lowest: 1000, highest: 3000, listed: listed.to_vec() }
    }

    #[test]
    fn words_and_numbers_become_steps_of_the_cpu() {
        let listed = cpu(&[3000, 1000, 2400, 1600]);
        let plain = cpu(&[]);
        for (asked, of_list, of_range) in [
            (Frequency::Low, 1000, 1000),
            (Frequency::Medium, 1600, 2000),
            (Frequency::HighM1, 2400, 3000),
            (Frequency::High, 3000, 3000),
            (Frequency::Khz(1), 1000, 1000),
            (Frequency::Khz(1700), 2400, 1700),
            (Frequency::Khz(9999), 3000, 3000),
        ] {
            assert_eq!((asked.on(&listed), asked.on(&plain)), (of_list, of_range), "{asked:?}");
        }
    }

    #[test]
    fn governor_that_a_wish_leads_to_is_allowed_or_the_usual_one() {
        let policy =
            |usual, allowed: &[Governor]| CpuFrequencyPolicy { usual, allowed: allowed.to_vec() };
        let wish = |min, max, governor| CpuFrequency { min, max, governor };
        let (low, high) = (Some(Frequency::Low), Some(Frequency::High));
        let (performance, user) = (Some(Governor::Performance), Some(Governor::UserSpace));
        for (policy, asked, refused) in [
            (policy(None, &[Governor::Performance]), wish(low, None, None), user),
            (policy(None, &[Governor::Performance]), wish(low, None, performance), None),
            (policy(None, &[Governor::UserSpace]), wish(low, None, None), None),
            (policy(user, &[]), wish(low, None, None), None),
            (policy(performance, &[]), wish(low, high, None), None),
            (policy(performance, &[]), wish(low, None, None), user),
            (policy(None, &[]), wish(low, high, None), None),
            (policy(None, &[]), wish(None, None, performance), performance),
        ] {
            assert_eq!(policy.refused(asked), refused, "{policy:?} {asked:?}");
        }
    }

    #[test]
    fn frequencies_stay_in_the_range_that_the_cpu_had() {
        let setting = |min, max, speed| CpuSetting { governor: None, min, max, speed };
        let before = setting(Some(1200), Some(2000), None);
        let fixed = |khz| setting(Some(khz), Some(khz), Some(khz));
        assert_eq!(fixed(800).over(&before), fixed(1200));
        assert_eq!(fixed(3000).over(&before), fixed(2000));
        assert_eq!(fixed(1400).over(&before), fixed(1400));
        let range = setting(Some(800), None, None);
        assert_eq!(range.over(&before), before);
        assert_eq!(fixed(800).over(&CpuSetting::default()), fixed(800));
    }

    #[test]
    fn request_is_filled_in_by_the_sites_policy() {
        let asked = |min, max, governor| Some(CpuFrequency { min, max, governor });
        let (low, high) = (Some(Frequency::Low), Some(Frequency::High));
        let site = CpuFrequencyPolicy {
            usual: Some(Governor::Performance),
            ..CpuFrequencyPolicy::default()
        };
        let none = CpuFrequencyPolicy::default();
        let (performance, user) = (Some(Governor::Performance), Some(Governor::UserSpace));
        assert_eq!(none.settle(None), None);
        assert_eq!(site.settle(None), asked(None, None, performance));
        assert_eq!(none.settle(asked(low, None, None)), asked(low, None, user));
        assert_eq!(site.settle(asked(low, high, None)), asked(low, high, performance));
        assert_eq!(none.settle(asked(low, high, None)), asked(low, high, None));
        let ondemand = Some(Governor::OnDemand);
        assert_eq!(site.settle(asked(None, None, ondemand)), asked(None, None, ondemand));
        let fixed = CpuFrequency { min: high, max: None, governor: user }.on(&cpu(&[]));
        assert_eq!((fixed.min, fixed.max, fixed.speed), (Some(3000), Some(3000), Some(3000)));
        let range = CpuFrequency { min: low, max: high, governor: None }.on(&cpu(&[]));
        assert_eq!((range.min, range.max, range.speed), (Some(1000), Some(3000), None));
    }
}
