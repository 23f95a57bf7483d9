//! Services whose replicas are of several kinds, and routers that pass requests on to the replicas of the other groups.

use crate::harness::ssh_client::free_port;
use crate::harness::{Cluster, TWO_NODES, until};
use crate::services::{PAGE, answered, await_none, replicas};
use crate::web_pages::{admin, get};
use crate::web_server::WEB_SERVER;

/// Applies a service `web` of these groups, with these lines; what the command says.
fn apply_groups(cluster: &Cluster, port: u16, lines: &str, groups: &str) -> String {
    let text = format!("type: service\nname: web\nport: {port}\n{lines}\ngroups:\n{groups}");
    cluster.write("web.dstack.yml", &text);
    cluster.sluice(&["apply", "-f", "web.dstack.yml", "-y", "-d"]).ok()
}

/// Applies a service of two groups, of which the second has two CPUs for each replica; what the command says.
fn apply(cluster: &Cluster, port: u16, second: u32, lines: &str) -> String {
    cluster.write("serve.py", WEB_SERVER);
    let group = |name: &str, replicas: u32, cpus: u32| {
        format!(
            "- name: {name}\n  replicas: {replicas}\n  commands: ['exec python3 serve.py {port}']\n  \
             resources: {{cpu: {cpus}, memory: 64MB.., disk: 0GB..}}\n"
        )
    };
    let groups = group("small", 1, 1) + &group("large", second, 2);
    apply_groups(cluster, port, lines, &groups)
}

#[test]
fn up_groups_of_replicas_answer_at_one_address_and_are_updated_and_stopped_together() {
    let cluster = Cluster::up(TWO_NODES);
    let token = admin(&cluster);
    let said = apply(&cluster, free_port(), 2, "");
    assert!(said.contains("service (2 groups)") && said.contains("Group large"), "{said}");
    until("all replicas run", || (replicas(&cluster).len() == 3).then_some(()));
    let cpus = cluster.sluice(&["squeue", "-h", "-n", "web", "-t", "R", "-o", "%C"]).ok();
    let mut cpus: Vec<&str> = cpus.split_whitespace().collect();
    cpus.sort_unstable();
    assert_eq!(cpus, ["1", "2", "2"]);
    answered(&cluster, PAGE, &[&token]);
    let port = free_port();
    let said = apply(&cluster, port, 1, "env: [A=b]");
    assert!(said.contains("replaced once the new replicas are ready"), "{said}");
    until("the first deployment is gone", || {
        let answer = get(&cluster, PAGE, &[&token]);
        assert_eq!(answer.status, 200, "{}", answer.text());
        (replicas(&cluster).len() == 2).then_some(())
    });
    let again = apply(&cluster, port, 1, "env: [A=b]");
    assert!(again.contains("Detected no changes"), "{again}");
    cluster.sluice(&["stop", "-y", "web"]).ok();
    await_none(&cluster);
}

/// A server that is a router and its workers: on this machine all of them share one port, so what the router knows is in a file.
const ROUTER: &str = r#"
import fcntl, http.server, json, os, socket, sys
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def log_message(self, *args): pass
    def say(self, status, text):
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())
    def workers(self, change=None):
        with open("workers.json", "a+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.seek(0)
            known = json.loads(file.read() or "[]")
            if change is not None:
                known = change(known)
                file.seek(0)
                file.truncate()
                file.write(json.dumps(known))
            return known
    def do_GET(self):
        if self.path == "/workers":
            self.say(200, json.dumps({"workers": self.workers()}))
        elif self.path == "/server_info":
            self.say(200, json.dumps({"disaggregation_mode": "decode"}))
        else:
            self.say(200, "routed\n")
    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        asked["id"] = "one"
        self.workers(lambda known: known + [asked])
        self.say(202, "{}")
    def do_DELETE(self):
        gone = self.path.rsplit("/", 1)[1]
        self.workers(lambda known: [one for one in known if one["id"] != gone])
        self.say(200, "{}")
class Server(http.server.ThreadingHTTPServer):
    def server_bind(self):
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        super().server_bind()
Server(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"#;

#[test]
fn up_router_of_a_service_is_told_its_workers_and_gets_all_requests() {
    let cluster = Cluster::up(TWO_NODES);
    let (token, port) = (admin(&cluster), free_port());
    cluster.write("router.py", ROUTER);
    let group = |more: &str| {
        format!(
            "- {{replicas: 1, commands: ['exec python3 router.py {port}'], \
             resources: {{cpu: 1, memory: 64MB.., disk: 0GB..}}{more}}}\n"
        )
    };
    let groups = group(", router: {type: sglang}") + &group("");
    apply_groups(&cluster, port, "", &groups);
    let page = answered(&cluster, PAGE, &[&token]);
    assert_eq!(page.text(), "routed\n");
    let file = cluster.path("work").join("workers.json");
    let known = || {
        let text = std::fs::read_to_string(&file).unwrap_or_default();
        serde_json::from_str::<serde_json::Value>(&text).unwrap_or_default()
    };
    let told = known();
    assert_eq!(told.as_array().map(Vec::len), Some(1), "{told}");
    assert_eq!(told[0]["worker_type"], "decode", "{told}");
    let url = told[0]["url"].as_str().unwrap_or_default();
    assert!(url.starts_with("http://") && url.ends_with(&format!(":{port}")), "{told}");
    // The worker is the last of the replicas: its group is the second.
    let worker = replicas(&cluster).into_iter().max().expect("a worker");
    cluster.sluice(&["scancel", &worker]).ok();
    until("the router has no worker", || {
        known().as_array().is_some_and(Vec::is_empty).then_some(())
    });
    let answer = until("no request reaches a router without workers", || {
        Some(get(&cluster, PAGE, &[&token])).filter(|answer| answer.status == 503)
    });
    assert_eq!(answer.text().lines().count(), 1, "{}", answer.text());
}

#[test]
fn up_workers_that_find_their_router_themselves_start_after_it_and_have_its_address() {
    let cluster = Cluster::up(TWO_NODES);
    let (token, port) = (admin(&cluster), free_port());
    cluster.write("serve.py", WEB_SERVER);
    let group = |command: &str, more: &str| {
        format!(
            "- {{replicas: 1, commands: ['{command}exec python3 serve.py {port}'], \
             resources: {{cpu: 1, memory: 64MB.., disk: 0GB..}}{more}}}\n"
        )
    };
    let groups = group("while [ ! -e go ]; do sleep 0.1; done; ", ", router: {type: dynamo}")
        + &group("echo $DSTACK_ROUTER_INTERNAL_IP > router.address; ", "");
    apply_groups(&cluster, port, "", &groups);
    until("the router runs", || (replicas(&cluster).len() == 1).then_some(()));
    let waiting = cluster.sluice(&["squeue", "-h", "-n", "web", "-t", "PD", "-o", "%i"]).ok();
    assert_eq!(waiting.lines().count(), 1, "the worker waits: {waiting}");
    cluster.write("go", "");
    answered(&cluster, PAGE, &[&token]);
    let address = cluster.read("router.address");
    assert!(!address.trim().is_empty(), "{address:?}");
    assert_eq!(replicas(&cluster).len(), 2);
}
