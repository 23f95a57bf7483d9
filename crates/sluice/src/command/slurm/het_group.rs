//! `srun --het-group`: which component of a heterogeneous job a step is of.

use super::caller::{self, Here};
use ::slurm::environment::component;
use ::slurm::option::invocation::{self, Caller, Invocation, Launch};
use ::slurm::option::{Command, OptionError};

const COMMAND: Command = Command::Srun;

/// Reads the command line. What a step takes over from its job it has of the component that it names, else of the first.
pub fn read(args: &[String], here: &Here) -> Result<Invocation<Launch>, OptionError> {
    let plain = invocation::launch(COMMAND, args, &caller::caller(here))?;
    let Invocation::Submission(launch) = &plain else { return Ok(plain) };
    let Some((options, _)) = launch.components.first() else { return Ok(plain) };
    let Some(groups) = &options.step.het_group else { return Ok(plain) };
    let own = |name: &str| std::env::var(name).ok();
    // Where there is no job yet there is nothing to choose from, and as in Slurm nothing to refuse.
    if own("SLURM_JOB_ID").is_none() {
        return Ok(plain);
    }
    let size = component::size(own);
    let (at, last) = (groups.last().unwrap_or(0), size.unwrap_or(1).saturating_sub(1));
    if at > last {
        return Err(failure(format!(
            "Requested het-group offset exceeds highest hetjob index ({at} > {last})"
        )));
    }
    if size.is_none() {
        let words = "No directives to start application on any available hetjob components";
        return Err(failure(words));
    }
    if groups.len() != 1 {
        return Err(failure(
            "--het-group with several components is not supported: one srun for each is right",
        ));
    }
    let of_component = |name: &str| component::of_component(own, name, at);
    let caller = Caller { variable: &of_component, ..caller::caller(here) };
    invocation::launch(COMMAND, args, &caller)
}

fn failure(line: impl Into<String>) -> OptionError {
    OptionError::Failure(vec![line.into()])
}
