//! Each language's submit takes the other's file: `sluice apply` a batch script, `sbatch` a `.dstack.yml`.

pub mod dependency;
mod sbatch_options;

use super::dstack::apply::{self, ApplyArgs};
use super::dstack::confirm;
use super::slurm::sbatch;
use super::slurm::submit::messages::{print_error, unreachable};
use super::verb::{VerbError, VerbResult};
use ::slurm::option::Command;
use model::fleet::MAIN_PROJECT;
use model::os_text;
use sbatch_options::SbatchOptions;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::process::ExitCode;

/// `sluice apply -f FILE`. Of a batch script the end is waited for, unless it is detached from.
pub fn apply(args: ApplyArgs) -> VerbResult {
    if !is_batch_script(&args.file) {
        return apply::run(args);
    }
    if args.force || args.json || args.profile.is_some() || !args.env.is_empty() {
        let options = "--force, --json, --profile and --env";
        let text = format!("{}: {options} are not for batch scripts", args.file);
        return Err(VerbError::Message(text));
    }
    if !args.yes && !confirm(&format!("Submit the batch script {}?", args.file))? {
        println!("Exiting...");
        return Ok(ExitCode::SUCCESS);
    }
    let mut words: Vec<String> =
        args.name.iter().map(|name| format!("--job-name={name}")).collect();
    if args.project != MAIN_PROJECT {
        words.push(format!("--account={}", args.project));
    }
    words.extend((!args.detach).then(|| "--wait".to_owned()));
    words.push(args.file);
    let words: Vec<String> = words.into_iter().map(os_text::from_text).collect();
    Ok(sbatch::run_at(&words, &args.server))
}

/// `sbatch [OPTIONS] FILE`; `None` where the file is no configuration.
pub fn sbatch(args: &[String]) -> Option<ExitCode> {
    if !args.iter().any(|word| is_configuration(word)) {
        return None;
    }
    let options = match SbatchOptions::read(args)? {
        Ok(options) => options,
        Err(error) => return Some(failed(&error)),
    };
    let submitted = apply::submit_file(&options.file, &options.overrides);
    Some(match submitted {
        Ok((mut client, job)) => {
            if let Some(line) = sbatch::submitted(job, &options.given) {
                println!("{line}");
            }
            if options.given.wait {
                let ended = sbatch::wait(&mut client, job);
                return Some(ended.unwrap_or_else(|error| unreachable(Command::Sbatch, &error)));
            }
            ExitCode::SUCCESS
        }
        Err(error) => failed(&error),
    })
}

fn failed(error: &VerbError) -> ExitCode {
    error.to_string().lines().for_each(|line| print_error(Command::Sbatch, line));
    ExitCode::FAILURE
}

fn is_configuration(file: &str) -> bool {
    Path::new(file).extension().is_some_and(|end| end == "yml" || end == "yaml")
}

/// A file that is no configuration by its name, and begins as a script does. Of a pipe nothing is read: what is read of it
/// is gone.
fn is_batch_script(file: &str) -> bool {
    let mut start = [0; 2];
    let read = || File::open(file)?.read_exact(&mut start);
    let is_file = std::fs::metadata(file).is_ok_and(|found| found.is_file());
    is_file && !is_configuration(file) && { read }().is_ok() && start == *b"#!"
}
