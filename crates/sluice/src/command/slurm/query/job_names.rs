//! How jobs are named on a command line: ids with array tasks and steps, states, users.

use ::slurm::words;
use model::change::JobRef;
use model::id::StepId;
use model::run::JobState;

/// `12`, `12_3`, `12_[1-5]`, `12+1`, `12.0`, `12_3.batch`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedJob {
    pub job: JobRef,
    pub step: Option<StepId>,
}

/// One job, or one step of it.
pub fn parse_job(word: &str) -> Option<NamedJob> {
    let (job, step) = match word.split_once('.') {
        Some((job, step)) => (job, Some(parse_step(step)?)),
        None => (word, None),
    };
    Some(NamedJob { job: JobRef::parse(job)?, step })
}

fn parse_step(word: &str) -> Option<StepId> {
    match word {
        "batch" => Some(StepId::Batch),
        "extern" => Some(StepId::Extern),
        "interactive" => Some(StepId::Interactive),
        number => number.parse().ok().map(StepId::Number),
    }
}

/// A list of jobs separated by commas. The error is the first word that names none.
pub fn parse_jobs(text: &str) -> Result<Vec<NamedJob>, String> {
    let words = split_outside_brackets(text);
    words.into_iter().map(|word| parse_job(word).ok_or_else(|| word.to_owned())).collect()
}

/// Splits at commas outside of brackets: `a,b_[1,2]` is two words. Empty words are dropped.
fn split_outside_brackets(text: &str) -> Vec<&str> {
    let mut depth = 0_i32;
    let parts = text.split(|c| {
        depth += i32::from(c == '[') - i32::from(c == ']');
        c == ',' && depth == 0
    });
    parts.map(str::trim).filter(|part| !part.is_empty()).collect()
}

/// States to filter by; `None` for `all`.
pub fn parse_states(text: &str) -> Result<Option<Vec<JobState>>, String> {
    let words = ::slurm::option::value::list(text);
    if words.iter().any(|word| word.eq_ignore_ascii_case("all")) {
        return Ok(None);
    }
    let states: Result<Vec<_>, _> =
        words.into_iter().map(|word| words::job::parse(&word).ok_or(word)).collect();
    states.map(Some)
}

/// Names of users; a number is the user with that id.
pub fn parse_users(text: &str, name_of: impl Fn(u32) -> Option<String>) -> Vec<String> {
    let words = ::slurm::option::value::list(text).into_iter();
    words.map(|word| word.parse().ok().and_then(&name_of).unwrap_or(word)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::array::IndexSet;
    use model::id::JobId;

    fn job(id: u32, tasks: Option<&str>, step: Option<StepId>) -> NamedJob {
        let tasks = tasks.map(|text| IndexSet::parse(text, 100).expect("indices"));
        NamedJob { job: JobRef { id: JobId(id), tasks, component_of: None }, step }
    }

    fn component(id: u32, first: u32) -> NamedJob {
        let job = JobRef { component_of: Some(JobId(first)), ..JobRef::whole(JobId(id)) };
        NamedJob { job, step: None }
    }

    #[test]
    fn job_ids_with_tasks_and_steps_are_parsed() {
        let table = [
            ("5", vec![job(5, None, None)]),
            ("5,6", vec![job(5, None, None), job(6, None, None)]),
            ("5_3", vec![job(5, Some("3"), None)]),
            ("5_[1-3,7],6", vec![job(5, Some("1-3,7"), None), job(6, None, None)]),
            ("5.0", vec![job(5, None, Some(StepId::Number(0)))]),
            ("5+1,7+0", vec![component(6, 5), job(7, None, None)]),
            ("5_3.batch,", vec![job(5, Some("3"), Some(StepId::Batch))]),
            ("", vec![]),
        ];
        for (text, jobs) in table {
            assert_eq!(parse_jobs(text), Ok(jobs), "{text}");
        }
        for (text, bad) in
            [("abc", "abc"), ("5,x,6", "x"), ("5_", "5_"), ("0", "0"), ("5.x", "5.x"), ("5+", "5+")]
        {
            assert_eq!(parse_jobs(text), Err(bad.to_owned()), "{text}");
        }
    }

    #[test]
    fn states_are_parsed_in_short_and_long_form() {
        let both = Ok(Some(vec![JobState::Pending, JobState::Running]));
        assert_eq!(parse_states("PD,running"), both);
        assert_eq!(parse_states("R,all"), Ok(None));
        assert_eq!(parse_states("R,BOGUS"), Err("BOGUS".to_owned()));
    }

    #[test]
    fn a_numeric_user_is_looked_up_by_id() {
        let names = |uid| (uid == 1001).then(|| "alice".to_owned());
        assert_eq!(parse_users("1001,bob,77", names), ["alice", "bob", "77"]);
    }
}
