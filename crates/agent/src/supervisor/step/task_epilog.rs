//! Task epilogs: the user's own, then the site's, run as the user and in the step's group.

use super::{Step, Task};
use crate::supervisor::job_context::JobContext;
use crate::supervisor::process::binding::ProcessBinding;
use crate::supervisor::process::environment::{merge_environment, process_variables};
use crate::supervisor::process::spawn::{Argv0, ProcessSpec, Stream, spawn};
use crate::wall_clock;
use nix::unistd::Pid;
use std::time::Duration;

/// How long task epilogs may take once all tasks have ended.
const EPILOG_TIMEOUT: Duration = Duration::from_secs(60);

impl Step {
    /// Starts the epilogs of tasks that have just ended. An epilog that cannot be started is skipped.
    pub fn begin_epilogs(&mut self, job: JobContext) {
        let programs = [&self.order.launch.task_epilog, &job.record.site.task_epilog];
        let programs: Vec<String> = programs.into_iter().flatten().cloned().collect();
        if programs.is_empty() || !self.runs() {
            return;
        }
        let ended = |task: &Task| task.exit.is_some() && task.pid.is_none() && !task.epilog_started;
        let due: Vec<usize> = (0..self.tasks.len()).filter(|at| ended(&self.tasks[*at])).collect();
        for at in due {
            self.tasks[at].epilog_started = true;
            for program in &programs {
                let begun = self.begin_epilog(job, program, self.tasks[at].rank, at as u32);
                self.epilogs.extend(begun);
            }
        }
        if self.tasks.iter().all(|task| task.exit.is_some()) && !self.epilogs.is_empty() {
            let until = wall_clock::now() + EPILOG_TIMEOUT;
            self.kill_at = Some(self.kill_at.map_or(until, |earlier| earlier.min(until)));
        }
    }

    fn begin_epilog(
        &self,
        job: JobContext,
        program: &str,
        rank: u32,
        local_rank: u32,
    ) -> Option<Pid> {
        let record = job.record;
        let (launch, step) = (&self.order.launch, self.order.step.to_string());
        let ranks_here = self.global_ranks(&self.order.tasks);
        let identity = self.task_identity(job, &step, &ranks_here, rank, local_rank);
        let group = self.group.as_ref()?;
        let entry = group.entry_fds().ok()?;
        let (own, pid_variables) =
            process_variables(&self.order.process_variables, &identity, None);
        let marker = group.marker().map(|(name, mark)| format!("{name}={mark}"));
        let over = self.order.environment.iter().chain(&own).chain(&marker).map(String::as_str);
        let spec = ProcessSpec {
            user: &record.launch.user,
            argv: vec![program.to_owned()],
            argv0: Argv0::AsGiven,
            environment: merge_environment(launch.environment.split('\0'), over),
            pid_variables,
            work_dir: &launch.work_dir,
            umask: launch.umask,
            rlimits: launch.rlimits.as_ref().unwrap_or(&record.launch.rlimits),
            limits: Some(&record.limits),
            lines: &[],
            nice: self.order.nice,
            hold: ProcessBinding::default(),
            streams: [Stream::Null, Stream::Null, Stream::SameAsStdout],
            terminal: false,
            namespaces: job.folders.namespaces.as_ref(),
            login: None,
            prologs: Vec::new(),
            workspace: None,
            container: None,
            entry: &entry,
            notices: &record.launch.notices,
        };
        spawn(spec).ok().map(|spawned| spawned.pid)
    }
}
