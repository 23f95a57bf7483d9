//! What clients of slurmrestd send to change the accounting: accounts, associations, QOS and rights. A document says what is to be so of each;
//! what it leaves out, or does not set, stays as it is, and an infinite limit is none.

use super::submit::{given, plain, words};
use model::account::{Account, Association, AssociationLimits, Qos, ROOT_ACCOUNT, Shares};
use model::principal::Role;
use model::qos::Factor;
use model::time::TimeLimit;
use model::tres::{Tres, TresKind};
use serde_json::Value;
use wire::view::AccountsView;

/// Where a number of an object goes.
type CountRow<T> = (&'static str, fn(&mut T) -> &mut Option<u32>);
/// Where a time in minutes goes.
type WallRow<T> = (&'static str, fn(&mut T) -> &mut Option<TimeLimit>);
/// Where a list of resources goes.
type TresRow<T> = (&'static str, fn(&mut T) -> &mut Tres);

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

/// `POST …/accounts`: the accounts as they are to be.
pub fn accounts(document: &Value, view: &AccountsView) -> Result<Vec<Account>, String> {
    let one = |given: &Value| -> Result<Account, String> {
        let name = name(given)?;
        let known = view.accounts.iter().find(|account| account.name == name).cloned();
        let mut account = known.unwrap_or_else(|| Account {
            description: name.clone(),
            organization: name.clone(),
            parent: Some(ROOT_ACCOUNT.to_owned()),
            coordinators: Vec::new(),
            name,
        });
        set_text(given, "/description", &mut account.description)?;
        set_text(given, "/organization", &mut account.organization)?;
        if let Some(parent) = text_at(given, "/parent_account")? {
            account.parent = Some(parent);
        }
        Ok(account)
    };
    objects(document, "accounts")?.iter().map(one).collect()
}

/// `POST …/associations`: the associations as they are to be.
pub fn associations(document: &Value, view: &AccountsView) -> Result<Vec<Association>, String> {
    let one = |given: &Value| -> Result<Association, String> {
        let account = text_at(given, "/account")?.ok_or("account: expected a name")?;
        let mut wanted = Association::plain(&account, None);
        wanted.user = text_at(given, "/user")?;
        wanted.partition = text_at(given, "/partition")?;
        let known = view.associations.iter().find(|one| one.key() == wanted.key()).cloned();
        let mut association = known.unwrap_or(wanted);
        if let Some(shares) = count_at(given, "/shares_raw")? {
            association.shares = shares.map_or(Shares::PARENT, Shares::Count);
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

/// `POST …/users`: the rights of users. A user is made known by its associations.
pub fn roles(document: &Value) -> Result<Vec<(String, Role)>, String> {
    let one = |given: &Value| -> Result<(String, Role), String> {
        let level = value_at(given, "/administrator_level").and_then(|value| words(&value));
        let role = match level.as_deref() {
            Some([word]) if word == "Administrator" => Role::Admin,
            Some([word]) if word == "Operator" => Role::Operator,
            Some([word]) if word == "None" => Role::User,
            _ => return Err("administrator_level: expected None, Operator or Administrator".into()),
        };
        Ok((name(given)?, role))
    };
    objects(document, "users")?.iter().map(one).collect()
}

/// `POST …/qos`: the qualities of service as they are to be.
pub fn qos(document: &Value, view: &AccountsView) -> Result<Vec<Qos>, String> {
    let one = |given: &Value| -> Result<Qos, String> {
        let name = name(given)?;
        let known = view.qos.iter().find(|qos| qos.name == name).cloned();
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
fn value_at(object: &Value, place: &str) -> Option<Value> {
    object.pointer(place).and_then(given)
}

/// A text that is not empty.
fn text_at(object: &Value, place: &str) -> Result<Option<String>, String> {
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
fn count_at(object: &Value, place: &str) -> Result<Option<Option<u32>>, String> {
    let Some(value) = value_at(object, place) else { return Ok(None) };
    if value == "UNLIMITED" {
        return Ok(Some(None));
    }
    let count = value.as_u64().and_then(|count| u32::try_from(count).ok());
    let count = count.ok_or_else(|| format!("{}: {value}: expected a number", &place[1..]))?;
    Ok(Some(Some(count)))
}

fn set_limits<T>(
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
mod tests {
    use super::*;
    use serde_json::json;
    use std::collections::BTreeMap;

    fn view() -> AccountsView {
        let mut alice = Association::plain("physics", Some("alice"));
        alice.limits.max_jobs = Some(4);
        alice.limits.max_submit = Some(9);
        AccountsView {
            cluster: "lab".into(),
            accounts: Vec::new(),
            associations: vec![alice],
            qos: vec![Qos::named("normal")],
            roles: BTreeMap::new(),
            only_user: None,
            deleted: Default::default(),
        }
    }

    #[test]
    fn what_a_document_leaves_out_stays_as_it_is() {
        let set = |number: u64| json!({"set": true, "infinite": false, "number": number});
        let infinite = json!({"set": false, "infinite": true, "number": 0});
        let limits = json!({
            "jobs": {"active": set(2), "total": infinite, "per": {"wall_clock": set(60)}},
            "tres": {"total": [{"type": "gres", "name": "gpu", "count": 8}]},
        });
        let document = json!({"associations": [{
            "account": "physics", "user": "alice", "max": limits, "shares_raw": 3,
        }]});
        let found = associations(&document, &view()).expect("an association");
        let [one] = found.as_slice() else { panic!("{found:?}") };
        assert_eq!((one.limits.max_jobs, one.limits.max_submit), (Some(2), None));
        assert_eq!(one.limits.max_wall, Some(TimeLimit::Minutes(60)));
        assert_eq!(one.limits.group_tres.to_string(), "gres/gpu=8");
        assert_eq!(one.shares, Shares::Count(3));
        for key in ["qos", "QOS"] {
            let given = json!({"account": "physics", "user": "alice", key: ["normal"]});
            let found = associations(&json!({"associations": [given]}), &view()).expect("one");
            assert_eq!(found[0].qos, ["normal"], "{key}");
        }
        let same = json!({"associations": [{"account": "physics", "user": "alice"}]});
        assert_eq!(associations(&same, &view()).expect("one"), view().associations);
    }

    #[test]
    fn accounts_and_qos_are_made_and_bad_ones_named() {
        let document = json!({"accounts": [{"name": "chem", "description": "chemistry"}]});
        let made = accounts(&document, &view()).expect("an account");
        assert_eq!((&*made[0].description, made[0].parent.as_deref()), ("chemistry", Some("root")));
        let document = json!({"qos": [{
            "name": "high", "priority": 1000, "usage_factor": 0.5, "preempt": {"list": ["normal"]},
            "limits": {"max": {"jobs": {"active_jobs": {"per": {"user": 7}}}}},
        }]});
        let made = qos(&document, &view()).expect("a QOS");
        assert_eq!((made[0].priority, made[0].max_jobs_per_user), (1000, Some(7)));
        assert_eq!((made[0].usage_factor.value(), made[0].preempt.len()), (0.5, 1));
        for bad in [
            json!({}),
            json!({"accounts": []}),
            json!({"accounts": [{"description": "x"}]}),
            json!({"accounts": [{"name": 5}]}),
        ] {
            assert!(accounts(&bad, &view()).is_err(), "{bad}");
        }
        let users = json!({"users": [{"name": "ann", "administrator_level": ["Operator"]}]});
        assert_eq!(roles(&users), Ok(vec![("ann".to_owned(), Role::Operator)]));
        assert!(roles(&json!({"users": [{"name": "ann"}]})).is_err());
        let bad = json!({"qos": [{"name": "x", "priority": "high"}]});
        let why = qos(&bad, &view()).expect_err("refused");
        assert!(why.contains("priority"), "{why}");
        let bad =
            json!({"associations": [{"account": "a", "max": {"tres": {"total": [{"count": 1}]}}}]});
        let why = associations(&bad, &view()).expect_err("refused");
        assert!(why.contains("max/tres/total"), "{why}");
    }
}
