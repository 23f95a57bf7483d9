//! Refusals of options that contradict each other, in Slurm's words.

use super::JobOptions;
use crate::option::command::Command;
use crate::option::error::OptionError;
use crate::option::merge::GPUS_PER_TASK_CONFLICT;
use crate::words::refusal;
use model::gres::GresCount;

const GPU: &str = "gpu";
const SHARD: &str = "shard";

/// Refuses options whose values are each right and together contradict each other.
pub fn check(command: Command, options: &JobOptions) -> Result<(), OptionError> {
    check_nodes(command, options)?;
    if options.ntasks_per_gpu.is_some() && !options.gpus_per_task.is_empty() {
        return Err(OptionError::Fatal(GPUS_PER_TASK_CONFLICT.to_owned()));
    }
    if gres_lists(options).into_iter().any(is_half_typed) {
        let words = "Invalid GRES specification (with and without type identification)";
        return Err(OptionError::failure(words));
    }
    if let Some(words) = contradiction(options) {
        return Err(OptionError::Failure(vec![words, refusal::INVALID_GRES.text.to_owned()]));
    }
    let asks = |name: &str| options.gres.iter().any(|gres| gres.name == name && gres.count > 0);
    // A job has GPUs whole or by shards, not both.
    if asks(SHARD) && (asks(GPU) || asks_for_gpus(options)) {
        return Err(OptionError::failure(refusal::INVALID_GRES.text));
    }
    Ok(())
}

/// Refuses a node list that is longer than the number of nodes, or that names an excluded node.
fn check_nodes(command: Command, options: &JobOptions) -> Result<(), OptionError> {
    if options.nodelist.iter().any(|name| options.exclude.contains(name)) {
        return Err(OptionError::Refused(refusal::INVALID_NODE_NAME.text));
    }
    let in_segments = |segment: u32| options.nodes.is_none_or(|n| n.min.is_multiple_of(segment));
    if options.segment.is_some_and(|segment| !in_segments(segment)) {
        return Err(OptionError::Specification("segment"));
    }
    let named = options.nodelist.len() as u64;
    match options.nodes.and_then(|nodes| nodes.max) {
        Some(most) if command == Command::Sbatch && named > u64::from(most) => {
            Err(OptionError::failure(format!("invalid number of nodes (-N {named}-{most})")))
        }
        _ => Ok(()),
    }
}

/// `gpu:a100:1,gpu:2`: it is not clear whether the two GPUs include the typed one.
fn is_half_typed(list: &[GresCount]) -> bool {
    list.iter().any(|typed| {
        typed.kind.is_some() && list.iter().any(|g| g.name == typed.name && g.kind.is_none())
    })
}

fn contradiction(options: &JobOptions) -> Option<String> {
    let gpus = |list: &[GresCount]| -> u64 {
        list.iter().filter(|gres| gres.name == GPU).map(|gres| gres.count).sum()
    };
    let total = gpus(&options.gpus);
    let per_node = gpus(&options.gpus_per_node).max(gpus(&options.gres));
    let per_task = gpus(&options.gpus_per_task);
    let spread = |each: u64| total > 0 && each > 0 && total % each != 0;
    if options.cpus_per_gpu.is_some() && options.cpus_per_task.is_some() {
        return Some("--cpus-per-gpu is mutually exclusive with --cpus-per-task".into());
    }
    if let Some(each) = options.mem_per_gpu.filter(|_| !asks_for_gpus(options)) {
        let each = each.mib();
        return Some(format!(
            "Requested mem_per_tres=gres:gpu:{each} but did not request any GPU."
        ));
    }
    let counted = options.ntasks.is_some() || options.nodes.is_some();
    let has_gpus = total + per_node + per_task + gpus(&options.gpus_per_socket) > 0;
    if options.ntasks_per_gpu.is_some() && !has_gpus && !counted {
        let words = "gres_job_state_validate: --ntasks-per-tres needs either a GRES GPU \
                     specification or a node/ntask specification";
        return Some(words.into());
    }
    if !options.gpus_per_socket.is_empty() && options.sockets_per_node.is_none() {
        let words = "--gpus-per-socket option requires --sockets-per-node specification";
        return Some(words.into());
    }
    if spread(per_node) {
        let words = "Failed to validate job spec, --gpus is not multiple of \
                     --gres=gpu/--gpus-per-node";
        return Some(words.into());
    }
    if spread(per_task) {
        return Some("Failed to validate job spec, --gpus not multiple of --gpus-per-task".into());
    }
    // The tasks of a node count too: there are as many on each.
    let counts_tasks = options.ntasks.is_some() || options.ntasks_per_node.is_some();
    if per_task > 0 && total == 0 && !counts_tasks {
        let words = "Failed to validate job spec. --gpus-per-task used without either --gpus or \
                     -n/--ntasks is not allowed.";
        return Some(words.into());
    }
    None
}

fn asks_for_gpus(options: &JobOptions) -> bool {
    // Tasks for each GPU ask for GPUs too.
    options.ntasks_per_gpu.is_some()
        || gres_lists(options).into_iter().flatten().any(|gres| gres.name == GPU && gres.count > 0)
}

/// The options that ask for generic resources.
fn gres_lists(options: &JobOptions) -> [&[GresCount]; 5] {
    [
        &options.gres,
        &options.gpus,
        &options.gpus_per_node,
        &options.gpus_per_socket,
        &options.gpus_per_task,
    ]
}
