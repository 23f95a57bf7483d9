//! `sluice machine`: machines on demand, their sources, and what they cost.

use super::verb::{ServerLocationArgs, VerbError, VerbResult, ask, in_columns, unexpected};
use crate::client::Client;
use clap::{Args, Subcommand};
use model::machine::MachinePhase;
use model::price::{Cost, Price};
use model::printable::printable;
use model::time::{Timestamp, format_iso};
use serde_json::json;
use std::process::ExitCode;
use wire::client::{Answer, Call};
use wire::machine::{BudgetView, MachineView, MachinesView, SourceView};

#[derive(Args)]
pub struct MachineArgs {
    #[command(flatten)]
    server: ServerLocationArgs,
    #[command(subcommand)]
    action: Option<MachineAction>,
}

#[derive(Subcommand)]
enum MachineAction {
    /// List the machines and their sources, with prices and costs
    List {
        /// Also machines that are gone
        #[arg(short, long)]
        all: bool,
        /// Print JSON, with the machines that are gone
        #[arg(long)]
        json: bool,
    },
    /// Show one machine by its node or its token
    Show { name: String },
    /// Delete a machine; its node is drained and its jobs end first
    Delete { name: String },
}

pub fn run(args: MachineArgs) -> VerbResult {
    let mut client = args.server.client()?;
    match args.action.unwrap_or(MachineAction::List { all: false, json: false }) {
        MachineAction::List { json: true, .. } => {
            let found = json!(machines(&mut client)?);
            println!("{}", serde_json::to_string_pretty(&found).unwrap_or_default());
        }
        MachineAction::List { all, json: false } => {
            let found = machines(&mut client)?;
            print!("{}", source_table(&found.sources));
            print!("{}", source_notes(&found.sources));
            if !found.budgets.is_empty() {
                print!("\n{}", budget_table(&found.budgets));
            }
            let shown = found.machines.iter().filter(|of| all || of.machine.is_live());
            print!("\n{}", machine_table(shown));
        }
        MachineAction::Show { name } => {
            let mut found = machines(&mut client)?.machines.into_iter().rev();
            let is_meant = |of: &MachineView| of.machine.node == name || of.machine.token == name;
            let unknown = || VerbError::Message(format!("machine {name} does not exist"));
            let found = found.find(is_meant).ok_or_else(unknown)?;
            print!("{}", details(&found));
        }
        MachineAction::Delete { name } => {
            ask(&mut client, Call::DeleteMachine { name: name.clone() })?;
            println!("machine {name} is deleted when its jobs have ended");
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn machines(client: &mut Client) -> Result<MachinesView, VerbError> {
    match ask(client, Call::Machines)? {
        Answer::Machines(machines) => Ok(machines),
        other => Err(unexpected(&other)),
    }
}

fn source_table(sources: &[SourceView]) -> String {
    let head = ["SOURCE", "OFFERS", "MACHINES", "PRICE/H", "THIS MONTH", "IDLE", "BUDGET"];
    let mut lines = vec![head.map(String::from)];
    lines.extend(sources.iter().map(|source| {
        [
            source.name.clone(),
            source.offers.to_string(),
            format!("{}/{}", source.machines, source.machines_max),
            source.price_hour.to_string(),
            source.month.to_string(),
            source.idle.map_or("-".to_owned(), |idle| idle.to_string()),
            source.budget.map_or("-".to_owned(), |budget| budget.to_string()),
        ]
    }));
    if sources.len() > 1 {
        let machines: u32 = sources.iter().map(|source| source.machines).sum();
        let hour: Price = sources.iter().map(|source| source.price_hour).sum();
        let month: Cost = sources.iter().map(|source| source.month).sum();
        let idle: Cost = sources.iter().filter_map(|source| source.idle).sum();
        lines.push([
            "all".to_owned(),
            String::new(),
            machines.to_string(),
            hour.to_string(),
            month.to_string(),
            idle.to_string(),
            String::new(),
        ]);
    }
    in_columns(&lines)
}

fn budget_table(budgets: &[BudgetView]) -> String {
    let head = ["ACCOUNT", "THIS MONTH", "BUDGET", "PRICE/H", ""];
    let mut lines = vec![head.map(String::from)];
    lines.extend(budgets.iter().map(|budget| {
        let mark = match (budget.spent >= budget.month, budget.warned) {
            (true, _) => "spent",
            (false, true) => "nearly spent",
            (false, false) => "",
        };
        [
            printable(&budget.account).into_owned(),
            budget.spent.to_string(),
            budget.month.to_string(),
            budget.price_hour.to_string(),
            mark.to_owned(),
        ]
    }));
    in_columns(&lines)
}

/// What is wrong with sources, a line each.
fn source_notes(sources: &[SourceView]) -> String {
    let line = |source: &SourceView, what: String| format!("{}: {what}\n", source.name);
    let failures = sources.iter().filter_map(|source| {
        let failure = source.failure.as_deref()?;
        Some(line(source, printable(failure).into_owned()))
    });
    let pauses = sources.iter().filter_map(|source| {
        let pause = source.paused.as_ref()?;
        let (until, text) = (time(pause.until), printable(&pause.text));
        Some(line(source, format!("left alone until {until} after a failure: {text}")))
    });
    let strangers = sources.iter().filter(|source| !source.strangers.is_empty()).map(|source| {
        let ids = printable(&source.strangers.join(" ")).into_owned();
        line(source, format!("ALARM: machines that nobody asked for, and that are paid for: {ids}"))
    });
    let notices = sources.iter().flat_map(|source| {
        source.notices.iter().map(move |notice| line(source, printable(notice).into_owned()))
    });
    failures.chain(notices).chain(pauses).chain(strangers).collect()
}

fn machine_table<'m>(machines: impl Iterator<Item = &'m MachineView>) -> String {
    let head = ["NODE", "STATE", "SOURCE", "OFFER", "PRICE/H", "COST", "ASKED", "JOB"];
    let mut lines = vec![head.map(String::from)];
    lines.extend(machines.map(|of| {
        let machine = &of.machine;
        [
            machine.node.clone(),
            state(of),
            machine.source.clone(),
            printable(&machine.offer.id).into_owned(),
            machine.offer.price.to_string(),
            of.cost.to_string(),
            time(machine.asked),
            machine.job.map_or("-".to_owned(), |job| job.to_string()),
        ]
    }));
    in_columns(&lines)
}

/// Its phase; `idle` for one that has joined and has no job, `failed` for one that never was, or never served its job.
fn state(of: &MachineView) -> String {
    match of.machine.phase {
        MachinePhase::Joined if of.idle => "idle".to_owned(),
        MachinePhase::Gone if of.machine.failure.is_some() => "failed".to_owned(),
        phase => phase.to_string(),
    }
}

fn details(of: &MachineView) -> String {
    let machine = &of.machine;
    let at = |at: Option<Timestamp>| at.map_or("-".to_owned(), time);
    let failure = machine.failure.as_ref().map(|failure| {
        let text = printable(&failure.text).into_owned();
        format!("{} at {}: {text}", failure.kind, time(failure.at))
    });
    let none = || "-".to_owned();
    let lines = [
        ("Node", machine.node.clone()),
        ("State", state(of)),
        ("Token", machine.token.clone()),
        ("Source", machine.source.clone()),
        ("Id", machine.id.as_deref().map_or_else(none, |id| printable(id).into_owned())),
        ("Offer", printable(&machine.offer.id).into_owned()),
        ("CPUs", machine.offer.cpus.to_string()),
        ("Memory", format!("{} MiB", machine.offer.memory.mib())),
        ("Price", format!("{} an hour", machine.offer.price)),
        ("Cost", of.cost.to_string()),
        ("Job", machine.job.map_or_else(none, |job| job.to_string())),
        ("Asked", time(machine.asked)),
        ("Made", at(machine.made)),
        ("Joined", at(machine.joined)),
        ("Gone", at(machine.gone)),
        ("Failure", failure.unwrap_or_else(none)),
    ];
    lines.iter().map(|(name, value)| format!("{name:<8} {value}\n")).collect()
}

fn time(at: Timestamp) -> String {
    format_iso(at, &timezone::local())
}
