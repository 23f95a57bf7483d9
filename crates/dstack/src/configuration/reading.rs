//! What comes up while a configuration is read.

use super::fault::{Fault, Faults, Notice, OtherFaults, Position, Problem};
use super::field::Field;

/// Where a configuration comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// A file: a property that is not known is refused.
    Yaml,
    /// dstack's client, of this version or another: what is not known is left out, with a notice if it says anything.
    Json,
}

/// What came up so far, in the order of the configuration.
#[derive(Debug)]
pub struct Reading {
    pub source: Source,
    /// Properties that change nothing.
    pub notices: Vec<Notice>,
    /// Properties that a later capability brings: the configuration is not applied.
    pub refusals: Vec<Notice>,
    /// The variables that the client's environment is to give, and where each is named.
    pub from_client: Vec<(String, Position)>,
    /// What is wrong, up to a bound.
    faults: Vec<Fault>,
    fault_count: usize,
}

/// Faults of one file that are named.
const FAULTS_MAX: usize = 100;

impl Reading {
    pub fn new(source: Source) -> Self {
        Self {
            source,
            notices: Vec::new(),
            refusals: Vec::new(),
            from_client: Vec::new(),
            faults: Vec::new(),
            fault_count: 0,
        }
    }

    /// Notes what is wrong. The reading goes on, so that all of it is told at once.
    pub fn fault(&mut self, fault: Fault) {
        if *fault.problem == Problem::OfParts {
            return;
        }
        self.fault_count += 1;
        if self.faults.len() < FAULTS_MAX {
            self.faults.push(fault);
        }
    }

    /// Grows with each fault.
    pub fn fault_count(&self) -> usize {
        self.fault_count
    }

    /// Whether something of this property is wrong: what depends on it is not judged then.
    pub fn is_faulty(&self, name: &str) -> bool {
        self.faults.iter().any(|fault| fault.problem.is_about(name))
    }

    /// What was wrong; `None` where nothing was.
    pub fn take_faults(&mut self) -> Option<Faults> {
        let mut faults = std::mem::take(&mut self.faults).into_iter();
        let left_out = self.fault_count.saturating_sub(FAULTS_MAX);
        let first = faults.next()?;
        Some(Faults { first, others: OtherFaults { named: faults.collect(), left_out } })
    }

    pub fn notice(&mut self, field: &Field<'_>, why: impl Into<String>) {
        self.notices.push(notice(field, why));
    }

    pub fn refuse(&mut self, field: &Field<'_>, why: impl Into<String>) {
        self.refusals.push(notice(field, why));
    }
}

fn notice(field: &Field<'_>, why: impl Into<String>) -> Notice {
    Notice { position: field.position(), property: field.name.clone(), why: why.into() }
}
