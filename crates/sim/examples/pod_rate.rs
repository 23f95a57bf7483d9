//! How long the real state machine and scheduler take for each pod of a list.
//!
//! `cargo run --release -p sim --example pod_rate NODES PODS [PERCENT [SEED]]`: both lists as `sluice sim` reads them, and how much of
//! the GPUs the pods that come ask for; 100.

use sim::trace::pods::{read_nodes, read_pods};
use sim::{Arrivals, replay_pods};
use std::fs::File;
use std::time::Instant;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [nodes, pods, rest @ ..] = args.as_slice() else {
        panic!("pod_rate NODES PODS [PERCENT [SEED]]");
    };
    let number = |at: usize| rest.get(at).map(|text| text.parse::<u32>().expect("a number"));
    let nodes = read_nodes(File::open(nodes).expect("the list of nodes")).expect("nodes");
    let pods = read_pods(File::open(pods).expect("the list of pods")).expect("pods");
    let arrivals =
        Arrivals { percent: number(0).unwrap_or(100), seed: number(1).unwrap_or(0).into() };
    let began = Instant::now();
    let summary = replay_pods(&nodes, &pods, arrivals, |_, _| {}).expect("a replay");
    let took = began.elapsed();
    println!("{summary:?}");
    println!(
        "{:.1} s, {:.0} µs a pod",
        took.as_secs_f64(),
        took.as_secs_f64() * 1e6 / summary.pods.max(1) as f64
    );
}
