//! `sacct --batch-script` and `--env-vars`: a job's script or environment, out of memory or as the books keep it. Both may
//! hold secrets: they are their owner's and the administrators', and no operator's.

use crate::shared::Shared;
use crate::show::history;
use cluster::authorise::{Act, authorise};
use model::change::JobRef;
use model::id::BlobRef;
use model::principal::Principal;
use model::reason::Refusal;
use wire::byte_text::ByteText;
use wire::client::{Answer, HistoryFilter, KeptText};

/// Records that are looked through for a text, those that ended last. All tasks of an array have the same text, and there may be a
/// million of them.
const RECORDS_MAX: u32 = 1_000;

fn asked(job: JobRef) -> HistoryFilter {
    HistoryFilter { jobs: vec![job], limit: Some(RECORDS_MAX), ..HistoryFilter::default() }
}

pub fn kept_text(
    shared: &Shared,
    by: &Principal,
    job: JobRef,
    of: KeptText,
) -> Result<Answer, Refusal> {
    let unknown = Refusal::UnknownJob(job.shown_id());
    let records = history::history(shared, by, &asked(job))?;
    let owner = records.first().ok_or(unknown)?.uid;
    authorise(&shared.read(), by, Act::ReadTextsOf(owner))?;
    let named = |blob: Option<BlobRef>| blob.and_then(|blob| shared.blob_bytes(&blob).ok());
    let text = records.into_iter().filter(|record| record.uid == owner).find_map(|record| {
        // A job in memory has it, whatever its record keeps.
        let in_memory = shared.read().job(record.job).map(|job| job.spec.launch.clone());
        match of {
            KeptText::Script => named(in_memory.map_or(record.script, |launch| launch.script)),
            KeptText::Environment => {
                named(in_memory.map_or(record.environment, |launch| launch.environment))
            }
        }
    });
    Ok(Answer::KeptText { text: text.map(ByteText::from) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{TestServer, user};
    use cluster::Command;
    use cluster::command::CancelJobs;
    use model::change::JobFilter;
    use model::id::JobId;
    use model::record::JobRecord;
    use model::time::Timestamp;

    /// Beyond all that the journal of a test's server comes to.
    const LATE_SEQ: u64 = 1_000_000;

    #[tokio::test(flavor = "multi_thread")]
    async fn text_of_an_array_is_looked_for_in_a_bounded_number_of_records() {
        let server = TestServer::start().await;
        let job = server.submit("").await.expect("a job");
        let cancel = CancelJobs {
            filter: JobFilter { jobs: vec![JobRef::whole(job)], ..JobFilter::default() },
            step: None,
            signal: None,
            batch_only: false,
            full: false,
        };
        server.run(Command::Cancel(Box::new(cancel))).await.expect("cancelled");
        let books = &server.shared.books;
        books.wait_settled().await;
        let has_text = || {
            let answer = kept_text(&server.shared, &user(), JobRef::whole(job), KeptText::Script);
            matches!(answer, Ok(Answer::KeptText { text: Some(_) }))
        };
        assert!(has_text(), "the job in memory has it");
        let found = server.book_reader().query(&HistoryFilter::default()).expect("the books");
        let [record] = &found[..] else { panic!("{found:?}") };
        let later = |number: u32| JobRecord {
            job: JobId(job.0 + number),
            array_job: Some(job),
            array_task: Some(number),
            end: record.end.map(|end| Timestamp(end.0 + i64::from(number))),
            script: None,
            ..record.clone()
        };
        books.add(LATE_SEQ, (1..=RECORDS_MAX).map(later).collect(), Vec::new(), Vec::new());
        books.wait_settled().await;
        assert!(!has_text(), "as many tasks ended later");
    }
}
