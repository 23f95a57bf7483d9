//! `sluice login` and `sluice logout`: the server of a user on another machine, and the token for it.

use super::verb::{VerbError, VerbResult};
use crate::client::login_file::{self, Login};
use crate::client::tls::{self, Trust};
use crate::client::{Client, HostPort, HttpsServer, ServerLocation};
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use clap::Args;
use model::secret::SecretValue;
use nix::sys::termios::{LocalFlags, SetArg, tcgetattr, tcsetattr};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use std::io::{BufRead, IsTerminal, Read};
use std::path::PathBuf;
use std::process::ExitCode;
use wire::client::{Answer, Call};

/// The longest text that can be a token.
const TOKEN_BYTES_MAX: u64 = 4 << 10;
/// The longest file with certificates of authorities.
const AUTHORITY_BYTES_MAX: u64 = 128 << 10;

#[derive(Args)]
pub struct LoginArgs {
    /// The server: https://HOST:PORT; several where it may move from one to another
    #[arg(required_unless_present = "url_option", value_name = "URL")]
    urls: Vec<String>,
    /// The same, as dstack's client takes it
    #[arg(long = "url", value_name = "URL", conflicts_with = "urls", hide = true)]
    url_option: Option<String>,
    /// A file with the token; without it, it is asked for, or read from standard input
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// The fingerprint (SHA-256) that the authority of the server's certificate must have
    #[arg(long, value_name = "SHA256", conflicts_with = "ca", value_parser = fingerprint)]
    fingerprint: Option<String>,
    /// A file with the certificate of the server's authority, as PEM
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
}

/// 64 digits in hex, as `SHA256:…` or with colons between them too.
fn fingerprint(text: &str) -> Result<String, String> {
    let digits = text.strip_prefix("SHA256:").unwrap_or(text).replace(':', "").to_lowercase();
    let is_good = digits.len() == 64 && digits.bytes().all(|b| b.is_ascii_hexdigit());
    is_good.then_some(digits).ok_or_else(|| "expected 64 digits in hex, a SHA-256".into())
}

pub fn login(args: LoginArgs) -> VerbResult {
    let urls: Vec<&str> = args.urls.iter().chain(&args.url_option).map(String::as_str).collect();
    let (address, others) =
        HostPort::parse_https_list(&urls.join(",")).map_err(VerbError::Message)?;
    let addresses: Vec<&HostPort> = std::iter::once(&address).chain(&others).collect();
    let trust = trust(&args, &addresses)?;
    let token = SecretValue(token(args.token_file)?);
    let server = HttpsServer { address, others, token, trust };
    let location = ServerLocation::Https(Box::new(server.clone()));
    let user = match Client::at(location.clone()).call(Call::Ping)? {
        Answer::Pong { user, .. } => user,
        Answer::Refused(why) => return Err(why.into()),
        other => return Err(VerbError::Message(format!("the server answered {other:?}"))),
    };
    if !login_file::is_plain(&user) {
        let text = format!("the server takes this token for {user:?}, which is no name of a user");
        return Err(VerbError::Message(text));
    }
    let written = login_file::write(&Login { server, user: user.clone() });
    let path = written.map_err(|e| VerbError::Message(format!("the login is not kept: {e}")))?;
    println!("logged in at {location} as {user}; kept in {}", path.display());
    for variable in ["SLUICE_SERVER", "SLUICE_STATE"] {
        if std::env::var_os(variable).is_some() {
            println!("note: {variable} is set, and comes before this login");
        }
    }
    Ok(ExitCode::SUCCESS)
}

pub fn logout() -> VerbResult {
    match login_file::remove() {
        Ok(true) => println!("logged out; the token itself stays good until it is revoked"),
        Ok(false) => println!("there is no login"),
        Err(error) => {
            return Err(VerbError::Message(format!("the login cannot be removed: {error}")));
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The authorities that this login trusts: of `--ca`, by their fingerprint, of the machine, or as the user confirms.
fn trust(args: &LoginArgs, addresses: &[&HostPort]) -> Result<Trust, VerbError> {
    if let Some(path) = &args.ca {
        let file = std::fs::File::open(path).map_err(VerbError::file(path))?;
        let mut pem = Vec::new();
        let read = file.take(AUTHORITY_BYTES_MAX + 1).read_to_end(&mut pem);
        read.map_err(VerbError::file(path))?;
        if pem.len() as u64 > AUTHORITY_BYTES_MAX {
            let text = format!("{}: too long; name the one authority's file", path.display());
            return Err(VerbError::Message(text));
        }
        let kept = certificates_of(&pem);
        let wrong = |why| VerbError::Message(format!("{}: {why}", path.display()));
        return kept.map(Trust::Authority).map_err(wrong);
    }
    let (address, shown) = tls::shown_by_first(addresses)
        .map_err(|(address, why)| VerbError::Message(format!("https://{address}: {why}")))?;
    let failed = |why: String| VerbError::Message(format!("https://{address}: {why}"));
    // The first is the server's own, which another replaces one day.
    let authorities = &shown[1..];
    if let Some(wanted) = &args.fingerprint {
        let found = authorities.iter().find(|one| ::server::fingerprint(one) == *wanted);
        return found.map(|one| Trust::Authority(pem(one))).ok_or_else(|| {
            let shown: Vec<String> = authorities.iter().map(|c| ::server::fingerprint(c)).collect();
            failed(format!(
                "its authority is not the one with this fingerprint, but {}: no token was sent",
                if shown.is_empty() { "none".into() } else { shown.join(", ") }
            ))
        });
    }
    if tls::connect(address, &Trust::Machine).is_ok() {
        return Ok(Trust::Machine);
    }
    let Some(authority) = authorities.last() else {
        return Err(failed("it shows no authority: name its certificate (--ca FILE)".into()));
    };
    confirm(address, &::server::fingerprint(authority))?;
    Ok(Trust::Authority(pem(authority)))
}

/// Asks a person whether the authority is the right one.
fn confirm(address: &HostPort, fingerprint: &str) -> Result<(), VerbError> {
    eprintln!("The authority of https://{address} is not known here. Its fingerprint (SHA-256) is");
    eprintln!("  {fingerprint}");
    eprintln!("`sluice token user` printed it with the token, and the server's log has it.");
    if !std::io::stdin().is_terminal() {
        let text = "nobody can be asked whether it is the right one: give --fingerprint or --ca";
        return Err(VerbError::Message(text.into()));
    }
    eprint!("Is it the right one (yes/no)? ");
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer).map_err(VerbError::file("standard input"))?;
    if answer.trim() == "yes" {
        return Ok(());
    }
    Err(VerbError::Message("not logged in".into()))
}

/// The token of a file, of standard input, or as it is typed, which is not shown.
fn token(file: Option<PathBuf>) -> Result<String, VerbError> {
    let mut text = String::new();
    let input = std::io::stdin();
    let read = match &file {
        Some(path) => std::fs::File::open(path)
            .and_then(|file| file.take(TOKEN_BYTES_MAX).read_to_string(&mut text)),
        None if input.is_terminal() => {
            eprint!("Token: ");
            let read = without_echo(|| input.lock().take(TOKEN_BYTES_MAX).read_line(&mut text));
            eprintln!();
            read
        }
        None => input.lock().take(TOKEN_BYTES_MAX).read_to_string(&mut text),
    };
    read.map_err(VerbError::file(file.unwrap_or_else(|| "standard input".into())))?;
    let token = text.trim();
    if login_file::is_plain(token) {
        return Ok(token.to_owned());
    }
    Err(VerbError::Message("this is no token: expected what `sluice token user` printed".into()))
}

/// Reads from the terminal while it does not show what is typed.
fn without_echo<T>(read: impl FnOnce() -> std::io::Result<T>) -> std::io::Result<T> {
    let input = std::io::stdin();
    let before = tcgetattr(&input)?;
    let mut silent = before.clone();
    silent.local_flags.remove(LocalFlags::ECHO);
    tcsetattr(&input, SetArg::TCSADRAIN, &silent)?;
    let result = read();
    tcsetattr(&input, SetArg::TCSANOW, &before)?;
    result
}

/// The certificates of a PEM file, written anew: text between them and blocks of other kinds (a key) are not kept.
fn certificates_of(file: &[u8]) -> Result<String, String> {
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(file).collect();
    let read = read.map_err(|e| e.to_string())?;
    if read.is_empty() {
        return Err("no certificate (PEM) is in it".into());
    }
    Ok(read.iter().map(|one| pem(one)).collect())
}

fn pem(certificate: &[u8]) -> String {
    let text = BASE64.encode(certificate);
    let lines: Vec<&str> =
        (0..text.len()).step_by(64).map(|at| &text[at..(at + 64).min(text.len())]).collect();
    format!("-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n", lines.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fingerprints_are_64_digits_in_any_usual_form() {
        let digits = "0123456789abcdef".repeat(4);
        let colons: Vec<&str> = (0..64).step_by(2).map(|at| &digits[at..at + 2]).collect();
        let colons = colons.join(":").to_uppercase();
        for good in [digits.clone(), colons, format!("SHA256:{digits}")] {
            assert_eq!(fingerprint(&good), Ok(digits.clone()), "{good}");
        }
        for wrong in ["", "abc", &digits[1..], &digits.replace('0', "x")] {
            assert!(fingerprint(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn only_the_certificates_of_an_authority_file_are_kept() {
        let certificate = pem(&[7; 100]);
        let key = certificate.replace("CERTIFICATE", "PRIVATE KEY");
        let file = format!("'''\ntoken = 'other'\n{certificate}{key}# '''\n{certificate}");
        assert_eq!(certificates_of(file.as_bytes()), Ok(certificate.repeat(2)));
        assert!(certificates_of(key.as_bytes()).is_err());
        assert!(certificates_of(b"").is_err());
    }
}
