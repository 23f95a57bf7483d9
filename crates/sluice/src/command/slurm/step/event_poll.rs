//! One `poll` over everything that a step waits for.

use super::{Step, Watch, terminal};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signalfd::SignalFd;
use std::io;
use std::os::fd::AsFd;
use std::time::Instant;

/// How often deadlines are checked, if there are any.
const TICK_MS: u16 = 500;

/// What a descriptor belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Source {
    Watch,
    Streams,
    Listener,
    StartGate,
    Input,
    Link(usize),
}

/// The descriptors that `poll` reported.
#[derive(Default)]
pub(super) struct ReadyDescriptors {
    pub watch: bool,
    pub streams: bool,
    pub listener: bool,
    pub gate: bool,
    pub input: bool,
    /// The links by index, each with whether it is readable.
    pub links: Vec<(usize, bool)>,
}

impl ReadyDescriptors {
    pub fn of<'a>(found: impl Iterator<Item = (Source, &'a PollFd<'a>)>) -> Self {
        let mut ready = Self::default();
        for (source, fd) in found.filter(|(_, fd)| fd.any().unwrap_or(false)) {
            match source {
                Source::Watch => ready.watch = true,
                Source::Streams => ready.streams = true,
                Source::Listener => ready.listener = true,
                Source::StartGate => ready.gate = true,
                Source::Input => ready.input = true,
                Source::Link(index) => {
                    let readable = fd.revents().is_some_and(|r| r != PollFlags::POLLOUT);
                    ready.links.push((index, readable));
                }
            }
        }
        ready
    }
}

impl Step {
    /// Waits; returns whether signals have arrived, and what else is ready.
    pub(super) fn wait(
        &self,
        watch: &Watch,
        signals: &SignalFd,
    ) -> io::Result<(bool, ReadyDescriptors)> {
        let (sources, own): (Vec<_>, Vec<_>) = self.sources(watch).into_iter().unzip();
        let mut fds = vec![PollFd::new(signals.as_fd(), PollFlags::POLLIN)];
        fds.extend(own);
        match poll(&mut fds, earlier(self.poll_timeout(), until_watch(watch))) {
            Ok(_) => {}
            Err(Errno::EINTR) => return Ok((false, ReadyDescriptors::default())),
            Err(errno) => return Err(errno.into()),
        }
        let signalled = fds[0].any().unwrap_or(false);
        Ok((signalled, ReadyDescriptors::of(sources.into_iter().zip(&fds[1..]))))
    }

    pub(super) fn sources<'a>(&'a self, watch: &'a Watch) -> Vec<(Source, PollFd<'a>)> {
        let readable = |fd| PollFd::new(fd, PollFlags::POLLIN);
        let mut list = vec![(Source::Streams, readable(self.streams.as_fd()))];
        list.extend(watch.fd().map(|fd| (Source::Watch, readable(fd))));
        let listener = self.listener.as_ref().filter(|_| self.accepts());
        let listener = listener.and_then(|listener| listener.fd());
        list.extend(listener.map(|fd| (Source::Listener, readable(fd))));
        list.extend(self.gate.fd().map(|fd| (Source::StartGate, readable(fd))));
        let input = self.input.as_ref().filter(|_| self.reads_input());
        list.extend(input.map(|input| (Source::Input, readable(input.as_fd()))));
        for (index, (link, _)) in self.links.iter().enumerate() {
            let Some(fd) = link.fd() else { continue };
            let out = if link.has_to_send() { PollFlags::POLLOUT } else { PollFlags::empty() };
            list.push((Source::Link(index), PollFd::new(fd, PollFlags::POLLIN | out)));
        }
        list
    }

    fn reads_input(&self) -> bool {
        self.input.as_ref().is_some_and(|input| self.takes_input() && terminal::is_ours(input))
    }

    /// The timeout of the next `poll`.
    pub(super) fn poll_timeout(&self) -> PollTimeout {
        // No event tells that a terminal's foreground has become ours, so it is checked at each tick.
        let waits = self.input.is_some() && self.takes_input() && !self.reads_input();
        if waits { earlier(self.timeout(), tick()) } else { self.timeout() }
    }

    fn timeout(&self) -> PollTimeout {
        if let Some(at) = self.report_at {
            let left = at.saturating_duration_since(Instant::now()).as_millis();
            return PollTimeout::from(u16::try_from(left).unwrap_or(TICK_MS) + 1);
        }
        let deadlines = [self.give_up_at, self.terminate_at];
        let due = self.unauthenticated() > 0 || self.expects() || self.wait_asked.is_some();
        if due || deadlines.iter().any(Option::is_some) { tick() } else { PollTimeout::NONE }
    }
}

/// The time until deadlines are checked again.
pub(super) fn tick() -> PollTimeout {
    PollTimeout::from(TICK_MS)
}

/// The time until the watch is to begin; without end if it has.
fn until_watch(watch: &Watch) -> PollTimeout {
    let Some(left) = watch.begins_in() else { return PollTimeout::NONE };
    // Rounded up: a poll that ends before the time is up would be repeated without a pause.
    PollTimeout::from(u16::try_from(left.as_millis()).unwrap_or(TICK_MS) + 1)
}

pub(super) fn earlier(one: PollTimeout, other: PollTimeout) -> PollTimeout {
    if one.is_none() || !other.is_none() && other < one { other } else { one }
}
