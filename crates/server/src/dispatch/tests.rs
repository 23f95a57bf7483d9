//! The dispatcher under a played agent: which orders go out, and what a node is told when it says hello.

use super::DispatchThread;
use super::launch::{for_agent_of, job_launch};
use crate::clock;
use crate::shared::agent_links::{AgentBuild, Link, LinkPeer};
use crate::shared::dispatch_queue::DispatchWork;
use crate::testing::{NODE, TestServer, submission, user};
use cluster::command::CancelJobs;
use cluster::{Command, Event};
use model::change::{JobChange, JobFilter, JobRef};
use model::id::{AttemptId, JobId};
use model::os_text;
use model::partition::OverSubscribe;
use model::request::Sharing;
use model::site::ID_RANGES;
use std::sync::Arc;
use tokio::sync::{Notify, mpsc};
use wire::client::Submission;
use wire::link::ToAgent;
use wire::order::{Action, IdRange, JobLaunch, Order};

/// A server with a job that was just started, its dispatcher, and the link of the job's node.
struct Started {
    server: TestServer,
    dispatcher: DispatchThread,
    attempt: AttemptId,
    orders: mpsc::Receiver<ToAgent>,
}

impl Started {
    async fn new() -> Self {
        Self::of(submission("name: train")).await
    }

    /// The attempt is that of its first group.
    async fn of(run: Submission) -> Self {
        let server = TestServer::start().await;
        server.node_up().await;
        server.shared.writer.submit(Box::new(run), user()).await.expect("a job");
        let (_, never) = std::sync::mpsc::sync_channel(1);
        let orders = connect(&server, 1);
        server.plan();
        let attempt = server.shared.read().jobs.values().next().and_then(|job| job.attempt_id());
        let attempt = attempt.expect("the plan started the job");
        Self { server, dispatcher: DispatchThread::new(never, 1), attempt, orders }
    }

    /// Hands every event that was committed so far to the dispatcher.
    fn dispatch_commits(&mut self) {
        let work: Vec<_> = self.server.dispatch.try_iter().collect();
        for one in work {
            let DispatchWork::Committed { events, .. } = one else { continue };
            events.iter().for_each(|event| self.dispatcher.event(&self.server.shared, event));
        }
    }

    fn reconcile(&mut self, held: &[(AttemptId, bool)]) -> Vec<String> {
        self.dispatcher.reconcile(&self.server.shared, NODE, held);
        self.take_orders().into_iter().map(|order| kind(&order)).collect()
    }

    fn take_orders(&mut self) -> Vec<Order> {
        let mut orders = Vec::new();
        while let Ok(message) = self.orders.try_recv() {
            let ToAgent::Order(signed) = message else { panic!("{message:?}") };
            orders.push(serde_json::from_str(&signed.body).expect("an order"));
        }
        orders
    }
}

fn connect(server: &TestServer, number: u64) -> mpsc::Receiver<ToAgent> {
    connect_agent(server, number, true)
}

fn connect_agent(server: &TestServer, number: u64, takes_bytes: bool) -> mpsc::Receiver<ToAgent> {
    let (outbox, orders) = mpsc::channel(64);
    let (data, _) = mpsc::channel(1);
    let (cut, shutdown) = (Arc::new(Notify::new()), Arc::default());
    let build = AgentBuild { program: "sluice".into(), protocol: 1 };
    let (address, since) = ([127, 0, 0, 1].into(), clock::now());
    let (is_near, finds_servers) = (false, false);
    let peer = LinkPeer { address, build, since, takes_bytes, is_near, finds_servers };
    let fingerprint = "certificate".into();
    let link = Link { number, fingerprint, peer, outbox, data, cut, shutdown };
    server.shared.agents.add(&[NODE.into()], &link);
    orders
}

async fn cancel(server: &TestServer, job: JobId) {
    let filter = JobFilter { jobs: vec![JobRef::whole(job)], ..JobFilter::default() };
    let (step, signal) = (None, None);
    let cancel = CancelJobs { filter, step, signal, batch_only: false, full: false };
    server.run(Command::Cancel(Box::new(cancel))).await.expect("a cancel");
}

async fn change(server: &TestServer, job: JobId, change: JobChange) {
    let job = JobRef::whole(job);
    server.run(Command::ChangeJob { job, change }).await.expect("a change");
}

fn kind(order: &Order) -> String {
    let text = match &order.action {
        Action::Launch(_) => "launch",
        Action::Forget => "forget",
        Action::End(_) => "end",
        Action::Suspend => "suspend",
        Action::Resume => "resume",
        Action::ExtendTo { .. } => "extend",
        Action::Begin => "begin",
        _ => "another",
    };
    format!("{text} {}", order.attempt)
}

#[tokio::test]
async fn started_attempt_is_launched_on_its_node_once() {
    let mut started = Started::new().await;
    started.dispatch_commits();
    let orders = started.take_orders();
    let [order] = &orders[..] else { panic!("{orders:?}") };
    assert_eq!((order.attempt, &*order.node, order.term), (started.attempt, NODE, 1));
    let Action::Launch(launch) = &order.action else { panic!("{order:?}") };
    assert!(launch.script.as_ref().is_some_and(|text| text.shown().contains("make")));
    assert_eq!((&*launch.user.name, order.uid), ("ada", 1000));
    assert!(launch.environment.iter().any(|entry| entry == "DSTACK_RUN_NAME=train"));
    // The hello may have been sent before the launch arrived: on the same link it is not sent again.
    assert_eq!(started.reconcile(&[]), [""; 0]);
}

#[tokio::test]
async fn agent_of_an_earlier_version_gets_no_bytes_that_it_cannot_read() {
    let started = Started::new().await;
    let shared = &started.server.shared;
    let launch = job_launch(shared, started.attempt, NODE).expect("a launch").expect("it runs");
    let green = os_text::from_bytes(b"G=gr\xfcn".to_vec());
    let variable = JobLaunch { environment: vec!["A=1".into(), green.clone()], ..launch.clone() };
    let script = Some(b"#!/bin/sh\n# gr\xfcn\n".to_vec().into());
    let script = JobLaunch { script, ..launch.clone() };
    let argument = JobLaunch { arguments: vec![green], ..launch };
    for sent in [&variable, &script, &argument] {
        let sent = Some(sent.clone());
        assert_eq!(for_agent_of(shared, NODE, sent.clone()).expect("it is read"), sent);
    }
    let _orders = connect_agent(&started.server, 2, false);
    let sent = for_agent_of(shared, NODE, Some(variable)).expect("it is read").expect("a launch");
    assert_eq!(sent.environment, ["A=1"]);
    for sent in [script, argument] {
        let refused = for_agent_of(shared, NODE, Some(sent)).expect_err("it is not read");
        assert!(refused.to_string().contains("it has to be upgraded"), "{refused}");
    }
}

/// The state may already have an attempt when an event of the attempt before is dispatched: a node that got an order for
/// it before its launch would report it as lost.
#[tokio::test]
async fn no_order_for_an_attempt_goes_before_its_launch() {
    let mut started = Started::new().await;
    let (attempt, job) = (started.attempt, started.attempt.job);
    started.dispatcher.begin_deferred(&started.server.shared, job);
    started.dispatcher.send_all(&started.server.shared, job, &Action::Resume);
    started.dispatch_commits();
    started.dispatcher.send_all(&started.server.shared, job, &Action::Resume);
    let orders: Vec<String> = started.take_orders().iter().map(kind).collect();
    let resume = format!("resume {attempt}");
    assert_eq!(orders, [format!("launch {attempt}"), resume.clone()]);

    // A launch on an earlier link may be lost: no order goes before the hello is read, and every one after it.
    started.orders = connect(&started.server, 2);
    started.dispatcher.send_all(&started.server.shared, job, &Action::Resume);
    assert_eq!(started.take_orders(), []);
    assert_eq!(started.reconcile(&[(attempt, true)]), [resume, format!("extend {attempt}")]);
    started.dispatcher.send_all(&started.server.shared, job, &Action::Resume);
    assert_eq!(started.take_orders().len(), 1);
}

#[tokio::test]
async fn attempt_that_a_new_link_does_not_hold_is_launched_again() {
    let mut started = Started::new().await;
    started.dispatch_commits();
    started.orders = connect(&started.server, 2);
    let (shared, job) = (started.server.shared.clone(), started.attempt.job);
    // The node would refuse it, and the refusal would come after the launch.
    started.dispatcher.send_all(&shared, job, &Action::Suspend);
    let expected = format!("launch {}", started.attempt);
    assert_eq!(started.reconcile(&[]), [expected]);
}

/// Its CPUs may be another's by now.
#[tokio::test]
async fn suspended_attempt_that_its_node_does_not_have_is_launched_once_it_is_resumed() {
    let mut started = Started::new().await;
    started.dispatch_commits();
    started.orders = connect(&started.server, 2);
    let attempt = started.attempt;
    change(&started.server, attempt.job, JobChange::Suspend).await;
    started.dispatch_commits();
    assert_eq!(started.reconcile(&[]), [""; 0]);
    change(&started.server, attempt.job, JobChange::Resume).await;
    started.dispatch_commits();
    let orders: Vec<String> = started.take_orders().iter().map(kind).collect();
    assert_eq!(orders, [format!("launch {attempt}"), format!("resume {attempt}")]);
    // Once, and from then on it is suspended and resumed where it runs.
    change(&started.server, attempt.job, JobChange::Suspend).await;
    started.dispatch_commits();
    change(&started.server, attempt.job, JobChange::Resume).await;
    started.dispatch_commits();
    let orders: Vec<String> = started.take_orders().iter().map(kind).collect();
    assert_eq!(orders, [format!("suspend {attempt}"), format!("resume {attempt}")]);
}

/// Its node would pass an order to end over: it knows nothing of it, and says no hello for it.
#[tokio::test]
async fn cancelled_attempt_whose_launch_is_withheld_is_over_without_its_node() {
    let mut started = Started::new().await;
    started.dispatch_commits();
    started.orders = connect(&started.server, 2);
    let job = started.attempt.job;
    change(&started.server, job, JobChange::Suspend).await;
    started.dispatch_commits();
    assert_eq!(started.reconcile(&[]), [""; 0]);
    cancel(&started.server, job).await;
    started.dispatch_commits();
    assert_eq!(started.take_orders(), []);
    // What the dispatcher reports comes before this.
    started.server.run(Command::Tick { booked: true }).await.expect("a tick");
    let shared = started.server.shared.clone();
    assert!(shared.read().job(job).is_some_and(|job| job.ended().is_some()), "it has ended");
}

/// The older hello was sent before the launch: it says nothing about the attempt.
#[tokio::test]
async fn hello_of_a_link_that_another_took_over_from_is_passed_over() {
    let mut started = Started::new().await;
    started.dispatch_commits();
    cancel(&started.server, started.attempt.job).await;
    started.orders = connect(&started.server, 2);
    let shared = started.server.shared.clone();
    started.dispatcher.on_hello(&shared, NODE, 1, &[]);
    assert_eq!(started.take_orders(), []);
    // What the dispatcher would have reported comes before this.
    started.server.run(Command::Tick { booked: true }).await.expect("a tick");
    let present = shared.read().job(started.attempt.job).and_then(|job| job.attempt_id());
    assert_eq!(present, Some(started.attempt), "it is there until its node says otherwise");
    let order = format!("end {}", started.attempt);
    started.dispatcher.on_hello(&shared, NODE, 2, &[(started.attempt, true)]);
    let orders: Vec<String> = started.take_orders().iter().map(kind).collect();
    assert_eq!(orders, [order]);
}

#[tokio::test]
async fn attempt_that_runs_on_its_node_gets_its_limits_again() {
    let mut started = Started::new().await;
    let attempt = started.attempt;
    let expected = [format!("resume {attempt}"), format!("extend {attempt}")];
    assert_eq!(started.reconcile(&[(attempt, true)]), expected);
}

#[tokio::test]
async fn dead_attempt_that_nobody_knows_is_forgotten_and_a_living_one_is_left() {
    let mut started = Started::new().await;
    let unknown = |job| AttemptId { job: JobId(job), number: 1 };
    let held = [(started.attempt, true), (unknown(900), false), (unknown(901), true)];
    let orders = started.reconcile(&held);
    assert_eq!(orders.last(), Some(&format!("forget {}", unknown(900))));
    assert_eq!(orders.len(), 3, "{orders:?}");
}

#[tokio::test]
async fn attempt_that_ended_meanwhile_is_ended_on_its_node() {
    let mut started = Started::new().await;
    started.dispatch_commits();
    started.take_orders();
    cancel(&started.server, started.attempt.job).await;
    let attempt = started.attempt;
    assert_eq!(started.reconcile(&[(attempt, true)]), [format!("end {attempt}")]);
    let committed: Vec<_> = started.server.dispatch.try_iter().collect();
    let ends = committed.iter().filter(|work| match work {
        DispatchWork::Committed { events, .. } => {
            events.iter().any(|e| matches!(e, Event::Ending { .. }))
        }
        _ => false,
    });
    assert_eq!(ends.count(), 1);
}

#[tokio::test]
async fn container_has_the_nodes_network_only_where_nobody_else_can_be_on_the_node() {
    let table = [
        (OverSubscribe::No, Sharing::Node, false),
        (OverSubscribe::No, Sharing::Share, true),
        (OverSubscribe::Exclusive, Sharing::Share, false),
        // An offer of whole hosts is one also where sharing is forced.
        (OverSubscribe::Force(4), Sharing::Node, false),
        (OverSubscribe::Force(4), Sharing::Share, true),
    ];
    for (partition, sharing, own_network) in table {
        let server = TestServer::start().await;
        server.node_up().await;
        let mut config = (*server.shared.read().config).clone();
        config.partitions[0].over_subscribe = partition;
        server.run(Command::Configure(Box::new(config))).await.expect("a configured cluster");
        let mut run = submission("");
        let request = &mut Arc::make_mut(&mut run.spec.components)[0].request;
        Arc::make_mut(request).sharing = sharing;
        server.shared.writer.submit(Box::new(run), user()).await.expect("a run");
        server.plan();
        let attempt = server.shared.read().jobs.values().next().and_then(|job| job.attempt_id());
        let launch = job_launch(&server.shared, attempt.expect("it runs"), NODE);
        let launch = launch.expect("a launch").expect("it runs");
        assert_eq!(launch.own_network, own_network, "{partition:?} {sharing:?}");
    }
}

#[tokio::test]
async fn launch_has_the_range_of_ids_that_its_account_was_given() {
    let started = Started::new().await;
    let shared = &started.server.shared;
    let uid = shared.read().jobs[&started.attempt.job].spec.owner.uid;
    let launch = job_launch(shared, started.attempt, NODE).expect("a launch").expect("it runs");
    assert_eq!(launch.id_range, IdRange::Number(uid % ID_RANGES));
    let read = serde_json::to_value(&launch).expect("JSON");
    assert_eq!(read["id_range"]["number"], uid % ID_RANGES);
}

#[tokio::test]
async fn group_that_waits_begins_once_the_group_that_it_waits_for_is_cancelled() {
    let mut run = submission("startup_order: workers-first");
    run.het_components.push(run.spec.clone());
    let mut started = Started::of(run).await;
    let worker = JobId(started.attempt.job.0 + 1);
    started.dispatch_commits();
    let launched = started.take_orders();
    let deferred = launched.iter().map(|order| match &order.action {
        Action::Launch(launch) => launch.deferred,
        other => panic!("{other:?}"),
    });
    assert_eq!(deferred.collect::<Vec<_>>(), [true, false]);
    cancel(&started.server, worker).await;
    started.dispatch_commits();
    let orders: Vec<String> = started.take_orders().iter().map(kind).collect();
    let master = format!("begin {}", started.attempt);
    assert_eq!(orders, [master, format!("end {}", AttemptId { job: worker, number: 1 })]);
}

#[tokio::test]
async fn node_that_the_configuration_names_again_has_to_say_hello() {
    let server = TestServer::start().await;
    server.node_up().await;
    let _orders = connect(&server, 1);
    let cut = server.shared.agents.link(NODE).expect("a link").cut;
    let (_, never) = std::sync::mpsc::sync_channel(1);
    let mut dispatcher = DispatchThread::new(never, 1);
    let known = (*server.shared.read().config).clone();
    let mut without = known.clone();
    without.nodes.clear();
    without.partitions.iter_mut().for_each(|partition| partition.nodes.clear());
    for (config, is_unknown) in [(None, false), (Some(without), false), (Some(known), true)] {
        if let Some(config) = config {
            server.run(Command::Configure(Box::new(config))).await.expect("a configuration");
        }
        for work in server.dispatch.try_iter() {
            let DispatchWork::Committed { events, .. } = work else { continue };
            events.iter().for_each(|event| dispatcher.event(&server.shared, event));
        }
        let is_cut = tokio::select! {
            biased;
            () = cut.notified() => true,
            () = std::future::ready(()) => false,
        };
        assert_eq!(is_cut, is_unknown);
    }
}
