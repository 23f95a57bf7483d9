//! A database that was restored from a dump, or set back to an earlier time: what its servers did since is in no history, and agents
//! know newer terms. A new epoch is begun there before any server leads.

use super::new_epoch::{self, NewEpoch, RestoreOptions};
use crate::error::ServerError;
use crate::store_lease::while_nobody_leads;
use crate::writer::recover::StateDisks;
use store::postgres::{self, Database, DatabaseUrl};

/// Who holds the lease meanwhile.
const HOLDER: &str = "sluice store restored";

/// Begins a new epoch in the database. Refused while a server leads.
pub fn begin_epoch(url: &DatabaseUrl, options: RestoreOptions) -> Result<NewEpoch, ServerError> {
    let prepare = |database: &Database| {
        // What another program would have to make first is not a restored state.
        postgres::check(database)?;
        postgres::refuse_moved(database)?;
        Ok(postgres::bring_up_to_date(database)?)
    };
    while_nobody_leads(url, HOLDER, prepare, |database, epoch| {
        let recovered = StateDisks::in_database(database, epoch).recover()?;
        if let Some(loss) = &recovered.recovery.loss {
            return Err(ServerError::Other(loss.to_string()));
        }
        if recovered.journal.last_seq() == 0 {
            let text = format!("{}: no server has kept its state there", database.shown());
            return Err(ServerError::Other(text));
        }
        new_epoch::begin(recovered, options)
    })
}
