//! `srun -i`: the input of the tasks.

use crate::command::slurm::step::output;
use model::os_text;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use wire::step::StepInput;

/// Which tasks get input, and from where: `-i` is `all`, `none`, a task's rank, or a file.
pub fn input(
    text: Option<&str>,
    tasks: Option<u32>,
    terminal: bool,
) -> io::Result<(StepInput, Option<File>)> {
    let own = || io::stdin().as_fd().try_clone_to_owned().map(File::from);
    let is_null = |file: &File| {
        let null = nix::sys::stat::stat("/dev/null").map(|stat| stat.st_rdev);
        null.is_ok_and(|null| nix::sys::stat::fstat(file).is_ok_and(|stat| stat.st_rdev == null))
    };
    match text {
        Some(word) if word.eq_ignore_ascii_case("none") => Ok((StepInput::None, None)),
        Some(word) if !word.eq_ignore_ascii_case("all") => match output::rank(word, tasks) {
            Some(rank) => Ok((StepInput::Task(rank), Some(own()?))),
            None => {
                let opened = File::open(os_text::to_os(word));
                let file = opened.map_err(|e| output::unopened("stdin", word, &e))?;
                Ok((StepInput::All, Some(file)))
            }
        },
        _ => match own() {
            // A closed or empty input is treated as none.
            Ok(file) if terminal || !is_null(&file) => Ok((StepInput::All, Some(file))),
            _ => Ok((StepInput::None, None)),
        },
    }
}

/// Whether `-i` means `srun`'s own standard input.
pub fn is_own_input(text: Option<&str>, tasks: Option<u32>) -> bool {
    text.is_none_or(|word| word.eq_ignore_ascii_case("all") || output::rank(word, tasks).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn input_is_all_none_one_task_or_a_file() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("in");
        std::fs::write(&path, "x").expect("written");
        let path = path.to_string_lossy().into_owned();
        assert_eq!(input(Some("none"), None, false).expect("known").0, StepInput::None);
        assert_eq!(input(Some("3"), Some(4), false).expect("known").0, StepInput::Task(3));
        let (wanted, file) = input(Some(&path), None, false).expect("there");
        assert!(wanted == StepInput::All && file.is_some());
        let error = input(Some("/no/such/file"), None, false).expect_err("not there");
        let words = "Could not open stdin file: No such file or directory: /no/such/file";
        assert_eq!(error.to_string(), words);
        assert!(input(Some("4"), Some(4), false).is_err(), "beyond the tasks it is a file's name");
    }
}
