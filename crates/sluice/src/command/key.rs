//! `sluice key`: the public keys with which a user comes in by ssh.

use super::verb::{VerbError, VerbResult, ask};
use crate::client::login_file;
use crate::client::tls::Trust;
use crate::client::{Client, ServerLocation};
use clap::{Args, Subcommand};
use model::id::JobId;
use model::printable::printable;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
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
    let answer = ask_about_keys(&mut Client::find()?, args.user, request)?;
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
    let before = ask_about_keys(client, user.clone(), SshRequest::List)?;
    let proof = SignedFor::by(client.location(), user.as_deref())
        .text(&before)?
        .and_then(|text| sign(file, &text).ok_or("ssh-keygen cannot use its private key here"));
    let unsigned = proof.as_ref().err().copied();
    let request = SshRequest::Add { key, proof: proof.ok() };
    let after = ask_about_keys(client, user, request)?;
    let is_new = |key: &&SshKeyView| key.is_unproved && !before.keys.contains(key);
    if let Some(why) = unsigned
        && let Some(key) = after.keys.iter().find(is_new)
    {
        eprintln!(
            "sluice key: {} is registered, and not proved to be yours, since {why}: it opens jobs by their numbers and not by \
             names, until `sluice key add` proves it",
            key.fingerprint
        );
    }
    Ok(ExitCode::SUCCESS)
}

/// What the client itself knows of whom and what a signature is for. The server's word for it would let one server have
/// signatures made that are good at another.
struct SignedFor {
    /// The user: as named, as of the login, or as this machine knows the one who asks its own server.
    user: Option<String>,
    /// The fingerprints of the authorities that this login has pinned; `None` for a server of this machine, whose word is taken.
    pinned: Option<Vec<String>>,
}

impl SignedFor {
    fn by(location: &ServerLocation, named: Option<&str>) -> Self {
        let (user, pinned) = match location {
            ServerLocation::Socket(_) => {
                let own = nix::unistd::User::from_uid(nix::unistd::geteuid());
                (own.ok().flatten().map(|user| user.name), None)
            }
            ServerLocation::Http { .. } => (None, None),
            ServerLocation::Https(server) => {
                let login = login_file::read().ok().flatten();
                let same = login.filter(|login| {
                    let of = &login.server;
                    of.address == server.address && of.token == server.token
                });
                let pinned = match &server.trust {
                    Trust::Authority(pem) => fingerprints(pem),
                    Trust::Machine => Vec::new(),
                };
                (same.map(|login| login.user), Some(pinned))
            }
        };
        Self { user: named.map(str::to_owned).or(user), pinned }
    }

    /// The text to sign, or why none is signed.
    fn text(&self, told: &SshAnswer) -> Result<Result<String, &'static str>, VerbError> {
        let Some(endpoint) = &told.endpoint else {
            return Ok(Err("the server has no SSH endpoint"));
        };
        let Some(user) = &self.user else {
            return Ok(Err(
                "it is not known here who you are there (`sluice login`, or --user NAME)",
            ));
        };
        if *user != told.user {
            return Err(VerbError::Message(format!(
                "the server takes you for {:?}, and you are {user:?} here: nothing was signed (--user NAME says whose key it is)",
                told.user
            )));
        }
        let mut authorities = told.authorities.iter();
        let authority = match &self.pinned {
            None => authorities.next(),
            Some(pinned) => authorities.find(|of| pinned.contains(of)),
        };
        let unknown = "the authority of this login is not one that the server names as its own";
        Ok(authority.map(|of| key_proof_text(user, of, endpoint)).ok_or(unknown))
    }
}

fn fingerprints(pem: &str) -> Vec<String> {
    let certificates = CertificateDer::pem_slice_iter(pem.as_bytes()).flatten();
    certificates.map(|one| ::server::fingerprint(&one)).collect()
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

pub fn ask_about_keys(
    client: &mut Client,
    user: Option<String>,
    request: SshRequest,
) -> Result<SshAnswer, VerbError> {
    ssh_answer(client, Call::Ssh { user, request, job: None })
}

/// What an ssh client needs to enter a job. A job that is not for the caller is refused; without one, nothing is looked up.
pub fn ask_to_enter(client: &mut Client, job: Option<JobId>) -> Result<SshAnswer, VerbError> {
    ssh_answer(client, Call::Ssh { user: None, request: SshRequest::Connect, job })
}

fn ssh_answer(client: &mut Client, call: Call) -> Result<SshAnswer, VerbError> {
    match ask(client, call)? {
        Answer::Ssh(answer) => Ok(answer),
        // It may have a private key, which is not printed.
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

#[cfg(test)]
mod tests {
    use super::*;
    use wire::ssh::SshEndpoint;

    fn told(user: &str, authorities: &[&str], has_endpoint: bool) -> SshAnswer {
        let endpoint = SshEndpoint { host: "h".into(), port: 22, host_key: "k".into() };
        SshAnswer {
            endpoint: has_endpoint.then_some(endpoint),
            user: user.into(),
            authorities: authorities.iter().map(|of| (*of).to_owned()).collect(),
            keys: Vec::new(),
            private_key: None,
        }
    }

    fn known(user: Option<&str>, pinned: Option<&[&str]>) -> SignedFor {
        let pinned = pinned.map(|all| all.iter().map(|of| (*of).to_owned()).collect());
        SignedFor { user: user.map(str::to_owned), pinned }
    }

    #[test]
    fn client_signs_for_the_user_and_the_authority_that_it_knows_and_for_no_others() {
        let login = known(Some("ada"), Some(&["mine"]));
        let signed = login.text(&told("ada", &["another", "mine"], true));
        let text = signed.expect("an answer").expect("a text");
        assert_eq!(text, "sluice key add\nuser ada\nauthority mine\nendpoint k\n");
        // A server that would have a signature for a namesake of its choice, or for another cluster.
        let said = login.text(&told("root", &["mine"], true)).expect_err("another user");
        assert!(said.to_string().contains("nothing was signed"), "{said}");
        for (knows, answer) in [
            (&login, told("ada", &["another"], true)),
            (&login, told("ada", &["mine"], false)),
            (&login, told("ada", &[], true)),
            (&known(None, Some(&["mine"])), told("ada", &["mine"], true)),
            (&known(Some("ada"), Some(&[])), told("ada", &["mine"], true)),
        ] {
            assert!(knows.text(&answer).expect("registered all the same").is_err());
        }
        let here = known(Some("ada"), None).text(&told("ada", &["own", "site"], true));
        assert!(here.expect("an answer").expect("a text").contains("authority own\n"));
    }
}
