//! What a container shows beside its image: folders of the node, the job's script, Sluice's own commands, and the
//! user's name. Everything is placed by handle below the container's root.

use super::ContainerSpec;
use crate::cdi::OWN_PLACES;
use crate::supervisor::mount_calls::{MountPoints, Rights, Tree, open_in_root, open_plain};
use crate::supervisor::process::credentials::as_user;
use crate::volume;
use image::Digest;
use model::container::Mount;
use model::os_text;
use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::sys::stat::{Mode, SFlag, fstat};
use std::ffi::{CStr, OsStr, OsString};
use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use wire::order::UserIds;
use wire::volume::LaunchVolume;

/// Where the container has Sluice's own files.
pub(super) const OWN: &str = "/run/sluice";
/// The program itself; where it cannot be shown, its commands are not there either.
pub(super) const PROGRAM: &str = "/run/sluice/program";
/// The small program that enters the working directory ([`ENTER_PROGRAM`]).
pub(super) const ENTER: &str = "/run/sluice/enter";
/// Enters a working directory and executes a program there, without a library (`enter/enter.rs`). Empty where the build could
/// not make it.
pub(super) const ENTER_PROGRAM: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/enter"));

/// The arguments that run a verb of Sluice's own program in a container: by a loader that is shown with it, since the image
/// need not have its C library.
pub(super) fn own_program(verb: &str) -> [String; 5] {
    [
        format!("{OWN}/lib/loader"),
        "--library-path".to_owned(),
        format!("{OWN}/lib"),
        PROGRAM.to_owned(),
        verb.to_owned(),
    ]
}

/// A file of the image that is read to be added to.
const READ_BYTES_MAX: u64 = 1 << 20;
/// Files of the node that make its network usable.
const HOSTS: &str = "/etc/hosts";
const RESOLVERS: &str = "/etc/resolv.conf";
const RESOLVERS_OF_SYSTEMD: &str = "/run/systemd/resolve/resolv.conf";
/// Folders that an image has for itself: a job that was submitted in one of them does not bring it along.
const OF_IMAGE: [&str; 12] = [
    "/bin", "/boot", "/dev", "/etc", "/lib", "/lib64", "/proc", "/root", "/run", "/sbin", "/sys",
    "/usr",
];
/// The names under which the program is Slurm's commands.
const COMMANDS: [&str; 18] = [
    "sacct", "sacctmgr", "salloc", "sattach", "sbatch", "sbcast", "scancel", "scontrol", "sdiag",
    "seff", "sinfo", "sluice", "sprio", "squeue", "sreport", "srun", "sshare", "sstat",
];

/// Whether the folder is one that the image should not have replaced.
pub(super) fn is_of_image(path: &str) -> bool {
    Path::new(path) == Path::new("/") || OF_IMAGE.iter().any(|own| Path::new(path).starts_with(own))
}

/// Refuses to mount what a user named where the container has files of its own: they would cover it, or it would cover Sluice's
/// commands. What the node has at the same path is not refused: the container has its own `/dev/shm`, `/sys` and devices there.
pub(super) fn check_place(source: &str, target: &str) -> Result<(), String> {
    let is_own = OWN_PLACES.iter().any(|own| Path::new(target).starts_with(own));
    if is_own && source != target {
        let own = OWN_PLACES.join(", ");
        return Err(format!("mount {source}:{target}: expected a place outside of {own}"));
    }
    Ok(())
}

/// A file or folder of the node that is to be shown, taken before anything of the container is mounted.
pub(super) struct Shown {
    tree: Tree,
    is_folder: bool,
}

impl AsFd for Shown {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.tree.as_fd()
    }
}

/// Takes a file or folder of the node that a user named, with that user's rights.
pub(super) fn take_for_user(mount: &Mount, user: &UserIds) -> Result<Shown, String> {
    let source = os_text::to_os(&mount.source);
    let taken = as_user(user, || open_plain(Path::new(&*source), OFlag::O_PATH))
        .and_then(|opened| opened)
        .and_then(|source| {
            let shown = Shown { is_folder: is_folder(&source)?, tree: Tree::copy(&source)? };
            shown.tree.restrict(mount.read_only)?;
            Ok(shown)
        });
    taken.map_err(|e| format!("mount {}: {}", mount.source, e.desc()))
}

/// Takes the folder of a volume.
pub(super) fn take_volume(volume: &LaunchVolume, spec: &ContainerSpec) -> Result<Shown, String> {
    let failed = |why: String| format!("volume {}: {why}", volume.name);
    let folder = volume::open(spec.node, &volume.folder, spec.user).map_err(failed)?;
    let tree = Tree::copy_alone(&folder).and_then(|tree| {
        tree.restrict(volume.read_only)?;
        Ok(tree)
    });
    Ok(Shown { tree: tree.map_err(|e| failed(e.desc().to_owned()))?, is_folder: true })
}

/// Shows what a user named at the place that the user named.
pub(super) fn show_taken(points: MountPoints, shown: Shown, mount: &Mount) -> Result<(), String> {
    show(points, shown, &mount.target)
        .map_err(|e| format!("mount {} on {}: {}", mount.source, mount.target, e.desc()))
}

pub(super) fn is_folder(file: &OwnedFd) -> nix::Result<bool> {
    Ok(fstat(file)?.st_mode & SFlag::S_IFMT.bits() == SFlag::S_IFDIR.bits())
}

const HANDLE: OFlag = OFlag::O_PATH.union(OFlag::O_CLOEXEC);

fn show(points: MountPoints, shown: Shown, target: &str) -> nix::Result<()> {
    let target = if shown.is_folder { points.folder(target)? } else { points.file(target)? };
    // A target may be the root itself, by a link of the image: what covers the root would be found in its place by all that follows as root.
    if is_same_file(points.root, &target)? {
        return Err(Errno::EBUSY);
    }
    shown.tree.show_at(target)
}

fn is_same_file(one: impl AsFd, other: impl AsFd) -> nix::Result<bool> {
    let (one, other) = (fstat(one)?, fstat(other)?);
    Ok((one.st_dev, one.st_ino) == (other.st_dev, other.st_ino))
}

/// A file or folder of ours with its place in a container.
pub(super) struct Placed {
    shown: Shown,
    source: PathBuf,
    target: String,
}

impl Placed {
    pub fn take(source: &Path, target: &str) -> Result<Placed, String> {
        Self::take_as(source, target, true)
    }

    pub fn take_as(source: &Path, target: &str, read_only: bool) -> Result<Placed, String> {
        let taken = open(source, HANDLE, Mode::empty()).and_then(|file| {
            let shown = Shown { is_folder: is_folder(&file)?, tree: Tree::copy(&file)? };
            shown.tree.restrict(read_only)?;
            Ok(shown)
        });
        let shown = taken.map_err(|e| failed_mount(source, target, e))?;
        Ok(Placed { shown, source: source.to_owned(), target: target.to_owned() })
    }

    pub fn show(self, points: MountPoints) -> Result<(), String> {
        let Placed { shown, source, target } = self;
        show(points, shown, &target).map_err(|e| failed_mount(&source, &target, e))
    }
}

fn failed_mount(source: &Path, target: &str, errno: Errno) -> String {
    format!("mount {} on {target}: {}", source.display(), errno.desc())
}

/// Shows a file or folder of ours.
pub(super) fn show_own(points: MountPoints, source: &Path, target: &str) -> Result<(), String> {
    Placed::take(source, target)?.show(points)
}

/// Shows the node's names of hosts and who resolves further ones, where the node has them. A container may have another
/// loopback address than its node: it is shown a copy, made in `made`, without resolvers that answer only there.
pub(super) fn show_network_files(
    points: MountPoints,
    own_network: bool,
    made: &Path,
) -> Result<(), String> {
    let has = |file: &&str| Path::new(file).exists();
    if let Some(file) = Some(HOSTS).filter(has) {
        show_own(points, Path::new(file), file)?;
    }
    let Some(file) = Some(RESOLVERS).filter(has) else { return Ok(()) };
    let text = fs::read_to_string(file).unwrap_or_default();
    if !own_network || !text.lines().any(is_loopback_resolver) {
        return show_own(points, Path::new(file), file);
    }
    // The resolver on the node's loopback address is not reached from the container; systemd's lists the servers that it asks.
    let text = fs::read_to_string(RESOLVERS_OF_SYSTEMD).unwrap_or(text);
    let kept =
        text.lines().filter(|line| !is_loopback_resolver(line)).map(|line| format!("{line}\n"));
    let copy = made.join("resolv.conf");
    fs::write(&copy, kept.collect::<String>())
        .and_then(|()| fs::set_permissions(&copy, PermissionsExt::from_mode(0o444)))
        .map_err(|e| format!("cannot write {}: {e}", copy.display()))?;
    show_own(points, &copy, file)
}

fn is_loopback_resolver(line: &str) -> bool {
    let mut words = line.split_whitespace();
    let address = words.next().filter(|word| *word == "nameserver").and(words.next());
    address.and_then(|text| text.parse::<IpAddr>().ok()).is_some_and(|ip| ip.is_loopback())
}

/// The image's users with the job's user added, so that programs find a name and a home.
pub(super) fn user_files(
    root: &OwnedFd,
    user: &UserIds,
    home: &str,
    made: &Path,
) -> Result<Vec<Placed>, String> {
    let mut placed = Vec::new();
    let (name, uid, gid) = (&user.name, user.uid, user.gid);
    let passwd = format!("{name}:x:{uid}:{gid}:{name}:{home}:/bin/sh\n");
    let group = format!("{name}:x:{gid}:\n");
    for (file, line, id) in [("passwd", passwd, uid), ("group", group, gid)] {
        let inside = format!("/etc/{file}");
        // With the user's rights: a folder as an image may have files that the user cannot read.
        let mut text = read_in_root(root, &inside, Rights::User(user)).unwrap_or_default();
        let known = text.lines().any(|line| line.split(':').nth(2) == Some(&id.to_string()));
        if known {
            continue;
        }
        if !text.is_empty() && !text.ends_with('\n') {
            text.push('\n');
        }
        let path = made.join(file);
        fs::write(&path, text + &line)
            .map_err(|e| format!("cannot write {}: {e}", path.display()))?;
        placed.push(Placed::take(&path, &inside)?);
    }
    Ok(placed)
}

/// A file of the container, read with these rights; the user's where both have a say.
pub(super) fn read_in_root(root: &OwnedFd, path: &str, rights: Rights) -> Option<String> {
    match rights {
        Rights::Root => read_file(root, path),
        Rights::User(user) | Rights::UserOrImage(user) => {
            as_user(user, || read_file(root, path)).ok().flatten()
        }
    }
}

fn read_file(root: &OwnedFd, path: &str) -> Option<String> {
    // An image may have a device there, which is not to be opened.
    let file = open_in_root(root.as_fd(), path, OFlag::O_PATH).ok()?;
    if fstat(&file).ok()?.st_mode & SFlag::S_IFMT.bits() != SFlag::S_IFREG.bits() {
        return None;
    }
    let file = File::open(format!("/proc/self/fd/{}", file.as_raw_fd())).ok()?;
    let mut text = String::new();
    file.take(READ_BYTES_MAX).read_to_string(&mut text).ok()?;
    Some(text)
}

/// The script that is one of Sluice's commands in a container.
fn command_script(name: &str) -> String {
    let verb = if name == "sluice" { "" } else { name };
    format!(
        "#!/bin/sh\nexec {OWN}/lib/loader --library-path {OWN}/lib {OWN}/program {verb} \"$@\"\n"
    )
}

/// Makes the folder of Sluice's commands.
pub(super) fn make_scripts(folder: &Path) -> std::io::Result<()> {
    fs::create_dir_all(folder)?;
    for name in COMMANDS {
        let mut file = File::create(folder.join(name))?;
        file.write_all(command_script(name).as_bytes())?;
        file.set_permissions(PermissionsExt::from_mode(0o755))?;
    }
    Ok(())
}

/// The folder of Sluice's commands that all containers of a node share, in the node's own folder `node`. It is named after
/// what is in it, and stays: containers that run show it.
pub(super) fn node_scripts(node: &Path) -> Result<PathBuf, String> {
    let content: String = COMMANDS.map(command_script).concat();
    let name = format!("commands-{}", &Digest::of(content.as_bytes()).hex()[..16]);
    let folder = node.join(&name);
    if folder.is_dir() {
        return Ok(folder);
    }
    let partial = node.join(format!("{name}.{}", std::process::id()));
    let made = make_scripts(&partial).and_then(|()| match fs::rename(&partial, &folder) {
        // Another container's process was faster.
        Err(_) if folder.is_dir() => fs::remove_dir_all(&partial),
        renamed => renamed,
    });
    made.map(|()| folder).map_err(failed_commands)
}

fn failed_commands(e: std::io::Error) -> String {
    format!("cannot show the commands in the container: {e}")
}

/// Sluice's own program on this node.
pub(super) fn program_file() -> std::io::Result<PathBuf> {
    let path = fs::read_link("/proc/self/exe")?.into_os_string().into_vec();
    // The kernel says so of a program that was replaced since; the new one is at the same place.
    let path = path.strip_suffix(b" (deleted)").map(<[u8]>::to_vec).unwrap_or(path);
    Ok(PathBuf::from(OsString::from_vec(path)))
}

/// Sluice's commands, whose scripts are in `bin`, with their places in a container. They bring their own C library along,
/// because the image's may be older or another one; none where this program has none.
pub(super) fn commands(bin: PathBuf) -> Result<Vec<(PathBuf, String)>, String> {
    let program = program_file().map_err(failed_commands)?;
    let Some((loader, libraries)) = libraries() else { return Ok(Vec::new()) };
    let mut all = vec![
        (bin, format!("{OWN}/bin")),
        (program, PROGRAM.to_owned()),
        (loader, format!("{OWN}/lib/loader")),
    ];
    for library in libraries {
        let name = library.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let target = format!("{OWN}/lib/{name}");
        all.push((library, target));
    }
    Ok(all)
}

/// The loader and the libraries of this program, under the names by which they were asked for.
fn libraries() -> Option<(PathBuf, Vec<PathBuf>)> {
    unsafe extern "C" fn add(
        info: *mut libc::dl_phdr_info,
        _: libc::size_t,
        list: *mut libc::c_void,
    ) -> libc::c_int {
        // SAFETY: the loader gives a valid record, and `list` is the vector below.
        let (name, list) = unsafe {
            let name = (*info).dlpi_name;
            let name = if name.is_null() { c"" } else { CStr::from_ptr(name) };
            (name, &mut *list.cast::<Vec<PathBuf>>())
        };
        if name.to_bytes().starts_with(b"/") {
            list.push(PathBuf::from(OsStr::from_bytes(name.to_bytes())));
        }
        0
    }
    let mut paths: Vec<PathBuf> = Vec::new();
    // SAFETY: the callback has the signature that is asked for, and its argument outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(add), (&raw mut paths).cast()) };
    let at = paths.iter().position(|path| {
        path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with("ld-"))
    })?;
    let loader = paths.remove(at);
    Some((loader, paths))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resolvers_at_a_loopback_address_are_told_from_others() {
        for line in ["nameserver 127.0.0.53", "nameserver\t127.0.0.1 # local", "nameserver ::1"] {
            assert!(is_loopback_resolver(line), "{line}");
        }
        for line in
            ["nameserver 10.0.0.2", "# nameserver 127.0.0.1", "search 127.0.0.1", "nameserver"]
        {
            assert!(!is_loopback_resolver(line), "{line}");
        }
    }

    #[test]
    fn folders_of_the_image_are_not_replaced_by_the_nodes() {
        for path in ["/", "/usr/lib", "/etc", "/root"] {
            assert!(is_of_image(path), "{path}");
        }
        for path in ["/home/kim", "/scratch", "/usrdata", "/tmp/x"] {
            assert!(!is_of_image(path), "{path}");
        }
    }

    #[test]
    fn mount_is_refused_where_the_container_has_files_of_its_own() {
        for target in ["/dev/shm", "/sys", "/./proc/self", "//dev", "/run/sluice/bin"] {
            let said = check_place("/home/kim", target).expect_err(target);
            let outside = "expected a place outside of /proc, /sys, /dev, /run/sluice";
            assert_eq!(said, format!("mount /home/kim:{target}: {outside}"));
        }
        for target in ["/data", "/devices", "/run", "/run/sluiced", "/home/kim/sys"] {
            assert_eq!(check_place("/home/kim", target), Ok(()), "{target}");
        }
        assert_eq!(check_place("/dev/infiniband", "/dev/infiniband"), Ok(()));
    }

    #[test]
    fn scripts_of_the_commands_are_made_once_for_a_node() {
        let node = tempfile::tempdir().expect("scratch folder");
        let folder = node_scripts(node.path()).expect("made");
        let script = fs::read_to_string(folder.join("srun")).expect("read");
        assert!(script.ends_with("/program srun \"$@\"\n"), "{script}");
        fs::write(folder.join("mark"), "").expect("written");
        assert_eq!(node_scripts(node.path()), Ok(folder.clone()));
        assert!(folder.join("mark").exists(), "it is the same");
        let left = fs::read_dir(node.path()).expect("read").count();
        assert_eq!(left, 1, "nothing beside it");
    }

    #[test]
    fn program_knows_its_loader_and_libraries() {
        let (loader, libraries) = libraries().expect("a dynamic program");
        assert!(loader.exists());
        assert!(libraries.iter().any(|path| path.to_string_lossy().contains("libc.so")));
    }
}
