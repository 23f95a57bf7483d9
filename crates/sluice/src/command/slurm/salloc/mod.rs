//! `salloc`: holds an allocation while a command or a shell runs.

mod prolog_wait;

use super::submit::caller::{self, ProcessSurroundings};
use super::submit::het_components;
use super::submit::job_watch::{self, JobEvent, Watch, Watched};
use super::submit::messages::{
    self, FAILURE, failure, print_error, print_line, unexpected, unreachable,
};
use super::submit::test_only::{check_clusters, tested};
use super::submit::wait_line;
use crate::client::{Client, ClientError, ServerLocation};
use ::slurm::environment::Environment;
use ::slurm::environment::het_job::set_components;
use ::slurm::option::input_variables::SECRETS_VARIABLE;
use ::slurm::option::invocation::{self, Invocation};
use ::slurm::option::{Command, JobOptions};
use ::slurm::request::{self, Submitter};
use ::slurm::words::{refusal, stage};
use model::id::JobId;
use model::os_text;
use model::reason::Reason;
use model::run::{ExitStatus, Outcome};
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, kill, sigaction};
use nix::unistd::Pid;
use std::io::{self, IsTerminal, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ExitCode};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::time::{Duration, Instant};
use wire::client::{Answer, Call, Cancel};
use wire::view::JobView;

const COMMAND: Command = Command::Salloc;
/// The default name of the second and later components.
const NAME: &str = "interactive";

/// How often signals are checked for.
const SIGNAL_CHECK_INTERVAL: Duration = Duration::from_millis(100);
/// The bell rings after a wait of this length.
const BELL_AFTER: Duration = Duration::from_secs(10);

/// The last signal that was received, or 0.
static SIGNALLED: AtomicI32 = AtomicI32::new(0);

pub fn run(args: &[String]) -> ExitCode {
    let here = ProcessSurroundings::default();
    let read = match invocation::launch(COMMAND, args, &caller::caller(&here)) {
        Ok(Invocation::Question(question)) => return messages::answer(COMMAND, question),
        Ok(Invocation::Submission(read)) => read,
        Err(error) => return messages::refuse_option(COMMAND, &error),
    };
    // The command stands after the last component.
    let [(options, argv), others @ ..] = read.components.as_slice() else { return failure() };
    let argv = others.last().map_or(argv, |(_, argv)| argv);
    let submitter = caller::submitter(COMMAND, args, options);
    read.components.iter().for_each(|(options, _)| messages::print_defined(COMMAND, options));
    messages::print_propagated(COMMAND, options, &submitter);
    let call = AllocationRequest { options, others, argv, submitter: &submitter };
    match call.run() {
        Ok(code) => code,
        Err(AllocError::Client(error)) => unreachable(COMMAND, &error),
        Err(AllocError::Io(error)) => {
            print_error(COMMAND, &error.to_string());
            failure()
        }
    }
}

#[derive(Debug, thiserror::Error)]
enum AllocError {
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error(transparent)]
    Io(#[from] io::Error),
}

struct AllocationRequest<'a> {
    options: &'a JobOptions,
    /// The second and later components of a het job.
    others: &'a [(JobOptions, Vec<String>)],
    argv: &'a [String],
    submitter: &'a Submitter,
}

impl AllocationRequest<'_> {
    fn run(&self) -> Result<ExitCode, AllocError> {
        let mut client = Client::find()?;
        if let Some(code) = check_clusters(COMMAND, &mut client, self.options)? {
            return Ok(code);
        }
        let drafted = request::allocation(self.options, self.argv, self.submitter);
        let drafted = drafted.and_then(|mut draft| {
            let others = self.others.iter().map(|(options, _)| (options, NAME));
            draft.add_components(others, self.submitter)?;
            Ok(draft)
        });
        let draft = match drafted {
            Ok(draft) => draft,
            Err(error) => return Ok(messages::refuse_option(COMMAND, &error)),
        };
        draft.notes.iter().for_each(|line| self.print_unless_quiet(line));
        let submission = Box::new(draft.submission);
        if self.options.test_only {
            return Ok(tested(COMMAND, &mut client, submission)?);
        }
        catch_signals()?;
        let asked = Instant::now();
        let job = match client.submit(submission)? {
            Answer::Submitted { job, beyond_partition, beyond_time, unknown_names, .. } => {
                let quiet = self.options.quiet;
                let beyond = (beyond_partition.as_ref(), beyond_time.as_ref());
                messages::note_beyond_partition(COMMAND, quiet, beyond.0, beyond.1);
                messages::note_unknown_names(COMMAND, quiet, &unknown_names);
                job
            }
            Answer::Refused(why) => {
                return Ok(messages::refused_submit(COMMAND, &mut client, &why));
            }
            other => return Ok(unexpected(COMMAND, &other)),
        };
        if !self.options.no_shell {
            job_watch::hold(client.location().clone(), job, Duration::ZERO)?;
        }
        let location = client.location().clone();
        let explains = wait_line::is_wanted(self.options.quiet);
        let mut watch = Watch::begin(Watched { location, job, from_start: true, explains })?;
        let Some(view) = self.await_grant(&mut client, job, &mut watch)? else {
            return Ok(failure());
        };
        self.print_unless_quiet(&format!("Granted job allocation {job}"));
        self.ring_bell(asked.elapsed());
        let is_ready = view.reason != Reason::Prolog;
        if let Some(granted) = view.allocation.as_ref().filter(|_| is_ready) {
            self.print_if_verbose(&stage::ready(granted));
        }
        if self.options.no_shell {
            return Ok(ExitCode::SUCCESS);
        }
        if !is_ready && !self.await_prolog(&mut client, job, &view, &mut watch)? {
            return Ok(failure());
        }
        self.run_command(&mut client, job, &view, watch)
    }

    /// Rings the terminal's bell if asked for, or after a long wait.
    fn ring_bell(&self, waited: Duration) {
        let wanted = self.options.bell.unwrap_or(waited > BELL_AFTER);
        if wanted && io::stdout().is_terminal() {
            print!("\x07");
            // The terminal may be gone.
            let _ = io::stdout().flush();
        }
    }

    fn print_unless_quiet(&self, line: &str) {
        if !self.options.quiet {
            print_line(COMMAND, line);
        }
    }

    fn print_if_verbose(&self, line: &str) {
        if self.options.verbose > 0 {
            print_line(COMMAND, line);
        }
    }

    /// Waits for the start. `None` if there will be none, which has been reported.
    fn await_grant(
        &self,
        client: &mut Client,
        job: JobId,
        watch: &mut Watch,
    ) -> Result<Option<Box<JobView>>, ClientError> {
        let mut queued = false;
        loop {
            if SIGNALLED.load(Ordering::Relaxed) != 0 {
                cancel_job(client, job)?;
                self.print_unless_quiet(&format!("Job allocation {job} has been revoked."));
                self.print_unless_quiet("Job aborted due to signal");
                return Ok(None);
            }
            match watch.wait_for(SIGNAL_CHECK_INTERVAL) {
                None | Some(JobEvent::Ready) => {}
                Some(JobEvent::Queued) => {
                    queued = true;
                    self.print_unless_quiet(&format!("Pending job allocation {job}"));
                    self.print_unless_quiet(&format!("job {job} queued and waiting for resources"));
                }
                Some(JobEvent::Waits(wait)) => wait_line::show(COMMAND, job, &wait),
                Some(JobEvent::Started(view)) => {
                    wait_line::clear();
                    if queued {
                        self.print_unless_quiet(&format!("job {job} has been allocated resources"));
                    }
                    return Ok(Some(view));
                }
                Some(JobEvent::Ended { outcome: Some(Outcome::NoCapacity), .. }) => {
                    let text = "Requested nodes are busy";
                    print_error(COMMAND, &format!("{}: {text}", COMMAND.refusal_prefix()));
                    return Ok(None);
                }
                Some(JobEvent::Ended { .. }) => {
                    self.print_unless_quiet("Job has been cancelled");
                    self.print_unless_quiet(&format!("Job allocation {job} has been revoked."));
                    let text = "Job/step already completing or completed";
                    print_error(COMMAND, &format!("{}: {text}", COMMAND.refusal_prefix()));
                    return Ok(None);
                }
                Some(JobEvent::Refused(why)) => {
                    print_error(COMMAND, &refusal::text(&why));
                    return Ok(None);
                }
                Some(JobEvent::Unreachable(error)) => return Err(error),
            }
        }
    }

    fn run_command(
        &self,
        client: &mut Client,
        job: JobId,
        view: &JobView,
        watch: Watch,
    ) -> Result<ExitCode, AllocError> {
        let shell = || vec![login_shell()];
        let argv = if self.argv.is_empty() { shell() } else { self.argv.to_vec() };
        let variables = self.variables(client, job, view)?;
        let child = std::process::Command::new(os_text::to_os(&argv[0]))
            .args(argv[1..].iter().map(|word| os_text::to_os(word)))
            .envs(variables.iter().map(|(name, value)| (name, os_text::to_os(value))))
            .current_dir(os_text::to_os(&view.spec.launch.work_dir))
            .spawn();
        let (status, revoked) = match child {
            Ok(child) => self.wait(client.location().clone(), child, job, watch)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let text = format!("_fork_command: Unable to find command \"{}\"", argv[0]);
                print_error(COMMAND, &text);
                (ExitStatus { code: i32::from(FAILURE), signal: 0 }, false)
            }
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                print_error(COMMAND, &format!("Unable to find command \"{}\"", argv[0]));
                (ExitStatus { code: i32::from(FAILURE), signal: 0 }, false)
            }
            Err(error) => {
                print_error(COMMAND, &format!("_fork_command: Unable to run {}: {error}", argv[0]));
                (ExitStatus { code: i32::from(FAILURE), signal: 0 }, false)
            }
        };
        if !revoked {
            self.print_unless_quiet(&format!("Relinquishing job allocation {job}"));
            // If it is refused, the job has ended by itself. If it is lost, the hold on the job is lost too, which ends it.
            let _ = client.call(Call::Relinquish { job, exit: status });
        }
        Ok(ExitCode::from(exit_code(status)))
    }

    /// Waits for the command. Also returns whether its allocation ended before it.
    fn wait(
        &self,
        location: ServerLocation,
        mut child: Child,
        job: JobId,
        watch: Watch,
    ) -> io::Result<(ExitStatus, bool)> {
        let quiet = self.options.quiet;
        std::thread::Builder::new()
            .name("signals".into())
            .spawn(move || handle_signals(location, job, quiet))?;
        let revoked = Arc::new(AtomicBool::new(false));
        let pid = Pid::from_raw(child.id() as i32);
        let (seen, signal) = (Arc::clone(&revoked), self.options.kill_command);
        std::thread::Builder::new()
            .name("revoked".into())
            .spawn(move || report_revocation(watch, job, &seen, pid, signal, quiet))?;
        let status = child.wait()?;
        let exit =
            ExitStatus { code: status.code().unwrap_or(0), signal: status.signal().unwrap_or(0) };
        // From here on the allocation ends because the command has, which is not reported.
        Ok((exit, revoked.swap(true, Ordering::AcqRel)))
    }

    fn variables(
        &self,
        client: &mut Client,
        job: JobId,
        view: &JobView,
    ) -> Result<Environment, ClientError> {
        let cluster = match client.call(Call::Cluster)? {
            Answer::Cluster(cluster) => cluster.name,
            _ => String::new(),
        };
        let mut env = het_components::variables(&cluster, view, &self.submitter.work_dir);
        if view.het.is_some() {
            let of_each = het_components::ask(client, job, &self.submitter.work_dir)?;
            let of_each = of_each.into_iter().map(|component| component.variables);
            set_components(&mut env, &of_each.collect::<Vec<_>>());
        }
        env.set("SLURM_SUBMIT_DIR", &self.submitter.work_dir);
        env.set("SLURM_SUBMIT_HOST", &self.submitter.host);
        request::set_step_variables(&mut env, self.options);
        if !self.options.secrets.is_empty() {
            let secrets = self.options.secrets.iter().map(ToString::to_string);
            env.set(SECRETS_VARIABLE, secrets.collect::<Vec<_>>().join(","));
        }
        Ok(env)
    }
}

/// The shell of the user's account, whatever the environment says.
fn login_shell() -> String {
    let user = nix::unistd::User::from_uid(nix::unistd::Uid::current()).ok().flatten();
    let shell = user.map(|user| user.shell.to_string_lossy().into_owned());
    shell.filter(|shell| !shell.is_empty()).unwrap_or_else(|| "/bin/sh".to_owned())
}

/// Handles signals while the command runs: a signal to this process cancels the allocation and not the command. When the
/// terminal hangs up, `salloc` ends too.
fn handle_signals(location: ServerLocation, job: JobId, quiet: bool) {
    let mut client = Client::at(location);
    loop {
        std::thread::sleep(SIGNAL_CHECK_INTERVAL);
        match SIGNALLED.swap(0, Ordering::Relaxed) {
            0 => {}
            libc::SIGHUP => {
                if !quiet {
                    print_line(COMMAND, &format!("Relinquishing job allocation {job}"));
                }
                // If it fails, the hold ends with this process, and the allocation with it.
                let exit = ExitStatus { code: i32::from(FAILURE), signal: 0 };
                let _ = client.call(Call::Relinquish { job, exit });
                std::process::exit(i32::from(FAILURE));
            }
            // Keys of a terminal signal the command as well, and are meant for it.
            libc::SIGINT | libc::SIGQUIT if io::stdin().is_terminal() => {}
            // `report_revocation` reports the end.
            _ => drop(cancel_job(&mut client, job)),
        }
    }
}

/// Reports an allocation that ends before the command, and signals the command if `-K` asked for it.
fn report_revocation(
    mut watch: Watch,
    job: JobId,
    seen: &AtomicBool,
    command: Pid,
    signal: Option<i32>,
    quiet: bool,
) {
    while let Some(event) = watch.wait() {
        if let JobEvent::Ended { .. } = event {
            if seen.swap(true, Ordering::AcqRel) {
                return;
            }
            if !quiet {
                print_line(COMMAND, &format!("Job allocation {job} has been revoked."));
            }
            if let Some(signal) = signal.and_then(|number| Signal::try_from(number).ok()) {
                // The command may have ended in the meantime.
                let _ = kill(command, signal);
            }
        }
    }
}

fn cancel_job(client: &mut Client, job: JobId) -> Result<(), ClientError> {
    let filter = model::change::JobFilter {
        jobs: vec![model::change::JobRef::whole(job)],
        ..Default::default()
    };
    let cancel = Cancel { filter, step: None, signal: None, batch_only: false, full: false };
    client.call(Call::Cancel(cancel)).map(drop)
}

/// Notes signals instead of dying of them. A handler is used because the command would inherit ignored signals.
fn catch_signals() -> io::Result<()> {
    extern "C" fn note(signal: libc::c_int) {
        SIGNALLED.store(signal, Ordering::Relaxed);
    }
    let action = SigAction::new(SigHandler::Handler(note), SaFlags::SA_RESTART, SigSet::empty());
    let handled = [
        Signal::SIGINT,
        Signal::SIGQUIT,
        Signal::SIGTERM,
        Signal::SIGHUP,
        Signal::SIGUSR1,
        Signal::SIGUSR2,
    ];
    for signal in handled {
        // SAFETY: the handler only stores to an atomic, which is allowed at any moment.
        unsafe { sigaction(signal, &action) }?;
    }
    Ok(())
}

/// The command's exit code, or 128 plus the signal as in a shell. Slurm 22.05 exits with 0 if the command was killed; this
/// is not followed, because no script can depend on a failure that does not show.
fn exit_code(status: ExitStatus) -> u8 {
    match status.signal {
        0 => status.code as u8,
        signal => 128_u8.saturating_add(signal as u8),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn salloc_exits_with_the_commands_code() {
        for (code_, signal, expected) in [(0, 0, 0), (4, 0, 4), (0, 9, 137)] {
            assert_eq!(exit_code(ExitStatus { code: code_, signal }), expected);
        }
    }
}
