//! The files of a batch job's standard input, output and error.

use crate::filename::{self, FilenameContext};
use crate::run::{Launch, LaunchKind};
use serde::{Deserialize, Serialize};

/// What a job reads that names no file.
const NO_INPUT: &str = "/dev/null";

/// Whole paths, with all symbols of their patterns filled in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Streams {
    pub stdin: String,
    pub stdout: String,
    pub stderr: String,
}

/// One stream of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    Input,
    Output,
    Error,
}

impl Stream {
    /// Its file; `None` for a job whose streams are those of its `srun` or `salloc`, and for a run of dstack's, whose log the server
    /// has.
    pub fn path(
        self,
        launch: &Launch,
        is_array: bool,
        context: &FilenameContext<'_>,
    ) -> Option<String> {
        if launch.kind != LaunchKind::Batch {
            return None;
        }
        let default =
            if is_array { filename::DEFAULT_ARRAY_OUTPUT } else { filename::DEFAULT_OUTPUT };
        let output = launch.stdout.as_deref().unwrap_or(default);
        let pattern = match self {
            Self::Input => launch.stdin.as_deref().unwrap_or(NO_INPUT),
            Self::Output => output,
            Self::Error => launch.stderr.as_deref().unwrap_or(output),
        };
        let name = filename::expand(pattern, context);
        if name.starts_with('/') {
            return Some(name);
        }
        Some(format!("{}/{name}", launch.work_dir.trim_end_matches('/')))
    }
}

impl Streams {
    /// `None` for a job that has no files, as [`Stream::path`] says.
    pub fn of(launch: &Launch, is_array: bool, context: &FilenameContext<'_>) -> Option<Self> {
        let path = |stream: Stream| stream.path(launch, is_array, context);
        Some(Self {
            stdin: path(Stream::Input)?,
            stdout: path(Stream::Output)?,
            stderr: path(Stream::Error)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_whole_paths_in_the_working_directory() {
        let context = FilenameContext {
            job_id: 13,
            array_job_id: 12,
            array_task_id: Some(3),
            step: None,
            node_name: "n1",
            node_index: 0,
            task: 0,
            user: "ada",
            job_name: "train",
        };
        let mut launch = Launch::empty(LaunchKind::Batch);
        launch.work_dir = "/lab/".into();
        let of = |launch: &Launch, is_array| {
            let streams = Streams::of(launch, is_array, &context).expect("a batch job has files");
            [streams.stdin, streams.stdout, streams.stderr]
        };
        let one = "/lab/slurm-13.out";
        assert_eq!(of(&launch, false), ["/dev/null", one, one]);
        launch.stderr = Some("/tmp/%x.err".into());
        assert_eq!(of(&launch, true), ["/dev/null", "/lab/slurm-12_3.out", "/tmp/train.err"]);
        for without_files in [LaunchKind::Interactive, LaunchKind::Task] {
            launch.kind = without_files;
            assert_eq!(Streams::of(&launch, false, &context), None);
        }
    }
}
