//! slurmrestd's API over the real router, with tokens of a user.

use super::*;
use crate::auth::token;
use crate::connection_limits::{ConnectionLimits, ListenerSlots, PortConnection};
use crate::http::peer::Peer;
use crate::shared::long_calls::{LongWork, PLANS_OF_USER_MAX};
use crate::testing::{NODE, TestServer};
use crate::user_shares::ShareOwner;
use axum::body::Body;
use axum::http::Method;
use cluster::Command;
use cluster::token::UserToken;
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tower_service::Service;

struct Client {
    server: TestServer,
    router: Router,
    token: String,
}

impl Client {
    async fn new(user: &str) -> Self {
        let server = TestServer::start().await;
        let token = token::generate();
        let hash = token::hash(&token);
        let known = UserToken { hash, name: user.into(), ..UserToken::default() };
        server.run(Command::SetUserToken(Box::new(known))).await.expect("a token");
        let limits = ConnectionLimits::default();
        let bodies = BodyLimits::new(server.shared.clone(), &limits);
        let router = router(&server.shared, &bodies).with_state(server.shared.clone());
        Self { server, router, token }
    }

    /// In v0.0.38.
    async fn send(
        &self,
        method: Method,
        path: &str,
        name: &str,
        body: Value,
    ) -> (StatusCode, Value) {
        self.send_to(method, &format!("/slurm/v0.0.38/{path}"), name, body).await
    }

    async fn get(&self, path: &str) -> (StatusCode, Value) {
        self.send_to(Method::GET, path, "root", json!({})).await
    }

    async fn send_to(
        &self,
        method: Method,
        path: &str,
        name: &str,
        body: Value,
    ) -> (StatusCode, Value) {
        let mut request = Request::new(Body::from(body.to_string()));
        *request.method_mut() = method;
        *request.uri_mut() = path.parse().expect("a path");
        let slots = ListenerSlots::new(1024, &ConnectionLimits::default()).port;
        let peer = Peer::Port {
            connection: PortConnection::new(slots),
            from: std::net::Ipv4Addr::LOCALHOST.into(),
            is_loopback: true,
        };
        request.extensions_mut().insert(peer);
        let headers = request.headers_mut();
        headers.insert(USER_NAME, name.parse().expect("a name"));
        headers.insert(USER_TOKEN, self.token.parse().expect("a token"));
        let response = self.router.clone().call(request).await.expect("a response");
        let status = response.status();
        let body = response.into_body().collect().await.expect("a body").to_bytes();
        (status, serde_json::from_slice(&body).unwrap_or_default())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn job_is_submitted_listed_and_cancelled_as_slurmrestd_has_it() {
    let client = Client::new("root").await;
    let (status, ping) = client.send(Method::GET, "ping", "root", json!({})).await;
    assert_eq!((status, &ping["pings"][0]["ping"]), (StatusCode::OK, &json!("UP")));
    let job = json!({
        "name": "rest", "tasks": 2, "current_working_directory": "/tmp", "environment": {"A": "1"},
    });
    let wanted = json!({"script": "#!/bin/sh\ntrue\n", "job": job});
    let (status, submitted) = client.send(Method::POST, "job/submit", "root", wanted).await;
    assert_eq!(status, StatusCode::OK, "{submitted}");
    let path = format!("job/{}", submitted["job_id"]);
    let (_, found) = client.send(Method::GET, &path, "root", json!({})).await;
    let one = &found["jobs"][0];
    assert_eq!((&one["name"], &one["job_state"]), (&json!("rest"), &json!("PENDING")), "{found}");
    assert_eq!(one["current_working_directory"], "/tmp");
    let (_, all) = client.send(Method::GET, "jobs", "root", json!({})).await;
    assert_eq!(all["jobs"].as_array().map(Vec::len), Some(1));
    let (status, done) = client.send(Method::DELETE, &path, "root", json!({})).await;
    assert_eq!((status, &done["errors"]), (StatusCode::OK, &json!([])), "{done}");
    let (_, found) = client.send(Method::GET, &path, "root", json!({})).await;
    assert_eq!(found["jobs"][0]["job_state"], "CANCELLED", "{found}");
    let (_, nodes) = client.send(Method::GET, "nodes", "root", json!({})).await;
    assert_eq!(nodes["nodes"][0]["name"], NODE);
    let (status, _) = client.send(Method::GET, "node/none", "root", json!({})).await;
    assert_eq!(status, StatusCode::NOT_FOUND);
}

#[tokio::test(flavor = "multi_thread")]
async fn token_says_who_asks_and_bad_properties_are_named() {
    let mut client = Client::new("nobody").await;
    let job = client.server.submit("name: of-ada").await.expect("a job");
    let path = format!("job/{job}");
    let (status, why) = client.send(Method::DELETE, &path, "nobody", json!({})).await;
    assert_eq!(status, StatusCode::FORBIDDEN, "{why}");
    let (status, _) = client.send(Method::GET, "jobs", "root", json!({})).await;
    assert_eq!(status, StatusCode::UNAUTHORIZED, "the name of another");
    let bad = json!({"script": "#!/bin/sh\n", "job": {"user_id": 0}});
    let (status, why) = client.send(Method::POST, "job/submit", "nobody", bad).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    assert!(why["errors"][0]["error"].as_str().is_some_and(|text| text.contains("user_id")));
    client.token = "eyJhbGciOiJub25lIn0.eyJzdWIiOiJyb290In0.".into();
    let (status, _) = client.send(Method::GET, "jobs", "root", json!({})).await;
    assert_eq!(status, StatusCode::UNAUTHORIZED, "a JSON Web Token of no algorithm");
    assert!(!client.server.shared.read().jobs[&job].has_ended());
}

/// Every version answers every path, and the later ones end lists with a slash.
#[tokio::test(flavor = "multi_thread")]
async fn every_version_has_every_path() {
    let client = Client::new("root").await;
    let job = client.server.submit("name: one").await.expect("a job");
    for version in Version::ALL {
        for (part, path, key) in [
            ("slurm", "ping", "pings"),
            ("slurm", "diag", "statistics"),
            ("slurm", "jobs", "jobs"),
            ("slurm", "jobs/state", "jobs"),
            ("slurm", "shares", "shares"),
            ("slurm", "nodes", "nodes"),
            ("slurm", "partitions", "partitions"),
            ("slurm", "reservations", "reservations"),
            ("slurm", "licenses", "licenses"),
            ("slurmdb", "jobs", "jobs"),
            ("slurmdb", "users", "users"),
            ("slurmdb", "accounts", "accounts"),
            ("slurmdb", "associations", "associations"),
            ("slurmdb", "association", "associations"),
            ("slurmdb", "qos", "qos"),
            ("slurmdb", "clusters", "clusters"),
            ("slurmdb", "tres", "tres"),
            ("slurmdb", "wckeys", "wckeys"),
            ("slurmdb", "wckey/1", "wckeys"),
            ("slurmdb", "config", "accounts"),
            ("slurmdb", "ping", "pings"),
            ("slurmdb", "diag", "statistics"),
            ("slurmdb", "instances", "instances"),
            ("slurmdb", "instance", "instances"),
        ] {
            for end in ["", "/"] {
                // The one key whose letters changed.
                let key = if key == "tres" && version.is_typed() { "TRES" } else { key };
                let path = format!("/{part}/{}/{path}{end}", version.name());
                let (status, document) = client.get(&path).await;
                assert_eq!(status, StatusCode::OK, "{path}: {document}");
                assert_eq!(document["errors"], json!([]), "{path}");
                assert!(!document[key].is_null(), "{path}: {document}");
            }
        }
        let (_, found) = client.get(&format!("/slurm/{}/job/{job}", version.name())).await;
        let state = &found["jobs"][0]["job_state"];
        let expected = if version.is_typed() { json!(["PENDING"]) } else { json!("PENDING") };
        assert_eq!(*state, expected, "{found}");
        let node = format!("/slurm/{}/node/{NODE}", version.name());
        assert_eq!(client.get(&node).await.1["nodes"][0]["name"], NODE);
    }
    for unknown in ["/slurm/v0.0.37/jobs", "/slurmdb/v0.0.38/none", "/slurm/v0.0.42/node/none"] {
        assert_eq!(client.get(unknown).await.0, StatusCode::NOT_FOUND, "{unknown}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn job_is_submitted_changed_and_cancelled_in_the_later_form() {
    let client = Client::new("root").await;
    let set = |number: u64| json!({"set": true, "infinite": false, "number": number});
    let job = json!({
        "name": "rest", "time_limit": set(5), "current_working_directory": "/tmp",
        "environment": ["A=1"], "priority": {"set": false, "infinite": false, "number": 0},
    });
    let beside = json!({"script": "#!/bin/sh\ntrue\n", "job": job});
    let mut within = job.clone();
    within["script"] = json!("#!/bin/sh\ntrue\n");
    for wanted in [beside, json!({ "job": within }), json!({ "jobs": [within] })] {
        let path = "/slurm/v0.0.42/job/submit";
        let (status, submitted) = client.send_to(Method::POST, path, "root", wanted).await;
        assert_eq!(status, StatusCode::OK, "{submitted}");
        let path = format!("/slurm/v0.0.42/job/{}", submitted["job_id"]);
        let (_, found) = client.get(&path).await;
        assert_eq!(found["jobs"][0]["time_limit"], set(5), "{found}");
        let change = json!({"time_limit": set(7), "comment": "longer", "hold": true});
        let (status, changed) = client.send_to(Method::POST, &path, "root", change).await;
        assert_eq!(status, StatusCode::OK, "{changed}");
        let (_, found) = client.get(&path).await;
        let one = &found["jobs"][0];
        assert_eq!((&one["time_limit"], &one["comment"]), (&set(7), &json!("longer")), "{found}");
        assert_eq!(one["hold"], true);
        let (status, why) = client.send_to(Method::POST, &path, "root", json!({"uid": 0})).await;
        assert_eq!(status, StatusCode::BAD_REQUEST);
        assert_eq!(why["errors"][0]["error"], "uid: this property is not taken");
        let (status, done) = client.send_to(Method::DELETE, &path, "root", json!({})).await;
        assert_eq!((status, &done["errors"]), (StatusCode::OK, &json!([])), "{done}");
        let (_, found) = client.get(&path).await;
        assert_eq!(found["jobs"][0]["job_state"], json!(["CANCELLED"]), "{found}");
    }
    let two = json!({"jobs": [job.clone(), job], "script": "#!/bin/sh\n"});
    let path = "/slurm/v0.0.42/job/submit";
    let (status, submitted) = client.send_to(Method::POST, path, "root", two).await;
    assert_eq!(status, StatusCode::OK, "{submitted}");
    let first = submitted["job_id"].as_u64().expect("a number");
    let (_, found) = client.get(&format!("/slurm/v0.0.42/job/{}", first + 1)).await;
    let one = &found["jobs"][0];
    assert_eq!((&one["het_job_id"], &one["het_job_offset"]), (&set(first), &set(1)), "{found}");
    let other = json!({"jobs": [{}, {"environment": ["A=2"]}], "script": "#!/bin/sh\n"});
    let none = json!({"jobs": [], "script": "#!/bin/sh\n"});
    for bad in [none, json!({"jobs": [{}], "job": {}}), other] {
        let (status, why) = client.send_to(Method::POST, path, "root", bad).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{why}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn states_of_named_jobs_are_asked_for_at_once() {
    let client = Client::new("root").await;
    let first = client.server.submit("name: one").await.expect("a job");
    let second = client.server.submit("name: two").await.expect("a job");
    client.server.submit("name: three").await.expect("a job");
    let path = |ids: &str| format!("/slurm/v0.0.42/jobs/state/?job_id={ids}");
    let (status, found) = client.get(&path(&format!("{first},{second}"))).await;
    assert_eq!(status, StatusCode::OK, "{found}");
    let jobs = found["jobs"].as_array().expect("jobs");
    let mut ids: Vec<u64> = jobs.iter().filter_map(|job| job["job_id"].as_u64()).collect();
    ids.sort_unstable();
    assert_eq!(ids, [u64::from(first.0), u64::from(second.0)]);
    assert_eq!(found["jobs"][0]["job_state"], json!(["PENDING"]));
    let (_, all) = client.get("/slurm/v0.0.42/jobs/state/").await;
    assert_eq!(all["jobs"].as_array().map(Vec::len), Some(3));
    for (ids, expected) in [
        ("x", StatusCode::BAD_REQUEST),
        ("1_[0-4000000000:2]", StatusCode::BAD_REQUEST),
        ("4000000000", StatusCode::NOT_FOUND),
    ] {
        let (status, why) = client.get(&path(&ids.replace('[', "%5B").replace(']', "%5D"))).await;
        assert_eq!(status, expected, "{ids}: {why}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn configuration_is_read_again_for_administrators_alone() {
    let path = "/slurm/v0.0.42/reconfigure/";
    let other = Client::new("nobody").await;
    let (status, why) = other.send_to(Method::GET, path, "nobody", json!({})).await;
    assert_eq!((status, &why["errors"][0]["error_number"]), (StatusCode::FORBIDDEN, &json!(2002)));
    // This server was started without a folder to read: the administrator is told so.
    let client = Client::new("root").await;
    let (status, why) = client.get(path).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    let text = why["errors"][0]["error"].as_str().unwrap_or_default();
    assert!(text.contains("slurm.conf"), "{why}");
}

/// A parameter that is not known would silently widen what was asked for: it is refused by its name, whatever it holds.
#[tokio::test(flavor = "multi_thread")]
async fn queries_narrow_and_strange_ones_are_refused() {
    let client = Client::new("root").await;
    for bad in [
        "/slurm/v0.0.38/jobs?sort=id;DROP%20TABLE%20jobs",
        "/slurmdb/v0.0.38/jobs?order_by=1%3BDELETE%20FROM%20jobs",
        "/slurmdb/v0.0.42/jobs?state=%27%20OR%201%3D1",
        "/slurmdb/v0.0.42/jobs?start_time=yesterday",
        "/slurm/v0.0.38/job/1%20OR%201",
        "/slurm/v0.0.38/job/..%2F..%2Fetc%2Fpasswd",
    ] {
        let (status, why) = client.get(bad).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{bad}");
        let text = why["errors"][0]["error"].as_str().unwrap_or_default();
        assert!(text.contains("expected") && !text.contains('\n'), "{bad}: {why}");
    }
    let users = "/slurmdb/v0.0.38/jobs?users=%27%3B--,nobody";
    let (status, found) = client.get(users).await;
    assert_eq!((status, &found["jobs"]), (StatusCode::OK, &json!([])), "a text like any other");
    let (status, _) = client.get("/slurmdb/v0.0.38/user/no-such-user").await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    let (_, found) = client.get("/slurmdb/v0.0.38/associations?user=no-such-user").await;
    assert_eq!(found["associations"], json!([]));
}

/// Every parameter that Slurm describes narrows by what it names, asks for what is shown anyway, or is refused.
#[tokio::test(flavor = "multi_thread")]
async fn lists_and_records_are_narrowed_by_each_of_their_parameters() {
    let client = Client::new("root").await;
    let job = client.server.submit("name: one").await.expect("a job");
    let whole = json!({
        "accounts": [{"name": "chem", "description": "fumes"}, {"name": "bio"}],
        "users": [
            {"name": "ann", "administrator_level": ["Operator"], "default": {"account": "chem"}},
            {"name": "bob", "default": {"account": "bio"}, "associations": [{"account": "chem"}]},
        ],
    });
    let config = "/slurmdb/v0.0.42/config";
    let (status, done) = client.send_to(Method::POST, config, "root", whole).await;
    assert_eq!(status, StatusCode::OK, "{done}");
    let of_job = format!("jobs?step={job}.0&cluster=&format=x&skip_steps=true");
    for (path, key, count) in [
        ("users?admin_level=Operator&name=ann,bob&with_assocs=true", "users", 1),
        ("users?default_account=bio", "users", 1),
        ("accounts?description=fumes&WithAssociations=1", "accounts", 1),
        ("associations?account=chem&user=ann,bob", "associations", 2),
        ("associations?user=ann,bob&only_defaults=true", "associations", 2),
        ("associations?user=ann,bob&only_defaults=false&with_usage=true", "associations", 3),
        ("qos?name=normal&preempt_mode=DISABLED", "qos", 1),
        ("qos?id=4000", "qos", 0),
        (of_job.as_str(), "jobs", 1),
        ("jobs?cpus_min=100000", "jobs", 0),
        ("jobs?cluster=another", "jobs", 0),
        ("jobs?wckey=none", "jobs", 0),
        ("jobs?nodes_max=100000&show_duplicates=true", "jobs", 1),
    ] {
        let (status, found) = client.get(&format!("/slurmdb/v0.0.42/{path}")).await;
        assert_eq!(status, StatusCode::OK, "{path}: {found}");
        assert_eq!(found[key].as_array().map(Vec::len), Some(count), "{path}: {found}");
    }
    let of_ann = json!({"account": "chem", "user": "ann", "qos": ["normal"]});
    let wanted = json!({ "associations": [of_ann] });
    let path = "/slurmdb/v0.0.42/associations";
    let (status, done) = client.send_to(Method::POST, path, "root", wanted).await;
    assert_eq!(status, StatusCode::OK, "{done}");
    let (_, found) = client.get(&format!("{path}?account=chem&user=ann")).await;
    let id = found["associations"][0]["id"].as_u64().expect("a number");
    // v0.0.38 shows neither the number nor the default, and v0.0.40 the number within the whole key.
    for version in Version::ALL {
        let by_id = format!("id={id}");
        for (query, count) in [
            (by_id.as_str(), 1),
            ("id=4000", 0),
            ("user=ann,bob&qos=normal", 1),
            ("user=ann,bob&only_defaults=true", 2),
        ] {
            let path = format!("/slurmdb/{}/associations?{query}", version.name());
            let (status, found) = client.get(&path).await;
            assert_eq!(status, StatusCode::OK, "{path}: {found}");
            let found_count = found["associations"].as_array().map(Vec::len);
            assert_eq!(found_count, Some(count), "{path}: {found}");
        }
    }
    for bad in ["qos?user=ann", "users?account=chem", "jobs?cpus_max=many", "jobs?association=1"] {
        let (status, why) = client.get(&format!("/slurmdb/v0.0.42/{bad}")).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{bad}: {why}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn several_jobs_are_cancelled_by_what_they_have_and_never_all_by_accident() {
    let client = Client::new("root").await;
    let first = client.server.submit("name: one").await.expect("a job");
    let second = client.server.submit("name: two").await.expect("a job");
    let path = "/slurm/v0.0.42/jobs/";
    let odd_flag = json!({"job_name": "one", "flags": ["CRON_JOBS"]});
    let odd_job = json!({"jobs": ["x"]});
    for bad in [json!({}), json!({"jobs": []}), json!({"all": true}), odd_job, odd_flag] {
        let (status, why) = client.send_to(Method::DELETE, path, "root", bad).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{why}");
    }
    let (status, done) =
        client.send_to(Method::DELETE, path, "root", json!({"job_name": "one"})).await;
    assert_eq!(status, StatusCode::OK, "{done}");
    let one = &done["status"][0];
    assert_eq!((&one["job_id"]["number"], &one["error"]["code"]), (&json!(first.0), &json!(0)));
    assert!(client.server.shared.read().jobs[&first].has_ended());
    assert!(!client.server.shared.read().jobs[&second].has_ended());
}

#[tokio::test(flavor = "multi_thread")]
async fn node_is_drained_and_resumed_by_administrators() {
    let client = Client::new("root").await;
    let path = format!("/slurm/v0.0.42/node/{NODE}");
    let drain = json!({"state": ["DRAIN"], "reason": "fans"});
    let (status, done) = client.send_to(Method::POST, &path, "root", drain.clone()).await;
    assert_eq!(status, StatusCode::OK, "{done}");
    let (_, found) = client.get(&path).await;
    assert_eq!(found["nodes"][0]["reason"], "fans", "{found}");
    let resume = json!({"state": ["RESUME"]});
    assert_eq!(client.send_to(Method::POST, &path, "root", resume).await.0, StatusCode::OK);
    let (status, _) = client.send_to(Method::POST, &path, "root", json!({"state": "x"})).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    let several = json!({"name": [NODE], "state": ["DOWN"], "reason": "all of them"});
    let nodes = "/slurm/v0.0.42/nodes/";
    let (status, done) = client.send_to(Method::POST, nodes, "root", several).await;
    assert_eq!(status, StatusCode::OK, "{done}");
    assert_eq!(client.get(&path).await.1["nodes"][0]["reason"], "all of them");
    let unknown = json!({"name": ["none"], "state": ["RESUME"]});
    let (status, why) = client.send_to(Method::POST, nodes, "root", unknown).await;
    assert_eq!(status, StatusCode::NOT_FOUND, "{why}");
    let (status, why) = client.send_to(Method::DELETE, &path, "root", json!({})).await;
    assert_eq!(status, StatusCode::BAD_REQUEST, "the configuration names it: {why}");
    let none = "/slurm/v0.0.42/node/none";
    let (status, _) = client.send_to(Method::DELETE, none, "root", json!({})).await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    let other = Client::new("nobody").await;
    for (method, body) in [(Method::POST, drain), (Method::DELETE, json!({}))] {
        let (status, why) = other.send_to(method, &path, "nobody", body).await;
        assert_eq!(status, StatusCode::FORBIDDEN, "{why}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn allocation_is_asked_for_without_a_script() {
    let client = Client::new("root").await;
    let path = "/slurm/v0.0.42/job/allocate";
    let wanted = json!({"job": {"tasks": 2, "current_working_directory": "/tmp"}});
    let (status, done) = client.send_to(Method::POST, path, "root", wanted).await;
    assert_eq!(status, StatusCode::OK, "{done}");
    let (_, found) = client.get(&format!("/slurm/v0.0.42/job/{}", done["job_id"])).await;
    let one = &found["jobs"][0];
    assert_eq!((&one["name"], &one["batch_flag"]), (&json!("interactive"), &json!(false)));
    let components = json!({"hetjob": [{"tasks": 1}, {"tasks": 1}]});
    let (status, done) = client.send_to(Method::POST, path, "root", components).await;
    assert_eq!(status, StatusCode::OK, "{done}");
    for (bad, word) in [
        (json!({"hetjob": [{}], "job": {}}), "hetjob"),
        (json!({"job": {"script": "#!/bin/sh\n"}}), "script"),
        (json!({"hetjob": [{}, {"environment": ["A=1"]}]}), "environment"),
        (json!({"job": {"array": "1-4"}}), "array"),
    ] {
        let (status, why) = client.send_to(Method::POST, path, "root", bad).await;
        let text = why["errors"][0]["error"].as_str().unwrap_or_default();
        assert!(status == StatusCode::BAD_REQUEST && text.contains(word), "{why}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn accounting_is_changed_by_administrators_and_by_nobody_else() {
    let client = Client::new("root").await;
    let accounts = json!({"accounts": [{"name": "chem", "description": "chemistry"}]});
    let path = |rest: &str| format!("/slurmdb/v0.0.42/{rest}");
    let send = |method: Method, rest: &str, body: &Value| {
        let (path, body) = (path(rest), body.clone());
        let client = &client;
        async move { client.send_to(method, &path, "root", body).await }
    };
    let (status, done) = send(Method::POST, "accounts/", &accounts).await;
    assert_eq!(status, StatusCode::OK, "{done}");
    let limits = json!({"jobs": {"active": {"set": true, "infinite": false, "number": 3}}});
    let association = json!({"account": "chem", "user": "nobody", "max": limits});
    let wanted = json!({ "associations": [association] });
    let (status, done) = send(Method::POST, "associations/", &wanted).await;
    assert_eq!(status, StatusCode::OK, "{done}");
    let (_, found) = client.get(&path("associations?user=nobody")).await;
    assert_eq!(found["associations"][0]["max"]["jobs"]["active"]["number"], 3, "{found}");
    let (_, found) = client.get(&path("account/chem")).await;
    assert_eq!(found["accounts"][0]["description"], "chemistry", "{found}");
    for (method, rest, body) in [
        (Method::POST, "accounts/", json!({"accounts": [{}]})),
        (Method::POST, "tres/", json!({})),
        (Method::POST, "clusters/", json!({"clusters": [{"name": "other"}]})),
        (Method::POST, "wckeys/", json!({"wckeys": [{"name": "other"}]})),
        (Method::DELETE, "cluster/other", json!({})),
        (Method::DELETE, "wckey/1", json!({})),
        (Method::DELETE, "association/?user=nobody", json!({})),
    ] {
        let (status, why) = send(method, rest, &body).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{rest}: {why}");
    }
    let (_, why) = send(Method::DELETE, "cluster/other", &json!({})).await;
    let text = why["errors"][0].to_string();
    assert!(text.contains("cluster other: nothing to remove: there is one"), "{text}");
    let other = Client::new("nobody").await;
    let (status, why) = other.send_to(Method::POST, &path("accounts/"), "nobody", accounts).await;
    assert_eq!(status, StatusCode::FORBIDDEN, "{why}");
    for rest in ["association/?account=chem&user=nobody", "account/chem"] {
        let (status, done) = send(Method::DELETE, rest, &json!({})).await;
        assert_eq!(status, StatusCode::OK, "{rest}: {done}");
    }
    assert_eq!(client.get(&path("account/chem")).await.0, StatusCode::NOT_FOUND);
}

#[tokio::test(flavor = "multi_thread")]
async fn users_and_accounts_are_added_many_at_once_and_removed_by_what_they_have() {
    let client = Client::new("root").await;
    let path = |rest: &str| format!("/slurmdb/v0.0.42/{rest}");
    let send = |method: Method, rest: &str, body: Value| {
        let path = path(rest);
        let client = &client;
        async move { client.send_to(method, &path, "root", body).await }
    };
    let limit = json!({"set": true, "infinite": false, "number": 4});
    let association = json!({"maxjobs": limit});
    let condition = json!({"accounts": ["chem", "bio"], "association": association});
    let accounts = json!({"association_condition": condition, "account": {}});
    let (status, done) = send(Method::POST, "accounts_association/", accounts).await;
    assert_eq!((status, &done["added_accounts"]), (StatusCode::OK, &json!("chem,bio")), "{done}");
    let condition =
        json!({"users": ["ann", "bob"], "accounts": ["chem"], "association": association});
    let users = json!({"association_condition": condition, "user": {"adminlevel": ["Operator"]}});
    let other = Client::new("nobody").await;
    let added = json!({"association_condition": {"accounts": ["chem"]}, "account": {}});
    let (status, why) =
        other.send_to(Method::POST, &path("accounts_association/"), "nobody", added).await;
    assert_eq!(status, StatusCode::FORBIDDEN, "{why}");
    let (status, done) = send(Method::POST, "users_association/", users).await;
    assert_eq!((status, &done["added_users"]), (StatusCode::OK, &json!("ann,bob")), "{done}");
    let (_, found) = client.get(&path("associations?user=ann")).await;
    assert_eq!(found["associations"][0]["max"]["jobs"]["active"]["number"], 4, "{found}");
    let (_, found) = client.get(&path("user/bob")).await;
    assert_eq!(found["users"][0]["administrator_level"], json!(["Operator"]), "{found}");
    let whole = json!({
        "accounts": [{"name": "geo"}], "users": [{"name": "bob", "default": {"account": "geo"}}],
    });
    let (status, done) = send(Method::POST, "config", whole).await;
    assert_eq!(status, StatusCode::OK, "{done}");
    let (_, found) = client.get(&path("user/bob")).await;
    assert_eq!(found["users"][0]["default"]["account"], "geo", "{found}");
    for nothing in ["associations/", "associations/?user="] {
        let (status, why) = send(Method::DELETE, nothing, json!({})).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{why}");
    }
    let (status, done) = send(Method::DELETE, "associations/?user=bob", json!({})).await;
    assert_eq!(status, StatusCode::OK, "{done}");
    assert_eq!(done["removed_associations"].as_array().map(Vec::len), Some(2), "{done}");
    let (status, _) = send(Method::DELETE, "associations/?user=bob", json!({})).await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    let (status, done) = send(Method::DELETE, "user/ann", json!({})).await;
    assert_eq!((status, &done["removed_users"]), (StatusCode::OK, &Value::Null), "{done}");
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_of_all_that_there_is_take_turns_and_others_are_answered_meanwhile() {
    let client = Client::new("nobody").await;
    let uid = principal::of_name("nobody").expect("an account").uid;
    let owner = ShareOwner { uid, is_operator: false };
    let calls = &client.server.shared.volatile.long_calls;
    let mut at_work = Vec::new();
    for _ in 0..PLANS_OF_USER_MAX {
        at_work.push(calls.begin(owner, LongWork::Plan).await.expect("a turn"));
    }
    let ask = |path: &str| {
        let (client, path) = (&client, path.to_owned());
        async move { client.send_to(Method::GET, &path, "nobody", json!({})).await.0 }
    };
    let lists = ["slurmdb/v0.0.42/associations", "slurmdb/v0.0.42/config", "slurm/v0.0.42/nodes"];
    for list in lists.map(|list| format!("/{list}")) {
        let waiting = ask(&list);
        tokio::pin!(waiting);
        let others = async {
            for _ in 0..20 {
                assert_eq!(ask("/slurm/v0.0.42/ping").await, StatusCode::OK);
            }
        };
        tokio::select! {
            status = &mut waiting => panic!("{list} has its turn after the others: {status}"),
            () = others => {}
        }
        let turn = at_work.pop().expect("a turn");
        drop(turn);
        assert_eq!(waiting.await, StatusCode::OK, "{list}");
        at_work.push(calls.begin(owner, LongWork::Plan).await.expect("a turn"));
    }
}
