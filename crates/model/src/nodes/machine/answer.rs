//! Whether a machine is made for a waiting job, and what holds its source back where it is not.

use super::FailureKind;
use crate::price::{Cost, Price};
use crate::printable::printable;
use crate::reason::Reason;
use crate::time::Timestamp;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Whether a machine is made for a waiting job, and why not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MachineAnswer {
    /// One is asked for now.
    Ordered { source: String, offer: String, price: Price },
    /// One that was asked for already has room for it.
    Coming,
    /// Other nodes are expected to be free before a machine would be up.
    NodesSooner,
    /// The machine that was made for it has joined, and the job does not start there.
    Unserved,
    /// The job is to wait for what is there.
    ReuseOnly,
    /// It names its nodes or a reservation, or is part of a heterogeneous job: a new machine is of no use to it.
    Bound,
    /// No source of its partitions has an offer that could hold it.
    NoOffer,
    /// There are such offers, and these causes hold their sources back.
    HeldBack(Vec<SourceHold>),
}

impl MachineAnswer {
    /// Whether a machine is on its way that has room for the job.
    pub fn is_coming(&self) -> bool {
        matches!(self, Self::Ordered { .. } | Self::Coming)
    }

    /// The answer for those who are not to read what sources said of their failures: it may name accounts and files of the site.
    pub fn without_failure_texts(mut self) -> Self {
        if let Self::HeldBack(holds) = &mut self {
            for hold in holds {
                if let HoldCause::Failed { text, .. } = &mut hold.cause {
                    text.clear();
                }
            }
        }
        self
    }

    /// Why the job waits, where a plan that knows of nodes alone says `planned`.
    pub fn reason(&self, planned: &Reason) -> Reason {
        match planned {
            Reason::PartitionNodeLimit | Reason::NodesDown | Reason::BadConstraints
                if !matches!(self, Self::NoOffer | Self::ReuseOnly | Self::Bound) =>
            {
                Reason::Resources
            }
            planned => planned.clone(),
        }
    }
}

/// Whether more nodes could end the wait. Where a partition has too few nodes for a job, or none that could hold it, the reason
/// is not `Resources`.
pub fn is_for_nodes(reason: &Reason) -> bool {
    matches!(
        reason,
        Reason::Resources
            | Reason::Priority
            | Reason::PartitionNodeLimit
            | Reason::NodesDown
            | Reason::BadConstraints
    )
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceHold {
    pub source: String,
    pub cause: HoldCause,
}

/// What keeps a source from making one more machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HoldCause {
    /// It has as many machines as it may have.
    Machines {
        most: u32,
    },
    PriceHour {
        most: Price,
    },
    /// An hour of it is more than the month's budget has left.
    Budget,
    /// An hour of it is more than the job's account, or one above it, has left of what its jobs may cost in the month.
    AccountBudget {
        account: String,
        month: Cost,
    },
    /// The fleet has as many instances as it may have.
    Fleet {
        fleet: String,
        most: u32,
    },
    /// `MaxNodeCount`
    NodeCount,
    /// It failed a short while ago, and is asked again then.
    Failed {
        kind: FailureKind,
        /// As the source, or who missed its machine, said it.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        text: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        until: Option<Timestamp>,
    },
}

impl HoldCause {
    /// When it ends by itself, where that is known.
    pub fn until(&self) -> Option<Timestamp> {
        match self {
            Self::Failed { until, .. } => *until,
            _ => None,
        }
    }
}

/// A source, or one of its offers, that is left alone after a failure.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourcePause {
    /// `None`: all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offer: Option<String>,
    pub kind: FailureKind,
    /// The last failure in the source's own words.
    pub text: String,
    pub until: Timestamp,
}

impl SourcePause {
    pub fn is_of(&self, offer: &str) -> bool {
        self.offer.as_deref().is_none_or(|id| id == offer)
    }

    /// What holds the source back by it.
    pub fn cause(&self) -> HoldCause {
        HoldCause::Failed { kind: self.kind, text: self.text.clone(), until: Some(self.until) }
    }
}

impl fmt::Display for HoldCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Machines { most } => write!(f, "it has {most} machines, as many as it may have"),
            Self::PriceHour { most } => write!(f, "its machines may cost {most} an hour"),
            Self::Budget => f.write_str("an hour of one more is beyond the month's budget"),
            Self::AccountBudget { account, month } => {
                write!(
                    f,
                    "jobs of account {account} may cost {month} a month, and an hour of one more is beyond it"
                )
            }
            Self::Fleet { fleet, most } => {
                write!(f, "fleet {fleet} has {most} instances, as many as it may have")
            }
            Self::NodeCount => f.write_str("MaxNodeCount leaves no room for one more node"),
            Self::Failed { kind, text, .. } => {
                f.write_str("it failed a short while ago")?;
                if *kind != FailureKind::Unknown || text.is_empty() {
                    write!(f, " ({kind})")?;
                }
                if text.is_empty() { Ok(()) } else { write!(f, ": {}", printable(text)) }
            }
        }
    }
}
