//! The lines of `squeue`, rendered by the server or by the client: the same bytes.

use crate::harness::{Cluster, TWO_NODES, until};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use wire::client::{Answer, Call, Envelope, JobsQuery};
use wire::listing::{ListingOptions, ListingQuery};

/// A zone five hours behind UTC: as a rule, which has a name, and as a file, which has none.
const RULE: &str = "XST5";

fn zone_file(cluster: &Cluster) -> String {
    let counts = [0, 0, 0, 0, 1, 4_u32].map(u32::to_be_bytes).concat();
    let one = [&(-18_000_i32).to_be_bytes()[..], &[0, 0], b"XST\0"].concat();
    let data = [b"TZif".as_slice(), &[0; 16], &counts, &one].concat();
    let path = cluster.path("work").join("zone");
    std::fs::write(&path, data).unwrap();
    path.display().to_string()
}

fn squeue(cluster: &Cluster, zone: &str, args: &[&str]) -> String {
    let mut command = cluster.command(&[&["squeue"], args].concat());
    crate::harness::CommandOutput::from(command.env("TZ", zone).output().unwrap()).ok()
}

/// The head and the body of the server's response to this request.
fn ask(cluster: &Cluster, options: ListingOptions, zone: &str) -> (String, Vec<u8>) {
    let lines = Some(Box::new(ListingQuery { options, zone: zone.into() }));
    let call = Call::Jobs(JobsQuery { lines, ..JobsQuery::default() });
    let envelope = Envelope::new(call);
    let body = serde_json::to_vec(&envelope).unwrap();
    let mut stream = UnixStream::connect(cluster.state().join("sluice.sock")).unwrap();
    write!(
        stream,
        "POST /api/v1/call HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
        body.len()
    )
    .unwrap();
    stream.write_all(&body).unwrap();
    let mut said = Vec::new();
    stream.read_to_end(&mut said).unwrap();
    let at = said.windows(4).position(|four| four == b"\r\n\r\n").unwrap() + 4;
    let body = said.split_off(at);
    (String::from_utf8(said).unwrap().to_lowercase(), body)
}

fn queue() -> Cluster {
    let cluster = Cluster::up(TWO_NODES);
    for name in ["zeta", "alpha", "a-name-that-is-cut", "mü"] {
        cluster.submit(&["-H", "-J", name, "--comment", name, "--wrap", "true"]);
    }
    cluster.submit(&["-H", "-a", "1-7%2", "-p", "debug", "--nice=3", "--wrap", "true"]);
    let running = cluster.submit(&["-o", "/dev/null", "--wrap", "sleep 600"]);
    cluster.await_state(running, "RUNNING");
    cluster
}

#[test]
fn up_server_and_client_render_the_same_squeue_lines() {
    let cluster = queue();
    let file = zone_file(&cluster);
    let letters: Vec<String> =
        ('A'..='Z').chain('a'..='z').map(|letter| format!("%{letter}|")).collect();
    let all = letters.concat();
    let table: &[&[&str]] = &[
        &[],
        &["-l"],
        &["-h", "-r"],
        &["-P", "-o", "%i %p"],
        &["--start"],
        &["-s"],
        &["-S", "-j,i", "-o", "%.4j<%i>"],
        &["-S", "-u,-t,j", "-O", "jobarrayid:.12,statecompact,name:3,submittime"],
        &["-a", "-t", "all", "-o", &all],
        &["-n", "zeta,alpha", "-o", "%V %j"],
        &["-u", "nobody"],
    ];
    for args in table {
        let mut last = (String::new(), String::new());
        // No column may depend on the time between the two listings.
        until(&format!("{args:?} looks the same"), || {
            last = (squeue(&cluster, RULE, args), squeue(&cluster, &file, args));
            (last.0 == last.1 && !last.0.is_empty()).then_some(())
        });
    }
    // The time zone is the client's, whoever renders the lines.
    let hour =
        |zone: &str| squeue(&cluster, zone, &["-h", "-j", "1", "-o", "%V"])[11..13].to_owned();
    let (here, there): (u32, u32) = (hour(RULE).parse().unwrap(), hour("UTC").parse().unwrap());
    assert_eq!((here + 5) % 24, there);
    assert_eq!(hour(RULE), hour(&file));
    for line in ["squeue -h -j 1 -o %V", "sacct -X -n -P -j 1 -o Submit"] {
        let text = cluster.shell(&format!("SLURM_TIME_FORMAT=%s {line}")).ok();
        let seconds = text.trim();
        assert!(seconds.len() == 10 && seconds.bytes().all(|b| b.is_ascii_digit()), "{text}");
    }
}

#[test]
fn up_the_server_sends_lines_if_it_can_and_views_otherwise() {
    let cluster = queue();
    let options = ListingOptions { format: Some("%i %j".into()), ..Default::default() };
    let (head, text) = ask(&cluster, options.clone(), RULE);
    assert!(head.contains("content-type: text/plain"), "{head}");
    let printed = squeue(&cluster, RULE, &["-o", "%i %j"]);
    assert_eq!(String::from_utf8(text).unwrap(), printed);
    assert_eq!(printed.lines().count(), 7, "{printed}");

    let jobs_in = |(head, body): (String, Vec<u8>)| {
        assert!(head.contains("content-type: application/json"), "{head}");
        match serde_json::from_slice(&body).unwrap() {
            Answer::Jobs { jobs, .. } => jobs.0.len(),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(jobs_in(ask(&cluster, options.clone(), "No/Such_Zone")), 6);
    let unsorted = ListingOptions { sort: Some("!".into()), ..options.clone() };
    assert_eq!(jobs_in(ask(&cluster, unsorted, RULE)), 6);
    // No argument of a command is this long: such a format comes from no `squeue`.
    let wide = ListingOptions { format: Some("x".repeat(12 << 20)), ..options };
    let (_, body) = ask(&cluster, wide, RULE);
    let answer = serde_json::from_slice(&body).unwrap();
    assert!(matches!(answer, Answer::Refused(_)), "{answer:?}");
}

#[test]
fn up_a_listing_too_long_for_the_server_is_rendered_by_the_client() {
    let cluster = Cluster::up(TWO_NODES);
    cluster.submit(&["-H", "-a", "0-599", "--wrap", "true"]);
    let wide = format!("%i{}", "-".repeat(120_000));
    let text = squeue(&cluster, RULE, &["-h", "-r", "-o", &wide]);
    assert!(text.len() > 64 << 20, "{}", text.len());
    let ids: Vec<&str> = text.lines().map(|line| line.trim_end_matches('-')).collect();
    assert_eq!(ids, (0..600).map(|task| format!("1_{task}")).collect::<Vec<_>>());
}

#[test]
fn up_squeue_of_an_unknown_array_task_is_empty() {
    let cluster = Cluster::up(TWO_NODES);
    let array = cluster.submit(&["-H", "-a", "0-3", "--wrap", "true"]);
    let plain = cluster.submit(&["-H", "--wrap", "true"]);
    for (job, lines) in
        [(format!("{array}_2"), 1), (format!("{array}_99"), 0), (format!("{plain}_1"), 0)]
    {
        let text = squeue(&cluster, RULE, &["-h", "-j", &job]);
        assert_eq!(text.lines().count(), lines, "{job}: {text}");
    }
    let said = cluster.sluice(&["squeue", "-h", "-j", "99999"]);
    assert_eq!((said.code, said.stdout.as_str()), (1, ""), "{said:?}");
}
