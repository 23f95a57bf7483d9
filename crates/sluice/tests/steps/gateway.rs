//! `sluice gateway`: requests to services at an address of its own, also while the server is away.

use crate::event_stream;
use crate::harness::ssh_client::free_port;
use crate::harness::{Cluster, CommandOutput, TWO_NODES, signal, skip, until, user_name};
use crate::load::{ask, under_load};
use crate::services::{PAGE, answered, apply, assert_http_2, replicas, serve, try_apply_server};
use crate::web_pages::{address, admin, clients_address, get, send_to, token_of};
use crate::websocket;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

/// A token of this user, with further options.
fn token(cluster: &Cluster, options: &[&str]) -> String {
    token_of(cluster, &user_name(), options)
}

pub struct Gateway {
    process: Child,
    pub address: String,
    dir: PathBuf,
}

impl Gateway {
    pub fn start(cluster: &Cluster, options: &[&str]) -> Self {
        Self::start_as(cluster, "edge", options)
    }

    /// One of several, which have a name, a token and a folder each.
    fn start_as(cluster: &Cluster, name: &str, options: &[&str]) -> Self {
        let (file, dir) = (cluster.path(&format!("{name}.token")), cluster.path(name));
        if !file.exists() {
            let text = token(cluster, &["--role", "gateway", "--name", name]);
            std::fs::write(&file, text).expect("written");
        }
        let server = format!("http://{}", clients_address(cluster));
        let mut command = cluster.command(&["gateway", "--server", &server, "--name", name]);
        command.args(["--listen", "127.0.0.1:0", "--token-file"]).arg(file);
        command.arg("--dir").arg(&dir).args(options);
        let mut process = command.stdout(Stdio::piped()).spawn().expect("it runs");
        let mut line = String::new();
        let mut output = BufReader::new(process.stdout.take().expect("its output"));
        output.read_line(&mut line).expect("a line");
        let url = line.trim().strip_prefix("the gateway is up: ").expect(&line).to_owned();
        let address = url.split("//").nth(1).expect("an address").to_owned();
        Self { process, address, dir }
    }

    /// Waits until it knows where the service listens.
    pub fn await_route(&self, port: u16) {
        until("the gateway has the route", || self.has_route(port).then_some(()));
    }

    pub fn has_route(&self, port: u16) -> bool {
        self.routes().contains(&format!("\"port\":{port}"))
    }

    /// What it was told last.
    pub fn routes(&self) -> String {
        std::fs::read_to_string(self.dir.join("routes.json")).unwrap_or_default()
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        signal(self.process.id() as i32, "TERM");
        let _ = self.process.wait();
    }
}

/// A cluster whose service `web` answers, a token for it, and a gateway with these options that knows both.
fn behind_gateway(options: &[&str]) -> (Cluster, Gateway, String) {
    let cluster = Cluster::up(TWO_NODES);
    let port = free_port();
    apply(&cluster, port, "");
    answered(&cluster, PAGE, &[&admin(&cluster)]);
    let user = format!("Authorization: Bearer {}", token(&cluster, &["--name", "plain"]));
    let gateway = Gateway::start(&cluster, options);
    gateway.await_route(port);
    (cluster, gateway, user)
}

#[test]
fn up_gateway_that_cannot_be_one_is_refused_in_one_line() {
    let cluster = Cluster::up(TWO_NODES);
    let gateway = Gateway::start(&cluster, &[]);
    let server = format!("http://{}", clients_address(&cluster));
    let (file, own) = (cluster.path("edge.token"), gateway.dir.display().to_string());
    let (file, free) = (file.display().to_string(), cluster.path("free").display().to_string());
    for (options, why) in [
        (vec!["--name", "second", "--token-file", &file, "--dir", &own], "runs already"),
        (vec!["--name", "Bad name", "--token-file", &file, "--dir", &free], "\"Bad name\""),
        (vec!["--name", "second", "--dir", &free], "--token-file FILE"),
    ] {
        let mut command = cluster.command(&["gateway", "--server", &server]);
        command.args(["--listen", "127.0.0.1:0"]).args(options).env_remove("SLUICE_TOKEN");
        let refused: CommandOutput = command.output().expect("the program runs").into();
        assert!(refused.code != 0 && refused.stderr.contains(why), "{refused:?}");
        assert_eq!(refused.stderr.trim().lines().count(), 1, "{}", refused.stderr);
    }
    assert!(!cluster.path("free").exists(), "what is refused by its options makes nothing");
    until("the use of its token is listed", || {
        let listed = cluster.sluice(&["token", "list"]).ok();
        let own = listed.lines().find(|line| line.starts_with("edge "))?;
        (!own.trim_end().ends_with('-')).then_some(())
    });
}

#[test]
fn up_gateway_loses_no_request_while_the_server_is_killed_and_started_again() {
    let (cluster, gateway, user) = behind_gateway(&[]);
    under_load(&[(&*gateway.address, PAGE); 3], &user, |more| {
        cluster.kill("server");
        more(100);
        cluster.start();
        more(100);
    });
    // One that starts while the server is away has the routes of before.
    drop(gateway);
    cluster.kill("server");
    let again = Gateway::start(&cluster, &[]);
    assert_eq!(ask(&again.address, PAGE, &user), Ok(()));
    drop(again);
    cluster.start();
}

#[test]
fn up_update_of_a_service_under_load_loses_no_request_by_the_server_or_a_gateway() {
    let (cluster, gateway, user) = behind_gateway(&[]);
    // It may ask the server at first.
    let second = Gateway::start_as(&cluster, "edge2", &[]);
    let (before, server) = (replicas(&cluster), address(&cluster));
    let targets = [(&*server, PAGE), (&*gateway.address, PAGE), (&*second.address, PAGE)];
    under_load(&targets, &user, |more| {
        apply(&cluster, free_port(), "env: [A=b]");
        until("the first replica is gone", || {
            let now = replicas(&cluster);
            (now.len() == 1 && now != before).then_some(())
        });
        more(100);
    });
}

#[test]
fn up_gateway_asks_the_server_about_tokens_and_services_that_it_does_not_know() {
    let (cluster, gateway, _) = behind_gateway(&["--access-log"]);
    let user = format!("Authorization: Bearer {}", token(&cluster, &["--name", "late"]));
    let own = std::fs::read_to_string(cluster.path("edge.token")).expect("a token");
    let own = format!("Authorization: Bearer {own}");
    let status = |path: &str, header: &str| {
        send_to(&gateway.address, "GET", path, &["Host: x", header], b"").status
    };
    assert_eq!(status(PAGE, &user), 200, "made since the gateway last asked");
    let events = format!("GET {PAGE}events HTTP/1.1\r\n{user}");
    event_stream::assert_arrives_in_parts(&cluster, &gateway.address, &events, "");
    assert_eq!(status(PAGE, "Authorization: Bearer none"), 401);
    assert_eq!(status(PAGE, "X: y"), 401);
    assert_eq!(status("/proxy/services/main/none/", &user), 404);
    for path in ["/", "/healthz", "/api/v1/call", "/proxy/jobs/1/80/"] {
        assert_eq!(status(path, &user), 404, "{path}");
    }
    let figures = send_to(&gateway.address, "GET", "/metrics", &["Host: x"], b"").text();
    let line = "sluice_service_replicas{project=\"main\",run=\"web\"} 1";
    assert!(figures.lines().any(|have| have == line), "{line} in\n{figures}");
    // The gateway's own token opens neither a service nor the server.
    assert_eq!(status(PAGE, &own), 401);
    for path in ["/metrics", "/api/v1/logs?job=1", PAGE] {
        assert_eq!(get(&cluster, path, &[&own]).status, 401, "{path}");
    }
    let log = gateway.dir.join("access.log");
    until("requests are logged", || {
        let text = std::fs::read_to_string(&log).unwrap_or_default();
        text.contains("\"GET /proxy/services/main/web/\" 200 ").then_some(())
    });
}

#[test]
fn up_gateway_speaks_http_2_and_websocket_and_follows_the_domain_of_the_site() {
    let (cluster, gateway, user) = behind_gateway(&[]);
    assert_http_2(&gateway.address, &user);
    websocket::assert_open(&gateway.address, &format!("{PAGE}socket"), &[&user]);
    let headers = ["Host: web.apps.test", &user];
    let named = || send_to(&gateway.address, "GET", "/by/name", &headers, b"");
    assert_eq!(named().status, 404, "no domain yet");
    cluster.write_conf("sluice.toml", "[proxy]\ndomain = 'apps.test'\n");
    cluster.shell("scontrol reconfigure").ok();
    let page = until("it knows the domain", || Some(named()).filter(|page| page.status == 200));
    let text = page.text();
    assert_eq!(text.lines().next(), Some("/by/name"), "{text}");
    assert!(text.contains("x-forwarded-for: 127.0.0.1\n"), "{text}");
    assert!(listed_urls(&cluster).iter().any(|url| url == "https://web.apps.test/"));
}

#[test]
fn up_services_are_told_of_the_clients_of_proxies_that_the_site_trusts() {
    let (cluster, gateway, user) = behind_gateway(&["--trusted-proxy", "127.0.0.1"]);
    // The first address is what the client itself has claimed.
    let said = ["X-Forwarded-For: 203.0.113.9, 192.0.2.7", "X-Forwarded-Proto: https"];
    let asked = |at: &str, token: &str| {
        send_to(at, "GET", PAGE, &["Host: x", said[0], said[1], token], b"")
    };
    let told = |at: &str| {
        let text = asked(at, &user).text();
        assert!(!text.contains("203.0.113.9"), "{text}");
        ["x-forwarded-for: ", "x-real-ip: ", "x-forwarded-proto: "].map(|name| {
            let mut values = text.lines().filter_map(|line| line.strip_prefix(name));
            values.next().unwrap_or_default().to_owned()
        })
    };
    let of_client = ["192.0.2.7", "192.0.2.7", "https"];
    assert_eq!(told(&gateway.address), of_client);
    let server = address(&cluster);
    assert_eq!(told(&server), ["127.0.0.1", "127.0.0.1", "http"], "nobody is trusted yet");
    assert_eq!(asked(&server, &admin(&cluster)).status, 200);
    cluster.write_conf("sluice.toml", "[proxy]\ntrusted_proxies = ['127.0.0.0/8']\n");
    cluster.shell("scontrol reconfigure").ok();
    assert_eq!(told(&server), of_client);
    // It is the server's own machine's token, and the client is not on it.
    assert_eq!(asked(&server, &admin(&cluster)).status, 401);
    assert_eq!(get(&cluster, PAGE, &[&admin(&cluster)]).status, 200);
}

/// Where `sluice ps --json` says that the deployments of the service are.
fn listed_urls(cluster: &Cluster) -> Vec<String> {
    let listed = cluster.sluice(&["ps", "--json"]).ok();
    let listed: serde_json::Value = serde_json::from_str(&listed).expect("JSON");
    let url = |run: &serde_json::Value| run["service"]["url"].as_str().map(str::to_owned);
    listed["runs"].as_array().expect("runs").iter().filter_map(url).collect()
}

#[test]
fn up_service_is_published_by_the_gateway_that_it_names_alone() {
    let cluster = Cluster::up(TWO_NODES);
    let refused = try_apply_server(&cluster, "web", free_port(), "gateway: true");
    let why = "gateway: true: no gateway runs";
    assert!(refused.code != 0 && refused.stderr.contains(why), "{}", refused.stderr);
    let [first, second] = ["edge", "edge2"].map(|name| Gateway::start_as(&cluster, name, &[]));
    let port = free_port();
    let said = until("the gateway is known", || {
        let applied = try_apply_server(&cluster, "web", port, "gateway: edge2");
        let is_unknown = applied.stderr.contains("no gateway edge2 runs");
        (!is_unknown).then(|| applied.ok())
    });
    let own = format!("http://{}{PAGE}", second.address);
    assert!(said.contains(&own), "{said}");
    assert_eq!(listed_urls(&cluster), [own]);
    let user = format!("Authorization: Bearer {}", token(&cluster, &["--name", "plain"]));
    let server = address(&cluster);
    let status = |at: &str| send_to(at, "GET", PAGE, &["Host: x", &user], b"").status;
    until("it answers at its gateway", || (status(&second.address) == 200).then_some(()));
    assert_eq!((status(&first.address), status(&server)), (404, 404));
    // Through the server, where the gateway has no replica to connect to, and by its own routes.
    second.await_route(port);
    assert_eq!((status(&second.address), status(&first.address)), (200, 404));
    apply(&cluster, free_port(), "gateway: false");
    until("the gateway gives it up", || (status(&second.address) == 404).then_some(()));
    until("it answers at the server", || (status(&server) == 200).then_some(()));
    assert_eq!(status(&first.address), 404);
    let at_the_server = format!("http://{}{PAGE}", cluster.address_of("proxy"));
    assert!(listed_urls(&cluster).contains(&at_the_server), "{:?}", listed_urls(&cluster));
    // The default gateway of its project publishes what names none, and no other does.
    let unknown = cluster.sluice(&["project", "gateway", "main", "gone"]);
    assert!(unknown.code != 0 && unknown.stderr.contains("gone"), "{}", unknown.stderr);
    cluster.sluice(&["project", "gateway", "main", "edge"]).ok();
    apply(&cluster, free_port(), "gateway: true");
    until("its project's gateway answers", || (status(&first.address) == 200).then_some(()));
    assert_eq!(status(&second.address), 404);
}

#[test]
fn up_service_without_https_is_answered_by_plain_http_and_others_are_led_to_https() {
    let cluster = Cluster::up(TWO_NODES);
    let key = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).expect("a pair");
    let file = |name: &str, text: &str| cluster.write(name, text).display().to_string();
    let certificate = file("edge.pem", &key.cert.pem());
    let private = file("edge.key", &key.signing_key.serialize_pem());
    let http = format!("127.0.0.1:{}", free_port());
    let options = ["--certificate", &certificate, "--key", &private, "--http", &http];
    let secure = Gateway::start(&cluster, &options);
    let _bare = Gateway::start_as(&cluster, "bare", &[]);
    let refused = until("the gateway is known", || {
        let lines = "gateway: bare\nhttps: true";
        let refused = try_apply_server(&cluster, "web", free_port(), lines);
        assert_ne!(refused.code, 0, "{}", refused.stdout);
        (!refused.stderr.contains("no gateway bare runs")).then_some(refused.stderr)
    });
    assert!(refused.contains("gateway bare has neither --certificate nor --acme"), "{refused}");
    let said = until("the other gateway is known", || {
        let applied = try_apply_server(&cluster, "web", free_port(), "gateway: edge\nhttps: false");
        (!applied.stderr.contains("no gateway edge runs")).then(|| applied.ok())
    });
    assert!(said.contains(&format!("http://{http}{PAGE}")), "{said}");
    let user = format!("Authorization: Bearer {}", token(&cluster, &["--name", "plain"]));
    let asked = || send_to(&http, "GET", PAGE, &["Host: x", &user], b"");
    until("it answers by plain HTTP", || (asked().status == 200).then_some(()));
    apply(&cluster, free_port(), "gateway: edge\nhttps: true");
    let led = until("it is led to HTTPS", || Some(asked()).filter(|led| led.status == 308));
    let port = secure.address.rsplit(':').next().expect("a port");
    assert_eq!(led.header("location"), Some(&*format!("https://x:{port}{PAGE}")), "{}", led.head);
}

/// Answers every question for an address with that of this machine's loopback, so that any name is this machine's.
const NAME_SERVER: &str = r#"
import socket, struct, sys
server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.bind(("127.0.0.1", int(sys.argv[1])))
while True:
    question, client = server.recvfrom(4096)
    end = 12
    while question[end]:
        end += question[end] + 1
    asked = question[12:end + 5]
    is_address = struct.unpack(">H", question[end + 1:end + 3])[0] == 1
    answer = b"\xc0\x0c" + struct.pack(">HHIH", 1, 1, 60, 4) + b"\x7f\x00\x00\x01" if is_address else b""
    head = question[:2] + b"\x81\x80" + struct.pack(">HHHH", 1, 1 if is_address else 0, 0, 0)
    server.sendto(head + asked + answer, client)
"#;

/// Asks for a page over TLS by the host name of the service, trusting whatever is shown; the page, and who issued the certificate.
const TLS_CLIENT: &str = r#"
import socket, ssl, sys
port, name, token = int(sys.argv[1]), sys.argv[2], sys.argv[3]
context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
context.check_hostname = False
context.verify_mode = ssl.CERT_NONE
with socket.create_connection(("127.0.0.1", port)) as plain, context.wrap_socket(plain, server_hostname=name) as stream:
    shown = ssl.DER_cert_to_PEM_cert(stream.getpeercert(True))
    stream.sendall(f"GET /by/name HTTP/1.1\r\nHost: {name}\r\nConnection: close\r\nAuthorization: Bearer {token}\r\n\r\n".encode())
    answer = b""
    while (part := stream.recv(65536)):
        answer += part
print(answer.split(b"\r\n")[0].decode())
print(shown)
"#;

/// Ends with the test.
struct Helper(Child);

impl Drop for Helper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// An authority of Let's Encrypt's for tests, which asks for proofs at this port; the URL of its directory.
fn pebble(cluster: &Cluster, proofs: u16) -> (Vec<Helper>, String) {
    let (directory, management, names) = (free_port(), free_port(), free_port());
    let key = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).expect("a pair");
    let certificate = cluster.write("pebble.pem", &key.cert.pem());
    let private = cluster.write("pebble.key", &key.signing_key.serialize_pem());
    let settings = serde_json::json!({"pebble": {
        "listenAddress": format!("127.0.0.1:{directory}"),
        "managementListenAddress": format!("127.0.0.1:{management}"),
        "certificate": certificate, "privateKey": private,
        "httpPort": proofs, "tlsPort": free_port(), "ocspResponderURL": "",
    }});
    let settings = cluster.write("pebble.json", &settings.to_string());
    let script = cluster.write("names.py", NAME_SERVER);
    let mut resolver = Command::new("python3");
    resolver.arg(script).arg(names.to_string());
    let mut authority = Command::new("pebble");
    authority.arg("-config").arg(settings).args(["-dnsserver", &format!("127.0.0.1:{names}")]);
    authority.env("PEBBLE_VA_NOSLEEP", "1").env("PEBBLE_WFE_NONCEREJECT", "0");
    let started = [resolver, authority].map(|mut command| {
        command.stdout(Stdio::null()).stderr(Stdio::null());
        Helper(command.spawn().expect("python3 and pebble, which scripts/install brings"))
    });
    until("the authority listens", || std::net::TcpStream::connect(("127.0.0.1", directory)).ok());
    (started.into(), format!("https://localhost:{directory}/dir"))
}

#[test]
fn up_gateway_orders_certificates_for_the_host_names_of_services() {
    let version = Command::new("pebble").arg("-version").stdout(Stdio::null()).status();
    if version.is_err() {
        return skip("pebble", "it is not installed");
    }
    let cluster = Cluster::folder(TWO_NODES);
    cluster.write_conf("sluice.toml", "[proxy]\ndomain = 'apps.test'\n");
    cluster.start();
    serve(&cluster, "");
    let proofs = free_port();
    let (_authority, directory) = pebble(&cluster, proofs);
    let authority = cluster.path("work").join("pebble.pem").display().to_string();
    let http = format!("127.0.0.1:{proofs}");
    let options =
        ["--acme", &directory, "--acme-authority", &authority, "--http", &http, "--access-log"];
    let gateway = Gateway::start(&cluster, &options);
    let issued = gateway.dir.join("acme").join("web.apps.test.pem");
    until("the certificate is issued", || issued.exists().then_some(()));
    for file in ["web.apps.test.pem", "account.json"] {
        use std::os::unix::fs::PermissionsExt;
        let file = issued.with_file_name(file);
        let mode = std::fs::metadata(&file).expect("a file").permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{}", file.display());
    }
    let user = token(&cluster, &["--name", "plain"]);
    let script = cluster.write("tls.py", TLS_CLIENT);
    let listens = gateway.address.rsplit(':').next().expect("a port");
    let mut client = Command::new("python3");
    client.arg(script).args([listens, "web.apps.test", &user]);
    let said = client.output().expect("python3 runs");
    let text = String::from_utf8_lossy(&said.stdout).into_owned();
    assert!(text.starts_with("HTTP/1.1 200"), "{text}{}", String::from_utf8_lossy(&said.stderr));
    let shown = text.split_once('\n').expect("a certificate").1.trim();
    let kept = std::fs::read_to_string(&issued).expect("a certificate");
    assert!(kept.contains(shown), "the certificate that was issued is shown:\n{shown}\n{kept}");
    // Port 80 leads to https, and proves nothing that is not asked for.
    let led = send_to(&http, "GET", "/a?b", &["Host: web.apps.test"], b"");
    let place = Some("https://web.apps.test/a?b");
    assert_eq!((led.status, led.header("location")), (308, place), "{}", led.head);
    let none = "/.well-known/acme-challenge/none";
    assert_eq!(send_to(&http, "GET", none, &["Host: web.apps.test"], b"").status, 404);
}
