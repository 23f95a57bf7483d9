//! Docker and Podman as runtimes. The engine has the image and makes the container, inside the process's own group and as
//! the job's user; it mounts nothing that a user named. It starts Sluice's own program, which waits: a process of root's beside it
//! (`shim`) then mounts everything into the container by handle, as for an OCI runtime, and says what to run.
//!
//! `call`: calls with a deadline; `fetch`: the image, as the engine has or pulls it; `inspect`: what an image says of itself;
//! `login`: the user's, for a registry; `left`: what an engine did not remove.

mod call;
mod fetch;
mod inspect;
pub(super) mod left;
mod login;
mod shim;

use super::assembly::{self, ShownHandles};
use super::files::{OWN, PROGRAM};
use super::runtime_config::DeviceFile;
use super::{ContainerError, ContainerSpec, group_trees, init, network, process_folder};
use fetch::{INSPECT_TIMEOUT, ImageQuery};
use image::{Digest, Reference};
use inspect::EngineImage;
use login::write_login;
use model::site::{EngineKind, NetworkPolicy};
use nix::errno::Errno;
use nix::unistd::execve;
use serde::{Deserialize, Serialize};
use shim::EngineShim;
use std::ffi::CString;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Variables of the agent's own that say where an engine is; all others are not for it.
const PASSED_ON: [&str; 3] = ["DOCKER_HOST", "CONTAINERS_CONF", "CONTAINERS_STORAGE_CONF"];
const PATH: &str = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// The file into which an engine writes the id of the container.
const ID_FILE: &str = "id";
/// The record of a container that an engine may still have.
pub(super) const RECORD: &str = "engine.json";
/// The engine mounts a new folder over what the image has at the place of Sluice's own files.
const OWN_FOLDER: &str = "rw,mode=755,size=1m";
/// A file of the image by which the loader runs the image's code in Sluice's own program. It is covered.
const PRELOADED: &str = "/etc/ld.so.preload";
/// For Sluice's own program in the container: variables by which the loader would run the image's code in it, and one by
/// which a hook of NVIDIA's would show devices. The job's program gets the image's own values.
const VARIABLES: [&str; 4] =
    ["LD_PRELOAD=", "LD_AUDIT=", "GLIBC_TUNABLES=", "NVIDIA_VISIBLE_DEVICES=void"];
/// Keys that leave a container's terminal. Docker cannot do without any; nobody types these.
const DOCKERS_DETACH_KEYS: &str = "ctrl-_,ctrl-^,ctrl-],ctrl-_,ctrl-^,ctrl-],ctrl-_,ctrl-^";

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Engine {
    pub kind: EngineKind,
    pub program: PathBuf,
}

/// What is needed to remove a container that nobody removed.
#[derive(Serialize, Deserialize)]
pub(super) struct Left {
    pub engine: Engine,
    pub name: String,
}

impl Engine {
    /// A call of the engine, with nothing of the user's in its environment. `folder` is root's own.
    pub(super) fn call(&self, folder: &Path) -> Command {
        let mut command = Command::new(&self.program);
        command.env_clear().current_dir("/");
        for entry in environment(folder) {
            if let Some((name, value)) = entry.split_once('=') {
                command.env(name, value);
            }
        }
        command.args(self.first_words());
        command
    }

    fn first_words(&self) -> &'static [&'static str] {
        match self.kind {
            EngineKind::Docker => &[],
            // The group is a path, which systemd would not take.
            EngineKind::Podman => &["--cgroup-manager=cgroupfs"],
        }
    }
}

/// The engine's own environment. Logins of root's are not the user's: `folder` has the user's, if there are any.
fn environment(folder: &Path) -> Vec<String> {
    let passed =
        PASSED_ON.iter().filter_map(|name| Some(format!("{name}={}", std::env::var(name).ok()?)));
    let own =
        [PATH.to_owned(), "HOME=/root".to_owned(), format!("DOCKER_CONFIG={}", folder.display())];
    own.into_iter().chain(passed).collect()
}

/// A process that an engine is to run in a container of its own.
pub(crate) struct EngineProcess {
    engine: Engine,
    image: EngineImage,
    shown: ShownHandles,
    group: String,
    rlimits: Vec<(String, u64, u64)>,
    devices: Vec<DeviceFile>,
    /// The folder of what is made for this process.
    made: PathBuf,
    /// Files of Sluice's own with their places inside.
    own: Vec<(PathBuf, String)>,
}

impl EngineProcess {
    /// Gets the image, and opens what the user named.
    pub fn prepare(
        engine: Engine,
        reference: &Reference,
        spec: &ContainerSpec,
        environment: &[CString],
        rlimits: Vec<(String, u64, u64)>,
        progress: &mut (dyn FnMut(&str) + Send),
    ) -> Result<EngineProcess, ContainerError> {
        let private = fs::DirBuilder::new().recursive(true).mode(0o700).create(&spec.folder);
        let login = spec.credentials.as_ref();
        private
            .and_then(|()| write_login(&spec.folder, spec.process, login, reference))
            .map_err(|e| format!("{}: {e}", spec.folder.display()))?;
        let query = ImageQuery {
            reference,
            folder: &spec.folder,
            process: spec.process,
            is_insecure: spec.site.insecure.contains(&reference.registry),
            inspect_timeout: INSPECT_TIMEOUT,
        };
        let image = engine.image(&query, progress)?;
        if spec.own_network && spec.site.network == NetworkPolicy::Auto {
            let why = format!("{} runs it", engine.program.display());
            network::say_if_ports_matter(spec, progress, &why);
        }
        let shown = ShownHandles::open(spec, environment);
        shown.check()?;
        // Other tasks of the step make theirs at the same time.
        let made = spec.folder.join(format!("own-{}-{}", spec.step, spec.process));
        fs::create_dir_all(hooks_folder(&made))
            .and_then(|()| fs::write(preload_file(&made), ""))
            .map_err(|e| format!("{}: {e}", made.display()))?;
        let own = assembly::own_files(spec, &made)?;
        if !own.iter().any(|(_, target)| target == PROGRAM) {
            let why = "cannot run this build of Sluice, which has no C library to bring along";
            return Err(format!("{} {why}", engine.program.display()).into());
        }
        let group = group_trees::path(&spec.groups)?;
        let devices = spec.device_files().to_vec();
        Ok(EngineProcess { engine, image, shown, group, rlimits, devices, made, own })
    }

    /// Becomes the engine's own command, which runs the container and ends as it does. Returns only on failure, with the
    /// path that failed. `words` is the line about a program that cannot be executed.
    pub fn execute(
        self,
        spec: &ContainerSpec,
        argv: &[String],
        job_environment: &[CString],
        words: &str,
    ) -> (Errno, String) {
        let program = self.engine.program.clone();
        let folder = process_folder(&spec.folder, &spec.step, spec.process);
        let name = format!("sluice-{}", &Digest::of(folder.as_os_str().as_bytes()).hex()[..24]);
        let io = |e: std::io::Error| Errno::from_raw(e.raw_os_error().unwrap_or(libc::EIO));
        let prepare = || {
            fs::create_dir_all(&folder).map_err(io)?;
            let left = Left { engine: self.engine.clone(), name: name.clone() };
            let text = serde_json::to_vec(&left).map_err(|_| Errno::EINVAL)?;
            fs::write(folder.join(RECORD), text).map_err(io)
        };
        let words_of_run = self.words(spec, &folder, &name);
        let started = prepare().and_then(|()| {
            let shim = EngineShim {
                settings: &self.image.settings,
                shown: self.shown,
                rlimits: &self.rlimits,
                made: &self.made,
                group: &self.group,
                id_file: ID_FILE,
                exec_failed: words,
            };
            shim.start(spec, &folder, argv, job_environment)
        });
        if let Err(errno) = started {
            return (errno, folder.display().to_string());
        }
        let text = |word: String| CString::new(word).map_err(|_| Errno::EINVAL);
        let words: Result<Vec<CString>, Errno> = words_of_run.into_iter().map(text).collect();
        let variables: Result<Vec<CString>, Errno> =
            environment(&spec.folder).into_iter().map(text).collect();
        let path = CString::new(program.as_os_str().as_bytes()).map_err(|_| Errno::EINVAL);
        let executed = path.and_then(|path| execve(&path, &words?, &variables?));
        match executed {
            Ok(never) => match never {},
            Err(errno) => (errno, program.display().to_string()),
        }
    }

    /// The engine's command line. No word of it is the user's but the image's name, which is one.
    fn words(&self, spec: &ContainerSpec, folder: &Path, name: &str) -> Vec<String> {
        let mut words = vec![self.engine.program.display().to_string()];
        words.extend(self.engine.first_words().iter().map(|word| (*word).to_owned()));
        let mut add = |word: &str| words.push(word.to_owned());
        if self.engine.kind == EngineKind::Podman {
            add(&format!("--hooks-dir={}", hooks_folder(&self.made).display()));
        }
        for word in [
            "run",
            "--rm",
            "--interactive",
            "--pull=never",
            "--network=host",
            "--log-driver=none",
            "--workdir=/",
            "--cap-drop=ALL",
            "--security-opt=no-new-privileges",
            "--no-healthcheck",
        ] {
            add(word);
        }
        add(&format!("--name={name}"));
        add(&format!("--cidfile={}", folder.join(ID_FILE).display()));
        add(&format!("--cgroup-parent={}", self.group));
        if spec.terminal {
            add("--tty");
            let keys = match self.engine.kind {
                EngineKind::Docker => DOCKERS_DETACH_KEYS,
                EngineKind::Podman => "",
            };
            add(&format!("--detach-keys={keys}"));
        }
        if spec.request.read_only {
            add("--read-only");
        }
        let half = || spec.memory.map(|all| all / 2);
        if let Some(bytes) = spec.request.shared_memory.map(|size| size.0).or_else(half) {
            add(&format!("--shm-size={bytes}"));
        }
        for device in &self.devices {
            add(&format!("--device={}:{}", device.source, device.path));
        }
        add(&format!("--user={}:{}", spec.user.uid, spec.user.gid));
        spec.user.groups.iter().for_each(|group| add(&format!("--group-add={group}")));
        self.ulimits().iter().for_each(|limit| add(limit));
        let own_folder = match self.engine.kind {
            EngineKind::Docker => {
                add("--runtime=runc");
                OWN_FOLDER.to_owned()
            }
            EngineKind::Podman => {
                // Its monitor stays in the process's group, and ends with it.
                add("--cgroups=no-conmon");
                add("--image-volume=ignore");
                format!("{OWN_FOLDER},notmpcopyup")
            }
        };
        VARIABLES.iter().for_each(|variable| add(&format!("--env={variable}")));
        add(&format!("--tmpfs={OWN}:{own_folder}"));
        add(&format!("--volume={}:{PRELOADED}:ro", preload_file(&self.made).display()));
        for (source, target) in &self.own {
            add(&format!("--volume={}:{target}:ro", source.display()));
        }
        add(&format!("--volume={}:{}:ro", folder.display(), init::FOLDER));
        let [program, arguments @ ..] = init::words();
        add(&format!("--entrypoint={program}"));
        add(&self.image.id);
        arguments.iter().for_each(|word| add(word));
        words
    }

    /// The job's hard limits, as far as engines know their names; the soft ones are set inside.
    fn ulimits(&self) -> Vec<String> {
        let pids_max = fs::read_to_string("/proc/sys/kernel/pid_max");
        let pids_max = pids_max.ok().and_then(|text| text.trim().parse().ok()).unwrap_or(32_768);
        let limit = |(name, _, hard): &(String, u64, u64)| {
            let name = name.strip_prefix("RLIMIT_")?.to_lowercase();
            let hard = match (self.engine.kind, name.as_str()) {
                (_, "as") => return None,
                // More than that is more than a machine may allow to Podman.
                (EngineKind::Podman, "nofile" | "nproc") => (*hard).min(pids_max),
                _ => *hard,
            };
            // Engines write no limit as -1.
            let hard = i64::try_from(hard).unwrap_or(-1);
            Some(format!("--ulimit={name}={hard}:{hard}"))
        };
        self.rlimits.iter().filter_map(limit).collect()
    }
}

/// A folder without hooks, instead of those in which Podman finds some.
fn hooks_folder(made: &Path) -> PathBuf {
    made.join("hooks")
}

/// The empty file that is shown in place of the image's.
fn preload_file(made: &Path) -> PathBuf {
    made.join("preload")
}
