//! Why a trace cannot be read or replayed.

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
    /// The cluster does not take the configuration.
    #[error("the configuration is refused: {0}")]
    Configuration(Box<Refusal>),
    #[error("{what} is not simulated: {instead}")]
    NotSimulated { what: &'static str, instead: &'static str },
    #[error("line {line}: the cluster refuses the job: {refusal}")]
    Refused { line: u64, refusal: Box<Refusal> },
    #[error("line {line}: the job never starts: {}", reason_words(.reason.as_deref()))]
    NeverStarts { line: u64, reason: Option<Box<Reason>> },
    /// What is planned on the present state is always taken: anything else is an error of ours.
    #[error("the plan is refused, which is an error in sluice: {0}")]
    Plan(Box<Refusal>),
}

fn reason_words(reason: Option<&Reason>) -> String {
    reason.map_or("no reason is given".to_owned(), |reason| format!("{reason:?}"))
}

impl SimError {
    pub(crate) fn line(line: u64, fault: impl Into<String>) -> Self {
        Self::Line { line, fault: fault.into() }
    }

    pub(crate) fn configuration(refusal: Refusal) -> Self {
        Self::Configuration(Box::new(refusal))
    }

    pub(crate) fn plan(refusal: Refusal) -> Self {
        Self::Plan(Box::new(refusal))
    }
}
