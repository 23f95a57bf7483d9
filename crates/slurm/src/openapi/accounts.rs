//! Users, accounts, associations, qualities of service and what is counted: the objects of slurmrestd's paths for the accounting
//! database.

use super::Version;
use super::field::Form::{self, Absent, Plain, Set};
use super::field::{Cell, Context, Field, Number, field, number, optional_text, text, values};
use crate::output::sacctmgr::tres_rows;
use model::account::{Account, Association, AssociationLimits, Qos, Shares};
use model::principal::Role;
use model::time::TimeLimit;
use model::tres::Tres;
use serde_json::{Map, Value, json};
use std::borrow::Cow;
use std::collections::BTreeSet;
use wire::view::AccountsView;

/// A user with the associations that name it.
struct UserRow {
    name: String,
    level: &'static str,
    associations: Vec<Association>,
    coordinates: Vec<String>,
    deleted: bool,
}

/// Not formatted by rustfmt: a row is one line.
#[rustfmt::skip]
static USER: &[Field<UserRow>] = &[
    field("administrator_level", Plain,  Form::List, |_, u| text(u.level)),
    field("associations",        Plain,  Plain,  |c, u| Cell::Value(short_keys(c, &u.associations))),
    field("coordinators",        Plain,  Plain,  |c, u| Cell::Value(coordinators(c, &u.coordinates))),
    field("default",             Plain,  Plain,  |_, u| Cell::Value(json!({"account": default_account(u), "wckey": ""}))),
    field("flags",               Plain,  Plain,  |_, u| deleted(u.deleted)),
    field("name",                Plain,  Plain,  |_, u| text(&*u.name)),
    field("old_name",            Absent, Plain,  |_, _| text("")),
    field("wckeys",              Absent, Plain,  |_, _| Cell::Words(Vec::new())),
];

struct AccountRow {
    account: Account,
    associations: Vec<Association>,
    deleted: bool,
}

#[rustfmt::skip]
static ACCOUNT: &[Field<AccountRow>] = &[
    field("associations", Plain, Plain, |c, a| Cell::Value(short_keys(c, &a.associations))),
    field("coordinators", Plain, Plain, |c, a| Cell::Value(coordinators(c, &a.account.coordinators))),
    field("description",  Plain, Plain, |_, a| text(&*a.account.description)),
    field("flags",        Plain, Plain, |_, a| deleted(a.deleted)),
    field("name",         Plain, Plain, |_, a| text(&*a.account.name)),
    field("organization", Plain, Plain, |_, a| text(&*a.account.organization)),
];

/// An association with the account above its own.
struct AssociationRow {
    association: Association,
    parent: Option<String>,
    id: u32,
    deleted: bool,
}

#[rustfmt::skip]
static ASSOCIATION: &[Field<AssociationRow>] = &[
    field("QOS",            Plain,  Absent, |_, a| Cell::Words(borrowed(&a.association.qos))),
    field("account",        Plain,  Plain, |_, a| text(&*a.association.account)),
    field("accounting",     Absent, Plain, |_, _| Cell::Words(Vec::new())),
    field("cluster",        Plain,  Plain, |c, _| text(&*c.cluster)),
    field("comment",        Absent, Plain, |_, _| text("")),
    field("default",        Plain,  Plain, |_, a| Cell::Value(json!({"qos": a.association.default_qos.as_deref().unwrap_or("")}))),
    field("flags",          Plain,  Plain, |_, a| deleted(a.deleted)),
    field("id",             Absent, Plain, association_id),
    field("is_default",     Absent, Plain, |_, a| Cell::Bool(a.association.default)),
    field("lineage",        Absent, Plain, |_, a| text(lineage(a))),
    field("max",            Plain,  Plain, |c, a| Cell::Value(association_max(c, &a.association.limits))),
    field("min",            Plain,  Plain, |c, a| Cell::Value(json!({"priority_threshold": c.number(a.association.limits.min_priority_threshold)}))),
    field("parent_account", Plain,  Plain, |_, a| optional_text(a.parent.as_deref())),
    field("partition",      Plain,  Plain, |_, a| optional_text(a.association.partition.as_deref())),
    field("priority",       Plain,  Set,   |_, a| number(a.association.priority)),
    field("qos",            Absent, Plain, |_, a| Cell::Words(borrowed(&a.association.qos))),
    field("shares_raw",     Plain,  Plain, |_, a| shares(a.association.shares)),
    field("user",           Plain,  Plain, |_, a| optional_text(a.association.user.as_deref())),
];

struct QosRow {
    qos: Qos,
    id: u32,
    deleted: bool,
}

#[rustfmt::skip]
static QOS: &[Field<QosRow>] = &[
    field("description",     Plain, Plain, |_, q| text(&*q.qos.description)),
    field("flags",           Plain, Plain, |_, q| Cell::Words(qos_flags(q))),
    field("id",              Plain, Plain, |_, q| number(q.id)),
    field("limits",          Plain, Plain, |c, q| Cell::Value(qos_limits(c, &q.qos))),
    field("name",            Plain, Plain, |_, q| text(&*q.qos.name)),
    field("preempt",         Plain, Plain, |c, q| Cell::Value(preempt(c, &q.qos))),
    field("priority",        Plain, Set,   |_, q| number(q.qos.priority)),
    field("usage_factor",    Plain, Set,   |_, q| Cell::Float(q.qos.usage_factor.value())),
    field("usage_threshold", Plain, Set,   |_, q| q.qos.usage_threshold.map_or(Cell::Number(Number::Unset), |factor| Cell::Float(factor.value()))),
];

/// The API's words for flags of a QOS, beside those of `sacctmgr`. A flag that is not listed keeps its word.
const QOS_FLAGS: &[(&str, &str)] = &[
    ("DenyOnLimit", "DENY_LIMIT"),
    ("EnforceUsageThreshold", "ENFORCE_USAGE_THRESHOLD"),
    ("NoDecay", "NO_DECAY"),
    ("NoReserve", "NO_RESERVE"),
    ("OverPartQOS", "OVERRIDE_PARTITION_QOS"),
    ("PartitionMaxNodes", "PARTITION_MAXIMUM_NODE"),
    ("PartitionMinNodes", "PARTITION_MINIMUM_NODE"),
    ("PartitionTimeLimit", "PARTITION_TIME_LIMIT"),
    ("RequiresReservation", "REQUIRED_RESERVATION"),
    ("UsageFactorSafe", "USAGE_FACTOR_SAFE"),
];

fn flag_word<'a>(word: &str) -> Cow<'a, str> {
    let row = QOS_FLAGS.iter().find(|(own, _)| own.eq_ignore_ascii_case(word));
    row.map_or_else(|| Cow::Owned(word.to_owned()), |(_, shown)| Cow::Borrowed(*shown))
}

fn qos_flags<'a>(row: &QosRow) -> Vec<Cow<'a, str>> {
    let words = row.qos.flags.iter().map(|flag| flag_word(&flag.to_string()));
    words.chain(row.deleted.then_some(DELETED)).collect()
}

/// What the paths of the accounting database have, each by the key of its document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum List {
    Users,
    Accounts,
    Associations,
    Qos,
    Clusters,
    Tres,
    WcKeys,
}

impl List {
    pub const ALL: [Self; 7] = [
        Self::Users,
        Self::Accounts,
        Self::Associations,
        Self::Qos,
        Self::Clusters,
        Self::Tres,
        Self::WcKeys,
    ];

    /// The key in a document.
    pub fn key(self) -> &'static str {
        match self {
            Self::Users => "users",
            Self::Accounts => "accounts",
            Self::Associations => "associations",
            Self::Qos => "qos",
            Self::Clusters => "clusters",
            Self::Tres => "tres",
            Self::WcKeys => "wckeys",
        }
    }

    /// The word of a path for one of them.
    pub fn singular(self) -> &'static str {
        match self {
            Self::Users => "user",
            Self::Accounts => "account",
            Self::Associations => "association",
            Self::Qos => "qos",
            Self::Clusters => "cluster",
            Self::Tres => "tres",
            Self::WcKeys => "wckey",
        }
    }

    /// Why nobody changes the list, in words; `None` for one that is changed.
    pub fn why_fixed(self) -> Option<&'static str> {
        match self {
            Self::Clusters => Some("there is one, which slurm.conf names"),
            Self::Tres => Some("they are as the configuration makes them"),
            Self::WcKeys => Some("they are texts of jobs, and no list of them is kept"),
            Self::Users | Self::Accounts | Self::Associations | Self::Qos => None,
        }
    }
}

/// The objects of a list; of one name, where one is asked for.
pub fn objects(
    context: &Context,
    view: &AccountsView,
    list: List,
    name: Option<&str>,
) -> Vec<Value> {
    let is_asked = |known: &str| name.is_none_or(|name| name == known);
    match list {
        List::Users => {
            let users: Vec<UserRow> =
                users(view).into_iter().filter(|user| is_asked(&user.name)).collect();
            values(context, USER, &users)
        }
        List::Accounts => {
            let known = view.accounts.iter().filter(|account| is_asked(&account.name));
            let row = |account: &Account| AccountRow {
                account: account.clone(),
                associations: of_account(view, &account.name),
                deleted: view.deleted.has_account(&account.name),
            };
            values(context, ACCOUNT, &known.map(row).collect::<Vec<_>>())
        }
        List::Associations => {
            let rows: Vec<AssociationRow> = view
                .associations
                .iter()
                .zip(1..)
                .filter(|(one, _)| is_asked(&one.account))
                .map(|(one, id)| association_row(view, one, id))
                .collect();
            values(context, ASSOCIATION, &rows)
        }
        List::Qos => {
            let known = view.qos.iter().zip(1..).filter(|(qos, _)| is_asked(&qos.name));
            let row = |(qos, id): (&Qos, u32)| QosRow {
                qos: qos.clone(),
                id,
                deleted: view.deleted.has_qos(&qos.name),
            };
            let rows: Vec<QosRow> = known.map(row).collect();
            values(context, QOS, &rows)
        }
        List::Clusters if is_asked(&context.cluster) => vec![cluster(context)],
        List::Clusters => Vec::new(),
        List::Tres => {
            let rows = tres_rows(&context.gres).into_iter();
            rows.map(|row| json!({"type": row.kind, "name": row.name, "id": row.id, "count": 0}))
                .collect()
        }
        // Keys are texts of jobs here: there is no list of those that may be used.
        List::WcKeys => Vec::new(),
    }
}

/// `GET …/config`: all lists in one document.
pub fn all_lists(context: &Context, view: &AccountsView) -> Map<String, Value> {
    let one = |list: List| (list.key().to_owned(), Value::from(objects(context, view, list, None)));
    let mut lists: Map<String, Value> = List::ALL.into_iter().map(one).collect();
    // Machines of clouds that were nodes: the books have none.
    if context.version.is_typed() {
        lists.insert("instances".to_owned(), json!([]));
    }
    lists
}

fn users(view: &AccountsView) -> Vec<UserRow> {
    let of_associations = view.associations.iter().filter_map(|one| one.user.as_deref());
    let names: BTreeSet<&str> =
        of_associations.chain(view.roles.keys().map(String::as_str)).collect();
    let is_listed = |name: &str| view.only_user.as_deref().is_none_or(|only| only == name);
    let row = |name: &str| UserRow {
        name: name.to_owned(),
        level: level(view, name),
        associations: of_user(view, name),
        coordinates: coordinated(view, name),
        deleted: is_deleted_user(view, name),
    };
    names.into_iter().filter(|name| is_listed(name)).map(row).collect()
}

fn level(view: &AccountsView, user: &str) -> &'static str {
    match view.roles.get(user) {
        Some(Role::Admin) => "Administrator",
        Some(Role::Operator) => "Operator",
        _ if user == "root" => "Administrator",
        _ => "None",
    }
}

/// The flag of what `with_deleted` adds to a list.
const DELETED: Cow<'static, str> = Cow::Borrowed("DELETED");

fn deleted<'a>(is_deleted: bool) -> Cell<'a> {
    Cell::Words(is_deleted.then_some(DELETED).into_iter().collect())
}

/// Whether all associations of a user are deleted, and he has no rights by his name.
fn is_deleted_user(view: &AccountsView, user: &str) -> bool {
    let mut own = view.associations.iter().filter(|one| one.user.as_deref() == Some(user));
    !view.roles.contains_key(user) && own.all(|one| view.deleted.has_association(one))
}

fn of_user(view: &AccountsView, user: &str) -> Vec<Association> {
    let own = view.associations.iter().filter(|one| one.user.as_deref() == Some(user));
    own.cloned().collect()
}

fn of_account(view: &AccountsView, account: &str) -> Vec<Association> {
    view.associations.iter().filter(|one| one.account == account).cloned().collect()
}

fn coordinated(view: &AccountsView, user: &str) -> Vec<String> {
    let of_user = |account: &&Account| account.coordinators.iter().any(|name| name == user);
    view.accounts.iter().filter(of_user).map(|account| account.name.clone()).collect()
}

/// Whether somebody coordinates an account himself is a number in v0.0.38, true or false later.
fn coordinators(context: &Context, names: &[String]) -> Value {
    let direct = if context.version.is_typed() { json!(true) } else { json!(1) };
    names.iter().map(|name| json!({"name": name, "direct": direct})).collect()
}

fn default_account(user: &UserRow) -> &str {
    let default = user.associations.iter().find(|one| one.default);
    default.or(user.associations.first()).map_or("", |one| &one.account)
}

fn association_row(view: &AccountsView, one: &Association, id: u32) -> AssociationRow {
    let account = view.accounts.iter().find(|account| account.name == one.account);
    let parent = account.filter(|_| one.user.is_none()).and_then(|account| account.parent.clone());
    let deleted = view.deleted.has_association(one);
    AssociationRow { association: one.clone(), parent, id, deleted }
}

fn short_key(context: &Context, one: &Association, id: u32) -> Value {
    let mut key = json!({
        "account": one.account,
        "cluster": context.cluster,
        "partition": one.partition.as_deref().unwrap_or(""),
        "user": one.user.as_deref().unwrap_or(""),
    });
    if context.version.is_typed() {
        key["id"] = id.into();
    }
    key
}

/// The whole key with its number at first, the number alone since v0.0.41.
fn association_id<'a>(context: &Context, row: &AssociationRow) -> Cell<'a> {
    if context.version >= Version::V41 {
        return number(row.id);
    }
    Cell::Value(short_key(context, &row.association, row.id))
}

fn short_keys(context: &Context, associations: &[Association]) -> Value {
    associations.iter().map(|one| short_key(context, one, 0)).collect()
}

/// `/physics/alice/`
fn lineage(row: &AssociationRow) -> String {
    let one = &row.association;
    let user = one.user.as_deref().map(|user| format!("0-{user}/")).unwrap_or_default();
    format!("/{}/{user}", one.account)
}

fn borrowed(names: &[String]) -> Vec<Cow<'_, str>> {
    names.iter().map(|name| Cow::Borrowed(name.as_str())).collect()
}

/// Slurm's number for a share that is its account's.
pub(super) const PARENT_SHARES: u32 = 2_147_483_647;

fn shares<'a>(shares: Shares) -> Cell<'a> {
    match shares {
        Shares::Count(count) => Cell::Int(count.into()),
        Shares::Parent(_) => Cell::Int(PARENT_SHARES.into()),
    }
}

fn tres(context: &Context, amounts: &Tres) -> Vec<Value> {
    super::accounting::tres_list(&context.gres, amounts)
}

fn wall(context: &Context, limit: Option<TimeLimit>) -> Value {
    context.number(limit.map_or(Number::Unset, Number::from))
}

fn association_max(context: &Context, limits: &AssociationLimits) -> Value {
    let number = |count: Option<u32>| context.number(count);
    let amounts = |of: &Tres| tres(context, of);
    json!({
        "jobs": {
            "accruing": number(limits.max_jobs_accrue),
            "active": number(limits.max_jobs),
            "total": number(limits.max_submit),
            "per": {
                "accruing": number(limits.group_jobs_accrue),
                "count": number(limits.group_jobs),
                "submitted": number(limits.group_submit),
                "wall_clock": wall(context, limits.max_wall),
            },
        },
        "tres": {
            "total": amounts(&limits.group_tres),
            "group": {
                "active": amounts(&limits.group_tres_run_minutes),
                "minutes": amounts(&limits.group_tres_minutes),
            },
            "minutes": {
                "total": amounts(&limits.max_tres_minutes_per_job),
                "per": { "job": amounts(&limits.max_tres_minutes_per_job) },
            },
            "per": {
                "job": amounts(&limits.max_tres_per_job),
                "node": amounts(&limits.max_tres_per_node),
            },
        },
        "per": { "account": { "wall_clock": wall(context, limits.group_wall) } },
    })
}

fn qos_limits(context: &Context, qos: &Qos) -> Value {
    let number = |count: Option<u32>| context.number(count);
    let amounts = |of: &Tres| tres(context, of);
    let factor = qos.limit_factor.map_or(json!(null), |factor| json!(factor.value()));
    let factor = match (context.version.is_typed(), factor) {
        (true, Value::Null) => json!({"set": false, "infinite": false, "number": 0.0}),
        (true, number) => json!({"set": true, "infinite": false, "number": number}),
        (false, plain) => plain,
    };
    let mut limits = json!({
        "grace_time": qos.grace_time_s,
        "factor": factor,
        "max": {
            "active_jobs": {
                "accruing": number(qos.group_jobs_accrue), "count": number(qos.group_jobs),
            },
            "tres": {
                "total": amounts(&qos.group_tres),
                "minutes": {
                    "per": {
                        "qos": amounts(&qos.group_tres_run_minutes),
                        "job": amounts(&qos.max_tres_minutes_per_job),
                        "account": [], "user": [],
                    },
                },
                "per": {
                    "account": amounts(&qos.max_tres_per_account),
                    "job": amounts(&qos.max_tres_per_job),
                    "node": amounts(&qos.max_tres_per_node),
                    "user": amounts(&qos.max_tres_per_user),
                },
            },
            "wall_clock": {
                "per": { "qos": wall(context, qos.group_wall), "job": wall(context, qos.max_wall) },
            },
            "jobs": {
                "active_jobs": {
                    "per": {
                        "account": number(qos.max_jobs_per_account),
                        "user": number(qos.max_jobs_per_user),
                    },
                },
                "per": {
                    "account": number(qos.max_submit_per_account),
                    "user": number(qos.max_submit_per_user),
                },
            },
            "accruing": {
                "per": {
                    "account": number(qos.max_jobs_accrue_per_account),
                    "user": number(qos.max_jobs_accrue_per_user),
                },
            },
        },
        "min": {
            "priority_threshold": number(qos.min_priority_threshold),
            "tres": { "per": { "job": amounts(&qos.min_tres_per_job) } },
        },
    });
    if context.version >= Version::V42 {
        limits["max"]["jobs"]["count"] = number(qos.group_submit);
        limits["max"]["tres"]["minutes"]["total"] = json!(amounts(&qos.group_tres_minutes));
    }
    limits
}

fn preempt(context: &Context, qos: &Qos) -> Value {
    let mode = qos.preempt_mode.as_deref().unwrap_or("DISABLED");
    let modes: Vec<String> = mode.split(',').map(str::to_ascii_uppercase).collect();
    json!({
        "list": qos.preempt,
        "mode": modes,
        "exempt_time": context.number(qos.preempt_exempt_s),
    })
}

fn cluster(context: &Context) -> Value {
    let root = Association::plain("root", Some("root"));
    json!({
        "name": context.cluster,
        "nodes": "",
        "controller": { "host": "", "port": 0 },
        "flags": [],
        "select_plugin": "",
        "rpc_version": 0,
        "associations": { "root": short_key(context, &root, 0) },
        "tres": [],
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::time::Timestamp;
    use std::collections::BTreeMap;

    fn view() -> AccountsView {
        let account = Account {
            name: "physics".into(),
            description: "physics".into(),
            organization: "lab".into(),
            parent: Some("root".into()),
            coordinators: vec!["bob".into()],
        };
        let mut alice = Association::plain("physics", Some("alice"));
        alice.limits.max_jobs = Some(4);
        alice.limits.max_wall = Some(TimeLimit::Minutes(60));
        alice.limits.group_tres = Tres::parse("cpu=8,gres/gpu=2").expect("amounts");
        AccountsView {
            cluster: "lab".into(),
            accounts: vec![account],
            associations: vec![Association::plain("physics", None), alice],
            qos: vec![Qos::named("normal")],
            roles: BTreeMap::from([("carol".to_owned(), Role::Operator)]),
            only_user: None,
            deleted: Default::default(),
        }
    }

    fn context(version: Version) -> Context {
        let (cluster, gres) = ("lab".to_owned(), vec!["gpu".to_owned()]);
        Context { version, cluster, gres, now: Timestamp(0) }
    }

    #[test]
    fn what_was_deleted_has_its_flag() {
        let mut view = view();
        view.deleted.add_qos(Qos::named("gone"));
        view.deleted.add_association(Association::plain("physics", Some("dave")));
        let (view, later) = (view.with_deleted(), context(Version::V41));
        let flags = |list: List, name: &str| {
            let found = objects(&later, &view, list, Some(name));
            found[0]["flags"].clone()
        };
        assert_eq!(flags(List::Qos, "gone"), json!(["DELETED"]));
        assert_eq!(flags(List::Users, "dave"), json!(["DELETED"]));
        assert_eq!(flags(List::Users, "alice"), json!([]));
        assert_eq!(flags(List::Accounts, "physics"), json!([]));
    }

    #[test]
    fn users_accounts_and_limits_are_there_in_both_forms() {
        let view = view();
        let early = context(Version::V38);
        let users = objects(&early, &view, List::Users, None);
        let names: Vec<&Value> = users.iter().map(|user| &user["name"]).collect();
        assert_eq!(names, ["alice", "carol"]);
        assert_eq!(users[1]["administrator_level"], "Operator");
        assert_eq!(users[0]["default"]["account"], "physics");
        let one = objects(&early, &view, List::Associations, None);
        assert_eq!((&one[1]["user"], &one[0]["parent_account"]), (&json!("alice"), &json!("root")));
        assert_eq!(one[1]["max"]["jobs"]["active"], 4);
        assert!(one[1]["QOS"].is_array() && one[1]["qos"].is_null(), "{}", one[1]);
        let accounts = objects(&early, &view, List::Accounts, None);
        assert_eq!(accounts[0]["coordinators"], json!([{"name": "bob", "direct": 1}]));
        assert_eq!(one[1]["max"]["jobs"]["per"]["wall_clock"], 60);
        assert_eq!(one[1]["max"]["tres"]["total"][1]["id"], 1001);
        let late = context(Version::V42);
        let one = objects(&late, &view, List::Associations, None);
        let set = json!({"set": true, "infinite": false, "number": 4});
        assert_eq!(one[1]["max"]["jobs"]["active"], set);
        assert!(one[1]["qos"].is_array() && one[1]["QOS"].is_null(), "{}", one[1]);
        let users = objects(&late, &view, List::Users, Some("carol"));
        assert_eq!(users.len(), 1);
        assert_eq!(users[0]["administrator_level"], json!(["Operator"]));
        let qos = objects(&late, &view, List::Qos, Some("normal"));
        assert_eq!(qos[0]["preempt"]["mode"], json!(["DISABLED"]));
        assert_eq!(objects(&late, &view, List::Qos, Some("none")), Vec::<Value>::new());
        let all = all_lists(&late, &view);
        assert_eq!(all["accounts"][0]["coordinators"][0]["name"], "bob");
        assert_eq!(all["tres"].as_array().map(|rows| rows.len() > 4), Some(true));
        assert_eq!(all.len(), List::ALL.len() + 1, "with the instances");
        assert_eq!(all_lists(&early, &view).len(), List::ALL.len());
    }

    #[test]
    fn who_may_see_one_user_alone_is_shown_one() {
        let view = AccountsView { only_user: Some("alice".into()), ..view() };
        let users = objects(&context(Version::V38), &view, List::Users, None);
        assert_eq!(users.len(), 1);
        assert_eq!(users[0]["name"], "alice");
    }
}
