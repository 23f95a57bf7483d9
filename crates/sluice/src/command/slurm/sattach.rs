//! `sattach`: the output of a step that runs, and input for it, beside its `srun`.

use super::ask::{self, ShowError};
use super::step::output::{Names, Outputs, Target};
use super::step::stream::Streams;
use super::step::{Plan, Step, terminal};
use super::watch::Watch;
use crate::connect::Client;
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
const DOING: &str = "sattach: error: Could not get job step info";

pub fn run(args: &[String]) -> ExitCode {
    ask::finish(COMMAND, attach(args))
}

/// What was asked, checked.
#[derive(Debug, PartialEq, Eq)]
struct Asked {
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

impl Asked {
    fn read(parsed: &Parsed) -> Result<Self, ShowError> {
        let [word] = parsed.rest.as_slice() else {
            return Err(misused("too many parameters"));
        };
        let Some((job, step)) = word.split_once('.') else {
            return Err(misused("Failed to parse stepid from command line options"));
        };
        let job =
            job.parse().map_err(|_| misused(&format!("Invalid job id {job:?} in {word:?}")))?;
        let step = StepId::parse(step).ok_or_else(|| {
            ShowError::said(format!("sattach: fatal: Bad step specified: {step}"))
        })?;
        let filter = |key, name: &str| match parsed.text(key) {
            Some(text) => text.parse().map(Some).map_err(|_| {
                let text = format!("Invalid numeric value \"{text}\" for {name}.");
                ShowError::said(format!("sattach: error: {text}"))
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
            return Err(ShowError::said(format!("sattach: error: {text}")));
        }
        Ok(asked)
    }
}

/// The line, and after it how the command is used.
fn misused(line: &str) -> ShowError {
    let error = ShowError::said(format!("sattach: error: {line}"));
    match ask::print(USAGE) {
        Ok(()) => error,
        Err(broken) => broken,
    }
}

fn attach(args: &[String]) -> Result<ExitCode, ShowError> {
    let Some(parsed) = ask::options(COMMAND, args)? else { return Ok(ExitCode::SUCCESS) };
    let asked = Asked::read(&parsed)?;
    let mut client =
        Client::find().map_err(|source| ShowError::Unreachable { doing: DOING, source })?;
    let step = find(&mut client, &asked)?;
    if asked.layout {
        ask::print(&layout_text(&step))?;
        return Ok(ExitCode::SUCCESS);
    }
    if !matches!(step.id, StepId::Number(_)) {
        let text = format!(
            "step {}.{} writes to a file: there is nothing to attach to",
            asked.job, step.id
        );
        return Err(ShowError::said(format!("{DOING}: {text}")));
    }
    Ok(ExitCode::from(carry(&client, &asked, &step)?))
}

fn find(client: &mut Client, asked: &Asked) -> Result<run::Step, ShowError> {
    let filter = JobFilter { jobs: vec![JobRef::whole(asked.job)], ..JobFilter::default() };
    let wanted = JobsQuery { filter, steps: true, ..JobsQuery::default() };
    let unknown = |why: &Refusal| ShowError::said(format!("{DOING}: {}", refusal::text(why)));
    let jobs = match client.call(Call::Jobs(wanted)) {
        Ok(Answer::Jobs { jobs, .. }) => jobs,
        Ok(Answer::Refused(why)) => return Err(unknown(&why)),
        Ok(other) => return Err(ShowError::unexpected(&other)),
        Err(source) => return Err(ShowError::Unreachable { doing: DOING, source }),
    };
    let steps = jobs.0.into_iter().filter(|job| job.id == asked.job).flat_map(|job| job.steps);
    let mut living = steps.filter(|step| step.end.is_none());
    // Slurm says the same of a job and of a step that is not there.
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
    // A script has no layout: it is one task on the first node.
    let script = [(step.nodes.first().cloned().unwrap_or_default(), vec![0])];
    let layout = if step.layout.is_empty() { &script[..] } else { &step.layout };
    for (index, (node, tasks)) in layout.iter().enumerate() {
        let ranks: String = tasks.iter().map(|task| format!("{task} ")).collect();
        text.push_str(&format!("\tNode {index} ({node}), {} task(s): {ranks}\n", tasks.len()));
    }
    text
}

fn carry(client: &Client, asked: &Asked, step: &run::Step) -> Result<u8, ShowError> {
    let place = client.place().clone();
    let streams = Streams::new(place.clone(), asked.job, asked.step, None)?;
    let only = |rank: Option<u32>| rank.map_or(Target::Own, Target::OnlyTask);
    let names = Names {
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
        terminal: false,
        kill_on_bad_exit: Some(false),
        disable_status: false,
        quit_on_interrupt: false,
        input_task: asked.input,
        wait: Some(Duration::ZERO),
        prolog: None,
        among: None,
    };
    let step = Step::attached(plan, &step.layout, streams, outputs, Some(own_input()?));
    // An interrupt ends this command, and the step goes on.
    let flags = SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC;
    let signals = SignalFd::with_flags(&SigSet::empty(), flags).map_err(io::Error::from)?;
    let mut watch = Watch::begin(place, asked.job, false)?;
    let raw = match asked.pty && io::stdin().is_terminal() {
        true => terminal::Raw::enter().map_err(io::Error::from)?,
        false => None,
    };
    let outturn = step.run(&mut watch, &signals);
    drop(raw);
    Ok(outturn?.code)
}

fn own_input() -> io::Result<File> {
    io::stdin().as_fd().try_clone_to_owned().map(File::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(words: &[&str]) -> Result<Asked, String> {
        let words: Vec<String> = words.iter().map(ToString::to_string).collect();
        let parsed = ::slurm::option::parse::parse(COMMAND, &words).expect("options");
        Asked::read(&parsed).map_err(|error| error.to_string())
    }

    #[test]
    fn a_step_is_named_and_what_is_wrong_is_said_as_captured() {
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
