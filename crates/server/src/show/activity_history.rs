//! The audit trail: who did what beside the jobs, from the books.

use crate::shared::Shared;
use cluster::visibility::Viewer;
use model::activity::{Activity, ActivityFilter};
use model::principal::Principal;
use model::reason::Refusal;

/// The activities that the filter wants, as far as the caller is shown them, the oldest first.
pub fn activity_history(
    shared: &Shared,
    by: &Principal,
    filter: &ActivityFilter,
) -> Result<Vec<Activity>, Refusal> {
    let mut found = {
        let reader = shared.books.reader.lock().expect("no panic with the reader held");
        reader.activities(filter).map_err(|e| Refusal::Other(e.to_string()))?
    };
    let state = shared.read();
    let viewer = Viewer::new(&state, by);
    found.retain(|activity| viewer.audited(activity));
    // Who drained a node is not told to whom users are private.
    for activity in &mut found {
        activity.actor.take_if(|actor| !viewer.user(actor));
    }
    Ok(found)
}
