//! The job's own folders on its node: made before anything of it starts, and removed, with what else it has left, when
//! nothing of it is there any more.

use super::Attempt;
use super::programs::{After, Running, Work};
use crate::supervisor::scratch::{Place, Scratch};
use crate::supervisor::{private, shared_memory};
use nix::unistd::{ForkResult, fork};
use std::path::Path;
use std::sync::Arc;

impl Attempt {
    /// Makes the job's own folders. Without scratch a job can live; one that was promised privacy is not started
    /// without it.
    pub(super) fn make_folders(&mut self) -> Result<(), String> {
        let (record, spool) = (&self.record, self.dir.path().parent());
        let node = spool.and_then(Path::parent).unwrap_or(Path::new("/"));
        let place = Place::scratch(&record.site, node, &record.group_root);
        match Scratch::make(&place, record.attempt, Some(&record.launch.user)) {
            Ok((mut scratch, own)) => {
                if let Some(limit) = record.limits.scratch
                    && let Err(why) =
                        scratch.limit(&own, limit, (&record.group_root, record.attempt), None)
                {
                    self.control.refuse(why);
                }
                self.record.inside.scratch = scratch.path().to_str().map(str::to_owned);
                self.around.scratch = Some(scratch);
            }
            Err(why) => self.control.refuse(why),
        }
        if let Some(folders) = &self.record.site.private {
            let beside = self.around.scratch.as_ref();
            let made = private::make(folders, &self.record, beside)?;
            if let Some(why) = made.complaint {
                self.control.refuse(why);
            }
            self.around.private = Some(made.scratch);
        }
        Ok(())
    }

    pub(super) fn has_init_script(&self) -> bool {
        self.record.site.private.as_ref().is_some_and(|folders| folders.init_script.is_some())
    }

    /// What the job will see in the place of the first of the private folders.
    pub(super) fn private_version(&self) -> Option<String> {
        let folders = self.record.site.private.as_ref()?;
        let (_, version) = private::versions(folders, self.around.private.as_ref()?).next()?;
        version.to_str().map(str::to_owned)
    }

    /// Makes the namespace in which the job sees its private folders, where it has any.
    pub(super) fn show_private(&mut self) -> Result<(), String> {
        let folders = self.record.site.private.as_ref().zip(self.around.private.as_ref());
        if let Some((folders, scratch)) = folders {
            let namespaces = private::show(folders, scratch)?;
            self.record.inside.namespaces = Some(Arc::new(namespaces));
        }
        Ok(())
    }

    /// The site's work once the group is empty. Whether all of it is done.
    pub(super) fn is_cleaned(&mut self) -> bool {
        loop {
            if self.around.is_busy() {
                return false;
            }
            match self.around.after {
                After::Job => {
                    self.around.after = After::Epilog;
                    let kills = self.script_kills();
                    self.used = Some((self.usage(kills), kills));
                    if !self.record.site.epilog.is_empty() {
                        self.tell_job_ended();
                        self.begin_programs(Work::Epilog);
                    }
                }
                After::Epilog => {
                    if !self.is_rid_of_programs() {
                        self.kill_again();
                        return false;
                    }
                    self.around.after = After::Cleaning;
                    self.begin_cleaning();
                }
                After::Cleaning => self.around.after = After::Nothing,
                After::Nothing => return true,
            }
        }
    }

    /// What is empty is removed here; what is not, by a child, for it may take long.
    fn begin_cleaning(&mut self) {
        self.record.inside.namespaces = None;
        let uid = self.record.launch.user.uid;
        let full = |scratch: &Option<Scratch>| scratch.as_ref().is_some_and(|s| !s.remove_empty());
        let folders = [&self.around.scratch, &self.around.private].map(full);
        let left = shared_memory::left_by(uid);
        let left = Some(left).filter(|left| !left.is_empty() && !shared_memory::has_processes(uid));
        if folders == [false, false] && left.is_none() {
            return;
        }
        // SAFETY: the supervisor has one thread, and the child ends here.
        match unsafe { fork() } {
            Ok(ForkResult::Child) => {
                let folders = [&self.around.scratch, &self.around.private].into_iter().flatten();
                let failed = folders.filter(|folder| folder.remove().is_err()).count();
                if let Some(left) = &left {
                    shared_memory::remove(left, uid);
                }
                // SAFETY: ends the child without the exit handlers of its parent.
                unsafe { libc::_exit(i32::from(failed > 0)) }
            }
            Ok(ForkResult::Parent { child }) => {
                self.around.work = Some(Running::child(Work::Cleaning, child, None));
            }
            Err(errno) => self.control.refuse(format!("cannot clean up: {}", errno.desc())),
        }
    }
}
