//! What the submitting commands print, and the codes they fail with.

use crate::client::{Client, ClientError};
use crate::command::slurm::submit::wait_line;
use ::slurm::option::parse::Question;
use ::slurm::option::{Command, JobOptions, OptionError, help};
use ::slurm::request::{Submitter, propagated};
use ::slurm::words::{note, refusal};
use model::reason::{PartitionBound, Refusal};
use nix::sys::termios::{OutputFlags, tcgetattr};
use std::io;
use std::os::fd::AsFd;
use std::process::ExitCode;
use wire::client::{Answer, Call};
use wire::view::UnknownNames;

/// The exit code of a command that the server refused, or that could not reach it.
pub const FAILURE: u8 = 1;

/// `FAILURE`, or the code that `SLURM_EXIT_ERROR` asks for.
pub fn failure() -> ExitCode {
    let asked = std::env::var("SLURM_EXIT_ERROR").ok().and_then(|text| text.parse::<i32>().ok());
    ExitCode::from(asked.map_or(FAILURE, |code| code as u8))
}

/// Prints a line on standard error after the command's name.
pub fn print_line(command: Command, line: &str) {
    wait_line::clear();
    eprint!("{}: {line}{}", command.name(), line_end(io::stderr()));
}

pub fn print_error(command: Command, line: &str) {
    wait_line::clear();
    eprint!("{}: error: {line}{}", command.name(), line_end(io::stderr()));
}

/// A terminal that is raw, as under `srun --pty`, does not go back to the first column by itself.
fn line_end(to: impl AsFd) -> &'static str {
    match tcgetattr(to) {
        Ok(terminal) if !terminal.output_flags.contains(OutputFlags::OPOST) => "\r\n",
        _ => "\n",
    }
}

/// The number of `-v` from which details are printed too, and from which the finest ones.
pub const DEBUG: u32 = 2;
pub const DEBUG2: u32 = 3;

/// `-v`: prints the options as they were understood.
pub fn print_defined(command: Command, options: &JobOptions) {
    options.defined.iter().for_each(|line| print_line(command, line));
}

/// `-vv`: prints the limits and the mask that the job gets from here.
pub fn print_propagated(command: Command, options: &JobOptions, submitter: &Submitter) {
    if options.verbose < DEBUG {
        return;
    }
    for (name, value) in propagated(options, submitter) {
        print_line(command, &format!("debug:  propagating RLIMIT_{name}={value}"));
    }
    print_line(command, &format!("debug:  propagating UMASK={:04o}", submitter.umask));
}

/// Reports an invalid option in Slurm's words; the code is Slurm's too.
pub fn refuse_option(command: Command, error: &OptionError) -> ExitCode {
    eprint!("{}", error.render(command));
    if let Some(line) = error.note() {
        print_line(command, &format!("note: {line}"));
    }
    ExitCode::from(error.exit_code(command) as u8)
}

/// Answers `--help`, `--usage` and `--version`.
pub fn answer(command: Command, question: Question) -> ExitCode {
    let text = match question {
        Question::Help => help::help(command),
        Question::Usage => help::usage(command),
        Question::Version => help::version(),
    };
    print!("{text}");
    ExitCode::SUCCESS
}

/// Reports a submission that the server refused.
pub fn refused(command: Command, refusal: &Refusal) -> ExitCode {
    if let Some(hint) = refusal::hint(refusal) {
        print_error(command, &hint);
    }
    let text = refusal::text(refusal);
    match refusal {
        // Slurm's client knows the names of gres itself and refuses before it submits.
        Refusal::UnknownGres(_) => print_error(command, &text),
        _ => print_error(command, &format!("{}: {text}", command.refusal_prefix())),
    }
    note_refused(command, refusal);
    failure()
}

/// As [`refused`], with the names that could have been given in the place of an unknown one.
pub fn refused_submit(command: Command, client: &mut Client, refusal: &Refusal) -> ExitCode {
    let code = refused(command, refusal);
    note_choices(command, client, refusal);
    code
}

/// Prints the names that could have been given in the place of one that was refused.
pub fn note_choices(command: Command, client: &mut Client, refusal: &Refusal) {
    // A server that does not know the question is of an earlier version.
    if let Some(name) = note::RefusedName::of(refusal)
        && let Ok(Answer::SubmitChoices(valid)) = client.call(Call::SubmitChoices)
        && let Some(line) = name.choices(&valid)
    {
        print_line(command, &format!("note: {line}"));
    }
}

/// Prints one line more than Slurm: the constraint that was not met.
pub fn note_refused(command: Command, refusal: &Refusal) {
    if let Some(line) = note::text(refusal) {
        print_line(command, &format!("note: {line}"));
    }
}

/// Says of a job that was taken that it asks for more nodes, or a longer time, than its partitions give, and so waits.
pub fn note_beyond_partition(
    command: Command,
    quiet: bool,
    nodes: Option<&PartitionBound>,
    time: Option<&PartitionBound>,
) {
    if quiet {
        return;
    }
    let lines = nodes.map(note::beyond_partition).into_iter().chain(time.map(note::beyond_time));
    lines.for_each(|line| print_line(command, &format!("note: {line}")));
}

/// Says of a job that was taken that it names an account, a QOS or jobs that are not known.
pub fn note_unknown_names(command: Command, quiet: bool, unknown: &UnknownNames) {
    let lines = note::unknown_names(unknown).into_iter().filter(|_| !quiet);
    lines.for_each(|line| print_line(command, &format!("note: {line}")));
}

/// Reports that the server could not be reached.
pub fn unreachable(command: Command, error: &ClientError) -> ExitCode {
    print_error(command, &format!("{}: {}", command.refusal_prefix(), error.in_slurms_words()));
    failure()
}

/// Reports an answer that does not belong to the request.
pub fn unexpected(command: Command, answer: &Answer) -> ExitCode {
    print_error(command, &format!("the server's answer was not expected: {answer:?}"));
    failure()
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::pty::openpty;
    use nix::sys::termios::{SetArg, cfmakeraw, tcsetattr};

    #[test]
    fn lines_on_a_raw_terminal_go_back_to_the_first_column() {
        let pty = openpty(None, None).expect("a terminal");
        assert_eq!(line_end(&pty.slave), "\n");
        let mut raw = tcgetattr(&pty.slave).expect("its settings");
        cfmakeraw(&mut raw);
        tcsetattr(&pty.slave, SetArg::TCSANOW, &raw).expect("a raw terminal");
        assert_eq!(line_end(&pty.slave), "\r\n");
        let file = std::fs::File::open("/dev/null").expect("no terminal");
        assert_eq!(line_end(&file), "\n");
    }
}
