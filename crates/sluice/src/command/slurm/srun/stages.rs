//! `srun -v` in an existing allocation: what the job has, before the step is asked for. Later stages are the step's own.

use super::{COMMAND, StepRequest, print_line};
use crate::client::{Client, ClientError};
use ::slurm::words::stage;
use model::id::JobId;
use wire::client::{Answer, Call};

impl StepRequest<'_> {
    /// `-v`: prints what the job has. A job that has nothing is refused a step, and that is reported.
    pub(super) fn show_allocation(
        &self,
        client: &mut Client,
        job: JobId,
    ) -> Result<(), ClientError> {
        if self.options.verbose == 0 {
            return Ok(());
        }
        let ask = Call::AwaitStart { job, timeout_ms: 0, ready: false };
        if let Answer::Start { allocation: Some(granted), .. } = client.call_again(ask)? {
            print_line(COMMAND, &stage::allocated(job, &granted));
        }
        Ok(())
    }
}
