//! Clones a repository with the node's `git`. Credentials reach `git` in its environment, or as a file in memory that ends
//! with the clone: neither its arguments nor the repository's configuration holds them. On disk they are in the attempt's
//! launch record alone, which is root's.

use std::ffi::CString;
use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::process::Command;

use super::program;
use model::secret::GitCredentials;
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::stat::{Mode, fchmod};
use wire::workspace::Repository;

/// Answers `git`, which asks it for a user and a password, from the environment.
const HELPER: &str =
    r#"!f() { [ "$1" = get ] && printf 'username=oauth2\npassword=%s\n' "$SLUICE_GIT_TOKEN"; }; f"#;

/// `git` gives up a server that sends fewer bytes a second for so many seconds: one that packs a large repository sends
/// a few of them. The run may have values of its own.
const SLOWEST: [(&str, &str); 2] =
    [("GIT_HTTP_LOW_SPEED_LIMIT", "1"), ("GIT_HTTP_LOW_SPEED_TIME", "300")];

/// Makes the repository's folder. Returns whether it is to be filled: one that is not empty may be used as it is.
pub(super) fn make_folder(repository: &Repository, folder: &Path) -> Result<bool, String> {
    if !is_empty(folder)? {
        if repository.skip_if_exists {
            return Ok(false);
        }
        let text = "is there and is not empty: expected a new folder, or `if_exists: skip`";
        return Err(format!("{}: {text}", repository.path));
    }
    let failed = |e: std::io::Error| format!("cannot make {}: {e}", folder.display());
    fs::create_dir_all(folder).map(|()| true).map_err(failed)
}

/// How a repository is cloned.
#[derive(Clone, Copy, Default)]
pub(super) struct CloneOptions<'a> {
    pub credentials: Option<&'a GitCredentials>,
    /// All branches are cloned without it.
    pub single_branch: bool,
}

/// Clones the repository into a folder that is not there, or empty, and applies what its user changed.
pub(super) fn clone(
    repository: &Repository,
    folder: &Path,
    CloneOptions { credentials, single_branch }: CloneOptions<'_>,
    environment: &[CString],
) -> Result<(), String> {
    let url = &repository.url;
    if program::found("git", environment).is_none() {
        return Err(format!("cannot clone {url}: this node has no git"));
    }
    let git = Git { environment, key: Key::new(credentials)?, credentials };
    let mut words = vec!["clone".to_owned(), "--quiet".to_owned()];
    words.extend(single_branch.then(|| "--single-branch".to_owned()));
    words.extend(repository.branch.iter().map(|branch| format!("--branch={branch}")));
    words.extend(["--".to_owned(), url.clone(), folder.display().to_string()]);
    git.run(None, &words, None).map_err(|why| format!("cannot clone {url}: {why}"))?;
    if let Some(hash) = &repository.hash {
        let mut words = vec!["checkout".to_owned(), "--quiet".to_owned()];
        match &repository.branch {
            Some(branch) => words.extend(["-B".to_owned(), branch.clone(), hash.clone()]),
            None => words.extend(["--detach".to_owned(), hash.clone()]),
        }
        git.run(Some(folder), &words, None)
            .map_err(|why| format!("{url} has no commit {hash} here: {why}"))?;
    }
    if let Some(diff) = repository.diff.as_ref().filter(|diff| !diff.0.is_empty()) {
        let words = ["apply", "--whitespace=nowarn", "-"].map(str::to_owned);
        git.run(Some(folder), &words, Some(&diff.0))
            .map_err(|why| format!("your changes do not apply to {url}: {why}"))?;
    }
    let person = [("user.name", &repository.user_name), ("user.email", &repository.user_email)];
    for (name, value) in person {
        if let Some(value) = value {
            git.run(Some(folder), &["config".into(), name.into(), value.clone()], None)?;
        }
    }
    Ok(())
}

/// Whether there is nothing at the path, or an empty folder.
pub(super) fn is_empty(folder: &Path) -> Result<bool, String> {
    match fs::read_dir(folder) {
        Ok(mut entries) => Ok(entries.next().is_none()),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(true),
        Err(error) => Err(format!("{}: {error}", folder.display())),
    }
}

struct Git<'a> {
    environment: &'a [CString],
    credentials: Option<&'a GitCredentials>,
    key: Option<Key>,
}

impl Git<'_> {
    /// Runs `git`, whose own words go to the run's output. The error says how it ended.
    fn run(
        &self,
        folder: Option<&Path>,
        words: &[String],
        input: Option<&[u8]>,
    ) -> Result<(), String> {
        let mut command = program::command("git", self.environment);
        // Nobody is there to be asked.
        command.args(words).env("GIT_TERMINAL_PROMPT", "0");
        let is_set = |name: &str| program::pairs(self.environment).any(|(own, _)| own == name);
        for (name, value) in SLOWEST.into_iter().filter(|(name, _)| !is_set(name)) {
            command.env(name, value);
        }
        self.add_credentials(&mut command);
        if let Some(folder) = folder {
            command.current_dir(folder);
        }
        program::wait("git", command, input)
    }

    fn add_credentials(&self, command: &mut Command) {
        if let Some(token) = self.credentials.and_then(|given| given.oauth_token.as_ref()) {
            // Behind what the run's own environment configures.
            let own =
                program::pairs(self.environment).find(|(name, _)| *name == "GIT_CONFIG_COUNT");
            let own = own.and_then(|(_, count)| count.to_str()?.parse().ok()).unwrap_or(0_u32);
            command.env("SLUICE_GIT_TOKEN", &token.0);
            command.env("GIT_CONFIG_COUNT", own.saturating_add(1).to_string());
            command.env(format!("GIT_CONFIG_KEY_{own}"), "credential.helper");
            command.env(format!("GIT_CONFIG_VALUE_{own}"), HELPER);
        }
        if let Some(Key(file)) = &self.key {
            let options = "-o IdentitiesOnly=yes -o BatchMode=yes -o StrictHostKeyChecking=accept-new \
                           -o ConnectTimeout=60 -o ServerAliveInterval=15 -o ServerAliveCountMax=4";
            // A shell runs it as `git`'s child. `ssh` closes what it inherits, and `git` still has it.
            let ssh = format!("ssh {options} -i /proc/$PPID/fd/{}", file.as_raw_fd());
            command.env("GIT_SSH_COMMAND", ssh);
        }
    }
}

/// A private key in a file without a name, which `git` inherits and `ssh` opens. It is gone when the last process that has it
/// ends, however that ends.
struct Key(File);

impl Key {
    fn new(credentials: Option<&GitCredentials>) -> Result<Option<Self>, String> {
        let key = credentials.and_then(|given| given.private_key.as_ref());
        let Some(key) = key else { return Ok(None) };
        let made = memfd_create(c"git-key", MFdFlags::empty()).and_then(|file| {
            // `ssh` refuses a key that others could read.
            fchmod(&file, Mode::S_IRUSR)?;
            Ok(File::from(file))
        });
        let written = made.map_err(std::io::Error::from).and_then(|mut file| {
            file.write_all(key.0.trim_end().as_bytes())?;
            file.write_all(b"\n")?;
            Ok(Self(file))
        });
        written.map(Some).map_err(|error| format!("cannot hold the private key: {error}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::secret::SecretValue;
    use std::os::unix::fs::PermissionsExt;

    /// Keeps the key that it is given, and what the folder for temporary files holds meanwhile.
    const SSH: &str = "#!/bin/sh\nls -A \"$TMPDIR\" > \"$OUT/held\"\nwhile [ $# -gt 0 ]; do\n\
                       [ \"$1\" = -i ] && cat \"$2\" > \"$OUT/key\"\nshift\ndone\nexit 1\n";

    #[test]
    fn private_key_is_readable_for_ssh_and_in_no_folder() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = |part: &str| dir.path().join(part).display().to_string();
        for part in ["bin", "tmp"] {
            fs::create_dir(path(part)).expect("a folder");
        }
        fs::write(path("bin/ssh"), SSH).expect("written");
        fs::set_permissions(path("bin/ssh"), PermissionsExt::from_mode(0o755)).expect("a mode");
        let environment = [
            format!("PATH={}:/usr/local/bin:/usr/bin:/bin", path("bin")),
            format!("TMPDIR={}", path("tmp")),
            format!("OUT={}", dir.path().display()),
            format!("HOME={}", dir.path().display()),
        ];
        let environment = environment.map(|entry| CString::new(entry).expect("no NUL"));
        assert!(program::found("git", &environment).is_some(), "this test needs git");
        let repository = serde_json::json!({"url": "ssh://git@h/r.git", "path": "r"});
        let repository: Repository = serde_json::from_value(repository).expect("a repository");
        let private_key = Some(SecretValue("the key\n\n".into()));
        let credentials = GitCredentials { private_key, oauth_token: None };
        let folder = dir.path().join("r");
        let options = CloneOptions { credentials: Some(&credentials), ..CloneOptions::default() };
        let said = clone(&repository, &folder, options, &environment);
        assert!(
            said.is_err_and(|why| why.starts_with("cannot clone ssh://git@h/r.git: git ended"))
        );
        assert_eq!(fs::read_to_string(path("key")).expect("ssh had it"), "the key\n");
        assert_eq!(fs::read_to_string(path("held")).expect("listed"), "");
    }

    #[test]
    fn node_without_git_is_said_in_a_line() {
        let dir = tempfile::tempdir().expect("a folder");
        let repository = serde_json::json!({"url": "https://h/r.git", "path": "r"});
        let repository: Repository = serde_json::from_value(repository).expect("a repository");
        let path = CString::new(format!("PATH={}", dir.path().display())).expect("no NUL");
        let said = clone(&repository, &dir.path().join("r"), CloneOptions::default(), &[path]);
        assert_eq!(said, Err("cannot clone https://h/r.git: this node has no git".into()));
    }

    #[test]
    fn settings_of_the_run_that_leave_no_number_for_ours_are_for_git_to_refuse() {
        let own = CString::new(format!("GIT_CONFIG_COUNT={}", u32::MAX)).expect("no NUL");
        let token = Some(SecretValue("hush".into()));
        let credentials = GitCredentials { oauth_token: token, private_key: None };
        let git = Git { environment: &[own], credentials: Some(&credentials), key: None };
        let mut command = program::command("git", git.environment);
        git.add_credentials(&mut command);
        let count = command.get_envs().find(|(name, _)| *name == "GIT_CONFIG_COUNT");
        let expected = u32::MAX.to_string();
        assert_eq!(count.and_then(|(_, value)| value?.to_str()), Some(expected.as_str()));
    }

    #[test]
    fn git_gets_the_token_and_the_runs_own_settings_stay() {
        let own = ["GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=user.name", "GIT_CONFIG_VALUE_0=Ann"];
        let path = format!("PATH={}", std::env::var("PATH").expect("a path"));
        let entries = own.iter().map(|entry| (*entry).to_owned()).chain([path]);
        let environment: Vec<CString> = entries.filter_map(|e| CString::new(e).ok()).collect();
        let token = Some(SecretValue("hush $x 'y".into()));
        let credentials = GitCredentials { oauth_token: token, private_key: None };
        let git = Git { environment: &environment, credentials: Some(&credentials), key: None };
        let said = |words: &[&str]| {
            let mut command = program::command("git", &environment);
            git.add_credentials(&mut command);
            let line = format!("printf 'protocol=https\\nhost=h\\n\\n' | git {}", words.join(" "));
            let mut shell = Command::new("/bin/sh");
            shell.args(["-c", &line]).env_clear();
            shell.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
            String::from_utf8(shell.output().expect("a shell").stdout).expect("text")
        };
        assert!(program::found("git", &environment).is_some(), "this test needs git");
        let filled = said(&["credential", "fill"]);
        assert!(filled.contains("username=oauth2\npassword=hush $x 'y\n"), "{filled}");
        assert_eq!(said(&["config", "user.name"]), "Ann\n");
    }
}
