//! The files of NVIDIA's driver that a container needs beside the device files. Libraries must be of the very version of
//! the kernel's module, so that no image can bring them along.
//!
//! They are shown below one folder, which NVIDIA's own images look into and `LD_LIBRARY_PATH` names: nothing of the image
//! is replaced, and no program of it is run to find them.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

/// The device file without which no program can use the driver.
pub(super) const CONTROL_DEVICE: &str = "/dev/nvidiactl";
/// Where the container has the driver's files.
const INSIDE: &str = "/usr/local/nvidia";
pub(super) const LIBRARIES: &str = "/usr/local/nvidia/lib64";
pub(super) const PROGRAMS: &str = "/usr/local/nvidia/bin";
const VERSION: &str = "sys/module/nvidia/version";
/// Folders that distributions and driver packages install libraries into, each with that of its programs.
const FOLDERS: [(&str, &str); 7] = [
    ("usr/lib/x86_64-linux-gnu", "usr/bin"),
    ("usr/lib/aarch64-linux-gnu", "usr/bin"),
    ("usr/lib64", "usr/bin"),
    ("usr/lib", "usr/bin"),
    ("usr/local/nvidia/lib64", "usr/local/nvidia/bin"),
    ("opt/nvidia/lib64", "opt/nvidia/bin"),
    ("run/opengl-driver/lib", "run/current-system/sw/bin"),
];
const PROGRAM_NAMES: [&str; 4] =
    ["nvidia-smi", "nvidia-debugdump", "nvidia-cuda-mps-control", "nvidia-cuda-mps-server"];
/// Entries of a folder of libraries that are looked at.
const ENTRIES_MAX: usize = 65_536;

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct DriverFiles {
    libraries: Vec<PathBuf>,
    /// Further names of libraries, with the file's own.
    links: Vec<(String, String)>,
    programs: Vec<PathBuf>,
}

impl DriverFiles {
    /// What the node has of its driver; nothing if no module is loaded or no library fits it.
    pub fn find() -> Option<DriverFiles> {
        Self::find_below(Path::new("/"))
    }

    fn find_below(root: &Path) -> Option<DriverFiles> {
        let version = fs::read_to_string(root.join(VERSION)).ok()?;
        let ending = format!(".so.{}", version.trim());
        let folders = FOLDERS.iter().map(|(libraries, bin)| (root.join(libraries), root.join(bin)));
        let (folder, bin) = folders
            .into_iter()
            .find(|(folder, _)| folder.join(format!("libcuda{ending}")).is_file())?;
        let mut found = DriverFiles::default();
        for entry in fs::read_dir(&folder).ok()?.take(ENTRIES_MAX).flatten() {
            let (path, name) = (entry.path(), entry.file_name());
            let Some(name) = name.to_str().filter(|name| name.starts_with("lib")) else { continue };
            if path.is_symlink() {
                let target = fs::canonicalize(&path).ok();
                let target = target.as_deref().and_then(Path::file_name).and_then(|t| t.to_str());
                if let Some(target) = target.filter(|target| target.ends_with(&ending)) {
                    found.links.push((name.to_owned(), target.to_owned()));
                }
            } else if name.ends_with(&ending) {
                found.libraries.push(path);
            }
        }
        let programs = PROGRAM_NAMES.iter().map(|name| bin.join(name));
        found.programs = programs.filter(|path| path.is_file()).collect();
        found.libraries.sort();
        found.links.sort();
        Some(found)
    }

    /// The files with their places in a container, in the order in which they are mounted. `made` is the folder where
    /// root makes what the container shows.
    pub fn mounts(&self, made: &Path) -> Result<Vec<(PathBuf, String)>, String> {
        let made = made.join("driver");
        let mounts =
            self.make_mount_points(&made).map_err(|e| format!("{}: {e}", made.display()))?;
        Ok([(made, INSIDE.to_owned())].into_iter().chain(mounts).collect())
    }

    /// Returns each file of the node with its place in the container.
    fn make_mount_points(&self, made: &Path) -> std::io::Result<Vec<(PathBuf, String)>> {
        let mut mounts = Vec::new();
        for (inside, files) in [(LIBRARIES, &self.libraries), (PROGRAMS, &self.programs)] {
            let folder = made.join(inside.trim_start_matches(INSIDE).trim_start_matches('/'));
            fs::create_dir_all(&folder)?;
            for file in files {
                let Some(name) = file.file_name().and_then(|name| name.to_str()) else { continue };
                fs::write(folder.join(name), "")?;
                // The program may be a link on the node.
                mounts.push((fs::canonicalize(file)?, format!("{inside}/{name}")));
            }
        }
        let libraries = made.join("lib64");
        for (name, target) in &self.links {
            // A named container's folder has them already.
            match symlink(target, libraries.join(name)) {
                Err(e) if e.kind() != std::io::ErrorKind::AlreadyExists => return Err(e),
                _ => {}
            }
        }
        Ok(mounts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_of_the_modules_version_are_found_with_their_names_and_no_others() {
        let root = tempfile::tempdir().expect("scratch folder");
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().expect("a folder")).expect("made");
            fs::write(path, text).expect("written");
        };
        let find = || DriverFiles::find_below(root.path());
        assert_eq!(find(), None, "no module");
        write(VERSION, "580.1.2\n");
        write("usr/lib/x86_64-linux-gnu/libcuda.so.570.9", "an older driver's");
        assert_eq!(find(), None, "no library of the module's version");
        let folder = root.path().join("usr/lib64");
        for name in ["libcuda.so.580.1.2", "libnvidia-ml.so.580.1.2", "libc.so.6", "libx.so.570.9"]
        {
            write(&format!("usr/lib64/{name}"), "");
        }
        let links = [
            ("libcuda.so.1", "libcuda.so.580.1.2"),
            ("libcuda.so", "libcuda.so.1"),
            ("libz.so", "libc.so.6"),
            ("liblost.so", "nowhere"),
        ];
        for (name, target) in links {
            symlink(target, folder.join(name)).expect("linked");
        }
        write("usr/bin/nvidia-smi", "");
        write("usr/bin/other", "");
        let found = find().expect("a driver");
        let names = |paths: &[PathBuf]| {
            let names = paths.iter().filter_map(|path| path.file_name()?.to_str());
            names.map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(names(&found.libraries), ["libcuda.so.580.1.2", "libnvidia-ml.so.580.1.2"]);
        let target = "libcuda.so.580.1.2".to_owned();
        let expected =
            [("libcuda.so".to_owned(), target.clone()), ("libcuda.so.1".to_owned(), target)];
        assert_eq!(found.links, expected);
        assert_eq!(names(&found.programs), ["nvidia-smi"]);
        // Twice, as for a named container.
        for _ in 0..2 {
            let mounts = found.make_mount_points(&root.path().join("made")).expect("made");
            let inside: Vec<&str> = mounts.iter().map(|(_, inside)| inside.as_str()).collect();
            let expected = [
                "/usr/local/nvidia/lib64/libcuda.so.580.1.2",
                "/usr/local/nvidia/lib64/libnvidia-ml.so.580.1.2",
                "/usr/local/nvidia/bin/nvidia-smi",
            ];
            assert_eq!(inside, expected);
        }
        assert!(root.path().join("made/lib64/libcuda.so").is_file(), "a link to its mount point");
    }
}
