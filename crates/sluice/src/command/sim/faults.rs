//! `sluice sim faults`: histories of random faults, one for each seed. Needs no server.

use super::VerbResult;
use super::progress::Progress;
use crate::command::verb::in_columns;
use ::sim::faults::{self, Counts, Failure, Finished, Options};
use clap::Args;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::Instant;

#[derive(Args)]
pub struct FaultArgs {
    /// Run the histories of so many seeds, from 0 or from --seed on
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u64).range(1..))]
    seeds: u64,
    /// The first seed, or the only one
    #[arg(long, value_name = "S", default_value_t = 0)]
    seed: u64,
    /// Events of a history before its faults stop
    #[arg(long, value_name = "N", default_value_t = faults::EVENTS,
          value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    events: u64,
    /// Run so many histories at a time
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u64).range(1..=256))]
    cores: u64,
}

/// Histories that failed and are shown; the seeds of the others are counted alone.
const SHOWN_MAX: u64 = 3;

pub fn run(args: &FaultArgs) -> VerbResult {
    let FaultArgs { seeds, seed: first, events, cores } = *args;
    let options = Options { events, ..Options::default() };
    let mut progress = Progress::new();
    let begun = Instant::now();
    let (mut counts, mut failed, mut end) = (Counts::default(), 0, None);
    let mut done = 0;
    let mut take = |outcome: Result<Finished, Box<Failure>>| {
        match outcome {
            Ok(finished) => {
                counts.add(&finished.counts);
                end = Some(finished);
            }
            Err(failure) => {
                failed += 1;
                if failed <= SHOWN_MAX {
                    progress.clear();
                    println!("{failure}\n");
                }
            }
        }
        done += 1;
        progress.say(&format!("{done} of {seeds} histories, {failed} failed"));
    };
    run_histories(first, seeds, cores, &options, &mut take);
    progress.clear();
    print!("{}", table(seeds, failed, &counts));
    // One history says where its journal ends: the same seed gives the same line.
    if let (1, Some(Finished { end_seq, end_chain, .. })) = (seeds, end) {
        let chain: String = end_chain.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        println!("\nthe journal ends at {end_seq} with {chain}");
    } else {
        let seconds = begun.elapsed().as_secs_f64().max(0.001);
        let rate = seeds as f64 / seconds;
        // With the events after the last fault a history has more than were asked for.
        let thousands = counts.events as f64 / 1_000.0 / seconds;
        let on = if cores == 1 { "one core".to_owned() } else { format!("{cores} cores") };
        println!("\n{rate:.1} histories a second on {on}: {thousands:.1} of 1,000 events each");
    }
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Runs the histories of these seeds, so many at a time, and hands each to `take` once it is over. Each has one thread alone.
fn run_histories(
    first: u64,
    seeds: u64,
    cores: u64,
    options: &Options,
    take: &mut impl FnMut(Result<Finished, Box<Failure>>),
) {
    let next = &AtomicU64::new(0);
    let (results, finished) = mpsc::channel();
    std::thread::scope(|scope| {
        for _ in 0..cores.min(seeds) {
            let results = results.clone();
            scope.spawn(move || {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let is_wanted = at < seeds;
                    if !is_wanted
                        || results.send(faults::history(first.wrapping_add(at), options)).is_err()
                    {
                        return;
                    }
                }
            });
        }
        drop(results);
        finished.into_iter().for_each(take);
    });
}

fn table(seeds: u64, failed: u64, counts: &Counts) -> String {
    let rows = [
        ("histories", seeds),
        ("failed", failed),
        ("events", counts.events),
        ("messages", counts.messages),
        ("events in journals", counts.journalled),
        ("attempts launched", counts.launches),
        ("faults", counts.faults),
        ("servers killed", counts.server_deaths),
        ("commits that failed", counts.failed_commits),
        ("links that lost messages", counts.lossy_links),
        ("messages that came twice", counts.doubled),
    ];
    in_columns(&rows.map(|(name, value)| [name.to_owned(), value.to_string()]))
}
