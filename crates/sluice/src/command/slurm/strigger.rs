//! `strigger`: programs that run when something happens to nodes or jobs.

use super::query::{self, CommandError, Server};
use ::slurm::option::{Command, OptionKey as K, Parsed, TriggerEvent as OptionEvent, table};
use ::slurm::output::strigger as output;
use model::hostlist;
use model::id::JobId;
use model::trigger::{Trigger, TriggerEvent, TriggerFilter, TriggerRequest, TriggerSubject};
use std::process::ExitCode;
use wire::client::{Answer, Call};

/// Options that `--set` alone reads, and those that choose among the triggers that are there.
const OF_SET: &[K] = &[K::Flags, K::Offset, K::Program];
const OF_CHOICE: &[K] = &[K::TriggerId, K::Users];

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

/// Says of each of these options that the operation does not read it.
fn note_unread(parsed: &Parsed, operation: &str, unread: &[K]) {
    for key in unread.iter().filter(|key| parsed.has(**key)) {
        let name = table::long_name(Command::Strigger, *key);
        eprintln!("strigger: note: --{name} has no meaning with --{operation}");
    }
}

fn set(parsed: &Parsed) -> Result<ExitCode, CommandError> {
    note_unread(parsed, "set", OF_CHOICE);
    let job = job(parsed)?;
    let event = event(parsed)?.ok_or_else(|| {
        wrong("--set: expected an event: --down, --up, --drained, --fail, --idle, --fini or --time")
    })?;
    let program = parsed.text(K::Program).ok_or_else(|| wrong("--set: expected --program"))?;
    let subject = match (job, nodes(parsed)?) {
        (Some(_), Some(_)) => return Err(wrong("--jobid and --node: expected one of them")),
        (Some(job), None) => TriggerSubject::Job(job),
        (None, named) => TriggerSubject::Nodes(named.unwrap_or_default()),
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
    note_unread(parsed, "get", OF_SET);
    let (filter, nodes) = (filter(parsed)?, nodes(parsed)?);
    let mut server = Server::find("slurm_get_triggers")?;
    let triggers = chosen(&mut server, &filter, nodes.as_deref())?;
    query::print(&output::list(&triggers, parsed.has(K::Noheader)))?;
    Ok(ExitCode::SUCCESS)
}

/// The triggers that fit all that is said.
fn chosen(
    server: &mut Server,
    filter: &TriggerFilter,
    nodes: Option<&[String]>,
) -> Result<Vec<Trigger>, CommandError> {
    let mut triggers = match server.ask(Call::Triggers)? {
        Answer::Triggers(triggers) => triggers,
        other => return Err(CommandError::unexpected(&other)),
    };
    triggers.retain(|trigger| {
        filter.admits(trigger) && nodes.is_none_or(|nodes| is_about_nodes(trigger, nodes))
    });
    Ok(triggers)
}

/// Whether the trigger waits for one of these nodes; no names are every node, of the trigger as of the list.
fn is_about_nodes(trigger: &Trigger, named: &[String]) -> bool {
    let TriggerSubject::Nodes(of) = &trigger.request.subject else { return false };
    of.is_empty() || named.is_empty() || of.iter().any(|name| named.contains(name))
}

fn clear(parsed: &Parsed) -> Result<ExitCode, CommandError> {
    note_unread(parsed, "clear", OF_SET);
    let (filter, nodes) = (filter(parsed)?, nodes(parsed)?);
    if filter.id.is_none() && filter.job.is_none() && filter.user.is_none() {
        return Err(wrong("--clear: expected --id, --jobid or --user"));
    }
    let mut server = Server::find("slurm_clear_trigger")?;
    // The server's filter has no nodes: the triggers are chosen here, and cleared by their numbers.
    let filters = match nodes {
        None => vec![filter],
        Some(nodes) => {
            let found = chosen(&mut server, &filter, Some(&nodes))?;
            let by_id = |trigger: &Trigger| TriggerFilter {
                id: Some(trigger.id),
                ..TriggerFilter::default()
            };
            found.iter().map(by_id).collect()
        }
    };
    if filters.is_empty() {
        return Err(wrong("--clear: no trigger fits"));
    }
    for filter in filters {
        server.ask(Call::ClearTriggers(filter))?;
    }
    Ok(ExitCode::SUCCESS)
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

/// `--node=HOSTS`; no names are every node.
fn nodes(parsed: &Parsed) -> Result<Option<Vec<String>>, CommandError> {
    if !parsed.has(K::Nodelist) {
        return Ok(None);
    }
    let named = parsed.text(K::Nodelist).filter(|named| !named.is_empty());
    Ok(Some(named.map(hostlist::expand).transpose().map_err(wrong)?.unwrap_or_default()))
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

#[cfg(test)]
mod tests {
    use super::*;
    use model::time::Timestamp;

    #[test]
    fn triggers_are_chosen_by_the_nodes_that_they_wait_for() {
        let about = |subject| Trigger {
            id: 1,
            owner: "root".into(),
            owner_uid: 0,
            set: Timestamp::from_millis(0),
            request: TriggerRequest {
                subject,
                event: TriggerEvent::Down,
                offset_s: 0,
                program: "/bin/true".into(),
                permanent: false,
            },
        };
        let names = |list: &[&str]| list.iter().map(ToString::to_string).collect::<Vec<_>>();
        let of = |list: &[&str]| about(TriggerSubject::Nodes(names(list)));
        assert!(is_about_nodes(&of(&["a", "b"]), &names(&["b"])));
        assert!(!is_about_nodes(&of(&["a"]), &names(&["b"])));
        assert!(is_about_nodes(&of(&[]), &names(&["b"])), "it waits for every node");
        assert!(is_about_nodes(&of(&["a"]), &[]), "every node is asked for");
        assert!(!is_about_nodes(&about(TriggerSubject::Job(JobId(1))), &[]));
    }
}
