//! `sluice volume`: network volumes, with the verbs of dstack's client. No backend here has any yet: the list is empty, and
//! one is created by `apply`, which refuses it in one line. Folders of a node are named in a run's `volumes`.

use super::{ask, print, print_json};
use crate::command::verb::{ServerLocationArgs, VerbError, VerbResult};
use ::dstack::configuration;
use ::dstack::table;
use clap::{Args, Subcommand};
use model::fleet::MAIN_PROJECT;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use wire::client::Call;

#[derive(Args)]
pub struct VolumeArgs {
    #[command(flatten)]
    server: ServerLocationArgs,
    /// The project that the volumes belong to
    #[arg(long, env = "DSTACK_PROJECT", default_value = MAIN_PROJECT, value_name = "NAME")]
    project: String,
    #[command(subcommand)]
    action: Option<VolumeAction>,
}

#[derive(Subcommand)]
enum VolumeAction {
    /// List volumes
    List {
        /// Show more of each volume
        #[arg(short, long)]
        verbose: bool,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Show a volume
    #[command(visible_alias = "show")]
    Get {
        name: String,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Create the volume that a configuration describes, as `apply` does
    Create {
        #[arg(short, long, value_name = "FILE")]
        file: PathBuf,
    },
    /// Delete a volume
    Delete {
        name: String,
        /// Do not ask
        #[arg(short, long)]
        yes: bool,
    },
}

pub fn run(args: VolumeArgs) -> VerbResult {
    // No call lists volumes, as there are none: without this one a user without access would see an empty list.
    ask(&mut args.server.client()?, Call::Ping)?;
    match args.action.unwrap_or(VolumeAction::List { verbose: false, json: false }) {
        VolumeAction::List { json: true, .. } => {
            let volumes: [serde_json::Value; 0] = [];
            print_json(&serde_json::json!({ "project": args.project, "volumes": volumes }))?;
            Ok(ExitCode::SUCCESS)
        }
        VolumeAction::List { verbose, json: false } => {
            print(&table::volumes(verbose))?;
            Ok(ExitCode::SUCCESS)
        }
        VolumeAction::Get { name, json: _ } | VolumeAction::Delete { name, yes: _ } => {
            Err(VerbError::Message(format!("volume {name} does not exist")))
        }
        VolumeAction::Create { file } => create(&file),
    }
}

fn create(file: &Path) -> VerbResult {
    let shown = file.display().to_string();
    let message = |error: &dyn std::fmt::Display| VerbError::Message(error.to_string());
    let bytes = std::fs::read(file).map_err(VerbError::file(&shown))?;
    let loaded = configuration::parse(&shown, &bytes).map_err(|error| message(&error))?;
    match loaded.applicable() {
        Err(fault) => Err(message(&fault.in_file(&shown))),
        Ok(_) => Err(VerbError::Message(format!("{shown}: expected `type: volume`"))),
    }
}
