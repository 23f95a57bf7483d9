//! Node states: what `sinfo` and `scontrol` call the state that a node's view shows.

use model::health::HealthSource;
use model::node::{AdminState, SlotState};
use model::node_reason::{NodeCause, NodeReason, ReasonAuthor};
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

/// The power state of a node, beside its base state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Power {
    On,
    PoweredDown,
    PoweringUp,
    PoweringDown,
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
    pub power: Power,
    /// Set while a reservation holds the node.
    pub reserved_for: Option<ReservationPurpose>,
}

impl NodeState {
    pub fn of(node: &NodeView) -> Self {
        let usable = node.config.usable_cpus().len();
        let base = match (node.slot, node.admin) {
            (_, Some(AdminState::Future)) => Base::Future,
            (SlotState::Down, _) | (_, Some(AdminState::Down)) => Base::Down,
            (SlotState::Joining, _) => Base::Unknown,
            _ if node.cpus_allocated == 0 && node.job_count == 0 => Base::Idle,
            _ if node.cpus_allocated >= usable => Base::Allocated,
            _ => Base::Mixed,
        };
        let power = match node.slot {
            SlotState::Wanted => Power::PoweredDown,
            SlotState::Provisioning => Power::PoweringUp,
            SlotState::Leaving => Power::PoweringDown,
            _ => Power::On,
        };
        Self {
            base,
            drain: node.admin == Some(AdminState::Drain),
            invalid: node.admin == Some(AdminState::Drain)
                && node.reason.as_ref().is_some_and(is_of_hardware),
            fail: node.admin == Some(AdminState::Fail),
            completing: node.completing,
            not_responding: matches!(
                node.slot,
                SlotState::Joining | SlotState::Silent | SlotState::Down
            ),
            power,
            reserved_for: node.reserved_for,
        }
    }

    /// Whether jobs run or complete on the node.
    pub fn is_busy(self) -> bool {
        self.completing || matches!(self.base, Base::Allocated | Base::Mixed)
    }

    /// Whether the node takes new jobs.
    pub fn is_available(self) -> bool {
        !self.drain && !self.fail && matches!(self.base, Base::Idle | Base::Allocated | Base::Mixed)
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
            Power::PoweredDown => "~",
            Power::PoweringUp => "#",
            Power::PoweringDown => "%",
            Power::On if self.not_responding => "*",
            Power::On if self.is_maintained() && self.is_busy() => "$",
            Power::On => "",
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
        let power = match self.power {
            Power::On => None,
            Power::PoweredDown => Some("POWERED_DOWN"),
            Power::PoweringUp => Some("POWERING_UP"),
            Power::PoweringDown => Some("POWERING_DOWN"),
        };
        [
            self.drain.then_some("DRAIN"),
            self.invalid.then_some("INVALID_REG"),
            self.fail.then_some("FAIL"),
            self.completing.then_some("COMPLETING"),
            self.is_maintained().then_some("MAINTENANCE"),
            self.reserved_for.map(|_| "RESERVED"),
            power,
            self.not_responding.then_some("NOT_RESPONDING"),
        ]
        .into_iter()
        .flatten()
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
        let flagged = self.drain || self.fail || self.not_responding || self.power != Power::On;
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
const FILTERS: [(&str, &str, Test); 19] = [
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
    ("powering_down", "pow_dn", |s| s.power == Power::PoweringDown),
    ("powered_down",  "powered_down", |s| s.power == Power::PoweredDown),
    ("power_down",    "power_down", |s| s.power == Power::PoweredDown),
    ("powering_up",   "pow_up", |s| s.power == Power::PoweringUp),
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
            (S::Provisioning, None, 0, 0, false, "idle#", "idle#", "IDLE+POWERING_UP"),
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
