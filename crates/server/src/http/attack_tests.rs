//! Calls that once ended the server: each is refused in one line, and the server goes on.

use super::calls::{self, submit_run};
use super::tests::Client;
use crate::shared::long_calls::{LongWork, PLANS_OF_USER_MAX};
use crate::show::job_list::EncodedAnswer;
use crate::testing::{NODE, TestServer, submission, user};
use crate::user_shares::ShareOwner;
use cluster::command::AttemptReport;
use cluster::{Command, job_selection};
use model::amount::Bytes;
use model::bounds;
use model::change::{JobChange, JobField, JobFilter, JobRef};
use model::id::{AttemptId, JobId, StepId};
use model::node::NodeConfig;
use model::reason::Refusal;
use model::reservation_request::{NamesEdit, ReservationRequest};
use model::run::{ExitStatus, JobSpec};
use model::step::StepRefusal;
use std::sync::Arc;
use std::time::{Duration, Instant};
use wire::client::{Answer, Call, CreateStep, Detail, JobsQuery};
use wire::explain::ExplainQuery;
use wire::listing::{ListingOptions, ListingQuery};
use wire::step::StepLaunch;
use wire::version::PROTOCOL;

/// A step beside others, with a submit line of so many bytes.
fn launch(submit_line_bytes: usize) -> StepLaunch {
    let launch = serde_json::json!({
        "name": "step", "argv": ["true"], "environment": "", "work_dir": "/", "listen": [], "key": "",
        "submit_line": "x".repeat(submit_line_bytes), "shape": {"overlap": true},
    });
    serde_json::from_value(launch).expect("a launch")
}

async fn create_step(client: &Client, job: JobId, submit_line_bytes: usize) -> Answer {
    let create = CreateStep { job, launch: launch(submit_line_bytes), wait_ms: 0 };
    client.call(Call::CreateStep(Box::new(create))).await
}

async fn running_job(client: &Client) -> JobId {
    client.server.node_up().await;
    let job = client.server.submit("name: runs").await.expect("a job");
    client.server.plan();
    job
}

/// What the node reports again and again until it is acknowledged.
fn end_of(job: JobId) -> Command {
    let what = AttemptReport::Ended {
        exit: ExitStatus::default(),
        usage: Default::default(),
        oom: false,
        timed_out: false,
        lost: false,
    };
    let attempt = AttemptId { job, number: 1 };
    Command::Report { node: NODE.into(), attempt, at: crate::clock::now(), what }
}

#[tokio::test(flavor = "multi_thread")]
async fn long_submit_lines_of_steps_are_refused_and_the_jobs_end_is_kept() {
    let client = Client::new().await;
    let job = running_job(&client).await;
    for _ in 0..3 {
        let answer = create_step(&client, job, 6 << 20).await;
        let Answer::Refused(why) = answer else { panic!("{answer:?}") };
        assert_eq!(why.to_string().lines().count(), 1, "{why}");
        assert!(why.to_string().contains("submit_line"), "{why}");
    }
    client.server.run(end_of(job)).await.expect("the end is kept");
    assert!(client.server.shared.read().jobs[&job].has_ended());
    assert_eq!(client.server.state_in_memory(), client.server.state_on_disk());
}

#[tokio::test(flavor = "multi_thread")]
async fn running_steps_have_room_in_the_record_of_the_jobs_end() {
    let client = Client::new().await;
    let job = running_job(&client).await;
    let mut created = 0;
    let refused = loop {
        match create_step(&client, job, bounds::SUBMIT_LINE_BYTES.most).await {
            Answer::Step(_) => created += 1,
            Answer::Refused(why) => break why,
            other => panic!("{other:?}"),
        }
        assert!(created < 10_000, "they are bounded");
    };
    assert!(matches!(refused, Refusal::Step(StepRefusal::OpenBytes { .. })), "{refused:?}");
    client.server.run(end_of(job)).await.expect("the end is kept");
    let state = client.server.shared.read();
    let steps = &state.jobs[&job].ended().expect("an end").steps;
    assert!(steps.len() >= created && steps.iter().all(|step| step.end.is_some()));
    drop(state);
    assert_eq!(client.server.state_in_memory(), client.server.state_on_disk());
}

#[tokio::test(flavor = "multi_thread")]
async fn ended_steps_are_not_in_the_event_of_the_jobs_end_and_stay_in_its_record() {
    let client = Client::new().await;
    let job = running_job(&client).await;
    for _ in 0..3 {
        assert!(matches!(create_step(&client, job, 10).await, Answer::Step(_)));
    }
    let numbered = client.server.shared.read().jobs[&job].attempt().expect("runs").steps.clone();
    let ended = numbered.iter().find(|step| matches!(step.id, model::id::StepId::Number(_)));
    let step = ended.expect("a step").id;
    let exit = ExitStatus { code: 3, signal: 0 };
    let what = AttemptReport::StepEnded { step, exit, usage: Default::default(), oom: false };
    let attempt = AttemptId { job, number: 1 };
    let at = crate::clock::now();
    client
        .server
        .run(Command::Report { node: NODE.into(), attempt, at, what })
        .await
        .expect("kept");
    client.server.run(end_of(job)).await.expect("the end is kept");
    let state = client.server.shared.read();
    let steps = &state.jobs[&job].ended().expect("an end").steps;
    assert_eq!(steps.len(), numbered.len());
    assert!(steps.iter().any(|s| s.id == step && s.exit == exit && s.end.is_some()), "{steps:?}");
    drop(state);
    assert_eq!(client.server.state_in_memory(), client.server.state_on_disk());
}

#[tokio::test(flavor = "multi_thread")]
async fn long_comment_is_refused_before_it_is_copied_to_tasks() {
    let client = Client::new().await;
    let job = client.server.submit("name: array").await.expect("a job");
    let before = client.server.state_in_memory();
    let change = JobChange::Fields(vec![JobField::Comment("x".repeat(1 << 20))]);
    let answer = client.call(Call::UpdateJob { job: JobRef::whole(job), change }).await;
    let Answer::Refused(why) = answer else { panic!("{answer:?}") };
    assert!(why.to_string().contains("comment"), "{why}");
    assert_eq!(client.server.state_in_memory(), before);
}

/// A value that stops the check of bounds, in a field that the reader of the call passes over, once lifted every bound behind it.
#[tokio::test(flavor = "multi_thread")]
async fn field_that_nobody_knows_lifts_no_bound() {
    let client = Client::new().await;
    let job = running_job(&client).await;
    let create = CreateStep { job, launch: launch(6 << 20), wait_ms: 0 };
    let call = serde_json::to_string(&Call::CreateStep(Box::new(create))).expect("JSON");
    for stop in ["1e999", r#""\ud800""#, &format!("{}{}", "[".repeat(200), "]".repeat(200))] {
        let body = format!(r#"{{"unknown":{stop},"version":{PROTOCOL},"call":{call}}}"#);
        let answer = client.call_with(body.into()).await;
        assert!(matches!(answer, Answer::Refused(Refusal::Other(_))), "{stop}: {answer:?}");
    }
    let steps = client.server.shared.read().jobs[&job].attempt().expect("runs").steps.clone();
    assert!(steps.iter().all(|step| !matches!(step.id, StepId::Number(_))), "{steps:?}");
}

/// The check of a call goes by the names of its fields, and a script has others.
#[tokio::test(flavor = "multi_thread")]
async fn fields_of_a_submission_that_was_made_here_have_their_bounds() {
    let client = Client::new().await;
    let long = |spec: &mut JobSpec, which: usize| match which {
        0 => spec.name = "x".repeat(bounds::JOB_NAME_BYTES.most + 1).into(),
        1 => spec.comment = Some("x".repeat(bounds::COMMENT_BYTES.most + 1)),
        _ => {
            let variables = vec![String::new(); bounds::SECRET_VARIABLES.most + 1];
            Arc::make_mut(&mut spec.launch).secret_variables = variables;
        }
    };
    for which in 0..3 {
        let mut submission = submission("");
        long(&mut submission.spec, which);
        let answer = submit_run(&client.server.shared, user(), submission).await;
        assert!(matches!(answer, Err(Refusal::InvalidValue { .. })), "{which}: {answer:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn steps_beyond_the_sites_number_are_refused() {
    let client = Client::new().await;
    let mut config = (*client.server.shared.read().config).clone();
    config.parameters.max_step_count = 2;
    client.server.run(Command::Configure(Box::new(config))).await.expect("a configuration");
    let job = running_job(&client).await;
    for _ in 0..2 {
        assert!(matches!(create_step(&client, job, 10).await, Answer::Step(_)));
    }
    let answer = create_step(&client, job, 10).await;
    let Answer::Refused(Refusal::Step(StepRefusal::Count { most: 2 })) = answer else {
        panic!("{answer:?}")
    };
}

/// Each mention of a name once was a search through all jobs, and an answer for each of them.
#[tokio::test(flavor = "multi_thread")]
async fn name_that_is_repeated_in_a_long_list_costs_as_much_as_once() {
    let client = Client::new().await;
    for number in 0..300 {
        client.server.submit(&format!("name: job-{number}")).await.expect("a job");
    }
    let explain = async |name: &str| {
        let names = vec![name.to_string(); bounds::LIST_ITEMS.most];
        let query = ExplainQuery { jobs: Vec::new(), names };
        let (mut least, mut last) = (Duration::MAX, None);
        for _ in 0..5 {
            let begin = Instant::now();
            last = Some(client.call(Call::Explain(query.clone())).await);
            least = least.min(begin.elapsed());
        }
        (least, last.expect("an answer"))
    };
    // Refused at the first of them, so that the time is that of reading the call.
    let (reading, refused) = explain("nobodys").await;
    assert!(matches!(refused, Answer::Refused(Refusal::UnknownJob(_))), "{refused:?}");
    let (whole, answer) = explain("job-7").await;
    let Answer::Explained(jobs) = answer else { panic!("{answer:?}") };
    assert_eq!(jobs.len(), 1);
    assert!(whole < 5 * reading, "{whole:?}, of which reading is {reading:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn names_of_a_reservation_are_looked_up_for_operators_alone() {
    let client = Client::new().await;
    let names = vec!["no-such-user-here".to_owned()];
    let ask = || {
        let users = Some(NamesEdit { names: names.clone(), ..NamesEdit::default() });
        Box::new(ReservationRequest { users, ..ReservationRequest::default() })
    };
    let calls = [
        Call::CreateReservation(ask()),
        Call::UpdateReservation { name: "maintenance".into(), ask: ask() },
    ];
    for call in calls {
        let answer = client.call(call).await;
        // Who looks the name up says that there is no such user.
        assert!(matches!(answer, Answer::Refused(Refusal::AccessDenied)), "{answer:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn launch_that_no_order_carries_is_refused_when_it_is_sent_again() {
    let client = Client::new().await;
    let job = running_job(&client).await;
    let Answer::Step(placed) = create_step(&client, job, 10).await else { panic!("no step") };
    let again =
        |launch: StepLaunch| Call::LaunchStep { job, step: placed.step, launch: Box::new(launch) };
    // A control character takes seven bytes in an order.
    let argv = vec!["\u{1}".repeat(bounds::ARGUMENT_BYTES.most); 20];
    let answer = client.call(again(StepLaunch { argv, ..launch(10) })).await;
    assert!(matches!(answer, Answer::Refused(Refusal::InvalidValue { .. })), "{answer:?}");
    assert!(matches!(client.call(again(launch(10))).await, Answer::Done));
}

/// More than the threads that the runtime makes for work that blocks.
const FLOOD: usize = 600;

#[tokio::test(flavor = "multi_thread")]
async fn calls_of_one_user_that_read_the_books_leave_threads_to_everybody() {
    let server = TestServer::start().await;
    let shared = server.shared.clone();
    let (held, is_held) = std::sync::mpsc::channel();
    let (release, released) = std::sync::mpsc::channel::<()>();
    // Somebody reads long in the books.
    let reader = std::thread::spawn(move || {
        let reader = shared.books.reader.lock().expect("the reader");
        held.send(()).expect("the test waits");
        let _ = released.recv();
        drop(reader);
    });
    is_held.recv().expect("the books are held");
    let ask = |call: Call| {
        let shared = server.shared.clone();
        tokio::spawn(async move {
            match calls::call(&shared, user(), call).await.expect("an answer") {
                EncodedAnswer::Json(json) => {
                    serde_json::from_slice::<Answer>(&json).expect("an answer")
                }
                EncodedAnswer::Lines(_) => panic!("lines that nobody asked for"),
            }
        })
    };
    let flood: Vec<_> = (0..FLOOD).map(|_| ask(Call::History(Default::default()))).collect();
    for call in [Call::Ping, Call::Jobs(Default::default()), Call::Ping] {
        let answer = tokio::time::timeout(Duration::from_secs(60), ask(call)).await;
        let answer: Answer =
            answer.expect("an answer though the books are held").expect("no panic");
        assert!(matches!(answer, Answer::Pong { .. } | Answer::Jobs { .. }), "{answer:?}");
    }
    release.send(()).expect("the reader waits");
    reader.join().expect("no panic");
    let mut answered = 0;
    for one in flood {
        match one.await.expect("no panic") {
            Answer::History(_) => answered += 1,
            Answer::Refused(Refusal::InvalidValue { .. }) => {}
            other => panic!("{other:?}"),
        }
    }
    assert!(answered >= bounds::LONG_CALLS.most, "{answered} calls had their turn");
}

#[tokio::test(flavor = "multi_thread")]
async fn long_lists_of_one_user_take_turns_and_a_named_job_is_shown_meanwhile() {
    let client = Client::new().await;
    let job = running_job(&client).await;
    let shared = client.server.shared.clone();
    let owner = ShareOwner { uid: user().uid, is_operator: false };
    let mut at_work = Vec::new();
    for _ in 0..PLANS_OF_USER_MAX {
        let turn = shared.volatile.whole_lists.begin(owner, LongWork::Plan).await;
        at_work.push(turn.expect("a turn"));
    }
    let whole = tokio::spawn({
        let shared = shared.clone();
        async move { calls::call(&shared, user(), Call::Jobs(Default::default())).await.is_ok() }
    });
    let filter = JobFilter { jobs: vec![JobRef::whole(job)], ..JobFilter::default() };
    for _ in 0..20 {
        let named = JobsQuery { filter: filter.clone(), ..JobsQuery::default() };
        assert!(calls::call(&shared, user(), Call::Jobs(named)).await.is_ok());
    }
    assert!(!whole.is_finished(), "it has its turn after the others");
    drop(at_work);
    assert!(whole.await.expect("no panic"));
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_of_many_nodes_take_turns_and_those_of_a_few_do_not() {
    let client = Client::new().await;
    let shared = client.server.shared.clone();
    let owner = ShareOwner { uid: user().uid, is_operator: false };
    let mut at_work = Vec::new();
    for _ in 0..PLANS_OF_USER_MAX {
        let turn = shared.volatile.whole_lists.begin(owner, LongWork::Plan).await;
        at_work.push(turn.expect("a turn"));
    }
    assert!(calls::call(&shared, user(), Call::Cluster).await.is_ok(), "of one node");
    let mut config = (*shared.read().config).clone();
    let node = |number: usize| NodeConfig::plain(&format!("many{number}"), 1, Bytes::from_gib(1));
    config.nodes.extend((0..1_000).map(node));
    client.server.run(Command::Configure(Box::new(config))).await.expect("a configuration");
    let whole = tokio::spawn({
        let shared = shared.clone();
        async move { calls::call(&shared, user(), Call::Cluster).await.is_ok() }
    });
    for _ in 0..20 {
        assert!(calls::call(&shared, user(), Call::Ping).await.is_ok());
    }
    assert!(!whole.is_finished(), "it has its turn after the others");
    drop(at_work);
    assert!(whole.await.expect("no panic"));
}

#[tokio::test(flavor = "multi_thread")]
async fn long_lines_of_one_user_take_turns_and_short_ones_are_shown_meanwhile() {
    let client = Client::new().await;
    running_job(&client).await;
    let shared = client.server.shared.clone();
    let listed = |format: String| {
        let options = ListingOptions { format: Some(format), ..ListingOptions::default() };
        let lines = Some(Box::new(ListingQuery { options, zone: "+00:00".into() }));
        let shared = shared.clone();
        tokio::spawn(async move {
            let wanted = JobsQuery { lines, ..JobsQuery::default() };
            match calls::call(&shared, user(), Call::Jobs(wanted)).await.expect("an answer") {
                EncodedAnswer::Lines(lines) => lines.len(),
                EncodedAnswer::Json(_) => 0,
            }
        })
    };
    let owner = ShareOwner { uid: user().uid, is_operator: false };
    let mut at_work = Vec::new();
    for _ in 0..PLANS_OF_USER_MAX {
        let turn = shared.volatile.long_listings.begin(owner, LongWork::Plan).await;
        at_work.push(turn.expect("a turn"));
    }
    let long = listed("%.4096i".repeat(300));
    for _ in 0..20 {
        assert!(listed("%i %j".into()).await.expect("no panic") > 0);
    }
    assert!(!long.is_finished(), "it has its turn after the others");
    drop(at_work);
    assert!(long.await.expect("no panic") > 300 * 4096);
}

#[tokio::test(flavor = "multi_thread")]
async fn steps_are_copied_for_those_alone_who_are_shown_them() {
    let client = Client::new().await;
    let job = running_job(&client).await;
    for _ in 0..1010 {
        assert!(matches!(create_step(&client, job, 10).await, Answer::Step(_)));
    }
    let shared = client.server.shared.clone();
    let steps = async |wanted: JobsQuery| match client.call(Call::Jobs(wanted)).await {
        Answer::Jobs { jobs, .. } => jobs.0[0].steps.len(),
        other => panic!("{other:?}"),
    };
    let all = steps(JobsQuery::default()).await;
    assert!(all >= 1010, "{all}");
    let listing = JobsQuery { detail: Detail::Listing, ..JobsQuery::default() };
    assert_eq!(steps(listing).await, 0);
    let views = calls::jobs(&shared, &user(), &JobsQuery::default(), |_| ()).expect("views");
    assert!(views.iter().all(|view| view.steps.is_empty()));
    let options = ListingOptions { steps: true, no_header: true, ..ListingOptions::default() };
    let lines = Some(Box::new(ListingQuery { options, zone: "+00:00".into() }));
    let wanted = JobsQuery { lines, ..JobsQuery::default() };
    match calls::call(&shared, user(), Call::Jobs(wanted)).await.expect("an answer") {
        EncodedAnswer::Lines(lines) => {
            assert_eq!(String::from_utf8(lines).expect("text").lines().count(), all);
        }
        EncodedAnswer::Json(json) => panic!("{}", String::from_utf8_lossy(&json)),
    }
    let named = [JobRef::whole(job)];
    assert_eq!(job_selection::count_steps(&shared.read(), &named), all);
    // A client that waits for its job asks for the step that starts with it.
    match client.call(Call::AwaitStart { job, timeout_ms: 0, ready: false }).await {
        Answer::Start { view, .. } => assert_eq!(view.steps.len(), 1),
        other => panic!("{other:?}"),
    }
    // The web page lists the newest.
    let explained = ExplainQuery { jobs: named.to_vec(), names: Vec::new() };
    match client.call(Call::Explain(explained)).await {
        Answer::Explained(found) => {
            assert_eq!(found[0].job.steps.len(), 1000);
            assert!(matches!(found[0].job.steps[999].id, StepId::Number(1009)));
        }
        other => panic!("{other:?}"),
    }
}
