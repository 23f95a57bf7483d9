//! Each language's submit takes the other's file: `sluice apply` a batch script, `sbatch` a `.dstack.yml`.

use super::dstack::apply::{self, ApplyArgs};
use super::dstack::confirm;
use super::slurm::sbatch;
use super::verb::{VerbError, VerbResult};
use model::fleet::MAIN_PROJECT;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::process::ExitCode;

/// `sluice apply -f FILE`. Of a batch script the end is waited for, unless it is detached from.
pub fn apply(args: ApplyArgs) -> VerbResult {
    if !is_batch_script(&args.file) {
        return apply::run(args);
    }
    if args.force || args.json || args.profile.is_some() {
        let text =
            format!("{}: --force, --json and --profile are not for batch scripts", args.file);
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
    Ok(sbatch::run_at(&words, &args.server))
}

/// `sbatch [--parsable] FILE`; `None` where that is no configuration.
pub fn sbatch(args: &[String]) -> Option<ExitCode> {
    let (is_parsable, args) = match args {
        [first, rest @ ..] if first == "--parsable" => (true, rest),
        all => (false, all),
    };
    let file = args.first().filter(|file| is_configuration(file))?;
    let submitted = match args {
        [_] => apply::submit_file(file),
        _ => Err(VerbError::Message(format!("{file}: a configuration takes no arguments"))),
    };
    Some(match submitted {
        Ok(job) if is_parsable => {
            println!("{job}");
            ExitCode::SUCCESS
        }
        Ok(job) => {
            println!("Submitted batch job {job}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            error.to_string().lines().for_each(|line| eprintln!("sbatch: error: {line}"));
            ExitCode::FAILURE
        }
    })
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
