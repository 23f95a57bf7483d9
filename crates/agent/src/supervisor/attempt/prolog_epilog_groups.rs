//! The groups that the site's programs run in: beside the job's, so that its limits and its use are not theirs. What a
//! prolog leaves running may serve the job, and an epilog may take leave of it; after that it is killed.

use super::Attempt;
use super::prolog_epilog::{EndStage, Hook, RunningHook};
use crate::cgroup::{CgroupError, GroupLimits, JobGroup};
use crate::spool::site_group_names;

impl Attempt {
    /// A group for the programs of one kind; inside the job's where none can be made beside it.
    pub(super) fn make_hook_group(&mut self, hook: Hook) -> Result<JobGroup, CgroupError> {
        let [init, prolog, epilog] = site_group_names(self.record.attempt);
        let (name, inside) = match hook {
            Hook::InitScript => (init, "init"),
            Hook::Prolog => (prolog, "prolog"),
            _ => (epilog, "epilog"),
        };
        match self.group.beside(&name) {
            Ok(Some(group)) => return Ok(group),
            Ok(None) => {}
            Err(error) => {
                self.control.refuse(format!("the {inside} has the limits of its job: {error}"));
            }
        }
        self.group.child(inside, &GroupLimits::default())
    }

    /// Removes the group of programs that have ended, or keeps it for the end with what they have left running.
    pub(super) fn keep_hook_group(&mut self, running: RunningHook) {
        let Some(group) = running.group else { return };
        if group.is_empty().unwrap_or(false) && group.remove().is_ok() {
            return;
        }
        self.hooks.leftover_groups.push(group);
    }

    /// The job is to be ended now: what was to come before it has no purpose any more.
    pub(super) fn kill_prolog(&mut self) {
        let running = self.hooks.running.as_ref().filter(|running| running.is_before_job());
        let Some(running) = running else { return };
        match (&running.group, running.pid) {
            (Some(group), Some(_)) => {
                // Its end is seen when it is reaped. Should this fail, its own time ends it.
                let _ = group.kill();
            }
            // It waits for its turn, which must not come.
            _ => self.hook_failed(running.hook(), "was given up"),
        }
    }

    /// Whether nothing is left of the site's programs, as far as it is time for them to be gone.
    pub(super) fn hook_groups_are_gone(&mut self) -> bool {
        if self.hooks.end_stage == EndStage::JobRuns {
            return true;
        }
        // One that cannot be removed yet is tried again, and nothing is over before.
        let gone = |group: &JobGroup| group.is_empty().unwrap_or(false) && group.remove().is_ok();
        self.hooks.leftover_groups.retain(|group| !gone(group));
        self.hooks.leftover_groups.is_empty()
    }

    pub(super) fn kill_hook_groups(&self) {
        if self.hooks.end_stage != EndStage::JobRuns {
            // A kill that fails is tried again, as the job's own.
            self.hooks.leftover_groups.iter().for_each(|group| drop(group.kill()));
        }
    }
}
