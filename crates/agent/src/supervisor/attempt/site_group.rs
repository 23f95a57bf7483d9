//! The groups that the site's programs run in: beside the job's, so that its limits and its use are not theirs. What a
//! prolog leaves running may serve the job, and an epilog may take leave of it; after that it is killed.

use super::Attempt;
use super::programs::{After, Running, Work};
use crate::cgroup::{CgroupError, GroupLimits, JobGroup};
use crate::spool::site_group_names;

impl Attempt {
    /// A group for the programs of one kind; inside the job's where none can be made beside it.
    pub(super) fn make_site_group(&mut self, work: Work) -> Result<JobGroup, CgroupError> {
        let [init, prolog, epilog] = site_group_names(self.record.attempt);
        let (name, inside) = match work {
            Work::Init => (init, "init"),
            Work::Prolog => (prolog, "prolog"),
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
    pub(super) fn leave_group(&mut self, running: Running) {
        let Some(group) = running.group else { return };
        if group.is_empty().unwrap_or(false) && group.remove().is_ok() {
            return;
        }
        self.around.left.push(group);
    }

    /// The job is to be ended now: what was to come before it has no purpose any more.
    pub(super) fn kill_prolog(&mut self) {
        let running = self.around.work.as_ref().filter(|running| running.is_before_job());
        let Some(running) = running else { return };
        match (&running.group, running.pid) {
            (Some(group), Some(_)) => {
                // Its end is seen when it is reaped. Should this fail, its own time ends it.
                let _ = group.kill();
            }
            // It waits for its turn, which must not come.
            _ => self.work_failed(running.work(), "was given up"),
        }
    }

    /// Whether nothing is left of the site's programs, as far as it is time for them to be gone.
    pub(super) fn is_rid_of_programs(&mut self) -> bool {
        if self.around.after == After::Job {
            return true;
        }
        // One that cannot be removed yet is tried again, and nothing is over before.
        let gone = |group: &JobGroup| group.is_empty().unwrap_or(false) && group.remove().is_ok();
        self.around.left.retain(|group| !gone(group));
        self.around.left.is_empty()
    }

    pub(super) fn kill_left_programs(&self) {
        if self.around.after != After::Job {
            // A kill that fails is tried again, as the job's own.
            self.around.left.iter().for_each(|group| drop(group.kill()));
        }
    }
}
