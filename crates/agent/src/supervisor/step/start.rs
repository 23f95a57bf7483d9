//! Starts a step's tasks: makes its group with its limits, and for each task its files, environment and process.

use super::{Stage, Step, TASKS_MAX};
use crate::cgroup::GroupLimits;
use crate::cpu_frequency::SetFrequency;
use crate::device_access::DeviceScope;
use crate::supervisor::container::{ContainerSpec, folder_of_attempt, own_program, running_script};
use crate::supervisor::job_context::JobContext;
use crate::supervisor::process::binding::{self, ProcessBinding};
use crate::supervisor::process::environment::{file_name, merge_environment, process_variables};
use crate::supervisor::process::path_variable::first_in_path;
use crate::supervisor::process::spawn::{Argv0, ProcessSpec, Stream, spawn};
use crate::supervisor::step::limits::step_limits;
use crate::supervisor::step::step_container::StepContainer;
use crate::supervisor::step::task::{Task, TaskStreams};
use crate::wall_clock;
use model::binding::NodeBindings;
use model::run::ExitStatus;
use wire::step::{StepInput, StepMessage};

impl Step {
    pub(super) fn start(&mut self, job: JobContext) {
        let record = job.record;
        self.stage = Stage::Running;
        let of_job = record.launch.container.as_ref();
        let has_container = self.order.launch.container.as_ref().or(of_job).is_some();
        self.containers = has_container.then(|| folder_of_attempt(job.dir));
        let limit = self.order.launch.time_limit.and_then(|limit| limit.duration());
        self.limit_at = limit.map(|length| wall_clock::now() + length);
        let name = format!("step_{}", self.order.step);
        let (share, scope) = (self.order.share.as_ref(), DeviceScope::of(record));
        let limits = step_limits(&record.limits, &record.launch.share, share, scope);
        let (mut limits, bound) = match (limits, binding::step_binding(record, &self.order)) {
            (Ok(limits), Ok(bound)) => (limits, bound),
            (Err(reason), _) | (_, Err(reason)) => return self.fail_all(&reason),
        };
        if let (Some(cpus), Some(share)) = (&mut limits.cpuset, share) {
            *cpus = record.kernel_cpus(&share.cpus).to_string();
        }
        // Where the kernel allows no limits on a group inside the job's, the job's own limits apply to the step.
        // Devices are the exception: another step may have them.
        let devices = limits.devices.clone();
        let plain = || job.group.child(&name, &GroupLimits { devices, ..GroupLimits::default() });
        match job.group.child(&name, &limits).or_else(|_| plain()) {
            Ok(group) => {
                self.own_memory = group.counts_memory();
                self.group = Some(group);
            }
            Err(error) => return self.fail_all(&error.to_string()),
        }
        self.set_frequency(job);
        let ranks: Vec<u32> = self.order.tasks.iter().copied().take(TASKS_MAX).collect();
        for (local, rank) in ranks.iter().enumerate() {
            let task = match self.start_task(job, bound.as_ref(), *rank, local as u32, &ranks) {
                Ok(task) => task,
                Err(reason) => {
                    self.report_failed_task(*rank, &reason);
                    Task::not_started(*rank, ExitStatus::NOT_LAUNCHED)
                }
            };
            self.tasks.push(task);
        }
        if let Err(reason) = self.start_saver(job) {
            self.not_saved = true;
            self.write_notice(&format!("sluice: {reason}"));
        }
    }

    /// Sets the frequency of its CPUs, where it or the site asks for one. What cannot be set is said to who asked.
    fn set_frequency(&mut self, job: JobContext) {
        let (record, asked) = (job.record, self.order.launch.cpu_frequency);
        let policy = &record.site.cpu_frequency;
        let Some(wanted) = policy.settle(asked) else { return };
        let share = self.order.share.as_ref().map(|share| record.kernel_cpus(&share.cpus));
        // Others use the CPUs of a job that is not confined to its own.
        let of_job = record.limits.cpus.as_ref();
        let set = match (of_job, asked.and_then(|asked| policy.refused(asked))) {
            (None, _) => Err("the job is not confined to its CPUs".to_owned()),
            (_, Some(governor)) => {
                let governor = governor.kernel_name();
                Err(format!("the governor {governor} is not one of CpuFreqGovernors"))
            }
            (Some(of_job), None) => {
                let frequency = SetFrequency::of_step(job.dir, record, self.order.step);
                let set = frequency.set(share.as_ref().unwrap_or(of_job), of_job, &wanted);
                self.frequency = Some(frequency);
                set
            }
        };
        if let (Err(error), Some(_)) = (set, asked) {
            let words = match record.launch.notices.cpu_frequency_refused.as_str() {
                "" => "sluice: the frequency of the CPUs: {error}",
                words => words,
            };
            self.write_notice(&words.replace("{error}", &error));
        }
    }

    fn start_task(
        &self,
        job: JobContext,
        bound: Option<&NodeBindings>,
        rank: u32,
        local_rank: u32,
        ranks_here: &[u32],
    ) -> Result<Task, String> {
        let record = job.record;
        let (launch, step) = (&self.order.launch, self.order.step.to_string());
        let ranks_here = self.global_ranks(ranks_here);
        let identity = self.task_identity(job, &step, &ranks_here, rank, local_rank);
        let file = |pattern: &Option<String>| {
            let write = |pattern: &String| Stream::Write {
                path: file_name(pattern, record, &identity),
                append: false,
            };
            pattern.as_ref().map(write)
        };
        let streams_of_task = if launch.pty {
            let is_first = identity.rank == 0;
            TaskStreams::of_pty(is_first.then(|| launch.window.unwrap_or_default()))
        } else {
            TaskStreams {
                with_input: match launch.stdin {
                    StepInput::All => true,
                    StepInput::None => false,
                    StepInput::Task(wanted) => wanted == rank,
                },
                stdout: file(&launch.stdout),
                stderr: file(&launch.stderr),
                terminal: None,
            }
        };
        let terminal = streams_of_task.terminal.is_some();
        let (streams, ends) = streams_of_task
            .connect(&record.launch.user)
            .map_err(|errno| format!("cannot make the pipes of task {rank}: {}", errno.desc()))?;
        let group = self.group.as_ref().ok_or("the step has no group")?;
        let entry = group.entry_fds().map_err(|e| e.to_string())?;
        let (own, pid_variables) =
            process_variables(&self.order.process_variables, &identity, bound);
        let marker = group.marker().map(|(name, mark)| format!("{name}={mark}"));
        let of_task = self.order.task_orders.get(local_rank as usize);
        let of_its_own = of_task.map(|task| task.environment.as_slice()).unwrap_or_default();
        // A step beside the script finds what the script does.
        let run_files = job.folders.run_files_path().filter(|_| launch.joins_script);
        let run_variables = job.folders.variables.iter().filter(|_| launch.joins_script);
        let over = self.order.environment.iter().chain(of_its_own).chain(&own).chain(&marker);
        let over = over.chain(run_variables).map(String::as_str);
        let mut environment = merge_environment(launch.environment.split('\0'), over);
        if let Some(folder) = run_files {
            first_in_path(&mut environment, folder);
        }
        let program = of_task.map(|task| &task.argv).filter(|argv| !argv.is_empty());
        let words = &record.launch.notices;
        let site = record.site.task_prolog.clone().map(|p| (p, words.task_prolog_failed.as_str()));
        let own = launch.task_prolog.clone().map(|p| (p, words.own_prolog_failed.as_str()));
        let prologs = site.into_iter().chain(own).collect();
        let chosen = StepContainer::of(record, launch);
        let argv = match launch.program_of_ours() {
            Some(own) => own_program(own.verb(), chosen.is_some())?,
            None => program.unwrap_or(&launch.argv).clone(),
        };
        let container = chosen.as_ref().map(|chosen| {
            let (request, auth) = (&*chosen.request, chosen.auth);
            let of_job = ContainerSpec::of_job(job, request, &step, group, auth)?;
            let script = launch.joins_script.then(|| running_script(job.dir)).flatten();
            Ok::<_, String>(ContainerSpec {
                folder: script.unwrap_or_else(|| of_job.folder.clone()),
                process: local_rank,
                work_dir: &launch.work_dir,
                image_dir: chosen.image_dir,
                umask: launch.umask,
                terminal,
                devices: record.limits.devices.as_ref().map(|devices| match &self.order.share {
                    Some(share) => devices.of_step(share),
                    None => devices.clone(),
                }),
                ..of_job
            })
        });
        let spec = ProcessSpec {
            user: &record.launch.user,
            argv,
            argv0: Argv0::ResolvedPath,
            environment,
            pid_variables,
            work_dir: &launch.work_dir,
            umask: launch.umask,
            rlimits: launch.rlimits.as_ref().unwrap_or(&record.launch.rlimits),
            limits: Some(&record.limits),
            lines: of_task.map(|task| task.lines.as_slice()).unwrap_or_default(),
            nice: self.order.nice,
            hold: ProcessBinding {
                cpus: bound.and_then(|bound| bound.mask(local_rank)),
                bound,
                memory: launch.mem_bind.as_ref(),
                locks_memory: binding::locks_memory(record),
                node: &record.node,
                rank,
                local_rank,
            },
            streams,
            terminal,
            namespaces: job.folders.namespaces.as_ref(),
            login: None,
            prologs,
            workspace: None,
            container: container.transpose()?,
            entry: &entry,
            notices: &record.launch.notices,
        };
        let spawned = spawn(spec).map_err(|errno| format!("cannot fork: {}", errno.desc()))?;
        let mut task = Task::new(rank, ends);
        task.pid = Some(spawned.pid);
        task.ready = Some(spawned.ready);
        Ok(task)
    }

    fn fail_all(&mut self, reason: &str) {
        for rank in self.order.tasks.clone().into_iter().take(TASKS_MAX) {
            self.report_failed_task(rank, reason);
            self.tasks.push(Task::not_started(rank, ExitStatus::NOT_LAUNCHED));
        }
    }

    pub(super) fn report_failed_task(&mut self, task: u32, what: &str) {
        self.clients.send_to_all(&StepMessage::Failed { task, errno: 0, what: what.to_owned() });
    }
}
