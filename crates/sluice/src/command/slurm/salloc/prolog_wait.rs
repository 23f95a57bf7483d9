//! `salloc` while the prolog runs on the nodes of its allocation.

use super::{
    AllocationRequest, COMMAND, SIGNAL_CHECK_INTERVAL, SIGNALLED, cancel_job, print_error,
};
use crate::client::{Client, ClientError};
use crate::command::slurm::submit::job_watch::{JobEvent, Watch};
use ::slurm::words::{note, refusal, stage};
use model::id::JobId;
use std::sync::atomic::Ordering;
use wire::view::JobView;

impl AllocationRequest<'_> {
    /// Waits for the prolog on all nodes. False if the job ended meanwhile, which has been reported.
    pub(super) fn await_prolog(
        &self,
        client: &mut Client,
        job: JobId,
        view: &JobView,
        watch: &mut Watch,
    ) -> Result<bool, ClientError> {
        self.print_unless_quiet("Waiting for resource configuration");
        loop {
            if SIGNALLED.load(Ordering::Relaxed) != 0 {
                cancel_job(client, job)?;
                self.print_unless_quiet(&format!("Job allocation {job} has been revoked."));
                return Ok(false);
            }
            match watch.wait_for(SIGNAL_CHECK_INTERVAL) {
                Some(JobEvent::Ready) => {
                    if let Some(granted) = &view.allocation {
                        self.print_unless_quiet(&stage::ready(granted));
                    }
                    return Ok(true);
                }
                Some(JobEvent::Ended { reason, .. }) => {
                    self.print_unless_quiet(&format!("Job allocation {job} has been revoked."));
                    print_error(COMMAND, "Allocation was revoked before the nodes were ready");
                    if let Some(why) = note::launch_failure(&reason) {
                        self.print_unless_quiet(&format!("note: {why}"));
                    }
                    return Ok(false);
                }
                Some(JobEvent::Refused(why)) => {
                    print_error(COMMAND, &refusal::text(&why));
                    return Ok(false);
                }
                Some(JobEvent::Unreachable(error)) => return Err(error),
                Some(JobEvent::Queued | JobEvent::Waits(_) | JobEvent::Started(_)) | None => {}
            }
        }
    }
}
