//! The user's configuration file: the server to which `sluice login` logged in, the authority that it must be of, and the
//! token.

use super::host_port::HostPort;
use super::tls::{HttpsServer, Trust};
use agent::trusted_dir::TrustedDir;
use model::secret::SecretValue;
use serde::Deserialize;
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

const FOLDER: &str = "sluice";
const FILE: &str = "login.toml";
const FOLDER_MODE: u32 = 0o700;
const FILE_MODE: u32 = 0o600;
/// More than a chain of certificates needs.
const FILE_BYTES_MAX: u64 = 256 << 10;

/// A server, and whom it takes the user for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Login {
    pub server: HttpsServer,
    pub user: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Content {
    server: String,
    #[serde(default)]
    others: Vec<String>,
    user: String,
    token: SecretValue,
    /// Absent: an authority that the machine trusts.
    authority: Option<String>,
}

/// `~/.config/sluice/login.toml`
pub fn path() -> Option<PathBuf> {
    let variable =
        |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let config = variable("XDG_CONFIG_HOME")
        .or_else(|| variable("HOME").map(|home| home.join(".config")))?;
    Some(config.join(FOLDER).join(FILE))
}

/// The login of this user; `None` if there is none.
pub fn read() -> Result<Option<Login>, String> {
    let Some(path) = path() else { return Ok(None) };
    match read_file(&path) {
        Ok(login) => Ok(Some(login)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(format!("{}: {error}", path.display())),
    }
}

fn read_file(path: &Path) -> io::Result<Login> {
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    let file = std::fs::OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    let found = file.metadata()?;
    let wrong = |why: &str| io::Error::new(ErrorKind::InvalidData, why.to_owned());
    if !found.is_file() || found.uid() != nix::unistd::geteuid().as_raw() {
        return Err(wrong("it is not a file of this user"));
    }
    if found.mode() & 0o077 != 0 {
        return Err(wrong("others can read it: chmod 600, or log in again (sluice login)"));
    }
    let mut text = String::new();
    file.take(FILE_BYTES_MAX).read_to_string(&mut text)?;
    parse(&text).map_err(|why| wrong(&why))
}

fn parse(text: &str) -> Result<Login, String> {
    // The parser's own words would quote the line, and with it the token.
    let content: Content = toml::from_str(text)
        .map_err(|_| "it is not what `sluice login` writes: log in again".to_owned())?;
    let urls = std::iter::once(content.server).chain(content.others).collect::<Vec<_>>().join(",");
    let (address, others) = HostPort::parse_https_list(&urls)?;
    let trust = content.authority.map_or(Trust::Machine, Trust::Authority);
    let server = HttpsServer { address, others, token: content.token, trust };
    Ok(Login { server, user: content.user })
}

/// Writes the file anew and returns its path.
pub fn write(login: &Login) -> io::Result<PathBuf> {
    let nowhere = || io::Error::new(ErrorKind::NotFound, "neither HOME nor XDG_CONFIG_HOME is set");
    let path = path().ok_or_else(nowhere)?;
    let dir = TrustedDir::make(path.parent().ok_or_else(nowhere)?)?;
    dir.set_mode(FOLDER_MODE)?;
    dir.replace(FILE, FILE_MODE, text(login).as_bytes())?;
    Ok(path)
}

/// Removes the file; false if there is none.
pub fn remove() -> io::Result<bool> {
    let Some(path) = path() else { return Ok(false) };
    match std::fs::remove_file(path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Each value stands between quotes that it cannot contain: `is_plain` was asked of the token and the user, and hosts
/// and certificates have none.
fn text(login: &Login) -> String {
    let Login { server, user, .. } = login;
    let mut text = format!(
        "# Written by `sluice login`.\nserver = 'https://{}'\nuser = '{user}'\ntoken = '{}'\n",
        server.address, server.token.0
    );
    if !server.others.is_empty() {
        let urls: Vec<String> =
            server.others.iter().map(|address| format!("'https://{address}'")).collect();
        text.push_str(&format!("others = [{}]\n", urls.join(", ")));
    }
    if let Trust::Authority(pem) = &server.trust {
        text.push_str(&format!("authority = '''\n{pem}'''\n"));
    }
    text
}

/// Whether a text can stand in a header of HTTP and between the quotes of the file.
pub fn is_plain(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_graphic() && b != b'\'')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn login(trust: Trust) -> Login {
        let address = HostPort { host: "head".into(), port: 6820 };
        let others = vec![HostPort { host: "2001:db8::1".into(), port: 6820 }];
        let server = HttpsServer { address, others, token: SecretValue("t0ken".into()), trust };
        Login { server, user: "ada".into() }
    }

    #[test]
    fn login_is_read_as_it_was_written() {
        let pem = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        for trust in [Trust::Machine, Trust::Authority(pem.into())] {
            let written = login(trust);
            assert_eq!(parse(&text(&written)), Ok(written));
        }
        let error = parse("token = 't0ken'\nserver = 7\n").expect_err("it is no login");
        assert!(!error.contains("t0ken"), "{error}");
        assert!(!is_plain("") && !is_plain("a b") && !is_plain("a'b") && !is_plain("a\nb"));
    }

    #[test]
    fn file_that_others_can_read_is_refused() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join(FILE);
        std::fs::write(&path, text(&login(Trust::Machine))).expect("written");
        let set = |mode| std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode));
        set(0o600).expect("set");
        assert_eq!(read_file(&path).expect("good"), login(Trust::Machine));
        for open in [0o640, 0o604] {
            set(open).expect("set");
            let error = read_file(&path).expect_err("others can read it").to_string();
            assert!(error.contains("chmod 600"), "{error}");
        }
        set(0o600).expect("set");
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&path, &link).expect("a link");
        assert!(read_file(&link).is_err());
    }
}
