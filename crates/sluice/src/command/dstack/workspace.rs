//! What a run brings along from the client's machine: archives of its `files`, and the state of its repository.

use crate::command::verb::VerbError;
use ::dstack::configuration::task::{Repo, Task};
use model::bounds;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tar::{Builder, EntryType, Header};
use wire::workspace::{Blob, FileArchive, Repository, Workspace};

/// Fills in the files and the repository of a run; relative paths are below the folder of its configuration.
pub fn fill(workspace: &mut Workspace, task: &Task, folder: &Path) -> Result<(), VerbError> {
    for file in &task.files {
        let failed = |why: String| {
            let said = place(&file.local_path, folder);
            VerbError::Message(format!("`files`: {said}: {why}"))
        };
        let local = local_path(&file.local_path, folder);
        let archive = Blob(archive(&local).map_err(failed)?);
        workspace.files.push(FileArchive { path: file.path.clone(), archive });
    }
    if let Some(repo) = task.repos.first() {
        let local = || repo.local_path.as_ref().map(|path| place(path, folder));
        let said = repo.url.clone().or_else(local).unwrap_or_default();
        let repository = repository(repo, folder);
        let failed = |why: String| VerbError::Message(format!("`repos`: {said}: {why}"));
        workspace.repository = Some(repository.map_err(failed)?);
    }
    Ok(())
}

fn local_path(path: &str, folder: &Path) -> PathBuf {
    let home = std::env::var("HOME").ok();
    match (path.strip_prefix("~/"), home) {
        (Some(rest), Some(home)) => Path::new(&home).join(rest),
        _ => folder.join(path),
    }
}

/// A path as it is written, with what it stands for where that is elsewhere than below the folder of the command.
fn place(path: &str, folder: &Path) -> String {
    let local = local_path(path, folder);
    if local == Path::new(path) {
        return path.to_owned();
    }
    let whole = fs::canonicalize(&local).unwrap_or(local);
    format!("{path} ({})", whole.display())
}

/// A file or a folder with all that is in it. Equal contents make equal archives: times and owners are left out.
fn archive(path: &Path) -> Result<Vec<u8>, String> {
    let whole = fs::canonicalize(path).map_err(|e| e.to_string())?;
    let name = whole.file_name().ok_or("expected a file or a folder with a name")?;
    let mut archive = Builder::new(Vec::new());
    add(&mut archive, &whole, Path::new(name))?;
    archive.into_inner().map_err(|e| e.to_string())
}

fn add(archive: &mut Builder<Vec<u8>>, path: &Path, name: &Path) -> Result<(), String> {
    let failed = |e: std::io::Error| format!("{}: {e}", path.display());
    let facts = fs::symlink_metadata(path).map_err(failed)?;
    let mut header = Header::new_gnu();
    header.set_mode(facts.permissions().mode() & 0o777);
    header.set_size(0);
    if facts.is_symlink() {
        header.set_entry_type(EntryType::Symlink);
        let target = fs::read_link(path).map_err(failed)?;
        return archive.append_link(&mut header, name, target).map_err(failed);
    }
    if facts.is_dir() {
        header.set_entry_type(EntryType::Directory);
        archive.append_data(&mut header, name, std::io::empty()).map_err(failed)?;
        let entries = fs::read_dir(path).map_err(failed)?;
        let names: Result<Vec<_>, _> = entries.map(|one| one.map(|one| one.file_name())).collect();
        let mut names = names.map_err(failed)?;
        names.sort();
        return names.iter().try_for_each(|one| add(archive, &path.join(one), &name.join(one)));
    }
    if !facts.is_file() {
        return Err(format!("{}: expected files, folders and links", path.display()));
    }
    let bound = bounds::ARCHIVE_BYTES;
    let bytes = archive.get_ref().len() as u64 + facts.len();
    if bytes > bound.most as u64 {
        return Err(format!("{bytes} bytes or more: expected at most {}", bound.most));
    }
    header.set_entry_type(EntryType::Regular);
    header.set_size(facts.len());
    let file = fs::File::open(path).map_err(failed)?;
    archive.append_data(&mut header, name, std::io::Read::take(file, facts.len())).map_err(failed)
}

/// What would be right for a folder that no node can clone.
const AS_IT_IS: &str = "`files: [.:code]` brings a folder along as it is";

/// A repository by its address, or the one of a local folder with all that was changed there.
fn repository(repo: &Repo, folder: &Path) -> Result<Repository, String> {
    let mut found = Repository {
        id: None,
        url: repo.url.clone().unwrap_or_default(),
        branch: repo.branch.clone(),
        hash: repo.hash.clone(),
        diff: None,
        path: repo.path.clone(),
        skip_if_exists: repo.skip_if_exists,
        folder_variable: None,
        user_name: None,
        user_email: None,
    };
    let Some(local) = &repo.local_path else {
        found.id = Some(repo_id(&found.url));
        return Ok(found);
    };
    let local = local_path(local, folder);
    let asked = |words: &[&str]| git(&local, words, None);
    asked(&["rev-parse", "--git-dir"])
        .map_err(|why| format!("{}; {AS_IT_IS}", why.trim_start_matches("fatal: ")))?;
    let branch = asked(&["symbolic-ref", "--quiet", "--short", "HEAD"])
        .map_err(|_| "no branch is checked out there: `git switch BRANCH`")?;
    let remote = asked(&["config", &format!("branch.{branch}.remote")]).map_err(|_| {
        format!(
            "branch {branch} has no remote branch, which nodes clone: \
             `git push -u REMOTE {branch}`; or {AS_IT_IS}"
        )
    })?;
    found.url = asked(&["config", &format!("remote.{remote}.url")])?;
    found.id = Some(repo_id(&found.url));
    // The node clones the remote branch, which may have another name than the local one.
    let upstream = asked(&["config", &format!("branch.{branch}.merge")])?;
    let upstream = upstream.strip_prefix("refs/heads/").unwrap_or(&upstream).to_owned();
    let hash = asked(&["rev-parse", "@{upstream}"])?;
    found.diff = Some(Blob(changes(&local, &hash)?));
    (found.branch, found.hash) = (Some(upstream), Some(hash));
    found.user_name = asked(&["config", "user.name"]).ok();
    found.user_email = asked(&["config", "user.email"]).ok();
    Ok(found)
}

/// The name by which a run knows its repository: `thing` of `https://host/acme/thing.git`.
fn repo_id(url: &str) -> String {
    let last = url.trim_end_matches('/').rsplit(['/', ':']).next().unwrap_or_default();
    last.strip_suffix(".git").unwrap_or(last).to_owned()
}

/// Whatever the user has configured, the node's `git apply` understands it.
const PLAIN_DIFF: [&str; 5] =
    ["--no-ext-diff", "--no-textconv", "--no-color", "--src-prefix=a/", "--dst-prefix=b/"];

/// All that differs from the commit: what was committed since, what was not, and new files that are not ignored.
fn changes(local: &Path, hash: &str) -> Result<Vec<u8>, String> {
    let failed = |e: std::io::Error| e.to_string();
    // An index of its own: the user's stays as it is.
    let folder = nix::unistd::mkdtemp(&std::env::temp_dir().join("sluice-index-XXXXXX"))
        .map_err(|errno| format!("no folder for temporary files: {}", errno.desc()))?;
    let own = folder.join("index");
    let index = Some(own.as_path());
    let taken = git(local, &["read-tree", "HEAD"], index)
        .and_then(|_| git(local, &["add", "--all"], index))
        .and_then(|_| {
            let mut words = vec!["diff", "--cached", "--binary"];
            words.extend(PLAIN_DIFF);
            words.push(hash);
            let mut command = command(local, &words, index);
            let output = command.output().map_err(failed)?;
            if output.status.success() { Ok(output.stdout) } else { Err("git diff failed".into()) }
        });
    let _ = fs::remove_dir_all(&folder);
    taken
}

fn command(folder: &Path, words: &[&str], index: Option<&Path>) -> Command {
    let mut command = Command::new("git");
    command.arg("-C").arg(folder).args(words).stdin(Stdio::null());
    if let Some(index) = index {
        command.env("GIT_INDEX_FILE", index);
    }
    command
}

/// What `git` prints, without the end of its line; an error in one line.
fn git(folder: &Path, words: &[&str], index: Option<&Path>) -> Result<String, String> {
    let output = command(folder, words, index).output().map_err(|e| format!("git: {e}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).trim_end().to_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(said.lines().next().unwrap_or("git failed").to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_that_is_not_below_the_folder_of_the_command_is_said_in_full() {
        let there = tempfile::tempdir().expect("a folder");
        let whole = fs::canonicalize(there.path()).expect("its path");
        assert_eq!(place(".", there.path()), format!(". ({})", whole.display()));
        let missing = format!("lost ({})", there.path().join("lost").display());
        assert_eq!(place("lost", there.path()), missing);
        for own in [".", "data/note.txt", "/etc/hosts"] {
            assert_eq!(place(own, Path::new("")), own);
        }
    }
}
