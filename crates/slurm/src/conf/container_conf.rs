//! job_container.conf: folders that each job sees a version of its own of. It is read where slurm.conf says
//! `JobContainerType=job_container/tmpfs`, and there it must name the place that the versions are kept in.

use model::site::PrivateFolders;

use super::error::Findings;
use super::lines::Line;
use super::record::Record;
use super::record_keys::CONTAINER;

const DIRS_DEFAULT: [&str; 2] = ["/tmp", "/dev/shm"];

/// None where the file is not there or was refused.
pub fn read(lines: &[Line], findings: &mut Findings) -> Option<PrivateFolders> {
    let pairs: Vec<_> = lines.iter().flatten().cloned().collect();
    let record = Record::read(CONTAINER, &pairs, findings);
    if let Some(entry) = record.entry("NodeName") {
        let expected = "expected one setting for all nodes, without NodeName";
        findings.wrong(&entry.place, "NodeName", &entry.text, expected);
    }
    let given = record.words("Dirs");
    let usual = || DIRS_DEFAULT.map(str::to_owned).to_vec();
    let dirs = if given.is_empty() { usual() } else { given };
    for key in ["BasePath", "Dirs"] {
        if let Some(entry) = record.entry(key)
            && entry.text.split(',').any(|path| !is_plain(path.trim()))
        {
            let expected = "expected paths from the root, without ..";
            findings.wrong(&entry.place, key, &entry.text, expected);
        }
    }
    let base = record.text("BasePath").filter(|base| base != "none")?;
    let make_base = record.flag("AutoBasePath").unwrap_or(false);
    Some(PrivateFolders { base, make_base, dirs })
}

fn is_plain(path: &str) -> bool {
    path == "none" || (path.starts_with('/') && path.split('/').all(|part| part != ".."))
}

#[cfg(test)]
mod tests {
    use crate::conf::{ConfError, MemoryFiles, load_dir};
    use std::path::Path;

    fn load(slurm: &str, container: &str) -> Result<crate::conf::Conf, Vec<ConfError>> {
        let files = MemoryFiles::default()
            .with(Path::new("/c").join("slurm.conf"), slurm.to_owned())
            .with(Path::new("/c").join("job_container.conf"), container.to_owned());
        load_dir(&files, Path::new("/c"))
    }

    const ON: &str = "JobContainerType=job_container/tmpfs";

    #[test]
    fn folders_are_private_only_where_the_type_says_so() {
        let file = "AutoBasePath=true\nBasePath=/scratch";
        let private = load(ON, file).expect("a good file").private.expect("folders");
        assert_eq!((private.base.as_str(), private.make_base), ("/scratch", true));
        assert_eq!(private.dirs, ["/tmp", "/dev/shm"]);
        assert_eq!(load("", file).expect("a good file").private, None);
    }

    #[test]
    fn a_path_that_leads_elsewhere_is_refused() {
        for file in ["BasePath=scratch", "BasePath=/a Dirs=/tmp,../x", "BasePath=/a NodeName=n1"] {
            assert!(load(ON, file).is_err(), "{file}");
        }
        assert!(load(ON, "Dirs=/tmp").is_err(), "without BasePath");
    }
}
