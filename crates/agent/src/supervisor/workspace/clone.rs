//! Clones a repository with the `git` that is there. Credentials reach `git` in its environment, or as a file that is removed
//! after the clone: neither its arguments nor the repository's configuration holds them.

use std::ffi::{CString, OsString};
use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::program;
use model::secret::GitCredentials;
use wire::workspace::Repository;

/// Answers `git`, which asks it for a user and a password, from the environment.
const HELPER: &str =
    r#"!f() { [ "$1" = get ] && printf 'username=oauth2\npassword=%s\n' "$SLUICE_GIT_TOKEN"; }; f"#;

pub(super) fn clone(
    repository: &Repository,
    folder: &Path,
    credentials: Option<&GitCredentials>,
    environment: &[CString],
) -> Result<(), String> {
    if !is_empty(folder)? {
        if repository.skip_if_exists {
            return Ok(());
        }
        let text = "is there and is not empty: expected a new folder, or `if_exists: skip`";
        return Err(format!("{}: {text}", repository.path));
    }
    let failed = |e: std::io::Error| format!("cannot make {}: {e}", folder.display());
    fs::create_dir_all(folder).map_err(failed)?;
    let git = Git { environment, key: Key::write(credentials, environment)?, credentials };
    let url = &repository.url;
    let mut words = vec!["clone".to_owned(), "--quiet".to_owned()];
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
fn is_empty(folder: &Path) -> Result<bool, String> {
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
            command.env("GIT_CONFIG_COUNT", (own + 1).to_string());
            command.env(format!("GIT_CONFIG_KEY_{own}"), "credential.helper");
            command.env(format!("GIT_CONFIG_VALUE_{own}"), HELPER);
        }
        if let Some(Key(file)) = &self.key {
            let mut ssh = OsString::from("ssh -o IdentitiesOnly=yes -o BatchMode=yes ");
            ssh.push("-o StrictHostKeyChecking=accept-new -i ");
            ssh.push(file);
            command.env("GIT_SSH_COMMAND", ssh);
        }
    }
}

/// A private key in a file, as `ssh` wants it; removed when the clone is done.
struct Key(PathBuf);

impl Key {
    fn write(
        credentials: Option<&GitCredentials>,
        environment: &[CString],
    ) -> Result<Option<Self>, String> {
        let key = credentials.and_then(|given| given.private_key.as_ref());
        let Some(key) = key else { return Ok(None) };
        let folder = super::variable(environment, "TMPDIR").unwrap_or(Path::new("/tmp"));
        let path = folder.join(format!(".sluice-key-{}", std::process::id()));
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(0o600);
        let written = options.open(&path).and_then(|mut file| {
            let made = Self(path.clone());
            file.write_all(key.0.trim_end().as_bytes())?;
            file.write_all(b"\n")?;
            Ok(made)
        });
        written.map(Some).map_err(|error| format!("cannot write {}: {error}", path.display()))
    }
}

impl Drop for Key {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::secret::SecretValue;

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
        if program::found("git", &environment).is_none() {
            return;
        }
        let filled = said(&["credential", "fill"]);
        assert!(filled.contains("username=oauth2\npassword=hush $x 'y\n"), "{filled}");
        assert_eq!(said(&["config", "user.name"]), "Ann\n");
    }
}
