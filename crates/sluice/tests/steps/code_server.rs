//! code-server in a dev environment: it does not install here, so a program of its name stands for it that takes the command line
//! of docs/attach.md and no other, and serves pages as it does: they name each other relatively, and their socket is an upgrade.

use crate::harness::ssh_client::free_port;
use crate::harness::{Cluster, TWO_NODES, until};
use crate::web_pages::{address, get};
use crate::websocket;

const CODE_SERVER: &str = r#"#!/usr/bin/env python3
import http.server, sys
if len(sys.argv) != 5 or sys.argv[1] != "--bind-addr" or sys.argv[3:] != ["--auth", "none"]: sys.exit(f"wrong command line: {sys.argv}")
host, port = sys.argv[2].split(":")
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def log_message(self, *args): pass
    def say(self, status, text, headers={}):
        self.send_response(status)
        for name, value in headers.items(): self.send_header(name, value)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())
    def do_GET(self):
        path = self.path.split("?")[0]
        if self.headers.get("Upgrade") == "websocket":
            self.send_response(101)
            self.send_header("Connection", "Upgrade")
            self.send_header("Upgrade", "websocket")
            self.end_headers()
            while data := self.connection.recv(65536): self.connection.sendall(data)
            self.close_connection = True
        elif path == "/": self.say(302, "", {"Location": "./?folder=/work"}) if "?" not in self.path else self.say(200, "<script src=\"./static/workbench.js\"></script>")
        elif path == "/static/workbench.js": self.say(200, "the workbench")
        elif path == "/healthz": self.say(200, "alive")
        else: self.say(404, "no " + path)
http.server.ThreadingHTTPServer((host, int(port)), Handler).serve_forever()
"#;

#[test]
fn up_code_server_in_a_dev_environment_is_used_in_a_browser() {
    let cluster = Cluster::up(TWO_NODES);
    let port = free_port();
    let program = cluster.write("code-server", CODE_SERVER);
    let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(program, executable).expect("executable");
    let start = format!("code-server --bind-addr 127.0.0.1:{port} --auth none > code.out 2>&1 &");
    cluster.write(
        "desk.dstack.yml",
        &format!(
            "type: dev-environment\nname: desk\nide: vscode\nports: [{port}]\ninit:\n  - export PATH=$PWD:$PATH\n  - {start}\n\
             resources: {{cpu: 1.., memory: 64MB.., disk: 0GB..}}\n"
        ),
    );
    cluster.sluice(&["apply", "-f", "desk.dstack.yml", "-y", "-d"]).ok();
    let job = until("the run has a number", || {
        let said = cluster.sluice(&["squeue", "-h", "-n", "desk", "-t", "R", "-o", "%A"]).stdout;
        said.trim().parse::<u32>().ok()
    });
    let link = cluster.sluice(&["port", "desk", &port.to_string(), "--web"]).ok();
    let opened = {
        let path = link.trim().strip_prefix(&format!("http://{}", address(&cluster)));
        get(&cluster, path.expect("a link"), &[])
    };
    let base = format!("/proxy/jobs/{job}/{port}/");
    assert_eq!((opened.status, opened.header("location")), (303, Some(&*base)), "{}", opened.head);
    let cookie = opened.header("set-cookie").and_then(|line| line.split(';').next());
    let cookie = format!("Cookie: {}", cookie.expect("a cookie"));
    let page = |path: &str| get(&cluster, &format!("{base}{path}"), &[&cookie]);
    until("it serves", || (page("healthz").text() == "alive").then_some(()));
    assert_eq!(page("").header("location"), Some("./?folder=/work"), "a relative address stays");
    let first = page("?folder=/work").text();
    let script = first.split('"').nth(1).and_then(|at| at.strip_prefix("./")).expect("a script");
    assert_eq!(page(script).text(), "the workbench", "{first}");
    let (server, path) = (address(&cluster), format!("{base}stable-1?reconnectionToken=x"));
    websocket::assert_open(&server, &path, &[&format!("Origin: http://{server}"), &cookie]);
    assert_eq!(get(&cluster, &base, &[]).status, 401, "nobody without the cookie");
}
