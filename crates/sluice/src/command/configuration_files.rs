//! The files of a configuration folder that are sent to a server, by name.

use super::verb::VerbError;
use ::slurm::conf::{Files, RealFiles, load_dir};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::path::{Component, Path};

/// The regular text files in the folder that can be read, of those names that are wanted. Nothing is waited for, as it would be in a
/// pipe.
pub fn text_files(dir: &Path, is_wanted: impl Fn(&str) -> bool) -> BTreeMap<String, String> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let read = |entry: std::fs::DirEntry| {
        let name = entry.file_name().into_string().ok().filter(|name| is_wanted(name))?;
        Some((name, RegularFiles.read(&entry.path()).ok()?))
    };
    entries.filter_map(read).collect()
}

/// The files of these names, and those below the folder that they include. What is wrong with slurm.conf and the files beside it is
/// said here, where they are.
pub fn of_folder(
    dir: &Path,
    is_wanted: impl Fn(&str) -> bool,
) -> Result<BTreeMap<String, String>, VerbError> {
    let read = ReadFiles::default();
    load_dir(&read, dir).map_err(|errors| {
        let lines: Vec<String> = errors.iter().map(ToString::to_string).collect();
        VerbError::Message(lines.join("\n"))
    })?;
    let mut files = text_files(dir, is_wanted);
    let below = read.0.into_inner().into_iter().filter_map(|(path, text)| {
        let name = path.strip_prefix(dir).ok()?;
        let is_plain = name.components().all(|part| matches!(part, Component::Normal(_)));
        Some((name.to_str().filter(|_| is_plain)?.to_owned(), text))
    });
    files.extend(below);
    Ok(files)
}

/// The files on disk, but for pipes and devices.
struct RegularFiles;

impl Files for RegularFiles {
    fn read(&self, path: &Path) -> io::Result<String> {
        let found = std::fs::metadata(path)?;
        if !found.is_file() {
            return Err(io::Error::new(ErrorKind::InvalidInput, "not a regular file"));
        }
        RealFiles.read(path)
    }
}

/// Keeps what is read of the files on disk.
#[derive(Default)]
struct ReadFiles(RefCell<BTreeMap<std::path::PathBuf, String>>);

impl Files for ReadFiles {
    fn read(&self, path: &Path) -> io::Result<String> {
        let text = RegularFiles.read(path)?;
        self.0.borrow_mut().insert(path.to_owned(), text.clone());
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::stat::Mode;

    fn is_conf(name: &str) -> bool {
        name.ends_with(".conf")
    }

    #[test]
    fn included_files_below_the_folder_are_sent_and_pipes_are_not_waited_for() {
        let dir = tempfile::tempdir().expect("a folder");
        let write = |name: &str, text: &str| {
            std::fs::write(dir.path().join(name), text).expect("a file");
        };
        let beside = dir.path().join("site");
        std::fs::create_dir_all(beside.join("sub")).expect("a folder");
        write("other.inc", "");
        write("site/nodes.inc", "NodeName=n1\nInclude sub/more.inc\n");
        write("site/sub/more.inc", "PartitionName=main Nodes=n1 Default=YES\n");
        write("site/server.key", "secret");
        let other = dir.path().join("other.inc").display().to_string();
        let text =
            format!("ClusterName=test\nInclude nodes.inc\nInclude {other}\nInclude ../other.inc\n");
        write("site/slurm.conf", &text);
        nix::unistd::mkfifo(&beside.join("x.conf"), Mode::S_IRWXU).expect("a pipe");
        let files = of_folder(&beside, is_conf).expect("a configuration");
        let names: Vec<&str> = files.keys().map(String::as_str).collect();
        assert_eq!(names, ["nodes.inc", "slurm.conf", "sub/more.inc"]);
        let all = text_files(&beside, |_| true);
        let names: Vec<&str> = all.keys().map(String::as_str).collect();
        assert_eq!(names, ["nodes.inc", "server.key", "slurm.conf"]);
    }

    #[test]
    fn what_is_wrong_is_said_of_the_files_that_are_there() {
        let dir = tempfile::tempdir().expect("a folder");
        let conf = dir.path().join("slurm.conf");
        let said = || of_folder(dir.path(), is_conf).expect_err("refused").to_string();
        std::fs::create_dir(&conf).expect("a folder");
        assert!(said().starts_with(&format!("{}: cannot be read: ", conf.display())), "{}", said());
        std::fs::remove_dir(&conf).expect("removed");
        std::fs::write(&conf, "ClusterName=test\nInclude none.inc\n").expect("a file");
        let expected =
            format!("{}:2: Include: \"{}/none.inc\"", conf.display(), dir.path().display());
        assert!(said().contains(&expected), "{}", said());
    }
}
