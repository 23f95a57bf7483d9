//! Whether the books have room for what new work will leave there, asked before the writer decides on it.

use crate::shared::Shared;
use crate::shared::books_room::NewWork;
use cluster::authorise::{Act, authorise};
use cluster::{Command, State};
use model::change::JobChange;
use model::principal::Principal;
use model::reason::Refusal;
use std::time::Instant;

/// Refuses work of an ordinary user for whose records there is no room. `state` is held by the caller.
pub fn check(shared: &Shared, state: &State, by: &Principal, work: NewWork) -> Result<(), Refusal> {
    let user = shared.counted_user_in(state, by.uid);
    match shared.volatile.books_room.check(user, &by.name, work, Instant::now()) {
        Err(why) if authorise(state, by, Act::Operate).is_err() => Err(why),
        _ => Ok(()),
    }
}

/// The same for a command: each try of a job has a record of its own.
pub fn check_command(
    shared: &Shared,
    state: &State,
    by: &Principal,
    command: &Command,
) -> Result<(), Refusal> {
    match command {
        Command::ChangeJob { change: JobChange::Requeue(_), .. } => {
            check(shared, state, by, NewWork::Jobs)
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::principal::server_principal;
    use crate::shared::books_room::record_bytes;
    use crate::testing::{TestServer, submission, user};
    use cluster::command::CancelJobs;
    use model::bounds;
    use model::change::{JobFilter, JobRef, Requeue};
    use model::id::JobId;
    use model::record::{HistoryFilter, JobRecord};
    use std::sync::Arc;

    fn cancel(job: JobId) -> Command {
        let filter = JobFilter { jobs: vec![JobRef::whole(job)], ..JobFilter::default() };
        let cancel =
            CancelJobs { filter, step: None, signal: None, batch_only: false, full: false };
        Command::Cancel(Box::new(cancel))
    }

    #[tokio::test]
    async fn user_whose_jobs_fill_the_books_has_no_new_ones_and_others_have() {
        let server = TestServer::start().await;
        let writer = &server.shared.writer;
        let job = server.submit("name: first").await.expect("a job");
        let far_beyond = 2 * bounds::USER_BOOKS_BYTES.most as u64;
        server.shared.volatile.books_room.add(user().uid, far_beyond, Instant::now());
        let before = server.state_in_memory();
        let change = JobChange::Requeue(Requeue::default());
        let requeue = Command::ChangeJob { job: JobRef::whole(job), change };
        let submitted = server.submit("name: second").await.map(drop);
        for refused in [submitted, writer.run(requeue, user()).await.map(drop)] {
            let said = refused.expect_err("refused").to_string();
            assert!(said.starts_with("user ada: records of ended jobs: "), "{said}");
        }
        assert_eq!(server.state_in_memory(), before, "nothing has changed");
        let bob = Principal { name: "bob".into(), uid: 1001, ..user() };
        let mut of_bob = submission("name: his");
        of_bob.spec.owner = Arc::new(bob.clone());
        writer.submit(Box::new(of_bob), bob).await.expect("another user has his own room");
        let of_ada = Box::new(submission("name: hers"));
        writer.submit(of_ada, server_principal()).await.expect("root may");
        writer.run(cancel(job), user()).await.expect("what is there may end");
    }

    #[tokio::test]
    async fn records_of_ended_jobs_count_as_their_owners_with_all_that_they_take() {
        let server = TestServer::start().await;
        let room = &server.shared.volatile.books_room;
        let job = server.submit("name: ends").await.expect("a job");
        assert!(!room.has_noted(user().uid));
        server.run(cancel(job)).await.expect("cancelled");
        assert!(room.has_noted(user().uid));
        server.shared.books.wait_settled().await;
        let records = server.book_reader().query(&HistoryFilter::default()).expect("the books");
        let [record] = &records[..] else { panic!("{records:?}") };
        let json = |record: &JobRecord| serde_json::to_vec(record).expect("JSON").len() as u64;
        assert!(record_bytes(record) > json(record), "{} bytes", json(record));
        let comment = Some("\u{1}".repeat(bounds::COMMENT_BYTES.most));
        let long = JobRecord { comment, ..record.clone() };
        assert!(record_bytes(&long) > json(&long), "a control character takes six bytes");
    }
}
