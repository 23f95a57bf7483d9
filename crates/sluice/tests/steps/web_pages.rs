//! Web pages of jobs through the server's proxy: by a token, by a link for a browser, with websockets; nobody else's, and nothing
//! else's. JupyterLab from PyPI where it is installed.

use crate::harness::{Cluster, TWO_NODES, program, skip, until};
use crate::web_server::WEB_SERVER;
use crate::websocket;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::Command;

pub struct Answer {
    pub status: u16,
    pub head: String,
    body: Vec<u8>,
}

impl Answer {
    pub fn body(&self) -> &[u8] {
        &self.body
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        let line = self.head.lines().find(|line| {
            line.split(':').next().is_some_and(|word| word.eq_ignore_ascii_case(name))
        })?;
        Some(line.split_once(':')?.1.trim())
    }
}

/// Where services and web pages of jobs are.
pub fn address(cluster: &Cluster) -> String {
    cluster.address_of("proxy")
}

/// Where everything else is.
pub fn clients_address(cluster: &Cluster) -> String {
    cluster.address_of("listen")
}

pub fn admin(cluster: &Cluster) -> String {
    let token = std::fs::read_to_string(cluster.state().join("admin.token")).expect("a token");
    format!("Authorization: Bearer {}", token.trim())
}

/// A new token of a user, with further options.
pub fn token_of(cluster: &Cluster, user: &str, options: &[&str]) -> String {
    let args: Vec<&str> = ["token", "user", user].iter().chain(options).copied().collect();
    let said = cluster.sluice(&args).ok();
    said.lines().find(|line| !line.trim().is_empty()).expect("a token").trim().to_owned()
}

/// One request on a connection of its own, to the port that its path is at.
pub fn send(cluster: &Cluster, method: &str, path: &str, headers: &[&str], body: &[u8]) -> Answer {
    let is_proxied = path.starts_with("/proxy/");
    let address = if is_proxied { address(cluster) } else { clients_address(cluster) };
    let host = format!("Host: {address}");
    let headers: Vec<&str> = [host.as_str()].iter().chain(headers).copied().collect();
    send_to(&address, method, path, &headers, body)
}

/// One request on a connection of its own; the headers name its host.
pub fn send_to(address: &str, method: &str, path: &str, headers: &[&str], body: &[u8]) -> Answer {
    let mut stream = TcpStream::connect(address).expect("the server");
    let mut head = format!("{method} {path} HTTP/1.1\r\nConnection: close\r\n");
    for header in headers {
        head += &format!("{header}\r\n");
    }
    if !body.is_empty() {
        head += &format!("Content-Length: {}\r\n", body.len());
    }
    stream.write_all(format!("{head}\r\n").as_bytes()).expect("sent");
    let mut writer = stream.try_clone().expect("a second handle");
    let body = body.to_vec();
    let sent = std::thread::spawn(move || writer.write_all(&body));
    let mut all = Vec::new();
    stream.read_to_end(&mut all).expect("an answer");
    let _ = sent.join().expect("the writer");
    let end = all.windows(4).position(|part| part == b"\r\n\r\n").expect("a head");
    let head = String::from_utf8_lossy(&all[..end]).into_owned();
    let status = head.split(' ').nth(1).and_then(|code| code.parse().ok()).expect("a status");
    Answer { status, head, body: all[end + 4..].to_vec() }
}

pub fn get(cluster: &Cluster, path: &str, headers: &[&str]) -> Answer {
    send(cluster, "GET", path, headers, b"")
}

/// Starts the server in a job; the job and its port.
fn start(cluster: &Cluster, options: &str) -> (u32, u16) {
    cluster.write("server.py", WEB_SERVER);
    let line = format!("sbatch --parsable -o server.out {options} --wrap 'exec python3 server.py'");
    let job = cluster.shell(&line).ok().trim().parse().expect("a job id");
    let port = cluster.await_file("port", |text| !text.is_empty());
    (job, port.trim().parse().expect("a port"))
}

#[test]
fn up_web_page_of_a_job_is_passed_on_with_a_token() {
    let cluster = Cluster::up(TWO_NODES);
    let (job, port) = start(&cluster, "");
    let (token, base) = (admin(&cluster), format!("/proxy/jobs/{job}/{port}"));
    let page = get(&cluster, &format!("{base}/a/b?c=d"), &[&token]);
    let text = page.text();
    assert_eq!((page.status, text.lines().next()), (200, Some("/a/b?c=d")), "{text}");
    assert!(!text.contains("authorization"), "the token is not the job's to see: {text}");
    assert!(text.contains(&format!("x-forwarded-prefix: {base}/")), "{text}");
    assert_eq!(page.header("set-cookie"), Some(&*format!("own=1; Path={base}/")));
    let whole = format!("/proxy/whole/{job}/{port}/lab");
    assert_eq!(get(&cluster, &whole, &[&token]).text().lines().next(), Some(&*whole));
    let away = get(&cluster, &format!("{base}/away"), &[&token]);
    assert_eq!((away.status, away.header("location")), (302, Some(&*format!("{base}/there"))));
    let bare = get(&cluster, &base, &[&token]);
    assert_eq!((bare.status, bare.header("location")), (308, Some(&*format!("{base}/"))));
    // A long body streams both ways.
    let body: Vec<u8> = (0..3_000_000_u32).map(|n| (n % 251) as u8).collect();
    let echoed = send(&cluster, "POST", &format!("{base}/echo"), &[&token], &body);
    assert!(echoed.status == 200 && echoed.body == body, "{} {}", echoed.status, echoed.body.len());
    // Nobody without a token, no port that nobody listens at, no other host, no job that is none.
    for (path, header, status) in [
        (format!("{base}/"), "X: y", 401),
        (format!("{base}/"), "Authorization: Bearer nonsense", 401),
        (format!("/proxy/jobs/{job}/1/"), &*token, 502),
        (format!("/proxy/jobs/{job}/localhost:{port}/"), &*token, 404),
        (format!("/proxy/jobs/9999/{port}/"), &*token, 404),
        (format!("/proxy/jobs/{job}.7/{port}/"), &*token, 502),
    ] {
        let answer = get(&cluster, &path, &[header]);
        assert_eq!(answer.status, status, "{path} {header}: {}", answer.text());
    }
    cluster.sluice(&["scancel", &job.to_string()]).ok();
    cluster.await_end(job);
    assert_eq!(get(&cluster, &format!("{base}/"), &[&token]).status, 404);
}

#[test]
fn up_link_lets_a_browser_in_once_and_leaves_no_secret_in_the_address() {
    let cluster = Cluster::up(TWO_NODES);
    let (job, port) = start(&cluster, "");
    let link = cluster.sluice(&["port", &job.to_string(), &port.to_string(), "--web"]).ok();
    let path = link.trim().strip_prefix(&format!("http://{}", address(&cluster))).expect("a link");
    let opened = get(&cluster, path, &[]);
    let base = format!("/proxy/jobs/{job}/{port}/");
    assert_eq!((opened.status, opened.header("location")), (303, Some(&*base)), "{}", opened.head);
    let cookie = opened.header("set-cookie").expect("a cookie").to_owned();
    for word in ["HttpOnly", "SameSite=Lax", &format!("Path={base}")] {
        assert!(cookie.contains(word), "{cookie}");
    }
    assert_eq!(get(&cluster, path, &[]).status, 403, "a link is good once");
    let cookie = format!("Cookie: own=1; {}", cookie.split(';').next().expect("a pair"));
    let page = get(&cluster, &format!("{base}lab"), &[&cookie]);
    assert!(page.status == 200 && page.text().starts_with("/lab\n"), "{}", page.text());
    assert!(!page.text().contains("sluice_proxy"), "the cookie is not the job's to see");
    // It opens this port of this job alone, and not from pages of others.
    assert_eq!(get(&cluster, &format!("/proxy/jobs/{job}/1/"), &[&cookie]).status, 401);
    assert_eq!(get(&cluster, &format!("/proxy/jobs/{}/{port}/", job + 1), &[&cookie]).status, 401);
    assert_eq!(get(&cluster, &base, &[&cookie, "Origin: http://evil.example"]).status, 403);
    let own = format!("Origin: http://{}", address(&cluster));
    assert_eq!(get(&cluster, &base, &[&cookie, &own]).status, 200);
    // Another port of the same host is another server; a person may follow a link from there.
    let from_port = "Sec-Fetch-Site: same-site";
    assert_eq!(get(&cluster, &base, &[&cookie, from_port]).status, 403);
    assert_eq!(get(&cluster, &base, &[&cookie, from_port, "Sec-Fetch-Mode: navigate"]).status, 200);
    // Another protocol on the same connection, as a websocket is.
    websocket::assert_open(&address(&cluster), &format!("{base}socket"), &[&cookie]);
    let none = cluster.sluice(&["port", "9999", "80", "--web"]);
    assert!(none.code != 0 && none.stderr.lines().count() == 1, "{none:?}");
}

#[test]
fn root_web_page_of_another_users_job_is_refused() {
    let cluster = Cluster::up(TWO_NODES);
    let (job, port) = start(&cluster, "");
    let token = format!("Authorization: Bearer {}", token_of(&cluster, "games", &[]));
    let refused = get(&cluster, &format!("/proxy/jobs/{job}/{port}/"), &[&token]);
    assert!(matches!(refused.status, 403 | 404), "{} {}", refused.status, refused.text());
    assert!(!refused.text().contains("x-forwarded-prefix"), "{}", refused.text());
    let refused = cluster.shell_as("games", &format!("{} port {job} {port} --web", program()));
    assert!(refused.code != 0 && refused.stderr.contains("access denied"), "{refused:?}");
}

#[test]
fn root_browser_shows_pages_of_one_user_and_none_after_a_token_of_his_has_ended() {
    let cluster = Cluster::up(TWO_NODES);
    let (job, port) = start(&cluster, "");
    let path = |link: &str| {
        let server = format!("http://{}", address(&cluster));
        link.trim().strip_prefix(&server).expect("a link").to_owned()
    };
    let link = cluster.sluice(&["port", &job.to_string(), &port.to_string(), "--web"]).ok();
    let opened = get(&cluster, &path(&link), &[]);
    let cookie = |name: &str| {
        let mut words = opened.head.split([' ', ';']);
        let pair = words.find(|word| word.starts_with(name)).expect("a cookie");
        format!("Cookie: {pair}")
    };
    let other = cluster.submit_as("games", "-o /dev/null --wrap 'sleep 600'");
    cluster.await_state(other, "RUNNING");
    let link = cluster.shell_as("games", &format!("{} port {other} 80 --web", program())).ok();
    let refused = get(&cluster, &path(&link), &[&cookie("sluice_browser=")]);
    assert_eq!(refused.status, 403);
    assert!(refused.text().contains("another user"), "{}", refused.text());
    let link = cluster.shell_as("games", &format!("{} port {other} 80 --web", program())).ok();
    assert_eq!(get(&cluster, &path(&link), &[]).status, 303, "in another browser");
    // Root may see that page too, and not beside its own: its scripts would reach them.
    let by_root = || cluster.sluice(&["port", &other.to_string(), "80", "--web"]).ok();
    assert_eq!(get(&cluster, &path(&by_root()), &[&cookie("sluice_browser=")]).status, 403);
    assert_eq!(get(&cluster, &path(&by_root()), &[]).status, 303, "in another browser");
    let (page, own) = (format!("/proxy/jobs/{job}/{port}/"), cookie("sluice_proxy="));
    assert_eq!(get(&cluster, &page, &[&own]).status, 200);
    cluster.sluice(&["token", "user", "root", "--name", "leaked"]).ok();
    cluster.sluice(&["token", "revoke", "leaked", "--user", "root"]).ok();
    assert_eq!(get(&cluster, &page, &[&own]).status, 401);
}

/// Starts a kernel and computes in it over its websocket, as the page of JupyterLab does.
const JUPYTER_CLIENT: &str = r#"
import json, sys, urllib.request, uuid, websocket
base, cookie = sys.argv[1:3]
headers = {"Cookie": cookie, "Authorization": "token abc", "Content-Type": "application/json"}
page = urllib.request.urlopen(urllib.request.Request(base + "lab", headers=headers)).read().decode()
assert "JupyterLab" in page, page[:300]
ask = urllib.request.Request(base + "api/kernels", data=b"{}", headers=headers, method="POST")
kernel = json.load(urllib.request.urlopen(ask))["id"]
socket = websocket.create_connection(
    base.replace("http", "ws", 1) + f"api/kernels/{kernel}/channels", header=[f"{k}: {v}" for k, v in headers.items()])
head = {"msg_id": uuid.uuid4().hex, "username": "", "session": uuid.uuid4().hex, "msg_type": "execute_request", "version": "5.3"}
socket.send(json.dumps({"header": head, "parent_header": {}, "metadata": {}, "channel": "shell",
    "content": {"code": "6 * 7", "silent": False, "store_history": False, "user_expressions": {}, "allow_stdin": False}}))
while True:
    message = json.loads(socket.recv())
    if message["msg_type"] == "execute_result":
        print(message["content"]["data"]["text/plain"])
        break
"#;

#[test]
fn up_dev_environment_with_jupyterlab_is_used_in_a_browser() {
    let environment = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/clients/jupyterlab-4.6.6");
    let python = PathBuf::from(environment).join("bin/python");
    if !python.exists() {
        return skip("jupyterlab", "scripts/jupyterlab has not installed it");
    }
    let python = python.canonicalize().map(|_| python).expect("a path");
    let cluster = Cluster::up(TWO_NODES);
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    drop(listener);
    let start = format!(
        "{} -m jupyterlab --no-browser --allow-root --ip 127.0.0.1 --port {port} --IdentityProvider.token=abc \
         --ServerApp.base_url=/proxy/whole/$SLURM_JOB_ID/{port}/ --ServerApp.root_dir=$PWD > lab.out 2>&1 &",
        python.display()
    );
    cluster.write(
        "desk.dstack.yml",
        &format!(
            "type: dev-environment\nname: desk\nide: vscode\nports: [{port}]\ninit:\n  - {start}\n\
             resources: {{cpu: 1.., memory: 1GB.., disk: 0GB..}}\n"
        ),
    );
    cluster.sluice(&["apply", "-f", "desk.dstack.yml", "-y", "-d"]).ok();
    let job = until("the run has a number", || {
        let said = cluster.sluice(&["squeue", "-h", "-n", "desk", "-t", "R", "-o", "%A"]).stdout;
        said.trim().parse::<u32>().ok()
    });
    cluster.await_file("lab.out", |text| text.contains("is running at"));
    let link = cluster.sluice(&["port", "desk", &port.to_string(), "--web", "--whole-path"]).ok();
    let base = format!("http://{}", address(&cluster));
    let opened = get(&cluster, link.trim().strip_prefix(&base).expect("a link"), &[]);
    let place = format!("/proxy/whole/{job}/{port}/");
    assert_eq!((opened.status, opened.header("location")), (303, Some(&*place)), "{}", opened.head);
    let cookie = opened.header("set-cookie").and_then(|line| line.split(';').next());
    let client = cluster.write("client.py", JUPYTER_CLIENT);
    let mut command = Command::new(&python);
    command.arg(client).arg(format!("{base}{place}")).arg(cookie.expect("a cookie"));
    let said = command.output().expect("the client runs");
    let (out, errors) =
        (String::from_utf8_lossy(&said.stdout), String::from_utf8_lossy(&said.stderr));
    assert_eq!(out, "42\n", "{errors}\n{}", cluster.read("lab.out"));
}

#[test]
fn up_apply_of_a_dev_environment_prints_its_links() {
    let cluster = Cluster::up(TWO_NODES);
    cluster.write(
        "desk.dstack.yml",
        "type: dev-environment\nname: desk\nide: vscode\nports: [8888]\ninit: ['true']\nworking_dir: /tmp\n\
         resources: {cpu: 1.., memory: 64MB.., disk: 0GB..}\n",
    );
    let output = cluster.path("work/apply.out");
    let line =
        format!("exec {} apply -f desk.dstack.yml -y > {} 2>&1", program(), output.display());
    let mut applied = cluster.spawn_shell(&line);
    let text = cluster.await_file("apply.out", |text| text.contains("sluice_link="));
    let job = cluster.sluice(&["squeue", "-h", "-n", "desk", "-o", "%A"]).ok();
    let job = job.trim();
    assert!(text.contains(&format!("vscode: vscode://vscode-remote/ssh-remote+{job}@")), "{text}");
    let link =
        format!("port 8888: http://{}/proxy/jobs/{job}/8888/?sluice_link=", address(&cluster));
    assert!(text.contains(&link), "{text}");
    cluster.sluice(&["stop", "desk", "-y"]).ok();
    applied.wait().expect("apply ends with its run");
}
