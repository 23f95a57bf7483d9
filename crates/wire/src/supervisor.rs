//! Between an agent and the supervisor of one attempt: frames on a local socket, JSON on channel 0.
//!
//! A supervisor tells a new connection everything that it has not been told is taken, so that an agent
//! that was restarted learns what it missed. What comes twice carries the same number.

use crate::order::Action;
use crate::report::ReportEvent;
use crate::stream::StepRole;
use model::id::{AttemptId, StepId};
use model::load::LiveUsage;
use model::time::Timestamp;
use serde::{Deserialize, Serialize};

pub const CHANNEL: u8 = 0;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToSupervisor {
    /// An order that the agent has verified; `Launch` and `Forget` are the agent's own.
    #[serde(rename = "do")]
    Execute(Action),
    /// The server has every event up to this number.
    #[serde(rename = "taken")]
    Acknowledge { number: u64 },
    /// The client at the end of this stream is gone for good.
    ClientGone { step: StepId, stream: u32 },
    /// Asks what the steps use now.
    Measure {
        #[serde(rename = "ask")]
        request: u64,
    },
    /// A line for the error output of the job's script and steps. Sent only to a supervisor that takes notices.
    Notice { line: String },
    /// The machine goes: the signal that the job asked for before its time limit is sent now. Sent only to a supervisor that
    /// takes notices.
    Warn,
}

/// The first frame of a connection to a supervisor's second socket; what follows are the frames of the step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepStream {
    pub step: StepId,
    pub role: StepRole,
    /// Its number on the agent's link.
    pub stream: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FromSupervisor {
    Hello {
        version: u32,
        attempt: AttemptId,
        /// The supervisor itself: its socket may be held open by a child that has yet to execute. 0: not said.
        #[serde(default)]
        pid: i32,
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        takes_notices: bool,
    },
    Event(SupervisorEvent),
    #[serde(rename = "step_taken")]
    StepAccepted {
        step: StepId,
    },
    Measured {
        #[serde(rename = "ask")]
        request: u64,
        #[serde(flatten)]
        used: LiveUsage,
    },
    /// An order could not be carried out; the attempt goes on.
    Refused {
        why: String,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SupervisorEvent {
    /// Counts from 1 within the attempt.
    pub number: u64,
    /// By the node's own clock.
    pub at: Timestamp,
    pub event: ReportEvent,
}

impl SupervisorEvent {
    /// Nothing of the attempt is left, and nothing follows.
    pub fn is_last(&self) -> bool {
        matches!(self.event, ReportEvent::Ended(_) | ReportEvent::LaunchFailed { .. })
    }
}
