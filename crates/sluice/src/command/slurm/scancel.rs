//! `scancel`: ends or signals jobs and steps.

use super::query::job_names::{self, NamedJob};
use super::query::{self, CommandError};
use crate::client::Client;
use ::slurm::option::key::OptionKey as K;
use ::slurm::option::parse::Parsed;
use ::slurm::option::{Command, signal, value};
use ::slurm::words::refusal;
use model::change::JobFilter;
use model::hostlist;
use model::id::StepId;
use model::reason::Refusal;
use model::run::JobState;
use std::io::{BufRead, Write};
use std::process::ExitCode;
use wire::client::{Answer, Call, Cancel, CancelResult, JobsQuery};
use wire::job_list::JobList;

const COMMAND: Command = Command::Scancel;

/// The name that Slurm gives the request when the server cannot be reached.
const REQUEST: &str = "scancel: error: slurm_kill_job";

/// The states that `-t` may name.
const STATES: [JobState; 3] = [JobState::Pending, JobState::Running, JobState::Suspended];

pub fn run(args: &[String]) -> ExitCode {
    query::finish(COMMAND, cancel(args))
}

fn cancel(args: &[String]) -> Result<ExitCode, CommandError> {
    let Some(parsed) = query::options(COMMAND, args)? else { return Ok(ExitCode::SUCCESS) };
    let order = CancelRequest::read(&parsed)?;
    let mut client = Client::find().map_err(unreachable)?;
    let mut code = 0;
    for cancel in order.calls() {
        let cancel = if order.confirm { confirmed(&mut client, cancel)? } else { Some(cancel) };
        let Some(cancel) = cancel else { continue };
        let named = cancel.filter.jobs.len() == 1;
        let step = cancel.step;
        let asked = order.words.first().filter(|_| named && order.words.len() == 1);
        match client.call(Call::Cancel(cancel)).map_err(unreachable)? {
            Answer::Cancelled(results) => {
                let told = order.report(&results, asked.map(String::as_str), step);
                code = code.max(told);
            }
            Answer::Refused(why) => {
                return Err(CommandError::message(error_line(&refusal::text(&why))));
            }
            other => return Err(CommandError::unexpected(&other)),
        }
    }
    Ok(ExitCode::from(code))
}

fn unreachable(source: crate::client::ClientError) -> CommandError {
    CommandError::Unreachable { request: REQUEST, source }
}

fn error_line(text: &str) -> String {
    format!("{}: error: {text}", COMMAND.name())
}

/// The checked options.
#[derive(Debug)]
struct CancelRequest {
    /// The jobs as they were typed.
    words: Vec<String>,
    jobs: Vec<NamedJob>,
    filter: JobFilter,
    signal: Option<i32>,
    batch_only: bool,
    full: bool,
    confirm: bool,
    verbose: bool,
    quiet: bool,
}

impl CancelRequest {
    fn read(parsed: &Parsed) -> Result<Self, CommandError> {
        let words: Vec<String> = parsed.rest.clone();
        let mut jobs = Vec::new();
        for word in &words {
            let named = job_names::parse_jobs(word).map_err(|bad| {
                CommandError::message(error_line(&format!("Invalid job id {bad}")))
            })?;
            jobs.extend(named);
        }
        let filter = filter(parsed)?;
        if jobs.is_empty() && filter == JobFilter::default() {
            return Err(CommandError::message(error_line("No job identification provided")));
        }
        let signal = parsed.text(K::Signal).map(|text| {
            let unknown =
                || CommandError::message(error_line(&format!("Unknown job signal: {text}")));
            signal::number(text).ok_or_else(unknown)
        });
        Ok(Self {
            words,
            jobs,
            filter,
            signal: signal.transpose()?,
            batch_only: parsed.has(K::BatchOnly),
            full: parsed.has(K::Full),
            confirm: parsed.has(K::Confirm),
            verbose: parsed.has(K::Verbose),
            quiet: parsed.has(K::Quiet),
        })
    }

    /// One call for all jobs, and one for each named step.
    fn calls(&self) -> Vec<Cancel> {
        let call = |jobs: Vec<&NamedJob>, step: Option<StepId>| Cancel {
            filter: JobFilter {
                jobs: jobs.into_iter().map(|named| named.job.clone()).collect(),
                ..self.filter.clone()
            },
            step,
            signal: self.signal,
            batch_only: self.batch_only,
            full: self.full,
        };
        let whole: Vec<&NamedJob> = self.jobs.iter().filter(|named| named.step.is_none()).collect();
        let steps = self.jobs.iter().filter(|named| named.step.is_some());
        let mut calls = Vec::new();
        if !whole.is_empty() || self.jobs.is_empty() {
            calls.push(call(whole, None));
        }
        calls.extend(steps.map(|named| call(vec![named], named.step)));
        calls
    }

    /// Prints the results that are to be reported, and returns the exit code.
    fn report(&self, results: &[CancelResult], asked: Option<&str>, step: Option<StepId>) -> u8 {
        let mut code = 0;
        let mut said: Vec<String> = Vec::new();
        for result in results {
            let name = self.shown(&result.job, asked);
            let whole = match step {
                Some(step) if asked.is_none() => format!("job step id {name}.{step}"),
                Some(_) => format!("job step id {name}"),
                None => format!("job id {name}"),
            };
            let mut lines = Vec::new();
            if self.verbose {
                lines.push(match self.signal {
                    Some(number) => format!("scancel: Signal {number} to job {name}"),
                    None => format!("scancel: Terminating job {name}"),
                });
            }
            if let Some(why) = &result.refusal {
                let (shown, weight) = self.severity(why, step);
                code = code.max(weight);
                if shown && !self.quiet {
                    let text = refusal::text(why);
                    lines.push(error_line(&format!("Kill job error on {whole}: {text}")));
                }
            }
            // Tasks that are shown under the array's id share their lines.
            lines.retain(|line| !said.contains(line));
            lines.iter().for_each(|line| eprintln!("{line}"));
            said.extend(lines);
        }
        code
    }

    /// Whether a refusal is shown, and its exit code. Ending a job that has ended or never existed is no failure; signalling one
    /// is, and so is naming a step.
    fn severity(&self, why: &Refusal, step: Option<StepId>) -> (bool, u8) {
        let exactly = self.batch_only || self.signal.is_some() || step.is_some();
        let code = refusal::scancel_code(why) as u8;
        match why {
            Refusal::JobEnded(_) if self.signal.is_none() => (self.verbose, 0),
            Refusal::JobEnded(_) => (self.verbose, code),
            Refusal::UnknownJob(_) | Refusal::UnknownStep(_) if exactly => (true, 1),
            Refusal::UnknownJob(_) => (self.verbose, 0),
            _ => (true, code),
        }
    }

    /// The name under which a job is reported: as the user typed it, or the array that the user named.
    fn shown<'a>(&self, job: &'a str, asked: Option<&'a str>) -> &'a str {
        if let Some(asked) = asked {
            return asked;
        }
        match job.split_once('_') {
            Some((array, _)) if self.words.iter().any(|word| word == array) => array,
            _ => job,
        }
    }
}

fn filter(parsed: &Parsed) -> Result<JobFilter, CommandError> {
    let list = |key| parsed.text(key).map(value::list).unwrap_or_default();
    let mut users = parsed
        .text(K::Users)
        .map(|text| job_names::parse_users(text, query::user_name))
        .unwrap_or_default();
    if parsed.has(K::Me) {
        users.push(query::own_user_name());
    }
    let nodes = parsed.text(K::Nodelist).unwrap_or_default();
    let nodes = hostlist::expand(nodes)
        .map_err(|error| CommandError::message(error_line(&error.to_string())))?;
    if parsed.has(K::Wckey) {
        let text = "--wckey is not supported yet: name the jobs, or filter otherwise";
        return Err(CommandError::message(error_line(text)));
    }
    Ok(JobFilter {
        jobs: Vec::new(),
        users,
        accounts: list(K::Account),
        reservations: list(K::Reservation),
        partitions: list(K::Partition),
        names: list(K::Name),
        qos: list(K::Qos),
        nodes,
        states: parsed.text(K::States).map(states).transpose()?.unwrap_or_default(),
        all_states: false,
        without_deleted: false,
    })
}

fn states(text: &str) -> Result<Vec<JobState>, CommandError> {
    let refused = |word: &str| {
        CommandError::message(format!(
            "Invalid job state specified: {word}\n\
             Valid job states are PENDING, RUNNING, and SUSPENDED"
        ))
    };
    let states = job_names::parse_states(text).map_err(|word| refused(&word))?;
    let states = states.unwrap_or(STATES.to_vec());
    if states.iter().all(|state| STATES.contains(state)) { Ok(states) } else { Err(refused(text)) }
}

/// `-i`: asks about each job, and returns those that were confirmed.
fn confirmed(client: &mut Client, cancel: Cancel) -> Result<Option<Cancel>, CommandError> {
    let wanted = JobsQuery { filter: cancel.filter.clone(), ..Default::default() };
    let jobs = match client.call(Call::Jobs(wanted)).map_err(unreachable)? {
        Answer::Jobs { jobs: JobList(jobs), .. } => jobs,
        Answer::Refused(Refusal::UnknownJob(_)) => Vec::new(),
        Answer::Refused(why) => {
            return Err(CommandError::message(error_line(&refusal::text(&why))));
        }
        other => return Err(CommandError::unexpected(&other)),
    };
    let mut agreed = Vec::new();
    for job in jobs {
        let tasks = job.array.as_ref().and_then(|array| array.pending.clone());
        let step = cancel.step.map(|step| format!(".{step}")).unwrap_or_default();
        let (id, name, partition) = (job.id, &job.spec.name, &job.partition);
        eprint!("Cancel job_id={id}{step} name={name} partition={partition} [y/n]? ");
        if is_yes(&mut std::io::stdin().lock())? {
            agreed.push(model::change::JobRef { id, tasks, component_of: None });
        }
    }
    if agreed.is_empty() {
        return Ok(None);
    }
    let filter = JobFilter { jobs: agreed, ..Default::default() };
    Ok(Some(Cancel { filter, ..cancel }))
}

/// Whether the answer begins with `y`. The end of input is a no.
fn is_yes(input: &mut impl BufRead) -> Result<bool, CommandError> {
    std::io::stderr().flush()?;
    let mut line = String::new();
    input.read_line(&mut line)?;
    Ok(line.trim_start().starts_with(['y', 'Y']))
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::id::JobId;

    fn order(args: &[&str]) -> Result<CancelRequest, CommandError> {
        let parsed = ::slurm::option::parse::parse(COMMAND, args).expect("options of scancel");
        CancelRequest::read(&parsed)
    }

    #[test]
    fn jobs_steps_and_filters_become_calls() {
        let table: [(&[&str], usize, usize); 6] = [
            (&["5", "6", "7"], 1, 3),
            (&["5_[1-3]", "5_7"], 1, 2),
            (&["5,6"], 1, 2),
            (&["5.0", "6.1", "7"], 3, 1),
            (&["5.0"], 1, 1),
            (&["-u", "alice"], 1, 0),
        ];
        for (args, calls, jobs_in_first) in table {
            let made = order(args).expect("well formed").calls();
            assert_eq!((made.len(), made[0].filter.jobs.len()), (calls, jobs_in_first), "{args:?}");
        }
        let signal = &order(&["-b", "-s", "usr1", "5"]).expect("well formed").calls()[0];
        assert_eq!((signal.signal, signal.batch_only, signal.full), (Some(10), true, false));
    }

    #[test]
    fn bad_input_is_refused_in_the_captured_words() {
        let table: [(&[&str], &str); 5] = [
            (&["abc"], "scancel: error: Invalid job id abc"),
            (&["5", "x"], "scancel: error: Invalid job id x"),
            (
                &["-t", "BOGUS"],
                "Invalid job state specified: BOGUS\nValid job states are PENDING, RUNNING, and SUSPENDED",
            ),
            (&[], "scancel: error: No job identification provided"),
            (&["-s", "NOSUCH", "5"], "scancel: error: Unknown job signal: NOSUCH"),
        ];
        for (args, line) in table {
            assert_eq!(order(args).expect_err("refused").to_string(), line, "{args:?}");
        }
    }

    #[test]
    fn refusals_have_slurms_exit_codes() {
        let ended = || Refusal::JobEnded(JobId(3));
        let unknown = || Refusal::UnknownJob("999999".into());
        let table: [(&[&str], Refusal, (bool, u8)); 9] = [
            (&["3"], ended(), (false, 0)),
            (&["-v", "3"], ended(), (true, 0)),
            (&["-s", "USR1", "3"], ended(), (false, 229)),
            (&["999999"], unknown(), (false, 0)),
            (&["999999.0"], unknown(), (true, 1)),
            (&["-s", "USR1", "999999"], unknown(), (true, 1)),
            (&["-b", "-s", "TERM", "16277_2"], unknown(), (true, 1)),
            (&["14"], Refusal::AccessDenied, (true, 210)),
            (&["-u", "alice"], Refusal::AccessDenied, (true, 210)),
        ];
        for (args, refusal, severity) in table {
            let order = order(args).expect("well formed");
            let step = order.jobs.first().and_then(|named| named.step);
            assert_eq!(order.severity(&refusal, step), severity, "{args:?}");
        }
    }

    #[test]
    fn tasks_of_a_named_array_are_reported_under_its_id() {
        let many = order(&["14", "20_3"]).expect("well formed");
        assert_eq!(many.shown("14_2", None), "14");
        assert_eq!(many.shown("20_3", None), "20_3");
        assert_eq!(many.shown("16", Some("14_2")), "14_2");
    }

    #[test]
    fn only_an_answer_that_begins_with_y_confirms() {
        for (line, yes) in [("y\n", true), ("Yes\n", true), ("n\n", false), ("", false)] {
            assert_eq!(is_yes(&mut line.as_bytes()).expect("readable"), yes, "{line:?}");
        }
    }
}
