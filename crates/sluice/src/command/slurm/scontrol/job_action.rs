//! `scontrol hold`, `release`, `requeue`, `suspend`, `resume`, `top`, and `scontrol write batch_script`.

use super::{JobVerb, too_few};
use crate::command::slurm::query::job_names::{self, NamedJob};
use crate::command::slurm::query::{self, CommandError, Server};
use ::slurm::words::refusal;
use model::change::{JobFilter, JobRef, Requeue};
use model::os_text;
use model::reason::Refusal;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::process::ExitCode;
use wire::client::{Answer, Call, JobsQuery};
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
    let doing = "job script retrieval failed";
    let unknown =
        || CommandError::message(format!("{doing}: {}: {id}", refusal::INVALID_JOB_ID.text));
    let job = job_names::parse_job(id).ok_or_else(unknown)?.job;
    let mut server = Server::find(doing)?;
    let text = match server.ask(Call::Script { job: job.id })? {
        Answer::Script { text } => text,
        other => return Err(CommandError::unexpected(&other)),
    };
    if file == Some("-") {
        query::print_bytes(text.as_bytes())?;
        return Ok(ExitCode::SUCCESS);
    }
    let path = file.map_or_else(|| format!("slurm-{}.sh", job.id), str::to_owned);
    let written = if file.is_some() {
        let mut how = std::fs::OpenOptions::new();
        how.write(true).create(true).truncate(true).mode(SCRIPT_MODE).open(os_text::to_os(&path))
    } else {
        open_own(&path)
    };
    written.and_then(|mut file| file.write_all(text.as_bytes())).map_err(|error| {
        CommandError::message(format!("failed to write file `{path}`: {error}"))
    })?;
    query::print(&format!("batch script for job {} written to {path}\n", job.id))?;
    Ok(ExitCode::SUCCESS)
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
    }
}
