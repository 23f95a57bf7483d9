//! `sluice store check`: whether a stored state can be read back whole. `sluice store migrate`: from files to a database, or back.
//! `sluice store restored`: a database that was set back to an earlier time goes on.

use super::daemon::state_dir::StateDir;
use super::daemon::{as_server_user, server};
use super::progress;
use super::restore::{self, EpochArgs};
use super::verb::{VerbError, VerbResult};
use ::server::DatabaseUrl;
use ::server::backup::restored_database;
use ::server::store_check::{self, StoreReport};
use ::server::store_move::{self, Direction, Moved};
use clap::{Args, Subcommand};
use model::printable::printable;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
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
    /// Move a state from files to PostgreSQL, or back; no server may run
    Migrate(MigrateArgs),
    /// Go on with a database that was restored from a dump or set back; before any server is started
    Restored(RestoredArgs),
}

#[derive(Args)]
struct MigrateArgs {
    /// Where the state is: a state folder, or postgres://USER@HOST/DATABASE
    #[arg(long, value_name = "PLACE")]
    from: String,
    /// Where it goes: the other of the two. The folder is that of a server of the cluster, with its keys
    #[arg(long, value_name = "PLACE")]
    to: String,
    /// The file with the database's password; without it, SLUICE_STORE_PASSWORD has one
    #[arg(long, env = "SLUICE_STORE_PASSWORD_FILE", value_name = "FILE")]
    store_password_file: Option<PathBuf>,
}

#[derive(Args)]
struct RestoredArgs {
    /// The database that was restored
    #[arg(long, env = "SLUICE_STORE", value_name = "URL")]
    store: String,
    /// The file with the database's password; without it, SLUICE_STORE_PASSWORD has one
    #[arg(long, env = "SLUICE_STORE_PASSWORD_FILE", value_name = "FILE")]
    store_password_file: Option<PathBuf>,
    #[command(flatten)]
    epoch: EpochArgs,
}

// The environment counts where the command line names no place: an option that it sets would be one that was given.
#[derive(Args)]
struct CheckArgs {
    /// The state folder, whose server must not run; SLUICE_STATE where no database is named
    #[arg(long, conflicts_with_all = ["store", "store_password_file"])]
    state: Option<PathBuf>,
    /// The database that several servers share, which may run; SLUICE_STORE where no folder is named
    #[arg(long, value_name = "URL")]
    store: Option<String>,
    /// The file with the database's password, or SLUICE_STORE_PASSWORD_FILE; without it, SLUICE_STORE_PASSWORD has one
    #[arg(long, value_name = "FILE")]
    store_password_file: Option<PathBuf>,
}

/// Where a state is.
#[derive(Debug, PartialEq, Eq)]
enum Place {
    Folder(PathBuf),
    Database { url: String, password_file: Option<PathBuf> },
}

impl CheckArgs {
    /// What the command line names comes before what the environment does.
    fn place(&self, variable: impl Fn(&str) -> Option<OsString>) -> Result<Place, VerbError> {
        let variable = |name: &str| variable(name).filter(|value| !value.is_empty());
        if let Some(folder) = &self.state {
            return Ok(Place::Folder(folder.clone()));
        }
        let url = self.store.clone();
        let url = url.or_else(|| Some(variable("SLUICE_STORE")?.to_string_lossy().into_owned()));
        let password_file = self.store_password_file.clone();
        match (url, password_file) {
            (Some(url), file) => {
                let file = file.or_else(|| variable("SLUICE_STORE_PASSWORD_FILE").map(Into::into));
                Ok(Place::Database { url, password_file: file })
            }
            (None, Some(file)) => {
                let fault =
                    format!("--store-password-file {}: no database is named", file.display());
                Err(VerbError::Message(fault))
            }
            (None, None) => {
                let folder = variable("SLUICE_STATE").map(PathBuf::from);
                Ok(Place::Folder(folder.unwrap_or_else(crate::client::default_state_dir)))
            }
        }
    }
}

pub fn run(args: &StoreArgs) -> VerbResult {
    match &args.action {
        Action::Check(args) => check(args),
        Action::Migrate(args) => migrate(args),
        Action::Restored(args) => restored(args),
    }
}

fn is_database(place: &str) -> bool {
    ["postgres://", "postgresql://"].iter().any(|scheme| place.starts_with(scheme))
}

fn migrate(args: &MigrateArgs) -> VerbResult {
    let (folder, url, way) = match (is_database(&args.from), is_database(&args.to)) {
        (false, true) => (&args.from, &args.to, Direction::ToDatabase),
        (true, false) => (&args.to, &args.from, Direction::ToFiles),
        _ => {
            let text = "one of --from and --to is a state folder, and the other postgres://…";
            return Err(VerbError::Message(text.into()));
        }
    };
    let url = DatabaseUrl::parse(url, args.store_password_file.as_deref())
        .map_err(|error| VerbError::Message(error.to_string()))?;
    let state = StateDir::open(Path::new(folder));
    server::refuse_a_second(&state)?;
    // Held until this process and the one that moves the state have ended: a server that a service manager starts meanwhile
    // would write to the place that is being left.
    state.lock()?;
    let (from, to) = (printable(&args.from), printable(&args.to));
    as_server_user::run(&state, |dir| {
        let moved =
            progress::while_working("the state is moved", || store_move::migrate(dir, &url, way));
        let Moved { jobs, seq, term, files } = moved?;
        println!(
            "{from} is in {to} now, and was compared: {jobs} jobs as of event {seq} in term {term}, {files} files of scripts"
        );
        Ok(())
    })?;
    Ok(ExitCode::SUCCESS)
}

fn store_url(url: &str, password_file: Option<&Path>) -> Result<DatabaseUrl, VerbError> {
    DatabaseUrl::parse(url, password_file)
        .map_err(|error| VerbError::Message(format!("--store: {error}")))
}

fn restored(args: &RestoredArgs) -> VerbResult {
    let url = store_url(&args.store, args.store_password_file.as_deref())?;
    let options = args.epoch.options();
    let epoch = reading(|| restored_database::begin_epoch(&url, options))?;
    restore::print_epoch("the state", &printable(url.shown()), &epoch);
    Ok(ExitCode::SUCCESS)
}

fn check(args: &CheckArgs) -> VerbResult {
    let (place, report) = match args.place(|name| std::env::var_os(name))? {
        Place::Database { url, password_file } => {
            let url = store_url(&url, password_file.as_deref())?;
            let place = url.shown().to_owned();
            (place, reading(|| store_check::check_database(url))?)
        }
        Place::Folder(state) => {
            let folder = state.join("server");
            (state.display().to_string(), reading(|| store_check::check_folder(&folder))?)
        }
    };
    print(&place, &report);
    Ok(ExitCode::SUCCESS)
}

fn reading<T>(work: impl FnOnce() -> T) -> T {
    progress::while_working("the state is read", work)
}

fn print(place: &str, report: &StoreReport) {
    let StoreReport { jobs, seq, term, snapshot_seq, replayed, texts, booked, leader } = report;
    let books = match booked {
        Some(records) => format!("books of {records} records"),
        None => "no books".to_owned(),
    };
    println!(
        "{place} is sound: {jobs} jobs as of event {seq} in term {term}; {replayed} events after the snapshot of {snapshot_seq}; {texts} scripts and environments; {books}"
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

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        check: CheckArgs,
    }

    fn checked(line: &str, variables: &[(&str, &str)]) -> Option<Place> {
        let words = std::iter::once("check").chain(line.split_whitespace());
        let args = Line::try_parse_from(words).ok()?.check;
        let variable = |wanted: &str| {
            let found = variables.iter().find(|(name, _)| *name == wanted);
            found.map(|(_, value)| OsString::from(value))
        };
        args.place(variable).ok()
    }

    #[test]
    fn place_that_the_command_line_names_is_checked_and_only_one() {
        let folder = |path: &str| Some(Place::Folder(path.into()));
        let database = |url: &str, file: Option<&str>| {
            Some(Place::Database { url: url.into(), password_file: file.map(Into::into) })
        };
        let set = [
            ("SLUICE_STORE", "postgres://e/e"),
            ("SLUICE_STORE_PASSWORD_FILE", "/e"),
            ("SLUICE_STATE", "/state"),
        ];
        for (line, variables, expected) in [
            ("--state /s", &set[..], folder("/s")),
            ("--store postgres://s/s", &set, database("postgres://s/s", Some("/e"))),
            ("", &set, database("postgres://e/e", Some("/e"))),
            ("--store-password-file /f", &set, database("postgres://e/e", Some("/f"))),
            ("", &set[2..], folder("/state")),
            ("", &[("SLUICE_STORE", ""), set[2]], folder("/state")),
            ("--store-password-file /f", &set[2..], None),
            ("--state /s --store postgres://s/s", &[], None),
            ("--state /s --store-password-file /f", &[], None),
        ] {
            assert_eq!(checked(line, variables), expected, "{line} {variables:?}");
        }
    }
}
