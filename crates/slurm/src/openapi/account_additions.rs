//! Users and accounts that clients of slurmrestd add with a condition: many at once, each with the same limits. Who or what is there
//! already is left as it is, as `sacctmgr add` leaves it.

use super::account_changes::{
    CountRow, TresRow, WallRow, check_count, count_at, role_at, set_limits, shares_at, text_at,
    value_at,
};
use super::submit::words;
use model::account::{Account, Association, AssociationLimits, ROOT_ACCOUNT, missing_associations};
use serde_json::Value;
use std::collections::BTreeSet;
use wire::client::Call;
use wire::view::AccountsView;

const COUNTS: &[CountRow<AssociationLimits>] = &[
    ("/grpjobs", |l| &mut l.group_jobs),
    ("/grpjobsaccrue", |l| &mut l.group_jobs_accrue),
    ("/grpsubmitjobs", |l| &mut l.group_submit),
    ("/maxjobs", |l| &mut l.max_jobs),
    ("/maxjobsaccrue", |l| &mut l.max_jobs_accrue),
    ("/maxsubmitjobs", |l| &mut l.max_submit),
    ("/minpriothresh", |l| &mut l.min_priority_threshold),
];

const WALLS: &[WallRow<AssociationLimits>] =
    &[("/grpwall", |l| &mut l.group_wall), ("/maxwalldurationperjob", |l| &mut l.max_wall)];

const AMOUNTS: &[TresRow<AssociationLimits>] = &[
    ("/grptres", |l| &mut l.group_tres),
    ("/grptresmins", |l| &mut l.group_tres_minutes),
    ("/grptresrunmins", |l| &mut l.group_tres_run_minutes),
    ("/maxtresminsperjob", |l| &mut l.max_tres_minutes_per_job),
    ("/maxtresperjob", |l| &mut l.max_tres_per_job),
    ("/maxtrespernode", |l| &mut l.max_tres_per_node),
];

/// Keys of an association beside its limits.
const PLAIN_KEYS: [&str; 5] = ["defaultqos", "fairshare", "parent", "priority", "qoslevel"];

/// The calls that add what a document asks for, and the names that are new.
#[derive(Debug)]
pub struct Additions {
    pub calls: Vec<Call>,
    pub names: Vec<String>,
}

/// `POST …/users_association`
pub fn users(document: &Value, view: &AccountsView) -> Result<Additions, String> {
    let condition = condition(document, view)?;
    let names = names_at(condition, "users")?;
    if names.is_empty() {
        return Err("users: expected names in an array".to_owned());
    }
    let user = &document["user"];
    let default = text_at(user, "/defaultaccount")?;
    let mut accounts = names_at(condition, "accounts")?;
    accounts.extend(default.clone());
    if accounts.is_empty() {
        return Err("accounts: expected names in an array".to_owned());
    }
    let partitions = names_at(condition, "partitions")?;
    let count = names.len().saturating_mul(accounts.len()).saturating_mul(partitions.len().max(1));
    check_count(count)?;
    let known = &view.associations;
    let missing = missing_associations(known, &names, &accounts, &partitions, default.as_deref());
    let mut calls = Vec::new();
    let mut added: BTreeSet<String> = BTreeSet::new();
    for mut association in missing {
        set_association(&condition["association"], &mut association)?;
        added.extend(association.user.clone());
        calls.push(Call::SetAssociation(association));
    }
    if let Some(role) = role_at(user, "/adminlevel")? {
        calls.extend(names.into_iter().map(|name| Call::SetRole { name, role }));
    }
    Ok(Additions { calls, names: added.into_iter().collect() })
}

/// `POST …/accounts_association`
pub fn accounts(document: &Value, view: &AccountsView) -> Result<Additions, String> {
    let condition = condition(document, view)?;
    let names = names_at(condition, "accounts")?;
    if names.is_empty() {
        return Err("accounts: expected names in an array".to_owned());
    }
    check_count(names.len())?;
    let given = &condition["association"];
    let parent = text_at(given, "/parent")?.unwrap_or_else(|| ROOT_ACCOUNT.to_owned());
    let described = |place: &str, otherwise: &str| -> Result<String, String> {
        let text = text_at(&document["account"], place)?;
        Ok(text.unwrap_or_else(|| otherwise.to_owned()))
    };
    let is_known = |name: &str| view.accounts.iter().any(|account| account.name == name);
    let (mut calls, mut added) = (Vec::new(), Vec::new());
    for name in names.into_iter().filter(|name| !is_known(name)) {
        let mut association = Association::plain(&name, None);
        set_association(given, &mut association)?;
        calls.push(Call::SetAccount(Account {
            description: described("/description", &name)?,
            organization: described("/organization", &name)?,
            parent: Some(parent.clone()),
            coordinators: Vec::new(),
            name: name.clone(),
        }));
        calls.push(Call::SetAssociation(association));
        added.push(name);
    }
    Ok(Additions { calls, names: added })
}

/// What the new associations are for. There is one cluster: another is not taken.
fn condition<'v>(document: &'v Value, view: &AccountsView) -> Result<&'v Value, String> {
    let condition = &document["association_condition"];
    if !condition.is_object() {
        return Err("association_condition: expected an object".to_owned());
    }
    let clusters = names_at(condition, "clusters")?;
    if let Some(other) = clusters.iter().find(|name| **name != view.cluster) {
        return Err(format!("clusters: {other}: expected {}", view.cluster));
    }
    Ok(condition)
}

/// The names of a list; none where it is not given.
fn names_at(condition: &Value, key: &str) -> Result<Vec<String>, String> {
    let Some(value) = value_at(condition, &format!("/{key}")) else { return Ok(Vec::new()) };
    let names = words(&value).ok_or_else(|| format!("{key}: expected names in an array"))?;
    Ok(names.into_iter().filter(|name| !name.is_empty()).collect())
}

/// Sets what a document says of every association alike.
fn set_association(given: &Value, association: &mut Association) -> Result<(), String> {
    let places = COUNTS.iter().map(|(place, _)| *place);
    let places = places.chain(WALLS.iter().map(|(place, _)| *place));
    let known: Vec<&str> = places
        .chain(AMOUNTS.iter().map(|(place, _)| *place))
        .map(|place| &place[1..])
        .chain(PLAIN_KEYS)
        .collect();
    for key in given.as_object().into_iter().flat_map(|given| given.keys()) {
        // An empty text counts as left out.
        let is_said = value_at(given, &format!("/{key}")).is_some_and(|value| value != "");
        if is_said && !known.contains(&key.as_str()) {
            return Err(format!("association: {key}: this property is not taken"));
        }
    }
    if let Some(shares) = shares_at(given, "/fairshare")? {
        association.shares = shares;
    }
    if let Some(priority) = count_at(given, "/priority")? {
        association.priority = priority;
    }
    if let Some(qos) = value_at(given, "/qoslevel") {
        association.qos = words(&qos).ok_or("qoslevel: expected names in an array")?;
    }
    if let Some(qos) = text_at(given, "/defaultqos")? {
        association.default_qos = Some(qos);
    }
    set_limits(given, &mut association.limits, COUNTS, WALLS, AMOUNTS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::principal::Role;
    use serde_json::json;
    use std::collections::BTreeMap;

    fn view() -> AccountsView {
        let physics = Account {
            name: "physics".into(),
            description: String::new(),
            organization: String::new(),
            parent: Some("root".into()),
            coordinators: Vec::new(),
        };
        AccountsView {
            cluster: "lab".into(),
            accounts: vec![physics],
            associations: vec![Association::plain("physics", Some("alice"))],
            qos: Vec::new(),
            roles: BTreeMap::new(),
            only_user: None,
            deleted: Default::default(),
        }
    }

    #[test]
    fn users_are_added_with_the_same_limits_and_known_ones_left_alone() {
        let limit = json!({"set": true, "infinite": false, "number": 4});
        let document = json!({
            "association_condition": {
                "users": ["alice", "bob"], "accounts": ["physics"], "clusters": ["lab"],
                "association": {"maxjobs": limit, "fairshare": 3, "comment": ""},
            },
            "user": {"adminlevel": ["Operator"], "defaultaccount": "physics"},
        });
        let added = users(&document, &view()).expect("additions");
        assert_eq!(added.names, ["bob"]);
        let [Call::SetAssociation(bob), Call::SetRole { .. }, Call::SetRole { name, role }] =
            added.calls.as_slice()
        else {
            panic!("{added:?}")
        };
        assert_eq!((bob.limits.max_jobs, bob.default), (Some(4), true));
        assert_eq!((&**name, *role), ("bob", Role::Operator));
    }

    #[test]
    fn accounts_are_added_below_a_parent_and_bad_documents_named() {
        let document = json!({
            "association_condition": {
                "accounts": ["physics", "optics"],
                "association": {"parent": "physics", "grpjobs": 9},
            },
            "account": {"description": "light"},
        });
        let added = accounts(&document, &view()).expect("additions");
        assert_eq!(added.names, ["optics"]);
        let [Call::SetAccount(account), Call::SetAssociation(own)] = added.calls.as_slice() else {
            panic!("{added:?}")
        };
        assert_eq!((&*account.description, account.parent.as_deref()), ("light", Some("physics")));
        assert_eq!((&*own.account, own.limits.group_jobs), ("optics", Some(9)));
        let of = |condition: Value| json!({ "association_condition": condition });
        for (bad, word) in [
            (json!({}), "association_condition"),
            (of(json!({})), "accounts"),
            (of(json!({"accounts": ["a"], "clusters": ["other"]})), "other"),
            (of(json!({"accounts": ["a"], "association": {"wrong": 1}})), "wrong"),
            (of(json!({"accounts": ["a"], "association": {"grpjobs": "many"}})), "grpjobs"),
        ] {
            let why = accounts(&bad, &view()).expect_err("refused");
            assert!(why.contains(word), "{why}");
        }
        let many: Vec<String> = (0..40).map(|number| format!("n{number}")).collect();
        let many = of(json!({"accounts": many, "users": many}));
        assert!(users(&many, &view()).expect_err("refused").contains("at most 1000"));
        let many: Vec<String> = (0..1001).map(|number| format!("n{number}")).collect();
        let many = of(json!({ "accounts": many }));
        assert!(accounts(&many, &view()).expect_err("refused").contains("at most 1000"));
        let nobody = of(json!({"accounts": ["physics"]}));
        assert!(users(&nobody, &view()).expect_err("refused").contains("users"));
    }
}
