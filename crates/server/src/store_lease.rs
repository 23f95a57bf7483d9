//! Work on a state in a database while no server leads: the lease is held meanwhile.

use crate::error::ServerError;
use std::sync::Arc;
use std::time::Duration;
use store::postgres::{Database, DatabaseUrl, Lease, Taken};

/// The lease is renewed as a server does: a longer one is taken for that of a clock that was set back.
const LEASE_LIFE: Duration = Duration::from_secs(2);
const RENEW_INTERVAL: Duration = Duration::from_millis(500);

/// Makes the database ready by `prepare`, takes the lease as `holder`, and does `work` with its epoch. Refused while a server leads.
pub fn while_nobody_leads<T>(
    url: &DatabaseUrl,
    holder: &str,
    prepare: impl FnOnce(&Database) -> Result<(), ServerError>,
    work: impl FnOnce(&Arc<Database>, i64) -> Result<T, ServerError>,
) -> Result<T, ServerError> {
    let session = || {
        Database::new(url.clone())
            .map_err(|e| ServerError::Other(format!("cannot start a thread: {e}")))
    };
    let (database, for_lease) = (session()?, session()?);
    prepare(&database)?;
    let lease = match Lease::take(&for_lease, holder, LEASE_LIFE)? {
        Taken::Leading(lease) => Arc::new(lease),
        Taken::Waiting(leader) => {
            let why = format!("{} leads: stop every server first", leader.holder);
            return Err(ServerError::Other(format!("{}: {why}", database.shown())));
        }
    };
    let kept = lease.clone();
    std::thread::spawn(move || {
        // One that is lost is found by the next write, which the database refuses.
        while !kept.is_released() && kept.renew().is_ok() {
            std::thread::sleep(RENEW_INTERVAL);
        }
    });
    let done = work(&database, lease.epoch());
    // The lease is released after an error too: a server may lead again.
    lease.release()?;
    done
}
