//! `strigger`: programs that run when something happens to nodes or jobs.

use super::query::{self, CommandError, Server};
use ::slurm::option::{Command, OptionKey as K, Parsed, TriggerEvent as OptionEvent};
use ::slurm::output::strigger as output;
use model::hostlist;
use model::id::JobId;
use model::trigger::{TriggerEvent, TriggerFilter, TriggerRequest, TriggerSubject};
use std::process::ExitCode;
use wire::client::{Answer, Call};

pub fn run(args: &[String]) -> ExitCode {
    query::finish(Command::Strigger, act(args))
}

fn act(args: &[String]) -> Result<ExitCode, CommandError> {
    let Some(parsed) = query::options(Command::Strigger, args)? else {
        return Ok(ExitCode::SUCCESS);
    };
    let operations = [K::TriggerSet, K::TriggerGet, K::TriggerClear];
    let asked: Vec<K> = operations.into_iter().filter(|key| parsed.has(*key)).collect();
    match asked[..] {
        [K::TriggerSet] => set(&parsed),
        [K::TriggerGet] => get(&parsed),
        [K::TriggerClear] => clear(&parsed),
        _ => Err(wrong("expected one of --set, --get and --clear")),
    }
}

fn wrong(text: impl std::fmt::Display) -> CommandError {
    CommandError::message(format!("strigger: error: {text}"))
}

fn set(parsed: &Parsed) -> Result<ExitCode, CommandError> {
    let job = job(parsed)?;
    let event = event(parsed)?.ok_or_else(|| {
        wrong("--set: expected an event: --down, --up, --drained, --fail, --idle, --fini or --time")
    })?;
    let program = parsed.text(K::Program).ok_or_else(|| wrong("--set: expected --program"))?;
    let subject = match (job, parsed.has(K::Nodelist)) {
        (Some(_), true) => return Err(wrong("--jobid and --node: expected one of them")),
        (Some(job), false) => TriggerSubject::Job(job),
        (None, _) => {
            let named = parsed.text(K::Nodelist).filter(|named| !named.is_empty());
            let names = named.map(hostlist::expand).transpose().map_err(wrong)?;
            TriggerSubject::Nodes(names.unwrap_or_default())
        }
    };
    let request = TriggerRequest {
        subject,
        event,
        offset_s: match parsed.text(K::Offset) {
            Some(text) => text.parse().map_err(|_| {
                wrong(format!("--offset={text}: expected seconds, as in 60 or -60"))
            })?,
            None => 0,
        },
        program: program.to_owned(),
        permanent: flags(parsed)?,
    };
    model::trigger::check(&request).map_err(wrong)?;
    let mut server = Server::find("slurm_set_trigger")?;
    server.ask(Call::SetTrigger(Box::new(request))).map(|_| ExitCode::SUCCESS)
}

fn get(parsed: &Parsed) -> Result<ExitCode, CommandError> {
    let filter = filter(parsed)?;
    let mut server = Server::find("slurm_get_triggers")?;
    let mut triggers = match server.ask(Call::Triggers)? {
        Answer::Triggers(triggers) => triggers,
        other => return Err(CommandError::unexpected(&other)),
    };
    triggers.retain(|trigger| filter.admits(trigger));
    query::print(&output::list(&triggers, parsed.has(K::Noheader)))?;
    Ok(ExitCode::SUCCESS)
}

fn clear(parsed: &Parsed) -> Result<ExitCode, CommandError> {
    let filter = filter(parsed)?;
    if filter.id.is_none() && filter.job.is_none() && filter.user.is_none() {
        return Err(wrong("--clear: expected --id, --jobid or --user"));
    }
    let mut server = Server::find("slurm_clear_trigger")?;
    server.ask(Call::ClearTriggers(filter)).map(|_| ExitCode::SUCCESS)
}

fn filter(parsed: &Parsed) -> Result<TriggerFilter, CommandError> {
    let id = parsed.text(K::TriggerId).map(|text| {
        text.parse::<u32>().map_err(|_| wrong(format!("--id={text}: expected a number")))
    });
    let user = parsed.text(K::Users).map(|text| {
        let by_id = text.parse().ok().and_then(query::user_name);
        by_id.unwrap_or_else(|| text.to_owned())
    });
    Ok(TriggerFilter { id: id.transpose()?, job: job(parsed)?, user, event: event(parsed)? })
}

fn job(parsed: &Parsed) -> Result<Option<JobId>, CommandError> {
    let Some(text) = parsed.text(K::JobId) else { return Ok(None) };
    let id = text.parse().ok().filter(|id| *id > 0);
    id.map(|id| Some(JobId(id))).ok_or_else(|| wrong(format!("Invalid jobid: {text}")))
}

/// `--flags=perm`
fn flags(parsed: &Parsed) -> Result<bool, CommandError> {
    match parsed.text(K::Flags) {
        None => Ok(false),
        Some(text) if text.eq_ignore_ascii_case("perm") => Ok(true),
        Some(text) => Err(wrong(format!("--flags={text}: expected perm"))),
    }
}

/// The one event that is named.
fn event(parsed: &Parsed) -> Result<Option<TriggerEvent>, CommandError> {
    let mut found = None;
    for setting in &parsed.values {
        let K::TriggerEvent(named) = setting.key else { continue };
        let event = match named {
            OptionEvent::NodeDown => TriggerEvent::Down,
            OptionEvent::NodeUp => TriggerEvent::Up,
            OptionEvent::NodeDrained => TriggerEvent::Drained,
            OptionEvent::NodeFail => TriggerEvent::Fail,
            OptionEvent::NodeIdle => TriggerEvent::Idle,
            OptionEvent::JobFini => TriggerEvent::Fini,
            OptionEvent::JobTimeLimit => TriggerEvent::Time,
            _ => {
                return Err(wrong(
                    "that event is not supported: expected --down, --up, --drained, --fail, --idle, --fini or --time",
                ));
            }
        };
        if found.is_some_and(|before| before != event) {
            return Err(wrong("expected one event: several triggers wait for several"));
        }
        found = Some(event);
    }
    Ok(found)
}
