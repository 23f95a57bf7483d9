//! `sluice secret`: the secrets of a project, with the verbs of dstack's client and one to rotate the server's key.

use super::{ask, confirm, print, print_json, unexpected};
use crate::command::verb::{ServerLocationArgs, VerbError, VerbResult};
use ::dstack::table;
use clap::{Args, Subcommand};
use model::bounds;
use model::fleet::MAIN_PROJECT;
use model::reason::Refusal;
use model::secret::SecretValue;
use serde_json::json;
use std::io::Read;
use std::process::ExitCode;
use wire::client::{Answer, Call};

/// What a list shows in place of each value.
const HIDDEN: &str = "******";

#[derive(Args)]
pub struct SecretArgs {
    #[command(flatten)]
    server: ServerLocationArgs,
    /// The project that the secrets belong to
    #[arg(long, env = "DSTACK_PROJECT", default_value = MAIN_PROJECT, value_name = "NAME")]
    project: String,
    /// Print JSON
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    action: SecretAction,
}

#[derive(Subcommand)]
enum SecretAction {
    /// List secrets, without their values
    List,
    /// Print a secret's value
    Get {
        name: String,
        /// Print the value alone, as it is
        #[arg(long)]
        raw: bool,
    },
    /// Set a secret
    Set {
        name: String,
        /// The value; without it, or for -, it is read from standard input and is in no list of processes
        value: Option<String>,
    },
    /// Delete secrets
    Delete {
        #[arg(required = true, value_name = "NAME")]
        names: Vec<String>,
        /// Do not ask
        #[arg(short, long)]
        yes: bool,
    },
    /// Encrypt every secret with a new key of the server
    RotateKey,
}

pub fn run(args: SecretArgs) -> VerbResult {
    let SecretArgs { server, project, json, action } = args;
    let mut client = server.client()?;
    let in_project = project.clone();
    let managed = |error| explain_denial(error, &project);
    let done = match action {
        SecretAction::List => {
            match ask(&mut client, Call::Secrets { project: project.clone() }).map_err(managed)? {
                Answer::Secrets(names) if json => {
                    let names: Vec<_> = names.iter().map(|name| json!({ "name": name })).collect();
                    print_json(&json!({ "project": in_project, "secrets": names }))?;
                    return Ok(ExitCode::SUCCESS);
                }
                Answer::Secrets(names) => {
                    let rows = names.into_iter().map(|name| (name, HIDDEN.to_owned()));
                    table::secrets(rows)
                }
                other => return Err(unexpected(&other)),
            }
        }
        SecretAction::Get { name, raw } => {
            let call = Call::Secret { project: project.clone(), name: name.clone() };
            match ask(&mut client, call).map_err(managed).map_err(in_dstacks_words)? {
                Answer::Secret { value } if raw => value.0,
                Answer::Secret { value } if json => {
                    print_json(&json!({ "project": in_project, "name": name, "value": value.0 }))?;
                    return Ok(ExitCode::SUCCESS);
                }
                Answer::Secret { value } => table::secrets([(name, value.0)]),
                other => return Err(unexpected(&other)),
            }
        }
        SecretAction::Set { name, value } => {
            let value = SecretValue(match value {
                Some(value) if value != "-" => value,
                _ => from_stdin()?,
            });
            let call = Call::SetSecret { project: project.clone(), name, value };
            ask(&mut client, call).map_err(managed)?;
            "OK\n".to_owned()
        }
        SecretAction::Delete { names, yes } => {
            if json && !yes {
                return Err(VerbError::Message("--json: say -y too".into()));
            }
            if !yes && !confirm(&format!("Delete the secret {}?", names.join(", ")))? {
                print("Exiting...\n")?;
                return Ok(ExitCode::FAILURE);
            }
            let call = Call::RemoveSecrets { project: project.clone(), names };
            ask(&mut client, call).map_err(managed).map_err(in_dstacks_words)?;
            "OK\n".to_owned()
        }
        SecretAction::RotateKey => {
            ask(&mut client, Call::RotateSecretKey)?;
            "OK\n".to_owned()
        }
    };
    if json {
        print_json(&json!({ "project": in_project, "result": "done" }))?;
    } else {
        print(&done)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The whole of standard input, without the newline at its end.
fn from_stdin() -> Result<String, VerbError> {
    let mut text = String::new();
    // One byte more than the bound, so that the server refuses what is longer.
    let most = bounds::SECRET_BYTES.most as u64 + 2;
    let read = std::io::stdin().lock().take(most).read_to_string(&mut text);
    read.map_err(VerbError::file("standard input"))?;
    Ok(text.strip_suffix('\n').map_or(text.clone(), str::to_owned))
}

/// Says who manages the secrets of a project, where whoever asks does not.
fn explain_denial(error: VerbError, project: &str) -> VerbError {
    match error {
        VerbError::Refused(Refusal::AccessDenied) => VerbError::Message(format!(
            "access denied: managers of project {project} and administrators list, read and set its secrets; \
             a job may use them without that right (--secret NAME, ${{{{ secrets.NAME }}}})"
        )),
        other => other,
    }
}

/// Says of a missing secret what dstack's client says: scripts look for its words.
fn in_dstacks_words(error: VerbError) -> VerbError {
    match error {
        VerbError::Refused(Refusal::UnknownThing { what, name }) if what == "secret" => {
            VerbError::Message(format!("Resource not found: secret {name}"))
        }
        other => other,
    }
}
