//! Control groups of prolog and epilog: beside the job's group, so that neither its limits nor its usage include them.
//! A daemon that the prolog leaves running may serve the job; it is killed after the epilog.

use super::Attempt;
use super::prolog_epilog::{EndStage, Hook, RunningHook};
use crate::cgroup::{CgroupError, GroupLimits, JobGroup};
use crate::spool::site_group_names;

impl Attempt {
    /// Makes the group of one hook; inside the job's group where none can be made beside it.
    pub(super) fn make_hook_group(&mut self, hook: Hook) -> Result<JobGroup, CgroupError> {
        let [init, prolog, epilog] = site_group_names(self.record.attempt);
        let (name, inside) = match hook {
            Hook::InitScript => (init, "init"),
            Hook::Prolog => (prolog, "prolog"),
            _ => (epilog, "epilog"),
        };
        match self.group.sibling(&name) {
            Ok(Some(group)) => return Ok(group),
            Ok(None) => {}
            Err(error) => {
                self.agents
                    .report_refusal(format!("the {inside} has the limits of its job: {error}"));
            }
        }
        self.group.child(inside, &GroupLimits::default())
    }

    /// Removes the group of an ended hook, or keeps it until the end if processes still run in it.
    pub(super) fn keep_hook_group(&mut self, running: RunningHook) {
        let Some(group) = running.group else { return };
        if group.is_empty().unwrap_or(false) && group.remove().is_ok() {
            return;
        }
        self.hooks.leftover_groups.push(group);
    }

    /// Kills a running prolog because its job is to end now.
    pub(super) fn kill_prolog(&mut self) {
        let running = self.hooks.running.as_ref().filter(|running| running.is_before_job());
        let Some(running) = running else { return };
        match (&running.group, running.pid) {
            (Some(group), Some(_)) => {
                // Its end is handled when it is reaped. If the kill fails, the timeout ends it.
                let _ = group.kill();
            }
            // It waits for the node's lock and must not start any more.
            _ => self.hook_failed(running.hook(), "was given up"),
        }
    }

    /// Whether the hooks' groups are gone. While the job runs they may stay.
    pub(super) fn hook_groups_are_gone(&mut self) -> bool {
        if self.hooks.end_stage == EndStage::JobRuns {
            return true;
        }
        // A group that cannot be removed yet is tried again; the attempt does not end before.
        let gone = |group: &JobGroup| group.is_empty().unwrap_or(false) && group.remove().is_ok();
        self.hooks.leftover_groups.retain(|group| !gone(group));
        self.hooks.leftover_groups.is_empty()
    }

    pub(super) fn kill_hook_groups(&self) {
        if self.hooks.end_stage != EndStage::JobRuns {
            // A failed kill is repeated, as that of the job's own group.
            self.hooks.leftover_groups.iter().for_each(|group| drop(group.kill()));
        }
    }
}
