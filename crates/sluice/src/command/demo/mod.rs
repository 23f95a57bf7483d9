//! `sluice demo`: the guided tour, in a scratch cluster of two nodes with eight GPUs each that are
//! only declared. Each scene says what a person would see, and the tour ends with 0 only if each
//! went as it must.

mod scene;
mod stage;

use super::{Done, VerbError};
use clap::Args;
use stage::Stage;
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(Args)]
pub struct DemoArgs {
    /// Where the evidence goes; without it, a new folder in the temporary one
    #[arg(long)]
    out: Option<PathBuf>,
}

pub fn run(args: DemoArgs) -> Done {
    let stage = Stage::set(args.out)?;
    let played = scene::play(&stage);
    let evidence = stage.out.display().to_string();
    stage.strike()?;
    println!("\nevidence: {evidence}");
    match played {
        Ok(()) => {
            println!("every scene went as it must");
            Ok(ExitCode::SUCCESS)
        }
        Err(what) => Err(VerbError::Said(format!("the demo did not go as it must: {what}"))),
    }
}
