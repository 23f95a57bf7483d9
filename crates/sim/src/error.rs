//! Why a trace cannot be read or replayed.

use crate::trace::{Trace, TraceJob};
use model::reason::{Reason, Refusal};

#[derive(Debug, thiserror::Error)]
pub enum SimError {
    /// A line of the trace is wrong: the value, and what would be right.
    #[error("line {line}: {fault}")]
    Line { line: u64, fault: String },
    /// The trace could be read up to this line.
    #[error("line {line}: {source}")]
    Read { line: u64, source: std::io::Error },
    #[error("no job to replay: expected one with a run time and processors")]
    Empty,
    #[error("no node has a GPU: expected a list of nodes with GPUs")]
    NoGpus,
    #[error("the pods ask for so little of {gpus} GPUs that more than {most} would come")]
    TooManyPods { most: usize, gpus: u64 },
    #[error("no node is in service: expected one whose State is not DOWN, DRAIN, FAIL or FUTURE")]
    NoNodes,
    #[error("no partition has Default=YES: expected one, for jobs that name none")]
    NoDefaultPartition,
    #[error("partition {name} does not exist: expected one of {known}")]
    UnknownPartition { name: String, known: String },
    #[error("no job could ever start; the first, {first}")]
    NoneStarts { first: String },
    /// The cluster does not take the configuration.
    #[error("the configuration is refused: {0}")]
    Configuration(Box<Refusal>),
    #[error("{what} is not simulated: {instead}")]
    NotSimulated { what: &'static str, instead: &'static str },
    #[error("{place}: the cluster refuses the job: {refusal}")]
    Refused { place: String, refusal: Box<Refusal> },
    #[error("{place}: the job never starts: {why}")]
    NeverStarts { place: String, why: String },
    /// What is planned on the present state is always taken: anything else is an error of ours.
    #[error("the plan is refused, which is an error in sluice: {0}")]
    Plan(Box<Refusal>),
}

/// Why a job of a replay waits for ever. What people or nodes may do to a job does not occur in one.
pub(crate) fn reason_words(reason: &Reason) -> String {
    let words = match reason {
        Reason::Resources | Reason::Priority => "what it asks for never becomes free",
        Reason::PartitionNodeLimit => {
            "its partition does not have or give so many nodes, or so few"
        }
        Reason::PartitionTimeLimit => "its time limit is beyond its partition's MaxTime",
        Reason::PartitionDown => "its partition is DOWN",
        Reason::PartitionInactive => "its partition is INACTIVE",
        Reason::NodesDown => "the nodes that could run it are not in service",
        Reason::Reservation | Reason::NodesReserved => "its nodes are reserved",
        Reason::BadConstraints => "no nodes of its partition could run it",
        Reason::Licenses => "a licence that it needs is not there",
        Reason::Limit(limit) => {
            let (holder, most) = (&limit.holder, limit.limit);
            return format!("a limit of {most} of {holder} holds it back");
        }
        _ => "it is held back by what a replay does not have",
    };
    words.to_owned()
}

impl SimError {
    pub(crate) fn line(line: u64, fault: impl Into<String>) -> Self {
        Self::Line { line, fault: fault.into() }
    }

    pub(crate) fn refused(trace: &Trace, job: &TraceJob, refusal: Refusal) -> Self {
        Self::Refused { place: trace.place(job), refusal: Box::new(refusal) }
    }

    pub(crate) fn configuration(refusal: Refusal) -> Self {
        Self::Configuration(Box::new(refusal))
    }

    pub(crate) fn plan(refusal: Refusal) -> Self {
        Self::Plan(Box::new(refusal))
    }
}
