//! The files that tell an `srun` about its tasks: `--multi-prog`'s programs and `SLURM_HOSTFILE`'s hosts.

use crate::command::slurm::submit::caller::ProcessSurroundings;
use ::slurm::option::job_options::{Distribution, NodeDistribution};
use ::slurm::option::surroundings::node_file;
use ::slurm::option::{JobOptions, OptionError};
use ::slurm::request::multi_prog;
use ::slurm::request::step::tasks_said;
use std::fs::File;
use std::io::Read;
use wire::step::StepLaunch;

/// Gives each rank the program that the file names for it; else lines that say what is wrong.
pub fn set_programs(
    launch: &mut StepLaunch,
    options: &JobOptions,
    argv: &[String],
) -> Result<(), Vec<String>> {
    let Some((file, more)) = argv.split_first() else { return Ok(()) };
    let Ok(text) = read(file) else {
        return Err(vec![format!("Could not open multi_prog config file {file}")]);
    };
    let tasks = tasks_said(launch, options);
    launch.programs = multi_prog::programs(file, &text, tasks, more)?;
    launch.tasks = Some(tasks);
    Ok(())
}

fn read(file: &str) -> std::io::Result<String> {
    let mut text = String::new();
    File::open(file)?.take(multi_prog::FILE_BYTES_MAX).read_to_string(&mut text)?;
    Ok(text)
}

/// Where nothing else says how many tasks there are, the file of `--multi-prog` does, if it is for a job of its own.
pub fn count_programs(options: &mut JobOptions, argv: &[String]) {
    let said = options.ntasks.is_some() || options.ntasks_per_node.is_some();
    if !options.step.multi_prog || said || options.step.job_id.is_some() {
        return;
    }
    // A file that cannot be read is said when its programs are.
    options.ntasks = argv.first().and_then(|file| multi_prog::count(&read(file).ok()?));
}

/// `SLURM_HOSTFILE` says the host of each rank, over any other distribution.
pub fn take_host_file(
    options: &mut JobOptions,
    here: &ProcessSurroundings,
) -> Result<(), Vec<String>> {
    let Ok(path) = std::env::var("SLURM_HOSTFILE") else { return Ok(()) };
    if !options.nodelist.is_empty() {
        return Ok(());
    }
    let failed = |first: String| vec![first, "Failure getting NodeNames from hostfile".to_owned()];
    let hosts = node_file(here, &path).map_err(|error| match error {
        // The second line of it speaks of an option.
        OptionError::Value(lines) => failed(lines.into_iter().next().unwrap_or_default()),
        other => failed(other.to_string()),
    })?;
    let tasks = options.ntasks.unwrap_or(hosts.len() as u32) as usize;
    if hosts.len() < tasks || hosts.is_empty() {
        return Err(failed("Too few NodeNames in Slurm Hostfile".to_owned()));
    }
    options.ntasks = Some(tasks as u32);
    options.nodelist = hosts.into_iter().take(tasks).collect();
    options.distribution =
        Some(Distribution { nodes: Some(NodeDistribution::Arbitrary), ..Distribution::default() });
    Ok(())
}
