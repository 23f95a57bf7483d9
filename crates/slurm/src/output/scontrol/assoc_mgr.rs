//! `scontrol show assoc_mgr`: users, associations and QOS with their limits, and how much of each is used now. A limit is
//! shown as `4(1)`: four, of which one is used; `N` is none.

use model::account::{Association, Qos, Shares};
use model::principal::Role;
use model::raw_usage::RawUsage;
use model::time::{TimeLimit, Timestamp};
use model::tres::{Tres, TresKind};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use wire::view::{AccountsView, JobView, ShareView, SharesView};

/// What is shown, and of which names; an empty list is all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selection {
    pub users: bool,
    pub associations: bool,
    pub qos: bool,
    pub user_names: Vec<String>,
    pub accounts: Vec<String>,
    pub qos_names: Vec<String>,
}

impl Default for Selection {
    fn default() -> Self {
        Self {
            users: true,
            associations: true,
            qos: true,
            user_names: Vec::new(),
            accounts: Vec::new(),
            qos_names: Vec::new(),
        }
    }
}

/// What the server answered.
pub struct Answers<'a> {
    pub accounts: &'a AccountsView,
    pub shares: &'a SharesView,
    /// Those that have not ended.
    pub jobs: &'a [JobView],
    pub now: Timestamp,
    /// The number of a user's name on this machine.
    pub uid_of: &'a dyn Fn(&str) -> Option<u32>,
}

/// What jobs hold of limits now.
#[derive(Default)]
struct Held {
    jobs: u64,
    accruing: u64,
    submitted: u64,
    tres: Tres,
    run_minutes: Tres,
}

impl Held {
    fn of<'j>(jobs: impl Iterator<Item = &'j JobView>, now: Timestamp) -> Self {
        let mut held = Self::default();
        for job in jobs {
            let pending = job.array.as_ref().and_then(|array| array.pending.as_ref());
            let count = pending.map_or(1, |indices| indices.len());
            held.submitted += count;
            if job.state.is_waiting() {
                let accrues = job.hold.is_none() && job.eligible.is_some_and(|at| at <= now);
                held.accruing += if accrues { count } else { 0 };
                continue;
            }
            held.jobs += 1;
            held.tres.merge(&job.tres);
            let limit_s = job.time_limit.secs().unwrap_or(0);
            let left_min = limit_s.saturating_sub(job.elapsed_s(now)) / 60;
            for (kind, amount) in job.tres.iter() {
                held.run_minutes.add(kind.clone(), amount.saturating_mul(left_min));
            }
        }
        held
    }
}

impl Answers<'_> {
    pub fn text(&self, wanted: &Selection) -> String {
        let mut out = "Current Association Manager state\n".to_owned();
        if wanted.users {
            self.push_users(&mut out, wanted);
        }
        if wanted.associations {
            self.push_associations(&mut out, wanted);
        }
        if wanted.qos {
            self.push_qos(&mut out, wanted);
        }
        out
    }

    fn named(&self, user: &str) -> String {
        (self.uid_of)(user).map_or_else(|| user.to_owned(), |uid| format!("{user}({uid})"))
    }

    fn push_users(&self, out: &mut String, wanted: &Selection) {
        out.push_str("\nUser Records\n\n");
        let mut defaults: BTreeMap<&str, &str> = BTreeMap::new();
        for association in &self.accounts.associations {
            let Some(user) = association.user.as_deref() else { continue };
            let account = defaults.entry(user).or_default();
            if association.default || account.is_empty() {
                *account = &association.account;
            }
        }
        for (user, account) in defaults.iter().filter(|(user, _)| has(&wanted.user_names, user)) {
            let level = match self.accounts.roles.get(*user) {
                Some(Role::Admin) => "Administrator",
                Some(Role::Operator) => "Operator",
                Some(Role::User | Role::Gateway) | None => "None",
            };
            // Writing to a string does not fail.
            let _ = writeln!(
                out,
                "UserName={} DefAccount={account} DefWckey= AdminLevel={level}",
                self.named(user)
            );
        }
    }

    fn push_associations(&self, out: &mut String, wanted: &Selection) {
        out.push_str("\nAssociation Records\n\n");
        for (at, row) in self.shares.rows.iter().enumerate() {
            let association = &row.association;
            let is_wanted = has(&wanted.accounts, &association.account)
                && (wanted.user_names.is_empty()
                    || association.user.as_ref().is_some_and(|u| wanted.user_names.contains(u)));
            if is_wanted {
                self.push_association(out, at, row);
            }
        }
    }

    fn push_association(&self, out: &mut String, at: usize, row: &ShareView) {
        let association = &row.association;
        let held = Held::of(self.jobs_of(at).into_iter(), self.now);
        let user = association.user.as_deref().map(|user| self.named(user)).unwrap_or_default();
        let parent = match &association.user {
            Some(_) => Some(association.account.as_str()),
            None => {
                let accounts = &self.accounts.accounts;
                let own = accounts.iter().find(|account| account.name == association.account);
                own.and_then(|account| account.parent.as_deref())
            }
        };
        let shares = match association.shares {
            Shares::Count(count) => count.to_string(),
            Shares::Parent(_) => "parent".to_owned(),
        };
        let level = row.level.map_or_else(|| "inf".to_owned(), |level| format!("{level:.2}"));
        let limits = &association.limits;
        let _ = writeln!(
            out,
            "ClusterName={} Account={} UserName={user} Partition={} Priority={} ID={}\n    \
             SharesRaw/Norm/Level/Factor={shares}/{:.2}/{level}/{:.2}\n    \
             UsageRaw/Norm/Efctv={:.2}/{:.2}/{:.2}\n    \
             ParentAccount={} DefAssoc={}\n    \
             GrpJobs={} GrpJobsAccrue={}\n    \
             GrpSubmitJobs={} GrpWall={}\n    \
             GrpTRES={}\n    GrpTRESMins={}\n    GrpTRESRunMins={}\n    \
             MaxJobs={} MaxJobsAccrue={} MaxSubmitJobs={} MaxWallPJ={}\n    \
             MaxTRESPJ={}\n    MaxTRESPN={}\n    MaxTRESMinsPJ={}\n    MinPrioThresh={}",
            self.shares.cluster,
            association.account,
            association.partition.as_deref().unwrap_or_default(),
            association.priority.unwrap_or(0),
            row.id,
            row.shares,
            row.fair_share.unwrap_or(0.0),
            row.raw_usage.billing_s(),
            row.usage.unwrap_or(0.0),
            row.effective_usage,
            parent.unwrap_or_default(),
            if association.default { "Yes" } else { "No" },
            limit(limits.group_jobs, held.jobs),
            limit(limits.group_jobs_accrue, held.accruing),
            limit(limits.group_submit, held.submitted),
            wall(limits.group_wall, &row.raw_usage),
            self.tres(&limits.group_tres, |kind| held.tres.amount(kind)),
            self.tres(&limits.group_tres_minutes, |kind| row.raw_usage.minutes(kind)),
            self.tres(&limits.group_tres_run_minutes, |kind| held.run_minutes.amount(kind)),
            count(limits.max_jobs),
            count(limits.max_jobs_accrue),
            count(limits.max_submit),
            minutes(limits.max_wall),
            limits.max_tres_per_job,
            limits.max_tres_per_node,
            limits.max_tres_minutes_per_job,
            count(limits.min_priority_threshold),
        );
    }

    /// The jobs that count against an association: a user's own, or those of an account and of all below it.
    fn jobs_of(&self, at: usize) -> Vec<&JobView> {
        let row = &self.shares.rows[at];
        let Association { account, user, partition, .. } = &row.association;
        if let Some(user) = user {
            let is_own = |job: &&JobView| {
                *job.account == **account
                    && job.spec.owner.name == *user
                    && partition.as_ref().is_none_or(|partition| *job.partition == **partition)
            };
            return self.jobs.iter().filter(is_own).collect();
        }
        let below = self.shares.rows[at + 1..].iter().take_while(|other| other.depth > row.depth);
        let accounts: BTreeSet<&str> =
            std::iter::once(row).chain(below).map(|row| row.association.account.as_str()).collect();
        self.jobs.iter().filter(|job| accounts.contains(&*job.account)).collect()
    }

    fn push_qos(&self, out: &mut String, wanted: &Selection) {
        out.push_str("\nQOS Records\n\n");
        for (id, qos) in (1..).zip(&self.accounts.qos) {
            if has(&wanted.qos_names, &qos.name) {
                self.push_one_qos(out, id, qos);
            }
        }
    }

    fn push_one_qos(&self, out: &mut String, id: u32, qos: &Qos) {
        let jobs = || self.jobs.iter().filter(|job| *job.qos == *qos.name);
        let held = Held::of(jobs(), self.now);
        let none = RawUsage::default();
        let used = self.shares.qos.get(&qos.name).unwrap_or(&none);
        let _ = writeln!(
            out,
            "QOS={}({id})\n    UsageRaw={:.6}\n    \
             GrpJobs={} GrpJobsAccrue={} GrpSubmitJobs={} GrpWall={}\n    \
             GrpTRES={}\n    GrpTRESMins={}\n    GrpTRESRunMins={}\n    \
             MaxWallPJ={}\n    MaxTRESPJ={}\n    MaxTRESPN={}\n    MaxTRESMinsPJ={}\n    \
             MinPrioThresh={} \n    MinTRESPJ={}\n    PreemptMode={}\n    Priority={}",
            qos.name,
            used.billing_s(),
            limit(qos.group_jobs, held.jobs),
            limit(qos.group_jobs_accrue, held.accruing),
            limit(qos.group_submit, held.submitted),
            wall(qos.group_wall, used),
            self.tres(&qos.group_tres, |kind| held.tres.amount(kind)),
            self.tres(&qos.group_tres_minutes, |kind| used.minutes(kind)),
            self.tres(&qos.group_tres_run_minutes, |kind| held.run_minutes.amount(kind)),
            minutes(qos.max_wall),
            qos.max_tres_per_job,
            qos.max_tres_per_node,
            qos.max_tres_minutes_per_job,
            count(qos.min_priority_threshold),
            qos.min_tres_per_job,
            qos.preempt_mode.as_deref().unwrap_or("OFF"),
            qos.priority,
        );
        let accounts: BTreeSet<&str> = jobs().map(|job| &*job.account).collect();
        out.push_str("    Account Limits\n");
        for account in &accounts {
            let held = Held::of(jobs().filter(|job| *job.account == **account), self.now);
            let _ = writeln!(
                out,
                "      {account}\n        \
                 MaxJobsPA={} MaxJobsAccruePA={} MaxSubmitJobsPA={}\n        MaxTRESPA={}",
                limit(qos.max_jobs_per_account, held.jobs),
                limit(qos.max_jobs_accrue_per_account, held.accruing),
                limit(qos.max_submit_per_account, held.submitted),
                self.tres(&qos.max_tres_per_account, |kind| held.tres.amount(kind)),
            );
        }
        if accounts.is_empty() {
            out.push_str("        No Accounts\n");
        }
        let users: BTreeSet<u32> = jobs().map(|job| job.spec.owner.uid).collect();
        out.push_str("    User Limits\n");
        for uid in &users {
            let held = Held::of(jobs().filter(|job| job.spec.owner.uid == *uid), self.now);
            let _ = writeln!(
                out,
                "      {uid}\n        \
                 MaxJobsPU={} MaxJobsAccruePU={} MaxSubmitJobsPU={}\n        MaxTRESPU={}",
                limit(qos.max_jobs_per_user, held.jobs),
                limit(qos.max_jobs_accrue_per_user, held.accruing),
                limit(qos.max_submit_per_user, held.submitted),
                self.tres(&qos.max_tres_per_user, |kind| held.tres.amount(kind)),
            );
        }
        if users.is_empty() {
            out.push_str("        No Users\n");
        }
    }

    /// `cpu=N(4),mem=N(0),…`: every resource that is counted.
    fn tres(&self, limits: &Tres, used: impl Fn(&TresKind) -> u64) -> String {
        let simple = [
            TresKind::Cpu,
            TresKind::Mem,
            TresKind::Energy,
            TresKind::Node,
            TresKind::Billing,
            TresKind::FsDisk,
            TresKind::Vmem,
            TresKind::Pages,
        ];
        let gres = self.shares.gres.iter().map(|name| TresKind::gres(name, None));
        let one = |kind: TresKind| {
            let most = limits.get(&kind).map_or_else(|| "N".to_owned(), |most| most.to_string());
            format!("{kind}={most}({})", used(&kind))
        };
        simple.into_iter().chain(gres).map(one).collect::<Vec<_>>().join(",")
    }
}

fn has(names: &[String], name: &str) -> bool {
    names.is_empty() || names.iter().any(|wanted| wanted == name)
}

fn limit(most: Option<u32>, used: u64) -> String {
    most.map_or_else(|| format!("N({used})"), |most| format!("{most}({used})"))
}

fn wall(most: Option<TimeLimit>, used: &RawUsage) -> String {
    let most = Some(minutes(most)).filter(|most| !most.is_empty());
    format!("{}({:.2})", most.as_deref().unwrap_or("N"), used.wall_s / 60.0)
}

fn count(most: Option<u32>) -> String {
    most.map(|most| most.to_string()).unwrap_or_default()
}

fn minutes(most: Option<TimeLimit>) -> String {
    match most {
        Some(TimeLimit::Minutes(minutes)) => minutes.to_string(),
        Some(TimeLimit::Unlimited) | None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::samples::{at, bob, pending, train};
    use model::account::Account;
    use model::reason::Reason;

    fn text(wanted: &Selection) -> String {
        let mut capped = Qos::named("capped");
        capped.max_tres_per_user.set(TresKind::gpu(), 4);
        let accounts = AccountsView {
            cluster: "lab".into(),
            accounts: vec![Account { parent: Some("root".into()), ..account("physics") }],
            associations: vec![Association::plain("physics", Some("alice"))],
            qos: vec![Qos::named("normal"), capped],
            roles: BTreeMap::new(),
            only_user: None,
            deleted: Default::default(),
        };
        let used = RawUsage { wall_s: 924.0, ..RawUsage::default() };
        let row = |id, depth, user| ShareView {
            association: Association::plain("physics", user),
            id,
            depth,
            shares: 1.0,
            effective_usage: 0.0,
            usage: None,
            level: None,
            fair_share: user.map(|_| 0.5),
            raw_usage: RawUsage::default(),
            run_minutes: Tres::new(),
        };
        let shares = SharesView {
            cluster: "lab".into(),
            basic: false,
            gres: vec!["gpu".into()],
            rows: vec![row(1, 0, None), row(2, 1, Some("alice"))],
            qos: BTreeMap::from([("normal".to_owned(), used)]),
        };
        let jobs = [train(), pending(9, "waits", bob(), Reason::Resources)];
        let uid_of = |user: &str| (user == "alice").then_some(1001);
        let now = at(0, 47, 0);
        Answers { accounts: &accounts, shares: &shares, jobs: &jobs, now, uid_of: &uid_of }
            .text(wanted)
    }

    fn account(name: &str) -> Account {
        serde_json::from_value(serde_json::json!({"name": name})).expect("an account")
    }

    #[test]
    fn qos_is_shown_with_its_limits_and_what_is_used_of_them() {
        let wanted = Selection { users: false, associations: false, ..Selection::default() };
        let said = text(&wanted);
        let head = "Current Association Manager state\n\nQOS Records\n\nQOS=normal(1)\n    UsageRaw=0.000000\n    GrpJobs=N(1) ";
        assert!(said.starts_with(head), "{said}");
        assert!(said.contains("GrpSubmitJobs=N(2) GrpWall=N(15.40)\n"), "{said}");
        assert!(said.contains("\n    MinPrioThresh= \n    MinTRESPJ=\n    PreemptMode=OFF\n"));
        assert!(said.contains("    Account Limits\n      chem\n        MaxJobsPA=N(0) "), "{said}");
        let unused = "QOS=capped(2)\n";
        let capped = &said[said.find(unused).expect(unused)..];
        assert!(capped.contains("        No Accounts\n    User Limits\n        No Users\n"));
        assert!(!said.contains("User Records"));
    }

    #[test]
    fn account_has_the_jobs_of_its_users_and_a_name_chooses_records() {
        let said = text(&Selection { qos: false, ..Selection::default() });
        let user = "UserName=alice(1001) DefAccount=physics DefWckey= AdminLevel=None\n";
        assert!(said.contains(user), "{said}");
        let of_account = "ClusterName=lab Account=physics UserName= Partition= Priority=0 ID=1\n";
        let of_user = "Account=physics UserName=alice(1001) Partition= Priority=0 ID=2\n";
        assert!(said.contains(of_account) && said.contains(of_user), "{said}");
        assert_eq!(said.matches("GrpJobs=N(1) ").count(), 2, "the job counts for both: {said}");
        let other = Selection { accounts: vec!["chem".into()], qos: false, ..Selection::default() };
        assert!(!text(&other).contains("ClusterName="));
    }
}
