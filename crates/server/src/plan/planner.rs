//! The planner's thread: beside the writer, on a view of its own. It runs on a signal and on a timer.
//!
//! Its decisions go back as commands and are checked again when they are applied, so a long plan
//! never holds up a submit, and a plan that has been overtaken does no harm.

use crate::clock;
use crate::shared::counters::PlanFigures;
use crate::shared::{LastPlan, Shared};
use cluster::Command;
use cluster::command::plan_commands;
use cluster::view::builder::ViewBuilder;
use sched::machines::{MachinePlan, machines};
use std::time::{Duration, Instant};

/// A plan is made at least this often while anything waits: for begin times and throttles.
const PERIOD: Duration = Duration::from_secs(1);

/// How much longer than a plan in vain took the pause after it is while only new jobs come, and the least and the most of that. With a
/// short queue each submit would otherwise wake the planner beside the next submit.
const VAIN_PAUSE_FACTOR: u32 = 2;
const VAIN_PAUSE_MIN: Duration = Duration::from_millis(2);
const VAIN_PAUSE_MAX: Duration = Duration::from_millis(100);

/// A plan that takes longer is logged.
const SLOW_PLAN: Duration = Duration::from_secs(5);

/// Plans until the process ends.
pub fn run(shared: &Shared) -> ! {
    let (mut view_builder, mut memo) = (ViewBuilder::default(), sched::Memo::default());
    loop {
        shared.planner.wait(PERIOD);
        let begun = Instant::now();
        let started = plan_once(shared, &mut view_builder, &mut memo);
        // With a long queue and nothing free, each submit would otherwise cost a whole plan: half of one processor is the most
        // that planning in vain may take, and a quarter where only new jobs come, whose submits need it themselves.
        if !started {
            let took = begun.elapsed().min(PERIOD);
            let more = (took * VAIN_PAUSE_FACTOR).clamp(VAIN_PAUSE_MIN, VAIN_PAUSE_MAX);
            shared.planner.pause(took, more);
        }
    }
}

/// Makes a plan and carries it out; whether it started anything.
pub fn plan_once(shared: &Shared, view_builder: &mut ViewBuilder, memo: &mut sched::Memo) -> bool {
    let now = clock::now();
    let (view, machine_view) = {
        let state = shared.read();
        let view = view_builder.update(&state, now);
        // The offers of a source are many: they are copied only for a plan that may need a machine.
        let may_need = state.has_sources() && !view.queue.is_empty();
        let machine_view = may_need.then(|| state.machine_view(now));
        (view, machine_view)
    };
    if view.queue.is_empty() && !view.running.iter().any(|running| running.resume_when_free) {
        return false;
    }
    let begun = Instant::now();
    let mut plan = sched::plan(view, now, memo);
    let machines = machine_view.map(|there| machines(view, &plan, now, &there));
    // Packing jobs on machines is a part of the plan: what it takes counts.
    let figures = PlanFigures::of(begun.elapsed(), view.queue.len(), &plan);
    log_if_slow(figures.took, view.queue.len());
    shared.volatile.counters.add_plan(&figures);
    shared.volatile.totals.add_plan(figures.took);
    let MachinePlan { orders, answers } = machines.unwrap_or_default();
    let mut last_plan = LastPlan {
        planned: Some(now),
        reasons: std::mem::take(&mut plan.reasons).into_iter().collect(),
        estimates: plan.estimates.iter().map(|e| (e.job, e.start)).collect(),
        machines: answers.into_iter().collect(),
    };
    last_plan.await_machines();
    shared.volatile.set_last_plan(last_plan);
    let mut commands = plan_commands(plan, now);
    commands.extend(orders.into_iter().map(|order| Command::AskMachine(Box::new(order))));
    // The next plan must see what became of these, or it would propose them again.
    let any = !commands.is_empty();
    shared.writer.run_internal_batch(commands);
    any
}

fn log_if_slow(took: Duration, queue: usize) {
    if took >= SLOW_PLAN {
        tracing::warn!(took_ms = took.as_millis() as u64, queue, "slow plan");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::logged;

    #[test]
    fn slow_plan_is_logged_with_its_length_and_the_queues() {
        let lines = |took| logged(|| log_if_slow(took, 3));
        assert!(lines(SLOW_PLAN - Duration::from_millis(1)).is_empty());
        assert_eq!(lines(SLOW_PLAN), ["WARN slow plan took_ms=5000 queue=3"]);
    }
}
