//! The tables as dstack's own client was seen to print them.

use dstack::configuration::task::Task;
use dstack::configuration::{Configuration, parse};
use dstack::offer::{Availability, Offer, OfferGpu, OfferResources};
use dstack::table::{Plan, PsRow, RunKind, ago, duration, plan, ps};
use model::amount::Bytes;
use model::time::Timestamp;
use std::time::Duration;

fn offer(blocks: u32) -> Offer {
    Offer {
        backend: "ssh (remote)".into(),
        resources: OfferResources {
            cpus: 8 * blocks,
            memory: Bytes::from_gib(64 * u64::from(blocks)),
            disk: Some(Bytes::from_gib(500)),
            gpu: Some(OfferGpu {
                name: Some("H100".into()),
                memory: Some(Bytes::from_gib(80)),
                count: blocks,
            }),
        },
        instance_type: "instance".into(),
        blocks: Some((blocks, 8)),
        price_dollars_per_hour: 0.0,
        availability: Availability::Idle,
    }
}

fn row(name: &str, blocks: u32, status: &str, secs_ago: i64) -> PsRow {
    let offer = offer(blocks);
    PsRow {
        name: name.into(),
        backend: offer.backend.clone(),
        gpu: offer.resources.gpu.as_ref().unwrap().to_string(),
        resources: offer.resources.to_string(),
        instance_type: offer.instance_text(),
        price: offer.price_text(),
        status: status.into(),
        probes: String::new(),
        submitted: ago(Timestamp::from_secs(0), Timestamp::from_secs(secs_ago)),
        error: String::new(),
        job: "12".into(),
        user: "ada".into(),
        cost: "$0.0125".into(),
        url: String::new(),
    }
}

fn task(text: &str) -> Task {
    let loaded = parse("t", text.as_bytes()).unwrap();
    let Configuration::Task(task) = loaded.configuration else { panic!("no task") };
    *task
}

/// Spaces at the ends of lines are part of the tables: `|` shows where a line ends.
fn with_ends(text: &str) -> String {
    text.lines().map(|line| format!("{line}|\n")).collect()
}

#[test]
fn ps_is_the_captured_table_with_job_and_user() {
    let rows = [
        row("sleeper", 1, "running", 15),
        row("hello", 2, "exited (0)", 130),
        row("hello", 2, "exited (1)", 10 * 60),
    ];
    insta::assert_snapshot!(with_ends(&ps(&rows, false)), @r"
     NAME     BACKEND       GPU              PRICE  STATUS      SUBMITTED    JOB  USER |
     sleeper  ssh (remote)  gpu=H100:80GB:1  $0     running     15 sec ago   12   ada  |
     hello    ssh (remote)  gpu=H100:80GB:2  $0     exited (0)  2 mins ago   12   ada  |
     hello    ssh (remote)  gpu=H100:80GB:2  $0     exited (1)  10 mins ago  12   ada  |
    ");
}

#[test]
fn verbose_ps_is_the_captured_table_with_job_and_user() {
    let toobig = PsRow {
        name: "toobig".into(),
        status: "no capacity".into(),
        submitted: "31 sec ago".into(),
        ..PsRow::default()
    };
    let rows = [toobig, row("sleeper", 1, "aborted", 120)];
    insta::assert_snapshot!(with_ends(&ps(&rows, true)), @r"
     NAME     BACKEND       RESOURCES                                  INSTANCE TYPE   PRICE  STATUS       PROBES  SUBMITTED   ERROR  JOB  USER  COST    |
     toobig                 -                                                          -      no capacity          31 sec ago                    -       |
     sleeper  ssh (remote)  cpu=8 mem=64GB disk=500GB gpu=H100:80GB:1  instance (1/8)  $0     aborted              2 mins ago         12   ada   $0.0125 |
    ");
}

#[test]
fn an_empty_ps_is_its_header() {
    let header = " NAME  BACKEND  GPU  PRICE  STATUS  SUBMITTED  JOB  USER \n";
    assert_eq!(ps(&[], false), header);
}

#[test]
fn a_cell_cannot_move_the_cursor() {
    let evil = row("a\x1b[2J\nb", 1, "running", 15);
    let text = ps(&[evil], false);
    assert!(text.contains("a\\u{1b}[2J\\nb"), "{text}");
    assert_eq!(text.lines().count(), 2);
}

#[test]
fn the_plan_is_the_captured_one() {
    let task = task("type: task\ncommands: [x]\nresources: {cpu: 'x86:2..', gpu: 'H100:2'}\n");
    let shown = plan(&Plan {
        project: "main",
        user: "admin",
        task: &task,
        kind: RunKind::Task,
        offers: &[vec![offer(2)]],
        cluster_limit: None,
    });
    insta::assert_snapshot!(with_ends(&shown), @r"
     Project        main                                          |
     User           admin                                         |
     Type           task (nodes=1)                                |
     Resources      cpu=x86:2.. mem=8GB.. disk=100GB.. gpu=H100:2 |
     Spot policy    on-demand                                     |
     Max price      off                                           |
     Retry policy   off                                           |
     Idle duration  5m                                            |
     Max duration   off                                           |
    |
     #  BACKEND       RESOURCES                                    INSTANCE TYPE   PRICE       |
     1  ssh (remote)  cpu=16 mem=128GB disk=500GB gpu=H100:80GB:2  instance (2/8)  $0     idle |
    ");
}

#[test]
fn the_plan_says_policies_and_counts_what_it_does_not_show() {
    let task = task(
        "type: task\ncommands: [x]\nmax_duration: 1h\nidle_duration: off\nmax_price: 2.5\nretry: {on_events: [no-capacity, error], duration: 2h}\n",
    );
    let view = |offers| {
        plan(&Plan {
            project: "main",
            user: "admin",
            task: &task,
            kind: RunKind::Task,
            offers: &[offers],
            cluster_limit: Some(Duration::from_secs(86_400)),
        })
    };
    let shown = view(vec![offer(1); 5]);
    for expected in [
        " Retry policy   2h[no-capacity, error] ",
        " Max duration   1h ",
        " Idle duration  off ",
        " Max price      $2.5 ",
        "Shown 3 of 5 offers",
    ] {
        assert!(shown.contains(expected), "{shown}");
    }
    let none = view(Vec::new());
    assert!(none.ends_with("\n\nNo matching instance offers available.\n"), "{none}");
}

#[test]
fn the_plan_has_the_offers_of_each_group() {
    let task = task(
        "type: task\ncommands: [x]\ngroups:\n  - {name: head, resources: {cpu: 2, gpu: 0}}\n  - {nodes: 2, resources: {cpu: 2, gpu: 'H100:2'}}\n",
    );
    let offers = &[Vec::new(), vec![offer(2)]];
    let shown = plan(&Plan {
        project: "main",
        user: "admin",
        task: &task,
        kind: RunKind::Task,
        offers,
        cluster_limit: Some(Duration::from_secs(86_400)),
    });
    assert!(shown.contains(" Max duration   1d (the cluster's limit) "), "{shown}");
    let groups = shown.lines().skip(9).collect::<Vec<_>>().join("\n");
    assert!(shown.contains(" Resources      of 2 groups, below "), "{shown}");
    insta::assert_snapshot!(with_ends(&groups), @r"
    |
     Group head  nodes=1  cpu=2 mem=8GB.. disk=100GB.. gpu=0 |
    No matching instance offers available.|
    |
     Group 1  nodes=2  cpu=2 mem=8GB.. disk=100GB.. gpu=H100:2 |
     #  BACKEND       RESOURCES                                    INSTANCE TYPE   PRICE       |
     1  ssh (remote)  cpu=16 mem=128GB disk=500GB gpu=H100:80GB:2  instance (2/8)  $0     idle |
    ");
}

#[test]
fn times_past_are_said_in_the_largest_unit() {
    const DAY: i64 = 86_400;
    let cases = [
        (-5, "now"),
        (9, "now"),
        (10, "10 sec ago"),
        (59, "59 sec ago"),
        (60, "1 min ago"),
        (120, "2 mins ago"),
        (3_600, "1 hour ago"),
        (2 * 3_600, "2 hours ago"),
        (DAY, "yesterday"),
        (3 * DAY, "3 days ago"),
        (7 * DAY, "1 week ago"),
        (20 * DAY, "2 weeks ago"),
        (40 * DAY, "1 month ago"),
        (100 * DAY, "3 months ago"),
        (800 * DAY, "2 years ago"),
    ];
    for (secs, expected) in cases {
        let now = Timestamp::from_secs(1_000_000_000);
        let then = Timestamp::from_secs(1_000_000_000 - secs);
        assert_eq!(ago(then, now), expected);
    }
}

#[test]
fn durations_are_said_in_the_largest_exact_unit() {
    let cases = [
        (0, "0s"),
        (45, "45s"),
        (300, "5m"),
        (5_400, "90m"),
        (3_600, "1h"),
        (86_400, "1d"),
        (604_800, "1w"),
    ];
    for (secs, expected) in cases {
        assert_eq!(duration(Some(Duration::from_secs(secs))), expected);
    }
    assert_eq!(duration(None), "off");
}

#[test]
fn address_of_a_service_is_a_column_of_the_long_table_where_a_run_has_one() {
    let plain = row("train", 1, "running", 60);
    let at = "http://127.0.0.1:6823/proxy/services/main/web/";
    let service = PsRow { name: "web".into(), url: at.into(), ..plain.clone() };
    assert!(!ps(std::slice::from_ref(&plain), true).contains("SERVICE"));
    let both = ps(&[plain, service], true);
    assert!(both.lines().next().is_some_and(|head| head.trim_end().ends_with("SERVICE")), "{both}");
    assert!(both.lines().any(|line| line.trim_end().ends_with(at)), "{both}");
    assert!(!ps(&[row("web", 1, "running", 60)], false).contains("SERVICE"));
}
