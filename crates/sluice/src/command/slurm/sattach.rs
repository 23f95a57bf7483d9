//! `sattach`: shows the output of a running step and sends it input, beside its `srun`.

use super::query::{self, CommandError};
use super::step::output::{FilenameFields, Outputs, Target};
use super::step::server_stream::ServerStreams;
use super::step::{Plan, Step, terminal};
use super::submit::job_watch::{Watch, Watched};
use crate::client::Client;
use ::slurm::option::Command;
use ::slurm::option::key::OptionKey as K;
use ::slurm::option::parse::Parsed;
use ::slurm::words::refusal;
use model::change::{JobFilter, JobRef};
use model::hostlist;
use model::id::{JobId, StepId};
use model::reason::Refusal;
use model::run;
use nix::sys::signal::SigSet;
use nix::sys::signalfd::{SfdFlags, SignalFd};
use std::fs::File;
use std::io::{self, IsTerminal};
use std::os::fd::AsFd;
use std::process::ExitCode;
use std::time::Duration;
use wire::client::{Answer, Call, JobsQuery};

const COMMAND: Command = Command::Sattach;
const USAGE: &str = "Usage: sattach [options] <jobid.stepid>\n";
const REQUEST: &str = "sattach: error: Could not get job step info";

pub fn run(args: &[String]) -> ExitCode {
    query::finish(COMMAND, attach(args))
}

/// The checked options.
#[derive(Debug, PartialEq, Eq)]
struct AttachRequest {
    job: JobId,
    step: StepId,
    output: Option<u32>,
    error: Option<u32>,
    input: Option<u32>,
    label: bool,
    layout: bool,
    pty: bool,
    quiet: bool,
}

impl AttachRequest {
    fn read(parsed: &Parsed) -> Result<Self, CommandError> {
        let [word] = parsed.rest.as_slice() else {
            return Err(usage_error("too many parameters"));
        };
        let Some((job, step)) = word.split_once('.') else {
            return Err(usage_error("Failed to parse stepid from command line options"));
        };
        let job =
            job.parse().map_err(|_| usage_error(&format!("Invalid job id {job:?} in {word:?}")))?;
        let step = StepId::parse(step).ok_or_else(|| {
            CommandError::message(format!("sattach: fatal: Bad step specified: {step}"))
        })?;
        let filter = |key, name: &str| match parsed.text(key) {
            Some(text) => text.parse().map(Some).map_err(|_| {
                let text = format!("Invalid numeric value \"{text}\" for {name}.");
                CommandError::message(format!("sattach: error: {text}"))
            }),
            None => Ok(None),
        };
        let asked = Self {
            job: JobId(job),
            step,
            output: filter(K::OutputFilter, "output-filter")?,
            error: filter(K::ErrorFilter, "error-filter")?,
            input: filter(K::InputFilter, "input-filter")?,
            label: parsed.has(K::Label),
            layout: parsed.has(K::Layout),
            pty: parsed.has(K::Pty),
            quiet: parsed.has(K::Quiet),
        };
        if asked.pty && (asked.output, asked.error, asked.input) != (None, None, None) {
            let text =
                "--pty cannot be used with --input-filter, --output-filter or --error-filter";
            return Err(CommandError::message(format!("sattach: error: {text}")));
        }
        Ok(asked)
    }
}

/// An error together with the usage.
fn usage_error(line: &str) -> CommandError {
    let error = CommandError::message(format!("sattach: error: {line}"));
    match query::print(USAGE) {
        Ok(()) => error,
        Err(broken) => broken,
    }
}

fn attach(args: &[String]) -> Result<ExitCode, CommandError> {
    let Some(parsed) = query::options(COMMAND, args)? else { return Ok(ExitCode::SUCCESS) };
    let asked = AttachRequest::read(&parsed)?;
    let mut client =
        Client::find().map_err(|source| CommandError::Unreachable { request: REQUEST, source })?;
    let step = find(&mut client, &asked)?;
    if asked.layout {
        query::print(&layout_text(&step))?;
        return Ok(ExitCode::SUCCESS);
    }
    if !matches!(step.id, StepId::Number(_)) {
        let text = format!(
            "step {}.{} writes to a file: there is nothing to attach to",
            asked.job, step.id
        );
        return Err(CommandError::message(format!("{REQUEST}: {text}")));
    }
    Ok(ExitCode::from(run_attached(&client, &asked, &step)?))
}

fn find(client: &mut Client, asked: &AttachRequest) -> Result<run::Step, CommandError> {
    let filter = JobFilter { jobs: vec![JobRef::whole(asked.job)], ..JobFilter::default() };
    let wanted = JobsQuery { filter, steps: true, ..JobsQuery::default() };
    let unknown =
        |why: &Refusal| CommandError::message(format!("{REQUEST}: {}", refusal::text(why)));
    let jobs = match client.call(Call::Jobs(wanted)) {
        Ok(Answer::Jobs { jobs, .. }) => jobs,
        Ok(Answer::Refused(why)) => return Err(unknown(&why)),
        Ok(other) => return Err(CommandError::unexpected(&other)),
        Err(source) => return Err(CommandError::Unreachable { request: REQUEST, source }),
    };
    let steps = jobs.0.into_iter().filter(|job| job.id == asked.job).flat_map(|job| job.steps);
    let mut living = steps.filter(|step| step.end.is_none());
    // Slurm reports an unknown step as an unknown job.
    let missing = || unknown(&Refusal::UnknownJob(asked.job.to_string()));
    living.find(|step| step.id == asked.step).ok_or_else(missing)
}

fn layout_text(step: &run::Step) -> String {
    let nodes = hostlist::compress(&step.nodes);
    let mut text = format!(
        "Job step layout:\n\t{} tasks, {} nodes ({nodes})\n\n",
        step.tasks,
        step.nodes.len()
    );
    // A batch step has no layout: it is one task on the first node.
    let script = [(step.nodes.first().cloned().unwrap_or_default(), vec![0])];
    let layout = if step.layout.is_empty() { &script[..] } else { &step.layout };
    for (index, (node, tasks)) in layout.iter().enumerate() {
        let ranks: String = tasks.iter().map(|task| format!("{task} ")).collect();
        text.push_str(&format!("\tNode {index} ({node}), {} task(s): {ranks}\n", tasks.len()));
    }
    text
}

fn run_attached(
    client: &Client,
    asked: &AttachRequest,
    step: &run::Step,
) -> Result<u8, CommandError> {
    let location = client.location().clone();
    let streams = ServerStreams::new(location.clone(), asked.job, asked.step, None)?;
    let only = |rank: Option<u32>| rank.map_or(Target::Own, Target::OnlyTask);
    let names = FilenameFields {
        job_id: asked.job.0,
        array: None,
        step: asked.step.to_string(),
        user: String::new(),
        job_name: String::new(),
        work_dir: String::new(),
    };
    let outputs = Outputs::new(only(asked.output), Some(only(asked.error)), false, names)?;
    let outputs = if asked.pty { outputs.unbuffered() } else { outputs };
    let plan = Plan {
        job: asked.job,
        name: format!("{}.{}", asked.job, asked.step),
        tasks: Some(step.tasks),
        label: asked.label,
        quiet: asked.quiet,
        verbose: 0,
        terminal: false,
        kill_on_bad_exit: Some(false),
        disable_status: false,
        quit_on_interrupt: false,
        input_task: asked.input,
        wait: Some(Duration::ZERO),
        prolog: None,
        het: None,
    };
    let step = Step::attached(plan, &step.layout, streams, outputs, Some(own_input()?));
    // No signal is blocked: an interrupt ends `sattach`, and the step goes on.
    let flags = SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC;
    let signals = SignalFd::with_flags(&SigSet::empty(), flags).map_err(io::Error::from)?;
    let mut watch =
        Watch::begin(Watched { location, job: asked.job, from_start: false, explains: false })?;
    let raw = if asked.pty && io::stdin().is_terminal() {
        terminal::RawTerminal::enter().map_err(io::Error::from)?
    } else {
        None
    };
    let outcome = step.run(&mut watch, &signals);
    drop(raw);
    Ok(outcome?.code)
}

fn own_input() -> io::Result<File> {
    io::stdin().as_fd().try_clone_to_owned().map(File::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(words: &[&str]) -> Result<AttachRequest, String> {
        let words: Vec<String> = words.iter().map(ToString::to_string).collect();
        let parsed = ::slurm::option::parse::parse(COMMAND, &words).expect("options");
        AttachRequest::read(&parsed).map_err(|error| error.to_string())
    }

    #[test]
    fn a_step_id_is_parsed_and_errors_are_slurms() {
        let asked = read(&["-l", "--output-filter", "1", "86.0"]).expect("good");
        assert_eq!((asked.job, asked.step), (JobId(86), StepId::Number(0)));
        assert_eq!((asked.output, asked.label), (Some(1), true));
        let table: [(&[&str], &str); 5] = [
            (&["86"], "sattach: error: Failed to parse stepid from command line options"),
            (&["86.x"], "sattach: fatal: Bad step specified: x"),
            (&[], "sattach: error: too many parameters"),
            (&["86.0", "86.0"], "sattach: error: too many parameters"),
            (
                &["--output-filter", "x", "86.0"],
                "sattach: error: Invalid numeric value \"x\" for output-filter.",
            ),
        ];
        for (words, line) in table {
            assert_eq!(read(words), Err(line.to_owned()), "{words:?}");
        }
    }
}
