//! Memory and boot time, from `/proc`.

use std::path::Path;

use super::{DetectError, read_under};

/// `MemTotal` in MiB, rounded down as Slurm does.
pub(super) fn total_mb(root: &Path) -> Result<u64, DetectError> {
    Ok(number_after(root, "proc/meminfo", "MemTotal:", "a line MemTotal: KIB kB")? / 1024)
}

/// When the machine started, in seconds since 1970.
pub(super) fn boot_time(root: &Path) -> Result<u64, DetectError> {
    number_after(root, "proc/stat", "btime ", "a line btime SECONDS")
}

fn number_after(
    root: &Path,
    path: &str,
    key: &str,
    expected: &'static str,
) -> Result<u64, DetectError> {
    let text = read_under(root, path)?;
    let line = text.lines().find_map(|line| line.strip_prefix(key));
    line.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).ok_or_else(|| {
        DetectError::Content {
            path: format!("/{path}"),
            value: line.unwrap_or_default().to_owned(),
            expected,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn memory_is_rounded_down_to_mib() {
        let root = tempfile::tempdir().expect("scratch folder");
        fs::create_dir(root.path().join("proc")).expect("proc");
        for (text, expected) in [
            ("MemTotal:       24683519 kB\nMemFree: 1 kB\n", Some(24104)),
            ("MemFree: 1 kB\n", None),
            ("MemTotal: many kB\n", None),
        ] {
            fs::write(root.path().join("proc/meminfo"), text).expect("write");
            assert_eq!(total_mb(root.path()).ok(), expected, "{text:?}");
        }
    }
}
