//! The texts of `--help`, `--usage` and `--version`.

use super::command::Command;
use super::help_text::{self, HelpLine};
use super::table::{self, Arg, OptionSpec};

/// The version of Slurm whose commands these are. Clients read it to decide what they can ask for.
pub const VERSION: &str = "slurm-wlm 22.05.8";

const LINE_CHARS_MAX: usize = 80;
/// The column of the descriptions.
const DESCRIPTION_COLUMN: usize = 34;

/// What the command is for, in one line.
pub fn about(command: Command) -> &'static str {
    match command {
        Command::Sbatch => "submit a batch script",
        Command::Srun => "run a parallel step, in a job of its own or in the one around it",
        Command::Salloc => "get an allocation and run a command while it is held",
        Command::Squeue => "list jobs and steps that wait or run",
        Command::Sinfo => "show partitions and nodes",
        Command::Scancel => "signal or end jobs and steps",
        Command::Sacct => "show the books: jobs and steps, also those that have ended",
        Command::Scontrol => "show and change jobs, nodes, partitions and reservations",
        Command::Sacctmgr => "show and change accounts, users, associations and QOS",
        Command::Sreport => "report what clusters, accounts and users have used",
        Command::Sprio => "show what the priority of waiting jobs is made of",
        Command::Sshare => "show the fair shares of accounts and users",
        Command::Sdiag => "show what the scheduler has done",
        Command::Sstat => "show what running steps use",
        Command::Seff => "show how much of its allocation a job has used",
        Command::Sattach => "attach to the input and output of a running step",
        Command::Sbcast => "copy a file to all nodes of a job",
        Command::Strigger => {
            "set, show and clear programs that run when something happens to nodes or jobs"
        }
    }
}

/// The operands in the usage line.
pub fn operands(command: Command) -> &'static str {
    match command {
        Command::Sbatch => "[ : [OPTIONS]] [script [args...]]",
        Command::Srun => "[ : [OPTIONS]] executable [args...]",
        Command::Salloc => "[ : [OPTIONS]] [command [args...]]",
        Command::Scancel => "[job_id[_array_id][.step_id]...]",
        Command::Scontrol | Command::Sacctmgr => "[command]",
        Command::Sreport => "cluster|job|user report [conditions]",
        Command::Sattach => "job_id.step_id",
        Command::Seff => "job_id",
        Command::Sbcast => "source destination",
        Command::Squeue
        | Command::Sinfo
        | Command::Sacct
        | Command::Sprio
        | Command::Sshare
        | Command::Sdiag
        | Command::Sstat
        | Command::Strigger => "",
    }
}

/// The text of `--help`: what the command has and lines to begin with, within a screen; then every option that has
/// something to say, a line each.
pub fn help(command: Command) -> String {
    let head = format!("Usage: {} [OPTIONS] {}", command.name(), operands(command));
    let mut text = format!("{}\n{}\n", head.trim_end(), about(command));
    push_lines(&mut text, "Commands", help_text::commands(command));
    push_lines(&mut text, "Examples", help_text::examples(command));
    text.push_str("\nOptions:\n");
    for spec in table::options(command).filter(|spec| !spec.about.is_empty()) {
        let names = spelled(spec);
        if names.len() + 2 > DESCRIPTION_COLUMN {
            text.push_str(&format!("{names}\n{:DESCRIPTION_COLUMN$}{}\n", "", spec.about));
        } else {
            text.push_str(&format!("{names:DESCRIPTION_COLUMN$}{}\n", spec.about));
        }
    }
    text
}

/// A titled list whose descriptions begin in one column; nothing of an empty one.
fn push_lines(text: &mut String, title: &str, lines: &[HelpLine]) {
    let Some(width) = lines.iter().map(|(form, _)| form.len()).max() else { return };
    text.push_str(&format!("\n{title}:\n"));
    for (form, does) in lines {
        text.push_str(&format!("  {form:width$}  {does}\n"));
    }
}

/// `  -n, --ntasks=count`
fn spelled(spec: &OptionSpec) -> String {
    let argument = match (spec.arg, spec.long) {
        (Arg::None, _) => String::new(),
        (Arg::Required(value), "") => format!(" {value}"),
        (Arg::Required(value), _) => format!("={value}"),
        (Arg::Optional(value), _) => format!("[={value}]"),
    };
    match (spec.short, spec.long) {
        (Some(letter), "") => format!("  -{letter}{argument}"),
        (Some(letter), long) => format!("  -{letter}, --{long}{argument}"),
        (None, long) => format!("      --{long}{argument}"),
    }
}

/// The text of `--usage`: all options on a few lines.
pub fn usage(command: Command) -> String {
    let head = format!("Usage: {}", command.name());
    let indent = " ".repeat(head.len());
    let words = table::options(command)
        .filter(|spec| !spec.about.is_empty())
        .map(bracketed)
        .chain(Some(operands(command).to_owned()).filter(|operands| !operands.is_empty()));
    let mut text = head;
    let mut line_chars = text.len();
    for word in words {
        if line_chars + 1 + word.len() > LINE_CHARS_MAX {
            text.push_str(&format!("\n{indent}"));
            line_chars = indent.len();
        }
        text.push_str(&format!(" {word}"));
        line_chars += 1 + word.len();
    }
    text.push('\n');
    text
}

/// `[-n count]`
fn bracketed(spec: &OptionSpec) -> String {
    match (spec.short, spec.arg) {
        (Some(letter), Arg::None) => format!("[-{letter}]"),
        (Some(letter), Arg::Required(value)) => format!("[-{letter} {value}]"),
        (Some(letter), Arg::Optional(value)) => format!("[-{letter}[{value}]]"),
        (None, Arg::None) => format!("[--{}]", spec.long),
        (None, Arg::Required(value)) => format!("[--{}={value}]", spec.long),
        (None, Arg::Optional(value)) => format!("[--{}[={value}]]", spec.long),
    }
}

/// The text of `--version`.
pub fn version() -> String {
    format!("{VERSION}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_names_every_described_option_of_the_command_and_no_other() {
        for command in Command::ALL {
            let text = help(command);
            for spec in table::options(command).filter(|spec| !spec.about.is_empty()) {
                assert!(text.contains(spec.about), "{}: {}", command.name(), spec.long);
            }
        }
        assert!(!help(Command::Srun).contains("--parsable"));
        assert!(
            help(Command::Sbatch).contains("  -n, --ntasks=count              number of tasks\n")
        );
    }

    /// The lines of a small terminal.
    const SCREEN_LINES: usize = 24;

    #[test]
    fn commands_and_examples_are_within_a_screen_before_the_options() {
        for command in Command::ALL {
            let text = help(command);
            let before = text.split("\nOptions:\n").next().unwrap_or_default();
            assert!(before.lines().count() < SCREEN_LINES, "{}:\n{before}", command.name());
            assert!(before.lines().all(|line| line.len() <= LINE_CHARS_MAX), "{before}");
            for (form, does) in
                help_text::commands(command).iter().chain(help_text::examples(command))
            {
                assert!(before.contains(form) && before.contains(does), "{form}: {before}");
            }
        }
    }

    #[test]
    fn usage_stays_within_the_width_of_a_terminal() {
        for command in Command::ALL {
            let text = usage(command);
            assert!(text.starts_with(&format!("Usage: {}", command.name())));
            for line in text.lines() {
                assert!(line.len() <= LINE_CHARS_MAX, "{}: {line}", command.name());
            }
        }
    }
}
