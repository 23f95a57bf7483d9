//! `sluice delete`: takes runs that have ended out of the lists of runs. `sacct` keeps them.

use super::task_file::DEFAULT_FILE;
use super::{OfProject, ask, confirm, find_ended, print, print_json};
use crate::command::slurm::query::job_names;
use crate::command::verb::{ServerLocationArgs, VerbError, VerbResult};
use ::dstack::configuration::parse;
use clap::Args;
use model::record::JobRecord;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use wire::client::Call;

#[derive(Args)]
pub struct DeleteArgs {
    #[command(flatten)]
    server: ServerLocationArgs,
    #[command(flatten)]
    of: OfProject,
    /// The runs' names, or jobs' numbers
    #[arg(value_name = "RUN")]
    runs: Vec<String>,
    /// The run that this configuration names; without it and without a name, that of .dstack.yml
    #[arg(short, long, value_name = "FILE", conflicts_with = "runs")]
    file: Option<PathBuf>,
    /// Do not ask
    #[arg(short, long)]
    yes: bool,
    /// Print JSON; needs -y
    #[arg(long, requires = "yes")]
    json: bool,
}

pub fn run(args: DeleteArgs) -> VerbResult {
    let mut client = args.server.client()?;
    let words = match (&args.file, args.runs.is_empty()) {
        (Some(file), _) => vec![name_in(file)?],
        // The configuration names the run where nothing else does.
        (None, true) => vec![name_in(Path::new(DEFAULT_FILE))?],
        (None, false) => args.runs,
    };
    words.iter().try_for_each(|word| check_whole(word))?;
    // All are looked up before the first is deleted, so that a wrong name changes nothing.
    let found: Result<Vec<JobRecord>, VerbError> =
        words.iter().map(|word| find_ended(&mut client, word, &args.of)).collect();
    let mut done: Vec<Value> = Vec::new();
    for record in found? {
        if !args.yes && !confirm(&format!("Delete the run {}?", record.name))? {
            print("Exiting...\n")?;
            return Ok(ExitCode::FAILURE);
        }
        ask(&mut client, Call::DeleteRuns { runs: vec![record.run] })?;
        done.push(json!({ "name": record.name, "job_id": record.job, "result": "deleted" }));
        if !args.json {
            print(&format!("Run {} deleted\n", record.name))?;
        }
    }
    if args.json {
        print_json(&json!({ "runs": done }))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Refuses a task (`13_2`) and a step (`13.0`): a run is deleted whole, and more would go than was named.
fn check_whole(word: &str) -> Result<(), VerbError> {
    match job_names::parse_job(word) {
        Some(named) if named.step.is_some() || named.job.tasks.is_some() => {
            let text = format!("{word}: a run is deleted whole: name {}", named.job.id);
            Err(VerbError::Message(text))
        }
        _ => Ok(()),
    }
}

/// The name of the run that a configuration describes.
fn name_in(file: &Path) -> Result<String, VerbError> {
    let shown = file.display().to_string();
    let bytes = std::fs::read(file).map_err(VerbError::file(&shown))?;
    let loaded = parse(&shown, &bytes).map_err(|error| VerbError::Message(error.to_string()))?;
    let name = loaded.value.get("name").as_text().map(str::to_owned);
    name.ok_or_else(|| VerbError::Message(format!("{shown}: it has no `name`: name the run")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn part_of_a_run_is_not_deleted_with_the_whole() {
        for whole in ["13", "train", "train_2", "v1.5"] {
            assert!(check_whole(whole).is_ok(), "{whole}");
        }
        for part in ["13_2", "13.0", "13.batch"] {
            let said = check_whole(part).expect_err(part).to_string();
            assert_eq!(said, format!("{part}: a run is deleted whole: name 13"));
        }
    }
}
