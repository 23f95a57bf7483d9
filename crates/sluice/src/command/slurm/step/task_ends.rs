//! How the tasks of a step ended: the lines that `srun` prints, and the code it exits with.

use super::link::Peer;
use ::slurm::option::Command;
use model::array::IndexSet;
use model::run::ExitStatus;
use std::ffi::CStr;

/// The code for a task that was killed for its memory, was lost, or could not be started.
const FAILURE: u8 = 1;

/// How one task ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TaskEnd {
    Exited(ExitStatus),
    OutOfMemory,
    /// It was not started, for this reason.
    NotStarted(String),
    /// Its node does not answer any more.
    Lost,
}

impl TaskEnd {
    pub fn code(&self) -> u8 {
        match self {
            Self::Exited(ExitStatus { signal, .. }) if *signal > 0 => {
                128_u8.saturating_add(*signal as u8)
            }
            Self::Exited(ExitStatus { code, .. }) => *code as u8,
            Self::OutOfMemory | Self::NotStarted(_) | Self::Lost => FAILURE,
        }
    }

    /// The text that `sattach` prints: it reports exit codes and no signals.
    fn attached_words(&self) -> Option<String> {
        match self {
            Self::Exited(ExitStatus { signal: 1.., .. }) => None,
            Self::Exited(ExitStatus { code: 0, .. }) => None,
            Self::Exited(ExitStatus { code, .. }) => Some(format!("exited with exit code {code}")),
            other => other.words(),
        }
    }

    /// The text that `srun` prints; `None` for success.
    fn words(&self) -> Option<String> {
        match self {
            Self::Exited(ExitStatus { signal, .. }) if *signal > 0 => Some(signal_words(*signal)),
            Self::Exited(ExitStatus { code: 0, .. }) => None,
            Self::Exited(ExitStatus { code, .. }) => Some(format!("Exited with exit code {code}")),
            Self::OutOfMemory => Some("Out Of Memory".to_owned()),
            Self::NotStarted(why) => Some(format!("launch failed: {why}")),
            Self::Lost => Some("the node's connection is lost".to_owned()),
        }
    }
}

fn signal_words(signal: i32) -> String {
    // SAFETY: strsignal gives a string that is static or valid until this thread's next call, and it is copied at once.
    let text = unsafe {
        let words = libc::strsignal(signal);
        (!words.is_null()).then(|| CStr::from_ptr(words).to_string_lossy().into_owned())
    };
    text.unwrap_or_else(|| format!("Unknown signal {signal}"))
}

/// The worse of two exits: a signal is worse than any code. The first if they are equal.
pub fn worse(one: ExitStatus, other: ExitStatus) -> ExitStatus {
    let rank = |status: ExitStatus| (status.signal, status.code);
    if rank(other) > rank(one) { other } else { one }
}

/// `task 3`, `tasks 0-2`.
fn named(tasks: &IndexSet) -> String {
    let noun = if tasks.len() == 1 { "task" } else { "tasks" };
    format!("{noun} {}", tasks.range_text())
}

/// The ends of tasks so far.
#[derive(Debug, Default)]
pub struct TaskEnds {
    ended: IndexSet,
    code: u8,
    exit_code: u8,
    /// The worst end, which is recorded for the step.
    worst: ExitStatus,
    /// Ends on one node within a short time, not reported yet.
    unreported: Vec<(String, TaskEnd, IndexSet)>,
}

impl TaskEnds {
    pub fn count(&self) -> u64 {
        self.ended.len()
    }

    pub fn has(&self, task: u32) -> bool {
        self.ended.contains(task)
    }

    /// The exit code of the worst end.
    pub fn code(&self) -> u8 {
        self.code
    }

    /// The highest code that a task exited with by itself.
    pub fn exit_code(&self) -> u8 {
        self.exit_code
    }

    pub fn has_unreported(&self) -> bool {
        !self.unreported.is_empty()
    }

    pub fn worst(&self) -> ExitStatus {
        self.worst
    }

    pub fn add(&mut self, peer: &Peer, task: u32, end: TaskEnd) {
        if !self.ended.insert(task) {
            return;
        }
        let status = match &end {
            TaskEnd::Exited(status) => *status,
            _ => ExitStatus { code: i32::from(FAILURE), signal: 0 },
        };
        self.exit_code = self.exit_code.max(status.code as u8);
        if worse(self.worst, status) != self.worst {
            self.worst = status;
            self.code = end.code();
        }
        let same =
            self.unreported.iter_mut().find(|(node, known, _)| *node == peer.node && *known == end);
        match same {
            Some((_, _, tasks)) => {
                tasks.insert(task);
            }
            None => self.unreported.push((peer.node.clone(), end, [task].into_iter().collect())),
        }
    }

    /// How tasks exited since the last call of [`Self::take_lines`], with the line for those that succeeded.
    pub fn unreported_exits(
        &self,
    ) -> impl Iterator<Item = (ExitStatus, &IndexSet, Option<String>)> {
        self.unreported.iter().filter_map(|(node, end, tasks)| {
            let TaskEnd::Exited(exit) = end else { return None };
            let completed = end.words().is_none();
            let line = completed.then(|| format!("{node}: {}: Completed", named(tasks)));
            Some((*exit, tasks, line))
        })
    }

    /// The lines for tasks that ended since the last call.
    pub fn take_lines(&mut self, command: Command) -> Vec<String> {
        if command == Command::Sattach {
            return self.take_attached_lines();
        }
        let said = |(node, end, tasks): (String, TaskEnd, IndexSet)| {
            // On the nodes of an `sbcast` a program of our own has said why it failed.
            let is_said = command == Command::Sbcast
                && matches!(end, TaskEnd::Exited(ExitStatus { signal: 0, .. }));
            let words = end.words().filter(|_| !is_said)?;
            Some(format!("{node}: {}: {words}", named(&tasks)))
        };
        self.unreported.drain(..).filter_map(said).collect()
    }

    /// A line for each task.
    fn take_attached_lines(&mut self) -> Vec<String> {
        let said = |(_, end, tasks): (String, TaskEnd, IndexSet)| {
            let words = end.attached_words();
            words.into_iter().flat_map(move |words| {
                tasks.iter().map(|task| format!("task {task} {words}")).collect::<Vec<_>>()
            })
        };
        self.unreported.drain(..).flat_map(said).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exited(code: i32, signal: i32) -> TaskEnd {
        TaskEnd::Exited(ExitStatus { code, signal })
    }

    #[test]
    fn ends_of_tasks_have_slurms_lines_and_codes() {
        let table = [
            (exited(0, 0), None, 0),
            (exited(2, 0), Some("node1: task 0: Exited with exit code 2"), 2),
            (exited(0, 11), Some("node1: task 0: Segmentation fault"), 139),
            (exited(0, 9), Some("node1: task 0: Killed"), 137),
            (exited(0, 15), Some("node1: task 0: Terminated"), 143),
            (TaskEnd::OutOfMemory, Some("node1: task 0: Out Of Memory"), 1),
        ];
        let peer = Peer { node: "node1".into(), node_index: 0 };
        for (end, line, code) in table {
            let mut ends = TaskEnds::default();
            ends.add(&peer, 0, end.clone());
            assert_eq!(ends.take_lines(Command::Srun).first().map(String::as_str), line, "{end:?}");
            assert_eq!(ends.code(), code, "{end:?}");
        }
    }

    #[test]
    fn tasks_that_end_alike_share_a_line_and_the_worst_end_counts() {
        let peer = Peer { node: "node1".into(), node_index: 0 };
        let mut ends = TaskEnds::default();
        for (task, code) in [(0, 0), (1, 1), (2, 2), (3, 1), (4, 1)] {
            ends.add(&peer, task, exited(code, 0));
        }
        let lines = [
            "node1: tasks 1,3-4: Exited with exit code 1",
            "node1: task 2: Exited with exit code 2",
        ];
        assert_eq!(ends.take_lines(Command::Srun), lines);
        assert!(ends.take_lines(Command::Srun).is_empty(), "said once");
        assert_eq!((ends.code(), ends.count()), (2, 5));
        ends.add(&peer, 5, exited(200, 0));
        ends.add(&peer, 6, exited(0, 9));
        assert_eq!((ends.code(), ends.exit_code()), (137, 200), "a signal weighs more");
        let lines = ["task 5 exited with exit code 200"];
        assert_eq!(ends.take_lines(Command::Sattach), lines, "nothing of signals");
        ends.add(&peer, 2, exited(0, 11));
        assert_eq!(ends.code(), 137, "a task ends once");
        ends.add(&peer, 7, exited(1, 0));
        ends.add(&peer, 8, exited(0, 9));
        let lines = ["node1: task 8: Killed"];
        assert_eq!(ends.take_lines(Command::Sbcast), lines, "a failed copy has been said");
    }
}
