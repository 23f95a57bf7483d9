//! What an agent of an earlier version is sent. It has every text as UTF-8: it would pass over an order with another script without
//! an answer, and take the characters that stand for bytes (`model::os_text`) for what they are.

use crate::error::ServerError;
use crate::shared::Shared;
use model::os_text;
use model::reason::Refusal;
use wire::byte_text::ByteText;
use wire::order::{JobLaunch, Output};
use wire::step::StepLaunch;

const NOT_READ: &str = "the script, an argument, the working directory or an output file is not UTF-8 text, and the node's agent is of \
                        an earlier version, which takes no other: it has to be upgraded";

/// Whether the node's agent takes texts that are not UTF-8. A node without a link is sent nothing.
pub fn takes_bytes(shared: &Shared, node: &str) -> bool {
    shared.agents.peer(node).is_none_or(|peer| peer.takes_bytes)
}

/// The launch as the node's agent can read it, without variables that it cannot; an error where it could not run the job as it is.
pub fn for_agent_of(
    shared: &Shared,
    node: &str,
    launch: Option<JobLaunch>,
) -> Result<Option<JobLaunch>, ServerError> {
    let Some(mut launch) = launch else { return Ok(None) };
    if takes_bytes(shared, node) {
        return Ok(Some(launch));
    }
    let is_script_text = launch.script.as_ref().is_none_or(ByteText::is_utf_8);
    if !is_script_text || job_has_bytes(&launch) {
        return Err(ServerError::Other(NOT_READ.into()));
    }
    launch.environment.retain(|entry| !os_text::has_bytes(entry));
    Ok(Some(launch))
}

/// The step, unless the agent of one of its nodes could not run it as it is.
pub fn for_agents_of<'n>(
    shared: &Shared,
    mut nodes: impl Iterator<Item = &'n str>,
    launch: StepLaunch,
) -> Result<StepLaunch, Refusal> {
    if step_has_bytes(&launch) && !nodes.all(|node| takes_bytes(shared, node)) {
        return Err(Refusal::Other(NOT_READ.into()));
    }
    Ok(launch)
}

/// An environment of entries that end with NUL, without those that are not UTF-8.
pub fn without_bytes(environment: &str) -> String {
    environment.split_inclusive('\0').filter(|entry| !os_text::has_bytes(entry)).collect()
}

fn job_has_bytes(launch: &JobLaunch) -> bool {
    let file = |output: &Output| match output {
        Output::File { pattern, .. } => os_text::has_bytes(pattern),
        Output::SameAsStdout | Output::Log | Output::Discard => false,
    };
    let mut words = launch.arguments.iter().chain([&launch.work_dir, &launch.stdin]);
    words.any(|word| os_text::has_bytes(word)) || file(&launch.stdout) || file(&launch.stderr)
}

fn step_has_bytes(launch: &StepLaunch) -> bool {
    let words = launch.argv.iter().chain(launch.programs.iter().flatten());
    let files = launch.stdout.iter().chain(&launch.stderr).chain([&launch.work_dir]);
    words.chain(files).any(|word| os_text::has_bytes(word))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn bytes_of_a_step_are_found_in_its_words_and_files() {
        let green = os_text::from_bytes(b"gr\xfcn".to_vec());
        let plain =
            json!({"name": "s", "argv": ["a"], "environment": "", "work_dir": "/", "key": "k"});
        let plain: StepLaunch = serde_json::from_value(plain).expect("a launch");
        let variable = StepLaunch { environment: format!("G={green}\0"), ..plain.clone() };
        for launch in [&plain, &variable] {
            assert!(!step_has_bytes(launch), "{launch:?}");
        }
        for launch in [
            StepLaunch { argv: vec!["a".into(), green.clone()], ..plain.clone() },
            StepLaunch { programs: vec![vec![green.clone()]], ..plain.clone() },
            StepLaunch { stderr: Some(green.clone()), ..plain.clone() },
            StepLaunch { work_dir: green, ..plain },
        ] {
            assert!(step_has_bytes(&launch), "{launch:?}");
        }
        assert_eq!(without_bytes(&format!("A=1\0{}B=2\0", variable.environment)), "A=1\0B=2\0");
    }
}
