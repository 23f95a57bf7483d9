//! An attached `sluice apply` of an array: the logs of all its tasks, as `sluice logs --all --follow` has them, and how they ended
//! together.

use super::exit_code;
use crate::client::Client;
use crate::command::dstack::{all_logs, attach, print};
use crate::command::verb::{VerbError, VerbResult};
use ::dstack::run_summary::RunSummary;
use model::id::JobId;
use std::process::ExitCode;
use wire::view::JobView;

/// The tasks that did not succeed which are named at the end; `sluice ps -a` has them all.
const NAMED_MAX: usize = 10;

/// How a task ended.
pub(super) struct TaskEnd {
    /// Its index in the array.
    index: u32,
    end: RunSummary,
}

/// Shows what all tasks write until the last has ended, and how they ended. The exit code says whether all succeeded.
pub(super) fn follow(client: &mut Client, array: JobId, name: &str) -> VerbResult {
    attach::detach_on_interrupt(name)?;
    all_logs::follow(client, array, false)?;
    let tasks = ended(client, array)?;
    print(&verdict(name, &tasks))?;
    Ok(speaks_for_all(&tasks).map_or(ExitCode::SUCCESS, exit_code))
}

/// Waits for the end of all tasks.
pub(super) fn ended(client: &mut Client, array: JobId) -> Result<Vec<TaskEnd>, VerbError> {
    attach::await_end(client, array)?;
    let parts = all_logs::parts(client, array)?;
    let end_of = |job: &JobView| {
        let index = job.array.as_ref()?.index?;
        Some(TaskEnd { index, end: RunSummary::of_job(job) })
    };
    let mut tasks: Vec<TaskEnd> = parts.iter().filter_map(end_of).collect();
    tasks.sort_by_key(|task| task.index);
    Ok(tasks)
}

/// The end of the first task that did not succeed, else that of the first.
pub(super) fn speaks_for_all(tasks: &[TaskEnd]) -> Option<&RunSummary> {
    let failed = tasks.iter().find(|task| !task.end.is_success());
    failed.or(tasks.first()).map(|task| &task.end)
}

/// A line for each task that did not succeed, and one for the whole.
fn verdict(name: &str, tasks: &[TaskEnd]) -> String {
    let count = tasks.len();
    let failed: Vec<&TaskEnd> = tasks.iter().filter(|task| !task.end.is_success()).collect();
    if failed.is_empty() {
        return format!("All {count} tasks of {name} are done\n");
    }
    let line = |task: &&TaskEnd| {
        let TaskEnd { index, end } = task;
        match end.run_error().as_str() {
            "" => format!("{name} task={index}: {}\n", end.message),
            why => format!("{name} task={index}: {}: {why}\n", end.message),
        }
    };
    let mut text: String = failed.iter().take(NAMED_MAX).map(line).collect();
    let unnamed = failed.len().saturating_sub(NAMED_MAX);
    if unnamed > 0 {
        text.push_str(&format!("{unnamed} more are in `sluice ps -a`\n"));
    }
    text.push_str(&format!("{} of {count} tasks of {name} did not succeed\n", failed.len()));
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use ::dstack::run_summary::status_of;

    fn task(index: u32, is_done: bool) -> TaskEnd {
        let mut end = RunSummary::without_capacity();
        end.message = "exited (1)".to_owned();
        end.error = String::new();
        end.run_end = None;
        if is_done {
            end.status = status_of(model::run::Outcome::Completed);
        }
        TaskEnd { index, end }
    }

    #[test]
    fn verdict_names_what_did_not_succeed_up_to_a_bound() {
        let done: Vec<TaskEnd> = (1..=3).map(|index| task(index, true)).collect();
        assert_eq!(verdict("sweep", &done), "All 3 tasks of sweep are done\n");
        assert!(speaks_for_all(&done).is_some_and(RunSummary::is_success));
        let one = [task(1, true), task(2, false)];
        let text = "sweep task=2: exited (1)\n1 of 2 tasks of sweep did not succeed\n";
        assert_eq!(verdict("sweep", &one), text);
        assert!(speaks_for_all(&one).is_some_and(|end| !end.is_success()));
        let many: Vec<TaskEnd> = (0..15).map(|index| task(index, false)).collect();
        let text = verdict("sweep", &many);
        assert_eq!(text.lines().count(), NAMED_MAX + 2, "{text}");
        assert!(text.contains("\n5 more are in `sluice ps -a`\n15 of 15 "), "{text}");
    }
}
