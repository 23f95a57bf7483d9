//! The writer without processes: what it answers, what it keeps, and what it undoes.

use crate::auth::principal::server_principal;
use crate::clock;
use crate::http::calls;
use crate::shared::agent_links::{AgentBuild, Link, LinkPeer};
use crate::shared::dispatch_queue::DispatchWork;
use crate::show::kept_text;
use crate::testing::{NODE, TestServer, submission, user};
use crate::writer::collect;
use cluster::command::CancelJobs;
use cluster::token::UserToken;
use cluster::{Command, Event, Reply};
use model::change::{JobFilter, JobRef};
use model::id::{BlobRef, JobId};
use model::principal::{Principal, Role};
use model::reason::Refusal;
use model::record::HistoryFilter;
use model::time::Timestamp;
use std::sync::Arc;
use std::time::Duration;
use store::books::Retention;
use tokio::sync::oneshot::error::TryRecvError;
use tokio::sync::{Notify, mpsc};
use wire::client::{Answer, Call, KeptText};

#[tokio::test]
async fn submitted_job_is_on_disk_before_its_answer() {
    let server = TestServer::start().await;
    let job = server.submit("name: train").await.expect("a job");
    // A power cut right after the answer loses nothing of it.
    server.journal.restart(7);
    assert!(server.state_on_disk().contains("\"train\""));
    assert_eq!(server.state_on_disk(), server.state_in_memory());
    assert_eq!(&*server.shared.read().jobs[&job].spec.name, "train");
}

#[tokio::test]
async fn lead_is_given_up_though_whoever_asked_for_it_is_gone() {
    let server = TestServer::start().await;
    let asked = tokio::time::timeout(Duration::ZERO, server.shared.writer.stop());
    // Whether it was answered in time does not matter: the request is with the writer.
    let _ = asked.await;
    let told = server.shared.volatile.handover.notified();
    tokio::time::timeout(Duration::from_secs(60), told).await.expect("the handover is told");
}

#[tokio::test]
async fn refused_command_changes_nothing_and_journals_nothing() {
    let server = TestServer::start().await;
    let (before, used) = (server.state_in_memory(), server.journal.used_bytes());
    let refused = server.submit("fleets: [nowhere]").await;
    assert!(matches!(refused, Err(Refusal::UnknownPartition(_))), "{refused:?}");
    assert_eq!(server.state_in_memory(), before);
    assert_eq!((server.state_on_disk(), server.journal.used_bytes()), (before, used));
}

#[tokio::test]
async fn failed_append_refuses_the_batch_and_reads_the_state_back() {
    let server = TestServer::start().await;
    let kept = server.submit("name: kept").await.expect("a job");
    server.journal.fail_sync_at(1);
    let refused = server.submit("name: lost").await;
    assert!(matches!(refused, Err(Refusal::DiskFull(_))), "{refused:?}");
    assert_eq!(server.state_in_memory(), server.state_on_disk());
    let later = server.submit("name: later").await.expect("the writer goes on");
    assert!(later > kept);
    server.journal.restart(7);
    let on_disk = server.state_on_disk();
    assert!(on_disk.contains("\"kept\"") && on_disk.contains("\"later\""), "{on_disk}");
}

/// A sync that failed may have kept what it was to keep: who waited for it was refused, and what it says holds.
#[tokio::test]
async fn commit_that_the_disk_has_after_all_is_booked_and_its_nodes_say_hello_again() {
    let server = TestServer::start().await;
    let job = server.submit("name: ends").await.expect("a job");
    let (outbox, _orders) = mpsc::channel(8);
    let (data, _bytes) = mpsc::channel(1);
    let (cut, shutdown) = (Arc::new(Notify::new()), Arc::default());
    let build = AgentBuild { program: "sluice".into(), protocol: 1 };
    let (address, since) = ([127, 0, 0, 1].into(), clock::now());
    let (takes_bytes, is_near, finds_servers) = (true, false, false);
    let peer = LinkPeer { address, build, since, takes_bytes, is_near, finds_servers };
    let fingerprint = "certificate".into();
    let link = Link { number: 1, fingerprint, peer, outbox, data, cut: cut.clone(), shutdown };
    server.shared.agents.add(&[NODE.into()], &link);
    let filter = JobFilter { jobs: vec![JobRef::whole(job)], ..JobFilter::default() };
    let cancel = CancelJobs { filter, step: None, signal: None, batch_only: false, full: false };
    server.journal.fail_sync_at(1);
    let refused = server.run(Command::Cancel(Box::new(cancel))).await;
    assert!(matches!(refused, Err(Refusal::DiskFull(_))), "{refused:?}");
    let told = tokio::time::timeout(Duration::from_secs(20), cut.notified()).await;
    told.expect("every agent has to say hello again: it may lack orders");
    assert!(server.shared.read().jobs[&job].has_ended(), "the disk has it");
    until(|| server.shared.books.is_settled()).await;
    let booked = server.book_reader().query(&HistoryFilter::default()).expect("the books");
    assert_eq!(booked.iter().map(|record| record.job).collect::<Vec<_>>(), [job]);
}

#[tokio::test]
async fn commands_that_wait_for_the_writer_go_into_one_commit() {
    let mut server = TestServer::without_writer();
    let mut commits = server.shared.commits.subscribe();
    let mut answers = Vec::new();
    for n in 1..=3 {
        let token = UserToken { hash: n.to_string(), name: "ada".into(), ..UserToken::default() };
        let command = Command::SetUserToken(Box::new(token));
        let answer = server.shared.writer.enqueue(command, server_principal()).await;
        answers.push(answer.expect("a queue that is open"));
    }
    assert_eq!(answers[0].try_recv(), Err(TryRecvError::Empty), "nobody answers yet");
    server.start_writer();
    for answer in answers {
        answer.await.expect("an answer").expect("a token");
    }
    commits.changed().await.expect("a commit");
    assert_eq!(*commits.borrow(), 1);
    let events: Vec<_> = server.dispatch.try_iter().collect();
    let [DispatchWork::Committed { events, .. }] = &events[..] else { panic!("one commit") };
    let tokens = events.iter().filter(|e| matches!(e, Event::UserTokenSet(_)));
    assert_eq!(tokens.count(), 3);
}

#[tokio::test]
async fn new_job_wakes_nobody_who_looks_after_nodes() {
    let server = TestServer::start().await;
    // With the answer to one command the commits before it were told.
    server.submit("name: first").await.expect("a job");
    let mut nodes = server.shared.commits.subscribe_beyond_submits();
    server.submit("name: second").await.expect("a job");
    server.submit("name: third").await.expect("a job");
    assert!(!nodes.has_changed().expect("a server"));
    server.node_up().await;
    let woken = tokio::time::timeout(Duration::from_secs(60), nodes.changed()).await;
    woken.expect("woken by the node").expect("a server");
}

#[tokio::test]
async fn planned_start_is_on_disk_when_the_planner_goes_on() {
    let server = TestServer::start().await;
    server.node_up().await;
    server.submit("name: runs").await.expect("a job");
    server.plan();
    let state = server.shared.read();
    let job = state.jobs.values().next().expect("a job");
    assert!(job.attempt().is_some(), "the plan started it: {:?}", job.state());
    drop(state);
    assert_eq!(server.state_on_disk(), server.state_in_memory());
}

#[tokio::test]
async fn script_and_environment_are_stored_as_blobs_by_their_content() {
    let server = TestServer::start().await;
    let script = submission("").script.expect("a script");
    let job = server.submit("").await.expect("a job");
    let blob = server.shared.read().jobs[&job].spec.launch.script.expect("a blob");
    assert_eq!(server.shared.blob_bytes(&blob).expect("its text"), script.as_bytes());
    assert_eq!(server.shared.read().jobs[&job].spec.owner.name, user().name);
}

#[tokio::test]
async fn texts_of_a_submitted_job_are_put_back_from_the_journal() {
    let server = TestServer::start().await;
    let job = submit_with(&server, "name: train", "TOKEN=of-train\0").await.expect("a job");
    // A power cut right after the answer, by which the blobs' disk has lost what was not synced.
    server.journal.restart(7);
    let blobs = server.blobs_from_journal();
    for blob in texts_of(&server, job) {
        assert!(blobs.contains(&(&blob.expect("the job has one")).into()));
    }
}

#[tokio::test]
async fn blobs_that_cannot_be_synced_hold_up_submits_alone() {
    let server = TestServer::start().await;
    let first = submit_with(&server, "name: first", "TOKEN=of-first\0").await.expect("a job");
    // The pack is given up with what is not synced, and there is no space for another.
    server.blobs.fail_write_at(1);
    submit_with(&server, "name: second", "TOKEN=of-second\0").await.expect_err("it was not kept");
    server.blobs.set_capacity(Some(server.blobs.used_bytes()));
    server.run(long_token("short", 1)).await.expect("it has no text");
    submit_with(&server, "name: third", "TOKEN=of-third\0").await.expect_err("no space");
    server.run(long_token("another", 1)).await.expect("it has no text");
    server.blobs.set_capacity(None);
    let third = submit_with(&server, "name: third", "TOKEN=of-third\0").await.expect("a job");
    for job in [first, third] {
        assert!(texts_of(&server, job).iter().all(|blob| is_stored(&server, blob)));
    }
}

/// A command that takes a little more than `bytes` in the journal.
fn long_token(name: &str, bytes: usize) -> Command {
    Command::SetUserToken(Box::new(UserToken {
        hash: name.into(),
        name: "x".repeat(bytes.max(1)),
        ..UserToken::default()
    }))
}

#[tokio::test]
async fn command_larger_than_a_commit_is_refused_alone_and_changes_nothing() {
    let mut server = TestServer::without_writer();
    let mut answers = Vec::new();
    for (name, mib) in [("before", 0), ("too large", 17), ("after", 0)] {
        let command = long_token(name, mib << 20);
        answers.push(server.shared.writer.enqueue(command, server_principal()).await);
    }
    server.start_writer();
    let mut verdicts = Vec::new();
    for answer in answers.into_iter().flatten() {
        verdicts.push(answer.await.expect("an answer"));
    }
    assert!(verdicts[0].is_ok() && verdicts[2].is_ok(), "{verdicts:?}");
    let Err(refusal @ Refusal::InvalidValue { .. }) = &verdicts[1] else { panic!("{verdicts:?}") };
    assert_eq!(refusal.to_string().lines().count(), 1, "{refusal}");
    assert!(!server.shared.read().user_tokens.contains_key("too large"));
    assert_eq!(server.state_in_memory(), server.state_on_disk());
}

#[tokio::test]
async fn commands_too_large_together_go_into_several_commits() {
    let mut server = TestServer::without_writer();
    let mut answers = Vec::new();
    // The second comes before the batch is full, and with the first it is more than a commit.
    for name in ["a", "b"] {
        let bytes = if name == "a" { 3 << 20 } else { 14 << 20 };
        let command = long_token(name, bytes);
        answers.push(server.shared.writer.enqueue(command, server_principal()).await);
    }
    server.start_writer();
    for answer in answers.into_iter().flatten() {
        answer.await.expect("an answer").expect("a token");
    }
    assert_eq!(server.shared.read().user_tokens.len(), 2);
    assert_eq!(server.state_in_memory(), server.state_on_disk());
}

/// Sends three commands that go into one commit, which fails in the way that `fault` sets up; the writer has to go on.
#[allow(clippy::await_holding_lock)]
async fn batch_fails(fault: impl FnOnce(&TestServer)) -> TestServer {
    let server = TestServer::start().await;
    // While somebody reads the state, the writer waits with its batch.
    let reader = server.shared.read();
    let mut answers = Vec::new();
    for name in ["a", "b", "c"] {
        let command = long_token(name, 10);
        answers.push(server.shared.writer.enqueue(command, server_principal()).await);
    }
    fault(&server);
    drop(reader);
    for answer in answers.into_iter().flatten() {
        let answer = answer.await.expect("an answer");
        assert!(matches!(answer, Err(Refusal::DiskFull(_))), "{answer:?}");
    }
    server.run(long_token("later", 10)).await.expect("the next batch works");
    assert_eq!(server.state_in_memory(), server.state_on_disk());
    server
}

#[tokio::test]
async fn every_caller_of_a_failed_batch_is_told_and_the_next_batch_works() {
    let server = batch_fails(|server| server.journal.fail_write_at(1)).await;
    assert_eq!(server.shared.read().user_tokens.len(), 1, "nothing of the batch is there");
    // What a failed sync has left is not known; memory and disk agree on it.
    batch_fails(|server| server.journal.fail_sync_at(1)).await;
}

#[tokio::test]
async fn disk_that_fails_is_read_until_it_works_and_callers_do_not_wait_for_it() {
    let server = TestServer::start().await;
    server.journal.crash_at(1);
    let answer = server.shared.writer.enqueue(long_token("lost", 10), server_principal()).await;
    let answer = answer.expect("a queue").await.expect("an answer, before the disk works again");
    assert!(matches!(answer, Err(Refusal::DiskFull(_))), "{answer:?}");
    // The state cannot be read back either, until the disk works again.
    let refused = server.journal.refused();
    until(|| server.journal.refused() > refused + 8).await;
    server.journal.restart_program();
    server.run(long_token("later", 10)).await.expect("the next batch works");
    assert_eq!(server.state_in_memory(), server.state_on_disk());
}

/// The writer holds the state while it reads it back: an answer that looked at the state would wait as long.
#[tokio::test(flavor = "multi_thread")]
async fn client_of_a_failed_commit_is_answered_before_the_state_is_read_back() {
    let server = TestServer::start().await;
    // The ids of the next job are leased, so that its commit is what fails.
    server.submit("name: kept").await.expect("a job");
    server.journal.crash_at(1);
    let shared = server.shared.clone();
    let call = Call::Submit(Box::new(submission("name: lost")));
    let answer = tokio::spawn(async move { calls::answer(&shared, user(), call).await });
    let answer = tokio::time::timeout(Duration::from_secs(10), answer).await;
    // Before anything is said about the answer: whoever waits for the state goes on.
    server.journal.restart_program();
    let answer = answer.expect("an answer, before the disk works again").expect("no panic");
    assert!(matches!(answer, Err(Refusal::DiskFull(_))), "{answer:?}");
}

#[tokio::test]
async fn full_disk_refuses_what_does_not_fit_and_works_again_with_space() {
    let server = TestServer::start().await;
    server.journal.set_capacity(Some(server.journal.used_bytes()));
    let mut kept = 0;
    let refused = loop {
        match server.run(long_token(&format!("t{kept}"), 14 << 20)).await {
            Ok(_) => kept += 1,
            Err(refused) => break refused,
        }
        assert!(kept < 100, "a full disk refuses at some point");
    };
    assert!(matches!(refused, Refusal::DiskFull(_)), "{refused:?}");
    assert_eq!(server.shared.read().user_tokens.len(), kept);
    server.journal.set_capacity(None);
    server.run(long_token("later", 14 << 20)).await.expect("there is space again");
    assert_eq!(server.state_in_memory(), server.state_on_disk());
}

/// One pass of the collection, over everything that is dead.
fn collect(server: &TestServer) -> u64 {
    let kept = server.book_reader();
    collect::pass(&server.shared, &kept, true, Duration::ZERO).expect("a pass").blobs
}

/// A job with the same script as all others, and an environment of its own.
async fn submit_with(
    server: &TestServer,
    lines: &str,
    environment: &str,
) -> Result<JobId, Refusal> {
    let mut submission = submission(lines);
    submission.script = Some("#!/bin/sh\nmake\n".into());
    submission.environment = Some(environment.into());
    match server.shared.writer.submit(Box::new(submission), user()).await? {
        Reply::Submitted { job, .. } => Ok(job),
        other => panic!("a submit was answered with {other:?}"),
    }
}

fn texts_of(server: &TestServer, job: JobId) -> [Option<BlobRef>; 2] {
    let state = server.shared.read();
    let launch = &state.jobs[&job].spec.launch;
    [launch.script, launch.environment]
}

fn is_stored(server: &TestServer, blob: &Option<BlobRef>) -> bool {
    let blob = blob.as_ref().expect("the job has one");
    server.shared.blobs.lock().expect("blobs").contains(&blob.into())
}

#[tokio::test(flavor = "multi_thread")]
async fn texts_of_purged_jobs_leave_the_disk_and_those_of_jobs_in_memory_stay() {
    let server = TestServer::start().await;
    let gone = submit_with(&server, "name: gone", "TOKEN=of-gone\0").await.expect("a job");
    let stays = submit_with(&server, "name: stays", "TOKEN=of-stays\0").await.expect("a job");
    let (of_gone, of_stays) = (texts_of(&server, gone), texts_of(&server, stays));
    submit_with(&server, "fleets: [nowhere]", "TOKEN=refused\0").await.expect_err("refused");
    assert_eq!(server.shared.blobs.lock().expect("blobs").staged_len(), 0, "it left nothing");
    assert_eq!(collect(&server), 0, "every job is in memory");
    server.shared.state.write().apply(&Event::Purged { jobs: vec![gone] });
    assert_eq!(collect(&server), 1, "the script is the other's too");
    assert_eq!(of_gone[0], of_stays[0]);
    assert!(!is_stored(&server, &of_gone[1]));
    assert!(of_stays.iter().all(|blob| is_stored(&server, blob)));
}

#[tokio::test(flavor = "multi_thread")]
async fn texts_that_are_kept_stay_until_their_time_is_over_and_only_their_owner_reads_them() {
    let server = TestServer::start().await;
    let mut config = (*server.shared.read().config).clone();
    config.parameters.keep_environments = true;
    server.run(Command::Configure(Box::new(config))).await.expect("configured");
    let job = submit_with(&server, "name: kept", "TOKEN=of-kept\0").await.expect("a job");
    let texts = texts_of(&server, job);
    let cancel = JobFilter { jobs: vec![JobRef::whole(job)], ..JobFilter::default() };
    let cancel =
        CancelJobs { filter: cancel, step: None, signal: None, batch_only: false, full: false };
    server.run(Command::Cancel(Box::new(cancel))).await.expect("cancelled");
    until(|| server.shared.books.is_settled()).await;
    server.shared.state.write().apply(&Event::Purged { jobs: vec![job] });
    collect(&server);
    assert_eq!(texts.map(|blob| is_stored(&server, &blob)), [false, true]);
    let read = |by: &Principal, of: KeptText| {
        kept_text::kept_text(&server.shared, by, JobRef::whole(job), of)
    };
    let environment = read(&user(), KeptText::Environment).expect("the owner's");
    let Answer::KeptText { text: Some(text) } = environment else { panic!("{environment:?}") };
    assert!(text.shown().split('\0').any(|line| line == "TOKEN=of-kept"), "{text:?}");
    let script = read(&user(), KeptText::Script);
    assert!(matches!(script, Ok(Answer::KeptText { text: None })), "{script:?}");
    let operator = Principal { uid: 2000, name: "op".into(), role: Role::Operator, ..user() };
    let stranger = Principal { uid: 2001, name: "eve".into(), ..user() };
    for other in [operator, stranger] {
        let denied = read(&other, KeptText::Environment);
        assert!(matches!(denied, Err(Refusal::AccessDenied)), "{denied:?}");
    }
    read(&server_principal(), KeptText::Environment).expect("an administrator may");
    server.shared.books.expire(Retention { before: Timestamp(i64::MAX), bytes_max: u64::MAX });
    until(|| server.shared.books.take_expired()).await;
    assert_eq!(collect(&server), 1);
    assert!(!is_stored(&server, &texts[1]));
}

/// Waits for another thread, with a bound.
async fn until(mut is_so: impl FnMut() -> bool) {
    for _ in 0..2000 {
        if is_so() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("it did not come");
}

/// Run by hand, with `--release --nocapture`, for how long a turn holds up the writer.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "a measurement"]
async fn how_long_a_turn_takes() {
    let disk = tempfile::tempdir().expect("a folder");
    let real = store::RealDisk::open(disk.path()).expect("a disk");
    let mut blobs =
        store::Blobs::open(std::sync::Arc::new(real), Default::default()).expect("blobs").0;
    for n in 0..100_000_u32 {
        blobs.stage(format!("{n} {}", "x".repeat(2000)).as_bytes(), 1).expect("staged");
        if n % 1000 == 999 {
            blobs.commit_staged().expect("stored");
        }
    }
    let mut pass = blobs.begin_pass(true);
    let (mut asking, mut moving) = (Vec::new(), Vec::new());
    while !pass.is_over() {
        let asks = pass.asks();
        let start = std::time::Instant::now();
        blobs.turn(&mut pass, &|id| id.0[0] % 2 == 0).expect("a turn");
        if asks { &mut asking } else { &mut moving }.push(start.elapsed());
    }
    for (what, mut turns) in [("that ask", asking), ("that move", moving)] {
        turns.sort_unstable();
        let at = |part: usize| turns[(turns.len() - 1) * part / 100];
        println!(
            "{} turns {what}: median {:?}, 99% {:?}, longest {:?}",
            turns.len(),
            at(50),
            at(99),
            at(100)
        );
    }
}
