//! Where a step's output goes: to `srun`'s own output, labelled or not, or to files named by a pattern.

use super::link::Peer;
use model::filename::{self, FilenameContext};
use model::os_text;
use std::cell::RefCell;
use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::fd::AsFd;
use std::rc::Rc;

/// A line without an end is written in pieces of this size, so that a task cannot make `srun` hold back any amount.
const LINE_BYTES_MAX: usize = 64 << 10;
/// Bounds on output held back until the width of the labels is known. Beyond them the width is a guess.
const HELD_BYTES_MAX: usize = 1 << 20;
const HELD_MAX: usize = 1_024;

/// The value of `-o` or `-e`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// `srun`'s own standard output or error.
    Own,
    Nowhere,
    /// `srun`'s own output, for this task only.
    OnlyTask(u32),
    /// A file, by pattern.
    File(String),
}

impl Target {
    /// Reads `all`, `none`, a task's rank, or a file name. A number beyond the tasks is a file name.
    pub fn parse(text: Option<&str>, tasks: Option<u32>) -> Self {
        match text {
            None => Self::Own,
            Some(word) if word.eq_ignore_ascii_case("all") => Self::Own,
            Some(word) if word.eq_ignore_ascii_case("none") => Self::Nowhere,
            Some(word) => match rank(word, tasks) {
                Some(rank) => Self::OnlyTask(rank),
                None => Self::File(word.to_owned()),
            },
        }
    }
}

/// The task's rank that the word is, if it is one. The number of tasks may not be known yet.
pub fn rank(word: &str, tasks: Option<u32>) -> Option<u32> {
    word.parse().ok().filter(|rank| tasks.is_none_or(|tasks| *rank < tasks))
}

/// The kernel's words alone, without the number.
pub fn reason(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(number) => nix::errno::Errno::from_raw(number).desc().to_owned(),
        None => error.to_string(),
    }
}

/// Slurm's words for a file that cannot be opened, and which one it is.
pub fn unopened(what: &str, path: &str, error: &io::Error) -> io::Error {
    let reason = reason(error);
    io::Error::new(error.kind(), format!("Could not open {what} file: {reason}: {path}"))
}

/// The fields of a file name that are the same for the whole step.
#[derive(Debug, Clone)]
pub struct FilenameFields {
    pub job_id: u32,
    /// The array job and the array task that `srun` runs in.
    pub array: Option<(u32, u32)>,
    pub step: String,
    pub user: String,
    pub job_name: String,
    pub work_dir: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum OutputStream {
    Stdout,
    Stderr,
}

/// The label before each line.
enum Label {
    Nothing,
    /// The task's rank, padded to the width of the highest rank. Lines are held back until that is known.
    Awaited(Vec<(OutputStream, Peer, u32, Vec<u8>)>),
    Width(usize),
}

/// A file that is written to until its reader has gone.
struct Sink {
    file: Option<File>,
}

impl Sink {
    /// Returns whether the reader is still there.
    fn write(&mut self, bytes: &[u8]) -> io::Result<bool> {
        let Some(file) = &mut self.file else { return Ok(true) };
        match file.write_all(bytes) {
            Err(e) if e.kind() == ErrorKind::BrokenPipe => {
                self.file = None;
                Ok(false)
            }
            other => other.map(|()| true),
        }
    }
}

/// Open files by name. The steps of one `srun` share them, so that one name is one file.
#[derive(Clone, Default)]
pub struct Files(Rc<RefCell<HashMap<String, Sink>>>);

impl Files {
    fn open(&self, path: String, append: bool, which: OutputStream) -> io::Result<()> {
        open_sink(&mut self.0.borrow_mut(), path, append, which).map(drop)
    }

    fn write(
        &self,
        path: String,
        append: bool,
        which: OutputStream,
        bytes: &[u8],
    ) -> io::Result<bool> {
        open_sink(&mut self.0.borrow_mut(), path, append, which)?.write(bytes)
    }
}

pub struct Outputs {
    stdout: Target,
    stderr: Target,
    /// `-e` was not given: errors go where the output goes.
    together: bool,
    append: bool,
    /// Only whole lines are written, so that tasks that write at the same time do not cut each other's lines.
    by_lines: bool,
    label: Label,
    /// The rank that is shown for the first task.
    first_rank: u32,
    names: FilenameFields,
    own: [Sink; 2],
    files: Files,
    /// Unfinished lines, held back until they are whole.
    begun: HashMap<(OutputStream, u32), Vec<u8>>,
    /// A reader has gone, and the tasks have not been signalled yet.
    broken: bool,
}

impl Outputs {
    /// Without `error`, errors go where `output` goes.
    pub fn new(
        output: Target,
        error: Option<Target>,
        append: bool,
        names: FilenameFields,
    ) -> io::Result<Self> {
        let together = error.is_none() && output != Target::Own;
        let error = error.unwrap_or_else(|| output.clone());
        let own =
            |fd: io::Result<std::os::fd::OwnedFd>| fd.map(|fd| Sink { file: Some(File::from(fd)) });
        Ok(Self {
            stdout: output,
            stderr: error,
            together,
            append,
            by_lines: true,
            label: Label::Nothing,
            first_rank: 0,
            names,
            own: [
                own(io::stdout().as_fd().try_clone_to_owned())?,
                own(io::stderr().as_fd().try_clone_to_owned())?,
            ],
            files: Files::default(),
            begun: HashMap::new(),
            broken: false,
        })
    }

    /// Labels every line with its task's rank, once the number of tasks is known.
    pub fn label_later(&mut self) {
        self.label = Label::Awaited(Vec::new());
    }

    /// Labels every line with its task's rank, padded for `tasks` tasks, and writes the lines that were held back.
    pub fn label(&mut self, tasks: u32) -> io::Result<()> {
        let width = tasks.saturating_sub(1).to_string().len();
        match std::mem::replace(&mut self.label, Label::Width(width)) {
            Label::Awaited(held) => held.into_iter().try_for_each(|(which, peer, task, bytes)| {
                self.put(which, &peer, task, &labelled(&bytes, self.called(task), width))
            }),
            Label::Nothing | Label::Width(_) => Ok(()),
        }
    }

    /// Writes what is held back. The number of tasks will not become known: the highest rank seen gives the width.
    pub fn settle(&mut self) -> io::Result<()> {
        match &self.label {
            Label::Awaited(held) => {
                let most = held.iter().map(|(_, _, task, _)| *task).max().unwrap_or(0);
                self.label(most.saturating_add(1))
            }
            Label::Nothing | Label::Width(_) => Ok(()),
        }
    }

    /// Makes this the output of one step of several: ranks count from `first_rank`, and files are shared.
    pub fn join(&mut self, files: Files, first_rank: u32) {
        self.files = files;
        self.first_rank = first_rank;
    }

    /// Passes output on as it comes, whole lines or not.
    pub fn unbuffered(mut self) -> Self {
        self.by_lines = false;
        self
    }

    /// Opens the files that all tasks share, so that an error is reported before anything runs.
    pub fn open_common(&mut self) -> io::Result<()> {
        const PER_TASK: [char; 4] = ['t', 'n', 'N', 'h'];
        let nobody = Peer { node: String::new(), node_index: 0 };
        for (target, which) in
            [(&self.stdout, OutputStream::Stdout), (&self.stderr, OutputStream::Stderr)]
        {
            let Target::File(pattern) = target else { continue };
            // After `%` stands an optional width, then the field.
            let fields = pattern
                .split('%')
                .skip(1)
                .map(|rest| rest.trim_start_matches(|c: char| c.is_ascii_digit()));
            if fields.into_iter().any(|rest| rest.starts_with(PER_TASK)) || pattern.contains('\\') {
                continue;
            }
            let path = self.path(pattern, &nobody, 0);
            self.files.open(path, self.append, which)?;
        }
        Ok(())
    }

    pub fn write(
        &mut self,
        which: OutputStream,
        peer: &Peer,
        task: u32,
        bytes: &[u8],
    ) -> io::Result<()> {
        if !self.by_lines {
            return self.put_labelled(which, peer, task, bytes);
        }
        let mut begun = self.begun.remove(&(which, task)).unwrap_or_default();
        begun.extend_from_slice(bytes);
        let whole = match begun.iter().rposition(|byte| *byte == b'\n') {
            Some(last) => last + 1,
            None if begun.len() > LINE_BYTES_MAX => begun.len(),
            None => 0,
        };
        let rest = begun.split_off(whole);
        if !rest.is_empty() {
            self.begun.insert((which, task), rest);
        }
        self.put_labelled(which, peer, task, &begun)
    }

    fn put_labelled(
        &mut self,
        which: OutputStream,
        peer: &Peer,
        task: u32,
        bytes: &[u8],
    ) -> io::Result<()> {
        match &mut self.label {
            Label::Nothing => self.put(which, peer, task, bytes),
            Label::Width(width) => {
                let width = *width;
                self.put(which, peer, task, &labelled(bytes, self.called(task), width))
            }
            Label::Awaited(held) => {
                if !bytes.is_empty() {
                    held.push((which, peer.clone(), task, bytes.to_vec()));
                }
                let size: usize = held.iter().map(|(_, _, _, bytes)| bytes.len()).sum();
                if held.len() >= HELD_MAX || size > HELD_BYTES_MAX { self.settle() } else { Ok(()) }
            }
        }
    }

    /// Writes the unfinished lines of a task that has ended.
    pub fn end(&mut self, peer: &Peer, task: u32) -> io::Result<()> {
        for which in [OutputStream::Stdout, OutputStream::Stderr] {
            if let Some(rest) = self.begun.remove(&(which, task)) {
                self.put_labelled(which, peer, task, &rest)?;
            }
        }
        Ok(())
    }

    fn put(&mut self, which: OutputStream, peer: &Peer, task: u32, bytes: &[u8]) -> io::Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        let target = match which {
            OutputStream::Stdout => &self.stdout,
            OutputStream::Stderr => &self.stderr,
        };
        let read = match target {
            Target::Nowhere => true,
            Target::OnlyTask(rank) if *rank != task => true,
            Target::Own | Target::OnlyTask(_) => {
                let own = if self.together { OutputStream::Stdout } else { which };
                self.own[own as usize].write(bytes)?
            }
            Target::File(pattern) => {
                let path = self.path(pattern, peer, task);
                self.files.write(path, self.append, which, bytes)?
            }
        };
        self.broken |= !read;
        Ok(())
    }

    /// Whether a reader has gone since the last call.
    pub fn take_broken(&mut self) -> bool {
        std::mem::take(&mut self.broken)
    }

    fn called(&self, task: u32) -> u32 {
        self.first_rank.saturating_add(task)
    }

    fn path(&self, pattern: &str, peer: &Peer, task: u32) -> String {
        let context = FilenameContext {
            job_id: self.names.job_id,
            array_job_id: self.names.array.map_or(self.names.job_id, |(array, _)| array),
            array_task_id: self.names.array.map(|(_, task)| task),
            step: Some(&self.names.step),
            node_name: &peer.node,
            node_index: peer.node_index,
            task: self.called(task),
            user: &self.names.user,
            job_name: &self.names.job_name,
        };
        let name = filename::expand(pattern, &context);
        if name.starts_with('/') { name } else { format!("{}/{name}", self.names.work_dir) }
    }
}

fn open_sink(
    files: &mut HashMap<String, Sink>,
    path: String,
    append: bool,
    which: OutputStream,
) -> io::Result<&mut Sink> {
    use std::collections::hash_map::Entry;
    match files.entry(path) {
        Entry::Occupied(known) => Ok(known.into_mut()),
        Entry::Vacant(new) => {
            let mut how = OpenOptions::new();
            how.create(true).write(true).append(append).truncate(!append);
            let what = match which {
                OutputStream::Stdout => "stdout",
                OutputStream::Stderr => "stderr",
            };
            let opened = how.open(os_text::to_os(new.key()));
            let file = opened.map_err(|error| unopened(what, new.key(), &error))?;
            Ok(new.insert(Sink { file: Some(file) }))
        }
    }
}

/// Labels every line with its task's rank, and ends the last one.
fn labelled(bytes: &[u8], task: u32, width: usize) -> Vec<u8> {
    let mut text = Vec::with_capacity(bytes.len() + 16);
    for line in bytes.split_inclusive(|byte| *byte == b'\n') {
        text.extend_from_slice(format!("{task:>width$}: ").as_bytes());
        text.extend_from_slice(line);
    }
    if !text.is_empty() && !text.ends_with(b"\n") {
        text.push(b'\n');
    }
    text
}

#[cfg(test)]
#[path = "output_tests.rs"]
mod tests;
