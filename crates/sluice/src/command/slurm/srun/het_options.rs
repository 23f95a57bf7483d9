//! `srun a : b` and `--het-group`: which component of a het job each part of the command line runs on.

use crate::command::slurm::submit::caller::{self, ProcessSurroundings};
use ::slurm::environment::het_job;
use ::slurm::option::invocation::{self, Caller, Invocation, Launch};
use ::slurm::option::key::OptionKey;
use ::slurm::option::{Command, JobOptions, OptionError};
use model::array::IndexSet;
use model::hostlist;
use model::range::Range;

const COMMAND: Command = Command::Srun;

/// The options and the program of one component.
pub type ComponentOptions = (JobOptions, Vec<String>);

/// Reads the command line: options for each component, in their order. Inside a het job a step inherits from its component
/// of the job. Outside of a job the parts are the components of the job to be made.
pub fn read(
    args: &[String],
    here: &ProcessSurroundings,
) -> Result<Invocation<Vec<ComponentOptions>>, OptionError> {
    let plain = match invocation::launch(COMMAND, args, &caller::caller(here))? {
        Invocation::Submission(Launch { components }) => components,
        Invocation::Question(question) => return Ok(Invocation::Question(question)),
    };
    let named =
        plain.len() > 1 || plain.iter().any(|(options, _)| options.step.het_group.is_some());
    let placed = if named { components_by_offset(&plain)? } else { Vec::new() };
    let inside = plain.iter().any(|(options, _)| options.step.job_id.is_some());
    let parts = match (named, inside) {
        (false, _) => plain,
        (true, false) => placed.into_iter().map(|(_, part)| plain[part].clone()).collect(),
        (true, true) if has_components(&plain, &placed)? => {
            let of_each = placed.into_iter().map(|(at, part)| of_component(args, here, at, part));
            of_each.collect::<Result<_, _>>()?
        }
        (true, true) => {
            let mut parts: Vec<ComponentOptions> =
                placed.into_iter().map(|(_, part)| plain[part].clone()).collect();
            let list = std::env::var("SLURM_JOB_NODELIST").unwrap_or_default();
            share_nodes(&mut parts, hostlist::expand(&list).unwrap_or_default())?;
            parts
        }
    };
    Ok(Invocation::Submission(parts))
}

/// Which component each part is for, in the components' order: the one of its own position, or those that it names.
fn components_by_offset(parts: &[ComponentOptions]) -> Result<Vec<(u32, usize)>, OptionError> {
    let mut list: Vec<(u32, usize)> = Vec::new();
    for (part, (options, _)) in parts.iter().enumerate() {
        let own = || [part as u32].into_iter().collect::<IndexSet>();
        let named = options.step.het_group.clone().unwrap_or_else(own);
        list.extend(named.iter().map(|at| (at, part)));
    }
    list.sort();
    if list.windows(2).any(|pair| pair[0].0 == pair[1].0) {
        let words = "Duplicate het groups in single srun not supported";
        return Err(OptionError::Fatal(words.to_owned()));
    }
    Ok(list)
}

/// Whether the job has these components. False if it is no het job and its nodes are to be divided among the parts. An
/// error, in Slurm's words, if neither is possible.
fn has_components(
    parts: &[ComponentOptions],
    placed: &[(u32, usize)],
) -> Result<bool, OptionError> {
    let own = |name: &str| std::env::var(name).ok();
    let here = own("SLURM_JOB_ID").and_then(|id| id.parse().ok());
    let of_here = parts.iter().all(|(options, _)| options.step.job_id == here);
    let size = het_job::size(own).filter(|_| of_here);
    let last = size.unwrap_or(1).saturating_sub(1);
    let highest = placed.last().map_or(0, |(at, _)| *at);
    match (placed.len(), size) {
        (1, _) if highest > last => Err(failure(format!(
            "Requested het-group offset exceeds highest hetjob index ({highest} > {last})"
        ))),
        (1, None) => {
            Err(failure("No directives to start application on any available hetjob components"))
        }
        (_, None) if !of_here => Err(failure(
            "several parts in a job that this is not run in are not supported: one srun for each is right",
        )),
        (_, None) => Ok(false),
        _ if highest > last => Err(failure(format!(
            "Attempt to run a job step with het group value of {highest}, \
             but the job allocation has maximum value of {last}"
        ))),
        _ => Ok(true),
    }
}

/// Divides the nodes of a job that is not het: each part gets the nodes that it names, or the next free ones, and one node
/// if it gives no number.
fn share_nodes(parts: &mut [ComponentOptions], nodes: Vec<String>) -> Result<(), OptionError> {
    let mut left = nodes.clone();
    for (options, _) in parts {
        let inherited = options.step.inherited.contains(&OptionKey::Nodes);
        let said = options.nodes.filter(|_| !inherited).map(|nodes| nodes.min);
        let mut own = options.nodelist.clone();
        let wanted = said.map_or(own.len().max(1), |count| count as usize);
        let taken = own.iter().any(|node| nodes.contains(node) && !left.contains(node));
        left.retain(|node| !own.contains(node));
        let more = wanted.saturating_sub(own.len());
        if taken || left.len() < more {
            let used = nodes.len() - left.len();
            return Err(failure(format!(
                "Allocation failure of {wanted} nodes: job size of {}, \
                 already allocated {used} nodes to previous components.",
                nodes.len()
            )));
        }
        own.extend(left.drain(..more));
        options.nodes = Some(Range::exactly(own.len() as u32));
        options.nodelist = own;
    }
    Ok(())
}

/// Reads one part of the command line with the environment of its component.
fn of_component(
    args: &[String],
    here: &ProcessSurroundings,
    at: u32,
    part: usize,
) -> Result<ComponentOptions, OptionError> {
    let variable =
        |name: &str| het_job::component_variable(|name| std::env::var(name).ok(), name, at);
    let caller = Caller { variable: &variable, ..caller::caller(here) };
    match invocation::launch(COMMAND, args, &caller)? {
        Invocation::Submission(mut launch) if part < launch.components.len() => {
            Ok(launch.components.swap_remove(part))
        }
        _ => Err(failure("the command line reads otherwise than before")),
    }
}

fn failure(line: impl Into<String>) -> OptionError {
    OptionError::Failure(vec![line.into()])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_divided_among_parts_in_order_and_none_twice() {
        let part = |count: Option<u32>, named: &[&str]| {
            let nodelist = named.iter().map(ToString::to_string).collect();
            (
                JobOptions { nodes: count.map(Range::exactly), nodelist, ..Default::default() },
                vec![],
            )
        };
        let shared = |mut parts: Vec<ComponentOptions>| {
            let nodes = ["n1", "n2", "n3"].map(str::to_owned).to_vec();
            share_nodes(&mut parts, nodes).map_err(|error| error.to_string())?;
            Ok::<_, String>(parts.iter().map(|(o, _)| o.nodelist.join(" ")).collect::<Vec<_>>())
        };
        let none: &[&str] = &[];
        assert_eq!(shared(vec![part(None, none), part(Some(2), none)]).unwrap(), ["n1", "n2 n3"]);
        let named = vec![part(None, &["n2"]), part(Some(2), &["n3"])];
        assert_eq!(shared(named).unwrap(), ["n2", "n3 n1"]);
        for parts in [
            vec![part(Some(2), none), part(Some(2), none)],
            vec![part(Some(2), none), part(None, &["n1"])],
        ] {
            let words = shared(parts).expect_err("there are three");
            assert!(words.contains("job size of 3, already allocated 2 nodes"), "{words}");
        }
    }
}
