//! `sluice stop`: ends runs, as `scancel` does.

use super::{OfProject, ask, confirm, find_run, print, print_json, unexpected};
use crate::client::Client;
use crate::command::slurm::query::job_names;
use crate::command::verb::{ServerLocationArgs, VerbError, VerbResult};
use clap::Args;
use model::change::{JobFilter, JobRef};
use model::id::{JobId, StepId};
use model::reason::Refusal;
use nix::libc::SIGKILL;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::process::ExitCode;
use wire::client::{Answer, Call, Cancel, JobsQuery};
use wire::job_list::JobList;
use wire::view::JobView;

#[derive(Args)]
pub struct StopArgs {
    #[command(flatten)]
    server: ServerLocationArgs,
    #[command(flatten)]
    of: OfProject,
    /// The runs' names, or jobs' numbers; 13_2 is a task of an array, 13.0 a step
    #[arg(required = true, value_name = "RUN")]
    runs: Vec<String>,
    /// Kill it at once
    #[arg(short = 'x', long)]
    abort: bool,
    /// Do not ask
    #[arg(short, long)]
    yes: bool,
    /// Print JSON; needs -y
    #[arg(long, requires = "yes")]
    json: bool,
}

pub fn run(args: StopArgs) -> VerbResult {
    let mut client = args.server.client()?;
    let word = if args.abort { "Abort" } else { "Stop" };
    // All are looked up before the first is stopped, so that a wrong name changes nothing.
    let found: Result<Vec<(JobView, StopTarget)>, VerbError> = args
        .runs
        .iter()
        .map(|word| {
            let job = find_run(&mut client, word, &args.of)?;
            let mut target = StopTarget::new(word, &job.spec.name, whole_run(&job));
            if job.spec.launch.service.is_some() && job_names::parse_job(word).is_none() {
                target.jobs = deployments(&mut client, &job)?;
            }
            Ok((job, target))
        })
        .collect();
    let mut done: Vec<Value> = Vec::new();
    let mut note = |job: &JobView, text: String, result: &str| {
        done.push(json!({ "name": &*job.spec.name, "job_id": job.id, "result": result }));
        if args.json { Ok(()) } else { print(&text) }
    };
    for (job, target) in found? {
        if job.state.is_ended() {
            note(&job, format!("The run {} has ended already\n", job.spec.name), "ended already")?;
            continue;
        }
        if !args.yes && !confirm(&format!("{word} {}?", target.shown))? {
            print("Exiting...\n")?;
            return Ok(ExitCode::FAILURE);
        }
        end_target(&mut client, &target, args.abort)?;
        let (text, result) =
            if args.abort { ("Aborted\n", "aborted") } else { ("Stopped\n", "stopped") };
        note(&job, text.to_owned(), result)?;
    }
    if args.json {
        print_json(&json!({ "runs": done }))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The job, or the array job that it is a task of: a run that is named as a whole is stopped as a whole.
fn whole_run(job: &JobView) -> JobId {
    job.array.as_ref().map_or(job.id, |array| array.array)
}

/// All that a service runs under its name: while it is updated, the deployment before the newest runs too.
fn deployments(client: &mut Client, newest: &JobView) -> Result<Vec<JobRef>, VerbError> {
    let filter = JobFilter { names: vec![newest.spec.name.to_string()], ..JobFilter::default() };
    let found = match ask(client, Call::Jobs(JobsQuery { filter, ..JobsQuery::default() }))? {
        Answer::Jobs { jobs: JobList(jobs), .. } => jobs,
        other => return Err(unexpected(&other)),
    };
    let own = &newest.spec;
    let is_deployment = |job: &&JobView| {
        let spec = &job.spec;
        let is_service = spec.launch.service.is_some() && spec.project() == own.project();
        is_service && spec.owner.uid == own.owner.uid
    };
    let mut runs: BTreeSet<JobId> = found.iter().filter(is_deployment).map(whole_run).collect();
    runs.insert(whole_run(newest));
    Ok(runs.into_iter().map(JobRef::whole).collect())
}

/// Ends all that a service runs under its name, of which this is one replica.
pub fn end_service(client: &mut Client, replica: &JobView) -> Result<(), VerbError> {
    let jobs = deployments(client, replica)?;
    end_target(client, &StopTarget { jobs, step: None, shown: String::new() }, false)
}

/// What a word on the command line asks to end.
#[derive(Debug, PartialEq, Eq)]
struct StopTarget {
    jobs: Vec<JobRef>,
    step: Option<StepId>,
    /// As the question names it.
    shown: String,
}

impl StopTarget {
    /// Tasks (`13_2`) and a step (`13.0`) are those that were typed; a name or a number is the whole run.
    fn new(word: &str, run: &str, whole: JobId) -> Self {
        match job_names::parse_job(word) {
            Some(named) if named.step.is_some() => {
                let shown = format!("the step {word} of the run {run}");
                Self { jobs: vec![named.job], step: named.step, shown }
            }
            Some(named) if named.job.tasks.is_some() => {
                let shown = format!("the task {word} of the run {run}");
                Self { jobs: vec![named.job], step: None, shown }
            }
            _ => {
                let shown = format!("the run {run}");
                Self { jobs: vec![JobRef::whole(whole)], step: None, shown }
            }
        }
    }
}

/// Ends a whole run. One that has ended already is no error.
pub fn end(client: &mut Client, job: JobId, at_once: bool) -> Result<(), VerbError> {
    let jobs = vec![JobRef::whole(job)];
    let target = StopTarget { jobs, step: None, shown: String::new() };
    end_target(client, &target, at_once)
}

fn end_target(client: &mut Client, target: &StopTarget, at_once: bool) -> Result<(), VerbError> {
    cancel(client, target, None)?;
    if at_once {
        // The run is ending already, and the kill only skips the grace time. The run may be gone before.
        match cancel(client, target, Some(SIGKILL)) {
            Err(VerbError::Refused(Refusal::JobNotRunning(_) | Refusal::UnknownStep(_))) => {}
            other => other?,
        }
    }
    Ok(())
}

fn cancel(client: &mut Client, target: &StopTarget, signal: Option<i32>) -> Result<(), VerbError> {
    let filter = JobFilter { jobs: target.jobs.clone(), ..JobFilter::default() };
    let full = target.step.is_none();
    let cancel = Cancel { filter, step: target.step, signal, batch_only: false, full };
    match ask(client, Call::Cancel(cancel))? {
        Answer::Cancelled(results) => {
            let refusals = results.into_iter().filter_map(|result| result.refusal);
            match refusals.into_iter().find(|why| !matches!(why, Refusal::JobEnded(_))) {
                Some(why) => Err(why.into()),
                None => Ok(()),
            }
        }
        other => Err(unexpected(&other)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::array::IndexSet;

    #[test]
    fn what_was_typed_is_stopped_and_no_more() {
        let task = |indices: &str| {
            JobRef::tasks(JobId(13), IndexSet::parse(indices, 1000).expect("indices"))
        };
        let whole = || JobRef::whole(JobId(13));
        let table = [
            ("train", whole(), None, "the run train"),
            ("15", whole(), None, "the run train"),
            ("13_2", task("2"), None, "the task 13_2 of the run train"),
            ("13_[1-3]", task("1-3"), None, "the task 13_[1-3] of the run train"),
            ("13.0", whole(), Some(StepId::Number(0)), "the step 13.0 of the run train"),
            ("13_2.batch", task("2"), Some(StepId::Batch), "the step 13_2.batch of the run train"),
        ];
        for (word, job, step, shown) in table {
            let expected = StopTarget { jobs: vec![job], step, shown: shown.to_owned() };
            assert_eq!(StopTarget::new(word, "train", JobId(13)), expected, "{word}");
        }
    }
}
