//! Folders that a batch job names and that are not on this machine. Its nodes may have them, so the job is submitted all the same.

use model::os_text;
use model::run::{Launch, WORK_DIR_FALLBACK};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// A line for each: what a node does without the working directory, and that the job fails without the folder of its output.
pub fn notes(launch: &Launch) -> Vec<String> {
    let work_dir = os_text::to_os(&launch.work_dir);
    let work_dir = Path::new(&*work_dir);
    if is_missing(work_dir) {
        let dir = work_dir.display();
        return vec![format!(
            "note: there is no folder {dir} here: on a node without it the job runs in {WORK_DIR_FALLBACK}, with its output there"
        )];
    }
    let patterns = [&launch.stdout, &launch.stderr].into_iter().flatten();
    let folders = patterns.filter_map(|pattern| fixed_folder(pattern));
    let mut folders: Vec<PathBuf> =
        folders.map(|dir| work_dir.join(&*os_text::to_os(dir))).collect();
    folders.dedup();
    folders.retain(|folder| is_missing(folder));
    let note = |folder: &PathBuf| {
        let dir = folder.display();
        format!(
            "note: there is no folder {dir} here: on a node without it the job fails, since its output cannot be opened"
        )
    };
    folders.iter().map(note).collect()
}

/// The folder of an output file, as far as it is the same for every job: `logs` of `logs/%A/%a.out`.
fn fixed_folder(pattern: &str) -> Option<&str> {
    if pattern.contains('\\') {
        return None;
    }
    let fixed = pattern.split_once('%').map_or(pattern, |(before, _)| before);
    fixed.rfind('/').map(|end| &fixed[..end.max(1)])
}

/// Whether it is certain that there is no such folder: one that this user may not look into may be there.
fn is_missing(folder: &Path) -> bool {
    match folder.metadata() {
        Ok(found) => !found.is_dir(),
        Err(error) => matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::run::LaunchKind;

    #[test]
    fn folder_of_an_output_is_what_every_job_has_of_it() {
        let table = [
            ("slurm-%j.out", None),
            ("logs/%x.out", Some("logs")),
            ("logs/%A/%a.out", Some("logs")),
            ("logs%j/a.out", None),
            ("/data/run.out", Some("/data")),
            ("/dev/null", Some("/dev")),
            ("/run.out", Some("/")),
            (r"a\b/c", None),
        ];
        for (pattern, folder) in table {
            assert_eq!(fixed_folder(pattern), folder, "{pattern}");
        }
    }

    #[test]
    fn missing_folders_are_told_once_each() {
        let here = tempfile::tempdir().expect("a folder");
        std::fs::create_dir(here.path().join("logs")).expect("a folder");
        let told = |work_dir: &Path, stdout: &str, stderr: &str| {
            let mut launch = Launch::empty(LaunchKind::Batch);
            launch.work_dir = work_dir.to_str().expect("UTF-8").into();
            (launch.stdout, launch.stderr) = (Some(stdout.into()), Some(stderr.into()));
            notes(&launch)
        };
        assert_eq!(told(here.path(), "logs/%j.out", "%j.err"), Vec::<String>::new());
        let missing = told(here.path(), "nowhere/%j.out", "nowhere/%j.err");
        let line = format!("note: there is no folder {}/nowhere here", here.path().display());
        assert!(missing.len() == 1 && missing[0].starts_with(&line), "{missing:?}");
        let gone = told(&here.path().join("gone"), "nowhere/%j.out", "/dev/null");
        assert!(gone.len() == 1 && gone[0].contains(WORK_DIR_FALLBACK), "{gone:?}");
    }
}
