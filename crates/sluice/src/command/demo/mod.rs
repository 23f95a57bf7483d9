//! `sluice demo`: the guided tour, in a scratch cluster of two nodes with eight declared GPUs each. Each scene shows what a
//! user would see and checks it; the exit code is 0 only if every check holds. With `--keep` the cluster stays as a lab to
//! practise in, and each scene is a step of its own.

mod cluster;
mod tour;

use super::verb::{VerbError, VerbResult};
use clap::{Args, Subcommand};
use cluster::DemoCluster;
use std::path::PathBuf;
use std::process::ExitCode;
use tour::Scene;

#[derive(Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct DemoArgs {
    /// Where the evidence goes; without it, a folder beside the state folder, or the lab's own
    #[arg(long)]
    out: Option<PathBuf>,
    /// Leave the cluster running, as a lab to practise in, in the folder that SLUICE_LAB names, or beside the state folder
    #[arg(long)]
    keep: bool,
    #[command(subcommand)]
    step: Option<DemoStep>,
}

// A step in the lab, which is started where it does not run.
#[derive(Subcommand)]
enum DemoStep {
    /// A job with one GPU runs
    Gpu,
    /// A job that can never run is refused at once
    Refusal,
    /// A QOS caps each user at four GPUs
    Limit,
    /// An array fills both nodes, and the rest waits
    Array,
    /// The drain drill: a node is drained, work routes around it, and it comes back
    Drill,
    /// Write what nodes, queue, limits and books say now into a folder
    Evidence { dir: PathBuf },
    /// Stop the lab and remove it
    Down,
}

pub fn run(args: DemoArgs) -> VerbResult {
    match args.step {
        Some(DemoStep::Down) => DemoCluster::lab_down(),
        Some(DemoStep::Evidence { dir }) => {
            let cluster = DemoCluster::lab(Some(dir))?;
            tour::evidence(&cluster).map_err(failed)?;
            println!("evidence: {}", cluster.evidence().display());
            Ok(ExitCode::SUCCESS)
        }
        Some(DemoStep::Gpu) => play(&[Scene::OneGpu]),
        Some(DemoStep::Refusal) => play(&[Scene::TooLarge]),
        Some(DemoStep::Limit) => play(&[Scene::Capped]),
        Some(DemoStep::Array) => play(&[Scene::Array]),
        Some(DemoStep::Drill) => play(&[Scene::Drill]),
        None if args.keep => {
            let cluster = DemoCluster::lab(args.out)?;
            finish(&cluster, tour::play(&cluster, &Scene::ALL))?;
            cluster.tell_lab();
            Ok(ExitCode::SUCCESS)
        }
        None => {
            let mut cluster = DemoCluster::scratch(args.out)?;
            let result = tour::play(&cluster, &Scene::ALL);
            cluster.remove()?;
            finish(&cluster, result)?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// Plays scenes in the lab.
fn play(scenes: &[Scene]) -> VerbResult {
    let cluster = DemoCluster::lab(None)?;
    finish(&cluster, tour::play(&cluster, scenes))?;
    cluster.tell_lab();
    Ok(ExitCode::SUCCESS)
}

fn finish(cluster: &DemoCluster, result: Result<(), String>) -> Result<(), VerbError> {
    println!("\nevidence: {}", cluster.evidence().display());
    result.map_err(failed)?;
    println!("every scene went as it must");
    Ok(())
}

fn failed(what: String) -> VerbError {
    VerbError::Message(format!("the demo did not go as it must: {what}"))
}
