//! The text of an explanation, as a terminal shows it; the sentences are those of `server::explanation`.

use super::{Subject, last_lines};
use ::server::explanation::{ended, wait};
use ::slurm::output::Moment;
use ::slurm::output::text::job_text;
use ::slurm::words::{job as state, reason as reason_words};
use model::hostlist;
use model::printable::printable;
use model::record::{JobRecord, RecordState};
use model::run::{JobState, LaunchKind};
use model::time::Timestamp;
use std::fmt::Write;
use std::path::Path;
use wire::explain::{ExplainedJob, WaitView};
use wire::view::JobView;

/// The explanation of one job: a line that names it, then one for each fact. `told`: the last lines that it wrote, where they
/// are not read from its files here.
pub fn explained(subject: &Subject, told: Option<&[String]>, moment: Moment<'_>) -> String {
    let Subject { explained, attempts, .. } = subject;
    let last = attempts.last().filter(|last| matches!(last.state, RecordState::Ended(_)));
    match (explained, last) {
        (Some(ExplainedJob { shown, job, .. }), Some(last)) if job.state.is_ended() => {
            over(shown, last, subject, Some(job), told, moment)
        }
        (Some(explained), _) => present(explained, subject, moment),
        (None, Some(last)) => over(&shown_record(last), last, subject, None, told, moment),
        (None, None) => String::new(),
    }
}

fn shown_record(record: &JobRecord) -> String {
    match (record.array_job, record.array_task) {
        (Some(array), Some(task)) => format!("{array}_{task}"),
        _ => record.job.to_string(),
    }
}

/// A job that waits, runs or is ending.
fn present(explained: &ExplainedJob, subject: &Subject, moment: Moment<'_>) -> String {
    let ExplainedJob { shown, job, wait: why } = explained;
    let owner = &job.spec.owner.name;
    let mut text = format!("Job {shown} ({}, {owner}, partition {})", job.name, job.partition);
    match why {
        None => {
            let _ = writeln!(text, " {}", does_not_wait(job, moment));
        }
        Some(why) => {
            let _ = writeln!(text, " {}", wait_headline(job, why, moment));
            for line in wait::lines(job, why, moment) {
                let _ = writeln!(text, "  {line}");
            }
        }
    }
    for line in ended::earlier(&subject.attempts, &subject.lost_nodes, moment) {
        let _ = writeln!(text, "  {line}");
    }
    text
}

/// Where the file is instead, if the job's working directory is not here either.
fn fallback_file(job: &JobView, path: &str) -> Option<String> {
    let is_here = Path::new(&*job.spec.launch.work_dir).is_dir();
    job_text::in_fallback(job, path).filter(|_| !is_here)
}

/// A job that has ended. The record has its files once it has left the server's memory.
fn over(
    shown: &str,
    last: &JobRecord,
    subject: &Subject,
    job: Option<&JobView>,
    told: Option<&[String]>,
    moment: Moment<'_>,
) -> String {
    let JobRecord { name, user, partition, .. } = last;
    let head = ended::headline(last, moment);
    let mut text = format!("Job {shown} ({name}, {user}, partition {partition}) {head}\n");
    let Subject { attempts, lost_nodes, .. } = subject;
    let mut lines = ended::lines(last, lost_nodes, moment);
    let known = job.and_then(|job| job.spec.dependency.as_deref());
    lines.extend(ended::depended_on(last, known));
    lines.extend(ended::earlier(attempts, lost_nodes, moment));
    let quoted = |line: &String| format!("  | {line}");
    match last.kind {
        LaunchKind::Task => {
            lines.push(format!("Its log: sluice logs {name}"));
            lines.extend(told.unwrap_or_default().iter().map(quoted));
        }
        LaunchKind::Batch => {
            let mut files: Vec<String> = Vec::new();
            let kept = || last.streams.clone();
            if let Some(streams) = job.and_then(job_text::streams).or_else(kept) {
                files = vec![streams.stdout, streams.stderr];
                files.dedup();
            }
            for (index, path) in files.into_iter().enumerate() {
                lines.push(format!("Its output: {}", printable(&path)));
                if let Some(told) = told {
                    // The server has the standard output, which is the first.
                    let of_it = if index == 0 { told } else { &[] };
                    lines.extend(of_it.iter().map(quoted));
                    continue;
                }
                let mut last = last_lines::of(path.as_ref());
                if let Some(fallback) = job.and_then(|job| fallback_file(job, &path)) {
                    let shown = printable(&fallback);
                    lines.push(format!("  a node without its working directory has it in {shown}"));
                    last = last_lines::of(fallback.as_ref());
                }
                lines.extend(last.iter().map(quoted));
            }
        }
        LaunchKind::Interactive => {}
    }
    for line in lines {
        let _ = writeln!(text, "  {line}");
    }
    text
}

/// The reason, and what it means for the job.
fn wait_headline(job: &JobView, why: &WaitView, moment: Moment<'_>) -> String {
    let Some(reason) = &why.reason else {
        return "waits for nothing any more: it starts with the next plan.".to_owned();
    };
    let word = reason_words::text(reason);
    format!("waits: {word}\n  {}", wait::sentence(job, why, reason, moment))
}

fn does_not_wait(job: &JobView, moment: Moment<'_>) -> String {
    let time = |time: Option<Timestamp>| time.map_or_else(|| "?".into(), |time| moment.iso(time));
    let nodes = || {
        let names = job.allocation.iter().flat_map(|a| a.node_names());
        hostlist::compress(names.map(str::to_owned).collect::<Vec<_>>())
    };
    match job.state {
        JobState::Completing => format!("is ending on {}; its processes are still going.", nodes()),
        JobState::Suspended => format!("is suspended on {}; it holds its memory there.", nodes()),
        ended if ended.is_ended() => {
            format!("has ended: {} at {}.", state::long(ended), time(job.end))
        }
        _ => {
            let until = job.end.map_or_else(
                || "it has no time limit".to_owned(),
                |end| format!("its limit ends it at {}", moment.iso(end)),
            );
            format!("runs since {} on {}; {until}.", time(job.start), nodes())
        }
    }
}

#[cfg(test)]
#[path = "text_tests.rs"]
mod tests;
