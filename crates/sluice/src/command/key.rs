//! `sluice key`: the public keys with which a user comes in by ssh.

use super::verb::{VerbError, VerbResult};
use crate::client::Client;
use clap::{Args, Subcommand};
use model::printable::printable;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use wire::client::{Answer, Call};
use wire::ssh::{KEY_PROOF_NAMESPACE, SshAnswer, SshKeyView, SshRequest, key_proof_text};

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
        KeyVerb::Add { file } => return add(args.user, &file),
        KeyVerb::List => SshRequest::List,
        KeyVerb::Remove { key } => SshRequest::Remove { key },
        KeyVerb::Renew => SshRequest::Renew,
    };
    let lists = request == SshRequest::List;
    let answer = ask(&mut Client::find()?, args.user, request)?;
    if lists {
        for key in &answer.keys {
            let note = if key.is_unproved { " (unproved: opens jobs by number only)" } else { "" };
            println!("{} {} {}{note}", key.fingerprint, key.algorithm, printable(&key.comment));
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Registers a key, with a proof that its private key is there where one can be made.
fn add(user: Option<String>, file: &Path) -> VerbResult {
    let key = read(file)?;
    let client = &mut Client::find()?;
    let before = ask(client, user.clone(), SshRequest::List)?;
    let text = key_proof_text(&before.user, before.endpoint.as_ref());
    let proof = sign(file, &text);
    let is_signed = proof.is_some();
    let after = ask(client, user, SshRequest::Add { key, proof })?;
    let is_new = |key: &&SshKeyView| key.is_unproved && !before.keys.contains(key);
    if !is_signed && let Some(key) = after.keys.iter().find(is_new) {
        eprintln!(
            "sluice key: {} is registered, and not proved to be yours: it opens jobs by their numbers and not by names, until \
             `sluice key add` is run where ssh-keygen can use its private key",
            key.fingerprint
        );
    }
    Ok(ExitCode::SUCCESS)
}

/// The signature of ssh-keygen over this text, by the private key beside the public one, else by the agent of keys.
fn sign(file: &Path, text: &str) -> Option<String> {
    if file.as_os_str() == "-" {
        return None;
    }
    let beside = file.with_extension("");
    let is_there = file.extension().is_some_and(|end| end == "pub") && beside.exists();
    let key = if is_there { &beside } else { file };
    // Written before it is started: it may end without reading, and is shorter than a pipe.
    let (reader, mut writer) = std::io::pipe().ok()?;
    writer.write_all(text.as_bytes()).ok()?;
    drop(writer);
    let output = Command::new("ssh-keygen")
        .args(["-q", "-Y", "sign", "-n", KEY_PROOF_NAMESPACE, "-f"])
        .arg(key)
        .stdin(reader)
        .stderr(Stdio::null())
        .output()
        .ok()?;
    output.status.success().then(|| String::from_utf8(output.stdout).ok())?
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

fn read(file: &Path) -> Result<String, VerbError> {
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
