//! Successive views: what did not change since the last view is the same `Arc` in the next, so that building one costs
//! little and a plan can tell at once what is new.

use crate::config::ClusterConfig;
use crate::state::State;
use crate::state::association_tree::AssociationTree;
use crate::state::job::Job;
use crate::state::priority_totals::PriorityTotals;
use crate::view;
use crate::view::priority::Ranking;
use model::account::Qos;
use model::id::JobId;
use model::partition::Partition;
use model::reservation::Reservation;
use model::time::Timestamp;
use sched::order::fair_tree::BranchRank;
use sched::view::{NodeInfo, PartitionInfo, PendingJob, RunningJob, View};
use std::collections::BTreeSet;
use std::sync::Arc;

/// The last view, and what it was made from.
#[derive(Debug, Default)]
pub struct ViewBuilder {
    inputs: Option<ViewInputs>,
    nodes: Vec<Arc<NodeInfo>>,
    partitions: Vec<PartitionInfo>,
    running: Vec<ViewedJob<RunningJob>>,
    queue: Vec<ViewedJob<PendingJob>>,
}

/// A job with its entry in the last view.
#[derive(Debug)]
struct ViewedJob<T> {
    job: Arc<Job>,
    shown: Arc<T>,
}

/// What a job's entry is built from besides the job itself and the use of nodes.
#[derive(Debug)]
struct ViewInputs {
    config: Arc<ClusterConfig>,
    partitions: Vec<Arc<Partition>>,
    qos: Vec<Arc<Qos>>,
    reservations: Vec<Arc<Reservation>>,
    tree: Arc<AssociationTree>,
    fair_share_ranks: Arc<Vec<BranchRank>>,
    priority_totals: Arc<PriorityTotals>,
    priorities_of: Option<Timestamp>,
    nodes: Vec<String>,
    /// Jobs of before a restore wait for nodes.
    waits_for_nodes: bool,
}

impl ViewInputs {
    fn of(state: &State, ranking: &Ranking<'_>) -> Self {
        Self {
            config: state.config.clone(),
            partitions: state.partitions.clone(),
            qos: state.qos.values().cloned().collect(),
            reservations: state.reservations.values().cloned().collect(),
            tree: ranking.tree.clone(),
            fair_share_ranks: ranking.fair_share_ranks.clone(),
            priority_totals: ranking.priority_totals.clone(),
            priorities_of: state.charged_usage.as_of,
            nodes: state.nodes.keys().cloned().collect(),
            waits_for_nodes: state.restore_wait.is_some(),
        }
    }

    fn is_unchanged(&self, state: &State, ranking: &Ranking<'_>) -> bool {
        Arc::ptr_eq(&self.config, &state.config)
            && are_same(&self.partitions, state.partitions.iter())
            && are_same(&self.qos, state.qos.values())
            && are_same(&self.reservations, state.reservations.values())
            && Arc::ptr_eq(&self.tree, &ranking.tree)
            && Arc::ptr_eq(&self.fair_share_ranks, &ranking.fair_share_ranks)
            && Arc::ptr_eq(&self.priority_totals, &ranking.priority_totals)
            && self.priorities_of == state.charged_usage.as_of
            && self.nodes.iter().eq(state.nodes.keys())
            && self.waits_for_nodes == state.restore_wait.is_some()
    }
}

fn are_same<'a, T: 'a>(known: &[Arc<T>], new: impl ExactSizeIterator<Item = &'a Arc<T>>) -> bool {
    known.len() == new.len() && known.iter().zip(new).all(|(a, b)| Arc::ptr_eq(a, b))
}

impl ViewBuilder {
    /// As [`view::view`], with the unchanged parts of the last view.
    pub fn view(&mut self, state: &State, now: Timestamp) -> View {
        let ranking = Ranking::new(state, now);
        if !self.inputs.as_ref().is_some_and(|inputs| inputs.is_unchanged(state, &ranking)) {
            *self = Self {
                inputs: Some(ViewInputs::of(state, &ranking)),
                partitions: view::partitions(state),
                ..Self::default()
            };
        }
        self.update_nodes(state);
        let index = view::node_index(state);
        let running = |job: &Job| Some(view::running(state, job, &index));
        update_entries(&mut self.running, state, &state.active, |_| true, running);
        let waiting = |job: &Job| view::waiting(state, &ranking, job, now);
        let is_independent = |job: &Job| !depends_on_more(job, &ranking);
        update_entries(&mut self.queue, state, &state.queue, is_independent, waiting);
        View {
            nodes: self.nodes.clone(),
            partitions: self.partitions.clone(),
            running: shown(&self.running),
            queue: shown(&self.queue),
            ..view::site(state)
        }
    }

    fn update_nodes(&mut self, state: &State) {
        for (at, node) in state.nodes.values().enumerate() {
            let Some(known) = self.nodes.get_mut(at) else {
                self.nodes.push(Arc::new(view::node(node)));
                continue;
            };
            let is_same = known.availability == node.availability()
                && known.used == node.used
                && Arc::ptr_eq(&known.config, &node.config);
            if !is_same {
                *known = Arc::new(view::node(node));
            }
        }
    }
}

fn shown<T>(seen: &[ViewedJob<T>]) -> Vec<Arc<T>> {
    seen.iter().map(|seen| seen.shown.clone()).collect()
}

/// Whether a job's entry also depends on other jobs or on the time.
fn depends_on_more(job: &Job, ranking: &Ranking<'_>) -> bool {
    job.pending.is_some()
        || job.begin.is_some()
        || job.spec.dependency.is_some()
        || !job.spec.launch.volumes.is_empty()
        || ranking.limits_ageing
}

/// Brings the entries of these jobs up to date. An entry is rebuilt if the job changed or its entry depends on more than
/// the job, and replaced only if it differs.
fn update_entries<T: PartialEq + std::fmt::Debug>(
    seen: &mut Vec<ViewedJob<T>>,
    state: &State,
    ids: &BTreeSet<JobId>,
    is_independent: impl Fn(&Job) -> bool,
    make: impl Fn(&Job) -> Option<T>,
) {
    let mut known = std::mem::take(seen).into_iter().peekable();
    seen.reserve(ids.len());
    // All are ordered by id: walking in step is quicker than a lookup for each.
    let mut jobs = state.jobs.iter();
    for id in ids {
        let Some((_, job)) = jobs.find(|(at, _)| *at == id) else { break };
        while known.next_if(|seen| seen.job.id < *id).is_some() {}
        let before = known.next_if(|seen| seen.job.id == *id);
        if let Some(before) = before.as_ref().filter(|seen| Arc::ptr_eq(&seen.job, job))
            && is_independent(job)
        {
            debug_assert_eq!(Some(&*before.shown), make(job).as_ref(), "job {id} was not followed");
            seen.push(ViewedJob { job: job.clone(), shown: before.shown.clone() });
            continue;
        }
        let Some(fresh) = make(job) else { continue };
        let same = before.map(|before| before.shown).filter(|shown| **shown == fresh);
        seen.push(ViewedJob { job: job.clone(), shown: same.unwrap_or_else(|| Arc::new(fresh)) });
    }
}
