//! What the verbs of `sluice` share: the options that say where the server is, and how a verb fails.

use super::program_name::program_name;
use crate::client::{Client, ClientError, ServerLocation, default_state_dir};
use clap::Args;
use std::path::PathBuf;
use std::process::ExitCode;
use wire::client::{Answer, Call};

// Which server is meant. The environment is read by `ServerLocation::find`: what an option reads from it would be shown as given in
// the usage line of every mistake, and a variable could win over the other option.
#[derive(Args, Clone, Default)]
pub struct ServerLocationArgs {
    /// The server: https://HOST:PORT (with SLUICE_TOKEN, or after `sluice login`), http:// on loopback, or the path of its
    /// socket; else SLUICE_SERVER says it
    #[arg(long)]
    pub server: Option<String>,
    /// The state folder of a server on this machine; else SLUICE_STATE says it
    #[arg(long)]
    pub state: Option<PathBuf>,
}

impl ServerLocationArgs {
    pub fn client(&self) -> Result<Client, ClientError> {
        match (&self.server, &self.state) {
            (Some(server), _) => ServerLocation::from_server(server).map(Client::at),
            (None, Some(state)) => Ok(Client::at(ServerLocation::in_state(state))),
            (None, None) => Client::find(),
        }
    }

    /// The state folder of a server on this machine.
    pub fn state_dir(&self) -> PathBuf {
        let named = || std::env::var_os("SLUICE_STATE").map(PathBuf::from);
        self.state.clone().or_else(named).unwrap_or_else(default_state_dir)
    }
}

/// Why a verb failed: one or more lines for the user.
#[derive(Debug, thiserror::Error)]
pub enum VerbError {
    #[error("{0}")]
    Client(#[from] ClientError),
    #[error("{0}")]
    Server(#[from] ::server::ServerError),
    #[error("{path}: {source}")]
    File { path: PathBuf, source: std::io::Error },
    #[error("{0}")]
    Refused(#[from] model::reason::Refusal),
    #[error("{0}")]
    Message(String),
}

impl VerbError {
    pub fn print(&self) {
        let program = program_name();
        for line in self.to_string().lines() {
            eprintln!("{program}: error: {line}");
        }
        if let Self::Client(error) = self
            && let Some(hint) = error.hint()
        {
            eprintln!("{program}: note: {hint}");
        }
    }

    pub fn file(path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |source| Self::File { path, source }
    }
}

/// Asks; a refusal ends the command.
pub fn ask(client: &mut Client, call: Call) -> Result<Answer, VerbError> {
    taken(client.call(call)?)
}

/// The same of a server that was there a moment ago, for what may be asked twice: one that is killed while it is asked is waited for.
pub fn ask_again(client: &mut Client, call: Call) -> Result<Answer, VerbError> {
    taken(client.call_again(call)?)
}

fn taken(answer: Answer) -> Result<Answer, VerbError> {
    match answer {
        Answer::Refused(why) => Err(why.into()),
        answer => Ok(answer),
    }
}

/// An answer to another question. It is shown cut: it may be long.
pub fn unexpected(answer: &Answer) -> VerbError {
    let text: String = format!("{answer:?}").chars().take(80).collect();
    VerbError::Message(format!("the server answered something else than was asked: {text}"))
}

/// Says in a line each that these users are not known on this machine, where the server is on it: a typing error more often
/// than not. They may be known on the nodes all the same.
pub fn note_unknown_users<'a>(client: &Client, names: impl IntoIterator<Item = &'a str>) {
    if client.location().is_remote() {
        return;
    }
    for name in names {
        if matches!(nix::unistd::User::from_name(name), Ok(None)) {
            eprintln!("{}: note: user {name:?} is not known on this machine", program_name());
        }
    }
}

/// Lines of cells as text in columns, each as wide as its widest cell.
pub fn in_columns<const COLUMNS: usize>(lines: &[[String; COLUMNS]]) -> String {
    let width = |column: usize| lines.iter().map(|l| l[column].chars().count()).max();
    let widths: Vec<usize> = (0..COLUMNS).map(|column| width(column).unwrap_or(0)).collect();
    let mut text = String::new();
    for line in lines {
        let cells = line.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
        text += cells.collect::<Vec<_>>().join("  ").trim_end();
        text.push('\n');
    }
    text
}

pub type VerbResult = Result<ExitCode, VerbError>;
