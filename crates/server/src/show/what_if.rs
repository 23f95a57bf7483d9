//! `sluice sim --live`: what would change for the jobs that wait if nodes came or went, or under another configuration.

use crate::configure;
use crate::shared::Shared;
use crate::shared::forecast_queue::{BothEstimates, Hypothesis};
use cluster::State;
use cluster::authorise::{Act, authorise};
use model::bounds;
use model::id::JobId;
use model::principal::Principal;
use model::reason::Refusal;
use model::time::Timestamp;
use sched::query::what_if::NodeChanges;
use sched::view::Estimate;
use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use wire::client::Answer;
use wire::what_if::{ChangedStart, WhatIfQuery, WhatIfView};

/// The most jobs that an answer names.
const CHANGES_MAX: usize = 1_000;

/// Starts that are less apart are taken as the same.
const SAME_START: Duration = Duration::from_secs(60);

pub async fn what_if(
    shared: &Arc<Shared>,
    by: &Principal,
    query: WhatIfQuery,
) -> Result<Answer, Refusal> {
    // It is about the jobs of all users, and takes two forecasts of the whole queue.
    let act = if query.files.is_some() { Act::Administer } else { Act::Operate };
    authorise(&shared.read(), by, act)?;
    check(&query)?;
    let WhatIfQuery { added, removed, files } = query;
    let config = files.map(|files| {
        // The names of its files are all that the folder says: nothing is read from this machine.
        let machine = shared.setup.machine.as_ref();
        configure::load_given(Path::new("/"), files, machine).map(Box::new)
    });
    let config = config.transpose().map_err(|error| Refusal::Other(error.to_string()))?;
    let added = added.into_iter().map(|added| (added.count, added.like)).collect();
    let changes = NodeChanges { added, removed };
    match shared.forecasts.what_if(Hypothesis { changes, config, by: by.clone() }).await {
        Some(estimates) => Ok(Answer::WhatIf(compared(&shared.read(), &estimates?))),
        None => Err(Refusal::Other("the server has no time for estimates now".into())),
    }
}

fn check(query: &WhatIfQuery) -> Result<(), Refusal> {
    let most = bounds::NODES.most as u64;
    let added: u64 = query.added.iter().map(|added| u64::from(added.count)).sum();
    let nodes = added + query.removed.len() as u64 + query.added.len() as u64;
    if nodes <= most {
        return Ok(());
    }
    Err(Refusal::InvalidValue {
        what: bounds::NODES.what.into(),
        value: nodes.to_string(),
        expected: format!("at most {most}"),
    })
}

fn compared(state: &State, estimates: &BothEstimates) -> WhatIfView {
    let by_job = |estimates: &[Estimate]| -> HashMap<JobId, Timestamp> {
        estimates.iter().map(|estimate| (estimate.job, estimate.start)).collect()
    };
    let (now, then) = (by_job(&estimates.now), by_job(&estimates.then));
    let jobs: BTreeSet<JobId> = now.keys().chain(then.keys()).copied().collect();
    let mut view = WhatIfView { jobs: estimates.waiting, ..WhatIfView::default() };
    let mut changes: Vec<(Duration, ChangedStart)> = Vec::new();
    for id in jobs {
        let (start, start_then) = (now.get(&id).copied(), then.get(&id).copied());
        let Some((shift, is_earlier)) = shift(start, start_then) else { continue };
        view.earlier += u32::from(is_earlier);
        view.later += u32::from(!is_earlier);
        let Some(job) = state.job(id) else { continue };
        let (name, user) = (job.spec.name.to_string(), job.spec.owner.name.clone());
        let change = ChangedStart { job: job.shown_id(), name, user, start, start_then };
        changes.push((shift, change));
    }
    changes.sort_by_key(|(shift, _)| Reverse(*shift));
    changes.truncate(CHANGES_MAX);
    view.changes = changes.into_iter().map(|(_, change)| change).collect();
    view
}

/// How far the start moves, and whether to an earlier time; `None` if it stays. A start that cannot be foreseen is the latest.
fn shift(start: Option<Timestamp>, start_then: Option<Timestamp>) -> Option<(Duration, bool)> {
    match (start, start_then) {
        (None, None) => None,
        (None, Some(_)) => Some((Duration::MAX, true)),
        (Some(_), None) => Some((Duration::MAX, false)),
        (Some(start), Some(then)) => {
            let shift = start.since(then).max(then.since(start));
            (shift >= SAME_START).then_some((shift, then < start))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn starts_that_move_by_a_minute_are_told_and_those_that_are_not_foreseen_come_last() {
        let at = |secs: i64| Some(Timestamp::from_secs(secs));
        let moved = |secs: u64, is_earlier: bool| Some((Duration::from_secs(secs), is_earlier));
        assert_eq!(shift(at(600), at(0)), moved(600, true));
        assert_eq!(shift(at(0), at(600)), moved(600, false));
        assert_eq!(shift(at(0), at(59)), None);
        assert_eq!(shift(None, at(0)), Some((Duration::MAX, true)));
        assert_eq!(shift(at(0), None), Some((Duration::MAX, false)));
        assert_eq!(shift(None, None), None);
    }
}
