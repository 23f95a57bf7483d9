//! `sluice node`: the machines of the cluster and their agents.

use super::verb::{ServerLocationArgs, VerbError, VerbResult, ask, in_columns, unexpected};
use crate::client::Client;
use ::slurm::words::node::{NodeState, reason_text};
use clap::{Args, Subcommand};
use model::printable::printable;
use model::time::{Timestamp, format_iso};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::process::ExitCode;
use wire::agent_view::{AgentView, JoinMethodView};
use wire::client::{Answer, Call};

#[derive(Args)]
pub struct NodeArgs {
    #[command(flatten)]
    server: ServerLocationArgs,
    #[command(subcommand)]
    action: Option<NodeAction>,
}

#[derive(Subcommand)]
enum NodeAction {
    /// List the machines
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Show one machine
    Show {
        name: String,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Void a machine's certificate and end its connection; slurm.conf keeps the node
    Remove {
        name: String,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Let a machine that has joined join once more, as after its disk was wiped; its old certificate ends then
    Rejoin {
        name: String,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

/// A machine, and its state in Slurm's words.
struct Row {
    agent: AgentView,
    state: String,
    /// Why it is out of service, or what somebody noted of it.
    reason: Option<String>,
}

pub fn run(args: NodeArgs) -> VerbResult {
    let mut client = args.server.client()?;
    match args.action.unwrap_or(NodeAction::List { json: false }) {
        NodeAction::List { json } => {
            let rows = rows(&mut client)?;
            if json {
                print_json(&json!({ "nodes": rows.iter().map(object).collect::<Vec<_>>() }));
            } else {
                print!("{}", table(&rows));
            }
        }
        NodeAction::Show { name, json } => {
            let mut rows = rows(&mut client)?.into_iter();
            let unknown = || VerbError::Message(format!("node {name} does not exist"));
            let row = rows.find(|row| row.agent.node == name).ok_or_else(unknown)?;
            if json { print_json(&object(&row)) } else { print!("{}", details(&row)) }
        }
        NodeAction::Remove { name, json } => {
            ask(&mut client, Call::RemoveNode { name: name.clone() })?;
            let said = format!("node {name} is removed: its certificate is void");
            done(json, &name, &said);
        }
        NodeAction::Rejoin { name, json } => {
            ask(&mut client, Call::RejoinNode { name: name.clone() })?;
            let said = format!(
                "node {name} may join once more within a day: start its agent again there, sluice agent --join FILE"
            );
            done(json, &name, &said);
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn done(json: bool, name: &str, said: &str) {
    if json {
        print_json(&json!({ "node": name, "result": "done" }));
    } else {
        println!("{said}");
    }
}

fn print_json(value: &Value) {
    println!("{}", serde_json::to_string_pretty(value).unwrap_or_default());
}

fn rows(client: &mut Client) -> Result<Vec<Row>, VerbError> {
    let agents = match ask(client, Call::Agents)? {
        Answer::Agents(agents) => agents,
        other => return Err(unexpected(&other)),
    };
    let cluster = match ask(client, Call::Cluster)? {
        Answer::Cluster(cluster) => cluster,
        other => return Err(unexpected(&other)),
    };
    let states = cluster.nodes.iter().map(|node| {
        let reason = node.reason.as_ref().map(|reason| reason_text(reason).to_owned());
        (&*node.config.name, (NodeState::of(node).long(), reason))
    });
    let mut states: BTreeMap<&str, (String, Option<String>)> = states.collect();
    let row = |agent: AgentView| {
        let of_login = match (agent.login, agent.connected) {
            (true, Some(_)) => "login",
            (true, None) => "login*",
            (false, _) => "-",
        };
        let (state, reason) =
            states.remove(&*agent.node).unwrap_or_else(|| (of_login.to_owned(), None));
        Row { agent, state, reason }
    };
    Ok(agents.into_iter().map(row).collect())
}

const HEAD: [&str; 8] = [
    "NAME",
    "STATE",
    "ADDRESS",
    "VERSION",
    "CONNECTED",
    "CERTIFICATE UNTIL",
    "JOINED BY",
    "REASON",
];

fn table(rows: &[Row]) -> String {
    let mut lines = vec![HEAD.map(String::from)];
    lines.extend(rows.iter().map(cells));
    in_columns(&lines)
}

fn cells(row: &Row) -> [String; 8] {
    let Row { agent, state, reason } = row;
    let text = |text: &Option<String>| {
        text.as_deref().map_or("-".to_owned(), |text| printable(text).into_owned())
    };
    [
        printable(&agent.node).into_owned(),
        state.clone(),
        text(&agent.address),
        text(&agent.version),
        shown(agent.connected).unwrap_or_else(|| "-".to_owned()),
        certificate_end(agent),
        joined_by(agent),
        text(reason),
    ]
}

fn certificate_end(agent: &AgentView) -> String {
    match &agent.joined {
        None => "-".to_owned(),
        Some(joined) => shown(joined.certificate_end).unwrap_or_else(|| "unknown".to_owned()),
    }
}

fn joined_by(agent: &AgentView) -> String {
    let Some(joined) = &agent.joined else { return "-".to_owned() };
    match (&joined.token, joined.method) {
        (Some(token), Some(method)) => format!("{} {}", word(method), printable(token)),
        _ => "unknown".to_owned(),
    }
}

fn word(method: JoinMethodView) -> &'static str {
    match method {
        JoinMethodView::File => "file",
        JoinMethodView::Group => "group",
        JoinMethodView::Fleet => "fleet",
    }
}

fn shown(at: Option<Timestamp>) -> Option<String> {
    at.map(|at| format_iso(at, &timezone::local()))
}

fn details(row: &Row) -> String {
    let [name, state, address, version, connected, end, by, reason] = cells(row);
    let joined = row.agent.joined.as_ref();
    let joined = joined.and_then(|joined| shown(joined.at)).unwrap_or_else(|| "-".to_owned());
    let mut lines = vec![
        ("Name", name),
        ("State", state),
        ("Reason", reason),
        ("Address", address),
        ("Version", version),
        ("Connected", connected),
        ("Certificate until", end),
        ("Joined", joined),
        ("Joined by", by),
    ];
    lines.extend(shown(row.agent.rejoin_until).map(|until| ("May join again until", until)));
    lines.into_iter().map(|(key, value)| format!("{key}: {value}\n")).collect()
}

fn object(row: &Row) -> Value {
    let Row { agent, state, reason } = row;
    let secs = |at: Option<Timestamp>| at.map(|at| at.millis() / 1000);
    let joined = agent.joined.as_ref();
    json!({
        "name": agent.node,
        "state": state,
        "reason": reason,
        "login": agent.login,
        "address": agent.address,
        "version": agent.version,
        "connected": secs(agent.connected),
        "certificate_end": secs(joined.and_then(|joined| joined.certificate_end)),
        "joined": secs(joined.and_then(|joined| joined.at)),
        "joined_by": joined.and_then(|joined| joined.method).map(word),
        "token": joined.and_then(|joined| joined.token.clone()),
        "rejoin_until": secs(agent.rejoin_until),
    })
}
