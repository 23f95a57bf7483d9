//! `scontrol`: shows and changes jobs, nodes, partitions and reservations.

mod dynamic_node;
mod job_action;
mod job_key;
mod list_pids;
mod named_nodes;
mod node_key;
mod pair;
mod partition;
mod partition_key;
mod power;
pub mod reservation;
mod reservation_key;
mod set_debug;
mod show;
mod show_assoc_mgr;
mod token;
mod update;

use super::query::{self, CommandError, Server};
use crate::command::configuration_files;
use ::slurm::option::{Command, OptionKey as K, Parsed, help};
use ::slurm::output::scontrol as output;
use ::slurm::words::refusal;
use jiff::tz::TimeZone;
use model::change::{JobChange, Requeue};
use model::hostlist;
use model::node::{AdminState, SlotState};
use model::reason::Refusal;
use model::run::Hold;
use model::time::Timestamp;
use std::path::Path;
use std::process::ExitCode;
use wire::client::{Answer, Call};

/// The first word of a command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Keyword {
    Show,
    Update,
    Create,
    Delete,
    /// An action on jobs.
    Job(JobVerb),
    Power,
    Reboot,
    CancelReboot,
    Write,
    ListPids,
    SetDebug,
    Ping,
    Takeover,
    Reconfigure,
    Token,
    Version,
    Help,
    /// Slurm has it, Sluice does not; what has its place.
    Unsupported(&'static str),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum JobVerb {
    Hold,
    UserHold,
    Release,
    Requeue,
    RequeueHold,
    Suspend,
    Resume,
    Top,
}

impl JobVerb {
    /// The change to a job. `how` applies to requeues.
    fn change(self, how: Requeue) -> JobChange {
        match self {
            JobVerb::Hold => JobChange::Hold { by: Hold::Admin },
            JobVerb::UserHold => JobChange::Hold { by: Hold::User },
            JobVerb::Release => JobChange::Release,
            JobVerb::Requeue => JobChange::Requeue(how),
            JobVerb::RequeueHold => JobChange::Requeue(Requeue { hold: true, ..how }),
            JobVerb::Top => JobChange::Top,
            JobVerb::Suspend => JobChange::Suspend,
            JobVerb::Resume => JobChange::Resume,
        }
    }

    /// Whether Slurm prints a refusal a second time, as the error of the whole request.
    fn repeats_refusal(self) -> bool {
        matches!(self, JobVerb::Hold | JobVerb::UserHold | JobVerb::Release)
    }
}

/// The keywords. Not formatted by rustfmt: a row is one line.
#[rustfmt::skip]
const KEYWORDS: &[(&str, Keyword)] = &[
    ("show",          Keyword::Show),
    ("sh",            Keyword::Show),
    ("update",        Keyword::Update),
    ("hold",          Keyword::Job(JobVerb::Hold)),
    ("holdu",         Keyword::Job(JobVerb::UserHold)),
    ("uhold",         Keyword::Job(JobVerb::UserHold)),
    ("release",       Keyword::Job(JobVerb::Release)),
    ("requeue",       Keyword::Job(JobVerb::Requeue)),
    ("requeuehold",   Keyword::Job(JobVerb::RequeueHold)),
    ("suspend",       Keyword::Job(JobVerb::Suspend)),
    ("resume",        Keyword::Job(JobVerb::Resume)),
    ("write",         Keyword::Write),
    ("ping",          Keyword::Ping),
    ("reconfigure",   Keyword::Reconfigure),
    ("version",       Keyword::Version),
    ("help",          Keyword::Help),
    ("abort",         Keyword::Unsupported("`sluice down` stops server and agent, and jobs go on")),
    ("cancel_reboot", Keyword::CancelReboot),
    ("completing",    Keyword::Unsupported("`squeue -t CG` lists jobs that are ending")),
    ("create",        Keyword::Create),
    ("delete",        Keyword::Delete),
    ("errnumstr",     Keyword::Unsupported("errors are printed in words")),
    ("listpids",      Keyword::ListPids),
    ("notify",        Keyword::Unsupported("`srun --jobid=JOB --overlap` runs a command in a job")),
    ("pidinfo",       Keyword::Unsupported("`scontrol listpids` lists the processes of steps")),
    ("power",         Keyword::Power),
    ("reboot",        Keyword::Reboot),
    ("schedloglevel", Keyword::Unsupported("the log tells of slow plans, and `scontrol setdebug debug` says more")),
    ("setdebug",      Keyword::SetDebug),
    ("setdebugflags", Keyword::Unsupported("`scontrol setdebug debug` says more")),
    ("shutdown",      Keyword::Unsupported("`sluice down`, or `systemctl stop sluice-server`")),
    ("takeover",      Keyword::Takeover),
    ("token",         Keyword::Token),
    ("top",           Keyword::Job(JobVerb::Top)),
    ("wait_job",      Keyword::Unsupported("a job begins when all its nodes are ready")),
];

/// What relative times on the command line depend on.
#[derive(Clone, Copy)]
struct TimeContext<'a> {
    now: Timestamp,
    tz: &'a TimeZone,
}

/// Finds a row by its name in any case, or by a prefix that is shared only by rows of the same meaning.
fn lookup<'a, T: PartialEq>(
    rows: &'a [(&'static str, T)],
    word: &str,
) -> Option<&'a (&'static str, T)> {
    if let Some(exact) = rows.iter().find(|(name, _)| name.eq_ignore_ascii_case(word)) {
        return Some(exact);
    }
    let begins =
        |name: &str| name.get(..word.len()).is_some_and(|head| head.eq_ignore_ascii_case(word));
    let mut fitting = rows.iter().filter(|(name, _)| !word.is_empty() && begins(name));
    fitting.next().filter(|(_, meaning)| fitting.all(|(_, other)| other == meaning))
}

pub fn run(args: &[String]) -> ExitCode {
    query::finish(Command::Scontrol, act(args))
}

fn act(args: &[String]) -> Result<ExitCode, CommandError> {
    let Some(parsed) = query::options(Command::Scontrol, args)? else {
        return Ok(ExitCode::SUCCESS);
    };
    let Some((keyword, words)) = parsed.rest.split_first() else {
        return Err(CommandError::message(
            "scontrol: error: no keyword given, as in: scontrol show job",
        ));
    };
    let Some((name, verb)) = lookup(KEYWORDS, keyword) else {
        return Err(CommandError::message(format!("invalid keyword: {keyword}")));
    };
    match verb {
        Keyword::Show => show::run(words, shown(&parsed)),
        Keyword::Update => update::run(words),
        Keyword::Create => create(words),
        Keyword::Delete => delete(words),
        Keyword::Job(verb) => job_action::run(name, *verb, words),
        Keyword::Power => power::power(words),
        Keyword::Reboot => power::reboot(words),
        Keyword::CancelReboot => power::cancel_reboot(words),
        Keyword::Write => job_action::write(words),
        Keyword::ListPids => list_pids::run(words),
        Keyword::SetDebug => set_debug::run(words),
        Keyword::Ping => ping(),
        Keyword::Takeover => takeover(),
        Keyword::Reconfigure => reconfigure(),
        Keyword::Token => token::run(words),
        Keyword::Version => query::print(&help::version()).map(|()| ExitCode::SUCCESS),
        Keyword::Help => query::print(&help::help(Command::Scontrol)).map(|()| ExitCode::SUCCESS),
        Keyword::Unsupported(instead) => Err(CommandError::message(format!(
            "scontrol: error: {name} is not supported: {instead}"
        ))),
    }
}

/// A partition, a dynamic node or a reservation, by the key of the first word.
fn create(words: &[String]) -> Result<ExitCode, CommandError> {
    let first = words.first().map(String::as_str).unwrap_or_default();
    if let Some(name) = partition::named(first) {
        return partition::create(name, words);
    }
    match dynamic_node::named(first) {
        Some(names) => dynamic_node::create(names, words),
        None => reservation::create(words),
    }
}

fn delete(words: &[String]) -> Result<ExitCode, CommandError> {
    let first = words.first().map(String::as_str).unwrap_or_default();
    if let Some(name) = partition::named(first) {
        return partition::delete(name);
    }
    match dynamic_node::named(first) {
        Some(names) => dynamic_node::delete(names),
        None => reservation::delete(words),
    }
}

fn shown(parsed: &Parsed) -> output::Options {
    output::Options { details: parsed.has(K::Details), oneliner: parsed.has(K::Oneliner) }
}

fn too_few(keyword: &str) -> CommandError {
    CommandError::message(format!("too few arguments for keyword:{keyword}"))
}

/// A server that does not answer is reported as DOWN.
fn ping() -> Result<ExitCode, CommandError> {
    let mut server = Server::find("slurm_ping error")?;
    match server.try_ping() {
        Ok(Ok(Answer::Pong { hostname, servers, store_fault, .. })) => {
            let said = if servers.is_empty() {
                output::ping(&hostname, true)
            } else {
                output::ping_servers(&servers)
            };
            query::print(&said)?;
            match store_fault {
                Some(fault) => Err(CommandError::message(format!("slurm_ping error: {fault}"))),
                None => Ok(ExitCode::SUCCESS),
            }
        }
        Err(CommandError::Unreachable { .. }) => {
            let host = nix::unistd::gethostname().ok().and_then(|name| name.into_string().ok());
            query::print(&output::ping(host.as_deref().unwrap_or("localhost"), false))?;
            Ok(ExitCode::FAILURE)
        }
        Ok(Ok(other)) => Err(CommandError::unexpected(&other)),
        Ok(Err(why)) => Err(CommandError::message(refusal::text(&why))),
        Err(error) => Err(error),
    }
}

/// The server that leads gives the lead to one that waits; which of several is not chosen.
fn takeover() -> Result<ExitCode, CommandError> {
    const CONTEXT: &str = "slurm_takeover error";
    match Server::find(CONTEXT)?.try_ask(Call::Handover)? {
        Ok(_) => Ok(ExitCode::SUCCESS),
        Err(why) => Err(CommandError::message(format!("{CONTEXT}: {}", update_text(&why)))),
    }
}

fn reconfigure() -> Result<ExitCode, CommandError> {
    let mut server = Server::find("slurm_reconfigure error")?;
    let mut answer = server.try_ask(Call::Reconfigure { files: None })?;
    if let Err(Refusal::ConfigurationUnreadable(dir)) = &answer {
        // The server has given up root and may not read the folder. A caller who may sends it the files.
        let files = Some(configuration_files::text_files(Path::new(dir), |_| true));
        answer = server.try_ask(Call::Reconfigure { files })?;
    }
    match answer {
        Ok(_) => {
            note_unjoined(&mut server);
            Ok(ExitCode::SUCCESS)
        }
        Err(why) => {
            Err(CommandError::message(format!("slurm_reconfigure error: {}", update_text(&why))))
        }
    }
}

/// Says what brings nodes into service that no agent has ever served, as those that were just added.
fn note_unjoined(server: &mut Server) {
    let Ok(Ok(Answer::Cluster(cluster))) = server.try_ask(Call::Cluster) else { return };
    // A machine that is started on demand joins when it is.
    let is_new = |node: &&wire::view::NodeView| {
        let is_awaited = !node.power.is_off() && node.admin != Some(AdminState::Future);
        node.slot == SlotState::Joining && node.facts.hostname.is_empty() && is_awaited
    };
    let names: Vec<String> =
        cluster.nodes.iter().filter(is_new).map(|node| node.config.name.clone()).collect();
    if !names.is_empty() {
        let several = names.len() > 1;
        let names = hostlist::compress(&names);
        // Without `--pattern` the file would be for several nodes of one machine.
        let token = if several {
            format!("sluice token node --pattern '{names}'")
        } else {
            format!("sluice token node {names}")
        };
        eprintln!(
            "scontrol: note: no agent serves {names} yet: `{token}` makes a join file; \
             under `sluice up`: `sluice down`, then `sluice up` (jobs go on)"
        );
    }
}

/// The text of a refused update. Slurm has a text of its own for denied access here.
fn update_text(why: &Refusal) -> String {
    match why {
        Refusal::AccessDenied => refusal::INVALID_USER.text.to_owned(),
        other => refusal::text(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keywords_are_found_in_any_case_and_by_a_unique_prefix() {
        let table = [
            ("show", Some("show")),
            ("SHOW", Some("show")),
            ("sh", Some("sh")),
            ("sho", Some("show")),
            ("upd", Some("update")),
            ("hold", Some("hold")),
            ("requeue", Some("requeue")),
            ("rec", Some("reconfigure")),
            ("re", None),
            ("", None),
            ("bogus", None),
        ];
        for (word, name) in table {
            assert_eq!(lookup(KEYWORDS, word).map(|(name, _)| *name), name, "{word}");
        }
    }

    #[test]
    fn keyword_that_is_not_there_is_told_with_what_has_its_place() {
        for (name, instead) in [("abort", "sluice down"), ("shutdown", "sluice down")] {
            let said = act(&[name.to_owned()]).expect_err("not there").to_string();
            assert!(said.starts_with(&format!("scontrol: error: {name} is not supported: ")));
            assert!(said.contains(instead), "{said}");
        }
    }

    #[test]
    fn help_names_every_keyword_that_there_is() {
        let text = help::help(Command::Scontrol);
        for (name, keyword) in
            KEYWORDS.iter().filter(|(_, k)| !matches!(k, Keyword::Unsupported(_)))
        {
            let mut synonyms = KEYWORDS.iter().filter(|(_, other)| other == keyword);
            assert!(synonyms.any(|(name, _)| text.contains(name)), "{name}: {text}");
        }
    }
}
