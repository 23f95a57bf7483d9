//! `sacctmgr show`: accounts, users, associations, qualities of service, and what is counted.

pub mod audit;
mod fields;

use crate::output::table::field_table::{self, ChosenColumn, Layout, NamedColumn, Table};
use fields::{
    ACCOUNT, ACCOUNT_DEFAULT, ASSOCIATION, AssociationRow, CLUSTER, ClusterRow, Field, Listed, QOS,
    QOS_DEFAULT, TRES, TRES_ALWAYS, TRES_GRES_FIRST, TresRow,
};
use model::account::{Account, Association, Qos};
use model::hostlist::compare_names;
use std::collections::BTreeSet;
use std::io;
use wire::view::AccountsView;

const USER_DEFAULT: &[&str] = &["User", "DefaultAccount", "AdminLevel"];
#[rustfmt::skip]
const USER_WITH_ASSOCIATIONS: &[&str] = &[
    "User", "DefaultAccount", "AdminLevel", "Cluster", "Account", "Partition", "Share", "Priority", "MaxJobs",
    "MaxNodes", "MaxCPUs", "MaxSubmitJobs", "MaxWall", "MaxCPUMins", "QOS", "DefaultQOS",
];
#[rustfmt::skip]
const ACCOUNT_WITH_ASSOCIATIONS: &[&str] = &[
    "Account", "Description", "Organization", "Cluster", "ParentName", "User", "Share", "Priority", "GrpJobs",
    "GrpNodes", "GrpCPUs", "GrpMem", "GrpSubmitJobs", "GrpWall", "GrpCPUMins", "MaxJobs", "MaxNodes", "MaxCPUs",
    "MaxSubmitJobs", "MaxWall", "MaxCPUMins", "QOS", "DefaultQOS",
];
#[rustfmt::skip]
const ASSOCIATION_DEFAULT: &[&str] = &[
    "Cluster", "Account", "User", "Partition", "Share", "Priority", "GrpJobs", "GrpTRES", "GrpSubmitJobs",
    "GrpWall", "GrpTRESMins", "MaxJobs", "MaxTRES", "MaxTRESPerNode", "MaxSubmitJobs", "MaxWall", "MaxTRESMins",
    "QOS", "DefaultQOS", "GrpTRESRunMins",
];

/// The kinds of things that `sacctmgr` knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Entity {
    Qos,
    Account,
    User,
    Association,
    Tres,
    Cluster,
    /// Who changed what: `audit`.
    Transaction,
    /// When nodes were out of service: `audit`.
    Event,
    /// Jobs that the books have as running and the queue does not know.
    RunawayJob,
    /// Added and removed on its own, and shown with accounts and users.
    Coordinator,
}

/// Not formatted by rustfmt: a row is one line.
#[rustfmt::skip]
const ENTITIES: &[(&str, Entity)] = &[
    ("qos", Entity::Qos),
    ("account", Entity::Account),
    ("user", Entity::User),
    ("association", Entity::Association),
    ("tres", Entity::Tres),
    ("cluster", Entity::Cluster),
    ("transaction", Entity::Transaction),
    ("event", Entity::Event),
    ("runawayjob", Entity::RunawayJob),
    ("coordinator", Entity::Coordinator),
];

impl Entity {
    /// Reads a name, its plural, or a beginning of at least three letters (`assoc`).
    pub fn parse(word: &str) -> Option<Self> {
        let word = word.to_ascii_lowercase();
        let of = |name: &str| {
            name == word
                || format!("{name}s") == word
                || (word.len() > 2 && name.starts_with(&word))
        };
        ENTITIES.iter().find(|(name, _)| of(name)).map(|(_, entity)| *entity)
    }
}

/// The options that shape the table.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// `format=Name,MaxTRESPU%20`
    pub format: Option<String>,
    pub no_header: bool,
    pub layout: Layout,
    /// `-s`: with each user, its associations.
    pub associations: bool,
    /// With accounts and users, the coordinators.
    pub coordinators: bool,
    /// `withdeleted`: the view has what was deleted, and a column says which that is.
    pub deleted: bool,
    /// `tree`: the account of each association is as far to the right as it is deep.
    pub tree: bool,
    /// `wopinfo`: without what an association is below.
    pub no_parents: bool,
    /// `woplimits`: limits where they are set alone, and not below as well.
    pub own_limits: bool,
    /// The same of QOS: `withrawqos` with `woplimits`.
    pub own_qos: bool,
    pub filter: AssociationFilter,
    pub conditions: Conditions,
    /// Show only these names; empty shows all.
    pub names: Vec<String>,
}

/// Which associations are shown, with what they have of the accounts above them, also of those that are not.
#[derive(Debug, Clone, Default)]
pub struct AssociationFilter {
    /// The accounts whose associations are shown; all where it is empty.
    pub accounts: Vec<String>,
    /// The users whose associations are shown; all, and those of the accounts themselves, where it is empty.
    pub users: Vec<String>,
    /// The partitions whose associations are shown.
    pub partitions: Vec<String>,
    /// `onlydefaults`: only associations with the default account of their user.
    pub only_defaults: bool,
}

/// Which accounts, users and QOS are shown; an empty list leaves none out. Letters are compared in any case.
#[derive(Debug, Clone, Default)]
pub struct Conditions {
    /// Only accounts below one of these, and their associations.
    pub parents: Vec<String>,
    pub organizations: Vec<String>,
    /// Only accounts and QOS with one of these descriptions.
    pub descriptions: Vec<String>,
    /// Only users with one of these administrator levels: `none`, `operator`, `administrator`, or the beginning of one.
    pub admin_levels: Vec<String>,
    pub default_accounts: Vec<String>,
}

impl Conditions {
    fn admits_account(&self, account: &Account) -> bool {
        is_listed(&self.parents, account.parent.as_deref().unwrap_or_default())
            && is_listed(&self.organizations, &account.organization)
            && is_listed(&self.descriptions, &account.description)
    }

    fn admits_association(&self, row: &AssociationRow) -> bool {
        let level = row.admin.to_ascii_lowercase();
        let is_level = |word: &String| level.starts_with(&word.to_ascii_lowercase());
        (self.parents.is_empty()
            || (row.association.user.is_none() && is_listed(&self.parents, &row.parent)))
            && is_listed(&self.organizations, &row.organization)
            && is_listed(&self.descriptions, &row.description)
            && is_listed(&self.default_accounts, &row.default_account)
            && (self.admin_levels.is_empty() || self.admin_levels.iter().any(is_level))
    }
}

fn is_listed(list: &[String], text: &str) -> bool {
    list.is_empty() || list.iter().any(|wanted| wanted.eq_ignore_ascii_case(text))
}

impl AssociationFilter {
    fn admits(&self, association: &Association) -> bool {
        let is_named =
            |names: &[String], name: &str| names.is_empty() || names.iter().any(|n| n == name);
        is_named(&self.accounts, &association.account)
            && is_named(&self.users, association.user.as_deref().unwrap_or_default())
            && is_named(&self.partitions, association.partition.as_deref().unwrap_or_default())
            && (!self.only_defaults || association.default)
    }
}

/// The column that `tree` makes wide, with its text on the left.
const TREE_COLUMN: &str = "Account";
const TREE_WIDTH: i16 = -20;

/// The address of the server, for `show cluster`.
#[derive(Debug, Clone, Default)]
pub struct ControlAddress {
    pub host: String,
    pub port: u16,
}

#[derive(Debug, thiserror::Error)]
pub enum SacctmgrError {
    #[error("Unknown field '{0}'")]
    UnknownField(String),
    #[error(transparent)]
    Write(#[from] io::Error),
}

/// Prints the table of an entity. `gres` are the generic resources that the cluster counts.
pub fn show(
    out: &mut impl io::Write,
    entity: Entity,
    view: &AccountsView,
    gres: &[String],
    control: &ControlAddress,
    options: &Options,
) -> Result<(), SacctmgrError> {
    let is_shown = |name: &str| options.names.is_empty() || options.names.iter().any(|n| n == name);
    let conditions = &options.conditions;
    let mut text = String::new();
    match entity {
        Entity::Qos => {
            let listed =
                |qos: &Qos| Listed { deleted: view.deleted.has_qos(&qos.name), entry: qos.clone() };
            let is_wanted = |qos: &&Qos| {
                is_shown(&qos.name) && is_listed(&conditions.descriptions, &qos.description)
            };
            let rows: Vec<Listed<Qos>> = view.qos.iter().filter(is_wanted).map(listed).collect();
            push(&mut text, QOS, first_names(QOS, QOS_DEFAULT), options, &rows)?;
        }
        Entity::Account if options.associations => {
            let mut rows = associations(view, options);
            rows.retain(|m| is_shown(&m.association.account) && conditions.admits_association(m));
            rows.sort_by(|a, b| a.association.account.cmp(&b.association.account));
            let names = with_columns(ACCOUNT_WITH_ASSOCIATIONS.to_vec(), false, options);
            push(&mut text, ASSOCIATION, names, options, &rows)?;
        }
        Entity::Account => {
            let listed = |account: &Account| {
                let coordinators =
                    if options.coordinators { coordinators(view, account) } else { Vec::new() };
                let deleted = view.deleted.has_account(&account.name);
                Listed { entry: Account { coordinators, ..account.clone() }, deleted }
            };
            let mut rows: Vec<Listed<Account>> =
                view.accounts.iter().filter(|a| is_shown(&a.name)).map(listed).collect();
            rows.retain(|account| conditions.admits_account(account));
            rows.sort_by(|a, b| a.name.cmp(&b.name));
            let names = first_names(ACCOUNT, ACCOUNT_DEFAULT);
            let names = with_columns(names, options.coordinators, options);
            push(&mut text, ACCOUNT, names, options, &rows)?;
        }
        Entity::User => {
            let names = if options.associations { USER_WITH_ASSOCIATIONS } else { USER_DEFAULT };
            let mut rows = users(view, options);
            rows.retain(|member| is_shown(member.user()) && conditions.admits_association(member));
            if options.coordinators {
                rows.iter_mut().for_each(|row| row.coordinated = coordinated(view, row.user()));
            }
            let names = with_columns(names.to_vec(), options.coordinators, options);
            push(&mut text, ASSOCIATION, names, options, &rows)?;
        }
        Entity::Association => {
            let mut rows = associations(view, options);
            rows.retain(|m| is_shown(&m.association.account) || is_shown(m.user()));
            rows.retain(|m| conditions.admits_association(m));
            let names = with_columns(ASSOCIATION_DEFAULT.to_vec(), false, options);
            push(&mut text, ASSOCIATION, names, options, &rows)?;
        }
        Entity::Coordinator | Entity::Transaction | Entity::Event => {}
        // The books have a job's row when it has ended, by the queue's own word: there is never one.
        Entity::RunawayJob => {
            text = format!("Runaway Jobs: No runaway jobs found on cluster {}\n", view.cluster);
        }
        Entity::Tres => {
            push(&mut text, TRES, first_names(TRES, TRES.len()), options, &tres_rows(gres))?;
        }
        Entity::Cluster => {
            let ControlAddress { host, port } = control.clone();
            let names = &options.names;
            let is_named = names.iter().any(|name| name.eq_ignore_ascii_case(&view.cluster));
            let mut rows = vec![ClusterRow { name: view.cluster.clone(), host, port }];
            rows.retain(|_| names.is_empty() || is_named);
            push(&mut text, CLUSTER, first_names(CLUSTER, CLUSTER.len()), options, &rows)?;
        }
    }
    Ok(out.write_all(text.as_bytes())?)
}

/// The columns of a list with those that its words add.
fn with_columns<'a>(
    mut names: Vec<&'a str>,
    coordinators: bool,
    options: &Options,
) -> Vec<&'a str> {
    names.extend(coordinators.then_some("Coordinators"));
    names.extend(options.deleted.then_some("Flags"));
    names
}

/// The coordinators of an account and of all accounts above it.
fn coordinators(view: &AccountsView, account: &Account) -> Vec<String> {
    let (mut found, mut at) = (BTreeSet::new(), Some(account));
    // An account is at most as deep as there are accounts.
    for _ in 0..=view.accounts.len() {
        let Some(account) = at else { break };
        found.extend(account.coordinators.iter().cloned());
        at = view.accounts.iter().find(|above| Some(&above.name) == account.parent.as_ref());
    }
    found.into_iter().collect()
}

/// The accounts that a user coordinates.
fn coordinated(view: &AccountsView, user: &str) -> String {
    let is_one = |account: &&Account| coordinators(view, account).iter().any(|name| name == user);
    let mut names: Vec<&str> =
        view.accounts.iter().filter(is_one).map(|account| account.name.as_str()).collect();
    names.sort_unstable();
    names.join(",")
}

fn first_names<T>(fields: &'static [Field<T>], count: usize) -> Vec<&'static str> {
    fields.iter().take(count).map(NamedColumn::name).collect()
}

fn push<T>(
    text: &mut String,
    fields: &'static [Field<T>],
    default_names: Vec<&str>,
    options: &Options,
    rows: &[T],
) -> Result<(), SacctmgrError> {
    let mut columns: Vec<ChosenColumn<Field<T>>> = match &options.format {
        Some(format) => field_table::parse(fields, format)
            .map_err(|unknown| SacctmgrError::UnknownField(unknown.0))?,
        None => field_table::default_columns(fields, &default_names),
    };
    if options.tree {
        let usual = columns.iter_mut().filter(|chosen| {
            chosen.column.name() == TREE_COLUMN && chosen.width == chosen.column.width()
        });
        usual.for_each(|chosen| chosen.width = TREE_WIDTH);
    }
    let table = Table { columns: &columns, layout: &options.layout };
    if !options.no_header {
        table.push_header(text);
    }
    for row in rows {
        table.push_line(text, |field, cell| (field.render)(row, cell));
    }
    Ok(())
}

/// One row for each user, or for each association of a user.
fn users(view: &AccountsView, options: &Options) -> Vec<AssociationRow> {
    let mut members: Vec<AssociationRow> = view
        .associations
        .iter()
        .filter(|association| association.user.is_some())
        .filter(|association| view.only_user.is_none() || association.user == view.only_user)
        .filter(|association| options.filter.admits(association))
        .map(|association| AssociationRow::of(view, association, options))
        .collect();
    members.sort_by(|a, b| compare_names(a.user(), b.user()));
    if !options.associations {
        members.dedup_by(|a, b| a.user() == b.user());
    }
    members
}

/// The associations, each account before its users and before the accounts below it.
fn associations(view: &AccountsView, options: &Options) -> Vec<AssociationRow> {
    let mut order: Vec<&str> = Vec::new();
    let mut seen: BTreeSet<&str> = BTreeSet::new();
    let mut stack: Vec<&str> = children(view, None);
    while let Some(account) = stack.pop() {
        if seen.insert(account) {
            order.push(account);
            stack.extend(children(view, Some(account)));
        }
    }
    let place = |account: &str| order.iter().position(|name| *name == account);
    let mut rows: Vec<&Association> =
        view.associations.iter().filter(|a| options.filter.admits(a)).collect();
    // An association for one partition comes before the one for all.
    rows.sort_by_key(|a| {
        let at = place(&a.account).unwrap_or(usize::MAX);
        (at, a.user.clone(), a.partition.is_none(), a.partition.clone())
    });
    rows.into_iter().map(|association| AssociationRow::of(view, association, options)).collect()
}

/// The accounts under `parent` in reverse alphabetical order, for a stack.
fn children<'a>(view: &'a AccountsView, parent: Option<&str>) -> Vec<&'a str> {
    let below = view.accounts.iter().filter(|a| a.parent.as_deref() == parent);
    let mut names: Vec<&str> = below.map(|a| a.name.as_str()).collect();
    names.sort_unstable_by(|a, b| b.cmp(a));
    names
}

/// The rows of `sacctmgr show tres`: the resources that every cluster counts, and the generic ones.
pub fn tres_rows(gres: &[String]) -> Vec<TresRow> {
    let always = TRES_ALWAYS.iter().zip(1..).map(|((kind, name), id)| TresRow {
        kind,
        name: (*name).to_owned(),
        id,
    });
    let generic = gres.iter().zip(TRES_GRES_FIRST..).map(|(name, id)| TresRow {
        kind: "gres",
        name: name.clone(),
        id,
    });
    always.chain(generic).collect()
}

#[cfg(test)]
mod tests;
