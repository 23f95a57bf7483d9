//! An attached `sluice apply` of an array: the logs of all its tasks, as `sluice logs --all --follow` has them, and how they ended
//! together.

use super::exit_code;
use crate::client::Client;
use crate::command::dstack::{all_logs, attach, in_books, print};
use crate::command::verb::{VerbError, VerbResult};
use ::dstack::run_summary::RunSummary;
use model::change::JobRef;
use model::id::JobId;
use model::record::JobRecord;
use std::process::ExitCode;
use wire::client::HistoryFilter;

/// The lines at the end about tasks that did not succeed; `sluice ps -a` has them all.
const NAMED_MAX: usize = 10;

/// How a task ended, or several that never started.
pub(super) struct TaskEnd {
    /// Its index in the array; `None` for several.
    index: Option<u32>,
    /// The indices.
    tasks: String,
    end: RunSummary,
}

/// Shows what all tasks write until the last has ended, and how they ended. The exit code says whether all succeeded. `count`: how many
/// they are.
pub(super) fn follow(client: &mut Client, array: JobId, name: &str, count: u64) -> VerbResult {
    attach::detach_on_interrupt(name)?;
    all_logs::follow(client, array, false)?;
    let tasks = ended(client, array)?;
    print(&verdict(name, count, &tasks))?;
    Ok(speaks_for_all(&tasks).map_or(ExitCode::FAILURE, exit_code))
}

/// Waits for the end of all tasks. The books say how they ended: most of a long array have left the server's memory by then.
pub(super) fn ended(client: &mut Client, array: JobId) -> Result<Vec<TaskEnd>, VerbError> {
    attach::await_end(client, array)?;
    let jobs = vec![JobRef::whole(array)];
    let filter = HistoryFilter { jobs, ended: true, ..HistoryFilter::default() };
    Ok(task_ends(&in_books(client, filter)?))
}

/// By index; behind them those that never started.
fn task_ends(records: &[JobRecord]) -> Vec<TaskEnd> {
    // Numbers of jobs are given again: what had this one before is another run.
    let newest = records.iter().max_by_key(|record| record.submit).map(|record| record.run);
    let own = records.iter().filter(|record| Some(record.run) == newest);
    let end_of = |record: &JobRecord| {
        let index = record.array_task;
        let index_text = index.map(|index| index.to_string());
        let tasks = index_text.or_else(|| record.array_pending.clone())?;
        Some(TaskEnd { index, tasks, end: RunSummary::of_record(record) })
    };
    let mut tasks: Vec<TaskEnd> = own.filter_map(end_of).collect();
    tasks.sort_by_key(|task| task.index.unwrap_or(u32::MAX));
    tasks
}

/// The end of the first task that did not succeed, else that of the first.
pub(super) fn speaks_for_all(tasks: &[TaskEnd]) -> Option<&RunSummary> {
    let failed = tasks.iter().find(|task| !task.end.is_success());
    failed.or(tasks.first()).map(|task| &task.end)
}

/// A line for each task that did not succeed, and for those that never started together, and one for the whole.
fn verdict(name: &str, count: u64, tasks: &[TaskEnd]) -> String {
    let (done, failed): (Vec<&TaskEnd>, Vec<&TaskEnd>) =
        tasks.iter().partition(|task| task.end.is_success());
    if failed.is_empty() && !done.is_empty() {
        return format!("All {count} tasks of {name} are done\n");
    }
    let line = |task: &&TaskEnd| {
        let TaskEnd { tasks, end, .. } = task;
        match end.run_error().as_str() {
            "" => format!("{name} task={tasks}: {}\n", end.message),
            why => format!("{name} task={tasks}: {}: {why}\n", end.message),
        }
    };
    let mut text: String = failed.iter().take(NAMED_MAX).map(line).collect();
    let unnamed = failed.len().saturating_sub(NAMED_MAX);
    if unnamed > 0 {
        text.push_str(&format!("{unnamed} more are in `sluice ps -a`\n"));
    }
    let not_done = count.saturating_sub(done.len() as u64);
    text.push_str(&format!("{not_done} of {count} tasks of {name} did not succeed\n"));
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
        TaskEnd { index: Some(index), tasks: index.to_string(), end }
    }

    #[test]
    fn verdict_names_what_did_not_succeed_up_to_a_bound() {
        let done: Vec<TaskEnd> = (1..=3).map(|index| task(index, true)).collect();
        assert_eq!(verdict("sweep", 3, &done), "All 3 tasks of sweep are done\n");
        assert!(speaks_for_all(&done).is_some_and(RunSummary::is_success));
        let one = [task(1, true), task(2, false)];
        let text = "sweep task=2: exited (1)\n1 of 2 tasks of sweep did not succeed\n";
        assert_eq!(verdict("sweep", 2, &one), text);
        assert!(speaks_for_all(&one).is_some_and(|end| !end.is_success()));
        let many: Vec<TaskEnd> = (0..15).map(|index| task(index, false)).collect();
        let text = verdict("sweep", 15, &many);
        assert_eq!(text.lines().count(), NAMED_MAX + 2, "{text}");
        assert!(text.contains("\n5 more are in `sluice ps -a`\n15 of 15 "), "{text}");
    }

    #[test]
    fn verdict_counts_tasks_that_never_started() {
        let never = || TaskEnd { index: None, tasks: "2-9".to_owned(), ..task(0, false) };
        let some = [task(1, true), never()];
        let text = "sweep task=2-9: exited (1)\n8 of 9 tasks of sweep did not succeed\n";
        assert_eq!(verdict("sweep", 9, &some), text);
        assert!(speaks_for_all(&some).is_some_and(|end| !end.is_success()));
        let text = "sweep task=2-9: exited (1)\n8 of 8 tasks of sweep did not succeed\n";
        assert_eq!(verdict("sweep", 8, &[never()]), text);
    }
}
