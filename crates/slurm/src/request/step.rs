//! What an `srun` wants started, inside an allocation or as the first step of its own.

use super::{Submitter, base_name, environment, resources, work_dir};
use crate::option::JobOptions;
use wire::step::{StepInput, StepLaunch};

/// Where the tasks' supervisors find the `srun`, and how they show that they are meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    pub listen: Vec<String>,
    pub key: String,
}

/// How the step stands to its allocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Within {
    /// The step's own: it takes all of it.
    Own,
    /// One that was there before: of its nodes the step may ask for a part.
    Given,
}

/// The launch, and remarks on what of it was bent to fit together.
pub fn launch(
    options: &JobOptions,
    argv: &[String],
    submitter: &Submitter,
    within: Within,
    endpoint: Endpoint,
    input: StepInput,
) -> (StepLaunch, Vec<String>) {
    let (counts, notes) = resources::counts(options);
    let given = within == Within::Given;
    let launch = StepLaunch {
        name: argv.first().map(|program| base_name(program).to_owned()).unwrap_or_default(),
        argv: argv.to_vec(),
        environment: environment(options, submitter),
        work_dir: work_dir(options, submitter),
        tasks: options.ntasks,
        nodes: counts.nodes.map(|nodes| nodes.min).filter(|_| given),
        tasks_per_node: counts.tasks_per_node,
        cpus_per_task: options.cpus_per_task,
        node_list: if given { options.nodelist.clone() } else { Vec::new() },
        listen: endpoint.listen,
        key: endpoint.key,
        umask: submitter.umask,
        stdin: input,
        // Files are written where `srun` is, and not where the task happens to be.
        stdout: None,
        stderr: None,
        submit_line: submitter.words.join(" "),
        overcommit: options.overcommit,
        pty: options.step.pty,
    };
    // An allocation of its own was remarked upon when it was asked for.
    (launch, if given { notes } else { Vec::new() })
}
