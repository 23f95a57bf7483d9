//! `sbcast`: copies a file to every node of a job, as the job's user.
//!
//! A task of a step writes it on each node, and the bytes come as the step's input. So the file is written with the rights
//! of the user, inside of the job's container and private folders, and over the links that every `srun` has; a supervisor,
//! which is root, writes to no place that a user names.

use super::query::{self, CommandError};
use super::step::listener::StepListener;
use super::step::output::{FilenameFields, Outputs, Target, reason};
use super::step::server_stream::ServerStreams;
use super::step::taken_signals::take_signals;
use super::step::{Plan, Step};
use super::submit::caller;
use super::submit::job_watch::{SHORT_STEP, Watch, Watched};
use crate::client::Client;
use crate::command::progress;
use ::slurm::option::job_options::{Export, StepOptions};
use ::slurm::option::parse::Parsed;
use ::slurm::option::{Command, JobOptions, OptionKey as K, table};
use ::slurm::request::Submitter;
use ::slurm::request::step::{StepAllocation, launch};
use ::slurm::words::refusal;
use model::binding::{CpuBind, CpuBinding};
use model::id::{JobId, StepId};
use model::os_text;
use model::range::Range;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::process::ExitCode;
use std::time::Duration;
use wire::client::{Answer, Call, CreateStep};
use wire::file_copy::{self, FileCopy, FileTimes};
use wire::step::{OwnProgram, StepInput, StepLaunch, StepLayout};

const COMMAND: Command = Command::Sbcast;
const REQUEST: &str = "sbcast: error: Unable to copy the file";
/// How long the server may wait for the job to take a step. It takes nothing that other steps hold.
const CREATE_TIMEOUT: Duration = Duration::from_secs(60);

pub fn run(args: &[String]) -> ExitCode {
    query::finish(COMMAND, copy(args))
}

fn wrong(text: impl std::fmt::Display) -> CommandError {
    CommandError::message(format!("sbcast: error: {text}"))
}

fn failed(error: io::Error) -> CommandError {
    wrong(reason(&error))
}

/// The checked options.
#[derive(Debug, PartialEq, Eq)]
struct CopyRequest {
    source: String,
    destination: String,
    job: JobId,
    preserve: bool,
    force: bool,
}

impl CopyRequest {
    fn read(
        parsed: &Parsed,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, CommandError> {
        let is_given = |key: &K| {
            let asked = |text: &str| *key != K::SendLibs || text != "no";
            parsed.text(*key).is_some_and(asked)
        };
        if let Some(key) = [K::BcastExclude, K::SendLibs].into_iter().find(is_given) {
            let (name, verdict) = (table::long_name(COMMAND, key), table::verdict(COMMAND, key));
            return Err(wrong(format!("--{name} is not supported: {}", verdict.why())));
        }
        let [source, destination] = parsed.rest.as_slice() else {
            let given = parsed.rest.len();
            return Err(wrong(format!("{given} file names given: expected SOURCE and DEST")));
        };
        if source.is_empty() || destination.is_empty() {
            return Err(wrong("a file name is empty: expected SOURCE and DEST"));
        }
        Ok(Self {
            source: source.clone(),
            destination: destination.clone(),
            job: job(parsed, variable)?,
            preserve: parsed.has(K::Preserve),
            force: parsed.has(K::Force),
        })
    }

    /// Opens the source. A relative destination is in the folder that `sbcast` is called in; one that ends with `/` is a
    /// folder, where the file keeps its name.
    fn open(&self, work_dir: &str) -> Result<(File, FileCopy), CommandError> {
        let unread = |why: &str| wrong(format!("{}: {why}", self.source));
        // A named pipe is refused below, and its writer not waited for.
        let source = os_text::to_os(&self.source);
        let opened = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(source);
        let file = opened.map_err(|error| unread(&reason(&error)))?;
        let found = file.metadata().map_err(|error| unread(&reason(&error)))?;
        if found.is_dir() {
            return Err(unread("Is a directory"));
        }
        if !found.is_file() {
            return Err(unread("expected a plain file"));
        }
        let times = FileTimes {
            accessed: (found.atime(), found.atime_nsec()),
            modified: (found.mtime(), found.mtime_nsec()),
        };
        let copy = FileCopy {
            destination: place(&self.destination, &self.source, work_dir),
            length: found.len(),
            mode: found.mode() & 0o777,
            preserved: self.preserve.then_some(times),
            replace: self.force,
        };
        Ok((file, copy))
    }
}

fn job(parsed: &Parsed, variable: impl Fn(&str) -> Option<String>) -> Result<JobId, CommandError> {
    let named = parsed.text(K::JobId).map(|text| ("--jobid", text.to_owned()));
    let own = || variable("SLURM_JOB_ID").map(|text| ("SLURM_JOB_ID", text));
    let (place, text) = named
        .or_else(own)
        .ok_or_else(|| wrong("no job: call it inside of one, or name one with --jobid"))?;
    let expected = "expected the number of a job, all of whose nodes get the file";
    text.parse().map(JobId).map_err(|_| wrong(format!("{place}={text}: {expected}")))
}

fn place(destination: &str, source: &str, work_dir: &str) -> String {
    let mut path = if destination.starts_with('/') {
        destination.to_owned()
    } else {
        format!("{}/{destination}", work_dir.trim_end_matches('/'))
    };
    if path.ends_with('/') {
        path.push_str(source.rsplit('/').next().unwrap_or(source));
    }
    path
}

fn copy(args: &[String]) -> Result<ExitCode, CommandError> {
    let Some(parsed) = query::options(COMMAND, args)? else { return Ok(ExitCode::SUCCESS) };
    let asked = CopyRequest::read(&parsed, |name| std::env::var(name).ok())?;
    let submitter = caller::submitter(COMMAND, args, &JobOptions::default());
    // What cannot be read is told before a server is looked for.
    let opened = asked.open(&submitter.work_dir)?;
    let mut client =
        Client::find().map_err(|source| CommandError::Unreachable { request: REQUEST, source })?;
    let is_copied = send(&mut client, &asked, opened, &submitter)?;
    Ok(if is_copied { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Copies a file to every node of a job in place of one that is there, as `srun --bcast` does; whether every node has taken it.
pub fn copy_file(
    client: &mut Client,
    job: JobId,
    submitter: &Submitter,
    source: &str,
    destination: &str,
) -> Result<bool, CommandError> {
    let (source, destination) = (source.to_owned(), destination.to_owned());
    let asked = CopyRequest { source, destination, job, preserve: false, force: true };
    let opened = asked.open(&submitter.work_dir)?;
    send(client, &asked, opened, submitter)
}

fn send(
    client: &mut Client,
    asked: &CopyRequest,
    (source, copy): (File, FileCopy),
    submitter: &Submitter,
) -> Result<bool, CommandError> {
    let options = step_options(nodes(client, asked.job)?);
    let step = BroadcastStep { job: asked.job, options: &options, submitter };
    step.run(client, source, copy, &asked.source)
}

/// Asks. A refusal is an error.
fn ask(client: &mut Client, call: Call) -> Result<Answer, CommandError> {
    match client.call_again(call) {
        Ok(Answer::Refused(why)) => {
            Err(CommandError::message(format!("{REQUEST}: {}", refusal::text(&why))))
        }
        Ok(answer) => Ok(answer),
        Err(source) => Err(CommandError::Unreachable { request: REQUEST, source }),
    }
}

fn nodes(client: &mut Client, job: JobId) -> Result<Vec<String>, CommandError> {
    match ask(client, Call::AwaitStart { job, timeout_ms: 0, ready: false })? {
        Answer::Start { allocation: Some(granted), .. } => {
            Ok(granted.nodes.into_iter().map(|share| share.node).collect())
        }
        Answer::Start { .. } => Err(wrong(format!("job {job} has no nodes: it does not run"))),
        other => Err(CommandError::unexpected(&other)),
    }
}

/// A task on each of the nodes, which takes nothing from other steps of the job.
fn step_options(nodes: Vec<String>) -> JobOptions {
    let none = || Some("none".to_owned());
    let count = nodes.len() as u32;
    JobOptions {
        nodelist: nodes,
        nodes: Some(Range::exactly(count)),
        ntasks: Some(count),
        overcommit: true,
        cpu_bind: Some(CpuBinding { kind: Some(CpuBind::None), ..CpuBinding::default() }),
        // The destination is absolute, so that a folder which a node does not have is an error.
        chdir: Some("/".to_owned()),
        export: Some(Export::Nil),
        step: StepOptions {
            overlap: true,
            no_gres: true,
            prolog: none(),
            epilog: none(),
            ..StepOptions::default()
        },
        ..JobOptions::default()
    }
}

/// The step that copies a file.
struct BroadcastStep<'a> {
    job: JobId,
    options: &'a JobOptions,
    submitter: &'a Submitter,
}

impl BroadcastStep<'_> {
    fn run(
        &self,
        client: &mut Client,
        source: File,
        copy: FileCopy,
        source_name: &str,
    ) -> Result<bool, CommandError> {
        let listener = StepListener::open(client.location()).map_err(failed)?;
        let launch = self.launch(&listener)?;
        let layout = self.create(client, &launch)?;
        let (location, key) = (client.location().clone(), launch.key.clone());
        let streams = ServerStreams::new(location.clone(), self.job, layout.step, Some(key))
            .map_err(failed)?;
        let watched = Watched { location, job: self.job, from_start: false, explains: false };
        let mut watch = Watch::begin_after(SHORT_STEP, watched).map_err(failed)?;
        let signals = take_signals().map_err(|errno| failed(errno.into()))?;
        let (input, output) = io::pipe().map_err(failed)?;
        let input = File::from(OwnedFd::from(input));
        let read = source.try_clone().map_err(failed)?;
        let send = move || file_copy::send(&copy, source, output);
        let sender = std::thread::Builder::new().name("file".into()).spawn(send).map_err(failed)?;
        let placed: Vec<(String, Vec<u32>)> =
            layout.nodes.into_iter().map(|node| (node.node, node.tasks)).collect();
        let plan = self.plan(layout.step, placed.len() as u32);
        let outputs = self.outputs(layout.step)?;
        let step = Step::new(plan, listener, streams, outputs, Some(input)).with_command(COMMAND);
        let step = step.placed(&placed, launch);
        let outcome = progress::while_reading(&read, || step.run(&mut watch, &signals));
        let outcome = outcome.map_err(failed)?;
        // The step has closed its end of the pipe, so the sender ends.
        let sent = sender.join().unwrap_or_else(|_| Err(io::Error::other("it was not read")));
        match sent {
            // Nodes that stopped reading have said why.
            Err(error) if error.kind() != ErrorKind::BrokenPipe => {
                Err(wrong(format!("{source_name}: {}", reason(&error))))
            }
            _ => Ok(outcome.code == 0),
        }
    }

    fn launch(&self, listener: &StepListener) -> Result<StepLaunch, CommandError> {
        let endpoint = listener.endpoint().map_err(failed)?;
        // The node puts its own program here; one that does not know of it finds nothing to run.
        let argv = [format!("sluice-{}", OwnProgram::ReceiveFile.verb())];
        let existing = StepAllocation::Existing;
        let (launch, _) =
            launch(self.options, &argv, self.submitter, existing, endpoint, StepInput::All);
        Ok(StepLaunch {
            name: COMMAND.name().to_owned(),
            receives_file: true,
            // A script in a container finds the file where it was told to be.
            joins_script: true,
            ..launch
        })
    }

    fn create(&self, client: &mut Client, launch: &StepLaunch) -> Result<StepLayout, CommandError> {
        let wait_ms = CREATE_TIMEOUT.as_millis() as u64;
        let create = CreateStep { job: self.job, launch: launch.clone(), wait_ms };
        match ask(client, Call::CreateStep(Box::new(create)))? {
            Answer::Step(layout) => Ok(layout),
            other => Err(CommandError::unexpected(&other)),
        }
    }

    fn plan(&self, step: StepId, tasks: u32) -> Plan {
        Plan {
            job: self.job,
            name: format!("{}.{step}", self.job),
            tasks: Some(tasks),
            label: false,
            quiet: true,
            verbose: 0,
            terminal: false,
            // A node that refuses the file does not keep it from the others.
            kill_on_bad_exit: Some(false),
            disable_status: false,
            quit_on_interrupt: true,
            input_task: None,
            wait: Some(Duration::ZERO),
            prolog: None,
            het: None,
        }
    }

    fn outputs(&self, step: StepId) -> Result<Outputs, CommandError> {
        let names = FilenameFields {
            job_id: self.job.0,
            array: None,
            step: step.to_string(),
            user: String::new(),
            job_name: String::new(),
            work_dir: String::new(),
        };
        Outputs::new(Target::Own, Some(Target::Own), false, names).map_err(failed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(words: &[&str], job: Option<&str>) -> Result<CopyRequest, String> {
        let words: Vec<String> = words.iter().map(ToString::to_string).collect();
        let parsed = ::slurm::option::parse::parse(COMMAND, &words).expect("options");
        let variable = |name: &str| job.filter(|_| name == "SLURM_JOB_ID").map(str::to_owned);
        CopyRequest::read(&parsed, variable).map_err(|error| error.to_string())
    }

    #[test]
    fn a_copy_has_two_names_and_a_job() {
        let asked = read(&["-f", "-p", "a", "/tmp/b"], Some("7")).expect("good");
        assert_eq!((asked.job, asked.force, asked.preserve), (JobId(7), true, true));
        assert_eq!((asked.source.as_str(), asked.destination.as_str()), ("a", "/tmp/b"));
        let named = read(&["-j", "8", "--send-libs=no", "a", "b"], Some("7")).expect("good");
        assert_eq!((named.job, named.force, named.preserve), (JobId(8), false, false));
        let table: [(&[&str], Option<&str>, &str); 6] = [
            (&["a", "b"], None, "no job: call it inside of one, or name one with --jobid"),
            (&["a"], Some("7"), "1 file names given: expected SOURCE and DEST"),
            (&["a", "b", "c"], Some("7"), "3 file names given: expected SOURCE and DEST"),
            (&["a", ""], Some("7"), "a file name is empty: expected SOURCE and DEST"),
            (
                &["-j", "7.0", "a", "b"],
                None,
                "--jobid=7.0: expected the number of a job, all of whose nodes get the file",
            ),
            (
                &["--exclude=/lib", "a", "b"],
                Some("7"),
                "--exclude is not supported: libraries are not sent along; copy each of them",
            ),
        ];
        for (words, job, line) in table {
            assert_eq!(read(words, job), Err(format!("sbcast: error: {line}")), "{words:?}");
        }
    }

    #[test]
    fn a_destination_is_absolute_and_a_folder_keeps_the_name() {
        let table = [
            ("/tmp/b", "/tmp/b"),
            ("b", "/home/ada/b"),
            ("in/", "/home/ada/in/data"),
            ("/tmp/", "/tmp/data"),
        ];
        for (destination, path) in table {
            assert_eq!(place(destination, "some/data", "/home/ada"), path);
        }
        assert_eq!(place("b", "a", "/"), "/b");
    }

    #[test]
    fn the_step_has_a_task_on_each_node_and_no_resources_of_its_own() {
        let options = step_options(vec!["n1".into(), "n2".into()]);
        assert_eq!((options.ntasks, options.nodes), (Some(2), Some(Range::exactly(2))));
        assert!(options.step.overlap && options.step.no_gres);
    }
}
