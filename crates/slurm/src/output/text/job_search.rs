//! Whether a job is one that somebody looks for by a part of what a list shows of it.

use super::job_text;
use crate::words;
use wire::view::JobView;

/// Whether the job's id, name, user, account, partition, state, node or reason contains `text`, which is in lower case.
pub fn contains(job: &JobView, text: &str) -> bool {
    let has = |shown: &str| shown.to_lowercase().contains(text);
    let id = || {
        let mut id = String::new();
        job_text::push_id(&mut id, job, None);
        id
    };
    has(&job.name)
        || has(&job.spec.owner.name)
        || has(&job.partition)
        || has(&job.account)
        || has(words::job::long(job.state))
        || has(&id())
        || (job.state.is_waiting() && has(&words::reason::text(&job.reason)))
        || job.allocation.iter().flat_map(|all| all.node_names()).any(has)
}
