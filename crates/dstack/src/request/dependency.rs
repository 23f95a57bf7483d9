//! The runs that a task depends on: by name where it is written, by number where it is submitted.

use super::RequestError;
use crate::configuration::task::Task;
use crate::status::RunStatus;
use model::dependency::Dependency;

/// What is known of a run that is depended on by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NamedRun {
    /// Its number.
    Job(u32),
    /// It has left the queue, and the books have how it ended.
    Ended(RunStatus),
}

/// Puts the numbers of jobs in place of the names that the task depends on. What the end of a run has met already is left out.
pub fn resolve_dependencies(
    task: &mut Task,
    run_of: impl Fn(&str) -> Option<NamedRun>,
) -> Result<(), RequestError> {
    let mut terms = Vec::with_capacity(task.depends_on.len());
    for term in &task.depends_on {
        let named = term.split_once(':').filter(|(_, run)| run.parse::<u32>().is_err());
        let Some((kind, run)) = named else {
            terms.push(term.clone());
            continue;
        };
        match run_of(run).ok_or_else(|| RequestError::NoSuchRun(run.to_owned()))? {
            NamedRun::Job(job) => terms.push(format!("{kind}:{job}")),
            NamedRun::Ended(status) if is_met(kind, status) => {}
            NamedRun::Ended(status) => {
                return Err(RequestError::NeverMet { term: term.clone(), status });
            }
        }
    }
    task.depends_on = terms;
    Ok(())
}

fn is_met(kind: &str, status: RunStatus) -> bool {
    match kind {
        "afterok" => status == RunStatus::Done,
        "afternotok" => status != RunStatus::Done,
        _ => true,
    }
}

/// All that the task depends on, by the numbers of jobs.
pub(super) fn dependency(task: &Task) -> Result<Option<Box<Dependency>>, RequestError> {
    let name = |term: &String| {
        let run = term.split_once(':').map_or(term.as_str(), |(_, run)| run);
        run.parse::<u32>().is_err().then(|| run.to_owned())
    };
    if let Some(name) = task.depends_on.iter().find_map(name) {
        return Err(RequestError::NoSuchRun(name));
    }
    match &task.depends_on[..] {
        [] => Ok(None),
        terms => Ok(Some(Box::new(Dependency::parse(&terms.join(","))?))),
    }
}
