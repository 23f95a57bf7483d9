//! Where a step's output goes: to `srun`'s own, labelled or not, or to files named by a pattern.

use super::link::Peer;
use model::filename::{self, FilenameContext};
use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::fd::AsFd;

/// A labelled line longer than this is cut: it cannot be held back for ever.
const LINE_BYTES_MAX: usize = 64 << 10;

/// What `-o` and `-e` said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// `srun`'s own standard output or error.
    Own,
    Nowhere,
    /// Own, but of this task only.
    OnlyTask(u32),
    /// A file, by pattern.
    File(String),
}

impl Target {
    /// Slurm's words: `all`, `none`, a task's rank, or a file.
    pub fn parse(text: Option<&str>) -> Self {
        match text {
            None => Self::Own,
            Some(word) if word.eq_ignore_ascii_case("all") => Self::Own,
            Some(word) if word.eq_ignore_ascii_case("none") => Self::Nowhere,
            Some(word) => match word.parse() {
                Ok(rank) => Self::OnlyTask(rank),
                Err(_) => Self::File(word.to_owned()),
            },
        }
    }
}

/// What of a file's name is the same for the whole step.
#[derive(Debug, Clone)]
pub struct Names {
    pub job_id: u32,
    pub step: String,
    pub user: String,
    pub job_name: String,
    pub work_dir: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Which {
    Stdout,
    Stderr,
}

/// One open end: written to until nobody reads it.
struct Sink {
    file: Option<File>,
}

impl Sink {
    /// Whether somebody still reads it.
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

pub struct Outputs {
    stdout: Target,
    stderr: Target,
    append: bool,
    /// The width of a label; none: no labels.
    label: Option<usize>,
    names: Names,
    own: [Sink; 2],
    files: HashMap<String, Sink>,
    /// Begun lines, held back until they are whole.
    begun: HashMap<(Which, u32), Vec<u8>>,
    /// A reader has gone, and the tasks were not told.
    broken: bool,
}

impl Outputs {
    /// `error` follows `output` into its file where it was not said.
    pub fn new(
        output: Target,
        error: Option<Target>,
        append: bool,
        names: Names,
    ) -> io::Result<Self> {
        let error = error.unwrap_or_else(|| match &output {
            Target::File(_) => output.clone(),
            _ => Target::Own,
        });
        let own =
            |fd: io::Result<std::os::fd::OwnedFd>| fd.map(|fd| Sink { file: Some(File::from(fd)) });
        Ok(Self {
            stdout: output,
            stderr: error,
            append,
            label: None,
            names,
            own: [
                own(io::stdout().as_fd().try_clone_to_owned())?,
                own(io::stderr().as_fd().try_clone_to_owned())?,
            ],
            files: HashMap::new(),
            begun: HashMap::new(),
            broken: false,
        })
    }

    /// From here on every line begins with its task's rank, of `tasks`.
    pub fn label(&mut self, tasks: u32) {
        self.label = Some(tasks.saturating_sub(1).to_string().len());
    }

    pub fn write(&mut self, which: Which, peer: &Peer, task: u32, bytes: &[u8]) -> io::Result<()> {
        let Some(width) = self.label else { return self.put(which, peer, task, bytes) };
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
        self.put(which, peer, task, &labelled(&begun, task, width))
    }

    /// A task that has ended finishes no more lines.
    pub fn end(&mut self, peer: &Peer, task: u32) -> io::Result<()> {
        for which in [Which::Stdout, Which::Stderr] {
            if let (Some(rest), Some(width)) = (self.begun.remove(&(which, task)), self.label) {
                self.put(which, peer, task, &labelled(&rest, task, width))?;
            }
        }
        Ok(())
    }

    fn put(&mut self, which: Which, peer: &Peer, task: u32, bytes: &[u8]) -> io::Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        let target = match which {
            Which::Stdout => &self.stdout,
            Which::Stderr => &self.stderr,
        };
        let read = match target {
            Target::Nowhere => true,
            Target::OnlyTask(rank) if *rank != task => true,
            Target::Own | Target::OnlyTask(_) => self.own[which as usize].write(bytes)?,
            Target::File(pattern) => {
                let path = self.path(pattern, peer, task);
                self.file(path)?.write(bytes)?
            }
        };
        self.broken |= !read;
        Ok(())
    }

    /// Whether a reader has gone since this was last asked.
    pub fn take_broken(&mut self) -> bool {
        std::mem::take(&mut self.broken)
    }

    fn path(&self, pattern: &str, peer: &Peer, task: u32) -> String {
        let context = FilenameContext {
            job_id: self.names.job_id,
            array_job_id: self.names.job_id,
            array_task_id: None,
            step: Some(&self.names.step),
            node_name: &peer.node,
            node_index: peer.node_index,
            task,
            user: &self.names.user,
            job_name: &self.names.job_name,
        };
        let name = filename::expand(pattern, &context);
        match name.starts_with('/') {
            true => name,
            false => format!("{}/{name}", self.names.work_dir),
        }
    }

    fn file(&mut self, path: String) -> io::Result<&mut Sink> {
        use std::collections::hash_map::Entry;
        match self.files.entry(path) {
            Entry::Occupied(known) => Ok(known.into_mut()),
            Entry::Vacant(new) => {
                let mut how = OpenOptions::new();
                how.create(true).write(true).append(self.append).truncate(!self.append);
                let file = how.open(new.key()).map_err(|error| {
                    io::Error::new(error.kind(), format!("could not open {}: {error}", new.key()))
                })?;
                Ok(new.insert(Sink { file: Some(file) }))
            }
        }
    }
}

/// Every line with its task before it; the last one is ended.
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
mod tests {
    use super::*;

    fn names(dir: &std::path::Path) -> Names {
        Names {
            job_id: 7,
            step: "0".into(),
            user: "alice".into(),
            job_name: "hi".into(),
            work_dir: dir.to_string_lossy().into_owned(),
        }
    }

    fn peer() -> Peer {
        Peer { node: "n1".into(), node_index: 0 }
    }

    #[test]
    fn words_name_targets() {
        let table = [
            (None, Target::Own),
            (Some("all"), Target::Own),
            (Some("none"), Target::Nowhere),
            (Some("2"), Target::OnlyTask(2)),
            (Some("x-%t"), Target::File("x-%t".into())),
        ];
        for (text, target) in table {
            assert_eq!(Target::parse(text), target, "{text:?}");
        }
    }

    #[test]
    fn files_are_named_by_task_and_error_follows_output() {
        let dir = tempfile::tempdir().expect("a folder");
        let target = Target::File("out-%j.%s-%t".into());
        let mut outputs = Outputs::new(target, None, false, names(dir.path())).expect("made");
        outputs.write(Which::Stdout, &peer(), 0, b"one\n").expect("written");
        outputs.write(Which::Stderr, &peer(), 0, b"two\n").expect("written");
        outputs.write(Which::Stdout, &peer(), 1, b"three").expect("written");
        let read = |name: &str| std::fs::read_to_string(dir.path().join(name)).expect("there");
        assert_eq!(read("out-7.0-0"), "one\ntwo\n");
        assert_eq!(read("out-7.0-1"), "three");
    }

    #[test]
    fn labels_stand_before_whole_lines() {
        let dir = tempfile::tempdir().expect("a folder");
        let mut outputs =
            Outputs::new(Target::File("out".into()), None, false, names(dir.path())).expect("made");
        outputs.label(12);
        outputs.write(Which::Stdout, &peer(), 3, b"a\nb").expect("written");
        outputs.write(Which::Stdout, &peer(), 11, b"x\n").expect("written");
        outputs.write(Which::Stdout, &peer(), 3, b"c\nlast").expect("written");
        outputs.end(&peer(), 3).expect("written");
        let text = std::fs::read_to_string(dir.path().join("out")).expect("there");
        assert_eq!(text, " 3: a\n11: x\n 3: bc\n 3: last\n");
    }

    #[test]
    fn a_file_that_cannot_be_opened_is_named() {
        let dir = tempfile::tempdir().expect("a folder");
        let target = Target::File("no/such/dir".into());
        let mut outputs = Outputs::new(target, None, false, names(dir.path())).expect("made");
        let error = outputs.write(Which::Stdout, &peer(), 0, b"x").expect_err("no folder");
        assert!(error.to_string().contains("no/such/dir"), "{error}");
    }
}
