//! `PATH` of a job's process.

use model::search_path::SYSTEM_PATH;

const PATH: &str = "PATH=";

/// Puts a folder first.
pub(crate) fn first_in_path(environment: &mut Vec<String>, folder: &str) {
    let first = format!("{PATH}{folder}");
    let Some(entry) = environment.iter_mut().find(|entry| entry.starts_with(PATH)) else {
        return environment.push(format!("{first}:{SYSTEM_PATH}"));
    };
    let folders = &entry[PATH.len()..];
    if folders.split(':').next() == Some(folder) {
        return;
    }
    *entry = if folders.is_empty() { first } else { format!("{first}:{folders}") };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folder_comes_first_and_once() {
        for (before, after) in [
            ("PATH=/bin", "PATH=/x:/bin"),
            ("PATH=", "PATH=/x"),
            ("PATH=/x:/bin", "PATH=/x:/bin"),
            ("PATH=/bin:/x", "PATH=/x:/bin:/x"),
        ] {
            let mut environment = vec!["A=1".to_owned(), before.to_owned()];
            first_in_path(&mut environment, "/x");
            assert_eq!(environment, ["A=1", after]);
        }
        let mut environment = Vec::new();
        first_in_path(&mut environment, "/x");
        assert_eq!(environment, [format!("PATH=/x:{SYSTEM_PATH}")]);
    }
}
