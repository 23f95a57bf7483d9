//! Puts a container together: its root file system from the layers of its image, and what is shown in it, in a mount
//! namespace of its own that lives as long as its holder does.

use super::files::{self, Placed};
use super::group_trees;
use super::holder::{Holder, IdMap, Shared, UserNamespace};
use super::id_range;
use super::network::{self, Made};
use super::rootfs::{self, Layers};
use super::squash;
use super::users::Users;
use super::writable;
use super::{ContainerError, ContainerSpec, SCRIPT_STEP, user};
use crate::socket_folder::{self, SOCKET};
use crate::supervisor::mount_calls::{
    MountPoints, Rights, Tree, make_folder_in_root, open_in_root,
};
use crate::supervisor::process::credentials::as_user;

use image::{ImageConfig, LAYERS_MAX};
use model::container::{ContainerNetwork, ContainerUser, Mount, is_plain_path};
use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::sys::stat::{Mode, SFlag, fchmod, fstat, mode_t};
use nix::unistd::{Gid, Uid, fchown};
use serde::{Deserialize, Serialize};
use std::ffi::CString;
use std::fs;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};

/// A folder that every system has and that is covered here, in this mount namespace alone: the runtime must be able to
/// reach it as any user, which it cannot in a state folder.
pub(super) const COVERED: &str = "/mnt";
pub(super) const MOUNT_POINT: &str = "/mnt/root";
pub(super) const SHARED_MEMORY: &str = "/mnt/shm";
/// Where the parts of the root are mounted until it is put together: the layers, an image that is one file, and the file system
/// that is written to.
const PARTS: &str = "/mnt/parts";
const SQUASH: &str = "/mnt/parts/squash";
/// The folder of Sluice's own files, with a mount point for each.
const OWN_FOLDER: &str = "/mnt/sluice";
/// Where the container has the job's script.
pub(super) const SCRIPT: &str = "/run/sluice/script";
/// What is placed inside before the script runs.
pub(super) const WORKSPACE: &str = "/run/sluice/workspace";
/// Where the container has the node's clone of the run's repository.
const REPOSITORY: &str = "/run/sluice/repository";
/// Where a Docker daemon keeps its files.
const DOCKER_FILES: &str = "/var/lib/docker";
const RECORD: &str = "container.json";
/// What the kernel makes in the work folder of files that it does not sync.
const MARK_OF_VOLATILE: &str = "work/incompat/volatile";
/// Folders from a container's up to its node's: those of its attempt and of all containers are between.
const NODE_ABOVE: usize = 3;
/// The variable that names the folder of the server's socket.
pub(super) const STATE_VARIABLE: &str = "SLUICE_STATE=";

/// A container that is there: what a process needs to join it.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Assembled {
    pub holder: Holder,
    pub map: IdMap,
    /// Its processes are in a user namespace of that map; else only the owners of its files are mapped.
    pub has_user_namespace: bool,
    pub settings: ImageConfig,
    pub name: String,
    /// Whom its processes are inside, where not the job's user.
    pub user: (u32, u32),
    /// The step that made it.
    pub step: String,
    /// It shows the files of NVIDIA's driver.
    pub has_driver: bool,
    /// The image that its files lie above.
    #[serde(default)]
    pub image: Option<String>,
    /// What the step that made it asked to have mounted; `None` where an earlier agent has made it.
    #[serde(default)]
    pub mounts: Option<Vec<Mount>>,
    /// Its network, where it has made one.
    #[serde(default)]
    pub network: Option<ContainerNetwork>,
    /// Its root has every right over its namespaces, the network among them where that is its own.
    #[serde(default)]
    pub privileged: bool,
    /// Its own files are a folder of the node, in which others may have closed theirs.
    #[serde(default)]
    pub of_folder: bool,
}

impl Assembled {
    /// The container that was made in this folder; it may have ended.
    pub fn read(folder: &Path) -> Option<Assembled> {
        serde_json::from_slice(&fs::read(folder.join(RECORD)).ok()?).ok()
    }
}

/// Whether a container was made in this folder.
pub(super) fn is_made_in(folder: &Path) -> bool {
    folder.join(RECORD).exists()
}

/// Puts this process into a new mount namespace, in which a container is to be made.
pub(super) fn enter_mount_namespace() -> Result<(), String> {
    let none: Option<&str> = None;
    unshare(CloneFlags::CLONE_NEWNS)
        .and_then(|()| mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_SLAVE, none))
        .map_err(|e| format!("cannot make a mount namespace: {}", e.desc()))
}

/// The name of the container of a folder.
pub(super) fn name_of(folder: &Path) -> &str {
    folder.file_name().and_then(|name| name.to_str()).unwrap_or("container")
}

/// Makes the container in this process's mount namespace, which is the container's alone; above the files of `before` if it has
/// ended and had the same name.
pub(super) fn assemble(
    spec: &ContainerSpec,
    before: Option<&Assembled>,
    users: Option<&Users>,
    environment: &[CString],
    progress: &mut (dyn FnMut(&str) + Send),
) -> Result<Assembled, ContainerError> {
    let failed = |what: &'static str| move |e: Errno| format!("{what}: {}", e.desc());
    check_places(spec)?;
    let image = before.and_then(|before| before.image.clone()).or(spec.request.image.clone());
    let rootfs = rootfs::find(spec, image.as_deref(), progress)?;
    let opened = ShownHandles::open(spec, environment);
    mount(Some("tmpfs"), COVERED, Some("tmpfs"), MsFlags::MS_NODEV, Some("mode=711,size=1m"))
        .map_err(failed("cannot cover /mnt"))?;
    for folder in [MOUNT_POINT, SHARED_MEMORY] {
        make_folder(Path::new(folder), 0o755)?;
    }
    let has_user_namespace = spec.request.user != ContainerUser::JobUser;
    // The files of a container that is made anew have the ids of the one before.
    let map = match before {
        Some(before) => before.map,
        None => {
            let folder = folder_of_ranges(&spec.folder)?;
            id_range::map_for(&folder, spec.user, spec.site.ids, spec.id_range)?
        }
    };
    let script = spec.folder.parent().map(|folder| folder.join(SCRIPT_STEP));
    let script = script.and_then(|folder| Assembled::read(&folder));
    // The namespaces of a privileged container belong to its own user namespace, which has to be there before them.
    let privileged = spec.request.privileged && has_user_namespace;
    let owner = privileged.then(|| user::namespace(&map)).transpose();
    let owner = owner.map_err(failed("cannot make a user namespace"))?;
    let script = script.as_ref().map(|script| &script.holder);
    let Made { network, kept: of_network } =
        network::enter(spec, script, owner.as_ref(), progress)?;
    let mut kept = of_network;
    kept.extend(rootfs.in_use);
    let shared = users.map(|users| {
        let group = spec.holders.as_ref().ok_or("the job has no group for its containers")?;
        Ok::<_, String>(Shared { group, users: users.for_holder()? })
    });
    let user_namespace = match (&owner, has_user_namespace) {
        (Some(made), _) => UserNamespace::Made(made),
        (None, true) => UserNamespace::New(&map),
        (None, false) => UserNamespace::OfNode,
    };
    let holder = Holder::start(user_namespace, kept, shared.transpose()?)?;
    // The holder's own user namespace has the same map.
    let of_holder = Some(&holder).filter(|_| has_user_namespace);
    let (mapped, docker_files) = mount_root(spec, &rootfs.layers, &map, of_holder, progress)?;
    let of_folder = matches!(rootfs.layers, Layers::Folder(_));
    if !mapped && has_user_namespace && !of_folder {
        let why = "cannot show the image's files to a mapped user: this needs Linux 5.19, and a file system \
                   that can map owners";
        return Err(why.into());
    }
    mount_shared_memory(spec)?;
    let root =
        open(MOUNT_POINT, OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC, Mode::empty())
            .map_err(failed("the container's root"))?;
    make_runtimes_mount_points(&root, !has_user_namespace)?;
    let points = |rights| MountPoints { root: root.as_fd(), rights };
    let before = points(Rights::before_mounts(spec.user, of_folder));
    let among = points(Rights::among_mounts(spec.user, of_folder));
    let user = match &spec.request.user {
        ContainerUser::JobUser => (spec.user.uid, spec.user.gid),
        ContainerUser::Root => (0, 0),
        ContainerUser::OfImage => user::resolve(&root, &rootfs.settings.user, before.rights)?,
        ContainerUser::Named(name) => user::resolve(&root, name, before.rights)?,
    };
    opened.show(spec, &root, before)?.show_mounts(among)?;
    if let Some(files) = docker_files {
        files.show(among)?;
    }
    let has_driver = show_device_files(spec, among)?;
    // The root has its parts; nobody else is to find them here.
    group_trees::hide_most_and_unmount(PARTS)?;
    let name = name_of(&spec.folder);
    let assembled = Assembled {
        holder,
        map,
        has_user_namespace,
        settings: rootfs.settings,
        name: name.to_owned(),
        user,
        step: spec.step.clone(),
        has_driver,
        image,
        mounts: Some(spec.request.mounts.clone()),
        network,
        privileged,
        of_folder,
    };
    let text = serde_json::to_vec(&assembled).map_err(|e| e.to_string())?;
    fs::write(spec.folder.join(RECORD), text)
        .map_err(|e| format!("cannot write the container's record: {e}"))?;
    Ok(assembled)
}

/// Refuses what the user wants to have mounted at a place that is not the user's.
fn check_places(spec: &ContainerSpec) -> Result<(), ContainerError> {
    let mounts = spec.request.mounts.iter().map(|mount| (&mount.source, &mount.target));
    let volumes = spec.volumes.iter().map(|volume| (&volume.name, &volume.path));
    let mut places = mounts.chain(volumes);
    let checked = places.try_for_each(|(source, target)| files::check_place(source, target));
    checked.map_err(ContainerError::volume)
}

/// The folders that the runtime mounts on, in the container's own files: an image may have a link there that leads into a
/// mounted folder of the node. Where it mounts as root they are root's, so that the user of a running container cannot
/// put a link there before the next step or task enters it.
fn make_runtimes_mount_points(root: &OwnedFd, of_root: bool) -> Result<(), String> {
    for path in ["/proc", "/dev", "/sys"] {
        let failed = |e: Errno| format!("the image's {path}: {}", e.desc());
        let opened = match open_in_root(root, path, OFlag::O_RDONLY | OFlag::O_NOFOLLOW) {
            Err(Errno::ENOENT) => make_folder_in_root(root, path)
                .and_then(|_| open_in_root(root, path, OFlag::O_RDONLY | OFlag::O_NOFOLLOW)),
            opened => opened,
        };
        let opened = opened.map_err(failed)?;
        let (status, root) = (fstat(&opened).map_err(failed)?, fstat(root).map_err(failed)?);
        let is_folder = status.st_mode & SFlag::S_IFMT.bits() == SFlag::S_IFDIR.bits();
        if !is_folder || status.st_dev != root.st_dev {
            return Err(format!("the image's {path} is no folder of its own"));
        }
        // A change makes the folder the container's own: a user may still change the image below it.
        fchmod(&opened, Mode::from_bits_truncate(status.st_mode)).map_err(failed)?;
        if of_root {
            fchown(&opened, Some(Uid::from_raw(0)), Some(Gid::from_raw(0))).map_err(failed)?;
            fchmod(&opened, Mode::from_bits_truncate(0o755)).map_err(failed)?;
        }
    }
    Ok(())
}

/// Where a Docker daemon inside has its images and containers: beside the container's own files, in the folder `own`, since its
/// layers cannot lie above those of this container. They go with the container.
fn docker_files(own: &Path, map: &IdMap) -> Result<Placed, String> {
    let folder = own.join("docker");
    make_folder(&folder, 0o711)?;
    chown(&folder, Some(map.uid), Some(map.gid))
        .map_err(|e| format!("cannot make the folder of Docker's files: {e}"))?;
    Placed::take_as(&folder, DOCKER_FILES, false)
}

/// Shows what the process's devices bring along. Returns whether the files of NVIDIA's driver are among it.
fn show_device_files(spec: &ContainerSpec, points: MountPoints) -> Result<bool, String> {
    let edits = spec.device_edits();
    for mount in &edits.mounts {
        Placed::take_as(&mount.host, &mount.inside, mount.read_only)?.show(points)?;
    }
    Ok(edits.has_driver)
}

fn make_folder(path: &Path, mode: mode_t) -> Result<(), String> {
    let made = fs::DirBuilder::new().recursive(true).mode(mode).create(path);
    made.map_err(|e| format!("cannot make {}: {e}", path.display()))
}

/// The record of ranges of ids is the node's: the folder above those of all attempts.
fn folder_of_ranges(folder: &Path) -> Result<OwnedFd, String> {
    let above = folder.parent().and_then(Path::parent).unwrap_or(folder);
    open(above, OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC, Mode::empty())
        .map_err(|e| format!("{}: {}", above.display(), e.desc()))
}

/// Mounts the layers, and leaves what the root is made from at `PARTS`. Returns whether the owners of their files are mapped, and
/// the files of a Docker daemon inside.
fn mount_root(
    spec: &ContainerSpec,
    layers: &Layers,
    map: &IdMap,
    of_holder: Option<&Holder>,
    say: &mut (dyn FnMut(&str) + Send),
) -> Result<(bool, Option<Placed>), String> {
    let failed = |e: Errno| format!("cannot mount the container's root: {}", e.desc());
    make_folder(Path::new(PARTS), 0o755)?;
    mount(Some("tmpfs"), PARTS, Some("tmpfs"), MsFlags::MS_NODEV, Some("mode=755,size=64k"))
        .map_err(failed)?;
    let may_map = !matches!(layers, Layers::Folder(_));
    let mounted;
    let layers: Vec<BorrowedFd> = match layers {
        Layers::Folder(folder) => vec![folder.as_fd()],
        Layers::Under(layers) => layers.iter().map(AsFd::as_fd).collect(),
        Layers::Squash(image) => {
            make_folder(Path::new(SQUASH), 0o755)?;
            mounted = squash::mount(image, SQUASH)?;
            vec![mounted.as_fd()]
        }
    };
    if layers.len() > LAYERS_MAX {
        return Err(format!(
            "the image has {} layers: expected at most {LAYERS_MAX}",
            layers.len()
        ));
    }
    // Owners of a user's folder are as they are.
    let namespace = match of_holder {
        _ if !may_map => None,
        Some(holder) => Some(holder.user_namespace().map_err(failed)?),
        None => Some(user::namespace(map).map_err(failed)?),
    };
    let mut mapped = may_map;
    let mut names = Vec::new();
    for (number, layer) in layers.iter().enumerate() {
        let name = format!("{PARTS}/{number}");
        make_folder(Path::new(&name), 0o755)?;
        let target =
            open(name.as_str(), OFlag::O_PATH | OFlag::O_CLOEXEC, Mode::empty()).map_err(failed)?;
        // Overlayfs shows nothing that is mounted in a layer.
        let tree = Tree::copy_alone(layer).map_err(failed)?;
        let maps = |namespace: &OwnedFd| tree.map_owners(namespace).is_ok();
        mapped = mapped && namespace.as_ref().is_some_and(maps);
        // Nobody writes to the layers themselves: other containers have them too.
        tree.restrict(true).map_err(failed)?;
        tree.show_at(target).map_err(failed)?;
        names.push(name);
    }
    let own = writable::folder(spec, say)?;
    let [upper, work] = ["upper", "work"].map(|name| own.join(name));
    if work.join(MARK_OF_VOLATILE).exists() {
        // The kernel refuses a work folder that an earlier container of the same files left without a sync: a crash may have
        // lost some of them. There was none: a crash would have ended the job.
        fs::remove_dir_all(&work).map_err(|e| format!("{}: {e}", work.display()))?;
    }
    for folder in [&upper, &work] {
        make_folder(folder, 0o755)?;
    }
    let owned = match spec.request.user {
        // All may write to the root folder, and nobody may put something else where the runtime mounts as root.
        ContainerUser::JobUser => chown(&upper, Some(0), Some(0))
            .and_then(|()| fs::set_permissions(&upper, fs::Permissions::from_mode(0o1777))),
        // The runtime mounts as the user.
        _ => chown(&upper, Some(map.uid), Some(map.gid)),
    };
    owned.map_err(|e| format!("cannot make the container's root: {e}"))?;
    // Files that go with the job are not brought to disk: for that the kernel would write out all that others wrote to the same
    // disk, at the end of the container, while its step waits.
    let options = format!(
        "lowerdir={},upperdir={},workdir={},index=off,metacopy=off,volatile",
        names.join(":"),
        upper.display(),
        work.display(),
    );
    // Inside a user namespace its own programs may change users: they cannot become anybody of the node.
    let restrict = match spec.request.user {
        ContainerUser::JobUser => MsFlags::MS_NODEV | MsFlags::MS_NOSUID,
        _ if !may_map => MsFlags::MS_NODEV | MsFlags::MS_NOSUID,
        _ => MsFlags::MS_NODEV,
    };
    mount(Some("overlay"), MOUNT_POINT, Some("overlay"), restrict, Some(options.as_str()))
        .map_err(failed)?;
    let docker_files = spec.request.docker.then(|| docker_files(&own, map)).transpose()?;
    Ok((mapped, docker_files))
}

/// A `/dev/shm` that counts as the job's memory, of the size that was asked for or half of what the job has.
fn mount_shared_memory(spec: &ContainerSpec) -> Result<(), String> {
    let size = spec.request.shared_memory.map(|size| size.0).or(spec.memory.map(|all| all / 2));
    let options = match size {
        Some(bytes) => format!("mode=1777,size={bytes}"),
        None => "mode=1777".to_owned(),
    };
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    mount(Some("tmpfs"), SHARED_MEMORY, Some("tmpfs"), flags, Some(options.as_str()))
        .map_err(|e| format!("cannot make /dev/shm: {}", e.desc()))
}

/// What is shown beside the image, in the order in which it is mounted.
pub(super) struct ShownMounts {
    pub mounts: Vec<Mount>,
    pub home: String,
    /// The home folder is among the mounts.
    pub with_home: bool,
}

impl ShownMounts {
    pub fn list(spec: &ContainerSpec, environment: &[CString]) -> ShownMounts {
        let variable = |name: &str| {
            let entries = environment.iter().filter_map(|entry| entry.to_str().ok());
            entries.into_iter().find_map(|entry| entry.strip_prefix(name)).map(str::to_owned)
        };
        // It becomes a field of the container's passwd.
        let is_field = |home: &String| is_plain_path(home) && !home.contains([':', '\n']);
        let home = variable("HOME=").filter(is_field).unwrap_or_else(|| "/".to_owned());
        let own = |path: &str| Mount {
            source: path.to_owned(),
            target: path.to_owned(),
            read_only: false,
            optional: true,
        };
        let mut mounts = spec.site.mounts.clone();
        let isolated = spec.request.isolated;
        let with_home = spec.request.mount_home.unwrap_or(spec.site.mount_home)
            && !isolated
            && !files::is_of_image(&home);
        if with_home {
            mounts.push(own(&home));
        }
        // A working directory that was given is one of the container's own.
        let brings =
            spec.request.work_dir.is_none() && !isolated && !files::is_of_image(spec.work_dir);
        let in_home = with_home && Path::new(spec.work_dir).starts_with(&home);
        if brings && !in_home {
            mounts.push(own(spec.work_dir));
        }
        mounts.extend(spec.scratch.into_iter().chain(spec.run_files).map(own));
        let clone = spec.workspace.and_then(|workspace| workspace.node_clone(spec.scratch));
        mounts.extend(clone.map(|source| Mount {
            source,
            target: REPOSITORY.to_owned(),
            read_only: true,
            optional: false,
        }));
        // The variable is the user's to set: what it names is opened with the user's rights, as all else here.
        if let Some(state) = variable(STATE_VARIABLE).filter(|path| is_plain_path(path)) {
            let folder = socket_folder::of_state(&state);
            let is_there = as_user(spec.user, || Path::new(&folder).is_dir()).unwrap_or(false);
            // A state folder of an earlier version has the socket alone.
            mounts.push(own(&if is_there { folder } else { format!("{state}/{SOCKET}") }));
        }
        mounts.extend(spec.request.mounts.iter().cloned());
        ShownMounts { mounts, home, with_home }
    }
}

/// What is shown beside the image, opened before `/mnt` is covered.
pub(super) struct ShownHandles {
    mounts: Vec<(Mount, Result<files::Shown, String>)>,
    home: String,
}

impl ShownHandles {
    pub fn open(spec: &ContainerSpec, environment: &[CString]) -> ShownHandles {
        let ShownMounts { mounts, home, .. } = ShownMounts::list(spec, environment);
        let mounts = mounts.into_iter().map(|mount| {
            let taken = files::take_for_user(&mount, spec.user);
            (mount, taken)
        });
        let volumes = spec.volumes.iter().map(|volume| {
            let mount = Mount {
                source: volume.name.clone(),
                target: volume.path.clone(),
                read_only: volume.read_only,
                optional: false,
            };
            (mount, files::take_volume(volume, spec))
        });
        ShownHandles { mounts: mounts.chain(volumes).collect(), home }
    }

    /// Refuses what the user named and cannot open.
    pub fn check(&self) -> Result<(), ContainerError> {
        let failed = |(mount, taken): &(Mount, Result<files::Shown, String>)| {
            taken.as_ref().err().filter(|_| !mount.optional).cloned()
        };
        let failed = self.mounts.iter().find_map(failed).map(ContainerError::volume);
        failed.map_or(Ok(()), Err)
    }

    pub fn home(&self) -> &str {
        &self.home
    }

    /// The descriptors that it holds.
    pub fn handles(&self) -> impl Iterator<Item = RawFd> + '_ {
        self.mounts.iter().filter_map(|(_, taken)| Some(taken.as_ref().ok()?.as_fd().as_raw_fd()))
    }

    /// Shows what is the agent's own choice, and returns what is not. It comes first: nothing that a user named is on the way
    /// to it.
    fn show(
        self,
        spec: &ContainerSpec,
        root: &OwnedFd,
        points: MountPoints,
    ) -> Result<ShownHandles, ContainerError> {
        files::show_network_files(points, spec.own_network, &spec.folder)?;
        if spec.request.user == ContainerUser::JobUser {
            let added = files::user_files(root, spec.user, &self.home, &spec.folder)?;
            added.into_iter().try_for_each(|file| file.show(points))?;
        }
        let own = own_files(spec, &spec.folder)?;
        show_own_folder(points, &own)?;
        for (source, target) in own {
            files::show_own(points, &source, &target)?;
        }
        Ok(self)
    }

    /// Shows what the user and the site named.
    pub fn show_mounts(self, points: MountPoints) -> Result<(), ContainerError> {
        self.check()?;
        for (mount, taken) in self.mounts {
            if let Ok(shown) = taken {
                files::show_taken(points, shown, &mount).map_err(ContainerError::volume)?;
            }
        }
        Ok(())
    }
}

/// Shows the folder of Sluice's own files, in which nothing is there yet but the small program that enters a working directory,
/// and the places that the others are mounted on: they are made faster there than in the container's own files.
fn show_own_folder(points: MountPoints, own: &[(PathBuf, String)]) -> Result<(), String> {
    let folder = Path::new(OWN_FOLDER);
    let place = |target: &str| {
        let inner = Path::new(target).strip_prefix(files::OWN).ok();
        inner.map(|inner| folder.join(inner))
    };
    make_folder(&folder.join("bin"), 0o755)?;
    for (source, target) in own {
        let Some(place) = place(target) else { continue };
        if source.is_dir() {
            make_folder(&place, 0o755)?;
        } else {
            make_folder(place.parent().unwrap_or(folder), 0o755)?;
            let made = fs::File::create(&place);
            made.map_err(|e| format!("cannot make {}: {e}", place.display()))?;
        }
    }
    place(REPOSITORY).map_or(Ok(()), |place| make_folder(&place, 0o755))?;
    if let Some(enter) = place(files::ENTER).filter(|_| !files::ENTER_PROGRAM.is_empty()) {
        fs::write(&enter, files::ENTER_PROGRAM)
            .and_then(|()| fs::set_permissions(&enter, PermissionsExt::from_mode(0o555)))
            .map_err(|e| format!("cannot make {}: {e}", enter.display()))?;
    }
    files::show_own(points, folder, files::OWN)
}

/// Files of Sluice's own with their places in the container: its commands, the script, what a run brings along. Those
/// that are made are made in `made`.
pub(super) fn own_files(
    spec: &ContainerSpec,
    made: &Path,
) -> Result<Vec<(PathBuf, String)>, String> {
    let node = spec.folder.ancestors().nth(NODE_ABOVE).unwrap_or(made);
    let mut all = files::commands(files::node_scripts(node)?)?;
    if let Some(script) = &spec.script {
        // A copy that the image's own user may read; nobody else gets here.
        let copy = made.join("script");
        fs::copy(script, &copy)
            .and_then(|_| fs::set_permissions(&copy, PermissionsExt::from_mode(0o555)))
            .map_err(|e| format!("cannot copy the script: {e}"))?;
        all.push((copy, SCRIPT.to_owned()));
    }
    if let Some(workspace) = spec.workspace {
        let copy = made.join("workspace");
        let failed = |e: std::io::Error| format!("cannot write the run's files: {e}");
        let workspace = workspace.for_container(REPOSITORY);
        let text = serde_json::to_vec(&workspace).map_err(|e| failed(e.into()))?;
        fs::write(&copy, text)
            .and_then(|()| fs::set_permissions(&copy, PermissionsExt::from_mode(0o444)))
            .map_err(failed)?;
        all.push((copy, WORKSPACE.to_owned()));
    }
    Ok(all)
}
