//! The priorities of jobs, by the configured plugin.

use crate::billing::bill;
use crate::dependency::Dependencies;
use crate::requested::{effective_limit, requested_tres};
use crate::state::State;
use crate::state::association_tree::AssociationTree;
use crate::state::job::Job;
use crate::state::priority_totals::PriorityTotals;
use foldhash::fast::RandomState;
use model::dependency::DependencyState;
use model::id::JobId;
use model::priority::{Factors, PriorityPolicy};
use model::time::Timestamp;
use model::tres::TresKind;
use sched::order::expansion;
use sched::order::fair_tree::BranchRank;
use sched::order::multifactor::{self, PriorityInputs};
use std::cell::OnceCell;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

/// Computes priorities; its inputs are collected once for a view.
pub struct Ranking<'a> {
    state: &'a State,
    pub dependencies: Dependencies<'a>,
    pub(crate) tree: Arc<AssociationTree>,
    pub(crate) fair_share_ranks: Arc<Vec<BranchRank>>,
    pub(crate) priority_totals: Arc<PriorityTotals>,
    /// The end of the last period: ages count up to then.
    as_of: Option<Timestamp>,
    /// Some limit on how many jobs may age at a time is set.
    pub(crate) limits_ageing: bool,
    /// Jobs beyond such a limit, which do not age.
    ageless: HashSet<JobId>,
    /// By expansion factor: the jobs that come first because they have waited longest, by id; found when first asked for.
    longest_waiting: OnceCell<Vec<JobId>>,
}

impl<'a> Ranking<'a> {
    pub fn new(state: &'a State, now: Timestamp) -> Self {
        Self::with_period_end(state, now, state.charged_usage.as_of)
    }

    /// The same as if the last period had ended at `as_of`.
    pub fn with_period_end(state: &'a State, now: Timestamp, as_of: Option<Timestamp>) -> Self {
        let mut ranking = Self {
            state,
            as_of,
            dependencies: Dependencies::new(state, now),
            tree: state.tree(),
            fair_share_ranks: state.fair_share_ranks(),
            priority_totals: state.priority_totals(),
            limits_ageing: false,
            ageless: HashSet::new(),
            longest_waiting: OnceCell::new(),
        };
        ranking.limits_ageing = ranking.has_accrual_limits();
        if ranking.limits_ageing {
            ranking.ageless = ranking.beyond_accrual(now);
        }
        ranking
    }

    fn policy(&self) -> &'a PriorityPolicy {
        &self.state.config.parameters.priority
    }

    /// The association that the job is charged to in this partition.
    pub fn association(&self, job: &Job, partition: Option<&str>) -> Option<u32> {
        self.tree.find(&job.account, &job.spec.owner.name, partition)
    }

    /// The priority in each of these partitions; a single one if all are equal.
    pub fn priorities(&self, job: &Job, partitions: &[u32], now: Timestamp) -> Vec<u64> {
        let policy = self.policy();
        if !policy.is_computed() || job.priority_set {
            return vec![job.kept_priority(policy)];
        }
        if policy.expansion {
            return vec![job.run_precedence(policy) + self.by_expansion(job, now)];
        }
        let mut all: Vec<u64> = partitions
            .iter()
            .map(|at| multifactor::priority(&policy.weights, &self.factors(job, *at, now)))
            .collect();
        if all.windows(2).all(|pair| pair[0] == pair[1]) {
            all.truncate(1);
        }
        all
    }

    /// The priority to show, which is the one that orders the queue: the highest among the job's partitions.
    pub fn shown(&self, job: &Job, now: Timestamp) -> u64 {
        if !self.policy().is_computed() || job.priority_set || !job.is_waiting() {
            return job.kept_priority(self.policy());
        }
        let asked = &job.spec.request().partitions;
        let partitions = self.state.known_partition_indices(asked).unwrap_or_default();
        self.priorities(job, &partitions, now).into_iter().max().unwrap_or(job.priority)
    }

    /// The same of one job alone, without a look at the whole queue: every start asks for one.
    pub fn shown_of_one(state: &'a State, job: &Job, now: Timestamp) -> u64 {
        let ranking = Self::new(state, now);
        let first = ranking.is_longest_waiting(job, now).then_some(job.id);
        let longest_waiting = OnceCell::from(Vec::from_iter(first));
        Self { longest_waiting, ..ranking }.shown(job, now)
    }

    /// The priority by expansion factor. A job is expected to run no longer than it may.
    fn by_expansion(&self, job: &Job, now: Timestamp) -> u64 {
        let limit = effective_limit(self.state, job).zero_is_unlimited();
        let exact_s = job.spec.launch.exact_limit(limit).map(|limit| limit.as_secs());
        let most_s = exact_s.or(limit.secs()).unwrap_or(u64::MAX);
        let expected_s = job.expected_s.map_or(most_s, |s| most_s.min(s.into()));
        let waited_s = self.waited_s(job, now);
        let max_age_s = self.policy().max_age_s;
        let is_first = || self.longest_waiting(now).binary_search(&job.id).is_ok();
        let is_longest = waited_s >= max_age_s && is_first();
        let priority = expansion::priority(waited_s, expected_s, max_age_s, is_longest);
        let shift = i64::from(job.site_factor) - i64::from(job.spec.nice);
        priority.saturating_add_signed(shift).clamp(1, u64::from(u32::MAX))
    }

    /// The jobs that come first because of their age, by id: of those that have waited for the maximum age, the first few that were
    /// submitted to the same partitions.
    pub(crate) fn longest_waiting(&self, now: Timestamp) -> &[JobId] {
        self.longest_waiting.get_or_init(|| {
            let mut longest = Vec::new();
            if !self.policy().expansion {
                return longest;
            }
            let mut counts: HashMap<&[String], usize, RandomState> = HashMap::default();
            for job in self.state.queue.iter().filter_map(|id| self.state.job(*id)) {
                let count = counts.entry(&job.spec.request().partitions).or_default();
                if *count < expansion::FIRST_MAX && self.is_aged(job, now) {
                    *count += 1;
                    longest.push(job.id);
                }
            }
            longest
        })
    }

    /// Whether the job is among those, without a look at the jobs behind it.
    fn is_longest_waiting(&self, job: &Job, now: Timestamp) -> bool {
        if !self.policy().expansion || !self.is_aged(job, now) {
            return false;
        }
        let partitions = &job.spec.request().partitions;
        let before = self.state.queue.range(..job.id).filter_map(|id| self.state.job(*id));
        let of_partitions = before.filter(|other| other.spec.request().partitions == *partitions);
        let aged = of_partitions.filter(|other| self.is_aged(other, now));
        aged.take(expansion::FIRST_MAX).count() < expansion::FIRST_MAX
    }

    /// Whether the job has waited for the maximum age and takes a place among the first. A job that may not start yet takes none, nor
    /// does a het job with a component that may not; all components of one take one place, their leader's.
    fn is_aged(&self, job: &Job, now: Timestamp) -> bool {
        let Some(as_of) = self.as_of else { return false };
        let max_age_s = self.policy().max_age_s;
        let since_submit_s = (as_of.secs() - job.submit.secs()).max(0) as u64;
        // No job has waited for longer than since it was submitted, which is quicker to see.
        since_submit_s >= max_age_s
            && !job.priority_set
            && job.het.is_none_or(|component| component.is_leader())
            && self.all_age(job, now)
            && self.waited_s(job, now) >= max_age_s
    }

    /// Whether the job ages, and with it every component of its het job: they start together.
    fn all_age(&self, job: &Job, now: Timestamp) -> bool {
        match job.het {
            None => self.ages(job, now),
            Some(component) => {
                let mut jobs = component.jobs().filter_map(|id| self.state.job(id));
                jobs.all(|other| self.ages(other, now))
            }
        }
    }

    /// The priority factors of a job in one partition.
    pub fn factors(&self, job: &Job, partition: u32, now: Timestamp) -> Factors {
        let state = self.state;
        let request = job.spec.request();
        let info = &state.partitions[partition as usize];
        let member = self.association(job, Some(&info.name));
        let of_member = |get: &dyn Fn(u32) -> Option<u32>| member.and_then(get).unwrap_or(0);
        let mut tres = requested_tres(state, job);
        let billed = bill(state, &info.name, &tres);
        tres.set(TresKind::Billing, billed);
        let limit = request.time_limit.or(info.default_time).unwrap_or(info.max_time);
        let year = 365 * 24 * 60;
        let facts = PriorityInputs {
            waited_s: self.waited_s(job, now),
            association_priority: of_member(&|at| self.tree.nearest(at, |a| a.priority)),
            fair_share: member
                .and_then(|at| self.fair_share_ranks.get(at as usize)?.fair_share)
                .unwrap_or(0.0),
            nodes: u64::from(request.nodes.min),
            cpus: u64::from(request.cpu_count()),
            minutes: limit.zero_is_unlimited().minutes().map_or(year, u64::from),
            partition_priority: info.priority_job_factor,
            qos_priority: state.qos.get(&*job.qos).map_or(0, |qos| qos.priority),
            tres: &tres,
            partition_tres: &self.priority_totals.partitions[partition as usize],
            dstack: job.spec.dstack_priority.unwrap_or(0),
            site: i64::from(job.site_factor),
            nice: i64::from(job.spec.nice),
        };
        multifactor::factors(self.policy(), &self.priority_totals.scale, &facts)
    }

    /// Seconds that count towards the job's age, up to the end of the last period: priorities change only then.
    fn waited_s(&self, job: &Job, now: Timestamp) -> u64 {
        let Some(as_of) = self.as_of else { return 0 };
        let from = if self.policy().flags.accrue_always {
            job.submit
        } else if self.ageless.contains(&job.id) || !self.ages(job, now) {
            return 0;
        } else {
            job.begin.map_or(job.submit, |begin| begin.max(job.submit))
        };
        let from = job.accrues_from.map_or(from, |anew| anew.max(from));
        (as_of.secs() - from.secs()).max(0) as u64
    }

    /// Whether only a lack of resources keeps the job waiting. A held or dependent job does not age.
    fn ages(&self, job: &Job, now: Timestamp) -> bool {
        job.hold.is_none()
            && job.begin.is_none_or(|begin| begin <= now)
            && self.dependencies.state_of(job) == DependencyState::Fulfilled
    }

    fn has_accrual_limits(&self) -> bool {
        let policy = self.policy();
        if !policy.is_computed() || policy.flags.accrue_always {
            return false;
        }
        let of_qos = self.state.qos.values().any(|q| {
            let limits =
                [q.group_jobs_accrue, q.max_jobs_accrue_per_user, q.max_jobs_accrue_per_account];
            limits.iter().any(Option::is_some)
        });
        let of_member = |(a, _): &(Arc<model::account::Association>, _)| {
            a.limits.group_jobs_accrue.or(a.limits.max_jobs_accrue).is_some()
        };
        of_qos || self.tree.members.iter().any(of_member)
    }

    /// The jobs that do not age because enough older ones of the same user, account or QOS do.
    fn beyond_accrual(&self, now: Timestamp) -> HashSet<JobId> {
        let state = self.state;
        let mut counted: BTreeMap<AccrualScope, u64> = BTreeMap::new();
        let mut beyond = HashSet::new();
        for job in state.jobs.values().filter(|job| job.is_waiting() && self.ages(job, now)) {
            let holders = self.accrual_limits(job);
            let tasks = job.pending.as_ref().map_or(1, |p| p.indices.len());
            let count = |holder: &AccrualScope| counted.get(holder).copied().unwrap_or(0);
            if holders.iter().any(|(holder, most)| count(holder) + tasks > u64::from(*most)) {
                beyond.insert(job.id);
                continue;
            }
            for (holder, _) in holders {
                *counted.entry(holder).or_insert(0) += tasks;
            }
        }
        beyond
    }

    /// The limits on ageing that apply to a job; those of a QOS come before those of associations.
    fn accrual_limits(&self, job: &Job) -> Vec<(AccrualScope, u32)> {
        let mut limits = Vec::new();
        let qos = self.state.qos.get(&*job.qos);
        let name = || job.qos.to_string();
        let group = qos.and_then(|q| q.group_jobs_accrue);
        let user = qos.and_then(|q| q.max_jobs_accrue_per_user);
        let account = qos.and_then(|q| q.max_jobs_accrue_per_account);
        let uid = job.spec.owner.uid;
        limits.extend(group.map(|most| (AccrualScope::Qos(name()), most)));
        limits.extend(user.map(|most| (AccrualScope::QosUser(name(), uid), most)));
        let of = |most| (AccrualScope::QosAccount(name(), job.account.to_string()), most);
        limits.extend(account.map(of));
        let Some(at) = self.association(job, None) else { return limits };
        if user.is_none()
            && let Some(most) = self.tree.nearest(at, |a| a.limits.max_jobs_accrue)
        {
            limits.push((AccrualScope::Member(at, false), most));
        }
        if group.is_none() {
            for (above, association) in self.tree.places(at) {
                let most = association.limits.group_jobs_accrue;
                limits.extend(most.map(|most| (AccrualScope::Member(above, true), most)));
            }
        }
        limits
    }
}

/// The QOS, user or account whose ageing jobs a limit on accrual counts.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum AccrualScope {
    Qos(String),
    QosUser(String, u32),
    QosAccount(String, String),
    /// An association by index, with all below it or alone.
    Member(u32, bool),
}
