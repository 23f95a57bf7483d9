//! How many histories of faults one core goes through in a second, and where they end.
//!
//! `cargo run --release -p sim --example faults_rate [SEEDS [FIRST]]`: the hash over the ends of all journals is the same for the
//! same seeds, as long as neither the histories nor what is written of them change.

use sim::faults::{Options, history};
use std::time::Instant;

const SEEDS: u64 = 50;

fn main() {
    let mut args = std::env::args().skip(1).map(|text| text.parse::<u64>().expect("a number"));
    let seeds = args.next().unwrap_or(SEEDS);
    let first = args.next().unwrap_or(0);
    let began = Instant::now();
    let (mut events, mut ends) = (0, 0_u64);
    for seed in first..first + seeds {
        match history(seed, &Options::default()) {
            Ok(finished) => {
                events += finished.counts.events;
                let end = finished.end_chain.iter().take(8);
                let end = end.fold(0_u64, |end, byte| end << 8 | u64::from(*byte));
                ends = ends.rotate_left(7) ^ end;
            }
            Err(failure) => println!("{failure}"),
        }
    }
    let took_s = began.elapsed().as_secs_f64();
    println!(
        "{:.1} histories a second; {} events a history; ends {ends:016x}",
        seeds as f64 / took_s,
        events / seeds.max(1)
    );
}
