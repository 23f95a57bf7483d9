//! Copies a repository that was cloned before, with the rights of whoever it is copied for.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

/// Copies what is in a folder into another that is there. Links are copied as they are.
pub(super) fn copy(from: &Path, to: &Path) -> Result<(), String> {
    let failed = |path: &Path, e: std::io::Error| format!("{}: {e}", path.display());
    for entry in fs::read_dir(from).map_err(|e| failed(from, e))? {
        let entry = entry.map_err(|e| failed(from, e))?;
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        let kind = entry.file_type().map_err(|e| failed(&source, e))?;
        if kind.is_dir() {
            fs::create_dir(&target).map_err(|e| failed(&target, e))?;
            copy(&source, &target)?;
        } else if kind.is_symlink() {
            let link = fs::read_link(&source).map_err(|e| failed(&source, e))?;
            symlink(link, &target).map_err(|e| failed(&target, e))?;
        } else if kind.is_file() {
            fs::copy(&source, &target).map_err(|e| failed(&target, e))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn files_folders_and_links_are_copied_as_they_are() {
        let dir = tempfile::tempdir().expect("a folder");
        let (from, to) = (dir.path().join("from"), dir.path().join("to"));
        fs::create_dir_all(from.join("a/b")).expect("folders");
        fs::create_dir(&to).expect("a folder");
        fs::write(from.join("a/b/run"), "#!").expect("written");
        let mode = PermissionsExt::from_mode(0o755);
        fs::set_permissions(from.join("a/b/run"), mode).expect("a mode");
        symlink("/nowhere", from.join("link")).expect("a link");
        copy(&from, &to).expect("copied");
        assert_eq!(fs::read_to_string(to.join("a/b/run")).expect("text"), "#!");
        let mode = fs::metadata(to.join("a/b/run")).expect("there").permissions().mode();
        assert_eq!(mode & 0o777, 0o755);
        assert_eq!(fs::read_link(to.join("link")).expect("a link"), Path::new("/nowhere"));
        assert!(copy(&from, &to).is_err_and(|why| why.contains("File exists")));
    }
}
