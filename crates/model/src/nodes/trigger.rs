//! Triggers: programs of the site that run when something happens to a node or a job (`strigger`).

use crate::id::JobId;
use crate::time::Timestamp;
use serde::{Deserialize, Serialize};

/// What a trigger waits for. Beside `Fini` and `Time` the nodes are all, the named ones, or those of the job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TriggerEvent {
    /// A node went down.
    Down,
    /// A node that was down is back.
    Up,
    /// A node is drained: nothing runs there any more.
    Drained,
    /// A node was set to fail.
    Fail,
    /// A node was idle for as long as the offset.
    Idle,
    /// The job ended.
    Fini,
    /// The job reached its time limit.
    Time,
}

impl TriggerEvent {
    /// Slurm's word in `strigger --get`.
    pub fn word(self) -> &'static str {
        match self {
            Self::Down => "down",
            Self::Up => "up",
            Self::Drained => "drained",
            Self::Fail => "fail",
            Self::Idle => "idle",
            Self::Fini => "fini",
            Self::Time => "time",
        }
    }

    /// Whether it is about a job and no node.
    pub fn is_of_job(self) -> bool {
        matches!(self, Self::Fini | Self::Time)
    }
}

/// What a trigger is about.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TriggerSubject {
    Job(JobId),
    /// No names: every node.
    Nodes(Vec<String>),
}

/// What is asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TriggerRequest {
    pub subject: TriggerSubject,
    pub event: TriggerEvent,
    /// Seconds after the event; before it where that can be known.
    #[serde(default)]
    pub offset_s: i32,
    /// The path of a program on the server's machine, and words that are handed to it before its subject.
    pub program: String,
    /// It stays after it has fired.
    #[serde(default)]
    pub permanent: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trigger {
    pub id: u32,
    pub owner: String,
    pub owner_uid: u32,
    pub set: Timestamp,
    #[serde(flatten)]
    pub request: TriggerRequest,
}

/// Which triggers are meant: those that fit all that is said.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct TriggerFilter {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<JobId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event: Option<TriggerEvent>,
}

impl TriggerFilter {
    pub fn admits(&self, trigger: &Trigger) -> bool {
        self.id.is_none_or(|id| id == trigger.id)
            && self.job.is_none_or(|job| trigger.request.subject == TriggerSubject::Job(job))
            && self.user.as_ref().is_none_or(|user| *user == trigger.owner)
            && self.event.is_none_or(|event| event == trigger.request.event)
    }
}

/// How far before or after its event a trigger may fire.
pub const OFFSET_MAX_S: i32 = 365 * 24 * 3600;

/// Checks what does not depend on the cluster.
pub fn check(request: &TriggerRequest) -> Result<(), String> {
    let TriggerRequest { subject, event, offset_s, program, permanent } = request;
    if event.is_of_job() && !matches!(subject, TriggerSubject::Job(_)) {
        return Err(format!("--{} is about a job: name it with --jobid", event.word()));
    }
    if event.is_of_job() && *permanent {
        return Err("a job ends once: --flags=perm is for nodes".into());
    }
    if matches!(subject, TriggerSubject::Job(_))
        && matches!(event, TriggerEvent::Idle | TriggerEvent::Drained | TriggerEvent::Fail)
    {
        return Err(format!("--{} is about nodes: name them with --node", event.word()));
    }
    if offset_s.unsigned_abs() > OFFSET_MAX_S.unsigned_abs() {
        return Err(format!("--offset={offset_s}: expected at most {OFFSET_MAX_S} seconds"));
    }
    if *offset_s < 0 && *event != TriggerEvent::Time {
        return Err(format!(
            "--offset={offset_s}: only the time limit of a job is known before it is reached (--time)"
        ));
    }
    if !program.starts_with('/') || program.chars().any(char::is_control) {
        return Err(format!("--program={program:?}: expected the full path of a program"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(event: TriggerEvent, subject: TriggerSubject) -> TriggerRequest {
        let program = "/sbin/notify urgent".into();
        TriggerRequest { subject, event, offset_s: 0, program, permanent: false }
    }

    #[test]
    fn only_what_can_come_about_is_taken() {
        let (nodes, job) = (TriggerSubject::Nodes(Vec::new()), TriggerSubject::Job(JobId(7)));
        let good = [
            request(TriggerEvent::Down, nodes.clone()),
            request(TriggerEvent::Down, job.clone()),
            request(TriggerEvent::Fini, job.clone()),
            TriggerRequest { offset_s: -60, ..request(TriggerEvent::Time, job.clone()) },
            TriggerRequest { offset_s: 900, ..request(TriggerEvent::Idle, nodes.clone()) },
        ];
        for request in good {
            assert_eq!(check(&request), Ok(()), "{request:?}");
        }
        let down = request(TriggerEvent::Down, nodes.clone());
        let bad = [
            request(TriggerEvent::Fini, nodes),
            request(TriggerEvent::Idle, job.clone()),
            TriggerRequest { permanent: true, ..request(TriggerEvent::Time, job) },
            TriggerRequest { offset_s: -1, ..down.clone() },
            TriggerRequest { offset_s: OFFSET_MAX_S + 1, ..down.clone() },
            TriggerRequest { program: "notify".into(), ..down.clone() },
            TriggerRequest { program: "/sbin/notify\nrm".into(), ..down },
        ];
        for request in bad {
            assert!(check(&request).is_err(), "{request:?}");
        }
    }
}
