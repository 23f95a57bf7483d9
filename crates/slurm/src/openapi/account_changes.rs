//! What clients of slurmrestd send to change the accounting: accounts, associations, QOS, users, or all of them at once. A document says
//! what is to be so of each; what it leaves out, or does not set, stays as it is, and an infinite limit is none.

use super::accounts::{List, PARENT_SHARES};
use super::submit::{given, plain, words};
use model::account::{
    Account, Association, AssociationKey, AssociationLimits, Qos, ROOT_ACCOUNT, Shares,
    missing_associations,
};
use model::principal::Role;
use model::qos::Factor;
use model::time::TimeLimit;
use model::tres::{Tres, TresKind};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use wire::client::Call;
use wire::view::AccountsView;

/// Where a number of an object goes.
pub(super) type CountRow<T> = (&'static str, fn(&mut T) -> &mut Option<u32>);
/// Where a time in minutes goes.
pub(super) type WallRow<T> = (&'static str, fn(&mut T) -> &mut Option<TimeLimit>);
/// Where a list of resources goes.
pub(super) type TresRow<T> = (&'static str, fn(&mut T) -> &mut Tres);

const ASSOCIATION_COUNTS: &[CountRow<AssociationLimits>] = &[
    ("/max/jobs/accruing", |l| &mut l.max_jobs_accrue),
    ("/max/jobs/active", |l| &mut l.max_jobs),
    ("/max/jobs/total", |l| &mut l.max_submit),
    ("/max/jobs/per/accruing", |l| &mut l.group_jobs_accrue),
    ("/max/jobs/per/count", |l| &mut l.group_jobs),
    ("/max/jobs/per/submitted", |l| &mut l.group_submit),
    ("/min/priority_threshold", |l| &mut l.min_priority_threshold),
];

const ASSOCIATION_WALLS: &[WallRow<AssociationLimits>] = &[
    ("/max/jobs/per/wall_clock", |l| &mut l.max_wall),
    ("/max/per/account/wall_clock", |l| &mut l.group_wall),
];

const ASSOCIATION_TRES: &[TresRow<AssociationLimits>] = &[
    ("/max/tres/total", |l| &mut l.group_tres),
    ("/max/tres/group/active", |l| &mut l.group_tres_run_minutes),
    ("/max/tres/group/minutes", |l| &mut l.group_tres_minutes),
    ("/max/tres/minutes/per/job", |l| &mut l.max_tres_minutes_per_job),
    ("/max/tres/per/job", |l| &mut l.max_tres_per_job),
    ("/max/tres/per/node", |l| &mut l.max_tres_per_node),
];

const QOS_COUNTS: &[CountRow<Qos>] = &[
    ("/limits/max/active_jobs/accruing", |q| &mut q.group_jobs_accrue),
    ("/limits/max/active_jobs/count", |q| &mut q.group_jobs),
    ("/limits/max/jobs/count", |q| &mut q.group_submit),
    ("/limits/max/jobs/active_jobs/per/account", |q| &mut q.max_jobs_per_account),
    ("/limits/max/jobs/active_jobs/per/user", |q| &mut q.max_jobs_per_user),
    ("/limits/max/jobs/per/account", |q| &mut q.max_submit_per_account),
    ("/limits/max/jobs/per/user", |q| &mut q.max_submit_per_user),
    ("/limits/max/accruing/per/account", |q| &mut q.max_jobs_accrue_per_account),
    ("/limits/max/accruing/per/user", |q| &mut q.max_jobs_accrue_per_user),
    ("/limits/min/priority_threshold", |q| &mut q.min_priority_threshold),
    ("/preempt/exempt_time", |q| &mut q.preempt_exempt_s),
];

const QOS_WALLS: &[WallRow<Qos>] = &[
    ("/limits/max/wall_clock/per/job", |q| &mut q.max_wall),
    ("/limits/max/wall_clock/per/qos", |q| &mut q.group_wall),
];

const QOS_TRES: &[TresRow<Qos>] = &[
    ("/limits/max/tres/total", |q| &mut q.group_tres),
    ("/limits/max/tres/minutes/total", |q| &mut q.group_tres_minutes),
    ("/limits/max/tres/minutes/per/qos", |q| &mut q.group_tres_run_minutes),
    ("/limits/max/tres/minutes/per/job", |q| &mut q.max_tres_minutes_per_job),
    ("/limits/max/tres/per/account", |q| &mut q.max_tres_per_account),
    ("/limits/max/tres/per/job", |q| &mut q.max_tres_per_job),
    ("/limits/max/tres/per/node", |q| &mut q.max_tres_per_node),
    ("/limits/max/tres/per/user", |q| &mut q.max_tres_per_user),
    ("/limits/min/tres/per/job", |q| &mut q.min_tres_per_job),
];

/// The calls that make a list as a document says; else what of it cannot be taken.
pub fn calls(list: List, document: &Value, view: &AccountsView) -> Result<Vec<Call>, String> {
    let made = match list {
        List::Accounts => accounts(document, view)?.into_iter().map(Call::SetAccount).collect(),
        List::Associations => {
            associations(document, view)?.into_iter().map(Call::SetAssociation).collect()
        }
        List::Qos => qos(document, view)?.into_iter().map(Call::SetQos).collect(),
        List::Users => users(document, view)?,
        List::Clusters | List::Tres | List::WcKeys => {
            let why = list.why_fixed().unwrap_or_default();
            return Err(format!("{}: nothing to change: {why}", list.key()));
        }
    };
    Ok(made)
}

/// The lists that `POST …/config` sets, each after those that it refers to.
const SET_TOGETHER: [List; 4] = [List::Accounts, List::Qos, List::Associations, List::Users];

/// `POST …/config`: every list that the document has, as `GET …/config` writes them. What the configuration and the jobs make is left
/// as it is.
pub fn configuration(document: &Value, view: &AccountsView) -> Result<Vec<Call>, String> {
    let given: Vec<List> =
        SET_TOGETHER.into_iter().filter(|list| has_list(document, *list)).collect();
    if given.is_empty() {
        let names = SET_TOGETHER.map(List::key).join(", ");
        return Err(format!("there is nothing to set: expected one of {names}"));
    }
    let mut made = Vec::new();
    for list in given {
        // The users of the document are those whom its associations make known.
        let view = &match list {
            List::Users => with_associations(view, document)?,
            _ => view.clone(),
        };
        made.extend(calls(list, document, view)?);
    }
    Ok(made)
}

/// Whether a document has a list. An empty one counts as left out, as `GET …/config` writes what there is none of; what is no list is
/// there, and refused when it is read.
fn has_list(document: &Value, list: List) -> bool {
    let value = &document[list.key()];
    !value.is_null() && value.as_array().is_none_or(|objects| !objects.is_empty())
}

/// The accounting as it will be with the document's associations.
fn with_associations(view: &AccountsView, document: &Value) -> Result<AccountsView, String> {
    let mut view = view.clone();
    if has_list(document, List::Associations) {
        let set = associations(document, &view)?;
        let keys: BTreeSet<AssociationKey> = set.iter().map(Association::key).collect();
        view.associations.retain(|known| !keys.contains(&known.key()));
        view.associations.extend(set);
    }
    Ok(view)
}

/// `POST …/accounts`: the accounts as they are to be.
fn accounts(document: &Value, view: &AccountsView) -> Result<Vec<Account>, String> {
    let all: BTreeMap<&str, &Account> =
        view.accounts.iter().map(|account| (account.name.as_str(), account)).collect();
    let one = |given: &Value| -> Result<Account, String> {
        let name = name(given)?;
        let known = all.get(name.as_str()).map(|account| (*account).clone());
        let mut account = known.unwrap_or_else(|| Account {
            description: name.clone(),
            organization: name.clone(),
            parent: (name != ROOT_ACCOUNT).then(|| ROOT_ACCOUNT.to_owned()),
            coordinators: Vec::new(),
            name,
        });
        set_text(given, "/description", &mut account.description)?;
        set_text(given, "/organization", &mut account.organization)?;
        if let Some(parent) = text_at(given, "/parent_account")? {
            account.parent = Some(parent);
        }
        if let Some(coordinators) = value_at(given, "/coordinators") {
            account.coordinators = names(&coordinators)
                .ok_or(r#"coordinators: expected users as {"name": "alice"}"#)?;
        }
        Ok(account)
    };
    objects(document, "accounts")?.iter().map(one).collect()
}

/// `POST …/associations`: the associations as they are to be.
fn associations(document: &Value, view: &AccountsView) -> Result<Vec<Association>, String> {
    let all: BTreeMap<AssociationKey, &Association> =
        view.associations.iter().map(|one| (one.key(), one)).collect();
    let one = |given: &Value| -> Result<Association, String> {
        let account = text_at(given, "/account")?.ok_or("account: expected a name")?;
        let mut wanted = Association::plain(&account, None);
        wanted.user = text_at(given, "/user")?;
        wanted.partition = text_at(given, "/partition")?;
        let known = all.get(&wanted.key()).map(|one| (*one).clone());
        let mut association = known.unwrap_or(wanted);
        if let Some(shares) = shares_at(given, "/shares_raw")? {
            association.shares = shares;
        }
        if let Some(priority) = count_at(given, "/priority")? {
            association.priority = priority;
        }
        // v0.0.38 has it in capitals.
        if let Some(qos) = value_at(given, "/qos").or_else(|| value_at(given, "/QOS")) {
            association.qos = words(&qos).ok_or("qos: expected names in an array")?;
        }
        if let Some(qos) = text_at(given, "/default/qos")? {
            association.default_qos = Some(qos);
        }
        if let Some(is_default) = value_at(given, "/is_default") {
            association.default =
                is_default.as_bool().ok_or("is_default: expected true or false")?;
        }
        set_limits(
            given,
            &mut association.limits,
            ASSOCIATION_COUNTS,
            ASSOCIATION_WALLS,
            ASSOCIATION_TRES,
        )?;
        Ok(association)
    };
    objects(document, "associations")?.iter().map(one).collect()
}

/// `POST …/users`: the rights of users, the accounts that they are in, and which of these is the default. A user is made known by its
/// associations: a document that has its name alone changes nothing.
fn users(document: &Value, view: &AccountsView) -> Result<Vec<Call>, String> {
    let mut calls = Vec::new();
    check_count(new_associations(document, view)?)?;
    // A document may have as many users as there are associations.
    let mut of_users: BTreeMap<&str, Vec<Association>> = BTreeMap::new();
    for one in &view.associations {
        if let Some(user) = &one.user {
            of_users.entry(user.as_str()).or_default().push(one.clone());
        }
    }
    for given in objects(document, "users")? {
        let user = name(given)?;
        let default = text_at(given, "/default/account")?;
        let accounts = accounts_of(given)?;
        let known = of_users.get(user.as_str()).map_or(&[][..], Vec::as_slice);
        let own = [user.clone()];
        let missing = missing_associations(known, &own, &accounts, &[], default.as_deref());
        let becomes_default = |one: &&Association| {
            let is_own = one.user.as_ref() == Some(&user) && one.partition.is_none();
            is_own && default.as_ref() == Some(&one.account) && !one.default
        };
        let known = known.iter().filter(becomes_default).cloned();
        let changed = known.map(|one| Association { default: true, ..one });
        calls.extend(missing.into_iter().chain(changed).map(Call::SetAssociation));
        if let Some(role) = role_at(given, "/administrator_level")? {
            calls.push(Call::SetRole { name: user, role });
        }
    }
    Ok(calls)
}

/// How many associations that are not there yet the users of a document have. Known ones do not count: what `GET …/config` wrote can be
/// sent back, however many users there are.
fn new_associations(document: &Value, view: &AccountsView) -> Result<usize, String> {
    let known: BTreeSet<AssociationKey> = view.associations.iter().map(Association::key).collect();
    let mut new = BTreeSet::new();
    for given in objects(document, "users")? {
        let user = name(given)?;
        let key =
            |account: String| AssociationKey { account, user: Some(user.clone()), partition: None };
        new.extend(accounts_of(given)?.into_iter().map(key).filter(|key| !known.contains(key)));
    }
    Ok(new.len())
}

/// The most associations that one document makes of users, accounts and partitions: each is compared with all that there are.
const ASSOCIATIONS_MAX: usize = 1000;

/// Refuses a document that makes more associations than are taken at once.
pub(super) fn check_count(associations: usize) -> Result<(), String> {
    if associations > ASSOCIATIONS_MAX {
        let most = ASSOCIATIONS_MAX;
        return Err(format!("{associations} associations: expected at most {most} at once"));
    }
    Ok(())
}

/// The accounts that a user is to be in, in every partition, and its default one; each once, in their order.
fn accounts_of(user: &Value) -> Result<Vec<String>, String> {
    let mut accounts = Vec::new();
    let mut named = BTreeSet::new();
    for short in user["associations"].as_array().into_iter().flatten() {
        let account = text_at(short, "/account")?.ok_or("associations: expected an account")?;
        if text_at(short, "/partition")?.is_none() {
            accounts.push(account);
        }
    }
    accounts.extend(text_at(user, "/default/account")?);
    accounts.retain(|account| named.insert(account.clone()));
    Ok(accounts)
}

/// The level of a user's rights; `None` where nothing is said.
pub(super) fn role_at(object: &Value, place: &str) -> Result<Option<Role>, String> {
    let Some(value) = value_at(object, place) else { return Ok(None) };
    let level = words(&value);
    match level.as_deref() {
        Some([]) => Ok(None),
        Some([word]) if word == "Not Set" => Ok(None),
        Some([word]) if word == "Administrator" => Ok(Some(Role::Admin)),
        Some([word]) if word == "Operator" => Ok(Some(Role::Operator)),
        Some([word]) if word == "None" => Ok(Some(Role::User)),
        _ => Err(format!("{}: expected None, Operator or Administrator", &place[1..])),
    }
}

/// The names of objects; `None` where one has none.
fn names(objects: &Value) -> Option<Vec<String>> {
    objects.as_array()?.iter().map(|one| one["name"].as_str().map(str::to_owned)).collect()
}

/// A count of shares, or the number that stands for the parent's; `None` where nothing is said.
pub(super) fn shares_at(object: &Value, place: &str) -> Result<Option<Shares>, String> {
    Ok(count_at(object, place)?.map(|count| match count {
        None | Some(PARENT_SHARES) => Shares::PARENT,
        Some(count) => Shares::Count(count),
    }))
}

/// `POST …/qos`: the qualities of service as they are to be.
fn qos(document: &Value, view: &AccountsView) -> Result<Vec<Qos>, String> {
    let all: BTreeMap<&str, &Qos> = view.qos.iter().map(|qos| (qos.name.as_str(), qos)).collect();
    let one = |given: &Value| -> Result<Qos, String> {
        let name = name(given)?;
        let known = all.get(name.as_str()).map(|qos| (*qos).clone());
        let mut qos = known.unwrap_or_else(|| Qos::named(&name));
        set_text(given, "/description", &mut qos.description)?;
        if let Some(priority) = count_at(given, "/priority")? {
            qos.priority = priority.unwrap_or(0);
        }
        if let Some(grace) = count_at(given, "/limits/grace_time")? {
            qos.grace_time_s = grace.unwrap_or(0);
        }
        if let Some(names) = value_at(given, "/preempt/list") {
            qos.preempt = words(&names).ok_or("preempt/list: expected names in an array")?;
        }
        if let Some(factor) = value_at(given, "/usage_factor") {
            let factor = plain(&factor).and_then(|text| Factor::parse(&text));
            qos.usage_factor = factor.ok_or("usage_factor: expected a number of zero or more")?;
        }
        set_limits(given, &mut qos, QOS_COUNTS, QOS_WALLS, QOS_TRES)?;
        Ok(qos)
    };
    objects(document, "qos")?.iter().map(one).collect()
}

fn objects<'v>(document: &'v Value, key: &str) -> Result<&'v Vec<Value>, String> {
    let found = document[key].as_array().filter(|objects| !objects.is_empty());
    found.ok_or_else(|| format!("{key}: expected an array of objects"))
}

fn name(given: &Value) -> Result<String, String> {
    text_at(given, "/name")?.ok_or_else(|| "name: expected a name".to_owned())
}

/// What stands at a place, without the flags that later versions put around numbers.
pub(super) fn value_at(object: &Value, place: &str) -> Option<Value> {
    object.pointer(place).and_then(given)
}

/// A text that is not empty.
pub(super) fn text_at(object: &Value, place: &str) -> Result<Option<String>, String> {
    let Some(value) = value_at(object, place) else { return Ok(None) };
    let text = value.as_str().ok_or_else(|| format!("{}: expected a text", &place[1..]))?;
    Ok(Some(text.to_owned()).filter(|text| !text.is_empty()))
}

fn set_text(object: &Value, place: &str, field: &mut String) -> Result<(), String> {
    if let Some(text) = text_at(object, place)? {
        *field = text;
    }
    Ok(())
}

/// A number; `Some(None)` for one without a bound, and `None` where nothing is said.
pub(super) fn count_at(object: &Value, place: &str) -> Result<Option<Option<u32>>, String> {
    let Some(value) = value_at(object, place) else { return Ok(None) };
    if value == "UNLIMITED" {
        return Ok(Some(None));
    }
    let count = value.as_u64().and_then(|count| u32::try_from(count).ok());
    let count = count.ok_or_else(|| format!("{}: {value}: expected a number", &place[1..]))?;
    Ok(Some(Some(count)))
}

pub(super) fn set_limits<T>(
    given: &Value,
    limits: &mut T,
    counts: &[CountRow<T>],
    walls: &[WallRow<T>],
    amounts: &[TresRow<T>],
) -> Result<(), String> {
    for (place, field) in counts {
        if let Some(count) = count_at(given, place)? {
            *field(limits) = count;
        }
    }
    for (place, field) in walls {
        if let Some(minutes) = count_at(given, place)? {
            *field(limits) = minutes.map(TimeLimit::Minutes);
        }
    }
    for (place, field) in amounts {
        if let Some(list) = value_at(given, place) {
            let expected = r#"expected resources as {"type": "cpu", "count": 4}"#;
            let amounts = tres(&list).ok_or_else(|| format!("{}: {expected}", &place[1..]))?;
            *field(limits) = amounts;
        }
    }
    Ok(())
}

/// `[{"type": "gres", "name": "gpu", "count": 4}]`
fn tres(list: &Value) -> Option<Tres> {
    let mut found = Tres::new();
    for one in list.as_array()? {
        let (class, name) = (one["type"].as_str()?, one["name"].as_str().unwrap_or_default());
        let kind = if name.is_empty() { class.to_owned() } else { format!("{class}/{name}") };
        found.set(kind.parse::<TresKind>().ok()?, one["count"].as_u64()?);
    }
    Some(found)
}

#[cfg(test)]
#[path = "account_changes_tests.rs"]
mod tests;
