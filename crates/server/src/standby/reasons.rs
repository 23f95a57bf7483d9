//! Why jobs wait. The leader's plans are in no history: a standby makes plans of its own, of which nothing comes but the reasons and
//! estimates that it shows.

use super::Standby;
use crate::error::ServerError;
use crate::plan::planner::plan_once;
use cluster::view::builder::ViewBuilder;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How old the reasons may become while the state changes.
const INTERVAL: Duration = Duration::from_secs(10);
/// A plan of a long queue is made more seldom: so many times as long as it takes lie between two.
const PAUSE_FACTOR: u32 = 20;
/// How soon the end of the standby is noticed.
const LOOK: Duration = Duration::from_millis(500);

/// Starts the thread, which ends with the standby.
pub fn start(standby: &Arc<Standby>) -> Result<(), ServerError> {
    let mut commits = standby.shared.commits.subscribe();
    let standby = Arc::downgrade(standby);
    let work = move || {
        let (mut view_builder, mut memo) = (ViewBuilder::default(), sched::Memo::default());
        let mut due = Instant::now();
        // The first plan is of the state as it was read; the sender goes with the standby.
        commits.mark_changed();
        while let Some(standby) = standby.upgrade() {
            if Instant::now() >= due && commits.has_changed().unwrap_or(false) {
                commits.mark_unchanged();
                let begun = Instant::now();
                // Its commands lead nowhere: nobody takes work from a standby's writer.
                plan_once(&standby.shared, &mut view_builder, &mut memo);
                due = Instant::now() + INTERVAL.max(begun.elapsed() * PAUSE_FACTOR);
            }
            drop(standby);
            std::thread::sleep(LOOK);
        }
    };
    let started = std::thread::Builder::new().name("standby-plan".into()).spawn(work);
    started.map(drop).map_err(|e| ServerError::Other(format!("cannot start a thread: {e}")))
}
