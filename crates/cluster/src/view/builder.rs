//! Successive views: what did not change since the last view is the same `Arc` in the next, so that building one costs
//! little and a plan can tell at once what is new.
//!
//! The state tells which jobs and nodes changed, as long as they are few. Else the last view is compared with the state, entry by
//! entry. Both give the same view. Now and then it is compared all the same: a change that was not told would never be seen else.

use crate::config::ClusterConfig;
use crate::state::State;
use crate::state::association_tree::AssociationTree;
use crate::state::change_log::{LogPosition, StateChange};
use crate::state::job::Job;
use crate::state::node::Node;
use crate::state::priority_totals::PriorityTotals;
use crate::view;
use crate::view::priority::Ranking;
use foldhash::fast::RandomState;
use model::account::Qos;
use model::id::JobId;
use model::partition::Partition;
use model::reservation::Reservation;
use model::time::Timestamp;
use sched::order::fair_tree::BranchRank;
use sched::view::{NodeInfo, PendingJob, View};
use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Weak};

/// With more jobs to look at than this, a comparison of all is quicker than a search for each.
const FOLLOWED_JOBS_MAX: usize = 64;

/// After so many views that only followed what the state told, one is compared with the whole state.
const FOLLOWED_VIEWS_MAX: u32 = 1_000;

/// Test builds compare one followed view of so many with the whole state: to compare each doubles the time of a history of faults.
const CHECKED_VIEWS: u32 = 8;

/// The last view, and what it was made from.
#[derive(Debug, Default)]
pub struct ViewBuilder {
    inputs: Option<ViewInputs>,
    /// The changes of the state up to here are in the view.
    position: Option<LogPosition>,
    view: View,
    /// The jobs of the view's running entries, in the same order, and those of its queue.
    running: Vec<SeenJob>,
    queue: Vec<SeenJob>,
    /// Waiting jobs whose entries depend on other jobs or on the time, by id.
    dependent: Vec<JobId>,
    /// Views since the last one that was compared with the whole state.
    followed: u32,
}

/// A job as it was when its entry was made. The reference is weak, so that the state changes the job's record without a copy of it. A
/// record that changed is at another address: the reference keeps the old address from being used again.
#[derive(Debug)]
struct SeenJob {
    id: JobId,
    record: Weak<Job>,
}

impl SeenJob {
    fn of(job: &Arc<Job>) -> Self {
        Self { id: job.id, record: Arc::downgrade(job) }
    }

    fn is(&self, job: &Arc<Job>) -> bool {
        std::ptr::eq(self.record.as_ptr(), Arc::as_ptr(job))
    }
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
    longest_waiting: Vec<JobId>,
    nodes: Vec<String>,
    /// Each node's position in the view: every start and every end asks for those of its nodes.
    positions: HashMap<String, u32, RandomState>,
    /// Jobs of before a restore wait for nodes.
    waits_for_nodes: bool,
}

impl ViewInputs {
    fn of(state: &State, ranking: &Ranking<'_>, now: Timestamp) -> Self {
        Self {
            config: state.config.clone(),
            partitions: state.partitions.clone(),
            qos: state.qos.values().cloned().collect(),
            reservations: state.reservations.values().cloned().collect(),
            tree: ranking.tree.clone(),
            fair_share_ranks: ranking.fair_share_ranks.clone(),
            priority_totals: ranking.priority_totals.clone(),
            priorities_of: state.charged_usage.as_of,
            longest_waiting: ranking.longest_waiting(now).to_vec(),
            nodes: state.nodes.keys().cloned().collect(),
            positions: state.nodes.keys().cloned().zip(0..).collect(),
            waits_for_nodes: state.restore_wait.is_some(),
        }
    }

    /// Whether all is the same from which entries are made, but for their priorities.
    fn is_unchanged(&self, state: &State, ranking: &Ranking<'_>) -> bool {
        Arc::ptr_eq(&self.config, &state.config)
            && are_same(&self.partitions, state.partitions.iter())
            && are_same(&self.qos, state.qos.values())
            && are_same(&self.reservations, state.reservations.values())
            && Arc::ptr_eq(&self.tree, &ranking.tree)
            && self.waits_for_nodes == state.restore_wait.is_some()
    }

    /// Whether priorities are worked out from the same.
    fn has_priorities_of(&self, state: &State, ranking: &Ranking<'_>, now: Timestamp) -> bool {
        Arc::ptr_eq(&self.fair_share_ranks, &ranking.fair_share_ranks)
            && Arc::ptr_eq(&self.priority_totals, &ranking.priority_totals)
            && self.priorities_of == state.charged_usage.as_of
            && self.longest_waiting == ranking.longest_waiting(now)
    }

    fn take_priorities_of(&mut self, state: &State, ranking: &Ranking<'_>, now: Timestamp) {
        self.fair_share_ranks.clone_from(&ranking.fair_share_ranks);
        self.priority_totals.clone_from(&ranking.priority_totals);
        self.priorities_of = state.charged_usage.as_of;
        self.longest_waiting = ranking.longest_waiting(now).to_vec();
    }

    /// Whether the state has the same nodes, whatever is on them.
    fn has_nodes_of(&self, state: &State) -> bool {
        self.nodes.len() == state.nodes.len() && self.nodes.iter().eq(state.nodes.keys())
    }

    /// A node's position in the view.
    fn node(&self, name: &str) -> Option<u32> {
        self.positions.get(name).copied()
    }
}

fn are_same<'a, T: 'a>(known: &[Arc<T>], new: impl ExactSizeIterator<Item = &'a Arc<T>>) -> bool {
    known.len() == new.len() && known.iter().zip(new).all(|(a, b)| Arc::ptr_eq(a, b))
}

impl ViewBuilder {
    /// As [`view::view`], with the unchanged parts of the last view.
    pub fn view(&mut self, state: &State, now: Timestamp) -> View {
        self.update(state, now).clone()
    }

    /// The same without a copy, until the next.
    pub fn update(&mut self, state: &State, now: Timestamp) -> &View {
        let ranking = Ranking::new(state, now);
        let known = self.inputs.as_ref();
        let has_inputs = known.is_some_and(|inputs| inputs.is_unchanged(state, &ranking));
        let has_priorities =
            known.is_some_and(|inputs| inputs.has_priorities_of(state, &ranking, now));
        let may_follow = has_inputs && self.followed < FOLLOWED_VIEWS_MAX;
        if may_follow && self.follow(state, &ranking, now) {
            if !has_priorities {
                self.set_priorities(state, &ranking, now);
            }
            debug_assert!(
                !self.followed.is_multiple_of(CHECKED_VIEWS) || self.is_as_made_anew(state, now),
                "a change of the state was not followed"
            );
            self.followed += 1;
        } else {
            self.compare(state, &ranking, now, has_inputs && has_priorities);
            self.followed = 0;
        }
        self.position = Some(state.change_log.position());
        view::set_site(&mut self.view, state);
        &self.view
    }

    /// Brings the entries up to date that the state's changes name. Returns false if there are too many, or not all are known.
    fn follow(&mut self, state: &State, ranking: &Ranking<'_>, now: Timestamp) -> bool {
        let position = self.position.as_ref();
        let Some(changes) = position.and_then(|position| state.change_log.since(position)) else {
            return false;
        };
        // With a limit on how many jobs may age, every entry depends on the others.
        if ranking.limits_ageing {
            return false;
        }
        let mut jobs = self.dependent.clone();
        let mut nodes = Vec::new();
        for change in changes {
            match change {
                StateChange::Job(id) => jobs.push(*id),
                StateChange::Node(name) => nodes.push(name),
            }
        }
        jobs.sort_unstable();
        jobs.dedup();
        let Some(inputs) = self.inputs.as_ref().filter(|_| jobs.len() <= FOLLOWED_JOBS_MAX) else {
            return false;
        };
        for name in nodes {
            let (Some(at), Some(node)) = (inputs.node(name), state.nodes.get(name)) else {
                return false;
            };
            update_node(&mut self.view.nodes[at as usize], node);
        }
        self.dependent.clear();
        let position = |name: &str| inputs.node(name);
        for id in jobs {
            let job = state.jobs.get(&id);
            let active = job.filter(|_| state.active.contains(&id));
            let running = |job: &Job| Some(view::running(state, job, &position));
            update_entry(&mut self.running, &mut self.view.running, id, active, running);
            let waiting = job.filter(|_| state.queue.contains(&id));
            let make = |job: &Job| view::waiting(state, ranking, job, now);
            update_entry(&mut self.queue, &mut self.view.queue, id, waiting, make);
            self.dependent.extend(waiting.filter(|job| depends_on_more(job, ranking)).map(|_| id));
        }
        true
    }

    /// Works out the priorities of the queue, where nothing else is new: a period ended, or others wait longest. Nothing of a
    /// running job depends on it.
    fn set_priorities(&mut self, state: &State, ranking: &Ranking<'_>, now: Timestamp) {
        for entry in &mut self.view.queue {
            let Some(job) = state.job(entry.job) else { continue };
            let in_partitions = ranking.priorities(job, &entry.partitions, now);
            let (priority, priorities) = view::shown_priorities(in_partitions);
            if (entry.priority, &entry.priorities) != (priority, &priorities) {
                *entry = Arc::new(PendingJob { priority, priorities, ..(**entry).clone() });
            }
        }
        if let Some(inputs) = &mut self.inputs {
            inputs.take_priorities_of(state, ranking, now);
        }
    }

    /// Brings every entry up to date. With other inputs all are made, and what comes out as it was stays the same `Arc`: a new
    /// period of priorities changes no running job. With other nodes nothing stays, since entries have their positions.
    fn compare(&mut self, state: &State, ranking: &Ranking<'_>, now: Timestamp, has_inputs: bool) {
        let has_nodes = self.inputs.as_ref().is_some_and(|inputs| inputs.has_nodes_of(state));
        if !has_nodes {
            *self = Self::default();
        }
        let is_comparable = has_inputs && has_nodes;
        if !is_comparable {
            self.inputs = Some(ViewInputs::of(state, ranking, now));
            self.view.partitions = view::partitions(state);
        }
        self.update_nodes(state);
        let index = view::node_index(state);
        let running = |job: &Job| Some(view::running(state, job, &|name| index.get(name)));
        let (jobs, entries) = (&mut self.running, &mut self.view.running);
        update_entries(jobs, entries, state, &state.active, |_| is_comparable, running);
        let waiting = |job: &Job| view::waiting(state, ranking, job, now);
        let is_independent = |job: &Job| is_comparable && !depends_on_more(job, ranking);
        let (jobs, entries) = (&mut self.queue, &mut self.view.queue);
        update_entries(jobs, entries, state, &state.queue, is_independent, waiting);
        let waiting = self.queue.iter().filter_map(|seen| state.job(seen.id));
        let dependent = waiting.filter(|job| depends_on_more(job, ranking));
        self.dependent = dependent.map(|job| job.id).collect();
    }

    fn update_nodes(&mut self, state: &State) {
        for (at, node) in state.nodes.values().enumerate() {
            match self.view.nodes.get_mut(at) {
                Some(known) => update_node(known, node),
                None => self.view.nodes.push(Arc::new(view::node(node))),
            }
        }
    }

    fn is_as_made_anew(&self, state: &State, now: Timestamp) -> bool {
        let anew = view::view(state, now);
        let are_alike = |(a, b): (&Arc<NodeInfo>, &Arc<NodeInfo>)| {
            (a.availability, &a.used) == (b.availability, &b.used)
        };
        self.view.nodes.len() == anew.nodes.len()
            && self.view.nodes.iter().zip(&anew.nodes).all(are_alike)
            && self.view.running == anew.running
            && self.view.queue == anew.queue
    }
}

fn update_node(known: &mut Arc<NodeInfo>, node: &Node) {
    let is_same = known.availability == node.availability()
        && known.used == node.used
        && Arc::ptr_eq(&known.config, &node.config);
    if !is_same {
        *known = Arc::new(view::node(node));
    }
}

/// Whether a job's entry also depends on other jobs or on the time.
fn depends_on_more(job: &Job, ranking: &Ranking<'_>) -> bool {
    job.pending.is_some()
        || job.task.is_some()
        || job.begin.is_some()
        || job.spec.dependency.is_some()
        || !job.spec.launch.volumes.is_empty()
        || ranking.limits_ageing
}

/// Brings the entry of one job up to date; `job` is `None` if it has none any more. The entry is replaced only if it differs.
fn update_entry<T: PartialEq>(
    jobs: &mut Vec<SeenJob>,
    entries: &mut Vec<Arc<T>>,
    id: JobId,
    job: Option<&Arc<Job>>,
    make: impl FnOnce(&Job) -> Option<T>,
) {
    let known = jobs.binary_search_by_key(&id, |seen| seen.id);
    let fresh = job.and_then(|job| Some((SeenJob::of(job), make(job)?)));
    match (known, fresh) {
        (Ok(at), Some((seen, fresh))) => {
            jobs[at] = seen;
            if *entries[at] != fresh {
                entries[at] = Arc::new(fresh);
            }
        }
        (Ok(at), None) => {
            jobs.remove(at);
            entries.remove(at);
        }
        (Err(at), Some((seen, fresh))) => {
            jobs.insert(at, seen);
            entries.insert(at, Arc::new(fresh));
        }
        (Err(_), None) => {}
    }
}

/// Brings the entries of these jobs up to date. An entry is rebuilt if the job changed or its entry depends on more than
/// the job, and replaced only if it differs.
fn update_entries<T: PartialEq + std::fmt::Debug>(
    jobs: &mut Vec<SeenJob>,
    entries: &mut Vec<Arc<T>>,
    state: &State,
    ids: &BTreeSet<JobId>,
    is_independent: impl Fn(&Job) -> bool,
    make: impl Fn(&Job) -> Option<T>,
) {
    let mut known = std::mem::take(jobs).into_iter().zip(std::mem::take(entries)).peekable();
    jobs.reserve(ids.len());
    entries.reserve(ids.len());
    // All are ordered by id: walking in step is quicker than a lookup for each.
    let mut all = state.jobs.iter();
    for id in ids {
        let Some((_, job)) = all.find(|(at, _)| *at == id) else { break };
        while known.next_if(|(before, _)| before.id < *id).is_some() {}
        let before = known.next_if(|(before, _)| before.id == *id);
        let shown = match before {
            Some((before, shown)) if before.is(job) && is_independent(job) => {
                debug_assert_eq!(Some(&*shown), make(job).as_ref(), "job {id} was not followed");
                shown
            }
            before => {
                let Some(fresh) = make(job) else { continue };
                let same = before.map(|(_, shown)| shown).filter(|shown| **shown == fresh);
                same.unwrap_or_else(|| Arc::new(fresh))
            }
        };
        jobs.push(SeenJob::of(job));
        entries.push(shown);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn view_is_compared_with_the_whole_state_now_and_then() {
        let (mut builder, state) = (ViewBuilder::default(), State::default());
        let mut followed = || {
            builder.update(&state, Timestamp(0));
            builder.followed
        };
        let counts: Vec<u32> = (0..=FOLLOWED_VIEWS_MAX + 1).map(|_| followed()).collect();
        assert_eq!(counts.iter().max(), Some(&FOLLOWED_VIEWS_MAX));
        assert_eq!(counts.last(), Some(&0));
    }
}
