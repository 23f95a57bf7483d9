//! `sluice restore`: makes a state folder from a backup.

use super::daemon::state_dir::StateDir;
use super::progress;
use super::verb::{VerbError, VerbResult};
use ::server::backup::new_epoch::{NewEpoch, RestoreOptions};
use ::server::backup::restore::{Restored, restore};
use clap::Args;
use model::printable::printable;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The server's part of the folder, until it is whole.
const PARTIAL: &str = "restore.partial";
/// Ids left out after a restore: as many may have been given out since the backup.
const SKIPPED_IDS: u32 = 1_000_000;

#[derive(Args)]
pub struct RestoreArgs {
    /// The backup
    file: PathBuf,
    /// The new state folder; it must be empty
    #[arg(long, env = "SLUICE_STATE")]
    state: Option<PathBuf>,
    #[command(flatten)]
    epoch: EpochArgs,
}

// No `///`: it would be the help of the commands that have these options.
// What is decided about a state that goes on from an earlier time.
#[derive(Args)]
pub struct EpochArgs {
    /// How many job ids are left out: at least as many as were given out after the backup
    #[arg(long, default_value_t = SKIPPED_IDS, value_name = "N")]
    skip_ids: u32,
    /// Jobs of the backup may start before the nodes that may run them have connected, and so may run twice
    #[arg(long)]
    start_at_once: bool,
}

impl EpochArgs {
    pub fn options(&self) -> RestoreOptions {
        RestoreOptions { skip_ids: self.skip_ids, start_at_once: self.start_at_once }
    }
}

pub fn run(args: &RestoreArgs) -> VerbResult {
    let path = args.state.clone().unwrap_or_else(crate::client::default_state_dir);
    let file = File::open(&args.file).map_err(VerbError::file(&args.file))?;
    if !file.metadata().map_err(VerbError::file(&args.file))?.is_file() {
        let text = format!("{}: a backup is restored from a plain file", args.file.display());
        return Err(VerbError::Message(text));
    }
    let was_there = refuse_used(&path)?;
    let state = StateDir::prepare_empty(&path)?;
    let partial = state.path.join(PARTIAL);
    let made = state.trusted()?.folder(PARTIAL, 0o700).map(drop);
    made.map_err(VerbError::file(&partial))?;
    let options = args.epoch.options();
    let restored = progress::while_reading(&file, || restore(&file, &partial, options));
    let restored = match restored {
        Ok(restored) => restored,
        Err(error) => {
            // The folder is this process's user's alone. What stays is said by the next restore.
            let _ = std::fs::remove_dir_all(&partial);
            if !was_there {
                let _ = std::fs::remove_dir(&state.path);
            }
            return Err(error.into());
        }
    };
    let server = state.server_dir();
    std::fs::rename(&partial, &server).map_err(VerbError::file(&server))?;
    let folder = File::open(&state.path).and_then(|folder| folder.sync_all());
    folder.map_err(VerbError::file(&state.path))?;
    report(&state.path, &restored);
    Ok(ExitCode::SUCCESS)
}

/// A folder in which anything is could be a cluster's, or be about to become one. Returns whether there is a folder.
fn refuse_used(path: &Path) -> Result<bool, VerbError> {
    let mut entries = match std::fs::read_dir(path) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(VerbError::file(path)(error)),
    };
    match entries.next() {
        None => Ok(true),
        Some(_) => {
            let path = path.display();
            let text = format!("{path} is not empty: a backup is restored into an empty folder");
            Err(VerbError::Message(text))
        }
    }
}

fn report(path: &Path, restored: &Restored) {
    let Restored { manifest, epoch } = restored;
    print_epoch(&printable(&manifest.cluster), &path.display().to_string(), epoch);
    if !manifest.keys {
        println!("the backup has no keys: agents join anew, and secrets must be set again");
    }
}

/// What goes on, and where.
pub fn print_epoch(what: &str, place: &str, epoch: &NewEpoch) {
    let NewEpoch { jobs, restored_seq, next_job, awaited_nodes } = epoch;
    println!(
        "restored {what} to {place}: {jobs} jobs as of event {restored_seq}, ids go on at {next_job}"
    );
    if *awaited_nodes > 0 {
        println!(
            "jobs of the backup start when the {awaited_nodes} nodes that may run them have connected, or are down \
             (SlurmdTimeout, or scontrol update nodename=… state=down; state=resume ends the wait alone)"
        );
    }
}
