//! The files of NVIDIA's driver that a container needs beside the device files. Libraries must be of the very version of
//! the kernel's module, so that no image can bring them along.
//!
//! They are shown below one folder, which NVIDIA's own images look into and `LD_LIBRARY_PATH` names: nothing of the image
//! is replaced, and no program of it is run to find them.

use super::loader_cache;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Where the container has the driver's libraries and programs.
pub(crate) const LIBRARIES: &str = "/usr/local/nvidia/lib64";
pub(crate) const PROGRAMS: &str = "/usr/local/nvidia/bin";
const VERSION: &str = "sys/module/nvidia/version";
/// The library whose folder has the driver's others.
const CUDA: &str = "libcuda";
/// Folders that distributions and driver packages install libraries into, each with that of its programs.
const FOLDERS: [(&str, &str); 7] = [
    ("usr/lib/x86_64-linux-gnu", BIN),
    ("usr/lib/aarch64-linux-gnu", BIN),
    ("usr/lib64", BIN),
    ("usr/lib", BIN),
    ("usr/local/nvidia/lib64", "usr/local/nvidia/bin"),
    ("opt/nvidia/lib64", "opt/nvidia/bin"),
    ("run/opengl-driver/lib", "run/current-system/sw/bin"),
];
const BIN: &str = "usr/bin";
const PROGRAM_NAMES: [&str; 4] =
    ["nvidia-smi", "nvidia-debugdump", "nvidia-cuda-mps-control", "nvidia-cuda-mps-server"];
/// What a container has where the machine has it: sockets of the driver's daemons, and what names its libraries to Vulkan
/// and EGL.
const IN_PLACE: [&str; 5] = [
    "run/nvidia-persistenced/socket",
    "run/nvidia-fabricmanager/socket",
    "etc/vulkan/icd.d/nvidia_icd.json",
    "usr/share/vulkan/icd.d/nvidia_icd.json",
    "usr/share/glvnd/egl_vendor.d/10_nvidia.json",
];
/// Entries of a folder of libraries that are looked at.
const ENTRIES_MAX: usize = 65_536;

/// The driver's files by their places in a container.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct DriverFiles(pub BTreeMap<String, PathBuf>);

impl DriverFiles {
    /// What the machine below `root` has of its driver; nothing if no module is loaded or no library fits it. A library is
    /// there under each of its names: where a machine has links, a container has the file itself.
    pub fn find(root: &Path) -> Option<DriverFiles> {
        let version = fs::read_to_string(root.join(VERSION)).ok()?;
        let ending = format!(".so.{}", version.trim());
        let has_cuda =
            |(folder, _): &(PathBuf, PathBuf)| folder.join(format!("{CUDA}{ending}")).is_file();
        let (folder, bin) = cached_folders(root).chain(usual_folders(root)).find(has_cuda)?;
        let mut found = BTreeMap::new();
        for entry in fs::read_dir(&folder).ok()?.take(ENTRIES_MAX).flatten() {
            let name = entry.file_name();
            let Some(name) = name.to_str().filter(|name| name.starts_with("lib")) else { continue };
            let Ok(file) = fs::canonicalize(entry.path()) else { continue };
            let is_of_driver =
                file.file_name().is_some_and(|name| name.to_string_lossy().ends_with(&ending));
            if is_of_driver && file.is_file() {
                found.insert(format!("{LIBRARIES}/{name}"), file);
            }
        }
        for name in PROGRAM_NAMES {
            let places = [bin.join(name), root.join(BIN).join(name)];
            let file = places.iter().find_map(|place| fs::canonicalize(place).ok());
            found.extend(file.map(|file| (format!("{PROGRAMS}/{name}"), file)));
        }
        for path in IN_PLACE {
            if let Ok(file) = fs::canonicalize(root.join(path)) {
                found.insert(format!("/{path}"), file);
            }
        }
        Some(DriverFiles(found))
    }
}

/// The folders in which the loader finds the driver: that of the name, and that of the file where the name is a link.
fn cached_folders(root: &Path) -> impl Iterator<Item = (PathBuf, PathBuf)> {
    let named = loader_cache::paths_of(root, &format!("{CUDA}.so.1"));
    let below = move |path: PathBuf| Some(root.join(path.strip_prefix("/").ok()?));
    let named = named.into_iter().filter_map(below);
    let places = named.flat_map(|path| [fs::canonicalize(&path).ok(), Some(path)]);
    places.flatten().filter_map(move |path| {
        let folder = path.parent()?.to_owned();
        let bin = programs_beside(root, &folder);
        Some((folder, bin))
    })
}

/// The folder of the programs that belong to these libraries. What lies elsewhere under their names may be a script that
/// leads to them, and would lead nowhere in a container.
fn programs_beside(root: &Path, libraries: &Path) -> PathBuf {
    let known = FOLDERS.iter().find(|(folder, _)| root.join(folder) == libraries);
    root.join(known.map_or(BIN, |(_, bin)| bin))
}

fn usual_folders(root: &Path) -> impl Iterator<Item = (PathBuf, PathBuf)> {
    FOLDERS.iter().map(move |(libraries, bin)| (root.join(libraries), root.join(bin)))
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::loader_cache::tests::{KIND, cache};
    use super::*;
    use std::os::unix::fs::symlink;

    pub fn put(root: &Path, path: &str, text: impl AsRef<[u8]>) {
        let path = root.join(path);
        fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        fs::write(path, text).expect("written");
    }

    /// A driver of one version, in this folder below `root`.
    pub fn driver(root: &Path, folder: &str) {
        put(root, VERSION, "580.1.2\n");
        for name in ["libcuda.so.580.1.2", "libnvidia-ml.so.580.1.2", "libc.so.6", "libx.so.570.9"]
        {
            put(root, &format!("{folder}/{name}"), name);
        }
        let links = [
            ("libcuda.so.1", "libcuda.so.580.1.2"),
            ("libcuda.so", "libcuda.so.1"),
            ("libz.so", "libc.so.6"),
            ("liblost.so", "nowhere"),
        ];
        for (name, target) in links {
            symlink(target, root.join(folder).join(name)).expect("linked");
        }
        put(root, "usr/bin/nvidia-smi", "");
        put(root, "usr/bin/other", "");
    }

    fn found(root: &Path) -> Option<Vec<(String, String)>> {
        let relative = |file: &PathBuf| {
            let root = fs::canonicalize(root).expect("a path");
            file.strip_prefix(root).expect("below the root").display().to_string()
        };
        let files = DriverFiles::find(root)?.0;
        Some(files.iter().map(|(inside, file)| (inside.clone(), relative(file))).collect())
    }

    fn expected(folder: &str) -> Vec<(String, String)> {
        let library = |name: &str, file: &str| {
            (format!("{LIBRARIES}/{name}"), format!("{folder}/{file}.580.1.2"))
        };
        vec![
            (format!("{PROGRAMS}/nvidia-smi"), "usr/bin/nvidia-smi".to_owned()),
            library("libcuda.so", "libcuda.so"),
            library("libcuda.so.1", "libcuda.so"),
            library("libcuda.so.580.1.2", "libcuda.so"),
            library("libnvidia-ml.so.580.1.2", "libnvidia-ml.so"),
        ]
    }

    #[test]
    fn libraries_of_the_modules_version_are_found_with_their_names_and_no_others() {
        let root = tempfile::tempdir().expect("scratch folder");
        let root = root.path();
        assert_eq!(found(root), None, "no module");
        put(root, VERSION, "580.1.2\n");
        put(root, "usr/lib/x86_64-linux-gnu/libcuda.so.570.9", "an older driver's");
        assert_eq!(found(root), None, "no library of the module's version");
        driver(root, "usr/lib64");
        assert_eq!(found(root), Some(expected("usr/lib64")));
        put(root, "run/nvidia-persistenced/socket", "");
        let socket = "/run/nvidia-persistenced/socket".to_owned();
        assert!(found(root).is_some_and(|all| all.iter().any(|(inside, _)| *inside == socket)));
    }

    /// A machine whose loader names the driver's own folder may have a script in `/usr/bin` that leads to the program there.
    #[test]
    fn programs_are_those_beside_the_libraries_that_the_loader_finds() {
        let root = tempfile::tempdir().expect("scratch folder");
        let root = root.path();
        driver(root, "usr/local/nvidia/lib64");
        put(root, "usr/local/nvidia/bin/nvidia-smi", "the program");
        let libraries = [(KIND, "libcuda.so.1", "/usr/local/nvidia/lib64/libcuda.so.1")];
        put(root, "etc/ld.so.cache", cache(&libraries));
        let place =
            (format!("{PROGRAMS}/nvidia-smi"), "usr/local/nvidia/bin/nvidia-smi".to_owned());
        assert!(found(root).is_some_and(|all| all.contains(&place)), "{:?}", found(root));
    }

    /// A distribution that can switch between drivers has the library's name in the usual folder, as a link.
    #[test]
    fn loaders_cache_leads_to_a_folder_that_no_list_has() {
        let root = tempfile::tempdir().expect("scratch folder");
        let root = root.path();
        driver(root, "usr/lib/nvidia/current");
        assert_eq!(found(root), None, "no usual folder");
        put(root, "usr/lib/mine/mark", "");
        symlink("../nvidia/current/libcuda.so.1", root.join("usr/lib/mine/libcuda.so.1"))
            .expect("linked");
        let libraries = [(KIND, "libcuda.so.1", "/usr/lib/mine/libcuda.so.1")];
        put(root, "etc/ld.so.cache", cache(&libraries));
        assert_eq!(found(root), Some(expected("usr/lib/nvidia/current")));
    }
}
