//! `scontrol update`: changes a job, a node, a partition or a reservation.

use super::job_action::{refusals, shown};
use super::named_nodes::{change_nodes, nodes_named};
use super::pair::{Pair, pairs, take};
use super::{
    TimeContext, job_key, node_key, partition_key, reservation, reservation_key, update_text,
};
use crate::command::slurm::query::job_names;
use crate::command::slurm::query::{CommandError, Server};
use ::slurm::words::refusal;
use model::change::{JobChange, JobField, JobRef};
use model::time::TimeLimit;
use std::process::ExitCode;
use wire::client::{Answer, Call, JobsQuery};
use wire::job_list::JobList;

const REQUEST: &str = "slurm_update error";

pub fn run(words: &[String]) -> Result<ExitCode, CommandError> {
    let mut pairs = pairs(words);
    if let Some(job) = take(&mut pairs, &["JobId", "Job"]) {
        // `UserID` selects among jobs of one name, and has no effect on a job that is named by its id.
        take(&mut pairs, &["UserID"]);
        return update_jobs(&job.value, &pairs);
    }
    let named = pairs.first().is_some_and(|pair| pair.key.eq_ignore_ascii_case("JobName"));
    if named && let Some(name) = take(&mut pairs, &["JobName"]) {
        let user = take(&mut pairs, &["UserID"]).map(|pair| pair.value);
        return update_named(&name.value, user, &pairs);
    }
    // Checked before nodes and partitions: a reservation has keys for both.
    if words.iter().any(|word| word.contains('=') && reservation_key::names_one(word)) {
        return reservation::update(words);
    }
    if let Some(nodes) = take(&mut pairs, &["NodeName", "Node"]) {
        return update_nodes(&nodes.value, &pairs);
    }
    if let Some(partition) = take(&mut pairs, &["PartitionName", "Partition"]) {
        return update_partition(&partition.value, &pairs);
    }
    Err(CommandError::message(
        "No valid entity in update command\n\
         Input line must include \"NodeName\", \"PartitionName\", \"Reservation\", \"JobId\", or \"SlurmctldDebug\"",
    ))
}

fn update_jobs(named: &str, pairs: &[Pair]) -> Result<ExitCode, CommandError> {
    let unknown = |word: String| {
        CommandError::message(format!("{} for job {word}", refusal::INVALID_JOB_ID.text))
    };
    let jobs = job_names::parse_jobs(named).map_err(unknown)?;
    update_each(jobs.into_iter().map(|named| named.job).collect(), pairs)
}

/// Updates every job of this name, of one user or of all.
fn update_named(
    name: &str,
    user: Option<String>,
    pairs: &[Pair],
) -> Result<ExitCode, CommandError> {
    let filter = model::change::JobFilter {
        names: vec![name.to_owned()],
        users: user.into_iter().collect(),
        ..Default::default()
    };
    let wanted = JobsQuery { filter, ..JobsQuery::default() };
    let jobs = match Server::find(REQUEST)?.ask(Call::Jobs(wanted))? {
        Answer::Jobs { jobs: JobList(jobs), .. } => jobs,
        other => return Err(CommandError::unexpected(&other)),
    };
    if jobs.is_empty() {
        return Err(CommandError::message(format!("scontrol: error: No jobs with name '{name}'")));
    }
    update_each(jobs.into_iter().map(|job| JobRef::whole(job.id)).collect(), pairs)
}

fn update_each(jobs: Vec<JobRef>, pairs: &[Pair]) -> Result<ExitCode, CommandError> {
    let tz = timezone::local();
    let now = ::server::clock::now();
    let context = TimeContext { now, tz: &tz };
    // Every value is read before anything is sent, so that an invalid one changes nothing.
    let updates: Vec<job_key::Update> =
        pairs.iter().map(|pair| job_key::parse(pair, context)).collect::<Result<_, _>>()?;
    if updates.is_empty() {
        return Err(CommandError::message("No changes specified"));
    }
    let mut server = Server::find(REQUEST)?;
    let mut code = ExitCode::SUCCESS;
    for job in jobs {
        let name = shown(&job);
        let refused = updates.iter().find_map(|update| match update {
            job_key::Update::Refused(why) => Some(why),
            _ => None,
        });
        if let Some(why) = refused {
            eprintln!("{} for job {name}", update_text(why));
            code = ExitCode::FAILURE;
            continue;
        }
        let fields = fields(&mut server, &job, &updates)?;
        let call = Call::UpdateJob { job, change: JobChange::Fields(fields) };
        for (job, why) in refusals(server.try_ask(call)?, &name)? {
            eprintln!("{} for job {job}", update_text(&why));
            code = ExitCode::FAILURE;
        }
    }
    Ok(code)
}

/// The fields to set. A relative time limit is resolved against the current one.
fn fields(
    server: &mut Server,
    job: &JobRef,
    updates: &[job_key::Update],
) -> Result<Vec<JobField>, CommandError> {
    let mut fields = Vec::with_capacity(updates.len());
    for update in updates {
        fields.push(match update {
            job_key::Update::Field(field) => field.clone(),
            job_key::Update::Refused(_) => continue,
            job_key::Update::AddMinutes(minutes) => {
                JobField::TimeLimit(moved(present_limit(server, job)?, *minutes))
            }
        });
    }
    Ok(fields)
}

fn present_limit(server: &mut Server, job: &JobRef) -> Result<TimeLimit, CommandError> {
    let filter = model::change::JobFilter { jobs: vec![job.clone()], ..Default::default() };
    let wanted = JobsQuery { filter, ..JobsQuery::default() };
    match server.ask(Call::Jobs(wanted))? {
        Answer::Jobs { jobs: JobList(jobs), .. } => {
            jobs.first().map(|job| job.time_limit).ok_or_else(|| {
                CommandError::message(format!("{REQUEST}: {}", refusal::INVALID_JOB_ID.text))
            })
        }
        other => Err(CommandError::unexpected(&other)),
    }
}

/// Adds minutes to a limit. An unlimited one stays so; the result is at least one minute.
fn moved(limit: TimeLimit, minutes: i64) -> TimeLimit {
    match limit {
        TimeLimit::Unlimited => TimeLimit::Unlimited,
        TimeLimit::Minutes(now) => {
            let sum = (i64::from(now) + minutes).clamp(1, i64::from(u32::MAX));
            TimeLimit::Minutes(u32::try_from(sum).unwrap_or(u32::MAX))
        }
    }
}

fn update_nodes(named: &str, pairs: &[Pair]) -> Result<ExitCode, CommandError> {
    let changes = node_key::changes(pairs)?;
    let mut server = Server::find(REQUEST)?;
    let nodes = nodes_named(&mut server, named, REQUEST)?;
    for change in changes {
        change_nodes(&mut server, nodes.clone(), change, REQUEST)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn update_partition(name: &str, pairs: &[Pair]) -> Result<ExitCode, CommandError> {
    let changes =
        pairs.iter().map(partition_key::parse).collect::<Result<Vec<_>, CommandError>>()?;
    let mut server = Server::find(REQUEST)?;
    for change in changes {
        let call = Call::UpdatePartition { name: name.to_owned(), change };
        if let Err(why) = server.try_ask(call)? {
            return Err(CommandError::message(format!("{REQUEST}: {}", update_text(&why))));
        }
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &[&str]) -> Vec<String> {
        text.iter().map(|word| (*word).to_owned()).collect()
    }

    #[test]
    fn an_update_without_an_entity_is_refused() {
        let text = run(&words(&["timelimit=1"])).expect_err("wrong").to_string();
        assert!(text.starts_with("No valid entity in update command\nInput line must include"));
    }

    #[test]
    fn bad_updates_are_refused_in_slurms_words_before_anything_is_sent() {
        let table = [
            (
                &["jobid=110", "bogus=1"][..],
                "Update of this parameter is not supported: bogus=1\nRequest aborted",
            ),
            (&["jobid=abc", "nice=1"], "Invalid job id specified for job abc"),
            (
                &["nodename=node1", "state=drain"],
                "You must specify a reason when DOWNING or DRAINING a node. Request denied",
            ),
            (
                &["nodename=node2", "state=bogus"],
                "Invalid input: state=bogus\nRequest aborted\n\
                 Valid states are: NoResp DRAIN FAIL FUTURE RESUME POWER_DOWN POWER_UP UNDRAIN\n\
                 Not all states are valid given a node's prior state",
            ),
            (
                &["partitionname=debug", "state=bogus"],
                "Invalid input: state=bogus: expected UP, DOWN, DRAIN or INACTIVE\nRequest aborted",
            ),
        ];
        for (line, said) in table {
            assert_eq!(run(&words(line)).expect_err("wrong").to_string(), said, "{line:?}");
        }
    }

    #[test]
    fn a_relative_time_limit_stays_within_bounds() {
        let table = [
            (TimeLimit::Minutes(60), 10, TimeLimit::Minutes(70)),
            (TimeLimit::Minutes(60), -90, TimeLimit::Minutes(1)),
            (TimeLimit::Unlimited, 10, TimeLimit::Unlimited),
        ];
        for (limit, minutes, new) in table {
            assert_eq!(moved(limit, minutes), new);
        }
    }
}
