//! The columns of `sacctmgr show`, one table for each kind of thing.

use super::Options;
use crate::output::table::field_table::NamedColumn;
use crate::output::text::push;
use model::account::{Account, Association, Qos, QosFlag};
use model::principal::Role;
use model::qos::Factor;
use model::time::{TimeLimit, format_elapsed_full, format_limit_full};
use model::tres::{Tres, TresKind};
use std::fmt::Write;
use std::ops::Deref;
use wire::view::AccountsView;

/// A column of a table whose rows are of type `T`.
pub struct Field<T: 'static> {
    name: &'static str,
    header: &'static str,
    width: i16,
    pub render: fn(&T, &mut String),
}

impl<T: 'static> NamedColumn for Field<T> {
    fn name(&self) -> &'static str {
        self.name
    }
    fn header(&self) -> &'static str {
        self.header
    }
    fn width(&self) -> i16 {
        self.width
    }
}

pub(super) const fn field<T>(
    name: &'static str,
    header: &'static str,
    width: i16,
    render: fn(&T, &mut String),
) -> Field<T> {
    Field { name, header, width, render }
}

/// A column of a setting that Sluice does not have; always empty.
const fn unsupported<T>(name: &'static str, header: &'static str, width: i16) -> Field<T> {
    Field { name, header, width, render: |_, _| {} }
}

fn count(cell: &mut String, value: Option<u32>) {
    if let Some(value) = value {
        push!(cell, "{value}");
    }
}

fn wall(cell: &mut String, value: Option<TimeLimit>) {
    if let Some(value) = value {
        cell.push_str(&format_limit_full(value));
    }
}

fn tres(cell: &mut String, value: &Tres) {
    push!(cell, "{value}");
}

fn flags(cell: &mut String, qos: &Listed<Qos>) {
    let mut flags = qos.flags.clone();
    flags.sort_unstable();
    let deleted = qos.deleted.then(|| DELETED.to_owned());
    let words: Vec<String> = flags.iter().map(QosFlag::to_string).chain(deleted).collect();
    cell.push_str(&words.join(","));
}

/// The flag of what is listed by `withdeleted`.
const DELETED: &str = "Deleted";

fn deleted(cell: &mut String, is_deleted: bool) {
    if is_deleted {
        cell.push_str(DELETED);
    }
}

/// An account or a QOS in a list.
pub struct Listed<T> {
    pub entry: T,
    pub deleted: bool,
}

impl<T> Deref for Listed<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.entry
    }
}

fn factor(cell: &mut String, value: Option<Factor>) {
    if let Some(value) = value {
        push!(cell, "{value}");
    }
}

fn elapsed(cell: &mut String, seconds: Option<u32>) {
    if let Some(seconds) = seconds {
        cell.push_str(&format_elapsed_full(u64::from(seconds)));
    }
}

/// Not formatted by rustfmt: a row is one line.
#[rustfmt::skip]
pub static QOS: &[Field<Listed<Qos>>] = &[
    field("Name", "Name", 10, |q, c| c.push_str(&q.name)),
    field("Priority", "Priority", 10, |q, c| push!(c, "{}", q.priority)),
    field("GraceTime", "GraceTime", 10, |q, c| elapsed(c, Some(q.grace_time_s))),
    field("Preempt", "Preempt", 10, |q, c| c.push_str(&q.preempt.join(","))),
    field("PreemptExemptTime", "PreemptExemptTime", 19, |q, c| elapsed(c, q.preempt_exempt_s)),
    field("PreemptMode", "PreemptMode", 11, |q, c| c.push_str(&q.preempt_mode.as_deref().unwrap_or("cluster").to_ascii_lowercase())),
    field("Flags", "Flags", 40, |q, c| flags(c, q)),
    field("UsageThreshold", "UsageThres", 10, |q, c| factor(c, q.usage_threshold)),
    field("UsageFactor", "UsageFactor", 11, |q, c| factor(c, Some(q.usage_factor))),
    field("GrpTRES", "GrpTRES", 13, |q, c| tres(c, &q.group_tres)),
    field("GrpTRESMins", "GrpTRESMins", 13, |q, c| tres(c, &q.group_tres_minutes)),
    field("GrpTRESRunMins", "GrpTRESRunMin", 13, |q, c| tres(c, &q.group_tres_run_minutes)),
    field("GrpJobs", "GrpJobs", 7, |q, c| count(c, q.group_jobs)),
    field("GrpSubmitJobs", "GrpSubmit", 9, |q, c| count(c, q.group_submit)),
    field("GrpWall", "GrpWall", 11, |q, c| wall(c, q.group_wall)),
    field("MaxTRES", "MaxTRES", 13, |q, c| tres(c, &q.max_tres_per_job)),
    field("MaxTRESPerNode", "MaxTRESPerNode", 14, |q, c| tres(c, &q.max_tres_per_node)),
    field("MaxTRESMins", "MaxTRESMins", 13, |q, c| tres(c, &q.max_tres_minutes_per_job)),
    field("MaxWall", "MaxWall", 11, |q, c| wall(c, q.max_wall)),
    field("MaxTRESPU", "MaxTRESPU", 13, |q, c| tres(c, &q.max_tres_per_user)),
    field("MaxJobsPU", "MaxJobsPU", 9, |q, c| count(c, q.max_jobs_per_user)),
    field("MaxSubmitJobsPU", "MaxSubmitPU", 11, |q, c| count(c, q.max_submit_per_user)),
    field("MaxTRESPA", "MaxTRESPA", 13, |q, c| tres(c, &q.max_tres_per_account)),
    field("MaxJobsPA", "MaxJobsPA", 9, |q, c| count(c, q.max_jobs_per_account)),
    field("MaxSubmitJobsPA", "MaxSubmitPA", 11, |q, c| count(c, q.max_submit_per_account)),
    field("MinTRES", "MinTRES", 13, |q, c| tres(c, &q.min_tres_per_job)),
    // Other names of the columns above, and columns that are not in the default listing.
    field("MaxTRESPerUser", "MaxTRESPU", 13, |q, c| tres(c, &q.max_tres_per_user)),
    field("MaxTRESPerJob", "MaxTRES", 13, |q, c| tres(c, &q.max_tres_per_job)),
    field("MaxTRESPerAccount", "MaxTRESPA", 13, |q, c| tres(c, &q.max_tres_per_account)),
    field("MaxTRESMinsPerJob", "MaxTRESMins", 13, |q, c| tres(c, &q.max_tres_minutes_per_job)),
    field("MaxJobsPerUser", "MaxJobsPU", 9, |q, c| count(c, q.max_jobs_per_user)),
    field("MaxJobsPerAccount", "MaxJobsPA", 9, |q, c| count(c, q.max_jobs_per_account)),
    field("MaxSubmitPU", "MaxSubmitPU", 11, |q, c| count(c, q.max_submit_per_user)),
    field("MaxSubmitPA", "MaxSubmitPA", 11, |q, c| count(c, q.max_submit_per_account)),
    field("MaxSubmitJobsPerUser", "MaxSubmitPU", 11, |q, c| count(c, q.max_submit_per_user)),
    field("MaxSubmitJobsPerAccount", "MaxSubmitPA", 11, |q, c| count(c, q.max_submit_per_account)),
    field("MaxWallDurationPerJob", "MaxWall", 11, |q, c| wall(c, q.max_wall)),
    field("MinTRESPerJob", "MinTRES", 13, |q, c| tres(c, &q.min_tres_per_job)),
    field("GrpJobsAccrue", "GrpJobsAccrue", 13, |q, c| count(c, q.group_jobs_accrue)),
    field("MaxJobsAccruePU", "MaxJobsAccruePU", 15, |q, c| count(c, q.max_jobs_accrue_per_user)),
    field("MaxJobsAccruePerUser", "MaxJobsAccruePU", 15, |q, c| count(c, q.max_jobs_accrue_per_user)),
    field("MaxJobsAccruePA", "MaxJobsAccruePA", 15, |q, c| count(c, q.max_jobs_accrue_per_account)),
    field("MaxJobsAccruePerAccount", "MaxJobsAccruePA", 15, |q, c| count(c, q.max_jobs_accrue_per_account)),
    field("MinPrioThreshold", "MinPrioThresh", 13, |q, c| count(c, q.min_priority_threshold)),
    field("LimitFactor", "LimitFactor", 11, |q, c| factor(c, q.limit_factor)),
    field("Description", "Descr", 20, |q, c| c.push_str(&q.description)),
];

/// How many columns of [`QOS`] the default listing has.
pub const QOS_DEFAULT: usize = 26;

/// Not formatted by rustfmt: a row is one line.
#[rustfmt::skip]
pub static ACCOUNT: &[Field<Listed<Account>>] = &[
    field("Account", "Account", 10, |a, c| c.push_str(&a.name)),
    field("Description", "Descr", 20, |a, c| c.push_str(&a.description)),
    field("Organization", "Org", 20, |a, c| c.push_str(&a.organization)),
    field("ParentName", "Par Name", 10, |a, c| c.push_str(a.parent.as_deref().unwrap_or(""))),
    field("Coordinators", "Coord Accounts", 20, |a, c| c.push_str(&a.coordinators.join(","))),
    field("Flags", "Flags", 20, |a, c| deleted(c, a.deleted)),
];

/// How many columns of [`ACCOUNT`] the default listing has.
pub const ACCOUNT_DEFAULT: usize = 3;

/// An association with the values of its account, user and cluster.
pub struct AssociationRow {
    pub association: Association,
    pub cluster: String,
    pub default_account: String,
    pub admin: &'static str,
    pub qos: String,
    pub parent: String,
    /// The account's description.
    pub description: String,
    pub organization: String,
    /// The accounts that the user coordinates, if they were asked for.
    pub coordinated: String,
    pub deleted: bool,
    /// How deep it is in the tree, if that is shown.
    depth: usize,
}

impl AssociationRow {
    pub fn of(view: &AccountsView, association: &Association, options: &Options) -> Self {
        let own = options.own_limits || options.no_parents;
        Self {
            cluster: view.cluster.clone(),
            default_account: default_account(view, association).to_owned(),
            admin: admin(view, association.user.as_deref().unwrap_or_default()),
            qos: if options.own_qos { association.qos.join(",") } else { qos(view, association) },
            parent: match association.user {
                None if !options.no_parents => {
                    parent(view, &association.account).unwrap_or_default().to_owned()
                }
                _ => String::new(),
            },
            description: of_account(view, association, |a| &a.description),
            organization: of_account(view, association, |a| &a.organization),
            coordinated: String::new(),
            deleted: view.deleted.has_association(association),
            depth: if options.tree { depth(view, association) } else { 0 },
            association: if own { association.clone() } else { inherited(view, association) },
        }
    }

    pub fn user(&self) -> &str {
        self.association.user.as_deref().unwrap_or_default()
    }

    fn group(&self, kind: &TresKind) -> Option<u32> {
        let amount = self.association.limits.group_tres.get(kind)?;
        u32::try_from(amount).ok()
    }

    fn max(&self, kind: &TresKind) -> Option<u32> {
        let amount = self.association.limits.max_tres_per_job.get(kind)?;
        u32::try_from(amount).ok()
    }
}

fn of_account(view: &AccountsView, of: &Association, get: fn(&Account) -> &String) -> String {
    let account = view.accounts.iter().find(|account| account.name == of.account);
    account.map(get).cloned().unwrap_or_default()
}

/// The association with the limits of the accounts above it for those that it does not set, as Slurm shows them.
fn inherited(view: &AccountsView, association: &Association) -> Association {
    let mut shown = association.clone();
    let mut at = match association.user {
        Some(_) => Some(association.account.as_str()),
        None => parent(view, &association.account),
    };
    // Bounds the walk: no account is deeper than the number of accounts.
    for _ in 0..=view.accounts.len() {
        let Some(name) = at else { break };
        let own = view.associations.iter().find(|a| a.user.is_none() && a.account == name);
        if let Some(own) = own {
            shown.priority = shown.priority.or(own.priority);
            shown.default_qos = shown.default_qos.or_else(|| own.default_qos.clone());
            let (limits, above) = (&mut shown.limits, &own.limits);
            limits.max_jobs = limits.max_jobs.or(above.max_jobs);
            limits.max_jobs_accrue = limits.max_jobs_accrue.or(above.max_jobs_accrue);
            limits.max_submit = limits.max_submit.or(above.max_submit);
            limits.max_wall = limits.max_wall.or(above.max_wall);
            fill(&mut limits.max_tres_per_job, &above.max_tres_per_job);
            fill(&mut limits.max_tres_per_node, &above.max_tres_per_node);
            fill(&mut limits.max_tres_minutes_per_job, &above.max_tres_minutes_per_job);
        }
        at = parent(view, name);
    }
    shown
}

fn fill(limits: &mut Tres, above: &Tres) {
    for (kind, limit) in above.iter() {
        if limits.get(kind).is_none() {
            limits.set(kind.clone(), limit);
        }
    }
}

/// How many accounts an association is below; one of a user is below its account.
fn depth(view: &AccountsView, association: &Association) -> usize {
    let (mut depth, mut at) =
        (usize::from(association.user.is_some()), association.account.as_str());
    // Bounds the walk: no account is deeper than the number of accounts.
    for _ in 0..view.accounts.len() {
        let Some(above) = parent(view, at) else { break };
        (depth, at) = (depth + 1, above);
    }
    depth
}

fn default_account<'a>(view: &'a AccountsView, association: &Association) -> &'a str {
    let of_user = || view.associations.iter().filter(|a| a.user == association.user);
    let default = of_user().find(|a| a.default).or_else(|| of_user().next());
    default.map_or("", |association| &association.account)
}

fn admin(view: &AccountsView, user: &str) -> &'static str {
    match view.roles.get(user) {
        Some(Role::Admin) => "Administrator",
        Some(Role::Operator) => "Operator",
        _ if user == "root" => "Administrator",
        _ => "None",
    }
}

fn parent<'a>(view: &'a AccountsView, account: &str) -> Option<&'a str> {
    let of_name = view.accounts.iter().find(|a| a.name == account);
    of_name.and_then(|account| account.parent.as_deref())
}

/// The association's QOS, or those of the nearest account above that has any.
fn qos(view: &AccountsView, association: &Association) -> String {
    let mut association = association;
    // Bounds the walk: no account is deeper than the number of accounts.
    for _ in 0..=view.accounts.len() {
        if !association.qos.is_empty() {
            return association.qos.join(",");
        }
        let above = match &association.user {
            Some(_) => Some(association.account.as_str()),
            None => parent(view, &association.account),
        };
        let of_account = |a: &&Association| a.user.is_none() && Some(a.account.as_str()) == above;
        match view.associations.iter().find(of_account) {
            Some(found) => association = found,
            None => break,
        }
    }
    model::account::NORMAL_QOS.to_owned()
}

/// Not formatted by rustfmt: a row is one line.
#[rustfmt::skip]
pub static ASSOCIATION: &[Field<AssociationRow>] = &[
    field("User", "User", 10, |m, c| c.push_str(m.user())),
    field("DefaultAccount", "Def Acct", 10, |m, c| c.push_str(&m.default_account)),
    field("AdminLevel", "Admin", 9, |m, c| c.push_str(m.admin)),
    field("Cluster", "Cluster", 10, |m, c| c.push_str(&m.cluster)),
    field("Coordinators", "Coord Accounts", 20, |m, c| c.push_str(&m.coordinated)),
    field("Account", "Account", 10, |m, c| push!(c, "{:2$}{}", "", m.association.account, m.depth)),
    field("Partition", "Partition", 10, |m, c| c.push_str(m.association.partition.as_deref().unwrap_or(""))),
    field("Share", "Share", 9, |m, c| push!(c, "{}", m.association.shares)),
    field("Fairshare", "Share", 9, |m, c| push!(c, "{}", m.association.shares)),
    field("Priority", "Priority", 10, |m, c| count(c, m.association.priority)),
    field("GrpJobs", "GrpJobs", 7, |m, c| count(c, m.association.limits.group_jobs)),
    field("GrpJobsAccrue", "GrpJobsAccrue", 13, |m, c| count(c, m.association.limits.group_jobs_accrue)),
    field("GrpTRES", "GrpTRES", 13, |m, c| tres(c, &m.association.limits.group_tres)),
    field("GrpSubmitJobs", "GrpSubmit", 9, |m, c| count(c, m.association.limits.group_submit)),
    field("GrpWall", "GrpWall", 11, |m, c| wall(c, m.association.limits.group_wall)),
    field("GrpTRESMins", "GrpTRESMins", 13, |m, c| tres(c, &m.association.limits.group_tres_minutes)),
    field("MaxJobsAccrue", "MaxJobsAccrue", 13, |m, c| count(c, m.association.limits.max_jobs_accrue)),
    field("MaxJobs", "MaxJobs", 7, |m, c| count(c, m.association.limits.max_jobs)),
    field("MaxTRES", "MaxTRES", 13, |m, c| tres(c, &m.association.limits.max_tres_per_job)),
    field("MaxTRESPerJob", "MaxTRES", 13, |m, c| tres(c, &m.association.limits.max_tres_per_job)),
    field("MaxTRESPerNode", "MaxTRESPerNode", 14, |m, c| tres(c, &m.association.limits.max_tres_per_node)),
    field("MaxNodes", "MaxNodes", 8, |m, c| count(c, m.max(&TresKind::Node))),
    field("MaxCPUs", "MaxCPUs", 8, |m, c| count(c, m.max(&TresKind::Cpu))),
    field("MaxSubmitJobs", "MaxSubmit", 9, |m, c| count(c, m.association.limits.max_submit)),
    field("MaxWall", "MaxWall", 11, |m, c| wall(c, m.association.limits.max_wall)),
    field("MaxCPUMins", "MaxCPUMins", 11, |m, c| if let Some(n) = m.association.limits.max_tres_minutes_per_job.get(&TresKind::Cpu) { push!(c, "{n}") }),
    field("MaxTRESMins", "MaxTRESMins", 13, |m, c| tres(c, &m.association.limits.max_tres_minutes_per_job)),
    field("QOS", "QOS", 20, |m, c| c.push_str(&m.qos)),
    field("DefaultQOS", "Def QOS", 9, |m, c| c.push_str(m.association.default_qos.as_deref().unwrap_or(""))),
    field("GrpTRESRunMins", "GrpTRESRunMin", 13, |m, c| tres(c, &m.association.limits.group_tres_run_minutes)),
    field("MinPrioThreshold", "MinPrioThresh", 13, |m, c| count(c, m.association.limits.min_priority_threshold)),
    field("ParentName", "ParentName", 10, |m, c| c.push_str(&m.parent)),
    field("Description", "Descr", 20, |m, c| c.push_str(&m.description)),
    field("Organization", "Org", 20, |m, c| c.push_str(&m.organization)),
    field("GrpNodes", "GrpNodes", 8, |m, c| count(c, m.group(&TresKind::Node))),
    field("GrpCPUs", "GrpCPUs", 8, |m, c| count(c, m.group(&TresKind::Cpu))),
    field("GrpMem", "GrpMem", 7, |m, c| count(c, m.group(&TresKind::Mem))),
    field("Flags", "Flags", 20, |m, c| deleted(c, m.deleted)),
    field("GrpCPUMins", "GrpCPUMins", 11, |m, c| if let Some(n) = m.association.limits.group_tres_minutes.get(&TresKind::Cpu) { push!(c, "{n}") }),
];

/// A resource that is counted, with Slurm's number for it.
pub struct TresRow {
    pub kind: &'static str,
    pub name: String,
    pub id: u32,
}

pub static TRES: &[Field<TresRow>] = &[
    field("Type", "Type", 8, |t, c| c.push_str(t.kind)),
    field("Name", "Name", 15, |t, c| c.push_str(&t.name)),
    field("ID", "ID", 6, |t, c| push!(c, "{}", t.id)),
];

/// The resources that every cluster counts.
pub const TRES_ALWAYS: [(&str, &str); 8] = [
    ("cpu", ""),
    ("mem", ""),
    ("energy", ""),
    ("node", ""),
    ("billing", ""),
    ("fs", "disk"),
    ("vmem", ""),
    ("pages", ""),
];

/// The number of the first generic resource.
pub const TRES_GRES_FIRST: u32 = 1001;

/// The row of this cluster.
pub struct ClusterRow {
    pub name: String,
    pub host: String,
    pub port: u16,
}

/// Not formatted by rustfmt: a row is one line.
#[rustfmt::skip]
pub static CLUSTER: &[Field<ClusterRow>] = &[
    field("Cluster", "Cluster", 10, |r, c| c.push_str(&r.name)),
    field("ControlHost", "ControlHost", 15, |r, c| c.push_str(&r.host)),
    field("ControlPort", "ControlPort", 12, |r, c| push!(c, "{}", r.port)),
    field("RPC", "RPC", 5, |_, c| c.push_str("9728")),
    field("Share", "Share", 9, |_, c| c.push('1')),
    unsupported("GrpJobs", "GrpJobs", 7),
    unsupported("GrpTRES", "GrpTRES", 13),
    unsupported("GrpSubmitJobs", "GrpSubmit", 9),
    unsupported("MaxJobs", "MaxJobs", 7),
    unsupported("MaxTRES", "MaxTRES", 13),
    unsupported("MaxSubmitJobs", "MaxSubmit", 9),
    unsupported("MaxWall", "MaxWall", 11),
    field("QOS", "QOS", 20, |_, c| c.push_str(model::account::NORMAL_QOS)),
    unsupported("DefaultQOS", "Def QOS", 9),
];
