//! The job's folders on its node: made before its first process starts, and removed after the epilog together with the
//! shared memory that it left.

use super::Attempt;
use super::prolog_epilog::{EndStage, Hook, RunningHook};
use crate::in_job::SSH_RELAY;
use crate::privilege;
use crate::supervisor::container;
use crate::supervisor::folders::namespaces::{NamespaceError, ShownVolumes};
use crate::supervisor::folders::scratch::{Scratch, ScratchLocation};
use crate::supervisor::folders::{JobFolders, internode_ssh, namespaces, shared_memory};
use nix::unistd::{ForkResult, fork};

impl Attempt {
    /// Makes the scratch and private folders. A job runs without scratch if it cannot be made, but not without the private
    /// folders of the site's configuration, nor on several nodes without the way from one to another.
    pub(super) fn make_folders(&mut self) -> Result<(), String> {
        let (record, node) = (&self.record, self.dir.node_folder());
        let location = ScratchLocation::scratch(&record.site, node, &record.group_root);
        match Scratch::make(&location, record.attempt, Some(&record.launch.user)) {
            Ok((mut scratch, own)) => {
                if let Some(limit) = record.limits.scratch
                    && let Err(why) =
                        scratch.limit(&own, limit, (&record.group_root, record.attempt), None)
                {
                    self.agents.report_refusal(why);
                }
                self.folders.scratch = Some(scratch);
            }
            Err(why) => self.agents.report_refusal(why),
        }
        let launch = &self.record.launch;
        let is_needed = launch.internode_ssh.is_some();
        if is_needed || !launch.files.is_empty() {
            match self.write_run_files(&ScratchLocation::run_files(node)) {
                Err(why) if is_needed => return Err(why),
                Err(why) => self.agents.report_refusal(why),
                Ok(()) => {}
            }
        }
        if let Some(folders) = &self.record.site.private {
            let beside = self.folders.scratch.as_ref();
            match namespaces::make_private_folders(folders, &self.record, beside) {
                Ok(made) => {
                    if let Some(why) = made.complaint {
                        self.agents.report_refusal(why);
                    }
                    self.folders.private = Some(made.scratch);
                }
                Err(why) => return Err(why),
            }
        }
        Ok(())
    }

    /// Writes what tells the nodes of a run of one another.
    fn write_run_files(&mut self, location: &ScratchLocation) -> Result<(), String> {
        let record = &self.record;
        let (launch, user) = (&record.launch, &record.launch.user);
        let (mut folder, own) = Scratch::make(location, record.attempt, Some(user))?;
        if let Some(limit) = record.limits.scratch {
            let (job, beside) = ((&*record.group_root, record.attempt), &self.folders.scratch);
            // The folder is the user's: it is held to the same quota as the scratch folder.
            if let Err(why) = folder.limit(&own, limit, job, beside.as_ref()) {
                self.agents.report_refusal(why);
            }
        }
        let mut variables = Vec::new();
        for file in &launch.files {
            let path = folder.write(&own, &file.name, &file.text, 0o644, user)?;
            variables.push(format!("{}={}", file.variable, path.display()));
        }
        if let Some(ssh) = &launch.internode_ssh {
            let relay = container::own_program(SSH_RELAY, launch.container.is_some())?;
            for file in internode_ssh::files(ssh, folder.path(), &relay) {
                folder.write(&own, file.name, &file.text, file.mode, user)?;
            }
        }
        self.folders.run_files = Some(folder);
        self.folders.variables = variables;
        Ok(())
    }

    pub(super) fn has_init_script(&self) -> bool {
        self.record.site.private.as_ref().is_some_and(|folders| folders.init_script.is_some())
    }

    /// The path of the job's version of the first private folder.
    pub(super) fn private_version(&self) -> Option<String> {
        let folders = self.record.site.private.as_ref()?;
        let (_, version) =
            namespaces::private_versions(folders, self.folders.private.as_ref()?).next()?;
        version.to_str().map(str::to_owned)
    }

    /// Makes the namespace in which the job sees its private folders, if it has any, a `/dev/shm` of the size that the job
    /// asks for, and its volumes.
    pub(super) fn show_private(&mut self) -> Result<(), NamespaceError> {
        let folders = self.record.site.private.as_ref().zip(self.folders.private.as_ref());
        let mut memory = self.record.private_memory();
        if memory.is_some() && !privilege::is_root() {
            let why = "cannot make a private /dev/shm: the agent does not run as root";
            self.agents.report_refusal(why.to_owned());
            memory = None;
        }
        let volumes = self.record.node_volumes();
        if !volumes.is_empty() && !privilege::is_root() {
            let why =
                "volumes cannot be shown to a job without an image: the agent does not run as root";
            return Err(NamespaceError::Job(why.to_owned()));
        }
        let is_asked = memory.is_some() || !volumes.is_empty();
        if folders.is_some() || is_asked {
            let (node, user) = (self.dir.node_folder(), &self.record.launch.user);
            let volumes = ShownVolumes { volumes, node, user };
            let made = namespaces::mount_private_folders(folders, memory, &volumes);
            if self.record.private_by_default
                && !is_asked
                && let Err(NamespaceError::Node(why)) = &made
            {
                // The machine may forbid namespaces to root, as a container without rights does.
                self.agents.report_refusal(why.clone());
                return Ok(());
            }
            self.folders.namespaces = Some(made?);
        }
        Ok(())
    }

    /// Runs the epilog and the cleanup once the group is empty. Returns whether both are done.
    pub(super) fn is_cleaned(&mut self) -> bool {
        loop {
            if self.hooks.is_busy() {
                return false;
            }
            match self.hooks.end_stage {
                EndStage::JobRuns => {
                    self.hooks.end_stage = EndStage::Epilog;
                    let kills = self.script_kills();
                    self.used = Some((self.usage(kills), kills));
                    if !self.record.site.epilog.is_empty() {
                        self.report_job_ended();
                        self.begin_hook(Hook::Epilog);
                    }
                }
                EndStage::Epilog => {
                    if !self.hook_groups_are_gone() {
                        self.kill_again();
                        return false;
                    }
                    self.hooks.end_stage = EndStage::Cleanup;
                    self.begin_cleaning();
                }
                EndStage::Cleanup => self.hooks.end_stage = EndStage::Done,
                EndStage::Done => return true,
            }
        }
    }

    /// Called when the attempt is over and reported, so that nobody waits for the disk.
    pub fn sync_images(&self) {
        if self.had_containers {
            container::sync_images(&self.record.site.containers, &self.dir);
        }
    }

    /// Removes empty folders at once, and others in a child process, because that may take long.
    fn begin_cleaning(&mut self) {
        self.folders.namespaces = None;
        let uid = self.record.launch.user.uid;
        let full = |scratch: &Option<Scratch>| scratch.as_ref().is_some_and(|s| !s.remove_empty());
        let JobFolders { scratch, private, run_files, .. } = &self.folders;
        let folders = [scratch, private, run_files].map(full);
        let left = shared_memory::owned_by(uid);
        let left = Some(left).filter(|left| !left.is_empty() && !shared_memory::has_processes(uid));
        let containers = container::folder_of_attempt(&self.dir);
        let containers = Some(containers).filter(|folder| folder.exists());
        self.had_containers = containers.is_some();
        let groups = self.group.paths();
        if folders == [false; 3] && left.is_none() && containers.is_none() {
            return;
        }
        // SAFETY: the supervisor has one thread, and the child ends here.
        match unsafe { fork() } {
            Ok(ForkResult::Child) => {
                let failed = self.folders.all().filter(|folder| folder.remove().is_err()).count();
                if let Some(left) = &left {
                    shared_memory::remove(left, uid);
                }
                containers.iter().for_each(|folder| container::remove(folder, &groups));
                // SAFETY: ends the child without the exit handlers of its parent.
                unsafe { libc::_exit(i32::from(failed > 0)) }
            }
            Ok(ForkResult::Parent { child }) => {
                self.hooks.running = Some(RunningHook::child(Hook::Cleanup, child, None));
            }
            Err(errno) => self.agents.report_refusal(format!("cannot clean up: {}", errno.desc())),
        }
    }
}
