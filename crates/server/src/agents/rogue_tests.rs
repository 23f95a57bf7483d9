//! A node with a valid certificate that lies. It can spoil what runs on it, and nothing else.

use super::receive::{LinkReceiver, PendingReport, REPORTS_MAX};
use crate::clock;
use crate::testing::{NODE, TestServer};
use cluster::Command;
use model::container::{ContainerNetwork, PortMapping};
use model::health::HealthSource;
use model::id::{AttemptId, JobId, StepId};
use model::load::LiveUsage;
use model::run::{ExitStatus, Usage};
use model::time::Timestamp;
use model::usage::{CpuTime, LiveStep, TaskUsage, UsageSpread};
use std::time::{Duration, Instant};
use tokio::sync::mpsc;
use wire::link::{RefusedOrder, ToServer};
use wire::report::{AttemptEnd, Report, ReportEvent};

const ROGUE: &str = "rogue1";

fn most_usage() -> Usage {
    let (total, max, min) = (u64::MAX, u64::MAX, 0);
    let (max_node, max_task, min_node, min_task) = (u32::MAX, u32::MAX, u32::MAX, u32::MAX);
    let spread = UsageSpread { total, max, max_node, max_task, min, min_node, min_task };
    let tasks = TaskUsage {
        tasks: u32::MAX,
        cpu_ms: spread,
        memory: spread,
        virtual_memory: spread,
        pages: spread,
        read: spread,
        written: spread,
        gpu_busy: spread,
        gpu_memory: spread,
        energy_mj: spread,
        cpu_khz: spread,
    };
    Usage {
        cpu_user_us: u64::MAX,
        cpu_system_us: u64::MAX,
        memory_peak_bytes: u64::MAX,
        oom_kills: u32::MAX,
        steps_cpu: Some(Box::new(CpuTime { user_us: u64::MAX, system_us: u64::MAX })),
        tasks: Some(Box::new(tasks)),
        energy_mj: u64::MAX,
    }
}

fn end() -> AttemptEnd {
    AttemptEnd {
        exit: ExitStatus { code: i32::MIN, signal: i32::MAX },
        usage: most_usage(),
        oom: true,
        timed_out: false,
        supervisor_lost: false,
    }
}

/// Every event of a report. The match has no wildcard: one that is added here is told lies with.
fn events() -> Vec<ReportEvent> {
    let exit = ExitStatus { code: i32::MIN, signal: i32::MAX };
    let step = StepId::Batch;
    let all = vec![
        ReportEvent::Started,
        ReportEvent::LaunchFailed {
            what: "no".into(),
            fault: model::reason::LaunchFault::Volume,
            unfit: Some("no".into()),
            hold: true,
            user: None,
        },
        ReportEvent::Unfit { why: "no".into() },
        ReportEvent::Network(ContainerNetwork {
            ports: vec![PortMapping { container: 0, node: 0 }; 100],
        }),
        ReportEvent::StepEnded { step, exit, usage: most_usage(), oom: true },
        ReportEvent::ScriptEnded { exit, oom: true, timed_out: true },
        ReportEvent::Ended(end()),
    ];
    for event in &all {
        match event {
            ReportEvent::Started
            | ReportEvent::LaunchFailed { .. }
            | ReportEvent::Unfit { .. }
            | ReportEvent::Network(_)
            | ReportEvent::StepEnded { .. }
            | ReportEvent::ScriptEnded { .. }
            | ReportEvent::Ended(_) => {}
        }
    }
    all
}

struct RogueLink {
    server: TestServer,
    job: JobId,
    settled: mpsc::Sender<PendingReport>,
    pending: mpsc::Receiver<PendingReport>,
}

impl RogueLink {
    /// A job runs on the server's one node.
    async fn new() -> Self {
        let server = TestServer::start().await;
        server.node_up().await;
        let job = server.submit("name: runs").await.expect("a job");
        server.plan();
        assert!(server.shared.read().jobs[&job].attempt().is_some(), "it runs");
        let (settled, pending) = mpsc::channel(REPORTS_MAX);
        Self { server, job, settled, pending }
    }

    /// A link that speaks for this node says something, and the server has dealt with it.
    async fn say(&mut self, speaks_for: &str, message: ToServer) {
        let nodes = std::collections::HashSet::from([speaks_for.to_string()]);
        let (shared, settled) = (&self.server.shared, self.settled.clone());
        let receiver = LinkReceiver { shared, nodes: &nodes, link: 7, settled };
        receiver.handle(message).await.expect("the link goes on");
        while let Ok(one) = self.pending.try_recv() {
            one.answer.await.expect("an answer").expect("it is acknowledged");
        }
    }

    fn report(&self, node: &str, number: u32, at: Timestamp, event: ReportEvent) -> ToServer {
        let attempt = AttemptId { job: self.job, number };
        ToServer::Report(Report { serial: 1, node: node.into(), attempt, at, event })
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn node_changes_nothing_of_a_job_on_another_node() {
    let mut link = RogueLink::new().await;
    let before = link.server.state_in_memory();
    for node in [ROGUE, NODE, "none", ""] {
        for (event, number) in events().into_iter().flat_map(|e| [(e.clone(), 1), (e, u32::MAX)]) {
            let report = link.report(node, number, clock::now(), event);
            link.say(ROGUE, report).await;
        }
        let attempt = AttemptId { job: link.job, number: 1 };
        for order in [RefusedOrder::Launch, RefusedOrder::LaunchedBefore, RefusedOrder::Other] {
            let (node, why, unfit) = (node.to_string(), "no".to_string(), Some("no".to_string()));
            let refused = ToServer::OrderRefused { serial: 1, attempt, node, order, why, unfit };
            link.say(ROGUE, refused).await;
        }
        let accepted =
            ToServer::StepAccepted { node: node.into(), attempt, step: StepId::Number(0) };
        link.say(ROGUE, accepted).await;
        let beat = ToServer::Heartbeat { nodes: vec![(node.to_string(), Default::default())] };
        link.say(ROGUE, beat).await;
    }
    assert_eq!(link.server.state_in_memory(), before);
    let facts = link.server.shared.volatile.facts.read().expect("facts");
    assert!(!facts.contains_key(NODE), "nor the facts of another node");
}

#[tokio::test(flavor = "multi_thread")]
async fn series_are_taken_of_a_nodes_own_agent_and_where_the_site_asks_for_them() {
    let mut link = RogueLink::new().await;
    let series = || ToServer::GpuSeries { nodes: vec![NODE.into()], series: Default::default() };
    let is_known = |link: &RogueLink| {
        link.server.shared.volatile.relayed.shown(clock::now()).contains_key(NODE)
    };
    link.say(NODE, series()).await;
    assert!(!is_known(&link), "the site has no dcgm_exporter");
    let mut config = (*link.server.shared.read().config).clone();
    let address = "http://127.0.0.1:9400".to_owned();
    config.site.dcgm_exporter = Some(address.try_into().expect("an address"));
    link.server.run(Command::Configure(Box::new(config))).await.expect("configured");
    link.say(ROGUE, series()).await;
    assert!(!is_known(&link), "another node's agent sent them");
    link.say(NODE, series()).await;
    assert!(is_known(&link));
}

#[tokio::test(flavor = "multi_thread")]
async fn largest_amounts_and_impossible_times_of_a_nodes_own_job_are_kept_as_they_are() {
    for at in [Timestamp(i64::MIN), Timestamp(0), Timestamp(i64::MAX)] {
        let mut link = RogueLink::new().await;
        for event in [
            ReportEvent::StepEnded {
                step: StepId::Batch,
                exit: ExitStatus::default(),
                usage: most_usage(),
                oom: false,
            },
            ReportEvent::Ended(end()),
            // And again: what is over is not counted twice.
            ReportEvent::Ended(end()),
        ] {
            let report = link.report(NODE, 1, at, event);
            link.say(NODE, report).await;
        }
        let ended = {
            let state = link.server.shared.read();
            state.jobs[&link.job].ended().expect("an end").clone()
        };
        assert!(ended.start.is_some_and(|start| start <= ended.end), "{at:?}: {ended:?}");
        assert!(ended.end <= clock::now(), "{at:?}: {ended:?}");
        assert_eq!(ended.usage.cpu_user_us, u64::MAX);
        assert_eq!(link.server.state_in_memory(), link.server.state_on_disk());
        link.server.submit("name: later").await.expect("the server goes on");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_and_questions_of_other_links_are_out_of_reach() {
    let mut link = RogueLink::new().await;
    for number in [0, 1, u32::MAX] {
        link.say(ROGUE, ToServer::Credit { stream: number, bytes: u32::MAX }).await;
        let error = Some("x".repeat(1 << 20));
        link.say(ROGUE, ToServer::StreamEnd { stream: number, error }).await;
        let steps =
            vec![LiveStep { step: StepId::Batch, used: TaskUsage::default(), pids: vec![1; 10] }];
        let used = LiveUsage { steps, ..LiveUsage::default() };
        link.say(ROGUE, ToServer::Measured { request: u64::from(number), used }).await;
    }
    assert_eq!(link.server.state_in_memory(), link.server.state_on_disk());
}

#[tokio::test(flavor = "multi_thread")]
async fn node_whose_health_changes_all_the_time_adds_little_to_the_audit_trail() {
    let mut link = RogueLink::new().await;
    let noted = link.server.shared.read().activities.noted();
    for number in 0..1000 {
        let (node, failure) = (NODE.to_string(), Some(format!("failure {number}")));
        link.say(NODE, ToServer::Health { node, source: HealthSource::Check, failure }).await;
    }
    let more = link.server.shared.read().activities.noted() - noted;
    assert!((1..100).contains(&more), "{more} entries");
    // What was said last is not lost: it waits.
    let due = Instant::now() + Duration::from_secs(60);
    let waiting = link.server.shared.volatile.health_reports.due(due);
    let last = (NODE.to_string(), HealthSource::Check, Some("failure 999".to_string()));
    assert_eq!(waiting, [last]);
}
