//! What is read of slurmdbd.conf: when the records of jobs leave the books. Its other keys are about a daemon and a database that
//! are not there.

use crate::error::ServerError;
use cluster::config::{PurgeAge, PurgeJobs};
use slurm::conf::Files;
use std::io::ErrorKind;
use std::path::Path;

const FILE: &str = "slurmdbd.conf";

/// Slurm's default for archives.
const ARCHIVE_DIR: &str = "/tmp";

/// The purge that the file asks for. A file that cannot be read is left alone: it is often readable to another user alone, and
/// without it nothing is purged.
pub(super) fn read(files: &dyn Files, dir: &Path) -> Result<Option<PurgeJobs>, ServerError> {
    let path = dir.join(FILE);
    match files.read(&path) {
        Ok(text) => parse(&text)
            .map_err(|why| ServerError::Configuration(format!("{}: {why}", path.display()))),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => {
            tracing::warn!("{}: {error}: no record of a job is purged", path.display());
            Ok(None)
        }
    }
}

fn parse(text: &str) -> Result<Option<PurgeJobs>, String> {
    let (mut after, mut archives, mut folder) = (None, false, ARCHIVE_DIR.to_owned());
    for (number, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default().trim();
        let Some((key, value)) = line.split_once('=') else { continue };
        let (key, value) = (key.trim().to_ascii_lowercase(), value.trim());
        let wrong = |expected: &str| {
            format!("line {}: {}={value}: expected {expected}", number + 1, key.as_str())
        };
        match key.as_str() {
            "purgejobafter" => {
                let expected = "a number of months, or of hours or days, as in 12months";
                after = Some(age(value).ok_or_else(|| wrong(expected))?);
            }
            "archivejobs" => {
                archives = match value.to_ascii_lowercase().as_str() {
                    "yes" | "true" | "1" => true,
                    "no" | "false" | "0" => false,
                    _ => return Err(wrong("yes or no")),
                };
            }
            "archivedir" if !Path::new(value).is_absolute() => {
                return Err(wrong("an absolute path"));
            }
            "archivedir" => folder = value.to_owned(),
            _ => {}
        }
    }
    let archive = archives.then_some(folder);
    Ok(after.map(|after| PurgeJobs { after, archive }))
}

/// `12`, `12months`, `30days`, `48hours`; a unit may lack its s.
fn age(text: &str) -> Option<PurgeAge> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let number: u32 = number.parse().ok().filter(|number| *number > 0)?;
    match unit.trim().to_ascii_lowercase().trim_end_matches('s') {
        "" | "month" => Some(PurgeAge::Months(number)),
        "day" => Some(PurgeAge::Days(number)),
        "hour" => Some(PurgeAge::Hours(number)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn purge_and_archive_are_read_and_other_keys_are_left_alone() {
        let text =
            "# the books\nDbdHost=head\nStoragePass=hunter2\nPurgeJobAfter=12months # a year\n";
        let months = PurgeJobs { after: PurgeAge::Months(12), archive: None };
        assert_eq!(parse(text), Ok(Some(months)));
        let text = "purgejobafter=30days\nArchiveJobs=yes\nArchiveDir=/var/archive\n";
        let archive = Some("/var/archive".to_owned());
        assert_eq!(parse(text), Ok(Some(PurgeJobs { after: PurgeAge::Days(30), archive })));
        assert_eq!(parse("ArchiveJobs=yes\n"), Ok(None));
        for (value, expected) in [
            ("6", Some(PurgeAge::Months(6))),
            ("1month", Some(PurgeAge::Months(1))),
            ("48hours", Some(PurgeAge::Hours(48))),
            ("0", None),
            ("soon", None),
            ("3weeks", None),
            ("-1", None),
        ] {
            assert_eq!(age(value), expected, "{value}");
        }
    }

    #[test]
    fn wrong_value_is_said_with_its_line_and_no_password() {
        let said = parse("StoragePass=hunter2\nPurgeJobAfter=soon\n").expect_err("wrong");
        assert!(said.starts_with("line 2: purgejobafter=soon: expected a number of"), "{said}");
        assert!(!said.contains("hunter2"), "{said}");
        assert!(parse("ArchiveDir=here\n").is_err_and(|why| why.contains("an absolute path")));
    }
}
