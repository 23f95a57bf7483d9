//! Node states: what `sinfo` and `scontrol` call the state that a node's view shows.

use model::health::HealthSource;
use model::node::{AdminState, SlotState};
use model::node_reason::{NodeCause, NodeReason, ReasonAuthor};
use model::power::PowerState;
use wire::reservation::ReservationPurpose;
use wire::view::NodeView;

/// Slurm's base state of a node. The order is Slurm's own, by which `sinfo` sorts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Base {
    Unknown,
    Down,
    Idle,
    Allocated,
    Mixed,
    Future,
}

/// A node's state as Slurm composes it: a base and flags.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodeState {
    pub base: Base,
    pub drain: bool,
    /// The machine has less than the configuration says.
    pub invalid: bool,
    pub fail: bool,
    pub completing: bool,
    pub not_responding: bool,
    /// `State=CLOUD` in slurm.conf.
    pub cloud: bool,
    /// The machine became a FUTURE node that it is like.
    pub dynamic_future: bool,
    pub dynamic: bool,
    pub power: PowerState,
    /// Set while a reservation holds the node.
    pub reserved_for: Option<ReservationPurpose>,
}

impl NodeState {
    pub fn of(node: &NodeView) -> Self {
        let usable = node.config.usable_cpus().len();
        let base = match (node.slot, node.admin) {
            (_, Some(AdminState::Future)) => Base::Future,
            (SlotState::Down, _) | (_, Some(AdminState::Down)) => Base::Down,
            (SlotState::Joining, _) if !node.power.excuses_silence() => Base::Unknown,
            _ if node.cpus_allocated == 0 && node.job_count == 0 => Base::Idle,
            _ if node.cpus_allocated >= usable => Base::Allocated,
            _ => Base::Mixed,
        };
        let is_awaited = match node.power {
            PowerState::PoweringUp { .. } | PowerState::Rebooting { .. } => true,
            power => !power.excuses_silence() || base == Base::Down,
        };
        Self {
            base,
            drain: node.admin == Some(AdminState::Drain) || node.power.drains(),
            invalid: node.admin == Some(AdminState::Drain)
                && node.reason.as_ref().is_some_and(is_of_hardware),
            fail: node.admin == Some(AdminState::Fail),
            completing: node.completing,
            not_responding: node.slot != SlotState::Up && is_awaited,
            cloud: node.config.cloud,
            dynamic_future: node.dynamic_future,
            dynamic: node.config.dynamic,
            power: node.power,
            reserved_for: node.reserved_for,
        }
    }

    /// Whether jobs run or complete on the node.
    pub fn is_busy(self) -> bool {
        self.completing || matches!(self.base, Base::Allocated | Base::Mixed)
    }

    /// Whether the node takes new jobs.
    pub fn is_available(self) -> bool {
        let goes_down =
            matches!(self.power, PowerState::PoweringDown { .. } | PowerState::Rebooting { .. });
        !self.drain
            && !self.fail
            && !self.not_responding
            && !goes_down
            && matches!(self.base, Base::Idle | Base::Allocated | Base::Mixed)
    }

    /// `mixed`, `draining`, `idle*`: the long form of `sinfo`.
    pub fn long(self) -> String {
        format!("{}{}", self.words().0, self.mark())
    }

    /// `mix`, `drng`, `idle*`: the short form of `sinfo`.
    pub fn compact(self) -> String {
        format!("{}{}", self.words().1, self.mark())
    }

    fn words(self) -> (&'static str, &'static str) {
        match (self.base, self.is_busy()) {
            (Base::Future, _) => ("future", "futr"),
            _ if self.invalid => ("inval", "inval"),
            (_, true) if self.drain => ("draining", "drng"),
            (_, false) if self.drain => ("drained", "drain"),
            (_, true) if self.fail => ("failing", "failg"),
            (_, false) if self.fail => ("fail", "fail"),
            (Base::Unknown, _) => ("unknown", "unk"),
            (Base::Down, _) => ("down", "down"),
            (Base::Allocated, _) if self.completing => ("allocated+", "alloc+"),
            (Base::Allocated, _) => ("allocated", "alloc"),
            (_, _) if self.completing => ("completing", "comp"),
            (Base::Idle, _) if self.is_maintained() => ("maint", "maint"),
            (Base::Idle, _) if self.reserved_for.is_some() => ("reserved", "resv"),
            (Base::Idle, _) => ("idle", "idle"),
            (Base::Mixed, _) => ("mixed", "mix"),
        }
    }

    /// The sign behind the word. The power state comes first, then `*` for a node that does not answer.
    fn mark(self) -> &'static str {
        match self.power {
            PowerState::PoweredDown | PowerState::PowerUpPending | PowerState::ResumeFailed => "~",
            PowerState::PoweringUp { .. } => "#",
            PowerState::PowerDownPending { .. } => "!",
            PowerState::PoweringDown { .. } => "%",
            PowerState::RebootPending { .. } => "@",
            PowerState::Rebooting { .. } => "^",
            PowerState::On if self.not_responding => "*",
            PowerState::On if self.is_maintained() && self.is_busy() => "$",
            PowerState::On => "",
        }
    }

    fn is_maintained(self) -> bool {
        self.reserved_for == Some(ReservationPurpose::Maintenance)
    }

    fn base_word(self) -> &'static str {
        match self.base {
            Base::Unknown => "UNKNOWN",
            Base::Down => "DOWN",
            Base::Idle => "IDLE",
            Base::Allocated => "ALLOCATED",
            Base::Mixed => "MIXED",
            Base::Future => "FUTURE",
        }
    }

    /// The flags' words, as `scontrol` joins them.
    pub fn flags(self) -> Vec<&'static str> {
        let power: &[&str] = match self.power {
            PowerState::On => &[],
            PowerState::PoweredDown | PowerState::ResumeFailed => &["POWERED_DOWN"],
            PowerState::PowerUpPending => &["POWERED_DOWN", "POWER_UP"],
            PowerState::PoweringUp { .. } => &["POWERING_UP"],
            PowerState::PowerDownPending { .. } => &["POWER_DOWN"],
            PowerState::PoweringDown { .. } => &["POWERING_DOWN"],
            PowerState::RebootPending { .. } => &["REBOOT_REQUESTED"],
            PowerState::Rebooting { .. } => &["REBOOT_ISSUED"],
        };
        [
            self.cloud.then_some("CLOUD"),
            self.drain.then_some("DRAIN"),
            self.dynamic_future.then_some("DYNAMIC_FUTURE"),
            self.dynamic.then_some("DYNAMIC_NORM"),
            self.invalid.then_some("INVALID_REG"),
            self.fail.then_some("FAIL"),
            self.completing.then_some("COMPLETING"),
            self.is_maintained().then_some("MAINTENANCE"),
            self.reserved_for.map(|_| "RESERVED"),
            self.not_responding.then_some("NOT_RESPONDING"),
        ]
        .into_iter()
        .flatten()
        .chain(power.iter().copied())
        .collect()
    }

    /// `MIXED+DRAIN`: the form of `scontrol show node`.
    pub fn full(self) -> String {
        let mut words = vec![self.base_word()];
        words.extend(self.flags());
        words.join("+")
    }

    /// The base state in lower case, as `--json` prints it.
    pub fn base_lower(self) -> String {
        self.base_word().to_ascii_lowercase()
    }

    /// The sort key of `sinfo -S t`: states with a flag come after all without.
    pub fn rank(self) -> (bool, Option<ReservationPurpose>, Base) {
        let flagged = self.drain || self.fail || self.not_responding || !self.power.is_on();
        (flagged, self.reserved_for, self.base)
    }
}

type Test = fn(NodeState) -> bool;

/// One word of `sinfo -t`.
#[derive(Debug, Clone, Copy)]
pub struct StateFilter(Test);

impl StateFilter {
    pub fn admits(self, state: NodeState) -> bool {
        (self.0)(state)
    }
}

/// A word of `sinfo -t`, its compact form, and the states that it lets through. Not formatted by rustfmt: a row is one line.
#[rustfmt::skip]
const FILTERS: [(&str, &str, Test); 24] = [
    ("unknown",       "unk",   |s| s.base == Base::Unknown),
    ("down",          "down",  |s| s.base == Base::Down),
    ("idle",          "idle",  |s| s.base == Base::Idle && !s.drain && !s.fail && !s.completing),
    ("allocated",     "alloc", |s| matches!(s.base, Base::Allocated) || s.completing),
    ("mixed",         "mix",   |s| s.base == Base::Mixed),
    ("future",        "futr",  |s| s.base == Base::Future),
    ("drain",         "drain", |s| s.drain),
    ("drained",       "drain", |s| s.drain && !s.is_busy()),
    ("draining",      "drng",  |s| s.drain && s.is_busy()),
    ("no_respond",    "no_respond", |s| s.not_responding),
    ("reserved",      "resv",  |s| s.reserved_for.is_some()),
    ("maint",         "maint", |s| s.is_maintained()),
    ("completing",    "comp",  |s| s.completing),
    ("fail",          "fail",  |s| s.fail),
    ("failing",       "failg", |s| s.fail && s.is_busy()),
    ("cloud",         "cloud", |s| s.cloud),
    ("powering_down", "pow_dn", |s| matches!(s.power, PowerState::PoweringDown { .. })),
    ("powered_down",  "powered_down", |s| s.power.is_off() && !matches!(s.power, PowerState::PoweringUp { .. })),
    ("power_down",    "power_down", |s| matches!(s.power, PowerState::PowerDownPending { .. })),
    ("powering_up",   "pow_up", |s| matches!(s.power, PowerState::PoweringUp { .. })),
    ("reboot",        "boot", |s| matches!(s.power, PowerState::RebootPending { .. })),
    ("reboot_requested", "reboot@", |s| matches!(s.power, PowerState::RebootPending { .. })),
    ("reboot^",       "boot^", |s| matches!(s.power, PowerState::Rebooting { .. })),
    ("reboot_issued", "reboot_issued", |s| matches!(s.power, PowerState::Rebooting { .. })),
];

/// A state that `sinfo -t` does not know.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("Bad state string: \"{0}\"")]
pub struct BadState(pub String);

impl BadState {
    /// The line after the error.
    pub fn valid_states() -> String {
        let words: Vec<&str> = FILTERS.iter().map(|(word, ..)| *word).collect();
        format!("valid states: {}", words.join(","))
    }
}

/// The states of `sinfo -t`, with commas; `all` gives no filter.
pub fn parse_filters(text: &str) -> Result<Vec<StateFilter>, BadState> {
    if text.trim().eq_ignore_ascii_case("all") {
        return Ok(Vec::new());
    }
    let read = |word: &str| {
        let is = |name: &str| name.eq_ignore_ascii_case(word);
        let row = FILTERS.iter().find(|(long, compact, _)| is(long) || is(compact));
        row.map(|(.., test)| StateFilter(*test)).ok_or_else(|| BadState(word.to_owned()))
    };
    text.split(',').map(|word| read(word.trim())).collect()
}

fn is_of_hardware(reason: &NodeReason) -> bool {
    matches!(reason.cause, NodeCause::Unhealthy { source: HealthSource::Hardware, .. })
}

/// The text of `sinfo -R` for a node's reason.
pub fn reason_text(reason: &NodeReason) -> &str {
    match &reason.cause {
        NodeCause::NotResponding => "Not responding",
        NodeCause::Text(text) | NodeCause::Unhealthy { text, .. } => text,
    }
}

/// Who set the reason, by name and user id. The server signs as Slurm's own user does.
pub fn reason_user(reason: &NodeReason) -> (&str, u32) {
    match &reason.author {
        ReasonAuthor::System => ("slurm", 0),
        ReasonAuthor::User { name, uid } => (name, *uid),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::samples;

    /// Slot state, administrative state, allocated CPUs, jobs, completing; then the compact, long and full word.
    #[rustfmt::skip]
    #[test]
    fn node_states_have_the_words_of_slurm() {
        use {AdminState as A, SlotState as S};
        let table = [
            (S::Up, None, 0, 0, false, "idle", "idle", "IDLE"),
            (S::Up, None, 4, 1, false, "mix", "mixed", "MIXED"),
            (S::Up, None, 32, 1, false, "alloc", "allocated", "ALLOCATED"),
            (S::Up, None, 4, 1, true, "comp", "completing", "MIXED+COMPLETING"),
            (S::Up, Some(A::Drain), 4, 1, false, "drng", "draining", "MIXED+DRAIN"),
            (S::Up, Some(A::Drain), 0, 0, false, "drain", "drained", "IDLE+DRAIN"),
            (S::Up, Some(A::Down), 0, 0, false, "down", "down", "DOWN"),
            (S::Down, None, 0, 0, false, "down*", "down*", "DOWN+NOT_RESPONDING"),
            (S::Silent, None, 0, 0, false, "idle*", "idle*", "IDLE+NOT_RESPONDING"),
            (S::Joining, None, 0, 0, false, "unk*", "unknown*", "UNKNOWN+NOT_RESPONDING"),
            (S::Down, Some(A::Drain), 0, 0, false, "drain*", "drained*", "DOWN+DRAIN+NOT_RESPONDING"),
        ];
        for (slot, admin, cpus, jobs, completing, compact, long, full) in table {
            let mut node = samples::node("node1");
            (node.slot, node.admin, node.completing) = (slot, admin, completing);
            (node.cpus_allocated, node.job_count) = (cpus, jobs);
            let state = NodeState::of(&node);
            assert_eq!((state.compact().as_str(), state.long().as_str()), (compact, long));
            assert_eq!(state.full(), full);
        }
    }

    #[test]
    fn nodes_that_no_file_names_have_the_marks_of_slurm() {
        let mut node = samples::node("node1");
        node.dynamic_future = true;
        assert_eq!(NodeState::of(&node).full(), "IDLE+DYNAMIC_FUTURE");
        node.config.dynamic = true;
        assert_eq!(NodeState::of(&node).full(), "IDLE+DYNAMIC_FUTURE+DYNAMIC_NORM");
        node.dynamic_future = false;
        assert_eq!(NodeState::of(&node).full(), "IDLE+DYNAMIC_NORM");
    }

    /// Power, administrative state, allocated CPUs; then the compact and the full word of a node of a cloud whose agent is away,
    /// and the words of `sinfo -t` that list it.
    #[test]
    fn powered_nodes_have_the_marks_and_words_of_slurm() {
        use PowerState as P;
        let since = model::time::Timestamp::from_secs(1);
        let next = model::power::AfterReboot::AsBefore;
        let table = [
            (P::PoweredDown, None, 0, "idle~", "IDLE+CLOUD+POWERED_DOWN", "powered_down"),
            (
                P::PowerUpPending,
                None,
                32,
                "alloc~",
                "ALLOCATED+CLOUD+POWERED_DOWN+POWER_UP",
                "powered_down",
            ),
            (
                P::PoweringUp { since, called: true },
                None,
                32,
                "alloc#",
                "ALLOCATED+CLOUD+NOT_RESPONDING+POWERING_UP",
                "powering_up",
            ),
            (
                P::PoweringDown { since, called: true, then_up: false, answered: false },
                None,
                0,
                "idle%",
                "IDLE+CLOUD+POWERING_DOWN",
                "powering_down",
            ),
            (
                P::ResumeFailed,
                Some(AdminState::Down),
                0,
                "down~",
                "DOWN+CLOUD+NOT_RESPONDING+POWERED_DOWN",
                "down",
            ),
            (
                P::Rebooting { since, next },
                None,
                0,
                "idle^",
                "IDLE+CLOUD+NOT_RESPONDING+REBOOT_ISSUED",
                "reboot^",
            ),
        ];
        for (power, admin, cpus, compact, full, filter) in table {
            let mut node = samples::node("node1");
            (node.power, node.admin, node.cpus_allocated) = (power, admin, cpus);
            (node.slot, node.config.cloud, node.job_count) =
                (SlotState::Joining, true, cpus.min(1));
            let state = NodeState::of(&node);
            assert_eq!((state.compact().as_str(), state.full().as_str()), (compact, full));
            for word in [filter, "cloud"] {
                assert!(parse_filters(word).expect("a state")[0].admits(state), "{full}: {word}");
            }
            assert!(!parse_filters("power_down").expect("a state")[0].admits(state), "{full}");
        }
        let mut node = samples::node("node1");
        node.power = P::PowerDownPending { drains: true };
        assert_eq!(NodeState::of(&node).compact(), "drain!");
        node.power = P::RebootPending { drains: false, next };
        assert_eq!(NodeState::of(&node).full(), "IDLE+REBOOT_REQUESTED");
        assert_eq!(NodeState::of(&node).compact(), "idle@");
    }

    /// As captured: reserved, reserved for maintenance, and each with a job on it.
    #[test]
    fn reserved_nodes_have_the_words_of_slurm() {
        let table = [
            (ReservationPurpose::Users, 0, "resv", "reserved", "IDLE+RESERVED"),
            (ReservationPurpose::Users, 1, "mix", "mixed", "MIXED+RESERVED"),
            (ReservationPurpose::Maintenance, 0, "maint", "maint", "IDLE+MAINTENANCE+RESERVED"),
            (ReservationPurpose::Maintenance, 1, "mix$", "mixed$", "MIXED+MAINTENANCE+RESERVED"),
        ];
        for (reserved_for, jobs, compact, long, full) in table {
            let mut node = samples::node("node1");
            (node.reserved_for, node.job_count, node.cpus_allocated) =
                (Some(reserved_for), jobs, jobs);
            let state = NodeState::of(&node);
            assert_eq!((state.compact().as_str(), state.long().as_str()), (compact, long));
            assert_eq!(state.full(), full);
            let idle = parse_filters("idle").expect("a state")[0];
            assert_eq!(idle.admits(state), jobs == 0, "{full}");
        }
    }

    #[test]
    fn an_unknown_state_is_refused_with_the_list_of_states() {
        let refused = parse_filters("idle,bogus").expect_err("not a state");
        assert_eq!(refused.to_string(), "Bad state string: \"bogus\"");
        assert!(BadState::valid_states().starts_with("valid states: unknown,down,idle,allocated,"));
        let count = |text| parse_filters(text).map(|filters| filters.len());
        assert_eq!((count("all"), count("IDLE,drng")), (Ok(0), Ok(2)));
    }
}
