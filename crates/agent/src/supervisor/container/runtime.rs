//! What runs containers on the node: which program it is, and how an OCI runtime is called.

use super::apptainer;
use super::assembly;
use super::engine::Engine;
use super::enroot::EnrootImage;
use super::node_programs;
use image::{Reference, Source};
use model::container::{Container, ContainerUser};
use model::site::{ContainerSite, NetworkPolicy, RuntimeKind};
use nix::errno::Errno;
use nix::unistd::execve;
use std::convert::Infallible;
use std::ffi::{CStr, CString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Tried in this order.
const RUNTIMES: [&str; 2] = [RUNC, CRUN];
pub(super) const RUNC: &str = "runc";
const CRUN: &str = "crun";
/// Tried after these, where the site names none: each for what it can do.
const OTHERS: [&str; 5] = ["podman", "docker", "enroot", "apptainer", "singularity"];

/// What runs containers on this node.
pub(super) enum Runtime {
    /// It runs a bundle that we make.
    Oci(PathBuf),
    /// It has images of its own, of which this is one.
    Engine(Engine, Reference),
    /// It has images and containers of the user's own.
    Enroot(PathBuf, EnrootImage),
    /// It runs a `.sif` as the user.
    Apptainer(PathBuf, PathBuf),
}

/// The runtime for a container, whose folder this is: the one that the site names, or the first that is here. An engine runs
/// images of registries as the job's user, in the node's network; what an engine, Enroot or Apptainer cannot do is for an OCI
/// runtime: other files of the node as images, other users inside, and with an engine or Apptainer containers with a name, and saving.
pub(super) fn find(
    site: &ContainerSite,
    request: &Container,
    folder: &Path,
    own_network: bool,
) -> Result<Runtime, String> {
    Search { site, request, folder, own_network, installed: &node_programs::find }.runtime()
}

/// What a runtime is searched for.
struct Search<'a> {
    site: &'a ContainerSite,
    request: &'a Container,
    folder: &'a Path,
    own_network: bool,
    /// The node's program of a name.
    installed: &'a dyn Fn(&str) -> Option<PathBuf>,
}

impl Search<'_> {
    fn runtime(&self) -> Result<Runtime, String> {
        let named = self.site.runtime.as_deref();
        if let Some(name) = named {
            if RuntimeKind::of(name) == RuntimeKind::Oci {
                return self.named(name).map(Runtime::Oci);
            }
            if let Some(found) = self.other(name, || self.named(name))? {
                return Ok(found);
            }
        }
        if let Some(found) = RUNTIMES.iter().find_map(|name| (self.installed)(name)) {
            return Ok(Runtime::Oci(found));
        }
        for name in OTHERS.iter().filter(|_| named.is_none()) {
            if let Some(program) = (self.installed)(name)
                && let Some(found) = self.other(name, || Ok(program))?
            {
                return Ok(found);
            }
        }
        Err("no container runtime on this node: install runc, or name one in sluice.toml".into())
    }

    /// The program of this name as the container's runtime, where it is no OCI runtime and can do what is asked for.
    fn other(
        &self,
        name: &str,
        program: impl FnOnce() -> Result<PathBuf, String>,
    ) -> Result<Option<Runtime>, String> {
        let found = match RuntimeKind::of(name) {
            RuntimeKind::Oci => None,
            RuntimeKind::Engine(kind) => match self.image_for_engine() {
                Some(image) => Some(Runtime::Engine(Engine { kind, program: program()? }, image)),
                None => None,
            },
            RuntimeKind::Enroot => {
                // A container of that name that an OCI runtime has made is its own.
                let is_others = assembly::is_made_in(self.folder);
                match EnrootImage::of(self.request).filter(|_| !is_others) {
                    Some(image) => Some(Runtime::Enroot(program()?, image)),
                    None => None,
                }
            }
            RuntimeKind::Apptainer => match apptainer::image_of(self.request) {
                Some(image) => Some(Runtime::Apptainer(program()?, image)),
                None => None,
            },
        };
        Ok(found)
    }

    /// The image of a container that an engine can run.
    fn image_for_engine(&self) -> Option<Reference> {
        let request = self.request;
        // An engine's containers have the node's network. A task that need not be apart takes it.
        let is_apart = self.own_network && self.site.network == NetworkPolicy::Bridge;
        let is_plain = request.user == ContainerUser::JobUser
            && !is_apart
            && request.name.is_none()
            && request.save.is_none();
        match request.image.as_deref().filter(|_| is_plain)?.parse() {
            Ok(Source::Registry(reference)) => Some(reference),
            _ => None,
        }
    }

    /// The program of the site's own choice.
    fn named(&self, name: &str) -> Result<PathBuf, String> {
        if name.contains('/') {
            let path = Some(PathBuf::from(name)).filter(|path| path.is_file());
            return path.ok_or_else(|| format!("container runtime {name}: no such file"));
        }
        (self.installed)(name)
            .ok_or_else(|| format!("container runtime {name} is not on this node"))
    }
}

/// The option of a runtime to remove neither its group nor what it noted when the container has ended.
const KEEP: &CStr = c"--keep";

/// The noted answer of a runtime that cannot do that.
const CANNOT_KEEP: &str = "none";

/// How the version of a `runc` begins that kills what a task has left running when it has waited for the task. Later ones do that
/// when they remove the task's group: told to leave it, they wait for as long as anything has the task's output open.
const KILLS_IN_TIME: &str = "runc version 1.1.";

/// Whether the runtime can leave its traces to who called it, and ends with its task all the same. It is asked once: the answer is
/// in the folder `node`, for this very file.
pub(super) fn can_keep(runtime: &Path, node: &Path) -> bool {
    let Ok(status) = fs::metadata(runtime) else { return false };
    let stamp = format!("{}-{}-{}", status.ino(), status.size(), status.mtime());
    let answer = node.join(format!("runtime-{stamp}"));
    let word = KEEP.to_str().unwrap_or_default();
    match fs::read_to_string(&answer).as_deref() {
        Ok(CANNOT_KEEP) => return false,
        Ok(known) if known == word => return true,
        // Nobody has asked, or has noted all of the answer.
        _ => {}
    }
    // One that could not be asked now, as for want of memory, is asked again.
    let says = |words: &[&str]| -> Option<String> {
        let mut command = Command::new(runtime);
        let said = command.args(words).env_clear().stdin(Stdio::null()).output().ok()?;
        said.status.success().then(|| String::from_utf8_lossy(&said.stdout).into_owned())
    };
    let ask = || -> Option<bool> {
        let has_option = says(&["run", "--help"])?.contains(word);
        Some(has_option && says(&["--version"])?.starts_with(KILLS_IN_TIME))
    };
    let Some(can) = ask() else { return false };
    // Where it cannot be written, it is asked again.
    let _ = fs::write(&answer, if can { word } else { CANNOT_KEEP });
    can
}

/// What becomes of a runtime's group and notes when its container has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Traces {
    /// The runtime removes them before it ends.
    Removed,
    /// They go with the group and the folder of the step.
    Kept,
}

/// Becomes the runtime, which runs the bundle and ends with its exit code.
pub(super) fn execute(
    runtime: &Path,
    state: &Path,
    bundle: &Path,
    id: &str,
    traces: Traces,
) -> nix::Result<Infallible> {
    let word = |text: &[u8]| CString::new(text).map_err(|_| Errno::EINVAL);
    let program = word(runtime.as_os_str().as_bytes())?;
    let log = bundle.join("runtime.log");
    // The container is in its task's group already. crun would make another, unless it is told not to.
    let is_crun = runtime.file_name().is_some_and(|name| name == CRUN);
    let groups = is_crun.then_some(c"--cgroup-manager=disabled".to_owned());
    let mut words = vec![program.clone()];
    words.extend(groups);
    words.extend([
        // Its warnings are not the job's output.
        word(b"--log")?,
        word(log.as_os_str().as_bytes())?,
        word(b"--root")?,
        word(state.as_os_str().as_bytes())?,
        word(b"run")?,
    ]);
    words.extend((traces == Traces::Kept).then_some(KEEP.to_owned()));
    words.extend([word(b"--bundle")?, word(bundle.as_os_str().as_bytes())?, word(id.as_bytes())?]);
    // The runtime's own environment; the container's is in its configuration.
    let environment = [c"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"];
    execve(&program, &words, &environment)
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::container::ContainerName;

    #[test]
    fn an_engine_is_for_what_it_can_do_and_must_be_there() {
        let find = |runtime: &str, request: &Container| {
            let site = ContainerSite { runtime: Some(runtime.to_owned()), ..Default::default() };
            find(&site, request, Path::new("/nowhere"), false).err().unwrap_or_default()
        };
        let image = |image: &str| Container { image: Some(image.into()), ..Container::default() };
        let alpine = image("docker://alpine");
        for name in ["/nowhere/docker", "/nowhere/podman", "/nowhere/runc", "/nowhere/enroot"] {
            assert_eq!(find(name, &alpine), format!("container runtime {name}: no such file"));
        }
        assert_eq!(find("crun2", &alpine), "container runtime crun2 is not on this node");
        let name = ContainerName::parse("n").ok();
        for other in [
            image("/images/x.sif"),
            Container { user: ContainerUser::Root, ..alpine.clone() },
            Container { save: Some("x".into()), ..alpine.clone() },
            Container { name, ..alpine.clone() },
        ] {
            assert!(!find("/nowhere/docker", &other).contains("docker"), "{other:?}");
        }
    }

    #[test]
    fn runtime_that_nobody_names_is_the_first_that_is_here_and_can_do_it() {
        let site = ContainerSite::default();
        let find = |installed: &[&str], request: &Container| {
            let installed = |name: &str| installed.contains(&name).then(|| PathBuf::from(name));
            let folder = Path::new("/nowhere");
            let search =
                Search { site: &site, request, folder, own_network: false, installed: &installed };
            let program = match search.runtime() {
                Ok(Runtime::Oci(program) | Runtime::Enroot(program, _)) => program,
                Ok(Runtime::Engine(engine, _)) => engine.program,
                Ok(Runtime::Apptainer(program, _)) => program,
                Err(why) => PathBuf::from(why),
            };
            program.display().to_string()
        };
        let image = |image: &str| Container { image: Some(image.into()), ..Container::default() };
        let (alpine, sif) = (image("docker://alpine"), image("/images/x.sif"));
        for (installed, request, expected) in [
            (&["docker", "runc", "crun"][..], &alpine, "runc"),
            (&["podman", "crun"], &sif, "crun"),
            (&["docker", "podman"], &alpine, "podman"),
            (&["apptainer", "docker"], &alpine, "docker"),
            (&["apptainer", "docker"], &sif, "apptainer"),
            (&["singularity", "enroot"], &alpine, "enroot"),
        ] {
            assert_eq!(find(installed, request), expected, "{installed:?}");
        }
        let root = Container { user: ContainerUser::Root, ..alpine.clone() };
        for (installed, request) in
            [(&["docker"][..], &root), (&["docker"], &sif), (&["apptainer"], &alpine)]
        {
            let refused = find(installed, request);
            assert!(refused.starts_with("no container runtime on this node"), "{refused}");
        }
    }

    #[test]
    fn runtime_is_asked_once_whether_it_can_leave_its_traces() {
        let node = tempfile::tempdir().expect("scratch folder");
        let made = |name: &str, version: &str, option: &str, code: u8| {
            let path = node.path().join(name);
            let script = format!(
                "echo \"$@\" >> \"$0.asked\"\n\
                 case $1 in --version) echo 'runc version {version}' ;; *) echo ' {option}' ;; esac\n\
                 exit {code}\n"
            );
            // By another process: what this one wrote may be open in a child of another test, and cannot be executed then.
            let write = "{ echo '#!/bin/sh'; echo \"$1\"; } > \"$0\" && chmod 755 \"$0\"";
            let mut shell = Command::new("/bin/sh");
            let written = shell.args(["-c", write]).arg(&path).arg(script).status();
            assert!(written.expect("written").success());
            path
        };
        let keeps = made("keeps", "1.1.5+ds1", "--keep", 0);
        let older = made("older", "1.0.3", "--detach", 0);
        let newer = made("newer", "1.2.4", "--keep", 0);
        let broken = made("broken", "1.1.5", "--keep", 1);
        for _ in 0..2 {
            assert!(can_keep(&keeps, node.path()));
            for other in [&older, &newer, &broken] {
                assert!(!can_keep(other, node.path()), "{}", other.display());
            }
        }
        let asked = |name: &str| {
            let asked = fs::read_to_string(node.path().join(format!("{name}.asked")));
            asked.expect("asked").lines().map(str::to_owned).collect::<Vec<_>>()
        };
        for name in ["keeps", "newer"] {
            assert_eq!(asked(name), ["run --help", "--version"], "{name}");
        }
        assert_eq!(asked("older"), ["run --help"]);
        assert_eq!(asked("broken").len(), 2, "what it said was no answer");
        assert!(!can_keep(Path::new("/nowhere/runc"), node.path()));
    }
}
