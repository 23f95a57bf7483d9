//! The server's own web page through the real program: the files of the page, signing in over a socket, and other users' rights.

use crate::harness::{Cluster, TWO_NODES, program};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::TcpStream;

const SESSION: &str = "/api/web/session";

struct Answer {
    status: u16,
    head: String,
    body: String,
}

impl Answer {
    fn json(&self) -> Value {
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
struct Browser {
    address: String,
    cookie: Option<String>,
}

impl Browser {
    fn of(cluster: &Cluster) -> Self {
        let ports = std::fs::read_to_string(cluster.state().join("ports.json")).expect("the ports");
        let ports: Value = serde_json::from_str(&ports).expect("JSON");
        Self { address: ports["listen"].as_str().expect("a port").to_owned(), cookie: None }
    }

    fn send(&self, method: &str, path: &str, origin: Option<&str>, body: &str) -> Answer {
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

    fn get(&self, path: &str) -> Answer {
        self.send("GET", path, None, "")
    }

    fn post(&self, path: &str, body: &Value) -> Answer {
        self.send("POST", path, Some(&format!("http://{}", self.address)), &body.to_string())
    }

    fn sign_in(&mut self, token: &str) {
        let answer = self.post(SESSION, &json!({ "token": token }));
        assert_eq!(answer.status, 200, "{}", answer.body);
        let cookie = answer.header("set-cookie").expect("a cookie");
        for word in ["HttpOnly", "SameSite=Strict"] {
            assert!(cookie.contains(word), "{cookie}");
        }
        self.cookie = cookie.split(';').next().map(str::to_owned);
    }
}

fn admin_token(cluster: &Cluster) -> String {
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
