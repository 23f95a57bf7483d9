//! Docker and Podman as runtimes. The engine has the image and makes the container, inside the process's own group and as
//! the job's user; it mounts nothing that a user named. It starts Sluice's own program, which waits: a process of root's beside it
//! (`companion`) then mounts everything into the container by handle, as for an OCI runtime, and says what to run.

use super::assembly::{self, ShownHandles};
use super::companion::Companion;
use super::engine_image::EngineImage;
use super::files::{OWN, PROGRAM};
use super::runtime_config::DeviceFile;
use super::{ContainerSpec, devices, group_trees, init};
use image::{Digest, Reference};
use nix::errno::Errno;
use nix::unistd::execve;
use serde::{Deserialize, Serialize};
use std::ffi::CString;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Variables of the agent's own that say where an engine is; all others are not for it.
const PASSED_ON: [&str; 3] = ["DOCKER_HOST", "CONTAINERS_CONF", "CONTAINERS_STORAGE_CONF"];
const PATH: &str = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// The file into which an engine writes the id of the container.
const ID_FILE: &str = "id";
/// The record of a container that an engine may still have.
pub(super) const RECORD: &str = "engine.json";
/// The file of the user's login for a registry.
pub(super) const LOGIN: &str = "config.json";
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

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kind {
    Docker,
    Podman,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Engine {
    pub kind: Kind,
    pub program: PathBuf,
}

/// What is needed to remove a container that nobody removed.
#[derive(Serialize, Deserialize)]
pub(super) struct Left {
    pub engine: Engine,
    pub name: String,
}

impl Engine {
    /// The kind of engine that a runtime of this name or path is; `None` for an OCI runtime.
    pub fn kind_of(runtime: &str) -> Option<Kind> {
        match Path::new(runtime).file_name()?.to_str()? {
            "docker" => Some(Kind::Docker),
            "podman" => Some(Kind::Podman),
            _ => None,
        }
    }

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
            Kind::Docker => &[],
            // The group is a path, which systemd would not take.
            Kind::Podman => &["--cgroup-manager=cgroupfs"],
        }
    }

    /// The image; `None` if the engine does not have it.
    fn inspect(&self, image: &str, folder: &Path) -> Result<Option<EngineImage>, String> {
        let words = ["image", "inspect", image];
        let said = self.call(folder).args(words).output();
        let said = said.map_err(|e| format!("{}: {e}", self.program.display()))?;
        if said.status.success() {
            let found =
                EngineImage::read(&said.stdout).map_err(|why| format!("image {image}: {why}"))?;
            // A volume could cover Sluice's own program in the container; Podman can be told to make none.
            if let (Kind::Docker, Some(path)) = (self.kind, found.volumes.first()) {
                let why = "it declares a volume, with which Docker as runtime does not run it";
                return Err(format!("image {image}: {why}: {path}"));
            }
            return Ok(Some(found));
        }
        // Whatever else is wrong, the pull says it.
        Ok(None)
    }

    fn pull(&self, reference: &Reference, image: &str, spec: &ContainerSpec) -> Result<(), String> {
        let mut command = self.call(&spec.folder);
        command.arg("pull");
        if self.kind == Kind::Podman {
            command.arg(format!("--authfile={}", spec.folder.join(LOGIN).display()));
            if spec.site.insecure.contains(&reference.registry) {
                command.arg("--tls-verify=false");
            }
        }
        let said = command.arg(image).output();
        let said = said.map_err(|e| format!("{}: {e}", self.program.display()))?;
        if said.status.success() {
            Ok(())
        } else {
            Err(format!("{image}: {}", last_line(&said.stderr)))
        }
    }
}

/// An error of an engine is several lines; the last one says most.
fn last_line(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    text.lines()
        .rfind(|line| !line.trim().is_empty())
        .unwrap_or("it says nothing")
        .trim()
        .to_owned()
}

/// The engine's own environment. Logins of root's are not the user's: `folder` has the user's, if there are any.
fn environment(folder: &Path) -> Vec<String> {
    let passed =
        PASSED_ON.iter().filter_map(|name| Some(format!("{name}={}", std::env::var(name).ok()?)));
    let own =
        [PATH.to_owned(), "HOME=/root".to_owned(), format!("DOCKER_CONFIG={}", folder.display())];
    own.into_iter().chain(passed).collect()
}

/// Writes the user's login for the image's registry, as engines read it.
fn write_login(spec: &ContainerSpec, reference: &Reference) -> std::io::Result<()> {
    use base64::Engine as _;
    let auths = spec.credentials.as_ref().map(|login| {
        let text = format!("{}:{}", login.username, login.password);
        let auth = base64::engine::general_purpose::STANDARD.encode(text);
        let registry = match reference.registry.as_str() {
            "docker.io" => "https://index.docker.io/v1/",
            other => other,
        };
        serde_json::json!({ registry: { "auth": auth } })
    });
    let text = serde_json::json!({ "auths": auths.unwrap_or(serde_json::json!({})) }).to_string();
    let mut file = fs::OpenOptions::new();
    file.write(true).create(true).truncate(true).mode(0o600);
    std::io::Write::write_all(&mut file.open(spec.folder.join(LOGIN))?, text.as_bytes())
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
    ) -> Result<EngineProcess, String> {
        let private = fs::DirBuilder::new().recursive(true).mode(0o700).create(&spec.folder);
        private
            .and_then(|()| write_login(spec, reference))
            .map_err(|e| format!("{}: {e}", spec.folder.display()))?;
        let name = reference.to_string();
        let image = match engine.inspect(&name, &spec.folder)? {
            Some(image) => image,
            None => {
                progress(&format!("sluice: image {name}: pulling"));
                engine.pull(reference, &name, spec)?;
                engine.inspect(&name, &spec.folder)?.ok_or(format!("{name}: it is not there"))?
            }
        };
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
            return Err(format!("{} {why}", engine.program.display()));
        }
        let group = group_trees::path(&spec.groups)?;
        let devices = devices::files(spec.devices.as_ref(), spec.of_several_nodes);
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
        let folder = spec.folder.join(format!("process-{}-{}", spec.step, spec.process));
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
            let companion = Companion {
                settings: &self.image.settings,
                shown: self.shown,
                rlimits: &self.rlimits,
                has_gpu: devices::have_driver(&self.devices),
                made: &self.made,
                group: &self.group,
                id_file: ID_FILE,
                exec_failed: words,
            };
            companion.start(spec, &folder, argv, job_environment)
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
        if self.engine.kind == Kind::Podman {
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
                Kind::Docker => DOCKERS_DETACH_KEYS,
                Kind::Podman => "",
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
            add(&format!("--device={}", device.path));
        }
        add(&format!("--user={}:{}", spec.user.uid, spec.user.gid));
        spec.user.groups.iter().for_each(|group| add(&format!("--group-add={group}")));
        self.ulimits().iter().for_each(|limit| add(limit));
        let own_folder = match self.engine.kind {
            Kind::Docker => {
                add("--runtime=runc");
                OWN_FOLDER.to_owned()
            }
            Kind::Podman => {
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
                (Kind::Podman, "nofile" | "nproc") => (*hard).min(pids_max),
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
