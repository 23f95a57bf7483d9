//! `sdiag`: the counters, and how much waits where.

use crate::clock;
use crate::shared::Shared;
use cluster::visibility::Viewer;
use model::principal::Principal;
use wire::diagnostics::DiagnosticsView;

pub fn diagnostics(shared: &Shared, by: &Principal) -> DiagnosticsView {
    let mut counters = shared.volatile.counters.snapshot();
    let (pending, running) = {
        let state = shared.read();
        // An array counts as one pending job, as in Slurm.
        let pending = state.jobs.values().filter(|job| job.is_waiting()).count();
        let viewer = Viewer::new(&state, by);
        counters.users.retain(|user| viewer.user(&user.name));
        (pending as u64, state.active.len() as u64)
    };
    let (agents, orders_queued) = shared.agents.queued();
    DiagnosticsView {
        now: clock::now(),
        since: counters.since,
        calls_open: counters.calls_open,
        orders_queued,
        agents,
        books_queued: u64::from(!shared.books.is_settled()),
        jobs: counters.jobs,
        pending,
        running,
        plans: counters.plans,
        clock_us: counters.clock_us,
        calls: counters.calls,
        users: counters.users,
    }
}
