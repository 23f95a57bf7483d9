//! The checks themselves: what must not happen is found where it is put before them.

use super::Ledger;
use crate::chance::Chance;
use crate::faults::{requests, site};
use cluster::command::Submit;
use cluster::event::Started;
use cluster::{Command, Context, Event, Reply, State};
use model::allocation::Allocation;
use model::attempt::Ending;
use model::change::{JobChange, JobRef, NodeChange};
use model::dependency::Dependency;
use model::id::{AttemptId, JobId};
use model::request::Request;
use model::reservation_request::{DurationEdit, NodesChoice, ReservationRequest};
use model::run::{Component, ExitStatus, Hold, JobSpec, Outcome};
use model::time::{TimeLimit, Timestamp};
use std::sync::Arc;
use std::time::Duration;

const NOW: Timestamp = Timestamp::from_secs(1_000_000);

/// The cluster of a history, with all nodes up.
struct Small {
    state: State,
    random: u128,
}

impl Small {
    fn new() -> Self {
        let mut small = Self { state: State::default(), random: 0 };
        small.run(Command::StartTerm { term: 1 });
        small.run(Command::Configure(Box::new(site::configuration(0))));
        for node in site::NODES {
            let (node, facts, held) = (node.to_owned(), Box::default(), Vec::new());
            small.run(Command::NodeHello { node, facts, held });
        }
        small
    }

    fn run(&mut self, command: Command) -> Reply {
        self.random += 1_000;
        let context = Context { now: NOW, random: self.random, by: site::root() };
        let decision = self.state.decide(&command, &context).expect("a command of a test");
        for event in &decision.events {
            self.state.apply(event);
        }
        decision.reply
    }

    fn submit(&mut self, set: impl FnOnce(&mut JobSpec, &mut Request, &mut Option<Hold>)) -> JobId {
        let owner = Arc::new(site::users()[0].clone());
        let mut spec = requests::spec(&mut Chance::new(0), &self.state, &owner, NOW);
        let mut request = Request { time_limit: Some(TimeLimit::Minutes(5)), ..Request::default() };
        (spec.qos, spec.dependency, spec.retry) = (None, None, None);
        let mut hold = None;
        set(&mut spec, &mut request, &mut hold);
        spec.components = [Component { request: Arc::new(request) }].into();
        let submit = Submit {
            spec,
            array: None,
            hold,
            priority: None,
            het_components: Vec::new(),
            test_only: false,
            unique_name: false,
        };
        match self.run(Command::Submit(Box::new(submit))) {
            Reply::Submitted { job, .. } => job,
            other => panic!("a submit is answered with {other:?}"),
        }
    }

    /// What a plan gives the job.
    fn granted(&self, job: JobId) -> Arc<Allocation> {
        let view = cluster::view::view(&self.state, NOW);
        let plan = sched::plan(&view, NOW, &mut sched::Memo::default());
        let start = plan.starts.into_iter().find(|start| start.job == job);
        start.expect("the plan starts it").allocation
    }

    fn found(&self, event: &Event) -> Option<String> {
        Ledger::default().before(&self.state, event).err().map(|broken| broken.0)
    }
}

fn start(job: JobId, allocation: &Arc<Allocation>) -> Event {
    Event::Started(Box::new(Started {
        attempt: AttemptId { job, number: 1 },
        task: None,
        allocation: allocation.clone(),
        at: NOW,
        end_limit: None,
        pull_credit_ms: None,
        reservation: None,
        priority: None,
        preparing: false,
        step: None,
    }))
}

#[test]
fn start_of_what_may_not_start_is_found() {
    let mut small = Small::new();
    let plain = small.submit(|_, _, _| {});
    let allocation = small.granted(plain);
    assert_eq!(small.found(&start(plain, &allocation)), None);
    let held = small.submit(|_, _, hold| *hold = Some(Hold::User));
    let later = small.submit(|_, request, _| request.begin = Some(NOW + Duration::from_secs(1)));
    let after = format!("afterany:{plain}");
    let behind = small.submit(|spec, _, _| {
        spec.dependency = Some(Box::new(Dependency::parse(&after).expect("a dependency")));
    });
    for (job, why) in [(held, "Held"), (later, "begin"), (behind, "dependency")] {
        let found = small.found(&start(job, &allocation)).unwrap_or_default();
        assert!(found.contains(why), "{why}: {found}");
    }
    let nodes: Vec<String> = allocation.node_names().map(str::to_owned).collect();
    let mut drained = small.state.clone();
    let reason = "maintenance".to_owned();
    small.run(Command::ChangeNode { nodes: nodes.clone(), change: NodeChange::Drain { reason } });
    let found = small.found(&start(plain, &allocation)).unwrap_or_default();
    assert!(found.contains("Drained"), "{found}");
    std::mem::swap(&mut small.state, &mut drained);
    small.run(Command::CreateReservation(Box::new(ReservationRequest {
        start: Some(NOW),
        duration: Some(DurationEdit::Set(TimeLimit::Minutes(5))),
        nodes: Some(NodesChoice::Named(nodes)),
        users: Some(model::reservation_request::NamesEdit {
            edit: model::reservation_request::EditMode::Set,
            names: vec!["alice".to_owned()],
        }),
        ..ReservationRequest::default()
    })));
    let found = small.found(&start(plain, &allocation)).unwrap_or_default();
    assert!(found.contains("is reserved"), "{found}");
}

#[test]
fn events_that_no_edge_allows_are_found() {
    let mut small = Small::new();
    let job = small.submit(|_, _, _| {});
    let allocation = small.granted(job);
    small.state.apply(&start(job, &allocation));
    let (attempt, at) = (AttemptId { job, number: 1 }, NOW);
    let node = allocation.node_names().next().expect("a node").to_owned();
    let suspended = Event::Suspended { job, at, for_preemption: false };
    let ending = Box::new(Ending::new(Outcome::Cancelled { by: 0 }, at, None));
    let ending = Event::Ending { job, ending, exit: ExitStatus::default(), failed_node: None };
    assert_eq!(small.found(&suspended), None);
    assert_eq!(small.found(&ending), None);
    let off_edge = [
        Event::Submitted(Box::new(submitted_again(&small, job))),
        Event::TaskSplit { array: JobId(77), index: 1, job },
        start(job, &allocation),
        Event::Resumed { job, at },
        Event::Purged { jobs: vec![job] },
        Event::AttemptAbandonedOnNode { attempt, node: node.clone() },
        Event::AttemptEndedOnNode {
            attempt: AttemptId { number: 2, ..attempt },
            node: node.clone(),
            exit: ExitStatus::default(),
            usage: Default::default(),
            at,
            failure: None,
        },
        Event::StaleAttemptGone { node: node.clone(), attempt },
        Event::TermStarted { term: 1, at },
    ];
    for event in off_edge {
        assert!(small.found(&event).is_some(), "{event:?} passes");
    }
    small.run(Command::ChangeJob { job: JobRef::whole(job), change: JobChange::Suspend });
    assert!(small.found(&suspended).is_some(), "it is suspended already");
    small.state.apply(&ending);
    assert!(small.found(&ending).is_some(), "it is ending already");
    let silent = Event::NodeSilent { node, at };
    assert_eq!(small.found(&silent), None);
    small.state.apply(&silent);
    assert!(small.found(&silent).is_some(), "it is silent already");
}

fn submitted_again(small: &Small, job: JobId) -> cluster::event::Submitted {
    let known = small.state.job(job).expect("a job");
    cluster::event::Submitted {
        job,
        run: known.run,
        kind: model::run::RunKind::Batch,
        spec: known.spec.clone(),
        account: known.account.clone(),
        qos: known.qos.clone(),
        tasks: None,
        throttle: None,
        hold: None,
        priority: 1,
        priority_set: false,
        expected_s: None,
        het: None,
        at: NOW,
    }
}
