//! `sshare` and `sprio`: the associations with what they used, and the factors of priorities.

use crate::shared::Shared;
use crate::show::job_view::array_view;
use cluster::view;
use cluster::view::priority::Ranking;
use cluster::visibility::Viewer;
use model::principal::Principal;
use model::private_data::PrivateKind;
use model::time::Timestamp;
use sched::order::multifactor;
use std::cmp::Reverse;
use wire::view::{PrioritiesView, PriorityView, ShareView, SharesView};

pub fn shares(shared: &Shared, by: &Principal, now: Timestamp) -> SharesView {
    let state = shared.read();
    let tree = state.tree();
    let standings = state.fair_share_ranks();
    let spent = state.raw_usage_with_children(&tree);
    let run_minutes = sched::run_minutes(&view::running_jobs(&state), now);
    let ranked: f64 = state.charged_usage.ranked.values().sum();
    // The usage that each had when it was ranked, over that of all.
    let mut ranked_of: Vec<f64> = tree
        .members
        .iter()
        .map(|(a, _)| state.charged_usage.ranked.get(&a.key()).copied().unwrap_or(0.0))
        .collect();
    for at in (1..ranked_of.len()).rev() {
        if let Some(parent) = tree.members[at].1 {
            ranked_of[parent as usize] += ranked_of[at];
        }
    }
    let mut depths: Vec<u32> = Vec::with_capacity(tree.members.len());
    for (_, parent) in &tree.members {
        depths.push(parent.map_or(0, |parent| depths[parent as usize] + 1));
    }
    let viewer = Viewer::new(&state, by);
    let shown = |at: &usize| viewer.usage(&tree.members[*at].0);
    let row = |at: usize| ShareView {
        association: (*tree.members[at].0).clone(),
        id: at as u32 + 1,
        depth: depths[at],
        shares: standings[at].shares,
        effective_usage: standings[at].usage,
        usage: (at > 0 && ranked > 0.0).then(|| ranked_of[at] / ranked),
        level: Some(standings[at].level).filter(|level| level.is_finite()),
        fair_share: standings[at].fair_share,
        raw_usage: spent[at].clone(),
        run_minutes: run_minutes[at].clone(),
    };
    SharesView {
        cluster: state.config.name.clone(),
        basic: !state.config.parameters.priority.multifactor,
        gres: state.config.parameters.gres_types.clone(),
        rows: (0..tree.members.len()).filter(shown).map(row).collect(),
        qos: if viewer.is_denied(PrivateKind::Usage) {
            Default::default()
        } else {
            state.charged_usage.qos.clone()
        },
    }
}

pub fn priorities(shared: &Shared, by: &Principal, now: Timestamp) -> PrioritiesView {
    let state = shared.read();
    let policy = &state.config.parameters.priority;
    let ranking = Ranking::new(&state, now);
    let mut jobs = Vec::new();
    let viewer = Viewer::new(&state, by);
    let waiting = state.jobs.values().filter(|job| job.is_waiting() && job.hold.is_none());
    let waiting = waiting.filter(|job| viewer.job(job));
    for job in waiting.filter(|_| policy.multifactor) {
        let asked = &job.spec.request().partitions;
        let mut partitions = state.known_partition_indices(asked).unwrap_or_default();
        partitions.sort_by_key(|at| Reverse(state.partitions[*at as usize].priority_tier));
        for at in partitions {
            let priority = ranking.priorities(job, &[at], now).first().copied().unwrap_or(0);
            // A priority that was set by hand has no factors.
            let factors =
                if job.priority_set { Default::default() } else { ranking.factors(job, at, now) };
            jobs.push(PriorityView {
                job: job.id,
                array: array_view(&state, job, None).map(|array| *array),
                user: job.spec.owner.name.clone(),
                account: job.account.to_string(),
                qos: job.qos.to_string(),
                partition: state.partitions[at as usize].name.clone(),
                priority,
                sum: if job.priority_set {
                    priority as f64
                } else {
                    multifactor::sum(&policy.weights, &factors)
                },
                set: job.priority_set,
                factors,
            });
        }
    }
    PrioritiesView {
        cluster: state.config.name.clone(),
        basic: !policy.multifactor,
        weights: policy.weights.clone(),
        jobs,
    }
}
