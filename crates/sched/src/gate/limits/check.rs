//! The first limit that a job would break.

use super::claimant::{Claimant, minutes};
use super::table::{AssociationRow, CountedOver, GROUP_ROWS, INHERITED_ROWS, Measure, QOS_ROWS};
use super::usage::{JobUsage, Usage, UsageTotals};
use model::account::{AssociationLimits, Qos, QosFlag};
use model::raw_usage::RawUsage;
use model::reason::{Limit, LimitKind, LimitScope};
use model::time::TimeLimit;
use model::tres::{Tres, TresKind};

/// What a job would count for, and for how long.
pub struct JobClaim<'t> {
    pub job: &'t JobUsage,
    pub time: TimeLimit,
}

/// How a limit on a kind is named. Most limits are kept: only one that is broken gets its name.
type NamedKind = fn(TresKind) -> LimitKind;

/// The limits that apply to one claimant.
pub struct LimitCheck<'u, 'a> {
    usage: &'u Usage<'a>,
    claimant: Claimant<'a>,
    /// The QOS whose limits apply. A limit of the first replaces the same limit of the second.
    qos: [Option<&'a Qos>; 2],
    /// The job is compared with the limits as if nothing ran and nothing had been used.
    alone: bool,
}

impl<'u, 'a> LimitCheck<'u, 'a> {
    pub fn new(usage: &'u Usage<'a>, claimant: Claimant<'a>) -> Self {
        let find = |name: Option<&str>| Some(usage.qos.get(name?)?.qos);
        let own = find(Some(claimant.qos));
        let of_partition = find(claimant.partition_qos.filter(|name| *name != claimant.qos));
        let over = own.is_some_and(|qos| qos.has(QosFlag::OverPartQos));
        let qos = if over { [own, of_partition] } else { [of_partition, own] };
        Self { usage, claimant, qos, alone: false }
    }

    pub fn broken(&self, asked: &JobClaim<'_>) -> Option<Limit> {
        self.counts()
            .or_else(|| self.walls(asked.time))
            .or_else(|| self.qos_tres(asked))
            .or_else(|| self.association_tres(asked))
    }

    /// The first limit that the job would break if nothing ran and nothing had been used.
    pub fn broken_alone(mut self, asked: &JobClaim<'_>) -> Option<Limit> {
        self.alone = true;
        self.walls(asked.time)
            .or_else(|| self.qos_tres(asked))
            .or_else(|| self.association_tres(asked))
    }

    pub fn broken_on_node(&self, tres: Tres) -> Option<Limit> {
        let nothing = UsageTotals::default();
        let holding = LimitHolder { total: &nothing, raw_usage: None, holder: "" };
        let job = JobUsage { tres, run_minutes: Tres::new(), nodes: Vec::new() };
        let asked = JobClaim { job: &job, time: TimeLimit::Unlimited };
        let of_qos = self.first_set(|q| &q.max_tres_per_node).find_map(|(qos, kind, limit)| {
            let holding = LimitHolder { holder: &qos.name, ..holding };
            self.over(LimitScope::QosPerNode, Measure::Job, kind, limit, &asked, &holding)
        });
        of_qos.or_else(|| {
            let row = AssociationRow {
                limits: |l| &l.max_tres_per_node,
                in_qos: |q| &q.max_tres_per_node,
                scope: LimitScope::AssociationPerNode,
                measure: Measure::Job,
            };
            self.inherited(&row, &asked)
        })
    }

    fn qos(&self) -> impl Iterator<Item = &'a Qos> + use<'a> {
        self.qos.into_iter().flatten()
    }

    /// The limits of both QOS. Each kind is taken from the first QOS that sets it.
    fn first_set<'s>(
        &'s self,
        limits: fn(&Qos) -> &Tres,
    ) -> impl Iterator<Item = (&'a Qos, &'a TresKind, u64)> + 's {
        self.qos.iter().enumerate().filter_map(|(at, qos)| Some((at, (*qos)?))).flat_map(
            move |(at, qos)| {
                let is_set = move |kind: &TresKind| {
                    let before = self.qos[..at].iter().flatten();
                    before.into_iter().any(|qos| limits(qos).get(kind).is_some())
                };
                let rows = limits(qos).iter().filter(move |(kind, _)| !is_set(kind));
                rows.map(move |(kind, limit)| (qos, kind, limit))
            },
        )
    }

    fn counts(&self) -> Option<Limit> {
        let nothing = UsageTotals::default();
        let jobs_of = |qos: &Qos, over| self.qos_total(qos, over).unwrap_or(&nothing).jobs;
        let first = |limit: fn(&Qos) -> Option<u32>| {
            self.qos().find_map(|qos| limit(qos).map(|most| (qos, most)))
        };
        let reached = |scope, holder: &str, most: u32, jobs: u32| {
            (jobs >= most).then(|| Limit {
                scope,
                kind: LimitKind::Jobs,
                holder: holder.to_owned(),
                limit: u64::from(most),
                in_use: u64::from(jobs),
                asked: 1,
            })
        };
        let group = first(|q| q.group_jobs);
        let per_user = first(|q| q.max_jobs_per_user);
        let per_account = first(|q| q.max_jobs_per_account);
        let of_qos = group
            .and_then(|(q, most)| {
                reached(LimitScope::QosGroup, &q.name, most, jobs_of(q, CountedOver::All))
            })
            .or_else(|| {
                let (q, most) = per_account?;
                reached(LimitScope::QosPerAccount, &q.name, most, jobs_of(q, CountedOver::Account))
            })
            .or_else(|| {
                let (q, most) = per_user?;
                reached(LimitScope::QosPerUser, &q.name, most, jobs_of(q, CountedOver::User))
            });
        of_qos.or_else(|| {
            let jobs = |at: u32| self.usage.members.get(at as usize).map_or(0, |held| held.jobs);
            let own = self.claimant.association?;
            self.chain()
                .find_map(|(at, limits, name)| {
                    let together = limits.group_jobs.filter(|_| group.is_none());
                    together.and_then(|most| {
                        reached(LimitScope::AssociationGroup, name, most, jobs(at))
                    })
                })
                .or_else(|| {
                    let (most, name) =
                        self.chain().find_map(|(_, l, name)| Some((l.max_jobs?, name)))?;
                    let most = Some(most).filter(|_| per_user.is_none())?;
                    reached(LimitScope::AssociationPerJob, name, most, jobs(own))
                })
        })
    }

    fn walls(&self, time: TimeLimit) -> Option<Limit> {
        let minutes = |limit: TimeLimit| limit.minutes().map_or(u64::MAX, u64::from);
        let too_long = |scope, holder: &str, most: TimeLimit| {
            (time > most).then(|| Limit {
                scope,
                kind: LimitKind::Wall,
                holder: holder.to_owned(),
                limit: minutes(most),
                in_use: 0,
                asked: minutes(time),
            })
        };
        let used_up = |scope, holder: &str, most: TimeLimit, raw_usage: Option<&RawUsage>| {
            let used = (raw_usage.map_or(0.0, |raw_usage| raw_usage.wall_s) / 60.0) as u64;
            (used >= minutes(most) && !self.alone).then(|| Limit {
                scope,
                kind: LimitKind::Wall,
                holder: holder.to_owned(),
                limit: minutes(most),
                in_use: used,
                asked: minutes(time),
            })
        };
        let per_job = self.qos().find_map(|q| q.max_wall.map(|most| (q, most)));
        let group = self.qos().find_map(|q| q.group_wall.map(|most| (q, most)));
        let of_qos = per_job
            .and_then(|(q, most)| too_long(LimitScope::QosPerJob, &q.name, most))
            .or_else(|| {
                let (q, most) = group?;
                used_up(LimitScope::QosGroup, &q.name, most, self.raw_usage_of(q))
            });
        of_qos.or_else(|| {
            let own = self.chain().find_map(|(_, l, name)| Some((l.max_wall?, name)));
            let own = own.filter(|_| per_job.is_none());
            own.and_then(|(most, name)| too_long(LimitScope::AssociationPerJob, name, most))
                .or_else(|| {
                    self.chain().find_map(|(at, limits, name)| {
                        let most = limits.group_wall.filter(|_| group.is_none() && at > 0)?;
                        let raw_usage = &self.usage.accounting().members[at as usize].raw_usage;
                        used_up(LimitScope::AssociationGroup, name, most, Some(raw_usage))
                    })
                })
        })
    }

    fn qos_tres(&self, asked: &JobClaim<'_>) -> Option<Limit> {
        let nothing = UsageTotals::default();
        QOS_ROWS.iter().find_map(|row| {
            self.first_set(row.limits).find_map(|(qos, kind, limit)| {
                let total = self.qos_total(qos, row.over).filter(|_| !self.alone);
                let total = total.unwrap_or(&nothing);
                let holding =
                    LimitHolder { total, raw_usage: self.raw_usage_of(qos), holder: &qos.name };
                self.over(row.scope, row.measure, kind, limit, asked, &holding)
            })
        })
    }

    fn qos_total(&self, qos: &Qos, over: CountedOver) -> Option<&'u UsageTotals> {
        self.usage.qos.get(qos.name.as_str())?.total(over, self.claimant)
    }

    fn raw_usage_of(&self, qos: &Qos) -> Option<&'a RawUsage> {
        self.usage.accounting().raw_usage_by_qos.get(&qos.name)
    }

    /// The association and those above it: index, limits and name.
    fn chain(&self) -> impl Iterator<Item = (u32, &'a AssociationLimits, &'a str)> + use<'a> {
        let limited = !self.usage.members.is_empty();
        let association = self.claimant.association.filter(|_| limited);
        self.usage
            .accounting()
            .chain(association)
            .map(|(at, member)| (at, &member.association.limits, member.name()))
    }

    fn association_tres(&self, asked: &JobClaim<'_>) -> Option<Limit> {
        let of_group = |row: &AssociationRow| {
            let mut setting = self.chain().filter(|(_, limits, _)| row.is_set(limits));
            setting.find_map(|(at, limits, name)| {
                // As in Slurm, a limit of minutes on the root is shown and not enforced.
                if at == 0 && row.measure == Measure::SpentMinutes {
                    return None;
                }
                let nothing = UsageTotals::default();
                let total = if self.alone { &nothing } else { &self.usage.members[at as usize] };
                let raw_usage = &self.usage.accounting().members[at as usize].raw_usage;
                let holding = LimitHolder { total, raw_usage: Some(raw_usage), holder: name };
                self.unless_in_qos(row, limits).find_map(|(kind, limit)| {
                    self.over(row.scope, row.measure, kind, limit, asked, &holding)
                })
            })
        };
        let inherited = INHERITED_ROWS.iter().find_map(|row| self.inherited(row, asked));
        inherited.or_else(|| GROUP_ROWS.iter().find_map(of_group))
    }

    fn inherited(&self, row: &AssociationRow, asked: &JobClaim<'_>) -> Option<Limit> {
        let nothing = UsageTotals::default();
        let mut setting = self.chain().enumerate().filter(|(_, (_, limits, _))| row.is_set(limits));
        setting.find_map(|(depth, (_, limits, name))| {
            let nearer = |kind: &TresKind| {
                let mut below = self.chain().take(depth);
                below.any(|(_, limits, _)| (row.limits)(limits).get(kind).is_some())
            };
            let holding = LimitHolder { total: &nothing, raw_usage: None, holder: name };
            self.unless_in_qos(row, limits).filter(|(kind, _)| !nearer(kind)).find_map(
                |(kind, limit)| self.over(row.scope, row.measure, kind, limit, asked, &holding),
            )
        })
    }

    /// The limits of a row that no QOS sets, times the limit factor of the job's QOS.
    fn unless_in_qos<'s>(
        &'s self,
        row: &AssociationRow,
        limits: &'s AssociationLimits,
    ) -> impl Iterator<Item = (&'s TresKind, u64)> + 's {
        let in_qos = row.in_qos;
        let said = move |kind: &TresKind| self.qos().any(|qos| in_qos(qos).get(kind).is_some());
        let counts = matches!(row.measure, Measure::Job | Measure::Held);
        let own = self.usage.view.qos.iter().find(|qos| qos.name == self.claimant.qos);
        let factor = own.and_then(|qos| qos.limit_factor).filter(|_| counts);
        let scaled = move |limit: u64| match factor {
            Some(factor) => (limit as f64 * factor.value()) as u64,
            None => limit,
        };
        let free = (row.limits)(limits).iter().filter(move |(kind, _)| !said(kind));
        free.map(move |(kind, limit)| (kind, scaled(limit)))
    }

    fn over(
        &self,
        scope: LimitScope,
        measure: Measure,
        kind: &TresKind,
        limit: u64,
        asked: &JobClaim<'_>,
        holding: &LimitHolder<'_>,
    ) -> Option<Limit> {
        let job = asked.job;
        let (amount, run_minutes) = (job.tres.amount(kind), job.run_minutes.amount(kind));
        let job_minutes = amount.saturating_mul(minutes(asked.time));
        let held_minutes = holding.total.run_minutes.amount(kind);
        let raw_usage = holding
            .raw_usage
            .filter(|_| !self.alone)
            .map_or(0, |raw_usage| raw_usage.minutes(kind));
        let tres: NamedKind = LimitKind::Tres;
        let (broken, named, in_use, asked): (bool, NamedKind, u64, u64) = match measure {
            Measure::Job => (amount > limit, tres, 0, amount),
            Measure::Least => (amount < limit, tres, 0, amount),
            Measure::JobMinutes => (job_minutes > limit, LimitKind::TresMinutes, 0, job_minutes),
            Measure::Held if *kind == TresKind::Node => {
                let (in_use, more) = nodes(holding.total, job);
                (in_use + more > limit, tres, in_use, amount)
            }
            Measure::Held => {
                let in_use = holding.total.tres.amount(kind);
                (amount > 0 && in_use.saturating_add(amount) > limit, tres, in_use, amount)
            }
            Measure::RunMinutes => {
                let broken = amount > 0 && held_minutes.saturating_add(run_minutes) > limit;
                (broken, LimitKind::TresRunMinutes, held_minutes, run_minutes)
            }
            Measure::SpentMinutes => {
                let safe = self.usage.accounting().enforce.safe;
                let whole = raw_usage.saturating_add(held_minutes).saturating_add(job_minutes);
                let broken = if safe || self.alone { whole > limit } else { raw_usage >= limit };
                let in_use = if safe { raw_usage.saturating_add(held_minutes) } else { raw_usage };
                (amount > 0 && broken, LimitKind::TresMinutes, in_use, job_minutes)
            }
        };
        let holder = || holding.holder.to_owned();
        let kind = || named(kind.clone());
        broken.then(|| Limit { scope, kind: kind(), holder: holder(), limit, in_use, asked })
    }
}

/// The nodes in use, and how many more the job takes. A job that is not placed yet takes as many as it needs beyond
/// those in use.
fn nodes(total: &UsageTotals, job: &JobUsage) -> (u64, u64) {
    let in_use = total.nodes.len() as u64;
    let more = match job.nodes.as_slice() {
        [] => job.tres.amount(&TresKind::Node).saturating_sub(in_use),
        nodes => nodes.iter().filter(|node| !total.nodes.contains_key(*node)).count() as u64,
    };
    (in_use, more)
}

/// The holder of a limit, and the amount that is compared with it.
#[derive(Clone, Copy)]
struct LimitHolder<'h> {
    total: &'h UsageTotals,
    raw_usage: Option<&'h RawUsage>,
    holder: &'h str,
}
