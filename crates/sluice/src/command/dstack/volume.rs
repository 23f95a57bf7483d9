//! `sluice volume`: the volumes of a project, with the verbs of dstack's client. Folders of a node are named in a run's `volumes`
//! by their path.

use super::{ask, confirm, print, print_json, unexpected, watch};
use crate::client::Client;
use crate::command::verb::{ServerLocationArgs, VerbError, VerbResult};
use ::dstack::configuration::{self, Configuration};
use ::dstack::table::{self, VolumeRow, ago};
use clap::{Args, Subcommand};
use model::amount::Bytes;
use model::fleet::MAIN_PROJECT;
use model::reason::Refusal;
use model::time::Timestamp;
use model::volume::{VolumePlace, VolumeState};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::SystemTime;
use wire::client::{Answer, Call};
use wire::volume::VolumeView;

#[derive(Args)]
pub struct VolumeArgs {
    #[command(flatten)]
    server: ServerLocationArgs,
    /// The project that the volumes belong to
    #[arg(long, env = "DSTACK_PROJECT", default_value = MAIN_PROJECT, value_name = "NAME")]
    project: String,
    #[command(flatten)]
    list: ListArgs,
    #[command(subcommand)]
    action: Option<VolumeAction>,
}

#[derive(Args, Clone, Copy)]
struct ListArgs {
    /// Show more of each volume
    #[arg(short, long)]
    verbose: bool,
    /// Show again and again, until interrupted
    #[arg(short, long, conflicts_with = "json")]
    watch: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Subcommand)]
enum VolumeAction {
    /// List volumes
    List(ListArgs),
    /// Show a volume
    #[command(visible_alias = "show")]
    Get {
        name: String,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Create a volume on a node, or in a folder that nodes share
    Create(CreateArgs),
    /// Delete a volume and everything in it
    Delete {
        name: String,
        /// Do not ask
        #[arg(short, long)]
        yes: bool,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

#[derive(Args)]
struct CreateArgs {
    #[arg(required_unless_present = "file", conflicts_with = "file")]
    name: Option<String>,
    /// The node that keeps it
    #[arg(long, value_name = "NODE", conflicts_with_all = ["shared", "file"])]
    node: Option<String>,
    /// The shared folder that keeps it, one of the site's
    #[arg(long, value_name = "FOLDER", conflicts_with = "file")]
    shared: Option<String>,
    /// What may be written to it, as 10GB; only where the file system has project quotas
    #[arg(long, value_name = "SIZE", conflicts_with = "file")]
    size: Option<String>,
    /// A configuration of dstack's, as `apply` reads it
    #[arg(short, long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub fn run(args: VolumeArgs) -> VerbResult {
    let VolumeArgs { server, project, list, action } = args;
    let mut client = server.client()?;
    match action.unwrap_or(VolumeAction::List(list)) {
        VolumeAction::List(own) if own.json || list.json => {
            let volumes: Vec<Value> = volumes(&mut client, &project)?.iter().map(object).collect();
            print_json(&json!({ "project": project, "volumes": volumes }))?;
        }
        VolumeAction::List(own) => watch(own.watch || list.watch, || {
            let rows: Vec<_> = volumes(&mut client, &project)?.iter().map(row).collect();
            Ok(table::volumes(&rows, own.verbose || list.verbose))
        })?,
        VolumeAction::Get { name, json } => {
            let mut all = volumes(&mut client, &project)?.into_iter();
            let found = all.find(|volume| volume.name == name).ok_or_else(|| missing(&name))?;
            if json {
                print_json(&object(&found))?;
            } else {
                print(&table::volumes(&[row(&found)], true))?;
            }
        }
        VolumeAction::Create(create) => {
            let json = create.json;
            let call = creation(create, project.clone())?;
            ask(&mut client, call)?;
            done(json, &project)?;
        }
        VolumeAction::Delete { name, yes, json } => {
            if json && !yes {
                return Err(VerbError::Message("--json: say -y too".into()));
            }
            if !yes {
                // Nobody is asked about what would be refused.
                let mut all = volumes(&mut client, &project)?.into_iter();
                let found = all.find(|volume| volume.name == name).ok_or_else(|| missing(&name))?;
                if found.may_delete == Some(false) {
                    return Err(Refusal::AccessDenied.into());
                }
            }
            if !yes && !confirm(&format!("Delete the volume {name} and everything in it?"))? {
                print("Exiting...\n")?;
                return Ok(ExitCode::FAILURE);
            }
            let call = Call::DeleteVolume { project: project.clone(), name: name.clone() };
            ask(&mut client, call).map_err(|error| match error {
                VerbError::Refused(Refusal::UnknownThing { what, .. }) if what == "volume" => {
                    missing(&name)
                }
                other => other,
            })?;
            done(json, &project)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn done(json: bool, project: &str) -> Result<(), VerbError> {
    if json { print_json(&json!({ "project": project, "result": "done" })) } else { print("OK\n") }
}

fn missing(name: &str) -> VerbError {
    VerbError::Message(format!("volume {name} does not exist"))
}

fn volumes(client: &mut Client, project: &str) -> Result<Vec<VolumeView>, VerbError> {
    match ask(client, Call::Volumes { project: project.to_owned() })? {
        Answer::Volumes(volumes) => Ok(volumes),
        other => Err(unexpected(&other)),
    }
}

fn creation(args: CreateArgs, project: String) -> Result<Call, VerbError> {
    if let Some(file) = &args.file {
        return of_file(file, project);
    }
    let name = args.name.unwrap_or_default();
    let place = match (args.node, args.shared) {
        (Some(node), _) => VolumePlace::Node(node),
        (None, Some(folder)) => VolumePlace::Shared(folder),
        (None, None) => {
            let why = "say where it is kept: --node NODE or --shared FOLDER";
            return Err(VerbError::Message(why.into()));
        }
    };
    let size = args.size.as_deref().map(Bytes::parse_dstack).transpose();
    let size = size.map_err(|error| VerbError::Message(error.to_string()))?;
    Ok(Call::CreateVolume { project, name, place, size })
}

/// The call for a volume that a configuration describes.
fn of_file(file: &Path, project: String) -> Result<Call, VerbError> {
    let shown = file.display().to_string();
    let bytes = std::fs::read(file).map_err(VerbError::file(&shown))?;
    let loaded = configuration::parse(&shown, &bytes);
    let loaded = loaded.map_err(|error| VerbError::Message(error.to_string()))?;
    let applicable = loaded.applicable();
    let applicable =
        applicable.map_err(|fault| VerbError::Message(fault.in_file(&shown).to_string()))?;
    match applicable {
        Configuration::Volume(volume) => of_cloud(volume, None, &shown, project),
        _ => Err(VerbError::Message(format!("{shown}: expected `type: volume`"))),
    }
}

/// The call for a volume of a cloud. `name`: said beside the file.
pub fn of_cloud(
    volume: &configuration::volume::Volume,
    name: Option<&str>,
    file: &str,
    project: String,
) -> Result<Call, VerbError> {
    let name = name.or(volume.name.as_deref());
    let name =
        name.ok_or_else(|| VerbError::Message(format!("{file}: a volume needs a `name`")))?;
    let (name, place) = (name.to_owned(), volume.place());
    Ok(Call::CreateVolume { project, name, place, size: volume.size })
}

fn state_word(state: VolumeState) -> &'static str {
    match state {
        VolumeState::Creating => "creating",
        VolumeState::Ready => "active",
        VolumeState::Deleting => "deleting",
        VolumeState::Failed => "failed",
    }
}

fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_millis(since.as_millis() as i64)
}

fn row(volume: &VolumeView) -> VolumeRow {
    let jobs: Vec<String> = volume.jobs.iter().map(ToString::to_string).collect();
    VolumeRow {
        name: volume.name.clone(),
        owner: volume.owner.clone(),
        place: volume.place.to_string(),
        size: volume.size.map(|size| size.format_dstack()).unwrap_or_default(),
        status: state_word(volume.state).to_owned(),
        attached: jobs.join(","),
        created: ago(volume.created, now()),
    }
}

fn object(volume: &VolumeView) -> Value {
    let (node, folder, cloud) = match &volume.place {
        VolumePlace::Node(node) => (Some(node), None, None),
        VolumePlace::Shared(folder) => (None, Some(folder), None),
        VolumePlace::Cloud(place) => (None, None, Some(place)),
    };
    json!({
        "name": volume.name,
        "project": volume.project,
        "owner": volume.owner,
        "node": node,
        "shared": folder,
        "cloud": cloud,
        "disk": volume.disk,
        "size": volume.size.map(|size| size.0),
        "status": state_word(volume.state),
        "created": volume.created.millis() / 1000,
        "jobs": volume.jobs,
    })
}
