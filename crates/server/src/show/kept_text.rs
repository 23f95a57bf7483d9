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

pub fn kept_text(
    shared: &Shared,
    by: &Principal,
    job: JobRef,
    of: KeptText,
) -> Result<Answer, Refusal> {
    let unknown = Refusal::UnknownJob(job.shown_id());
    let filter = HistoryFilter { jobs: vec![job], ..HistoryFilter::default() };
    let records = history::history(shared, by, &filter)?;
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
