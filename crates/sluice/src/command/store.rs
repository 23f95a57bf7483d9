//! `sluice store check`: whether a stored state can be read back whole.

use super::verb::{VerbError, VerbResult};
use ::server::DatabaseUrl;
use ::server::store_check::{self, StoreReport};
use clap::{Args, Subcommand};
use model::printable::printable;
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(Args)]
pub struct StoreArgs {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Read a stored state back, and say what it has or what is wrong with it
    Check(CheckArgs),
}

#[derive(Args)]
struct CheckArgs {
    /// The state folder, whose server must not run; without --store
    #[arg(long, env = "SLUICE_STATE")]
    state: Option<PathBuf>,
    /// The database that several servers share; they may run
    #[arg(long, value_name = "URL")]
    store: Option<String>,
    /// The file with the database's password; without it, SLUICE_STORE_PASSWORD has one
    #[arg(long, value_name = "FILE", requires = "store")]
    store_password_file: Option<PathBuf>,
}

pub fn run(args: &StoreArgs) -> VerbResult {
    let Action::Check(args) = &args.action;
    let (place, report) = match &args.store {
        Some(url) => {
            let url = DatabaseUrl::parse(url, args.store_password_file.as_deref())
                .map_err(|error| VerbError::Message(format!("--store: {error}")))?;
            (url.shown().to_owned(), store_check::check_database(url)?)
        }
        None => {
            let state = args.state.clone().unwrap_or_else(crate::client::default_state_dir);
            (state.display().to_string(), store_check::check_folder(&state.join("server"))?)
        }
    };
    print(&place, &report);
    Ok(ExitCode::SUCCESS)
}

fn print(place: &str, report: &StoreReport) {
    let StoreReport { jobs, seq, term, snapshot_seq, replayed, leader } = report;
    println!(
        "{place} is sound: {jobs} jobs as of event {seq} in term {term}; {replayed} events after the snapshot of {snapshot_seq}"
    );
    if let Some(leader) = leader {
        let holder = printable(&leader.holder);
        match (leader.epoch, leader.is_valid) {
            (0, _) => println!("no server has led yet"),
            (_, true) => println!("{holder} leads"),
            (_, false) => println!("nobody leads; {holder} did last"),
        }
    }
}
