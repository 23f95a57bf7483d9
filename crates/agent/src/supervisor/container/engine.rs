//! Docker and Podman as runtimes. The engine has the image and makes the container, inside the process's own group and as
//! the job's user; it mounts nothing that a user named. It starts Sluice's own program, which waits: a process of root's beside it
//! (`companion`) then mounts everything into the container by handle, as for an OCI runtime, and says what to run.

use super::assembly::{self, ShownHandles};
use super::companion::Companion;
use super::files::PROGRAM;
use super::runtime_config::DeviceFile;
use super::{ContainerSpec, devices, group_trees, init};
use image::{Digest, ImageConfig, Reference};
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
const RECORD: &str = "engine.json";

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
struct Left {
    engine: Engine,
    name: String,
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
    fn call(&self, folder: &Path) -> Command {
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

    /// The image's settings; `None` if the engine does not have it.
    fn inspect(&self, image: &str, folder: &Path) -> Result<Option<ImageConfig>, String> {
        let words = ["image", "inspect", "--format", "{{json .Config}}", image];
        let said = self.call(folder).args(words).output();
        let said = said.map_err(|e| format!("{}: {e}", self.program.display()))?;
        if said.status.success() {
            let settings = ImageConfig::from_settings(&said.stdout);
            return settings.map(Some).ok_or(format!("{image}: its settings cannot be read"));
        }
        // Whatever else is wrong, the pull says it.
        Ok(None)
    }

    fn pull(&self, reference: &Reference, image: &str, spec: &ContainerSpec) -> Result<(), String> {
        let mut command = self.call(&spec.folder);
        command.arg("pull");
        if self.kind == Kind::Podman {
            command.arg(format!("--authfile={}", spec.folder.join("config.json").display()));
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
    std::io::Write::write_all(&mut file.open(spec.folder.join("config.json"))?, text.as_bytes())
}

/// A process that an engine is to run in a container of its own.
pub(crate) struct EngineProcess {
    engine: Engine,
    image: String,
    settings: ImageConfig,
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
        let image = reference.to_string();
        let settings = match engine.inspect(&image, &spec.folder)? {
            Some(settings) => settings,
            None => {
                progress(&format!("sluice: image {image}: pulling"));
                engine.pull(reference, &image, spec)?;
                engine.inspect(&image, &spec.folder)?.ok_or(format!("{image}: it is not there"))?
            }
        };
        let shown = ShownHandles::open(spec, environment);
        shown.check()?;
        // Other tasks of the step make theirs at the same time.
        let made = spec.folder.join(format!("own-{}-{}", spec.step, spec.process));
        fs::create_dir_all(&made).map_err(|e| format!("{}: {e}", made.display()))?;
        let own = assembly::own_files(spec, &made)?;
        if !own.iter().any(|(_, target)| target == PROGRAM) {
            let why = "cannot run this build of Sluice, which has no C library to bring along";
            return Err(format!("{} {why}", engine.program.display()));
        }
        let group = group_trees::path(&spec.groups)?;
        let devices = devices::files(spec.devices.as_ref(), spec.of_several_nodes);
        Ok(EngineProcess { engine, image, settings, shown, group, rlimits, devices, made, own })
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
                settings: &self.settings,
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
        ] {
            add(word);
        }
        add(&format!("--name={name}"));
        add(&format!("--cidfile={}", folder.join(ID_FILE).display()));
        add(&format!("--cgroup-parent={}", self.group));
        if spec.terminal {
            add("--tty");
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
        if self.engine.kind == Kind::Podman {
            // Its monitor stays in the process's group, and ends with it.
            add("--cgroups=no-conmon");
            // Its defaults are more than a machine may allow; it lowers its own number of processes to that of pids.
            let pids_max = fs::read_to_string("/proc/sys/kernel/pid_max");
            let pids_max =
                pids_max.ok().and_then(|text| text.trim().parse().ok()).unwrap_or(32_768);
            for (limit, name) in [("RLIMIT_NOFILE", "nofile"), ("RLIMIT_NPROC", "nproc")] {
                let found = self.rlimits.iter().find(|(one, ..)| one == limit);
                let most = found.map_or(pids_max, |(_, _, hard)| (*hard).min(pids_max));
                add(&format!("--ulimit={name}={most}:{most}"));
            }
        }
        for (source, target) in &self.own {
            add(&format!("--volume={}:{target}:ro", source.display()));
        }
        add(&format!("--volume={}:{}:ro", folder.display(), init::FOLDER));
        let [program, arguments @ ..] = init::words();
        add(&format!("--entrypoint={program}"));
        add(&self.image);
        arguments.iter().for_each(|word| add(word));
        words
    }
}

/// Removes the containers that an engine still has of an attempt: those whose command was killed.
pub(super) fn remove_left(attempt: &Path) {
    let folders = |path: &Path| {
        let entries = fs::read_dir(path).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).collect::<Vec<_>>()
    };
    let record = |process: PathBuf| {
        let text = fs::read(process.join(RECORD)).ok()?;
        serde_json::from_slice::<Left>(&text).ok()
    };
    for container in folders(attempt) {
        let left: Vec<Left> = folders(&container).into_iter().filter_map(record).collect();
        if let Some(first) = left.first() {
            let (tries, options): (_, &[&str]) = match first.engine.kind {
                // What is gone already cannot be removed, which is as well.
                Kind::Docker => (1, &["rm", "--force"]),
                // Podman notices at the first try that the container's monitor was killed.
                Kind::Podman => (2, &["rm", "--force", "--ignore"]),
            };
            let remove = || {
                let names = left.iter().map(|left| &left.name);
                first.engine.call(&container).args(options).args(names).output()
            };
            let _ = (0..tries).any(|_| remove().is_ok_and(|said| said.status.success()));
        }
    }
}
