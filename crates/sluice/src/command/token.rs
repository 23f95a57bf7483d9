//! `sluice token`: a one-time join file for a node, or a token for a user.

use super::verb::{ServerLocationArgs, VerbError, VerbResult};
use clap::{Args, Subcommand};
use model::principal::Role;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::process::ExitCode;
use wire::client::{Answer, Call};

#[derive(Args)]
pub struct TokenArgs {
    #[command(flatten)]
    server: ServerLocationArgs,
    #[command(subcommand)]
    kind: TokenKind,
}

#[derive(Subcommand)]
enum TokenKind {
    /// A join file for a node (or a host list of nodes on one machine); good once
    Node {
        name: String,
        /// Write it to this new file, which only you can read, instead of printing it
        #[arg(long)]
        out: Option<PathBuf>,
    },
    /// A token for a user of the HTTP port
    User {
        name: String,
        #[arg(long)]
        account: Option<String>,
        #[arg(long)]
        unix_user: Option<String>,
        /// user, operator or admin
        #[arg(long, value_parser = role)]
        role: Option<Role>,
        /// Write it to this new file, which only you can read, instead of printing it
        #[arg(long)]
        out: Option<PathBuf>,
    },
}

fn role(text: &str) -> Result<Role, String> {
    match text {
        "user" => Ok(Role::User),
        "operator" => Ok(Role::Operator),
        "admin" => Ok(Role::Admin),
        _ => Err("expected user, operator or admin".into()),
    }
}

pub fn run(args: TokenArgs) -> VerbResult {
    let (call, out) = match args.kind {
        TokenKind::Node { name, out } => {
            let nodes =
                model::hostlist::expand(&name).map_err(|e| VerbError::Message(e.to_string()))?;
            (Call::NodeToken { nodes }, out)
        }
        TokenKind::User { name, account, unix_user, role, out } => {
            (Call::UserToken { name, account, unix_user, role }, out)
        }
    };
    // Made before the token is: no token is left over that nobody has.
    let file = out.map(SecretFile::make).transpose()?;
    let text = match args.server.client()?.call(call)? {
        Answer::Token { text } => text,
        Answer::Refused(why) => return Err(why.into()),
        other => return Err(VerbError::Message(format!("the server answered {other:?}"))),
    };
    match file {
        Some(file) => file.write(&text)?,
        None => println!("{}", text.trim_end()),
    }
    Ok(ExitCode::SUCCESS)
}

/// The mode of a file with a token in it.
const SECRET_MODE: u32 = 0o600;

/// A new file that only its owner can read. It is removed unless a token is written to it.
struct SecretFile {
    path: PathBuf,
    file: File,
    written: bool,
}

impl SecretFile {
    fn make(path: PathBuf) -> Result<Self, VerbError> {
        let mut how = OpenOptions::new();
        let made = how.write(true).create_new(true).mode(SECRET_MODE).open(&path);
        let file = made.map_err(VerbError::file(&path))?;
        Ok(Self { path, file, written: false })
    }

    fn write(mut self, text: &str) -> Result<(), VerbError> {
        let written = writeln!(self.file, "{}", text.trim_end());
        written.map_err(VerbError::file(&self.path))?;
        self.written = true;
        Ok(())
    }
}

impl Drop for SecretFile {
    fn drop(&mut self) {
        if !self.written {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{MetadataExt, symlink};

    #[test]
    fn token_goes_to_a_new_file_that_only_its_owner_can_read() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = |name: &str| dir.path().join(name);
        SecretFile::make(path("n1.join")).expect("made").write("secret\n").expect("written");
        assert_eq!(std::fs::read_to_string(path("n1.join")).expect("read"), "secret\n");
        assert_eq!(std::fs::metadata(path("n1.join")).expect("there").mode() & 0o777, 0o600);
        symlink("elsewhere", path("link")).expect("a link");
        for taken in ["n1.join", "link"] {
            assert!(SecretFile::make(path(taken)).is_err(), "{taken}");
        }
        assert!(!path("elsewhere").exists());
        drop(SecretFile::make(path("refused")).expect("made"));
        assert!(!path("refused").exists(), "nothing is left without a token");
    }
}
