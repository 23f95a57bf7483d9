//! Files that describe the tasks of an `srun`: the programs of `--multi-prog` and the hosts of `SLURM_HOSTFILE`.

use crate::command::slurm::submit::caller::ProcessSurroundings;
use ::slurm::option::job_options::{Distribution, NodeDistribution};
use ::slurm::option::value::context::node_file;
use ::slurm::option::{JobOptions, OptionError};
use ::slurm::request::multi_prog;
use ::slurm::request::step::task_count;
use model::os_text;
use std::fs::File;
use std::io::Read;
use wire::step::StepLaunch;

/// Sets the program of each rank from the file of `--multi-prog`. The error is lines to print.
pub fn set_programs(
    launch: &mut StepLaunch,
    options: &JobOptions,
    argv: &[String],
) -> Result<(), Vec<String>> {
    let Some((file, more)) = argv.split_first() else { return Ok(()) };
    let Ok(text) = read(file) else {
        return Err(vec![format!("Could not open multi_prog config file {file}")]);
    };
    let tasks = task_count(launch, options);
    launch.programs = multi_prog::programs(file, &text, tasks, more)?;
    launch.tasks = Some(tasks);
    Ok(())
}

fn read(file: &str) -> std::io::Result<String> {
    let mut bytes = Vec::new();
    let file = File::open(os_text::to_os(file))?;
    file.take(multi_prog::FILE_BYTES_MAX).read_to_end(&mut bytes)?;
    Ok(os_text::from_bytes(bytes))
}

/// Outside of a job, the file of `--multi-prog` gives the number of tasks if no option does.
pub fn count_programs(options: &mut JobOptions, argv: &[String]) {
    let said = options.ntasks.is_some() || options.ntasks_per_node.is_some();
    if !options.step.multi_prog || said || options.step.job_id.is_some() {
        return;
    }
    // An unreadable file is reported by `set_programs`.
    options.ntasks = argv.first().and_then(|file| multi_prog::count(&read(file).ok()?));
}

/// `SLURM_HOSTFILE` names the host of each rank, and overrides any other distribution.
pub fn take_host_file(
    options: &mut JobOptions,
    here: &ProcessSurroundings,
) -> Result<(), Vec<String>> {
    let path = std::env::var_os("SLURM_HOSTFILE").map(os_text::from_os);
    let Some(path) = path else { return Ok(()) };
    if !options.nodelist.is_empty() {
        return Ok(());
    }
    let failed = |first: String| vec![first, "Failure getting NodeNames from hostfile".to_owned()];
    let hosts = node_file(here, &path).map_err(|error| match error {
        // The second line of the error is about an option, which was not given.
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
