//! What time brings: a tick to the writer each second, and allocations that nobody holds.

use crate::clock;
use crate::shared::Shared;
use cluster::Command;
use model::id::JobId;
use model::run::LaunchKind;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

const PERIOD: Duration = Duration::from_secs(1);

/// An interactive allocation without a client is given back after this long: a client that lost
/// the server has so much time to find it again.
const HOLDER_GRACE_MS: i64 = 30_000;

pub async fn run(shared: Arc<Shared>) {
    let mut unheld: HashMap<JobId, i64> = HashMap::new();
    let mut timer = tokio::time::interval(PERIOD);
    timer.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        timer.tick().await;
        shared.writer.tell_later(Command::Tick { booked: shared.books.is_settled() });
        forsaken(&shared, &mut unheld);
    }
}

fn forsaken(shared: &Shared, unheld: &mut HashMap<JobId, i64>) {
    let now = clock::now().0;
    let interactive: Vec<JobId> = {
        let state = shared.read();
        let alive = state.jobs.values().filter(|j| !j.has_ended());
        alive.filter(|j| j.spec.launch.kind == LaunchKind::Interactive).map(|j| j.id).collect()
    };
    let holders = shared.volatile.holders.lock().expect("no panic with it held");
    unheld.retain(|job, _| interactive.contains(job) && !holders.contains_key(job));
    for job in interactive.into_iter().filter(|j| !holders.contains_key(j)) {
        let since = *unheld.entry(job).or_insert(now);
        if now - since > HOLDER_GRACE_MS {
            shared.writer.tell_later(Command::HolderLost { job });
        }
    }
}
