//! What happened to runs, nodes, projects and users, in dstack's words: the lines of `dstack event`.
//!
//! A run's are made from its records, one for each attempt; the others were noted when they happened.

use crate::node_groups::merge_records;
use crate::run_summary::RunSummary;
use crate::status::{JobEnd, JobStatus, RunStatus};
use model::activity::{Activity, ActivityKind, ActivityTarget, SiteThing};
use model::id::{JobId, RunId};
use model::record::{JobRecord, RecordState};
use model::run::{LaunchKind, Outcome};
use model::time::Timestamp;
use std::collections::{HashMap, HashSet};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Occurrence {
    pub at: Timestamp,
    /// Tells apart, and orders, what happened at one moment to one thing.
    pub number: u64,
    pub actor: Option<Actor>,
    pub targets: Vec<Target>,
    pub message: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Actor {
    Named(String),
    /// The user with this number, whose name the records do not have.
    Uid(u32),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    Run {
        run: RunId,
        name: String,
        /// The account that it is charged to, which is its project where there is one of this name.
        account: String,
    },
    /// One node's part of one attempt.
    Job {
        run: RunId,
        restarts: u32,
        rank: u32,
        name: String,
        account: String,
    },
    Instance(String),
    Fleet {
        project: String,
        name: String,
    },
    Secret {
        project: String,
        name: String,
    },
    Volume {
        project: String,
        name: String,
        created: Timestamp,
    },
    Project(String),
    User(String),
    /// What dstack has no word for: other people's jobs, QOS, reservations, tokens, the configuration.
    Other {
        kind: &'static str,
        name: String,
    },
}

impl Target {
    /// dstack's word for the kind of thing.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Run { .. } => "run",
            Self::Job { .. } => "job",
            Self::Instance(_) => "instance",
            Self::Fleet { .. } => "fleet",
            Self::Secret { .. } => "secret",
            Self::Volume { .. } => "volume",
            Self::Project(_) => "project",
            Self::User(_) => "user",
            Self::Other { kind, .. } => kind,
        }
    }

    pub fn name(&self) -> &str {
        match self {
            Self::Run { name, .. } | Self::Job { name, .. } => name,
            Self::Fleet { name, .. } | Self::Secret { name, .. } | Self::Volume { name, .. } => {
                name
            }
            Self::Other { name, .. } => name,
            Self::Instance(name) | Self::Project(name) | Self::User(name) => name,
        }
    }

    /// The account of the run that it is, or is a part of; the project of a fleet, a secret or a volume.
    pub fn account(&self) -> Option<&str> {
        match self {
            Self::Run { account, .. } | Self::Job { account, .. } => Some(account),
            Self::Fleet { project, .. }
            | Self::Secret { project, .. }
            | Self::Volume { project, .. } => Some(project),
            _ => None,
        }
    }

    /// The run that it is, or is a part of.
    pub fn run(&self) -> Option<RunId> {
        match self {
            Self::Run { run, .. } | Self::Job { run, .. } => Some(*run),
            _ => None,
        }
    }
}

const JOB: &str = "Job";
const RUN: &str = "Run";

/// The name of a run among runs: jobs of `sbatch` may share a name, so their number is added.
pub fn run_name(kind: LaunchKind, name: &str, job: JobId) -> String {
    match kind {
        LaunchKind::Task => name.to_owned(),
        _ => format!("{name}-{job}"),
    }
}

/// One attempt of a run, in the order of what happened.
struct Telling<'a> {
    record: &'a JobRecord,
    run: Target,
    /// What the attempt was made by.
    why: &'static str,
    told: Vec<Occurrence>,
}

/// All that happened in the attempts that the records tell of.
pub fn of_records(records: Vec<JobRecord>) -> Vec<Occurrence> {
    let records = merge_records(records);
    let mut last: HashMap<JobId, u32> = HashMap::new();
    for record in &records {
        let attempt = last.entry(record.job).or_default();
        *attempt = record.attempt.max(*attempt);
    }
    let is_last = |record: &JobRecord| last.get(&record.job) == Some(&record.attempt);
    let was_requeued = |record: &&JobRecord| record.state == RecordState::Ended(Outcome::Requeued);
    let requeued: HashSet<(JobId, u32)> =
        records.iter().filter(was_requeued).map(|record| (record.job, record.attempt)).collect();
    let why = |record: &JobRecord| match record.attempt {
        0 | 1 => "run submission",
        attempt if requeued.contains(&(record.job, attempt - 1)) => "requeue",
        _ => "retry",
    };
    records.iter().flat_map(|record| of_record(record, why(record), is_last(record))).collect()
}

/// All that happened in an attempt; `why` it was made, and `is_last` for the last of its job.
fn of_record(record: &JobRecord, why: &'static str, is_last: bool) -> Vec<Occurrence> {
    let name = run_name(record.kind, &record.name, record.job);
    let run = Target::Run { run: record.run, name, account: record.account.clone() };
    let mut telling = Telling { record, run, why, told: Vec::new() };
    telling.submitted();
    telling.started();
    telling.ended(is_last);
    telling.told
}

impl Telling<'_> {
    fn tell(&mut self, at: Timestamp, actor: Option<Actor>, targets: Vec<Target>, message: String) {
        // An attempt has fewer than this many lines for a node, and a gang fewer nodes than there are numbers.
        let number = (u64::from(self.record.attempt) << 32) + self.told.len() as u64;
        self.told.push(Occurrence { at, number, actor, targets, message });
    }

    /// The parts of the attempt: one for each node.
    fn parts(&self) -> Vec<Target> {
        let count = self.record.nodes.len().max(1) as u32;
        let task = self.record.array_task.unwrap_or(0);
        let of_rank = |rank| Target::Job {
            run: self.record.run,
            restarts: self.record.attempt.saturating_sub(1),
            rank,
            name: format!("{}-{rank}-{task}", self.run.name()),
            account: self.record.account.clone(),
        };
        (0..count).map(of_rank).collect()
    }

    fn submitted(&mut self) {
        let at = self.record.submit;
        let first = self.record.attempt <= 1;
        if first {
            let actor = Some(Actor::Named(self.record.user.clone()));
            let message = "Run submitted. Status: SUBMITTED".to_owned();
            self.tell(at, actor, vec![self.run.clone()], message);
        }
        let why = self.why;
        for part in self.parts() {
            let message = format!("Job created on {why}. Status: SUBMITTED");
            self.tell(at, None, vec![part], message);
        }
    }

    fn started(&mut self) {
        let Some(at) = self.record.start else { return };
        let nodes = self.record.nodes.clone();
        for (part, node) in self.parts().into_iter().zip(nodes) {
            let targets = vec![part.clone(), Target::Instance(node)];
            self.tell(at, None, targets, "Job assigned to instance".to_owned());
            self.tell(
                at,
                None,
                vec![part],
                changed(JOB, JobStatus::Submitted, JobStatus::Running, None),
            );
        }
        let message = changed(RUN, RunStatus::Submitted, RunStatus::Running, None);
        self.tell(at, None, vec![self.run.clone()], message);
    }

    fn ended(&mut self, is_last: bool) {
        let (Some(at), RecordState::Ended(outcome)) = (self.record.end, self.record.state) else {
            return;
        };
        let summary = RunSummary::of_record(self.record);
        let Some(end) = summary.end else { return };
        let begun = self.record.start.is_some();
        let before = if begun { JobStatus::Running } else { JobStatus::Submitted };
        let nodes = self.record.nodes.clone();
        let said = match summary.error.as_str() {
            "" => end.word().to_uppercase(),
            // What the reason itself says in other words.
            error if end.error().as_deref() == Some(error) => end.word().to_uppercase(),
            error => format!("{} ({error})", end.word().to_uppercase()),
        };
        let reason = Some(said.as_str());
        for (rank, part) in self.parts().into_iter().enumerate() {
            let message = changed(JOB, before, JobStatus::Terminating, reason);
            self.tell(at, None, vec![part.clone()], message);
            let message = changed(JOB, JobStatus::Terminating, end.status(), None);
            self.tell(at, None, vec![part.clone()], message);
            if let Some(node) = nodes.get(rank) {
                let targets = vec![part, Target::Instance(node.clone())];
                self.tell(at, None, targets, "Job unassigned from instance".to_owned());
            }
        }
        let before = if begun { RunStatus::Running } else { RunStatus::Submitted };
        let run = vec![self.run.clone()];
        if !is_last {
            self.tell(at, None, run, changed(RUN, before, RunStatus::Pending, None));
            return;
        }
        let actor = match outcome {
            _ if end == JobEnd::TerminatedDueToUtilizationPolicy => None,
            Outcome::Cancelled { by } if by == self.record.uid => {
                Some(Actor::Named(self.record.user.clone()))
            }
            Outcome::Cancelled { by } => Some(Actor::Uid(by)),
            _ => None,
        };
        let reason = summary.run_end.map(|end| end.word().to_uppercase());
        let reason = reason.as_deref();
        self.tell(at, actor, run.clone(), changed(RUN, before, RunStatus::Terminating, reason));
        self.tell(at, None, run, changed(RUN, RunStatus::Terminating, summary.status, None));
    }
}

/// dstack writes the names of states in capitals here.
fn changed(
    of: &str,
    from: impl std::fmt::Display,
    to: impl std::fmt::Display,
    reason: Option<&str>,
) -> String {
    let (from, to) = (from.to_string().to_uppercase(), to.to_string().to_uppercase());
    let why = reason.map(|why| format!(". Termination reason: {why}"));
    format!("{of} status changed {from} -> {to}{}", why.unwrap_or_default())
}

pub fn of_activity(activity: &Activity) -> Occurrence {
    let target = match &activity.target {
        ActivityTarget::Project(name) => Target::Project(name.clone()),
        ActivityTarget::User(name) => Target::User(name.clone()),
        ActivityTarget::Node(name) => Target::Instance(name.clone()),
        ActivityTarget::Fleet { project, name } => {
            Target::Fleet { project: project.clone(), name: name.clone() }
        }
        ActivityTarget::Secret { project, name } => {
            Target::Secret { project: project.clone(), name: name.clone() }
        }
        ActivityTarget::Volume { project, name, created, .. } => {
            Target::Volume { project: project.clone(), name: name.clone(), created: *created }
        }
        ActivityTarget::Run { run, name, account, .. } => {
            Target::Run { run: *run, name: name.clone(), account: account.clone() }
        }
        ActivityTarget::Job { job, .. } => {
            Target::Other { kind: "batch job", name: job.to_string() }
        }
        ActivityTarget::Site { kind, name } => {
            Target::Other { kind: site_word(*kind), name: name.clone() }
        }
    };
    let kind = capitalised(target.kind());
    let message = match &activity.what {
        ActivityKind::Created => format!("{kind} created"),
        ActivityKind::Changed => format!("{kind} updated"),
        ActivityKind::Deleted => format!("{kind} deleted"),
        ActivityKind::MemberSet(user) => format!("{kind} member {user} set"),
        ActivityKind::MemberRemoved(user) => format!("{kind} member {user} removed"),
        ActivityKind::NodeUp => "Instance became reachable. Status: IDLE".to_owned(),
        ActivityKind::NodeSilent => "Instance became unreachable".to_owned(),
        ActivityKind::NodeDown => "Instance is down".to_owned(),
        ActivityKind::NodeDrained(why) => with_reason("Instance drained", why),
        ActivityKind::NodeSetDown(why) => with_reason("Instance set down", why),
        ActivityKind::NodeFailing(why) => with_reason("Instance marked as failing", why),
        ActivityKind::NodeReasonSet(why) => with_reason("Instance has another reason", why),
        ActivityKind::NodeResumed => "Instance resumed".to_owned(),
    };
    let tells_info = match &target {
        Target::Other { .. } => true,
        Target::Instance(_) => activity.what == ActivityKind::Changed,
        _ => false,
    };
    let message = if tells_info && !activity.info.is_empty() {
        format!("{message}: {}", activity.info)
    } else {
        message
    };
    Occurrence {
        at: activity.at,
        number: activity.number,
        actor: activity.actor.clone().map(Actor::Named),
        targets: vec![target],
        message,
    }
}

fn site_word(kind: SiteThing) -> &'static str {
    match kind {
        SiteThing::Qos => "QOS",
        SiteThing::Reservation => "reservation",
        SiteThing::Partition => "partition",
        SiteThing::Token => "token",
        SiteThing::Configuration => "configuration",
        SiteThing::Trigger => "trigger",
        SiteThing::Backend => "backend",
    }
}

fn capitalised(word: &str) -> String {
    let mut letters = word.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}
fn with_reason(what: &str, why: &str) -> String {
    if why.is_empty() { what.to_owned() } else { format!("{what}: {why}") }
}
