//! Services through the server's proxy: replicas answer at one address, for members of the project or for everybody, also after one
//! of them is gone.

use crate::event_stream;
use crate::harness::ssh_client::free_port;
use crate::harness::{Cluster, CommandOutput, TWO_NODES, until, within};
use crate::web_pages::{Answer, address, admin, clients_address, get, send, send_to};
use crate::web_server::WEB_SERVER;
use crate::websocket;
use bytes::Bytes;
use http_body_util::Empty;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::time::Duration;

/// Where the service `web` answers.
pub const PAGE: &str = "/proxy/services/main/web/";

/// A cluster with a service `web` of these lines that answers, and the administrator's token for it.
pub fn serving(lines: &str) -> (Cluster, String) {
    let cluster = Cluster::up(TWO_NODES);
    let token = serve(&cluster, lines);
    (cluster, token)
}

/// Applies a service `web` with these lines and waits until it answers; the administrator's token for it.
pub fn serve(cluster: &Cluster, lines: &str) -> String {
    let token = admin(cluster);
    apply(cluster, free_port(), lines);
    answered(cluster, PAGE, &[&token]);
    token
}

/// Applies a service `web` with these lines, whose replicas are the web server; what the command says.
pub fn apply(cluster: &Cluster, port: u16, lines: &str) -> String {
    apply_server(cluster, "web", port, lines)
}

/// The same for a service of another name.
pub fn apply_server(cluster: &Cluster, name: &str, port: u16, lines: &str) -> String {
    try_apply_server(cluster, name, port, lines).ok()
}

/// The same where it may be refused.
pub fn try_apply_server(cluster: &Cluster, name: &str, port: u16, lines: &str) -> CommandOutput {
    cluster.write("serve.py", WEB_SERVER);
    let lines = format!("commands: ['exec python3 serve.py {port}']\n{lines}");
    try_apply_lines(cluster, name, port, &lines)
}

/// Applies a service that these lines say, with a request for little; what the command says.
pub fn apply_lines(cluster: &Cluster, name: &str, port: u16, lines: &str) -> String {
    try_apply_lines(cluster, name, port, lines).ok()
}

fn try_apply_lines(cluster: &Cluster, name: &str, port: u16, lines: &str) -> CommandOutput {
    let text = format!(
        "type: service\nname: {name}\nport: {port}\n\
         resources: {{cpu: 1, memory: 64MB.., disk: 0GB..}}\n{lines}\n"
    );
    let file = format!("{name}.dstack.yml");
    cluster.write(&file, &text);
    cluster.sluice(&["apply", "-f", &file, "-y", "-d"])
}

/// The first answer of a replica.
pub fn answered(cluster: &Cluster, path: &str, headers: &[&str]) -> Answer {
    until("the service answers", || {
        Some(get(cluster, path, headers)).filter(|answer| answer.status == 200)
    })
}

pub fn replicas(cluster: &Cluster) -> Vec<String> {
    let listed = cluster.sluice(&["squeue", "-h", "-n", "web", "-t", "R", "-o", "%i"]).ok();
    listed.lines().map(|line| line.trim().to_owned()).collect()
}

/// Waits until nothing of the service `web` is in the queue.
pub fn await_none(cluster: &Cluster) {
    until("the service is gone", || {
        let left = cluster.sluice(&["squeue", "-h", "-n", "web", "-o", "%i"]).ok();
        left.trim().is_empty().then_some(())
    });
}

#[test]
fn up_service_answers_members_of_its_project_by_any_replica() {
    let cluster = Cluster::up(TWO_NODES);
    let (token, base) = (admin(&cluster), "/proxy/services/main/web");
    let said = apply(&cluster, free_port(), "replicas: 2");
    let whole = format!("http://{}{base}/", cluster.address_of("proxy"));
    assert!(said.contains(&format!("Service web is at {whole}\n")), "{said}");
    let first = get(&cluster, &format!("{base}/"), &[&token]);
    assert_ne!(first.status, 404, "it is known once it was applied: {}", first.text());
    until("both replicas run", || (replicas(&cluster).len() == 2).then_some(()));
    let listed = cluster.sluice(&["ps", "--json"]).ok();
    let listed: serde_json::Value = serde_json::from_str(&listed).expect("JSON");
    for run in listed["runs"].as_array().expect("runs") {
        assert_eq!(run["service"]["url"], whole, "{run}");
    }
    for command in [&["ps", "-v"][..], &["run", "get", "web"], &["run", "get", "web", "--json"]] {
        let shown = cluster.sluice(command).ok();
        assert!(shown.contains(&whole), "{command:?}: {shown}");
    }
    // Who reaches the server by an address has the service below that, as by dstack's client.
    let server = format!("http://{}", cluster.address_of("listen"));
    let secret = std::fs::read_to_string(cluster.state().join("admin.token")).expect("a token");
    let mut listing = cluster.command(&["ps", "--json", "--server", &server]);
    let listed: CommandOutput =
        listing.env("SLUICE_TOKEN", secret.trim()).output().expect("the program runs").into();
    let listed = listed.ok();
    assert!(listed.contains(&format!("\"url\":\"{server}{base}/\"")), "{listed}");
    let page = answered(&cluster, &format!("{base}/a/b?c=d"), &[&token]);
    let text = page.text();
    assert_eq!(text.lines().next(), Some("/a/b?c=d"), "{text}");
    assert!(!text.contains("authorization"), "the token is not the service's to see: {text}");
    assert!(text.contains(&format!("x-forwarded-prefix: {base}/")), "{text}");
    assert!(text.contains("x-forwarded-for: 127.0.0.1\n"), "{text}");
    let forged = [
        "Connection: x-forwarded-for, x-forwarded-proto",
        "X-Forwarded-For: 192.0.2.1",
        "X-Real-IP: 192.0.2.1",
        "X-Forwarded-Proto: https",
        "X-Forwarded-Host: 192.0.2.1",
        "Forwarded: for=192.0.2.1",
        &*token,
    ];
    let text = get(&cluster, &format!("{base}/"), &forged).text();
    for line in
        ["x-forwarded-for: 127.0.0.1\n", "x-real-ip: 127.0.0.1\n", "x-forwarded-proto: http\n"]
    {
        assert!(text.contains(line), "{line}: {text}");
    }
    assert!(!text.contains("192.0.2.1"), "{text}");
    let tunnel = send(&cluster, "CONNECT", "192.0.2.1:80", &[&token], b"");
    assert_eq!((tunnel.status, tunnel.text().lines().count()), (405, 1), "{}", tunnel.text());
    let policy = page.header("content-security-policy").unwrap_or_default();
    assert!(policy.starts_with("sandbox") && !policy.contains("same-origin"), "{}", page.head);
    let bare = get(&cluster, base, &[&token]);
    assert_eq!((bare.status, bare.header("location")), (308, Some(&*format!("{base}/"))));
    let events = format!("GET {base}/events HTTP/1.1\r\n{token}");
    event_stream::assert_arrives_in_parts(&cluster, &address(&cluster), &events, "");
    let body: Vec<u8> = (0..3_000_000_u32).map(|n| (n % 251) as u8).collect();
    let echoed = send(&cluster, "POST", &format!("{base}/echo"), &[&token], &body);
    assert!(echoed.status == 200 && echoed.body() == body, "{}", echoed.status);
    for (path, header, status) in [
        (format!("{base}/"), "X: y", 401),
        (format!("{base}/"), "Authorization: Bearer nonsense", 401),
        ("/proxy/services/main/none/".to_owned(), "X: y", 401),
        ("/proxy/services/main/none/".to_owned(), &*token, 404),
    ] {
        let answer = get(&cluster, &path, &[header]);
        assert_eq!(answer.status, status, "{path} {header}: {}", answer.text());
    }
    let figures = get(&cluster, "/metrics", &[&token]).text();
    let line = "sluice_service_replicas{project=\"main\",run=\"web\"} 2";
    assert!(figures.lines().any(|have| have == line), "{line} in\n{figures}");
    assert!(figures.contains("sluice_service_request_duration_seconds_count{project=\"main\""));
    // A replica that is gone takes no request with it.
    let gone = replicas(&cluster).remove(0);
    cluster.sluice(&["scancel", &gone]).ok();
    until("one replica is left", || (replicas(&cluster).len() == 1).then_some(()));
    // Both have the same port of this machine: while the one ends, the kernel may still give it what is for the other.
    until("its processes are gone", || {
        let listed = cluster.sluice(&["squeue", "-h", "-j", &gone, "-t", "R,CG"]).stdout;
        listed.is_empty().then_some(())
    });
    for n in 0..20 {
        let answer = get(&cluster, &format!("{base}/{n}"), &[&token]);
        assert_eq!(answer.status, 200, "{n}: {}", answer.text());
    }
    cluster.sluice(&["stop", "-y", "web"]).ok();
    until("the service is gone", || {
        let answer = get(&cluster, &format!("{base}/"), &[&token]);
        (answer.status == 404).then_some(())
    });
}

#[test]
fn up_services_and_pages_of_jobs_have_another_origin_than_the_servers_own_page() {
    let (cluster, token) = serving("");
    let path = "/proxy/services/main/web/a?b=c";
    let (clients, own) = (clients_address(&cluster), address(&cluster));
    assert_ne!(clients, own);
    // What a browser sends by itself is no token: it is led to the other port, with its query.
    let host = format!("Host: {clients}");
    for path in [path, "/proxy/jobs/1/80/?sluice_link=x"] {
        let led = send_to(&clients, "GET", path, &[&host, "Cookie: sluice_session=x"], b"");
        let there = format!("http://{own}{path}");
        assert_eq!((led.status, led.header("location")), (307, Some(&*there)), "{}", led.head);
    }
    assert_eq!(send_to(&clients, "GET", path, &[&host, &token], b"").status, 200, "a program");
    let queue = send_to(&clients, "GET", "/api/web/jobs", &[&host, &token], b"").text();
    let queue: serde_json::Value = serde_json::from_str(&queue).expect("JSON");
    assert_eq!(queue["rows"][0]["service"], "/proxy/services/main/web/", "{queue}");
    // Nothing of the server's own is there.
    let host = format!("Host: {own}");
    for path in ["/", "/healthz", "/metrics", "/api/v1/call", "/api/web/session"] {
        let answer = send_to(&own, "GET", path, &[&host, &token], b"");
        assert_eq!(answer.status, 404, "{path}: {}", answer.text());
    }
}

#[test]
fn up_service_is_found_by_its_host_name() {
    let cluster = Cluster::folder(TWO_NODES);
    cluster.write_conf("sluice.toml", "[proxy]\ndomain = 'apps.test'\n");
    cluster.start();
    let token = serve(&cluster, "");
    let ask = |host: &str, headers: &[&str]| {
        let host = format!("Host: {host}");
        let headers: Vec<&str> = [host.as_str()].iter().chain(headers).copied().collect();
        send_to(&address(&cluster), "GET", "/proxy/jobs/1/80/?x=y", &headers, b"")
    };
    for host in ["web.apps.test", "WEB.main.apps.test:6823"] {
        let page = ask(host, &[&token]);
        let text = page.text();
        assert_eq!((page.status, text.lines().next()), (200, Some("/proxy/jobs/1/80/?x=y")));
        assert!(!text.contains("x-forwarded-prefix"), "{text}");
        assert_eq!(page.header("content-security-policy"), None, "its origin is its own");
        assert_eq!(ask(host, &[]).status, 401, "{host}");
    }
    let none = ask("other.apps.test", &[&token]);
    assert_eq!((none.status, none.text().lines().count()), (404, 1), "{}", none.text());
    let (path, json) = ("/api/project/main/runs/get", "Content-Type: application/json");
    let clients = clients_address(&cluster);
    let run = send_to(&clients, "POST", path, &["Host: x", &token, json], br#"{"run_name":"web"}"#);
    assert!(run.text().contains(r#""url":"https://web.apps.test/""#), "{}", run.text());
}

#[test]
fn up_requests_to_services_are_logged_where_the_site_wants_it() {
    let cluster = Cluster::folder(TWO_NODES);
    cluster.write_conf("sluice.toml", "[proxy]\naccess_log = true\n");
    cluster.start();
    let token = serve(&cluster, "");
    let path = "/proxy/services/main/web/page?key=secret";
    let page = get(&cluster, path, &[&token]);
    let file = cluster.state().join("server/access.log");
    let end = format!("\"GET /proxy/services/main/web/page\" 200 {} ", page.body().len());
    let log = until("the request is logged", || {
        get(&cluster, path, &[&token]);
        let text = std::fs::read_to_string(&file).unwrap_or_default();
        text.contains(&end).then_some(text)
    });
    let line = log.lines().find(|line| line.contains(&end)).expect("a line");
    assert!(line.contains(" 127.0.0.1 main/web ") && !log.contains("secret"), "{log}");
}

/// Asks for the page twenty times at once on one connection of HTTP/2, which must answer all.
pub fn assert_http_2(address: &str, token: &str) {
    let bearer = token.strip_prefix("Authorization: ").expect("a header").to_owned();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let answers = runtime.expect("a runtime").block_on(async {
        let stream = tokio::net::TcpStream::connect(address).await.expect("connected");
        // As many at once as the server takes, which it says with its first frame.
        let (sender, connection) = http2::Builder::new(TokioExecutor::new())
            .initial_max_send_streams(8)
            .handshake(TokioIo::new(stream))
            .await
            .expect("HTTP/2 without TLS, as on loopback");
        tokio::spawn(connection);
        let ask = |_| {
            let mut sender = sender.clone();
            let request = hyper::Request::get(format!("http://x{PAGE}"))
                .header("authorization", &bearer)
                .body(Empty::<Bytes>::new())
                .expect("a request");
            tokio::spawn(async move { sender.send_request(request).await })
        };
        let mut answers = Vec::new();
        for asked in (0..20).map(ask).collect::<Vec<_>>() {
            let answer = asked.await.expect("no panic").expect("an answer");
            answers.push((answer.status().as_u16(), answer.version()));
        }
        answers
    });
    assert_eq!(answers, [(200, hyper::Version::HTTP_2); 20]);
}

#[test]
fn up_service_speaks_http_2_to_its_clients() {
    let (cluster, token) = serving("");
    assert_http_2(&address(&cluster), &token);
}

#[test]
fn up_open_service_answers_everybody_and_speaks_websocket() {
    let cluster = Cluster::up(TWO_NODES);
    let path = "/proxy/services/main/web/socket";
    apply(&cluster, free_port(), "auth: false\nstrip_prefix: false");
    let page = answered(&cluster, path, &["Authorization: Bearer its-own"]);
    let text = page.text();
    assert_eq!(text.lines().next(), Some(path), "the whole path: {text}");
    assert!(text.contains("authorization: Bearer its-own"), "its login is its own: {text}");
    websocket::assert_open(&address(&cluster), path, &[]);
}

#[test]
fn up_service_without_a_replica_that_listens_is_unavailable_in_one_line() {
    let cluster = Cluster::up(TWO_NODES);
    let token = admin(&cluster);
    apply_lines(&cluster, "web", free_port(), "commands: [sleep 600]");
    let answer = until("the replica runs", || {
        let answer = get(&cluster, PAGE, &[&token]);
        answer.text().contains("takes connections").then_some(answer)
    });
    assert_eq!((answer.status, answer.text().lines().count()), (503, 1), "{}", answer.text());
    let long = "Content-Length: 67108865";
    let refused = get(&cluster, PAGE, &[&token, long]);
    assert_eq!(refused.status, 413, "{}", refused.text());
    let second = cluster.sluice(&["apply", "-f", "web.dstack.yml", "-y", "-d", "--json"]);
    assert!(second.stdout.contains("unchanged"), "{second:?}");
}

#[test]
fn up_replica_gets_requests_while_its_probe_succeeds() {
    let cluster = Cluster::up(TWO_NODES);
    let token = admin(&cluster);
    apply(&cluster, free_port(), "probes: [{type: http, url: /health, interval: 1s}]");
    let until_said = |part: &str| {
        until(part, || {
            let answer = get(&cluster, PAGE, &[&token]);
            answer.text().contains(part).then_some(answer)
        })
    };
    let until_shown = |sign: &str| {
        until(sign, || cluster.sluice(&["ps", "-v"]).ok().contains(sign).then_some(()));
    };
    assert_eq!(until_said("no replica of service web is ready").status, 503);
    until_shown(" × ");
    cluster.write("healthy", "");
    answered(&cluster, PAGE, &[&token]);
    until_shown(" ✓ ");
    std::fs::remove_file(cluster.path("work").join("healthy")).expect("removed");
    assert_eq!(until_said("no replica of service web is ready").status, 503);
}

#[test]
fn up_replica_gets_no_requests_before_it_answers_for_its_model() {
    let cluster = Cluster::up(TWO_NODES);
    let token = admin(&cluster);
    apply(&cluster, free_port(), "model: {name: tiny, format: openai, prefix: /loading}");
    let asked = cluster.path("work").join("asked");
    let asked = until("the replica is asked for one token", || std::fs::read(&asked).ok());
    let asked: serde_json::Value = serde_json::from_slice(&asked).expect("JSON");
    assert_eq!(asked["model"], "tiny", "{asked}");
    assert_eq!(asked["max_tokens"], 1, "{asked}");
    // Its server is up and would answer this page.
    let held = get(&cluster, PAGE, &[&token]);
    assert_eq!(held.status, 503, "{}", held.text());
    assert!(held.text().contains("no replica of service web is ready"), "{}", held.text());
    cluster.write("loaded", "");
    answered(&cluster, PAGE, &[&token]);
}

#[test]
fn up_model_of_a_service_is_asked_by_its_name() {
    let cluster = Cluster::up(TWO_NODES);
    let (token, base) = (admin(&cluster), "/proxy/models/main");
    apply(&cluster, free_port(), "model: {name: tiny, format: openai, prefix: /api}");
    let listed = get(&cluster, &format!("{base}/models"), &[&token]);
    let models: serde_json::Value = serde_json::from_str(&listed.text()).expect("JSON");
    assert_eq!((listed.status, &models["data"][0]["id"]), (200, &"tiny".into()), "{models}");
    answered(&cluster, PAGE, &[&token]);
    let ask = |model: &str, headers: &[&str]| {
        let body = format!("{{\"model\": \"{model}\", \"messages\": []}}");
        let path = format!("{base}/chat/completions");
        (send(&cluster, "POST", &path, headers, body.as_bytes()), body)
    };
    let (answer, body) = ask("tiny", &[&token]);
    assert_eq!((answer.status, answer.text()), (200, body));
    assert_eq!(answer.header("x-path"), Some("/api/chat/completions"), "{}", answer.head);
    let streamed = format!("POST {base}/chat/completions HTTP/1.1\r\n{token}");
    let body = r#"{"model": "tiny", "messages": [], "stream": true}"#;
    event_stream::assert_arrives_in_parts(&cluster, &address(&cluster), &streamed, body);
    let (none, _) = ask("other", &[&token]);
    let said: serde_json::Value = serde_json::from_str(&none.text()).expect("JSON");
    let line = said["error"]["message"].as_str().unwrap_or_default();
    assert!(none.status == 404 && line.contains("model \"other\""), "{said}");
    assert_eq!(ask("tiny", &[]).0.status, 401);
    let bad = send(&cluster, "POST", &format!("{base}/chat/completions"), &[&token], b"{}");
    assert_eq!(bad.status, 400, "{}", bad.text());
    let other = send(&cluster, "POST", &format!("{base}/v1/embeddings"), &[&token], b"{}");
    let said: serde_json::Value = serde_json::from_str(&other.text()).expect("JSON");
    assert_eq!((other.status, said["error"]["message"].is_string()), (404, true), "{said}");
    // TGI has OpenAI's API too; the end of its answers is the configuration's.
    let lines = "model: {name: ended, format: tgi, eos_token: '</s>'}";
    apply_server(&cluster, "tgi", free_port(), lines);
    answered(&cluster, "/proxy/services/main/tgi/", &[&token]);
    let (answer, _) = ask("ended", &[&token]);
    let sent: serde_json::Value = serde_json::from_str(&answer.text()).expect("JSON");
    let expected = serde_json::json!({"model": "ended", "messages": [], "stop": ["</s>"]});
    assert_eq!((answer.status, sent), (200, expected));
    assert_eq!(answer.header("x-path"), Some("/v1/chat/completions"), "{}", answer.head);
    // A name that another service claims, and a template that TGI would not be given.
    for (lines, why) in [
        ("model: tiny", "service web of main has model tiny"),
        ("model: {name: m, format: tgi, chat_template: x}", "`model.chat_template`: is not"),
    ] {
        let refused = try_apply_server(&cluster, "second", free_port(), lines);
        assert!(refused.code != 0 && refused.stderr.contains(why), "{lines}: {}", refused.stderr);
    }
    assert_eq!(cluster.sluice(&["squeue", "-h", "-n", "second", "-t", "all"]).ok(), "");
}

#[test]
fn up_client_beyond_a_rate_limit_is_refused() {
    // A request in a minute, and one more ahead of it.
    let (cluster, token) = serving("rate_limits: [{prefix: /slow, rps: 0.0167, burst: 1}]");
    let status = |page: &str| get(&cluster, &format!("{PAGE}{page}"), &[&token]).status;
    let statuses: Vec<u16> = (0..4).map(|_| status("slow")).collect();
    assert_eq!(statuses, [200, 200, 429, 429]);
    assert_eq!(status("other"), 200);
}

#[test]
fn up_job_of_sbatch_is_a_service_by_its_name() {
    let cluster = Cluster::up(TWO_NODES);
    let (token, port) = (admin(&cluster), free_port());
    cluster.write("serve.py", WEB_SERVER);
    let line = format!(
        "sbatch --service={port} -J web -a 0-1 -o /dev/null --wrap 'exec python3 serve.py {port}'"
    );
    cluster.shell(&line).ok();
    let page = answered(&cluster, "/proxy/services/main/web/x", &[&token]);
    assert_eq!(page.text().lines().next(), Some("/x"), "{}", page.text());
    let second = cluster.shell(&line);
    assert!(second.code != 0 && second.stderr.contains("has a service web"), "{second:?}");
    let bad = cluster.shell("sbatch --service=0 --wrap true");
    assert!(bad.code != 0 && bad.stderr.contains("expected a port from 1 to 65535"), "{bad:?}");
}

#[test]
fn up_service_is_scaled_from_none_to_none_by_its_requests() {
    let cluster = Cluster::up(TWO_NODES);
    let token = admin(&cluster);
    let scaling = "replicas: 0..2\n\
        scaling: {metric: rps, target: 1000, window: 30s, scale_up_delay: 1s, scale_down_delay: 1s}";
    apply(&cluster, free_port(), scaling);
    let held = cluster.sluice(&["squeue", "-h", "-n", "web", "-o", "%i %t"]).ok();
    assert!(held.contains("PD") && replicas(&cluster).is_empty(), "{held}");
    // The request waits for the first replica.
    let answer = get(&cluster, PAGE, &[&token]);
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(replicas(&cluster).len(), 1, "no more than its load needs");
    // The window of 30 s must have passed without a request.
    within(Duration::from_secs(120), "no replica is left", || {
        replicas(&cluster).is_empty().then_some(())
    });
    assert_eq!(get(&cluster, PAGE, &[&token]).status, 200, "and it comes back");
}
