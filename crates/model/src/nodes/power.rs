//! The power of nodes: where each is between on and off, what a site has configured for it, and what is asked of it.

use crate::time::Timestamp;
use serde::{Deserialize, Serialize};

/// Where a node is between on and off. The name of each state is Slurm's, but for those that Slurm has no word for.
///
/// `called` says that the site's program has ended: a server that comes back calls it again where it has not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PowerState {
    #[default]
    On,
    /// It is powered down once no job is left on it. `drains`: it takes no more jobs until then.
    PowerDownPending {
        drains: bool,
    },
    /// It is not to be used before `SuspendTimeout` is over. `then_up`: it is powered up again after that. `answered`: that was
    /// over once, and the machine answered all the same: it is slow to go, or does not go at all.
    PoweringDown {
        since: Timestamp,
        called: bool,
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        then_up: bool,
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        answered: bool,
    },
    PoweredDown,
    /// Powered down, and to be powered up as soon as `ResumeRate` permits.
    PowerUpPending,
    PoweringUp {
        since: Timestamp,
        called: bool,
    },
    /// Powered down: it did not come up within `ResumeTimeout`, and `ResumeFailProgram` has not been called yet.
    ResumeFailed,
    /// It is rebooted once no job is left on it. `drains`: it takes no more jobs until then.
    RebootPending {
        drains: bool,
        next: AfterReboot,
    },
    /// Its agent was told to reboot it; it has `ResumeTimeout` to come back.
    Rebooting {
        since: Timestamp,
        next: AfterReboot,
    },
}

impl PowerState {
    pub fn is_on(&self) -> bool {
        matches!(self, Self::On)
    }

    /// Whether there is no machine now that jobs could run on, while they may be granted the node.
    pub fn is_off(self) -> bool {
        matches!(
            self,
            Self::PoweredDown | Self::PowerUpPending | Self::PoweringUp { .. } | Self::ResumeFailed
        )
    }

    /// Whether the node may be silent without anything being wrong.
    pub fn excuses_silence(self) -> bool {
        self.is_off() || matches!(self, Self::PoweringDown { .. } | Self::Rebooting { .. })
    }

    /// Whether the node takes no more jobs until it has been powered down or rebooted.
    pub fn drains(self) -> bool {
        matches!(
            self,
            Self::PowerDownPending { drains: true } | Self::RebootPending { drains: true, .. }
        )
    }

    /// The program that is to be called for the node, and was not called to its end yet.
    pub fn program_due(self) -> Option<PowerProgram> {
        match self {
            Self::PoweringDown { called: false, .. } => Some(PowerProgram::Suspend),
            Self::PoweringUp { called: false, .. } => Some(PowerProgram::Resume),
            Self::ResumeFailed => Some(PowerProgram::ResumeFail),
            _ => None,
        }
    }

    /// The state once the program that was due has been called.
    pub fn after_program(self, program: PowerProgram) -> Self {
        match (self, program) {
            (Self::PoweringDown { since, then_up, answered, .. }, PowerProgram::Suspend) => {
                Self::PoweringDown { since, called: true, then_up, answered }
            }
            (Self::PoweringUp { since, .. }, PowerProgram::Resume) => {
                Self::PoweringUp { since, called: true }
            }
            (Self::ResumeFailed, PowerProgram::ResumeFail) => Self::PoweredDown,
            (other, _) => other,
        }
    }
}

/// A program of the site that the server calls for nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PowerProgram {
    Suspend,
    Resume,
    ResumeFail,
}

impl PowerProgram {
    pub const ALL: [Self; 3] = [Self::Suspend, Self::Resume, Self::ResumeFail];

    /// The key of slurm.conf that names it.
    pub fn key(self) -> &'static str {
        match self {
            Self::Suspend => "SuspendProgram",
            Self::Resume => "ResumeProgram",
            Self::ResumeFail => "ResumeFailProgram",
        }
    }
}

/// `nextstate=` of a reboot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AfterReboot {
    /// As before it: a node that was drained stays so.
    #[default]
    AsBefore,
    Resume,
    Down,
}

/// What is asked of a node's power.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PowerRequest {
    Up,
    Down(PowerDownMode),
    Reboot {
        drains: bool,
        next: AfterReboot,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    CancelReboot,
}

/// When a node is powered down that has jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PowerDownMode {
    /// Once it has none.
    #[default]
    WhenIdle,
    /// The same, and it takes no more of them.
    Asap,
    /// At once: its jobs are ended or requeued.
    Force,
}

/// What the site has configured: `Suspend…`, `Resume…`, `RebootProgram`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PowerPolicy {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub suspend_program: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resume_program: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resume_fail_program: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reboot_program: Option<String>,
    /// `None`: never.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub suspend_time_s: Option<u32>,
    pub suspend_timeout_s: u32,
    pub resume_timeout_s: u32,
    /// Nodes a minute; 0: as many as there are.
    pub suspend_rate: u32,
    pub resume_rate: u32,
    /// `SuspendExcNodes`
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub exempt_nodes: Vec<ExemptNodes>,
    /// `SuspendExcParts`
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub exempt_partitions: Vec<String>,
    /// `SuspendExcStates`
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub exempt_states: Vec<ExemptState>,
    /// `idle_on_node_suspend`: a node that was down or drained is in service again once it is suspended.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub idle_on_suspend: bool,
    /// `cloud_reg_addrs`: a node of a cloud has the address and the host name that its agent reports.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub reported_addresses: bool,
    /// How often nodes to suspend are looked for, and how often at most where something changed.
    pub interval_s: u32,
    pub min_interval_s: u32,
}

impl Default for PowerPolicy {
    fn default() -> Self {
        Self {
            suspend_program: None,
            resume_program: None,
            resume_fail_program: None,
            reboot_program: None,
            suspend_time_s: None,
            suspend_timeout_s: 30,
            resume_timeout_s: 60,
            suspend_rate: 60,
            resume_rate: 300,
            exempt_nodes: Vec::new(),
            exempt_partitions: Vec::new(),
            exempt_states: Vec::new(),
            idle_on_suspend: false,
            reported_addresses: false,
            interval_s: 10,
            min_interval_s: 0,
        }
    }
}

impl PowerPolicy {
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// Whether nodes can be powered down and up again.
    pub fn is_enabled(&self) -> bool {
        self.suspend_program.is_some() && self.resume_program.is_some()
    }

    pub fn program(&self, program: PowerProgram) -> Option<&str> {
        match program {
            PowerProgram::Suspend => self.suspend_program.as_deref(),
            PowerProgram::Resume => self.resume_program.as_deref(),
            PowerProgram::ResumeFail => self.resume_fail_program.as_deref(),
        }
    }
}

/// What a partition sets for its nodes. Of several partitions of a node the longest time counts.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct PartitionPower {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub suspend_time: Option<SuspendTime>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub suspend_timeout_s: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resume_timeout_s: Option<u32>,
    /// `PowerDownOnIdle`: its nodes are powered down when their last job has ended.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub down_on_idle: bool,
}

impl PartitionPower {
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// The seconds that a node is idle before it is suspended. The order is that of the times: never is the longest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SuspendTime {
    Seconds(u32),
    Never,
}

impl SuspendTime {
    pub fn seconds(self) -> Option<u32> {
        match self {
            Self::Seconds(seconds) => Some(seconds),
            Self::Never => None,
        }
    }
}

/// Nodes that are not suspended: all of these, or so many of them as are idle.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExemptNodes {
    pub nodes: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<u32>,
}

/// A state whose nodes are not suspended by themselves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExemptState {
    Cloud,
    Down,
    Drain,
    DynamicFuture,
    DynamicNorm,
    Fail,
    InvalidReg,
    Maintenance,
    NotResponding,
    Reserved,
}

/// How many nodes were sent up and down in one minute, for the rates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct PowerCounts {
    /// Minutes since 1970.
    pub minute: i64,
    pub down: u32,
    pub up: u32,
}

impl PowerCounts {
    fn at(self, now: Timestamp) -> Self {
        let minute = now.secs().div_euclid(60);
        if self.minute == minute { self } else { Self { minute, down: 0, up: 0 } }
    }

    /// Counts a node that goes down or up now.
    pub fn add(&mut self, power: PowerState, now: Timestamp) {
        *self = self.at(now);
        match power {
            PowerState::PoweringDown { called: false, .. } => self.down += 1,
            PowerState::PoweringUp { called: false, .. } => self.up += 1,
            _ => {}
        }
    }

    /// How many more nodes may go down, and up, in this minute.
    pub fn left(self, policy: &PowerPolicy, now: Timestamp) -> (usize, usize) {
        let counts = self.at(now);
        let left = |rate: u32, used: u32| match rate {
            0 => usize::MAX,
            rate => rate.saturating_sub(used) as usize,
        };
        (left(policy.suspend_rate, counts.down), left(policy.resume_rate, counts.up))
    }

    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SINCE: Timestamp = Timestamp::from_secs(600);

    #[test]
    fn program_is_due_until_it_was_called() {
        let states = [
            (PowerState::PoweringUp { since: SINCE, called: false }, PowerProgram::Resume),
            (
                PowerState::PoweringDown {
                    since: SINCE,
                    called: false,
                    then_up: true,
                    answered: false,
                },
                PowerProgram::Suspend,
            ),
            (PowerState::ResumeFailed, PowerProgram::ResumeFail),
        ];
        for (state, program) in states {
            assert_eq!(state.program_due(), Some(program), "{state:?}");
            assert_eq!(state.after_program(program).program_due(), None, "{state:?}");
            let others = PowerProgram::ALL.into_iter().filter(|other| *other != program);
            others.for_each(|other| assert_eq!(state.after_program(other), state));
        }
        assert_eq!(PowerState::On.program_due(), None);
    }

    #[test]
    fn rates_are_of_one_minute_and_zero_is_without_limit() {
        let policy = PowerPolicy { suspend_rate: 2, resume_rate: 0, ..PowerPolicy::default() };
        let down = PowerState::PoweringDown {
            since: SINCE,
            called: false,
            then_up: false,
            answered: false,
        };
        let mut counts = PowerCounts::default();
        counts.add(down, SINCE);
        assert_eq!(counts.left(&policy, SINCE), (1, usize::MAX));
        counts.add(down, Timestamp::from_secs(659));
        assert_eq!(counts.left(&policy, Timestamp::from_secs(659)).0, 0);
        assert_eq!(counts.left(&policy, Timestamp::from_secs(660)).0, 2);
        counts.add(down.after_program(PowerProgram::Suspend), Timestamp::from_secs(660));
        assert_eq!(counts.left(&policy, Timestamp::from_secs(660)).0, 2, "not a second time");
    }
}
