//! What a process that runs in a container is started with.

use super::early_runtime::EarlyRuntime;
use super::runtime_config::DeviceFile;
use super::writable::WritableMax;
use super::{devices, folder_of_attempt, store_folder};
use crate::cdi::DeviceEdits;
use crate::cgroup::{EntryFds, JobGroup};
use crate::device_access::DeviceScope;
use crate::spool::LaunchRecord;
use crate::supervisor::job_context::JobContext;
use crate::supervisor::workspace::RunWorkspace;
use image::Credentials;
use model::container::Container;
use model::limits::DeviceLimits;
use model::secret::RegistryAuth;
use model::site::ContainerSite;
use std::cell::OnceCell;
use std::path::{Path, PathBuf};
use wire::order::{IdRange, UserIds};
use wire::volume::LaunchVolume;

/// The group inside the job's for the holders of its named containers, which outlive steps.
const HOLDERS: &str = "containers";

/// What a process that runs in a container is started with, beside what every process is.
pub(crate) struct ContainerSpec<'a> {
    pub request: &'a Container,
    pub site: &'a ContainerSite,
    /// The node's images.
    pub store: PathBuf,
    /// The folder of this container alone; what is in it is root's.
    pub folder: PathBuf,
    /// The step and the number that tell this process from the others in the container.
    pub step: String,
    pub process: u32,
    pub user: &'a UserIds,
    /// The folders of the process's group, in each tree.
    pub groups: Vec<String>,
    /// The group of the holder, if the container has a name.
    pub holders: Option<EntryFds>,
    /// The devices of the process's step, or of the job.
    pub devices: Option<DeviceLimits>,
    pub device_scope: DeviceScope<'a>,
    /// It has a network of its own, as the site's policy has it.
    pub own_network: bool,
    /// The ids of its users on the node, where the server gives them.
    pub id_range: IdRange,
    /// The job's script, where that is what runs.
    pub script: Option<PathBuf>,
    /// Variables that name the working directory inside.
    pub folder_variables: &'a [String],
    /// What is placed inside before the script runs.
    pub workspace: Option<&'a RunWorkspace>,
    pub work_dir: &'a str,
    /// Where a path that names its image begins, unless it begins at the root.
    pub image_dir: &'a str,
    pub scratch: Option<&'a str>,
    pub run_files: Option<&'a str>,
    /// Bytes of memory that the job has.
    pub memory: Option<u64>,
    /// What may be written to the container's own files; `None` for as much as the node has.
    pub writable_max: Option<WritableMax>,
    pub terminal: bool,
    pub umask: u32,
    /// What runs with the user's rights gets no further ones by a program that it executes.
    pub no_new_privs: bool,
    /// The job's volumes, and the files of its node, where their folders may be.
    pub volumes: &'a [LaunchVolume],
    pub node: &'a Path,
    /// This process saves the container to this path, and runs nothing in it.
    pub save: Option<&'a str>,
    /// For the image's registry, and for this pull only.
    pub credentials: Option<Credentials>,
    pub found: FoundDevices,
    /// The runtime that waits for this process to make the container.
    pub early: OnceCell<EarlyRuntime>,
}

/// The devices of the process, searched for once, when they are asked for.
#[derive(Default)]
pub(crate) struct FoundDevices {
    files: OnceCell<Vec<DeviceFile>>,
    edits: OnceCell<DeviceEdits>,
}

impl<'a> ContainerSpec<'a> {
    /// The specification for one process of a job; `name` is its step's, `group` the control group that it starts in,
    /// `auth` for the registry of its image.
    pub fn of_job(
        job: JobContext<'a>,
        request: &'a Container,
        name: &str,
        group: &JobGroup,
        auth: Option<&RegistryAuth>,
    ) -> Result<Self, String> {
        let record = job.record;
        let holders = request.name.as_ref().map(|_| {
            let group = job.group.shared_child(HOLDERS)?;
            group.entry_fds()
        });
        let folder = folder_of_attempt(job.dir);
        Ok(ContainerSpec {
            request,
            site: &record.site.containers,
            store: store_folder(&record.site.containers, job.dir),
            folder: match &request.name {
                Some(named) => folder.join(format!("named-{}", named.name)),
                None => folder.join(name),
            },
            step: name.to_owned(),
            process: 0,
            user: &record.launch.user,
            groups: group.paths(),
            holders: holders.transpose().map_err(|e| e.to_string())?,
            devices: record.limits.devices.clone(),
            device_scope: DeviceScope::of(record),
            own_network: record.launch.own_network,
            id_range: record.launch.id_range,
            script: None,
            folder_variables: &[],
            workspace: None,
            work_dir: "/",
            image_dir: &record.launch.work_dir,
            scratch: job.folders.scratch_path(),
            run_files: job.folders.run_files_path(),
            memory: record.limits.memory.map(|bytes| bytes.0),
            writable_max: writable_max(record, request),
            terminal: false,
            umask: 0o022,
            no_new_privs: record.limits.no_new_privs,
            volumes: &record.launch.volumes,
            node: job.dir.node_folder(),
            save: None,
            credentials: auth.map(|auth| Credentials {
                username: auth.username.0.clone(),
                password: auth.password.0.clone(),
            }),
            found: FoundDevices::default(),
            early: OnceCell::new(),
        })
    }

    /// Ends the runtime that was started before its container could be made or its program was found, with the exit code of
    /// this process.
    pub fn end_early_runtime(&self, code: i32) {
        if let Some(runtime) = self.early.get() {
            runtime.end(code);
        }
    }

    pub(super) fn device_files(&self) -> &[DeviceFile] {
        self.found.files.get_or_init(|| {
            devices::files(self.devices.as_ref(), self.device_scope, self.device_edits())
        })
    }

    /// What the process's devices bring along: by vendors' files, and by the files of NVIDIA's driver.
    pub(super) fn device_edits(&self) -> &DeviceEdits {
        let find = || DeviceEdits::for_container(self.device_scope.cdi, self.devices.as_ref());
        self.found.edits.get_or_init(find)
    }
}

/// What a run asked for as its disk, at most the site's bound. A job of Slurm's commands asks for scratch space, which is not the
/// container's.
fn writable_max(record: &LaunchRecord, request: &Container) -> Option<WritableMax> {
    let disk = record.launch.share.disk;
    let asked = Some(disk).filter(|disk| request.isolated && disk.0 > 0);
    WritableMax::of(asked, record.site.containers.disk)
}
