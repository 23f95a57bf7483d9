//! Why a job waits, in sentences for the page: those of `sluice explain`.

use crate::explanation::wait as wait_text;
use crate::web::job_end;
use slurm::words::reason;
use wire::explain::WaitView;
use wire::view::JobView;

pub fn sentences(job: &JobView, wait: &WaitView) -> Vec<String> {
    let moment = job_end::moment();
    let mut said = match &wait.reason {
        None => vec!["Nothing holds it back: it starts with the next plan.".to_owned()],
        Some(why) => vec![
            format!("It waits for: {}.", reason::text(why)),
            wait_text::sentence(job, wait, why, moment),
        ],
    };
    let further = wait_text::lines(job, wait, moment);
    // The lines of a list are indented in a terminal.
    said.extend(further.iter().map(|line| line.trim_start().to_owned()));
    said
}

/// The jobs that such sentences name, as they are shown there.
pub fn named(wait: &WaitView) -> Vec<String> {
    let ahead = wait.ahead_first.iter().map(|one| &one.job);
    let occupants = wait.occupants.iter().map(|one| &one.job);
    let limit = wait.limit.iter().flat_map(|limit| &limit.holders);
    let licenses = wait.licenses.iter().flat_map(|license| &license.holders);
    let holders = limit.chain(licenses).map(|one| &one.job);
    let depended = wait.dependency.iter().flat_map(|term| &term.jobs).map(|one| &one.job);
    let mut named: Vec<String> =
        ahead.chain(occupants).chain(holders).chain(depended).cloned().collect();
    named.sort_unstable();
    named.dedup();
    named
}
