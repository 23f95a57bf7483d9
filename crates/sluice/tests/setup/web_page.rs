//! The server's own web page through the real program: the files of the page, signing in over a socket, and other users' rights.

use crate::harness::{Cluster, TWO_NODES, program, until};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::TcpStream;

const SESSION: &str = "/api/web/session";

pub(super) struct Answer {
    pub(super) status: u16,
    head: String,
    pub(super) body: String,
}

impl Answer {
    pub(super) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|e| panic!("{}: {e}", self.body))
    }

    fn header(&self, name: &str) -> Option<&str> {
        let is = |line: &&str| {
            line.split(':').next().is_some_and(|word| word.eq_ignore_ascii_case(name))
        };
        Some(self.head.lines().find(is)?.split_once(':')?.1.trim())
    }
}

/// A browser on the server's machine.
pub(super) struct Browser {
    pub(super) address: String,
    pub(super) cookie: Option<String>,
}

impl Browser {
    pub(super) fn of(cluster: &Cluster) -> Self {
        let ports = std::fs::read_to_string(cluster.state().join("ports.json")).expect("the ports");
        let ports: Value = serde_json::from_str(&ports).expect("JSON");
        Self { address: ports["listen"].as_str().expect("a port").to_owned(), cookie: None }
    }

    pub(super) fn send(
        &self,
        method: &str,
        path: &str,
        origin: Option<&str>,
        body: &str,
    ) -> Answer {
        let mut stream = TcpStream::connect(&self.address).expect("the server");
        let mut head = format!(
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nContent-Length: {}\r\n",
            self.address,
            body.len()
        );
        head += &origin.map(|origin| format!("Origin: {origin}\r\n")).unwrap_or_default();
        head += &self.cookie.as_ref().map(|c| format!("Cookie: {c}\r\n")).unwrap_or_default();
        stream.write_all(format!("{head}\r\n{body}").as_bytes()).expect("sent");
        let mut all = String::new();
        stream.read_to_string(&mut all).expect("an answer");
        let (head, body) = all.split_once("\r\n\r\n").expect("a head");
        let status = head.split(' ').nth(1).and_then(|code| code.parse().ok()).expect("a status");
        Answer { status, head: head.to_owned(), body: body.to_owned() }
    }

    pub(super) fn get(&self, path: &str) -> Answer {
        self.send("GET", path, None, "")
    }

    pub(super) fn post(&self, path: &str, body: &Value) -> Answer {
        self.send("POST", path, Some(&format!("http://{}", self.address)), &body.to_string())
    }

    pub(super) fn sign_in(&mut self, token: &str) {
        let answer = self.post(SESSION, &json!({ "token": token }));
        assert_eq!(answer.status, 200, "{}", answer.body);
        let cookie = answer.header("set-cookie").expect("a cookie");
        for word in ["HttpOnly", "SameSite=Strict"] {
            assert!(cookie.contains(word), "{cookie}");
        }
        self.cookie = cookie.split(';').next().map(str::to_owned);
    }
}

pub(super) fn admin_token(cluster: &Cluster) -> String {
    std::fs::read_to_string(cluster.state().join("admin.token")).unwrap().trim().to_owned()
}

#[test]
fn up_page_is_in_the_program_and_a_token_signs_in() {
    let cluster = Cluster::up(TWO_NODES);
    let mut browser = Browser::of(&cluster);
    let page = browser.get("/");
    assert_eq!(page.status, 200);
    assert!(
        page.header("content-security-policy").is_some_and(|p| p.contains("default-src 'none'"))
    );
    let names: Vec<&str> =
        page.body.split("\"/web/").skip(1).filter_map(|rest| rest.split('"').next()).collect();
    assert!(names.len() >= 3, "{}", page.body);
    for name in names {
        assert_eq!(browser.get(&format!("/web/{name}")).status, 200, "{name}");
    }
    assert_eq!(browser.get(SESSION).status, 401);
    browser.sign_in(&admin_token(&cluster));
    assert_eq!(browser.get(SESSION).json()["role"], "admin");
    let forged = browser.send("DELETE", SESSION, Some("http://evil.example"), "");
    assert_eq!(forged.status, 403, "{}", forged.body);
    let token =
        cluster.sluice(&["token", "user", &crate::harness::user_name(), "--name", "page"]).ok();
    browser.sign_in(token.trim());
    cluster.shell(&format!("{} token revoke page", program())).ok();
    let refused = browser.get(SESSION);
    assert!(refused.status == 401 && refused.body.contains("revoked"), "{}", refused.body);
}

/// Whoever is signed in stays so over a restart, and a cookie that was stolen before somebody signed out opens nothing after it.
#[test]
fn up_session_of_a_browser_outlives_the_server_and_so_does_its_end() {
    let cluster = Cluster::up(TWO_NODES);
    let mut browser = Browser::of(&cluster);
    browser.sign_in(&admin_token(&cluster));
    cluster.kill("server");
    cluster.start();
    let session = browser.get(SESSION);
    assert_eq!(session.status, 200, "{}", session.body);
    assert_eq!(session.json()["role"], "admin");
    let origin = format!("http://{}", browser.address);
    assert_eq!(browser.send("DELETE", SESSION, Some(&origin), "").status, 200);
    cluster.kill("server");
    cluster.start();
    assert_eq!(browser.get(SESSION).status, 401);
}

/// What the page does for a person: a script is checked and submitted, watched, explained and cancelled.
#[test]
fn up_page_submits_watches_explains_and_cancels_a_job() {
    let cluster = Cluster::up(TWO_NODES);
    // Where pages of jobs are shown, administrators only look.
    cluster.write_conf("sluice.toml", "[web]\njob_pages = false\n");
    cluster.sluice(&["scontrol", "reconfigure"]).ok();
    let mut browser = Browser::of(&cluster);
    browser.sign_in(&admin_token(&cluster));
    let script = "#!/bin/sh\n#SBATCH -J '<b>web</b>' -o /dev/null --gres=gpu:2 -t 5\nsleep 600\n";
    let checked = browser.post("/api/web/check", &json!({ "script": script })).json();
    assert_eq!(checked["errors"], json!([]), "{checked}");
    assert!(checked["starts"][0]["nodes"][0].is_string(), "{checked}");
    let submitted = browser.post("/api/web/submit", &json!({ "script": script })).json();
    let job = submitted["job"].as_u64().unwrap_or_else(|| panic!("{submitted}"));
    cluster.await_state(job, "RUNNING");
    let nodes = browser.get("/api/web/nodes").json();
    let cells: Vec<&Value> = nodes["nodes"]
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|n| n["gpus"].as_array().unwrap())
        .collect();
    assert_eq!(cells.len(), 16);
    assert_eq!(cells.iter().filter(|gpu| gpu["holder"]["job"] == job).count(), 2, "{nodes}");
    let page = browser.get(&format!("/api/web/jobs/{job}")).json();
    assert_eq!(page["job"]["name"], "<b>web</b>");
    assert_eq!(page["allocation"].as_array().map(Vec::len), Some(1), "{page}");
    let asked = page["request"].to_string();
    assert!(asked.contains("Devices of a node") && asked.contains("gpu:2"), "{asked}");
    let bars = browser.get("/api/web/timeline").json();
    assert_eq!(
        (&bars["bars"][0]["job"], &bars["bars"][0]["expected"]),
        (&json!(job), &json!(false))
    );
    let place = browser.get(&format!("/api/web/timeline?job={job}")).json();
    assert_eq!(place["nodes"].as_array().map(Vec::len), Some(1), "its node alone: {place}");
    let attempts = browser.get(&format!("/api/web/jobs/{job}/attempts")).json();
    assert_eq!(attempts["attempts"][0]["state"], "RUNNING", "{attempts}");
    // One that waits says why, and when it will start.
    let large = script.replace("gpu:2", "gpu:8 -N2");
    let waits = browser.post("/api/web/submit", &json!({ "script": large })).json()["job"].as_u64();
    let waits = waits.expect("a job");
    until("it is explained", || {
        let page = browser.get(&format!("/api/web/jobs/{waits}")).json();
        let said = page["explanation"].to_string();
        (said.contains("Resources") && said.contains(&format!("job {job} ("))).then_some(())
    });
    for id in [waits, job] {
        let cancelled = browser.post(&format!("/api/web/jobs/{id}/cancel"), &json!({}));
        assert_eq!(cancelled.status, 200, "{}", cancelled.body);
        assert!(cluster.await_end(id).starts_with("CANCELLED"));
    }
}

#[test]
fn root_page_shows_another_user_no_more_than_commands_do() {
    let cluster = Cluster::up(TWO_NODES);
    let job = cluster.submit_sleeper("-J of-root");
    let mut browser = Browser::of(&cluster);
    let token = cluster.sluice(&["token", "user", "games", "--name", "page"]).ok();
    browser.sign_in(token.trim());
    assert_eq!(browser.get(SESSION).json()["role"], "user");
    let refused = browser.post(&format!("/api/web/jobs/{job}/cancel"), &json!({}));
    assert_eq!(refused.status, 403, "{}", refused.body);
    assert_eq!(browser.get(&format!("/api/web/jobs/{job}/script")).status, 403);
    let log = browser.get(&format!("/api/web/logs?job={job}"));
    assert_eq!(log.status, 403, "{}", log.body);
    let page = browser.get(&format!("/api/web/jobs/{job}")).json();
    assert_eq!((&page["may_manage"], &page["may_read"]), (&json!(false), &json!(false)));
    cluster.write_conf("slurm.conf", &format!("{TWO_NODES}PrivateData=jobs,nodes\n"));
    cluster.sluice(&["scontrol", "reconfigure"]).ok();
    let rows = until("others' jobs are hidden", || {
        let rows = browser.get("/api/web/jobs").json();
        (rows["rows"] == json!([])).then_some(rows)
    });
    cluster.submit_sleeper("-J another");
    let changed = browser.get(&format!("/api/web/jobs?since={}", rows["seq"])).json();
    assert_eq!((&changed["rows"], &changed["gone"]), (&json!([]), &json!([])), "nor their numbers");
    assert_eq!(browser.get(&format!("/api/web/jobs/{job}")).status, 404);
    assert_eq!(browser.get("/api/web/nodes").json()["nodes"], json!([]));
}

/// A request to Slurm's REST API with Slurm's headers: the status line, and the body.
fn rest(address: &str, method: &str, path: &str, token: &str, body: &str) -> (String, String) {
    let mut stream = TcpStream::connect(address).expect("the server");
    let user = crate::harness::user_name();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {}\r\n\
         X-SLURM-USER-NAME: {user}\r\nX-SLURM-USER-TOKEN: {token}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(head.as_bytes()).expect("sent");
    let mut all = String::new();
    stream.read_to_string(&mut all).expect("an answer");
    let (head, body) = all.split_once("\r\n\r\n").expect("a head");
    (head.lines().next().expect("a status").to_owned(), body.to_owned())
}

/// The token that `scontrol token` prints.
fn rest_token(cluster: &Cluster, options: &[&str]) -> String {
    let said = cluster.sluice(&[&["scontrol", "token"][..], options].concat()).ok();
    said.trim().strip_prefix("SLURM_JWT=").unwrap_or_else(|| panic!("{said}")).to_owned()
}

/// As a client of slurmrestd does it.
#[test]
fn up_rest_api_of_slurm_takes_a_job_with_a_token_of_scontrol() {
    let cluster = Cluster::up(TWO_NODES);
    let token = rest_token(&cluster, &["lifespan=600"]);
    let browser = Browser::of(&cluster);
    let ask = |method: &str, path: &str, token: &str, body: &str| {
        rest(&browser.address, method, &format!("/slurm/v0.0.38/{path}"), token, body)
    };
    let work = cluster.path("work").display().to_string();
    let job =
        json!({"name": "rest", "current_working_directory": work, "environment": {"FROM": "rest"}});
    let wanted = json!({"script": "#!/bin/sh\necho from $FROM > rest.txt\n", "job": job});
    let (status, body) = ask("POST", "job/submit", &token, &wanted.to_string());
    assert!(status.contains(" 200 "), "{status} {body}");
    let body: Value = serde_json::from_str(&body).expect("JSON");
    assert!(cluster.await_end(&body["job_id"]).starts_with("COMPLETED"), "{body}");
    assert_eq!(cluster.read("rest.txt"), "from rest\n");
    let (_, jobs) = ask("GET", &format!("job/{}", body["job_id"]), &token, "");
    let jobs: Value = serde_json::from_str(&jobs).expect("JSON");
    assert_eq!(jobs["jobs"][0]["job_state"], "COMPLETED", "{jobs}");
    assert!(ask("GET", "jobs", "eyJhbGciOiJub25lIn0.e30.", "").0.contains(" 401 "));
}

/// As with slurmrestd and `auth/jwt`: the token says itself whose it is, and holds as long as the key that signed it.
#[test]
fn up_rest_api_takes_json_web_tokens_that_the_server_signed() {
    let cluster = Cluster::up(&format!("{TWO_NODES}AuthAltTypes=auth/jwt\n"));
    let browser = Browser::of(&cluster);
    let ask = |token: &str| rest(&browser.address, "GET", "/slurm/v0.0.42/jobs/", token, "").0;
    let token = rest_token(&cluster, &["lifespan=600"]);
    assert_eq!(token.split('.').count(), 3, "{token}");
    assert!(ask(&token).contains(" 200 "), "{}", ask(&token));
    let user = crate::harness::user_name();
    let own = cluster.sluice(&["token", "user", &user, "--name", "own"]).ok();
    assert!(ask(own.trim()).contains(" 200 "), "tokens of ours are taken beside it");
    let (head, rest_of) = token.split_once('.').expect("parts");
    let (claims, tag) = rest_of.split_once('.').expect("parts");
    let none = "eyJhbGciOiJub25lIn0";
    let changed = format!("{}A", &claims[..claims.len() - 1]);
    for forged in [
        format!("{none}.{claims}."),
        format!("{none}.{claims}.{tag}"),
        format!("{head}.{changed}.{tag}"),
        format!("{head}.{claims}."),
    ] {
        assert!(ask(&forged).contains(" 401 "), "{forged}");
    }
    // Elsewhere it is no token.
    let native = format!(
        "GET /api/web/session HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\
         Authorization: Bearer {token}\r\n\r\n"
    );
    let mut stream = TcpStream::connect(&browser.address).expect("the server");
    stream.write_all(native.as_bytes()).expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    assert!(answer.starts_with("HTTP/1.1 401"), "{answer}");
    let bad = cluster.sluice(&["scontrol", "token", "username=no-such-user-here"]);
    assert!(bad.code != 0, "{}", bad.stdout);
}
