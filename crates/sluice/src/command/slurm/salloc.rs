//! `salloc`: an allocation, held while a command or a shell runs beside it.

mod ready;

use super::caller::{
    self, FAILURE, Here, complain, failure, refused, say, unexpected, unreachable,
};
use super::components;
use super::sbatch::{check_clusters, tested};
use super::watch::{self, Notice, Watch};
use crate::connect::{Client, ClientError, Place};
use ::slurm::environment::Environment;
use ::slurm::environment::component::set_components;
use ::slurm::option::invocation::{self, Invocation};
use ::slurm::option::{Command, JobOptions};
use ::slurm::request::{self, Submitter};
use ::slurm::words::refusal;
use model::id::JobId;
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
/// What a further component is called that says nothing.
const NAME: &str = "interactive";

/// How often an interrupt is looked for while the allocation is waited for.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Whoever waited longer than this may be looking elsewhere.
const BELL_AFTER: Duration = Duration::from_secs(10);

/// The last signal that came, or 0.
static SIGNALLED: AtomicI32 = AtomicI32::new(0);

pub fn run(args: &[String]) -> ExitCode {
    let here = Here::default();
    let read = match invocation::launch(COMMAND, args, &caller::caller(&here)) {
        Ok(Invocation::Question(question)) => return caller::answer(COMMAND, question),
        Ok(Invocation::Submission(read)) => read,
        Err(error) => return caller::refuse_option(COMMAND, &error),
    };
    // What runs beside the allocation stands after the last component.
    let [(options, argv), others @ ..] = read.components.as_slice() else { return failure() };
    let argv = others.last().map_or(argv, |(_, argv)| argv);
    let submitter = caller::submitter(COMMAND, args, options);
    let call = Invoked { options, others, argv, submitter: &submitter };
    match call.go() {
        Ok(code) => code,
        Err(AllocError::Client(error)) => unreachable(COMMAND, &error),
        Err(AllocError::Io(error)) => {
            complain(COMMAND, &error.to_string());
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

struct Invoked<'a> {
    options: &'a JobOptions,
    /// Further components of a heterogeneous job.
    others: &'a [(JobOptions, Vec<String>)],
    argv: &'a [String],
    submitter: &'a Submitter,
}

impl Invoked<'_> {
    fn go(&self) -> Result<ExitCode, AllocError> {
        let mut client = Client::find()?;
        if let Some(code) = check_clusters(COMMAND, &mut client, self.options)? {
            return Ok(code);
        }
        let drafted = request::allocation(self.options, self.argv, self.submitter);
        let drafted = drafted.and_then(|mut draft| {
            let others = self.others.iter().map(|(options, _)| (options, NAME));
            draft.join(others, self.submitter)?;
            Ok(draft)
        });
        let draft = match drafted {
            Ok(draft) => draft,
            Err(error) => return Ok(caller::refuse_option(COMMAND, &error)),
        };
        draft.notes.iter().for_each(|line| self.tell(line));
        let submission = Box::new(draft.submission);
        if self.options.test_only {
            return Ok(tested(COMMAND, client.call(Call::TestSubmit(submission))?));
        }
        catch_signals()?;
        let asked = Instant::now();
        let job = match client.call(Call::Submit(submission))? {
            Answer::Submitted { job, .. } => job,
            Answer::Refused(why) => return Ok(refused(COMMAND, &why)),
            other => return Ok(unexpected(COMMAND, &other)),
        };
        if !self.options.no_shell {
            watch::hold(client.place().clone(), job)?;
        }
        let mut watch = Watch::begin(client.place().clone(), job, true)?;
        let Some(view) = self.granted(&mut client, job, &mut watch)? else {
            return Ok(failure());
        };
        self.tell(&format!("Granted job allocation {job}"));
        self.ring(asked.elapsed());
        if self.options.no_shell {
            return Ok(ExitCode::SUCCESS);
        }
        if view.reason == Reason::Prolog && !self.made_ready(&mut client, job, &view, &mut watch)? {
            return Ok(failure());
        }
        self.run_command(&mut client, job, &view, watch)
    }

    /// The terminal's bell: where it was asked for, or after a long wait.
    fn ring(&self, waited: Duration) {
        let wanted = self.options.bell.unwrap_or(waited > BELL_AFTER);
        if wanted && io::stdout().is_terminal() {
            print!("\x07");
            // A terminal that is gone hears nothing.
            let _ = io::stdout().flush();
        }
    }

    fn tell(&self, line: &str) {
        if !self.options.quiet {
            say(COMMAND, line);
        }
    }

    /// Waits for the start; none if there will be none, which has then been said.
    fn granted(
        &self,
        client: &mut Client,
        job: JobId,
        watch: &mut Watch,
    ) -> Result<Option<Box<JobView>>, ClientError> {
        let mut queued = false;
        loop {
            if SIGNALLED.load(Ordering::Relaxed) != 0 {
                give_up(client, job)?;
                self.tell(&format!("Job allocation {job} has been revoked."));
                self.tell("Job aborted due to signal");
                return Ok(None);
            }
            match watch.wait_for(LOOK_EVERY) {
                None | Some(Notice::Ready) => {}
                Some(Notice::Queued) => {
                    queued = true;
                    self.tell(&format!("Pending job allocation {job}"));
                    self.tell(&format!("job {job} queued and waiting for resources"));
                }
                Some(Notice::Started(view)) => {
                    if queued {
                        self.tell(&format!("job {job} has been allocated resources"));
                    }
                    return Ok(Some(view));
                }
                Some(Notice::Ended { outcome: Some(Outcome::NoCapacity), .. }) => {
                    let text = "Requested nodes are busy";
                    complain(COMMAND, &format!("{}: {text}", COMMAND.refusal_prefix()));
                    return Ok(None);
                }
                Some(Notice::Ended { .. }) => {
                    self.tell("Job has been cancelled");
                    self.tell(&format!("Job allocation {job} has been revoked."));
                    let text = "Job/step already completing or completed";
                    complain(COMMAND, &format!("{}: {text}", COMMAND.refusal_prefix()));
                    return Ok(None);
                }
                Some(Notice::Refused(why)) => {
                    complain(COMMAND, &refusal::text(&why));
                    return Ok(None);
                }
                Some(Notice::Unreachable(error)) => return Err(error),
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
        let child = std::process::Command::new(&argv[0])
            .args(&argv[1..])
            .envs(variables.iter())
            .current_dir(&*view.spec.launch.work_dir)
            .spawn();
        let (status, revoked) = match child {
            Ok(child) => self.wait(client.place().clone(), child, job, watch)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let text = format!("_fork_command: Unable to find command \"{}\"", argv[0]);
                complain(COMMAND, &text);
                (ExitStatus { code: i32::from(FAILURE), signal: 0 }, false)
            }
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                complain(COMMAND, &format!("Unable to find command \"{}\"", argv[0]));
                (ExitStatus { code: i32::from(FAILURE), signal: 0 }, false)
            }
            Err(error) => {
                complain(COMMAND, &format!("_fork_command: Unable to run {}: {error}", argv[0]));
                (ExitStatus { code: i32::from(FAILURE), signal: 0 }, false)
            }
        };
        if !revoked {
            self.tell(&format!("Relinquishing job allocation {job}"));
            // Were it refused, the job is at its end by itself; were it lost, so is the hold.
            let _ = client.call(Call::Relinquish { job, exit: status });
        }
        Ok(ExitCode::from(code(status)))
    }

    /// Waits for the command; gives also whether its allocation ended before it.
    fn wait(
        &self,
        place: Place,
        mut child: Child,
        job: JobId,
        watch: Watch,
    ) -> io::Result<(ExitStatus, bool)> {
        let quiet = self.options.quiet;
        std::thread::Builder::new()
            .name("signals".into())
            .spawn(move || heed_signals(place, job, quiet))?;
        let revoked = Arc::new(AtomicBool::new(false));
        let pid = Pid::from_raw(child.id() as i32);
        let (seen, signal) = (Arc::clone(&revoked), self.options.kill_command);
        std::thread::Builder::new()
            .name("revoked".into())
            .spawn(move || tell_revoked(watch, job, &seen, pid, signal))?;
        let status = child.wait()?;
        let exit =
            ExitStatus { code: status.code().unwrap_or(0), signal: status.signal().unwrap_or(0) };
        // From here on its end is of our own making, and nothing to be told of.
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
        let mut env = components::variables(&cluster, view, &self.submitter.work_dir);
        if view.het.is_some() {
            let of_each = components::ask(client, job, &self.submitter.work_dir)?;
            let of_each = of_each.into_iter().map(|component| component.variables);
            set_components(&mut env, &of_each.collect::<Vec<_>>());
        }
        env.set("SLURM_SUBMIT_DIR", &self.submitter.work_dir);
        env.set("SLURM_SUBMIT_HOST", &self.submitter.host);
        Ok(env)
    }
}

/// The one of the user's entry, whatever the environment says.
fn login_shell() -> String {
    let user = nix::unistd::User::from_uid(nix::unistd::Uid::current()).ok().flatten();
    let shell = user.map(|user| user.shell.to_string_lossy().into_owned());
    shell.filter(|shell| !shell.is_empty()).unwrap_or_else(|| "/bin/sh".to_owned())
}

/// While the command runs: a signal to this process lets go of the allocation, and not of the command. When the
/// terminal hangs up there is nobody left to wait for either.
fn heed_signals(place: Place, job: JobId, quiet: bool) {
    let Ok(mut client) = Client::at(place) else { return };
    loop {
        std::thread::sleep(LOOK_EVERY);
        match SIGNALLED.swap(0, Ordering::Relaxed) {
            0 => {}
            libc::SIGHUP => {
                if !quiet {
                    say(COMMAND, &format!("Relinquishing job allocation {job}"));
                }
                // The hold ends with this process, and the allocation with it.
                let exit = ExitStatus { code: i32::from(FAILURE), signal: 0 };
                let _ = client.call(Call::Relinquish { job, exit });
                std::process::exit(i32::from(FAILURE));
            }
            // A terminal's keys go to the command as well, and it is the command that they are for.
            libc::SIGINT | libc::SIGQUIT if io::stdin().is_terminal() => {}
            // That it has ended is then said by the watch.
            _ => drop(give_up(&mut client, job)),
        }
    }
}

/// Says when the allocation ends before the command, and tells the command if that was asked for.
fn tell_revoked(
    mut watch: Watch,
    job: JobId,
    seen: &AtomicBool,
    command: Pid,
    signal: Option<i32>,
) {
    while let Some(notice) = watch.wait() {
        if let Notice::Ended { .. } = notice {
            if seen.swap(true, Ordering::AcqRel) {
                return;
            }
            say(COMMAND, &format!("Job allocation {job} has been revoked."));
            if let Some(signal) = signal.and_then(|number| Signal::try_from(number).ok()) {
                // It may have ended by itself in the meantime.
                let _ = kill(command, signal);
            }
        }
    }
}

fn give_up(client: &mut Client, job: JobId) -> Result<(), ClientError> {
    let filter = model::change::JobFilter {
        jobs: vec![model::change::JobRef::whole(job)],
        ..Default::default()
    };
    let cancel = Cancel { filter, step: None, signal: None, batch_only: false, full: false };
    client.call(Call::Cancel(cancel)).map(drop)
}

/// An interrupt ends the waiting, and later goes to the command alone. A handler, unlike ignoring, is not inherited
/// by the command.
fn catch_signals() -> io::Result<()> {
    extern "C" fn note(signal: libc::c_int) {
        SIGNALLED.store(signal, Ordering::Relaxed);
    }
    let action = SigAction::new(SigHandler::Handler(note), SaFlags::SA_RESTART, SigSet::empty());
    let heeded = [
        Signal::SIGINT,
        Signal::SIGQUIT,
        Signal::SIGTERM,
        Signal::SIGHUP,
        Signal::SIGUSR1,
        Signal::SIGUSR2,
    ];
    for signal in heeded {
        // SAFETY: the handler only stores to an atomic, which is allowed at any moment.
        unsafe { sigaction(signal, &action) }?;
    }
    Ok(())
}

/// The command's own code; as a shell would say it for a signal. Slurm 22.05 ends with 0 where the command was
/// killed: nothing can depend on a failure that does not show, so that is not followed.
fn code(status: ExitStatus) -> u8 {
    match status.signal {
        0 => status.code as u8,
        signal => 128_u8.saturating_add(signal as u8),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_code_is_the_commands() {
        for (code_, signal, expected) in [(0, 0, 0), (4, 0, 4), (0, 9, 137)] {
            assert_eq!(code(ExitStatus { code: code_, signal }), expected);
        }
    }
}
