//! `sluice event`: what happened to runs, nodes, projects and users, the oldest first.

use super::options::{Since, parse_since};
use super::{OfProject, ask, print, unexpected};
use crate::client::Client;
use crate::command::program_name::program_name;
use crate::command::verb::{ServerLocationArgs, VerbError, VerbResult};
use ::dstack::occurrence::{self, Actor, Occurrence, Target};
use clap::Args;
use jiff::tz::TimeZone;
use model::printable::printable;
use model::time::{Timestamp, format_iso};
use serde_json::{Value, json};
use std::collections::HashSet;
use std::process::ExitCode;
use std::time::Duration;
use wire::client::{Answer, Call, HistoryFilter};

/// The most records of runs that are asked for.
const RECORDS_MAX: u32 = 1000;

/// How many events are shown where nothing says how many.
const SHOWN_USUALLY: usize = 100;

#[derive(Args)]
pub struct EventArgs {
    #[command(flatten)]
    server: ServerLocationArgs,
    #[command(flatten)]
    of: OfProject,
    /// `list` is what is done without it, as for dstack's client
    #[arg(value_name = "ACTION", value_parser = ["list"], hide = true)]
    _action: Option<String>,
    /// Only events of this run itself; may be given several times, as may the others
    #[arg(long, value_name = "NAME", group = "target")]
    target_run: Vec<String>,
    /// Only events of this fleet itself
    #[arg(long, value_name = "NAME", group = "target")]
    target_fleet: Vec<String>,
    /// Only events of this secret
    #[arg(long, value_name = "NAME", group = "target")]
    target_secret: Vec<String>,
    /// Only events of this volume
    #[arg(long, value_name = "NAME", group = "target")]
    target_volume: Vec<String>,
    /// Only events of this gateway: there are none
    #[arg(long, value_name = "NAME", group = "target")]
    target_gateway: Vec<String>,
    /// Only events of this run and of its jobs
    #[arg(long, value_name = "NAME", group = "within")]
    within_run: Vec<String>,
    /// Only events of this fleet and of its instances
    #[arg(long, value_name = "NAME", group = "within")]
    within_fleet: Vec<String>,
    /// Only events of this gateway and its replicas: there are none
    #[arg(long, value_name = "NAME", group = "within")]
    within_gateway: Vec<String>,
    /// Only events of things of this kind: run, job, instance, fleet, volume, secret, project, user
    #[arg(long, value_name = "TYPE")]
    include_target_type: Vec<String>,
    /// Only events of the last while, as in 10s, 5m or 1d, or since a time, as in 2026-11-17T15:30:00Z
    #[arg(long, value_name = "T", value_parser = parse_since)]
    since: Option<Since>,
    /// Show only the newest N [default: 100, without --since]
    #[arg(short = 'n', long, value_name = "N")]
    last: Option<usize>,
    /// Show all that are known
    #[arg(short, long, conflicts_with = "last")]
    all: bool,
    /// Go on with what happens, until interrupted
    #[arg(short, long, conflicts_with = "json")]
    watch: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// How long `--watch` waits before it asks again.
const WATCH_PAUSE: Duration = Duration::from_secs(2);

pub fn run(args: EventArgs) -> VerbResult {
    let of_gateways =
        [("--target-gateway", &args.target_gateway), ("--within-gateway", &args.within_gateway)];
    for (option, _) in of_gateways.into_iter().filter(|(_, names)| !names.is_empty()) {
        let program = program_name();
        eprintln!("{program}: note: {option}: there are no gateways here, and no events of them");
    }
    let mut client = args.server.client()?;
    args.of.check(&mut client)?;
    let (mut all, now) = events(&mut client, &args)?;
    all.retain(|one| args.since.is_none_or(|since| one.at >= since.time(now)));
    let left_out = left_out(all.len(), &args);
    all.drain(..left_out);
    if left_out > 0 && args.last.is_none() {
        let (program, shown) = (program_name(), all.len());
        eprintln!(
            "{program}: note: the newest {shown} events; {left_out} before them are shown with --all"
        );
    }
    if args.json {
        let all: Vec<Value> = all.iter().map(to_json).collect();
        print(&format!("{}\n", json!(all)))?;
        return Ok(ExitCode::SUCCESS);
    }
    let zone = timezone::local();
    let mut shown: HashSet<String> = HashSet::new();
    loop {
        let lines: Vec<String> = all.iter().map(|one| line(one, &zone)).collect();
        print(&lines.iter().filter(|line| !shown.contains(*line)).cloned().collect::<String>())?;
        if !args.watch {
            return Ok(ExitCode::SUCCESS);
        }
        // What is too old to be listed again need not be remembered.
        shown = lines.into_iter().collect();
        std::thread::sleep(WATCH_PAUSE);
        (all, _) = events(&mut client, &args)?;
        let first = now;
        all.retain(|one| one.at >= first);
    }
}

/// How many of the oldest events are not shown. Who names a time is shown all since then.
fn left_out(count: usize, args: &EventArgs) -> usize {
    let usual = (!args.all && args.since.is_none()).then_some(SHOWN_USUALLY);
    count.saturating_sub(args.last.or(usual).unwrap_or(usize::MAX))
}

/// What is asked for, the oldest first, and the server's time.
fn events(
    client: &mut Client,
    args: &EventArgs,
) -> Result<(Vec<Occurrence>, Timestamp), VerbError> {
    let names = args.within_run.iter().chain(&args.target_run).cloned().collect();
    let filter = HistoryFilter {
        names,
        accounts: args.of.accounts(),
        duplicates: true,
        limit: Some(RECORDS_MAX),
        ..HistoryFilter::default()
    };
    let records = match ask(client, Call::History(filter))? {
        Answer::History(records) => records,
        other => return Err(unexpected(&other)),
    };
    let noted = match ask(client, Call::Activities)? {
        Answer::Activities(noted) => noted,
        other => return Err(unexpected(&other)),
    };
    let now = match ask(client, Call::Ping)? {
        Answer::Pong { now, .. } => now,
        other => return Err(unexpected(&other)),
    };
    let mut all: Vec<Occurrence> = occurrence::of_records(records)
        .into_iter()
        .chain(noted.iter().map(occurrence::of_activity))
        .collect();
    all.sort_by_key(|one| (one.at, one.number));
    all.retain(|one| {
        let is_of = |target: &Target| is_of(target, args);
        let types = &args.include_target_type;
        let kind = |target: &Target| types.is_empty() || types.iter().any(|t| t == target.kind());
        let wanted = |target: &Target| is_of(target) && kind(target) && is_in(target, &args.of);
        one.targets.iter().any(wanted)
    });
    Ok((all, now))
}

/// Whether it is what the options name, or a part of it.
fn is_of(target: &Target, args: &EventArgs) -> bool {
    let is = |kind: &str, name: &str| target.kind() == kind && target.name() == name;
    let targets = [
        ("run", &args.target_run),
        ("fleet", &args.target_fleet),
        ("secret", &args.target_secret),
        ("volume", &args.target_volume),
        ("gateway", &args.target_gateway),
        ("gateway", &args.within_gateway),
    ];
    let within_run = |name: &String| target.run().is_some() && belongs(target.name(), name);
    let within_fleet = |name: &String| {
        is("fleet", name) || (target.kind() == "instance" && belongs(target.name(), name))
    };
    let is_one = |names: &[String], is_it: &dyn Fn(&String) -> bool| {
        names.is_empty() || names.iter().any(is_it)
    };
    targets.into_iter().all(|(kind, names)| is_one(names, &|name| is(kind, name)))
        && is_one(&args.within_run, &within_run)
        && is_one(&args.within_fleet, &within_fleet)
}

/// Whether it is of the project; the main one has all.
fn is_in(target: &Target, of: &OfProject) -> bool {
    let accounts = of.accounts();
    let own = || match target {
        Target::Project(name) => accounts.contains(name),
        other => other.account().is_some_and(|account| accounts.iter().any(|own| own == account)),
    };
    accounts.is_empty() || own()
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

/// `[TIME] [ACTOR] [TARGETS] MESSAGE`
pub(super) fn line(one: &Occurrence, zone: &TimeZone) -> String {
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

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: EventArgs,
    }

    #[test]
    fn newest_are_shown_unless_more_are_asked_for() {
        let left_out = |count: usize, line: &[&str]| {
            let words = ["event"].iter().chain(line);
            left_out(count, &Line::try_parse_from(words).expect("it reads").args)
        };
        assert_eq!(left_out(SHOWN_USUALLY, &[]), 0);
        assert_eq!(left_out(SHOWN_USUALLY + 7, &[]), 7);
        assert_eq!(left_out(SHOWN_USUALLY + 7, &["--all"]), 0);
        assert_eq!(left_out(SHOWN_USUALLY + 7, &["--since", "1h"]), 0);
        assert_eq!(left_out(10, &["--last", "3"]), 7);
        assert_eq!(left_out(2, &["-n", "3", "--since", "1h"]), 0);
    }
}
