//! One `srun` over several components of a het job: their steps run as one. No task starts before all can, and signals,
//! `-K` and `-W` apply to all.

use super::event_poll::{ReadyDescriptors, Source, earlier, tick};
use super::input::InputChunk;
use super::task_ends::worse;
use super::{Step, StepOutcome, Watch};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signalfd::SignalFd;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::{Duration, Instant};

/// One component's step.
pub struct HetStep {
    pub step: Step,
    pub watch: Watch,
    /// Its input is `srun`'s own standard input.
    pub shares_input: bool,
}

pub struct HetStepRunner {
    parts: Vec<HetStep>,
    input: Option<File>,
    /// The tasks were started, or never will be.
    gone: bool,
    called_off: bool,
    /// `-K` and `-W` of the first component.
    kill_on_bad_exit: Option<bool>,
    wait: Option<Duration>,
    wait_asked: Option<Receiver<Duration>>,
    failed: bool,
    first_end: Option<Instant>,
}

impl HetStepRunner {
    /// `input` is read by the steps that share it.
    pub fn new(mut parts: Vec<HetStep>, input: Option<File>) -> Self {
        let first = parts.first().map(|part| &part.step.plan);
        let kill_on_bad_exit = first.and_then(|plan| plan.kill_on_bad_exit);
        let wait = first.and_then(|plan| plan.wait);
        for part in &mut parts {
            // `-K` and `-W` are applied here to all components instead of by each step.
            part.step.plan.kill_on_bad_exit = Some(false);
            part.step.plan.wait = Some(Duration::ZERO);
        }
        Self {
            parts,
            input,
            gone: false,
            called_off: false,
            kill_on_bad_exit,
            wait,
            wait_asked: None,
            failed: false,
            first_end: None,
        }
    }

    /// Runs until all steps are over. `None` if one of them could not start and so none was.
    pub fn run(mut self, signals: &SignalFd) -> io::Result<Option<StepOutcome>> {
        self.steps().try_for_each(Step::begin)?;
        while !self.called_off && self.parts.iter().any(|part| !part.step.is_over()) {
            self.share_input();
            let (signalled, ready) = self.await_any(signals)?;
            if signalled {
                while let Ok(Some(signal)) = signals.read_signal() {
                    self.steps().for_each(|step| step.on_signal(signal.ssi_signo as i32));
                }
            }
            for (part, ready) in self.parts.iter_mut().zip(ready) {
                if !part.step.is_over() {
                    part.step.handle(ready, &mut part.watch)?;
                }
            }
            self.pass_input();
            self.start_tasks()?;
            self.on_failure();
            self.on_first_end()?;
        }
        if self.called_off {
            return Ok(None);
        }
        let mut whole =
            StepOutcome { code: 0, exit: Default::default(), job_ended: false, is_refused: false };
        for (at, part) in self.parts.into_iter().enumerate() {
            let outcome = part.step.finish()?;
            whole.code = whole.code.max(outcome.code);
            whole.exit = worse(whole.exit, outcome.exit);
            // The other components end with the first.
            whole.job_ended |= at == 0 && outcome.job_ended;
        }
        Ok(Some(whole))
    }

    fn steps(&mut self) -> impl Iterator<Item = &mut Step> {
        self.parts.iter_mut().map(|part| &mut part.step)
    }

    fn await_any(&self, signals: &SignalFd) -> io::Result<(bool, Vec<ReadyDescriptors>)> {
        let mut fds = vec![PollFd::new(signals.as_fd(), PollFlags::POLLIN)];
        let mut sources: Vec<Vec<Source>> = Vec::with_capacity(self.parts.len());
        let mut timeout = if self.wait_asked.is_some() || self.terminate_at().is_some() {
            tick()
        } else {
            PollTimeout::NONE
        };
        for part in &self.parts {
            let over = part.step.is_over();
            let list = if over { Vec::new() } else { part.step.sources(&part.watch) };
            let (own, descriptors): (Vec<_>, Vec<_>) = list.into_iter().unzip();
            sources.push(own);
            fds.extend(descriptors);
            timeout = if over { timeout } else { earlier(timeout, part.step.poll_timeout()) };
        }
        let nothing = || self.parts.iter().map(|_| ReadyDescriptors::default()).collect();
        match poll(&mut fds, timeout) {
            Ok(_) => {}
            Err(Errno::EINTR) => return Ok((false, nothing())),
            Err(errno) => return Err(errno.into()),
        }
        let mut found = fds[1..].iter();
        let ready = sources
            .into_iter()
            .map(|own| ReadyDescriptors::of(own.into_iter().zip(found.by_ref())));
        Ok((fds[0].any().unwrap_or(false), ready.collect()))
    }

    /// One step reads for all that share the input, and no more than each of them takes.
    fn share_input(&mut self) {
        let shares = |part: &HetStep| part.shares_input && !part.step.is_over();
        // A step that is over hands the input on.
        for part in self.parts.iter_mut().filter(|part| part.shares_input && part.step.is_over()) {
            self.input = self.input.take().or_else(|| part.step.input.take());
        }
        let reads = |part: &HetStep| shares(part) && part.step.input.is_some();
        let reader = self.parts.iter().position(reads);
        let Some(reader) = reader.or_else(|| self.parts.iter().position(shares)) else { return };
        let capacity =
            |part: &HetStep| if part.step.takes_input() { part.step.input_capacity() } else { 0 };
        let others = self.parts.iter().enumerate().filter(|(at, _)| *at != reader);
        let capacities = others.filter(|(_, part)| shares(part)).map(|(_, part)| capacity(part));
        let bound = capacities.min().unwrap_or(usize::MAX);
        let step = &mut self.parts[reader].step;
        step.input_bound = Some(bound);
        step.input = step.input.take().or_else(|| self.input.take());
    }

    fn pass_input(&mut self) {
        let read: Vec<(usize, Vec<InputChunk>)> =
            self.steps().map(|step| std::mem::take(&mut step.input_passed)).enumerate().collect();
        for (from, pieces) in read {
            let others = self.parts.iter_mut().enumerate().filter(|(at, _)| *at != from);
            for (_, part) in others.filter(|(_, part)| part.shares_input) {
                pieces.iter().for_each(|piece| part.step.give_input(piece));
            }
        }
    }

    /// Starts the tasks once every component can, or none if one cannot.
    fn start_tasks(&mut self) -> io::Result<()> {
        if self.gone {
            return Ok(());
        }
        if self.parts.iter().any(|part| part.step.cannot_begin()) {
            (self.gone, self.called_off) = (true, true);
        } else if self.parts.iter().all(|part| part.step.can_begin()) {
            self.gone = true;
            self.steps().for_each(|step| step.held = false);
            self.steps().try_for_each(Step::start_tasks)?;
        }
        Ok(())
    }

    fn all_ended(&self) -> bool {
        self.parts.iter().all(|part| part.step.all_ended())
    }

    /// `-K`: the first task that fails ends all components.
    fn on_failure(&mut self) {
        let failed = self.parts.iter().any(|part| part.step.ends.code() != 0);
        if !failed || self.failed || self.all_ended() {
            return;
        }
        self.failed = true;
        let asked = |part: &HetStep| part.step.streams.kill_on_bad_exit();
        let kills = self.kill_on_bad_exit.or_else(|| self.parts.first().map(asked));
        if kills == Some(true) {
            self.steps().for_each(Step::report_task_ends);
            self.steps().for_each(Step::terminate_rest);
        }
    }

    /// `-W`: how long tasks may run after the first of all has ended.
    fn on_first_end(&mut self) -> io::Result<()> {
        if self.all_ended() {
            self.wait_asked = None;
            self.wait = Some(Duration::ZERO);
            return Ok(());
        }
        let ended = self.parts.iter().any(|part| part.step.ends.count() > 0);
        if ended && self.first_end.is_none() {
            self.first_end = Some(Instant::now());
            let first = self.parts.first().filter(|_| self.wait.is_none());
            self.wait_asked = first.map(|part| part.step.streams.ask_wait_time()).transpose()?;
        }
        match self.wait_asked.as_ref().map(Receiver::try_recv) {
            Some(Ok(wait)) => (self.wait, self.wait_asked) = (Some(wait), None),
            Some(Err(TryRecvError::Disconnected)) => self.wait_asked = None,
            Some(Err(TryRecvError::Empty)) | None => {}
        }
        if self.terminate_at().is_some_and(|at| Instant::now() >= at) {
            let waited = self.wait.replace(Duration::ZERO).unwrap_or_default();
            self.steps().take(1).for_each(|step| step.report_waited(waited));
            self.steps().for_each(|step| step.report_tasks());
            self.steps().for_each(Step::end_waited);
        }
        Ok(())
    }

    fn terminate_at(&self) -> Option<Instant> {
        let wait = self.wait.filter(|wait| !wait.is_zero())?;
        self.first_end.map(|first| first + wait)
    }
}
