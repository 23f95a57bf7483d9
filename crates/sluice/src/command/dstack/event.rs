//! `sluice event`: what happened to runs, nodes, projects and users, the oldest first.

use super::{ask, print, unexpected};
use crate::command::verb::{ServerLocationArgs, VerbResult};
use ::dstack::occurrence::{self, Actor, Occurrence, Target};
use clap::Args;
use jiff::tz::TimeZone;
use model::printable::printable;
use model::time::{format_iso, parse_duration};
use serde_json::{Value, json};
use std::process::ExitCode;
use std::time::Duration;
use wire::client::{Answer, Call, HistoryFilter};

/// The most records of runs that are asked for.
const RECORDS_MAX: u32 = 1000;

#[derive(Args)]
pub struct EventArgs {
    #[command(flatten)]
    server: ServerLocationArgs,
    /// Only events of this run itself
    #[arg(long, value_name = "NAME", conflicts_with = "within_run")]
    target_run: Option<String>,
    /// Only events of this run and of its jobs
    #[arg(long, value_name = "NAME")]
    within_run: Option<String>,
    /// Only events of things of this kind: run, job, instance, project, user
    #[arg(long, value_name = "TYPE")]
    include_target_type: Vec<String>,
    /// Only events of the last while, as in 10s, 5m or 1d
    #[arg(long, value_name = "T", value_parser = parse_since)]
    since: Option<Duration>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

fn parse_since(text: &str) -> Result<Duration, String> {
    let since = parse_duration(text).map_err(|error| error.to_string())?;
    since.ok_or_else(|| "expected a duration, as in 10s, 5m or 1d".to_owned())
}

pub fn run(args: EventArgs) -> VerbResult {
    let mut client = args.server.client()?;
    let named = args.within_run.as_ref().or(args.target_run.as_ref());
    let names = named.into_iter().cloned().collect();
    let filter = HistoryFilter {
        names,
        duplicates: true,
        limit: Some(RECORDS_MAX),
        ..HistoryFilter::default()
    };
    let records = match ask(&mut client, Call::History(filter))? {
        Answer::History(records) => records,
        other => return Err(unexpected(&other)),
    };
    let noted = match ask(&mut client, Call::Activities)? {
        Answer::Activities(noted) => noted,
        other => return Err(unexpected(&other)),
    };
    let now = match ask(&mut client, Call::Ping)? {
        Answer::Pong { now, .. } => now,
        other => return Err(unexpected(&other)),
    };
    let mut all: Vec<Occurrence> = occurrence::of_records(records)
        .into_iter()
        .chain(noted.iter().map(occurrence::of_activity))
        .collect();
    all.sort_by_key(|one| (one.at, one.number));
    all.retain(|one| {
        let is_of = |target: &Target| match (&args.within_run, &args.target_run) {
            (Some(name), _) => target.run().is_some() && belongs(target.name(), name),
            (None, Some(name)) => target.kind() == "run" && target.name() == name,
            (None, None) => true,
        };
        let types = &args.include_target_type;
        let kind = |target: &Target| types.is_empty() || types.iter().any(|t| t == target.kind());
        let recent = args.since.is_none_or(|since| now.since(one.at) <= since);
        recent && one.targets.iter().any(|target| is_of(target) && kind(target))
    });
    if args.json {
        let all: Vec<Value> = all.iter().map(to_json).collect();
        print(&format!("{}\n", json!(all)))?;
    } else {
        let zone = TimeZone::system();
        let lines: String = all.iter().map(|one| line(one, &zone)).collect();
        print(&lines)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// `hello`, and the parts of a run `hello-0-0`.
fn belongs(target: &str, run: &str) -> bool {
    let part = || target.strip_prefix(run)?.strip_prefix('-');
    target == run || part().is_some()
}

fn actor(one: &Occurrence) -> Option<String> {
    one.actor.as_ref().map(|actor| match actor {
        Actor::Named(name) => name.clone(),
        Actor::Uid(uid) => {
            let user = nix::unistd::User::from_uid(nix::unistd::Uid::from_raw(*uid));
            user.ok().flatten().map_or(uid.to_string(), |user| user.name)
        }
    })
}

fn line(one: &Occurrence, zone: &TimeZone) -> String {
    let time = format_iso(one.at, zone).replace('T', " ");
    let actor = actor(one).map(|name| format!("[{}] ", printable(&name))).unwrap_or_default();
    let target = |target: &Target| format!("{} {}", target.kind(), printable(target.name()));
    let targets: Vec<String> = one.targets.iter().map(target).collect();
    format!("[{time}] {actor}[{}] {}\n", targets.join(", "), printable(&one.message))
}

fn to_json(one: &Occurrence) -> Value {
    let target = |target: &Target| json!({"type": target.kind(), "name": target.name()});
    let targets: Vec<Value> = one.targets.iter().map(target).collect();
    let recorded_at = format!("{}Z", format_iso(one.at, &TimeZone::UTC));
    json!({
        "recorded_at": recorded_at,
        "actor_user": actor(one),
        "message": one.message,
        "targets": targets,
    })
}
