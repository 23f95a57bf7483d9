//! An allocation whose nodes are not ready yet: the site's programs before the job run there.

use super::{COMMAND, Invoked, LOOK_EVERY, SIGNALLED, complain, give_up};
use crate::command::slurm::watch::{Notice, Watch};
use crate::connect::{Client, ClientError};
use ::slurm::words::refusal;
use model::hostlist;
use model::id::JobId;
use std::sync::atomic::Ordering;
use wire::view::JobView;

impl Invoked<'_> {
    /// Waits for the site's programs before the job on all its nodes; false if it ended meanwhile, which has been said.
    pub(super) fn made_ready(
        &self,
        client: &mut Client,
        job: JobId,
        view: &JobView,
        watch: &mut Watch,
    ) -> Result<bool, ClientError> {
        self.tell("Waiting for resource configuration");
        loop {
            if SIGNALLED.load(Ordering::Relaxed) != 0 {
                give_up(client, job)?;
                self.tell(&format!("Job allocation {job} has been revoked."));
                return Ok(false);
            }
            match watch.wait_for(LOOK_EVERY) {
                Some(Notice::Ready) => {
                    let nodes = view.allocation.iter().flat_map(|granted| granted.node_names());
                    let nodes = hostlist::compress(nodes);
                    self.tell(&format!("Nodes {nodes} are ready for job"));
                    return Ok(true);
                }
                Some(Notice::Ended { .. }) => {
                    self.tell(&format!("Job allocation {job} has been revoked."));
                    complain(COMMAND, "Allocation was revoked before the nodes were ready");
                    return Ok(false);
                }
                Some(Notice::Refused(why)) => {
                    complain(COMMAND, &refusal::text(&why));
                    return Ok(false);
                }
                Some(Notice::Unreachable(error)) => return Err(error),
                Some(Notice::Queued | Notice::Started(_)) | None => {}
            }
        }
    }
}
