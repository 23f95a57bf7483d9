//! `sluice demo`: the guided tour, in a scratch cluster of two nodes with eight declared GPUs each. Each step shows what a
//! user would see and checks it; the exit code is 0 only if every check holds.

mod cluster;
mod tour;

use super::verb::{VerbError, VerbResult};
use clap::Args;
use cluster::DemoCluster;
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(Args)]
pub struct DemoArgs {
    /// Where the evidence goes; without it, a new folder in the temporary one
    #[arg(long)]
    out: Option<PathBuf>,
}

pub fn run(args: DemoArgs) -> VerbResult {
    let cluster = DemoCluster::start(args.out)?;
    let result = tour::run(&cluster);
    let evidence = cluster.evidence().display().to_string();
    cluster.stop()?;
    println!("\nevidence: {evidence}");
    match result {
        Ok(()) => {
            println!("every scene went as it must");
            Ok(ExitCode::SUCCESS)
        }
        Err(what) => Err(VerbError::Message(format!("the demo did not go as it must: {what}"))),
    }
}
