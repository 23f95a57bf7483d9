//! `sdiag`: the counters of the server.

use crate::output::Moment;
use crate::output::text::push;
use crate::words::rpc;
use model::time::Timestamp;
use std::cmp::Reverse;
use std::fmt::Write;
use wire::client::ServerView;
use wire::diagnostics::{DiagnosticsView, PlanCounts};

/// The order of the lines about RPCs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum CallOrder {
    #[default]
    Count,
    /// `-i`
    Number,
    /// `-t`
    TotalTime,
    /// `-T`
    MeanTime,
}

/// A line for each of several servers; nothing of one alone.
pub fn servers(servers: &[ServerView]) -> String {
    if servers.is_empty() {
        return String::new();
    }
    let mut text = String::from("\nServers\n");
    for server in servers {
        let does = match (server.is_leader, server.is_up()) {
            (true, _) => format!("leads, term {}", server.term),
            (false, true) => format!("follows, {} events behind", server.events_behind),
            (false, false) => "is down".to_owned(),
        };
        text += &format!("\t{}: {does}\n", server.shown_among(servers));
    }
    text
}

const RULE: &str = "*******************************************************";

pub fn render(view: &DiagnosticsView, order: CallOrder, moment: Moment<'_>) -> String {
    let mut text = String::new();
    let date = |time: Timestamp| {
        let line = Moment { now: time, ..moment }.date_line();
        format!("{line} ({})", time.secs())
    };
    push!(text, "{RULE}\nsdiag output at {}\n", date(view.now));
    push!(text, "Data since      {}\n{RULE}\n", date(view.since));
    push!(text, "Server thread count:  {}\n", view.calls_open);
    push!(text, "Agent queue size:     {}\n", view.orders_queued);
    push!(text, "Agent count:          {}\n", view.agents);
    push!(text, "Agent thread count:   {}\n", view.agents);
    push!(text, "DBD Agent queue size: {}\n\n", view.books_queued);
    let jobs = &view.jobs;
    push!(text, "Jobs submitted: {}\n", jobs.submitted);
    push!(text, "Jobs started:   {}\n", jobs.started);
    push!(text, "Jobs completed: {}\n", jobs.completed);
    push!(text, "Jobs canceled:  {}\n", jobs.cancelled);
    push!(text, "Jobs failed:    {}\n\n", jobs.failed);
    push!(text, "Job states ts:  {}\n", date(view.now));
    push!(text, "Jobs pending:   {}\nJobs running:   {}\n\n", view.pending, view.running);
    push_main(&mut text, view);
    push_backfill(&mut text, &view.plans, date);
    push!(text, "Latency for 1000 calls to gettimeofday(): {} microseconds\n\n", view.clock_us);
    push_calls(&mut text, view, order);
    text.push_str("\nPending RPC statistics\n\tNo pending RPCs\n");
    text
}

fn push_main(text: &mut String, view: &DiagnosticsView) {
    let plans = &view.plans;
    text.push_str("Main schedule statistics (microseconds):\n");
    push!(text, "\tLast cycle:   {}\n\tMax cycle:    {}\n", plans.last_us, plans.max_us);
    push!(text, "\tTotal cycles: {}\n", plans.made);
    if let Some(mean) = plans.total_us.checked_div(plans.made) {
        push!(text, "\tMean cycle:   {mean}\n");
        push!(text, "\tMean depth cycle:  {}\n", plans.total_queue / plans.made);
    }
    let minutes = u64::try_from((view.now.secs() - view.since.secs()) / 60).unwrap_or(0);
    if let Some(pace) = plans.made.checked_div(minutes) {
        push!(text, "\tCycles per minute: {pace}\n");
    }
    push!(text, "\tLast queue length: {}\n\n", plans.last_queue);
}

/// The counters of the same plans under Slurm's heading for backfill: every plan backfills.
fn push_backfill(text: &mut String, plans: &PlanCounts, date: impl Fn(Timestamp) -> String) {
    let mean = |total: u64| total.checked_div(plans.made);
    let last_at = plans.last_at.map_or_else(|| "N/A".to_owned(), date);
    text.push_str("Backfilling stats\n");
    let total = "Total backfilled jobs (since last";
    push!(text, "\t{total} slurm start): {}\n", plans.backfilled_since_start);
    push!(text, "\t{total} stats cycle start): {}\n", plans.backfilled);
    text.push_str("\tTotal backfilled heterogeneous job components: 0\n");
    push!(text, "\tTotal cycles: {}\n\tLast cycle when: {last_at}\n", plans.made);
    push!(text, "\tLast cycle: {}\n\tMax cycle:  {}\n", plans.last_us, plans.max_us);
    if let Some(mean) = mean(plans.total_us) {
        push!(text, "\tMean cycle: {mean}\n");
    }
    push!(text, "\tLast depth cycle: {}\n", plans.last_queue);
    push!(text, "\tLast depth cycle (try sched): {}\n", plans.last_tried);
    if let (Some(depth), Some(tried)) = (mean(plans.total_queue), mean(plans.total_tried)) {
        push!(text, "\tDepth Mean: {depth}\n\tDepth Mean (try depth): {tried}\n");
    }
    push!(text, "\tLast queue length: {}\n", plans.last_queue);
    if let Some(mean) = mean(plans.total_queue) {
        push!(text, "\tQueue length mean: {mean}\n");
    }
    push!(text, "\tLast table size: {}\n", plans.last_slots);
    if let Some(mean) = mean(plans.total_slots) {
        push!(text, "\tMean table size: {mean}\n");
    }
    text.push('\n');
}

/// The calls of one kind or one user.
struct CallRow {
    name: String,
    number: u32,
    count: u64,
    total_us: u64,
}

impl CallRow {
    fn mean(&self) -> u64 {
        self.total_us.checked_div(self.count).unwrap_or(0)
    }
}

fn push_calls(text: &mut String, view: &DiagnosticsView, order: CallOrder) {
    let calls = view.calls.iter().map(|call| {
        let (name, number) = rpc::name(call.kind);
        CallRow { name: name.to_owned(), number, count: call.count, total_us: call.total_us }
    });
    text.push_str("Remote Procedure Call statistics by message type\n");
    for line in sorted(calls.collect(), order) {
        push!(text, "\t{:<40}({:>5}) ", line.name, line.number);
        push_figures(text, &line);
    }
    let users = view.users.iter().map(|user| CallRow {
        name: user.name.clone(),
        number: user.uid,
        count: user.count,
        total_us: user.total_us,
    });
    text.push_str("\nRemote Procedure Call statistics by user\n");
    for line in sorted(users.collect(), order) {
        push!(text, "\t{:<16}({:>8}) ", line.name, line.number);
        push_figures(text, &line);
    }
}

fn push_figures(text: &mut String, line: &CallRow) {
    let (count, mean, total) = (line.count, line.mean(), line.total_us);
    push!(text, "count:{count:<6} ave_time:{mean:<6} total_time:{total}\n");
}

fn sorted(mut lines: Vec<CallRow>, order: CallOrder) -> Vec<CallRow> {
    lines.sort_by_key(|line| {
        let by = match order {
            CallOrder::Count => line.count,
            CallOrder::Number => 0,
            CallOrder::TotalTime => line.total_us,
            CallOrder::MeanTime => line.mean(),
        };
        (Reverse(by), line.number)
    });
    lines
}

#[cfg(test)]
mod tests;
