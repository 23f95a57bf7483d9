//! The writer without processes: what it answers, what it keeps, and what it undoes.

use crate::auth::principal::server_principal;
use crate::shared::dispatch_queue::DispatchWork;
use crate::testing::{TestServer, submission, user};
use cluster::event::UserToken;
use cluster::{Command, Event};
use model::principal::Role;
use model::reason::Refusal;
use tokio::sync::oneshot::error::TryRecvError;

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

#[tokio::test]
async fn commands_that_wait_for_the_writer_go_into_one_commit() {
    let mut server = TestServer::without_writer();
    let mut commits = server.shared.commits.subscribe();
    let mut answers = Vec::new();
    for n in 1..=3 {
        let token = UserToken {
            hash: n.to_string(),
            name: "ada".into(),
            account: None,
            unix_user: None,
            role: Role::User,
        };
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
    assert_eq!(server.shared.blob_text(&blob).expect("its text"), script);
    assert_eq!(server.shared.read().jobs[&job].spec.owner.name, user().name);
}
