//! `seff JOB`: how much of what a job was given it used.

use super::query::job_names;
use super::query::{self, CommandError, Server};
use ::slurm::option::Command;
use ::slurm::output::seff as output;
use model::change::JobRef;
use model::record::HistoryFilter;
use std::process::ExitCode;
use wire::client::{Answer, Call};

pub fn run(args: &[String]) -> ExitCode {
    query::finish(Command::Seff, show(args))
}

fn show(args: &[String]) -> Result<ExitCode, CommandError> {
    let Some(parsed) = query::options(Command::Seff, args)? else { return Ok(ExitCode::SUCCESS) };
    let [word] = &parsed.rest[..] else {
        return Err(CommandError::message(
            "seff: error: expected one job, as in `seff 12` or `seff 12_3`",
        ));
    };
    let Some(named) = job_names::parse_job(word).filter(|named| named.step.is_none()) else {
        return Err(CommandError::message(format!(
            "seff: error: {word:?} names no job: expected 12 or 12_3"
        )));
    };
    let mut server = Server::find("seff: error: slurm_load_jobs")?;
    let cluster = query::cluster_name(&mut server)?;
    let jobs: Vec<JobRef> = vec![named.job];
    let records =
        match server.ask(Call::History(HistoryFilter { jobs, ..HistoryFilter::default() }))? {
            Answer::History(records) => records,
            other => return Err(CommandError::unexpected(&other)),
        };
    if records.is_empty() {
        return Err(CommandError::message(format!("seff: error: job {word} does not exist")));
    }
    let texts: Vec<String> =
        records.iter().map(|record| output::render(record, &cluster)).collect();
    query::print(&texts.join("\n"))?;
    Ok(ExitCode::SUCCESS)
}
