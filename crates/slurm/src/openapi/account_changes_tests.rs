//! Documents of changes, and what becomes of them.

use super::*;
use serde_json::json;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

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
    let boss = json!({"users": [{"name": "ann", "administrator_level": ["Boss"]}]});
    assert!(users(&boss, &view()).is_err());
    let bad = json!({"qos": [{"name": "x", "priority": "high"}]});
    let why = qos(&bad, &view()).expect_err("refused");
    assert!(why.contains("priority"), "{why}");
    let bad =
        json!({"associations": [{"account": "a", "max": {"tres": {"total": [{"count": 1}]}}}]});
    let why = associations(&bad, &view()).expect_err("refused");
    assert!(why.contains("max/tres/total"), "{why}");
}

#[test]
fn users_are_put_into_accounts_with_a_default_and_rights() {
    let document = json!({"users": [
        {"name": "ann", "administrator_level": ["Operator"], "default": {"account": "chem"},
         "associations": [{"account": "physics", "user": "ann"}]},
        {"name": "alice", "default": {"account": "physics"}},
        {"name": "bob", "administrator_level": ["Not Set"]},
    ]});
    let made = users(&document, &view()).expect("changes");
    let [
        Call::SetAssociation(physics),
        Call::SetAssociation(chem),
        Call::SetRole { name, role: Role::Operator },
        Call::SetAssociation(alice),
    ] = made.as_slice()
    else {
        panic!("{made:?}")
    };
    assert_eq!((&*physics.account, physics.default), ("physics", false));
    assert_eq!((&*chem.account, chem.default, &**name), ("chem", true, "ann"));
    assert!(alice.default);
    assert_eq!(alice.limits.max_jobs, Some(4), "what it had stays");
}

/// The bound is that of the document, whether one user or many have the associations.
#[test]
fn users_have_a_bounded_count_of_new_associations_together() {
    let user = |number: usize, account: &str| {
        let associations = json!([{"account": account}, {"account": "chem"}]);
        json!({"name": format!("u{number}"), "associations": associations})
    };
    let of = |count: usize| {
        let users: Vec<Value> = (0..count).map(|number| user(number, "physics")).collect();
        json!({ "users": users })
    };
    assert_eq!(users(&of(500), &view()).expect("changes").len(), 1000);
    let why = users(&of(501), &view()).expect_err("refused");
    assert!(why.contains("1002") && why.contains("at most 1000"), "{why}");
    let mut view = view();
    for call in users(&of(500), &view).expect("changes") {
        let Call::SetAssociation(association) = call else { panic!("{call:?}") };
        view.associations.push(association);
    }
    assert_eq!(users(&of(501), &view).expect("known ones do not count").len(), 2);
}

#[test]
fn whole_configuration_is_set_in_the_order_of_what_refers_to_what() {
    let document = json!({
        "users": [{"name": "ann", "default": {"account": "chem"}}],
        "associations": [{"account": "chem", "user": "ann", "shares_raw": 7}],
        "accounts": [{"name": "chem", "coordinators": [{"name": "ann", "direct": true}]}],
        "tres": [{"type": "cpu", "id": 1}],
    });
    let made = configuration(&document, &view()).expect("changes");
    let [Call::SetAccount(account), Call::SetAssociation(first), Call::SetAssociation(as_default)] =
        made.as_slice()
    else {
        panic!("{made:?}")
    };
    assert_eq!(account.coordinators, ["ann"]);
    assert_eq!((first.shares, first.default), (Shares::Count(7), false));
    assert_eq!((as_default.shares, as_default.default), (Shares::Count(7), true));
    assert!(configuration(&json!({"tres": [{"type": "cpu"}]}), &view()).is_err());
    for list in ["accounts", "associations", "qos"] {
        let user = json!({"name": "ann", "default": {"account": "physics"}});
        let empty = json!({"users": [user], list: []});
        assert_eq!(configuration(&empty, &view()).expect("one change").len(), 1);
        for malformed in [json!({"name": "chem"}), json!("chem"), json!(5)] {
            let document = json!({"users": [user], list: malformed});
            let why = configuration(&document, &view()).expect_err(list);
            assert!(why.starts_with(list), "{why}");
        }
    }
}

/// Anybody may send a document: it is read before the first of its calls is refused.
#[test]
fn long_document_is_not_compared_with_all_that_there_is_item_by_item() {
    const COUNT: usize = 20_000;
    let of = |number: usize| Association::plain("physics", Some(&format!("u{number}")));
    let view = AccountsView { associations: (0..COUNT).map(of).collect(), ..view() };
    let given = |number: usize| json!({"account": "physics", "user": format!("u{number}")});
    let all: Vec<Value> = (0..COUNT).map(given).collect();
    let begun = Instant::now();
    let made = associations(&json!({ "associations": all }), &view).expect("as they are");
    assert_eq!(made, view.associations);
    let last = format!("u{}", COUNT - 1);
    let same = json!([{"account": "physics"}, {"account": "physics"}, {"account": "chem"}]);
    let user = json!({"name": last, "associations": same});
    let named = json!({ "users": vec![user; COUNT / 20] });
    let made = users(&named, &view).expect("one that is new, each time");
    assert_eq!(made.len(), COUNT / 20);
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
}
