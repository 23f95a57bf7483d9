//! What the page asks for and changes: with the rights of who is signed in, and with texts of users as data.

use super::tests::{Browser, USER};
use crate::auth::principal;
use crate::shared::forecast_queue::{Estimates, ExpectedStart};
use crate::shared::long_calls::{LongWork, PLANS_OF_USER_MAX};
use crate::user_shares::ShareOwner;
use axum::body::Body;
use axum::http::{Method, StatusCode};
use cluster::Command;
use http_body_util::BodyExt;
use model::array::IndexSet;
use model::change::{JobChange, JobRef};
use model::id::JobId;
use model::private_data::PrivateKind;
use model::run::Hold;
use model::time::Timestamp;
use serde_json::{Value, json};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use wire::diagnostics::CallKind;

const JOBS: &str = "/api/web/jobs";
const EVENTS: &str = "/api/web/events";
const CALL: &str = "/api/web/call";
const MARKUP: &str = "<img src=x onerror=alert(1)>";

fn ids(rows: &Value) -> Vec<u64> {
    rows["rows"].as_array().expect("rows").iter().filter_map(|row| row["id"].as_u64()).collect()
}

fn since(rows: &Value) -> String {
    format!("{JOBS}?since={}", rows["seq"])
}

#[tokio::test(flavor = "multi_thread")]
async fn queue_is_whole_at_first_and_then_what_changed() {
    let browser = Browser::administering().await;
    let first = browser.server.submit("name: first").await.expect("a job");
    let whole = browser.get(JOBS).await.json();
    assert_eq!((&whole["whole"], ids(&whole)), (&json!(true), vec![u64::from(first.0)]));
    let row = &whole["rows"][0];
    assert_eq!((&row["state"], &row["run"]), (&json!("PENDING"), &json!(true)));
    let unchanged = browser.get(&since(&whole)).await.json();
    assert_eq!((&unchanged["whole"], ids(&unchanged)), (&json!(false), vec![]));
    let second = browser.server.submit("name: second").await.expect("a job");
    let changed = browser.get(&since(&whole)).await.json();
    assert_eq!(ids(&changed), [u64::from(second.0)]);
    let cancelled = browser.post(&format!("{JOBS}/{first}/cancel"), &json!({})).await;
    assert_eq!(cancelled.status, StatusCode::OK, "{}", cancelled.text);
    let changed = browser.get(&since(&changed)).await.json();
    assert_eq!((ids(&changed), &changed["gone"]), (vec![], &json!([first.0])));
    // A page that heard of another server's changes is told everything.
    let whole = browser.get(&format!("{JOBS}?since=1")).await.json();
    assert_eq!((&whole["whole"], ids(&whole)), (&json!(true), vec![u64::from(second.0)]));
    assert_eq!(browser.get(&format!("{JOBS}?since=x")).await.status, StatusCode::BAD_REQUEST);
}

/// `squeue --start` and the page of a job tell it: the queue does too, at once for who is in it and later for who was.
#[tokio::test(flavor = "multi_thread")]
async fn queue_has_the_starts_that_were_reckoned_last() {
    let browser = Browser::administering().await;
    let before = browser.get(JOBS).await.json();
    let job = browser.server.submit("name: waits").await.expect("a job");
    assert_eq!(browser.get(JOBS).await.json()["rows"][0]["start"], json!(null));
    let (now, start) = (crate::clock::now(), Timestamp(4_000_000_000_000));
    let expected = ExpectedStart { start, nodes: crate::testing::NODE.into() };
    let by_job = [(job, expected)].into();
    let position = browser.server.shared.forecasts.position();
    let estimates = Estimates { position, made: now, by_job, ..Estimates::default() };
    browser.server.shared.forecasts.put(Arc::new(estimates));
    for path in [JOBS.to_owned(), since(&before)] {
        let rows = browser.get(&path).await.json();
        assert_eq!(rows["rows"][0]["start"], json!(start), "{path}: {rows}");
    }
}

/// The number of an array stands for all of its tasks elsewhere, which may be very many: a page asks each second.
#[tokio::test(flavor = "multi_thread")]
async fn tasks_of_an_array_that_did_not_change_are_not_sent_with_its_record() {
    let browser = Browser::administering().await;
    let script = json!({ "script": "#!/bin/sh\n#SBATCH --array=0-7\n" });
    let submitted = browser.post("/api/web/submit", &script).await;
    assert_eq!(submitted.status, StatusCode::OK, "{}", submitted.text);
    let array = submitted.json()["job"].as_u64().expect("a job");
    let hold = async |index| {
        let id = JobId(u32::try_from(array).expect("a number"));
        let job = JobRef::tasks(id, IndexSet::from_range(index, index));
        let change = JobChange::Hold { by: Hold::User };
        browser.server.run(Command::ChangeJob { job, change }).await.expect("held");
    };
    // Each has a record of its own from then on.
    hold(1).await;
    hold(2).await;
    let whole = browser.get(JOBS).await.json();
    assert_eq!(ids(&whole).len(), 3, "{whole}");
    hold(3).await;
    let changed = browser.get(&since(&whole)).await.json();
    let new: Vec<u64> = ids(&browser.get(JOBS).await.json())
        .into_iter()
        .filter(|id| !ids(&whole).contains(id))
        .collect();
    assert_eq!(new.len(), 1, "{changed}");
    assert_eq!(ids(&changed), [array, new[0]], "{changed}");
}

#[tokio::test(flavor = "multi_thread")]
async fn texts_of_users_arrive_as_data() {
    let mut browser = Browser::administering().await;
    let script =
        format!("#!/bin/sh\n#SBATCH --job-name='{MARKUP}' --comment='{MARKUP}' -n1\ntrue\n");
    let submitted = browser.post("/api/web/submit", &json!({ "script": script })).await;
    assert_eq!(submitted.status, StatusCode::OK, "{}", submitted.text);
    let job = submitted.json()["job"].to_string();
    let rows = browser.get(JOBS).await;
    assert_eq!(rows.header("content-type"), "application/json");
    assert_eq!(rows.header("x-content-type-options"), "nosniff");
    assert_eq!(rows.json()["rows"][0]["name"], MARKUP);
    let page = browser.get(&format!("{JOBS}/{job}")).await.json();
    assert_eq!((&page["job"]["name"], &page["comment"]), (&json!(MARKUP), &json!(MARKUP)));
    assert!(!page["explanation"].as_array().expect("sentences").is_empty(), "{page}");
    let text = browser.get(&format!("{JOBS}/{job}/script")).await.json();
    assert_eq!(text["text"], script);
    browser.cookie = None;
    for path in [JOBS, "/api/web/nodes", "/api/web/timeline", "/api/web/lists/events", EVENTS] {
        assert_eq!(browser.get(path).await.status, StatusCode::UNAUTHORIZED, "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn others_jobs_are_neither_changed_nor_read() {
    let browser = Browser::signed_in(USER).await;
    let job = browser.server.submit("name: of-ada").await.expect("a job");
    for change in ["cancel", "hold"] {
        let refused = browser.post(&format!("{JOBS}/{job}/{change}"), &json!({})).await;
        assert_eq!(refused.status, StatusCode::FORBIDDEN, "{change}: {}", refused.text);
    }
    let page = browser.get(&format!("{JOBS}/{job}")).await.json();
    assert_eq!((&page["may_manage"], &page["may_read"]), (&json!(false), &json!(false)), "{page}");
    assert_eq!(browser.get(&format!("{JOBS}/{job}/script")).await.status, StatusCode::FORBIDDEN);
    let unknown = browser.post(&format!("{JOBS}/{job}/explode"), &json!({})).await;
    assert_eq!(unknown.status, StatusCode::NOT_FOUND);
    let forged = [("origin", "http://evil.example")];
    let path = format!("{JOBS}/{job}/cancel");
    let refused = browser.send(Method::POST, &path, &forged, Body::empty()).await;
    assert_eq!(refused.status, StatusCode::FORBIDDEN);
    assert!(!browser.server.shared.read().jobs[&job].has_ended());
}

/// Refusals have one form, whichever part gives them: the checks that all APIs share, a handler, or what reads its parameters.
#[tokio::test(flavor = "multi_thread")]
async fn every_refusal_has_its_line_in_the_same_form() {
    let mut browser = Browser::signed_in(USER).await;
    let job = browser.server.submit("name: of-ada").await.expect("a job");
    let long = browser.post("/api/web/submit", &json!({ "script": "x".repeat(17 << 20) })).await;
    let mut refused = vec![(long, StatusCode::PAYLOAD_TOO_LARGE)];
    for (path, status) in [
        (format!("{JOBS}?since=x"), StatusCode::BAD_REQUEST),
        (format!("{JOBS}/x"), StatusCode::BAD_REQUEST),
        ("/api/web/logs?job=x".to_owned(), StatusCode::BAD_REQUEST),
        (format!("/api/web/logs?job={job}"), StatusCode::FORBIDDEN),
        ("/api/web/logs?job=4000000".to_owned(), StatusCode::NOT_FOUND),
        ("/api/web/nothing".to_owned(), StatusCode::NOT_FOUND),
    ] {
        refused.push((browser.get(&path).await, status));
    }
    let unknown_method = browser.post("/api/web/nodes", &json!({})).await;
    refused.push((unknown_method, StatusCode::METHOD_NOT_ALLOWED));
    browser.cookie = None;
    let wrong = [("authorization", "Bearer 00")];
    let unknown = browser.send(Method::GET, JOBS, &wrong, Body::empty()).await;
    refused.push((unknown, StatusCode::UNAUTHORIZED));
    for (answer, status) in refused {
        assert_eq!(answer.status, status, "{}", answer.text);
        assert_eq!(answer.header("content-type"), "application/json", "{}", answer.text);
        let said = answer.json();
        let line = said["error"].as_str().expect("a line");
        assert!(!line.is_empty() && !line.contains(['\n', '{']), "{line}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn shell_in_a_private_job_of_another_is_refused_as_in_one_that_is_not_there() {
    let browser = Browser::signed_in(USER).await;
    let job = browser.server.submit("name: of-ada").await.expect("a job");
    let ask =
        async |job: JobId| browser.post(&format!("{JOBS}/{job}/shell"), &json!({})).await.status;
    assert_eq!(ask(job).await, StatusCode::FORBIDDEN);
    let mut config = (*browser.server.shared.read().config).clone();
    config.parameters.private_data = [PrivateKind::Jobs].into_iter().collect();
    browser.server.run(Command::Configure(Box::new(config))).await.expect("private jobs");
    assert_eq!(ask(job).await, StatusCode::NOT_FOUND);
    assert_eq!(ask(JobId(999)).await, StatusCode::NOT_FOUND);
}

#[tokio::test(flavor = "multi_thread")]
async fn pasted_text_is_checked_in_both_languages_and_bounded() {
    let browser = Browser::signed_in("root").await;
    let check = |text: String| {
        let browser = &browser;
        async move { browser.post("/api/web/check", &json!({ "script": text })).await }
    };
    let bad = check("#!/bin/sh\n#SBATCH --nodes=lots\n".into()).await.json();
    assert_eq!(bad["language"], "slurm");
    assert!(bad["errors"][0].is_string(), "{bad}");
    let bad = check("type: task\ncommand: [make]\n".into()).await.json();
    assert_eq!(bad["language"], "dstack");
    assert!(bad["errors"][0].as_str().is_some_and(|line| line.contains("command")), "{bad}");
    for neither in ["#SBATCH -n2\nsrun ./a.out\n", "echo: [a\n", "\n#!/bin/sh\ntrue\n", ""] {
        let said = check(neither.into()).await.json();
        assert_eq!(said["errors"].as_array().map(Vec::len), Some(1), "{said}");
        let line = said["errors"][0].as_str().expect("a line");
        assert!(line.contains("#!/bin/sh") && line.contains("type: task"), "{line}");
    }
    let run = check("type: task\nname: fits\ncommands: [make]\n".into()).await.json();
    // Nothing is free: it says what would be, and what lets it wait.
    assert!(run["errors"][0].as_str().is_some_and(|line| line.contains("retry")), "{run}");
    assert_eq!(run["offers"][0]["available"], false, "{run}");
    let large = check("#!/bin/sh\n#SBATCH -c 1000\n".into()).await.json();
    assert!(large["errors"][0].is_string(), "no node has so many: {large}");
    let several = check("#!/bin/sh\n#SBATCH --nodes=lots\n#SBATCH --tme=1\n".into()).await.json();
    let errors = several["errors"].to_string();
    assert!(errors.contains("script:2:9") && errors.contains("script:3:9"), "{several}");
    let long = check(format!("#!/bin/sh\n{}", "#".repeat(8 << 20))).await;
    assert_eq!(long.status, StatusCode::BAD_REQUEST, "{}", long.text);
    assert!(browser.server.shared.read().jobs.is_empty(), "a check changes nothing");
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_and_maps_are_answered_and_unknown_ones_named() {
    let browser = Browser::signed_in("root").await;
    for list in [
        "accounts",
        "projects",
        "reservations",
        "events",
        "audit",
        "tokens",
        "fleets",
        "backends",
        "shares",
        "secrets?project=main",
        "volumes",
        "partitions",
    ] {
        let answer = browser.get(&format!("/api/web/lists/{list}")).await;
        assert_eq!(answer.status, StatusCode::OK, "{list}: {}", answer.text);
    }
    let unknown = browser.get("/api/web/lists/id;drop%20table").await;
    assert_eq!(unknown.status, StatusCode::NOT_FOUND);
    let nodes = browser.get("/api/web/nodes").await.json();
    assert_eq!(nodes["nodes"][0]["name"], crate::testing::NODE);
    let partitions = browser.get("/api/web/lists/partitions").await.json();
    let first = &partitions["partitions"][0];
    assert_eq!((&first["nodes"], &first["cpus"]), (&json!(crate::testing::NODE), &json!(4)));
    let now = crate::clock::now().millis();
    let usage = browser.get(&format!("/api/web/usage?from={}&until={now}", now - 3_600_000)).await;
    assert_eq!(
        (usage.status, &usage.json()["rows"]),
        (StatusCode::OK, &json!([])),
        "{}",
        usage.text
    );
    let load = browser.get("/api/web/load?hours=24").await;
    assert_eq!((load.status, &load.json()["samples"]), (StatusCode::OK, &json!([])));
    let job = browser.server.submit("name: waits").await.expect("a job");
    let attempts = browser.get(&format!("{JOBS}/{job}/attempts")).await;
    assert!(attempts.json()["attempts"].is_array(), "{}", attempts.text);
    let reversed = browser.get(&format!("/api/web/usage?from={now}&until=0")).await;
    assert_eq!(reversed.status, StatusCode::CONFLICT, "{}", reversed.text);
}

async fn ask_often(browser: &Browser) {
    for _ in 0..20 {
        assert_eq!(browser.get("/api/web/session").await.status, StatusCode::OK);
    }
}

/// Nodes and partitions are no calls of commands: they have their own answers, and take turns and are counted all the same.
#[tokio::test(flavor = "multi_thread")]
async fn views_of_the_whole_cluster_take_turns_and_are_counted() {
    let browser = Browser::signed_in(USER).await;
    let shared = &browser.server.shared;
    let counted = || {
        let calls = shared.volatile.counters.snapshot().calls;
        let of_kind = calls.iter().filter(|call| call.kind == CallKind::Cluster);
        of_kind.map(|call| call.count).sum::<u64>()
    };
    let before = counted();
    let user = principal::of_name(USER).expect("an account");
    let owner = ShareOwner { uid: shared.counted_user(user.uid), is_operator: false };
    for path in ["/api/web/nodes", "/api/web/lists/partitions"] {
        let mut at_work = Vec::new();
        for _ in 0..PLANS_OF_USER_MAX {
            let turn = shared.volatile.long_calls.begin(owner, LongWork::Plan).await;
            at_work.push(turn.expect("a turn"));
        }
        let mut asked = pin!(browser.get(path));
        tokio::select! {
            biased;
            answered = &mut asked => panic!("{path} waits for its turn: {}", answered.text),
            () = ask_often(&browser) => {}
        }
        drop(at_work);
        assert_eq!(asked.await.status, StatusCode::OK, "{path}");
    }
    assert_eq!(counted(), before + 2);
}

/// The page offers what somebody may do by this.
#[tokio::test(flavor = "multi_thread")]
async fn profile_says_what_who_is_signed_in_may_do() {
    let mut browser = Browser::administering().await;
    let made = browser.post(CALL, &json!({"call": {"create_project": {"name": "atlas"}}})).await;
    assert_eq!(made.status, StatusCode::OK, "{}", made.text);
    let hour = Duration::from_secs(3600);
    let (admin, user) = (browser.token("root", hour).await, browser.token(USER, hour).await);
    for (role, coordinates, secrets) in
        [("user", false, false), ("manager", true, false), ("admin", true, true)]
    {
        assert_eq!(browser.sign_in(&admin).await.status, StatusCode::OK);
        let members = json!({"project": "atlas", "members": {USER: role}, "change": "add"});
        let added = browser.post(CALL, &json!({"call": {"set_members": members}})).await;
        assert_eq!(added.status, StatusCode::OK, "{role}: {}", added.text);
        let said = browser.sign_in(&user).await.json();
        assert_eq!(said["role"], "user", "{said}");
        assert_eq!(said["coordinates_accounts"], coordinates, "{role}: {said}");
        assert_eq!(said["manages_secrets"], secrets, "{role}: {said}");
        // The page offers what is a project admin's by the same word.
        let gateway = json!({"set_default_gateway": {"project": "atlas", "gateway": null}});
        let set = browser.post(CALL, &json!({ "call": gateway })).await;
        assert_eq!(set.status == StatusCode::OK, secrets, "{role}: {}", set.text);
    }
}

/// A field of the page has nodes as `scontrol` takes them.
#[tokio::test(flavor = "multi_thread")]
async fn nodes_of_a_call_are_host_lists() {
    let admin = Browser::administering().await;
    let post = |call: Value| {
        let admin = &admin;
        async move { admin.post(CALL, &json!({ "call": call })).await }
    };
    let drain = |nodes: &str, reason: &str| {
        let change = json!({"drain": {"reason": reason}});
        json!({"update_node": {"nodes": [nodes], "change": change}})
    };
    for list in ["n[1-1]", "n[1,1]", "all"] {
        let drained = post(drain(list, list)).await;
        assert_eq!(drained.status, StatusCode::OK, "{list}: {}", drained.text);
        let nodes = admin.get("/api/web/nodes").await.json();
        assert_eq!(nodes["nodes"][0]["reason"], list, "{nodes}");
    }
    let refused = post(drain("n[1-", "fans")).await;
    assert_eq!(refused.status, StatusCode::BAD_REQUEST, "{}", refused.text);
    assert!(refused.text.contains("n[1-"), "{}", refused.text);
    let made = json!({"create_reservation": {
        "name": "fix", "start": crate::clock::now().millis() + 3_600_000,
        "duration": {"set": {"Minutes": 60}}, "nodes": {"named": ["n[1]"]},
        "users": {"edit": "set", "names": ["root"]}
    }});
    let changed = json!({"update_reservation": {
        "name": "fix", "ask": {"nodes": {"named": ["n[1-1]"]}}
    }});
    for call in [made, changed] {
        let done = post(call.clone()).await;
        assert_eq!(done.status, StatusCode::OK, "{call}: {}", done.text);
        let state = admin.server.shared.read();
        let reserved = state.reservations.values().next().expect("a reservation");
        assert_eq!(reserved.nodes, [crate::testing::NODE], "{call}");
    }
}

/// One that is read would be refused for what is wrong with it.
#[tokio::test(flavor = "multi_thread")]
async fn host_lists_are_read_for_operators_alone() {
    let user = Browser::signed_in(USER).await;
    let list = json!(["n[1-"]);
    let change = json!({"drain": {"reason": "fans"}});
    let ask = json!({"nodes": {"named": list}});
    for call in [
        json!({"update_node": {"nodes": list, "change": change}}),
        json!({"create_reservation": ask}),
        json!({"update_reservation": {"name": "fix", "ask": ask}}),
    ] {
        let refused = user.post(CALL, &json!({ "call": call })).await;
        assert_eq!(refused.status, StatusCode::FORBIDDEN, "{call}: {}", refused.text);
    }
}

/// The page makes the calls of commands, with the rights of who is signed in.
#[tokio::test(flavor = "multi_thread")]
async fn administration_is_by_the_same_calls_and_rights() {
    let admin = Browser::administering().await;
    let made = admin.post(CALL, &json!({"call": {"create_project": {"name": "atlas"}}})).await;
    assert_eq!(made.status, StatusCode::OK, "{}", made.text);
    let members = json!({"project": "atlas", "members": {"ann": "manager"}, "change": "add"});
    let added = admin.post(CALL, &json!({"call": {"set_members": members}})).await;
    assert_eq!(added.status, StatusCode::OK, "{}", added.text);
    let projects = admin.get("/api/web/lists/projects").await.text;
    assert!(projects.contains("atlas") && projects.contains("ann"), "{projects}");
    let drain = json!({"nodes": [crate::testing::NODE], "change": {"drain": {"reason": "fans"}}});
    let drained = admin.post(CALL, &json!({"call": {"update_node": drain}})).await;
    assert_eq!(drained.status, StatusCode::OK, "{}", drained.text);
    let nodes = admin.get("/api/web/nodes").await.json();
    assert_eq!(nodes["nodes"][0]["reason"], "fans", "{nodes}");
    let secret = json!({"project": "main", "name": "key", "value": "hush"});
    let set = admin.post(CALL, &json!({"call": {"set_secret": secret}})).await;
    assert_eq!(set.status, StatusCode::OK, "{}", set.text);
    let secrets = admin.get("/api/web/lists/secrets").await.text;
    assert!(secrets.contains("key") && !secrets.contains("hush"), "{secrets}");
    // As the form of the page makes it: it is read as far as its key.
    let ssh = json!({"user": "u", "ssh_key": {"public": "", "private": "none"}, "hosts": ["h1"]});
    let fleet = json!({"type": "fleet", "name": "lab", "placement": "any", "ssh_config": ssh});
    let call = json!({"apply_fleet": {"project": "main", "configuration": fleet}});
    let refused = admin.post(CALL, &json!({ "call": call })).await;
    assert!(refused.text.contains("private key"), "{}", refused.text);
    // The same of machines: it is read as far as what would make them.
    let fleet = json!({"type": "fleet", "name": "burst", "nodes": "0..8", "placement": "any",
        "spot_policy": "auto", "resources": {"gpu": "H100:8"}, "idle_duration": "10m", "max_price": "20.5"});
    let call = json!({"apply_fleet": {"project": "main", "configuration": fleet}});
    let refused = admin.post(CALL, &json!({ "call": call })).await;
    assert!(refused.text.contains("no source of machines"), "{}", refused.text);
    let gateway = json!({"project": "atlas", "gateway": "none"});
    let unknown = admin.post(CALL, &json!({"call": {"set_default_gateway": gateway}})).await;
    assert!(unknown.text.contains("none"), "{}", unknown.text);
    let partition = admin.get("/api/web/nodes").await.json()["partitions"][0].clone();
    for call in [
        json!({"update_partition": {"name": partition, "change": {"state": "down"}}}),
        json!({"update_partition": {"name": partition, "change": {"max_time": {"Minutes": 90}}}}),
        json!({"set_account": {"name": "biology", "parent": "root"}}),
        json!({"set_association": {"account": "biology", "limits": {
            "max_jobs": 3, "max_wall": {"Minutes": 60}, "group_tres": {"cpu": 64, "gres/gpu": 8}
        }}}),
        json!({"set_qos": {"name": "fast", "priority": 10, "max_tres_per_user": {"cpu": 8}}}),
        json!({"create_reservation": {
            "name": "fix", "start": crate::clock::now().millis() + 3_600_000,
            "duration": {"set": {"Minutes": 60}}, "nodes": {"named": [crate::testing::NODE]},
            "users": {"edit": "set", "names": ["root"]},
            "flags": {"edit": "set", "flags": ["maint"]}
        }}),
        json!({"update_reservation": {
            "name": "fix", "ask": {"duration": {"set": {"Minutes": 90}}}
        }}),
        json!({"set_role": {"name": "ann", "role": "operator"}}),
        json!({"remove_reservation": {"name": "fix"}}),
        json!({"remove_qos": {"name": "fast"}}),
        json!({"remove_account": {"name": "biology"}}),
    ] {
        let done = admin.post(CALL, &json!({ "call": call })).await;
        assert_eq!(done.status, StatusCode::OK, "{call}: {}", done.text);
    }
    let jobs = admin.post(CALL, &json!({"call": {"jobs": {}}})).await;
    assert_eq!(jobs.status, StatusCode::BAD_REQUEST, "{}", jobs.text);
    let unread = admin.post(CALL, &json!({"call": {"explode": {}}})).await;
    assert_eq!(unread.status, StatusCode::BAD_REQUEST);
    let text = "type: lambda\nregions: [r]\nssh_key: lab\nendpoint: http://127.0.0.1:1\n\
                creds: {type: api_key, api_key: hush}\n";
    let backend = json!({"set_backend": {"project": "main", "config_yaml": text}});
    let set = admin.post(CALL, &json!({ "call": backend })).await;
    assert_eq!(set.status, StatusCode::OK, "{}", set.text);
    let listed = admin.get("/api/web/lists/backends").await;
    let source = &listed.json()["machines"]["sources"][0];
    assert_eq!(source["name"], "lambda", "{}", listed.text);
    assert_eq!(source["project"], "main", "{}", listed.text);
    assert!(!listed.text.contains("hush"), "{}", listed.text);
    let remove = json!({"remove_backends": {"project": "main", "names": ["lambda"]}});
    let removed = admin.post(CALL, &json!({ "call": remove })).await;
    assert_eq!(removed.status, StatusCode::OK, "{}", removed.text);
    let user = Browser::signed_in(USER).await;
    for call in [
        backend,
        remove,
        json!({"update_node": drain}),
        json!({"create_project": {"name": "mine"}}),
        json!({"node_token": {"nodes": [crate::testing::NODE]}}),
        json!("rotate_secret_key"),
    ] {
        let refused = user.post(CALL, &json!({ "call": call })).await;
        assert_eq!(refused.status, StatusCode::FORBIDDEN, "{call}: {}", refused.text);
    }
}

async fn next_event(stream: &mut Body) -> String {
    let frame = stream.frame().await.expect("an event").expect("bytes");
    String::from_utf8(frame.into_data().expect("data").to_vec()).expect("text")
}

#[tokio::test(flavor = "multi_thread")]
async fn stream_says_what_changed_and_ends_with_the_session() {
    let browser = Browser::signed_in(USER).await;
    let (status, mut stream) = browser.open(EVENTS).await;
    assert_eq!(status, StatusCode::OK);
    assert!(next_event(&mut stream).await.starts_with("event: hello\n"));
    browser.server.submit("name: new").await.expect("a job");
    let change = next_event(&mut stream).await;
    assert!(change.starts_with("event: change\n") && change.contains("\"jobs\":true"), "{change}");
    assert_eq!(browser.sign_out().await.status, StatusCode::OK);
    browser.server.submit("name: another").await.expect("a job");
    assert!(next_event(&mut stream).await.starts_with("event: signed_out\n"));
    assert!(stream.frame().await.is_none(), "nothing comes after that");
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_of_one_user_have_a_bound_and_are_free_again_when_they_end() {
    let browser = Browser::signed_in(USER).await;
    let mut open = Vec::new();
    let refused = loop {
        assert!(open.len() < 1_000, "they are bounded");
        match browser.open(EVENTS).await {
            (StatusCode::OK, stream) => open.push(stream),
            (status, _) => break status,
        }
    };
    assert_eq!(refused, StatusCode::SERVICE_UNAVAILABLE);
    open.pop();
    assert_eq!(browser.open(EVENTS).await.0, StatusCode::OK);
}

/// Pages of jobs have the origin of the server's own page: where a site shows them, no session is worth stealing.
#[tokio::test(flavor = "multi_thread")]
async fn administrators_only_look_where_pages_of_jobs_are_shown() {
    let admin = Browser::signed_in("root").await;
    let job = admin.server.submit("name: of-ada").await.expect("a job");
    let project = json!({"call": {"create_project": {"name": "atlas"}}});
    let token = json!({"call": {"user_token": {
        "name": "root", "account": null, "unix_user": null, "role": null
    }}});
    let script = json!({"script": "#!/bin/sh\ntrue\n"});
    let cancel = format!("{JOBS}/{job}/cancel");
    let nothing = json!({});
    let changes = [
        (CALL, &project),
        (CALL, &token),
        ("/api/web/submit", &script),
        (cancel.as_str(), &nothing),
    ];
    for (path, body) in changes {
        let refused = admin.post(path, body).await;
        assert_eq!(refused.status, StatusCode::FORBIDDEN, "{path}: {}", refused.text);
        assert!(refused.text.contains("job_pages = false"), "{}", refused.text);
    }
    assert!(!admin.server.shared.read().jobs[&job].has_ended());
    assert_eq!(admin.get(JOBS).await.status, StatusCode::OK);
    let looks = admin.post(CALL, &json!({"call": "accounts"})).await;
    assert_eq!(looks.status, StatusCode::OK, "{}", looks.text);
    assert_eq!(admin.post("/api/web/check", &script).await.status, StatusCode::OK);
    assert_eq!(admin.sign_out().await.status, StatusCode::OK);
}

#[tokio::test(flavor = "multi_thread")]
async fn site_without_pages_of_jobs_shows_none() {
    let mut browser = Browser::administering().await;
    browser.cookie = None;
    for path in ["/proxy/jobs/1/80/", "/proxy/whole/1/80/"] {
        let page = browser.get(path).await;
        assert_eq!(page.status, StatusCode::NOT_FOUND, "{path}");
        assert!(page.text.contains("job_pages = false"), "{}", page.text);
    }
}
