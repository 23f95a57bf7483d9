//! `sluice help TOPIC`: short texts, one file each; without a topic the list of them.

use super::verb::{VerbError, VerbResult};
use ::slurm::option::Command as SlurmCommand;
use clap::{Args, CommandFactory};
use std::io::Write;
use std::process::ExitCode;

#[derive(Args)]
pub struct HelpArgs {
    /// resources, limits, states, exit-codes, reasons; or a verb
    topic: Vec<String>,
}

/// Each topic by its name, its line in the list, and its text.
const TOPICS: [(&str, &str, &str); 5] = [
    ("resources", "how CPUs, memory, GPUs and nodes are asked for", include_str!("resources.txt")),
    ("limits", "what ends a job or keeps it waiting", include_str!("limits.txt")),
    ("states", "the states of jobs and nodes", include_str!("states.txt")),
    ("exit-codes", "how a job's end is told", include_str!("exit-codes.txt")),
    ("reasons", "why a job waits, and what to do", include_str!("reasons.txt")),
];

pub fn run<C: CommandFactory>(args: &HelpArgs) -> VerbResult {
    // `exit codes` is `exit-codes`.
    let topic = args.topic.join("-").to_ascii_lowercase();
    let text = if topic.is_empty() {
        overview::<C>()
    } else if let Some((_, _, text)) = TOPICS.iter().find(|(name, ..)| *name == topic) {
        (*text).to_owned()
    } else {
        let mut all = C::command();
        all.build();
        match all.find_subcommand_mut(&topic) {
            Some(verb) => verb.render_help().to_string(),
            None => return Err(VerbError::Message(unknown(&topic))),
        }
    };
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes()).map_err(VerbError::file("standard output"))?;
    Ok(ExitCode::SUCCESS)
}

fn overview<C: CommandFactory>() -> String {
    let mut text = C::command().render_help().to_string();
    text.push_str("\nTopics (sluice help TOPIC):\n");
    for (name, line, _) in TOPICS {
        text.push_str(&format!("  {name:<12}{line}\n"));
    }
    text
}

fn unknown(topic: &str) -> String {
    if SlurmCommand::from_name(topic).is_some() {
        return format!("{topic} has help of its own: {topic} --help");
    }
    let names: Vec<&str> = TOPICS.iter().map(|(name, ..)| *name).collect();
    format!("no help on {topic:?}: the topics are {}; or name a verb", names.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_of_slurm_are_said_to_have_help_of_their_own() {
        assert_eq!(unknown("sbatch"), "sbatch has help of its own: sbatch --help");
        assert!(unknown("sbotch").starts_with("no help on \"sbotch\": the topics are "));
    }

    #[test]
    fn texts_fit_a_terminal_and_end_with_a_line() {
        for (name, _, text) in TOPICS {
            let lines: Vec<&str> = text.lines().collect();
            assert!(text.ends_with('\n') && (5..60).contains(&lines.len()), "{name}");
            assert!(lines.iter().all(|line| line.chars().count() <= 80), "{name}");
        }
    }
}
