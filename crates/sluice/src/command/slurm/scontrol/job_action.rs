//! `scontrol hold`, `release`, `requeue`, `suspend`, `resume`, `top`, and `scontrol write batch_script`.

use super::{JobVerb, too_few};
use crate::command::slurm::query::job_names::{self, NamedJob};
use crate::command::slurm::query::{self, CommandError, Server};
use ::slurm::words::refusal;
use model::change::{JobFilter, JobRef, Requeue};
use model::id::JobId;
use model::os_text;
use model::reason::Refusal;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::process::ExitCode;
use wire::client::{Answer, Call, Detail, JobsQuery};
use wire::job_list::JobList;

/// As in Slurm, only the owner may read and execute the written script.
const SCRIPT_MODE: u32 = 0o700;

pub fn run(keyword: &str, verb: JobVerb, words: &[String]) -> Result<ExitCode, CommandError> {
    let (how, words) = requeue_options(verb, words);
    if words.is_empty() {
        return Err(too_few(keyword));
    }
    if verb == JobVerb::Top && words.len() > 1 {
        return Err(CommandError::message(format!("too many arguments for keyword:{keyword}")));
    }
    let mut server = Server::find("slurm_suspend error")?;
    let mut code = ExitCode::SUCCESS;
    for word in words {
        let mut targets = targets(&mut server, word)?;
        if verb == JobVerb::Top {
            // Each job is moved to the front, so the first one is moved last.
            targets.reverse();
        }
        for (job, named) in targets {
            let answer = match job {
                Some(job) => server.try_ask(Call::UpdateJob { job, change: verb.change(how) })?,
                None => Err(Refusal::UnknownJob(named.clone())),
            };
            let refusals = refusals(answer, &named)?;
            for (job, why) in &refusals {
                eprintln!("{} for job {job}", refusal::text(why));
                code = ExitCode::FAILURE;
            }
            if let Some((_, why)) = refusals.first().filter(|_| verb.repeats_refusal()) {
                eprintln!("slurm_suspend error: {}", refusal::text(why));
            }
        }
    }
    Ok(code)
}

/// The options of `requeue` and `requeuehold`, which stand before the jobs, and the rest of the words.
fn requeue_options(verb: JobVerb, words: &[String]) -> (Requeue, &[String]) {
    let mut how = Requeue::default();
    let mut rest = words;
    while let Some((word, others)) = rest.split_first() {
        match (verb, word.to_ascii_lowercase().as_str()) {
            (JobVerb::Requeue | JobVerb::RequeueHold, "incomplete") => how.incomplete = true,
            (JobVerb::RequeueHold, "state=specialexit") => how.special_exit = true,
            _ => break,
        }
        rest = others;
    }
    (how, rest)
}

/// The jobs that a word names, by id or by job name, each with the name that messages use.
fn targets(server: &mut Server, word: &str) -> Result<Vec<(Option<JobRef>, String)>, CommandError> {
    if let Ok(named) = job_names::parse_jobs(word) {
        return Ok(named
            .into_iter()
            .map(|NamedJob { job, .. }| (Some(job.clone()), shown(&job)))
            .collect());
    }
    let name = word.strip_prefix("jobname=").or_else(|| word.strip_prefix("name=")).unwrap_or(word);
    let filter = JobFilter { names: vec![name.to_owned()], ..JobFilter::default() };
    let wanted = JobsQuery { filter, ..JobsQuery::default() };
    let jobs = match server.ask(Call::Jobs(wanted))? {
        Answer::Jobs { jobs: JobList(jobs), .. } => jobs,
        other => return Err(CommandError::unexpected(&other)),
    };
    if jobs.is_empty() {
        return Ok(vec![(None, word.to_owned())]);
    }
    Ok(jobs.iter().map(|job| (Some(JobRef::whole(job.id)), job.id.to_string())).collect())
}

/// `12`, `12_3`, `12_[1-5]`, `12+1`.
pub(super) fn shown(job: &JobRef) -> String {
    match &job.tasks {
        None => job.shown_id(),
        Some(tasks) if tasks.len() == 1 => format!("{}_{tasks}", job.id),
        Some(tasks) => format!("{}_[{tasks}]", job.id),
    }
}

/// The jobs that the server refused, and why.
pub(super) fn refusals(
    answer: Result<Answer, Refusal>,
    named: &str,
) -> Result<Vec<(String, Refusal)>, CommandError> {
    match answer {
        Ok(Answer::Done) => Ok(Vec::new()),
        Ok(Answer::Updated(results)) => {
            Ok(results.into_iter().filter_map(|(job, r)| Some((job, r.err()?))).collect())
        }
        Ok(other) => Err(CommandError::unexpected(&other)),
        Err(why) => Ok(vec![(named.to_owned(), why)]),
    }
}

/// `write batch_script ID [FILE|-]`
pub fn write(words: &[String]) -> Result<ExitCode, CommandError> {
    let (id, file) = match words {
        [what, ..] if !what.eq_ignore_ascii_case("batch_script") => {
            return Err(CommandError::message(format!("invalid entity:{what} for keyword:write ")));
        }
        [_, id] => (id, None),
        [_, id, file] => (id, Some(file.as_str())),
        [_, _, _, ..] => return Err(CommandError::message("too many arguments for keyword:write")),
        _ => return Err(too_few("write")),
    };
    let named = one_job(id)?;
    let mut server = Server::find(SCRIPT_RETRIEVAL)?;
    let job = job_id(&mut server, named)?.ok_or_else(|| unknown_job(id))?;
    let text = match server.ask(Call::Script { job })? {
        Answer::Script { text } => text,
        other => return Err(CommandError::unexpected(&other)),
    };
    if file == Some("-") {
        query::print_bytes(text.as_bytes())?;
        return Ok(ExitCode::SUCCESS);
    }
    let path = file.map_or_else(|| format!("slurm-{job}.sh"), str::to_owned);
    let written = if file.is_some() {
        let mut how = std::fs::OpenOptions::new();
        how.write(true).create(true).truncate(true).mode(SCRIPT_MODE).open(os_text::to_os(&path))
    } else {
        open_own(&path)
    };
    written.and_then(|mut file| file.write_all(text.as_bytes())).map_err(|error| {
        CommandError::message(format!("failed to write file `{path}`: {error}"))
    })?;
    query::print(&format!("batch script for job {job} written to {path}\n"))?;
    Ok(ExitCode::SUCCESS)
}

const SCRIPT_RETRIEVAL: &str = "job script retrieval failed";

fn unknown_job(word: &str) -> CommandError {
    let why = refusal::INVALID_JOB_ID.text;
    CommandError::message(format!("{SCRIPT_RETRIEVAL}: {why}: {word}"))
}

/// The job whose script is asked for: `12`, `12_3` or `12+1`, and neither several tasks nor a step.
fn one_job(word: &str) -> Result<JobRef, CommandError> {
    let NamedJob { job, step } = job_names::parse_job(word).ok_or_else(|| unknown_job(word))?;
    if step.is_some() || job.tasks.as_ref().is_some_and(|tasks| tasks.len() != 1) {
        let expected = "expected one job, as in 12, 12_3 or 12+1";
        return Err(CommandError::message(format!("{SCRIPT_RETRIEVAL}: {word}: {expected}")));
    }
    Ok(job)
}

/// The id of the job, or of the array whose task waits. `None` where there is no such task or component: the number that its name
/// makes may be another job's.
fn job_id(server: &mut Server, named: JobRef) -> Result<Option<JobId>, CommandError> {
    if named.tasks.is_none() && named.component_of.is_none() {
        return Ok(Some(named.id));
    }
    let filter = JobFilter { jobs: vec![named], ..JobFilter::default() };
    let wanted = JobsQuery { filter, detail: Detail::Listing, ..JobsQuery::default() };
    match server.try_ask(Call::Jobs(wanted))? {
        Ok(Answer::Jobs { jobs: JobList(jobs), .. }) => Ok(jobs.first().map(|job| job.id)),
        Ok(other) => Err(CommandError::unexpected(&other)),
        Err(Refusal::UnknownJob(_)) => Ok(None),
        Err(why) => {
            let why = refusal::text(&why);
            Err(CommandError::message(format!("{SCRIPT_RETRIEVAL}: {why}")))
        }
    }
}

/// Opens the file whose name everybody can guess: not through a link, and not another user's.
fn open_own(path: &str) -> std::io::Result<std::fs::File> {
    let mut how = std::fs::OpenOptions::new();
    let how = how.write(true).create(true).truncate(false).mode(SCRIPT_MODE);
    let file = how.custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path)?;
    if file.metadata()?.uid() != nix::unistd::geteuid().as_raw() {
        return Err(std::io::ErrorKind::PermissionDenied.into());
    }
    file.set_len(0)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_are_shown_as_they_were_typed() {
        for word in ["12", "12_3", "12_[1-5]", "12_[1,4-5]"] {
            assert_eq!(shown(&job_names::parse_job(word).expect("a job").job), word);
        }
    }

    #[test]
    fn requeue_options_stand_before_the_jobs() {
        let words = |text: &[&str]| text.iter().map(|w| (*w).to_owned()).collect::<Vec<String>>();
        let table = [
            (JobVerb::Requeue, &["Incomplete", "5"][..], true, false, 1),
            (JobVerb::RequeueHold, &["state=SpecialExit", "incomplete", "5", "6"], true, true, 2),
            (JobVerb::Requeue, &["state=specialexit", "5"], false, false, 2),
            (JobVerb::RequeueHold, &["State=Bogus", "5"], false, false, 2),
            (JobVerb::Hold, &["incomplete"], false, false, 1),
        ];
        for (verb, line, incomplete, special_exit, jobs) in table {
            let words = words(line);
            let (how, rest) = requeue_options(verb, &words);
            let shown = (how.incomplete, how.special_exit, rest.len());
            assert_eq!(shown, (incomplete, special_exit, jobs), "{line:?}");
        }
    }

    #[test]
    fn each_refused_task_is_reported() {
        let answer = Ok(Answer::Updated(vec![
            ("7_1".to_owned(), Ok(())),
            ("7_2".to_owned(), Err(Refusal::AccessDenied)),
        ]));
        let refused = refusals(answer, "7").expect("an update");
        assert_eq!(refused, [("7_2".to_owned(), Refusal::AccessDenied)]);
        let refused = refusals(Err(Refusal::AccessDenied), "7").expect("a refusal");
        assert_eq!(refused, [("7".to_owned(), Refusal::AccessDenied)]);
    }

    #[test]
    fn write_batch_script_needs_a_job_id() {
        let said = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|w| (*w).to_owned()).collect();
            write(&words).expect_err("wrong").to_string()
        };
        assert_eq!(said(&[]), "too few arguments for keyword:write");
        assert_eq!(said(&["script", "5"]), "invalid entity:script for keyword:write ");
        let unknown = "job script retrieval failed: Invalid job id specified: abc";
        assert_eq!(said(&["batch_script", "abc"]), unknown);
        for several in ["12_[3-5]", "12_*", "12.0", "12_3.batch"] {
            let expected = format!(
                "job script retrieval failed: {several}: expected one job, as in 12, 12_3 or 12+1"
            );
            assert_eq!(said(&["batch_script", several]), expected);
        }
        for one in ["12", "12_3", "12+1"] {
            assert_eq!(one_job(one).ok(), job_names::parse_job(one).map(|named| named.job));
        }
    }
}
