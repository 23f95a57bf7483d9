//! `sluice project`: projects, which are accounts, and their members.

use super::{ask, print, print_json, unexpected};
use crate::command::verb::{ServerLocationArgs, VerbError, VerbResult, note_unknown_users};
use clap::{Args, Subcommand};
use model::printable::printable;
use model::project::{Members, MembersChange, ProjectRole};
use std::process::ExitCode;
use wire::client::{Answer, Call};
use wire::project::ProjectView;

#[derive(Args)]
pub struct ProjectArgs {
    #[command(flatten)]
    server: ServerLocationArgs,
    /// Print JSON
    #[arg(long, global = true)]
    json: bool,
    /// Taken as dstack's client takes it: the list shows all without it
    #[arg(short = 'v', long = "verbose")]
    _verbose: bool,
    #[command(subcommand)]
    action: Option<ProjectAction>,
}

#[derive(Subcommand)]
enum ProjectAction {
    /// List the projects that you are a member of
    List {
        /// Taken as dstack's client takes it: the list shows all without it
        #[arg(short = 'v', long = "verbose")]
        _verbose: bool,
    },
    /// Make a project, and an account of the same name
    Create { name: String },
    /// Remove a project, and its account
    Delete {
        name: String,
        /// Taken as other verbs take it: nothing is asked
        #[arg(short = 'y', long = "yes")]
        _yes: bool,
    },
    /// Make users members, or give members another role
    Add {
        project: String,
        #[arg(required = true)]
        users: Vec<String>,
        /// user, manager or admin
        #[arg(long, value_parser = role, default_value = "user")]
        role: ProjectRole,
    },
    /// Make a gateway that runs the default one of a project's services; without a name it is the site's
    Gateway { project: String, name: Option<String> },
    /// Take members out
    Remove {
        project: String,
        #[arg(required = true)]
        users: Vec<String>,
    },
}

fn role(word: &str) -> Result<ProjectRole, String> {
    let found = ProjectRole::ALL.into_iter().find(|role| role.word() == word);
    found.ok_or_else(|| "expected user, manager or admin".to_owned())
}

pub fn run(args: ProjectArgs) -> VerbResult {
    let mut client = args.server.client()?;
    let list = ProjectAction::List { _verbose: false };
    let call = match args.action.unwrap_or(list) {
        ProjectAction::List { .. } => {
            let projects = match ask(&mut client, Call::Projects)? {
                Answer::Projects(projects) => projects,
                other => return Err(unexpected(&other)),
            };
            print(&if args.json { to_json(&projects)? } else { table(&projects) })?;
            return Ok(ExitCode::SUCCESS);
        }
        ProjectAction::Create { name } => Call::CreateProject { name },
        ProjectAction::Delete { name, .. } => Call::RemoveProject { name },
        ProjectAction::Add { project, users, role } => {
            note_unknown_users(&client, users.iter().map(String::as_str));
            let members: Members = users.into_iter().map(|name| (name, role)).collect();
            Call::SetMembers { project, members, change: MembersChange::Add }
        }
        ProjectAction::Gateway { project, name } => {
            Call::SetDefaultGateway { project, gateway: name }
        }
        ProjectAction::Remove { project, users } => {
            let members: Members =
                users.into_iter().map(|name| (name, ProjectRole::User)).collect();
            Call::SetMembers { project, members, change: MembersChange::Remove }
        }
    };
    ask(&mut client, call)?;
    if args.json {
        print_json(&serde_json::json!({ "result": "done" }))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn to_json(projects: &[ProjectView]) -> Result<String, VerbError> {
    let text = serde_json::to_string_pretty(projects);
    text.map(|text| text + "\n").map_err(|error| VerbError::Message(error.to_string()))
}

/// A line for each project: its name, and its members with their roles.
fn table(projects: &[ProjectView]) -> String {
    let width = projects.iter().map(|project| project.name.chars().count()).max();
    let width = width.unwrap_or(0).max("PROJECT".len());
    let mut text = format!("{:width$}  MEMBERS\n", "PROJECT");
    for project in projects {
        let members = project.members.iter();
        let members = members.map(|(name, role)| format!("{name} ({})", role.word()));
        let members = members.collect::<Vec<_>>().join(", ");
        let line = format!("{:width$}  {}", printable(&project.name), printable(&members));
        text += line.trim_end();
        text.push('\n');
    }
    text
}
