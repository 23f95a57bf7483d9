//! `dstack delete`: finds ended runs in memory or in the books, and has them deleted.

use crate::shared::Shared;
use crate::show::history;
use cluster::Command;
use cluster::command::EndedRun;
use model::id::RunId;
use model::principal::Principal;
use model::reason::Refusal;
use model::record::HistoryFilter;
use std::sync::Arc;
use tokio::task::block_in_place;
use wire::client::Answer;

pub async fn delete(
    shared: &Arc<Shared>,
    by: Principal,
    runs: &[RunId],
) -> Result<Answer, Refusal> {
    let filter =
        HistoryFilter { runs: runs.to_vec(), without_deleted: true, ..HistoryFilter::default() };
    let records = block_in_place(|| history::history(shared, &by, &filter))?;
    let ended: Vec<EndedRun> = runs
        .iter()
        .map(|run| {
            let record = records.iter().find(|record| record.run == *run);
            let record = record.ok_or_else(|| Refusal::UnknownJob(run.to_string()))?;
            let (name, account) = (record.name.clone(), record.account.clone());
            Ok(EndedRun { run: *run, name, owner: record.uid, account })
        })
        .collect::<Result<_, Refusal>>()?;
    if !ended.is_empty() {
        shared.writer.run(Command::DeleteRuns(ended), by).await?;
        shared.books.wait_settled().await;
    }
    Ok(Answer::Done)
}
