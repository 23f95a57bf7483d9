//! Keys and tokens of clouds: not printed, and overwritten when they are dropped.

use super::super::source::SourceError;
use nix::unistd::{User, geteuid};
use std::fmt;
use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use zeroize::Zeroizing;

/// The largest file of credentials.
const FILE_BYTES_MAX: u64 = 64 << 10;

#[derive(Clone, PartialEq, Eq)]
pub struct SecretText(Zeroizing<String>);

impl SecretText {
    pub fn new(text: impl Into<String>) -> Self {
        Self(Zeroizing::new(text.into()))
    }

    /// The text itself, for the one place that needs it.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for SecretText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(secret)")
    }
}

/// Where the credentials of a source are: in the file that it names, or given with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CredentialText {
    File(String),
    Given(SecretText),
}

impl CredentialText {
    /// What was given counts before what a file has.
    pub fn of(file: Option<&String>, given: Option<&SecretText>) -> Option<Self> {
        let of_file = || file.cloned().map(Self::File);
        given.cloned().map(Self::Given).or_else(of_file)
    }

    /// What an error line calls it.
    pub fn place(&self) -> &str {
        match self {
            Self::File(path) => path,
            Self::Given(_) => "of the backend",
        }
    }

    /// The text, which a file may have anew for each call.
    pub fn read(&self) -> Result<SecretText, SourceError> {
        match self {
            Self::File(path) => read_file(path),
            Self::Given(text) => Ok(text.clone()),
        }
    }
}

/// Reads a file of credentials, which is nobody else's.
pub fn read_file(path: &str) -> Result<SecretText, SourceError> {
    read(path, |_| true)
}

/// Reads one that may name a program, which is run as the server: whoever changes the file is the server.
pub fn read_own_file(path: &str) -> Result<SecretText, SourceError> {
    let owners = [0, geteuid().as_raw()];
    read(path, |facts| owners.contains(&facts.uid()) && facts.mode() & 0o022 == 0)
}

fn read(path: &str, is_own: impl Fn(&Metadata) -> bool) -> Result<SecretText, SourceError> {
    let wrong = |why: String| SourceError::refused(format!("credentials: {path}: {why}"));
    let file = File::open(path).map_err(|e| wrong(unreadable(path, &e)))?;
    let facts = file.metadata().map_err(|e| wrong(e.to_string()))?;
    if facts.mode() & 0o007 != 0 {
        return Err(wrong("others may read or change it: chmod o-rwx".into()));
    }
    if !is_own(&facts) {
        let expected = "expected a file of root or of the server's user, chmod go-w";
        return Err(wrong(format!("others may change it, and it may name a program: {expected}")));
    }
    let mut text = Zeroizing::new(String::new());
    file.take(FILE_BYTES_MAX).read_to_string(&mut text).map_err(|e| wrong(e.to_string()))?;
    Ok(SecretText(text))
}

/// Why a file that a source names cannot be read, and what helps where its owner is another.
pub fn unreadable(path: &str, error: &io::Error) -> String {
    if error.kind() != io::ErrorKind::PermissionDenied {
        return error.to_string();
    }
    let uid = geteuid();
    let user = User::from_uid(uid).ok().flatten().map_or_else(|| uid.to_string(), |of| of.name);
    format!(
        "the server's user, {user}, may not read it: expected a file of that user in folders that it may enter: chown {user} {path}, chmod 600 {path}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn secret_is_not_printed_and_its_file_is_nobody_elses() {
        assert_eq!(format!("{:?}", SecretText::new("key")), "(secret)");
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("key");
        std::fs::write(&path, "abc").expect("a file");
        let set = |mode| {
            let mode = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(&path, mode).expect("a mode");
            read_file(&path.display().to_string())
        };
        assert_eq!(set(0o640).expect("it is good").expose(), "abc");
        assert!(set(0o644).expect_err("others read it").text.contains("chmod o-rwx"));
        let own = |mode| {
            set(mode).expect("it is nobody else's");
            read_own_file(&path.display().to_string())
        };
        assert_eq!(own(0o640).expect("nobody else writes it").expose(), "abc");
        assert!(own(0o660).expect_err("its group writes it").text.contains("chmod go-w"));
        assert!(read_file("/nowhere/key").expect_err("none").text.contains("/nowhere/key"));
        let denied = io::Error::from(io::ErrorKind::PermissionDenied);
        let said = unreadable("/etc/sluice/aws", &denied);
        assert!(said.contains("may not read it") && said.contains("chown "), "{said}");
    }
}
