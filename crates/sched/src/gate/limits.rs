//! Limits of QOS: what users, accounts and all together hold, and what one job may ask for.

use crate::view::{View, Waiting};
use model::account::Qos;
use model::allocation::NodeShare;
use model::reason::{Limit, LimitKind, LimitScope};
use model::time::TimeLimit;
use model::tres::{Tres, TresKind};
use std::collections::HashMap;

/// What is held under each limited QOS, by running jobs and by those that this plan starts.
pub struct Usage<'a> {
    qos: HashMap<&'a str, &'a Qos>,
    per_user: HashMap<(&'a str, u32), Held>,
    per_account: HashMap<(&'a str, &'a str), Tres>,
    together: HashMap<&'a str, Tres>,
}

#[derive(Default)]
struct Held {
    tres: Tres,
    jobs: u32,
}

/// Who would start, or runs, under which QOS: the job's own, and that of its partition.
#[derive(Debug, Clone, Copy)]
pub struct Claimant<'a> {
    pub uid: u32,
    pub account: &'a str,
    pub qos: &'a str,
    pub partition_qos: Option<&'a str>,
}

impl<'a> Claimant<'a> {
    pub fn of(view: &'a View, waiting: &'a Waiting, partition: u32) -> Self {
        Self {
            uid: waiting.spec.owner.uid,
            account: &waiting.account,
            qos: &waiting.qos,
            partition_qos: partition_qos(view, partition),
        }
    }
}

fn partition_qos(view: &View, partition: u32) -> Option<&str> {
    view.partitions.get(partition as usize)?.partition.qos.as_deref()
}

impl<'a> Usage<'a> {
    pub fn of(view: &'a View) -> Self {
        let limited = view.qos.iter().filter(|qos| is_limited(qos));
        let mut usage = Self {
            qos: limited.map(|qos| (qos.name.as_str(), &**qos)).collect(),
            per_user: HashMap::new(),
            per_account: HashMap::new(),
            together: HashMap::new(),
        };
        for running in &view.running {
            let claimant = Claimant {
                uid: running.uid,
                account: &running.account,
                qos: &running.qos,
                partition_qos: partition_qos(view, running.partition),
            };
            usage.add(claimant, || tres_of(running.shares.iter().map(|(_, share)| share)));
        }
        usage
    }

    /// Counts what a job holds, if it is under a limit at all.
    pub fn add(&mut self, claimant: Claimant<'a>, tres: impl Fn() -> Tres) {
        for qos in self.limiting(claimant) {
            let (name, tres) = (qos.name.as_str(), tres());
            let held = self.per_user.entry((name, claimant.uid)).or_default();
            held.tres.merge(&tres);
            held.jobs += 1;
            self.per_account.entry((name, claimant.account)).or_default().merge(&tres);
            self.together.entry(name).or_default().merge(&tres);
        }
    }

    /// The first limit that one more job of so much would break.
    pub fn broken_by(
        &self,
        claimant: Claimant<'a>,
        asked: &Tres,
        time: TimeLimit,
    ) -> Option<Limit> {
        self.limiting(claimant).find_map(|qos| self.broken(qos, claimant, asked, time))
    }

    pub fn is_limited(&self, claimant: Claimant<'a>) -> bool {
        self.limiting(claimant).next().is_some()
    }

    /// The partition's QOS comes before the job's own; the same one counts once.
    fn limiting(&self, claimant: Claimant<'a>) -> impl Iterator<Item = &'a Qos> + use<'a> {
        let own = Some(claimant.qos).filter(|own| claimant.partition_qos != Some(own));
        let find = |name: Option<&str>| name.and_then(|name| self.qos.get(name).copied());
        [find(claimant.partition_qos), find(own)].into_iter().flatten()
    }

    fn broken(
        &self,
        qos: &Qos,
        claimant: Claimant<'a>,
        asked: &Tres,
        time: TimeLimit,
    ) -> Option<Limit> {
        let nothing = Tres::new();
        let name = qos.name.as_str();
        let user = self.per_user.get(&(name, claimant.uid));
        let user_tres = user.map_or(&nothing, |held| &held.tres);
        let account = self.per_account.get(&(name, claimant.account)).unwrap_or(&nothing);
        let together = self.together.get(name).unwrap_or(&nothing);
        over(LimitScope::QosPerJob, qos, &qos.max_tres_per_job, &nothing, asked)
            .or_else(|| over_wall(qos, time))
            .or_else(|| over_jobs(qos, user.map_or(0, |held| held.jobs)))
            .or_else(|| over(LimitScope::QosPerUser, qos, &qos.max_tres_per_user, user_tres, asked))
            .or_else(|| {
                over(LimitScope::QosPerAccount, qos, &qos.max_tres_per_account, account, asked)
            })
            .or_else(|| over(LimitScope::QosGroup, qos, &qos.group_tres, together, asked))
    }
}

fn is_limited(qos: &Qos) -> bool {
    let tres =
        [&qos.max_tres_per_user, &qos.max_tres_per_job, &qos.max_tres_per_account, &qos.group_tres];
    tres.iter().any(|limits| !limits.is_empty())
        || qos.max_jobs_per_user.is_some()
        || qos.max_wall.is_some()
}

fn over(scope: LimitScope, qos: &Qos, limits: &Tres, held: &Tres, asked: &Tres) -> Option<Limit> {
    limits.iter().find_map(|(kind, limit)| {
        let (in_use, asked) = (held.amount(kind), asked.amount(kind));
        (asked > 0 && in_use.saturating_add(asked) > limit).then(|| Limit {
            scope,
            kind: LimitKind::Tres(kind.clone()),
            holder: qos.name.clone(),
            limit,
            in_use,
            asked,
        })
    })
}

fn over_wall(qos: &Qos, time: TimeLimit) -> Option<Limit> {
    let most = qos.max_wall.filter(|most| time > *most)?;
    let minutes = |limit: TimeLimit| limit.minutes().map_or(u64::MAX, u64::from);
    Some(Limit {
        scope: LimitScope::QosPerJob,
        kind: LimitKind::Wall,
        holder: qos.name.clone(),
        limit: minutes(most),
        in_use: 0,
        asked: minutes(time),
    })
}

fn over_jobs(qos: &Qos, running: u32) -> Option<Limit> {
    let most = qos.max_jobs_per_user.filter(|most| running >= *most)?;
    Some(Limit {
        scope: LimitScope::QosPerUser,
        kind: LimitKind::Jobs,
        holder: qos.name.clone(),
        limit: u64::from(most),
        in_use: u64::from(running),
        asked: 1,
    })
}

/// What shares count for against limits: a GRES under its name, and under its name and kind.
pub fn tres_of<'s>(shares: impl Iterator<Item = &'s NodeShare>) -> Tres {
    let mut tres = Tres::new();
    for share in shares {
        tres.add(TresKind::Node, 1);
        tres.merge(&share.tres());
        for gres in share.gres.iter().filter(|gres| gres.kind.is_some()) {
            tres.add(TresKind::gres(&gres.name, gres.kind.as_deref()), gres.count);
        }
    }
    tres
}
