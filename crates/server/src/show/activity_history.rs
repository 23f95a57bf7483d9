//! The audit trail: who did what beside the jobs, from the books.

use crate::shared::Shared;
use cluster::visibility::Viewer;
use model::activity::{Activity, ActivityFilter};
use model::principal::Principal;
use model::reason::Refusal;
use store::books::ACTIVITIES_MAX;

/// The activities that the filter wants, as far as the caller is shown them, the oldest first; of too many the newest.
pub fn activity_history(
    shared: &Shared,
    by: &Principal,
    filter: &ActivityFilter,
) -> Result<Vec<Activity>, Refusal> {
    let is_shown_all = Viewer::new(&shared.read(), by).is_shown_whole_audit();
    let shown_to = (!is_shown_all).then_some(by.name.as_str());
    let mut found = booked(shared, filter, shown_to)?;
    let state = shared.read();
    let viewer = Viewer::new(&state, by);
    found.retain(|activity| viewer.audited(activity));
    // Who drained a node is not told to whom users are private.
    for activity in &mut found {
        activity.actor.take_if(|actor| !viewer.user(actor));
    }
    Ok(found)
}

/// The activities that the filter wants, the oldest first, whoever is to be shown them; with `shown_to` only what this user did, and
/// what became of nodes.
pub fn booked(
    shared: &Shared,
    filter: &ActivityFilter,
    shown_to: Option<&str>,
) -> Result<Vec<Activity>, Refusal> {
    let mut found: Vec<Activity> = Vec::new();
    let mut before = None;
    while found.len() < ACTIVITIES_MAX {
        // Others read the books between two pages.
        let page = {
            let reader = shared.books.reader.lock().expect("no panic with the reader held");
            reader.activities(filter, shown_to, before)
        };
        let page = page.map_err(|e| Refusal::Other(e.to_string()))?;
        found.extend(page.found);
        before = page.next;
        if before.is_none() {
            break;
        }
    }
    found.truncate(ACTIVITIES_MAX);
    found.reverse();
    Ok(found)
}
