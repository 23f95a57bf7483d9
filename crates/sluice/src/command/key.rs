//! `sluice key`: the public keys with which a user comes in by ssh.

use super::verb::{VerbError, VerbResult};
use crate::client::Client;
use clap::{Args, Subcommand};
use model::printable::printable;
use std::io::Read;
use std::path::PathBuf;
use std::process::ExitCode;
use wire::client::{Answer, Call};
use wire::ssh::{SshAnswer, SshRequest};

/// A public key's file is never longer.
const FILE_BYTES_MAX: u64 = 64 << 10;

#[derive(Args)]
pub struct KeyArgs {
    /// The user whose keys are meant, instead of one's own; for administrators
    #[arg(long, global = true)]
    user: Option<String>,
    #[command(subcommand)]
    verb: KeyVerb,
}

#[derive(Subcommand)]
enum KeyVerb {
    /// Register a public key
    Add {
        /// Its file, as in ~/.ssh/id_ed25519.pub; - for standard input
        file: PathBuf,
    },
    /// List the registered keys
    List,
    /// Remove a key
    Remove {
        /// Its fingerprint, or its comment
        key: String,
    },
    /// Replace the key that the server holds for dstack's client and `sluice attach`
    Renew,
}

pub fn run(args: KeyArgs) -> VerbResult {
    let request = match args.verb {
        KeyVerb::Add { file } => SshRequest::Add { key: read(&file)? },
        KeyVerb::List => SshRequest::List,
        KeyVerb::Remove { key } => SshRequest::Remove { key },
        KeyVerb::Renew => SshRequest::Renew,
    };
    let lists = request == SshRequest::List;
    let answer = ask(&mut Client::find()?, args.user, request)?;
    if lists {
        for key in &answer.keys {
            println!("{} {} {}", key.fingerprint, key.algorithm, printable(&key.comment));
        }
    }
    Ok(ExitCode::SUCCESS)
}

pub fn ask(
    client: &mut Client,
    user: Option<String>,
    request: SshRequest,
) -> Result<SshAnswer, VerbError> {
    match client.call(Call::Ssh { user, request })? {
        Answer::Ssh(answer) => Ok(answer),
        Answer::Refused(why) => Err(why.into()),
        _ => Err(VerbError::Message("the server answered something else than was asked".into())),
    }
}

fn read(file: &PathBuf) -> Result<String, VerbError> {
    let mut text = String::new();
    let read = if file.as_os_str() == "-" {
        std::io::stdin().take(FILE_BYTES_MAX).read_to_string(&mut text)
    } else {
        let opened = std::fs::File::open(file).map_err(VerbError::file(file))?;
        opened.take(FILE_BYTES_MAX).read_to_string(&mut text)
    };
    read.map_err(VerbError::file(file))?;
    Ok(text.trim().to_owned())
}
