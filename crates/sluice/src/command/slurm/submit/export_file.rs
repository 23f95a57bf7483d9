//! `--export-file`: variables for the job from a file, or from an open descriptor.

use model::bounds;
use model::os_text;
use std::fs::File;
use std::io::{self, Read};

/// The first number that is taken for a descriptor: below are the standard streams.
const FIRST_DESCRIPTOR: i32 = 3;

/// Adds the variables of the file to an environment of entries that end with NUL; theirs win. The error is a line for the user.
pub fn add(environment: &mut String, named: &str) -> Result<(), String> {
    let failed = |why: &dyn std::fmt::Display| format!("--export-file={named}: {why}");
    let text = os_text::from_bytes(read(named).map_err(|error| failed(&error))?);
    let added: Vec<&str> = text.split('\0').map(|entry| entry.trim_start_matches('\n')).collect();
    let added: Vec<&str> = added.into_iter().filter(|entry| !entry.is_empty()).collect();
    let name = |entry: &str| entry.split_once('=').map(|(name, _)| name.to_owned());
    if let Some(wrong) = added.iter().find(|entry| name(entry).is_none_or(|name| name.is_empty())) {
        let shown: String = wrong.chars().take(40).collect();
        return Err(failed(&format!("{shown:?}: expected NAME=value, each ended by a NUL")));
    }
    let names: Vec<Option<String>> = added.iter().map(|entry| name(entry)).collect();
    let kept = environment.split_terminator('\0').filter(|entry| !names.contains(&name(entry)));
    let whole: String =
        kept.chain(added.iter().copied()).map(|entry| format!("{entry}\0")).collect();
    *environment = whole;
    Ok(())
}

fn read(named: &str) -> io::Result<Vec<u8>> {
    let number = named.parse::<i32>().ok().filter(|number| *number >= FIRST_DESCRIPTOR);
    let path = number.map_or_else(|| named.to_owned(), |number| format!("/proc/self/fd/{number}"));
    let most = bounds::ENVIRONMENT_BYTES.most as u64;
    let mut bytes = Vec::new();
    File::open(os_text::to_os(&path))?.take(most + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        return Err(io::Error::other(format!("it is longer than {most} bytes")));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_of_the_file_win_and_a_wrong_file_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("variables");
        let named = path.to_str().expect("a path");
        std::fs::write(&path, "A=new\0C=with = and\nlines\0").expect("a file");
        let mut environment = "A=old\0B=2\0".to_owned();
        add(&mut environment, named).expect("it is read");
        assert_eq!(environment, "B=2\0A=new\0C=with = and\nlines\0");
        std::fs::write(&path, "no variable\0").expect("a file");
        assert!(add(&mut environment, named).expect_err("wrong").contains("expected NAME=value"));
        assert!(add(&mut environment, "/no/such").expect_err("missing").contains("No such file"));
        assert_eq!(environment, "B=2\0A=new\0C=with = and\nlines\0");
    }
}
