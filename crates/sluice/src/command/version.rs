//! `sluice version`: this program, the server, and the agents that are connected.

use super::verb::{ServerLocationArgs, VerbResult};
use clap::Args;
use model::printable::printable;
use model::reason::Refusal;
use serde_json::json;
use std::process::ExitCode;
use wire::client::{Answer, Call};
use wire::version::{PROTOCOL, VersionsView, program};

/// Nodes named in a line; `--json` has them all.
const NODES_SHOWN: usize = 20;

#[derive(Args)]
pub struct VersionArgs {
    #[command(flatten)]
    server: ServerLocationArgs,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
}

/// A server that cannot be asked is no error: the first line is true all the same.
enum Asked {
    Versions(VersionsView),
    /// What a server of an earlier version says, and any server to one who may not be told more.
    ServerOnly(String),
    Unknown(String),
}

pub fn run(args: &VersionArgs) -> VerbResult {
    let asked = ask(args);
    if args.json {
        println!("{}", as_json(&asked));
        return Ok(ExitCode::SUCCESS);
    }
    println!("program: {}, protocol {PROTOCOL}", program());
    match &asked {
        Asked::Unknown(why) => println!("server: unknown: {why}"),
        Asked::ServerOnly(version) => println!("server: {}", printable(version)),
        Asked::Versions(versions) => print(versions),
    }
    Ok(ExitCode::SUCCESS)
}

fn ask(args: &VersionArgs) -> Asked {
    let mut client = match args.server.client() {
        Ok(client) => client,
        Err(error) => return Asked::Unknown(error.to_string()),
    };
    let version = match client.call(Call::Ping) {
        Ok(Answer::Pong { version, .. }) => version,
        Ok(Answer::Refused(why)) => return Asked::Unknown(why.to_string()),
        Ok(other) => return Asked::Unknown(format!("the server answered {other:?}")),
        Err(error) => return Asked::Unknown(error.to_string()),
    };
    match client.call(Call::Versions) {
        Ok(Answer::Versions(versions)) => Asked::Versions(versions),
        Ok(Answer::Refused(Refusal::AccessDenied | Refusal::OperatorsOnly)) => {
            Asked::ServerOnly(version)
        }
        _ => Asked::ServerOnly(version),
    }
}

fn print(versions: &VersionsView) {
    let VersionsView { server, protocol, journal, agents } = versions;
    println!("server: {}, protocol {protocol}, journal format {journal}", printable(server));
    if agents.is_empty() {
        println!("agents: none connected");
    }
    for agent in agents {
        let count = agent.nodes.len();
        let nodes = if count == 1 { "node" } else { "nodes" };
        let said = format!(
            "agents: {}, protocol {}: {count} {nodes}",
            printable(&agent.version),
            agent.protocol
        );
        // Where all are the server's own build, their names say nothing.
        if agents.len() == 1 && agent.version == *server {
            println!("{said}");
            continue;
        }
        let shown: Vec<&str> = agent.nodes.iter().take(NODES_SHOWN).map(String::as_str).collect();
        let more = match count - shown.len() {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        println!("{said}: {}{more}", printable(&shown.join(",")));
    }
}

fn as_json(asked: &Asked) -> serde_json::Value {
    let mut shown = json!({"program": {"version": program(), "protocol": PROTOCOL}});
    match asked {
        Asked::Versions(versions) => {
            let VersionsView { server, protocol, journal, agents } = versions;
            shown["server"] = json!({"version": server, "protocol": protocol, "journal": journal});
            shown["agents"] = json!(agents);
        }
        Asked::ServerOnly(version) => shown["server"] = json!({"version": version}),
        Asked::Unknown(why) => shown["server"] = json!({"error": why}),
    }
    shown
}
